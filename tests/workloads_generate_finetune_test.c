/* Fine-tuning from a model description: tiny models whose memory is computed by hand, and every option. */
#include <stdio.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/workloads_generate_fixture.h"

/* Width 8, 2 blocks, 2 heads of 4, feed-forward 32, 40 words; batch 2 of 6 tokens. */
static generate_finetune_options tiny(generate_family family) {
  generate_finetune_options options;
  generate_finetune_defaults(&options);
  generate_model_describe(&options.model, family, 8, 2, 2, 32, 40);
  options.batch = 2;
  ck_assert(generate_sequence_parse("6", &options.sequence));
  options.lora_rank = 2;
  options.iterations = 3;
  return options;
}

static void make(const generate_finetune_options *options, generated *kept) {
  trace_error error = {0};
  *kept = (generated){0};
  trace_status status = generate_finetune(options, generated_sink(kept), &error);
  ck_assert_msg(status == TRACE_OK, "%s", error.message);
}

static const char *const strategies[] = {"N", "R", "L", "O", "LR", "RO", "LO", "LRO"};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

/* Every combination is well-formed (the fixture checks each event), repeats itself to the byte, and holds
 * as much after six iterations as after three. */
START_TEST(every_combination_is_sound) {
  for (generate_family family = GENERATE_OPT; family <= GENERATE_GLM; family++) {
    for (unsigned s = 0; s < STRATEGIES; s++) {
      for (generate_platform platform = GENERATE_FSDP; platform <= GENERATE_COLOSSALAI; platform++) {
        for (uint32_t world = 1; world <= 4; world += 3) {
          generate_finetune_options options = tiny(family);
          ck_assert(generate_strategy_parse(strategies[s], &options));
          options.platform = platform;
          options.world = world;
          generated first, again, longer;
          make(&options, &first);
          make(&options, &again);
          ck_assert(generated_equal(&first, &again));
          options.iterations = 6;
          make(&options, &longer);
          ck_assert_uint_eq(longer.live_bytes, first.live_bytes);
          ck_assert_uint_eq(longer.peak_bytes, first.peak_bytes);
          generated_free(&first);
          generated_free(&again);
          generated_free(&longer);
        }
      }
    }
  }
}
END_TEST

/* OPT, one rank, nothing saved: parameters, two averages each, ids and mask, and three workspaces
 * (32 MiB for either thread, 1 MiB for products with a bias). */
START_TEST(what_stays_is_parameters_and_averages) {
  generate_finetune_options options = tiny(GENERATE_OPT);
  /* 40*8 words, 2050*8 positions, 16 of the last norm; a block: 4*(8*8+8) attention, 8*32+32 and 32*8+8, 32
   * of its norms. */
  const uint64_t parameters = 320 + 16400 + 16 + 2 * (288 + 288 + 264 + 32);
  ck_assert_uint_eq(generate_model_parameters(&options.model), parameters);
  generated kept;
  make(&options, &kept);
  const uint64_t inputs = 2 * (2 * 6 * 8), workspaces = 2 * (32 << 20) + (1 << 20);
  ck_assert_uint_eq(kept.live_bytes, 3 * parameters * 2 + inputs + workspaces);
  generated_free(&kept);

  options.precision = GENERATE_FP32;
  make(&options, &kept);
  ck_assert_uint_eq(kept.live_bytes, 3 * parameters * 4 + inputs + workspaces);
  generated_free(&kept);

  options = tiny(GENERATE_OPT);
  options.offload = true; /* the averages are on the host */
  make(&options, &kept);
  ck_assert_uint_eq(kept.live_bytes, parameters * 2 + inputs + workspaces);
  generated_free(&kept);
}
END_TEST

/* LLaMA, 40 rows and 8 columns twice, no biases: adapters of rank 2 at seven projections a block. */
START_TEST(adapters_alone_are_trained) {
  generate_finetune_options options = tiny(GENERATE_LLAMA);
  options.lora = true;
  const uint64_t parameters = 2 * 320 + 8 + 2 * (4 * 64 + 3 * 8 * 32 + 16);
  const uint64_t adapters = 2 * 2 * (4 * (8 + 8) + 3 * (8 + 32));
  ck_assert_uint_eq(generate_model_parameters(&options.model), parameters);
  generated kept;
  make(&options, &kept);
  /* No product has a bias; the backward's thread has its workspace. */
  ck_assert_uint_eq(kept.live_bytes, parameters * 2 + 3 * adapters * 2 + 2 * (2 * 6 * 8) + 2 * (32 << 20));
  generated_free(&kept);
}
END_TEST

/* Four ranks: a quarter of the rows each, rounded up. A block of LLaMA gathered has 4 shards of its bytes,
 * twice an iteration and block (forward, backward), on the gather stream. */
START_TEST(shards_are_gathered_and_reduced) {
  generate_finetune_options options = tiny(GENERATE_LLAMA);
  options.world = 4;
  const uint64_t block = (4 * 64 + 3 * 8 * 32 + 16) * 2, root = (2 * 320 + 8) * 2;
  generated kept;
  make(&options, &kept);
  uint64_t gathers = 0, root_gathers = 0, reductions = 0;
  for (size_t i = 0; i < kept.count; i++) {
    const trace_event *event = &kept.events[i];
    if (event->kind != TRACE_ALLOC) continue;
    gathers += event->stream == 1 && event->size == block;
    root_gathers += event->stream == 1 && event->size == root;
    reductions += event->stream == 2 && event->size == block / 4;
  }
  ck_assert_uint_eq(gathers, 3 * 2 * 2);
  ck_assert_uint_eq(root_gathers, 3);
  ck_assert_uint_eq(reductions, 3 * 2);
  /* This rank's quarter, and its averages. */
  ck_assert_uint_eq(kept.live_bytes, 3 * (2 * block + root) / 4 + 2 * (2 * 6 * 8) + 2 * (32 << 20));
  generated_free(&kept);
}
END_TEST

/* A list gives each iteration its length; what a block saves goes with it. */
START_TEST(sequences_are_drawn) {
  generate_finetune_options options = tiny(GENERATE_OPT);
  ck_assert(generate_sequence_parse("5,7,11", &options.sequence));
  generated kept;
  make(&options, &kept);
  for (unsigned i = 0; i < 3; i++) {
    const uint64_t tokens[] = {5, 7, 11};
    /* Logits in float and their chances, twice each (forward, backward). */
    ck_assert_uint_eq(generated_of_size(&kept, 2 * tokens[i] * 40 * 4), 4);
  }
  generated_free(&kept);

  generated other;
  ck_assert(generate_sequence_parse("uniform:3-40", &options.sequence));
  options.iterations = 8;
  make(&options, &kept);
  options.seed = 2;
  make(&options, &other);
  ck_assert(!generated_equal(&kept, &other));
  generated_free(&kept);
  generated_free(&other);
}
END_TEST

START_TEST(sequence_texts) {
  static const char *const bad[] = {"",
                                    "0",
                                    "x",
                                    "12x",
                                    "1,",
                                    ",1",
                                    "1,,2",
                                    "uniform:",
                                    "uniform:5",
                                    "uniform:9-3",
                                    "uniform:0-3",
                                    "lognormal:1:2-3",
                                    "lognormal:1,x:2-3",
                                    "lognormal:1,1",
                                    "99999999999",
                                    "uniform:1-2x"};
  generate_sequence sequence;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    ck_assert_msg(!generate_sequence_parse(bad[i], &sequence), "'%s' was taken", bad[i]);
  ck_assert(generate_sequence_parse("512", &sequence));
  ck_assert_int_eq(sequence.kind, GENERATE_SEQUENCE_FIXED);
  ck_assert_uint_eq(sequence.high, 512);
  ck_assert(generate_sequence_parse("336,512,309", &sequence));
  ck_assert_int_eq(sequence.kind, GENERATE_SEQUENCE_LIST);
  ck_assert_uint_eq(sequence.list_count, 3);
  ck_assert_uint_eq(sequence.low, 309);
  ck_assert_uint_eq(sequence.high, 512);
  ck_assert(generate_sequence_parse("lognormal:5.3,0.6:64-512", &sequence));
  ck_assert_int_eq(sequence.kind, GENERATE_SEQUENCE_LOGNORMAL);
  ck_assert_uint_eq(sequence.low, 64);
}
END_TEST

START_TEST(strategy_texts) {
  generate_finetune_options options;
  generate_finetune_defaults(&options);
  static const char *const bad[] = {"", "X", "NL", "LL", "L R", "N,R"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) ck_assert(!generate_strategy_parse(bad[i], &options));
  ck_assert(generate_strategy_parse("orl", &options));
  ck_assert(options.lora && options.recompute && options.offload);
  ck_assert(generate_strategy_parse("N", &options));
  ck_assert(!options.lora && !options.recompute && !options.offload);
}
END_TEST

static void refused(const generate_finetune_options *options, const char *message) {
  generated kept = {0};
  trace_error error = {0};
  ck_assert_int_eq(generate_finetune(options, generated_sink(&kept), &error), TRACE_MALFORMED);
  ck_assert_msg(strstr(error.message, message) != NULL, "'%s' lacks '%s'", error.message, message);
  generated_free(&kept);
}

START_TEST(what_makes_no_sense_is_refused) {
  generate_finetune_options options = tiny(GENERATE_OPT);
  options.batch = 0;
  refused(&options, "batch is 0");
  options = tiny(GENERATE_OPT);
  options.world = 0;
  refused(&options, "world is 0");
  options = tiny(GENERATE_LLAMA);
  options.model.heads = 3;
  options.model.key_value_heads = 2;
  refused(&options, "3 heads do not share 2");
  options = tiny(GENERATE_GPT2);
  ck_assert(generate_sequence_parse("1025", &options.sequence));
  refused(&options, "1025 tokens is longer than the 1024 positions");
  options = tiny(GENERATE_LLAMA);
  options.batch = 1 << 20;
  options.model.vocabulary = 1 << 24;
  ck_assert(generate_sequence_parse("1048576", &options.sequence));
  refused(&options, "2^57 elements");
  options = tiny(GENERATE_LLAMA);
  options.batch = 1 << 15;
  options.model.layers = 4096;
  options.model.hidden = 1 << 20;
  options.model.heads = options.model.key_value_heads = 16;
  options.model.head_size = 1 << 16;
  ck_assert(generate_sequence_parse("1048576", &options.sequence));
  refused(&options, "2^63-1 bytes");
}
END_TEST

START_TEST(a_failing_sink_ends_it) {
  generate_finetune_options options = tiny(GENERATE_NEOX);
  options.recompute = options.lora = true;
  generated whole;
  make(&options, &whole);
  for (size_t at = 1; at <= whole.count; at += 1 + at / 7) {
    generated kept = {.refuse_at = at};
    trace_error error = {0};
    ck_assert_int_eq(generate_finetune(&options, generated_sink(&kept), &error), TRACE_UNWRITABLE);
    ck_assert_str_eq(error.message, "refused");
    ck_assert_uint_eq(kept.count, at);
    generated_free(&kept);
  }
  generated_free(&whole);
}
END_TEST

/* Parameters of the models that have a name, in millions, as their papers and cards count them. */
START_TEST(models_have_their_size) {
  static const struct {
    const char *name;
    uint64_t millions;
  } sizes[] = {{"opt-1.3b", 1315},
               {"opt-13b", 12853},
               {"gpt2-xl", 1557},
               {"vicuna-13b", 13015},
               {"gpt-neox-20b", 20554}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    ck_assert_uint_eq(generate_model_parameters(generate_model_find(sizes[i].name)) / 1000000,
                      sizes[i].millions);
  for (const char *const *name = generate_model_names(); *name; name++)
    ck_assert_str_eq(generate_model_find(*name)->name, *name);
  ck_assert_ptr_null(generate_model_find("opt-1.4b"));
}
END_TEST

static Suite *generate_finetune_suite(void) {
  Suite *suite = suite_create("generate finetune");
  TCase *tests = tcase_create("finetune");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, every_combination_is_sound);
  tcase_add_test(tests, what_stays_is_parameters_and_averages);
  tcase_add_test(tests, adapters_alone_are_trained);
  tcase_add_test(tests, shards_are_gathered_and_reduced);
  tcase_add_test(tests, sequences_are_drawn);
  tcase_add_test(tests, sequence_texts);
  tcase_add_test(tests, strategy_texts);
  tcase_add_test(tests, what_makes_no_sense_is_refused);
  tcase_add_test(tests, a_failing_sink_ends_it);
  tcase_add_test(tests, models_have_their_size);
  suite_add_tcase(suite, tests);
  return suite;
}

TEST_MAIN(generate_finetune_suite)

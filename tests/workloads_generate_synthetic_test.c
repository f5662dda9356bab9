/* Random, adversarial and serving traces. */
#include <stdio.h>
#include <string.h>

#include "tests/test_main.h"
#include "tests/workloads_generate_fixture.h"

static uint64_t rounded(uint64_t bytes) { return (bytes + 511) & ~UINT64_C(511); }

/* The most that lives, each allocation rounded up to 512 bytes. */
static uint64_t rounded_peak(const generated *kept) {
  uint64_t live = 0, peak = 0;
  for (size_t i = 0; i < kept->count; i++) {
    uint64_t bytes = rounded(kept->events[i].size);
    live = kept->events[i].kind == TRACE_ALLOC ? live + bytes : live - bytes;
    if (live > peak) peak = live;
  }
  return peak;
}

static void make_random(const generate_random_options *options, generated *kept) {
  trace_error error = {0};
  *kept = (generated){0};
  trace_status status = generate_random(options, generated_sink(kept), &error);
  ck_assert_msg(status == TRACE_OK, "%s", error.message);
}

START_TEST(random_keeps_to_its_limits) {
  for (generate_distribution distribution = GENERATE_UNIFORM; distribution <= GENERATE_POWERS;
       distribution++) {
    for (generate_victim victim = GENERATE_ANY; victim <= GENERATE_NEWEST; victim++) {
      generate_random_options options;
      generate_random_defaults(&options);
      options.distribution = distribution;
      options.victim = victim;
      options.low = 3000;
      options.high = 70000;
      options.allocations = 5000;
      options.live_bytes = 1 << 20;
      options.streams = 3;
      generated kept, again;
      make_random(&options, &kept);
      make_random(&options, &again);
      ck_assert(generated_equal(&kept, &again));
      ck_assert_uint_eq(kept.allocations, 5000);
      ck_assert_uint_eq(kept.count, 10000);
      ck_assert_uint_eq(kept.live_bytes, 0);
      ck_assert_uint_le(rounded_peak(&kept), 1 << 20);
      ck_assert_uint_gt(rounded_peak(&kept), (1 << 20) - 70144);
      unsigned streams = 0, wrong = 0;
      for (size_t i = 0; i < kept.count; i++) {
        uint64_t size = kept.events[i].size;
        wrong += size < 3000 || size > 70000;
        wrong += distribution == GENERATE_POWERS && (size & (size - 1)) != 0;
        streams |= 1u << kept.events[i].stream;
      }
      ck_assert_uint_eq(wrong, 0);
      ck_assert_uint_eq(streams, 7);
      generated_free(&again);
      options.seed = 2;
      make_random(&options, &again);
      ck_assert(!generated_equal(&kept, &again));
      generated_free(&kept);
      generated_free(&again);
    }
  }
}
END_TEST

/* Half of log-uniform sizes lie below the geometric mean, half of uniform ones below the arithmetic. */
START_TEST(random_sizes_are_distributed) {
  static const struct {
    generate_distribution distribution;
    uint64_t median;
  } cases[] = {{GENERATE_UNIFORM, (1 << 19) + 1}, {GENERATE_LOGUNIFORM, 1 << 10}};
  for (size_t c = 0; c < 2; c++) {
    generate_random_options options;
    generate_random_defaults(&options);
    options.distribution = cases[c].distribution;
    options.low = 1;
    options.high = 1 << 20;
    options.allocations = 20000;
    generated kept;
    make_random(&options, &kept);
    unsigned below = 0;
    for (size_t i = 0; i < kept.count; i++)
      below += kept.events[i].kind == TRACE_ALLOC && kept.events[i].size < cases[c].median;
    ck_assert_uint_gt(below, 9700);
    ck_assert_uint_lt(below, 10300);
    generated_free(&kept);
  }
}
END_TEST

START_TEST(random_refusals) {
  generate_random_options wrong[5];
  for (size_t i = 0; i < 5; i++) generate_random_defaults(&wrong[i]);
  wrong[0].low = 0;
  wrong[1].low = wrong[1].high + 1;
  wrong[2].live_bytes = wrong[2].high - 1;
  wrong[3].streams = 65;
  wrong[4].distribution = GENERATE_POWERS;
  wrong[4].low = 5;
  wrong[4].high = 7;
  for (size_t i = 0; i < 5; i++) {
    generated kept = {0};
    trace_error error = {0};
    ck_assert_int_eq(generate_random(&wrong[i], generated_sink(&kept), &error), TRACE_MALFORMED);
    ck_assert_uint_gt(strlen(error.message), 20);
    ck_assert_uint_eq(kept.count, 0);
    generated_free(&kept);
  }
}
END_TEST

static void make_adversarial(const generate_adversarial_options *options, generated *kept) {
  trace_error error = {0};
  *kept = (generated){0};
  trace_status status = generate_adversarial(options, generated_sink(kept), &error);
  ck_assert_msg(status == TRACE_OK, "%s", error.message);
}

START_TEST(adversarial_patterns_end_empty) {
  for (generate_pattern pattern = GENERATE_SAWTOOTH; pattern <= GENERATE_DOUBLING; pattern++) {
    generate_adversarial_options options;
    generate_adversarial_defaults(&options);
    options.pattern = pattern;
    options.live_bytes = 64 << 20;
    generated kept, again;
    make_adversarial(&options, &kept);
    make_adversarial(&options, &again);
    ck_assert(generated_equal(&kept, &again));
    ck_assert_uint_eq(kept.live_bytes, 0);
    ck_assert_uint_le(rounded_peak(&kept), 64 << 20);
    generated_free(&kept);
    generated_free(&again);
  }
}
END_TEST

/* 64 MiB of 4 MiB blocks. Sawtooth: 16, then 10 of 6 MiB and 7 of 9 MiB. Checkerboard: 16, then half is free
 * for 7 of 4.5 MiB. Doubling: 16, then half is free for 4 of 8 MiB. */
START_TEST(adversarial_rounds_by_hand) {
  generate_adversarial_options options;
  generate_adversarial_defaults(&options);
  options.live_bytes = 64 << 20;
  options.rounds = 3;
  generated kept;
  make_adversarial(&options, &kept);
  ck_assert_uint_eq(kept.allocations, 16 + 10 + 7);
  ck_assert_uint_eq(generated_of_size(&kept, 6 << 20), 10);
  ck_assert_uint_eq(generated_of_size(&kept, 9 << 20), 7);
  generated_free(&kept);
  options.pattern = GENERATE_CHECKERBOARD;
  options.rounds = 1;
  make_adversarial(&options, &kept);
  ck_assert_uint_eq(kept.allocations, 16 + 7);
  ck_assert_uint_eq(generated_of_size(&kept, 4608 << 10), 7);
  generated_free(&kept);
  options.pattern = GENERATE_DOUBLING;
  options.rounds = 2;
  make_adversarial(&options, &kept);
  ck_assert_uint_eq(kept.allocations, 16 + 4);
  ck_assert_uint_eq(generated_of_size(&kept, 8 << 20), 4);
  generated_free(&kept);
  options.pattern = GENERATE_STAIRCASE;
  options.rounds = 1;
  options.step_bytes = 128 << 10;
  make_adversarial(&options, &kept);
  ck_assert_uint_eq(kept.allocations, 8 + 8); /* a window of 8, renewed once */
  ck_assert_uint_eq(generated_of_size(&kept, (4 << 20) + 15 * (128 << 10)), 1);
  generated_free(&kept);
}
END_TEST

START_TEST(adversarial_refusals) {
  generate_adversarial_options wrong[4];
  for (size_t i = 0; i < 4; i++) generate_adversarial_defaults(&wrong[i]);
  wrong[0].bytes = 0;
  wrong[1].bytes = wrong[1].live_bytes;
  wrong[2].bytes = 512;
  wrong[3].rounds = 0;
  for (size_t i = 0; i < 4; i++) {
    generated kept = {0};
    trace_error error = {0};
    ck_assert_int_eq(generate_adversarial(&wrong[i], generated_sink(&kept), &error), TRACE_MALFORMED);
    ck_assert_uint_eq(kept.count, 0);
    generated_free(&kept);
  }
}
END_TEST

/* LLaMA of width 8, 2 blocks, 2 heads of 4; prompts of 5 tokens, 3 to compute, caches in steps of 4 tokens.
 */
static generate_serving_options small_server(void) {
  generate_serving_options options;
  generate_serving_defaults(&options);
  generate_model_describe(&options.model, GENERATE_LLAMA, 8, 2, 2, 32, 40);
  options.requests = 10;
  options.batch = 3;
  options.block = 4;
  ck_assert(generate_sequence_parse("5", &options.prompt));
  ck_assert(generate_sequence_parse("4", &options.output));
  return options;
}

static void make_serving(const generate_serving_options *options, generated *kept) {
  trace_error error = {0};
  *kept = (generated){0};
  trace_status status = generate_serving(options, generated_sink(kept), &error);
  ck_assert_msg(status == TRACE_OK, "%s", error.message);
}

START_TEST(serving_ends_with_the_weights) {
  for (generate_cache cache = GENERATE_CACHE_GROWING; cache <= GENERATE_CACHE_BLOCKS; cache++) {
    generate_serving_options options = small_server();
    options.cache = cache;
    generated kept, again;
    make_serving(&options, &kept);
    make_serving(&options, &again);
    ck_assert(generated_equal(&kept, &again));
    /* And cuBLAS's workspace: no product has a bias, no gradient is wanted. */
    ck_assert_uint_eq(kept.live_bytes, generate_model_parameters(&options.model) * 2 + (32 << 20));
    generated_free(&kept);
    generated_free(&again);
  }
}
END_TEST

/* A token's keys in a layer: 8 elements of 2 bytes. 5 tokens take 2 steps, 8 tokens of room; the 9th takes a
 * third. */
START_TEST(serving_caches_grow) {
  generate_serving_options options = small_server();
  options.block = 3;
  options.model.head_size = 1000;
  options.model.rotary_size = 0;
  generated kept;
  const uint64_t token = 2 * 1000 * 2;
  make_serving(&options, &kept);
  ck_assert_uint_eq(generated_of_size(&kept, 6 * token), 10 * 2 * 2);
  ck_assert_uint_eq(generated_of_size(&kept, 9 * token), 10 * 2 * 2);
  generated_free(&kept);
  options.cache = GENERATE_CACHE_BLOCKS;
  make_serving(&options, &kept);
  ck_assert_uint_eq(generated_of_size(&kept, 2 * 3 * token * 2), 10 * 3);
  generated_free(&kept);
}
END_TEST

START_TEST(serving_refusals) {
  generate_serving_options wrong[4];
  for (size_t i = 0; i < 4; i++) wrong[i] = small_server();
  wrong[0].requests = 0;
  wrong[1].every = 0;
  wrong[2].block = 0;
  wrong[3].model.family = GENERATE_GPT2;
  wrong[3].model.positions = 8;
  for (size_t i = 0; i < 4; i++) {
    generated kept = {0};
    trace_error error = {0};
    ck_assert_int_eq(generate_serving(&wrong[i], generated_sink(&kept), &error), TRACE_MALFORMED);
    ck_assert_uint_eq(kept.count, 0);
    generated_free(&kept);
  }
}
END_TEST

/* Many wait, three run at most: what lives is bounded by the batch. */
START_TEST(serving_keeps_to_its_batch) {
  generate_serving_options options = small_server();
  options.model.head_size = 1000;
  options.model.rotary_size = 0;
  options.cache = GENERATE_CACHE_BLOCKS;
  options.requests = 40;
  options.every = 1;
  generated kept;
  make_serving(&options, &kept);
  const uint64_t block = 2 * 4 * (2 * 1000 * 2) * 2;
  uint64_t live = 0, most = 0;
  for (size_t i = 0; i < kept.count; i++) {
    if (kept.events[i].size != block) continue;
    live = kept.events[i].kind == TRACE_ALLOC ? live + 1 : live - 1;
    if (live > most) most = live;
  }
  ck_assert_uint_le(most, 3 * 3);
  ck_assert_uint_ge(most, 3 * 2);
  generated_free(&kept);
}
END_TEST

static Suite *generate_synthetic_suite(void) {
  Suite *suite = suite_create("generate synthetic");
  TCase *tests = tcase_create("synthetic");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, random_keeps_to_its_limits);
  tcase_add_test(tests, random_sizes_are_distributed);
  tcase_add_test(tests, random_refusals);
  tcase_add_test(tests, adversarial_patterns_end_empty);
  tcase_add_test(tests, adversarial_rounds_by_hand);
  tcase_add_test(tests, adversarial_refusals);
  tcase_add_test(tests, serving_ends_with_the_weights);
  tcase_add_test(tests, serving_caches_grow);
  tcase_add_test(tests, serving_refusals);
  tcase_add_test(tests, serving_keeps_to_its_batch);
  suite_add_tcase(suite, tests);
  return suite;
}

TEST_MAIN(generate_synthetic_suite)

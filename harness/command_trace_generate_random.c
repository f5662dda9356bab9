/* lakebed trace generate random: random sizes and lifetimes. */
#include "harness/command_trace_generate.h"
#include "harness/option_values.h"

enum {
  OPTION_DISTRIBUTION = 0x200,
  OPTION_LEAST,
  OPTION_MOST,
  OPTION_LIVE,
  OPTION_VICTIM,
  OPTION_STREAMS,
  OPTION_SEED
};

static const struct argp_option option_table[] = {
    {"distribution", OPTION_DISTRIBUTION, "uniform|loguniform|powers", 0,
     "of sizes: all alike; as many from each doubling; powers of two; default: loguniform", 0},
    {"min", OPTION_LEAST, "SIZE", 0, "smallest; default: 1", 0},
    {"max", OPTION_MOST, "SIZE", 0, "largest, at most 1TiB; default: 1GiB", 0},
    {"allocations", 'n', "N", 0, "how many; default: 10000", 0},
    {"live", OPTION_LIVE, "SIZE", 0, "the most that lives at a time; default: 40GiB", 0},
    {"victim", OPTION_VICTIM, "any|oldest|newest", 0, "what is freed to make room; default: any", 0},
    {"streams", OPTION_STREAMS, "N", 0, "of which one is drawn for each request, 64 at most; default: 1", 0},
    {"seed", OPTION_SEED, "N", 0, "default: 1", 0},
    {0},
};

typedef struct random_options {
  generate_target target;
  generate_random_options random;
} random_options;

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  random_options *options = state->input;
  generate_random_options *random = &options->random;
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->target;
      return 0;
    case OPTION_DISTRIBUTION:
      random->distribution = (generate_distribution)generate_parse_name(state, "distribution", argument,
                                                                        generate_distribution_names());
      return 0;
    case OPTION_LEAST:
      random->low = option_parse_size(state, "min", argument);
      return 0;
    case OPTION_MOST:
      random->high = option_parse_size(state, "max", argument);
      return 0;
    case 'n':
      random->allocations = option_parse_count(state, "allocations", argument, 1, INT64_MAX);
      return 0;
    case OPTION_LIVE:
      random->live_bytes = option_parse_size(state, "live", argument);
      return 0;
    case OPTION_VICTIM:
      random->victim =
          (generate_victim)generate_parse_name(state, "victim", argument, generate_victim_names());
      return 0;
    case OPTION_STREAMS:
      random->streams = (uint32_t)option_parse_count(state, "streams", argument, 1, 64);
      return 0;
    case OPTION_SEED:
      random->seed = option_parse_count(state, "seed", argument, 0, UINT64_MAX);
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static trace_status call_generator(const void *options, generate_sink sink, trace_error *error) {
  return generate_random(options, sink, error);
}

exit_status command_trace_generate_random(int argc, char **argv) {
  random_options options = {0};
  generate_random_defaults(&options.random);
  const struct argp_child children[] = {{&generate_target_parser, 0, NULL, 50}, {0}};
  const struct argp parser = {option_table,
                              parse_option,
                              GENERATE_ARGUMENTS,
                              "Writes a trace of random sizes and lifetimes " GENERATE_OUTPUT_HELP,
                              children,
                              NULL,
                              NULL};
  exit_status status = option_read_command(&parser, argc, argv, &options, NULL);
  if (status != EXIT_STATUS_DONE) return status;
  return generate_run(&options.target, call_generator, &options.random);
}

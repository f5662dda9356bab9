/* lakebed trace generate adversarial: patterns that leave holes. */
#include "harness/command_trace_generate.h"
#include "harness/option_values.h"

enum { OPTION_BYTES = 0x200, OPTION_STEP, OPTION_LIVE, OPTION_ROUNDS };

static const struct argp_option option_table[] = {
    {"pattern", 'p', "NAME", 0,
     "sawtooth (fill, free all, again with blocks half as large again; the default), checkerboard (free "
     "every second "
     "block, ask for slightly larger ones), staircase (blocks go in turn, larger ones come) or doubling "
     "(every "
     "second block goes, blocks of twice the size come)",
     0},
    {"size", OPTION_BYTES, "SIZE", 0, "of the first blocks; default: 4MiB", 0},
    {"step", OPTION_STEP, "SIZE", 0, "that checkerboard and staircase grow by; default: 512KiB", 0},
    {"live", OPTION_LIVE, "SIZE", 0, "the most that lives at a time; default: 8GiB", 0},
    {"rounds", OPTION_ROUNDS, "N", 0, "default: 8", 0},
    {0},
};

typedef struct adversarial_options {
  generate_target target;
  generate_adversarial_options adversarial;
} adversarial_options;

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  adversarial_options *options = state->input;
  generate_adversarial_options *adversarial = &options->adversarial;
  switch (key) {
    case ARGP_KEY_INIT:
      state->child_inputs[0] = &options->target;
      return 0;
    case 'p':
      adversarial->pattern =
          (generate_pattern)generate_parse_name(state, "pattern", argument, generate_pattern_names());
      return 0;
    case OPTION_BYTES:
      adversarial->bytes = option_parse_size(state, "size", argument);
      return 0;
    case OPTION_STEP:
      adversarial->step_bytes = option_parse_size(state, "step", argument);
      return 0;
    case OPTION_LIVE:
      adversarial->live_bytes = option_parse_size(state, "live", argument);
      return 0;
    case OPTION_ROUNDS:
      adversarial->rounds = (uint32_t)option_parse_count(state, "rounds", argument, 1, 1 << 20);
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

static trace_status call_generator(const void *options, generate_sink sink, trace_error *error) {
  return generate_adversarial(options, sink, error);
}

exit_status command_trace_generate_adversarial(int argc, char **argv) {
  adversarial_options options = {0};
  generate_adversarial_defaults(&options.adversarial);
  const struct argp_child children[] = {{&generate_target_parser, 0, NULL, 50}, {0}};
  const struct argp parser = {
      option_table,
      parse_option,
      GENERATE_ARGUMENTS,
      "Writes a trace whose frees leave holes that later requests do not fit " GENERATE_OUTPUT_HELP,
      children,
      NULL,
      NULL};
  exit_status status = option_read_command(&parser, argc, argv, &options, NULL);
  if (status != EXIT_STATUS_DONE) return status;
  return generate_run(&options.target, call_generator, &options.adversarial);
}

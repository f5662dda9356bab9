/* The device that a command line chooses: its options, of all commands that have them, and what is said. */
#include "harness/device.h"
#include "harness/option_values.h"
#include "harness/program.h"

enum { OPTION_DEVICE = 0x480, OPTION_DEVICE_ORDINAL, OPTION_CAPACITY };

#define OPTIONS(default_capacity)                                                                              \
  {                                                                                                            \
    {"device", OPTION_DEVICE, "NAME|FILE", 0, "profile of the simulated device; default: h200", 0},            \
        {"device-ordinal", OPTION_DEVICE_ORDINAL, "N", 0, "which real device; default: 0", 0},                 \
        {"capacity", OPTION_CAPACITY, "SIZE", 0, "memory of the simulated device; default: " default_capacity, \
         0},                                                                                                   \
    {                                                                                                          \
      0                                                                                                        \
    }                                                                                                          \
  }

static const struct argp_option profile_options[] = OPTIONS("its profile's");
static const struct argp_option small_options[] = OPTIONS("512MiB");

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  device_choice *choice = state->input;
  switch (key) {
    case OPTION_DEVICE:
      choice->profile = argument;
      return 0;
    case OPTION_DEVICE_ORDINAL:
      choice->ordinal = (unsigned)option_parse_count(state, "device-ordinal", argument, 0, INT32_MAX);
      return 0;
    case OPTION_CAPACITY:
      choice->capacity = option_parse_size(state, "capacity", argument);
      return 0;
    default:
      return ARGP_ERR_UNKNOWN;
  }
}

const struct argp device_choice_parser = {profile_options, parse_option, NULL, NULL, NULL, NULL, NULL};
const struct argp device_choice_small_parser = {small_options, parse_option, NULL, NULL, NULL, NULL, NULL};

exit_status device_model_open(const device_choice *choice, device_model *model) {
  char message[1024];
  const exit_status status = device_model_load(choice, model, message, sizeof message);
  if (status != EXIT_STATUS_DONE) program_complain("%s", message);
  return status;
}

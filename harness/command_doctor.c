/* lakebed doctor: what works on this machine, and what is missing. */
#include <argp.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "harness/program.h"
#include "vmm/profile.h"

/* One thing that is looked at. Returns whether it is there and says so in text. */
typedef struct doctor_step {
  const char *name;
  bool (*examine)(char *text, size_t text_size);
} doctor_step;

static bool examine_simulator(char *text, size_t text_size) {
  size_t used = 0;
  for (const char *const *name = vmm_profile_names(); *name && used < text_size; name++) {
    used += (size_t)snprintf(text + used, text_size - used, "%s%s", used ? ", " : "works; profiles: ", *name);
  }
  return used > 0;
}

static bool examine_build(char *text, size_t text_size) {
#ifdef LAKEBED_HAVE_CUDA
  snprintf(text, text_size, "this program was built with a CUDA toolkit");
  return true;
#else
  snprintf(text, text_size,
           "this program was built without a CUDA toolkit, so it has no driver for real devices; install one "
           "(or set "
           "CUDA_HOME) and build again");
  return false;
#endif
}

static bool examine_library(char *text, size_t text_size) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = dlerror();
    snprintf(text, text_size, "cannot be loaded (%s); it comes with NVIDIA's driver",
             reason ? reason : "no reason given");
    return false;
  }
  dlclose(library);
  snprintf(text, text_size, "can be loaded");
  return true;
}

static bool examine_driver(char *text, size_t text_size) {
  snprintf(text, text_size, "this program has no driver for real devices built in");
  return false;
}

static const doctor_step device_steps[] = {
    {"CUDA toolkit", examine_build},
    {"libcuda.so.1", examine_library},
    {"device driver", examine_driver},
};

static bool report(const doctor_step *step) {
  char text[512] = "";
  bool present = step->examine(text, sizeof text);
  printf("%-8s %-14s %s\n", present ? "ok" : "missing", step->name, text);
  return present;
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
  (void)argument;
  if (key != ARGP_KEY_ARG) return ARGP_ERR_UNKNOWN;
  argp_error(state, "takes no arguments");
  return EINVAL;
}

exit_status command_doctor(int argc, char **argv) {
  const struct argp parser = {
      NULL,
      parse_option,
      NULL,
      "Says what works on this machine and what is missing. Exit status: 0 when a real device "
      "can be used, 4 when only the simulated one can.",
      NULL,
      NULL,
      NULL};
  error_t failure = argp_parse(&parser, argc, argv, 0, NULL, NULL);
  if (failure != 0) {
    program_complain("the command line cannot be read: %s", strerror(failure));
    return EXIT_STATUS_USAGE;
  }
  const doctor_step simulator = {"simulator", examine_simulator};
  report(&simulator);
  bool usable = true;
  for (size_t i = 0; i < sizeof device_steps / sizeof *device_steps; i++) usable &= report(&device_steps[i]);
  puts(usable ? "\nA real device can be used: --driver cuda."
              : "\nNo real device can be used; --driver sim can.");
  return usable ? EXIT_STATUS_DONE : EXIT_STATUS_NO_DEVICE;
}

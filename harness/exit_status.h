/* What the program's exit status means. */
#ifndef LAKEBED_HARNESS_EXIT_STATUS_H
#define LAKEBED_HARNESS_EXIT_STATUS_H

typedef enum exit_status {
  EXIT_STATUS_DONE = 0,
  EXIT_STATUS_CHECK_FAILED = 1,  /* an invariant, a verification, a leak, a driver call that must not fail */
  EXIT_STATUS_USAGE = 2,         /* bad usage or input */
  EXIT_STATUS_OUT_OF_MEMORY = 3, /* requests failed for want of memory */
  EXIT_STATUS_NO_DEVICE = 4      /* the device cannot be used */
} exit_status;

/* The status of a program of which two parts ended so: a failed check weighs most, then bad
 * input, then an unusable device, then want of memory. */
static inline exit_status exit_status_worse(exit_status left, exit_status right) {
  static const int weight[] = {[EXIT_STATUS_DONE] = 0,
                               [EXIT_STATUS_CHECK_FAILED] = 4,
                               [EXIT_STATUS_USAGE] = 3,
                               [EXIT_STATUS_OUT_OF_MEMORY] = 1,
                               [EXIT_STATUS_NO_DEVICE] = 2};
  return weight[right] > weight[left] ? right : left;
}

#endif

/* The options that all benchmarks share: which device, which sizes, how often, where the results go. */
#ifndef LAKEBED_HARNESS_BENCH_OPTIONS_H
#define LAKEBED_HARNESS_BENCH_OPTIONS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/device.h"
#include "harness/exit_status.h"
#include "harness/output_options.h"
#include "vmm/cuda.h"

/* A benchmark of a command, as -l lists it. */
typedef struct bench_case {
  const char *name;
  const char *summary;  /* one line */
  bool only_when_named; /* not part of a run that names none */
} bench_case;

enum { BENCH_CASES = 16 };

typedef struct bench_options {
  const bench_case *cases; /* of the command; ends with a name of NULL */
  bool chosen[BENCH_CASES];
  bool needs_kernels; /* a simulated device is refused: it runs none */

  device_choice device;        /* driver NULL: cuda where a device can be used, else sim */
  vmm_cuda_configuration cuda; /* but for the ordinal, which the device has */

  uint64_t minimum, maximum; /* sizes; the command sets its defaults before parsing */
  uint64_t factor;           /* from a size to the next, at least 2 */
  uint64_t warmup, iterations;

  output_options output;
  char *command; /* the command line, as it was given */
} bench_options;

/* The shared options as a child of a command's own parser, whose ARGP_KEY_INIT must do
 * state->child_inputs[0] = the bench_options. Names of benchmarks are the arguments. */
extern const struct argp bench_options_argp;
/* The group of help texts after the shared ones. */
enum { BENCH_GROUP_OWN = 1, BENCH_GROUP_SHARED = 2 };

/* Parses a command's options. The parser has bench_options_argp as its first child. With -l it prints the
 * list and sets *done. On success the caller frees the options with bench_options_free, otherwise too. */
exit_status bench_options_parse(int argc, char **argv, const struct argp *parser, void *input,
                                bench_options *options, bool *done);
void bench_options_free(bench_options *options);

bool bench_options_chosen(const bench_options *options, const char *name);
/* Adds a benchmark to those that run. */
void bench_options_choose(bench_options *options, const char *name);

/* Index of text in words (NULL-terminated); ends the program with an error that names the option. */
unsigned bench_parse_choice(struct argp_state *state, const char *option, const char *text,
                            const char *const *words);
/* A list "A,B,C" of at most capacity numbers or sizes; returns how many. */
size_t bench_parse_sizes(struct argp_state *state, const char *option, const char *text, uint64_t *values,
                         size_t capacity);
size_t bench_parse_counts(struct argp_state *state, const char *option, const char *text, uint64_t least,
                          uint64_t most, uint64_t *values, size_t capacity);

/* "2 MiB", "512 B": whole where the size is. */
enum { BENCH_SIZE_TEXT = 32 };
void bench_size_text(uint64_t bytes, char text[BENCH_SIZE_TEXT]);

#endif

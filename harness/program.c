#include "harness/program.h"

#include <argp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/bench.h"
#include "policies/policy.h"
#include "workloads/partial_file.h"

enum { COMMANDS_LIMIT = 32 };

static const program_command commands[] = {
    {"replay", "replay traces through allocator policies and compare the memory each would hold",
     command_replay},
    {"oom", "find the smallest device on which each policy serves a trace, and who survives an out of memory",
     command_oom},
    {"sweep", "replay whole grids of traces, policies and devices, resumable, on all cores or on Slurm",
     command_sweep},
    {"paper", "the GMLake paper's evaluation, every table and figure, with every policy", command_paper},
    {"report", "put results together to one HTML page", command_report},
    {"trace", "look into traces, convert, compare and make them", command_trace},
    {"policies", "list the allocator policies, or one with its options", command_policies},
    {"bench", "measure what memory calls, stitched memory and allocators cost", command_bench},
    {"stress", "run random programs through policies and check all that can be known of the outcome",
     command_stress},
    {"faults", "make every driver call of a policy fail, one at a time, and see what becomes of it",
     command_faults},
    {"doctor", "say what works on this machine and what is missing", command_doctor},
    {NULL, NULL, NULL},
};

/* "lakebed replay": what runs, as argp names it too. */
static char running[64] = "lakebed";

void program_complain(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s: ", running);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}

/* Has been said that standard output could not be written. */
static bool told_of_output;

void program_complain_of_output(void) {
  if (!told_of_output) program_complain("standard output could not be written");
  told_of_output = true;
}

static bool output_failed(void) { return fflush(stdout) != 0 || ferror(stdout); }

/* A command line may end the program itself: after its help, with status 0. */
static void check_output(void) {
  if (told_of_output || !output_failed()) return;
  program_complain_of_output();
  _exit(EXIT_STATUS_USAGE);
}

/* What the launcher ./lakebed does before it comes to the program. */
static const char launcher_help[] =
    "\nOf the launcher, ./lakebed:\n"
    "  test       run all tests, or some\n"
    "  lint       check the sources\n"
    "  new-policy write the skeleton of a policy\n"
    "  golden     write the golden numbers of a policy\n"
    "  torch      build the plugin that runs PyTorch under a policy\n";

static void print_help(FILE *stream, const program_command *table, const char *title, const char *name) {
  fprintf(stream, "Usage: %s COMMAND [OPTION...]\n%s\n\nCommands:\n", name, title);
  int width = 10;
  for (const program_command *command = table; command->name; command++)
    if ((int)strlen(command->name) > width) width = (int)strlen(command->name);
  for (const program_command *command = table; command->name; command++)
    fprintf(stream, "  %-*s %s\n", width, command->name, command->summary);
  if (table == commands) fputs(launcher_help, stream);
  fprintf(stream, "\n'%s COMMAND --help' describes a command.\n", name);
}

static exit_status refuse_unknown(const program_command *table, const char *name, const char *word) {
  const char *words[COMMANDS_LIMIT + 1] = {NULL};
  char valid[512] = "";
  size_t used = 0;
  for (size_t i = 0; i < COMMANDS_LIMIT && table[i].name; i++) {
    words[i] = table[i].name;
    if (used < sizeof valid) {
      used += (size_t)snprintf(valid + used, sizeof valid - used, "%s%s", i ? ", " : "", table[i].name);
    }
  }
  const char *nearest = policy_nearest_word(word, words);
  if (nearest) {
    program_complain("no command '%s' (did you mean %s?); '%s' has: %s", word, nearest, name, valid);
  } else {
    program_complain("no command '%s'; '%s' has: %s", word, name, valid);
  }
  return EXIT_STATUS_USAGE;
}

static bool is_one_of(const char *word, const char *const *words, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(word, words[i]) == 0) return true;
  }
  return false;
}

exit_status program_dispatch(const program_command *table, const char *title, int argc, char **argv) {
  if (argc < 2) {
    print_help(stderr, table, title, argv[0]);
    return EXIT_STATUS_USAGE;
  }
  static const char *const help_words[] = {"--help", "-h", "-?", "help"};
  static const char *const version_words[] = {"--version", "-V", "version"};
  if (is_one_of(argv[1], help_words, sizeof help_words / sizeof *help_words)) {
    print_help(stdout, table, title, argv[0]);
    return EXIT_STATUS_DONE;
  }
  if (is_one_of(argv[1], version_words, sizeof version_words / sizeof *version_words)) {
    puts("lakebed " PROGRAM_VERSION);
    return EXIT_STATUS_DONE;
  }
  for (const program_command *command = table; command->name; command++) {
    if (strcmp(command->name, argv[1]) != 0) continue;
    char name[sizeof running];
    snprintf(name, sizeof name, "%s %s", argv[0], command->name);
    memcpy(running, name, sizeof name);
    argv[1] = name;
    static char help[] = "--help";
    if (argc > 2 && strcmp(argv[2], "-h") == 0) argv[2] = help;
    return command->run(argc - 1, argv + 1);
  }
  return refuse_unknown(table, argv[0], argv[1]);
}

exit_status program_main(int argc, char **argv) {
  static char name[] = "lakebed";
  argp_err_exit_status = EXIT_STATUS_USAGE;
  argp_program_version = "lakebed " PROGRAM_VERSION;
  char *no_arguments[] = {name, NULL};
  if (argc < 1) argv = no_arguments;
  argv[0] = name;
  partial_file_watch_signals();
  signal(SIGXFSZ, SIG_IGN); /* a file that may grow no more is a failed write, which is said */
  atexit(check_output);
  exit_status status = program_dispatch(commands, "A testbed for GPU memory allocators.", argc, argv);
  if (output_failed()) {
    program_complain_of_output();
    status = exit_status_worse(status, EXIT_STATUS_USAGE);
  }
  return status;
}

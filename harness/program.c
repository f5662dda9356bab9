#include "harness/program.h"

#include <argp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "harness/bench.h"
#include "policies/policy.h"

enum { COMMANDS_LIMIT = 32 };

static const program_command commands[] = {
    {"replay", "replay traces through allocator policies and compare the memory each would hold",
     command_replay},
    {"oom", "find the smallest device on which each policy serves a trace, and who survives an out of memory",
     command_oom},
    {"trace", "look into traces and convert them", command_trace},
    {"policies", "list the allocator policies, or one with its options", command_policies},
    {"bench", "measure what memory calls, stitched memory and allocators cost", command_bench},
    {"doctor", "say what works on this machine and what is missing", command_doctor},
    {NULL, NULL, NULL},
};

void program_complain(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("lakebed: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}

static void print_help(FILE *stream, const program_command *table, const char *title, const char *name) {
  fprintf(stream, "Usage: %s COMMAND [OPTION...]\n%s\n\nCommands:\n", name, title);
  for (; table->name; table++) fprintf(stream, "  %-10s %s\n", table->name, table->summary);
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
    program_complain("%s has no command '%s'; did you mean %s? It has: %s", name, word, nearest, valid);
  } else {
    program_complain("%s has no command '%s'; it has: %s", name, word, valid);
  }
  return EXIT_STATUS_USAGE;
}

exit_status program_dispatch(const program_command *table, const char *title, int argc, char **argv) {
  if (argc < 2) {
    print_help(stderr, table, title, argv[0]);
    return EXIT_STATUS_USAGE;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0 || strcmp(argv[1], "help") == 0) {
    print_help(stdout, table, title, argv[0]);
    return EXIT_STATUS_DONE;
  }
  if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
    puts("lakebed " PROGRAM_VERSION);
    return EXIT_STATUS_DONE;
  }
  for (const program_command *command = table; command->name; command++) {
    if (strcmp(command->name, argv[1]) != 0) continue;
    char name[64];
    snprintf(name, sizeof name, "%s %s", argv[0], command->name);
    argv[1] = name;
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
  exit_status status = program_dispatch(commands, "A testbed for GPU memory allocators.", argc, argv);
  if (fflush(stdout) != 0 || ferror(stdout)) {
    program_complain("standard output could not be written");
    status = exit_status_worse(status, EXIT_STATUS_USAGE);
  }
  return status;
}

/* The program: a table of subcommands, one file each. */
#ifndef LAKEBED_HARNESS_PROGRAM_H
#define LAKEBED_HARNESS_PROGRAM_H

#include "harness/exit_status.h"

#define PROGRAM_VERSION "0.1.0"

typedef struct program_command {
  const char *name;
  const char *summary; /* one line */
  /* argv[0] is the command with all that led to it ("lakebed replay"). */
  exit_status (*run)(int argc, char **argv);
} program_command;

/* Runs the program: argv[1] chooses the command. */
exit_status program_main(int argc, char **argv);

/* Runs the command of the table (ends with a name of NULL) that argv[1] names. A missing or
 * unknown name is a usage error, the latter with the nearest match; --help lists the table. title: what the
 * program or group is, one line. */
exit_status program_dispatch(const program_command *commands, const char *title, int argc, char **argv);

/* "lakebed COMMAND: " and the message on standard error, on a line of its own. */
void program_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* That standard output could not be written; once, however often it is called. */
void program_complain_of_output(void);

exit_status command_replay(int argc, char **argv);
exit_status command_report(int argc, char **argv);
exit_status command_oom(int argc, char **argv);
exit_status command_paper(int argc, char **argv);
exit_status command_sweep(int argc, char **argv);
exit_status command_trace(int argc, char **argv);
exit_status command_trace_info(int argc, char **argv);
exit_status command_trace_convert(int argc, char **argv);
exit_status command_trace_compare(int argc, char **argv);
exit_status command_trace_generate(int argc, char **argv);
exit_status command_policies(int argc, char **argv);
exit_status command_stress(int argc, char **argv);
exit_status command_faults(int argc, char **argv);
exit_status command_doctor(int argc, char **argv);

#endif

/* lakebed trace: its subcommands. */
#include <stddef.h>

#include "harness/program.h"

static const program_command commands[] = {
    {"info", "what traces hold", command_trace_info},
    {"convert", "write a trace in another format", command_trace_convert},
    {"compare", "say how near one trace is to another", command_trace_compare},
    {"generate", "make a trace from a description", command_trace_generate},
    {NULL, NULL, NULL},
};

exit_status command_trace(int argc, char **argv) {
  return program_dispatch(commands, "Looks into traces, converts, compares and makes them.", argc, argv);
}

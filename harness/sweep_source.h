/* What the cells of a sweep replay: files, and event streams that are made for them. */
#ifndef LAKEBED_HARNESS_SWEEP_SOURCE_H
#define LAKEBED_HARNESS_SWEEP_SOURCE_H

#include "harness/event_source.h"
#include "harness/sweep_grid.h"

/* Can this be generated? Runs the generator up to its first output. What is wrong with the description it
 * says itself on standard error. */
bool sweep_source_can_generate(const sweep_source *source);
/* Opens a source. One that is generated is made by a process of its own and lies in memory until it is
 * closed. The caller closes *events. */
trace_status sweep_source_open(const sweep_source *source, const trace_options *options,
                               event_source **events, trace_error *error);

#endif

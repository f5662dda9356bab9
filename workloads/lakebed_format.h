/* Names of Lakebed's own trace format (docs/formats.md), for its reader and writer. Internal to workloads. */
#ifndef LAKEBED_WORKLOADS_LAKEBED_FORMAT_H
#define LAKEBED_WORKLOADS_LAKEBED_FORMAT_H

#define TRACE_LAKEBED_MAGIC "lakebed-trace "
#define TRACE_LAKEBED_VERSION 1

#endif

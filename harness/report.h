/* Results of all kinds, gathered for one HTML page. docs/report.md describes the page. Nothing in it is from
 * this moment or machine: the same files give the same page, byte for byte. */
#ifndef LAKEBED_HARNESS_REPORT_H
#define LAKEBED_HARNESS_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "harness/exit_status.h"
#include "harness/timeline.h"

typedef struct report_page report_page;

enum { REPORT_LINE_POINTS = 2000 }; /* of one run that are kept */

/* title: what the page is called. NULL when the host has no memory. */
report_page *report_create(const char *title);
/* Accepts NULL. */
void report_destroy(report_page *page);

/* Adds what a file holds, which is found out from its content. Says what is wrong with it. O(its size) in
 * time; in memory too for JSON, while it is read. */
exit_status report_add_file(report_page *page, const char *path);

/* Adds results that are in no file: what 'replay' writes to --json and to --dump, and a run's timeline. name:
 * what stands in place of the file's. spec: the policy as it was given. */
exit_status report_add_json(report_page *page, const char *name, const json_t *root);
exit_status report_add_timeline(report_page *page, const char *name, const char *trace, const char *spec,
                                const timeline_point *points, size_t count);

/* Writes the page. Returns false when the host has no memory or not all was written. */
bool report_write(report_page *page, FILE *stream);

#endif

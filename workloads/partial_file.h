/* Files that have another name until all of them is written. What is not whole when a signal ends the
 * program is removed. */
#ifndef LAKEBED_WORKLOADS_PARTIAL_FILE_H
#define LAKEBED_WORKLOADS_PARTIAL_FILE_H

#include <stdbool.h>

/* What path is called until then, in the same folder, to be freed; one name a path and process. NULL: no
 * memory. */
char *partial_file_name(const char *path);
/* Creates a file of this name for writing. Returns its descriptor, or -1 with errno: EEXIST where there is
 * one. */
int partial_file_create(const char *name);
/* The file is whole: it is called path from now on. False with errno: it has been removed. */
bool partial_file_finish(const char *name, const char *path);
/* Removes the file. */
void partial_file_remove(const char *name);

/* From now on SIGHUP, SIGINT, SIGPIPE, SIGQUIT and SIGTERM, where they are not ignored, remove the files that
 * are created and neither finished nor removed, and then end the program as they would have. */
void partial_file_watch_signals(void);

#endif

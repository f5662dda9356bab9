/* Files that commands write their results to. */
#ifndef LAKEBED_HARNESS_OUTPUT_FILE_H
#define LAKEBED_HARNESS_OUTPUT_FILE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Is it "-"? NULL is not. */
bool output_is_standard(const char *path);
/* "-": standard output. A regular file has its name only when it is closed, so that what it held before is
 * there until all of the new is. NULL: says why. */
FILE *output_open(const char *path);
/* Writes the value and ends the line. False, without a word: not all of it, or there is none (NULL). */
bool output_json(const json_t *value, size_t flags, FILE *stream);
/* written: all that belongs in the file has gone into the stream. Returns false and says so when not
 * everything is in the file; then path holds what it held before. Who writes leaves the word to this, so that
 * it is said once. Accepts a stream of NULL: true. */
bool output_close(FILE *stream, const char *path, bool written);
/* Accepts NULL. Leaves what path held before. */
void output_abandon(FILE *stream, const char *path);
/* Do both name one regular file, or one that is yet to be made? Not for "-". */
bool output_same_file(const char *left, const char *right);

#endif

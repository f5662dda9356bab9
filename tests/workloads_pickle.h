/* Writes pickles by hand, opcode by opcode, for the tests of the snapshot reader. Memory
 * that runs out fails the test. */
#ifndef LAKEBED_TESTS_WORKLOADS_PICKLE_H
#define LAKEBED_TESTS_WORKLOADS_PICKLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct pickle {
  uint8_t *bytes;
  size_t size;
  size_t capacity;
} pickle;

/* An empty one needs no more than {0}. */
void pickle_free(pickle *made);
void pickle_bytes(pickle *made, const void *bytes, size_t size);
/* A string literal of opcodes and arguments, zero bytes allowed. */
#define pickle_ops(made, literal) pickle_bytes((made), (literal), sizeof(literal) - 1)
void pickle_byte(pickle *made, uint8_t byte);
void pickle_little(pickle *made, uint64_t value, size_t size);

/* SHORT_BINUNICODE without a memo. */
void pickle_string(pickle *made, const char *text);
/* The shortest of BININT1, BININT2, BININT, LONG1, as Python writes it. */
void pickle_integer(pickle *made, int64_t value);

/* {key: value, ...: the mark of a dict with its MARK, and SETITEMS. */
void pickle_dict_begin(pickle *made);
void pickle_dict_end(pickle *made);
void pickle_list_begin(pickle *made);
void pickle_list_end(pickle *made);
void pickle_key_integer(pickle *made, const char *key, int64_t value);
void pickle_key_string(pickle *made, const char *key, const char *value);

/* Protocol 4, the outer dict, device_traces and one device's list, up to where entries go. */
void pickle_snapshot_begin(pickle *made);
/* Closes what pickle_snapshot_begin opened, and STOP. */
void pickle_snapshot_end(pickle *made);
/* One trace entry on stream 0. */
void pickle_entry(pickle *made, const char *action, int64_t address, int64_t size);

#endif

#include "tests/workloads_pickle.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

void pickle_free(pickle *made) {
  free(made->bytes);
  *made = (pickle){0};
}

void pickle_bytes(pickle *made, const void *bytes, size_t size) {
  if (made->capacity - made->size < size) {
    made->capacity = 2 * made->capacity + size + 1024;
    made->bytes = realloc(made->bytes, made->capacity);
    ck_assert_ptr_nonnull(made->bytes);
  }
  memcpy(made->bytes + made->size, bytes, size);
  made->size += size;
}

void pickle_byte(pickle *made, uint8_t byte) { pickle_bytes(made, &byte, 1); }

void pickle_little(pickle *made, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; i++) pickle_byte(made, (uint8_t)(value >> (8 * i)));
}

void pickle_string(pickle *made, const char *text) {
  size_t size = strlen(text);
  if (size > 255) ck_abort_msg("a string too long for SHORT_BINUNICODE"); /* quicker than an assertion */
  pickle_byte(made, 0x8C);
  pickle_byte(made, (uint8_t)size);
  pickle_bytes(made, text, size);
}

void pickle_integer(pickle *made, int64_t value) {
  if (value >= 0 && value < 256) {
    pickle_byte(made, 'K');
    pickle_little(made, (uint64_t)value, 1);
  } else if (value >= 0 && value < 65536) {
    pickle_byte(made, 'M');
    pickle_little(made, (uint64_t)value, 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    pickle_byte(made, 'J');
    pickle_little(made, (uint64_t)value, 4);
  } else {
    pickle_byte(made, 0x8A);
    pickle_byte(made, 8);
    pickle_little(made, (uint64_t)value, 8);
  }
}

void pickle_dict_begin(pickle *made) { pickle_ops(made, "}("); }
void pickle_dict_end(pickle *made) { pickle_ops(made, "u"); }
void pickle_list_begin(pickle *made) { pickle_ops(made, "]("); }
void pickle_list_end(pickle *made) { pickle_ops(made, "e"); }

void pickle_key_integer(pickle *made, const char *key, int64_t value) {
  pickle_string(made, key);
  pickle_integer(made, value);
}

void pickle_key_string(pickle *made, const char *key, const char *value) {
  pickle_string(made, key);
  pickle_string(made, value);
}

void pickle_snapshot_begin(pickle *made) {
  pickle_ops(made, "\x80\x04");
  pickle_dict_begin(made);
  pickle_string(made, "device_traces");
  pickle_list_begin(made);
  pickle_list_begin(made);
}

void pickle_snapshot_end(pickle *made) {
  pickle_list_end(made);
  pickle_list_end(made);
  pickle_dict_end(made);
  pickle_ops(made, ".");
}

void pickle_entry(pickle *made, const char *action, int64_t address, int64_t size) {
  pickle_dict_begin(made);
  pickle_key_string(made, "action", action);
  pickle_key_integer(made, "addr", address);
  pickle_key_integer(made, "size", size);
  pickle_key_integer(made, "stream", 0);
  pickle_dict_end(made);
}

/* The names by which an exception of PyTorch is made and thrown, in C: what is thrown goes to a function of
 * the test, with the name of its type and its text. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void catcher(const char *type, const char *text, int has_table);

static catcher *caught;
void fake_c10_catch(catcher *handler);
void fake_c10_catch(catcher *handler) { caught = handler; }

/* The description of a class: who made it, and its name. */
typedef struct type_information {
  const void *made_by;
  const char *name;
} type_information;

extern const type_information error_type __asm__("_ZTIN3c105ErrorE");
extern const type_information out_of_memory_type __asm__("_ZTIN3c1016OutOfMemoryErrorE");
const type_information error_type = {NULL, "c10::Error"};
const type_information out_of_memory_type = {NULL, "c10::OutOfMemoryError"};

extern const void *const out_of_memory_table[4] __asm__("_ZTVN3c1016OutOfMemoryErrorE");
const void *const out_of_memory_table[4] = {NULL, &out_of_memory_type, NULL, NULL};

typedef struct fake_string {
  char *text;
} fake_string;

typedef struct fake_error {
  const void *const *table;
  char text[512];
} fake_error;

typedef struct source_location {
  const char *function, *file;
  uint32_t line;
} source_location;

#define NAMED(result, name, symbol, ...)    \
  result name(__VA_ARGS__) __asm__(symbol); \
  result name(__VA_ARGS__)

NAMED(void *, allocate_exception, "__cxa_allocate_exception", size_t size) { return calloc(1, size); }

NAMED(void, string_construct, "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_",
      fake_string *string, const char *text, const void *allocator) {
  (void)allocator;
  string->text = strdup(text);
}

NAMED(void, string_destroy, "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev",
      fake_string *string) {
  free(string->text);
}

NAMED(void, error_construct,
      "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
      fake_error *error, source_location where, const fake_string *string) {
  error->table = NULL;
  snprintf(error->text, sizeof error->text, "%s: %s", where.function, string->text);
}

NAMED(void, throw_exception, "__cxa_throw", fake_error *error, const type_information *type,
      void (*destroy)(void *)) {
  (void)destroy;
  char text[sizeof error->text];
  int has_table = error->table == out_of_memory_table + 2;
  snprintf(text, sizeof text, "%s", error->text);
  free(error);
  caught(type->name, text, has_table);
  abort();
}

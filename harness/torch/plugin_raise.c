/* A C++ exception from C, so that PyTorch's own handlers turn it into the Python exception that its own
 * allocator would give: c10::OutOfMemoryError becomes torch.OutOfMemoryError, c10::Error RuntimeError.
 *
 * By the Itanium C++ ABI, which every compiler that builds PyTorch for Linux follows, throwing is: memory
 * from
 * __cxa_allocate_exception, a constructor that runs in it, and __cxa_throw with the type's typeinfo. All of
 * it is exported by libraries that a process with PyTorch has loaded; they are asked for by name, so this
 * library links neither. c10::OutOfMemoryError adds nothing to c10::Error but its type. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/torch/plugin.h"

/* More than c10::Error or std::string has in any version. */
enum { EXCEPTION_BYTES = 1024, STRING_BYTES = 128 };

/* c10::SourceLocation, passed by value. */
typedef struct source_location {
  const char *function, *file;
  uint32_t line;
} source_location;

typedef struct thrower {
  void *(*allocate)(size_t size);
  void (*throw)(void *exception, void *type, void (*destroy)(void *));
  /* std::string(const char *, const allocator &), ~string() */
  void (*string_construct)(void *string, const char *text, const void *allocator);
  void (*string_destroy)(void *string);
  /* c10::Error(SourceLocation, std::string) */
  void (*error_construct)(void *error, source_location where, void *text);
  void (*error_destroy)(void *error);
  void *error_type, *out_of_memory_type, *out_of_memory_table;
  /* c10::detail::torchCheckFail(function, file, line, text): a c10::Error */
  void (*check_fail)(const char *function, const char *file, uint32_t line, const char *text);
  void (*bad_alloc)(void);
} thrower;

static thrower found;
static pthread_once_t found_once = PTHREAD_ONCE_INIT;

#define STRING "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE"

/* The libraries that have them, as they are called up to the version, and the objects loaded under such
 * names. */
static const char *const library_names[] = {"libc10.so", "libc10_cuda.so", "libtorch_python.so",
                                            "libtorch_cuda.so", "libstdc++.so"};
enum { LIBRARIES = sizeof library_names / sizeof *library_names };

typedef struct library_paths {
  char path[LIBRARIES][PATH_MAX];
} library_paths;

static int note_path(struct dl_phdr_info *object, size_t size, void *context) {
  (void)size;
  library_paths *paths = context;
  const char *slash = strrchr(object->dlpi_name, '/'), *name = slash ? slash + 1 : object->dlpi_name;
  for (size_t i = 0; i < LIBRARIES; i++) {
    size_t length = strlen(library_names[i]);
    bool versioned = strncmp(name, library_names[i], length) == 0 && (!name[length] || name[length] == '.');
    if (versioned) snprintf(paths->path[i], PATH_MAX, "%s", object->dlpi_name);
  }
  return 0;
}

/* Only what is loaded already; stays open, so that nothing found goes away. */
static void open_libraries(void *libraries[LIBRARIES]) {
  memset(libraries, 0, LIBRARIES * sizeof *libraries);
  library_paths *paths = calloc(1, sizeof *paths);
  if (!paths) return;
  dl_iterate_phdr(note_path, paths);
  for (size_t i = 0; i < LIBRARIES; i++) {
    if (paths->path[i][0]) libraries[i] = dlopen(paths->path[i], RTLD_LAZY | RTLD_NOLOAD);
  }
  free(paths);
}

static void *find(void *const libraries[LIBRARIES], const char *symbol) {
  for (size_t i = 0; i < LIBRARIES; i++) {
    void *address = libraries[i] ? dlsym(libraries[i], symbol) : NULL;
    if (address) return address;
  }
  return NULL;
}

/* POSIX lets a void pointer be a function's address; C does only through its bytes. */
#define FIND(member, symbol)                              \
  do {                                                    \
    void *address = find(libraries, (symbol));            \
    memcpy(&found.member, &address, sizeof found.member); \
  } while (0)

static void find_all(void) {
  void *libraries[LIBRARIES];
  open_libraries(libraries);
  /* Without PyTorch nobody would catch anything. */
  if (!libraries[0]) return;
  FIND(allocate, "__cxa_allocate_exception");
  FIND(throw, "__cxa_throw");
  FIND(string_construct, "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_");
  FIND(string_destroy, "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev");
  FIND(error_construct, "_ZN3c105ErrorC1ENS_14SourceLocationE" STRING "E");
  FIND(error_destroy, "_ZN3c105ErrorD1Ev");
  FIND(error_type, "_ZTIN3c105ErrorE");
  FIND(out_of_memory_type, "_ZTIN3c1016OutOfMemoryErrorE");
  FIND(out_of_memory_table, "_ZTVN3c1016OutOfMemoryErrorE");
  FIND(check_fail, "_ZN3c106detail14torchCheckFailEPKcS2_jS2_");
  FIND(bad_alloc, "_ZSt17__throw_bad_allocv");
}

static void throw_error(plugin_failure_kind kind, const char *text) {
  _Alignas(16) char string[STRING_BYTES], allocator[1] = {0};
  const source_location where = {"lakebed_torch_malloc", "lakebed", 0};
  void *exception = found.allocate(EXCEPTION_BYTES);
  found.string_construct(string, text, allocator);
  found.error_construct(exception, where, string);
  found.string_destroy(string);
  void *type = found.error_type;
  if (kind == PLUGIN_OUT_OF_MEMORY) {
    type = found.out_of_memory_type;
    /* A table begins with two words before the address that objects hold. Without one it stays a c10::Error's
     * table; handlers go by the type that is thrown. */
    if (found.out_of_memory_table) {
      void *table = (char *)found.out_of_memory_table + 2 * sizeof(void *);
      memcpy(exception, &table, sizeof table);
    }
  }
  found.throw(exception, type, found.error_destroy);
}

void plugin_raise(plugin_failure_kind kind, const char *text) {
  pthread_once(&found_once, find_all);
  bool throws =
      found.allocate && found.throw &&found.string_construct && found.string_destroy && found.error_construct;
  void *type = kind == PLUGIN_OUT_OF_MEMORY ? found.out_of_memory_type : found.error_type;
  if (throws && type) throw_error(kind, text);
  if (found.check_fail) found.check_fail("lakebed_torch_malloc", "lakebed", 0, text);
  if (kind == PLUGIN_OUT_OF_MEMORY && found.bad_alloc) found.bad_alloc();
}

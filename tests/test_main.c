#include "tests/test_main.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SKIPS_KEPT = 256 };

/* Lives in memory that forked cases share with the parent. */
typedef struct skip_list {
  atomic_int count;
  struct {
    char test[96];
    char reason[416];
  } skip[SKIPS_KEPT];
} skip_list;

static skip_list *skips;

const char *test_scratch(void) {
  const char *folder = getenv("TEST_TMPDIR");
  if (!folder) folder = getenv("TMPDIR");
  return folder ? folder : P_tmpdir;
}

void test_skip_record(const char *function, int line, const char *reason) {
  int index = atomic_fetch_add(&skips->count, 1);
  if (index >= SKIPS_KEPT) return;
  /* Check appends _fn to the name that START_TEST was given. */
  size_t length = strlen(function);
  if (length > 3 && strcmp(function + length - 3, "_fn") == 0) length -= 3;
  snprintf(skips->skip[index].test, sizeof skips->skip[index].test, "%.*s:%d", (int)length, function, line);
  snprintf(skips->skip[index].reason, sizeof skips->skip[index].reason, "%s", reason);
}

int test_main(Suite *(*const *suite_functions)(void)) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  setenv("CK_DEFAULT_TIMEOUT", "120", 0);
  skips = mmap(NULL, sizeof *skips, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (skips == MAP_FAILED) {
    perror("mmap");
    return 1;
  }
  SRunner *runner = srunner_create(NULL);
  for (size_t i = 0; suite_functions[i]; i++) srunner_add_suite(runner, suite_functions[i]());
  srunner_run_all(runner, CK_ENV);

  int run = srunner_ntests_run(runner);
  int failed = srunner_ntests_failed(runner);
  int skipped = atomic_load(&skips->count);
  srunner_free(runner);
  /* A test that skips and then fails in its teardown is a failure. */
  if (skipped > run - failed) skipped = run - failed;
  for (int i = 0; i < skipped && i < SKIPS_KEPT; i++) {
    printf("skipped %s: %s\n", skips->skip[i].test, skips->skip[i].reason);
  }
  printf("lakebed-tests: passed=%d failed=%d skipped=%d\n", run - failed - skipped, failed, skipped);
  return failed ? 1 : 0;
}

#include "harness/option_values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/program.h"
#include "policies/policy.h"

uint64_t option_parse_size(struct argp_state *state, const char *option, const char *text) {
  uint64_t bytes = 0;
  if (!policy_parse_size(text, &bytes) || bytes == 0 || bytes == UINT64_MAX) {
    argp_error(state, "--%s=%s: expected a size such as 80GiB, 512MiB or a number of bytes", option, text);
  }
  return bytes;
}

uint64_t option_parse_count(struct argp_state *state, const char *option, const char *text, uint64_t least,
                            uint64_t most) {
  char *end;
  errno = 0;
  uint64_t number = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || errno != 0 || *end != '\0' || number < least || number > most) {
    argp_error(state, "--%s=%s: expected a whole number from %" PRIu64 " to %" PRIu64, option, text, least,
               most);
  }
  return number;
}

/* "0.5" or "50%" */
static bool parse_fraction(const char *text, double *fraction) {
  char *end;
  if (text[0] < '0' || text[0] > '9') return false;
  *fraction = strtod(text, &end);
  if (strcmp(end, "%") == 0) {
    *fraction /= 100;
  } else if (*end != '\0' || !strchr(text, '.')) {
    return false;
  }
  return *fraction > 0 && *fraction <= 1;
}

bool option_parse_frees(struct argp_state *state, const char *text) {
  const bool requested = strcmp(text, "requested") == 0;
  if (!requested && strcmp(text, "completed") != 0) {
    argp_error(state, "--frees=%s: expected completed or requested", text);
  }
  return requested;
}

bool option_read_share(const char *text, uint64_t *bytes, double *fraction) {
  *bytes = 0;
  if (parse_fraction(text, fraction)) return true;
  *fraction = 0;
  return policy_parse_size(text, bytes) && *bytes > 0 && *bytes != UINT64_MAX;
}

void option_parse_share(struct argp_state *state, const char *option, const char *text, uint64_t *bytes,
                        double *fraction) {
  if (!option_read_share(text, bytes, fraction))
    argp_error(state, "--%s=%s: expected " OPTION_SHARE, option, text);
}

uint64_t option_parse_part(struct argp_state *state, const char *option, const char *text, uint64_t most,
                           uint64_t *number) {
  const char *slash = strchr(text, '/');
  char *end;
  *number = strtoull(text, &end, 10);
  const bool divided =
      slash && end == slash && text[0] >= '0' && text[0] <= '9' && slash[1] >= '0' && slash[1] <= '9';
  const uint64_t count = divided ? strtoull(slash + 1, &end, 10) : 0;
  if (!divided || *end || *number < 1 || *number > count || count > most)
    argp_error(state, "--%s=%s: expected K/N with K from 1 to N, such as 3/8", option, text);
  return count;
}

static char *join_command(int argc, char **argv) {
  size_t size = 1;
  for (int i = 0; i < argc; i++) size += strlen(argv[i]) + 1;
  char *text = malloc(size);
  if (!text) return NULL;
  char *end = text;
  *end = '\0';
  for (int i = 0; i < argc; i++) {
    if (i > 0) *end++ = ' ';
    end = stpcpy(end, argv[i]);
  }
  return text;
}

exit_status option_read_command(const struct argp *parser, int argc, char **argv, void *input,
                                char **command) {
  if (command && !(*command = join_command(argc, argv))) {
    program_complain("no memory for the command line");
    return EXIT_STATUS_CHECK_FAILED;
  }
  error_t failure = argp_parse(parser, argc, argv, 0, NULL, input);
  if (failure == 0) return EXIT_STATUS_DONE;
  program_complain("the command line cannot be read: %s", strerror(failure));
  return EXIT_STATUS_USAGE;
}

void option_date(char text[OPTION_DATE_TEXT]) {
  time_t now = time(NULL);
  struct tm utc;
  if (!gmtime_r(&now, &utc) || strftime(text, OPTION_DATE_TEXT, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
    text[0] = '\0';
}

#include "vmm/profile.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "vmm/embedded_profiles.h"

enum { FORMAT_VERSION = 1, TEXT_LIMIT = 1024, FILE_LIMIT = 1 << 20, NAMES_LIMIT = 16 };

typedef struct cost_point {
  vmm_call call;
  uint64_t size;
  uint64_t live_handles;
  double nanoseconds;
} cost_point;

/* The points of one call and one size: points[first .. first + count), ascending in live handles. */
typedef struct cost_row {
  uint64_t size;
  double log2_size;
  uint32_t first, count;
} cost_row;

/* The rows of one call: rows[first .. first + count), ascending in size. */
typedef struct call_rows {
  uint32_t first, count;
} call_rows;

struct vmm_profile {
  char device[TEXT_LIMIT];
  char source[TEXT_LIMIT];
  uint64_t total_bytes, usable_bytes, granularity_bytes;
  cost_point *points;
  cost_row *rows;
  uint32_t point_count, point_capacity;
  call_rows calls[VMM_CALL_COUNT];
};

static const char *const call_words[VMM_CALL_COUNT] = {
#define XX(name, text) [VMM_CALL_##name] = #name,
    VMM_CALL_MAP(XX)
#undef XX
};

typedef struct parser {
  vmm_profile *profile;
  const char *file;
  unsigned line;
  char *message;
  size_t message_size;
  bool seen_version, seen_device, seen_source, seen_total, seen_usable, seen_granularity;
} parser;

__attribute__((format(printf, 2, 3))) static vmm_status fail(parser *p, const char *format, ...) {
  if (p->message_size == 0) return VMM_INVALID_VALUE;
  int prefix = snprintf(p->message, p->message_size, "%s:%u: ", p->file, p->line);
  if (prefix < 0 || (size_t)prefix >= p->message_size) return VMM_INVALID_VALUE;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(p->message + prefix, p->message_size - (size_t)prefix, format, arguments);
  va_end(arguments);
  return VMM_INVALID_VALUE;
}

/* Cuts the next word off the line; empty when there is none. */
static char *next_word(char **line) {
  char *word = *line;
  while (isspace((unsigned char)*word)) word++;
  char *end = word;
  while (*end && !isspace((unsigned char)*end)) end++;
  *line = *end ? end + 1 : end;
  *end = '\0';
  return word;
}

static bool parse_whole_number(const char *word, uint64_t *number) {
  if (!isdigit((unsigned char)word[0])) return false;
  char *end;
  errno = 0;
  unsigned long long value = strtoull(word, &end, 10);
  if (errno || *end) return false;
  *number = value;
  return true;
}

static bool parse_microseconds(const char *word, double *value) {
  if (!isdigit((unsigned char)word[0]) && word[0] != '.') return false;
  if (strpbrk(word, "xXpP")) return false;
  char *end;
  errno = 0;
  *value = strtod(word, &end);
  return !errno && !*end && isfinite(*value) && *value < 1e12;
}

static vmm_status parse_text_item(parser *p, char *rest, char *text, bool *seen, const char *key) {
  while (isspace((unsigned char)*rest)) rest++;
  size_t length = strlen(rest);
  while (length > 0 && isspace((unsigned char)rest[length - 1])) length--;
  if (*seen) return fail(p, "expected '%s' once, found it again", key);
  if (length == 0) return fail(p, "expected a text after '%s'", key);
  if (length >= TEXT_LIMIT) return fail(p, "expected at most %d bytes after '%s'", TEXT_LIMIT - 1, key);
  memcpy(text, rest, length);
  text[length] = '\0';
  *seen = true;
  return VMM_SUCCESS;
}

static vmm_status parse_bytes_item(parser *p, char *rest, uint64_t *bytes, bool *seen, const char *key) {
  if (*seen) return fail(p, "expected '%s' once, found it again", key);
  char *word = next_word(&rest);
  if (!parse_whole_number(word, bytes) || *bytes == 0) {
    return fail(p, "expected a number of bytes after '%s', found '%s'", key, word);
  }
  if (*next_word(&rest)) return fail(p, "expected nothing after the number of '%s'", key);
  *seen = true;
  return VMM_SUCCESS;
}

static vmm_status add_point(vmm_profile *profile, cost_point point) {
  if (profile->point_count == profile->point_capacity) {
    uint32_t capacity = profile->point_capacity ? profile->point_capacity * 2 : 128;
    cost_point *grown = realloc(profile->points, capacity * sizeof *grown);
    if (!grown) return VMM_OUT_OF_MEMORY;
    profile->points = grown;
    profile->point_capacity = capacity;
  }
  profile->points[profile->point_count++] = point;
  return VMM_SUCCESS;
}

static vmm_status parse_cost_item(parser *p, char *rest) {
  const char *call_word = next_word(&rest);
  cost_point point = {.call = VMM_CALL_COUNT};
  for (unsigned call = 0; call < VMM_CALL_COUNT; call++) {
    if (strcasecmp(call_word, call_words[call]) == 0) point.call = (vmm_call)call;
  }
  if (point.call == VMM_CALL_COUNT)
    return fail(p, "expected a call such as 'create' after 'cost', found '%s'", call_word);
  char *word = next_word(&rest);
  if (!parse_whole_number(word, &point.size)) return fail(p, "expected a size in bytes, found '%s'", word);
  word = next_word(&rest);
  if (!parse_whole_number(word, &point.live_handles)) {
    return fail(p, "expected a number of live handles, found '%s'", word);
  }
  word = next_word(&rest);
  double microseconds;
  if (!parse_microseconds(word, &microseconds)) return fail(p, "expected microseconds, found '%s'", word);
  point.nanoseconds = microseconds * 1000.0;
  word = next_word(&rest);
  if (*word) return fail(p, "expected nothing after the microseconds, found '%s'", word);
  for (uint32_t i = 0; i < p->profile->point_count; i++) {
    const cost_point *other = &p->profile->points[i];
    if (other->call == point.call && other->size == point.size && other->live_handles == point.live_handles) {
      return fail(p, "expected one cost of '%s' for this size and number of handles, found a second",
                  call_word);
    }
  }
  vmm_status status = add_point(p->profile, point);
  return status == VMM_SUCCESS ? status : (fail(p, "out of memory"), status);
}

static vmm_status parse_line(parser *p, char *line) {
  char *comment = strchr(line, '#');
  if (comment) *comment = '\0';
  char *rest = line;
  char *key = next_word(&rest);
  if (!*key) return VMM_SUCCESS;
  vmm_profile *profile = p->profile;
  if (!p->seen_version) {
    uint64_t version;
    if (strcmp(key, "lakebed-profile") != 0) return fail(p, "expected 'lakebed-profile %d'", FORMAT_VERSION);
    char *word = next_word(&rest);
    if (!parse_whole_number(word, &version) || version != FORMAT_VERSION) {
      return fail(p, "expected version %d, found '%s'", FORMAT_VERSION, word);
    }
    p->seen_version = true;
    return *next_word(&rest) ? fail(p, "expected nothing after the version") : VMM_SUCCESS;
  }
  if (strcmp(key, "device") == 0) return parse_text_item(p, rest, profile->device, &p->seen_device, key);
  if (strcmp(key, "source") == 0) return parse_text_item(p, rest, profile->source, &p->seen_source, key);
  if (strcmp(key, "total_bytes") == 0)
    return parse_bytes_item(p, rest, &profile->total_bytes, &p->seen_total, key);
  if (strcmp(key, "usable_bytes") == 0) {
    return parse_bytes_item(p, rest, &profile->usable_bytes, &p->seen_usable, key);
  }
  if (strcmp(key, "granularity_bytes") == 0) {
    return parse_bytes_item(p, rest, &profile->granularity_bytes, &p->seen_granularity, key);
  }
  if (strcmp(key, "cost") == 0) return parse_cost_item(p, rest);
  return fail(p, "expected device, source, total_bytes, usable_bytes, granularity_bytes or cost, found '%s'",
              key);
}

static vmm_status check_complete(parser *p) {
  const vmm_profile *profile = p->profile;
  if (!p->seen_version) return fail(p, "expected 'lakebed-profile %d'", FORMAT_VERSION);
  const char *missing = !p->seen_device        ? "device"
                        : !p->seen_source      ? "source"
                        : !p->seen_total       ? "total_bytes"
                        : !p->seen_usable      ? "usable_bytes"
                        : !p->seen_granularity ? "granularity_bytes"
                                               : NULL;
  if (missing) return fail(p, "expected '%s' before the end", missing);
  if (profile->usable_bytes > profile->total_bytes) {
    return fail(p, "expected usable_bytes to be at most total_bytes %" PRIu64, profile->total_bytes);
  }
  if (profile->granularity_bytes & (profile->granularity_bytes - 1)) {
    return fail(p, "expected granularity_bytes to be a power of two, found %" PRIu64,
                profile->granularity_bytes);
  }
  if (profile->granularity_bytes > profile->usable_bytes) {
    return fail(p, "expected usable_bytes to hold one granule of %" PRIu64, profile->granularity_bytes);
  }
  return VMM_SUCCESS;
}

static int compare_points(const void *left, const void *right) {
  const cost_point *a = left, *b = right;
  if (a->call != b->call) return a->call < b->call ? -1 : 1;
  if (a->size != b->size) return a->size < b->size ? -1 : 1;
  return a->live_handles < b->live_handles ? -1 : a->live_handles > b->live_handles;
}

static double log2_of_size(uint64_t size) { return size ? log2((double)size) : 0.0; }

static vmm_status build_rows(vmm_profile *profile) {
  if (profile->point_count == 0) return VMM_SUCCESS;
  qsort(profile->points, profile->point_count, sizeof *profile->points, compare_points);
  profile->rows = calloc(profile->point_count, sizeof *profile->rows);
  if (!profile->rows) return VMM_OUT_OF_MEMORY;
  uint32_t row_count = 0;
  for (uint32_t i = 0; i < profile->point_count; i++) {
    const cost_point *point = &profile->points[i];
    call_rows *rows = &profile->calls[point->call];
    if (rows->count == 0) rows->first = row_count;
    if (rows->count == 0 || profile->rows[row_count - 1].size != point->size) {
      profile->rows[row_count++] =
          (cost_row){.size = point->size, .log2_size = log2_of_size(point->size), .first = i};
      rows->count++;
    }
    profile->rows[row_count - 1].count++;
  }
  return VMM_SUCCESS;
}

/* Parses text, which it overwrites. */
static vmm_status parse_profile(char *text, size_t size, parser *p) {
  char *line = text;
  char *end = text + size;
  while (line < end) {
    char *line_end = memchr(line, '\n', (size_t)(end - line));
    if (!line_end) line_end = end;
    p->line++;
    if (memchr(line, '\0', (size_t)(line_end - line))) return fail(p, "expected text, found a zero byte");
    *line_end = '\0';
    vmm_status status = parse_line(p, line);
    if (status != VMM_SUCCESS) return status;
    line = line_end + 1;
  }
  if (p->line == 0) p->line = 1;
  vmm_status status = check_complete(p);
  if (status != VMM_SUCCESS) return status;
  status = build_rows(p->profile);
  return status == VMM_SUCCESS ? status : (fail(p, "out of memory"), status);
}

const char *const *vmm_profile_names(void) {
  static const char *names[NAMES_LIMIT];
  for (int i = 0; i < NAMES_LIMIT - 1 && vmm_embedded_profiles[i].name; i++)
    names[i] = vmm_embedded_profiles[i].name;
  return names;
}

/* Reads a whole file into allocated memory with room for one more byte. */
static vmm_status read_file(const char *path, char **text, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file) return VMM_INVALID_VALUE;
  char *buffer = malloc(FILE_LIMIT + 1);
  vmm_status status = buffer ? VMM_SUCCESS : VMM_OUT_OF_MEMORY;
  if (buffer) {
    *size = fread(buffer, 1, FILE_LIMIT + 1, file);
    if (ferror(file)) {
      status = VMM_INVALID_VALUE;
    } else if (*size > FILE_LIMIT) {
      errno = EFBIG;
      status = VMM_INVALID_VALUE;
    }
  }
  int reason = errno;
  fclose(file);
  errno = reason;
  if (status != VMM_SUCCESS) {
    free(buffer);
    return status;
  }
  *text = buffer;
  return VMM_SUCCESS;
}

static vmm_status read_text(const char *name_or_path, char **text, size_t *size, char *message,
                            size_t message_size) {
  for (const struct vmm_embedded_profile *embedded = vmm_embedded_profiles; embedded->name; embedded++) {
    if (strcmp(embedded->name, name_or_path) != 0) continue;
    *text = malloc(embedded->size + 1);
    if (!*text) {
      snprintf(message, message_size, "%s:0: out of memory", name_or_path);
      return VMM_OUT_OF_MEMORY;
    }
    memcpy(*text, embedded->text, embedded->size);
    *size = embedded->size;
    return VMM_SUCCESS;
  }
  errno = 0;
  vmm_status status = read_file(name_or_path, text, size);
  if (status == VMM_SUCCESS) return status;
  int written = snprintf(message, message_size, "%s:0: expected a profile file (%s) or one of:", name_or_path,
                         strerror(errno ? errno : EIO));
  for (const struct vmm_embedded_profile *embedded = vmm_embedded_profiles; embedded->name; embedded++) {
    if (written < 0 || (size_t)written >= message_size) break;
    written += snprintf(message + written, message_size - (size_t)written, " %s", embedded->name);
  }
  return status;
}

vmm_status vmm_profile_load(const char *name_or_path, vmm_profile **profile, char *message,
                            size_t message_size) {
  *profile = NULL;
  if (message_size > 0) message[0] = '\0';
  char *text;
  size_t size;
  vmm_status status = read_text(name_or_path, &text, &size, message, message_size);
  if (status != VMM_SUCCESS) return status;
  vmm_profile *loaded = calloc(1, sizeof *loaded);
  if (!loaded) {
    free(text);
    snprintf(message, message_size, "%s:0: out of memory", name_or_path);
    return VMM_OUT_OF_MEMORY;
  }
  parser p = {.profile = loaded, .file = name_or_path, .message = message, .message_size = message_size};
  status = parse_profile(text, size, &p);
  free(text);
  if (status != VMM_SUCCESS) {
    vmm_profile_destroy(loaded);
    return status;
  }
  *profile = loaded;
  return VMM_SUCCESS;
}

void vmm_profile_destroy(vmm_profile *profile) {
  if (!profile) return;
  free(profile->points);
  free(profile->rows);
  free(profile);
}

const char *vmm_profile_device(const vmm_profile *profile) { return profile->device; }
const char *vmm_profile_source(const vmm_profile *profile) { return profile->source; }
uint64_t vmm_profile_total_bytes(const vmm_profile *profile) { return profile->total_bytes; }
uint64_t vmm_profile_usable_bytes(const vmm_profile *profile) { return profile->usable_bytes; }
uint64_t vmm_profile_granularity(const vmm_profile *profile) { return profile->granularity_bytes; }

/* Linear between the row's points, the nearest one outside them. */
static double row_cost(const vmm_profile *profile, const cost_row *row, uint64_t live_handles) {
  const cost_point *points = profile->points + row->first;
  uint32_t low = 0, high = row->count; /* the first point above live_handles is in [low, high] */
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (points[middle].live_handles > live_handles) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (low == 0) return points[0].nanoseconds;
  const cost_point *below = &points[low - 1];
  if (low == row->count || below->live_handles == live_handles) return below->nanoseconds;
  const cost_point *above = &points[low];
  double share =
      (double)(live_handles - below->live_handles) / (double)(above->live_handles - below->live_handles);
  return below->nanoseconds + share * (above->nanoseconds - below->nanoseconds);
}

uint64_t vmm_profile_cost_ns(const vmm_profile *profile, vmm_call call, uint64_t size,
                             uint64_t live_handles) {
  if ((unsigned)call >= VMM_CALL_COUNT || profile->calls[call].count == 0) return 0;
  const cost_row *rows = profile->rows + profile->calls[call].first;
  uint32_t count = profile->calls[call].count;
  if (size > 0 && rows[0].size == 0 &&
      count > 1) { /* what a call without memory costs is no point of the curve */
    rows++;
    count--;
  }
  uint32_t low = 0, high = count; /* the first row of a size above this one is in [low, high] */
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (rows[middle].size > size) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  double cost;
  if (low == 0) {
    cost = row_cost(profile, &rows[0], live_handles);
  } else if (rows[low - 1].size == size) {
    cost = row_cost(profile, &rows[low - 1], live_handles);
  } else if (low == count) {
    const cost_row *largest = &rows[count - 1];
    cost = row_cost(profile, largest, live_handles);
    if (largest->size > 0) cost *= (double)size / (double)largest->size;
  } else {
    const cost_row *below = &rows[low - 1], *above = &rows[low];
    double cost_below = row_cost(profile, below, live_handles);
    double cost_above = row_cost(profile, above, live_handles);
    double share = (log2_of_size(size) - below->log2_size) / (above->log2_size - below->log2_size);
    if (cost_below > 0 && cost_above > 0) {
      cost = cost_below * exp2(share * log2(cost_above / cost_below));
    } else {
      cost = cost_below + share * (cost_above - cost_below);
    }
  }
  return cost < 1.8e19 ? (uint64_t)(cost + 0.5) : UINT64_MAX;
}

#include "workloads/kineto.h"

#include <inttypes.h>
#include <stdlib.h>

#include "workloads/failure.h"
#include "workloads/json.h"
#include "workloads/text.h"

enum { DEVICE_CUDA = 1 }; /* as PyTorch numbers them; on ROCm too */

typedef enum part {
  PART_TIME,
  PART_ADDRESS,
  PART_BYTES,
  PART_DEVICE_TYPE,
  PART_DEVICE_ID,
  PART_TOTAL, /* the only one that may be missing */
  PART_COUNT
} part;

static const char *const part_names[PART_COUNT] = {
    [PART_TIME] = "ts",
    [PART_ADDRESS] = "Addr",
    [PART_BYTES] = "Bytes",
    [PART_DEVICE_TYPE] = "Device Type",
    [PART_DEVICE_ID] = "Device Id",
    [PART_TOTAL] = "Total Allocated",
};

/* An entry of traceEvents, of which we do not know until its end whether it is a memory event. */
typedef struct entry {
  uint64_t offset;
  bool is_memory;
  bool known[PART_COUNT];
  bool wrong[PART_COUNT]; /* there, but not such a number */
  int64_t numbers[PART_COUNT];
  uint64_t time_ns, address;
} entry;

static void read_number(const trace_json *json, part which, entry *found) {
  const uint8_t *start = (const uint8_t *)json->text;
  trace_text text = {.at = start, .end = start + json->length};
  bool read;
  if (which == PART_TIME) {
    read = trace_text_decimal(&text, 3, &found->time_ns);
  } else if (which == PART_ADDRESS) {
    read = trace_text_unsigned(&text, &found->address) && found->address != 0;
  } else {
    read = trace_text_signed(&text, &found->numbers[which]);
  }
  found->wrong[which] = !read || !trace_text_at_end(&text);
}

/* The value of a key that may be a part. */
static trace_status read_part(trace_json *json, part which, entry *found, trace_error *error) {
  trace_json_token token;
  trace_status status = trace_json_next(json, &token, error);
  if (status != TRACE_OK) return status;
  if (which == PART_COUNT) return trace_json_skip(json, token, error);
  found->known[which] = true;
  if (token == TRACE_JSON_NUMBER) {
    read_number(json, which, found);
    return TRACE_OK;
  }
  found->wrong[which] = true;
  return trace_json_skip(json, token, error);
}

/* Behind "args". */
static trace_status read_arguments(trace_json *json, entry *found, trace_error *error) {
  trace_json_token token;
  trace_status status = trace_json_next(json, &token, error);
  if (status != TRACE_OK) return status;
  if (token != TRACE_JSON_OBJECT) return trace_json_skip(json, token, error);
  for (;;) {
    status = trace_json_next(json, &token, error);
    if (status != TRACE_OK || token == TRACE_JSON_OBJECT_END) return status;
    part which = PART_ADDRESS;
    while (which < PART_COUNT && !trace_json_is(json, part_names[which])) which++;
    status = read_part(json, which, found, error);
    if (status != TRACE_OK) return status;
  }
}

/* Behind "name". */
static trace_status read_name(trace_json *json, entry *found, trace_error *error) {
  trace_json_token token;
  trace_status status = trace_json_next(json, &token, error);
  if (status != TRACE_OK) return status;
  found->is_memory = token == TRACE_JSON_STRING && trace_json_is(json, "[memory]");
  return trace_json_skip(json, token, error);
}

/* Behind the brace that begins an entry. */
static trace_status read_entry(trace_json *json, entry *found, trace_error *error) {
  *found = (entry){.offset = json->offset};
  for (;;) {
    trace_json_token token;
    trace_status status = trace_json_next(json, &token, error);
    if (status != TRACE_OK || token == TRACE_JSON_OBJECT_END) return status;
    if (trace_json_is(json, "name")) {
      status = read_name(json, found, error);
    } else if (trace_json_is(json, "args")) {
      status = read_arguments(json, found, error);
    } else {
      status =
          read_part(json, trace_json_is(json, part_names[PART_TIME]) ? PART_TIME : PART_COUNT, found, error);
    }
    if (status != TRACE_OK) return status;
  }
}

static trace_status check_entry(const trace *opened, const entry *found, trace_error *error) {
  for (part which = PART_TIME; which < PART_TOTAL; which++) {
    if (found->known[which]) continue;
    return trace_fail_offset(error, opened->input.name, found->offset, "expected \"%s\" in a [memory] event",
                             part_names[which]);
  }
  static const struct {
    part which;
    int64_t least, most;
    const char *what;
  } limits[] = {{PART_TIME, 0, 0, "a time in microseconds from 0 on"},
                {PART_ADDRESS, 0, 0, "an address from 1 on"},
                {PART_BYTES, -INT64_MAX, INT64_MAX, "a number of bytes below 2^63"},
                {PART_DEVICE_TYPE, 0, INT32_MAX, "a number from 0 on"},
                {PART_DEVICE_ID, -1, INT32_MAX, "the number of a device"},
                {PART_TOTAL, 0, INT64_MAX, "a number of bytes below 2^63"}};
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    part which = limits[i].which;
    if (!found->known[which]) continue;
    int64_t number = found->numbers[which];
    if (!found->wrong[which] && number >= limits[i].least && number <= limits[i].most) continue;
    return trace_fail_offset(error, opened->input.name, found->offset,
                             "expected \"%s\" of a [memory] event to be %s", part_names[which],
                             limits[i].what);
  }
  if (found->numbers[PART_BYTES] == 0) {
    return trace_fail_offset(error, opened->input.name, found->offset,
                             "\"Bytes\" of a [memory] event is 0: neither an allocation nor a free");
  }
  return TRACE_OK;
}

static bool note_device(kineto_profile *profile, uint32_t device) {
  for (uint32_t i = 0; i < profile->device_count; i++) {
    if (profile->devices[i] == device) return true;
  }
  if (profile->device_count == KINETO_MOST_DEVICES) return false;
  profile->devices[profile->device_count++] = device;
  return true;
}

static trace_status keep_event(const trace *opened, kineto_profile *profile, const entry *found,
                               trace_error *error) {
  uint32_t device = (uint32_t)found->numbers[PART_DEVICE_ID];
  if (found->numbers[PART_DEVICE_ID] < 0 || !note_device(profile, device)) {
    return trace_fail_offset(error, opened->input.name, found->offset,
                             "expected \"Device Id\" of a GPU's [memory] event to be from 0 on, at most %d "
                             "different ones",
                             KINETO_MOST_DEVICES);
  }
  if (profile->count == profile->capacity) {
    size_t capacity = profile->capacity == 0 ? 1024 : 2 * profile->capacity;
    if (capacity > SIZE_MAX / sizeof *profile->events) return trace_fail_memory(error, opened->input.name);
    kineto_event *events = realloc(profile->events, capacity * sizeof *events);
    if (events == NULL) return trace_fail_memory(error, opened->input.name);
    profile->events = events;
    profile->capacity = capacity;
  }
  profile->events[profile->count++] =
      (kineto_event){.time_ns = found->time_ns,
                     .address = found->address,
                     .bytes = found->numbers[PART_BYTES],
                     .total = found->known[PART_TOTAL] ? found->numbers[PART_TOTAL] : KINETO_NO_TOTAL,
                     .offset = found->offset,
                     .device = device};
  return TRACE_OK;
}

/* Behind the bracket that begins the list of events. */
static trace_status read_events(trace *opened, trace_json *json, kineto_profile *profile,
                                trace_error *error) {
  for (;;) {
    trace_json_token token;
    trace_status status = trace_json_next(json, &token, error);
    if (status != TRACE_OK || token == TRACE_JSON_ARRAY_END) return status;
    if (token != TRACE_JSON_OBJECT) {
      return trace_fail_offset(error, opened->input.name, json->offset,
                               "expected an object in the list of trace events");
    }
    entry found;
    status = read_entry(json, &found, error);
    if (status != TRACE_OK) return status;
    profile->trace_events++;
    if (!found.is_memory) continue;
    status = check_entry(opened, &found, error);
    if (status == TRACE_OK && found.numbers[PART_DEVICE_TYPE] == DEVICE_CUDA) {
      status = keep_event(opened, profile, &found, error);
    } else {
      profile->skipped++;
    }
    if (status != TRACE_OK) return status;
  }
}

/* Behind the brace that begins the profile. *listed: it has a list of events. */
static trace_status read_profile(trace *opened, trace_json *json, kineto_profile *profile, bool *listed,
                                 trace_error *error) {
  for (;;) {
    trace_json_token token;
    trace_status status = trace_json_next(json, &token, error);
    if (status != TRACE_OK || token == TRACE_JSON_OBJECT_END) return status;
    bool is_list = trace_json_is(json, "traceEvents");
    status = trace_json_next(json, &token, error);
    if (status == TRACE_OK && is_list && token == TRACE_JSON_ARRAY) {
      *listed = true;
      status = read_events(opened, json, profile, error);
    } else if (status == TRACE_OK) {
      status = trace_json_skip(json, token, error);
    }
    if (status != TRACE_OK) return status;
  }
}

trace_status kineto_read(trace *opened, kineto_profile *profile, trace_error *error) {
  trace_json json;
  trace_json_begin(&json, &opened->input);
  profile->count = 0;
  profile->trace_events = profile->skipped = 0;
  profile->device_count = 0;
  trace_json_token token;
  trace_status status = trace_json_next(&json, &token, error);
  if (status != TRACE_OK) return status;
  bool listed = token == TRACE_JSON_ARRAY;
  if (token == TRACE_JSON_OBJECT) {
    status = read_profile(opened, &json, profile, &listed, error);
  } else if (token == TRACE_JSON_ARRAY) {
    status = read_events(opened, &json, profile, error);
  }
  if (status == TRACE_OK) status = trace_json_next(&json, &token, error);
  if (status != TRACE_OK) return status;
  if (listed) return TRACE_OK;
  return trace_fail_offset(error, opened->input.name, trace_input_offset(&opened->input),
                           "the JSON ends without a list \"traceEvents\": it is no PyTorch profiler trace");
}

#include "harness/stress_program.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "harness/text_line.h"
#include "pools/heap.h"
#include "vmm/driver.h"
#include "workloads/random_numbers.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

enum { SIZES = 14, PHASE_STEPS = 150 };

static const char letters[STRESS_KINDS] = {'a', 'f', 'r', 'w', 's', 't', 'l', 'k', 'x', 'y'};

/* ---- lists of steps ---- */

static bool grow(stress_program *program, size_t count) {
  if (count <= program->capacity) return true;
  size_t capacity = program->capacity ? program->capacity : 64;
  while (capacity < count) capacity *= 2;
  stress_step *steps = realloc(program->steps, capacity * sizeof *steps);
  if (!steps) return false;
  program->steps = steps;
  program->capacity = capacity;
  return true;
}

bool stress_program_add(stress_program *program, const stress_step *step) {
  if (!grow(program, program->count + 1)) return false;
  program->steps[program->count++] = *step;
  if (step->kind <= STRESS_WRITE && step->id >= program->ids) program->ids = step->id + 1;
  return true;
}

bool stress_program_copy(stress_program *program, const stress_program *from) {
  if (!grow(program, from->count)) return false;
  memcpy(program->steps, from->steps, from->count * sizeof *from->steps);
  program->count = from->count;
  program->ids = from->ids;
  return true;
}

void stress_program_free(stress_program *program) {
  free(program->steps);
  *program = (stress_program){0};
}

/* ---- random ones ---- */

/* The maker of a program believes that every request is served. */
typedef struct maker {
  stress_program *program;
  const stress_mix *mix;
  trace_random random;
  uint64_t sizes[SIZES]; /* asked for again and again */
  struct {
    uint32_t id;
    uint64_t size;
  } * live;
  uint32_t live_count;
  uint64_t live_bytes;
} maker;

static uint64_t below(maker *self, uint64_t bound) { return trace_random_below(&self->random, bound); }

static uint64_t smaller(uint64_t left, uint64_t right) { return left < right ? left : right; }

static void choose_sizes(maker *self) {
  for (int i = 0; i < SIZES; i++) {
    uint64_t bound = i < 4 ? 4 * KIB : i < 7 ? 2 * MIB : self->mix->largest;
    self->sizes[i] = 1 + below(self, smaller(bound, self->mix->largest));
    if (i % 3 == 2 && self->mix->largest >= 2 * MIB) {
      self->sizes[i] = (self->sizes[i] + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    }
  }
}

static uint64_t some_size(maker *self) {
  uint64_t kind = below(self, 8);
  if (kind < 6) return self->sizes[below(self, SIZES)];
  return 1 + below(self, kind == 6 ? self->mix->largest : smaller(MIB, self->mix->largest));
}

static bool make_alloc(maker *self, uint64_t room) {
  const stress_step step = {.kind = STRESS_ALLOC,
                            .id = self->program->ids,
                            .size = some_size(self),
                            .stream = (uint32_t)below(self, self->mix->streams)};
  if (self->live_count == self->mix->live || self->live_bytes + step.size > room) return true;
  self->live[self->live_count].id = step.id;
  self->live[self->live_count++].size = step.size;
  self->live_bytes += step.size;
  return stress_program_add(self->program, &step);
}

static bool make_free(maker *self) {
  /* The youngest as often as any: most memory of a training step is given back in that order. */
  uint32_t i = below(self, 2) ? self->live_count - 1 : (uint32_t)below(self, self->live_count);
  const uint32_t id = self->live[i].id;
  if (below(self, 3) == 0 &&
      !stress_program_add(self->program, &(stress_step){.kind = STRESS_WRITE, .id = id})) {
    return false;
  }
  self->live_bytes -= self->live[i].size;
  self->live[i] = self->live[--self->live_count];
  return stress_program_add(self->program, &(stress_step){.kind = STRESS_FREE, .id = id});
}

static bool make_other(maker *self) {
  const stress_mix *mix = self->mix;
  stress_step step = {.kind = STRESS_TICK};
  uint64_t kind = below(self, 100);
  if (kind < 35 && self->live_count > 0) {
    step.kind = STRESS_RECORD;
    step.id = self->live[below(self, self->live_count)].id;
    step.stream = (uint32_t)below(self, mix->streams);
  } else if (kind < 45 && mix->slow) {
    step.kind = STRESS_SLOW;
    step.stream = (uint32_t)below(self, mix->streams);
  } else if (kind < 47) {
    step.kind = STRESS_TRIM;
  } else if (kind < 50 && mix->limits) {
    step.kind = STRESS_LIMIT;
    step.size = below(self, 3) ? smaller(mix->limit, mix->held / 4 + below(self, mix->held)) : mix->limit;
  }
  return stress_program_add(self->program, &step);
}

static bool make_step(maker *self, uint64_t number) {
  const uint64_t phase = number / PHASE_STEPS;
  uint64_t room =
      phase % 6 == 4 ? self->mix->room + self->mix->room / 3 : self->mix->room * (1 + phase % 3) / 3;
  uint64_t kind = below(self, 100);
  if (kind < (phase % 2 == 0 ? 50u : 34u)) return make_alloc(self, room);
  if (kind < 85) return self->live_count == 0 || make_free(self);
  return make_other(self);
}

bool stress_program_generate(stress_program *program, uint64_t seed, const stress_mix *mix) {
  maker self = {.program = program, .mix = mix, .random = trace_random_begin(seed)};
  program->count = 0;
  program->ids = 0;
  self.live = calloc(mix->live, sizeof *self.live);
  bool made = self.live != NULL;
  choose_sizes(&self);
  for (uint64_t i = 0; made && program->count < mix->steps; i++) made = make_step(&self, i);
  free(self.live);
  return made;
}

bool stress_program_slice(stress_program *program, const trace_events *events, uint64_t first,
                          uint64_t count) {
  program->count = 0;
  program->ids = 0;
  uint32_t *ids = calloc((size_t)events->slots + 1, sizeof *ids); /* of a slot's block, counted from 1 */
  bool made = ids != NULL;
  for (uint64_t i = first; made && i < events->count && i - first < count; i++) {
    const trace_event *event = &events->events[i];
    if (event->kind == TRACE_ALLOC) {
      const stress_step step = {
          .kind = STRESS_ALLOC, .id = program->ids, .size = event->size, .stream = event->stream};
      ids[event->slot] = step.id + 1;
      made = stress_program_add(program, &step);
    } else if (event->kind == TRACE_FREE && ids[event->slot]) {
      made = stress_program_add(program, &(stress_step){.kind = STRESS_FREE, .id = ids[event->slot] - 1});
      ids[event->slot] = 0;
    }
  }
  free(ids);
  return made;
}

bool stress_program_finish(stress_program *program) {
  bool *live = calloc((size_t)program->ids + 1, sizeof *live);
  bool made = live != NULL;
  for (size_t i = 0; made && i < program->count; i++) {
    const stress_step *step = &program->steps[i];
    if (step->kind == STRESS_ALLOC) live[step->id] = true;
    if (step->kind == STRESS_FREE) live[step->id] = false;
  }
  for (uint32_t id = 0; made && id < program->ids; id++)
    made = !live[id] || stress_program_add(program, &(stress_step){.kind = STRESS_FREE, .id = id});
  free(live);
  return made && stress_program_add(program, &(stress_step){.kind = STRESS_TRIM});
}

/* ---- text ---- */

enum { WORDS = 4, LARGEST_ID = 1 << 22 };

static bool read_number(const char *word, uint64_t most, uint64_t *number) {
  char *end;
  if (!word || word[0] < '0' || word[0] > '9') return false;
  errno = 0;
  *number = strtoull(word, &end, 10);
  return *end == '\0' && errno == 0 && *number <= most;
}

static bool read_call(const char *word, uint32_t *call) {
  for (*call = 0; word && *call < VMM_CALL_COUNT; (*call)++) {
    if (strcmp(vmm_call_name((vmm_call)*call), word) == 0) return true;
  }
  return false;
}

/* NULL, or what was expected. */
static const char *read_step(char *const words[WORDS + 1], stress_step *step) {
  uint64_t id = 0, stream = 0, status = 0;
  const char *letter = words[0][1] == '\0' ? memchr(letters, words[0][0], sizeof letters) : NULL;
  if (!letter) return "a step that begins with one of a f r w s t l k x y";
  static const unsigned char word_counts[STRESS_KINDS] = {4, 2, 3, 2, 2, 1, 2, 1, 4, 3};
  *step = (stress_step){.kind = (stress_kind)(letter - letters)};
  if (words[word_counts[step->kind]]) return "the end of the line behind the step";
  const bool names_block = step->kind <= STRESS_WRITE;
  if (names_block && !read_number(words[1], LARGEST_ID, &id)) return "the number of a block";
  step->id = (uint32_t)id;
  switch (step->kind) {
    case STRESS_ALLOC:
      if (!read_number(words[2], UINT64_MAX, &step->size) ||
          !read_number(words[3], POOL_STREAM_LIMIT - 1, &stream))
        return "a ID SIZE STREAM";
      break;
    case STRESS_RECORD:
      if (!read_number(words[2], POOL_STREAM_LIMIT - 1, &stream)) return "r ID STREAM";
      break;
    case STRESS_SLOW:
      if (!read_number(words[1], POOL_STREAM_LIMIT - 1, &stream)) return "s STREAM";
      break;
    case STRESS_LIMIT:
      step->size = UINT64_MAX;
      if (words[1] && strcmp(words[1], "unlimited") == 0) break;
      if (!read_number(words[1], UINT64_MAX, &step->size)) return "l BYTES or l unlimited";
      break;
    case STRESS_FAIL:
      if (!read_call(words[1], &step->id) || !read_number(words[2], UINT64_MAX, &step->size) ||
          step->size == 0 || !read_number(words[3], INT32_MAX, &status) || status == 0)
        return "x CALL K STATUS, such as x cuMemMap 1 2";
      stream = status;
      break;
    case STRESS_FAIL_NEXT:
      if (!read_call(words[1], &step->id) || !read_number(words[2], INT32_MAX, &status) || status == 0)
        return "y CALL STATUS, such as y cuMemUnmap 999";
      stream = status;
      break;
    default:
      break;
  }
  step->stream = (uint32_t)stream;
  return NULL;
}

bool stress_program_read(stress_program *program, FILE *stream, const char *name, char *message,
                         size_t message_size) {
  char line[4096];
  text_line_status found;
  program->count = 0;
  program->ids = 0;
  for (uint64_t number = 1; (found = text_line_read(stream, line, sizeof line)) != TEXT_LINE_END; number++) {
    char *words[WORDS + 1] = {NULL}, *rest = NULL;
    stress_step step;
    const char *expected = NULL;
    if (found == TEXT_LINE_UNREADABLE) {
      snprintf(message, message_size, "%s cannot be read: %s", name, strerror(errno));
      return false;
    }
    if (found == TEXT_LINE_READ) {
      line[strcspn(line, "#")] = '\0';
      for (int i = 0; i <= WORDS; i++) words[i] = strtok_r(i ? NULL : line, " \t\r", &rest);
      if (!words[0]) continue;
      expected = read_step(words, &step);
    } else {
      expected = text_line_expected(found);
    }
    if (expected) {
      snprintf(message, message_size, "%s:%" PRIu64 ": expected %s", name, number, expected);
      return false;
    }
    if (!stress_program_add(program, &step)) {
      snprintf(message, message_size, "%s:%" PRIu64 ": no memory for the program", name, number);
      return false;
    }
  }
  if (program->count == 0) {
    snprintf(message, message_size, "%s: holds no step", name);
    return false;
  }
  return true;
}

static void write_step(const stress_step *step, FILE *stream) {
  fputc(letters[step->kind], stream);
  if (step->kind <= STRESS_WRITE) fprintf(stream, " %" PRIu32, step->id);
  if (step->kind == STRESS_ALLOC) fprintf(stream, " %" PRIu64, step->size);
  if (step->kind == STRESS_ALLOC || step->kind == STRESS_RECORD || step->kind == STRESS_SLOW) {
    fprintf(stream, " %" PRIu32, step->stream);
  }
  if (step->kind == STRESS_LIMIT && step->size == UINT64_MAX) fputs(" unlimited", stream);
  if (step->kind == STRESS_LIMIT && step->size != UINT64_MAX) fprintf(stream, " %" PRIu64, step->size);
  if (step->kind == STRESS_FAIL) {
    fprintf(stream, " %s %" PRIu64 " %" PRIu32, vmm_call_name((vmm_call)step->id), step->size, step->stream);
  }
  if (step->kind == STRESS_FAIL_NEXT)
    fprintf(stream, " %s %" PRIu32, vmm_call_name((vmm_call)step->id), step->stream);
  fputc('\n', stream);
}

void stress_program_write(const stress_program *program, FILE *stream) {
  for (size_t i = 0; i < program->count; i++) write_step(&program->steps[i], stream);
}

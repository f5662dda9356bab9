#include "harness/sweep_grid.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/option_values.h"
#include "harness/policy_specs.h"
#include "harness/program.h"
#include "harness/sweep_grid_internal.h"
#include "harness/sweep_source.h"
#include "harness/text_line.h"
#include "harness/timeline.h"
#include "harness/trace_list.h"

enum { MESSAGE = 1024, LINE_ROOM = 1 << 16 };

typedef struct reading {
  sweep_grid *grid;
  sweep_block block;
  unsigned line;
} reading;

static exit_status no_memory(void) {
  program_complain("no memory for the grid");
  return EXIT_STATUS_CHECK_FAILED;
}

static exit_status refuse(const reading *state, const char *what, const char *word, const char *expected) {
  program_complain("%s:%u: %s '%s': expected %s", state->grid->name, state->line, what, word, expected);
  return EXIT_STATUS_USAGE;
}

static exit_status expand(const reading *state, const char *word, sweep_words *expanded) {
  char message[MESSAGE];
  if (sweep_words_expand(expanded, word, message, sizeof message)) return EXIT_STATUS_DONE;
  program_complain("%s:%u: %s", state->grid->name, state->line, message);
  return EXIT_STATUS_USAGE;
}

/* ---- values of axes ---- */

static exit_status add_value(reading *state, sweep_axis_name name, sweep_value value) {
  sweep_axis *axis = &state->block.axes[name];
  sweep_value *items = realloc(axis->items, (axis->count + 1) * sizeof *items);
  if (!items) return no_memory();
  axis->items = items;
  items[axis->count++] = value;
  return EXIT_STATUS_DONE;
}

static exit_status add_number(reading *state, sweep_axis_name name, uint64_t number) {
  return add_value(state, name, (sweep_value){.number = number});
}

/* A value that is a copy of text. */
static exit_status add_text(reading *state, sweep_axis_name name, const char *text) {
  sweep_words *texts = &state->grid->texts;
  if (!sweep_words_add(texts, text, strlen(text))) return no_memory();
  return add_value(state, name, (sweep_value){.text = texts->items[texts->count - 1]});
}

static exit_status add_source(reading *state, const char *text, bool generated) {
  sweep_grid *grid = state->grid;
  for (size_t i = 0; i < grid->source_count; i++) {
    sweep_source *known = grid->sources[i];
    if (known->generated == generated && strcmp(known->text, text) == 0)
      return add_value(state, SWEEP_SOURCES, (sweep_value){.source = known});
  }
  sweep_source **sources = realloc(grid->sources, (grid->source_count + 1) * sizeof *sources);
  if (!sources) return no_memory();
  grid->sources = sources;
  sweep_source *source = calloc(1, sizeof *source);
  if (!source) return no_memory();
  grid->sources[grid->source_count++] = source;
  source->text = strdup(text);
  source->generated = generated;
  source->line = state->line;
  return source->text ? add_value(state, SWEEP_SOURCES, (sweep_value){.source = source}) : no_memory();
}

static exit_status add_files(reading *state, const char *pattern) {
  glob_t found;
  int failure = glob(pattern, GLOB_ERR, NULL, &found);
  exit_status status = EXIT_STATUS_DONE;
  if (failure == GLOB_NOSPACE) status = no_memory();
  if (failure == GLOB_NOMATCH)
    status = refuse(state, "no trace matches", pattern, "a pattern of names of files");
  if (failure == GLOB_ABORTED) status = refuse(state, "a folder cannot be read for", pattern, "one that can");
  for (size_t i = 0; failure == 0 && status == EXIT_STATUS_DONE && i < found.gl_pathc; i++)
    status = add_source(state, found.gl_pathv[i], false);
  globfree(&found);
  return status;
}

static exit_status read_trace(reading *state, const char *word) {
  if (strpbrk(word, "*?[") && access(word, F_OK) != 0) return add_files(state, word);
  trace_list list = {0};
  exit_status status = trace_list_add(&list, word) == 0 ? EXIT_STATUS_DONE : no_memory();
  struct stat about;
  const char *problem = NULL;
  if (status != EXIT_STATUS_DONE) return status;
  if (stat(list.paths[0], &about) != 0 || access(list.paths[0], R_OK) != 0) {
    problem = strerror(errno);
  } else if (!S_ISREG(about.st_mode)) {
    problem = "no file that can be read again and again";
  }
  if (problem) {
    trace_error error = {.status = TRACE_UNREADABLE};
    snprintf(error.message, sizeof error.message, "%s:%u: trace '%s': %s", state->grid->name, state->line,
             word, problem);
    trace_list_complain(word, &error);
    status = EXIT_STATUS_USAGE;
  }
  if (status == EXIT_STATUS_DONE) status = add_source(state, list.paths[0], false);
  trace_list_free(&list);
  return status;
}

static exit_status add_policies(reading *state, policy_specs *specs, bool read, const char *message) {
  exit_status status = EXIT_STATUS_DONE;
  if (!read) {
    program_complain("%s:%u: %s", state->grid->name, state->line, message);
    status = EXIT_STATUS_USAGE;
  }
  for (size_t i = 0; status == EXIT_STATUS_DONE && i < specs->count; i++)
    status = add_text(state, SWEEP_POLICIES, specs->items[i].text);
  policy_specs_free(specs);
  return status;
}

static exit_status read_policy(reading *state, const char *word) {
  policy_specs specs = {0};
  char message[MESSAGE];
  bool read = policy_specs_add_list(&specs, word, message, sizeof message);
  return add_policies(state, &specs, read, message);
}

static exit_status read_device(reading *state, const char *word) {
  return add_text(state, SWEEP_DEVICES, word);
}

static exit_status read_capacity(reading *state, const char *word) {
  uint64_t bytes = 0;
  if (strcmp(word, "default") != 0 && (!policy_parse_size(word, &bytes) || bytes == 0 || bytes == UINT64_MAX))
    return refuse(state, "capacity", word, "a size such as 80GiB, or default");
  return add_number(state, SWEEP_CAPACITIES, bytes);
}

static exit_status read_limit(reading *state, const char *word) {
  sweep_value value = {.number = UINT64_MAX};
  if (strcmp(word, "none") != 0 && !option_read_share(word, &value.number, &value.fraction)) {
    program_complain("%s:%u: limit '%s': expected none, " OPTION_SHARE, state->grid->name, state->line, word);
    return EXIT_STATUS_USAGE;
  }
  return add_value(state, SWEEP_LIMITS, value);
}

static exit_status read_count(reading *state, sweep_axis_name axis, const char *what, const char *word,
                              uint64_t least, uint64_t most) {
  char *end;
  errno = 0;
  uint64_t number = strtoull(word, &end, 10);
  if (word[0] >= '0' && word[0] <= '9' && errno == 0 && !*end && number >= least && number <= most)
    return add_number(state, axis, number);
  char expected[80];
  snprintf(expected, sizeof expected, "a whole number from %" PRIu64 " to %" PRIu64, least, most);
  return refuse(state, what, word, expected);
}

static exit_status read_laps(reading *state, const char *word) {
  return read_count(state, SWEEP_LAPS, "laps", word, 1, 1000000);
}

static exit_status read_event_delay(reading *state, const char *word) {
  return read_count(state, SWEEP_EVENT_DELAYS, "event-delay", word, 0, 1000000000);
}

static exit_status read_timeline(reading *state, const char *word) {
  if (strcmp(word, "0") == 0) return add_number(state, SWEEP_TIMELINES, 0);
  return read_count(state, SWEEP_TIMELINES, "timeline", word, TIMELINE_LEAST_POINTS, 1000000);
}

/* One of two words. */
static exit_status read_choice(reading *state, sweep_axis_name axis, const char *what, const char *word,
                               const char *zero, const char *one) {
  if (strcmp(word, zero) == 0) return add_number(state, axis, 0);
  if (strcmp(word, one) == 0) return add_number(state, axis, 1);
  char expected[80];
  snprintf(expected, sizeof expected, "%s or %s", zero, one);
  return refuse(state, what, word, expected);
}

static exit_status read_frees(reading *state, const char *word) {
  return read_choice(state, SWEEP_FREES, "frees", word, "completed", "requested");
}

static exit_status read_seeds(reading *state, const char *word) {
  return read_choice(state, SWEEP_SEEDS, "seed-from-segments", word, "no", "yes");
}

static exit_status read_check(reading *state, const char *word) {
  return read_choice(state, SWEEP_CHECKS, "check", word, "no", "yes");
}

/* A description of what is to be made, with everything that stands on the line. */
static exit_status read_generate(reading *state, const sweep_words *words) {
  char *line = sweep_words_join(words, 1);
  sweep_words expanded = {0};
  exit_status status = EXIT_STATUS_DONE;
  if (!line) {
    program_complain("%s:%u: no memory, or a word has a '\"' in it", state->grid->name, state->line);
    return EXIT_STATUS_USAGE;
  }
  status = expand(state, line, &expanded);
  free(line);
  for (size_t i = 0; i < expanded.count && status == EXIT_STATUS_DONE; i++) {
    status = add_source(state, expanded.items[i], true);
    const sweep_axis *axis = &state->block.axes[SWEEP_SOURCES];
    if (status != EXIT_STATUS_DONE || sweep_source_can_generate(axis->items[axis->count - 1].source))
      continue;
    program_complain("%s:%u: 'generate %s' makes no trace", state->grid->name, state->line,
                     expanded.items[i]);
    status = EXIT_STATUS_USAGE;
  }
  sweep_words_free(&expanded);
  return status;
}

/* ---- blocks ---- */

/* What a block does not say. */
static exit_status fill_defaults(reading *state) {
  const sweep_block *block = &state->block;
  exit_status status = EXIT_STATUS_DONE;
  static const struct {
    sweep_axis_name axis;
    exit_status (*read)(reading *, const char *);
    const char *word;
  } defaults[] = {{SWEEP_DEVICES, read_device, "h200"},   {SWEEP_CAPACITIES, read_capacity, "default"},
                  {SWEEP_LIMITS, read_limit, "none"},     {SWEEP_LAPS, read_laps, "1"},
                  {SWEEP_FREES, read_frees, "completed"}, {SWEEP_SEEDS, read_seeds, "no"},
                  {SWEEP_CHECKS, read_check, "no"},       {SWEEP_EVENT_DELAYS, read_event_delay, "0"},
                  {SWEEP_TIMELINES, read_timeline, "0"},  {SWEEP_POLICIES, read_policy, "all"}};
  for (size_t i = 0; i < sizeof defaults / sizeof *defaults && status == EXIT_STATUS_DONE; i++) {
    if (block->axes[defaults[i].axis].count == 0) status = defaults[i].read(state, defaults[i].word);
  }
  return status;
}

static void empty_block(sweep_block *block) {
  for (size_t i = 0; i < SWEEP_AXES; i++) free(block->axes[i].items);
  *block = (sweep_block){0};
}

static exit_status end_block(reading *state) {
  sweep_block *block = &state->block;
  exit_status status = EXIT_STATUS_USAGE;
  if (block->axes[SWEEP_SOURCES].count == 0) {
    program_complain("%s:%u: nothing to replay: expected a line 'trace NAME...' or 'generate KIND ...'",
                     state->grid->name, state->line);
  } else {
    status = fill_defaults(state);
    if (status == EXIT_STATUS_DONE) status = sweep_grid_add_block(state->grid, block);
  }
  empty_block(block);
  return status;
}

/* ---- lines ---- */

static const struct keyword {
  const char *name;
  exit_status (*read)(reading *state, const char *word);
} keywords[] = {{"trace", read_trace},
                {"policy", read_policy},
                {"device", read_device},
                {"capacity", read_capacity},
                {"limit", read_limit},
                {"laps", read_laps},
                {"frees", read_frees},
                {"seed-from-segments", read_seeds},
                {"event-delay", read_event_delay},
                {"check", read_check},
                {"timeline", read_timeline},
                {NULL, NULL}};

static exit_status refuse_keyword(const reading *state, const char *word) {
  const char *names[sizeof keywords / sizeof *keywords + 2] = {"also", "generate"};
  for (size_t i = 0; keywords[i].name; i++) names[i + 2] = keywords[i].name;
  const char *nearest = policy_nearest_word(word, names);
  char valid[256] = "";
  for (size_t i = 0; names[i]; i++) {
    size_t used = strlen(valid);
    snprintf(valid + used, sizeof valid - used, "%s%s", i ? ", " : "", names[i]);
  }
  program_complain("%s:%u: no setting '%s'%s%s%s; there are: %s", state->grid->name, state->line, word,
                   nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "", valid);
  return EXIT_STATUS_USAGE;
}

static exit_status read_setting(reading *state, const sweep_words *words) {
  const struct keyword *keyword = keywords;
  while (keyword->name && strcmp(keyword->name, words->items[0]) != 0) keyword++;
  bool generates = strcmp(words->items[0], "generate") == 0;
  if (!keyword->name && !generates) return refuse_keyword(state, words->items[0]);
  if (words->count == 1) {
    program_complain("%s:%u: '%s' has no value", state->grid->name, state->line, words->items[0]);
    return EXIT_STATUS_USAGE;
  }
  if (generates) return read_generate(state, words);
  sweep_words expanded = {0};
  exit_status status = EXIT_STATUS_DONE;
  for (size_t i = 1; i < words->count && status == EXIT_STATUS_DONE; i++)
    status = expand(state, words->items[i], &expanded);
  for (size_t i = 0; i < expanded.count && status == EXIT_STATUS_DONE; i++)
    status = keyword->read(state, expanded.items[i]);
  sweep_words_free(&expanded);
  return status;
}

static exit_status read_line(reading *state, const char *line) {
  sweep_words words = {0};
  char message[MESSAGE];
  exit_status status = EXIT_STATUS_DONE;
  if (!sweep_words_split(&words, line, message, sizeof message)) {
    program_complain("%s:%u: %s", state->grid->name, state->line, message);
    status = EXIT_STATUS_USAGE;
  } else if (words.count == 1 && strcmp(words.items[0], "also") == 0) {
    status = end_block(state);
  } else if (words.count > 0) {
    if (state->block.line == 0) state->block.line = state->line;
    status = read_setting(state, &words);
  }
  sweep_words_free(&words);
  return status;
}

static exit_status refuse_line(const reading *state, text_line_status found) {
  if (found == TEXT_LINE_UNREADABLE)
    program_complain("%s cannot be read: %s", state->grid->name, strerror(errno));
  else
    program_complain("%s:%u: expected %s", state->grid->name, state->line, text_line_expected(found));
  return EXIT_STATUS_USAGE;
}

static exit_status read_lines(FILE *stream, const char *name, sweep_grid *grid) {
  reading state = {.grid = grid};
  grid->name = name;
  char *line = malloc(LINE_ROOM);
  exit_status status = line ? EXIT_STATUS_DONE : no_memory();
  while (status == EXIT_STATUS_DONE) {
    text_line_status found = text_line_read(stream, line, LINE_ROOM);
    if (found == TEXT_LINE_END) break;
    state.line++;
    status = found == TEXT_LINE_READ ? read_line(&state, line) : refuse_line(&state, found);
  }
  free(line);
  if (status == EXIT_STATUS_DONE) status = end_block(&state);
  empty_block(&state.block);
  return status == EXIT_STATUS_DONE ? sweep_grid_make_keys(grid) : status;
}

static exit_status read_stream(FILE *stream, const char *name, sweep_grid **read) {
  sweep_grid *grid = calloc(1, sizeof *grid);
  exit_status status = grid ? read_lines(stream, name, grid) : no_memory();
  if (status != EXIT_STATUS_DONE) {
    sweep_grid_free(grid);
    grid = NULL;
  }
  *read = grid;
  return status;
}

exit_status sweep_grid_read(const char *path, sweep_grid **grid) {
  *grid = NULL;
  FILE *stream = fopen(path, "r");
  if (!stream) {
    program_complain("%s cannot be read: %s", path, strerror(errno));
    return EXIT_STATUS_USAGE;
  }
  exit_status status = read_stream(stream, path, grid);
  fclose(stream);
  return status;
}

exit_status sweep_grid_parse(const char *text, const char *name, sweep_grid **grid) {
  *grid = NULL;
  FILE *stream = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
  if (!stream) return no_memory();
  exit_status status = read_stream(stream, name, grid);
  fclose(stream);
  return status;
}

size_t sweep_grid_count(const sweep_grid *grid) { return grid->count; }

const sweep_cell *sweep_grid_cell(const sweep_grid *grid, size_t index) { return &grid->cells[index]; }

void sweep_grid_free(sweep_grid *grid) {
  if (!grid) return;
  for (size_t i = 0; i < grid->source_count; i++) {
    free(grid->sources[i]->text);
    free(grid->sources[i]);
  }
  free(grid->sources);
  sweep_words_free(&grid->texts);
  free(grid->cells);
  free(grid->by_key);
  free(grid);
}

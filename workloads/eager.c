#include "workloads/eager.h"

#include <stdlib.h>

#include "workloads/failure.h"

typedef struct storage {
  uint64_t bytes, id;
  uint32_t holders; /* 0: free */
  uint32_t stream;
} storage;

typedef struct segment {
  eager_forward_function *forward;
  void *context;
  uint32_t index;
  eager_tensor input; /* held */
  uint32_t first, end, last_saving;
  bool recomputed;
} segment;

struct eager {
  generate_sink sink;
  uint64_t element_bytes;
  trace_status status;
  trace_error error;

  storage *storages; /* [0] is not used */
  uint32_t storage_count, storage_capacity;
  uint32_t *vacant;
  uint32_t vacant_count, vacant_capacity;
  uint64_t allocations, live_bytes;

  eager_node *nodes; /* [0] is not used */
  uint32_t node_count, node_capacity;
  eager_parameter *parameters;
  uint32_t parameter_count, parameter_capacity;
  segment *segments;
  uint32_t segment_count, segment_capacity;

  uint32_t recording;   /* the segment that is run the first time */
  uint32_t recomputing; /* the segment that is run again */
  uint32_t cursor;      /* its next node */
  bool stopped;         /* all that it has to save is saved */
  bool backward_running;
  bool no_gradients;
};

/* Room for one more behind count. */
static bool grow(eager *machine, void **array, uint32_t count, uint32_t *capacity, size_t size) {
  if (count < *capacity) return true;
  uint32_t larger = *capacity ? *capacity * 2 : 64;
  void *grown = larger > count ? reallocarray(*array, larger, size) : NULL;
  if (!grown) {
    machine->status = trace_fail_memory(&machine->error, "trace generate");
    return false;
  }
  *array = grown;
  *capacity = larger;
  return true;
}

eager *eager_create(generate_sink sink, uint64_t element_bytes) {
  eager *machine = calloc(1, sizeof *machine);
  if (!machine) return NULL;
  machine->sink = sink;
  machine->element_bytes = element_bytes;
  machine->storage_count = machine->node_count = machine->parameter_count = machine->segment_count = 1;
  return machine;
}

void eager_destroy(eager *machine) {
  if (!machine) return;
  free(machine->storages);
  free(machine->vacant);
  free(machine->nodes);
  free(machine->parameters);
  free(machine->segments);
  free(machine);
}

bool eager_failed(const eager *machine) { return machine->status != TRACE_OK; }

trace_status eager_status(const eager *machine, trace_error *error) {
  if (error && machine->status != TRACE_OK) *error = machine->error;
  return machine->status;
}

uint64_t eager_element(const eager *machine) { return machine->element_bytes; }
void eager_without_gradients(eager *machine) { machine->no_gradients = true; }
bool eager_in_backward(const eager *machine) { return machine->backward_running; }

static bool idle(const eager *machine) { return machine->status != TRACE_OK || machine->stopped; }

static void emit(eager *machine, trace_event_kind kind, uint32_t index) {
  const storage *about = &machine->storages[index];
  trace_event event = {
      .kind = kind, .slot = index - 1, .stream = about->stream, .size = about->bytes, .id = about->id};
  machine->status = machine->sink.add(machine->sink.context, &event, about->stream, &machine->error);
}

static uint64_t rounded(uint64_t bytes) { return (bytes + 511) & ~UINT64_C(511); }

uint32_t eager_allocate_on(eager *machine, uint64_t bytes, uint32_t stream) {
  if (idle(machine) || bytes == 0) return 0;
  if (bytes > INT64_MAX - 511 || rounded(bytes) > INT64_MAX - machine->live_bytes) {
    machine->status = trace_fail(&machine->error, TRACE_MALFORMED, "trace generate",
                                 "more than 2^63-1 bytes would be live");
    return 0;
  }
  uint32_t index;
  if (machine->vacant_count > 0) {
    index = machine->vacant[--machine->vacant_count];
  } else {
    if (!grow(machine, (void **)&machine->storages, machine->storage_count, &machine->storage_capacity,
              sizeof *machine->storages))
      return 0;
    index = machine->storage_count++;
  }
  machine->storages[index] =
      (storage){.bytes = bytes, .id = ++machine->allocations, .holders = 1, .stream = stream};
  machine->live_bytes += rounded(bytes);
  emit(machine, TRACE_ALLOC, index);
  return index;
}

uint32_t eager_allocate(eager *machine, uint64_t bytes) { return eager_allocate_on(machine, bytes, 0); }

void eager_hold(eager *machine, uint32_t index) {
  if (index != 0 && machine->status == TRACE_OK) machine->storages[index].holders++;
}

void eager_release(eager *machine, uint32_t index) {
  if (index == 0 || machine->status != TRACE_OK) return;
  if (--machine->storages[index].holders > 0) return;
  if (!grow(machine, (void **)&machine->vacant, machine->vacant_count, &machine->vacant_capacity,
            sizeof *machine->vacant))
    return;
  machine->live_bytes -= rounded(machine->storages[index].bytes);
  emit(machine, TRACE_FREE, index);
  machine->vacant[machine->vacant_count++] = index;
}

void eager_workspace(eager *machine, uint64_t bytes) {
  eager_release(machine, eager_allocate(machine, bytes));
}

eager_tensor eager_new(eager *machine, uint64_t bytes) {
  return (eager_tensor){.storage = eager_allocate(machine, bytes)};
}

eager_tensor eager_again(eager *machine, eager_tensor tensor) {
  eager_hold(machine, tensor.storage);
  return tensor;
}

void eager_drop(eager *machine, eager_tensor *tensor) {
  eager_release(machine, tensor->storage);
  *tensor = (eager_tensor){0};
}

void eager_replace(eager *machine, eager_tensor *tensor, eager_tensor with) {
  eager_release(machine, tensor->storage);
  *tensor = with;
}

uint32_t eager_add_parameter(eager *machine, uint64_t rows, uint64_t columns, bool trainable,
                             uint32_t module) {
  if (machine->status != TRACE_OK) return 0;
  if (!grow(machine, (void **)&machine->parameters, machine->parameter_count, &machine->parameter_capacity,
            sizeof *machine->parameters))
    return 0;
  machine->parameters[machine->parameter_count] =
      (eager_parameter){.rows = rows,
                        .columns = columns,
                        .trainable = trainable,
                        .module = module ? module : machine->parameter_count};
  return machine->parameter_count++;
}

uint32_t eager_parameter_end(const eager *machine) { return machine->parameter_count; }

eager_parameter *eager_parameter_at(eager *machine, uint32_t parameter) {
  return &machine->parameters[parameter];
}

uint64_t eager_parameter_bytes(const eager *machine, uint32_t parameter) {
  return machine->parameters[parameter].rows * machine->parameters[parameter].columns *
         machine->element_bytes;
}

eager_tensor eager_use(uint32_t parameter) { return (eager_tensor){.parameter = parameter}; }

bool eager_wanted(const eager *machine, eager_tensor tensor) {
  if (machine->no_gradients) return false;
  return tensor.node != 0 || (tensor.parameter != 0 && machine->parameters[tensor.parameter].trainable);
}

eager_node *eager_record(eager *machine, eager_backward_function *backward, const eager_tensor *inputs,
                         unsigned count) {
  if (idle(machine)) return NULL;
  bool wanted = false;
  for (unsigned i = 0; i < count; i++) wanted = wanted || eager_wanted(machine, inputs[i]);
  if (!wanted) return NULL;
  if (machine->recomputing) {
    return &machine->nodes[machine->cursor++];
  }
  if (!grow(machine, (void **)&machine->nodes, machine->node_count, &machine->node_capacity,
            sizeof *machine->nodes))
    return NULL;
  eager_node *node = &machine->nodes[machine->node_count++];
  *node = (eager_node){.backward = backward, .input_count = count, .segment = machine->recording};
  node->checkpointed = machine->recording != 0;
  for (unsigned i = 0; i < count; i++)
    if (eager_wanted(machine, inputs[i])) node->inputs[i] = inputs[i];
  return node;
}

void eager_save(eager *machine, eager_node *node, uint32_t index) {
  if (!node || index == 0) return;
  if (machine->recording) {
    node->expected++; /* what it is, is for the second run */
    return;
  }
  eager_hold(machine, index);
  node->saved[node->saved_count++] = index;
  if (!machine->recomputing || node->saved_count < node->expected) return;
  uint32_t last = machine->segments[machine->recomputing].last_saving;
  if (node == &machine->nodes[last]) machine->stopped = true;
}

void eager_made(eager *machine, eager_node *node, eager_tensor *tensor) {
  if (!node) return;
  tensor->node = (uint32_t)(node - machine->nodes);
  tensor->part = tensor->parameter = 0;
}

eager_gradient eager_pass(eager *machine, eager_gradient incoming, bool view) {
  eager_hold(machine, incoming.storage);
  return (eager_gradient){incoming.storage, incoming.view || view};
}

eager_gradient eager_gradient_new(eager *machine, uint64_t bytes, bool view) {
  return (eager_gradient){eager_allocate(machine, bytes), view};
}

eager_tensor eager_checkpoint(eager *machine, eager_forward_function *forward, void *context, uint32_t index,
                              eager_tensor input) {
  if (machine->status != TRACE_OK) return (eager_tensor){0};
  if (!grow(machine, (void **)&machine->segments, machine->segment_count, &machine->segment_capacity,
            sizeof *machine->segments))
    return (eager_tensor){0};
  uint32_t number = machine->segment_count++;
  eager_hold(machine, input.storage);
  machine->segments[number] = (segment){
      .forward = forward, .context = context, .index = index, .input = input, .first = machine->node_count};
  machine->recording = number;
  eager_tensor output = forward(machine, context, index, input);
  machine->recording = 0;
  segment *made = &machine->segments[number];
  made->end = machine->node_count;
  for (uint32_t i = made->first; i < made->end; i++)
    if (machine->nodes[i].expected > 0) made->last_saving = i;
  return output;
}

/* Runs a segment's forward again, so that its nodes have what they save. */
static void recompute(eager *machine, uint32_t number) {
  segment *again = &machine->segments[number];
  again->recomputed = true;
  machine->recomputing = number;
  machine->cursor = again->first;
  eager_tensor output = again->forward(machine, again->context, again->index, again->input);
  machine->recomputing = 0;
  machine->stopped = false;
  eager_drop(machine, &output);
}

static void hook_backward(eager *machine, const eager_node *node, eager_gradient incoming,
                          eager_gradient outgoing[EAGER_INPUTS]) {
  node->called(machine, node->context, (uint32_t)node->numbers[0]);
  outgoing[0] = eager_pass(machine, incoming, false);
}

void eager_on_gradient(eager *machine, eager_tensor *tensor, eager_hook *called, void *context,
                       uint32_t index) {
  eager_node *node = eager_record(machine, hook_backward, tensor, 1);
  if (!node) return;
  node->numbers[0] = index;
  node->called = called;
  node->context = context;
  eager_made(machine, node, tensor);
}

/* Adds a gradient to what has come to *held. */
static void accumulate(eager *machine, eager_gradient *held, eager_gradient more) {
  if (more.storage == 0) return;
  if (held->storage == 0) {
    *held = more;
    return;
  }
  if (!held->view && machine->storages[held->storage].holders == 1) {
    eager_release(machine, more.storage);
    return;
  }
  eager_gradient sum = eager_gradient_new(machine, machine->storages[held->storage].bytes, false);
  eager_release(machine, held->storage);
  eager_release(machine, more.storage);
  *held = sum;
}

static void release_saved(eager *machine, eager_node *node) {
  for (unsigned i = 0; i < node->saved_count; i++) eager_release(machine, node->saved[i]);
  node->saved_count = 0;
}

static void execute(eager *machine, uint32_t index) {
  eager_node *node = &machine->nodes[index];
  uint32_t number = node->segment;
  if (node->expected > 0 && !machine->segments[number].recomputed) recompute(machine, number);
  eager_gradient outgoing[EAGER_INPUTS] = {{0}};
  node->backward(machine, node, node->gradients[0], outgoing);
  /* What a checkpoint recomputed is handed out once, and dies inside of the operation. */
  if (node->checkpointed) release_saved(machine, node);
  for (unsigned i = 0; i < EAGER_PARTS; i++) {
    eager_release(machine, node->gradients[i].storage);
    node->gradients[i] = (eager_gradient){0};
  }
  release_saved(machine, node);
  if (number && index == machine->segments[number].first)
    eager_drop(machine, &machine->segments[number].input);
  for (unsigned i = 0; i < node->input_count; i++) {
    eager_tensor input = node->inputs[i];
    if (input.node) {
      accumulate(machine, &machine->nodes[input.node].gradients[input.part], outgoing[i]);
    } else if (input.parameter) {
      eager_gradient held = {machine->parameters[input.parameter].gradient, true};
      accumulate(machine, &held, outgoing[i]);
      machine->parameters[input.parameter].gradient = held.storage;
    } else {
      eager_release(machine, outgoing[i].storage);
    }
  }
}

static bool has_gradient(const eager_node *node) {
  for (unsigned i = 0; i < EAGER_PARTS; i++)
    if (node->gradients[i].storage) return true;
  return false;
}

void eager_backward(eager *machine, eager_tensor loss, uint64_t bytes, eager_hook *finish, void *context) {
  if (machine->status != TRACE_OK || loss.node == 0) return;
  machine->backward_running = true;
  eager_gradient first = eager_gradient_new(machine, bytes, false);
  eager_hold(machine, first.storage); /* the caller of backward holds it to the end */
  machine->nodes[loss.node].gradients[0] = first;
  for (uint32_t i = machine->node_count - 1; i > 0 && machine->status == TRACE_OK; i--) {
    if (has_gradient(&machine->nodes[i])) execute(machine, i);
    release_saved(machine, &machine->nodes[i]);
  }
  finish(machine, context, 0);
  eager_release(machine, first.storage);
  for (uint32_t i = 1; i < machine->segment_count; i++) eager_drop(machine, &machine->segments[i].input);
  machine->node_count = machine->segment_count = 1;
  machine->backward_running = false;
}

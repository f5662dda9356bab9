/* Runs tensor operations without their arithmetic, to see what they allocate, save and free. Internal to
 * workloads.
 *
 * Storage is counted by holders and freed when the last lets go. A tape remembers each operation that a
 * gradient has to go back through, with the storage that it saved. The backward goes along the tape from its
 * end; gradients that meet at one operation are added, in place where the first is held by nobody else and is
 * no view. A checkpointed segment of the tape keeps nothing but its input, and runs its forward again when
 * its backward first needs something saved, up to the last operation that saves. These are the rules of
 * PyTorch's autograd engine (torch/csrc/autograd: engine, input_buffer; torch/utils/checkpoint).
 *
 * The first failure (the sink's, no memory, more live than 2^63-1 bytes) sticks: from then on operations do
 * nothing, and eager_status tells it. Indices of storage, nodes and parameters begin at 1; 0 is none. */
#ifndef LAKEBED_WORKLOADS_EAGER_H
#define LAKEBED_WORKLOADS_EAGER_H

#include <stdbool.h>
#include <stdint.h>

#include "workloads/generate.h"

enum { EAGER_INPUTS = 3, EAGER_PARTS = 3, EAGER_SAVED = 7, EAGER_NUMBERS = 4 };

typedef struct eager eager;

/* What an operation gives out. Holds its storage until eager_drop. */
typedef struct eager_tensor {
  uint32_t storage;
  uint32_t node;      /* of the tape that made it; 0: its gradient is not wanted */
  uint32_t part;      /* of what the node made, where that is several tensors (eager_split) */
  uint32_t parameter; /* or it is this one */
} eager_tensor;

typedef struct eager_gradient {
  uint32_t storage;
  bool view; /* not the operation's own result but a view of it: never added to in place */
} eager_gradient;

typedef struct eager_node eager_node;

/* Allocates the gradients of the node's inputs that are wanted, outgoing[i] for input i; may pass on
 * incoming itself (eager_pass), which is that of part 0. What came in and what was saved is released
 * by the machine, afterwards. */
typedef void eager_backward_function(eager *machine, const eager_node *node, eager_gradient incoming,
                                     eager_gradient outgoing[EAGER_INPUTS]);

/* Called with the context and index that it was given with. */
typedef void eager_hook(eager *machine, void *context, uint32_t index);

struct eager_node {
  eager_backward_function *backward;
  eager_tensor inputs[EAGER_INPUTS]; /* node or parameter where the gradient goes; storage is not held */
  unsigned input_count;
  uint32_t saved[EAGER_SAVED];
  unsigned saved_count, expected; /* how many it has; of a checkpoint's: how many it will have */
  bool checkpointed;
  uint32_t segment; /* of a checkpoint; 0: none */
  uint64_t numbers[EAGER_NUMBERS];
  eager_hook *called; /* of eager_on_gradient */
  void *context;
  eager_gradient gradients[EAGER_PARTS]; /* what has come in so far */
};

typedef struct eager_parameter {
  uint64_t rows, columns; /* first dimension, all others */
  bool trainable;
  uint32_t module;   /* the first parameter of the module that it belongs to; they are consecutive */
  uint32_t gradient; /* storage held; 0: none yet */
} eager_parameter;

eager *eager_create(generate_sink sink, uint64_t element_bytes);
void eager_destroy(eager *machine); /* accepts NULL; frees nothing in the stream */
trace_status eager_status(const eager *machine, trace_error *error);
bool eager_failed(const eager *machine);
/* Bytes of an element of the model's precision. */
uint64_t eager_element(const eager *machine);
/* From now on nobody wants gradients: nothing is recorded or saved. */
void eager_without_gradients(eager *machine);
/* Does what runs now run in the backward's thread, recomputation included? */
bool eager_in_backward(const eager *machine);

/* Storage with one holder, by convention the caller; on a stream. */
uint32_t eager_allocate_on(eager *machine, uint64_t bytes, uint32_t stream);
uint32_t eager_allocate(eager *machine, uint64_t bytes); /* on stream 0 */
void eager_hold(eager *machine, uint32_t storage);
void eager_release(eager *machine, uint32_t storage); /* 0 is fine */
/* Allocates and frees at once: an operation's workspace. */
void eager_workspace(eager *machine, uint64_t bytes);

/* A tensor that no operation made. */
eager_tensor eager_new(eager *machine, uint64_t bytes);
eager_tensor eager_again(eager *machine, eager_tensor tensor); /* another holder of it */
void eager_drop(eager *machine, eager_tensor *tensor);         /* becomes none */
/* tensor = with, in this order: the new one exists before the old one goes. */
void eager_replace(eager *machine, eager_tensor *tensor, eager_tensor with);

/* module 0: the first of a module. */
uint32_t eager_add_parameter(eager *machine, uint64_t rows, uint64_t columns, bool trainable,
                             uint32_t module);
uint32_t eager_parameter_end(const eager *machine); /* one more than the last */
eager_parameter *eager_parameter_at(eager *machine, uint32_t parameter);
uint64_t eager_parameter_bytes(const eager *machine, uint32_t parameter);
eager_tensor eager_use(uint32_t parameter); /* as an input */
bool eager_wanted(const eager *machine, eager_tensor tensor);

/* Remembers an operation if one of its inputs wants a gradient; else NULL, which eager_save and eager_made
 * accept. Valid until the next record. What an operation saves of its inputs it saves before it
 * allocates: a recomputation ends with the last thing saved. */
eager_node *eager_record(eager *machine, eager_backward_function *backward, const eager_tensor *inputs,
                         unsigned count);
void eager_save(eager *machine, eager_node *node, uint32_t storage);
/* Completes the node: tensor is what it made. */
void eager_made(eager *machine, eager_node *node, eager_tensor *tensor);

/* incoming with another holder. */
eager_gradient eager_pass(eager *machine, eager_gradient incoming, bool view);
/* A new one. */
eager_gradient eager_gradient_new(eager *machine, uint64_t bytes, bool view);

/* Runs forward(machine, context, index, input) as a checkpoint; input is borrowed. */
typedef eager_tensor eager_forward_function(eager *machine, void *context, uint32_t index,
                                            eager_tensor input);
eager_tensor eager_checkpoint(eager *machine, eager_forward_function *forward, void *context, uint32_t index,
                              eager_tensor input);

/* Calls called(context, index) when the gradient of tensor has come together, before it goes on. */
void eager_on_gradient(eager *machine, eager_tensor *tensor, eager_hook *called, void *context,
                       uint32_t index);

/* Back from a loss, whose gradient is `bytes` long; parameters then have their gradients. finish(context, 0)
 * is called last, while the loss's gradient still lives. Empties the tape. */
void eager_backward(eager *machine, eager_tensor loss, uint64_t bytes, eager_hook *finish, void *context);

#endif

/* Operations of language models on the machine of eager.h: what PyTorch's allocate, save and free, forward
 * and backward. Internal to workloads.
 *
 * Inputs are borrowed; a tensor that is returned is the caller's to drop. Sizes are in elements unless they
 * are called bytes. Sources: aten/src/ATen/native (and /cuda, /cudnn) and
 * tools/autograd/derivatives.yaml of PyTorch 2.11; docs/workloads.md. */
#ifndef LAKEBED_WORKLOADS_EAGER_OPS_H
#define LAKEBED_WORKLOADS_EAGER_OPS_H

#include "workloads/eager.h"

/* What every device context keeps: cuBLAS asks for a workspace a thread, and cuBLASLt for another. */
typedef struct eager_handles {
  bool blas[2], lt[2]; /* [backward's thread] */
} eager_handles;

typedef struct eager_linear_shape {
  uint64_t rows; /* tokens */
  uint64_t in, out;
  bool folded; /* the input has three dimensions: gradients of it are views */
} eager_linear_shape;

/* input * weight^T + bias; bias 0: none. */
eager_tensor eager_linear(eager *machine, eager_handles *handles, eager_tensor input, uint32_t weight,
                          uint32_t bias, eager_linear_shape shape);
/* Bytes of the two workspaces of a sum over the rows of a matrix (0: none needed): partial sums and
 * semaphores. */
void eager_column_sum_workspaces(uint64_t rows, uint64_t columns, uint64_t *partial_bytes,
                                 uint64_t *semaphore_bytes);

eager_tensor eager_layer_norm(eager *machine, eager_tensor input, uint32_t weight, uint32_t bias,
                              uint64_t rows, uint64_t columns);
/* The norm of LLaMA as transformers writes it: in float, operation by operation. */
eager_tensor eager_root_mean_square_norm(eager *machine, eager_tensor input, uint32_t weight, uint64_t rows,
                                         uint64_t columns);

eager_tensor eager_dropout(eager *machine, eager_tensor input, uint64_t elements);
eager_tensor eager_add(eager *machine, eager_tensor left, eager_tensor right, uint64_t elements);
/* left * right; both are saved for each other. */
eager_tensor eager_multiply(eager *machine, eager_tensor left, eager_tensor right, uint64_t elements);
eager_tensor eager_scale(eager *machine, eager_tensor input, uint64_t elements);
eager_tensor eager_relu(eager *machine, eager_tensor input, uint64_t elements);
/* An activation in one kernel, of which the backward needs the input: GELU, SiLU. */
eager_tensor eager_activation(eager *machine, eager_tensor input, uint64_t elements);
/* GELU as GPT-2's code has it, by powers and tanh in eight operations. */
eager_tensor eager_gelu_by_parts(eager *machine, eager_tensor input, uint64_t elements);
/* The same storage under another shape: only the gradient becomes a view. Takes the place of *input. */
void eager_view(eager *machine, eager_tensor *input);
/* Splits a tensor into three views, whose gradients are put together to one of `elements`. Takes the place of
 * *input: each part holds its storage. */
void eager_split(eager *machine, eager_tensor *input, uint64_t elements, eager_tensor parts[3]);
/* A view whose gradient has to be copied into another layout. Takes the place of *input. */
void eager_transposed_view(eager *machine, eager_tensor *input, uint64_t elements);
/* A copy in another layout; its backward passes on. */
eager_tensor eager_copy(eager *machine, eager_tensor input, uint64_t elements);

typedef struct eager_attention_shape {
  uint64_t batch, heads, key_value_heads, tokens, head_size;
} eager_attention_shape;

/* Scaled dot product attention, cuDNN's kernel. */
eager_tensor eager_attention(eager *machine, eager_tensor query, eager_tensor key, eager_tensor value,
                             eager_attention_shape shape);
/* Rotates `rotated` of the head_size elements of each head. */
eager_tensor eager_rotary(eager *machine, eager_tensor input, uint64_t batch, uint64_t heads, uint64_t tokens,
                          uint64_t head_size, uint64_t rotated);

/* Rows of a table. indices is int64, one a token. */
eager_tensor eager_embedding(eager *machine, eager_tensor indices, uint32_t table, uint64_t tokens);
/* Mean cross entropy of logits, in float, with labels shifted by one: batch times tokens rows. The loss has 4
 * bytes. */
eager_tensor eager_cross_entropy(eager *machine, eager_tensor logits, uint64_t batch, uint64_t tokens,
                                 uint64_t classes);

#endif

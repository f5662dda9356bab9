/* Matrix products, embeddings and the loss. */
#include "workloads/eager_ops.h"

enum {
  BLAS_WORKSPACE = 32 << 20, /* cuBLAS on Hopper */
  LT_WORKSPACE = 1 << 20,
  MULTIPROCESSORS = 132, /* of an H200 */
  THREADS_A_MULTIPROCESSOR = 2048,
  REDUCE_THREADS = 512
};

static uint64_t smaller(uint64_t left, uint64_t right) { return left < right ? left : right; }
static uint64_t larger(uint64_t left, uint64_t right) { return left > right ? left : right; }
static uint64_t divide_up(uint64_t value, uint64_t by) { return (value + by - 1) / by; }

static uint64_t power_of_two_below(uint64_t value) {
  uint64_t power = 1;
  while (power * 2 <= value) power *= 2;
  return power;
}

/* How ATen's reduction splits a sum over rows (native/cuda/Reduce.cuh, setReduceConfig). */
void eager_column_sum_workspaces(uint64_t rows, uint64_t columns, uint64_t *partial_bytes,
                                 uint64_t *semaphore_bytes) {
  *partial_bytes = *semaphore_bytes = 0;
  uint64_t vector = columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1;
  uint64_t threads = REDUCE_THREADS / vector, across = columns / vector;
  uint64_t width = smaller(smaller(power_of_two_below(across), threads), 32);
  uint64_t height = smaller(smaller(power_of_two_below(rows), threads), threads / width);
  width = smaller(smaller(power_of_two_below(across), threads), threads / height);
  uint64_t values = rows;
  if (values < height * 16 && values < 256) return;
  values = divide_up(rows, height);
  uint64_t grid = divide_up(across, width);
  uint64_t target = MULTIPROCESSORS * (THREADS_A_MULTIPROCESSOR / (width * height));
  if (values < 256 || grid > target) return;
  uint64_t blocks = larger(smaller(divide_up(target, grid), divide_up(values, 16)), divide_up(values, 256));
  if (blocks <= 1) return;
  *partial_bytes = 4 * columns * blocks * width * vector;
  *semaphore_bytes = 4 * grid;
}

/* The workspaces of the thread that runs, once. */
static void take_handle(eager *machine, eager_handles *handles, bool lt) {
  bool thread = eager_in_backward(machine);
  if (!handles->blas[thread]) handles->blas[thread] = eager_allocate(machine, BLAS_WORKSPACE) != 0;
  if (lt && !handles->lt[thread]) handles->lt[thread] = eager_allocate(machine, LT_WORKSPACE) != 0;
}

/* numbers: rows, in, out, folded. Inputs: input, weight, bias. With a bias (addmm) the gradient of the input
 * comes first, without (mm) that of the weight. */
static void linear_backward(eager *machine, const eager_node *node, eager_gradient incoming,
                            eager_gradient outgoing[EAGER_INPUTS]) {
  (void)incoming;
  uint64_t rows = node->numbers[0], in = node->numbers[1], out = node->numbers[2];
  uint64_t element = eager_element(machine);
  bool has_bias = node->input_count == 3;
  for (unsigned turn = 0; turn < 2; turn++) {
    unsigned input = has_bias ? turn : 1 - turn;
    if (!eager_wanted(machine, node->inputs[input])) continue;
    outgoing[input] = input == 0 ? eager_gradient_new(machine, rows * in * element, node->numbers[3] != 0)
                                 : eager_gradient_new(machine, in * out * element, true);
    take_handle(machine, node->context, false);
  }
  if (!has_bias || !eager_wanted(machine, node->inputs[2])) return;
  outgoing[2] = eager_gradient_new(machine, out * element, true);
  uint64_t partial, semaphores;
  eager_column_sum_workspaces(rows, out, &partial, &semaphores);
  uint32_t sums = eager_allocate(machine, partial);
  eager_workspace(machine, semaphores);
  eager_release(machine, sums);
}

eager_tensor eager_linear(eager *machine, eager_handles *handles, eager_tensor input, uint32_t weight,
                          uint32_t bias, eager_linear_shape shape) {
  const eager_tensor inputs[] = {input, eager_use(weight), eager_use(bias)};
  eager_node *node = eager_record(machine, linear_backward, inputs, bias ? 3 : 2);
  if (node) {
    node->numbers[0] = shape.rows;
    node->numbers[1] = shape.in;
    node->numbers[2] = shape.out;
    node->numbers[3] = shape.folded;
    node->context = handles;
  }
  if (eager_wanted(machine, eager_use(weight))) eager_save(machine, node, input.storage);
  eager_tensor output = eager_new(machine, shape.rows * shape.out * eager_element(machine));
  take_handle(machine, handles, bias != 0);
  eager_made(machine, node, &output);
  return output;
}

/* numbers: tokens, rows and columns of the table. Few indices are summed in one kernel; many are sorted
 * first, and then runs of equal ones summed (native/cuda/Embedding.cu, EmbeddingBackwardKernel.cu, with CUB's
 * workspaces). */
static void embedding_backward(eager *machine, const eager_node *node, eager_gradient incoming,
                               eager_gradient outgoing[EAGER_INPUTS]) {
  enum { FEW = 3072, SORT_EXTRA = 16895, SCAN_BYTES = 1279, ROWS_A_THREAD = 10 };
  (void)incoming;
  uint64_t tokens = node->numbers[0], rows = node->numbers[1], columns = node->numbers[2];
  if (tokens <= FEW) {
    outgoing[1] = eager_gradient_new(machine, rows * columns * eager_element(machine), true);
    return;
  }
  uint64_t index_bytes = tokens * 8, runs = smaller(tokens, rows), parts = tokens / ROWS_A_THREAD + runs;
  uint32_t sorted = eager_allocate(machine, index_bytes), origins = eager_allocate(machine, index_bytes);
  uint32_t range = eager_allocate(machine, index_bytes);
  eager_workspace(machine, 2 * index_bytes + tokens / 4 + SORT_EXTRA);
  eager_release(machine, range);
  outgoing[1] = eager_gradient_new(machine, rows * columns * eager_element(machine), true);
  uint32_t offsets = eager_allocate(machine, index_bytes), count = eager_allocate(machine, 8);
  range = eager_allocate(machine, index_bytes);
  eager_workspace(machine, SCAN_BYTES);
  eager_release(machine, range);
  uint32_t lengths = eager_allocate(machine, runs * 8), starts = eager_allocate(machine, runs * 8);
  eager_workspace(machine, SCAN_BYTES);
  uint32_t total = eager_allocate(machine, 8), part_offsets = eager_allocate(machine, parts * 8);
  eager_workspace(machine, parts * columns * 4);
  eager_release(machine, part_offsets);
  eager_release(machine, total);
  eager_release(machine, starts);
  eager_release(machine, lengths);
  eager_release(machine, count);
  eager_release(machine, offsets);
  eager_release(machine, origins);
  eager_release(machine, sorted);
}

eager_tensor eager_embedding(eager *machine, eager_tensor indices, uint32_t table, uint64_t tokens) {
  const eager_parameter *shape = eager_parameter_at(machine, table);
  uint64_t rows = shape->rows, columns = shape->columns;
  eager_tensor output = eager_new(machine, tokens * columns * eager_element(machine));
  const eager_tensor inputs[] = {indices, eager_use(table)};
  eager_node *node = eager_record(machine, embedding_backward, inputs, 2);
  if (node) {
    node->numbers[0] = tokens;
    node->numbers[1] = rows;
    node->numbers[2] = columns;
  }
  eager_save(machine, node, indices.storage);
  eager_made(machine, node, &output);
  return output;
}

static void nll_backward(eager *machine, const eager_node *node, eager_gradient incoming,
                         eager_gradient outgoing[EAGER_INPUTS]) {
  (void)incoming;
  outgoing[0] = eager_gradient_new(machine, node->numbers[0], false);
}

/* Of numbers[0] bytes, also back from float to the model's precision. */
static void bytes_backward(eager *machine, const eager_node *node, eager_gradient incoming,
                           eager_gradient outgoing[EAGER_INPUTS]) {
  (void)incoming;
  outgoing[0] = eager_gradient_new(machine, node->numbers[0], true);
}

eager_tensor eager_cross_entropy(eager *machine, eager_tensor logits, uint64_t batch, uint64_t tokens,
                                 uint64_t classes) {
  uint64_t rows = batch * tokens, element = eager_element(machine);
  eager_tensor wide = eager_again(machine, logits);
  if (element != 4) {
    eager_replace(machine, &wide, eager_new(machine, rows * classes * 4));
    eager_node *cast = eager_record(machine, bytes_backward, &logits, 1);
    if (cast) cast->numbers[0] = rows * classes * element;
    eager_made(machine, cast, &wide);
  }
  uint32_t padded = eager_allocate(machine, batch * (tokens + 1) * 8);
  uint32_t labels = eager_allocate(machine, rows * 8);
  eager_tensor chances = eager_new(machine, rows * classes * 4);
  eager_node *soft = eager_record(machine, bytes_backward, &wide, 1);
  if (soft) soft->numbers[0] = rows * classes * 4;
  eager_save(machine, soft, chances.storage);
  eager_made(machine, soft, &chances);
  eager_tensor loss = eager_new(machine, 4);
  uint32_t weight = eager_allocate(machine, 4);
  eager_node *node = eager_record(machine, nll_backward, &chances, 1);
  if (node) node->numbers[0] = rows * classes * 4;
  eager_save(machine, node, labels);
  eager_save(machine, node, weight);
  eager_made(machine, node, &loss);
  eager_drop(machine, &wide);
  eager_release(machine, padded);
  eager_release(machine, labels);
  eager_drop(machine, &chances);
  eager_release(machine, weight);
  return loss;
}

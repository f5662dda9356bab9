#include "workloads/eager_ops.h"

#include <stddef.h>

static eager_gradient wanted_new(eager *machine, const eager_node *node, unsigned input, uint64_t elements) {
  if (!eager_wanted(machine, node->inputs[input])) return (eager_gradient){0};
  return eager_gradient_new(machine, elements * eager_element(machine), false);
}

static eager_gradient wanted_pass(eager *machine, const eager_node *node, unsigned input,
                                  eager_gradient incoming, bool view) {
  if (!eager_wanted(machine, node->inputs[input])) return (eager_gradient){0};
  return eager_pass(machine, incoming, view);
}

/* One input, one new gradient of numbers[0] elements. */
static void new_gradient(eager *machine, const eager_node *node, eager_gradient incoming,
                         eager_gradient outgoing[EAGER_INPUTS]) {
  (void)incoming;
  outgoing[0] = wanted_new(machine, node, 0, node->numbers[0]);
}

static void pass_gradient(eager *machine, const eager_node *node, eager_gradient incoming,
                          eager_gradient outgoing[EAGER_INPUTS]) {
  for (unsigned i = 0; i < node->input_count; i++)
    outgoing[i] = wanted_pass(machine, node, i, incoming, node->numbers[0] != 0);
}

/* The output of an operation, and its node with numbers[0]. */
static eager_tensor single(eager *machine, eager_backward_function *backward, eager_tensor input,
                           uint64_t elements, bool save_input, bool save_output) {
  eager_node *node = eager_record(machine, backward, &input, 1);
  if (node) node->numbers[0] = elements;
  if (save_input) eager_save(machine, node, input.storage);
  eager_tensor output = eager_new(machine, elements * eager_element(machine));
  if (save_output) eager_save(machine, node, output.storage);
  eager_made(machine, node, &output);
  return output;
}

eager_tensor eager_scale(eager *machine, eager_tensor input, uint64_t elements) {
  return single(machine, new_gradient, input, elements, false, false);
}

eager_tensor eager_relu(eager *machine, eager_tensor input, uint64_t elements) {
  return single(machine, new_gradient, input, elements, false, true);
}

eager_tensor eager_activation(eager *machine, eager_tensor input, uint64_t elements) {
  return single(machine, new_gradient, input, elements, true, false);
}

eager_tensor eager_copy(eager *machine, eager_tensor input, uint64_t elements) {
  eager_tensor output = eager_new(machine, elements * eager_element(machine));
  eager_node *node = eager_record(machine, pass_gradient, &input, 1);
  if (node) node->numbers[0] = 1; /* under the shape that it had: a view */
  eager_made(machine, node, &output);
  return output;
}

void eager_view(eager *machine, eager_tensor *input) {
  eager_node *node = eager_record(machine, pass_gradient, input, 1);
  if (node) node->numbers[0] = 1;
  eager_made(machine, node, input);
}

void eager_transposed_view(eager *machine, eager_tensor *input, uint64_t elements) {
  eager_node *node = eager_record(machine, new_gradient, input, 1);
  if (node) node->numbers[0] = elements;
  eager_made(machine, node, input);
}

void eager_split(eager *machine, eager_tensor *input, uint64_t elements, eager_tensor parts[3]) {
  eager_node *node = eager_record(machine, new_gradient, input, 1);
  if (node) node->numbers[0] = elements;
  eager_made(machine, node, input);
  for (uint32_t i = 0; i < 3; i++) {
    parts[i] = i == 0 ? *input : eager_again(machine, *input);
    parts[i].part = i;
  }
  *input = (eager_tensor){0};
}

eager_tensor eager_dropout(eager *machine, eager_tensor input, uint64_t elements) {
  uint32_t mask = eager_allocate(machine, elements);
  eager_tensor output = eager_new(machine, elements * eager_element(machine));
  eager_node *node = eager_record(machine, new_gradient, &input, 1);
  if (node) node->numbers[0] = elements;
  eager_save(machine, node, mask);
  eager_made(machine, node, &output);
  eager_release(machine, mask);
  return output;
}

eager_tensor eager_add(eager *machine, eager_tensor left, eager_tensor right, uint64_t elements) {
  eager_tensor output = eager_new(machine, elements * eager_element(machine));
  const eager_tensor inputs[] = {left, right};
  eager_node *node = eager_record(machine, pass_gradient, inputs, 2);
  eager_made(machine, node, &output);
  return output;
}

static void multiply_backward(eager *machine, const eager_node *node, eager_gradient incoming,
                              eager_gradient outgoing[EAGER_INPUTS]) {
  (void)incoming;
  for (unsigned i = 0; i < 2; i++) outgoing[i] = wanted_new(machine, node, i, node->numbers[0]);
}

eager_tensor eager_multiply(eager *machine, eager_tensor left, eager_tensor right, uint64_t elements) {
  const eager_tensor inputs[] = {left, right};
  eager_node *node = eager_record(machine, multiply_backward, inputs, 2);
  if (node) node->numbers[0] = elements;
  if (eager_wanted(machine, right)) eager_save(machine, node, left.storage);
  if (eager_wanted(machine, left)) eager_save(machine, node, right.storage);
  eager_tensor output = eager_new(machine, elements * eager_element(machine));
  eager_made(machine, node, &output);
  return output;
}

/* numbers: elements. d(x^3) = grad * (3 * x^2): two temporaries. */
static void cube_backward(eager *machine, const eager_node *node, eager_gradient incoming,
                          eager_gradient outgoing[EAGER_INPUTS]) {
  (void)incoming;
  uint64_t bytes = node->numbers[0] * eager_element(machine);
  uint32_t square = eager_allocate(machine, bytes), factor = eager_allocate(machine, bytes);
  outgoing[0] = wanted_new(machine, node, 0, node->numbers[0]);
  eager_release(machine, factor);
  eager_release(machine, square);
}

eager_tensor eager_gelu_by_parts(eager *machine, eager_tensor input, uint64_t elements) {
  /* 0.5 x (1 + tanh(a (x + b x^3))) */
  eager_tensor half = eager_scale(machine, input, elements);
  eager_tensor inner = single(machine, cube_backward, input, elements, true, false);
  eager_replace(machine, &inner, eager_scale(machine, inner, elements));
  eager_replace(machine, &inner, eager_add(machine, input, inner, elements));
  eager_replace(machine, &inner, eager_scale(machine, inner, elements));
  eager_replace(machine, &inner, eager_relu(machine, inner, elements)); /* tanh, which saves its result too */
  const eager_tensor tanh = inner;
  eager_tensor outer = eager_new(machine, elements * eager_element(machine)); /* 1 + tanh */
  eager_node *node = eager_record(machine, pass_gradient, &tanh, 1);
  eager_made(machine, node, &outer);
  eager_drop(machine, &inner);
  eager_tensor output = eager_multiply(machine, half, outer, elements);
  eager_drop(machine, &half);
  eager_drop(machine, &outer);
  return output;
}

static void layer_norm_backward(eager *machine, const eager_node *node, eager_gradient incoming,
                                eager_gradient outgoing[EAGER_INPUTS]) {
  (void)incoming;
  outgoing[0] = wanted_new(machine, node, 0, node->numbers[0] * node->numbers[1]);
  outgoing[1] = wanted_new(machine, node, 1, node->numbers[1]);
  outgoing[2] = wanted_new(machine, node, 2, node->numbers[1]);
}

eager_tensor eager_layer_norm(eager *machine, eager_tensor input, uint32_t weight, uint32_t bias,
                              uint64_t rows, uint64_t columns) {
  const eager_tensor inputs[] = {input, eager_use(weight), eager_use(bias)};
  eager_node *node = eager_record(machine, layer_norm_backward, inputs, 3);
  if (node) {
    node->numbers[0] = rows;
    node->numbers[1] = columns;
  }
  eager_save(machine, node, input.storage);
  eager_tensor output = eager_new(machine, rows * columns * eager_element(machine));
  uint32_t mean = eager_allocate(machine, rows * 4), deviation = eager_allocate(machine, rows * 4);
  eager_save(machine, node, mean);
  eager_save(machine, node, deviation);
  eager_made(machine, node, &output);
  eager_release(machine, mean);
  eager_release(machine, deviation);
  return output;
}

/* Gradient of the input, of which numbers[0] elements are float, by way of temporaries. */
static void root_mean_square_backward(eager *machine, const eager_node *node, eager_gradient incoming,
                                      eager_gradient outgoing[EAGER_INPUTS]) {
  uint64_t elements = node->numbers[0] * node->numbers[1];
  (void)incoming;
  if (eager_wanted(machine, node->inputs[1])) {
    /* grad * normalized, summed over the rows */
    uint32_t product = eager_allocate(machine, elements * eager_element(machine));
    outgoing[1] = eager_gradient_new(machine, node->numbers[1] * eager_element(machine), false);
    uint64_t partial, semaphores;
    eager_column_sum_workspaces(node->numbers[0], node->numbers[1], &partial, &semaphores);
    uint32_t sums = eager_allocate(machine, partial);
    eager_workspace(machine, semaphores);
    eager_release(machine, sums);
    eager_release(machine, product);
  }
  if (!eager_wanted(machine, node->inputs[0])) return;
  uint32_t scaled = eager_allocate(machine, elements * eager_element(machine));
  uint32_t wide = eager_allocate(machine, elements * 4);
  eager_release(machine, scaled);
  uint32_t direct = eager_allocate(machine, elements * 4);  /* wide * inverse */
  uint32_t product = eager_allocate(machine, elements * 4); /* wide * input */
  uint32_t row = eager_allocate(machine, node->numbers[0] * 4);
  eager_release(machine, product);
  eager_release(machine, wide);
  uint32_t square = eager_allocate(machine, elements * 4); /* of x^2: the row's, by x */
  eager_release(machine, row);
  eager_workspace(machine, elements * 4);
  eager_release(machine, square);
  outgoing[0] = eager_gradient_new(machine, elements * eager_element(machine), false);
  eager_release(machine, direct);
}

eager_tensor eager_root_mean_square_norm(eager *machine, eager_tensor input, uint32_t weight, uint64_t rows,
                                         uint64_t columns) {
  uint64_t elements = rows * columns, element = eager_element(machine);
  uint32_t wide = input.storage;
  if (element == 4) {
    eager_hold(machine, wide);
  } else {
    wide = eager_allocate(machine, elements * 4);
  }
  uint32_t square = eager_allocate(machine, elements * 4);
  uint32_t mean = eager_allocate(machine, rows * 4);
  eager_release(machine, square);
  uint32_t shifted = eager_allocate(machine, rows * 4);
  uint32_t inverse = eager_allocate(machine, rows * 4);
  eager_release(machine, shifted);
  uint32_t normalized = eager_allocate(machine, elements * 4);
  eager_release(machine, mean);
  if (element != 4) {
    uint32_t narrow = eager_allocate(machine, elements * element);
    eager_release(machine, normalized);
    normalized = narrow;
  }
  eager_tensor output = eager_new(machine, elements * element);
  const eager_tensor inputs[] = {input, eager_use(weight)};
  eager_node *node = eager_record(machine, root_mean_square_backward, inputs, 2);
  if (node) {
    node->numbers[0] = rows;
    node->numbers[1] = columns;
  }
  if (eager_wanted(machine, input)) {
    eager_save(machine, node, wide);
    eager_save(machine, node, inverse);
  }
  if (eager_wanted(machine, eager_use(weight))) eager_save(machine, node, normalized);
  eager_made(machine, node, &output);
  eager_release(machine, wide);
  eager_release(machine, inverse);
  eager_release(machine, normalized);
  return output;
}

/* Attention and rotary positions. */
#include "workloads/eager_ops.h"

enum { WORKSPACE = 256 /* bytes that cuDNN always asks for */ };

/* numbers: elements of q, of k and v each, workspace bytes. */
static void attention_backward(eager *machine, const eager_node *node, eager_gradient incoming,
                               eager_gradient outgoing[EAGER_INPUTS]) {
  (void)incoming;
  uint64_t element = eager_element(machine);
  for (unsigned i = 0; i < 3; i++)
    outgoing[i] = eager_gradient_new(machine, node->numbers[i > 0] * element, false);
  eager_workspace(machine, node->numbers[2]);
}

eager_tensor eager_attention(eager *machine, eager_tensor query, eager_tensor key, eager_tensor value,
                             eager_attention_shape shape) {
  uint64_t rows = shape.batch * shape.heads * shape.tokens;
  uint32_t seed = eager_allocate(machine, 8), offset = eager_allocate(machine, 8);
  eager_tensor output = eager_new(machine, rows * shape.head_size * eager_element(machine));
  uint32_t sums = eager_allocate(machine, rows * 4);
  eager_workspace(machine, WORKSPACE);
  const eager_tensor inputs[] = {query, key, value};
  eager_node *node = eager_record(machine, attention_backward, inputs, 3);
  if (node) {
    node->numbers[0] = rows * shape.head_size;
    node->numbers[1] = shape.batch * shape.key_value_heads * shape.tokens * shape.head_size;
    node->numbers[2] = rows * (shape.head_size + 1) * 4 + WORKSPACE;
  }
  eager_save(machine, node, seed);
  eager_save(machine, node, offset);
  eager_save(machine, node, output.storage);
  eager_save(machine, node, sums);
  eager_save(machine, node, query.storage);
  eager_save(machine, node, key.storage);
  eager_save(machine, node, value.storage);
  eager_made(machine, node, &output);
  eager_release(machine, sums);
  eager_release(machine, seed);
  eager_release(machine, offset);
  return output;
}

/* numbers: elements of the tensor, of its rotated part. As transformers writes it: x cos + rotate_half(x)
 * sin, and the rest put behind it. */
static void rotary_backward(eager *machine, const eager_node *node, eager_gradient incoming,
                            eager_gradient outgoing[EAGER_INPUTS]) {
  (void)incoming;
  uint64_t whole = node->numbers[0] * eager_element(machine),
           part = node->numbers[1] * eager_element(machine);
  uint32_t by_sine = eager_allocate(machine, part), half = eager_allocate(machine, part / 2);
  uint32_t first = eager_allocate(machine, part);
  eager_release(machine, half);
  uint32_t second = eager_allocate(machine, part);
  eager_release(machine, by_sine);
  eager_release(machine, second);
  eager_workspace(machine, part); /* by the cosine, added to the first */
  if (whole == part) {
    outgoing[0] = (eager_gradient){first, false};
    return;
  }
  outgoing[0] = eager_gradient_new(machine, whole, false);
  uint32_t padded = eager_allocate(machine, whole);
  eager_release(machine, first);
  eager_release(machine, padded);
}

eager_tensor eager_rotary(eager *machine, eager_tensor input, uint64_t batch, uint64_t heads, uint64_t tokens,
                          uint64_t head_size, uint64_t rotated) {
  uint64_t rows = batch * heads * tokens, part = rows * rotated * eager_element(machine);
  uint32_t by_cosine = eager_allocate(machine, part), half = eager_allocate(machine, part / 2);
  uint32_t turned = eager_allocate(machine, part);
  eager_release(machine, half);
  uint32_t by_sine = eager_allocate(machine, part);
  eager_release(machine, turned);
  eager_tensor output = eager_new(machine, part);
  eager_release(machine, by_cosine);
  eager_release(machine, by_sine);
  if (rotated < head_size)
    eager_replace(machine, &output, eager_new(machine, rows * head_size * eager_element(machine)));
  eager_node *node = eager_record(machine, rotary_backward, &input, 1);
  if (node) {
    node->numbers[0] = rows * head_size;
    node->numbers[1] = rows * rotated;
  }
  eager_made(machine, node, &output);
  return output;
}

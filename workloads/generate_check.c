#include "workloads/generate_check.h"

#include <inttypes.h>

#include "workloads/failure.h"

trace_status generate_check_ranges(const generate_check_range *ranges, size_t count, trace_error *error) {
  for (size_t i = 0; i < count; i++) {
    if (ranges[i].value >= ranges[i].least && ranges[i].value <= ranges[i].most) continue;
    return trace_fail(error, TRACE_MALFORMED, "trace generate",
                      "%s is %" PRIu64 "; expected %" PRIu64 " to %" PRIu64, ranges[i].what, ranges[i].value,
                      ranges[i].least, ranges[i].most);
  }
  return TRACE_OK;
}

static uint64_t larger(uint64_t left, uint64_t right) { return left > right ? left : right; }

trace_status generate_check_model(const generate_model *model, uint64_t tokens, uint64_t batch,
                                  trace_error *error) {
  const generate_check_range ranges[] = {
      {"hidden", model->hidden, 1, 1 << 20},
      {"layers", model->layers, 1, 4096},
      {"heads", model->heads, 1, 1 << 16},
      {"key and value heads", model->key_value_heads, 1, model->heads},
      {"the size of a head", model->head_size, 1, 1 << 16},
      {"ffn", model->ffn, 1, 1 << 22},
      {"vocabulary", model->vocabulary, 1, 1 << 24},
      {"positions", model->positions, 0, 1 << 24},
      {"the rotated part of a head", model->rotary_size, 0, model->head_size},
  };
  trace_status status = generate_check_ranges(ranges, sizeof ranges / sizeof *ranges, error);
  if (status != TRACE_OK) return status;
  if (model->heads % model->key_value_heads != 0)
    return trace_fail(error, TRACE_MALFORMED, "trace generate",
                      "%u heads do not share %u key and value heads evenly", model->heads,
                      model->key_value_heads);
  /* OPT's first two rows are for padding. */
  uint32_t places =
      model->family == GENERATE_OPT && model->positions > 2 ? model->positions - 2 : model->positions;
  if (places > 0 && tokens > places)
    return trace_fail(error, TRACE_MALFORMED, "trace generate",
                      "a sequence of %" PRIu64 " tokens is longer than the %u positions of the model", tokens,
                      places);
  uint64_t widest = larger((uint64_t)model->heads * model->head_size * 3, 2 * (uint64_t)model->ffn);
  widest = larger(larger(widest, model->vocabulary), model->hidden);
  uint64_t elements;
  if (__builtin_mul_overflow(batch * tokens, widest, &elements) || elements > UINT64_C(1) << 57)
    return trace_fail(error, TRACE_MALFORMED, "trace generate",
                      "one activation of %" PRIu64 " sequences of %" PRIu64
                      " tokens would have more than 2^57 elements",
                      batch, tokens);
  return TRACE_OK;
}

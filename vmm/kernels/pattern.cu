/* The kernels behind fill and verify: vmm_pattern_word of vmm/driver.h at every 8-byte word,
 * the low bytes of the next one at the tail. */

typedef unsigned long long u64;

static __device__ u64 pattern_word(u64 pattern, u64 index) {
  return (pattern ^ (index * 0x9E3779B97F4A7C15ull)) + index;
}

static __device__ u64 first_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ u64 index_step() { return (u64)gridDim.x * blockDim.x; }

/* The length bytes at an address of any alignment, as the low bytes of a word. */
static __device__ u64 read_bytes(const unsigned char *bytes, u64 length) {
  u64 word = 0;
  for (u64 i = 0; i < length; i++) word |= (u64)bytes[i] << (8 * i);
  return word;
}

static __device__ void write_bytes(unsigned char *bytes, u64 length, u64 word) {
  for (u64 i = 0; i < length; i++) bytes[i] = (unsigned char)(word >> (8 * i));
}

extern "C" __global__ void pattern_fill(unsigned char *bytes, u64 size, u64 pattern) {
  u64 whole = size / 8;
  if ((u64)bytes % 8 == 0) {
    u64 *words = (u64 *)bytes;
    for (u64 i = first_index(); i < whole; i += index_step()) words[i] = pattern_word(pattern, i);
  } else {
    for (u64 i = first_index(); i < whole; i += index_step()) {
      write_bytes(bytes + 8 * i, 8, pattern_word(pattern, i));
    }
  }
  if (first_index() == 0) write_bytes(bytes + 8 * whole, size % 8, pattern_word(pattern, whole));
}

/* findings[0] += words that differ; findings[1] = the least index of them. */
extern "C" __global__ void pattern_verify(const unsigned char *bytes, u64 size, u64 pattern, u64 *findings) {
  u64 whole = size / 8, wrong = 0, first = ~0ull;
  bool aligned = (u64)bytes % 8 == 0;
  const u64 *words = (const u64 *)bytes;
  for (u64 i = first_index(); i < whole; i += index_step()) {
    u64 found = aligned ? words[i] : read_bytes(bytes + 8 * i, 8);
    if (found == pattern_word(pattern, i)) continue;
    wrong++;
    if (first == ~0ull) first = i;
  }
  u64 tail = size % 8;
  if (tail != 0 && first_index() == 0) {
    u64 mask = (1ull << (8 * tail)) - 1;
    if (read_bytes(bytes + 8 * whole, tail) != (pattern_word(pattern, whole) & mask)) {
      wrong++;
      if (first == ~0ull) first = whole;
    }
  }
  if (wrong == 0) return;
  atomicAdd(&findings[0], wrong);
  atomicMin(&findings[1], first);
}

/* findings[2] = the word at findings[1]. One thread. */
extern "C" __global__ void pattern_read(const unsigned char *bytes, u64 size, u64 *findings) {
  u64 offset = 8 * findings[1];
  findings[2] = read_bytes(bytes + offset, size - offset < 8 ? size - offset : 8);
}

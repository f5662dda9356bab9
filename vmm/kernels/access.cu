// What bench access runs: bandwidth over a buffer whose content is known, and words that two
// kernels change at once through two addresses of the same memory.

#include <stdint.h>

// Word i of a buffer is seed + i * STEP: a sum over all of them has a closed form.
static const uint64_t STEP = 0x9E3779B97F4A7C15ull;

struct report {
  unsigned long long wrong;  // words
  unsigned long long first;  // index of the first of them
};

static __device__ void count_wrong(report *found, uint64_t index) {
  atomicAdd(&found->wrong, 1ull);
  atomicMin(&found->first, (unsigned long long)index);
}

static __device__ uint64_t first_index() { return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; }

static __device__ uint64_t stride() { return (uint64_t)gridDim.x * blockDim.x; }

static __device__ ulonglong2 pair_at(uint64_t index, uint64_t seed) {
  const uint64_t first = seed + 2 * index * STEP;
  return make_ulonglong2(first, first + STEP);
}

extern "C" __global__ void access_write(ulonglong2 *data, uint64_t pairs, uint64_t seed) {
  for (uint64_t i = first_index(); i < pairs; i += stride()) data[i] = pair_at(i, seed);
}

extern "C" __global__ void access_check(const ulonglong2 *data, uint64_t pairs, uint64_t seed, report *found) {
  for (uint64_t i = first_index(); i < pairs; i += stride()) {
    const ulonglong2 is = data[i], should = pair_at(i, seed);
    if (is.x != should.x) count_wrong(found, 2 * i);
    if (is.y != should.y) count_wrong(found, 2 * i + 1);
  }
}

// Adds all words up.
extern "C" __global__ void access_read(const ulonglong2 *data, uint64_t pairs, unsigned long long *sum) {
  uint64_t own = 0;
  const uint64_t step = stride();
  uint64_t i = first_index();
  // Four loads under way at once.
  for (; i + 3 * step < pairs; i += 4 * step) {
    const ulonglong2 a = data[i], b = data[i + step], c = data[i + 2 * step], d = data[i + 3 * step];
    own += a.x + a.y + b.x + b.y + c.x + c.y + d.x + d.y;
  }
  for (; i < pairs; i += step) own += data[i].x + data[i].y;
  for (int distance = 16; distance > 0; distance /= 2) own += __shfl_down_sync(~0u, own, distance);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, own);
}

extern "C" __global__ void access_copy(ulonglong2 *to, const ulonglong2 *from, uint64_t pairs) {
  const uint64_t step = stride();
  uint64_t i = first_index();
  for (; i + 3 * step < pairs; i += 4 * step) {
    const ulonglong2 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a;
    to[i + step] = b;
    to[i + 2 * step] = c;
    to[i + 3 * step] = d;
  }
  for (; i < pairs; i += step) to[i] = from[i];
}

static __device__ uint64_t scramble(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

// Every thread reads words at places that have nothing to do with each other. The high half of the product
// maps a random word evenly onto the buffer.
extern "C" __global__ void access_random(const uint64_t *data, uint64_t words, uint64_t seed, uint64_t salt,
                                         uint64_t reads, report *found) {
  const uint64_t self = first_index();
  for (uint64_t i = 0; i < reads; i += 4) {
    uint64_t places[4], values[4];
    for (int j = 0; j < 4; j++) {
      places[j] = __umul64hi(scramble(salt + (self * reads + i + j) * STEP), words);
      values[j] = data[places[j]];
    }
    for (int j = 0; j < 4; j++) {
      if (values[j] != seed + places[j] * STEP) count_wrong(found, places[j]);
    }
  }
}

// ---- aliases ----

static __device__ uint32_t begin_word(uint64_t index) { return (uint32_t)scramble((index + 1) * STEP); }

// One to one: a step that is lost or done on an old value shows in all later ones.
static __device__ uint32_t next_word(uint32_t word) { return word * 1664525u + 1013904223u; }

static __device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void alias_begin(uint32_t *data, uint64_t words) {
  for (uint64_t i = first_index(); i < words; i += stride()) data[i] = begin_word(i);
}

struct gate {
  unsigned int arrived[2];
  unsigned long long begin[2], end[2];  // of the two kernels' work, nanoseconds
};

// Changes every word (parity 2), or those of every other block of block_words words (0: the first, third, ...;
// 1: the others), rounds times. With a gate two such kernels wait for each other, a second at most.
extern "C" __global__ void alias_modify(uint32_t *data, uint64_t words, uint64_t block_words, uint32_t parity,
                                        uint32_t rounds, gate *both) {
  if (both) {
    if (threadIdx.x == 0) {
      const uint64_t arrived = nanoseconds();
      if (blockIdx.x == 0) atomicExch(&both->arrived[parity], 1u);
      while (atomicAdd(&both->arrived[1 - parity], 0u) == 0 && nanoseconds() - arrived < 1000000000ull) {
      }
      atomicMin(&both->begin[parity], (unsigned long long)nanoseconds());
    }
    __syncthreads();
  }
  for (uint32_t round = 0; round < rounds; round++) {
    if (parity == 2) {
      for (uint64_t i = first_index(); i < words; i += stride()) data[i] = next_word(data[i]);
      continue;
    }
    // The i-th word of all blocks of this parity.
    for (uint64_t i = first_index(); i < words / 2; i += stride()) {
      const uint64_t place = (2 * (i / block_words) + parity) * block_words + i % block_words;
      data[place] = next_word(data[place]);
    }
  }
  if (both) {
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(&both->end[parity], (unsigned long long)nanoseconds());
  }
}

// Every word must have been changed steps times.
extern "C" __global__ void alias_check(const uint32_t *data, uint64_t words, uint32_t steps, report *found) {
  for (uint64_t i = first_index(); i < words; i += stride()) {
    uint32_t should = begin_word(i);
    for (uint32_t step = 0; step < steps; step++) should = next_word(should);
    if (data[i] != should) count_wrong(found, i);
  }
}

/* Allocator policies under PyTorch: what liblakebed_torch.so exports.
 *
 * The upper part is what PyTorch's CUDAPluggableAllocator calls (docs/pytorch.md), the lower part is for the
 * Python package and for tests. Every device of the process gets a policy of its own at its first request,
 * made from one spec. All functions are thread-safe; one lock a device is held while its policy works.
 *
 * No function ends the process or prints, with one exception: when a device is opened, its policy and
 * the effective options are written to standard error, one line, unless LAKEBED_QUIET is set.
 *
 * Needs the C library and, at run time, libcuda. Names of C++ are looked up where libtorch is loaded. */
#ifndef LAKEBED_HARNESS_TORCH_LAKEBED_TORCH_H
#define LAKEBED_HARNESS_TORCH_LAKEBED_TORCH_H

#include <stddef.h>
#include <stdint.h>

/* ---- for PyTorch; stream is a cudaStream_t ---- */

/* Size 0 gives NULL. Out of memory is thrown as c10::OutOfMemoryError, any other failure as c10::Error, so
 * that Python sees torch.OutOfMemoryError and RuntimeError. Where no libtorch is loaded nothing is thrown:
 * then NULL, and lakebed_torch_failure tells. */
void *lakebed_torch_malloc(size_t size, int device, void *stream);
/* Never throws. A pointer that no policy knows, one of a parent process, and any after the driver has shut
 * down are counted and let be. */
void lakebed_torch_free(void *pointer, size_t size, int device, void *stream);
/* For torch.cuda.MemPool: NULL when there is no memory. */
void *lakebed_torch_segment_malloc(size_t size, int device, void *stream);
void lakebed_torch_init(int device_count);
/* empty_cache: every policy returns what it does not use. */
void lakebed_torch_empty_cache(void);
/* The policy may hold so much of the device: at 0 nothing, at 1 there is no limit, as in PyTorch. Throws for
 * a fraction outside 0 to 1, and when the policy cannot change its limit any more. */
void lakebed_torch_memory_fraction(double fraction, int device);
void lakebed_torch_record_stream(void *pointer, void *stream);

typedef struct lakebed_torch_pool {
  uint64_t first, second;
} lakebed_torch_pool;

/* A CUDA graph is to be captured, or a MemPool used: throws c10::Error, for memory of a captured graph
 * would be given out again while the graph still uses it. filter is a std::function, not called. */
void lakebed_torch_begin_pool(int device, lakebed_torch_pool pool, void *filter);

/* ---- control; 0 is success, else a CUresult, and message (always terminated) says what is wrong ---- */

/* Chooses the policy of devices that are opened from now on: a spec as in './lakebed replay --policy', and
 * the device: "cuda", or "sim[:PROFILE[:CAPACITY]]" for tests. NULL: from the environment, LAKEBED_POLICY and
 * LAKEBED_TORCH_DEVICE, else "aliasheap" and "cuda", as is done without this call.
 * NOT_PERMITTED once a device is open. */
int lakebed_torch_configure(const char *policy, const char *device, char *message, size_t message_size);
/* "aliasheap: handle_limit=32MiB, ..." as configured. */
int lakebed_torch_describe(char *text, size_t text_size);
/* Everything that is known of a device's policy, as a JSON object (docs/pytorch.md). Returns the bytes that
 * the text needs without its end; if that is not below text_size, nothing was written. 0: the device is not
 * open. */
size_t lakebed_torch_statistics(int device, char *text, size_t text_size);
/* Peaks begin anew at the current values. */
void lakebed_torch_reset_peaks(int device);
/* Writes every request of a device from now on to a trace (docs/formats.md); what is live comes first. A
 * device that is not open is recorded from its opening on; -1 is the first that is open or will be. A path
 * that ends with .xz, .gz or .zst is compressed. */
int lakebed_torch_record_begin(const char *path, int device, char *message, size_t message_size);
/* Completes the file; until then it does not have its name. Done at exit for recordings still going on. */
int lakebed_torch_record_end(int device, char *message, size_t message_size);
/* The invariants of the pool layer and the policy. */
int lakebed_torch_check(int device, char *message, size_t message_size);
/* The last failure of an allocation in this thread, empty if there was none. */
const char *lakebed_torch_failure(void);
/* Gives everything back, live allocations too, and forgets the configuration. For tests: nothing may use the
 * memory any more, no other thread may be in a call. */
void lakebed_torch_close(void);

#endif

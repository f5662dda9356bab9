/* One policy for many threads: a policy, a lock, and the calls of policy.h under it.
 *
 * The driver is called under the lock too, so that nobody else may use the policy's driver object
 * while it is shared, except from within shared_policy_with.
 *
 * A process that was forked has neither the CUDA context nor the threads of its parent. In it every
 * call returns NOT_INITIALIZED at once (as CUDA itself does): it takes no lock, which a thread that is
 * not there might hold, and touches neither the policy nor the device. This is known of fork(), not
 * of a child made by a bare clone(); between vfork() and exec() nothing may be called.
 *
 * At exit nothing has to be done: memory goes with the process. Where threads may still free blocks
 * when the device is gone, call shared_policy_close first.
 *
 * Every call costs what policy.h says and an uncontended lock, some 20 ns. */
#ifndef LAKEBED_POLICIES_SHARED_POLICY_H
#define LAKEBED_POLICIES_SHARED_POLICY_H

#include "policies/policy.h"

typedef struct shared_policy shared_policy;

/* Takes subject over, but not its driver, which outlives it. On failure subject is the caller's still:
 * OUT_OF_MEMORY, or OPERATING_SYSTEM when the process cannot be told of forks. */
vmm_status shared_policy_create(policy *subject, shared_policy **created);
/* Destroys the policy, which gives everything back, live blocks too. No other thread may be in a call or
 * begin one. In a forked process nothing is done. Accepts NULL. */
void shared_policy_destroy(shared_policy *self);

/* As in policy.h. While suspended, alloc is NOT_PERMITTED; after close, alloc and trim are DEINITIALIZED and
 * the others SUCCESS, with nothing done. Size 0 and address 0 are SUCCESS in any state but a forked process.
 */
vmm_status shared_policy_alloc(shared_policy *self, uint64_t size, vmm_stream stream, vmm_address *address);
vmm_status shared_policy_free(shared_policy *self, vmm_address address);
vmm_status shared_policy_record_stream(shared_policy *self, vmm_address address, vmm_stream stream);
vmm_status shared_policy_trim(shared_policy *self);
vmm_status shared_policy_set_limit(shared_policy *self, uint64_t limit);

/* Gives unused memory back to the driver (trim) and serves no more until resumed; live blocks stay and can
 * be freed. Suspending what is suspended gives back what was freed since; resuming what is not suspended
 * does nothing. When the driver refuses, the policy goes on as it was. */
vmm_status shared_policy_suspend(shared_policy *self);
vmm_status shared_policy_resume(shared_policy *self);

/* Waits for the call in progress; from then on policy and device are not touched again, but by destroy. For
 * the end of a process, when the device may go before the last block. Closing twice is fine. */
void shared_policy_close(shared_policy *self);

/* All statistics at one moment. */
vmm_status shared_policy_statistics(shared_policy *self, pool_statistics *statistics);
/* Peaks become what is held now. */
vmm_status shared_policy_reset_peaks(shared_policy *self);
/* policy_check. INVALID_VALUE when an invariant does not hold, and message says which. */
vmm_status shared_policy_check(shared_policy *self, char *message, size_t message_size);

/* Calls use with the policy, which nobody else uses meanwhile: for reports, counters, and the policy's
 * driver. use must not call shared_ functions of the same policy. Refused after close. */
typedef void shared_policy_use(void *context, policy *subject);
vmm_status shared_policy_with(shared_policy *self, shared_policy_use *use, void *context);

#endif

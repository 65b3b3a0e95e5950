// SPDX-License-Identifier: MIT
// stage policy: takes a thread's call count, gives "check this call or not"; runs on the calling thread.
//
// Call t (counted from 0 on each thread) is checked when frac(theta + t alpha) < rate, alpha the golden ratio's
// fraction: a low-discrepancy sequence whose gaps vary, so that no site with a period of its own aliases with the rate,
// and over any window of N calls the number checked differs from N rate by at most a small constant. theta is a
// function of the seed and of the thread's number (threads are numbered by their first call), never of rank, time or
// address: all ranks of a job check the same calls.
#pragma once

#include <cstdint>

#include "sdcguard/ring.h"

namespace sdcguard {

// fraction of the golden ratio in units of 2^-64
inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

// One thread's place in the sequence. Zero-initialised: the first call of a thread goes to the slow path, which
// configures the process and the thread.
struct ThreadPolicy {
  uint64_t skip;       // calls still to pass before the next one is looked at
  uint64_t next_call;  // count of the call that ends the skip
  uint64_t theta;      // phase of this thread, units of 2^-64
  uint64_t rate;       // units of 2^-64; UINT64_MAX: every call
  uint32_t number;     // of this thread in the process
  bool started;
  bool shared_counters;      // `counters` has other writers
  bool upgrades_all;         // upgrade = "site": a call that is not checked takes the pipeline's way too
  bool sample_at_end;        // the call that ends the skip is to be checked; false: the skip is a piece of a longer gap
  uint64_t call_id;          // of the last call that was chosen: thread number << 40 | the thread's call count
  ThreadCounters* counters;  // this thread's slot in the ring, or a private one; set when `started`
};

// Initial-exec: one load, no allocation, safe before constructors and in a fork child.
extern thread_local ThreadPolicy t_policy __attribute__((tls_model("initial-exec"), visibility("hidden")));

inline ThreadPolicy& thread_policy() noexcept {
  return t_policy;
}

// Slow half of take_sample(): starts the thread, or ends a skip. True when the call is to be checked.
bool end_of_skip(ThreadPolicy& policy) noexcept;

// hot: begin
// True when this call is to be checked; policy.call_id is then its id. Cost of a call not checked: one branch and one
// decrement, on this thread's own memory.
inline bool take_sample(ThreadPolicy& policy) noexcept {
  if (__builtin_expect(policy.skip != 0, 1)) {
    --policy.skip;
    return false;
  }
  return end_of_skip(policy);
}

// Counts `calls` that the policy did not choose (a grouped product is one call a group). `flops`: 2 m n k batch, 0 when
// it is not known without asking the library (Lt descriptors): coverage in FLOPs is then a lower bound. Threads past
// kMaxThreads share the last slot.
inline void count_unsampled(ThreadPolicy& policy, uint64_t flops, uint64_t calls = 1) noexcept {
  ThreadCounters* counters = policy.counters;
  if (policy.shared_counters) {
    __atomic_fetch_add(&counters->calls_seen, calls, __ATOMIC_RELAXED);
    __atomic_fetch_add(&counters->flops_seen, flops, __ATOMIC_RELAXED);
    return;
  }
  __atomic_store_n(&counters->calls_seen, counters->calls_seen + calls, __ATOMIC_RELAXED);
  __atomic_store_n(&counters->flops_seen, counters->flops_seen + flops, __ATOMIC_RELAXED);
}
// hot: end

// The distance from call `from` to the first call t >= from that is checked, looking at most `limit` calls ahead
// (then `limit`, and *found is false).
uint64_t calls_until_sample(uint64_t theta, uint64_t rate, uint64_t from, uint64_t limit, bool* found) noexcept;

// The phase of a thread.
uint64_t phase_of_thread(uint64_t seed, uint32_t thread_number) noexcept;

// A rate in units of 2^-64. 1 and above: UINT64_MAX.
uint64_t rate_units(double rate) noexcept;

// Child of fork: every thread of the child starts anew.
void policy_forget_after_fork() noexcept;

}  // namespace sdcguard

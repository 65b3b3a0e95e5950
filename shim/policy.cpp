// SPDX-License-Identifier: MIT
// stage policy: takes a thread's call count, gives "check this call or not"; runs on the calling thread.
#include "shim/policy.h"

#include <atomic>

#include "shim/process.h"

namespace sdcguard {

thread_local ThreadPolicy t_policy;

namespace {

std::atomic<uint32_t> threads_started{0};

// A gap longer than this is walked in pieces: one piece costs under 0.1 ms, once in as many calls.
constexpr uint64_t kLongestWalk = 65536;
constexpr uint64_t kCallBits = 40;

uint64_t mix(uint64_t x) {
  // Finaliser of SplitMix64 (Steele, Lea, Flood 2014).
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Sets the skip that leads from call `from` (inclusive) to the next one to be looked at.
void plan_skip(ThreadPolicy& policy, uint64_t from) {
  policy.skip = calls_until_sample(policy.theta, policy.rate, from, kLongestWalk, &policy.sample_at_end);
  policy.next_call = from + policy.skip;
}

}  // namespace

uint64_t phase_of_thread(uint64_t seed, uint32_t thread_number) noexcept {
  return mix(mix(seed + kGolden) + uint64_t{thread_number} * kGolden);
}

uint64_t rate_units(double rate) noexcept {
  if (!(rate > 0)) return 0;
  if (rate >= 1) return UINT64_MAX;
  return static_cast<uint64_t>(rate * 0x1p64);
}

uint64_t calls_until_sample(uint64_t theta, uint64_t rate, uint64_t from, uint64_t limit, bool* found) noexcept {
  *found = false;
  if (rate == 0) return limit;
  uint64_t x = theta + from * kGolden;
  for (uint64_t ahead = 0; ahead < limit; ++ahead, x += kGolden) {
    if (x < rate || rate == UINT64_MAX) {
      *found = true;
      return ahead;
    }
  }
  return limit;
}

bool end_of_skip(ThreadPolicy& policy) noexcept {
  if (!policy.started) {
    const Process& process = the_process();
    policy.number = threads_started.fetch_add(1, std::memory_order_relaxed);
    policy.theta = phase_of_thread(process.config.seed, policy.number);
    policy.rate = process.config.mode == Mode::kOff ? 0 : rate_units(process.config.rate);
    policy.upgrades_all = process.config.upgrade == Upgrade::kSite && process.config.mode != Mode::kOff;
    policy.counters = process.counters_of_thread(policy.number, &policy.shared_counters);
    policy.started = true;
    plan_skip(policy, 0);
  } else if (!policy.sample_at_end) {
    plan_skip(policy, policy.next_call);
  }
  if (policy.skip != 0) {
    --policy.skip;
    return false;
  }
  const uint64_t call = policy.next_call;
  plan_skip(policy, call + 1);
  policy.call_id = (uint64_t{policy.number} << kCallBits) | (call & ((uint64_t{1} << kCallBits) - 1));
  return true;
}

void policy_forget_after_fork() noexcept {
  threads_started.store(0, std::memory_order_relaxed);
  t_policy = ThreadPolicy{};
}

}  // namespace sdcguard

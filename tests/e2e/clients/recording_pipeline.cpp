// SPDX-License-Identifier: MIT
// The stages behind the interposition, replaced by a recorder: the shipped resolve, dlsym, wrappers, normal form and
// upgrade are linked with this into libroutes_shim.so, so that a client can ask what the shim saw.
// ROUTES_UPGRADE=1: products go into FP32 where permitted. ROUTES_UNSAMPLED=1: no call is sampled.
#include <cstdlib>

#include "shim/context.h"
#include "shim/pipeline.h"
#include "shim/policy.h"
#include "shim/process.h"
#include "shim/upgrade.h"

namespace {

std::atomic<int> guarded_calls;
std::atomic<int> warm_calls;
std::atomic<int> forgotten;
sdcguard::ThreadCounters counters;
alignas(8) float constants[2] = {1.0f, 0.0f};
std::atomic<int> observed_calls;
alignas(256) float scratch[1 << 16];

}  // namespace

namespace sdcguard {

thread_local ThreadPolicy t_policy __attribute__((tls_model("initial-exec"), visibility("hidden")));

bool end_of_skip(ThreadPolicy& policy) noexcept {
  policy.counters = &counters;
  policy.shared_counters = true;
  policy.call_id = 5;
  if (getenv("ROUTES_UNSAMPLED") == nullptr) return true;
  policy.skip = UINT64_MAX;
  return false;
}

void policy_forget_after_fork() noexcept {}
void process_forget_after_fork() noexcept {}
void note_library(const char*, size_t) noexcept {}

int run_guarded(GemmCall& call) noexcept {
  ++guarded_calls;
  const uint64_t site = site_of(call);
  if (getenv("ROUTES_UPGRADE") != nullptr && upgrade_permitted(call, site)) {
    const int64_t ld = (columns_of_p(call) + 3) / 4 * 4;
    const ProductTarget target = {.type = product_type_of(call),
                                  .address = reinterpret_cast<uintptr_t>(scratch),
                                  .ld = ld,
                                  .batch_stride = ld * rows_of_p(call),
                                  .pointers = 0,
                                  .one_address = reinterpret_cast<uintptr_t>(&constants[0]),
                                  .zero_address = reinterpret_cast<uintptr_t>(&constants[1]),
                                  .context_id = 1};
    if (issue_product(call, site, target) == 0) return 0;
  }
  return issue_original(call);
}

int run_unsampled(GemmCall& call) noexcept {
  ++guarded_calls;
  return issue_original(call);
}

int run_guarded_groups(GemmCall& call, const SampledGroups&) noexcept {
  ++guarded_calls;
  return issue_original(call);
}

void record_observed(const GemmCall&, uint64_t) noexcept {
  ++observed_calls;
}

void warm_current_context() noexcept {
  ++warm_calls;
}
void context_forget_after_fork() noexcept {
  ++forgotten;
}

}  // namespace sdcguard

#define ROUTES_EXPORT extern "C" __attribute__((visibility("default")))
ROUTES_EXPORT int routes_guarded_calls() {
  return guarded_calls;
}
ROUTES_EXPORT int routes_observed_calls() {
  return observed_calls;
}
ROUTES_EXPORT int routes_warm_calls() {
  return warm_calls;
}
ROUTES_EXPORT int routes_forgotten() {
  return forgotten;
}
ROUTES_EXPORT const float* routes_scratch() {
  return scratch;
}
ROUTES_EXPORT const float* routes_constants() {
  return constants;
}
ROUTES_EXPORT uint64_t routes_unsampled_calls() {
  return counters.calls_seen;
}
ROUTES_EXPORT uint64_t routes_unsampled_flops() {
  return counters.flops_seen;
}

// SPDX-License-Identifier: MIT
// The life of a guarded call, from its normal form to its record: the one file that calls every stage.
#pragma once

#include "shim/gemm_call.h"

namespace sdcguard {

// Issues the product of a sampled call, exactly once as far as the caller can see, with its check and repair enqueued
// around it in stream order. Returns the status that the caller gets. Counts the call. Blocks on the lock of the call's
// stream only; waits for the device only where joining the side stream failed. Never throws; leaves no CUDA error.
int run_guarded(GemmCall& call) noexcept;

// The same for a grouped product: the call is issued as it is, and the groups that were chosen are checked as
// delivered, each with its own record. Allocates on the heap.
int run_guarded_groups(GemmCall& call, const SampledGroups& sampled) noexcept;

// Issues the product of a call that is not sampled, under upgrade = "site": where its sampled sisters would run into
// scratch and be finished by us, so does this one, unchecked, so that the site's outputs do not depend on sampling.
int run_unsampled(GemmCall& call) noexcept;

// Counts and records a sampled call of an observed entry, which the wrapper has issued.
void record_observed(const GemmCall& call, uint64_t call_flops) noexcept;

}  // namespace sdcguard

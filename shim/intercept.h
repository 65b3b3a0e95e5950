// SPDX-License-Identifier: MIT
// stage intercept: the exported wrappers. Every product wrapper has the same four beats:
//
//   depth > 0 --------------------------------------------> real function
//   library of the call (handle, caller's object, or slot)
//   take_sample(thread policy) says no -> count it -------> real function, depth 1
//   GemmCall filled, normalize() -> run_guarded(call) ----> its status, depth 1
//
// errno is as the real function left it. What a wrapper needs from the other stages, and who defines it:
//
//   shim/policy.h     thread_policy(), take_sample(), count_unsampled(), policy_forget_after_fork()
//   shim/pipeline.h   int run_guarded(GemmCall& call) noexcept
//                         issues the product (exactly once as far as the caller can see) and returns its status; counts
//                         calls_seen and all else of a sampled call. call.blocked may be set. Runs at depth 1.
//   shim/context.h    void warm_current_context() noexcept      after a successful cublasCreate_v2 / cublasLtCreate
//                     void context_forget_after_fork() noexcept in a fork child, from the handler that intercept
//                     registers
#pragma once

#include "shim/entry.h"
#include "shim/guard.h"

namespace sdcguard {

struct Library;

// The wrapper bound to `library`: what the caller of dlsym(handle, name) gets.
void* wrapper_for(Entry entry, const Library& library) noexcept;

// Registers the fork handler once, at the first handle or product. Called by the wrappers.
void register_fork_handler() noexcept;

}  // namespace sdcguard

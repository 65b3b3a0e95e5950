// SPDX-License-Identifier: MIT
// Fibers of the executor: stacks with guard pages, and the one function that switches, with what the sanitizers must be
// told around it.
#pragma once

#include <boost/context/detail/fcontext.hpp>

#include "tools/hostcuda/simt/unwatched.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace hostcuda {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr size_t kStackBytes = 128 * 1024;
#else
inline constexpr size_t kStackBytes = 32 * 1024;
#endif
inline constexpr size_t kPageBytes = 4096;

// A stack and the execution that is suspended on it. The stack belongs to the fiber for good: under TSan the same
// stack always runs on the same TSan fiber, which several fibers may share.
struct Fiber {
  boost::context::detail::fcontext_t context;  // null: nothing is suspended here
  uint32_t thread;                             // CUDA thread that it runs, or is to run next
  uint32_t fenced;                             // of that thread, while it is switched out (SimtContext::fenced)
  unsigned char* stack;                        // lowest usable byte; the guard page is below
  unsigned char* top;
  Fiber* next_idle;
  void* tsan_fiber;
  void* asan_fake_stack;
};

// Gives `fiber` its stack; the tops are staggered by `index`, or equal offsets of all stacks would share cache sets.
// Under TSan it runs in `tsan_fiber`; null: in a new one. False: no memory.
HOSTCUDA_UNWATCHED inline bool fiber_create(Fiber* fiber, uint32_t index, [[maybe_unused]] void* tsan_fiber) {
  auto* const pages = static_cast<unsigned char*>(map_pages(kStackBytes + kPageBytes));
  if (pages == nullptr) return false;
  syscall(SYS_mprotect, pages, kPageBytes, PROT_NONE);
  fiber->stack = pages + kPageBytes;
  fiber->top = pages + kPageBytes + kStackBytes - (index % 16) * 256;
#ifdef __SANITIZE_THREAD__
  fiber->tsan_fiber = tsan_fiber != nullptr ? tsan_fiber : __tsan_create_fiber(0);
#endif
  return true;
}

// Makes `fiber` start `entry` at its next switch, forgetting whatever was suspended on it.
HOSTCUDA_UNWATCHED inline void fiber_start(Fiber* fiber, void (*entry)(boost::context::detail::transfer_t)) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(fiber->stack, kStackBytes);
  fiber->asan_fake_stack = nullptr;
#endif
  fiber->context =
      boost::context::detail::make_fcontext(fiber->top, static_cast<size_t>(fiber->top - fiber->stack), entry);
}

}  // namespace hostcuda

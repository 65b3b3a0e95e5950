// SPDX-License-Identifier: MIT
// All that hostcuda's streams tell ThreadSanitizer, in one place: a stream's operations run on a TSan fiber of their
// own, so that the only happens-before edges between streams are those that CUDA gives. Empty in other builds.
//
// A tag is any address that lives long enough. Edges: release(tag) by the thread that enqueues -> acquire by the
// stream's fiber; release by the fiber after the operation -> acquire by event waits, legacy-stream order and host
// synchronisation. The engine's own mutex adds edges between host threads only: it is never taken on a fiber.
#pragma once

#include <cstddef>

#ifdef __SANITIZE_THREAD__
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* tag);
void __tsan_release(void* tag);
}
// Functions that run across a switch of fibers must not keep TSan's shadow call stack, and what both the worker and
// its fiber touch (the same thread, two TSan states) is read and written without instrumentation.
#define HOSTCUDA_NO_TSAN __attribute__((no_sanitize_thread, noinline))
#else
#define HOSTCUDA_NO_TSAN
#endif

namespace hostcuda::tsan {

#ifdef __SANITIZE_THREAD__
inline constexpr bool kActive = true;
inline constexpr unsigned kNoSync = 1;

inline void* create_fiber() {
  return __tsan_create_fiber(0);
}
inline void destroy_fiber(void* fiber) {
  __tsan_destroy_fiber(fiber);
}
inline void acquire(void* tag) {
  __tsan_acquire(tag);
}
inline void release(void* tag) {
  __tsan_release(tag);
}

// Runs one operation on `fiber`: acquires, run(arg), destroy(arg), releases. The calling thread is back on its own
// state afterwards. No two threads may do this for one fiber at a time.
HOSTCUDA_NO_TSAN inline void run_on_fiber(void* fiber, void (*run)(void*), void (*destroy)(void*), void* arg,
                                          void* const* acquires, size_t acquire_count, void* const* releases,
                                          size_t release_count) {
  void* own = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(fiber, kNoSync);
  for (size_t i = 0; i < acquire_count; ++i) __tsan_acquire(acquires[i]);
  if (run != nullptr) run(arg);
  if (destroy != nullptr) destroy(arg);
  for (size_t i = 0; i < release_count; ++i) __tsan_release(releases[i]);
  __tsan_switch_to_fiber(own, kNoSync);
}
#else
inline constexpr bool kActive = false;

inline void* create_fiber() {
  return nullptr;
}
inline void destroy_fiber(void*) {}
inline void acquire(void*) {}
inline void release(void*) {}
inline void run_on_fiber(void*, void (*run)(void*), void (*destroy)(void*), void* arg, void* const*, size_t,
                         void* const*, size_t) {
  if (run != nullptr) run(arg);
  if (destroy != nullptr) destroy(arg);
}
#endif

}  // namespace hostcuda::tsan

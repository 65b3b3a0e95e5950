// SPDX-License-Identifier: MIT
// Building blocks of code that ThreadSanitizer must not see: the executor runs on the TSan fibers of the CUDA threads
// that it schedules, so that any instrumented access or lock of its own would report or, worse, order them.
//
// Rules for every function marked HOSTCUDA_UNWATCHED: no std containers or locks, no memcpy/memset (intercepted).
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
// Loops that the compiler would turn into memset or memcpy stay loops.
#define HOSTCUDA_UNWATCHED __attribute__((no_sanitize_thread, noinline, optimize("no-tree-loop-distribute-patterns")))
#define HOSTCUDA_UNWATCHED_HOT HOSTCUDA_UNWATCHED
#else
#define HOSTCUDA_UNWATCHED
#define HOSTCUDA_UNWATCHED_HOT inline __attribute__((always_inline))
#endif

namespace hostcuda {

#ifdef __SANITIZE_THREAD__
inline constexpr bool kWatched = true;
HOSTCUDA_UNWATCHED inline void order_release(void* tag) {
  __tsan_release(tag);
}
HOSTCUDA_UNWATCHED inline void order_acquire(void* tag) {
  __tsan_acquire(tag);
}
#else
inline constexpr bool kWatched = false;
inline void order_release(void*) {}
inline void order_acquire(void*) {}
#endif

class UnwatchedLock {
 public:
  HOSTCUDA_UNWATCHED void lock() {
    while (__atomic_exchange_n(&held_, 1, __ATOMIC_ACQUIRE) != 0) __builtin_ia32_pause();
  }
  HOSTCUDA_UNWATCHED void unlock() { __atomic_store_n(&held_, 0, __ATOMIC_RELEASE); }

 private:
  int held_ = 0;
};

// Zeroed pages, or null. The raw call: TSan's mmap would mark the range.
HOSTCUDA_UNWATCHED inline void* map_pages(size_t bytes) {
  const long address =
      syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
  return address == -1 ? nullptr : reinterpret_cast<void*>(address);
}

HOSTCUDA_UNWATCHED inline void unmap_pages(void* pages, size_t bytes) {
  syscall(SYS_munmap, pages, bytes);
}

HOSTCUDA_UNWATCHED inline void fill_ones(unsigned char* bytes, size_t count) {
#ifdef __SANITIZE_THREAD__
  for (size_t i = 0; i < count; ++i) bytes[i] = 0xFF;
#else
  __builtin_memset(bytes, 0xFF, count);
#endif
}

HOSTCUDA_UNWATCHED inline void copy_bytes(unsigned char* to, const unsigned char* from, size_t count) {
#ifdef __SANITIZE_THREAD__
  for (size_t i = 0; i < count; ++i) to[i] = from[i];
#else
  __builtin_memcpy(to, from, count);
#endif
}

}  // namespace hostcuda

// SPDX-License-Identifier: MIT
// A std::vector whose data starts on a cache line, for aligned vector loads, and whose resize() leaves new elements
// uninitialized. Blocks are kept for the next product: fresh pages cost more than the packing that fills them.
#pragma once

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace hostcuda::gemm {

// Aligned blocks of memory, reused by size class (powers of two). At most 64 MiB lie idle; more is given back.
void* take_block(size_t bytes);
void return_block(void* block, size_t bytes);

template <typename T>
struct BlockAllocator {
  using value_type = T;
  BlockAllocator() = default;
  template <typename U>
  explicit BlockAllocator(const BlockAllocator<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(take_block(count * sizeof(T))); }
  void deallocate(T* data, size_t count) { return_block(data, count * sizeof(T)); }
  template <typename U>
  void construct(U* place) {
    ::new (static_cast<void*>(place)) U;
  }
  template <typename U, typename First, typename... Rest>
  void construct(U* place, First&& first, Rest&&... rest) {
    ::new (static_cast<void*>(place)) U(std::forward<First>(first), std::forward<Rest>(rest)...);
  }
  template <typename U>
  bool operator==(const BlockAllocator<U>&) const {
    return true;
  }
};

template <typename T>
using AlignedVector = std::vector<T, BlockAllocator<T>>;

}  // namespace hostcuda::gemm

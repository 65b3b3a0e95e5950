// SPDX-License-Identifier: MIT
// Reuse of packing buffers between products.
#include "aligned.h"

#include <algorithm>
#include <bit>
#include <mutex>

namespace hostcuda::gemm {
namespace {

constexpr std::align_val_t kCacheLine{64};
constexpr size_t kSmallest = 4096;
constexpr size_t kIdleLimit = size_t{64} << 20;

struct Idle {
  std::mutex mutex;
  std::vector<void*> blocks[64];  // by log2 of the size
  size_t bytes = 0;
};

// Never destroyed: products may still run while the process ends.
Idle& idle() {
  static Idle* const made = new Idle;
  return *made;
}

size_t size_class(size_t bytes) {
  return std::bit_ceil(std::max(bytes, kSmallest));
}

}  // namespace

void* take_block(size_t bytes) {
  const size_t size = size_class(bytes);
  {
    Idle& kept = idle();
    const std::lock_guard lock(kept.mutex);
    auto& blocks = kept.blocks[std::countr_zero(size)];
    if (!blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      kept.bytes -= size;
      return block;
    }
  }
  return ::operator new(size, kCacheLine);
}

void return_block(void* block, size_t bytes) {
  const size_t size = size_class(bytes);
  {
    Idle& kept = idle();
    const std::lock_guard lock(kept.mutex);
    if (kept.bytes + size <= kIdleLimit) {
      kept.blocks[std::countr_zero(size)].push_back(block);
      kept.bytes += size;
      return;
    }
  }
  ::operator delete(block, kCacheLine);
}

}  // namespace hostcuda::gemm

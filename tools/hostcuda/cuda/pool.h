// SPDX-License-Identifier: MIT
// Memory pools behind stream-ordered allocation.
//
//   device memory:  | other allocations | reserved by pool A: used | kept | reserved by pool B ... | free |
//
// A pool reserves device memory in chunks and keeps what was freed for its next allocation; on the next synchronisation
// it gives back what is above its release threshold. Its counters have a lock of their own, taken after Engine::mutex
// and before the memory table's: the free of a stream's work changes them too.
#pragma once

#include "tools/hostcuda/cuda/engine.h"
#include "tools/hostcuda/cuda/memory.h"

namespace hostcuda {

struct Pool;

// The pool that cuMemAllocAsync uses on `device`.
Pool* current_pool(int device);

// CUDA_ERROR_INVALID_VALUE: no such pool.
CUresult find_pool(CUmemoryPool handle, Pool** pool);
inline CUmemoryPool handle_of(const Pool* pool) {
  return reinterpret_cast<CUmemoryPool>(const_cast<Pool*>(pool));
}

int device_of(const Pool& pool);
const CUmemPoolProps& props_of(const Pool& pool);

// Allocates from the pool. CUDA_ERROR_OUT_OF_MEMORY: no room on the device or in the pool's maximum.
CUresult allocate_from(Pool& pool, uint64_t context_id, size_t bytes, CUdeviceptr* base);

// `bytes` of the pool were freed.
void give_back(Pool& pool, size_t bytes);

// Whether work on `device` may touch the pool's memory. Lock-free.
bool pool_reaches(const Pool& pool, int device);

// A synchronisation has happened on `device`: its pools give back what they hold above their thresholds.
void trim_pools(int device);

}  // namespace hostcuda

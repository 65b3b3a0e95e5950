// SPDX-License-Identifier: MIT
// The kernel executor of hostcuda: runs a kernel compiled by the host compiler, one fiber per CUDA thread, and holds
// it to the device's rules. Exported from libcuda.so.1; the kernels' side of the ABI is kernels/simt_host.h.
//
//   stream worker -> hostcuda_simt_run -> blocks one after another -> threads of a block as fibers -> kernel function
//                                                                      |  barriers, collectives, addresses, faults
//                                                                      +-> core.h: hostcuda_range,
//                                                                      hostcuda_fault_stop_as
//
// Environment, read once: HOSTCUDA_FIBER_SEED=n runs threads and blocks in an order drawn from n (odd: any ready
// thread next; even: warps by priorities drawn for each block); 0 or unset: ascending order. The same seed gives the
// same order at every launch of a kernel with the same grid.
// HOSTCUDA_WATCHED_BLOCKS=n, under ThreadSanitizer alone: only the first n blocks that a launch runs have a TSan state
// a thread. The threads of a later block share one: a race among them goes unseen, one with another block, another
// launch or the host does not. 0 or unset: every block has them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simt_host.h"

namespace hostcuda {

// Limits of the devices that hostcuda stands for (CUDA programming guide, compute capability 9.0).
inline constexpr uint32_t kSharedBytes = 48 * 1024;        // static, and dynamic without opt-in
inline constexpr uint32_t kSharedOptInBytes = 227 * 1024;  // static and dynamic together, with opt-in

// Operand bytes that one kernel moved in one allocation, over all its launches since the last reset.
struct Traffic {
  const char* kernel;  // name in the kernel's table: static storage of its library
  uint64_t base;       // device address of the allocation
  uint64_t bytes;      // its size
  uint64_t bytes_read;
  uint64_t bytes_written;
};

// Under TSan: the stream that ran its launches on TSan fiber `caller` is no more; another may take over its fibers.
// Nothing in other builds.
void simt_forget(void* caller);

}  // namespace hostcuda

#pragma GCC visibility push(default)
extern "C" {

// Runs a whole launch on the calling thread (a stream worker, inside an operation) and returns when its last block is
// done. `params` are entry->parameter_bytes bytes, copied before the first thread starts. Grid of 1 to 2^31 - 1
// blocks of 1 to min(1024, entry->max_threads) threads. Several threads may run launches at the same time.
// Grid and block have one dimension here.
// 0: done. 1: a rule was broken and hostcuda_fault_stop_as returned (HOSTCUDA_STICKY=1): the launch was given up,
// every fiber dropped where it stood.
int hostcuda_simt_run(const hostcuda::HostKernelEntry* entry, uint32_t grid_blocks, uint32_t block_threads,
                      uint32_t shared_bytes, const void* params);

// The same in three dimensions, for an entry that is written for them. The limits count all blocks and all threads.
int hostcuda_simt_run_shaped(const hostcuda::HostKernelEntry* entry, const hostcuda::Index3* grid,
                             const hostcuda::Index3* block, uint32_t shared_bytes, const void* params);

// Replaces HOSTCUDA_FIBER_SEED from the next launch on.
void hostcuda_simt_seed(uint64_t seed);

// Replaces HOSTCUDA_WATCHED_BLOCKS from the next launch on.
void hostcuda_simt_watch(uint64_t blocks);

// Copies up to `capacity` records of kernel `kernel` (null: every kernel) in no order, returns how many there are.
// Every access counts, repeated ones too; an atomic counts once as read and once as written. At most 4,096 pairs of
// kernel and allocation are kept apart, later ones are summed under base 0. A running launch shows when it ends.
size_t hostcuda_traffic(const char* kernel, hostcuda::Traffic* records, size_t capacity);
void hostcuda_traffic_reset(void);

}  // extern "C"
#pragma GCC visibility pop

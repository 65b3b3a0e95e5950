// SPDX-License-Identifier: MIT
// The ABI between kernels compiled by the host compiler and hostcuda's executor (tools/hostcuda/simt): plain structs
// and function pointers, so that a kernel library links neither the executor nor Boost.
//
//   kernel library (.cu as C++)                       executor (libcuda.so.1 of hostcuda)
//   SDCGUARD_KERNEL -> HostKernelEntry  --table-->    looks an entry up by name
//   entry.function(context, params)     <--calls---   one call per CUDA thread, on a fiber
//   accessors of simt.h                 --context-->  SimtApi: barriers, collectives, address lookup, faults
//
// One SimtContext serves one OS thread that runs a launch. Fields marked [switch] are rewritten by the executor at
// every fiber switch, fields marked [launch] or [block] stay for that long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hostcuda {

inline constexpr uint32_t kSimtAbi = 2;
inline constexpr uint32_t kWarpLanes = 32;
inline constexpr uint32_t kMaxBlockThreads = 1024;
inline constexpr uint32_t kRangeSlots = 256;  // direct-mapped by address page: a streaming load misses once a page
inline constexpr uint32_t kRangePageShift = 12;
inline constexpr uint32_t kMaxParameterBytes = 4096;  // of a __global__ function, the limit that holds on every driver

// Why an address was asked for. Atomics count as one read and one write.
enum class Access : uint32_t { kLoad, kStore, kAtomic };

enum class FenceScope : uint32_t { kBlock, kDevice, kSystem };

// One live allocation as a launch sees it: device addresses [base, base + size) lie at alias in this process.
// The byte counters belong to the launch; the executor collects them when it ends.
struct HostRange {
  uint64_t base;
  uint64_t size;
  unsigned char* alias;
  uint64_t bytes_read;
  uint64_t bytes_written;
};

// One static __shared__ declaration. Identity is the object's address; storage is handed out block by block.
struct SharedSite {
  const char* name;
  const char* file;
  uint32_t line;
  uint32_t bytes;
  uint32_t alignment;
};

// A place in a block or a grid, or the size of one.
struct Index3 {
  uint32_t x, y, z;
};

struct SimtContext;

// Runs on the lane that arrives last; lanes[i] is what lane i gave. Must not touch device memory.
using CombineFunction = void (*)(void* const* lanes);

// Calls of kernel code into the executor. None returns after a broken rule.
struct SimtApi {
  // Every thread of the block, exited ones included, must come to the same line.
  void (*sync_threads)(SimtContext* context, const char* file, uint32_t line);
  // Every lane of a full warp must come to the same line. sync_warp orders memory, meet does not (as on the device).
  void (*sync_warp)(SimtContext* context, const char* file, uint32_t line);
  void (*meet)(SimtContext* context, const char* operation, const char* file, uint32_t line, void* mine,
               CombineFunction combine);
  void (*fence)(SimtContext* context, FenceScope scope);
  // After an atomic operation on the word at host address `word` (ordering for the race detector).
  void (*atomic_done)(SimtContext* context, const void* word);
  // Slow path of an access: checks alignment, bounds and lifetime, refreshes the slot, counts the bytes.
  unsigned char* (*resolve)(SimtContext* context, uint64_t address, uint32_t bytes, uint32_t alignment, Access access,
                            const char* file, uint32_t line);
  unsigned char* (*static_shared)(SimtContext* context, const SharedSite* site);
  // `rule` says in words which rule was broken; place, kernel, block and thread are added.
  void (*fault)(SimtContext* context, const char* file, uint32_t line, const char* rule);
};

// Threads of a block and blocks of a grid are counted x first, then y, then z; warps are 32 threads of that count.
struct SimtContext {
  const SimtApi* api;
  uint32_t thread;                // [switch]
  uint32_t block;                 // [block]
  uint32_t block_threads;         // [launch]
  uint32_t grid_blocks;           // [launch]
  Index3 block_shape;             // [launch]
  Index3 grid_shape;              // [launch]
  unsigned char* dynamic_shared;  // [block] 128-byte aligned, filled with 0xFF
  uint32_t dynamic_shared_bytes;  // [launch]
  uint32_t fenced;                // [switch] 1: no store since this thread's last device fence (race detector only)
  HostRange* slots[kRangeSlots];  // never null: an empty range (size 0) where nothing is known
};

// One parameter of a kernel in its parameter block.
struct HostParameter {
  uint32_t offset;
  uint32_t bytes;
};

struct HostKernelEntry {
  const char* name;
  void (*function)(SimtContext* context, const void* params);  // one CUDA thread
  uint32_t parameter_bytes;
  uint32_t parameter_alignment;
  uint32_t max_threads;  // __launch_bounds__
  uint32_t dimensions;   // of the grids and blocks that it is written for: 3; 0: 1
  const char* file;
  const HostParameter* parameters = nullptr;  // parameter_count of them; null: the block is one parameter
  uint32_t parameter_count = 0;
};

// Exported by a kernel library as the data symbol `hostcuda_kernel_table`. The entries are collected by the linker
// from the section `hostcuda_kernels` of every object file (one pointer a SDCGUARD_KERNEL), so several .cu files form
// one library without constructors. [begin, end) holds pointers; there is no order.
struct HostKernelTable {
  uint32_t abi;  // kSimtAbi
  const HostKernelEntry* const* begin;
  const HostKernelEntry* const* end;
};

// Number `number` of a shape, counted as above.
inline Index3 index_in(Index3 shape, uint32_t number) {
  return {number % shape.x, number / shape.x % shape.y, number / shape.x / shape.y};
}

// Null where the table has no kernel of that name or another ABI.
inline const HostKernelEntry* find_kernel(const HostKernelTable* table, const char* name) {
  if (table == nullptr || table->abi != kSimtAbi) return nullptr;
  for (const HostKernelEntry* const* entry = table->begin; entry != table->end; ++entry) {
    if (std::strcmp((*entry)->name, name) == 0) return *entry;
  }
  return nullptr;
}

}  // namespace hostcuda

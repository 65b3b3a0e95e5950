// SPDX-License-Identifier: MIT
// Device memory: address ranges, the table of live allocations, what was freed, poisoning.
//
//   one reservation, nothing committed:
//   |<-- device 0 -->|<-- device 1 -->| ... |<-- alias of 0 -->|<-- alias of 1 -->| ...
//    PROT_NONE always                        pages readable and writable while an allocation lives in them
//    \______________ hostcuda_alias_offset() ____^
//
// Addresses are handed out once around before any is used again, so that a freed address stays a bad address for long.
// Every allocation is 256-byte aligned (as cuMemAlloc promises, and no more) with at least 256 bytes between two.
// Fresh device memory reads as 0xFF bytes (NaN in every float type) up to 16 MiB, zero beyond.
//
// Writers take one lock; readers (hostcuda_view, hostcuda_range) use a sequence lock and never write.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace hostcuda {

struct Pool;

enum class MemoryKind : int {
  kDevice,      // cuMemAlloc: PROT_NONE for the host
  kPinned,      // cuMemAllocHost: host memory, same address on the device
  kManaged,     // cuMemAllocManaged: as pinned
  kRegistered,  // cuMemHostRegister: the program's own memory
  kReserved,    // a graph's allocation that no launch has made yet: an address, no memory
};

struct Allocation {
  CUdeviceptr base;
  size_t bytes;  // as asked for
  char* host;    // alias of base
  int device;    // ordinal; for host memory that of the context it was made in
  MemoryKind kind;
  unsigned flags;        // cuMemHostAlloc / cuMemHostRegister flags
  uint64_t context_id;   // owner: destroyed with it
  uint64_t buffer_id;    // CU_POINTER_ATTRIBUTE_BUFFER_ID, never reused
  bool graph = false;    // of kDevice: made from a reservation, and that again when it is freed
  Pool* pool = nullptr;  // its memory is the pool's; null: the device's own
};

// CUDA_ERROR_OUT_OF_MEMORY beyond HOSTCUDA_MEMORY or out of addresses; CUDA_ERROR_INVALID_VALUE for 0 bytes.
// `pool`: what it takes of the device is already the pool's.
CUresult allocate_device(int device, uint64_t context_id, size_t bytes, CUdeviceptr* base, Pool* pool = nullptr);
CUresult allocate_host(int device, uint64_t context_id, size_t bytes, MemoryKind kind, unsigned flags, void** base);

// CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED when the range meets one that the device knows.
CUresult register_host(int device, uint64_t context_id, void* base, size_t bytes, unsigned flags);

// An address for a graph's allocation, good until unreserve(); the memory comes with activate_reserved (errors as
// allocate_device) and goes with release().
CUresult reserve_device(int device, uint64_t context_id, size_t bytes, CUdeviceptr* base);
CUresult activate_reserved(CUdeviceptr base);
void unreserve(CUdeviceptr base);

// Frees the allocation that starts at `base` and is of kind `kind`; CUDA_ERROR_INVALID_VALUE if there is none
// (CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED for kRegistered).
CUresult release(CUdeviceptr base, MemoryKind kind);

// Frees everything that a context owns.
void release_context(uint64_t context_id);

// The live allocation that holds byte `p`; false: none.
bool find_allocation(CUdeviceptr p, Allocation* found);

// As find_allocation, and the reserved addresses of graphs' allocations too: what an address is good for, not now.
bool find_address(CUdeviceptr p, Allocation* found);

// True if `p` lies in the addresses of a device, allocated or not.
bool is_device_address(CUdeviceptr p);

// What is left of HOSTCUDA_MEMORY on `device`.
size_t free_bytes(int device);

// Takes bytes of a device for a pool (false: not so many are left), and gives them back.
bool charge(int device, size_t bytes);
void uncharge(int device, size_t bytes);

// What an allocation of `bytes` takes.
size_t allocation_bytes(size_t bytes);

// Bytes behind graphs' allocations on `device` now, or the most since the last reset.
size_t graph_bytes(int device, bool high);
void reset_graph_bytes_high(int device);

// hostcuda_describe as a string.
std::string describe(CUdeviceptr p, size_t bytes);

}  // namespace hostcuda

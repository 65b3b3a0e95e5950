// SPDX-License-Identifier: MIT
// The HOSTCUDA_* settings of the driver: read once from the environment, some of them changed later by
// hostcuda_configure. Every function may be called from any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hostcuda {

// Fixed at the first use of any setting.
struct StartSettings {
  int devices;              // how many this process sees
  std::vector<int> boards;  // which of the machine's HOSTCUDA_DEVICES they are, as CUDA_VISIBLE_DEVICES says
  std::string order;        // HOSTCUDA_ORDER, "h100" if unset
  int capability;           // compute capability times ten that follows from `order`
  size_t device_bytes;      // HOSTCUDA_MEMORY
  bool sticky;              // HOSTCUDA_STICKY=1: a broken device rule poisons the context instead of ending the process
  std::string trace_file;   // HOSTCUDA_TRACE, empty: none
  std::string shim_log;     // HOSTCUDA_SHIM_LOG, empty: none
  std::string kernels;      // HOSTCUDA_KERNELS, empty: none
};

inline constexpr int kMaxDevices = 16;

const StartSettings& start_settings();

// A board's UUID: stable over processes, a function of its number.
void board_uuid(int board, unsigned char uuid[16]);

// What HOSTCUDA_FAIL has in store for one call.
struct PlannedFailure {
  CUresult error = CUDA_SUCCESS;  // CUDA_SUCCESS: the call goes ahead
  bool late = false;              // the error comes after the call has done its work
  unsigned hang_ms = 0;           // wait this long first
  uint64_t position = 0;          // of the call among libsdcguard.so's, from 1; 0: another caller's, or not watched
};

// Counts a call of `name` against HOSTCUDA_FAIL. `caller` is the return address of the exported function: it is looked
// up only where a plan or the log is about the shim's calls.
PlannedFailure planned_failure(const char* name, const void* caller);

// Stream index of HOSTCUDA_STARVE, -1: none.
int starved_stream();

// Counts one cuStreamWaitEvent against HOSTCUDA_SKIP_WAIT; true: drop it.
bool skip_this_wait();

// True if launches of `kernel` are to do nothing (HOSTCUDA_SKIP_KERNEL).
bool skip_kernel(const char* kernel);

// Numbers like 4096, 512M, 16G (powers of 1024); false: malformed or zero.
bool parse_bytes(const char* text, size_t* bytes);

}  // namespace hostcuda

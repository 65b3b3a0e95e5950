// SPDX-License-Identifier: MIT
// Device memory as the work of a library sees it: runs on a stream's worker, gives aliases of what the device may
// touch, and breaks a device rule, by the name of the entry point and the operand, for everything else.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "tools/hostcuda/core.h"

namespace hostcuda {

struct Access {
  const char* operation;  // entry point, for messages
  bool broken = false;    // a rule was broken and the process lives on (HOSTCUDA_STICKY): abandon the operation
};

inline void break_rule(Access* access, CUresult code, const std::string& message) {
  access->broken = true;
  hostcuda_fault_stop_as(code, (std::string(access->operation) + ": " + message).c_str());
}

// Alias of `bytes` bytes at `address` (negative: more than 63 bits hold), which must be a multiple of `align`; null
// after a broken rule. `mode`: HOSTCUDA_READ | HOSTCUDA_WRITE. `what` names the operand.
inline void* view(Access* access, const std::string& what, CUdeviceptr address, int64_t bytes, int64_t align,
                  int mode) {
  char where[96];
  if (address % static_cast<CUdeviceptr>(align)) {
    std::snprintf(where, sizeof where, " at 0x%llx is not aligned to %lld bytes", address,
                  static_cast<long long>(align));
    break_rule(access, CUDA_ERROR_MISALIGNED_ADDRESS, what + where);
    return nullptr;
  }
  void* alias = bytes < 0 ? nullptr : hostcuda_view(address, static_cast<size_t>(bytes), mode);
  if (!alias) {
    char why[256];
    std::snprintf(where, sizeof where, " (%lld bytes at 0x%llx) is not accessible: ", static_cast<long long>(bytes),
                  address);
    hostcuda_describe(address, bytes < 0 ? SIZE_MAX : static_cast<size_t>(bytes), why, sizeof why);
    break_rule(access, CUDA_ERROR_ILLEGAL_ADDRESS, what + where + why);
  }
  return alias;
}

}  // namespace hostcuda

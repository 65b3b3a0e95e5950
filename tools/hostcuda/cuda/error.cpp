// SPDX-License-Identifier: MIT
// Driver functions cuGetErrorName and cuGetErrorString; what happens when a program breaks a rule of the device.
#include "tools/hostcuda/cuda/driver_api.h"
//
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tools/hostcuda/cuda/running.h"
#include "tools/hostcuda/cuda/settings.h"

namespace hostcuda {

// Exit code of a process that broke a device rule.
constexpr int kFaultExit = 86;

namespace driver {

CUresult cuGetErrorName(CUresult error, const char** p_str) {
  if (p_str == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (error) {
#define HOSTCUDA_ERROR(code, text) \
  case code:                       \
    *p_str = #code;                \
    return CUDA_SUCCESS;
#include "tools/hostcuda/cuda/errors.def"
#undef HOSTCUDA_ERROR
  }
  *p_str = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** p_str) {
  if (p_str == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (error) {
#define HOSTCUDA_ERROR(code, text) \
  case code:                       \
    *p_str = text;                 \
    return CUDA_SUCCESS;
#include "tools/hostcuda/cuda/errors.def"
#undef HOSTCUDA_ERROR
  }
  *p_str = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace driver
}  // namespace hostcuda

extern "C" {

void hostcuda_fault_stop_as(CUresult code, const char* message) {
  const hostcuda::Running running = hostcuda::running_now();
  std::fprintf(stderr, "hostcuda: %s: %s\n", running.name != nullptr ? running.name : "host", message);
  std::fflush(stderr);
  if (!hostcuda::start_settings().sticky || running.sticky == nullptr) _exit(hostcuda::kFaultExit);
  CUresult none = CUDA_SUCCESS;
  running.sticky->compare_exchange_strong(none, code, std::memory_order_relaxed);
}

void hostcuda_fault_stop(const char* message) {
  hostcuda_fault_stop_as(CUDA_ERROR_LAUNCH_FAILED, message);
}

}  // extern "C"

// SPDX-License-Identifier: MIT
// How the runtime API reaches the driver: the uncounted functions of libcuda.so.1, the calling thread's context, and
// the last-error state.
//
// A runtime function is: make a context current (where the real one does), call the driver, remember the error. Error
// numbers are the same in both APIs. A call that fails is remembered until cudaGetLastError; a broken context is
// reported by every call and cannot be reset.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <cuda.h>

#include "tools/hostcuda/core.h"

namespace hostcuda {

// One member a driver function, with its exact type.
struct Driver {
#define HOSTCUDA_CALL(name, parameters, arguments) CUresult(*name) parameters;
#define HOSTCUDA_CALL_PTSZ(name, parameters, arguments)
#define HOSTCUDA_CALL_PTDS(name, parameters, arguments)
#include "tools/hostcuda/cuda/driver_calls.def"
#undef HOSTCUDA_CALL
#undef HOSTCUDA_CALL_PTSZ
#undef HOSTCUDA_CALL_PTDS
};

const Driver& driver();

// Remembers a failure as the thread's last error and passes it on.
cudaError_t remember(cudaError_t error);
inline cudaError_t remember(CUresult result) {
  return remember(static_cast<cudaError_t>(result));
}

// Calls `body`, which returns a CUresult, with a context current.
template <class Body>
cudaError_t in_context(Body&& body) {
  CUresult result = hostcuda_use_device(-1);
  if (result == CUDA_SUCCESS) result = body();
  return remember(result);
}

// The stream that 0 stands for in the ..._ptsz and ..._ptds functions.
inline cudaStream_t per_thread(cudaStream_t stream) {
  return stream == nullptr ? cudaStreamPerThread : stream;
}

inline CUdeviceptr address_of(const void* p) {
  return reinterpret_cast<CUdeviceptr>(p);
}

}  // namespace hostcuda

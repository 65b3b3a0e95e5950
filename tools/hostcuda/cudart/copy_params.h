// SPDX-License-Identifier: MIT
// Copies as the runtime describes them, turned into the driver's form.
#pragma once

#include "tools/hostcuda/cudart/runtime.h"

namespace hostcuda {

// A three-dimensional copy between linear memory. cudaErrorNotSupported (as a CUresult): an array; _INVALID_VALUE,
// cudaErrorInvalidMemcpyDirection: malformed.
CUresult driver_copy(const cudaMemcpy3DParms& from, CUDA_MEMCPY3D* to);

// One row.
CUresult driver_copy(void* dst, const void* src, size_t count, cudaMemcpyKind kind, CUDA_MEMCPY3D* to);

// The driver's struct of the same layout.
template <class To, class From>
To* same_layout(From* from) {
  static_assert(sizeof(To) == sizeof(From));
  return reinterpret_cast<To*>(from);
}

// The kernel behind a host function, loaded where needed: kernel.cpp.
CUresult find_kernel(const void* host_function, CUkernel* kernel);

}  // namespace hostcuda

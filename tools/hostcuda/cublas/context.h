// SPDX-License-Identifier: MIT
// What a cublasHandle_t of the host device points to.
#pragma once

#pragma GCC visibility push(default)
#include <cublas_api.h>
#pragma GCC visibility pop

#include <stddef.h>

#include "tools/hostcuda/cublaslt/handle.h"

// Not locked: as in cuBLAS, a handle is for one thread at a time.
struct cublasContext {
  HostcudaHandle head;  // first, so that the handle serves as a cublasLtHandle_t
  cudaStream_t stream = nullptr;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
  cublasAtomicsMode_t atomics_mode = CUBLAS_ATOMICS_NOT_ALLOWED;
  int sm_count_target = 0;
  void* workspace = nullptr;  // kept for its checks; products here need none
  size_t workspace_bytes = 0;
};

namespace hostcuda {
inline bool live(cublasHandle_t handle) {
  return handle && hostcuda_handle_live(&handle->head);
}
}  // namespace hostcuda

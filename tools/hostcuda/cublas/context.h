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
  // How FP32 and FP64 products may be emulated. Kept and given back: products here are never emulated.
  cublasEmulationStrategy_t emulation_strategy = CUBLAS_EMULATION_STRATEGY_DEFAULT;
  cudaEmulationSpecialValuesSupport emulation_special_values = CUDA_EMULATION_SPECIAL_VALUES_SUPPORT_DEFAULT;
  cudaEmulationMantissaControl mantissa_control = CUDA_EMULATION_MANTISSA_CONTROL_DYNAMIC;
  int mantissa_max_bits = 0;
  int mantissa_bit_offset = 0;
  int* mantissa_bit_count = nullptr;
  void* workspace = nullptr;  // kept for its checks; products here need none
  size_t workspace_bytes = 0;
};

namespace hostcuda {
inline bool live(cublasHandle_t handle) {
  return handle && hostcuda_handle_live(&handle->head);
}
}  // namespace hostcuda

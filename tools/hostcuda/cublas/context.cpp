// SPDX-License-Identifier: MIT
// cuBLAS handles and their state, versions, status texts.
#include "tools/hostcuda/cublas/context.h"

#pragma GCC visibility push(default)
#include <cublasLt.h>
#pragma GCC visibility pop

#include <new>

#include "tools/hostcuda/cublas/logger.h"

namespace {

template <typename Value>
cublasStatus_t read_state(cublasHandle_t handle, Value cublasContext::*member, Value* out) {
  if (!hostcuda::live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!out) return CUBLAS_STATUS_INVALID_VALUE;
  *out = handle->*member;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Value>
cublasStatus_t write_state(cublasHandle_t handle, Value cublasContext::*member, Value value, bool allowed) {
  if (!hostcuda::live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!allowed) return CUBLAS_STATUS_INVALID_VALUE;
  handle->*member = value;
  return CUBLAS_STATUS_SUCCESS;
}

bool known_math_mode(int mode) {
  switch (mode & ~int{CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION}) {
    case CUBLAS_DEFAULT_MATH:
    case CUBLAS_TENSOR_OP_MATH:
    case CUBLAS_PEDANTIC_MATH:
    case CUBLAS_TF32_TENSOR_OP_MATH:
    case CUBLAS_FP32_EMULATED_BF16X9_MATH:
    case CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH:
      return true;
    default:
      return false;
  }
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  auto* context = new (std::nothrow) cublasContext{};
  if (!context) return CUBLAS_STATUS_ALLOC_FAILED;
  if (!hostcuda_handle_open(&context->head)) {
    delete context;
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  *handle = context;
  hostcuda::log_call("cublasCreate_v2");
  return CUBLAS_STATUS_SUCCESS;
}

// Work in flight keeps nothing of the handle, so nothing is waited for.
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (!hostcuda::live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  hostcuda::log_call("cublasDestroy_v2");
  handle->head.magic = 0;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  if (!version) return CUBLAS_STATUS_INVALID_VALUE;
  *version = static_cast<int>(cublasLtGetVersion());
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
  return cublasLtGetProperty(type, value);
}

size_t cublasGetCudartVersion(void) {
  return cublasLtGetCudartVersion();
}

// As documented, this takes a user's workspace away.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId) {
  const cublasStatus_t status = write_state(handle, &cublasContext::stream, streamId, true);
  if (status == CUBLAS_STATUS_SUCCESS) {
    handle->workspace = nullptr;
    handle->workspace_bytes = 0;
  }
  return status;
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* streamId) {
  return read_state(handle, &cublasContext::stream, streamId);
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t workspaceSizeInBytes) {
  constexpr uintptr_t kAlignment = 256;  // documented
  const cublasStatus_t status = write_state(handle, &cublasContext::workspace, workspace,
                                            reinterpret_cast<uintptr_t>(workspace) % kAlignment == 0);
  if (status == CUBLAS_STATUS_SUCCESS) handle->workspace_bytes = workspaceSizeInBytes;
  return status;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  return write_state(handle, &cublasContext::pointer_mode, mode,
                     mode == CUBLAS_POINTER_MODE_HOST || mode == CUBLAS_POINTER_MODE_DEVICE);
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  return read_state(handle, &cublasContext::pointer_mode, mode);
}

// TF32_TENSOR_OP_MATH makes FP32 products TF32 (gemm.h); the others are kept and given back.
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return write_state(handle, &cublasContext::math_mode, mode, known_math_mode(mode));
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  return read_state(handle, &cublasContext::math_mode, mode);
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
  return write_state(handle, &cublasContext::atomics_mode, mode,
                     mode == CUBLAS_ATOMICS_NOT_ALLOWED || mode == CUBLAS_ATOMICS_ALLOWED);
}

cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t* mode) {
  return read_state(handle, &cublasContext::atomics_mode, mode);
}

cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int smCountTarget) {
  return write_state(handle, &cublasContext::sm_count_target, smCountTarget, smCountTarget >= 0);
}

cublasStatus_t cublasGetSmCountTarget(cublasHandle_t handle, int* smCountTarget) {
  return read_state(handle, &cublasContext::sm_count_target, smCountTarget);
}

cublasStatus_t cublasSetEmulationStrategy(cublasHandle_t handle, cublasEmulationStrategy_t strategy) {
  return write_state(handle, &cublasContext::emulation_strategy, strategy,
                     strategy >= CUBLAS_EMULATION_STRATEGY_DEFAULT && strategy <= CUBLAS_EMULATION_STRATEGY_EAGER);
}

cublasStatus_t cublasGetEmulationStrategy(cublasHandle_t handle, cublasEmulationStrategy_t* strategy) {
  return read_state(handle, &cublasContext::emulation_strategy, strategy);
}

cublasStatus_t cublasSetEmulationSpecialValuesSupport(cublasHandle_t handle, cudaEmulationSpecialValuesSupport mask) {
  return write_state(handle, &cublasContext::emulation_special_values, mask, true);
}

cublasStatus_t cublasGetEmulationSpecialValuesSupport(cublasHandle_t handle, cudaEmulationSpecialValuesSupport* mask) {
  return read_state(handle, &cublasContext::emulation_special_values, mask);
}

cublasStatus_t cublasSetFixedPointEmulationMantissaControl(cublasHandle_t handle,
                                                           cudaEmulationMantissaControl control) {
  return write_state(
      handle, &cublasContext::mantissa_control, control,
      control == CUDA_EMULATION_MANTISSA_CONTROL_DYNAMIC || control == CUDA_EMULATION_MANTISSA_CONTROL_FIXED);
}

cublasStatus_t cublasGetFixedPointEmulationMantissaControl(cublasHandle_t handle,
                                                           cudaEmulationMantissaControl* control) {
  return read_state(handle, &cublasContext::mantissa_control, control);
}

cublasStatus_t cublasSetFixedPointEmulationMaxMantissaBitCount(cublasHandle_t handle, int count) {
  return write_state(handle, &cublasContext::mantissa_max_bits, count, count >= 0);
}

cublasStatus_t cublasGetFixedPointEmulationMaxMantissaBitCount(cublasHandle_t handle, int* count) {
  return read_state(handle, &cublasContext::mantissa_max_bits, count);
}

cublasStatus_t cublasSetFixedPointEmulationMantissaBitOffset(cublasHandle_t handle, int offset) {
  return write_state(handle, &cublasContext::mantissa_bit_offset, offset, true);
}

cublasStatus_t cublasGetFixedPointEmulationMantissaBitOffset(cublasHandle_t handle, int* offset) {
  return read_state(handle, &cublasContext::mantissa_bit_offset, offset);
}

cublasStatus_t cublasSetFixedPointEmulationMantissaBitCountPointer(cublasHandle_t handle, int* count) {
  return write_state(handle, &cublasContext::mantissa_bit_count, count, true);
}

cublasStatus_t cublasGetFixedPointEmulationMantissaBitCountPointer(cublasHandle_t handle, int** count) {
  return read_state(handle, &cublasContext::mantissa_bit_count, count);
}

const char* cublasGetStatusName(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

const char* cublasGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusString(status);
}

}  // extern "C"

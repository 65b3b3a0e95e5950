// SPDX-License-Identifier: MIT
// cuBLASLt's handles, versions, status texts, and the settings that change no result (logger, heuristics cache).
#include <atomic>
#include <new>

#include "tools/hostcuda/core.h"
#include "tools/hostcuda/cublaslt/descriptors.h"
#include "tools/hostcuda/cublaslt/handle.h"
#include "tools/hostcuda/major/version.h"

extern "C" {

__attribute__((visibility("default"))) int hostcuda_handle_open(HostcudaHandle* handle) {
  if (hostcuda_device_count() == 0 || hostcuda_use_device(-1) != CUDA_SUCCESS) return 0;
  handle->context = hostcuda_current_context();
  handle->device = hostcuda_device_ordinal(nullptr);
  handle->magic = hostcuda::kHandleMagic;
  return 1;
}

__attribute__((visibility("default"))) int hostcuda_handle_live(const HostcudaHandle* handle) {
  return handle && handle->magic == hostcuda::kHandleMagic;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  if (!lightHandle) return CUBLAS_STATUS_INVALID_VALUE;
  auto* handle = new (std::nothrow) HostcudaHandle{};
  if (!handle) return CUBLAS_STATUS_ALLOC_FAILED;
  if (!hostcuda_handle_open(handle)) {
    delete handle;
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  *lightHandle = reinterpret_cast<cublasLtHandle_t>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

// Work in flight keeps nothing of the handle, so nothing is waited for.
cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  auto* handle = reinterpret_cast<HostcudaHandle*>(lightHandle);
  if (!hostcuda_handle_live(handle)) return CUBLAS_STATUS_INVALID_VALUE;
  handle->magic = 0;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) {
  return static_cast<size_t>(hostcuda::kCublasVersion);
}

size_t cublasLtGetCudartVersion(void) {
  return static_cast<size_t>(hostcuda::kCudartVersion);
}

cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int* value) {
  if (!value) return CUBLAS_STATUS_INVALID_VALUE;
  switch (type) {
    case MAJOR_VERSION:
      *value = hostcuda::kCublasVersion / 10000;
      return CUBLAS_STATUS_SUCCESS;
    case MINOR_VERSION:
      *value = hostcuda::kCublasVersion / 100 % 100;
      return CUBLAS_STATUS_SUCCESS;
    case PATCH_LEVEL:
      *value = hostcuda::kCublasVersion % 100;
      return CUBLAS_STATUS_SUCCESS;
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unrecognized status";
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "the function requires an architectural feature absent from the device";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "an access to GPU memory space failed";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "an internal operation failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the requested functionality is not supported";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "the license check failed";
  }
  return "unrecognized status";
}

static std::atomic<size_t> heuristics_cache_capacity{8192};  // the real library's default

cublasStatus_t cublasLtHeuristicsCacheGetCapacity(size_t* capacity) {
  if (!capacity) return CUBLAS_STATUS_INVALID_VALUE;
  *capacity = heuristics_cache_capacity.load(std::memory_order_relaxed);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtHeuristicsCacheSetCapacity(size_t capacity) {
  heuristics_cache_capacity.store(capacity, std::memory_order_relaxed);
  return CUBLAS_STATUS_SUCCESS;
}

// The host device writes no cuBLAS log.
cublasStatus_t cublasLtLoggerSetCallback(cublasLtLoggerCallback_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtLoggerSetFile(FILE*) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtLoggerOpenFile(const char*) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtLoggerSetLevel(int level) {
  return level < 0 || level > 5 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtLoggerSetMask(int) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtLoggerForceDisable() {
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

// SPDX-License-Identifier: MIT
// cublasSet/GetVector and cublasSet/GetMatrix: strided copies between host and device, over the driver's 2-D copy.
#include <limits>

#include "tools/hostcuda/core.h"
#include "tools/hostcuda/cublas/context.h"

namespace {

enum class Direction { kToDevice, kToHost };

// When: `stream` null and `wait`: a plain copy as cudaMemcpy2D does it, done on return. Else in stream order.
struct When {
  bool wait;
  cudaStream_t stream;
};

// rows x cols elements, column-major, between leading dimensions ld_from and ld_to (elements).
cublasStatus_t copy(Direction direction, int64_t rows, int64_t cols, int64_t elem_bytes, const void* from,
                    int64_t ld_from, void* to, int64_t ld_to, When when) {
  if (rows < 0 || cols < 0 || elem_bytes <= 0 || ld_from <= 0 || ld_to <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (rows == 0 || cols == 0) return CUBLAS_STATUS_SUCCESS;
  if (!from || !to || (cols > 1 && (ld_from < rows || ld_to < rows))) return CUBLAS_STATUS_INVALID_VALUE;
  if (!hostcuda_current_context() && hostcuda_use_device(-1) != CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;
  CUDA_MEMCPY2D shape{};
  shape.WidthInBytes = static_cast<size_t>(rows) * static_cast<size_t>(elem_bytes);
  shape.Height = static_cast<size_t>(cols);
  shape.srcPitch = cols == 1 ? shape.WidthInBytes : static_cast<size_t>(ld_from) * static_cast<size_t>(elem_bytes);
  shape.dstPitch = cols == 1 ? shape.WidthInBytes : static_cast<size_t>(ld_to) * static_cast<size_t>(elem_bytes);
  if (direction == Direction::kToDevice) {
    shape.srcMemoryType = CU_MEMORYTYPE_HOST;
    shape.srcHost = from;
    shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    shape.dstDevice = reinterpret_cast<CUdeviceptr>(to);
  } else {
    shape.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    shape.srcDevice = reinterpret_cast<CUdeviceptr>(from);
    shape.dstMemoryType = CU_MEMORYTYPE_HOST;
    shape.dstHost = to;
  }
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (when.wait) {
    using Copy = CUresult (*)(const CUDA_MEMCPY2D*);
    if (const auto call = reinterpret_cast<Copy>(hostcuda_driver("cuMemcpy2D_v2"))) result = call(&shape);
  } else {
    using Copy = CUresult (*)(const CUDA_MEMCPY2D*, CUstream);
    if (const auto call = reinterpret_cast<Copy>(hostcuda_driver("cuMemcpy2DAsync_v2"))) {
      result = call(&shape, when.stream);
    }
  }
  return result == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

// A vector with increment inc is one row of n columns with leading dimension inc; contiguous ones are one column.
cublasStatus_t copy_vector(Direction direction, int64_t n, int64_t elem_bytes, const void* from, int64_t inc_from,
                           void* to, int64_t inc_to, When when) {
  if (inc_from == 1 && inc_to == 1) {
    const int64_t ld = n > 0 ? n : 1;
    return copy(direction, n, n < 0 ? n : 1, elem_bytes, from, ld, to, ld, when);
  }
  return copy(direction, 1, n, elem_bytes, from, inc_from, to, inc_to, when);
}

constexpr When kNow{true, nullptr};

}  // namespace

#define HOSTCUDA_VECTOR(verb, direction, suffix, Size)                                                              \
  cublasStatus_t cublas##verb##Vector##suffix(Size n, Size elemSize, const void* from, Size incFrom, void* to,      \
                                              Size incTo) {                                                         \
    return copy_vector(direction, n, elemSize, from, incFrom, to, incTo, kNow);                                     \
  }                                                                                                                 \
  cublasStatus_t cublas##verb##VectorAsync##suffix(Size n, Size elemSize, const void* from, Size incFrom, void* to, \
                                                   Size incTo, cudaStream_t stream) {                               \
    return copy_vector(direction, n, elemSize, from, incFrom, to, incTo, {false, stream});                          \
  }

#define HOSTCUDA_MATRIX(verb, direction, suffix, Size)                                                               \
  cublasStatus_t cublas##verb##Matrix##suffix(Size rows, Size cols, Size elemSize, const void* A, Size lda, void* B, \
                                              Size ldb) {                                                            \
    return copy(direction, rows, cols, elemSize, A, lda, B, ldb, kNow);                                              \
  }                                                                                                                  \
  cublasStatus_t cublas##verb##MatrixAsync##suffix(Size rows, Size cols, Size elemSize, const void* A, Size lda,     \
                                                   void* B, Size ldb, cudaStream_t stream) {                         \
    return copy(direction, rows, cols, elemSize, A, lda, B, ldb, {false, stream});                                   \
  }

extern "C" {

HOSTCUDA_VECTOR(Set, Direction::kToDevice, , int)
HOSTCUDA_VECTOR(Set, Direction::kToDevice, _64, int64_t)
HOSTCUDA_VECTOR(Get, Direction::kToHost, , int)
HOSTCUDA_VECTOR(Get, Direction::kToHost, _64, int64_t)
HOSTCUDA_MATRIX(Set, Direction::kToDevice, , int)
HOSTCUDA_MATRIX(Set, Direction::kToDevice, _64, int64_t)
HOSTCUDA_MATRIX(Get, Direction::kToHost, , int)
HOSTCUDA_MATRIX(Get, Direction::kToHost, _64, int64_t)

}  // extern "C"

// SPDX-License-Identifier: MIT
// cuBLASXt: takes matrices in host or device memory, gives C = alpha op(A) op(B) + beta C there when it returns.
// Columns of C go to the selected devices in blocks, in turn; each block's product is one GEMM of a handle on its
// device.
#pragma GCC visibility push(default)
#include <cublasXt.h>
#pragma GCC visibility pop

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "tools/hostcuda/core.h"
#include "tools/hostcuda/cublas/context.h"

struct cublasXtContext {
  std::vector<int> devices;
  int block_dim = 1024;  // documented default
  cublasXtPinnedMemMode_t pinning = CUBLASXT_PINNING_DISABLED;
};

namespace hostcuda {
namespace {

template <typename Function>
Function* driver(const char* name) {
  return reinterpret_cast<Function*>(hostcuda_driver(name));
}

// Makes a device current, and what was current before again at the end.
class OnDevice {
 public:
  explicit OnDevice(int ordinal) : before_(hostcuda_current_context()) {
    ready_ = hostcuda_use_device(ordinal) == CUDA_SUCCESS;
  }
  ~OnDevice() { driver<CUresult(CUcontext)>("cuCtxSetCurrent")(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  bool ready() const { return ready_; }

 private:
  CUcontext before_;
  bool ready_;
};

// One matrix of the call, or its copy on a device.
struct XtMatrix {
  CUdeviceptr address;
  size_t rows, cols, ld;
  size_t elem_bytes;
};

// Between any two memories.
bool copy(const XtMatrix& from, const XtMatrix& to) {
  if (from.rows == 0 || from.cols == 0) return true;
  CUDA_MEMCPY2D shape{};
  shape.srcMemoryType = shape.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  shape.srcDevice = from.address;
  shape.dstDevice = to.address;
  shape.WidthInBytes = from.rows * from.elem_bytes;
  shape.Height = from.cols;
  shape.srcPitch = from.ld * from.elem_bytes;
  shape.dstPitch = to.ld * to.elem_bytes;
  return driver<CUresult(const CUDA_MEMCPY2D*)>("cuMemcpy2DUnaligned_v2")(&shape) == CUDA_SUCCESS;
}

// Memory of the current device for one matrix, without gaps.
class DeviceCopy {
 public:
  explicit DeviceCopy(const XtMatrix& like) : matrix_(like) {
    matrix_.address = 0;
    matrix_.ld = std::max<size_t>(like.rows, 1);
    const size_t bytes = std::max<size_t>(matrix_.ld * like.cols * like.elem_bytes, 1);
    if (driver<CUresult(CUdeviceptr*, size_t)>("cuMemAlloc_v2")(&matrix_.address, bytes) != CUDA_SUCCESS) {
      matrix_.address = 0;
    }
  }
  ~DeviceCopy() {
    if (matrix_.address) driver<CUresult(CUdeviceptr)>("cuMemFree_v2")(matrix_.address);
  }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;
  const XtMatrix& matrix() const { return matrix_; }
  bool allocated() const { return matrix_.address != 0; }

 private:
  XtMatrix matrix_;
};

XtMatrix columns(const XtMatrix& x, size_t first, size_t count) {
  return {x.address + first * x.ld * x.elem_bytes, x.rows, count, x.ld, x.elem_bytes};
}
XtMatrix rows(const XtMatrix& x, size_t first, size_t count) {
  return {x.address + first * x.elem_bytes, count, x.cols, x.ld, x.elem_bytes};
}

// product(handle, m, n, k, a, b, c) for one block of columns of C on its device.
template <typename Product>
cublasStatus_t xt_gemm(cublasXtHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, size_t m, size_t n,
                       size_t k, XtMatrix a, XtMatrix b, XtMatrix c, Product product) {
  if (!handle || handle->devices.empty()) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool known = transa >= CUBLAS_OP_N && transa <= CUBLAS_OP_C && transb >= CUBLAS_OP_N && transb <= CUBLAS_OP_C;
  if (!known || a.ld < std::max<size_t>(1, a.rows) || b.ld < std::max<size_t>(1, b.rows) ||
      c.ld < std::max<size_t>(1, c.rows)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
  if (!c.address || (k > 0 && (!a.address || !b.address))) return CUBLAS_STATUS_INVALID_VALUE;
  const auto width = static_cast<size_t>(handle->block_dim);
  size_t turn = 0;
  for (size_t first = 0; first < n; first += width, ++turn) {
    const size_t count = std::min(width, n - first);
    const OnDevice current(handle->devices[turn % handle->devices.size()]);
    if (!current.ready()) return CUBLAS_STATUS_NOT_INITIALIZED;
    const XtMatrix b_block = transb == CUBLAS_OP_N ? columns(b, first, count) : rows(b, first, count);
    const XtMatrix c_block = columns(c, first, count);
    const DeviceCopy a_dev(a);
    const DeviceCopy b_dev(b_block);
    const DeviceCopy c_dev(c_block);
    if (!a_dev.allocated() || !b_dev.allocated() || !c_dev.allocated()) return CUBLAS_STATUS_ALLOC_FAILED;
    if (!copy(a, a_dev.matrix()) || !copy(b_block, b_dev.matrix()) || !copy(c_block, c_dev.matrix())) {
      return CUBLAS_STATUS_MAPPING_ERROR;
    }
    cublasHandle_t blas = nullptr;
    cublasStatus_t status = cublasCreate_v2(&blas);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    status = product(blas, static_cast<int64_t>(m), static_cast<int64_t>(count), static_cast<int64_t>(k),
                     a_dev.matrix(), b_dev.matrix(), c_dev.matrix());
    if (status == CUBLAS_STATUS_SUCCESS && hostcuda_stream_synchronize(nullptr) != CUDA_SUCCESS) {
      status = CUBLAS_STATUS_EXECUTION_FAILED;
    }
    cublasDestroy_v2(blas);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (!copy(c_dev.matrix(), c_block)) return CUBLAS_STATUS_MAPPING_ERROR;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace hostcuda

#define HOSTCUDA_XT_GEMM(L, T)                                                                                       \
  cublasStatus_t cublasXt##L##gemm(cublasXtHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,      \
                                   size_t m, size_t n, size_t k, const T* alpha, const T* A, size_t lda, const T* B, \
                                   size_t ldb, const T* beta, T* C, size_t ldc) {                                    \
    if (!alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;                                                         \
    const auto place = [](const T* x) { return reinterpret_cast<CUdeviceptr>(x); };                                  \
    const bool plain_a = transa == CUBLAS_OP_N;                                                                      \
    const bool plain_b = transb == CUBLAS_OP_N;                                                                      \
    return hostcuda::xt_gemm(                                                                                        \
        handle, transa, transb, m, n, k, {place(A), plain_a ? m : k, plain_a ? k : m, lda, sizeof(T)},               \
        {place(B), plain_b ? k : n, plain_b ? n : k, ldb, sizeof(T)}, {place(C), m, n, ldc, sizeof(T)},              \
        [=](cublasHandle_t blas, int64_t rows, int64_t cols, int64_t depth, const auto& a, const auto& b,            \
            const auto& c) {                                                                                         \
          return cublas##L##gemm_v2_64(blas, transa, transb, rows, cols, depth, alpha,                               \
                                       reinterpret_cast<const T*>(a.address), static_cast<int64_t>(a.ld),            \
                                       reinterpret_cast<const T*>(b.address), static_cast<int64_t>(b.ld), beta,      \
                                       reinterpret_cast<T*>(c.address), static_cast<int64_t>(c.ld));                 \
        });                                                                                                          \
  }

extern "C" {

cublasStatus_t cublasXtCreate(cublasXtHandle_t* handle) {
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  if (hostcuda_device_count() == 0) return CUBLAS_STATUS_NOT_INITIALIZED;
  auto* context = new (std::nothrow) cublasXtContext;
  if (!context) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = context;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasXtDestroy(cublasXtHandle_t handle) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasXtDeviceSelect(cublasXtHandle_t handle, int nbDevices, int deviceId[]) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (nbDevices <= 0 || !deviceId) return CUBLAS_STATUS_INVALID_VALUE;
  for (int i = 0; i < nbDevices; ++i) {
    if (deviceId[i] < 0 || deviceId[i] >= hostcuda_device_count()) return CUBLAS_STATUS_INVALID_VALUE;
  }
  handle->devices.assign(deviceId, deviceId + nbDevices);
  return CUBLAS_STATUS_SUCCESS;
}

// One device is one board here.
cublasStatus_t cublasXtGetNumBoards(int nbDevices, int deviceId[], int* nbBoards) {
  if (nbDevices < 0 || (nbDevices > 0 && !deviceId) || !nbBoards) return CUBLAS_STATUS_INVALID_VALUE;
  std::vector<int> different(deviceId, deviceId + nbDevices);
  std::sort(different.begin(), different.end());
  *nbBoards = static_cast<int>(std::unique(different.begin(), different.end()) - different.begin());
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasXtMaxBoards(int* nbGpuBoards) {
  if (!nbGpuBoards) return CUBLAS_STATUS_INVALID_VALUE;
  *nbGpuBoards = hostcuda_device_count();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasXtSetBlockDim(cublasXtHandle_t handle, int blockDim) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (blockDim <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  handle->block_dim = blockDim;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasXtGetBlockDim(cublasXtHandle_t handle, int* blockDim) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!blockDim) return CUBLAS_STATUS_INVALID_VALUE;
  *blockDim = handle->block_dim;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasXtSetPinningMemMode(cublasXtHandle_t handle, cublasXtPinnedMemMode_t mode) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (mode != CUBLASXT_PINNING_DISABLED && mode != CUBLASXT_PINNING_ENABLED) return CUBLAS_STATUS_INVALID_VALUE;
  handle->pinning = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasXtGetPinningMemMode(cublasXtHandle_t handle, cublasXtPinnedMemMode_t* mode) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!mode) return CUBLAS_STATUS_INVALID_VALUE;
  *mode = handle->pinning;
  return CUBLAS_STATUS_SUCCESS;
}

HOSTCUDA_XT_GEMM(S, float)
HOSTCUDA_XT_GEMM(D, double)
HOSTCUDA_XT_GEMM(C, cuComplex)
HOSTCUDA_XT_GEMM(Z, cuDoubleComplex)

}  // extern "C"

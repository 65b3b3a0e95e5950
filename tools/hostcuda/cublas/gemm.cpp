// SPDX-License-Identifier: MIT
// cuBLAS GEMM entry points: take BLAS arguments, check them in the documented order, give a product in the handle's
// stream.
#include "tools/hostcuda/cublas/gemm.h"

#include "tools/hostcuda/cublaslt/product.h"

namespace hostcuda {
namespace {

bool known_operation(int op) {
  return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}

bool known_algorithm(int algo) {
  return (algo >= CUBLAS_GEMM_DEFAULT && algo <= CUBLAS_GEMM_ALGO23) ||
         (algo >= CUBLAS_GEMM_DEFAULT_TENSOR_OP && algo <= CUBLAS_GEMM_ALGO15_TENSOR_OP) ||
         algo == CUBLAS_GEMM_AUTOTUNE;
}

int64_t least_ld(int64_t rows) {
  return rows > 1 ? rows : 1;
}

cudaDataType scale_of(int compute) {
  return compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC ? CUDA_R_16F : CUDA_R_32F;
}

Matrix matrix(const void* pointer, int64_t ld, int64_t stride, int type) {
  Matrix result{reinterpret_cast<CUdeviceptr>(pointer), ld, stride, gemm::Type::kFp32, false};
  type_of(static_cast<cudaDataType>(type), &result.type);
  return result;
}

}  // namespace

cublasStatus_t gemm_call(const GemmArguments& x) {
  if (!live(x.handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!known_operation(x.transa) || !known_operation(x.transb) || !known_algorithm(x.algo)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (x.m < 0 || x.n < 0 || x.k < 0 || x.batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (x.lda < least_ld(x.transa == CUBLAS_OP_N ? x.m : x.k) || x.ldb < least_ld(x.transb == CUBLAS_OP_N ? x.k : x.n) ||
      x.ldc < least_ld(x.m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Matmul matmul{};
  const cublasStatus_t status =
      hostcuda_check_types(static_cast<cublasComputeType_t>(x.compute), scale_of(x.compute),
                           static_cast<cudaDataType>(x.a_type), static_cast<cudaDataType>(x.b_type),
                           static_cast<cudaDataType>(x.c_type), static_cast<cudaDataType>(x.c_type), &matmul.compute);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (x.m == 0 || x.n == 0 || x.batch == 0) return CUBLAS_STATUS_SUCCESS;
  if (!x.alpha || !x.beta || !x.c) return CUBLAS_STATUS_INVALID_VALUE;

  const gemm::Type scalar_type = scale_of(x.compute) == CUDA_R_16F ? gemm::Type::kFp16 : gemm::Type::kFp32;
  const bool scalars_on_device = x.handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
  matmul.name = x.name;
  matmul.m = x.m;
  matmul.n = x.n;
  matmul.k = x.k;
  matmul.batch = x.batch;
  matmul.a = matrix(x.a, x.lda, x.stride_a, x.a_type);
  matmul.b = matrix(x.b, x.ldb, x.stride_b, x.b_type);
  matmul.c = matrix(x.c, x.ldc, x.stride_c, x.c_type);
  matmul.d = matmul.c;
  matmul.transpose_a = x.transa != CUBLAS_OP_N;
  matmul.transpose_b = x.transb != CUBLAS_OP_N;
  matmul.alpha = hostcuda_scalar(x.alpha, scalar_type, scalars_on_device);
  matmul.beta = hostcuda_scalar(x.beta, scalar_type, scalars_on_device);
  return hostcuda_matmul(&x.handle->head, &matmul, x.handle->stream);
}

}  // namespace hostcuda

namespace {

using hostcuda::gemm_call;
using hostcuda::GemmArguments;

cublasStatus_t gemm_ex(const GemmArguments& x) {
  return hostcuda::routes_through_lt() ? hostcuda::gemm_by_lt(x) : gemm_call(x);
}

}  // namespace

// One body for the 32-bit and the 64-bit form of an entry point, which differ in the type of sizes alone.
#define HOSTCUDA_BOTH(define) define(, int) define(_64, int64_t)

#define HOSTCUDA_GEMM_EX(suffix, Size)                                                                              \
  cublasStatus_t cublasGemmEx##suffix(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,    \
                                      Size m, Size n, Size k, const void* alpha, const void* A, cudaDataType Atype, \
                                      Size lda, const void* B, cudaDataType Btype, Size ldb, const void* beta,      \
                                      void* C, cudaDataType Ctype, Size ldc, cublasComputeType_t computeType,       \
                                      cublasGemmAlgo_t algo) {                                                      \
    return gemm_ex({"cublasGemmEx" #suffix,                                                                         \
                    handle,                                                                                         \
                    transa,                                                                                         \
                    transb,                                                                                         \
                    m,                                                                                              \
                    n,                                                                                              \
                    k,                                                                                              \
                    alpha,                                                                                          \
                    A,                                                                                              \
                    Atype,                                                                                          \
                    lda,                                                                                            \
                    0,                                                                                              \
                    B,                                                                                              \
                    Btype,                                                                                          \
                    ldb,                                                                                            \
                    0,                                                                                              \
                    beta,                                                                                           \
                    C,                                                                                              \
                    Ctype,                                                                                          \
                    ldc,                                                                                            \
                    0,                                                                                              \
                    1,                                                                                              \
                    computeType,                                                                                    \
                    algo});                                                                                         \
  }

#define HOSTCUDA_GEMM_STRIDED_BATCHED_EX(suffix, Size)                                                              \
  cublasStatus_t cublasGemmStridedBatchedEx##suffix(                                                                \
      cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, Size m, Size n, Size k,            \
      const void* alpha, const void* A, cudaDataType Atype, Size lda, long long int strideA, const void* B,         \
      cudaDataType Btype, Size ldb, long long int strideB, const void* beta, void* C, cudaDataType Ctype, Size ldc, \
      long long int strideC, Size batchCount, cublasComputeType_t computeType, cublasGemmAlgo_t algo) {             \
    return gemm_call({"cublasGemmStridedBatchedEx" #suffix,                                                         \
                      handle,                                                                                       \
                      transa,                                                                                       \
                      transb,                                                                                       \
                      m,                                                                                            \
                      n,                                                                                            \
                      k,                                                                                            \
                      alpha,                                                                                        \
                      A,                                                                                            \
                      Atype,                                                                                        \
                      lda,                                                                                          \
                      strideA,                                                                                      \
                      B,                                                                                            \
                      Btype,                                                                                        \
                      ldb,                                                                                          \
                      strideB,                                                                                      \
                      beta,                                                                                         \
                      C,                                                                                            \
                      Ctype,                                                                                        \
                      ldc,                                                                                          \
                      strideC,                                                                                      \
                      batchCount,                                                                                   \
                      computeType,                                                                                  \
                      algo});                                                                                       \
  }

#define HOSTCUDA_PLAIN_GEMM(name, Size, Element, type, compute)                                                     \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, Size m, Size n,    \
                      Size k, const Element* alpha, const Element* A, Size lda, const Element* B, Size ldb,         \
                      const Element* beta, Element* C, Size ldc) {                                                  \
    return gemm_call({#name, handle, transa, transb, m,    n, k,    alpha, A, type, lda,     0,                     \
                      B,     type,   ldb,    0,      beta, C, type, ldc,   0, 1,    compute, CUBLAS_GEMM_DEFAULT}); \
  }

#define HOSTCUDA_STRIDED_GEMM(name, Size, Element, type, compute)                                                   \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, Size m, Size n,    \
                      Size k, const Element* alpha, const Element* A, Size lda, long long int strideA,              \
                      const Element* B, Size ldb, long long int strideB, const Element* beta, Element* C, Size ldc, \
                      long long int strideC, Size batchCount) {                                                     \
    return gemm_call({#name, handle, transa, transb,  m,       n,          k,       alpha,                          \
                      A,     type,   lda,    strideA, B,       type,       ldb,     strideB,                        \
                      beta,  C,      type,   ldc,     strideC, batchCount, compute, CUBLAS_GEMM_DEFAULT});          \
  }

extern "C" {

HOSTCUDA_BOTH(HOSTCUDA_GEMM_EX)
HOSTCUDA_BOTH(HOSTCUDA_GEMM_STRIDED_BATCHED_EX)

HOSTCUDA_PLAIN_GEMM(cublasSgemm_v2, int, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
HOSTCUDA_PLAIN_GEMM(cublasSgemm_v2_64, int64_t, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
HOSTCUDA_PLAIN_GEMM(cublasHgemm, int, __half, CUDA_R_16F, CUBLAS_COMPUTE_16F)
HOSTCUDA_PLAIN_GEMM(cublasHgemm_64, int64_t, __half, CUDA_R_16F, CUBLAS_COMPUTE_16F)

HOSTCUDA_STRIDED_GEMM(cublasSgemmStridedBatched, int, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
HOSTCUDA_STRIDED_GEMM(cublasSgemmStridedBatched_64, int64_t, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
HOSTCUDA_STRIDED_GEMM(cublasHgemmStridedBatched, int, __half, CUDA_R_16F, CUBLAS_COMPUTE_16F)
HOSTCUDA_STRIDED_GEMM(cublasHgemmStridedBatched_64, int64_t, __half, CUDA_R_16F, CUBLAS_COMPUTE_16F)

}  // extern "C"

// SPDX-License-Identifier: MIT
// The GEMM entry points of libcublas: take the arguments of each, give a GemmArguments. One body for the 32-bit and the
// 64-bit form of an entry point, which differ in the type of sizes alone.
#include "tools/hostcuda/cublas/gemm.h"

using hostcuda::gemm_call;
using hostcuda::grouped_gemm_call;

namespace {

// The compute type of the entry points that name none: that of their elements.
constexpr int kSingle = CUBLAS_COMPUTE_32F;
constexpr int kHalf = CUBLAS_COMPUTE_16F;
constexpr int kDouble = CUBLAS_COMPUTE_64F;

}  // namespace

// define(name, Size): an entry point of any types.
#define HOSTCUDA_BOTH(define, name) define(name, int) define(name##_64, int64_t)
// define(name, Size, Element, type, compute): an entry point of one element type.
#define HOSTCUDA_TYPED(define, name, Element, type, compute) \
  define(name, int, Element, type, compute) define(name##_64, int64_t, Element, type, compute)

// clang-format off
#define HOSTCUDA_GEMM_EX(name, Size)                                                                                   \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, Size m, Size n,       \
                      Size k, const void* alpha, const void* A, cudaDataType Atype, Size lda, const void* B,           \
                      cudaDataType Btype, Size ldb, const void* beta, void* C, cudaDataType Ctype, Size ldc,           \
                      cublasComputeType_t computeType, cublasGemmAlgo_t algo) {                                        \
    return hostcuda::gemm_ex_call({#name, handle, transa, transb, m, n, k, alpha, {A, Atype, lda, 0}, {B, Btype, ldb, 0}, beta,       \
                    {C, Ctype, ldc, 0}, 1, computeType, algo, false});                                                 \
  }

#define HOSTCUDA_GEMM_BATCHED_EX(name, Size)                                                                           \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, Size m, Size n,       \
                      Size k, const void* alpha, const void* const A[], cudaDataType Atype, Size lda,                  \
                      const void* const B[], cudaDataType Btype, Size ldb, const void* beta, void* const C[],          \
                      cudaDataType Ctype, Size ldc, Size batchCount, cublasComputeType_t computeType,                  \
                      cublasGemmAlgo_t algo) {                                                                         \
    return gemm_call({#name, handle, transa, transb, m, n, k, alpha, {A, Atype, lda, 0}, {B, Btype, ldb, 0}, beta,     \
                      {C, Ctype, ldc, 0}, batchCount, computeType, algo, true});                                       \
  }

#define HOSTCUDA_GEMM_STRIDED_BATCHED_EX(name, Size)                                                                   \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, Size m, Size n,       \
                      Size k, const void* alpha, const void* A, cudaDataType Atype, Size lda, long long int strideA,   \
                      const void* B, cudaDataType Btype, Size ldb, long long int strideB, const void* beta, void* C,   \
                      cudaDataType Ctype, Size ldc, long long int strideC, Size batchCount,                            \
                      cublasComputeType_t computeType, cublasGemmAlgo_t algo) {                                        \
    return gemm_call({#name, handle, transa, transb, m, n, k, alpha, {A, Atype, lda, strideA},                         \
                      {B, Btype, ldb, strideB}, beta, {C, Ctype, ldc, strideC}, batchCount, computeType, algo, false}); \
  }

#define HOSTCUDA_GEMM_GROUPED_BATCHED_EX(name, Size)                                                                   \
  cublasStatus_t name(cublasHandle_t handle, const cublasOperation_t transa[], const cublasOperation_t transb[],       \
                      const Size m[], const Size n[], const Size k[], const void* alpha, const void* const A[],        \
                      cudaDataType_t Atype, const Size lda[], const void* const B[], cudaDataType_t Btype,             \
                      const Size ldb[], const void* beta, void* const C[], cudaDataType_t Ctype, const Size ldc[],     \
                      Size group_count, const Size group_size[], cublasComputeType_t computeType) {                    \
    return grouped_gemm_call<Size>({#name, handle, transa, transb, alpha, A, Atype, B, Btype, beta, C, Ctype,          \
                                    group_count, computeType}, {m, n, k, lda, ldb, ldc, group_size});                  \
  }

#define HOSTCUDA_SCALED_EX(name, Size, S)                                                                                  \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, Size m, Size n,       \
                      Size k, const S* alpha, const void* A, cudaDataType Atype, Size lda, const void* B,          \
                      cudaDataType Btype, Size ldb, const S* beta, void* C, cudaDataType Ctype, Size ldc) {        \
    return gemm_call({#name, handle, transa, transb, m, n, k, alpha, {A, Atype, lda, 0}, {B, Btype, ldb, 0}, beta,     \
                      {C, Ctype, ldc, 0}, 1, kSingle, CUBLAS_GEMM_DEFAULT, false});                                    \
  }

#define HOSTCUDA_SGEMM_EX(name, Size) HOSTCUDA_SCALED_EX(name, Size, float)
#define HOSTCUDA_CGEMM_EX(name, Size) HOSTCUDA_SCALED_EX(name, Size, cuComplex)

#define HOSTCUDA_GEMM(name, Size, Element, type, compute)                                                              \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, Size m, Size n,       \
                      Size k, const Element* alpha, const Element* A, Size lda, const Element* B, Size ldb,            \
                      const Element* beta, Element* C, Size ldc) {                                                     \
    return gemm_call({#name, handle, transa, transb, m, n, k, alpha, {A, type, lda, 0}, {B, type, ldb, 0}, beta,       \
                      {C, type, ldc, 0}, 1, compute, CUBLAS_GEMM_DEFAULT, false});                                     \
  }

#define HOSTCUDA_GEMM_BATCHED(name, Size, Element, type, compute)                                                      \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, Size m, Size n,       \
                      Size k, const Element* alpha, const Element* const A[], Size lda, const Element* const B[],      \
                      Size ldb, const Element* beta, Element* const C[], Size ldc, Size batchCount) {                  \
    return gemm_call({#name, handle, transa, transb, m, n, k, alpha, {A, type, lda, 0}, {B, type, ldb, 0}, beta,       \
                      {C, type, ldc, 0}, batchCount, compute, CUBLAS_GEMM_DEFAULT, true});                             \
  }

#define HOSTCUDA_GEMM_STRIDED_BATCHED(name, Size, Element, type, compute)                                              \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, Size m, Size n,       \
                      Size k, const Element* alpha, const Element* A, Size lda, long long int strideA,                 \
                      const Element* B, Size ldb, long long int strideB, const Element* beta, Element* C, Size ldc,    \
                      long long int strideC, Size batchCount) {                                                        \
    return gemm_call({#name, handle, transa, transb, m, n, k, alpha, {A, type, lda, strideA}, {B, type, ldb, strideB}, \
                      beta, {C, type, ldc, strideC}, batchCount, compute, CUBLAS_GEMM_DEFAULT, false});                \
  }

#define HOSTCUDA_GEMM_GROUPED_BATCHED(name, Size, Element, type, compute)                                              \
  cublasStatus_t name(cublasHandle_t handle, const cublasOperation_t transa[], const cublasOperation_t transb[],       \
                      const Size m[], const Size n[], const Size k[], const Element alpha[],                           \
                      const Element* const A[], const Size lda[], const Element* const B[], const Size ldb[],          \
                      const Element beta[], Element* const C[], const Size ldc[], Size group_count,                    \
                      const Size group_size[]) {                                                                       \
    return grouped_gemm_call<Size>({#name, handle, transa, transb, alpha, A, type, B, type, beta, C, type,             \
                                    group_count, compute}, {m, n, k, lda, ldb, ldc, group_size});                      \
  }
// clang-format on

extern "C" {

HOSTCUDA_BOTH(HOSTCUDA_GEMM_EX, cublasGemmEx)
HOSTCUDA_BOTH(HOSTCUDA_GEMM_BATCHED_EX, cublasGemmBatchedEx)
HOSTCUDA_BOTH(HOSTCUDA_GEMM_STRIDED_BATCHED_EX, cublasGemmStridedBatchedEx)
HOSTCUDA_BOTH(HOSTCUDA_GEMM_GROUPED_BATCHED_EX, cublasGemmGroupedBatchedEx)
HOSTCUDA_BOTH(HOSTCUDA_SGEMM_EX, cublasSgemmEx)

HOSTCUDA_TYPED(HOSTCUDA_GEMM, cublasSgemm_v2, float, CUDA_R_32F, kSingle)
HOSTCUDA_TYPED(HOSTCUDA_GEMM, cublasDgemm_v2, double, CUDA_R_64F, kDouble)
HOSTCUDA_TYPED(HOSTCUDA_GEMM, cublasHgemm, __half, CUDA_R_16F, kHalf)
HOSTCUDA_TYPED(HOSTCUDA_GEMM, cublasCgemm_v2, cuComplex, CUDA_C_32F, kSingle)
HOSTCUDA_TYPED(HOSTCUDA_GEMM, cublasZgemm_v2, cuDoubleComplex, CUDA_C_64F, kDouble)

HOSTCUDA_TYPED(HOSTCUDA_GEMM_BATCHED, cublasSgemmBatched, float, CUDA_R_32F, kSingle)
HOSTCUDA_TYPED(HOSTCUDA_GEMM_BATCHED, cublasDgemmBatched, double, CUDA_R_64F, kDouble)
HOSTCUDA_TYPED(HOSTCUDA_GEMM_BATCHED, cublasHgemmBatched, __half, CUDA_R_16F, kHalf)
HOSTCUDA_TYPED(HOSTCUDA_GEMM_BATCHED, cublasCgemmBatched, cuComplex, CUDA_C_32F, kSingle)
HOSTCUDA_TYPED(HOSTCUDA_GEMM_BATCHED, cublasZgemmBatched, cuDoubleComplex, CUDA_C_64F, kDouble)

HOSTCUDA_TYPED(HOSTCUDA_GEMM_STRIDED_BATCHED, cublasSgemmStridedBatched, float, CUDA_R_32F, kSingle)
HOSTCUDA_TYPED(HOSTCUDA_GEMM_STRIDED_BATCHED, cublasDgemmStridedBatched, double, CUDA_R_64F, kDouble)
HOSTCUDA_TYPED(HOSTCUDA_GEMM_STRIDED_BATCHED, cublasHgemmStridedBatched, __half, CUDA_R_16F, kHalf)
HOSTCUDA_TYPED(HOSTCUDA_GEMM_STRIDED_BATCHED, cublasCgemmStridedBatched, cuComplex, CUDA_C_32F, kSingle)
HOSTCUDA_TYPED(HOSTCUDA_GEMM_STRIDED_BATCHED, cublasZgemmStridedBatched, cuDoubleComplex, CUDA_C_64F, kDouble)

HOSTCUDA_TYPED(HOSTCUDA_GEMM_GROUPED_BATCHED, cublasSgemmGroupedBatched, float, CUDA_R_32F, kSingle)
HOSTCUDA_TYPED(HOSTCUDA_GEMM_GROUPED_BATCHED, cublasDgemmGroupedBatched, double, CUDA_R_64F, kDouble)

// The three multiplications of the 3m forms are a way to compute, with results within rounding of the four.
HOSTCUDA_TYPED(HOSTCUDA_GEMM, cublasCgemm3m, cuComplex, CUDA_C_32F, kSingle)
HOSTCUDA_TYPED(HOSTCUDA_GEMM, cublasZgemm3m, cuDoubleComplex, CUDA_C_64F, kDouble)
HOSTCUDA_TYPED(HOSTCUDA_GEMM_BATCHED, cublasCgemm3mBatched, cuComplex, CUDA_C_32F, kSingle)
HOSTCUDA_TYPED(HOSTCUDA_GEMM_STRIDED_BATCHED, cublasCgemm3mStridedBatched, cuComplex, CUDA_C_32F, kSingle)
HOSTCUDA_BOTH(HOSTCUDA_CGEMM_EX, cublasCgemmEx)
HOSTCUDA_BOTH(HOSTCUDA_CGEMM_EX, cublasCgemm3mEx)

}  // extern "C"

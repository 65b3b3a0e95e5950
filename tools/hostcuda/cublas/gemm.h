// SPDX-License-Identifier: MIT
// One cuBLAS GEMM call as its entry point was given it, and the two ways that it can take.
#pragma once

#include <stdint.h>

#include "tools/hostcuda/cublas/context.h"

namespace hostcuda {

// Enumerations are kept as numbers until they are known to be among the enumerators.
// Column-major, as in cuBLAS: C_e = alpha op(A_e) op(B_e) + beta C_e for e in [0, batch), strides in elements.
struct GemmArguments {
  const char* name;
  cublasHandle_t handle;
  int transa, transb;  // cublasOperation_t
  int64_t m, n, k;
  const void* alpha;
  const void* a;
  int a_type;  // cudaDataType
  int64_t lda, stride_a;
  const void* b;
  int b_type;  // cudaDataType
  int64_t ldb, stride_b;
  const void* beta;
  void* c;
  int c_type;  // cudaDataType
  int64_t ldc, stride_c;
  int64_t batch;
  int compute;  // cublasComputeType_t
  int algo;     // cublasGemmAlgo_t
};

// Checks everything and enqueues. NOT_INITIALIZED (no live handle); INVALID_VALUE (operation, algorithm, negative size,
// leading dimension; then, with something to do: no alpha, beta or C); NOT_SUPPORTED (types); SUCCESS with nothing done
// where m, n or batch is 0; else what hostcuda_matmul says.
cublasStatus_t gemm_call(const GemmArguments& x);

// HOSTCUDA_ROUTE_LT=1 in the environment (looked at in every call): cublasGemmEx goes through the public cublasLtMatmul
// of libcublasLt, by the procedure linkage table and with the cuBLAS handle as Lt handle, as the real library's INT8
// path does. An interposed cublasLtMatmul sees such calls.
bool routes_through_lt();
cublasStatus_t gemm_by_lt(const GemmArguments& x);

}  // namespace hostcuda

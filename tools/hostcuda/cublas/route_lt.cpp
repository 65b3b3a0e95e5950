// SPDX-License-Identifier: MIT
// cublasGemmEx and its route through cuBLASLt: takes a GEMM call, gives one call of the public cublasLtMatmul.
#pragma GCC visibility push(default)
#include <cublasLt.h>
#pragma GCC visibility pop

#include <cstdlib>
#include <cstring>

#include "tools/hostcuda/cublas/gemm.h"

namespace hostcuda {

namespace {

bool all_go_through_lt() {
  const char* text = std::getenv("HOSTCUDA_ROUTE_LT");
  return text && std::strcmp(text, "1") == 0;
}

cublasStatus_t gemm_by_lt(const GemmArguments& x) {
  const int compute = effective_compute(x);
  const int32_t pointer_mode = x.handle->pointer_mode;
  const int32_t transa = x.transa;
  const int32_t transb = x.transb;
  const auto m = static_cast<uint64_t>(x.m);
  const auto n = static_cast<uint64_t>(x.n);
  const auto k = static_cast<uint64_t>(x.k);
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a;
  cublasLtMatrixLayoutOpaque_t b;
  cublasLtMatrixLayoutOpaque_t c;
  cublasLtMatmulDescInit(&desc, static_cast<cublasComputeType_t>(compute), scale_of(compute, false));
  cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, &pointer_mode, sizeof pointer_mode);
  cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_TRANSA, &transa, sizeof transa);
  cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_TRANSB, &transb, sizeof transb);
  cublasLtMatrixLayoutInit(&a, static_cast<cudaDataType>(x.a.type), x.transa == CUBLAS_OP_N ? m : k,
                           x.transa == CUBLAS_OP_N ? k : m, x.a.ld);
  cublasLtMatrixLayoutInit(&b, static_cast<cudaDataType>(x.b.type), x.transb == CUBLAS_OP_N ? k : n,
                           x.transb == CUBLAS_OP_N ? n : k, x.b.ld);
  cublasLtMatrixLayoutInit(&c, static_cast<cudaDataType>(x.c.type), m, n, x.c.ld);
  return cublasLtMatmul(reinterpret_cast<cublasLtHandle_t>(x.handle), &desc, x.alpha, x.a.data, &a, x.b.data, &b,
                        x.beta, x.c.data, &c, const_cast<void*>(x.c.data), &c, nullptr, nullptr, 0, x.handle->stream);
}

}  // namespace

cublasStatus_t gemm_ex_call(const GemmArguments& x) {
  const bool integers = x.a.type == CUDA_R_8I && x.c.type == CUDA_R_32I;
  if (is_complex(x.c.type) || (!integers && !all_go_through_lt())) return gemm_call(x);
  bool empty = false;
  const cublasStatus_t status = gemm_check(x, &empty);
  return status != CUBLAS_STATUS_SUCCESS || empty ? status : gemm_by_lt(x);
}

}  // namespace hostcuda

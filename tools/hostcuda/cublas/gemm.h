// SPDX-License-Identifier: MIT
// One cuBLAS GEMM call as its entry point was given it, and the two ways that it can take.
#pragma once

#include <stdint.h>

#include "tools/hostcuda/cublas/context.h"

namespace hostcuda {

// Enumerations are kept as numbers until they are known to be among the enumerators.
struct GemmMatrix {
  const void* data;  // device memory; with GemmArguments::by_pointers a device array of `batch` addresses
  int type;          // cudaDataType
  int64_t ld;        // elements
  int64_t stride;    // elements between batch entries; unused with by_pointers
};

// Column-major, as in cuBLAS: C_e = alpha op(A_e) op(B_e) + beta C_e for e in [0, batch).
struct GemmArguments {
  const char* name;  // the entry point; static storage
  cublasHandle_t handle;
  int transa, transb;  // cublasOperation_t
  int64_t m, n, k;
  const void* alpha;
  GemmMatrix a, b;
  const void* beta;
  GemmMatrix c;
  int64_t batch;
  int compute;  // cublasComputeType_t
  int algo;     // cublasGemmAlgo_t
  bool by_pointers;
};

// Checks everything and enqueues. NOT_INITIALIZED (no live handle); INVALID_VALUE (operation, algorithm, negative size,
// leading dimension; then, with something to do: no alpha, beta or C); NOT_SUPPORTED (types; INT8 into INT32 with an
// address or a leading dimension that is no multiple of 4); SUCCESS with nothing done where m, n or batch is 0; else
// what hostcuda_matmul says. FP32 under the math mode TF32 runs as CUBLAS_COMPUTE_32F_FAST_TF32 does.
cublasStatus_t gemm_call(const GemmArguments& x);
// Its checks alone; *empty: nothing to do.
cublasStatus_t gemm_check(const GemmArguments& x, bool* empty);

// The compute type that the product runs in, the handle's math mode taken into account.
int effective_compute(const GemmArguments& x);
// Type of alpha and beta.
cudaDataType scale_of(int compute, bool complex);

inline bool is_complex(int type) {
  return type == CUDA_C_32F || type == CUDA_C_64F || type == CUDA_C_8I;
}
// Complex products are plain loops in the type of C, no products of the engine: no order, no fault reaches them.
// complex_types: SUCCESS or NOT_SUPPORTED, as the documented table says. complex_gemm enqueues a checked call.
cublasStatus_t complex_types(int compute, int a_type, int b_type, int c_type);
cublasStatus_t complex_gemm(const GemmArguments& x);

// A grouped batch: group g has group_size[g] problems of one shape, one alpha and one beta, and its matrices are the
// next group_size[g] of the pointer arrays (device memory, each of all problems). Every other array is in host memory
// and has group_count values; those of type Size are int or int64_t.
struct GroupedArguments {
  const char* name;
  cublasHandle_t handle;
  const cublasOperation_t* transa;
  const cublasOperation_t* transb;
  const void* alpha;  // of the type that goes with `compute`
  const void* a;
  int a_type;
  const void* b;
  int b_type;
  const void* beta;
  const void* c;
  int c_type;
  int64_t group_count;
  int compute;
};
template <typename Size>
struct GroupedSizes {
  const Size* m;
  const Size* n;
  const Size* k;
  const Size* lda;
  const Size* ldb;
  const Size* ldc;
  const Size* group_size;
};

// All groups are checked before any is enqueued; each is one product of the device. HOST pointer mode alone, as
// documented: NOT_SUPPORTED in the other.
template <typename Size>
cublasStatus_t grouped_gemm_call(const GroupedArguments& x, const GroupedSizes<Size>& sizes);

// cublasGemmEx. INT8 into INT32 goes through the public cublasLtMatmul of libcublasLt, by the procedure linkage table
// and with the cuBLAS handle as Lt handle, as in the real library; with HOSTCUDA_ROUTE_LT=1 in the environment (looked
// at in every call) every form that cuBLASLt has goes that way. An interposed cublasLtMatmul sees such calls.
cublasStatus_t gemm_ex_call(const GemmArguments& x);

}  // namespace hostcuda

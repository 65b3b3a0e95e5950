// SPDX-License-Identifier: MIT
// One matrix product call of the host device: D = activation(alpha op(A) op(B) + beta C + bias), for every entry of a
// strided batch, put into a stream. Both cuBLAS and cuBLASLt end here.
#pragma once

#include <cublas_api.h>
#include <cuda.h>
#include <stdint.h>

#include "tools/hostcuda/cublaslt/finish.h"
#include "tools/hostcuda/cublaslt/handle.h"
#include "tools/hostcuda/gemm/gemm.h"

namespace hostcuda {

// A matrix in device memory. Column-major: entry (i, j) at i + j ld; row-major: at j + i ld. Batch entry e lies
// `stride` elements after entry e - 1 (0: the same one for all; negative is allowed).
struct Matrix {
  CUdeviceptr address;
  int64_t ld;
  int64_t stride;
  gemm::Type type;
  bool row_major;
  CUdeviceptr pointers =
      0;  // not 0: a device array of `batch` addresses, read when the work runs; address and stride unused
};

// A factor: `address` 0: `value` holds. Else one value of `type` (kFp32 or kFp16) in device memory, read when the work
// runs.
struct Scalar {
  CUdeviceptr address;
  float value;
  gemm::Type type;
};

struct Matmul {
  const char* name;  // the entry point, for messages; static storage
  int64_t m, n, k, batch;
  Matrix a, b;  // as stored, before op
  bool transpose_a, transpose_b;
  gemm::Compute compute;
  Scalar alpha, beta;
  Matrix c;  // m x n; read only where beta is not 0
  Matrix d;  // m x n; may be c
  Activation activation;
  CUdeviceptr bias;  // m values of bias_type, 0: none; batch entry e uses those from e bias_stride on
  gemm::Type bias_type;
  int64_t bias_stride;
};

// The types that the host device multiplies. False: another cudaDataType.
inline bool type_of(cudaDataType type, gemm::Type* out) {
  switch (type) {
    case CUDA_R_32F:
      *out = gemm::Type::kFp32;
      return true;
    case CUDA_R_16F:
      *out = gemm::Type::kFp16;
      return true;
    case CUDA_R_16BF:
      *out = gemm::Type::kBf16;
      return true;
    default:
      return false;
  }
}

// alpha or beta behind `pointer` as FP32: in host memory and read now, or (`on_device`) read when the work runs.
extern "C" Scalar hostcuda_scalar(const void* pointer, gemm::Type type, bool on_device);

// Whether op(A) op(B) of these types may be asked for: the documented table for cublasGemmEx and cublasLtMatmul, cut to
// BF16, FP16 and FP32, then what the device in force can do, then HOSTCUDA_NOT_SUPPORTED. `scale` is the type of alpha
// and beta. SUCCESS and *compute filled, or NOT_SUPPORTED.
//   compute 32F, 32F_PEDANTIC          BF16 -> BF16, FP32;  FP16 -> FP16, FP32;  FP32 -> FP32
//   32F_FAST_16F, _16BF, _TF32         FP32 -> FP32 (as plain FP32: FAST permits a loss, it does not demand one)
//   16F, 16F_PEDANTIC                  FP16 -> FP16
extern "C" cublasStatus_t hostcuda_check_types(cublasComputeType_t compute_type, cudaDataType scale, cudaDataType a,
                                               cudaDataType b, cudaDataType c, cudaDataType d, gemm::Compute* compute);

// Puts the product into `stream`. Arguments must have been checked; m, n, batch at least 1. Host scalars are already in
// *matmul; nothing of the caller's is read later except device memory, on the stream's worker.
// SUCCESS; EXECUTION_FAILED (stream of another context than the handle's and the thread's, or the driver refused the
// work: sticky error, broken capture). Never waits.
// On the worker, an address that the device may not touch, or one not aligned to its type, is a broken device rule.
extern "C" cublasStatus_t hostcuda_matmul(const HostcudaHandle* handle, const Matmul* matmul, CUstream stream);

}  // namespace hostcuda

extern "C" {
// Refusals on demand. Comma-separated IN->OUT; IN: 16 (BF16 and FP16) 32 bf16 fp16 any; OUT: the same, D's type. A
// product whose A and D fit a rule is NOT_SUPPORTED, by every entry point and heuristic. The environment variable
// HOSTCUDA_NOT_SUPPORTED, read at the first product, sets the first rules (a wrong one: one line on stderr and exit
// code 86); this call replaces them (null or empty: none). Returns 0, or -1: malformed, nothing changed.
int hostcuda_set_not_supported(const char* rules);
}

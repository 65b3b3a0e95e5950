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
  // Not 0: a device array of `batch` addresses, read when the work runs; address and stride unused.
  CUdeviceptr pointers = 0;
  int32_t tiled = 0;  // CUBLASLT_ORDER_COL32 and the like (memory_order.h), then row_major is false; 0: none
  int64_t plane = 0;  // planar complex: bytes from the real part to the imaginary part, both as described above
};

// A factor: `address` 0: `value` holds. Else one value of `type` (kFp32, kFp16, kFp64 or kInt32) in device memory, read
// when the work runs; per_row: m of them, one a row of D, those of batch entry e from e batch_stride on.
struct Scalar {
  CUdeviceptr address;
  double value;  // exact for every type
  gemm::Type type;
  bool per_row = false;
  int64_t batch_stride = 0;
  double imaginary = 0.0;  // planar complex: `value` is the real part; in device memory it lies behind that

  bool may_differ_from_zero() const { return address != 0 || value != 0.0 || imaginary != 0.0; }
};

enum class BiasUse : uint8_t {
  kNone = 0,
  kAdd = 1,          // m values, added to every column of D
  kGradientOfD = 2,  // written: sums of D's rows as they go into the cast (m values)
  kGradientOfA = 3,  // written: sums of op(A)'s rows over k (m values)
  kGradientOfB = 4,  // written: sums of op(B)'s columns over k (n values)
};

// The matrix beside D of an epilogue: GELU's input (read for its gradient, written else), or RELU's mask of one bit an
// entry. Column-major, m x n; ld and stride in elements, of the mask in bits (multiples of 8).
struct Auxiliary {
  CUdeviceptr address;  // 0: none
  int64_t ld, stride;
  gemm::Type type;    // of GELU's input
  CUdeviceptr scale;  // FP32 factor of what is written, 0: none
  CUdeviceptr amax;   // FP32, 0: none: gets the largest magnitude of what is written, before the factor
};

// What a scale of an FP8 or FP4 matrix belongs to; layouts of block scales: block_scales.h.
enum class ScaleMode : uint8_t {
  kScalar = 0,        // the matrix
  kOuterVector = 1,   // a row of op(A), a column of op(B)
  kVector128 = 2,     // 128 elements of such a line
  kBlock128x128 = 3,  // 128 elements of 128 such lines
  kVector32 = 4,      // 32 elements
  kVector16 = 5,      // 16 elements
};

// Factors of FP8 and FP4: in device memory, 0: 1. FP32 but for the modes kVector32 and kVector16.
struct ScaleFactors {
  CUdeviceptr a, b;
  ScaleMode a_mode, b_mode;
  CUdeviceptr d;      // FP32: what goes into D is multiplied by it
  CUdeviceptr amax;   // FP32: gets the largest magnitude of D before that
  CUdeviceptr d_out;  // gets the scales of D's blocks, of A's mode
};

// Planar complex: all four matrices have planes; no activation, bias or scales.
struct Matmul {
  const char* name;  // the entry point, for messages; static storage
  int64_t m, n, k, batch;
  Matrix a, b;  // as stored, before op
  bool transpose_a, transpose_b;
  bool planar;
  bool conjugate_a, conjugate_b;  // planar
  gemm::Compute compute;
  bool whole_partials;  // split-K may not keep its partial results in 16 bits
  Scalar alpha, beta;
  Matrix c;  // m x n; read only where beta is not 0
  Matrix d;  // m x n; may be c
  Activation activation;
  BiasUse bias_use;
  CUdeviceptr bias;  // values of bias_type; batch entry e has those from e bias_stride on
  gemm::Type bias_type;
  int64_t bias_stride;
  Auxiliary aux;
  ScaleFactors scales;
};

// The types of matrices and scalars that the host device knows. False: another cudaDataType.
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
    case CUDA_R_64F:
      *out = gemm::Type::kFp64;
      return true;
    case CUDA_R_8F_E4M3:
      *out = gemm::Type::kE4m3;
      return true;
    case CUDA_R_8F_E5M2:
      *out = gemm::Type::kE5m2;
      return true;
    case CUDA_R_8I:
      *out = gemm::Type::kInt8;
      return true;
    case CUDA_R_32I:
      *out = gemm::Type::kInt32;
      return true;
    case CUDA_R_4F_E2M1:
      *out = gemm::Type::kE2m1;
      return true;
    default:
      return false;
  }
}

// alpha or beta behind `pointer`: in host memory and read now, or (`on_device`) read when the work runs.
extern "C" Scalar hostcuda_scalar(const void* pointer, gemm::Type type, bool on_device);

// Whether op(A) op(B) of these types may be asked for: the documented table of cublasLtMatmul (that of cublasGemmEx is
// its part without FP8 and INT8 D), then what the device in force can do, then HOSTCUDA_NOT_SUPPORTED. `scale` is the
// type of alpha and beta. SUCCESS and *compute filled, or NOT_SUPPORTED.
//   compute                   scale   A, B -> C, D
//   32F, 32F_PEDANTIC         32F     BF16 -> BF16, FP32;  FP16 -> FP16, FP32;  FP32 -> FP32;  INT8 -> FP32
//   32F, 32F_PEDANTIC         32F     E4M3, E5M2 in any mix but E5M2 with E5M2 ->
//                                       C and D both BF16, FP16 or FP32;  C BF16 or FP16 and D E4M3, or D E5M2 where
//                                       one of A and B is
//   32F, 32F_PEDANTIC         32F     E2M1 -> C and D both BF16, FP16 or FP32;  C BF16 or FP16 and D E2M1
//   32F_FAST_TF32             32F     FP32 -> FP32 (Compute::kTf32, plain FP32 where the device has no TF32)
//   32F_FAST_16F, _16BF, 32F_EMULATED_16BFX9
//                             32F     FP32 -> FP32 (as plain FP32: they permit a loss, they do not demand one)
//   16F, 16F_PEDANTIC         16F     FP16 -> FP16
//   64F, 64F_PEDANTIC         64F     FP64 -> FP64
//   32I, 32I_PEDANTIC         32I     INT8 -> INT32
//   32I, 32I_PEDANTIC         32F     INT8 -> INT8
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
// Refusals on demand. Comma-separated IN->OUT; IN: 16 (BF16 and FP16) 32 (FP32) bf16 fp16 fp32 fp64 fp8 fp4 int8 int32
// any; OUT: the same, D's type. A product whose A and D fit a rule is NOT_SUPPORTED, by every entry point and
// heuristic. The environment variable HOSTCUDA_NOT_SUPPORTED, read at the first product, sets the first rules (a wrong
// one: one line on stderr and exit code 86); this call replaces them (null or empty: none). Returns 0, or -1:
// malformed, nothing changed.
int hostcuda_set_not_supported(const char* rules);
}

// SPDX-License-Identifier: MIT
// cuBLAS GEMM calls: takes one as its entry point was given it, checks it in the documented order, gives a product in
// the handle's stream.
#include "tools/hostcuda/cublas/gemm.h"

#include <cstring>

#include "tools/hostcuda/cublas/logger.h"
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

Matrix matrix(const GemmMatrix& x, bool by_pointers) {
  const auto address = reinterpret_cast<CUdeviceptr>(x.data);
  Matrix result{by_pointers ? 0 : address, x.ld,  by_pointers ? 0 : x.stride,
                gemm::Type::kFp32,         false, by_pointers ? address : 0};
  type_of(static_cast<cudaDataType>(x.type), &result.type);
  return result;
}

// CUBLAS_COMPUTE_32I over a column whose bytes no 32-bit word begins with.
bool unaligned(const GemmMatrix& x, bool by_pointers) {
  return x.ld % 4 != 0 || (!by_pointers && reinterpret_cast<uintptr_t>(x.data) % 4 != 0);
}

cublasStatus_t check_types(const GemmArguments& x, gemm::Compute* compute) {
  const int chosen = effective_compute(x);
  if (is_complex(x.c.type)) return complex_types(chosen, x.a.type, x.b.type, x.c.type);
  gemm::Type in{};
  if (type_of(static_cast<cudaDataType>(x.a.type), &in) && gemm::is_narrow(in)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto status =
      hostcuda_check_types(static_cast<cublasComputeType_t>(chosen), scale_of(chosen, false),
                           static_cast<cudaDataType>(x.a.type), static_cast<cudaDataType>(x.b.type),
                           static_cast<cudaDataType>(x.c.type), static_cast<cudaDataType>(x.c.type), compute);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (scale_of(chosen, false) == CUDA_R_32I && (unaligned(x.a, x.by_pointers) || unaligned(x.b, x.by_pointers))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// Everything that can be said of a call before its product is asked for. SUCCESS: *empty says whether it has nothing to
// do, else *compute is filled (real types).
cublasStatus_t check(const GemmArguments& x, bool* empty, gemm::Compute* compute) {
  if (!live(x.handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!known_operation(x.transa) || !known_operation(x.transb) || !known_algorithm(x.algo)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (x.m < 0 || x.n < 0 || x.k < 0 || x.batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (x.a.ld < least_ld(x.transa == CUBLAS_OP_N ? x.m : x.k) ||
      x.b.ld < least_ld(x.transb == CUBLAS_OP_N ? x.k : x.n) || x.c.ld < least_ld(x.m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const cublasStatus_t status = check_types(x, compute);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  *empty = x.m == 0 || x.n == 0 || x.batch == 0;
  if (!*empty && (!x.alpha || !x.beta || !x.c.data)) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t enqueue_product(const GemmArguments& x, gemm::Compute compute) {
  if (is_complex(x.c.type)) return complex_gemm(x);
  gemm::Type scalar_type{};
  type_of(scale_of(x.compute, false), &scalar_type);
  const bool scalars_on_device = x.handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
  Matmul matmul{};
  matmul.name = x.name;
  matmul.m = x.m;
  matmul.n = x.n;
  matmul.k = x.k;
  matmul.batch = x.batch;
  matmul.a = matrix(x.a, x.by_pointers);
  matmul.b = matrix(x.b, x.by_pointers);
  matmul.c = matrix(x.c, x.by_pointers);
  matmul.d = matmul.c;
  matmul.transpose_a = x.transa != CUBLAS_OP_N;
  matmul.transpose_b = x.transb != CUBLAS_OP_N;
  matmul.compute = compute;
  matmul.whole_partials = (x.handle->math_mode & int{CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION}) != 0;
  matmul.alpha = hostcuda_scalar(x.alpha, scalar_type, scalars_on_device);
  matmul.beta = hostcuda_scalar(x.beta, scalar_type, scalars_on_device);
  log_call(x.name);
  return hostcuda_matmul(&x.handle->head, &matmul, x.handle->stream);
}

const void* after(const void* base, int64_t bytes) {
  return base ? static_cast<const char*>(base) + bytes : nullptr;
}

// An enumeration of the program's, as a number: it need not be one of the enumerators.
int number_of(const cublasOperation_t* place) {
  int number;
  static_assert(sizeof number == sizeof *place);
  std::memcpy(&number, place, sizeof number);
  return number;
}

// Group g as a call of its own; `first`: the problems of the groups before it.
template <typename Size>
GemmArguments group(const GroupedArguments& x, const GroupedSizes<Size>& sizes, int64_t g, int64_t first) {
  const int64_t pointers = first * static_cast<int64_t>(sizeof(void*));
  const int64_t scalars = g * (scale_of(x.compute, false) == CUDA_R_64F ? 8 : 4);
  return {x.name,
          x.handle,
          number_of(x.transa + g),
          number_of(x.transb + g),
          sizes.m[g],
          sizes.n[g],
          sizes.k[g],
          after(x.alpha, scalars),
          {after(x.a, pointers), x.a_type, sizes.lda[g], 0},
          {after(x.b, pointers), x.b_type, sizes.ldb[g], 0},
          after(x.beta, scalars),
          {after(x.c, pointers), x.c_type, sizes.ldc[g], 0},
          sizes.group_size[g],
          x.compute,
          CUBLAS_GEMM_DEFAULT,
          true};
}

}  // namespace

cudaDataType scale_of(int compute, bool complex) {
  switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      return CUDA_R_16F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
      return CUDA_R_32I;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
      return complex ? CUDA_C_64F : CUDA_R_64F;
    default:
      return complex ? CUDA_C_32F : CUDA_R_32F;
  }
}

int effective_compute(const GemmArguments& x) {
  // FP64 by fixed-point products is FP64 here: a permission to emulate, no demand.
  if (x.compute == CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT) return CUBLAS_COMPUTE_64F;
  const int mode = x.handle->math_mode & ~int{CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION};
  if (x.compute == CUBLAS_COMPUTE_32F && x.a.type == CUDA_R_32F && mode == CUBLAS_TF32_TENSOR_OP_MATH) {
    return CUBLAS_COMPUTE_32F_FAST_TF32;
  }
  return x.compute;
}

cublasStatus_t gemm_check(const GemmArguments& x, bool* empty) {
  gemm::Compute compute{};
  return check(x, empty, &compute);
}

cublasStatus_t gemm_call(const GemmArguments& x) {
  bool empty = false;
  gemm::Compute compute{};
  const cublasStatus_t status = check(x, &empty, &compute);
  return status != CUBLAS_STATUS_SUCCESS || empty ? status : enqueue_product(x, compute);
}

template <typename Size>
cublasStatus_t grouped_gemm_call(const GroupedArguments& x, const GroupedSizes<Size>& sizes) {
  if (!live(x.handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (x.group_count < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (x.handle->pointer_mode != CUBLAS_POINTER_MODE_HOST) return CUBLAS_STATUS_NOT_SUPPORTED;
  // The documented table of grouped batches: one real type for all matrices, summed in FP32 or FP64.
  const cudaDataType scale = scale_of(x.compute, false);
  if (x.a_type != x.b_type || x.a_type != x.c_type || is_complex(x.a_type) ||
      (scale != CUDA_R_32F && scale != CUDA_R_64F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (x.group_count == 0) return CUBLAS_STATUS_SUCCESS;
  if (!x.transa || !x.transb || !sizes.m || !sizes.n || !sizes.k || !sizes.lda || !sizes.ldb || !sizes.ldc ||
      !sizes.group_size || !x.alpha || !x.beta) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  bool empty = false;
  gemm::Compute compute{};
  int64_t first = 0;
  for (int64_t g = 0; g < x.group_count; ++g) {
    const cublasStatus_t status = check(group(x, sizes, g, first), &empty, &compute);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    first += sizes.group_size[g];
  }
  first = 0;
  for (int64_t g = 0; g < x.group_count; ++g) {
    const cublasStatus_t status = gemm_call(group(x, sizes, g, first));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    first += sizes.group_size[g];
  }
  return CUBLAS_STATUS_SUCCESS;
}

template cublasStatus_t grouped_gemm_call(const GroupedArguments&, const GroupedSizes<int>&);
template cublasStatus_t grouped_gemm_call(const GroupedArguments&, const GroupedSizes<int64_t>&);

}  // namespace hostcuda

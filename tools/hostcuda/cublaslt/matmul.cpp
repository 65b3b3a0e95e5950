// SPDX-License-Identifier: MIT
// cublasLtMatmul: takes descriptors, pointers and a stream, gives a product in the stream.
#include "tools/hostcuda/cublaslt/plan.h"

namespace {

CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

bool aligned(const hostcuda::Matmul& matmul, CUdeviceptr address) {
  const int64_t needed = hostcuda::least_alignment(matmul);
  return needed == 0 || address % static_cast<CUdeviceptr>(needed) == 0;
}

// alpha or beta of a planar complex product: two FP32.
hostcuda::Scalar complex_scalar(const void* pointer, bool on_device) {
  const hostcuda::gemm::Type type = hostcuda::gemm::Type::kFp32;
  if (on_device) return {address_of(pointer), 0.0, type};
  hostcuda::Scalar scalar{0, 0.0, type};
  const auto* parts = static_cast<const float*>(pointer);
  scalar.value = static_cast<double>(parts[0]);
  scalar.imaginary = static_cast<double>(parts[1]);
  return scalar;
}

// alpha and beta by pointer mode. False: one is missing.
bool take_scalars(const hostcuda::MatmulDesc& desc, const void* alpha, const void* beta, hostcuda::Matmul* matmul) {
  hostcuda::gemm::Type type{};
  hostcuda::type_of(static_cast<cudaDataType>(desc.scale_type), &type);
  const bool beta_is_zero = desc.pointer_mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO;
  if (!alpha || (!beta && !beta_is_zero)) return false;
  if (matmul->planar) {
    const bool on_device = desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
    matmul->alpha = complex_scalar(alpha, on_device);
    matmul->beta = complex_scalar(beta, on_device);
    return true;
  }
  const auto fill = [&](const void* pointer, bool on_device, hostcuda::Scalar* scalar) {
    const hostcuda::Scalar taken = hostcuda::hostcuda_scalar(pointer, type, on_device);
    scalar->address = taken.address;
    scalar->value = taken.value;
    scalar->type = type;
  };
  fill(alpha, desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST, &matmul->alpha);
  if (beta_is_zero) {
    matmul->beta.type = type;
  } else {
    fill(beta,
         desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE || desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE_VECTOR,
         &matmul->beta);
  }
  return true;
}

}  // namespace

extern "C" cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                                         const void* alpha, const void* A, cublasLtMatrixLayout_t Adesc, const void* B,
                                         cublasLtMatrixLayout_t Bdesc, const void* beta, const void* C,
                                         cublasLtMatrixLayout_t Cdesc, void* D, cublasLtMatrixLayout_t Ddesc,
                                         const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspaceSizeInBytes,
                                         cudaStream_t stream) {
  using hostcuda::inside;
  const auto* handle = reinterpret_cast<const HostcudaHandle*>(lightHandle);
  if (!hostcuda_handle_live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!computeDesc || !Adesc || !Bdesc || !Ddesc) return CUBLAS_STATUS_INVALID_VALUE;
  if (!Cdesc) Cdesc = Ddesc;  // documented: an omitted one is D's
  const hostcuda::MatmulDesc& desc = *inside(computeDesc);
  hostcuda::Matmul matmul;
  cublasStatus_t status =
      hostcuda::plan_matmul(desc, *inside(Adesc), *inside(Bdesc), *inside(Cdesc), *inside(Ddesc), &matmul);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (algo) {
    status = hostcuda::check_algo(*inside(algo), desc, *inside(Adesc), *inside(Bdesc), *inside(Cdesc), *inside(Ddesc));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  if (matmul.m == 0 || matmul.n == 0) return CUBLAS_STATUS_SUCCESS;
  if (!D || (!workspace && workspaceSizeInBytes > 0) || !take_scalars(desc, alpha, beta, &matmul)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto zero_or_one = [](const hostcuda::Scalar& scalar) {
    return scalar.address != 0 || scalar.value == 0.0 || scalar.value == 1.0;
  };
  if (hostcuda::is_tiled_product(matmul) && matmul.alpha.type == hostcuda::gemm::Type::kInt32 &&
      !(zero_or_one(matmul.alpha) && zero_or_one(matmul.beta))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool reads_c = matmul.beta.may_differ_from_zero();
  const bool multiplies = matmul.k > 0 && matmul.alpha.may_differ_from_zero();
  const bool known_beta = matmul.beta.address == 0;
  const bool known_alpha = matmul.alpha.address == 0;
  if (!C && known_beta && reads_c) return CUBLAS_STATUS_INVALID_VALUE;
  if ((!A || !B) && known_alpha && multiplies) return CUBLAS_STATUS_INVALID_VALUE;
  // In place the two layouts must be one; without beta C is not read and may be anything.
  if (C == D && reads_c &&
      (matmul.c.type != matmul.d.type || matmul.c.ld != matmul.d.ld || matmul.c.plane != matmul.d.plane ||
       (matmul.batch > 1 && matmul.c.stride != matmul.d.stride))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (matmul.bias_use != hostcuda::BiasUse::kNone) {
    if (!desc.bias_pointer) return CUBLAS_STATUS_INVALID_VALUE;
    matmul.bias = desc.bias_pointer;
  }
  if (matmul.aux.ld != 0) {
    if (!desc.aux_pointer) return CUBLAS_STATUS_INVALID_VALUE;
    matmul.aux.address = desc.aux_pointer;
  }
  const bool by_pointers = inside(Ddesc)->batch_mode == CUBLASLT_BATCH_MODE_POINTER_ARRAY;
  const auto place = [&](const void* pointer, hostcuda::Matrix* matrix) {
    (by_pointers ? matrix->pointers : matrix->address) = address_of(pointer);
  };
  place(A, &matmul.a);
  place(B, &matmul.b);
  place(C, &matmul.c);
  place(D, &matmul.d);
  if (!by_pointers && !(aligned(matmul, matmul.a.address) && aligned(matmul, matmul.b.address) &&
                        (!reads_c || aligned(matmul, matmul.c.address)) && aligned(matmul, matmul.d.address))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  matmul.name = "cublasLtMatmul";
  return hostcuda::hostcuda_matmul(handle, &matmul, stream);
}

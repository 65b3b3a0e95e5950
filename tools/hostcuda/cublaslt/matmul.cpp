// SPDX-License-Identifier: MIT
// cublasLtMatmul: takes descriptors, pointers and a stream, gives a product in the stream.
#include "tools/hostcuda/cublaslt/plan.h"

namespace {

CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
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
  if (!computeDesc || !Adesc || !Bdesc || !Cdesc || !Ddesc) return CUBLAS_STATUS_INVALID_VALUE;
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
  if (!alpha || !beta || !D || (!workspace && workspaceSizeInBytes > 0)) return CUBLAS_STATUS_INVALID_VALUE;

  hostcuda::gemm::Type scalar_type;
  if (!hostcuda::type_of(static_cast<cudaDataType>(desc.scale_type), &scalar_type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool scalars_on_device = desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  matmul.alpha = hostcuda::hostcuda_scalar(alpha, scalar_type, scalars_on_device);
  matmul.beta = hostcuda::hostcuda_scalar(beta, scalar_type, scalars_on_device);
  if (!scalars_on_device) {
    if (!C && matmul.beta.value != 0.0) return CUBLAS_STATUS_INVALID_VALUE;
    if ((!A || !B) && matmul.k > 0 && matmul.alpha.value != 0.0) return CUBLAS_STATUS_INVALID_VALUE;
  }
  // In place the two layouts must be one; without beta C is not read and may be anything.
  const bool reads_c = matmul.beta.address != 0 || matmul.beta.value != 0.0;
  if (C == D && reads_c && (matmul.c.ld != matmul.d.ld || (matmul.batch > 1 && matmul.c.stride != matmul.d.stride))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if ((desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
    if (!desc.bias_pointer) return CUBLAS_STATUS_INVALID_VALUE;
    matmul.bias = desc.bias_pointer;
    matmul.bias_use = hostcuda::BiasUse::kAdd;
  }
  matmul.a.address = address_of(A);
  matmul.b.address = address_of(B);
  matmul.c.address = address_of(C);
  matmul.d.address = address_of(D);
  matmul.name = "cublasLtMatmul";
  return hostcuda::hostcuda_matmul(handle, &matmul, stream);
}

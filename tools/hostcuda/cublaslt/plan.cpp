// SPDX-License-Identifier: MIT
// Plan: takes cuBLASLt descriptors, gives a checked product or the status that refuses it; runs on the caller's thread.
#include "tools/hostcuda/cublaslt/plan.h"

namespace hostcuda {
namespace {

bool known_operation(int32_t op) {
  return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}

cublasStatus_t check_layout(const MatrixLayout& layout) {
  if (layout.order < CUBLASLT_ORDER_COL || layout.order > CUBLASLT_ORDER_COL32_2R_4R4) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (layout.order != CUBLASLT_ORDER_COL && layout.order != CUBLASLT_ORDER_ROW) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (layout.batch_mode != CUBLASLT_BATCH_MODE_STRIDED || layout.plane_offset != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  constexpr uint64_t kMostLines = uint64_t{1} << 62;
  if (layout.rows > kMostLines || layout.cols > kMostLines || layout.batch_count < 1) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const uint64_t line = layout.order == CUBLASLT_ORDER_ROW ? layout.cols : layout.rows;
  if (layout.ld < 0 || static_cast<uint64_t>(layout.ld) < (line ? line : 1)) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_desc(const MatmulDesc& desc) {
  if (!known_operation(desc.transa) || !known_operation(desc.transb)) return CUBLAS_STATUS_INVALID_VALUE;
  if (desc.a_scale_pointer || desc.b_scale_pointer || desc.c_scale_pointer || desc.d_scale_pointer ||
      desc.amax_d_pointer || desc.d_out_scale_pointer) {
    return CUBLAS_STATUS_INVALID_VALUE;  // documented for types narrower than 16 bits only
  }
  if (desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST && desc.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (desc.transc != CUBLAS_OP_N || desc.fill_mode != CUBLAS_FILL_MODE_FULL || desc.emulation_descriptor ||
      desc.a_scale_mode || desc.b_scale_mode || desc.c_scale_mode || desc.d_scale_mode || desc.d_out_scale_mode ||
      desc.aux_scale_mode || desc.aux_scale_pointer || desc.aux_amax_pointer) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

bool epilogue_of(uint32_t epilogue, Activation* activation, bool* bias) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
      *activation = Activation::kNone;
      break;
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
      *activation = Activation::kRelu;
      break;
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
      *activation = Activation::kGelu;
      break;
    default:
      return false;
  }
  *bias = (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  return true;
}

Matrix matrix_of(const MatrixLayout& layout, gemm::Type type) {
  return {0, layout.ld, layout.batch_stride, type, layout.order == CUBLASLT_ORDER_ROW};
}

}  // namespace

cublasStatus_t plan_matmul(const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b, const MatrixLayout& c,
                           const MatrixLayout& d, Matmul* out) {
  for (const MatrixLayout* layout : {&a, &b, &c, &d}) {
    const cublasStatus_t status = check_layout(*layout);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (layout->batch_count != d.batch_count) return CUBLAS_STATUS_INVALID_VALUE;
  }
  cublasStatus_t status = check_desc(desc);
  if (status != CUBLAS_STATUS_SUCCESS) return status;

  *out = Matmul{};
  out->transpose_a = desc.transa != CUBLAS_OP_N;
  out->transpose_b = desc.transb != CUBLAS_OP_N;
  const uint64_t m = out->transpose_a ? a.cols : a.rows;
  const uint64_t k = out->transpose_a ? a.rows : a.cols;
  const uint64_t n = out->transpose_b ? b.rows : b.cols;
  const uint64_t k_of_b = out->transpose_b ? b.cols : b.rows;
  if (k != k_of_b || d.rows != m || d.cols != n || c.rows != m || c.cols != n) return CUBLAS_STATUS_INVALID_VALUE;
  out->m = static_cast<int64_t>(m);
  out->n = static_cast<int64_t>(n);
  out->k = static_cast<int64_t>(k);
  out->batch = d.batch_count;

  status = hostcuda_check_types(static_cast<cublasComputeType_t>(desc.compute_type),
                                static_cast<cudaDataType>(desc.scale_type), static_cast<cudaDataType>(a.type),
                                static_cast<cudaDataType>(b.type), static_cast<cudaDataType>(c.type),
                                static_cast<cudaDataType>(d.type), &out->compute);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (c.order != d.order) return CUBLAS_STATUS_NOT_SUPPORTED;

  bool has_bias = false;
  if (!epilogue_of(desc.epilogue, &out->activation, &has_bias)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has_bias && out->activation != Activation::kNone && d.order == CUBLASLT_ORDER_ROW) {
    return CUBLAS_STATUS_NOT_SUPPORTED;  // documented: no activation with bias over a row-major D
  }
  gemm::Type in;
  gemm::Type result;
  if (!type_of(static_cast<cudaDataType>(a.type), &in) || !type_of(static_cast<cudaDataType>(d.type), &result)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  out->bias_type = result;
  out->bias_stride = desc.bias_batch_stride;
  if (has_bias && desc.bias_data_type != -1 && static_cast<uint32_t>(desc.bias_data_type) != d.type) {
    return CUBLAS_STATUS_NOT_SUPPORTED;  // for 16-bit and FP32 operands the only bias type is D's
  }
  out->a = matrix_of(a, in);
  out->b = matrix_of(b, in);
  out->c = matrix_of(c, result);
  out->d = matrix_of(d, result);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace hostcuda

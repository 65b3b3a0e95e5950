// SPDX-License-Identifier: MIT
// cublasLtMatrixTransform: C = alpha op(A) + beta op(B) between types and memory orders, on the stream's worker.
#include <new>
#include <vector>

#include "tools/hostcuda/access.h"
#include "tools/hostcuda/cublaslt/descriptors.h"
#include "tools/hostcuda/cublaslt/finish.h"
#include "tools/hostcuda/cublaslt/memory_order.h"
#include "tools/hostcuda/cublaslt/product.h"

namespace hostcuda {
namespace {

// One matrix of the call.
struct Ordered : Placement {
  CUdeviceptr address = 0;  // 0: absent
  gemm::Type type{};
  int64_t stride = 0;
  bool transposed = false;
};

struct Transform {
  int64_t rows, cols, batch;
  Ordered a, b, c;
  Scalar alpha, beta;
};

cublasStatus_t read_layout(const MatrixLayout& layout, int32_t operation, const void* pointer, Ordered* out) {
  out->address = reinterpret_cast<CUdeviceptr>(pointer);
  out->order = layout.order;
  out->rows = static_cast<int64_t>(layout.rows);
  out->cols = static_cast<int64_t>(layout.cols);
  out->ld = layout.ld;
  out->stride = layout.batch_stride;
  out->transposed = operation != CUBLAS_OP_N;
  if (layout.rows > INT32_MAX || layout.cols > INT32_MAX || layout.batch_count < 1 || operation < CUBLAS_OP_N ||
      operation > CUBLAS_OP_C || layout.order < CUBLASLT_ORDER_COL || layout.order > CUBLASLT_ORDER_COL32_2R_4R4) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (layout.plane_offset != 0 || layout.batch_mode != CUBLASLT_BATCH_MODE_STRIDED ||
      !type_of(static_cast<cudaDataType>(layout.type), &out->type)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return out->ld < out->least_ld() ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

// Types that meet under a scale type: FP32 all narrower ones and INT32, FP16 itself, FP64 itself, INT32 the integers.
bool scales(gemm::Type scale, gemm::Type type) {
  using gemm::Type;
  switch (scale) {
    case Type::kFp32:
      return type != Type::kFp64 && type != Type::kE2m1;
    case Type::kInt32:
      return type == Type::kInt32 || type == Type::kInt8;
    default:
      return type == scale && (scale == Type::kFp16 || scale == Type::kFp64);
  }
}

// In FP32 under FP32 and FP16 scales, else in FP64, which holds INT32 exactly.
template <typename Real>
void run_transform(const Transform& call) {
  Access access{"cublasLtMatrixTransform"};
  const auto factor = [&](const char* what, const Scalar& scalar) {
    if (!scalar.address) return static_cast<Real>(scalar.value);
    const int64_t bytes = gemm::bytes_of(scalar.type);
    const void* alias = view(&access, what, scalar.address, bytes, bytes, HOSTCUDA_READ);
    Real value{0};
    if (alias) load_values(scalar.type, alias, 1, 1, &value);
    return value;
  };
  const Real alpha = factor("alpha", call.alpha);
  if (access.broken) return;
  const Real beta = factor("beta", call.beta);
  if (access.broken) return;
  const auto alias_of = [&](const char* what, const Ordered& matrix, int64_t e, int mode) -> char* {
    const int64_t bytes = gemm::bytes_of(matrix.type);
    const CUdeviceptr at = matrix.address + static_cast<CUdeviceptr>(e * matrix.stride * bytes);
    return static_cast<char*>(view(&access, what, at, matrix.elements() * bytes, bytes, mode));
  };
  for (int64_t e = 0; e < call.batch; ++e) {
    const bool reads_a = call.a.address && alpha != Real{0};
    const bool reads_b = call.b.address && beta != Real{0};
    const char* a = reads_a ? alias_of("A", call.a, e, HOSTCUDA_READ) : nullptr;
    if (access.broken) return;
    const char* b = reads_b ? alias_of("B", call.b, e, HOSTCUDA_READ) : nullptr;
    if (access.broken) return;
    char* c = alias_of("C", call.c, e, HOSTCUDA_READ | HOSTCUDA_WRITE);
    if (access.broken) return;
    const auto load = [](const char* base, const Ordered& matrix, int64_t i, int64_t j) {
      Real value{0};
      const int64_t at = matrix.transposed ? matrix.offset(j, i) : matrix.offset(i, j);
      load_values(matrix.type, base + at * gemm::bytes_of(matrix.type), 1, 1, &value);
      return value;
    };
    for (int64_t j = 0; j < call.cols; ++j) {
      for (int64_t i = 0; i < call.rows; ++i) {
        Real sum{0};
        if (reads_a) sum = alpha * load(a, call.a, i, j);
        if (reads_b) sum = sum + beta * load(b, call.b, i, j);
        store_values(call.c.type, c + call.c.offset(i, j) * gemm::bytes_of(call.c.type), 1, 1, &sum);
      }
    }
  }
}

// Fills *out; SUCCESS with out->rows or out->cols 0: nothing to do.
cublasStatus_t plan_transform(const TransformDesc& desc, const void* alpha, const void* a, const MatrixLayout* a_layout,
                              const void* beta, const void* b, const MatrixLayout* b_layout, void* c,
                              const MatrixLayout& c_layout, Transform* out) {
  gemm::Type scale{};
  if (!type_of(static_cast<cudaDataType>(desc.scale_type), &scale)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.pointer_mode != CUBLASLT_POINTER_MODE_HOST && desc.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  cublasStatus_t status = read_layout(c_layout, CUBLAS_OP_N, c, &out->c);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  out->rows = out->c.rows;
  out->cols = out->c.cols;
  out->batch = c_layout.batch_count;
  if (!scales(scale, out->c.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto operand = [&](const MatrixLayout* layout, int32_t operation, const void* pointer, Ordered* matrix) {
    if (!layout) return pointer ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
    const cublasStatus_t read = read_layout(*layout, operation, pointer, matrix);
    if (read != CUBLAS_STATUS_SUCCESS) return read;
    if ((matrix->transposed ? matrix->cols : matrix->rows) != out->rows ||
        (matrix->transposed ? matrix->rows : matrix->cols) != out->cols || layout->batch_count != out->batch) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    return scales(scale, matrix->type) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  };
  status = operand(a_layout, desc.transa, a, &out->a);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  status = operand(b_layout, desc.transb, b, &out->b);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (out->rows == 0 || out->cols == 0) return CUBLAS_STATUS_SUCCESS;
  if (!c || (!a && !b) || (a && !alpha) || (b && !beta)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool on_device = desc.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  if (a) out->alpha = hostcuda_scalar(alpha, scale, on_device);
  if (b) out->beta = hostcuda_scalar(beta, scale, on_device);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace hostcuda

extern "C" cublasStatus_t cublasLtMatrixTransform(cublasLtHandle_t lightHandle,
                                                  cublasLtMatrixTransformDesc_t transformDesc, const void* alpha,
                                                  const void* A, cublasLtMatrixLayout_t Adesc, const void* beta,
                                                  const void* B, cublasLtMatrixLayout_t Bdesc, void* C,
                                                  cublasLtMatrixLayout_t Cdesc, cudaStream_t stream) {
  using hostcuda::inside;
  const auto* handle = reinterpret_cast<const HostcudaHandle*>(lightHandle);
  if (!hostcuda_handle_live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!transformDesc || !Cdesc) return CUBLAS_STATUS_INVALID_VALUE;
  auto* call = new (std::nothrow) hostcuda::Transform{};
  if (!call) return CUBLAS_STATUS_ALLOC_FAILED;
  const auto drop = [](void* arg) { delete static_cast<hostcuda::Transform*>(arg); };
  const cublasStatus_t status = hostcuda::plan_transform(*inside(transformDesc), alpha, A, inside(Adesc), beta, B,
                                                         inside(Bdesc), C, *inside(Cdesc), call);
  if (status != CUBLAS_STATUS_SUCCESS || call->rows == 0 || call->cols == 0) {
    drop(call);
    return status;
  }
  const bool in_fp32 =
      inside(transformDesc)->scale_type == CUDA_R_32F || inside(transformDesc)->scale_type == CUDA_R_16F;
  const auto run = in_fp32
                       ? +[](void* arg) { hostcuda::run_transform<float>(*static_cast<hostcuda::Transform*>(arg)); }
                       : +[](void* arg) { hostcuda::run_transform<double>(*static_cast<hostcuda::Transform*>(arg)); };
  const bool usable = (hostcuda_current_context() || hostcuda_use_device(-1) == CUDA_SUCCESS) &&
                      hostcuda_current_context() == handle->context &&
                      hostcuda_stream_context(stream) == handle->context;
  if (!usable || hostcuda_enqueue_owned(stream, run, drop, call, "cublasLtMatrixTransform") != CUDA_SUCCESS) {
    drop(call);
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

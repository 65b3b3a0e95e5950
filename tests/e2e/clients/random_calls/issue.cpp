// SPDX-License-Identifier: MIT
// Trial's calls of the library: each of the 33 entry points.
#include <cuda_fp16.h>

#include "trial.h"

namespace calls {
namespace {

cublasOperation_t operation(char letter) {
  return letter == 'n' ? CUBLAS_OP_N : letter == 't' ? CUBLAS_OP_T : CUBLAS_OP_C;
}

// Arguments of cublas's grouped entry points, by the width of sizes.
template <typename Size>
struct Sizes {
  std::vector<cublasOperation_t> trans_a, trans_b;
  std::vector<Size> m, n, k, lda, ldb, ldc, count;
};

template <typename Value>
cublasStatus_t set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  return cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value));
}

}  // namespace

cublasStatus_t Trial::issue() {
  if (is_lt(call_)) return issue_lt();
  cublasSetMathMode(libraries_.cublas, call_.math);
  cublasSetPointerMode(libraries_.cublas,
                       call_.scalars == Scalars::kHost ? CUBLAS_POINTER_MODE_HOST : CUBLAS_POINTER_MODE_DEVICE);
  if (!is_grouped(call_)) return issue_gemm();
  return entry_of(call_).wide ? issue_grouped<int64_t>() : issue_grouped<int>();
}

// The form of the entry point with these arguments behind the handle.
#define EITHER(symbol, ...) \
  (entry_of(call_).wide ? symbol##_64(libraries_.cublas, __VA_ARGS__) : symbol(libraries_.cublas, __VA_ARGS__))
#define ONE(symbol, Element)                                                                                     \
  EITHER(symbol, op_a, op_b, m, n, k, static_cast<const Element*>(alpha()), static_cast<const Element*>(a), lda, \
         static_cast<const Element*>(b), ldb, static_cast<const Element*>(beta()), static_cast<Element*>(c), ldc)
#define BATCHED(symbol, Element)                                                                                    \
  EITHER(symbol, op_a, op_b, m, n, k, static_cast<const Element*>(alpha()), static_cast<const Element* const*>(pa), \
         lda, static_cast<const Element* const*>(pb), ldb, static_cast<const Element*>(beta()),                     \
         static_cast<Element* const*>(pc), ldc, batch)
#define STRIDED(symbol, Element)                                                                                 \
  EITHER(symbol, op_a, op_b, m, n, k, static_cast<const Element*>(alpha()), static_cast<const Element*>(a), lda, \
         a_.stride, static_cast<const Element*>(b), ldb, b_.stride, static_cast<const Element*>(beta()),         \
         static_cast<Element*>(c), ldc, c_.stride, batch)

cublasStatus_t Trial::issue_gemm() {
  const Group& group = call_.groups[0];
  const cublasOperation_t op_a = operation(group.trans_a), op_b = operation(group.trans_b);
  const auto m = static_cast<int>(group.m), n = static_cast<int>(group.n), k = static_cast<int>(group.k);
  const auto lda = static_cast<int>(a_.entries[0].ld), ldb = static_cast<int>(b_.entries[0].ld),
             ldc = static_cast<int>(c_.entries[0].ld), batch = static_cast<int>(group.count);
  const cudaDataType type_a = format_of(call_.a).type, type_b = format_of(call_.b).type,
                     type_c = format_of(call_.c).type;
  const void *a = a_.device(), *b = b_.device();
  void* c = c_.device();
  const void *pa = nullptr, *pb = nullptr, *pc = nullptr;
  if (by_pointers(call_)) {
    pa = pointers_[0].device();
    pb = pointers_[1].device();
    pc = pointers_[2].device();
  }
  switch (entry_of(call_).family) {
    case Family::kGemmEx:
      return EITHER(cublasGemmEx, op_a, op_b, m, n, k, alpha(), a, type_a, lda, b, type_b, ldb, beta(), c, type_c, ldc,
                    call_.compute, CUBLAS_GEMM_DEFAULT);
    case Family::kGemmBatchedEx:
      return EITHER(cublasGemmBatchedEx, op_a, op_b, m, n, k, alpha(), static_cast<const void* const*>(pa), type_a, lda,
                    static_cast<const void* const*>(pb), type_b, ldb, beta(), static_cast<void* const*>(pc), type_c,
                    ldc, batch, call_.compute, CUBLAS_GEMM_DEFAULT);
    case Family::kGemmStridedBatchedEx:
      return EITHER(cublasGemmStridedBatchedEx, op_a, op_b, m, n, k, alpha(), a, type_a, lda, a_.stride, b, type_b, ldb,
                    b_.stride, beta(), c, type_c, ldc, c_.stride, batch, call_.compute, CUBLAS_GEMM_DEFAULT);
    case Family::kSgemmEx:
      return EITHER(cublasSgemmEx, op_a, op_b, m, n, k, static_cast<const float*>(alpha()), a, type_a, lda, b, type_b,
                    ldb, static_cast<const float*>(beta()), c, type_c, ldc);
    case Family::kSgemm:
      return ONE(cublasSgemm, float);
    case Family::kDgemm:
      return ONE(cublasDgemm, double);
    case Family::kHgemm:
      return ONE(cublasHgemm, __half);
    case Family::kSgemmBatched:
      return BATCHED(cublasSgemmBatched, float);
    case Family::kDgemmBatched:
      return BATCHED(cublasDgemmBatched, double);
    case Family::kHgemmBatched:
      return BATCHED(cublasHgemmBatched, __half);
    case Family::kSgemmStridedBatched:
      return STRIDED(cublasSgemmStridedBatched, float);
    case Family::kDgemmStridedBatched:
      return STRIDED(cublasDgemmStridedBatched, double);
    case Family::kHgemmStridedBatched:
      return STRIDED(cublasHgemmStridedBatched, __half);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

#undef EITHER
#undef ONE
#undef BATCHED
#undef STRIDED

template <typename Size>
cublasStatus_t Trial::issue_grouped() {
  Sizes<Size> s;
  size_t e = 0;
  for (const Group& group : call_.groups) {
    const auto unsized = [](int64_t rows) { return static_cast<Size>(rows > 1 ? rows : 1); };
    s.trans_a.push_back(operation(group.trans_a));
    s.trans_b.push_back(operation(group.trans_b));
    s.m.push_back(static_cast<Size>(group.m));
    s.n.push_back(static_cast<Size>(group.n));
    s.k.push_back(static_cast<Size>(group.k));
    s.count.push_back(static_cast<Size>(group.count));
    const bool empty = group.count == 0;
    s.lda.push_back(empty ? unsized(group.trans_a == 'n' ? group.m : group.k) : static_cast<Size>(a_.entries[e].ld));
    s.ldb.push_back(empty ? unsized(group.trans_b == 'n' ? group.k : group.n) : static_cast<Size>(b_.entries[e].ld));
    s.ldc.push_back(empty ? unsized(group.m) : static_cast<Size>(c_.entries[e].ld));
    e += static_cast<size_t>(group.count);
  }
  const auto groups = static_cast<Size>(call_.groups.size());
  const void *pa = pointers_[0].device(), *pb = pointers_[1].device(), *pc = pointers_[2].device();
  constexpr bool kWide = sizeof(Size) == 8;
  const auto typed = [&](auto* call, auto element) {
    using Element = decltype(element);
    return call(libraries_.cublas, s.trans_a.data(), s.trans_b.data(), s.m.data(), s.n.data(), s.k.data(),
                static_cast<const Element*>(alpha()), static_cast<const Element* const*>(pa), s.lda.data(),
                static_cast<const Element* const*>(pb), s.ldb.data(), static_cast<const Element*>(beta()),
                static_cast<Element* const*>(pc), s.ldc.data(), groups, s.count.data());
  };
  const auto any = [&](auto* call) {
    return call(libraries_.cublas, s.trans_a.data(), s.trans_b.data(), s.m.data(), s.n.data(), s.k.data(), alpha(),
                static_cast<const void* const*>(pa), format_of(call_.a).type, s.lda.data(),
                static_cast<const void* const*>(pb), format_of(call_.b).type, s.ldb.data(), beta(),
                static_cast<void* const*>(pc), format_of(call_.c).type, s.ldc.data(), groups, s.count.data(),
                call_.compute);
  };
  const Family family = entry_of(call_).family;
  if constexpr (kWide) {
    if (family == Family::kSgemmGroupedBatched) return typed(&cublasSgemmGroupedBatched_64, float());
    if (family == Family::kDgemmGroupedBatched) return typed(&cublasDgemmGroupedBatched_64, double());
    return any(&cublasGemmGroupedBatchedEx_64);
  } else {
    if (family == Family::kSgemmGroupedBatched) return typed(&cublasSgemmGroupedBatched, float());
    if (family == Family::kDgemmGroupedBatched) return typed(&cublasDgemmGroupedBatched, double());
    return any(&cublasGemmGroupedBatchedEx);
  }
}

cublasLtMatrixLayout_t Trial::layout(const Buffer& buffer, const Group& group) const {
  const Matrix& matrix = buffer.entries[0];
  cublasLtMatrixLayout_t made = nullptr;
  cublasLtMatrixLayoutCreate(&made, format_of(buffer.num).type, static_cast<uint64_t>(matrix.rows),
                             static_cast<uint64_t>(matrix.cols), matrix.ld);
  const cublasLtOrder_t order = matrix.row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
  const auto count = static_cast<int32_t>(group.count);
  cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof(order));
  cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
  cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &buffer.stride,
                                   sizeof(buffer.stride));
  return made;
}

cublasStatus_t Trial::issue_lt() {
  const Group& group = call_.groups[0];
  cublasLtMatmulDesc_t desc = nullptr;
  cublasStatus_t status = cublasLtMatmulDescCreate(&desc, call_.compute, format_of(call_.scale).type);
  const auto put = [&status, desc](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    if (status == CUBLAS_STATUS_SUCCESS) status = set(desc, attribute, value);
  };
  put(CUBLASLT_MATMUL_DESC_TRANSA, operation(group.trans_a));
  put(CUBLASLT_MATMUL_DESC_TRANSB, operation(group.trans_b));
  constexpr cublasLtPointerMode_t kModes[] = {
      CUBLASLT_POINTER_MODE_HOST, CUBLASLT_POINTER_MODE_DEVICE, CUBLASLT_POINTER_MODE_DEVICE_VECTOR,
      CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO, CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST};
  put(CUBLASLT_MATMUL_DESC_POINTER_MODE, kModes[static_cast<int>(call_.scalars)]);
  put(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<cublasLtEpilogue_t>(call_.epilogue));
  if (uses_bias()) {
    put(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_.device());
    put(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(format_of(call_.bias).type));
    if (call_.bias_by_batch) put(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, bias_.stride);
  }
  if (uses_aux()) {
    const int64_t unit = aux_is_mask() ? 32 : 1;
    put(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux_.device());
    put(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64_t{aux_.entries[0].ld * unit});
    put(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, int64_t{aux_.stride * unit});
    if (!aux_is_mask()) {
      put(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, static_cast<int32_t>(format_of(call_.aux).type));
    }
  }
  if (call_.has_scale[0]) put(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale_a_.device());
  if (call_.has_scale[1]) put(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale_b_.device());
  if (call_.has_scale[2]) put(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, scale_d_.device());
  if (call_.outer_scales) {
    put(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F));
    put(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F));
  }
  if (call_.amax) put(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, amax_.device());
  if (call_.fast_accumulation) put(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});

  cublasLtMatrixLayout_t layouts[4] = {layout(a_, group), layout(b_, group), layout(c_, group), layout(*d_, group)};
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = cublasLtMatmul(libraries_.lt, desc, alpha(), a_.device(), layouts[0], b_.device(), layouts[1], beta(),
                            call_.addend == Addend::kNull ? nullptr : c_.device(), layouts[2], d_->device(), layouts[3],
                            nullptr, libraries_.workspace, Libraries::kWorkspaceBytes, libraries_.stream);
  }
  for (cublasLtMatrixLayout_t one : layouts) cublasLtMatrixLayoutDestroy(one);
  cublasLtMatmulDescDestroy(desc);
  return status;
}

}  // namespace calls

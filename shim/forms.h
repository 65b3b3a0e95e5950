// SPDX-License-Identifier: MIT
// stage intercept: how the arguments of each form become CallArguments; runs on the calling thread. Inlined into the
// wrapper of a call that is not sampled, where all but the dimensions is dead and costs nothing.
//
// Sizes in CallArguments are those of one product op(A) op(B), m x n with inner k: a matrix-vector product has n = 1,
// the product of a special matrix the dimensions of the full one.
#pragma once

#include <type_traits>

#include "shim/gemm_call.h"

namespace sdcguard {

#define SDCGUARD_INLINE inline __attribute__((always_inline))

template <EntryForm F>
struct Form;

// hot: begin
template <>
struct Form<EntryForm::kGemm> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int transa, int transb, I m, I n, I k,
                                   const void* alpha, const void* a, I lda, const void* b, I ldb, const void* beta,
                                   void* c, I ldc) {
    x.handle = handle, x.transa = transa, x.transb = transb;
    x.m = static_cast<int64_t>(m), x.n = static_cast<int64_t>(n), x.k = static_cast<int64_t>(k), x.batch = 1;
    x.alpha = alpha, x.a = a, x.lda = static_cast<int64_t>(lda), x.b = b, x.ldb = static_cast<int64_t>(ldb);
    x.beta = beta, x.c = c, x.ldc = static_cast<int64_t>(ldc);
  }
};

template <>
struct Form<EntryForm::kGemmBatched> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int transa, int transb, I m, I n, I k,
                                   const void* alpha, const void* const* a, I lda, const void* const* b, I ldb,
                                   const void* beta, void* const* c, I ldc, I batch) {
    Form<EntryForm::kGemm>::pack<I>(x, handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta,
                                    const_cast<void**>(c), ldc);
    x.batch = batch;
  }
};

template <>
struct Form<EntryForm::kGemmStrided> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int transa, int transb, I m, I n, I k,
                                   const void* alpha, const void* a, I lda, long long stride_a, const void* b, I ldb,
                                   long long stride_b, const void* beta, void* c, I ldc, long long stride_c, I batch) {
    Form<EntryForm::kGemm>::pack<I>(x, handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    x.stride_a = stride_a, x.stride_b = stride_b, x.stride_c = stride_c, x.batch = batch;
  }
};

template <>
struct Form<EntryForm::kGemmTyped> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int transa, int transb, I m, I n, I k,
                                   const void* alpha, const void* a, int type_a, I lda, const void* b, int type_b,
                                   I ldb, const void* beta, void* c, int type_c, I ldc) {
    Form<EntryForm::kGemm>::pack<I>(x, handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    x.type_a = type_a, x.type_b = type_b, x.type_c = type_c;
  }
};

template <>
struct Form<EntryForm::kGemmEx> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int transa, int transb, I m, I n, I k,
                                   const void* alpha, const void* a, int type_a, I lda, const void* b, int type_b,
                                   I ldb, const void* beta, void* c, int type_c, I ldc, int compute, int algo) {
    Form<EntryForm::kGemmTyped>::pack<I>(x, handle, transa, transb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb,
                                         beta, c, type_c, ldc);
    x.compute = compute, x.algo = algo;
  }
};

template <>
struct Form<EntryForm::kGemmBatchedEx> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int transa, int transb, I m, I n, I k,
                                   const void* alpha, const void* const* a, int type_a, I lda, const void* const* b,
                                   int type_b, I ldb, const void* beta, void* const* c, int type_c, I ldc, I batch,
                                   int compute, int algo) {
    Form<EntryForm::kGemmEx>::pack<I>(x, handle, transa, transb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta,
                                      const_cast<void**>(c), type_c, ldc, compute, algo);
    x.batch = batch;
  }
};

template <>
struct Form<EntryForm::kGemmStridedEx> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int transa, int transb, I m, I n, I k,
                                   const void* alpha, const void* a, int type_a, I lda, long long stride_a,
                                   const void* b, int type_b, I ldb, long long stride_b, const void* beta, void* c,
                                   int type_c, I ldc, long long stride_c, I batch, int compute, int algo) {
    Form<EntryForm::kGemmEx>::pack<I>(x, handle, transa, transb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta,
                                      c, type_c, ldc, compute, algo);
    x.stride_a = stride_a, x.stride_b = stride_b, x.stride_c = stride_c, x.batch = batch;
  }
};

template <>
struct Form<EntryForm::kGemmGrouped> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, const int* transa, const int* transb, const I* m,
                                   const I* n, const I* k, const void* alpha, const void* const* a, const I* lda,
                                   const void* const* b, const I* ldb, const void* beta, void* const* c, const I* ldc,
                                   I groups, const I* group_sizes) {
    x.handle = handle, x.alpha = alpha, x.a = a, x.b = b, x.beta = beta, x.c = const_cast<void**>(c);
    x.groups = {transa, transb, m, n, k, lda, ldb, ldc, group_sizes, groups, sizeof(I) == sizeof(int64_t)};
  }
};

template <>
struct Form<EntryForm::kGemmGroupedEx> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, const int* transa, const int* transb, const I* m,
                                   const I* n, const I* k, const void* alpha, const void* const* a, int type_a,
                                   const I* lda, const void* const* b, int type_b, const I* ldb, const void* beta,
                                   void* const* c, int type_c, const I* ldc, I groups, const I* group_sizes,
                                   int compute) {
    Form<EntryForm::kGemmGrouped>::pack<I>(x, handle, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc,
                                           groups, group_sizes);
    x.type_a = type_a, x.type_b = type_b, x.type_c = type_c, x.compute = compute;
  }
};

template <>
struct Form<EntryForm::kLtMatmul> {
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, void* desc, const void* alpha, const void* a,
                                   void* a_desc, const void* b, void* b_desc, const void* beta, const void* c,
                                   void* c_desc, void* d, void* d_desc, const void* algo, void* workspace,
                                   size_t workspace_bytes, void* stream) {
    x.handle = handle, x.desc = desc, x.alpha = alpha, x.a = a, x.a_desc = a_desc, x.b = b, x.b_desc = b_desc;
    x.beta = beta, x.c = c, x.c_desc = c_desc, x.d = d, x.d_desc = d_desc, x.lt_algo = algo;
    x.workspace = workspace, x.workspace_bytes = workspace_bytes, x.stream = stream;
  }
};

template <>
struct Form<EntryForm::kGemv> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int trans, I m, I n, const void*, const void*, I,
                                   const void*, I, const void*, void*, I) {
    const bool transposed = trans != 0;
    x.handle = handle, x.m = transposed ? n : m, x.n = 1, x.k = transposed ? m : n, x.batch = 1;
  }
};

template <>
struct Form<EntryForm::kGemvBatched> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int trans, I m, I n, const void*, const void* const*,
                                   I, const void* const*, I, const void*, void* const*, I, I batch) {
    const bool transposed = trans != 0;
    x.handle = handle, x.m = transposed ? n : m, x.n = 1, x.k = transposed ? m : n, x.batch = batch;
  }
};

template <>
struct Form<EntryForm::kGemvStrided> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int trans, I m, I n, const void*, const void*, I,
                                   long long, const void*, I, long long, const void*, void*, I, long long, I batch) {
    const bool transposed = trans != 0;
    x.handle = handle, x.m = transposed ? n : m, x.n = 1, x.k = transposed ? m : n, x.batch = batch;
  }
};

template <>
struct Form<EntryForm::kRankK> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int, int, I n, I k, const void*, const void*, I,
                                   const void*, void*, I) {
    x.handle = handle, x.m = static_cast<int64_t>(n), x.n = static_cast<int64_t>(n), x.k = static_cast<int64_t>(k);
    x.batch = 1;
  }
};

template <>
struct Form<EntryForm::kRankKEx> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int, int, I n, I k, const void*, const void*,
                                   int type_a, I, const void*, void*, int type_c, I) {
    x.handle = handle, x.m = n, x.n = n, x.k = k, x.batch = 1;
    x.type_a = type_a, x.type_b = type_a, x.type_c = type_c;
  }
};

template <>
struct Form<EntryForm::kRank2k> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int, int, I n, I k, const void*, const void*, I,
                                   const void*, I, const void*, void*, I) {
    x.handle = handle, x.m = static_cast<int64_t>(n), x.n = static_cast<int64_t>(n), x.k = static_cast<int64_t>(k);
    x.batch = 1;
  }
};

// cublasSideMode_t: 0 left, 1 right.
template <>
struct Form<EntryForm::kSymm> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int side, int, I m, I n, const void*, const void*, I,
                                   const void*, I, const void*, void*, I) {
    x.handle = handle, x.m = static_cast<int64_t>(m), x.n = static_cast<int64_t>(n);
    x.k = side == 0 ? x.m : x.n, x.batch = 1;
  }
};

template <>
struct Form<EntryForm::kTrmm> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int side, int, int, int, I m, I n, const void*,
                                   const void*, I, const void*, I, void*, I) {
    x.handle = handle, x.m = static_cast<int64_t>(m), x.n = static_cast<int64_t>(n);
    x.k = side == 0 ? x.m : x.n, x.batch = 1;
  }
};

template <>
struct Form<EntryForm::kTrsm> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int side, int, int, int, I m, I n, const void*,
                                   const void*, I, void*, I) {
    x.handle = handle, x.m = static_cast<int64_t>(m), x.n = static_cast<int64_t>(n);
    x.k = side == 0 ? x.m : x.n, x.batch = 1;
  }
};

template <>
struct Form<EntryForm::kTrsmBatched> {
  template <class I>
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int side, int, int, int, I m, I n, const void*,
                                   const void* const*, I, void* const*, I, I batch) {
    x.handle = handle, x.m = m, x.n = n, x.k = side == 0 ? x.m : x.n, x.batch = batch;
  }
};

template <>
struct Form<EntryForm::kByteBias> {
  SDCGUARD_INLINE static void pack(CallArguments& x, void* handle, int, int, int, int m, int n, int k, const void*, int,
                                   int, const void*, int, int, void*, int, int, int, int) {
    x.handle = handle, x.m = m, x.n = n, x.k = k, x.batch = 1;
  }
};
// hot: end

// What quick_flops() counts of a form against the 2 m n k of a full product: half for one triangle.
inline constexpr bool is_half(EntryForm form) {
  return form == EntryForm::kRankK || form == EntryForm::kRankKEx || form == EntryForm::kTrmm ||
         form == EntryForm::kTrsm || form == EntryForm::kTrsmBatched;
}

#undef SDCGUARD_INLINE

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// BLAS level 3 of libcublas beside the products of the engine, and cuBLAS's own matrix operations (geam, dgmm, packed
// to full): takes matrices in device memory, gives one, in the handle's stream.
#include "tools/hostcuda/cublas/checks.h"
#include "tools/hostcuda/cublas/work.h"

namespace hostcuda {
namespace {

constexpr cublasStatus_t kWrong = CUBLAS_STATUS_INVALID_VALUE;

Part part_of(cublasFillMode_t uplo) {
  return is_upper(uplo) ? Part::kUpper : Part::kLower;
}

// ---- symmetric and Hermitian results

enum class Factors {
  kOwn,    // C = alpha op(A) op(A)^T + beta C
  kOther,  // C = alpha op(A) op(B)^T + beta C, one triangle of it
  kBoth,   // C = alpha op(A) op(B)^T + alpha op(B) op(A)^T + beta C
};

// syrk, syrkx, syr2k; `hermitian`: herk, herkx, her2k, with conjugates for transposes, and a real diagonal. The
// elements of A and B are of type E, which load() turns into numbers.
template <typename E, typename A, typename B, typename T, typename Load>
cublasStatus_t rank_k(const char* name, cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans,
                      int64_t n, int64_t k, const A* alpha, const E* a, int64_t lda, const E* b, int64_t ldb,
                      const B* beta, T* c, int64_t ldc, Factors factors, bool hermitian, Load load) {
  const bool other = factors != Factors::kOwn;
  const int64_t rows = trans == CUBLAS_OP_N ? n : k;
  const bool known_op = hermitian ? trans == CUBLAS_OP_N || trans == CUBLAS_OP_C
                                  : trans == CUBLAS_OP_N || trans == CUBLAS_OP_T ||
                                        (trans == CUBLAS_OP_C && std::is_same_v<Number<T>, Real<T>>);
  const bool valid =
      known(uplo) && known_op && n >= 0 && k >= 0 && fits(lda, rows) && (!other || fits(ldb, rows)) && fits(ldc, n);
  bool go_on;
  const cublasStatus_t status = checked(handle, valid, n == 0, &go_on);
  if (!go_on) return status;
  if (!alpha || !beta) return kWrong;
  const Scalar<A> alpha_arg(handle, alpha);
  const Scalar<B> beta_arg(handle, beta);
  return enqueue(handle, name, [=](Access& access) {
    using N = Number<T>;
    const N alpha_now = alpha_arg.get(access, "alpha");
    const N beta_now = beta_arg.get(access, "beta");
    const int64_t cols = trans == CUBLAS_OP_N ? k : n;
    const auto to = matrix(access, "C", c, n, n, ldc);
    const bool multiplies = alpha_now != N{} && k > 0;
    const auto operand = [&](const char* what, const E* address, int64_t ld) {
      return multiplies ? elements(access, what, address, span(rows, cols, ld), HOSTCUDA_READ) : nullptr;
    };
    const E* left = operand("A", a, lda);
    const E* right = other ? operand("B", b, ldb) : left;
    if (access.broken) return;
    const int64_t right_ld = other ? ldb : lda;
    // op(X)(i, l), and its transpose or conjugate transpose
    const auto op = [&](const E* x, int64_t ld, int64_t i, int64_t l) {
      const N value = load(trans == CUBLAS_OP_N ? x[i + l * ld] : x[l + i * ld]);
      return hermitian && trans != CUBLAS_OP_N ? conjugate(value) : value;
    };
    const auto second = [&](N value) { return hermitian ? conjugate(value) : value; };
    multiply(
        n, n, multiplies ? k : 0, [&](int64_t i, int64_t l) { return op(left, lda, i, l); },
        [&](int64_t l, int64_t j) { return second(op(right, right_ld, j, l)); }, alpha_now, beta_now, to,
        part_of(uplo));
    if (factors == Factors::kBoth && multiplies) {
      multiply(
          n, n, k, [&](int64_t i, int64_t l) { return op(right, right_ld, i, l); },
          [&](int64_t l, int64_t j) { return second(op(left, lda, j, l)); }, second(alpha_now), N{1}, to,
          part_of(uplo));
    }
    if (hermitian) make_diagonal_real(n, to);
  });
}

template <typename T>
Number<T> as_number(const T& x) {
  return (Strided<const T>{&x, 1})[0];
}

// Csyrk and Cherk over elements whose type is named at run time: C_32F or C_8I, into C_32F.
template <typename S>
cublasStatus_t rank_k_ex(const char* name, cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans,
                         int64_t n, int64_t k, const S* alpha, const void* a, int a_type, int64_t lda, const S* beta,
                         void* c, int c_type, int64_t ldc, bool hermitian) {
  if (!live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (c_type != CUDA_C_32F || (a_type != CUDA_C_32F && a_type != CUDA_C_8I)) return CUBLAS_STATUS_NOT_SUPPORTED;
  auto* to = static_cast<cuComplex*>(c);
  if (a_type == CUDA_C_32F) {
    const auto* from = static_cast<const cuComplex*>(a);
    return rank_k(name, handle, uplo, trans, n, k, alpha, from, lda, from, lda, beta, to, ldc, Factors::kOwn, hermitian,
                  as_number<cuComplex>);
  }
  const auto* from = static_cast<const char2*>(a);
  return rank_k(
      name, handle, uplo, trans, n, k, alpha, from, lda, from, lda, beta, to, ldc, Factors::kOwn, hermitian,
      [](char2 x) { return std::complex<float>(static_cast<signed char>(x.x), static_cast<signed char>(x.y)); });
}

// ---- products with a symmetric, Hermitian or triangular matrix

template <typename T>
cublasStatus_t symm(const char* name, cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, int64_t m,
                    int64_t n, const T* alpha, const T* a, int64_t lda, const T* b, int64_t ldb, const T* beta, T* c,
                    int64_t ldc, Kind kind) {
  const int64_t order = side == CUBLAS_SIDE_LEFT ? m : n;
  const bool valid = known(side) && known(uplo) && m >= 0 && n >= 0 && fits(lda, order) && fits(ldb, m) && fits(ldc, m);
  bool go_on;
  const cublasStatus_t status = checked(handle, valid, m == 0 || n == 0, &go_on);
  if (!go_on) return status;
  if (!alpha || !beta) return kWrong;
  const Scalar<T> alpha_arg(handle, alpha);
  const Scalar<T> beta_arg(handle, beta);
  return enqueue(handle, name, [=](Access& access) {
    using N = Number<T>;
    const N alpha_now = alpha_arg.get(access, "alpha");
    const N beta_now = beta_arg.get(access, "beta");
    const auto to = matrix(access, "C", c, m, n, ldc);
    Stored<Dense<N>> square{{}, kind, is_upper(uplo)};
    Stored<Dense<N>> other{};
    if (alpha_now != N{}) {
      square.storage = matrix(access, "A", a, order, order, lda);
      other.storage = matrix(access, "B", b, m, n, ldb);
    }
    if (access.broken) return;
    if (side == CUBLAS_SIDE_LEFT)
      multiply(m, n, m, square, other, alpha_now, beta_now, to, Part::kAll);
    else
      multiply(m, n, n, other, square, alpha_now, beta_now, to, Part::kAll);
  });
}

// A triangular operand and its options, which are enumerators whatever the program gave: `known_options` says whether
// it did.
template <typename T>
struct Triangle {
  Triangle(cublasSideMode_t given_side, cublasFillMode_t given_uplo, cublasOperation_t given_trans,
           cublasDiagType_t given_diag, const T* given_a, int64_t given_lda)
      : known_options(known(given_side) && known(given_uplo) && known(given_trans) && known(given_diag)),
        side(known_options ? given_side : CUBLAS_SIDE_LEFT),
        uplo(known_options ? given_uplo : CUBLAS_FILL_MODE_LOWER),
        trans(known_options ? given_trans : CUBLAS_OP_N),
        diag(known_options ? given_diag : CUBLAS_DIAG_NON_UNIT),
        a(given_a),
        lda(given_lda) {}

  bool valid(int64_t order) const { return known_options && fits(lda, order); }
  Transposed<Stored<Dense<Number<T>>>> over(Dense<Number<T>> dense) const {
    return {{dense, Kind::kTriangular, is_upper(uplo), diag == CUBLAS_DIAG_UNIT}, op_of(trans)};
  }

  bool known_options;
  cublasSideMode_t side;
  cublasFillMode_t uplo;
  cublasOperation_t trans;
  cublasDiagType_t diag;
  const T* a;
  int64_t lda;
};

// C = alpha op(A) B or alpha B op(A); C may be B.
template <typename T>
cublasStatus_t trmm(const char* name, cublasHandle_t handle, const Triangle<T>& t, int64_t m, int64_t n, const T* alpha,
                    const T* b, int64_t ldb, T* c, int64_t ldc) {
  const int64_t order = t.side == CUBLAS_SIDE_LEFT ? m : n;
  bool go_on;
  const cublasStatus_t status =
      checked(handle, m >= 0 && n >= 0 && t.valid(order) && fits(ldb, m) && fits(ldc, m), m == 0 || n == 0, &go_on);
  if (!go_on) return status;
  if (!alpha) return kWrong;
  const Scalar<T> alpha_arg(handle, alpha);
  return enqueue(handle, name, [=](Access& access) {
    using N = Number<T>;
    const N alpha_now = alpha_arg.get(access, "alpha");
    const auto to = matrix(access, "C", c, m, n, ldc);
    std::vector<N> kept;
    Dense<N> dense{};
    if (alpha_now != N{}) {
      const auto from = matrix(access, "B", b, m, n, ldb);
      dense = matrix(access, "A", t.a, order, order, t.lda);
      if (access.broken) return;
      kept.reserve(static_cast<size_t>(m * n));
      for (int64_t j = 0; j < n; ++j) kept.insert(kept.end(), &from.at(0, j), &from.at(0, j) + m);
    }
    if (access.broken) return;
    const Stored<Dense<N>> other{{kept.data(), m}};
    if (t.side == CUBLAS_SIDE_LEFT)
      multiply(m, n, m, t.over(dense), other, alpha_now, N{}, to, Part::kAll);
    else
      multiply(m, n, n, other, t.over(dense), alpha_now, N{}, to, Part::kAll);
  });
}

// B = alpha op(A)^-1 B or alpha B op(A)^-1 in place.
template <typename T>
void solve_matrix(const Triangle<T>& t, Dense<Number<T>> a, int64_t m, int64_t n, Number<T> alpha, Dense<Number<T>> b) {
  using N = Number<T>;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) b.at(i, j) = alpha == N{} ? N{} : alpha * b.at(i, j);
  }
  if (alpha == N{}) return;
  const auto op = t.over(a);
  const bool unit = t.diag == CUBLAS_DIAG_UNIT;
  const bool lower = is_upper(t.uplo) != (t.trans == CUBLAS_OP_N);  // of op(A)
  if (t.side == CUBLAS_SIDE_LEFT) {
    for (int64_t j = 0; j < n; ++j) solve(m, op, lower, unit, Strided<N>{&b.at(0, j), 1});
  } else {
    // X op(A) = B row by row: op(A)^T x = b
    const Transposed<std::decay_t<decltype(op)>> turned{op, Op::kTranspose};
    for (int64_t i = 0; i < m; ++i) solve(n, turned, !lower, unit, Strided<N>{&b.at(i, 0), b.ld});
  }
}

template <typename T>
cublasStatus_t trsm(const char* name, cublasHandle_t handle, const Triangle<T>& t, int64_t m, int64_t n, const T* alpha,
                    T* b, int64_t ldb) {
  const int64_t order = t.side == CUBLAS_SIDE_LEFT ? m : n;
  bool go_on;
  const cublasStatus_t status =
      checked(handle, m >= 0 && n >= 0 && t.valid(order) && fits(ldb, m), m == 0 || n == 0, &go_on);
  if (!go_on) return status;
  if (!alpha) return kWrong;
  const Scalar<T> alpha_arg(handle, alpha);
  return enqueue(handle, name, [=](Access& access) {
    const Number<T> alpha_now = alpha_arg.get(access, "alpha");
    const auto to = matrix(access, "B", b, m, n, ldb);
    Dense<Number<T>> dense{};
    if (alpha_now != Number<T>{}) dense = matrix(access, "A", t.a, order, order, t.lda);
    if (!access.broken) solve_matrix(t, dense, m, n, alpha_now, to);
  });
}

template <typename T>
cublasStatus_t trsm_batch(const char* name, cublasHandle_t handle, const Triangle<T>& t, int64_t m, int64_t n,
                          const T* alpha, const T* const* a, T* const* b, int64_t ldb, int64_t count) {
  const int64_t order = t.side == CUBLAS_SIDE_LEFT ? m : n;
  bool go_on;
  const cublasStatus_t status = checked(handle, m >= 0 && n >= 0 && count >= 0 && t.valid(order) && fits(ldb, m),
                                        m == 0 || n == 0 || count == 0, &go_on);
  if (!go_on) return status;
  if (!alpha) return kWrong;
  const Scalar<T> alpha_arg(handle, alpha);
  return enqueue(handle, name, [=](Access& access) {
    const Number<T> alpha_now = alpha_arg.get(access, "alpha");
    auto* const* a_list = elements(access, "the pointer array of A", a, count, HOSTCUDA_READ);
    auto* const* b_list = elements(access, "the pointer array of B", b, count, HOSTCUDA_READ);
    for (int64_t e = 0; !access.broken && e < count; ++e) {
      const std::string of = " of batch entry " + std::to_string(e);
      const auto dense = matrix(access, "A" + of, a_list[e], order, order, t.lda);
      const auto to = matrix(access, "B" + of, b_list[e], m, n, ldb);
      if (!access.broken) solve_matrix(t, dense, m, n, alpha_now, to);
    }
  });
}

// ---- cuBLAS's own

// C = alpha op(A) + beta op(B); C may be A or B where that one is not transposed.
template <typename T>
cublasStatus_t geam(const char* name, cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                    int64_t m, int64_t n, const T* alpha, const T* a, int64_t lda, const T* beta, const T* b,
                    int64_t ldb, T* c, int64_t ldc) {
  const bool turned_a = transa != CUBLAS_OP_N;
  const bool turned_b = transb != CUBLAS_OP_N;
  const bool in_place_well = (c != a || (!turned_a && ldc == lda)) && (c != b || (!turned_b && ldc == ldb));
  const bool valid = known(transa) && known(transb) && m >= 0 && n >= 0 && fits(lda, turned_a ? n : m) &&
                     fits(ldb, turned_b ? n : m) && fits(ldc, m);
  bool go_on;
  const cublasStatus_t status = checked(handle, valid, m == 0 || n == 0, &go_on);
  if (!go_on) return status;
  if (!alpha || !beta || !in_place_well) return kWrong;
  const Scalar<T> alpha_arg(handle, alpha);
  const Scalar<T> beta_arg(handle, beta);
  return enqueue(handle, name, [=](Access& access) {
    using N = Number<T>;
    const N alpha_now = alpha_arg.get(access, "alpha");
    const N beta_now = beta_arg.get(access, "beta");
    Dense<N> left{};
    Dense<N> right{};
    if (alpha_now != N{}) left = matrix(access, "A", a, turned_a ? n : m, turned_a ? m : n, lda);
    if (beta_now != N{}) right = matrix(access, "B", b, turned_b ? n : m, turned_b ? m : n, ldb);
    const auto to = matrix(access, "C", c, m, n, ldc);
    if (access.broken) return;
    const auto op_a = op_of(op_of(transa), left);
    const auto op_b = op_of(op_of(transb), right);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        N sum{};
        if (alpha_now != N{}) sum += alpha_now * op_a(i, j);
        if (beta_now != N{}) sum += beta_now * op_b(i, j);
        to.at(i, j) = sum;
      }
    }
  });
}

// C = A diag(x) or diag(x) A.
template <typename T>
cublasStatus_t dgmm(const char* name, cublasHandle_t handle, cublasSideMode_t side, int64_t m, int64_t n, const T* a,
                    int64_t lda, const T* x, int64_t incx, T* c, int64_t ldc) {
  bool go_on;
  const cublasStatus_t status =
      checked(handle, known(side) && m >= 0 && n >= 0 && fits(lda, m) && fits(ldc, m), m == 0 || n == 0, &go_on);
  if (!go_on) return status;
  return enqueue(handle, name, [=](Access& access) {
    const auto from = matrix(access, "A", a, m, n, lda);
    const auto diagonal = vector(access, "x", x, side == CUBLAS_SIDE_LEFT ? m : n, incx);
    const auto to = matrix(access, "C", c, m, n, ldc);
    if (access.broken) return;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) to.at(i, j) = from.at(i, j) * diagonal[side == CUBLAS_SIDE_LEFT ? i : j];
    }
  });
}

// One triangle between its packed and its full storage.
template <typename T>
cublasStatus_t repack(const char* name, cublasHandle_t handle, cublasFillMode_t uplo, int64_t n, T* packed, T* full,
                      int64_t ld, bool to_full) {
  bool go_on;
  const cublasStatus_t status = checked(handle, known(uplo) && n >= 0 && fits(ld, n), n == 0, &go_on);
  if (!go_on) return status;
  return enqueue(handle, name, [=](Access& access) {
    using N = Number<T>;
    auto* ap = elements(access, "AP", packed, packed_elems(n), HOSTCUDA_READ | (to_full ? 0 : HOSTCUDA_WRITE));
    const auto dense = matrix(access, "A", full, n, n, ld);
    if (access.broken) return;
    const Packed<N> triangle{reinterpret_cast<N*>(ap), n, is_upper(uplo)};
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = is_upper(uplo) ? 0 : j; i < (is_upper(uplo) ? j + 1 : n); ++i) {
        if (to_full)
          dense.at(i, j) = triangle.at(i, j);
        else
          triangle.at(i, j) = dense.at(i, j);
      }
    }
  });
}

}  // namespace
}  // namespace hostcuda

using hostcuda::Factors;
using hostcuda::Kind;
using hostcuda::Triangle;

// clang-format off
#define HOSTCUDA_WIDTHS(shape, name, ...) shape(name, int, __VA_ARGS__) shape(name##_64, int64_t, __VA_ARGS__)
#define HOSTCUDA_SYRK(name, Size, T, S, hermitian)                                                                     \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, Size n, Size k,           \
                      const S* alpha, const T* A, Size lda, const S* beta, T* C, Size ldc) {                           \
    return hostcuda::rank_k(#name, handle, uplo, trans, n, k, alpha, A, lda, A, lda, beta, C, ldc, Factors::kOwn,      \
                            hermitian, hostcuda::as_number<T>);                                                        \
  }
#define HOSTCUDA_SYR2K(name, Size, T, S, hermitian, factors)                                                           \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, Size n, Size k,           \
                      const T* alpha, const T* A, Size lda, const T* B, Size ldb, const S* beta, T* C, Size ldc) {     \
    return hostcuda::rank_k(#name, handle, uplo, trans, n, k, alpha, A, lda, B, ldb, beta, C, ldc, Factors::factors,   \
                            hermitian, hostcuda::as_number<T>);                                                        \
  }
#define HOSTCUDA_SYRK_EX(name, Size, S, hermitian)                                                                     \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, Size n, Size k,           \
                      const S* alpha, const void* A, cudaDataType Atype, Size lda, const S* beta, void* C,             \
                      cudaDataType Ctype, Size ldc) {                                                                  \
    return hostcuda::rank_k_ex(#name, handle, uplo, trans, n, k, alpha, A, Atype, lda, beta, C, Ctype, ldc,            \
                               hermitian);                                                                             \
  }
#define HOSTCUDA_SYMM(name, Size, T, kind)                                                                             \
  cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, Size m, Size n,             \
                      const T* alpha, const T* A, Size lda, const T* B, Size ldb, const T* beta, T* C, Size ldc) {     \
    return hostcuda::symm(#name, handle, side, uplo, m, n, alpha, A, lda, B, ldb, beta, C, ldc, Kind::kind);           \
  }
#define HOSTCUDA_TRMM(name, Size, T)                                                                                   \
  cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,    \
                      cublasDiagType_t diag, Size m, Size n, const T* alpha, const T* A, Size lda, const T* B,         \
                      Size ldb, T* C, Size ldc) {                                                                      \
    return hostcuda::trmm(#name, handle, Triangle<T>(side, uplo, trans, diag, A, lda), m, n, alpha, B, ldb, C, ldc);   \
  }
#define HOSTCUDA_TRSM(name, Size, T)                                                                                   \
  cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,    \
                      cublasDiagType_t diag, Size m, Size n, const T* alpha, const T* A, Size lda, T* B, Size ldb) {   \
    return hostcuda::trsm(#name, handle, Triangle<T>(side, uplo, trans, diag, A, lda), m, n, alpha, B, ldb);           \
  }
#define HOSTCUDA_TRSM_BATCHED(name, Size, T)                                                                           \
  cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,    \
                      cublasDiagType_t diag, Size m, Size n, const T* alpha, const T* const A[], Size lda,             \
                      T* const B[], Size ldb, Size batchCount) {                                                       \
    return hostcuda::trsm_batch(#name, handle, Triangle<T>(side, uplo, trans, diag, nullptr, lda), m, n, alpha, A, B,  \
                                ldb, batchCount);                                                                      \
  }
#define HOSTCUDA_GEAM(name, Size, T)                                                                                   \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, Size m, Size n,       \
                      const T* alpha, const T* A, Size lda, const T* beta, const T* B, Size ldb, T* C, Size ldc) {     \
    return hostcuda::geam(#name, handle, transa, transb, m, n, alpha, A, lda, beta, B, ldb, C, ldc);                   \
  }
#define HOSTCUDA_DGMM(name, Size, T)                                                                                   \
  cublasStatus_t name(cublasHandle_t handle, cublasSideMode_t mode, Size m, Size n, const T* A, Size lda, const T* x,  \
                      Size incx, T* C, Size ldc) {                                                                     \
    return hostcuda::dgmm(#name, handle, mode, m, n, A, lda, x, incx, C, ldc);                                         \
  }
#define HOSTCUDA_REPACK(letter, T)                                                                                     \
  cublasStatus_t cublas##letter##tpttr(cublasHandle_t handle, cublasFillMode_t uplo, int n, const T* AP, T* A,         \
                                       int lda) {                                                                      \
    return hostcuda::repack("cublas" #letter "tpttr", handle, uplo, n, const_cast<T*>(AP), A, lda, true);              \
  }                                                                                                                    \
  cublasStatus_t cublas##letter##trttp(cublasHandle_t handle, cublasFillMode_t uplo, int n, const T* A, int lda,       \
                                       T* AP) {                                                                        \
    return hostcuda::repack("cublas" #letter "trttp", handle, uplo, n, AP, const_cast<T*>(A), lda, false);             \
  }
// clang-format on

extern "C" {

HOSTCUDA_WIDTHS(HOSTCUDA_SYRK, cublasSsyrk_v2, float, float, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SYRK, cublasDsyrk_v2, double, double, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SYRK, cublasCsyrk_v2, cuComplex, cuComplex, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SYRK, cublasZsyrk_v2, cuDoubleComplex, cuDoubleComplex, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SYRK, cublasCherk_v2, cuComplex, float, true)
HOSTCUDA_WIDTHS(HOSTCUDA_SYRK, cublasZherk_v2, cuDoubleComplex, double, true)
HOSTCUDA_WIDTHS(HOSTCUDA_SYRK_EX, cublasCsyrkEx, cuComplex, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SYRK_EX, cublasCsyrk3mEx, cuComplex, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SYRK_EX, cublasCherkEx, float, true)
HOSTCUDA_WIDTHS(HOSTCUDA_SYRK_EX, cublasCherk3mEx, float, true)

HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasSsyr2k_v2, float, float, false, kBoth)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasDsyr2k_v2, double, double, false, kBoth)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasCsyr2k_v2, cuComplex, cuComplex, false, kBoth)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasZsyr2k_v2, cuDoubleComplex, cuDoubleComplex, false, kBoth)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasCher2k_v2, cuComplex, float, true, kBoth)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasZher2k_v2, cuDoubleComplex, double, true, kBoth)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasSsyrkx, float, float, false, kOther)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasDsyrkx, double, double, false, kOther)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasCsyrkx, cuComplex, cuComplex, false, kOther)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasZsyrkx, cuDoubleComplex, cuDoubleComplex, false, kOther)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasCherkx, cuComplex, float, true, kOther)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR2K, cublasZherkx, cuDoubleComplex, double, true, kOther)

HOSTCUDA_WIDTHS(HOSTCUDA_SYMM, cublasSsymm_v2, float, kSymmetric)
HOSTCUDA_WIDTHS(HOSTCUDA_SYMM, cublasDsymm_v2, double, kSymmetric)
HOSTCUDA_WIDTHS(HOSTCUDA_SYMM, cublasCsymm_v2, cuComplex, kSymmetric)
HOSTCUDA_WIDTHS(HOSTCUDA_SYMM, cublasZsymm_v2, cuDoubleComplex, kSymmetric)
HOSTCUDA_WIDTHS(HOSTCUDA_SYMM, cublasChemm_v2, cuComplex, kHermitian)
HOSTCUDA_WIDTHS(HOSTCUDA_SYMM, cublasZhemm_v2, cuDoubleComplex, kHermitian)

#define HOSTCUDA_FOUR(shape, routine)                 \
  HOSTCUDA_WIDTHS(shape, cublasS##routine, float)     \
  HOSTCUDA_WIDTHS(shape, cublasD##routine, double)    \
  HOSTCUDA_WIDTHS(shape, cublasC##routine, cuComplex) \
  HOSTCUDA_WIDTHS(shape, cublasZ##routine, cuDoubleComplex)
HOSTCUDA_FOUR(HOSTCUDA_TRMM, trmm_v2)
HOSTCUDA_FOUR(HOSTCUDA_TRSM, trsm_v2)
HOSTCUDA_FOUR(HOSTCUDA_TRSM_BATCHED, trsmBatched)
HOSTCUDA_FOUR(HOSTCUDA_GEAM, geam)
HOSTCUDA_FOUR(HOSTCUDA_DGMM, dgmm)

HOSTCUDA_REPACK(S, float)
HOSTCUDA_REPACK(D, double)
HOSTCUDA_REPACK(C, cuComplex)
HOSTCUDA_REPACK(Z, cuDoubleComplex)

}  // extern "C"

// SPDX-License-Identifier: MIT
// BLAS level 2 of libcublas: takes a matrix in any of BLAS's layouts and vectors, all in device memory, gives a vector
// or the updated matrix, in the handle's stream.
#include "tools/hostcuda/cublas/checks.h"
#include "tools/hostcuda/cublas/work.h"

namespace hostcuda {
namespace {

constexpr cublasStatus_t kWrong = CUBLAS_STATUS_INVALID_VALUE;

// How a matrix argument is stored. `ld` is unused by packed ones, `below` and `above` by all but banded ones.
enum class Layout { kDense, kBanded, kPacked };
template <typename T>
struct MatrixArgument {
  Layout layout;
  const T* a;
  int64_t rows, cols, ld;
  int64_t below = 0, above = 0;
};

// use(stored) with the matrix as the work sees it; nothing after a broken rule.
template <typename T, typename Use>
void with_matrix(Access& access, const MatrixArgument<T>& x, Kind kind, bool upper, bool unit, Use use) {
  using N = Number<T>;
  if (x.layout == Layout::kDense) {
    const auto dense = matrix(access, "A", x.a, x.rows, x.cols, x.ld);
    if (!access.broken) use(Stored<Dense<N>>{dense, kind, upper, unit});
  } else if (x.layout == Layout::kBanded) {
    const auto dense = matrix(access, "A", x.a, x.below + x.above + 1, x.cols, x.ld);
    if (access.broken) return;
    // The triangle that a band of one side stores has its diagonal in the last row (upper) or the first.
    const int64_t below = kind == Kind::kSymmetric || kind == Kind::kHermitian ? x.below + x.above : x.below;
    const int64_t above = kind == Kind::kSymmetric || kind == Kind::kHermitian ? x.below + x.above : x.above;
    use(Stored<Banded<N>>{{dense.a, x.ld, x.above}, kind, upper, unit, below, above});
  } else {
    auto* a = elements(access, "AP", x.a, packed_elems(x.cols), HOSTCUDA_READ);
    if (access.broken) return;
    auto* numbers = reinterpret_cast<N*>(const_cast<T*>(a));
    use(Stored<Packed<N>>{{numbers, x.cols, upper}, kind, upper, unit});
  }
}

// The band that one triangle of a symmetric or triangular matrix stores.
template <typename T>
MatrixArgument<T> half_band(const T* a, int64_t n, int64_t k, int64_t ld, cublasFillMode_t uplo) {
  return {Layout::kBanded, a, n, n, ld, is_upper(uplo) ? 0 : k, is_upper(uplo) ? k : 0};
}

template <typename T>
bool right_layout(const MatrixArgument<T>& x) {
  switch (x.layout) {
    case Layout::kDense:
      return fits(x.ld, x.rows);
    case Layout::kBanded:
      return x.below >= 0 && x.above >= 0 && fits(x.ld, x.below + x.above + 1);
    default:
      return true;
  }
}

// y = alpha op(A) x + beta y, or with a symmetric or Hermitian A.
template <typename T>
cublasStatus_t product(const char* name, cublasHandle_t handle, const MatrixArgument<T>& a, Kind kind, bool upper,
                       cublasOperation_t trans, const T* alpha, const T* x, int64_t incx, const T* beta, T* y,
                       int64_t incy) {
  const bool valid = known(trans) && a.rows >= 0 && a.cols >= 0 && right_layout(a) && incx != 0 && incy != 0;
  bool go_on;
  const cublasStatus_t status = checked(handle, valid, a.rows == 0 || a.cols == 0, &go_on);
  if (!go_on) return status;
  if (!alpha || !beta) return kWrong;
  const Scalar<T> alpha_arg(handle, alpha);
  const Scalar<T> beta_arg(handle, beta);
  return enqueue(handle, name, [=](Access& access) {
    using N = Number<T>;
    const N alpha_now = alpha_arg.get(access, "alpha");
    const N beta_now = beta_arg.get(access, "beta");
    const int64_t rows = trans == CUBLAS_OP_N ? a.rows : a.cols;
    const int64_t cols = trans == CUBLAS_OP_N ? a.cols : a.rows;
    const auto to = vector(access, "y", y, rows, incy);
    if (access.broken) return;
    if (alpha_now == N{}) {
      for (int64_t i = 0; i < rows; ++i) to[i] = beta_now == N{} ? N{} : beta_now * N(to[i]);
      return;
    }
    const auto from = vector(access, "x", x, cols, incx);
    with_matrix(access, a, kind, upper, false, [&](const auto& stored) {
      multiply_vector(rows, cols, Transposed<std::decay_t<decltype(stored)>>{stored, op_of(trans)}, alpha_now, from,
                      beta_now, to);
    });
  });
}

// x = op(A) x or op(A)^-1 x for a triangular A.
template <typename T>
cublasStatus_t triangle(const char* name, cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans,
                        cublasDiagType_t diag, const MatrixArgument<T>& a, T* x, int64_t incx, bool inverse) {
  const bool valid = known(uplo) && known(trans) && known(diag) && a.cols >= 0 && right_layout(a) && incx != 0;
  bool go_on;
  const cublasStatus_t status = checked(handle, valid, a.cols == 0, &go_on);
  if (!go_on) return status;
  return enqueue(handle, name, [=](Access& access) {
    using N = Number<T>;
    const int64_t n = a.cols;
    const auto to = vector(access, "x", x, n, incx);
    const bool unit = diag == CUBLAS_DIAG_UNIT;
    with_matrix(access, a, Kind::kTriangular, is_upper(uplo), unit, [&](const auto& stored) {
      const Transposed<std::decay_t<decltype(stored)>> op{stored, op_of(trans)};
      if (inverse) {
        solve(n, op, is_upper(uplo) != (trans == CUBLAS_OP_N), unit, to);
        return;
      }
      std::vector<N> from(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) from[static_cast<size_t>(i)] = to[i];
      multiply_vector(n, n, op, N{1}, from.data(), N{}, to);
    });
  });
}

// A = alpha x y^T + A, y conjugated or not.
template <typename T>
cublasStatus_t rank_one(const char* name, cublasHandle_t handle, int64_t m, int64_t n, const T* alpha, const T* x,
                        int64_t incx, const T* y, int64_t incy, T* a, int64_t lda, bool conjugated) {
  bool go_on;
  const cublasStatus_t status =
      checked(handle, m >= 0 && n >= 0 && incx != 0 && incy != 0 && fits(lda, m), m == 0 || n == 0, &go_on);
  if (!go_on) return status;
  if (!alpha) return kWrong;
  const Scalar<T> alpha_arg(handle, alpha);
  return enqueue(handle, name, [=](Access& access) {
    using N = Number<T>;
    const N alpha_now = alpha_arg.get(access, "alpha");
    if (access.broken || alpha_now == N{}) return;
    const auto left = vector(access, "x", x, m, incx);
    const auto right = vector(access, "y", y, n, incy);
    const auto to = matrix(access, "A", a, m, n, lda);
    if (access.broken) return;
    for (int64_t j = 0; j < n; ++j) {
      const N factor = alpha_now * (conjugated ? conjugate(N(right[j])) : N(right[j]));
      for (int64_t i = 0; i < m; ++i) to.at(i, j) += N(left[i]) * factor;
    }
  });
}

// One triangle of A = alpha x x^T + A (y null) or alpha x y^T + alpha y x^T + A; `hermitian`: with the conjugates of
// the second factors and of the second alpha, and a real diagonal. ld 0: A is packed.
template <typename A, typename T>
cublasStatus_t rank_update(const char* name, cublasHandle_t handle, cublasFillMode_t uplo, int64_t n, const A* alpha,
                           const T* x, int64_t incx, const T* y, int64_t incy, T* a, int64_t lda, bool packed, bool two,
                           bool hermitian) {
  bool go_on;
  const cublasStatus_t status = checked(
      handle, known(uplo) && n >= 0 && incx != 0 && (!two || incy != 0) && (packed || fits(lda, n)), n == 0, &go_on);
  if (!go_on) return status;
  if (!alpha) return kWrong;
  const Scalar<A> alpha_arg(handle, alpha);
  return enqueue(handle, name, [=](Access& access) {
    using N = Number<T>;
    const N alpha_now = alpha_arg.get(access, "alpha");
    if (access.broken || alpha_now == N{}) return;
    const auto left = vector(access, "x", x, n, incx);
    const auto right = two ? vector(access, "y", y, n, incy) : left;
    const auto update = [&](const auto& to) {
      if (access.broken) return;
      const auto second = [&](N value) { return hermitian ? conjugate(value) : value; };
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = is_upper(uplo) ? 0 : j; i < (is_upper(uplo) ? j + 1 : n); ++i) {
          N sum = alpha_now * N(left[i]) * second(N(right[j]));
          if (two) sum += second(alpha_now) * N(right[i]) * second(N(left[j]));
          to.at(i, j) += sum;
        }
      }
      if (hermitian) make_diagonal_real(n, to);
    };
    if (packed) {
      auto* ap = elements(access, "AP", a, packed_elems(n), HOSTCUDA_READ | HOSTCUDA_WRITE);
      update(Packed<N>{reinterpret_cast<N*>(ap), n, is_upper(uplo)});
    } else {
      update(matrix(access, "A", a, n, n, lda));
    }
  });
}

// ---- batches of gemv: element types of A and x, and of y, may be narrower than the sum

template <typename A, typename X, typename Y>
struct Batch {
  const char* name;
  cublasHandle_t handle;
  int trans;  // cublasOperation_t, as a number until it is known to be an enumerator
  int64_t m, n;
  const A* alpha;
  const X* a;  // by_pointers: a device array of addresses, as x and y
  int64_t lda, stride_a;
  const X* x;
  int64_t incx, stride_x;
  const A* beta;
  Y* y;
  int64_t incy, stride_y;
  int64_t count;
  bool by_pointers;
};

template <typename A, typename X, typename Y>
cublasStatus_t gemv_batch(const Batch<A, X, Y>& b) {
  const bool valid = known(static_cast<cublasOperation_t>(b.trans)) && b.m >= 0 && b.n >= 0 && fits(b.lda, b.m) &&
                     b.incx != 0 && b.incy != 0 && b.count >= 0;
  bool go_on;
  const cublasStatus_t status = checked(b.handle, valid, b.m == 0 || b.n == 0 || b.count == 0, &go_on);
  if (!go_on) return status;
  if (!b.alpha || !b.beta) return kWrong;
  const Scalar<A> alpha_arg(b.handle, b.alpha);
  const Scalar<A> beta_arg(b.handle, b.beta);
  return enqueue(b.handle, b.name, [=](Access& access) {
    using N = Number<A>;
    const N alpha = alpha_arg.get(access, "alpha");
    const N beta = beta_arg.get(access, "beta");
    // The pointer arrays are read as such only by_pointers.
    const auto list = [&](const char* what, auto* array) {
      using Pointer = decltype(array);
      auto* addresses = reinterpret_cast<const Pointer*>(array);
      return b.by_pointers ? elements(access, what, addresses, b.count, HOSTCUDA_READ) : nullptr;
    };
    const bool multiplies = alpha != N{};  // else A and x are not read
    const auto a_list = multiplies ? list("the pointer array of A", b.a) : nullptr;
    const auto x_list = multiplies ? list("the pointer array of x", b.x) : nullptr;
    const auto y_list = list("the pointer array of y", b.y);
    const int64_t rows = b.trans == CUBLAS_OP_N ? b.m : b.n;
    const int64_t cols = b.trans == CUBLAS_OP_N ? b.n : b.m;
    for (int64_t e = 0; !access.broken && e < b.count; ++e) {
      const std::string of = " of batch entry " + std::to_string(e);
      const auto to = vector(access, "y" + of, y_list ? y_list[e] : b.y + e * b.stride_y, rows, b.incy);
      Strided<const X> from{};
      Strided<const X> a{};
      if (multiplies) {
        from = vector(access, "x" + of, x_list ? x_list[e] : b.x + e * b.stride_x, cols, b.incx);
        const X* first = a_list ? a_list[e] : b.a + e * b.stride_a;
        a = {elements(access, "A" + of, first, span(b.m, b.n, b.lda), HOSTCUDA_READ), 1};
      }
      if (access.broken) return;
      const auto entry = [&](int64_t i, int64_t j) -> N {
        if (b.trans == CUBLAS_OP_N) return N(a[i + j * b.lda]);
        const N value = N(a[j + i * b.lda]);
        return b.trans == CUBLAS_OP_C ? conjugate(value) : value;
      };
      multiply_vector(rows, multiplies ? cols : 0, entry, alpha, from, beta, to);
    }
  });
}

}  // namespace
}  // namespace hostcuda

using hostcuda::Kind;
using hostcuda::Layout;
using hostcuda::MatrixArgument;

// clang-format off
#define HOSTCUDA_WIDTHS(shape, name, ...) shape(name, int, __VA_ARGS__) shape(name##_64, int64_t, __VA_ARGS__)

#define HOSTCUDA_GEMV(name, Size, T)                                                                                   \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t trans, Size m, Size n, const T* alpha, const T* A,      \
                      Size lda, const T* x, Size incx, const T* beta, T* y, Size incy) {                               \
    return hostcuda::product(#name, handle, MatrixArgument<T>{Layout::kDense, A, m, n, lda}, Kind::kGeneral, false,    \
                             trans, alpha, x, incx, beta, y, incy);                                                    \
  }
#define HOSTCUDA_GBMV(name, Size, T)                                                                                   \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t trans, Size m, Size n, Size kl, Size ku,                \
                      const T* alpha, const T* A, Size lda, const T* x, Size incx, const T* beta, T* y, Size incy) {   \
    return hostcuda::product(#name, handle, MatrixArgument<T>{Layout::kBanded, A, m, n, lda, kl, ku}, Kind::kGeneral,  \
                             false, trans, alpha, x, incx, beta, y, incy);                                             \
  }
// symv, hemv
#define HOSTCUDA_SYMV(name, Size, T, kind)                                                                             \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, Size n, const T* alpha, const T* A, Size lda,      \
                      const T* x, Size incx, const T* beta, T* y, Size incy) {                                         \
    if (!hostcuda::known(uplo)) n = -1;                                                                                \
    return hostcuda::product(#name, handle, MatrixArgument<T>{Layout::kDense, A, n, n, lda}, Kind::kind,               \
                             hostcuda::is_upper(uplo), CUBLAS_OP_N, alpha, x, incx, beta, y, incy);                    \
  }
#define HOSTCUDA_SBMV(name, Size, T, kind)                                                                             \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, Size n, Size k, const T* alpha, const T* A,        \
                      Size lda, const T* x, Size incx, const T* beta, T* y, Size incy) {                               \
    if (!hostcuda::known(uplo)) n = -1;                                                                                \
    return hostcuda::product(#name, handle, hostcuda::half_band(A, n, k, lda, uplo), Kind::kind,                       \
                             hostcuda::is_upper(uplo), CUBLAS_OP_N, alpha, x, incx, beta, y, incy);                    \
  }
#define HOSTCUDA_SPMV(name, Size, T, kind)                                                                             \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, Size n, const T* alpha, const T* AP, const T* x,   \
                      Size incx, const T* beta, T* y, Size incy) {                                                     \
    if (!hostcuda::known(uplo)) n = -1;                                                                                \
    return hostcuda::product(#name, handle, MatrixArgument<T>{Layout::kPacked, AP, n, n, 0}, Kind::kind,               \
                             hostcuda::is_upper(uplo), CUBLAS_OP_N, alpha, x, incx, beta, y, incy);                    \
  }
// trmv (inverse false) and trsv (true), and the same over bands and packed triangles
#define HOSTCUDA_TRMV(name, Size, T, inverse)                                                                          \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, cublasDiagType_t diag,    \
                      Size n, const T* A, Size lda, T* x, Size incx) {                                                 \
    return hostcuda::triangle(#name, handle, uplo, trans, diag, MatrixArgument<T>{Layout::kDense, A, n, n, lda}, x,    \
                              incx, inverse);                                                                          \
  }
#define HOSTCUDA_TBMV(name, Size, T, inverse)                                                                          \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, cublasDiagType_t diag,    \
                      Size n, Size k, const T* A, Size lda, T* x, Size incx) {                                         \
    return hostcuda::triangle(#name, handle, uplo, trans, diag, hostcuda::half_band(A, n, k, lda, uplo), x, incx,      \
                              inverse);                                                                                \
  }
#define HOSTCUDA_TPMV(name, Size, T, inverse)                                                                          \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, cublasDiagType_t diag,    \
                      Size n, const T* AP, T* x, Size incx) {                                                          \
    return hostcuda::triangle(#name, handle, uplo, trans, diag, MatrixArgument<T>{Layout::kPacked, AP, n, n, 0}, x,    \
                              incx, inverse);                                                                          \
  }
#define HOSTCUDA_GER(name, Size, T, conjugated)                                                                        \
  cublasStatus_t name(cublasHandle_t handle, Size m, Size n, const T* alpha, const T* x, Size incx, const T* y,        \
                      Size incy, T* A, Size lda) {                                                                     \
    return hostcuda::rank_one(#name, handle, m, n, alpha, x, incx, y, incy, A, lda, conjugated);                       \
  }
// syr, her (alpha of type Alpha, real for her) and, packed, spr and hpr
#define HOSTCUDA_SYR(name, Size, T, Alpha, hermitian)                                                                  \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, Size n, const Alpha* alpha, const T* x, Size incx, \
                      T* A, Size lda) {                                                                                \
    return hostcuda::rank_update(#name, handle, uplo, n, alpha, x, incx, static_cast<const T*>(nullptr), 0, A, lda,    \
                                 false, false, hermitian);                                                             \
  }
#define HOSTCUDA_SPR(name, Size, T, Alpha, hermitian)                                                                  \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, Size n, const Alpha* alpha, const T* x, Size incx, \
                      T* AP) {                                                                                         \
    return hostcuda::rank_update(#name, handle, uplo, n, alpha, x, incx, static_cast<const T*>(nullptr), 0, AP, 0,     \
                                 true, false, hermitian);                                                              \
  }
#define HOSTCUDA_SYR2(name, Size, T, hermitian)                                                                        \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, Size n, const T* alpha, const T* x, Size incx,     \
                      const T* y, Size incy, T* A, Size lda) {                                                         \
    return hostcuda::rank_update(#name, handle, uplo, n, alpha, x, incx, y, incy, A, lda, false, true, hermitian);     \
  }
#define HOSTCUDA_SPR2(name, Size, T, hermitian)                                                                        \
  cublasStatus_t name(cublasHandle_t handle, cublasFillMode_t uplo, Size n, const T* alpha, const T* x, Size incx,     \
                      const T* y, Size incy, T* AP) {                                                                  \
    return hostcuda::rank_update(#name, handle, uplo, n, alpha, x, incx, y, incy, AP, 0, true, true, hermitian);       \
  }
#define HOSTCUDA_GEMV_BATCHED(name, Size, A, X, Y)                                                                     \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t trans, Size m, Size n, const A* alpha,                  \
                      const X* const Aarray[], Size lda, const X* const xarray[], Size incx, const A* beta,            \
                      Y* const yarray[], Size incy, Size batchCount) {                                                 \
    return hostcuda::gemv_batch(hostcuda::Batch<A, X, Y>{#name, handle, trans, m, n, alpha,                            \
        reinterpret_cast<const X*>(Aarray), lda, 0, reinterpret_cast<const X*>(xarray), incx, 0, beta,                 \
        reinterpret_cast<Y*>(const_cast<Y**>(yarray)), incy, 0, batchCount, true});                                    \
  }
#define HOSTCUDA_GEMV_STRIDED_BATCHED(name, Size, Alpha, X, Y)                                                         \
  cublasStatus_t name(cublasHandle_t handle, cublasOperation_t trans, Size m, Size n, const Alpha* alpha, const X* A,  \
                      Size lda, long long int strideA, const X* x, Size incx, long long int stridex,                   \
                      const Alpha* beta, Y* y, Size incy, long long int stridey, Size batchCount) {                    \
    return hostcuda::gemv_batch(hostcuda::Batch<Alpha, X, Y>{#name, handle, trans, m, n, alpha, A, lda, strideA, x,    \
        incx, stridex, beta, y, incy, stridey, batchCount, false});                                                    \
  }

// Each routine for S, D, C and Z, where it has the same shape for all.
#define HOSTCUDA_FOUR(shape, routine, ...)                                                                             \
  HOSTCUDA_WIDTHS(shape, cublasS##routine, float __VA_ARGS__)                                                          \
  HOSTCUDA_WIDTHS(shape, cublasD##routine, double __VA_ARGS__)                                                         \
  HOSTCUDA_WIDTHS(shape, cublasC##routine, cuComplex __VA_ARGS__)                                                      \
  HOSTCUDA_WIDTHS(shape, cublasZ##routine, cuDoubleComplex __VA_ARGS__)
#define HOSTCUDA_REAL_TWO(shape, routine, ...)                                                                         \
  HOSTCUDA_WIDTHS(shape, cublasS##routine, float, __VA_ARGS__)                                                         \
  HOSTCUDA_WIDTHS(shape, cublasD##routine, double, __VA_ARGS__)
#define HOSTCUDA_COMPLEX_TWO(shape, routine, ...)                                                                      \
  HOSTCUDA_WIDTHS(shape, cublasC##routine, cuComplex, __VA_ARGS__)                                                     \
  HOSTCUDA_WIDTHS(shape, cublasZ##routine, cuDoubleComplex, __VA_ARGS__)
#define HOSTCUDA_COMMA ,
// clang-format on

extern "C" {

HOSTCUDA_FOUR(HOSTCUDA_GEMV, gemv_v2)
HOSTCUDA_FOUR(HOSTCUDA_GBMV, gbmv_v2)
HOSTCUDA_FOUR(HOSTCUDA_SYMV, symv_v2, HOSTCUDA_COMMA kSymmetric)
HOSTCUDA_COMPLEX_TWO(HOSTCUDA_SYMV, hemv_v2, kHermitian)
HOSTCUDA_REAL_TWO(HOSTCUDA_SBMV, sbmv_v2, kSymmetric)
HOSTCUDA_COMPLEX_TWO(HOSTCUDA_SBMV, hbmv_v2, kHermitian)
HOSTCUDA_REAL_TWO(HOSTCUDA_SPMV, spmv_v2, kSymmetric)
HOSTCUDA_COMPLEX_TWO(HOSTCUDA_SPMV, hpmv_v2, kHermitian)

HOSTCUDA_FOUR(HOSTCUDA_TRMV, trmv_v2, HOSTCUDA_COMMA false)
HOSTCUDA_FOUR(HOSTCUDA_TBMV, tbmv_v2, HOSTCUDA_COMMA false)
HOSTCUDA_FOUR(HOSTCUDA_TPMV, tpmv_v2, HOSTCUDA_COMMA false)
HOSTCUDA_FOUR(HOSTCUDA_TRMV, trsv_v2, HOSTCUDA_COMMA true)
HOSTCUDA_FOUR(HOSTCUDA_TBMV, tbsv_v2, HOSTCUDA_COMMA true)
HOSTCUDA_FOUR(HOSTCUDA_TPMV, tpsv_v2, HOSTCUDA_COMMA true)

HOSTCUDA_REAL_TWO(HOSTCUDA_GER, ger_v2, false)
HOSTCUDA_COMPLEX_TWO(HOSTCUDA_GER, geru_v2, false)
HOSTCUDA_COMPLEX_TWO(HOSTCUDA_GER, gerc_v2, true)

HOSTCUDA_WIDTHS(HOSTCUDA_SYR, cublasSsyr_v2, float, float, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR, cublasDsyr_v2, double, double, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR, cublasCsyr_v2, cuComplex, cuComplex, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR, cublasZsyr_v2, cuDoubleComplex, cuDoubleComplex, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR, cublasCher_v2, cuComplex, float, true)
HOSTCUDA_WIDTHS(HOSTCUDA_SYR, cublasZher_v2, cuDoubleComplex, double, true)
HOSTCUDA_WIDTHS(HOSTCUDA_SPR, cublasSspr_v2, float, float, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SPR, cublasDspr_v2, double, double, false)
HOSTCUDA_WIDTHS(HOSTCUDA_SPR, cublasChpr_v2, cuComplex, float, true)
HOSTCUDA_WIDTHS(HOSTCUDA_SPR, cublasZhpr_v2, cuDoubleComplex, double, true)
HOSTCUDA_FOUR(HOSTCUDA_SYR2, syr2_v2, HOSTCUDA_COMMA false)
HOSTCUDA_COMPLEX_TWO(HOSTCUDA_SYR2, her2_v2, true)
HOSTCUDA_REAL_TWO(HOSTCUDA_SPR2, spr2_v2, false)
HOSTCUDA_COMPLEX_TWO(HOSTCUDA_SPR2, hpr2_v2, true)

// Letters of the mixed forms: types of A and x, of the sum, of y; H: FP16, T: BF16.
#define HOSTCUDA_GEMV_BATCHES(prefix, A, X, Y)                                 \
  HOSTCUDA_WIDTHS(HOSTCUDA_GEMV_BATCHED, cublas##prefix##gemvBatched, A, X, Y) \
  HOSTCUDA_WIDTHS(HOSTCUDA_GEMV_STRIDED_BATCHED, cublas##prefix##gemvStridedBatched, A, X, Y)
HOSTCUDA_GEMV_BATCHES(S, float, float, float)
HOSTCUDA_GEMV_BATCHES(D, double, double, double)
HOSTCUDA_GEMV_BATCHES(C, cuComplex, cuComplex, cuComplex)
HOSTCUDA_GEMV_BATCHES(Z, cuDoubleComplex, cuDoubleComplex, cuDoubleComplex)
HOSTCUDA_GEMV_BATCHES(HSH, float, __half, __half)
HOSTCUDA_GEMV_BATCHES(HSS, float, __half, float)
HOSTCUDA_GEMV_BATCHES(TST, float, __nv_bfloat16, __nv_bfloat16)
HOSTCUDA_GEMV_BATCHES(TSS, float, __nv_bfloat16, float)

}  // extern "C"

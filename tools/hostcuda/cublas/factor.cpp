// SPDX-License-Identifier: MIT
// Batches of small factorisations of libcublas (LU with its solves and inverses, QR and least squares): takes device
// arrays of matrices, gives the factors in place or the solution, in the handle's stream.
#include <cmath>

#include "tools/hostcuda/cublas/checks.h"
#include "tools/hostcuda/cublas/work.h"

namespace hostcuda {
namespace {

constexpr cublasStatus_t kWrong = CUBLAS_STATUS_INVALID_VALUE;
constexpr int kReadWrite = HOSTCUDA_READ | HOSTCUDA_WRITE;

template <typename T>
T size_of(T x) {
  return std::fabs(x);
}
template <typename T>
T size_of(std::complex<T> x) {
  return std::fabs(x.real()) + std::fabs(x.imag());
}

// ---- arithmetic on one matrix

// A = P L U in place, L with ones on its diagonal. pivot[i] (from 1) is the row that row i was exchanged with; null: no
// exchanges. Returns 0, or the first i (from 1) for which U(i, i) is 0.
template <typename N>
int factor_lu(int64_t n, Dense<N> a, int* pivot) {
  int first_zero = 0;
  for (int64_t k = 0; k < n; ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; pivot && i < n; ++i) {
      if (size_of(a.at(i, k)) > size_of(a.at(best, k))) best = i;
    }
    if (pivot) pivot[k] = static_cast<int>(best + 1);
    if (a.at(best, k) == N{}) {
      if (!first_zero) first_zero = static_cast<int>(k + 1);
      continue;
    }
    for (int64_t j = 0; best != k && j < n; ++j) std::swap(a.at(k, j), a.at(best, j));
    for (int64_t i = k + 1; i < n; ++i) a.at(i, k) /= a.at(k, k);
    for (int64_t j = k + 1; j < n; ++j) {
      for (int64_t i = k + 1; i < n; ++i) a.at(i, j) -= a.at(i, k) * a.at(k, j);
    }
  }
  return first_zero;
}

// Row exchanges of a factorisation on the first `cols` columns of b, in order or from the last.
template <typename N>
void exchange_rows(int64_t n, int64_t cols, Dense<N> b, const int* pivot, bool forward) {
  for (int64_t step = 0; pivot && step < n; ++step) {
    const int64_t i = forward ? step : n - 1 - step;
    const int64_t other = pivot[i] - 1;
    for (int64_t j = 0; other != i && j < cols; ++j) std::swap(b.at(i, j), b.at(other, j));
  }
}

// b = op(A)^-1 b from A's factors.
template <typename N>
void solve_lu(int64_t n, int64_t cols, Op op, Dense<N> factors, const int* pivot, Dense<N> b) {
  const Transposed<Stored<Dense<N>>> lower{{factors, Kind::kTriangular, false, true}, op};
  const Transposed<Stored<Dense<N>>> upper{{factors, Kind::kTriangular, true, false}, op};
  if (op == Op::kNone) exchange_rows(n, cols, b, pivot, true);
  for (int64_t j = 0; j < cols; ++j) {
    const Strided<N> column{&b.at(0, j), 1};
    if (op == Op::kNone) {
      solve(n, lower, true, true, column);
      solve(n, upper, false, false, column);
    } else {
      solve(n, upper, true, false, column);
      solve(n, lower, false, true, column);
    }
  }
  if (op != Op::kNone) exchange_rows(n, cols, b, pivot, false);
}

template <typename N>
void set_identity(int64_t n, Dense<N> x) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) x.at(i, j) = i == j ? N{1} : N{};
  }
}

// c = H c for the columns from `first` on, H = I - factor v v^H with v = (1, a(k + 1 .. m, k)).
template <typename N>
void reflect(int64_t m, int64_t k, Dense<N> a, N factor, Dense<N> c, int64_t first, int64_t last) {
  for (int64_t j = first; j < last; ++j) {
    N sum = c.at(k, j);
    for (int64_t i = k + 1; i < m; ++i) sum += conjugate(a.at(i, k)) * c.at(i, j);
    sum *= factor;
    c.at(k, j) -= sum;
    for (int64_t i = k + 1; i < m; ++i) c.at(i, j) -= a.at(i, k) * sum;
  }
}

// A = Q R in place: R above, the reflectors I - tau v v^H, whose product is Q, below (LAPACK's form).
template <typename N>
void factor_qr(int64_t m, int64_t n, Dense<N> a, N* tau) {
  for (int64_t k = 0; k < std::min(m, n); ++k) {
    Real<N> below{};
    for (int64_t i = k + 1; i < m; ++i) below = std::hypot(below, std::abs(a.at(i, k)));
    const N alpha = a.at(k, k);
    if (below == Real<N>{} && std::imag(alpha) == Real<N>{}) {
      tau[k] = N{};
      continue;
    }
    const Real<N> norm = std::hypot(std::abs(alpha), below);
    const Real<N> beta = std::real(alpha) > Real<N>{} ? -norm : norm;
    tau[k] = (N(beta) - alpha) / beta;
    for (int64_t i = k + 1; i < m; ++i) a.at(i, k) /= alpha - beta;
    a.at(k, k) = beta;
    reflect(m, k, a, conjugate(tau[k]), a, k + 1, n);
  }
}

// ---- calls

// A device array of device pointers, as the work sees it.
template <typename T>
T* const* list_of(Access& access, const char* letter, T* const* list, int64_t count) {
  return elements(access, std::string("the pointer array of ") + letter, list, count, HOSTCUDA_READ);
}

std::string entry_name(const char* letter, int64_t e) {
  return std::string(letter) + " of batch entry " + std::to_string(e);
}

template <typename T>
cublasStatus_t getrf(const char* name, cublasHandle_t handle, int n, T* const* a, int lda, int* pivots, int* info,
                     int count) {
  bool go_on;
  const cublasStatus_t status = checked(handle, n >= 0 && count >= 0 && fits(lda, n), n == 0 || count == 0, &go_on);
  if (!go_on) return status;
  if (!a || !info) return kWrong;
  return enqueue(handle, name, [=](Access& access) {
    T* const* a_list = list_of(access, "A", a, count);
    int* found = elements(access, "info", info, count, HOSTCUDA_WRITE);
    int* exchanges = pivots ? elements(access, "P", pivots, int64_t{n} * count, kReadWrite) : nullptr;
    for (int64_t e = 0; !access.broken && e < count; ++e) {
      const auto dense = matrix(access, entry_name("A", e), a_list[e], n, n, lda);
      if (!access.broken) found[e] = factor_lu(n, dense, exchanges ? exchanges + e * n : nullptr);
    }
  });
}

template <typename T>
cublasStatus_t getrs(const char* name, cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs,
                     const T* const* a, int lda, const int* pivots, T* const* b, int ldb, int* info, int count) {
  if (!live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!info) return kWrong;
  // As LAPACK: minus the place of the first wrong argument.
  *info = !known(trans)             ? -1
          : n < 0                   ? -2
          : nrhs < 0                ? -3
          : n > 0 && !a             ? -4
          : !fits(lda, n)           ? -5
          : n > 0 && nrhs > 0 && !b ? -7
          : !fits(ldb, n)           ? -8
          : count < 0               ? -10
                                    : 0;
  if (*info) return kWrong;
  if (n == 0 || nrhs == 0 || count == 0) return CUBLAS_STATUS_SUCCESS;
  return enqueue(handle, name, [=](Access& access) {
    const T* const* a_list = list_of(access, "A", a, count);
    T* const* b_list = list_of(access, "B", b, count);
    const int* exchanges = pivots ? elements(access, "devIpiv", pivots, int64_t{n} * count, HOSTCUDA_READ) : nullptr;
    for (int64_t e = 0; !access.broken && e < count; ++e) {
      const auto factors = matrix(access, entry_name("A", e), a_list[e], n, n, lda);
      const auto to = matrix(access, entry_name("B", e), b_list[e], n, nrhs, ldb);
      if (!access.broken) solve_lu(n, nrhs, op_of(trans), factors, exchanges ? exchanges + e * n : nullptr, to);
    }
  });
}

// C = A^-1 from A's factors (factored) or from A itself.
template <typename T>
cublasStatus_t invert(const char* name, cublasHandle_t handle, int n, const T* const* a, int lda, const int* pivots,
                      T* const* c, int ldc, int* info, int count, bool factored) {
  bool go_on;
  const bool valid = n >= 0 && count >= 0 && fits(lda, n) && fits(ldc, n) && (factored || n <= 32);
  const cublasStatus_t status = checked(handle, valid, n == 0 || count == 0, &go_on);
  if (!go_on) return status;
  if (!a || !c || !info) return kWrong;
  return enqueue(handle, name, [=](Access& access) {
    using N = Number<T>;
    const T* const* a_list = list_of(access, "A", a, count);
    T* const* c_list = list_of(access, "C", c, count);
    int* found = elements(access, "info", info, count, HOSTCUDA_WRITE);
    const int* exchanges = pivots ? elements(access, "P", pivots, int64_t{n} * count, HOSTCUDA_READ) : nullptr;
    for (int64_t e = 0; !access.broken && e < count; ++e) {
      const auto from = matrix(access, entry_name("A", e), a_list[e], n, n, lda);
      const auto to = matrix(access, entry_name("C", e), c_list[e], n, n, ldc);
      if (access.broken) return;
      std::vector<N> kept;
      for (int64_t j = 0; j < n; ++j) kept.insert(kept.end(), &from.at(0, j), &from.at(0, j) + n);
      const Dense<N> factors{kept.data(), n};
      std::vector<int> own(static_cast<size_t>(n));
      found[e] = factored ? 0 : factor_lu(n, factors, own.data());
      for (int64_t i = n - 1; factored && i >= 0; --i) {
        if (factors.at(i, i) == N{}) found[e] = static_cast<int>(i + 1);
      }
      if (found[e]) continue;
      set_identity(n, to);
      const int* mine = factored ? (exchanges ? exchanges + e * n : nullptr) : own.data();
      solve_lu(n, n, Op::kNone, factors, mine, to);
    }
  });
}

template <typename T>
cublasStatus_t geqrf(const char* name, cublasHandle_t handle, int m, int n, T* const* a, int lda, T* const* tau,
                     int* info, int count) {
  if (!live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!info) return kWrong;
  const bool work = m > 0 && n > 0;
  *info = m < 0 ? -1 : n < 0 ? -2 : work && !a ? -3 : !fits(lda, m) ? -4 : work && !tau ? -5 : count < 0 ? -7 : 0;
  if (*info) return kWrong;
  if (!work || count == 0) return CUBLAS_STATUS_SUCCESS;
  return enqueue(handle, name, [=](Access& access) {
    T* const* a_list = list_of(access, "A", a, count);
    T* const* tau_list = list_of(access, "tau", tau, count);
    for (int64_t e = 0; !access.broken && e < count; ++e) {
      const auto dense = matrix(access, entry_name("A", e), a_list[e], m, n, lda);
      const auto factors = matrix(access, entry_name("tau", e), tau_list[e], std::min(m, n), 1, std::min(m, n));
      if (!access.broken) factor_qr(m, n, dense, factors.a);
    }
  });
}

// Least squares min |C - A X| for m >= n: X in the first n rows of C, A's QR factors in A.
template <typename T>
cublasStatus_t gels(const char* name, cublasHandle_t handle, cublasOperation_t trans, int m, int n, int nrhs,
                    T* const* a, int lda, T* const* c, int ldc, int* info, int* device_info, int count) {
  if (!live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!info) return kWrong;
  if (known(trans) && (trans != CUBLAS_OP_N || (m >= 0 && m < n))) return CUBLAS_STATUS_NOT_SUPPORTED;
  *info = !known(trans)   ? -1
          : m < 0         ? -2
          : n < 0         ? -3
          : nrhs < 0      ? -4
          : !fits(lda, m) ? -6
          : !fits(ldc, m) ? -8
          : count < 0     ? -11
                          : 0;
  if (*info) return kWrong;
  if (n == 0 || nrhs == 0 || count == 0) return CUBLAS_STATUS_SUCCESS;
  if (!a || !c) return kWrong;
  return enqueue(handle, name, [=](Access& access) {
    using N = Number<T>;
    T* const* a_list = list_of(access, "A", a, count);
    T* const* c_list = list_of(access, "C", c, count);
    int* found = device_info ? elements(access, "devInfoArray", device_info, count, HOSTCUDA_WRITE) : nullptr;
    for (int64_t e = 0; !access.broken && e < count; ++e) {
      const auto dense = matrix(access, entry_name("A", e), a_list[e], m, n, lda);
      const auto to = matrix(access, entry_name("C", e), c_list[e], m, nrhs, ldc);
      if (access.broken) return;
      std::vector<N> tau(static_cast<size_t>(n));
      factor_qr(m, n, dense, tau.data());
      int singular = 0;
      for (int64_t i = n - 1; i >= 0; --i) {
        if (dense.at(i, i) == N{}) singular = static_cast<int>(i + 1);
      }
      if (found) found[e] = singular;
      if (singular) continue;
      for (int64_t k = 0; k < n; ++k) reflect(m, k, dense, conjugate(tau[static_cast<size_t>(k)]), to, 0, nrhs);
      const Stored<Dense<N>> upper{dense, Kind::kTriangular, true};
      for (int64_t j = 0; j < nrhs; ++j) solve(n, upper, false, false, Strided<N>{&to.at(0, j), 1});
    }
  });
}

}  // namespace
}  // namespace hostcuda

// clang-format off
#define HOSTCUDA_FACTOR(L, T)                                                                                          \
  cublasStatus_t cublas##L##getrfBatched(cublasHandle_t handle, int n, T* const A[], int lda, int* P, int* info,       \
                                         int batchSize) {                                                              \
    return hostcuda::getrf("cublas" #L "getrfBatched", handle, n, A, lda, P, info, batchSize);                         \
  }                                                                                                                    \
  cublasStatus_t cublas##L##getrsBatched(cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs,              \
                                         const T* const A[], int lda, const int* devIpiv, T* const B[], int ldb,       \
                                         int* info, int batchSize) {                                                   \
    return hostcuda::getrs("cublas" #L "getrsBatched", handle, trans, n, nrhs, A, lda, devIpiv, B, ldb, info,          \
                           batchSize);                                                                                 \
  }                                                                                                                    \
  cublasStatus_t cublas##L##getriBatched(cublasHandle_t handle, int n, const T* const A[], int lda, const int* P,      \
                                         T* const C[], int ldc, int* info, int batchSize) {                            \
    return hostcuda::invert("cublas" #L "getriBatched", handle, n, A, lda, P, C, ldc, info, batchSize, true);          \
  }                                                                                                                    \
  cublasStatus_t cublas##L##matinvBatched(cublasHandle_t handle, int n, const T* const A[], int lda, T* const Ainv[],  \
                                          int lda_inv, int* info, int batchSize) {                                     \
    return hostcuda::invert("cublas" #L "matinvBatched", handle, n, A, lda, nullptr, Ainv, lda_inv, info, batchSize,   \
                            false);                                                                                    \
  }                                                                                                                    \
  cublasStatus_t cublas##L##geqrfBatched(cublasHandle_t handle, int m, int n, T* const A[], int lda, T* const Tau[],   \
                                         int* info, int batchSize) {                                                   \
    return hostcuda::geqrf("cublas" #L "geqrfBatched", handle, m, n, A, lda, Tau, info, batchSize);                    \
  }                                                                                                                    \
  cublasStatus_t cublas##L##gelsBatched(cublasHandle_t handle, cublasOperation_t trans, int m, int n, int nrhs,        \
                                        T* const A[], int lda, T* const C[], int ldc, int* info, int* devInfoArray,    \
                                        int batchSize) {                                                               \
    return hostcuda::gels("cublas" #L "gelsBatched", handle, trans, m, n, nrhs, A, lda, C, ldc, info, devInfoArray,    \
                          batchSize);                                                                                  \
  }
// clang-format on

extern "C" {

HOSTCUDA_FACTOR(S, float)
HOSTCUDA_FACTOR(D, double)
HOSTCUDA_FACTOR(C, cuComplex)
HOSTCUDA_FACTOR(Z, cuDoubleComplex)

}  // extern "C"

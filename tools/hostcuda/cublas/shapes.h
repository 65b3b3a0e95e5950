// SPDX-License-Identifier: MIT
// Matrices as BLAS stores them, and the arithmetic of levels 2 and 3 over any of them: plain loops in the type of the
// elements, sums in order of the index. Host memory; nothing here knows of devices.
#pragma once

#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

namespace hostcuda {

template <typename T>
T conjugate(T x) {
  return x;
}
template <typename T>
std::complex<T> conjugate(std::complex<T> x) {
  return std::conj(x);
}
template <typename T>
T real_part(T x) {
  return x;
}
template <typename T>
std::complex<T> real_part(std::complex<T> x) {
  return x.real();
}

// ---- storage: at(i, j) is where an entry that is stored lies

template <typename T>
struct Dense {
  using Value = T;
  T* a;
  int64_t ld;
  T& at(int64_t i, int64_t j) const { return a[i + j * ld]; }
};

// Diagonals as rows: the main one is row `above`.
template <typename T>
struct Banded {
  using Value = T;
  T* a;
  int64_t ld, above;
  T& at(int64_t i, int64_t j) const { return a[above + i - j + j * ld]; }
};

// The columns of one triangle of an n x n matrix, one after the other.
template <typename T>
struct Packed {
  using Value = T;
  T* a;
  int64_t n;
  bool upper;
  T& at(int64_t i, int64_t j) const { return upper ? a[i + j * (j + 1) / 2] : a[i + (2 * n - j - 1) * j / 2]; }
};

inline int64_t packed_elems(int64_t n) {
  return n * (n + 1) / 2;
}

// ---- what an entry that is not stored is

enum class Kind { kGeneral, kSymmetric, kHermitian, kTriangular };

template <typename Storage>
struct Stored {
  using Value = typename Storage::Value;
  Storage storage;
  Kind kind = Kind::kGeneral;
  bool upper = false;                                   // the triangle that is stored (all but kGeneral)
  bool unit = false;                                    // kTriangular: ones on the diagonal, which is not read
  int64_t below = std::numeric_limits<int64_t>::max();  // diagonals that are stored below and above the main one
  int64_t above = std::numeric_limits<int64_t>::max();

  Value operator()(int64_t i, int64_t j) const {
    if (i - j > below || j - i > above) return Value{};
    if (kind == Kind::kGeneral || (upper ? i < j : i > j)) return storage.at(i, j);
    if (i == j) {
      if (kind == Kind::kTriangular && unit) return Value{1};
      return kind == Kind::kHermitian ? real_part(storage.at(i, j)) : storage.at(i, j);
    }
    if (kind == Kind::kTriangular) return Value{};
    return kind == Kind::kHermitian ? conjugate(storage.at(j, i)) : storage.at(j, i);
  }
};

enum class Op { kNone, kTranspose, kConjugate };

// op(M).
template <typename Matrix>
struct Transposed {
  using Value = typename Matrix::Value;
  Matrix matrix;
  Op op;
  Value operator()(int64_t i, int64_t j) const {
    if (op == Op::kNone) return matrix(i, j);
    return op == Op::kTranspose ? matrix(j, i) : conjugate(matrix(j, i));
  }
};

template <typename T>
Transposed<Stored<Dense<T>>> op_of(Op op, Dense<T> matrix) {
  return {{matrix}, op};
}

// ---- arithmetic

// y = alpha M x + beta y, M rows x cols. y is not read where beta is 0.
template <typename Matrix, typename X, typename Y, typename T>
void multiply_vector(int64_t rows, int64_t cols, const Matrix& m, T alpha, const X& x, T beta, const Y& y) {
  for (int64_t i = 0; i < rows; ++i) {
    T sum{};
    for (int64_t j = 0; j < cols; ++j) sum += m(i, j) * T(x[j]);
    y[i] = beta == T{} ? alpha * sum : alpha * sum + beta * T(y[i]);
  }
}

// x = M^-1 x for a triangular M whose entries above (`lower`) or below the diagonal are 0.
template <typename Matrix, typename X>
void solve(int64_t n, const Matrix& m, bool lower, bool unit, const X& x) {
  using T = typename Matrix::Value;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t i = lower ? step : n - 1 - step;
    T sum = x[i];
    for (int64_t j = lower ? 0 : i + 1; j < (lower ? i : n); ++j) sum -= m(i, j) * T(x[j]);
    x[i] = unit ? sum : sum / m(i, i);
  }
}

// Which entries of an output a call writes.
enum class Part { kAll, kUpper, kLower };

inline bool inside(Part part, int64_t i, int64_t j) {
  return part == Part::kAll || (part == Part::kUpper ? i <= j : i >= j);
}

// C(i, j) = alpha sum_l a(i, l) b(l, j) + beta C(i, j) in `part`. C is not read where beta is 0, a and b not where
// alpha is 0. C may not overlap what a and b read.
template <typename A, typename B, typename T>
void multiply(int64_t m, int64_t n, int64_t k, const A& a, const B& b, T alpha, T beta, Dense<T> c, Part part) {
  std::vector<T> sum(static_cast<size_t>(m));
  for (int64_t j = 0; j < n; ++j) {
    const int64_t first = part == Part::kLower ? j : 0;
    const int64_t last = part == Part::kUpper && j + 1 < m ? j + 1 : m;
    std::fill(sum.begin(), sum.end(), T{});
    for (int64_t l = 0; l < (alpha == T{} ? 0 : k); ++l) {
      const T factor = b(l, j);
      for (int64_t i = first; i < last; ++i) sum[static_cast<size_t>(i)] += a(i, l) * factor;
    }
    for (int64_t i = first; i < last; ++i) {
      const T product = alpha == T{} ? T{} : alpha * sum[static_cast<size_t>(i)];
      c.at(i, j) = beta == T{} ? product : product + beta * c.at(i, j);
    }
  }
}

// The diagonal of a Hermitian result is real, whatever rounding and the input left there.
template <typename Storage>
void make_diagonal_real(int64_t n, const Storage& c) {
  for (int64_t i = 0; i < n; ++i) c.at(i, i) = real_part(c.at(i, i));
}

}  // namespace hostcuda

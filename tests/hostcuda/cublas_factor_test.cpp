// SPDX-License-Identifier: MIT
// Batched factorisations of hostcuda's libcublas in S, D, C and Z, held by their backward errors: what the factors
// multiply to, and the residuals of solutions, against the norms of what went in.
#include <cublas_v2.h>

#include <complex>
#include <random>

#include "tests/hostcuda/cublas_fixture.h"
#include "tests/hostcuda/product_reference.h"

namespace {

using reference::DeviceBytes;
using Z = std::complex<double>;

template <typename T>
struct Of;
template <>
struct Of<float> {
  static constexpr double kUnit = 0x1p-24;
  static float store(Z x) { return static_cast<float>(x.real()); }
  static Z load(float x) { return x; }
};
template <>
struct Of<double> {
  static constexpr double kUnit = 0x1p-53;
  static double store(Z x) { return x.real(); }
  static Z load(double x) { return x; }
};
template <>
struct Of<cuComplex> {
  static constexpr double kUnit = 0x1p-24;
  static cuComplex store(Z x) { return {static_cast<float>(x.real()), static_cast<float>(x.imag())}; }
  static Z load(cuComplex x) { return {x.x, x.y}; }
};
template <>
struct Of<cuDoubleComplex> {
  static constexpr double kUnit = 0x1p-53;
  static cuDoubleComplex store(Z x) { return {x.real(), x.imag()}; }
  static Z load(cuDoubleComplex x) { return {x.x, x.y}; }
};

// rows x cols in double, column by column without gaps.
struct Dense {
  int rows, cols;
  std::vector<Z> values;
  Dense(int r, int c) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {}
  Z& at(int i, int j) { return values[static_cast<size_t>(i + rows * j)]; }
  Z at(int i, int j) const { return values[static_cast<size_t>(i + rows * j)]; }
  double norm() const {
    double sum = 0.0;
    for (const Z& x : values) sum += std::norm(x);
    return std::sqrt(sum);
  }
};

Dense product(const Dense& a, const Dense& b) {
  Dense c(a.rows, b.cols);
  for (int j = 0; j < b.cols; ++j) {
    for (int l = 0; l < a.cols; ++l) {
      for (int i = 0; i < a.rows; ++i) c.at(i, j) += a.at(i, l) * b.at(l, j);
    }
  }
  return c;
}

Dense difference(Dense a, const Dense& b) {
  for (size_t i = 0; i < a.values.size(); ++i) a.values[i] -= b.values[i];
  return a;
}

Dense turned(const Dense& a, cublasOperation_t op) {
  if (op == CUBLAS_OP_N) return a;
  Dense t(a.cols, a.rows);
  for (int j = 0; j < a.cols; ++j) {
    for (int i = 0; i < a.rows; ++i) t.at(j, i) = op == CUBLAS_OP_T ? a.at(i, j) : std::conj(a.at(i, j));
  }
  return t;
}

// A batch of matrices in device memory with a leading dimension of two more than the rows.
template <typename T>
class Batch {
 public:
  Batch(int rows, int cols, int count, uint32_t seed)
      : rows_(rows),
        cols_(cols),
        host_(static_cast<size_t>((rows + 2) * cols * count)),
        memory_(host_.size() * sizeof(T)),
        list_(static_cast<size_t>(count) * sizeof(T*)) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal;
    for (T& x : host_) {
      const double re = normal(engine);
      x = Of<T>::store({re, normal(engine)});
    }
    upload();
    std::vector<T*> addresses;
    for (int e = 0; e < count; ++e) addresses.push_back(memory_.template as<T>() + e * (rows + 2) * cols);
    EXPECT_EQ(cudaMemcpy(list_.get(), addresses.data(), addresses.size() * sizeof(T*), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  void upload() {
    EXPECT_EQ(cudaMemcpy(memory_.get(), host_.data(), host_.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  T& before_at(int e, int i, int j) { return host_[static_cast<size_t>((e * cols_ + j) * ld() + i)]; }
  int ld() const { return rows_ + 2; }
  T** list() const { return list_.template as<T*>(); }
  Dense before(int e) const { return read(host_, e); }
  Dense now(int e) const {
    std::vector<T> values(host_.size());
    std::memcpy(values.data(), memory_.download().data(), values.size() * sizeof(T));
    for (int b = 0; b < static_cast<int>(values.size()) / (ld() * cols_); ++b) {  // gaps are as they were
      for (int j = 0; j < cols_; ++j) {
        const auto gap = static_cast<size_t>((b * cols_ + j) * ld() + rows_);
        EXPECT_EQ(std::memcmp(&values[gap], &host_[gap], 2 * sizeof(T)), 0);
      }
    }
    return read(values, e);
  }

 private:
  Dense read(const std::vector<T>& values, int e) const {
    Dense dense(rows_, cols_);
    for (int j = 0; j < cols_; ++j) {
      for (int i = 0; i < rows_; ++i) {
        dense.at(i, j) = Of<T>::load(values[static_cast<size_t>((e * cols_ + j) * ld() + i)]);
      }
    }
    return dense;
  }
  int rows_, cols_;
  std::vector<T> host_;
  DeviceBytes memory_, list_;
};

class Integers {
 public:
  explicit Integers(int count) : count_(count), memory_(static_cast<size_t>(count) * 4) {
    const std::vector<int> unwritten(static_cast<size_t>(count), 77);
    EXPECT_EQ(cudaMemcpy(memory_.get(), unwritten.data(), unwritten.size() * 4, cudaMemcpyHostToDevice), cudaSuccess);
  }
  int* dev() const { return memory_.as<int>(); }
  std::vector<int> now() const {
    std::vector<int> values(static_cast<size_t>(count_));
    std::memcpy(values.data(), memory_.download().data(), values.size() * 4);
    return values;
  }

 private:
  int count_;
  DeviceBytes memory_;
};

class FactorTest : public HandleTest {
 protected:
};

#define FOUR(check, routine)            \
  check(float{}, cublasS##routine);     \
  check(double{}, cublasD##routine);    \
  check(cuComplex{}, cublasC##routine); \
  check(cuDoubleComplex{}, cublasZ##routine)

constexpr int kN = 9;
constexpr int kCount = 3;

// 4 n u (complex arithmetic: twice the roundings) of a norm that the backward error is a multiple of.
template <typename T>
double roundings(int n) {
  return 8.0 * n * (Of<T>::kUnit + 0x1p-53);
}

void split(const Dense& factors, Dense* lower, Dense* upper) {
  for (int j = 0; j < factors.cols; ++j) {
    for (int i = 0; i < factors.rows; ++i) {
      if (i > j)
        lower->at(i, j) = factors.at(i, j);
      else
        upper->at(i, j) = factors.at(i, j);
    }
    lower->at(j, j) = 1.0;
  }
}

TEST_F(FactorTest, LuMultipliesBackToTheExchangedRows) {
  const auto check = [&](auto tag, auto getrf) {
    using T = decltype(tag);
    for (const bool pivoted : {true, false}) {
      Batch<T> a(kN, kN, kCount, 1);
      for (int e = 0; !pivoted && e < kCount; ++e) {
        for (int i = 0; i < kN; ++i) a.before_at(e, i, i) = Of<T>::store(20.0 + i);  // no exchange is needed
      }
      a.upload();
      const Integers pivots(kN * kCount);
      const Integers info(kCount);
      done(getrf(handle_, kN, a.list(), a.ld(), pivoted ? pivots.dev() : nullptr, info.dev(), kCount));
      EXPECT_EQ(info.now(), std::vector<int>(kCount, 0));
      const std::vector<int> rows = pivots.now();
      int exchanges = 0;
      for (int e = 0; e < kCount; ++e) {
        Dense lower(kN, kN);
        Dense upper(kN, kN);
        split(a.now(e), &lower, &upper);
        Dense want = a.before(e);
        for (int i = 0; pivoted && i < kN; ++i) {
          const int other = rows[static_cast<size_t>(e * kN + i)] - 1;
          ASSERT_GE(other, i);
          exchanges += other != i;
          for (int j = 0; other != i && j < kN; ++j) std::swap(want.at(i, j), want.at(other, j));
        }
        for (int j = 0; pivoted && j < kN; ++j) {
          for (int i = j + 1; i < kN; ++i) EXPECT_LE(std::abs(lower.at(i, j)), 1.4143);  // by |re| + |im|
        }
        EXPECT_LE(difference(product(lower, upper), want).norm(), roundings<T>(kN) * lower.norm() * upper.norm());
      }
      EXPECT_EQ(exchanges > 0, pivoted);
    }
    Batch<T> singular(kN, kN, 1, 2);
    for (int i = 0; i < kN; ++i) singular.before_at(0, i, 3) = Of<T>::store(0.0);
    singular.upload();
    const Integers pivots(kN);
    const Integers info(1);
    done(getrf(handle_, kN, singular.list(), singular.ld(), pivots.dev(), info.dev(), 1));
    EXPECT_EQ(info.now()[0], 4);
    EXPECT_EQ(getrf(handle_, kN, singular.list(), kN - 1, pivots.dev(), info.dev(), 1), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(getrf(nullptr, kN, singular.list(), kN, pivots.dev(), info.dev(), 1), CUBLAS_STATUS_NOT_INITIALIZED);
  };
  FOUR(check, getrfBatched);
}

TEST_F(FactorTest, SolvesAndInversesFromTheFactors) {
  const auto check = [&](auto tag, auto getrf, auto getrs, auto getri) {
    using T = decltype(tag);
    for (const auto trans : {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C}) {
      const Batch<T> a(kN, kN, kCount, 3);
      const Batch<T> b(kN, 2, kCount, 4);
      const Batch<T> inverse(kN, kN, kCount, 5);
      const Integers pivots(kN * kCount);
      const Integers info(kCount);
      int wrong = 77;
      done(getrf(handle_, kN, a.list(), a.ld(), pivots.dev(), info.dev(), kCount));
      done(getrs(handle_, trans, kN, 2, a.list(), a.ld(), pivots.dev(), b.list(), b.ld(), &wrong, kCount));
      EXPECT_EQ(wrong, 0);
      done(getri(handle_, kN, a.list(), a.ld(), pivots.dev(), inverse.list(), inverse.ld(), info.dev(), kCount));
      EXPECT_EQ(info.now(), std::vector<int>(kCount, 0));
      Dense identity(kN, kN);
      for (int i = 0; i < kN; ++i) identity.at(i, i) = 1.0;
      for (int e = 0; e < kCount; ++e) {
        Dense lower(kN, kN);
        Dense upper(kN, kN);
        split(a.now(e), &lower, &upper);
        const double size = lower.norm() * upper.norm();  // |L| |U| bounds what the solves add
        const Dense x = b.now(e);
        EXPECT_LE(difference(product(turned(a.before(e), trans), x), b.before(e)).norm(),
                  3.0 * roundings<T>(kN) * size * x.norm());
        const Dense inv = inverse.now(e);
        EXPECT_LE(difference(product(a.before(e), inv), identity).norm(), 3.0 * roundings<T>(kN) * size * inv.norm());
      }
    }
    int wrong = 77;
    EXPECT_EQ(getrs(handle_, CUBLAS_OP_N, -1, 1, nullptr, 1, nullptr, nullptr, 1, &wrong, 1),
              CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(wrong, -2);
    EXPECT_EQ(getrs(handle_, CUBLAS_OP_N, 0, 1, nullptr, 1, nullptr, nullptr, 0, &wrong, 1),
              CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(wrong, -8);
  };
  check(float{}, cublasSgetrfBatched, cublasSgetrsBatched, cublasSgetriBatched);
  check(double{}, cublasDgetrfBatched, cublasDgetrsBatched, cublasDgetriBatched);
  check(cuComplex{}, cublasCgetrfBatched, cublasCgetrsBatched, cublasCgetriBatched);
  check(cuDoubleComplex{}, cublasZgetrfBatched, cublasZgetrsBatched, cublasZgetriBatched);
}

TEST_F(FactorTest, InversesWithoutFactors) {
  const auto check = [&](auto tag, auto matinv) {
    using T = decltype(tag);
    const Batch<T> a(kN, kN, kCount, 6);
    const Batch<T> inverse(kN, kN, kCount, 7);
    const Integers info(kCount);
    done(matinv(handle_, kN, a.list(), a.ld(), inverse.list(), inverse.ld(), info.dev(), kCount));
    EXPECT_EQ(info.now(), std::vector<int>(kCount, 0));
    Dense identity(kN, kN);
    for (int i = 0; i < kN; ++i) identity.at(i, i) = 1.0;
    for (int e = 0; e < kCount; ++e) {
      EXPECT_EQ(a.now(e).values, a.before(e).values);
      const Dense inv = inverse.now(e);
      // Partial pivoting: |L| |U| is at most n |L| times the largest of U, here within n^2 of |A|.
      EXPECT_LE(difference(product(a.before(e), inv), identity).norm(),
                3.0 * roundings<T>(kN) * kN * kN * a.before(e).norm() * inv.norm());
    }
    EXPECT_EQ(matinv(handle_, 33, a.list(), 33, inverse.list(), 33, info.dev(), kCount), CUBLAS_STATUS_INVALID_VALUE);
  };
  FOUR(check, matinvBatched);
}

TEST_F(FactorTest, QrMultipliesBack) {
  const auto check = [&](auto tag, auto geqrf) {
    using T = decltype(tag);
    for (const auto& [m, n] : {std::pair{kN, 5}, {5, kN}, {6, 6}}) {
      const int k = std::min(m, n);
      const Batch<T> a(m, n, kCount, 8);
      const Batch<T> tau(k, 1, kCount, 9);
      int wrong = 77;
      done(geqrf(handle_, m, n, a.list(), a.ld(), tau.list(), &wrong, kCount));
      EXPECT_EQ(wrong, 0);
      for (int e = 0; e < kCount; ++e) {
        const Dense factors = a.now(e);
        const Dense scales = tau.now(e);
        Dense r(m, n);
        for (int j = 0; j < n; ++j) {
          for (int i = 0; i <= std::min(j, m - 1); ++i) r.at(i, j) = factors.at(i, j);
        }
        for (int h = k - 1; h >= 0; --h) {  // Q R: the reflectors I - tau v v^H from the last
          for (int j = 0; j < n; ++j) {
            Z sum = r.at(h, j);
            for (int i = h + 1; i < m; ++i) sum += std::conj(factors.at(i, h)) * r.at(i, j);
            sum *= scales.at(h, 0);
            r.at(h, j) -= sum;
            for (int i = h + 1; i < m; ++i) r.at(i, j) -= factors.at(i, h) * sum;
          }
        }
        EXPECT_LE(difference(r, a.before(e)).norm(), k * roundings<T>(m) * a.before(e).norm());
        EXPECT_GT(std::abs(scales.at(0, 0)), 0.0);
      }
    }
    int wrong = 77;
    EXPECT_EQ(geqrf(handle_, 2, 2, nullptr, 2, nullptr, &wrong, 1), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(wrong, -3);
  };
  FOUR(check, geqrfBatched);
}

// A least-squares solution leaves a residual that A's columns are orthogonal to.
TEST_F(FactorTest, LeastSquares) {
  const auto check = [&](auto tag, auto gels) {
    using T = decltype(tag);
    const int m = 12;
    const int n = 5;
    const Batch<T> a(m, n, kCount, 10);
    const Batch<T> c(m, 2, kCount, 11);
    const Integers info(kCount);
    int wrong = 77;
    done(gels(handle_, CUBLAS_OP_N, m, n, 2, a.list(), a.ld(), c.list(), c.ld(), &wrong, info.dev(), kCount));
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(info.now(), std::vector<int>(kCount, 0));
    for (int e = 0; e < kCount; ++e) {
      Dense x(n, 2);
      for (int j = 0; j < 2; ++j) {
        for (int i = 0; i < n; ++i) x.at(i, j) = c.now(e).at(i, j);
      }
      const Dense left = difference(c.before(e), product(a.before(e), x));
      const double size = a.before(e).norm();
      EXPECT_LE(product(turned(a.before(e), CUBLAS_OP_C), left).norm(),
                n * roundings<T>(m) * size * (size * x.norm() + c.before(e).norm()));
      EXPECT_GT(x.norm(), 0.0);
    }
    EXPECT_EQ(gels(handle_, CUBLAS_OP_N, 2, 3, 1, a.list(), 2, c.list(), 3, &wrong, nullptr, 1),
              CUBLAS_STATUS_NOT_SUPPORTED);
  };
  FOUR(check, gelsBatched);
}

}  // namespace

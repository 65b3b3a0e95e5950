// SPDX-License-Identifier: MIT
// The first API of hostcuda's libcublas: scalars by value, letters for options, one handle, errors kept for later.
#include <cublas.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace {

template <typename T>
std::vector<T> numbers(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> small(-8, 8);
  std::vector<T> values(count);
  for (T& x : values) {
    if constexpr (std::is_floating_point_v<T>) {
      x = static_cast<T>(small(engine));
    } else {
      x.x = static_cast<decltype(x.x)>(small(engine));
      x.y = static_cast<decltype(x.y)>(small(engine));
    }
  }
  return values;
}

// Small integers: every sum is exact, so results are compared bit for bit.
template <typename T>
class Device {
 public:
  explicit Device(const std::vector<T>& host) : count_(host.size()) {
    EXPECT_EQ(cublasAlloc(static_cast<int>(count_), sizeof(T), reinterpret_cast<void**>(&data_)),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasSetVector(static_cast<int>(count_), sizeof(T), host.data(), 1, data_, 1), CUBLAS_STATUS_SUCCESS);
  }
  ~Device() { EXPECT_EQ(cublasFree(data_), CUBLAS_STATUS_SUCCESS); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  T* get() const { return data_; }
  std::vector<T> now() const {
    std::vector<T> host(count_);
    EXPECT_EQ(cublasGetVector(static_cast<int>(count_), sizeof(T), data_, 1, host.data(), 1), CUBLAS_STATUS_SUCCESS);
    return host;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

class LegacyTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cublasInit(), CUBLAS_STATUS_SUCCESS); }
  void TearDown() override {
    EXPECT_EQ(cublasGetError(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasShutdown(), CUBLAS_STATUS_SUCCESS);
  }
};

// A program without cublasInit (HPL of HeCBench): the first product makes the handle, the first allocation a context.
TEST(Legacy, WhateverComesFirstInitialises) {
  EXPECT_EQ(cublasShutdown(), CUBLAS_STATUS_SUCCESS);
  for (int round = 0; round < 2; ++round) {
    const Device<double> a(std::vector<double>{2, 3});
    const Device<double> c(std::vector<double>{-7, -7, -7, -7});
    cublasDgemm('N', 'T', 2, 2, 1, 1.0, a.get(), 2, a.get(), 2, 0.0, c.get(), 2);
    EXPECT_EQ(cublasGetError(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(c.now(), (std::vector<double>{4, 6, 6, 9}));
    cublasDgemm('x', 'N', 1, 1, 1, 1.0, a.get(), 1, a.get(), 1, 0.0, c.get(), 1);
    EXPECT_EQ(cublasGetError(), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(cublasGetError(), CUBLAS_STATUS_SUCCESS);  // asked once, it is forgotten
    EXPECT_EQ(cublasShutdown(), CUBLAS_STATUS_SUCCESS);
  }
  int version = 0;
  EXPECT_EQ(cublasGetVersion(&version), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasShutdown(), CUBLAS_STATUS_SUCCESS);
}

TEST_F(LegacyTest, Level1) {
  const std::vector<float> x = numbers<float>(9, 1);
  const std::vector<float> y = numbers<float>(9, 2);
  const Device<float> dx(x);
  const Device<float> dy(y);
  float dot = 0.0f;
  float sizes = 0.0f;
  for (size_t i = 0; i < 9; ++i) dot += x[i] * y[i], sizes += std::fabs(x[i]);
  EXPECT_EQ(cublasSdot(9, dx.get(), 1, dy.get(), 1), dot);
  EXPECT_EQ(cublasSasum(9, dx.get(), 1), sizes);
  cublasSaxpy(9, 2.0f, dx.get(), 1, dy.get(), 1);
  cublasSscal(9, -1.0f, dx.get(), 1);
  cublasSswap(9, dx.get(), 1, dy.get(), 1);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(dx.now()[i], 2.0f * x[i] + y[i]);
    EXPECT_EQ(dy.now()[i], -x[i]);
  }
  const Device<double> big({1.0, -3.0, 2.0, 3.0});
  EXPECT_EQ(cublasIdamax(4, big.get(), 1), 2);
  EXPECT_EQ(cublasIdamin(4, big.get(), 1), 1);
  const Device<cuComplex> z(std::vector<cuComplex>{{1.0f, 2.0f}, {0.0f, -1.0f}});
  const cuComplex dotc = cublasCdotc(2, z.get(), 1, z.get(), 1);
  const cuComplex dotu = cublasCdotu(2, z.get(), 1, z.get(), 1);
  EXPECT_EQ(dotc.x, 6.0f);
  EXPECT_EQ(dotc.y, 0.0f);
  EXPECT_EQ(dotu.x, -4.0f);
  EXPECT_EQ(dotu.y, 4.0f);
}

TEST_F(LegacyTest, ProductsAndSolvesWithLetters) {
  const int m = 4;
  const int n = 3;
  const int k = 5;
  const std::vector<double> a = numbers<double>(20, 1);  // k x m, transposed
  const std::vector<double> b = numbers<double>(15, 2);
  const std::vector<double> c = numbers<double>(12, 3);
  for (const char letter : {'t', 'T', 'c'}) {
    const Device<double> da(a);
    const Device<double> db(b);
    const Device<double> dc(c);
    cublasDgemm(letter, 'n', m, n, k, 2.0, da.get(), k, db.get(), k, -1.0, dc.get(), m);
    const std::vector<double> got = dc.now();
    for (size_t j = 0; j < 3; ++j) {
      for (size_t i = 0; i < 4; ++i) {
        double sum = 0.0;
        for (size_t l = 0; l < 5; ++l) sum += a[l + 5 * i] * b[l + 5 * j];
        EXPECT_EQ(got[i + 4 * j], 2.0 * sum - c[i + 4 * j]);
      }
    }
  }
  // L X = B with a unit lower triangle gives back what L times X was.
  const std::vector<double> l = numbers<double>(9, 4);
  const std::vector<double> x = numbers<double>(6, 5);
  std::vector<double> product(6);
  for (size_t j = 0; j < 2; ++j) {
    for (size_t i = 0; i < 3; ++i) {
      product[i + 3 * j] = x[i + 3 * j];
      for (size_t h = 0; h < i; ++h) product[i + 3 * j] += l[i + 3 * h] * x[h + 3 * j];
    }
  }
  const Device<double> dl(l);
  const Device<double> dx(x);
  cublasDtrmm('L', 'L', 'N', 'U', 3, 2, 1.0, dl.get(), 3, dx.get(), 3);
  EXPECT_EQ(dx.now(), product);
  cublasDtrsm('l', 'l', 'n', 'u', 3, 2, 1.0, dl.get(), 3, dx.get(), 3);
  EXPECT_EQ(dx.now(), x);
  cublasDgemm('x', 'n', 1, 1, 1, 1.0, dl.get(), 1, dl.get(), 1, 0.0, dx.get(), 1);
  EXPECT_EQ(cublasGetError(), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(dx.now(), x);
}

TEST_F(LegacyTest, KernelStream) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cublasSetKernelStream(stream), CUBLAS_STATUS_SUCCESS);
  const Device<float> x(std::vector<float>{1.0f, 2.0f});
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  cublasSscal(2, 5.0f, x.get(), 1);  // goes into the capture of that stream, and does not run
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(x.now(), (std::vector<float>{1.0f, 2.0f}));
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cublasSetKernelStream(nullptr), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// ---- every routine, against the second API

// What one routine of each API makes of the same matrix, bit for bit. legacy(out) and second(handle, out).
template <typename T, typename Legacy, typename Second>
void expect_same(const char* name, const std::vector<T>& before, Legacy legacy, Second second) {
  const Device<T> one(before);
  const Device<T> other(before);
  cublasHandle_t handle = nullptr;
  ASSERT_EQ(cublasCreate_v2(&handle), CUBLAS_STATUS_SUCCESS);
  legacy(one.get());
  ASSERT_EQ(cublasGetError(), CUBLAS_STATUS_SUCCESS) << name;
  ASSERT_EQ(second(handle, other.get()), CUBLAS_STATUS_SUCCESS) << name;
  const std::vector<T> got = one.now();
  const std::vector<T> want = other.now();
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(T)), 0) << name;
  EXPECT_NE(std::memcmp(got.data(), before.data(), got.size() * sizeof(T)), 0) << name << " changed nothing";
  EXPECT_EQ(cublasDestroy_v2(handle), CUBLAS_STATUS_SUCCESS);
}

#define SAME(routine, LEGACY, SECOND)                    \
  expect_same<T>(                                        \
      #routine, before, [&](T* out) { routine LEGACY; }, \
      [&](cublasHandle_t h, T* out) { return routine##_v2 SECOND; })

constexpr cublasOperation_t kN = CUBLAS_OP_N;
constexpr cublasOperation_t kT = CUBLAS_OP_T;
constexpr cublasFillMode_t kL = CUBLAS_FILL_MODE_LOWER;
constexpr cublasFillMode_t kU = CUBLAS_FILL_MODE_UPPER;
constexpr cublasDiagType_t kUnit = CUBLAS_DIAG_UNIT;

// 4 x 4 matrices, a and x read, `out` written; alpha and beta of the element type, r and q of the real one.
#define EVERY_TYPE(L)                                                                                                 \
  SAME(cublas##L##gemv, ('t', 4, 4, alpha, a, 4, x, 1, beta, out, 1),                                                 \
       (h, kT, 4, 4, &alpha, a, 4, x, 1, &beta, out, 1));                                                             \
  SAME(cublas##L##gbmv, ('n', 4, 4, 1, 2, alpha, a, 4, x, 1, beta, out, 1),                                           \
       (h, kN, 4, 4, 1, 2, &alpha, a, 4, x, 1, &beta, out, 1));                                                       \
  SAME(cublas##L##trmv, ('l', 'n', 'u', 4, a, 4, out, 1), (h, kL, kN, kUnit, 4, a, 4, out, 1));                       \
  SAME(cublas##L##trsv, ('u', 't', 'u', 4, a, 4, out, 1), (h, kU, kT, kUnit, 4, a, 4, out, 1));                       \
  SAME(cublas##L##tbmv, ('l', 'n', 'u', 4, 2, a, 4, out, 1), (h, kL, kN, kUnit, 4, 2, a, 4, out, 1));                 \
  SAME(cublas##L##tbsv, ('u', 'n', 'u', 4, 2, a, 4, out, 1), (h, kU, kN, kUnit, 4, 2, a, 4, out, 1));                 \
  SAME(cublas##L##tpmv, ('l', 't', 'u', 4, a, out, 1), (h, kL, kT, kUnit, 4, a, out, 1));                             \
  SAME(cublas##L##tpsv, ('u', 'n', 'u', 4, a, out, 1), (h, kU, kN, kUnit, 4, a, out, 1));                             \
  SAME(cublas##L##gemm, ('n', 't', 4, 4, 4, alpha, a, 4, x, 4, beta, out, 4),                                         \
       (h, kN, kT, 4, 4, 4, &alpha, a, 4, x, 4, &beta, out, 4));                                                      \
  SAME(cublas##L##syrk, ('l', 'n', 4, 4, alpha, a, 4, beta, out, 4), (h, kL, kN, 4, 4, &alpha, a, 4, &beta, out, 4)); \
  SAME(cublas##L##syr2k, ('u', 't', 4, 4, alpha, a, 4, x, 4, beta, out, 4),                                           \
       (h, kU, kT, 4, 4, &alpha, a, 4, x, 4, &beta, out, 4));                                                         \
  SAME(cublas##L##symm, ('r', 'l', 4, 4, alpha, a, 4, x, 4, beta, out, 4),                                            \
       (h, CUBLAS_SIDE_RIGHT, kL, 4, 4, &alpha, a, 4, x, 4, &beta, out, 4));                                          \
  SAME(cublas##L##trsm, ('l', 'u', 'n', 'u', 4, 4, alpha, a, 4, out, 4),                                              \
       (h, CUBLAS_SIDE_LEFT, kU, kN, kUnit, 4, 4, &alpha, a, 4, out, 4));                                             \
  SAME(cublas##L##trmm, ('r', 'l', 't', 'u', 4, 4, alpha, a, 4, out, 4),                                              \
       (h, CUBLAS_SIDE_RIGHT, kL, kT, kUnit, 4, 4, &alpha, a, 4, out, 4, out, 4));                                    \
  SAME(cublas##L##axpy, (4, alpha, a, 1, out, 1), (h, 4, &alpha, a, 1, out, 1));                                      \
  SAME(cublas##L##scal, (4, alpha, out, 1), (h, 4, &alpha, out, 1));                                                  \
  SAME(cublas##L##copy, (4, a, 1, out, 1), (h, 4, a, 1, out, 1));                                                     \
  SAME(cublas##L##swap, (4, out, 1, out + 8, 1), (h, 4, out, 1, out + 8, 1))
#define MIRRORED(L, mv, bmv, pmv, r1, p1, r2, p2)                                                                \
  SAME(cublas##L##mv, ('l', 4, alpha, a, 4, x, 1, beta, out, 1), (h, kL, 4, &alpha, a, 4, x, 1, &beta, out, 1)); \
  SAME(cublas##L##bmv, ('u', 4, 2, alpha, a, 4, x, 1, beta, out, 1),                                             \
       (h, kU, 4, 2, &alpha, a, 4, x, 1, &beta, out, 1));                                                        \
  SAME(cublas##L##pmv, ('l', 4, alpha, a, x, 1, beta, out, 1), (h, kL, 4, &alpha, a, x, 1, &beta, out, 1));      \
  SAME(cublas##L##r1, ('u', 4, r, a, 1, out, 4), (h, kU, 4, &r, a, 1, out, 4));                                  \
  SAME(cublas##L##p1, ('l', 4, r, a, 1, out), (h, kL, 4, &r, a, 1, out));                                        \
  SAME(cublas##L##r2, ('u', 4, alpha, a, 1, x, 1, out, 4), (h, kU, 4, &alpha, a, 1, x, 1, out, 4));              \
  SAME(cublas##L##p2, ('l', 4, alpha, a, 1, x, 1, out), (h, kL, 4, &alpha, a, 1, x, 1, out))
#define HERMITIAN(L)                                                                                    \
  SAME(cublas##L##herk, ('l', 'n', 4, 4, r, a, 4, q, out, 4), (h, kL, kN, 4, 4, &r, a, 4, &q, out, 4)); \
  SAME(cublas##L##her2k, ('u', 'n', 4, 4, alpha, a, 4, x, 4, q, out, 4),                                \
       (h, kU, kN, 4, 4, &alpha, a, 4, x, 4, &q, out, 4));                                              \
  SAME(cublas##L##hemm, ('l', 'u', 4, 4, alpha, a, 4, x, 4, beta, out, 4),                              \
       (h, CUBLAS_SIDE_LEFT, kU, 4, 4, &alpha, a, 4, x, 4, &beta, out, 4));                             \
  SAME(cublas##L##geru, (4, 4, alpha, a, 1, x, 1, out, 4), (h, 4, 4, &alpha, a, 1, x, 1, out, 4));      \
  SAME(cublas##L##gerc, (4, 4, alpha, a, 1, x, 1, out, 4), (h, 4, 4, &alpha, a, 1, x, 1, out, 4))
#define ROT(name, c, s) SAME(name, (4, out, 1, out + 8, 1, c, s), (h, 4, out, 1, out + 8, 1, &c, &s))

#define OPERANDS(Element, Real)                    \
  using T = Element;                               \
  const std::vector<T> before = numbers<T>(16, 3); \
  const Device<T> a_memory(numbers<T>(16, 1));     \
  const Device<T> x_memory(numbers<T>(16, 2));     \
  const T* a = a_memory.get();                     \
  const T* x = x_memory.get();                     \
  const T alpha = numbers<T>(9, 4)[5];             \
  const T beta = numbers<T>(9, 5)[7];              \
  [[maybe_unused]] const Real r = 3;               \
  [[maybe_unused]] const Real q = -2

TEST_F(LegacyTest, EveryRealRoutineIsThatOfTheSecondApi) {
  {
    OPERANDS(float, float);
    EVERY_TYPE(S);
    MIRRORED(S, symv, sbmv, spmv, syr, spr, syr2, spr2);
    SAME(cublasSger, (4, 4, alpha, a, 1, x, 1, out, 4), (h, 4, 4, &alpha, a, 1, x, 1, out, 4));
    ROT(cublasSrot, alpha, beta);
  }
  {
    OPERANDS(double, double);
    EVERY_TYPE(D);
    MIRRORED(D, symv, sbmv, spmv, syr, spr, syr2, spr2);
    SAME(cublasDger, (4, 4, alpha, a, 1, x, 1, out, 4), (h, 4, 4, &alpha, a, 1, x, 1, out, 4));
    ROT(cublasDrot, alpha, beta);
  }
}

TEST_F(LegacyTest, EveryComplexRoutineIsThatOfTheSecondApi) {
  {
    OPERANDS(cuComplex, float);
    EVERY_TYPE(C);
    MIRRORED(C, hemv, hbmv, hpmv, her, hpr, her2, hpr2);
    HERMITIAN(C);
    SAME(cublasCsscal, (4, r, out, 1), (h, 4, &r, out, 1));
    ROT(cublasCrot, r, alpha);
    ROT(cublasCsrot, r, q);
  }
  {
    OPERANDS(cuDoubleComplex, double);
    EVERY_TYPE(Z);
    MIRRORED(Z, hemv, hbmv, hpmv, her, hpr, her2, hpr2);
    HERMITIAN(Z);
    SAME(cublasZdscal, (4, r, out, 1), (h, 4, &r, out, 1));
    ROT(cublasZrot, r, alpha);
    ROT(cublasZdrot, r, q);
  }
}

// Results by value: |(3, 4, 12)| and the like.
TEST_F(LegacyTest, ResultsAreGivenBack) {
  const Device<float> s({3.0f, -4.0f, 12.0f});
  const Device<double> d({3.0, -4.0, 12.0});
  const Device<cuComplex> c(std::vector<cuComplex>{{3.0f, 4.0f}, {0.0f, 12.0f}});
  const Device<cuDoubleComplex> z(std::vector<cuDoubleComplex>{{3.0, 4.0}, {0.0, 12.0}});
  EXPECT_FLOAT_EQ(cublasSnrm2(3, s.get(), 1), 13.0f);
  EXPECT_DOUBLE_EQ(cublasDnrm2(3, d.get(), 1), 13.0);
  EXPECT_FLOAT_EQ(cublasScnrm2(2, c.get(), 1), 13.0f);
  EXPECT_DOUBLE_EQ(cublasDznrm2(2, z.get(), 1), 13.0);
  EXPECT_EQ(cublasDasum(3, d.get(), 1), 19.0);
  EXPECT_EQ(cublasScasum(2, c.get(), 1), 19.0f);
  EXPECT_EQ(cublasDzasum(2, z.get(), 1), 19.0);
  EXPECT_EQ(cublasIsamax(3, s.get(), 1), 3);
  EXPECT_EQ(cublasIsamin(3, s.get(), 1), 1);
  EXPECT_EQ(cublasIcamax(2, c.get(), 1), 2);
  EXPECT_EQ(cublasIcamin(2, c.get(), 1), 1);
  EXPECT_EQ(cublasIzamax(2, z.get(), 1), 2);
  EXPECT_EQ(cublasIzamin(2, z.get(), 1), 1);
  EXPECT_EQ(cublasDdot(3, d.get(), 1, d.get(), 1), 169.0);
  EXPECT_EQ(cublasZdotc(2, z.get(), 1, z.get(), 1).x, 169.0);
  EXPECT_EQ(cublasZdotu(2, z.get(), 1, z.get(), 1).y, 24.0);
  float a = 3.0f;
  float b = 4.0f;
  float cosine = 0.0f;
  float sine = 0.0f;
  cublasSrotg(&a, &b, &cosine, &sine);
  EXPECT_FLOAT_EQ(a, 5.0f);
  double da = 3.0;
  double db = 4.0;
  double dc = 0.0;
  double ds = 0.0;
  cublasDrotg(&da, &db, &dc, &ds);
  EXPECT_DOUBLE_EQ(da, 5.0);
  cuComplex ca{3.0f, 0.0f};
  cuComplex cs{};
  cublasCrotg(&ca, {4.0f, 0.0f}, &cosine, &cs);
  EXPECT_FLOAT_EQ(ca.x, 5.0f);
  cuDoubleComplex za{3.0, 0.0};
  cuDoubleComplex zs{};
  cublasZrotg(&za, {4.0, 0.0}, &dc, &zs);
  EXPECT_DOUBLE_EQ(za.x, 5.0);
  float d1 = 2.0f;
  float d2 = 3.0f;
  float x1 = 1.5f;
  const float y1 = 0.5f;
  float param[5] = {};
  cublasSrotmg(&d1, &d2, &x1, &y1, param);
  EXPECT_EQ(param[0], 0.0f);
  const Device<float> other({1.0f, 1.0f, 1.0f});
  const float whole[] = {-1.0f, 2.0f, 3.0f, 4.0f, 5.0f};
  cublasSrotm(3, s.get(), 1, other.get(), 1, whole);
  EXPECT_EQ(s.now()[0], 10.0f);
  EXPECT_EQ(other.now()[0], 14.0f);
  double e1 = 2.0;
  double e2 = 3.0;
  double f1 = 1.5;
  const double g1 = 0.5;
  double double_param[5] = {};
  cublasDrotmg(&e1, &e2, &f1, &g1, double_param);
  EXPECT_EQ(double_param[0], 0.0);
  const double double_whole[] = {-1.0, 2.0, 3.0, 4.0, 5.0};
  const Device<double> double_other({1.0, 1.0, 1.0});
  cublasDrotm(3, d.get(), 1, double_other.get(), 1, double_whole);
  EXPECT_EQ(d.now()[0], 10.0);
}

}  // namespace

// SPDX-License-Identifier: MIT
// The first API of hostcuda's libcublas: scalars by value, letters for options, one handle, errors kept for later.
#include <cublas.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace {

template <typename T>
std::vector<T> numbers(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> small(-8, 8);
  std::vector<T> values(count);
  for (T& x : values) {
    if constexpr (sizeof(T) == 8 && !std::is_floating_point_v<T>)
      x = {float(small(engine)), float(small(engine))};
    else
      x = static_cast<T>(small(engine));
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

TEST(Legacy, NothingBeforeInit) {
  EXPECT_EQ(cublasSdot(1, nullptr, 1, nullptr, 1), 0.0f);
  EXPECT_EQ(cublasGetError(), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cublasGetError(), CUBLAS_STATUS_SUCCESS);  // asked once, it is forgotten
  EXPECT_EQ(cublasShutdown(), CUBLAS_STATUS_NOT_INITIALIZED);
  void* memory = nullptr;
  EXPECT_EQ(cublasAlloc(1, 4, &memory), CUBLAS_STATUS_NOT_INITIALIZED);
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

}  // namespace

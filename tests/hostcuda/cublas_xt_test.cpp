// SPDX-License-Identifier: MIT
// cuBLASXt of hostcuda's libcublas: products of host and device matrices, in blocks over the selected devices.
#include <cublasXt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace {

// Small integers: every sum is exact, so results are compared bit for bit.
std::vector<double> numbers(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> small(-8, 8);
  std::vector<double> values(count);
  for (double& x : values) x = small(engine);
  return values;
}

class XtTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cublasXtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    int count = 0;
    ASSERT_EQ(cublasXtMaxBoards(&count), CUBLAS_STATUS_SUCCESS);
    for (int i = 0; i < count; ++i) devices_.push_back(i);
    ASSERT_GE(count, 2);
    ASSERT_EQ(cublasXtDeviceSelect(handle_, count, devices_.data()), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(cublasXtDestroy(handle_), CUBLAS_STATUS_SUCCESS); }
  cublasXtHandle_t handle_ = nullptr;
  std::vector<int> devices_;
};

// Host matrices and blocks narrower than C; device matrices; every transpose. The current device stays as it was.
TEST_F(XtTest, ProductsOfHostAndDeviceMatrices) {
  ASSERT_EQ(cublasXtSetBlockDim(handle_, 3), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const size_t m = 5;
  const size_t n = 8;
  const size_t k = 6;
  for (const auto ta : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    for (const auto tb : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      for (const bool on_device : {false, true}) {
        const size_t lda = (ta == CUBLAS_OP_N ? m : k) + 1;
        const size_t ldb = (tb == CUBLAS_OP_N ? k : n) + 2;
        const size_t ldc = m + 1;
        const std::vector<double> a = numbers(lda * (ta == CUBLAS_OP_N ? k : m), 1);
        const std::vector<double> b = numbers(ldb * (tb == CUBLAS_OP_N ? n : k), 2);
        const std::vector<double> c = numbers(ldc * n, 3);
        std::vector<double> got = c;
        const double alpha = 3.0;
        const double beta = -2.0;
        double* memory[3] = {};
        if (on_device) {
          size_t i = 0;
          for (const auto* from : {&a, &b, &c}) {
            ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory[i]), from->size() * 8), cudaSuccess);
            ASSERT_EQ(cudaMemcpy(memory[i++], from->data(), from->size() * 8, cudaMemcpyHostToDevice), cudaSuccess);
          }
        }
        ASSERT_EQ(cublasXtDgemm(handle_, ta, tb, m, n, k, &alpha, on_device ? memory[0] : a.data(), lda,
                                on_device ? memory[1] : b.data(), ldb, &beta, on_device ? memory[2] : got.data(), ldc),
                  CUBLAS_STATUS_SUCCESS);
        if (on_device) {
          ASSERT_EQ(cudaMemcpy(got.data(), memory[2], got.size() * 8, cudaMemcpyDeviceToHost), cudaSuccess);
          for (double* x : memory) ASSERT_EQ(cudaFree(x), cudaSuccess);
        }
        for (size_t j = 0; j < n; ++j) {
          for (size_t i = 0; i < ldc; ++i) {
            double want = c[i + ldc * j];
            if (i < m) {
              double sum = 0.0;
              for (size_t l = 0; l < k; ++l) {
                sum += (ta == CUBLAS_OP_N ? a[i + lda * l] : a[l + lda * i]) *
                       (tb == CUBLAS_OP_N ? b[l + ldb * j] : b[j + ldb * l]);
              }
              want = alpha * sum + beta * want;
            }
            EXPECT_EQ(got[i + ldc * j], want) << i << ", " << j;
          }
        }
        int current = -1;
        ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
        EXPECT_EQ(current, 0);
      }
    }
  }
  const float one = 1.0f;
  const float two[] = {2.0f};
  float nine[] = {5.0f};
  ASSERT_EQ(cublasXtSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, two, 1, two, 1, &one, nine, 1),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(nine[0], 9.0f);
}

// The log names the handle that each block makes, on the thread whose current device is that block's.
TEST_F(XtTest, BlocksGoToTheDevicesInTurn) {
  static std::vector<int> seen;
  seen.clear();
  ASSERT_EQ(cublasXtSetBlockDim(handle_, 3), CUBLAS_STATUS_SUCCESS);
  const auto listen = [](const char* line) {
    int device = -1;
    if (std::string(line).find("cublasCreate_v2") == std::string::npos) return;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    seen.push_back(device);
  };
  const std::vector<double> x = numbers(8, 1);
  std::vector<double> c = numbers(8, 2);
  const double one = 1.0;
  ASSERT_EQ(cublasSetLoggerCallback(listen), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLoggerConfigure(1, 0, 0, nullptr), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(
      cublasXtDgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 8, 1, &one, x.data(), 1, x.data(), 1, &one, c.data(), 1),
      CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLoggerConfigure(0, 0, 0, nullptr), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSetLoggerCallback(nullptr), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 0}));
}

TEST_F(XtTest, StateAndArguments) {
  int dim = 0;
  ASSERT_EQ(cublasXtGetBlockDim(handle_, &dim), CUBLAS_STATUS_SUCCESS);
  EXPECT_GT(dim, 0);
  ASSERT_EQ(cublasXtSetBlockDim(handle_, 64), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasXtGetBlockDim(handle_, &dim), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(dim, 64);
  EXPECT_EQ(cublasXtSetBlockDim(handle_, 0), CUBLAS_STATUS_INVALID_VALUE);
  cublasXtPinnedMemMode_t mode = CUBLASXT_PINNING_ENABLED;
  ASSERT_EQ(cublasXtGetPinningMemMode(handle_, &mode), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(mode, CUBLASXT_PINNING_DISABLED);
  ASSERT_EQ(cublasXtSetPinningMemMode(handle_, CUBLASXT_PINNING_ENABLED), CUBLAS_STATUS_SUCCESS);
  int boards = 0;
  int twice[] = {0, 0};
  ASSERT_EQ(cublasXtGetNumBoards(2, twice, &boards), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(boards, 1);
  int beyond[] = {99};
  EXPECT_EQ(cublasXtDeviceSelect(handle_, 1, beyond), CUBLAS_STATUS_INVALID_VALUE);
  const float one = 1.0f;
  float x[] = {1.0f};
  EXPECT_EQ(cublasXtSgemm(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, x, 1, x, 1, &one, x, 1),
            CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cublasXtSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 1, 1, &one, x, 1, x, 1, &one, x, 2),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasXtSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, nullptr, 1, x, 1, &one, x, 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasXtSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 0, 1, 1, &one, nullptr, 1, nullptr, 1, &one, nullptr, 1),
            CUBLAS_STATUS_SUCCESS);
}

}  // namespace

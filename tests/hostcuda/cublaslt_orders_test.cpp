// SPDX-License-Identifier: MIT
// INT8 products in the tiled memory orders, on an A100: exact, or by the roundings of FP32 scalars; what is refused.
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>

#include "tests/hostcuda/lt_orders.h"
#include "tests/hostcuda/lt_reference.h"

namespace {

using namespace lt_orders;
using namespace lt_reference;

// Read once, at the first call of the library.
const bool on_a100 = setenv("HOSTCUDA_ORDER", "a100", 0) == 0;

struct Matrix {
  Matrix(cudaDataType type, int32_t memory_order, int64_t row_count, int64_t col_count, uint32_t seed)
      : order(memory_order), rows(row_count), cols(col_count), ld(least_ld(order, rows, cols) + 128) {
    buffer = std::make_unique<Buffer>(type, elements(order, rows, cols, ld));
    std::mt19937 engine(seed);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) buffer->set(place(order, ld, i, j), static_cast<int>(engine() % 256) - 128);
    }
    buffer->upload();
    EXPECT_EQ(cublasLtMatrixLayoutInit(&layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld),
              CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATRIX_LAYOUT_ORDER, order);
  }
  Real at(int64_t i, int64_t j) const { return buffer->get(place(order, ld, i, j)); }
  template <typename Value>
  void set(cublasLtMatrixLayoutAttribute_t attribute, Value value) {
    EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }

  int32_t order;
  int64_t rows, cols, ld;
  std::unique_ptr<Buffer> buffer;
  cublasLtMatrixLayoutOpaque_t layout;
};

// D = alpha A B^T + beta C in the documented orders.
struct Call {
  Call(int32_t b_order, cudaDataType scale, cudaDataType type, int64_t m = 37, int64_t n = 45, int64_t k = 70)
      : a(CUDA_R_8I, CUBLASLT_ORDER_COL32, m, k, 1),
        b(CUDA_R_8I, b_order, n, k, 2),
        c(type, CUBLASLT_ORDER_COL32, m, n, 3),
        d(type, CUBLASLT_ORDER_COL32, m, n, 4),
        alpha(scale, m),
        beta(scale, m) {
    EXPECT_EQ(cublasLtMatmulDescInit(&desc, CUBLAS_COMPUTE_32I, scale), CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{CUBLAS_OP_T});
    for (int64_t i = 0; i < m; ++i) {
      alpha.set(i, 1);
      beta.set(i, 0);
    }
  }
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(&desc, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }
  cublasStatus_t operator()(cublasLtHandle_t handle, cudaStream_t stream) {
    alpha.upload();
    beta.upload();
    const std::vector<unsigned char> alpha_host = alpha.bytes();
    const std::vector<unsigned char> beta_host = beta.bytes();
    before = d.buffer->bytes();
    const cublasStatus_t status =
        cublasLtMatmul(handle, &desc, on_device ? alpha.device() : alpha_host.data(), a.buffer->device(), &a.layout,
                       b.buffer->device(), &b.layout, on_device ? beta.device() : beta_host.data(), c.buffer->device(),
                       &c.layout, d.buffer->device(), &d.layout, nullptr, nullptr, 0, stream);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    d.buffer->download();
    return status;
  }
  Real sum(int64_t i, int64_t j) const {
    Real total = 0;
    for (int64_t l = 0; l < a.cols; ++l) total += a.at(i, l) * b.at(j, l);
    return total;
  }
  // What lies between the elements of D is as before.
  bool gaps_kept() const {
    std::vector<bool> mine(static_cast<size_t>(d.buffer->count()));
    for (int64_t i = 0; i < d.rows; ++i) {
      for (int64_t j = 0; j < d.cols; ++j) mine[static_cast<size_t>(place(d.order, d.ld, i, j))] = true;
    }
    const std::vector<unsigned char> after = d.buffer->bytes();
    const size_t bytes = after.size() / mine.size();
    for (size_t i = 0; i < mine.size(); ++i) {
      if (!mine[i] && std::memcmp(&before[i * bytes], &after[i * bytes], bytes) != 0) return false;
    }
    return true;
  }

  Matrix a, b, c, d;
  Buffer alpha, beta;
  bool on_device = false;
  cublasLtMatmulDescOpaque_t desc;
  std::vector<unsigned char> before;
};

// What an algorithm for INT8 says of memory orders.
int32_t custom_orders(cublasLtHandle_t handle) {
  cublasLtMatmulAlgo_t algo;
  int32_t custom = -1;
  EXPECT_EQ(cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_32I, CUDA_R_32I, CUDA_R_8I, CUDA_R_8I, CUDA_R_32I, CUDA_R_32I,
                                   66, &algo),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(
      cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_CUSTOM_MEMORY_ORDER, &custom, sizeof custom, nullptr),
      CUBLAS_STATUS_SUCCESS);
  return custom;
}

constexpr int32_t kOrdersOfB[] = {CUBLASLT_ORDER_COL4_4R2_8C, CUBLASLT_ORDER_COL32_2R_4R4};

class LtOrders : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(on_a100);
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

TEST_F(LtOrders, Int32_IsExact) {
  for (const int32_t order : kOrdersOfB) {
    for (const int beta : {0, 1}) {
      for (const bool on_device : {false, true}) {
        Call call(order, CUDA_R_32I, CUDA_R_32I);
        call.beta.set(0, beta);
        call.on_device = on_device;
        if (on_device) call.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{CUBLASLT_POINTER_MODE_DEVICE});
        ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS) << order;
        for (int64_t i = 0; i < call.d.rows; ++i) {
          for (int64_t j = 0; j < call.d.cols; ++j) {
            ASSERT_EQ(call.d.at(i, j), call.sum(i, j) + beta * call.c.at(i, j)) << order << ": " << i << ", " << j;
          }
        }
        EXPECT_TRUE(call.gaps_kept());
      }
    }
  }
}

// Factors of a row each, powers of two: then only the last rounding, to INT8, is left.
TEST_F(LtOrders, Int8_FactorsOfRowsBiasAndRelu) {
  for (const int32_t order : kOrdersOfB) {
    for (const int32_t mode :
         {CUBLASLT_POINTER_MODE_DEVICE_VECTOR, CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO}) {
      for (const uint32_t epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS}) {
        Call call(order, CUDA_R_32F, CUDA_R_8I);
        const bool beta = mode == CUBLASLT_POINTER_MODE_DEVICE_VECTOR;
        const bool bias = (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
        Buffer bias_values(CUDA_R_32F, call.d.rows);
        for (int64_t i = 0; i < call.d.rows; ++i) {
          call.alpha.set(i, std::ldexp(Real{1}, static_cast<int>(i % 4) - 12));
          call.beta.set(i, static_cast<Real>(i % 3) / 2);
          bias_values.set(i, static_cast<Real>(i) - 20.25L);
        }
        bias_values.upload();
        call.on_device = true;
        call.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, mode);
        call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
        if (bias) call.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_values.device());
        ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS) << order;
        for (int64_t i = 0; i < call.d.rows; ++i) {
          for (int64_t j = 0; j < call.d.cols; ++j) {
            Real want = call.alpha.get(i) * call.sum(i, j);
            if (beta) want += call.beta.get(i) * call.c.at(i, j);
            if (bias) want += bias_values.get(i);
            if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0) want = std::max<Real>(want, 0);
            ASSERT_EQ(call.d.at(i, j), rounded(CUDA_R_8I, want)) << order << ": " << i << ", " << j;
          }
        }
        EXPECT_TRUE(call.gaps_kept());
      }
    }
  }
}

TEST_F(LtOrders, RefusedArguments) {
  const auto status = [&](const std::function<void(Call&)>& bend, cudaDataType scale = CUDA_R_32I,
                          cudaDataType type = CUDA_R_32I) {
    Call call(CUBLASLT_ORDER_COL32_2R_4R4, scale, type, 32, 32, 32);
    bend(call);
    return call(handle_, stream_);
  };
  EXPECT_EQ(custom_orders(handle_), 1);
  EXPECT_EQ(status([](Call&) {}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status([](Call& call) { call.alpha.set(0, 2); }), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status([](Call& call) { call.beta.set(0, -1); }), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status([](Call& call) { call.set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{CUBLAS_OP_T}); }),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status([](Call& call) { call.set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{CUBLAS_OP_N}); }),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status([](Call& call) { call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_RELU}); }),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(
                [](Call& call) {
                  call.set(CUBLASLT_MATMUL_DESC_POINTER_MODE,
                           int32_t{CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST});
                },
                CUDA_R_32F, CUDA_R_8I),
            CUBLAS_STATUS_NOT_SUPPORTED);
  // One matrix in another order, its leading dimension large enough for every order.
  for (Matrix Call::*matrix : {&Call::a, &Call::b, &Call::c, &Call::d}) {
    EXPECT_EQ(status([&](Call& call) { (call.*matrix).set(CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{0}); }),
              CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(status([&](Call& call) {
                Matrix& bent = call.*matrix;
                bent.set(CUBLASLT_MATRIX_LAYOUT_LD, least_ld(bent.order, bent.rows, bent.cols) - 1);
              }),
              CUBLAS_STATUS_INVALID_VALUE);
  }
  EXPECT_EQ(status([](Call& call) { call.b.set(CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_COL32}); }),
            CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(LtOrdersDeathTest, OnlyTuringAndAmpereMultiply) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const char* order : {"v100", "h100", "b200"}) {
    EXPECT_EXIT(
        {
          setenv("HOSTCUDA_ORDER", order, 1);
          cublasLtHandle_t handle = nullptr;
          if (cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS) _exit(9);
          Call call(CUBLASLT_ORDER_COL32_2R_4R4, CUDA_R_32I, CUDA_R_32I);
          const bool refused = call(handle, nullptr) == CUBLAS_STATUS_NOT_SUPPORTED;
          _exit(refused && custom_orders(handle) == 0 ? 0 : 1);
        },
        testing::ExitedWithCode(0), "")
        << order;
  }
}

}  // namespace

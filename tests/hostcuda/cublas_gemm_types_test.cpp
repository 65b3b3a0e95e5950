// SPDX-License-Identifier: MIT
// GEMM of hostcuda's libcublas in the types beside BF16, FP16 and FP32: FP64 and complex against OpenBLAS, INT8 against
// exact sums, TF32 by math mode and by compute type; and the table of type tuples, every cell.
#include <map>
#include <tuple>

#include "tests/hostcuda/blas_reference.h"
#include "tests/hostcuda/cublas_fixture.h"

namespace {

using blas_reference::Data;
using blas_reference::expect_as_reference;
using blas_reference::Of;
using blas_reference::op;
using blas_reference::Pick;
using blas_reference::Wide;
using blas_reference::Z;
using reference::DeviceBytes;

void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, double alpha, const double* a, int lda,
          const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasColMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, Z alpha, const Z* a, int lda, const Z* b,
          int ldb, Z beta, Z* c, int ldc) {
  cblas_zgemm(CblasColMajor, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}

class GemmTypesTest : public HandleTest {
 protected:
  void SetUp() override {
    HandleTest::SetUp();
    openblas_set_num_threads(1);
  }

  // One batch of three products: call(trans..., scalars, matrices, lists) is one entry point in one of its forms.
  template <typename Api, typename CallIt>
  void check(const char* name, bool batched, CallIt call) {
    const cublasOperation_t ops[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C};
    for (const auto ta : ops) {
      for (const auto tb : ops) {
        const bool on_device = ++calls_ % 2;
        const int m = 9;
        const int n = 6;
        const int k = 13;
        const int lda = (ta == CUBLAS_OP_N ? m : k) + 2;
        const int ldb = (tb == CUBLAS_OP_N ? k : n) + 1;
        const int ldc = m + 3;
        const int a_elems = lda * (ta == CUBLAS_OP_N ? k : m);
        const int b_elems = ldb * (tb == CUBLAS_OP_N ? n : k);
        const int c_elems = ldc * n + 5;
        const int count = batched ? 3 : 1;
        const Data<Api> a(a_elems * count, ++seed_);
        const Data<Api> b(b_elems, ++seed_);  // shared by all
        const Data<Api> c(c_elems * count, ++seed_);
        const Data<Api> scalars(2, ++seed_);
        std::vector<Api*> lists;
        for (int e = 0; e < count; ++e) lists.push_back(a.dev() + e * a_elems);
        for (int e = 0; e < count; ++e) lists.push_back(b.dev());
        for (int e = 0; e < count; ++e) lists.push_back(c.dev() + e * c_elems);
        const DeviceBytes list(lists.size() * sizeof(void*));
        ASSERT_EQ(cudaMemcpy(list.get(), lists.data(), lists.size() * sizeof(void*), cudaMemcpyHostToDevice),
                  cudaSuccess);
        ASSERT_EQ(cublasSetPointerMode(handle_, on_device ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST),
                  CUBLAS_STATUS_SUCCESS);
        Api** const l = list.as<Api*>();
        const Api* alpha = on_device ? scalars.dev() : scalars.host.data();
        done(call(ta, tb, m, n, k, alpha, alpha + 1, Place<Api>{a.dev(), l, lda, a_elems},
                  Place<Api>{b.dev(), l + count, ldb, 0}, Place<Api>{c.dev(), l + 2 * count, ldc, c_elems}, count));
        expect_as_reference(name, c, k, [&](Pick p, auto* out) {
          for (int e = 0; e < count; ++e) {
            gemm(op(ta), op(tb), m, n, k, p(scalars.wide[0]), p(a) + e * a_elems, lda, p(b), ldb, p(scalars.wide[1]),
                 out + e * c_elems, ldc);
          }
        });
      }
    }
  }
  template <typename Api>
  struct Place {
    Api* data;
    Api** list;
    int ld, stride;
  };

  uint32_t calls_ = 0;
  uint32_t seed_ = 0;
};

#define SINGLE(Api, name)                                                                                       \
  check<Api>(#name, false,                                                                                      \
             [&](auto ta, auto tb, int m, int n, int k, auto* alpha, auto* beta, auto a, auto b, auto c, int) { \
               return name(handle_, ta, tb, m, n, k, alpha, a.data, a.ld, b.data, b.ld, beta, c.data, c.ld);    \
             })
#define POINTERS(Api, name)                                                                                           \
  check<Api>(#name, true,                                                                                             \
             [&](auto ta, auto tb, int m, int n, int k, auto* alpha, auto* beta, auto a, auto b, auto c, int count) { \
               return name(handle_, ta, tb, m, n, k, alpha, a.list, a.ld, b.list, b.ld, beta, c.list, c.ld, count);   \
             })
#define STRIDED(Api, name)                                                                                            \
  check<Api>(#name, true,                                                                                             \
             [&](auto ta, auto tb, int m, int n, int k, auto* alpha, auto* beta, auto a, auto b, auto c, int count) { \
               return name(handle_, ta, tb, m, n, k, alpha, a.data, a.ld, a.stride, b.data, b.ld, b.stride, beta,     \
                           c.data, c.ld, c.stride, count);                                                            \
             })
#define BOTH(form, Api, name) \
  form(Api, name);            \
  form(Api, name##_64)

TEST_F(GemmTypesTest, Double) {
  BOTH(SINGLE, double, cublasDgemm_v2);
  BOTH(POINTERS, double, cublasDgemmBatched);
  BOTH(STRIDED, double, cublasDgemmStridedBatched);
}

TEST_F(GemmTypesTest, Complex) {
  BOTH(SINGLE, cuComplex, cublasCgemm_v2);
  BOTH(SINGLE, cuComplex, cublasCgemm3m);
  BOTH(POINTERS, cuComplex, cublasCgemmBatched);
  BOTH(POINTERS, cuComplex, cublasCgemm3mBatched);
  BOTH(STRIDED, cuComplex, cublasCgemmStridedBatched);
  BOTH(STRIDED, cuComplex, cublasCgemm3mStridedBatched);
  BOTH(SINGLE, cuDoubleComplex, cublasZgemm_v2);
  BOTH(SINGLE, cuDoubleComplex, cublasZgemm3m);
  BOTH(POINTERS, cuDoubleComplex, cublasZgemmBatched);
  BOTH(STRIDED, cuDoubleComplex, cublasZgemmStridedBatched);
}

TEST_F(GemmTypesTest, TypesNamedAtRunTime) {
  const auto ex = [&](auto tag, cudaDataType type, cublasComputeType_t compute) {
    using Api = decltype(tag);
    check<Api>("cublasGemmEx", false,
               [&](auto ta, auto tb, int m, int n, int k, auto* alpha, auto* beta, auto a, auto b, auto c, int) {
                 return cublasGemmEx(handle_, ta, tb, m, n, k, alpha, a.data, type, a.ld, b.data, type, b.ld, beta,
                                     c.data, type, c.ld, compute, CUBLAS_GEMM_DEFAULT);
               });
    check<Api>("cublasGemmBatchedEx", true,
               [&](auto ta, auto tb, int m, int n, int k, auto* alpha, auto* beta, auto a, auto b, auto c, int count) {
                 return cublasGemmBatchedEx_64(handle_, ta, tb, m, n, k, alpha, reinterpret_cast<void* const*>(a.list),
                                               type, a.ld, reinterpret_cast<void* const*>(b.list), type, b.ld, beta,
                                               reinterpret_cast<void* const*>(c.list), type, c.ld, count, compute,
                                               CUBLAS_GEMM_DEFAULT);
               });
    check<Api>("cublasGemmStridedBatchedEx", true,
               [&](auto ta, auto tb, int m, int n, int k, auto* alpha, auto* beta, auto a, auto b, auto c, int count) {
                 return cublasGemmStridedBatchedEx(handle_, ta, tb, m, n, k, alpha, a.data, type, a.ld, a.stride,
                                                   b.data, type, b.ld, b.stride, beta, c.data, type, c.ld, c.stride,
                                                   count, compute, CUBLAS_GEMM_DEFAULT);
               });
  };
  ex(double{}, CUDA_R_64F, CUBLAS_COMPUTE_64F);
  ex(double{}, CUDA_R_64F, CUBLAS_COMPUTE_64F_PEDANTIC);
  ex(double{}, CUDA_R_64F, CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT);
  ex(cuComplex{}, CUDA_C_32F, CUBLAS_COMPUTE_32F);
  ex(cuComplex{}, CUDA_C_32F, CUBLAS_COMPUTE_32F_FAST_TF32);
  ex(cuDoubleComplex{}, CUDA_C_64F, CUBLAS_COMPUTE_64F);
#define CGEMM_EX(name)                                                                                                \
  check<cuComplex>(#name, false,                                                                                      \
                   [&](auto ta, auto tb, int m, int n, int k, auto* alpha, auto* beta, auto a, auto b, auto c, int) { \
                     return name(handle_, ta, tb, m, n, k, alpha, a.data, CUDA_C_32F, a.ld, b.data, CUDA_C_32F, b.ld, \
                                 beta, c.data, CUDA_C_32F, c.ld);                                                     \
                   })
  CGEMM_EX(cublasCgemmEx);
  CGEMM_EX(cublasCgemmEx_64);
  CGEMM_EX(cublasCgemm3mEx);
  CGEMM_EX(cublasCgemm3mEx_64);
}

// Groups of FP64, each with scalars of its own.
TEST_F(GemmTypesTest, DoubleGroups) {
  const Data<double> a(40, 1);
  const Data<double> b(40, 2);
  const Data<double> c(60, 3);
  double* const addresses[] = {a.dev(),      a.dev() + 10, a.dev() + 20, b.dev(),     b.dev() + 10,
                               b.dev() + 20, c.dev(),      c.dev() + 20, c.dev() + 40};
  const DeviceBytes list(sizeof addresses);
  ASSERT_EQ(cudaMemcpy(list.get(), addresses, sizeof addresses, cudaMemcpyHostToDevice), cudaSuccess);
  double** const l = list.as<double*>();
  const cublasOperation_t none[] = {CUBLAS_OP_N, CUBLAS_OP_N};
  const int m[] = {4, 2};
  const int n[] = {3, 4};
  const int k[] = {2, 5};
  const int ldb[] = {2, 5};
  const int count[] = {1, 2};
  const double alpha[] = {1.25, -3.0};
  const double beta[] = {-0.5, 2.0};
  const auto expected = [&](const char* name) {
    expect_as_reference(name, c, 5, [&](Pick p, double* out) {
      gemm(CblasNoTrans, CblasNoTrans, 4, 3, 2, p(alpha[0]), p(a), 4, p(b), 2, p(beta[0]), out, 4);
      for (int e = 1; e < 3; ++e) {
        gemm(CblasNoTrans, CblasNoTrans, 2, 4, 5, p(alpha[1]), p(a) + 10 * e, 2, p(b) + 10 * e, 5, p(beta[1]),
             out + 20 * e, 2);
      }
    });
  };
  done(cublasDgemmGroupedBatched(handle_, none, none, m, n, k, alpha, l, m, l + 3, ldb, beta, l + 6, m, 2, count));
  expected("cublasDgemmGroupedBatched");
  const int64_t m64[] = {4, 2};
  const int64_t n64[] = {3, 4};
  const int64_t k64[] = {2, 5};
  const int64_t ldb64[] = {2, 5};
  const int64_t count64[] = {1, 2};
  ASSERT_EQ(cudaMemcpy(c.dev(), c.host.data(), c.host.size() * 8, cudaMemcpyHostToDevice), cudaSuccess);
  done(cublasDgemmGroupedBatched_64(handle_, none, none, m64, n64, k64, alpha, l, m64, l + 3, ldb64, beta, l + 6, m64,
                                    2, count64));
  expected("cublasDgemmGroupedBatched_64");
  ASSERT_EQ(cudaMemcpy(c.dev(), c.host.data(), c.host.size() * 8, cudaMemcpyHostToDevice), cudaSuccess);
  done(cublasGemmGroupedBatchedEx(handle_, none, none, m, n, k, alpha, reinterpret_cast<void* const*>(l), CUDA_R_64F, m,
                                  reinterpret_cast<void* const*>(l + 3), CUDA_R_64F, ldb, beta,
                                  reinterpret_cast<void* const*>(l + 6), CUDA_R_64F, m, 2, count, CUBLAS_COMPUTE_64F));
  expected("cublasGemmGroupedBatchedEx");
}

// ---- integers

TEST_F(GemmTypesTest, Int8IntoInt32IsExactModulo2To32) {
  const int m = 5;
  const int n = 4;
  const int k = 8;
  const int ld = 8;
  std::vector<signed char> a(ld * m);  // op T: k x m
  std::vector<signed char> b(ld * n);
  std::mt19937 engine(1);
  for (auto& x : a) x = static_cast<signed char>(engine());
  for (auto& x : b) x = static_cast<signed char>(engine());
  std::vector<int32_t> c(8 * n);
  for (auto& x : c) x = static_cast<int32_t>(engine());
  const DeviceBytes a_dev(a.size());
  const DeviceBytes b_dev(b.size());
  const DeviceBytes c_dev(c.size() * 4);
  ASSERT_EQ(cudaMemcpy(a_dev.get(), a.data(), a.size(), cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(b_dev.get(), b.data(), b.size(), cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(c_dev.get(), c.data(), c.size() * 4, cudaMemcpyHostToDevice), cudaSuccess);
  const int32_t alpha = 3;
  const int32_t beta = 70001;
  const auto call = [&](const void* from, int lda, cublasOperation_t ta = CUBLAS_OP_T) {
    return cublasGemmEx(handle_, ta, CUBLAS_OP_N, m, n, k, &alpha, from, CUDA_R_8I, lda, b_dev.get(), CUDA_R_8I, ld,
                        &beta, c_dev.get(), CUDA_R_32I, 8, CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT);
  };
  done(call(a_dev.get(), ld));
  std::vector<int32_t> got(c.size());
  std::memcpy(got.data(), c_dev.download().data(), got.size() * 4);
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < 8; ++i) {
      const auto place = static_cast<size_t>(i + 8 * j);
      auto want = static_cast<uint32_t>(c[place]);
      if (i < m) {
        uint32_t sum = 0;
        for (int l = 0; l < k; ++l) {
          sum += static_cast<uint32_t>(a[static_cast<size_t>(l + ld * i)] * b[static_cast<size_t>(l + ld * j)]);
        }
        want = 3u * sum + 70001u * want;
      }
      EXPECT_EQ(static_cast<uint32_t>(got[place]), want) << i << ", " << j;
    }
  }
  EXPECT_EQ(call(a_dev.as<char>() + 1, ld), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(a_dev.get(), 6, CUBLAS_OP_N), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(GemmTypesTest, Int8IntoFp32) {
  const std::vector<signed char> a{100, -100, 50, 25};  // 1 x 4
  const std::vector<signed char> b{127, -128, 3, -1};   // 4 x 1
  const Data<float> c(1, 1);
  const DeviceBytes a_dev(4);
  const DeviceBytes b_dev(4);
  ASSERT_EQ(cudaMemcpy(a_dev.get(), a.data(), 4, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(b_dev.get(), b.data(), 4, cudaMemcpyHostToDevice), cudaSuccess);
  const float alpha = 0.5f;
  const float beta = 0.0f;
  done(cublasSgemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 4, &alpha, a_dev.get(), CUDA_R_8I, 1, b_dev.get(),
                     CUDA_R_8I, 4, &beta, c.dev(), CUDA_R_32F, 1));
  EXPECT_EQ(c.now()[0], 0.5 * (12700 + 12800 + 150 - 25));
}

// ---- TF32

// The math mode and the compute type ask for the same bits; those are not FP32's; PEDANTIC is not touched by the mode.
TEST_F(GemmTypesTest, Tf32ByModeAndByComputeType) {
  const Data<float> a(64 * 64, 1);
  const Data<float> b(64 * 64, 2);
  const Data<float> c(64 * 64, 3);
  const float one = 1.0f;
  const float zero = 0.0f;
  const auto run = [&](cublasMath_t mode, cublasComputeType_t compute) {
    EXPECT_EQ(cublasSetMathMode(handle_, mode), CUBLAS_STATUS_SUCCESS);
    done(cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 64, 64, 64, &one, a.dev(), CUDA_R_32F, 64, b.dev(), CUDA_R_32F,
                      64, &zero, c.dev(), CUDA_R_32F, 64, compute, CUBLAS_GEMM_DEFAULT));
    return c.now();
  };
  const auto plain = run(CUBLAS_DEFAULT_MATH, CUBLAS_COMPUTE_32F);
  const auto tf32 = run(CUBLAS_DEFAULT_MATH, CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_NE(plain, tf32);
  EXPECT_EQ(run(CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_COMPUTE_32F), tf32);
  EXPECT_EQ(run(CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_COMPUTE_32F_PEDANTIC), plain);
  ASSERT_EQ(cublasSetMathMode(handle_, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_SUCCESS);
  done(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 64, 64, 64, &one, a.dev(), 64, b.dev(), 64, &zero, c.dev(), 64));
  EXPECT_EQ(c.now(), tf32);
  // TF32 keeps 10 fraction bits of each operand, cut or rounded: a product is off by at most 2^-9 of itself (and its
  // second order), a sum by what 64 steps of a truncating FP32 accumulator lose beside.
  for (int j = 0; j < 64; ++j) {
    for (int i = 0; i < 64; ++i) {
      double sum = 0.0;
      double magnitude = 0.0;
      for (int l = 0; l < 64; ++l) {
        const double x = a.wide[static_cast<size_t>(i + 64 * l)] * b.wide[static_cast<size_t>(l + 64 * j)];
        sum += x;
        magnitude += std::fabs(x);
      }
      EXPECT_LE(std::fabs(tf32[static_cast<size_t>(i + 64 * j)] - sum), (0x1p-8 + 200 * 0x1p-23) * magnitude);
    }
  }
}

// ---- the table

// Every (compute, A, B, C) of these types: NOT_SUPPORTED unless cublasGemmEx's documented table has it.
TEST_F(GemmTypesTest, Table_EveryCell) {
  const cudaDataType types[] = {CUDA_R_16F, CUDA_R_16BF, CUDA_R_32F,     CUDA_R_64F,     CUDA_R_8I, CUDA_R_32I,
                                CUDA_C_32F, CUDA_C_64F,  CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_C_8I, CUDA_R_8U};
  const cublasComputeType_t computes[] = {CUBLAS_COMPUTE_16F,           CUBLAS_COMPUTE_16F_PEDANTIC,
                                          CUBLAS_COMPUTE_32F,           CUBLAS_COMPUTE_32F_PEDANTIC,
                                          CUBLAS_COMPUTE_32F_FAST_16F,  CUBLAS_COMPUTE_32F_FAST_16BF,
                                          CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F_EMULATED_16BFX9,
                                          CUBLAS_COMPUTE_64F,           CUBLAS_COMPUTE_64F_PEDANTIC,
                                          CUBLAS_COMPUTE_32I,           CUBLAS_COMPUTE_32I_PEDANTIC};
  std::map<std::pair<int, int>, std::vector<int>> table;  // (compute, A and B) -> C
  for (const auto c : {CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_16F_PEDANTIC}) table[{c, CUDA_R_16F}] = {CUDA_R_16F};
  for (const auto c : {CUBLAS_COMPUTE_32I, CUBLAS_COMPUTE_32I_PEDANTIC}) table[{c, CUDA_R_8I}] = {CUDA_R_32I};
  for (const auto c : {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC}) {
    table[{c, CUDA_R_16BF}] = {CUDA_R_16BF, CUDA_R_32F};
    table[{c, CUDA_R_16F}] = {CUDA_R_16F, CUDA_R_32F};
    table[{c, CUDA_R_8I}] = {CUDA_R_32F};
    table[{c, CUDA_R_32F}] = {CUDA_R_32F};
    table[{c, CUDA_C_8I}] = {CUDA_C_32F};
    table[{c, CUDA_C_32F}] = {CUDA_C_32F};
  }
  for (const auto c : {CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_TF32,
                       CUBLAS_COMPUTE_32F_EMULATED_16BFX9}) {
    table[{c, CUDA_R_32F}] = {CUDA_R_32F};
    table[{c, CUDA_C_32F}] = {CUDA_C_32F};
  }
  for (const auto c : {CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F_PEDANTIC}) {
    table[{c, CUDA_R_64F}] = {CUDA_R_64F};
    table[{c, CUDA_C_64F}] = {CUDA_C_64F};
  }
  const DeviceBytes memory(size_t{64});
  const char scalars[16] = {};
  int supported = 0;
  for (const auto compute : computes) {
    for (const auto a : types) {
      for (const auto b : types) {
        for (const auto c : types) {
          const auto& cs = table[{compute, a}];
          const bool listed = a == b && std::find(cs.begin(), cs.end(), c) != cs.end();
          const cublasStatus_t status =
              cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, scalars, memory.get(), a, 4, memory.get(), b, 4,
                           scalars, memory.get(), c, 4, compute, CUBLAS_GEMM_DEFAULT);
          EXPECT_EQ(status, listed ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED)
              << "compute " << compute << ", " << a << " x " << b << " -> " << c;
          supported += listed;
        }
      }
    }
  }
  EXPECT_EQ(supported, 32);
}

}  // namespace

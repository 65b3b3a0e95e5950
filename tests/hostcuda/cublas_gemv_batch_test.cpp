// SPDX-License-Identifier: MIT
// Batches of gemv by hostcuda's libcublas: every letter combination, by pointers and by strides, both widths and
// pointer modes, against sums in double.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <complex>
#include <random>

#include "tests/hostcuda/cublas_fixture.h"
#include "tests/hostcuda/product_reference.h"

namespace {

using reference::DeviceBytes;
using Z = std::complex<double>;

// How elements of one type are stored, as complex numbers.
template <typename T>
struct Element {
  static constexpr bool kComplex = false;
  static T store(Z x) { return static_cast<T>(x.real()); }
  static Z load(T x) { return static_cast<double>(x); }
};
template <>
struct Element<__half> {
  static constexpr bool kComplex = false;
  static __half store(Z x) { return __float2half(static_cast<float>(x.real())); }
  static Z load(__half x) { return static_cast<double>(__half2float(x)); }
};
template <>
struct Element<__nv_bfloat16> {
  static constexpr bool kComplex = false;
  static __nv_bfloat16 store(Z x) { return __float2bfloat16(static_cast<float>(x.real())); }
  static Z load(__nv_bfloat16 x) { return static_cast<double>(__bfloat162float(x)); }
};
template <>
struct Element<cuComplex> {
  static constexpr bool kComplex = true;
  static cuComplex store(Z x) { return {static_cast<float>(x.real()), static_cast<float>(x.imag())}; }
  static Z load(cuComplex x) { return {x.x, x.y}; }
};
template <>
struct Element<cuDoubleComplex> {
  static constexpr bool kComplex = true;
  static cuDoubleComplex store(Z x) { return {x.real(), x.imag()}; }
  static Z load(cuDoubleComplex x) { return {x.x, x.y}; }
};

template <typename T>
class Values {
 public:
  Values(size_t count, uint32_t seed) : host(count), memory_(count * sizeof(T)) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal;
    for (T& x : host) {
      const double re = normal(engine);
      x = Element<T>::store({re, normal(engine)});
    }
    EXPECT_EQ(cudaMemcpy(memory_.get(), host.data(), count * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  T* dev() const { return memory_.as<T>(); }
  Z before(int64_t i) const { return Element<T>::load(host[static_cast<size_t>(i)]); }
  std::vector<T> now() const {
    std::vector<T> values(host.size());
    std::memcpy(values.data(), memory_.download().data(), values.size() * sizeof(T));
    return values;
  }
  std::vector<T> host;

 private:
  DeviceBytes memory_;
};

class GemvBatchTest : public HandleTest {
 protected:
  // unit: half an ulp of 1 of the sum's type; out_unit: of y's type.
  template <typename A, typename X, typename Y, typename P, typename P64, typename S, typename S64>
  void check(const char* name, double unit, double out_unit, P by_pointers, P64 by_pointers_64, S strided,
             S64 strided_64) {
    constexpr int m = 7;
    constexpr int n = 5;
    constexpr int lda = 9;
    constexpr int count = 3;
    constexpr int64_t a_stride = lda * n + 4;
    constexpr int64_t x_stride = 40;
    constexpr int64_t y_stride = 30;
    for (const auto trans : {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C}) {
      for (int form = 0; form < 4; ++form) {
        SCOPED_TRACE(testing::Message() << name << ", trans " << trans << ", form " << form);
        const int rows = trans == CUBLAS_OP_N ? m : n;
        const int cols = trans == CUBLAS_OP_N ? n : m;
        const Values<X> a(a_stride * count, ++seed_);
        const Values<X> x(x_stride * count, ++seed_);
        const Values<Y> y(y_stride * count, ++seed_);
        const Values<A> scalars(2, ++seed_);
        const bool on_device = ++calls_ % 2;
        ASSERT_EQ(cublasSetPointerMode(handle_, on_device ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST),
                  CUBLAS_STATUS_SUCCESS);
        const A* alpha = on_device ? scalars.dev() : scalars.host.data();
        std::vector<const void*> addresses;
        for (int e = 0; e < count; ++e) addresses.push_back(a.dev() + e * a_stride);
        for (int e = 0; e < count; ++e) addresses.push_back(x.dev() + e * x_stride);
        for (int e = 0; e < count; ++e) addresses.push_back(y.dev() + e * y_stride);
        const DeviceBytes list(addresses.size() * sizeof(void*));
        ASSERT_EQ(cudaMemcpy(list.get(), addresses.data(), addresses.size() * sizeof(void*), cudaMemcpyHostToDevice),
                  cudaSuccess);
        const X* const* al = list.as<const X*>();
        const X* const* xl = al + count;
        Y* const* yl = list.as<Y*>() + 2 * count;
        constexpr int incx = -2;
        constexpr int incy = 3;
        cublasStatus_t status = CUBLAS_STATUS_INTERNAL_ERROR;
        if (form == 0) status = by_pointers(handle_, trans, m, n, alpha, al, lda, xl, incx, alpha + 1, yl, incy, count);
        if (form == 1) {
          status = by_pointers_64(handle_, trans, m, n, alpha, al, lda, xl, incx, alpha + 1, yl, incy, count);
        }
        if (form == 2) {
          status = strided(handle_, trans, m, n, alpha, a.dev(), lda, a_stride, x.dev(), incx, x_stride, alpha + 1,
                           y.dev(), incy, y_stride, count);
        }
        if (form == 3) {
          status = strided_64(handle_, trans, m, n, alpha, a.dev(), lda, a_stride, x.dev(), incx, x_stride, alpha + 1,
                              y.dev(), incy, y_stride, count);
        }
        ASSERT_EQ(status, CUBLAS_STATUS_SUCCESS);
        ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
        const std::vector<Y> got = y.now();
        std::vector<bool> written(got.size(), false);
        for (int e = 0; e < count; ++e) {
          for (int i = 0; i < rows; ++i) {
            Z sum{};
            double magnitude = 0.0;
            for (int j = 0; j < cols; ++j) {
              Z entry = a.before(e * a_stride + (trans == CUBLAS_OP_N ? i + j * lda : j + i * lda));
              if (trans == CUBLAS_OP_C) entry = std::conj(entry);
              const Z factor = x.before(e * x_stride + (cols - 1 - j) * 2);
              sum += entry * factor;
              magnitude += std::abs(entry) * std::abs(factor);
            }
            const int64_t place = e * y_stride + i * incy;
            const Z want =
                Element<A>::load(scalars.host[0]) * sum + Element<A>::load(scalars.host[1]) * y.before(place);
            magnitude = std::abs(Element<A>::load(scalars.host[0])) * magnitude +
                        std::abs(Element<A>::load(scalars.host[1])) * std::abs(y.before(place));
            // As many roundings as terms, twice as many in complex arithmetic, and the one into y.
            const double bound = 2.0 * (cols + 8) * (unit + 0x1p-53) * magnitude + out_unit * magnitude;
            written[static_cast<size_t>(place)] = true;
            ASSERT_LE(std::abs(Element<Y>::load(got[static_cast<size_t>(place)]) - want), bound) << e << ", " << i;
          }
        }
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_TRUE(written[i] || std::memcmp(&got[i], &y.host[i], sizeof(Y)) == 0) << "gap " << i;
        }
      }
    }
  }

  uint32_t seed_ = 0;
  uint32_t calls_ = 0;
};

#define CHECK(A, X, Y, prefix, unit, out_unit)                                                         \
  check<A, X, Y>(#prefix, unit, out_unit, cublas##prefix##gemvBatched, cublas##prefix##gemvBatched_64, \
                 cublas##prefix##gemvStridedBatched, cublas##prefix##gemvStridedBatched_64)

TEST_F(GemvBatchTest, EveryLetter) {
  CHECK(float, float, float, S, 0x1p-24, 0.0);
  CHECK(double, double, double, D, 0x1p-53, 0.0);
  CHECK(cuComplex, cuComplex, cuComplex, C, 0x1p-24, 0.0);
  CHECK(cuDoubleComplex, cuDoubleComplex, cuDoubleComplex, Z, 0x1p-53, 0.0);
  CHECK(float, __half, __half, HSH, 0x1p-24, 0x1p-11);
  CHECK(float, __half, float, HSS, 0x1p-24, 0.0);
  CHECK(float, __nv_bfloat16, __nv_bfloat16, TST, 0x1p-24, 0x1p-8);
  CHECK(float, __nv_bfloat16, float, TSS, 0x1p-24, 0.0);
}

TEST_F(GemvBatchTest, ArgumentsAndWhatIsNotRead) {
  const Values<float> y(2, 1);
  float* const addresses[] = {y.dev(), y.dev() + 1};
  const DeviceBytes list(sizeof addresses);
  ASSERT_EQ(cudaMemcpy(list.get(), addresses, sizeof addresses, cudaMemcpyHostToDevice), cudaSuccess);
  const float zero = 0.0f;
  EXPECT_EQ(
      cublasSgemvBatched(handle_, CUBLAS_OP_N, 1, 1, &zero, nullptr, 1, nullptr, 1, &zero, list.as<float*>(), 1, 2),
      CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(y.now(), (std::vector<float>{0.0f, 0.0f}));
  EXPECT_EQ(
      cublasSgemvBatched(handle_, CUBLAS_OP_N, 1, 1, &zero, nullptr, 1, nullptr, 0, &zero, list.as<float*>(), 1, 2),
      CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(
      cublasSgemvBatched(handle_, CUBLAS_OP_N, 2, 1, &zero, nullptr, 1, nullptr, 1, &zero, list.as<float*>(), 1, 2),
      CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(
      cublasSgemvBatched(handle_, CUBLAS_OP_N, 1, 1, &zero, nullptr, 1, nullptr, 1, &zero, list.as<float*>(), 1, -1),
      CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSgemvBatched(handle_, CUBLAS_OP_N, 1, 1, nullptr, nullptr, 1, nullptr, 1, nullptr, nullptr, 1, 0),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSgemvStridedBatched(nullptr, CUBLAS_OP_N, 1, 1, &zero, nullptr, 1, 1, nullptr, 1, 1, &zero, y.dev(),
                                      1, 1, 2),
            CUBLAS_STATUS_NOT_INITIALIZED);
}

}  // namespace

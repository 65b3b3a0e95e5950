// SPDX-License-Identifier: MIT
// BLAS level 1 of hostcuda's libcublas: every routine in S, D, C and Z, both widths and both pointer modes, and the
// forms with types named at run time, against plain loops in long double.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <functional>
#include <numeric>

#include "tests/hostcuda/blas_reference.h"
#include "tests/hostcuda/cublas_fixture.h"

namespace {

using blas_reference::Data;
using blas_reference::Of;
using blas_reference::Wide;
using blas_reference::Z;
using reference::DeviceBytes;
using reference::Gate;

double conj_of(double x) {
  return x;
}
Z conj_of(Z x) {
  return std::conj(x);
}
double size_of(double x) {
  return std::fabs(x);
}
double size_of(Z x) {
  return std::fabs(x.real()) + std::fabs(x.imag());
}

class VectorTest : public HandleTest {
 protected:
  // The pointer modes take turns.
  bool next_mode() {
    const bool on_device = ++calls_ % 2;
    EXPECT_EQ(cublasSetPointerMode(handle_, on_device ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST),
              CUBLAS_STATUS_SUCCESS);
    return on_device;
  }
  bool wide() const { return calls_ / 2 % 2; }
  uint32_t seed() { return ++seed_; }

  // The result of call(where) in the memory of the pointer mode in turn.
  template <typename R, typename CallIt>
  R result_of(CallIt call) {
    R value{};
    if (!next_mode()) {
      done(call(&value));  // no look at the stream: HOST mode has waited
      return value;
    }
    const DeviceBytes place(sizeof(R));
    done(call(place.as<R>()));
    std::memcpy(&value, place.download().data(), sizeof value);
    return value;
  }

  uint32_t calls_ = 0;
  uint32_t seed_ = 0;
};

#define CALL(...) done(wide() ? f64(__VA_ARGS__) : f(__VA_ARGS__))
#define ONE(check, Api, name) check(Api{}, #name, name, name##_64)
#define FOUR(check, routine)               \
  ONE(check, float, cublasS##routine);     \
  ONE(check, double, cublasD##routine);    \
  ONE(check, cuComplex, cublasC##routine); \
  ONE(check, cuDoubleComplex, cublasZ##routine)

constexpr int kN = 17;

// Place of element i of a vector of kN elements, inc apart.
size_t at(int i, int inc) {
  return static_cast<size_t>(inc > 0 ? i * inc : (i - kN + 1) * inc);
}

// A few roundings of numbers of these magnitudes, in either part.
template <typename Api>
double few(double magnitude) {
  return 8.0 * Of<Api>::kUnit * magnitude;
}

TEST_F(VectorTest, AxpyScalCopySwap) {
  const auto axpy = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    for (const auto& [incx, incy] : {std::pair{1, 1}, {2, -3}, {-1, 2}, {0, 1}}) {
      const Data<Api> x(60, seed());
      const Data<Api> y(60, seed());
      const Data<Api> alpha(1, seed());
      const bool on_device = next_mode();
      CALL(handle_, kN, on_device ? alpha.dev() : alpha.host.data(), x.dev(), incx, y.dev(), incy);
      std::vector<Wide<Api>> want = y.wide;
      std::vector<double> bound(want.size(), 0.0);
      for (int i = 0; i < kN; ++i) {
        const auto term = alpha.wide[0] * x.wide[incx ? at(i, incx) : 0];
        bound[at(i, incy)] = few<Api>(std::abs(term) + std::abs(want[at(i, incy)]));
        want[at(i, incy)] += term;
      }
      const auto got = y.now();
      for (size_t i = 0; i < got.size(); ++i) ASSERT_LE(std::abs(got[i] - want[i]), bound[i]) << name << ' ' << i;
    }
  };
  FOUR(axpy, axpy_v2);
  const auto copied = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    const Data<Api> x(60, seed());
    const Data<Api> y(60, seed());
    next_mode();
    CALL(handle_, kN, x.dev(), -2, y.dev(), 3);
    std::vector<Wide<Api>> want = y.wide;
    for (int i = 0; i < kN; ++i) want[at(i, 3)] = x.wide[at(i, -2)];
    EXPECT_EQ(y.now(), want) << name;
  };
  FOUR(copied, copy_v2);
  const auto swapped = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    const Data<Api> x(60, seed());
    const Data<Api> y(60, seed());
    next_mode();
    CALL(handle_, kN, x.dev(), 2, y.dev(), -1);
    std::vector<Wide<Api>> want_x = x.wide;
    std::vector<Wide<Api>> want_y = y.wide;
    for (int i = 0; i < kN; ++i) std::swap(want_x[at(i, 2)], want_y[at(i, -1)]);
    EXPECT_EQ(x.now(), want_x) << name;
    EXPECT_EQ(y.now(), want_y) << name;
  };
  FOUR(swapped, swap_v2);
}

TEST_F(VectorTest, Scal) {
  const auto check = [&](auto tag, auto alpha_tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    using Alpha = decltype(alpha_tag);
    const Data<Api> x(60, seed());
    const Data<Alpha> alpha(1, seed());
    const bool on_device = next_mode();
    CALL(handle_, kN, on_device ? alpha.dev() : alpha.host.data(), x.dev(), 3);
    const auto got = x.now();
    for (size_t i = 0; i < got.size(); ++i) {
      const bool inside = i % 3 == 0 && i < 3 * kN;
      const auto want = inside ? alpha.wide[0] * x.wide[i] : x.wide[i];
      ASSERT_LE(std::abs(got[i] - want), inside ? few<Api>(std::abs(want)) : 0.0) << name << ' ' << i;
    }
    CALL(handle_, kN, on_device ? alpha.dev() : alpha.host.data(), x.dev(), -1);  // nothing, as in BLAS
    EXPECT_EQ(x.now(), got) << name;
  };
#define SCAL(Api, Alpha, name) check(Api{}, Alpha{}, #name, name, name##_64)
  SCAL(float, float, cublasSscal_v2);
  SCAL(double, double, cublasDscal_v2);
  SCAL(cuComplex, cuComplex, cublasCscal_v2);
  SCAL(cuDoubleComplex, cuDoubleComplex, cublasZscal_v2);
  SCAL(cuComplex, float, cublasCsscal_v2);
  SCAL(cuDoubleComplex, double, cublasZdscal_v2);
}

TEST_F(VectorTest, Dot) {
  const auto check = [&](auto tag, const char* name, auto f, auto f64, bool conjugated) {
    using Api = decltype(tag);
    for (int mode = 0; mode < 4; ++mode) {
      const Data<Api> x(60, seed());
      const Data<Api> y(60, seed());
      const Api got = result_of<Api>([&](Api* where) {
        return wide() ? f64(handle_, kN, x.dev(), 2, y.dev(), -3, where)
                      : f(handle_, kN, x.dev(), 2, y.dev(), -3, where);
      });
      Wide<Api> want{};
      double scale = 0.0;
      for (int i = 0; i < kN; ++i) {
        const auto left = x.wide[at(i, 2)];
        want += (conjugated ? conj_of(left) : left) * y.wide[at(i, -3)];
        scale += std::abs(left) * std::abs(y.wide[at(i, -3)]);
      }
      EXPECT_LE(std::abs(Of<Api>::wide(got) - want), 4.0 * (kN + 8) * Of<Api>::kUnit * scale) << name;
      EXPECT_NE(std::abs(want), 0.0);
    }
    const Api nothing = result_of<Api>([&](Api* where) { return f(handle_, 0, nullptr, 1, nullptr, 1, where); });
    EXPECT_EQ(Of<Api>::wide(nothing), Wide<Api>{});
  };
#define DOT(Api, name, conjugated) check(Api{}, #name, name, name##_64, conjugated)
  DOT(float, cublasSdot_v2, false);
  DOT(double, cublasDdot_v2, false);
  DOT(cuComplex, cublasCdotu_v2, false);
  DOT(cuComplex, cublasCdotc_v2, true);
  DOT(cuDoubleComplex, cublasZdotu_v2, false);
  DOT(cuDoubleComplex, cublasZdotc_v2, true);
}

TEST_F(VectorTest, NormAndSumOfSizes) {
  const auto check = [&](auto tag, auto real, const char* name, auto f, auto f64, bool norm, double scale) {
    using Api = decltype(tag);
    using R = decltype(real);
    for (int mode = 0; mode < 4; ++mode) {
      Data<Api> x(60, seed());
      for (size_t i = 0; i < x.host.size(); ++i) x.host[i] = Of<Api>::narrow(x.wide[i] * scale);
      x.upload();
      const R got = result_of<R>(
          [&](R* where) { return wide() ? f64(handle_, kN, x.dev(), 3, where) : f(handle_, kN, x.dev(), 3, where); });
      long double sum = 0.0L;
      for (int i = 0; i < kN; ++i) {
        const long double size = norm ? std::norm(x.wide[at(i, 3)] / scale) : size_of(x.wide[at(i, 3)]);
        sum += size;
      }
      const auto want = static_cast<double>(norm ? std::sqrt(sum) * scale : sum);
      EXPECT_LE(std::fabs(static_cast<double>(got) - want), 4.0 * (kN + 8) * Of<Api>::kUnit * want) << name;
      EXPECT_EQ(result_of<R>([&](R* where) { return f(handle_, kN, x.dev(), -1, where); }), R{}) << name;
    }
  };
#define REDUCE(Api, R, name, norm, scale) check(Api{}, R{}, #name, name, name##_64, norm, scale)
  // Squares of these would overflow, or vanish.
  for (const bool large : {false, true}) {
    REDUCE(float, float, cublasSnrm2_v2, true, large ? 0x1p100 : 0x1p-100);
    REDUCE(double, double, cublasDnrm2_v2, true, large ? 0x1p900 : 0x1p-900);
    REDUCE(cuComplex, float, cublasScnrm2_v2, true, large ? 0x1p100 : 0x1p-100);
    REDUCE(cuDoubleComplex, double, cublasDznrm2_v2, true, large ? 0x1p900 : 0x1p-900);
  }
  REDUCE(float, float, cublasSasum_v2, false, 1.0);
  REDUCE(double, double, cublasDasum_v2, false, 1.0);
  REDUCE(cuComplex, float, cublasScasum_v2, false, 1.0);
  REDUCE(cuDoubleComplex, double, cublasDzasum_v2, false, 1.0);
}

// A device adds many partial sums. One chain of FP32 additions would stay at 2^24 here.
TEST_F(VectorTest, LongSumsDoNotStall) {
  constexpr int kLong = 9 << 21;  // ones, whose sum FP32 holds
  const std::vector<float> ones(kLong, 1.0f);
  float* x = nullptr;
  ASSERT_EQ(cudaMalloc(&x, kLong * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(x, ones.data(), kLong * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  float sum = 0, dot = 0, norm = 0;
  done(cublasSasum(handle_, kLong, x, 1, &sum));
  done(cublasSdot(handle_, kLong, x, 1, x, 1, &dot));
  done(cublasSnrm2(handle_, kLong, x, 1, &norm));
  EXPECT_EQ(sum, static_cast<float>(kLong));
  EXPECT_EQ(dot, static_cast<float>(kLong));
  EXPECT_EQ(norm, std::sqrt(static_cast<float>(kLong)));
  EXPECT_EQ(cudaFree(x), cudaSuccess);
}

TEST_F(VectorTest, LargestAndSmallest) {
  const auto check = [&](auto tag, const char* name, auto f, auto f64, bool largest) {
    using Api = decltype(tag);
    for (int mode = 0; mode < 4; ++mode) {
      Data<Api> x(60, seed());
      x.host[at(11, 2)] = x.host[at(4, 2)] = Of<Api>::narrow(Wide<Api>(largest ? -50.0 : 1e-6));  // the first counts
      x.upload();
      const auto call = [&](auto size, int n, int inc) {
        using Size = decltype(size);
        return static_cast<int64_t>(result_of<Size>([&](Size* where) {
          if constexpr (std::is_same_v<Size, int>)
            return f(handle_, n, x.dev(), inc, where);
          else
            return f64(handle_, n, x.dev(), inc, where);
        }));
      };
      EXPECT_EQ(call(int{}, kN, 2), 5) << name;
      EXPECT_EQ(call(int64_t{}, kN, 2), 5) << name;
      EXPECT_EQ(call(int{}, 0, 2), 0) << name;
      EXPECT_EQ(call(int64_t{}, kN, -1), 0) << name;
    }
  };
#define EXTREME(Api, name, largest) check(Api{}, #name, name, name##_64, largest)
  EXTREME(float, cublasIsamax_v2, true);
  EXTREME(double, cublasIdamax_v2, true);
  EXTREME(cuComplex, cublasIcamax_v2, true);
  EXTREME(cuDoubleComplex, cublasIzamax_v2, true);
  EXTREME(float, cublasIsamin_v2, false);
  EXTREME(double, cublasIdamin_v2, false);
  EXTREME(cuComplex, cublasIcamin_v2, false);
  EXTREME(cuDoubleComplex, cublasIzamin_v2, false);
}

TEST_F(VectorTest, Rotations) {
  const auto check = [&](auto tag, auto c_tag, auto s_tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    const Data<Api> x(60, seed());
    const Data<Api> y(60, seed());
    const Data<decltype(c_tag)> c(1, seed());
    const Data<decltype(s_tag)> s(1, seed());
    const bool on_device = next_mode();
    CALL(handle_, kN, x.dev(), 1, y.dev(), -2, on_device ? c.dev() : c.host.data(),
         on_device ? s.dev() : s.host.data());
    std::vector<Wide<Api>> want_x = x.wide;
    std::vector<Wide<Api>> want_y = y.wide;
    for (int i = 0; i < kN; ++i) {
      const auto a = x.wide[at(i, 1)];
      const auto b = y.wide[at(i, -2)];
      want_x[at(i, 1)] = c.wide[0] * a + s.wide[0] * b;
      want_y[at(i, -2)] = c.wide[0] * b - conj_of(s.wide[0]) * a;
    }
    const auto got_x = x.now();
    const auto got_y = y.now();
    const double scale = 8.0 * (std::abs(c.wide[0]) + std::abs(s.wide[0]));  // normal numbers stay below 8
    for (size_t i = 0; i < got_x.size(); ++i) {
      ASSERT_LE(std::abs(got_x[i] - want_x[i]), want_x[i] == x.wide[i] ? 0.0 : few<Api>(scale)) << name << ' ' << i;
      ASSERT_LE(std::abs(got_y[i] - want_y[i]), want_y[i] == y.wide[i] ? 0.0 : few<Api>(scale)) << name << ' ' << i;
    }
  };
#define ROT(Api, C, S, name) check(Api{}, C{}, S{}, #name, name, name##_64)
  for (int turn = 0; turn < 2; ++turn) {
    ROT(float, float, float, cublasSrot_v2);
    ROT(double, double, double, cublasDrot_v2);
    ROT(cuComplex, float, cuComplex, cublasCrot_v2);
    ROT(cuComplex, float, float, cublasCsrot_v2);
    ROT(cuDoubleComplex, double, cuDoubleComplex, cublasZrot_v2);
    ROT(cuDoubleComplex, double, double, cublasZdrot_v2);
  }
}

// A generated rotation is one (c^2 + |s|^2 = 1) and takes (a, b) to (r, 0).
TEST_F(VectorTest, GeneratedRotationsDoWhatTheyAreFor) {
  const auto check = [&](auto tag, const char* name, auto f) {
    using Api = decltype(tag);
    using R = typename Of<Api>::RealApi;
    for (int kind = 0; kind < 8; ++kind) {
      Data<Api> ab(2, seed());
      if (kind / 2 == 1) ab.host[0] = Of<Api>::narrow(0.0);
      if (kind / 2 == 2) ab.host[1] = Of<Api>::narrow(0.0);
      if (kind / 2 == 3) std::swap(ab.host[0], ab.host[1]);
      ab.upload();
      const bool on_device = next_mode();
      Data<R> c(1, 0);
      Data<Api> s(1, 0);
      if (on_device) {
        done(f(handle_, ab.dev(), ab.dev() + 1, c.dev(), s.dev()));
      } else {
        done(f(handle_, ab.host.data(), ab.host.data() + 1, c.host.data(), s.host.data()));
      }
      const auto r = on_device ? ab.now()[0] : Of<Api>::wide(ab.host[0]);
      const auto cos = on_device ? c.now()[0] : Of<R>::wide(c.host[0]);
      const auto sin = on_device ? s.now()[0] : Of<Api>::wide(s.host[0]);
      const auto a = ab.wide[0];
      const auto b = ab.wide[1];
      EXPECT_LE(std::fabs(cos * cos + std::norm(sin) - 1.0), few<Api>(2.0)) << name << ' ' << kind;
      EXPECT_LE(std::abs(cos * a + sin * b - r), few<Api>(std::abs(a) + std::abs(b))) << name << ' ' << kind;
      EXPECT_LE(std::abs(cos * b - conj_of(sin) * a), few<Api>(std::abs(a) + std::abs(b))) << name << ' ' << kind;
    }
  };
  check(float{}, "srotg", cublasSrotg_v2);
  check(double{}, "drotg", cublasDrotg_v2);
  check(cuComplex{}, "crotg", cublasCrotg_v2);
  check(cuDoubleComplex{}, "zrotg", cublasZrotg_v2);
}

// H of rotmg takes (x1, y1), scaled by the roots of d1 and d2, to a first component alone; rotm applies H.
TEST_F(VectorTest, ModifiedRotations) {
  const auto check = [&](auto tag, const char* name, auto make, auto f, auto f64) {
    using T = decltype(tag);
    const double cases[][4] = {{2.0, 3.0, 1.5, 0.5},    {0.5, 7.0, 0.25, -3.0}, {1e-9, 1e9, 2.0, 1e-3},
                               {1e12, 1e-12, 3.0, 4.0}, {1.0, 2.0, 1.0, 0.0},   {-1.0, 2.0, 1.0, 1.0},
                               {3.0, -2.0, 2.0, 1.0},   {1.0, -2.0, 0.5, 4.0}};
    for (const auto& one : cases) {
      Data<T> data(9, 0);
      for (size_t i = 0; i < 4; ++i) data.host[i] = static_cast<T>(one[i]);
      for (size_t i = 4; i < 9; ++i) data.host[i] = T(77);  // the entries that the flag fixes are not written
      data.upload();
      const bool on_device = next_mode();
      T* base = on_device ? data.dev() : data.host.data();
      done(make(handle_, base, base + 1, base + 2, base + 3, base + 4));
      std::vector<double> out(data.host.begin(), data.host.end());
      if (on_device) out = data.now();
      // The reference implementation's flag and H
      double d1 = static_cast<T>(one[0]);
      double d2 = static_cast<T>(one[1]);
      double x1 = static_cast<T>(one[2]);
      double want[5] = {77, 77, 77, 77, 77};
      cblas_drotmg(&d1, &d2, &x1, static_cast<T>(one[3]), want);
      const double scale = 64.0 * Of<T>::kUnit;
      EXPECT_EQ(out[4], want[0]) << name;
      EXPECT_LE(std::fabs(out[0] - d1), scale * std::fabs(d1)) << name;
      EXPECT_LE(std::fabs(out[1] - d2), scale * std::fabs(d2)) << name;
      EXPECT_LE(std::fabs(out[2] - x1), scale * std::fabs(x1)) << name;
      for (size_t i = 1; i < 5; ++i) {
        EXPECT_LE(std::fabs(out[4 + i] - want[i]), scale * std::fabs(want[i])) << name << " param " << i;
      }
      const Data<T> x(40, seed());
      const Data<T> y(40, seed());
      Data<T> param(5, 0);
      for (size_t i = 0; i < 5; ++i) param.host[i] = static_cast<T>(out[4 + i]);
      param.upload();
      const T* given = on_device ? param.dev() : param.host.data();
      CALL(handle_, kN, x.dev(), 2, y.dev(), 1, given);
      std::vector<double> want_x = x.wide;
      std::vector<double> want_y = y.wide;
      cblas_drotm(kN, want_x.data(), 2, want_y.data(), 1, out.data() + 4);
      const double size = 8.0 * (std::fabs(out[5]) + std::fabs(out[6]) + std::fabs(out[7]) + std::fabs(out[8]) + 2.0);
      const auto got_x = x.now();
      const auto got_y = y.now();
      for (size_t i = 0; i < got_x.size(); ++i) {
        ASSERT_LE(std::fabs(got_x[i] - want_x[i]), few<T>(size)) << name << ' ' << i;
        ASSERT_LE(std::fabs(got_y[i] - want_y[i]), few<T>(size)) << name << ' ' << i;
      }
    }
  };
  check(float{}, "srotm", cublasSrotmg_v2, cublasSrotm_v2, cublasSrotm_v2_64);
  check(double{}, "drotm", cublasDrotmg_v2, cublasDrotm_v2, cublasDrotm_v2_64);
}

// ---- types named at run time

struct Named {
  cudaDataType type, execution, real;
  size_t bytes;
  double unit;  // of the stored elements
  std::function<void(Z, void*)> store;
  std::function<Z(const void*)> load;
};

template <typename T, typename To, typename From>
Named named(cudaDataType type, cudaDataType execution, cudaDataType real, double unit, To to, From from) {
  return {type,
          execution,
          real,
          sizeof(T),
          unit,
          [to](Z x, void* place) {
            const T value = to(x);
            std::memcpy(place, &value, sizeof value);
          },
          [from](const void* place) {
            T value;
            std::memcpy(&value, place, sizeof value);
            return Z(from(value));
          }};
}

const std::vector<Named>& all_named() {
  static const std::vector<Named> all{
      named<__half>(
          CUDA_R_16F, CUDA_R_32F, CUDA_R_16F, 0x1p-11, [](Z x) { return __float2half(static_cast<float>(x.real())); },
          [](__half x) { return static_cast<double>(__half2float(x)); }),
      named<__nv_bfloat16>(
          CUDA_R_16BF, CUDA_R_32F, CUDA_R_16BF, 0x1p-8,
          [](Z x) { return __float2bfloat16(static_cast<float>(x.real())); },
          [](__nv_bfloat16 x) { return static_cast<double>(__bfloat162float(x)); }),
      named<float>(
          CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, 0x1p-24, [](Z x) { return static_cast<float>(x.real()); },
          [](float x) { return static_cast<double>(x); }),
      named<double>(
          CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, 0x1p-53, [](Z x) { return x.real(); }, [](double x) { return x; }),
      named<cuComplex>(
          CUDA_C_32F, CUDA_C_32F, CUDA_R_32F, 0x1p-24, [](Z x) { return Of<cuComplex>::narrow(x); },
          [](cuComplex x) { return Of<cuComplex>::wide(x); }),
      named<cuDoubleComplex>(
          CUDA_C_64F, CUDA_C_64F, CUDA_R_64F, 0x1p-53, [](Z x) { return Of<cuDoubleComplex>::narrow(x); },
          [](cuDoubleComplex x) { return Of<cuDoubleComplex>::wide(x); })};
  return all;
}

const Named& named_of(cudaDataType type) {
  for (const Named& x : all_named()) {
    if (x.type == type) return x;
  }
  std::abort();
}

// Values in host and device memory in the form of `type`.
class Values {
 public:
  Values(const Named& type, size_t count, uint32_t seed) : type_(type), host(count * type.bytes), memory_(host.size()) {
    std::mt19937 engine(seed);
    std::uniform_real_distribution<double> uniform(0.25, 1.75);
    for (size_t i = 0; i < count; ++i) {
      const double re = uniform(engine);
      type.store({re, uniform(engine)}, &host[i * type.bytes]);
    }
    EXPECT_EQ(cudaMemcpy(memory_.get(), host.data(), host.size(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  void* dev() const { return memory_.get(); }
  Z before(size_t i) const { return type_.load(&host[i * type_.bytes]); }
  Z now(size_t i) const { return type_.load(&memory_.download()[i * type_.bytes]); }

 private:
  const Named& type_;

 public:
  std::vector<char> host;

 private:
  DeviceBytes memory_;
};

TEST_F(VectorTest, Ex_EveryRoutineInEveryType) {
  constexpr size_t n = 9;
  for (const Named& t : all_named()) {
    for (const bool wide_form : {false, true}) {
      SCOPED_TRACE(testing::Message() << "type " << t.type << ", 64-bit " << wide_form);
      const auto pick = [&](auto f, auto f64, auto... arguments) {
        done(wide_form ? f64(handle_, n, arguments...) : f(handle_, n, arguments...));
      };
      const double near = 40.0 * t.unit;  // n terms below 4, one rounding each and one to the element type
      const Values x(t, n, seed());
      const Values y(t, n, seed());
      const Values alpha(t, 1, seed());
      ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_HOST), CUBLAS_STATUS_SUCCESS);
      const Values out(t, n, seed());
      pick(cublasCopyEx, cublasCopyEx_64, x.dev(), t.type, 1, out.dev(), t.type, 1);
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(out.now(i), x.before(i));
      pick(cublasAxpyEx, cublasAxpyEx_64, alpha.host.data(), t.type, y.dev(), t.type, 1, out.dev(), t.type, 1,
           t.execution);
      for (size_t i = 0; i < n; ++i) {
        EXPECT_LE(std::abs(out.now(i) - (x.before(i) + alpha.before(0) * y.before(i))), near) << i;
      }
      const Values scaled(t, n, seed());
      pick(cublasScalEx, cublasScalEx_64, alpha.host.data(), t.type, scaled.dev(), t.type, 1, t.execution);
      for (size_t i = 0; i < n; ++i) EXPECT_LE(std::abs(scaled.now(i) - alpha.before(0) * scaled.before(i)), near) << i;

      std::vector<char> result(t.bytes);
      Z dot{};
      Z dotc{};
      double squares = 0.0;
      double sizes = 0.0;
      for (size_t i = 0; i < n; ++i) {
        dot += x.before(i) * y.before(i);
        dotc += std::conj(x.before(i)) * y.before(i);
        squares += std::norm(x.before(i));
        sizes += size_of(x.before(i));
      }
      pick(cublasDotEx, cublasDotEx_64, x.dev(), t.type, 1, y.dev(), t.type, 1, result.data(), t.type, t.execution);
      EXPECT_LE(std::abs(t.load(result.data()) - dot), n * near);
      pick(cublasDotcEx, cublasDotcEx_64, x.dev(), t.type, 1, y.dev(), t.type, 1, result.data(), t.type, t.execution);
      EXPECT_LE(std::abs(t.load(result.data()) - dotc), n * near);
      const Named& real = named_of(t.real);
      pick(cublasNrm2Ex, cublasNrm2Ex_64, x.dev(), t.type, 1, result.data(), t.real, real.execution);
      EXPECT_LE(std::abs(real.load(result.data()) - std::sqrt(squares)), n * near);
      pick(cublasAsumEx, cublasAsumEx_64, x.dev(), t.type, 1, result.data(), t.real, real.execution);
      EXPECT_LE(std::abs(real.load(result.data()) - sizes), n * near);

      size_t largest = 0;
      size_t smallest = 0;
      for (size_t i = 1; i < n; ++i) {
        if (size_of(x.before(i)) > size_of(x.before(largest))) largest = i;
        if (size_of(x.before(i)) < size_of(x.before(smallest))) smallest = i;
      }
      int place = 0;
      int64_t place_64 = 0;
      if (wide_form) {
        done(cublasIamaxEx_64(handle_, n, x.dev(), t.type, 1, &place_64));
        EXPECT_EQ(place_64, static_cast<int64_t>(largest + 1));
        done(cublasIaminEx_64(handle_, n, x.dev(), t.type, 1, &place_64));
        EXPECT_EQ(place_64, static_cast<int64_t>(smallest + 1));
      } else {
        done(cublasIamaxEx(handle_, n, x.dev(), t.type, 1, &place));
        EXPECT_EQ(place, static_cast<int>(largest + 1));
        done(cublasIaminEx(handle_, n, x.dev(), t.type, 1, &place));
        EXPECT_EQ(place, static_cast<int>(smallest + 1));
      }

      const Values one(t, n, seed());
      const Values other(t, n, seed());
      const Values c(real, 1, seed());
      const Values s(t, 1, seed());
      pick(cublasRotEx, cublasRotEx_64, one.dev(), t.type, 1, other.dev(), t.type, 1, c.host.data(), s.host.data(),
           t.type, t.execution);
      for (size_t i = 0; i < n; ++i) {
        EXPECT_LE(std::abs(one.now(i) - (c.before(0) * one.before(i) + s.before(0) * other.before(i))), 2 * near);
        EXPECT_LE(std::abs(other.now(i) - (c.before(0) * other.before(i) - std::conj(s.before(0)) * one.before(i))),
                  2 * near);
      }
      pick(cublasSwapEx, cublasSwapEx_64, x.dev(), t.type, 1, y.dev(), t.type, 1);
      for (size_t i = 0; i < n; ++i) {
        EXPECT_EQ(x.now(i), y.before(i));
        EXPECT_EQ(y.now(i), x.before(i));
      }
      if (t.real == t.type) {
        const Values u(t, n, seed());
        const Values v(t, n, seed());
        Values param(t, 5, seed());
        t.store(-1.0, param.host.data());
        pick(cublasRotmEx, cublasRotmEx_64, u.dev(), t.type, 1, v.dev(), t.type, 1, param.host.data(), t.type,
             t.execution);
        for (size_t i = 0; i < n; ++i) {
          EXPECT_LE(std::abs(u.now(i) - (param.before(1) * u.before(i) + param.before(3) * v.before(i))), 2 * near);
          EXPECT_LE(std::abs(v.now(i) - (param.before(2) * u.before(i) + param.before(4) * v.before(i))), 2 * near);
        }
      }
    }
  }
}

TEST_F(VectorTest, Ex_GeneratedRotationsAndRefusedTypes) {
  float ab[] = {3.0f, 4.0f};
  float c = 0.0f;
  float s = 0.0f;
  done(cublasRotgEx(handle_, ab, ab + 1, CUDA_R_32F, &c, &s, CUDA_R_32F, CUDA_R_32F));
  EXPECT_FLOAT_EQ(c, 0.6f);
  EXPECT_FLOAT_EQ(s, 0.8f);
  EXPECT_FLOAT_EQ(ab[0], 5.0f);
  double d1 = 2.0;
  double d2 = 3.0;
  double x1 = 1.5;
  const double y1 = 0.5;
  double param[5] = {};
  done(cublasRotmgEx(handle_, &d1, CUDA_R_64F, &d2, CUDA_R_64F, &x1, CUDA_R_64F, &y1, CUDA_R_64F, param, CUDA_R_64F,
                     CUDA_R_64F));
  EXPECT_EQ(param[0], 0.0);
  EXPECT_EQ(cublasRotmgEx(handle_, &d1, CUDA_R_64F, &d2, CUDA_R_32F, &x1, CUDA_R_64F, &y1, CUDA_R_64F, param,
                          CUDA_R_64F, CUDA_R_64F),
            CUBLAS_STATUS_NOT_SUPPORTED);
  const Data<float> x(4, 1);
  float result = 0.0f;
  EXPECT_EQ(cublasNrm2Ex(handle_, 4, x.dev(), CUDA_R_8I, 1, &result, CUDA_R_32F, CUDA_R_32F),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cublasNrm2Ex(handle_, 4, x.dev(), CUDA_R_32F, 1, &result, CUDA_R_64F, CUDA_R_64F),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cublasDotEx(handle_, 4, x.dev(), CUDA_R_32F, 1, x.dev(), CUDA_R_16F, 1, &result, CUDA_R_32F, CUDA_R_32F),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cublasCopyEx(handle_, 4, x.dev(), CUDA_R_32F, 1, x.dev(), CUDA_R_16F, 1), CUBLAS_STATUS_NOT_SUPPORTED);
}

// ---- order in time, and refused arguments

TEST_F(VectorTest, Stream_HostResultsWaitAndDeviceResultsDoNot) {
  const Data<float> x(4, 1);
  const Data<float> result(1, 2);
  ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  {
    Gate gate(stream_);
    ASSERT_EQ(cublasSnrm2(handle_, 4, x.dev(), 1, result.dev()), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  }
  EXPECT_NE(result.now(), result.wide);
  ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_HOST), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  float on_host = 0.0f;
  EXPECT_EQ(cublasSnrm2(handle_, 4, x.dev(), 1, &on_host), CUBLAS_STATUS_NOT_SUPPORTED);
  const float alpha = 2.0f;
  EXPECT_EQ(cublasSscal(handle_, 4, &alpha, x.dev(), 1), CUBLAS_STATUS_SUCCESS);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(x.now(), x.wide);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(x.now()[i], 2.0 * x.wide[i]);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(VectorTest, Arguments) {
  const Data<float> x(4, 1);
  const float one = 1.0f;
  float result = 5.0f;
  EXPECT_EQ(cublasSaxpy(nullptr, 4, &one, x.dev(), 1, x.dev(), 1), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cublasSaxpy(handle_, 4, nullptr, x.dev(), 1, x.dev(), 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSaxpy(handle_, 0, nullptr, nullptr, 1, nullptr, 1), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSaxpy(handle_, -3, nullptr, nullptr, 1, nullptr, 1), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSdot(handle_, 4, x.dev(), 1, x.dev(), 1, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSnrm2(nullptr, 4, x.dev(), 1, &result), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(result, 5.0f);
  EXPECT_EQ(cublasSrot(handle_, 4, x.dev(), 1, x.dev(), 1, &one, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSgemv(handle_, CUBLAS_OP_N, 2, 2, &one, x.dev(), 1, x.dev(), 1, &one, x.dev(), 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSgemv(handle_, CUBLAS_OP_N, 2, 2, &one, x.dev(), 2, x.dev(), 0, &one, x.dev(), 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(
      cublasSgemv(handle_, static_cast<cublasOperation_t>(5), 2, 2, &one, x.dev(), 2, x.dev(), 1, &one, x.dev(), 1),
      CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSsymv(handle_, static_cast<cublasFillMode_t>(2), 2, &one, x.dev(), 2, x.dev(), 1, &one, x.dev(), 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasStrsv(handle_, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, static_cast<cublasDiagType_t>(2), 2, x.dev(), 2,
                        x.dev(), 1),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSsyrk(handle_, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, 2, -1, &one, x.dev(), 2, &one, x.dev(), 2),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSsymm(handle_, static_cast<cublasSideMode_t>(4), CUBLAS_FILL_MODE_LOWER, 2, 2, &one, x.dev(), 2,
                        x.dev(), 2, &one, x.dev(), 2),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasStrsm(handle_, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_UNIT, 2, 2, &one,
                        x.dev(), 1, x.dev(), 2),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSgeam(handle_, CUBLAS_OP_T, CUBLAS_OP_N, 2, 2, &one, x.dev(), 2, &one, x.dev(), 2, x.dev(), 2),
            CUBLAS_STATUS_INVALID_VALUE);  // a transposed operand in place
  EXPECT_EQ(cublasSgemv(handle_, CUBLAS_OP_N, 0, 2, nullptr, nullptr, 1, nullptr, 1, nullptr, nullptr, 1),
            CUBLAS_STATUS_SUCCESS);
}

void run_axpy_and_exit(int n, int inc) {
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  float* x = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&x), 16);
  const float one = 1.0f;
  cublasSaxpy(handle, n, &one, x, inc, x, 1);
  cudaDeviceSynchronize();
  std::_Exit(0);
}

TEST(VectorDeathTest, AVectorBeyondItsMemoryEndsTheProcessWithAClearLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_axpy_and_exit(4, 1), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run_axpy_and_exit(5, 1), testing::ExitedWithCode(86), "cublasSaxpy_v2: x .*not accessible");
  EXPECT_EXIT(run_axpy_and_exit(3, -2), testing::ExitedWithCode(86), "cublasSaxpy_v2: x .*not accessible");
}

}  // namespace

// SPDX-License-Identifier: MIT
// What the tests of BLAS beside GEMM are held against: the same routine by OpenBLAS in double precision, and once more
// on the absolute values of every input, which gives the magnitude that each entry's error bound is a multiple of.
#pragma once

#include <cblas.h>
#include <cublas_v2.h>

#include <complex>
#include <random>
#include <sstream>

#include "tests/hostcuda/product_reference.h"

namespace blas_reference {

using Z = std::complex<double>;

// Wide: the type of the reference. kUnit: half an ulp of 1 in the type of the arithmetic.
template <typename Api>
struct Of;
template <>
struct Of<float> {
  using Wide = double;
  using RealApi = float;
  static constexpr bool kComplex = false;
  static constexpr double kUnit = 0x1p-24;
  static float narrow(double x) { return static_cast<float>(x); }
  static double wide(float x) { return x; }
};
template <>
struct Of<double> {
  using Wide = double;
  using RealApi = double;
  static constexpr bool kComplex = false;
  static constexpr double kUnit = 0x1p-53;
  static double narrow(double x) { return x; }
  static double wide(double x) { return x; }
};
template <>
struct Of<cuComplex> {
  using Wide = Z;
  using RealApi = float;
  static constexpr bool kComplex = true;
  static constexpr double kUnit = 0x1p-24;
  static cuComplex narrow(Z x) { return {static_cast<float>(x.real()), static_cast<float>(x.imag())}; }
  static Z wide(cuComplex x) { return {x.x, x.y}; }
};
template <>
struct Of<cuDoubleComplex> {
  using Wide = Z;
  using RealApi = double;
  static constexpr bool kComplex = true;
  static constexpr double kUnit = 0x1p-53;
  static cuDoubleComplex narrow(Z x) { return {x.real(), x.imag()}; }
  static Z wide(cuDoubleComplex x) { return {x.x, x.y}; }
};
template <typename Api>
using Wide = typename Of<Api>::Wide;

// Elements in device memory, with what they were before the call. Also scalars: `host` serves HOST pointer mode.
template <typename Api>
class Data {
 public:
  Data(int64_t count, uint32_t seed) : memory_(static_cast<size_t>(count) * sizeof(Api)) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (Of<Api>::kComplex) {
        const double re = normal(engine);
        host.push_back(Of<Api>::narrow({re, normal(engine)}));
      } else {
        host.push_back(Of<Api>::narrow(normal(engine)));
      }
    }
    upload();
  }
  void upload() {
    wide.clear();
    magnitude.clear();
    for (const Api x : host) {
      wide.push_back(Of<Api>::wide(x));
      magnitude.push_back(std::abs(wide.back()));
    }
    EXPECT_EQ(cudaMemcpy(memory_.get(), host.data(), host.size() * sizeof(Api), cudaMemcpyHostToDevice), cudaSuccess);
  }
  Api* dev() const { return memory_.as<Api>(); }
  std::vector<Wide<Api>> now() const {
    const std::vector<char> bytes = memory_.download();
    std::vector<Wide<Api>> result;
    for (size_t i = 0; i < host.size(); ++i) {
      Api x;
      std::memcpy(&x, bytes.data() + i * sizeof x, sizeof x);
      result.push_back(Of<Api>::wide(x));
    }
    return result;
  }

  std::vector<Api> host;
  std::vector<Wide<Api>> wide, magnitude;

 private:
  reference::DeviceBytes memory_;
};

// Inputs of one run of the reference: as they are, or their absolute values.
struct Pick {
  bool magnitude;
  template <typename Api>
  auto* operator()(const Data<Api>& data) const {
    return magnitude ? data.magnitude.data() : data.wide.data();
  }
  double operator()(double x) const { return magnitude ? std::fabs(x) : x; }
  Z operator()(Z x) const { return magnitude ? Z(std::abs(x)) : x; }
};

// Holds `out` against run(Pick, Wide*), which updates a copy of what `out` held. `steps`: the most terms that an entry
// sums. Each of an entry's terms has at most steps + 8 roundings behind it in real arithmetic (products, sums, alpha,
// beta), each at most u of the magnitude; a complex product has two more and its parts are bounded by moduli: twice
// that. The reference in double has the same bound with its own u, which matters where the call is in double too.
// What the reference leaves as it was must be so bit for bit.
template <typename Api, typename Run>
std::string difference_from_reference(const Data<Api>& out, int64_t steps, Run run) {
  std::vector<Wide<Api>> want = out.wide;
  std::vector<Wide<Api>> scale = out.magnitude;
  run(Pick{false}, want.data());
  run(Pick{true}, scale.data());
  const std::vector<Wide<Api>> got = out.now();
  const double factor = static_cast<double>(steps + 8) * (Of<Api>::kComplex ? 2.0 : 1.0) * (Of<Api>::kUnit + 0x1p-53);
  int64_t changed = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool written = want[i] != out.wide[i];
    changed += written;
    const double bound = written ? factor * std::abs(scale[i]) : 0.0;
    if (!(std::abs(got[i] - want[i]) <= bound)) {
      std::ostringstream text;
      text << "element " << i << ": got " << got[i] << ", want " << want[i] << " within " << bound;
      return text.str();
    }
  }
  return changed ? "" : "the reference changed nothing";
}

template <typename Api, typename Run>
void expect_as_reference(const char* name, const Data<Api>& out, int64_t steps, Run run) {
  EXPECT_EQ(difference_from_reference(out, steps, run), "") << name;
}

inline CBLAS_TRANSPOSE op(cublasOperation_t x) {
  return x == CUBLAS_OP_N ? CblasNoTrans : x == CUBLAS_OP_T ? CblasTrans : CblasConjTrans;
}
inline CBLAS_UPLO uplo(cublasFillMode_t x) {
  return x == CUBLAS_FILL_MODE_UPPER ? CblasUpper : CblasLower;
}
inline CBLAS_DIAG diag(cublasDiagType_t x) {
  return x == CUBLAS_DIAG_UNIT ? CblasUnit : CblasNonUnit;
}
inline CBLAS_SIDE side(cublasSideMode_t x) {
  return x == CUBLAS_SIDE_LEFT ? CblasLeft : CblasRight;
}

}  // namespace blas_reference

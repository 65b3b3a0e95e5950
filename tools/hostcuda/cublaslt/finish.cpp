// SPDX-License-Identifier: MIT
// Finish: takes raw product columns, gives D's columns with alpha, beta C, bias and activation; runs on a stream's
// worker.
#include "tools/hostcuda/cublaslt/finish.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tools/hostcuda/gemm/order.h"

namespace hostcuda {
namespace {

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Nearest number of a format with `fraction` fraction bits, exponents from `least`, largest number `largest` with bit
// pattern `largest_bits` and quiet NaN `nan_bits`, all without the sign; 8 bits.
uint8_t fp8_of(float value, int fraction, int least, float largest, uint8_t largest_bits, uint8_t nan_bits) {
  const uint32_t bits = bits_of(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  const uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return sign | nan_bits;
  if (rest >= bits_of(largest)) return sign | largest_bits;
  const int exponent = std::max(static_cast<int>(rest >> 23) - 127, least);
  // In units of the last place, which nearbyintf rounds to even; the sum carries into the exponent by itself.
  const float units = std::nearbyint(std::ldexp(float_of(rest), fraction - exponent));
  const int field = exponent - least + 1;
  const int code = (field << fraction) + static_cast<int>(units) - (1 << fraction);
  return sign | static_cast<uint8_t>(std::min<int>(code, largest_bits));
}

template <typename Integer, typename Real>
Integer saturated(Real value) {
  if (std::isnan(value)) return 0;
  const Real rounded = std::nearbyint(value);
  if (rounded <= static_cast<Real>(std::numeric_limits<Integer>::min())) return std::numeric_limits<Integer>::min();
  if (rounded >= static_cast<Real>(std::numeric_limits<Integer>::max())) return std::numeric_limits<Integer>::max();
  return static_cast<Integer>(rounded);
}

template <typename Real>
Real gelu_argument(Real y) {
  return static_cast<Real>(0.7978845608028654) * (y + static_cast<Real>(0.044715) * (y * y * y));
}

}  // namespace

float float_of_bf16(uint16_t bits) {
  return float_of(uint32_t{bits} << 16);
}

uint16_t bf16_of(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

float float_of_fp16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return float_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest >= 0x400u) return float_of(sign | ((rest << 13) + (112u << 23)));
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;  // zero and subnormals: exact
  return float_of(sign | bits_of(magnitude));
}

uint16_t fp16_of(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
  if (rest >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536 and above
  if (rest < 0x38800000u) {                                               // below 2^-14: a multiple of 2^-24
    // Adding 0.5 moves the last place of an FP16 subnormal to the last place of the float: the addition rounds.
    return static_cast<uint16_t>(sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000u));
  }
  const uint32_t rounded = rest + 0xfffu + (rest >> 13 & 1);  // may carry into the exponent, up to infinity
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

uint8_t e4m3_of(float value) {
  return fp8_of(value, 3, -6, 448.0f, 0x7e, 0x7f);
}

uint8_t e5m2_of(float value) {
  return fp8_of(value, 2, -14, 57344.0f, 0x7b, 0x7e);
}

uint8_t e2m1_of(float value) {
  if (std::isnan(value)) return 0x7;
  const uint8_t code = fp8_of(value, 1, 0, 6.0f, 0x7, 0x7);
  return static_cast<uint8_t>((code & 0x7) | (code >> 4 & 0x8));
}

float largest_of(gemm::Type type) {
  return type == gemm::Type::kE2m1 ? 6.0f : type == gemm::Type::kE4m3 ? 448.0f : 57344.0f;
}

template <typename Real>
void load_values(gemm::Type type, const void* data, int64_t step, int64_t count, Real* out) {
  const auto load = [&]<typename Element>(const Element* values, auto value_of) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<Real>(value_of(values[i * step]));
  };
  const auto same = [](auto value) { return value; };
  switch (type) {
    case gemm::Type::kFp32:
      return load(static_cast<const float*>(data), same);
    case gemm::Type::kFp16:
      return load(static_cast<const uint16_t*>(data), float_of_fp16);
    case gemm::Type::kBf16:
      return load(static_cast<const uint16_t*>(data), float_of_bf16);
    case gemm::Type::kFp64:
      return load(static_cast<const double*>(data), same);
    case gemm::Type::kE4m3:
      return load(static_cast<const uint8_t*>(data), gemm::e4m3_to_float);
    case gemm::Type::kE5m2:
      return load(static_cast<const uint8_t*>(data), gemm::e5m2_to_float);
    case gemm::Type::kInt8:
      return load(static_cast<const int8_t*>(data), same);
    case gemm::Type::kInt32:
      return load(static_cast<const int32_t*>(data), same);
    case gemm::Type::kE2m1:
      return load(static_cast<const uint8_t*>(data), gemm::e2m1_to_float);
  }
}

template <typename Real>
void store_values(gemm::Type type, void* data, int64_t step, int64_t count, const Real* values) {
  const auto store = [&]<typename Element>(Element* out, auto element_of) {
    for (int64_t i = 0; i < count; ++i) out[i * step] = static_cast<Element>(element_of(values[i]));
  };
  const auto same = [](Real value) { return value; };
  const auto narrow = [](auto element_of) {
    return [element_of](Real value) { return element_of(static_cast<float>(value)); };
  };
  switch (type) {
    case gemm::Type::kFp32:
      return store(static_cast<float*>(data), same);
    case gemm::Type::kFp16:
      return store(static_cast<uint16_t*>(data), narrow(fp16_of));
    case gemm::Type::kBf16:
      return store(static_cast<uint16_t*>(data), narrow(bf16_of));
    case gemm::Type::kFp64:
      return store(static_cast<double*>(data), same);
    case gemm::Type::kE4m3:
      return store(static_cast<uint8_t*>(data), narrow(e4m3_of));
    case gemm::Type::kE5m2:
      return store(static_cast<uint8_t*>(data), narrow(e5m2_of));
    case gemm::Type::kInt8:
      return store(static_cast<int8_t*>(data), saturated<int8_t, Real>);
    case gemm::Type::kInt32:
      return store(static_cast<int32_t*>(data), saturated<int32_t, Real>);
    case gemm::Type::kE2m1:
      return store(static_cast<uint8_t*>(data), narrow(e2m1_of));
  }
}

template <typename Real>
void finish_column(const FinishTerms<Real>& terms, int64_t count, Real* x, const FinishColumn<Real>& with) {
  const Real zero{0};
  const Real one{1};
  for (int64_t i = 0; i < count; ++i) {
    const Real alpha = terms.alpha.at(i);
    x[i] = (with.factors ? alpha * with.factors[i] : alpha) * x[i];
  }
  if (terms.reads_c) {
    for (int64_t i = 0; i < count; ++i) {
      const Real beta = terms.beta.at(i);
      if (beta != zero) x[i] = std::fma(beta, with.c[i], x[i]);
    }
  }
  if (with.bias) {
    for (int64_t i = 0; i < count; ++i) x[i] = x[i] + with.bias[i];
  }
  if (with.mask_out) {
    for (int64_t i = 0; i < count; ++i) {
      const unsigned before = i % 8 == 0 ? 0u : with.mask_out[i / 8];
      with.mask_out[i / 8] = static_cast<uint8_t>(before | static_cast<unsigned>(x[i] > zero) << (i % 8));
    }
  }
  if (with.aux_out) std::copy_n(x, count, with.aux_out);
  switch (terms.activation) {
    case Activation::kNone:
      break;
    case Activation::kRelu:
      for (int64_t i = 0; i < count; ++i) x[i] = x[i] < zero ? zero : x[i];
      break;
    case Activation::kGelu:
      for (int64_t i = 0; i < count; ++i) {
        x[i] = static_cast<Real>(0.5) * x[i] * (one + std::tanh(gelu_argument(x[i])));
      }
      break;
    case Activation::kReluGradient:
      for (int64_t i = 0; i < count; ++i) x[i] = (with.mask_in[i / 8] >> (i % 8) & 1) != 0 ? x[i] : zero;
      break;
    case Activation::kGeluGradient:
      for (int64_t i = 0; i < count; ++i) {
        const Real y = with.aux_in[i];
        const Real t = std::tanh(gelu_argument(y));
        const Real slope = static_cast<Real>(0.7978845608028654) * (one + static_cast<Real>(3 * 0.044715) * y * y);
        x[i] = x[i] * (static_cast<Real>(0.5) * (one + t + y * (one - t * t) * slope));
      }
      break;
  }
  if (with.amax) {
    for (int64_t i = 0; i < count; ++i) *with.amax = std::fmax(*with.amax, std::fabs(x[i]));
  }
  if (with.gradient) {
    for (int64_t i = 0; i < count; ++i) with.gradient[i] = with.gradient[i] + x[i];
  }
  if (terms.d_scale != one) {
    for (int64_t i = 0; i < count; ++i) x[i] = terms.d_scale * x[i];
  }
}

void finish_column_int(int32_t alpha, int32_t beta, int64_t count, int32_t* x, const int32_t* c) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t sum = static_cast<uint32_t>(alpha) * static_cast<uint32_t>(x[i]);
    if (beta != 0) sum += static_cast<uint32_t>(beta) * static_cast<uint32_t>(c[i]);
    x[i] = static_cast<int32_t>(sum);
  }
}

template void load_values(gemm::Type, const void*, int64_t, int64_t, float*);
template void load_values(gemm::Type, const void*, int64_t, int64_t, double*);
template void store_values(gemm::Type, void*, int64_t, int64_t, const float*);
template void store_values(gemm::Type, void*, int64_t, int64_t, const double*);
template void finish_column(const FinishTerms<float>&, int64_t, float*, const FinishColumn<float>&);
template void finish_column(const FinishTerms<double>&, int64_t, double*, const FinishColumn<double>&);

}  // namespace hostcuda

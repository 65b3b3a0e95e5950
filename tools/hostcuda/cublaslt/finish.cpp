// SPDX-License-Identifier: MIT
// Finish: takes raw product columns, gives D's columns with alpha, beta C, bias and activation; runs on a stream's
// worker.
#include "tools/hostcuda/cublaslt/finish.h"

#include <cmath>

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

void load_values(gemm::Type type, const void* data, int64_t step, int64_t count, float* out) {
  switch (type) {
    case gemm::Type::kFp32: {
      const auto* values = static_cast<const float*>(data);
      for (int64_t i = 0; i < count; ++i) out[i] = values[i * step];
      return;
    }
    case gemm::Type::kFp16: {
      const auto* values = static_cast<const uint16_t*>(data);
      for (int64_t i = 0; i < count; ++i) out[i] = float_of_fp16(values[i * step]);
      return;
    }
    case gemm::Type::kBf16: {
      const auto* values = static_cast<const uint16_t*>(data);
      for (int64_t i = 0; i < count; ++i) out[i] = float_of_bf16(values[i * step]);
      return;
    }
  }
}

void store_values(gemm::Type type, void* data, int64_t step, int64_t count, const float* values) {
  switch (type) {
    case gemm::Type::kFp32: {
      auto* out = static_cast<float*>(data);
      for (int64_t i = 0; i < count; ++i) out[i * step] = values[i];
      return;
    }
    case gemm::Type::kFp16: {
      auto* out = static_cast<uint16_t*>(data);
      for (int64_t i = 0; i < count; ++i) out[i * step] = fp16_of(values[i]);
      return;
    }
    case gemm::Type::kBf16: {
      auto* out = static_cast<uint16_t*>(data);
      for (int64_t i = 0; i < count; ++i) out[i * step] = bf16_of(values[i]);
      return;
    }
  }
}

void finish_column(const FinishTerms& terms, int64_t count, float* x, const float* c, const float* bias) {
  for (int64_t i = 0; i < count; ++i) x[i] = terms.alpha * x[i];
  if (terms.beta != 0.0f) {
    for (int64_t i = 0; i < count; ++i) x[i] = std::fma(terms.beta, c[i], x[i]);
  }
  if (bias) {
    for (int64_t i = 0; i < count; ++i) x[i] = x[i] + bias[i];
  }
  if (terms.activation == Activation::kRelu) {
    for (int64_t i = 0; i < count; ++i) x[i] = x[i] < 0.0f ? 0.0f : x[i];
  } else if (terms.activation == Activation::kGelu) {
    for (int64_t i = 0; i < count; ++i) {
      const float v = x[i];
      const float inner = 0.7978845608028654f * (v + 0.044715f * (v * v * v));
      x[i] = 0.5f * v * (1.0f + std::tanh(inner));
    }
  }
}

}  // namespace hostcuda

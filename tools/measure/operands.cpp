// SPDX-License-Identifier: MIT
#include "tools/measure/operands.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

namespace sdcguard {
namespace {

constexpr double kInt8Scale = 30;
constexpr int kOutlierEvery = 100;
constexpr double kOutlierFactor = 60;

// The value of finite bits in that format.
double float_value(uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto exponent = static_cast<int>(bits >> fraction_bits & ((1u << exponent_bits) - 1));
  const auto fraction = static_cast<int>(bits & ((1u << fraction_bits) - 1));
  const int leading = exponent == 0 ? 0 : 1 << fraction_bits;
  const double magnitude = std::ldexp(leading + fraction, std::max(exponent, 1) - bias - fraction_bits);
  return (bits >> (exponent_bits + fraction_bits) & 1) != 0 ? -magnitude : magnitude;
}

void store(DataType type, double v, unsigned char* to) {
  const auto put = [to](auto bits) { std::memcpy(to, &bits, sizeof bits); };
  switch (type) {
    case DataType::kF64:
      return put(v);
    case DataType::kF32:
      return put(static_cast<float>(v));
    case DataType::kBF16:
      return put(static_cast<uint16_t>(float_bits(v, 8, 7)));
    case DataType::kF16:
      return put(static_cast<uint16_t>(float_bits(v, 5, 10)));
    case DataType::kE4M3:
      return put(static_cast<uint8_t>(float_bits(std::clamp(v, -448.0, 448.0), 4, 3)));
    default:
      return put(static_cast<int8_t>(std::clamp(std::nearbyint(kInt8Scale * v), -127.0, 127.0)));
  }
}

}  // namespace

double value_of(DataType type, const unsigned char* bits) {
  const auto get = [bits](auto raw) {
    std::memcpy(&raw, bits, sizeof raw);
    return raw;
  };
  switch (type) {
    case DataType::kF64:
      return get(double{});
    case DataType::kF32:
      return static_cast<double>(get(float{}));
    case DataType::kBF16:
      return static_cast<double>(std::bit_cast<float>(uint32_t{get(uint16_t{})} << 16));
    case DataType::kF16:
      return float_value(get(uint16_t{}), 5, 10);
    case DataType::kE4M3:
      return float_value(get(uint8_t{}), 4, 3);
    case DataType::kI8:
      return static_cast<double>(get(int8_t{}));
    default:
      return static_cast<double>(get(int32_t{}));
  }
}

bool data_kind_named(const std::string& name, DataKind* kind) {
  for (int k = 0; k < kDataKindCount; ++k) {
    if (name != kDataKindNames[k]) continue;
    *kind = static_cast<DataKind>(k);
    return true;
  }
  return false;
}

uint32_t float_bits(double v, int exponent_bits, int fraction_bits) {
  const uint32_t sign = std::signbit(v) ? 1u << (exponent_bits + fraction_bits) : 0;
  if (v == 0) return sign;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = std::max(std::ilogb(v), 1 - bias);
  // The leading one of a normal number carries into the exponent's place, and so does a fraction that rounds up.
  const auto fraction = static_cast<uint32_t>(std::nearbyint(std::ldexp(std::fabs(v), fraction_bits - exponent)));
  return sign | ((static_cast<uint32_t>(exponent + bias - 1) << fraction_bits) + fraction);
}

Operands draw_operands(DataKind kind, const ProductType& type, const ProductShape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0, 1);
  const auto n1 = static_cast<size_t>(shape.n1), n2 = static_cast<size_t>(shape.n2), n3 = static_cast<size_t>(shape.n3);
  const size_t bytes = element_bytes(type.operands);
  const bool whole = type.accumulator == Accumulator::kI32;  // integers are drawn at their own scale
  Operands operands;
  operands.a.resize(n1 * n2 * bytes);
  operands.b.resize(n2 * n3 * bytes);
  std::vector<double> factor(n2, 1), mean(n2, 0);
  for (size_t k = 0; k < n2; ++k) {
    if (kind == DataKind::kOutlierChannels && random() % kOutlierEvery == 0) factor[k] = kOutlierFactor;
    if (kind == DataKind::kBias) mean[k] = normal(random);
  }
  if (kind == DataKind::kOutlierChannels) factor[random() % n2] = kOutlierFactor;  // at least one
  for (size_t i = 0; i < n1 * n2; ++i) {
    const size_t k = i % n2;
    double v = kind == DataKind::kPositive ? uniform(random) : normal(random);
    if (kind == DataKind::kRelu) v = std::max(v - 1, 0.0);
    store(type.operands, factor[k] * v + mean[k], &operands.a[i * bytes]);
  }
  const double scale = whole || kind == DataKind::kPositive ? 1 : 1 / std::sqrt(static_cast<double>(n2));
  for (size_t i = 0; i < n2 * n3; ++i) {
    const double v = kind == DataKind::kPositive ? uniform(random) : scale * normal(random);
    store(type.operands, v, &operands.b[i * bytes]);
  }
  return operands;
}

}  // namespace sdcguard

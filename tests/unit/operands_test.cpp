// SPDX-License-Identifier: MIT
// Operands to measure with: the bits of each type, and kinds that are what their names say.
#include "tools/measure/operands.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace sdcguard {
namespace {

// By definition: the value of the bits.
double value_of(uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto exponent = static_cast<int>(bits >> fraction_bits & ((1u << exponent_bits) - 1));
  const double fraction = std::ldexp(static_cast<double>(bits & ((1u << fraction_bits) - 1)), -fraction_bits);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (bits >> (exponent_bits + fraction_bits) & 1) != 0 ? -magnitude : magnitude;
}

TEST(FloatBits, EveryNumberIsItsOwnAndWhatLiesBetweenIsRoundedToEven) {
  struct Format {
    int exponent, fraction;
    uint32_t largest;  // finite
  };
  for (const Format& f : {Format{8, 7, 0x7f7f}, Format{5, 10, 0x7bff}, Format{4, 3, 0x7e}}) {
    for (uint32_t bits = 0; bits <= f.largest; ++bits) {
      const double v = value_of(bits, f.exponent, f.fraction);
      ASSERT_EQ(float_bits(v, f.exponent, f.fraction), bits);
      ASSERT_EQ(float_bits(-v, f.exponent, f.fraction), bits | 1u << (f.exponent + f.fraction));
      if (bits == f.largest) continue;
      const double next = value_of(bits + 1, f.exponent, f.fraction), middle = (v + next) / 2;
      ASSERT_EQ(float_bits(middle, f.exponent, f.fraction), bits + (bits & 1));
      ASSERT_EQ(float_bits(std::nextafter(middle, 0.0), f.exponent, f.fraction), bits);
      ASSERT_EQ(float_bits(std::nextafter(middle, next), f.exponent, f.fraction), bits + 1);
    }
  }
}

std::vector<float> floats_of(const std::vector<unsigned char>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(Operands, AreOfTheKindTheTypeAndTheSeed) {
  const ProductShape shape{200, 300, 100};
  const ProductType& fp32 = *product_type_named("fp32");
  const auto row_of_a = [&](DataKind kind) {
    const std::vector<float> a = floats_of(draw_operands(kind, fp32, shape, 5).a);
    struct {
      double mean = 0, square = 0, zeros = 0, least = std::numeric_limits<double>::max(), widest = 0;
    } seen;
    for (size_t k = 0; k < 300; ++k) {
      double channel = 0;
      for (size_t i = 0; i < 200; ++i) channel += std::pow(static_cast<double>(a[i * 300 + k]), 2) / 200;
      seen.widest = std::max(seen.widest, channel);
    }
    for (const float v : a) {
      seen.mean += static_cast<double>(v) / static_cast<double>(a.size());
      seen.square += static_cast<double>(v) * static_cast<double>(v) / static_cast<double>(a.size());
      seen.zeros += (v == 0 ? 1.0 : 0.0) / static_cast<double>(a.size());
      seen.least = std::min(seen.least, static_cast<double>(v));
    }
    return seen;
  };
  const auto gaussian = row_of_a(DataKind::kGaussian);
  EXPECT_NEAR(gaussian.mean, 0, 0.02);
  EXPECT_NEAR(gaussian.square, 1, 0.02);
  EXPECT_LT(gaussian.widest, 2);
  const auto positive = row_of_a(DataKind::kPositive);
  EXPECT_GT(positive.least, 0);
  EXPECT_NEAR(positive.mean, 0.5, 0.01);
  EXPECT_GT(row_of_a(DataKind::kOutlierChannels).widest, 1000);
  const auto relu = row_of_a(DataKind::kRelu);
  EXPECT_NEAR(relu.zeros, 0.8413, 0.01);
  EXPECT_GE(relu.least, 0);
  EXPECT_NEAR(row_of_a(DataKind::kBias).square, 2, 0.3);

  for (const ProductType& type : kProductTypes) {
    const Operands one = draw_operands(DataKind::kGaussian, type, shape, 5);
    EXPECT_EQ(one.a.size(), 200 * 300 * element_bytes(type.operands));
    EXPECT_EQ(one.b.size(), 300 * 100 * element_bytes(type.operands));
    EXPECT_EQ(one.a, draw_operands(DataKind::kGaussian, type, shape, 5).a);
    EXPECT_NE(one.a, draw_operands(DataKind::kGaussian, type, shape, 6).a);
  }
}

TEST(DataKind, IsKnownByItsName) {
  DataKind kind = DataKind::kGaussian;
  EXPECT_TRUE(data_kind_named("relu", &kind));
  EXPECT_EQ(kind, DataKind::kRelu);
  EXPECT_FALSE(data_kind_named("gelu", &kind));
  EXPECT_EQ(product_type_named("bf17"), nullptr);
}

}  // namespace
}  // namespace sdcguard

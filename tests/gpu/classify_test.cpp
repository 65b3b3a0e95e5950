// SPDX-License-Identifier: MIT
// The classifiers of library_facts name what was put in, and nothing when what was put in is neither.
#include "tests/gpu/classify.h"

#include <gtest/gtest.h>

namespace sdcguard::gpu {
namespace {

std::vector<float> points() {
  std::vector<float> x;
  for (int i = -768; i <= 768; ++i) x.push_back(static_cast<float>(i) / 128);
  return x;
}

std::vector<float> map(const std::vector<float>& x, double (*f)(double)) {
  std::vector<float> y;
  for (const float v : x) y.push_back(static_cast<float>(f(static_cast<double>(v))));
  return y;
}

TEST(Classify, NamesEachGelu) {
  EXPECT_EQ(classify_gelu(points(), map(points(), gelu_tanh)).name, "tanh");
  EXPECT_EQ(classify_gelu(points(), map(points(), gelu_erf)).name, "erf");
}

TEST(Classify, NamesNoGeluForAnotherFunction) {
  const auto sigmoid_form = [](double x) { return x / (1 + std::exp(-1.702 * x)); };
  EXPECT_EQ(classify_gelu(points(), map(points(), sigmoid_form)).name, "neither");
  std::vector<float> y = map(points(), gelu_erf);
  y[5] = NAN;
  EXPECT_EQ(classify_gelu(points(), y).name, "neither");
  EXPECT_EQ(classify_gelu({1e4f}, {1e4f}).name, "neither");  // a point at which the forms agree tells nothing
}

TEST(Classify, NamesEachInputRounding) {
  const std::vector<float> in{1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f, 1.0f + 0x1p-11f + 0x1p-23f, -1.0f - 0x1p-23f};
  for (const InputRounding rounding : kInputRoundings) {
    std::vector<float> out;
    for (const float v : in) out.push_back(round_input(rounding, v));
    EXPECT_EQ(classify_input_rounding(in, out), kInputRoundingNames[static_cast<size_t>(rounding)]);
    out[2] += 0x1p-9f;
    EXPECT_EQ(classify_input_rounding(in, out), "none of these");
  }
  EXPECT_EQ(classify_input_rounding({1.0f}, {1.0f}), "not told apart");
}

TEST(Classify, CountsOneDifferingBit) {
  const std::vector<float> fp32{1.0f, -2.0f, 1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f};
  std::vector<uint16_t> native{0x3F80, 0xC000, 0x3F80, 0x3F82};  // both halves to even
  BitDifference same;
  add_difference(same, native, fp32);
  EXPECT_EQ(same.differing, 0u);
  native[1] ^= 1;
  native[3] ^= 0x8000;
  BitDifference one;
  add_difference(one, native, fp32);
  EXPECT_EQ(one.entries, 4u);
  EXPECT_EQ(one.differing, 2u);
  EXPECT_EQ(one.most_units, 2u * 0x3F82u);
}

}  // namespace
}  // namespace sdcguard::gpu

// SPDX-License-Identifier: MIT
// The scalar tensor-core step against inner products of real GPUs (golden/README.md), its edges, and order names.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/scratch_folder.h"
#include "tools/hostcuda/gemm/order.h"
#include "tools/hostcuda/gemm/vectors.h"

namespace hostcuda::gemm {
namespace {

struct GoldenFile {
  const char* name;
  const char* order;
};
constexpr GoldenFile kGolden[] = {
    {"A100_bf16.u32", "a100"}, {"A100_fp16.u32", "a100"}, {"B200_bf16.u32", "b200"}, {"B200_fp16.u32", "b200"},
    {"H100_bf16.u32", "h100"}, {"H100_fp16.u32", "h100"}, {"H200_bf16.u32", "h100"}, {"H200_fp16.u32", "h100"},
    {"L40S_bf16.u32", "ada"},  {"L40S_fp16.u32", "ada"},  {"V100_fp16.u32", "v100"}, {"A100_tf32.u32", "a100"},
    {"B200_tf32.u32", "b200"}, {"H100_tf32.u32", "h100"}, {"H200_tf32.u32", "h100"}, {"L40S_tf32.u32", "ada"},
    {"B200_E4M3.u32", "b200"}, {"B200_E5M2.u32", "b200"}, {"H100_E4M3.u32", "h100"}, {"H100_E5M2.u32", "h100"},
    {"H200_E4M3.u32", "h100"}, {"H200_E5M2.u32", "h100"}, {"L40S_E4M3.u32", "ada"},  {"L40S_E5M2.u32", "ada"},
};

bool is_fp8(const VectorFile& file) {
  return file.format == Format::kE4m3 || file.format == Format::kE5m2;
}

std::string golden_path(const std::string& name) {
  return std::string(SDCGUARD_SOURCE_DIR) + "/tests/hostcuda/golden/" + name;
}

VectorFile golden(const std::string& name) {
  VectorFile file;
  std::string error;
  EXPECT_TRUE(read_vectors(golden_path(name), &file, &error)) << error;
  EXPECT_EQ(file.records(), is_fp8(file) ? 50 : 100) << name;
  return file;
}

int64_t matches(const StepModel& model, const VectorFile& file) {
  int64_t first = -1;
  return count_matches(model, file, &first);
}

float bits(uint32_t pattern) {
  return std::bit_cast<float>(pattern);
}
uint32_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}

constexpr StepModel kH100{16, 2};

StepModel model_of(const GoldenFile& entry, const VectorFile& file) {
  Order order;
  StepModel model{};
  std::string error;
  EXPECT_TRUE(parse_order(entry.order, &order, &error)) << error;
  EXPECT_TRUE(step_model_for(order, file.format, &model, &error)) << error;
  return model;
}

TEST(TensorCore, StepModel_MatchesGoldenVectors) {
  for (const GoldenFile& entry : kGolden) {
    const VectorFile file = golden(entry.name);
    EXPECT_EQ(matches(model_of(entry, file), file), file.records()) << entry.name << " under " << entry.order;
  }
}

// Must-fail: what the vectors can tell apart.
TEST(TensorCore, StepModel_AnotherNumberOfGuardBitsIsCaught) {
  for (const GoldenFile& entry : kGolden) {
    const VectorFile file = golden(entry.name);
    const StepModel model = model_of(entry, file);
    if (model.adds_rounded) continue;  // golden/README.md
    StepModel mutant = model;
    if (model.guard_bits != 0) {
      mutant.guard_bits = model.guard_bits - 1;
      EXPECT_LT(matches(mutant, file), file.records()) << entry.name << " with fewer guard bits";
    }
    mutant.guard_bits = model.guard_bits + 1;
    EXPECT_LT(matches(mutant, file), file.records()) << entry.name << " with more guard bits";
  }
}

TEST(TensorCore, StepModel_HalfTheProductsAStepIsCaught) {
  for (const GoldenFile& entry : kGolden) {
    const VectorFile file = golden(entry.name);
    StepModel mutant = model_of(entry, file);
    mutant.products /= 2;
    if (mutant.products >= file.products) continue;  // TF32 with N = 8: golden/README.md
    EXPECT_LT(matches(mutant, file), file.records()) << entry.name;
  }
}

TEST(TensorCore, StepModel_WhereTheAccumulatorComesInIsCaught) {
  for (const GoldenFile& entry : kGolden) {
    const VectorFile file = golden(entry.name);
    if (!is_fp8(file)) continue;
    StepModel mutant = model_of(entry, file);
    mutant.adds_rounded = !mutant.adds_rounded;
    EXPECT_LT(matches(mutant, file), file.records()) << entry.name;
  }
}

TEST(TensorCore, StepModel_RoundedSumIsCaught) {
  const VectorFile file = golden("H100_bf16.u32");
  int64_t same = 0;
  for (int64_t record = 0; record < file.records(); ++record) {
    const uint32_t* words = file.words.data() + record * 34;
    double sum = bits(words[32]);
    for (int l = 0; l < 16; ++l) sum += static_cast<double>(bits(words[l])) * bits(words[16 + l]);
    same += bits(static_cast<float>(sum)) == words[33] ? 1 : 0;
  }
  EXPECT_LT(same, file.records());
}

TEST(TensorCore, Step_TruncatesTowardZero) {
  // 1 + 2^-24 and its negative lie between two floats: toward zero gives 1 in both.
  const float a[] = {1.0f, 0x1p-12f};
  const float b[] = {1.0f, 0x1p-12f};
  const float minus[] = {-1.0f, -0x1p-12f};
  EXPECT_EQ(tensor_core_step(kH100, Format::kBf16, a, b, 2, 0.0f), 1.0f);
  EXPECT_EQ(tensor_core_step(kH100, Format::kBf16, minus, b, 2, 0.0f), -1.0f);
  // 0x1.fffffep0 + 2^-24 rounds to 2 to nearest, stays below it toward zero.
  EXPECT_EQ(tensor_core_step(kH100, Format::kBf16, a + 1, b + 1, 1, bits(0x3FFFFFFFu)), bits(0x3FFFFFFFu));
}

TEST(TensorCore, Step_TermsBelowTheGuardBitsVanishOneByOne) {
  // 16 terms of 2^-26 under a largest of 1: each is shifted out (23 + 2 fraction bits), although their sum is 2^-22.
  float a[16];
  float b[16];
  for (int l = 0; l < 16; ++l) a[l] = b[l] = 0x1p-13f;
  EXPECT_EQ(tensor_core_step(kH100, Format::kBf16, a, b, 16, 1.0f), 1.0f);
  // 2^-25 is the last bit kept: 16 of them are 2^-21.
  for (float& x : a) x = 0x1p-12f;
  EXPECT_EQ(tensor_core_step(kH100, Format::kBf16, a, b, 16, 1.0f), 1.0f + 0x1p-21f);
}

TEST(TensorCore, Step_ZeroSumIsPlusZero) {
  const float a[] = {1.0f, -1.0f};
  const float b[] = {3.0f, 3.0f};
  EXPECT_EQ(bits(tensor_core_step(kH100, Format::kBf16, a, b, 2, 0.0f)), 0u);
  EXPECT_EQ(bits(tensor_core_step(kH100, Format::kBf16, a, b, 2, -0.0f)), 0u);
  const float zero[] = {-0.0f};
  EXPECT_EQ(bits(tensor_core_step(kH100, Format::kBf16, zero, b, 1, -0.0f)), 0u);
}

TEST(TensorCore, Step_SubnormalResultsAreKept) {
  const float a[] = {0x1p-100f};
  const float b[] = {0x1.8p-40f};
  EXPECT_EQ(tensor_core_step(kH100, Format::kBf16, a, b, 1, 0.0f), 0x1.8p-140f);
  EXPECT_EQ(tensor_core_step(kH100, Format::kBf16, a, b, 0, bits(1u)), bits(1u));
}

TEST(TensorCore, Step_SubnormalOperandsKeepTheirExponent) {
  // 2^-24 as an FP16 subnormal: exponent -14, significand 2^-10. Against it 2^-38 is aligned to -14 - 14 for the
  // product of two: the alignment is to the format's exponent, not to that of the value.
  const float a[] = {0x1p-24f, 0x1p-24f};
  const float b[] = {1.0f, 0x1p-14f};
  const float sum = tensor_core_step(kH100, Format::kFp16, a, b, 2, 0.0f);
  EXPECT_EQ(sum, 0x1p-24f + 0x1p-38f);
  const float c = bits(0x2B800001u);  // 2^-40 (1 + 2^-23): bits down to 2^-63, below 2^(-14 - 25)
  EXPECT_EQ(tensor_core_step(kH100, Format::kFp16, a, b, 1, c), 0x1p-24f);
}

TEST(TensorCore, Step_NonFinitePropagates) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float one[] = {1.0f, 1.0f};
  const float plus[] = {inf, 1.0f};
  const float both[] = {inf, -inf};
  const float zero[] = {0.0f, 1.0f};
  const float not_a_number[] = {nan, 1.0f};
  EXPECT_EQ(tensor_core_step(kH100, Format::kBf16, plus, one, 2, 1.0f), inf);
  EXPECT_EQ(tensor_core_step(kH100, Format::kBf16, one, one, 2, -inf), -inf);
  EXPECT_EQ(bits(tensor_core_step(kH100, Format::kBf16, both, one, 2, 0.0f)), kCanonicalNan);
  EXPECT_EQ(bits(tensor_core_step(kH100, Format::kBf16, plus, one, 2, -inf)), kCanonicalNan);
  EXPECT_EQ(bits(tensor_core_step(kH100, Format::kBf16, plus, zero, 2, 0.0f)), kCanonicalNan);
  EXPECT_EQ(bits(tensor_core_step(kH100, Format::kBf16, not_a_number, one, 2, 0.0f)), kCanonicalNan);
  EXPECT_EQ(bits(tensor_core_step(kH100, Format::kBf16, one, one, 2, nan)), kCanonicalNan);
}

TEST(TensorCore, Step_OverflowIsAnInfinity) {
  const float a[] = {0x1p100f, 0x1p100f};
  const float b[] = {0x1p27f, 0x1p27f};
  EXPECT_EQ(tensor_core_step(kH100, Format::kBf16, a, b, 1, 0.0f), 0x1p127f);
  EXPECT_EQ(tensor_core_step(kH100, Format::kBf16, a, b, 2, 0.0f), std::numeric_limits<float>::infinity());
}

// Blackwell's FP8: 2^45 + 2^21 + 2^-8 lies just above the middle of two floats, and too far apart for one double.
TEST(TensorCore, Step_AnAddedAccumulatorIsRoundedOnce) {
  Order b200;
  std::string error;
  ASSERT_TRUE(parse_order("b200", &b200, &error)) << error;
  float a[13];
  float b[13];
  for (int l = 0; l < 10; ++l) a[l] = b[l] = 448.0f;  // 10 448^2 + 256^2 + 256 96 = 2^21
  a[10] = b[10] = a[11] = 256.0f;
  b[11] = 96.0f;
  a[12] = b[12] = 0x1p-4f;
  const auto sum = [&](int64_t count, float c) {
    return tensor_core_step(b200.fp8_step, Format::kE4m3, a, b, count, c);
  };
  EXPECT_EQ(sum(12, 0.0f), 0x1p21f);
  EXPECT_EQ(sum(12, 0x1p45f), 0x1p45f) << "a tie goes to even";
  EXPECT_EQ(sum(13, 0x1p45f), 0x1p45f + 0x1p22f);
  for (float& x : a) x = -x;
  EXPECT_EQ(sum(12, -0x1p45f), -0x1p45f);
  EXPECT_EQ(sum(13, -0x1p45f), -0x1p45f - 0x1p22f);
}

TEST(TensorCore, Half_EveryPatternSurvivesAndTiesGoToEven) {
  for (uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const float value = half_to_float(static_cast<uint16_t>(pattern));
    if (std::isnan(value)) {
      EXPECT_EQ(bits(round_to_half(value)), kCanonicalNan);
    } else {
      ASSERT_EQ(bits(round_to_half(value)), bits(value)) << pattern;
    }
  }
  for (uint32_t pattern = 0; pattern + 1 < 0x7C00; ++pattern) {
    const float low = half_to_float(static_cast<uint16_t>(pattern));
    const float high = half_to_float(static_cast<uint16_t>(pattern + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(round_to_half(middle), (pattern & 1) != 0 ? high : low) << pattern;
    ASSERT_EQ(round_to_half(std::nextafter(middle, high)), high) << pattern;
    ASSERT_EQ(round_to_half(std::nextafter(middle, low)), low) << pattern;
  }
  EXPECT_EQ(round_to_half(65520.0f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(round_to_half(std::nextafter(65520.0f, 0.0f)), 65504.0f);
}

TEST(TensorCore, Order_NamesAreReadAndWrongOnesListTheAllowed) {
  Order order;
  std::string error;
  for (const char* name : {"h100", "a100", "ada", "v100", "b200", "rounded16", "sequential", "rounded16/split4"}) {
    EXPECT_TRUE(parse_order(name, &order, &error)) << error;
    EXPECT_EQ(order.name, name);
  }
  EXPECT_EQ(order.splits, 4);
  for (const char* name : {"", "H100", "h100/", "h100/split", "h100/split0", "h100/split65", "h100/split4x", "h200"}) {
    EXPECT_FALSE(parse_order(name, &order, &error)) << name;
    EXPECT_NE(error.find("allowed: h100 a100 ada v100 b200 rounded16 sequential"), std::string::npos) << error;
  }
}

TEST(TensorCore, Order_SlicesAreWholeSteps) {
  Order order;
  std::string error;
  ASSERT_TRUE(parse_order("h100/split4", &order, &error));
  const Chain bf16 = chain_of(order, Type::kBf16, Type::kBf16, Compute::kFp32);
  EXPECT_EQ(slice_products(order, bf16, 100), 32);
  EXPECT_EQ(slice_products(order, bf16, 64), 16);
  EXPECT_EQ(slice_products(order, bf16, 1), 16);
  const Chain fp8 = chain_of(order, Type::kE4m3, Type::kE4m3, Compute::kFp32);
  EXPECT_EQ(slice_products(order, fp8, 600), 256) << "a slice of FP8 products is a whole number of promotions";
  EXPECT_EQ(slice_products(order, chain_of(order, Type::kFp32, Type::kFp32, Compute::kFp32), 600), 600);
  ASSERT_TRUE(parse_order("h100", &order, &error));
  EXPECT_EQ(slice_products(order, bf16, 100), 100);
}

TEST(TensorCore, Vectors_RefusesWhatItDoesNotKnow) {
  VectorFile file;
  std::string error;
  EXPECT_FALSE(read_vectors("/nowhere/H100_bf17.u32", &file, &error));
  EXPECT_NE(error.find("unknown format"), std::string::npos) << error;
  EXPECT_FALSE(read_vectors("/nowhere/K80_fp16.u32", &file, &error));
  EXPECT_NE(error.find("unknown GPU"), std::string::npos) << error;
  EXPECT_FALSE(read_vectors("/nowhere/vectors.bin", &file, &error));
  EXPECT_NE(error.find("GPU_FORMAT.u32"), std::string::npos) << error;
  EXPECT_FALSE(read_vectors("/nowhere/H100_bf16.u32", &file, &error));
  EXPECT_NE(error.find("cannot be opened"), std::string::npos) << error;

  const sdcguard::ScratchFolder folder;
  const std::string path = folder / "H100_bf16.u32";
  std::ofstream(path, std::ios::binary) << "short";
  EXPECT_FALSE(read_vectors(path, &file, &error));
  EXPECT_NE(error.find("whole number of records"), std::string::npos) << error;

  Order order;
  StepModel model{};
  ASSERT_TRUE(parse_order("rounded16", &order, &error));
  EXPECT_FALSE(step_model_for(order, Format::kBf16, &model, &error));
  ASSERT_TRUE(parse_order("v100", &order, &error));
  EXPECT_FALSE(step_model_for(order, Format::kBf16, &model, &error));
  ASSERT_TRUE(parse_order("h100", &order, &error));
  ASSERT_TRUE(step_model_for(order, Format::kTf32, &model, &error));
  EXPECT_EQ(model.products, 8);
}

}  // namespace
}  // namespace hostcuda::gemm

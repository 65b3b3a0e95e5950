// SPDX-License-Identifier: MIT
// Observe of a 16-bit output as delivered: block sums with the Hoeffding threshold, bit-identical output, faults above
// the rounding found and named, structured data quiet.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/stage/device.h"

namespace sdcguard::stage {
namespace {

using reference::Kind;
using reference::Matrix;
using reference::Order;

Call observed(int64_t n1, int64_t n2, int64_t n3, Kind kind, DataType type, float alpha, float beta, bool bias) {
  Call call;
  call.type = type;
  call.type_d = type;
  call.mode = Mode::kObserve;
  call.delivered = true;
  call.records = true;
  call.alpha = alpha;
  call.beta = beta;
  call.a = Matrix(n1, n2);
  call.b = Matrix(n2, n3);
  fill(kind, type, 21, call.a, call.b);
  call.c = Matrix(n1, n3);
  Matrix biases(1, n3);
  fill(Kind::kGauss, type, 22, call.c, biases);
  if (bias) call.bias = biases;
  call.p = multiply(Order::kTruncating, call.a, call.b);
  for (int64_t i = 0; i < n1; ++i) {
    for (int64_t j = 0; j < n3; ++j) {
      const float offset = bias ? biases.at(0, j) : 0.0f;
      const float with_c = beta != 0.0f ? std::fma(beta, call.c.at(i, j), offset) : offset;
      call.p.at(i, j) = reference::round_to(type, static_cast<double>(std::fma(alpha, call.p.at(i, j), with_c)));
    }
  }
  return call;
}

TEST(BlockSums, CleanOutputsAreQuietAndUntouched) {
  for (Kind kind : reference::kKinds) {
    for (DataType type : {DataType::kBF16, DataType::kF16}) {
      Call call = observed(40, 128, 200, kind, type, 1.0f, 0.0f, false);
      const Result r = run(call);
      EXPECT_EQ(r.params.plan, Plan::kBlockSums);
      EXPECT_EQ(r.outcome, Outcome::kClean) << name_of(kind);
      EXPECT_EQ(r.p.values, call.p.values);
      EXPECT_LT(r.verdict.worst, 1.0f);
    }
  }
  Call call = observed(40, 128, 200, Kind::kGauss, DataType::kBF16, 0.5f, -1.0f, true);
  EXPECT_EQ(run(call).outcome, Outcome::kClean);
}

TEST(BlockSums, AShiftedLineIsNamed) {
  // One number added to a whole line cancels in every balanced block; the line's plain sum holds it.
  for (bool linear : {false, true}) {
    for (DataType type : {DataType::kBF16, DataType::kF16}) {
      Call call = observed(40, 128, 1024, Kind::kGauss, type, linear ? 0.5f : 1.0f, linear ? 1.0f : 0.0f, linear);
      const float rms = std::sqrt(128.0f);
      for (int64_t j = 0; j < 1024; ++j) {
        call.p.at(7, j) = reference::round_to(type, static_cast<double>(call.p.at(7, j) + rms / 4));
      }
      const Result r = run(call);
      EXPECT_EQ(r.outcome, Outcome::kCorrupt);
      EXPECT_EQ(r.verdict.lines_dirty, 1u);
      EXPECT_GE(r.verdict.entries_named, 1000u);
      call.change = [](ProbeParams& p) { p.line_sum_scale = std::numeric_limits<float>::infinity(); };
      EXPECT_EQ(run(call).outcome, Outcome::kClean) << "the blocks alone do not see it";
    }
  }
}

TEST(BlockSums, FaultsBeyondTheThresholdAreNamed) {
  for (bool linear : {false, true}) {
    Call call =
        observed(40, 128, 1050, Kind::kGauss, DataType::kBF16, linear ? 0.5f : 1.0f, linear ? 1.0f : 0.0f, linear);
    const Matrix clean = call.p;
    // 0.16 rms is the published size for blocks of 32 at 1e-15 (statistics.md 3.5); a whole rms is far beyond.
    const float rms = (linear ? 0.5f : 1.0f) * std::sqrt(128.0f);
    call.p.at(7, 1000) = reference::round_to(DataType::kBF16, static_cast<double>(clean.at(7, 1000) + rms));
    call.p.at(39, 1049) = std::numeric_limits<float>::quiet_NaN();
    const Result r = run(call);
    EXPECT_EQ(r.outcome, Outcome::kCorrupt);
    EXPECT_EQ(r.verdict.lines_dirty, 2u);
    EXPECT_EQ(r.verdict.entries_named, 2u);
    EXPECT_EQ(r.verdict.entries_repaired, 0u);
    ASSERT_EQ(r.faults.size(), 2u);
    for (const FaultRecord& f : r.faults) {
      EXPECT_EQ(f.row, f.column == 7 ? 1000 : 1049);
      EXPECT_EQ(f.repaired, 0);
      // The bound is the output's rounding and little more.
      EXPECT_LT(f.bound, 0x1p-7f * (std::fabs(f.expected) + rms));
      EXPECT_NEAR(f.expected, clean.at(f.column, f.row), f.bound);
    }
    EXPECT_EQ(r.p.at(7, 1000), call.p.at(7, 1000));

    // In repair the named entries, and no other, get the recomputed value, rounded to the type.
    call.mode = Mode::kRepair;
    const Result repaired = run(call);
    EXPECT_EQ(repaired.outcome, Outcome::kCorrected);
    EXPECT_EQ(repaired.verdict.entries_repaired, 2u);
    Matrix expected = clean;
    for (const auto& [row, column] : {std::pair{7, 1000}, std::pair{39, 1049}}) {
      const float value = repaired.p.at(row, column);
      EXPECT_EQ(value, reference::round_to(DataType::kBF16, static_cast<double>(value)));
      EXPECT_NEAR(value, clean.at(row, column), 0x1p-7f * std::fabs(clean.at(row, column)));
      expected.at(row, column) = value;
    }
    EXPECT_EQ(repaired.p.values, expected.values);
  }
}

TEST(BlockSums, CastToInfinityAgrees) {
  Call call = observed(40, 128, 64, Kind::kGauss, DataType::kF16, 0x1p13f, 0.0f, false);
  int infinite = 0;
  for (float v : call.p.values) infinite += std::isinf(v) ? 1 : 0;
  ASSERT_GT(infinite, 10);
  const Result r = run(call);
  EXPECT_EQ(r.verdict.entries_named, 0u);
  EXPECT_EQ(r.outcome, Outcome::kBenign);
  call.p.at(0, 0) = std::isinf(call.p.at(0, 0)) ? 1.0f : std::numeric_limits<float>::infinity();
  EXPECT_EQ(run(call).verdict.entries_named, 1u);
}

TEST(BlockSums, NonfiniteOperandsAreSetAside) {
  Call call = observed(40, 128, 200, Kind::kGauss, DataType::kBF16, 1.0f, 0.0f, false);
  call.a.at(3, 3) = std::numeric_limits<float>::infinity();
  call.b.at(9, 150) = std::numeric_limits<float>::quiet_NaN();
  for (int64_t j = 0; j < 200; ++j) call.p.at(3, j) = std::numeric_limits<float>::quiet_NaN();
  for (int64_t i = 0; i < 40; ++i) call.p.at(i, 150) = std::numeric_limits<float>::quiet_NaN();
  const Result clean = run(call);
  EXPECT_EQ(clean.outcome, Outcome::kClean);
  EXPECT_EQ(clean.reason, Reason::kNonfiniteOperand);
  call.p.at(20, 157) += 64.0f;  // the same class of 7 as column 150
  EXPECT_EQ(run(call).verdict.entries_named, 1u);
}

}  // namespace
}  // namespace sdcguard::stage

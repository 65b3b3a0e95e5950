// SPDX-License-Identifier: MIT
// End to end, no faults: every way to multiply under the shipped shim is checked, accuses nothing and gives the
// program's numbers; the run that is to be silent, untouched or the same again is exactly that.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "guarded_program.h"

namespace sdcguard::e2e {
namespace {

constexpr int kCalls = 2;

struct Case {
  const char* name;
  const char* arguments;
  const char* plan;        // of its calls
  bool upgraded;           // the product runs into FP32 scratch
  bool same_bits = false;  // as the unguarded run: nothing but the cast is left to our finish
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

std::string command(const Case& c) {
  return std::string(c.arguments) + " --calls " + std::to_string(kCalls);
}

constexpr Case kCases[] = {
    {"GemmEx", "--api gemmex --m 128 --n 128 --k 128", "line", true, true},
    {"GemmExF16", "--api gemmex --type f16 --m 128 --n 96 --k 160", "line", true, true},
    {"GemmExF32", "--api gemmex --type f32 --m 96 --n 128 --k 64", "line", true, true},
    {"GemmExTransposedA", "--api gemmex --m 128 --n 128 --k 96 --transa t", "line", true, true},
    {"GemmExTransposedB", "--api gemmex --m 128 --n 128 --k 96 --transb t", "line", true, true},
    {"GemmExBothTransposed", "--api gemmex --type f16 --m 96 --n 128 --k 128 --transa t --transb t", "line", true,
     true},
    {"GemmExOdd", "--api gemmex --m 131 --n 67 --k 97", "line", true, true},
    {"GemmExOddTransposed", "--api gemmex --m 65 --n 129 --k 33 --transa t --transb t", "line", true, true},
    {"GemmExInPlace", "--api gemmex --m 128 --n 128 --k 128 --beta 1", "line", true},
    {"GemmExInPlaceOdd", "--api gemmex --type f16 --m 99 --n 101 --k 51 --alpha -0.5 --beta 1", "line", true},
    {"GemmExScaled", "--api gemmex --m 128 --n 128 --k 64 --alpha 0.37", "line", true},
    {"GemmExLong", "--api gemmex --m 64 --n 64 --k 2048", "line", true, true},
    {"GemmExSmall", "--api gemmex --m 24 --n 5 --k 40", "recompute", true, true},
    {"GemmExOneEntry", "--api gemmex --m 1 --n 1 --k 1", "recompute", true, true},
    {"GemmExVector", "--api gemmex --m 512 --n 1 --k 128", "line", true, true},
    {"Strided", "--api strided --m 64 --n 96 --k 64 --batch 3", "line", true, true},
    {"StridedOddInPlace", "--api strided --type f16 --m 65 --n 33 --k 31 --batch 3 --beta 1", "line", true},
    {"StridedTransposed", "--api strided --type f32 --m 64 --n 64 --k 48 --batch 2 --transa t", "line", true, true},
    {"Sgemm", "--api sgemm --m 128 --n 128 --k 128", "line", true, true},
    {"SgemmInPlaceOdd", "--api sgemm --m 130 --n 67 --k 131 --alpha 0.5 --beta 1", "line", true},
    {"SgemmTransposed", "--api sgemm --m 96 --n 96 --k 64 --transb t --beta 0.25", "line", true},
    {"Lt", "--api lt --m 128 --n 128 --k 128", "line", true, true},
    {"LtBias", "--api lt --epilogue bias --m 128 --n 128 --k 128", "line", true},
    {"LtRelu", "--api lt --epilogue relu --m 128 --n 128 --k 96", "line", true, true},
    {"LtGelu", "--api lt --epilogue gelu --m 96 --n 128 --k 128", "line", true},
    {"LtReluBias", "--api lt --epilogue relu_bias --type f16 --m 129 --n 65 --k 77", "line", true},
    {"LtGeluBias", "--api lt --epilogue gelu_bias --m 128 --n 128 --k 128 --transa t", "line", true},
    {"LtGeluBiasF32", "--api lt --epilogue gelu_bias --type f32 --m 96 --n 96 --k 64", "line", true},
    {"LtBetaBias", "--api lt --epilogue bias --m 128 --n 128 --k 64 --beta 0.5", "line", true},
    {"LtBatchBias", "--api lt --epilogue bias --m 64 --n 64 --k 64 --batch 3", "line", true},
};

class Clean : public testing::TestWithParam<Case> {};

TEST_P(Clean, IsCheckedAndAccusesNothing) {
  const Case& c = GetParam();
  Program program = gemm(command(c) + " --check");
  const Left left = run(program);
  // --check: within the a-priori bound of the FP64 reference, derived in examples/gemm.
  EXPECT_EQ(left.code, 0) << left.printed;
  EXPECT_EQ(left.errors, "");
  EXPECT_EQ(complete(left, kCalls), "");
  EXPECT_EQ(left.coverage.checked.calls, uint64_t{kCalls}) << outcomes(left);
  EXPECT_EQ(left.coverage.entries_named, 0u);
  EXPECT_TRUE(left.faults.empty());
  for (const CallRecord& call : left.calls) {
    EXPECT_TRUE(call.outcome == Outcome::kClean || call.outcome == Outcome::kBenign) << outcomes(left);
    EXPECT_STREQ(name_of(call.plan), c.plan);
    EXPECT_EQ(call.upgraded != 0, c.upgraded);
    EXPECT_GT(call.lines, 0u);
  }
  if (c.same_bits) {
    EXPECT_TRUE(left.result == run(unguarded(gemm(command(c)))).result);
  }
}

INSTANTIATE_TEST_SUITE_P(Guarded, Clean, testing::ValuesIn(kCases), name_of_case);

// The check above is able to fail: the same program with a wrong number in it, unguarded.
TEST(Clean, CheckOfTheProgramFindsAWrongNumber) {
  const Left left = run(unguarded(
      gemm("--m 128 --n 128 --k 128 --check", {{"HOSTCUDA_FAULTS", "[[fault]]\nkind = \"output\"\nbits = 30\n"}})));
  EXPECT_EQ(left.code, 1);
}

TEST(Clean, Fp16AccumulationIsCheckedAsDelivered) {
  const std::string arguments = "--api hgemm --m 128 --n 96 --k 64 --calls 2";
  const Left left = run(gemm(arguments));
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(complete(left, kCalls), "");
  EXPECT_EQ(outcomes(left), times(kCalls, "clean"));
  EXPECT_TRUE(left.result == run(unguarded(gemm(arguments))).result);
}

// observe and off: not one bit of the program's output may differ, whatever the call.
class Untouched : public testing::TestWithParam<Case> {};

TEST_P(Untouched, ObserveIsBitIdentical) {
  const Case& c = GetParam();
  const Left native = run(unguarded(gemm(command(c))));
  const Left observed = run(gemm(command(c), {{"SDCGUARD_MODE", "observe"}}));
  EXPECT_EQ(unharmed(observed), "");
  EXPECT_EQ(complete(observed, kCalls), "");
  EXPECT_TRUE(observed.result == native.result);
  EXPECT_EQ(observed.coverage.entries_named, 0u) << outcomes(observed);
  for (const CallRecord& call : observed.calls) {
    EXPECT_EQ(call.upgraded, 0);
    EXPECT_NE(call.outcome, Outcome::kCorrupt);
    EXPECT_NE(call.outcome, Outcome::kCorrected);
  }
}

INSTANTIATE_TEST_SUITE_P(Guarded, Untouched,
                         testing::Values(kCases[0], kCases[1], kCases[6], kCases[8], kCases[9], kCases[12], kCases[15],
                                         kCases[16], kCases[18], kCases[19], kCases[21], kCases[22], kCases[26],
                                         kCases[28]),
                         name_of_case);

TEST(Untouched, ObserveChecksWhatItCan) {
  const auto seen = [](const std::string& arguments) {
    return outcomes(run(gemm(arguments, {{"SDCGUARD_MODE", "observe"}})));
  };
  EXPECT_EQ(seen("--m 128 --n 128 --k 128"), "clean");
  EXPECT_EQ(seen("--api sgemm --m 128 --n 128 --k 128"), "clean");
  EXPECT_EQ(seen("--api lt --epilogue bias --m 128 --n 128 --k 128 --beta 0.5"), "clean");
  // C is written over by the product that is to be checked: it was kept before.
  EXPECT_EQ(seen("--m 128 --n 128 --k 128 --beta 1"), "clean");
  EXPECT_EQ(seen("--api sgemm --m 128 --n 128 --k 128 --beta 1"), "clean");
  // An activation cannot be read back through.
  EXPECT_EQ(seen("--api lt --epilogue gelu --m 128 --n 128 --k 128"), "unverified(unsupported_epilogue)");
}

TEST(Untouched, OffIsBitIdenticalAndWritesNothing) {
  const std::string arguments = "--m 128 --n 128 --k 128 --calls 2";
  const Left left = run(gemm(arguments, {{"SDCGUARD_MODE", "off"}}), {.driver_calls = true});
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(left.rings, 0);
  EXPECT_TRUE(left.result == run(unguarded(gemm(arguments))).result);
  for (const TracedCall& call : left.trace) EXPECT_TRUE(call.runtime) << call.name;
}

TEST(Untouched, UpgradeOffChecksAsDelivered) {
  for (const char* api : {"gemmex", "sgemm"}) {
    const std::string arguments = std::string("--m 128 --n 128 --k 128 --api ") + api;
    const Left left = run(gemm(arguments, {{"SDCGUARD_UPGRADE", "off"}}));
    EXPECT_EQ(outcomes(left), "clean") << api;
    EXPECT_TRUE(left.result == run(unguarded(gemm(arguments))).result);
    // In place it is checked by the C that was kept.
    const Left in_place = run(gemm(arguments + " --beta 1", {{"SDCGUARD_UPGRADE", "off"}}));
    EXPECT_EQ(outcomes(in_place), "clean") << api;
    EXPECT_TRUE(in_place.result == run(unguarded(gemm(arguments + " --beta 1"))).result);
  }
}

// Streams: its own, the legacy one, the thread's own, each with scratch of its own, nothing waited for.
TEST(Streams, EachIsGuardedByItself) {
  const Left left = run(scene("streams", 3));
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(complete(left, 12), "");
  EXPECT_EQ(outcomes(left), times(12, "clean"));
  EXPECT_TRUE(left.result == run(unguarded(scene("streams", 3))).result);
  std::set<uint64_t> streams;
  for (const CallRecord& call : left.calls) streams.insert(call.stream);
  // The handle's stream 0 and cudaStreamLegacy are one.
  EXPECT_EQ(streams.size(), 5u);
}

// Lines and columns with non-finite operands, legitimate in training: kNanRow and kInfColumn of scenarios.cpp.
TEST(NonFinite, LinesAreSetAsideAndTheRestIsChecked) {
  const Left left = run(scene("nonfinite", 2));
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(complete(left, 2), "");
  EXPECT_EQ(outcomes(left), "clean clean");
  for (const CallRecord& call : left.calls) {
    EXPECT_EQ(call.lines, 128u);
    EXPECT_EQ(call.lines_nonfinite, 1u);    // the activation row with an Inf
    EXPECT_EQ(call.columns_nonfinite, 1u);  // the weight column with a NaN
    EXPECT_EQ(call.lines_dirty, 0u);
    EXPECT_EQ(call.reason, Reason::kNonfiniteOperand);
  }
  EXPECT_TRUE(left.faults.empty());
  EXPECT_TRUE(left.result == run(unguarded(scene("nonfinite", 2))).result);
}

TEST(NonFinite, AFaultElsewhereIsFoundAndRepaired) {
  const std::string faults =
      "[[fault]]\nkind = \"accumulator\"\nbits = 28\nrow = 40\ncol = 50\n"
      "[[fault]]\nkind = \"accumulator\"\nbits = 26\nrow = 7\ncol = 11\nk_step = 90\n"
      "[[fault]]\nkind = \"nan\"\nrow = 77\ncol = 3\n";
  const Left clean = run(unguarded(scene("nonfinite", 1)));
  const Left left = run(scene("nonfinite", 1, {{"HOSTCUDA_FAULTS", faults}}), {.injections = true});
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(outcomes(left), "corrected");
  EXPECT_EQ(left.injected.size(), 3u);
  EXPECT_EQ(found_exactly(left, Outcome::kCorrected), "");
  // Where the operands make NaN or Inf, the output is that of the unguarded run bit for bit, as is every other entry
  // that was not repaired.
  EXPECT_EQ(repaired_like(left, clean.result, {DataType::kBF16, 128, 128}), "");
  for (size_t i = 0; i < 128; ++i) {
    EXPECT_TRUE(std::isnan(value_at(left.result, DataType::kBF16, 5 + i * 128)));
    EXPECT_FALSE(std::isfinite(value_at(left.result, DataType::kBF16, i + 9 * 128)));
  }
}

}  // namespace
}  // namespace sdcguard::e2e

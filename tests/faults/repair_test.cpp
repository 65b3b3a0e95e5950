// SPDX-License-Identifier: MIT
// Injected faults under the shipped shim: every one above its entry bound is found, named by its place and its bits,
// and repaired, whatever the entry point, the epilogue and the kind of fault; the other modes do what they say and no
// more.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "tests/e2e/guarded_program.h"

namespace sdcguard::e2e {
namespace {

struct Case {
  const char* name;
  const char* arguments;
  DataType type;
  int64_t m, n, batch;
  double slope;  // |alpha|, times 1.13 with GELU (its steepest)
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

std::string command(const Case& c, int calls) {
  return std::string(c.arguments) + " --m " + std::to_string(c.m) + " --n " + std::to_string(c.n) + " --batch " +
         std::to_string(c.batch) + " --calls " + std::to_string(calls);
}

constexpr Case kCases[] = {
    {"GemmEx", "--api gemmex --k 128", DataType::kBF16, 128, 128, 1, 1},
    {"GemmExF16Transposed", "--api gemmex --type f16 --k 96 --transa t --transb t", DataType::kF16, 128, 96, 1, 1},
    {"GemmExOdd", "--api gemmex --k 97", DataType::kBF16, 131, 67, 1, 1},
    {"GemmExInPlace", "--api gemmex --k 128 --beta 1 --alpha -0.5", DataType::kBF16, 128, 128, 1, 0.5},
    {"GemmExSmall", "--api gemmex --k 40", DataType::kBF16, 40, 6, 1, 1},
    {"Strided", "--api strided --type f16 --k 64", DataType::kF16, 64, 96, 3, 1},
    {"StridedInPlace", "--api strided --k 64 --beta 1", DataType::kBF16, 65, 64, 2, 1},
    {"Sgemm", "--api sgemm --k 128", DataType::kF32, 128, 128, 1, 1},
    {"SgemmInPlace", "--api sgemm --k 131 --beta 1", DataType::kF32, 130, 67, 1, 1},
    {"Lt", "--api lt --k 128", DataType::kBF16, 128, 128, 1, 1},
    {"LtBias", "--api lt --epilogue bias --k 128 --beta 0.5", DataType::kBF16, 128, 128, 1, 1},
    {"LtReluBias", "--api lt --epilogue relu_bias --type f16 --k 96", DataType::kF16, 129, 65, 1, 1},
    {"LtGelu", "--api lt --epilogue gelu --k 128", DataType::kBF16, 96, 128, 1, 1.13},
    {"LtGeluBias", "--api lt --epilogue gelu_bias --k 128 --transa t", DataType::kBF16, 128, 128, 1, 1.13},
    {"LtGeluF32", "--api lt --epilogue gelu_bias --type f32 --k 64", DataType::kF32, 96, 96, 1, 1.13},
};

// Three accumulators a product, bits 20 to 30, at random k steps.
constexpr const char* kAccumulators = "seed = 5\n[[fault]]\nkind = \"accumulator\"\ncount = 3\n";

class Accumulator : public testing::TestWithParam<Case> {};

TEST_P(Accumulator, IsFoundAndRepaired) {
  const Case& c = GetParam();
  const Left clean = run(gemm(command(c, 1)));
  const Left left = run(gemm(command(c, 4), {{"HOSTCUDA_FAULTS", kAccumulators}}), {.injections = true});
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(complete(left, 4), "");
  EXPECT_GE(left.injected.size(), 8u);  // a flip that a later rounding undoes has no effect
  EXPECT_GT(left.coverage.entries_named, 0u);
  EXPECT_EQ(left.coverage.entries_named, left.coverage.entries_repaired);
  EXPECT_EQ(found_exactly(left, Outcome::kCorrected), "");
  EXPECT_EQ(repaired_like(left, clean.result, {c.type, c.m, c.n, c.batch, c.slope}), "");
}

INSTANTIATE_TEST_SUITE_P(Faults, Accumulator, testing::ValuesIn(kCases), name_of_case);

// As delivered and in place: the product wrote over the C that it is checked and repaired by. What is named is D, not
// the product that the faults went into: places must agree, and the repaired output with the clean one.
TEST(Accumulator, InPlaceAsDeliveredIsFoundAndRepairedFromTheKeptC) {
  const Case c = {"", "--api sgemm --k 131 --beta 0.75 --alpha -2", DataType::kF32, 130, 67, 1, 2};
  const Left clean = run(gemm(command(c, 1), {{"SDCGUARD_UPGRADE", "off"}}));
  const Left left =
      run(gemm(command(c, 1), {{"HOSTCUDA_FAULTS", kAccumulators}, {"SDCGUARD_UPGRADE", "off"}}), {.injections = true});
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(complete(left, 1), "");
  EXPECT_EQ(outcomes(left), "corrected");
  std::set<std::pair<int64_t, int64_t>> injected, named;
  for (const Injected& fault : left.injected) injected.emplace(fault.row, fault.column);
  for (const FaultRecord& fault : left.faults) named.emplace(fault.row, fault.column);
  EXPECT_EQ(injected.size(), 3u);
  EXPECT_EQ(named, injected);
  EXPECT_EQ(repaired_like(left, clean.result, {c.type, c.m, c.n, c.batch, c.slope}), "");
}

// The two criteria are able to fail: unguarded, the same faults leave an output that is not the clean one.
TEST(Accumulator, UnguardedTheOutputIsWrong) {
  const Case& c = kCases[0];
  const Left clean = run(gemm(command(c, 1)));
  Left left = run(unguarded(gemm(command(c, 4), {{"HOSTCUDA_FAULTS", kAccumulators}})), {.injections = true});
  EXPECT_NE(found_exactly(left, Outcome::kCorrected), "");
  EXPECT_NE(repaired_like(left, clean.result, {c.type, c.m, c.n, c.batch, c.slope}), "");
}

struct Kind {
  const char* name;
  const char* faults;  // of the first product
  uint64_t entries;    // touched at least
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

// Not in here, since balanced signs cannot see them: of several equal errors in one line each pair, in one call of 4 c
// (MATH.md "signs").
constexpr Kind kKinds[] = {
    {"Output", "kind = \"output\"\ncount = 5\nbits = \"22..30\"", 5},
    {"Sign", "kind = \"output\"\ncount = 2\nbits = 31", 2},
    {"Stuck", "kind = \"stuck\"\nbits = 30\nvalue = 1\nline_row = 3\nline_col = 5", 32},
    {"Word", "kind = \"word\"\nvalue = \"0x7f7fffff\"", 1},
    {"Nan", "kind = \"nan\"\ncount = 3", 3},
    {"Inf", "kind = \"inf\"\ncount = 3", 3},
    {"Tile", "kind = \"tile\"\nscale = 2", 32},
    {"Skip", "kind = \"skip\"\nrows = 8\ncols = 8", 64},
    {"Column", "kind = \"column\"\nscale = 0.5\nsign = \"random\"", 128},
    {"ColumnShifted", "kind = \"column\"\nscale = 0.5", 128},
    {"Row", "kind = \"row\"\nscale = 0.5", 128},
    {"OnePerColumn", "kind = \"one_per_column\"\nscale = 0.1", 128},
    {"Many", "kind = \"accumulator\"\ncount = 200\nbits = \"26..30\"", 128},
    {"PairOpposite", "kind = \"pair\"\nscale = 1", 2},
    {"PairSame", "kind = \"pair\"\nscale = 1\nsign = \"same\"", 2},
};

class EachKind : public testing::TestWithParam<Kind> {};

TEST_P(EachKind, IsFoundAndRepaired) {
  const std::string faults = "seed = 3\n[[fault]]\nproducts = 0\n" + std::string(GetParam().faults);
  // Fused into the product pass, and by the finish kernel (in place).
  for (const char* beta : {"0", "1"}) {
    const std::string arguments = "--m 128 --n 128 --k 128 --beta " + std::string(beta);
    const Left clean = run(gemm(arguments));
    const Left left = run(gemm(arguments, {{"HOSTCUDA_FAULTS", faults}}), {.injections = true});
    EXPECT_EQ(unharmed(left), "");
    EXPECT_EQ(outcomes(left), "corrected");
    EXPECT_GE(left.injected.size(), GetParam().entries);
    EXPECT_EQ(found_exactly(left, Outcome::kCorrected), "");
    EXPECT_EQ(repaired_like(left, clean.result, {DataType::kBF16, 128, 128}), "");
  }
}

std::string name_of_kind(const testing::TestParamInfo<Kind>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Faults, EachKind, testing::ValuesIn(kKinds), name_of_kind);

// More entries than one call may write records for.
TEST(AllEntries, AreFoundAndRepaired) {
  const std::string arguments = "--m 128 --n 128 --k 128";
  const Left clean = run(gemm(arguments));
  const Left left = run(gemm(arguments, {{"HOSTCUDA_FAULTS", "[[fault]]\nkind = \"all\"\nsign = \"random\"\n"}}),
                        {.injections = true});
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(outcomes(left), "corrected");
  EXPECT_EQ(left.coverage.entries_named, 128u * 128);
  EXPECT_EQ(left.coverage.entries_repaired, 128u * 128);
  EXPECT_EQ(left.faults.size(), 1024u);
  EXPECT_EQ(repaired_like(left, clean.result, {DataType::kBF16, 128, 128}), "");
}

TEST(Detect, FindsAndDoesNotRepair) {
  for (const char* api : {"gemmex", "sgemm"}) {
    const std::string arguments = "--m 128 --n 128 --k 128 --calls 3 --api " + std::string(api);
    const std::map<std::string, std::string> faults = {{"HOSTCUDA_FAULTS", kAccumulators}};
    const Left wrong = run(unguarded(gemm(arguments, faults)));
    const Left left = run(with(gemm(arguments, faults), "SDCGUARD_MODE", "detect"), {.injections = true});
    EXPECT_EQ(unharmed(left), "");
    EXPECT_EQ(complete(left, 3), "");
    EXPECT_EQ(outcomes(left), times(3, "corrupt"));
    EXPECT_EQ(found_exactly(left, Outcome::kCorrupt), "");
    EXPECT_EQ(left.coverage.entries_repaired, 0u);
    EXPECT_TRUE(left.result == wrong.result);
  }
}

// FP32 as delivered has the same probe as an upgraded product: the same faults are found.
TEST(ObserveMode, FindsFp32FaultsFinely) {
  const std::map<std::string, std::string> faults = {{"HOSTCUDA_FAULTS", kAccumulators}};
  const std::string arguments = "--api sgemm --m 128 --n 128 --k 128 --calls 3";
  const Left left = run(with(gemm(arguments, faults), "SDCGUARD_MODE", "observe"), {.injections = true});
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(outcomes(left), times(3, "corrupt"));
  EXPECT_EQ(found_exactly(left, Outcome::kCorrupt), "");
  EXPECT_TRUE(left.result == run(unguarded(gemm(arguments, faults))).result);
}

// BF16 as delivered, block sums. The floor of a class of 32 entries: H (sqrt(sum (ulp/2)^2) + envelope s), H =
// sqrt(2 ln(2 tests / 1e-15)), tests = 128 lines x 4 classes x 2 draws (MATH.md "block sums"). Products of 128 terms
// uniform in [-1, 1) have rms sqrt(128)/3 = 3.8 and at most |p| = 128: ulp/2 <= 2^-2 even at the largest possible
// entry, so the rounding part is at most 9.2 sqrt(32) 2^-2 = 13; the accumulation part is below 1e-3 of it. A fault of
// 26 is twice the floor: always found. One of 2^-9 is a quarter of the spacing of an entry of 2: under the rounding of
// every entry that it meets, it cannot be told.
TEST(ObserveMode, BlockSumsFindWhatIsAboveTheirFloor) {
  const auto observed = [](const char* delta) {
    const std::string faults = "[[fault]]\nkind = \"one_per_column\"\nproducts = 0\ndelta = " + std::string(delta);
    return run(gemm("--m 128 --n 128 --k 128", {{"HOSTCUDA_FAULTS", faults}, {"SDCGUARD_MODE", "observe"}}),
               {.injections = true});
  };
  const Left large = observed("26.0");
  EXPECT_EQ(unharmed(large), "");
  EXPECT_EQ(outcomes(large), "corrupt");
  EXPECT_EQ(large.coverage.entries_named, 128u);
  EXPECT_EQ(large.coverage.entries_repaired, 0u);
  const Left small = observed("0.001953125");
  EXPECT_EQ(outcomes(small), "clean");
  EXPECT_EQ(small.coverage.lines_dirty, 0u);
}

// The same outputs as delivered, in repair: what the block sums find is put right where it lies.
TEST(Delivered, SixteenBitOutputsAreRepairedInPlace) {
  for (const char* type : {"bf16", "f16"}) {
    for (const char* layout : {"--api gemmex", "--api gemmex --alpha -0.5 --beta 1", "--api lt --epilogue bias",
                               "--api strided --batch 2 --beta 1"}) {
      const std::string arguments = "--m 128 --n 128 --k 128 --type " + std::string(type) + " " + layout;
      SCOPED_TRACE(arguments);
      const std::string faults = "[[fault]]\nkind = \"one_per_column\"\nproducts = 0\ndelta = 60.0";
      const Left clean = run(unguarded(gemm(arguments)));
      const Left left =
          run(gemm(arguments, {{"HOSTCUDA_FAULTS", faults}, {"SDCGUARD_UPGRADE", "off"}}), {.injections = true});
      EXPECT_EQ(unharmed(left), "");
      EXPECT_EQ(outcomes(left), "corrected");
      const int64_t batch = std::string(layout).find("strided") != std::string::npos ? 2 : 1;
      EXPECT_EQ(left.coverage.entries_named, 128u);  // the fault is in the first of a batch
      EXPECT_EQ(left.coverage.entries_repaired, left.coverage.entries_named);
      const DataType of = type[0] == 'b' ? DataType::kBF16 : DataType::kF16;
      EXPECT_EQ(repaired_like(left, clean.result, {of, 128, 128, batch}), "");
    }
  }
}

// A fault of one device of several names that device.
TEST(Device, RecordsNameTheWrongOne) {
  const std::string faults = "[[fault]]\nkind = \"accumulator\"\nbits = 28\ndevice = 1\n";
  const auto on = [&faults](const char* device) {
    return run(gemm("--m 128 --n 128 --k 64 --device " + std::string(device), {{"HOSTCUDA_FAULTS", faults}}),
               {.injections = true});
  };
  const Left good = on("0"), bad = on("1");
  EXPECT_EQ(outcomes(good), "clean");
  EXPECT_EQ(outcomes(bad), "corrected");
  EXPECT_EQ(found_exactly(bad, Outcome::kCorrected), "");
  ASSERT_EQ(bad.faults.size(), 1u);
  const auto device_of = [](const Left& left, uint32_t slot) {
    for (const DeviceSeen& device : left.ring.devices) {
      if (device.slot == slot) return device;
    }
    return DeviceSeen{};
  };
  const DeviceSeen named = device_of(bad, bad.faults[0].device);
  EXPECT_EQ(named.ordinal, 1);
  EXPECT_EQ(device_of(bad, bad.calls[0].device).uuid, named.uuid);
  const DeviceSeen other = device_of(good, good.calls[0].device);
  EXPECT_EQ(other.ordinal, 0);
  EXPECT_EQ(named.uuid.substr(0, 4), "GPU-");
  EXPECT_NE(named.uuid, other.uuid);
}

}  // namespace
}  // namespace sdcguard::e2e

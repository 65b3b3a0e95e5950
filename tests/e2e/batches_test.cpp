// SPDX-License-Identifier: MIT
// Batches by arrays of addresses and grouped products under the shipped shim: clean, untouched in observe, and with
// faults found and repaired in place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/e2e/guarded_program.h"

namespace sdcguard::e2e {
namespace {

constexpr const char* kOneFault = "seed = 9\n[[fault]]\nkind = \"accumulator\"\nproducts = 0\nbits = \"26..29\"\n";

Program batches(const std::string& name, int count, std::map<std::string, std::string> settings = {}) {
  Program program = scene(name, count, std::move(settings));
  program.path = std::string(SDCGUARD_BUILD_DIR) + "/clients/batches";
  return program;
}

// Largest difference of two results of floats, and how many differ.
struct Difference {
  double largest = 0;
  int entries = 0;
};
Difference difference(const std::string& x, const std::string& y) {
  Difference d;
  for (size_t i = 0; i + 4 <= std::min(x.size(), y.size()); i += 4) {
    float a, b;
    std::memcpy(&a, &x[i], 4);
    std::memcpy(&b, &y[i], 4);
    if (std::memcmp(&a, &b, 4) == 0) continue;
    ++d.entries;
    d.largest = std::max(d.largest, std::fabs(static_cast<double>(a) - static_cast<double>(b)));
  }
  return d;
}

TEST(Batches, PointerArraysAreRedirectedCheckedAndFinished) {
  const Left left = run(batches("pointers", 1));
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(outcomes(left), "clean");
  ASSERT_EQ(left.calls.size(), 1u);
  EXPECT_EQ(left.calls[0].upgraded, 1);
  EXPECT_EQ(left.calls[0].lines, 5u * 96);
  // FP32 in, FP32 out: the product is the same; alpha, beta C are ours, rounded twice instead of in the library's way.
  const Left native = run(unguarded(batches("pointers", 1)));
  EXPECT_LE(difference(left.result, native.result).largest, 2 * spacing(DataType::kF32, 32));
}

TEST(Batches, GroupsAreCallsAndEachIsChecked) {
  for (const char* mode : {"observe", "detect", "repair"}) {
    const Left left = run(batches("grouped", 2, {{"SDCGUARD_MODE", mode}}));
    EXPECT_EQ(unharmed(left), "") << mode;
    EXPECT_EQ(complete(left, 6), "") << mode;
    EXPECT_EQ(outcomes(left), times(6, "clean")) << mode;
    EXPECT_TRUE(left.result == run(unguarded(batches("grouped", 2))).result) << mode;
  }
}

TEST(Batches, GroupsAreSampledOneByOne) {
  const Left left = run(batches("grouped", 20, {{"SDCGUARD_EVERY", "3"}}));
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(left.coverage.seen.calls, 60u);
  // The sequence is never further from its rate than one call over a window like this.
  EXPECT_NEAR(static_cast<double>(left.coverage.checked.calls), 20.0, 1.0);
  EXPECT_EQ(left.coverage.seen.flops, 20 * 2 * (5ull * 96 * 96 * 96 + 64ull * 80 * 72));
}

TEST(Batches, AFaultIsFoundAndRepairedInPlace) {
  for (const char* name : {"pointers", "grouped"}) {
    const Left clean = run(batches(name, 1));
    const Left left = run(batches(name, 1, {{"HOSTCUDA_FAULTS", kOneFault}}), {.injections = true});
    EXPECT_EQ(unharmed(left), "") << name;
    ASSERT_EQ(left.injected.size(), 1u) << name;
    EXPECT_EQ(left.coverage.entries_named, 1u) << name;
    EXPECT_EQ(left.coverage.entries_repaired, 1u) << name;
    const Difference d = difference(left.result, clean.result);
    EXPECT_LE(d.entries, 1) << name;
    EXPECT_LE(d.largest, left.injected[0].bound) << name;
    // Unguarded the number is out there.
    const Left harmed = run(unguarded(batches(name, 1, {{"HOSTCUDA_FAULTS", kOneFault}})));
    EXPECT_GT(difference(harmed.result, clean.result).largest, left.injected[0].bound) << name;
  }
}

}  // namespace
}  // namespace sdcguard::e2e

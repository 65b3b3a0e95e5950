// SPDX-License-Identifier: MIT
// Products that share a weight, under the shipped shim with its fold cache: the same bits and the same outcomes as
// without the cache, a weight that is updated in place is noticed and nothing is accused by it, faults are found on
// cached folds, streams share a fold without waiting for each other. And calls that are seen and not checked.
#include <gtest/gtest.h>

#include "tests/e2e/guarded_program.h"

namespace sdcguard::e2e {
namespace {

Program weights(const std::string& name, int count, std::map<std::string, std::string> settings = {}) {
  Program program = scene(name, count, std::move(settings));
  program.path = std::string(SDCGUARD_BUILD_DIR) + "/clients/weights";
  return program;
}

TEST(Weights, AnUpdateInPlaceIsUnverifiedOnceAndAccusesNothing) {
  constexpr int kEach = 6;
  const Left cached = run(weights("updated", kEach));
  EXPECT_EQ(unharmed(cached), "");
  EXPECT_EQ(complete(cached, 2 * kEach), "");
  EXPECT_EQ(cached.coverage.entries_named, 0u);
  EXPECT_EQ(outcomes(cached), times(kEach, "clean") + " unverified(stale_fold) " + times(kEach - 1, "clean"));
  // The check decides on no bit of a clean result.
  const Left afresh = run(weights("updated", kEach, {{"SDCGUARD_FOLD_CACHE", "off"}}));
  EXPECT_EQ(outcomes(afresh), times(2 * kEach, "clean"));
  EXPECT_TRUE(cached.result == afresh.result);
}

TEST(Weights, FaultsAreFoundOnACachedFold) {
  const Left left = run(weights("kept", 8,
                                {{"HOSTCUDA_FAULTS",
                                  "seed = 3\n[[fault]]\nkind = \"accumulator\"\ncount = 3\n"
                                  "products = \"5..7\"\n"}}),
                        {.injections = true});
  EXPECT_EQ(unharmed(left), "");
  EXPECT_GE(left.injected.size(), 6u);
  EXPECT_EQ(found_exactly(left, Outcome::kCorrected), "");
}

TEST(Weights, StreamsShareAFoldUnderEveryStarvation) {
  constexpr int kEach = 5;
  const Left free = run(weights("shared", kEach));
  EXPECT_EQ(unharmed(free), "");
  EXPECT_EQ(outcomes(free), times(3 * kEach, "clean"));
  for (int starved = 0; starved < 8; ++starved) {
    const Left left = run(weights("shared", kEach, {{"HOSTCUDA_STARVE", std::to_string(starved)}}));
    EXPECT_EQ(unharmed(left), "") << starved;
    EXPECT_EQ(outcomes(left), times(3 * kEach, "clean")) << starved;
    EXPECT_TRUE(left.result == free.result) << starved;
  }
}

TEST(Observed, CallsAreCountedWithShapeAndTypeAndLeftAlone) {
  const Left left = run(weights("observed", 1));
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(outcomes(left), times(4, "unverified(unsupported_entry)"));
  EXPECT_TRUE(left.result == run(unguarded(weights("observed", 1))).result);
  ASSERT_EQ(left.calls.size(), 4u);
  struct Shape {
    int64_t m, n, k;
    DataType type;
  };
  constexpr Shape kShapes[] = {{16, 32, 48, DataType::kOther},
                               {16, 1, 32, DataType::kF32},
                               {16, 16, 32, DataType::kF64},
                               {16, 32, 32, DataType::kF32}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(left.calls[i].m, kShapes[i].m) << i;
    EXPECT_EQ(left.calls[i].n, kShapes[i].n) << i;
    EXPECT_EQ(left.calls[i].k, kShapes[i].k) << i;
    EXPECT_EQ(left.calls[i].type_a, kShapes[i].type) << i;
  }
  // A complex multiply-add is four; a triangle is half.
  EXPECT_EQ(left.coverage.seen.flops, 8ull * 16 * 32 * 48 + 2ull * 16 * 32 + 16ull * 16 * 32 + 2ull * 16 * 32 * 32);
}

}  // namespace
}  // namespace sdcguard::e2e

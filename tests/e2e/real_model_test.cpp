// SPDX-License-Identifier: MIT
// The weights and activations of a real model, in every order of accumulation that has BF16: each product of a healthy
// run is checked, none is accused and none is even looked at.
#include <gtest/gtest.h>

#include "tests/e2e/guarded_program.h"

namespace sdcguard::e2e {
namespace {

Program encoder(const std::map<std::string, std::string>& settings) {
  Program program;
  program.path = SDCGUARD_BUILD_DIR "/bin/encoder";
  program.arguments = {"--model", SDCGUARD_SOURCE_DIR "/.cache/model", "--sentences",
                       SDCGUARD_SOURCE_DIR "/examples/encoder/sentences.txt"};
  program.settings = settings;
  return program;
}

class RealModel : public testing::TestWithParam<const char*> {};

TEST_P(RealModel, IsCheckedAndNothingOfItIsLookedAt) {
  const Left left = run(encoder({{"HOSTCUDA_ORDER", GetParam()}}));
  EXPECT_EQ(left.code, 0) << left.errors;
  EXPECT_EQ(left.errors, "");
  EXPECT_EQ(complete(left, left.coverage.seen.calls), "");
  EXPECT_GE(left.coverage.seen.calls, 40u);
  EXPECT_EQ(left.coverage.checked.calls, left.coverage.seen.calls);
  EXPECT_EQ(left.coverage.looks, 0u) << outcomes(left);
  EXPECT_EQ(left.coverage.entries_named, 0u);
}

// Must fail: with an entry of each product wrong the same run is not clean.
TEST(RealModelWithAFault, IsNotClean) {
  const Left left = run(encoder({{"HOSTCUDA_FAULTS", "seed = 9\n[[fault]]\nkind = \"word\"\nvalue = 1000.0\n"}}));
  EXPECT_EQ(left.code, 0) << left.errors;
  EXPECT_GE(left.coverage.entries_named, left.coverage.seen.calls);
}

INSTANTIATE_TEST_SUITE_P(Orders, RealModel,
                         testing::Values("h100", "a100", "ada", "b200", "rounded16", "sequential", "h100/split4"),
                         [](const auto& order) {
                           std::string name = order.param;
                           for (char& c : name) c = c == '/' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace sdcguard::e2e

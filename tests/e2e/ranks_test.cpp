// SPDX-License-Identifier: MIT
// Two processes as ranks of one tensor-parallel job that replicate their products: other devices, other addresses,
// other rank numbers, and the same decisions, sign draws and bits at every sampling setting.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "guarded_program.h"

namespace sdcguard::e2e {
namespace {

using Settings = std::map<std::string, std::string>;

constexpr int kRounds = 6;  // of mixed's sequence
constexpr uint64_t kCalls = kRounds * kMixedProducts;

struct Ranks {
  Left first, second;
};

// Both at once, as the ranks of a job run.
Ranks run_ranks(Settings settings, const Settings& of_second = {}) {
  const std::string rounds = "--rounds " + std::to_string(kRounds);
  settings["RANK"] = "0";
  const Program first = mixed(rounds + " --device 0", settings);
  settings["RANK"] = "1";
  for (const auto& [name, value] : of_second) settings[name] = value;
  const Program second = mixed(rounds + " --device 1 --shift 7340544", settings);
  Ranks ranks;
  std::thread beside([&] { ranks.second = run(second); });
  ranks.first = run(first);
  beside.join();
  return ranks;
}

// All that a rank decided or measured, call by call.
std::vector<std::tuple<uint64_t, uint64_t, uint64_t, Outcome, Reason, Plan, uint8_t, float, float>> course(
    const Left& left) {
  decltype(course(left)) all;
  for (const CallRecord& c : left.calls)
    all.emplace_back(c.call_id, c.seed, c.site, c.outcome, c.reason, c.plan, c.upgraded, c.sigma, c.worst);
  return all;
}

// The entries that a rank named, in the order of call and place.
std::vector<std::tuple<uint64_t, int64_t, int64_t, int64_t, float, float, float, uint8_t>> named(const Left& left) {
  decltype(named(left)) all;
  for (const FaultRecord& f : left.faults)
    all.emplace_back(f.call_id, f.batch, f.column, f.row, f.got, f.expected, f.bound, f.repaired);
  std::sort(all.begin(), all.end());
  return all;
}

class RanksAgree : public testing::TestWithParam<Settings> {};

TEST_P(RanksAgree, InDecisionsAndBits) {
  for (const char* mode : {"repair", "detect", "observe"}) {
    Settings settings = GetParam();
    settings["SDCGUARD_MODE"] = mode;
    const auto [first, second] = run_ranks(settings);
    EXPECT_EQ(unharmed(first), "") << mode;
    EXPECT_EQ(unharmed(second), "") << mode;
    EXPECT_EQ(first.ring.rank, 0);
    EXPECT_EQ(second.ring.rank, 1);
    ASSERT_EQ(first.ring.devices.size(), 1u);
    ASSERT_EQ(second.ring.devices.size(), 1u);
    EXPECT_NE(first.ring.devices[0].uuid, second.ring.devices[0].uuid);
    EXPECT_EQ(first.coverage.seen.calls, kCalls);
    EXPECT_EQ(second.coverage.seen.calls, kCalls);
    EXPECT_FALSE(first.calls.empty());
    EXPECT_EQ(course(first), course(second)) << mode;
    EXPECT_TRUE(first.result == second.result) << mode;
  }
}

// The same wrong entry in every product of both.
TEST_P(RanksAgree, InWhatTheyFindAndRepair) {
  for (const char* mode : {"repair", "detect"}) {
    Settings settings = GetParam();
    settings["SDCGUARD_MODE"] = mode;
    settings["HOSTCUDA_FAULTS"] = "[[fault]]\nkind = \"word\"\nvalue = 1000.0\nrow = 1\ncol = 2\nentry = 0\n";
    const auto [first, second] = run_ranks(settings);
    EXPECT_FALSE(first.faults.empty()) << mode;
    EXPECT_EQ(named(first), named(second)) << mode;
    EXPECT_EQ(course(first), course(second)) << mode;
    EXPECT_TRUE(first.result == second.result) << mode;
  }
}

INSTANTIATE_TEST_SUITE_P(Sampled, RanksAgree,
                         testing::Values(Settings{{"SDCGUARD_EVERY", "1"}}, Settings{{"SDCGUARD_EVERY", "3"}},
                                         Settings{{"SDCGUARD_EVERY", "20"}}, Settings{{"SDCGUARD_RATE", "0.37"}},
                                         Settings{{"SDCGUARD_EVERY", "3"}, {"SDCGUARD_UPGRADE", "off"}},
                                         Settings{{"SDCGUARD_EVERY", "3"}, {"SDCGUARD_UPGRADE", "site"}},
                                         Settings{{"SDCGUARD_EVERY", "3"}, {"SDCGUARD_SEED", "77"}}));

// A rank with another seed checks other calls: what is compared above can differ.
TEST(RanksAgree_MustFail, AnotherSeedIsSeen) {
  const auto [first, second] = run_ranks({{"SDCGUARD_EVERY", "3"}}, {{"SDCGUARD_SEED", "77"}});
  EXPECT_NE(course(first), course(second));
  EXPECT_FALSE(first.result == second.result);
}

}  // namespace
}  // namespace sdcguard::e2e

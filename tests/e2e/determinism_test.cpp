// SPDX-License-Identifier: MIT
// The same run twice gives the same decisions and the same bits; ranks decide alike, whatever they are called by;
// threads decide each by its own number; only the seed changes the choice.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "guarded_program.h"

namespace sdcguard::e2e {
namespace {

using Settings = std::map<std::string, std::string>;

constexpr uint64_t kCalls = 60;

Left sixty_calls(Settings settings) {
  return run(gemm("--m 16 --n 16 --k 16 --calls " + std::to_string(kCalls), std::move(settings)));
}

// Which calls were chosen, and with which sign draws.
std::vector<std::pair<uint64_t, uint64_t>> decisions(const Left& left) {
  std::vector<std::pair<uint64_t, uint64_t>> made;
  for (const CallRecord& call : left.calls) made.emplace_back(call.call_id, call.seed);
  return made;
}

TEST(Determinism, TheSameRunGivesTheSameBits) {
  const Program program = scene(
      "steps", 6, {{"SDCGUARD_EVERY", "2"}, {"HOSTCUDA_FAULTS", "[[fault]]\nkind = \"accumulator\"\ncount = 2\n"}});
  const Left first = run(program), second = run(program);
  EXPECT_EQ(unharmed(first), "");
  EXPECT_TRUE(first.result == second.result);
  EXPECT_EQ(decisions(first), decisions(second));
  EXPECT_EQ(outcomes(first), outcomes(second));
  EXPECT_LT(first.calls.size(), 6u);
  ASSERT_EQ(first.calls.size(), second.calls.size());
  for (size_t i = 0; i < first.calls.size(); ++i) {
    EXPECT_EQ(first.calls[i].sigma, second.calls[i].sigma);
    EXPECT_EQ(first.calls[i].worst, second.calls[i].worst);
    EXPECT_EQ(first.calls[i].site, second.calls[i].site);
  }
  ASSERT_EQ(first.faults.size(), second.faults.size());
  for (size_t i = 0; i < first.faults.size(); ++i) {
    EXPECT_EQ(first.faults[i].expected, second.faults[i].expected);
    EXPECT_EQ(first.faults[i].row, second.faults[i].row);
    EXPECT_EQ(first.faults[i].column, second.faults[i].column);
  }
}

TEST(Determinism, RanksDecideAlike) {
  const Settings ranks[] = {{{"RANK", "0"}}, {{"RANK", "1"}}, {{"SDCGUARD_RANK", "5"}}, {{"SLURM_PROCID", "3"}}};
  const int32_t numbers[] = {0, 1, 5, 3};
  for (const char* every : {"2", "3", "7", "20"}) {
    std::vector<std::pair<uint64_t, uint64_t>> of_first;
    std::string result_of_first;
    for (size_t i = 0; i < std::size(ranks); ++i) {
      Settings settings = ranks[i];
      settings["SDCGUARD_EVERY"] = every;
      const Left left = sixty_calls(settings);
      EXPECT_EQ(left.ring.rank, numbers[i]);
      EXPECT_EQ(left.coverage.seen.calls, kCalls);
      // A low-discrepancy sequence: over any stretch the count is off by less than a few.
      EXPECT_NEAR(static_cast<double>(left.calls.size()), static_cast<double>(kCalls) / std::stod(every), 2.0) << every;
      if (i == 0) {
        of_first = decisions(left);
        result_of_first = left.result;
      }
      EXPECT_EQ(decisions(left), of_first) << every;
      EXPECT_TRUE(left.result == result_of_first);
    }
  }
}

TEST(Determinism, TheSeedChangesTheChoice) {
  const auto chosen = [](const char* seed) {
    std::set<uint64_t> ids;
    for (const CallRecord& call : sixty_calls({{"SDCGUARD_EVERY", "7"}, {"SDCGUARD_SEED", seed}}).calls) {
      ids.insert(call.call_id);
    }
    return ids;
  };
  const auto of_one = chosen("1");
  EXPECT_EQ(of_one, chosen("1"));
  EXPECT_NE(of_one, chosen("2"));
}

TEST(Determinism, EveryNIsItsRate) {
  EXPECT_EQ(decisions(sixty_calls({{"SDCGUARD_EVERY", "4"}})), decisions(sixty_calls({{"SDCGUARD_RATE", "0.25"}})));
  const Left none = sixty_calls({{"SDCGUARD_RATE", "0"}});
  EXPECT_EQ(none.coverage.seen.calls, kCalls);
  EXPECT_TRUE(none.calls.empty());
}

// Threads are numbered by their first call; each has a choice of its own, the same in every run.
TEST(Determinism, ThreadsDecideByTheirNumber) {
  constexpr uint64_t kOfEach = 40;
  const Program program = scene("threads", static_cast<int>(kOfEach), {{"SDCGUARD_EVERY", "5"}});
  const Left first = run(program), second = run(program);
  EXPECT_EQ(unharmed(first), "");
  EXPECT_EQ(first.coverage.seen.calls, 3 * kOfEach);
  EXPECT_EQ(decisions(first), decisions(second));
  EXPECT_TRUE(first.result == second.result);
  std::map<uint64_t, std::set<uint64_t>> of_thread;
  for (const CallRecord& call : first.calls) {
    of_thread[call.call_id >> 40].insert(call.call_id & ((uint64_t{1} << 40) - 1));
  }
  ASSERT_EQ(of_thread.size(), 3u);
  EXPECT_NE(of_thread[0], of_thread[1]);
  EXPECT_NE(of_thread[1], of_thread[2]);
  EXPECT_NE(of_thread[0], of_thread[2]);
}

// upgrade = "site": what is checked changes no bit of any product, and all others of the site run as the checked ones.
TEST(Determinism, UpgradeBySiteDoesNotDependOnSampling) {
  const Settings samplings[] = {{{"SDCGUARD_EVERY", "1"}},
                                {{"SDCGUARD_EVERY", "3"}},
                                {{"SDCGUARD_EVERY", "3"}, {"SDCGUARD_SEED", "77"}},
                                {{"SDCGUARD_RATE", "0"}}};
  const auto run_by = [](const Settings& sampling, const char* upgrade, const char* mode) {
    Settings settings = sampling;
    settings["SDCGUARD_UPGRADE"] = upgrade;
    settings["SDCGUARD_MODE"] = mode;
    const Left left = run(mixed("--rounds 3", settings));
    EXPECT_EQ(unharmed(left), "");
    EXPECT_EQ(left.coverage.seen.calls, 3 * kMixedProducts);
    return left;
  };
  const auto upgraded = [](const Left& left) {
    return left.coverage.upgraded +
           static_cast<uint64_t>(
               std::count_if(left.calls.begin(), left.calls.end(), [](const CallRecord& c) { return c.upgraded; }));
  };
  const Left native = run(unguarded(mixed("--rounds 3")));
  for (const char* mode : {"repair", "detect"}) {
    const Left all = run_by(samplings[0], "site", mode);
    EXPECT_GT(upgraded(all), kMixedProducts);
    EXPECT_FALSE(all.result == native.result);
    for (const Settings& sampling : samplings) {
      const Left left = run_by(sampling, "site", mode);
      EXPECT_TRUE(left.result == all.result) << mode;
      EXPECT_EQ(upgraded(left), upgraded(all)) << mode;
      EXPECT_EQ(left.coverage.as_given, 0u);
    }
    // The other settings do not promise it, which shows that the products here can differ.
    EXPECT_FALSE(run_by(samplings[1], "call", mode).result == all.result);
    EXPECT_FALSE(run_by(samplings[3], "call", mode).result == all.result);
  }
  for (const char* mode : {"observe", "off"}) {
    const Left left = run(mixed("--rounds 3", {{"SDCGUARD_UPGRADE", "site"}, {"SDCGUARD_MODE", mode}}));
    EXPECT_TRUE(left.result == native.result) << mode;
    EXPECT_EQ(left.coverage.upgraded + left.coverage.as_given, 0u) << mode;
  }
}

}  // namespace
}  // namespace sdcguard::e2e

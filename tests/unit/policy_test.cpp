// SPDX-License-Identifier: MIT
// stage policy: the choice of calls is even, aperiodic, and the same wherever it is computed.
#include "shim/policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace sdcguard {
namespace {

constexpr uint64_t kSeed = 42;

std::vector<bool> choices(double rate, uint64_t theta, uint64_t calls) {
  std::vector<bool> chosen(calls, false);
  const uint64_t units = rate_units(rate);
  uint64_t call = 0;
  while (call < calls) {
    bool found = false;
    call += calls_until_sample(theta, units, call, 1000, &found);
    if (found && call < calls) chosen[call++] = true;
  }
  return chosen;
}

TEST(Policy, RateOneChoosesEveryCall) {
  for (bool chosen : choices(1.0, phase_of_thread(kSeed, 0), 1000)) EXPECT_TRUE(chosen);
}

TEST(Policy, RateZeroChoosesNone) {
  bool found = true;
  EXPECT_EQ(calls_until_sample(phase_of_thread(kSeed, 0), rate_units(0.0), 0, 5000, &found), 5000u);
  EXPECT_FALSE(found);
}

// A Kronecker sequence with a golden-ratio step has discrepancy below 4 (log2 N + 2) / N (its partial quotients are all
// one), so the count in any window differs from N rate by less than 4 (log2 N + 2).
TEST(Policy, EveryWindowHoldsItsShare) {
  for (const double rate : {0.5, 0.05, 0.01}) {
    for (uint32_t thread = 0; thread < 4; ++thread) {
      const auto chosen = choices(rate, phase_of_thread(kSeed, thread), 20000);
      for (const size_t window : {100u, 1000u, 10000u}) {
        for (size_t start = 0; start + window <= chosen.size(); start += window) {
          double count = 0;
          for (size_t i = start; i < start + window; ++i) count += chosen[i] ? 1 : 0;
          EXPECT_LT(std::abs(count - rate * static_cast<double>(window)), 4 * (std::log2(window) + 2));
        }
      }
    }
  }
}

// A model calls its sites with a fixed period: each of them must get its turn at its share. A choice by a fixed stride
// (every 20th call) gives one site in a period of 20 all the checks and the others none.
TEST(Policy, NoSiteOfAPeriodicProgramIsLeftOut) {
  constexpr uint64_t kCalls = 100000;
  const auto chosen = choices(0.05, phase_of_thread(kSeed, 0), kCalls);
  for (const uint64_t period : {2u, 3u, 7u, 20u, 36u, 40u, 200u}) {
    std::vector<uint64_t> hits(period, 0);
    std::vector<uint64_t> stride_hits(period, 0);
    for (uint64_t call = 0; call < kCalls; ++call) {
      if (chosen[call]) ++hits[call % period];
      if (call % 20 == 0) ++stride_hits[call % period];
    }
    const double expected = 0.05 * kCalls / static_cast<double>(period);
    for (const uint64_t hit : hits) {
      EXPECT_GT(static_cast<double>(hit), expected / 2) << "period " << period;
      EXPECT_LT(static_cast<double>(hit), expected * 2) << "period " << period;
    }
    if (period % 20 == 0) {
      EXPECT_EQ(stride_hits[1], 0u) << "the fixed stride this replaces would have passed";
    }
  }
}

TEST(Policy, ThreadsHaveTheirOwnPhaseAndRanksTheSame) {
  EXPECT_NE(phase_of_thread(kSeed, 0), phase_of_thread(kSeed, 1));
  EXPECT_EQ(choices(0.05, phase_of_thread(kSeed, 3), 5000), choices(0.05, phase_of_thread(kSeed, 3), 5000));
  EXPECT_NE(choices(0.05, phase_of_thread(kSeed, 0), 5000), choices(0.05, phase_of_thread(kSeed + 1, 0), 5000));
}

// A long gap is walked in pieces; the pieces must lead to the same calls as one walk.
TEST(Policy, PiecesOfALongGapLoseNothing) {
  const uint64_t theta = phase_of_thread(kSeed, 0);
  const uint64_t units = rate_units(1e-4);
  std::vector<uint64_t> by_pieces;
  for (uint64_t call = 0; call < 200000;) {
    bool found = false;
    call += calls_until_sample(theta, units, call, 37, &found);
    if (found) by_pieces.push_back(call++);
  }
  std::vector<uint64_t> direct;
  for (uint64_t call = 0; call < 200000; ++call) {
    if (theta + call * kGolden < units) direct.push_back(call);
  }
  while (!by_pieces.empty() && by_pieces.back() >= 200000) by_pieces.pop_back();
  EXPECT_EQ(by_pieces, direct);
}

// The thread-local walk of the wrappers against the definition.
TEST(Policy, TakeSampleFollowsTheSequence) {
  ThreadPolicy policy = {};
  policy.theta = phase_of_thread(kSeed, 5);
  policy.rate = rate_units(0.03);
  policy.number = 5;
  policy.started = true;
  // A started policy whose skip has run out with nothing found plans from next_call = 0.
  std::vector<uint64_t> ids;
  for (uint64_t call = 0; call < 3000; ++call) {
    if (take_sample(policy)) {
      ids.push_back(policy.call_id);
      EXPECT_EQ(policy.call_id, (uint64_t{5} << 40) | call);
    }
  }
  std::vector<uint64_t> direct;
  for (uint64_t call = 0; call < 3000; ++call) {
    if (policy.theta + call * kGolden < policy.rate) direct.push_back((uint64_t{5} << 40) | call);
  }
  EXPECT_EQ(ids, direct);
}

}  // namespace
}  // namespace sdcguard

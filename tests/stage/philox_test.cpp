// SPDX-License-Identifier: MIT
// Philox4x32-10 by its published known answers; the sign draws: balance, randomness of positions, independence.
#include "kernels/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "kernels/signs.h"

namespace sdcguard {
namespace {

// Known-answer vectors of Random123 (D. E. Shaw Research, BSD 3-Clause), kat_vectors, philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  struct Vector {
    Philox4 counter;
    uint64_t key;
    Philox4 expected;
  };
  const Vector vectors[] = {
      {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       0x299f31d0a4093822ull,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Vector& v : vectors) {
    const Philox4 got = philox(v.counter, v.key);
    EXPECT_EQ(got.x, v.expected.x);
    EXPECT_EQ(got.y, v.expected.y);
    EXPECT_EQ(got.z, v.expected.z);
    EXPECT_EQ(got.w, v.expected.w);
  }
}

std::vector<int> signs_of(uint64_t seed, uint32_t draw, uint32_t b, uint32_t width) {
  std::vector<int> signs;
  for (uint32_t q = 0; q < width; ++q) signs.push_back(sign_is_minus(sign_draw(seed, draw), b, q, width) ? -1 : 1);
  return signs;
}

TEST(Signs, BalancedInEveryClass) {
  std::set<int> odd_sums;
  for (uint32_t width : {1u, 2u, 3u, 7u, 8u, 31u, 32u, 33u, 64u, 65u, 100u, 257u, 1000u}) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      for (uint32_t b = 0; b < 5; ++b) {
        int sum = 0;
        for (int s : signs_of(seed, static_cast<uint32_t>(seed % 2), b, width)) sum += s;
        EXPECT_EQ(std::abs(sum), static_cast<int>(width % 2)) << "width " << width;
        if (width % 2 == 1) odd_sums.insert(sum);
      }
    }
  }
  EXPECT_EQ(odd_sums.size(), 2u);  // the odd one falls on either side
}

// In a random balanced arrangement two positions agree with probability (w/2 - 1)/(w - 1) for even w. Tested for pairs
// at many distances over seeds; the two draws are independent. A fixed pairing (a pair that always differs, or never)
// would be a blind spot: the bounds are six standard deviations of a binomial, and the second half shows that they
// bite.
TEST(Signs, PairsAreRandomAndDrawsIndependent) {
  constexpr int kSeeds = 4000;
  for (uint32_t width : {8u, 32u, 128u}) {
    const double agree = (width / 2.0 - 1.0) / (width - 1.0);
    for (uint32_t distance : {1u, 2u, 3u, width / 2, width - 1}) {
      int both[2] = {0, 0};
      int joint = 0;
      for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        bool same[2];
        for (uint32_t d = 0; d < 2; ++d) {
          const SignDraw draw = sign_draw(seed * 0x9E3779B97F4A7C15ull, d);
          same[d] = sign_is_minus(draw, 3, 0, width) == sign_is_minus(draw, 3, distance, width);
          both[d] += same[d] ? 1 : 0;
        }
        joint += same[0] && same[1] ? 1 : 0;
      }
      const double slack = 6.0 * std::sqrt(kSeeds * agree * (1.0 - agree));
      EXPECT_NEAR(both[0], kSeeds * agree, slack) << width << " " << distance;
      EXPECT_NEAR(both[1], kSeeds * agree, slack) << width << " " << distance;
      const double joint_slack = 6.0 * std::sqrt(kSeeds * agree * agree * (1.0 - agree * agree));
      EXPECT_NEAR(joint, kSeeds * agree * agree, joint_slack) << width << " " << distance;
      EXPECT_GT(std::fabs(0.0 - kSeeds * agree), slack);                    // a pair that always cancels is far outside
      EXPECT_GT(std::fabs(kSeeds - kSeeds * agree), slack);                 // as is one that never does
      EXPECT_GT(std::fabs(both[0] - kSeeds * agree * agree), joint_slack);  // as is a second draw equal to the first
    }
  }
}

TEST(Signs, EachPositionIsMinusHalfTheTime) {
  constexpr int kSeeds = 2000;
  for (uint32_t width : {9u, 32u, 200u}) {
    for (uint32_t q = 0; q < width; q += 7) {
      int minus = 0;
      for (uint64_t seed = 0; seed < kSeeds; ++seed) minus += sign_is_minus(sign_draw(seed, 0), 1, q, width) ? 1 : 0;
      EXPECT_NEAR(minus, kSeeds / 2.0, 6.0 * std::sqrt(kSeeds / 4.0)) << width << " " << q;
    }
  }
}

}  // namespace
}  // namespace sdcguard

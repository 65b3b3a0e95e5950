// SPDX-License-Identifier: MIT
// Order between CUDA threads: barriers, the hand-over to the last block, orders drawn by seed; and, under
// ThreadSanitizer, every needed barrier and fence found by its line when it is left out.
#include <gtest/gtest.h>

#include "tests/hostcuda/kernels/launch.h"
#include "tests/hostcuda/kernels/simt_kernels.cu"

#ifdef __SANITIZE_THREAD__
extern "C" const char* __tsan_default_options() {
  return "halt_on_error=1:exitcode=66";
}
#endif

namespace sdcguard {
namespace {

class Barrier : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    hostcuda_simt_seed(0);
    hostcuda_simt_watch(0);
  }
};

int run(const Launch& launch, const SimtTestParams& params) {
  return run_kernel(&hostcuda_kernel_table, launch, params);
}

TEST_F(Barrier, EveryRoundSeesTheWholeBlock) {
  constexpr int64_t kRounds = 6;
  for (const uint32_t threads : {1u, 32u, 100u, 256u}) {
    std::vector<uint32_t> expected(threads);
    for (uint32_t t = 0; t < threads; ++t) expected[t] = t;
    for (int64_t round = 0; round < kRounds; ++round) {
      const std::vector<uint32_t> before = expected;
      for (uint32_t t = 0; t < threads; ++t) expected[t] = before[(t + 1) % threads] * 3u + 1u;
    }
    for (uint64_t seed = 0; seed < 5; ++seed) {
      hostcuda_simt_seed(seed);
      DeviceArray<uint32_t> out(3 * threads);
      ASSERT_EQ(run({"simt_test_rounds", 3, threads, threads * 4}, {0, out.address(), 0, kRounds, 0, 0}), 0);
      const std::vector<uint32_t> seen = out.read();
      for (uint32_t i = 0; i < 3 * threads; ++i) ASSERT_EQ(seen[i], expected[i % threads]) << threads << " " << i;
    }
  }
}

constexpr uint32_t kGrid = 7;
constexpr uint32_t kThreads = 64;

uint32_t last_block_sum(uint32_t what) {
  DeviceArray<uint32_t> out(kGrid * kThreads + 1);
  DeviceArray<uint32_t> counter(4);
  EXPECT_EQ(run({"simt_test_last_block", kGrid, kThreads}, {0, out.address(), counter.address(), 0, what, 0}), 0);
  return out.read().back();
}

TEST_F(Barrier, LastBlockSeesAllBlocks) {
  uint32_t expected = 0;
  for (uint32_t i = 0; i < kGrid * kThreads; ++i) expected += i * 5u + 1u;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    hostcuda_simt_seed(seed);
    EXPECT_EQ(last_block_sum(0), expected) << seed;
  }
}

std::vector<float> left_neighbours(uint64_t seed, uint32_t what) {
  hostcuda_simt_seed(seed);
  DeviceArray<float> out(256);
  EXPECT_EQ(run({"simt_test_left_neighbour", 1, 256}, {0, out.address(), 0, 0, what, 0}), 0);
  return out.read();
}

TEST_F(Barrier, OrderChangesNothingInARightKernel) {
  const std::vector<float> expected = left_neighbours(0, 0);
  for (uint64_t seed = 1; seed <= 6; ++seed) EXPECT_EQ(left_neighbours(seed, 0), expected) << seed;
}

#ifndef __SANITIZE_THREAD__
TEST_F(Barrier, OrderShowsAMissingBarrier) {
  const std::vector<float> expected = left_neighbours(0, 0);
  EXPECT_EQ(left_neighbours(0, 1), expected);  // ascending order hides it
  for (uint64_t seed = 1; seed <= 6; ++seed) EXPECT_NE(left_neighbours(seed, 1), expected) << seed;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const std::vector<float> first = left_neighbours(seed, 1);
    const std::vector<float> again = left_neighbours(seed, 1);
    EXPECT_EQ(std::memcmp(first.data(), again.data(), first.size() * sizeof(float)), 0) << "a seed is an order";
  }
}
#endif

void barriers_without(uint32_t removed) {
  constexpr uint32_t kBlock = 128;
  DeviceArray<float> in(kBlock, 1.0f);
  DeviceArray<float> out(kBlock);
  EXPECT_EQ(run({"simt_test_barriers", 1, kBlock, 2048}, {in.address(), out.address(), 0, 0, removed, 0}), 0);
  EXPECT_EQ(out.read(), std::vector<float>(kBlock, 2.0f));
}

TEST_F(Barrier, NothingMissingIsSilent) {
  barriers_without(0);
  last_block_sum(0);
}

TEST_F(Barrier, RedundantBarrierMissingIsSilent) {
  barriers_without(8);
}

TEST_F(Barrier, BlocksWhoseThreadsShareAStateAreSilent) {
  hostcuda_simt_watch(1);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    hostcuda_simt_seed(seed);
    last_block_sum(0);
    last_block_sum(0);
  }
}

#ifdef __SANITIZE_THREAD__
// The report of a race must name the kernel's own lines. POSIX "." takes line ends too.
#define EXPECT_RACE(statement, where) \
  EXPECT_EXIT(                        \
      {                               \
        statement;                    \
        std::_Exit(0);                \
      },                              \
      testing::ExitedWithCode(66), "data race.*simt_kernels.cu:.*" where)

using BarrierDeathTest = Barrier;

TEST_F(BarrierDeathTest, FirstBarrierMissingIsNamed) {
  EXPECT_RACE(barriers_without(1), "simt_test_barriers");
}
TEST_F(BarrierDeathTest, SecondBarrierMissingIsNamed) {
  EXPECT_RACE(barriers_without(2), "simt_test_barriers");
}
TEST_F(BarrierDeathTest, ThirdBarrierMissingIsNamed) {
  EXPECT_RACE(barriers_without(4), "simt_test_barriers");
}
TEST_F(BarrierDeathTest, WarpBarrierMissingIsNamed) {
  EXPECT_RACE(barriers_without(16), "simt_test_barriers");
}
TEST_F(BarrierDeathTest, NeighbourBarrierMissingIsNamed) {
  EXPECT_RACE(left_neighbours(0, 1), "simt_test_left_neighbour");
}
TEST_F(BarrierDeathTest, ReleaseFenceMissingIsNamed) {
  EXPECT_RACE(last_block_sum(1), "simt_test_last_block");
}
TEST_F(BarrierDeathTest, AcquireFenceMissingIsNamed) {
  EXPECT_RACE(last_block_sum(2), "simt_test_last_block");
}
TEST_F(BarrierDeathTest, BarrierBeforeTicketMissingIsNamed) {
  EXPECT_RACE(last_block_sum(3), "simt_test_last_block");
}

// Of all blocks but the first, the threads share a state: what is missing between blocks is named all the same.
TEST_F(BarrierDeathTest, FenceMissingBetweenBlocksAsOneIsNamed) {
  hostcuda_simt_watch(1);
  EXPECT_RACE(last_block_sum(1), "simt_test_last_block");
  EXPECT_RACE(last_block_sum(2), "simt_test_last_block");
}
TEST_F(BarrierDeathTest, BarrierMissingInTheWatchedBlockIsNamed) {
  hostcuda_simt_watch(1);
  EXPECT_RACE(left_neighbours(0, 1), "simt_test_left_neighbour");
}
#endif

}  // namespace
}  // namespace sdcguard

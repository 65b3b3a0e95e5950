// SPDX-License-Identifier: MIT
// The kernel executor: collectives against plain loops, numbers, atomics, memory accessors and their counters, and
// every enforced rule by a kernel that breaks it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/hostcuda/kernels/launch.h"
#include "tests/hostcuda/kernels/simt_kernels.cu"

namespace sdcguard {
namespace {

constexpr int kBrokenRuleExit = 86;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int64_t kTimingRounds = 10;
#else
constexpr int64_t kTimingRounds = 200;
#endif

class Simt : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // workers of streams are threads: fork alone would lose them
    hostcuda_simt_seed(0);
  }
};
using SimtDeathTest = Simt;

int run(const Launch& launch, const SimtTestParams& params) {
  return run_kernel(&hostcuda_kernel_table, launch, params);
}

template <typename T>
T butterfly_sum(std::vector<T> v) {
  for (uint32_t distance = 16; distance != 0; distance >>= 1) {
    const std::vector<T> before = v;
    for (uint32_t i = 0; i < 32; ++i) v[i] = before[i] + before[i ^ distance];
  }
  for (uint32_t i = 1; i < 32; ++i) EXPECT_EQ(std::memcmp(&v[i], &v[0], sizeof(T)), 0);
  return v[0];
}

TEST_F(Simt, CollectivesEqualPlainLoops) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 100.0f);
  constexpr uint32_t kThreads = 96;
  std::vector<float> in(kThreads);
  for (float& v : in) v = normal(random);
  DeviceArray<float> in_dev(in);
  DeviceArray<float> out_dev(kThreads * kCollectives);
  for (uint64_t seed : {0, 1, 2, 3, 4}) {
    hostcuda_simt_seed(seed);
    ASSERT_EQ(run({"simt_test_collectives", 1, kThreads}, {in_dev.address(), out_dev.address(), 0, 0, 0, 0}), 0);
    const std::vector<float> out = out_dev.read();
    for (uint32_t t = 0; t < kThreads; ++t) {
      const uint32_t l = t % 32;
      const std::vector<float> v(in.begin() + (t - l), in.begin() + (t - l) + 32);
      std::vector<float> five(32);
      std::vector<double> fifth(32);
      std::vector<double> wide(32);
      uint32_t positive = 0;
      for (uint32_t i = 0; i < 32; ++i) {
        five[i] = v[i] * 5.0f;
        fifth[i] = static_cast<double>(v[i]) / 5.0;
        wide[i] = v[i];
        positive |= v[i] > 0.0f ? 1u << i : 0u;
      }
      const std::vector<float> expected = {butterfly_sum(v),
                                           butterfly_sum(v),
                                           butterfly_sum(five),
                                           static_cast<float>(butterfly_sum(fifth)),
                                           static_cast<float>(butterfly_sum(wide)),
                                           496.0f * 3.0f,
                                           *std::max_element(v.begin(), v.end()),
                                           255.0f,
                                           v[5],
                                           v[(l * 7 + 3) % 32],
                                           v[l >= 3 ? l - 3 : l],
                                           v[l + 3 < 32 ? l + 3 : l],
                                           v[l ^ 9],
                                           float_of(positive),
                                           11.0f,
                                           static_cast<float>(t / 32)};
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(bits_of(out[t * kCollectives + i]), bits_of(expected[i])) << "thread " << t << ", collective " << i;
      }
    }
  }
}

TEST_F(Simt, HalfAndBf16RoundToNearestEven) {
  // Every 16-bit value survives the way to float and back, and the middle of two neighbours goes to the even one.
  for (uint32_t h = 0; h < 0x10000u; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    const float f16 = f16_to_float(bits);
    const float bf16 = bf16_to_float(bits);
    if (is_nan(f16)) {
      EXPECT_EQ(float_to_f16(f16), bits | 0x0200u);
    } else {
      ASSERT_EQ(float_to_f16(f16), bits) << std::hex << h;
      const uint32_t magnitude = h & 0x7FFFu;
      const double value = magnitude < 0x400u
                               ? std::ldexp(static_cast<double>(magnitude), -24)
                               : std::ldexp(1024.0 + (magnitude & 0x3FFu), static_cast<int>(magnitude >> 10) - 25);
      if (magnitude < 0x7C00u) {
        ASSERT_EQ(std::fabs(static_cast<double>(f16)), value) << std::hex << h;
        const double next =
            magnitude == 0x7BFFu ? 65536.0 : std::fabs(f16_to_float(static_cast<uint16_t>(magnitude + 1)));
        const auto middle = static_cast<float>((value + next) / 2);  // exact: one bit more than FP16 has
        const auto even = static_cast<uint16_t>((magnitude & 1u) == 0 ? magnitude : magnitude + 1);
        ASSERT_EQ(float_to_f16(middle), even) << std::hex << h;
        ASSERT_EQ(float_to_f16(std::nextafterf(middle, 0.0f)), magnitude) << std::hex << h;
        ASSERT_EQ(float_to_f16(std::nextafterf(middle, 1e9f)), magnitude + 1) << std::hex << h;
      }
    }
    if (is_nan(bf16)) {
      EXPECT_EQ(float_to_bf16(bf16), bits | 0x0040u);
    } else {
      ASSERT_EQ(float_to_bf16(bf16), bits) << std::hex << h;
      if ((h & 0x7FFFu) < 0x7F80u) {
        const float middle = float_of((h << 16) | 0x8000u);
        ASSERT_EQ(float_to_bf16(middle), (h & 1u) == 0 ? h : h + 1) << std::hex << h;
        ASSERT_EQ(float_to_bf16(float_of((h << 16) | 0x7FFFu)), h) << std::hex << h;
        ASSERT_EQ(float_to_bf16(float_of((h << 16) | 0x8001u)), h + 1) << std::hex << h;
      }
    }
  }
  EXPECT_EQ(float_to_f16(1e30f), 0x7C00u);
  EXPECT_EQ(float_to_f16(-65520.0f), 0xFC00u);
  EXPECT_EQ(float_to_f16(1e-30f), 0u);
}

TEST_F(Simt, LargerNumberIsSymmetric) {
  const float values[] = {0.0f, -0.0f, 1.0f, -1.0f, std::numeric_limits<float>::infinity(), NAN};
  for (const float a : values) {
    for (const float b : values) EXPECT_EQ(bits_of(max_of(a, b)), bits_of(max_of(b, a)));
  }
  EXPECT_EQ(bits_of(max_of(-0.0f, 0.0f)), 0u);
  EXPECT_EQ(max_of(NAN, 1.0f), 1.0f);
}

TEST_F(Simt, AtomicsLoseNothing) {
  DeviceArray<uint32_t> counter(4);
  DeviceArray<uint64_t> out(1);
  ASSERT_EQ(run({"simt_test_atomics", 5, 160}, {0, out.address(), counter.address(), 0, 0, 0}), 0);
  const std::vector<uint32_t> seen = counter.read();
  EXPECT_EQ(seen[0], 800u * 799u / 2u);
  EXPECT_EQ(seen[1], ~0u);
  EXPECT_EQ(seen[2], 799u);
  EXPECT_EQ(seen[3], 1600u);
  EXPECT_EQ(out.read()[0], 800u);
}

TEST_F(Simt, TrafficCountsOperandBytesByKernelAndAllocation) {
  constexpr int64_t kVectors = 1000;
  DeviceArray<float> in(kVectors * 4, 3.0f);
  DeviceArray<float> out(kVectors * 4);
  hostcuda_traffic_reset();
  ASSERT_EQ(run({"simt_test_copy", 3, 64}, {in.address(), out.address(), 0, kVectors, 0, 0}), 0);
  ASSERT_EQ(run({"simt_test_copy", 3, 64}, {in.address(), out.address(), 0, kVectors, 0, 0}), 0);
  EXPECT_EQ(out.read(), in.read());
  hostcuda::Traffic records[4];
  ASSERT_EQ(hostcuda_traffic("simt_test_copy", records, 4), 2u);
  ASSERT_EQ(hostcuda_traffic("simt_test_atomics", records + 2, 2), 0u);
  const bool in_first = records[0].base == in.address();
  const hostcuda::Traffic& read = records[in_first ? 0 : 1];
  const hostcuda::Traffic& written = records[in_first ? 1 : 0];
  EXPECT_EQ(read.base, in.address());
  EXPECT_EQ(read.bytes, static_cast<uint64_t>(kVectors) * 16);
  EXPECT_EQ(read.bytes_read, static_cast<uint64_t>(kVectors) * 32);
  EXPECT_EQ(read.bytes_written, 0u);
  EXPECT_EQ(written.base, out.address());
  EXPECT_EQ(written.bytes_read, 0u);
  EXPECT_EQ(written.bytes_written, static_cast<uint64_t>(kVectors) * 32);
  hostcuda_traffic_reset();
  EXPECT_EQ(hostcuda_traffic(nullptr, nullptr, 0), 0u);
}

TEST_F(Simt, SharedMemoryStartsAsNan) {
  DeviceArray<float> out(64 * 3 * 2);
  ASSERT_EQ(run({"simt_test_stale_shared", 3, 64, 256}, {0, out.address(), 0, 0, 0, 0}), 0);
  for (const float v : out.read()) EXPECT_EQ(bits_of(v), ~0u);
}

// --- Rules: each ends the process with exit code 86 and one line that names kernel, block, thread, place and rule ---

struct RuleCase {
  BrokenRule what;
  uint32_t block;
  uint32_t shared_bytes;
  const char* message;
};

class SimtRuleDeathTest : public Simt, public testing::WithParamInterface<RuleCase> {};

TEST_P(SimtRuleDeathTest, EndsTheProcessWithItsMessage) {
  const RuleCase& rule = GetParam();
  const auto provoke = [&rule] {
    DeviceArray<float> in(1024);
    DeviceArray<float> out(1024);
    run({"simt_test_rules", 1, rule.block, rule.shared_bytes}, {in.address(), out.address(), 0, 1024, rule.what, 0});
  };
  EXPECT_EXIT(provoke(), testing::ExitedWithCode(kBrokenRuleExit), rule.message);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, SimtRuleDeathTest,
    testing::Values(
        RuleCase{kMisalignedFloat4, 64, 0,
                 "kernel simt_test_rules, block 0, thread 0 .*simt_kernels.cu:[0-9]+: misaligned 16-byte load: address "
                 "0x[0-9a-f]+ is not a multiple of 16"},
        RuleCase{kBeyondEnd, 64, 0,
                 "thread 33 \\(warp 1, lane 1\\), .*simt_kernels.cu:[0-9]+: bad address: 4-byte load at 0x"},
        RuleCase{kBeforeBegin, 64, 0, "bad address: 4-byte store at 0x"},
        RuleCase{kNullAddress, 64, 0, "bad address: 4-byte load at 0x0: "},
        RuleCase{kAtomicBeyondEnd, 64, 0, "bad address: 4-byte atomic at 0x"},
        RuleCase{kMisalignedStore64, 64, 0, "misaligned 8-byte store"},
        RuleCase{kStaticOverrun, 64, 0, "thread 40 .*shared memory overrun: index 8 of table\\[8\\]"},
        RuleCase{kNegativeShared, 64, 0, "thread 0 .*shared memory overrun: index -1 of table\\[8\\]"},
        RuleCase{kDynamicOverrun, 64, 128, "thread 32 .*dynamic shared memory overrun: index 32 of 32 elements"},
        RuleCase{kMisalignedShared, 64, 128, "misaligned view of dynamic shared memory"},
        RuleCase{kTooMuchStatic, 64, 0, "static shared memory over 49152 bytes with whole"},
        RuleCase{kBarrierLines, 128, 0,
                 "simt_kernels.cu:[0-9]+: divergent sync_threads\\(\\): this thread is here, thread 0 waits in "
                 "sync_threads\\(\\) at .*simt_kernels.cu:[0-9]+"},
        RuleCase{kBarrierReturned, 128, 0,
                 "divergent sync_threads\\(\\): 127 of 128 threads are here, thread 70 has returned"},
        RuleCase{kCollectiveReturned, 64, 0,
                 "divergent warp_sum\\(\\): 31 of 32 lanes are here, thread 40 has returned"},
        RuleCase{kCollectiveKinds, 64, 0,
                 "divergent warp_max\\(\\): this thread is here, thread 0 waits in warp_sum\\(\\) at "},
        RuleCase{kCollectiveLines, 64, 0,
                 "divergent shfl\\(\\): this thread is here, thread 0 waits in shfl\\(\\) at "},
        RuleCase{kBarrierInCollective, 64, 0,
                 "divergent sync_warp\\(\\): 31 of 32 lanes are here, thread 5 waits in sync_threads\\(\\) at "},
        RuleCase{
            kCollectiveAny, 40, 0,
            "warp_sum\\(\\) in a partial warp: the mask names 32 lanes, a block of 40 threads has 8 in its last warp"},
        RuleCase{kNothingBroken, 257, 0, "kernel simt_test_rules: block of 257 threads: 1 to 256 are allowed"},
        RuleCase{kNothingBroken, 64, 300000, "300000 bytes of dynamic shared memory: at most 232448 are allowed"},
        RuleCase{kNothingBroken, 64, 49152, "shared memory over 49152 bytes: 49152 dynamic and 32 static with table"}));

TEST_F(Simt, RuleKernelItselfIsRight) {
  DeviceArray<float> in(1024);
  DeviceArray<float> out(128);
  ASSERT_EQ(run({"simt_test_rules", 2, 64}, {in.address(), out.address(), 0, 1024, kNothingBroken, 0}), 0);
  EXPECT_EQ(out.read(), std::vector<float>(128, 1.0f));
}

TEST_F(SimtDeathTest, FreedMemoryIsNamed) {
  const auto provoke = [] {
    DeviceArray<float> in(1024);
    DeviceArray<float> out(1024);
    const uint64_t gone = in.address();
    in.free();
    run({"simt_test_copy", 1, 64}, {gone, out.address(), 0, 16, 0, 0});
  };
  EXPECT_EXIT(provoke(), testing::ExitedWithCode(kBrokenRuleExit), "bad address: 16-byte load at 0x.*: .*free");
}

TEST_F(SimtDeathTest, EmptyGridIsRefused) {
  const auto provoke = [] { run({"simt_test_rules", 0, 64}, {0, 0, 0, 0, kNothingBroken, 0}); };
  EXPECT_EXIT(provoke(), testing::ExitedWithCode(kBrokenRuleExit), "grid of 0 blocks");
}

// With HOSTCUDA_STICKY=1 a broken rule gives the launch up and the next one runs.
TEST_F(SimtDeathTest, StickyModeGivesUpOneLaunch) {
  const auto sticky = [] {
    setenv("HOSTCUDA_STICKY", "1", 1);
    DeviceArray<float> in(1024);
    DeviceArray<float> out(1024);
    static SimtTestParams params{in.address(), out.address(), 0, 1024, kBarrierReturned, 0};
    // Both launches in one operation, since the stream takes no more after the first.
    const auto work = [](void*) {
      const hostcuda::HostKernelEntry* const entry = hostcuda::find_kernel(&hostcuda_kernel_table, "simt_test_rules");
      const int broken = hostcuda_simt_run(entry, 4, 128, 0, &params);
      params.what = kNothingBroken;
      const int fine = hostcuda_simt_run(entry, 4, 128, 0, &params);
      std::_Exit(broken == 1 && fine == 0 ? 7 : 8);
    };
    hostcuda_enqueue(nullptr, work, nullptr, "sticky");
    hostcuda_stream_synchronize(nullptr);
  };
  EXPECT_EXIT(sticky(), testing::ExitedWithCode(7), "thread 70 has returned");
}

TEST_F(Simt, CostsArePrinted) {
  DeviceArray<float> in(4096, 1.0f);
  DeviceArray<float> out(4);
  const char* const names[] = {"barrier, ns a thread", "shuffle, ns a lane", "warp_sum_n<16>, ns a lane",
                               "loop alone, ns a thread", "checked load, ns"};
  double alone = 0;
  for (const uint32_t what : {3u, 0u, 1u, 2u, 4u}) {
    double best = 1e9;
    for (int repeat = 0; repeat < 3; ++repeat) {
      double time = 0;
      ASSERT_EQ(run({"simt_test_timing", 4, 256, 0, &time}, {in.address(), out.address(), 0, kTimingRounds, what, 0}),
                0);
      best = std::min(best, time / (4.0 * 256.0 * kTimingRounds));
    }
    if (what == 3) alone = best;
    std::printf("%s: %.1f\n", names[what], what == 3 ? best : best - alone);
    EXPECT_GT(best, 0.0);
  }
}

}  // namespace
}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Harvest of the rings: calls are told apart by what their noise depends on, what a record cannot tell is left out, and
// the largest cell of each call alone gives the threshold that all cells have.
#include "tools/calibrate/harvest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tools/calibrate/fleet.h"

namespace sdcguard {
namespace {

RingState ring() {
  RingState state;
  state.cublas = "libcublas.so.13 130100, libcublasLt.so.13 130100";
  DeviceSeen device;
  device.slot = 3;
  device.uuid = "GPU-1";
  device.name = "NVIDIA H200";
  device.driver_version = 13000;
  device.sm_count = 132;
  state.devices.push_back(device);
  return state;
}

CallRecord call() {
  CallRecord record{};
  record.m = 1024;
  record.n = 256;
  record.k = 4096;
  record.outcome = Outcome::kClean;
  record.plan = Plan::kLine;
  record.type_a = record.type_b = DataType::kBF16;
  record.upgraded = 1;
  record.device = 3;
  record.classes = 8;
  record.lines = 256;
  record.worst = 4;
  return record;
}

TEST(Harvest, TellsCallsApartByWhatTheirNoiseDependsOn) {
  Harvest harvest;
  RingState state = ring();
  harvest.add(state, call());
  harvest.add(state, call());
  CallRecord half = call();
  half.type_a = half.type_b = DataType::kF16;
  harvest.add(state, half);
  state.devices[0].driver_version = 12090;
  harvest.add(state, call());
  state = ring();
  state.devices[0].sm_count = 66;
  harvest.add(state, call());
  state = ring();
  state.cublas = "libcublas.so.12 120900";
  harvest.add(state, call());
  state = ring();
  state.devices[0].name = "hostcuda simulated H100";
  harvest.add(state, call());
  ASSERT_EQ(harvest.found().size(), 6u);
  EXPECT_EQ(harvest.left_out(), 0u);
  const Harvested& first = harvest.found()[0];
  EXPECT_EQ(first.key, (ProfileKey{"NVIDIA H200", 132, 13000, 130100, "bf16", "library", "line"}));
  EXPECT_EQ(first.calls, 2u);
  EXPECT_EQ(first.cells, 2u * 256 * 8 * 2);
  EXPECT_EQ(first.most_cells, 4096);
  EXPECT_EQ(first.uuid, "GPU-1");
  EXPECT_EQ(first.shapes, std::set<std::string>{"1024x256x4096"});
  EXPECT_FALSE(first.simulated);
  EXPECT_TRUE(harvest.found()[5].simulated);
}

TEST(Harvest, LeavesOutWhatARecordCannotTell) {
  const auto taken = [](auto change, RingState state = ring()) {
    CallRecord record = call();
    change(record);
    Harvest harvest;
    harvest.add(state, record);
    EXPECT_EQ(harvest.found().size() + harvest.left_out(), 1u);
    return harvest.found().size() == 1;
  };
  EXPECT_TRUE(taken([](CallRecord&) {}));
  EXPECT_TRUE(taken([](CallRecord& c) { c.outcome = Outcome::kBenign; }));
  EXPECT_FALSE(taken([](CallRecord& c) { c.outcome = Outcome::kCorrected; }));
  EXPECT_FALSE(taken([](CallRecord& c) { c.outcome = Outcome::kCorrupt; }));
  EXPECT_FALSE(taken([](CallRecord& c) { c.outcome = Outcome::kUnverified; }));
  EXPECT_FALSE(taken([](CallRecord& c) { c.plan = Plan::kBlockSums; }));
  EXPECT_FALSE(taken([](CallRecord& c) { c.upgraded = 0; }));
  EXPECT_FALSE(taken([](CallRecord& c) { c.type_a = c.type_b = DataType::kF32; }));  // TF32 or not
  EXPECT_FALSE(taken([](CallRecord& c) { c.type_a = c.type_b = DataType::kE4M3; }));
  EXPECT_FALSE(taken([](CallRecord& c) { c.type_b = DataType::kF16; }));
  EXPECT_FALSE(taken([](CallRecord& c) { c.worst = INFINITY; }));
  EXPECT_FALSE(taken([](CallRecord& c) { c.device = 4; }));
  RingState two = ring();
  two.cublas = "libcublas.so.12 120900, libcublas.so.13 130100";
  EXPECT_FALSE(taken([](CallRecord&) {}, two));
  two.cublas = "libcublas.so.13";
  EXPECT_FALSE(taken([](CallRecord&) {}, two));
}

// 60,000 calls of 512 Gaussian cells, of which only each call's largest is seen: the threshold for one false alarm in a
// million products covers the true one and is not far above it.
TEST(Harvest, TheLargestCellsGiveTheThresholdOfAll) {
  constexpr double kCells = 512, kRate = 1e-6;
  constexpr int kRounds = 20;
  const double needed = gaussian_threshold(rate_of_test(kRate, kCells));
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> uniform(0, 1);
  int covered = 0;
  for (int round = 0; round < kRounds; ++round) {
    Harvest harvest;
    const RingState state = ring();
    CallRecord record = call();
    record.lines = 32;
    for (int i = 0; i < 60'000; ++i) {
      // P(all of n are below x) = u: each exceeds x with probability 1 - u^(1/n).
      record.worst = static_cast<float>(gaussian_threshold(-std::expm1(std::log(uniform(random)) / kCells)));
      harvest.add(state, record);
    }
    const Harvested& one = harvest.found().at(0);
    const Exceedances measured = one.exceedances();
    EXPECT_NEAR(static_cast<double>(measured.kept.size()), 6000, 60);
    TailReport report;
    std::string error;
    ASSERT_TRUE(fit_tail(measured, kRate, one.most_cells, 1, &report, &error)) << error;
    covered += report.threshold >= needed;
    EXPECT_LT(report.threshold, 2 * needed);
  }
  EXPECT_GE(covered, kRounds * 95 / 100);
}

}  // namespace
}  // namespace sdcguard

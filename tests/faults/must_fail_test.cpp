// SPDX-License-Identifier: MIT
// Each stage of the shipped shim, switched off at the device, makes the criteria fail that hold with it: no stage is
// there for show. Each needed wait between streams, dropped, gives a wrong result under some order of streams; with it
// no order of streams changes anything.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/e2e/guarded_program.h"

namespace sdcguard::e2e {
namespace {

constexpr const char* kFaults = "seed = 5\n[[fault]]\nkind = \"accumulator\"\ncount = 3\nbits = \"26..30\"\n";

// ---- stages -----------------------------------------------------------------------------------------------------

struct Stage {
  const char* kernel;
  const char* arguments;
};

void PrintTo(const Stage& stage, std::ostream* out) {
  *out << stage.kernel;
}

constexpr const char* kFused = "--m 128 --n 128 --k 128 --calls 2";
constexpr const char* kUnfused = "--m 128 --n 128 --k 128 --calls 2 --beta 1";

constexpr Stage kStages[] = {
    {"sdcguard_fold", kFused},
    {"sdcguard_operand", kFused},
    {"sdcguard_product", kFused},
    {"sdcguard_product", kUnfused},
    {"sdcguard_escalate_recompute", kFused},
    {"sdcguard_escalate_repair", kFused},
    {"sdcguard_escalate_repair", kUnfused},
    {"sdcguard_finish", kUnfused},
};

// All that a sound guarded run under these faults fulfils.
bool is_sound(const std::string& arguments, const std::string& skipped) {
  const Left clean = run(gemm(arguments));
  Program program = gemm(arguments, {{"HOSTCUDA_FAULTS", kFaults}});
  if (!skipped.empty()) program.settings["HOSTCUDA_SKIP_KERNEL"] = skipped;
  const Left left = run(program, {.injections = true});
  return unharmed(left).empty() && complete(left, 2).empty() && left.coverage.entries_named >= 4 &&
         found_exactly(left, Outcome::kCorrected).empty() &&
         repaired_like(left, clean.result, {DataType::kBF16, 128, 128}).empty();
}

class SwitchedOff : public testing::TestWithParam<Stage> {};

TEST_P(SwitchedOff, IsMissed) {
  EXPECT_FALSE(is_sound(GetParam().arguments, GetParam().kernel));
}

std::string name_of_stage(const testing::TestParamInfo<Stage>& info) {
  return std::string(info.param.kernel) + (info.param.arguments == kFused ? "_fused" : "_unfused");
}

INSTANTIATE_TEST_SUITE_P(Stages, SwitchedOff, testing::ValuesIn(kStages), name_of_stage);

TEST(SwitchedOff, NothingIsSound) {
  EXPECT_TRUE(is_sound(kFused, ""));
  EXPECT_TRUE(is_sound(kUnfused, ""));
  // The finish kernel has no part in a fused call.
  EXPECT_TRUE(is_sound(kFused, "sdcguard_finish"));
}

// ---- waits ------------------------------------------------------------------------------------------------------

// The scene "steps": each step uploads its operand in stream order, multiplies and wipes the operand.
constexpr int kSteps = 3;
// Streams in the order of their creation: 0 the legacy one, 1 the program's, 2 the one that the shim fills its
// constants on at warm-up, 3 its side stream.
constexpr const char* kStarved[] = {"0", "1", "2", "3"};

// Wait 2 i + 1 of cuStreamWaitEvent makes the side stream wait for the program's at step i (fork), 2 i + 2 the other
// way round (join).
bool steps_are_sound(const std::string& starved, const std::string& dropped_wait, const std::string& clean) {
  Program program = scene("steps", kSteps, {{"HOSTCUDA_FAULTS", kFaults}});
  if (!starved.empty()) program.settings["HOSTCUDA_STARVE"] = starved;
  if (!dropped_wait.empty()) program.settings["HOSTCUDA_SKIP_WAIT"] = dropped_wait;
  const Left left = run(program, {.injections = true});
  return unharmed(left).empty() && complete(left, kSteps).empty() && left.coverage.entries_named >= 5 &&
         found_exactly(left, Outcome::kCorrected).empty() &&
         repaired_like(left, clean, {DataType::kBF16, 128, 128 * kSteps}).empty();
}

class Waits : public testing::Test {
 protected:
  static void SetUpTestSuite() { clean_ = run(scene("steps", kSteps)).result; }
  static std::string clean_;
};
std::string Waits::clean_;

TEST_F(Waits, NoOrderOfStreamsChangesAnything) {
  EXPECT_TRUE(steps_are_sound("", "", clean_));
  for (const char* starved : kStarved) EXPECT_TRUE(steps_are_sound(starved, "", clean_)) << starved;
}

TEST_F(Waits, EachOneDroppedIsNoticed) {
  // A starved stream is let go when the program enqueues nothing for a second, which a busy machine can do to it: so
  // several tries. A sound run survives any number of them.
  constexpr int kTries = 3;
  for (int wait = 1; wait <= 2 * kSteps; ++wait) {
    bool noticed = false;
    for (int attempt = 0; attempt < kTries && !noticed; ++attempt) {
      // A fork is missed where the program's stream lags behind, a join where the side stream does.
      const char* starved = wait % 2 == 1 ? "1" : "3";
      noticed = !steps_are_sound(starved, std::to_string(wait), clean_);
    }
    EXPECT_TRUE(noticed) << "wait " << wait;
  }
}

TEST_F(Waits, ThereAreNoOthers) {
  const Left left = run(scene("steps", kSteps), {.driver_calls = true});
  int waits = 0;
  for (const TracedCall& call : left.trace) waits += call.name == "cuStreamWaitEvent" ? 1 : 0;
  EXPECT_EQ(waits, 2 * kSteps);
}

}  // namespace
}  // namespace sdcguard::e2e

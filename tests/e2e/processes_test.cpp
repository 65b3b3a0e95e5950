// SPDX-License-Identifier: MIT
// The life of a guarded process: however it forks, threads, ends, fails, captures, and makes and loses streams and
// contexts, it prints nothing more, ends with the code that it would have ended with, gives the bits that it would have
// given, and its coverage says what was not checked.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "guarded_program.h"
#include "program.h"

namespace sdcguard::e2e {
namespace {

constexpr int kAborted = 128 + 6, kKilled = 128 + 9;

struct Life {
  const char* scene;
  int count;
  int rings;          // processes that multiplied
  uint64_t products;  // of all of them; 0: not the same in every run
  int code = 0;
  std::map<std::string, std::string> settings = {};
  // Outcomes in call order, in every mode; empty: all are clean.
  const char* outcomes = "";
};

void PrintTo(const Life& life, std::ostream* out) {
  *out << life.scene;
}

class Processes : public testing::TestWithParam<Life> {};

TEST_P(Processes, GoOnAsTheyWould) {
  const Life& life = GetParam();
  const Left native = run(unguarded(process(life.scene, life.count, life.settings)));
  EXPECT_EQ(native.code, life.code) << native.errors;
  EXPECT_FALSE(native.result.empty());
  for (const char* mode : {"observe", "repair"}) {
    SCOPED_TRACE(mode);
    const Left left = run(with(process(life.scene, life.count, life.settings), "SDCGUARD_MODE", mode));
    EXPECT_EQ(left.code, life.code);
    EXPECT_EQ(left.printed, native.printed);
    EXPECT_EQ(left.errors, native.errors);
    // In repair too: a bare product that is only cast has the same bits on both ways.
    EXPECT_TRUE(left.result == native.result);
    EXPECT_EQ(left.rings, life.rings);
    EXPECT_EQ(left.coverage.entries_named, 0u);
    if (life.products == 0) continue;
    if (life.rings == 1) {
      EXPECT_EQ(complete(left, life.products), "");
    }
    EXPECT_EQ(left.calls.size(), life.products);
    EXPECT_EQ(outcomes(left), *life.outcomes != '\0' ? life.outcomes : times(static_cast<int>(life.products), "clean"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Life, Processes,
    testing::Values(Life{"fork_first", 3, 2, 4}, Life{"execs", 2, 1, 4}, Life{"first_calls", 8, 1, 24},
                    Life{"one_handle", 8, 1, 32}, Life{"per_thread", 4, 1, 12}, Life{"exit", 2, 1, 0, 5},
                    Life{"exit_now", 2, 1, 0, 6}, Life{"quick_exit", 2, 1, 0, 7}, Life{"abort", 2, 1, 0, kAborted},
                    Life{"kill", 2, 1, 0, kKilled}, Life{"signals", 60, 1, 60}, Life{"pending_error", 3, 1, 3},
                    Life{"capture_beside", 2, 1, 5, 0, {}, "clean unverified(capture) unverified(capture) clean clean"},
                    Life{"graph_on_two",
                         4,
                         1,
                         9,
                         0,
                         {},
                         "clean unverified(capture) unverified(capture) unverified(capture) unverified(capture) clean "
                         "clean clean clean"},
                    Life{"new_streams", 20, 1, 20},
                    Life{"no_memory",
                         3,
                         1,
                         3,
                         0,
                         {{"HOSTCUDA_MEMORY", "256M"}},
                         "unverified(no_workspace) unverified(no_workspace) unverified(no_workspace)"},
                    Life{"resets", 3, 1, 6}, Life{"contexts", 3, 1, 6}, Life{"devices", 3, 1, 6}),
    [](const auto& of) { return std::string(of.param.scene); });

// A child after the first products may not use CUDA. What the parent had is forgotten there: the child has a ring of
// its own, its refused product is not verified for want of a context, and at its exit it ends nothing of the parent's.
TEST(Processes, AChildThatMayNotUseCudaHarmsNothing) {
  const Left native = run(unguarded(process("fork_after", 2)));
  EXPECT_EQ(native.code, 0) << native.errors;
  for (const char* mode : {"observe", "detect", "repair"}) {
    SCOPED_TRACE(mode);
    const Left left = run(process("fork_after", 2, {{"SDCGUARD_MODE", mode}}));
    EXPECT_EQ(unharmed(left), "");
    EXPECT_TRUE(left.result == native.result);
    EXPECT_EQ(left.rings, 2);
    EXPECT_EQ(left.calls.size(), 5u);
    const auto count = [&left](Outcome outcome, Reason reason) {
      return std::count_if(left.calls.begin(), left.calls.end(),
                           [=](const CallRecord& call) { return call.outcome == outcome && call.reason == reason; });
    };
    EXPECT_EQ(count(Outcome::kClean, Reason::kNone), 4);
    EXPECT_EQ(count(Outcome::kUnverified, Reason::kNoContext), 1);
  }
}

// A product of the program's own faults and takes the context with it. Which kernel touches the bad address first, and
// so what the host device says of it, is not the same with and without checks; all that CUDA tells the program is.
TEST(Processes, LoseTheirContextAsTheyWould) {
  const std::map<std::string, std::string> settings = {{"HOSTCUDA_STICKY", "1"}};
  const Left native = run(unguarded(process("sticky_error", 2, settings)));
  EXPECT_EQ(native.code, 0);
  for (const char* mode : {"observe", "detect", "repair"}) {
    const Left left = run(with(process("sticky_error", 2, settings), "SDCGUARD_MODE", mode));
    EXPECT_EQ(left.code, 0) << mode;
    EXPECT_EQ(left.printed, "") << mode;
    EXPECT_TRUE(left.result == native.result) << mode;
    // The faulting product never came to its record; the one after it was not checked.
    EXPECT_EQ(outcomes(left), "clean clean unverified(no_context)") << mode;
    EXPECT_EQ(left.coverage.outstanding, 1u) << mode;
    EXPECT_TRUE(left.coverage.lower_bound) << mode;
  }
}

// The shim has state for so many streams of a context at once (kMaxStreams of shim/context.h), and does not learn that
// one was destroyed.
constexpr int kStreams = kThreadSanitizer ? 8 : 256;

// A stream that is new takes the state of one whose work has ended.
TEST(Streams, ThatComeAndGoAreAllChecked) {
  constexpr int kCount = kStreams + 40;
  const Left native = run(unguarded(process("new_streams", kCount)));
  for (const std::string& failing :
       {std::string(), std::string("shim/cuEventQuery:1"), "shim/cuEventCreate:" + std::to_string(kStreams + 3) + ":2",
        "shim/cuEventRecord:" + std::to_string(kStreams + 44) + "+"}) {
    SCOPED_TRACE(failing);
    const Left left = run(process("new_streams", kCount, {{"HOSTCUDA_FAIL", failing}}));
    EXPECT_EQ(unharmed(left), "");
    EXPECT_EQ(complete(left, kCount), "");
    EXPECT_TRUE(left.result == native.result);
    if (!failing.starts_with("shim/cuEventRecord")) {
      EXPECT_EQ(outcomes(left), times(kCount, "clean"));
    }
  }
}

// Nobody can say of these that their work has ended: products on more of them pass through, and are counted.
TEST(Streams, MoreAtOnceThanThereIsStateForAreCounted) {
  constexpr int kMore = 2;
  const std::string passed = " " + times(kMore, "unverified(no_workspace)");
  const Left native = run(unguarded(process("held_streams", kStreams + kMore)));
  const Left left = run(process("held_streams", kStreams + kMore));
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(complete(left, kStreams + kMore), "");
  EXPECT_TRUE(left.result == native.result);
  EXPECT_EQ(outcomes(left), times(kStreams, "clean") + passed);

  const Left refused = run(process("new_streams", kStreams + kMore, {{"HOSTCUDA_FAIL", "shim/cuEventQuery:*"}}));
  EXPECT_EQ(unharmed(refused), "");
  EXPECT_TRUE(refused.result == native.result);
  EXPECT_EQ(outcomes(refused), times(kStreams, "clean") + passed);
}

}  // namespace
}  // namespace sdcguard::e2e

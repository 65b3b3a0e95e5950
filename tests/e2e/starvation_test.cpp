// SPDX-License-Identifier: MIT
// Adversarial stream order: each stream of a guarded program in turn, its own and the shim's, runs only when nothing
// else can. Whoever relies on luck instead of a wait computes something else: the results, the outcomes and every
// number of the records are those of the run in which no stream starves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "guarded_program.h"

namespace sdcguard::e2e {
namespace {

struct Starved {
  const char* name;
  Program program;
  int streams;           // more than it and the shim make
  bool ordered = false;  // several threads: their calls are numbered anew in every run
};

void PrintTo(const Starved& starved, std::ostream* out) {
  *out << starved.name;
}

// All that the device measured of the calls.
std::vector<std::tuple<uint64_t, Outcome, Reason, uint64_t, float, float, uint64_t>> measured(const Left& left) {
  decltype(measured(left)) all;
  for (const CallRecord& c : left.calls)
    all.emplace_back(c.call_id, c.outcome, c.reason, c.site, c.sigma, c.worst, c.entries_named);
  return all;
}

class Starvation : public testing::TestWithParam<Starved> {};

TEST_P(Starvation, ChangesNothing) {
  const Starved& starved = GetParam();
  for (const char* mode : {"repair", "observe"}) {
    const Program program = with(starved.program, "SDCGUARD_MODE", mode);
    const Left fed = run(program);
    EXPECT_EQ(unharmed(fed), "") << mode;
    for (int stream = 0; stream < starved.streams; ++stream) {
      SCOPED_TRACE(std::string(mode) + ", stream " + std::to_string(stream));
      const Left left = run(with(program, "HOSTCUDA_STARVE", std::to_string(stream)));
      EXPECT_EQ(unharmed(left), "");
      EXPECT_TRUE(left.result == fed.result);
      EXPECT_EQ(left.coverage.entries_named, 0u);
      if (starved.ordered) {
        EXPECT_EQ(measured(left), measured(fed));
      } else {
        EXPECT_EQ(outcomes(left), outcomes(fed));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Each, Starvation,
    testing::Values(Starved{"mixed", mixed("--rounds 2"), 12, true}, Starved{"steps", scene("steps", 4), 6, true},
                    Starved{"nonfinite", scene("nonfinite", 2), 6, true}, Starved{"graph", scene("graph", 2), 6, true},
                    Starved{"streams", scene("streams", 2), 14, true}, Starved{"threads", scene("threads", 4), 10},
                    Starved{"per_thread", process("per_thread", 3), 10},
                    Starved{"capture_beside", process("capture_beside", 2), 8},
                    Starved{"graph_on_two", process("graph_on_two", 3), 8, true},
                    Starved{"new_streams", process("new_streams", 4), 12, true},
                    Starved{"devices", process("devices", 2), 8, true}),
    [](const auto& of) { return std::string(of.param.name); });

// A wait of the shim's that is dropped shows under one of the policies, in the result or in a record.
TEST(Starvation_MustFail, ADroppedWaitIsSeen) {
  const Program program = scene("steps", 4);
  const Left fed = run(program);
  for (const char* dropped : {"1", "2", "3", "4"}) {  // fork and join of the first two calls
    bool seen = false;
    for (int stream = 0; stream < 6 && !seen; ++stream) {
      Program starved = with(with(program, "HOSTCUDA_STARVE", std::to_string(stream)), "HOSTCUDA_SKIP_WAIT", dropped);
      const Left left = run(starved);
      seen = left.code != 0 || left.result != fed.result || measured(left) != measured(fed);
    }
    EXPECT_TRUE(seen) << "wait " << dropped;
  }
}

}  // namespace
}  // namespace sdcguard::e2e

// SPDX-License-Identifier: MIT
// The host wins: whatever fails inside the shim, the program ends as it would without it, with the numbers that cuBLAS
// would have given, not a byte on its outputs, and the call counted as unverified with its reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "guarded_program.h"

namespace sdcguard::e2e {
namespace {

constexpr int kCalls = 3;
// Nothing but a cast stands between the redirected product and the result: whether a call was checked or passed
// through, the result has the bits of the unguarded run.
const std::string kSame = "--m 64 --n 64 --k 64 --calls 3";

uint64_t unverified(const Left& left, Reason reason) {
  return left.coverage.unverified[static_cast<size_t>(reason)].calls;
}

// ---- driver calls that fail: what each costs (driver_sweep_test fails all of them in turn) ----------------------

// The calls of one guarded call, failing in turn in the last product, whose result the program shows: that call alone
// is unverified(driver_error), and its result is the library's own, in place too.
TEST(DriverFailure, OfOneCallIsCountedOnce) {
  struct Failing {
    const char* name;
    int first, last;  // within the third of three calls
  };
  const auto each = [](const std::string& arguments, const std::vector<Failing>& failing) {
    const std::string native = run(unguarded(gemm(arguments))).result;
    for (const Failing& one : failing) {
      for (int nth = one.first; nth <= one.last; ++nth) {
        const std::string what = std::string(one.name) + ":" + std::to_string(nth);
        const Left left = run(gemm(arguments, {{"HOSTCUDA_FAIL", what}}));
        EXPECT_EQ(unharmed(left), "") << what;
        EXPECT_EQ(complete(left, kCalls), "") << what;
        EXPECT_EQ(outcomes(left), "clean clean unverified(driver_error)") << what;
        EXPECT_EQ(left.ring.driver_errors, 1u) << what;
        EXPECT_TRUE(left.result == native) << what;
      }
    }
  };
  // Launches: five a fused call, six in place. Two records, and the wait that forks; the one that joins is below.
  each(kSame, {{"cuLaunchKernel", 11, 15}, {"cuEventRecord", 5, 6}, {"cuStreamWaitEvent", 5, 5}});
  each(kSame + " --beta 1 --alpha 0.5", {{"cuLaunchKernel", 13, 18}});
}

// The join itself fails: the one permitted wait on the host keeps the program's operands safe.
TEST(DriverFailure, OfTheJoinIsWaitedFor) {
  const std::string native = run(unguarded(scene("steps", 3))).result;
  for (const char* starved : {"1", "3"}) {  // the program's stream, the side stream
    for (const char* failing : {"cuStreamWaitEvent:2", "cuStreamWaitEvent:4", "cuEventRecord:2", "cuEventRecord:4"}) {
      const Left left = run(scene("steps", 3, {{"HOSTCUDA_FAIL", failing}, {"HOSTCUDA_STARVE", starved}}));
      EXPECT_EQ(unharmed(left), "") << failing;
      EXPECT_TRUE(left.result == native) << failing;
      EXPECT_EQ(complete(left, 3), "") << failing;
      EXPECT_EQ(left.coverage.entries_named, 0u) << failing;
      EXPECT_EQ(left.coverage.lines_dirty, 0u) << failing;
    }
  }
  // Not even that: the call is unverified, and so is every later one of the stream, whose scratch may still be written.
  // Waits on the host belong to warm-up; the next one after those is the join's.
  int waits = 0;
  for (const TracedCall& call : run(scene("steps", 3), {.driver_calls = true}).trace) {
    waits += !call.runtime && call.name == "cuStreamSynchronize" ? 1 : 0;
  }
  const std::string failing = "cuStreamWaitEvent:4,cuStreamSynchronize:" + std::to_string(waits + 1);
  const Left left = run(scene("steps", 3, {{"HOSTCUDA_FAIL", failing}}));
#ifdef __SANITIZE_THREAD__
  // Nothing orders the pass over the operand before the program's next write to it: that must be named.
  EXPECT_EQ(left.code, 66) << left.errors;
#else
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(outcomes(left), "clean unverified(driver_error) unverified(driver_error)");
#endif
}

// ---- what cuBLAS refuses ----------------------------------------------------------------------------------------

TEST(Refused, NoFp32OutputIsRememberedAndCheckedAsDelivered) {
  const std::map<std::string, std::string> settings = {{"HOSTCUDA_NOT_SUPPORTED", "16->32"}};
  for (const char* api : {"gemmex", "lt", "strided"}) {
    const std::string arguments = kSame + " --api " + api;
    const Left left = run(gemm(arguments, settings));
    EXPECT_EQ(unharmed(left), "") << api;
    EXPECT_EQ(complete(left, kCalls), "") << api;
    EXPECT_TRUE(left.result == run(unguarded(gemm(arguments))).result) << api;
    EXPECT_EQ(outcomes(left), "unverified(upgrade_refused) clean clean") << api;
    for (size_t i = 1; i < left.calls.size(); ++i) {
      EXPECT_EQ(left.calls[i].plan, Plan::kBlockSums) << api;
      EXPECT_EQ(left.calls[i].upgraded, 0) << api;
    }
  }
}

// ---- places where nothing can be checked -----------------------------------------------------------------------

TEST(Capture, PassesThroughAndTheGraphReplays) {
  const Left left = run(scene("graph", 3));
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(complete(left, 3), "");
  EXPECT_EQ(outcomes(left), "clean unverified(capture) clean");
  EXPECT_TRUE(left.result == run(unguarded(scene("graph", 3))).result);
}

// The program's one handle was made without a warm-up, as by a creation that passed the shim by.
TEST(Cold, AContextThatWasNotWarmedIsColdOnce) {
  const Left left = run(scene("steps", 4, {{"HOSTCUDA_FAIL", "cuCtxGetCurrent:1"}}));
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(complete(left, 4), "");
  EXPECT_EQ(outcomes(left), "unverified(cold) clean clean clean");
  EXPECT_TRUE(left.result == run(unguarded(scene("steps", 4))).result);
}

TEST(Workspace, OverItsCapTheProductIsCheckedAsDelivered) {
  // 1 MiB holds the probe of a 64 x 64 product and no more.
  const std::string arguments = "--m 512 --n 384 --k 32 --calls 2";
  const Left left = run(gemm(arguments, {{"SDCGUARD_WORKSPACE", "1 MiB"}}));
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(complete(left, 2), "");
  EXPECT_TRUE(left.result == run(unguarded(gemm(arguments))).result);
  for (const CallRecord& call : left.calls) {
    EXPECT_EQ(call.upgraded, 0);
    EXPECT_TRUE(call.outcome == Outcome::kClean || call.reason == Reason::kNoWorkspace) << outcomes(left);
  }
  // In place it cannot be.
  const std::string in_place = arguments + " --beta 1";
  const Left other = run(gemm(in_place, {{"SDCGUARD_WORKSPACE", "1 MiB"}}));
  EXPECT_EQ(outcomes(other), times(2, "unverified(no_workspace)"));
  EXPECT_TRUE(other.result == run(unguarded(gemm(in_place))).result);
}

// ---- configuration and ring --------------------------------------------------------------------------------------

TEST(Configuration, AWrongValueIsOneLineAndNoGuard) {
  const std::string native = run(unguarded(gemm(kSame))).result;
  const std::pair<const char*, const char*> wrong[] = {
      {"SDCGUARD_EVERY", "0"},        {"SDCGUARD_MODE", "fix"},         {"SDCGUARD_SEED", "many"},
      {"SDCGUARD_WORKSPACE", "some"}, {"SDCGUARD_RING_DIR", "nowhere"}, {"SDCGUARD_CONFIG", "/no/such/file.toml"}};
  for (const auto& [name, value] : wrong) {
    const Left left = run(gemm(kSame, {{name, value}}), {.driver_calls = true});
    EXPECT_EQ(left.code, 0) << name;
    EXPECT_EQ(left.printed, "") << name;
    EXPECT_EQ(std::count(left.errors.begin(), left.errors.end(), '\n'), 1) << left.errors;
    EXPECT_EQ(left.errors.find("sdcguard: "), 0u) << left.errors;
    EXPECT_NE(left.errors.find("this program runs unguarded\n"), std::string::npos) << left.errors;
    EXPECT_NE(left.errors.find(name == std::string("SDCGUARD_CONFIG") ? value : name), std::string::npos)
        << left.errors;
    EXPECT_TRUE(left.result == native) << name;
    EXPECT_EQ(left.rings, 0) << name;
    for (const TracedCall& call : left.trace) EXPECT_TRUE(call.runtime) << call.name;
  }
}

// Where no ring can be had checks and repairs go on, unreported.
TEST(Ring, WithoutOneFaultsAreStillRepaired) {
  const std::string arguments = "--m 128 --n 128 --k 128";
  const std::map<std::string, std::string> faults = {
      {"HOSTCUDA_FAULTS", "[[fault]]\nkind = \"accumulator\"\nbits = 29\ncount = 3\n"}};
  const Left clean = run(gemm(arguments));
  Program full = gemm(arguments, faults);
  full.preload_before = std::string(SDCGUARD_BUILD_DIR) + "/clients/libfull_disk.so";
  Program limited = gemm(arguments, faults);
  limited.file_size_limit = 1 << 20;
  for (const Program& program : {with(gemm(arguments, faults), "SDCGUARD_RING_DIR", "/proc/none"),
                                 with(gemm(arguments, faults), "SDCGUARD_RING_DIR", "/dev/null"), full, limited}) {
    const Left left = run(program, {.injections = true});
    EXPECT_EQ(unharmed(left), "");
    EXPECT_EQ(left.rings, 0);
    // Three exponents were hit: unrepaired they would be wrong by far more than their bound.
    ASSERT_EQ(left.injected.size(), 3u);
    EXPECT_EQ(repaired_like(left, clean.result, {DataType::kBF16, 128, 128}), "");
  }
  const Left wrong = run(unguarded(gemm(arguments, faults)), {.injections = true});
  EXPECT_NE(repaired_like(wrong, clean.result, {DataType::kBF16, 128, 128}), "");
}

TEST(Fork, AChildThatUsesNothingLeavesAsItCame) {
  const Left left = run(scene("forks", 3));
  EXPECT_EQ(unharmed(left), "");
  EXPECT_EQ(complete(left, 3), "");
  EXPECT_EQ(outcomes(left), times(3, "clean"));
  EXPECT_TRUE(left.result == run(unguarded(scene("forks", 3))).result);
}

TEST(Silence, TheProgramsOwnOutputIsAllThereIs) {
  const Left left = run(gemm(kSame + " --check"));
  const Left native = run(unguarded(gemm(kSame + " --check")));
  EXPECT_EQ(left.code, 0);
  EXPECT_EQ(left.printed, native.printed);
  EXPECT_EQ(left.errors, "");
  EXPECT_EQ(unverified(left, Reason::kDriverError), 0u);
}

}  // namespace
}  // namespace sdcguard::e2e

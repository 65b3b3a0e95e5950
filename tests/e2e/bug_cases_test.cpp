// SPDX-License-Identifier: MIT
// Bugs of matrix products that were reported in public, each by the behaviour that the shim must show: CATCH names the
// wrong entries and repairs them, QUIET names nothing, SKIP counts the call as not verified, with the reason. Each case
// is widened by its siblings: other shapes, types, layouts and entry points of the same kind.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "guarded_program.h"

namespace sdcguard::e2e {
namespace {

using Settings = std::map<std::string, std::string>;

// The client random_calls with one call: tests/e2e/clients/random_calls/call.h has the words of the description.
Program one_call(const std::string& description, Settings settings = {}, std::vector<std::string> more = {}) {
  Program program;
  program.path = std::string(SDCGUARD_BUILD_DIR) + "/clients/random_calls";
  program.arguments = {"--call", description};
  program.arguments.insert(program.arguments.end(), more.begin(), more.end());
  program.settings = std::move(settings);
  return program;
}

Program scene_of(const std::string& name, Settings settings = {}, int count = 1) {
  Program program;
  program.path = std::string(SDCGUARD_BUILD_DIR) + "/clients/bug_scenes";
  program.arguments = {name, "DUMP", std::to_string(count)};
  program.settings = std::move(settings);
  return program;
}

std::string value_of(const std::string& line, const std::string& key) {
  const size_t at = line.find(key + "=");
  if (at == std::string::npos) return "";
  const size_t from = at + key.size() + 1;
  return line.substr(from, line.find_first_of(" \n", from) - from);
}

// Of the last line: largest distance from the exact result over its bound, and the library's status.
double ratio(const Left& left) {
  const size_t bar = left.printed.rfind(" | ");
  const std::string text = bar == std::string::npos ? "" : value_of(left.printed.substr(bar), "ratio");
  return text.empty() ? HUGE_VAL : std::stod(text);
}
std::string status(const Left& left) {
  const size_t bar = left.printed.rfind(" | ");
  return bar == std::string::npos ? "" : value_of(left.printed.substr(bar), "status");
}

std::string all_but_printed(Left left) {
  left.printed.clear();
  return unharmed(left);
}

// QUIET in every mode: the call is checked, nothing is named, the result is right, and observe leaves it bit for bit.
// observed: the outcome in observe where it is not clean; "*": checked there or not.
void expect_quiet(const std::string& description, Settings settings = {}, const std::string& observed = "") {
  SCOPED_TRACE(description);
  const Left bare = run(unguarded(one_call(description, settings)));
  EXPECT_LE(ratio(bare), 1.0) << bare.printed;
  for (const char* mode : {"observe", "detect", "repair"}) {
    SCOPED_TRACE(mode);
    settings["SDCGUARD_MODE"] = mode;
    const Left left = run(one_call(description, settings));
    EXPECT_EQ(all_but_printed(left), "");
    EXPECT_EQ(complete(left, 1), "");
    EXPECT_EQ(status(left), "0");
    EXPECT_TRUE(left.faults.empty());
    EXPECT_LE(ratio(left), 1.0) << left.printed;
    ASSERT_EQ(left.calls.size(), 1u);
    if (mode[0] == 'o') {
      EXPECT_EQ(left.printed, bare.printed);
      if (!observed.empty()) {
        if (observed != "*") {
          EXPECT_EQ(outcomes(left), observed);
        }
        continue;
      }
    }
    const Outcome outcome = left.calls[0].outcome;
    EXPECT_TRUE(outcome == Outcome::kClean || (outcome == Outcome::kBenign && left.calls[0].plan == Plan::kRecompute))
        << outcomes(left);
  }
}

// CATCH in every mode: wrong unguarded, named in each mode, right again in repair. Gives the run in repair.
Left expect_caught(const std::string& description, const std::string& faults, Settings settings = {}) {
  SCOPED_TRACE(description);
  settings["HOSTCUDA_FAULTS"] = faults;
  const Left bare = run(unguarded(one_call(description, settings)));
  EXPECT_GT(ratio(bare), 1.0) << bare.printed;
  Left left;
  for (const char* mode : {"observe", "detect", "repair"}) {
    SCOPED_TRACE(mode);
    settings["SDCGUARD_MODE"] = mode;
    left = run(one_call(description, settings), {.injections = true});
    EXPECT_EQ(all_but_printed(left), "");
    EXPECT_EQ(complete(left, 1), "");
    EXPECT_EQ(outcomes(left), mode[0] == 'r' ? "corrected" : "corrupt");
    EXPECT_GT(left.coverage.entries_named, 0u);
  }
  // A wrong entry that is not named lies within the entry bound of a right one, which may be off by as much.
  EXPECT_LE(ratio(left), 2.0) << left.printed;
  return left;
}

// SKIP: not verified for this reason, in every mode, the program's affair untouched.
void expect_skipped(const std::string& description, const std::string& reason, Settings settings = {}) {
  SCOPED_TRACE(description);
  const Left bare = run(unguarded(one_call(description, settings, {"--no-exact"})));
  for (const char* mode : {"observe", "detect", "repair"}) {
    settings["SDCGUARD_MODE"] = mode;
    const Left left = run(one_call(description, settings, {"--no-exact"}));
    EXPECT_EQ(all_but_printed(left), "");
    EXPECT_EQ(outcomes(left), "unverified(" + reason + ")") << mode;
    EXPECT_EQ(left.printed, bare.printed);
  }
}

using Place = std::tuple<int64_t, int64_t, int64_t>;  // batch entry, row, column

std::set<Place> named(const Left& left) {
  std::set<Place> places;
  for (const FaultRecord& fault : left.faults) places.insert({fault.batch, fault.row, fault.column});
  return places;
}

// Injected ones beyond their bound: what must be named, and no other.
std::set<Place> injected(const Left& left) {
  std::set<Place> places;
  for (const Injected& one : left.injected) {
    if (one.above_bound || !one.written) places.insert({one.batch, one.row, one.column});
  }
  return places;
}

std::string fault(const std::string& keys) {
  return "seed = 3\n[[fault]]\nproducts = 0\n" + keys + "\n";
}

// CATCH. Tall matrices of ones: every row from some power of two on is not written.
TEST(BugCases, P01TallMatrixRowsBeyondALimit) {
  for (const auto& [limit, beyond] : {std::pair<int64_t, int64_t>{4096, 1}, {2048, 700}}) {
    const int64_t rows = limit + beyond;
    for (const char* call : {"cublasSgemm_v2 types=f32,f32,f32,f32", "cublasGemmEx types=f16,f16,f16,f16",
                             "cublasGemmEx_64 types=bf16,bf16,bf16,bf16"}) {
      const std::string description =
          std::string(call) + " shape=2x" + std::to_string(rows) + "x2xnnx1 data=ones,ones,gauss";
      expect_quiet(description);
      const Left left = expect_caught(description, fault("kind = \"skip\"\nrow = 0\ncol = " + std::to_string(limit) +
                                                         "\nrows = 2\ncols = " + std::to_string(beyond)));
      for (const FaultRecord& one : left.faults) EXPECT_GE(one.column, limit);
      EXPECT_EQ(left.coverage.entries_named, static_cast<uint64_t>(2 * beyond));
    }
  }
}

// CATCH. A batch of more than 65,535: what lies beyond is NaN, or zero.
TEST(BugCases, P02BatchesBeyond65535) {
  // The batch of the report takes the host device a minute: RUN_LARGE=1. Else one past 2^10.
  const bool large = std::getenv("RUN_LARGE") != nullptr;
  const int64_t kBatch = large ? 65536 + 64 : 1024 + 64, kFirst = large ? 65535 : 1023;
  const std::string description =
      "cublasGemmStridedBatchedEx types=f16,f16,f16,f16 shape=4x4x4xnnx" + std::to_string(kBatch);
  for (const char* kind : {"kind = \"nan\"\n", "kind = \"word\"\nvalue = 0\n"}) {
    std::string faults = "seed = 3\n";
    for (const int64_t entry : {kFirst, kFirst + 1, kBatch - 1}) {
      faults += "[[fault]]\nproducts = 0\ncount = 16\nentry = " + std::to_string(entry) + "\n" + kind;
    }
    SCOPED_TRACE(faults);
    const Left left = run(one_call(description, {{"HOSTCUDA_FAULTS", faults}}), {.injections = true});
    EXPECT_EQ(all_but_printed(left), "");
    EXPECT_EQ(outcomes(left), "corrected");
    EXPECT_LE(ratio(left), 1.0);
    EXPECT_EQ(named(left), injected(left));
    EXPECT_GE(named(left).size(), 40u);
  }
}

// CATCH. A tiny product that is zero.
TEST(BugCases, P03TinyProductIsZero) {
  for (const char* call : {"cublasSgemm_v2 types=f32,f32,f32,f32", "cublasGemmEx types=bf16,bf16,bf16,bf16",
                           "cublasGemmEx types=f16,f16,f32,f32", "cublasLtMatmul types=f32,f32,f32,f32"}) {
    for (const char* shape : {"2x2x2xnnx1", "1x1x1xnnx1", "3x5x2xtnx1"}) {
      const Left left = expect_caught(std::string(call) + " data=positive,positive,gauss shape=" + shape,
                                      fault("kind = \"word\"\nvalue = 0\ncount = 15"));
      EXPECT_EQ(named(left), injected(left));
    }
  }
}

// CATCH. One device of a node computes wrong: it is named by its UUID, the other is clean.
TEST(BugCases, P04OneDeviceOfTwo) {
  const std::string description = "cublasSgemm_v2 shape=20x500x500xnnx1 data=positive,positive,gauss";
  const Settings settings = {
      {"HOSTCUDA_DEVICES", "2"},
      {"HOSTCUDA_FAULTS", "seed = 4\n[[fault]]\nkind = \"output\"\nbits = \"19..21\"\ncount = 3\ndevice = 1\n"}};
  const auto uuid_of = [](const Left& left) {
    for (const DeviceSeen& seen : left.ring.devices) {
      if (!left.calls.empty() && seen.slot == left.calls[0].device) return seen.uuid;
    }
    return std::string();
  };
  std::string uuids[2];
  for (const int device : {0, 1}) {
    const Left left = run(one_call(description, settings, {"--repeat", "10", "--device", std::to_string(device)}),
                          {.injections = true});
    EXPECT_EQ(all_but_printed(left), "");
    EXPECT_EQ(outcomes(left), times(10, device == 0 ? "clean" : "corrected"));
    EXPECT_LE(ratio(left), 1.0);
    uuids[device] = uuid_of(left);
    for (const FaultRecord& one : left.faults) EXPECT_EQ(one.device, left.calls[0].device);
    EXPECT_EQ(left.faults.empty(), device == 0);
  }
  EXPECT_EQ(uuids[0].substr(0, 4), "GPU-");
  EXPECT_NE(uuids[0], uuids[1]);
  // Under another number it is the same device.
  const std::string by_uuid =
      "seed = 4\n[[fault]]\nkind = \"output\"\nbits = \"19..21\"\ndevice = \"" + uuids[1] + "\"\n";
  const Left moved = run(
      one_call(description, {{"HOSTCUDA_DEVICES", "2"}, {"CUDA_VISIBLE_DEVICES", "1"}, {"HOSTCUDA_FAULTS", by_uuid}}));
  EXPECT_EQ(outcomes(moved), "corrected");
  EXPECT_EQ(uuid_of(moved), uuids[1]);
}

// CATCH. A scale factor is not applied: every entry is off by the same ratio, which the records show.
TEST(BugCases, P05ScaleIsIgnored) {
  for (const char* call :
       {"cublasLtMatmul types=e4m3,e4m3,bf16,bf16 scales=ab- shape=64x48x64xtnx1",
        "cublasLtMatmul types=e5m2,e4m3,f32,f32 scales=a-- shape=128x40x96xtnx1",
        "cublasGemmEx types=bf16,bf16,bf16,bf16 shape=64x48x64xnnx1", "cublasSgemm_v2 shape=65x80x33xttx1"}) {
    for (const double factor : {4.0, 0.25}) {
      const Left left =
          expect_caught(call, fault("kind = \"all\"\nfactor = " + std::string(factor > 1 ? "4.0" : "0.25")));
      EXPECT_EQ(left.calls[0].lines_dirty, left.calls[0].lines);
      // An entry near zero may hide in its bound; of the named ones the ratio is one number.
      EXPECT_GT(left.coverage.entries_named * 10, left.injected.size() * 9);
      for (const FaultRecord& one : left.faults) {
        const double allowed = 2 * static_cast<double>(one.bound) * std::fmax(1, factor);
        EXPECT_NEAR(static_cast<double>(one.got), factor * static_cast<double>(one.expected), allowed);
      }
    }
  }
}

// CATCH. Output tiles of the device's waves are not written.
TEST(BugCases, P06TilesAreMissing) {
  constexpr int64_t kTile = 64;
  for (const char* call : {"cublasGemmEx types=bf16,bf16,bf16,bf16", "cublasGemmEx types=f16,f16,f16,f16",
                           "cublasLtMatmul types=bf16,bf16,bf16,bf16"}) {
    for (const char* shape : {"256x192x64xtnx1", "250x190x65xtnx1"}) {
      std::string faults = "seed = 3\n";
      for (const auto& [row, col] : {std::pair<int64_t, int64_t>{64, 0}, {192, 128}}) {
        faults += "[[fault]]\nkind = \"skip\"\nproducts = 0\nrows = 64\ncols = 64\nrow = " + std::to_string(row) +
                  "\ncol = " + std::to_string(col) + "\n";
      }
      const Left left = expect_caught(std::string(call) + " shape=" + shape, faults);
      // Whole tiles, and nothing outside them.
      std::set<std::pair<int64_t, int64_t>> tiles;
      for (const FaultRecord& one : left.faults) tiles.insert({one.row / kTile, one.column / kTile});
      EXPECT_EQ(tiles, (std::set<std::pair<int64_t, int64_t>>{{1, 0}, {3, 2}}));
    }
  }
}

// QUIET. C is never read where beta is 0, +0 or -0, on the host or the device.
TEST(BugCases, P07UninitialisedC) {
  for (const char* call :
       {"cublasSgemm_v2 types=f32,f32,f32,f32", "cublasGemmEx types=bf16,bf16,bf16,bf16",
        "cublasGemmEx types=bf16,bf16,f32,f32", "cublasLtMatmul types=bf16,bf16,bf16,bf16 addend=apart"}) {
    for (const char* scalars : {"1,0", "1,-0"}) {
      for (const char* pointers : {"host", "device"}) {
        expect_quiet(std::string(call) + " shape=64x64x64xnnx1 scalars=" + scalars + " pointers=" + pointers);
      }
    }
  }
  // The host never waits for the device to know beta.
  const auto waits = [](const char* calls) {
    const Left left = run(one_call("cublasSgemm_v2 shape=64x64x64xnnx1 pointers=device", {}, {"--repeat", calls}),
                          {.driver_calls = true});
    int count = 0;
    for (const TracedCall& call : left.trace) {
      const bool waiting =
          call.name.find("DtoH") != std::string::npos || call.name.find("ynchronize") != std::string::npos;
      if (waiting && !call.runtime) ++count;
    }
    return count;
  };
  EXPECT_EQ(waits("1"), waits("4"));
}

// QUIET. k = 0 is beta C, m = 0 or n = 0 touches nothing; the call says that it had nothing to check.
TEST(BugCases, P08EmptyProducts) {
  for (const char* mode : {"observe", "detect", "repair"}) {
    const Left left = run(scene_of("empty", {{"SDCGUARD_MODE", mode}}));
    EXPECT_EQ(unharmed(left), "");
    EXPECT_EQ(outcomes(left), times(12, "unverified(empty)"));
    EXPECT_TRUE(left.result == run(unguarded(scene_of("empty"))).result);
    for (const char* call : {"cublasSgemm_v2", "cublasDgemm_v2 types=f64,f64,f64,f64 scale=f64 compute=64F",
                             "cublasGemmEx types=bf16,bf16,bf16,bf16", "cublasSgemmStridedBatched", "cublasLtMatmul"}) {
      for (const char* shape : {"3x3x0xnnx1", "65x33x0xttx1", "0x4x5xnnx1", "4x0x5xnnx1"}) {
        const Left one = run(one_call(std::string(call) + " scalars=1,0.5 shape=" + shape, {{"SDCGUARD_MODE", mode}}));
        EXPECT_EQ(all_but_printed(one), "");
        EXPECT_EQ(outcomes(one), "unverified(empty)") << one.printed;
        EXPECT_EQ(status(one), "0") << one.printed;
        EXPECT_LE(ratio(one), 1.0) << one.printed;
        EXPECT_EQ(value_of(one.printed, "changed"), "0");
      }
    }
  }
}

// QUIET with stride 0 on A or B, SKIP on an output that lies on itself.
TEST(BugCases, P09StrideZero) {
  for (const char* spread :
       {"zero,apart,apart", "apart,zero,apart", "zero,zero,apart", "interleaved,zero,interleaved"}) {
    for (const char* call :
         {"cublasSgemmStridedBatched", "cublasGemmStridedBatchedEx types=bf16,bf16,bf16,bf16", "cublasLtMatmul"}) {
      for (const char* shape : {"16x16x16xnnx8", "40x24x33xtnx5"}) {
        expect_quiet(std::string(call) + " shape=" + shape + " spread=" + spread);
      }
    }
  }
  for (const char* call : {"cublasSgemmStridedBatched", "cublasGemmStridedBatchedEx types=f16,f16,f16,f16"}) {
    expect_skipped(std::string(call) + " shape=16x16x16xnnx8 spread=apart,apart,zero", "overlapping_output");
  }
}

// QUIET. FP8 results with and without a D scale, scalar and vector scales of A and B, amax.
TEST(BugCases, P10Fp8Scales) {
  for (const char* types : {"e4m3,e4m3,bf16,e4m3", "e4m3,e5m2,f16,e5m2", "e5m2,e4m3,bf16,e4m3"}) {
    for (const char* scales : {"---", "--d", "abd"}) {
      expect_quiet("cublasLtMatmul shape=16x16x16xtnx1 data=integers,integers,gauss addend=apart amax=1 types=" +
                       std::string(types) + " scales=" + scales,
                   {}, "*");
      expect_quiet("cublasLtMatmul shape=96x50x64xtnx1 data=positive,gauss,gauss addend=null types=" +
                       std::string(types) + " scales=" + scales,
                   {}, "*");
    }
  }
  for (const char* types : {"e4m3,e4m3,bf16,bf16", "e4m3,e5m2,f32,f32"}) {
    for (const char* scales : {"---", "ab-", "ab-o"}) {
      expect_quiet("cublasLtMatmul shape=64x48x64xtnx1 types=" + std::string(types) + " scales=" + scales, {}, "*");
    }
  }
}

// SKIP. Block scales, FP8 and FP4: a device that has them does the product and the shim leaves it, not verified for
// that reason; one that has not refuses it, the status passes, nothing is written.
TEST(BugCases, P11BlockScales) {
  const size_t record = 1 + 128 * 128 * sizeof(float);  // a status and D
  for (const bool has_them : {false, true}) {
    const Settings device = {{"HOSTCUDA_ORDER", has_them ? "b200" : "h100"}};
    const Left bare = run(unguarded(scene_of("block_scales", device)));
    EXPECT_EQ(unharmed(bare), "");
    ASSERT_EQ(bare.result.size(), 2 * record);
    for (const size_t product : {0, 1}) EXPECT_EQ(bare.result[product * record] == 0, has_them);
    for (const char* mode : {"observe", "detect", "repair"}) {
      Settings settings = device;
      settings["SDCGUARD_MODE"] = mode;
      const Left left = run(scene_of("block_scales", settings));
      EXPECT_EQ(unharmed(left), "");
      EXPECT_TRUE(left.result == bare.result);
      ASSERT_EQ(left.calls.size(), 2u);
      for (const CallRecord& call : left.calls) {
        EXPECT_EQ(call.outcome, Outcome::kUnverified);
        EXPECT_EQ(call.reason, Reason::kBlockScale);
      }
    }
  }
}

// QUIET. FP8 with fast accumulation keeps 13 bits: 256 where the exact sum is 257.98.
TEST(BugCases, P12Fp8FastAccumulation) {
  for (const char* types : {"e4m3,e4m3,f32,f32", "e4m3,e4m3,bf16,bf16"}) {
    const std::string description =
        "cublasLtMatmul shape=16x16x4096xtnx1 data=ladder,ladder_ones,gauss types=" + std::string(types);
    expect_quiet(description + " fast=1", {}, "*");
    expect_quiet(description + " fast=0", {}, "*");
  }
}

// QUIET. Split-K keeps its partial results in 16 bits where the handle lets it: coarser, and not the hardware's fault.
// A library that does so against the handle's word is seen.
TEST(BugCases, P13PartialResultsIn16Bits) {
  for (const char* type : {"bf16", "f16"}) {
    for (const char* shape : {"256x64x4096xnnx1", "192x96x1024xtnx2"}) {
      const auto call = [&](const char* math) {
        const std::string four = std::string(type) + "," + type + "," + type + "," + type;
        return std::string("cublasGemmStridedBatchedEx types=") + four + " shape=" + shape + " math=" + math;
      };
      SCOPED_TRACE(call("default"));
      const Settings coarse = {{"HOSTCUDA_ORDER", "h100/split6x16"}};
      // There is something to be quiet about: the bits are others.
      EXPECT_FALSE(run(unguarded(one_call(call("default"), coarse))).printed ==
                   run(unguarded(one_call(call("whole"), coarse))).printed);
      for (const char* mode : {"observe", "detect", "repair"}) {
        for (const char* upgrade : {"call", "off"}) {
          SCOPED_TRACE(std::string(mode) + " " + upgrade);
          Settings settings = coarse;
          settings["SDCGUARD_MODE"] = mode;
          settings["SDCGUARD_UPGRADE"] = upgrade;
          const Left left = run(one_call(call("default"), settings));
          EXPECT_EQ(left.errors, "");
          ASSERT_EQ(left.calls.size(), 1u);
          EXPECT_EQ(left.coverage.entries_named, 0u);
          EXPECT_TRUE(left.calls[0].outcome == Outcome::kClean || left.calls[0].outcome == Outcome::kBenign)
              << outcomes(left);
        }
      }
    }
  }
  // Products that cancel show it most: quiet where the handle allows it, seen where it does not.
  const Settings observe = {{"SDCGUARD_MODE", "observe"}, {"HOSTCUDA_ORDER", "h100/split6x16"}};
  const Settings broken = {{"SDCGUARD_MODE", "observe"}, {"HOSTCUDA_ORDER", "h100/split6x16always"}};
  const Left allowed = run(scene_of("cancelling", observe, 0));
  EXPECT_EQ(allowed.coverage.entries_named, 0u);
  EXPECT_TRUE(outcomes(allowed) == "clean" || outcomes(allowed) == "benign") << outcomes(allowed);
  EXPECT_EQ(outcomes(run(scene_of("cancelling", observe, 1))), "clean");  // kept whole, as the handle says
  EXPECT_EQ(outcomes(run(scene_of("cancelling", broken, 1))), "corrupt");
}

// QUIET. Runs differ from each other in their order of accumulation, on four streams of one handle.
TEST(BugCases, P14OrdersDiffer) {
  std::set<std::string> results;
  for (const char* order : {"h100", "h100/split4", "rounded16/split8", "sequential"}) {
    for (const char* mode : {"observe", "repair"}) {
      SCOPED_TRACE(std::string(order) + " " + mode);
      const Left left = run(scene_of("streams", {{"HOSTCUDA_ORDER", order}, {"SDCGUARD_MODE", mode}}, 2));
      EXPECT_EQ(unharmed(left), "");
      EXPECT_EQ(complete(left, 16), "");
      EXPECT_EQ(outcomes(left), times(16, "clean"));
      results.insert(left.result);
    }
  }
  EXPECT_GE(results.size(), 3u);  // else there is nothing to be quiet about
}

// SKIP. Captured products: the capture and every replay as without the shim, counted as such.
TEST(BugCases, P15Capture) {
  const Left bare = run(unguarded(scene_of("capture", {}, 20)));
  EXPECT_EQ(unharmed(bare), "");
  for (const char* mode : {"observe", "detect", "repair"}) {
    const Left left = run(scene_of("capture", {{"SDCGUARD_MODE", mode}}, 20));
    EXPECT_EQ(unharmed(left), "");
    EXPECT_TRUE(left.result == bare.result);
    EXPECT_EQ(outcomes(left), times(4, "unverified(capture)"));
  }
}

// QUIET and CATCH. Outputs past 2^31 elements, by columns and by batches, and a wrong entry there.
TEST(BugCases, P16PastTwoToThe31) {
  struct Scene {
    const char* name;
    int64_t entry, column;  // where the fault goes, past 2^31 elements
  };
  for (const Scene& scene :
       {Scene{"far_columns", 0, 39}, Scene{"far_columns_f32", 0, 38}, Scene{"far_batches", 3, 39}}) {
    SCOPED_TRACE(scene.name);
    for (const char* mode : {"observe", "repair"}) {
      const Left left = run(scene_of(scene.name, {{"SDCGUARD_MODE", mode}}));
      EXPECT_EQ(unharmed(left), "");
      EXPECT_EQ(outcomes(left), "clean");
    }
    const std::string faults = fault("kind = \"output\"\nbits = 29\nrow = 47\ncol = " + std::to_string(scene.column) +
                                     "\nentry = " + std::to_string(scene.entry));
    EXPECT_EQ(run(unguarded(scene_of(scene.name, {{"HOSTCUDA_FAULTS", faults}}))).code, 1);
    const Left left = run(scene_of(scene.name, {{"HOSTCUDA_FAULTS", faults}}));
    EXPECT_EQ(unharmed(left), "");
    EXPECT_EQ(outcomes(left), "corrected");
    EXPECT_EQ(named(left), (std::set<Place>{{scene.entry, 47, scene.column}}));
  }
}

// The call is what was asked for, the framework is wrong: QUIET on a right result, SKIP on what the library refuses.
TEST(BugCases, P17TheFrameworkIsWrong) {
  for (const char* types : {"f32,f32,f32,f32 bias=f32", "bf16,bf16,bf16,bf16 bias=bf16", "f16,f16,f16,f16 bias=f16"}) {
    expect_quiet("cublasLtMatmul shape=8x8x8xnnx1 epilogue=bias data=zero,gauss,gauss types=" + std::string(types));
  }
  expect_skipped("cublasGemmEx shape=32x32x32xnnx1 types=f32,f32,f64,f64", "unsupported_type");
  expect_skipped("cublasGemmEx shape=32x32x32xnnx1 types=bf16,f16,f32,f32", "unsupported_type");
  // A leading dimension that is too small: the library's status, D unread and unwritten.
  for (const char* call : {"cublasSgemm_v2", "cublasGemmEx types=bf16,bf16,bf16,bf16", "cublasLtMatmul"}) {
    const std::string description = std::string(call) + " shape=32x32x32xnnx1 pad=0,0,-1,-1";
    expect_skipped(description, "product_failed");
    const Left left = run(one_call(description, {}, {"--no-exact"}));
    EXPECT_EQ(status(left), "7");
    EXPECT_EQ(value_of(left.printed, "changed"), "0");
  }
}

// QUIET. What is not finite by right, and what is wrong among it.
TEST(BugCases, P18NonFinite) {
  for (const char* call : {"cublasSgemm_v2 types=f32,f32,f32,f32", "cublasGemmEx types=bf16,bf16,bf16,bf16",
                           "cublasGemmEx types=f16,f16,f32,f32", "cublasLtMatmul types=f16,f16,f16,f16"}) {
    for (const char* data : {"nan,gauss,gauss", "gauss,nan,gauss", "inf,gauss,gauss", "gauss,inf,gauss"}) {
      const std::string description = std::string(call) + " shape=64x48x40xtnx1 data=" + data;
      expect_quiet(description);
      // The other lines are still checked.
      const Left left =
          run(one_call(description, {{"HOSTCUDA_FAULTS", fault("kind = \"output\"\nbits = 29\ncount = 6")}}),
              {.injections = true});
      EXPECT_EQ(outcomes(left), "corrected");
      for (const Place& place : named(left)) EXPECT_EQ(injected(left).count(place), 1u);
    }
  }
  // 65,536 times two ones is beyond FP16: an infinity by right, on its own side.
  const std::string beyond =
      "cublasGemmEx types=f16,f16,f16,f16 shape=64x64x2xnnx1 scalars=65536,0 data=ones,ones,gauss";
  expect_quiet(beyond, {}, "benign");  // as delivered an infinity has no sum: its line is looked at
  for (const char* kind : {"kind = \"word\"\nvalue = -2", "kind = \"word\"\nvalue = 0.25", "kind = \"nan\""}) {
    expect_caught(beyond, fault(std::string(kind) + "\nrow = 3\ncol = 4"));
  }
}

// Integers wrap by right, and one unit of one entry is a fault.
TEST(BugCases, P18Integers) {
  // 135,200 products of 127 or -128 with 127 or -128 are beyond 2^31.
  expect_quiet(
      "cublasGemmEx types=i8,i8,i32,i32 compute=32I scale=i32 shape=4x4x135200xtnx1 "
      "data=constant,constant,gauss");
  for (const char* call : {"cublasGemmEx", "cublasGemmEx_64", "cublasLtMatmul"}) {
    const std::string integers = std::string(call) + " types=i8,i8,i32,i32 compute=32I scale=i32 ";
    for (const char* shape : {"64x48x32xtnx1", "4x4x4xtnx1", "100x33x128xtnx1"}) {
      expect_quiet(integers + "shape=" + shape);
      const Left left = expect_caught(integers + "shape=" + shape, fault("kind = \"output\"\nbits = 0"));
      EXPECT_EQ(left.coverage.entries_named, 1u);
      EXPECT_EQ(named(left), injected(left));
    }
  }
}

}  // namespace
}  // namespace sdcguard::e2e

// SPDX-License-Identifier: MIT
// Health of one device: products of every type against the shim's kernels and the CPU, the same product again, memory
// patterns, speed; each stage with a verdict of its own.
//
// Verdicts, by what they rest on:
//   PASS          the stage ran whole and nothing was wrong
//   INCONCLUSIVE  nothing was wrong, and there is no profile of this device's noise to say that this is enough
//   INCOMPLETE    the stage did not run whole: memory, time, a call that failed
//   SUSPECT       something that a healthy device does not show, and no wrong number was proven
//   FAIL          a wrong number, confirmed by the CPU
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/calibrate/profile.h"
#include "tools/measure/device.h"
#include "tools/measure/operands.h"

namespace sdcguard {

// By severity.
enum class Health { kPass, kInconclusive, kIncomplete, kSuspect, kFail };
inline constexpr const char* kHealthNames[] = {"PASS", "INCONCLUSIVE", "INCOMPLETE", "SUSPECT", "FAIL"};

// One wrong number with what it takes to compute it again anywhere.
struct WrongNumber {
  std::string where;  // "bf16 4096x4096x4096, outlier-channels, seed 3, row 17 of C, column 5"
  double got = 0, expected = 0, bound = 0;
  std::string operands;             // type of the following
  std::vector<unsigned char> a, b;  // the row of A and the column of B, n2 numbers each; memory: empty
};

struct StageReport {
  std::string name;  // "bf16", "repeat bf16", "memory", "speed bf16"
  Health health = Health::kPass;
  std::string what;    // one line: what was done, or what is wrong
  uint64_t tests = 0;  // cells and entries compared; words of memory
  double seconds = 0;
  double gmacs = 0;                // 1e9 multiply-adds a second; 0: not measured
  std::vector<WrongNumber> wrong;  // at most kWrongKept
};
inline constexpr size_t kWrongKept = 16;

struct HealthOptions {
  std::vector<std::string> shapes;  // "MxNxK"; empty: those of the device's size
  uint64_t memory_bytes = 0;        // to test; 0: nine tenths of what is free (the host device: 64 MiB)
  double seconds = 300;             // what has not begun by then is INCOMPLETE
  uint64_t seed = 1;
  double rate = 1e-15;  // of false alarms a product, for thresholds of profiles
  std::vector<Profile> profiles;
};

// Called before each step: the stage, and the share of all that is done.
using HealthProgress = std::function<void(const std::string& stage, double done)>;

std::vector<StageReport> check_health(Device& device, const HealthOptions& options, const HealthProgress& progress);

// Reports of devices of one name on one machine: a stage that is slower than 0.9 of the median speed of at least three
// of them is SUSPECT. (How fast one should be, nobody told us.)
void suspect_slow(const std::vector<std::vector<StageReport>*>& devices);

// The most severe of them; of none INCOMPLETE.
Health health_of(const std::vector<StageReport>& stages);

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Runs a plain cuBLAS program on the host device, with the shipped shim preloaded or without it, and gives all that it
// left: its result, what it printed, the records and counters of its ring, what was injected, its driver calls.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sdcguard/record.h"
#include "tools/ring/coverage.h"
#include "tools/ring/ring_reader.h"

namespace sdcguard::e2e {

// How to run it. The program's environment is PATH, the host device and `settings`, nothing else of the test's own.
struct Program {
  std::string path;                             // of the executable
  std::vector<std::string> arguments;           // "DUMP" stands for the path of the result file
  std::map<std::string, std::string> settings;  // SDCGUARD_..., HOSTCUDA_..., as environment variables
  bool guarded = true;                          // with the shim: SDCGUARD_EVERY=1 unless `settings` says otherwise
  std::string preload_before;                   // a library before the shim
  uint64_t file_size_limit = 0;                 // RLIMIT_FSIZE, bytes. 0: none
};

// bin/gemm with these arguments, separated by spaces.
Program gemm(const std::string& arguments, std::map<std::string, std::string> settings = {});
// tests/e2e/clients/scenarios.cpp
Program scene(const std::string& name, int count, std::map<std::string, std::string> settings = {});
// tests/e2e/clients/processes.cpp
Program process(const std::string& name, int count, std::map<std::string, std::string> settings = {});
// tests/e2e/clients/mixed.cpp: kMixedProducts products a round, with these arguments, separated by spaces.
Program mixed(const std::string& arguments, std::map<std::string, std::string> settings = {});
inline constexpr size_t kMixedProducts = 10;
// D of each of them, as mixed wrote it.
std::vector<std::string> blocks_of(const std::string& result);
Program unguarded(Program program);
Program with(Program program, const std::string& setting, const std::string& value);

// One line of the host device's injection log, with effect. Raw product sums; bits hold where a float does not.
struct Injected {
  int device;
  int64_t product, m, n, k, batch, row, column;
  std::string kind;
  uint32_t clean_bits, faulty_bits;
  bool written;  // false: the output was skipped, faulty_bits is 0
  double bound;  // entry bound on the clean line; infinite where it is not finite
  bool above_bound;
};

// One line of HOSTCUDA_TRACE.
struct TracedCall {
  bool runtime;  // through cudart or cuBLAS: the program's own
  std::string name;
  std::string stream;
};

struct Left {
  int code = -1;  // exit code; 128 + signal where it was killed
  std::string printed, errors;
  std::string result;             // bytes of the dump
  std::vector<CallRecord> calls;  // by call_id; equal ones cannot be
  std::vector<FaultRecord> faults;
  CoverageTotals coverage;
  RingState ring;  // of the program's one ring
  int rings = 0;   // files found
  LossCounts losses;
  std::vector<Injected> injected;
  std::vector<TracedCall> trace;  // with Observe::driver_calls
  // With Observe::shim_calls: the driver calls that the shim's code made, in order: HOSTCUDA_FAIL=shim/*:1 is the
  // first.
  std::vector<std::string> shim_calls;
};

struct Observe {
  bool injections = false;
  bool driver_calls = false;
  bool shim_calls = false;
};

// Blocks until the program has ended. Its files are gone afterwards.
Left run(const Program& program, Observe observe = {});

// Exit code 0 and not a byte printed: what every guarded run of a silent program must be. Else what it said.
std::string unharmed(const Left& left);

// Every call was counted, every sampled one has an outcome or a reason, no record was lost.
std::string complete(const Left& left, uint64_t calls);

// Outcomes in call order, "clean benign unverified(cold)", for messages and comparisons.
std::string outcomes(const Left& left);
// `text` n times, separated by spaces.
std::string times(int n, const std::string& text);

// Value of entry i of a result of 16-bit or FP32 floats. type: kBF16, kF16 or kF32.
double value_at(const std::string& result, DataType type, size_t i);
// Distance of the two floats of `type` around |value|: its unit in the last place.
double spacing(DataType type, double value);

// The criterion of all fault tests: each injected entry above its bound (and each skipped one that changed) has a fault
// record with its place and the very bits that were injected, nothing else has one, no line was looked at beside those
// with an injected entry, and each call that names an entry has `outcome`. Empty, or what does not hold.
// For one thread on one device whose n-th product is its n-th call, every call launched.
std::string found_exactly(const Left& left, Outcome outcome);

struct ResultShape {
  DataType type = DataType::kBF16;
  int64_t m = 0, n = 0, batch = 1;
  double slope = 1;  // largest |d result / d product|: |alpha| times that of the activation
};

// The criterion of repair: entries of the last product that were not injected are `clean`'s bits. An injected entry
// was recomputed (tau off the product at most, by the verdict that did not name the product's own value) or is below
// its bound (tau off); both are rounded to the type afterwards: at most slope tau + one spacing from `clean`.
std::string repaired_like(const Left& left, const std::string& clean, const ResultShape& shape);

}  // namespace sdcguard::e2e

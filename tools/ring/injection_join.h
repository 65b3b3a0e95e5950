// SPDX-License-Identifier: MIT
// Injection join: takes the host device's injection log and sdcguardd's JSON lines of the same run, says which injected
// entries were found and repaired. It knows nothing else of either side: what it counts rests on these two files alone.
//
// An injected entry and a fault record belong together if (m, n, k, batch, row, column, bits of the wrong value) agree;
// of several with the same key (the same product issued again), the earliest of each go together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sdcguard {

// One line of the log that the host device writes (HOSTCUDA_FAULT_LOG), in the coordinates of the caller's D.
struct InjectedEntry {
  int64_t m = 0, n = 0, k = 0, batch = 0, row = 0, column = 0;
  std::string kind;
  std::string clean_bits, faulty_bits;  // "0x%08x"; raw product sums
  double magnitude = 0;                 // |faulty - clean|; infinite where one of them is not finite
  double bound = 0;                     // the entry bound of this entry
  bool effect = true;                   // false: the flip did not survive the rest of the sum
  bool above_bound = false;
  bool found = false;     // a fault record of it was read
  bool repaired = false;  // and says so
};

struct JoinResult {
  std::vector<InjectedEntry> entries;  // in the order of the log
  uint64_t injected = 0;               // with effect
  uint64_t no_effect = 0;
  uint64_t above_bound = 0;
  uint64_t below_floor = 0;  // with effect, at or below the bound
  uint64_t found = 0;        // of the injected
  uint64_t repaired = 0;
  uint64_t missed_above_bound = 0;
  uint64_t unmatched = 0;  // fault records with no injected entry behind them: accusations of clean entries
};

inline constexpr size_t kMaxAccused = 100;

// What one run's JSON lines say, summed over its processes.
struct RunReport {
  uint64_t fault_records = 0;
  uint64_t calls_accused = 0;  // corrected or corrupt
  uint64_t looks = 0;          // of the final coverage lines: calls with a dirty line before recomputation
  uint64_t checked = 0;
  uint64_t seen = 0;
  uint64_t launched = 0;
  uint64_t unverified = 0;
  uint64_t processes = 0;  // final coverage lines
  bool lower_bound = false;
  std::map<std::string, uint64_t> unverified_by_reason;
  std::vector<std::string> accused;  // the fault and call lines that accuse, as JSON text; the first kMaxAccused
  std::string coverage;              // the last final coverage line, as JSON text; empty: none
};

// Both read whole files; an absent or wrong one is an error: false, and `error` is one line.
bool read_report(const std::string& jsonl_path, RunReport* report, std::string* error);
bool join_injections(const std::string& log_path, const std::string& jsonl_path, JoinResult* result,
                     std::string* error);

}  // namespace sdcguard

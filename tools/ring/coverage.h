// SPDX-License-Identifier: MIT
// Coverage: takes a process's counters and call records, gives what share of its calls and FLOPs was checked and with
// what outcome; runs in readers.
//
//   seen = sampled + not sampled;  sampled = unverified on the host + launched;  launched -> one device record each
//
// Host counters say what was launched, device records say what became of it. Records not read (lost, or still to come)
// leave the sum of outcomes short: then the totals are a lower bound and say so. "Could not check" is never "clean".
#pragma once

#include <cstdint>

#include "tools/ring/ring_reader.h"

namespace sdcguard {

struct CallsAndFlops {
  uint64_t calls = 0;
  uint64_t flops = 0;
  void add(uint64_t more_calls, uint64_t more_flops) {
    calls = saturating_add(calls, more_calls);
    flops = saturating_add(flops, more_flops);
  }
};

struct CoverageTotals {
  CallsAndFlops seen, sampled, not_sampled, launched;
  CallsAndFlops checked;  // clean, corrected, corrupt and benign
  CallsAndFlops outcomes[kOutcomeCount];
  CallsAndFlops unverified[kReasonCount];  // decided on the host and on the device
  uint64_t upgraded = 0, as_given = 0;     // of the calls not sampled: ThreadCounters, calls_upgraded
  uint64_t outstanding = 0;                // launched calls whose outcome was not seen
  uint64_t lines = 0, lines_dirty = 0, lines_nonfinite = 0;
  uint64_t entries_named = 0, entries_repaired = 0;
  uint64_t looks = 0;  // calls with at least one dirty line under a plan that looks before it recomputes
  bool lower_bound = false;
};

class Coverage {
 public:
  // One record, as RecordSink::on_call has it.
  void add(const CallRecord& call, bool on_device);

  // What the records so far and these counters say together.
  CoverageTotals totals(const CallCounters& counters, const LossCounts& call_losses) const;

 private:
  CallsAndFlops outcomes_[kOutcomeCount];
  CallsAndFlops unverified_[kReasonCount];  // decided on the device
  uint64_t lines_ = 0, lines_dirty_ = 0, lines_nonfinite_ = 0;
  uint64_t entries_named_ = 0, entries_repaired_ = 0;
  uint64_t looks_ = 0;
  uint64_t outcomes_seen_ = 0;
};

}  // namespace sdcguard

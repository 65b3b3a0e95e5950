// SPDX-License-Identifier: MIT
// Coverage: takes a process's counters and call records, gives what share of its calls and FLOPs was checked and with
// what outcome; runs in readers.
#include "tools/ring/coverage.h"

namespace sdcguard {
namespace {

uint64_t less(uint64_t a, uint64_t b) {
  return a > b ? a - b : 0;
}

}  // namespace

void Coverage::add(const CallRecord& call, bool on_device) {
  // A call given up on the host has a record and a count in ThreadCounters: the counters hold it, whatever is lost.
  if (!on_device && call.outcome == Outcome::kUnverified) return;
  const uint64_t flops = flops_of(call);
  outcomes_[static_cast<size_t>(call.outcome)].add(1, flops);
  if (call.outcome == Outcome::kUnverified) unverified_[static_cast<size_t>(call.reason)].add(1, flops);
  outcomes_seen_ = saturating_add(outcomes_seen_, 1);
  lines_ = saturating_add(lines_, call.lines);
  lines_dirty_ = saturating_add(lines_dirty_, call.lines_dirty);
  lines_nonfinite_ = saturating_add(lines_nonfinite_, call.lines_nonfinite);
  entries_named_ = saturating_add(entries_named_, call.entries_named);
  entries_repaired_ = saturating_add(entries_repaired_, call.entries_repaired);
  if (call.lines_dirty > 0 && call.plan != Plan::kRecompute) ++looks_;
}

CoverageTotals Coverage::totals(const CallCounters& counters, const LossCounts& call_losses) const {
  CoverageTotals totals;
  totals.seen = {counters.calls_seen, counters.flops_seen};
  totals.sampled = {counters.calls_sampled, counters.flops_sampled};
  totals.not_sampled = {less(counters.calls_seen, counters.calls_sampled),
                        less(counters.flops_seen, counters.flops_sampled)};
  totals.launched = {counters.calls_launched, counters.flops_launched};
  for (size_t o = 0; o < kOutcomeCount; ++o) totals.outcomes[o] = outcomes_[o];
  for (const Outcome outcome : {Outcome::kClean, Outcome::kCorrected, Outcome::kCorrupt, Outcome::kBenign}) {
    const CallsAndFlops& part = outcomes_[static_cast<size_t>(outcome)];
    totals.checked.add(part.calls, part.flops);
  }
  CallsAndFlops& unverified = totals.outcomes[static_cast<size_t>(Outcome::kUnverified)];
  for (size_t r = 0; r < kReasonCount; ++r) {
    totals.unverified[r] = unverified_[r];
    totals.unverified[r].add(counters.unverified_calls[r], counters.unverified_flops[r]);
    unverified.add(counters.unverified_calls[r], counters.unverified_flops[r]);
  }
  totals.outcomes[static_cast<size_t>(Outcome::kNotSampled)] = totals.not_sampled;
  totals.upgraded = counters.calls_upgraded;
  totals.as_given = counters.calls_as_given;
  totals.outstanding = less(counters.calls_launched, outcomes_seen_);
  totals.lines = lines_;
  totals.lines_dirty = lines_dirty_;
  totals.lines_nonfinite = lines_nonfinite_;
  totals.entries_named = entries_named_;
  totals.entries_repaired = entries_repaired_;
  totals.looks = looks_;
  totals.lower_bound = totals.outstanding > 0 || call_losses.any();
  return totals;
}

}  // namespace sdcguard

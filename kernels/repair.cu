// SPDX-License-Identifier: MIT
// stage escalate, second launch: compares each listed line with its recomputation, names the entries beyond the entry
// bound, repairs them in P (and in D where the finish was fused), writes their fault records; its last block decides
// the outcome, updates the history and, where no finish kernel follows, writes the call record. MATH.md "entry".
//
// One block judges one line. Listed lines without a slot are recomputed here, kSpareLines at a time in the block's own
// spare slots, so any number of dirty lines is handled.

#include <cstddef>

#include "kernels/deliver.h"
#include "kernels/element.h"
#include "kernels/entry_bound.h"
#include "kernels/exceeds.h"
#include "kernels/fold_cache.h"
#include "kernels/params.h"
#include "kernels/recompute.h"
#include "kernels/record_writer.h"
#include "kernels/simt.h"

namespace sdcguard {

namespace repair {

inline constexpr uint32_t kThreads = 256;
inline constexpr uint32_t kDigits = 256;             // of one radix pass over the bits of a ratio
inline constexpr float kLargest = 0x1.fffffep+127f;  // of a ratio
inline constexpr float kInfinity = __builtin_inff();

// One line under judgement.
struct Line {
  int64_t entry, row, fold_entry;
  uint32_t slot;
  bool marks;
  uint64_t p_row;
  FinishRow at;
};

// What one entry is compared with.
template <typename T>
struct Compared {
  T got;  // P, or the caller's D widened
  T gamma;
  double expected;  // what `got` should be
  double weight;    // w, in units of `got`
  double cap;       // provable part of the bound, in units of `got`
  double extra;     // added to the bound: rounding of what was delivered
  bool judged;      // false: the column is set aside
  bool overflows;   // sum |A||B| leaves the FP32 range
};

SDCGUARD_DEVICE bool is_marked(const ProbeParams& p, int64_t fold_entry, int64_t col) {
  const uint32_t word = load<uint32_t>(p.column_marks + fold_shift(p), fold_entry * ((p.n3 + 31) / 32) + (col >> 5));
  return ((word >> (col & 31)) & 1u) != 0;
}

template <typename T>
SDCGUARD_DEVICE Compared<T> compare(const ProbeParams& p, const FinishScalars<T>& scalars, const Line& line,
                                    int64_t col) {
  Compared<T> e;
  e.judged = !(line.marks && is_marked(p, line.fold_entry, col));
  e.got = load_element<T>(line.p_row, col, p.p.type);
  const int64_t at = int64_t{line.slot} * 3 * p.n3 + col;
  e.gamma = load<T>(p.recomputed, at);
  const double root = static_cast<double>(load<T>(p.recomputed, at + p.n3));
  const double abs_sum = static_cast<double>(load<T>(p.recomputed, at + 2 * p.n3));
  e.overflows = SDCGUARD_EXCEEDS(abs_sum, p.accumulator_largest);
  const double eps_acc = static_cast<double>(p.entry_eps_acc);
  e.weight = entry_weight(static_cast<double>(e.gamma), root, eps_acc + static_cast<double>(p.entry_eps_in));
  e.cap = entry_cap(abs_sum, static_cast<double>(p.entry_c_max), eps_acc, static_cast<double>(p.entry_eps_in));
  e.expected = static_cast<double>(e.gamma);
  e.extra = p.entry_tiny;
  if (p.delivered != 0) {
    if (!scalars.plain) {
      // D = alpha P + beta C + bias: the terms' own roundings come on top.
      const double alpha = static_cast<double>(scalars.alpha);
      const double offset = static_cast<double>(finish_offset(p.finish, scalars, line.at, col));
      const double scaled = scalars.alpha == T{0} ? 0.0 : alpha * e.expected;
      e.expected = scaled + offset;
      e.weight *= fabs(alpha);
      e.cap *= fabs(alpha);
      e.extra = fabs(alpha) * p.entry_tiny + 2.0 * static_cast<double>(p.finish_eps) * (fabs(scaled) + fabs(offset));
    }
    if constexpr (std::is_same_v<T, float>) {
      if (p.p.type != DataType::kF32) {
        const float larger = max_of(abs_of(static_cast<float>(e.expected)), is_finite(e.got) ? abs_of(e.got) : 0.0f);
        e.extra += half_ulp(larger, p.p.type);
      }
    }
  }
  return e;
}

// d / w of an entry that takes part in the median, else -1.
template <typename T>
SDCGUARD_DEVICE float ratio_of(const Compared<T>& e) {
  if (!e.judged || e.overflows || !is_finite(e.got) || !(e.weight > 0.0)) return -1.0f;
  const double ratio = fabs(e.expected - static_cast<double>(e.got)) / e.weight;
  return ratio < static_cast<double>(kLargest) ? static_cast<float>(ratio) : kLargest;
}

// From which magnitude on a value becomes the largest of the type: an infinity, or the largest finite FP8.
SDCGUARD_DEVICE double overflow_of(DataType type) {
  switch (type) {
    case DataType::kF16:
      return 65520.0;
    case DataType::kBF16:
      return 0x1.ffp127;
    case DataType::kE4M3:
      return 448.0;
    case DataType::kE5M2:
      return 57344.0;
    default:
      return 0x1.ffffffp127;
  }
}

}  // namespace repair

SDCGUARD_DEVICE repair::Line listed_line(const ProbeParams& p, uint32_t listed_index, uint32_t slot) {
  repair::Line line;
  const int64_t index = load<uint32_t>(p.listed, listed_index);
  line.entry = index / p.n1;
  line.row = index - line.entry * p.n1;
  line.fold_entry = p.fold_batch == 1 ? 0 : line.entry;
  line.slot = slot;
  line.marks = load<uint32_t>(p.marked_columns + fold_shift(p), line.fold_entry * (1 + kMaxMarkedColumns)) != 0;
  line.p_row = row_address(p.p, line.entry, line.row);
  line.at = finish_row(p.finish, line.entry, line.row);
  return line;
}

// First place of the list, among its `sorted` leading lines, that holds `line` or a later one.
SDCGUARD_DEVICE uint32_t first_listed(const ProbeParams& p, uint32_t sorted, int64_t line) {
  uint32_t low = 0;
  uint32_t high = sorted;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (load<uint32_t>(p.listed, middle) < line) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Listed lines that are compared together: one line, or, for lines of fewer than kEntryMedianMin entries, all dirty
// lines of a batch entry, which stand side by side in the list. Line i of the list has its slot at first_slot + i.
struct Pool {
  uint32_t first;
  uint32_t end;
  uint32_t first_slot;
};

// What stands for the median of d / w where none can be had: the envelope of sigma, which is in units of u, in those of
// w.
SDCGUARD_DEVICE float entry_envelope(const ProbeParams& p) {
  return p.sigma_envelope * p.entry_envelope_unit;
}

// Median of d / w over the pool. The a-priori envelope where it has too few entries, and for 16-bit results, whose own
// rounding drowns the accumulation's. All threads get the same value.
template <typename T>
SDCGUARD_DEVICE float median_ratio(const ProbeParams& p, const FinishScalars<T>& scalars, Pool pool,
                                   const Shared<uint32_t>& digits, const Shared<uint32_t>& state) {
  using namespace repair;
  if (p.plan == Plan::kBlockSums) return entry_envelope(p);
  const uint32_t t = thread_index();
  const int64_t entries = int64_t{pool.end - pool.first} * p.n3;
  Line line = listed_line(p, pool.first, pool.first_slot);
  uint32_t prefix = 0;
  uint32_t rank = 0;
  for (uint32_t pass = 0; pass < 4; ++pass) {
    const uint32_t shift = 24 - 8 * pass;
    if (t < kDigits) digits[t] = 0;
    sync_threads();
    for (int64_t i = t; i < entries; i += kThreads) {
      const auto at = static_cast<uint32_t>(i / p.n3);
      if (pool.end - pool.first > 1) line = listed_line(p, pool.first + at, pool.first_slot + at);
      const float ratio = ratio_of(compare(p, scalars, line, i - int64_t{at} * p.n3));
      if (ratio < 0.0f) continue;
      const uint32_t bits = bits_of(ratio);
      if (pass != 0 && bits >> (shift + 8) != prefix) continue;
      atomic_add(digits[(bits >> shift) & 0xFFu], 1u);
    }
    sync_threads();
    if (t == 0) {
      if (pass == 0) {
        uint32_t all = 0;
        for (uint32_t i = 0; i < kDigits; ++i) all += digits[i];
        state[0] = all;
        state[1] = all == 0 ? 0 : (all - 1) / 2;  // rank of the lower median
      }
      uint32_t left = pass == 0 ? state[1] : rank;
      uint32_t digit = 0;
      while (digit + 1 < kDigits && left >= digits[digit]) left -= digits[digit++];
      state[2] = digit;
      state[3] = left;
    }
    sync_threads();
    if (state[0] < static_cast<uint32_t>(kEntryMedianMin)) return entry_envelope(p);
    prefix = prefix << 8 | state[2];
    rank = state[3];
  }
  return float_of(prefix);
}

// True where a value of a type is as large as its casts make any that is too large.
SDCGUARD_DEVICE bool is_overflowed(float got, DataType type) {
  const float magnitude = abs_of(got);
  return type == DataType::kE4M3   ? magnitude == 448.0f
         : type == DataType::kE5M2 ? magnitude == 57344.0f
                                   : magnitude == repair::kInfinity;
}

// Writes the right value of one entry where the product was and, if the finish was fused, into D.
template <typename T>
SDCGUARD_DEVICE void repair_entry(const ProbeParams& p, const FinishScalars<T>& scalars, const repair::Line& line,
                                  int64_t col, T gamma) {
  if (p.delivered != 0) {
    store_element<T>(line.p_row, col, p.p.type, finish_value(p.finish, scalars, line.at, gamma, col));
    return;
  }
  store_element<T>(line.p_row, col, p.p.type, gamma);
  if (p.fused_finish != 0 && line.at.d != 0) {
    store_element<T>(line.at.d, col, p.finish.d.type, finish_value(p.finish, scalars, line.at, gamma, col));
  }
}

// Judges one recomputed line of an exact product: every entry that differs is wrong.
SDCGUARD_DEVICE void judge_line_exact(const ProbeParams& p, const FinishScalars<uint32_t>& scalars,
                                      const repair::Line& line, const Shared<uint32_t>& state) {
  using namespace repair;
  const uint32_t t = thread_index();
  sync_threads();
  if (t < 4) state[4 + t] = 0;
  sync_threads();
  for (int64_t col = t; col < p.n3; col += kThreads) {
    const uint32_t got = load_element<uint32_t>(line.p_row, col, p.p.type);
    const uint32_t gamma = load<uint32_t>(p.recomputed, int64_t{line.slot} * 3 * p.n3 + col);
    const uint32_t expected = p.delivered == 0 ? gamma : finish_value(p.finish, scalars, line.at, gamma, col);
    if (got == expected) continue;
    const bool repairs = p.repairs != 0;
    atomic_add(state[4], 1u);
    if (repairs) repair_entry(p, scalars, line, col, gamma);
    if (atomic_add(p.verdict + offsetof(Verdict, fault_records), 0, 1u) < kMaxFaultRecords) {
      write_fault_record(p, line.entry, line.row, col, static_cast<double>(static_cast<int32_t>(got)),
                         static_cast<double>(static_cast<int32_t>(expected)), 0.0, 0.0f, repairs);
    }
  }
  sync_threads();
  if (t == 0 && state[4] != 0) {
    atomic_add(p.verdict + offsetof(Verdict, entries_named), 0, uint64_t{state[4]});
    if (p.repairs != 0) atomic_add(p.verdict + offsetof(Verdict, entries_repaired), 0, uint64_t{state[4]});
  }
}

// Judges one recomputed line whose median of d / w is known. Returns nothing: the counts go to the verdict.
template <typename T>
SDCGUARD_DEVICE void judge_line(const ProbeParams& p, const FinishScalars<T>& scalars, const repair::Line& line,
                                float median, bool audit, const Shared<uint32_t>& state, const Shared<double>& sums) {
  using namespace repair;
  const uint32_t t = thread_index();
  const double scale = entry_scale(static_cast<double>(median), static_cast<double>(p.entry_floor));

  double moments[2] = {0.0, 0.0};
  for (int64_t col = t; col < p.n3; col += kThreads) {
    const T got = load_element<T>(line.p_row, col, p.p.type);
    if (!is_finite(got)) continue;
    moments[0] = fma(static_cast<double>(got), static_cast<double>(got), moments[0]);
    moments[1] += 1.0;
  }
  warp_sum_n(moments);
  sync_threads();
  if (lane() == 0) {
    sums[2 * warp()] = moments[0];
    sums[2 * warp() + 1] = moments[1];
  }
  if (t < 4) state[4 + t] = 0;
  sync_threads();
  double squares = 0.0;
  double finite = 0.0;
  for (uint32_t w = 0; w < kThreads / kWarp; ++w) {
    squares += sums[2 * w];
    finite += sums[2 * w + 1];
  }
  const float rms = finite > 0.0 ? static_cast<float>(sqrt(squares / finite)) : 0.0f;

  for (int64_t col = t; col < p.n3; col += kThreads) {
    const Compared<T> e = compare(p, scalars, line, col);
    if (!e.judged) continue;
    const bool same = static_cast<double>(e.got) == e.expected || (is_nan(e.got) && is_nan(e.gamma));
    if (same) continue;
    if (e.overflows) {
      // Some order of summation overflows here: what it leaves says nothing.
      atomic_add(state[6], 1u);
      continue;
    }
    const double tau = entry_tau(scale, e.weight, e.cap) + e.extra;
    if constexpr (std::is_same_v<T, float>) {
      if (p.delivered != 0 && is_overflowed(e.got, p.p.type) && (e.got > 0.0f) == (e.expected > 0.0) &&
          fabs(e.expected) + tau >= overflow_of(p.p.type)) {
        continue;  // a cast to infinity, or to the largest finite value
      }
    }
    if (!SDCGUARD_EXCEEDS(fabs(e.expected - static_cast<double>(e.got)), tau)) continue;
    atomic_add(state[4], 1u);
    const bool repairs = p.repairs != 0;
    if (repairs) {
      atomic_add(state[5], 1u);
      repair_entry(p, scalars, line, col, e.gamma);
    }
    if (atomic_add(p.verdict + offsetof(Verdict, fault_records), 0, 1u) < kMaxFaultRecords) {
      write_fault_record(p, line.entry, line.row, col, static_cast<double>(e.got), e.expected, tau, rms, repairs);
    }
  }
  sync_threads();
  if (t == 0) {
    if (state[4] != 0) atomic_add(p.verdict + offsetof(Verdict, entries_named), 0, uint64_t{state[4]});
    if (state[5] != 0) atomic_add(p.verdict + offsetof(Verdict, entries_repaired), 0, uint64_t{state[5]});
    if (state[6] != 0) atomic_add(p.verdict + offsetof(Verdict, entries_unjudged), 0, uint64_t{state[6]});
    if (audit && state[4] == 0 && state[6] == 0) atomic_add(p.verdict + offsetof(Verdict, lines_agreed), 0, 1u);
  }
  sync_threads();
}

SDCGUARD_DEVICE void teach_history(uint64_t history, uint32_t agreed, float sigma) {
  if (history == 0) return;
  // Below kAuditLines only, so that the counter cannot wrap; two streams at once may overshoot, which is harmless.
  if (agreed != 0 && atomic_add(history + offsetof(SiteHistory, agreed), 0, 0u) < kAuditLines) {
    atomic_add(history + offsetof(SiteHistory, agreed), 0, agreed);
  }
  const uint32_t at = atomic_add(history + offsetof(SiteHistory, count), 0, 1u) % kHistoryDepth;
  store_relaxed<float>(history + offsetof(SiteHistory, sigma), at, sigma);
}

// The outcome of the call, by one thread after everything else of the escalation.
SDCGUARD_DEVICE void conclude(const ProbeParams& p) {
  Verdict verdict = load<Verdict>(p.verdict, 0);
  if (verdict.word == kVerdictLook) {
    // Added to by other blocks of this kernel: read as atomics.
    verdict.entries_named = atomic_add(p.verdict + offsetof(Verdict, entries_named), 0, uint64_t{0});
    verdict.entries_repaired = atomic_add(p.verdict + offsetof(Verdict, entries_repaired), 0, uint64_t{0});
    verdict.entries_unjudged = atomic_add(p.verdict + offsetof(Verdict, entries_unjudged), 0, uint64_t{0});
    verdict.lines_agreed = atomic_add(p.verdict + offsetof(Verdict, lines_agreed), 0, 0u);
  }
  const bool aside = verdict.lines_nonfinite != 0 || verdict.columns_nonfinite != 0;
  Reason reason = aside ? Reason::kNonfiniteOperand : Reason::kNone;
  Outcome outcome = Outcome::kClean;
  if (verdict.word == kVerdictUnverified) {
    outcome = Outcome::kUnverified;
    reason = static_cast<Reason>(verdict.reason);
  } else if (verdict.entries_named != 0) {
    outcome = verdict.entries_repaired == verdict.entries_named ? Outcome::kCorrected : Outcome::kCorrupt;
  } else if (verdict.entries_unjudged != 0 || verdict.lines_out_of_range != 0) {
    outcome = Outcome::kUnverified;
    reason = Reason::kRange;
  } else if (verdict.lines_dirty != 0 && p.plan != Plan::kRecompute) {
    outcome = Outcome::kBenign;
  }
  if (p.plan == Plan::kLine && verdict.sigma > 0.0f) {
    const bool audited = verdict.lines_audited != 0 && verdict.lines_agreed == verdict.lines_audited;
    const bool seeded =
        p.site_history != 0 && atomic_add(p.site_history + offsetof(SiteHistory, agreed), 0, 0u) >= kAuditLines;
    if (outcome == Outcome::kClean && (seeded || audited)) {
      teach_history(p.site_history, verdict.lines_agreed, verdict.sigma);
      // A product that came out exact, at the floor, says nothing of the noise of other sites.
      if (verdict.sigma > p.sigma_floor) teach_history(p.family_history, verdict.lines_agreed, verdict.sigma);
    } else if (outcome == Outcome::kBenign && !seeded && audited) {
      // A new site that is noisier than its family: every dirty line was recomputed and agreed, and so did random ones.
      const float own = verdict.sigma_measured < p.sigma_envelope ? verdict.sigma_measured : p.sigma_envelope;
      teach_history(p.site_history, verdict.lines_agreed, own);
    }
  }
  // A fold that makes clean lines look wrong is not that of this B any more (a few of its entries changed).
  const uint64_t shift = fold_shift(p);
  if (outcome == Outcome::kBenign && shift != 0) fold_cache::retire(p, shift);
  // Field by field: other blocks of a clean call may be reading the word.
  store<uint32_t>(p.verdict + offsetof(Verdict, outcome), 0, static_cast<uint32_t>(outcome));
  store<uint32_t>(p.verdict + offsetof(Verdict, reason), 0, static_cast<uint32_t>(reason));
  if (p.finish_launched == 0) write_call_record(p, verdict, outcome, reason);
}

template <typename T>
SDCGUARD_DEVICE void repair_pass(const ProbeParams& p) {
  using namespace repair;
  constexpr bool kExact = kIsExact<T>;
  SDCGUARD_SHARED(T, recompute::kChunk<T> * recompute::kPitch, columns);
  SDCGUARD_SHARED(T, kSpareLines * recompute::kChunk<T>, lines);
  SDCGUARD_SHARED(recompute::Meeting<T>, 8 * 4 * kWarp, meeting);
  SDCGUARD_SHARED(uint32_t, kDigits, digits);
  SDCGUARD_SHARED(uint32_t, 8, state);
  SDCGUARD_SHARED(double, 2 * kThreads / kWarp, sums);
  const uint32_t t = thread_index();
  const uint32_t word = load<uint32_t>(p.verdict + offsetof(Verdict, word), 0);
  if (word != kVerdictLook) {
    if (block_index() == 0 && t == 0) conclude(p);
    return;
  }
  const uint32_t listed = load<uint32_t>(p.verdict + offsetof(Verdict, lines_listed), 0);
  const uint32_t dirty = load<uint32_t>(p.verdict + offsetof(Verdict, lines_dirty), 0);
  const uint32_t slots = listed < p.line_slots ? listed : p.line_slots;
  // Of the line's entry: they may differ from one to the next.
  const auto scalars_of = [&p](const Line& line) { return finish_scalars<T>(p.finish, p.delivered != 0, line.entry); };
  const auto judge = [&](Pool pool, uint32_t i, uint32_t slot, bool has_median, float median, bool audit) {
    const Line line = listed_line(p, i, slot);
    const FinishScalars<T> scalars = scalars_of(line);
    if constexpr (kExact) {
      judge_line_exact(p, scalars, line, state);
    } else {
      if (!has_median) median = median_ratio(p, scalars, pool, digits, state);
      judge_line(p, scalars, line, median, audit, state, sums);
    }
  };
  const bool pooled = p.n3 < kEntryMedianMin && !kExact;
  // The dirty lines that have slots: in line order.
  const uint32_t sorted = dirty < slots ? dirty : slots;
  if (pooled) {
    // One block judges all lines of a batch entry: the repairs of another could change their common median.
    for (int64_t entry = block_index(); entry < p.batch; entry += grid_blocks()) {
      const uint32_t first = first_listed(p, sorted, entry * p.n1);
      const uint32_t end = first_listed(p, sorted, (entry + 1) * p.n1);
      if (first == end) continue;
      float median = 0.0f;
      if constexpr (!kExact) {
        median = median_ratio(p, scalars_of(listed_line(p, first, first)), Pool{first, end, first}, digits, state);
      }
      for (uint32_t i = first; i < end; ++i) judge(Pool{}, i, i, true, median, false);
    }
  }
  for (uint32_t i = (pooled ? sorted : 0) + block_index(); i < slots; i += grid_blocks()) {
    judge(Pool{i, i + 1, i}, i, i, false, 0.0f, i >= dirty);
  }
  const int64_t slices = (p.n3 + recompute::kColumns - 1) / recompute::kColumns;
  const uint32_t spare = p.line_slots + block_index() * kSpareLines;
  for (int64_t first = int64_t{slots} + int64_t{block_index()} * kSpareLines; first < listed;
       first += int64_t{grid_blocks()} * kSpareLines) {
    const uint32_t end = first + kSpareLines < listed ? static_cast<uint32_t>(first) + kSpareLines : listed;
    for (uint32_t from = static_cast<uint32_t>(first); from < end;) {
      uint32_t count = 1;
      while (from + count < end && (p.fold_batch == 1 || load<uint32_t>(p.listed, from + count) / p.n1 ==
                                                             load<uint32_t>(p.listed, from) / p.n1)) {
        ++count;
      }
      for (int64_t slice = 0; slice < slices; ++slice) {
        recompute_slice<1, T>(p, recompute::Group{from, count, spare}, slice * recompute::kColumns, columns, lines,
                              meeting);
      }
      sync_threads();
      for (uint32_t l = 0; l < count; ++l) {
        // Pooled lines have slots for all but huge batches (plan.h); beyond them the envelope serves.
        judge(Pool{from + l, from + l + 1, spare + l}, from + l, spare + l, pooled, entry_envelope(p),
              from + l >= dirty);
      }
      from += count;
    }
  }
  sync_threads();
  if (t == 0) {
    fence_device();
    const bool last = atomic_add(p.verdict + offsetof(Verdict, repair_blocks), 0, 1u) == grid_blocks() - 1;
    fence_device();
    if (last) conclude(p);
  }
}

SDCGUARD_KERNEL(sdcguard_escalate_repair, ProbeParams, 256) {
  repair_pass<float>(p);
}

SDCGUARD_KERNEL(sdcguard_escalate_repair_f64, ProbeParams, 256) {
  repair_pass<double>(p);
}

SDCGUARD_KERNEL(sdcguard_escalate_repair_i32, ProbeParams, 256) {
  repair_pass<uint32_t>(p);
}

}  // namespace sdcguard

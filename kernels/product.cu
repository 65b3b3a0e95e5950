// SPDX-License-Identifier: MIT
// stage probe, product pass: one read of P after the product, gives the residual of each cell, the sum and the peak of
// each line and (its last block) the verdict: noise, threshold, list of lines to recompute. Delivers D on the way where
// the plan fused the finish. MATH.md "residual", "noise scale", "line sum", "sigma", "look", "block sums".
//
// A warp takes a row. Line plan: a lane reads four columns at a stride of 128, so each of its 128 slots stays in one
// class (c is a power of two up to 64). Block sums: a lane takes whole classes, one column of each position.

#include <cstddef>

#include "kernels/deliver.h"
#include "kernels/element.h"
#include "kernels/exceeds.h"
#include "kernels/fold_cache.h"
#include "kernels/look.h"
#include "kernels/params.h"
#include "kernels/philox.h"
#include "kernels/signs.h"
#include "kernels/simt.h"

namespace sdcguard {

namespace product {

inline constexpr uint32_t kThreads = 256;
inline constexpr uint32_t kWarps = kThreads / kWarp;
inline constexpr uint32_t kSlots = 128;        // columns of a row that a warp reads at once
inline constexpr uint32_t kSignWords = 2048;   // words of one draw in shared memory: 65,536 columns
inline constexpr uint32_t kBatchSteps = 4;     // reads summed in one FP32 partial sum
inline constexpr float kSquareLow = 0x1p-40f;  // as in the operand pass
inline constexpr float kSquareHigh = 0x1p60f;
inline constexpr float kInfinity = __builtin_inff();
inline constexpr uint32_t kFewLines = 16;  // dirty lines that are recomputed in any case (MATH.md "fold cache")
inline constexpr float kLargest = 0x1.fffffep+127f;
template <typename T>
inline constexpr double kUnit = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;  // u
template <typename T>
inline constexpr double kLargestOf = std::is_same_v<T, double> ? 0x1.fffffffffffffp+1023 : 0x1.fffffep+127;
inline constexpr double kMeanToSigma = 1.2533141373155003;  // sqrt(pi / 2): sigma of a Gaussian over its mean magnitude
inline constexpr double kClip = 4.0;                        // |z| beyond 4 sigma leaves the mean, twice
inline constexpr double kCapFactor = 3.0;
inline constexpr float kSixteenth = 0.0625f;  // a part of a line's sum has at most 16 terms: it cannot overflow
inline constexpr float kPeakUnit = 0x1p-8f;

// Bin of |z|: four an octave, the first from 0, the last without end.
SDCGUARD_DEVICE uint32_t peak_bin(float z) {
  const uint32_t index = bits_of(z) >> 21;  // exponent and two mantissa bits
  constexpr uint32_t kFirst = (127u - 4u) << 2;
  if (index < kFirst) return 0;
  return index - kFirst < kPeakBins ? index - kFirst : kPeakBins - 1;
}
SDCGUARD_DEVICE float bin_start(uint32_t bin) {
  return bin == 0 ? 0.0f : float_of((bin + ((127u - 4u) << 2)) << 21);
}

struct Cell {
  double sum[kDraws];  // signed sums of the class over the row
  double energy;       // sum of P^2 (as delivered: D^2 + (beta C + bias)^2)
};

// Sum of squares of a lane's values in one column slot: FP32 where that is safe, else FP64.
template <typename T>
struct SquareSum {
  T part;
  T peak;
};

}  // namespace product

// ---- verdict: the last block ------------------------------------------------------------------------------------

// sigma of one batch entry from its histogram, by one warp; 0 where too few cells show any noise to tell it from
// faults. All sums are of integers below 2^53: exact in any order.
SDCGUARD_DEVICE double clipped_sigma(const ProbeParams& p, int64_t entry) {
  using namespace product;
  double counts[kPeakBins / kWarp];
  double sums[kPeakBins / kWarp];
  SDCGUARD_UNROLL
  for (uint32_t i = 0; i < kPeakBins / kWarp; ++i) {
    const int64_t at = entry * kPeakBins + i * kWarp + lane();
    counts[i] = static_cast<double>(load<uint32_t>(p.peak_counts, at));
    sums[i] = static_cast<double>(load<uint64_t>(p.peak_sums, at));
  }
  double limit = static_cast<double>(kInfinity);
  double sigma = 0.0;
  for (uint32_t round = 0; round < 3; ++round) {
    double both[2] = {0.0, 0.0};
    SDCGUARD_UNROLL
    for (uint32_t i = 0; i < kPeakBins / kWarp; ++i) {
      if (static_cast<double>(bin_start(i * kWarp + lane())) <= limit) {
        both[0] += counts[i];
        both[1] += sums[i];
      }
    }
    warp_sum_n(both);
    if (round == 0 && both[0] < kNoisyCells) return 0.0;
    sigma = both[0] > 0.0 ? kMeanToSigma * static_cast<double>(kPeakUnit) * both[1] / both[0] : 0.0;
    limit = kClip * sigma;
  }
  return sigma;
}

// 0.25 quantile of a history's clean calls, 0 while it is not seeded. By the first 64 threads' warps; `values` is
// scratch.
SDCGUARD_DEVICE float history_quantile(uint64_t history, const Shared<float>& values, const Shared<float>& result) {
  const uint32_t t = thread_index();
  const bool seeded = history != 0 && load_relaxed<uint32_t>(history + offsetof(SiteHistory, agreed), 0) >= kAuditLines;
  if (t == 0) *result = 0.0f;
  if (t < kHistoryDepth) values[t] = seeded ? load_relaxed<float>(history + offsetof(SiteHistory, sigma), t) : 0.0f;
  sync_threads();
  if (t < kHistoryDepth && values[t] > 0.0f) {
    uint32_t filled = 0;
    uint32_t rank = 0;
    for (uint32_t i = 0; i < kHistoryDepth; ++i) {
      if (!(values[i] > 0.0f)) continue;
      ++filled;
      if (values[i] < values[t] || (values[i] == values[t] && i < t)) ++rank;
    }
    if (rank == (filled - 1) / 4) *result = values[t];
  }
  sync_threads();
  const float quantile = *result;
  sync_threads();  // all have read it before the next call writes
  return quantile;
}

// True where nothing is judged of the line: set aside or out of range.
SDCGUARD_DEVICE bool is_aside(float peak) {
  return peak < 0.0f;
}

// What a line's peak may be. `in_bounds`: peaks are in units of a bound.
SDCGUARD_DEVICE float limit_of(const ProbeParams& p, int64_t line, bool in_bounds) {
  if (in_bounds) return 1.0f;
  const float sigma = load<float>(p.sigmas, p.batch == 1 ? 0 : line / p.n1);
  return look_limit(p.look_scale, sigma, load<float>(p.line_median, line));
}

SDCGUARD_DEVICE void judge(const ProbeParams& p, const Shared<float>& values, const Shared<uint32_t>& counters) {
  using namespace product;
  // counters: [0] lines dirty so far, [1..8] lines of each warp in this round, [9] sigma as used, [10] worst, [11] any
  // line to list, [12] sigma before the cap (floats as their bits), [13] nothing stands against a judgement, [14] lines
  // out of range
  const uint32_t t = thread_index();
  float history = history_quantile(p.site_history, values, values + kHistoryDepth);
  if (!(history > 0.0f)) history = history_quantile(p.family_history, values, values + kHistoryDepth);
  double cap = static_cast<double>(p.sigma_envelope);
  if (history > 0.0f) {
    const double own = kCapFactor * static_cast<double>(history);
    cap = own < cap ? own : cap;
  }
  if (t < 16) counters[t] = 0;
  sync_threads();
  const bool in_bounds = p.plan == Plan::kBlockSums || p.plan == Plan::kExact;  // peaks in units of a bound, no sigma
  for (int64_t entry = warp(); entry < p.batch; entry += kWarps) {
    double sigma = in_bounds ? 1.0 : clipped_sigma(p, entry);
    if (!in_bounds) {
      sigma = sigma < static_cast<double>(p.sigma_floor) ? static_cast<double>(p.sigma_floor) : sigma;
      if (lane() == 0) atomic_max(counters[12], bits_of(static_cast<float>(sigma)));
      sigma = sigma > cap ? cap : sigma;
    }
    if (lane() == 0) {
      store<float>(p.sigmas, entry, static_cast<float>(sigma));
      atomic_max(counters[9], bits_of(static_cast<float>(sigma)));  // positive floats order as their bits
    }
  }
  sync_threads();

  float worst = 0.0f;
  bool any = p.plan == Plan::kRecompute;
  uint32_t out_of_range = 0;
  for (int64_t line = t; line < p.lines; line += kThreads) {
    const float peak = load<float>(p.line_peak, line);
    if (is_aside(peak)) {
      if (peak == static_cast<float>(kLineOutOfRange)) ++out_of_range;
      continue;
    }
    const float limit = limit_of(p, line, in_bounds);
    const float ratio = in_bounds ? peak : p.look_scale * (peak / limit);
    worst = SDCGUARD_EXCEEDS(ratio, worst) ? ratio : worst;
    any = any || SDCGUARD_EXCEEDS(peak, limit);
  }
  worst = warp_max(worst);
  const uint32_t some = ballot(any);
  if (lane() == 0) {
    atomic_max(counters[10], bits_of(worst));
    if (some != 0) atomic_or(counters[11], 1u);
  }
  if (out_of_range != 0) atomic_add(counters[14], out_of_range);
  sync_threads();

  Verdict verdict{};
  if (t == 0) {
    verdict = load<Verdict>(p.verdict, 0);
    if (verdict.word == 0 && verdict.range != 0) {
      verdict.word = kVerdictUnverified;
      verdict.reason = static_cast<uint32_t>(Reason::kRange);
    }
    if (verdict.word == 0 && static_cast<int64_t>(verdict.lines_nonfinite) == p.lines) {
      verdict.word = kVerdictUnverified;
      verdict.reason = static_cast<uint32_t>(Reason::kNonfiniteOperand);
    }
    counters[13] = verdict.word == 0 ? 1u : 0u;
  }
  sync_threads();
  const bool judged = counters[13] != 0;

  if (judged && counters[11] != 0) {
    for (int64_t first = 0; first < p.lines; first += kThreads) {
      const int64_t line = first + t;
      bool dirty = false;
      if (line < p.lines) {
        const float peak = load<float>(p.line_peak, line);
        dirty = !is_aside(peak) && (p.plan == Plan::kRecompute || SDCGUARD_EXCEEDS(peak, limit_of(p, line, in_bounds)));
      }
      const uint32_t mine = ballot(dirty);
      if (lane() == 0) counters[1 + warp()] = popcount(mine);
      sync_threads();
      uint32_t at = counters[0];
      for (uint32_t w = 0; w < warp(); ++w) at += counters[1 + w];
      if (dirty) {
        store<uint32_t>(p.listed, at + popcount(mine & ((1u << lane()) - 1u)), static_cast<uint32_t>(line));
      }
      sync_threads();
      if (t == 0) {
        for (uint32_t w = 0; w < kWarps; ++w) counters[0] += counters[1 + w];
      }
      sync_threads();
    }
  }

  if (t == 0) {
    verdict.lines_out_of_range = counters[14];
    verdict.lines_dirty = counters[0];
    verdict.lines_listed = counters[0];
    const bool seeded =
        p.site_history != 0 && load_relaxed<uint32_t>(p.site_history + offsetof(SiteHistory, agreed), 0) >= kAuditLines;
    if (judged && !seeded && p.plan == Plan::kLine) {
      const uint64_t call = p.identity.call_id;  // sign draws of a cached fold stay, the lines do not
      const Philox4 random =
          philox(Philox4{static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32), 0, kStreamAudit}, p.seed);
      const uint32_t picks[4] = {random.x, random.y, random.z, random.w};
      for (uint32_t a = 0; a < p.audit_lines && a < 4; ++a) {
        int64_t line = static_cast<int64_t>((static_cast<uint64_t>(picks[a]) * static_cast<uint64_t>(p.lines)) >> 32);
        // A line that is set aside, dirty or taken gives its turn to the next; a few tries are enough where any is
        // left.
        for (uint32_t tries = 0; tries < 64; ++tries, line = line + 1 == p.lines ? 0 : line + 1) {
          const float peak = load<float>(p.line_peak, line);
          if (is_aside(peak) || SDCGUARD_EXCEEDS(peak, limit_of(p, line, in_bounds))) continue;
          bool taken = false;
          for (uint32_t i = verdict.lines_dirty; i < verdict.lines_listed; ++i) {
            taken = taken || load<uint32_t>(p.listed, i) == static_cast<uint32_t>(line);
          }
          if (taken) continue;
          store<uint32_t>(p.listed, verdict.lines_listed, static_cast<uint32_t>(line));
          ++verdict.lines_listed;
          break;
        }
      }
    }
    verdict.lines_audited = verdict.lines_listed - verdict.lines_dirty;
    if (judged && verdict.lines_listed != 0) verdict.word = kVerdictLook;
    // So many at once: it is the fold that is wrong. Nothing is recomputed, nothing touched.
    const uint64_t fold = fold_shift(p);
    if (judged && fold != 0 && verdict.lines_dirty > kFewLines && int64_t{verdict.lines_dirty} * 4 > p.lines) {
      verdict.word = kVerdictUnverified;
      verdict.reason = static_cast<uint32_t>(Reason::kStaleFold);
      fold_cache::retire(p, fold);
    }
    verdict.sigma = in_bounds ? 0.0f : float_of(counters[9]);
    verdict.sigma_measured = in_bounds ? 0.0f : float_of(counters[12]);
    verdict.sigma_cap = in_bounds ? 0.0f : static_cast<float>(cap);
    verdict.threshold = p.look_scale;
    verdict.worst = float_of(counters[10]);
    store<Verdict>(p.verdict, 0, verdict);
  }
}

// The end of every pass: its last block judges.
SDCGUARD_DEVICE void judge_in_last_block(const ProbeParams& p, const Shared<float>& values,
                                         const Shared<uint32_t>& counters) {
  sync_threads();
  if (thread_index() == 0) {
    fence_device();
    counters[0] = atomic_add(p.verdict + offsetof(Verdict, product_blocks), 0, 1u) == grid_blocks() - 1 ? 1u : 0u;
    fence_device();
  }
  sync_threads();
  const bool last = counters[0] != 0;
  sync_threads();
  if (last) judge(p, values, counters);
}

// ---- the pass ---------------------------------------------------------------------------------------------------

namespace product {

// What a row's cells are tested against.
struct RowScale {
  double alpha;
  double mean_energy;    // mean_t P_t^2
  double addend_energy;  // of the addends so far, mean_t
};

// s of one cell, without what is lost below the normal range: u sqrt(alpha^2 (w M + beta_b V) + energy / 3).
template <typename T>
SDCGUARD_DEVICE double cell_scale(const RowScale& row, double width, double share, double energy) {
  const double ahead = row.alpha * row.alpha * (width * row.mean_energy + share * row.addend_energy);
  return kUnit<T> * sqrt(ahead + energy * (1.0 / 3.0));
}

// |r| / s without a division by zero: s = 0 with r = 0 is no cell (-1), a residual that is not finite is Inf. widening:
// the square of what comes on top of s where there is anything to compare.
template <typename T>
SDCGUARD_DEVICE float cell_peak(double residual, double scale, double widening) {
  const double magnitude = abs_of(residual);
  if (SDCGUARD_EXCEEDS(magnitude, kLargestOf<T>)) return kInfinity;
  if (scale == 0.0 && magnitude == 0.0) return -1.0f;
  const double wide = widening != 0.0 ? sqrt(scale * scale + widening) : scale;
  if (wide > 0.0) return static_cast<float>(magnitude / wide);
  return kInfinity;
}

// What one lane, then a warp, has of its row's sum.
struct LineSum {
  double sum;        // of the product's part of the entries
  double energy;     // of the entries, and of the offsets as delivered
  double roundings;  // sum of ulp / 2: 16-bit D
};

// True where the sum of a row is not what A_i . mean(B) says: balanced signs do not see one number added to all of it.
template <typename T>
SDCGUARD_DEVICE bool line_sum_is_wrong(const ProbeParams& p, double alpha, int64_t line, const LineSum& line_sum) {
  const double columns = static_cast<double>(p.n3);
  const double ahead = alpha == 0.0 ? 0.0 : alpha * columns * load<double>(p.line_sums, line * 2);
  const double reach = alpha == 0.0 ? 0.0 : fabs(alpha) * columns * load<double>(p.line_sums, line * 2 + 1);
  double bound = static_cast<double>(p.line_sum_scale) * reach + line_sum.roundings;
  bound += fabs(alpha) * columns * p.entry_tiny;
  if (p.delivered != 0) bound += 4.0 * static_cast<double>(p.finish_eps) * sqrt(2.0 * columns * line_sum.energy);
  return SDCGUARD_EXCEEDS(fabs(ahead - line_sum.sum), bound);
}

}  // namespace product

// Block sums of one row by one warp: classes b = lane, lane + 32, ... Returns the lane's largest |r| / bound, and adds
// to the lane's share of the row's sum.
SDCGUARD_DEVICE float block_sum_row(const ProbeParams& p, const FinishScalars<float>& scalars,
                                    const product::RowScale& scale, int64_t entry, int64_t row, int64_t fold_entry,
                                    uint64_t fold, product::LineSum& line_sum) {
  using namespace product;
  const int64_t sign_words = (p.n3 + 31) / 32;
  const int64_t dots = (entry * p.n1 + row) * p.vectors;
  const bool marks = load<uint32_t>(p.marked_columns + fold, fold_entry * (1 + kMaxMarkedColumns)) != 0;
  const uint64_t p_row = row_address(p.p, entry, row);
  const FinishRow at = finish_row(p.finish, entry, row);
  float peak = 0.0f;
  for (uint32_t b = lane(); b < p.classes; b += kWarp) {
    double sum[kDraws] = {0.0, 0.0};
    double roundings = 0.0;  // sum of (ulp / 2)^2
    double energy = 0.0;
    double width = 0.0;
    for (int64_t col = b; col < p.n3; col += p.classes) {
      const int64_t word = col >> 5;
      const uint32_t bit = static_cast<uint32_t>(col & 31);
      if (marks && ((load<uint32_t>(p.column_marks + fold, fold_entry * sign_words + word) >> bit) & 1u) != 0) continue;
      const float got = load_element<float>(p_row, col, p.p.type);
      const double offset = scalars.plain ? 0.0 : static_cast<double>(finish_offset(p.finish, scalars, at, col));
      const double x = static_cast<double>(got) - offset;
      const uint32_t minus0 = (load<uint32_t>(p.signs + fold, word) >> bit) & 1u;
      const uint32_t minus1 = (load<uint32_t>(p.signs + fold, sign_words + word) >> bit) & 1u;
      sum[0] += minus0 != 0 ? -x : x;
      sum[1] += minus1 != 0 ? -x : x;
      const double half = half_ulp(got, p.p.type);
      line_sum.sum += x;
      line_sum.roundings += half;
      roundings = fma(half, half, roundings);
      energy += static_cast<double>(got) * static_cast<double>(got) + offset * offset;
      width += 1.0;
    }
    // Hoeffding over the output's own rounding, and the FP32 accumulation at its a-priori envelope (MATH.md).
    const double accumulation = static_cast<double>(p.sigma_envelope) *
                                cell_scale<float>(scale, width, width / static_cast<double>(p.n3), energy);
    line_sum.energy += energy;
    const double bound = static_cast<double>(p.look_scale) * (sqrt(roundings) + accumulation);
    for (uint32_t d = 0; d < p.draws; ++d) {
      const double ahead = scale.alpha * static_cast<double>(load<float>(p.line_dots, dots + d * p.classes + b));
      const double residual = (scale.alpha == 0.0 ? 0.0 : ahead) - sum[d];
      const float z = cell_peak<float>(residual, bound, scale.alpha * scale.alpha * width * p.cell_tiny);
      if (p.cells != 0) {
        store<float>(p.cells, ((entry * p.n1 + row) * p.classes + b) * (kDraws + 1) + d, static_cast<float>(residual));
      }
      peak = SDCGUARD_EXCEEDS(z, peak) ? z : peak;
    }
    if (p.cells != 0) {
      store<float>(p.cells, ((entry * p.n1 + row) * p.classes + b) * (kDraws + 1) + kDraws, static_cast<float>(bound));
    }
  }
  return peak;
}

// Lower median of a line's |r| / s that are neither 0 nor infinite, by one warp: of `count` values in `ratios`, 0 for
// those that do not take part. 0 where they are fewer than kLineCells.
SDCGUARD_DEVICE float line_median(const Shared<float>& ratios, uint32_t count) {
  constexpr uint32_t kHeld = kMaxClasses * kDraws / kWarp;  // by a lane, at most
  float mine[kHeld];
  uint32_t rank[kHeld] = {};
  SDCGUARD_UNROLL
  for (uint32_t i = 0; i < kHeld; ++i) mine[i] = i * kWarp + lane() < count ? ratios[i * kWarp + lane()] : 0.0f;
  uint32_t taking_part = 0;
  for (uint32_t other = 0; other < count; ++other) {
    const float value = ratios[other];
    if (!(value > 0.0f)) continue;
    ++taking_part;
    SDCGUARD_UNROLL
    for (uint32_t i = 0; i < kHeld; ++i) {
      if (value < mine[i] || (value == mine[i] && other < i * kWarp + lane())) ++rank[i];
    }
  }
  if (taking_part < kLineCells) return 0.0f;
  float median = 0.0f;
  SDCGUARD_UNROLL
  for (uint32_t i = 0; i < kHeld; ++i) {
    if (mine[i] > 0.0f && rank[i] == (taking_part - 1) / 2) median = mine[i];
  }
  return warp_max(median);
}

// The pass in FP32 or FP64 arithmetic.
template <typename T>
SDCGUARD_DEVICE void product_pass(const ProbeParams& p) {
  using namespace product;
  constexpr bool kWide = std::is_same_v<T, double>;
  SDCGUARD_SHARED(uint32_t, kDraws * kSignWords, sign_bits);
  SDCGUARD_SHARED(double, kWarps* kSlots* kDraws, slot_sums);
  SDCGUARD_SHARED(double, kWarps* kSlots, slot_energies);
  SDCGUARD_SHARED(double, kMaxClasses, shares);  // beta_b
  SDCGUARD_SHARED(uint32_t, kPeakBins, bin_counts);
  SDCGUARD_SHARED(uint64_t, kPeakBins, bin_sums);
  SDCGUARD_SHARED(float, kWarps* kMaxClasses* kDraws, ratios);  // |r| / s of a warp's line
  SDCGUARD_SHARED(float, kHistoryDepth + 1, values);
  SDCGUARD_SHARED(uint32_t, 16, counters);
  const uint32_t t = thread_index();
  const uint64_t fold = fold_shift(p);
  const uint32_t c = p.classes;
  const bool block_sums = p.plan == Plan::kBlockSums;
  const bool delivers = p.fused_finish != 0 && p.finish.d.address != 0;
  FinishScalars<T> scalars{};  // of batch entry histogram_entry
  const int64_t row_groups = (p.n1 + kWarps - 1) / kWarps;
  const int64_t sign_words = (p.n3 + 31) / 32;
  const int64_t tiles = (p.n2 + kFoldTile - 1) / kFoldTile;
  if (t < kPeakBins) {
    bin_counts[t] = 0;
    bin_sums[t] = 0;
  }
  int64_t histogram_entry = -1;  // batch entry that the histogram is of
  int64_t share_entry = -1;      // fold entry that the shares are of
  int64_t staged_words = -1;     // first sign word in shared memory

  for (int64_t work = block_index(); work < row_groups * p.batch; work += grid_blocks()) {
    const int64_t entry = work / row_groups;
    const int64_t row = (work - entry * row_groups) * kWarps + warp();
    const int64_t fold_entry = p.fold_batch == 1 ? 0 : entry;
    const bool active = row < p.n1;
    if (entry != histogram_entry) {
      sync_threads();
      if (histogram_entry >= 0 && t < kPeakBins && bin_counts[t] != 0) {
        atomic_add(p.peak_counts, histogram_entry * kPeakBins + t, uint32_t{bin_counts[t]});
        atomic_add(p.peak_sums, histogram_entry * kPeakBins + t, uint64_t{bin_sums[t]});
        bin_counts[t] = 0;
        bin_sums[t] = 0;
      }
      histogram_entry = entry;
      scalars = finish_scalars<T>(p.finish, p.delivered != 0, entry);
      if (fold_entry != share_entry && !block_sums) {
        for (uint32_t b = warp(); b < c; b += kWarps) {
          double energy = 0.0;
          for (int64_t tile = lane(); tile < tiles; tile += kWarp) {
            energy += load<double>(p.tile_energy + fold, (fold_entry * tiles + tile) * c + b);
          }
          energy = warp_sum(energy);
          if (lane() == 0) shares[b] = energy;
        }
        sync_threads();
        double all = 0.0;
        for (uint32_t b = 0; b < c; ++b) all += shares[b];
        sync_threads();
        if (t < c) shares[t] = all > 0.0 ? shares[t] / all : 0.0;
        share_entry = fold_entry;
      }
      sync_threads();
    }

    const int64_t line = entry * p.n1 + row;
    const bool plain = p.delivered == 0 || scalars.plain;
    const double alpha = p.delivered == 0 ? 1.0 : static_cast<double>(scalars.alpha);
    RowScale scale{alpha, 0.0, 0.0};
    bool aside = true;
    double without = kLineAside;  // why
    if (active) {
      scale.mean_energy = load<double>(p.line_noise, line * 2);
      scale.addend_energy = load<double>(p.line_noise, line * 2 + 1);
      aside = scale.mean_energy < 0.0;
      if (aside) without = scale.mean_energy;
    }
    float peak = 0.0f;
    float median = 0.0f;
    bool out_of_range = false;
    LineSum line_sum{0.0, 0.0, 0.0};
    if (!kWide && block_sums) {
      if constexpr (!kWide) {
        if (active && !aside) peak = block_sum_row(p, scalars, scale, entry, row, fold_entry, fold, line_sum);
      }
    } else {
      const bool marks = load<uint32_t>(p.marked_columns + fold, fold_entry * (1 + kMaxMarkedColumns)) != 0;
      const uint64_t p_row = row_address(p.p, entry, active ? row : 0);
      const FinishRow at = finish_row(p.finish, entry, active ? row : 0);
      const bool aligned = is_vector_aligned(p_row, 0, p.p.type);
      double total[kDraws][4] = {};
      double energies[4] = {};
      for (int64_t first_word = 0; first_word < sign_words; first_word += kSignWords) {
        if (staged_words != first_word) {
          sync_threads();
          const int64_t left = sign_words - first_word;
          const uint32_t words = left < kSignWords ? static_cast<uint32_t>(left) : kSignWords;
          for (uint32_t d = 0; d < kDraws; ++d) {
            for (uint32_t w = t; w < words; w += kThreads) {
              sign_bits[d * kSignWords + w] = load<uint32_t>(p.signs + fold, d * sign_words + first_word + w);
            }
          }
          staged_words = first_word;
          sync_threads();
        }
        if (!active) continue;
        const int64_t first_col = first_word * 32;
        const int64_t end_col =
            first_col + int64_t{kSignWords} * 32 < p.n3 ? first_col + int64_t{kSignWords} * 32 : p.n3;
        for (int64_t block_col = first_col; block_col < end_col; block_col += kBatchSteps * kSlots) {
          Quad<T> values4[kBatchSteps];
          SDCGUARD_UNROLL
          for (uint32_t i = 0; i < kBatchSteps; ++i) {
            const int64_t col = block_col + i * kSlots + lane() * 4;
            const uint32_t count = four_or_less(col, end_col);
            values4[i] = Quad<T>{0, 0, 0, 0};
            if (count == 4 && aligned) {
              values4[i] = load_aligned4<T>(p_row, col, p.p.type);
            } else if (count != 0) {
              values4[i] = load_strided4<T>(p_row, col, 1, count, p.p.type);
            }
          }
          T part[kDraws][4] = {};
          SquareSum<T> squares[4] = {};
          T plain_part = 0;
          SDCGUARD_UNROLL
          for (uint32_t i = 0; i < kBatchSteps; ++i) {
            const int64_t col = block_col + i * kSlots + lane() * 4;
            const uint32_t count = four_or_less(col, end_col);
            if (count == 0) continue;
            if (delivers) deliver_quad(p.finish, scalars, at, values4[i], count, col);
            const uint32_t local = static_cast<uint32_t>(col - first_col);
            const uint32_t shift = local & 31u;
            const uint32_t minus0 = sign_bits[local >> 5] >> shift;
            const uint32_t minus1 = sign_bits[kSignWords + (local >> 5)] >> shift;
            uint32_t skip = 0;
            if (marks) skip = load<uint32_t>(p.column_marks + fold, fold_entry * sign_words + (col >> 5)) >> shift;
            Quad<T> offsets{0, 0, 0, 0};
            if (!plain) offsets = finish_offset4(p.finish, scalars, at, count, col);
            SDCGUARD_UNROLL
            for (uint32_t j = 0; j < 4; ++j) {
              T x = component(values4[i], j);
              if (((skip >> j) & 1u) != 0 || j >= count) continue;
              if (!plain) {
                // As delivered: the product's part of D, and the energy of both terms that were rounded.
                const T offset = component(offsets, j);
                energies[j] = fma(static_cast<double>(offset), static_cast<double>(offset), energies[j]);
                energies[j] = fma(static_cast<double>(x), static_cast<double>(x), energies[j]);
                x = x - offset;
              }
              part[0][j] += flip(x, (minus0 >> j) & 1u);
              part[1][j] += flip(x, (minus1 >> j) & 1u);
              plain_part = fma(x, T{kSixteenth}, plain_part);
              squares[j].part = fma(x, x, squares[j].part);
              squares[j].peak = max_of(squares[j].peak, abs_of(x));
            }
          }
          line_sum.sum += 16.0 * static_cast<double>(plain_part);
          SDCGUARD_UNROLL
          for (uint32_t j = 0; j < 4; ++j) {
            total[0][j] += static_cast<double>(part[0][j]);
            total[1][j] += static_cast<double>(part[1][j]);
            if (!plain) continue;
            if (kWide || (squares[j].peak >= kSquareLow && squares[j].peak <= kSquareHigh)) {
              energies[j] += static_cast<double>(squares[j].part);
            } else if (squares[j].peak != 0.0f) {
              SDCGUARD_UNROLL
              for (uint32_t i = 0; i < kBatchSteps; ++i) {
                const int64_t col = block_col + i * kSlots + lane() * 4 + j;
                if (col >= end_col) continue;
                if (marks &&
                    ((load<uint32_t>(p.column_marks + fold, fold_entry * sign_words + (col >> 5)) >> (col & 31)) &
                     1u) != 0) {
                  continue;
                }
                const double x = static_cast<double>(component(values4[i], j));
                energies[j] = fma(x, x, energies[j]);
              }
            }
          }
        }
      }
      // Slots of one class meet in shared memory; a lane takes whole classes.
      const uint32_t my_slots = warp() * kSlots;
      SDCGUARD_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        slot_sums[(my_slots + lane() * 4 + j) * kDraws] = total[0][j];
        slot_sums[(my_slots + lane() * 4 + j) * kDraws + 1] = total[1][j];
        slot_energies[my_slots + lane() * 4 + j] = energies[j];
      }
      sync_warp();
      if (active && !aside) {
        for (uint32_t b = lane(); b < c; b += kWarp) {
          Cell cell{{0.0, 0.0}, 0.0};
          for (uint32_t slot = b; slot < kSlots; slot += c) {
            cell.sum[0] += slot_sums[(my_slots + slot) * kDraws];
            cell.sum[1] += slot_sums[(my_slots + slot) * kDraws + 1];
            cell.energy += slot_energies[my_slots + slot];
          }
          line_sum.energy += cell.energy;
          const double width = static_cast<double>((p.n3 - b + c - 1) / c);
          const double s = cell_scale<T>(scale, width, shares[b], cell.energy);
          const double tiny = alpha * alpha * width * p.cell_tiny;
          // An infinite energy beside a finite sum hides nothing: the line is dirty by its own value.
          const bool scale_lost = SDCGUARD_EXCEEDS(s, kLargestOf<T>);
          for (uint32_t d = 0; d < p.draws; ++d) {
            const double dot = static_cast<double>(load<T>(p.line_dots, line * p.vectors + d * c + b));
            if (!is_finite(dot)) out_of_range = true;  // of finite entries: nothing can be said of the product
            const double residual = (alpha == 0.0 ? 0.0 : alpha * dot) - cell.sum[d];
            const double verifier = static_cast<double>(p.verifier_scale) * kUnit<T> * alpha * dot;
            const float z = scale_lost ? kInfinity : cell_peak<T>(residual, s, tiny + verifier * verifier);
            const bool measures = z > 0.0f && z < kInfinity;  // a sum that is exact says nothing of others' noise
            ratios[warp() * kMaxClasses * kDraws + b * p.draws + d] = measures ? z : 0.0f;
            if (measures) {
              const uint32_t bin = peak_bin(z);
              const float clamped = z < 0x1p28f ? z : 0x1p28f;
              atomic_add(bin_counts[bin], 1u);
              atomic_add(bin_sums[bin], static_cast<uint64_t>(clamped * (1.0f / kPeakUnit) + 0.5f));
            }
            peak = SDCGUARD_EXCEEDS(z, peak) ? z : peak;
            if (p.cells != 0) {
              store<float>(p.cells, (line * c + b) * (kDraws + 1) + d, static_cast<float>(residual));
            }
          }
          if (p.cells != 0) store<float>(p.cells, (line * c + b) * (kDraws + 1) + kDraws, static_cast<float>(s));
        }
      }
      sync_warp();
      if (active && !aside) median = line_median(ratios + warp() * kMaxClasses * kDraws, c * p.draws);
    }
    if (ballot(out_of_range) != 0) {
      aside = true;
      without = kLineOutOfRange;
    }
    peak = warp_max(peak);
    double sums[3] = {line_sum.sum, line_sum.energy, line_sum.roundings};
    warp_sum_n(sums);
    if (active && !aside && line_sum_is_wrong<T>(p, alpha, line, LineSum{sums[0], sums[1], sums[2]})) peak = kInfinity;
    if (active && lane() == 0) {
      store<float>(p.line_peak, line, aside ? static_cast<float>(without) : peak);
      store<float>(p.line_median, line, median);
    }
  }

  sync_threads();
  if (histogram_entry >= 0 && t < kPeakBins && bin_counts[t] != 0) {
    atomic_add(p.peak_counts, histogram_entry * kPeakBins + t, uint32_t{bin_counts[t]});
    atomic_add(p.peak_sums, histogram_entry * kPeakBins + t, uint64_t{bin_sums[t]});
  }
  judge_in_last_block(p, values, counters);
}

// The pass of INT8 products, modulo 2^32: a line is dirty where one class's weighted sum is not what A and B say.
SDCGUARD_DEVICE void product_pass_exact(const ProbeParams& p) {
  using namespace product;
  SDCGUARD_SHARED(uint32_t, kWarps * kSlots * kDraws, slot_sums);
  SDCGUARD_SHARED(float, kHistoryDepth + 1, values);
  SDCGUARD_SHARED(uint32_t, 16, counters);
  const bool delivers = p.fused_finish != 0 && p.finish.d.address != 0;
  const int64_t row_groups = (p.n1 + kWarps - 1) / kWarps;
  const SignDraw draws[kDraws] = {sign_draw(p.seed, 0), sign_draw(p.seed, 1)};
  for (int64_t work = block_index(); work < row_groups * p.batch; work += grid_blocks()) {
    const int64_t entry = work / row_groups;
    const int64_t row = (work - entry * row_groups) * kWarps + warp();
    if (row >= p.n1) continue;  // the whole warp
    const FinishScalars<uint32_t> scalars = finish_scalars<uint32_t>(p.finish, p.delivered != 0, entry);
    const bool plain = p.delivered == 0 || scalars.plain;
    const uint32_t alpha = p.delivered == 0 ? 1u : scalars.alpha;
    const uint64_t p_row = row_address(p.p, entry, row);
    const FinishRow at = finish_row(p.finish, entry, row);
    uint32_t total[kDraws][4] = {};
    for (int64_t col = lane() * 4; col < p.n3; col += kSlots) {
      const uint32_t count = four_or_less(col, p.n3);
      const Quad<uint32_t> v = load_four<uint32_t>(p_row, col, count, p.p.type);
      if (delivers) deliver_quad(p.finish, scalars, at, v, count, col);
      SDCGUARD_UNROLL
      for (uint32_t j = 0; j < 4; ++j) {
        if (j >= count) continue;
        uint32_t x = component(v, j);
        if (!plain) x -= finish_offset(p.finish, scalars, at, col + j);
        for (uint32_t d = 0; d < kDraws; ++d) {
          total[d][j] += x * exact_weight(draws[d], d, static_cast<uint32_t>(col) + j);
        }
      }
    }
    // Slots of one class meet in shared memory; a lane takes whole classes.
    const uint32_t my_slots = warp() * kSlots;
    SDCGUARD_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      for (uint32_t d = 0; d < kDraws; ++d) slot_sums[(my_slots + lane() * 4 + j) * kDraws + d] = total[d][j];
    }
    sync_warp();
    const int64_t line = entry * p.n1 + row;
    bool dirty = false;
    for (uint32_t b = lane(); b < p.classes; b += kWarp) {
      for (uint32_t d = 0; d < p.draws; ++d) {
        uint32_t sum = 0;
        for (uint32_t slot = b; slot < kSlots; slot += p.classes) sum += slot_sums[(my_slots + slot) * kDraws + d];
        dirty = dirty || alpha * load<uint32_t>(p.line_dots, line * p.vectors + d * p.classes + b) != sum;
      }
    }
    const bool any = ballot(dirty) != 0;
    if (lane() == 0) store<float>(p.line_peak, line, any ? kInfinity : 0.0f);
    sync_warp();
  }
  judge_in_last_block(p, values, counters);
}

SDCGUARD_KERNEL(sdcguard_product, ProbeParams, 256) {
  product_pass<float>(p);
}

SDCGUARD_KERNEL(sdcguard_product_f64, ProbeParams, 256) {
  product_pass<double>(p);
}

SDCGUARD_KERNEL(sdcguard_product_i32, ProbeParams, 256) {
  product_pass_exact(p);
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// stage probe, fold: takes B, gives for each k the signed class sums of row k of B (both draws), its mean and its
// root mean square, and the class energies; runs on the side stream, before the operand pass. It also clears what the
// later kernels of the call count in. MATH.md "fold", "signs", "set aside".
//
// One block takes tiles of kFoldTile rows k and walks over all columns in panels of 128, staged in shared memory so
// that both layouts of B are read along their contiguous direction. In a panel a thread owns one k (its lane) and the
// classes b = warp, warp + 8, ... of the current chunk of 32 classes.
//
// With a fold cache (fold_cache.h) a call that uses a published fold only clears; one that folds for itself takes a
// fingerprint of what it stores, and its last block may publish it.
//
// INT8 products are checked modulo 2^32: random weights (signs.h) in place of signs, and nothing of the noise scale.

#include "kernels/element.h"
#include "kernels/fold_cache.h"
#include "kernels/params.h"
#include "kernels/signs.h"
#include "kernels/simt.h"

namespace sdcguard {

namespace fold {

inline constexpr uint32_t kThreads = 256;
template <typename T>
inline constexpr uint32_t kPanel = 512 / sizeof(T);  // columns staged at once
inline constexpr uint32_t kPitch = kFoldTile + 1;    // floats between staged columns: no bank conflict either way
inline constexpr uint32_t kChunk = 32;               // classes handled at once
inline constexpr uint32_t kOwned = kChunk / 8;       // classes a warp owns in a chunk
inline constexpr uint32_t kResidentWords = 2048;     // sign words of one draw kept for the whole kernel: 65,536 columns
inline constexpr uint32_t kTableSlots = 256;         // open-addressed set of a tile's marked columns
inline constexpr uint32_t kOverflow = kMaxMarkedColumns + 1;
inline constexpr uint32_t kRangeBit = 0x80000000u;  // in a tile's count: a class sum left the FP32 range

static_assert(kFoldTile == kWarp);

// Adds column to the tile's set; false when the set is full.
SDCGUARD_DEVICE bool mark_column(const Shared<uint32_t>& table, uint32_t column) {
  uint32_t slot = column % kTableSlots;
  for (uint32_t tries = 0; tries < kTableSlots; ++tries) {
    const uint32_t seen = atomic_cas(table[slot], 0u, column + 1);
    if (seen == 0 || seen == column + 1) return true;
    slot = (slot + 1) % kTableSlots;
  }
  return false;
}

// What is counted of an entry of B. over: finite, and beyond what the library's own format of operands holds.
template <typename T>
SDCGUARD_DEVICE T usable_part(T v, T largest, bool& bad, bool& over) {
  if constexpr (kIsExact<T>) {
    return v;
  } else {
    if (abs_of(v) <= largest) return v;
    if (is_finite(v)) {
      over = true;
      return v;
    }
    bad = true;
    return T{0};
  }
}

// Which columns of B one panel holds: panel column q * width + (b - first_class) is column q * c + b.
struct Panel {
  int64_t n3;
  uint32_t c, first_class, width;  // width: classes in this chunk
  uint32_t first_q, count_q;       // positions in the class
};

SDCGUARD_DEVICE int64_t column_of(const Panel& panel, uint32_t p) {
  if (panel.width == panel.c) return int64_t{panel.first_q} * panel.c + p;
  return int64_t{panel.first_q + p / panel.width} * panel.c + panel.first_class + p % panel.width;
}

SDCGUARD_DEVICE bool sign_of_column(const SignDraw& draw, const ProbeParams& p, int64_t column) {
  const uint32_t b = static_cast<uint32_t>(column % p.classes);
  return sign_is_minus(draw, b, static_cast<uint32_t>(column / p.classes), class_width(p.n3, p.classes, b));
}

}  // namespace fold

// The last block: the set of marked columns of each B, and their share taken out of the class sums and the means. To
// thread 0: whether the fold may serve other calls; one that leaves its call unverified may not.
template <typename T>
SDCGUARD_DEVICE bool fold_set_aside(const ProbeParams& p, uint32_t tiles, uint32_t sign_words,
                                    const Shared<uint32_t>& flags) {
  using namespace fold;
  const uint32_t t = thread_index();
  // flags: [1] any mark, [2] too many, [3] range, [4] columns marked in all
  for (int64_t tile = t; tile < int64_t{tiles} * p.fold_batch; tile += kThreads) {
    const uint32_t count = load<uint32_t>(p.tile_marks, tile * (1 + kMaxMarkedColumns));
    if (count == 0) continue;
    if ((count & kRangeBit) != 0) atomic_or(flags[3], 1u);
    const uint32_t columns = count & ~kRangeBit;
    if (columns == 0) continue;
    atomic_or(flags[1], 1u);
    if (columns >= kOverflow) {
      atomic_or(flags[2], 1u);
      continue;
    }
    const int64_t entry = tile / tiles;
    for (uint32_t i = 0; i < columns; ++i) {
      const uint32_t column = load<uint32_t>(p.tile_marks, tile * (1 + kMaxMarkedColumns) + 1 + i);
      atomic_or(p.column_marks, entry * sign_words + (column >> 5), uint32_t{1} << (column & 31u));
    }
  }
  if (t == 0) fence_device();
  sync_threads();
  if constexpr (!kIsExact<T>) {
    if (flags[1] != 0) {
      // In column order, so that the sums come out the same whichever thread marked first.
      for (int64_t entry = 0; entry < p.fold_batch; ++entry) {
        if (t == 0) {
          uint32_t count = 0;
          for (uint32_t w = 0; w < sign_words; ++w) {
            uint32_t word = atomic_or(p.column_marks, entry * sign_words + w, 0u);
            for (; word != 0; word &= word - 1, ++count) {
              if (count < kMaxMarkedColumns) {
                store<uint32_t>(p.marked_columns, entry * (1 + kMaxMarkedColumns) + 1 + count,
                                w * 32 + lowest_bit(word));
              }
            }
          }
          if (count > kMaxMarkedColumns) flags[2] = 1;
          flags[4] += count;
          store<uint32_t>(p.marked_columns, entry * (1 + kMaxMarkedColumns), count);
          flags[5] = count;
        }
        sync_threads();
        const uint32_t count = flags[5] > kMaxMarkedColumns ? 0u : flags[5];
        const uint64_t b_address = entry_address(p.b, entry);
        for (int64_t k = t; k < p.n2 && count != 0; k += kThreads) {
          double taken = 0.0;
          for (uint32_t i = 0; i < count; ++i) {
            const uint32_t column = load<uint32_t>(p.marked_columns, entry * (1 + kMaxMarkedColumns) + 1 + i);
            const T v = load_element<T>(b_address, element_index(p.b, k, column), p.b.type);
            if (!is_finite(v) || v == T{0}) continue;
            taken += static_cast<double>(v);
            for (uint32_t d = 0; d < kDraws; ++d) {
              const bool minus = sign_of_column(sign_draw(p.seed, d), p, column);
              const int64_t at = (entry * p.n2 + k) * p.vectors + d * p.classes + column % p.classes;
              const T sum = load<T>(p.fold_sums, at);
              store<T>(p.fold_sums, at, minus ? sum + v : sum - v);
            }
          }
          const double mean = static_cast<double>(load<T>(p.fold_mean, entry * p.n2 + k));
          store<T>(p.fold_mean, entry * p.n2 + k, static_cast<T>(mean - taken / static_cast<double>(p.n3)));
        }
        sync_threads();
      }
    }
  }
  bool serves = false;
  if (t == 0) {
    Verdict verdict{};
    verdict.columns_nonfinite = flags[4];
    verdict.range = flags[3];
    if (flags[2] != 0 || flags[4] == static_cast<uint64_t>(p.n3 * p.fold_batch)) {
      verdict.word = kVerdictUnverified;
      verdict.reason = static_cast<uint32_t>(Reason::kNonfiniteOperand);
    }
    store<Verdict>(p.verdict, 0, verdict);
    serves = verdict.word == 0 && verdict.range == 0;
  }
  return serves;
}

// The last block, after the call's own fold: publishes it where it is the third in a row.
SDCGUARD_DEVICE void fold_publish(const ProbeParams& p, bool serves, const Shared<uint32_t>& flags) {
  using namespace fold;
  const uint32_t t = thread_index();
  // flags: [2] 1 + generation, [4] columns marked
  if (t == 0) {
    const uint64_t fingerprint = atomic_add(p.fold_ticket, fold_cache::kFingerprint, uint64_t{0});
    flags[2] = serves ? fold_cache::count_fold(p, fingerprint) : 0u;
  }
  sync_threads();
  if (flags[2] == 0) return;
  const uint32_t generation = flags[2] - 1;
  const uint64_t to = fold_cache::generation_address(p, generation);
  for (int64_t i = t; i < static_cast<int64_t>(p.fold_bytes / sizeof(Quad<uint32_t>)); i += kThreads) {
    store<Quad<uint32_t>>(to, i, load<Quad<uint32_t>>(p.tile_energy, i));
  }
  sync_threads();
  if (t == 0) {
    store<uint32_t>(p.fold_cache + offsetof(FoldCache, columns_nonfinite), generation, flags[4]);
    fence_device();
    atomic_cas(p.fold_cache + offsetof(FoldCache, state), 0, fold_cache::make_state(generation, fold_cache::kWriting),
               fold_cache::make_state(generation, fold_cache::kPublished));
  }
}

// One thread of the last block: the verdict of a call that uses a published fold, as its own fold would have left it.
SDCGUARD_DEVICE void fold_reuse(const ProbeParams& p, uint32_t generation) {
  Verdict verdict{};
  verdict.columns_nonfinite = load<uint32_t>(p.fold_cache + offsetof(FoldCache, columns_nonfinite), generation);
  store<Verdict>(p.verdict, 0, verdict);
  store<uint64_t>(p.fold_ticket, fold_cache::kShift, fold_cache::generation_address(p, generation) - p.tile_energy);
  atomic_add(p.fold_cache + offsetof(FoldCache, used), 0, uint64_t{1});
}

template <typename T>
SDCGUARD_DEVICE void fold_pass(const ProbeParams& p) {
  using namespace fold;
  constexpr bool kExact = kIsExact<T>;
  constexpr uint32_t kColumns = kPanel<T>;
  constexpr uint32_t kMoments = std::is_same_v<T, double> ? 3 : 2;
  SDCGUARD_SHARED(T, kColumns * kPitch, staged);
  SDCGUARD_SHARED(uint32_t, kDraws * (kExact ? kColumns : kResidentWords), sign_bits);  // kExact: the panel's weights
  SDCGUARD_SHARED(double, kMoments * 8 * kWarp, moments);
  SDCGUARD_SHARED(uint32_t, kTableSlots, table);
  SDCGUARD_SHARED(uint32_t, 8, flags);
  SDCGUARD_SHARED(uint64_t, 1, fingerprint);
  SDCGUARD_SHARED(uint32_t, 1, decision);
  const uint32_t t = thread_index();
  const uint32_t c = p.classes;
  const uint32_t sign_words = static_cast<uint32_t>((p.n3 + 31) / 32);
  const bool resident = !kExact && sign_words <= kResidentWords;
  const SignDraw draws[kDraws] = {sign_draw(p.seed, 0), sign_draw(p.seed, 1)};

  // What later kernels count in. Nothing of it is read in this kernel before the last block has the ticket.
  const int64_t step = int64_t{grid_blocks()} * kThreads;
  const int64_t me = int64_t{block_index()} * kThreads + t;
  for (int64_t i = me; i < p.batch * kPeakBins; i += step) {
    store<uint32_t>(p.peak_counts, i, 0u);
    store<uint64_t>(p.peak_sums, i, uint64_t{0});
  }
  for (int64_t i = me; i < p.fold_batch * sign_words; i += step) store<uint32_t>(p.column_marks, i, 0u);
  for (int64_t i = me; i < p.fold_batch; i += step) {
    store<uint32_t>(p.marked_columns, i * (1 + kMaxMarkedColumns), 0u);
  }
  for (uint32_t i = t; i < kTableSlots; i += kThreads) table[i] = 0;
  if (t < 8) flags[t] = 0;
  if (t == 0) {
    *fingerprint = 0;
    *decision = fold_cache::decide(p);
  }
  sync_threads();
  const bool own_fold = *decision == 1;
  const bool prints = own_fold && p.fold_cache != 0;
  uint64_t print = 0;  // this thread's share of the fingerprint

  // Signs: for the product pass in device memory, each block its share; for this block all of them where they fit.
  for (uint32_t d = 0; d < kDraws && !kExact && own_fold; ++d) {
    const uint32_t groups = (sign_words + 7) / 8;  // a block of 256 threads makes 8 words at once
    for (uint32_t g = resident ? 0 : block_index(); g < groups; g += resident ? 1 : grid_blocks()) {
      const int64_t column = int64_t{g} * kThreads + t;
      const uint32_t word = ballot(column < p.n3 && sign_of_column(draws[d], p, column));
      const uint32_t at = g * 8 + warp();
      if (lane() == 0 && at < sign_words) {
        if (resident) sign_bits[d * kResidentWords + at] = word;
        if (!resident || g % grid_blocks() == block_index()) {
          store<uint32_t>(p.signs, int64_t{d} * sign_words + at, word);
        }
      }
    }
  }
  sync_threads();

  const uint32_t tiles = static_cast<uint32_t>((p.n2 + kFoldTile - 1) / kFoldTile);
  const bool along_k = p.b.row_stride == 1;
  const T largest = static_cast<T>(p.operand_largest);
  const T floor = static_cast<T>(p.operand_floor_b);
  const int64_t all_tiles = own_fold ? int64_t{tiles} * p.fold_batch : 0;
  for (int64_t tile = block_index(); tile < all_tiles; tile += grid_blocks()) {
    const int64_t entry = tile / tiles;
    const int64_t first_k = (tile - entry * tiles) * kFoldTile;
    const int64_t my_k = first_k + lane();
    double sum = 0.0;
    double square_sum = 0.0;
    double peak = 0.0;
    const uint64_t b_address = entry_address(p.b, entry);
    bool any_bad = false;
    bool out_of_range = false;
    for (uint32_t first_class = 0; first_class < c; first_class += kChunk) {
      Panel panel;
      panel.n3 = p.n3;
      panel.c = c;
      panel.first_class = first_class;
      panel.width = c - first_class < kChunk ? c - first_class : kChunk;
      panel.count_q = kColumns / panel.width;
      const uint32_t panel_columns = panel.count_q * panel.width;
      const uint32_t widest = class_width(p.n3, c, first_class);
      T total[kOwned][kDraws];
      double energy[kOwned];
      SDCGUARD_UNROLL
      for (uint32_t i = 0; i < kOwned; ++i) {
        total[i][0] = total[i][1] = T{0};
        energy[i] = 0.0;
      }
      for (panel.first_q = 0; panel.first_q < widest; panel.first_q += panel.count_q) {
        // Stage. Items of four elements along the contiguous direction.
        if (along_k) {
          for (uint32_t item = t; item < panel_columns * (kFoldTile / 4); item += kThreads) {
            const uint32_t q = item / (kFoldTile / 4);
            const uint32_t k4 = item % (kFoldTile / 4) * 4;
            const int64_t column = column_of(panel, q);
            const uint32_t count = column < p.n3 ? four_or_less(first_k + k4, p.n2) : 0u;
            Quad<T> v{0, 0, 0, 0};
            if (count != 0) {
              v = load_four<T>(b_address, element_index(p.b, first_k + k4, column), count, p.b.type);
            }
            bool bad = false;
            staged[q * kPitch + k4] = usable_part(v.x, largest, bad, out_of_range);
            staged[q * kPitch + k4 + 1] = usable_part(v.y, largest, bad, out_of_range);
            staged[q * kPitch + k4 + 2] = usable_part(v.z, largest, bad, out_of_range);
            staged[q * kPitch + k4 + 3] = usable_part(v.w, largest, bad, out_of_range);
            if (bad) {
              any_bad = true;
              if (!mark_column(table, static_cast<uint32_t>(column))) atomic_or(flags[6], 1u);
            }
          }
        } else {
          // Four panel columns are four columns of B in a row where runs of classes are whole or a multiple of four.
          const bool in_runs = panel.width == c || panel.width % 4 == 0;
          const uint32_t quads = (panel_columns + 3) / 4;
          for (uint32_t item = t; item < quads * kFoldTile; item += kThreads) {
            const uint32_t k = item / quads;
            const uint32_t q = item % quads * 4;
            Quad<T> v{0, 0, 0, 0};
            const int64_t column = column_of(panel, q);
            if (first_k + k < p.n2) {
              uint32_t count = four_or_less(column, p.n3);
              if (panel_columns - q < count) count = panel_columns - q;
              if (in_runs) {
                if (count != 0) {
                  v = load_four<T>(b_address, element_index(p.b, first_k + k, column), count, p.b.type);
                }
              } else {
                for (uint32_t i = 0; i < 4 && q + i < panel_columns; ++i) {
                  const int64_t other = column_of(panel, q + i);
                  if (other >= p.n3) continue;
                  const T x = load_element<T>(b_address, element_index(p.b, first_k + k, other), p.b.type);
                  (i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w) = x;
                }
              }
            }
            for (uint32_t i = 0; i < 4 && q + i < panel_columns; ++i) {
              bool bad = false;
              staged[(q + i) * kPitch + k] = usable_part(component(v, i), largest, bad, out_of_range);
              if (bad) {
                any_bad = true;
                const uint32_t marked = static_cast<uint32_t>(in_runs ? column + i : column_of(panel, q + i));
                if (!mark_column(table, marked)) atomic_or(flags[6], 1u);
              }
            }
          }
        }
        if constexpr (kExact) {
          if (t < kDraws * kColumns) {
            sign_bits[t] =
                exact_weight(draws[t / kColumns], t / kColumns, static_cast<uint32_t>(column_of(panel, t % kColumns)));
          }
        } else if (!resident && t < kDraws * kColumns) {
          const uint32_t d = t / kColumns;
          const uint32_t q = t % kColumns;
          const int64_t column = column_of(panel, q);
          const uint32_t word = ballot(q < panel_columns && column < p.n3 && sign_of_column(draws[d], p, column));
          if (lane() == 0) sign_bits[d * kResidentWords + q / 32] = word;
        }
        sync_threads();
        SDCGUARD_UNROLL
        for (uint32_t i = 0; i < kOwned; ++i) {
          const uint32_t b = warp() + 8 * i;
          if (b >= panel.width) continue;
          T part[kDraws] = {0, 0};
          T plain = 0;
          double squares = 0.0;
          for (uint32_t q = 0; q < panel.count_q; ++q) {
            const uint32_t at = q * panel.width + b;
            const int64_t column = int64_t{panel.first_q + q} * c + first_class + b;
            if (column >= p.n3) break;
            const uint32_t bit = resident ? static_cast<uint32_t>(column) : at;
            const T x = staged[at * kPitch + lane()];
            if constexpr (kExact) {
              part[0] += x * sign_bits[at];
              part[1] += x * sign_bits[kColumns + at];
              continue;
            } else {
              const uint32_t minus0 = (sign_bits[bit >> 5] >> (bit & 31u)) & 1u;
              const uint32_t minus1 = (sign_bits[kResidentWords + (bit >> 5)] >> (bit & 31u)) & 1u;
              part[0] += flip(x, minus0);
              part[1] += flip(x, minus1);
              plain += x;
              const double wide = static_cast<double>(at_least(x, floor));
              squares = fma(wide, wide, squares);
              if constexpr (std::is_same_v<T, double>) peak = max_of(peak, abs_of(x));
            }
          }
          total[i][0] += part[0];
          total[i][1] += part[1];
          sum += static_cast<double>(plain);
          energy[i] += squares;
        }
        sync_threads();
      }
      SDCGUARD_UNROLL
      for (uint32_t i = 0; i < kOwned; ++i) {
        const uint32_t b = warp() + 8 * i;
        if (b >= panel.width) continue;
        if (my_k < p.n2) {
          const int64_t row = (entry * p.n2 + my_k) * p.vectors;
          store<T>(p.fold_sums, row + first_class + b, total[i][0]);
          store<T>(p.fold_sums, row + c + first_class + b, total[i][1]);
          if (prints) {
            const uint64_t at = static_cast<uint64_t>(row + first_class + b);
            print += fold_cache::fingerprint_of(fold_cache::word_of(total[i][0]), at) +
                     fold_cache::fingerprint_of(fold_cache::word_of(total[i][1]), at + c);
          }
        }
        if constexpr (!kExact) {
          out_of_range = out_of_range || !is_finite(total[i][0]) || !is_finite(total[i][1]);
          square_sum += energy[i];
          const double tile_energy = warp_sum(energy[i]);
          if (lane() == 0) {
            const int64_t at = tile * c + first_class + b;
            store<double>(p.tile_energy, at, tile_energy);
            if (prints) print += fold_cache::fingerprint_of(bits_of(tile_energy), ~static_cast<uint64_t>(at) << 1);
          }
        }
      }
    }
    for (uint32_t v = kDraws * c + warp(); v < p.vectors; v += 8) {
      if (my_k < p.n2) store<T>(p.fold_sums, (entry * p.n2 + my_k) * p.vectors + v, T{0});
    }
    if constexpr (!kExact) {
      moments[warp() * kWarp + lane()] = sum;
      moments[(8 + warp()) * kWarp + lane()] = square_sum;
      if constexpr (kMoments == 3) moments[(16 + warp()) * kWarp + lane()] = peak;
      sync_threads();
      if (warp() == 0) {
        double row_sum = 0.0;
        double row_squares = 0.0;
        for (uint32_t w = 0; w < 8; ++w) {
          row_sum += moments[w * kWarp + lane()];
          row_squares += moments[(8 + w) * kWarp + lane()];
        }
        const double columns = static_cast<double>(p.n3);
        const double mean = row_sum / columns;
        if constexpr (kMoments == 3) {
          double largest_here = 0.0;
          for (uint32_t w = 0; w < 8; ++w) largest_here = max_of(largest_here, moments[(16 + w) * kWarp + lane()]);
          out_of_range =
              out_of_range || (largest_here != 0.0 && !(largest_here >= kWideLow && largest_here <= kWideHigh));
        }
        if (my_k < p.n2) {
          store<T>(p.fold_mean, entry * p.n2 + my_k, static_cast<T>(mean));
          const T rms = static_cast<T>(sqrt(row_squares / columns));
          store<T>(p.fold_rms, entry * p.n2 + my_k, rms);
          if (prints) {
            print +=
                fold_cache::fingerprint_of(fold_cache::word_of(static_cast<T>(mean)) ^ fold_cache::word_of(rms) << 1,
                                           ~static_cast<uint64_t>(entry * p.n2 + my_k));
          }
        }
      }
    }
    if (any_bad) atomic_or(flags[7], 1u);
    if (out_of_range) atomic_or(flags[7], 2u);
    sync_threads();
    if (t == 0) {
      uint32_t count = 0;
      if ((flags[7] & 1u) != 0) {
        for (uint32_t i = 0; i < kTableSlots; ++i) {
          if (table[i] == 0) continue;
          if (count < kMaxMarkedColumns)
            store<uint32_t>(p.tile_marks, tile * (1 + kMaxMarkedColumns) + 1 + count, table[i] - 1);
          if (prints) print += fold_cache::fingerprint_of(table[i], ~(static_cast<uint64_t>(tile) << 32));
          ++count;
          table[i] = 0;
        }
        if (count > kMaxMarkedColumns || flags[6] != 0) count = kOverflow;
      }
      if ((flags[7] & 2u) != 0) count |= kRangeBit;
      if (prints) print += fold_cache::fingerprint_of(count, static_cast<uint64_t>(tile) << 32);
      store<uint32_t>(p.tile_marks, tile * (1 + kMaxMarkedColumns), count);
      flags[6] = 0;
      flags[7] = 0;
    }
    sync_threads();
  }

  if (prints) {
    atomic_add(fingerprint[0], print);
    sync_threads();
    if (t == 0) atomic_add(p.fold_ticket, fold_cache::kFingerprint, uint64_t{fingerprint[0]});
  }
  if (t == 0) {
    fence_device();
    flags[0] = atomic_add(p.fold_ticket, 0, 1u) == grid_blocks() - 1 ? 1u : 0u;
    fence_device();
  }
  sync_threads();
  if (flags[0] == 0) return;
  if (own_fold) {
    const bool serves = fold_set_aside<T>(p, tiles, sign_words, flags);
    if (t == 0) store<uint64_t>(p.fold_ticket, fold_cache::kShift, uint64_t{0});
    if (prints) {
      sync_threads();
      fold_publish(p, serves, flags);
    }
  } else if (t == 0) {
    fold_reuse(p, *decision - 2);
  }
  if (t == 0) {
    store<uint64_t>(p.fold_ticket, 0, uint64_t{0});  // ticket and decision
    store<uint64_t>(p.fold_ticket, fold_cache::kFingerprint, uint64_t{0});
  }
}

SDCGUARD_KERNEL(sdcguard_fold, ProbeParams, 256) {
  fold_pass<float>(p);
}

SDCGUARD_KERNEL(sdcguard_fold_f64, ProbeParams, 256) {
  fold_pass<double>(p);
}

SDCGUARD_KERNEL(sdcguard_fold_i32, ProbeParams, 256) {
  fold_pass<uint32_t>(p);
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// stage probe, operand pass: one read of A, gives for each row its dots with the class-sum vectors, the running
// energies of its noise scale, and what its sum must be and may miss that by; runs on the side stream, after the fold.
// MATH.md "dots", "noise scale", "line sum".
//
// One block takes 32 rows and walks over k in chunks staged in shared memory. Its eight warps share the vectors and the
// k of a chunk: `groups` groups of 16 vectors times `splits` parts of the chunk. A thread owns 4 rows x 4 vectors; sums
// of at most 32 terms are added to an error-free pair (hi, lo), so the dots carry hardly more error than one rounding.
// In FP32 the largest addend of each step of 16 goes in last: what came before it is small where it makes the row, and
// no other term is rounded at its size.
// INT8 products: the dots alone, modulo 2^32.

#include <cstddef>

#include "kernels/element.h"
#include "kernels/fold_cache.h"
#include "kernels/params.h"
#include "kernels/simt.h"

namespace sdcguard {

namespace operand {

inline constexpr uint32_t kThreads = 256;
inline constexpr uint32_t kRows = 32;
inline constexpr uint32_t kPitch = kRows + 1;
inline constexpr uint32_t kGroup = 16;  // vectors in a group: 4 a thread, 4 threads
template <typename T>
inline constexpr uint32_t kMaxChunk = 512 / sizeof(T);
template <typename T>
inline constexpr uint32_t kVectorValues = 16384 / sizeof(T);  // of the chunk of class-sum vectors: chunk * groups * 16

// FP32 sums of squares are safe where the largest magnitude lies in here: no overflow, and what underflows is below
// 2^-46 of the sum.
inline constexpr float kSquareLow = 0x1p-40f;
inline constexpr float kSquareHigh = 0x1p60f;
// Products that underflow err by less than u times this each.
template <typename T>
inline constexpr double kSmallestNormal = std::is_same_v<T, double> ? 0x1p-1022 : 0x1p-126;

}  // namespace operand

template <typename T>
SDCGUARD_DEVICE void operand_pass(const ProbeParams& p) {
  using namespace operand;
  constexpr bool kExact = kIsExact<T>;
  constexpr bool kWide = std::is_same_v<T, double>;
  constexpr bool kLargestLast = !kExact && !kWide;  // FP64: a part is half a step, and rounds finely enough
  constexpr uint32_t kChunk = kMaxChunk<T>;
  constexpr uint32_t kSteps = kChunk / kPrefixStep;
  constexpr uint32_t kMeeting = kWide ? 2 : 4;              // rows of a thread that meet at once
  SDCGUARD_SHARED(T, kChunk * kPitch, rows);                // [k][row]
  SDCGUARD_SHARED(Quad<T>, kVectorValues<T> / 4, vectors);  // [k][vector / 4]
  SDCGUARD_SHARED(T, kChunk, mean);
  SDCGUARD_SHARED(T, kChunk, rms);
  SDCGUARD_SHARED(T, 2 * kSteps * kRows, step_sums);  // [parity][step][row]
  SDCGUARD_SHARED(double, kSteps* kRows, energies);   // [step][row]
  SDCGUARD_SHARED(double, kSteps* kRows, reaches);    // [step][row]
  SDCGUARD_SHARED(T, kSteps * kRows, last);           // [step][row]: the largest addend's A, 0 in `rows`
  SDCGUARD_SHARED(uint32_t, kSteps * kRows, last_k);  // its k in the chunk
  SDCGUARD_SHARED(uint32_t, kRows, bad_rows);         // bit 0: not finite; bit 1: out of range
  const uint32_t t = thread_index();
  const uint64_t shift = fold_shift(p);
  const uint32_t row_blocks = static_cast<uint32_t>((p.n1 + kRows - 1) / kRows);
  const uint32_t all_groups = p.vectors / kGroup;
  const uint32_t groups = all_groups >= 5 ? 8 : all_groups >= 3 ? 4 : all_groups;
  const uint32_t splits = 8 / groups;
  const uint32_t chunk = groups == 8 ? kChunk / 4 : groups == 4 ? kChunk / 2 : kChunk;
  const uint32_t part = chunk / splits;          // k of one warp in a chunk: at most 32
  const uint32_t quads = groups * (kGroup / 4);  // Float4 in a staged row of vectors
  const uint32_t my_group = warp() % groups;
  const uint32_t my_split = warp() / groups;
  const uint32_t row4 = lane() / 4 * 4;
  const uint32_t quad = my_group * 4 + lane() % 4;
  const bool along_k = p.a.col_stride == 1;
  const T largest = static_cast<T>(p.operand_largest);
  const T floor = static_cast<T>(p.operand_floor_a);
  // What a row holds goes to shared memory with non-finite values as 0; what that says of the row is kept.
  const auto take = [&](uint32_t k, uint32_t r, T x) {
    if constexpr (!kExact) {
      if (!(abs_of(x) <= largest)) {
        atomic_or(bad_rows[r], is_finite(x) ? 2u : 1u);
        if (!is_finite(x)) x = T{0};
      }
    }
    rows[k * kPitch + r] = x;
  };
  const double prefix_steps = static_cast<double>((p.n2 + kPrefixStep - 1) / kPrefixStep);

  for (int64_t work = block_index(); work < int64_t{row_blocks} * p.batch; work += grid_blocks()) {
    const int64_t entry = work / row_blocks;
    const int64_t first_row = (work - entry * row_blocks) * kRows;
    const int64_t fold_entry = p.fold_batch == 1 ? 0 : entry;
    const uint64_t a_address = entry_address(p.a, entry);
    for (uint32_t first_group = 0; first_group < all_groups; first_group += groups) {
      const bool scales = !kExact && first_group == 0;  // the pass that also forms the energies
      T hi[16];
      T lo[16];
      SDCGUARD_UNROLL
      for (uint32_t i = 0; i < 16; ++i) hi[i] = lo[i] = T{0};
      double energy = 0.0;       // of row t % 32, step t / 32 of each chunk
      double reach = 0.0;        // sum of |A| rms of the same
      double running = 0.0;      // P_t of row t, t < 32
      double mean_energy = 0.0;  // sum of P_t^2
      if (scales && t < kRows) bad_rows[t] = 0;
      uint32_t parity = 0;
      for (int64_t first_k = 0; first_k < p.n2; first_k += chunk) {
        sync_threads();
        if (along_k) {
          for (uint32_t item = t; item < kRows * (chunk / 4); item += kThreads) {
            // Eight quads of k by four rows in a warp: runs of 64 bytes or more, no bank conflict in the stores.
            const uint32_t r = item / 8 % kRows;
            const uint32_t k4 = (item % 8 + item / (8 * kRows) * 8) * 4;
            const int64_t row = first_row + r;
            const uint32_t count = row < p.n1 ? four_or_less(first_k + k4, p.n2) : 0u;
            Quad<T> v{0, 0, 0, 0};
            if (count != 0) v = load_four<T>(a_address, element_index(p.a, row, first_k + k4), count, p.a.type);
            SDCGUARD_UNROLL
            for (uint32_t i = 0; i < 4; ++i) take(k4 + i, r, component(v, i));
          }
        } else {
          for (uint32_t item = t; item < (kRows / 4) * chunk; item += kThreads) {
            const uint32_t k = item / (kRows / 4);
            const uint32_t r4 = item % (kRows / 4) * 4;
            const uint32_t count = first_k + k < p.n2 ? four_or_less(first_row + r4, p.n1) : 0u;
            Quad<T> v{0, 0, 0, 0};
            if (count != 0)
              v = load_four<T>(a_address, element_index(p.a, first_row + r4, first_k + k), count, p.a.type);
            SDCGUARD_UNROLL
            for (uint32_t i = 0; i < 4; ++i) take(k, r4 + i, component(v, i));
          }
        }
        for (uint32_t item = t; item < chunk * quads; item += kThreads) {
          const uint32_t k = item / quads;
          const uint32_t q = item % quads;
          Quad<T> v{0, 0, 0, 0};
          if (first_k + k < p.n2 && first_group * kGroup + q * 4 < p.vectors) {
            v = load<Quad<T>>(
                p.fold_sums + shift + static_cast<uint64_t>((fold_entry * p.n2 + first_k + k) * p.vectors) * sizeof(T),
                first_group * (kGroup / 4) + q);
          }
          vectors[item] = v;
        }
        if (scales && t < chunk) {
          const bool inside = first_k + t < p.n2;
          mean[t] = inside ? load<T>(p.fold_mean + shift, fold_entry * p.n2 + first_k + t) : T{0};
          rms[t] = inside ? load<T>(p.fold_rms + shift, fold_entry * p.n2 + first_k + t) : T{0};
        }
        sync_threads();

        if constexpr (!kExact) {
          if (scales) {
            const uint32_t r = t % kRows;
            const uint32_t s = t / kRows;
            if (s < chunk / kPrefixStep) {
              T along = 0;
              T squares = 0;
              T peak = 0;
              T far = 0;
              uint32_t peak_k = s * kPrefixStep;
              for (uint32_t i = 0; i < kPrefixStep; ++i) {
                const uint32_t k = s * kPrefixStep + i;
                const T a = rows[k * kPitch + r];
                const T e = at_least(a, floor) * rms[k];
                along = fma(a, mean[k], along);
                far += e;
                squares = fma(e, e, squares);
                if (e > peak) {
                  peak = e;
                  peak_k = k;
                }
              }
              // n3 of each, in the share of prefixes that hold this step: those that end behind it.
              const double before = static_cast<double>(first_k / kPrefixStep + s);
              const double weight = static_cast<double>(p.n3) * ((prefix_steps - before) / prefix_steps);
              if constexpr (kWide) {
                energy = fma(weight, squares, energy);
                reach += far;
              } else {
                if (peak >= kSquareLow && peak <= kSquareHigh) {
                  energy = fma(weight, static_cast<double>(squares), energy);
                } else if (peak != 0.0f) {
                  double wide = 0.0;
                  for (uint32_t i = 0; i < kPrefixStep; ++i) {
                    const uint32_t k = s * kPrefixStep + i;
                    const double one =
                        static_cast<double>(at_least(rows[k * kPitch + r], floor)) * static_cast<double>(rms[k]);
                    wide = fma(one, one, wide);
                  }
                  energy = fma(weight, wide, energy);
                }
                if (is_finite(far)) {
                  reach += static_cast<double>(far);
                } else {
                  for (uint32_t i = 0; i < kPrefixStep; ++i) {
                    const uint32_t k = s * kPrefixStep + i;
                    reach = fma(static_cast<double>(at_least(rows[k * kPitch + r], floor)), static_cast<double>(rms[k]),
                                reach);
                  }
                }
              }
              step_sums[(parity * kSteps + s) * kRows + r] = along;
              if constexpr (kLargestLast) {
                last[s * kRows + r] = rows[peak_k * kPitch + r];
                last_k[s * kRows + r] = peak_k;
                rows[peak_k * kPitch + r] = T{0};
              }
            }
            // Prefixes of the chunk before: its step sums were finished before this chunk's barriers.
            if (t < kRows && first_k != 0) {
              const uint32_t from = (parity ^ 1u) * kSteps;
              for (uint32_t i = 0; i < chunk / kPrefixStep; ++i) {
                running += static_cast<double>(step_sums[(from + i) * kRows + t]);
                mean_energy = fma(running, running, mean_energy);
              }
            }
            if constexpr (kLargestLast) sync_threads();
          }
        }

        T sums[16];
        SDCGUARD_UNROLL
        for (uint32_t i = 0; i < 16; ++i) sums[i] = T{0};
        const uint32_t from_k = my_split * part;
        SDCGUARD_NO_UNROLL
        for (uint32_t k = from_k; k < from_k + part; ++k) {
          const Quad<T> v = vectors[k * quads + quad];
          SDCGUARD_UNROLL
          for (uint32_t i = 0; i < 4; ++i) {
            const T a = rows[k * kPitch + row4 + i];
            if constexpr (kExact) {
              sums[i * 4] += a * v.x;
              sums[i * 4 + 1] += a * v.y;
              sums[i * 4 + 2] += a * v.z;
              sums[i * 4 + 3] += a * v.w;
            } else {
              sums[i * 4] = fma(a, v.x, sums[i * 4]);
              sums[i * 4 + 1] = fma(a, v.y, sums[i * 4 + 1]);
              sums[i * 4 + 2] = fma(a, v.z, sums[i * 4 + 2]);
              sums[i * 4 + 3] = fma(a, v.w, sums[i * 4 + 3]);
            }
          }
        }
        if constexpr (kLargestLast) {
          // Under block sums the vectors after the first groups go without: their bound is the output's rounding.
          const uint32_t end_step = scales ? (from_k + part) / kPrefixStep : 0;
          for (uint32_t s = from_k / kPrefixStep; s < end_step; ++s) {
            SDCGUARD_UNROLL
            for (uint32_t i = 0; i < 4; ++i) {
              const T a = last[s * kRows + row4 + i];
              const Quad<T> v = vectors[last_k[s * kRows + row4 + i] * quads + quad];
              sums[i * 4] = fma(a, v.x, sums[i * 4]);
              sums[i * 4 + 1] = fma(a, v.y, sums[i * 4 + 1]);
              sums[i * 4 + 2] = fma(a, v.z, sums[i * 4 + 2]);
              sums[i * 4 + 3] = fma(a, v.w, sums[i * 4 + 3]);
            }
          }
        }
        SDCGUARD_UNROLL
        for (uint32_t i = 0; i < 16; ++i) {
          // hi + lo grows by sums[i] without error (Knuth's two-sum), but for the rounding of lo.
          const T next = hi[i] + sums[i];
          const T taken = next - hi[i];
          lo[i] += (hi[i] - (next - taken)) + (sums[i] - taken);
          hi[i] = next;
        }
        parity ^= 1u;
      }

      sync_threads();
      if (scales) {
        const uint32_t last_steps =
            static_cast<uint32_t>(static_cast<int64_t>(prefix_steps) - (p.n2 - 1) / chunk * (chunk / kPrefixStep));
        if (t < kRows) {
          for (uint32_t i = 0; i < last_steps; ++i) {
            running += static_cast<double>(step_sums[((parity ^ 1u) * kSteps + i) * kRows + t]);
            mean_energy = fma(running, running, mean_energy);
          }
        }
        if (t < kSteps * kRows) {
          energies[t] = energy;
          reaches[t] = reach;
        }
      }
      // The splits of one output meet in shared memory.
      using Sum = std::conditional_t<kExact, uint32_t, double>;
      const uint32_t width = groups * kGroup;
      for (uint32_t first_i = 0; first_i < 4; first_i += kMeeting) {
        if (first_i != 0) sync_threads();
        SDCGUARD_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          if (i < first_i || i >= first_i + kMeeting) continue;
          vectors[(warp() * kWarp + lane()) * kMeeting + i - first_i] =
              Quad<T>{hi[i * 4] + lo[i * 4], hi[i * 4 + 1] + lo[i * 4 + 1], hi[i * 4 + 2] + lo[i * 4 + 2],
                      hi[i * 4 + 3] + lo[i * 4 + 3]};
        }
        sync_threads();
        for (uint32_t item = t; item < kRows / 4 * kMeeting * width; item += kThreads) {
          const uint32_t r = item / width / kMeeting * 4 + first_i + item / width % kMeeting;
          const uint32_t v = item % width;
          Sum sum = 0;
          for (uint32_t s = 0; s < splits; ++s) {
            const uint32_t source_warp = s * groups + v / kGroup;
            const uint32_t source_lane = r / 4 * 4 + v % kGroup / 4;
            const uint32_t at = (source_warp * kWarp + source_lane) * kMeeting + r % 4 - first_i;
            sum += static_cast<Sum>(component(vectors[at], v % 4));
          }
          if (first_row + r < p.n1 && first_group * kGroup + v < p.vectors) {
            store<T>(p.line_dots, (entry * p.n1 + first_row + r) * p.vectors + first_group * kGroup + v,
                     static_cast<T>(sum));
          }
        }
      }
      if (scales && t < kRows && first_row + t < p.n1) {
        double addend_energy = 0.0;
        double sum_reach = 0.0;
        for (uint32_t s = 0; s < kSteps; ++s) {
          addend_energy += energies[s * kRows + t];
          sum_reach += reaches[s * kRows + t];
        }
        const double mean_square = mean_energy / prefix_steps;
        const bool bad = (bad_rows[t] & 1u) != 0;
        if (bad) atomic_add(p.verdict + offsetof(Verdict, lines_nonfinite), 0, 1u);
        bool out_of_range = (bad_rows[t] & 2u) != 0 || !is_finite(mean_square) || !is_finite(addend_energy);
        if constexpr (kWide) {
          out_of_range = out_of_range || (sum_reach != 0.0 && !(sum_reach >= kWideLow && sum_reach <= kWideHigh));
        }
        const int64_t line = entry * p.n1 + first_row + t;
        double noise = mean_square;
        if (out_of_range) noise = kLineOutOfRange;
        if (bad) noise = kLineAside;
        store<double>(p.line_noise, line * 2, noise);
        store<double>(p.line_noise, line * 2 + 1, addend_energy);
        store<double>(p.line_sums, line * 2, running);
        store<double>(p.line_sums, line * 2 + 1, sum_reach + static_cast<double>(p.n2) * kSmallestNormal<T>);
      }
    }
    sync_threads();
  }
}

SDCGUARD_KERNEL(sdcguard_operand, ProbeParams, 256) {
  operand_pass<float>(p);
}

SDCGUARD_KERNEL(sdcguard_operand_f64, ProbeParams, 256) {
  operand_pass<double>(p);
}

SDCGUARD_KERNEL(sdcguard_operand_i32, ProbeParams, 256) {
  operand_pass<uint32_t>(p);
}

}  // namespace sdcguard

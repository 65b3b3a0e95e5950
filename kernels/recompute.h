// SPDX-License-Identifier: MIT
// Independent recomputation of whole lines of P from A and B: gamma = sum A B, root = sqrt(sum A^2 B^2), sum |A||B|.
// Shared by both escalate kernels. MATH.md "gamma".
//
// One block gives 32 columns of up to 4 * kTile lines: B is read once for all of them, both layouts along their
// contiguous direction. The eight warps split the k of a chunk; a thread owns 4 columns x kTile lines. Sums of 16 terms
// are FP32 FMA, then added to an error-free pair, so gamma carries the error of 16 terms whatever n2 is; it comes out
// the same bits for both layouts, any number of lines at once and any slot. INT8 products: gamma alone, modulo 2^32.
#pragma once

#include "kernels/element.h"
#include "kernels/params.h"
#include "kernels/simt.h"

namespace sdcguard {

namespace recompute {

inline constexpr uint32_t kThreads = 256;
inline constexpr uint32_t kColumns = 32;  // of one slice
inline constexpr uint32_t kPitch = kColumns + 1;
template <typename T>
inline constexpr uint32_t kChunk = 512 / sizeof(T);  // k staged at once
template <typename T>
inline constexpr uint32_t kPart = kChunk<T> / 8;  // k of one warp
template <typename T>
using Meeting = std::conditional_t<kIsExact<T>, uint32_t, double>;
inline constexpr uint32_t kMaxTile = 2;  // lines a thread owns, at most
inline constexpr uint32_t kMaxLines = 4 * kMaxTile;
inline constexpr float kSquareLow = 0x1p-40f;
inline constexpr float kSquareHigh = 0x1p60f;

// Lines that are recomputed together: all of one fold entry.
struct Group {
  uint32_t first_listed;  // index in the list
  uint32_t count;         // at most 4 * kTile
  uint32_t first_slot;
};

}  // namespace recompute

// Columns first_col .. first_col + 31 of the lines of one group, into their slots. All threads of the block.
template <uint32_t kTile, typename T>
SDCGUARD_DEVICE void recompute_slice(const ProbeParams& p, const recompute::Group& group, int64_t first_col,
                                     const Shared<T>& columns, const Shared<T>& lines,
                                     const Shared<recompute::Meeting<T>>& meeting) {
  using namespace recompute;
  constexpr bool kExact = kIsExact<T>;
  constexpr uint32_t kStaged = kChunk<T>;
  constexpr uint32_t kOwned = 4 * kTile;
  const uint32_t t = thread_index();
  const uint32_t col4 = lane() / 4 * 4;
  const uint32_t line0 = lane() % 4 * kTile;
  const int64_t first_line = load<uint32_t>(p.listed, group.first_listed);
  const int64_t fold_entry = p.fold_batch == 1 ? 0 : first_line / p.n1;
  const bool along_k = p.b.row_stride == 1;
  const uint64_t b_address = entry_address(p.b, fold_entry);
  const T floor_a = static_cast<T>(p.operand_floor_a);
  const T floor_b = static_cast<T>(p.operand_floor_b);
  T hi[kOwned];
  T lo[kOwned];
  T magnitude[kOwned];
  double squares[kOwned];
  SDCGUARD_UNROLL
  for (uint32_t i = 0; i < kOwned; ++i) {
    hi[i] = lo[i] = magnitude[i] = T{0};
    squares[i] = 0.0;
  }
  for (int64_t first_k = 0; first_k < p.n2; first_k += kStaged) {
    sync_threads();
    if (along_k) {
      for (uint32_t item = t; item < kColumns * (kStaged / 4); item += kThreads) {
        const uint32_t j = item / 8 % kColumns;
        const uint32_t k4 = (item % 8 + item / (8 * kColumns) * 8) * 4;
        const uint32_t count = first_col + j < p.n3 ? four_or_less(first_k + k4, p.n2) : 0u;
        Quad<T> v{0, 0, 0, 0};
        if (count != 0) v = load_four<T>(b_address, element_index(p.b, first_k + k4, first_col + j), count, p.b.type);
        SDCGUARD_UNROLL
        for (uint32_t i = 0; i < 4; ++i) columns[(k4 + i) * kPitch + j] = component(v, i);
      }
    } else {
      for (uint32_t item = t; item < (kColumns / 4) * kStaged; item += kThreads) {
        const uint32_t k = item / (kColumns / 4);
        const uint32_t j4 = item % (kColumns / 4) * 4;
        const uint32_t count = first_k + k < p.n2 ? four_or_less(first_col + j4, p.n3) : 0u;
        Quad<T> v{0, 0, 0, 0};
        if (count != 0) v = load_four<T>(b_address, element_index(p.b, first_k + k, first_col + j4), count, p.b.type);
        SDCGUARD_UNROLL
        for (uint32_t i = 0; i < 4; ++i) columns[k * kPitch + j4 + i] = component(v, i);
      }
    }
    for (uint32_t item = t; item < 4 * kTile * kStaged; item += kThreads) {
      const uint32_t l = item / kStaged;
      const uint32_t k = item % kStaged;
      T a = 0;
      if (l < group.count && first_k + k < p.n2) {
        const int64_t line = load<uint32_t>(p.listed, group.first_listed + l);
        const int64_t entry = line / p.n1;
        a = load_element<T>(entry_address(p.a, entry), element_index(p.a, line - entry * p.n1, first_k + k), p.a.type);
      }
      lines[k * (4 * kTile) + l] = a;
    }
    sync_threads();
    T sum[kOwned];
    T abs_sum[kOwned];
    T square_sum[kOwned];
    SDCGUARD_UNROLL
    for (uint32_t i = 0; i < kOwned; ++i) sum[i] = abs_sum[i] = square_sum[i] = T{0};
    const uint32_t from_k = warp() * kPart<T>;
    SDCGUARD_NO_UNROLL
    for (uint32_t k = from_k; k < from_k + kPart<T>; ++k) {
      T b[4];
      SDCGUARD_UNROLL
      for (uint32_t j = 0; j < 4; ++j) b[j] = columns[k * kPitch + col4 + j];
      SDCGUARD_UNROLL
      for (uint32_t l = 0; l < kTile; ++l) {
        const T a = lines[k * (4 * kTile) + line0 + l];
        SDCGUARD_UNROLL
        for (uint32_t j = 0; j < 4; ++j) {
          if constexpr (kExact) {
            sum[l * 4 + j] += a * b[j];
          } else {
            const T product = at_least(a, floor_a) * at_least(b[j], floor_b);
            sum[l * 4 + j] = fma(a, b[j], sum[l * 4 + j]);
            abs_sum[l * 4 + j] += product;
            square_sum[l * 4 + j] = fma(product, product, square_sum[l * 4 + j]);
          }
        }
      }
    }
    SDCGUARD_UNROLL
    for (uint32_t i = 0; i < kOwned; ++i) {
      if constexpr (kExact) {
        hi[i] += sum[i];
      } else {
        const T next = hi[i] + sum[i];
        const T taken = next - hi[i];
        lo[i] += (hi[i] - (next - taken)) + (sum[i] - taken);
        hi[i] = next;
        magnitude[i] += abs_sum[i];
        // The largest |a b| lies between a sixteenth of abs_sum and abs_sum.
        if (std::is_same_v<T, double> || (abs_sum[i] >= 16 * kSquareLow && abs_sum[i] <= kSquareHigh)) {
          squares[i] += static_cast<double>(square_sum[i]);
        } else if (abs_sum[i] != T{0}) {
          for (uint32_t k = from_k; k < from_k + kPart<T>; ++k) {
            const double product = static_cast<double>(at_least(columns[k * kPitch + col4 + i % 4], floor_b)) *
                                   static_cast<double>(at_least(lines[k * (4 * kTile) + line0 + i / 4], floor_a));
            squares[i] = fma(product, product, squares[i]);
          }
        }
      }
    }
  }
  // The warps' parts of one output meet: gamma, root, magnitude in turn.
  for (uint32_t quantity = 0; quantity < (kExact ? 1u : 3u); ++quantity) {
    sync_threads();
    SDCGUARD_UNROLL
    for (uint32_t i = 0; i < kOwned; ++i) {
      using Sum = Meeting<T>;
      const Sum v = quantity == 0   ? static_cast<Sum>(hi[i]) + static_cast<Sum>(lo[i])
                    : quantity == 1 ? static_cast<Sum>(squares[i])
                                    : static_cast<Sum>(magnitude[i]);
      meeting[(warp() * kOwned + i) * kWarp + lane()] = v;
    }
    sync_threads();
    for (uint32_t item = t; item < kColumns * 4 * kTile; item += kThreads) {
      const uint32_t l = item / kColumns;
      const uint32_t j = item % kColumns;
      if (l >= group.count || first_col + j >= p.n3) continue;
      const uint32_t source = j / 4 * 4 + l / kTile;
      const uint32_t i = l % kTile * 4 + j % 4;
      Meeting<T> all = 0;
      for (uint32_t w = 0; w < 8; ++w) all += meeting[(w * kOwned + i) * kWarp + source];
      if constexpr (!kExact) {
        if (quantity == 1) all = sqrt(all);
      }
      store<T>(p.recomputed, (int64_t{group.first_slot + l} * 3 + quantity) * p.n3 + first_col + j,
               static_cast<T>(all));
    }
  }
}

}  // namespace sdcguard

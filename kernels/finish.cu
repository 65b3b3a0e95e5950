// SPDX-License-Identifier: MIT
// stage finish: takes the verified P, delivers D = scale_d activation(alpha P + beta C + bias), the auxiliary output
// and the largest value where the product pass could not; its last block writes the call record. Runs on the
// application's stream, last. MATH.md "finish".

#include <cstddef>

#include "kernels/deliver.h"
#include "kernels/element.h"
#include "kernels/params.h"
#include "kernels/record_writer.h"
#include "kernels/simt.h"

namespace sdcguard {

namespace finish {

// Bits of four neighbouring columns from every lane of a warp make 128: lanes 8 w .. 8 w + 7 hold word w.
SDCGUARD_DEVICE uint32_t word_of_nibbles(uint32_t nibble) {
  uint32_t word = nibble << (4 * (lane() & 7u));
  SDCGUARD_UNROLL
  for (uint32_t distance = 1; distance < 8; distance <<= 1) word |= shfl_xor(word, distance);
  return word;
}

// Columns first_col + 32 (lane / 8) .. of a row's mask, whose first bit is bit 0 of the byte at `row`. The bits of the
// last byte that lie past n3 keep what they were.
SDCGUARD_DEVICE void store_mask(uint64_t row, int64_t first_col, uint32_t word, int64_t n3) {
  if ((lane() & 7u) != 0) return;
  const int64_t col = first_col + lane() * 4;
  for (uint32_t byte = 0; byte < 4 && col + byte * 8 < n3; ++byte) {
    const int64_t left = n3 - col - byte * 8;
    const uint32_t at = static_cast<uint32_t>(col / 8) + byte;
    uint32_t bits = (word >> (8 * byte)) & 0xFFu;
    if (left < 8) {
      const uint32_t mine = (1u << left) - 1u;
      bits = (bits & mine) | (load<uint8_t>(row, at) & ~mine);
    }
    store<uint8_t>(row, at, static_cast<uint8_t>(bits));
  }
}

// One row of D by one warp, in T. Returns the lane's largest |value| before scale_d; NaN is passed over.
template <typename T>
SDCGUARD_DEVICE float finish_row_of(const ProbeParams& p, int64_t entry, int64_t row) {
  const FinishView& f = p.finish;
  const bool by_column =
      f.alpha_column_stride != 0 || f.beta_column_stride != 0 || f.scale_a_vector != 0 || f.scale_b_vector != 0;
  const uint64_t p_row = row_address(p.p, entry, row);
  const FinishRow at = finish_row(f, entry, row);
  FinishScalars<T> s = finish_scalars<T>(f, false, entry);
  uint64_t aux_row = 0;
  if (f.aux_kind == AuxKind::kGeluInput) aux_row = row_address(f.aux, entry, row);
  if (f.aux_kind == AuxKind::kReluMask) {
    aux_row = f.aux.address + static_cast<uint64_t>(entry * f.aux.batch_stride + row * f.aux.row_stride) / 8;
  }
  float largest = 0.0f;
  for (int64_t first_col = 0; first_col < p.n3; first_col += kWarp * 4) {
    const int64_t col = first_col + lane() * 4;
    const uint32_t count = four_or_less(col, p.n3);
    const Quad<T> product = load_four<T>(p_row, col, count, p.p.type);
    if (!by_column && f.aux_kind == AuxKind::kNone && f.amax_d == 0) {
      deliver_quad(f, s, at, product, count, col);
      continue;
    }
    uint32_t nibble = 0;
    for (uint32_t i = 0; i < count; ++i) {
      if (by_column) s = finish_scalars<T>(f, false, entry, row, col + i);
      const T before = finish_before(f, s, at, component(product, i), col + i);
      if (f.aux_kind == AuxKind::kGeluInput) store_element<T>(aux_row, col + i, f.aux.type, before);
      if constexpr (!kIsExact<T>) nibble |= (before > T{0} ? 1u : 0u) << i;
      const T v = activate(before, f.epilogue);
      if constexpr (std::is_same_v<T, float>) largest = max_of(largest, abs_of(v));
      store_element<T>(at.d, col + i, f.d.type, s.scale == T{1} ? v : v * s.scale);
    }
    if (f.aux_kind == AuxKind::kReluMask) {
      const uint32_t word = word_of_nibbles(nibble);
      store_mask(aux_row, first_col, word, p.n3);
    }
  }
  return largest;
}

}  // namespace finish

SDCGUARD_KERNEL(sdcguard_finish, ProbeParams, 256) {
  const uint32_t warps = block_threads() / kWarp;
  float largest = 0.0f;
  for (int64_t line = int64_t{block_index()} * warps + warp(); line < p.lines; line += int64_t{grid_blocks()} * warps) {
    const int64_t entry = line / p.n1;
    const int64_t row = line - entry * p.n1;
    if (p.p.type == DataType::kF64) {
      finish::finish_row_of<double>(p, entry, row);
    } else if (p.p.type == DataType::kI32 && p.finish.d.type == DataType::kI32) {
      finish::finish_row_of<uint32_t>(p, entry, row);
    } else {
      largest = max_of(largest, finish::finish_row_of<float>(p, entry, row));
    }
  }
  if (p.finish.amax_d != 0) {
    largest = warp_max(largest);
    if (lane() == 0)
      atomic_max(p.verdict + offsetof(Verdict, amax), 0, bits_of(largest));  // not negative: order of bits
  }
  sync_threads();
  if (thread_index() == 0) {
    fence_device();
    const bool last = atomic_add(p.verdict + offsetof(Verdict, finish_blocks), 0, 1u) == grid_blocks() - 1;
    fence_device();
    if (last) {
      if (p.finish.amax_d != 0) {
        store<float>(p.finish.amax_d, 0, float_of(atomic_max(p.verdict + offsetof(Verdict, amax), 0, 0u)));
      }
      const Verdict verdict = load<Verdict>(p.verdict, 0);
      write_call_record(p, verdict, static_cast<Outcome>(verdict.outcome), static_cast<Reason>(verdict.reason));
      // A product that nobody checks has no fold kernel to clear the verdict.
      store<uint32_t>(p.verdict + offsetof(Verdict, finish_blocks), 0, 0u);
      store<uint32_t>(p.verdict + offsetof(Verdict, amax), 0, 0u);
    }
  }
}

}  // namespace sdcguard

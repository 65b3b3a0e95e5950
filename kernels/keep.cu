// SPDX-License-Identifier: MIT
// stage keep: copies the caller's C to scratch before an in-place product writes over it; runs on the application's
// stream, before the product. Does nothing where beta is 0: C is then not read. MATH.md "finish".

#include "kernels/deliver.h"
#include "kernels/element.h"
#include "kernels/params.h"
#include "kernels/simt.h"

namespace sdcguard {

namespace keep {

// Bits as they are, of any type.
template <typename Word>
SDCGUARD_DEVICE void copy_row(uint64_t from, uint64_t to, int64_t n3) {
  for (int64_t col = lane(); col < n3; col += kWarp) store<Word>(to, col, load<Word>(from, col));
}

}  // namespace keep

SDCGUARD_KERNEL(sdcguard_keep, ProbeParams, 256) {
  const uint32_t warps = block_threads() / kWarp;
  const uint32_t bytes = bytes_of(p.written_c.type);
  for (int64_t line = int64_t{block_index()} * warps + warp(); line < p.lines; line += int64_t{grid_blocks()} * warps) {
    const int64_t entry = line / p.n1;
    const int64_t row = line - entry * p.n1;
    if (finish_scalars<double>(p.finish, true, entry).beta == 0.0) continue;
    const uint64_t from = row_address(p.written_c, entry, row);
    const uint64_t to = row_address(p.finish.c, entry, row);
    if (bytes == 8) {
      keep::copy_row<uint64_t>(from, to, p.n3);
    } else if (bytes == 4) {
      keep::copy_row<uint32_t>(from, to, p.n3);
    } else if (bytes == 2) {
      keep::copy_row<uint16_t>(from, to, p.n3);
    } else {
      keep::copy_row<uint8_t>(from, to, p.n3);
    }
  }
}

}  // namespace sdcguard

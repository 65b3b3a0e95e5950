// SPDX-License-Identifier: MIT
// stage keep: copies the caller's C to scratch before an in-place product writes over it; runs on the application's
// stream, before the product. Does nothing where beta is 0: C is then not read. MATH.md "finish".

#include "kernels/deliver.h"
#include "kernels/element.h"
#include "kernels/params.h"
#include "kernels/simt.h"

namespace sdcguard {

SDCGUARD_KERNEL(sdcguard_keep, ProbeParams, 256) {
  const FinishScalars scalars = finish_scalars(p.finish);
  if (scalars.beta == 0.0f) return;
  const uint32_t warps = block_threads() / kWarp;
  for (int64_t line = int64_t{block_index()} * warps + warp(); line < p.lines; line += int64_t{grid_blocks()} * warps) {
    const int64_t entry = line / p.n1;
    const int64_t row = line - entry * p.n1;
    const int64_t from = element_index(p.written_c, entry, row, 0);
    const int64_t to = element_index(p.finish.c, entry, row, 0);
    for (int64_t col = lane() * 4; col < p.n3; col += kWarp * 4) {
      const uint32_t count = four_or_less(col, p.n3);
      const Float4 c = load_four(p.written_c.address, from + col, count, p.written_c.type);
      store_four(p.finish.c.address, to + col, count, p.finish.c.type, c);
    }
  }
}

}  // namespace sdcguard

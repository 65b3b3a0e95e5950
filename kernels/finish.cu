// SPDX-License-Identifier: MIT
// stage finish: takes the verified P, delivers D = activation(alpha P + beta C + bias) where the product pass could
// not; its last block writes the call record. Runs on the application's stream, last. MATH.md "finish".

#include <cstddef>

#include "kernels/deliver.h"
#include "kernels/element.h"
#include "kernels/params.h"
#include "kernels/record_writer.h"
#include "kernels/simt.h"

namespace sdcguard {

SDCGUARD_KERNEL(sdcguard_finish, ProbeParams, 256) {
  const FinishScalars scalars = finish_scalars(p.finish);
  const uint32_t warps = block_threads() / kWarp;
  for (int64_t line = int64_t{block_index()} * warps + warp(); line < p.lines; line += int64_t{grid_blocks()} * warps) {
    const int64_t entry = line / p.n1;
    const int64_t row = line - entry * p.n1;
    const int64_t base = element_index(p.p, entry, row, 0);
    for (int64_t col = lane() * 4; col < p.n3; col += kWarp * 4) {
      const uint32_t count = four_or_less(col, p.n3);
      const Float4 product = load_four(p.p.address, base + col, count, p.p.type);
      deliver_four(p.finish, scalars, product, count, entry, row, col);
    }
  }
  sync_threads();
  if (thread_index() == 0) {
    fence_device();
    const bool last = atomic_add(p.verdict + offsetof(Verdict, finish_blocks), 0, 1u) == grid_blocks() - 1;
    fence_device();
    if (last) {
      const Verdict verdict = load<Verdict>(p.verdict, 0);
      write_call_record(p, verdict, static_cast<Outcome>(verdict.outcome), static_cast<Reason>(verdict.reason));
    }
  }
}

}  // namespace sdcguard

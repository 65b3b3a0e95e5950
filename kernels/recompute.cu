// SPDX-License-Identifier: MIT
// stage escalate, first launch: recomputes the listed lines that have slots, all blocks together over groups of lines
// and slices of columns. Returns at once while the verdict's word says clean. Runs on the application's stream.

#include <cstddef>

#include "kernels/params.h"
#include "kernels/recompute.h"
#include "kernels/simt.h"

namespace sdcguard {

template <typename T>
SDCGUARD_DEVICE void recompute_pass(const ProbeParams& p) {
  using namespace recompute;
  SDCGUARD_SHARED(T, kChunk<T> * kPitch, columns);
  SDCGUARD_SHARED(T, kMaxLines * kChunk<T>, lines);
  SDCGUARD_SHARED(Meeting<T>, 8 * 4 * kMaxTile * kWarp, meeting);
  const uint32_t word = load<uint32_t>(p.verdict + offsetof(Verdict, word), 0);
  if (word != kVerdictLook) return;
  const uint32_t listed = load<uint32_t>(p.verdict + offsetof(Verdict, lines_listed), 0);
  const uint32_t slots = listed < p.line_slots ? listed : p.line_slots;
  const int64_t slices = (p.n3 + kColumns - 1) / kColumns;
  // Groups: runs of at most kMaxLines lines of one fold entry, in list order; each block walks the same list.
  int64_t turn = 0;
  for (uint32_t first = 0; first < slots;) {
    const int64_t fold_entry = p.fold_batch == 1 ? 0 : load<uint32_t>(p.listed, first) / p.n1;
    uint32_t count = 1;
    while (count < kMaxLines && first + count < slots &&
           (p.fold_batch == 1 || load<uint32_t>(p.listed, first + count) / p.n1 == fold_entry)) {
      ++count;
    }
    const Group group{first, count, first};
    // Slices of all groups are dealt out in turn, so that few lines still occupy every block.
    int64_t slice = (int64_t{block_index()} - turn % grid_blocks() + grid_blocks()) % grid_blocks();
    for (; slice < slices; slice += grid_blocks()) {
      if (count <= 4) {
        recompute_slice<1, T>(p, group, slice * kColumns, columns, lines, meeting);
      } else {
        recompute_slice<kMaxTile, T>(p, group, slice * kColumns, columns, lines, meeting);
      }
    }
    turn += slices;
    first += count;
  }
}

SDCGUARD_KERNEL(sdcguard_escalate_recompute, ProbeParams, 256) {
  recompute_pass<float>(p);
}

SDCGUARD_KERNEL(sdcguard_escalate_recompute_f64, ProbeParams, 256) {
  recompute_pass<double>(p);
}

SDCGUARD_KERNEL(sdcguard_escalate_recompute_i32, ProbeParams, 256) {
  recompute_pass<uint32_t>(p);
}

}  // namespace sdcguard

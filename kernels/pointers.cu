// SPDX-License-Identifier: MIT
// stage upgrade, on the device: writes the addresses of a batch's products in scratch, for a library call that takes
// them as an array of pointers; runs on the application's stream, before the product.

#include "kernels/element.h"
#include "kernels/params.h"
#include "kernels/simt.h"

namespace sdcguard {

SDCGUARD_KERNEL(sdcguard_pointers, ProbeParams, 256) {
  const uint64_t step = static_cast<uint64_t>(p.p.batch_stride) * bytes_of(p.p.type);
  for (int64_t i = int64_t{block_index()} * block_threads() + thread_index(); i < p.batch;
       i += int64_t{grid_blocks()} * block_threads()) {
    store<uint64_t>(p.product_pointers, i, p.p.address + static_cast<uint64_t>(i) * step);
  }
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// The bare product of an order, without settings and faults: what hostcuda_gemm_run does first, and what tests call.
#pragma once

#include "gemm.h"
#include "order.h"

namespace hostcuda::gemm {

// Fills product.out. The product must be valid and its types supported by the order; threads >= 1. Blocks until done.
// Same bits for every number of threads, and those of replay_entry for each entry.
void compute_product(const Order& order, int threads, const Product& product);

}  // namespace hostcuda::gemm

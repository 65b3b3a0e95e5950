// SPDX-License-Identifier: MIT
// The entry bound of DESIGN section 4 ("Entry test on a recomputed row") on a clean line, for the injection log: a
// reader tells faults that the guard must find from those below any verifiable difference.
//
// A line is a column of D (a row of the row-major product P). For entry i of column j, sums over l, eps = 2^-23:
//   gamma  = sum a b                w = eps sqrt(gamma^2 + sum a^2 b^2)          d = |gamma - P|
//   tau    = min(32 max(1/4, 1.4826 median_i(d / w)) w, (c_max eps_acc + eps_in) sum |a||b|)
//   c_max  = k ((N + 1) / 2^g + 1) / N + k / 64 + 16
// N, g: those of the order's tensor cores; N = 4, g = 0 (worst case) for orders that have none and for FP32. eps_acc =
// eps (eps_16 = 2^-10 with Compute::kFp16), eps_in = 0 for BF16, FP16 and FP32 inputs. With fewer than 64 rows a median
// includes the fault and the second term alone is the bound.
#pragma once

#include <cstdint>
#include <vector>

#include "gemm.h"
#include "matrix.h"
#include "order.h"

namespace hostcuda::gemm {

// tau of every entry of column j of one batch entry; clean: the m clean sums of that column.
std::vector<double> entry_bounds(const Order& order, const Product& product, int64_t batch_entry, int64_t column,
                                 const std::vector<float>& clean);

}  // namespace hostcuda::gemm

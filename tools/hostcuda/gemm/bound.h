// SPDX-License-Identifier: MIT
// The entry bound of DESIGN section 4 ("Entry test on a recomputed row") on a clean line, for the injection log: a
// reader tells faults that the guard must find from those below any verifiable difference.
//
// A line is a column of D (a row of the row-major product P). Constants and formulas: kernels/entry_bound.h, read by
// the guard's kernels too; here gamma and the sums over the inner dimension are FP64 (FP64 products: long double).
// c_max is that of the order's tensor cores; orders that have none take the H100's, which the host device says it is;
// FP32 and FP64 products take FMA units. FP8 operands on Hopper and Ada: eps_acc is 2^-13, the
// accumulator's own, without guard bits. INT8 sums are exact: their bound is 0. With fewer than 64 usable ratios the
// cap alone is the bound: never less than what the guard uses.
#pragma once

#include <cstdint>
#include <vector>

#include "gemm.h"
#include "matrix.h"
#include "order.h"

namespace hostcuda::gemm {

// tau of every entry of column j of one batch entry; clean: the m clean sums of that column.
std::vector<double> entry_bounds(const Order& order, const Product& product, int64_t batch_entry, int64_t column,
                                 const std::vector<double>& clean);

}  // namespace hostcuda::gemm

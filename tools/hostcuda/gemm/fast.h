// SPDX-License-Identifier: MIT
// Vector paths of the accumulation orders: AVX2 and FMA, each bit-equal to replay_entry of order.h.
#pragma once

#include <cstdint>

#include "matrix.h"
#include "order.h"

namespace hostcuda::gemm {

// Whether this CPU runs the vector paths. The functions below must not be called where it does not.
bool has_vector_paths();

struct Extent {
  int64_t m, n, k;
};

// How often tensor_core_product left the vector path, for tests: steps computed by the scalar model because an operand
// left the exponent window, because the int32 sum overflowed, and chains finished by it. Summed over the process.
struct ScalarSteps {
  int64_t window;
  int64_t overflow;
  int64_t chains;
};
ScalarSteps scalar_steps();

// out(i, j) = chain of tensor-core steps over a(i, l) b(l, j), l in [0, k). a, b: BF16 or FP16 of one type. model: {16,
// 2}, {8, 1} or {4, 0}. Overwrites m x n entries of out; NaNs canonical. threads >= 1: pool threads it may use.
void tensor_core_product(const StepModel& model, const View& a, const View& b, const OutView& out, const Extent& extent,
                         int threads);

// The same for blocks of 16 products (16-bit types) and for sequential FMA (any type).
void rounded16_product(const View& a, const View& b, const OutView& out, const Extent& extent, int threads);
void sequential_product(const View& a, const View& b, const OutView& out, const Extent& extent, int threads);

}  // namespace hostcuda::gemm

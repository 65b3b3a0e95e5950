// SPDX-License-Identifier: MIT
// The paths that compute whole products, each bit-equal to replay_entry of order.h for every entry.
#pragma once

#include <cstdint>

#include "matrix.h"
#include "order.h"

namespace hostcuda::gemm {

// Whether this CPU runs AVX2 and FMA. Where it does not, only fp64_product and int8_product may be called.
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

// Whether tensor_core_product has the step: all but those with adds_rounded.
bool has_vector_step(const StepModel& model);

// out(i, j) = chain of tensor-core steps over a(i, l) b(l, j), l in [0, k). a, b: both BF16, both FP16, or FP32 values
// exact in the formats. Overwrites m x n entries of out; NaNs canonical. threads >= 1: pool threads it may use.
void tensor_core_product(const StepModel& model, const Formats& formats, const View& a, const View& b,
                         const OutView& out, const Extent& extent, int threads);

// The same for blocks of 16 products (exact in FP32) and for sequential FMA (any values).
void rounded16_product(const View& a, const View& b, const OutView& out, const Extent& extent, int threads);
void sequential_product(const View& a, const View& b, const OutView& out, const Extent& extent, int threads);

// FP64 operands, sequential FMA; INT8 operands, sums modulo 2^32.
void fp64_product(const View& a, const View& b, const SumView<double>& out, const Extent& extent, int threads);
void int8_product(const View& a, const View& b, const SumView<int32_t>& out, const Extent& extent, int threads);

}  // namespace hostcuda::gemm

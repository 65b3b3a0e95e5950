// SPDX-License-Identifier: MIT
// Accumulation orders by name, the facts of each tensor core, and the scalar arithmetic that defines every order.
//
// The tensor-core step (Khattak and Mikaitis, arXiv 2512.07004; proven on their vectors in tests/hostcuda/golden):
// one step adds N products and the accumulator c.
//   exponent of a term   product: sum of the operands' exponents, not renormalised (significand in [1, 4)); operand
//                        subnormals keep the format's minimum exponent. c: its own (-126 when subnormal). Zeros: none.
//   alignment            all significands with 23 + g fraction bits, shifted right to the largest exponent (at least
//                        -131 - g), magnitude truncated
//   sum                  exact, signed integers
//   result               normalised, truncated toward zero to FP32, FP32 subnormals kept; a zero sum is +0
// What no vector shows and is chosen here: a result of 2^128 or more is an infinity with the sum's sign; NaN operands,
// 0 x Inf and Inf - Inf give the canonical NaN 0x7FFFFFFF, else infinities win as in an IEEE sum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gemm.h"

namespace hostcuda::gemm {

inline constexpr uint32_t kCanonicalNan = 0x7FFFFFFFu;

// How the values of an operand split into exponent and significand.
enum class Format : uint8_t { kBf16, kFp16, kTf32 };

struct StepModel {
  int products;    // N
  int guard_bits;  // g
};

enum class Rule : uint8_t {
  kTensorCore,  // chain of StepModel steps, c = +0 first
  kRounded16,   // b = p0, then b = RN(b + p) over 16 products exact in FP32; acc = RN(acc + b)
  kSequential,  // acc = fma(a, b, acc)
};

struct Order {
  std::string name;  // as given, for output
  Rule rule;
  StepModel step;  // kTensorCore
  bool has_bf16;   // false: BF16 is NOT_SUPPORTED, as on the real device
  int splits;      // S >= 1: k in S slices, each from +0, partial results added RN in slice order
};

// Reads NAME or NAME/splitS, S in [1, 64]. False: *error says what was wrong and lists what is allowed.
bool parse_order(std::string_view text, Order* order, std::string* error);

// Products consumed per accumulator update: N, 16 or 1.
int step_products(const Order& order);

// Length of a slice under split-K: ceil(k / S) rounded up to a multiple of 16, so that no step straddles two slices
// (k when S = 1). The last slice is what is left; slices past k do not exist.
int64_t slice_products(const Order& order, int64_t k);

// One step over count <= N products given as FP32 values that are exact in `format`. Integer arithmetic only: does not
// depend on the rounding mode or FTZ.
float tensor_core_step(const StepModel& model, Format format, const float* a, const float* b, int64_t count, float c);

// A chain of steps over k products.
float tensor_core_chain(const StepModel& model, Format format, const float* a, const float* b, int64_t k, float c);

// A fault in the live accumulator: after the step that consumes product k_step its bits are XORed and the sum goes on.
struct AccumulatorFault {
  int64_t k_step;
  uint32_t flip;
};

// One entry in the given order: a and b hold k values exact in `type`, contiguous. This is the definition that every
// fast path equals bit for bit (NaNs canonical). FP32 operands are sequential FMA whatever the order. fault may be
// null. Runs under the default rounding mode.
float replay_entry(const Order& order, Type type, Compute compute, const float* a, const float* b, int64_t k,
                   const AccumulatorFault* fault);

// The value of an FP16 bit pattern, and the FP16 nearest to a float (ties to even, NaN kept) as a float.
float half_to_float(uint16_t bits);
float round_to_half(float value);

}  // namespace hostcuda::gemm

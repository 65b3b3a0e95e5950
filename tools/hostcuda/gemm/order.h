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
// FP8 on Hopper and Ada: g = -10, so 13 fraction bits, and the result is truncated to 13 fraction bits too.
// FP8 on B200: the products alone are aligned and summed, and c is added to their sum with one rounding to nearest. Any
// number of guard bits from 2 on, and an exact sum, give the 4,000 vectors alike: g = 2 is the 16-bit formats'.
// What no vector shows and is chosen here: a result of 2^128 or more is an infinity with the sum's sign; NaN operands,
// 0 x Inf and Inf - Inf give the canonical NaN 0x7FFFFFFF, else infinities win as in an IEEE sum. The vectors of TF32
// have K = 4: N = 8 of Hopper and later is from the paper.
//
// Steps by device, and the order of everything else:
//   device   BF16, FP16      TF32           FP8
//   h100     N 16, g 2       N 8, g 2       N 32, g -10
//   b200     N 16, g 2       N 8, g 2       N 32, g 2, c rounded in
//   ada      N 8, g 1        N 4, g 1       N 16, g -10
//   a100     N 8, g 1        N 4, g 1       none
//   v100     N 4, g 0        none           none
// FP32 (FFMA) and FP64 (DMMA and DFMA round alike): sequential FMA everywhere. INT8: exact modulo 2^32.
// FP8 without fast accumulation on h100 and ada: the accumulator is taken after every 128 products and added to an FP32
// sum, to nearest. That length is the published practice of Hopper kernels; cuBLAS's own is for a GPU to settle, as
// are the cut of TF32 operands (here truncated: the tensor core ignores the low 13 bits) and the steps of Ada's FP8
// beyond the vectors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gemm.h"

namespace hostcuda::gemm {

inline constexpr uint32_t kCanonicalNan = 0x7FFFFFFFu;
inline constexpr uint64_t kCanonicalNan64 = 0xFFF8000000000000u;

// How the values of an operand split into exponent and significand.
enum class Format : uint8_t { kBf16, kFp16, kTf32, kE4m3, kE5m2 };
struct Formats {
  Format a, b;
  constexpr Formats(Format both) : a(both), b(both) {}
  constexpr Formats(Format first, Format second) : a(first), b(second) {}
};

struct StepModel {
  int products;               // N
  int guard_bits;             // g
  bool adds_rounded = false;  // c is no term of the aligned sum: it is added to it, to nearest
};

enum class Rule : uint8_t {
  kTensorCore,  // chain of StepModel steps, c = +0 first
  kRounded16,   // b = p0, then b = RN(b + p) over 16 products exact in FP32; acc = RN(acc + b)
  kSequential,  // acc = fma(a, b, acc)
};

// Whether split-K rounds its partial results to the operands' 16 bits before it adds them up: as libraries do where the
// program lets them (Product::narrow_result), or even where it does not, which is a fault.
enum class NarrowPartials : uint8_t { kNever, kWhereAllowed, kAlways };

struct Order {
  std::string name;  // as given, for output
  Rule rule;
  StepModel step;      // kTensorCore: of 16-bit operands
  StepModel fp8_step;  // kTensorCore: of FP8 operands
  bool has_bf16;       // BF16 and TF32; false: NOT_SUPPORTED, as on the real device
  bool has_fp8;
  int compute_capability;  // times ten
  int splits;              // S >= 1: k in S slices, each from +0, partial results added RN in slice order
  NarrowPartials narrow_partials;
};

// Reads NAME, NAME/splitS, NAME/splitSx16 (kWhereAllowed) or NAME/splitSx16always, S in [1, 64]. False: *error says
// what was wrong and lists what is allowed.
bool parse_order(std::string_view text, Order* order, std::string* error);

// How an order sums products of given operands into FP32: what replay_entry and the fast paths share.
struct Chain {
  Rule rule;
  StepModel step;  // kTensorCore
  Formats formats;
  int64_t step_products;  // consumed by an accumulator update: N, 16 or 1
  int64_t promotion;      // after so many products the accumulator is added, to nearest, to an FP32 sum; 0: never
  int64_t slice_unit;     // slices of split-K are multiples of this; 0: never sliced
};

// For operands of types a and b (not FP64, not INT8) that the order supports.
Chain chain_of(const Order& order, Type a, Type b, Compute compute);

// Whether the order's device runs the tuple of gemm.h's table.
bool supports(const Order& order, Type a, Type b, Compute compute);

// Length of a slice under split-K: ceil(k / S) rounded up to a multiple of the chain's unit, so that no step straddles
// two slices (k when S = 1). The last slice is what is left; slices past k do not exist.
int64_t slice_products(const Order& order, const Chain& chain, int64_t k);

// One step over count <= N products given as FP32 values that are exact in their formats. Integer arithmetic, so that
// it does not depend on the rounding mode or FTZ; only with adds_rounded it needs the default ones.
float tensor_core_step(const StepModel& model, const Formats& formats, const float* a, const float* b, int64_t count,
                       float c);

// A chain of steps over k products.
float tensor_core_chain(const StepModel& model, const Formats& formats, const float* a, const float* b, int64_t k,
                        float c);

// A fault in the live accumulator: after the step that consumes product k_step its bits are XORed and the sum goes on.
struct AccumulatorFault {
  int64_t k_step;
  uint64_t flip;  // the low 32 bits where the accumulator has no more
};

// One entry in the given order: a and b hold k values exact in their types, contiguous (kTf32: cut to TF32 here). This
// is the definition that every fast path equals bit for bit (NaNs canonical). fault may be null. Runs under the default
// rounding mode. Not for FP64 and INT8.
float replay_entry(const Order& order, Type type_a, Type type_b, Compute compute, const float* a, const float* b,
                   int64_t k, const AccumulatorFault* fault);

// Entry (i, j) of such a product, with its block scales where it has them; a, b: its row and its column.
float replay_entry_of(const Order& order, const Product& product, int64_t i, int64_t j, const float* a, const float* b,
                      const AccumulatorFault* fault);

// The same for FP64 (sequential FMA: the DMMA unit's roundings are those of a chain of FMAs) and for INT8 (held as
// int32): sums modulo 2^32, in which the order does not show; a fault comes in after the product k_step itself.
double replay_entry64(const double* a, const double* b, int64_t k, const AccumulatorFault* fault);
int32_t replay_entry_int(const int32_t* a, const int32_t* b, int64_t k, const AccumulatorFault* fault);

// The low 13 bits cut off; NaN canonical.
float cut_to_tf32(float value);

// The value of an FP8 bit pattern; NaN canonical.
float e4m3_to_float(uint8_t bits);
float e5m2_to_float(uint8_t bits);

// The value of an FP4 bit pattern in the low half of a byte.
float e2m1_to_float(uint8_t bits);

// The value of an FP16 bit pattern, and the FP16 nearest to a float (ties to even, NaN kept) as a float.
float half_to_float(uint16_t bits);
float round_to_half(float value);

// Whether an order rounds its partial results for operands of that type; and to what.
bool narrows(const Order& order, Type type, bool sliced);
float narrowed(Type type, float value);

}  // namespace hostcuda::gemm

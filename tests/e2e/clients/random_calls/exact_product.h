// SPDX-License-Identifier: MIT
// The exact result of a product with its epilogue, and for each entry how far a right computation may lie from it.
//
// Bounds, with S = sum |a||b|, T = |alpha s| S + |beta c| + |bias|, s the product of the scale factors:
//   accumulation  (c_max eps + in) S + k q. eps = 2^-23 for FP32 accumulators, 2^-52 for FP64; c_max as for a sum in
//                 steps of N products whose addends are cut to g bits beyond the accumulator's (kernels/MATH.md
//                 "entry"): each step loses less than ((N + 1) / 2^g + 1) eps S. FMA units: N = 1, nothing is cut.
//                 q: the smallest subnormal. FP8 on Hopper keeps 13 fraction bits, in the result of a step too: g =
//                 -10, and 2^10 in place of 1. A tensor core aligns addends by nominal exponents, which stop at the
//                 least normal number of the operands' format: in S a nonzero operand below it counts as that number.
//                 FP16 accumulators round to nearest after each step besides: k 2^-11 S / (1 - k 2^-11) + k 2^-25.
//                 Integers: exact, modulo 2^32.
//   operands      rounded first, `in`: to TF32 2^-9 (two cut to 10 bits), FP16 2^-10, BF16 2^-7 (two rounded to 11 and
//   8
//                 bits); below that format's least normal number by 2^-136, 2^-25, 2^-134, times the other operand
//   scaling       a rounding by alpha, by each scale factor, by beta c, by each of two sums: 8 u T at most
//   activation    RELU has slope 1 at most; GELU (tanh form) and its derivative 1.13, and their own evaluation errs by
//   at
//                 most 2^-20 |x|, for the derivative 2^-18 |x|
//   rounding      of the type: the delivered value lies between those of value - bound and value + bound
// Of operands that are not finite D has the NaN or the infinity that they make.
// Where S or T leaves the range of the accumulator some order of summation overflows: bound is infinite.
#pragma once

#include <cstdint>
#include <vector>

#include "call.h"

namespace calls {

// One batch entry as numbers. Column-major, index i + j rows.
struct Problem {
  int64_t m = 0, n = 0, k = 0;
  std::vector<double> a;            // op(A), m x k
  std::vector<double> b;            // op(B), k x n
  std::vector<double> c;            // m x n; empty where beta is 0
  std::vector<double> alpha, beta;  // of each row
  std::vector<double> scale_a;      // of each row
  std::vector<double> scale_b;      // of each column
  double scale_d = 1;
  std::vector<double> bias;  // of each row; empty: none
  std::vector<double> aux;   // input of DGELU; of DRELU 0 or 1. m x n; empty: none
};

struct Value {
  long double value;
  double bound;  // infinite: anything may be right
};

struct Result {
  std::vector<Value> d;     // before the rounding to D's type, after the D scale
  std::vector<Value> aux;   // RELU_AUX, GELU_AUX: what the activation is given
  std::vector<Value> bias;  // gradients: m (n for BGRADB)
  Value amax;               // largest |D| before the D scale
};

// How this device accumulates: measured for the tensor cores of each generation, else the widest of them.
struct TensorCore {
  int products, guard_bits;
};
TensorCore tensor_core_of(int compute_major, const Call& call);

Result exact_product(const Call& call, const Problem& problem, int compute_major);

}  // namespace calls

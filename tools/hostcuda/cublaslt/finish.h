// SPDX-License-Identifier: MIT
// The closing arithmetic of every product of the host device, and the number formats that it reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/hostcuda/gemm/gemm.h"

namespace hostcuda {

// 16-bit, FP8 and FP4 formats as bit patterns. Widening is exact; narrowing rounds to nearest, ties to even, keeps
// subnormals and the sign of zero, and turns a NaN into a quiet NaN of the same sign. Beyond the largest number 16-bit
// formats overflow to infinity; FP8 and FP4 saturate, infinities included. FP4 has no NaN: one becomes the largest.
float float_of_bf16(uint16_t bits);
float float_of_fp16(uint16_t bits);
uint16_t bf16_of(float value);
uint16_t fp16_of(float value);
uint8_t e4m3_of(float value);
uint8_t e5m2_of(float value);
uint8_t e2m1_of(float value);

// Largest number of an FP8 or FP4 type.
float largest_of(gemm::Type type);

// `count` values of `type` at `data`, `step` elements apart, to and from FP32 or FP64. What the wider side cannot hold,
// or the narrower not exactly, is rounded to nearest even; integers saturate, and a NaN becomes 0.
template <typename Real>
void load_values(gemm::Type type, const void* data, int64_t step, int64_t count, Real* out);
template <typename Real>
void store_values(gemm::Type type, void* data, int64_t step, int64_t count, const Real* values);

enum class Activation : uint8_t {
  kNone = 0,
  kRelu = 1,
  kGelu = 2,
  kReluGradient = 3,  // x where the aux mask has a bit, else 0
  kGeluGradient = 4,  // x gelu'(aux)
};

// A factor of each row of D: the same for all (one value), or one a row (m values).
template <typename Real>
struct RowFactor {
  std::vector<Real> values;
  Real at(int64_t row) const { return values[values.size() == 1 ? 0 : static_cast<size_t>(row)]; }
};

template <typename Real>
struct FinishTerms {
  RowFactor<Real> alpha;
  RowFactor<Real> beta;
  bool reads_c;  // some beta is not 0: a row whose beta is 0 does not read C, whatever it holds
  Activation activation;
  Real d_scale;
};

// What meets one column of D; arrays of `count` values, null: none.
template <typename Real>
struct FinishColumn {
  const Real* factors;  // FP8: scale of A times scale of B, one a row
  const Real* c;
  const Real* bias;
  const Real* aux_in;      // kGeluGradient
  const uint8_t* mask_in;  // kReluGradient: bit i % 8 of byte i / 8 is row i
  Real* aux_out;           // gets x as it goes into GELU
  uint8_t* mask_out;       // gets the mask of RELU
  Real* gradient;          // has x added to it as it goes into the cast
  Real* amax;              // one value: becomes the largest |x| where that is larger; NaNs do not count
};

// One column: x holds P(:, j) and becomes what is cast to D's type, each step rounded to nearest in Real (FP32, or FP64
// for FP64 sums):
//   x = (alpha factor) P                    where there are factors, else alpha P
//   x = fma(beta, C, x)                     where beta is not 0
//   x = x + bias                            where there is a bias
//   mask bit = x > 0; aux = x               as asked for
//   x = x < 0 ? 0 : x                       RELU (NaN stays NaN)
//   x = 0.5 x (1 + tanh(v))                 GELU; v = 0.7978845608028654 (x + 0.044715 (x x x)), products from the left
//   x = mask ? x : 0                        gradient of RELU
//   x = x gelu'(aux)                        gradient of GELU: 0.5 (1 + t + y (1 - t t) w), t = tanh(v(y)), y = aux,
//                                           w = 0.7978845608028654 (1 + 3 0.044715 y y)
//   amax; gradient
//   x = d_scale x                           where d_scale is not 1
// With CUBLAS_COMPUTE_16F the same is done over FP16 values of alpha, beta, P and C, with one rounding to FP16 at the
// end (store_values).
// hostcuda's choices, for a GPU to settle: the mask of +0, -0 and NaN; the form of GELU; NaN in amax; the order of
// scale factors; the gradient taken before the cast and before d_scale; the rounding of COMPUTE_16F.
template <typename Real>
void finish_column(const FinishTerms<Real>& terms, int64_t count, Real* x, const FinishColumn<Real>& with);

// CUBLAS_COMPUTE_32I with INT32 scalars: x = alpha x + beta C modulo 2^32; c may be null where beta is 0.
void finish_column_int(int32_t alpha, int32_t beta, int64_t count, int32_t* x, const int32_t* c);

}  // namespace hostcuda

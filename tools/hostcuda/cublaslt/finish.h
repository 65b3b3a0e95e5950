// SPDX-License-Identifier: MIT
// The closing arithmetic of every product of the host device, and the 16-bit number formats that it reads and writes.
#pragma once

#include <cstdint>
#include <cstring>

#include "tools/hostcuda/gemm/gemm.h"

namespace hostcuda {

inline int64_t bytes_of(gemm::Type type) {
  return type == gemm::Type::kFp32 ? 4 : 2;
}

// 16-bit formats as bit patterns. Widening is exact; narrowing rounds to nearest, ties to even, overflows to infinity,
// keeps subnormals and the sign of zero, and turns a NaN into a quiet NaN of the same sign.
float float_of_bf16(uint16_t bits);
float float_of_fp16(uint16_t bits);
uint16_t bf16_of(float value);
uint16_t fp16_of(float value);

// `count` values of `type` at `data`, `step` elements apart, to and from FP32.
void load_values(gemm::Type type, const void* data, int64_t step, int64_t count, float* out);
void store_values(gemm::Type type, void* data, int64_t step, int64_t count, const float* values);

enum class Activation : uint8_t { kNone = 0, kRelu = 1, kGelu = 2 };

struct FinishTerms {
  float alpha;
  float beta;  // 0: C is not read, whatever it holds
  Activation activation;
};

// One column: x holds P(:, j) and becomes what is cast to D's type. `c` is C(:, j), null where beta is 0; `bias` one
// value a row of D, or null; `count` rows. All in FP32, each step rounded to nearest:
//   x = alpha P
//   x = fma(beta, C, x)                                                     where beta is not 0
//   x = x + bias                                                            where there is a bias
//   x = x < 0 ? 0 : x                                                       RELU (NaN stays NaN)
//   x = 0.5 x (1 + tanhf(0.7978845608028654 (x + 0.044715 (x x x))))        GELU, products from the left
// With CUBLAS_COMPUTE_16F the same is done over FP16 values of alpha, beta, P and C, with one rounding to FP16 at the
// end (store_values): hostcuda's choice, no statement about silicon.
void finish_column(const FinishTerms& terms, int64_t count, float* x, const float* c, const float* bias);

}  // namespace hostcuda

// SPDX-License-Identifier: MIT
// What the caller asked for, of one entry: D = activation(alpha P + beta C + bias), before the cast. One place, so that
// the fused product pass, the repair and the finish kernel deliver the same bits. MATH.md "finish".
#pragma once

#include "kernels/element.h"
#include "kernels/params.h"
#include "kernels/simt.h"

namespace sdcguard {

// The call's scalars, read once a thread.
struct FinishScalars {
  float alpha;
  float beta;
  bool plain;  // alpha 1, no C, no bias: the product itself, before the activation
};

SDCGUARD_DEVICE FinishScalars finish_scalars(const FinishView& finish) {
  FinishScalars s;
  s.alpha = finish.alpha_address != 0 ? load<float>(finish.alpha_address, 0) : static_cast<float>(finish.alpha);
  s.beta = finish.beta_address != 0 ? load<float>(finish.beta_address, 0) : static_cast<float>(finish.beta);
  s.plain = s.alpha == 1.0f && s.beta == 0.0f && finish.bias_address == 0;
  return s;
}

// beta C + bias of entry (row, col); 0 when there is neither. C is not read where beta is 0.
SDCGUARD_DEVICE float finish_offset(const FinishView& finish, const FinishScalars& s, int64_t entry, int64_t row,
                                    int64_t col) {
  float offset = 0.0f;
  if (finish.bias_address != 0) {
    offset = load_element(finish.bias_address, entry * finish.bias_batch_stride + col, finish.bias_type);
  }
  if (s.beta != 0.0f) {
    const float c = load_element(finish.c.address, element_index(finish.c, entry, row, col), finish.c.type);
    offset = fma(s.beta, c, offset);
  }
  return offset;
}

// Rounds once more than a fused library epilogue may; alpha 0 does not reference P.
SDCGUARD_DEVICE float finish_linear(const FinishScalars& s, float product, float offset) {
  return s.alpha == 0.0f ? offset : fma(s.alpha, product, offset);
}

// exp(v) for v <= 0 in plain arithmetic, the same bits on host and device: v = n ln 2 + r, Taylor to the eighth degree
// (relative error below 2^-24 for |r| <= ln 2 / 2), scaled by 2^n.
SDCGUARD_DEVICE float exp_of_nonpositive(float v) {
  if (!(v > -87.0f)) return is_nan(v) ? v : 0.0f;
  const float n = floorf(fma(v, 0x1.715476p+0f, 0.5f));
  float r = fma(n, -0x1.62e4p-1f, v);  // ln 2 in two parts: the first has 14 bits, so the product is exact
  r = fma(n, -0x1.7f7d1cp-20f, r);
  float e = 0x1.a01a02p-16f;
  e = fma(e, r, 0x1.a01a02p-13f);
  e = fma(e, r, 0x1.6c16c2p-10f);
  e = fma(e, r, 0x1.111112p-7f);
  e = fma(e, r, 0x1.555556p-5f);
  e = fma(e, r, 0x1.555556p-3f);
  e = fma(e, r, 0.5f);
  e = fma(e, r, 1.0f);
  e = fma(e, r, 1.0f);
  return e * float_of(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
}

// GELU, tanh form: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) = x / (1 + exp(-2 u)), u the tanh's argument.
SDCGUARD_DEVICE float gelu_tanh(float x) {
  if (is_nan(x)) return x;
  if (x > 16.0f) return x;  // 1 + tanh is 2 in FP32
  if (x < -16.0f) return -0.0f;
  const float cubic = fma(0.044715f * x * x, x, x);
  const float twice = 2.0f * 0x1.988454p-1f * cubic;
  const float small = exp_of_nonpositive(-fabsf(twice));  // exp(-2|u|)
  return twice >= 0.0f ? x / (1.0f + small) : x * small / (1.0f + small);
}

SDCGUARD_DEVICE float activate(float v, uint32_t epilogue) {
  if ((epilogue & kEpilogueRelu) != 0) v = v > 0.0f || is_nan(v) ? v : 0.0f;
  if ((epilogue & kEpilogueGelu) != 0) v = gelu_tanh(v);
  return v;
}

SDCGUARD_DEVICE float finish_value(const FinishView& finish, const FinishScalars& s, float product, int64_t entry,
                                   int64_t row, int64_t col) {
  const float offset = s.plain ? 0.0f : finish_offset(finish, s, entry, row, col);
  const float linear = s.plain ? product : finish_linear(s, product, offset);
  return activate(linear, finish.epilogue);
}

// Half a unit in the last place of a 16-bit value as delivered: what its rounding may have moved it by.
SDCGUARD_DEVICE double half_ulp(float v, DataType type) {
  const uint32_t exponent = (bits_of(v) >> 23) & 0xFFu;
  const bool bf16 = type == DataType::kBF16;
  const uint32_t lowest = bf16 ? 1u : 113u;  // smallest normal exponent: below it the spacing stays
  const uint32_t at = exponent < lowest ? lowest : exponent;
  return double_of(static_cast<uint64_t>(at + 1023u - 127u - (bf16 ? 8u : 11u)) << 52);
}

// Offsets of up to four entries of one row.
SDCGUARD_DEVICE Float4 finish_offset4(const FinishView& finish, const FinishScalars& s, uint32_t count, int64_t entry,
                                      int64_t row, int64_t col) {
  Float4 offset{0, 0, 0, 0};
  if (finish.bias_address != 0) {
    offset = load_four(finish.bias_address, entry * finish.bias_batch_stride + col, count, finish.bias_type);
  }
  if (s.beta != 0.0f) {
    const Float4 c = load_four(finish.c.address, element_index(finish.c, entry, row, col), count, finish.c.type);
    offset = Float4{fma(s.beta, c.x, offset.x), fma(s.beta, c.y, offset.y), fma(s.beta, c.z, offset.z),
                    fma(s.beta, c.w, offset.w)};
  }
  return offset;
}

// Delivers up to four entries of one row from their products: the bits of finish_value().
SDCGUARD_DEVICE void deliver_four(const FinishView& finish, const FinishScalars& s, const Float4& product,
                                  uint32_t count, int64_t entry, int64_t row, int64_t col) {
  Float4 v = product;
  if (!s.plain) {
    const Float4 offset = finish_offset4(finish, s, count, entry, row, col);
    v = Float4{finish_linear(s, v.x, offset.x), finish_linear(s, v.y, offset.y), finish_linear(s, v.z, offset.z),
               finish_linear(s, v.w, offset.w)};
  }
  if (finish.epilogue != 0) {
    SDCGUARD_NO_UNROLL
    for (uint32_t i = 0; i < 4; ++i) v = Float4{v.y, v.z, v.w, activate(v.x, finish.epilogue)};  // once around
  }
  store_four(finish.d.address, element_index(finish.d, entry, row, col), count, finish.d.type, v);
}

}  // namespace sdcguard

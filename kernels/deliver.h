// SPDX-License-Identifier: MIT
// What the caller asked for, of one entry: D = scale_d activation(alpha P + beta C + bias), before the cast. One place,
// so that the fused product pass, the repair and the finish kernel deliver the same bits. MATH.md "finish".
#pragma once

#include "kernels/element.h"
#include "kernels/params.h"
#include "kernels/simt.h"

namespace sdcguard {

// What multiplies what, read once a thread. Of vectors: of one column.
template <typename T>
struct FinishScalars {
  T alpha;        // alpha scale_a scale_b; delivered: and scale_d
  T beta;         // beta scale_c; delivered: and scale_d
  T bias_factor;  // 1; delivered: scale_d
  T scale;        // scale_d; delivered: 1
  bool plain;     // the product itself, before the activation
};

template <typename T>
SDCGUARD_DEVICE T read_scalar(uint64_t address, int64_t index, DataType type, double held) {
  double v = held;
  if (address != 0) {
    v = type == DataType::kF64   ? load<double>(address, index)
        : type == DataType::kI32 ? static_cast<double>(load<int32_t>(address, index))
        : type == DataType::kF16 ? static_cast<double>(f16_to_float(load<uint16_t>(address, index)))
                                 : static_cast<double>(load<float>(address, index));
  }
  if constexpr (kIsExact<T>) return static_cast<uint32_t>(static_cast<int64_t>(v));
  return static_cast<T>(v);
}

// Of column `col` of row `row`; the same for all of an entry where nothing is a vector.
template <typename T>
SDCGUARD_DEVICE FinishScalars<T> finish_scalars(const FinishView& finish, bool delivered, int64_t entry,
                                                int64_t row = 0, int64_t col = 0) {
  const int64_t of_entry = entry * finish.alpha_batch_stride;
  FinishScalars<T> s;
  s.alpha = read_scalar<T>(finish.alpha_address, of_entry + col * finish.alpha_column_stride, finish.scalar_type,
                           finish.alpha);
  s.beta =
      read_scalar<T>(finish.beta_address, of_entry + col * finish.beta_column_stride, finish.scalar_type, finish.beta);
  s.bias_factor = 1;
  s.scale = 1;
  if constexpr (std::is_same_v<T, float>) {
    if (finish.scale_a != 0) s.alpha *= load<float>(finish.scale_a, finish.scale_a_vector != 0 ? row : 0);
    if (finish.scale_b != 0) s.alpha *= load<float>(finish.scale_b, finish.scale_b_vector != 0 ? col : 0);
    if (finish.scale_c != 0) s.beta *= load<float>(finish.scale_c, 0);
    if (finish.scale_d != 0) {
      const float scale = load<float>(finish.scale_d, 0);
      if (delivered) {
        s.alpha *= scale;
        s.beta *= scale;
        s.bias_factor = scale;
      } else {
        s.scale = scale;
      }
    }
  }
  s.plain = s.alpha == T{1} && s.beta == T{0} && finish.bias_address == 0;
  return s;
}

template <typename T>
SDCGUARD_DEVICE T multiply_add(T a, T b, T c) {
  if constexpr (kIsExact<T>) {
    return a * b + c;
  } else {
    return fma(a, b, c);
  }
}

// Where a row of what the finish reads and writes begins; columns are contiguous there.
struct FinishRow {
  uint64_t c, d, bias;
};

SDCGUARD_DEVICE FinishRow finish_row(const FinishView& finish, int64_t entry, int64_t row) {
  FinishRow at{0, 0, 0};
  if (finish.c.address != 0 || finish.c.pointers != 0) at.c = row_address(finish.c, entry, row);
  if (finish.d.address != 0) at.d = row_address(finish.d, entry, row);
  if (finish.bias_address != 0) {
    at.bias =
        finish.bias_address + static_cast<uint64_t>(entry * finish.bias_batch_stride) * bytes_of(finish.bias_type);
  }
  return at;
}

// beta C + bias of a column; 0 when there is neither. C is not read where beta is 0.
template <typename T>
SDCGUARD_DEVICE T finish_offset(const FinishView& finish, const FinishScalars<T>& s, const FinishRow& at, int64_t col) {
  T offset = 0;
  if (at.bias != 0) offset = load_element<T>(at.bias, col, finish.bias_type) * s.bias_factor;
  if (s.beta != T{0}) offset = multiply_add(s.beta, load_element<T>(at.c, col, finish.c.type), offset);
  return offset;
}

// Rounds once more than a fused library epilogue may; alpha 0 does not reference P.
template <typename T>
SDCGUARD_DEVICE T finish_linear(const FinishScalars<T>& s, T product, T offset) {
  return s.alpha == T{0} ? offset : multiply_add(s.alpha, product, offset);
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

template <typename T>
SDCGUARD_DEVICE T activate(T v, uint32_t epilogue) {
  if constexpr (!kIsExact<T>) {
    if ((epilogue & kEpilogueRelu) != 0) v = v > T{0} || v != v ? v : T{0};
    if constexpr (std::is_same_v<T, float>) {
      if ((epilogue & kEpilogueGelu) != 0) v = gelu_tanh(v);
    }
  }
  return v;
}

// The value before the activation.
template <typename T>
SDCGUARD_DEVICE T finish_before(const FinishView& finish, const FinishScalars<T>& s, const FinishRow& at, T product,
                                int64_t col) {
  return s.plain ? product : finish_linear(s, product, finish_offset(finish, s, at, col));
}

// The value that is cast to D.
template <typename T>
SDCGUARD_DEVICE T finish_value(const FinishView& finish, const FinishScalars<T>& s, const FinishRow& at, T product,
                               int64_t col) {
  const T v = activate(finish_before(finish, s, at, product, col), finish.epilogue);
  return s.scale == T{1} ? v : v * s.scale;
}

// Half a unit in the last place of a narrow value as delivered: what its rounding may have moved it by.
SDCGUARD_DEVICE double half_ulp(float v, DataType type) {
  const uint32_t exponent = (bits_of(v) >> 23) & 0xFFu;
  const uint32_t fraction = type == DataType::kBF16   ? 7u
                            : type == DataType::kF16  ? 10u
                            : type == DataType::kE4M3 ? 3u
                                                      : 2u;
  // FP32 exponent of the smallest normal value: below it the spacing stays.
  const uint32_t lowest = type == DataType::kBF16 ? 1u : type == DataType::kE4M3 ? 121u : 113u;
  const uint32_t at = exponent < lowest ? lowest : exponent;
  return double_of(static_cast<uint64_t>(at + 1023u - 127u - fraction - 1u) << 52);
}

// Offsets of up to four entries of one row: the bits of finish_offset().
template <typename T>
SDCGUARD_DEVICE Quad<T> finish_offset4(const FinishView& finish, const FinishScalars<T>& s, const FinishRow& at,
                                       uint32_t count, int64_t col) {
  Quad<T> offset{0, 0, 0, 0};
  if (at.bias != 0) {
    offset = load_four<T>(at.bias, col, count, finish.bias_type);
    if (s.bias_factor != T{1}) {
      offset = Quad<T>{offset.x * s.bias_factor, offset.y * s.bias_factor, offset.z * s.bias_factor,
                       offset.w * s.bias_factor};
    }
  }
  if (s.beta != T{0}) {
    const Quad<T> c = load_four<T>(at.c, col, count, finish.c.type);
    offset = Quad<T>{multiply_add(s.beta, c.x, offset.x), multiply_add(s.beta, c.y, offset.y),
                     multiply_add(s.beta, c.z, offset.z), multiply_add(s.beta, c.w, offset.w)};
  }
  return offset;
}

// Delivers up to four entries of one row from their products: the bits of finish_value().
template <typename T>
SDCGUARD_DEVICE void deliver_quad(const FinishView& finish, const FinishScalars<T>& s, const FinishRow& at,
                                  const Quad<T>& product, uint32_t count, int64_t col) {
  Quad<T> v = product;
  if (!s.plain) {
    const Quad<T> offset = finish_offset4(finish, s, at, count, col);
    v = Quad<T>{finish_linear(s, v.x, offset.x), finish_linear(s, v.y, offset.y), finish_linear(s, v.z, offset.z),
                finish_linear(s, v.w, offset.w)};
  }
  if (finish.epilogue != 0) {
    SDCGUARD_NO_UNROLL
    for (uint32_t i = 0; i < 4; ++i) v = Quad<T>{v.y, v.z, v.w, activate(v.x, finish.epilogue)};  // once around
  }
  if (s.scale != T{1}) v = Quad<T>{v.x * s.scale, v.y * s.scale, v.z * s.scale, v.w * s.scale};
  store_four<T>(at.d, col, count, finish.d.type, v);
}

}  // namespace sdcguard

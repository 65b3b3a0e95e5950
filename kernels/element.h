// SPDX-License-Identifier: MIT
// Elements of the caller's matrices as the kernels read and write them: any handled type, one or four at a time, with
// vector accesses where the address allows, decided at run time.
//
// T is the arithmetic of a probe: float (every product with an FP32 or FP16 accumulator), double (FP64), uint32_t (INT8
// products modulo 2^32, integers in two's complement).
#pragma once

#include "kernels/params.h"
#include "kernels/simt.h"

namespace sdcguard {

// Four values; of floats one vector access.
template <typename T>
struct QuadOf {
  struct alignas(16) Type {
    T x, y, z, w;
  };
};
template <>
struct QuadOf<float> {
  using Type = Float4;
};
template <typename T>
using Quad = typename QuadOf<T>::Type;

template <typename T>
inline constexpr bool kIsExact = std::is_same_v<T, uint32_t>;

// A nibble a type, in the order of DataType; the plan lets none above kI32 through.
SDCGUARD_DEVICE uint32_t bytes_of(DataType type) {
  static_assert(static_cast<uint32_t>(DataType::kI32) == 8 && static_cast<uint32_t>(DataType::kF64) == 4);
  return static_cast<uint32_t>(0x411182240ull >> (4 * static_cast<uint32_t>(type))) & 15u;
}

// FP64 values whose squares, and sums of them, neither overflow nor underflow.
inline constexpr double kWideLow = 0x1p-440;
inline constexpr double kWideHigh = 0x1p440;

SDCGUARD_DEVICE float flip(float v, uint32_t sign) {
  return float_of(bits_of(v) ^ (sign << 31));
}
SDCGUARD_DEVICE double flip(double v, uint32_t sign) {
  return double_of(bits_of(v) ^ (static_cast<uint64_t>(sign) << 63));
}

// Where batch entry `entry` of a view begins.
SDCGUARD_DEVICE uint64_t entry_address(const MatrixView& view, int64_t entry) {
  if (view.pointers != 0) return load<uint64_t>(view.pointers, entry);
  return view.address + static_cast<uint64_t>(entry * view.batch_stride * static_cast<int64_t>(bytes_of(view.type)));
}

// Where row `row` of a view with contiguous rows (P, C, D) begins.
SDCGUARD_DEVICE uint64_t row_address(const MatrixView& view, int64_t entry, int64_t row) {
  return entry_address(view, entry) + static_cast<uint64_t>(row * view.row_stride) * bytes_of(view.type);
}

// Of element (row, col) from its entry's beginning.
SDCGUARD_DEVICE int64_t element_index(const MatrixView& view, int64_t row, int64_t col) {
  return row * view.row_stride + col * view.col_stride;
}

SDCGUARD_DEVICE float float_of_half(uint32_t raw, DataType type) {
  return type == DataType::kBF16 ? bf16_to_float(static_cast<uint16_t>(raw)) : f16_to_float(static_cast<uint16_t>(raw));
}

SDCGUARD_DEVICE float float_of_byte(uint32_t raw, DataType type) {
  const auto byte = static_cast<uint8_t>(raw);
  return type == DataType::kE4M3   ? e4m3_to_float(byte)
         : type == DataType::kE5M2 ? e5m2_to_float(byte)
                                   : static_cast<float>(static_cast<int8_t>(byte));
}

// Four at once. Called, not inlined, as are the other rare conversions: they would multiply every kernel's code.
SDCGUARD_CALLED Float4 floats_of_bytes(uint32_t raw, DataType type) {
  return Float4{float_of_byte(raw & 0xFFu, type), float_of_byte(raw >> 8 & 0xFFu, type),
                float_of_byte(raw >> 16 & 0xFFu, type), float_of_byte(raw >> 24, type)};
}

// T float: any type but kF64; kI32 is rounded. T double: kF64 alone. T uint32_t: kI8 and kI32.
template <typename T>
SDCGUARD_DEVICE T load_element(uint64_t address, int64_t index, DataType type) {
  if constexpr (std::is_same_v<T, double>) {
    return load<double>(address, index);
  } else if constexpr (kIsExact<T>) {
    if (type == DataType::kI32) return load<uint32_t>(address, index);
    return static_cast<uint32_t>(static_cast<int32_t>(load<int8_t>(address, index)));
  } else {
    const uint32_t bytes = bytes_of(type);
    if (bytes == 2) return float_of_half(load<uint16_t>(address, index), type);
    if (bytes == 1) return floats_of_bytes(load<uint8_t>(address, index), type).x;
    if (type == DataType::kI32) return static_cast<float>(load<int32_t>(address, index));
    return load<float>(address, index);
  }
}

// Raw bits of a value, rounded to nearest even. FP16 and BF16 overflow to infinity, as a cast does; FP8 and INT8
// saturate.
SDCGUARD_DEVICE uint32_t half_of_float(float v, DataType type) {
  return type == DataType::kBF16 ? float_to_bf16(v) : float_to_f16(v);
}
SDCGUARD_CALLED uint32_t byte_of_float(float v, DataType type) {
  return type == DataType::kE4M3 ? float_to_e4m3(v) : type == DataType::kE5M2 ? float_to_e5m2(v) : float_to_i8(v);
}

template <typename T>
SDCGUARD_DEVICE void store_element(uint64_t address, int64_t index, DataType type, T v) {
  if constexpr (std::is_same_v<T, double>) {
    store<double>(address, index, v);
  } else if constexpr (kIsExact<T>) {
    store<uint32_t>(address, index, v);
  } else {
    const uint32_t bytes = bytes_of(type);
    if (bytes == 4) {
      store<float>(address, index, v);
    } else if (bytes == 2) {
      store<uint16_t>(address, index, static_cast<uint16_t>(half_of_float(v, type)));
    } else {
      store<uint8_t>(address, index, static_cast<uint8_t>(byte_of_float(v, type)));
    }
  }
}

// True where four elements at `index` are one aligned access.
SDCGUARD_DEVICE bool is_vector_aligned(uint64_t address, int64_t index, DataType type) {
  const uint64_t size = bytes_of(type);
  return (address + static_cast<uint64_t>(index) * size) % (4 * size) == 0;
}

// Elements index + i stride, the first `count` of four; the others are 0.
template <typename T>
SDCGUARD_DEVICE Quad<T> load_strided4(uint64_t address, int64_t index, int64_t stride, uint32_t count, DataType type) {
  Quad<T> v{0, 0, 0, 0};
  if (count > 0) v.x = load_element<T>(address, index, type);
  if (count > 1) v.y = load_element<T>(address, index + stride, type);
  if (count > 2) v.z = load_element<T>(address, index + 2 * stride, type);
  if (count > 3) v.w = load_element<T>(address, index + 3 * stride, type);
  return v;
}

// Elements index .. index + 3; is_vector_aligned() holds.
template <typename T>
SDCGUARD_DEVICE Quad<T> load_aligned4(uint64_t address, int64_t index, DataType type) {
  if constexpr (std::is_same_v<T, double>) {
    const Raw16 low = load_16(address + static_cast<uint64_t>(index) * 8, 0);
    const Raw16 high = load_16(address + static_cast<uint64_t>(index) * 8, 1);
    const auto wide = [](uint32_t a, uint32_t b) { return double_of(static_cast<uint64_t>(b) << 32 | a); };
    return Quad<double>{wide(low.word[0], low.word[1]), wide(low.word[2], low.word[3]),
                        wide(high.word[0], high.word[1]), wide(high.word[2], high.word[3])};
  } else if constexpr (kIsExact<T>) {
    if (type == DataType::kI32) {
      const Raw16 raw = load_16(address + static_cast<uint64_t>(index) * 4, 0);
      return Quad<uint32_t>{raw.word[0], raw.word[1], raw.word[2], raw.word[3]};
    }
    const uint32_t raw = load<uint32_t>(address + static_cast<uint64_t>(index), 0);
    const auto wide = [raw](uint32_t shift) {
      return static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(raw >> shift)));
    };
    return Quad<uint32_t>{wide(0), wide(8), wide(16), wide(24)};
  } else {
    const uint32_t bytes = bytes_of(type);
    if (bytes == 4) {
      if (type != DataType::kI32) return load_float4(address + static_cast<uint64_t>(index) * 4, 0);
      return load_strided4<float>(address, index, 1, 4, type);
    }
    if (bytes == 2) {
      const uint64_t raw = load<uint64_t>(address + static_cast<uint64_t>(index) * 2, 0);
      const uint32_t low = static_cast<uint32_t>(raw);
      const uint32_t high = static_cast<uint32_t>(raw >> 32);
      if (type == DataType::kBF16) {
        return Float4{float_of(low << 16), float_of(low & 0xFFFF0000u), float_of(high << 16),
                      float_of(high & 0xFFFF0000u)};
      }
      return Float4{f16_to_float(static_cast<uint16_t>(low)), f16_to_float(static_cast<uint16_t>(low >> 16)),
                    f16_to_float(static_cast<uint16_t>(high)), f16_to_float(static_cast<uint16_t>(high >> 16))};
    }
    return floats_of_bytes(load<uint32_t>(address + static_cast<uint64_t>(index), 0), type);
  }
}

// Four elements along the contiguous direction, `count` of them inside the matrix.
template <typename T>
SDCGUARD_DEVICE Quad<T> load_four(uint64_t address, int64_t index, uint32_t count, DataType type) {
  if (count == 4 && is_vector_aligned(address, index, type)) return load_aligned4<T>(address, index, type);
  return load_strided4<T>(address, index, 1, count, type);
}

template <typename T>
SDCGUARD_DEVICE void store_four(uint64_t address, int64_t index, uint32_t count, DataType type, const Quad<T>& v) {
  if constexpr (std::is_same_v<T, float>) {
    if (count == 4 && is_vector_aligned(address, index, type)) {
      const uint32_t bytes = bytes_of(type);
      if (bytes == 4) {
        store_float4(address + static_cast<uint64_t>(index) * 4, 0, v);
        return;
      }
      if (bytes == 2) {
        const uint64_t low = half_of_float(v.x, type) | half_of_float(v.y, type) << 16;
        const uint64_t high = half_of_float(v.z, type) | half_of_float(v.w, type) << 16;
        store<uint64_t>(address + static_cast<uint64_t>(index) * 2, 0, low | high << 32);
      } else {
        store<uint32_t>(address + static_cast<uint64_t>(index), 0,
                        byte_of_float(v.x, type) | byte_of_float(v.y, type) << 8 | byte_of_float(v.z, type) << 16 |
                            byte_of_float(v.w, type) << 24);
      }
      return;
    }
  }
  if (count > 0) store_element(address, index, type, v.x);
  if (count > 1) store_element(address, index + 1, type, v.y);
  if (count > 2) store_element(address, index + 2, type, v.z);
  if (count > 3) store_element(address, index + 3, type, v.w);
}

// Component of a quad by number.
template <typename Four>
SDCGUARD_DEVICE decltype(Four::x) component(const Four& v, uint32_t i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Number of elements, at most four, from `first` to before `end`.
SDCGUARD_DEVICE uint32_t four_or_less(int64_t first, int64_t end) {
  return first >= end ? 0u : end - first >= 4 ? 4u : static_cast<uint32_t>(end - first);
}

// |v|, or `floor` where v is not 0 and smaller (ProbeParams::operand_floor_a and _b).
template <typename T>
SDCGUARD_DEVICE T at_least(T v, T floor) {
  const T magnitude = abs_of(v);
  return magnitude < floor && magnitude != T{0} ? floor : magnitude;
}

}  // namespace sdcguard

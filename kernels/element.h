// SPDX-License-Identifier: MIT
// Elements of the caller's matrices as the kernels read and write them: any handled type, one or four at a time, with
// vector accesses where the address allows, decided at run time.
#pragma once

#include "kernels/params.h"
#include "kernels/simt.h"

namespace sdcguard {

SDCGUARD_DEVICE uint32_t bytes_of(DataType type) {
  return type == DataType::kF32 ? 4u : 2u;
}

SDCGUARD_DEVICE float load_element(uint64_t address, int64_t index, DataType type) {
  if (type == DataType::kF32) return load<float>(address, index);
  const uint16_t raw = load<uint16_t>(address, index);
  return type == DataType::kBF16 ? bf16_to_float(raw) : f16_to_float(raw);
}

// Rounds to nearest even; FP16 overflows to infinity, as a cast does.
SDCGUARD_DEVICE void store_element(uint64_t address, int64_t index, DataType type, float v) {
  if (type == DataType::kF32) {
    store<float>(address, index, v);
  } else {
    store<uint16_t>(address, index, type == DataType::kBF16 ? float_to_bf16(v) : float_to_f16(v));
  }
}

// True where four elements at `index` are one aligned access.
SDCGUARD_DEVICE bool is_vector_aligned(uint64_t address, int64_t index, DataType type) {
  const uint64_t size = bytes_of(type);
  return (address + static_cast<uint64_t>(index) * size) % (4 * size) == 0;
}

SDCGUARD_DEVICE float half_of_word(uint32_t word, bool upper, DataType type) {
  const uint16_t raw = static_cast<uint16_t>(upper ? word >> 16 : word & 0xFFFFu);
  return type == DataType::kBF16 ? bf16_to_float(raw) : f16_to_float(raw);
}

// Elements index .. index + 3; is_vector_aligned() holds.
SDCGUARD_DEVICE Float4 load_aligned4(uint64_t address, int64_t index, DataType type) {
  if (type == DataType::kF32) return load_float4(address + static_cast<uint64_t>(index) * 4, 0);
  const uint64_t raw = load<uint64_t>(address + static_cast<uint64_t>(index) * 2, 0);
  const uint32_t low = static_cast<uint32_t>(raw);
  const uint32_t high = static_cast<uint32_t>(raw >> 32);
  return Float4{half_of_word(low, false, type), half_of_word(low, true, type), half_of_word(high, false, type),
                half_of_word(high, true, type)};
}

// Elements index + i stride, the first `count` of four; the others are 0.
SDCGUARD_DEVICE Float4 load_strided4(uint64_t address, int64_t index, int64_t stride, uint32_t count, DataType type) {
  Float4 v{0, 0, 0, 0};
  if (count > 0) v.x = load_element(address, index, type);
  if (count > 1) v.y = load_element(address, index + stride, type);
  if (count > 2) v.z = load_element(address, index + 2 * stride, type);
  if (count > 3) v.w = load_element(address, index + 3 * stride, type);
  return v;
}

// Four elements along the contiguous direction, `count` of them inside the matrix.
SDCGUARD_DEVICE Float4 load_four(uint64_t address, int64_t index, uint32_t count, DataType type) {
  if (count == 4 && is_vector_aligned(address, index, type)) return load_aligned4(address, index, type);
  return load_strided4(address, index, 1, count, type);
}

SDCGUARD_DEVICE void store_four(uint64_t address, int64_t index, uint32_t count, DataType type, const Float4& v) {
  if (count == 4 && is_vector_aligned(address, index, type)) {
    if (type == DataType::kF32) {
      store_float4(address + static_cast<uint64_t>(index) * 4, 0, v);
      return;
    }
    const bool bf16 = type == DataType::kBF16;
    const uint64_t x = bf16 ? float_to_bf16(v.x) : float_to_f16(v.x);
    const uint64_t y = bf16 ? float_to_bf16(v.y) : float_to_f16(v.y);
    const uint64_t z = bf16 ? float_to_bf16(v.z) : float_to_f16(v.z);
    const uint64_t w = bf16 ? float_to_bf16(v.w) : float_to_f16(v.w);
    store<uint64_t>(address + static_cast<uint64_t>(index) * 2, 0, x | y << 16 | z << 32 | w << 48);
    return;
  }
  if (count > 0) store_element(address, index, type, v.x);
  if (count > 1) store_element(address, index + 1, type, v.y);
  if (count > 2) store_element(address, index + 2, type, v.z);
  if (count > 3) store_element(address, index + 3, type, v.w);
}

// Component of a Float4 by number.
SDCGUARD_DEVICE float component(const Float4& v, uint32_t i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

SDCGUARD_DEVICE int64_t element_index(const MatrixView& view, int64_t batch, int64_t row, int64_t col) {
  return batch * view.batch_stride + row * view.row_stride + col * view.col_stride;
}

// Number of elements, at most four, from `first` to before `end`.
SDCGUARD_DEVICE uint32_t four_or_less(int64_t first, int64_t end) {
  return first >= end ? 0u : end - first >= 4 ? 4u : static_cast<uint32_t>(end - first);
}

}  // namespace sdcguard

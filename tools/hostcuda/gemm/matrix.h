// SPDX-License-Identifier: MIT
// Read-only view of an operand in host memory, and its values as floats.
#pragma once

#include <bit>
#include <cstdint>

#include "gemm.h"
#include "order.h"

namespace hostcuda::gemm {

// Element (r, c) is data[r row_stride + c col_stride], in elements of `type`. One of the strides is 1.
struct View {
  const void* data;
  Type type;
  int64_t row_stride;
  int64_t col_stride;

  float at(int64_t r, int64_t c) const {
    const int64_t i = r * row_stride + c * col_stride;
    switch (type) {
      case Type::kFp32:
        return static_cast<const float*>(data)[i];
      case Type::kFp16:
        return half_to_float(static_cast<const uint16_t*>(data)[i]);
      case Type::kBf16:
        return std::bit_cast<float>(static_cast<uint32_t>(static_cast<const uint16_t*>(data)[i]) << 16);
    }
    return 0.0f;
  }
  View transposed() const { return {data, type, col_stride, row_stride}; }
  View from(int64_t r, int64_t c) const {
    const int64_t bytes = (r * row_stride + c * col_stride) * (type == Type::kFp32 ? 4 : 2);
    return {static_cast<const char*>(data) + bytes, type, row_stride, col_stride};
  }
};

// Where a product goes: entry (i, j) is data[i row_stride + j col_stride].
struct OutView {
  float* data;
  int64_t row_stride;
  int64_t col_stride;
  float& at(int64_t i, int64_t j) const { return data[i * row_stride + j * col_stride]; }
  OutView transposed() const { return {data, col_stride, row_stride}; }
};

// Entry (i, l) of op(A) as a view: rows are the rows of op(A).
inline View view_of(const Operand& operand, int64_t batch_entry) {
  const int64_t element_bytes = operand.type == Type::kFp32 ? 4 : 2;
  const void* data = operand.pointers != nullptr
                         ? operand.pointers[batch_entry]
                         : static_cast<const char*>(operand.data) + batch_entry * operand.stride * element_bytes;
  if (operand.transposed) return {data, operand.type, operand.ld, 1};
  return {data, operand.type, 1, operand.ld};
}

}  // namespace hostcuda::gemm

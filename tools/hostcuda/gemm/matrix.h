// SPDX-License-Identifier: MIT
// Read-only view of an operand in host memory, and its values.
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

  // Exact for every type but FP64.
  float at(int64_t r, int64_t c) const {
    const int64_t i = r * row_stride + c * col_stride;
    switch (type) {
      case Type::kFp32:
        return static_cast<const float*>(data)[i];
      case Type::kFp16:
        return half_to_float(static_cast<const uint16_t*>(data)[i]);
      case Type::kBf16:
        return std::bit_cast<float>(static_cast<uint32_t>(static_cast<const uint16_t*>(data)[i]) << 16);
      case Type::kFp64:
        return static_cast<float>(static_cast<const double*>(data)[i]);
      case Type::kE4m3:
        return e4m3_to_float(static_cast<const uint8_t*>(data)[i]);
      case Type::kE5m2:
        return e5m2_to_float(static_cast<const uint8_t*>(data)[i]);
      case Type::kInt8:
        return static_cast<float>(static_cast<const int8_t*>(data)[i]);
      case Type::kInt32:
        return static_cast<float>(static_cast<const int32_t*>(data)[i]);
      case Type::kE2m1:
        return e2m1_to_float(static_cast<const uint8_t*>(data)[i]);
    }
    return 0.0f;
  }
  double at64(int64_t r, int64_t c) const {
    if (type == Type::kFp64) return static_cast<const double*>(data)[r * row_stride + c * col_stride];
    return static_cast<double>(at(r, c));
  }
  View transposed() const { return {data, type, col_stride, row_stride}; }
  View from(int64_t r, int64_t c) const {
    const int64_t bytes = (r * row_stride + c * col_stride) * bytes_of(type);
    return {static_cast<const char*>(data) + bytes, type, row_stride, col_stride};
  }
};

// Where a product goes: entry (i, j) is data[i row_stride + j col_stride].
template <typename Sum>
struct SumView {
  Sum* data;
  int64_t row_stride;
  int64_t col_stride;
  Sum& at(int64_t i, int64_t j) const { return data[i * row_stride + j * col_stride]; }
  SumView transposed() const { return {data, col_stride, row_stride}; }
};
using OutView = SumView<float>;

// Batch entry of product.out, whose sum type is Sum.
template <typename Sum>
SumView<Sum> out_of(const Product& product, int64_t batch_entry) {
  return {static_cast<Sum*>(product.out) + batch_entry * product.out_stride, 1, product.out_ld};
}

// Product of the factors of row i and column j at product l of the sum: exact.
inline double scale_at(const Product& product, int64_t i, int64_t j, int64_t l) {
  const BlockScales& scales = product.scales;
  if (scales.length == 0) return 1.0;
  const int64_t block = l / scales.length;
  return static_cast<double>(scales.a[i + block * product.m]) * static_cast<double>(scales.b[j + block * product.n]);
}

// Entry (i, l) of op(A) as a view: rows are the rows of op(A).
inline View view_of(const Operand& operand, int64_t batch_entry) {
  const void* data = operand.pointers != nullptr ? operand.pointers[batch_entry]
                                                 : static_cast<const char*>(operand.data) +
                                                       batch_entry * operand.stride * bytes_of(operand.type);
  if (operand.transposed) return {data, operand.type, operand.ld, 1};
  return {data, operand.type, 1, operand.ld};
}

}  // namespace hostcuda::gemm

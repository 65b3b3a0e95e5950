// SPDX-License-Identifier: MIT
// Where the elements of a matrix lie in the memory orders of cuBLASLt: the words of cublasLt.h, by counting.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>

namespace lt_orders {

// COL4_4R2_8C: places of the 8 x 32 elements of a tile, counted through inner tiles of 4 columns within the even rows,
// then those within the odd rows.
inline const std::array<std::array<int64_t, 32>, 8>& places_8x32() {
  static const auto places = [] {
    std::array<std::array<int64_t, 32>, 8> made{};
    int64_t next = 0;
    for (size_t odd = 0; odd < 2; ++odd) {
      for (size_t col = 0; col < 32; col += 4) {
        for (size_t row = odd; row < 8; row += 2) {
          for (size_t inner = 0; inner < 4; ++inner) made[row][col + inner] = next++;
        }
      }
    }
    return made;
  }();
  return places;
}

inline int64_t place(int32_t order, int64_t ld, int64_t i, int64_t j) {
  if (order == CUBLASLT_ORDER_COL) return i + j * ld;
  if (order == CUBLASLT_ORDER_ROW) return j + i * ld;
  const int64_t group = j / 32 * ld;
  if (order == CUBLASLT_ORDER_COL32) return group + i * 32 + j % 32;
  if (order == CUBLASLT_ORDER_COL4_4R2_8C) {
    return group + i / 8 * 256 + places_8x32()[static_cast<size_t>(i % 8)][static_cast<size_t>(j % 32)];
  }
  const int64_t row = i % 32;
  return group + (i / 32) * 1024 + (((row % 8) / 2 * 4 + row / 8) * 2 + row % 2) * 32 + j % 32;
}

// The least leading dimension.
inline int64_t least_ld(int32_t order, int64_t rows, int64_t cols) {
  switch (order) {
    case CUBLASLT_ORDER_COL:
      return rows;
    case CUBLASLT_ORDER_ROW:
      return cols;
    case CUBLASLT_ORDER_COL32:
      return rows * 32;
    case CUBLASLT_ORDER_COL4_4R2_8C:
      return (rows + 7) / 8 * 8 * 32;
    default:
      return (rows + 31) / 32 * 32 * 32;
  }
}

// Elements of a matrix, whole tiles for the tiled orders.
inline int64_t elements(int32_t order, int64_t rows, int64_t cols, int64_t ld) {
  return (order == CUBLASLT_ORDER_COL ? cols : order == CUBLASLT_ORDER_ROW ? rows : (cols + 31) / 32) * ld;
}

}  // namespace lt_orders

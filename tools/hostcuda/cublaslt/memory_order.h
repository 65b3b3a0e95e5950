// SPDX-License-Identifier: MIT
// Memory orders of cuBLASLt: where the elements of one matrix lie, by the words of cublasLtOrder_t in cublasLt.h.
#pragma once

#pragma GCC visibility push(default)
#include <cublasLt.h>
#pragma GCC visibility pop

#include <cstdint>

namespace hostcuda {

constexpr int64_t rounded_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

constexpr int64_t kTileColumns = 32;  // of the tiled orders

constexpr bool is_tiled(int32_t order) {
  return order == CUBLASLT_ORDER_COL32 || order == CUBLASLT_ORDER_COL4_4R2_8C || order == CUBLASLT_ORDER_COL32_2R_4R4;
}

// One rows x cols matrix in memory; everything in elements.
struct Placement {
  int32_t order = CUBLASLT_ORDER_COL;
  int64_t rows = 0, cols = 0, ld = 0;

  // COL4_4R2_8C: the header says that a tile of 8 rows has inner tiles of 4 columns by 4 even or 4 odd rows, not how
  // they follow each other. Here the even rows come first, then the inner tiles by column, each row by row: so pack
  // FasterTransformer and TVM, whose products real devices deliver.
  int64_t offset(int64_t i, int64_t j) const {
    const int64_t group = j / kTileColumns * ld;
    const int64_t col = j % kTileColumns;
    switch (order) {
      case CUBLASLT_ORDER_ROW:
        return i * ld + j;
      case CUBLASLT_ORDER_COL32:
        return group + i * kTileColumns + col;
      case CUBLASLT_ORDER_COL4_4R2_8C:
        return group + i / 8 * 8 * kTileColumns + ((i % 2 * 8 + col / 4) * 4 + i % 8 / 2) * 4 + col % 4;
      case CUBLASLT_ORDER_COL32_2R_4R4: {
        const int64_t row = i % 32;
        return group + i / 32 * 32 * kTileColumns + ((row % 8 / 2 * 4 + row / 8) * 2 + row % 2) * kTileColumns + col;
      }
      default:
        return i + j * ld;
    }
  }

  // From the first element to the last, whole tiles for the tiled orders.
  int64_t elements() const {
    switch (order) {
      case CUBLASLT_ORDER_ROW:
        return (rows - 1) * ld + cols;
      case CUBLASLT_ORDER_COL:
        return (cols - 1) * ld + rows;
      default:
        return (cols - 1) / kTileColumns * ld + tile_rows() * kTileColumns;
    }
  }

  int64_t least_ld() const {
    switch (order) {
      case CUBLASLT_ORDER_ROW:
        return cols;
      case CUBLASLT_ORDER_COL:
        return rows;
      default:
        return tile_rows() * kTileColumns;
    }
  }

 private:
  int64_t tile_rows() const {
    switch (order) {
      case CUBLASLT_ORDER_COL4_4R2_8C:
        return rounded_up(rows, 8);
      case CUBLASLT_ORDER_COL32_2R_4R4:
        return rounded_up(rows, 32);
      default:
        return rows;
    }
  }
};

}  // namespace hostcuda

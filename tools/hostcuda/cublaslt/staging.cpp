// SPDX-License-Identifier: MIT
// Staging: takes aliases of matrices in tiled orders, gives plain columns, and writes results back; runs on a stream's
// worker.
#include "tools/hostcuda/cublaslt/staging.h"

#include <algorithm>
#include <cstring>

#include "tools/hostcuda/cublaslt/memory_order.h"

namespace hostcuda {
namespace {

Placement placement_of(const Matrix& matrix, int64_t rows, int64_t cols) {
  const int32_t plain = matrix.row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
  return {matrix.tiled ? matrix.tiled : plain, rows, cols, matrix.ld};
}

// copy(offset of an element, its place among the columns), for every element.
template <typename Copy>
void for_each_element(const Placement& place, const Copy& copy) {
  for (int64_t j = 0; j < place.cols; ++j) {
    for (int64_t i = 0; i < place.rows; ++i) copy(place.offset(i, j), i + j * place.rows);
  }
}

}  // namespace

bool is_staged(const Matrix& matrix) {
  return matrix.tiled != 0;
}

int64_t stored_bytes(const Matrix& matrix, int64_t rows, int64_t cols) {
  int64_t most = 0;  // no order takes more
  if (__builtin_mul_overflow(std::max(rows, cols), matrix.ld, &most) ||
      __builtin_mul_overflow(most, 2 * gemm::bytes_of(matrix.type), &most)) {
    return -1;
  }
  return placement_of(matrix, rows, cols).elements() * gemm::bytes_of(matrix.type);
}

void Staged::gather(Matrix* matrix, std::vector<void*>* aliases, int64_t rows, int64_t cols) {
  stored_ = *matrix;
  rows_ = rows;
  cols_ = cols;
  const Placement place = placement_of(stored_, rows, cols);
  const auto bytes = static_cast<size_t>(gemm::bytes_of(stored_.type));
  for (void*& alias : *aliases) {
    if (entries_.empty() || entries_.back().alias != alias) {
      entries_.push_back({alias, std::vector<char>(static_cast<size_t>(rows * cols) * bytes)});
      char* columns = entries_.back().columns.data();
      const char* from = static_cast<const char*>(alias);
      for_each_element(place, [&](int64_t offset, int64_t to) {
        std::memcpy(columns + static_cast<size_t>(to) * bytes, from + static_cast<size_t>(offset) * bytes, bytes);
      });
    }
    alias = entries_.back().columns.data();
  }
  matrix->ld = rows;
  matrix->row_major = false;
  matrix->tiled = 0;
}

void Staged::scatter() const {
  const Placement place = placement_of(stored_, rows_, cols_);
  const auto bytes = static_cast<size_t>(gemm::bytes_of(stored_.type));
  for (const Entry& entry : entries_) {
    char* to = static_cast<char*>(entry.alias);
    for_each_element(place, [&](int64_t offset, int64_t from) {
      std::memcpy(to + static_cast<size_t>(offset) * bytes, entry.columns.data() + static_cast<size_t>(from) * bytes,
                  bytes);
    });
  }
}

}  // namespace hostcuda

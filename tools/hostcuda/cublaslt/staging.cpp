// SPDX-License-Identifier: MIT
// Staging: takes aliases of matrices in tiled orders or of FP4, gives plain columns, and writes results back; runs on a
// stream's worker.
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

// FP4: element 2 i is the low half of byte i, element 2 i + 1 the high one.
void copy_out(const Matrix& stored, const char* from, int64_t offset, char* columns, int64_t to) {
  const int64_t bytes = gemm::bytes_of(stored.type);
  if (stored.type == gemm::Type::kE2m1) {
    columns[to] = static_cast<char>(static_cast<unsigned char>(from[offset / 2]) >> (offset % 2 * 4) & 0xF);
  } else {
    std::memcpy(columns + to * bytes, from + offset * bytes, static_cast<size_t>(bytes));
  }
}
void copy_in(const Matrix& stored, const char* columns, int64_t from, char* to, int64_t offset) {
  const int64_t bytes = gemm::bytes_of(stored.type);
  if (stored.type == gemm::Type::kE2m1) {
    const int shift = static_cast<int>(offset % 2 * 4);
    to[offset / 2] = static_cast<char>((to[offset / 2] & ~(0xF << shift)) | columns[from] << shift);
  } else {
    std::memcpy(to + offset * bytes, columns + from * bytes, static_cast<size_t>(bytes));
  }
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
  return matrix.tiled != 0 || matrix.type == gemm::Type::kE2m1;
}

int64_t stored_bytes(const Matrix& matrix, int64_t rows, int64_t cols) {
  int64_t most = 0;  // no order takes more
  if (__builtin_mul_overflow(std::max(rows, cols), matrix.ld, &most) ||
      __builtin_mul_overflow(most, 2 * gemm::bytes_of(matrix.type), &most)) {
    return -1;
  }
  const int64_t elements = placement_of(matrix, rows, cols).elements();
  return matrix.type == gemm::Type::kE2m1 ? (elements + 1) / 2 : elements * gemm::bytes_of(matrix.type);
}

void Staged::gather(Matrix* matrix, std::vector<void*>* aliases, int64_t rows, int64_t cols) {
  stored_ = *matrix;
  rows_ = rows;
  cols_ = cols;
  const Placement place = placement_of(stored_, rows, cols);
  for (void*& alias : *aliases) {
    if (entries_.empty() || entries_.back().alias != alias) {
      entries_.push_back({alias, std::vector<char>(static_cast<size_t>(rows * cols * gemm::bytes_of(stored_.type)))});
      char* columns = entries_.back().columns.data();
      for_each_element(place, [&](int64_t offset, int64_t to) {
        copy_out(stored_, static_cast<const char*>(alias), offset, columns, to);
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
  for (const Entry& entry : entries_) {
    for_each_element(place, [&](int64_t offset, int64_t from) {
      copy_in(stored_, entry.columns.data(), from, static_cast<char*>(entry.alias), offset);
    });
  }
}

}  // namespace hostcuda

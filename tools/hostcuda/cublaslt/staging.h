// SPDX-License-Identifier: MIT
// Matrices in memory orders that the product engine does not read, and FP4 matrices, which pack two values a byte, as
// plain columns in memory of this process.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/hostcuda/cublaslt/product.h"

namespace hostcuda {

// Whether the matrix must be staged.
bool is_staged(const Matrix& matrix);

// Bytes from the first to the last element of one rows x cols matrix as the device stores it; -1 where that does not
// fit 63 bits.
int64_t stored_bytes(const Matrix& matrix, int64_t rows, int64_t cols);

// The entries of a batch as columns without gaps. Entries that share an alias share a copy.
class Staged {
 public:
  // Reads the entries; *matrix and *aliases become those of the columns.
  void gather(Matrix* matrix, std::vector<void*>* aliases, int64_t rows, int64_t cols);
  // Writes them back. Nothing where nothing was gathered.
  void scatter() const;

 private:
  struct Entry {
    void* alias;
    std::vector<char> columns;
  };
  Matrix stored_{};
  int64_t rows_ = 0, cols_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace hostcuda

// SPDX-License-Identifier: MIT
// Matrices of a call in memory: where each batch entry lies, the host's image with a pattern in every gap (NaN for
// floating types), and the device's copy. What the call leaves is held against the image.
#pragma once

#include <cstdint>
#include <vector>

#include "call.h"

namespace calls {

struct Matrix {
  int64_t rows = 0, cols = 0, ld = 1;
  bool row_major = false;
  int64_t start = 0;  // element of (0, 0) in the buffer
  int64_t at(int64_t i, int64_t j) const { return start + (row_major ? i * ld + j : i + j * ld); }
};

class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Num num = Num::kF32;
  std::vector<Matrix> entries;  // one a problem; those of spread kZero lie upon each other
  int64_t stride = 0;           // elements between entries of a strided batch

  // Lays `shapes` (rows, cols of each entry) out. unit: elements that ld and strides are multiples of.
  struct Size {
    int64_t rows, cols;
  };
  void lay_out(const std::vector<Size>& shapes, bool row_major, int64_t pad, int64_t offset, Spread spread,
               bool scattered, int64_t unit);
  void fill(Data data, Random& random);  // every entry, gaps left
  void set(int64_t element, double x) { encode(num, x, image_.data() + element * bytes()); }
  double get(int64_t element) const { return decode(num, image_.data() + element * bytes()); }

  void upload();
  void download();  // into the image
  void* device(int64_t element) const { return static_cast<char*>(device_) + element * bytes(); }
  void* device() const { return device(origin_); }
  int64_t origin() const { return origin_; }
  const std::vector<char>& image() const { return image_; }
  void set_image(const std::vector<char>& image) { image_ = image; }
  std::vector<bool> covered() const;  // elements that belong to an entry
  int64_t bytes() const { return format_of(num).bytes; }

 private:
  int64_t origin_ = 0;  // element that the first entry starts at
  std::vector<char> image_;
  void* device_ = nullptr;
};

}  // namespace calls

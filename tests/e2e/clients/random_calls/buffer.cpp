// SPDX-License-Identifier: MIT
#include "buffer.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace calls {
namespace {

constexpr int64_t kBoundary = 256;  // bytes: what cudaMalloc aligns to, and the margin at each end

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

int64_t multiple(int64_t x, int64_t of) {
  return (x + of - 1) / of * of;
}

double draw_integer(Data data, Num num, double constant, Random& random) {
  if (num == Num::kI32) return rounded(num, (random.unit() - 0.5) * 4294967296.0);
  switch (data) {
    case Data::kIntegers:
      return static_cast<double>(random.below(17) - 8);
    case Data::kSparse:
      return random.chance(0.85) ? 0.0 : static_cast<double>(random.below(256) - 128);
    case Data::kConstant:
      return constant < 0 ? -128.0 : 127.0;
    case Data::kZero:
      return 0;
    case Data::kOnes:
      return 1;
    default:
      return static_cast<double>(random.below(256) - 128);
  }
}

double draw_float(Data data, Num num, double constant, Random& random) {
  const Format& f = format_of(num);
  const double unit = is_fp8(num) ? 4.0 : 1.0;
  switch (data) {
    case Data::kPositive:
      return rounded(num, unit * random.unit());
    case Data::kIntegers:
      return static_cast<double>(random.below(17) - 8);
    case Data::kPowers: {
      const int span = num == Num::kF64    ? 60
                       : num == Num::kF16  ? 5
                       : num == Num::kE4M3 ? 6
                       : num == Num::kE5M2 ? 10
                                           : 20;
      const double x = std::ldexp(1.0, static_cast<int>(random.below(2 * span + 1)) - span);
      return random.chance(0.5) ? x : -x;
    }
    case Data::kTiny:
      return rounded(
          num, std::ldexp(random.unit() - 0.5, f.least_normal + 4 - static_cast<int>(random.below(f.precision + 6))));
    case Data::kSparse:
      return random.chance(0.85) ? 0.0 : rounded(num, unit * random.gauss());
    case Data::kConstant:
      return rounded(num, unit * constant);
    case Data::kZero:
      return 0;
    case Data::kOnes:
      return 1;
    default:
      return rounded(num, unit * random.gauss());
  }
}

double rung(Data data, int64_t row) {
  if (row == 0) return 16;
  return data == Data::kLadderOnes ? 1 : row % 32 == 0 ? 0x1p-6 : 0;
}

double huge_of(Num num) {
  switch (num) {
    case Num::kF64:
      return 0x1p900;
    case Num::kF32:
    case Num::kBF16:
      return 0x1p100;
    case Num::kF16:
      return 20000;
    default:
      return format_of(num).largest;
  }
}

}  // namespace

Buffer::~Buffer() {
  cudaFree(device_);
}

void Buffer::lay_out(const std::vector<Size>& shapes, bool row_major, int64_t pad, int64_t offset, Spread spread,
                     bool scattered, int64_t unit) {
  origin_ = kBoundary / bytes() + offset;
  const auto count = static_cast<int64_t>(shapes.size());
  const bool alike = std::all_of(shapes.begin(), shapes.end(), [&shapes](const Size& one) {
    return one.rows == shapes[0].rows && one.cols == shapes[0].cols;
  });
  int64_t end = origin_;
  stride = 0;
  for (int64_t slot = 0; slot < count; ++slot) {
    // Entries that pointers lead to lie in falling order.
    const int64_t e = scattered ? count - 1 - slot : slot;
    const Size& size = shapes[static_cast<size_t>(e)];
    Matrix matrix{size.rows, size.cols, 1, row_major, origin_};
    const int64_t line = multiple(std::max<int64_t>(1, row_major ? size.cols : size.rows), unit);
    const int64_t lines = std::max<int64_t>(1, row_major ? size.rows : size.cols);
    matrix.ld = line + pad;
    if (alike && spread == Spread::kInterleaved) {
      matrix.ld = line * count + pad;
      matrix.start = origin_ + slot * line;
      stride = line;
    } else if (!alike || spread == Spread::kApart) {
      matrix.start = end;
      stride = matrix.ld * lines + unit;
    }
    if (entries.size() < shapes.size()) entries.resize(shapes.size());
    entries[static_cast<size_t>(e)] = matrix;
    // Up to the last element alone: what follows it need not be memory.
    const int64_t last = matrix.start + (lines - 1) * matrix.ld + line;
    end = std::max(end, alike && spread == Spread::kApart ? matrix.start + stride : last + unit);
    end = origin_ + multiple(end - origin_, unit);
  }
  image_.assign(static_cast<size_t>(end * bytes() + kBoundary), static_cast<char>(is_integer(num) ? 0xa5 : 0xff));
}

void Buffer::fill(Data data, Random& random) {
  double constant = random.gauss();
  if (constant == 0) constant = 1;
  for (size_t e = 0; e < entries.size(); ++e) {
    const Matrix& matrix = entries[e];
    if (e > 0 && matrix.start == entries[0].start) break;  // all the same
    for (int64_t j = 0; j < matrix.cols; ++j) {
      for (int64_t i = 0; i < matrix.rows; ++i) {
        set(matrix.at(i, j), data == Data::kLadder || data == Data::kLadderOnes ? rung(data, i)
                             : is_integer(num) ? draw_integer(data, num, constant, random)
                                               : draw_float(data, num, constant, random));
      }
    }
    const bool has_odd_one = data == Data::kHuge || data == Data::kNan || data == Data::kInf;
    if (!has_odd_one || is_integer(num) || matrix.rows == 0 || matrix.cols == 0) continue;
    const double odd = data == Data::kHuge  ? huge_of(num)
                       : data == Data::kNan ? std::numeric_limits<double>::quiet_NaN()
                                            : std::numeric_limits<double>::infinity();
    set(matrix.at(random.below(matrix.rows), random.below(matrix.cols)), odd);
  }
}

void Buffer::upload() {
  if (device_ == nullptr) check(cudaMalloc(&device_, image_.size()), "cudaMalloc");
  check(cudaMemcpy(device_, image_.data(), image_.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
}

void Buffer::download() {
  check(cudaMemcpy(image_.data(), device_, image_.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
}

std::vector<bool> Buffer::covered() const {
  std::vector<bool> covered(image_.size() / static_cast<size_t>(bytes()), false);
  for (const Matrix& matrix : entries) {
    for (int64_t j = 0; j < matrix.cols; ++j) {
      for (int64_t i = 0; i < matrix.rows; ++i) covered[static_cast<size_t>(matrix.at(i, j))] = true;
    }
  }
  return covered;
}

}  // namespace calls

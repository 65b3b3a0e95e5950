// SPDX-License-Identifier: MIT
// cublasLtMatmul by the documentation, in long double, with an interval for every value that the call writes: D, the
// auxiliary matrix, the bias gradient, amax. Independent of hostcuda's arithmetic and number formats. Bounds are those
// of the host device's default order (h100).
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace lt_reference {

using Real = long double;

// ---- number formats, by their fields

struct Fields {
  int bytes, exponent_bits, fraction_bits;  // exponent_bits 0: a signed integer
  bool has_infinity;
};

inline Fields fields_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_64F:
      return {8, 11, 52, true};
    case CUDA_R_32F:
      return {4, 8, 23, true};
    case CUDA_R_16F:
      return {2, 5, 10, true};
    case CUDA_R_16BF:
      return {2, 8, 7, true};
    case CUDA_R_8F_E4M3:
      return {1, 4, 3, false};
    case CUDA_R_8F_E5M2:
      return {1, 5, 2, true};
    case CUDA_R_8I:
      return {1, 0, 7, false};
    default:
      return {4, 0, 31, false};  // CUDA_R_32I
  }
}

inline bool is_fp8(cudaDataType type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

inline Real largest_of(cudaDataType type) {
  const Fields f = fields_of(type);
  if (f.exponent_bits == 0) return std::ldexp(Real{1}, f.fraction_bits) - 1;
  if (type == CUDA_R_8F_E4M3) return 448;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  return std::ldexp(2 - std::ldexp(Real{1}, -f.fraction_bits), bias);
}

// Nearest value of the type, ties to even. Beyond the largest: FP8 and integers saturate, the others overflow.
inline Real rounded(cudaDataType type, Real x) {
  if (std::isnan(x)) return fields_of(type).exponent_bits == 0 ? Real{0} : x;
  const Fields f = fields_of(type);
  const Real largest = largest_of(type);
  if (f.exponent_bits == 0) return std::clamp(std::nearbyint(x), -largest - 1, largest);
  if (x == 0) return x;
  if (std::isinf(x)) return is_fp8(type) ? std::copysign(largest, x) : x;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int place = std::max(exponent - 1, 1 - bias) - f.fraction_bits;
  const Real y = std::ldexp(std::nearbyint(std::ldexp(x, -place)), place);
  if (std::fabs(y) <= largest) return y;
  return std::copysign(is_fp8(type) ? largest : std::numeric_limits<Real>::infinity(), x);
}

// Bits of a value that the type holds.
inline uint64_t encode(cudaDataType type, Real x) {
  const Fields f = fields_of(type);
  if (f.exponent_bits == 0) {
    const auto integer = static_cast<uint64_t>(static_cast<int64_t>(x));
    return f.bytes == 1 ? integer & 0xFF : integer & 0xFFFFFFFF;
  }
  const uint64_t sign = static_cast<uint64_t>(std::signbit(x)) << (f.exponent_bits + f.fraction_bits);
  const uint64_t ones = (uint64_t{1} << f.exponent_bits) - 1;
  if (std::isnan(x)) return sign | ones << f.fraction_bits | ((uint64_t{1} << f.fraction_bits) - 1);
  if (std::isinf(x)) return sign | ones << f.fraction_bits;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const Real magnitude = std::fabs(x);
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int stored = std::max(exponent - 1, 1 - bias);
  const auto significand = static_cast<uint64_t>(std::ldexp(magnitude, f.fraction_bits - stored));
  return sign | ((static_cast<uint64_t>(stored + bias - 1) << f.fraction_bits) + significand);
}

inline Real decode(cudaDataType type, uint64_t bits) {
  const Fields f = fields_of(type);
  if (f.exponent_bits == 0) {
    return f.bytes == 1 ? static_cast<Real>(static_cast<int8_t>(bits)) : static_cast<Real>(static_cast<int32_t>(bits));
  }
  const bool negative = (bits >> (f.exponent_bits + f.fraction_bits) & 1) != 0;
  const auto field = static_cast<int>(bits >> f.fraction_bits & ((uint64_t{1} << f.exponent_bits) - 1));
  const uint64_t fraction = bits & ((uint64_t{1} << f.fraction_bits) - 1);
  const int ones = (1 << f.exponent_bits) - 1;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  if (f.has_infinity && field == ones) {
    if (fraction != 0) return std::numeric_limits<Real>::quiet_NaN();
    return negative ? -std::numeric_limits<Real>::infinity() : std::numeric_limits<Real>::infinity();
  }
  if (!f.has_infinity && field == ones && fraction == 7) return std::numeric_limits<Real>::quiet_NaN();
  const Real significand = static_cast<Real>(fraction) + (field == 0 ? 0 : std::ldexp(Real{1}, f.fraction_bits));
  const Real magnitude = std::ldexp(significand, std::max(field, 1) - bias - f.fraction_bits);
  return negative ? -magnitude : magnitude;
}

// ---- device memory with values of a type

class Buffer {
 public:
  Buffer(cudaDataType type, int64_t count) : type_(type), bytes_(static_cast<size_t>(count * fields_of(type).bytes)) {
    EXPECT_EQ(cudaMalloc(&device_, std::max<size_t>(bytes_.size(), 1)), cudaSuccess);
    std::memset(bytes_.data(), 0xFF, bytes_.size());  // NaN in every floating type: what must not be read
  }
  ~Buffer() { cudaFree(device_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  cudaDataType type() const { return type_; }
  void* device() const { return device_; }
  void set(int64_t i, Real value) {
    const uint64_t bits = encode(type_, value);
    std::memcpy(bytes_.data() + i * fields_of(type_).bytes, &bits, static_cast<size_t>(fields_of(type_).bytes));
  }
  Real get(int64_t i) const { return decode(type_, bits(i)); }
  uint64_t bits(int64_t i) const {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes_.data() + i * fields_of(type_).bytes, static_cast<size_t>(fields_of(type_).bytes));
    return bits;
  }
  int64_t count() const { return static_cast<int64_t>(bytes_.size()) / fields_of(type_).bytes; }
  void upload() { EXPECT_EQ(cudaMemcpy(device_, bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice), cudaSuccess); }
  void download() { EXPECT_EQ(cudaMemcpy(bytes_.data(), device_, bytes_.size(), cudaMemcpyDeviceToHost), cudaSuccess); }
  std::vector<unsigned char> bytes() const { return bytes_; }

 private:
  cudaDataType type_;
  std::vector<unsigned char> bytes_;
  void* device_ = nullptr;
};

// A stored matrix or a batch of them: entry (i, j) of batch entry e at e stride + i + j ld (row-major: j + i ld).
struct Shape {
  int64_t rows = 0, cols = 0, ld = 0;
  bool row_major = false;
  int64_t batch = 1, stride = 0;

  int64_t at(int64_t e, int64_t i, int64_t j) const { return e * stride + (row_major ? j + i * ld : i + j * ld); }
  int64_t elements() const { return at(batch - 1, rows - 1, cols - 1) + 1; }
};

struct Types {
  const char* name;
  cublasComputeType_t compute;
  cudaDataType scale, a, b, c, d, bias;
  bool fast = false;
};

// Sums of one entry, and how far those of the device may lie from them.
struct Sum {
  Real value = 0, magnitude = 0;
};

// h100, with u = 2^-24 and S = sum |a||b|. Rounding steps of tensor cores: product_reference.h. FP8: each step of 32
// cuts 33 terms below 2^-13 of the largest and the result once more; parts of 128 are added in FP32. FP64: k FMAs.
inline Real sum_error(const Types& types, int64_t k, Real S) {
  const auto n = static_cast<Real>(k);
  if (types.a == CUDA_R_8I) return 0;
  if (types.a == CUDA_R_64F) return 1.01L * n * 0x1p-53L * S;
  if (is_fp8(types.a)) {
    const Real steps = std::ceil((types.fast ? n : std::min<Real>(n, 128)) / 32);
    const Real parts = types.fast ? 0 : std::ceil(n / 128);
    return 1.01L * (steps * 34 * 0x1p-13L + parts * 0x1p-24L) * S;
  }
  Real error = (1.5L * n + 8) * 0x1p-23L * S;
  if (types.compute == CUBLAS_COMPUTE_32F_FAST_TF32) error += 0x1p-9L * S;
  if (types.compute == CUBLAS_COMPUTE_16F || types.compute == CUBLAS_COMPUTE_16F_PEDANTIC) {
    error += n * 0x1p-11L / (1 - n * 0x1p-11L) * S + n * 0x1p-25L;
  }
  return error;
}

// A value of the device lies in [low, high].
struct Interval {
  Real low, high;
  bool contains(Real x) const { return x >= low && x <= high; }
};

// What a value within `error` of x may become in the type: rounding is monotone.
inline Interval stored(cudaDataType type, Real x, Real error) {
  return {rounded(type, x - error), rounded(type, x + error)};
}

inline Real gelu(Real y) {
  return 0.5L * y * (1 + std::tanh(0.7978845608028654L * (y + 0.044715L * y * y * y)));
}
inline Real gelu_slope(Real y) {
  const Real t = std::tanh(0.7978845608028654L * (y + 0.044715L * y * y * y));
  return 0.5L * (1 + t + y * (1 - t * t) * 0.7978845608028654L * (1 + 3 * 0.044715L * y * y));
}

}  // namespace lt_reference

// SPDX-License-Identifier: MIT
// Plain FP64 reference of D = activation(alpha op(A) op(B) + beta C + bias) with an error bound for each entry, and the
// device buffers of the tests that are held against it. Independent of hostcuda's own arithmetic and number formats.
#pragma once

#include <cublas_api.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace reference {

// ---- number formats: significand bits and exponents, nothing taken from the code under test

struct Format {
  cudaDataType type;
  int bytes;
  int precision;     // significand bits with the hidden one
  int least_normal;  // exponent of the smallest normal number
  double largest;

  double unit() const { return std::ldexp(1.0, -precision); }                     // half an ulp of 1
  double half_step() const { return std::ldexp(1.0, least_normal - precision); }  // half the subnormal spacing
};

inline const Format kBf16{CUDA_R_16BF, 2, 8, -126, std::ldexp(255.0, 120)};
inline const Format kFp16{CUDA_R_16F, 2, 11, -14, 65504.0};
inline const Format kFp32{CUDA_R_32F, 4, 24, -126, std::numeric_limits<float>::max()};

// Nearest number of the format, ties to even, infinity beyond.
inline double rounded(const Format& format, double x) {
  if (x == 0.0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  const int place = std::max(exponent - 1, format.least_normal) - format.precision + 1;
  const double y = std::ldexp(std::nearbyint(std::ldexp(x, -place)), place);
  return std::fabs(y) > format.largest ? std::copysign(std::numeric_limits<double>::infinity(), x) : y;
}

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Bit pattern of a number that the format holds exactly (NaN: the quiet one).
inline uint32_t encode(const Format& format, double x) {
  const auto narrow = static_cast<float>(x);
  if (format.type == CUDA_R_32F) return bits_of(narrow);
  if (format.type == CUDA_R_16BF) return bits_of(narrow) >> 16;
  const uint32_t sign = std::signbit(x) ? 0x8000u : 0u;
  if (std::isnan(x)) return sign | 0x7e00u;
  if (std::isinf(x)) return sign | 0x7c00u;
  const double magnitude = std::fabs(x);
  if (magnitude < 0x1p-14) return sign | static_cast<uint32_t>(magnitude * 0x1p24);
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  return sign | static_cast<uint32_t>(exponent + 14) << 10 | (static_cast<uint32_t>(fraction * 0x1p11) & 0x3ffu);
}

inline double decode(const Format& format, uint32_t bits) {
  if (format.type == CUDA_R_32F) return float_of(bits);
  if (format.type == CUDA_R_16BF) return float_of(bits << 16);
  const double sign = bits & 0x8000u ? -1.0 : 1.0;
  const int exponent = static_cast<int>(bits >> 10 & 0x1fu);
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 31) {
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * fraction * 0x1p-24;
  return sign * std::ldexp(1.0 + fraction * 0x1p-10, exponent - 15);
}

// ---- matrices

// What one stored matrix (or a strided batch of them) looks like. Entry (i, j) of batch entry e lies at
// e stride + i + j ld, or at e stride + j + i ld in row-major order.
struct Shape {
  int64_t rows, cols, ld;
  bool row_major = false;
  int64_t batch = 1;
  int64_t stride = 0;

  int64_t at(int64_t e, int64_t i, int64_t j) const { return e * stride + (row_major ? j + i * ld : i + j * ld); }
  int64_t elems() const { return at(batch - 1, rows - 1, cols - 1) + 1; }
};

inline Shape packed(int64_t rows, int64_t cols, int64_t padding = 0) {
  return {rows, cols, rows + padding};
}

// Host copy of the whole buffer, gaps included, as numbers that the format holds exactly.
struct Numbers {
  Format format;
  std::vector<double> values;
};

inline Numbers random_numbers(const Format& format, int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  Numbers numbers{format, std::vector<double>(static_cast<size_t>(count))};
  for (double& value : numbers.values) value = rounded(format, normal(engine));
  return numbers;
}

inline Numbers constant_numbers(const Format& format, int64_t count, double value) {
  return {format, std::vector<double>(static_cast<size_t>(count), rounded(format, value))};
}

inline std::vector<char> packed_bytes(const Numbers& numbers) {
  std::vector<char> bytes(numbers.values.size() * static_cast<size_t>(numbers.format.bytes));
  for (size_t i = 0; i < numbers.values.size(); ++i) {
    const uint32_t bits = encode(numbers.format, numbers.values[i]);
    std::memcpy(bytes.data() + i * static_cast<size_t>(numbers.format.bytes), &bits,
                static_cast<size_t>(numbers.format.bytes));
  }
  return bytes;
}

// ---- device memory

class DeviceBytes {
 public:
  explicit DeviceBytes(size_t bytes) : bytes_(bytes) { EXPECT_EQ(cudaMalloc(&data_, bytes ? bytes : 1), cudaSuccess); }
  explicit DeviceBytes(const Numbers& numbers)
      : DeviceBytes(numbers.values.size() * static_cast<size_t>(numbers.format.bytes)) {
    const std::vector<char> host = packed_bytes(numbers);
    EXPECT_EQ(cudaMemcpy(data_, host.data(), host.size(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  void* get() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

  std::vector<char> download() const {
    std::vector<char> host(bytes_);
    EXPECT_EQ(cudaMemcpy(host.data(), data_, bytes_, cudaMemcpyDeviceToHost), cudaSuccess);
    return host;
  }

  std::vector<uint32_t> patterns(const Format& format) const {
    const std::vector<char> host = download();
    std::vector<uint32_t> patterns(bytes_ / static_cast<size_t>(format.bytes), 0);
    for (size_t i = 0; i < patterns.size(); ++i) {
      std::memcpy(&patterns[i], host.data() + i * static_cast<size_t>(format.bytes), static_cast<size_t>(format.bytes));
    }
    return patterns;
  }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// ---- the reference

enum class Activation { kNone, kRelu, kGelu };

struct Problem {
  Shape a, b, c, d;  // as stored
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1.0;
  double beta = 0.0;
  bool half_accumulator = false;  // CUBLAS_COMPUTE_16F
  bool tf32 = false;              // CUBLAS_COMPUTE_32F_FAST_TF32
  Activation activation = Activation::kNone;
  const Numbers* bias = nullptr;
  int64_t bias_stride = 0;
};

struct Expected {
  double value;
  double bound;  // |delivered - value| may not exceed this
};

inline double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

// Entry (i, j) of batch entry e, from the numbers that the buffers hold.
//
// Bound, with u = 2^-24, S = sum |a||b|, T = |alpha| S + |beta c| + |bias|:
// - accumulator: whatever the order, a step takes in N products (N at least 4, one under plain FMA), each addend is cut
//   below 2^-23 of the largest, and the result is cut to FP32 (2^-23). No addend exceeds S. So one step errs by at most
//   (N + 1 + 1) 2^-23 S, and ceil(k / N) steps by at most (6/4 k + 6) 2^-23 S at N = 4; larger N have guard bits
//   and fewer steps. 2 more for terms of second order.
//   With TF32 both operands of a product lose less than 2^-10 of themselves before: 2 2^-10 S.
//   With an FP16 accumulator each step also rounds to FP16: k 2^-11 S / (1 - k 2^-11), and k times half the spacing of
//   FP16's subnormals.
// - alpha, beta C, bias: four roundings, 4 u T.
// - RELU has slope at most 1; GELU at most 1.13, and its own evaluation errs by at most 8 u |x|: 6 roundings ahead of
//   tanh shift its argument v by 6 u |v|, where |v| (1 - tanh^2 v) < 0.45; tanhf errs by 2 u; sum and products by 3.
// - the cast: half an ulp of the format, or half its subnormal spacing.
inline Expected expected(const Problem& problem, const Numbers& a, const Numbers& b, const Numbers& c,
                         const Format& out, int64_t e, int64_t i, int64_t j) {
  const int64_t k = problem.transpose_a ? problem.a.rows : problem.a.cols;
  double sum = 0.0;
  double magnitude = 0.0;
  if (problem.alpha != 0.0) {
    for (int64_t l = 0; l < k; ++l) {
      const double x =
          a.values[static_cast<size_t>(problem.transpose_a ? problem.a.at(e, l, i) : problem.a.at(e, i, l))];
      const double y =
          b.values[static_cast<size_t>(problem.transpose_b ? problem.b.at(e, j, l) : problem.b.at(e, l, j))];
      sum += x * y;
      magnitude += std::fabs(x * y);
    }
  }
  const auto steps = static_cast<double>(k);
  double accumulator = (1.5 * steps + 8.0) * 0x1p-23 * magnitude;
  if (problem.tf32) accumulator += 0x1p-9 * magnitude;
  if (problem.half_accumulator) {
    const double relative = steps * 0x1p-11;
    accumulator += relative / (1.0 - relative) * magnitude + steps * 0x1p-25;
  }
  const double added = problem.beta != 0.0 ? problem.beta * c.values[static_cast<size_t>(problem.c.at(e, i, j))] : 0.0;
  const double bias = problem.bias ? problem.bias->values[static_cast<size_t>(e * problem.bias_stride + i)] : 0.0;
  double x = problem.alpha * sum + added + bias;
  double bound = std::fabs(problem.alpha) * accumulator +
                 4.0 * 0x1p-24 * (std::fabs(problem.alpha) * magnitude + std::fabs(added) + std::fabs(bias));
  if (problem.activation == Activation::kRelu) {
    x = x > 0.0 ? x : 0.0;
  } else if (problem.activation == Activation::kGelu) {
    bound = 1.13 * bound + 8.0 * 0x1p-24 * std::fabs(x);
    x = gelu(x);
  }
  return {x, bound + out.unit() * (std::fabs(x) + bound) + out.half_step()};
}

struct Comparison {
  int64_t entries = 0;
  int64_t beyond = 0;        // entries beyond their bound
  int64_t gaps_changed = 0;  // elements between the columns, and between batch entries, that are not as before
  double worst = 0.0;        // largest |error| / bound
  std::string first;         // the first entry beyond
};

// Holds delivered D against the reference; `before` is D's buffer before the call. Every entry and every gap.
inline Comparison compare(const Problem& problem, const Numbers& a, const Numbers& b, const Numbers& c,
                          const Numbers& before, const std::vector<uint32_t>& delivered) {
  Comparison result;
  std::vector<bool> covered(delivered.size(), false);
  for (int64_t e = 0; e < problem.d.batch; ++e) {
    for (int64_t j = 0; j < problem.d.cols; ++j) {
      for (int64_t i = 0; i < problem.d.rows; ++i) {
        const auto place = static_cast<size_t>(problem.d.at(e, i, j));
        covered[place] = true;
        ++result.entries;
        const Expected want = expected(problem, a, b, c, before.format, e, i, j);
        const double got = decode(before.format, delivered[place]);
        const double error = std::fabs(got - want.value);
        if (!(error <= want.bound)) {
          if (result.beyond++ == 0) {
            result.first = "entry (" + std::to_string(e) + "; " + std::to_string(i) + ", " + std::to_string(j) +
                           "): got " + std::to_string(got) + ", want " + std::to_string(want.value) + " within " +
                           std::to_string(want.bound);
          }
        } else {
          result.worst = std::max(result.worst, error / want.bound);
        }
      }
    }
  }
  for (size_t place = 0; place < delivered.size(); ++place) {
    if (!covered[place] && delivered[place] != encode(before.format, before.values[place])) ++result.gaps_changed;
  }
  return result;
}

#define EXPECT_PRODUCT(...)                                     \
  do {                                                          \
    const reference::Comparison compared = __VA_ARGS__;         \
    EXPECT_GT(compared.entries, 0);                             \
    EXPECT_EQ(compared.beyond, 0) << compared.first;            \
    EXPECT_EQ(compared.gaps_changed, 0) << "gaps were written"; \
  } while (false)

// ---- holding a stream back

// Work enqueued after hold() waits until release() (or destruction).
class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    EXPECT_EQ(cudaLaunchHostFunc(
                  stream,
                  [](void* gate) {
                    while (!static_cast<Gate*>(gate)->open_.load(std::memory_order_acquire)) std::this_thread::yield();
                  },
                  this),
              cudaSuccess);
    stream_ = stream;
  }
  ~Gate() {
    release();
    cudaStreamSynchronize(stream_);
  }
  void release() { open_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> open_{false};
  cudaStream_t stream_;
};

}  // namespace reference

// SPDX-License-Identifier: MIT
// FP64, TF32, FP8 and INT8 products: each path against the defining scalar arithmetic bit for bit, the sums against
// independent ones within a bound, what each order runs, and a fault in each type.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tools/hostcuda/gemm/bound.h"
#include "tools/hostcuda/gemm/engine.h"
#include "tools/hostcuda/gemm/faults.h"
#include "tools/hostcuda/gemm/gemm.h"
#include "tools/hostcuda/gemm/matrix.h"
#include "tools/hostcuda/gemm/order.h"

namespace hostcuda::gemm {
namespace {

Order order_named(const std::string& name) {
  Order order;
  std::string error;
  EXPECT_TRUE(parse_order(name, &order, &error)) << error;
  return order;
}

struct Tuple {
  const char* name;
  Type a, b;
  Compute compute;
};
constexpr Tuple kTuples[] = {
    {"fp64", Type::kFp64, Type::kFp64, Compute::kFp64},
    {"tf32", Type::kFp32, Type::kFp32, Compute::kTf32},
    {"e4m3", Type::kE4m3, Type::kE4m3, Compute::kFp32},
    {"e4m3 e5m2", Type::kE4m3, Type::kE5m2, Compute::kFp32},
    {"e5m2 e4m3", Type::kE5m2, Type::kE4m3, Compute::kFp32},
    {"e5m2", Type::kE5m2, Type::kE5m2, Compute::kFp32},
    {"e4m3 fast", Type::kE4m3, Type::kE4m3, Compute::kFp8Fast},
    {"e5m2 e4m3 fast", Type::kE5m2, Type::kE4m3, Compute::kFp8Fast},
    {"int8", Type::kInt8, Type::kInt8, Compute::kInt32},
};

// ---- numbers, apart from the code under test

// Value of an FP8 pattern by its fields.
double fp8_value(Type type, uint8_t bits) {
  const int fraction_bits = type == Type::kE4m3 ? 3 : 2;
  const int bias = type == Type::kE4m3 ? 7 : 15;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int field = (bits & 0x7F) >> fraction_bits;
  double magnitude = field == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                : std::ldexp((1 << fraction_bits) + fraction, field - bias - fraction_bits);
  if (type == Type::kE4m3 && (bits & 0x7F) == 0x7F) magnitude = NAN;
  if (type == Type::kE5m2 && field == 31) magnitude = fraction == 0 ? INFINITY : NAN;
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

double stored_value(Type type, const unsigned char* at) {
  double wide = 0;
  float single = 0;
  switch (type) {
    case Type::kFp64:
      std::memcpy(&wide, at, sizeof wide);
      return wide;
    case Type::kFp32:
      std::memcpy(&single, at, sizeof single);
      return single;
    case Type::kInt8:
      return static_cast<signed char>(*at);
    default:
      return fp8_value(type, *at);
  }
}

struct Matrix {
  std::vector<unsigned char> bytes;
  Type type;
  int64_t ld, stride;
  bool transposed;

  Operand operand() const { return {bytes.data(), nullptr, ld, stride, type, transposed}; }
  const unsigned char* at(int64_t e, int64_t r, int64_t c) const {
    return bytes.data() + (e * stride + (transposed ? c + r * ld : r + c * ld)) * bytes_of(type);
  }
  double value(int64_t e, int64_t r, int64_t c) const { return stored_value(type, at(e, r, c)); }
};

// rows x cols after op(). draw(at) writes one element.
Matrix matrix_of(Type type, int64_t rows, int64_t cols, int64_t batch, bool transposed,
                 const std::function<void(unsigned char*)>& draw) {
  const int64_t ld = (transposed ? cols : rows) + 3;
  const int64_t stride = ld * (transposed ? rows : cols) + 5;
  Matrix matrix{std::vector<unsigned char>(static_cast<size_t>(stride * batch * bytes_of(type))), type, ld, stride,
                transposed};
  for (int64_t i = 0; i < stride * batch; ++i) draw(matrix.bytes.data() + i * bytes_of(type));
  return matrix;
}

enum class Data { kGauss, kWide, kPatterns, kSparse, kLargest, kTiny };
constexpr Data kData[] = {Data::kGauss, Data::kWide, Data::kPatterns, Data::kSparse, Data::kLargest, Data::kTiny};

std::function<void(unsigned char*)> drawing(Type type, Data data, std::mt19937_64& generator) {
  return [type, data, &generator](unsigned char* at) {
    const auto write = [at](auto value) { std::memcpy(at, &value, sizeof value); };
    std::normal_distribution<double> normal;
    const uint64_t word = generator();
    if (data == Data::kSparse && word % 5 != 0) {
      std::memset(at, 0, static_cast<size_t>(bytes_of(type)));
      return;
    }
    switch (type) {
      case Type::kFp64:
        if (data == Data::kPatterns) return write(word);
        if (data == Data::kLargest) return write(word % 2 != 0 ? 0x1.fffffffffffffp0 : -0x1.fffffffffffffp0);
        return write(normal(generator) *
                     (data == Data::kWide ? std::ldexp(1.0, static_cast<int>(word % 400) - 200) : 1));
      case Type::kFp32:
        // One pattern in 256 is not finite: keep a few of these, or every entry is a NaN.
        if (data == Data::kPatterns) {
          const auto bits = static_cast<uint32_t>(word);
          return write((bits & 0x7F800000u) == 0x7F800000u && word >> 58 != 0 ? bits & ~0x40000000u : bits);
        }
        if (data == Data::kLargest) return write(word % 2 != 0 ? 0x1.fffffep0f : -0x1.fffffep0f);
        return write(static_cast<float>(normal(generator) *
                                        (data == Data::kWide ? std::ldexp(1.0, static_cast<int>(word % 90) - 45) : 1)));
      case Type::kInt8:
        return write(data == Data::kLargest ? static_cast<signed char>(word % 3 == 0 ? 127 : -128)
                                            : static_cast<signed char>(word));
      default: {
        const unsigned largest = type == Type::kE4m3 ? 0x7E : 0x7B;
        auto bits = static_cast<unsigned char>(word);
        if (data == Data::kLargest) bits = static_cast<unsigned char>((word & 0x80) | largest);
        if (data == Data::kTiny) bits &= 0x87 | (word >> 63 << 3);  // subnormals and the least normal numbers
        if (data == Data::kWide && (bits & 0x7F) > largest) bits &= 0x3F;
        // Patterns keep a NaN or an infinity now and then.
        if (data == Data::kPatterns && (bits & 0x7F) > largest && word >> 58 != 0) bits &= 0x3F;
        if (data == Data::kGauss || data == Data::kSparse) {  // exponents around 1
          const int middle = (type == Type::kE4m3 ? 7 << 3 : 15 << 2) - 8;
          bits = static_cast<unsigned char>((word & 0x80) |
                                            static_cast<unsigned>(middle + static_cast<int>(word >> 40) % 16));
        }
        return write(bits);
      }
    }
  };
}

struct Case {
  Matrix a, b;
  std::vector<unsigned char> out;
  Product product;

  Case(const Tuple& tuple, int64_t m, int64_t n, int64_t k, int64_t batch, bool transpose_a, bool transpose_b,
       Data data, uint64_t seed) {
    std::mt19937_64 generator(seed);
    a = matrix_of(tuple.a, m, k, batch, transpose_a, drawing(tuple.a, data, generator));
    b = matrix_of(tuple.b, k, n, batch, transpose_b, drawing(tuple.b, data, generator));
    const int64_t ld = m + 2;
    const int64_t stride = ld * n + 1;
    out.assign(static_cast<size_t>(stride * batch * bytes_of(sum_type(tuple.compute))), 0xA5);
    product = Product{m, n, k, batch, a.operand(), b.operand(), tuple.compute, out.data(), ld, stride, 0, {}, 0, 0};
  }
  Case(const Case&) = delete;

  uint64_t bits_at(int64_t e, int64_t i, int64_t j) const {
    const int64_t place = e * product.out_stride + i + j * product.out_ld;
    const int64_t bytes = bytes_of(sum_type(product.compute));
    uint64_t bits = 0;
    std::memcpy(&bits, out.data() + place * bytes, static_cast<size_t>(bytes));
    return bits;
  }
  double value_at(int64_t e, int64_t i, int64_t j) const {
    const uint64_t bits = bits_at(e, i, j);
    switch (sum_type(product.compute)) {
      case Type::kFp64:
        return std::bit_cast<double>(bits);
      case Type::kInt32:
        return static_cast<int32_t>(static_cast<uint32_t>(bits));
      default:
        return std::bit_cast<float>(static_cast<uint32_t>(bits));
    }
  }

  // The entry by the defining arithmetic.
  uint64_t replayed(const Order& order, int64_t e, int64_t i, int64_t j,
                    const AccumulatorFault* fault = nullptr) const {
    std::vector<double> x;
    std::vector<double> y;
    for (int64_t l = 0; l < product.k; ++l) {
      x.push_back(a.value(e, i, l));
      y.push_back(b.value(e, l, j));
    }
    if (product.compute == Compute::kFp64) {
      return std::bit_cast<uint64_t>(replay_entry64(x.data(), y.data(), product.k, fault));
    }
    if (product.compute == Compute::kInt32) {
      const std::vector<int32_t> x_int(x.begin(), x.end());
      const std::vector<int32_t> y_int(y.begin(), y.end());
      return static_cast<uint32_t>(replay_entry_int(x_int.data(), y_int.data(), product.k, fault));
    }
    const std::vector<float> x_float(x.begin(), x.end());
    const std::vector<float> y_float(y.begin(), y.end());
    return std::bit_cast<uint32_t>(replay_entry(order, product.a.type, product.b.type, product.compute, x_float.data(),
                                                y_float.data(), product.k, fault));
  }

  int64_t differing(const Order& order) const {
    int64_t count = 0;
    for (int64_t e = 0; e < product.batch; ++e) {
      for (int64_t j = 0; j < product.n; ++j) {
        for (int64_t i = 0; i < product.m; ++i) count += bits_at(e, i, j) != replayed(order, e, i, j) ? 1 : 0;
      }
    }
    return count;
  }
};

constexpr const char* kOrderNames[] = {"h100",      "a100",       "ada",         "v100",       "b200",
                                       "rounded16", "sequential", "h100/split2", "ada/split3", "rounded16/split4"};

// ---- paths

TEST(GemmTypes, Paths_EqualTheScalarDefinition) {
  int64_t compared = 0;
  for (const char* name : kOrderNames) {
    const Order order = order_named(name);
    for (const Tuple& tuple : kTuples) {
      if (!supports(order, tuple.a, tuple.b, tuple.compute)) continue;
      uint64_t seed = 1;
      for (const Data data : kData) {
        // More than a panel of rows, k with and without a rest of a step and of a promotion.
        for (const int64_t k : {int64_t{83}, int64_t{300}}) {
          Case one(tuple, k == 83 ? 33 : 4, k == 83 ? 3 : 33, k, 1, seed % 2 != 0, seed % 3 == 0, data, seed);
          ++seed;
          compute_product(order, 1, one.product);
          EXPECT_EQ(one.differing(order), 0)
              << name << ", " << tuple.name << ", data " << static_cast<int>(data) << ", k " << k;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 400);
}

TEST(GemmTypes, Paths_LayoutsBatchesAndThreads) {
  const Order order = order_named("h100");
  for (const Tuple& tuple : kTuples) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      Case one(tuple, 33, 20, 201, 2, (transposes & 1) != 0, (transposes & 2) != 0, Data::kGauss, 7);
      compute_product(order, 3, one.product);
      EXPECT_EQ(one.differing(order), 0) << tuple.name << ", transposes " << transposes;
      const int64_t bytes = bytes_of(sum_type(tuple.compute));
      for (int64_t j = 0; j < 20; ++j) {
        const auto gap = static_cast<size_t>((33 + j * one.product.out_ld) * bytes);
        EXPECT_EQ(one.out[gap], 0xA5) << "wrote past a column";
      }
    }
    Case empty(tuple, 3, 2, 0, 1, false, false, Data::kGauss, 1);
    compute_product(order, 1, empty.product);
    for (int64_t j = 0; j < 2; ++j) {
      for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(empty.bits_at(0, i, j), 0u) << tuple.name << ": k = 0 gives zeros";
    }
  }
}

// ---- sums against independent ones

// |delivered - exact| may not exceed this; S is the sum of |a||b| over k.
double sum_bound(const Order& order, const Tuple& tuple, int64_t k, double S) {
  const auto products = static_cast<double>(k);
  switch (tuple.compute) {
    case Compute::kFp64:
      // k roundings, of sums that never exceed S by more than their own errors.
      return products * 0x1p-53 * S * (1 + products * 0x1p-53) + products * 0x1p-1074;
    case Compute::kInt32:
      return 0;
    default:
      break;
  }
  const Chain chain = chain_of(order, tuple.a, tuple.b, tuple.compute);
  // Both operands of a TF32 product lose less than 2^-10 of themselves.
  const double inputs = tuple.compute == Compute::kTf32 ? 0x1p-9 * S : 0.0;
  if (chain.rule != Rule::kTensorCore) return inputs + products * 0x1p-23 * S;
  // A step cuts N + 1 terms below 2^-(23 + g) of the largest, which is at most S, and then the result below 2^-23 (13
  // fraction bits: 2^-13) of itself. Between promotions only the products of a part add up.
  const double steps_of = [&](double of) {
    return std::ceil(of / static_cast<double>(chain.step.products));
  }(chain.promotion == 0 ? products : std::min(products, static_cast<double>(chain.promotion)));
  const double cut = (static_cast<double>(chain.step.products) + 1) * std::ldexp(1.0, -23 - chain.step.guard_bits) +
                     std::ldexp(1.0, -23 - std::min(chain.step.guard_bits, 0));
  const double parts = chain.promotion == 0 ? 0.0 : std::ceil(products / static_cast<double>(chain.promotion));
  return inputs + 1.01 * (steps_of * cut + parts * 0x1p-24) * S;
}

struct Exactness {
  int64_t entries = 0, beyond = 0;
  double worst = 0;
};

Exactness against_exact(const Order& order, const Tuple& tuple, const Case& one) {
  Exactness result;
  for (int64_t i = 0; i < one.product.m; ++i) {
    for (int64_t j = 0; j < one.product.n; ++j) {
      long double sum = 0;
      long double magnitude = 0;
      for (int64_t l = 0; l < one.product.k; ++l) {
        const long double term = static_cast<long double>(one.a.value(0, i, l)) * one.b.value(0, l, j);
        sum += term;
        magnitude += std::fabs(term);
      }
      const double bound = sum_bound(order, tuple, one.product.k, static_cast<double>(magnitude));
      const auto error = static_cast<double>(std::fabs(static_cast<long double>(one.value_at(0, i, j)) - sum));
      ++result.entries;
      if (!(error <= bound)) ++result.beyond;
      if (bound > 0) result.worst = std::max(result.worst, error / bound);
    }
  }
  return result;
}

TEST(GemmTypes, Sums_LieWithinTheirBoundOfExactOnes) {
  for (const char* name : {"h100", "ada", "b200", "a100", "rounded16", "sequential"}) {
    const Order order = order_named(name);
    for (const Tuple& tuple : kTuples) {
      if (!supports(order, tuple.a, tuple.b, tuple.compute)) continue;
      for (const Data data : {Data::kGauss, Data::kWide, Data::kSparse, Data::kLargest}) {
        Case one(tuple, 20, 11, 400, 1, false, true, data, 23);
        compute_product(order, 1, one.product);
        const Exactness result = against_exact(order, tuple, one);
        EXPECT_EQ(result.entries, 220);
        EXPECT_EQ(result.beyond, 0) << name << ", " << tuple.name << ", data " << static_cast<int>(data);
        // Sums of a few hundred FP8 products around 1 are exact in FP32: there only the short accumulator errs.
        const bool inexact = is_fp8(tuple.a) ? order.fp8_step.guard_bits < 0 && data == Data::kWide
                                             : tuple.compute != Compute::kInt32 && data == Data::kGauss;
        if (inexact) {
          EXPECT_GT(result.worst, 0) << name << ", " << tuple.name << ": the bound is never used";
        }
      }
    }
  }
}

// Must-fail: one unit in the place where the bound begins is seen.
TEST(GemmTypes, Sums_AWrongEntryLeavesTheBound) {
  const Order order = order_named("h100");
  for (const Tuple& tuple : kTuples) {
    Case one(tuple, 4, 4, 64, 1, false, false, Data::kGauss, 5);
    compute_product(order, 1, one.product);
    double magnitude = 0;
    for (int64_t l = 0; l < 64; ++l) magnitude += std::fabs(one.a.value(0, 0, l) * one.b.value(0, l, 0));
    const double wrong = one.value_at(0, 0, 0) + 2 * sum_bound(order, tuple, 64, magnitude) + (tuple.a == Type::kInt8);
    if (tuple.compute == Compute::kFp64) {
      std::memcpy(one.out.data(), &wrong, sizeof wrong);
    } else if (tuple.compute == Compute::kInt32) {
      const auto narrow = static_cast<int32_t>(wrong);
      std::memcpy(one.out.data(), &narrow, sizeof narrow);
    } else {
      const auto narrow = static_cast<float>(wrong);
      std::memcpy(one.out.data(), &narrow, sizeof narrow);
    }
    EXPECT_EQ(against_exact(order, tuple, one).beyond, 1) << tuple.name;
  }
}

TEST(GemmTypes, Int8_SumsWrapModulo32Bits) {
  const Order order = order_named("h100");
  const Tuple& tuple = kTuples[8];
  const int64_t k = 140000;
  Case one(tuple, 2, 2, k, 1, true, false, Data::kLargest, 3);
  for (auto* matrix : {&one.a, &one.b}) std::fill(matrix->bytes.begin(), matrix->bytes.end(), 0x80);
  compute_product(order, 1, one.product);
  EXPECT_EQ(one.bits_at(0, 1, 1), (uint64_t{k} * 16384) & 0xFFFFFFFFu);
  EXPECT_LT(one.value_at(0, 1, 1), 0) << "beyond 2^31: the sign changed";
}

TEST(GemmTypes, Tf32_IgnoresTheLowBitsOfItsOperands) {
  const Order order = order_named("h100");
  const Tuple& tf32 = kTuples[1];
  Case one(tf32, 5, 6, 40, 1, false, false, Data::kGauss, 11);
  compute_product(order, 1, one.product);
  const std::vector<unsigned char> whole = one.out;
  for (auto* matrix : {&one.a, &one.b}) {
    for (size_t i = 0; i < matrix->bytes.size(); i += 4) {
      matrix->bytes[i] = 0xFF;
      matrix->bytes[i + 1] |= 0x1F;
    }
  }
  compute_product(order, 1, one.product);
  EXPECT_EQ(one.out, whole);
  one.a.bytes[1] ^= 0x20;  // the last bit kept, of element (0, 0)
  compute_product(order, 1, one.product);
  EXPECT_NE(one.out, whole);
  // A NaN whose payload lies in the low bits alone stays a NaN.
  const uint32_t low_nan = 0x7F800001u;
  std::memcpy(one.a.bytes.data(), &low_nan, sizeof low_nan);
  compute_product(order, 1, one.product);
  EXPECT_EQ(one.bits_at(0, 0, 0), kCanonicalNan);
}

// Without fast accumulation parts of 128 products meet in FP32; with it the short accumulator loses more.
TEST(GemmTypes, Fp8_PromotionIsWhatSeparatesTheTwoModes) {
  for (const char* name : {"h100", "ada"}) {
    const Order order = order_named(name);
    const Tuple& promoted = kTuples[2];
    const Tuple& fast = kTuples[6];
    Case with(promoted, 16, 16, 128, 1, false, false, Data::kGauss, 2);
    Case without(fast, 16, 16, 128, 1, false, false, Data::kGauss, 2);
    compute_product(order, 1, with.product);
    compute_product(order, 1, without.product);
    EXPECT_EQ(with.out, without.out) << name << ": one part of 128 is the same in both";
    Case long_with(promoted, 16, 16, 4096, 1, false, false, Data::kGauss, 2);
    Case long_without(fast, 16, 16, 4096, 1, false, false, Data::kGauss, 2);
    compute_product(order, 1, long_with.product);
    compute_product(order, 1, long_without.product);
    double error_with = 0;
    double error_without = 0;
    for (int64_t i = 0; i < 16; ++i) {
      for (int64_t j = 0; j < 16; ++j) {
        double exact = 0;
        for (int64_t l = 0; l < 4096; ++l) exact += long_with.a.value(0, i, l) * long_with.b.value(0, l, j);
        error_with += std::fabs(long_with.value_at(0, i, j) - exact);
        error_without += std::fabs(long_without.value_at(0, i, j) - exact);
      }
    }
    EXPECT_LT(2 * error_with, error_without) << name;
  }
  // Blackwell's accumulator is FP32 by itself.
  const Order b200 = order_named("b200");
  Case with(kTuples[2], 8, 8, 600, 1, false, false, Data::kGauss, 2);
  Case without(kTuples[6], 8, 8, 600, 1, false, false, Data::kGauss, 2);
  compute_product(b200, 1, with.product);
  compute_product(b200, 1, without.product);
  EXPECT_EQ(with.out, without.out);
}

TEST(GemmTypes, Fp8_EveryPatternHasItsValue) {
  for (const Type type : {Type::kE4m3, Type::kE5m2}) {
    for (int pattern = 0; pattern < 256; ++pattern) {
      const auto bits = static_cast<uint8_t>(pattern);
      const float got = type == Type::kE4m3 ? e4m3_to_float(bits) : e5m2_to_float(bits);
      const double want = fp8_value(type, bits);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << pattern;
      } else {
        EXPECT_EQ(got, want) << pattern;
        EXPECT_EQ(std::signbit(got), (bits & 0x80) != 0) << pattern;
      }
    }
  }
}

// ---- what each device runs

TEST(GemmTypes, Orders_RunWhatTheirDeviceHas) {
  constexpr Type kAll[] = {Type::kFp32, Type::kFp16, Type::kBf16, Type::kFp64,
                           Type::kE4m3, Type::kE5m2, Type::kInt8, Type::kInt32};
  constexpr Compute kComputes[] = {Compute::kFp32,  Compute::kFp16, Compute::kFp64,
                                   Compute::kInt32, Compute::kTf32, Compute::kFp8Fast};
  struct Device {
    const char* name;
    bool bf16, fp8;
  };
  for (const Device& device : {Device{"v100", false, false}, Device{"a100", true, false}, Device{"ada", true, true},
                               Device{"h100", true, true}, Device{"b200", true, true}, Device{"rounded16", true, true},
                               Device{"sequential", true, true}}) {
    const Order order = order_named(device.name);
    for (const Type a : kAll) {
      for (const Type b : kAll) {
        for (const Compute compute : kComputes) {
          bool expected = false;
          if (a == Type::kFp32 && b == a)
            expected = compute == Compute::kFp32 || (compute == Compute::kTf32 && device.bf16);
          if (a == Type::kFp16 && b == a) expected = compute == Compute::kFp32 || compute == Compute::kFp16;
          if (a == Type::kBf16 && b == a) expected = compute == Compute::kFp32 && device.bf16;
          if (a == Type::kFp64 && b == a) expected = compute == Compute::kFp64;
          if (a == Type::kInt8 && b == a) expected = compute == Compute::kInt32;
          if ((a == Type::kE4m3 || a == Type::kE5m2) && (b == Type::kE4m3 || b == Type::kE5m2)) {
            expected = (compute == Compute::kFp32 || compute == Compute::kFp8Fast) && device.fp8;
          }
          EXPECT_EQ(supports(order, a, b, compute), expected)
              << device.name << " " << static_cast<int>(a) << " " << static_cast<int>(b) << " "
              << static_cast<int>(compute);
        }
      }
    }
  }
}

// ---- faults

class Lines : public FaultLog {
 public:
  void write(const std::string& line) override { lines.push_back(nlohmann::json::parse(line)); }
  std::vector<nlohmann::json> lines;
};

struct Injected {
  uint64_t touched = 0;
  std::vector<nlohmann::json> lines;
  std::vector<unsigned char> clean;
};

Injected inject(const std::string& text, const Order& order, Case* one) {
  FaultPlan plan;
  std::string error;
  EXPECT_TRUE(parse_fault_plan(text, "plan", &plan, &error)) << error;
  compute_product(order, 1, one->product);
  Injected result;
  result.clean = one->out;
  Lines log;
  std::vector<Skipped> skipped;
  result.touched = inject_faults(plan, order, one->product, &log, &skipped);
  result.lines = log.lines;
  EXPECT_EQ(result.touched, result.lines.size());
  return result;
}

uint64_t hex(const nlohmann::json& text) {
  return std::stoull(text.get<std::string>(), nullptr, 16);
}

const char* type_name(const Tuple& tuple, Type type) {
  switch (type) {
    case Type::kFp64:
      return "fp64";
    case Type::kE4m3:
      return "e4m3";
    case Type::kE5m2:
      return "e5m2";
    case Type::kInt8:
      return "int8";
    default:
      return tuple.compute == Compute::kTf32 ? "tf32" : "fp32";
  }
}

TEST(GemmTypes, Fault_ShowsInTheResultAndTheLogOfEachType) {
  const Order order = order_named("h100");
  for (const Tuple& tuple : kTuples) {
    for (const char* kind : {"output", "accumulator"}) {
      Case one(tuple, 70, 9, 96, 1, false, false, Data::kGauss, 3);
      const Injected injected = inject(std::string("[[fault]]\nkind = \"") + kind + "\"\ntype = \"" +
                                           type_name(tuple, tuple.a) + "\"\ncount = 12\nseed = 4",
                                       order, &one);
      ASSERT_EQ(injected.touched, 12u) << tuple.name;
      int64_t above = 0;
      for (const nlohmann::json& line : injected.lines) {
        const int64_t row = line["row"];
        const int64_t col = line["col"];
        EXPECT_EQ(line["type_a"], type_name(tuple, tuple.a));
        EXPECT_EQ(line["type_b"], type_name(tuple, tuple.b));
        EXPECT_EQ(hex(line["clean_bits"]), one.replayed(order, 0, row, col));
        EXPECT_EQ(hex(line["faulty_bits"]), one.bits_at(0, row, col)) << tuple.name;
        if (line["faulty"].is_number()) {
          const double written = line["faulty"];
          EXPECT_EQ(sum_type(tuple.compute) == Type::kFp32 ? static_cast<float>(written) : written,
                    one.value_at(0, row, col))
              << "the digits name the value";
          const double difference = std::fabs(one.value_at(0, row, col) - line["clean"].get<double>());
          EXPECT_EQ(line["above_bound"].get<bool>(), difference > line["bound"].get<double>()) << line;
        }
        ASSERT_EQ(line["bits"].size(), 1u);
        const int bit = line["bits"][0];
        EXPECT_GE(bit, tuple.compute == Compute::kFp64 ? 49 : 20);
        EXPECT_LE(bit, tuple.compute == Compute::kFp64 ? 62 : 30);
        if (std::string(kind) == "output") {
          EXPECT_EQ(one.bits_at(0, row, col), one.replayed(order, 0, row, col) ^ (uint64_t{1} << bit));
        } else {
          const AccumulatorFault fault{line["k_step"], uint64_t{1} << bit};
          EXPECT_EQ(one.bits_at(0, row, col), one.replayed(order, 0, row, col, &fault));
        }
        above += line["above_bound"].get<bool>() ? 1 : 0;
      }
      EXPECT_GT(above, 6) << tuple.name << " " << kind;
    }
  }
}

TEST(GemmTypes, Fault_OtherTypesAreLeftAlone) {
  const Order order = order_named("h100");
  for (const Tuple& tuple : kTuples) {
    for (const char* type : {"bf16", "fp16", "fp32", "tf32", "fp64", "e4m3", "e5m2", "e2m1", "int8"}) {
      Case one(tuple, 8, 8, 16, 1, false, false, Data::kGauss, 3);
      const Injected injected =
          inject(std::string("[[fault]]\nkind = \"output\"\ntype = \"") + type + "\"", order, &one);
      EXPECT_EQ(injected.touched, std::string(type) == type_name(tuple, tuple.a) ? 1u : 0u)
          << tuple.name << " " << type;
    }
  }
}

TEST(GemmTypes, Fault_WordsStuckBitsAndWideOnes) {
  const Order order = order_named("h100");
  for (const Tuple& tuple : kTuples) {
    const bool wide = tuple.compute == Compute::kFp64;
    const bool integer = tuple.compute == Compute::kInt32;
    Case one(tuple, 32, 16, 64, 2, false, false, Data::kGauss, 6);
    const std::string word = "[[fault]]\nkind = \"word\"\nrow = 3\ncol = 4\nentry = 1\nvalue = ";
    inject(word + "-7", order, &one);
    EXPECT_EQ(one.value_at(1, 3, 4), -7) << tuple.name;
    const Injected narrow = inject(word + "\"0x41000000\"", order, &one);
    EXPECT_EQ(narrow.touched, wide ? 0u : 1u) << tuple.name;
    const Injected broad = inject(word + "\"0x4010000000000000\"", order, &one);
    EXPECT_EQ(broad.touched, wide ? 1u : 0u) << tuple.name;
    EXPECT_EQ(one.bits_at(1, 3, 4), wide ? 0x4010000000000000u : one.replayed(order, 1, 3, 4));

    const Injected stuck =
        inject("[[fault]]\nkind = \"stuck\"\nbits = 40\nvalue = 1\nline_row = 2\nline_col = 3", order, &one);
    EXPECT_EQ(stuck.touched, wide ? 8u : 0u) << tuple.name << ": only FP64 sums have a bit 40";

    const Injected high = inject("[[fault]]\nkind = \"output\"\nbits = \"40..45\"", order, &one);
    EXPECT_EQ(high.touched, wide ? 1u : 0u) << tuple.name;

    for (const char* kind : {"nan", "inf"}) {
      const Injected injected =
          inject(std::string("[[fault]]\nkind = \"") + kind + "\"\nrow = 1\ncol = 1\nentry = 0", order, &one);
      EXPECT_EQ(injected.touched, integer ? 0u : 1u);
      if (!integer) {
        EXPECT_FALSE(std::isfinite(one.value_at(0, 1, 1)));
        EXPECT_TRUE(injected.lines[0]["above_bound"].get<bool>());
      }
    }
    const Injected column = inject("[[fault]]\nkind = \"column\"\ncol = 5\nentry = 0\ndelta = 0.25", order, &one);
    EXPECT_EQ(column.touched, 32u);
    for (int64_t i = 0; i < 32; ++i) {
      const uint64_t clean = one.replayed(order, 0, i, 5);
      const double before = integer ? static_cast<double>(static_cast<int32_t>(clean))
                            : wide  ? std::bit_cast<double>(clean)
                                    : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(clean)));
      const double want = before + (integer ? 1 : 0.25);
      EXPECT_EQ(one.value_at(0, i, 5), wide || integer ? want : static_cast<float>(want)) << tuple.name;
    }
  }
}

// Of clean lines: |exact - sum| is below tau in every order; a flip of a high bit is above it.
TEST(GemmTypes, Bound_HoldsForCleanLines) {
  for (const char* name : {"h100", "ada", "b200", "a100", "v100", "rounded16", "h100/split2"}) {
    const Order order = order_named(name);
    for (const Tuple& tuple : kTuples) {
      if (!supports(order, tuple.a, tuple.b, tuple.compute)) continue;
      for (const int64_t m : {int64_t{128}, int64_t{16}}) {  // with and without enough ratios for a median
        for (const int64_t k : {int64_t{96}, int64_t{520}}) {
          Case one(tuple, m, 3, k, 1, false, false, Data::kGauss, 9);
          compute_product(order, 1, one.product);
          for (int64_t j = 0; j < 3; ++j) {
            std::vector<double> line;
            for (int64_t i = 0; i < m; ++i) line.push_back(one.value_at(0, i, j));
            const std::vector<double> tau = entry_bounds(order, one.product, 0, j, line);
            for (int64_t i = 0; i < m; ++i) {
              long double exact = 0;
              for (int64_t l = 0; l < k; ++l)
                exact += static_cast<long double>(one.a.value(0, i, l)) * one.b.value(0, l, j);
              const auto error =
                  static_cast<double>(std::fabs(exact - static_cast<long double>(line[static_cast<size_t>(i)])));
              EXPECT_LE(error, tau[static_cast<size_t>(i)]) << name << " " << tuple.name << " m " << m << " k " << k;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace hostcuda::gemm

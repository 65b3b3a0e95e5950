// SPDX-License-Identifier: MIT
// Operands to measure with: dense matrices of a kind of data, drawn from a seed, in the bits of their type.
//
// The kinds are those that the noise of products differs by (reference/prototype.md section 0): what real layers
// multiply, from the tamest to the widest spread within a row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/measure/product.h"

namespace sdcguard {

enum class DataKind { kGaussian, kPositive, kOutlierChannels, kRelu, kBias };
inline constexpr const char* kDataKindNames[] = {"gaussian", "positive", "outlier-channels", "relu", "bias"};
inline constexpr int kDataKindCount = 5;

// False where there is no kind of that name.
bool data_kind_named(const std::string& name, DataKind* kind);

struct Operands {
  std::vector<unsigned char> a, b;  // a by rows of n2, b by columns of n2
};

// gaussian: both N(0, 1). positive: A uniform in (0, 1). outlier-channels: one channel of A in a hundred times 60.
// relu: A max(N(-1, 1), 0). bias: each channel of A with a mean of N(0, 1) more. B is N(0, 1) / sqrt(n2) but for
// positive, where it is uniform in (0, 1). INT8: the same, scaled to 30 a standard deviation and rounded.
Operands draw_operands(DataKind kind, const ProductType& type, const ProductShape& shape, uint64_t seed);

// Bits of the number of a floating type that is nearest to v, ties to even, in 1 + exponent + fraction bits, the bias
// 2^(exponent - 1) - 1. Finite v within the type's range.
uint32_t float_bits(double v, int exponent_bits, int fraction_bits);

// The value of an element of `type` at `bits`, in the machine's byte order. INT32 and INT8 as they are.
double value_of(DataType type, const unsigned char* bits);

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Number formats of cuBLAS's matrices, by their definition: significand bits, exponents, largest value. Every value of
// each of them is exact in a double. Nothing here is taken from the libraries under test.
#pragma once

#include <library_types.h>

#include <cstdint>
#include <string>

namespace calls {

enum class Num : uint8_t { kF64, kF32, kBF16, kF16, kE4M3, kE5M2, kI8, kI32 };
inline constexpr int kNumCount = 8;

struct Format {
  const char* name;
  cudaDataType type;
  int bytes;
  int precision;     // significand bits with the hidden one. Integers: 0
  int least_normal;  // exponent of the smallest normal number
  double largest;
  bool saturates;  // a product delivered in it stops at +-largest (FP8 and 8-bit integers); else it overflows
};

const Format& format_of(Num num);
// False: no such name.
bool num_of(const std::string& name, Num* num);
inline bool is_integer(Num num) {
  return num == Num::kI8 || num == Num::kI32;
}
inline bool is_fp8(Num num) {
  return num == Num::kE4M3 || num == Num::kE5M2;
}

// Nearest number of the format, ties to even; beyond the largest: that where the format saturates, else infinity.
double rounded(Num num, double x);
// Half the distance of the format's numbers around |x|; where a double has no such number, the least that it has.
double half_spacing(Num num, double x);

// One element of memory; x must be a number of the format (or NaN or an infinity where it has one).
void encode(Num num, double x, void* to);
double decode(Num num, const void* from);

}  // namespace calls

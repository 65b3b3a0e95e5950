// SPDX-License-Identifier: MIT
#include "number.h"

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

namespace calls {
namespace {

constexpr Format kFormats[kNumCount] = {
    {"f64", CUDA_R_64F, 8, 53, -1022, DBL_MAX, false},
    {"f32", CUDA_R_32F, 4, 24, -126, FLT_MAX, false},
    {"bf16", CUDA_R_16BF, 2, 8, -126, 0x1.fep127, false},
    {"f16", CUDA_R_16F, 2, 11, -14, 65504, false},
    {"e4m3", CUDA_R_8F_E4M3, 1, 4, -6, 448, true},
    {"e5m2", CUDA_R_8F_E5M2, 1, 3, -14, 57344, true},
    {"i8", CUDA_R_8I, 1, 0, 0, 127, true},
    {"i32", CUDA_R_32I, 4, 0, 0, 2147483647, false},
};

int exponent_of(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return exponent - 1;
}

// Exponent of the last place of the format's numbers around |x|.
int last_place(const Format& f, double x) {
  const int exponent = x == 0 || !std::isfinite(x) ? f.least_normal : exponent_of(x);
  return (exponent > f.least_normal ? exponent : f.least_normal) - f.precision + 1;
}

}  // namespace

const Format& format_of(Num num) {
  return kFormats[static_cast<int>(num)];
}

bool num_of(const std::string& name, Num* num) {
  for (int i = 0; i < kNumCount; ++i) {
    if (name != kFormats[i].name) continue;
    *num = static_cast<Num>(i);
    return true;
  }
  return false;
}

double rounded(Num num, double x) {
  if (num == Num::kF64 || std::isnan(x)) return x;
  const Format& f = format_of(num);
  if (is_integer(num)) {
    const double least = num == Num::kI8 ? -128.0 : -2147483648.0;
    const double y = std::nearbyint(x);
    return y > f.largest ? f.largest : y < least ? least : y;
  }
  double y = x;
  if (std::isfinite(x) && x != 0) {
    const int place = last_place(f, x);
    y = std::ldexp(std::nearbyint(std::ldexp(x, -place)), place);
  }
  if (std::fabs(y) <= f.largest) return y;
  return std::copysign(f.saturates ? f.largest : std::numeric_limits<double>::infinity(), x);
}

double half_spacing(Num num, double x) {
  if (is_integer(num)) return 0.5;
  const int place = last_place(format_of(num), std::fmin(std::fabs(x), format_of(num).largest));
  return std::fmax(std::ldexp(0.5, place), std::numeric_limits<double>::denorm_min());
}

void encode(Num num, double x, void* to) {
  const Format& f = format_of(num);
  if (num == Num::kF64) {
    std::memcpy(to, &x, sizeof(x));
    return;
  }
  if (is_integer(num)) {
    const auto bits = static_cast<uint32_t>(static_cast<int32_t>(x));
    std::memcpy(to, &bits, static_cast<size_t>(f.bytes));
    return;
  }
  if (num == Num::kF32 || num == Num::kBF16) {
    const auto narrow = static_cast<float>(x);
    uint32_t bits;
    std::memcpy(&bits, &narrow, sizeof(bits));
    if (num == Num::kBF16) bits >>= 16;
    std::memcpy(to, &bits, static_cast<size_t>(f.bytes));
    return;
  }
  const uint32_t sign = std::signbit(x) ? 1u << (8 * f.bytes - 1) : 0;
  const double magnitude = std::fabs(x);
  const int fraction_bits = f.precision - 1;
  uint32_t bits;
  if (std::isnan(x)) {
    bits = (1u << (8 * f.bytes - 1)) - 1;
  } else if (magnitude > f.largest) {  // an infinity: F16 and E5M2 have one
    bits = num == Num::kE4M3 ? 0x7f : f.bytes == 1 ? 0x7c : 0x7c00;
  } else if (magnitude < std::ldexp(1.0, f.least_normal)) {
    bits = static_cast<uint32_t>(std::ldexp(magnitude, fraction_bits - f.least_normal));
  } else {
    const int exponent = exponent_of(magnitude);
    const auto significand = static_cast<uint32_t>(std::ldexp(magnitude, fraction_bits - exponent));
    bits = (static_cast<uint32_t>(exponent - f.least_normal + 1) << fraction_bits) |
           (significand & ((1u << fraction_bits) - 1));
  }
  bits |= sign;
  std::memcpy(to, &bits, static_cast<size_t>(f.bytes));
}

double decode(Num num, const void* from) {
  const Format& f = format_of(num);
  if (num == Num::kF64) {
    double x;
    std::memcpy(&x, from, sizeof(x));
    return x;
  }
  uint32_t bits = 0;
  std::memcpy(&bits, from, static_cast<size_t>(f.bytes));
  if (num == Num::kI8) return static_cast<int8_t>(bits);
  if (num == Num::kI32) return static_cast<int32_t>(bits);
  if (num == Num::kF32 || num == Num::kBF16) {
    if (num == Num::kBF16) bits <<= 16;
    float x;
    std::memcpy(&x, &bits, sizeof(x));
    return static_cast<double>(x);
  }
  const int fraction_bits = f.precision - 1;
  const int exponent_bits = 8 * f.bytes - 1 - fraction_bits;
  const uint32_t field = bits >> fraction_bits & ((1u << exponent_bits) - 1);
  const uint32_t fraction = bits & ((1u << fraction_bits) - 1);
  const double sign = (bits >> (8 * f.bytes - 1) & 1) != 0 ? -1.0 : 1.0;
  const bool top = field == (1u << exponent_bits) - 1;
  if (top && num == Num::kE4M3 && fraction == 7) return std::numeric_limits<double>::quiet_NaN();
  if (top && num != Num::kE4M3) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (field == 0) return sign * std::ldexp(fraction, f.least_normal - fraction_bits);
  return sign *
         std::ldexp(fraction + (1u << fraction_bits), static_cast<int>(field) - 1 + f.least_normal - fraction_bits);
}

}  // namespace calls

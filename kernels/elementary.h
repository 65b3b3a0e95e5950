// SPDX-License-Identifier: MIT
// The few elementary functions that plans need, without libm: it would be the one library that the shim draws into
// every child process, a third of what a preload costs there (tests/bench/RESULTS.md, "Start of a child process"). Host
// code.
#pragma once

#include <bit>
#include <cstdint>

namespace sdcguard {

// 2^n, n in [-1022, 1023].
inline double power_of_two(int n) {
  return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}

// Natural logarithm of a normal x > 0, relative error below 1e-14 away from 1: x = m 2^e with m in [sqrt(1/2),
// sqrt(2)), log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172; the first term left out is s^23 / 23 < 1e-19.
inline double natural_log(double x) {
  constexpr double kLn2 = 0.693147180559945309417;
  constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcdull;  // bits of sqrt(1/2)
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const auto exponent = static_cast<int64_t>(bits - kRootHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(exponent) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  double sum = 0.0;
  for (int term = 21; term >= 1; term -= 2) sum = sum * square + 1.0 / term;
  return static_cast<double>(exponent) * kLn2 + 2.0 * s * sum;
}

// e^y for |y| < 700, relative error below 1e-14: y = n ln 2 + r, |r| < 0.35; the first term left out is r^18 / 18! <
// 1e-24.
inline double exponential(double y) {
  constexpr double kLn2 = 0.693147180559945309417;
  const auto n = static_cast<int>(y / kLn2 + (y < 0 ? -0.5 : 0.5));
  const double r = y - n * kLn2;
  double sum = 1.0;
  for (int term = 17; term >= 1; --term) sum = 1.0 + sum * r / term;
  return sum * power_of_two(n);
}

// x^y, x > 0.
inline double power(double x, double y) {
  return exponential(y * natural_log(x));
}

// An instruction, since this is built without errno for mathematics (CMakeLists.txt).
inline double square_root(double x) {
  return __builtin_sqrt(x);
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// The entry bound: how far a product's entry may lie from its independent recomputation before it is named. The one
// place of its constants; read by the kernels, by make_plan(), by tests and by hostcuda's fault log. MATH.md "entry".
//
//   tau = min( K max(kFloor, 1.4826 median(d / w)) w,  (c_max eps_acc + eps_in) sum|A||B| ),
//   w   = eps_acc sqrt(gamma^2 + sum A^2 B^2),   d = |gamma - P|
#pragma once

#include <cmath>
#include <cstdint>

#ifndef SDCGUARD_BOTH  // simt.h, included before, gives the compiler's own spelling
#define SDCGUARD_BOTH inline
#define SDCGUARD_BOTH_IS_PLAIN
#endif

namespace sdcguard {

inline constexpr double kEntryK = 32.0;           // MATH.md "entry": 0 false of 48 M entries at 32, 2 at 20
inline constexpr double kEntryFloor = 0.25;       // floor of the scale: exact products have median 0
inline constexpr double kEntryMad = 1.4826;       // sigma of a Gaussian over the median of its magnitude
inline constexpr int64_t kEntryMedianMin = 64;    // fewer ratios than this: the median may be the fault
inline constexpr double kEpsFp32 = 0x1p-23;       // eps_acc of FP32 accumulation
inline constexpr double kEpsFp64 = 0x1p-52;       // eps_acc of FP64 accumulation
inline constexpr double kEpsFp16 = 0x1p-10;       // eps_acc of FP16 accumulation
inline constexpr double kEpsTf32Inputs = 0x1p-9;  // both inputs truncated to 10 bits: 2 * 2^-10; FP16 inputs likewise
inline constexpr double kEpsBf16Inputs = 0x1p-6;  // both inputs truncated to 7 bits

// c_max for accumulation in steps of `products` with `guard_bits`, over n2 terms. FMA units: products 1, guard bits 64.
SDCGUARD_BOTH double entry_c_max(int64_t n2, uint32_t products, uint32_t guard_bits) {
  const double n = static_cast<double>(n2);
  const double cut = guard_bits < 64 ? 1.0 / static_cast<double>(uint64_t{1} << guard_bits) : 0.0;  // 2^-guard_bits
  const double per_step = (static_cast<double>(products) + 1.0) * cut + 1.0;
  return n * per_step / static_cast<double>(products) + n / 64.0 + 16.0;
}

// w of one entry; root = sqrt(sum A^2 B^2).
SDCGUARD_BOTH double entry_weight(double gamma, double root, double eps_acc) {
  return eps_acc * std::sqrt(gamma * gamma + root * root);
}

// The part of the bound that can be proven for any data.
SDCGUARD_BOTH double entry_cap(double abs_sum, double c_max, double eps_acc, double eps_in) {
  return (c_max * eps_acc + eps_in) * abs_sum;
}

// The scale of w from the median of d / w.
SDCGUARD_BOTH double entry_scale(double median_ratio, double floor = kEntryFloor) {
  const double measured = kEntryMad * median_ratio;
  return kEntryK * (measured > floor ? measured : floor);
}

SDCGUARD_BOTH double entry_tau(double scale, double weight, double cap) {
  const double measured = scale * weight;
  return measured < cap ? measured : cap;
}

}  // namespace sdcguard

#ifdef SDCGUARD_BOTH_IS_PLAIN
#undef SDCGUARD_BOTH
#undef SDCGUARD_BOTH_IS_PLAIN
#endif

// SPDX-License-Identifier: MIT
// The look threshold of one line: what its largest |r| / s may be. One place, read by the product kernel and by tests.
// MATH.md "look".
#pragma once

#include <cstdint>

#ifndef SDCGUARD_BOTH  // simt.h, included before, gives the compiler's own spelling
#define SDCGUARD_BOTH inline
#define SDCGUARD_BOTH_IS_PLAIN
#endif

namespace sdcguard {

inline constexpr uint32_t kLineCells = 8;           // cells not 0 that a line needs for a median of its own
inline constexpr float kMedianToSigma = 1.4826f;    // sigma of a Gaussian over the median of its magnitude
inline constexpr float kLineNoisier = 1.0f / 1.5f;  // half as noisy again as the product is like all others
inline constexpr float kLineMost = 2.0f;            // no line's scale is more than this times the product's
inline constexpr float kFewAddends = 2.5f;          // a line of so many equal addends, or fewer, is held to twice T

// sigma: of the product, as used. median: of the line's |r| / s that are not 0; 0 where they are too few.
// concentration: the energy of the line's largest addend over that of all; 1 where one makes it, 1/m for m alike.
SDCGUARD_BOTH float look_limit(float threshold, float sigma, float median, float concentration) {
  float scale = median * (kMedianToSigma * kLineNoisier);
  if (!(scale > sigma)) scale = sigma;
  if (scale > kLineMost * sigma) scale = kLineMost * sigma;
  const float few = kFewAddends * concentration;
  return threshold * (1.0f + (few < 1.0f ? few : 1.0f)) * scale;
}

}  // namespace sdcguard

#ifdef SDCGUARD_BOTH_IS_PLAIN
#undef SDCGUARD_BOTH
#undef SDCGUARD_BOTH_IS_PLAIN
#endif

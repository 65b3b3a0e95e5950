// SPDX-License-Identifier: MIT
// What makes sigma, and the look threshold of one line: what its largest |r| / s may be. One place, read by the product
// kernel and by tests. MATH.md "look".
#pragma once

#include <cstdint>

#ifndef SDCGUARD_BOTH  // simt.h, included before, gives the compiler's own spelling
#define SDCGUARD_BOTH inline
#define SDCGUARD_BOTH_IS_PLAIN
#endif

namespace sdcguard {

// Cells that are not exact, of one batch entry: fewer may be the cells of faults in an exact product, and sigma is its
// floor. (N cells cannot exceed N / 1.25 sigma of their own, and the plan asks for as many of any product.)
inline constexpr double kNoisyCells = 64.0;
inline constexpr uint32_t kLineCells = 8;           // cells not 0 that a line needs for a median of its own
inline constexpr float kMedianToSigma = 1.4826f;    // sigma of a Gaussian over the median of its magnitude
inline constexpr float kLineNoisier = 1.0f / 1.5f;  // half as noisy again as the product is like all others
inline constexpr float kLineMost = 2.0f;            // no line's scale is more than this times the product's

// sigma: of the product, as used. median: of the line's |r| / s that are not 0; 0 where they are too few.
SDCGUARD_BOTH float look_limit(float threshold, float sigma, float median) {
  float scale = median * (kMedianToSigma * kLineNoisier);
  if (!(scale > sigma)) scale = sigma;
  if (scale > kLineMost * sigma) scale = kLineMost * sigma;
  return threshold * scale;
}

}  // namespace sdcguard

#ifdef SDCGUARD_BOTH_IS_PLAIN
#undef SDCGUARD_BOTH
#undef SDCGUARD_BOTH_IS_PLAIN
#endif

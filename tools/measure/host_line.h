// SPDX-License-Identifier: MIT
// The second opinion: one line of a product computed on the CPU, in FP64 (FP64 products: in long double; INT8: exact),
// and how far a right entry may lie from it. Formula: kernels/MATH.md "entry".
#pragma once

#include <cstdint>
#include <vector>

#include "tools/measure/product_probe.h"

namespace sdcguard {

struct HostEntry {
  int64_t column;
  double expected;
  double got;
  double bound;  // |got - expected| beyond it: the entry is wrong
};

// Entries first, first + step, ... of line `line` of the probe's last product; `product`: P, as ProductProbe::read()
// gives it.
std::vector<HostEntry> host_line(const ProductProbe& probe, const std::vector<unsigned char>& product, int64_t line,
                                 int64_t first = 0, int64_t step = 1);

// True where the entry is not what it must be; NaN always is.
inline bool is_wrong(const HostEntry& entry) {
  const double distance = entry.got > entry.expected ? entry.got - entry.expected : entry.expected - entry.got;
  return !(distance <= entry.bound);
}

}  // namespace sdcguard

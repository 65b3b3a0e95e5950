// SPDX-License-Identifier: MIT
#include "tools/measure/product.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace sdcguard {

bool parse_shape(const std::string& text, ProductShape* shape) {
  constexpr int64_t kMost = int64_t{1} << 20;
  int used = 0;
  int64_t m = 0, n = 0, k = 0;
  if (std::sscanf(text.c_str(), "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "%n", &m, &n, &k, &used) != 3) return false;
  if (used != static_cast<int>(text.size()) || std::min({m, n, k}) < 1 || std::max({m, n, k}) > kMost) {
    return false;
  }
  *shape = {n, k, m};
  return true;
}

}  // namespace sdcguard

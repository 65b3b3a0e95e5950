// SPDX-License-Identifier: MIT
#include "tools/measure/host_line.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/entry_bound.h"

namespace sdcguard {
namespace {

// Sums over k of one entry.
template <typename Real>
struct Sums {
  Real gamma = 0, squares = 0, magnitudes = 0;
};

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename Real>
std::vector<HostEntry> line_of(const ProductProbe& probe, const std::vector<unsigned char>& product, int64_t line,
                               int64_t first, int64_t step) {
  const ProductShape& shape = probe.shape();
  const DataType operands = probe.type().operands, result = probe.params().p.type;
  const size_t size = element_bytes(operands), result_size = element_bytes(result);
  const auto n2 = static_cast<size_t>(shape.n2), n3 = static_cast<size_t>(shape.n3);
  const unsigned char* const a = &probe.operands().a[static_cast<size_t>(line) * n2 * size];
  std::vector<Real> row(n2);
  for (size_t k = 0; k < n2; ++k) row[k] = static_cast<Real>(value_of(operands, a + k * size));
  std::vector<HostEntry> entries;
  std::vector<double> weights, caps, ratios;
  const ProbeParams& p = probe.params();
  for (auto j = static_cast<size_t>(first); j < n3; j += static_cast<size_t>(step)) {
    const unsigned char* const b = &probe.operands().b[j * n2 * size];
    Sums<Real> sums;
    for (size_t k = 0; k < n2; ++k) {
      const Real term = row[k] * static_cast<Real>(value_of(operands, b + k * size));
      sums.gamma += term;
      sums.squares += term * term;
      sums.magnitudes += std::fabs(term);
    }
    HostEntry& entry = entries.emplace_back();
    entry.column = static_cast<int64_t>(j);
    entry.expected = static_cast<double>(sums.gamma);
    entry.got = value_of(result, &product[(static_cast<size_t>(line) * n3 + j) * result_size]);
    entry.bound = 0;  // INT8 products: exact
    if (probe.type().accumulator == Accumulator::kI32) continue;
    const double eps = static_cast<double>(p.entry_eps_acc) + static_cast<double>(p.entry_eps_in);
    weights.push_back(entry_weight(entry.expected, static_cast<double>(std::sqrt(sums.squares)), eps));
    caps.push_back(entry_cap(static_cast<double>(sums.magnitudes), static_cast<double>(p.entry_c_max),
                             static_cast<double>(p.entry_eps_acc), static_cast<double>(p.entry_eps_in)));
    const double ratio = std::fabs(entry.expected - entry.got) / weights.back();
    if (std::isfinite(ratio)) ratios.push_back(ratio);
  }
  if (probe.type().accumulator == Accumulator::kI32) return entries;
  const bool has_median = static_cast<int64_t>(ratios.size()) >= kEntryMedianMin;
  const double scale = has_median ? entry_scale(median_of(ratios), static_cast<double>(p.entry_floor))
                                  : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].bound = (has_median ? entry_tau(scale, weights[i], caps[i]) : caps[i]) + p.entry_tiny;
  }
  return entries;
}

}  // namespace

std::vector<HostEntry> host_line(const ProductProbe& probe, const std::vector<unsigned char>& product, int64_t line,
                                 int64_t first, int64_t step) {
  return probe.type().accumulator == Accumulator::kF64 ? line_of<long double>(probe, product, line, first, step)
                                                       : line_of<double>(probe, product, line, first, step);
}

}  // namespace sdcguard

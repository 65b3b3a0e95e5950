// SPDX-License-Identifier: MIT
// Entry bound of a clean line.
#include "bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/entry_bound.h"

namespace hostcuda::gemm {
namespace {

constexpr double kEpsHalf = 0x1p-10;  // eps_acc of FP16 accumulation

double c_max_of(const Order& order, Type type, int64_t k) {
  if (type == Type::kFp32) return sdcguard::entry_c_max(k, 1, 64);
  const StepModel step = order.rule == Rule::kTensorCore ? order.step : StepModel{16, 2};
  return sdcguard::entry_c_max(k, static_cast<uint32_t>(step.products), static_cast<uint32_t>(step.guard_bits));
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<double> entry_bounds(const Order& order, const Product& product, int64_t batch_entry, int64_t column,
                                 const std::vector<float>& clean) {
  const View a = view_of(product.a, batch_entry);
  const View b = view_of(product.b, batch_entry);
  const size_t m = static_cast<size_t>(product.m);
  std::vector<double> gamma(m, 0.0);
  std::vector<double> squares(m, 0.0);
  std::vector<double> magnitudes(m, 0.0);
  const auto add = [&](size_t i, int64_t l, double y) {
    const double term = static_cast<double>(a.at(static_cast<int64_t>(i), l)) * y;
    gamma[i] += term;
    squares[i] += term * term;
    magnitudes[i] += std::fabs(term);
  };
  if (a.row_stride == 1) {
    for (int64_t l = 0; l < product.k; ++l) {
      const double y = b.at(l, column);
      for (size_t i = 0; i < m; ++i) add(i, l, y);
    }
  } else {
    std::vector<double> y(static_cast<size_t>(product.k));
    for (int64_t l = 0; l < product.k; ++l) y[static_cast<size_t>(l)] = b.at(l, column);
    for (size_t i = 0; i < m; ++i) {
      for (int64_t l = 0; l < product.k; ++l) add(i, l, y[static_cast<size_t>(l)]);
    }
  }
  const double eps_acc = product.compute == Compute::kFp16 ? kEpsHalf : sdcguard::kEpsFp32;
  const double c_max = c_max_of(order, product.a.type, product.k);
  std::vector<double> weights(m);
  std::vector<double> ratios;
  for (size_t i = 0; i < m; ++i) {
    weights[i] = sdcguard::entry_weight(gamma[i], std::sqrt(squares[i]), eps_acc);
    const double ratio = std::fabs(gamma[i] - static_cast<double>(clean[i])) / weights[i];
    if (std::isfinite(ratio)) ratios.push_back(ratio);
  }
  const bool has_median = static_cast<int64_t>(ratios.size()) >= sdcguard::kEntryMedianMin;
  const double scale =
      has_median ? sdcguard::entry_scale(median_of(std::move(ratios))) : std::numeric_limits<double>::infinity();
  std::vector<double> tau(m);
  for (size_t i = 0; i < m; ++i) {
    const double cap = sdcguard::entry_cap(magnitudes[i], c_max, eps_acc, 0.0);
    tau[i] = has_median ? sdcguard::entry_tau(scale, weights[i], cap) : cap;
  }
  return tau;
}

}  // namespace hostcuda::gemm

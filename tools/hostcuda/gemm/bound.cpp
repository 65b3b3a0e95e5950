// SPDX-License-Identifier: MIT
// Entry bound of a clean line.
#include "bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hostcuda::gemm {
namespace {

constexpr double kEps = 0x1p-23;
constexpr double kEpsHalf = 0x1p-10;
constexpr int64_t kMedianRows = 64;

double c_max(const Order& order, Type type, int64_t k) {
  const bool tensor_core = order.rule == Rule::kTensorCore && type != Type::kFp32;
  const double products = tensor_core ? order.step.products : 4;
  const double guard = tensor_core ? std::ldexp(1.0, order.step.guard_bits) : 1.0;
  const double length = static_cast<double>(k);
  return length * ((products + 1) / guard + 1) / products + length / 64 + 16;
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
  const double eps_acc = product.compute == Compute::kFp16 ? kEpsHalf : kEps;
  const double ceiling = c_max(order, product.a.type, product.k) * eps_acc;
  std::vector<double> w(m);
  std::vector<double> ratios;
  for (size_t i = 0; i < m; ++i) {
    w[i] = kEps * std::sqrt(gamma[i] * gamma[i] + squares[i]);
    const double d = std::fabs(gamma[i] - static_cast<double>(clean[i]));
    if (std::isfinite(d) && std::isfinite(w[i]) && w[i] > 0) ratios.push_back(d / w[i]);
  }
  const bool has_median = product.m >= kMedianRows && !ratios.empty();
  const double factor =
      has_median ? 32 * std::max(0.25, 1.4826 * median_of(std::move(ratios))) : std::numeric_limits<double>::infinity();
  std::vector<double> tau(m);
  for (size_t i = 0; i < m; ++i) {
    const double most = ceiling * magnitudes[i];
    tau[i] = has_median ? std::min(factor * w[i], most) : most;
  }
  return tau;
}

}  // namespace hostcuda::gemm

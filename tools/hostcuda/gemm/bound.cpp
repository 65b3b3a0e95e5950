// SPDX-License-Identifier: MIT
// Entry bound of a clean line.
#include "bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/entry_bound.h"

namespace hostcuda::gemm {
namespace {

constexpr double kEpsHalf = 0x1p-10;  // eps_acc of FP16 accumulation
constexpr double kEpsFp64 = 0x1p-52;

// What the sums of one product lose by the accumulator: c_max eps of kernels/entry_bound.h.
struct Loss {
  double c_max, eps;
};

Loss loss_of(const Order& order, const Product& product) {
  const int64_t k = product.k;
  if (product.compute == Compute::kFp64) return {sdcguard::entry_c_max(k, 1, 64), kEpsFp64};
  const double eps = product.compute == Compute::kFp16 ? kEpsHalf : sdcguard::kEpsFp32;
  if (product.a.type == Type::kFp32 && product.compute != Compute::kTf32) {
    return {sdcguard::entry_c_max(k, 1, 64), eps};
  }
  Chain chain = chain_of(order, product.a.type, product.b.type, product.compute);
  if (chain.rule != Rule::kTensorCore) {
    Order h100;
    std::string error;
    parse_order("h100", &h100, &error);
    chain = chain_of(h100, product.a.type, product.b.type, product.compute);
  }
  const auto products = static_cast<uint32_t>(chain.step.products);
  if (chain.step.guard_bits >= 0) {
    return {sdcguard::entry_c_max(k, products, static_cast<uint32_t>(chain.step.guard_bits)), eps};
  }
  // An accumulator of 23 + g fraction bits: its eps is coarser and its guard bits are none. Parts that are promoted
  // lose in their own products alone, and one FP32 rounding each.
  const double coarse = std::ldexp(sdcguard::kEpsFp32, -chain.step.guard_bits);
  if (chain.promotion == 0) return {sdcguard::entry_c_max(k, products, 0), coarse};
  const double parts = std::ceil(static_cast<double>(k) / static_cast<double>(chain.promotion));
  return {sdcguard::entry_c_max(std::min(k, chain.promotion), products, 0) + parts * sdcguard::kEpsFp32 / coarse,
          coarse};
}

double eps_in_of(Compute compute) {
  return compute == Compute::kTf32 ? sdcguard::kEpsTf32Inputs : 0.0;
}

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Sums over k of each row of the line.
struct LineSums {
  std::vector<double> gamma, root, magnitude;
};

// Real: double, long double where the products themselves are FP64.
template <typename Real>
LineSums line_sums(const Product& product, int64_t batch_entry, int64_t column) {
  const View a = view_of(product.a, batch_entry);
  const View b = view_of(product.b, batch_entry);
  const size_t m = static_cast<size_t>(product.m);
  std::vector<Real> gamma(m, Real{0});
  std::vector<Real> squares(m, Real{0});
  std::vector<Real> magnitudes(m, Real{0});
  const auto add = [&](size_t i, int64_t l, Real y) {
    const auto row = static_cast<int64_t>(i);
    const Real term = static_cast<Real>(a.at64(row, l)) * y * static_cast<Real>(scale_at(product, row, column, l));
    gamma[i] += term;
    squares[i] += term * term;
    magnitudes[i] += std::fabs(term);
  };
  if (a.row_stride == 1) {
    for (int64_t l = 0; l < product.k; ++l) {
      const Real y = b.at64(l, column);
      for (size_t i = 0; i < m; ++i) add(i, l, y);
    }
  } else {
    std::vector<Real> y(static_cast<size_t>(product.k));
    for (int64_t l = 0; l < product.k; ++l) y[static_cast<size_t>(l)] = b.at64(l, column);
    for (size_t i = 0; i < m; ++i) {
      for (int64_t l = 0; l < product.k; ++l) add(i, l, y[static_cast<size_t>(l)]);
    }
  }
  LineSums sums;
  for (size_t i = 0; i < m; ++i) {
    sums.gamma.push_back(static_cast<double>(gamma[i]));
    sums.root.push_back(static_cast<double>(std::sqrt(squares[i])));
    sums.magnitude.push_back(static_cast<double>(magnitudes[i]));
  }
  return sums;
}

}  // namespace

std::vector<double> entry_bounds(const Order& order, const Product& product, int64_t batch_entry, int64_t column,
                                 const std::vector<double>& clean) {
  const size_t m = static_cast<size_t>(product.m);
  if (product.compute == Compute::kInt32) return std::vector<double>(m, 0.0);
  const LineSums sums = product.compute == Compute::kFp64 ? line_sums<long double>(product, batch_entry, column)
                                                          : line_sums<double>(product, batch_entry, column);
  const Loss loss = loss_of(order, product);
  const double eps_in = eps_in_of(product.compute);
  std::vector<double> weights(m);
  std::vector<double> ratios;
  for (size_t i = 0; i < m; ++i) {
    weights[i] = sdcguard::entry_weight(sums.gamma[i], sums.root[i], loss.eps);
    const double ratio = std::fabs(sums.gamma[i] - clean[i]) / weights[i];
    if (std::isfinite(ratio)) ratios.push_back(ratio);
  }
  const bool has_median = static_cast<int64_t>(ratios.size()) >= sdcguard::kEntryMedianMin;
  const double scale =
      has_median ? sdcguard::entry_scale(median_of(std::move(ratios))) : std::numeric_limits<double>::infinity();
  std::vector<double> tau(m);
  for (size_t i = 0; i < m; ++i) {
    const double cap = sdcguard::entry_cap(sums.magnitude[i], loss.c_max, loss.eps, eps_in);
    tau[i] = has_median ? sdcguard::entry_tau(scale, weights[i], cap) : cap;
  }
  return tau;
}

}  // namespace hostcuda::gemm

// SPDX-License-Identifier: MIT
// The direct probe against the kernels: every residual, scale, peak and sigma, bit for bit.
#include "tests/stage/direct_probe.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/stage/device.h"

namespace sdcguard::stage {
namespace {

using reference::Kind;
using reference::Matrix;
using reference::Order;

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Runs the kernels on the call, then the direct probe; what differs, empty: nothing.
std::string compare(Call& call) {
  const Result kernels = run(call);
  if (kernels.params.plan != Plan::kLine) return "no line plan";
  DirectResult direct;
  DirectProbe().run(
      {.params = &kernels.params, .a = call.a.values.data(), .b = call.b.values.data(), .p = call.p.values.data()},
      &direct);
  const auto lines = static_cast<size_t>(kernels.params.lines);
  const uint32_t classes = kernels.params.classes;
  std::vector<float> residuals, scales;
  for (size_t cell = 0; cell < lines * classes; ++cell) {
    for (uint32_t d = 0; d < kDraws; ++d) residuals.push_back(kernels.cells[cell * (kDraws + 1) + d]);
    scales.push_back(kernels.cells[cell * (kDraws + 1) + kDraws]);
  }
  const std::vector<uint32_t> dirty(kernels.listed.begin(), kernels.listed.begin() + kernels.verdict.lines_dirty);
  std::string differs;
  if (!same_bits(residuals, direct.residuals)) differs += " residuals";
  if (!same_bits(scales, direct.scales)) differs += " scales";
  if (!same_bits(read_array<float>(kernels.params.line_peak, lines), direct.line_peak)) differs += " peaks";
  if (!same_bits(read_array<float>(kernels.params.line_median, lines), direct.line_median)) differs += " medians";
  if (kernels.verdict.sigma != direct.sigma) differs += " sigma";
  if (kernels.verdict.sigma_measured != direct.sigma_measured) differs += " sigma_measured";
  if (kernels.verdict.worst != direct.worst) differs += " worst";
  if (dirty != direct.dirty) differs += " dirty";
  return differs;
}

Call call_of(Kind kind, Order order, DataType type, int64_t n1, int64_t n2, int64_t n3, uint64_t seed) {
  Call call;
  call.type = type;
  if (order == Order::kSequential) call.tensor_core = {1, 20};
  call.seed = seed;
  call.a = Matrix(n1, n2);
  call.b = Matrix(n2, n3);
  fill(kind, type, seed, call.a, call.b);
  call.p = multiply(order, call.a, call.b);
  return call;
}

TEST(DirectProbe, LeavesTheBitsOfTheKernels) {
  struct Shape {
    int64_t n1, n2, n3;
  };
  uint64_t seed = 300;
  std::vector<Kind> kinds(std::begin(reference::kKinds), std::end(reference::kKinds));
  kinds.insert(kinds.end(), std::begin(reference::kStructuredKinds), std::end(reference::kStructuredKinds));
  for (const Kind kind : kinds) {
    // Whole and broken tiles, panels and reads; 8 to 64 classes; one group of vectors to eight.
    for (const Shape& s : {Shape{33, 200, 130}, Shape{8, 64, 1100}, Shape{2, 31, 2100}, Shape{70, 515, 96}}) {
      ++seed;
      const Order order = seed % 2 == 0 ? Order::kTruncating : Order::kRounded16;
      Call call = call_of(kind, order, seed % 3 == 0 ? DataType::kF16 : DataType::kBF16, s.n1, s.n2, s.n3, seed);
      EXPECT_EQ(compare(call), "") << name_of(kind) << " " << s.n1 << " " << s.n2 << " " << s.n3;
    }
  }
}

TEST(DirectProbe, SeesWhatTheKernelsSee) {
  Call one = call_of(Kind::kGauss, Order::kTruncating, DataType::kBF16, 40, 256, 200, 7);
  one.p.at(17, 60) += 5.0f;
  EXPECT_EQ(compare(one), "");
  // One number added to a line: only its sum shows it.
  Call shifted = call_of(Kind::kGauss, Order::kTruncating, DataType::kBF16, 40, 256, 200, 8);
  for (int64_t j = 0; j < 200; ++j) shifted.p.at(3, j) += 1.0f;
  EXPECT_EQ(compare(shifted), "");
  Call wide = call_of(Kind::kGauss, Order::kRounded16, DataType::kF16, 40, 256, 200, 9);
  for (int64_t i = 0; i < 40; ++i) wide.p.at(i, 11 + i % 5) += 0.5f;
  EXPECT_EQ(compare(wide), "");
  // Must fail: the comparison sees one bit of one entry.
  Call other = call_of(Kind::kGauss, Order::kTruncating, DataType::kBF16, 40, 256, 200, 10);
  const Result kernels = run(other);
  DirectResult before, after;
  DirectProbe probe;
  const DirectCall direct{&kernels.params, other.a.values.data(), other.b.values.data(), other.p.values.data()};
  probe.run(direct, &before);
  uint32_t word = 0;
  std::memcpy(&word, &other.p.values[777], sizeof word);
  word ^= 1u << 12;
  std::memcpy(&other.p.values[777], &word, sizeof word);
  probe.run(direct, &after);
  EXPECT_FALSE(same_bits(before.residuals, after.residuals));
}

}  // namespace
}  // namespace sdcguard::stage

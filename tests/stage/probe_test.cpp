// SPDX-License-Identifier: MIT
// Fold, operand pass and product pass against plain FP64 references. Every bound is u times the length of the longest
// FP32 sum on the way times the sum of magnitudes (MATH.md "rounding of the verifier"), never a chosen tolerance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/look.h"
#include "tests/stage/device.h"

namespace sdcguard::stage {
namespace {

using reference::Kind;
using reference::Matrix;
using reference::Order;

constexpr double kU = 0x1p-24;

struct Shape {
  int64_t n1, n2, n3, batch;
};
const Shape kShapes[] = {{64, 96, 128, 1}, {65, 77, 130, 1}, {33, 160, 1000, 1}, {1, 100, 520, 1},
                         {130, 48, 72, 1}, {64, 33, 5, 1},   {40, 50, 90, 3}};
const Layout kLayouts[] = {{true, 0, 0}, {false, 0, 0}, {true, 3, 1}, {false, 5, 1}};

Call call_of(const Shape& shape, Kind kind, DataType type, Order order = Order::kSequential) {
  Call call;
  call.type = type;
  call.a = Matrix(shape.n1, shape.n2, shape.batch);
  call.b = Matrix(shape.n2, shape.n3, shape.batch);
  fill(kind, type, 11 + static_cast<uint64_t>(shape.n2), call.a, call.b);
  call.p = multiply(order, call.a, call.b);
  if (type == DataType::kF32) call.tensor_core = {1, 20};
  return call;
}

TEST(Fold, ClassSumsMeanAndRootMeanSquare) {
  int at = 0;
  for (const Shape& shape : kShapes) {
    for (DataType type : {DataType::kBF16, DataType::kF16, DataType::kF32}) {
      Call call = call_of(shape, at % 2 == 0 ? Kind::kGauss : Kind::kPositive, type);
      call.layout_b = kLayouts[at++ % 4];
      const Result r = run(call);
      const ProbeParams& p = r.params;
      const auto sums = read_array<float>(p.fold_sums, static_cast<uint64_t>(p.fold_batch * p.n2) * p.vectors);
      const auto mean = read_array<float>(p.fold_mean, static_cast<uint64_t>(p.fold_batch * p.n2));
      const auto rms = read_array<float>(p.fold_rms, static_cast<uint64_t>(p.fold_batch * p.n2));
      const auto words = static_cast<uint64_t>((p.n3 + 31) / 32);
      const auto signs = read_array<uint32_t>(p.signs, kDraws * words);
      for (int64_t n = 0; n < p.fold_batch; ++n) {
        for (int64_t k = 0; k < p.n2; ++k) {
          std::vector<double> exact(kDraws * p.classes, 0.0);
          std::vector<double> magnitude(p.classes, 0.0);
          double sum = 0.0;
          double all = 0.0;
          double squares = 0.0;
          for (int64_t j = 0; j < p.n3; ++j) {
            const double v = static_cast<double>(call.b.at(k, j, n));
            squares += v * v;
            const uint32_t c = static_cast<uint32_t>(j % p.classes);
            for (uint32_t d = 0; d < kDraws; ++d) {
              const bool minus = reference::is_minus(call.seed, d, p.n3, p.classes, j);
              ASSERT_EQ(minus, ((signs[d * words + static_cast<uint64_t>(j / 32)] >> (j % 32)) & 1u) != 0);
              exact[d * p.classes + c] += minus ? -v : v;
            }
            magnitude[c] += std::fabs(v);
            sum += v;
            all += std::fabs(v);
          }
          const double width = std::ceil(static_cast<double>(p.n3) / p.classes);
          for (uint32_t v = 0; v < p.vectors; ++v) {
            const double got = static_cast<double>(sums[static_cast<size_t>((n * p.n2 + k) * p.vectors + v)]);
            if (v >= kDraws * p.classes) {
              ASSERT_EQ(got, 0.0);
              continue;
            }
            ASSERT_LE(std::fabs(got - exact[v]), width * kU * magnitude[v % p.classes]) << "k " << k << " vector " << v;
          }
          const double m = sum / static_cast<double>(p.n3);
          const double mean_error = 18 * kU * all / static_cast<double>(p.n3);  // partial sums of at most 16
          ASSERT_LE(std::fabs(static_cast<double>(mean[static_cast<size_t>(n * p.n2 + k)]) - m), mean_error);
          const double root = std::sqrt(squares / static_cast<double>(p.n3));
          ASSERT_NEAR(static_cast<double>(rms[static_cast<size_t>(n * p.n2 + k)]), root, 2 * kU * root);
        }
      }
    }
  }
}

TEST(Fold, ManyColumnsMakeSignsPanelByPanel) {
  // Beyond 65,536 columns the sign bits of one draw no longer fit in shared memory.
  Call call;
  call.a = Matrix(1, 3);
  call.b = Matrix(3, 70001);
  fill(Kind::kGauss, call.type, 3, call.a, call.b);
  call.p = multiply(Order::kSequential, call.a, call.b);
  const Result r = run(call);
  EXPECT_EQ(r.params.classes, 64u);
  const auto sums = read_array<float>(r.params.fold_sums, 3ull * r.params.vectors);
  for (uint32_t c = 0; c < 64; ++c) {
    double exact[2] = {0.0, 0.0};
    double magnitude = 0.0;
    for (int64_t j = c; j < 70001; j += 64) {
      const double v = static_cast<double>(call.b.at(1, j));
      for (uint32_t d = 0; d < 2; ++d) exact[d] += reference::is_minus(call.seed, d, 70001, 64, j) ? -v : v;
      magnitude += std::fabs(v);
    }
    for (uint32_t d = 0; d < 2; ++d) {
      EXPECT_LE(std::fabs(static_cast<double>(sums[r.params.vectors + d * 64 + c]) - exact[d]), 1100 * kU * magnitude);
    }
  }
  EXPECT_EQ(r.outcome, Outcome::kClean);
  call.p.at(0, 69999) += 1.0f;
  EXPECT_EQ(run(call).outcome, Outcome::kCorrected);
}

TEST(Operand, DotsAndNoiseScale) {
  int at = 0;
  for (const Shape& shape : kShapes) {
    for (Kind kind : {Kind::kGauss, Kind::kOutlierChannels, Kind::kTiny, Kind::kHuge, Kind::kZeroRows}) {
      Call call = call_of(shape, kind, at % 3 == 2 ? DataType::kF32 : DataType::kBF16);
      call.layout_a = kLayouts[at % 4];
      call.layout_b = kLayouts[(at + 1) % 4];
      ++at;
      const Result r = run(call);
      const ProbeParams& p = r.params;
      const auto sums = read_array<float>(p.fold_sums, static_cast<uint64_t>(p.fold_batch * p.n2) * p.vectors);
      const auto mean = read_array<float>(p.fold_mean, static_cast<uint64_t>(p.fold_batch * p.n2));
      const auto dots = read_array<float>(p.line_dots, static_cast<uint64_t>(p.lines) * p.vectors);
      const auto noise = read_array<double>(p.line_noise, static_cast<uint64_t>(p.lines) * 2);
      const auto line_sums = read_array<double>(p.line_sums, static_cast<uint64_t>(p.lines) * 2);
      const std::vector<reference::Noise> expected = noise_of(call.a, call.b);
      for (int64_t line = 0; line < p.lines; ++line) {
        const int64_t n = line / p.n1;
        for (uint32_t v = 0; v < kDraws * p.classes; ++v) {
          double exact = 0.0;
          double magnitude = 0.0;
          for (int64_t k = 0; k < p.n2; ++k) {
            const double x = static_cast<double>(call.a.at(line % p.n1, k, n)) *
                             static_cast<double>(sums[static_cast<size_t>((n * p.n2 + k) * p.vectors + v)]);
            exact += x;
            magnitude += std::fabs(x);
          }
          // At most 32 terms in FP32, then error-free, eight parts in FP64, one rounding.
          ASSERT_LE(std::fabs(static_cast<double>(dots[static_cast<size_t>(line) * p.vectors + v]) - exact),
                    35 * kU * magnitude + 0x1p-149)
              << name_of(kind) << " line " << line << " vector " << v;
        }
        double along = 0.0;
        for (int64_t k = 0; k < p.n2; ++k) {
          along += std::fabs(static_cast<double>(call.a.at(line % p.n1, k, n)) *
                             static_cast<double>(mean[static_cast<size_t>(n * p.n2 + k)]));
        }
        double all = 0.0;  // what the mean's own error can add: 18 u mean|B| a row of B
        for (int64_t k = 0; k < p.n2; ++k) {
          double row = 0.0;
          for (int64_t j = 0; j < p.n3; ++j) row += std::fabs(static_cast<double>(call.b.at(k, j, n)));
          all += std::fabs(static_cast<double>(call.a.at(line % p.n1, k, n))) * row / static_cast<double>(p.n3);
        }
        double sum = 0.0;
        double reach = 0.0;
        for (int64_t k = 0; k < p.n2; ++k) {
          const double x = static_cast<double>(call.a.at(line % p.n1, k, n));
          double row = 0.0;
          double squares = 0.0;
          for (int64_t j = 0; j < p.n3; ++j) {
            const double v = static_cast<double>(call.b.at(k, j, n));
            row += v;
            squares += v * v;
          }
          sum += x * row / static_cast<double>(p.n3);
          reach += std::fabs(x) * std::sqrt(squares / static_cast<double>(p.n3)) + 0x1p-126;
        }
        ASSERT_LE(std::fabs(line_sums[static_cast<size_t>(2 * line)] - sum),
                  17 * kU * along + 18 * kU * all + 0x1p-149);
        ASSERT_NEAR(line_sums[static_cast<size_t>(2 * line + 1)], reach, 20 * kU * reach);
        const double e = 17 * kU * along + 18 * kU * all;
        const reference::Noise& want = expected[static_cast<size_t>(line)];
        ASSERT_LE(std::fabs(noise[static_cast<size_t>(2 * line)] - want.mean_energy),
                  2 * e * std::sqrt(want.mean_energy) + e * e + 8 * kU * want.mean_energy);
        // rms in FP32, its products with A and the 16-term sums of squares.
        ASSERT_LE(std::fabs(noise[static_cast<size_t>(2 * line + 1)] - want.addend_energy),
                  24 * kU * want.addend_energy)
            << name_of(kind) << " line " << line;
      }
    }
  }
}

// Largest bound that the verifier's rounding of one cell's residual can reach.
double residual_bound(const Call& call, const ProbeParams& p, int64_t line, uint32_t c) {
  const int64_t n = line / p.n1;
  double products = 0.0;
  double outputs = 0.0;
  double width = 0.0;
  for (int64_t j = c; j < p.n3; j += p.classes) {
    double abs_sum;
    double square_sum;
    exact_entry(call.a, call.b, line % p.n1, j, n, &abs_sum, &square_sum);
    products += abs_sum;
    outputs += std::fabs(static_cast<double>(call.p.at(line % p.n1, j, n)));
    width += 1.0;
  }
  return kU * ((width + 37.0) * products + (width + 4.0) * outputs) + 0x1p-149;
}

TEST(Product, ResidualsAndScales) {
  int at = 0;
  for (const Shape& shape : kShapes) {
    for (Kind kind : {Kind::kGauss, Kind::kCancellingRows, Kind::kHuge, Kind::kPadded}) {
      Call call = call_of(shape, kind, at % 2 == 0 ? DataType::kBF16 : DataType::kF32, Order::kTruncating);
      call.layout_a = kLayouts[at % 4];
      call.layout_b = kLayouts[(at + 2) % 4];
      ++at;
      const Result r = run(call);
      const ProbeParams& p = r.params;
      const std::vector<double> want = cells_of(call.a, call.b, call.p, call.seed, p.classes);
      std::vector<double> z;
      const auto peaks = read_array<float>(p.line_peak, static_cast<uint64_t>(p.lines));
      const auto medians = read_array<float>(p.line_median, static_cast<uint64_t>(p.lines));
      const auto dots = read_array<float>(p.line_dots, static_cast<uint64_t>(p.lines) * p.vectors);
      float worst = 0.0f;
      for (int64_t line = 0; line < p.lines; ++line) {
        double peak = 0.0;
        std::vector<double> of_line;
        for (uint32_t c = 0; c < p.classes; ++c) {
          const size_t cell = (static_cast<size_t>(line) * p.classes + c) * (kDraws + 1);
          for (uint32_t d = 0; d < kDraws; ++d) {
            ASSERT_LE(std::fabs(static_cast<double>(r.cells[cell + d]) - want[cell + d]),
                      residual_bound(call, p, line, c))
                << name_of(kind) << " line " << line << " class " << c;
            if (want[cell + kDraws] > 0.0 && p.batch == 1) {
              // The verifier's own rounding on top (MATH.md "residual").
              const double verifier =
                  static_cast<double>(p.verifier_scale) * kU *
                  static_cast<double>(dots[static_cast<size_t>(line) * p.vectors + d * p.classes + c]);
              z.push_back(std::fabs(static_cast<double>(r.cells[cell + d])) /
                          std::hypot(static_cast<double>(r.cells[cell + kDraws]), verifier));
              if (z.back() > 0.0) of_line.push_back(z.back());
              peak = std::max(peak, z.back());
            }
          }
          // s^2 is made of FP32 sums of 16 squares at most; M adds the square of a sum that may cancel.
          ASSERT_NEAR(static_cast<double>(r.cells[cell + kDraws]), want[cell + kDraws],
                      want[cell + kDraws] * 0x1p-12 + kU * residual_bound(call, p, line, c));
        }
        if (p.batch == 1) {
          ASSERT_NEAR(static_cast<double>(peaks[static_cast<size_t>(line)]), peak, peak * 0x1p-21);
        }
        if (p.batch == 1 && p.plan == Plan::kLine) {
          const auto index = static_cast<size_t>(line);
          std::sort(of_line.begin(), of_line.end());
          const double median = of_line.size() < 8 ? 0.0 : of_line[(of_line.size() - 1) / 2];
          ASSERT_NEAR(static_cast<double>(medians[index]), median, median * 0x1p-21);
          const float limit = look_limit(p.look_scale, r.verdict.sigma, medians[index]);
          worst = std::max(worst, p.look_scale * (peaks[index] / limit));
        }
      }
      if (p.batch == 1 && p.plan == Plan::kLine) {
        std::erase(z, 0.0);  // exact cells say nothing of the others
        // The histogram's bins are a quarter octave at most, its unit 2^-8.
        const double low = std::max(0.5, reference::sigma_of(z, 4.0));
        const double high = std::max(0.5, reference::sigma_of(z, 5.0));
        ASSERT_GE(static_cast<double>(r.verdict.sigma_measured), low - 0x1p-8);
        ASSERT_LE(static_cast<double>(r.verdict.sigma_measured), high + 0x1p-8);
        ASSERT_EQ(r.verdict.worst, worst);
      }
      ASSERT_EQ(r.outcome, Outcome::kClean) << name_of(kind) << " " << shape.n1 << "x" << shape.n2 << "x" << shape.n3;
      ASSERT_EQ(r.verdict.lines_dirty, p.plan == Plan::kRecompute ? static_cast<uint64_t>(p.lines) : 0u);
    }
  }
}

// ---- line sum -----------------------------------------------------------------------------------------------------

// One number added to all entries of a line: from twice the bound on it is seen in every line, below half of it, which
// rounding alone may reach, in none. Widths of the classes are even, so that no signed sum sees it.
TEST(LineSum, AShiftIsSeenFromTwiceTheBound) {
  int at = 0;
  for (Order order : {Order::kTruncating, Order::kRounded16, Order::kSequential}) {
    for (Kind kind : {Kind::kGauss, Kind::kPositive, Kind::kConstant, Kind::kOutlierChannels, Kind::kCancellingRows}) {
      for (const bool marked : {false, true}) {
        Call call = call_of({32, 192, 512, 1}, kind, DataType::kBF16, order);
        call.layout_b = kLayouts[at++ % 4];
        if (marked) {
          // Its finite part is large, so that a mean that holds it would be seen.
          for (int64_t k = 0; k < 192; ++k) call.b.at(k, 17) = 64.0f;
          call.b.at(3, 17) = std::numeric_limits<float>::quiet_NaN();
          for (int64_t i = 0; i < 32; ++i) call.p.at(i, 17) = std::numeric_limits<float>::quiet_NaN();
        }
        const Result clean = run(call);
        ASSERT_EQ(clean.params.plan, Plan::kLine);
        ASSERT_EQ(clean.verdict.columns_nonfinite, marked ? 1u : 0u);
        EXPECT_EQ(clean.verdict.lines_dirty, 0u) << name_of(kind);
        const int64_t line = 1 + at % 30;
        const auto sums = read_array<double>(clean.params.line_sums, 64);
        const double bound = static_cast<double>(clean.params.line_sum_scale) * sums[static_cast<size_t>(2 * line + 1)];
        for (const double shift : {2.2 * bound, -2.2 * bound, 1e3 * bound}) {
          Call shifted = call;
          for (int64_t j = 0; j < 512; ++j) {
            shifted.p.at(line, j) = static_cast<float>(static_cast<double>(call.p.at(line, j)) + shift);
          }
          const Result r = run(shifted);
          EXPECT_EQ(r.verdict.lines_dirty, 1u) << name_of(kind) << " shift " << shift;
          EXPECT_EQ(r.listed.empty() ? -1 : static_cast<int64_t>(r.listed[0]), line);
          EXPECT_TRUE(std::isinf(r.verdict.worst));
        }
      }
    }
  }
}

double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(Finish, FusedAndUnfusedDeliverTheExpression) {
  struct Case {
    DataType type_d;
    float alpha, beta;
    bool bias;
    uint32_t epilogue;
    bool apart, device_scalars;
    Layout layout;
  };
  const Case cases[] = {
      {DataType::kBF16, 1.0f, 0.0f, false, 0, true, false, {true, 0, 0}},
      {DataType::kF16, 0.5f, 0.0f, true, kEpilogueRelu, true, true, {true, 3, 1}},
      {DataType::kF32, 1.5f, -2.0f, true, 0, true, false, {true, 1, 0}},
      {DataType::kBF16, 1.0f, 1.0f, false, 0, false, false, {true, 0, 0}},
      {DataType::kBF16, 1.0f, 0.0f, true, kEpilogueGelu, true, false, {true, 2, 0}},
      {DataType::kF16, -1.0f, 0.5f, true, kEpilogueGelu, false, true, {true, 0, 1}},
      {DataType::kF32, 0.0f, 1.0f, true, 0, true, false, {true, 0, 0}},
  };
  for (const Case& c : cases) {
    for (const Shape& shape : {Shape{64, 40, 128, 1}, Shape{37, 40, 93, 2}}) {
      Call call = call_of(shape, Kind::kGauss, DataType::kBF16);
      call.delivers = true;
      call.type_d = c.type_d;
      call.layout_d = c.layout;
      call.alpha = c.alpha;
      call.beta = c.beta;
      call.epilogue = c.epilogue;
      call.c_apart = c.apart;
      call.scalars_on_device = c.device_scalars;
      call.c = Matrix(shape.n1, shape.n3, shape.batch);
      Matrix bias(1, shape.n3);
      fill(Kind::kGauss, c.type_d, 5, call.c, bias);
      if (c.bias) call.bias = bias;
      if (c.alpha == 0.0f) call.p.at(0, 0) = std::numeric_limits<float>::quiet_NaN();  // must not be referenced
      const Result r = run(call);
      EXPECT_EQ(r.params.fused_finish, c.apart ? 1 : 0);
      for (int64_t n = 0; n < shape.batch; ++n) {
        for (int64_t i = 0; i < shape.n1; ++i) {
          for (int64_t j = 0; j < shape.n3; ++j) {
            const float offset = c.bias ? bias.at(0, j) : 0.0f;
            const float with_c = c.beta != 0.0f ? std::fma(c.beta, call.c.at(i, j, n), offset) : offset;
            float v = c.alpha == 0.0f ? with_c : std::fma(c.alpha, call.p.at(i, j, n), with_c);
            if ((c.epilogue & kEpilogueRelu) != 0) v = v > 0.0f ? v : 0.0f;
            const float got = r.d.at(i, j, n);
            if ((c.epilogue & kEpilogueGelu) == 0) {
              ASSERT_EQ(got, reference::round_to(c.type_d, static_cast<double>(v))) << i << " " << j;
            } else {
              // GELU in FP32: a few units of 2^-23 of |x| (its slope is at most 1.13), then the cast.
              const double want = gelu(static_cast<double>(v));
              const double slack = 0x1p-20 * std::fabs(static_cast<double>(v)) + 0x1p-26;
              ASSERT_GE(got, reference::round_to(c.type_d, want - slack)) << v;
              ASSERT_LE(got, reference::round_to(c.type_d, want + slack)) << v;
            }
          }
        }
      }
    }
  }
}

TEST(Finish, Fp16OverflowsToInfinity) {
  Call call = call_of({64, 40, 64, 1}, Kind::kGauss, DataType::kBF16);
  call.delivers = true;
  call.type_d = DataType::kF16;
  call.alpha = 0x1p16f;
  const Result r = run(call);
  int infinite = 0;
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 64; ++j) {
      ASSERT_EQ(r.d.at(i, j), reference::round_to(DataType::kF16, 65536.0 * static_cast<double>(call.p.at(i, j))));
      infinite += std::isinf(r.d.at(i, j)) ? 1 : 0;
    }
  }
  EXPECT_GT(infinite, 1000);
  EXPECT_EQ(r.outcome, Outcome::kClean);
}

}  // namespace
}  // namespace sdcguard::stage

// SPDX-License-Identifier: MIT
// The tail fit on planted distributions: what is known of them must come out, and the stated rate must cover the true.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "tools/calibrate/tail.h"

namespace sdcguard {
namespace {

// The value that a planted distribution exceeds with a given probability.
using Quantile = std::function<double(double)>;

double where(const std::function<double(double)>& survival, double p, double low, double high) {
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (survival(middle) > p ? low : high) = middle;
  }
  return high;
}

// |x| of a Gaussian.
double gaussian(double p) {
  return where([](double x) { return std::erfc(x / std::sqrt(2.0)); }, p, 0, 40);
}

// |x| of Student's t with 4 degrees of freedom, xi = 1/4. With a = x / sqrt(4 + x^2) and d = 1 - a,
// P(|t| > x) = d^2 (3 - d) / 2: no difference of large numbers, however far out.
double student4(double p) {
  const double d = where([](double u) { return -u * u * (3 - u) / 2; }, -p, 0, 1);
  return 2 * (1 - d) / std::sqrt(d * (2 - d));
}

constexpr double kShare = 1e-3;  // of the values that exceed the limit
constexpr double kTests = 4096;  // values of a product
constexpr double kRate = 1e-6;

// What `values` measured values of the distribution leave above its quantile kShare.
Exceedances measure(const Quantile& quantile, uint64_t values, std::mt19937_64& random) {
  Exceedances measured;
  measured.limit = quantile(kShare);
  measured.values = values;
  measured.products = static_cast<uint64_t>(static_cast<double>(values) / kTests);
  std::uniform_real_distribution<double> uniform(0, 1);
  uint64_t above = std::poisson_distribution<uint64_t>(kShare * static_cast<double>(values))(random);
  while (above-- > 0) {
    const double value = quantile(kShare * (1 - uniform(random)));
    measured.kept.push_back({std::max(value, std::nextafter(measured.limit, HUGE_VAL)), random() % measured.products});
  }
  return measured;
}

TailReport report_of(const Exceedances& measured, double rate = kRate, uint64_t seed = 1) {
  TailReport report;
  std::string error;
  EXPECT_TRUE(fit_tail(measured, rate, kTests, seed, &report, &error)) << error;
  return report;
}

bool warns(const TailReport& report, const std::string& of) {
  return std::any_of(report.warnings.begin(), report.warnings.end(),
                     [&](const std::string& warning) { return warning.find(of) != warning.npos; });
}

TEST(Tail, QuantileAndSurvivalAreInverse) {
  for (const double xi : {0.0, 1e-12, 0.05, 0.4}) {
    const GeneralizedPareto shape{xi, 0.7};
    EXPECT_EQ(shape.quantile(1), 0);
    for (const double p : {0.9, 1e-3, 1e-20}) EXPECT_NEAR(shape.survival(shape.quantile(p)) / p, 1, 1e-12) << xi;
  }
  // A vanishing xi is the exponential, by its limit.
  EXPECT_NEAR(GeneralizedPareto({1e-12, 2}).quantile(1e-9), GeneralizedPareto({0, 2}).quantile(1e-9), 1e-8);
}

// The mean of 100 fits lies within 4 of its standard errors of the truth; a fit has (1 + xi) / sqrt(n), to which the
// estimator's own bias, of order 1 / n, adds less than one.
TEST(Tail, FitFindsThePlantedShape) {
  std::mt19937_64 random(5);
  std::exponential_distribution<double> depth(1);
  constexpr size_t kValues = 2000;
  for (const double xi : {0.1, 0.25, 0.5}) {
    double shapes = 0, scales = 0;
    for (int round = 0; round < 100; ++round) {
      std::vector<double> excesses;
      const GeneralizedPareto planted{xi, 3};
      while (excesses.size() < kValues) excesses.push_back(planted.quantile(std::exp(-depth(random))));
      std::sort(excesses.begin(), excesses.end());
      const GeneralizedPareto found = fit_generalized_pareto(excesses);
      shapes += found.xi / 100;
      scales += found.scale / 100;
    }
    const double error = (1 + xi) / std::sqrt(kValues * 100.0);
    EXPECT_NEAR(shapes, xi, 4 * error);
    EXPECT_NEAR(scales / 3, 1, 4 * std::sqrt(2 / (1 + xi)) * error);
  }
}

// A bounded tail (xi = -0.5) is taken for exponential: no end of the noise is ever promised.
TEST(Tail, ANegativeShapeBecomesTheExponential) {
  std::mt19937_64 random(6);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<double> excesses;
  for (int i = 0; i < 5000; ++i) excesses.push_back(1 - std::sqrt(uniform(random)));
  std::sort(excesses.begin(), excesses.end());
  const GeneralizedPareto found = fit_generalized_pareto(excesses);
  EXPECT_EQ(found.xi, 0);
  EXPECT_NEAR(found.scale, 1.0 / 3, 4 * std::sqrt(1.0 / 18 / 5000));  // the mean, and four of its standard errors
}

// The claim of calibrate: with a confidence of 95%, clean products pass the threshold at most as often as stated.
TEST(Tail, TheStatedRateCoversTheTrueOne) {
  constexpr int kRounds = 200;
  for (const Quantile& planted : {Quantile(gaussian), Quantile(student4)}) {
    const double needed = planted(kRate / kTests);
    std::mt19937_64 random(7);
    int covered = 0, by_estimate = 0;
    double excess = 0;
    for (int round = 0; round < kRounds; ++round) {
      const TailReport report = report_of(measure(planted, 5'500'000, random), kRate, static_cast<uint64_t>(round));
      covered += report.threshold >= needed;
      by_estimate += report.fits[0].threshold >= needed;
      excess += report.threshold / needed / kRounds;
    }
    EXPECT_GE(covered, kRounds * 95 / 100);
    RecordProperty("threshold over the true one", std::to_string(excess));
    printf("covered %d of %d, by the estimate alone %d; threshold over the true one, mean: %.2f\n", covered, kRounds,
           by_estimate, excess);
    // Must fail: the estimate without its confidence limit, on the tail that is heavy.
    if (planted(1e-9) > 20) {
      EXPECT_LT(by_estimate, kRounds * 95 / 100);
    }
  }
}

TEST(Tail, ALowerRateCostsAHigherThreshold) {
  std::mt19937_64 random(8);
  const Exceedances measured = measure(gaussian, 6'000'000, random);
  const TailReport often = report_of(measured, 1e-6), seldom = report_of(measured, 1e-15);
  EXPECT_GT(seldom.threshold, often.threshold);
  EXPECT_NEAR(seldom.decades - often.decades, 9, 1e-9);
  EXPECT_NEAR(often.decades, std::log10(kTests / 1e-6 / 6e6), 1e-9);
  EXPECT_TRUE(warns(seldom, "decades beyond the data"));
}

TEST(Tail, SameInputInAnyOrderSameReport) {
  std::mt19937_64 random(9);
  Exceedances measured = measure(student4, 6'000'000, random);
  const TailReport first = report_of(measured);
  std::reverse(measured.kept.begin(), measured.kept.end());
  EXPECT_EQ(report_of(measured).fits[0].threshold, first.fits[0].threshold);
  EXPECT_NEAR(report_of(measured, kRate, 2).threshold / first.threshold, 1, 0.5);
  EXPECT_NE(report_of(measured, kRate, 2).threshold, first.threshold);
}

// Products whose values hang together: the same exceedances, fifty to a product instead of one or two.
TEST(Tail, ClustersAreSeenAndWidenTheLimit) {
  std::mt19937_64 random(10);
  Exceedances measured = measure(student4, 6'000'000, random);
  const TailReport apart = report_of(measured);
  EXPECT_NEAR(apart.dispersion_z, 0, 4);
  EXPECT_FALSE(warns(apart, "clusters"));
  std::sort(measured.kept.begin(), measured.kept.end(), [](auto& a, auto& b) { return a.value > b.value; });
  for (size_t i = 0; i < measured.kept.size(); ++i) measured.kept[i].product = i / 50;
  const TailReport together = report_of(measured);
  EXPECT_GT(together.dispersion, 30);
  EXPECT_TRUE(warns(together, "clusters"));
  EXPECT_GT(together.threshold, 1.5 * apart.threshold);
}

// One product in a thousand is far noisier: what is beyond the low limit does not say what is beyond the high one.
TEST(Tail, AChangeOfShapeIsSaid) {
  std::mt19937_64 random(11);
  Exceedances measured = measure(gaussian, 6'000'000, random);
  EXPECT_FALSE(warns(report_of(measured), "changes its shape"));
  for (size_t i = 0; i < measured.kept.size(); i += 12) measured.kept[i].value *= 10;
  EXPECT_TRUE(warns(report_of(measured), "changes its shape"));
}

TEST(Tail, ALowLimitIsSaid) {
  std::mt19937_64 random(12);
  Exceedances measured = measure(gaussian, 6'000'000, random);
  EXPECT_FALSE(warns(report_of(measured), "limit is low"));
  measured.values /= 2;
  EXPECT_TRUE(warns(report_of(measured), "limit is low"));
}

std::string refusal(const Exceedances& measured, double rate = kRate, double tests = kTests) {
  TailReport report;
  std::string error;
  EXPECT_FALSE(fit_tail(measured, rate, tests, 1, &report, &error));
  return error;
}

TEST(Tail, RefusesWhatNoThresholdCanComeFrom) {
  std::mt19937_64 random(13);
  Exceedances few = measure(gaussian, 6'000'000, random);
  few.kept.resize(2500);
  few.products = 1000;
  EXPECT_EQ(refusal(few), "2500 exceedances of 1000 products: 5000 are needed, about 2e+03 products");
  EXPECT_EQ(refusal({1, 100, 10, {}}), "0 exceedances of 10 products: 5000 are needed, about 5e+04 products");
  Exceedances wrong = measure(gaussian, 6'000'000, random);
  wrong.kept[7].value = NAN;
  EXPECT_EQ(refusal(wrong), "an exceedance of nan: a number above the limit 3.29053 was expected");
  wrong.kept[7].value = 1;
  EXPECT_EQ(refusal(wrong), "an exceedance of 1: a number above the limit 3.29053 was expected");
  EXPECT_EQ(refusal(measure(gaussian, 6'000'000, random), 0), "a rate of 0 over 4096 tests: both must be above 0");
  EXPECT_EQ(refusal(measure(gaussian, 6'000'000, random), 1e-6, NAN),
            "a rate of 1e-06 over nan tests: both must be above 0");
}

// All values but a few are one: no quartile, no scale; an answer all the same.
TEST(Tail, ValuesInOnePlaceGiveAFiniteThreshold) {
  Exceedances measured{1, 10'000'000, 2000, {}};
  for (uint64_t i = 0; i < 6000; ++i) measured.kept.push_back({i % 100 == 0 ? 3.0 : 2.0, i % 2000});
  const TailReport report = report_of(measured);
  EXPECT_TRUE(std::isfinite(report.threshold));
  EXPECT_GT(report.threshold, 3);
}

}  // namespace
}  // namespace sdcguard

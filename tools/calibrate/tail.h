// SPDX-License-Identifier: MIT
// Tail of the noise of clean products: takes what was measured beyond a high limit, gives the threshold that a clean
// value passes with a stated probability, an upper confidence limit of it, and what speaks against believing it.
//
//   values measured -> Exceedances (all kept) -> a fit at each of three limits -> TailReport: threshold, warnings
//
// Values are |r| / (sigma s) of cells: without a unit, at least 0. Peaks over a limit u: far enough out, the excess
// y = x - u of any usual distribution is generalized Pareto, P(y > t) = (1 + xi t / scale)^(-1 / xi) (Pickands, Annals
// of Statistics 3, 1975). xi is held at 0 or above: an estimate below it puts a false end on the noise, and thresholds
// from such fits failed by decades (reference/statistics.md 3.4: Gaussian tails look like xi = -0.05 to -0.09).
//
// Host code alone: allocates, takes no lock, gives the same report for the same input and seed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sdcguard {

struct GeneralizedPareto {
  double xi = 0;     // shape, at least 0; 0: exponential
  double scale = 1;  // above 0, in the unit of the excesses
  // Probability of an excess beyond `excess`, which is at least 0.
  double survival(double excess) const;
  // The excess that is passed with probability `p`, 0 < p <= 1.
  double quantile(double p) const;
};

// Fits excesses (at least two; ascending, at least 0, finite, not all 0) by the estimator of Zhang and Stephens
// (Technometrics 51, 2009): theta = -xi / scale as its mean over a grid, weighted by the profile likelihood. No
// iteration, always an answer. xi below 0 becomes 0 with the exponential's scale.
GeneralizedPareto fit_generalized_pareto(std::span<const double> excesses);

struct Exceedance {
  double value;      // above the limit
  uint64_t product;  // any number that is the product's own
};

struct Exceedances {
  double limit = 0;       // every value above it was kept
  uint64_t values = 0;    // measured, kept or not
  uint64_t products = 0;  // measured
  std::vector<Exceedance> kept;
};

struct TailFit {
  double limit = 0;
  uint64_t above = 0;  // values beyond the limit
  GeneralizedPareto shape;
  double threshold = 0;  // estimate
  double upper = 0;      // upper confidence limit of the threshold, at least the estimate
};

struct TailReport {
  TailFit fits[3];       // by limit, lowest first; each rests on part of the values of the one before
  double per_value = 0;  // probability that a clean value may pass: rate / tests
  double threshold = 0;  // the answer: the largest `upper`
  double decades = 0;    // log10(1 / (values per_value)): how far the answer lies beyond the data; below 0: inside
  // Variance of the exceedances of a product over their mean; 1 where they fall independently (binomial with a small
  // probability). Above: they come in clusters.
  double dispersion = 1;
  double dispersion_z = 0;            // its distance from 1 in standard errors, sqrt(2 / (products - 1))
  std::vector<std::string> warnings;  // one reason each to doubt the answer
};

inline constexpr uint64_t kTailMin = 5000;       // exceedances that a report needs (reference/statistics.md 3.4)
inline constexpr double kTailShare = 1e-3;       // of the values; more exceedances than this: the limit is too low
inline constexpr double kTailConfidence = 0.99;  // of `upper`

// The threshold that a product of `tests` values passes with probability `rate` or less (union bound: no independence
// is assumed). `rate` and `tests` above 0. The confidence limit is from 200 bootstrap samples of whole products, since
// the values of one product may hang together; seeded by `seed`. False, with one line in `error`: fewer than kTailMin
// exceedances (it says how many products that takes), a value that is no number or not above the limit, a rate or
// number of tests that is not above 0.
bool fit_tail(const Exceedances& measured, double rate, double tests, uint64_t seed, TailReport* report,
              std::string* error);

}  // namespace sdcguard

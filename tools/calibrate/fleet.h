// SPDX-License-Identifier: MIT
// Error rates in an operator's terms: from the rate of false alarms that is stated for a product to alarms a day in a
// fleet, to the threshold of each test, and to the clean products that confirm it. Formulas:
// reference/statistics.md 3.6.
#pragma once

namespace sdcguard {

// A verdict without a recomputation may be wrong for one clean product in so many (DESIGN.md 5).
inline constexpr double kVerdictRate = 1e-15;

struct Fleet {
  double gpus = 1;
  double checks_per_second = 100;  // checked products of one GPU
};

double products_a_day(const Fleet& fleet);

// Expected number; independence is not needed for it.
double false_alarms_a_day(const Fleet& fleet, double rate);

// The rate that one test of a product may have, so that `tests` of them together keep `rate`: union bound.
double rate_of_test(double rate, double tests);

// What |x| of a standard normal variable exceeds with probability p, 0 < p < 1.
double gaussian_threshold(double p);

// What |sum v_j e_j| / sqrt(sum b_j^2) exceeds with probability p at most, for random signs v and any |e_j| <= b_j:
// sqrt(2 ln(2 / p)) (Hoeffding, Journal of the American Statistical Association 58, 1963).
double hoeffding_threshold(double p);

// Largest rate that `clean` products without an alarm leave possible with 95% confidence: -ln(0.05) / clean.
double rate_confirmed_by(double clean);

// The other way round: clean products without an alarm that confirm `rate`.
double products_to_confirm(double rate);

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
#include "tools/calibrate/fleet.h"

#include <cmath>

namespace sdcguard {
namespace {

constexpr double kSecondsADay = 86400;
constexpr double kNone95 = 2.9957322735539909;  // -ln(0.05): none seen, with what mean that still has 5%

}  // namespace

double products_a_day(const Fleet& fleet) {
  return fleet.gpus * fleet.checks_per_second * kSecondsADay;
}

double false_alarms_a_day(const Fleet& fleet, double rate) {
  return products_a_day(fleet) * rate;
}

double rate_of_test(double rate, double tests) {
  return rate / tests;
}

double gaussian_threshold(double p) {
  double low = 0, high = 38;  // erfc is 0 in doubles beyond 38 / sqrt(2)
  while (high - low > 1e-12 * high) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) > p ? low : high) = middle;
  }
  return high;
}

double hoeffding_threshold(double p) {
  return std::sqrt(2 * std::log(2 / p));
}

double rate_confirmed_by(double clean) {
  return kNone95 / clean;
}

double products_to_confirm(double rate) {
  return kNone95 / rate;
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Fleet arithmetic against the figures of reference/statistics.md 3.5 and 3.6, which were computed elsewhere.
#include "tools/calibrate/fleet.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sdcguard {
namespace {

TEST(Fleet, AlarmsADay) {
  const Fleet fleet{.gpus = 16000, .checks_per_second = 100};
  EXPECT_EQ(products_a_day(fleet), 138.24e9);
  EXPECT_NEAR(false_alarms_a_day(fleet, 1e-6), 138240, 1e-6);
  EXPECT_NEAR(false_alarms_a_day(fleet, kVerdictRate), 1.3824e-4, 1e-12);
}

TEST(Fleet, ThresholdsOfARate) {
  struct Known {
    double rate, tests, gaussian;
  };
  for (const Known& known :
       {Known{1e-6, 4096, 6.33}, Known{1e-12, 4096, 8.20}, Known{1e-15, 4096, 8.99}, Known{1e-6, 524288, 7.04}}) {
    EXPECT_NEAR(gaussian_threshold(rate_of_test(known.rate, known.tests)), known.gaussian, 0.005);
  }
  EXPECT_NEAR(hoeffding_threshold(2.44e-10), 6.76, 0.005);
  for (const double p : {0.9, 1e-3, 1e-30}) {
    EXPECT_NEAR(std::erfc(gaussian_threshold(p) / std::sqrt(2.0)) / p, 1, 1e-9);
    // Hoeffding's bound assumes less, so it can only be wider.
    EXPECT_GT(hoeffding_threshold(p), gaussian_threshold(p));
  }
}

TEST(Fleet, NoAlarmConfirmsARate) {
  EXPECT_NEAR(rate_confirmed_by(24.6e6), 1.2e-7, 0.05e-7);
  EXPECT_NEAR(products_to_confirm(1e-9), 3e9, 0.01e9);
  EXPECT_NEAR(rate_confirmed_by(products_to_confirm(1e-15)), 1e-15, 1e-27);
  // None of n seen where the rate is p: (1 - p)^n, 5% at the bound.
  EXPECT_NEAR(std::pow(1 - rate_confirmed_by(1e6), 1e6), 0.05, 1e-6);
}

}  // namespace
}  // namespace sdcguard

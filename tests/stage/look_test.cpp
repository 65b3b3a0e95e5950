// SPDX-License-Identifier: MIT
// What a line's largest residual may be: lines noisier than their product are not looked at, and the verifier's own
// rounding is no fault. Each with the product that is looked at without it.
#include "kernels/look.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/stage/device.h"
#include "tests/stage/direct_probe.h"
#include "tests/stage/engine_product.h"

namespace sdcguard::stage {
namespace {

using reference::Kind;
using reference::Matrix;
using reference::Order;
using reference::Random;

// T = 8, sigma = 2. A line whose median says sigma 3 or less is like the product's others; one of 4.5 is held to 3, one
// of any more to twice sigma.
TEST(Look, TheLimitOfALine) {
  EXPECT_EQ(look_limit(8, 2, 0), 16);
  EXPECT_EQ(look_limit(8, 2, 3 / 1.4826f), 16);
  EXPECT_FLOAT_EQ(look_limit(8, 2, 4.5f / 1.4826f), 24);
  EXPECT_EQ(look_limit(8, 2, 1000), 32);
}

// A clean product but for one line, whose entries all err by six times as much as the others', far below what would be
// named.
TEST(Look, ALineNoisierThanTheProductIsHeldToItsOwnScale) {
  int looked_at_without = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Call call;
    call.seed = seed;
    call.a = Matrix(256, 512);
    call.b = Matrix(512, 256);
    fill(Kind::kGauss, call.type, seed, call.a, call.b);
    call.p = multiply(Order::kRounded16, call.a, call.b);
    Random random(seed);
    for (int64_t j = 0; j < 256; ++j) {
      call.p.at(9, j) += static_cast<float>(random.gauss()) * 12.0f * 0x1p-24f * std::sqrt(512.0f);
    }
    const Result r = run(call);
    EXPECT_EQ(r.outcome, Outcome::kClean) << seed;
    const float peak = read_array<float>(r.params.line_peak, 256)[9];
    looked_at_without += peak > look_limit(r.params.look_scale, r.verdict.sigma, 0) ? 1 : 0;
  }
  EXPECT_GE(looked_at_without, 4);  // half of them
}

// An FP8 product on a device that is exact for it, a few channels a hundred times the others.
class OutlierChannels : public testing::Test {
 protected:
  // With the sign draws of that number; `own_rounding` false: without the verifier's own term in the scale.
  DirectResult probe(uint64_t draw, bool own_rounding) {
    ProbePlan plan = plan_;
    plan.params.seed = draw;
    if (!own_rounding) plan.params.verifier_scale = 0;
    DirectResult result;
    probe_.run({&plan.params, call_.a.values.data(), call_.b.values.data(), call_.p.values.data()}, &result);
    return result;
  }
  void compute(uint64_t seed) {
    const std::string order = "b200";
    const Family& family = family_named("e4m3 fast");
    call_.a = Matrix(48, 160);
    call_.b = Matrix(160, 35000);
    fill(Kind::kOutlierChannels, family.a, seed, call_.a, call_.b);
    call_.p = engine_product(family, order, call_.a, call_.b);
    plan_ = make_plan(request_of(family, order, 48, 160, 35000));
    ASSERT_TRUE(plan_.usable());
  }

  Call call_;
  ProbePlan plan_;
  DirectProbe probe_;
};

// All that is wrong with the loudest lines is their dots: the product's own errors are a sixth of u of its size.
TEST_F(OutlierChannels, TheVerifiersOwnRoundingIsInTheScale) {
  compute(2);
  EXPECT_LT(probe(23, true).worst, 0.8f * plan_.params.look_scale);
  EXPECT_GT(probe(23, false).worst, plan_.params.look_scale);
}

// Added in the order of k, each term behind the one that makes the row is rounded at its size: this product then came
// out at 1.1 T without the term, at 0.7 T with one twice as wide.
TEST_F(OutlierChannels, TheLargestAddendOfAStepGoesInLast) {
  compute(284);
  EXPECT_LT(probe(284 * 8 + 7, false).worst, 0.8f * plan_.params.look_scale);
}

}  // namespace
}  // namespace sdcguard::stage

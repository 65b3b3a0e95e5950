// SPDX-License-Identifier: MIT
// Clean products of every kind of data, accumulation order, type and layout: nothing is ever named, whether the probe
// looks by itself or is made to look at every line.
#include <gtest/gtest.h>

#include <vector>

#include "tests/stage/device.h"

namespace sdcguard::stage {
namespace {

using reference::Kind;
using reference::Matrix;
using reference::Order;

TEST(Clean, NoEntryIsNamedInAnyKindOfData) {
  uint64_t seed = 100;
  int looks = 0;
  std::vector<Kind> kinds(std::begin(reference::kKinds), std::end(reference::kKinds));
  kinds.insert(kinds.end(), std::begin(reference::kStructuredKinds), std::end(reference::kStructuredKinds));
  for (Kind kind : kinds) {
    for (Order order : {Order::kTruncating, Order::kRounded16, Order::kSequential}) {
      for (DataType type : {DataType::kBF16, DataType::kF16, DataType::kF32}) {
        if (type == DataType::kF32 && order != Order::kSequential) continue;
        Call call;
        call.type = type;
        if (type == DataType::kF32 || order == Order::kSequential) call.tensor_core = {1, 20};
        call.seed = ++seed;
        call.a = Matrix(48, 320);
        call.b = Matrix(320, 128);
        fill(kind, type, seed, call.a, call.b);
        call.p = multiply(order, call.a, call.b);
        call.layout_b.rows_contiguous = seed % 2 == 0;
        const Result probed = run(call);
        EXPECT_EQ(probed.verdict.entries_named, 0u) << name_of(kind);
        EXPECT_TRUE(probed.outcome == Outcome::kClean || probed.outcome == Outcome::kBenign) << name_of(kind);
        looks += probed.verdict.lines_dirty != 0 ? 1 : 0;
        // Made to look: every line is recomputed and every entry compared.
        call.change = [](ProbeParams& p) { p.plan = Plan::kRecompute; };
        const Result all = run(call);
        EXPECT_EQ(all.verdict.lines_dirty, 48u);
        EXPECT_EQ(all.verdict.entries_named, 0u) << name_of(kind);
        EXPECT_EQ(all.outcome, Outcome::kClean);
      }
    }
  }
  EXPECT_EQ(looks, 0);
}

}  // namespace
}  // namespace sdcguard::stage

// SPDX-License-Identifier: MIT
// Plan: the derived numbers against the figures that DESIGN.md and prototype.md state, the scratch layout, refusals.
#include "kernels/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "kernels/elementary.h"
#include "kernels/entry_bound.h"

namespace sdcguard {
namespace {

ProbeRequest request_of(int64_t n1, int64_t n2, int64_t n3, int64_t batch = 1) {
  ProbeRequest r{};
  r.n1 = n1;
  r.n2 = n2;
  r.n3 = n3;
  r.batch = batch;
  r.a = MatrixView{4096, n2, 1, batch > 1 ? n1 * n2 : 0, DataType::kBF16};
  r.b = MatrixView{4096, 1, n2, batch > 1 ? n2 * n3 : 0, DataType::kBF16};
  r.finish.d = MatrixView{4096, n3, 1, n1 * n3, DataType::kBF16};
  r.finish.alpha = 1.0f;
  r.c_apart = true;
  r.mode = Mode::kRepair;
  r.tensor_core = {16, 2};
  r.sm_count = 132;
  return r;
}

TEST(Plan, ClassesFollowTheDesign) {
  EXPECT_EQ(classes_of(4096, 4096), 8u);
  EXPECT_EQ(classes_of(4096, 8192), 16u);
  EXPECT_EQ(classes_of(4096, 14336), 32u);  // 28, rounded up to a power of two
  EXPECT_EQ(classes_of(1, 4096), 64u);      // 256 cells wanted, capped at kMaxClasses
  EXPECT_EQ(classes_of(8, 4096), 32u);
  EXPECT_EQ(classes_of(4096, 64), 8u);
  EXPECT_EQ(classes_of(4096, 40), 4u);  // at least eight columns a class
  EXPECT_EQ(classes_of(4096, 7), 1u);
  EXPECT_EQ(classes_of(4096, 1000000), 64u);
}

TEST(Elementary, AgreesWithLibm) {
  for (double x = 1e-280; x < 1e280; x *= 1.7) {
    EXPECT_NEAR(natural_log(x), std::log(x), 1e-14 * std::fabs(std::log(x)) + 1e-16);
    EXPECT_NEAR(power(x, 0.056) / std::pow(x, 0.056), 1.0, 1e-13);
    EXPECT_EQ(square_root(x), std::sqrt(x));
  }
  EXPECT_EQ(natural_log(1.0), 0.0);
  EXPECT_EQ(exponential(0.0), 1.0);
  for (int n = -1022; n <= 1023; ++n) EXPECT_EQ(power_of_two(n), std::ldexp(1.0, n));
}

TEST(Plan, LookScaleKeepsTheStatedRate) {
  EXPECT_NEAR(look_scale_of(4096), 9.7, 0.05);
  EXPECT_NEAR(look_scale_of(65536), 12.0, 0.05);
  EXPECT_EQ(look_scale_of(64), 8.0);
  // Back through the tail law: P(|z| > T) times the cells is the rate of looks at clean products.
  for (double cells : {4096.0, 65536.0, 1e6}) {
    const double t = look_scale_of(cells);
    const double tail = 1e-3 * std::pow(1.0 + 0.056 * (t - 3.68) / 0.417, -1.0 / 0.056);
    EXPECT_NEAR(tail * cells, 1e-4, 1e-9);
  }
}

TEST(Plan, ShortSumsAreLookedAtLater) {
  EXPECT_EQ(short_sum_factor(1), 1.5);
  EXPECT_EQ(short_sum_factor(64), 1.5);
  EXPECT_EQ(short_sum_factor(256), 1.03125);
  EXPECT_EQ(make_plan(request_of(512, 64, 512)).params.look_scale,
            static_cast<float>(look_scale_of(512 * 8 * 2) * 1.5));
}

TEST(Plan, EachAccumulatorHasItsNoise) {
  ProbeRequest r = request_of(128, 1024, 128);
  EXPECT_EQ(noise_of(r).eps_acc, 0x1p-23);
  EXPECT_EQ(noise_of(r).products, 16u);
  r.a.type = r.b.type = DataType::kF32;
  EXPECT_EQ(noise_of(r).products, 1u);
  r.rounding = OperandRounding::kTf32;
  EXPECT_EQ(noise_of(r).eps_in, 0x1p-9);
  r.rounding = OperandRounding::kBf16;
  EXPECT_EQ(noise_of(r).eps_in, 0x1p-6);
  r = request_of(128, 1024, 128);
  r.a.type = r.b.type = DataType::kE4M3;
  r.tensor_core = tensor_core_of(9, DataType::kE4M3);
  EXPECT_EQ(noise_of(r).eps_acc, 0x1p-13);
  EXPECT_EQ(noise_of(r).guard_bits, 0u);
  r.tensor_core = tensor_core_of(10, DataType::kE4M3);
  EXPECT_EQ(noise_of(r).eps_acc, 0x1p-23);
  // Every kind of product has histories of its own.
  std::map<uint32_t, int> seen;
  for (DataType a :
       {DataType::kF32, DataType::kBF16, DataType::kF16, DataType::kF64, DataType::kE4M3, DataType::kE5M2}) {
    ++seen[family_of([&] {
      ProbeRequest x = request_of(8, 1024, 8);
      x.a.type = x.b.type = a;
      return x;
    }())];
  }
  for (Accumulator accumulator : {Accumulator::kF32Fast, Accumulator::kF32}) {
    ProbeRequest x = request_of(8, 1024, 8);
    x.a.type = DataType::kE4M3;
    x.b.type = DataType::kE5M2;
    x.accumulator = accumulator;
    ++seen[family_of(x)];
  }
  for (OperandRounding rounding : {OperandRounding::kTf32, OperandRounding::kBf16, OperandRounding::kF16}) {
    ProbeRequest x = request_of(8, 1024, 8);
    x.a.type = x.b.type = DataType::kF32;
    x.rounding = rounding;
    ++seen[family_of(x)];
  }
  ProbeRequest half = request_of(8, 1024, 8);
  half.a.type = half.b.type = DataType::kF16;
  half.accumulator = Accumulator::kF16;
  ++seen[family_of(half)];
  EXPECT_EQ(seen.size(), 12u);
  for (const auto& [family, times] : seen) {
    EXPECT_EQ(times, 1);
    EXPECT_LT(family, kFamilyCount);
  }
}

TEST(Plan, HoeffdingScaleIsAUnionBound) {
  for (double tests : {1.0, 524288.0}) {
    const double t = hoeffding_scale_of(tests);
    EXPECT_NEAR(2.0 * std::exp(-t * t / 2.0) * tests / 1e-15, 1.0, 1e-6);
  }
}

TEST(Plan, EntryConstants) {
  // n2 ((N + 1) / 2^g + 1) / N + n2 / 64 + 16
  EXPECT_DOUBLE_EQ(entry_c_max(4096, 16, 2), 4096 * (17.0 / 4 + 1) / 16 + 64 + 16);
  EXPECT_DOUBLE_EQ(entry_c_max(4096, 4, 0), 4096 * 6.0 / 4 + 64 + 16);
  EXPECT_NEAR(entry_c_max(4096, 1, 64), 4096 + 64 + 16, 1e-9);
  EXPECT_EQ(tensor_core_of(9, DataType::kBF16).products, 16u);
  EXPECT_EQ(tensor_core_of(8, DataType::kF16).guard_bits, 1u);
  EXPECT_EQ(tensor_core_of(12, DataType::kBF16).guard_bits, 0u);  // not measured: the worst case
  EXPECT_DOUBLE_EQ(entry_tau(entry_scale(0.1), 2.0, 1e9), 32.0 * 0.25 * 2.0);
  EXPECT_DOUBLE_EQ(entry_tau(entry_scale(1.0), 2.0, 1e9), 32.0 * 1.4826 * 2.0);
  EXPECT_DOUBLE_EQ(entry_tau(entry_scale(1.0), 2.0, 3.0), 3.0);
}

TEST(Plan, SmallProductsAreRecomputed) {
  EXPECT_EQ(make_plan(request_of(3, 64, 64)).params.plan, Plan::kRecompute);
  EXPECT_EQ(make_plan(request_of(1, 4096, 4096)).params.plan, Plan::kLine);    // 64 cells
  EXPECT_EQ(make_plan(request_of(24, 24, 32)).params.plan, Plan::kRecompute);  // 96 cells of short lines
  EXPECT_EQ(make_plan(request_of(64, 64, 32)).params.plan, Plan::kLine);       // 256 cells of short lines
  EXPECT_EQ(make_plan(request_of(64, 64, 7)).params.plan, Plan::kRecompute);
  EXPECT_EQ(make_plan(request_of(63, 64, 7)).params.plan, Plan::kRecompute);
}

TEST(Plan, FinishIsFusedOnlyWhereCIsApart) {
  ProbeRequest r = request_of(128, 128, 128);
  ProbePlan plan = make_plan(r);
  EXPECT_EQ(plan.params.fused_finish, 1);
  EXPECT_EQ(plan.launch[static_cast<uint32_t>(Kernel::kFinish)].grid, 0u);
  r.c_apart = false;
  plan = make_plan(r);
  EXPECT_EQ(plan.params.fused_finish, 0);
  EXPECT_EQ(plan.params.finish_launched, 1);
  EXPECT_GT(plan.launch[static_cast<uint32_t>(Kernel::kFinish)].grid, 0u);
}

// The same scratch as that of the checked call, and what delivers D, nothing else.
TEST(Plan, AnUncheckedProductIsFinishedOnly) {
  ProbeRequest r = request_of(128, 128, 1000);
  const ProbePlan checked = make_plan(r);
  r.unchecked = true;
  const ProbePlan plan = make_plan(r);
  ASSERT_TRUE(plan.usable());
  EXPECT_EQ(plan.layout.bytes, checked.layout.bytes);
  EXPECT_EQ(plan.product_bytes, checked.product_bytes);
  EXPECT_EQ(plan.params.p.row_stride, checked.params.p.row_stride);
  EXPECT_EQ(plan.params.fused_finish, 0);
  EXPECT_EQ(plan.params.finish_launched, 1);
  for (uint32_t kernel = 0; kernel < kKernelCount; ++kernel) {
    EXPECT_EQ(plan.launch[kernel].grid != 0, static_cast<Kernel>(kernel) == Kernel::kFinish) << kernel;
  }
}

TEST(Plan, ObservedSixteenBitOutputTakesBlockSums) {
  ProbeRequest r = request_of(128, 128, 1000);
  r.delivered = true;
  r.finish.d.address = 0;
  r.p = MatrixView{4096, 1000, 1, 0, DataType::kBF16};
  const ProbePlan plan = make_plan(r);
  EXPECT_EQ(plan.params.plan, Plan::kBlockSums);
  EXPECT_EQ(plan.params.classes, 32u);
  EXPECT_EQ(plan.params.repairs, 1);
  ProbeRequest observed = r;
  observed.mode = Mode::kObserve;
  EXPECT_EQ(make_plan(observed).params.repairs, 0);
  EXPECT_EQ(plan.product_bytes, 0u);
  r.finish.epilogue = kEpilogueRelu;
  EXPECT_EQ(make_plan(r).reason, Reason::kUnsupportedEpilogue);
}

TEST(Plan, Refusals) {
  EXPECT_EQ(make_plan(request_of(0, 1, 1)).reason, Reason::kEmpty);
  ProbeRequest r = request_of(4, 4, 4);
  r.a.type = DataType::kOther;
  EXPECT_EQ(make_plan(r).reason, Reason::kUnsupportedType);
  r = request_of(4, 4, 4);
  r.b.row_stride = r.b.col_stride = 3;
  EXPECT_EQ(make_plan(r).reason, Reason::kUnsupportedOrder);
  r = request_of(4, 4, 4);
  r.a.type = DataType::kF64;  // beside a BF16 operand
  EXPECT_EQ(make_plan(r).reason, Reason::kUnsupportedType);
  r = request_of(4, 4, 4);
  r.finish.aux_kind = AuxKind::kReluMask;
  r.finish.aux = MatrixView{4096, 12, 1, 48, DataType::kNone};  // a row that begins inside a byte
  EXPECT_EQ(make_plan(r).reason, Reason::kUnsupportedEpilogue);
  r = request_of(4, 4, 4);
  r.a.type = r.b.type = DataType::kI8;
  r.accumulator = Accumulator::kI32;
  r.finish.d.type = DataType::kI32;
  r.finish.alpha = 0.5;
  EXPECT_EQ(make_plan(r).reason, Reason::kUnsupportedType);
  r.finish.alpha = 1.0;
  EXPECT_TRUE(make_plan(r).usable());
  EXPECT_EQ(make_plan(request_of(int64_t{1} << 32, 1, 1)).reason, Reason::kLinesOverflow);
  EXPECT_EQ(make_plan(request_of(int64_t{1} << 31, 1, int64_t{1} << 30)).reason, Reason::kNoWorkspace);
}

// Arrays do not overlap, are aligned, and the sizes are those that the kernels' shapes need.
TEST(Plan, ScratchLayoutIsDisjoint) {
  for (const ProbeRequest& r : {request_of(512, 384, 1536), request_of(5, 17, 33, 7), request_of(1, 4096, 50000)}) {
    const ProbePlan plan = make_plan(r);
    ASSERT_TRUE(plan.usable());
    const ProbeParams& p = plan.params;
    const ScratchLayout& l = plan.layout;
    const uint64_t tiles = static_cast<uint64_t>((p.n2 + kFoldTile - 1) / kFoldTile * p.fold_batch);
    const uint64_t words = static_cast<uint64_t>((p.n3 + 31) / 32);
    const uint64_t lines = static_cast<uint64_t>(p.lines);
    const uint64_t fold = static_cast<uint64_t>(p.fold_batch);
    const uint64_t rows = fold * static_cast<uint64_t>(p.n2);
    const std::map<uint64_t, uint64_t> sizes = {
        {l.fold_ticket, kFoldTicketBytes},
        {l.verdict, sizeof(Verdict)},
        {l.tile_marks, tiles * (1 + kMaxMarkedColumns) * 4},
        {l.tile_energy, tiles * p.classes * 8},
        {l.fold_sums, rows * p.vectors * 4},
        {l.fold_mean, rows * 4},
        {l.fold_rms, rows * 4},
        {l.signs, kDraws * words * 4},
        {l.column_marks, fold * words * 4},
        {l.marked_columns, fold * (1 + kMaxMarkedColumns) * 4},
        {l.line_dots, lines * p.vectors * 4},
        {l.line_noise, lines * 16},
        {l.line_sums, lines * 16},
        {l.line_peak, lines * 4},
        {l.line_median, lines * 4},
        {l.peak_counts, static_cast<uint64_t>(p.batch) * kPeakBins * 4},
        {l.peak_sums, static_cast<uint64_t>(p.batch) * kPeakBins * 8},
        {l.sigmas, static_cast<uint64_t>(p.batch) * 4},
        {l.listed, lines * 4},
        {l.recomputed, (p.line_slots + uint64_t{p.repair_grid} * kSpareLines) * 3 * static_cast<uint64_t>(p.n3) * 4}};
    ASSERT_EQ(sizes.size(), 20u);
    uint64_t end = 0;
    for (const auto& [offset, bytes] : sizes) {
      EXPECT_EQ(offset % 256, 0u);
      EXPECT_GE(offset, end);
      end = offset + bytes;
    }
    EXPECT_LE(end, l.bytes);
    EXPECT_EQ(l.fold_ticket, 0u);  // the part that is zeroed at allocation is the first
  }
}

TEST(Plan, LaunchesStayInTheBudget) {
  const ProbePlan plan = make_plan(request_of(8192, 4096, 14336));
  int launches = 0;
  for (const LaunchShape& shape : plan.launch) {
    launches += shape.grid != 0 ? 1 : 0;
    EXPECT_LE(shape.block, 512u);
    EXPECT_LE(shape.grid, 8u * 132u);
  }
  EXPECT_EQ(launches, 5);  // the sixth is the finish that could not be fused
}

}  // namespace
}  // namespace sdcguard

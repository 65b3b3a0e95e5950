// SPDX-License-Identifier: MIT
// Verdict, recomputation, repair and record: faults in live accumulators are found and repaired, clean entries are
// never named, and each must-fail build or switch misses the fault that the shipped one finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <tuple>

#include "kernels/entry_bound.h"
#include "tests/stage/device.h"

namespace sdcguard::stage {
namespace {

using reference::AccumulatorFault;
using reference::Kind;
using reference::Matrix;
using reference::Order;
using reference::Random;

constexpr double kU = 0x1p-24;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Call call_of(int64_t n1, int64_t n2, int64_t n3, Kind kind = Kind::kGauss, DataType type = DataType::kBF16,
             Order order = Order::kTruncating, int64_t batch = 1) {
  Call call;
  call.type = type;
  call.a = Matrix(n1, n2, batch);
  call.b = Matrix(n2, n3, batch);
  fill(kind, type, static_cast<uint64_t>(n1 * 7 + n2 * 3 + n3), call.a, call.b);
  call.p = multiply(order, call.a, call.b);
  call.delivers = true;
  call.records = true;
  if (type == DataType::kF32) call.tensor_core = {1, 20};
  return call;
}

// The recomputation's own error: 16-term FP32 sums, error-free beyond, one rounding.
bool is_recomputed(const Call& call, int64_t row, int64_t col, int64_t batch, float got) {
  double abs_sum;
  double square_sum;
  const double exact = exact_entry(call.a, call.b, row, col, batch, &abs_sum, &square_sum);
  return std::fabs(static_cast<double>(got) - exact) <= 18 * kU * abs_sum;
}

struct Place {
  int64_t batch, row, col;
  bool operator<(const Place& o) const { return std::tie(batch, row, col) < std::tie(o.batch, o.row, o.col); }
};

std::set<Place> places_of(const Result& r) {
  std::set<Place> places;
  for (const FaultRecord& f : r.faults) places.insert(Place{f.batch, f.column, f.row});
  return places;
}

TEST(Repair, AccumulatorFaultsOfEveryKind) {
  int injected = 0;
  int found = 0;
  int below = 0;
  uint64_t seed = 1;
  for (Kind kind : reference::kKinds) {
    for (DataType type : {DataType::kBF16, DataType::kF16}) {
      Call call = call_of(70, 96, 136, kind, type, seed % 2 == 0 ? Order::kTruncating : Order::kRounded16);
      call.seed = seed;
      call.layout_a.rows_contiguous = seed % 3 != 0;
      call.layout_b.rows_contiguous = seed % 2 != 0;
      const Matrix clean = call.p;
      Random random(++seed);
      std::set<Place> struck;
      for (int i = 0; i < 6; ++i) {
        const AccumulatorFault f{0, random.below(70), random.below(136), random.below(96),
                                 20 + static_cast<int>(random.below(11))};
        std::vector<float> column(96);
        for (int64_t k = 0; k < 96; ++k) column[static_cast<size_t>(k)] = call.b.at(k, f.col);
        const float faulty =
            dot_in_order(seed % 2 == 1 ? Order::kTruncating : Order::kRounded16,
                         &call.a.values[static_cast<size_t>(f.row * 96)], column.data(), 96, 1, f.k, f.bit);
        if (std::memcmp(&faulty, &call.p.values[static_cast<size_t>(f.row * 136 + f.col)], 4) == 0) continue;
        call.p.at(f.row, f.col) = faulty;
        struck.insert(Place{0, f.row, f.col});
      }
      const Matrix faulty = call.p;
      const Result r = run(call);
      const std::set<Place> named = places_of(r);
      for (const Place& place : named) {
        EXPECT_TRUE(struck.count(place)) << name_of(kind) << ": a clean entry was named, " << place.row << " "
                                         << place.col;
      }
      for (const Place& place : struck) {
        ++injected;
        const float got = r.p.at(place.row, place.col);
        if (named.count(place)) {
          ++found;
          EXPECT_TRUE(is_recomputed(call, place.row, place.col, 0, got));
          EXPECT_EQ(r.d.at(place.row, place.col), reference::round_to(call.type_d, static_cast<double>(got)));
          continue;
        }
        // Not named: it must lie within the provable part of the entry bound, or below what the probe can see.
        double abs_sum;
        double square_sum;
        const double exact = exact_entry(call.a, call.b, place.row, place.col, 0, &abs_sum, &square_sum);
        const double cap = entry_cap(abs_sum, static_cast<double>(r.params.entry_c_max), 0x1p-23, 0.0);
        const size_t cell =
            (static_cast<size_t>(place.row) * r.params.classes + static_cast<size_t>(place.col) % r.params.classes) *
            (kDraws + 1);
        // A fault beside larger residuals of its class is seen from twice the threshold on, whatever their sign.
        const double floor = 2.0 * static_cast<double>(r.params.look_scale) * static_cast<double>(r.verdict.sigma) *
                             static_cast<double>(r.cells[cell + kDraws]);
        if (std::fabs(static_cast<double>(got) - exact) <= std::max(cap, floor)) {
          ++below;
        } else {
          ADD_FAILURE() << name_of(kind) << ": missed " << place.row << " " << place.col << " " << got << " for "
                        << exact;
        }
      }
      // Nothing else was touched.
      for (int64_t i = 0; i < 70; ++i) {
        for (int64_t j = 0; j < 136; ++j) {
          if (named.count(Place{0, i, j})) continue;
          ASSERT_EQ(std::memcmp(&r.p.values[static_cast<size_t>(i * 136 + j)],
                                &faulty.values[static_cast<size_t>(i * 136 + j)], 4),
                    0);
        }
      }
      EXPECT_EQ(r.verdict.entries_named, named.size());
      EXPECT_EQ(r.verdict.entries_repaired, named.size());
      EXPECT_TRUE(named.empty() || r.outcome == Outcome::kCorrected);
    }
  }
  EXPECT_GT(injected, 80);
  RecordProperty("injected", injected);
  RecordProperty("found", found);
  RecordProperty("below", below);
  std::printf("injected %d, found and repaired %d, within the bound %d\n", injected, found, below);
}

TEST(Repair, SameBitsForEveryLayoutOfTheOperands) {
  Call call = call_of(80, 200, 200);
  for (int64_t j = 0; j < 200; j += 3) call.p.at(17, j) += 100.0f;
  for (int64_t i = 0; i < 80; i += 9) call.p.at(i, 31) = kNan;
  Matrix first;
  const Matrix start = call.p;
  int at = 0;
  for (bool a_rows : {true, false}) {
    for (bool b_rows : {true, false}) {
      call.p = start;
      call.layout_a = Layout{a_rows, at, at % 2};
      call.layout_b = Layout{b_rows, 2 * at, at / 2};
      call.sm_count = static_cast<uint32_t>(1 + at);
      ++at;
      const Result r = run(call);
      EXPECT_EQ(r.outcome, Outcome::kCorrected);
      EXPECT_EQ(r.verdict.entries_named, 67u + 9u);
      if (first.rows == 0) first = r.p;
      EXPECT_EQ(std::memcmp(first.values.data(), r.p.values.data(), first.values.size() * 4), 0);
    }
  }
}

TEST(Repair, NonfiniteEntriesAreFaults) {
  Call call = call_of(64, 96, 128);
  call.p.at(3, 5) = kNan;
  call.p.at(9, 5) = kInf;
  call.p.at(9, 6) = -kInf;
  call.p.at(20, 127) = 3e38f;
  const Result r = run(call);
  EXPECT_EQ(r.outcome, Outcome::kCorrected);
  EXPECT_EQ(r.verdict.entries_repaired, 4u);
  EXPECT_EQ(r.verdict.worst, kInf);
  for (const Place& place : places_of(r))
    EXPECT_TRUE(is_recomputed(call, place.row, place.col, 0, r.p.at(place.row, place.col)));
}

TEST(Repair, DetectAndObserveTouchNothing) {
  for (Mode mode : {Mode::kDetect, Mode::kObserve}) {
    Call call = call_of(64, 96, 128);
    call.mode = mode;
    call.p.at(3, 5) += 10.0f;
    const Matrix start = call.p;
    const Result r = run(call);
    EXPECT_EQ(r.outcome, Outcome::kCorrupt);
    EXPECT_EQ(r.verdict.entries_named, 1u);
    EXPECT_EQ(r.verdict.entries_repaired, 0u);
    EXPECT_EQ(r.p.values, start.values);
    ASSERT_EQ(r.faults.size(), 1u);
    EXPECT_EQ(r.faults[0].repaired, 0);
  }
}

TEST(Repair, DeliveredFp32IsRepairedInPlace) {
  Call call = call_of(64, 96, 128);
  call.delivers = false;
  call.delivered = true;
  call.type_d = DataType::kF32;
  call.alpha = 0.5f;
  call.beta = 2.0f;
  call.c = Matrix(64, 128);
  call.bias = Matrix(1, 128);
  fill(Kind::kGauss, DataType::kF32, 8, call.c, call.bias);
  for (int64_t i = 0; i < 64; ++i) {
    for (int64_t j = 0; j < 128; ++j) {
      call.p.at(i, j) = std::fma(0.5f, call.p.at(i, j), std::fma(2.0f, call.c.at(i, j), call.bias.at(0, j)));
    }
  }
  EXPECT_EQ(run(call).outcome, Outcome::kClean);
  const float right = call.p.at(7, 70);
  call.p.at(7, 70) += 0.25f;
  const Result r = run(call);
  EXPECT_EQ(r.outcome, Outcome::kCorrected);
  EXPECT_EQ(r.verdict.entries_named, 1u);
  EXPECT_NEAR(r.p.at(7, 70), right, std::fabs(r.faults[0].bound));
  call.mode = Mode::kObserve;
  const Result observed = run(call);
  EXPECT_EQ(observed.outcome, Outcome::kCorrupt);
  EXPECT_EQ(observed.p.values, call.p.values);
}

TEST(Repair, UnfusedFinishDeliversRepairedValues) {
  Call call = call_of(64, 96, 128);
  call.type_d = DataType::kF32;
  call.c_apart = false;
  call.beta = 1.0f;
  call.c = Matrix(64, 128);
  Matrix unused(1, 1);
  fill(Kind::kGauss, DataType::kF32, 8, call.c, unused);
  call.p.at(7, 70) += 5.0f;
  const Result r = run(call);
  EXPECT_EQ(r.outcome, Outcome::kCorrected);
  EXPECT_TRUE(is_recomputed(call, 7, 70, 0, r.p.at(7, 70)));
  EXPECT_EQ(r.d.at(7, 70), r.p.at(7, 70) + call.c.at(7, 70));
  ASSERT_EQ(r.calls.size(), 1u);  // written by the finish kernel, once
  EXPECT_EQ(r.calls[0].outcome, Outcome::kCorrected);
}

TEST(Repair, MoreDirtyLinesThanSlots) {
  Call call = call_of(100, 64, 96, Kind::kGauss, DataType::kBF16, Order::kSequential, 2);
  call.change = [](ProbeParams& p) { p.line_slots = 3; };
  for (int64_t n = 0; n < 2; ++n) {
    for (int64_t i = 0; i < 100; i += 2) call.p.at(i, (i * 5) % 96, n) += 30.0f;
  }
  const Result r = run(call);
  EXPECT_EQ(r.verdict.lines_dirty, 100u);
  EXPECT_EQ(r.outcome, Outcome::kCorrected);
  EXPECT_EQ(r.verdict.entries_repaired, 100u);
  for (const Place& place : places_of(r)) {
    EXPECT_TRUE(is_recomputed(call, place.row, place.col, place.batch, r.p.at(place.row, place.col, place.batch)));
  }
  EXPECT_TRUE(std::is_sorted(r.listed.begin(), r.listed.begin() + 100));
}

TEST(Repair, BatchesSharedAndApart) {
  for (int64_t batch_b : {int64_t{1}, int64_t{5}}) {
    Call call = call_of(24, 64, 96, Kind::kGauss, DataType::kF16, Order::kRounded16, 5);
    call.b = Matrix(64, 96, batch_b);
    Matrix unused(1, 1);
    fill(Kind::kGauss, DataType::kF16, 5, unused, call.b);
    call.p = multiply(Order::kRounded16, call.a, call.b);
    EXPECT_EQ(run(call).outcome, Outcome::kClean);
    call.p.at(2, 3, 1) += 7.0f;
    call.p.at(23, 95, 4) = kNan;
    const Result r = run(call);
    EXPECT_EQ(r.params.fold_batch, batch_b);
    EXPECT_EQ(r.outcome, Outcome::kCorrected);
    EXPECT_EQ(places_of(r).size(), 2u);
    EXPECT_TRUE(is_recomputed(call, 2, 3, 1, r.p.at(2, 3, 1)));
    EXPECT_TRUE(is_recomputed(call, 23, 95, 4, r.p.at(23, 95, 4)));
  }
}

TEST(Repair, SmallProductsAreRecomputedOutright) {
  for (const auto& [n1, n2, n3] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 50, 30}, {3, 64, 64}, {7, 9, 40}, {1, 1, 1}, {50, 20, 3}}) {
    Call call = call_of(n1, n2, n3);
    const Result clean = run(call);
    EXPECT_EQ(clean.params.plan, Plan::kRecompute);
    EXPECT_EQ(clean.outcome, Outcome::kClean);
    EXPECT_EQ(clean.verdict.lines_dirty, static_cast<uint32_t>(n1));
    call.p.at(n1 - 1, n3 - 1) += 40.0f;
    const Result r = run(call);
    EXPECT_EQ(r.outcome, Outcome::kCorrected) << n1 << " " << n2 << " " << n3;
    EXPECT_TRUE(is_recomputed(call, n1 - 1, n3 - 1, 0, r.p.at(n1 - 1, n3 - 1)));
    EXPECT_EQ(r.verdict.entries_named, 1u);
  }
}

TEST(Repair, OverflowOfAnyOrderNamesNothing) {
  // Terms of 2^127 that cancel: some orders overflow on the way, so an infinity proves nothing.
  Call call = call_of(64, 64, 64, Kind::kGauss);
  for (int64_t k = 0; k < 64; ++k) {
    call.a.at(5, k) = 0x1p100f;
    call.b.at(k, 9) = k % 2 == 0 ? 0x1.8p27f : -0x1.8p27f;
  }
  call.p = multiply(Order::kSequential, call.a, call.b);
  call.p.at(5, 9) = kInf;
  const Result r = run(call);
  EXPECT_EQ(r.verdict.entries_named, 0u);
  EXPECT_EQ(r.verdict.entries_unjudged, 1u);
  EXPECT_EQ(r.outcome, Outcome::kUnverified);
  EXPECT_EQ(r.reason, Reason::kRange);
}

// --- operands that are not finite ---

TEST(Nonfinite, MarkedLinesAreSetAsideAndTheRestIsChecked) {
  for (int layout = 0; layout < 2; ++layout) {
    Call call = call_of(70, 96, 130);
    call.layout_a.rows_contiguous = layout == 0;
    call.layout_b.rows_contiguous = layout != 0;
    call.a.at(11, 40) = kInf;
    call.b.at(33, 77) = kNan;
    call.b.at(34, 77) = kInf;
    call.b.at(90, 2) = -kInf;
    call.p = multiply(Order::kSequential, call.a, call.b);
    const Result clean = run(call);
    EXPECT_EQ(clean.outcome, Outcome::kClean);
    EXPECT_EQ(clean.reason, Reason::kNonfiniteOperand);
    EXPECT_EQ(clean.verdict.lines_nonfinite, 1u);
    EXPECT_EQ(clean.verdict.columns_nonfinite, 2u);
    EXPECT_EQ(clean.verdict.lines_dirty, 0u);
    EXPECT_LT(clean.verdict.sigma_measured, 4.0f);
    call.p.at(50, 76) += 9.0f;  // beside the marked column, in another class or the same
    call.p.at(50, 77 - 8) += 9.0f;
    call.p.at(12, 129) = kNan;
    const Result r = run(call);
    EXPECT_EQ(r.outcome, Outcome::kCorrected);
    EXPECT_EQ(r.verdict.entries_repaired, 3u);
    EXPECT_TRUE(is_recomputed(call, 50, 69, 0, r.p.at(50, 69)));
    EXPECT_TRUE(std::isnan(r.p.at(50, 77)));  // as the library left it
    ASSERT_EQ(r.calls.size(), 1u);
    EXPECT_EQ(r.calls[0].lines_nonfinite, 1u);
    EXPECT_EQ(r.calls[0].columns_nonfinite, 2u);
  }
}

TEST(Nonfinite, TooManyColumnsAreUnverified) {
  Call call = call_of(64, 40, 200);
  for (int64_t j = 0; j < 65; ++j) call.b.at(j % 40, j * 3) = kNan;
  call.p = multiply(Order::kSequential, call.a, call.b);
  call.p.at(1, 199) += 50.0f;
  const Matrix start = call.p;
  const Result r = run(call);
  EXPECT_EQ(r.outcome, Outcome::kUnverified);
  EXPECT_EQ(r.reason, Reason::kNonfiniteOperand);
  EXPECT_EQ(std::memcmp(r.p.values.data(), start.values.data(), start.values.size() * 4), 0);
  EXPECT_EQ(r.d.at(1, 199),
            reference::round_to(call.type_d, static_cast<double>(start.at(1, 199))));  // still delivered
  call.b.at(24, 192) = 0.5f;  // one of the 65 less: 64 are taken out
  call.p = multiply(Order::kSequential, call.a, call.b);
  EXPECT_EQ(run(call).verdict.columns_nonfinite, 64u);
}

TEST(Nonfinite, AllRowsMarkedIsUnverified) {
  Call call = call_of(64, 40, 64);
  for (int64_t i = 0; i < 64; ++i) call.a.at(i, i % 40) = kNan;
  call.p = multiply(Order::kSequential, call.a, call.b);
  const Result r = run(call);
  EXPECT_EQ(r.outcome, Outcome::kUnverified);
  EXPECT_EQ(r.reason, Reason::kNonfiniteOperand);
}

TEST(Verdict, ClassSumOutOfRangeIsUnverified) {
  Call call = call_of(64, 40, 64);
  for (int64_t j = 0; j < 64; j += 8) call.b.at(3, j) = j % 16 == 0 ? 0x1.8p127f : -0x1.8p127f;
  call.p = Matrix(64, 64);
  call.seed = 1;
  bool seen = false;
  for (; call.seed < 8; ++call.seed) {  // whether a class sum overflows hangs on the draw
    const Result r = run(call);
    if (r.verdict.range == 0) continue;
    seen = true;
    EXPECT_EQ(r.outcome, Outcome::kUnverified);
    EXPECT_EQ(r.reason, Reason::kRange);
  }
  EXPECT_TRUE(seen);
}

// --- history ---

TEST(History, SeededByAuditsThatAgreedAndCapsSigma) {
  Call call = call_of(64, 640, 64, Kind::kGauss, DataType::kBF16, Order::kRounded16);
  call.site_history = make_history();
  call.family_history = make_history();
  const Result first = run(call);
  EXPECT_EQ(first.outcome, Outcome::kClean);
  EXPECT_EQ(first.verdict.lines_audited, kAuditLines);
  EXPECT_EQ(std::set<uint32_t>(first.listed.begin(), first.listed.end()).size(), kAuditLines);
  EXPECT_EQ(first.verdict.sigma_cap, first.params.sigma_envelope);
  const auto history = read_array<SiteHistory>(call.site_history, 1)[0];
  EXPECT_EQ(history.agreed, kAuditLines);
  EXPECT_EQ(history.count, 1u);
  EXPECT_EQ(history.sigma[0], first.verdict.sigma);
  call.seed = 2;
  const Result second = run(call);
  EXPECT_EQ(second.verdict.lines_audited, 0u);
  EXPECT_EQ(second.verdict.sigma_cap, 3.0f * first.verdict.sigma);
  EXPECT_LT(second.verdict.sigma_cap, second.params.sigma_envelope);
  EXPECT_EQ(second.outcome, Outcome::kClean);
  // A new site of the family starts from the family's noise.
  call.site_history = make_history();
  const Result other = run(call);
  EXPECT_LE(other.verdict.sigma_cap, 3.0f * std::max(first.verdict.sigma, second.verdict.sigma));
  EXPECT_EQ(other.verdict.lines_audited, kAuditLines);
}

TEST(History, QuarterQuantileOfTheCleanCalls) {
  Call call = call_of(128, 96, 128);
  SiteHistory history{};
  for (uint32_t i = 0; i < kHistoryDepth; ++i)
    history.sigma[i] = i % 3 == 0 ? 0.0f : 1.0f + 0.01f * static_cast<float>(i);
  history.agreed = kAuditLines;
  std::vector<float> filled;
  for (float s : history.sigma) {
    if (s > 0.0f) filled.push_back(s);
  }
  std::sort(filled.begin(), filled.end());
  call.site_history = make_history();
  ASSERT_EQ(cuMemcpyHtoD_v2(call.site_history, &history, sizeof history), CUDA_SUCCESS);
  EXPECT_EQ(run(call).verdict.sigma_cap, 3.0f * filled[(filled.size() - 1) / 4]);
}

TEST(History, OnlyCleanCallsTeachIt) {
  Call call = call_of(128, 96, 128);
  call.site_history = make_history();
  call.p.at(5, 5) += 20.0f;
  EXPECT_EQ(run(call).outcome, Outcome::kCorrected);
  EXPECT_EQ(read_array<SiteHistory>(call.site_history, 1)[0].count, 0u);
  EXPECT_EQ(read_array<SiteHistory>(call.site_history, 1)[0].agreed, 0u);
}

// --- must-fail: what each part is there for ---

uint64_t seeded_history(float sigma) {
  SiteHistory history{};
  history.sigma[0] = sigma;
  history.count = 1;
  history.agreed = kAuditLines;
  const uint64_t address = make_history();
  cuMemcpyHtoD_v2(address, &history, sizeof history);
  return address;
}

TEST(MustFail, WithoutTheSecondDrawACancellingPairIsMissed) {
  Call call = call_of(64, 96, 512, Kind::kGauss, DataType::kBF16, Order::kRounded16);
  const float sigma = run(call).verdict.sigma;
  call.site_history = seeded_history(sigma);
  // Two equal faults of one row and one class, on positions of opposite sign in the first draw, equal in the second.
  const uint32_t classes = 8;
  int64_t other = -1;
  for (int64_t j = 8; j < 512 && other < 0; j += classes) {
    const bool first =
        reference::is_minus(call.seed, 0, 512, classes, 0) != reference::is_minus(call.seed, 0, 512, classes, j);
    const bool second =
        reference::is_minus(call.seed, 1, 512, classes, 0) == reference::is_minus(call.seed, 1, 512, classes, j);
    if (first && second) other = j;
  }
  ASSERT_GT(other, 0);
  call.p.at(30, 0) += 0.0625f;
  call.p.at(30, other) += 0.0625f;
  const Result both = run(call);
  EXPECT_EQ(both.params.classes, classes);
  EXPECT_EQ(both.outcome, Outcome::kCorrected);
  EXPECT_EQ(both.verdict.entries_repaired, 2u);
  call.change = [](ProbeParams& p) { p.draws = 1; };
  const Result one = run(call);
  EXPECT_EQ(one.outcome, Outcome::kClean);
  EXPECT_EQ(one.verdict.entries_named, 0u);
}

TEST(MustFail, WithoutTheLineSumAShiftedLineIsMissed) {
  Call call = call_of(64, 96, 512, Kind::kGauss, DataType::kBF16, Order::kRounded16);
  for (int64_t j = 0; j < 512; ++j) call.p.at(30, j) += 4.0f;
  const Result seen = run(call);
  EXPECT_EQ(seen.outcome, Outcome::kCorrected);
  EXPECT_EQ(seen.verdict.entries_repaired, 512u);
  call.change = [](ProbeParams& p) { p.line_sum_scale = std::numeric_limits<float>::infinity(); };
  call.site_history = seeded_history(1.0f);  // no audits, which would find it by chance
  const Result blind = run(call);
  EXPECT_EQ(blind.outcome, Outcome::kClean);
  EXPECT_EQ(blind.verdict.entries_named, 0u);
}

TEST(MustFail, WithoutTheCapWideFaultsHideThemselves) {
  const auto uncapped = [](ProbeParams& p) {
    p.site_history = p.family_history = 0;
    p.sigma_envelope = std::numeric_limits<float>::max();
    p.line_sum_scale = std::numeric_limits<float>::infinity();  // which sees faults in all of a line too
    p.audit_lines = 0;
  };
  for (int pattern = 0; pattern < 2; ++pattern) {
    const int64_t n3 = pattern == 0 ? 128 : 15;   // one class: one fault a row is a fault in every cell
    const int64_t n1 = pattern == 0 ? 128 : 320;  // enough rows of short lines for the line plan
    Call call = call_of(n1, 96, n3, Kind::kGauss, DataType::kBF16, Order::kRounded16);
    const float sigma = run(call).verdict.sigma;
    Random random(7);
    uint64_t struck = 0;
    for (int64_t i = 0; i < n1; ++i) {
      for (int64_t j = 0; j < n3; ++j) {
        if (pattern == 1 && j != (i * 37) % n3) continue;  // one a row; else all entries
        call.p.at(i, j) += random.uniform() < 0.5 ? 0.5f : -0.5f;
        ++struck;
      }
    }
    call.site_history = seeded_history(sigma);
    call.change = {};
    const Result capped = run(call);
    EXPECT_EQ(capped.outcome, Outcome::kCorrected);
    EXPECT_EQ(capped.verdict.entries_repaired, struck);
    EXPECT_LE(capped.faults.size(), kMaxFaultRecords);
    call.change = uncapped;
    const Result blind = run(call);
    EXPECT_EQ(blind.outcome, Outcome::kClean) << "pattern " << pattern;
  }
}

TEST(MustFail, WithoutTheProductPassNothingIsSeen) {
  Call call = call_of(64, 96, 128);
  call.p.at(9, 9) += 10.0f;
  EXPECT_EQ(run(call).outcome, Outcome::kCorrected);
  call.skipped = {Kernel::kProduct};
  const Result blind = run(call);
  EXPECT_EQ(blind.verdict.entries_named, 0u);
  EXPECT_EQ(blind.p.values, call.p.values);
}

TEST(MustFail, WithoutTheRepairTheFaultIsDelivered) {
  Call call = call_of(64, 96, 128);
  const float right = reference::round_to(call.type_d, static_cast<double>(call.p.at(9, 9)));
  call.p.at(9, 9) += 10.0f;
  EXPECT_NEAR(run(call).d.at(9, 9), right, std::fabs(right) * 0x1p-7f);
  call.skipped = {Kernel::kRepair};
  EXPECT_NEAR(run(call).d.at(9, 9), right + 10.0f, 0.25f);
}

TEST(MustFail, WithoutTheFinishOfRepairedEntriesDStaysWrong) {
  Call call = call_of(64, 96, 128);
  const float right = reference::round_to(call.type_d, static_cast<double>(call.p.at(9, 9)));
  call.p.at(9, 9) += 10.0f;
  // The repair kernel alone is told that the finish was not fused: P is repaired, D keeps what the product pass
  // delivered.
  const auto unfinished = [](Kernel kernel, const LaunchShape& shape, const ProbeParams& params) {
    if (kernel != Kernel::kRepair) return false;
    ProbeParams changed = params;
    changed.fused_finish = 0;
    void* arguments[] = {&changed};
    cuLaunchKernel(function_of(shape), shape.grid, 1, 1, shape.block, 1, 1, 0, nullptr, arguments, nullptr);
    return true;
  };
  const Result r = run(call, unfinished);
  EXPECT_TRUE(is_recomputed(call, 9, 9, 0, r.p.at(9, 9)));
  EXPECT_NEAR(r.d.at(9, 9), right + 10.0f, 0.25f);
  EXPECT_NEAR(run(call).d.at(9, 9), right, std::fabs(right) * 0x1p-7f);
}

TEST(MustFail, WithoutTheRecomputationNothingIsNamed) {
  Call call = call_of(64, 96, 128);
  call.p.at(9, 9) += 10.0f;
  call.skipped = {Kernel::kRecompute};
  EXPECT_NE(run(call).outcome, Outcome::kClean);  // the look stays a look: scratch holds no right values
}

// --- records ---

TEST(Record, CallAndFaultsAreWholeAndJoined) {
  Call call = call_of(64, 96, 128);
  call.p.at(3, 100) += 10.0f;
  const Result r = run(call);
  ASSERT_EQ(r.calls.size(), 1u);
  ASSERT_EQ(r.faults.size(), 1u);
  const CallRecord& c = r.calls[0];
  uint64_t words[kRecordWords];
  std::memcpy(words, &c, sizeof words);
  EXPECT_EQ(c.tail.checksum, record_checksum(words));
  EXPECT_EQ(c.head.begin, 1u);
  EXPECT_EQ(c.tail.end, 1u);
  EXPECT_EQ(c.head.kind, RecordKind::kCall);
  EXPECT_EQ(c.head.version, kWireVersion);
  EXPECT_EQ(c.head.lane, 2u);
  EXPECT_EQ(c.call_id, 77u);
  EXPECT_EQ(c.site, 0x5117eu);
  EXPECT_EQ(c.seed, call.seed);
  EXPECT_EQ(c.m, 128);
  EXPECT_EQ(c.n, 64);
  EXPECT_EQ(c.k, 96);
  EXPECT_EQ(c.batch, 1);
  EXPECT_EQ(c.entry, 5u);
  EXPECT_EQ(c.mode, static_cast<uint8_t>(Mode::kRepair));
  EXPECT_EQ(c.outcome, Outcome::kCorrected);
  EXPECT_EQ(c.reason, Reason::kNone);
  EXPECT_EQ(c.plan, Plan::kLine);
  EXPECT_EQ(c.type_a, DataType::kBF16);
  EXPECT_EQ(c.type_d, DataType::kBF16);
  EXPECT_EQ(c.classes, 8u);
  EXPECT_EQ(c.lines, 64u);
  EXPECT_EQ(c.lines_dirty, 1u);
  EXPECT_EQ(c.entries_named, 1u);
  EXPECT_EQ(c.entries_repaired, 1u);
  EXPECT_EQ(c.sigma, r.verdict.sigma);
  EXPECT_EQ(c.threshold, r.params.look_scale);
  EXPECT_EQ(c.worst, r.verdict.worst);
  EXPECT_EQ(c.stream, 9u);
  const FaultRecord& f = r.faults[0];
  std::memcpy(words, &f, sizeof words);
  EXPECT_EQ(f.tail.checksum, record_checksum(words));
  EXPECT_EQ(f.head.kind, RecordKind::kFault);
  EXPECT_EQ(f.head.lane, 3u);
  EXPECT_EQ(f.call_id, 77u);
  EXPECT_EQ(f.row, 100);  // the caller's column-major D
  EXPECT_EQ(f.column, 3);
  EXPECT_EQ(f.got, call.p.at(3, 100));
  EXPECT_EQ(f.expected, r.p.at(3, 100));
  EXPECT_GT(f.bound, 0.0f);
  EXPECT_LT(f.bound, 1.0f);
  EXPECT_EQ(f.repaired, 1);
  double squares = 0.0;
  for (int64_t j = 0; j < 128; ++j)
    squares += static_cast<double>(call.p.at(3, j)) * static_cast<double>(call.p.at(3, j));
  EXPECT_NEAR(f.product_rms, std::sqrt(squares / 128.0), 1e-5);
}

TEST(Record, CleanCallsAreRecordedToo) {
  Call call = call_of(64, 96, 128);
  const Result r = run(call);
  ASSERT_EQ(r.calls.size(), 1u);
  EXPECT_EQ(r.calls[0].outcome, Outcome::kClean);
  EXPECT_TRUE(r.faults.empty());
}

TEST(Probe, SameSeedSameBits) {
  Call call = call_of(64, 96, 128);
  call.p.at(3, 100) += 10.0f;
  const Result first = run(call);
  call.sm_count = 5;  // another grid
  const Result second = run(call);
  EXPECT_EQ(std::memcmp(first.cells.data(), second.cells.data(), first.cells.size() * 4), 0);
  EXPECT_EQ(first.verdict.sigma, second.verdict.sigma);
  EXPECT_EQ(first.listed, second.listed);
  EXPECT_EQ(first.p.values, second.p.values);
  call.seed = 2;
  EXPECT_NE(run(call).cells, first.cells);
}

}  // namespace
}  // namespace sdcguard::stage

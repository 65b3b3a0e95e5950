// SPDX-License-Identifier: MIT
// The fold cache: three equal folds publish one, calls then read no B, a B that changes is never judged by the old fold
// (unverified, or its lines recomputed and clean), generations follow each other until the key is closed, and faults
// are found by a published fold as by an own one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/fold_cache.h"
#include "tests/stage/device.h"

namespace sdcguard::stage {
namespace {

using reference::Kind;
using reference::Matrix;
using reference::Order;

// One weight B, used by calls with an A of their own each.
class Weight {
 public:
  Weight(int64_t n2, int64_t n3, DataType type = DataType::kBF16)
      : type_(type), b_(n2, n3, 1), cache_(128), images_(1) {
    Matrix unused(1, n2, 1);
    fill(Kind::kGauss, type, 11, unused, b_);
    cache_.fill(0);
  }

  Matrix& b() { return b_; }
  FoldCache state() const { return read_array<FoldCache>(cache_.address(), 1)[0]; }
  uint32_t phase() const { return fold_cache::phase_of(state().state); }
  uint32_t generation() const { return fold_cache::generation_of(state().state); }

  // `spoil`: changes the product of A and B after it was made.
  Result call(int64_t n1, uint64_t seed_of_a, const std::function<void(Matrix&)>& spoil = {}) {
    Call call;
    call.type = type_;
    call.a = Matrix(n1, b_.rows, 1);
    Matrix unused(b_.rows, b_.cols, 1);
    fill(Kind::kGauss, type_, seed_of_a, call.a, unused);
    call.b = b_;
    call.p = multiply(Order::kTruncating, call.a, call.b);
    if (spoil) spoil(call.p);
    call.seed = 5;  // of the weight
    call.delivers = true;
    call.records = true;
    call.change = [this](ProbeParams& p) {
      if (images_bytes_ == 0) {
        images_bytes_ = p.fold_bytes;
        images_.~Buffer();
        new (&images_) Buffer(kFoldGenerations * p.fold_bytes);
      }
      EXPECT_EQ(p.fold_bytes, images_bytes_);
      p.fold_cache = cache_.address();
      p.fold_images = images_.address();
    };
    return run(call);
  }

 private:
  DataType type_;
  Matrix b_;
  Buffer cache_;
  Buffer images_;
  uint64_t images_bytes_ = 0;
};

TEST(FoldCache, ThreeEqualFoldsPublishOneAndTheFourthUsesIt) {
  for (const DataType type : {DataType::kBF16, DataType::kF32}) {
    Weight weight(96, 640, type);
    for (uint64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(weight.phase(), i < 3 ? fold_cache::kCounting : fold_cache::kPublished) << i;
      const Result own = weight.call(40, 100 + i);
      EXPECT_EQ(own.outcome, Outcome::kClean) << i;
      EXPECT_EQ(weight.state().used, i < 3 ? 0u : i - 2);
    }
    EXPECT_EQ(weight.state().stale, 0u);
  }
}

TEST(FoldCache, APublishedFoldGivesTheSameResidualsAsAnOwnOne) {
  Weight weight(80, 512);
  Result own = weight.call(33, 7);
  weight.call(33, 8);
  weight.call(33, 9);
  const Result cached = weight.call(33, 7);
  EXPECT_EQ(weight.state().used, 1u);
  ASSERT_EQ(own.cells.size(), cached.cells.size());
  EXPECT_EQ(std::memcmp(own.cells.data(), cached.cells.data(), own.cells.size() * sizeof(float)), 0);
  EXPECT_EQ(own.verdict.sigma, cached.verdict.sigma);
}

TEST(FoldCache, FaultsAreFoundAndRepairedByAPublishedFold) {
  Weight weight(80, 512);
  for (uint64_t i = 0; i < 4; ++i) weight.call(64, i);
  const Result r = weight.call(64, 50, [](Matrix& p) { p.at(12, 300) += 8.0f; });
  EXPECT_EQ(weight.state().used, 2u);
  EXPECT_EQ(r.outcome, Outcome::kCorrected);
  ASSERT_EQ(r.faults.size(), 1u);
  EXPECT_EQ(r.faults[0].column, 12);
  EXPECT_EQ(r.faults[0].row, 300);
  EXPECT_EQ(weight.phase(), fold_cache::kPublished);  // a fault says nothing against the fold
}

// A weight that is updated in place: no line may be accused by the fold of the old one, and none be called clean by it.
TEST(FoldCache, AChangedWeightIsUnverifiedOnceThenFoldedAnew) {
  Weight weight(80, 512);
  uint64_t seed = 1;
  for (uint32_t generation = 0; generation < kFoldGenerations; ++generation) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(weight.call(64, ++seed).outcome, Outcome::kClean);
    ASSERT_EQ(weight.phase(), fold_cache::kPublished);
    ASSERT_EQ(weight.generation(), generation);
    for (float& value : weight.b().values) value *= 2.0f;
    const Result stale = weight.call(64, ++seed);
    EXPECT_EQ(stale.outcome, Outcome::kUnverified);
    EXPECT_EQ(stale.reason, Reason::kStaleFold);
    EXPECT_GT(stale.verdict.lines_dirty, 64u / 4);  // judged by this fold, all of them would have been listed
    EXPECT_EQ(stale.verdict.entries_named, 0u);
    EXPECT_TRUE(stale.faults.empty());
    EXPECT_EQ(weight.state().stale, generation + 1);
    EXPECT_EQ(weight.call(64, ++seed).outcome, Outcome::kClean);
  }
  // It keeps going stale: it is not cached any more, and checked at every call.
  EXPECT_EQ(weight.phase(), fold_cache::kClosed);
  const uint64_t used = weight.state().used;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(weight.call(64, ++seed).outcome, Outcome::kClean);
  EXPECT_EQ(weight.state().used, used);
  const Result r = weight.call(64, 50, [](Matrix& p) { p.at(3, 4) += 8.0f; });
  EXPECT_EQ(r.outcome, Outcome::kCorrected);
}

// Few lines, or a change that only few lines see: they are recomputed, which clears them, and the fold is given up.
TEST(FoldCache, AChangeThatFewLinesSeeIsBenignAndRetiresTheFold) {
  Weight weight(80, 2048);
  for (uint64_t i = 0; i < 4; ++i) weight.call(2, i);
  ASSERT_EQ(weight.phase(), fold_cache::kPublished);
  for (float& value : weight.b().values) value *= -1.0f;
  const Result r = weight.call(2, 60);
  EXPECT_EQ(r.outcome, Outcome::kBenign);
  EXPECT_TRUE(r.faults.empty());
  EXPECT_EQ(weight.phase(), fold_cache::kCounting);
  EXPECT_EQ(weight.generation(), 1u);
}

// The three must be equal: a B that is another one at every call is never published.
TEST(FoldCache, ABufferWithNewContentsEachTimeIsNeverPublished) {
  Weight weight(80, 512);
  for (uint64_t i = 0; i < 9; ++i) {
    weight.b().at(static_cast<int64_t>(i), 3) = -weight.b().at(static_cast<int64_t>(i), 3);
    EXPECT_EQ(weight.call(64, i).outcome, Outcome::kClean);
  }
  EXPECT_EQ(weight.phase(), fold_cache::kCounting);
  EXPECT_EQ(weight.state().used, 0u);
}

// Columns that are set aside are part of the fold.
TEST(FoldCache, NonFiniteColumnsStayAside) {
  Weight weight(80, 512);
  weight.b().at(5, 77) = std::numeric_limits<float>::quiet_NaN();
  for (uint64_t i = 0; i < 5; ++i) {
    const Result r = weight.call(64, i);
    EXPECT_EQ(r.outcome, Outcome::kClean) << i;
    EXPECT_EQ(r.verdict.columns_nonfinite, 1u);
    EXPECT_EQ(r.reason, Reason::kNonfiniteOperand);
  }
  EXPECT_EQ(weight.state().used, 2u);
}

}  // namespace
}  // namespace sdcguard::stage

// SPDX-License-Identifier: MIT
// Random clean products of every type, kind of data, layout, shape of up to 300 and order of accumulation that the host
// device knows: no entry is ever named, and at most one product in 10,000 is looked at. RANDOM_PRODUCTS and RANDOM_SEED
// set how many and which, RANDOM_RATIOS=1 prints how near each came to a look.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <string>

#include "tests/stage/device.h"
#include "tests/stage/engine_product.h"

namespace sdcguard::stage {
namespace {

using reference::Kind;
using reference::Matrix;
using reference::Random;
using reference::WideMatrix;

struct Drawn {
  const Family* family;
  std::string order;
  Kind kind;
  int64_t n1, n2, n3;
};

template <typename V>
CallOf<V> call_of(const Drawn& drawn, Random& random, uint64_t seed) {
  CallOf<V> call;
  const Family& f = *drawn.family;
  call.type = f.a;
  call.type_b = f.b;
  call.accumulator = f.accumulator;
  call.rounding = f.rounding;
  call.tensor_core = tensor_core_of(compute_major_of(drawn.order), f.a);
  call.seed = seed;
  Matrix a(drawn.n1, drawn.n2);
  Matrix b(drawn.n2, drawn.n3);
  Matrix other_a = a;
  Matrix other_b = b;
  const bool wide = f.a == DataType::kF64 || f.a == DataType::kI8;
  fill(drawn.kind, wide ? DataType::kF32 : f.a, seed, a, other_b);
  fill(drawn.kind, wide ? DataType::kF32 : f.b, seed, other_a, b);
  // Now and then data that leave the normal range, or come close.
  if (random.below(8) == 0 && f.a != DataType::kI8) {
    const bool narrow = f.a == DataType::kF16 || f.a == DataType::kE4M3 || f.a == DataType::kE5M2;
    const int exponent = static_cast<int>(random.below(narrow ? 12 : 90)) - (narrow ? 10 : 80);
    for (float& v : a.values)
      v = reference::round_to(wide ? DataType::kF32 : f.a, std::ldexp(static_cast<double>(v), exponent));
    for (float& v : b.values)
      v = reference::round_to(wide ? DataType::kF32 : f.b, std::ldexp(static_cast<double>(v), exponent));
  }
  const auto value = [&](float v) -> V {
    if (f.a == DataType::kI8)
      return static_cast<V>(std::nearbyint(std::clamp(static_cast<double>(v) * 50.0, -128.0, 127.0)));
    if (f.a == DataType::kF64)
      return static_cast<V>(static_cast<double>(v) * (1.0 + 0x1p-30 * static_cast<double>(random.below(1 << 20))));
    return static_cast<V>(v);
  };
  call.a = reference::MatrixOf<V>(drawn.n1, drawn.n2);
  call.b = reference::MatrixOf<V>(drawn.n2, drawn.n3);
  for (size_t i = 0; i < a.values.size(); ++i) call.a.values[i] = value(a.values[i]);
  for (size_t i = 0; i < b.values.size(); ++i) call.b.values[i] = value(b.values[i]);
  call.layout_a = Layout{random.below(2) == 0, random.below(3), random.below(2)};
  call.layout_b = Layout{random.below(2) == 0, random.below(3), random.below(2)};
  call.p = engine_product(f, drawn.order, call.a, call.b);
  if constexpr (std::is_same_v<V, double>) {
    call.type_d = f.a == DataType::kF64 ? DataType::kF64 : DataType::kI32;
    call.scalar_type = call.type_d;
  } else {
    if (f.accumulator == Accumulator::kF16) {
      call.type_d = DataType::kF16;
      call.delivered = true;
    } else if ((f.a == DataType::kBF16 || f.a == DataType::kF16) && random.below(4) == 0) {
      call.type_d = f.a;  // a 16-bit D as delivered
      call.delivered = true;
      for (float& v : call.p.values) v = reference::round_to(f.a, static_cast<double>(v));
    }
  }
  return call;
}

struct Counted {
  int products = 0, looks = 0, named = 0, range = 0;
};

template <typename V>
void count(CallOf<V>& call, const Drawn& drawn, Counted& counted) {
  ++counted.products;
  const ResultOf<V> r = run(call);
  const bool looked = r.verdict.lines_dirty != 0 && r.params.plan != Plan::kRecompute;
  counted.looks += looked ? 1 : 0;
  counted.named += r.verdict.entries_named != 0 ? 1 : 0;
  counted.range += r.outcome == Outcome::kUnverified ? 1 : 0;
  if (std::getenv("RANDOM_RATIOS") != nullptr && r.params.plan == Plan::kLine) {
    std::printf("ratio %g n2 %lld width %lld cells %lld %s %s\n",
                static_cast<double>(r.verdict.worst / r.verdict.threshold), static_cast<long long>(drawn.n2),
                static_cast<long long>(drawn.n3 / r.params.classes),
                static_cast<long long>(drawn.n1 * r.params.classes * 2), name_of(drawn.kind), drawn.family->name);
  }
  const bool fine = r.verdict.entries_named == 0 &&
                    (r.outcome == Outcome::kClean || r.outcome == Outcome::kBenign || r.reason == Reason::kRange);
  EXPECT_TRUE(fine) << name_of(r.outcome) << " " << name_of(r.reason);
  if (!fine || looked) {
    std::printf("%s: %s %s %s %lld x %lld x %lld seed %llu %s: %u dirty, worst %g of %g, sigma %g cap %g, named %llu\n",
                looked ? "look" : "fault", drawn.family->name, drawn.order.c_str(), name_of(drawn.kind),
                static_cast<long long>(drawn.n1), static_cast<long long>(drawn.n2), static_cast<long long>(drawn.n3),
                static_cast<unsigned long long>(call.seed), name_of(r.params.plan), r.verdict.lines_dirty,
                static_cast<double>(r.verdict.worst), static_cast<double>(r.verdict.threshold),
                static_cast<double>(r.verdict.sigma_measured), static_cast<double>(r.verdict.sigma_cap),
                static_cast<unsigned long long>(r.verdict.entries_named));
  }
}

Drawn draw(Random& random, std::span<const Kind> kinds) {
  Drawn drawn;
  drawn.family = &families()[static_cast<size_t>(random.below(static_cast<int64_t>(families().size())))];
  const auto& orders = drawn.family->orders;
  drawn.order = orders[static_cast<size_t>(random.below(static_cast<int64_t>(orders.size())))];
  drawn.kind = kinds[static_cast<size_t>(random.below(static_cast<int64_t>(kinds.size())))];
  do {
    const auto size = [&] { return random.below(3) == 0 ? 1 + random.below(300) : 1 + random.below(80); };
    drawn.n1 = size();
    drawn.n2 = size();
    drawn.n3 = size();
  } while (drawn.n1 * drawn.n2 * drawn.n3 > 4'000'000);
  return drawn;
}

Random random_of(uint64_t seed) {
  return Random(seed * 0x9E3779B97F4A7C15ull);
}

TEST(MustFail, WithoutTheFloorOfSubnormalsMostLinesAreLookedAt) {
  // FP16 operands in the subnormal range: addends are cut at the place of the smallest normal value.
  constexpr uint64_t kSeed = 1370;
  Random random = random_of(kSeed);
  const Drawn drawn = draw(random, reference::kStructuredKinds);
  Call call = call_of<float>(drawn, random, kSeed);
  EXPECT_EQ(run(call).verdict.lines_dirty, 0u);
  call.change = [](ProbeParams& p) { p.operand_floor_a = p.operand_floor_b = 0.0f; };
  const Result without = run(call);
  EXPECT_GT(2 * without.verdict.lines_dirty, without.params.lines);
}

TEST(MustFail, WithoutTheFloorsOfAStepAndOfSubnormalsFp8IsAccused) {
  // Of 10,000 random products these were accused before both were there.
  for (uint64_t seed : {102122, 103687, 108216, 109723}) {
    Random random = random_of(seed);
    const Drawn drawn = draw(random, reference::kKinds);
    Call call = call_of<float>(drawn, random, seed);
    EXPECT_EQ(run(call).verdict.entries_named, 0u);
    call.change = [](ProbeParams& p) {
      p.entry_floor = 0.25f;
      p.operand_floor_a = p.operand_floor_b = 0.0f;
    };
    EXPECT_GT(run(call).verdict.entries_named, 0u);
    call.change = [](ProbeParams& p) { p.entry_floor = 0.25f; };
    std::printf("seed %llu: without the floor of a step alone %llu named", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(run(call).verdict.entries_named));
    call.change = [](ProbeParams& p) { p.operand_floor_a = p.operand_floor_b = 0.0f; };
    std::printf(", without that of subnormals alone %llu\n",
                static_cast<unsigned long long>(run(call).verdict.entries_named));
  }
}

void nothing_is_named(std::span<const Kind> kinds) {
  const char* const asked = std::getenv("RANDOM_PRODUCTS");
  const char* const from = std::getenv("RANDOM_SEED");
  const int products = asked != nullptr ? std::atoi(asked) : 160;
  uint64_t seed = from != nullptr ? std::strtoull(from, nullptr, 10) : 1;
  std::map<std::string, Counted> counts;
  Counted all;
  for (int i = 0; i < products; ++i, ++seed) {
    Random random = random_of(seed);
    const Drawn drawn = draw(random, kinds);
    Counted& counted = counts[drawn.family->name];
    const bool wide = drawn.family->a == DataType::kF64 || drawn.family->a == DataType::kI8;
    const auto once = [&](auto&& call) {
      const Counted before = counted;
      count(call, drawn, counted);
      all.products += counted.products - before.products;
      all.looks += counted.looks - before.looks;
      all.named += counted.named - before.named;
      all.range += counted.range - before.range;
    };
    if (wide) {
      once(call_of<double>(drawn, random, seed));
    } else {
      once(call_of<float>(drawn, random, seed));
    }
  }
  for (const auto& [name, c] : counts) {
    std::printf("%-16s %6d products %4d looks %4d named %4d out of range\n", name.c_str(), c.products, c.looks, c.named,
                c.range);
  }
  std::printf("%-16s %6d products %4d looks %4d named %4d out of range\n", "all", all.products, all.looks, all.named,
              all.range);
  EXPECT_EQ(all.named, 0);
  // One in 10,000; of few products none, but one of a long run is no failure.
  EXPECT_LE(all.looks, all.products / 10000);
}

TEST(RandomClean, IdenticalColumnsWhosePrefixesCancelAreClean) {
  // A scale made of deviations from the mean of B's rows has nothing to go by here: one line was looked at.
  constexpr uint64_t kSeed = 389;
  Random random = random_of(kSeed);
  const Drawn drawn = draw(random, reference::kStructuredKinds);
  EXPECT_EQ(drawn.kind, Kind::kIdenticalColumns);
  Call call = call_of<float>(drawn, random, kSeed);
  EXPECT_EQ(run(call).verdict.lines_dirty, 0u);
}

TEST(RandomClean, NothingIsEverNamed) {
  nothing_is_named(reference::kKinds);
}

TEST(RandomClean, NorInStructuredData) {
  nothing_is_named(reference::kStructuredKinds);
}

}  // namespace
}  // namespace sdcguard::stage

// SPDX-License-Identifier: MIT
// The product engine: every vector path against the defining scalar order bit for bit, over data that leaves its range;
// batches, layouts, split-K, threads; the exported functions.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tools/hostcuda/gemm/engine.h"
#include "tools/hostcuda/gemm/fast.h"
#include "tools/hostcuda/gemm/gemm.h"
#include "tools/hostcuda/gemm/matrix.h"
#include "tools/hostcuda/gemm/order.h"
#include "tools/hostcuda/gemm/pool.h"

namespace hostcuda::gemm {
namespace {

uint32_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}

Order order_named(const std::string& name) {
  Order order;
  std::string error;
  EXPECT_TRUE(parse_order(name, &order, &error)) << error;
  return order;
}

uint16_t to_bf16(float value) {
  return static_cast<uint16_t>(bits(value) >> 16);
}

uint16_t to_fp16(float value) {
  const float half = round_to_half(value);
  const uint32_t pattern = bits(half);
  const uint32_t sign = (pattern >> 16) & 0x8000u;
  const uint32_t magnitude = pattern & 0x7FFFFFFFu;
  if (magnitude >= 0x7F800000u) return static_cast<uint16_t>(sign | (magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u));
  if (magnitude < 0x38800000u) return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::fabs(half) * 0x1p24f));
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u) >> 13));
}

// A stored matrix of any type, filled from values.
struct Matrix {
  std::vector<uint16_t> halves;
  std::vector<float> floats;
  Type type;
  int64_t ld, stride;
  bool transposed;

  Operand operand() const {
    const void* data = type == Type::kFp32 ? static_cast<const void*>(floats.data()) : halves.data();
    return {data, nullptr, ld, stride, type, transposed};
  }
};

// rows x cols after op(), batch entries, with a margin in ld and stride. value(r, c) is drawn in that order.
Matrix matrix_of(Type type, int64_t rows, int64_t cols, int64_t batch, bool transposed,
                 const std::function<float(int64_t, int64_t)>& value) {
  const int64_t ld = (transposed ? cols : rows) + 3;
  const int64_t stride = ld * (transposed ? rows : cols) + 5;
  Matrix matrix{{}, {}, type, ld, stride, transposed};
  const size_t size = static_cast<size_t>(stride * batch);
  if (type == Type::kFp32) {
    matrix.floats.assign(size, 7.0f);
  } else {
    matrix.halves.assign(size, 0x4321);
  }
  for (int64_t e = 0; e < batch; ++e) {
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t r = 0; r < rows; ++r) {
        const size_t i = static_cast<size_t>(e * stride + (transposed ? c + r * ld : r + c * ld));
        if (type == Type::kFp32) {
          matrix.floats[i] = value(r, c);
        } else {
          matrix.halves[i] = type == Type::kBf16 ? to_bf16(value(r, c)) : to_fp16(value(r, c));
        }
      }
    }
  }
  return matrix;
}

struct Case {
  Matrix a, b;
  std::vector<float> out;
  Product product;
};

Case make_case(Type type, int64_t m, int64_t n, int64_t k, int64_t batch, bool transpose_a, bool transpose_b,
               const std::function<float(int64_t, int64_t)>& a_value,
               const std::function<float(int64_t, int64_t)>& b_value) {
  Case made{
      matrix_of(type, m, k, batch, transpose_a, a_value), matrix_of(type, k, n, batch, transpose_b, b_value), {}, {}};
  made.out.assign(static_cast<size_t>(((m + 2) * n + 1) * batch), -1.0f);
  made.product = Product{
      m, n,  k, batch, made.a.operand(), made.b.operand(), Compute::kFp32, made.out.data(), m + 2, (m + 2) * n + 1,
      0, {}, 0, 0};
  return made;
}

float replayed(const Order& order, const Product& product, int64_t entry, int64_t row, int64_t col) {
  const View a = view_of(product.a, entry);
  const View b = view_of(product.b, entry);
  std::vector<float> x(static_cast<size_t>(product.k));
  std::vector<float> y(x.size());
  for (int64_t l = 0; l < product.k; ++l) {
    x[static_cast<size_t>(l)] = a.at(row, l);
    y[static_cast<size_t>(l)] = b.at(l, col);
  }
  return replay_entry(order, product.a.type, product.b.type, product.compute, x.data(), y.data(), product.k, nullptr);
}

// Entries whose bits differ from the scalar order.
int64_t differing(const Order& order, const Product& product) {
  int64_t count = 0;
  for (int64_t e = 0; e < product.batch; ++e) {
    for (int64_t col = 0; col < product.n; ++col) {
      for (int64_t row = 0; row < product.m; ++row) {
        const float got = static_cast<const float*>(product.out)[e * product.out_stride + row + col * product.out_ld];
        count += bits(got) != bits(replayed(order, product, e, row, col)) ? 1 : 0;
      }
    }
  }
  return count;
}

constexpr const char* kOrderNames[] = {"h100",
                                       "a100",
                                       "ada",
                                       "v100",
                                       "b200",
                                       "rounded16",
                                       "sequential",
                                       "h100/split3",
                                       "rounded16/split4",
                                       "sequential/split2"};

using Values = std::function<float(int64_t, int64_t)>;

struct DataKind {
  const char* name;
  std::function<std::pair<Values, Values>(std::mt19937&)> make;
};

Values gauss(std::mt19937& generator, float scale = 1.0f) {
  return [&generator, scale](int64_t, int64_t) {
    std::normal_distribution<float> normal;
    return normal(generator) * scale;
  };
}

// Sign and significand random, exponent uniform in [low, high].
Values spread(std::mt19937& generator, int low, int high) {
  return [&generator, low, high](int64_t, int64_t) {
    std::uniform_int_distribution<int> exponent(low, high);
    std::uniform_real_distribution<float> significand(1.0f, 2.0f);
    const float value = std::ldexp(significand(generator), exponent(generator));
    return (generator() & 1) != 0 ? value : -value;
  };
}

Values sometimes(std::mt19937& generator, Values usual, Values rare, unsigned one_in) {
  return [&generator, usual, rare, one_in](int64_t r, int64_t c) {
    return generator() % one_in == 0 ? rare(r, c) : usual(r, c);
  };
}

Values fixed(float value) {
  return [value](int64_t, int64_t) { return value; };
}

std::vector<DataKind> data_kinds() {
  const float inf = INFINITY;
  return {
      {"gauss", [](auto& g) { return std::make_pair(gauss(g), gauss(g)); }},
      {"zeros", [](auto&) { return std::make_pair(fixed(0.0f), fixed(-0.0f)); }},
      {"sparse",
       [](auto& g) {
         return std::make_pair(sometimes(g, fixed(0), gauss(g), 6), sometimes(g, fixed(-0.0f), gauss(g), 6));
       }},
      {"wide", [](auto& g) { return std::make_pair(spread(g, -20, 20), spread(g, -14, 14)); }},
      {"edge", [](auto& g) { return std::make_pair(spread(g, -42, 42), spread(g, -42, 42)); }},
      {"beyond", [](auto& g) { return std::make_pair(spread(g, -60, 60), spread(g, -50, 50)); }},
      {"everything", [](auto& g) { return std::make_pair(spread(g, -126, 127), spread(g, -126, 127)); }},
      {"tiny", [](auto& g) { return std::make_pair(gauss(g, 0x1p-110f), gauss(g)); }},
      {"tiniest", [](auto& g) { return std::make_pair(gauss(g, 0x1p-120f), gauss(g, 0x1p-20f)); }},
      {"huge", [](auto& g) { return std::make_pair(gauss(g, 0x1p105f), gauss(g)); }},
      {"overflowing", [](auto& g) { return std::make_pair(gauss(g, 0x1p100f), gauss(g, 0x1p27f)); }},
      {"subnormal", [](auto& g) { return std::make_pair(sometimes(g, gauss(g), gauss(g, 0x1p-130f), 40), gauss(g)); }},
      {"fp16 subnormal", [](auto& g) { return std::make_pair(spread(g, -24, -13), spread(g, -14, 1)); }},
      {"mixed scale",
       [](auto& g) {
         return std::make_pair(Values([&g](int64_t r, int64_t) {
                                 return std::ldexp(gauss(g)(0, 0), static_cast<int>(r * 7 % 120) - 60);
                               }),
                               Values([&g](int64_t, int64_t c) {
                                 return std::ldexp(gauss(g)(0, 0), static_cast<int>(c * 5 % 100) - 50);
                               }));
       }},
      {"outliers",
       [](auto& g) {
         return std::make_pair(sometimes(g, gauss(g), gauss(g, 0x1p60f), 200),
                               sometimes(g, gauss(g), gauss(g, 0x1p-70f), 200));
       }},
      {"largest significands", [](auto&) { return std::make_pair(fixed(0x1.fep0f), fixed(0x1.fep0f)); }},
      {"cancelling",
       [](auto&) {
         return std::make_pair(Values([](int64_t r, int64_t c) {
                                 return (c % 2 != 0 ? -1.0f : 1.0f) * (1.0f + static_cast<float>(r % 5) / 8);
                               }),
                               Values([](int64_t, int64_t c) { return 0x1.8p0f + static_cast<float>(c % 3); }));
       }},
      {"non-finite",
       [inf](auto& g) {
         return std::make_pair(sometimes(g, gauss(g), sometimes(g, fixed(inf), fixed(NAN), 2), 300),
                               sometimes(g, gauss(g), fixed(-inf), 300));
       }},
  };
}

TEST(Gemm, VectorPaths_EqualTheScalarOrderOnEveryDataKind) {
  for (const char* name : kOrderNames) {
    const Order order = order_named(name);
    for (const DataKind& kind : data_kinds()) {
      for (const Type type : {Type::kBf16, Type::kFp16}) {
        if (type == Type::kBf16 && !order.has_bf16) continue;
        std::mt19937 generator(17);
        const auto [a, b] = kind.make(generator);
        Case one = make_case(type, 37, 11, 83, 1, false, true, a, b);
        compute_product(order, 1, one.product);
        EXPECT_EQ(differing(order, one.product), 0)
            << name << ", " << kind.name << ", " << (type == Type::kBf16 ? "bf16" : "fp16");
      }
    }
  }
}

TEST(Gemm, VectorPaths_RandomBitPatterns) {
  for (const char* name : {"h100", "a100", "v100", "rounded16"}) {
    const Order order = order_named(name);
    for (const Type type : {Type::kBf16, Type::kFp16}) {
      if (type == Type::kBf16 && !order.has_bf16) continue;
      std::mt19937 generator(5);
      Case one = make_case(type, 64, 24, 48, 1, false, false, fixed(0), fixed(0));
      for (uint16_t& word : one.a.halves) word = static_cast<uint16_t>(generator());
      for (uint16_t& word : one.b.halves) word = static_cast<uint16_t>(generator());
      // One pattern in 32 (FP16) or 256 (BF16) is not finite: take most of these out, or every entry is a NaN.
      const uint16_t field = type == Type::kBf16 ? 0x7F80 : 0x7C00;
      for (auto* words : {&one.a.halves, &one.b.halves}) {
        for (uint16_t& word : *words) {
          if ((word & field) == field && generator() % 64 != 0) word = static_cast<uint16_t>(word & ~0x4000u);
        }
      }
      compute_product(order, 1, one.product);
      EXPECT_EQ(differing(order, one.product), 0) << name;
    }
  }
}

// The tests above are worth nothing where the vector path was never left, or never taken.
TEST(Gemm, VectorPaths_EachWayOutIsTaken) {
  ASSERT_TRUE(has_vector_paths());
  const Order order = order_named("h100");
  std::mt19937 generator(3);
  const auto steps_of = [&](const Values& a, const Values& b) {
    const ScalarSteps before = scalar_steps();
    Case one = make_case(Type::kBf16, 32, 8, 64, 1, false, false, a, b);
    compute_product(order, 1, one.product);
    EXPECT_EQ(differing(order, one.product), 0);
    const ScalarSteps after = scalar_steps();
    return ScalarSteps{after.window - before.window, after.overflow - before.overflow, after.chains - before.chains};
  };
  const ScalarSteps usual = steps_of(gauss(generator), gauss(generator));
  EXPECT_EQ(usual.window + usual.overflow + usual.chains, 0);
  const ScalarSteps shifted = steps_of(gauss(generator, 0x1p-60f), gauss(generator, 0x1p50f));
  EXPECT_EQ(shifted.window + shifted.overflow + shifted.chains, 0) << "a common power of two stays on the vector path";
  const ScalarSteps outlier = steps_of(sometimes(generator, gauss(generator), fixed(0x1p-100f), 64), gauss(generator));
  EXPECT_GT(outlier.window, 0);
  EXPECT_EQ(outlier.overflow, 0);
  const ScalarSteps lost = steps_of(sometimes(generator, gauss(generator), fixed(INFINITY), 64), gauss(generator));
  EXPECT_GT(lost.chains, 0);
}

// A scalar step may leave an accumulator that a later vector step, all zeros, would cut off at 2^(-84 - 25).
TEST(Gemm, VectorPaths_AccumulatorBelowTheWindowIsKept) {
  std::mt19937 generator(14);
  const Order order = order_named("h100");
  const auto lonely = [&](int64_t row, int64_t l) {
    return row != 0 ? gauss(generator)(0, 0) : l == 0 ? 0x1.fep-100f : 0.0f;
  };
  const auto full = [&](int64_t l, int64_t) { return l == 0 ? 0x1.fep0f : gauss(generator)(0, 0); };
  Case one = make_case(Type::kBf16, 32, 8, 48, 1, false, false, lonely, full);
  compute_product(order, 1, one.product);
  EXPECT_EQ(one.out[0], 0x1.fep-100f * 0x1.fep0f);
  EXPECT_EQ(differing(order, one.product), 0);
}

TEST(Gemm, VectorPaths_Int32OverflowIsSeen) {
  ASSERT_TRUE(has_vector_paths());
  const Order order = order_named("h100");
  // Step 1 leaves an accumulator just below 2, step 2 adds 16 products just below 4, all of exponent 0: in units of
  // 2^-25 that is 16 x 2^27 + 2^26 less a little, above 2^31. (BF16 significands are too short to come that near to 4.)
  for (const float sign : {1.0f, -1.0f}) {
    const ScalarSteps before = scalar_steps();
    Case one = make_case(
        Type::kFp16, 32, 8, 32, 1, false, false,
        [&](int64_t, int64_t l) { return sign * (l < 16 ? (l == 0 ? 0x1.ffcp0f : 0.0f) : 0x1.ffcp0f); },
        [](int64_t l, int64_t) { return l == 0 ? 0x1.0p0f : 0x1.ffcp0f; });
    compute_product(order, 1, one.product);
    EXPECT_EQ(differing(order, one.product), 0);
    EXPECT_GT(scalar_steps().overflow - before.overflow, 0);
  }
}

TEST(Gemm, Fp32_IsSequentialInEveryOrder) {
  std::mt19937 generator(9);
  Case one = make_case(Type::kFp32, 35, 13, 70, 1, true, false, gauss(generator), gauss(generator));
  const Order sequential = order_named("sequential");
  for (const char* name : kOrderNames) {
    std::fill(one.out.begin(), one.out.end(), -1.0f);
    compute_product(order_named(name), 1, one.product);
    EXPECT_EQ(differing(sequential, one.product), 0) << name;
  }
}

// Must-fail: on ordinary data each order gives other bits than its neighbours, so an order that is ignored shows.
TEST(Gemm, Orders_DifferOnOrdinaryData) {
  std::mt19937 generator(21);
  Case one = make_case(Type::kFp16, 32, 8, 256, 1, false, false, gauss(generator), gauss(generator));
  const char* names[] = {"h100", "a100", "v100", "rounded16", "sequential", "h100/split4", "rounded16/split4"};
  for (const char* computed : names) {
    compute_product(order_named(computed), 1, one.product);
    for (const char* held : names) {
      const int64_t differ = differing(order_named(held), one.product);
      if (std::string(computed) == held) {
        EXPECT_EQ(differ, 0) << computed;
      } else {
        EXPECT_GT(differ, 0) << computed << " taken for " << held;
      }
    }
  }
}

TEST(Gemm, Layouts_AllTransposesShapesAndBatches) {
  struct Shape {
    int64_t m, n, k, batch;
  };
  std::mt19937 generator(4);
  for (const char* name : {"h100", "rounded16", "v100/split2"}) {
    const Order order = order_named(name);
    for (const Shape shape : {Shape{1, 1, 1, 1}, Shape{5, 40, 17, 2}, Shape{40, 5, 33, 3}, Shape{33, 70, 16, 1},
                              Shape{1, 65, 300, 1}, Shape{200, 1, 40, 1}, Shape{17, 7, 0, 2}}) {
      for (int transposes = 0; transposes < 4; ++transposes) {
        const Type type = (transposes & 1) != 0 || !order.has_bf16 ? Type::kFp16 : Type::kBf16;
        Case one = make_case(type, shape.m, shape.n, shape.k, shape.batch, (transposes & 1) != 0, (transposes & 2) != 0,
                             gauss(generator), gauss(generator));
        compute_product(order, 2, one.product);
        EXPECT_EQ(differing(order, one.product), 0)
            << name << " " << shape.m << "x" << shape.n << "x" << shape.k << " transposes " << transposes;
        for (int64_t col = 0; col < shape.n; ++col) {
          EXPECT_EQ(one.out[static_cast<size_t>(shape.m + col * one.product.out_ld)], -1.0f) << "wrote past a column";
        }
      }
    }
  }
}

TEST(Gemm, Batches_PointersAndSharedOperands) {
  std::mt19937 generator(8);
  const Order order = order_named("h100");
  Case one = make_case(Type::kBf16, 20, 6, 32, 3, false, false, gauss(generator), gauss(generator));
  compute_product(order, 1, one.product);
  const std::vector<float> strided = one.out;
  std::vector<const void*> a_pointers;
  for (int64_t e = 0; e < 3; ++e) a_pointers.push_back(one.a.halves.data() + e * one.a.stride);
  one.product.a.pointers = a_pointers.data();
  one.product.a.data = nullptr;
  std::fill(one.out.begin(), one.out.end(), -1.0f);
  compute_product(order, 1, one.product);
  EXPECT_EQ(one.out, strided);
  one.product.b.stride = 0;
  compute_product(order, 1, one.product);
  EXPECT_EQ(differing(order, one.product), 0);
}

TEST(Gemm, Threads_SameBitsForAnyNumber) {
  std::mt19937 generator(11);
  for (const char* name : {"h100", "rounded16", "sequential"}) {
    const Order order = order_named(name);
    Case one = make_case(Type::kBf16, 200, 150, 96, 2, false, true, gauss(generator), gauss(generator));
    compute_product(order, 1, one.product);
    const std::vector<float> single = one.out;
    for (const int threads : {2, 3, 7}) {
      std::fill(one.out.begin(), one.out.end(), -1.0f);
      compute_product(order, threads, one.product);
      EXPECT_EQ(one.out, single) << name << " on " << threads;
    }
  }
}

TEST(Gemm, Pool_CallersAtOnceAndAfterFork) {
  const auto sum_of = [](int threads) {
    std::vector<int64_t> squares(500);
    for_each_task(500, threads, [&](int64_t i) { squares[static_cast<size_t>(i)] = i * i; });
    int64_t sum = 0;
    for (const int64_t square : squares) sum += square;
    return sum;
  };
  const int64_t expected = sum_of(1);
  std::vector<std::thread> callers;
  std::vector<int64_t> sums(4);
  for (size_t i = 0; i < sums.size(); ++i) {
    callers.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) sums[i] = sum_of(3);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const int64_t sum : sums) EXPECT_EQ(sum, expected);
#if !defined(__SANITIZE_THREAD__)  // TSan does not follow a fork of a program with threads
  const pid_t child = fork();
  if (child == 0) _exit(sum_of(3) == expected ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
#endif
}

TEST(Gemm, Fp16Accumulator_IsRoundedAfterEveryStep) {
  std::mt19937 generator(13);
  for (const char* name : {"h100", "rounded16", "sequential", "h100/split2"}) {
    const Order order = order_named(name);
    Case one = make_case(Type::kFp16, 9, 7, 80, 1, false, false, gauss(generator), gauss(generator));
    one.product.compute = Compute::kFp16;
    compute_product(order, 2, one.product);
    EXPECT_EQ(differing(order, one.product), 0) << name;
    int64_t unlike_fp32 = 0;
    for (int64_t col = 0; col < 7; ++col) {
      for (int64_t row = 0; row < 9; ++row) {
        const float value = one.out[static_cast<size_t>(row + col * one.product.out_ld)];
        EXPECT_EQ(bits(round_to_half(value)), bits(value));
        Product wide = one.product;
        wide.compute = Compute::kFp32;
        unlike_fp32 += round_to_half(replayed(order, wide, 0, row, col)) != value ? 1 : 0;
      }
    }
    EXPECT_GT(unlike_fp32, 0) << "one rounding at the end would give these bits too";
  }
}

TEST(Gemm, Replay_AccumulatorFaultGoesOnThroughTheSum) {
  std::mt19937 generator(2);
  std::vector<float> a(64);
  std::vector<float> b(64);
  for (size_t l = 0; l < 64; ++l) {
    a[l] = std::bit_cast<float>(bits(gauss(generator)(0, 0)) & 0xFFFF0000u);
    b[l] = std::bit_cast<float>(bits(gauss(generator)(0, 0)) & 0xFFFF0000u);
  }
  for (const char* name : {"h100", "a100", "rounded16", "sequential", "h100/split2"}) {
    const Order order = order_named(name);
    const Chain chain = chain_of(order, Type::kBf16, Type::kBf16, Compute::kFp32);
    const int64_t step = chain.step_products;
    const AccumulatorFault fault{20, 1u << 27};
    const auto flipped = [&](float value) {
      return std::bit_cast<float>(bits(value) ^ static_cast<uint32_t>(fault.flip));
    };
    const float faulty = replay_entry(order, Type::kBf16, Type::kBf16, Compute::kFp32, a.data(), b.data(), 64, &fault);
    // The same by hand: the sum up to and with the step of product 20, flipped, then the rest of its slice onto it.
    const int64_t slice = slice_products(order, chain, 64);
    const int64_t reached = (20 / step + 1) * step;
    const auto part = [&](int64_t begin, int64_t end, float c) {
      for (int64_t l = begin; l < end; l += step) {
        if (order.rule == Rule::kTensorCore) {
          c = tensor_core_step(order.step, Format::kBf16, &a[static_cast<size_t>(l)], &b[static_cast<size_t>(l)], step,
                               c);
        } else if (order.rule == Rule::kSequential) {
          c = std::fma(a[static_cast<size_t>(l)], b[static_cast<size_t>(l)], c);
        } else {
          float sum = a[static_cast<size_t>(l)] * b[static_cast<size_t>(l)];
          for (int64_t i = l + 1; i < l + step; ++i) {
            sum = std::fma(a[static_cast<size_t>(i)], b[static_cast<size_t>(i)], sum);
          }
          c += sum;
        }
      }
      return c;
    };
    float expected = part(0, reached, 0.0f);
    expected = flipped(expected);
    expected = part(reached, std::min<int64_t>(slice, 64), expected);
    if (slice < 64) expected += part(slice, 64, 0.0f);
    EXPECT_EQ(bits(faulty), bits(expected)) << name;
    EXPECT_NE(bits(faulty),
              bits(replay_entry(order, Type::kBf16, Type::kBf16, Compute::kFp32, a.data(), b.data(), 64, nullptr)));
  }
}

TEST(Gemm, Exported_RunComputesAndRefuses) {
  std::mt19937 generator(6);
  Case one = make_case(Type::kBf16, 16, 8, 32, 1, false, false, gauss(generator), gauss(generator));
  Outcome outcome{};
  EXPECT_STREQ(hostcuda_gemm_order_name(), "h100");
  ASSERT_EQ(hostcuda_gemm_run(&one.product, &outcome), Status::kOk);
  EXPECT_EQ(outcome.skipped_count, 0u);
  EXPECT_EQ(outcome.injected, 0u);
  hostcuda_gemm_release(&outcome);
  EXPECT_EQ(differing(order_named("h100"), one.product), 0);

  EXPECT_EQ(hostcuda_gemm_supports(Type::kBf16, Type::kFp16, Compute::kFp32), Status::kNotSupported);
  EXPECT_EQ(hostcuda_gemm_supports(Type::kBf16, Type::kBf16, Compute::kFp16), Status::kNotSupported);
  EXPECT_EQ(hostcuda_gemm_supports(Type::kFp32, Type::kFp32, Compute::kFp32), Status::kOk);
  Product wrong = one.product;
  wrong.a.ld = 15;
  EXPECT_EQ(hostcuda_gemm_run(&wrong, &outcome), Status::kInvalid);
  wrong = one.product;
  wrong.k = -1;
  EXPECT_EQ(hostcuda_gemm_run(&wrong, &outcome), Status::kInvalid);
  wrong = one.product;
  wrong.out = nullptr;
  EXPECT_EQ(hostcuda_gemm_run(&wrong, &outcome), Status::kInvalid);
  wrong.n = 0;
  EXPECT_EQ(hostcuda_gemm_run(&wrong, &outcome), Status::kOk);
}

TEST(Gemm, Exported_ProductsAreNumberedByDevice) {
  const uint64_t first = hostcuda_gemm_next_index(0);
  EXPECT_EQ(hostcuda_gemm_next_index(0), first + 1);
  EXPECT_EQ(hostcuda_gemm_next_index(1), 0u);
  EXPECT_EQ(hostcuda_gemm_next_index(0), first + 2);
}

TEST(GemmDeathTest, Settings_WrongOrderEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("HOSTCUDA_ORDER", "h1000", 1);
        hostcuda_gemm_order_name();
      },
      testing::ExitedWithCode(86), "HOSTCUDA_ORDER.*h1000.*allowed: h100 a100 ada v100 b200 rounded16 sequential");
  EXPECT_EXIT(
      {
        setenv("HOSTCUDA_GEMM_THREADS", "many", 1);
        hostcuda_gemm_order_name();
      },
      testing::ExitedWithCode(86), "HOSTCUDA_GEMM_THREADS.*whole number from 1 to 256");
}

TEST(GemmDeathTest, Settings_V100HasNoBf16) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("HOSTCUDA_ORDER", "v100", 1);
        const bool right = hostcuda_gemm_supports(Type::kBf16, Type::kBf16, Compute::kFp32) == Status::kNotSupported &&
                           hostcuda_gemm_supports(Type::kFp16, Type::kFp16, Compute::kFp32) == Status::kOk;
        _exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hostcuda::gemm

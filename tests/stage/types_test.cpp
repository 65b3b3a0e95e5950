// SPDX-License-Identifier: MIT
// Every numeric type and accumulator: clean products are quiet, faults are found and repaired, and what keeps a bound
// honest (its epsilon, its floors, its ranges) is missed when it is taken away.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/stage/device.h"

namespace sdcguard::stage {
namespace {

using reference::Kind;
using reference::Matrix;
using reference::Order;
using reference::Random;
using reference::WideMatrix;

constexpr Kind kSomeKinds[] = {Kind::kGauss,    Kind::kConstant, Kind::kPositive,      Kind::kOutlierChannels,
                               Kind::kIntegers, Kind::kZeroRows, Kind::kCancellingRows};

// One way in which FP32 arithmetic meets operands.
struct Arithmetic {
  const char* name;
  DataType a, b;
  Accumulator accumulator;
  OperandRounding rounding;
  Order order;
  TensorCore tensor_core;
};
const Arithmetic kArithmetics[] = {
    {"e4m3", DataType::kE4M3, DataType::kE4M3, Accumulator::kF32Fast, OperandRounding::kNone, Order::kShort, {32, -10}},
    {"e4m3 e5m2",
     DataType::kE4M3,
     DataType::kE5M2,
     Accumulator::kF32Fast,
     OperandRounding::kNone,
     Order::kShort,
     {32, -10}},
    {"e5m2 e4m3",
     DataType::kE5M2,
     DataType::kE4M3,
     Accumulator::kF32,
     OperandRounding::kNone,
     Order::kTruncating,
     {32, -10}},
    {"tf32", DataType::kF32, DataType::kF32, Accumulator::kF32, OperandRounding::kTf32, Order::kTruncating, {8, 2}},
    {"fast bf16",
     DataType::kF32,
     DataType::kF32,
     Accumulator::kF32,
     OperandRounding::kBf16,
     Order::kTruncating,
     {16, 2}},
    {"fast f16", DataType::kF32, DataType::kF32, Accumulator::kF32, OperandRounding::kF16, Order::kTruncating, {16, 2}},
    {"i8 in f32", DataType::kI8, DataType::kI8, Accumulator::kF32, OperandRounding::kNone, Order::kSequential, {16, 2}},
};

// The product of `call`'s operands as the library rounds and adds them.
void multiply_as(const Arithmetic& x, Call& call) {
  switch (x.rounding) {
    case OperandRounding::kTf32:
      call.p = multiply(x.order, truncated(call.a, 10), truncated(call.b, 10));
      break;
    case OperandRounding::kBf16:
      call.p = multiply(x.order, truncated(call.a, 7), truncated(call.b, 7));
      break;
    case OperandRounding::kF16: {
      Matrix a = call.a;
      Matrix b = call.b;
      for (float& v : a.values) v = reference::round_to(DataType::kF16, static_cast<double>(v));
      for (float& v : b.values) v = reference::round_to(DataType::kF16, static_cast<double>(v));
      call.p = multiply(x.order, a, b);
      break;
    }
    case OperandRounding::kNone:
      call.p = multiply(x.order, call.a, call.b);
  }
}

Call call_of(const Arithmetic& x, Kind kind, uint64_t seed, int64_t n1 = 40, int64_t n2 = 192, int64_t n3 = 128) {
  Call call;
  call.type = x.a;
  call.type_b = x.b;
  call.accumulator = x.accumulator;
  call.rounding = x.rounding;
  call.tensor_core = x.tensor_core;
  call.seed = seed;
  call.a = Matrix(n1, n2);
  call.b = Matrix(n2, n3);
  Matrix other_a = call.a;
  Matrix other_b = call.b;
  fill(kind, x.a, seed, call.a, other_b);
  fill(kind, x.b, seed, other_a, call.b);
  if (x.a == DataType::kI8) {
    for (float& v : call.a.values) v = std::nearbyint(std::clamp(v * 40.0f, -128.0f, 127.0f));
    for (float& v : call.b.values) v = std::nearbyint(std::clamp(v * 40.0f, -128.0f, 127.0f));
  }
  multiply_as(x, call);
  return call;
}

double rms_of(const Matrix& m) {
  double sum = 0.0;
  for (float v : m.values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum / static_cast<double>(m.values.size()));
}

TEST(Types, CleanProductsAreQuietAndFaultsAreRepaired) {
  uint64_t seed = 4000;
  for (const Arithmetic& x : kArithmetics) {
    for (Kind kind : kSomeKinds) {
      SCOPED_TRACE(std::string(x.name) + " " + name_of(kind));
      Call call = call_of(x, kind, ++seed);
      call.layout_a.rows_contiguous = seed % 2 == 0;
      call.layout_b.rows_contiguous = seed % 3 == 0;
      const Result clean = run(call);
      EXPECT_EQ(clean.outcome, Outcome::kClean);
      EXPECT_EQ(clean.verdict.lines_dirty, 0u) << clean.verdict.worst << " of " << clean.verdict.threshold;
      EXPECT_EQ(clean.verdict.entries_named, 0u);
      call.change = [](ProbeParams& p) { p.plan = Plan::kRecompute; };
      EXPECT_EQ(run(call).verdict.entries_named, 0u);
      call.change = {};
      const Matrix right = call.p;
      call.p.at(17, 77) += static_cast<float>(2.0 * rms_of(right)) + 1.0f;
      const Result repaired = run(call);
      EXPECT_EQ(repaired.outcome, Outcome::kCorrected);
      EXPECT_EQ(repaired.verdict.entries_named, 1u);
      EXPECT_NEAR(repaired.p.at(17, 77), right.at(17, 77), 0.05 * rms_of(right) + 1e-6);
    }
  }
}

TEST(Types, EveryFp8CodeIsReadAndWrittenAsDefined) {
  for (DataType type : {DataType::kE4M3, DataType::kE5M2}) {
    Call call;
    call.type = type;
    call.tensor_core = {32, -10};
    call.a = Matrix(256, 1);
    call.b = Matrix(1, 256);
    for (int i = 0; i < 256; ++i) {
      const float v = reference::from_bits8(type, static_cast<uint8_t>(i));
      call.a.at(i, 0) = call.b.at(0, i) = std::isfinite(v) ? v : 0.0f;
    }
    call.p = multiply(Order::kSequential, call.a, call.b);  // exact
    call.change = [](ProbeParams& p) {
      p.plan = Plan::kRecompute;
      p.entry_eps_acc = p.entry_eps_in = 0.0f;
      p.entry_tiny = 0.0;
      p.line_sum_scale = 1.0f;
    };
    EXPECT_EQ(run(call).verdict.entries_named, 0u);
  }
  // Values around every rounding boundary, through the finish.
  for (DataType type : {DataType::kE4M3, DataType::kE5M2, DataType::kI8, DataType::kBF16, DataType::kF16}) {
    Call call;
    call.a = Matrix(16, 8);
    call.b = Matrix(8, 1030);
    call.p = Matrix(16, 1030);
    Random random(77);
    for (float& v : call.p.values) {
      const float base = type == DataType::kI8 ? static_cast<float>(random.below(600) - 300) * 0.5f
                                               : reference::from_bits8(type == DataType::kE5M2 ? type : DataType::kE4M3,
                                                                       static_cast<uint8_t>(random.below(120)));
      const float steps[] = {1.0f, 1.0625f, 1.03125f, 1.09375f, 1.5f, -1.0625f, -1.0625001f, 1.0624999f, 2.0f, 1e-3f};
      v = base * steps[random.below(10)];
    }
    call.p.at(0, 0) = std::numeric_limits<float>::quiet_NaN();
    call.p.at(0, 1) = std::numeric_limits<float>::infinity();
    call.p.at(0, 2) = -std::numeric_limits<float>::infinity();
    call.p.at(0, 3) = -1e30f;
    call.p.at(0, 4) = 1e-30f;
    call.delivers = true;
    call.type_d = type;
    call.aux_kind = AuxKind::kGeluInput;  // the finish kernel delivers, not the product pass
    call.skipped = {Kernel::kFold, Kernel::kOperand, Kernel::kProduct, Kernel::kRecompute, Kernel::kRepair};
    for (int64_t pad : {0, 1}) {
      call.layout_d.pad = pad;
      const Result r = run(call);
      for (size_t i = 0; i < call.p.values.size(); ++i) {
        const float expected = reference::round_to(type, static_cast<double>(call.p.values[i]));
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(r.d.values[i]));
        } else {
          EXPECT_EQ(r.d.values[i], expected) << name_of(type) << " of " << call.p.values[i];
        }
      }
    }
  }
}

TEST(MustFail, WithTheEpsilonOfFp32AnFp8ProductIsAccused) {
  Call call = call_of(kArithmetics[0], Kind::kGauss, 31);
  call.change = [](ProbeParams& p) {
    p.plan = Plan::kRecompute;
    p.entry_eps_acc = 0x1p-23f;
  };
  EXPECT_GT(run(call).verdict.entries_named, 0u);
}

TEST(MustFail, WithoutTheFloorOfSigmaRoundedOperandsAreLookedAt) {
  // Most rows hold values that TF32 keeps: their cells are exact and say nothing of the others.
  Call call = call_of(kArithmetics[3], Kind::kGauss, 32);
  call.a = truncated(call.a, 3);
  call.b = truncated(call.b, 3);
  Matrix fine = Matrix(40, 192);
  Matrix unused = call.b;
  fill(Kind::kGauss, DataType::kF32, 33, fine, unused);
  for (int64_t i = 0; i < 40; i += 13) {
    for (int64_t k = 0; k < 192; ++k) call.a.at(i, k) = fine.at(i, k);
  }
  multiply_as(kArithmetics[3], call);
  EXPECT_EQ(run(call).verdict.lines_dirty, 0u);
  call.change = [](ProbeParams& p) { p.sigma_floor = 0.5f; };
  const Result looked = run(call);
  EXPECT_GT(looked.verdict.lines_dirty, 0u);
  EXPECT_EQ(looked.verdict.entries_named, 0u);
}

// A product that came out exact, on a site without a history, of an accumulator whose a-priori envelope is wide: the
// cells of its faults are the only ones that are not exact, and they are not its noise.
TEST(ExactProduct, AFaultIsNotTakenForTheNoise) {
  for (const Arithmetic& x : {kArithmetics[0], kArithmetics[2], kArithmetics[6]}) {
    Call call = call_of(x, Kind::kGauss, 71, 40, 512, 1024);
    for (float& v : call.a.values) v = 8;  // sums of 512 times 32: multiples of 32 up to 2^14, which every order keeps
    for (float& v : call.b.values) v = 4;
    multiply_as(x, call);
    const float right = call.p.at(0, 0);
    ASSERT_EQ(right, 512.0f * 32.0f) << x.name;
    const Result clean = run(call);
    EXPECT_EQ(clean.outcome, Outcome::kClean) << x.name;
    EXPECT_EQ(clean.verdict.lines_dirty, 0u) << x.name;
    for (const float factor : {3.35f, 1.125f, 0.9f, -1.0f}) {
      call.p.at(17, 60) = factor * right;
      const Result faulty = run(call);
      EXPECT_EQ(faulty.verdict.lines_dirty, 1u) << x.name << " " << factor;
      EXPECT_EQ(faulty.verdict.entries_repaired, 1u) << x.name << " " << factor;
      EXPECT_EQ(faulty.p.at(17, 60), right) << x.name << " " << factor;
      call.p.at(17, 60) = right;
    }
  }
}

// ---- FP64 and INT8 ----------------------------------------------------------------------------------------------

WideCall wide_call(Accumulator accumulator, Kind kind, uint64_t seed, int64_t n1 = 40, int64_t n2 = 160,
                   int64_t n3 = 100, int64_t batch = 1) {
  WideCall call;
  call.accumulator = accumulator;
  const bool f64 = accumulator == Accumulator::kF64;
  call.type = f64 ? DataType::kF64 : DataType::kI8;
  call.type_d = f64 ? DataType::kF64 : DataType::kI32;
  call.scalar_type = f64 ? DataType::kF64 : DataType::kI32;
  call.seed = seed;
  Matrix a(n1, n2, batch);
  Matrix b(n2, n3, batch);
  fill(kind, DataType::kF32, seed, a, b);
  call.a = WideMatrix(n1, n2, batch);
  call.b = WideMatrix(n2, n3, batch);
  Random random(seed);
  const auto value = [&](float v) {
    return f64 ? static_cast<double>(v) * (1.0 + (kind == Kind::kIntegers ? 0.0 : random.uniform()))
               : std::nearbyint(std::clamp(static_cast<double>(v) * 50.0, -128.0, 127.0));
  };
  for (size_t i = 0; i < a.values.size(); ++i) call.a.values[i] = value(a.values[i]);
  for (size_t i = 0; i < b.values.size(); ++i) call.b.values[i] = value(b.values[i]);
  call.p = f64 ? multiply_f64(call.a, call.b) : multiply_i32(call.a, call.b);
  return call;
}

TEST(Types, Fp64CleanIsQuietAndFaultsOfTheLastDigitsAreRepaired) {
  uint64_t seed = 500;
  for (Kind kind : reference::kKinds) {
    SCOPED_TRACE(name_of(kind));
    WideCall call = wide_call(Accumulator::kF64, kind, ++seed);
    call.layout_a.rows_contiguous = seed % 2 == 0;
    call.layout_b.rows_contiguous = seed % 3 != 0;
    call.delivers = true;
    const WideResult clean = run(call);
    EXPECT_EQ(clean.outcome, Outcome::kClean);
    EXPECT_EQ(clean.verdict.lines_dirty, 0u) << clean.verdict.worst;
    EXPECT_EQ(clean.d.values, call.p.values);
    call.change = [](ProbeParams& p) { p.plan = Plan::kRecompute; };
    EXPECT_EQ(run(call).verdict.entries_named, 0u);
    call.change = {};
    const WideMatrix right = call.p;
    double rms = 0.0;
    for (double v : right.values) rms += v * v;
    rms = std::sqrt(rms / static_cast<double>(right.values.size()));
    // FP32 would not hold it.
    call.p.at(7, 61) += 0x1p-34 * rms;
    const WideResult repaired = run(call);
    EXPECT_EQ(repaired.outcome, Outcome::kCorrected);
    EXPECT_EQ(repaired.verdict.entries_named, 1u);
    EXPECT_NEAR(repaired.p.at(7, 61), right.at(7, 61), 0x1p-44 * rms);
    EXPECT_EQ(repaired.d.at(7, 61), repaired.p.at(7, 61));
  }
}

TEST(Types, Fp64OutOfRangeIsUnverifiedAndNeverAccused) {
  for (double scale : {1e-160, 1e-300, 1e-308, 1e150, 1e300}) {
    WideCall call = wide_call(Accumulator::kF64, Kind::kGauss, 600);
    for (double& v : call.a.values) v *= scale;
    call.p = multiply_f64(call.a, call.b);
    for (double& v : call.p.values) v = v * (1.0 + 1e-9);  // far beyond any noise, were it judged
    const WideResult r = run(call);
    EXPECT_EQ(r.outcome, Outcome::kUnverified) << scale;
    EXPECT_EQ(r.reason, Reason::kRange);
    EXPECT_EQ(r.verdict.entries_named, 0u);
  }
  // 100 binades inside of it all is as usual.
  for (double scale : {1e-120, 1e120}) {
    WideCall call = wide_call(Accumulator::kF64, Kind::kGauss, 600);
    for (double& v : call.a.values) v *= scale;
    call.p = multiply_f64(call.a, call.b);
    EXPECT_EQ(run(call).outcome, Outcome::kClean);
    call.p.at(3, 3) *= 1.0 + 1e-9;
    EXPECT_EQ(run(call).outcome, Outcome::kCorrected);
  }
}

TEST(Types, Int8IsExactModulo2To32) {
  uint64_t seed = 700;
  for (Kind kind : {Kind::kGauss, Kind::kConstant, Kind::kZeroRows, Kind::kPadded}) {
    for (int64_t n1 : {1, 3, 40}) {
      ++seed;
      WideCall call = wide_call(Accumulator::kI32, kind, seed, n1, 160, seed % 2 == 0 ? 100 : 7);
      call.layout_a.rows_contiguous = seed % 2 == 0;
      call.layout_b.rows_contiguous = seed % 3 == 0;
      call.delivers = true;
      const WideResult clean = run(call);
      EXPECT_EQ(clean.params.plan, Plan::kExact);
      EXPECT_EQ(clean.outcome, Outcome::kClean);
      EXPECT_EQ(clean.d.values, call.p.values);
      const WideMatrix right = call.p;
      for (double fault : {1.0, -1.0, 0x1p20, -0x1p31}) {
        call.p.at(n1 - 1, 3) = static_cast<double>(static_cast<int32_t>(
            static_cast<uint32_t>(static_cast<int64_t>(right.at(n1 - 1, 3)) + static_cast<int64_t>(fault))));
        const WideResult r = run(call);
        EXPECT_EQ(r.outcome, Outcome::kCorrected);
        EXPECT_EQ(r.verdict.entries_named, 1u);
        EXPECT_EQ(r.p.values, right.values);
        EXPECT_EQ(r.d.values, right.values);
      }
    }
  }
  // The sum wraps: 131,072 products of -128 by -128 are 2^31.
  WideCall call;
  call.accumulator = Accumulator::kI32;
  call.type = DataType::kI8;
  call.a = WideMatrix(1, 131072);
  call.b = WideMatrix(131072, 2);
  for (double& v : call.a.values) v = -128.0;
  for (double& v : call.b.values) v = -128.0;
  call.p = multiply_i32(call.a, call.b);
  ASSERT_EQ(call.p.at(0, 0), -0x1p31);
  EXPECT_EQ(run(call).outcome, Outcome::kClean);
  call.p.at(0, 1) += 1.0;
  EXPECT_EQ(run(call).outcome, Outcome::kCorrected);
}

TEST(Types, Int8DeliversIntegersFloatsAndBytes) {
  WideCall call = wide_call(Accumulator::kI32, Kind::kGauss, 800);
  call.delivers = true;
  call.alpha = 3.0;
  call.beta = -2.0;
  call.c = wide_call(Accumulator::kI32, Kind::kGauss, 801).p;
  for (bool on_device : {false, true}) {
    call.scalars_on_device = on_device;
    const WideResult r = run(call);
    EXPECT_EQ(r.outcome, Outcome::kClean);
    for (size_t i = 0; i < r.d.values.size(); ++i) {
      EXPECT_EQ(r.d.values[i], 3.0 * call.p.values[i] - 2.0 * call.c.values[i]);
    }
  }
  // As delivered, and over its own C.
  for (bool apart : {true, false}) {
    WideCall delivered = call;
    delivered.delivers = false;
    delivered.delivered = true;
    delivered.c_apart = apart;
    for (size_t i = 0; i < call.p.values.size(); ++i) {
      delivered.p.values[i] = 3.0 * call.p.values[i] - 2.0 * call.c.values[i];
    }
    EXPECT_EQ(run(delivered).outcome, Outcome::kClean);
    const WideMatrix right = delivered.p;
    delivered.p.at(3, 99) += 1.0;
    const WideResult repaired = run(delivered);
    EXPECT_EQ(repaired.outcome, Outcome::kCorrected);
    EXPECT_EQ(repaired.p.values, right.values);
  }
  for (DataType type : {DataType::kF32, DataType::kI8}) {
    WideCall scaled = wide_call(Accumulator::kI32, Kind::kGauss, 802);
    scaled.delivers = true;
    scaled.type_d = type;
    scaled.scalar_type = DataType::kF32;
    scaled.alpha = 0.0009765625;
    const WideResult r = run(scaled);
    for (size_t i = 0; i < r.d.values.size(); ++i) {
      const double exact = scaled.p.values[i] * scaled.alpha;
      EXPECT_EQ(r.d.values[i], static_cast<double>(reference::round_to(type, exact)));
    }
  }
}

TEST(MustFail, WithoutTheSecondWeightTwoTopBitsCancel) {
  WideCall call = wide_call(Accumulator::kI32, Kind::kGauss, 900);
  const uint32_t classes = run(call).params.classes;
  const auto flip = [&](int64_t col) { call.p.at(5, col) += call.p.at(5, col) < 0.0 ? 0x1p31 : -0x1p31; };
  flip(1);
  flip(1 + classes);
  int seen = 0;
  int seen_by_one = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    call.seed = seed;
    call.change = {};
    seen += run(call).verdict.entries_named == 2 ? 1 : 0;
    call.change = [](ProbeParams& p) { p.draws = 1; };
    seen_by_one += run(call).verdict.entries_named != 0 ? 1 : 0;
  }
  EXPECT_EQ(seen_by_one, 0);
  EXPECT_GT(seen, 4);  // half of 24; fewer than five: 8e-4
}

// ---- FP16 accumulation ------------------------------------------------------------------------------------------

Call half_call(Kind kind, uint64_t seed, int64_t n1, int64_t n2, int64_t n3) {
  Call call;
  call.type = call.type_d = DataType::kF16;
  call.accumulator = Accumulator::kF16;
  call.scalar_type = DataType::kF16;
  call.delivered = true;
  call.seed = seed;
  call.a = Matrix(n1, n2);
  call.b = Matrix(n2, n3);
  fill(kind, DataType::kF16, seed, call.a, call.b);
  call.p = multiply(Order::kHalf, call.a, call.b);
  return call;
}

TEST(Types, Fp16AccumulationIsCheckedAsDelivered) {
  uint64_t seed = 1000;
  for (Kind kind : kSomeKinds) {
    for (int64_t n2 : {64, 512}) {
      SCOPED_TRACE(std::string(name_of(kind)) + " " + std::to_string(n2));
      Call call = half_call(kind, ++seed, 40, n2, 128);
      const Result clean = run(call);
      EXPECT_EQ(clean.params.plan, Plan::kLine);
      EXPECT_EQ(clean.outcome, Outcome::kClean);
      EXPECT_EQ(clean.verdict.lines_dirty, 0u) << clean.verdict.worst;
      call.change = [](ProbeParams& p) { p.plan = Plan::kRecompute; };
      EXPECT_EQ(run(call).verdict.entries_named, 0u);
      call.change = {};
      const Matrix right = call.p;
      call.p.at(9, 50) =
          reference::round_to(DataType::kF16, static_cast<double>(right.at(9, 50)) + rms_of(right) + 0.5);
      const Result r = run(call);
      EXPECT_EQ(r.outcome, Outcome::kCorrected);
      EXPECT_EQ(r.verdict.entries_named, 1u);
    }
  }
  ProbeRequest request{};
  request.n1 = request.n3 = 64;
  request.n2 = 1 << 20;
  request.batch = 1;
  request.a = request.b = MatrixView{4096, 1 << 20, 1, 0, DataType::kF16};
  request.p = MatrixView{4096, 64, 1, 0, DataType::kF16};
  request.accumulator = Accumulator::kF16;
  request.finish.alpha = 1.0;
  request.sm_count = 1;
  request.c_apart = true;
  request.delivered = true;
  EXPECT_EQ(make_plan(request).reason, Reason::kCompute16f);
  request.n2 = 4096;
  EXPECT_TRUE(make_plan(request).usable());
  request.delivered = false;
  EXPECT_EQ(make_plan(request).reason, Reason::kCompute16f);
}

// ---- below and above the range ----------------------------------------------------------------------------------

// Products around 2^(2 exponent): below 2^-149 they underflow in part.
Call tiny_call(int exponent, uint64_t seed, int64_t n1 = 40) {
  Call call;
  call.seed = seed;
  call.a = Matrix(n1, 96);
  call.b = Matrix(96, 128);
  fill(Kind::kGauss, DataType::kBF16, seed, call.a, call.b);
  for (float& v : call.a.values) v = std::ldexp(v, exponent);
  for (float& v : call.b.values) v = std::ldexp(v, exponent);
  call.p = multiply(seed % 2 == 0 ? Order::kTruncating : Order::kRounded16, call.a, call.b);
  return call;
}

TEST(Types, ProductsBelowTheNormalRangeAreQuiet) {
  for (int exponent : {-60, -66, -70, -72, -73, -74, -75, -76, -78, -90}) {
    Call call = tiny_call(exponent, static_cast<uint64_t>(2000 - exponent));
    const Result r = run(call);
    EXPECT_EQ(r.outcome, Outcome::kClean) << exponent << ": worst " << r.verdict.worst;
    call.change = [](ProbeParams& p) { p.plan = Plan::kRecompute; };
    EXPECT_EQ(run(call).verdict.entries_named, 0u) << exponent;
    // A fault is still one.
    call.change = {};
    call.p.at(1, 2) = 0x1p-100f;
    EXPECT_EQ(run(call).verdict.entries_named, 1u) << exponent;
  }
}

TEST(MustFail, WithoutTheTermForUnderflowTinyProductsAreAccused) {
  bool looked = false;
  bool named = false;
  for (int exponent : {-72, -73, -74, -75, -76}) {
    Call call = tiny_call(exponent, static_cast<uint64_t>(2100 - exponent));
    call.change = [](ProbeParams& p) { p.cell_tiny = 0.0; };
    looked = looked || run(call).verdict.lines_dirty != 0;
    call.change = [](ProbeParams& p) {
      p.plan = Plan::kRecompute;
      p.entry_tiny = 0.0;
    };
    named = named || run(call).verdict.entries_named != 0;
  }
  EXPECT_TRUE(looked);
  EXPECT_TRUE(named);
}

TEST(Types, SumsBeyondTheRangeAreNotJudgedAndTheRestIs) {
  Call call;
  call.a = Matrix(64, 96);
  call.b = Matrix(96, 128);
  fill(Kind::kGauss, DataType::kBF16, 2200, call.a, call.b);
  for (int64_t i = 0; i < 64; i += 16) {
    for (int64_t k = 0; k < 96; ++k)
      call.a.at(i, k) *= 0x1p124f;  // finite, and so is the product; the class sums are not
  }
  for (float& v : call.b.values) v = std::clamp(v, -4.0f, 4.0f);
  call.p = multiply(Order::kTruncating, call.a, call.b);
  const Result r = run(call);
  EXPECT_EQ(r.outcome, Outcome::kUnverified);
  EXPECT_EQ(r.reason, Reason::kRange);
  EXPECT_EQ(r.verdict.lines_out_of_range, 4u);
  EXPECT_EQ(r.verdict.lines_dirty, 0u);
  call.p.at(5, 5) += 100.0f;
  const Result found = run(call);
  EXPECT_EQ(found.outcome, Outcome::kCorrected);
  EXPECT_EQ(found.verdict.entries_named, 1u);
}

}  // namespace
}  // namespace sdcguard::stage

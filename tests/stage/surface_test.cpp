// SPDX-License-Identifier: MIT
// The surface around the product: scales, vectors of scalars, scalars of each type, auxiliary outputs, the largest
// value, arrays of pointers, batches beyond a grid's limits, indices beyond 32 bits, products over their own C.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/stage/device.h"

namespace sdcguard::stage {
namespace {

using reference::Kind;
using reference::Matrix;
using reference::Order;
using reference::WideMatrix;

Call call_of(int64_t n1, int64_t n2, int64_t n3, int64_t batch = 1, DataType type = DataType::kBF16) {
  Call call;
  call.type = call.type_d = type;
  call.a = Matrix(n1, n2, batch);
  call.b = Matrix(n2, n3, batch);
  fill(Kind::kGauss, type, 60, call.a, call.b);
  call.p = multiply(Order::kTruncating, call.a, call.b);
  call.delivers = true;
  call.records = true;
  return call;
}

Matrix some(int64_t rows, int64_t cols, int64_t batch, DataType type, uint64_t seed) {
  Matrix m(rows, cols, batch);
  Matrix other(1, 1);
  fill(Kind::kGauss, type, seed, m, other);
  return m;
}

TEST(Finish, Fp8DeliversWithEveryScale) {
  for (DataType type : {DataType::kE4M3, DataType::kE5M2}) {
    for (bool relu : {false, true}) {
      Call call = call_of(40, 64, 70, 1, DataType::kE4M3);
      call.tensor_core = {32, -10};
      call.p = multiply(Order::kShort, call.a, call.b);
      call.type_d = type;
      call.alpha = 0.75;
      call.beta = -1.5;
      call.scale_a = {0.5f};
      call.scale_b = {0.25f};
      call.scale_c = {2.0f};
      call.scale_d = {8.0f};
      call.c = some(40, 70, 1, type, 61);
      call.bias = some(1, 70, 1, type, 62);
      call.epilogue = relu ? kEpilogueRelu : 0;
      for (bool amax : {false, true}) {
        call.wants_amax = amax;
        const Result r = run(call);
        EXPECT_EQ(r.outcome, Outcome::kClean);
        EXPECT_EQ(r.params.fused_finish, amax ? 0 : 1);
        float largest = 0.0f;
        for (int64_t i = 0; i < 40; ++i) {
          for (int64_t j = 0; j < 70; ++j) {
            float v = std::fma(0.75f * 0.125f, call.p.at(i, j), std::fma(-3.0f, call.c.at(i, j), call.bias.at(0, j)));
            if (relu) v = std::max(v, 0.0f);
            largest = std::max(largest, std::fabs(v));
            EXPECT_EQ(r.d.at(i, j), reference::round_to(type, static_cast<double>(v * 8.0f)));
          }
        }
        EXPECT_EQ(r.amax, amax ? largest : -1.0f);
        EXPECT_EQ(r.calls.size(), 1u);
      }
    }
  }
}

TEST(Finish, AFaultDoesNotReachTheLargestValue) {
  Call call = call_of(40, 64, 70);
  call.wants_amax = true;
  const float clean = run(call).amax;
  call.p.at(3, 4) = 1e6f;
  const Result r = run(call);
  EXPECT_EQ(r.outcome, Outcome::kCorrected);
  EXPECT_EQ(r.amax, clean);
  call.skipped = {Kernel::kRepair};
  EXPECT_EQ(run(call).amax, 1e6f);  // what the repair keeps from it
}

TEST(Finish, VectorsOfScalarsAndOfScales) {
  Call call = call_of(40, 64, 130);
  call.type_d = DataType::kF32;
  call.c = some(40, 130, 1, DataType::kF32, 63);
  call.scalars_on_device = true;
  for (int64_t j = 0; j < 130; ++j) {
    call.alphas.push_back(j % 5 == 0 ? 0.0 : 0.25 * static_cast<double>(j + 1));
    call.betas.push_back(j % 3 == 0 ? 0.0 : -0.5);
  }
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t j = 0; j < 130; j += 3) call.c.at(i, j) = std::numeric_limits<float>::quiet_NaN();  // beta is 0 there
  }
  for (bool scaled : {false, true}) {
    if (scaled) {
      for (int i = 0; i < 40; ++i) call.scale_a.push_back(std::ldexp(1.0f, i % 4));
      for (int j = 0; j < 130; ++j) call.scale_b.push_back(std::ldexp(1.0f, -(j % 3)));
    }
    const Result r = run(call);
    EXPECT_EQ(r.outcome, Outcome::kClean);
    EXPECT_EQ(r.params.finish_launched, 1);
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t j = 0; j < 130; ++j) {
        float alpha = static_cast<float>(call.alphas[static_cast<size_t>(j)]);
        if (scaled) alpha = alpha * call.scale_a[static_cast<size_t>(i)] * call.scale_b[static_cast<size_t>(j)];
        const float offset = j % 3 == 0 ? 0.0f : -0.5f * call.c.at(i, j);
        EXPECT_EQ(r.d.at(i, j), alpha == 0.0f ? offset : std::fma(alpha, call.p.at(i, j), offset));
      }
    }
  }
  call.delivers = false;
  call.delivered = true;
  EXPECT_EQ(run(call).reason, Reason::kUnsupportedAttribute);
}

TEST(Finish, DeviceScalarsOfEachTypeAndNanBehindZeros) {
  for (DataType scalar : {DataType::kF32, DataType::kF64, DataType::kF16}) {
    for (double alpha : {1.0, 0.0, -0.5}) {
      for (double beta : {0.0, 2.0}) {
        Call call = call_of(40, 64, 70);
        call.scalar_type = scalar;
        call.scalars_on_device = true;
        call.type_d = DataType::kF32;
        call.alpha = alpha;
        call.beta = beta;
        call.c = some(40, 70, 1, DataType::kF32, 64);
        if (beta == 0.0) call.c.values.assign(call.c.values.size(), std::numeric_limits<float>::quiet_NaN());
        const Result r = run(call);
        EXPECT_EQ(r.outcome, Outcome::kClean);
        for (size_t i = 0; i < call.p.values.size(); ++i) {
          const float offset = beta == 0.0 ? 0.0f : 2.0f * call.c.values[i];
          EXPECT_EQ(r.d.values[i],
                    alpha == 0.0 ? offset : std::fma(static_cast<float>(alpha), call.p.values[i], offset));
        }
      }
    }
  }
}

TEST(Finish, AuxHoldsWhatTheBackwardPassNeeds) {
  // n3 ends inside a byte, inside a word, at a word.
  for (int64_t n3 : {70, 96, 131, 300}) {
    Call call = call_of(20, 64, n3);
    call.bias = some(1, n3, 1, DataType::kBF16, 65);
    call.epilogue = kEpilogueRelu;
    call.aux_kind = AuxKind::kReluMask;
    call.p.at(7, 69) = 0.0f - call.bias.at(0, 69);  // exactly 0 before ReLU, and a fault, so made right
    call.mode = Mode::kObserve;                     // ... or left as it is
    const Result r = run(call);
    for (int64_t i = 0; i < 20; ++i) {
      for (int64_t j = 0; j < kMaskLd; ++j) {
        const unsigned char byte = r.mask[static_cast<size_t>((i * kMaskLd + j) / 8)];
        const int bit = (byte >> (j % 8)) & 1;
        if (j < n3) {
          EXPECT_EQ(bit, call.p.at(i, j) + call.bias.at(0, j) > 0.0f ? 1 : 0) << i << " " << j;
        } else {
          EXPECT_EQ(bit, (0xA5 >> (j % 8)) & 1) << "padding";
        }
      }
    }
  }
  for (DataType type : {DataType::kBF16, DataType::kF32}) {
    Call call = call_of(20, 64, 70);
    call.bias = some(1, 70, 1, DataType::kBF16, 65);
    call.epilogue = kEpilogueGelu;
    call.aux_kind = AuxKind::kGeluInput;
    call.type_aux = type;
    const Matrix right = call.p;
    call.p.at(3, 3) += 50.0f;
    const Result r = run(call);
    EXPECT_EQ(r.outcome, Outcome::kCorrected);
    for (int64_t i = 0; i < 20; ++i) {
      for (int64_t j = 0; j < 70; ++j) {
        const float before = r.p.at(i, j) + call.bias.at(0, j);
        EXPECT_EQ(r.aux.at(i, j), reference::round_to(type, static_cast<double>(before)));
      }
    }
    EXPECT_NEAR(r.p.at(3, 3), right.at(3, 3), 1e-4);
  }
}

TEST(Batch, ArraysOfPointers) {
  for (bool delivered : {false, true}) {
    Call call = call_of(40, 64, 70, 5);
    call.layout_a.by_pointers = call.layout_b.by_pointers = call.layout_d.by_pointers = true;
    call.layout_b.rows_contiguous = false;
    call.type_d = DataType::kF32;
    call.alpha = 0.5;
    call.beta = 1.0;
    call.c = some(40, 70, 5, DataType::kF32, 66);
    Matrix right = call.p;
    for (size_t i = 0; i < right.values.size(); ++i)
      right.values[i] = std::fma(0.5f, right.values[i], call.c.values[i]);
    if (delivered) {
      call.delivers = false;
      call.delivered = true;
      call.p = right;
    }
    const Result clean = run(call);
    EXPECT_EQ(clean.outcome, Outcome::kClean);
    EXPECT_EQ(delivered ? clean.p.values : clean.d.values, right.values);
    call.p.at(11, 22, 3) += 77.0f;
    call.p.at(39, 69, 4) += 77.0f;
    const Result r = run(call);
    EXPECT_EQ(r.outcome, Outcome::kCorrected);
    EXPECT_EQ(r.verdict.entries_named, 2u);
    ASSERT_EQ(r.faults.size(), 2u);
    EXPECT_EQ(r.faults[0].batch + r.faults[1].batch, 7);
    const Matrix& d = delivered ? r.p : r.d;
    for (size_t i = 0; i < right.values.size(); ++i) EXPECT_NEAR(d.values[i], right.values[i], 1e-4);
  }
}

TEST(Batch, BeyondAGridsLimit) {
  constexpr int64_t kBatch = 65600;
  WideCall call;
  call.type = DataType::kI8;
  call.type_d = DataType::kI32;
  call.accumulator = Accumulator::kI32;
  call.scalar_type = DataType::kI32;
  call.records = true;
  call.delivers = true;
  call.a = WideMatrix(1, 3, kBatch);
  call.b = WideMatrix(3, 2);
  for (size_t i = 0; i < call.a.values.size(); ++i) call.a.values[i] = static_cast<double>(i % 255) - 127.0;
  for (size_t i = 0; i < call.b.values.size(); ++i) call.b.values[i] = static_cast<double>(i) - 2.0;
  call.p = multiply_i32(call.a, call.b);
  const WideMatrix right = call.p;
  call.p.at(0, 1, kBatch - 1) += 1.0;
  call.p.at(0, 0, 65535) += 1.0;
  const WideResult r = run(call);
  EXPECT_EQ(r.outcome, Outcome::kCorrected);
  EXPECT_EQ(r.verdict.entries_named, 2u);
  EXPECT_EQ(r.d.values, right.values);
  ASSERT_EQ(r.faults.size(), 2u);
  EXPECT_EQ(std::max(r.faults[0].batch, r.faults[1].batch), kBatch - 1);
}

TEST(InPlace, TheProductIsCheckedAgainstTheKeptC) {
  for (DataType type : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
    for (bool on_device : {false, true}) {
      Call call = call_of(64, 96, 200, 2, type == DataType::kF32 ? DataType::kBF16 : type);
      call.delivers = false;
      call.delivered = true;
      call.c_apart = false;
      call.type_d = type;
      call.layout_d.pad = 3;
      call.alpha = 0.5;
      call.beta = 2.0;
      call.scalars_on_device = on_device;
      call.c = some(64, 200, 2, type, 67);
      for (size_t i = 0; i < call.p.values.size(); ++i) {
        call.p.values[i] =
            reference::round_to(type, static_cast<double>(std::fma(0.5f, call.p.values[i], 2.0f * call.c.values[i])));
      }
      const Result clean = run(call);
      EXPECT_EQ(clean.outcome, Outcome::kClean) << name_of(type);
      EXPECT_EQ(clean.p.values, call.p.values);
      const Matrix right = call.p;
      call.p.at(9, 150, 1) = reference::round_to(type, static_cast<double>(right.at(9, 150, 1) + 64.0f));
      const Result r = run(call);
      EXPECT_EQ(r.outcome, Outcome::kCorrected);
      EXPECT_EQ(r.verdict.entries_named, 1u);
      // The recomputed product lies within 1e-4 of it, and is rounded to the type.
      const float spacing = type == DataType::kF32 ? 0.0f : type == DataType::kF16 ? 0x1p-10f : 0x1p-7f;
      EXPECT_NEAR(r.p.at(9, 150, 1), right.at(9, 150, 1), 1e-4f + spacing * std::fabs(right.at(9, 150, 1)));
    }
  }
}

TEST(MustFail, WithoutTheKeptCACleanProductIsAccused) {
  Call call = call_of(64, 96, 200);
  call.delivers = false;
  call.delivered = true;
  call.c_apart = false;
  call.type_d = DataType::kF32;
  call.beta = 2.0;
  call.c = some(64, 200, 1, DataType::kF32, 68);
  for (size_t i = 0; i < call.p.values.size(); ++i) call.p.values[i] += 2.0f * call.c.values[i];
  EXPECT_EQ(run(call).outcome, Outcome::kClean);
  call.change = [](ProbeParams& p) { p.finish.c = p.written_c; };
  EXPECT_GT(run(call).verdict.entries_named, 1000u);
}

TEST(Indices, BeyondThirtyTwoBits) {
  // Two rows of A and of D that lie 2^31 elements apart: only their pages are ever touched.
  constexpr int64_t kFar = (int64_t{1} << 31) + 8;
  const int64_t n2 = 64;
  const int64_t n3 = 70;
  Call small = call_of(2, n2, n3);
  Buffer a(static_cast<uint64_t>(kFar + n2) * 2);
  Buffer b(static_cast<uint64_t>(n2 * n3) * 2);
  Buffer d(static_cast<uint64_t>(kFar + n3) * 2);
  const auto bits = [](const Matrix& m, int64_t row) {
    std::vector<uint16_t> raw;
    for (int64_t k = 0; k < m.cols; ++k) raw.push_back(reference::bits16(DataType::kBF16, m.at(row, k)));
    return raw;
  };
  for (int64_t i = 0; i < 2; ++i) {
    const auto raw = bits(small.a, i);
    a.write(raw.data(), raw.size() * 2, static_cast<uint64_t>(i * kFar) * 2);
  }
  for (int64_t k = 0; k < n2; ++k) {
    const auto raw = bits(small.b, k);
    b.write(raw.data(), raw.size() * 2, static_cast<uint64_t>(k * n3) * 2);
  }
  small.p.at(1, 69) += 100.0f;
  small.records = false;
  small.change = [&](ProbeParams& p) {
    p.a = MatrixView{a.address(), kFar, 1, 0, DataType::kBF16};
    p.b = MatrixView{b.address(), n3, 1, 0, DataType::kBF16};
    p.finish.d = MatrixView{d.address(), kFar, 1, 0, DataType::kBF16};
  };
  const Result r = run(small);
  EXPECT_EQ(r.outcome, Outcome::kCorrected);
  EXPECT_EQ(r.verdict.entries_named, 1u);
  for (int64_t i = 0; i < 2; ++i) {
    const auto row = read_array<uint16_t>(d.address() + static_cast<uint64_t>(i * kFar) * 2, static_cast<uint64_t>(n3));
    for (int64_t j = 0; j < n3; ++j) {
      EXPECT_EQ(reference::from_bits16(DataType::kBF16, row[static_cast<size_t>(j)]),
                reference::round_to(DataType::kBF16, static_cast<double>(r.p.at(i, j))));
    }
  }
}

}  // namespace
}  // namespace sdcguard::stage

// SPDX-License-Identifier: MIT
// Plain references of every stage, written from MATH.md and sharing no code with the kernels but the sign draw itself
// (kernels/signs.h), which is part of the contract. Row-major, FP64 unless said. Also test data and a GEMM in three
// accumulation orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/params.h"

namespace sdcguard::reference {

// Row-major rows x cols values, `batch` of them one after another.
template <typename V>
struct MatrixOf {
  int64_t rows = 0, cols = 0, batch = 1;
  std::vector<V> values;
  MatrixOf() = default;
  MatrixOf(int64_t r, int64_t c, int64_t n = 1)
      : rows(r), cols(c), batch(n), values(static_cast<size_t>(r * c * n), V{0}) {}
  V& at(int64_t r, int64_t c, int64_t b = 0) { return values[static_cast<size_t>((b * rows + r) * cols + c)]; }
  V at(int64_t r, int64_t c, int64_t b = 0) const { return values[static_cast<size_t>((b * rows + r) * cols + c)]; }
};
using Matrix = MatrixOf<float>;
using WideMatrix = MatrixOf<double>;  // FP64, and INT32, which it holds exactly

// A small generator of its own (splitmix64), so that data do not hang on the library's.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  double uniform();  // [0, 1)
  double gauss();
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }

 private:
  uint64_t state_;
};

enum class Kind {
  kGauss,
  kConstant,
  kPositive,
  kOutlierChannels,  // x60
  kCancellingRows,
  kZeroRows,
  kPadded,
  kTiny,
  kHuge,
  kIntegers,
  kIdenticalColumns,  // of B, hence of P
  kOneBin,            // all of P lies between 1 and 1 + 2^-5 of its mean: a few roundings only
  kOneHot,            // rows of A: a look-up
  kCausalMask,        // row i of A: weights of the first keys, 0 behind
  kSoftmax,           // rows of A
  kSparse,            // A after a ReLU: 85% zeros
  kBias,              // channels of A with a mean each
  kOutlierRows,       // of A, and columns of B: x60 (FP16: x12)
  kMixedScales,       // rows of A by 2^-8 to 2^8, columns of B by 2^-4 to 2^4 (FP16: half the exponents)
  kSubnormal,         // A in the subnormal range of its type
};
inline constexpr Kind kKinds[] = {Kind::kGauss,          Kind::kConstant, Kind::kPositive, Kind::kOutlierChannels,
                                  Kind::kCancellingRows, Kind::kZeroRows, Kind::kPadded,   Kind::kTiny,
                                  Kind::kHuge,           Kind::kIntegers};
// What real programs multiply and a checksum may trip over.
inline constexpr Kind kStructuredKinds[] = {Kind::kIdenticalColumns, Kind::kOneBin,   Kind::kOneHot, Kind::kCausalMask,
                                            Kind::kSoftmax,          Kind::kSparse,   Kind::kBias,   Kind::kOutlierRows,
                                            Kind::kMixedScales,      Kind::kSubnormal};
const char* name_of(Kind kind);

// Operands of a kind, rounded to `type`. FP16 has no room for kTiny and kHuge: they are then scaled by 2^-8 and 2^8.
void fill(Kind kind, DataType type, uint64_t seed, Matrix& a, Matrix& b);

float round_to(DataType type, double v);  // nearest, ties to even
uint16_t bits16(DataType type, float v);  // of a value of the type
float from_bits16(DataType type, uint16_t bits);
// FP8 by its definition: sign, exponent of bias 7 (E4M3) or 15 (E5M2), fraction.
float from_bits8(DataType type, uint8_t bits);
uint8_t bits8(DataType type, float v);  // of a value of the type

// kTruncating: steps of 16 products and the accumulator aligned to 25 fraction bits and truncated, as H100 tensor cores
// do. kRounded16: the exact sum of 16 products, rounded and added. kSequential: FP32 FMA.
// kShort: steps of 32 products aligned to 13 fraction bits and truncated, the result too: H100's FP8. kHalf: an FP16
// accumulator, rounded to nearest after every product.
enum class Order { kTruncating, kRounded16, kSequential, kShort, kHalf };
// A fault in a live accumulator: after the step that holds product `k`, bit `bit` of the accumulator is flipped.
struct AccumulatorFault {
  int64_t batch, row, col, k;
  int bit;
};
float dot_in_order(Order order, const float* a, const float* b, int64_t n, int64_t stride_b, int64_t flip_after,
                   int bit);
Matrix multiply(Order order, const Matrix& a, const Matrix& b, const std::vector<AccumulatorFault>& faults = {});
WideMatrix multiply_f64(const WideMatrix& a, const WideMatrix& b);  // FP64 FMA in order
WideMatrix multiply_i32(const WideMatrix& a, const WideMatrix& b);  // of integers, modulo 2^32
// Operands as a library that rounds FP32 operands sees them: the low bits cut off.
Matrix truncated(const Matrix& m, int fraction_bits);

// Exact product and sum |A||B| of one entry, FP64.
double exact_entry(const Matrix& a, const Matrix& b, int64_t row, int64_t col, int64_t batch, double* abs_sum,
                   double* square_sum);

bool is_minus(uint64_t seed, uint32_t draw, int64_t n3, uint32_t classes, int64_t col);

// s of a cell from its definition: prefixes one by one.
struct Noise {
  double mean_energy;    // mean_t P_t^2
  double addend_energy;  // mean_t sum_{k <= 16 t} A^2 sum_j B_kj^2
};
std::vector<Noise> noise_of(const Matrix& a, const Matrix& b);  // [batch * rows of a]

// FP64 residual and s of every cell: [line][class][kDraws + 1].
std::vector<double> cells_of(const Matrix& a, const Matrix& b, const Matrix& p, uint64_t seed, uint32_t classes);

// sqrt(pi / 2) times the mean of z after dropping z > clip sigma, twice. Empty: 0.
double sigma_of(const std::vector<double>& z, double clip = 4.0);

}  // namespace sdcguard::reference

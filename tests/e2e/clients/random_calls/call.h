// SPDX-License-Identifier: MIT
// One call of a cuBLAS or cuBLASLt product, described by numbers alone: what is called, with what shapes, types,
// layouts, scalars, epilogue and data. A description has a text form, which is printed and read again, and can be drawn
// at random from what the libraries document as supported.
#pragma once

#include <cublasLt.h>
#include <cublas_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "number.h"

namespace calls {

// What the entry points have in common; each exists with 32-bit and 64-bit sizes but cublasLtMatmul.
enum class Family : uint8_t {
  kGemmEx,
  kGemmBatchedEx,
  kGemmStridedBatchedEx,
  kGemmGroupedBatchedEx,
  kSgemmEx,
  kSgemm,
  kDgemm,
  kHgemm,
  kSgemmBatched,
  kDgemmBatched,
  kHgemmBatched,
  kSgemmStridedBatched,
  kDgemmStridedBatched,
  kHgemmStridedBatched,
  kSgemmGroupedBatched,
  kDgemmGroupedBatched,
  kLtMatmul,
};

struct EntryPoint {
  const char* symbol;
  Family family;
  bool wide;  // the _64 form
};
inline constexpr int kEntryPoints = 33;
extern const EntryPoint kEntries[kEntryPoints];

// Problems of one shape: an ordinary call has one group, of `count` batch entries.
struct Group {
  int64_t m = 1, n = 1, k = 1, count = 1;
  char trans_a = 'n', trans_b = 'n';  // n, t or c
  double alpha = 1, beta = 0;         // numbers of the scale type. Vector modes: of row i, times 1 + i % 4
};

enum class Data : uint8_t {
  kGauss,
  kPositive,
  kIntegers,
  kPowers,
  kTiny,
  kSparse,
  kConstant,
  kHuge,
  kZero,
  kOnes,
  kNan,         // Gaussian but for one NaN
  kInf,         // Gaussian but for one infinity
  kLadder,      // stored rows: 16, then 2^-6 in every 32nd, else 0
  kLadderOnes,  // stored rows: 16, then 1
};

enum class Spread : uint8_t { kApart, kZero, kInterleaved };  // how the entries of a strided batch lie
enum class Scalars : uint8_t { kHost, kDevice, kVector, kAlphaVectorBetaZero, kAlphaVectorBetaHost };
// C of cublasLtMatmul: D itself, memory of its own, or no pointer (beta is 0).
enum class Addend : uint8_t { kInPlace, kApart, kNull };

struct Call {
  int entry = 0;  // of kEntries
  std::vector<Group> groups = {Group{}};
  Num a = Num::kF32, b = Num::kF32, c = Num::kF32, d = Num::kF32;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  Num scale = Num::kF32;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;  // of the handle
  int64_t pad[4] = {0, 0, 0, 0};            // of A, B, C, D: elements that ld exceeds its least value by
  int64_t offset[4] = {0, 0, 0, 0};         // elements that the matrix lies from a 256-byte boundary
  Spread spread[3] = {Spread::kApart, Spread::kApart, Spread::kApart};  // of A, B, and of C and D
  bool row_major[3] = {false, false, false};                            // of A, B, and of C and D; cublasLt
  Scalars scalars = Scalars::kHost;
  Addend addend = Addend::kInPlace;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  Num bias = Num::kF32;                       // type of the bias or of the bias gradient
  bool bias_by_batch = false;                 // one for each batch entry, else one for all
  Num aux = Num::kF32;                        // type of GELU's auxiliary matrix
  bool has_scale[3] = {false, false, false};  // scale pointers of A, B, D (FP8)
  bool outer_scales = false;                  // a scale for each row of op(A) and each column of op(B)
  bool amax = false;
  bool fast_accumulation = false;
  Data data_a = Data::kGauss, data_b = Data::kGauss, data_c = Data::kGauss;
  uint64_t seed = 1;  // of the data
};

const EntryPoint& entry_of(const Call& call);
bool is_lt(const Call& call);
bool is_grouped(const Call& call);
bool by_pointers(const Call& call);  // arrays of pointers in device memory

// "SYMBOL shape=MxNxKxOPSxCOUNT[+...] scalars=ALPHA,BETA[+...] types=A,B,C,D compute=... key=value ..."; what is not
// said has the value of Call{}. parse() throws std::runtime_error with one line.
std::string text_of(const Call& call);
Call parse(const std::string& text);

// Call number `index` of a seed; which entry point it is depends on the index alone, so that each has its turn.
Call draw(uint64_t seed, uint64_t index);

// splitmix64
class Random {
 public:
  explicit Random(uint64_t seed);
  uint64_t bits();
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  int64_t below(int64_t count) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(count)); }
  bool chance(double p) { return unit() < p; }
  double gauss();

 private:
  uint64_t state_;
};

}  // namespace calls

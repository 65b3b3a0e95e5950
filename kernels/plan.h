// SPDX-License-Identifier: MIT
// stage plan: takes a request (shapes, types, mode), gives every derived number of ProbeParams, the scratch layout and
// the launch of each kernel; plain host arithmetic, no CUDA, no allocation, no locks, never throws.
//
// Use (shim):
//   ProbePlan plan = make_plan(request);          // plan.usable() or plan.reason
//   plan.params.seed = ..., site_history, family_history, lane, identity
//   bind_scratch(plan.params, plan.layout, base); // base: 256-byte aligned device address of plan.layout.bytes bytes
//   if (upgraded) plan.params.p.address = product scratch of the shim (plan.product_bytes)
//   launch kFold, kOperand (side stream), kKeep and kPointers (application's stream); the product; then kProduct,
//   kRecompute, kRepair and kFinish, each where plan.launch[k].grid is not 0: the function
//   kFunctionNames[plan.launch[k].function] with the one argument plan.params.
//
// Contracts on the scratch:
// - The first kZeroedScratchBytes bytes of it are zero when it is used first (once an allocation, not a call); the
//   kernels leave the fold ticket zero, and of the verdict finish_blocks and amax. All else may hold anything.
// - It belongs to one call from the start of fold to the end of the last kernel: fold must be ordered after the last
//   kernel of the scratch's previous call.
// - The same scratch serves calls of any shape whose layout.bytes fit.
#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace sdcguard {

// Bytes of an element; 0 for a type that is not handled.
inline constexpr uint32_t element_bytes(DataType type) {
  switch (type) {
    case DataType::kF64:
      return 8;
    case DataType::kF32:
    case DataType::kI32:
      return 4;
    case DataType::kBF16:
    case DataType::kF16:
      return 2;
    case DataType::kE4M3:
    case DataType::kE5M2:
    case DataType::kI8:
      return 1;
    default:
      return 0;
  }
}

enum class Kernel : uint32_t { kFold, kOperand, kProduct, kRecompute, kRepair, kFinish, kKeep, kPointers };
inline constexpr uint32_t kKernelCount = 8;
// Names in the fatbin: first one a Kernel, in its order.
inline constexpr uint32_t kFunctionCount = 18;
inline constexpr const char* kFunctionNames[kFunctionCount] = {
    "sdcguard_fold", "sdcguard_operand", "sdcguard_product", "sdcguard_escalate_recompute", "sdcguard_escalate_repair",
    "sdcguard_finish", "sdcguard_keep", "sdcguard_pointers",
    // kFold .. kRepair in FP64, then modulo 2^32
    "sdcguard_fold_f64", "sdcguard_operand_f64", "sdcguard_product_f64", "sdcguard_escalate_recompute_f64",
    "sdcguard_escalate_repair_f64", "sdcguard_fold_i32", "sdcguard_operand_i32", "sdcguard_product_i32",
    "sdcguard_escalate_recompute_i32", "sdcguard_escalate_repair_i32"};

inline constexpr uint64_t kFoldTicketBytes = 256;
inline constexpr uint64_t kZeroedScratchBytes = kFoldTicketBytes + 256;  // and the verdict, whose counters finish uses
static_assert(sizeof(Verdict) <= 256);

struct LaunchShape {
  uint32_t grid;  // 0: not launched
  uint32_t block;
  uint32_t shared_bytes;  // dynamic; 0 for all
  uint32_t function;      // index in kFunctionNames
};

// How the library rounds FP32 operands before it multiplies them. Mirrors InputRounding of shim/gemm_call.h.
enum class OperandRounding : uint8_t { kNone = 0, kTf32 = 1, kBf16 = 2, kF16 = 3 };

// What the library adds products up in.
enum class Accumulator : uint8_t {
  kF32 = 0,      // 16-bit, FP32, FP8 (partial sums promoted to FP32) and INT8 operands; P is kF32
  kF32Fast = 1,  // FP8 operands with fast accumulation: the tensor core's own sum all along k; P is kF32
  kF64 = 2,      // FP64 operands; P is kF64
  kI32 = 3,      // INT8 operands, exact modulo 2^32; P is kI32
  kF16 = 4,      // CUBLAS_COMPUTE_16F: FP16 operands; only as delivered, P is the caller's FP16 D
};

// Tensor-core step of the device: products a step and guard bits (../data/tensor-core). Unknown: 4 and 0, the worst.
// Negative guard bits: the accumulator itself keeps so many bits less than FP32 (FP8 on Hopper and Ada: 13 of 23).
struct TensorCore {
  uint32_t products;
  int32_t guard_bits;
};
// By compute capability; type: of the operands.
TensorCore tensor_core_of(uint32_t compute_major, DataType type);

struct ProbeRequest {
  int64_t n1, n2, n3, batch;  // all at least 1
  MatrixView a, b;            // one of the strides is 1
  // Upgraded: p.address 0; make_plan chooses type and strides. Delivered: the caller's D as it is.
  MatrixView p;
  FinishView finish;  // d.address 0 when nothing is to be delivered. Delivered: c, alpha, beta, bias as given.
  bool delivered;
  bool unchecked;         // upgraded: D is delivered from P by the finish kernel, and no pass looks at anything
  bool through_pointers;  // the library takes the product's place as an array of pointers (upgraded only)
  bool c_apart;  // C is not read (beta known to be 0) or shares no byte with D. Delivered and false: C is D, kept first
  Mode mode;     // kObserve, kDetect or kRepair
  OperandRounding rounding;
  Accumulator accumulator;
  bool reduces_in_16_bits;  // delivered in 16 bits: split-K may have rounded its partial products to them
  TensorCore tensor_core;   // of 16-bit and TF32 products; FP32 without rounding uses FMA units
  uint32_t sm_count;        // at least 1
};

// Byte offsets of every scratch array from its base, in the order of ProbeParams.
struct ScratchLayout {
  uint64_t verdict, fold_ticket, tile_marks, tile_energy, fold_sums, fold_mean, fold_rms, signs, column_marks,
      marked_columns, line_dots, line_noise, line_sums, line_peak, line_median, peak_counts, peak_sums, sigmas, listed,
      recomputed, kept_c, product_pointers;
  uint64_t bytes;  // in all, the product not included
};

struct ProbePlan {
  ProbeParams params;  // zero where the shim fills in
  ScratchLayout layout;
  LaunchShape launch[kKernelCount];
  uint64_t product_bytes;  // of the product in scratch when upgraded, a multiple of 256; else 0
  bool needs_keep;         // kKeep is launched on the application's stream before the product
  uint32_t family;         // index of the call's family: products whose noise may be compared. Below kFamilyCount.
  Reason reason;           // kNone: usable
  bool usable() const { return reason == Reason::kNone; }
};

// Families: types of A and B, accumulator, rounding of the operands, floor(log2 n2). Histories of noise are kept by
// them.
inline constexpr uint32_t kFamilyKinds = 24;
inline constexpr uint32_t kFamilyCount = kFamilyKinds * 32;
uint32_t family_of(const ProbeRequest& request);

ProbePlan make_plan(const ProbeRequest& request);

// Sets the scratch addresses of params. base: 256-byte aligned. `cells` stays 0.
void bind_scratch(ProbeParams& params, const ScratchLayout& layout, uint64_t base);

// What the accumulation of a call may do to an entry (MATH.md "entry").
struct AccumulationNoise {
  double unit;          // u of the verifier: 2^-24, 2^-53
  double eps_acc;       // one rounding of the accumulator, relative to it
  double eps_in;        // rounding of both operands, relative to their product
  double smallest;      // spacing of the accumulator below its normal range
  double largest;       // of the accumulator
  uint32_t products;    // N of one step
  uint32_t guard_bits;  // g of one step
};
AccumulationNoise noise_of(const ProbeRequest& request);

// The single decisions, for tests, `explain` and the fault log.
uint32_t classes_of(int64_t n1, int64_t n3);                           // MATH.md "classes"
double look_scale_of(double cells);                                    // MATH.md "look"
double short_sum_factor(int64_t n2);                                   // MATH.md "look"
double hoeffding_scale_of(double tests);                               // MATH.md "block sums"
double sigma_envelope_of(int64_t n2, const AccumulationNoise& noise);  // MATH.md "envelope"

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// stage plan: takes a request (shapes, types, mode), gives every derived number of ProbeParams, the scratch layout and
// the launch of each kernel; plain host arithmetic, no CUDA, no allocation, no locks, never throws.
//
// Use (shim):
//   ProbePlan plan = make_plan(request);          // plan.usable() or plan.reason
//   plan.params.seed = ..., site_history, family_history, lane, identity
//   bind_scratch(plan.params, plan.layout, base); // base: 256-byte aligned device address of plan.layout.bytes bytes
//   if (upgraded) plan.params.p.address = product scratch of the shim (plan.product_bytes)
//   launch kFold, kOperand (side stream); the product; then kProduct, kRecompute, kRepair and kFinish, each where
//   plan.launch[k].grid is not 0, all with the one argument plan.params.
//
// Contracts on the scratch:
// - The first kZeroedScratchBytes bytes of it are zero when it is used first (once an allocation, not a call); the
//   kernels leave them zero. All else may hold anything.
// - It belongs to one call from the start of fold to the end of the last kernel: fold must be ordered after the last
//   kernel of the scratch's previous call.
// - The same scratch serves calls of any shape whose layout.bytes fit.
#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace sdcguard {

enum class Kernel : uint32_t { kFold, kOperand, kProduct, kRecompute, kRepair, kFinish };
inline constexpr uint32_t kKernelCount = 6;
// Order of Kernel: names in the fatbin.
inline constexpr const char* kKernelNames[kKernelCount] = {
    "sdcguard_fold",  "sdcguard_operand", "sdcguard_product", "sdcguard_escalate_recompute", "sdcguard_escalate_repair",
    "sdcguard_finish"};

inline constexpr uint64_t kZeroedScratchBytes = 256;

struct LaunchShape {
  uint32_t grid;  // 0: not launched
  uint32_t block;
  uint32_t shared_bytes;  // dynamic; 0 for all
};

// How the library rounds FP32 operands before it multiplies them. Mirrors InputRounding of shim/gemm_call.h.
enum class OperandRounding : uint8_t { kNone = 0, kTf32 = 1 };

// Tensor-core step of the device: products a step and guard bits (../data/tensor-core). Unknown: 4 and 0, the worst.
struct TensorCore {
  uint32_t products;
  uint32_t guard_bits;
};
// By compute capability; type: of the operands.
TensorCore tensor_core_of(uint32_t compute_major, DataType type);

struct ProbeRequest {
  int64_t n1, n2, n3, batch;  // all at least 1
  MatrixView a, b;            // kF32, kBF16 or kF16; one of the strides is 1
  // Upgraded: p.address 0 and p.type kF32; make_plan chooses its strides. Delivered: the caller's D as it is.
  MatrixView p;
  FinishView finish;  // d.address 0 when nothing is to be delivered. Delivered: c, alpha, beta, bias as given.
  bool delivered;
  bool c_apart;  // C is not read (beta known to be 0) or shares no byte with D
  Mode mode;     // kObserve, kDetect or kRepair
  OperandRounding rounding;
  TensorCore tensor_core;  // of 16-bit and TF32 products; FP32 without rounding uses FMA units
  uint32_t sm_count;       // at least 1
};

// Byte offsets of every scratch array from its base, in the order of ProbeParams.
struct ScratchLayout {
  uint64_t verdict, fold_ticket, tile_marks, tile_energy, fold_sums, fold_mean, fold_deviation, fold_rms, signs,
      column_marks, marked_columns, line_dots, line_noise, line_sums, line_peak, peak_counts, peak_sums, sigmas, listed,
      recomputed;
  uint64_t bytes;  // in all, the product not included
};

struct ProbePlan {
  ProbeParams params;  // zero where the shim fills in
  ScratchLayout layout;
  LaunchShape launch[kKernelCount];
  uint64_t product_bytes;  // of the FP32 product when upgraded, a multiple of 256; else 0
  Reason reason;           // kNone: usable
  bool usable() const { return reason == Reason::kNone; }
};

ProbePlan make_plan(const ProbeRequest& request);

// Sets the scratch addresses of params. base: 256-byte aligned. `cells` stays 0.
void bind_scratch(ProbeParams& params, const ScratchLayout& layout, uint64_t base);

// The single decisions, for tests, `explain` and the fault log.
uint32_t classes_of(int64_t n1, int64_t n3);                     // MATH.md "classes"
double look_scale_of(double cells);                              // MATH.md "look"
double hoeffding_scale_of(double tests);                         // MATH.md "block sums"
double sigma_envelope_of(int64_t n2, OperandRounding rounding);  // MATH.md "envelope"
uint32_t element_bytes(DataType type);                           // 0 for a type that is not handled

}  // namespace sdcguard

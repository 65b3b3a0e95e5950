// SPDX-License-Identifier: MIT
// The closed vocabularies of sdcguard: outcomes, reasons, modes, numeric types. Values are part of the wire:
// they are never renumbered, only added at the end. No CUDA header is needed to read them.
#pragma once

#include <cstdint>

namespace sdcguard {

// What became of one guarded call. "Could not check" (kUnverified) is never "clean".
#define SDCGUARD_OUTCOMES(X)                                               \
  X(kNotSampled, "not_sampled") /* the policy did not choose this call */  \
  X(kClean, "clean")            /* checked, nothing wrong */               \
  X(kCorrected, "corrected")    /* wrong entries found and all repaired */ \
  X(kCorrupt, "corrupt")        /* wrong entries found, not corrected */   \
  X(kBenign, "benign")          /* a look with no wrong entry behind it */ \
  X(kUnverified, "unverified")  /* could not be checked; see Reason */

// Why a call is unverified. kNone with every other outcome.
#define SDCGUARD_REASONS(X)                                                                                 \
  X(kNone, "none")                                                                                          \
  X(kCold, "cold")                     /* context met before any handle was created in it */                \
  X(kCapture, "capture")               /* the stream is being captured into a graph */                      \
  X(kCompute16f, "compute_16f")        /* FP16 accumulation has no noise model yet */                       \
  X(kNoWorkspace, "no_workspace")      /* scratch over its cap or refused */                                \
  X(kNoKernelImage, "no_kernel_image") /* our kernels do not load on this device */                         \
  X(kNoContext, "no_context")          /* no current context on this thread */                              \
  X(kNoDriver, "no_driver")            /* libcuda.so.1 or one of its symbols is missing */                  \
  X(kDriverError, "driver_error")      /* one of our driver calls failed */                                 \
  X(kProductFailed, "product_failed")  /* cuBLAS itself returned an error: passed through */                \
  X(kUnsupportedType, "unsupported_type")                                                                   \
  X(kUnsupportedEpilogue, "unsupported_epilogue")                                                           \
  X(kUnsupportedAttribute, "unsupported_attribute") /* a descriptor value we do not know */                 \
  X(kUnsupportedOrder, "unsupported_order")                                                                 \
  X(kUnsupportedEntry, "unsupported_entry") /* an observed entry point without a check */                   \
  X(kInplace, "inplace")                    /* C overlaps D and had to be read as delivered */              \
  X(kOverlappingOutput, "overlapping_output")                                                               \
  X(kNonfiniteOperand, "nonfinite_operand") /* all, or the marked lines, held NaN or Inf */                 \
  X(kRange, "range")                        /* an energy left the range of the verifier */                  \
  X(kEmpty, "empty")                        /* m, n or k is zero: nothing to check */                       \
  X(kStaleFold, "stale_fold")                                                                               \
  X(kNoisy, "noisy")                                                                                        \
  X(kReentrant, "reentrant")                    /* issued by cuBLAS itself inside a guarded call */         \
  X(kOff, "off")                                /* mode off, or switched off at run time */                 \
  X(kLinesOverflow, "lines_overflow")           /* more dirty lines than could be recomputed */             \
  X(kUpgradeRefused, "upgrade_refused")         /* the library has no FP32 form of it: asked once a site */ \
  X(kUnsupportedCompute, "unsupported_compute") /* emulated or unknown arithmetic: no noise model */        \
  X(kBlockScale, "block_scale")                 /* FP8 or FP4 with a factor a block */

enum class Outcome : uint8_t {
#define X(name, text) name,
  SDCGUARD_OUTCOMES(X)
#undef X
};

enum class Reason : uint8_t {
#define X(name, text) name,
  SDCGUARD_REASONS(X)
#undef X
};

inline constexpr const char* kOutcomeNames[] = {
#define X(name, text) text,
    SDCGUARD_OUTCOMES(X)
#undef X
};
inline constexpr const char* kReasonNames[] = {
#define X(name, text) text,
    SDCGUARD_REASONS(X)
#undef X
};
inline constexpr uint32_t kOutcomeCount = sizeof(kOutcomeNames) / sizeof(kOutcomeNames[0]);
inline constexpr uint32_t kReasonCount = sizeof(kReasonNames) / sizeof(kReasonNames[0]);

enum class Mode : uint8_t { kOff = 0, kObserve = 1, kDetect = 2, kRepair = 3 };
inline constexpr const char* kModeNames[] = {"off", "observe", "detect", "repair"};
inline constexpr uint32_t kModeCount = 4;

// How a call was checked.
enum class Plan : uint8_t {
  kNone = 0,
  kLine = 1,       // class sums with measured noise, FP32 product (upgraded or native)
  kBlockSums = 2,  // 16-bit output as delivered: class sums of 32 columns, Hoeffding threshold
  kRecompute = 3,  // small product: every line recomputed
  kExact = 4,      // INT8 to INT32: weighted class sums modulo 2^32
};
inline constexpr const char* kPlanNames[] = {"none", "line", "block_sums", "recompute", "exact"};
inline constexpr uint32_t kPlanCount = 5;

// Numeric types of operands and results.
enum class DataType : uint8_t {
  kNone = 0,
  kF32 = 1,
  kBF16 = 2,
  kF16 = 3,
  kF64 = 4,
  kE4M3 = 5,  // FP8, 4 exponent and 3 fraction bits, no infinity
  kE5M2 = 6,  // FP8, 5 exponent and 2 fraction bits
  kI8 = 7,
  kI32 = 8,
  kOther = 255
};

// Epilogue bits of a call, in sdcguard's own numbering.
inline constexpr uint32_t kEpilogueBias = 1;  // + bias, one value a row of the caller's D
inline constexpr uint32_t kEpilogueRelu = 2;
inline constexpr uint32_t kEpilogueGelu = 4;  // tanh form
inline constexpr uint32_t kEpilogueAux = 8;   // RELU's bit mask or GELU's input is stored beside D

inline constexpr const char* name_of(Outcome o) {
  return static_cast<uint32_t>(o) < kOutcomeCount ? kOutcomeNames[static_cast<uint32_t>(o)] : "invalid";
}
inline constexpr const char* name_of(Reason r) {
  return static_cast<uint32_t>(r) < kReasonCount ? kReasonNames[static_cast<uint32_t>(r)] : "invalid";
}
inline constexpr const char* name_of(Mode m) {
  return static_cast<uint32_t>(m) < kModeCount ? kModeNames[static_cast<uint32_t>(m)] : "invalid";
}
inline constexpr const char* name_of(Plan p) {
  return static_cast<uint32_t>(p) < kPlanCount ? kPlanNames[static_cast<uint32_t>(p)] : "invalid";
}
inline constexpr const char* name_of(DataType t) {
  switch (t) {
    case DataType::kNone:
      return "none";
    case DataType::kF32:
      return "f32";
    case DataType::kBF16:
      return "bf16";
    case DataType::kF16:
      return "f16";
    case DataType::kF64:
      return "f64";
    case DataType::kE4M3:
      return "e4m3";
    case DataType::kE5M2:
      return "e5m2";
    case DataType::kI8:
      return "i8";
    case DataType::kI32:
      return "i32";
    default:
      return "other";
  }
}

}  // namespace sdcguard

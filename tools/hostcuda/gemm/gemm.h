// SPDX-License-Identifier: MIT
// The product engine of the host device: one GEMM in, raw FP32 product sums out, in the accumulation order of a named
// architecture, with faults injected on request. Lives in libcublasLt.so.13; libcublas.so.13 calls the same symbols.
//
// What it computes, column-major as in cuBLAS, for batch entries e in [0, batch):
//   P_e(i, j) = sum_l op(A_e)(i, l) op(B_e)(l, j)        i < m, j < n, l < k
// and nothing else: alpha, beta C, bias, activation and the cast to D's type belong to the caller. P is written to
// out[i + j out_ld + e out_stride] as FP32 (with Compute::kFp16 each value is an FP16 value held in FP32).
//
// How a cuBLAS entry point uses it:
//   on the application's thread, after all arguments were checked and the call is certain to be enqueued:
//     product.index = hostcuda_gemm_next_index(device);           // call order, not stream order: runs can be repeated
//   on the stream's worker:
//     hostcuda_gemm_run(&product, &outcome);                      // fills out
//     ... D = activation(alpha P + beta C + bias), except at outcome.skipped: these entries of D stay as they were
//     hostcuda_gemm_release(&outcome);
//
// Settings are read from the environment once, at the first call of any function here:
//   HOSTCUDA_ORDER      h100 (default) a100 ada v100 b200 rounded16 sequential, or one of these with /splitS (order.h)
//   HOSTCUDA_FAULTS     path of a TOML file, or TOML text (faults.h); HOSTCUDA_FAULT_LOG: path of the injection log
//   HOSTCUDA_GEMM_THREADS  threads a large product may use (default: the cores of this process)
// A wrong HOSTCUDA_ORDER or HOSTCUDA_GEMM_THREADS prints one line that lists what is allowed and ends the process with
// exit code 86. A wrong HOSTCUDA_FAULTS prints one line and leaves the plan off; with HOSTCUDA_STRICT=1 it ends
// likewise.
#pragma once

#include <cstdint>

namespace hostcuda::gemm {

enum class Type : uint8_t { kFp32 = 0, kFp16 = 1, kBf16 = 2 };

// kFp32: FP32 accumulator (CUBLAS_COMPUTE_32F and its FAST forms over 16-bit inputs; FP32 inputs always run as
// sequential FMA). kFp16: CUBLAS_COMPUTE_16F, FP16 inputs only: the accumulator is rounded to FP16 (to nearest) after
// every step of the order; no vector of real silicon stands behind that rounding.
enum class Compute : uint8_t { kFp32 = 0, kFp16 = 1 };

enum class Status : int {
  kOk = 0,
  kNotSupported =
      1,         // type tuple that this order's architecture lacks (BF16 on v100, mixed types, kFp16 over BF16/FP32)
  kInvalid = 2,  // a negative size, a null pointer where data is needed, ld smaller than a column
};

// One operand as cuBLAS is given it. Host memory readable for the whole matrix (an alias of device memory), owned by
// the caller, never written. Stored column-major with leading dimension ld; transposed: op(X) = X^T (OP_T and OP_C
// alike).
struct Operand {
  const void* data;             // batch entry e starts at data + e stride elements; ignored where pointers is set
  const void* const* pointers;  // null, or `batch` host pointers, one an entry (pointer-array batches)
  int64_t ld;                   // elements; at least the stored rows
  int64_t stride;               // elements between batch entries; 0: the same matrix for all
  Type type;
  bool transposed;
};

struct Product {
  int64_t m, n, k;
  int64_t batch;  // at least 1 unless there is nothing to do
  Operand a;      // op(A) is m x k
  Operand b;      // op(B) is k x n
  Compute compute;
  float* out;          // host memory of the caller, column-major; overwritten (k = 0: zeros), never read
  int64_t out_ld;      // elements, at least m
  int64_t out_stride;  // elements between batch entries, at least out_ld n
  // For fault matching and the injection log only.
  int32_t device;  // ordinal
  uint8_t uuid[16];
  uint64_t stream;
  uint64_t index;  // from hostcuda_gemm_next_index
};

// A rectangle of D that the device "did not write": D(row .. row + rows, col .. col + cols) of one batch entry.
struct Skipped {
  int64_t batch, row, col, rows, cols;
};

struct Outcome {
  const Skipped* skipped;  // owned by the engine until hostcuda_gemm_release; null where the count is 0
  uint64_t skipped_count;
  uint64_t injected;  // entries that the fault plan touched (logged lines)
};

}  // namespace hostcuda::gemm

#pragma GCC visibility push(default)
extern "C" {

// Whether this order's device runs the tuple. No side effect but the reading of the settings. Thread-safe.
hostcuda::gemm::Status hostcuda_gemm_supports(hostcuda::gemm::Type a, hostcuda::gemm::Type b,
                                              hostcuda::gemm::Compute compute);

// The next product number of this device in this process, from 0. Call once a GEMM call (a batch is one), never for a
// call that is refused. Thread-safe.
uint64_t hostcuda_gemm_next_index(int32_t device);

// Computes the product, injects what the fault plan says, writes the log. Blocks until done; uses the engine's pool for
// large products; may be called by several threads at once; same bits whatever the number of threads. On a status other
// than kOk nothing was written and outcome is empty. outcome must not be null; release it after every kOk.
hostcuda::gemm::Status hostcuda_gemm_run(const hostcuda::gemm::Product* product, hostcuda::gemm::Outcome* outcome);
void hostcuda_gemm_release(hostcuda::gemm::Outcome* outcome);

// Name of the order in force, for output ("h100", "rounded16/split4", ...). Static storage.
const char* hostcuda_gemm_order_name(void);

}  // extern "C"
#pragma GCC visibility pop

// SPDX-License-Identifier: MIT
// The product engine of the host device: one GEMM in, raw product sums out, in the accumulation order of a named
// architecture, with faults injected on request. Lives in libcublasLt.so.13; libcublas.so.13 calls the same symbols.
//
// What it computes, column-major as in cuBLAS, for batch entries e in [0, batch):
//   P_e(i, j) = sum_l op(A_e)(i, l) op(B_e)(l, j)        i < m, j < n, l < k
// and nothing else: alpha, beta C, bias, activation, scale factors and the cast to D's type belong to the caller. P is
// written to out[i + j out_ld + e out_stride] in sum_type(compute): FP32, FP64 or INT32.
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
//   HOSTCUDA_ORDER      h100 (default) a100 ada v100 b200 rounded16 sequential, or one of these with /splitS or
//                       /splitSx16 (order.h)
//   HOSTCUDA_FAULTS     path of a TOML file, or TOML text (faults.h); HOSTCUDA_FAULT_LOG: path of the injection log
//   HOSTCUDA_GEMM_THREADS  threads a large product may use (default: the cores of this process)
// A wrong HOSTCUDA_ORDER or HOSTCUDA_GEMM_THREADS prints one line that lists what is allowed and ends the process with
// exit code 86. A wrong HOSTCUDA_FAULTS prints one line and leaves the plan off; with HOSTCUDA_STRICT=1 it ends
// likewise.
#pragma once

#include <cstdint>

namespace hostcuda::gemm {

// Element types of matrices. kInt32 is a type of sums and of C and D, never of an operand.
enum class Type : uint8_t {
  kFp32 = 0,
  kFp16 = 1,
  kBf16 = 2,
  kFp64 = 3,
  kE4m3 = 4,  // FP8: 4 exponent and 3 fraction bits, no infinity, NaN 0x7F and 0xFF, largest 448
  kE5m2 = 5,  // FP8: 5 exponent and 2 fraction bits, as a short FP16, largest 57344
  kInt8 = 6,
  kInt32 = 7,
  kE2m1 = 8,  // FP4: 2 exponent bits and 1 fraction bit, largest 6; here one a byte, in its low half
};

constexpr int64_t bytes_of(Type type) {
  switch (type) {
    case Type::kFp64:
      return 8;
    case Type::kFp32:
    case Type::kInt32:
      return 4;
    case Type::kFp16:
    case Type::kBf16:
      return 2;
    case Type::kE4m3:
    case Type::kE5m2:
    case Type::kInt8:
    case Type::kE2m1:
      return 1;
  }
  return 0;
}

constexpr bool is_fp8(Type type) {
  return type == Type::kE4m3 || type == Type::kE5m2;
}

// FP8 and FP4: the types that scales belong to.
constexpr bool is_narrow(Type type) {
  return is_fp8(type) || type == Type::kE2m1;
}

// How the products are formed and summed. A and B have one type, but for FP8, which may be mixed.
//   compute    operands          sums
//   kFp32      BF16, FP16        FP32 in the order in force
//              FP32              FP32, sequential FMA in every order
//              E4M3, E5M2        FP32; Hopper and Ada sum 128 products at a time in the tensor core's short accumulator
//                                and add each such part to an FP32 sum, to nearest (order.h)
//              E2M1              FP32, by the tensor core's steps for FP8: its products are exact there
//   kFp8Fast   E4M3, E5M2        FP32, all products in the tensor core's accumulator (CUBLASLT_MATMUL_DESC_FAST_ACCUM)
//   kTf32      FP32              operands cut to TF32, then as 16-bit operands with N halved
//   kFp16      FP16              FP16 values held in FP32: rounded to FP16 (to nearest) after every step of the order;
//                                no vector of real silicon stands behind that rounding
//   kFp64      FP64              FP64, sequential FMA in every order
//   kInt32     INT8              INT32, exact modulo 2^32
enum class Compute : uint8_t { kFp32 = 0, kFp16 = 1, kFp64 = 2, kInt32 = 3, kTf32 = 4, kFp8Fast = 5 };

// Element type of Product::out.
constexpr Type sum_type(Compute compute) {
  return compute == Compute::kFp64 ? Type::kFp64 : compute == Compute::kInt32 ? Type::kInt32 : Type::kFp32;
}

enum class Status : int {
  kOk = 0,
  // A tuple that is not in the table above, or that the order's architecture lacks: BF16 and TF32 on v100, FP8 on v100
  // and a100, FP4 on all but b200.
  kNotSupported = 1,
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

// Factors of FP8 and FP4 operands by blocks along k. Each block is summed from +0, never promoted nor split; its sum,
// times the exact product of the factors of its row and column, is added to an FP32 sum, in FP64 rounded to nearest.
// For a GPU to settle: whether Blackwell's tensor cores round a block's sum before they scale it.
struct BlockScales {
  int64_t length = 0;        // products a block; 0: no factors
  const float* a = nullptr;  // of row i in block p: a[i + p m]
  const float* b = nullptr;  // of column j in block p: b[j + p n]
};

struct Product {
  int64_t m, n, k;
  int64_t batch;  // at least 1 unless there is nothing to do
  Operand a;      // op(A) is m x k
  Operand b;      // op(B) is k x n
  Compute compute;
  void* out;           // sum_type(compute); host memory of the caller, column-major; overwritten (k = 0: zeros)
  int64_t out_ld;      // elements, at least m
  int64_t out_stride;  // elements between batch entries, at least out_ld n
  // For fault matching and the injection log only.
  int32_t device;  // ordinal
  uint8_t uuid[16];
  uint64_t stream;
  uint64_t index;  // from hostcuda_gemm_next_index
  // D has 16 bits, and split-K may keep its partial results in them (orders NAME/splitSx16).
  bool narrow_result = false;
  BlockScales scales{};  // the same for every batch entry
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

// Compute capability of the device that the order stands for, times ten: v100 70, a100 80, ada 89, b200 100; h100 and
// the generic orders 90.
int hostcuda_gemm_compute_capability(void);

// Name of the order in force, for output ("h100", "rounded16/split4", ...). Static storage.
const char* hostcuda_gemm_order_name(void);

}  // extern "C"
#pragma GCC visibility pop

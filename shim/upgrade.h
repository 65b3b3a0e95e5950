// SPDX-License-Identifier: MIT
// stage upgrade: takes a GemmCall, issues either the caller's own product or the bare product A B into scratch of ours.
// Runs on the calling thread, enqueues on the call's stream through the caller's own library, handle and workspace.
// Never mutates a handle or a descriptor of the caller. Both return the cublasStatus_t and never throw.
#pragma once

#include <cstdint>

#include "shim/gemm_call.h"

namespace sdcguard {

// The caller's exact call: the same function, bit-identical arguments.
int issue_original(const GemmCall& call) noexcept;

// The type that a call's products accumulate in, and so that of the bare product: kF32, kF64 or kI32.
DataType product_type_of(const GemmCall& call) noexcept;

// Whether the bare product may run into scratch of that type: interposition.md 5.2. BF16, FP16 and FP8 inputs at
// COMPUTE_32F or its pedantic form; FP32, FP64 and INT8 inputs (the same type as they have, redirected). False for
// every blocked call, and for a site that issue_product() found unsupported before.
bool upgrade_permitted(const GemmCall& call) noexcept;
bool upgrade_permitted(const GemmCall& call, uint64_t site) noexcept;

// Where the product goes: row i of P of batch entry b at element i ld + b batch_stride from address, ld >= n3.
// ld a multiple of 4 and a 16-byte (better 256-byte) aligned address keep the library's fast kernels eligible.
struct ProductTarget {
  DataType type;  // product_type_of(call)
  uint64_t address;
  int64_t ld;
  int64_t batch_stride;
  uint64_t pointers;      // device array of the addresses of the batch's products, for pointer-array calls; else 0
  uint64_t one_address;   // 1 and 0 of call.scalar_type in device memory that lives as long as the context:
  uint64_t zero_address;  // read by the device when the caller's handle is in DEVICE pointer mode
  uint64_t context_id;    // cuCtxGetId of the stream's context: algorithms are remembered for it
};

// P = A B with alpha = 1, beta = 0, no factors and no epilogue into `target`, on call.stream. Requires
// upgrade_permitted(call). cublasLt: a cloned descriptor (host scalars), layouts of the product's type with D's order,
// and an algorithm from the library's own heuristic under the caller's workspace limit, cached by shape; a first call
// of a shape asks the library (tens of microseconds), later ones do not. Anything but 0 (kNotSupported is normal):
// nothing was enqueued by us that the caller could see; issue_original() must follow. kNotSupported, kInvalidValue and
// kArchMismatch are remembered for `site`.
int issue_product(const GemmCall& call, uint64_t site, const ProductTarget& target) noexcept;

// Sites whose bare product the library refused: a fixed table, lock-free. A site that finds it full is asked again.
bool upgrade_refused(uint64_t site) noexcept;
void remember_upgrade_refused(uint64_t site) noexcept;

}  // namespace sdcguard

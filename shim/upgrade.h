// SPDX-License-Identifier: MIT
// stage upgrade: takes a GemmCall, issues either the caller's own product or the bare product A B into FP32 scratch.
// Runs on the calling thread, enqueues on the call's stream through the caller's own library, handle and workspace.
// Never mutates a handle or a descriptor of the caller. Both return the cublasStatus_t and never throw.
#pragma once

#include <cstdint>

#include "shim/gemm_call.h"

namespace sdcguard {

// The caller's exact call: the same function, bit-identical arguments.
int issue_original(const GemmCall& call) noexcept;

// Whether the bare product may run into FP32: interposition.md 5.2. BF16 and FP16 inputs at COMPUTE_32F or
// COMPUTE_32F_PEDANTIC; FP32 inputs (already FP32, redirected). False for every blocked call, and for a site that
// issue_into_fp32() found unsupported before.
bool upgrade_permitted(const GemmCall& call) noexcept;
bool upgrade_permitted(const GemmCall& call, uint64_t site) noexcept;

// Where the product goes: FP32, row i of P of batch entry b at address + 4 (i ld + b batch_stride) bytes, ld >= n3.
// ld a multiple of 4 and a 16-byte (better 256-byte) aligned address keep the library's fast kernels eligible.
struct Fp32Target {
  uint64_t address;
  int64_t ld;
  int64_t batch_stride;
  uint64_t one_address;   // one float 1 and one float 0 in device memory that lives as long as the context:
  uint64_t zero_address;  // read by the device when the caller's handle is in DEVICE pointer mode
  uint64_t context_id;    // cuCtxGetId of the stream's context: algorithms are remembered for it
};

// P = A B with alpha = 1, beta = 0 and no epilogue into `target`, on call.stream. Requires upgrade_permitted(call).
// cublasLt: a cloned descriptor (host scalars), FP32 layouts with D's order, and an algorithm from the library's own
// heuristic under the caller's workspace limit, cached by shape; a first call of a shape asks the library (tens of
// microseconds), later ones do not. Anything but 0 (kNotSupported is normal): nothing was enqueued by us that the
// caller could see; issue_original() must follow. kNotSupported, kInvalidValue and kArchMismatch are remembered for
// `site`.
int issue_into_fp32(const GemmCall& call, uint64_t site, const Fp32Target& target) noexcept;

// Sites whose FP32 product the library refused: a fixed table, lock-free. A site that finds it full is asked again.
bool upgrade_refused(uint64_t site) noexcept;
void remember_upgrade_refused(uint64_t site) noexcept;

}  // namespace sdcguard

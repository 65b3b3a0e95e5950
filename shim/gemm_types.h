// SPDX-License-Identifier: MIT
// stage intercept: the numeric types of a call: which tuples of compute, scale and data types are understood, and how
// scalars are read; runs on the calling thread. Pure: no library, no driver.
#pragma once

#include "shim/gemm_call.h"

namespace sdcguard {

// A cudaDataType; kOther for those that are not understood (complex, FP4, 4-bit and 16-bit integers).
DataType data_type(int cuda_type) noexcept;

// The type of alpha and beta that the cublas family takes with a compute type (cublasGemmEx's table).
int scale_type_of(int compute_type) noexcept;

bool is_fp8(DataType type) noexcept;

// Compute and scale type that are understood; sets call.rounding of the FAST forms. kUnsupportedCompute for emulation.
Reason judge_compute(GemmCall& call) noexcept;

// Tuples of A, B, C and D that have a check (interposition.md 5.2, in both readings of A and B).
Reason judge_types(const GemmCall& call) noexcept;

// Sets alpha, beta, scalar_type and reads_c. A null pointer: that scalar is on the device, its address is in
// call.arguments, and whether C is read cannot be known.
void read_scalars(GemmCall& call, const void* alpha_host, const void* beta_host) noexcept;

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// What the descriptors of one cublasLtMatmul call ask for: the judgement that the call itself, the heuristics and
// cublasLtMatmulAlgoCheck share.
#pragma once

#include "tools/hostcuda/cublaslt/descriptors.h"
#include "tools/hostcuda/cublaslt/product.h"

namespace hostcuda {

// Reads the five descriptors, none of them null, and fills *out but for name, addresses and scalars (out->bias too: 0;
// bias_type and bias_stride are filled). Pure; dereferences nothing but the descriptors.
// SUCCESS;
// INVALID_VALUE: shapes, leading dimensions or batch counts that do not fit together, unknown transpose or epilogue
//   values, scale or amax pointers for types that have none;
// NOT_SUPPORTED: understood and not offered (types, orders, batch and pointer modes, epilogues, emulation).
cublasStatus_t plan_matmul(const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b, const MatrixLayout& c,
                           const MatrixLayout& d, Matmul* out);

// Whether `algo` was made for the types of this call and can run as configured. SUCCESS, INVALID_VALUE (stamped with
// other types, or never initialised), NOT_SUPPORTED (configuration).
cublasStatus_t check_algo(const Algo& algo, const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b,
                          const MatrixLayout& c, const MatrixLayout& d);

}  // namespace hostcuda

// SPDX-License-Identifier: MIT
// What the descriptors of one cublasLtMatmul call ask for: the judgement that the call itself, the heuristics and
// cublasLtMatmulAlgoCheck share.
#pragma once

#include "tools/hostcuda/cublaslt/descriptors.h"
#include "tools/hostcuda/cublaslt/product.h"

namespace hostcuda {

// Reads the five descriptors, none of them null, and fills *out but for the name, the addresses of matrices, bias and
// auxiliary matrix, and the values of scalars. Pure; dereferences nothing but the descriptors.
// SUCCESS;
// INVALID_VALUE: shapes, leading dimensions or batch counts that do not fit together, unknown transpose, order or
// pointer
//   mode, scale or amax pointers for types that have none, an auxiliary matrix of the wrong type or leading dimension;
// NOT_SUPPORTED: understood and not offered (types, orders, mixed batch modes, alignment and layout of FP8, FP4 and
// INT8,
//   modes of scales, epilogues, emulation).
// For a GPU to settle: which devices take vectors of scales (here Hopper and later); INT8 layouts other than TN and
// extents that are no multiple of 4 with an INT32 D (here taken, 4-byte alignment asked for); NOT_SUPPORTED or
// INVALID_VALUE for addresses that are not aligned (here the former); which epilogues FP64 and FP8 have.
cublasStatus_t plan_matmul(const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b, const MatrixLayout& c,
                           const MatrixLayout& d, Matmul* out);

// Whether planar complex matrices of these types may be multiplied: the documented table, with the device's refusals.
//   32F   C_32F   C_16F -> C_16F, C_32F;  C_16BF -> C_16BF, C_32F
// SUCCESS and *compute filled, or NOT_SUPPORTED. Any of the types may be another than a complex one.
cublasStatus_t check_planar_types(cublasComputeType_t compute_type, cudaDataType scale, cudaDataType a, cudaDataType b,
                                  cudaDataType c, cudaDataType d, gemm::Compute* compute);

// What addresses and leading dimensions must be multiples of, in bytes, beyond their type: FP8 and FP4 16, INT8 4, else
// 0.
int64_t least_alignment(const Matmul& matmul);

// Whether the device multiplies INT8 matrices in tiled orders: documented for Turing and Ampere, not for Hopper and
// later. For a GPU to settle: Ada (here it does).
bool has_tiled_orders();

// Whether A, B, C, D lie in tiled orders: then alpha and beta of type INT32 may be 0 and 1 only.
bool is_tiled_product(const Matmul& matmul);

// Whether `algo` was made for the types of this call and can run as configured. SUCCESS, INVALID_VALUE (stamped with
// other types, or never initialised), NOT_SUPPORTED (configuration).
cublasStatus_t check_algo(const Algo& algo, const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b,
                          const MatrixLayout& c, const MatrixLayout& d);

}  // namespace hostcuda

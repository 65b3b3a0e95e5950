// SPDX-License-Identifier: MIT
// Scales of blocks of FP8 and FP4 matrices: modes, the documented layouts of the scale tensors, and the quantization of
// results by blocks.
//
// `outer` counts the rows of op(A), the columns of op(B) or of D; `inner` runs along k, or along the rows of D.
//   mode           block      scale   at
//   kVector128     128        FP32    outer + inner block (count of outer)
//   kBlock128x128  128 x 128  FP32    inner block + outer / 128 (count of inner blocks, rounded up to 4)
//   kVector32      32         UE8M0   in tiles of 512 bytes
//   kVector16      16         UE4M3   in tiles of 512 bytes
// A tile is 128 outer by 4 inner blocks; tiles lie in rows of inner blocks. Within one: outer % 32 16 + outer / 32 4 +
// inner block.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/hostcuda/cublaslt/product.h"

namespace hostcuda {

// What scale tensors of blocks must be aligned to.
constexpr int64_t kScaleAlignment = 16;

// Elements along `inner` that share a scale; 0: the mode is not one of blocks.
int64_t block_of(ScaleMode mode);

// Bytes of a scale tensor, padding included.
int64_t scale_bytes(ScaleMode mode, int64_t outer, int64_t inner);

// The scale of every outer line in every inner block, as outer + inner block (count of outer).
std::vector<float> scales_of(ScaleMode mode, const void* tensor, int64_t outer, int64_t inner);

// Column `column` of a result of `rows` rows: every block of x is divided by the scale that goes into *tensor
// (kVector32 and kVector16), as documented under 1D Block Quantization.
//   scale   largest magnitude / largest number of the type, in FP32, then
//           UE8M0: the power of two not below it (subnormals: nearest); UE4M3: nearest
//   x       x (1 / scale), in FP32
// For a GPU to settle: a scale of 0, whose reciprocal is taken as 0; NaN, which does not count in the magnitude.
void quantize_column(ScaleMode mode, gemm::Type type, int64_t rows, int64_t column, float* x, void* tensor);

}  // namespace hostcuda

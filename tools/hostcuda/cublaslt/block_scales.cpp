// SPDX-License-Identifier: MIT
// Block scales: takes scale tensors as the device stores them, gives a factor for each line and block, and makes those
// of results.
#include "tools/hostcuda/cublaslt/block_scales.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tools/hostcuda/cublaslt/finish.h"
#include "tools/hostcuda/cublaslt/memory_order.h"
#include "tools/hostcuda/gemm/order.h"

namespace hostcuda {
namespace {

constexpr int64_t kTileOuter = 128;
constexpr int64_t kTileInner = 4;

int64_t blocks_of(ScaleMode mode, int64_t inner) {
  return rounded_up(inner, block_of(mode)) / block_of(mode);
}

// Place of a scale in its tensor, in scales.
int64_t place_of(ScaleMode mode, int64_t outer_count, int64_t blocks, int64_t outer, int64_t block) {
  switch (mode) {
    case ScaleMode::kVector128:
      return outer + block * outer_count;
    case ScaleMode::kBlock128x128:
      return block + outer / 128 * rounded_up(blocks, 4);
    default: {
      const int64_t tile = outer / kTileOuter * (rounded_up(blocks, kTileInner) / kTileInner) + block / kTileInner;
      return tile * kTileOuter * kTileInner + outer % 32 * 16 + outer % kTileOuter / 32 * 4 + block % kTileInner;
    }
  }
}

float value_of_ue8m0(uint8_t bits) {
  return bits == 0xFF ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, bits - 127);
}

uint8_t ue8m0_of(float scale) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  const uint32_t exponent = bits >> 23;
  const uint32_t fraction = bits & 0x7FFFFF;
  const bool up = exponent == 0 ? fraction > 0x400000 : exponent < 254 && fraction > 0;
  return static_cast<uint8_t>(exponent + (up ? 1 : 0));
}

}  // namespace

int64_t block_of(ScaleMode mode) {
  switch (mode) {
    case ScaleMode::kVector16:
      return 16;
    case ScaleMode::kVector32:
      return 32;
    case ScaleMode::kVector128:
    case ScaleMode::kBlock128x128:
      return 128;
    default:
      return 0;
  }
}

int64_t scale_bytes(ScaleMode mode, int64_t outer, int64_t inner) {
  const int64_t blocks = blocks_of(mode, inner);
  switch (mode) {
    case ScaleMode::kVector128:
      return outer * blocks * int64_t{sizeof(float)};
    case ScaleMode::kBlock128x128:
      return rounded_up(blocks, 4) * (rounded_up(outer, 128) / 128) * int64_t{sizeof(float)};
    default:
      return rounded_up(outer, kTileOuter) * rounded_up(blocks, kTileInner);
  }
}

std::vector<float> scales_of(ScaleMode mode, const void* tensor, int64_t outer, int64_t inner) {
  const int64_t blocks = blocks_of(mode, inner);
  std::vector<float> scales;
  scales.reserve(static_cast<size_t>(outer * blocks));
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t i = 0; i < outer; ++i) {
      const int64_t at = place_of(mode, outer, blocks, i, block);
      switch (mode) {
        case ScaleMode::kVector32:
          scales.push_back(value_of_ue8m0(static_cast<const uint8_t*>(tensor)[at]));
          break;
        case ScaleMode::kVector16:
          scales.push_back(gemm::e4m3_to_float(static_cast<const uint8_t*>(tensor)[at] & 0x7F));
          break;
        default:
          scales.push_back(static_cast<const float*>(tensor)[at]);
      }
    }
  }
  return scales;
}

void quantize_column(ScaleMode mode, gemm::Type type, int64_t rows, int64_t column, float* x, void* tensor) {
  const int64_t length = block_of(mode);
  const int64_t blocks = blocks_of(mode, rows);
  for (int64_t block = 0; block < blocks; ++block) {
    float* first = x + block * length;
    float* last = x + std::min(rows, (block + 1) * length);
    float largest = 0.0f;
    for (const float* value = first; value != last; ++value) largest = std::fmax(largest, std::fabs(*value));
    const float wanted = largest / largest_of(type);
    const uint8_t scale = mode == ScaleMode::kVector32 ? ue8m0_of(wanted) : e4m3_of(wanted);
    static_cast<uint8_t*>(tensor)[place_of(mode, 0, blocks, column, block)] = scale;
    const float factor = mode == ScaleMode::kVector32 ? value_of_ue8m0(scale) : gemm::e4m3_to_float(scale);
    const float reciprocal = factor == 0.0f ? 0.0f : 1.0f / factor;
    for (float* value = first; value != last; ++value) *value = *value * reciprocal;
  }
}

}  // namespace hostcuda

// SPDX-License-Identifier: MIT
// BF16 on the host: one 16-bit storage type and its two conversions.
#pragma once

#include <bit>
#include <cstdint>

namespace encoder {

struct Bf16 {
  uint16_t bits;
};

// Round to nearest even; a NaN stays a NaN (made quiet).
inline Bf16 to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>(bits >> 16 | 0x0040u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
}

inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

}  // namespace encoder

// SPDX-License-Identifier: MIT
// The sign draws: random signs, exactly balanced inside each class (one over where its width is odd), positions by a
// keyed permutation of the class, fresh with every seed. MATH.md "signs".
//
// Column j has class j mod c and position j / c. Its sign is minus where the permutation moves its position to the
// upper half. The permutation is an eight-round Feistel network on the next power of two (at least 64), walked along
// its cycle until it falls inside the class. (With four rounds two positions that share their low bits differed in sign
// up to 6% too often: their low halves collide once in eight.)
#pragma once

#include <cstdint>

#include "kernels/philox.h"

#ifndef SDCGUARD_BOTH  // simt.h, included before, gives the compiler's own spelling
#define SDCGUARD_BOTH inline
#define SDCGUARD_BOTH_IS_PLAIN
#endif

namespace sdcguard {

// Key of one draw: the same for all its classes.
struct SignDraw {
  Philox4 key;
};

SDCGUARD_BOTH SignDraw sign_draw(uint64_t seed, uint32_t draw) {
  return SignDraw{philox(Philox4{draw, 0, 0, kStreamSigns}, seed)};
}

SDCGUARD_BOTH uint32_t mix32(uint32_t v) {
  v ^= v >> 16;
  v *= 0x85EBCA6Bu;
  v ^= v >> 13;
  v *= 0xC2B2AE35u;
  return v ^ (v >> 16);
}

// Weight of a column in draw d of an exact check (INT8 products, modulo 2^32). Draw 0: odd, so that no single wrong
// entry can vanish, whatever its size. Draw 1: any, since two entries wrong by 2^31 vanish under any pair of odd
// weights.
SDCGUARD_BOTH uint32_t exact_weight(const SignDraw& draw, uint32_t d, uint32_t column) {
  const uint32_t weight = mix32(mix32(column * 0x9E3779B9u + draw.key.x) + draw.key.y);
  return d == 0 ? weight | 1u : weight;
}

// Columns of class b when n3 columns fall into c classes: positions 0 .. class_width - 1.
SDCGUARD_BOTH uint32_t class_width(int64_t n3, uint32_t c, uint32_t b) {
  return static_cast<uint32_t>((n3 - b + c - 1) / c);
}

// True: the column at `position` of class b (of `width` columns) counts minus.
SDCGUARD_BOTH bool sign_is_minus(const SignDraw& draw, uint32_t b, uint32_t position, uint32_t width) {
  const uint32_t class_key = b * 0x9E3779B9u;
  const uint32_t k0 = mix32(draw.key.x + class_key);
  const bool flip = (k0 & 0x80000000u) != 0;  // which side an odd class has one more of
  if (width < 2) return flip;
  const uint32_t k1 = mix32(draw.key.y + class_key);
  const uint32_t k2 = mix32(draw.key.z + class_key);
  const uint32_t k3 = mix32(draw.key.w + class_key);
  uint32_t bits = 6;
  while (bits < 32 && (width - 1) >> bits != 0) ++bits;
  const uint32_t low_bits = bits / 2;
  const uint32_t low_mask = (1u << low_bits) - 1;
  const uint32_t high_mask = (1u << (bits - low_bits)) - 1;
  uint32_t value = position;
  do {
    uint32_t low = value & low_mask;
    uint32_t high = value >> low_bits;
    for (uint32_t turn = 0; turn < 2; ++turn) {
      const uint32_t again = turn * 0x7F4A7C15u;
      high = (high ^ mix32(low + k0 + again)) & high_mask;
      low = (low ^ mix32(high + k1 + again)) & low_mask;
      high = (high ^ mix32(low + k2 + again)) & high_mask;
      low = (low ^ mix32(high + k3 + again)) & low_mask;
    }
    value = high << low_bits | low;
  } while (value >= width);
  return (value < width / 2) == flip;
}

}  // namespace sdcguard

#ifdef SDCGUARD_BOTH_IS_PLAIN
#undef SDCGUARD_BOTH
#undef SDCGUARD_BOTH_IS_PLAIN
#endif

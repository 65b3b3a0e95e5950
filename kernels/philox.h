// SPDX-License-Identifier: MIT
// Philox4x32-10, a counter-based generator: counter and key in, four words out, no state. The same numbers on host and
// device in any order of use. Known answers: tests/stage/philox_test.cpp.
#pragma once

#include <cstdint>

#ifndef SDCGUARD_BOTH  // simt.h, included before, gives the compiler's own spelling
#define SDCGUARD_BOTH inline
#define SDCGUARD_BOTH_IS_PLAIN
#endif

namespace sdcguard {

struct Philox4 {
  uint32_t x, y, z, w;
};

SDCGUARD_BOTH Philox4 philox(Philox4 counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter.x;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter.z;
    counter = Philox4{static_cast<uint32_t>(p1 >> 32) ^ counter.y ^ k0, static_cast<uint32_t>(p1),
                      static_cast<uint32_t>(p0 >> 32) ^ counter.w ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// Fourth counter word: what the numbers are for.
inline constexpr uint32_t kStreamSigns = 1;
inline constexpr uint32_t kStreamAudit = 2;

}  // namespace sdcguard

#ifdef SDCGUARD_BOTH_IS_PLAIN
#undef SDCGUARD_BOTH
#undef SDCGUARD_BOTH_IS_PLAIN
#endif

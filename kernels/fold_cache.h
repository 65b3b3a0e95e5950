// SPDX-License-Identifier: MIT
// Cached folds: for one B that comes again (a weight) the fold of earlier calls is used in place of a new one. All of
// it on the device: the host only gives each key its memory. MATH.md "fold cache".
//
//   counting --- three folds in a row with one fingerprint ---> writing ---> published --- stale ---> counting, the
//   next
//      ^            (the last block of the third writes)                        |                     generation
//      +------------------------------------------------------------------------+      (after the last one: closed)
//
// What is published is never written again, so that calls on other streams may go on reading it while it goes stale;
// each generation has memory of its own. A call decides once, in the first block of its fold that asks, whether it uses
// what is published or folds for itself, and all its kernels follow: fold_shift() is the way from its own scratch to
// the generation it uses, 0 for its own fold. No call waits for another.
#pragma once

#include <cstddef>

#include "kernels/params.h"
#include "kernels/simt.h"

namespace sdcguard {

namespace fold_cache {

inline constexpr uint32_t kAgreements = 3;  // equal folds before one is published (DESIGN.md section 4)

enum Phase : uint32_t { kCounting = 0, kWriting = 1, kPublished = 2, kClosed = 3 };

// Words of the scratch's zeroed start (ProbeParams::fold_ticket), beside the ticket in uint32_t 0.
inline constexpr int64_t kDecision = 1;     // uint32_t: 0 open, 1 own fold, 2 + g generation g; zero between calls
inline constexpr int64_t kFingerprint = 1;  // uint64_t: of the own fold; zero between calls
inline constexpr int64_t kShift = 2;        // uint64_t: written by every call's fold

SDCGUARD_DEVICE uint64_t generation_address(const ProbeParams& p, uint32_t generation) {
  return p.fold_images + generation * p.fold_bytes;
}

SDCGUARD_DEVICE uint64_t state_of(const ProbeParams& p) {
  return atomic_add(p.fold_cache + offsetof(FoldCache, state), 0, uint64_t{0});
}

SDCGUARD_BOTH uint64_t make_state(uint32_t generation, uint32_t phase) {
  return uint64_t{generation} << 8 | phase;
}
SDCGUARD_BOTH uint32_t phase_of(uint64_t state) {
  return static_cast<uint32_t>(state & 255u);
}
SDCGUARD_BOTH uint32_t generation_of(uint64_t state) {
  return static_cast<uint32_t>(state >> 8);
}

// By one thread of each block of the fold: 1, or 2 + the generation to use. The first to ask decides for the call.
SDCGUARD_DEVICE uint32_t decide(const ProbeParams& p) {
  if (p.fold_cache == 0) return 1;
  const uint64_t state = state_of(p);
  const uint32_t mine = phase_of(state) == kPublished ? 2 + generation_of(state) : 1;
  const uint32_t first = atomic_cas(p.fold_ticket, kDecision, 0u, mine);
  fence_device();
  return first == 0 ? mine : first;
}

SDCGUARD_DEVICE uint64_t word_of(float v) {
  return bits_of(v);
}
SDCGUARD_DEVICE uint64_t word_of(double v) {
  return bits_of(v);
}
SDCGUARD_DEVICE uint64_t word_of(uint32_t v) {
  return v;
}

// One value of the fold at its place, so that the sum over all of them is a fingerprint in whatever order they come.
SDCGUARD_DEVICE uint64_t fingerprint_of(uint64_t bits, uint64_t at) {
  uint64_t x = bits ^ (at * 0x9e3779b97f4a7c15ull);
  x ^= x >> 32;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 29;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ x >> 32;
}

// By one thread of the last block, after a fold of the call's own: counts it among the equal ones. 1 + the generation
// that this block must write, 0: none.
SDCGUARD_DEVICE uint32_t count_fold(const ProbeParams& p, uint64_t fingerprint) {
  const uint64_t state = state_of(p);
  const uint64_t candidate = p.fold_cache + offsetof(FoldCache, candidate);
  uint64_t seen = atomic_add(candidate, 0, uint64_t{0});
  for (;;) {
    const uint64_t count = seen >> 8 == fingerprint >> 8 ? (seen & 255u) : 0u;
    const uint64_t next = (fingerprint & ~uint64_t{255}) | (count < kAgreements ? count + 1 : kAgreements);
    const uint64_t found = atomic_cas(candidate, 0, seen, next);
    if (found == seen) {
      if ((next & 255u) < kAgreements || phase_of(state) != kCounting) return 0;
      const uint32_t generation = generation_of(state);
      const bool mine =
          atomic_cas(p.fold_cache + offsetof(FoldCache, state), 0, state, make_state(generation, kWriting)) == state;
      return mine ? generation + 1 : 0;
    }
    seen = found;
  }
}

// By one thread: the generation at `shift` was used and does not fit B any more. Calls from now on fold anew; a key
// that used up its generations is closed and folds at every call.
SDCGUARD_DEVICE void retire(const ProbeParams& p, uint64_t shift) {
  const uint64_t state = state_of(p);
  const uint32_t generation = generation_of(state);
  if (phase_of(state) != kPublished || generation_address(p, generation) != p.tile_energy + shift) return;
  const bool last = generation + 1 == kFoldGenerations;
  atomic_cas(p.fold_cache + offsetof(FoldCache, state), 0, state,
             last ? make_state(generation, kClosed) : make_state(generation + 1, kCounting));
  atomic_add(p.fold_cache + offsetof(FoldCache, stale), 0, uint64_t{1});
}

}  // namespace fold_cache

// From an array of the call's own fold (ProbeParams::tile_energy to marked_columns) to the one that the call uses.
SDCGUARD_DEVICE uint64_t fold_shift(const ProbeParams& p) {
  return p.fold_cache == 0 ? 0 : load<uint64_t>(p.fold_ticket, fold_cache::kShift);
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Kernels of simt_test and barrier_test: plain uses of kernels/simt.h, right and broken on purpose. Included by the
// tests as C++; nvcc compiles it too.
#include "kernels/simt.h"

namespace sdcguard {

struct SimtTestParams {
  uint64_t in;
  uint64_t out;
  uint64_t counter;  // uint32_t [4]
  int64_t n;
  uint32_t what;
  uint32_t reserved;
};

// One warp's collectives. in: float [32]; out: float [32][kCollectives].
inline constexpr int64_t kCollectives = 16;
SDCGUARD_KERNEL(simt_test_collectives, SimtTestParams, 1024) {
  const uint32_t t = thread_index();
  const float v = load<float>(p.in, t);
  float several[5];
  double doubles[3];
  for (uint32_t i = 0; i < 5; ++i) several[i] = v * static_cast<float>(i + 1);
  for (uint32_t i = 0; i < 3; ++i) doubles[i] = static_cast<double>(v) / static_cast<double>(i + 3);
  warp_sum_n(several);
  warp_sum_n<3>(doubles);
  float row[kCollectives];
  row[0] = warp_sum(v);
  row[1] = several[0];
  row[2] = several[4];
  row[3] = static_cast<float>(doubles[2]);
  row[4] = static_cast<float>(warp_sum(static_cast<double>(v)));
  row[5] = static_cast<float>(warp_sum(lane() * 3u));
  row[6] = warp_max(v);
  row[7] = static_cast<float>(warp_or(1u << (lane() % 8u)));
  row[8] = shfl(v, 5);
  row[9] = shfl(v, (lane() * 7u + 3u) % 32u);
  row[10] = shfl_up(v, 3);
  row[11] = shfl_down(v, 3);
  row[12] = shfl_xor(v, 9);
  row[13] = float_of(ballot(v > 0.0f));
  row[14] = static_cast<float>(popcount(ballot(lane() % 3u == 0u)));
  row[15] = static_cast<float>(warp());
  for (int64_t i = 0; i < kCollectives; ++i) store<float>(p.out, t * kCollectives + i, row[i]);
}

// Rounds of neighbour exchange through shared memory: many barriers, each needed. out: uint32_t [n].
SDCGUARD_KERNEL(simt_test_rounds, SimtTestParams, 1024) {
  Shared<uint32_t> cells = dynamic_shared<uint32_t>();
  const uint32_t t = thread_index();
  cells[t] = t;
  for (int64_t round = 0; round < p.n; ++round) {
    sync_threads();
    const uint32_t next = cells[(t + 1) % block_threads()];
    sync_threads();
    cells[t] = next * 3u + 1u;
  }
  store<uint32_t>(p.out, block_index() * static_cast<int64_t>(block_threads()) + t, cells[t]);
}

// The last block to finish adds up what all blocks wrote. counter[0]: ticket; out: uint32_t [grid] then the sum.
// what 0: right; 1: no fence before the ticket; 2: none after it; 3: no barrier between the writes and the ticket.
SDCGUARD_KERNEL(simt_test_last_block, SimtTestParams, 256) {
  SDCGUARD_SHARED(uint32_t, 1, is_last);
  SDCGUARD_SHARED(uint32_t, 1, total);
  const int64_t mine = static_cast<int64_t>(block_index()) * block_threads() + thread_index();
  store<uint32_t>(p.out, mine, static_cast<uint32_t>(mine) * 5u + 1u);
  if (p.what != 3) sync_threads();
  if (thread_index() == 0) {
    if (p.what != 1) fence_device();
    is_last[0] = atomic_add<uint32_t>(p.counter, 0, 1) == grid_blocks() - 1 ? 1u : 0u;
    if (p.what != 2) fence_device();
    total[0] = 0;
  }
  sync_threads();
  if (is_last[0] == 0) return;
  uint32_t sum = 0;
  for (uint32_t block = 0; block < grid_blocks(); ++block) {
    sum += load<uint32_t>(p.out, static_cast<int64_t>(block) * block_threads() + thread_index());
  }
  atomic_add(total[0], sum);
  sync_threads();
  if (thread_index() == 0) store<uint32_t>(p.out, static_cast<int64_t>(grid_blocks()) * block_threads(), total[0]);
}

// Each thread reads what its left neighbour wrote. what 0: right; 1: the barrier is missing, which ascending order
// hides. out: float [threads].
SDCGUARD_KERNEL(simt_test_left_neighbour, SimtTestParams, 1024) {
  SDCGUARD_SHARED(float, 1024, cells);
  const uint32_t t = thread_index();
  cells[t] = static_cast<float>(t);
  if (p.what == 0) sync_threads();
  store<float>(p.out, t, t == 0 ? -1.0f : cells[t - 1]);
}

// A sum in three steps, of which each barrier can be left out: bit i of `what` removes barrier i. Barrier 3 is
// redundant. Lanes of a warp meet by sync_warp (bit 4 removes it). out: float [threads].
SDCGUARD_KERNEL(simt_test_barriers, SimtTestParams, 256) {
  Shared<float> a = dynamic_shared<float>();
  Shared<float> b = dynamic_shared<float>(1024);
  const uint32_t t = thread_index();
  const uint32_t n = block_threads();
  a[t] = load<float>(p.in, t);
  if ((p.what & 1u) == 0) sync_threads();
  const float opposite = a[n - 1 - t];
  b[t] = opposite;
  if ((p.what & 2u) == 0) sync_threads();
  a[t] = b[(t + 32) % n];
  if ((p.what & 4u) == 0) sync_threads();
  const float sum = a[(t + 64) % n] + opposite;
  if ((p.what & 8u) == 0) sync_threads();
  b[t] = sum;
  if ((p.what & 16u) == 0) sync_warp();
  store<float>(p.out, t, b[t ^ 1u]);
}

// Breaks one rule of the device, chosen by `what`.
enum BrokenRule : uint32_t {
  kNothingBroken,
  kMisalignedFloat4,
  kBeyondEnd,
  kBeforeBegin,
  kNullAddress,
  kStaticOverrun,
  kDynamicOverrun,
  kNegativeShared,
  kBarrierLines,
  kBarrierReturned,
  kCollectiveReturned,
  kCollectiveKinds,
  kCollectiveLines,
  kBarrierInCollective,
  kMisalignedStore64,
  kMisalignedShared,
  kAtomicBeyondEnd,
  kTooMuchStatic,
  kCollectiveAny,
};

SDCGUARD_KERNEL(simt_test_rules, SimtTestParams, 256) {
  SDCGUARD_SHARED(uint32_t, 8, table);
  const uint32_t t = thread_index();
  float v = 1.0f;
  switch (p.what) {
    case kMisalignedFloat4:
      v = load_float4(p.in + 4, t).x;
      break;
    case kBeyondEnd:
      v = load<float>(p.in, p.n + (t == 33 ? 0 : -1));
      break;
    case kBeforeBegin:
      store<float>(p.in, -1, v);
      break;
    case kNullAddress:
      v = load<float>(0, 0);
      break;
    case kStaticOverrun:
      if (t == 40) table[8] = 1;
      break;
    case kDynamicOverrun:
      dynamic_shared<float>()[t] = v;
      break;
    case kNegativeShared:
      table[static_cast<int>(t) - 1] = 1;
      break;
    case kBarrierLines:
      if (t < 64) {
        sync_threads();
      } else {
        sync_threads();
      }
      break;
    case kBarrierReturned:
      if (t == 70) return;
      sync_threads();
      break;
    case kCollectiveReturned:
      if (t == 40) return;
      v = warp_sum(v);
      break;
    case kCollectiveKinds:
      if (t == 3) {
        v = warp_max(v);
      } else {
        v = warp_sum(v);
      }
      break;
    case kCollectiveLines:
      if (t % 2 == 0) {
        v = shfl(v, 0);
      } else {
        v = shfl(v, 1);
      }
      break;
    case kBarrierInCollective:
      if (t == 5) sync_threads();
      sync_warp();
      break;
    case kMisalignedStore64:
      store64_system(p.in + 4, 0, 1);
      break;
    case kMisalignedShared:
      dynamic_shared<Float4>(8)[0].x = v;
      break;
    case kAtomicBeyondEnd:
      atomic_add<uint32_t>(p.in, p.n, 1);
      break;
    case kTooMuchStatic: {
      SDCGUARD_SHARED(float, 12288, whole);
      whole[t] = v;
      v = whole[t];
      break;
    }
    case kCollectiveAny:
      v = warp_sum(v);
      break;
    default:
      break;
  }
  if (t < 8) table[t] = t;
  store<float>(p.out, static_cast<int64_t>(block_index()) * block_threads() + t,
               t < 8 ? v + static_cast<float>(table[t]) * 0.0f : v);
}

// Unwritten shared memory as floats: out float [2 * threads], static then dynamic.
SDCGUARD_KERNEL(simt_test_stale_shared, SimtTestParams, 64) {
  SDCGUARD_SHARED(float, 64, cells);
  Shared<float> dynamic = dynamic_shared<float>();
  const uint32_t t = thread_index();
  const int64_t at = (block_index() * static_cast<int64_t>(block_threads()) + t) * 2;
  store<float>(p.out, at, cells[t]);
  store<float>(p.out, at + 1, dynamic[t]);
  cells[t] = 1.0f;
  dynamic[t] = 2.0f;
}

// Copies n 16-byte vectors, grid-stride: the traffic counters' case.
SDCGUARD_KERNEL(simt_test_copy, SimtTestParams, 256) {
  const int64_t step = static_cast<int64_t>(grid_blocks()) * block_threads();
  for (int64_t i = static_cast<int64_t>(block_index()) * block_threads() + thread_index(); i < p.n; i += step) {
    store_16(p.out, i, load_16(p.in, i));
  }
}

// Atomics from every thread: counter[0] add, [1] or, [2] max, [3] compare-and-swap loop; shared likewise into out[0].
SDCGUARD_KERNEL(simt_test_atomics, SimtTestParams, 256) {
  SDCGUARD_SHARED(uint32_t, 1, shared_sum);
  if (thread_index() == 0) shared_sum[0] = 0;
  sync_threads();
  const uint32_t id = block_index() * block_threads() + thread_index();
  atomic_add<uint32_t>(p.counter, 0, id);
  atomic_or<uint32_t>(p.counter, 1, 1u << (id % 32u));
  atomic_max<uint32_t>(p.counter, 2, id);
  uint32_t seen = atomic_add<uint32_t>(p.counter, 3, 0);
  for (;;) {
    const uint32_t old = atomic_cas<uint32_t>(p.counter, 3, seen, seen + 2u);
    if (old == seen) break;
    seen = old;
  }
  atomic_add(shared_sum[0], 1u);
  sync_threads();
  if (thread_index() == 0) atomic_add<uint64_t>(p.out, 0, uint64_t{shared_sum[0]});
}

// Timing: n times what. 0: barrier; 1: shuffle; 2: warp_sum_n of 16; 3: nothing; 4: loads of `in`, 4,096 floats.
SDCGUARD_KERNEL(simt_test_timing, SimtTestParams, 1024) {
  float v = static_cast<float>(thread_index());
  float sums[16];
  for (uint32_t i = 0; i < 16; ++i) sums[i] = v;
  for (int64_t i = 0; i < p.n; ++i) {
    if (p.what == 0) sync_threads();
    if (p.what == 1) v += shfl_xor(v, 1);
    if (p.what == 2) warp_sum_n(sums);
    if (p.what == 4) v += load<float>(p.in, (i * 33 + thread_index()) % 4096);
  }
  if (v + sums[3] == -1.0f) store<float>(p.out, 0, v);
}

}  // namespace sdcguard

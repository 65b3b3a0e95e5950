// SPDX-License-Identifier: MIT
// The kernel executor: takes a kernel entry and a launch shape, runs blocks one after another and a block's threads as
// fibers on the calling thread, and stops at the first broken rule of the device.
//
//   thread:  unstarted --picked--> running --barrier, collective--> waiting --last one arrives--> ready --picked--> ...
//                                     \--returns--> done
//
// A fiber that has finished a thread takes the next unstarted one without a switch, so a thread that never waits costs
// a function call. `ready` holds unstarted and woken threads alike.
//
// Under TSan every thread of a block has a fiber, hence a TSan state, of its own, and the only order that TSan learns
// of is that of the device: launch start -> threads -> launch end; barriers; warp barriers; atomics between fences.
// Everything in this file is outside its view. Shared memory is at a new place for every block, since blocks are not
// ordered among each other. A barrier then costs the square of the threads, so HOSTCUDA_WATCHED_BLOCKS may let the
// threads of all blocks but a launch's first share one TSan state a block.
#include "tools/hostcuda/simt/executor.h"

#include <cuda.h>
#include <xmmintrin.h>

#include <cstdio>
#include <cstdlib>

#include "tools/hostcuda/core.h"
#include "tools/hostcuda/simt/fiber.h"
#include "tools/hostcuda/simt/traffic.h"

namespace hostcuda {
namespace {

using boost::context::detail::transfer_t;

constexpr uint32_t kNone = ~0u;
constexpr uint32_t kMaxWarps = kMaxBlockThreads / kWarpLanes;
constexpr uint32_t kMaxRanges = 64;
// Under TSan a fiber remembers the blocks that it ran before, and the first barrier spreads that to its whole block:
// two sets by turns, so that every block is unordered with half of the others. Blocks whose threads share one TSan
// state have two sets of their own, as the same stack is always used by the same state.
constexpr uint32_t kTurns = 2;
constexpr uint32_t kFiberSets = kWatched ? 2 * kTurns : 1;
constexpr uint32_t kMaxSites = 64;
constexpr uint32_t kMaxPending = 4;  // atomics of one thread between two of its fences, as far as ordered
constexpr uint32_t kMaxWorkers = 256;
constexpr unsigned kDeviceFloatMode = 0x1F80;  // MXCSR: round to nearest, subnormals kept, no traps

constexpr uint32_t kFencedBlock = 1;
constexpr uint32_t kFencedDevice = 2;

struct Place {
  const char* operation;  // null: not waiting
  const char* file;
  uint32_t line;
};

// Threads that come together: of the block at a barrier, of a warp at a collective.
struct Gathering {
  Place place;  // of the first that arrived
  uint32_t first_thread;
  uint32_t arrived;
  uint32_t generation;
  unsigned char* tags;  // TSan: two words of the block, see tag_of
};

struct SiteStorage {
  const SharedSite* site;
  uint32_t offset;
};

// One launch at a time. Zeroed pages when new.
struct Worker : SimtContext {
  const HostKernelEntry* entry;
  bool busy;
  bool abandoned;
  CUresult fault_code;
  char fault_text[1024];

  void* main_context;
  Fiber* running;   // null: the caller of hostcuda_simt_run
  Fiber* previous;  // who switched to the running one
  Fiber* idle;
  uint32_t fibers_started;  // fibers [0, n) have an execution in this launch
  Fiber fibers[kFiberSets * kMaxBlockThreads];

  uint32_t live;
  uint32_t ready[kMaxWarps];  // lanes
  uint32_t ranks_ready;       // warps with a ready lane, by rank
  uint8_t warp_of_rank[kMaxWarps];
  uint8_t rank_of_warp[kMaxWarps];
  Fiber* fiber_of[kMaxBlockThreads];  // null: unstarted
  bool done[kMaxBlockThreads];
  Place waits[kMaxBlockThreads];
  Gathering barrier;
  Gathering warps[kMaxWarps];
  void* lane_values[kMaxWarps][kWarpLanes];

  uint64_t seed;
  uint64_t random;
  uint32_t fiber_set;  // TSan: which fibers run this block
  bool as_one;         // TSan: the threads of this block share one state, which orders them
  bool begun;          // of a block as one: its state has come after the launch's start

  HostRange no_range;
  HostRange ranges[kMaxRanges];
  uint32_t range_count;
  uint64_t epoch;

  unsigned char* tag_space;  // TSan: kTagSlots times the tags of one block; addresses only, never written
  uint32_t tag_slot;
  unsigned char* arena;        // shared memory of blocks
  uint32_t arena_used;         // start of the block's region
  unsigned char* static_base;  // static shared memory of the block
  uint32_t static_used;
  SiteStorage sites[kMaxSites];
  uint32_t site_count;

  const void* pending[kMaxBlockThreads][kMaxPending];
  uint32_t pending_count[kMaxBlockThreads];
  char start_tag;
  char end_tag;
  void* main_tsan;
  const void* main_stack;
  size_t main_stack_bytes;
  void* main_fake_stack;

  alignas(64) unsigned char params[kMaxParameterBytes];
};

constexpr uint32_t kTagBytes = 16;  // two words of a gathering
constexpr uint32_t kTagSlotBytes = (1 + kMaxWarps) * kTagBytes;
constexpr uint32_t kTagSlots = 2048;
constexpr uint32_t kRegionBytes = kSharedOptInBytes + kSharedBytes;
#ifdef __SANITIZE_THREAD__
constexpr uint32_t kArenaBytes = 64 * 1024 * 1024;
#else
constexpr uint32_t kArenaBytes = kRegionBytes;
#endif

UnwatchedLock pool_lock;
Worker* pool[kMaxWorkers];
uint32_t pool_size = 0;

Worker* worker_of(SimtContext* context) {
  return static_cast<Worker*>(context);
}

HOSTCUDA_UNWATCHED bool same_text(const char* a, const char* b) {
  if (a == b) return true;
  while (*a != 0 && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

HOSTCUDA_UNWATCHED_HOT bool same_place(const Place& a, const Place& b) {
  if (a.line != b.line) return false;
  if (a.operation == b.operation && a.file == b.file) return true;
  return same_text(a.operation, b.operation) && same_text(a.file, b.file);
}

// --- Switching ---

// First thing after a switch, on the new side: `from` is where the old side is suspended.
HOSTCUDA_UNWATCHED void switched(Worker* worker, void* from, [[maybe_unused]] void* own_fake_stack) {
  if (worker->previous != nullptr) {
    worker->previous->context = from;
  } else {
    worker->main_context = from;
  }
#ifdef __SANITIZE_ADDRESS__
  const void* stack = nullptr;
  size_t stack_bytes = 0;
  __sanitizer_finish_switch_fiber(own_fake_stack, &stack, &stack_bytes);
  if (worker->previous == nullptr) {
    worker->main_stack = stack;
    worker->main_stack_bytes = stack_bytes;
  }
#endif
}

// Suspends the caller and goes on with `to` (null: the launch's caller). Returns when something switches back.
HOSTCUDA_UNWATCHED void switch_to(Worker* worker, Fiber* to) {
  Fiber* const from = worker->running;
  worker->previous = from;
  worker->running = to;
  if (to != nullptr) worker->thread = to->thread;
#ifdef __SANITIZE_THREAD__
  if (from != nullptr) from->fenced = worker->fenced;
  if (to != nullptr) worker->fenced = to->fenced;
  void* const state = to != nullptr ? to->tsan_fiber : worker->main_tsan;
  if (from == nullptr || state != from->tsan_fiber) __tsan_switch_to_fiber(state, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(from != nullptr ? &from->asan_fake_stack : &worker->main_fake_stack,
                                 to != nullptr ? to->stack : worker->main_stack,
                                 to != nullptr ? kStackBytes : worker->main_stack_bytes);
#endif
  const transfer_t transfer =
      boost::context::detail::jump_fcontext(to != nullptr ? to->context : worker->main_context, worker);
  switched(worker, transfer.fctx, from != nullptr ? from->asan_fake_stack : worker->main_fake_stack);
}

// Ends the launch from any fiber: the launch's caller reports, since a fiber's stack is small.
[[noreturn]] HOSTCUDA_UNWATCHED void give_up(Worker* worker) {
  worker->abandoned = true;
  switch_to(worker, nullptr);
  __builtin_unreachable();
}

// "7", or "(1,2,0)" where the shape has more than one dimension.
HOSTCUDA_UNWATCHED void describe_index(const Index3& shape, uint32_t number, char* text, size_t capacity) {
  const Index3 at = index_in(shape, number);
  if (shape.y == 1 && shape.z == 1) {
    std::snprintf(text, capacity, "%u", at.x);
  } else {
    std::snprintf(text, capacity, "(%u,%u,%u)", at.x, at.y, at.z);
  }
}

[[noreturn]] HOSTCUDA_UNWATCHED void broken(Worker* worker, CUresult code, const char* file, uint32_t line,
                                            const char* rule) {
  const uint32_t thread = worker->thread;
  char place[256] = "";
  char block_text[48];
  char thread_text[48];
  if (file != nullptr && line != 0) std::snprintf(place, sizeof place, ", %s:%u", file, line);
  describe_index(worker->grid_shape, worker->block, block_text, sizeof block_text);
  describe_index(worker->block_shape, thread, thread_text, sizeof thread_text);
  std::snprintf(worker->fault_text, sizeof worker->fault_text,
                "kernel %s, block %s, thread %s (warp %u, lane %u)%s: %s", worker->entry->name, block_text, thread_text,
                thread / kWarpLanes, thread % kWarpLanes, place, rule);
  worker->fault_code = code;
  order_release(&worker->end_tag);  // snprintf wrote in TSan's view
  give_up(worker);
}

// --- Order ---

HOSTCUDA_UNWATCHED_HOT uint32_t draw(Worker* worker) {
  uint64_t x = worker->random;  // xorshift64*, never 0
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  worker->random = x;
  return static_cast<uint32_t>((x * 0x2545F4914F6CDD1Dull) >> 32);
}

HOSTCUDA_UNWATCHED_HOT uint32_t any_bit(Worker* worker, uint32_t mask) {
  const uint32_t turn = draw(worker) & 31u;
  const uint32_t turned = (mask >> turn) | (mask << ((32u - turn) & 31u));
  return (static_cast<uint32_t>(__builtin_ctz(turned)) + turn) & 31u;
}

// Takes the thread that runs next out of the ready ones; kNone where there is none.
HOSTCUDA_UNWATCHED_HOT uint32_t pick(Worker* worker) {
  if (worker->ranks_ready == 0) return kNone;
  const bool seeded = worker->seed != 0;
  const bool uniform = (worker->seed & 1u) != 0;
  const uint32_t rank = seeded && uniform ? any_bit(worker, worker->ranks_ready)
                                          : static_cast<uint32_t>(__builtin_ctz(worker->ranks_ready));
  const uint32_t warp = worker->warp_of_rank[rank];
  const uint32_t lane =
      seeded ? any_bit(worker, worker->ready[warp]) : static_cast<uint32_t>(__builtin_ctz(worker->ready[warp]));
  worker->ready[warp] &= ~(1u << lane);
  if (worker->ready[warp] == 0) worker->ranks_ready &= ~(1u << rank);
  return warp * kWarpLanes + lane;
}

HOSTCUDA_UNWATCHED_HOT uint32_t lanes_of(const Worker* worker, uint32_t warp) {
  const uint32_t rest = worker->block_threads - warp * kWarpLanes;
  return rest >= kWarpLanes ? ~0u : (1u << rest) - 1u;
}

HOSTCUDA_UNWATCHED_HOT void wake_warp(Worker* worker, uint32_t warp, uint32_t lanes) {
  worker->ready[warp] |= lanes;
  if (worker->ready[warp] != 0) worker->ranks_ready |= 1u << worker->rank_of_warp[warp];
}

HOSTCUDA_UNWATCHED uint32_t warp_count(const Worker* worker) {
  return (worker->block_threads + kWarpLanes - 1) / kWarpLanes;
}

void fiber_main(transfer_t transfer);

// The fiber that is to run unstarted thread `thread`; null: no memory for its stack.
HOSTCUDA_UNWATCHED Fiber* claim_fiber(Worker* worker, uint32_t thread) {
  Fiber* fiber = nullptr;
  if (kWatched) {
    fiber = &worker->fibers[worker->fiber_set * kMaxBlockThreads + thread];
  } else if (worker->idle != nullptr) {
    fiber = worker->idle;
    worker->idle = fiber->next_idle;
  } else {
    fiber = &worker->fibers[worker->fibers_started++];
  }
  if (fiber->stack == nullptr && !fiber_create(fiber, static_cast<uint32_t>(fiber - worker->fibers), nullptr))
    return nullptr;
  if (fiber->context == nullptr) fiber_start(fiber, &fiber_main);
  fiber->thread = thread;
  fiber->fenced = 0;
  worker->fiber_of[thread] = fiber;
  if (kWatched) worker->pending_count[thread] = 0;
  return fiber;
}

constexpr const char* kNoStack = "no memory for the stack of a fiber";

// The same on a fiber, where the launch can be given up.
HOSTCUDA_UNWATCHED Fiber* fiber_for(Worker* worker, uint32_t thread) {
  Fiber* const fiber = claim_fiber(worker, thread);
  if (fiber == nullptr) broken(worker, CUDA_ERROR_OUT_OF_MEMORY, nullptr, 0, kNoStack);
  return fiber;
}

// Nothing can run and threads wait: says who is missing where.
[[noreturn]] HOSTCUDA_UNWATCHED void stuck(Worker* worker) {
  // A warp that waits for a lane explains more than the barrier that other threads may rightly wait at.
  uint32_t subject = kNone;
  for (uint32_t thread = 0; thread < worker->block_threads; ++thread) {
    if (worker->waits[thread].operation == nullptr) continue;
    if (worker->warps[thread / kWarpLanes].arrived != 0 &&
        same_place(worker->warps[thread / kWarpLanes].place, worker->waits[thread])) {
      subject = thread;
      break;
    }
    if (subject == kNone) subject = thread;
  }
  const Place place = worker->waits[subject];
  const uint32_t warp = subject / kWarpLanes;
  const bool of_warp = worker->warps[warp].arrived != 0 && same_place(worker->warps[warp].place, place);
  const uint32_t begin = of_warp ? warp * kWarpLanes : 0;
  const uint32_t end = of_warp ? begin + kWarpLanes : worker->block_threads;
  uint32_t there = 0;
  uint32_t absent = kNone;
  for (uint32_t thread = begin; thread < end; ++thread) {
    if (worker->waits[thread].operation != nullptr && same_place(worker->waits[thread], place)) {
      ++there;
    } else if (absent == kNone) {
      absent = thread;
    }
  }
  char rule[512];
  if (absent != kNone && worker->waits[absent].operation != nullptr) {
    std::snprintf(rule, sizeof rule, "divergent %s(): %u of %u %s are here, thread %u waits in %s() at %s:%u",
                  place.operation, there, end - begin, of_warp ? "lanes" : "threads", absent,
                  worker->waits[absent].operation, worker->waits[absent].file, worker->waits[absent].line);
  } else {
    std::snprintf(rule, sizeof rule, "divergent %s(): %u of %u %s are here, thread %u has returned", place.operation,
                  there, end - begin, of_warp ? "lanes" : "threads", absent);
  }
  worker->thread = subject;
  broken(worker, CUDA_ERROR_LAUNCH_FAILED, place.file, place.line, rule);
}

// The caller's thread waits: goes on with another, returns when it is woken and picked.
HOSTCUDA_UNWATCHED_HOT void wait_for_turn(Worker* worker) {
  const uint32_t next = pick(worker);
  if (next == kNone) stuck(worker);
  Fiber* fiber = worker->fiber_of[next];
  if (fiber == worker->running) return;
  if (fiber == nullptr) fiber = fiber_for(worker, next);
  switch_to(worker, fiber);
}

HOSTCUDA_UNWATCHED void run_thread(Worker* worker) {
  if (!worker->as_one || !worker->begun) order_acquire(&worker->start_tag);
  worker->begun = true;
  worker->entry->function(worker, worker->params);
  if (!worker->as_one || worker->live == 1) order_release(&worker->end_tag);
}

// A fiber's whole life: runs threads until the launch is over, then stays suspended for good.
HOSTCUDA_UNWATCHED void fiber_main(transfer_t transfer) {
  auto* const worker = static_cast<Worker*>(transfer.data);
  Fiber* const self = worker->running;
  switched(worker, transfer.fctx, nullptr);
  for (;;) {
    run_thread(worker);
    worker->done[self->thread] = true;
    --worker->live;
    Fiber* next_fiber = nullptr;
    if (worker->live != 0) {
      const uint32_t next = pick(worker);
      if (next == kNone) stuck(worker);
      next_fiber = worker->fiber_of[next];
      if (next_fiber == nullptr) {
        if (!kWatched) {
          worker->fiber_of[next] = self;
          self->thread = next;
          worker->thread = next;
          continue;
        }
        next_fiber = fiber_for(worker, next);
      }
    }
    if (!kWatched) {
      self->next_idle = worker->idle;
      worker->idle = self;
    }
    switch_to(worker, next_fiber);
  }
}

// --- Barriers and collectives ---

// The tags of a gathering alternate by generation: one tag would order a thread with those that are a barrier ahead.
// They are new for every block, as one block's barrier orders nothing in another. A block as one needs none.
HOSTCUDA_UNWATCHED void* tag_of(const Gathering* gathering) {
  return gathering->tags + (gathering->generation & 1u) * (kTagBytes / 2);
}

[[noreturn]] HOSTCUDA_UNWATCHED void diverged(Worker* worker, const Gathering* gathering, const Place& place) {
  char rule[512];
  std::snprintf(rule, sizeof rule, "divergent %s(): this thread is here, thread %u waits in %s() at %s:%u",
                place.operation, gathering->first_thread, gathering->place.operation, gathering->place.file,
                gathering->place.line);
  broken(worker, CUDA_ERROR_LAUNCH_FAILED, place.file, place.line, rule);
}

[[noreturn]] HOSTCUDA_UNWATCHED void partial_warp(Worker* worker, const Place& place) {
  char rule[256];
  std::snprintf(rule, sizeof rule,
                "%s() in a partial warp: the mask names 32 lanes, a block of %u threads has %u in its last warp",
                place.operation, worker->block_threads, worker->block_threads % kWarpLanes);
  broken(worker, CUDA_ERROR_LAUNCH_FAILED, place.file, place.line, rule);
}

// Notes the caller's arrival at `place`; true: it completes the gathering, which is then empty again.
HOSTCUDA_UNWATCHED_HOT bool arrive(Worker* worker, Gathering* gathering, uint32_t members, const Place& place) {
  if (gathering->arrived == 0) {
    gathering->place = place;
    gathering->first_thread = worker->thread;
  } else if (!same_place(gathering->place, place)) {
    diverged(worker, gathering, place);
  }
  worker->waits[worker->thread] = place;
  if (++gathering->arrived != members) return false;
  gathering->arrived = 0;
  ++gathering->generation;
  return true;
}

HOSTCUDA_UNWATCHED void sync_threads(SimtContext* context, const char* file, uint32_t line) {
  Worker* const worker = worker_of(context);
  Gathering* const barrier = &worker->barrier;
  void* const tag = tag_of(barrier);
  if (!worker->as_one) order_release(tag);
  const uint32_t thread = worker->thread;
  if (!arrive(worker, barrier, worker->block_threads, Place{"sync_threads", file, line})) {
    wait_for_turn(worker);
  } else {
    for (uint32_t warp = 0; warp < warp_count(worker); ++warp) {
      uint32_t lanes = lanes_of(worker, warp);
      if (worker->seed == 0 && warp == thread / kWarpLanes) lanes &= ~(1u << thread % kWarpLanes);
      wake_warp(worker, warp, lanes);
    }
    if (worker->seed != 0) wait_for_turn(worker);  // the last to arrive has no right to go first
  }
  worker->waits[thread].operation = nullptr;
  if (!worker->as_one) order_acquire(tag);
}

HOSTCUDA_UNWATCHED_HOT Gathering* warp_gathering(Worker* worker, const Place& place) {
  const uint32_t warp = worker->thread / kWarpLanes;
  if (lanes_of(worker, warp) != ~0u) partial_warp(worker, place);
  return &worker->warps[warp];
}

HOSTCUDA_UNWATCHED_HOT void gather_warp(Worker* worker, Gathering* gathering, const Place& place,
                                        CombineFunction combine) {
  const uint32_t thread = worker->thread;
  const uint32_t warp = thread / kWarpLanes;
  if (!arrive(worker, gathering, kWarpLanes, place)) {
    wait_for_turn(worker);
  } else {
    if (combine != nullptr) combine(worker->lane_values[warp]);
    wake_warp(worker, warp, worker->seed != 0 ? ~0u : ~(1u << thread % kWarpLanes));
    if (worker->seed != 0) wait_for_turn(worker);
  }
  worker->waits[thread].operation = nullptr;
}

HOSTCUDA_UNWATCHED void sync_warp(SimtContext* context, const char* file, uint32_t line) {
  Worker* const worker = worker_of(context);
  const Place place{"sync_warp", file, line};
  Gathering* const gathering = warp_gathering(worker, place);
  void* const tag = tag_of(gathering);
  if (!worker->as_one) order_release(tag);
  gather_warp(worker, gathering, place, nullptr);
  if (!worker->as_one) order_acquire(tag);
}

HOSTCUDA_UNWATCHED void meet(SimtContext* context, const char* operation, const char* file, uint32_t line, void* mine,
                             CombineFunction combine) {
  Worker* const worker = worker_of(context);
  const Place place{operation, file, line};
  Gathering* const gathering = warp_gathering(worker, place);
  worker->lane_values[worker->thread / kWarpLanes][worker->thread % kWarpLanes] = mine;
  gather_warp(worker, gathering, place, combine);
}

// Between threads the device promises order only along: release side fence, then atomic; acquire side atomic, then
// fence. A fence at block level counts for words in shared memory alone.
HOSTCUDA_UNWATCHED bool in_shared_memory(const Worker* worker, const void* word) {
  const auto* const byte = static_cast<const unsigned char*>(word);
  return byte >= worker->arena && byte < worker->arena + kArenaBytes;
}

HOSTCUDA_UNWATCHED void fence(SimtContext* context, FenceScope scope) {
  __builtin_ia32_mfence();
  if (!kWatched) return;
  Worker* const worker = worker_of(context);
  const uint32_t thread = worker->thread;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < worker->pending_count[thread]; ++i) {
    const void* const word = worker->pending[thread][i];
    if (scope == FenceScope::kBlock && !in_shared_memory(worker, word)) {
      worker->pending[thread][kept++] = word;
    } else {
      order_acquire(const_cast<void*>(word));
    }
  }
  worker->pending_count[thread] = kept;
  worker->fenced |= scope == FenceScope::kBlock ? kFencedBlock : kFencedBlock | kFencedDevice;
}

HOSTCUDA_UNWATCHED void atomic_done(SimtContext* context, const void* word) {
  Worker* const worker = worker_of(context);
  const uint32_t level = in_shared_memory(worker, word) ? kFencedBlock : kFencedDevice;
  if ((worker->fenced & level) != 0) order_release(const_cast<void*>(word));
  uint32_t* const count = &worker->pending_count[worker->thread];
  if (*count == kMaxPending) {
    for (uint32_t i = 1; i < kMaxPending; ++i) {
      worker->pending[worker->thread][i - 1] = worker->pending[worker->thread][i];
    }
    --*count;
  }
  worker->pending[worker->thread][(*count)++] = word;
}

// --- Memory ---

HOSTCUDA_UNWATCHED const char* access_name(Access access) {
  switch (access) {
    case Access::kLoad:
      return "load";
    case Access::kStore:
      return "store";
    case Access::kAtomic:
      break;
  }
  return "atomic";
}

HOSTCUDA_UNWATCHED void drop_ranges(Worker* worker) {
  for (uint32_t i = 0; i < worker->range_count; ++i) {
    const HostRange& range = worker->ranges[i];
    if (range.bytes_read != 0 || range.bytes_written != 0) traffic_add(worker->entry->name, range);
  }
  worker->range_count = 0;
  for (uint32_t i = 0; i < kRangeSlots; ++i) worker->slots[i] = &worker->no_range;
}

// The range that holds byte `address` and may be used by this launch; null: none.
HOSTCUDA_UNWATCHED HostRange* find_range(Worker* worker, uint64_t address) {
  for (uint32_t i = 0; i < worker->range_count; ++i) {
    HostRange* const range = &worker->ranges[i];
    if (address - range->base < range->size) return range;
  }
  HostcudaRange found;
  if (hostcuda_range(address, &found) == 0) return nullptr;
  const int device = hostcuda_running_device();
  if (found.device >= 0 && device >= 0 && found.device != device) return nullptr;
  if (worker->range_count == kMaxRanges) drop_ranges(worker);
  HostRange* const range = &worker->ranges[worker->range_count++];
  range->base = found.base;
  range->size = found.bytes;
  range->alias = reinterpret_cast<unsigned char*>(found.host);
  range->bytes_read = 0;
  range->bytes_written = 0;
  return range;
}

HOSTCUDA_UNWATCHED unsigned char* resolve(SimtContext* context, uint64_t address, uint32_t bytes, uint32_t alignment,
                                          Access access, const char* file, uint32_t line) {
  Worker* const worker = worker_of(context);
  char rule[512];
  if (address % alignment != 0) {
    std::snprintf(rule, sizeof rule, "misaligned %u-byte %s: address 0x%llx is not a multiple of %u", bytes,
                  access_name(access), static_cast<unsigned long long>(address), alignment);
    broken(worker, CUDA_ERROR_MISALIGNED_ADDRESS, file, line, rule);
  }
  HostRange* const range = find_range(worker, address);
  if (range == nullptr || range->size - (address - range->base) < bytes) {
    char why[256];
    std::snprintf(rule, sizeof rule, "bad address: %u-byte %s at 0x%llx: %s", bytes, access_name(access),
                  static_cast<unsigned long long>(address), hostcuda_describe(address, bytes, why, sizeof why));
    broken(worker, CUDA_ERROR_ILLEGAL_ADDRESS, file, line, rule);
  }
  worker->slots[(address >> kRangePageShift) % kRangeSlots] = range;
  if (access != Access::kStore) range->bytes_read += bytes;
  if (access != Access::kLoad) range->bytes_written += bytes;
  return range->alias + (address - range->base);
}

HOSTCUDA_UNWATCHED unsigned char* static_shared(SimtContext* context, const SharedSite* site) {
  Worker* const worker = worker_of(context);
  for (uint32_t i = 0; i < worker->site_count; ++i) {
    if (worker->sites[i].site == site) return worker->static_base + worker->sites[i].offset;
  }
  char rule[256];
  const uint32_t alignment = site->alignment < 16 ? 16 : site->alignment;
  const uint32_t offset = (worker->static_used + alignment - 1) / alignment * alignment;
  if (worker->site_count == kMaxSites || site->bytes > kSharedBytes || offset > kSharedBytes - site->bytes) {
    std::snprintf(rule, sizeof rule, "static shared memory over %u bytes with %s (%u bytes)", kSharedBytes, site->name,
                  site->bytes);
    broken(worker, CUDA_ERROR_LAUNCH_FAILED, site->file, site->line, rule);
  }
  const uint32_t end = offset + site->bytes;
  const uint32_t limit = worker->dynamic_shared_bytes <= kSharedBytes ? kSharedBytes : kSharedOptInBytes;
  if (end + worker->dynamic_shared_bytes > limit) {
    std::snprintf(rule, sizeof rule, "shared memory over %u bytes: %u dynamic and %u static with %s", limit,
                  worker->dynamic_shared_bytes, end, site->name);
    broken(worker, CUDA_ERROR_LAUNCH_FAILED, site->file, site->line, rule);
  }
  worker->sites[worker->site_count++] = SiteStorage{site, offset};
  worker->static_used = end;
  fill_ones(worker->static_base + offset, site->bytes);
  return worker->static_base + offset;
}

HOSTCUDA_UNWATCHED void fault(SimtContext* context, const char* file, uint32_t line, const char* rule) {
  broken(worker_of(context), CUDA_ERROR_LAUNCH_FAILED, file, line, rule);
}

const SimtApi kApi{&sync_threads, &sync_warp, &meet, &fence, &atomic_done, &resolve, &static_shared, &fault};

// --- Launch ---

// A worker for this launch. Under TSan each caller (a stream's fiber) keeps its own: the TSan states of a worker's
// fibers carry what they have seen, and must not carry it from one stream to another that lives beside it.
HOSTCUDA_UNWATCHED Worker* claim_worker() {
  void* caller = nullptr;
#ifdef __SANITIZE_THREAD__
  caller = __tsan_get_current_fiber();
#endif
  Worker* worker = nullptr;
  pool_lock.lock();
  for (uint32_t i = 0; i < pool_size && worker == nullptr; ++i) {
    if (!pool[i]->busy && pool[i]->main_tsan == caller) worker = pool[i];
  }
  for (uint32_t i = 0; i < pool_size && worker == nullptr; ++i) {
    if (!pool[i]->busy && pool[i]->main_tsan == nullptr) worker = pool[i];
  }
  if (worker != nullptr) worker->main_tsan = caller;
  if (worker == nullptr && pool_size < kMaxWorkers) {
    worker = static_cast<Worker*>(map_pages(sizeof(Worker)));
    auto* const arena = static_cast<unsigned char*>(map_pages(kArenaBytes + kTagSlots * kTagSlotBytes));
    if (worker != nullptr && arena != nullptr) {
      worker->api = &kApi;
      worker->arena = arena;
      worker->tag_space = arena + kArenaBytes;
      worker->main_tsan = caller;
      pool[pool_size++] = worker;
    } else {
      if (worker != nullptr) unmap_pages(worker, sizeof(Worker));
      if (arena != nullptr) unmap_pages(arena, kArenaBytes + kTagSlots * kTagSlotBytes);
      worker = nullptr;
    }
  }
  if (worker != nullptr) worker->busy = true;
  pool_lock.unlock();
  return worker;
}

HOSTCUDA_UNWATCHED void return_worker(Worker* worker) {
  pool_lock.lock();
  worker->busy = false;
  pool_lock.unlock();
}

// A setting of all launches, from the environment until something sets it.
class Setting {
 public:
  HOSTCUDA_UNWATCHED explicit constexpr Setting(const char* name) : name_(name) {}
  HOSTCUDA_UNWATCHED void set(uint64_t value) {
    lock_.lock();
    value_ = value;
    known_ = true;
    lock_.unlock();
  }
  HOSTCUDA_UNWATCHED uint64_t get() {
    lock_.lock();
    if (!known_) {
      const char* const text = std::getenv(name_);
      value_ = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
      known_ = true;
    }
    const uint64_t value = value_;
    lock_.unlock();
    return value;
  }

 private:
  const char* name_;
  UnwatchedLock lock_;
  uint64_t value_ = 0;
  bool known_ = false;
};

Setting order_seed("HOSTCUDA_FIBER_SEED");
Setting watched_blocks("HOSTCUDA_WATCHED_BLOCKS");

HOSTCUDA_UNWATCHED uint64_t greatest_common_divisor(uint64_t a, uint64_t b) {
  while (b != 0) {
    const uint64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Memory of the next block: the same again, but under TSan a new place, since nothing orders two blocks. When the
// places are used up, all that ran so far is ordered before all that follows, and they are used anew.
HOSTCUDA_UNWATCHED void place_shared(Worker* worker) {
  const uint32_t dynamic_bytes = (worker->dynamic_shared_bytes + 127u) / 128u * 128u;
  if (kWatched) {
    const uint32_t region = dynamic_bytes + kSharedBytes;
    worker->arena_used += region;
    ++worker->tag_slot;
    if (worker->arena_used > kArenaBytes - region || worker->tag_slot >= kTagSlots) {
      order_acquire(&worker->end_tag);
      order_release(&worker->start_tag);
      worker->arena_used = 0;
      worker->tag_slot = 0;
    }
    unsigned char* const tags = worker->tag_space + worker->tag_slot * kTagSlotBytes;
    worker->barrier.tags = tags;
    for (uint32_t warp = 0; warp < kMaxWarps; ++warp) worker->warps[warp].tags = tags + (1 + warp) * kTagBytes;
  }
  worker->dynamic_shared = worker->arena + worker->arena_used;
  worker->static_base = worker->dynamic_shared + dynamic_bytes;
  fill_ones(worker->dynamic_shared, worker->dynamic_shared_bytes);
  fill_ones(worker->static_base, worker->static_used);
}

// Under TSan all fibers are made by the launch's caller: a new TSan state comes after all that its maker did, which
// would order a thread after the thread that first switched to it. False: no memory.
HOSTCUDA_UNWATCHED bool make_fibers(Worker* worker) {
  Fiber* const set = &worker->fibers[worker->fiber_set * kMaxBlockThreads];
  for (uint32_t i = 0; kWatched && i < worker->block_threads; ++i) {
    if (set[i].stack == nullptr && !fiber_create(&set[i], i, worker->as_one ? set[0].tsan_fiber : nullptr))
      return false;
  }
  return true;
}

HOSTCUDA_UNWATCHED void run_block(Worker* worker, uint32_t block) {
  worker->block = block;
  if (worker->epoch != hostcuda_memory_epoch()) {
    drop_ranges(worker);
    worker->epoch = hostcuda_memory_epoch();
  }
  place_shared(worker);
  const uint32_t threads = worker->block_threads;
  const uint32_t warps = warp_count(worker);
  worker->live = threads;
  for (uint32_t thread = 0; thread < threads; ++thread) {
    worker->fiber_of[thread] = nullptr;
    worker->done[thread] = false;
    worker->waits[thread].operation = nullptr;
  }
  worker->barrier.arrived = 0;
  for (uint32_t warp = 0; warp < warps; ++warp) {
    worker->warps[warp].arrived = 0;
    worker->warp_of_rank[warp] = static_cast<uint8_t>(warp);
  }
  if (worker->seed != 0) {
    for (uint32_t rank = warps; rank > 1; --rank) {
      const uint32_t other = draw(worker) % rank;
      const uint8_t warp = worker->warp_of_rank[rank - 1];
      worker->warp_of_rank[rank - 1] = worker->warp_of_rank[other];
      worker->warp_of_rank[other] = warp;
    }
  }
  worker->ranks_ready = 0;
  for (uint32_t rank = 0; rank < warps; ++rank) {
    worker->rank_of_warp[worker->warp_of_rank[rank]] = static_cast<uint8_t>(rank);
  }
  for (uint32_t warp = 0; warp < warps; ++warp) {
    worker->ready[warp] = 0;
    wake_warp(worker, warp, lanes_of(worker, warp));
  }
  worker->running = nullptr;
  worker->thread = 0;
  Fiber* const first = make_fibers(worker) ? claim_fiber(worker, pick(worker)) : nullptr;
  if (first == nullptr) {
    std::snprintf(worker->fault_text, sizeof worker->fault_text, "kernel %s: %s", worker->entry->name, kNoStack);
    worker->fault_code = CUDA_ERROR_OUT_OF_MEMORY;
    worker->abandoned = true;
    return;
  }
  switch_to(worker, first);
}

HOSTCUDA_UNWATCHED void run_blocks(Worker* worker) {
  const uint64_t grid = worker->grid_blocks;
  const uint64_t watched = watched_blocks.get();
  uint64_t start = 0;
  uint64_t step = 1;
  if (worker->seed != 0) {
    start = draw(worker) % grid;
    step = draw(worker) % grid;
    while (greatest_common_divisor(step, grid) != 1) step = (step + 1) % grid;
  }
  for (uint64_t i = 0; i < grid && !worker->abandoned; ++i) {
    worker->as_one = kWatched && watched != 0 && i >= watched;
    worker->begun = false;
    if (kWatched) worker->fiber_set = static_cast<uint32_t>(i % kTurns) + (worker->as_one ? kTurns : 0);
    run_block(worker, static_cast<uint32_t>((start + i % grid * step) % grid));
  }
}

// Blocks of a grid, threads of a block; ~0 for any number that is over every limit.
HOSTCUDA_UNWATCHED uint32_t count_in(const Index3& shape) {
  uint32_t plane = 0;
  uint32_t all = 0;
  if (__builtin_mul_overflow(shape.x, shape.y, &plane) || __builtin_mul_overflow(plane, shape.z, &all)) return ~0u;
  return all;
}

HOSTCUDA_UNWATCHED void check_launch(Worker* worker, uint32_t shared_bytes) {
  const HostKernelEntry* const entry = worker->entry;
  const uint32_t allowed = entry->max_threads < kMaxBlockThreads ? entry->max_threads : kMaxBlockThreads;
  char rule[256] = "";
  if (worker->grid_blocks == 0 || worker->grid_blocks > 0x7FFFFFFFu) {
    std::snprintf(rule, sizeof rule, "grid of %u blocks: 1 to 2147483647 are allowed", worker->grid_blocks);
  } else if (worker->block_threads == 0 || worker->block_threads > allowed) {
    std::snprintf(rule, sizeof rule, "block of %u threads: 1 to %u are allowed", worker->block_threads, allowed);
  } else if (shared_bytes > kSharedOptInBytes) {
    std::snprintf(rule, sizeof rule, "%u bytes of dynamic shared memory: at most %u are allowed", shared_bytes,
                  kSharedOptInBytes);
  } else if (entry->parameter_bytes > kMaxParameterBytes) {
    std::snprintf(rule, sizeof rule, "%u bytes of parameters: at most %u are allowed", entry->parameter_bytes,
                  kMaxParameterBytes);
  } else {
    return;
  }
  std::snprintf(worker->fault_text, sizeof worker->fault_text, "kernel %s: %s", entry->name, rule);
  worker->fault_code = CUDA_ERROR_INVALID_VALUE;
  worker->abandoned = true;
}

}  // namespace
}  // namespace hostcuda

extern "C" HOSTCUDA_UNWATCHED int hostcuda_simt_run(const hostcuda::HostKernelEntry* entry, uint32_t grid_blocks,
                                                    uint32_t block_threads, uint32_t shared_bytes, const void* params) {
  const hostcuda::Index3 grid{grid_blocks, 1, 1};
  const hostcuda::Index3 block{block_threads, 1, 1};
  return hostcuda_simt_run_shaped(entry, &grid, &block, shared_bytes, params);
}

extern "C" HOSTCUDA_UNWATCHED int hostcuda_simt_run_shaped(const hostcuda::HostKernelEntry* entry,
                                                           const hostcuda::Index3* grid, const hostcuda::Index3* block,
                                                           uint32_t shared_bytes, const void* params) {
  using namespace hostcuda;
  Worker* const worker = claim_worker();
  if (worker == nullptr) {
    hostcuda_fault_stop_as(CUDA_ERROR_OUT_OF_MEMORY, "no memory to run a kernel");
    return 1;
  }
  worker->entry = entry;
  worker->grid_shape = *grid;
  worker->block_shape = *block;
  worker->grid_blocks = count_in(*grid);
  worker->block_threads = count_in(*block);
  worker->dynamic_shared_bytes = shared_bytes;
  worker->abandoned = false;
  worker->static_used = 0;
  worker->site_count = 0;
  worker->seed = order_seed.get();
  worker->random = (worker->seed + 1) * 0x9E3779B97F4A7C15ull | 1u;
  worker->idle = nullptr;
  worker->range_count = 0;
  drop_ranges(worker);
  worker->epoch = hostcuda_memory_epoch();
  check_launch(worker, shared_bytes);
  if (!worker->abandoned) {
    copy_bytes(worker->params, static_cast<const unsigned char*>(params), entry->parameter_bytes);
    const unsigned caller_float_mode = _mm_getcsr();
    _mm_setcsr(kDeviceFloatMode);
    order_release(&worker->start_tag);
    run_blocks(worker);
    order_acquire(&worker->end_tag);
    _mm_setcsr(caller_float_mode);
    drop_ranges(worker);
    const uint32_t used = kWatched ? kFiberSets * kMaxBlockThreads : worker->fibers_started;
    for (uint32_t i = 0; i < used; ++i) worker->fibers[i].context = nullptr;
    worker->fibers_started = 0;
  }
  const bool abandoned = worker->abandoned;
  if (abandoned) hostcuda_fault_stop_as(worker->fault_code, worker->fault_text);
  return_worker(worker);
  return abandoned ? 1 : 0;
}

HOSTCUDA_UNWATCHED void hostcuda::simt_forget(void* caller) {
  pool_lock.lock();
  for (uint32_t i = 0; i < pool_size; ++i) {
    if (pool[i]->main_tsan == caller) pool[i]->main_tsan = nullptr;
  }
  pool_lock.unlock();
}

extern "C" HOSTCUDA_UNWATCHED void hostcuda_simt_seed(uint64_t seed) {
  hostcuda::order_seed.set(seed);
}

extern "C" HOSTCUDA_UNWATCHED void hostcuda_simt_watch(uint64_t blocks) {
  hostcuda::watched_blocks.set(blocks);
}

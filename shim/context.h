// SPDX-License-Identifier: MIT
// Device state of the shim: for each CUDA context its kernels, constants, histories and ring lanes; for each stream its
// side stream, events and scratch. Made at handle creation (warm-up), so that a sampled call finds all of it there.
// Keyed by cuCtxGetId and cuStreamGetId, which are never used again: state of a context that was destroyed is only left
// behind, never touched.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "kernels/plan.h"
#include "shim/driver.h"
#include "shim/ring_writer.h"

namespace sdcguard {

inline constexpr uint32_t kMaxContexts = 64;
#ifdef __SANITIZE_THREAD__
inline constexpr uint32_t kMaxStreams = 8;  // a process under TSan has no room for the states of more
#else
inline constexpr uint32_t kMaxStreams = 256;  // with our work under way at once
#endif
inline constexpr uint32_t kCrowdedStreams = kMaxStreams / 2;  // from here on a call leaves word of its end
inline constexpr uint32_t kMaxSites = 4096;                   // a power of two

inline constexpr uint32_t kMaxFolds = 1024;  // keys of the fold cache, a power of two

// One B that may come again.
struct FoldSlot {
  std::atomic<uint64_t> key{0};     // 0: free
  std::atomic<uint32_t> seen{0};    // calls, up to 2
  std::atomic<uint64_t> images{0};  // memory of its folds; 0: none yet, or no room
};

// A key's device memory, ProbeParams' fold_cache and fold_images. Zeros: not cached.
struct FoldMemory {
  CUdeviceptr cache;
  CUdeviceptr images;
};

// What one application stream needs of ours. Owner of the members: the thread that holds `lock`. The program's streams
// come and go and we do not learn of it: when all states are taken, a new stream gets that of one whose work is done.
struct StreamState {
  std::atomic<uint64_t> id{0};                       // cuStreamGetId + 1; 0: free; written with `lock` held
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // held from the first to the last enqueue of a sampled call
  CUstream side_stream = nullptr;  // non-blocking, lowest priority; null: all on the application's stream, in order
  CUevent forked = nullptr;
  CUevent joined = nullptr;
  CUevent ended = nullptr;  // after the last call's last kernel, where `end_known`
  bool end_known = false;
  CUdeviceptr scratch = 0;  // grow-only
  uint64_t scratch_bytes = 0;
  bool ready = false;  // streams and events were made
  bool usable = true;  // false: a side stream could not be joined; its scratch may still be written
};

struct ContextState {
  uint64_t id = 0;                 // cuCtxGetId
  Reason blocked = Reason::kNone;  // why nothing can be checked in this context
  CUdevice device = 0;
  int device_slot = -1;  // in the ring header; -1: none
  uint32_t sm_count = 0;
  uint32_t compute_major = 0;
  uint32_t compute_minor = 0;
  uint64_t memory_bytes = 0;
  uint64_t workspace_cap = 0;  // bytes of scratch over all streams
  std::atomic<uint64_t> workspace_used{0};
  bool in_order = false;  // CUDA_DEVICE_MAX_CONNECTIONS=1 promises launch order: no side stream
  CUfunction functions[kFunctionCount] = {};
  // One never-freed block of device memory: the constants, the lane counters and the histories.
  CUdeviceptr constants = 0;         // 1 and 0 in each type of scalars: one_of(), zero_of()
  CUdeviceptr site_histories = 0;    // SiteHistory[kMaxSites]
  CUdeviceptr family_histories = 0;  // SiteHistory[kFamilyCount]
  CUdeviceptr fold_caches = 0;       // FoldCache[kMaxFolds]
  CUdeviceptr fold_arena = 0;        // images of folds, given out from its start; 0: nothing is cached
  uint64_t fold_arena_bytes = 0;
  std::atomic<uint64_t> fold_arena_used{0};
  FoldSlot folds[kMaxFolds];
  LaneView lane = {};
  std::atomic<uint64_t> sites[kMaxSites] = {};           // open addressing by site; 0: free
  pthread_mutex_t arrivals = PTHREAD_MUTEX_INITIALIZER;  // held while a state goes from one stream to another
  uint32_t next_to_leave = 0;                            // where the search for one begins; with `arrivals` held
  StreamState streams[kMaxStreams];
};

// The state of a context, null when the context is cold.
ContextState* find_context(uint64_t context_id) noexcept;

// Makes the state of the calling thread's current context, if it has none: loads every kernel, allocates, registers the
// ring's lanes. May synchronise the device: called at handle creation, and after the first product of a context that no
// handle was created in. Never throws, prints nothing; a failure is kept in ContextState::blocked.
void warm_current_context() noexcept;

// A stream's state with its lock held, for one sampled call. A new stream takes a free one, or that of a stream whose
// work has ended: only then events are queried.
class HeldStream {
 public:
  HeldStream(ContextState& context, uint64_t stream_id, CUstream app_stream) noexcept;
  // Where states are scarce, leaves an event behind what the call has enqueued. Then unlocks.
  ~HeldStream();
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  // Why nothing may be enqueued: kNoWorkspace, all states are in use; kDriverError, see StreamState::usable. kNone: go
  // on.
  Reason refusal() const noexcept;
  StreamState& state() const noexcept { return *state_; }  // where refusal() is kNone

 private:
  const ContextState& context_;
  const CUstream app_stream_;
  StreamState* state_ = nullptr;
};

// Makes side stream and events if they are not there, and grows the scratch to `bytes`. Both happen once a stream and
// size; a warm stream makes no driver call here. A new scratch is cleared on the application's stream. Lock of the
// stream held. False: refused (cap, or the driver).
bool prepare_stream(ContextState& context, StreamState& stream, CUstream app_stream, uint64_t bytes) noexcept;

// Device addresses of 1 and 0 in a type of scalars, for products of handles in DEVICE pointer mode.
CUdeviceptr one_of(const ContextState& context, DataType scalar) noexcept;
CUdeviceptr zero_of(const ContextState& context) noexcept;

// Memory for the fold of a B that is seen at least the second time, known by `key` (never 0): its address, layout,
// type, shape and seed. No driver call. Nothing where the table or the arena is full.
FoldMemory fold_of_key(ContextState& context, uint64_t key, uint64_t fold_bytes) noexcept;

// History of a site; 0 when the table is full.
CUdeviceptr history_of_site(ContextState& context, uint64_t site) noexcept;
// History that a new site starts from: of its type and floor(log2 n2) on this device.
CUdeviceptr history_of_family(const ContextState& context, uint32_t family) noexcept;

// Child of fork: all device state is the parent's; forget it without a CUDA call.
void context_forget_after_fork() noexcept;

}  // namespace sdcguard

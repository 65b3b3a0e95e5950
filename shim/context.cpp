// SPDX-License-Identifier: MIT
// Device state of the shim: contexts, streams, scratch; made at handle creation.
#include "shim/context.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "shim/process.h"

extern "C" const unsigned char sdcguard_fatbin[];

namespace sdcguard {
namespace {

std::atomic<ContextState*> contexts[kMaxContexts];
pthread_mutex_t warming = PTHREAD_MUTEX_INITIALIZER;

class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

// While it lives, calls that are unsafe during another thread's capture do not invalidate that capture.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverApi& api) : api_(api) { api_.thread_exchange_capture_mode(&mode_); }
  ~RelaxedCapture() { api_.thread_exchange_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const DriverApi& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// Loads every kernel now: a lazy load at the first launch may synchronise.
bool load_kernels(const DriverApi& api, ContextState& state) {
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  const bool by_library =
      api.library_load_data != nullptr && api.library_get_kernel != nullptr && api.kernel_get_function != nullptr &&
      api.library_load_data(&library, sdcguard_fatbin, nullptr, nullptr, 0, nullptr, nullptr, 0) == CUDA_SUCCESS;
  if (!by_library && api.module_load_data(&module, sdcguard_fatbin) != CUDA_SUCCESS) return false;
  for (uint32_t i = 0; i < kFunctionCount; ++i) {
    CUkernel kernel = nullptr;
    const CUresult result = by_library ? api.library_get_kernel(&kernel, library, kFunctionNames[i])
                                       : api.module_get_function(&state.functions[i], module, kFunctionNames[i]);
    if (result != CUDA_SUCCESS) return false;
    if (by_library && api.kernel_get_function(&state.functions[i], kernel) != CUDA_SUCCESS) return false;
  }
  return true;
}

bool describe_device(const DriverApi& api, ContextState& state, DeviceInfo& info) {
  if (api.ctx_get_device(&state.device) != CUDA_SUCCESS) return false;
  CUuuid uuid = {};
  int major = 0, minor = 0, sms = 0, driver_version = 0;
  size_t memory = 0;
  if (api.device_get_uuid(&uuid, state.device) != CUDA_SUCCESS ||
      api.device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, state.device) != CUDA_SUCCESS ||
      api.device_get_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, state.device) != CUDA_SUCCESS ||
      api.device_get_attribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, state.device) != CUDA_SUCCESS ||
      api.device_total_mem(&memory, state.device) != CUDA_SUCCESS ||
      api.driver_get_version(&driver_version) != CUDA_SUCCESS) {
    return false;
  }
  static_assert(sizeof(info.uuid) == sizeof(uuid.bytes));
  std::memcpy(info.uuid, uuid.bytes, sizeof(info.uuid));
  // Name and address are for people: a failure leaves them empty.
  if (api.device_get_name(info.name, sizeof(info.name), state.device) != CUDA_SUCCESS) info.name[0] = '\0';
  if (api.device_get_pci_bus_id(info.pci, sizeof(info.pci), state.device) != CUDA_SUCCESS) info.pci[0] = '\0';
  info.ordinal = state.device;
  info.compute_major = major;
  info.compute_minor = minor;
  info.driver_version = driver_version;
  info.sm_count = sms;
  info.memory_bytes = memory;
  state.compute_major = static_cast<uint32_t>(major);
  state.compute_minor = static_cast<uint32_t>(minor);
  state.sm_count = static_cast<uint32_t>(sms);
  state.memory_bytes = memory;
  return true;
}

// One block: [constants, call tickets, fault tickets, padding to 256][site histories][family histories][fold caches],
// zeroed but for the ones among the constants:
constexpr uint64_t kOneF32At = 0;
constexpr uint64_t kOneF64At = 8;  // its high word is at 12
constexpr uint64_t kOneI32At = 16;
constexpr uint64_t kOneF16At = 20;
constexpr uint64_t kZeroAt = 24;  // 8 bytes: 0 in every type
constexpr uint64_t kCallTicketsAt = 32;
constexpr uint64_t kFaultTicketsAt = 40;

bool allocate_constants(const DriverApi& api, ContextState& state) {
  constexpr uint64_t kHead = 256;
  constexpr uint64_t kBytes =
      kHead + uint64_t{kMaxSites + kFamilyCount} * sizeof(SiteHistory) + uint64_t{kMaxFolds} * sizeof(FoldCache);
  struct Word {
    uint64_t at;
    unsigned int bits;
  };
  constexpr Word kOnes[] = {{kOneF32At, 0x3f800000}, {kOneF64At + 4, 0x3ff00000}, {kOneI32At, 1}, {kOneF16At, 0x3c00}};
  CUdeviceptr block = 0;
  CUstream stream = nullptr;
  if (api.mem_alloc(&block, kBytes) != CUDA_SUCCESS ||
      api.stream_create(&stream, CU_STREAM_NON_BLOCKING, 0) != CUDA_SUCCESS) {
    return false;
  }
  // A stream of our own, waited for: a plain memset runs in the legacy stream, which our non-blocking streams do not
  // wait for, and returns before it is done.
  bool filled = api.memset_d8_async(block, 0, kBytes, stream) == CUDA_SUCCESS;
  for (const Word& one : kOnes) {
    filled = filled && api.memset_d32_async(block + one.at, one.bits, 1, stream) == CUDA_SUCCESS;
  }
  filled = filled && api.stream_synchronize(stream) == CUDA_SUCCESS;
  api.stream_destroy(stream);
  if (!filled) return false;
  state.constants = block;
  state.lane.call_tickets = block + kCallTicketsAt;
  state.lane.fault_tickets = block + kFaultTicketsAt;
  state.site_histories = block + kHead;
  state.family_histories = state.site_histories + uint64_t{kMaxSites} * sizeof(SiteHistory);
  state.fold_caches = state.family_histories + uint64_t{kFamilyCount} * sizeof(SiteHistory);
  return true;
}

// A quarter of the workspace, beside it. Where the device refuses, folds are made afresh at every call.
void allocate_fold_arena(const DriverApi& api, ContextState& state) {
  const uint64_t wanted = state.workspace_cap / 4 / 256 * 256;
  size_t free_bytes = 0, total_bytes = 0;
  if (api.mem_get_info(&free_bytes, &total_bytes) != CUDA_SUCCESS || free_bytes < wanted + total_bytes / 20) return;
  CUdeviceptr arena = 0;
  if (api.mem_alloc(&arena, wanted) != CUDA_SUCCESS) return;
  state.fold_arena = arena;
  state.fold_arena_bytes = wanted;
}

// Without lanes checks and repairs go on; their records are lost, and lanes_refused says so.
void register_lanes(const DriverApi& api, const RingWriter& ring, ContextState& state) {
  const DeviceLanes lanes = ring.take_lanes();
  CUdeviceptr slots = 0;
  if (lanes.calls == 0 ||
      api.mem_host_register(lanes.memory_host, lanes.bytes, CU_MEMHOSTREGISTER_DEVICEMAP) != CUDA_SUCCESS ||
      api.mem_host_get_device_pointer(&slots, lanes.memory_host, 0) != CUDA_SUCCESS) {
    ring.count_lane_refused();
    return;
  }
  state.lane.call_slots = slots;
  state.lane.fault_slots = slots + uint64_t{kCallSlots} * kRecordBytes;
  state.lane.call_mask = kCallSlots - 1;
  state.lane.fault_mask = kFaultSlots - 1;
  state.lane.call_lane = static_cast<uint16_t>(lanes.calls);
  state.lane.fault_lane = static_cast<uint16_t>(lanes.faults);
  ring.announce(lanes, state.id, static_cast<uint32_t>(state.device_slot < 0 ? 0 : state.device_slot));
}

void fill_state(const DriverApi& api, const Process& process, ContextState& state) {
  DeviceInfo info = {};
  if (!describe_device(api, state, info)) {
    state.blocked = Reason::kDriverError;
    return;
  }
  if (!load_kernels(api, state)) {
    state.blocked = Reason::kNoKernelImage;
    return;
  }
  if (!allocate_constants(api, state)) {
    state.blocked = Reason::kNoWorkspace;
    return;
  }
  state.workspace_cap =
      process.config.workspace ? process.config.workspace->bytes : default_workspace(state.memory_bytes);
  if (process.config.fold_cache == FoldCaching::kOn) allocate_fold_arena(api, state);
  const char* connections = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  state.in_order = connections != nullptr && std::strcmp(connections, "1") == 0;
  state.device_slot = process.ring.device_slot(info);
  if (process.ring.is_open()) register_lanes(api, process.ring, state);
  process.ring.count_warm();
}

// The state that a stream has, or a free one, which then is its.
StreamState* find_stream(ContextState& context, uint64_t key) {
  for (StreamState& stream : context.streams) {
    uint64_t seen = stream.id.load(std::memory_order_acquire);
    if (seen == key) return &stream;
    if (seen == 0 && stream.id.compare_exchange_strong(seen, key, std::memory_order_acq_rel)) return &stream;
    if (seen == key) return &stream;
  }
  return nullptr;
}

// Gives a stream the state of one whose work has ended; its lock is then held. Two threads that come with the same new
// stream may take one each: calls on it then use either, one after the other in the stream's order.
StreamState* take_over(ContextState& context, uint64_t key) {
  const DriverApi& api = *driver_if_loaded();
  const Lock lock(context.arrivals);
  const RelaxedCapture relaxed(api);
  for (uint32_t i = 0; i < kMaxStreams; ++i) {
    StreamState& stream = context.streams[context.next_to_leave++ % kMaxStreams];
    if (pthread_mutex_trylock(&stream.lock) != 0) continue;
    if (stream.usable && stream.end_known && api.event_query(stream.ended) == CUDA_SUCCESS) {
      stream.id.store(key, std::memory_order_release);
      return &stream;
    }
    pthread_mutex_unlock(&stream.lock);
  }
  return nullptr;
}

bool record_end(StreamState& stream, CUstream app_stream) {
  const DriverApi& api = *driver_if_loaded();
  if (stream.ended == nullptr) {
    const RelaxedCapture relaxed(api);
    if (api.event_create(&stream.ended, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
  }
  return api.event_record(stream.ended, app_stream) == CUDA_SUCCESS;
}

}  // namespace

ContextState* find_context(uint64_t context_id) noexcept {
  for (auto& slot : contexts) {
    // Pairs with the release store in warm_current_context(). Slots fill in order: the first empty one ends the search.
    ContextState* state = slot.load(std::memory_order_acquire);
    if (state == nullptr) return nullptr;
    if (state->id == context_id) return state;
  }
  return nullptr;
}

void warm_current_context() noexcept {
  const int saved_errno = errno;
  const Process& process = the_process();
  if (process.config.mode == Mode::kOff) return;
  const DriverApi* api = driver();
  CUcontext current = nullptr;
  unsigned long long id = 0;
  if (api == nullptr || api->ctx_get_current(&current) != CUDA_SUCCESS || current == nullptr ||
      api->ctx_get_id(current, &id) != CUDA_SUCCESS || find_context(id) != nullptr) {
    errno = saved_errno;
    return;
  }
  const Lock lock(warming);
  if (find_context(id) == nullptr) {
    for (auto& slot : contexts) {
      if (slot.load(std::memory_order_relaxed) != nullptr) continue;
      auto* state = new (std::nothrow) ContextState;
      if (state == nullptr) break;
      state->id = id;
      {
        const RelaxedCapture relaxed(*api);
        fill_state(*api, process, *state);
      }
      slot.store(state, std::memory_order_release);
      break;
    }
  }
  errno = saved_errno;
}

HeldStream::HeldStream(ContextState& context, uint64_t stream_id, CUstream app_stream) noexcept
    : context_(context), app_stream_(app_stream) {
  const uint64_t key = stream_id + 1;
  while (StreamState* found = find_stream(context, key)) {
    pthread_mutex_lock(&found->lock);
    if (found->id.load(std::memory_order_relaxed) == key) {
      state_ = found;
      return;
    }
    pthread_mutex_unlock(&found->lock);  // it went to another stream in between
  }
  state_ = take_over(context, key);
}

HeldStream::~HeldStream() {
  if (state_ == nullptr) return;
  // States are taken in order.
  const bool scarce = context_.streams[kCrowdedStreams].id.load(std::memory_order_relaxed) != 0;
  state_->end_known = scarce && record_end(*state_, app_stream_);
  pthread_mutex_unlock(&state_->lock);
}

Reason HeldStream::refusal() const noexcept {
  if (state_ == nullptr) return Reason::kNoWorkspace;
  return state_->usable ? Reason::kNone : Reason::kDriverError;
}

bool prepare_stream(ContextState& context, StreamState& stream, CUstream app_stream, uint64_t bytes) noexcept {
  if (stream.ready && stream.scratch_bytes >= bytes) return true;
  const DriverApi& api = *driver_if_loaded();
  const RelaxedCapture relaxed(api);
  if (!stream.ready) {
    if (!context.in_order) {
      int lowest = 0, highest = 0;
      if (api.ctx_get_stream_priority_range(&lowest, &highest) != CUDA_SUCCESS ||
          (stream.forked == nullptr && api.event_create(&stream.forked, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) ||
          (stream.joined == nullptr && api.event_create(&stream.joined, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) ||
          api.stream_create(&stream.side_stream, CU_STREAM_NON_BLOCKING, lowest) != CUDA_SUCCESS) {
        return false;
      }
    }
    stream.ready = true;
  }
  if (stream.scratch_bytes >= bytes) return true;

  // Growth by quarters of a power of two: shapes that differ a little share a block. The old block is left behind,
  // since a free waits for the device; the sum of blocks left behind stays below a small multiple of the last one.
  uint64_t step = uint64_t{1} << 16;
  while (step * 8 <= bytes) step *= 2;
  const uint64_t wanted = (bytes + step - 1) / step * step;
  const uint64_t used = context.workspace_used.fetch_add(wanted, std::memory_order_relaxed);
  size_t free_bytes = 0, total_bytes = 0;
  CUdeviceptr block = 0;
  // Never when less than 5% of the device would stay free.
  const bool taken = used + wanted <= context.workspace_cap &&
                     api.mem_get_info(&free_bytes, &total_bytes) == CUDA_SUCCESS &&
                     free_bytes >= wanted + total_bytes / 20 && api.mem_alloc(&block, wanted) == CUDA_SUCCESS &&
                     api.memset_d8_async(block, 0, kZeroedScratchBytes, app_stream) == CUDA_SUCCESS;
  if (!taken) {
    context.workspace_used.fetch_sub(wanted, std::memory_order_relaxed);
    return false;
  }
  stream.scratch = block;
  stream.scratch_bytes = wanted;
  return true;
}

FoldMemory fold_of_key(ContextState& context, uint64_t key, uint64_t fold_bytes) noexcept {
  constexpr uint32_t kProbes = 8;
  if (context.fold_arena == 0) return {};
  for (uint32_t probe = 0; probe < kProbes; ++probe) {
    const uint32_t index = (static_cast<uint32_t>(key) + probe) & (kMaxFolds - 1);
    FoldSlot& slot = context.folds[index];
    uint64_t seen = slot.key.load(std::memory_order_relaxed);
    if (seen == 0) slot.key.compare_exchange_strong(seen, key, std::memory_order_relaxed);
    if (seen != 0 && seen != key) continue;
    // The first call makes no claim on memory: many a B never comes again.
    if (slot.seen.load(std::memory_order_relaxed) < 2 && slot.seen.fetch_add(1, std::memory_order_relaxed) == 1) {
      const uint64_t bytes = fold_bytes * kFoldGenerations;
      const uint64_t at = context.fold_arena_used.fetch_add(bytes, std::memory_order_relaxed);
      if (at + bytes <= context.fold_arena_bytes) {
        slot.images.store(context.fold_arena + at, std::memory_order_relaxed);
      } else {
        context.fold_arena_used.fetch_sub(bytes, std::memory_order_relaxed);
      }
    }
    const uint64_t images = slot.images.load(std::memory_order_relaxed);
    if (images == 0) return {};
    return {context.fold_caches + uint64_t{index} * sizeof(FoldCache), images};
  }
  return {};
}

CUdeviceptr history_of_site(ContextState& context, uint64_t site) noexcept {
  uint32_t index = static_cast<uint32_t>(site) & (kMaxSites - 1);
  for (uint32_t probe = 0; probe < kMaxSites; ++probe, index = (index + 1) & (kMaxSites - 1)) {
    uint64_t seen = context.sites[index].load(std::memory_order_relaxed);
    if (seen == 0) context.sites[index].compare_exchange_strong(seen, site, std::memory_order_relaxed);
    if (seen == 0 || seen == site) return context.site_histories + uint64_t{index} * sizeof(SiteHistory);
  }
  return 0;
}

CUdeviceptr history_of_family(const ContextState& context, uint32_t family) noexcept {
  return context.family_histories + uint64_t{family} * sizeof(SiteHistory);
}

CUdeviceptr one_of(const ContextState& context, DataType scalar) noexcept {
  switch (scalar) {
    case DataType::kF64:
      return context.constants + kOneF64At;
    case DataType::kI32:
      return context.constants + kOneI32At;
    case DataType::kF16:
      return context.constants + kOneF16At;
    default:
      return context.constants + kOneF32At;
  }
}

CUdeviceptr zero_of(const ContextState& context) noexcept {
  return context.constants + kZeroAt;
}

void context_forget_after_fork() noexcept {
  for (auto& slot : contexts) slot.store(nullptr, std::memory_order_relaxed);
  warming = PTHREAD_MUTEX_INITIALIZER;
}

}  // namespace sdcguard

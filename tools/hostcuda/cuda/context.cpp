// SPDX-License-Identifier: MIT
// Contexts: initialisation, current context of a thread, primary contexts, handles of streams; driver functions cuInit,
// cuCtx..., cuDevicePrimaryCtx....
#include "tools/hostcuda/cuda/context.h"

#include <pthread.h>

#include <cstdlib>

#include "tools/hostcuda/cuda/memory.h"
#include "tools/hostcuda/cuda/pool.h"
#include "tools/hostcuda/cuda/settings.h"

namespace hostcuda {
namespace {

// A device's primary context: one handle value for good, a new Context (and id) after each reset.
struct Primary {
  CUcontext handle = nullptr;
  unsigned references = 0;
  unsigned flags = 0;
  bool runtime_holds = false;  // one of the references is hostcuda_use_device's
};

Primary primaries[kMaxDevices];

thread_local bool per_thread_default = false;
thread_local int chosen_device = 0;

// The thread's stack of contexts, and the end of its per-thread streams when it exits.
struct ThreadState {
  std::vector<CUcontext> stack;
  bool has_streams = false;

  ~ThreadState() {
    if (!has_streams) return;
    Engine& engine = Engine::get();
    const std::lock_guard<std::mutex> lock(engine.mutex);
    for (const auto& [handle, context] : engine.contexts) {
      const auto found = context->per_thread.find(thread_number());
      if (found == context->per_thread.end()) continue;
      const std::shared_ptr<Stream> stream = found->second;
      context->per_thread.erase(found);
      std::erase(context->streams, stream);
      stream->destroyed = true;
      stream->wake.notify_one();
    }
    engine.pump();
  }
};

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

// A forked child has no workers and none of the parent's device state: it must not touch either.
void before_fork() {
  Engine::get().mutex.lock();
}
void after_fork_parent() {
  Engine::get().mutex.unlock();
}
void after_fork_child() {
  Engine::get().initialised = false;
  Engine::get().forked = true;
  Engine::get().mutex.unlock();
}

bool valid_device(CUdevice device) {
  return device >= 0 && device < start_settings().devices;
}

CUresult check_initialised() {
  const Engine& engine = Engine::get();
  if (engine.exiting) return CUDA_ERROR_DEINITIALIZED;
  return engine.initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult initialise() {
  Engine& engine = Engine::get();
  if (engine.exiting) return CUDA_ERROR_DEINITIALIZED;
  if (engine.forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (engine.initialised) return CUDA_SUCCESS;
  if (start_settings().devices == 0) return CUDA_ERROR_NO_DEVICE;  // CUDA_VISIBLE_DEVICES
  engine.initialised = true;
  std::atexit(stop_at_exit);
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
  return CUDA_SUCCESS;
}

// The primary context of `device`, made if it is not there.
std::shared_ptr<Context> activate_primary(CUdevice device) {
  Engine& engine = Engine::get();
  Primary& primary = primaries[device];
  if (primary.handle == nullptr) primary.handle = static_cast<CUcontext>(engine.handles.take());
  std::shared_ptr<Context> context = find_context(primary.handle);
  if (context == nullptr) {
    context = engine.create_context(device, primary.flags, primary.handle);
    context->primary = true;
  }
  return context;
}

void set_current(CUcontext handle) {
  auto& stack = thread_state().stack;
  if (!stack.empty()) stack.pop_back();
  if (handle != nullptr) stack.push_back(handle);
}

CUresult create(CUcontext* out, unsigned flags, CUdevice device) {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const auto handle = static_cast<CUcontext>(engine.handles.take());
  engine.create_context(device, flags, handle);
  thread_state().stack.push_back(handle);
  *out = handle;
  return CUDA_SUCCESS;
}

}  // namespace

PerThreadDefault::PerThreadDefault() : before_(per_thread_default) {
  per_thread_default = true;
}
PerThreadDefault::~PerThreadDefault() {
  per_thread_default = before_;
}

std::shared_ptr<Context> find_context(CUcontext handle) {
  const auto found = Engine::get().contexts.find(handle);
  return found == Engine::get().contexts.end() ? nullptr : found->second;
}

std::shared_ptr<Context> find_context_by_id(uint64_t id) {
  for (const auto& [handle, context] : Engine::get().contexts) {
    if (context->id == id) return context;
  }
  return nullptr;
}

CUresult primary_context(int device, std::shared_ptr<Context>* context) {
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = activate_primary(device);
  return CUDA_SUCCESS;
}

CUresult current_context(std::shared_ptr<Context>* context) {
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  const auto& stack = thread_state().stack;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = find_context(stack.back());
  if (*context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return (*context)->sticky.load(std::memory_order_relaxed);
}

CUresult find_stream(CUstream handle, std::shared_ptr<Stream>* stream) {
  Engine& engine = Engine::get();
  const bool legacy = handle == CU_STREAM_LEGACY || (handle == nullptr && !per_thread_default);
  const bool per_thread = handle == CU_STREAM_PER_THREAD || (handle == nullptr && per_thread_default);
  if (legacy || per_thread) {
    std::shared_ptr<Context> context;
    if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
    if (legacy) {
      *stream = context->legacy;
      return CUDA_SUCCESS;
    }
    std::shared_ptr<Stream>& own = context->per_thread[thread_number()];
    if (own == nullptr) own = engine.create_stream(context, CU_STREAM_DEFAULT, 0);
    thread_state().has_streams = true;
    *stream = own;
    return CUDA_SUCCESS;
  }
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  const auto found = engine.streams.find(handle);
  if (found == engine.streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  *stream = found->second;
  return found->second->context->sticky.load(std::memory_order_relaxed);
}

CUresult use_device(int ordinal) {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  if (const CUresult r = initialise(); r != CUDA_SUCCESS) return r;
  if (ordinal >= 0) {
    if (!valid_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    chosen_device = ordinal;
  } else {
    const auto& stack = thread_state().stack;
    if (!stack.empty() && find_context(stack.back()) != nullptr) return CUDA_SUCCESS;
  }
  Primary& primary = primaries[chosen_device];
  const std::shared_ptr<Context> context = activate_primary(chosen_device);
  if (!primary.runtime_holds) {
    primary.runtime_holds = true;
    ++primary.references;
  }
  set_current(context->handle);
  return CUDA_SUCCESS;
}

int device_for_runtime() {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  const auto& stack = thread_state().stack;
  if (!stack.empty()) {
    if (const auto context = find_context(stack.back()); context != nullptr) return context->device;
  }
  return chosen_device;
}

namespace driver {

CUresult cuInit(unsigned int flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  return flags == 0 ? initialise() : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *pctx = activate_primary(dev)->handle;
  ++primaries[dev].references;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  Engine& engine = Engine::get();
  std::unique_lock<std::mutex> lock(engine.mutex);
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  Primary& primary = primaries[dev];
  const std::shared_ptr<Context> context = find_context(primary.handle);
  if (primary.references == 0 || context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.references == 0) {
    primary.runtime_holds = false;
    engine.destroy_context(lock, context);
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  return driver::cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  return driver::cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return driver::cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  Engine& engine = Engine::get();
  std::unique_lock<std::mutex> lock(engine.mutex);
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const std::shared_ptr<Context> context = find_context(primaries[dev].handle);
  primaries[dev].references = 0;
  primaries[dev].runtime_holds = false;
  if (context != nullptr) engine.destroy_context(lock, context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = primaries[dev].flags;
  *active = find_context(primaries[dev].handle) != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  primaries[dev].flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* params_array, int num_params, unsigned int flags,
                        CUdevice dev) {
  if (params_array != nullptr || num_params != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctx_create_params, unsigned int flags, CUdevice dev) {
  if (ctx_create_params != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // execution affinity, CIG
  return create(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  Engine& engine = Engine::get();
  std::unique_lock<std::mutex> lock(engine.mutex);
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  const std::shared_ptr<Context> context = find_context(ctx);
  if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = thread_state().stack;
  if (!stack.empty() && stack.back() == ctx) stack.pop_back();
  engine.destroy_context(lock, context);
  engine.handles.give(ctx);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& stack = thread_state().stack;
  *pctx = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  if (ctx != nullptr && find_context(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  set_current(ctx);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  if (find_context(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  thread_state().stack.push_back(ctx);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  if (const CUresult r = check_initialised(); r != CUDA_SUCCESS) return r;
  auto& stack = thread_state().stack;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  const CUresult r = current_context(&context);
  if (context == nullptr) return r;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (ctx == nullptr) return driver::cuCtxGetDevice(device);
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  const std::shared_ptr<Context> context = find_context(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctx_id) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (ctx != nullptr) {
    context = find_context(ctx);
    if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  } else if (const CUresult r = current_context(&context); context == nullptr) {
    return r;
  }
  if (ctx_id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ctx_id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); context == nullptr) return r;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

// Limits are kept and given back; nothing here runs into one.
CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  if (pvalue == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < CU_LIMIT_STACK_SIZE || limit >= kSettableLimits) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *pvalue = context->limits[limit];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  if (limit < CU_LIMIT_STACK_SIZE || limit >= kSettableLimits) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

// One cache, one split: the setting is kept and changes nothing.
CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  if (pconfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pconfig = context->cache_config;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  context->cache_config = config;
  return CUDA_SUCCESS;
}

// Ranges of a profile mean nothing here.
CUresult cuProfilerStart() {
  return CUDA_SUCCESS;
}
CUresult cuProfilerStop() {
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  if (ctx != nullptr && find_context(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;  // the API version of every context since CUDA 3.2
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  Engine& engine = Engine::get();
  std::unique_lock<std::mutex> lock(engine.mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  if (const CUresult r = refuse_in_capture(*context); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
  engine.wait_context(lock, context);
  trim_pools(context->device);
  return context->sticky.load(std::memory_order_relaxed);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  if (ctx == nullptr) return driver::cuCtxSynchronize();
  Engine& engine = Engine::get();
  std::unique_lock<std::mutex> lock(engine.mutex);
  const std::shared_ptr<Context> context = find_context(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult r = refuse_in_capture(*context); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
  engine.wait_context(lock, context);
  trim_pools(context->device);
  return context->sticky.load(std::memory_order_relaxed);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer_context, unsigned int flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Context> peer = find_context(peer_context);
  if (peer == nullptr || peer == context) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->device == context->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (context->peers.contain(peer->id)) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  return context->peers.add(peer->id) ? CUDA_SUCCESS : CUDA_ERROR_TOO_MANY_PEERS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer_context) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  const std::shared_ptr<Context> peer = find_context(peer_context);
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return context->peers.remove(peer->id) ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

CUresult cuCtxGetStreamPriorityRange(int* least_priority, int* greatest_priority) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); context == nullptr) return r;
  if (least_priority != nullptr) *least_priority = kLeastPriority;
  if (greatest_priority != nullptr) *greatest_priority = kGreatestPriority;
  return CUDA_SUCCESS;
}

}  // namespace driver
}  // namespace hostcuda

// SPDX-License-Identifier: MIT
// Driver functions on streams and events: cuStream... (but capture), cuEvent..., cuLaunchHostFunc.
#include <algorithm>

#include "tools/hostcuda/cuda/context.h"
#include "tools/hostcuda/cuda/graph.h"
#include "tools/hostcuda/cuda/memory.h"
#include "tools/hostcuda/cuda/pool.h"
#include "tools/hostcuda/cuda/settings.h"
#include "tools/hostcuda/cuda/tsan.h"

namespace hostcuda {
namespace {

CUresult create(CUstream* out, unsigned flags, int priority) {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  if (out == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (priority > kLeastPriority) priority = kLeastPriority;
  if (priority < kGreatestPriority) priority = kGreatestPriority;
  const std::shared_ptr<Stream> stream = engine.create_stream(context, flags, priority);
  stream->handle = static_cast<CUstream>(engine.handles.take());
  engine.streams[stream->handle] = stream;
  *out = stream->handle;
  return CUDA_SUCCESS;
}

bool is_stream_attribute(CUstreamAttrID attr) {
  return attr == CU_STREAM_ATTRIBUTE_PRIORITY || attr == CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
         attr == CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW || attr == CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN ||
         attr == CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP;
}

CUresult find_event(CUevent handle, std::shared_ptr<Event>* event) {
  const Engine& engine = Engine::get();
  if (engine.exiting) return CUDA_ERROR_DEINITIALIZED;
  if (!engine.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = engine.events.find(handle);
  if (found == engine.events.end()) return CUDA_ERROR_INVALID_HANDLE;
  *event = found->second;
  return (*event)->context->sticky.load(std::memory_order_relaxed);
}

}  // namespace

// Waits for everything in the stream. For the legacy stream that includes what its rules put before its next operation.
CUresult synchronize(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Stream>& stream) {
  Engine& engine = Engine::get();
  const std::shared_ptr<Context> context = stream->context;
  uint64_t sequence = stream->enqueued;
  if (stream->is_legacy) sequence = engine.append(stream, std::make_unique<Operation>());
  engine.wait_stream(lock, stream, sequence);
  trim_pools(context->device);
  return context->sticky.load(std::memory_order_relaxed);
}

namespace driver {

CUresult cuStreamCreate(CUstream* stream_out, unsigned int flags) {
  return create(stream_out, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* stream_out, unsigned int flags, int priority) {
  return create(stream_out, flags, priority);
}

// Work in the stream goes on; its resources go when that is done.
CUresult cuStreamDestroy_v2(CUstream handle) {
  Engine& engine = Engine::get();
  std::shared_ptr<Capture> capture;  // goes after the lock: its bodies may be destroyed here
  const std::lock_guard<std::mutex> lock(engine.mutex);
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
    return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); stream == nullptr) return r;
  capture = stream->capture;
  if (capture != nullptr) {
    capture->invalidated = true;
    if (capture->origin == stream) abandon_capture(capture);
  }
  engine.streams.erase(handle);
  engine.handles.give(handle);
  std::erase(stream->context->streams, stream);
  stream->destroyed = true;
  stream->wake.notify_one();
  engine.pump();
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  Engine& engine = Engine::get();
  std::unique_lock<std::mutex> lock(engine.mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
  return synchronize(lock, stream);
}

CUresult cuStreamQuery(CUstream handle) {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
  engine.pump();
  if (!stream->idle() || (stream->is_legacy && engine.blocking_work_pending(*stream->context))) {
    engine.host_asks();
    return CUDA_ERROR_NOT_READY;
  }
  tsan::acquire(&stream->tag);
  if (stream->is_legacy) {
    tsan::acquire(&stream->context->retired_tag);
    for (const auto& other : stream->context->streams) tsan::acquire(&other->tag);
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent h_event, unsigned int flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Event> event;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = find_event(h_event, &event); r != CUDA_SUCCESS) return r;
  if (flags != CU_EVENT_WAIT_DEFAULT && flags != CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (skip_this_wait()) return CUDA_SUCCESS;
  return wait_for_event(stream, event, flags == CU_EVENT_WAIT_EXTERNAL);
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* pctx) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = stream->context->handle;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context->device;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* stream_id) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (stream_id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *stream_id = stream->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn fn, void* user_data) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Work work{fn, nullptr, user_data, "host function"};
  if (stream->capture == nullptr) return enqueue_work(stream, work);
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_HOST;
  content.host = {fn, user_data};
  content.work = share_work(work);
  return capture_node(stream, std::move(content));
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* user_data, unsigned int flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
  return enqueue_body(stream, "stream callback", [=] { callback(handle, CUDA_SUCCESS, user_data); });
}

// Managed memory is attached to everything at all times.
CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr dptr, size_t, unsigned int flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
  Allocation found;
  if (!find_allocation(dptr, &found) || found.kind != MemoryKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  return flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

// The priority is the one attribute that says something here; those that only advise are taken and read as zero.
CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attr, CUstreamAttrValue* value) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (value == nullptr || !is_stream_attribute(attr)) return CUDA_ERROR_INVALID_VALUE;
  *value = {};
  if (attr == CU_STREAM_ATTRIBUTE_PRIORITY) value->priority = stream->priority;
  if (attr == CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY) value->syncPolicy = CU_SYNC_POLICY_AUTO;
  return CUDA_SUCCESS;
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attr, const CUstreamAttrValue* param) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (param == nullptr || !is_stream_attribute(attr)) return CUDA_ERROR_INVALID_VALUE;
  if (attr == CU_STREAM_ATTRIBUTE_PRIORITY) {
    stream->priority = std::clamp(param->priority, kGreatestPriority, kLeastPriority);
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream dst_stream, CUstream src_stream) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> to;
  std::shared_ptr<Stream> from;
  if (const CUresult r = find_stream(dst_stream, &to); r != CUDA_SUCCESS) return r;
  if (const CUresult r = find_stream(src_stream, &from); r != CUDA_SUCCESS) return r;
  to->priority = from->priority;
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* ph_event, unsigned int flags) {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  constexpr unsigned kKnown = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (ph_event == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  auto event = std::make_shared<Event>();
  event->handle = static_cast<CUevent>(engine.handles.take());
  event->context = context;
  event->flags = flags;
  engine.events[event->handle] = event;
  *ph_event = event->handle;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent h_event) {
  Engine& engine = Engine::get();
  std::shared_ptr<Event> event;  // goes after the lock: it may hold the last of a capture
  const std::lock_guard<std::mutex> lock(engine.mutex);
  if (const CUresult r = find_event(h_event, &event); event == nullptr) return r;
  engine.events.erase(h_event);
  engine.handles.give(h_event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent h_event, CUstream handle) {
  return driver::cuEventRecordWithFlags(h_event, handle, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventRecordWithFlags(CUevent h_event, CUstream handle, unsigned int flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Event> event;
  if (const CUresult r = find_event(h_event, &event); r != CUDA_SUCCESS) return r;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (flags != CU_EVENT_RECORD_DEFAULT && flags != CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  return record_event(event, stream, flags == CU_EVENT_RECORD_EXTERNAL);
}

CUresult cuEventSynchronize(CUevent h_event) {
  Engine& engine = Engine::get();
  std::unique_lock<std::mutex> lock(engine.mutex);
  std::shared_ptr<Event> event;
  if (const CUresult r = find_event(h_event, &event); r != CUDA_SUCCESS) return r;
  if (const CUresult r = refuse_captured(*event); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
  if (event->last == nullptr) return CUDA_SUCCESS;
  const std::shared_ptr<EventRecord> record = event->last;
  engine.wait_event(lock, record);
  trim_pools(event->context->device);
  return event->context->sticky.load(std::memory_order_relaxed);
}

CUresult cuEventQuery(CUevent h_event) {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  std::shared_ptr<Event> event;
  if (const CUresult r = find_event(h_event, &event); r != CUDA_SUCCESS) return r;
  if (const CUresult r = refuse_captured(*event); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
  if (event->last == nullptr) return CUDA_SUCCESS;
  engine.pump();
  if (!event->last->done) {
    engine.host_asks();
    return CUDA_ERROR_NOT_READY;
  }
  tsan::acquire(&event->last->tag);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float* p_milliseconds, CUevent h_start, CUevent h_end) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Event> start;
  std::shared_ptr<Event> end;
  if (const CUresult r = find_event(h_start, &start); r != CUDA_SUCCESS) return r;
  if (const CUresult r = find_event(h_end, &end); r != CUDA_SUCCESS) return r;
  if (p_milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (start->capture != nullptr || end->capture != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  if (start->context != end->context || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0 ||
      start->last == nullptr || end->last == nullptr) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!start->last->done || !end->last->done) return CUDA_ERROR_NOT_READY;
  *p_milliseconds = std::chrono::duration<float, std::milli>(end->last->when - start->last->when).count();
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* p_milliseconds, CUevent h_start, CUevent h_end) {
  return driver::cuEventElapsedTime_v2(p_milliseconds, h_start, h_end);
}

}  // namespace driver
}  // namespace hostcuda

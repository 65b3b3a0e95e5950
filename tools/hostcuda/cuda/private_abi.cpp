// SPDX-License-Identifier: MIT
// The stream and context half of core.h: hostcuda_enqueue and its relatives, for the sister libraries.
#include "tools/hostcuda/cuda/context.h"
#include "tools/hostcuda/cuda/running.h"
#include "tools/hostcuda/cuda/tsan.h"

using hostcuda::Context;
using hostcuda::Engine;
using hostcuda::Stream;

extern "C" {

CUresult hostcuda_enqueue_owned(CUstream handle, void (*run)(void*), void (*destroy)(void*), void* arg,
                                const char* name) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = hostcuda::find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  return hostcuda::enqueue_work(stream, {run, destroy, arg, name});
}

CUresult hostcuda_enqueue(CUstream stream, void (*run)(void*), void* arg, const char* name) {
  return hostcuda_enqueue_owned(stream, run, nullptr, arg, name);
}

CUresult hostcuda_stream_synchronize(CUstream stream) {
  return hostcuda::driver::cuStreamSynchronize(stream);
}

int hostcuda_device_ordinal(CUstream handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  hostcuda::find_stream(handle, &stream);
  return stream == nullptr ? -1 : stream->context->device;
}

HOSTCUDA_NO_TSAN int hostcuda_running_device(void) {
  return hostcuda::running_now().device;
}
HOSTCUDA_NO_TSAN const char* hostcuda_running_operation(void) {
  return hostcuda::running_now().name;
}

int hostcuda_stream_capturing(CUstream handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  hostcuda::find_stream(handle, &stream);
  return stream != nullptr && stream->capture != nullptr ? 1 : 0;
}

CUcontext hostcuda_stream_context(CUstream handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  hostcuda::find_stream(handle, &stream);
  return stream == nullptr ? nullptr : stream->context->handle;
}

CUcontext hostcuda_current_context(void) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  hostcuda::current_context(&context);
  return context == nullptr ? nullptr : context->handle;
}

CUresult hostcuda_use_device(int ordinal) {
  return hostcuda::use_device(ordinal);
}

int hostcuda_current_device(void) {
  return hostcuda::device_for_runtime();
}

int hostcuda_stream_index(CUstream handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  hostcuda::find_stream(handle, &stream);
  return stream == nullptr ? -1 : stream->index;
}

int hostcuda_streams_created(void) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  return Engine::get().streams_created();
}

}  // extern "C"

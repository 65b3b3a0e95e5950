// SPDX-License-Identifier: MIT
// Runtime functions on streams, events, capture and graphs.
#include <memory>

#include "tools/hostcuda/cudart/copy_params.h"

using hostcuda::driver;
using hostcuda::in_context;
using hostcuda::remember;

namespace {

struct Callback {
  cudaStreamCallback_t callback;
  cudaStream_t stream;
  void* user_data;
};

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  return in_context([&] { return driver().cuStreamCreateWithPriority(stream, flags, priority); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return in_context([&] { return driver().cuStreamDestroy_v2(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return in_context([&] { return driver().cuStreamSynchronize(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return in_context([&] { return driver().cuStreamQuery(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return in_context([&] { return driver().cuStreamWaitEvent(stream, event, flags); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned int* flags) {
  return in_context([&] { return driver().cuStreamGetFlags(stream, flags); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return in_context([&] { return driver().cuStreamGetPriority(stream, priority); });
}

cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* stream_id) {
  return in_context([&] { return driver().cuStreamGetId(stream, stream_id); });
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return in_context([&] { return driver().cuStreamGetDevice(stream, device); });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* user_data) {
  return in_context([&] { return driver().cuLaunchHostFunc(stream, fn, user_data); });
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* user_data,
                                  unsigned int flags) {
  return in_context([&] {
    if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (hostcuda_stream_capturing(stream) != 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    auto held = std::make_unique<Callback>(Callback{callback, stream, user_data});
    const CUresult result = hostcuda_enqueue_owned(
        stream,
        [](void* arg) {
          const auto* c = static_cast<const Callback*>(arg);
          c->callback(c->stream, cudaSuccess, c->user_data);
        },
        [](void* arg) { delete static_cast<Callback*>(arg); }, held.get(), "stream callback");
    if (result == CUDA_SUCCESS) held.release();
    return result;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return in_context([&] { return driver().cuEventCreate(event, flags); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return in_context([&] { return driver().cuEventDestroy_v2(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return in_context([&] { return driver().cuEventRecord(event, stream); });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return in_context([&] { return driver().cuEventRecordWithFlags(event, stream, flags); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return in_context([&] { return driver().cuEventSynchronize(event); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return in_context([&] { return driver().cuEventQuery(event); });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return in_context([&] { return driver().cuEventElapsedTime_v2(ms, start, end); });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (mode == nullptr) return remember(cudaErrorInvalidValue);
  auto own = static_cast<CUstreamCaptureMode>(static_cast<int>(*mode));
  const CUresult result = driver().cuThreadExchangeStreamCaptureMode(&own);
  *mode = static_cast<cudaStreamCaptureMode>(static_cast<int>(own));
  return remember(result);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return in_context([&] {
    return driver().cuStreamBeginCapture_v2(stream, static_cast<CUstreamCaptureMode>(static_cast<int>(mode)));
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return in_context([&] { return driver().cuStreamEndCapture(stream, graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* capture_status) {
  return in_context([&] {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (capture_status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = driver().cuStreamIsCapturing(stream, &status);
    *capture_status = static_cast<cudaStreamCaptureStatus>(static_cast<int>(status));
    return result;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* capture_status,
                                     unsigned long long* id, cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edge_data, size_t* dependency_count) {
  return in_context([&] {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t number = 0;
    const CUgraphEdgeData* edges = nullptr;
    if (capture_status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = driver().cuStreamGetCaptureInfo_v3(
        stream, &status, &number, graph, dependencies, edge_data != nullptr ? &edges : nullptr, dependency_count);
    *capture_status = static_cast<cudaStreamCaptureStatus>(static_cast<int>(status));
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != nullptr) *id = number;
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE && edge_data != nullptr) {
      *edge_data = hostcuda::same_layout<const cudaGraphEdgeData>(edges);
    }
    return result;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* graph_exec, cudaGraph_t graph, unsigned long long flags) {
  return in_context([&] { return driver().cuGraphInstantiateWithFlags(graph_exec, graph, flags); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* graph_exec, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(graph_exec, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph_exec, cudaStream_t stream) {
  return in_context([&] { return driver().cuGraphLaunch(graph_exec, stream); });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graph_exec, cudaStream_t stream) {
  return in_context([&] { return driver().cuGraphUpload(graph_exec, stream); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph_exec) {
  return in_context([&] { return driver().cuGraphExecDestroy(graph_exec); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return in_context([&] { return driver().cuGraphDestroy(graph); });
}

}  // extern "C"

// SPDX-License-Identifier: MIT
// The ..._ptsz and ..._ptds twins (programs built with --default-stream per-thread): stream 0 is the calling thread's
// own stream. The synchronous ones are their asynchronous form on that stream, and a wait where the other waits.
#include "tools/hostcuda/cudart/runtime.h"

using hostcuda::per_thread;

extern "C" {

cudaError_t cudaStreamGetPriority_ptsz(cudaStream_t stream, int* priority) {
  return cudaStreamGetPriority(per_thread(stream), priority);
}

cudaError_t cudaStreamGetFlags_ptsz(cudaStream_t stream, unsigned int* flags) {
  return cudaStreamGetFlags(per_thread(stream), flags);
}

cudaError_t cudaStreamGetId_ptsz(cudaStream_t stream, unsigned long long* stream_id) {
  return cudaStreamGetId(per_thread(stream), stream_id);
}

cudaError_t cudaStreamGetDevice_ptsz(cudaStream_t stream, int* device) {
  return cudaStreamGetDevice(per_thread(stream), device);
}

cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return cudaStreamWaitEvent(per_thread(stream), event, flags);
}

cudaError_t cudaStreamAddCallback_ptsz(cudaStream_t stream, cudaStreamCallback_t callback, void* user_data,
                                       unsigned int flags) {
  return cudaStreamAddCallback(per_thread(stream), callback, user_data, flags);
}

cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t stream) {
  return cudaStreamSynchronize(per_thread(stream));
}

cudaError_t cudaStreamQuery_ptsz(cudaStream_t stream) {
  return cudaStreamQuery(per_thread(stream));
}

cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return cudaStreamBeginCapture(per_thread(stream), mode);
}

cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t* p_graph) {
  return cudaStreamEndCapture(per_thread(stream), p_graph);
}

cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t stream, cudaStreamCaptureStatus* p_capture_status) {
  return cudaStreamIsCapturing(per_thread(stream), p_capture_status);
}

cudaError_t cudaStreamGetCaptureInfo_ptsz(cudaStream_t stream, cudaStreamCaptureStatus* capture_status_out,
                                          unsigned long long* id_out, cudaGraph_t* graph_out,
                                          const cudaGraphNode_t** dependencies_out,
                                          const cudaGraphEdgeData** edge_data_out, size_t* num_dependencies_out) {
  return cudaStreamGetCaptureInfo(per_thread(stream), capture_status_out, id_out, graph_out, dependencies_out,
                                  edge_data_out, num_dependencies_out);
}

cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecord(event, per_thread(stream));
}

cudaError_t cudaEventRecordWithFlags_ptsz(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return cudaEventRecordWithFlags(event, per_thread(stream), flags);
}

cudaError_t cudaLaunchKernel_ptsz(const void* func, dim3 grid_dim, dim3 block_dim, void** args, size_t shared_mem,
                                  cudaStream_t stream) {
  return cudaLaunchKernel(func, grid_dim, block_dim, args, shared_mem, per_thread(stream));
}

cudaError_t cudaLaunchKernelExC_ptsz(const cudaLaunchConfig_t* config, const void* func, void** args) {
  if (config == nullptr) return cudaLaunchKernelExC(config, func, args);
  cudaLaunchConfig_t own = *config;
  own.stream = per_thread(own.stream);
  return cudaLaunchKernelExC(&own, func, args);
}

cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t stream, cudaHostFn_t fn, void* user_data) {
  return cudaLaunchHostFunc(per_thread(stream), fn, user_data);
}

cudaError_t cudaMemcpy_ptds(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  const cudaError_t result = cudaMemcpyAsync(dst, src, count, kind, cudaStreamPerThread);
  return result == cudaSuccess && kind != cudaMemcpyDeviceToDevice ? cudaStreamSynchronize(cudaStreamPerThread)
                                                                   : result;
}

cudaError_t cudaMemcpy2D_ptds(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                              cudaMemcpyKind kind) {
  const cudaError_t result = cudaMemcpy2DAsync(dst, dpitch, src, spitch, width, height, kind, cudaStreamPerThread);
  return result == cudaSuccess && kind != cudaMemcpyDeviceToDevice ? cudaStreamSynchronize(cudaStreamPerThread)
                                                                   : result;
}

cudaError_t cudaMemcpyAsync_ptsz(void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpyAsync(dst, src, count, kind, per_thread(stream));
}

cudaError_t cudaMemcpy2DAsync_ptsz(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                                   size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return cudaMemcpy2DAsync(dst, dpitch, src, spitch, width, height, kind, per_thread(stream));
}

cudaError_t cudaMemset_ptds(void* dev_ptr, int value, size_t count) {
  return cudaMemsetAsync(dev_ptr, value, count, cudaStreamPerThread);
}

cudaError_t cudaMemset2D_ptds(void* dev_ptr, size_t pitch, int value, size_t width, size_t height) {
  return cudaMemset2DAsync(dev_ptr, pitch, value, width, height, cudaStreamPerThread);
}

cudaError_t cudaMemsetAsync_ptsz(void* dev_ptr, int value, size_t count, cudaStream_t stream) {
  return cudaMemsetAsync(dev_ptr, value, count, per_thread(stream));
}

cudaError_t cudaMemset2DAsync_ptsz(void* dev_ptr, size_t pitch, int value, size_t width, size_t height,
                                   cudaStream_t stream) {
  return cudaMemset2DAsync(dev_ptr, pitch, value, width, height, per_thread(stream));
}

cudaError_t cudaMemPrefetchAsync_ptsz(const void* dev_ptr, size_t count, cudaMemLocation location, unsigned int flags,
                                      cudaStream_t stream) {
  return cudaMemPrefetchAsync(dev_ptr, count, location, flags, per_thread(stream));
}

cudaError_t cudaMallocAsync_ptsz(void** dev_ptr, size_t size, cudaStream_t stream) {
  return cudaMallocAsync(dev_ptr, size, per_thread(stream));
}

cudaError_t cudaFreeAsync_ptsz(void* dev_ptr, cudaStream_t stream) {
  return cudaFreeAsync(dev_ptr, per_thread(stream));
}

cudaError_t cudaGraphUpload_ptsz(cudaGraphExec_t graph_exec, cudaStream_t stream) {
  return cudaGraphUpload(graph_exec, per_thread(stream));
}

cudaError_t cudaGraphLaunch_ptsz(cudaGraphExec_t graph_exec, cudaStream_t stream) {
  return cudaGraphLaunch(graph_exec, per_thread(stream));
}

cudaError_t cudaGetDriverEntryPoint_ptsz(const char* symbol, void** func_ptr, unsigned long long flags,
                                         cudaDriverEntryPointQueryResult* driver_status) {
  return cudaGetDriverEntryPoint(symbol, func_ptr, flags | cudaEnablePerThreadDefaultStream, driver_status);
}

cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char* symbol, void** func_ptr, unsigned int cuda_version,
                                                  unsigned long long flags,
                                                  cudaDriverEntryPointQueryResult* driver_status) {
  return cudaGetDriverEntryPointByVersion(symbol, func_ptr, cuda_version, flags | cudaEnablePerThreadDefaultStream,
                                          driver_status);
}

cudaError_t cudaStreamBeginCaptureToGraph_ptsz(cudaStream_t stream, cudaGraph_t graph,
                                               const cudaGraphNode_t* dependencies, const cudaGraphEdgeData* edges,
                                               size_t count, cudaStreamCaptureMode mode) {
  return cudaStreamBeginCaptureToGraph(per_thread(stream), graph, dependencies, edges, count, mode);
}

cudaError_t cudaStreamUpdateCaptureDependencies_ptsz(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                     const cudaGraphEdgeData* edges, size_t count, unsigned int flags) {
  return cudaStreamUpdateCaptureDependencies(per_thread(stream), dependencies, edges, count, flags);
}

cudaError_t cudaMallocFromPoolAsync_ptsz(void** ptr, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
  return cudaMallocFromPoolAsync(ptr, size, pool, per_thread(stream));
}

cudaError_t cudaMemcpy3DAsync_ptsz(const cudaMemcpy3DParms* params, cudaStream_t stream) {
  return cudaMemcpy3DAsync(params, per_thread(stream));
}

cudaError_t cudaMemcpy3D_ptds(const cudaMemcpy3DParms* params) {
  const cudaError_t result = cudaMemcpy3DAsync(params, cudaStreamPerThread);
  return result == cudaSuccess && params->kind != cudaMemcpyDeviceToDevice ? cudaStreamSynchronize(cudaStreamPerThread)
                                                                           : result;
}

cudaError_t cudaMemset3DAsync_ptsz(cudaPitchedPtr pitched, int value, cudaExtent extent, cudaStream_t stream) {
  return cudaMemset3DAsync(pitched, value, extent, per_thread(stream));
}

cudaError_t cudaMemset3D_ptds(cudaPitchedPtr pitched, int value, cudaExtent extent) {
  return cudaMemset3DAsync(pitched, value, extent, cudaStreamPerThread);
}

}  // extern "C"

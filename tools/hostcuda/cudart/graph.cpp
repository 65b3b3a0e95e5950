// SPDX-License-Identifier: MIT
// Runtime functions on graphs: nodes, edges, executable graphs, user objects.
#include "tools/hostcuda/cudart/copy_params.h"

using hostcuda::address_of;
using hostcuda::driver;
using hostcuda::driver_copy;
using hostcuda::in_context;
using hostcuda::same_layout;

namespace {

// The runtime names no contexts: nodes belong to the current one.
CUcontext current() {
  return hostcuda_current_context();
}

CUresult driver_params(const cudaKernelNodeParams* from, CUDA_KERNEL_NODE_PARAMS* to) {
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *to = {nullptr,          from->gridDim.x,  from->gridDim.y,      from->gridDim.z,    from->blockDim.x,
         from->blockDim.y, from->blockDim.z, from->sharedMemBytes, from->kernelParams, from->extra,
         nullptr,          current()};
  return hostcuda::find_kernel(from->func, &to->kern);
}

const CUDA_MEMSET_NODE_PARAMS* driver_params(const cudaMemsetParams* from) {
  return same_layout<const CUDA_MEMSET_NODE_PARAMS>(from);
}
const CUDA_HOST_NODE_PARAMS* driver_params(const cudaHostNodeParams* from) {
  return same_layout<const CUDA_HOST_NODE_PARAMS>(from);
}
const CUgraphEdgeData* driver_edges(const cudaGraphEdgeData* from) {
  return same_layout<const CUgraphEdgeData>(from);
}
CUgraphEdgeData* driver_edges(cudaGraphEdgeData* from) {
  return same_layout<CUgraphEdgeData>(from);
}

}  // namespace

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned int flags) {
  return in_context([&] { return driver().cuGraphCreate(graph, flags); });
}

cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t original) {
  return in_context([&] { return driver().cuGraphClone(clone, original); });
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* node, cudaGraphNode_t original, cudaGraph_t clone) {
  return in_context([&] { return driver().cuGraphNodeFindInClone(node, original, clone); });
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaKernelNodeParams* params) {
  return in_context([&] {
    CUDA_KERNEL_NODE_PARAMS own{};
    if (const CUresult r = driver_params(params, &own); r != CUDA_SUCCESS) return r;
    return driver().cuGraphAddKernelNode_v2(node, graph, dependencies, count, &own);
  });
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* params) {
  return in_context([&] {
    CUDA_KERNEL_NODE_PARAMS own{};
    if (const CUresult r = driver_params(params, &own); r != CUDA_SUCCESS) return r;
    return driver().cuGraphKernelNodeSetParams_v2(node, &own);
  });
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* params) {
  return in_context([&] {
    CUDA_KERNEL_NODE_PARAMS own{};
    if (const CUresult r = driver_params(params, &own); r != CUDA_SUCCESS) return r;
    return driver().cuGraphExecKernelNodeSetParams_v2(exec, node, &own);
  });
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaMemcpy3DParms* params) {
  return in_context([&] {
    CUDA_MEMCPY3D own{};
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult r = driver_copy(*params, &own); r != CUDA_SUCCESS) return r;
    return driver().cuGraphAddMemcpyNode(node, graph, dependencies, count, &own, current());
  });
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* params) {
  return in_context([&] {
    CUDA_MEMCPY3D own{};
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult r = driver_copy(*params, &own); r != CUDA_SUCCESS) return r;
    return driver().cuGraphMemcpyNodeSetParams(node, &own);
  });
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* params) {
  return in_context([&] {
    CUDA_MEMCPY3D own{};
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult r = driver_copy(*params, &own); r != CUDA_SUCCESS) return r;
    return driver().cuGraphExecMemcpyNodeSetParams(exec, node, &own, current());
  });
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                     size_t dependency_count, void* dst, const void* src, size_t bytes,
                                     cudaMemcpyKind kind) {
  return in_context([&] {
    CUDA_MEMCPY3D own{};
    if (const CUresult r = driver_copy(dst, src, bytes, kind, &own); r != CUDA_SUCCESS) return r;
    return driver().cuGraphAddMemcpyNode(node, graph, dependencies, dependency_count, &own, current());
  });
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* dst, const void* src, size_t bytes,
                                           cudaMemcpyKind kind) {
  return in_context([&] {
    CUDA_MEMCPY3D own{};
    if (const CUresult r = driver_copy(dst, src, bytes, kind, &own); r != CUDA_SUCCESS) return r;
    return driver().cuGraphMemcpyNodeSetParams(node, &own);
  });
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void* dst, const void* src,
                                               size_t bytes, cudaMemcpyKind kind) {
  return in_context([&] {
    CUDA_MEMCPY3D own{};
    if (const CUresult r = driver_copy(dst, src, bytes, kind, &own); r != CUDA_SUCCESS) return r;
    return driver().cuGraphExecMemcpyNodeSetParams(exec, node, &own, current());
  });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaMemsetParams* params) {
  return in_context([&] {
    return driver().cuGraphAddMemsetNode(node, graph, dependencies, count, driver_params(params), current());
  });
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* params) {
  return in_context(
      [&] { return driver().cuGraphMemsetNodeGetParams(node, same_layout<CUDA_MEMSET_NODE_PARAMS>(params)); });
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* params) {
  return in_context([&] { return driver().cuGraphMemsetNodeSetParams(node, driver_params(params)); });
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemsetParams* params) {
  return in_context(
      [&] { return driver().cuGraphExecMemsetNodeSetParams(exec, node, driver_params(params), current()); });
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                 size_t count, const cudaHostNodeParams* params) {
  return in_context(
      [&] { return driver().cuGraphAddHostNode(node, graph, dependencies, count, driver_params(params)); });
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams* params) {
  return in_context(
      [&] { return driver().cuGraphHostNodeGetParams(node, same_layout<CUDA_HOST_NODE_PARAMS>(params)); });
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* params) {
  return in_context([&] { return driver().cuGraphHostNodeSetParams(node, driver_params(params)); });
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                           const cudaHostNodeParams* params) {
  return in_context([&] { return driver().cuGraphExecHostNodeSetParams(exec, node, driver_params(params)); });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                  size_t count) {
  return in_context([&] { return driver().cuGraphAddEmptyNode(node, graph, dependencies, count); });
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                       size_t count, cudaGraph_t child) {
  return in_context([&] { return driver().cuGraphAddChildGraphNode(node, graph, dependencies, count, child); });
}

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* graph) {
  return in_context([&] { return driver().cuGraphChildGraphNodeGetGraph(node, graph); });
}

cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child) {
  return in_context([&] { return driver().cuGraphExecChildGraphNodeSetParams(exec, node, child); });
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                        size_t count, cudaEvent_t event) {
  return in_context([&] { return driver().cuGraphAddEventRecordNode(node, graph, dependencies, count, event); });
}

cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return in_context([&] { return driver().cuGraphEventRecordNodeGetEvent(node, event); });
}

cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return in_context([&] { return driver().cuGraphEventRecordNodeSetEvent(node, event); });
}

cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event) {
  return in_context([&] { return driver().cuGraphExecEventRecordNodeSetEvent(exec, node, event); });
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                      size_t count, cudaEvent_t event) {
  return in_context([&] { return driver().cuGraphAddEventWaitNode(node, graph, dependencies, count, event); });
}

cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return in_context([&] { return driver().cuGraphEventWaitNodeGetEvent(node, event); });
}

cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return in_context([&] { return driver().cuGraphEventWaitNodeSetEvent(node, event); });
}

cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event) {
  return in_context([&] { return driver().cuGraphExecEventWaitNodeSetEvent(exec, node, event); });
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                     size_t count, cudaMemAllocNodeParams* params) {
  return in_context([&] {
    return driver().cuGraphAddMemAllocNode(node, graph, dependencies, count,
                                           same_layout<CUDA_MEM_ALLOC_NODE_PARAMS>(params));
  });
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams* params) {
  return in_context(
      [&] { return driver().cuGraphMemAllocNodeGetParams(node, same_layout<CUDA_MEM_ALLOC_NODE_PARAMS>(params)); });
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                    size_t count, void* dptr) {
  return in_context([&] { return driver().cuGraphAddMemFreeNode(node, graph, dependencies, count, address_of(dptr)); });
}

cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* dptr_out) {
  return in_context([&] { return driver().cuGraphMemFreeNodeGetParams(node, static_cast<CUdeviceptr*>(dptr_out)); });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return in_context([&] {
    CUgraphNodeType own = CU_GRAPH_NODE_TYPE_EMPTY;
    if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = driver().cuGraphNodeGetType(node, &own);
    *type = static_cast<cudaGraphNodeType>(static_cast<int>(own));
    return result;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return in_context([&] { return driver().cuGraphGetNodes(graph, nodes, count); });
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return in_context([&] { return driver().cuGraphGetRootNodes(graph, nodes, count); });
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* edges,
                              size_t* count) {
  return in_context([&] { return driver().cuGraphGetEdges_v2(graph, from, to, driver_edges(edges), count); });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges,
                                         size_t* count) {
  return in_context([&] { return driver().cuGraphNodeGetDependencies_v2(node, nodes, driver_edges(edges), count); });
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges,
                                           size_t* count) {
  return in_context([&] { return driver().cuGraphNodeGetDependentNodes_v2(node, nodes, driver_edges(edges), count); });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData* edges, size_t count) {
  return in_context([&] { return driver().cuGraphAddDependencies_v2(graph, from, to, driver_edges(edges), count); });
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                        const cudaGraphEdgeData* edges, size_t count) {
  return in_context([&] { return driver().cuGraphRemoveDependencies_v2(graph, from, to, driver_edges(edges), count); });
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return in_context([&] { return driver().cuGraphDestroyNode(node); });
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* exec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* params) {
  return in_context([&] {
    return driver().cuGraphInstantiateWithParams(exec, graph, same_layout<CUDA_GRAPH_INSTANTIATE_PARAMS>(params));
  });
}

cudaError_t cudaGraphInstantiateWithParams_ptsz(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                cudaGraphInstantiateParams* params) {
  return cudaGraphInstantiateWithParams(exec, graph, params);
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long* flags) {
  return in_context([&] {
    cuuint64_t own = 0;
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = driver().cuGraphExecGetFlags(exec, &own);
    *flags = own;
    return result;
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  return in_context(
      [&] { return driver().cuGraphExecUpdate_v2(exec, graph, same_layout<CUgraphExecUpdateResultInfo>(info)); });
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int enabled) {
  return in_context([&] { return driver().cuGraphNodeSetEnabled(exec, node, enabled); });
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int* enabled) {
  return in_context([&] { return driver().cuGraphNodeGetEnabled(exec, node, enabled); });
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned int flags) {
  return in_context([&] { return driver().cuGraphDebugDotPrint(graph, path, flags); });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* ptr, cudaHostFn_t destroy, unsigned int references,
                                 unsigned int flags) {
  return in_context([&] { return driver().cuUserObjectCreate(object, ptr, destroy, references, flags); });
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned int count) {
  return in_context([&] { return driver().cuUserObjectRetain(object, count); });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count) {
  return in_context([&] { return driver().cuUserObjectRelease(object, count); });
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned int count,
                                      unsigned int flags) {
  return in_context([&] { return driver().cuGraphRetainUserObject(graph, object, count, flags); });
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned int count) {
  return in_context([&] { return driver().cuGraphReleaseUserObject(graph, object, count); });
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                          const cudaGraphEdgeData* edges, size_t count, cudaStreamCaptureMode mode) {
  return in_context([&] {
    return driver().cuStreamBeginCaptureToGraph(stream, graph, dependencies, driver_edges(edges), count,
                                                static_cast<CUstreamCaptureMode>(static_cast<int>(mode)));
  });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData* edges, size_t count, unsigned int flags) {
  return in_context([&] {
    return driver().cuStreamUpdateCaptureDependencies_v2(stream, dependencies, driver_edges(edges), count, flags);
  });
}

cudaError_t cudaDeviceGetGraphMemAttribute(int device, cudaGraphMemAttributeType attr, void* value) {
  return in_context([&] {
    return driver().cuDeviceGetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(static_cast<int>(attr)),
                                                 value);
  });
}

cudaError_t cudaDeviceSetGraphMemAttribute(int device, cudaGraphMemAttributeType attr, void* value) {
  return in_context([&] {
    return driver().cuDeviceSetGraphMemAttribute(device, static_cast<CUgraphMem_attribute>(static_cast<int>(attr)),
                                                 value);
  });
}

cudaError_t cudaDeviceGraphMemTrim(int device) {
  return in_context([&] { return driver().cuDeviceGraphMemTrim(device); });
}

}  // extern "C"

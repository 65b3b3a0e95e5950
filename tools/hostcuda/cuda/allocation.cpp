// SPDX-License-Identifier: MIT
// Driver functions that allocate, register, free and ask about memory: cuMemAlloc..., cuMemFree..., cuMemHost...,
// cuPointer....
#include <cstring>

#include "tools/hostcuda/cuda/context.h"
#include "tools/hostcuda/cuda/graph.h"
#include "tools/hostcuda/cuda/memory.h"
#include "tools/hostcuda/cuda/pool.h"
#include "tools/hostcuda/cuda/settings.h"

namespace hostcuda {
namespace {

// The context to allocate in; allocation is not allowed while a capture forbids unsafe calls.
CUresult allocating_context(std::shared_ptr<Context>* context) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  if (const CUresult r = current_context(context); r != CUDA_SUCCESS) return r;
  return check_capture_safe();
}

// Frees as cuMemFree does: after all work of the owning context.
CUresult free_after_work(CUdeviceptr p, bool host) {
  Engine& engine = Engine::get();
  std::unique_lock<std::mutex> lock(engine.mutex);
  std::shared_ptr<Context> current;
  if (const CUresult r = current_context(&current); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
  Allocation found;
  if (!find_allocation(p, &found) || found.base != p) return CUDA_ERROR_INVALID_VALUE;
  const bool right_kind = host ? found.kind == MemoryKind::kPinned
                               : found.kind == MemoryKind::kDevice || found.kind == MemoryKind::kManaged;
  if (!right_kind) return CUDA_ERROR_INVALID_VALUE;
  if (const std::shared_ptr<GraphMemory> memory = find_graph_memory(p); memory != nullptr) {
    if (!memory->unfreed || memory->freed_in_graph) return CUDA_ERROR_INVALID_VALUE;
    memory->unfreed = false;
  }
  if (const auto owner = find_context_by_id(found.context_id); owner != nullptr) engine.wait_context(lock, owner);
  lock.unlock();
  return release(p, found.kind);
}

// Stream-ordered allocation and free in a capture: nodes of the graph.
CUresult capture_allocation(const std::shared_ptr<Stream>& stream, const Pool& pool, size_t bytes, CUdeviceptr* dptr) {
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::shared_ptr<Context> context = stream->context;
  if (context->device != device_of(pool)) {
    if (const CUresult r = primary_context(device_of(pool), &context); r != CUDA_SUCCESS) return r;
  }
  NodeContent content;
  if (const CUresult r = allocation_content(context, props_of(pool), bytes, &content); r != CUDA_SUCCESS) return r;
  content.context = stream->context;
  content.memory->graph = stream->capture->graph.get();
  *dptr = content.memory->base;
  return capture_node(stream, std::move(content));
}

CUresult capture_free(const std::shared_ptr<Stream>& stream, CUdeviceptr dptr) {
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  NodeContent content;
  if (const CUresult r = free_content(*stream->capture->graph, dptr, &content); r != CUDA_SUCCESS) return r;
  content.context = stream->context;
  return capture_node(stream, std::move(content));
}

// One attribute of the allocation that holds `ptr`; *data is as wide as cuda.h says for the attribute.
CUresult pointer_attribute(const Allocation& a, CUpointer_attribute attribute, CUdeviceptr ptr, void* data) {
  const auto offset = ptr - a.base;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      const std::lock_guard<std::mutex> lock(Engine::get().mutex);
      const auto context = find_context_by_id(a.context_id);
      const CUcontext handle = context != nullptr ? context->handle : nullptr;
      std::memcpy(data, &handle, sizeof handle);
      return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: {
      const bool host = a.kind == MemoryKind::kPinned || a.kind == MemoryKind::kRegistered;
      const unsigned type = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      std::memcpy(data, &type, sizeof type);
      return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      std::memcpy(data, &ptr, sizeof ptr);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: {
      if (a.kind == MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
      const void* host = a.host + offset;
      std::memcpy(data, &host, sizeof host);
      return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: {
      const unsigned no = 0;
      std::memcpy(data, &no, sizeof no);
      return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: {
      const unsigned long long id = a.buffer_id;
      std::memcpy(data, &id, sizeof id);
      return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: {
      const bool managed = a.kind == MemoryKind::kManaged;
      std::memcpy(data, &managed, sizeof managed);
      return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      std::memcpy(data, &a.device, sizeof a.device);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      std::memcpy(data, &a.base, sizeof a.base);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      std::memcpy(data, &a.bytes, sizeof a.bytes);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
      const CUmemoryPool pool = a.pool != nullptr ? handle_of(a.pool) : nullptr;
      std::memcpy(data, &pool, sizeof pool);
      return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: {
      const unsigned long long none = 0;
      std::memcpy(data, &none, sizeof none);
      return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: {
      const CUmemAccess_flags both = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      std::memcpy(data, &both, sizeof both);
      return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_MAPPED: {
      const bool yes = true;
      std::memcpy(data, &yes, sizeof yes);
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// Null `pool_handle`: the current pool of the stream's device. The address is there at once; it is the stream's work
// that may use it.
CUresult allocate_async(CUdeviceptr* dptr, size_t bytes, CUmemoryPool pool_handle, CUstream handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  Pool* pool = nullptr;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (dptr == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (pool_handle == nullptr) {
    pool = current_pool(stream->context->device);
  } else if (const CUresult r = find_pool(pool_handle, &pool); r != CUDA_SUCCESS) {
    return r;
  }
  if (stream->capture != nullptr) return capture_allocation(stream, *pool, bytes, dptr);
  if (const CUresult r = check_implicit_capture(*stream); r != CUDA_SUCCESS) return r;
  return allocate_from(*pool, stream->context->id, bytes, dptr);
}

}  // namespace

namespace driver {

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  std::shared_ptr<Context> context;
  if (const CUresult r = allocating_context(&context); r != CUDA_SUCCESS) return r;
  return allocate_device(context->device, context->id, bytesize, dptr);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* p_pitch, size_t width_in_bytes, size_t height,
                            unsigned int element_size_bytes) {
  constexpr size_t kPitchAlign = 512;  // CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT and more
  if (p_pitch == nullptr || width_in_bytes == 0 || height == 0) return CUDA_ERROR_INVALID_VALUE;
  if (element_size_bytes != 4 && element_size_bytes != 8 && element_size_bytes != 16) return CUDA_ERROR_INVALID_VALUE;
  const size_t pitch = (width_in_bytes + kPitchAlign - 1) / kPitchAlign * kPitchAlign;
  if (pitch < width_in_bytes || height > SIZE_MAX / pitch) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = driver::cuMemAlloc_v2(dptr, pitch * height);
  if (result == CUDA_SUCCESS) *p_pitch = pitch;
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return free_after_work(dptr, false);
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int flags) {
  std::shared_ptr<Context> context;
  if (const CUresult r = allocating_context(&context); r != CUDA_SUCCESS) return r;
  constexpr unsigned kKnown = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  return allocate_host(context->device, context->id, bytesize, MemoryKind::kPinned, flags, pp);
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return driver::cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void* p) {
  return free_after_work(reinterpret_cast<CUdeviceptr>(p), true);
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  std::shared_ptr<Context> context;
  if (const CUresult r = allocating_context(&context); r != CUDA_SUCCESS) return r;
  if (dptr == nullptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  void* base = nullptr;
  const CUresult result = allocate_host(context->device, context->id, bytesize, MemoryKind::kManaged, flags, &base);
  if (result == CUDA_SUCCESS) *dptr = reinterpret_cast<CUdeviceptr>(base);
  return result;
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream stream) {
  return allocate_async(dptr, bytesize, nullptr, stream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool, CUstream stream) {
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : allocate_async(dptr, bytesize, pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (stream->capture != nullptr) return capture_free(stream, dptr);
  Allocation found;
  if (const std::shared_ptr<GraphMemory> memory = find_graph_memory(dptr); memory != nullptr) {
    if (!memory->unfreed || memory->freed_in_graph) return CUDA_ERROR_INVALID_VALUE;
    memory->unfreed = false;
  } else if (!find_allocation(dptr, &found) || found.base != dptr || found.kind != MemoryKind::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return enqueue_body(stream, "cuMemFreeAsync", [dptr] {
    if (release(dptr, MemoryKind::kDevice) != CUDA_SUCCESS) {
      hostcuda_fault_stop_as(CUDA_ERROR_ILLEGAL_ADDRESS, describe(dptr, 0).c_str());
    }
  });
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int flags) {
  std::shared_ptr<Context> context;
  if (const CUresult r = allocating_context(&context); r != CUDA_SUCCESS) return r;
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                              CU_MEMHOSTREGISTER_READ_ONLY;
  if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  return register_host(context->device, context->id, p, bytesize, flags);
}

CUresult cuMemHostUnregister(void* p) {
  Engine& engine = Engine::get();
  {
    std::unique_lock<std::mutex> lock(engine.mutex);
    std::shared_ptr<Context> context;
    if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
    if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
    Allocation found;
    if (find_allocation(reinterpret_cast<CUdeviceptr>(p), &found)) {
      if (const auto owner = find_context_by_id(found.context_id); owner != nullptr) engine.wait_context(lock, owner);
    }
  }
  return release(reinterpret_cast<CUdeviceptr>(p), MemoryKind::kRegistered);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int flags) {
  if (pdptr == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Allocation found;
  if (!find_allocation(reinterpret_cast<CUdeviceptr>(p), &found) || found.kind == MemoryKind::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pdptr = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* p_flags, void* p) {
  Allocation found;
  if (p_flags == nullptr || !find_allocation(reinterpret_cast<CUdeviceptr>(p), &found) ||
      found.kind != MemoryKind::kPinned) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *p_flags = found.flags | CU_MEMHOSTALLOC_DEVICEMAP;  // under unified addressing all pinned memory is mapped
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  int device = 0;
  {
    const std::lock_guard<std::mutex> lock(Engine::get().mutex);
    std::shared_ptr<Context> context;
    if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
    device = context->device;
  }
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *free = free_bytes(device);
  *total = start_settings().device_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  Allocation found;
  if (!find_address(dptr, &found)) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = found.base;
  if (psize != nullptr) *psize = found.bytes;
  return CUDA_SUCCESS;
}

// Managed memory lies where both sides reach it: moving it and advice about it change nothing.
CUresult cuMemPrefetchAsync_v2(CUdeviceptr dev_ptr, size_t count, CUmemLocation, unsigned int, CUstream handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  Allocation found;
  if (!find_allocation(dev_ptr, &found) || found.kind != MemoryKind::kManaged ||
      count > found.bytes - (dev_ptr - found.base)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync(CUdeviceptr dev_ptr, size_t count, CUdevice, CUstream stream) {
  return driver::cuMemPrefetchAsync_v2(dev_ptr, count, {}, 0, stream);
}

CUresult cuMemAdvise(CUdeviceptr dev_ptr, size_t count, CUmem_advise advice, CUdevice) {
  return driver::cuMemAdvise_v2(dev_ptr, count, advice, {});
}

CUresult cuMemAdvise_v2(CUdeviceptr dev_ptr, size_t count, CUmem_advise, CUmemLocation) {
  Allocation found;
  if (!find_allocation(dev_ptr, &found) || found.kind != MemoryKind::kManaged ||
      count > found.bytes - (dev_ptr - found.base)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Allocation found;
  if (data == nullptr || !find_address(ptr, &found)) return CUDA_ERROR_INVALID_VALUE;
  return pointer_attribute(found, attribute, ptr, data);
}

// As the real one: an address that the device does not know is no error, its attributes read as zero.
CUresult cuPointerGetAttributes(unsigned int num_attributes, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr ptr) {
  if (num_attributes == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Allocation found;
  const bool known = find_address(ptr, &found);
  for (unsigned i = 0; i < num_attributes; ++i) {
    if (known && pointer_attribute(found, attributes[i], ptr, data[i]) == CUDA_SUCCESS) continue;
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      case CU_POINTER_ATTRIBUTE_MAPPED:
        std::memset(data[i], 0, sizeof(bool));
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
        const int none = -2;  // CU_DEVICE_INVALID
        std::memcpy(data[i], &none, sizeof none);
        break;
      }
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        std::memset(data[i], 0, sizeof(unsigned));
        break;
      case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      case CU_POINTER_ATTRIBUTE_CONTEXT:
      case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        std::memset(data[i], 0, sizeof(void*));
        break;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace driver
}  // namespace hostcuda

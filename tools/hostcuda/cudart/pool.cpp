// SPDX-License-Identifier: MIT
// Runtime functions on memory pools and on access between devices.
#include "tools/hostcuda/cudart/copy_params.h"

using hostcuda::driver;
using hostcuda::in_context;
using hostcuda::remember;
using hostcuda::same_layout;

namespace {

CUmemLocation* driver_location(cudaMemLocation* location) {
  return same_layout<CUmemLocation>(location);
}

// The primary context of a peer, made where it is not there (peers are named by device here) and kept from then on.
CUresult peer_context(int device, CUcontext* context) {
  return driver().cuDevicePrimaryCtxRetain(context, device);
}

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return in_context([&] { return driver().cuDeviceGetDefaultMemPool(pool, device); });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return in_context([&] { return driver().cuDeviceGetMemPool(pool, device); });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return in_context([&] { return driver().cuDeviceSetMemPool(device, pool); });
}

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
  return in_context([&] {
    return driver().cuMemGetDefaultMemPool(pool, driver_location(location),
                                           static_cast<CUmemAllocationType>(static_cast<int>(type)));
  });
}

cudaError_t cudaMemGetMemPool(cudaMemPool_t* pool, cudaMemLocation* location, cudaMemAllocationType type) {
  return in_context([&] {
    return driver().cuMemGetMemPool(pool, driver_location(location),
                                    static_cast<CUmemAllocationType>(static_cast<int>(type)));
  });
}

cudaError_t cudaMemSetMemPool(cudaMemLocation* location, cudaMemAllocationType type, cudaMemPool_t pool) {
  return in_context([&] {
    return driver().cuMemSetMemPool(driver_location(location), static_cast<CUmemAllocationType>(static_cast<int>(type)),
                                    pool);
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* props) {
  return in_context([&] { return driver().cuMemPoolCreate(pool, same_layout<const CUmemPoolProps>(props)); });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return in_context([&] { return driver().cuMemPoolDestroy(pool); });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t min_bytes_to_keep) {
  return in_context([&] { return driver().cuMemPoolTrimTo(pool, min_bytes_to_keep); });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attr, void* value) {
  return in_context([&] {
    return driver().cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(static_cast<int>(attr)), value);
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attr, void* value) {
  return in_context([&] {
    return driver().cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(static_cast<int>(attr)), value);
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* list, size_t count) {
  return in_context([&] { return driver().cuMemPoolSetAccess(pool, same_layout<const CUmemAccessDesc>(list), count); });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool, cudaMemLocation* location) {
  return in_context([&] {
    CUmemAccess_flags own = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = driver().cuMemPoolGetAccess(&own, pool, driver_location(location));
    *flags = static_cast<cudaMemAccessFlags>(static_cast<int>(own));
    return result;
  });
}

cudaError_t cudaMallocFromPoolAsync(void** ptr, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
  return in_context([&] {
    CUdeviceptr p = 0;
    if (ptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = driver().cuMemAllocFromPoolAsync(&p, size, pool, stream);
    if (result == CUDA_SUCCESS) *ptr = reinterpret_cast<void*>(p);
    return result;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer_device, unsigned int flags) {
  return in_context([&] {
    CUcontext peer = nullptr;
    if (peer_device == hostcuda_current_device()) return CUDA_ERROR_INVALID_DEVICE;
    if (const CUresult r = peer_context(peer_device, &peer); r != CUDA_SUCCESS) return r;
    return driver().cuCtxEnablePeerAccess(peer, flags);
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer_device) {
  return in_context([&] {
    CUcontext peer = nullptr;
    if (const CUresult r = peer_context(peer_device, &peer); r != CUDA_SUCCESS) return r;
    return driver().cuCtxDisablePeerAccess(peer);
  });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attr, int src_device, int dst_device) {
  CUresult result = driver().cuInit(0);
  if (result == CUDA_SUCCESS) {
    result = driver().cuDeviceGetP2PAttribute(value, static_cast<CUdevice_P2PAttribute>(static_cast<int>(attr)),
                                              src_device, dst_device);
  }
  return remember(result);
}

}  // extern "C"

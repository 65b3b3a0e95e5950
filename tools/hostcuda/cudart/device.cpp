// SPDX-License-Identifier: MIT
// Runtime functions on devices and versions.
#include <cstring>

#include "tools/hostcuda/cudart/runtime.h"
#include "tools/hostcuda/major/version.h"

using hostcuda::driver;
using hostcuda::in_context;
using hostcuda::remember;

namespace {

int attribute(CUdevice_attribute which, int device) {
  int value = 0;
  driver().cuDeviceGetAttribute(&value, which, device);
  return value;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  CUresult result = driver().cuInit(0);
  if (result == CUDA_SUCCESS) result = driver().cuDeviceGetCount(count);
  return remember(result);
}

cudaError_t cudaSetDevice(int device) {
  return remember(device < 0 ? CUDA_ERROR_INVALID_DEVICE : hostcuda_use_device(device));
}

cudaError_t cudaInitDevice(int device, unsigned int, unsigned int) {
  CUresult result = driver().cuInit(0);
  CUcontext context = nullptr;
  if (result == CUDA_SUCCESS) result = driver().cuDevicePrimaryCtxRetain(&context, device);
  return remember(result);
}

cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return remember(cudaErrorInvalidValue);
  *device = hostcuda_current_device();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (prop == nullptr) return remember(cudaErrorInvalidValue);
  CUresult result = driver().cuInit(0);
  CUuuid uuid{};
  std::memset(prop, 0, sizeof *prop);
  if (result == CUDA_SUCCESS) result = driver().cuDeviceGetName(prop->name, sizeof prop->name, device);
  if (result == CUDA_SUCCESS) result = driver().cuDeviceGetUuid_v2(&uuid, device);
  if (result == CUDA_SUCCESS) result = driver().cuDeviceTotalMem_v2(&prop->totalGlobalMem, device);
  if (result != CUDA_SUCCESS) return remember(result);
  std::memcpy(&prop->uuid, &uuid, sizeof uuid);
  const auto get = [device](CUdevice_attribute which) { return attribute(which, device); };
  const auto bytes = [device](CUdevice_attribute which) { return static_cast<size_t>(attribute(which, device)); };
  prop->sharedMemPerBlock = bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  prop->sharedMemPerBlockOptin = bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  prop->sharedMemPerMultiprocessor = bytes(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  prop->reservedSharedMemPerBlock = bytes(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  prop->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  prop->regsPerMultiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  prop->warpSize = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  prop->memPitch = bytes(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  prop->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  prop->maxThreadsDim[0] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  prop->maxThreadsDim[1] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  prop->maxThreadsDim[2] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  prop->maxGridSize[0] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  prop->maxGridSize[1] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  prop->maxGridSize[2] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  prop->totalConstMem = bytes(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  prop->major = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  prop->minor = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  prop->textureAlignment = bytes(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  prop->texturePitchAlignment = bytes(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT);
  prop->multiProcessorCount = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  prop->maxThreadsPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  prop->maxBlocksPerMultiProcessor = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  prop->canMapHostMemory = get(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
  prop->concurrentKernels = get(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS);
  prop->pciBusID = get(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  prop->pciDeviceID = get(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  prop->pciDomainID = get(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  prop->asyncEngineCount = get(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
  prop->unifiedAddressing = get(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  prop->memoryBusWidth = get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  prop->l2CacheSize = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  prop->streamPrioritiesSupported = get(CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED);
  prop->globalL1CacheSupported = get(CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED);
  prop->localL1CacheSupported = get(CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED);
  prop->managedMemory = get(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
  prop->concurrentManagedAccess = get(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS);
  prop->canUseHostPointerForRegisteredMem = get(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
  prop->memoryPoolsSupported = get(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  prop->hostRegisterSupported = get(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
  return cudaSuccess;
}

// cudaDeviceAttr and CUdevice_attribute have the same numbers.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  CUresult result = driver().cuInit(0);
  if (result == CUDA_SUCCESS) {
    result = driver().cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(static_cast<int>(attr)), device);
  }
  return remember(result);
}

cudaError_t cudaDeviceGetPCIBusId(char* pci_bus_id, int len, int device) {
  CUresult result = driver().cuInit(0);
  if (result == CUDA_SUCCESS) result = driver().cuDeviceGetPCIBusId(pci_bus_id, len, device);
  return remember(result);
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* pci_bus_id) {
  CUresult result = driver().cuInit(0);
  if (result == CUDA_SUCCESS) result = driver().cuDeviceGetByPCIBusId(device, pci_bus_id);
  return remember(result);
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access_peer, int device, int peer_device) {
  CUresult result = driver().cuInit(0);
  if (result == CUDA_SUCCESS) result = driver().cuDeviceCanAccessPeer(can_access_peer, device, peer_device);
  return remember(result);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least_priority, int* greatest_priority) {
  return in_context([&] { return driver().cuCtxGetStreamPriorityRange(least_priority, greatest_priority); });
}

cudaError_t cudaDeviceSynchronize(void) {
  return in_context([] { return driver().cuCtxSynchronize(); });
}

cudaError_t cudaDeviceReset(void) {
  CUresult result = driver().cuInit(0);
  if (result == CUDA_SUCCESS) result = driver().cuDevicePrimaryCtxReset_v2(hostcuda_current_device());
  return remember(result);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  constexpr unsigned kKnown =
      cudaDeviceScheduleMask | cudaDeviceMapHost | cudaDeviceLmemResizeToMax | cudaDeviceSyncMemops;
  if ((flags & ~kKnown) != 0) return remember(cudaErrorInvalidValue);
  CUresult result = driver().cuInit(0);
  if (result == CUDA_SUCCESS) result = driver().cuDevicePrimaryCtxSetFlags_v2(hostcuda_current_device(), flags);
  return remember(result);
}

cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  int active = 0;
  CUresult result = driver().cuInit(0);
  if (result == CUDA_SUCCESS) result = driver().cuDevicePrimaryCtxGetState(hostcuda_current_device(), flags, &active);
  return remember(result);
}

// One cache, one split: the setting is taken and changes nothing.
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) {
  return in_context([] { return CUDA_SUCCESS; });
}

cudaError_t cudaDriverGetVersion(int* driver_version) {
  return remember(driver().cuDriverGetVersion(driver_version));
}

cudaError_t cudaRuntimeGetVersion(int* runtime_version) {
  if (runtime_version == nullptr) return remember(cudaErrorInvalidValue);
  *runtime_version = hostcuda::kCudartVersion;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return in_context([&] { return driver().cuMemGetInfo_v2(free, total); });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** func_ptr, unsigned int cuda_version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = driver().cuGetProcAddress_v2(symbol, func_ptr, static_cast<int>(cuda_version), flags, &found);
  if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(static_cast<int>(found));
  return remember(result);
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** func_ptr, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(symbol, func_ptr, static_cast<unsigned>(hostcuda::kCudartVersion), flags,
                                          status);
}

}  // extern "C"

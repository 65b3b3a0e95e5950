// SPDX-License-Identifier: MIT
// Devices: how many, what they are called, what they report; driver functions cuDevice..., cuDriverGetVersion.
#include "tools/hostcuda/cuda/driver_api.h"
//
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>

#include "tools/hostcuda/cuda/engine.h"
#include "tools/hostcuda/cuda/limits.h"
#include "tools/hostcuda/cuda/settings.h"

namespace hostcuda {
namespace {

CUresult check_device(CUdevice dev) {
  {
    const std::lock_guard<std::mutex> lock(Engine::get().mutex);
    if (Engine::get().exiting) return CUDA_ERROR_DEINITIALIZED;
    if (!Engine::get().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  }
  return dev >= 0 && dev < start_settings().devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// "hostcuda simulated H100": it says in its name what it is.
std::string device_name() {
  const std::string& order = start_settings().order;
  const auto starts = [&order](const char* prefix) { return order.rfind(prefix, 0) == 0; };
  if (starts("h100")) return "hostcuda simulated H100";
  if (starts("a100")) return "hostcuda simulated A100";
  if (starts("v100")) return "hostcuda simulated V100";
  if (starts("b200")) return "hostcuda simulated B200";
  if (starts("ada")) return "hostcuda simulated Ada";
  return "hostcuda simulated device, order " + order;
}

// Which of the machine's boards is device `ordinal` of this process.
int board_of(int ordinal) {
  return start_settings().boards[static_cast<size_t>(ordinal)];
}

// Each board sits on a bus of its own, from 0x10 on.
int bus_of(int board) {
  return 0x10 + board;
}

CUresult attribute(CUdevice dev, CUdevice_attribute attrib, int* value) {
  const int capability = start_settings().capability;
  switch (attrib) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      *value = static_cast<int>(kMaxBlockZ);
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      *value = INT_MAX;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      *value = static_cast<int>(kMaxGridY);
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *value = 48 * 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = shared_opt_in_bytes(capability);
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = shared_opt_in_bytes(capability) + 1024;  // what the system keeps of each block
      break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      *value = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      *value = INT_MAX;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *value = static_cast<int>(kRegistersPerBlock);
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *value = 1000000;  // kHz; a simulated device has no clock, and 0 would be divided by
      break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 50 << 20;
      break;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      *value = 512;
      break;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = kMultiprocessors;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *value = capability == 89 ? 1536 : kThreadsPerMultiprocessor;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      *value = capability == 89 ? 24 : 32;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = capability / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = capability % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = bus_of(board_of(dev));
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
      *value = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *value = 2;
      break;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      *value = 2;
      break;
    default:
      // What this device lacks reads as 0: clusters, textures, MIG, shareable handles, ...
      if (attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
      *value = 0;
      break;
  }
  return CUDA_SUCCESS;
}

}  // namespace

namespace driver {

CUresult cuDriverGetVersion(int* driver_version) {
  if (driver_version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driver_version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult r = check_device(ordinal); r != CUDA_SUCCESS) return r;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (const CUresult r = check_device(0); r != CUDA_SUCCESS) return r;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = start_settings().devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  if (const CUresult r = check_device(dev); r != CUDA_SUCCESS) return r;
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(name, static_cast<size_t>(len), "%s", device_name().c_str());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  if (const CUresult r = check_device(dev); r != CUDA_SUCCESS) return r;
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned char bytes[16];
  hostcuda_device_uuid(dev, bytes);
  std::memcpy(uuid->bytes, bytes, sizeof bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  return driver::cuDeviceGetUuid_v2(uuid, dev);
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attrib, CUdevice dev) {
  if (const CUresult r = check_device(dev); r != CUDA_SUCCESS) return r;
  return value == nullptr ? CUDA_ERROR_INVALID_VALUE : attribute(dev, attrib, value);
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  if (const CUresult r = check_device(dev); r != CUDA_SUCCESS) return r;
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = start_settings().device_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* pci_bus_id, int len, CUdevice dev) {
  if (const CUresult r = check_device(dev); r != CUDA_SUCCESS) return r;
  if (pci_bus_id == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(pci_bus_id, static_cast<size_t>(len), "0000:%02X:00.0", static_cast<unsigned>(bus_of(board_of(dev))));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pci_bus_id) {
  if (const CUresult r = check_device(0); r != CUDA_SUCCESS) return r;
  if (dev == nullptr || pci_bus_id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  if (std::sscanf(pci_bus_id, "%x:%x:%x", &domain, &bus, &device) != 3 || domain != 0 || device != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (int i = 0; i < start_settings().devices; ++i) {
    if (static_cast<unsigned>(bus_of(board_of(i))) == bus) {
      *dev = i;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* can_access_peer, CUdevice dev, CUdevice peer_dev) {
  if (const CUresult r = check_device(dev); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check_device(peer_dev); r != CUDA_SUCCESS) return r;
  if (can_access_peer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can_access_peer = dev != peer_dev ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice src_device, CUdevice dst_device) {
  if (const CUresult r = check_device(src_device); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check_device(dst_device); r != CUDA_SUCCESS) return r;
  if (src_device == dst_device) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  if (const CUresult r = check_device(dev); r != CUDA_SUCCESS) return r;
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = start_settings().capability / 10;
  *minor = start_settings().capability % 10;
  return CUDA_SUCCESS;
}

}  // namespace driver
}  // namespace hostcuda

extern "C" {

int hostcuda_device_count(void) {
  return hostcuda::start_settings().devices;
}

int hostcuda_device_uuid(int ordinal, unsigned char uuid[16]) {
  if (ordinal < 0 || ordinal >= hostcuda::start_settings().devices) return -1;
  hostcuda::board_uuid(hostcuda::board_of(ordinal), uuid);
  return 0;
}

int hostcuda_device_board(int ordinal) {
  return ordinal < 0 || ordinal >= hostcuda::start_settings().devices ? -1 : hostcuda::board_of(ordinal);
}

int hostcuda_compute_capability(int ordinal) {
  return ordinal < 0 || ordinal >= hostcuda::start_settings().devices ? -1 : hostcuda::start_settings().capability;
}

}  // extern "C"

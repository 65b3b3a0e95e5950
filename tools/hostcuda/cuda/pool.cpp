// SPDX-License-Identifier: MIT
// Memory pools; driver functions cuMemPool..., cuDevice...MemPool, cuMem...MemPool, cuMemAllocFromPoolAsync,
// cuDevice...GraphMem....
#include "tools/hostcuda/cuda/pool.h"

#include <algorithm>
#include <cstring>

#include "tools/hostcuda/cuda/context.h"
#include "tools/hostcuda/cuda/graph.h"
#include "tools/hostcuda/cuda/settings.h"
#include "tools/hostcuda/cuda/tsan.h"

namespace hostcuda {

struct Pool {
  CUmemPoolProps props{};
  int device = 0;
  bool is_default = false;
  bool destroyed = false;  // no handle any more; goes with its last allocation
  cuuint64_t threshold = 0;
  int reuse[3] = {1, 1, 1};  // the CU_MEMPOOL_ATTR_REUSE_... flags, in their order
  size_t used = 0;
  size_t used_high = 0;
  size_t reserved = 0;
  size_t reserved_high = 0;
  std::atomic<uint32_t> reaching{0};  // one bit a device
};

namespace {

constexpr size_t kChunk = 2 << 20;  // what a pool asks the device for at a time

constexpr size_t round_up(size_t n, size_t to) {
  return (n + to - 1) / to * to;
}

struct Pools {
  std::mutex mutex;
  std::vector<std::unique_ptr<Pool>> all;
  Pool* standard[kMaxDevices] = {};
  Pool* current[kMaxDevices] = {};
};

Pools& pools() {
  static Pools* const instance = [] {
    auto* p = new Pools;
    for (int device = 0; device < start_settings().devices; ++device) {
      auto pool = std::make_unique<Pool>();
      pool->device = device;
      pool->is_default = true;
      pool->props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
      pool->props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      pool->props.location.id = device;
      pool->reaching = 1u << device;
      p->standard[device] = p->current[device] = pool.get();
      p->all.push_back(std::move(pool));
    }
    return p;
  }();
  return *instance;
}

// Lowers what a pool holds to `keep`, or to what its allocations need. Pools::mutex is held.
void shrink(Pool& pool, size_t keep) {
  const size_t target = std::max(round_up(pool.used, kChunk), keep);
  if (pool.reserved <= target) return;
  uncharge(pool.device, pool.reserved - target);
  pool.reserved = target;
}

void drop_if_over(Pool& pool) {
  if (!pool.destroyed || pool.used != 0) return;
  uncharge(pool.device, pool.reserved);
  std::erase_if(pools().all, [&pool](const auto& held) { return held.get() == &pool; });
}

bool valid_device(CUdevice device) {
  return device >= 0 && device < start_settings().devices;
}

CUresult check_device(CUdevice device) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  if (Engine::get().exiting) return CUDA_ERROR_DEINITIALIZED;
  if (!Engine::get().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  return valid_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// The device that a location names; pools of host memory are not there.
CUresult device_at(const CUmemLocation* location, CUmemAllocationType type, CUdevice* device) {
  if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  *device = location->id;
  return CUDA_SUCCESS;
}

CUresult find_locked(CUmemoryPool handle, Pool** pool) {
  for (const auto& held : pools().all) {
    if (handle_of(held.get()) == handle && !held->destroyed) {
      *pool = held.get();
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

Pool* current_pool(int device) {
  const std::lock_guard<std::mutex> lock(pools().mutex);
  return pools().current[device];
}

CUresult find_pool(CUmemoryPool handle, Pool** pool) {
  const std::lock_guard<std::mutex> lock(pools().mutex);
  return find_locked(handle, pool);
}

int device_of(const Pool& pool) {
  return pool.device;
}
const CUmemPoolProps& props_of(const Pool& pool) {
  return pool.props;
}

CUresult allocate_from(Pool& pool, uint64_t context_id, size_t bytes, CUdeviceptr* base) {
  const std::lock_guard<std::mutex> lock(pools().mutex);
  const size_t needed = pool.used + allocation_bytes(bytes);
  if (needed > pool.reserved) {
    const size_t most = pool.props.maxSize != 0 ? pool.props.maxSize : SIZE_MAX;
    if (needed > most) return CUDA_ERROR_OUT_OF_MEMORY;
    size_t target = std::min(round_up(needed, kChunk), most);
    if (!charge(pool.device, target - pool.reserved)) {
      target = needed;  // the last bytes of a device come in no chunks
      if (!charge(pool.device, target - pool.reserved)) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pool.reserved = target;
    pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  }
  if (const CUresult r = allocate_device(pool.device, context_id, bytes, base, &pool); r != CUDA_SUCCESS) return r;
  pool.used = needed;
  pool.used_high = std::max(pool.used_high, pool.used);
  return CUDA_SUCCESS;
}

void give_back(Pool& pool, size_t bytes) {
  const std::lock_guard<std::mutex> lock(pools().mutex);
  pool.used -= allocation_bytes(bytes);
  drop_if_over(pool);
}

HOSTCUDA_NO_TSAN bool pool_reaches(const Pool& pool, int device) {
  return (pool.reaching.load(std::memory_order_relaxed) >> device & 1) != 0;
}

void trim_pools(int device) {
  const std::lock_guard<std::mutex> lock(pools().mutex);
  for (const auto& pool : pools().all) {
    if (pool->device == device) shrink(*pool, std::min<size_t>(pool->reserved, pool->threshold));
  }
}

namespace driver {

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  if (const CUresult r = check_device(dev); r != CUDA_SUCCESS) return r;
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pool_out = handle_of(pools().standard[dev]);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  if (const CUresult r = check_device(dev); r != CUDA_SUCCESS) return r;
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pool = handle_of(current_pool(dev));
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle) {
  if (const CUresult r = check_device(dev); r != CUDA_SUCCESS) return r;
  const std::lock_guard<std::mutex> lock(pools().mutex);
  Pool* pool = nullptr;
  if (const CUresult r = find_locked(handle, &pool); r != CUDA_SUCCESS) return r;
  if (pool->device != dev) return CUDA_ERROR_INVALID_VALUE;
  pools().current[dev] = pool;
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location, CUmemAllocationType type) {
  CUdevice device = 0;
  if (const CUresult r = device_at(location, type, &device); r != CUDA_SUCCESS) return r;
  return driver::cuDeviceGetDefaultMemPool(pool_out, device);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool_out, CUmemLocation* location, CUmemAllocationType type) {
  CUdevice device = 0;
  if (const CUresult r = device_at(location, type, &device); r != CUDA_SUCCESS) return r;
  return driver::cuDeviceGetMemPool(pool_out, device);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  CUdevice device = 0;
  if (const CUresult r = device_at(location, type, &device); r != CUDA_SUCCESS) return r;
  return driver::cuDeviceSetMemPool(device, pool);
}

CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* pool_props) {
  if (out == nullptr || pool_props == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdevice device = 0;
  if (const CUresult r = device_at(&pool_props->location, pool_props->allocType, &device); r != CUDA_SUCCESS) return r;
  if (const CUresult r = check_device(device); r != CUDA_SUCCESS) return r;
  if (pool_props->handleTypes != CU_MEM_HANDLE_TYPE_NONE || pool_props->usage != 0) return CUDA_ERROR_NOT_SUPPORTED;
  auto pool = std::make_unique<Pool>();
  pool->props = *pool_props;
  pool->device = device;
  pool->reaching = 1u << device;
  const std::lock_guard<std::mutex> lock(pools().mutex);
  *out = handle_of(pool.get());
  pools().all.push_back(std::move(pool));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  const std::lock_guard<std::mutex> lock(pools().mutex);
  Pool* pool = nullptr;
  if (const CUresult r = find_locked(handle, &pool); r != CUDA_SUCCESS) return r;
  if (pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  if (pools().current[pool->device] == pool) pools().current[pool->device] = pools().standard[pool->device];
  pool->destroyed = true;
  drop_if_over(*pool);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t min_bytes_to_keep) {
  const std::lock_guard<std::mutex> lock(pools().mutex);
  Pool* pool = nullptr;
  if (const CUresult r = find_locked(handle, &pool); r != CUDA_SUCCESS) return r;
  shrink(*pool, std::min(pool->reserved, min_bytes_to_keep));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(pools().mutex);
  Pool* pool = nullptr;
  if (const CUresult r = find_locked(handle, &pool); r != CUDA_SUCCESS) return r;
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: {
      int flag = 0;
      std::memcpy(&flag, value, sizeof flag);
      pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = flag != 0 ? 1 : 0;
      return CUDA_SUCCESS;
    }
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      std::memcpy(&pool->threshold, value, sizeof pool->threshold);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: {
      cuuint64_t high = 0;
      std::memcpy(&high, value, sizeof high);
      if (high != 0) return CUDA_ERROR_INVALID_VALUE;  // a watermark can only be reset
      if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        pool->used_high = pool->used;
      } else {
        pool->reserved_high = pool->reserved;
      }
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(pools().mutex);
  Pool* pool = nullptr;
  if (const CUresult r = find_locked(handle, &pool); r != CUDA_SUCCESS) return r;
  cuuint64_t number = 0;
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(value, &pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      number = pool->threshold;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      number = pool->reserved;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      number = pool->reserved_high;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      number = pool->used;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      number = pool->used_high;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(value, &number, sizeof number);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* map, size_t count) {
  if (map == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(pools().mutex);
  Pool* pool = nullptr;
  if (const CUresult r = find_locked(handle, &pool); r != CUDA_SUCCESS) return r;
  uint32_t reaching = pool->reaching;
  for (size_t i = 0; i < count; ++i) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(map[i].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const uint32_t bit = 1u << map[i].location.id;
    if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      reaching |= bit;
    } else if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE && map[i].location.id != pool->device) {
      reaching &= ~bit;
    } else {
      return CUDA_ERROR_INVALID_VALUE;  // read only, or the pool's own device
    }
  }
  pool->reaching = reaching;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(pools().mutex);
  Pool* pool = nullptr;
  if (const CUresult r = find_locked(handle, &pool); r != CUDA_SUCCESS) return r;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !valid_device(location->id)) return CUDA_ERROR_INVALID_VALUE;
  *flags = pool_reaches(*pool, location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

// Graphs' allocations reserve nothing beyond what a launch uses: both pairs of figures are the same, and a trim finds
// nothing.
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  if (const CUresult r = check_device(device); r != CUDA_SUCCESS) return r;
  if (value == nullptr || attr < CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT || attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool high = attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  const cuuint64_t number = graph_bytes(device, high);
  std::memcpy(value, &number, sizeof number);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  if (const CUresult r = check_device(device); r != CUDA_SUCCESS) return r;
  cuuint64_t number = 1;
  if (value != nullptr) std::memcpy(&number, value, sizeof number);
  const bool high = attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  if (!high || number != 0) return CUDA_ERROR_INVALID_VALUE;
  reset_graph_bytes_high(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return check_device(device);
}

}  // namespace driver
}  // namespace hostcuda

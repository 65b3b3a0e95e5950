// SPDX-License-Identifier: MIT
// Stream-ordered allocation and its pools: what a pool reserves, keeps and gives back, its limits and its attributes,
// and that the order of a free is the stream's.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/hostcuda/device_fixture.h"

namespace hostcuda_test {
namespace {

constexpr size_t kMiB = 1 << 20;

class Pools : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    ASSERT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    ASSERT_EQ(cuMemPoolCreate(&pool_, &props), CUDA_SUCCESS);
  }
  void TearDown() override {
    cuCtxSynchronize();
    if (pool_ != nullptr) {
      EXPECT_EQ(cuMemPoolDestroy(pool_), CUDA_SUCCESS);
    }
    DeviceTest::TearDown();
  }
  cuuint64_t get(CUmemPool_attribute attribute) const {
    cuuint64_t value = 0;
    EXPECT_EQ(cuMemPoolGetAttribute(pool_, attribute, &value), CUDA_SUCCESS);
    return value;
  }
  cuuint64_t used() const { return get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }
  cuuint64_t reserved() const { return get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
  void set_threshold(cuuint64_t bytes) const {
    ASSERT_EQ(cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes), CUDA_SUCCESS);
  }
  CUdeviceptr take(size_t bytes) const {
    CUdeviceptr p = 0;
    EXPECT_EQ(cuMemAllocFromPoolAsync(&p, bytes, pool_, stream_), CUDA_SUCCESS);
    return p;
  }
  static size_t free_on_device() {
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }

  CUstream stream_ = nullptr;
  CUmemoryPool pool_ = nullptr;
};

TEST_F(Pools, GiveBackAtTheNextSynchronisation) {
  const size_t before = free_on_device();
  const CUdeviceptr p = take(3 * kMiB);
  EXPECT_EQ(used(), 3 * kMiB);
  EXPECT_EQ(reserved(), 4 * kMiB) << "chunks of 2 MiB";
  EXPECT_EQ(free_on_device(), before - 4 * kMiB);
  ASSERT_EQ(cuMemFreeAsync(p, stream_), CUDA_SUCCESS);
  while (cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(reserved(), 4 * kMiB) << "kept until something synchronises";
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(reserved(), 0u);
  EXPECT_EQ(free_on_device(), before);
  EXPECT_EQ(get(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 3 * kMiB);
  EXPECT_EQ(get(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 4 * kMiB);
}

TEST_F(Pools, KeepWhatTheirThresholdSays) {
  set_threshold(UINT64_MAX);
  EXPECT_EQ(get(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), UINT64_MAX);
  ASSERT_EQ(cuMemFreeAsync(take(6 * kMiB), stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(reserved(), 6 * kMiB);
  const CUdeviceptr p = take(kMiB);
  EXPECT_EQ(reserved(), 6 * kMiB) << "from what it kept";
  ASSERT_EQ(cuMemPoolTrimTo(pool_, 4 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(reserved(), 4 * kMiB);
  ASSERT_EQ(cuMemPoolTrimTo(pool_, 0), CUDA_SUCCESS);
  EXPECT_EQ(reserved(), 2 * kMiB) << "what an allocation needs stays";
  ASSERT_EQ(cuMemFreeAsync(p, stream_), CUDA_SUCCESS);
  set_threshold(0);
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(Pools, WatermarksAreOnlyReset) {
  ASSERT_EQ(cuMemFreeAsync(take(kMiB), stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  cuuint64_t value = 5;
  EXPECT_EQ(cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), CUDA_ERROR_INVALID_VALUE);
  value = 0;
  EXPECT_EQ(cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), CUDA_SUCCESS);
  EXPECT_EQ(get(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0u);
  EXPECT_EQ(cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), CUDA_ERROR_INVALID_VALUE);
  int flag = -1;
  for (const CUmemPool_attribute reuse :
       {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
    ASSERT_EQ(cuMemPoolGetAttribute(pool_, reuse, &flag), CUDA_SUCCESS);
    EXPECT_EQ(flag, 1) << "on by default";
    flag = 0;
    ASSERT_EQ(cuMemPoolSetAttribute(pool_, reuse, &flag), CUDA_SUCCESS);
    flag = -1;
    ASSERT_EQ(cuMemPoolGetAttribute(pool_, reuse, &flag), CUDA_SUCCESS);
    EXPECT_EQ(flag, 0);
  }
}

TEST_F(Pools, HaveTheirOwnMaximum) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.maxSize = kMiB;
  CUmemoryPool small = nullptr;
  CUdeviceptr p = 0;
  CUdeviceptr q = 0;
  ASSERT_EQ(cuMemPoolCreate(&small, &props), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocFromPoolAsync(&p, 768 << 10, small, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&q, 512 << 10, small, stream_), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cuMemFreeAsync(p, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocFromPoolAsync(&q, 512 << 10, small, stream_), CUDA_SUCCESS);
  // Destroyed with an allocation in it: that stays good, the handle does not.
  ASSERT_EQ(cuMemPoolDestroy(small), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolTrimTo(small, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemsetD32Async(q, 8, 1, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(read_word(q), 8u);
  const size_t before = free_on_device();
  ASSERT_EQ(cuMemFreeAsync(q, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(free_on_device(), before + kMiB);
}

TEST_F(Pools, EachDeviceHasADefaultAndACurrentOne) {
  CUmemoryPool standard = nullptr;
  CUmemoryPool current = nullptr;
  ASSERT_EQ(cuDeviceGetDefaultMemPool(&standard, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, standard);
  EXPECT_EQ(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceSetMemPool(1, pool_), CUDA_ERROR_INVALID_VALUE) << "a pool of device 0";
  ASSERT_EQ(cuDeviceSetMemPool(0, pool_), CUDA_SUCCESS);
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAllocAsync(&p, 4096, stream_), CUDA_SUCCESS);
  EXPECT_EQ(used(), 4096u);
  CUmemoryPool owner = nullptr;
  ASSERT_EQ(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p), CUDA_SUCCESS);
  EXPECT_EQ(owner, pool_);
  ASSERT_EQ(cuMemFree(p), CUDA_SUCCESS);
  EXPECT_EQ(used(), 0u) << "cuMemFree too";
  ASSERT_EQ(cuMemPoolDestroy(pool_), CUDA_SUCCESS);
  pool_ = nullptr;
  ASSERT_EQ(cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, standard) << "the current one was destroyed";
  int supported = 0;
  ASSERT_EQ(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0), CUDA_SUCCESS);
  EXPECT_EQ(supported, 1);
}

// Work of another device reaches a pool only where that was asked for.
TEST_F(Pools, AreReachedByOtherDevicesOnRequest) {
  const CUdeviceptr p = take(64);
  CUcontext second = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(second), CUDA_SUCCESS);
  static CUdeviceptr address;
  static std::atomic<int> reached;
  address = p;
  const auto reaches = [] {
    EXPECT_EQ(hostcuda_enqueue(
                  nullptr, [](void*) { reached = hostcuda_view(address, 4, HOSTCUDA_READ) != nullptr ? 1 : 0; },
                  nullptr, "reaches"),
              CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    return reached == 1;
  };
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = 1;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_EQ(cuMemPoolGetAccess(&flags, pool_, &access.location), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_FALSE(reaches());
  ASSERT_EQ(cuMemPoolSetAccess(pool_, &access, 1), CUDA_SUCCESS);
  EXPECT_TRUE(reaches());
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_EQ(cuMemPoolSetAccess(pool_, &access, 1), CUDA_SUCCESS);
  EXPECT_FALSE(reaches());
  access.location.id = 0;
  EXPECT_EQ(cuMemPoolSetAccess(pool_, &access, 1), CUDA_ERROR_INVALID_VALUE) << "its own device";
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(p, stream_), CUDA_SUCCESS);
}

TEST_F(Pools, TheDevicesLimitIsTheirsToo) {
  setenv("HOSTCUDA_MEMORY", "8M", 0);  // for the process that the death test starts
  EXPECT_EXIT(
      {
        CUdeviceptr p = 0;
        CUdeviceptr q = 0;
        const bool first = cuMemAllocAsync(&p, 5 << 20, stream_) == CUDA_SUCCESS;  // the pool reserves 6 MiB
        const bool too_much = cuMemAlloc(&q, 3 << 20) == CUDA_ERROR_OUT_OF_MEMORY;
        const bool rest = cuMemAllocAsync(&q, 3 << 20, stream_) == CUDA_SUCCESS;
        const bool over = cuMemAllocAsync(&q, 1, stream_) == CUDA_ERROR_OUT_OF_MEMORY;
        cuMemFreeAsync(p, stream_);
        const bool synchronised = cuStreamSynchronize(stream_) == CUDA_SUCCESS;
        const bool again = cuMemAlloc(&q, 4 << 20) == CUDA_SUCCESS;
        _exit(first && too_much && rest && over && synchronised && again ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  unsetenv("HOSTCUDA_MEMORY");
}

// A free in one stream that another stream's use does not wait for: the use is after the free under some policy.
TEST_F(Pools, AFreeWithoutAWaitIsSeenUnderStarvation) {
  EXPECT_EXIT(
      {
        CUstream other = nullptr;
        cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
        const CUdeviceptr p = take(64);
        hostcuda_configure("HOSTCUDA_STARVE", std::to_string(hostcuda_stream_index(other)).c_str());
        cuMemsetD32Async(p, 1, 1, other);
        cuMemFreeAsync(p, stream_);  // should come after `other`
        cuStreamSynchronize(stream_);
        cuStreamSynchronize(other);
        _exit(0);
      },
      testing::ExitedWithCode(86), "memset.*which were freed");
}

TEST_F(Pools, RuntimeNamesWorkToo) {
  cudaMemPool_t pool = nullptr;
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);
  void* p = nullptr;
  ASSERT_EQ(cudaMallocFromPoolAsync(&p, 4096, pool, stream_), cudaSuccess);
  unsigned long long bytes = 0;
  ASSERT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &bytes), cudaSuccess);
  EXPECT_EQ(bytes, 4096u);
  ASSERT_EQ(cudaFreeAsync(p, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  cudaDeviceProp prop{};
  ASSERT_EQ(cudaGetDeviceProperties(&prop, 0), cudaSuccess);
  EXPECT_EQ(prop.memoryPoolsSupported, 1);
}

}  // namespace
}  // namespace hostcuda_test

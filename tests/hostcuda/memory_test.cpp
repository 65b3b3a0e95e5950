// SPDX-License-Identifier: MIT
// Device memory of the host device: who may touch it, where it ends, what is left of it when it is freed.
#include <cstdlib>
#include <cstring>

#include "tests/hostcuda/device_fixture.h"

namespace hostcuda_test {
namespace {

using Memory = DeviceTest;

constexpr int kAll = HOSTCUDA_READ | HOSTCUDA_WRITE;

TEST_F(Memory, CopiesArriveAndFreshMemoryIsNan) {
  const CUdeviceptr p = allocate(4096);
  EXPECT_EQ(read_word(p), 0xFFFFFFFFu);
  std::vector<uint32_t> in(1024);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint32_t>(i * 2654435761u);
  std::vector<uint32_t> out(1024);
  ASSERT_EQ(cuMemcpyHtoD(p, in.data(), 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH(out.data(), p, 4096), CUDA_SUCCESS);
  EXPECT_EQ(in, out);
}

TEST_F(Memory, AllocationsAreAlignedAndApart) {
  CUdeviceptr last_end = 0;
  for (const size_t bytes : {1u, 255u, 256u, 257u, 5000u}) {
    const CUdeviceptr p = allocate(bytes);
    EXPECT_EQ(p % 256, 0u);
    EXPECT_GE(p, last_end + 256) << "no red zone before " << bytes;
    last_end = p + bytes;
  }
}

TEST_F(Memory, HostAccessFaults) {
  const CUdeviceptr p = allocate(64);
  auto* wrong = reinterpret_cast<volatile char*>(p);
  EXPECT_DEATH(*wrong = 1, "");
  EXPECT_DEATH(static_cast<void>(wrong[8] == 0), "");
}

TEST_F(Memory, ViewEndsWhereTheAllocationEnds) {
  const CUdeviceptr p = allocate(1000);
  EXPECT_NE(hostcuda_view(p, 1000, kAll), nullptr);
  EXPECT_NE(hostcuda_view(p + 999, 1, kAll), nullptr);
  EXPECT_NE(hostcuda_view(p + 1000, 0, kAll), nullptr);
  EXPECT_EQ(hostcuda_view(p, 1001, kAll), nullptr);
  EXPECT_EQ(hostcuda_view(p + 1000, 1, kAll), nullptr);
  EXPECT_EQ(hostcuda_view(p - 1, 1, kAll), nullptr);
  EXPECT_EQ(hostcuda_view(p + 4, SIZE_MAX, kAll), nullptr) << "a length that wraps";
  EXPECT_EQ(static_cast<char*>(hostcuda_view(p + 8, 8, kAll)),
            reinterpret_cast<char*>(p + 8) + hostcuda_alias_offset());
  char text[256];
  EXPECT_NE(std::strstr(hostcuda_describe(p + 992, 16, text, sizeof text), "run 8 bytes past the end of the 1000"),
            nullptr)
      << text;
  EXPECT_NE(std::strstr(hostcuda_describe(p + 1004, 4, text, sizeof text), "begin 4 bytes past the end"), nullptr)
      << text;
}

TEST_F(Memory, FreedMemoryIsGoneAndSaysSo) {
  const CUdeviceptr p = allocate(4096);
  const uint64_t epoch = hostcuda_memory_epoch();
  ASSERT_EQ(cuMemFree(p), CUDA_SUCCESS);
  EXPECT_NE(hostcuda_memory_epoch(), epoch);
  EXPECT_EQ(hostcuda_view(p, 1, kAll), nullptr);
  HostcudaRange range;
  EXPECT_EQ(hostcuda_range(p, &range), 0);
  char text[256];
  EXPECT_NE(std::strstr(hostcuda_describe(p + 16, 4, text, sizeof text), "freed"), nullptr) << text;
  EXPECT_EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE) << "freed twice";
  EXPECT_EQ(cuMemFree(allocate(64) + 16), CUDA_ERROR_INVALID_VALUE) << "not the start";
  uint32_t word = 0;
  EXPECT_EQ(cuMemcpyDtoH(&word, p, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, UseAfterStreamOrderedFreeEndsTheProcess) {
  CUdeviceptr p = 0;
  ASSERT_EQ(cuMemAllocAsync(&p, 256, nullptr), CUDA_SUCCESS);
  EXPECT_EXIT(
      {
        Gate gate;
        gate.put(nullptr);
        cuMemFreeAsync(p, nullptr);
        cuMemsetD8Async(p, 1, 256, nullptr);  // enqueued while the memory is there, run when it is not
        gate.open();
        cuCtxSynchronize();
      },
      testing::ExitedWithCode(86), "hostcuda: memset: 256 bytes at .* freed");
}

TEST_F(Memory, OverrunEndsTheProcess) {
  const CUdeviceptr p = allocate(100);
  EXPECT_EQ(cuMemsetD8(p, 0, 101), CUDA_ERROR_INVALID_VALUE) << "the driver sees this one before it is enqueued";
  EXPECT_EXIT(
      {
        hostcuda_enqueue(
            nullptr,
            [](void* arg) {
              const auto address = reinterpret_cast<CUdeviceptr>(arg);
              char text[256];
              if (hostcuda_view(address, 101, kAll) == nullptr) {
                hostcuda_fault_stop(hostcuda_describe(address, 101, text, sizeof text));
              }
            },
            reinterpret_cast<void*>(p), "overrunner");
        cuCtxSynchronize();
      },
      testing::ExitedWithCode(86), "hostcuda: overrunner: 101 bytes at .* run 1 bytes past the end");
}

TEST_F(Memory, OtherDevicesMemoryIsOutOfReachForWork) {
  CUcontext other = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(other), CUDA_SUCCESS);
  const CUdeviceptr p = allocate(64);
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  struct Seen {
    CUdeviceptr p;
    bool kernel;
    bool copy;
  } seen{p, true, false};
  ASSERT_EQ(hostcuda_enqueue(
                nullptr,
                [](void* arg) {
                  auto* s = static_cast<Seen*>(arg);
                  s->kernel = hostcuda_view(s->p, 4, kAll) != nullptr;
                  s->copy = hostcuda_view(s->p, 4, kAll | HOSTCUDA_ANY_DEVICE) != nullptr;
                },
                &seen, "other device"),
            CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_FALSE(seen.kernel);
  EXPECT_TRUE(seen.copy);
  EXPECT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS);
}

TEST_F(Memory, CapacityIsCounted) {
  size_t free_before = 0;
  size_t total = 0;
  ASSERT_EQ(cuMemGetInfo(&free_before, &total), CUDA_SUCCESS);
  EXPECT_EQ(free_before, total);
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc(&p, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cuMemAlloc(&p, total - 1024), CUDA_SUCCESS) << "nothing is committed before it is touched";
  CUdeviceptr q = 0;
  EXPECT_EQ(cuMemAlloc(&q, 2048), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemFree(p), CUDA_SUCCESS);
  size_t free_after = 0;
  ASSERT_EQ(cuMemGetInfo(&free_after, &total), CUDA_SUCCESS);
  EXPECT_EQ(free_after, free_before);
  EXPECT_EQ(cuMemAlloc(&q, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, AddressesOutlastTheirSpace) {
  size_t free_bytes = 0;
  size_t total = 0;
  ASSERT_EQ(cuMemGetInfo(&free_bytes, &total), CUDA_SUCCESS);
  const CUdeviceptr keep = allocate(4096);
  ASSERT_EQ(cuMemsetD32(keep, 42, 1024), CUDA_SUCCESS);
  for (int i = 0; i < 12; ++i) {  // three times round the addresses
    const CUdeviceptr p = allocate(total - (1 << 20));
    ASSERT_EQ(cuMemFree(p), CUDA_SUCCESS);
  }
  EXPECT_EQ(read_word(keep + 4092), 42u);
}

TEST_F(Memory, PinnedAndManagedAreTheirOwnAlias) {
  void* pinned = nullptr;
  ASSERT_EQ(cuMemAllocHost(&pinned, 300), CUDA_SUCCESS);
  EXPECT_EQ(hostcuda_view(reinterpret_cast<CUdeviceptr>(pinned), 300, kAll), pinned);
  EXPECT_EQ(hostcuda_view(reinterpret_cast<CUdeviceptr>(pinned), 301, kAll), nullptr);
  CUdeviceptr managed = 0;
  ASSERT_EQ(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  std::memset(reinterpret_cast<void*>(managed), 7, 64);
  EXPECT_EQ(read_word(managed), 0x07070707u);
  EXPECT_EQ(cuMemFree(managed), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(reinterpret_cast<CUdeviceptr>(pinned)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST_F(Memory, RegisteredHostMemoryIsKnownWhileRegistered) {
  std::vector<char> host(10000);
  const auto address = reinterpret_cast<CUdeviceptr>(host.data());
  EXPECT_EQ(hostcuda_view(address, 1, kAll), nullptr);
  ASSERT_EQ(cuMemHostRegister(host.data(), host.size(), 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostRegister(host.data() + 100, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CUdeviceptr device = 0;
  ASSERT_EQ(cuMemHostGetDevicePointer(&device, host.data() + 8, 0), CUDA_SUCCESS);
  EXPECT_EQ(hostcuda_view(device, 16, kAll), host.data() + 8);
  ASSERT_EQ(cuMemHostUnregister(host.data()), CUDA_SUCCESS);
  EXPECT_EQ(hostcuda_view(address, 1, kAll), nullptr);
  EXPECT_EQ(cuMemHostUnregister(host.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(Memory, PointerAttributesAreTrue) {
  const CUdeviceptr p = allocate(512);
  unsigned type = 0;
  CUdeviceptr start = 0;
  size_t bytes = 0;
  int ordinal = -1;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &start, &bytes, &ordinal};
  ASSERT_EQ(cuPointerGetAttributes(4, which, values, p + 100), CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(start, p);
  EXPECT_EQ(bytes, 512u);
  EXPECT_EQ(ordinal, 0);
  int local = 0;
  ASSERT_EQ(cuPointerGetAttributes(4, which, values, reinterpret_cast<CUdeviceptr>(&local)), CUDA_SUCCESS);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&local)),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, Copy2dMovesTheRectangleAndNothingElse) {
  constexpr size_t kPitch = 64;
  const CUdeviceptr p = allocate(kPitch * 4);
  ASSERT_EQ(cuMemsetD8(p, 0, kPitch * 4), CUDA_SUCCESS);
  std::vector<unsigned char> source(3 * 10, 5);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = source.data();
  copy.srcPitch = 10;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = p;
  copy.dstPitch = kPitch;
  copy.dstXInBytes = 2;
  copy.dstY = 1;
  copy.WidthInBytes = 10;
  copy.Height = 3;
  ASSERT_EQ(cuMemcpy2D(&copy), CUDA_SUCCESS);
  std::vector<unsigned char> out(kPitch * 4);
  ASSERT_EQ(cuMemcpyDtoH(out.data(), p, out.size()), CUDA_SUCCESS);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t row = i / kPitch;
    const size_t column = i % kPitch;
    ASSERT_EQ(out[i], row >= 1 && column >= 2 && column < 12 ? 5 : 0) << i;
  }
  copy.dstY = 2;  // the last row would lie outside
  EXPECT_EQ(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace hostcuda_test

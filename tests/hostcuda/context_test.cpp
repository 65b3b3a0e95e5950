// SPDX-License-Identifier: MIT
// Contexts and devices: the stack of a thread, primary contexts and their resets, what a destroyed context leaves,
// memory of a peer, and which boards a process sees.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/hostcuda/device_fixture.h"

namespace hostcuda_test {
namespace {

class Contexts : public DeviceTest {
 protected:
  static CUcontext create(CUdevice device) {
    CUcontext context = nullptr;
    EXPECT_EQ(cuCtxCreate(&context, nullptr, 0, device), CUDA_SUCCESS);
    return context;
  }
  static CUcontext current() {
    CUcontext context = nullptr;
    EXPECT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    return context;
  }
  static unsigned long long id(CUcontext context) {
    unsigned long long number = 0;
    EXPECT_EQ(cuCtxGetId(context, &number), CUDA_SUCCESS);
    return number;
  }
};

TEST_F(Contexts, AThreadHasAStackOfThem) {
  const CUcontext a = create(0);
  const CUcontext b = create(1);
  EXPECT_EQ(current(), b);
  CUdevice device = -1;
  ASSERT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  CUcontext popped = nullptr;
  ASSERT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, b);
  EXPECT_EQ(current(), a);
  ASSERT_EQ(cuCtxPushCurrent(b), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(a), CUDA_SUCCESS) << "replaces the top";
  ASSERT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, a);
  EXPECT_EQ(current(), a);
  CUcontext elsewhere = a;
  std::thread([&] { cuCtxGetCurrent(&elsewhere); }).join();
  EXPECT_EQ(elsewhere, nullptr) << "each thread has its own";
  EXPECT_NE(id(a), id(b));
  EXPECT_EQ(cuCtxDestroy(b), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDestroy(a), CUDA_SUCCESS);
  EXPECT_EQ(current(), context_) << "destroying the current one pops it";
}

TEST_F(Contexts, ADestroyedOneIsGoneForEverybody) {
  const CUcontext gone = create(0);
  const unsigned long long number = id(gone);
  CUstream stream = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  const CUdeviceptr p = allocate(64);
  ASSERT_EQ(cuCtxPushCurrent(gone), CUDA_SUCCESS);  // twice on the stack
  ASSERT_EQ(cuCtxDestroy(gone), CUDA_SUCCESS);
  CUdeviceptr q = 0;
  EXPECT_EQ(cuMemAlloc(&q, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED) << "still current";
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuCtxSetCurrent(gone), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxDestroy(gone), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext popped = nullptr;
  ASSERT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
  EXPECT_EQ(current(), context_);
  unsigned type = 0;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p), CUDA_ERROR_INVALID_VALUE)
      << "its memory went with it";
  const CUcontext next = create(0);
  EXPECT_NE(id(next), number) << "ids are never reused";
  ASSERT_EQ(cuCtxDestroy(next), CUDA_SUCCESS);
}

TEST_F(Contexts, DestroyWaitsForTheWork) {
  const CUcontext context = create(0);
  static std::atomic<bool> ran;
  ran = false;
  ASSERT_EQ(cuLaunchHostFunc(
                nullptr,
                [](void*) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(30));
                  ran = true;
                },
                nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(cuCtxDestroy(context), CUDA_SUCCESS);
  EXPECT_TRUE(ran);
}

TEST_F(Contexts, ThePrimaryOneIsCountedAndComesBackNew) {
  CUcontext first = nullptr;
  CUcontext again = nullptr;
  unsigned flags = 0;
  int active = 1;
  ASSERT_EQ(cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&first, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&again, 1), CUDA_SUCCESS);
  EXPECT_EQ(first, again);
  EXPECT_EQ(cuCtxDestroy(first), CUDA_ERROR_INVALID_CONTEXT) << "not the program's to destroy";
  const unsigned long long number = id(first);
  ASSERT_EQ(cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 1);
  ASSERT_EQ(cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(1), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&again, 1), CUDA_SUCCESS);
  EXPECT_EQ(again, first) << "the handle comes back";
  EXPECT_NE(id(again), number) << "the context does not";
  ASSERT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS);
}

TEST_F(Contexts, AResetTakesStreamsAndMemory) {
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  const CUdeviceptr p = allocate(64);
  ASSERT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  CUcontext back = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&back, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(back), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr q = 0;
  EXPECT_EQ(cuMemAlloc(&q, 64), CUDA_SUCCESS);
}

TEST_F(Contexts, PeersReachEachOthersMemoryOneWay) {
  int can = 0;
  ASSERT_EQ(cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(can, 1);
  ASSERT_EQ(cuDeviceCanAccessPeer(&can, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(can, 0);
  int value = 0;
  EXPECT_EQ(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1), CUDA_ERROR_INVALID_DEVICE);
  CUcontext second = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
  static CUdeviceptr here, there, address;
  static std::atomic<int> reached;
  here = allocate(64);
  ASSERT_EQ(cuCtxPushCurrent(second), CUDA_SUCCESS);
  there = allocate(64);
  ASSERT_EQ(cuCtxPopCurrent(&second), CUDA_SUCCESS);
  const auto reaches = [](CUcontext from, CUdeviceptr p) {
    CUcontext popped = nullptr;
    address = p;
    EXPECT_EQ(cuCtxPushCurrent(from), CUDA_SUCCESS);
    EXPECT_EQ(hostcuda_enqueue(
                  nullptr,
                  [](void*) {
                    HostcudaRange range{};
                    const bool view = hostcuda_view(address, 4, HOSTCUDA_WRITE) != nullptr;
                    const bool own = hostcuda_range(address, &range) == 1 && range.device == hostcuda_running_device();
                    EXPECT_EQ(view, own) << "both ways to ask";
                    reached = view ? 1 : 0;
                  },
                  nullptr, "reaches"),
              CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    return reached == 1;
  };
  EXPECT_FALSE(reaches(context_, there));
  EXPECT_EQ(cuCtxEnablePeerAccess(second, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxEnablePeerAccess(context_, 0), CUDA_ERROR_INVALID_CONTEXT) << "itself";
  ASSERT_EQ(cuCtxEnablePeerAccess(second, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_TRUE(reaches(context_, there));
  EXPECT_FALSE(reaches(second, here)) << "one way only";
  ASSERT_EQ(cuCtxDisablePeerAccess(second), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDisablePeerAccess(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_FALSE(reaches(context_, there));
  ASSERT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS);
}

// What a process with CUDA_VISIBLE_DEVICES=`list` sees of three boards: their numbers by their UUIDs, "none", "error".
std::string boards_seen() {
  if (cuInit(0) == CUDA_ERROR_NO_DEVICE) return "none";
  int count = 0;
  if (cuDeviceGetCount(&count) != CUDA_SUCCESS) return "error";
  std::string seen;
  for (int i = 0; i < count; ++i) {
    CUuuid uuid{};
    char bus[32];
    CUdevice back = -1;
    if (cuDeviceGetUuid(&uuid, i) != CUDA_SUCCESS || cuDeviceGetPCIBusId(bus, sizeof bus, i) != CUDA_SUCCESS ||
        cuDeviceGetByPCIBusId(&back, bus) != CUDA_SUCCESS || back != i) {
      return "error";
    }
    if (std::strtol(bus + 5, nullptr, 16) != 0x10 + uuid.bytes[15]) return "error";
    if (hostcuda_device_board(i) != uuid.bytes[15]) return "error";
    seen += std::to_string(static_cast<int>(uuid.bytes[15]));
  }
  return seen;
}

// Not DeviceTest: the process that a death test starts reads its environment before the fixture's first call.
TEST(VisibleDevices, AreTheBoardsThatTheListNames) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string of_one = "GPU-686f7374-6375-8064-8061-000000000001";
  const std::pair<std::string, std::string> cases[] = {
      {"0,1,2", "012"}, {"2,0", "20"},          {"1", "1"},           {"", "none"},  {"-1", "none"},
      {"1,7,0", "1"},   {"0,0", "none"},        {"nothing", "none"},  {of_one, "1"}, {"2," + of_one, "21"},
      {"GPU-", "none"}, {of_one + "0", "none"}, {"GPU-686f", "none"},
  };
  // The process that a death test starts comes by here too, and keeps what it was given.
  const bool child = getenv("HOSTCUDA_TEST_CHILD") != nullptr;
  for (const auto& [list, expected] : cases) {
    if (!child) {
      setenv("HOSTCUDA_TEST_CHILD", "1", 1);
      setenv("HOSTCUDA_DEVICES", "3", 1);
      setenv("CUDA_VISIBLE_DEVICES", list.c_str(), 1);
    }
    EXPECT_EXIT(
        {
          std::fprintf(stderr, "[%s]", boards_seen().c_str());
          _exit(0);
        },
        testing::ExitedWithCode(0), "^\\[" + expected + "\\]$")
        << list;
  }
  for (const char* name : {"HOSTCUDA_TEST_CHILD", "HOSTCUDA_DEVICES", "CUDA_VISIBLE_DEVICES"}) unsetenv(name);
}

}  // namespace
}  // namespace hostcuda_test

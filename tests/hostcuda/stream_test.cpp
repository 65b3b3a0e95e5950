// SPDX-License-Identifier: MIT
// Streams of the host device: they run by themselves, in order, and wait for each other exactly where CUDA says so.
#include <chrono>
#include <string>

#include "tests/hostcuda/device_fixture.h"

namespace hostcuda_test {
namespace {

class Streams : public DeviceTest {
 protected:
  CUstream create(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    EXPECT_EQ(cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
  }
};

TEST_F(Streams, WorkRunsAfterTheCallReturns) {
  Gate gate;
  const CUstream stream = create();
  ASSERT_EQ(gate.put(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
}

TEST_F(Streams, OneStreamKeepsItsOrder) {
  const CUstream stream = create();
  std::vector<int> order;
  struct Step {
    std::vector<int>* order;
    int number;
  };
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(hostcuda_enqueue_owned(
                  stream,
                  [](void* arg) {
                    const auto* step = static_cast<const Step*>(arg);
                    step->order->push_back(step->number);
                  },
                  [](void* arg) { delete static_cast<Step*>(arg); }, new Step{&order, i}, "step"),
              CUDA_SUCCESS);
  }
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(order.size(), 200u);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_F(Streams, NonBlockingStreamsPassEachOther) {
  Gate gate;
  const CUstream held = create();
  const CUstream free_stream = create();
  const CUdeviceptr p = allocate(4);
  ASSERT_EQ(gate.put(held), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(p, 9, 1, free_stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(free_stream), CUDA_SUCCESS) << "would hang if it waited for the held stream";
  EXPECT_EQ(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  gate.open();
}

TEST_F(Streams, LegacyWaitsForBlockingStreamsAndTheyForIt) {
  Gate first;
  const CUstream blocking = create(CU_STREAM_DEFAULT);
  const CUdeviceptr p = allocate(4);
  ASSERT_EQ(first.put(blocking), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(p, 1, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  const CUstream other = create(CU_STREAM_DEFAULT);
  ASSERT_EQ(cuMemsetD32Async(p, 2, 1, other), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(cuStreamQuery(other), CUDA_ERROR_NOT_READY) << "behind the legacy stream, which is behind the gate";
  first.open();
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(read_word(p), 2u);
}

TEST_F(Streams, LegacyWaitsForADestroyedStreamsWork) {
  Gate gate;
  const CUstream blocking = create(CU_STREAM_DEFAULT);
  const CUdeviceptr p = allocate(4);
  ASSERT_EQ(gate.put(blocking), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(p, 1, 1, blocking), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamDestroy(blocking), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cuMemsetD32Async(p, 2, 1, nullptr), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  gate.open();
  EXPECT_EQ(read_word(p), 2u) << "the legacy stream was first";
}

TEST_F(Streams, LegacyAndNonBlockingIgnoreEachOther) {
  Gate gate;
  const CUstream non_blocking = create();
  const CUdeviceptr p = allocate(4);
  ASSERT_EQ(gate.put(non_blocking), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(p, 3, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  gate.open();
}

TEST_F(Streams, PerThreadStreamsDifferByThread) {
  unsigned long long mine = 0;
  unsigned long long legacy = 0;
  unsigned long long theirs = 0;
  ASSERT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &mine), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamGetId(CU_STREAM_LEGACY, &legacy), CUDA_SUCCESS);
  std::thread([&] {
    cuCtxSetCurrent(context_);
    cuStreamGetId(CU_STREAM_PER_THREAD, &theirs);
    cuMemsetD32Async(allocate(4), 1, 1, CU_STREAM_PER_THREAD);
    cuStreamSynchronize(CU_STREAM_PER_THREAD);
  }).join();
  EXPECT_NE(mine, legacy);
  EXPECT_NE(mine, theirs);
  EXPECT_NE(theirs, 0u);
}

// A thread's own stream can be starved like any other: what should have waited for it sees the old word.
TEST_F(Streams, PerThreadStreamsAreStarvedToo) {
  const CUdeviceptr p = allocate(8);
  const CUstream consumer = create();
  CUevent written = nullptr;
  ASSERT_EQ(cuEventCreate(&written, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  const int index = hostcuda_stream_index(CU_STREAM_PER_THREAD);
  ASSERT_GE(index, 0);
  ASSERT_EQ(hostcuda_configure("HOSTCUDA_STARVE", std::to_string(index).c_str()), 0);
#ifndef __SANITIZE_THREAD__  // there a dropped wait ends the process
  for (const bool waits : {true, false}) {
#else
  for (const bool waits : {true}) {
#endif
    ASSERT_EQ(cuMemsetD32Async(p, 1, 1, consumer), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(consumer), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD32Async(p, 2, 1, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(written, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    if (waits) {
      ASSERT_EQ(cuStreamWaitEvent(consumer, written, 0), CUDA_SUCCESS);
    }
    ASSERT_EQ(cuMemcpyDtoDAsync(p + 4, p, 4, consumer), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(consumer), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    EXPECT_EQ(read_word(p + 4), waits ? 2u : 1u);
  }
}

TEST_F(Streams, HandlesComeBackIdsDoNot) {
  const CUstream first = create();
  unsigned long long first_id = 0;
  ASSERT_EQ(cuStreamGetId(first, &first_id), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamDestroy(first), CUDA_SUCCESS);
  unsigned long long dead_id = 0;
  EXPECT_EQ(cuStreamGetId(first, &dead_id), CUDA_ERROR_INVALID_HANDLE);
  const CUstream second = create();
  unsigned long long second_id = 0;
  ASSERT_EQ(cuStreamGetId(second, &second_id), CUDA_SUCCESS);
  EXPECT_EQ(second, first);
  EXPECT_NE(second_id, first_id);
}

TEST_F(Streams, DestroyedStreamFinishesItsWork) {
  Gate gate;
  const CUstream stream = create();
  const CUdeviceptr p = allocate(4);
  ASSERT_EQ(gate.put(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(p, 77, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
  gate.open();
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(read_word(p), 77u);
}

TEST_F(Streams, PageableSourceIsReadBeforeTheCallReturns) {
  Gate gate;
  const CUstream stream = create();
  const CUdeviceptr p = allocate(4);
  ASSERT_EQ(gate.put(stream), CUDA_SUCCESS);
  uint32_t value = 11;
  ASSERT_EQ(cuMemcpyHtoDAsync(p, &value, 4, stream), CUDA_SUCCESS);
  value = 12;
  gate.open();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(read_word(p), 11u);
}

TEST_F(Streams, PinnedSourceIsReadInStreamOrder) {
  Gate gate;
  const CUstream stream = create();
  const CUdeviceptr p = allocate(4);
  void* pinned = nullptr;
  ASSERT_EQ(cuMemAllocHost(&pinned, 4), CUDA_SUCCESS);
  auto* value = static_cast<uint32_t*>(pinned);
  *value = 21;
  ASSERT_EQ(gate.put(stream), CUDA_SUCCESS);
  ASSERT_EQ(hostcuda_enqueue(
                stream, [](void* arg) { *static_cast<uint32_t*>(arg) = 22; }, value, "late write"),
            CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyHtoDAsync(p, value, 4, stream), CUDA_SUCCESS);
  gate.open();
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(read_word(p), 22u);
}

TEST_F(Streams, HostFunctionMayNotCallTheDriver) {
  CUresult inside = CUDA_SUCCESS;
  ASSERT_EQ(cuLaunchHostFunc(
                nullptr,
                [](void* arg) {
                  CUcontext context = nullptr;
                  *static_cast<CUresult*>(arg) = cuCtxGetCurrent(&context);
                },
                &inside),
            CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(inside, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(Streams, WrongContextIsRefused) {
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate(&other, nullptr, 0, 1), CUDA_SUCCESS);
  CUstream theirs = nullptr;
  ASSERT_EQ(cuStreamCreate(&theirs, 0), CUDA_SUCCESS);
  EXPECT_EQ(hostcuda_device_ordinal(theirs), 1);
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  CUevent event = nullptr;
  ASSERT_EQ(cuEventCreate(&event, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(event, theirs), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cuEventRecord(event, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(theirs, event, 0), CUDA_SUCCESS) << "waits across devices are allowed";
  CUcontext left = nullptr;
  do {
    ASSERT_EQ(cuCtxPopCurrent(&left), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxGetCurrent(&left), CUDA_SUCCESS);
  } while (left != nullptr);
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuStreamSynchronize(theirs), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxDestroy(other), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(theirs), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Streams, ManyThreadsManyStreams) {
  const CUdeviceptr p = allocate(8 * 4);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      cuCtxSetCurrent(context_);
      for (unsigned i = 0; i < 50; ++i) {
        CUstream stream = nullptr;
        cuStreamCreate(&stream, t % 2 == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
        cuMemsetD32Async(p + 4 * t, i, 1, stream);
        if (i % 3 == 0) cuStreamSynchronize(stream);
        if (i % 3 == 1) cuCtxSynchronize();
        if (i == 49) cuStreamSynchronize(stream);
        cuStreamDestroy(stream);
        if (i % 3 == 2) cuCtxSynchronize();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  for (unsigned t = 0; t < 8; ++t) EXPECT_EQ(read_word(p + 4 * t), 49u);
}

}  // namespace
}  // namespace hostcuda_test

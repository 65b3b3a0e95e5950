// SPDX-License-Identifier: MIT
// Events and waits between streams, and the proof that a missing wait shows: as a wrong number under starvation, by
// name under TSan.
#include <unistd.h>

#include <chrono>
#include <string>

#include "tests/hostcuda/device_fixture.h"

namespace hostcuda_test {
namespace {

class Events : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    ASSERT_EQ(cuStreamCreate(&producer_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&consumer_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    source_ = allocate(4096);
    target_ = allocate(4096);
    ASSERT_EQ(cuMemsetD32(source_, 1, 1024), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD32(target_, 0, 1024), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  }

  // The producer writes 2, the consumer copies after a wait: 2 if the wait works, 1 if the consumer was first.
  uint32_t produce_and_consume() {
    EXPECT_EQ(cuMemsetD32Async(source_, 2, 1024, producer_), CUDA_SUCCESS);
    EXPECT_EQ(cuEventRecord(event_, producer_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(consumer_, event_, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoDAsync(target_, source_, 4096, consumer_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(consumer_), CUDA_SUCCESS);
    const uint32_t seen = read_word(target_ + 4092);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    return seen;
  }

  void starve(CUstream stream) {
    ASSERT_EQ(hostcuda_configure("HOSTCUDA_STARVE", std::to_string(hostcuda_stream_index(stream)).c_str()), 0);
  }

  CUstream producer_ = nullptr;
  CUstream consumer_ = nullptr;
  CUevent event_ = nullptr;
  CUdeviceptr source_ = 0;
  CUdeviceptr target_ = 0;
};

TEST_F(Events, WaitOrdersTwoStreams) {
  EXPECT_EQ(produce_and_consume(), 2u);
  for (const CUstream stream : {producer_, consumer_}) {
    starve(stream);
    ASSERT_EQ(cuMemsetD32(source_, 1, 1024), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(produce_and_consume(), 2u);
  }
}

#ifdef __SANITIZE_THREAD__
TEST_F(Events, DroppedWaitIsNamedByTsan) {
  EXPECT_EXIT(
      {
        hostcuda_configure("HOSTCUDA_SKIP_WAIT", "1");
        produce_and_consume();
        _exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}
#else
TEST_F(Events, DroppedWaitIsAWrongNumberUnderStarvation) {
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(cuMemsetD32(source_, 1, 1024), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    starve(producer_);
    ASSERT_EQ(hostcuda_configure("HOSTCUDA_SKIP_WAIT", "1"), 0);
    ASSERT_EQ(produce_and_consume(), 1u) << "round " << round;
    ASSERT_EQ(cuMemsetD32(source_, 1, 1024), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_EQ(produce_and_consume(), 2u) << "the same with its wait, round " << round;
  }
}
#endif

TEST_F(Events, StarvedStreamStillRunsForAProgramThatPolls) {
  starve(producer_);
  ASSERT_EQ(cuMemsetD32Async(source_, 5, 1024, producer_), CUDA_SUCCESS);
  while (cuStreamQuery(producer_) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
  EXPECT_EQ(read_word(source_), 5u);
}

TEST_F(Events, WaitTakesTheRecordThatStoodAtTheCall) {
  Gate gate;
  ASSERT_EQ(cuEventRecord(event_, producer_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(consumer_, event_, 0), CUDA_SUCCESS);
  ASSERT_EQ(gate.put(producer_), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event_, producer_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(consumer_), CUDA_SUCCESS) << "would hang if it waited for the second record";
  EXPECT_EQ(cuEventQuery(event_), CUDA_ERROR_NOT_READY);
  gate.open();
  EXPECT_EQ(cuEventSynchronize(event_), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(event_), CUDA_SUCCESS);
}

TEST_F(Events, WaitOutlivesTheEvent) {
  Gate gate;
  ASSERT_EQ(gate.put(producer_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(source_, 6, 1024, producer_), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(event_, producer_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(consumer_, event_, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuEventDestroy(event_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(target_, source_, 4096, consumer_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(consumer_), CUDA_ERROR_NOT_READY);
  gate.open();
  ASSERT_EQ(cuStreamSynchronize(consumer_), CUDA_SUCCESS);
  EXPECT_EQ(read_word(target_), 6u);
}

TEST_F(Events, UnrecordedEventIsDone) {
  EXPECT_EQ(cuEventQuery(event_), CUDA_SUCCESS);
  EXPECT_EQ(cuEventSynchronize(event_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(consumer_, event_, 0), CUDA_SUCCESS);
}

TEST_F(Events, ElapsedTimeNeedsTwoTimedRecords) {
  CUevent start = nullptr;
  CUevent end = nullptr;
  ASSERT_EQ(cuEventCreate(&start, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&end, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  float ms = -1;
  EXPECT_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE) << "never recorded";
  Gate gate;
  ASSERT_EQ(cuEventRecord(start, producer_), CUDA_SUCCESS);
  ASSERT_EQ(gate.put(producer_), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(end, producer_), CUDA_SUCCESS);
  EXPECT_EQ(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  gate.open();
  ASSERT_EQ(cuEventSynchronize(end), CUDA_SUCCESS);
  ASSERT_EQ(cuEventElapsedTime(&ms, start, end), CUDA_SUCCESS);
  EXPECT_GE(ms, 2.0f);
  ASSERT_EQ(cuEventRecord(event_, producer_), CUDA_SUCCESS);
  EXPECT_EQ(cuEventElapsedTime(&ms, start, event_), CUDA_ERROR_INVALID_HANDLE) << "made without timing";
}

}  // namespace
}  // namespace hostcuda_test

// SPDX-License-Identifier: MIT
// Points of the driver that CUDA's documentation leaves open and the host device had to decide: each test is what the
// host device does. One that fails on a device is the host device's to change.
#include <cuda.h>
#include <gtest/gtest.h>

namespace sdcguard {
namespace {

class DriverFacts : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
    for (CUstream* stream : {&origin_, &side_}) {
      ASSERT_EQ(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    }
    ASSERT_EQ(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  }
  void TearDown() override { cuDevicePrimaryCtxRelease(0); }

  void begin() { ASSERT_EQ(cuStreamBeginCapture(origin_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS); }
  CUresult end() {
    graph_ = nullptr;
    return cuStreamEndCapture(origin_, &graph_);
  }

  CUcontext context_ = nullptr;
  CUstream origin_ = nullptr;
  CUstream side_ = nullptr;
  CUevent event_ = nullptr;
  CUgraph graph_ = nullptr;
};

// A stream that was brought into a capture by a wait, and in which nothing was captured.
TEST_F(DriverFacts, AnEmptyForkMustJoin) {
  begin();
  ASSERT_EQ(cuEventRecord(event_, origin_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(side_, event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

TEST_F(DriverFacts, AskingForACapturedEventBreaksTheCapture) {
  begin();
  ASSERT_EQ(cuEventRecord(event_, origin_), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(event_), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuEventQuery(event_), CUDA_ERROR_CAPTURED_EVENT) << "after the capture's end, not recorded again";
}

TEST_F(DriverFacts, AnEventThatWasNeverRecordedIsNothingToWaitForInACapture) {
  begin();
  EXPECT_EQ(cuStreamWaitEvent(origin_, event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(end(), CUDA_SUCCESS);
}

TEST_F(DriverFacts, SynchronisingTheContextBreaksARelaxedCapture) {
  begin();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(DriverFacts, EndingWhatDidNotBegin) {
  EXPECT_EQ(end(), CUDA_ERROR_ILLEGAL_STATE);
  begin();
  EXPECT_EQ(cuStreamBeginCapture(origin_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(end(), CUDA_SUCCESS);
}

TEST_F(DriverFacts, UnknownNamesHaveNoAddressAndNoError) {
  void* entry = &entry;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  EXPECT_EQ(cuGetProcAddress("cuNoSuchThing", &entry, 12000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(entry, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(cuGetProcAddress("cuLibraryLoadData", &entry, 11080, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

TEST_F(DriverFacts, GraphsWithMemoryNodes) {
  CUdeviceptr p = 0;
  begin();
  ASSERT_EQ(cuMemAllocAsync(&p, 4096, origin_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(p, origin_), CUDA_SUCCESS);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  CUgraph other = nullptr;
  EXPECT_EQ(cuGraphClone(&other, graph_), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(cuGraphCreate(&other, 0), CUDA_SUCCESS);
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddChildGraphNode(&node, other, nullptr, 0, graph_), CUDA_ERROR_NOT_SUPPORTED);
  CUgraphExec first = nullptr;
  CUgraphExec second = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&first, graph_, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphInstantiate(&second, graph_, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuGraphExecDestroy(first), CUDA_SUCCESS);
}

TEST_F(DriverFacts, ACycleIsFoundWhenAGraphIsInstantiated) {
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddEmptyNode(&a, graph_, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddEmptyNode(&b, graph_, &a, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddDependencies(graph_, &b, &a, nullptr, 1), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  EXPECT_EQ(cuGraphInstantiateWithParams(&exec, graph_, &params), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
}

// A launch into a capture: a child graph in it.
TEST_F(DriverFacts, ALaunchIntoACaptureIsAChildGraph) {
  CUgraph inner = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(cuGraphCreate(&inner, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddEmptyNode(&node, inner, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphInstantiate(&exec, inner, 0), CUDA_SUCCESS);
  begin();
  ASSERT_EQ(cuGraphLaunch(exec, origin_), CUDA_SUCCESS);
  ASSERT_EQ(end(), CUDA_SUCCESS);
  size_t count = 1;
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  ASSERT_EQ(cuGraphGetNodes(graph_, &node, &count), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_GRAPH);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

// A destroyed context that a thread still has current.
TEST_F(DriverFacts, ADestroyedContextStaysOnTheStack) {
  CUcontext gone = nullptr;
  ASSERT_EQ(cuCtxCreate(&gone, nullptr, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(gone), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxDestroy(gone), CUDA_SUCCESS);
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc(&p, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cuCtxPopCurrent(&gone), CUDA_SUCCESS);
}

}  // namespace
}  // namespace sdcguard

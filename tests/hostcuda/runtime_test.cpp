// SPDX-License-Identifier: MIT
// The runtime API on the host device: devices, memory, last-error semantics, streams, capture; and that a program's
// runtime calls are not taken for driver calls.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tools/hostcuda/core.h"

namespace hostcuda_test {
namespace {

class Runtime : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  void TearDown() override {
    hostcuda_configure("HOSTCUDA_FAIL", nullptr);
    cudaDeviceReset();
    cudaGetLastError();
  }
};

TEST_F(Runtime, DevicesSayWhatTheyAre) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  ASSERT_EQ(count, 2);
  cudaDeviceProp first{};
  cudaDeviceProp second{};
  ASSERT_EQ(cudaGetDeviceProperties(&first, 0), cudaSuccess);
  ASSERT_EQ(cudaGetDeviceProperties(&second, 1), cudaSuccess);
  EXPECT_NE(std::string(first.name).find("simulated"), std::string::npos) << first.name;
  EXPECT_NE(std::memcmp(&first.uuid, &second.uuid, sizeof first.uuid), 0);
  EXPECT_NE(first.pciBusID, second.pciBusID);
  EXPECT_EQ(first.major, 9);
  EXPECT_EQ(first.multiProcessorCount, 16);
  int major = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 1), cudaSuccess);
  EXPECT_EQ(major, 9);
  char bus[32];
  int back = -1;
  ASSERT_EQ(cudaDeviceGetPCIBusId(bus, sizeof bus, 1), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetByPCIBusId(&back, bus), cudaSuccess);
  EXPECT_EQ(back, 1);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
}

TEST_F(Runtime, MemoryBelongsToTheDeviceThatWasSet) {
  void* p = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&p, 100), cudaSuccess);
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, p), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(attributes.devicePointer, p);
  EXPECT_EQ(attributes.hostPointer, nullptr);
  int device = -1;
  std::thread([&] { cudaGetDevice(&device); }).join();
  EXPECT_EQ(device, 0) << "each thread begins with device 0";
  ASSERT_EQ(cudaFree(p), cudaSuccess);
  cudaDeviceReset();
}

TEST_F(Runtime, PointerAttributesOfHostMemory) {
  cudaPointerAttributes a{};
  int local = 0;
  ASSERT_EQ(cudaPointerGetAttributes(&a, &local), cudaSuccess);
  EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(a.device, cudaInvalidDeviceId);
  EXPECT_EQ(a.devicePointer, nullptr);
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 64), cudaSuccess);
  ASSERT_EQ(cudaPointerGetAttributes(&a, pinned), cudaSuccess);
  EXPECT_EQ(a.type, cudaMemoryTypeHost);
  EXPECT_EQ(a.devicePointer, pinned);
  EXPECT_EQ(a.hostPointer, pinned);
  void* managed = nullptr;
  ASSERT_EQ(cudaMallocManaged(&managed, 64, cudaMemAttachGlobal), cudaSuccess);
  ASSERT_EQ(cudaPointerGetAttributes(&a, managed), cudaSuccess);
  EXPECT_EQ(a.type, cudaMemoryTypeManaged);
  EXPECT_EQ(cudaFree(managed), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(Runtime, LastErrorIsKeptUntilItIsTaken) {
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess) << "an old error fails no later call";
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice) << "looking does not take it";
  cudaError_t elsewhere = cudaErrorUnknown;
  std::thread([&] { elsewhere = cudaGetLastError(); }).join();
  EXPECT_EQ(elsewhere, cudaSuccess) << "the error is the thread's own";
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

TEST_F(Runtime, StickyErrorStaysWithEveryCall) {
  setenv("HOSTCUDA_STICKY", "1", 1);  // for the process that the death test starts
  EXPECT_EXIT(
      {
        cudaSetDevice(0);
        void* p = nullptr;
        cudaMalloc(&p, 64);
        hostcuda_enqueue(
            nullptr, [](void*) { hostcuda_fault_stop_as(CUDA_ERROR_ILLEGAL_ADDRESS, "a bad address"); }, nullptr,
            "breaker");
        bool right = cudaDeviceSynchronize() == cudaErrorIllegalAddress;
        right = right && cudaGetLastError() == cudaErrorIllegalAddress;
        right = right && cudaGetLastError() == cudaErrorIllegalAddress;
        void* q = nullptr;
        right = right && cudaMalloc(&q, 64) == cudaErrorIllegalAddress;
        right = right && cudaDeviceReset() == cudaSuccess && cudaMalloc(&q, 64) == cudaSuccess;
        _exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "hostcuda: breaker: a bad address");
  unsetenv("HOSTCUDA_STICKY");
}

TEST_F(Runtime, BrokenRuleEndsTheProcessByDefault) {
  EXPECT_EXIT(
      {
        hostcuda_enqueue(
            nullptr, [](void*) { hostcuda_fault_stop("no such thing"); }, nullptr, "breaker");
        cudaDeviceSynchronize();
      },
      testing::ExitedWithCode(86), "hostcuda: breaker: no such thing");
}

TEST_F(Runtime, CopiesKnowTheirDirection) {
  void* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 64), cudaSuccess);
  std::vector<char> host(64, 3);
  std::vector<char> back(64);
  EXPECT_EQ(cudaMemcpy(p, host.data(), 64, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(back.data(), p, 64, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(host, back);
  EXPECT_EQ(cudaMemcpy(host.data(), p, 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(p, host.data(), 64, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(p, host.data(), 65, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(p, 1, 64), cudaSuccess);
  EXPECT_EQ(cudaMemcpy2D(back.data(), 8, p, 16, 8, 4, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(back[31], 1);
  EXPECT_EQ(back[32], 3);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
}

TEST_F(Runtime, StreamsEventsAndGraphs) {
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  void* p = nullptr;
  ASSERT_EQ(cudaMalloc(&p, 4), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(start, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ASSERT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  ASSERT_EQ(cudaMemsetAsync(p, 9, 4, stream), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, stream), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  float ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
  EXPECT_GE(ms, 0.0f);
  unsigned char bytes[4] = {};
  ASSERT_EQ(cudaMemcpy(bytes, p, 4, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(bytes[3], 9);
  EXPECT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// The runtime's own forms of nodes, updates and capture information; what they do is the driver's and tested there.
TEST_F(Runtime, GraphsByHand) {
  uint32_t* words = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&words), 64), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t fill = nullptr;
  cudaGraphNode_t copy = nullptr;
  cudaGraphNode_t host = nullptr;
  cudaMemsetParams set{words, 0, 7, 4, 4, 1};
  ASSERT_EQ(cudaGraphCreate(&graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &set), cudaSuccess);
  ASSERT_EQ(cudaGraphAddMemcpyNode1D(&copy, graph, &fill, 1, words + 8, words, 16, cudaMemcpyDeviceToDevice),
            cudaSuccess);
  static int ran;
  ran = 0;
  const cudaHostNodeParams call{[](void*) { ++ran; }, nullptr};
  ASSERT_EQ(cudaGraphAddHostNode(&host, graph, &copy, 1, &call), cudaSuccess);
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  ASSERT_EQ(cudaGraphNodeGetType(copy, &type), cudaSuccess);
  EXPECT_EQ(type, cudaGraphNodeTypeMemcpy);
  size_t edges = 0;
  ASSERT_EQ(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges), cudaSuccess);
  EXPECT_EQ(edges, 2u);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, nullptr), cudaSuccess);
  uint32_t seen[4] = {};
  ASSERT_EQ(cudaMemcpy(seen, words + 8, 16, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(seen[3], 7u);
  EXPECT_EQ(ran, 1);
  set.value = 9;
  ASSERT_EQ(cudaGraphExecMemsetNodeSetParams(exec, fill, &set), cudaSuccess);
  ASSERT_EQ(cudaGraphExecMemcpyNodeSetParams1D(exec, copy, words + 12, words, 16, cudaMemcpyDeviceToDevice),
            cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, nullptr), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(seen, words + 12, 16, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(seen[0], 9u);
  cudaGraphExecUpdateResultInfo info{};
  ASSERT_EQ(cudaGraphExecUpdate(exec, graph, &info), cudaSuccess);
  EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
  ASSERT_EQ(cudaGraphDestroyNode(host), cudaSuccess);
  EXPECT_EQ(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  EXPECT_EQ(cudaGetLastError(), cudaErrorGraphExecUpdateFailure);
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);

  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(words, 0, 16, stream), cudaSuccess);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t captured = nullptr;
  const cudaGraphNode_t* tail = nullptr;
  size_t count = 0;
  unsigned long long id = 0;
  ASSERT_EQ(cudaStreamGetCaptureInfo(stream, &status, &id, &captured, &tail, nullptr, &count), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_EQ(count, 1u);
  cudaGraph_t ended = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &ended), cudaSuccess);
  EXPECT_EQ(ended, captured);
}

TEST_F(Runtime, ThreeDimensionalCopiesKeepTheirPitches) {
  constexpr cudaExtent kExtent{5, 3, 2};  // bytes, rows, slices
  cudaPitchedPtr device{};
  ASSERT_EQ(cudaMalloc3D(&device, kExtent), cudaSuccess);
  EXPECT_GE(device.pitch, kExtent.width);
  ASSERT_EQ(cudaMemset3D(device, 0xEE, kExtent), cudaSuccess);
  std::vector<unsigned char> source(8 * 4 * 2);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i);
  cudaMemcpy3DParms params{};
  params.srcPtr = {source.data(), 8, 8, 4};
  params.dstPtr = device;
  params.extent = kExtent;
  params.kind = cudaMemcpyHostToDevice;
  ASSERT_EQ(cudaMemcpy3D(&params), cudaSuccess);
  std::vector<unsigned char> back(5 * 3 * 2, 0);
  params = {};
  params.srcPtr = device;
  params.dstPtr = {back.data(), 5, 5, 3};
  params.extent = kExtent;
  params.kind = cudaMemcpyDeviceToHost;
  ASSERT_EQ(cudaMemcpy3D(&params), cudaSuccess);
  for (size_t z = 0; z < 2; ++z) {
    for (size_t y = 0; y < 3; ++y) {
      for (size_t x = 0; x < 5; ++x) EXPECT_EQ(back[z * 15 + y * 5 + x], source[z * 32 + y * 8 + x]);
    }
  }
}

TEST_F(Runtime, PeersAreNamedByDevice) {
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice) << "itself";
  ASSERT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  ASSERT_EQ(cudaDeviceDisablePeerAccess(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
  cudaGetLastError();
  cudaSetDevice(1);
  cudaDeviceReset();
  cudaSetDevice(0);
}

TEST_F(Runtime, DriverSeesTheRuntimesContext) {
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
  EXPECT_NE(context, nullptr);
  EXPECT_EQ(context, hostcuda_current_context());
  unsigned long long before = 0;
  unsigned long long after = 0;
  ASSERT_EQ(cuCtxGetId(context, &before), CUDA_SUCCESS);
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  CUcontext again = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&again), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxGetId(again, &after), CUDA_SUCCESS);
  EXPECT_EQ(again, context) << "a reset keeps the handle,";
  EXPECT_NE(after, before) << "not the id";
}

TEST_F(Runtime, RuntimeCallsAreNotDriverCalls) {
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  hostcuda_configure("HOSTCUDA_FAIL", "cuMemAlloc_v2:*:2");
  const uint64_t before = hostcuda_call_count(nullptr);
  hostcuda_trace_begin();
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 64), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(hostcuda_trace_end(nullptr, 0), 0u);
  EXPECT_EQ(hostcuda_call_count(nullptr), before);
  CUdeviceptr q = 0;
  EXPECT_EQ(cuMemAlloc(&q, 64), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(hostcuda_call_count(nullptr), before + 1);
}

}  // namespace
}  // namespace hostcuda_test

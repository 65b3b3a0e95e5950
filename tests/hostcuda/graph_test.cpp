// SPDX-License-Identifier: MIT
// Graphs: built by hand and captured, their edges as the only order there is, copies, updates and their refusals,
// launches of one executable graph one after the other, and what a graph owns.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "kernels/simt_host.h"
#include "tests/hostcuda/device_fixture.h"
#include "tests/scratch_folder.h"

namespace hostcuda_test {
namespace {

using Nodes = std::vector<CUgraphNode>;

class Graphs : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    ASSERT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    p_ = allocate(256);
    ASSERT_EQ(cuMemsetD8(p_, 0, 256), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  }

  static CUgraph graph() {
    CUgraph g = nullptr;
    EXPECT_EQ(cuGraphCreate(&g, 0), CUDA_SUCCESS);
    return g;
  }
  static CUgraphExec instantiate(CUgraph g, unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuGraphInstantiate(&exec, g, flags), CUDA_SUCCESS);
    return exec;
  }
  CUDA_MEMSET_NODE_PARAMS word_fill(unsigned word, unsigned value) const { return {p_ + 4 * word, 0, value, 4, 1, 1}; }
  CUgraphNode fill(CUgraph g, unsigned word, unsigned value, const Nodes& after = {}) const {
    const CUDA_MEMSET_NODE_PARAMS params = word_fill(word, value);
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddMemsetNode(&node, g, after.data(), after.size(), &params, context_), CUDA_SUCCESS);
    return node;
  }
  CUDA_MEMCPY3D word_copy(unsigned from, unsigned to, unsigned words = 1) const {
    CUDA_MEMCPY3D params{};
    params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    params.srcDevice = p_ + 4 * from;
    params.dstDevice = p_ + 4 * to;
    params.WidthInBytes = 4 * words;
    params.Height = params.Depth = 1;
    return params;
  }
  CUgraphNode copy(CUgraph g, unsigned from, unsigned to, const Nodes& after = {}, unsigned words = 1) const {
    const CUDA_MEMCPY3D params = word_copy(from, to, words);
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddMemcpyNode(&node, g, after.data(), after.size(), &params, context_), CUDA_SUCCESS);
    return node;
  }
  static CUgraphNode empty(CUgraph g, const Nodes& after = {}) {
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddEmptyNode(&node, g, after.data(), after.size()), CUDA_SUCCESS);
    return node;
  }
  static CUgraphNode child(CUgraph g, CUgraph inner, const Nodes& after = {}) {
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddChildGraphNode(&node, g, after.data(), after.size(), inner), CUDA_SUCCESS);
    return node;
  }
  // Adds one to a word, by reading and writing it: two at once would lose one.
  static void increment(void* word) {
    auto* value = static_cast<uint32_t*>(hostcuda_view(reinterpret_cast<CUdeviceptr>(word), 4, HOSTCUDA_WRITE));
    const uint32_t before = *static_cast<volatile uint32_t*>(value);
    for (int i = 0; i < 20; ++i) std::this_thread::yield();
    *static_cast<volatile uint32_t*>(value) = before + 1;
  }
  uint32_t word(unsigned i) const { return read_word(p_ + 4 * i); }
  void run(CUgraphExec exec) const {
    ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  static CUgraphNodeType type(CUgraphNode node) {
    CUgraphNodeType t = CU_GRAPH_NODE_TYPE_EMPTY;
    EXPECT_EQ(cuGraphNodeGetType(node, &t), CUDA_SUCCESS);
    return t;
  }
  static Nodes nodes(CUgraph g) {
    size_t count = 0;
    EXPECT_EQ(cuGraphGetNodes(g, nullptr, &count), CUDA_SUCCESS);
    Nodes all(count);
    EXPECT_EQ(cuGraphGetNodes(g, all.data(), &count), CUDA_SUCCESS);
    return all;
  }
  static CUgraphExecUpdateResultInfo update(CUgraphExec exec, CUgraph g) {
    CUgraphExecUpdateResultInfo info{};
    const CUresult result = cuGraphExecUpdate(exec, g, &info);
    EXPECT_EQ(result,
              info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    return info;
  }
  // Every policy of starvation over the streams that there are now, and none.
  template <class Body>
  static void under_every_starvation(Body body) {
    for (int starved = -1; starved < hostcuda_streams_created(); ++starved) {
      ASSERT_EQ(hostcuda_configure("HOSTCUDA_STARVE", starved < 0 ? nullptr : std::to_string(starved).c_str()), 0);
      body(starved);
    }
    hostcuda_configure("HOSTCUDA_STARVE", nullptr);
  }

  CUstream stream_ = nullptr;
  CUdeviceptr p_ = 0;
};

// ---- structure --------------------------------------------------------------------------------------------------

TEST_F(Graphs, NodesAndEdgesAreAsTheyWereGiven) {
  const CUgraph g = graph();
  const CUgraphNode a = fill(g, 0, 1);
  const CUgraphNode b = copy(g, 0, 1, {a});
  const CUgraphNode c = empty(g);
  EXPECT_EQ(nodes(g), (Nodes{a, b, c}));
  EXPECT_EQ(type(a), CU_GRAPH_NODE_TYPE_MEMSET);
  EXPECT_EQ(type(b), CU_GRAPH_NODE_TYPE_MEMCPY);
  Nodes roots(4);
  size_t count = roots.size();
  ASSERT_EQ(cuGraphGetRootNodes(g, roots.data(), &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(roots, (Nodes{a, c, nullptr, nullptr})) << "the rest of a larger array is set to null";
  ASSERT_EQ(cuGraphAddDependencies(g, &b, &c, nullptr, 1), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddDependencies(g, &b, &c, nullptr, 1), CUDA_ERROR_INVALID_VALUE) << "there already";
  Nodes from(2), to(2);
  count = 2;
  ASSERT_EQ(cuGraphGetEdges(g, from.data(), to.data(), nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(from, (Nodes{a, b}));
  EXPECT_EQ(to, (Nodes{b, c}));
  CUgraphNode other = nullptr;
  count = 1;
  ASSERT_EQ(cuGraphNodeGetDependentNodes(a, &other, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(other, b);
  ASSERT_EQ(cuGraphNodeGetDependencies(c, &other, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(other, b);
  ASSERT_EQ(cuGraphRemoveDependencies(g, &b, &c, nullptr, 1), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphRemoveDependencies(g, &b, &c, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuGraphDestroyNode(b), CUDA_SUCCESS);
  EXPECT_EQ(nodes(g), (Nodes{a, c}));
  CUgraphNodeType gone;
  EXPECT_EQ(cuGraphNodeGetType(b, &gone), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuGraphDestroy(g), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(g), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphNodeGetType(a, &gone), CUDA_ERROR_INVALID_VALUE) << "its nodes went with it";
}

TEST_F(Graphs, WrongArgumentsAreRefused) {
  const CUgraph g = graph();
  const CUgraph other = graph();
  const CUgraphNode a = empty(g);
  CUgraphNode node = nullptr;
  const CUgraphNode twice[] = {a, a};
  EXPECT_EQ(cuGraphAddEmptyNode(&node, g, twice, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddEmptyNode(&node, other, &a, 1), CUDA_ERROR_INVALID_VALUE) << "another graph's node";
  EXPECT_EQ(cuGraphAddEmptyNode(&node, g, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphAddDependencies(g, &a, &a, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  CUDA_MEMSET_NODE_PARAMS bad = word_fill(0, 1);
  bad.elementSize = 3;
  EXPECT_EQ(cuGraphAddMemsetNode(&node, g, nullptr, 0, &bad, context_), CUDA_ERROR_INVALID_VALUE);
  bad = word_fill(0, 1);
  bad.dst += 1;
  EXPECT_EQ(cuGraphAddMemsetNode(&node, g, nullptr, 0, &bad, context_), CUDA_ERROR_INVALID_VALUE) << "misaligned";
  CUDA_MEMCPY3D past_end = word_copy(0, 63, 2);
  EXPECT_EQ(cuGraphAddMemcpyNode(&node, g, nullptr, 0, &past_end, context_), CUDA_ERROR_INVALID_VALUE);
  CUgraphEdgeData programmatic{};
  programmatic.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  const CUgraphNode b = empty(g);
  EXPECT_EQ(cuGraphAddDependencies(g, &a, &b, &programmatic, 1), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(nodes(g), (Nodes{a, b}));
}

TEST_F(Graphs, ACycleCannotBeInstantiated) {
  const CUgraph g = graph();
  const CUgraphNode a = empty(g);
  const CUgraphNode b = empty(g, {a});
  ASSERT_EQ(cuGraphAddDependencies(g, &b, &a, nullptr, 1), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuGraphInstantiate(&exec, g, 0), CUDA_ERROR_INVALID_VALUE);
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  EXPECT_EQ(cuGraphInstantiateWithParams(&exec, g, &params), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE);
  EXPECT_EQ(cuGraphInstantiate(&exec, g, 0x100), CUDA_ERROR_INVALID_VALUE) << "unknown flag";
}

TEST_F(Graphs, ACloneIsItsOwn) {
  const CUgraph inner = graph();
  fill(inner, 5, 55);
  const CUgraph g = graph();
  const CUgraphNode a = fill(g, 0, 7);
  const CUgraphNode b = child(g, inner, {a});
  CUgraph clone = nullptr;
  ASSERT_EQ(cuGraphClone(&clone, g), CUDA_SUCCESS);
  CUgraphNode twin = nullptr;
  ASSERT_EQ(cuGraphNodeFindInClone(&twin, a, clone), CUDA_SUCCESS);
  EXPECT_NE(twin, a);
  EXPECT_EQ(type(twin), CU_GRAPH_NODE_TYPE_MEMSET);
  EXPECT_EQ(cuGraphNodeFindInClone(&twin, a, g), CUDA_ERROR_INVALID_VALUE);
  const CUDA_MEMSET_NODE_PARAMS eight = word_fill(0, 8);
  ASSERT_EQ(cuGraphMemsetNodeSetParams(a, &eight), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphDestroyNode(b), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphDestroy(inner), CUDA_SUCCESS);
  run(instantiate(clone));
  EXPECT_EQ(word(0), 7u) << "as it was when it was cloned";
  EXPECT_EQ(word(5), 55u);
}

TEST_F(Graphs, ParametersComeBack) {
  const CUgraph g = graph();
  const CUgraphNode a = fill(g, 3, 9);
  CUDA_MEMSET_NODE_PARAMS fill_params{};
  ASSERT_EQ(cuGraphMemsetNodeGetParams(a, &fill_params), CUDA_SUCCESS);
  EXPECT_EQ(fill_params.dst, p_ + 12);
  EXPECT_EQ(fill_params.value, 9u);
  const CUgraphNode b = copy(g, 3, 4);
  CUDA_MEMCPY3D copy_params{};
  ASSERT_EQ(cuGraphMemcpyNodeGetParams(b, &copy_params), CUDA_SUCCESS);
  EXPECT_EQ(copy_params.dstDevice, p_ + 16);
  EXPECT_EQ(cuGraphMemcpyNodeGetParams(a, &copy_params), CUDA_ERROR_INVALID_VALUE) << "another type of node";
  const CUDA_HOST_NODE_PARAMS host{increment, this};
  CUgraphNode c = nullptr;
  ASSERT_EQ(cuGraphAddHostNode(&c, g, nullptr, 0, &host), CUDA_SUCCESS);
  CUDA_HOST_NODE_PARAMS host_back{};
  ASSERT_EQ(cuGraphHostNodeGetParams(c, &host_back), CUDA_SUCCESS);
  EXPECT_EQ(host_back.userData, this);

  // Captured work has the same types and parameters.
  CUgraph captured = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD16Async(p_ + 2, 5, 3, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(p_, p_ + 32, 8, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchHostFunc(stream_, increment, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream_, &captured), CUDA_SUCCESS);
  const Nodes all = nodes(captured);
  ASSERT_EQ(all.size(), 3u);
  ASSERT_EQ(cuGraphMemsetNodeGetParams(all[0], &fill_params), CUDA_SUCCESS);
  EXPECT_EQ(fill_params.dst, p_ + 2);
  EXPECT_EQ(fill_params.elementSize, 2u);
  EXPECT_EQ(fill_params.width, 3u);
  ASSERT_EQ(cuGraphMemcpyNodeGetParams(all[1], &copy_params), CUDA_SUCCESS);
  EXPECT_EQ(copy_params.srcDevice, p_ + 32);
  EXPECT_EQ(copy_params.WidthInBytes, 8u);
  ASSERT_EQ(cuGraphHostNodeGetParams(all[2], &host_back), CUDA_SUCCESS);
  EXPECT_EQ(host_back.fn, increment);
}

// A kernel's node, with parameters that can be read back and changed. The kernel itself is skipped.
TEST_F(Graphs, KernelNodes) {
  Dl_info here{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&hostcuda_view), &here), 0);
  std::string path = here.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + "libsdcguard_hostkernels.so";
  void* kernels = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(kernels, nullptr);
  const auto* table = static_cast<const hostcuda::HostKernelTable*>(dlsym(kernels, "hostcuda_kernel_table"));
  const hostcuda::HostKernelEntry* entry = *table->begin;
  ASSERT_EQ(hostcuda_configure("HOSTCUDA_SKIP_KERNEL", entry->name), 0);
  struct alignas(8) {
    uint32_t magic = 0xBA55ED50;
    uint16_t version = 1;
    uint16_t header_bytes = 16;
    uint64_t payload_bytes = 0;
  } image;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, &image, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, entry->name), CUDA_SUCCESS);
  ASSERT_EQ(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  std::vector<unsigned char> bytes(entry->parameter_bytes, 0x5A);
  void* arguments[] = {bytes.data()};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function;
  params.gridDimX = 3;
  params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = 32;
  params.kernelParams = arguments;
  const CUgraph g = graph();
  CUgraphNode node = nullptr;
  ASSERT_EQ(cuGraphAddKernelNode(&node, g, nullptr, 0, &params), CUDA_SUCCESS);
  bytes.assign(bytes.size(), 0);
  CUDA_KERNEL_NODE_PARAMS back{};
  ASSERT_EQ(cuGraphKernelNodeGetParams(node, &back), CUDA_SUCCESS);
  EXPECT_EQ(back.func, function);
  EXPECT_EQ(back.gridDimX, 3u);
  EXPECT_EQ(static_cast<const unsigned char*>(back.kernelParams[0])[0], 0x5A) << "copied when the node was made";
  params.blockDimX = 2000;
  EXPECT_EQ(cuGraphKernelNodeSetParams(node, &params), CUDA_ERROR_INVALID_VALUE);
  const CUgraphExec exec = instantiate(g);
  params.blockDimX = 64;
  EXPECT_EQ(cuGraphExecKernelNodeSetParams(exec, node, &params), CUDA_SUCCESS);
  run(exec);

  // Captured and by hand are the same node.
  CUgraph captured = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchKernel(function, 4, 1, 1, 32, 1, 1, 0, stream_, arguments, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream_, &captured), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphKernelNodeGetParams(nodes(captured).at(0), &back), CUDA_SUCCESS);
  EXPECT_EQ(back.gridDimX, 4u);
  EXPECT_EQ(update(exec, captured).result, CU_GRAPH_EXEC_UPDATE_SUCCESS);

  // A function of another context.
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate(&other, nullptr, 0, 1), CUDA_SUCCESS);
  CUfunction theirs = nullptr;
  ASSERT_EQ(cuKernelGetFunction(&theirs, kernel), CUDA_SUCCESS);
  params.func = theirs;
  const CUgraph foreign = graph();
  ASSERT_EQ(cuGraphAddKernelNode(&node, foreign, nullptr, 0, &params), CUDA_SUCCESS);
  const CUgraphExecUpdateResultInfo info = update(exec, foreign);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);
  EXPECT_EQ(info.errorNode, node);
  ASSERT_EQ(cuCtxDestroy(other), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

// ---- order ------------------------------------------------------------------------------------------------------

// a -> (b, c) -> d, with an empty node and a child graph on the way: right whichever stream is starved.
TEST_F(Graphs, EdgesAreKeptUnderEveryStarvation) {
  const CUgraph inner = graph();
  copy(inner, 0, 2);
  const CUgraph g = graph();
  const CUgraphNode a = fill(g, 0, 77);
  const CUgraphNode b = copy(g, 0, 1, {a});
  const CUgraphNode c = child(g, inner, {a});
  const CUgraphNode between = empty(g, {b, c});
  copy(g, 1, 3, {between}, 2);
  const CUgraphExec exec = instantiate(g);
  run(exec);  // makes its side stream, which can be starved from here on
  under_every_starvation([&](int starved) {
    ASSERT_EQ(cuMemsetD8Async(p_, 0, 64, stream_), CUDA_SUCCESS);
    run(exec);
    EXPECT_EQ(word(3), 77u) << starved;
    EXPECT_EQ(word(4), 77u) << starved;
  });
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

// The same without one edge is wrong under some policy: what no edge orders is not ordered.
#ifndef __SANITIZE_THREAD__
TEST_F(Graphs, AMissingEdgeIsAWrongNumberUnderSomeStarvation) {
  const CUgraph g = graph();
  const CUgraphNode a = fill(g, 0, 77);
  copy(g, 0, 1, {a});
  copy(g, 0, 2);  // should come after a
  const CUgraphExec exec = instantiate(g);
  run(exec);
  int wrong = 0;
  under_every_starvation([&](int) {
    ASSERT_EQ(cuMemsetD8Async(p_, 0, 64, stream_), CUDA_SUCCESS);
    run(exec);
    EXPECT_EQ(word(1), 77u);
    wrong += word(2) == 77 ? 0 : 1;
  });
  EXPECT_GT(wrong, 0);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}
#else
TEST_F(Graphs, AMissingEdgeIsNamedByTsan) {
  EXPECT_EXIT(
      {
        const CUgraph g = graph();
        fill(g, 0, 77);
        copy(g, 0, 2);
        const CUgraphExec exec = instantiate(g);
        for (int i = 0; i < 100; ++i) run(exec);
        _exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}
#endif

TEST_F(Graphs, LaunchesOfOneExecutableGraphAreOneAfterTheOther) {
  CUgraph g = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(hostcuda_enqueue(stream_, increment, reinterpret_cast<void*>(p_), "increment"), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream_, &g), CUDA_SUCCESS);
  const CUgraphExec exec = instantiate(g);
  CUstream other = nullptr;
  ASSERT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  under_every_starvation([&](int starved) {
    ASSERT_EQ(cuMemsetD32Async(p_, 0, 1, stream_), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
    for (int i = 0; i < 20; ++i) ASSERT_EQ(cuGraphLaunch(exec, i % 2 == 0 ? stream_ : other), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(word(0), 20u) << starved;
  });
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST_F(Graphs, TwoExecutableGraphsRunAtOnce) {
  Gate gate;
  CUgraph g = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(gate.put(stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream_, &g), CUDA_SUCCESS);
  const CUgraph plain = graph();
  fill(plain, 0, 4);
  CUstream other = nullptr;
  ASSERT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(instantiate(g), stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(instantiate(g), other), CUDA_SUCCESS);
  CUstream third = nullptr;
  ASSERT_EQ(cuStreamCreate(&third, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(instantiate(plain), third), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(third), CUDA_SUCCESS);
  uint32_t value = 0;
  ASSERT_EQ(cuMemcpyDtoHAsync(&value, p_, 4, third), CUDA_SUCCESS);
  EXPECT_EQ(value, 4u) << "while the others are held";
  gate.open();
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(Graphs, AnExecutableGraphOutlivesItsGraphAndItsOwnHandle) {
  Gate gate;
  const CUgraph g = graph();
  fill(g, 0, 5);
  const CUgraphExec exec = instantiate(g);
  ASSERT_EQ(cuGraphDestroy(g), CUDA_SUCCESS);
  ASSERT_EQ(gate.put(stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_INVALID_VALUE);
  gate.open();
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(word(0), 5u);
}

TEST_F(Graphs, NodesOfTwoDevices) {
  CUcontext second = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(second), CUDA_SUCCESS);
  CUstream theirs = nullptr;
  CUevent back = nullptr;
  CUdeviceptr q = 0;
  ASSERT_EQ(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc(&q, 64), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPopCurrent(&second), CUDA_SUCCESS);
  CUevent fork = nullptr;
  ASSERT_EQ(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  CUgraph g = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(p_, 3, 1, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(fork, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(theirs, fork, 0), CUDA_SUCCESS);
  static std::atomic<int> ran_on;
  ran_on = -1;
  ASSERT_EQ(hostcuda_enqueue(
                theirs, [](void*) { ran_on = hostcuda_running_device(); }, nullptr, "asks"),
            CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(q, p_, 4, theirs), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(back, theirs), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(stream_, back, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(p_ + 4, q, 4, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream_, &g), CUDA_SUCCESS);
  const CUgraphExec exec = instantiate(g);
  run(exec);
  EXPECT_EQ(word(1), 3u);
  EXPECT_EQ(ran_on.load(), 1) << "a node runs on the device of the stream that it was captured from";
  ASSERT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(Graphs, LaunchedIntoACaptureItIsAChild) {
  const CUgraph g = graph();
  fill(g, 0, 6);
  const CUgraphExec exec = instantiate(g);
  CUgraph outer = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(p_ + 4, p_, 4, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream_, &outer), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  const Nodes all = nodes(outer);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(type(all[0]), CU_GRAPH_NODE_TYPE_GRAPH);
  CUgraph inner = nullptr;
  ASSERT_EQ(cuGraphChildGraphNodeGetGraph(all[0], &inner), CUDA_SUCCESS);
  EXPECT_EQ(nodes(inner).size(), 1u);
  EXPECT_EQ(cuGraphDestroy(inner), CUDA_ERROR_INVALID_VALUE) << "its node owns it";
  EXPECT_EQ(word(0), 0u);
  run(instantiate(outer));
  EXPECT_EQ(word(1), 6u);
}

// ---- changes to an executable graph ------------------------------------------------------------------------------

TEST_F(Graphs, SetParametersConcernLaterLaunches) {
  const CUgraph inner = graph();
  const CUgraphNode deep = fill(inner, 2, 1);
  const CUgraph g = graph();
  const CUgraphNode a = fill(g, 0, 1);
  const CUgraphNode b = copy(g, 0, 1, {a});
  const CUgraphNode c = child(g, inner, {b});
  const CUgraphExec exec = instantiate(g);
  Gate gate;
  ASSERT_EQ(gate.put(stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  const CUDA_MEMSET_NODE_PARAMS two = word_fill(0, 2);
  ASSERT_EQ(cuGraphExecMemsetNodeSetParams(exec, a, &two, context_), CUDA_SUCCESS);
  const CUDA_MEMCPY3D elsewhere = word_copy(0, 9);
  ASSERT_EQ(cuGraphExecMemcpyNodeSetParams(exec, b, &elsewhere, context_), CUDA_SUCCESS);
  gate.open();
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(word(1), 1u) << "as it was when it was launched";
  EXPECT_EQ(word(9), 0u);
  run(exec);
  EXPECT_EQ(word(1), 1u);
  EXPECT_EQ(word(9), 2u);
  CUDA_MEMSET_NODE_PARAMS back{};
  ASSERT_EQ(cuGraphMemsetNodeGetParams(a, &back), CUDA_SUCCESS);
  EXPECT_EQ(back.value, 1u) << "the graph is not changed";

  // A node of a child graph, by the child that the graph owns; the whole child.
  CUgraph owned = nullptr;
  ASSERT_EQ(cuGraphChildGraphNodeGetGraph(c, &owned), CUDA_SUCCESS);
  const CUDA_MEMSET_NODE_PARAMS three = word_fill(2, 3);
  ASSERT_EQ(cuGraphExecMemsetNodeSetParams(exec, nodes(owned).at(0), &three, context_), CUDA_SUCCESS);
  run(exec);
  EXPECT_EQ(word(2), 3u);
  const CUDA_MEMSET_NODE_PARAMS four = word_fill(2, 4);
  ASSERT_EQ(cuGraphMemsetNodeSetParams(deep, &four), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphExecChildGraphNodeSetParams(exec, c, inner), CUDA_SUCCESS);
  run(exec);
  EXPECT_EQ(word(2), 4u);
  fill(inner, 3, 4);
  EXPECT_EQ(cuGraphExecChildGraphNodeSetParams(exec, c, inner), CUDA_ERROR_INVALID_VALUE) << "another topology";

  const CUgraph other = graph();
  EXPECT_EQ(cuGraphExecMemsetNodeSetParams(exec, fill(other, 0, 1), &two, context_), CUDA_ERROR_INVALID_VALUE)
      << "a node of a graph that it was not made from";
  EXPECT_EQ(cuGraphExecMemsetNodeSetParams(exec, b, &two, context_), CUDA_ERROR_INVALID_VALUE) << "another type";
  CUDA_MEMCPY3D rectangle = word_copy(0, 9);
  rectangle.Height = 2;
  rectangle.srcPitch = rectangle.dstPitch = 16;
  EXPECT_EQ(cuGraphExecMemcpyNodeSetParams(exec, b, &rectangle, context_), CUDA_ERROR_INVALID_VALUE)
      << "only one-dimensional copies";
}

TEST_F(Graphs, DisabledNodesDoNothing) {
  const CUgraph g = graph();
  const CUgraphNode a = fill(g, 0, 1);
  const CUgraphNode b = fill(g, 1, 1, {a});
  const CUgraphNode c = empty(g);
  const CUgraphExec exec = instantiate(g);
  ASSERT_EQ(cuGraphNodeSetEnabled(exec, a, 0), CUDA_SUCCESS);
  unsigned enabled = 1;
  ASSERT_EQ(cuGraphNodeGetEnabled(exec, a, &enabled), CUDA_SUCCESS);
  EXPECT_EQ(enabled, 0u);
  EXPECT_EQ(cuGraphNodeSetEnabled(exec, c, 0), CUDA_ERROR_INVALID_VALUE) << "not that type of node";
  run(exec);
  EXPECT_EQ(word(0), 0u);
  EXPECT_EQ(word(1), 1u);
  ASSERT_EQ(cuGraphNodeSetEnabled(exec, a, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphNodeGetEnabled(exec, b, &enabled), CUDA_SUCCESS);
  EXPECT_EQ(enabled, 1u);
  run(exec);
  EXPECT_EQ(word(0), 1u);
}

TEST_F(Graphs, UpdateTakesWhatHasTheSameShape) {
  const auto capture = [this](unsigned value, unsigned to) {
    CUgraph g = nullptr;
    EXPECT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD32Async(p_, value, 1, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoDAsync(p_ + 4 * to, p_, 4, stream_), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamEndCapture(stream_, &g), CUDA_SUCCESS);
    return g;
  };
  const CUgraphExec exec = instantiate(capture(1, 1));
  EXPECT_EQ(update(exec, capture(2, 5)).result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  run(exec);
  EXPECT_EQ(word(1), 0u);
  EXPECT_EQ(word(5), 2u);
}

TEST_F(Graphs, UpdateRefusesAndSaysWhy) {
  const CUgraph g = graph();
  const CUgraphNode a = fill(g, 0, 1);
  const CUgraphNode b = copy(g, 0, 1, {a});
  copy(g, 0, 2, {a});
  (void)b;
  const CUgraphExec exec = instantiate(g);
  {
    const CUgraph fewer = graph();
    fill(fewer, 0, 9);
    const CUgraphExecUpdateResultInfo info = update(exec, fewer);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    EXPECT_EQ(info.errorNode, nullptr);
  }
  {
    const CUgraph exits = graph();
    fill(exits, 0, 9);
    copy(exits, 0, 1);
    const CUgraphNode third = copy(exits, 0, 2);
    const CUgraphExecUpdateResultInfo info = update(exec, exits);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    EXPECT_EQ(info.errorNode, third) << "one of the exits that are too many";
  }
  {
    const CUgraph edges = graph();
    const CUgraphNode first = fill(edges, 0, 9);
    copy(edges, 0, 1, {first});
    const CUgraphNode loose = copy(edges, 0, 2);
    const CUgraphExecUpdateResultInfo info = update(exec, edges);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    EXPECT_EQ(info.errorNode, loose);
  }
  {
    const CUgraph types = graph();
    const CUgraphNode first = fill(types, 0, 9);
    copy(types, 0, 1, {first});
    const CUgraphNode other = fill(types, 2, 9, {first});
    const CUgraphExecUpdateResultInfo info = update(exec, types);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    EXPECT_EQ(info.errorNode, other);
  }
  {
    // The source of a copy moves to host memory.
    const CUgraph places = graph();
    const CUgraphNode first = fill(places, 0, 9);
    copy(places, 0, 1, {first});
    static uint32_t host_word = 3;
    CUDA_MEMCPY3D params = word_copy(0, 2);
    params.srcMemoryType = CU_MEMORYTYPE_HOST;
    params.srcHost = &host_word;
    CUgraphNode moved = nullptr;
    ASSERT_EQ(cuGraphAddMemcpyNode(&moved, places, &first, 1, &params, context_), CUDA_SUCCESS);
    const CUgraphExecUpdateResultInfo info = update(exec, places);
    EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    EXPECT_EQ(info.errorNode, moved);
  }
  {
    // A two-dimensional fill of another height.
    const CUgraph tall = graph();
    CUDA_MEMSET_NODE_PARAMS params{p_, 16, 1, 4, 2, 2};
    CUgraphNode node = nullptr;
    ASSERT_EQ(cuGraphAddMemsetNode(&node, tall, nullptr, 0, &params, context_), CUDA_SUCCESS);
    const CUgraphExec tall_exec = instantiate(tall);
    const CUgraph taller = graph();
    params.height = 3;
    ASSERT_EQ(cuGraphAddMemsetNode(&node, taller, nullptr, 0, &params, context_), CUDA_SUCCESS);
    EXPECT_EQ(update(tall_exec, taller).result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    params.height = 2;
    params.value = 8;
    ASSERT_EQ(cuGraphMemsetNodeSetParams(node, &params), CUDA_SUCCESS);
    EXPECT_EQ(update(tall_exec, taller).result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  }
  run(exec);
  EXPECT_EQ(word(1), 1u) << "a refused update changes nothing";
  EXPECT_EQ(word(2), 1u);
}

// ---- what a graph owns --------------------------------------------------------------------------------------------

TEST_F(Graphs, AllocationNodesGiveOneAddressForGood) {
  CUgraph g = nullptr;
  CUdeviceptr q = 0;
  size_t before = 0;
  size_t after = 0;
  size_t total = 0;
  ASSERT_EQ(cuMemGetInfo(&before, &total), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&q, 4096, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(q, 12, 1024, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(p_, q + 4092, 4, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(q, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream_, &g), CUDA_SUCCESS);
  const Nodes all = nodes(g);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(type(all[0]), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  EXPECT_EQ(type(all[3]), CU_GRAPH_NODE_TYPE_MEM_FREE);
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  ASSERT_EQ(cuGraphMemAllocNodeGetParams(all[0], &params), CUDA_SUCCESS);
  EXPECT_EQ(params.dptr, q);
  EXPECT_EQ(params.bytesize, 4096u);
  unsigned memory_type = 0;
  EXPECT_EQ(cuPointerGetAttribute(&memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, q), CUDA_SUCCESS);
  EXPECT_EQ(memory_type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(hostcuda_view(q, 4, HOSTCUDA_READ), nullptr) << "no memory until it runs";
  CUgraph clone = nullptr;
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphClone(&clone, g), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuGraphAddChildGraphNode(&node, graph(), nullptr, 0, g), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuGraphDestroyNode(all[1]), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, g, &all[3], 1, q), CUDA_ERROR_INVALID_VALUE) << "freed twice";
  const CUgraphExec exec = instantiate(g);
  CUgraphExec second = nullptr;
  EXPECT_EQ(cuGraphInstantiate(&second, g, 0), CUDA_ERROR_NOT_SUPPORTED) << "one executable graph at a time";
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cuMemsetD32Async(p_, 0, 1, stream_), CUDA_SUCCESS);
    run(exec);
    EXPECT_EQ(word(0), 12u);
  }
  EXPECT_EQ(hostcuda_view(q, 4, HOSTCUDA_READ), nullptr);
  ASSERT_EQ(cuMemGetInfo(&after, &total), CUDA_SUCCESS);
  EXPECT_EQ(after, before);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphInstantiate(&second, g, 0), CUDA_SUCCESS);
}

TEST_F(Graphs, UnfreedAllocationsAreSomebodysToFree) {
  CUgraph g = nullptr;
  CUdeviceptr q = 0;
  ASSERT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&q, 256, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(q, 21, 1, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream_, &g), CUDA_SUCCESS);
  CUgraphExec exec = instantiate(g);
  EXPECT_EQ(cuMemFreeAsync(q, stream_), CUDA_ERROR_INVALID_VALUE) << "not allocated yet";
  run(exec);
  EXPECT_EQ(read_word(q), 21u);
  EXPECT_EQ(cuGraphLaunch(exec, stream_), CUDA_ERROR_INVALID_VALUE) << "still allocated";
  ASSERT_EQ(cuMemFreeAsync(q, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(q, stream_), CUDA_ERROR_INVALID_VALUE);
  run(exec);
  EXPECT_EQ(read_word(q), 21u);
  ASSERT_EQ(cuMemFree(q), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  exec = instantiate(g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  for (int i = 0; i < 3; ++i) run(exec);
  EXPECT_EQ(read_word(q), 21u);

  // Freed by another graph.
  const CUgraph freeing = graph();
  CUgraphNode node = nullptr;
  ASSERT_EQ(cuGraphAddMemFreeNode(&node, freeing, nullptr, 0, q), CUDA_SUCCESS);
  CUdeviceptr freed = 0;
  ASSERT_EQ(cuGraphMemFreeNodeGetParams(node, &freed), CUDA_SUCCESS);
  EXPECT_EQ(freed, q);
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, g, nullptr, 0, q), CUDA_ERROR_INVALID_VALUE)
      << "freed by another graph: its own cannot any more";
  run(instantiate(freeing));
  EXPECT_EQ(hostcuda_view(q, 4, HOSTCUDA_READ), nullptr);
}

TEST_F(Graphs, UseAfterTheFreeNodeEndsTheProcess) {
  EXPECT_EXIT(
      {
        CUgraph g = nullptr;
        CUdeviceptr q = 0;
        cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
        cuMemAllocAsync(&q, 256, stream_);
        cuMemFreeAsync(q, stream_);
        cuMemsetD32Async(q, 21, 1, stream_);
        cuStreamEndCapture(stream_, &g);
        run(instantiate(g));
        _exit(0);
      },
      testing::ExitedWithCode(86), "memset.*graph's allocation that is not made now");
}

TEST_F(Graphs, NoRoomForAnAllocationFailsTheLaunch) {
  setenv("HOSTCUDA_MEMORY", "1M", 0);  // for the process that the death test starts
  EXPECT_EXIT(
      {
        CUdeviceptr q = 0;
        CUgraph g = nullptr;
        cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
        const CUresult captured = cuMemAllocAsync(&q, 700 << 10, stream_);
        cuStreamEndCapture(stream_, &g);
        allocate(600 << 10);
        const CUresult launched = cuGraphLaunch(instantiate(g), stream_);
        _exit(captured == CUDA_SUCCESS && launched == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  unsetenv("HOSTCUDA_MEMORY");
}

TEST_F(Graphs, UserObjectsLiveAsLongAsAnythingMayRun) {
  static std::atomic<int> destroyed;
  destroyed = 0;
  const auto stays = [](int count) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return destroyed == count;
  };
  const auto becomes = [](int count) {
    for (int i = 0; i < 2000 && destroyed != count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return destroyed == count;
  };
  const auto object = [] {
    CUuserObject o = nullptr;
    EXPECT_EQ(cuUserObjectCreate(
                  &o, nullptr, [](void*) { ++destroyed; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
              CUDA_SUCCESS);
    return o;
  };
  CUuserObject o = object();
  EXPECT_EQ(cuUserObjectCreate(
                &o, nullptr, [](void*) {}, 1, 0),
            CUDA_ERROR_INVALID_VALUE)
      << "the flag is required";
  ASSERT_EQ(cuUserObjectRetain(o, 2), CUDA_SUCCESS);
  ASSERT_EQ(cuUserObjectRelease(o, 2), CUDA_SUCCESS);
  EXPECT_TRUE(stays(0));
  ASSERT_EQ(cuUserObjectRelease(o, 1), CUDA_SUCCESS);
  EXPECT_TRUE(becomes(1));
  EXPECT_EQ(cuUserObjectRelease(o, 1), CUDA_ERROR_INVALID_VALUE);

  // Owned by a graph, its executable graph, and a launch that is held.
  destroyed = 0;
  o = object();
  const CUgraph g = graph();
  fill(g, 0, 1);
  ASSERT_EQ(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphReleaseUserObject(g, o, 2), CUDA_ERROR_INVALID_VALUE);
  const CUgraphExec exec = instantiate(g);
  ASSERT_EQ(cuGraphDestroy(g), CUDA_SUCCESS);
  EXPECT_TRUE(stays(0));
  Gate gate;
  ASSERT_EQ(gate.put(stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_TRUE(stays(0)) << "a launch is in flight";
  gate.open();
  EXPECT_TRUE(becomes(1));

  // An update brings the references of its graph and drops the old ones.
  destroyed = 0;
  const CUgraph first = graph();
  const CUgraph next = graph();
  fill(first, 0, 1);
  fill(next, 0, 2);
  ASSERT_EQ(cuGraphRetainUserObject(first, object(), 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphRetainUserObject(next, object(), 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  const CUgraphExec updated = instantiate(first);
  ASSERT_EQ(cuGraphDestroy(first), CUDA_SUCCESS);
  EXPECT_EQ(update(updated, next).result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  EXPECT_TRUE(becomes(1));
  ASSERT_EQ(cuGraphDestroy(next), CUDA_SUCCESS);
  EXPECT_TRUE(stays(1));
  ASSERT_EQ(cuGraphExecDestroy(updated), CUDA_SUCCESS);
  EXPECT_TRUE(becomes(2));
}

TEST_F(Graphs, PrintsItsStructure) {
  const CUgraph g = graph();
  empty(g, {fill(g, 0, 1)});
  const sdcguard::ScratchFolder folder;
  const std::string path = folder / "graph.dot";
  ASSERT_EQ(cuGraphDebugDotPrint(g, path.c_str(), 0), CUDA_SUCCESS);
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find("digraph"), std::string::npos);
  EXPECT_NE(text.str().find("memset"), std::string::npos);
  EXPECT_NE(text.str().find("->"), std::string::npos);
}

// ---- libraries ----------------------------------------------------------------------------------------------------

// A captured product has its host scalars from the call, its device scalars and its operands from the replay.
TEST_F(Graphs, CapturedProductsReadDeviceScalarsAtReplay) {
  constexpr int kN = 16;
  const CUdeviceptr a = allocate(kN * kN * 4);
  const CUdeviceptr b = allocate(kN * kN * 4);
  const CUdeviceptr c = allocate(kN * kN * 4);
  const CUdeviceptr scalars = allocate(8);
  const auto fill_floats = [](CUdeviceptr p, float value, size_t n) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    ASSERT_EQ(cuMemsetD32(p, bits, n), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  };
  const auto first_float = [](CUdeviceptr p) {
    const uint32_t bits = read_word(p);
    float value = 0;
    std::memcpy(&value, &bits, 4);
    return value;
  };
  fill_floats(a, 1, kN * kN);
  fill_floats(b, 2, kN * kN);
  fill_floats(c, 0, kN * kN);
  cublasHandle_t handle = nullptr;
  ASSERT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSetStream(handle, stream_), CUBLAS_STATUS_SUCCESS);
  const auto capture = [&](const float* alpha, const float* beta, cublasPointerMode_t mode) {
    CUgraph g = nullptr;
    EXPECT_EQ(cublasSetPointerMode(handle, mode), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kN, kN, kN, alpha, reinterpret_cast<const float*>(a), kN,
                          reinterpret_cast<const float*>(b), kN, beta, reinterpret_cast<float*>(c), kN),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cuStreamEndCapture(stream_, &g), CUDA_SUCCESS);
    return g;
  };
  auto alpha = std::make_unique<float>(3.f);
  auto beta = std::make_unique<float>(0.f);
  const CUgraph baked = capture(alpha.get(), beta.get(), CUBLAS_POINTER_MODE_HOST);
  *alpha = 1000.f;
  alpha.reset();
  beta.reset();
  const CUgraphExec baked_exec = instantiate(baked);
  EXPECT_EQ(first_float(c), 0.f) << "nothing ran during capture";
  run(baked_exec);
  EXPECT_EQ(first_float(c), 3.f * 2 * kN);
  fill_floats(b, 4, kN * kN);
  run(baked_exec);
  EXPECT_EQ(first_float(c), 3.f * 4 * kN);

  fill_floats(scalars, 1, 1);
  fill_floats(scalars + 4, 0, 1);
  const CUgraphExec read_exec =
      instantiate(capture(reinterpret_cast<const float*>(scalars), reinterpret_cast<const float*>(scalars + 4),
                          CUBLAS_POINTER_MODE_DEVICE));
  run(read_exec);
  EXPECT_EQ(first_float(c), 4.f * kN);
  fill_floats(scalars, 5, 1);
  run(read_exec);
  EXPECT_EQ(first_float(c), 5.f * 4 * kN);

  // Replayed on two streams at once, and by two executable graphs.
  CUstream other = nullptr;
  ASSERT_EQ(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const CUgraphExec twin = instantiate(baked);
  under_every_starvation([&](int starved) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(cuGraphLaunch(baked_exec, stream_), CUDA_SUCCESS);
      ASSERT_EQ(cuGraphLaunch(baked_exec, other), CUDA_SUCCESS);
    }
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(twin, other), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(first_float(c), 3.f * 4 * kN) << starved;
  });
  ASSERT_EQ(cublasDestroy(handle), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace hostcuda_test

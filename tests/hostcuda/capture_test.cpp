// SPDX-License-Identifier: MIT
// Stream capture: what is recorded, which calls a capture forbids in which mode and what they return, fork and join
// over several streams, and what a broken capture leaves.
#include <functional>
#include <string>

#include "tests/hostcuda/device_fixture.h"

namespace hostcuda_test {
namespace {

class Capture : public DeviceTest {
 protected:
  static CUstream create(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    EXPECT_EQ(cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
  }
  static CUevent event() {
    CUevent e = nullptr;
    EXPECT_EQ(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    return e;
  }
  static void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED) {
    ASSERT_EQ(cuStreamBeginCapture(stream, mode), CUDA_SUCCESS);
  }
  static CUresult end(CUstream stream, CUgraph* graph = nullptr) {
    CUgraph own = nullptr;
    return cuStreamEndCapture(stream, graph != nullptr ? graph : &own);
  }
  static CUstreamCaptureStatus status(CUstream stream) {
    CUstreamCaptureStatus s = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(cuStreamIsCapturing(stream, &s), CUDA_SUCCESS);
    return s;
  }
  // Puts `second` after `first`, by an event.
  static void order(CUstream first, CUstream second) {
    const CUevent e = event();
    ASSERT_EQ(cuEventRecord(e, first), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(second, e, 0), CUDA_SUCCESS);
  }
  static size_t node_count(CUgraph graph) {
    size_t count = 0;
    EXPECT_EQ(cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    return count;
  }
  // What `call` returns on another thread with the same context.
  CUresult elsewhere(const std::function<CUresult()>& call) const {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      cuCtxSetCurrent(context_);
      result = call();
    }).join();
    return result;
  }
};

TEST_F(Capture, RecordsAndReplayRuns) {
  const CUstream stream = create();
  const CUdeviceptr p = allocate(8);
  ASSERT_EQ(cuMemsetD32(p, 0, 2), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  ASSERT_EQ(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(hostcuda_enqueue(
                stream,
                [](void* arg) {
                  auto* word =
                      static_cast<uint32_t*>(hostcuda_view(reinterpret_cast<CUdeviceptr>(arg), 4, HOSTCUDA_WRITE));
                  ++*word;
                },
                reinterpret_cast<void*>(p), "increment"),
            CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(p + 4, p, 4, stream), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(read_word(p), 0u) << "nothing ran during capture";
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(read_word(p), 3u);
  EXPECT_EQ(read_word(p + 4), 3u);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST_F(Capture, CapturedBodyLivesAsLongAsItsGraphs) {
  const CUstream stream = create();
  int destroyed = 0;
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(hostcuda_enqueue_owned(
                stream, [](void*) {}, [](void* arg) { ++*static_cast<int*>(arg); }, &destroyed, "owned"),
            CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(destroyed, 0);
  ASSERT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(destroyed, 1);
}

TEST_F(Capture, UnsafeCallsBreakAGlobalCapture) {
  const CUstream stream = create();
  CUdeviceptr p = 0;
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUresult elsewhere = CUDA_SUCCESS;
  std::thread([&] {
    cuCtxSetCurrent(context_);
    elsewhere = cuMemAlloc(&p, 64);
  }).join();
  EXPECT_EQ(elsewhere, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  ASSERT_EQ(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);

  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(cuMemAlloc(&p, 64), CUDA_SUCCESS) << "relaxed";
  ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Capture, EndsWithItsStream) {
  const CUstream stream = create();
  int destroyed = 0;
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(hostcuda_enqueue_owned(
                stream, [](void*) {}, [](void* arg) { ++*static_cast<int*>(arg); }, &destroyed, "owned"),
            CUDA_SUCCESS);
  ASSERT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
  EXPECT_EQ(destroyed, 1);
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc(&p, 64), CUDA_SUCCESS) << "no capture is open that could forbid it";
}

TEST_F(Capture, LegacyStreamBreaksOneOfABlockingStream) {
  const CUstream blocking = create(CU_STREAM_DEFAULT);
  const CUdeviceptr p = allocate(4);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) << "asking breaks nothing";
  ASSERT_EQ(cuStreamIsCapturing(blocking, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(cuMemsetD32Async(p, 1, 1, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_F(Capture, CapturedForkMustJoin) {
  const CUstream origin = create();
  const CUstream side = create();
  CUevent fork = nullptr;
  CUevent join = nullptr;
  ASSERT_EQ(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  const CUdeviceptr p = allocate(4);
  for (const bool joined : {false, true}) {
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    ASSERT_EQ(cuEventRecord(fork, origin), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    ASSERT_EQ(cuStreamIsCapturing(side, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ASSERT_EQ(cuMemsetD32Async(p, 31, 1, side), CUDA_SUCCESS);
    if (joined) {
      ASSERT_EQ(cuEventRecord(join, side), CUDA_SUCCESS);
      ASSERT_EQ(cuStreamWaitEvent(origin, join, 0), CUDA_SUCCESS);
    }
    EXPECT_EQ(cuStreamEndCapture(origin, &graph), joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    if (!joined) continue;
    CUgraphExec exec = nullptr;
    ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphLaunch(exec, origin), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(origin), CUDA_SUCCESS);
    EXPECT_EQ(read_word(p), 31u);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  }
}

// ---- modes ------------------------------------------------------------------------------------------------------

// Who may allocate while a capture of each mode is open: the thread that captures, and another one in each own mode.
TEST_F(Capture, ModesSayWhoMayAllocate) {
  constexpr CUstreamCaptureMode kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
  constexpr CUstreamCaptureMode kLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  constexpr CUstreamCaptureMode kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  struct Case {
    CUstreamCaptureMode capture, caller;
    bool other_thread, allowed;
  };
  const Case cases[] = {
      {kGlobal, kGlobal, false, false}, {kGlobal, kLocal, false, false},  {kGlobal, kRelaxed, false, true},
      {kLocal, kGlobal, false, false},  {kLocal, kLocal, false, false},   {kLocal, kRelaxed, false, true},
      {kRelaxed, kGlobal, false, true}, {kRelaxed, kLocal, false, true},  {kRelaxed, kRelaxed, false, true},
      {kGlobal, kGlobal, true, false},  {kGlobal, kLocal, true, true},    {kGlobal, kRelaxed, true, true},
      {kLocal, kGlobal, true, true},    {kLocal, kLocal, true, true},     {kLocal, kRelaxed, true, true},
      {kRelaxed, kGlobal, true, true},  {kRelaxed, kRelaxed, true, true},
  };
  const CUstream stream = create();
  for (const Case& c : cases) {
    SCOPED_TRACE(std::to_string(c.capture) + " " + std::to_string(c.caller) + " " + std::to_string(c.other_thread));
    begin(stream, c.capture);
    const auto allocate_in_mode = [&c] {
      CUstreamCaptureMode mode = c.caller;
      cuThreadExchangeStreamCaptureMode(&mode);
      CUdeviceptr p = 0;
      const CUresult result = cuMemAlloc(&p, 64);
      cuThreadExchangeStreamCaptureMode(&mode);
      return result;
    };
    const CUresult result = c.other_thread ? elsewhere(allocate_in_mode) : allocate_in_mode();
    EXPECT_EQ(result, c.allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(status(stream), c.allowed ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(end(stream), c.allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

TEST_F(Capture, UnsafeCallsAreTheOnesThatMaySynchronise) {
  const CUstream stream = create();
  const CUstream other = create();
  const CUevent live = event();
  ASSERT_EQ(cuEventRecord(live, other), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(other), CUDA_SUCCESS);
  const CUdeviceptr p = allocate(64);
  uint32_t word = 0;
  void* host = nullptr;
  CUdeviceptr q = 0;
  const std::pair<const char*, std::function<CUresult()>> unsafe[] = {
      {"cuMemAlloc", [&] { return cuMemAlloc(&q, 64); }},
      {"cuMemFree", [&] { return cuMemFree(p); }},
      {"cuMemAllocHost", [&] { return cuMemAllocHost(&host, 64); }},
      {"cuMemAllocManaged", [&] { return cuMemAllocManaged(&q, 64, CU_MEM_ATTACH_GLOBAL); }},
      {"cuMemHostRegister", [&] { return cuMemHostRegister(&word, sizeof word, 0); }},
      {"cuStreamQuery", [&] { return cuStreamQuery(other); }},
      {"cuStreamSynchronize", [&] { return cuStreamSynchronize(other); }},
      {"cuEventQuery", [&] { return cuEventQuery(live); }},
      {"cuEventSynchronize", [&] { return cuEventSynchronize(live); }},
      {"cuMemcpyDtoH", [&] { return cuMemcpyDtoH(&word, p, sizeof word); }},
  };
  for (const auto& [name, call] : unsafe) {
    begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    EXPECT_EQ(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << name;
    EXPECT_EQ(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) << name;
  }
  // The same with nothing captured is allowed, and so is what cannot wait while something is.
  begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(cuMemsetD32Async(p, 1, 1, other), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(live, other), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoDAsync(p, p + 32, 8, other), CUDA_SUCCESS);
  unsigned type = 0;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p), CUDA_SUCCESS);
  EXPECT_EQ(end(stream), CUDA_SUCCESS);
}

TEST_F(Capture, WhatIsCapturedCannotBeWaitedFor) {
  const CUstream stream = create();
  const CUstream side = create();
  const CUevent inside = event();
  const std::pair<const char*, std::function<CUresult()>> impossible[] = {
      {"cuStreamQuery", [&] { return cuStreamQuery(stream); }},
      {"cuStreamSynchronize", [&] { return cuStreamSynchronize(stream); }},
      {"of a joined stream", [&] { return cuStreamSynchronize(side); }},
      {"cuCtxSynchronize", [&] { return cuCtxSynchronize(); }},
      {"on another thread", [&] { return elsewhere([] { return cuCtxSynchronize(); }); }},
  };
  for (const auto& [name, call] : impossible) {
    begin(stream);  // relaxed: it is not about safety
    order(stream, side);
    EXPECT_EQ(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) << name;
    EXPECT_EQ(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) << name;
  }
  for (auto* call : {&cuEventQuery, &cuEventSynchronize}) {
    begin(stream);
    ASSERT_EQ(cuEventRecord(inside, stream), CUDA_SUCCESS);
    EXPECT_EQ(call(inside), CUDA_ERROR_CAPTURED_EVENT);
    EXPECT_EQ(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(call(inside), CUDA_ERROR_CAPTURED_EVENT) << "last recorded in a capture";
    ASSERT_EQ(cuEventRecord(inside, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuEventSynchronize(inside), CUDA_SUCCESS) << "recorded live again";
  }
}

TEST_F(Capture, BrokenOnesRefuseEverythingUntilTheyEnd) {
  const CUstream stream = create();
  const CUstream side = create();
  const CUevent inside = event();
  const CUdeviceptr p = allocate(64);
  begin(stream);
  ASSERT_EQ(cuEventRecord(inside, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamWaitEvent(side, inside, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuMemsetD32Async(p, 1, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuMemsetD32Async(p, 1, 1, side), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuEventRecord(inside, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuStreamWaitEvent(stream, inside, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(status(side), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CUgraph graph = reinterpret_cast<CUgraph>(1);
  EXPECT_EQ(end(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(status(side), CU_STREAM_CAPTURE_STATUS_NONE) << "the end takes every stream out";
  EXPECT_EQ(cuMemsetD32Async(p, 1, 1, side), CUDA_SUCCESS);
}

TEST_F(Capture, EndsWhereItBegan) {
  const CUstream stream = create();
  const CUstream side = create();
  EXPECT_EQ(end(stream), CUDA_ERROR_ILLEGAL_STATE) << "nothing begun";
  begin(stream);
  EXPECT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
  order(stream, side);
  EXPECT_EQ(end(side), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    begin(stream, mode);
    const CUresult result = elsewhere([&] { return end(stream); });
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
      EXPECT_EQ(result, CUDA_SUCCESS);
    } else {
      EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
      EXPECT_EQ(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
  }
}

// ---- several streams --------------------------------------------------------------------------------------------

TEST_F(Capture, AForkWithoutWorkMustJoinToo) {
  const CUstream origin = create();
  const CUstream side = create();
  const CUstream third = create();
  begin(origin);
  order(origin, side);
  EXPECT_EQ(end(origin), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  begin(origin);
  order(origin, side);
  order(side, third);  // joined by way of another stream
  order(third, origin);
  EXPECT_EQ(end(origin), CUDA_SUCCESS);
}

TEST_F(Capture, WorkAfterTheJoinIsUnjoined) {
  const CUstream origin = create();
  const CUstream side = create();
  const CUdeviceptr p = allocate(8);
  begin(origin);
  order(origin, side);
  order(side, origin);
  ASSERT_EQ(cuMemsetD32Async(p, 1, 1, side), CUDA_SUCCESS);
  EXPECT_EQ(end(origin), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

TEST_F(Capture, CannotDependOnWorkOutside) {
  const CUstream stream = create();
  const CUstream other = create();
  const CUevent outside = event();
  begin(stream);
  EXPECT_EQ(cuStreamWaitEvent(stream, outside, 0), CUDA_SUCCESS) << "never recorded: nothing to wait for";
  EXPECT_EQ(end(stream), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(outside, other), CUDA_SUCCESS);
  begin(stream);
  EXPECT_EQ(cuStreamWaitEvent(stream, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  // An event of a capture that has ended.
  const CUevent inside = event();
  begin(stream);
  ASSERT_EQ(cuEventRecord(inside, stream), CUDA_SUCCESS);
  EXPECT_EQ(end(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(other, inside, 0), CUDA_ERROR_CAPTURED_EVENT);
  begin(stream);
  EXPECT_EQ(cuStreamWaitEvent(stream, inside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(end(stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Capture, TwoOfThemDoNotMerge) {
  const CUstream first = create();
  const CUstream second = create();
  const CUevent e = event();
  begin(first);
  begin(second);
  ASSERT_EQ(cuEventRecord(e, first), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(second, e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  EXPECT_EQ(end(first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end(second), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Capture, LegacyStreamCannotJoinOrBeUsedBesideABlockingOne) {
  const CUstream blocking = create(CU_STREAM_DEFAULT);
  const CUstream free_running = create();
  const CUdeviceptr p = allocate(8);
  const CUevent e = event();
  uint32_t word = 0;
  const std::pair<const char*, std::function<CUresult()>> uses[] = {
      {"cuMemsetD32Async", [&] { return cuMemsetD32Async(p, 1, 1, nullptr); }},
      {"cuMemcpyDtoH", [&] { return cuMemcpyDtoH(&word, p, sizeof word); }},
      {"cuEventRecord", [&] { return cuEventRecord(e, nullptr); }},
      {"cuStreamQuery", [&] { return cuStreamQuery(nullptr); }},
      {"cuStreamSynchronize", [&] { return cuStreamSynchronize(nullptr); }},
  };
  for (const auto& [name, call] : uses) {
    begin(blocking);
    EXPECT_EQ(call(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) << name;
    EXPECT_EQ(end(blocking), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) << name;
    begin(free_running);
    EXPECT_EQ(call(), CUDA_SUCCESS) << name << " beside a capture of a non-blocking stream";
    EXPECT_EQ(end(free_running), CUDA_SUCCESS) << name;
  }
  begin(free_running);
  ASSERT_EQ(cuEventRecord(e, free_running), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(nullptr, e, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(end(free_running), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuStreamBeginCapture(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD32Async(p, 1, 1, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(end(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
}

// ---- what is being recorded ------------------------------------------------------------------------------------

TEST_F(Capture, InfoShowsGraphAndTail) {
  const CUstream stream = create();
  const CUstream side = create();
  const CUdeviceptr p = allocate(64);
  CUstreamCaptureStatus s = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* tail = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 99;
  ASSERT_EQ(cuStreamGetCaptureInfo(stream, &s, &id, &graph, &tail, &edges, &count), CUDA_SUCCESS);
  EXPECT_EQ(s, CU_STREAM_CAPTURE_STATUS_NONE);
  begin(stream);
  ASSERT_EQ(cuStreamGetCaptureInfo(stream, &s, &id, &graph, &tail, &edges, &count), CUDA_SUCCESS);
  EXPECT_EQ(s, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(count, 0u);
  const cuuint64_t first_id = id;
  ASSERT_EQ(cuMemsetD32Async(p, 1, 1, stream), CUDA_SUCCESS);
  order(stream, side);
  ASSERT_EQ(cuMemsetD32Async(p + 4, 1, 1, side), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(p + 8, 1, 1, stream), CUDA_SUCCESS);
  order(side, stream);
  ASSERT_EQ(cuStreamGetCaptureInfo(stream, &s, &id, &graph, &tail, &edges, &count), CUDA_SUCCESS);
  EXPECT_EQ(id, first_id);
  ASSERT_EQ(count, 2u) << "its own last node and the joined one";
  EXPECT_EQ(node_count(graph), 3u);
  for (size_t i = 0; i < count; ++i) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    ASSERT_EQ(cuGraphNodeGetType(tail[i], &type), CUDA_SUCCESS);
    EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEMSET);
    EXPECT_EQ(edges[i].type, 0);
  }
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE) << "the capture owns it";
  CUgraph ended = nullptr;
  ASSERT_EQ(end(stream, &ended), CUDA_SUCCESS);
  EXPECT_EQ(ended, graph);
  begin(stream);
  ASSERT_EQ(cuStreamGetCaptureInfo(stream, &s, &id, nullptr, nullptr, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_NE(id, first_id) << "ids are never reused";
  ASSERT_EQ(end(stream), CUDA_SUCCESS);
}

TEST_F(Capture, TailsCanBeSetByHand) {
  const CUstream stream = create();
  const CUstream side = create();
  const CUdeviceptr p = allocate(64);
  EXPECT_EQ(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, 0), CUDA_ERROR_ILLEGAL_STATE);
  const auto tail_of = [](CUstream s, CUgraph* graph) {
    CUstreamCaptureStatus st = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode* nodes = nullptr;
    size_t count = 0;
    EXPECT_EQ(cuStreamGetCaptureInfo(s, &st, nullptr, graph, &nodes, nullptr, &count), CUDA_SUCCESS);
    return std::vector<CUgraphNode>(nodes, nodes + count);
  };
  CUgraph graph = nullptr;
  begin(stream);
  ASSERT_EQ(cuMemsetD32Async(p, 1, 1, stream), CUDA_SUCCESS);
  order(stream, side);
  ASSERT_EQ(cuMemsetD32Async(p + 4, 1, 1, side), CUDA_SUCCESS);
  std::vector<CUgraphNode> of_side = tail_of(side, &graph);
  ASSERT_EQ(of_side.size(), 1u);
  // Joined without an event.
  ASSERT_EQ(cuStreamUpdateCaptureDependencies(stream, of_side.data(), nullptr, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
            CUDA_SUCCESS);
  EXPECT_EQ(tail_of(stream, nullptr).size(), 2u);
  // A node of the program's own, put into the chain.
  CUgraphNode mine = nullptr;
  std::vector<CUgraphNode> tail = tail_of(stream, nullptr);
  ASSERT_EQ(cuGraphAddEmptyNode(&mine, graph, tail.data(), tail.size()), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamUpdateCaptureDependencies(stream, &mine, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
            CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(p + 8, 1, 1, stream), CUDA_SUCCESS);
  tail = tail_of(stream, nullptr);
  ASSERT_EQ(tail.size(), 1u);
  CUgraphNode before = nullptr;
  size_t count = 1;
  ASSERT_EQ(cuGraphNodeGetDependencies(tail[0], &before, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(before, mine);
  ASSERT_EQ(end(stream), CUDA_SUCCESS);
  // Nodes taken out of a tail need no join.
  begin(stream);
  ASSERT_EQ(cuMemsetD32Async(p, 1, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
            CUDA_SUCCESS);
  EXPECT_EQ(end(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(node_count(graph), 1u);
  EXPECT_EQ(cuStreamUpdateCaptureDependencies(stream, nullptr, nullptr, 0, 2), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Capture, GoesIntoAGraphThatIsThere) {
  const CUstream stream = create();
  const CUdeviceptr p = allocate(64);
  CUgraph graph = nullptr;
  CUgraphNode first = nullptr;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddEmptyNode(&first, graph, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE) << "a capture goes into it";
  ASSERT_EQ(cuMemsetD32Async(p, 7, 1, stream), CUDA_SUCCESS);
  CUgraph ended = nullptr;
  ASSERT_EQ(end(stream, &ended), CUDA_SUCCESS);
  EXPECT_EQ(ended, graph);
  EXPECT_EQ(node_count(graph), 2u);
  size_t edges = 0;
  ASSERT_EQ(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges), CUDA_SUCCESS);
  EXPECT_EQ(edges, 1u);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Capture, ExternalEventsAreNodes) {
  const CUstream stream = create();
  const CUstream other = create();
  const CUdeviceptr p = allocate(8);
  const CUevent done = event();
  const CUevent go = event();
  EXPECT_EQ(cuEventRecordWithFlags(done, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE)
      << "outside a capture";
  EXPECT_EQ(cuStreamWaitEvent(stream, go, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
  CUgraph graph = nullptr;
  begin(stream);
  ASSERT_EQ(cuStreamWaitEvent(stream, go, CU_EVENT_WAIT_EXTERNAL), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(p + 4, p, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecordWithFlags(done, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
  ASSERT_EQ(end(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(node_count(graph), 3u);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  // The replay waits for the record that stood at its launch; who waits for its own record gets this replay's.
  Gate gate;
  ASSERT_EQ(gate.put(other), CUDA_SUCCESS);
  ASSERT_EQ(cuMemsetD32Async(p, 11, 1, other), CUDA_SUCCESS);
  ASSERT_EQ(cuEventRecord(go, other), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuEventQuery(done), CUDA_ERROR_NOT_READY);
  gate.open();
  ASSERT_EQ(cuEventSynchronize(done), CUDA_SUCCESS);
  EXPECT_EQ(read_word(p + 4), 11u);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace hostcuda_test

// SPDX-License-Identifier: MIT
// Stream capture and graphs: while a stream is being captured its work is recorded, not run; a graph replays what was
// recorded in the order of recording, which is one valid order of its edges. Driver functions
// cuThreadExchangeStreamCaptureMode, cuStream...Capture..., cuGraph....
//
// Fork and join are followed with one vector clock a participant: clocks[p][q] is how many steps of q everything that
// p does next comes after. An event takes the clock of its stream; a wait takes the larger of both, and brings a
// stream that was not in the capture into it. At the end the origin must have seen every step of everybody.
#include "tools/hostcuda/cuda/capture.h"

#include <algorithm>

#include "tools/hostcuda/cuda/memory.h"

namespace hostcuda {
namespace {

bool is_open(const std::shared_ptr<Capture>& capture) {
  const auto& open = Engine::get().captures;
  return std::find(open.begin(), open.end(), capture) != open.end();
}

void step(Capture& capture, uint32_t participant) {
  ++capture.clocks[participant][participant];
}

uint32_t add_participant(Capture& capture, const std::shared_ptr<Stream>& stream) {
  const auto index = static_cast<uint32_t>(capture.participants.size());
  capture.participants.push_back(stream);
  for (auto& clock : capture.clocks) clock.push_back(0);
  capture.clocks.emplace_back(index + 1, 0);
  stream->participant = index;
  return index;
}

void merge_clock(std::vector<uint64_t>& into, const std::vector<uint64_t>& from) {
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

// Takes the capture's streams out of it.
void close(const std::shared_ptr<Capture>& capture) {
  for (const auto& stream : capture->participants) stream->capture = nullptr;
  std::erase(Engine::get().captures, capture);
}

CUresult invalidate(Capture& capture, CUresult error) {
  capture.invalidated = true;
  return error;
}

CUstreamCaptureStatus status_of(const Stream& stream) {
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace

void abandon_capture(const std::shared_ptr<Capture>& capture) {
  capture->invalidated = true;
  close(capture);
}

std::shared_ptr<Work> share_work(const Work& work) {
  return {new Work(work), [](Work* held) {
            if (held->destroy != nullptr) held->destroy(held->arg);
            delete held;
          }};
}

CUstreamCaptureMode& thread_capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

CUresult check_capture_safe() {
  const CUstreamCaptureMode own_mode = thread_capture_mode();
  if (own_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : Engine::get().captures) {
    const bool own = capture->thread == thread_number() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool elsewhere = own_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (own || elsewhere) result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

CUresult check_implicit_capture(const Stream& stream) {
  if (!stream.is_legacy || Engine::get().captures.empty()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : Engine::get().captures) {
    for (const auto& participant : capture->participants) {
      if (participant->context == stream.context && participant->blocking()) {
        result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
      }
    }
  }
  return result;
}

// For questions about a stream's capture: the same answer, and the capture stays valid.
CUresult check_implicit_capture_quietly(const Stream& stream) {
  if (!stream.is_legacy) return CUDA_SUCCESS;
  for (const auto& capture : Engine::get().captures) {
    for (const auto& participant : capture->participants) {
      if (participant->context == stream.context && participant->blocking()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return CUDA_SUCCESS;
}

CUresult refuse_in_capture(const std::shared_ptr<Stream>& stream) {
  if (stream->capture != nullptr) return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return check_implicit_capture(*stream);
}

CUresult capture_shared(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Work>& work) {
  Capture& capture = *stream->capture;
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capture.body->nodes.push_back(work);
  step(capture, stream->participant);
  return CUDA_SUCCESS;
}

CUresult capture_work(const std::shared_ptr<Stream>& stream, const Work& work) {
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  return capture_shared(stream, share_work(work));
}

CUresult capture_record(const std::shared_ptr<Event>& event, const std::shared_ptr<Stream>& stream) {
  Capture& capture = *stream->capture;
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event->capture = stream->capture;
  event->captured_clock = capture.clocks[stream->participant];
  return CUDA_SUCCESS;
}

CUresult capture_wait(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event) {
  if (event->capture == nullptr) {  // a capture may not depend on work outside it
    if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (event->last == nullptr) return CUDA_SUCCESS;
    return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  const std::shared_ptr<Capture> capture = event->capture;
  if (!is_open(capture)) {
    if (stream->capture == nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture == nullptr) {
    if (stream->is_legacy) return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    stream->capture = capture;
    add_participant(*capture, stream);
    step(*capture, stream->participant);  // joining is itself a step that the origin must see again
  } else if (stream->capture != capture) {
    capture->invalidated = true;
    return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  merge_clock(capture->clocks[stream->participant], event->captured_clock);
  return CUDA_SUCCESS;
}

namespace driver {

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, thread_capture_mode());
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream_handle, CUstreamCaptureMode mode) {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(stream_handle, &stream); r != CUDA_SUCCESS) return r;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = engine.next_capture_id();
  capture->mode = mode;
  capture->thread = thread_number();
  capture->origin = stream;
  add_participant(*capture, stream);
  stream->capture = capture;
  engine.captures.push_back(capture);
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream_handle, CUgraph* ph_graph) {
  Engine& engine = Engine::get();
  std::shared_ptr<Capture> capture;  // goes after the lock: its bodies may be destroyed here
  const std::lock_guard<std::mutex> lock(engine.mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(stream_handle, &stream); r != CUDA_SUCCESS) return r;
  if (ph_graph != nullptr) *ph_graph = nullptr;
  capture = stream->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_number()) {
    return invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }
  close(capture);
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const std::vector<uint64_t>& seen = capture->clocks[0];
  for (size_t p = 1; p < capture->participants.size(); ++p) {
    if (seen[p] != capture->clocks[p][p]) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  if (ph_graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto graph = std::make_shared<Graph>();
  graph->body = capture->body;
  *ph_graph = static_cast<CUgraph>(engine.handles.take());
  engine.graphs[*ph_graph] = graph;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream_handle, CUstreamCaptureStatus* capture_status) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(stream_handle, &stream); r != CUDA_SUCCESS) return r;
  if (capture_status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_implicit_capture_quietly(*stream); r != CUDA_SUCCESS) return r;
  *capture_status = status_of(*stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream stream_handle, CUstreamCaptureStatus* capture_status_out, cuuint64_t* id_out) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(stream_handle, &stream); r != CUDA_SUCCESS) return r;
  if (capture_status_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_implicit_capture_quietly(*stream); r != CUDA_SUCCESS) return r;
  *capture_status_out = status_of(*stream);
  if (id_out != nullptr && stream->capture != nullptr) *id_out = stream->capture->id;
  return CUDA_SUCCESS;
}

// The graph under construction and its edges are not exposed yet: asking for them is refused, not answered with less.
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* capture_status_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   size_t* num_dependencies_out) {
  if (graph_out != nullptr || dependencies_out != nullptr || num_dependencies_out != nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return driver::cuStreamGetCaptureInfo(stream, capture_status_out, id_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* capture_status_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edge_data_out, size_t* num_dependencies_out) {
  if (edge_data_out != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return driver::cuStreamGetCaptureInfo_v2(stream, capture_status_out, id_out, graph_out, dependencies_out,
                                           num_dependencies_out);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* ph_graph_exec, CUgraph h_graph, unsigned long long) {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  const auto found = engine.graphs.find(h_graph);
  if (ph_graph_exec == nullptr || found == engine.graphs.end()) return CUDA_ERROR_INVALID_VALUE;
  auto exec = std::make_shared<GraphExec>();
  exec->body = found->second->body;
  exec->context = context;
  *ph_graph_exec = static_cast<CUgraphExec>(engine.handles.take());
  engine.graph_execs[*ph_graph_exec] = exec;
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* ph_graph_exec, CUgraph h_graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiate_params) {
  if (instantiate_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = driver::cuGraphInstantiateWithFlags(ph_graph_exec, h_graph, instantiate_params->flags);
  instantiate_params->hErrNode_out = nullptr;
  instantiate_params->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult cuGraphUpload(CUgraphExec h_graph_exec, CUstream stream_handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(stream_handle, &stream); r != CUDA_SUCCESS) return r;
  return Engine::get().graph_execs.contains(h_graph_exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec h_graph_exec, CUstream stream_handle) {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(stream_handle, &stream); r != CUDA_SUCCESS) return r;
  const auto found = engine.graph_execs.find(h_graph_exec);
  if (found == engine.graph_execs.end()) return CUDA_ERROR_INVALID_VALUE;
  GraphExec& exec = *found->second;
  // Launched into a capture the graph's work becomes part of the graph that is being recorded.
  if (stream->capture != nullptr) {
    for (const auto& node : exec.body->nodes) {
      if (const CUresult r = capture_shared(stream, node); r != CUDA_SUCCESS) return r;
    }
    return CUDA_SUCCESS;
  }
  if (exec.context != stream->context) return CUDA_ERROR_INVALID_VALUE;
  auto* body = new std::shared_ptr<GraphBody>(exec.body);
  const Work work{[](void* arg) {
                    for (const auto& node : (*static_cast<std::shared_ptr<GraphBody>*>(arg))->nodes) {
                      node->run(node->arg);
                    }
                  },
                  [](void* arg) { delete static_cast<std::shared_ptr<GraphBody>*>(arg); }, body, "graph"};
  auto record = std::make_shared<EventRecord>();
  const CUresult result = enqueue_work(stream, work, exec.last, record);
  if (result != CUDA_SUCCESS) {
    delete body;
    return result;
  }
  exec.last = record;
  return CUDA_SUCCESS;
}

// Bodies of graphs are destroyed outside the engine's lock: a body's destructor belongs to whoever recorded it.
CUresult cuGraphExecDestroy(CUgraphExec h_graph_exec) {
  Engine& engine = Engine::get();
  std::shared_ptr<GraphExec> gone;
  const std::lock_guard<std::mutex> lock(engine.mutex);
  const auto found = engine.graph_execs.find(h_graph_exec);
  if (found == engine.graph_execs.end()) return CUDA_ERROR_INVALID_VALUE;
  gone = std::move(found->second);
  engine.graph_execs.erase(found);
  engine.handles.give(h_graph_exec);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph h_graph) {
  Engine& engine = Engine::get();
  std::shared_ptr<Graph> gone;
  const std::lock_guard<std::mutex> lock(engine.mutex);
  const auto found = engine.graphs.find(h_graph);
  if (found == engine.graphs.end()) return CUDA_ERROR_INVALID_VALUE;
  gone = std::move(found->second);
  engine.graphs.erase(found);
  engine.handles.give(h_graph);
  return CUDA_SUCCESS;
}

}  // namespace driver
}  // namespace hostcuda

// SPDX-License-Identifier: MIT
// Stream capture: while a stream is being captured its work is recorded as nodes of a graph, not run. Driver functions
// cuThreadExchangeStreamCaptureMode, cuStream...Capture....
//
// Every captured stream has a tail: the nodes that its next one comes after. An event takes the tail of its stream; a
// wait adds the event's tail to the waiting stream's own, and brings a stream that was not in the capture into it. At
// the end the origin's tail must come after the tail of everybody, and every stream that was brought in must have been
// waited for.
#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "tools/hostcuda/cuda/graph.h"

namespace hostcuda {
namespace {

bool is_open(const std::shared_ptr<Capture>& capture) {
  const auto& open = Engine::get().captures;
  return std::find(open.begin(), open.end(), capture) != open.end();
}

bool takes_part(const Capture& capture, const Context& context) {
  return std::any_of(capture.participants.begin(), capture.participants.end(),
                     [&context](const auto& stream) { return stream->context.get() == &context; });
}

// Some stream of the capture that the legacy stream of `context` would have to wait for.
bool blocks_legacy(const Capture& capture, const Context& context) {
  return std::any_of(capture.participants.begin(), capture.participants.end(), [&context](const auto& stream) {
    return stream->context.get() == &context && stream->blocking();
  });
}

void join(const std::shared_ptr<Capture>& capture, const std::shared_ptr<Stream>& stream) {
  stream->capture = capture;
  stream->capture_tail.clear();
  stream->fork_open = stream != capture->origin;
  capture->participants.push_back(stream);
}

void add_to_tail(Stream& stream, const std::vector<GraphNode*>& nodes) {
  for (GraphNode* node : nodes) {
    auto& tail = stream.capture_tail;
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
}

// Takes the capture's streams out of it.
void close(const std::shared_ptr<Capture>& capture) {
  for (const auto& stream : capture->participants) {
    stream->capture = nullptr;
    stream->capture_tail.clear();
    stream->shown_tail.clear();
  }
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

// Has the origin come after everything that was forked from it?
bool joined(const Capture& capture) {
  std::vector<const GraphNode*> reached;
  collect_ancestors(capture.origin->capture_tail, &reached);
  const std::unordered_set<const GraphNode*> seen(reached.begin(), reached.end());
  return std::none_of(capture.participants.begin(), capture.participants.end(), [&](const auto& stream) {
    return stream->fork_open || std::any_of(stream->capture_tail.begin(), stream->capture_tail.end(),
                                            [&seen](const GraphNode* node) { return !seen.contains(node); });
  });
}

CUresult begin_capture(CUstream handle, CUstreamCaptureMode mode, CUgraph graph_handle, const CUgraphNode* nodes,
                       size_t count) {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  std::vector<GraphNode*> after;
  if (graph_handle != nullptr) {
    if (const CUresult r = find_graph(graph_handle, &capture->graph); r != CUDA_SUCCESS) return r;
    if (capture->graph->owner != Graph::Owner::kProgram) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult r = nodes_of(*capture->graph, nodes, count, &after); r != CUDA_SUCCESS) return r;
    capture->into_own_graph = false;
  } else {
    capture->graph = std::make_shared<Graph>();
    capture->graph->owner = Graph::Owner::kCapture;
    publish_graph(capture->graph);
  }
  capture->id = engine.next_capture_id();
  capture->mode = mode;
  capture->thread = thread_number();
  capture->origin = stream;
  join(capture, stream);
  stream->capture_tail = after;
  engine.captures.push_back(capture);
  return CUDA_SUCCESS;
}

CUresult get_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                  const CUgraphNode** nodes, const CUgraphEdgeData** edges, size_t* count) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (status == nullptr || (edges != nullptr && nodes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (stream->is_legacy) {  // asking breaks nothing
    for (const auto& capture : Engine::get().captures) {
      if (blocks_legacy(*capture, *stream->context)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  *status = status_of(*stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  stream->shown_tail.clear();
  for (const GraphNode* node : stream->capture_tail) stream->shown_tail.push_back(handle_of(*node));
  stream->shown_edges.assign(stream->shown_tail.size(), CUgraphEdgeData{});
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = handle_of(*stream->capture->graph);
  if (nodes != nullptr) *nodes = stream->shown_tail.data();
  if (edges != nullptr) *edges = stream->shown_edges.data();
  if (count != nullptr) *count = stream->shown_tail.size();
  return CUDA_SUCCESS;
}

}  // namespace

void abandon_capture(const std::shared_ptr<Capture>& capture) {
  capture->invalidated = true;
  if (capture->into_own_graph) withdraw_graph(*capture->graph);
  close(capture);
}

void forget_captured(const GraphNode& node) {
  Engine& engine = Engine::get();
  for (const auto& capture : engine.captures) {
    for (const auto& stream : capture->participants) std::erase(stream->capture_tail, &node);
  }
  for (const auto& [handle, event] : engine.events) std::erase(event->captured_tail, &node);
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
  if (!stream.is_legacy) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : Engine::get().captures) {
    if (blocks_legacy(*capture, *stream.context)) result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  return result;
}

CUresult refuse_in_capture(const std::shared_ptr<Stream>& stream) {
  if (stream->capture != nullptr) return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return check_implicit_capture(*stream);
}

CUresult refuse_in_capture(const Context& context) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : Engine::get().captures) {
    if (takes_part(*capture, context)) result = invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

CUresult refuse_captured(const Event& event) {
  if (event.capture == nullptr) return CUDA_SUCCESS;
  if (is_open(event.capture)) event.capture->invalidated = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult capture_node(const std::shared_ptr<Stream>& stream, NodeContent content) {
  Capture& capture = *stream->capture;
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stream->capture_tail = {add_node(*capture.graph, stream->capture_tail, std::move(content))};
  return CUDA_SUCCESS;
}

CUresult capture_work(const std::shared_ptr<Stream>& stream, const Work& work) {
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_KERNEL;
  content.context = stream->context;
  content.work = share_work(work);
  return capture_node(stream, std::move(content));
}

CUresult capture_record(const std::shared_ptr<Event>& event, const std::shared_ptr<Stream>& stream, bool external) {
  Capture& capture = *stream->capture;
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (external) {
    NodeContent content;
    content.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    content.context = stream->context;
    content.event = event;
    return capture_node(stream, std::move(content));
  }
  event->capture = stream->capture;
  event->captured_tail = stream->capture_tail;
  event->captured_from = stream;
  return CUDA_SUCCESS;
}

CUresult capture_wait(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event, bool external) {
  if (external) {
    if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    NodeContent content;
    content.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    content.context = stream->context;
    content.event = event;
    return capture_node(stream, std::move(content));
  }
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
    join(capture, stream);
  } else if (stream->capture != capture) {
    capture->invalidated = true;
    return invalidate(*stream->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (event->captured_from != stream) event->captured_from->fork_open = false;
  add_to_tail(*stream, event->captured_tail);
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

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin_capture(stream, mode, nullptr, nullptr, 0);
}

CUresult cuStreamBeginCapture(CUstream stream) {
  return begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, nullptr, 0);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph h_graph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependency_data, size_t num_dependencies,
                                     CUstreamCaptureMode mode) {
  if (h_graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphEdgeData plain{};
  for (size_t i = 0; dependency_data != nullptr && i < num_dependencies; ++i) {
    if (std::memcmp(&dependency_data[i], &plain, sizeof plain) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  }
  return begin_capture(stream, mode, h_graph, dependencies, num_dependencies);
}

CUresult cuStreamEndCapture(CUstream stream_handle, CUgraph* ph_graph) {
  Engine& engine = Engine::get();
  std::shared_ptr<Capture> capture;  // goes after the lock: its graph's bodies may be destroyed here
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
  CUresult result = CUDA_SUCCESS;
  if (capture->invalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!joined(*capture)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  } else if (ph_graph == nullptr) {
    result = CUDA_ERROR_INVALID_VALUE;
  }
  close(capture);
  if (result != CUDA_SUCCESS) {
    if (capture->into_own_graph) withdraw_graph(*capture->graph);
    return result;
  }
  if (capture->into_own_graph) capture->graph->owner = Graph::Owner::kProgram;
  *ph_graph = handle_of(*capture->graph);
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* capture_status) {
  return get_info(stream, capture_status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* capture_status_out, cuuint64_t* id_out) {
  return get_info(stream, capture_status_out, id_out, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* capture_status_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   size_t* num_dependencies_out) {
  return get_info(stream, capture_status_out, id_out, graph_out, dependencies_out, nullptr, num_dependencies_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* capture_status_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edge_data_out, size_t* num_dependencies_out) {
  return get_info(stream, capture_status_out, id_out, graph_out, dependencies_out, edge_data_out, num_dependencies_out);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream_handle, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependency_data, size_t num_dependencies,
                                              unsigned int flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  std::vector<GraphNode*> nodes;
  if (const CUresult r = find_stream(stream_handle, &stream); r != CUDA_SUCCESS) return r;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const CUgraphEdgeData plain{};
  for (size_t i = 0; dependency_data != nullptr && i < num_dependencies; ++i) {
    if (std::memcmp(&dependency_data[i], &plain, sizeof plain) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  }
  const Capture& capture = *stream->capture;
  if (const CUresult r = nodes_of(*capture.graph, dependencies, num_dependencies, &nodes); r != CUDA_SUCCESS) return r;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_tail.clear();
  add_to_tail(*stream, nodes);
  // A stream whose last nodes are among these was joined by hand.
  for (const auto& other : capture.participants) {
    const auto last_of_other = [&other](const GraphNode* node) {
      return std::find(other->capture_tail.begin(), other->capture_tail.end(), node) != other->capture_tail.end();
    };
    if (other != stream && std::any_of(nodes.begin(), nodes.end(), last_of_other)) other->fork_open = false;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* dependencies, size_t num_dependencies,
                                           unsigned int flags) {
  return driver::cuStreamUpdateCaptureDependencies_v2(stream, dependencies, nullptr, num_dependencies, flags);
}

}  // namespace driver
}  // namespace hostcuda

// SPDX-License-Identifier: MIT
// Executable graphs: instantiation, launch, update; driver functions cuGraphInstantiate..., cuGraphExec...,
// cuGraphLaunch, cuGraphUpload.
//
// A launch puts one operation for each node into streams: chains of nodes follow each other in one stream, every branch
// beside the first has a stream of its own, and an edge between two streams is a wait.
//
//   launching stream:  begin ── a ── b ──────────────── end      begin: after the stream and the last launch
//   side stream 1:       └───── c ── d ──────────────────┘       end: after every node
//
// So work that an edge does not order really is unordered: a starved side stream, or ThreadSanitizer, shows it.
#include <algorithm>
#include <unordered_map>

#include "tools/hostcuda/cuda/context.h"
#include "tools/hostcuda/cuda/graph.h"
#include "tools/hostcuda/cuda/memory.h"
#include "tools/hostcuda/cuda/settings.h"

namespace hostcuda {
namespace {

using Records = std::vector<std::shared_ptr<EventRecord>>;

// Nodes so that each comes after its dependencies, in order of creation where that leaves a choice. False: a cycle.
bool topological(const Graph& graph, std::vector<const GraphNode*>* order) {
  std::unordered_map<const GraphNode*, size_t> missing;
  for (const auto& node : graph.nodes) missing[node.get()] = node->dependencies.size();
  std::vector<const GraphNode*> ready;
  for (auto it = graph.nodes.rbegin(); it != graph.nodes.rend(); ++it) {
    if ((*it)->dependencies.empty()) ready.push_back(it->get());
  }
  while (!ready.empty()) {
    const GraphNode* node = ready.back();
    ready.pop_back();
    order->push_back(node);
    for (auto it = node->dependents.rbegin(); it != node->dependents.rend(); ++it) {
      if (--missing[*it] == 0) ready.push_back(*it);
    }
  }
  return order->size() == graph.nodes.size();
}

bool has_cycle(const Graph& graph) {
  std::vector<const GraphNode*> order;
  if (!topological(graph, &order)) return true;
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->content.child != nullptr && has_cycle(*node->content.child);
  });
}

// The operations of one launch on their way into streams.
class Launch {
 public:
  Launch(GraphExec& exec, std::shared_ptr<Stream> stream) : exec_(exec), stream_(std::move(stream)) {}

  void run() {
    const auto begin = std::make_shared<EventRecord>();
    put(stream_, Records{exec_.last}, Work{}, begin);
    tail_ = begin;
    const Records ends = run_graph(*exec_.graph, Records{begin});
    const auto end = std::make_shared<EventRecord>();
    // The user objects of this version of the graph stay until it has run.
    auto* held = new std::shared_ptr<ObjectReferences>(exec_.graph->objects);
    put(stream_, ends,
        Work{[](void*) {}, [](void* arg) { delete static_cast<std::shared_ptr<ObjectReferences>*>(arg); }, held,
             "graph"},
        end);
    exec_.last = end;
  }

 private:
  // A stream of this launch that nodes follow each other in: ready for more once `last` is done.
  struct Branch {
    std::shared_ptr<Stream> stream;
    std::shared_ptr<EventRecord> last;
  };

  static void put(const std::shared_ptr<Stream>& stream, const Records& after, const Work& work,
                  const std::shared_ptr<EventRecord>& record) {
    auto operation = std::make_unique<Operation>();
    operation->work = work;
    operation->record = record;
    for (const auto& earlier : after) {
      if (earlier != nullptr) operation->after.push_back({nullptr, 0, earlier});
    }
    Engine::get().append(stream, std::move(operation));
  }

  // Where a node of `context` runs: behind a dependency that nothing follows yet, else in a stream of its own.
  std::shared_ptr<Stream> stream_for(const std::shared_ptr<Context>& context, const Records& after) {
    if (context == stream_->context && std::find(after.begin(), after.end(), tail_) != after.end()) return stream_;
    for (const Branch& branch : branches_) {
      if (branch.stream->context == context && std::find(after.begin(), after.end(), branch.last) != after.end()) {
        return branch.stream;
      }
    }
    // A side stream of this context that this launch has not used.
    for (const auto& side : exec_.side) {
      const bool used =
          std::any_of(branches_.begin(), branches_.end(), [&](const Branch& b) { return b.stream == side; });
      if (!used && side->context == context && !side->destroyed) {
        branches_.push_back({side, nullptr});
        return side;
      }
    }
    exec_.side.push_back(Engine::get().create_stream(context, CU_STREAM_NON_BLOCKING, 0));
    branches_.push_back({exec_.side.back(), nullptr});
    return exec_.side.back();
  }

  void follow(const std::shared_ptr<Stream>& stream, const std::shared_ptr<EventRecord>& record) {
    if (stream == stream_) tail_ = record;
    for (Branch& branch : branches_) {
      if (branch.stream == stream) branch.last = record;
    }
  }

  // Puts all nodes of `graph` behind `entry`; what is done when the graph is.
  Records run_graph(const Graph& graph, const Records& entry) {
    std::vector<const GraphNode*> order;
    topological(graph, &order);
    std::unordered_map<const GraphNode*, Records> done;
    Records ends;
    for (const GraphNode* node : order) {
      Records after;
      for (const GraphNode* earlier : node->dependencies) {
        after.insert(after.end(), done[earlier].begin(), done[earlier].end());
      }
      if (node->dependencies.empty()) after = entry;
      done[node] = run_node(*node, after);
      if (node->dependents.empty()) ends.insert(ends.end(), done[node].begin(), done[node].end());
    }
    return graph.nodes.empty() ? entry : ends;
  }

  Records run_node(const GraphNode& node, Records after) {
    const NodeContent& content = node.content;
    if (content.child != nullptr) return run_graph(*content.child, after);
    if (content.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT && content.event->last != nullptr) {
      after.push_back(content.event->last);
    }
    const std::shared_ptr<Context>& context = content.context != nullptr ? content.context : stream_->context;
    const std::shared_ptr<Stream> stream = stream_for(context, after);
    const auto record = std::make_shared<EventRecord>();
    put(stream, after, node.enabled ? work_of(content) : Work{}, record);
    follow(stream, record);
    if (content.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      content.event->last = record;
      content.event->capture = nullptr;
    }
    return Records{record};
  }

  static Work work_of(const NodeContent& content) {
    if (content.work != nullptr) {
      return {[](void* arg) {
                const Work& work = **static_cast<std::shared_ptr<Work>*>(arg);
                work.run(work.arg);
              },
              [](void* arg) { delete static_cast<std::shared_ptr<Work>*>(arg); },
              new std::shared_ptr<Work>(content.work), content.work->name};
    }
    if (content.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || content.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      const bool allocates = content.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
      content.memory->unfreed = allocates;
      return {allocates ? allocate_memory : free_memory,
              [](void* arg) { delete static_cast<std::shared_ptr<GraphMemory>*>(arg); },
              new std::shared_ptr<GraphMemory>(content.memory), allocates ? "graph allocation" : "graph free"};
    }
    return {};
  }

  static void allocate_memory(void* arg) {
    const GraphMemory& memory = **static_cast<std::shared_ptr<GraphMemory>*>(arg);
    if (const CUresult r = activate_reserved(memory.base); r != CUDA_SUCCESS) {
      hostcuda_fault_stop_as(r, "no memory behind a graph's allocation");
    }
  }
  static void free_memory(void* arg) {
    const GraphMemory& memory = **static_cast<std::shared_ptr<GraphMemory>*>(arg);
    if (release(memory.base, MemoryKind::kDevice) != CUDA_SUCCESS) {
      hostcuda_fault_stop_as(CUDA_ERROR_ILLEGAL_ADDRESS, describe(memory.base, 0).c_str());
    }
  }

  GraphExec& exec_;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<EventRecord> tail_;  // of this launch in the launching stream
  std::vector<Branch> branches_;
};

CUresult find_exec(CUgraphExec handle, std::shared_ptr<GraphExec>* exec) {
  const Engine& engine = Engine::get();
  if (engine.exiting) return CUDA_ERROR_DEINITIALIZED;
  if (!engine.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = engine.graph_execs.find(handle);
  if (found == engine.graph_execs.end()) return CUDA_ERROR_INVALID_VALUE;
  *exec = found->second;
  return CUDA_SUCCESS;
}

GraphNode* find_copy(const Graph& graph, uint64_t source_id) {
  for (const auto& node : graph.nodes) {
    if (node->source_id == source_id) return node.get();
    if (node->content.child == nullptr) continue;
    if (GraphNode* inner = find_copy(*node->content.child, source_id); inner != nullptr) return inner;
  }
  return nullptr;
}

// The executable graph's copy of the program's node.
CUresult find_exec_node(CUgraphExec exec_handle, CUgraphNode handle, std::shared_ptr<GraphExec>* exec,
                        GraphNode** node) {
  GraphNode* source = nullptr;
  if (const CUresult r = find_exec(exec_handle, exec); r != CUDA_SUCCESS) return r;
  if (const CUresult r = find_node(handle, &source); r != CUDA_SUCCESS) return r;
  *node = find_copy(*(*exec)->graph, source->id);
  return *node == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

bool one_dimensional(const CUDA_MEMCPY3D& p) {
  return p.Height <= 1 && p.Depth <= 1;
}

// Where an address belongs: its device, or -1 for host memory. Updates may not change it.
int home_of(CUmemorytype type, const void* host, CUdeviceptr device) {
  const CUdeviceptr p = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
  Allocation found;
  return find_allocation(p, &found) && found.kind == MemoryKind::kDevice ? found.device : -1;
}

// May a node of an executable graph go from `old` to `now`?
CUgraphExecUpdateResult compare(const NodeContent& old, const NodeContent& now) {
  if (old.type != now.type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  switch (old.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return old.context == now.context ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                        : CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      const CUDA_MEMCPY3D& a = old.copy;
      const CUDA_MEMCPY3D& b = now.copy;
      const bool same =
          old.context == now.context && a.srcMemoryType == b.srcMemoryType && a.dstMemoryType == b.dstMemoryType &&
          home_of(a.srcMemoryType, a.srcHost, a.srcDevice) == home_of(b.srcMemoryType, b.srcHost, b.srcDevice) &&
          home_of(a.dstMemoryType, a.dstHost, a.dstDevice) == home_of(b.dstMemoryType, b.dstHost, b.dstDevice);
      return same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS& a = old.fill;
      const CUDA_MEMSET_NODE_PARAMS& b = now.fill;
      const bool same_place = old.context == now.context && home_of(CU_MEMORYTYPE_DEVICE, nullptr, a.dst) ==
                                                                home_of(CU_MEMORYTYPE_DEVICE, nullptr, b.dst);
      const bool flat = a.height <= 1 && b.height <= 1;
      const bool same_shape =
          a.width == b.width && a.height == b.height && a.elementSize == b.elementSize && a.pitch == b.pitch;
      return same_place && (flat || same_shape) ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    }
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return old.memory == now.memory ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    default:
      return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  }
}

struct Mismatch {
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  const GraphNode* node = nullptr;  // of the graph that brings the update
  const GraphNode* from = nullptr;
};

std::vector<GraphNode*> exits(const Graph& graph) {
  std::vector<GraphNode*> result;
  for (const auto& node : graph.nodes) {
    if (node->dependents.empty()) result.push_back(node.get());
  }
  return result;
}

// Pairs the nodes of both graphs: exits in order of creation, then dependencies in the order of their edges.
Mismatch pair_nodes(const Graph& target, const Graph& source,
                    std::vector<std::pair<GraphNode*, const GraphNode*>>* pairs) {
  if (target.nodes.size() != source.nodes.size()) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
  const std::vector<GraphNode*> old_exits = exits(target);
  const std::vector<GraphNode*> new_exits = exits(source);
  if (new_exits.size() > old_exits.size()) {
    return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, new_exits[old_exits.size()]};
  }
  if (new_exits.size() < old_exits.size()) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
  std::unordered_map<const GraphNode*, GraphNode*> partner;  // by node of `source`
  std::unordered_map<const GraphNode*, const GraphNode*> taken;
  std::vector<const GraphNode*> open;
  const auto match = [&](GraphNode* old, const GraphNode* now) {
    const auto p = partner.find(now);
    const auto t = taken.find(old);
    if (p == partner.end() && t == taken.end()) {
      partner[now] = old;
      taken[old] = now;
      open.push_back(now);
      return true;
    }
    return p != partner.end() && p->second == old;
  };
  for (size_t i = 0; i < new_exits.size(); ++i) match(old_exits[i], new_exits[i]);
  while (!open.empty()) {
    const GraphNode* now = open.back();
    open.pop_back();
    GraphNode* old = partner[now];
    pairs->emplace_back(old, now);
    if (old->dependencies.size() != now->dependencies.size()) {
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, now};
    }
    for (size_t i = 0; i < now->dependencies.size(); ++i) {
      if (!match(old->dependencies[i], now->dependencies[i])) {
        return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, now, now->dependencies[i]};
      }
    }
  }
  const size_t paired = pairs->size();
  for (size_t i = 0; i < paired; ++i) {
    auto [old, now] = (*pairs)[i];
    if (const auto result = compare(old->content, now->content); result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
      return {result, now};
    }
    if (old->content.child == nullptr) continue;
    std::vector<std::pair<GraphNode*, const GraphNode*>> inner;
    Mismatch mismatch = pair_nodes(*old->content.child, *now->content.child, &inner);
    if (mismatch.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return mismatch;
    pairs->insert(pairs->end(), inner.begin(), inner.end());
  }
  return {};
}

// Gives the paired nodes their new contents. What they had goes to `old`.
void give_contents(const std::vector<std::pair<GraphNode*, const GraphNode*>>& pairs, std::vector<NodeContent>* old) {
  for (const auto& [target, source] : pairs) {
    if (target->content.child != nullptr) {
      target->content.child->objects = std::make_shared<ObjectReferences>(*source->content.child->objects);
      continue;
    }
    old->push_back(std::move(target->content));
    target->content = source->content;
  }
}

CUresult instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags, CUgraphInstantiateResult* why) {
  Engine& engine = Engine::get();
  *why = CUDA_GRAPH_INSTANTIATE_ERROR;
  constexpr unsigned long long kKnown = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                        CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  std::shared_ptr<Graph> graph;
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = find_graph(handle, &graph); r != CUDA_SUCCESS) return r;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    *why = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if ((flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (graph->owner == Graph::Owner::kCapture) return CUDA_ERROR_INVALID_VALUE;
  if (has_cycle(*graph)) {
    *why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool counted = has_memory_nodes(*graph);
  if (counted && graph->executables != 0) return CUDA_ERROR_NOT_SUPPORTED;
  auto exec = std::make_shared<GraphExec>();
  exec->graph = clone_graph(*graph, Graph::Owner::kExec);
  exec->instantiated_from = graph;
  exec->context = context;
  exec->flags = flags;
  exec->counted = counted;
  if (counted) ++graph->executables;
  *out = static_cast<CUgraphExec>(engine.handles.take());
  engine.graph_execs[*out] = exec;
  *why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return CUDA_SUCCESS;
}

bool contexts_alive(const Graph& graph) {
  return std::none_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    const NodeContent& content = node->content;
    return (content.context != nullptr && content.context->destroyed) ||
           (content.child != nullptr && !contexts_alive(*content.child));
  });
}

void collect_memory(const Graph& graph, CUgraphNodeType type, std::vector<GraphMemory*>* memory) {
  for (const auto& node : graph.nodes) {
    if (node->content.type == type) memory->push_back(node->content.memory.get());
    if (node->content.child != nullptr) collect_memory(*node->content.child, type, memory);
  }
}

// Graph memory that a launch finds allocated by the one before, and whether there is room for what it will allocate.
CUresult prepare_memory(const GraphExec& exec, const std::shared_ptr<Stream>& stream) {
  std::vector<GraphMemory*> allocations;
  collect_memory(*exec.graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &allocations);
  size_t needed[kMaxDevices] = {};
  for (GraphMemory* memory : allocations) {
    needed[memory->props.location.id] += memory->bytes;
    if (!memory->unfreed) continue;
    if ((exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0) return CUDA_ERROR_INVALID_VALUE;
    needed[memory->props.location.id] -= memory->bytes;
  }
  for (int device = 0; device < kMaxDevices; ++device) {
    if (needed[device] != 0 && needed[device] > free_bytes(device)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (const GraphMemory* memory : allocations) {
    if (!memory->unfreed) continue;
    const CUdeviceptr base = memory->base;
    const CUresult r = enqueue_body(stream, "graph free", [base] { release(base, MemoryKind::kDevice); });
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

// Sets a node of an executable graph to what `make(node, &content)` gives, where an update could.
template <class Make>
CUresult set_exec_content(CUgraphExec exec_handle, CUgraphNode handle, CUgraphNodeType type, Make make) {
  NodeContent old;
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<GraphExec> exec;
  GraphNode* node = nullptr;
  if (const CUresult r = find_exec_node(exec_handle, handle, &exec, &node); r != CUDA_SUCCESS) return r;
  if (node->content.type != type) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = make(*node, &old); r != CUDA_SUCCESS) return r;
  if (compare(node->content, old) != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  std::swap(node->content, old);
  return CUDA_SUCCESS;
}

}  // namespace

namespace driver {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* ph_graph_exec, CUgraph h_graph, unsigned long long flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  CUgraphInstantiateResult why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return instantiate(ph_graph_exec, h_graph, flags, &why);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* ph_graph_exec, CUgraph h_graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiate_params) {
  if (instantiate_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  instantiate_params->hErrNode_out = nullptr;
  return instantiate(ph_graph_exec, h_graph, instantiate_params->flags, &instantiate_params->result_out);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* ph_graph_exec, CUgraph h_graph, CUgraphNode* ph_error_node,
                               char* log_buffer, size_t buffer_size) {
  if (ph_error_node != nullptr) *ph_error_node = nullptr;
  if (log_buffer != nullptr && buffer_size != 0) *log_buffer = '\0';
  return driver::cuGraphInstantiateWithFlags(ph_graph_exec, h_graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec* ph_graph_exec, CUgraph h_graph, CUgraphNode* ph_error_node, char* log_buffer,
                            size_t buffer_size) {
  return driver::cuGraphInstantiate_v2(ph_graph_exec, h_graph, ph_error_node, log_buffer, buffer_size);
}

CUresult cuGraphExecGetFlags(CUgraphExec h_graph_exec, cuuint64_t* flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<GraphExec> exec;
  if (const CUresult r = find_exec(h_graph_exec, &exec); r != CUDA_SUCCESS) return r;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags & ~static_cast<cuuint64_t>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec h_graph_exec, CUstream stream_handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  std::shared_ptr<GraphExec> exec;
  if (const CUresult r = find_stream(stream_handle, &stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = find_exec(h_graph_exec, &exec); r != CUDA_SUCCESS) return r;
  return refuse_in_capture(stream);
}

CUresult cuGraphLaunch(CUgraphExec h_graph_exec, CUstream stream_handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  std::shared_ptr<GraphExec> exec;
  if (const CUresult r = find_stream(stream_handle, &stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = find_exec(h_graph_exec, &exec); r != CUDA_SUCCESS) return r;
  // Launched into a capture the graph becomes a child of the one that is being recorded.
  if (stream->capture != nullptr) {
    if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (has_memory_nodes(*exec->graph)) return CUDA_ERROR_NOT_SUPPORTED;
    NodeContent content;
    content.type = CU_GRAPH_NODE_TYPE_GRAPH;
    content.child = clone_graph(*exec->graph, Graph::Owner::kNode);
    return capture_node(stream, std::move(content));
  }
  if (const CUresult r = check_implicit_capture(*stream); r != CUDA_SUCCESS) return r;
  if (!contexts_alive(*exec->graph)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const CUresult r = prepare_memory(*exec, stream); r != CUDA_SUCCESS) return r;
  Launch(*exec, stream).run();
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec h_graph_exec) {
  Engine& engine = Engine::get();
  std::shared_ptr<GraphExec> gone;  // goes after the lock: a body's destructor belongs to whoever made it
  const std::lock_guard<std::mutex> lock(engine.mutex);
  if (const CUresult r = find_exec(h_graph_exec, &gone); r != CUDA_SUCCESS) return r;
  engine.graph_execs.erase(h_graph_exec);
  engine.handles.give(h_graph_exec);
  if (const auto source = gone->instantiated_from.lock(); source != nullptr && gone->counted) --source->executables;
  for (const auto& side : gone->side) {
    std::erase(side->context->streams, side);
    side->destroyed = true;
    side->wake.notify_one();
  }
  engine.pump();
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec h_graph_exec, CUgraph h_graph, CUgraphExecUpdateResultInfo* result_info) {
  std::vector<NodeContent> old;  // goes after the lock
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  CUgraphExecUpdateResultInfo ignored{};
  CUgraphExecUpdateResultInfo& info = result_info != nullptr ? *result_info : ignored;
  info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  std::shared_ptr<GraphExec> exec;
  std::shared_ptr<Graph> graph;
  if (const CUresult r = find_exec(h_graph_exec, &exec); r != CUDA_SUCCESS) return r;
  if (const CUresult r = find_graph(h_graph, &graph); r != CUDA_SUCCESS) return r;
  if (has_cycle(*graph)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<GraphNode*, const GraphNode*>> pairs;
  const Mismatch mismatch = pair_nodes(*exec->graph, *graph, &pairs);
  info.result = mismatch.result;
  if (mismatch.node != nullptr) info.errorNode = handle_of(*mismatch.node);
  if (mismatch.from != nullptr) info.errorFromNode = handle_of(*mismatch.from);
  if (mismatch.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  give_contents(pairs, &old);
  exec->graph->objects = std::make_shared<ObjectReferences>(*graph->objects);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec h_graph_exec, CUgraph h_graph, CUgraphNode* h_error_node_out,
                           CUgraphExecUpdateResult* update_result_out) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = driver::cuGraphExecUpdate_v2(h_graph_exec, h_graph, &info);
  if (h_error_node_out != nullptr) *h_error_node_out = info.errorNode;
  if (update_result_out != nullptr) *update_result_out = info.result;
  return result;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec h_graph_exec, CUgraphNode h_node, CUgraphNodeParams* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphNodeType type = node_params->type;
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE) return CUDA_ERROR_NOT_SUPPORTED;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return driver::cuGraphExecChildGraphNodeSetParams(h_graph_exec, h_node, node_params->graph.graph);
  }
  return set_exec_content(h_graph_exec, h_node, type, [&](const GraphNode& node, NodeContent* content) {
    return content_of(*node.graph, node_params, content);
  });
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec h_graph_exec, CUgraphNode h_node,
                                           const CUDA_KERNEL_NODE_PARAMS_v2* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_exec_content(h_graph_exec, h_node, CU_GRAPH_NODE_TYPE_KERNEL,
                          [&](const GraphNode& node, NodeContent* content) {
                            return kernel_content(*node_params, node.content.context, content);
                          });
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec h_graph_exec, CUgraphNode h_node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS_v1& p = *node_params;
  const CUDA_KERNEL_NODE_PARAMS wide{p.func,         p.gridDimX,  p.gridDimY,  p.gridDimZ,
                                     p.blockDimX,    p.blockDimY, p.blockDimZ, p.sharedMemBytes,
                                     p.kernelParams, p.extra,     nullptr,     nullptr};
  return driver::cuGraphExecKernelNodeSetParams_v2(h_graph_exec, h_node, &wide);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec h_graph_exec, CUgraphNode h_node,
                                        const CUDA_MEMCPY3D_v2* copy_params, CUcontext ctx) {
  if (copy_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_exec_content(h_graph_exec, h_node, CU_GRAPH_NODE_TYPE_MEMCPY,
                          [&](const GraphNode& node, NodeContent* content) {
                            const std::shared_ptr<Context> context = find_context(ctx);
                            if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
                            if (!one_dimensional(*copy_params) || !one_dimensional(node.content.copy)) {
                              return CUDA_ERROR_INVALID_VALUE;
                            }
                            return copy_content(*copy_params, context, content);
                          });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec h_graph_exec, CUgraphNode h_node,
                                        const CUDA_MEMSET_NODE_PARAMS_v1* memset_params, CUcontext ctx) {
  if (memset_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_exec_content(h_graph_exec, h_node, CU_GRAPH_NODE_TYPE_MEMSET, [&](const GraphNode&, NodeContent* content) {
    const std::shared_ptr<Context> context = find_context(ctx);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    return fill_content(*memset_params, context, content);
  });
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec h_graph_exec, CUgraphNode h_node,
                                      const CUDA_HOST_NODE_PARAMS_v1* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams any{};
  any.type = CU_GRAPH_NODE_TYPE_HOST;
  any.host = {node_params->fn, node_params->userData};
  return driver::cuGraphExecNodeSetParams(h_graph_exec, h_node, &any);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec h_graph_exec, CUgraphNode h_node, CUevent event) {
  CUgraphNodeParams any{};
  any.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  any.eventRecord.event = event;
  return driver::cuGraphExecNodeSetParams(h_graph_exec, h_node, &any);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec h_graph_exec, CUgraphNode h_node, CUevent event) {
  CUgraphNodeParams any{};
  any.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  any.eventWait.event = event;
  return driver::cuGraphExecNodeSetParams(h_graph_exec, h_node, &any);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec h_graph_exec, CUgraphNode h_node, CUgraph child_graph) {
  std::vector<NodeContent> old;  // goes after the lock
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<GraphExec> exec;
  std::shared_ptr<Graph> child;
  GraphNode* node = nullptr;
  if (const CUresult r = find_exec_node(h_graph_exec, h_node, &exec, &node); r != CUDA_SUCCESS) return r;
  if (const CUresult r = find_graph(child_graph, &child); r != CUDA_SUCCESS) return r;
  if (node->content.child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<GraphNode*, const GraphNode*>> pairs;
  if (pair_nodes(*node->content.child, *child, &pairs).result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  give_contents(pairs, &old);
  node->content.child->objects = std::make_shared<ObjectReferences>(*child->objects);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec h_graph_exec, CUgraphNode h_node, unsigned int is_enabled) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<GraphExec> exec;
  GraphNode* node = nullptr;
  if (const CUresult r = find_exec_node(h_graph_exec, h_node, &exec, &node); r != CUDA_SUCCESS) return r;
  const CUgraphNodeType type = node->content.type;
  if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMCPY && type != CU_GRAPH_NODE_TYPE_MEMSET) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  node->enabled = is_enabled != 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec h_graph_exec, CUgraphNode h_node, unsigned int* is_enabled) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<GraphExec> exec;
  GraphNode* node = nullptr;
  if (is_enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = find_exec_node(h_graph_exec, h_node, &exec, &node); r != CUDA_SUCCESS) return r;
  *is_enabled = node->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace driver
}  // namespace hostcuda

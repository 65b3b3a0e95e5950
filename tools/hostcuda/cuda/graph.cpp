// SPDX-License-Identifier: MIT
// Graphs built by hand: nodes, edges, copies; driver functions cuGraph... but those on executable graphs.
#include "tools/hostcuda/cuda/graph.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <unordered_set>

#include "tools/hostcuda/cuda/context.h"
#include "tools/hostcuda/cuda/memory.h"

namespace hostcuda {
namespace {

uint64_t next_node_id() {
  static uint64_t last = 0;  // under Engine::mutex
  return ++last;
}

bool is_published(const Graph& graph) {
  return Engine::get().graphs.contains(handle_of(graph));
}

void publish_node(GraphNode& node) {
  Engine::get().graph_nodes[handle_of(node)] = &node;
  if (node.content.child != nullptr) publish_graph(node.content.child);
}

void withdraw_node(const GraphNode& node) {
  Engine::get().graph_nodes.erase(handle_of(node));
  if (node.content.child != nullptr) withdraw_graph(*node.content.child);
}

bool comes_after(const GraphNode& node, const GraphNode* earlier) {
  return std::find(node.dependencies.begin(), node.dependencies.end(), earlier) != node.dependencies.end();
}

void connect(GraphNode& from, GraphNode& to) {
  to.dependencies.push_back(&from);
  from.dependents.push_back(&to);
}

void disconnect(GraphNode& from, GraphNode& to) {
  std::erase(to.dependencies, &from);
  std::erase(from.dependents, &to);
}

// Edges with ports or a type (programmatic dependent launch) have no meaning here.
bool plain_edges(const CUgraphEdgeData* data, size_t count) {
  const CUgraphEdgeData plain{};
  for (size_t i = 0; data != nullptr && i < count; ++i) {
    if (std::memcmp(&data[i], &plain, sizeof plain) != 0) return false;
  }
  return true;
}

// Adds a node whose content `make(graph, &content)` gives. Every cuGraphAdd...Node.
template <class Make>
CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, size_t count, Make make) {
  NodeContent content;  // outlives the lock: it may be dropped
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Graph> graph;
  std::vector<GraphNode*> after;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = find_graph(handle, &graph); r != CUDA_SUCCESS) return r;
  if (const CUresult r = nodes_of(*graph, dependencies, count, &after); r != CUDA_SUCCESS) return r;
  if (const CUresult r = make(*graph, &content); r != CUDA_SUCCESS) return r;
  *out = handle_of(*add_node(*graph, after, std::move(content)));
  return CUDA_SUCCESS;
}

// Calls `body(node)` for the node behind `handle`, which must be of `type`.
template <class Body>
CUresult with_node(CUgraphNode handle, CUgraphNodeType type, Body body) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  GraphNode* node = nullptr;
  if (const CUresult r = find_node(handle, &node); r != CUDA_SUCCESS) return r;
  if (node->content.type != type) return CUDA_ERROR_INVALID_VALUE;
  return body(*node);
}

// Replaces a node's content by what `make(&content)` gives.
template <class Make>
CUresult set_content(CUgraphNode handle, CUgraphNodeType type, Make make) {
  NodeContent old;
  return with_node(handle, type, [&](GraphNode& node) {
    NodeContent content;
    if (const CUresult r = make(node, &content); r != CUDA_SUCCESS) {
      old = std::move(content);
      return r;
    }
    old = std::move(node.content);
    node.content = std::move(content);
    return CUDA_SUCCESS;
  });
}

// The context that a node's parameters name, the current one where they name none.
CUresult context_named(CUcontext handle, std::shared_ptr<Context>* context) {
  if (handle == nullptr) return current_context(context);
  *context = find_context(handle);
  return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult kernel_content_of(const CUDA_KERNEL_NODE_PARAMS& params, NodeContent* content) {
  std::shared_ptr<Context> context;
  if (params.func == nullptr || params.ctx != nullptr) {
    if (const CUresult r = context_named(params.func == nullptr ? params.ctx : nullptr, &context); r != CUDA_SUCCESS) {
      return r;
    }
  }
  return kernel_content(params, context, content);
}

CUDA_KERNEL_NODE_PARAMS widened(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    nullptr,     nullptr};
}

CUresult event_content(CUgraphNodeType type, CUevent handle, NodeContent* content) {
  const auto found = Engine::get().events.find(handle);
  if (found == Engine::get().events.end()) return CUDA_ERROR_INVALID_HANDLE;
  content->type = type;
  content->event = found->second;
  content->context = found->second->context;
  return CUDA_SUCCESS;
}

CUresult host_content(CUhostFn fn, void* user_data, NodeContent* content) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  content->type = CU_GRAPH_NODE_TYPE_HOST;
  content->host = {fn, user_data};
  content->work = share_work({fn, nullptr, user_data, "host function"});
  return CUDA_SUCCESS;
}

CUresult child_content(CUgraph handle, NodeContent* content) {
  std::shared_ptr<Graph> child;
  if (const CUresult r = find_graph(handle, &child); r != CUDA_SUCCESS) return r;
  if (has_memory_nodes(*child)) return CUDA_ERROR_NOT_SUPPORTED;
  content->type = CU_GRAPH_NODE_TYPE_GRAPH;
  content->child = clone_graph(*child, Graph::Owner::kNode);
  return CUDA_SUCCESS;
}

// Copies `from` to the caller's array as the cuGraphGet... functions do: with a null array the number alone; of a
// larger array the rest is set to null.
CUresult give(const std::vector<CUgraphNode>& from, CUgraphNode* to, size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (to != nullptr) {
    for (size_t i = 0; i < *count; ++i) to[i] = i < from.size() ? from[i] : nullptr;
    *count = std::min(*count, from.size());
  } else {
    *count = from.size();
  }
  return CUDA_SUCCESS;
}

std::vector<CUgraphNode> handles(const std::vector<GraphNode*>& nodes) {
  std::vector<CUgraphNode> result;
  for (const GraphNode* node : nodes) result.push_back(handle_of(*node));
  return result;
}

void clear_edges(CUgraphEdgeData* data, const CUgraphNode* nodes, size_t count) {
  if (data != nullptr && nodes != nullptr) std::memset(data, 0, count * sizeof *data);
}

const char* type_name(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "kernel";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "memcpy";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "memset";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "host";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "child graph";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "event wait";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "event record";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "mem alloc";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "mem free";
    default:
      return "empty";
  }
}

void print_dot(std::FILE* file, const Graph& graph) {
  for (const auto& node : graph.nodes) {
    const char* what = node->content.work != nullptr ? node->content.work->name : type_name(node->content.type);
    std::fprintf(file, "  n%" PRIu64 " [label=\"%s\\n%s\"];\n", node->id, type_name(node->content.type), what);
    for (const GraphNode* later : node->dependents) {
      std::fprintf(file, "  n%" PRIu64 " -> n%" PRIu64 ";\n", node->id, later->id);
    }
    if (node->content.child != nullptr) {
      std::fprintf(file, "  subgraph cluster_%" PRIu64 " {\n", node->id);
      print_dot(file, *node->content.child);
      std::fprintf(file, "  }\n");
    }
  }
}

}  // namespace

std::shared_ptr<Work> share_work(const Work& work) {
  return {new Work(work), [](Work* held) {
            if (held->destroy != nullptr) held->destroy(held->arg);
            delete held;
          }};
}

GraphMemory::~GraphMemory() {
  if (base != 0) unreserve(base);
}

std::shared_ptr<GraphMemory> find_graph_memory(CUdeviceptr p) {
  const auto found = Engine::get().graph_memory.find(p);
  return found == Engine::get().graph_memory.end() ? nullptr : found->second.lock();
}

CUresult find_graph(CUgraph handle, std::shared_ptr<Graph>* graph) {
  const Engine& engine = Engine::get();
  if (engine.exiting) return CUDA_ERROR_DEINITIALIZED;
  if (!engine.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = engine.graphs.find(handle);
  if (found == engine.graphs.end()) return CUDA_ERROR_INVALID_VALUE;
  *graph = found->second;
  return CUDA_SUCCESS;
}

CUresult find_node(CUgraphNode handle, GraphNode** node) {
  const Engine& engine = Engine::get();
  if (engine.exiting) return CUDA_ERROR_DEINITIALIZED;
  if (!engine.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  const auto found = engine.graph_nodes.find(handle);
  if (found == engine.graph_nodes.end()) return CUDA_ERROR_INVALID_VALUE;
  *node = found->second;
  return CUDA_SUCCESS;
}

CUresult nodes_of(const Graph& graph, const CUgraphNode* handles, size_t count, std::vector<GraphNode*>* nodes) {
  if (count != 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::unordered_set<GraphNode*> seen;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = nullptr;
    if (const CUresult r = find_node(handles[i], &node); r != CUDA_SUCCESS) return r;
    if (node->graph != &graph || !seen.insert(node).second) return CUDA_ERROR_INVALID_VALUE;
    nodes->push_back(node);
  }
  return CUDA_SUCCESS;
}

GraphNode* add_node(Graph& graph, const std::vector<GraphNode*>& dependencies, NodeContent content) {
  auto node = std::make_unique<GraphNode>();
  node->id = next_node_id();
  node->graph = &graph;
  node->content = std::move(content);
  for (GraphNode* earlier : dependencies) connect(*earlier, *node);
  if (is_published(graph)) publish_node(*node);
  graph.nodes.push_back(std::move(node));
  return graph.nodes.back().get();
}

void publish_graph(const std::shared_ptr<Graph>& graph) {
  Engine::get().graphs[handle_of(*graph)] = graph;
  for (const auto& node : graph->nodes) publish_node(*node);
}

void withdraw_graph(const Graph& graph) {
  Engine::get().graphs.erase(handle_of(graph));
  for (const auto& node : graph.nodes) withdraw_node(*node);
}

std::shared_ptr<Graph> clone_graph(const Graph& graph, Graph::Owner owner) {
  auto copy = std::make_shared<Graph>();
  copy->owner = owner;
  copy->objects = std::make_shared<ObjectReferences>(*graph.objects);
  std::unordered_map<const GraphNode*, GraphNode*> twin;
  for (const auto& node : graph.nodes) {
    NodeContent content = node->content;
    if (content.child != nullptr) content.child = clone_graph(*content.child, Graph::Owner::kNode);
    GraphNode* added = add_node(*copy, {}, std::move(content));
    added->source_id = node->id;
    added->enabled = node->enabled;
    twin[node.get()] = added;
  }
  for (const auto& node : graph.nodes) {
    for (const GraphNode* earlier : node->dependencies) connect(*twin[earlier], *twin[node.get()]);
  }
  return copy;
}

bool has_memory_nodes(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->content.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->content.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
           (node->content.child != nullptr && has_memory_nodes(*node->content.child));
  });
}

void collect_ancestors(const std::vector<GraphNode*>& from, std::vector<const GraphNode*>* ancestors) {
  std::unordered_set<const GraphNode*> seen;
  std::vector<const GraphNode*> open(from.begin(), from.end());
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
  }
  ancestors->assign(seen.begin(), seen.end());
}

CUresult allocation_content(const std::shared_ptr<Context>& context, const CUmemPoolProps& props, size_t bytes,
                            NodeContent* content) {
  auto memory = std::make_shared<GraphMemory>();
  if (const CUresult r = reserve_device(context->device, context->id, bytes, &memory->base); r != CUDA_SUCCESS) {
    return r;
  }
  memory->bytes = bytes;
  memory->props = props;
  content->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  content->context = context;
  content->memory = memory;
  Engine::get().graph_memory[memory->base] = memory;
  return CUDA_SUCCESS;
}

CUresult free_content(const Graph& graph, CUdeviceptr p, NodeContent* content) {
  const std::shared_ptr<GraphMemory> memory = find_graph_memory(p);
  if (memory == nullptr || memory->freed_in_graph) return CUDA_ERROR_INVALID_VALUE;
  const bool own = memory->graph == &graph;
  if (own && memory->freed_elsewhere) return CUDA_ERROR_INVALID_VALUE;
  (own ? memory->freed_in_graph : memory->freed_elsewhere) = true;
  content->type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  content->memory = memory;
  return CUDA_SUCCESS;
}

CUresult content_of(const Graph& graph, CUgraphNodeParams* params, NodeContent* content) {
  std::shared_ptr<Context> context;
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const CUDA_KERNEL_NODE_PARAMS_v3& p = params->kernel;
      return kernel_content_of({p.func, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY, p.blockDimZ,
                                p.sharedMemBytes, p.kernelParams, p.extra, p.kern, p.ctx},
                               content);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (params->memcpy.flags != 0 || params->memcpy.reserved != 0) return CUDA_ERROR_INVALID_VALUE;
      if (const CUresult r = context_named(params->memcpy.copyCtx, &context); r != CUDA_SUCCESS) return r;
      return copy_content(params->memcpy.copyParams, context, content);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS_v2& p = params->memset;
      if (const CUresult r = context_named(p.ctx, &context); r != CUDA_SUCCESS) return r;
      return fill_content({p.dst, p.pitch, p.value, p.elementSize, p.width, p.height}, context, content);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return host_content(params->host.fn, params->host.userData, content);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      if (params->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) return CUDA_ERROR_NOT_SUPPORTED;
      return child_content(params->graph.graph, content);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return event_content(params->type, params->eventWait.event, content);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return event_content(params->type, params->eventRecord.event, content);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS_v2& p = params->alloc;
      if (p.bytesize == 0 || p.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
      if (p.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED || p.poolProps.handleTypes != 0) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      if (const CUresult r = primary_context(p.poolProps.location.id, &context); r != CUDA_SUCCESS) return r;
      if (const CUresult r = allocation_content(context, p.poolProps, p.bytesize, content); r != CUDA_SUCCESS) return r;
      content->memory->graph = &graph;
      p.dptr = content->memory->base;
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return free_content(graph, params->free.dptr, content);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

namespace driver {

CUresult cuGraphCreate(CUgraph* ph_graph, unsigned int flags) {
  Engine& engine = Engine::get();
  const std::lock_guard<std::mutex> lock(engine.mutex);
  if (engine.exiting) return CUDA_ERROR_DEINITIALIZED;
  if (!engine.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (ph_graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto graph = std::make_shared<Graph>();
  publish_graph(graph);
  *ph_graph = handle_of(*graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph h_graph) {
  std::shared_ptr<Graph> gone;  // goes after the lock: a body's destructor belongs to whoever made it
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  if (const CUresult r = find_graph(h_graph, &gone); r != CUDA_SUCCESS) return r;
  if (gone->owner != Graph::Owner::kProgram) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& capture : Engine::get().captures) {
    if (capture->graph == gone) return CUDA_ERROR_INVALID_VALUE;
  }
  withdraw_graph(*gone);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* ph_graph_clone, CUgraph original_graph) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Graph> graph;
  if (ph_graph_clone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = find_graph(original_graph, &graph); r != CUDA_SUCCESS) return r;
  if (has_memory_nodes(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  const std::shared_ptr<Graph> copy = clone_graph(*graph, Graph::Owner::kProgram);
  publish_graph(copy);
  *ph_graph_clone = handle_of(*copy);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* ph_node, CUgraphNode h_original_node, CUgraph h_cloned_graph) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Graph> clone;
  GraphNode* original = nullptr;
  if (ph_node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = find_graph(h_cloned_graph, &clone); r != CUDA_SUCCESS) return r;
  if (const CUresult r = find_node(h_original_node, &original); r != CUDA_SUCCESS) return r;
  for (const auto& node : clone->nodes) {
    if (node->source_id == original->id) {
      *ph_node = handle_of(*node);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddEmptyNode(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                             size_t num_dependencies) {
  return add(ph_graph_node, h_graph, dependencies, num_dependencies,
             [](const Graph&, NodeContent*) { return CUDA_SUCCESS; });
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                                 size_t num_dependencies, const CUDA_KERNEL_NODE_PARAMS_v2* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(ph_graph_node, h_graph, dependencies, num_dependencies,
             [&](const Graph&, NodeContent* content) { return kernel_content_of(*node_params, content); });
}

CUresult cuGraphAddKernelNode(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                              size_t num_dependencies, const CUDA_KERNEL_NODE_PARAMS_v1* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = widened(*node_params);
  return driver::cuGraphAddKernelNode_v2(ph_graph_node, h_graph, dependencies, num_dependencies, &wide);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode h_node, CUDA_KERNEL_NODE_PARAMS_v2* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_node(h_node, CU_GRAPH_NODE_TYPE_KERNEL, [&](const GraphNode& node) {
    const KernelParams* p = node.content.kernel.get();
    if (p == nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // a library's own kernel has no handle here
    *node_params = {p->function, p->grid[0],      p->grid[1],
                    p->grid[2],  p->block[0],     p->block[1],
                    p->block[2], p->shared_bytes, const_cast<void**>(p->pointers.data()),
                    nullptr,     p->kernel,       node.content.context->handle};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode h_node, CUDA_KERNEL_NODE_PARAMS_v1* node_params) {
  CUDA_KERNEL_NODE_PARAMS_v2 p{};
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = driver::cuGraphKernelNodeGetParams_v2(h_node, &p);
  if (result == CUDA_SUCCESS) {
    *node_params = {p.func,      p.gridDimX,  p.gridDimY,       p.gridDimZ,     p.blockDimX,
                    p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra};
  }
  return result;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode h_node, const CUDA_KERNEL_NODE_PARAMS_v2* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_content(h_node, CU_GRAPH_NODE_TYPE_KERNEL,
                     [&](const GraphNode&, NodeContent* content) { return kernel_content_of(*node_params, content); });
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode h_node, const CUDA_KERNEL_NODE_PARAMS_v1* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS wide = widened(*node_params);
  return driver::cuGraphKernelNodeSetParams_v2(h_node, &wide);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                              size_t num_dependencies, const CUDA_MEMCPY3D_v2* copy_params, CUcontext ctx) {
  if (copy_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(ph_graph_node, h_graph, dependencies, num_dependencies, [&](const Graph&, NodeContent* content) {
    std::shared_ptr<Context> context;
    if (const CUresult r = context_named(ctx, &context); r != CUDA_SUCCESS) return r;
    return copy_content(*copy_params, context, content);
  });
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode h_node, CUDA_MEMCPY3D_v2* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_node(h_node, CU_GRAPH_NODE_TYPE_MEMCPY, [&](const GraphNode& node) {
    *node_params = node.content.copy;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode h_node, const CUDA_MEMCPY3D_v2* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_content(h_node, CU_GRAPH_NODE_TYPE_MEMCPY, [&](const GraphNode& node, NodeContent* content) {
    return copy_content(*node_params, node.content.context, content);
  });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                              size_t num_dependencies, const CUDA_MEMSET_NODE_PARAMS_v1* memset_params, CUcontext ctx) {
  if (memset_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(ph_graph_node, h_graph, dependencies, num_dependencies, [&](const Graph&, NodeContent* content) {
    std::shared_ptr<Context> context;
    if (const CUresult r = context_named(ctx, &context); r != CUDA_SUCCESS) return r;
    return fill_content(*memset_params, context, content);
  });
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode h_node, CUDA_MEMSET_NODE_PARAMS_v1* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_node(h_node, CU_GRAPH_NODE_TYPE_MEMSET, [&](const GraphNode& node) {
    *node_params = node.content.fill;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode h_node, const CUDA_MEMSET_NODE_PARAMS_v1* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_content(h_node, CU_GRAPH_NODE_TYPE_MEMSET, [&](const GraphNode& node, NodeContent* content) {
    return fill_content(*node_params, node.content.context, content);
  });
}

CUresult cuGraphAddHostNode(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                            size_t num_dependencies, const CUDA_HOST_NODE_PARAMS_v1* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add(ph_graph_node, h_graph, dependencies, num_dependencies, [&](const Graph&, NodeContent* content) {
    return host_content(node_params->fn, node_params->userData, content);
  });
}

CUresult cuGraphHostNodeGetParams(CUgraphNode h_node, CUDA_HOST_NODE_PARAMS_v1* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_node(h_node, CU_GRAPH_NODE_TYPE_HOST, [&](const GraphNode& node) {
    *node_params = node.content.host;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphHostNodeSetParams(CUgraphNode h_node, const CUDA_HOST_NODE_PARAMS_v1* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_content(h_node, CU_GRAPH_NODE_TYPE_HOST, [&](const GraphNode&, NodeContent* content) {
    return host_content(node_params->fn, node_params->userData, content);
  });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                                  size_t num_dependencies, CUgraph child_graph) {
  return add(ph_graph_node, h_graph, dependencies, num_dependencies,
             [&](const Graph&, NodeContent* content) { return child_content(child_graph, content); });
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode h_node, CUgraph* ph_graph) {
  if (ph_graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_node(h_node, CU_GRAPH_NODE_TYPE_GRAPH, [&](const GraphNode& node) {
    *ph_graph = handle_of(*node.content.child);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                                   size_t num_dependencies, CUevent event) {
  return add(ph_graph_node, h_graph, dependencies, num_dependencies, [&](const Graph&, NodeContent* content) {
    return event_content(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, content);
  });
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode h_node, CUevent* event_out) {
  if (event_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_node(h_node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, [&](const GraphNode& node) {
    *event_out = node.content.event->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode h_node, CUevent event) {
  return set_content(h_node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, [&](const GraphNode&, NodeContent* content) {
    return event_content(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, content);
  });
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                                 size_t num_dependencies, CUevent event) {
  return add(ph_graph_node, h_graph, dependencies, num_dependencies, [&](const Graph&, NodeContent* content) {
    return event_content(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, content);
  });
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode h_node, CUevent* event_out) {
  if (event_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_node(h_node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, [&](const GraphNode& node) {
    *event_out = node.content.event->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode h_node, CUevent event) {
  return set_content(h_node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, [&](const GraphNode&, NodeContent* content) {
    return event_content(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, content);
  });
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                                size_t num_dependencies, CUDA_MEM_ALLOC_NODE_PARAMS* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams any{};
  any.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  static_assert(sizeof any.alloc == sizeof *node_params);
  std::memcpy(&any.alloc, node_params, sizeof any.alloc);
  const CUresult result = driver::cuGraphAddNode(ph_graph_node, h_graph, dependencies, num_dependencies, &any);
  if (result == CUDA_SUCCESS) node_params->dptr = any.alloc.dptr;
  return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode h_node, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  if (params_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_node(h_node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, [&](const GraphNode& node) {
    const GraphMemory& memory = *node.content.memory;
    *params_out = {memory.props, nullptr, 0, memory.bytes, memory.base};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                               size_t num_dependencies, CUdeviceptr dptr) {
  return add(ph_graph_node, h_graph, dependencies, num_dependencies,
             [&](const Graph& graph, NodeContent* content) { return free_content(graph, dptr, content); });
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode h_node, CUdeviceptr* dptr_out) {
  if (dptr_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_node(h_node, CU_GRAPH_NODE_TYPE_MEM_FREE, [&](const GraphNode& node) {
    *dptr_out = node.content.memory->base;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddNode_v2(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* dependency_data, size_t num_dependencies,
                           CUgraphNodeParams* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!plain_edges(dependency_data, num_dependencies)) return CUDA_ERROR_NOT_SUPPORTED;
  return add(ph_graph_node, h_graph, dependencies, num_dependencies,
             [&](const Graph& graph, NodeContent* content) { return content_of(graph, node_params, content); });
}

CUresult cuGraphAddNode(CUgraphNode* ph_graph_node, CUgraph h_graph, const CUgraphNode* dependencies,
                        size_t num_dependencies, CUgraphNodeParams* node_params) {
  return driver::cuGraphAddNode_v2(ph_graph_node, h_graph, dependencies, nullptr, num_dependencies, node_params);
}

CUresult cuGraphNodeSetParams(CUgraphNode h_node, CUgraphNodeParams* node_params) {
  if (node_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphNodeType type = node_params->type;
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE || type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return set_content(h_node, type, [&](const GraphNode& node, NodeContent* content) {
    return content_of(*node.graph, node_params, content);
  });
}

CUresult cuGraphNodeGetType(CUgraphNode h_node, CUgraphNodeType* type) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  GraphNode* node = nullptr;
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = find_node(h_node, &node); r != CUDA_SUCCESS) return r;
  *type = node->content.type;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies_v2(CUgraph h_graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edge_data, size_t num_dependencies) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Graph> graph;
  if (const CUresult r = find_graph(h_graph, &graph); r != CUDA_SUCCESS) return r;
  if (num_dependencies != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (!plain_edges(edge_data, num_dependencies)) return CUDA_ERROR_NOT_SUPPORTED;
  for (const bool apply : {false, true}) {  // all or nothing
    for (size_t i = 0; i < num_dependencies; ++i) {
      GraphNode* earlier = nullptr;
      GraphNode* later = nullptr;
      if (const CUresult r = find_node(from[i], &earlier); r != CUDA_SUCCESS) return r;
      if (const CUresult r = find_node(to[i], &later); r != CUDA_SUCCESS) return r;
      if (apply) {
        if (!comes_after(*later, earlier)) connect(*earlier, *later);
      } else if (earlier->graph != graph.get() || later->graph != graph.get() || earlier == later ||
                 comes_after(*later, earlier)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph h_graph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t num_dependencies) {
  return driver::cuGraphAddDependencies_v2(h_graph, from, to, nullptr, num_dependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph h_graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* edge_data, size_t num_dependencies) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Graph> graph;
  if (const CUresult r = find_graph(h_graph, &graph); r != CUDA_SUCCESS) return r;
  if (num_dependencies != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (!plain_edges(edge_data, num_dependencies)) return CUDA_ERROR_INVALID_VALUE;
  if (num_dependencies != 0 && has_memory_nodes(*graph)) return CUDA_ERROR_NOT_SUPPORTED;
  for (const bool apply : {false, true}) {
    for (size_t i = 0; i < num_dependencies; ++i) {
      GraphNode* earlier = nullptr;
      GraphNode* later = nullptr;
      if (const CUresult r = find_node(from[i], &earlier); r != CUDA_SUCCESS) return r;
      if (const CUresult r = find_node(to[i], &later); r != CUDA_SUCCESS) return r;
      if (apply) {
        disconnect(*earlier, *later);
      } else if (earlier->graph != graph.get() || !comes_after(*later, earlier)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph h_graph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t num_dependencies) {
  return driver::cuGraphRemoveDependencies_v2(h_graph, from, to, nullptr, num_dependencies);
}

CUresult cuGraphDestroyNode(CUgraphNode h_node) {
  std::unique_ptr<GraphNode> gone;  // goes after the lock
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  GraphNode* node = nullptr;
  if (const CUresult r = find_node(h_node, &node); r != CUDA_SUCCESS) return r;
  Graph& graph = *node->graph;
  if (graph.owner == Graph::Owner::kCapture) return CUDA_ERROR_INVALID_VALUE;
  if (has_memory_nodes(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  while (!node->dependencies.empty()) disconnect(*node->dependencies.back(), *node);
  while (!node->dependents.empty()) disconnect(*node, *node->dependents.back());
  withdraw_node(*node);
  forget_captured(*node);
  const auto at =
      std::find_if(graph.nodes.begin(), graph.nodes.end(), [node](const auto& n) { return n.get() == node; });
  gone = std::move(*at);
  graph.nodes.erase(at);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph h_graph, CUgraphNode* nodes, size_t* num_nodes) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Graph> graph;
  if (const CUresult r = find_graph(h_graph, &graph); r != CUDA_SUCCESS) return r;
  std::vector<CUgraphNode> all;
  for (const auto& node : graph->nodes) all.push_back(handle_of(*node));
  return give(all, nodes, num_nodes);
}

CUresult cuGraphGetRootNodes(CUgraph h_graph, CUgraphNode* root_nodes, size_t* num_root_nodes) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Graph> graph;
  if (const CUresult r = find_graph(h_graph, &graph); r != CUDA_SUCCESS) return r;
  std::vector<CUgraphNode> roots;
  for (const auto& node : graph->nodes) {
    if (node->dependencies.empty()) roots.push_back(handle_of(*node));
  }
  return give(roots, root_nodes, num_root_nodes);
}

CUresult cuGraphGetEdges_v2(CUgraph h_graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edge_data,
                            size_t* num_edges) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Graph> graph;
  if (const CUresult r = find_graph(h_graph, &graph); r != CUDA_SUCCESS) return r;
  if (num_edges == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (edge_data != nullptr && from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> begins;
  std::vector<CUgraphNode> ends;
  for (const auto& node : graph->nodes) {
    for (const GraphNode* earlier : node->dependencies) {
      begins.push_back(handle_of(*earlier));
      ends.push_back(handle_of(*node));
    }
  }
  const size_t room = *num_edges;
  clear_edges(edge_data, from, room);
  give(begins, from, num_edges);
  *num_edges = room;
  return give(ends, to, num_edges);
}

CUresult cuGraphGetEdges(CUgraph h_graph, CUgraphNode* from, CUgraphNode* to, size_t* num_edges) {
  return driver::cuGraphGetEdges_v2(h_graph, from, to, nullptr, num_edges);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode h_node, CUgraphNode* dependencies, CUgraphEdgeData* edge_data,
                                       size_t* num_dependencies) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  GraphNode* node = nullptr;
  if (const CUresult r = find_node(h_node, &node); r != CUDA_SUCCESS) return r;
  if (num_dependencies == nullptr || (edge_data != nullptr && dependencies == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  clear_edges(edge_data, dependencies, *num_dependencies);
  return give(handles(node->dependencies), dependencies, num_dependencies);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode h_node, CUgraphNode* dependencies, size_t* num_dependencies) {
  return driver::cuGraphNodeGetDependencies_v2(h_node, dependencies, nullptr, num_dependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode h_node, CUgraphNode* dependent_nodes, CUgraphEdgeData* edge_data,
                                         size_t* num_dependent_nodes) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  GraphNode* node = nullptr;
  if (const CUresult r = find_node(h_node, &node); r != CUDA_SUCCESS) return r;
  if (num_dependent_nodes == nullptr || (edge_data != nullptr && dependent_nodes == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  clear_edges(edge_data, dependent_nodes, *num_dependent_nodes);
  return give(handles(node->dependents), dependent_nodes, num_dependent_nodes);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode h_node, CUgraphNode* dependent_nodes, size_t* num_dependent_nodes) {
  return driver::cuGraphNodeGetDependentNodes_v2(h_node, dependent_nodes, nullptr, num_dependent_nodes);
}

CUresult cuGraphRetainUserObject(CUgraph h_graph, CUuserObject object, unsigned int count, unsigned int flags) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Graph> graph;
  if (const CUresult r = find_graph(h_graph, &graph); r != CUDA_SUCCESS) return r;
  if ((flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) return CUDA_ERROR_INVALID_VALUE;
  return graph->objects->add(object, count, flags == CU_GRAPH_USER_OBJECT_MOVE);
}

CUresult cuGraphReleaseUserObject(CUgraph h_graph, CUuserObject object, unsigned int count) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Graph> graph;
  if (const CUresult r = find_graph(h_graph, &graph); r != CUDA_SUCCESS) return r;
  return graph->objects->drop(object, count);
}

// Structure and names; the flags that ask for more detail are taken and change nothing.
CUresult cuGraphDebugDotPrint(CUgraph h_graph, const char* path, unsigned int) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Graph> graph;
  if (const CUresult r = find_graph(h_graph, &graph); r != CUDA_SUCCESS) return r;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  std::fprintf(file, "digraph hostcuda {\n");
  print_dot(file, *graph);
  std::fprintf(file, "}\n");
  return std::fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace driver
}  // namespace hostcuda

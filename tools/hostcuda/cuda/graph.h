// SPDX-License-Identifier: MIT
// Graphs: nodes, their contents and edges, captured or built by hand; and how an executable copy is launched.
//
//   capture.cpp ──add_node──┐
//   graph.cpp (cuGraphAdd...)┴──> Graph ──clone_graph──> GraphExec::graph ──launch_graph──> operations of streams
//
// Everything here needs Engine::mutex held. Contents hold bodies of the program's and the libraries', whose destructors
// must run without that lock: whoever drops a graph, a node or a content moves it into something that outlives the
// lock.
#pragma once

#include <functional>

#include "tools/hostcuda/cuda/engine.h"
#include "tools/hostcuda/cuda/user_object.h"

namespace hostcuda {

struct Graph;

// A kernel node's parameters, never changed once made: nodes share them.
struct KernelParams {
  CUfunction function = nullptr;  // null: `kernel`
  CUkernel kernel = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<unsigned char> block_of_params;
  std::vector<void*> pointers;  // kernelParams as it is given back
};

// Device memory of a graph's allocation node: its address is reserved while a node or an executable graph holds it, and
// there is memory behind it from the node that allocates to the one that frees.
struct GraphMemory {
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CUmemPoolProps props{};
  bool freed_in_graph = false;   // a free node of the same graph
  bool freed_elsewhere = false;  // a free node of another graph
  bool unfreed = false;          // launched, and nothing that frees it was enqueued since
  const Graph* graph = nullptr;  // where the allocation node is
  ~GraphMemory();
};

// What a node does.
struct NodeContent {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::shared_ptr<Context> context;  // where it runs; null: in that of the launch
  std::shared_ptr<Work> work;        // kernel, memcpy, memset, host function: its body
  std::shared_ptr<const KernelParams>
      kernel;  // null in a kernel node: a library's own work, which nobody can ask about
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS fill{};
  CUDA_HOST_NODE_PARAMS host{};
  std::shared_ptr<Graph> child;
  std::shared_ptr<Event> event;
  std::shared_ptr<GraphMemory> memory;  // allocation node, and the free node of an allocation node's memory
};

struct GraphNode {
  uint64_t id = 0;         // never reused
  uint64_t source_id = 0;  // in a copy: id of the node it was copied from
  Graph* graph = nullptr;
  NodeContent content;
  std::vector<GraphNode*> dependencies;  // in the order they were given
  std::vector<GraphNode*> dependents;
  bool enabled = true;
};

struct Graph {
  enum class Owner { kProgram, kCapture, kNode, kExec };
  Owner owner = Owner::kProgram;
  std::vector<std::unique_ptr<GraphNode>> nodes;  // in order of creation
  std::shared_ptr<ObjectReferences> objects = std::make_shared<ObjectReferences>();
  unsigned executables = 0;  // alive, of a graph with memory nodes
};

// An executable graph: a copy of the graph, and the streams that its branches run in beside the launching one.
struct GraphExec {
  std::shared_ptr<Graph> graph;
  std::weak_ptr<Graph> instantiated_from;
  std::shared_ptr<Context> context;
  unsigned long long flags = 0;
  bool counted = false;                       // in instantiated_from->executables
  std::shared_ptr<EventRecord> last;          // launches of one executable graph run one after the other
  std::vector<std::shared_ptr<Stream>> side;  // made when first needed, shared by its launches
};

inline CUgraph handle_of(const Graph& graph) {
  return reinterpret_cast<CUgraph>(const_cast<Graph*>(&graph));
}
inline CUgraphNode handle_of(const GraphNode& node) {
  return reinterpret_cast<CUgraphNode>(const_cast<GraphNode*>(&node));
}

// A body shared by a graph's holders; destroyed with the last.
std::shared_ptr<Work> share_work(const Work& work);

// CUDA_ERROR_INVALID_VALUE: no such graph or node.
CUresult find_graph(CUgraph handle, std::shared_ptr<Graph>* graph);
CUresult find_node(CUgraphNode handle, GraphNode** node);

// Nodes `handles` of `graph`, without doubles: CUDA_SUCCESS and *nodes, or CUDA_ERROR_INVALID_VALUE.
CUresult nodes_of(const Graph& graph, const CUgraphNode* handles, size_t count, std::vector<GraphNode*>* nodes);

// Appends a node. A published graph's node (and its child graph) is published too.
GraphNode* add_node(Graph& graph, const std::vector<GraphNode*>& dependencies, NodeContent content);

// Makes a graph, its nodes and its child graphs known by their handles; or unknown.
void publish_graph(const std::shared_ptr<Graph>& graph);
void withdraw_graph(const Graph& graph);

// A copy with its own nodes and child graphs; contents, user objects and graph memory are shared.
std::shared_ptr<Graph> clone_graph(const Graph& graph, Graph::Owner owner);

bool has_memory_nodes(const Graph& graph);

// Everything that `from` comes after, itself included.
void collect_ancestors(const std::vector<GraphNode*>& from, std::vector<const GraphNode*>* ancestors);

// Contents as the driver's functions describe them, checked. `context` is where a node without its own runs.
CUresult kernel_content(const CUDA_KERNEL_NODE_PARAMS& params, const std::shared_ptr<Context>& context,
                        NodeContent* content);
CUresult copy_content(const CUDA_MEMCPY3D& params, const std::shared_ptr<Context>& context, NodeContent* content);
CUresult fill_content(const CUDA_MEMSET_NODE_PARAMS& params, const std::shared_ptr<Context>& context,
                      NodeContent* content);
// Reserves an address; *memory->base is the program's.
CUresult allocation_content(const std::shared_ptr<Context>& context, const CUmemPoolProps& props, size_t bytes,
                            NodeContent* content);
// CUDA_ERROR_INVALID_VALUE: not a graph's memory, or freed by another node already.
CUresult free_content(const Graph& graph, CUdeviceptr p, NodeContent* content);

// The graph memory that begins at `p`, null: none.
std::shared_ptr<GraphMemory> find_graph_memory(CUdeviceptr p);

// Any CUgraphNodeParams. CUDA_ERROR_NOT_SUPPORTED: a kind of node that the host device does not have.
CUresult content_of(const Graph& graph, CUgraphNodeParams* params, NodeContent* content);

// Records into the stream's capture: the node comes after what the stream has so far, and what follows comes after it.
CUresult capture_node(const std::shared_ptr<Stream>& stream, NodeContent content);

// Forgets a node that is about to be destroyed: no stream or event of an open capture may come after it any more.
void forget_captured(const GraphNode& node);

}  // namespace hostcuda

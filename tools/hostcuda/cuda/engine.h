// SPDX-License-Identifier: MIT
// Contexts, streams, events and graphs, and the engine that runs streams: what the driver functions are written in.
//
//   host thread: enqueue ──> Stream::queue ──(head ready? pump)──> worker thread of the stream ──> completed
//                               │ after: stream tails (legacy rules), events (waits)        └──> events, waiting hosts
//
// One mutex, Engine::mutex, guards everything below but the operations' own bodies, which run without it. A stream's
// head starts when its dependencies are done and the stream is idle; operations without a body (event records, waits,
// barriers) are completed by whoever pumps. Handles are small tokens apart from the objects: a destroyed stream's
// handle value comes back with the next stream (as the real driver's may), its id never does.
//
// The engine lives until the process ends and is not destroyed: workers may be inside an operation at exit. From exit
// on nothing new starts, and driver calls return CUDA_ERROR_DEINITIALIZED.
#pragma once

#include "tools/hostcuda/cuda/driver_api.h"
//
#include "tools/hostcuda/cuda/running.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace hostcuda {

using Clock = std::chrono::steady_clock;

struct Stream;
struct Capture;
struct Graph;
struct GraphExec;
struct GraphMemory;
struct GraphNode;

// One recording of an event: outlives the event, so that waits survive cuEventDestroy and a second record.
struct EventRecord {
  bool done = false;
  Clock::time_point when;
  char tag = 0;
};

// A body that can run. `destroy` is called once, when the last holder lets go.
struct Work {
  void (*run)(void*);
  void (*destroy)(void*);
  void* arg;
  const char* name;
};

struct Dependency {
  std::shared_ptr<Stream> stream;  // done when `sequence` operations of it are
  uint64_t sequence = 0;
  std::shared_ptr<EventRecord> record;  // or: done when it is
};

struct Operation {
  Work work{nullptr, nullptr, nullptr, nullptr};
  std::vector<Dependency> after;
  std::shared_ptr<EventRecord> record;  // marked done when the operation is
};

// The limits of a context that can be set: CU_LIMIT_STACK_SIZE and on.
inline constexpr int kSettableLimits = CU_LIMIT_PERSISTING_L2_CACHE_SIZE + 1;

struct Context {
  CUcontext handle = nullptr;
  uint64_t id = 0;  // cuCtxGetId, never reused
  int device = 0;
  unsigned flags = 0;
  bool primary = false;
  bool destroyed = false;
  std::atomic<CUresult> sticky{CUDA_SUCCESS};
  Peers peers;
  size_t limits[kSettableLimits] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0};  // by CUlimit, the real defaults
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  std::shared_ptr<Stream> legacy;
  std::map<uint64_t, std::shared_ptr<Stream>> per_thread;  // by thread number
  std::vector<std::shared_ptr<Stream>> streams;            // all that have a handle or a thread, legacy first
  char retired_tag = 0;                                    // TSan: released by every stream that is gone
};

struct Stream {
  CUstream handle = nullptr;  // null for legacy and per-thread streams
  uint64_t id = 0;            // cuStreamGetId, never reused
  int index = 0;              // order of creation in the process
  std::shared_ptr<Context> context;
  unsigned flags = 0;
  int priority = 0;
  bool is_legacy = false;

  std::deque<std::unique_ptr<Operation>> queue;
  uint64_t enqueued = 0;
  uint64_t completed = 0;
  bool running = false;  // the head belongs to the worker (or to a pump that completes it)
  bool has_worker = false;
  bool destroyed = false;  // no handle any more; goes when the queue is empty
  std::condition_variable wake;

  std::shared_ptr<Capture> capture;      // null: not capturing
  std::vector<GraphNode*> capture_tail;  // what the next captured node comes after
  bool fork_open = false;                // brought into the capture by a wait, and no other stream came after it since
  std::vector<CUgraphNode> shown_tail;   // capture_tail as cuStreamGetCaptureInfo gave it
  std::vector<CUgraphEdgeData> shown_edges;

  void* fiber = nullptr;  // TSan
  char worker_tag = 0;    // TSan: the worker's start, where its thread-local storage of every library was made
  char tag = 0;           // TSan: released after each operation

  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
  bool idle() const { return completed == enqueued; }
};

struct Event {
  CUevent handle = nullptr;
  std::shared_ptr<Context> context;
  unsigned flags = 0;
  std::shared_ptr<EventRecord> last;      // null: never recorded
  std::shared_ptr<Capture> capture;       // last recorded in this capture; null: recorded live
  std::vector<GraphNode*> captured_tail;  // what its stream had then, good while the capture is open
  std::shared_ptr<Stream> captured_from;
};

struct Capture {
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;  // number of the thread that began it
  bool invalidated = false;
  std::shared_ptr<Stream> origin;
  std::shared_ptr<Graph> graph;
  bool into_own_graph = true;  // false: into a graph of the program's
  std::vector<std::shared_ptr<Stream>> participants;
};

// Hands out token addresses as handles, last freed first.
class HandlePool {
 public:
  void* take();
  void give(void* handle);

 private:
  std::vector<void*> free_;
};

class Engine {
 public:
  std::mutex mutex;
  bool initialised = false;
  bool exiting = false;
  bool forked = false;  // a child of a process that had initialised: no driver here
  std::unordered_map<CUcontext, std::shared_ptr<Context>> contexts;
  std::unordered_map<CUstream, std::shared_ptr<Stream>> streams;
  std::unordered_map<CUevent, std::shared_ptr<Event>> events;
  std::unordered_map<CUgraph, std::shared_ptr<Graph>> graphs;  // child graphs and those being captured included
  std::unordered_map<CUgraphNode, GraphNode*> graph_nodes;     // of `graphs`
  std::unordered_map<CUgraphExec, std::shared_ptr<GraphExec>> graph_execs;
  std::unordered_map<CUdeviceptr, std::weak_ptr<GraphMemory>> graph_memory;
  std::vector<std::shared_ptr<Capture>> captures;  // open ones
  HandlePool handles;

  static Engine& get();

  // All of these need `mutex` held (the lock is passed where it is let go meanwhile).
  std::shared_ptr<Stream> create_stream(const std::shared_ptr<Context>& context, unsigned flags, int priority);
  std::shared_ptr<Context> create_context(int device, unsigned flags, CUcontext handle);
  // Waits for the context's work, drops its streams, events and memory, and marks it destroyed.
  void destroy_context(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Context>& context);

  // Appends with the legacy stream's ordering rules added, and starts what can start. The stream is not capturing.
  // Returns the number of the operation in its stream.
  uint64_t append(const std::shared_ptr<Stream>& stream, std::unique_ptr<Operation> operation);

  // A query is about to answer "not ready": the program polls, so a starved stream may go on.
  void host_asks();

  // Blocks until the stream has completed `sequence` operations.
  void wait_stream(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Stream>& stream, uint64_t sequence);
  void wait_event(std::unique_lock<std::mutex>& lock, const std::shared_ptr<EventRecord>& record);
  // True while the legacy stream's next operation would have to wait for a blocking stream.
  bool blocking_work_pending(const Context& context) const;
  // Blocks until everything now in any stream of the context is done.
  void wait_context(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Context>& context);

  // Starts every head that may start.
  void pump();

  int streams_created() const { return next_stream_index_; }
  uint64_t next_capture_id() { return ++last_capture_id_; }

 private:
  bool ready(const Operation& operation) const;
  void start(const std::shared_ptr<Stream>& stream);
  void ensure_worker(const std::shared_ptr<Stream>& stream);
  void complete_head(Stream& stream);
  void execute(Stream& stream, Operation& operation);
  void work(const std::shared_ptr<Stream>& stream);
  void retire(const std::shared_ptr<Stream>& stream);
  bool starved_may_run() const;
  void drain_at_exit();
  friend void stop_at_exit();

  std::vector<std::shared_ptr<Stream>> all_streams_;  // until destroyed and drained
  std::condition_variable done_;                      // an operation completed
  int hosts_waiting_ = 0;
  int bodies_running_ = 0;
  bool asked_ = false;  // a query found work unfinished since the last append
  Clock::time_point last_append_{};
  int next_stream_index_ = 0;
  uint64_t last_stream_id_ = 0;
  uint64_t last_context_id_ = 0;
  uint64_t last_capture_id_ = 0;
};

// Number of the calling thread, from 1, never reused.
uint64_t thread_number();

// Tells the calling thread's capture-safety state; see capture.cpp.
CUstreamCaptureMode& thread_capture_mode();

// While one of these lives, stream 0 means the calling thread's own stream (..._ptsz entry points).
class PerThreadDefault {
 public:
  PerThreadDefault();
  ~PerThreadDefault();
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;

 private:
  bool before_;
};

// The rest needs Engine::mutex held.

// The calling thread's current context: CUDA_ERROR_NOT_INITIALIZED, _DEINITIALIZED, _INVALID_CONTEXT (none),
// _CONTEXT_IS_DESTROYED, or its sticky error.
CUresult current_context(std::shared_ptr<Context>* context);

// The stream behind a handle: 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD belong to the current context; any other is
// found whatever the current context is. CUDA_ERROR_INVALID_HANDLE, the errors of current_context, or the sticky error
// of the stream's context.
CUresult find_stream(CUstream handle, std::shared_ptr<Stream>* stream);

// A driver call that a capture elsewhere forbids (allocation, synchronisation, module loading): CUDA_SUCCESS, or
// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED with the capture invalidated. Depends on the thread's capture mode.
CUresult check_capture_safe();

// Puts a body into `stream`, or into its graph while it is capturing: the whole of hostcuda_enqueue_owned.
CUresult enqueue_work(const std::shared_ptr<Stream>& stream, const Work& work);

// A callable of any type as work: on the heap, destroyed with the operation.
template <class Body>
Work work_of_body(const char* name, Body body) {
  return {[](void* arg) { (*static_cast<Body*>(arg))(); }, [](void* arg) { delete static_cast<Body*>(arg); },
          new Body(std::move(body)), name};
}

template <class Body>
CUresult enqueue_body(const std::shared_ptr<Stream>& stream, const char* name, Body body) {
  const Work work = work_of_body(name, std::move(body));
  const CUresult result = enqueue_work(stream, work);
  if (result != CUDA_SUCCESS) work.destroy(work.arg);
  return result;
}

// If the stream takes part in a capture, or would by legacy rules: the error that a call which cannot be captured
// gives (and the capture is invalidated); else CUDA_SUCCESS.
CUresult refuse_in_capture(const std::shared_ptr<Stream>& stream);

// A call that waits for, or asks about, all of a context: an error while a stream of it is capturing (and the capture
// is invalidated), whatever the thread's capture mode.
CUresult refuse_in_capture(const Context& context);

// A call that waits for, or asks about, an event: CUDA_ERROR_CAPTURED_EVENT where that was last recorded in a capture,
// which is invalidated if it is still open.
CUresult refuse_captured(const Event& event);

// Event record and wait, live or captured; see capture.cpp for the captured half. `external`: a captured call becomes a
// node of the graph that records or waits for the event when it runs.
CUresult record_event(const std::shared_ptr<Event>& event, const std::shared_ptr<Stream>& stream, bool external);
CUresult wait_for_event(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event, bool external);

// Legacy-stream conflict: `stream` is the legacy stream while a blocking stream of its context is capturing.
// CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (capture invalidated) or CUDA_SUCCESS.
CUresult check_implicit_capture(const Stream& stream);

// A capture that nobody can end any more (its origin or context is going): its streams leave it, nothing comes of it.
void abandon_capture(const std::shared_ptr<Capture>& capture);

// Captured halves of the functions above.
CUresult capture_work(const std::shared_ptr<Stream>& stream, const Work& work);
CUresult capture_record(const std::shared_ptr<Event>& event, const std::shared_ptr<Stream>& stream, bool external);
CUresult capture_wait(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event, bool external);

}  // namespace hostcuda

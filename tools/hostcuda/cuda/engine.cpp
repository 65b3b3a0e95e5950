// SPDX-License-Identifier: MIT
// The engine that runs streams: ordering, workers, starvation, host waits, exit and fork.
#include "tools/hostcuda/cuda/engine.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tools/hostcuda/cuda/memory.h"
#include "tools/hostcuda/cuda/running.h"
#include "tools/hostcuda/cuda/settings.h"
#include "tools/hostcuda/cuda/tsan.h"
#include "tools/hostcuda/simt/executor.h"

namespace hostcuda {
namespace {

// A starved stream goes on without a host that waits or asks when nothing was enqueued for this long (a program that
// watches memory). Long, so that a busy machine does not let it go while the program is still enqueuing.
constexpr std::chrono::milliseconds kQuiet{1000};

constexpr std::chrono::seconds kExitPatience{10};

thread_local Running running_here{nullptr, -1, nullptr};

}  // namespace

HOSTCUDA_NO_TSAN void set_running(const Running& running) {
  running_here = running;
}
HOSTCUDA_NO_TSAN Running running_now() {
  return running_here;
}

HOSTCUDA_NO_TSAN bool Peers::contain(uint64_t context_id) const {
  for (const auto& id : ids_) {
    if (id.load(std::memory_order_relaxed) == context_id) return true;
  }
  return false;
}

bool Peers::add(uint64_t context_id) {
  if (contain(context_id)) return false;
  for (auto& id : ids_) {
    uint64_t none = 0;
    if (id.compare_exchange_strong(none, context_id)) return true;
  }
  return false;
}

bool Peers::remove(uint64_t context_id) {
  for (auto& id : ids_) {
    uint64_t expected = context_id;
    if (id.compare_exchange_strong(expected, 0)) return true;
  }
  return false;
}

void* HandlePool::take() {
  if (free_.empty()) return std::malloc(64);
  void* handle = free_.back();
  free_.pop_back();
  return handle;
}

void HandlePool::give(void* handle) {
  free_.push_back(handle);
}

// Registered with atexit by the first cuInit, so it runs before the destructors of anything loaded by then.
void stop_at_exit() {
  Engine::get().drain_at_exit();
}

Engine& Engine::get() {
  static Engine* const instance = new Engine;
  return *instance;
}

std::shared_ptr<Stream> Engine::create_stream(const std::shared_ptr<Context>& context, unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->id = ++last_stream_id_;
  stream->index = next_stream_index_++;
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  stream->fiber = tsan::create_fiber();
  context->streams.push_back(stream);
  all_streams_.push_back(stream);
  return stream;
}

std::shared_ptr<Context> Engine::create_context(int device, unsigned flags, CUcontext handle) {
  auto context = std::make_shared<Context>();
  context->handle = handle;
  context->id = ++last_context_id_;
  context->device = device;
  context->flags = flags;
  context->legacy = create_stream(context, CU_STREAM_DEFAULT, 0);
  context->legacy->is_legacy = true;
  contexts[handle] = context;
  return context;
}

void Engine::destroy_context(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Context>& context) {
  wait_context(lock, context);
  std::vector<std::shared_ptr<Capture>> open = captures;
  for (const auto& capture : open) {
    if (capture->origin->context == context) abandon_capture(capture);
  }
  context->destroyed = true;
  contexts.erase(context->handle);
  for (const auto& stream : context->streams) {
    if (stream->handle != nullptr && streams.erase(stream->handle) != 0) handles.give(stream->handle);
    stream->destroyed = true;
    stream->wake.notify_one();
  }
  for (auto it = events.begin(); it != events.end();) {
    if (it->second->context == context) {
      handles.give(it->first);
      it = events.erase(it);
    } else {
      ++it;
    }
  }
  context->streams.clear();
  context->per_thread.clear();
  context->legacy = nullptr;
  pump();
  release_context(context->id);
  lock.unlock();  // recorded bodies are destroyed without the lock
  open.clear();
  lock.lock();
}

bool Engine::ready(const Operation& operation) const {
  for (const Dependency& d : operation.after) {
    if (d.record != nullptr ? !d.record->done : d.stream->completed < d.sequence) return false;
  }
  return true;
}

uint64_t Engine::append(const std::shared_ptr<Stream>& stream, std::unique_ptr<Operation> operation) {
  Context& context = *stream->context;
  // Legacy rules: the legacy stream comes after all that blocking streams hold, and they come after it. A stream whose
  // work is done already still matters to TSan, which must learn the order.
  const auto order_after = [&operation](const std::shared_ptr<Stream>& other) {
    if (tsan::kActive ? other->enqueued != 0 : !other->idle()) {
      operation->after.push_back({other, other->enqueued, nullptr});
    }
  };
  if (stream->is_legacy) {
    for (const auto& other : all_streams_) {  // destroyed ones that still work included
      if (other->context == stream->context && other != stream && other->blocking()) order_after(other);
    }
  } else if (stream->blocking() && context.legacy != nullptr) {
    order_after(context.legacy);
  }
  const bool starved = starved_stream() == stream->index;
  if (operation->work.run != nullptr || starved) ensure_worker(stream);
  tsan::release(operation.get());
  stream->queue.push_back(std::move(operation));
  last_append_ = Clock::now();
  asked_ = false;
  const uint64_t sequence = ++stream->enqueued;
  if (starved) stream->wake.notify_one();
  pump();
  return sequence;
}

void Engine::ensure_worker(const std::shared_ptr<Stream>& stream) {
  if (stream->has_worker) return;
  stream->has_worker = true;
  std::thread([this, stream] { work(stream); }).detach();
}

bool Engine::starved_may_run() const {
  return bodies_running_ == 0 && (hosts_waiting_ > 0 || asked_ || Clock::now() - last_append_ >= kQuiet);
}

void Engine::pump() {
  if (exiting) return;
  const int starved_index = starved_stream();
  for (bool again = true; again;) {
    again = false;
    std::shared_ptr<Stream> starved;
    for (size_t i = 0; i < all_streams_.size(); ++i) {
      const std::shared_ptr<Stream>& stream = all_streams_[i];
      if (stream->running) continue;
      if (stream->queue.empty()) {
        if (stream->destroyed && !stream->has_worker) {
          retire(std::shared_ptr<Stream>(stream));
          --i;
        }
        continue;
      }
      if (!ready(*stream->queue.front())) continue;
      if (stream->index == starved_index) {
        starved = stream;
        continue;
      }
      const bool inline_done = stream->queue.front()->work.run == nullptr;
      start(std::shared_ptr<Stream>(stream));
      again = again || inline_done;
    }
    if (!again && starved != nullptr && starved_may_run()) {
      again = starved->queue.front()->work.run == nullptr;
      start(starved);
    }
  }
}

void Engine::start(const std::shared_ptr<Stream>& stream) {
  if (stream->queue.front()->work.run == nullptr) {
    execute(*stream, *stream->queue.front());
    complete_head(*stream);
    return;
  }
  stream->running = true;
  ++bodies_running_;
  stream->wake.notify_one();
}

void Engine::complete_head(Stream& stream) {
  const std::unique_ptr<Operation> operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  ++stream.completed;
  if (operation->record != nullptr) {
    operation->record->when = Clock::now();
    operation->record->done = true;
  }
  if (hosts_waiting_ > 0) done_.notify_all();
}

// Runs an operation's body as the stream. Bodies are skipped in a context whose state is broken.
void Engine::execute(Stream& stream, Operation& operation) {
  const bool broken = stream.context->sticky.load(std::memory_order_relaxed) != CUDA_SUCCESS;
  std::vector<void*> acquires;
  void* releases[2] = {&stream.tag, nullptr};
  size_t release_count = 1;
  if (tsan::kActive) {
    acquires.push_back(&operation);
    acquires.push_back(&stream.worker_tag);
    for (const Dependency& d : operation.after) {
      acquires.push_back(d.record != nullptr ? static_cast<void*>(&d.record->tag) : &d.stream->tag);
    }
    if (stream.is_legacy) acquires.push_back(&stream.context->retired_tag);
    if (operation.record != nullptr) releases[release_count++] = &operation.record->tag;
  }
  const Running before = running_now();
  if (operation.work.run != nullptr) {
    set_running({operation.work.name, stream.context->device, &stream.context->sticky, &stream.context->peers});
  }
  tsan::run_on_fiber(stream.fiber, broken ? nullptr : operation.work.run, operation.work.destroy, operation.work.arg,
                     acquires.data(), acquires.size(), releases, release_count);
  set_running(before);
}

// A stream's worker thread: runs the heads that pump() hands it; ends when the stream is destroyed and empty.
void Engine::work(const std::shared_ptr<Stream>& stream) {
  tsan::release(&stream->worker_tag);
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    while (!stream->running) {
      if (stream->destroyed && stream->queue.empty()) {
        stream->has_worker = false;
        retire(stream);
        return;
      }
      if (starved_stream() == stream->index && !stream->queue.empty()) {
        stream->wake.wait_for(lock, kQuiet / 4);
        pump();
      } else {
        stream->wake.wait(lock);
      }
    }
    if (exiting) {  // handed over, not begun: never will be
      stream->running = false;
      --bodies_running_;
      done_.notify_all();
      for (;;) stream->wake.wait(lock);
    }
    Operation& operation = *stream->queue.front();
    lock.unlock();
    execute(*stream, operation);
    lock.lock();
    stream->running = false;
    --bodies_running_;
    complete_head(*stream);
    if (exiting) done_.notify_all();
    pump();
  }
}

// Drops a destroyed, drained stream. Its worker, if it had one, is the caller or has gone.
void Engine::retire(const std::shared_ptr<Stream>& stream) {
  tsan::acquire(&stream->tag);
  tsan::release(&stream->context->retired_tag);
  simt_forget(stream->fiber);
  tsan::destroy_fiber(stream->fiber);
  stream->fiber = nullptr;
  for (size_t i = 0; i < all_streams_.size(); ++i) {
    if (all_streams_[i] == stream) {
      all_streams_.erase(all_streams_.begin() + static_cast<ptrdiff_t>(i));
      break;
    }
  }
}

void Engine::host_asks() {
  asked_ = true;
  pump();
}

void Engine::wait_stream(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Stream>& stream, uint64_t sequence) {
  ++hosts_waiting_;
  pump();
  while (stream->completed < sequence && !exiting) done_.wait(lock);
  --hosts_waiting_;
  tsan::acquire(&stream->tag);
}

void Engine::wait_event(std::unique_lock<std::mutex>& lock, const std::shared_ptr<EventRecord>& record) {
  ++hosts_waiting_;
  pump();
  while (!record->done && !exiting) done_.wait(lock);
  --hosts_waiting_;
  tsan::acquire(&record->tag);
}

void Engine::wait_context(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Context>& context) {
  std::vector<std::pair<std::shared_ptr<Stream>, uint64_t>> tails;
  for (const auto& stream : all_streams_) {
    if (stream->context == context) tails.emplace_back(stream, stream->enqueued);
  }
  for (const auto& [stream, sequence] : tails) wait_stream(lock, stream, sequence);
  tsan::acquire(&context->retired_tag);
}

bool Engine::blocking_work_pending(const Context& context) const {
  for (const auto& stream : all_streams_) {
    if (stream->context.get() == &context && stream->blocking() && !stream->idle()) return true;
  }
  return false;
}

// Nothing new starts from here on. Bodies that run are waited for, since what they use is about to be destroyed; one
// that never ends (a host function that waits for the exiting thread) may not hold the exit for ever.
void Engine::drain_at_exit() {
  if (running_now().name != nullptr) return;  // exit() called from inside an operation
  std::unique_lock<std::mutex> lock(mutex);
  exiting = true;
  const Clock::time_point deadline = Clock::now() + kExitPatience;
  while (bodies_running_ > 0 && done_.wait_until(lock, deadline) != std::cv_status::timeout) {
  }
  done_.notify_all();
}

CUresult enqueue_work(const std::shared_ptr<Stream>& stream, const Work& work) {
  if (stream->capture != nullptr) return capture_work(stream, work);
  if (const CUresult implicit = check_implicit_capture(*stream); implicit != CUDA_SUCCESS) return implicit;
  auto operation = std::make_unique<Operation>();
  operation->work = work;
  Engine::get().append(stream, std::move(operation));
  return CUDA_SUCCESS;
}

CUresult record_event(const std::shared_ptr<Event>& event, const std::shared_ptr<Stream>& stream, bool external) {
  if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) return capture_record(event, stream, external);
  if (external) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult implicit = check_implicit_capture(*stream); implicit != CUDA_SUCCESS) return implicit;
  event->last = std::make_shared<EventRecord>();
  event->capture = nullptr;
  auto operation = std::make_unique<Operation>();
  operation->record = event->last;
  Engine::get().append(stream, std::move(operation));
  return CUDA_SUCCESS;
}

CUresult wait_for_event(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Event>& event, bool external) {
  if (external && stream->capture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture != nullptr || event->capture != nullptr) return capture_wait(stream, event, external);
  if (const CUresult implicit = check_implicit_capture(*stream); implicit != CUDA_SUCCESS) return implicit;
  if (event->last == nullptr) return CUDA_SUCCESS;  // never recorded: nothing to wait for
  auto operation = std::make_unique<Operation>();
  operation->after.push_back({nullptr, 0, event->last});
  Engine::get().append(stream, std::move(operation));
  return CUDA_SUCCESS;
}

uint64_t thread_number() {
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t number = ++last;
  return number;
}

}  // namespace hostcuda

// SPDX-License-Identifier: MIT
// The engine's own threads: started at the first large product, parked in between, never joined.
#include "pool.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace hostcuda::gemm {
namespace {

struct Job {
  const std::function<void(int64_t)>* task;
  int64_t count;
  std::atomic<int64_t> next{0};
  int working = 0;  // pool threads inside run(); guarded by the pool's mutex

  void run() {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) (*task)(i);
  }
};

class Pool {
 public:
  std::mutex owner;  // held by the caller whose job is being run

  void run(Job* job, int threads) {
    {
      const std::lock_guard lock(mutex_);
      for (; started_ < threads - 1; ++started_) std::thread(&Pool::serve, this).detach();
      job_ = job;
      wanted_ = threads - 1;
    }
    work_.notify_all();
    job->run();
    std::unique_lock lock(mutex_);
    job_ = nullptr;  // nobody joins from here on
    done_.wait(lock, [&] { return job->working == 0; });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [&] { return job_ != nullptr && wanted_ > 0; });
      Job* job = job_;
      --wanted_;
      ++job->working;
      lock.unlock();
      job->run();
      lock.lock();
      if (--job->working == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  Job* job_ = nullptr;
  int wanted_ = 0;
  int started_ = 0;
};

// Never destroyed: its threads outlive static destructors. A fork's child leaves the parent's pool (whose threads and
// lock states it does not have) and makes its own.
std::atomic<Pool*> pool{nullptr};

Pool* current_pool() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr); }); });
  Pool* found = pool.load();
  if (found != nullptr) return found;
  Pool* made = new Pool;
  if (pool.compare_exchange_strong(found, made)) return made;
  delete made;
  return found;
}

}  // namespace

void for_each_task(int64_t count, int threads, const std::function<void(int64_t)>& task) {
  if (threads > 1 && count > 1) {
    Pool* shared = current_pool();
    const std::unique_lock lock(shared->owner, std::try_to_lock);
    if (lock.owns_lock()) {
      Job job{&task, count};
      shared->run(&job, static_cast<int>(threads < count ? threads : count));
      return;
    }
  }
  for (int64_t i = 0; i < count; ++i) task(i);
}

}  // namespace hostcuda::gemm

// SPDX-License-Identifier: MIT
// What the guarded process has once: its configuration and its ring.
#include "shim/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <string>

namespace sdcguard {
namespace {

std::atomic<Process*> made{nullptr};
pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
// Counters of threads that have no slot in a ring.
ThreadCounters counters_without_ring;

void print_line(const std::string& line) {
  const std::string text = line + "\n";
  // A write that fails has nowhere to be reported.
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) errno = 0;
}

Process* make_process() noexcept {
  auto* process = new (std::nothrow) Process;
  if (process == nullptr) return nullptr;
  ConfigResult loaded = load_config();
  process->config = loaded.config;
  if (!loaded.ok()) {
    print_line(loaded.error + "; this program runs unguarded");
    process->config.mode = Mode::kOff;
  }
  if (process->config.mode != Mode::kOff) process->ring.open(process->config);
  return process;
}

}  // namespace

ThreadCounters* Process::counters_of_thread(uint32_t number, bool* shared) const noexcept {
  ThreadCounters* slot = ring.thread_slot(number);
  *shared = slot == nullptr || number + 1 >= kMaxThreads;
  return slot != nullptr ? slot : &counters_without_ring;
}

Mode Process::mode() const noexcept {
  const uint32_t forced = ring.control();
  return forced == 0 || forced > kModeCount ? config.mode : static_cast<Mode>(forced - 1);
}

const Process* process_if_made() noexcept {
  return made.load(std::memory_order_acquire);
}

const Process& the_process() noexcept {
  // Pairs with the release store below.
  if (Process* process = made.load(std::memory_order_acquire)) return *process;
  const int saved_errno = errno;
  pthread_mutex_lock(&making);
  Process* process = made.load(std::memory_order_acquire);
  if (process == nullptr) {
    process = make_process();
    if (process == nullptr) {
      // Out of memory at the first call: stay off for good, in static storage.
      alignas(Process) static unsigned char storage[sizeof(Process)];
      process = new (storage) Process;
      process->config.mode = Mode::kOff;
    }
    made.store(process, std::memory_order_release);
  }
  pthread_mutex_unlock(&making);
  errno = saved_errno;
  return *process;
}

void process_forget_after_fork() noexcept {
  made.store(nullptr, std::memory_order_release);
  making = PTHREAD_MUTEX_INITIALIZER;
}

void note_library(const char* name, size_t version) noexcept {
  the_process().ring.add_library(name, version);
}

}  // namespace sdcguard

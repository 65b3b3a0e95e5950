// SPDX-License-Identifier: MIT
// The exported cu... names: each counts, may be made to fail, calls its body in hostcuda::driver, and is traced. Also
// hostcuda_driver, and the private functions that read counts and traces.
#include "tools/hostcuda/cuda/driver_api.h"
//
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tools/hostcuda/cuda/engine.h"
#include "tools/hostcuda/cuda/running.h"
#include "tools/hostcuda/cuda/settings.h"
#include "tools/hostcuda/cuda/stubs.h"

namespace hostcuda {
namespace {

enum CallIndex : size_t {
#define HOSTCUDA_CALL(name, parameters, arguments) kCall_##name,
#define HOSTCUDA_CALL_PTSZ(name, parameters, arguments)
#define HOSTCUDA_CALL_PTDS(name, parameters, arguments)
#include "tools/hostcuda/cuda/driver_calls.def"
#undef HOSTCUDA_CALL
#undef HOSTCUDA_CALL_PTSZ
#undef HOSTCUDA_CALL_PTDS
  kCallCount
};

constexpr const char* kCallNames[kCallCount] = {
#define HOSTCUDA_CALL(name, parameters, arguments) #name,
#define HOSTCUDA_CALL_PTSZ(name, parameters, arguments)
#define HOSTCUDA_CALL_PTDS(name, parameters, arguments)
#include "tools/hostcuda/cuda/driver_calls.def"
#undef HOSTCUDA_CALL
#undef HOSTCUDA_CALL_PTSZ
#undef HOSTCUDA_CALL_PTDS
};

constexpr size_t kTraceKept = 65536;

std::atomic<uint64_t> counts[kCallCount];

struct ThreadTrace {
  bool on = false;
  size_t total = 0;
  std::vector<HostcudaCall> calls;
};

ThreadTrace& thread_trace() {
  thread_local ThreadTrace trace;
  return trace;
}

// HOSTCUDA_TRACE's file, null if none. Opened once, never closed: lines are flushed one by one.
std::FILE* trace_file() {
  static std::FILE* const file = [] {
    const std::string& path = start_settings().trace_file;
    return path.empty() ? nullptr : std::fopen(path.c_str(), "w");
  }();
  return file;
}

void write_trace(const char* origin, CallIndex index, CUstream stream, CUresult result) {
  std::FILE* file = trace_file();
  if (file == nullptr) return;
  std::fprintf(file, "%s\t%" PRIu64 "\t%s\t0x%" PRIxPTR "\t%d\n", origin, thread_number(), kCallNames[index],
               reinterpret_cast<uintptr_t>(stream), static_cast<int>(result));
  std::fflush(file);
}

// HOSTCUDA_SHIM_LOG's file, opened by the first call that belongs in it and never closed. A line is one write,
// appended: lines of several threads and processes do not mix.
void write_shim_log(uint64_t position, const char* name, CUresult result) {
  if (position == 0 || start_settings().shim_log.empty()) return;
  static std::FILE* const file = std::fopen(start_settings().shim_log.c_str(), "a");
  if (file == nullptr) return;
  std::fprintf(file, "%" PRIu64 "\t%" PRIu64 "\t%s\t%d\n", position, thread_number(), name, static_cast<int>(result));
  std::fflush(file);
}

// The first stream among a call's arguments, 0 if there is none.
constexpr CUstream stream_in() {
  return nullptr;
}
template <class... Rest>
CUstream stream_in(CUstream stream, Rest...) {
  return stream;
}
template <class First, class... Rest>
CUstream stream_in(First, Rest... rest) {
  return stream_in(rest...);
}

// Around every exported call. A body that runs for the device may not call the driver, as CUDA has it for host
// functions; such a call is counted but belongs to no thread's trace.
template <class Body>
CUresult call(CallIndex index, CUstream stream, const void* caller, Body&& body) {
  counts[index].fetch_add(1, std::memory_order_relaxed);
  if (running_now().name != nullptr) return CUDA_ERROR_NOT_PERMITTED;
  const PlannedFailure planned = planned_failure(kCallNames[index], caller);
  if (planned.hang_ms != 0) std::this_thread::sleep_for(std::chrono::milliseconds(planned.hang_ms));
  CUresult result = planned.error;
  if (result == CUDA_SUCCESS) {
    result = body();
  } else if (planned.late) {
    body();
  }
  write_shim_log(planned.position, kCallNames[index], result);
  ThreadTrace& trace = thread_trace();
  if (trace.on) {
    ++trace.total;
    if (trace.calls.size() < kTraceKept) trace.calls.push_back({kCallNames[index], stream, result});
  }
  write_trace("driver", index, stream, result);
  return result;
}

// The uncounted twins behind hostcuda_driver.
namespace runtime {
#define HOSTCUDA_CALL(name, parameters, arguments)                     \
  CUresult name parameters {                                           \
    const CUresult result = driver::name arguments;                    \
    write_trace("runtime", kCall_##name, stream_in arguments, result); \
    return result;                                                     \
  }
#define HOSTCUDA_CALL_PTSZ(name, parameters, arguments)
#define HOSTCUDA_CALL_PTDS(name, parameters, arguments)
#include "tools/hostcuda/cuda/driver_calls.def"
#undef HOSTCUDA_CALL
#undef HOSTCUDA_CALL_PTSZ
#undef HOSTCUDA_CALL_PTDS
}  // namespace runtime

}  // namespace
}  // namespace hostcuda

#define HOSTCUDA_EXPORT extern "C" __attribute__((visibility("default")))
#define HOSTCUDA_CALL(name, parameters, arguments)                                                            \
  HOSTCUDA_EXPORT CUresult name parameters {                                                                  \
    return hostcuda::call(hostcuda::kCall_##name, hostcuda::stream_in arguments, __builtin_return_address(0), \
                          [&]() -> CUresult { return hostcuda::driver::name arguments; });                    \
  }
#define HOSTCUDA_CALL_PTSZ(name, parameters, arguments)                                                       \
  HOSTCUDA_EXPORT CUresult name##_ptsz parameters {                                                           \
    const hostcuda::PerThreadDefault scope;                                                                   \
    return hostcuda::call(hostcuda::kCall_##name, hostcuda::stream_in arguments, __builtin_return_address(0), \
                          [&]() -> CUresult { return hostcuda::driver::name arguments; });                    \
  }
#define HOSTCUDA_CALL_PTDS(name, parameters, arguments)                                                       \
  HOSTCUDA_EXPORT CUresult name##_ptds parameters {                                                           \
    const hostcuda::PerThreadDefault scope;                                                                   \
    return hostcuda::call(hostcuda::kCall_##name, hostcuda::stream_in arguments, __builtin_return_address(0), \
                          [&]() -> CUresult { return hostcuda::driver::name arguments; });                    \
  }
#include "tools/hostcuda/cuda/driver_calls.def"
#undef HOSTCUDA_CALL
#undef HOSTCUDA_CALL_PTSZ
#undef HOSTCUDA_CALL_PTDS

namespace hostcuda {
namespace {

struct Entry {
  const char* name;
  void* exported;
  void* uncounted;  // null for the per-thread twins
};

const Entry kEntries[] = {
#define HOSTCUDA_CALL(name, parameters, arguments) \
  {#name, reinterpret_cast<void*>(&::name), reinterpret_cast<void*>(&runtime::name)},
#define HOSTCUDA_CALL_PTSZ(name, parameters, arguments) \
  {#name "_ptsz", reinterpret_cast<void*>(&::name##_ptsz), nullptr},
#define HOSTCUDA_CALL_PTDS(name, parameters, arguments) \
  {#name "_ptds", reinterpret_cast<void*>(&::name##_ptds), nullptr},
#include "tools/hostcuda/cuda/driver_calls.def"
#undef HOSTCUDA_CALL
#undef HOSTCUDA_CALL_PTSZ
#undef HOSTCUDA_CALL_PTDS
};

const Entry* find_entry(const std::string& name) {
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

}  // namespace

int refuse_stub(const char* name, int* said, const void* caller) {
  const char* verbose = std::getenv("HOSTCUDA_VERBOSE");
  if (verbose && verbose[0] && verbose[0] != '0' && !__atomic_exchange_n(said, 1, __ATOMIC_RELAXED)) {
    std::fprintf(stderr, "hostcuda: %s is not part of the host device (CUDA_ERROR_NOT_SUPPORTED)\n", name);
  }
  const PlannedFailure planned = planned_failure(name, caller);
  const CUresult result = planned.error != CUDA_SUCCESS ? planned.error : CUDA_ERROR_NOT_SUPPORTED;
  write_shim_log(planned.position, name, result);
  return result;
}

}  // namespace hostcuda

extern "C" {

void* hostcuda_driver(const char* name) {
  const hostcuda::Entry* entry = name == nullptr ? nullptr : hostcuda::find_entry(name);
  return entry == nullptr ? nullptr : entry->uncounted;
}

uint64_t hostcuda_call_count(const char* name) {
  uint64_t total = 0;
  for (size_t i = 0; i < hostcuda::kCallCount; ++i) {
    if (name == nullptr || std::strcmp(name, hostcuda::kCallNames[i]) == 0) {
      total += hostcuda::counts[i].load(std::memory_order_relaxed);
    }
  }
  return total;
}

void hostcuda_trace_begin(void) {
  hostcuda::ThreadTrace& trace = hostcuda::thread_trace();
  trace.calls.clear();
  trace.total = 0;
  trace.on = true;
}

size_t hostcuda_trace_end(HostcudaCall* calls, size_t capacity) {
  hostcuda::ThreadTrace& trace = hostcuda::thread_trace();
  trace.on = false;
  for (size_t i = 0; i < trace.calls.size() && i < capacity; ++i) calls[i] = trace.calls[i];
  return trace.total;
}

}  // extern "C"

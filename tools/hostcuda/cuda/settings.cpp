// SPDX-License-Identifier: MIT
// The HOSTCUDA_* settings: parsing, the counters behind HOSTCUDA_FAIL and HOSTCUDA_SKIP_WAIT, hostcuda_configure.
#include "tools/hostcuda/cuda/driver_api.h"
//
#include "tools/hostcuda/cuda/settings.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

namespace hostcuda {
namespace {

struct Failure {
  std::string name;
  uint64_t nth;  // 0: every call
  CUresult error;
  uint64_t seen = 0;
};

// Provocations, behind one lock; the atomics in front let an unprovoked process pass without taking it.
struct Provocations {
  std::mutex mutex;
  std::vector<Failure> failures;
  uint64_t skip_wait_nth = 0;
  uint64_t waits_seen = 0;
  std::vector<std::string> skipped_kernels;
  std::atomic<bool> any_failure{false};
  std::atomic<bool> any_skipped_wait{false};
  std::atomic<bool> any_skipped_kernel{false};
  std::atomic<int> starved{-1};
};

bool parse_number(const std::string& text, uint64_t* value) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos) return false;
  *value = std::strtoull(text.c_str(), nullptr, 10);
  return true;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t from = 0;
  while (from <= text.size()) {
    size_t to = text.find(separator, from);
    if (to == std::string::npos) to = text.size();
    if (to > from) parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

bool parse_failures(const std::string& text, std::vector<Failure>* failures) {
  for (const std::string& item : split(text, ',')) {
    const std::vector<std::string> fields = split(item, ':');
    if (fields.size() < 2 || fields.size() > 3) return false;
    Failure failure{fields[0], 0, CUDA_ERROR_UNKNOWN};
    if (fields[1] != "*" && (!parse_number(fields[1], &failure.nth) || failure.nth == 0)) return false;
    uint64_t error = 0;
    if (fields.size() == 3) {
      if (!parse_number(fields[2], &error) || error == 0 || error > 999) return false;
      failure.error = static_cast<CUresult>(error);
    }
    failures->push_back(failure);
  }
  return true;
}

bool apply(Provocations& p, const char* name, const char* text) {
  const std::string value = text == nullptr ? "" : text;
  const std::lock_guard<std::mutex> lock(p.mutex);
  if (std::strcmp(name, "HOSTCUDA_FAIL") == 0) {
    std::vector<Failure> failures;
    if (!parse_failures(value, &failures)) return false;
    p.failures = std::move(failures);
    p.any_failure = !p.failures.empty();
    return true;
  }
  if (std::strcmp(name, "HOSTCUDA_STARVE") == 0) {
    uint64_t index = 0;
    if (!value.empty() && !parse_number(value, &index)) return false;
    p.starved = value.empty() ? -1 : static_cast<int>(index);
    return true;
  }
  if (std::strcmp(name, "HOSTCUDA_SKIP_WAIT") == 0) {
    uint64_t nth = 0;
    if (!value.empty() && (!parse_number(value, &nth) || nth == 0)) return false;
    p.skip_wait_nth = nth;
    p.waits_seen = 0;
    p.any_skipped_wait = nth != 0;
    return true;
  }
  if (std::strcmp(name, "HOSTCUDA_SKIP_KERNEL") == 0) {
    p.skipped_kernels = split(value, ',');
    p.any_skipped_kernel = !p.skipped_kernels.empty();
    return true;
  }
  return false;
}

[[noreturn]] void refuse(const char* name, const char* value, const char* allowed) {
  std::fprintf(stderr, "hostcuda: %s=%s: allowed is %s\n", name, value, allowed);
  std::_Exit(2);
}

Provocations& provocations() {
  static Provocations* const instance = [] {
    auto* p = new Provocations;
    const char* const names[][2] = {{"HOSTCUDA_FAIL", "cuName:nth[:error],..."},
                                    {"HOSTCUDA_STARVE", "a stream's index"},
                                    {"HOSTCUDA_SKIP_WAIT", "a number from 1"},
                                    {"HOSTCUDA_SKIP_KERNEL", "kernel names"}};
    for (const auto& name : names) {
      const char* value = std::getenv(name[0]);
      if (value != nullptr && !apply(*p, name[0], value)) refuse(name[0], value, name[1]);
    }
    return p;
  }();
  return *instance;
}

int capability_of(const std::string& order) {
  // The part of an order's name before any chain suffix ("h100/split4") names the architecture.
  const auto starts = [&order](const char* prefix) { return order.rfind(prefix, 0) == 0; };
  if (starts("v100")) return 70;
  if (starts("a100")) return 80;
  if (starts("ada")) return 89;
  if (starts("b200")) return 100;
  return 90;
}

}  // namespace

bool parse_bytes(const char* text, size_t* bytes) {
  std::string digits = text;
  unsigned shift = 0;
  if (!digits.empty()) {
    const char unit = digits.back();
    shift = unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
    if (shift != 0) digits.pop_back();
  }
  uint64_t value = 0;
  if (!parse_number(digits, &value) || value == 0 || value > (uint64_t{1} << 42 >> shift)) return false;
  *bytes = value << shift;
  return true;
}

const StartSettings& start_settings() {
  static const StartSettings* const instance = [] {
    auto* s = new StartSettings{2, "h100", 90, size_t{16} << 30, false, ""};
    if (const char* text = std::getenv("HOSTCUDA_DEVICES")) {
      uint64_t n = 0;
      if (!parse_number(text, &n) || n < 1 || n > kMaxDevices) refuse("HOSTCUDA_DEVICES", text, "1 to 16");
      s->devices = static_cast<int>(n);
    }
    const char* order = std::getenv("HOSTCUDA_ORDER");
    if (order != nullptr && *order != '\0') s->order = order;
    s->capability = capability_of(s->order);
    if (const char* text = std::getenv("HOSTCUDA_MEMORY")) {
      if (!parse_bytes(text, &s->device_bytes)) refuse("HOSTCUDA_MEMORY", text, "bytes, with K, M or G, up to 4096G");
    }
    const char* sticky = std::getenv("HOSTCUDA_STICKY");
    s->sticky = sticky != nullptr && std::strcmp(sticky, "1") == 0;
    const char* trace = std::getenv("HOSTCUDA_TRACE");
    if (trace != nullptr) s->trace_file = trace;
    return s;
  }();
  return *instance;
}

CUresult planned_failure(const char* name) {
  Provocations& p = provocations();
  if (!p.any_failure.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  const std::lock_guard<std::mutex> lock(p.mutex);
  CUresult result = CUDA_SUCCESS;
  for (Failure& failure : p.failures) {
    if (failure.name != name) continue;
    ++failure.seen;
    if (failure.nth == 0 || failure.seen == failure.nth) result = failure.error;
  }
  return result;
}

int starved_stream() {
  return provocations().starved.load(std::memory_order_relaxed);
}

bool skip_this_wait() {
  Provocations& p = provocations();
  if (!p.any_skipped_wait.load(std::memory_order_relaxed)) return false;
  const std::lock_guard<std::mutex> lock(p.mutex);
  return ++p.waits_seen == p.skip_wait_nth;
}

bool skip_kernel(const char* kernel) {
  Provocations& p = provocations();
  if (!p.any_skipped_kernel.load(std::memory_order_relaxed)) return false;
  const std::lock_guard<std::mutex> lock(p.mutex);
  for (const std::string& name : p.skipped_kernels) {
    if (name == kernel) return true;
  }
  return false;
}

}  // namespace hostcuda

extern "C" int hostcuda_configure(const char* name, const char* value) {
  return hostcuda::apply(hostcuda::provocations(), name, value) ? 0 : -1;
}

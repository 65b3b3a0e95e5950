// SPDX-License-Identifier: MIT
// The HOSTCUDA_* settings: parsing, the counters behind HOSTCUDA_FAIL and HOSTCUDA_SKIP_WAIT, hostcuda_configure.
#include "tools/hostcuda/cuda/driver_api.h"
//
#include "tools/hostcuda/cuda/settings.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

namespace hostcuda {
namespace {

// One item of HOSTCUDA_FAIL.
struct Failure {
  bool shim_only = false;
  std::string name;    // "*": any function
  uint64_t first = 1;  // calls first to last are hit
  uint64_t last = UINT64_MAX;
  PlannedFailure plan;
  uint64_t seen = 0;
};

// Provocations, behind one lock; the atomics in front let an unprovoked process pass without taking it.
struct Provocations {
  std::mutex mutex;
  std::vector<Failure> failures;
  uint64_t skip_wait_nth = 0;
  uint64_t waits_seen = 0;
  std::vector<std::string> skipped_kernels;
  uint64_t shim_calls = 0;
  std::atomic<bool> any_failure{false};
  std::atomic<bool> shim_watched{false};
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

// [shim/]name:nth[:hangMS][:late][:error], [shim/]name:nth:ok
bool parse_failure(const std::string& item, Failure* failure) {
  constexpr const char kShim[] = "shim/";
  constexpr const char kHang[] = "hang";
  constexpr uint64_t kLongestHang = 60000;
  const std::vector<std::string> fields = split(item, ':');
  if (fields.size() < 2) return false;
  failure->shim_only = fields[0].rfind(kShim, 0) == 0;
  failure->name = failure->shim_only ? fields[0].substr(sizeof kShim - 1) : fields[0];
  std::string nth = fields[1];
  if (nth != "*") {
    const bool onwards = nth.back() == '+';
    if (onwards) nth.pop_back();
    if (!parse_number(nth, &failure->first) || failure->first == 0) return false;
    if (!onwards) failure->last = failure->first;
  }
  size_t next = 2;
  uint64_t hang = 0;
  if (next < fields.size() && fields[next].rfind(kHang, 0) == 0) {
    if (!parse_number(fields[next].substr(sizeof kHang - 1), &hang) || hang > kLongestHang) return false;
    failure->plan.hang_ms = static_cast<unsigned>(hang);
    ++next;
  }
  if (next < fields.size() && fields[next] == "late") {
    failure->plan.late = true;
    ++next;
  }
  // A call that only hangs goes ahead afterwards.
  const bool only_hangs = hang != 0 && !failure->plan.late && next == fields.size();
  failure->plan.error = only_hangs ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
  if (next == 2 && next + 1 == fields.size() && fields[next] == "ok") {
    failure->plan.error = CUDA_SUCCESS;
    ++next;
  } else if (next < fields.size()) {
    uint64_t error = 0;
    if (!parse_number(fields[next], &error) || error == 0 || error > 999) return false;
    failure->plan.error = static_cast<CUresult>(error);
    ++next;
  }
  return next == fields.size();
}

bool parse_failures(const std::string& text, std::vector<Failure>* failures) {
  for (const std::string& item : split(text, ',')) {
    Failure failure;
    if (!parse_failure(item, &failure)) return false;
    failures->push_back(failure);
  }
  return true;
}

// True if the code at `address` is the shim's. Lock-free, so it may be asked from inside the loader.
bool in_shim(const void* address) {
  constexpr const char kShim[] = "libsdcguard.so";
  dl_find_object object{};
  if (_dl_find_object(const_cast<void*>(address), &object) != 0) return false;
  const char* path = object.dlfo_link_map->l_name;
  const char* slash = std::strrchr(path, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : path, kShim, sizeof kShim - 1) == 0;
}

bool apply(Provocations& p, const char* name, const char* text) {
  const std::string value = text == nullptr ? "" : text;
  const std::lock_guard<std::mutex> lock(p.mutex);
  if (std::strcmp(name, "HOSTCUDA_FAIL") == 0) {
    std::vector<Failure> failures;
    if (!parse_failures(value, &failures)) return false;
    p.failures = std::move(failures);
    p.any_failure = !p.failures.empty();
    bool watched = !start_settings().shim_log.empty();
    for (const Failure& failure : p.failures) watched = watched || failure.shim_only;
    p.shim_watched = watched;
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
    p->shim_watched = !start_settings().shim_log.empty();
    const char* const names[][2] = {{"HOSTCUDA_FAIL", "[shim/]cuName:nth[:hangMS][:late][:error|:ok],..."},
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

// The UUID as nvidia-smi writes it: GPU-8-4-4-4-12 in lower-case hexadecimal digits.
std::string uuid_text(int board) {
  unsigned char uuid[16];
  board_uuid(board, uuid);
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid; ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, "%s%02x", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
    text += digits;
  }
  return text;
}

// The board that one item of CUDA_VISIBLE_DEVICES names, -1: none. A UUID may be cut short where it stays unique.
int named_board(const std::string& item, int boards) {
  uint64_t number = 0;
  if (parse_number(item, &number)) return number < static_cast<uint64_t>(boards) ? static_cast<int>(number) : -1;
  int found = -1;
  for (int board = 0; board < boards && item.rfind("GPU-", 0) == 0; ++board) {
    if (uuid_text(board).rfind(item, 0) != 0) continue;
    if (found >= 0) return -1;
    found = board;
  }
  return found;
}

// CUDA_VISIBLE_DEVICES: the boards before the first item that names none; none at all if one is named twice.
std::vector<int> visible_boards(int boards) {
  std::vector<int> visible;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int board = 0; board < boards; ++board) visible.push_back(board);
    return visible;
  }
  const std::string list = text;
  for (size_t from = 0; from <= list.size();) {
    const size_t to = std::min(list.find(',', from), list.size());
    const int board = named_board(list.substr(from, to - from), boards);
    if (board < 0) break;
    if (std::find(visible.begin(), visible.end(), board) != visible.end()) return {};
    visible.push_back(board);
    from = to + 1;
  }
  return visible;
}

}  // namespace

// A version 8 UUID (RFC 9562, vendor-made): the text "hostcuda" with the version and variant bits, then the board.
void board_uuid(int board, unsigned char uuid[16]) {
  const unsigned char bytes[16] = {'h',  'o', 's', 't', 'c', 'u', 0x80, 'd',
                                   0x80, 'a', 0,   0,   0,   0,   0,    static_cast<unsigned char>(board)};
  std::memcpy(uuid, bytes, sizeof bytes);
}

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
    auto* s = new StartSettings{2, {}, "h100", 90, size_t{16} << 30, false, "", "", ""};
    if (const char* text = std::getenv("HOSTCUDA_DEVICES")) {
      uint64_t n = 0;
      if (!parse_number(text, &n) || n < 1 || n > kMaxDevices) refuse("HOSTCUDA_DEVICES", text, "1 to 16");
      s->devices = static_cast<int>(n);
    }
    s->boards = visible_boards(s->devices);
    s->devices = static_cast<int>(s->boards.size());
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
    const char* shim_log = std::getenv("HOSTCUDA_SHIM_LOG");
    if (shim_log != nullptr) s->shim_log = shim_log;
    const char* kernels = std::getenv("HOSTCUDA_KERNELS");
    if (kernels != nullptr) s->kernels = kernels;
    return s;
  }();
  return *instance;
}

PlannedFailure planned_failure(const char* name, const void* caller) {
  Provocations& p = provocations();
  const bool watched = p.shim_watched.load(std::memory_order_relaxed);
  if (!watched && !p.any_failure.load(std::memory_order_relaxed)) return {};
  const bool by_shim = watched && in_shim(caller);
  const std::lock_guard<std::mutex> lock(p.mutex);
  PlannedFailure planned;
  for (Failure& failure : p.failures) {
    if ((failure.shim_only && !by_shim) || (failure.name != "*" && failure.name != name)) continue;
    ++failure.seen;
    if (failure.seen >= failure.first && failure.seen <= failure.last) planned = failure.plan;
  }
  if (by_shim) planned.position = ++p.shim_calls;
  return planned;
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

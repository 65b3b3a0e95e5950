// SPDX-License-Identifier: MIT
// What the shim costs the calling thread: nanoseconds for a call that is not sampled, microseconds and driver calls for
// one that is, beside the bare call, over stand-in libraries that do nothing.
//
//   bench_overhead [--json] [--pairs N]
//
// Each pair times the bare function and the intercepted one back to back, so that both see the same machine; the figure
// is the median of the differences, with the 95% interval of that median from order statistics (ranks N/2 +- 0.98 sqrt
// N). The parent starts itself three times under the preload: rate so small that no call is sampled, every call sampled
// (clean path), and every call sampled with the product in place (beta not 0).
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

extern char** environ;
extern "C" {
int bare_gemm_ex(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                 void*, int, int, int, int);
int cublasGemmEx(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                 void*, int, int, int, int);
int cublasCreate_v2(void**);
uint64_t standin_count(int);
const char* standin_name(int);
}

namespace {

using nlohmann::json;

// What a sampled call may never do between entry and exit (DESIGN section 9).
constexpr const char* kBanned[] = {"cuStreamSynchronize", "cuMemAlloc_v2",       "cuMemFree_v2",
                                   "cuMemGetInfo_v2",     "cuMemsetD32Async",    "cuMemsetD8Async",
                                   "cuLibraryLoadData",   "cuModuleLoadData",    "cuKernelGetFunction",
                                   "cuModuleGetFunction", "cuMemHostRegister_v2"};

uint64_t now_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

struct Call {
  void* handle = nullptr;
  float alpha = 1.0f, beta = 0.0f;
  // BF16 operands and result, COMPUTE_32F, a transformer's projection; addresses are never read.
  int run(decltype(&cublasGemmEx) gemm) const {
    void* const a = reinterpret_cast<void*>(0x10000000);
    void* const b = reinterpret_cast<void*>(0x20000000);
    void* const c = reinterpret_cast<void*>(0x30000000);
    return gemm(handle, 1, 0, 1024, 1024, 1024, &alpha, a, 14, 1024, b, 14, 1024, &beta, c, 14, 1024, 68, 99);
  }
};

json quantiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto at = [&](double rank) { return values[static_cast<size_t>(std::clamp(rank, 0.0, n - 1))]; };
  return {{"median", at(n / 2)},
          {"low", at(n / 2 - 0.98 * std::sqrt(n))},
          {"high", at(n / 2 + 0.98 * std::sqrt(n))},
          {"p99", at(0.99 * n)}};
}

json measure(uint64_t pairs, float beta) {
  Call call;
  call.beta = beta;
  if (cublasCreate_v2(&call.handle) != 0) return {{"error", "cublasCreate_v2 failed"}};
  // Warm: stream state, scratch, site.
  for (int i = 0; i < 64; ++i) call.run(cublasGemmEx);
  std::vector<uint64_t> before;
  for (int i = 0; standin_name(i) != nullptr; ++i) before.push_back(standin_count(i));
  std::vector<double> differences, bare;
  differences.reserve(pairs);
  bare.reserve(pairs);
  // One timestamp pair brackets kCalls calls, so that the clock's own cost and grain stay small beside them.
  constexpr int kCalls = 16;
  for (uint64_t pair = 0; pair < pairs; pair += kCalls) {
    const uint64_t t0 = now_ns();
    for (int i = 0; i < kCalls; ++i) call.run(bare_gemm_ex);
    const uint64_t t1 = now_ns();
    for (int i = 0; i < kCalls; ++i) call.run(cublasGemmEx);
    const uint64_t t2 = now_ns();
    bare.push_back(static_cast<double>(t1 - t0) / kCalls);
    differences.push_back((static_cast<double>(t2 - t1) - static_cast<double>(t1 - t0)) / kCalls);
  }
  const double guarded_calls = static_cast<double>(differences.size()) * kCalls;
  json driver_calls = json::object();
  double launches = 0, others = 0;
  std::vector<std::string> banned;
  for (int i = 0; standin_name(i) != nullptr; ++i) {
    const double count = static_cast<double>(standin_count(i) - before[static_cast<size_t>(i)]);
    if (count == 0) continue;
    driver_calls[standin_name(i)] = count / guarded_calls;
    (std::strcmp(standin_name(i), "cuLaunchKernel") == 0 ? launches : others) += count / guarded_calls;
    for (const char* name : kBanned) {
      if (std::strcmp(standin_name(i), name) == 0) banned.emplace_back(name);
    }
  }
  return {{"pairs", static_cast<uint64_t>(guarded_calls)},
          {"bare_ns", quantiles(bare)},
          {"over_bare_ns", quantiles(differences)},
          {"driver_calls", driver_calls},
          {"launches", launches},
          {"other_driver_calls", others},
          {"banned_driver_calls", banned}};
}

// Runs this program again as a child with `rate` in force, and reads the JSON that it prints.
json run_child(const std::string& self, const std::string& shim, const std::string& rate, uint64_t pairs, float beta) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.rfind("SDCGUARD_EVERY=", 0) == 0 || text.rfind("SDCGUARD_RATE=", 0) == 0 ||
        text.rfind("LD_PRELOAD=", 0) == 0)
      continue;
    environment.push_back(text);
  }
  environment.push_back("LD_PRELOAD=" + shim);
  environment.push_back("SDCGUARD_RATE=" + rate);
  const std::string ring_dir = "/dev/shm/sdcguard-bench-" + std::to_string(getpid());
  environment.push_back("SDCGUARD_RING_DIR=" + ring_dir);
  std::vector<char*> envp;
  for (std::string& text : environment) envp.push_back(text.data());
  envp.push_back(nullptr);
  std::string pairs_text = std::to_string(pairs), beta_text = std::to_string(beta), self_text = self;
  char child_flag[] = "--child";
  char* argv[] = {self_text.data(), child_flag, pairs_text.data(), beta_text.data(), nullptr};
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return {{"error", "pipe failed"}};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, pipe_ends[0]);
  pid_t pid = 0;
  const int spawned = posix_spawn(&pid, self.c_str(), &actions, nullptr, argv, envp.data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; spawned == 0 && (got = read(pipe_ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(pipe_ends[0]);
  std::error_code ignored;
  std::filesystem::remove_all(ring_dir, ignored);
  int status = 0;
  if (spawned != 0 || waitpid(pid, &status, 0) != pid || status != 0) return {{"error", "child failed: " + text}};
  return json::parse(text, nullptr, false);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--child") == 0) {
    std::printf("%s\n", measure(std::strtoull(argv[2], nullptr, 10), std::strtof(argv[3], nullptr)).dump().c_str());
    return 0;
  }
  bool as_json = false;
  uint64_t pairs = 1'000'000;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      as_json = true;
    } else if (std::strcmp(argv[i], "--pairs") == 0 && i + 1 < argc) {
      pairs = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::fprintf(stderr, "bench_overhead: unknown argument %s; allowed: --json, --pairs N\n", argv[i]);
      return 2;
    }
  }
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string shim = (self.parent_path().parent_path() / "lib/libsdcguard.so").string();
  const json unsampled = run_child(self, shim, "0.0000000001", pairs, 0.0f);
  const json sampled = run_child(self, shim, "1.0", pairs / 10, 0.0f);
  const json in_place = run_child(self, shim, "1.0", pairs / 10, 1.0f);
  for (const json* part : {&unsampled, &sampled, &in_place}) {
    if (part->is_discarded() || part->contains("error")) {
      std::fprintf(stderr, "bench_overhead: %s\n", part->is_discarded() ? "unreadable child" : part->dump().c_str());
      return 1;
    }
  }
  for (const json* part : {&sampled, &in_place}) {
    if ((*part)["launches"] == 0.0) {
      std::fprintf(stderr, "bench_overhead: no sampled call was checked over the stand-ins: nothing is measured\n");
      return 1;
    }
  }
  const json all = {
      {"unsampled_ns_over_bare", unsampled["over_bare_ns"]["median"]},
      {"unsampled_ns_over_bare_interval", {unsampled["over_bare_ns"]["low"], unsampled["over_bare_ns"]["high"]}},
      {"bare_ns", unsampled["bare_ns"]["median"]},
      {"sampled_us_over_bare", sampled["over_bare_ns"]["median"].get<double>() / 1000},
      {"sampled_launches", sampled["launches"]},
      {"sampled_other_driver_calls", sampled["other_driver_calls"]},
      {"sampled_in_place_us_over_bare", in_place["over_bare_ns"]["median"].get<double>() / 1000},
      {"sampled_in_place_launches", in_place["launches"]},
      {"banned_driver_calls", sampled["banned_driver_calls"]},
      {"unsampled", unsampled},
      {"sampled", sampled},
      {"in_place", in_place}};
  if (as_json) {
    std::printf("%s\n", all.dump(2).c_str());
    return 0;
  }
  std::printf("not sampled: %.1f ns over the bare call (%.1f to %.1f; bare %.1f ns; limit 30)\n",
              all["unsampled_ns_over_bare"].get<double>(), unsampled["over_bare_ns"]["low"].get<double>(),
              unsampled["over_bare_ns"]["high"].get<double>(), all["bare_ns"].get<double>());
  std::printf("sampled:     %.2f us over the bare call, driver stand-ins included (limit 2 us of our own)\n",
              all["sampled_us_over_bare"].get<double>());
  std::printf("             %.2f launches (limit 6), %.2f other driver calls (limit 12), banned calls: %s\n",
              all["sampled_launches"].get<double>(), all["sampled_other_driver_calls"].get<double>(),
              all["banned_driver_calls"].empty() ? "none" : all["banned_driver_calls"].dump().c_str());
  return 0;
}

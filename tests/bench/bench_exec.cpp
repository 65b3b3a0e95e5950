// SPDX-License-Identifier: MIT
// bench_exec: what the preload costs a child process that never touches CUDA: fork and exec of /bin/true with the shim
// preloaded and without, in pairs that alternate which comes first, so that whatever else the machine does hits both.
//
//   bench_exec [--json] [--pairs N] [--program PATH] [--shim PATH]     exit code 0 only if the limit is kept
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

using nlohmann::json;

constexpr double kLimitUs = 300;  // DESIGN section 9

// Microseconds from before fork and exec until the child was waited for; negative: it could not be started, or failed.
double run_once(const std::string& program, const std::vector<char*>& environment) {
  char* argv[] = {const_cast<char*>(program.c_str()), nullptr};
  const auto start = std::chrono::steady_clock::now();
  pid_t pid = 0;
  int status = 0;
  if (posix_spawn(&pid, program.c_str(), nullptr, nullptr, argv, environment.data()) != 0) return -1;
  if (waitpid(pid, &status, 0) != pid || status != 0) return -1;
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
}

// Median with a 95% interval from the order statistics (binomial ranks, normal approximation).
json summary(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const double half_width = 1.96 * std::sqrt(0.25 / static_cast<double>(samples.size()));
  return {{"median", quantile(samples, 0.5)},
          {"low", quantile(samples, std::max(0.0, 0.5 - half_width))},
          {"high", quantile(samples, std::min(1.0, 0.5 + half_width))}};
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  std::string shim = (self.parent_path().parent_path() / "lib/libsdcguard.so").string();
  std::string program = "/bin/true";
  size_t pairs = 1000;
  bool as_json = false;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (std::strcmp(argv[i], "--json") == 0) {
      as_json = true;
    } else if (std::strcmp(argv[i], "--pairs") == 0 && has_value) {
      pairs = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::strcmp(argv[i], "--program") == 0 && has_value) {
      program = argv[++i];
    } else if (std::strcmp(argv[i], "--shim") == 0 && has_value) {
      shim = argv[++i];
    } else {
      std::fprintf(stderr, "bench_exec: unknown argument %s; allowed: --json, --pairs N, --program PATH, --shim PATH\n",
                   argv[i]);
      return 2;
    }
  }
  // The loader only warns about a preload that is not there: the comparison would be of nothing with nothing.
  if (access(shim.c_str(), R_OK) != 0 || pairs == 0) {
    std::fprintf(stderr, "bench_exec: no library %s, or no pairs to run\n", shim.c_str());
    return 2;
  }
  std::string preload = "LD_PRELOAD=" + shim, path = "PATH=/usr/bin:/bin";
  const std::vector<char*> bare = {path.data(), nullptr}, preloaded = {path.data(), preload.data(), nullptr};
  std::vector<double> of_bare, of_preloaded, added;
  constexpr size_t kWarmUp = 20;
  for (size_t pair = 0; pair < pairs + kWarmUp; ++pair) {
    double times[2];
    for (size_t step = 0; step < 2; ++step) {
      const size_t which = (pair + step) % 2;
      times[which] = run_once(program, which == 0 ? bare : preloaded);
      if (times[which] < 0) {
        std::fprintf(stderr, "bench_exec: %s did not run, or did not exit with 0\n", program.c_str());
        return 2;
      }
    }
    if (pair < kWarmUp) continue;
    of_bare.push_back(times[0]);
    of_preloaded.push_back(times[1]);
    added.push_back(times[1] - times[0]);
  }
  const json of_added = summary(added);
  const bool kept = of_added["median"].get<double>() <= kLimitUs;
  const json all = {{"program", program},
                    {"pairs", pairs},
                    {"bare_us", summary(of_bare)},
                    {"preloaded_us", summary(of_preloaded)},
                    {"added_us", of_added},
                    {"limit_us", kLimitUs},
                    {"kept", kept}};
  if (as_json) {
    std::printf("%s\n", all.dump(2).c_str());
  } else {
    std::printf("exec of %s: %.0f us over none (%.0f to %.0f; none %.0f us; %zu pairs; limit %.0f us)\n",
                program.c_str(), of_added["median"].get<double>(), of_added["low"].get<double>(),
                of_added["high"].get<double>(), all["bare_us"]["median"].get<double>(), pairs, kLimitUs);
  }
  return kept ? 0 : 1;
}

// SPDX-License-Identifier: MIT
// bench_gemm [--json] [--rounds N]: speed of the host device's product orders beside OpenBLAS's sgemm, one thread each.
//
// Interleaved rounds, CPU time of the thread (other processes may share the cores); the figure of a round is a ratio to
// the sgemm runs just before and after it, the reported ratio is the median over rounds, the speeds are the best seen.
// N counts the rounds of the largest size (31 if not given); a smaller one has more, for the same time, because a
// neighbour's burst on a shared machine outlasts a few rounds of a small product.
// OpenBLAS is loaded by dlopen after OPENBLAS_CORETYPE and OPENBLAS_NUM_THREADS were cleared: a core type forced by the
// environment slows it. Exit code 0 only if both goals are met (issue 2): h100 0.15 and rounded16 0.8 of sgemm.
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tools/hostcuda/gemm/fast.h"

namespace {

using namespace hostcuda::gemm;

constexpr double kGoalH100 = 0.15;
constexpr double kGoalRounded16 = 0.8;
constexpr int64_t kLargest = 1024;

using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double timed(const std::function<void()>& work) {
  const double begin = thread_seconds();
  work();
  return thread_seconds() - begin;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Figure {
  std::string order;
  double speed;  // GMAC/s, best
  double ratio;  // of sgemm, median
  double goal;
};

struct Result {
  int64_t size;
  double sgemm;
  std::vector<Figure> figures;
};

Result measure(Sgemm sgemm, int64_t size, int64_t rounds) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  const size_t count = static_cast<size_t>(size * size);
  std::vector<uint16_t> a(count);
  std::vector<uint16_t> b(count);
  std::vector<float> a_float(count);
  std::vector<float> b_float(count);
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) {
    a[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(generator)) >> 16);
    b[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(generator)) >> 16);
    a_float[i] = std::bit_cast<float>(static_cast<uint32_t>(a[i]) << 16);
    b_float[i] = std::bit_cast<float>(static_cast<uint32_t>(b[i]) << 16);
  }
  const View a_view{a.data(), Type::kBf16, 1, size};
  const View b_view{b.data(), Type::kBf16, 1, size};
  const OutView out_view{out.data(), 1, size};
  const Extent extent{size, size, size};
  const int n = static_cast<int>(size);
  constexpr int kColumnMajor = 102;
  constexpr int kNoTranspose = 111;
  const auto reference = [&] {
    sgemm(kColumnMajor, kNoTranspose, kNoTranspose, n, n, n, 1.0f, a_float.data(), n, b_float.data(), n, 0.0f,
          out.data(), n);
  };
  const auto h100 = [&] { tensor_core_product({16, 2}, Format::kBf16, a_view, b_view, out_view, extent, 1); };
  const auto rounded = [&] { rounded16_product(a_view, b_view, out_view, extent, 1); };
  reference();
  std::vector<double> h100_ratios;
  std::vector<double> rounded_ratios;
  double best_reference = std::numeric_limits<double>::infinity();
  double best_h100 = best_reference;
  double best_rounded = best_reference;
  for (int64_t round = 0; round < rounds; ++round) {
    const double before = timed(reference);
    const double rounded_time = timed(rounded);
    const double middle = timed(reference);
    const double h100_time = timed(h100);
    const double after = timed(reference);
    rounded_ratios.push_back((before + middle) / 2 / rounded_time);
    h100_ratios.push_back((middle + after) / 2 / h100_time);
    best_reference = std::min({best_reference, before, middle, after});
    best_rounded = std::min(best_rounded, rounded_time);
    best_h100 = std::min(best_h100, h100_time);
  }
  const double work = 1e-9 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  return {size,
          work / best_reference,
          {{"h100", work / best_h100, median(h100_ratios), kGoalH100},
           {"rounded16", work / best_rounded, median(rounded_ratios), kGoalRounded16}}};
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  int rounds = 31;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      rounds = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: bench_gemm [--json] [--rounds N]\n");
      return 2;
    }
  }
  if (!has_vector_paths()) {
    std::fprintf(stderr, "bench_gemm: this CPU has no AVX2 and FMA: there is no vector path to measure\n");
    return 2;
  }
  unsetenv("OPENBLAS_CORETYPE");
  unsetenv("OPENBLAS_NUM_THREADS");
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "bench_gemm: %s\n", dlerror());
    return 2;
  }
  const auto sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
  const auto core_name = reinterpret_cast<char* (*)()>(dlsym(library, "openblas_get_corename"));
  const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  if (sgemm == nullptr || core_name == nullptr || set_threads == nullptr) {
    std::fprintf(stderr, "bench_gemm: libopenblas.so.0 lacks cblas_sgemm or its core name\n");
    return 2;
  }
  set_threads(1);

  bool reached = true;
  if (json) {
    std::printf("{\"openblas_kernel\": \"%s\", \"threads\": 1, \"rounds\": %d, \"sizes\": [", core_name(), rounds);
  } else {
    std::printf("OpenBLAS kernel %s, one thread each, %d rounds of %lld cubed\n", core_name(), rounds,
                static_cast<long long>(kLargest));
    std::printf("%6s %-10s %8s %9s %6s\n", "size", "order", "GMAC/s", "of sgemm", "goal");
  }
  bool first = true;
  for (const int64_t size : {int64_t{512}, kLargest}) {
    const int64_t scale = kLargest / size;
    const Result result = measure(sgemm, size, rounds * scale * scale * scale);
    if (json) {
      std::printf("%s{\"size\": %lld, \"sgemm_gmacs\": %.3f", first ? "" : ", ", static_cast<long long>(size),
                  result.sgemm);
    } else {
      std::printf("%6lld %-10s %8.2f\n", static_cast<long long>(size), "sgemm", result.sgemm);
    }
    first = false;
    for (const Figure& figure : result.figures) {
      reached = reached && figure.ratio >= figure.goal;
      if (json) {
        std::printf(", \"%s_gmacs\": %.3f, \"%s_of_sgemm\": %.3f", figure.order.c_str(), figure.speed,
                    figure.order.c_str(), figure.ratio);
      } else {
        std::printf("%6s %-10s %8.2f %9.3f %6.2f\n", "", figure.order.c_str(), figure.speed, figure.ratio, figure.goal);
      }
    }
    if (json) std::printf("}");
  }
  if (json) {
    std::printf("], \"goal_h100\": %.2f, \"goal_rounded16\": %.2f, \"reached\": %s}\n", kGoalH100, kGoalRounded16,
                reached ? "true" : "false");
  } else {
    std::printf("goals %s\n", reached ? "reached" : "missed");
  }
  return reached ? 0 : 1;
}

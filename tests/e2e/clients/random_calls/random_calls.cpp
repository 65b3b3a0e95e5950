// SPDX-License-Identifier: MIT
// random_calls: a plain program of cuBLAS and cuBLASLt products that holds each result against the exact one. It knows
// nothing of sdcguard.
//
//   random_calls [--calls N] [--from I] [--seed S] [--no-exact] [--repeat R] [--device D] [--call TEXT]
//
// N calls drawn from S, from number I on; or the one that TEXT describes (call.h). --repeat: each call R times, from
// the same matrices. One line a call made:
//   INDEX DESCRIPTION | status=0 ratio=0.123 entries=4096 exempt=0 changed=0 hash=0123456789abcdef
// ratio: largest distance of a delivered value from the exact one over its bound; changed: bytes of gaps between the
// matrices' elements, and inputs, that are not as before; hash: of all outputs. Exit code 2: it could not run.
#include <cstdio>
#include <exception>
#include <string>

#include "call.h"
#include "trial.h"

namespace {

struct Options {
  uint64_t calls = 100, from = 0, seed = 1, repeat = 1;
  int device = 0;
  bool exact = true;
  std::string call;
};

Options options_of(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--no-exact") {
      o.exact = false;
      continue;
    }
    if (i + 1 == argc) throw std::runtime_error(option + ": a value");
    const std::string value = argv[++i];
    if (option == "--calls") {
      o.calls = std::stoull(value);
    } else if (option == "--from") {
      o.from = std::stoull(value);
    } else if (option == "--seed") {
      o.seed = std::stoull(value);
    } else if (option == "--repeat") {
      o.repeat = std::stoull(value);
    } else if (option == "--device") {
      o.device = std::stoi(value);
    } else if (option == "--call") {
      o.call = value;
      o.calls = 1;
    } else {
      throw std::runtime_error(option + ": no such option");
    }
  }
  return o;
}

void make(const calls::Call& call, uint64_t index, const Options& o, calls::Libraries& libraries) {
  calls::Trial trial(call, libraries);
  for (uint64_t round = 0; round < o.repeat; ++round) {
    if (round > 0) trial.restore();
    const cublasStatus_t status = trial.issue();
    const calls::Found found = trial.judge(o.exact && status == CUBLAS_STATUS_SUCCESS);
    std::printf("%llu %s | status=%d ratio=%.4g entries=%lld exempt=%lld changed=%lld hash=%016llx%s%s\n",
                static_cast<unsigned long long>(index), calls::text_of(call).c_str(), static_cast<int>(status),
                found.worst, static_cast<long long>(found.entries), static_cast<long long>(found.exempt),
                static_cast<long long>(found.changed), static_cast<unsigned long long>(found.hash),
                found.where.empty() ? "" : " worst: ", found.where.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options o = options_of(argc, argv);
    if (cudaSetDevice(o.device) != cudaSuccess) throw std::runtime_error("cudaSetDevice");
    calls::Libraries libraries;
    for (uint64_t i = 0; i < o.calls; ++i) {
      const uint64_t index = o.from + i;
      make(o.call.empty() ? calls::draw(o.seed, index) : calls::parse(o.call), index, o, libraries);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "random_calls: %s\n", error.what());
  }
  return 2;
}

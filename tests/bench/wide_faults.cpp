// SPDX-License-Identifier: MIT
// Faults in so many entries at once that they make the noise that they are measured by: are they caught?
//
//   clean product -> its sigma, what a history of clean calls would hold -> the same product with a wide fault -> probe
//
// A trial is caught when every line with a wrong entry is looked at (and so recomputed whole). The cap on sigma is that
// of the kernels: three times the history's sigma, and the envelope (MATH.md "sigma"). Exit code 0: all trials are
// caught. --no-cap leaves the envelope alone, which must not pass.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "kernels/plan.h"
#include "tests/stage/device.h"
#include "tests/stage/direct_probe.h"
#include "tests/stage/engine_product.h"

namespace sdcguard::stage {
namespace {

using Json = nlohmann::ordered_json;
using reference::Kind;
using reference::Matrix;
using reference::Random;

constexpr int kTrials = 40;   // of each pattern and size at each shape
constexpr float kCap = 3.0f;  // times the history (kernels/product.cu)

struct Shape {
  int64_t n1, n2, n3;
};
constexpr Shape kShapes[] = {{512, 512, 512}, {1024, 256, 384}, {64, 1024, 2048}};
constexpr const char* kPatterns[] = {"column", "row", "one a row", "tile", "all"};
// In units of the product's root mean square: from a hundred times the floor of a single fault up.
constexpr double kSizes[] = {0.01, 0.1, 1.0};

// The entries of one wide fault.
std::vector<std::pair<int64_t, int64_t>> places_of(const std::string& pattern, const Shape& shape, Random& random) {
  std::vector<std::pair<int64_t, int64_t>> places;
  const int64_t row = random.below(shape.n1), column = random.below(shape.n3);
  for (int64_t i = 0; i < shape.n1; ++i) {
    if (pattern == "column") places.emplace_back(i, column);
    if (pattern == "one a row") places.emplace_back(i, random.below(shape.n3));
    if (pattern == "all") {
      for (int64_t j = 0; j < shape.n3; ++j) places.emplace_back(i, j);
    }
  }
  for (int64_t j = 0; j < shape.n3 && pattern == "row"; ++j) places.emplace_back(row, j);
  // A fragment of the tensor core.
  const int64_t first_row = row / 16 * 16, first_column = column / 8 * 8;
  for (int64_t i = 0; i < 16 * 8 && pattern == "tile"; ++i)
    places.emplace_back(first_row + i / 8, first_column + i % 8);
  return places;
}

class WideFaults {
 public:
  WideFaults(std::string json, bool capped) : json_(std::move(json)), capped_(capped) {}

  int run() {
    std::printf("%-16s %-12s %8s %7s\n", "shape", "pattern", "size/rms", "caught");
    for (const Shape& shape : kShapes) {
      for (const char* pattern : kPatterns) {
        for (const double size : kSizes) trials(shape, pattern, size);
      }
    }
    std::printf("%d of %d caught\n", caught_, all_);
    if (!json_.empty()) {
      std::ofstream(json_) << Json{{"rows", rows_}, {"trials", all_}, {"caught", caught_}}.dump(1) << "\n";
    }
    return caught_ == all_ ? 0 : 1;
  }

 private:
  void prepare(const Shape& shape) {
    if (a_.rows == shape.n1 && a_.cols == shape.n2 && b_.cols == shape.n3) return;
    const Family& family = families()[0];
    a_ = Matrix(shape.n1, shape.n2);
    b_ = Matrix(shape.n2, shape.n3);
    fill(Kind::kGauss, family.a, 3, a_, b_);
    p_ = engine_product(family, "rounded16", a_, b_);
    double squares = 0;
    for (const float v : p_.values) squares += static_cast<double>(v) * static_cast<double>(v);
    rms_ = std::sqrt(squares / static_cast<double>(p_.values.size()));
    plan_ = make_plan(request_of(family, "rounded16", shape.n1, shape.n2, shape.n3));
    if (!plan_.usable() || plan_.params.plan != Plan::kLine) std::exit(2);
  }

  DirectResult probe(const Matrix& p) {
    DirectResult result;
    probe_.run({&plan_.params, a_.values.data(), b_.values.data(), p.values.data()}, &result);
    return result;
  }

  void trials(const Shape& shape, const std::string& pattern, double size) {
    prepare(shape);
    const float envelope = plan_.params.sigma_envelope;
    const DirectResult clean = probe(p_);
    int caught = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      Random random(static_cast<uint64_t>(trial + 1) * 1000 + static_cast<uint64_t>(size * 100));
      Matrix wrong = p_;
      std::set<uint32_t> lines;
      for (const auto& [row, column] : places_of(pattern, shape, random)) {
        const double sign = random.below(2) == 0 ? 1 : -1;
        wrong.at(row, column) = static_cast<float>(static_cast<double>(p_.at(row, column)) + sign * size * rms_);
        lines.insert(static_cast<uint32_t>(row));
      }
      plan_.params.seed = static_cast<uint64_t>(trial);
      plan_.params.sigma_envelope = capped_ ? std::min(envelope, kCap * clean.sigma) : envelope * 1e9f;
      const DirectResult result = probe(wrong);
      plan_.params.sigma_envelope = envelope;
      caught += std::includes(result.dirty.begin(), result.dirty.end(), lines.begin(), lines.end()) ? 1 : 0;
    }
    std::printf("%4" PRId64 "x%4" PRId64 "x%4" PRId64 "   %-12s %8g %4d/%d\n", shape.n1, shape.n2, shape.n3,
                pattern.c_str(), size, caught, kTrials);
    rows_.push_back({{"n1", shape.n1},
                     {"n2", shape.n2},
                     {"n3", shape.n3},
                     {"pattern", pattern},
                     {"size", size},
                     {"trials", kTrials},
                     {"caught", caught}});
    caught_ += caught;
    all_ += kTrials;
  }

  std::string json_;
  bool capped_;
  Matrix a_, b_, p_;
  double rms_ = 0;
  ProbePlan plan_{};
  DirectProbe probe_;
  int caught_ = 0, all_ = 0;
  Json rows_ = Json::array();
};

}  // namespace
}  // namespace sdcguard::stage

int main(int argc, char** argv) {
  std::string json;
  bool capped = true;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--no-cap") {
      capped = false;
    } else if (word == "--json" && i + 1 < argc) {
      json = argv[++i];
    } else {
      std::fprintf(stderr, "usage: wide_faults [--no-cap] [--json FILE]\n");
      return 2;
    }
  }
  return sdcguard::stage::WideFaults(json, capped).run();
}

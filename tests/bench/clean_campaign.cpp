// SPDX-License-Identifier: MIT
// Clean products in bulk: how often is a healthy device looked at, and is one ever accused?
//
//   data of every kind -> product in every order (the host device's engine) -> direct probe -> looks, tail of |z| /
//   sigma
//                                                                                 \-- a look -> the kernels:
//                                                                                 accusations
//
// The kernels judge what the direct probe looks at, since only they recompute and name; by stage/direct_probe_test.cpp
// both look at the same lines. Each product is probed with several sign draws. Prints a table by order and by kind, the
// tail with the look threshold that it gives beside the one in force, and with --json all of it. Exit code 0: no entry
// was named and at most one probe in 10,000 looked; 1 otherwise. --wrong makes one entry of every product wrong, which
// must not pass.
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/plan.h"
#include "tests/stage/device.h"
#include "tests/stage/direct_probe.h"
#include "tests/stage/engine_product.h"
#include "tools/calibrate/tail.h"

namespace sdcguard::stage {
namespace {

using Json = nlohmann::ordered_json;
using reference::Kind;
using reference::Matrix;
using reference::Random;

constexpr double kLooksAllowed = 1e-4;  // of clean probes (MATH.md "look")
constexpr uint64_t kProbes = 8;         // of one product, each with signs of its own
constexpr double kTailLimit = 3.0;      // of |z| / sigma: what is beyond is kept
constexpr size_t kTailKept = 4'000'000;

struct Shape {
  int64_t n1, n2, n3;
};
// Lines of one class count to 64, sums of a few steps to 128, broken tiles among them.
constexpr Shape kShapes[] = {{256, 256, 256},  {512, 128, 384}, {128, 512, 512}, {64, 1024, 256},
                             {100, 200, 130},  {32, 384, 1024}, {16, 512, 2048}, {8, 256, 4096},
                             {192, 2048, 128}, {300, 300, 300}, {1024, 64, 128}, {48, 160, 35000}};

struct Counted {
  uint64_t products = 0, probes = 0, lines = 0, cells = 0, looks = 0, named = 0;
  double worst = 0;  // largest |z| / (sigma T)
  void add(const Counted& other) {
    products += other.products;
    probes += other.probes;
    lines += other.lines;
    cells += other.cells;
    looks += other.looks;
    named += other.named;
    worst = std::max(worst, other.worst);
  }
};

Json json_of(const Counted& c) {
  return {{"products", c.products}, {"probes", c.probes}, {"lines", c.lines}, {"cells", c.cells},
          {"looks", c.looks},       {"named", c.named},   {"worst", c.worst}};
}

void print_row(const std::string& name, const Counted& c) {
  std::printf("%-24s %9" PRIu64 " %10" PRIu64 " %12" PRIu64 " %13" PRIu64 " %6" PRIu64 " %6" PRIu64 "  %.2f\n",
              name.c_str(), c.products, c.probes, c.lines, c.cells, c.looks, c.named, c.worst);
}

struct Options {
  uint64_t lines = 1'000'000;
  uint64_t seed = 1;
  std::string json;
  bool progress = false;
  bool wrong = false;
};

class Campaign {
 public:
  explicit Campaign(Options options) : options_(std::move(options)) { measured_.limit = kTailLimit; }

  int run() {
    const auto started = std::chrono::steady_clock::now();
    for (uint64_t seed = options_.seed; all_.lines < options_.lines; ++seed) {
      product(seed);
      if (options_.progress && all_.products % 1000 == 0) {
        std::fprintf(stderr, "%" PRIu64 " products, %" PRIu64 " lines, %" PRIu64 " looks, %" PRIu64 " named\n",
                     all_.products, all_.lines, all_.looks, all_.named);
      }
    }
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    const bool tail_fits = fit_tail(measured_, kLooksAllowed, 1, options_.seed, &tail_, &tail_error_);
    print(tail_fits);
    if (!options_.json.empty()) {
      std::ofstream(options_.json) << json(tail_fits).dump(1) << "\n";
    }
    return good() ? 0 : 1;
  }

 private:
  bool good() const {
    return all_.named == 0 && static_cast<double>(all_.looks) <= kLooksAllowed * static_cast<double>(all_.probes);
  }

  void product(uint64_t seed) {
    Random random(seed * 0x9E3779B97F4A7C15ull);
    const auto one_of = [&](const auto& list) { return list[static_cast<size_t>(random.below(std::ssize(list)))]; };
    const Family& family = *one_of(families_);
    const std::string order = one_of(family.orders);
    const Kind kind = one_of(kinds_);
    const Shape shape = kShapes[random.below(std::ssize(kShapes))];
    Call call;
    call.type = family.a;
    call.type_b = family.b;
    call.accumulator = family.accumulator;
    call.rounding = family.rounding;
    call.tensor_core = tensor_core_of(compute_major_of(order), family.a);
    call.a = Matrix(shape.n1, shape.n2);
    call.b = Matrix(shape.n2, shape.n3);
    fill_operands(kind, family, seed, call.a, call.b);
    call.p = engine_product(family, order, call.a, call.b);
    if (options_.wrong) {
      float& entry = call.p.values[static_cast<size_t>(random.below(std::ssize(call.p.values)))];
      entry = 2 * entry + 1000 * largest_of(call.p);
    }

    ProbePlan plan = make_plan(request_of(family, order, shape.n1, shape.n2, shape.n3));
    if (!plan.usable() || plan.params.plan != Plan::kLine) {
      std::fprintf(stderr, "clean_campaign: a shape without a line plan\n");
      std::exit(2);
    }
    Counted counted;
    counted.products = 1;
    for (uint64_t draw = 0; draw < kProbes; ++draw) {
      plan.params.seed = seed * kProbes + draw;
      probe_.run({&plan.params, call.a.values.data(), call.b.values.data(), call.p.values.data()}, &result_);
      ++counted.probes;
      counted.lines += static_cast<uint64_t>(shape.n1);
      counted.cells += result_.ratios.size();
      counted.worst = std::max(counted.worst, static_cast<double>(result_.worst / plan.params.look_scale));
      keep_tail(seed, plan.params.look_scale);
      if (result_.dirty.empty()) continue;
      ++counted.looks;
      call.seed = plan.params.seed;
      const Result judged = stage::run(call);
      counted.named += judged.verdict.entries_named != 0 ? 1 : 0;
      std::printf("look: %s %s %s %" PRId64 " x %" PRId64 " x %" PRId64 " seed %" PRIu64
                  ": %zu lines, worst %.2f of %.2f, sigma %g of at most %g, named %" PRIu64 "%s\n",
                  family.name, order.c_str(), name_of(kind), shape.n1, shape.n2, shape.n3, plan.params.seed,
                  result_.dirty.size(), static_cast<double>(result_.worst), static_cast<double>(plan.params.look_scale),
                  static_cast<double>(result_.sigma_measured), static_cast<double>(plan.params.sigma_envelope),
                  judged.verdict.entries_named,
                  judged.verdict.lines_dirty == result_.dirty.size() ? "" : ", THE KERNELS LOOK AT OTHER LINES");
      if (judged.verdict.lines_dirty != result_.dirty.size()) std::exit(2);
    }
    all_.add(counted);
    by_kind_[name_of(kind)].add(counted);
    by_order_[std::string(family.name) + " " + order].add(counted);
    by_shape_[std::to_string(shape.n1) + "x" + std::to_string(shape.n2) + "x" + std::to_string(shape.n3)].add(counted);
  }

  static float largest_of(const Matrix& m) {
    float largest = 0;
    for (const float v : m.values) largest = std::max(largest, std::fabs(v));
    return largest;
  }

  void keep_tail(uint64_t product, float threshold) {
    if (measured_.kept.size() >= kTailKept) return;  // enough, and what follows is not counted either
    measured_.values += result_.ratios.size();
    if (measured_.products == 0 || last_product_ != product) ++measured_.products;
    last_product_ = product;
    size_t at = 0;
    for (size_t line = 0; line < result_.line_limit.size(); ++line) {
      // Of sigma, or of what stands for it in this line.
      const double scale = static_cast<double>(result_.line_limit[line]) / static_cast<double>(threshold);
      for (; at < result_.ratios_to[line]; ++at) {
        const double value = static_cast<double>(result_.ratios[at]) / scale;
        if (value > kTailLimit) measured_.kept.push_back({value, product});
      }
    }
  }

  // The look threshold that this tail gives a product of so many cells.
  double threshold_of(double cells) const {
    double threshold = 0;
    for (const TailFit& fit : tail_.fits) {
      const double share = static_cast<double>(fit.above) / static_cast<double>(measured_.values);
      threshold = std::max(threshold, fit.limit + fit.shape.quantile(std::min(1.0, kLooksAllowed / cells / share)));
    }
    return threshold;
  }

  void print(bool tail_fits) const {
    std::printf("%-24s %9s %10s %12s %13s %6s %6s  %s\n", "", "products", "probes", "lines", "cells", "looks", "named",
                "worst / T");
    for (const auto* table : {&by_order_, &by_kind_, &by_shape_}) {
      for (const auto& [name, counted] : *table) print_row(name, counted);
      std::printf("\n");
    }
    print_row("all", all_);
    std::printf("%.0f s, %.3g lines a second\n", seconds_, static_cast<double>(all_.lines) / seconds_);
    if (!tail_fits) {
      std::printf("tail: %s\n", tail_error_.c_str());
      return;
    }
    std::printf("\ntail of |z| / sigma: %zu of %" PRIu64 " values beyond %g\n", measured_.kept.size(), measured_.values,
                kTailLimit);
    for (const TailFit& fit : tail_.fits) {
      std::printf("  beyond %6.3f: %9" PRIu64 " values, xi %.3f, scale %.3f\n", fit.limit, fit.above, fit.shape.xi,
                  fit.shape.scale);
    }
    std::printf("  variance of the exceedances of a product over their mean %.2f\n", tail_.dispersion);
    std::printf("  cells      T of this tail    T in force\n");
    for (const double cells : kTableCells) {
      std::printf("  %8.0f   %10.2f      %10.2f\n", cells, threshold_of(cells), look_scale_of(cells));
    }
    for (const std::string& warning : tail_.warnings) std::printf("  %s\n", warning.c_str());
  }

  Json json(bool tail_fits) const {
    Json out = {{"seed", options_.seed}, {"seconds", seconds_}, {"all", json_of(all_)}};
    const auto table = [](const std::map<std::string, Counted>& rows) {
      Json object = Json::object();
      for (const auto& [name, counted] : rows) object[name] = json_of(counted);
      return object;
    };
    out["orders"] = table(by_order_);
    out["kinds"] = table(by_kind_);
    out["shapes"] = table(by_shape_);
    if (tail_fits) {
      Json fits = Json::array();
      for (const TailFit& fit : tail_.fits) {
        fits.push_back({{"limit", fit.limit}, {"above", fit.above}, {"xi", fit.shape.xi}, {"scale", fit.shape.scale}});
      }
      Json thresholds = Json::array();
      for (const double cells : kTableCells) {
        thresholds.push_back({{"cells", cells}, {"tail", threshold_of(cells)}, {"in_force", look_scale_of(cells)}});
      }
      out["tail"] = {{"values", measured_.values},
                     {"fits", fits},
                     {"dispersion", tail_.dispersion},
                     {"thresholds", thresholds},
                     {"warnings", tail_.warnings}};
    }
    return out;
  }

  static constexpr double kTableCells[] = {64, 512, 4096, 32768, 65536, 1048576};

  Options options_;
  std::vector<const Family*> families_ = float_families();
  std::vector<Kind> kinds_ = all_kinds();
  DirectProbe probe_;
  DirectResult result_;
  Counted all_;
  std::map<std::string, Counted> by_kind_, by_order_, by_shape_;
  Exceedances measured_;
  uint64_t last_product_ = 0;
  TailReport tail_;
  std::string tail_error_;
  double seconds_ = 0;
};

}  // namespace
}  // namespace sdcguard::stage

int main(int argc, char** argv) {
  sdcguard::stage::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    char* end = nullptr;
    if (word == "--progress" || word == "--wrong") {
      (word == "--wrong" ? options.wrong : options.progress) = true;
      continue;
    }
    if (word == "--lines" && value != nullptr) options.lines = std::strtoull(value, &end, 10);
    if (word == "--seed" && value != nullptr) options.seed = std::strtoull(value, &end, 10);
    if (word == "--json" && value != nullptr) {
      options.json = value;
      end = const_cast<char*>(value) + std::strlen(value);
    }
    if (end == nullptr || *end != '\0' || end == value) {
      std::fprintf(stderr, "usage: clean_campaign [--lines N] [--seed N] [--json FILE] [--progress] [--wrong]\n");
      return 2;
    }
    ++i;
  }
  return sdcguard::stage::Campaign(options).run();
}

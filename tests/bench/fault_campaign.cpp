// SPDX-License-Identifier: MIT
// Accumulator faults in bulk, at random places and steps of k, in every order, format and kind of data: how many are
// found and repaired, and what became of the others?
//
//   clean product and the same with faults (the host device's engine and its injection log) -> kernels -> what was
//   named, what was repaired, what was touched beside it
//
// Two parts: bits 20 to 30, of which all are counted, and any bit of the accumulator, of which those that the injection
// log calls above the entry bound are. A fault is dealt with when what is delivered lies within the entry bound of the
// clean entry: named and repaired, or within it as it is. Each miss is explained or printed. Exit code 0: at least
// 0.9995 of the first, at least 0.99 of the second, nothing else is named, and no miss is unexplained.
// --no-product: without the product pass, which must not pass.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/stage/device.h"
#include "tests/stage/engine_product.h"

namespace sdcguard::stage {
namespace {

using Json = nlohmann::ordered_json;
using reference::Kind;
using reference::Matrix;
using reference::Random;

struct Shape {
  int64_t n1, n2, n3;
};
constexpr Shape kShapes[] = {{128, 128, 128}, {96, 200, 136}, {64, 512, 256}, {200, 96, 300}, {33, 256, 512}};

struct Part {
  const char* name;
  const char* bits;
  bool above_bound_only;  // of the injection log
  double least;           // share delivered right
};
constexpr Part kParts[] = {{"bits 20 to 30", "20..30", false, 0.9995}, {"any bit", "0..30", true, 0.99}};

struct Counted {
  uint64_t products = 0, injected = 0, counted = 0, right = 0, named = 0, accused = 0, below_look = 0, hidden = 0;
  std::map<std::string, std::pair<uint64_t, uint64_t>> groups;  // by type, kind and order: counted and right
};

class FaultCampaign {
 public:
  FaultCampaign(uint64_t faults, uint64_t seed, bool without_product)
      : faults_(faults), seed_(seed), without_product_(without_product) {}

  int run(const std::string& json) {
    Json out = Json::array();
    bool good = true;
    for (const Part& part : kParts) {
      Counted all;
      for (uint64_t number = seed_; all.counted < faults_ / 2; ++number) product(part, number, &all);
      const double share = all.counted == 0 ? 0 : static_cast<double>(all.right) / static_cast<double>(all.counted);
      std::printf("%s: %" PRIu64 " faults in %" PRIu64 " products, %" PRIu64 " counted, %" PRIu64
                  " delivered right (%" PRIu64
                  " named and repaired, the others within their bound), %.5f of at least %g; %" PRIu64
                  " below the look threshold of their cells, %" PRIu64
                  " hidden by another fault of their class, %" PRIu64 " clean entries named\n",
                  part.name, all.injected, all.products, all.counted, all.right, all.named, share, part.least,
                  all.below_look, all.hidden, all.accused);
      Json groups = Json::object();
      for (const auto& [group, pair] : all.groups) {
        std::printf("  %-18s %6" PRIu64 " of %6" PRIu64 "  %.4f\n", group.c_str(), pair.second, pair.first,
                    static_cast<double>(pair.second) / static_cast<double>(pair.first));
        groups[group] = {{"counted", pair.first}, {"right", pair.second}};
      }
      good = good && share >= part.least && all.accused == 0 && all.right + all.below_look + all.hidden == all.counted;
      out.push_back({{"part", part.name},
                     {"products", all.products},
                     {"injected", all.injected},
                     {"counted", all.counted},
                     {"right", all.right},
                     {"named", all.named},
                     {"least", part.least},
                     {"accused", all.accused},
                     {"below_look", all.below_look},
                     {"hidden", all.hidden},
                     {"groups", groups}});
    }
    if (!json.empty()) std::ofstream(json) << Json{{"parts", out}, {"good", good}}.dump(1) << "\n";
    return good ? 0 : 1;
  }

 private:
  void product(const Part& part, uint64_t number, Counted* all) {
    Random random(number * 0x9E3779B97F4A7C15ull + (part.above_bound_only ? 1 : 0));
    const auto one_of = [&](const auto& list) { return list[static_cast<size_t>(random.below(std::ssize(list)))]; };
    const Family& family = *one_of(families_);
    const std::string order = one_of(family.orders);
    const Kind kind = one_of(kinds_);
    const Shape shape = kShapes[random.below(std::ssize(kShapes))];
    const int64_t count = 1 + random.below(16);
    Call call;
    call.type = family.a;
    call.type_b = family.b;
    call.accumulator = family.accumulator;
    call.rounding = family.rounding;
    call.tensor_core = tensor_core_of(compute_major_of(order), family.a);
    call.seed = number;
    call.records = true;
    call.a = Matrix(shape.n1, shape.n2);
    call.b = Matrix(shape.n2, shape.n3);
    fill_operands(kind, family, number, call.a, call.b);
    const Matrix clean = engine_product(family, order, call.a, call.b);
    std::vector<std::string> injected;
    call.p = faulty_product(family, order, call.a, call.b,
                            "seed = 3\n[[fault]]\nkind = \"accumulator\"\ncount = " + std::to_string(count) +
                                "\nbits = \"" + part.bits + "\"\n",
                            number, &injected);
    const Matrix faulty = call.p;
    if (without_product_) call.skipped = {Kernel::kProduct};
    const Result r = stage::run(call);
    ++all->products;
    std::set<std::pair<int64_t, int64_t>> struck;
    std::map<std::pair<int64_t, int64_t>, double> effects;
    for (const std::string& line : injected) {
      const Json fault = Json::parse(line);
      if (!fault.at("effect").get<bool>()) continue;
      const int64_t row = fault.at("col"), column = fault.at("row");
      if (!struck.insert({row, column}).second) continue;
      ++all->injected;
      effects[{row, column}] = std::fabs(value(faulty, row, column) - value(clean, row, column));
    }
    for (const std::string& line : injected) {
      const Json fault = Json::parse(line);
      const int64_t row = fault.at("col"), column = fault.at("row");
      if (!fault.at("effect").get<bool>() || struck.erase({row, column}) == 0) continue;
      const bool above = fault.at("above_bound");
      if (part.above_bound_only && !above) continue;
      // A flip in an accumulator that is 0, as in padding, leaves less than the smallest normal number.
      if (effects[{row, column}] < 0x1p-126) continue;
      ++all->counted;
      const uint64_t right = all->right;
      judge(call, family, order, kind, clean, faulty, r, fault, effects, all);
      for (const std::string& group : {std::string(family.name), std::string(name_of(kind)), order}) {
        ++all->groups[group].first;
        all->groups[group].second += all->right - right;
      }
    }
    // Nothing else may change.
    for (size_t i = 0; i < clean.values.size(); ++i) {
      const std::pair<int64_t, int64_t> at = {static_cast<int64_t>(i) / shape.n3, static_cast<int64_t>(i) % shape.n3};
      const bool same = std::memcmp(&r.p.values[i], &faulty.values[i], 4) == 0;
      if (!same && effects.count(at) == 0) ++all->accused;
    }
  }

  static double value(const Matrix& m, int64_t row, int64_t column) {
    return static_cast<double>(m.values[static_cast<size_t>(row * m.cols + column)]);
  }

  void judge(const Call& call, const Family& family, const std::string& order, Kind kind, const Matrix& clean,
             const Matrix& faulty, const Result& r, const Json& fault,
             const std::map<std::pair<int64_t, int64_t>, double>& effects, Counted* all) {
    const int64_t row = fault.at("col"), column = fault.at("row");
    const double was = value(clean, row, column), wrong = value(faulty, row, column), now = value(r.p, row, column);
    const double bound = fault.at("bound").is_null() ? 0 : fault.at("bound").get<double>();
    if (std::fabs(now - was) <= bound) {
      ++all->right;
      all->named += std::memcmp(&now, &wrong, sizeof(now)) != 0 ? 1 : 0;
      return;
    }
    // Below what its cells are looked at from, twice for the line (look.h), twice for few addends, twice for the sign
    // of the noise; or beside another one of its class.
    const uint32_t classes = r.params.classes;
    const auto line = static_cast<size_t>(row);
    const size_t cell = (line * classes + static_cast<size_t>(column) % classes) * (kDraws + 1);
    const double width = std::ceil(static_cast<double>(call.b.cols - column % int64_t{classes}) / classes);
    const double scale = std::hypot(static_cast<double>(r.cells[cell + kDraws]), std::sqrt(width * r.params.cell_tiny));
    const double look =
        2.0 * 2.0 * 2.0 * static_cast<double>(r.params.look_scale) * static_cast<double>(r.verdict.sigma) * scale;
    bool beside = false;
    for (const auto& [place, effect] : effects) {
      beside = beside || (place.first == row && place.second != column &&
                          place.second % int64_t{classes} == column % int64_t{classes} && effect > 0);
    }
    if (std::fabs(wrong - was) <= look) {
      ++all->below_look;
    } else if (beside) {
      ++all->hidden;
    } else {
      report("missed", call, family, order, kind, fault, was, wrong, now);
    }
  }

  static void report(const char* what, const Call& call, const Family& family, const std::string& order, Kind kind,
                     const Json& fault, double was, double wrong, double now) {
    std::printf("%s: %s %s %s %" PRId64 "x%" PRId64 "x%" PRId64 " seed %" PRIu64 " %s: %.9g was %.9g, is %.9g\n", what,
                family.name, order.c_str(), name_of(kind), call.a.rows, call.a.cols, call.b.cols, call.seed,
                fault.dump().c_str(), wrong, was, now);
  }

  uint64_t faults_, seed_;
  bool without_product_;
  std::vector<const Family*> families_ = float_families();
  std::vector<Kind> kinds_ = all_kinds();
};

}  // namespace
}  // namespace sdcguard::stage

int main(int argc, char** argv) {
  uint64_t faults = 2000, seed = 1;
  std::string json;
  bool without_product = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : nullptr;
    char* end = nullptr;
    if (word == "--no-product") {
      without_product = true;
      continue;
    }
    if (word == "--faults" && value != nullptr) faults = std::strtoull(value, &end, 10);
    if (word == "--seed" && value != nullptr) seed = std::strtoull(value, &end, 10);
    if (word == "--json" && value != nullptr) {
      json = value;
      end = const_cast<char*>(value) + json.size();
    }
    if (end == nullptr || *end != '\0' || end == value) {
      std::fprintf(stderr, "usage: fault_campaign [--faults N] [--seed N] [--no-product] [--json FILE]\n");
      return 2;
    }
    ++i;
  }
  return sdcguard::stage::FaultCampaign(faults, seed, without_product).run(json);
}

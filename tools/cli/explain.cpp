// SPDX-License-Identifier: MIT
// sdcguard explain: what a check of a given product tests, beyond which values, and what a stated rate of false alarms
// means for a fleet. Plain arithmetic over make_plan(): no GPU, no program.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "kernels/plan.h"
#include "tools/calibrate/fleet.h"
#include "tools/cli/commands.h"
#include "tools/measure/product.h"

namespace sdcguard {
namespace {

using Json = nlohmann::ordered_json;

MatrixView dense(DataType type, int64_t rows, int64_t cols) {
  MatrixView view{};
  view.address = 256;  // of nothing: the plan reads no memory
  view.row_stride = cols;
  view.col_stride = 1;
  view.batch_stride = rows * cols;
  view.type = type;
  return view;
}

// m, n, k in the letters of cuBLAS: the lines of P are the n columns of C.
ProbePlan plan_of(const ProductType& product, const ExplainOptions& options, bool delivered) {
  ProbeRequest request{};
  request.n1 = options.n;
  request.n2 = options.k;
  request.n3 = options.m;
  request.batch = options.batch;
  request.a = dense(product.operands, request.n1, request.n2);
  request.b = dense(product.operands, request.n2, request.n3);
  request.finish.alpha = 1;
  request.delivered = delivered;
  if (delivered) request.p = dense(product.delivered, request.n1, request.n3);
  request.c_apart = true;
  request.mode = delivered ? Mode::kObserve : Mode::kRepair;
  request.rounding = product.rounding;
  request.accumulator = product.accumulator;
  request.reduces_in_16_bits = delivered && element_bytes(product.delivered) == 2;
  request.tensor_core = tensor_core_of(options.compute_capability, product.operands);
  request.sm_count = 1;
  return make_plan(request);
}

double tests_of(const ProbeParams& p) {
  return static_cast<double>(p.lines) * p.classes * p.draws;
}

Json json_of(const ProbePlan& plan) {
  if (!plan.usable()) return {{"usable", false}, {"reason", name_of(plan.reason)}};
  const ProbeParams& p = plan.params;
  Json json = {
      {"usable", true}, {"plan", name_of(p.plan)}, {"lines", p.lines}, {"classes", p.classes}, {"tests", tests_of(p)}};
  if (p.plan == Plan::kExact) return json;
  if (p.plan == Plan::kBlockSums) {
    json["bound_factor"] = p.look_scale;
    json["rate"] = kVerdictRate;
  }
  if (p.plan == Plan::kLine) {
    json["look_threshold_sigma"] = p.look_scale;
    json["sigma_floor"] = p.sigma_floor;
  }
  json["sigma_envelope"] = p.sigma_envelope;
  json["entry_bound_eps"] = p.entry_c_max;
  json["eps_accumulator"] = p.entry_eps_acc;
  json["eps_operands"] = p.entry_eps_in;
  return json;
}

void print_plan(const ProbePlan& plan, const char* heading) {
  printf("\n%s\n", heading);
  if (!plan.usable()) {
    printf("  unverified(%s)\n", name_of(plan.reason));
    return;
  }
  const ProbeParams& p = plan.params;
  printf("  lines            %" PRId64 ", the columns of C, each of %" PRId64 " entries\n", p.lines, p.n3);
  switch (p.plan) {
    case Plan::kRecompute:
      printf("  plan             too small to measure noise on: every line is recomputed\n");
      break;
    case Plan::kExact:
      printf("  plan             exact modulo 2^32: %u weighted sums of a line, any difference is looked at\n",
             p.classes * p.draws);
      return;
    case Plan::kBlockSums:
      printf("  tests            %.0f: %u blocks of %u entries a line, %u sign draws\n", tests_of(p), p.classes,
             kBlockWidth, p.draws);
      printf("  bound            %.2f x sqrt(sum (ulp / 2)^2) of a block, and the accumulation at its envelope\n",
             static_cast<double>(p.look_scale));
      printf("  stated rate      clean rounding passes it in at most %.0e of products (Hoeffding, union bound)\n",
             kVerdictRate);
      break;
    default:
      printf("  cells            %.0f: %u classes of a line, %u sign draws\n", tests_of(p), p.classes, p.draws);
      printf("  looked at        a line with a cell beyond %.2f sigma is recomputed: one clean product in 10,000\n",
             static_cast<double>(p.look_scale));
      printf("  sigma            measured, at least %.2f, at most %.4g units of %s\n",
             static_cast<double>(p.sigma_floor), static_cast<double>(p.sigma_envelope),
             p.p.type == DataType::kF64 ? "2^-53" : "2^-24");
      break;
  }
  const double proven =
      static_cast<double>(p.entry_c_max) * static_cast<double>(p.entry_eps_acc) + static_cast<double>(p.entry_eps_in);
  printf(
      "  entries          named after recomputation, beyond the less of 32 times the line's own scale and\n"
      "                   %.4g sum|A||B|, which no order of summation can leave\n",
      proven);
}

std::string span_of(double days) {
  char text[48];
  const double seconds = days * 86400;
  const auto say = [&](double value, const char* unit) { std::snprintf(text, sizeof text, "%.3g %s", value, unit); };
  if (seconds < 120) {
    say(seconds, "s");
  } else if (seconds < 7200) {
    say(seconds / 60, "min");
  } else if (days < 2) {
    say(days * 24, "h");
  } else if (days < 730) {
    say(days, "days");
  } else {
    say(days / 365.25, "years");
  }
  return text;
}

void print_fleet(const Fleet& fleet, double stated, double tests) {
  printf("\nA fleet of %.0f GPUs with %g checked products a second each: %.4g products a day\n", fleet.gpus,
         fleet.checks_per_second, products_a_day(fleet));
  printf("  where an alarm alone is the verdict, at a rate of false alarms a product of\n");
  printf("  %8s  %18s  %14s  %14s  %22s\n", "rate", "false alarms a day", "one in", "confirmed in",
         tests > 0 ? "threshold of each test" : "");
  double rates[] = {1e-6, 1e-9, 1e-12, 1e-15, stated};
  const size_t known = std::size(rates) - 1;
  const size_t shown = std::find(rates, rates + known, stated) == rates + known ? known + 1 : known;
  for (size_t i = 0; i < shown; ++i) {
    const double alarms = false_alarms_a_day(fleet, rates[i]);
    printf("  %8.3g  %18.4g  %14s  %14s", rates[i], alarms, span_of(1 / alarms).c_str(),
           span_of(products_to_confirm(rates[i]) / products_a_day(fleet)).c_str());
    if (tests > 0) {
      const double p = rate_of_test(rates[i], tests);
      printf("  Gauss %.2f, any %.2f", gaussian_threshold(p), hoeffding_threshold(p));
    }
    printf("%s\n", rates[i] == stated ? "  <" : "");
  }
  printf("  confirmed: so long without an alarm bounds the rate at this figure with 95%% confidence (3 / products).\n");
  if (tests > 0) {
    printf(
        "  threshold: of |x| over its deviation for Gaussian noise; over sqrt(sum of squared bounds) for any noise.\n");
  }
  printf("  sdcguard recomputes a line before it names an entry of it: an alarm of its own tests is no verdict.\n");
}

}  // namespace

int explain_command(const ExplainOptions& options) {
  const ProductType* const product = product_type_named(options.type);
  if (product == nullptr) {
    fprintf(stderr, "sdcguard: explain: --type %s: must be %s\n", options.type.c_str(), kProductTypeNames);
    return 2;
  }
  const Fleet fleet{.gpus = options.gpus, .checks_per_second = options.checks_per_second};
  const ProbePlan upgraded = plan_of(*product, options, false);
  const ProbePlan delivered = plan_of(*product, options, true);
  const double tests = upgraded.usable() ? tests_of(upgraded.params) : 0;
  if (options.json) {
    Json json = {{"m", options.m},
                 {"n", options.n},
                 {"k", options.k},
                 {"batch", options.batch},
                 {"type", options.type},
                 {"compute_capability", options.compute_capability},
                 {"upgraded", json_of(upgraded)},
                 {"delivered", json_of(delivered)}};
    json["fleet"] = {{"gpus", fleet.gpus},
                     {"checks_per_second", fleet.checks_per_second},
                     {"rate", options.rate},
                     {"products_a_day", products_a_day(fleet)},
                     {"false_alarms_a_day", false_alarms_a_day(fleet, options.rate)},
                     {"products_to_confirm", products_to_confirm(options.rate)}};
    printf("%s\n", json.dump(2).c_str());
    return 0;
  }
  printf("A product of m %" PRId64 ", n %" PRId64 ", k %" PRId64 ", batch %" PRId64
         ", %s operands, compute capability %u\n",
         options.m, options.n, options.k, options.batch, options.type.c_str(), options.compute_capability);
  print_plan(upgraded, "Upgraded (modes repair and detect, where the library can): before alpha, beta and epilogue");
  print_plan(delivered, "As delivered (mode observe, or where the upgrade is refused)");
  print_fleet(fleet, options.rate, tests);
  return 0;
}

}  // namespace sdcguard

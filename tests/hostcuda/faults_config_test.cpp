// SPDX-License-Identifier: MIT
// Fault plans: what is accepted and refused, what each kind does to a product, the injection log, repeatability.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/scratch_folder.h"
#include "tools/hostcuda/gemm/bound.h"
#include "tools/hostcuda/gemm/engine.h"
#include "tools/hostcuda/gemm/faults.h"
#include "tools/hostcuda/gemm/matrix.h"

namespace hostcuda::gemm {
namespace {

uint32_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}

class TextLog : public FaultLog {
 public:
  void write(const std::string& line) override {
    EXPECT_EQ(line.back(), '\n');
    lines.push_back(nlohmann::json::parse(line));
  }
  std::vector<nlohmann::json> lines;
};

FaultPlan plan_of(const std::string& text) {
  FaultPlan plan;
  std::string error;
  EXPECT_TRUE(parse_fault_plan(text, "plan", &plan, &error)) << error;
  return plan;
}

std::string error_of(const std::string& text) {
  FaultPlan plan;
  std::string error;
  EXPECT_FALSE(parse_fault_plan(text, "plan.toml", &plan, &error)) << text;
  EXPECT_TRUE(plan.rules.empty());
  EXPECT_EQ(error.find('\n'), std::string::npos) << "one line: " << error;
  return error;
}

// A BF16 product under h100 and what it held before and after injection.
class Bench {
 public:
  Bench(int64_t m, int64_t n, int64_t k, int64_t batch = 1) {
    std::string error;
    EXPECT_TRUE(parse_order("h100", &order, &error));
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    a_.resize(static_cast<size_t>(m * k * batch));
    b_.resize(static_cast<size_t>(k * n * batch));
    for (uint16_t& word : a_) word = static_cast<uint16_t>(bits(normal(generator)) >> 16);
    for (uint16_t& word : b_) word = static_cast<uint16_t>(bits(normal(generator)) >> 16);
    out.resize(static_cast<size_t>(m * n * batch));
    product = Product{m,
                      n,
                      k,
                      batch,
                      {a_.data(), nullptr, m, m * k, Type::kBf16, false},
                      {b_.data(), nullptr, k, k * n, Type::kBf16, false},
                      Compute::kFp32,
                      out.data(),
                      m,
                      m * n,
                      0,
                      {},
                      9,
                      0};
    for (uint8_t i = 0; i < 16; ++i) product.uuid[i] = static_cast<uint8_t>(0xA0 + i);
    compute_product(order, 1, product);
    clean = out;
  }

  uint64_t inject(const std::string& text) { return inject(plan_of(text)); }
  uint64_t inject(const FaultPlan& plan) {
    out = clean;
    product.out = out.data();
    log.lines.clear();
    skipped.clear();
    const uint64_t touched = inject_faults(plan, order, product, &log, &skipped);
    EXPECT_EQ(touched, log.lines.size());
    return touched;
  }

  // (entry, row, col) of every entry with other bits than before.
  std::set<std::array<int64_t, 3>> changed() const {
    std::set<std::array<int64_t, 3>> places;
    for (size_t i = 0; i < out.size(); ++i) {
      if (bits(out[i]) == bits(clean[i])) continue;
      const auto index = static_cast<int64_t>(i);
      const int64_t inside = index % (product.m * product.n);
      places.insert({index / (product.m * product.n), inside % product.m, inside / product.m});
    }
    return places;
  }

  float& at(int64_t row, int64_t col) { return out[static_cast<size_t>(row + col * product.m)]; }
  float clean_at(int64_t row, int64_t col) const { return clean[static_cast<size_t>(row + col * product.m)]; }

  Order order;
  Product product{};
  std::vector<float> out, clean;
  TextLog log;
  std::vector<Skipped> skipped;

 private:
  std::vector<uint16_t> a_, b_;
};

TEST(FaultsConfig, Example_IsAccepted) {
  FaultPlan plan;
  std::string error;
  const std::string path = std::string(SDCGUARD_SOURCE_DIR) + "/tools/hostcuda/gemm/faults.example.toml";
  ASSERT_TRUE(load_fault_plan(path, &plan, &error)) << error;
  std::set<FaultKind> kinds;
  for (const FaultRule& rule : plan.rules) kinds.insert(rule.kind);
  EXPECT_EQ(kinds.size(), 14u) << "the example shows every kind";
}

TEST(FaultsConfig, Setting_TextOrPath) {
  FaultPlan plan;
  std::string error;
  EXPECT_TRUE(load_fault_plan("[[fault]]\nkind = \"nan\"\n", &plan, &error)) << error;
  EXPECT_TRUE(load_fault_plan("fault = [{kind = \"nan\"}]", &plan, &error)) << error;
  EXPECT_FALSE(load_fault_plan("/nowhere/plan.toml", &plan, &error));
  EXPECT_NE(error.find("/nowhere/plan.toml: cannot be opened"), std::string::npos) << error;
}

TEST(FaultsConfig, Errors_NameKeyLineAndWhatIsAllowed) {
  struct Wrong {
    const char* text;
    std::vector<std::string> parts;
  };
  const std::vector<Wrong> wrong = {
      {"", {"plan.toml:1", "[[fault]]"}},
      {"sead = 1\n[[fault]]\nkind=\"nan\"", {"plan.toml:1", "sead", "seed and [[fault]]"}},
      {"seed = -1\n[[fault]]\nkind=\"nan\"", {"plan.toml:1", "seed", "whole number from 0"}},
      {"[[fault]]\nrow = 1", {"kind is missing", "output accumulator stuck word tile nan inf skip"}},
      {"[[fault]]\nkind = \"flip\"", {"plan.toml:2", "kind = \"flip\"", "output accumulator"}},
      {"[[fault]]\nkind = \"nan\"\nrows = 2", {"plan.toml:3", "rows", "kind \"nan\"", "count row"}},
      {"[[fault]]\nkind = \"nan\"\nrwo = 2", {"plan.toml:3", "unknown key rwo"}},
      {"[[fault]]\nkind = \"stuck\"\nbits = 3\nvalue = 1\nrow = 3", {"plan.toml:5", "row", "line_row line_col"}},
      {"[[fault]]\nkind = \"stuck\"\nvalue = 1", {"bits is missing", "0 to 63"}},
      {"[[fault]]\nkind = \"stuck\"\nbits = [1, 2]\nvalue = 1", {"plan.toml:3", "bits", "one bit"}},
      {"[[fault]]\nkind = \"stuck\"\nbits = 1", {"value is missing", "0 or 1"}},
      {"[[fault]]\nkind = \"stuck\"\nbits = 1\nvalue = 1\nline_row = 16", {"plan.toml:5", "line_row = 16", "0 to 15"}},
      {"[[fault]]\nkind = \"output\"\nbits = 64", {"plan.toml:3", "bits = 64", "0 to 63"}},
      {"[[fault]]\nkind = \"output\"\nbits = \"30..20\"", {"plan.toml:3", "bits = \"30..20\"", "lo..hi"}},
      {"[[fault]]\nkind = \"output\"\nbits = [3, 3]", {"plan.toml:3", "bits = 3", "different"}},
      {"[[fault]]\nkind = \"output\"\nbits = []", {"plan.toml:3", "bits"}},
      {"[[fault]]\nkind = \"output\"\nbits = 3\nflips = 2", {"plan.toml:4", "flips = 2", "1 to 1"}},
      {"[[fault]]\nkind = \"output\"\nk_step = 3", {"plan.toml:3", "k_step", "kind \"output\""}},
      {"[[fault]]\nkind = \"accumulator\"\nk_step = -3", {"plan.toml:3", "k_step = -3", "from 0 on"}},
      {"[[fault]]\nkind = \"word\"", {"value is missing", "0x00000000"}},
      {"[[fault]]\nkind = \"word\"\nvalue = \"0xnone\"", {"plan.toml:3", "value = \"0xnone\""}},
      {"[[fault]]\nkind = \"nan\"\ndevice = \"GPU-12\"", {"plan.toml:3", "device", "UUID"}},
      {"[[fault]]\nkind = \"nan\"\nproducts = []", {"plan.toml:3", "products", "lo..hi"}},
      {"[[fault]]\nkind = \"nan\"\nproducts = [1, \"x\"]", {"plan.toml:3", "products = \"x\""}},
      {"[[fault]]\nkind = \"nan\"\nevery = 0", {"plan.toml:3", "every = 0", "from 1 on"}},
      {"[[fault]]\nkind = \"nan\"\nevery = 5\noffset = 5", {"plan.toml:4", "offset = 5", "0 to 4"}},
      {"[[fault]]\nkind = \"nan\"\nprobability = 1.5", {"plan.toml:3", "probability = 1.5", "0 to 1"}},
      {"[[fault]]\nkind = \"nan\"\nprobability = nan", {"plan.toml:3", "probability", "0 to 1"}},
      {"[[fault]]\nkind = \"nan\"\nm = \"=5\"", {"plan.toml:3", "m = \"=5\"", ">=N"}},
      {"[[fault]]\nkind = \"nan\"\ntype = \"fp8\"",
       {"plan.toml:3", "type = \"fp8\"", "bf16 fp16 fp32 tf32 fp64 e4m3 e5m2 e2m1 int8"}},
      {"[[fault]]\nkind = \"nan\"\ncount = 0", {"plan.toml:3", "count = 0", "from 1 on"}},
      {"[[fault]]\nkind = \"nan\"\nrow = \"x\"", {"plan.toml:3", "row = \"x\"", "whole number"}},
      {"[[fault]]\nkind = \"column\"\nrow = 1", {"plan.toml:3", "row", "kind \"column\""}},
      {"[[fault]]\nkind = \"column\"\ndelta = 0", {"plan.toml:3", "delta = 0", "other than 0"}},
      {"[[fault]]\nkind = \"column\"\ndelta = 1.0\nscale = 2.0", {"plan.toml:3", "delta", "no scale"}},
      {"[[fault]]\nkind = \"all\"\nfactor = 4.0\ndelta = 1.0", {"plan.toml:4", "delta = 1", "no factor"}},
      {"[[fault]]\nkind = \"tile\"\nfactor = 4.0", {"plan.toml:3", "factor", "tile"}},
      {"[[fault]]\nkind = \"column\"\nscale = -2.0", {"plan.toml:3", "scale = -2", "above 0"}},
      {"[[fault]]\nkind = \"column\"\nsign = \"opposite\"", {"plan.toml:3", "sign", "same random"}},
      {"[[fault]]\nkind = \"pair\"\nrow = 2\nrow2 = 2", {"plan.toml:4", "row2", "other than row"}},
      {"[[fault]]\nkind = \"nan\"\nrow = ", {"plan.toml:3"}},
      {"fault = 3", {"plan.toml:1", "[[fault]]"}},
  };
  for (const Wrong& one : wrong) {
    const std::string error = error_of(one.text);
    for (const std::string& part : one.parts) {
      EXPECT_NE(error.find(part), std::string::npos) << one.text << "\n  gave: " << error << "\n  lacks: " << part;
    }
  }
}

TEST(FaultsConfig, Match_EveryConditionCounts) {
  Bench bench(32, 16, 32);
  bench.product.index = 12;
  bench.product.device = 1;
  const auto hits = [&](const std::string& condition) {
    return bench.inject("[[fault]]\nkind = \"nan\"\n" + condition) == 1;
  };
  EXPECT_TRUE(hits(""));
  EXPECT_TRUE(hits("device = 1"));
  EXPECT_FALSE(hits("device = 0"));
  EXPECT_TRUE(hits("device = \"GPU-A0A1A2A3-a4a5-a6a7-a8a9-aaabacadaeaf\""));
  EXPECT_FALSE(hits("device = \"GPU-b0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf\""));
  EXPECT_TRUE(hits("products = 12"));
  EXPECT_FALSE(hits("products = 13"));
  EXPECT_TRUE(hits("products = [3, 12]"));
  EXPECT_FALSE(hits("products = [3, 4]"));
  EXPECT_TRUE(hits("products = \"12..12\""));
  EXPECT_FALSE(hits("products = \"13..99\""));
  EXPECT_TRUE(hits("every = 5\noffset = 2"));
  EXPECT_FALSE(hits("every = 5"));
  EXPECT_FALSE(hits("probability = 0.0"));
  EXPECT_TRUE(hits("m = 32\nn = \"<17\"\nk = \">=32\"\nbatch = \"1..2\""));
  EXPECT_FALSE(hits("m = \">32\""));
  EXPECT_FALSE(hits("n = \"<=15\""));
  EXPECT_FALSE(hits("k = 31"));
  EXPECT_TRUE(hits("type = \"bf16\""));
  EXPECT_FALSE(hits("type = \"fp16\""));
  EXPECT_FALSE(hits("row = 32"));
  EXPECT_FALSE(hits("entry = 1"));
}

TEST(FaultsConfig, Match_ProbabilityIsAShareOfProducts) {
  Bench bench(4, 4, 16);
  const FaultPlan plan = plan_of("[[fault]]\nkind = \"nan\"\nprobability = 0.25");
  int64_t hit = 0;
  for (uint64_t index = 0; index < 4000; ++index) {
    bench.product.index = index;
    std::vector<Skipped> none;
    bench.out = bench.clean;
    hit += static_cast<int64_t>(inject_faults(plan, bench.order, bench.product, nullptr, &none));
  }
  // Binomial(4000, 1/4): standard deviation 27.4; eight of them.
  EXPECT_NEAR(static_cast<double>(hit), 1000.0, 8 * 27.4);
}

TEST(FaultsConfig, Random_DependsOnSeedDeviceAndProductAlone) {
  Bench bench(64, 64, 32);
  const auto places = [&](uint64_t index, int32_t device, const std::string& seed) {
    bench.product.index = index;
    bench.product.device = device;
    bench.inject(seed + "[[fault]]\nkind = \"accumulator\"\ncount = 5");
    return bench.out;
  };
  const std::vector<float> first = places(3, 0, "");
  EXPECT_EQ(places(3, 0, ""), first);
  EXPECT_NE(places(4, 0, ""), first);
  EXPECT_NE(places(3, 1, ""), first);
  EXPECT_NE(places(3, 0, "seed = 1\n"), first);
}

TEST(FaultsConfig, Output_FlipsTheChosenBits) {
  Bench bench(32, 16, 32);
  EXPECT_EQ(bench.inject("[[fault]]\nkind = \"output\"\nrow = 5\ncol = 9\nbits = [3, 26]\nflips = 2"), 1u);
  EXPECT_EQ(bits(bench.at(5, 9)), bits(bench.clean_at(5, 9)) ^ (1u << 3 | 1u << 26));
  EXPECT_EQ(bench.changed().size(), 1u);
  std::map<int, int> seen;
  for (uint64_t index = 0; index < 300; ++index) {
    bench.product.index = index;
    ASSERT_EQ(bench.inject("[[fault]]\nkind = \"output\"\nbits = \"20..30\""), 1u);
    ++seen[bench.log.lines[0]["bits"][0].get<int>()];
  }
  EXPECT_EQ(seen.size(), 11u);
  EXPECT_EQ(seen.begin()->first, 20);
  EXPECT_EQ(seen.rbegin()->first, 30);
}

TEST(FaultsConfig, Accumulator_IsTheReplayedSum) {
  Bench bench(32, 16, 96);
  EXPECT_EQ(bench.inject("[[fault]]\nkind = \"accumulator\"\nrow = 7\ncol = 3\nbits = 25\nk_step = 40"), 1u);
  const View a = view_of(bench.product.a, 0);
  const View b = view_of(bench.product.b, 0);
  std::vector<float> x(96);
  std::vector<float> y(96);
  for (int64_t l = 0; l < 96; ++l) {
    x[static_cast<size_t>(l)] = a.at(7, l);
    y[static_cast<size_t>(l)] = b.at(l, 3);
  }
  const AccumulatorFault fault{40, 1u << 25};
  const float expected =
      replay_entry(bench.order, Type::kBf16, Type::kBf16, Compute::kFp32, x.data(), y.data(), 96, &fault);
  EXPECT_EQ(bits(bench.at(7, 3)), bits(expected));
  // Carried on through the sum: not the bit flip of the finished value.
  EXPECT_NE(bits(bench.at(7, 3)), bits(bench.clean_at(7, 3)) ^ (1u << 25));
  EXPECT_EQ(bench.log.lines[0]["k_step"], 40);
  EXPECT_EQ(bench.inject("[[fault]]\nkind = \"accumulator\"\ncount = 40"), 40u);
  std::set<int64_t> k_steps;
  for (const auto& line : bench.log.lines) k_steps.insert(line["k_step"].get<int64_t>());
  EXPECT_GT(k_steps.size(), 10u);
  EXPECT_EQ(bench.inject("[[fault]]\nkind = \"accumulator\"\nk_step = 96"), 0u);
}

TEST(FaultsConfig, Stuck_HitsItsCoordinateLine) {
  Bench bench(40, 20, 32);
  bench.inject("[[fault]]\nkind = \"stuck\"\nline_row = 3\nline_col = 5\nbits = 20\nvalue = 1");
  EXPECT_EQ(bench.log.lines.size(), 3u * 2u);  // rows 3, 19, 35; columns 5, 13
  int64_t without_effect = 0;
  for (const auto& line : bench.log.lines) {
    EXPECT_EQ(line["row"].get<int64_t>() % 16, 3);
    EXPECT_EQ(line["col"].get<int64_t>() % 8, 5);
    const float value = bench.at(line["row"], line["col"]);
    EXPECT_NE(bits(value) & (1u << 20), 0u);
    without_effect += line["effect"].get<bool>() ? 0 : 1;
    EXPECT_EQ(line["effect"].get<bool>(), line["clean_bits"] != line["faulty_bits"]);
  }
  EXPECT_EQ(static_cast<size_t>(without_effect), 6 - bench.changed().size());
  bench.inject("[[fault]]\nkind = \"stuck\"\nbits = 31\nvalue = 0");
  for (const auto& place : bench.changed()) EXPECT_LT(bench.clean_at(place[1], place[2]), 0);
}

TEST(FaultsConfig, Values_WordNanInf) {
  Bench bench(16, 8, 32);
  bench.inject("[[fault]]\nkind = \"word\"\nrow = 1\ncol = 2\nvalue = \"0x7f7fffff\"");
  EXPECT_EQ(bits(bench.at(1, 2)), 0x7F7FFFFFu);
  bench.inject("[[fault]]\nkind = \"word\"\nrow = 1\ncol = 2\nvalue = -2.5");
  EXPECT_EQ(bench.at(1, 2), -2.5f);
  bench.inject("[[fault]]\nkind = \"nan\"\nrow = 1\ncol = 2");
  EXPECT_EQ(bits(bench.at(1, 2)), kCanonicalNan);
  EXPECT_TRUE(bench.log.lines[0]["faulty"].is_null());
  EXPECT_TRUE(bench.log.lines[0]["above_bound"].get<bool>());
  bench.inject("[[fault]]\nkind = \"inf\"\nrow = 1\ncol = 2");
  EXPECT_TRUE(std::isinf(bench.at(1, 2)));
}

TEST(FaultsConfig, Tile_AndSkip) {
  Bench bench(64, 32, 32);
  EXPECT_EQ(bench.inject("[[fault]]\nkind = \"tile\"\nrow = 40\ncol = 20\ndelta = 8.0"), 16u * 8u);
  for (const auto& place : bench.changed()) {
    EXPECT_TRUE(place[1] >= 40 && place[1] < 56 && place[2] >= 20 && place[2] < 28);
    const float moved = std::fabs(bench.at(place[1], place[2]) - bench.clean_at(place[1], place[2]));
    EXPECT_TRUE(moved > 3.9f && moved < 8.1f) << moved;
  }
  EXPECT_EQ(bench.changed().size(), 128u);
  EXPECT_EQ(bench.inject("[[fault]]\nkind = \"skip\"\nrow = 60\ncol = 30\nrows = 16\ncols = 8"), 4u * 2u);
  EXPECT_TRUE(bench.changed().empty()) << "a skipped entry keeps its sum here: the caller leaves D alone";
  ASSERT_EQ(bench.skipped.size(), 1u);
  EXPECT_EQ(bench.skipped[0].row, 60);
  EXPECT_EQ(bench.skipped[0].rows, 4);
  EXPECT_EQ(bench.skipped[0].cols, 2);
  EXPECT_TRUE(bench.log.lines[0]["faulty_bits"].is_null());
}

TEST(FaultsConfig, Wide_RowsColumnsAndAll) {
  Bench bench(24, 12, 32);
  bench.inject("[[fault]]\nkind = \"column\"\ncol = 4\ndelta = 2.0");
  EXPECT_EQ(bench.changed().size(), 24u);
  for (const auto& place : bench.changed()) EXPECT_EQ(place[2], 4);
  bench.inject("[[fault]]\nkind = \"row\"\nrow = 4\nscale = 2.0");
  EXPECT_EQ(bench.changed().size(), 12u);
  for (const auto& place : bench.changed()) EXPECT_EQ(place[1], 4);
  bench.inject("[[fault]]\nkind = \"one_per_column\"");
  std::set<int64_t> columns;
  for (const auto& place : bench.changed()) columns.insert(place[2]);
  EXPECT_EQ(columns.size(), 12u);
  EXPECT_EQ(bench.changed().size(), 12u);
  bench.inject("[[fault]]\nkind = \"one_per_row\"");
  EXPECT_EQ(bench.changed().size(), 24u);
  bench.inject("[[fault]]\nkind = \"all\"\nsign = \"random\"");
  EXPECT_EQ(bench.changed().size(), 24u * 12u);
  bench.inject("[[fault]]\nkind = \"all\"\nfactor = 4.0");
  for (const auto& place : bench.changed()) {
    EXPECT_EQ(bench.at(place[1], place[2]), 4 * bench.clean_at(place[1], place[2]));
  }
}

TEST(FaultsConfig, Pair_CancelsInItsColumn) {
  Bench bench(24, 12, 32);
  ASSERT_EQ(bench.inject("[[fault]]\nkind = \"pair\"\ndelta = 4.0"), 2u);
  const auto& first = bench.log.lines[0];
  const auto& second = bench.log.lines[1];
  EXPECT_EQ(first["col"], second["col"]);
  EXPECT_NE(first["row"], second["row"]);
  const auto moved = [&](const nlohmann::json& line) {
    return bench.at(line["row"], line["col"]) - bench.clean_at(line["row"], line["col"]);
  };
  EXPECT_NEAR(moved(first), 4.0f, 0x1p-18f);  // two roundings of a value below 64
  EXPECT_NEAR(moved(second), -4.0f, 0x1p-18f);
  ASSERT_EQ(bench.inject("[[fault]]\nkind = \"pair\"\ndelta = 4.0\nsign = \"same\"\ncol = 3\nrow = 1\nrow2 = 6"), 2u);
  EXPECT_NEAR(bench.at(1, 3) - bench.clean_at(1, 3), 4.0f, 0x1p-18f);
  EXPECT_NEAR(bench.at(6, 3) - bench.clean_at(6, 3), 4.0f, 0x1p-18f);
}

TEST(FaultsConfig, Batch_EntriesAreChosenAndLogged) {
  Bench bench(8, 8, 16, 4);
  bench.inject("[[fault]]\nkind = \"nan\"\nentry = 2\ncount = 3");
  for (const auto& place : bench.changed()) EXPECT_EQ(place[0], 2);
  bench.inject("[[fault]]\nkind = \"nan\"\ncount = 200");
  std::set<int64_t> entries;
  for (const auto& line : bench.log.lines) entries.insert(line["batch"].get<int64_t>());
  EXPECT_EQ(entries.size(), 4u);
  EXPECT_EQ(bench.changed().size(), bench.log.lines.size()) << "each entry is hit at most once";
}

TEST(FaultsConfig, Log_SaysWhatWasDone) {
  Bench bench(96, 40, 64);
  bench.product.index = 5;
  bench.product.device = 1;
  bench.inject("[[fault]]\nkind = \"accumulator\"\ncount = 30\nbits = \"0..30\"");
  std::set<uint64_t> sequence;
  int64_t above = 0;
  int64_t below = 0;
  for (const auto& line : bench.log.lines) {
    sequence.insert(line["seq"].get<uint64_t>());
    EXPECT_EQ(line["device"], 1);
    EXPECT_EQ(line["uuid"], "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
    EXPECT_EQ(line["product"], 5);
    EXPECT_EQ(line["m"], 96);
    EXPECT_EQ(line["n"], 40);
    EXPECT_EQ(line["k"], 64);
    EXPECT_EQ(line["type_a"], "bf16");
    EXPECT_EQ(line["order"], "h100");
    EXPECT_EQ(line["kind"], "accumulator");
    const int64_t row = line["row"];
    const int64_t col = line["col"];
    const uint32_t clean_bits = static_cast<uint32_t>(std::stoul(line["clean_bits"].get<std::string>(), nullptr, 16));
    const uint32_t faulty_bits = static_cast<uint32_t>(std::stoul(line["faulty_bits"].get<std::string>(), nullptr, 16));
    EXPECT_EQ(clean_bits, bits(bench.clean_at(row, col)));
    EXPECT_EQ(faulty_bits, bits(bench.at(row, col)));
    EXPECT_EQ(bits(line["clean"].get<float>()), clean_bits) << "9 digits are enough for a float";
    const std::vector<double> clean_line(bench.clean.begin() + col * 96, bench.clean.begin() + (col + 1) * 96);
    const double tau = entry_bounds(bench.order, bench.product, 0, col, clean_line)[static_cast<size_t>(row)];
    EXPECT_NEAR(line["bound"].get<double>(), tau, 1e-8 * tau);  // 9 significant digits
    const double difference = std::fabs(static_cast<double>(bench.at(row, col)) - bench.clean_at(row, col));
    EXPECT_EQ(line["above_bound"].get<bool>(), !(difference <= tau));
    EXPECT_EQ(line["effect"].get<bool>(), clean_bits != faulty_bits);
    ++(line["above_bound"].get<bool>() ? above : below);
  }
  EXPECT_EQ(sequence.size(), 30u);
  EXPECT_GT(above, 0);
  EXPECT_GT(below, 0) << "low bits lie under the bound";
}

TEST(FaultsConfig, Log_BoundHoldsForEveryCleanEntryAndIsTight) {
  Bench bench(128, 8, 256);
  for (int64_t col = 0; col < 8; ++col) {
    const std::vector<double> line(bench.clean.begin() + col * 128, bench.clean.begin() + (col + 1) * 128);
    const std::vector<double> tau = entry_bounds(bench.order, bench.product, 0, col, line);
    for (int64_t row = 0; row < 128; ++row) {
      double exact = 0;
      const View a = view_of(bench.product.a, 0);
      const View b = view_of(bench.product.b, 0);
      for (int64_t l = 0; l < 256; ++l) exact += static_cast<double>(a.at(row, l)) * b.at(l, col);
      const double error = std::fabs(exact - line[static_cast<size_t>(row)]);
      EXPECT_LT(error, tau[static_cast<size_t>(row)]);
      // A bound that hid a flip of bit 20 of a value near the root mean square (16) would be useless: 2^4 2^-3.
      EXPECT_LT(tau[static_cast<size_t>(row)], 2.0);
    }
  }
}

TEST(FaultsConfig, Log_FirstCleanValueIsKept) {
  Bench bench(16, 8, 32);
  bench.inject(
      "[[fault]]\nkind = \"word\"\nrow = 1\ncol = 2\nvalue = 5.0\n[[fault]]\nkind = \"output\"\nrow = 1\ncol = 2\n"
      "bits = 4");
  ASSERT_EQ(bench.log.lines.size(), 2u);
  EXPECT_EQ(bench.log.lines[0]["clean_bits"], bench.log.lines[1]["clean_bits"]);
  EXPECT_EQ(bits(bench.at(1, 2)), bits(5.0f) ^ 16u);
}

// The whole way through the environment: plan, exported functions, the log file of HOSTCUDA_FAULT_LOG.
int run_with_plan() {
  setenv("HOSTCUDA_FAULTS",
         "seed = 3\n[[fault]]\nkind = \"nan\"\nrow = 2\ncol = 1\nproducts = 1\n"
         "[[fault]]\nkind = \"skip\"\nrow = 0\ncol = 0\nproducts = 1",
         1);
  std::vector<uint16_t> ones(16 * 16, 0x3F80);
  std::vector<float> out(16 * 16);
  Product product{16,
                  16,
                  16,
                  1,
                  {ones.data(), nullptr, 16, 256, Type::kBf16, false},
                  {ones.data(), nullptr, 16, 256, Type::kBf16, false},
                  Compute::kFp32,
                  out.data(),
                  16,
                  256,
                  0,
                  {},
                  0,
                  0};
  for (uint64_t i = 0; i < 2; ++i) {
    product.index = hostcuda_gemm_next_index(0);
    Outcome outcome{};
    if (hostcuda_gemm_run(&product, &outcome) != Status::kOk) return 10;
    if (product.index != i || outcome.injected != 2 * i || outcome.skipped_count != i) return 11;
    if (std::isnan(out[2 + 16]) != (i == 1) || out[0] != 16.0f) return 12;
    hostcuda_gemm_release(&outcome);
  }
  return 0;
}

TEST(FaultsConfigDeathTest, Environment_PlanAndLog) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const sdcguard::InheritedFile log("HOSTCUDA_FAULT_LOG");
  EXPECT_EXIT(_exit(run_with_plan()), testing::ExitedWithCode(0), "");
  std::ifstream file(log.path());
  std::string line;
  std::vector<std::string> kinds;
  while (std::getline(file, line)) kinds.push_back(nlohmann::json::parse(line)["kind"]);
  EXPECT_EQ(kinds, (std::vector<std::string>{"nan", "skip"}));
}

TEST(FaultsConfigDeathTest, Environment_WrongPlanIsOffOrEndsAStrictProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("HOSTCUDA_FAULTS", "[[fault]]\nkind = \"melt\"", 1);
        hostcuda_gemm_order_name();
        _exit(0);
      },
      testing::ExitedWithCode(0), "HOSTCUDA_FAULTS:2: kind = \"melt\".*allowed: output.*the fault plan is off");
  EXPECT_EXIT(
      {
        setenv("HOSTCUDA_STRICT", "1", 1);
        setenv("HOSTCUDA_FAULTS", "/nowhere/plan.toml", 1);
        hostcuda_gemm_order_name();
        _exit(0);
      },
      testing::ExitedWithCode(86), "/nowhere/plan.toml: cannot be opened");
  EXPECT_EXIT(
      {
        setenv("HOSTCUDA_STRICT", "1", 1);
        setenv("HOSTCUDA_FAULTS", "[[fault]]\nkind = \"nan\"", 1);
        setenv("HOSTCUDA_FAULT_LOG", "/nowhere/log", 1);
        hostcuda_gemm_order_name();
        _exit(0);
      },
      testing::ExitedWithCode(86), "HOSTCUDA_FAULT_LOG: /nowhere/log");
}

}  // namespace
}  // namespace hostcuda::gemm

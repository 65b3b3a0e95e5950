// SPDX-License-Identifier: MIT
// Random calls of every entry point, of every documented type, layout, scalar and epilogue: the host device gives each
// result within the bound of its error analysis; guarded at every call nothing is accused, observe leaves every bit as
// it was, detect and repair stay within the bound; what is not checked is on a list. A planted fault is seen.
//
// RANDOM_CALLS=N: how many (default 400, under ThreadSanitizer 40); RANDOM_SEED=S.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "guarded_program.h"
#include "program.h"

namespace sdcguard::e2e {
namespace {

uint64_t setting(const char* name, uint64_t usual) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::stoull(value) : usual;
}
const uint64_t kCalls = setting("RANDOM_CALLS", kThreadSanitizer ? 40 : 400);
const uint64_t kBareCalls = std::max<uint64_t>(kCalls, 400);  // unguarded ones, which every build has time for
const uint64_t kSeed = setting("RANDOM_SEED", 1);

// A line of the client: what was called, and what came of it.
struct Made {
  std::string text;  // the whole line
  std::string entry;
  std::map<std::string, std::string> keys;
  bool refused() const { return keys.at("status") != "0"; }
  double ratio() const { return std::stod(keys.at("ratio")); }
  int64_t number(const char* key) const { return std::stoll(keys.at(key)); }
  bool has(const char* key, const char* part) const { return keys.at(key).find(part) != std::string::npos; }
};

std::vector<Made> lines_of(const std::string& printed) {
  std::vector<Made> all;
  std::istringstream in(printed);
  for (std::string line; std::getline(in, line);) {
    Made made;
    made.text = line;
    std::istringstream words(line);
    std::string index, word;
    words >> index >> made.entry;
    while (words >> word) {
      const size_t equals = word.find('=');
      if (equals != std::string::npos) made.keys[word.substr(0, equals)] = word.substr(equals + 1);
    }
    all.push_back(made);
  }
  return all;
}

// One for each problem that is a call of its own to the shim: each group of a grouped call.
std::vector<Made> by_group(const std::vector<Made>& lines) {
  std::vector<Made> all;
  for (const Made& line : lines) {
    std::istringstream shapes(line.keys.at("shape")), scalars(line.keys.at("scalars"));
    Made one = line;
    while (std::getline(shapes, one.keys["shape"], '+') && std::getline(scalars, one.keys["scalars"], '+')) {
      all.push_back(one);
    }
  }
  return all;
}

Program random_calls(const std::vector<std::string>& arguments, std::map<std::string, std::string> settings = {}) {
  Program program;
  program.path = std::string(SDCGUARD_BUILD_DIR) + "/clients/random_calls";
  program.arguments = arguments;
  program.settings = std::move(settings);
  return program;
}

// Calls [from, from + count) of the kCalls.
struct Part {
  uint64_t from, count;
};

// As many as a ring keeps the records of, until its program has ended.
std::vector<Part> parts(uint64_t calls = kCalls) {
  constexpr uint64_t kMost = 1000;
  std::vector<Part> all;
  for (uint64_t from = 0; from < calls; from += kMost) all.push_back({from, std::min(kMost, calls - from)});
  return all;
}

Program calls_of(const Part& part, bool exact, std::map<std::string, std::string> settings = {}) {
  std::vector<std::string> arguments = {"--from", std::to_string(part.from), "--calls", std::to_string(part.count),
                                        "--seed", std::to_string(kSeed)};
  if (!exact) arguments.emplace_back("--no-exact");
  return random_calls(arguments, std::move(settings));
}

// Every result within its bound, every gap and input as it was.
void expect_right(const std::vector<Made>& made) {
  int64_t entries = 0, exempt = 0;
  for (const Made& one : made) {
    EXPECT_LE(one.ratio(), 1.0) << one.text;
    EXPECT_EQ(one.number("changed"), 0) << one.text;
    entries += one.number("entries");
    exempt += one.number("exempt");
  }
  EXPECT_GT(entries, static_cast<int64_t>(made.size()) * 1000);
  // Without a bound only where some order of summation overflows.
  EXPECT_LE(exempt * 100, entries);
}

// ---- what may go unchecked --------------------------------------------------------------------------------------

bool has_no_product(const Made& made) {
  std::istringstream numbers(made.keys.at("shape") + "," + made.keys.at("scalars"));
  int64_t m = 0, n = 0, k = 0, count = 0;
  double alpha = 0;
  std::string operations;
  char mark;
  numbers >> m >> mark >> n >> mark >> k >> mark;
  std::getline(numbers, operations, 'x');
  numbers >> count >> mark >> alpha;
  return m == 0 || n == 0 || k == 0 || count == 0 || alpha == 0;
}

bool is_half_accumulator(const Made& made) {
  return made.keys.at("compute").starts_with("16F");
}

bool has_activation(const Made& made) {
  return made.has("epilogue", "relu") || made.has("epilogue", "gelu");
}

bool has_gradient(const Made& made) {
  return made.has("epilogue", "drelu") || made.has("epilogue", "dgelu") || made.has("epilogue", "bgrad");
}

bool is_wide(const Made& made) {
  return made.has("data", "huge") || made.has("data", "tiny") || made.has("data", "powers");
}

bool is_fp8(const Made& made) {
  return made.keys.at("types").starts_with("e");
}

struct Excuse {
  Reason reason;
  const char* modes;
  std::function<bool(const Made&)> holds;
};

// Why a call may be unverified, in which modes, and what a call must be like for it.
const Excuse kExcuses[] = {
    // m, n or k is 0, or alpha is: nothing was multiplied
    {Reason::kEmpty, "observe detect repair", has_no_product},
    // the library itself refused the call, which returned its status
    {Reason::kProductFailed, "observe detect repair", [](const Made& made) { return made.refused(); }},
    // FP16 accumulation where no bound tells a fault from it
    {Reason::kCompute16f, "observe detect repair", is_half_accumulator},
    // 8-bit integers into floats; the finish of FP64 adds no bias
    {Reason::kUnsupportedType, "observe detect repair",
     [](const Made& made) {
       return made.has("types", "i8,i8,f32") || (made.has("types", "f64") && made.has("epilogue", "bias"));
     }},
    // 8-bit results of integers: their rounding hides what the exact check tells
    {Reason::kUnsupportedType, "observe", [](const Made& made) { return made.has("types", "i8,i8,i8"); }},
    // a gradient's epilogue is left to the library; FP16 accumulation has no form without its epilogue
    {Reason::kUnsupportedEpilogue, "observe detect repair",
     [](const Made& made) { return has_gradient(made) || (is_half_accumulator(made) && has_activation(made)); }},
    // as delivered, a product cannot be read back through an activation
    {Reason::kUnsupportedEpilogue, "observe", has_activation},
    // as delivered, through scales or scalars of each row
    {Reason::kUnsupportedAttribute, "observe",
     [](const Made& made) { return is_fp8(made) || made.has("pointers", "vector"); }},
    // scales of each row and column
    {Reason::kUnsupportedAttribute, "detect repair", [](const Made& made) { return made.has("scales", "o"); }},
    // sums beyond the range of the verifier
    {Reason::kRange, "observe detect repair", is_wide},
    // every line has an operand that is not finite
    {Reason::kNonfiniteOperand, "observe detect repair",
     [](const Made& made) { return made.has("data", "nan") || made.has("data", "inf"); }},
};

bool is_excused(const Made& made, Reason reason, const std::string& mode) {
  for (const Excuse& excuse : kExcuses) {
    if (excuse.reason == reason && std::string(excuse.modes).find(mode) != std::string::npos && excuse.holds(made)) {
      return true;
    }
  }
  return false;
}

struct Counts {
  uint64_t calls = 0, checked = 0, looks = 0, refused = 0;
};

// The guarded run of a silent detector: nothing named, each call checked or excused.
void expect_quiet(const Left& left, const std::vector<Made>& lines, const std::string& mode, Counts* counts) {
  const std::vector<Made> made = by_group(lines);
  EXPECT_EQ(left.code, 0);
  EXPECT_EQ(left.errors, "");
  EXPECT_EQ(complete(left, made.size()), "");
  EXPECT_TRUE(left.faults.empty());
  EXPECT_EQ(left.coverage.entries_named, 0u);
  ASSERT_EQ(left.calls.size(), made.size());
  counts->calls += lines.size();
  for (size_t i = 0; i < made.size(); ++i) {
    const CallRecord& call = left.calls[i];
    if (made[i].refused()) ++counts->refused;
    if (call.outcome == Outcome::kUnverified) {
      EXPECT_TRUE(is_excused(made[i], call.reason, mode)) << name_of(call.reason) << ": " << made[i].text;
      continue;
    }
    ++counts->checked;
    EXPECT_TRUE(call.outcome == Outcome::kClean || call.outcome == Outcome::kBenign)
        << name_of(call.outcome) << ": " << made[i].text;
    // A small product is recomputed outright: no look.
    if (call.outcome == Outcome::kBenign && call.plan != Plan::kRecompute) {
      ++counts->looks;
      std::printf("looked at: %s\n", made[i].text.c_str());
    }
  }
}

// All calls were made, and more than half of them checked.
void expect_enough(const Counts& counts, const std::string& mode) {
  std::printf("%s: %llu calls, %llu checked, %llu looked at, %llu refused by the library\n", mode.c_str(),
              static_cast<unsigned long long>(counts.calls), static_cast<unsigned long long>(counts.checked),
              static_cast<unsigned long long>(counts.looks), static_cast<unsigned long long>(counts.refused));
  EXPECT_EQ(counts.calls, kCalls);
  EXPECT_GT(counts.checked * 2, counts.calls);
}

// ---- the runs ---------------------------------------------------------------------------------------------------

TEST(RandomCalls, UnguardedEachIsWithinItsBound) {
  std::map<std::string, int> entries;
  uint64_t calls = 0;
  for (const Part& part : parts(kBareCalls)) {
    const Left left = run(unguarded(calls_of(part, true)));
    EXPECT_EQ(left.code, 0) << left.errors;
    EXPECT_EQ(left.errors, "");
    const std::vector<Made> made = lines_of(left.printed);
    expect_right(made);
    // All of them are documented as supported.
    for (const Made& one : made) {
      EXPECT_FALSE(one.refused()) << one.text;
      ++entries[one.entry];
    }
    calls += made.size();
  }
  EXPECT_EQ(calls, kBareCalls);
  EXPECT_EQ(entries.size(), 33u);
}

// The first group names no stream, since it is empty: the checks of the others run in the handle's all the same.
TEST(RandomCalls, AGroupAfterAnEmptyOneIsCheckedInItsStream) {
  for (const char* starved : {"0", "1", "2", "3", "4", "5"}) {
    for (const char* mode : {"observe", "repair"}) {
      const Left left = run(random_calls({"--call",
                                          "cublasSgemmGroupedBatched shape=4x4x4xnnx0+50x40x60xnnx1 "
                                          "scalars=1,1+1,1"},
                                         {{"SDCGUARD_MODE", mode}, {"HOSTCUDA_STARVE", starved}}));
      EXPECT_EQ(outcomes(left), "unverified(empty) clean") << "stream " << starved << " starved, " << mode;
    }
  }
}

// Grouped products are never redirected: a 16-bit group is repaired where the library put it.
TEST(RandomCalls, AGroupOf16BitProductsIsRepaired) {
  for (const char* type : {"bf16", "f16"}) {
    const std::string name(type);
    const auto once = [&name](const char* mode, const char* faults) {
      return run(random_calls({"--call",
                               "cublasGemmGroupedBatchedEx shape=50x40x60xnnx1+70x80x90xtnx2 "
                               "scalars=1,0+0.5,1 types=" +
                                   name + "," + name + "," + name + "," + name},
                              {{"SDCGUARD_MODE", mode}, {"HOSTCUDA_FAULTS", faults}}));
    };
    const auto ratio = [](const Left& left) { return lines_of(left.printed).at(0).ratio(); };
    const char* wrong = "seed = 11\n[[fault]]\nkind = \"tile\"\nrows = 2\ncols = 2\nscale = 32";
    EXPECT_EQ(outcomes(once("repair", "")), "clean clean");
    EXPECT_GT(ratio(once("off", wrong)), 1.0);
    EXPECT_GT(ratio(once("detect", wrong)), 1.0);
    const Left left = once("repair", wrong);
    EXPECT_EQ(outcomes(left), "corrected corrected");
    EXPECT_LE(ratio(left), 1.0);
  }
}

// Of the first 10,000 calls these were beyond a bound that did not know that a tensor core aligns products of subnormal
// operands as coarsely as those of normal ones, or that half of FP64's last subnormal place is no double.
TEST(RandomCalls, SubnormalOperandsAreWithinTheirBounds) {
  for (const char* call :
       {"cublasSgemmEx_64 shape=8x300x96xcnx1 scalars=1,-0.5 types=f16,f16,f32,f32 math=whole pad=0,0,8,0 "
        "offset=0,0,0,2 spread=interleaved,zero,apart data=huge,tiny,gauss seed=202055550696956",
        "cublasGemmStridedBatchedEx shape=208x81x94xctx2 scalars=0.67982935905456543,-0.12787680327892303 "
        "types=f16,f16,f32,f32 pad=0,6,0,8 offset=0,0,1,6 data=tiny,huge,integers seed=93393370014866",
        "cublasLtMatmul shape=155x159x148xnnx1 types=f16,f16,f16,f16 data=huge,tiny,huge",
        "cublasDgemmGroupedBatched shape=248x60x27xttx3 scalars=-0.0088,-0.44 types=f64,f64,f64,f64 compute=64F "
        "scale=f64 data=huge,tiny,sparse"}) {
    for (const char* mode : {"off", "repair"}) {
      SCOPED_TRACE(std::string(mode) + " " + call);
      const std::vector<Made> made = lines_of(run(random_calls({"--call", call}, {{"SDCGUARD_MODE", mode}})).printed);
      ASSERT_EQ(made.size(), 1u);
      EXPECT_FALSE(made[0].refused());
      EXPECT_LE(made[0].ratio(), 1.0) << made[0].text;
      EXPECT_EQ(made[0].number("exempt"), 0);
    }
  }
}

TEST(RandomCalls, ObservedEachIsBitIdentical) {
  Counts counts;
  for (const Part& part : parts()) {
    const std::vector<Made> bare = lines_of(run(unguarded(calls_of(part, false))).printed);
    const Left left = run(calls_of(part, false, {{"SDCGUARD_MODE", "observe"}}));
    const std::vector<Made> made = lines_of(left.printed);
    expect_quiet(left, made, "observe", &counts);
    ASSERT_EQ(made.size(), bare.size());
    for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i].text, bare[i].text);
  }
  expect_enough(counts, "observe");
}

class Guarded : public testing::TestWithParam<const char*> {};

TEST_P(Guarded, EachIsWithinItsBound) {
  const std::string mode = GetParam();
  Counts counts;
  for (const Part& part : parts()) {
    const Left left = run(calls_of(part, true, {{"SDCGUARD_MODE", mode}}));
    const std::vector<Made> made = lines_of(left.printed);
    expect_quiet(left, made, mode, &counts);
    expect_right(made);
  }
  expect_enough(counts, mode);
}

INSTANTIATE_TEST_SUITE_P(RandomCalls, Guarded, testing::Values("detect", "repair"));

// upgrade = "site": a call that is not checked gives the bits that it gives when it is.
TEST(RandomCalls, UpgradedBySiteEachIsTheSameCheckedOrNot) {
  uint64_t upgraded = 0;
  for (const Part& part : parts()) {
    const auto by = [&part](const char* rate) {
      return run(calls_of(part, false, {{"SDCGUARD_UPGRADE", "site"}, {"SDCGUARD_RATE", rate}}));
    };
    const Left checked = by("1"), unchecked = by("0");
    EXPECT_TRUE(unchecked.calls.empty());
    EXPECT_EQ(unchecked.errors, "");
    const std::vector<Made> made = lines_of(unchecked.printed), expected = lines_of(checked.printed);
    ASSERT_EQ(made.size(), expected.size());
    for (size_t i = 0; i < made.size(); ++i) EXPECT_EQ(made[i].text, expected[i].text);
    uint64_t of_checked = 0;
    for (const CallRecord& call : checked.calls) of_checked += call.upgraded != 0 ? 1 : 0;
    EXPECT_EQ(unchecked.coverage.upgraded, of_checked);
    upgraded += of_checked;
  }
  EXPECT_GT(upgraded * 2, kCalls);
}

// ---- a planted fault is seen ------------------------------------------------------------------------------------

// Of the calls that every mode checks one for each tuple of types; four wrong entries in the product of each.
TEST(RandomCalls, APlantedFaultIsSeen) {
  const std::vector<Made> made = lines_of(run(unguarded(calls_of(parts(kBareCalls)[0], false))).printed);
  std::map<std::string, size_t> chosen;
  for (size_t i = 0; i < made.size(); ++i) {
    const Made& one = made[i];
    const bool checked = by_group({one}).size() == 1 && !has_no_product(one) && one.has("epilogue", "default") &&
                         one.keys.at("scales") == "---" && !is_fp8(one) && !is_half_accumulator(one) &&
                         !one.has("pointers", "vector") && !one.has("types", "i8,i8,f32") &&
                         !one.has("types", "i8,i8,i8");
    const bool finite = !is_wide(one) && !one.has("data", "nan") && !one.has("data", "inf");
    if (checked && finite) chosen.emplace(one.keys.at("types"), i);
  }
  EXPECT_GE(chosen.size(), 6u);
  for (const auto& [types, index] : chosen) {
    // Off by 16 to 32 times the entries' root mean square.
    const std::string faults = "seed = 11\n[[fault]]\nkind = \"tile\"\nproducts = 0\nrows = 2\ncols = 2\nscale = 32";
    const auto once = [&, number = index](const char* mode) {
      Program program =
          random_calls({"--calls", "1", "--from", std::to_string(number), "--seed", std::to_string(kSeed)},
                       {{"HOSTCUDA_FAULTS", faults}, {"SDCGUARD_MODE", mode}});
      return mode[0] == 'o' && mode[1] == 'f' ? unguarded(program) : program;
    };
    const auto ratio = [](const Left& left) { return lines_of(left.printed).at(0).ratio(); };
    SCOPED_TRACE(made[index].text);
    EXPECT_GT(ratio(run(once("off"))), 1.0);
    EXPECT_EQ(outcomes(run(once("observe"))), "corrupt");
    const Left left = run(once("repair"));
    EXPECT_EQ(outcomes(left), "corrected");
    EXPECT_LE(ratio(left), 1.0);
  }
}

}  // namespace
}  // namespace sdcguard::e2e

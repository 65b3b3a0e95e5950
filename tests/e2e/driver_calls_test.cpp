// SPDX-License-Identifier: MIT
// What a warm sampled call asks of the driver: DESIGN.md section 9 allows 6 launches and 12 other calls, none of which
// waits, asks, allocates, frees, loads or copies; and the host never learns whether the call was dirty.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "guarded_program.h"

namespace sdcguard::e2e {
namespace {

constexpr size_t kLaunches = 6;
constexpr size_t kOthers = 12;
constexpr int kCalls = 4;

using Calls = std::vector<std::string>;

// The shim's driver calls of each guarded call, in order. A guarded call begins by asking for the current context, and
// so does warm-up at handle creation, which the program does before its first product.
std::vector<Calls> calls_of_products(const Left& left) {
  std::vector<Calls> groups;
  for (const TracedCall& call : left.trace) {
    if (call.runtime) continue;
    if (call.name == "cuCtxGetCurrent") groups.emplace_back();
    if (!groups.empty()) groups.back().push_back(call.name);
  }
  if (groups.size() > kCalls) groups.erase(groups.begin(), groups.end() - kCalls);
  return groups;
}

bool is_banned(const std::string& name) {
  // All that may wait for the device or for another thread's use of it, beside what asks about it.
  constexpr const char* kParts[] = {"Synchronize", "Query",     "Alloc",   "Free",    "Library", "Module",
                                    "Memcpy",      "Memset",    "Create",  "Destroy", "Elapsed", "Register",
                                    "GetFunction", "Attribute", "GetInfo", "Primary", "Push",    "SetCurrent"};
  return std::any_of(std::begin(kParts), std::end(kParts),
                     [&name](const char* part) { return name.find(part) != std::string::npos; });
}

struct Api {
  const char* name;
  const char* arguments;
  size_t launches;  // fold, operand, product, recompute, repair, and finish where it could not be fused
};

void PrintTo(const Api& api, std::ostream* out) {
  *out << api.name;
}

class DriverCalls : public testing::TestWithParam<Api> {};

TEST_P(DriverCalls, KeepTheBudgetCleanAndDirty) {
  const std::string arguments =
      std::string(GetParam().arguments) + " --m 128 --n 128 --k 64 --calls " + std::to_string(kCalls);
  const Left clean = run(gemm(arguments), {.driver_calls = true});
  // An upgraded product that is hit in one entry, in many, in all.
  const Left dirty = run(gemm(arguments, {{"HOSTCUDA_FAULTS",
                                           "[[fault]]\nkind = \"accumulator\"\nbits = 29\nproducts = [1, 2]\n"
                                           "[[fault]]\nkind = \"row\"\nproducts = 2\n"
                                           "[[fault]]\nkind = \"all\"\nsign = \"random\"\nproducts = 3\n"}}),
                         {.driver_calls = true});
  EXPECT_EQ(outcomes(clean), times(kCalls, "clean"));
  EXPECT_EQ(outcomes(dirty), "clean " + times(kCalls - 1, "corrected"));
  const std::vector<Calls> of_clean = calls_of_products(clean), of_dirty = calls_of_products(dirty);
  ASSERT_EQ(of_clean.size(), size_t{kCalls});
  ASSERT_EQ(of_dirty.size(), size_t{kCalls});
  for (size_t i = 1; i < kCalls; ++i) {
    const Calls& calls = of_clean[i];
    const auto launches = static_cast<size_t>(std::count(calls.begin(), calls.end(), "cuLaunchKernel"));
    EXPECT_EQ(launches, GetParam().launches);
    EXPECT_LE(launches, kLaunches);
    EXPECT_LE(calls.size() - launches, kOthers);
    EXPECT_EQ(std::count_if(calls.begin(), calls.end(), is_banned), 0);
    EXPECT_EQ(calls, of_clean[1]);
    EXPECT_EQ(calls, of_dirty[i]);
  }
  // The first call of a stream makes its scratch; the ban above is able to fail.
  EXPECT_GT(std::count_if(of_clean[0].begin(), of_clean[0].end(), is_banned), 0);
}

INSTANTIATE_TEST_SUITE_P(Warm, DriverCalls,
                         testing::Values(Api{"GemmEx", "--api gemmex", 5}, Api{"GemmExInPlace", "--beta 1", 6},
                                         Api{"Strided", "--api strided --batch 2", 5}, Api{"Sgemm", "--api sgemm", 5},
                                         Api{"LtGeluBias", "--api lt --epilogue gelu_bias", 5}),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace sdcguard::e2e

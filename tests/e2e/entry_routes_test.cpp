// SPDX-License-Identifier: MIT
// Every product entry with every type that it takes by every route into cuBLAS, on the host device: the result is the
// product, and the call passed the shim exactly once and was checked; or, on the routes that go around it, not at all,
// and no ring says otherwise. tools/coverage_table.py makes its table of the lines that begin with "cell".
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "clients/entry_types.h"
#include "guarded_program.h"
#include "program.h"
#include "shim/entry.h"

namespace sdcguard::e2e {
namespace {

const std::string kClients = std::string(SDCGUARD_BUILD_DIR) + "/clients/";

// "SYMBOL@TYPE", every one.
std::vector<std::string> product_entries() {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < kEntryCount; ++i) {
    if (kEntryKinds[i] != EntryKind::kProduct) continue;
    for (const EntryType* type : entry_types(kEntryNames[i])) {
      names.push_back(std::string(kEntryNames[i]) + "@" + type->name);
    }
  }
  return names;
}

struct Route {
  const char* name;
  const char* program;
  int seen = 1;  // times that one entry passes the shim. 0: stated to go around it
};

void PrintTo(const Route& route, std::ostream* out) {
  *out << route.name;
}

Program by_route(const Route& route, const std::vector<std::string>& entries) {
  Program program;
  // A sanitizer's dlopen does not search the run path of its caller.
  program.settings["LD_LIBRARY_PATH"] = std::string(SDCGUARD_BUILD_DIR) + "/lib/hostcuda:" + kClients;
  if (std::string(route.program) == "python3") {
    program.path = "/usr/bin/python3";
    program.arguments = {std::string(SDCGUARD_SOURCE_DIR) + "/tests/e2e/clients/routes_ctypes.py",
                         kClients + "libroute_caller.so"};
    program.arguments.insert(program.arguments.end(), entries.begin(), entries.end());
    if (kThreadSanitizer) program.preload_before = "libtsan.so.2";  // its TLS has no room in a process that runs
    return program;
  }
  program.path = kClients + route.program;
  program.arguments = {"--route", route.name};
  for (const std::string& entry : entries) program.arguments.insert(program.arguments.end(), {"--entry", entry});
  return program;
}

class EntryRoutes : public testing::TestWithParam<Route> {};

TEST_P(EntryRoutes, EachCallIsRightAndSeenOnce) {
  const Route& route = GetParam();
  const std::vector<std::string> entries = product_entries();
  std::string all_right;
  for (const std::string& entry : entries) all_right += entry + " 0\n";
  const Left native = run(unguarded(by_route(route, entries)));
  const Left left = run(by_route(route, entries));
  EXPECT_EQ(native.printed, all_right);
  EXPECT_EQ(native.code, 0);
  EXPECT_EQ(left.printed, all_right);
  EXPECT_EQ(left.errors, native.errors);
  EXPECT_EQ(left.code, 0);
  // Calls come in order, `seen` of them an entry.
  const auto times = static_cast<size_t>(route.seen);
  if (times == 0) {
    // But for what libcublas itself takes to the public cublasLtMatmul, where its own references are not bound away.
    for (const CallRecord& call : left.calls) {
      EXPECT_EQ(static_cast<Entry>(call.entry), Entry::kLtMatmul);
      EXPECT_EQ(call.type_a, DataType::kI8);
    }
  } else {
    EXPECT_EQ(complete(left, entries.size() * times), "");
    ASSERT_EQ(left.calls.size(), entries.size() * times);
  }
  EXPECT_EQ(left.coverage.entries_named, 0u);
  for (size_t i = 0; i < entries.size(); ++i) {
    bool checked = true;
    for (size_t j = i * times; j < (i + 1) * times; ++j) {
      const CallRecord& call = left.calls[j];
      EXPECT_EQ(name_of(static_cast<Entry>(call.entry)), entries[i].substr(0, entries[i].find('@')));
      checked = checked && call.outcome == Outcome::kClean;
      EXPECT_TRUE(checked) << entries[i] << ": " << name_of(call.outcome) << " " << name_of(call.reason);
    }
    std::printf("cell %s %s %s\n", entries[i].c_str(), route.name,
                !checked     ? "not_checked"
                : times == 0 ? "goes_around"
                             : "checked");
  }
}

std::vector<Route> routes() {
  std::vector<Route> all = {
      {"linked", "routes_linked"},    // the program's own PLT
      {"local_plugin", "routes"},     // the PLT of a library loaded RTLD_LOCAL
      {"lazy_plugin", "routes"},      // its names bound at the first call
      {"handle", "routes"},           // dlsym on the library's handle
      {"other_handle", "routes"},     // on the handle of one that was linked to it: Triton
      {"default", "routes"},          // dlsym(RTLD_DEFAULT)
      {"plugins_next", "routes"},     // a third library's RTLD_NEXT
      {"plugins_default", "routes"},  // and its RTLD_DEFAULT
      {"ctypes", "python3"},          //
      {"hidden", "routes"},           // hidden lazy trampolines: XLA, TensorFlow
      {"redefined", "routes"},        // a library that defines the names itself: CTranslate2
      {"defines", "routes_defines"},  // a program that does
      {"cast_handle", "routes"},      // a cublasHandle_t given to cublasLtMatmul: FlashInfer
      {"reopened", "routes"},         // dlclose and dlopen between products
      {"both_majors", "routes", 2},   // libcublas.so.12 and .13 in turn
      {"version", "routes", 0}        // dlvsym is not hooked: no user of it is known
  };
  // RTLD_DEEPBIND finds its own libraries first. A sanitizer's runtime ends a program that asks for it.
  if (!kInstrumented) all.push_back({"deepbind_plugin", "routes", 0});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Route, EntryRoutes, testing::ValuesIn(routes()),
                         [](const auto& of) { return std::string(of.param.name); });

// What a route is judged by is able to fail: on the routes around the shim nothing is seen.
TEST(EntryRoutes_MustFail, WithoutTheShimNothingIsSeen) {
  Program program = by_route({"handle", "routes"}, product_entries());
  program.settings["LD_PRELOAD"] = "";
  EXPECT_NE(complete(run(program), product_entries().size()), "");
}

}  // namespace
}  // namespace sdcguard::e2e

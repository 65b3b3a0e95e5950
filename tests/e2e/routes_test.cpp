// SPDX-License-Identifier: MIT
// Every way into cuBLAS, over stub libraries of two majors: each call reaches its own untouched function with its own
// arguments and passes the shim exactly once. Under a recording shim, which tells what it saw, and under the shipped
// one, whose ring must have counted the calls.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "program.h"
#include "sdcguard/ring.h"
#include "tests/scratch_folder.h"

namespace sdcguard {
namespace {

using e2e::Ended;
using e2e::run_program;

const std::string kClients = std::string(SDCGUARD_BUILD_DIR) + "/clients";

std::string with_shim(const std::string& shim, const std::string& settings, const std::string& client) {
  return "env LD_LIBRARY_PATH=" + kClients + " LD_PRELOAD=" + shim + " " + settings + " " + kClients + "/" + client;
}

std::string recording(const std::string& settings, const std::string& client) {
  return with_shim(kClients + "/libroutes_shim.so", "ROUTES_RECORDER=1 " + settings, client);
}

struct Route {
  const char* name;
  uint64_t products;  // calls that the shim must have seen, over all processes of the route
};

void PrintTo(const Route& route, std::ostream* out) {
  *out << route.name;
}

class Routes : public testing::TestWithParam<Route> {};

TEST_P(Routes, PassTheRecordingShimOnce) {
  const Ended ended = run_program(recording("", std::string("client_dl ") + GetParam().name));
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.output, "ok\n");
}

uint64_t calls_in_rings(const std::filesystem::path& folder) {
  uint64_t calls = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(file.path(), std::ios::binary);
    std::vector<char> head(kLanesOffset);
    if (!in.read(head.data(), static_cast<std::streamsize>(head.size()))) continue;
    RingHeader header;
    memcpy(&header, head.data(), sizeof(header));
    if (header.magic != kRingMagic) continue;
    for (uint32_t i = 0; i < kMaxThreads; ++i) {
      ThreadCounters counters;
      memcpy(&counters, head.data() + kThreadsOffset + i * sizeof(counters), sizeof(counters));
      calls += counters.calls_seen;
    }
  }
  return calls;
}

TEST_P(Routes, PassTheShippedShimAndAreCounted) {
  const ScratchFolder folder;
  // No GPU is behind the stubs, so every call is unverified, passed through, and counted.
  const Ended ended = run_program(with_shim(std::string(SDCGUARD_BUILD_DIR) + "/lib/libsdcguard.so",
                                            "SDCGUARD_EVERY=1 SDCGUARD_RING_DIR=" + folder.path(),
                                            std::string("client_dl ") + GetParam().name));
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.output, "ok\n");
  EXPECT_EQ(calls_in_rings(folder.path()), GetParam().products);
}

INSTANTIATE_TEST_SUITE_P(Interposition, Routes,
                         testing::Values(Route{"local", 1}, Route{"other_handle", 1}, Route{"default_absent", 0},
                                         Route{"default_global", 1}, Route{"next", 1}, Route{"tail_jump", 0},
                                         Route{"two_majors", 6}, Route{"handle_decides", 9}, Route{"depth", 1},
                                         Route{"redefined", 2}, Route{"errors", 1}, Route{"threads", 1600},
                                         Route{"fork", 2}, Route{"reload", 40}),
                         [](const auto& route) { return std::string(route.param.name); });

TEST(Routes_Plt, ArgumentsArriveBitForBit) {
  for (const char* settings : {"", "ROUTES_UNSAMPLED=1"}) {
    const Ended ended = run_program(recording(settings, "client_plt original"));
    EXPECT_EQ(ended.output, "ok\n") << settings;
    EXPECT_EQ(ended.code, 0);
  }
}

// 32 products and every observed entry, through the wrapper and back out of it, in each form and width.
TEST(Routes_Plt, ArgumentsOfEveryEntryArriveBitForBit) {
  const Ended ended = run_program(recording("", "client_plt every"));
  EXPECT_EQ(ended.output, "ok\n");
  EXPECT_EQ(ended.code, 0);
}

TEST(Routes_Plt, UpgradedProductsGoToScratchAndMutateNothing) {
  const Ended ended = run_program(recording("ROUTES_UPGRADE=1", "client_plt upgrade"));
  EXPECT_EQ(ended.output, "ok\n");
  EXPECT_EQ(ended.code, 0);
}

TEST(Routes_Orphan, WithoutACublasTheWrapperSaysNotInitialized) {
  const Ended ended = run_program(recording("", "client_orphan"));
  EXPECT_EQ(ended.output, "ok\n");
  EXPECT_EQ(ended.code, 0);
}

// The recorder is what the routes lean on: without a shim they must fail.
TEST(Routes_MustFail, WithoutAShimNothingIsSeen) {
  const Ended ended =
      run_program("env LD_LIBRARY_PATH=" + kClients + " ROUTES_RECORDER=1 " + kClients + "/client_dl local");
  EXPECT_EQ(ended.code, 1);
}

}  // namespace
}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Processes that never touch CUDA inherit the preload: they print what they would print without it, end as they would,
// and leave no ring behind.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "program.h"
#include "tests/scratch_folder.h"

namespace sdcguard::e2e {
namespace {

namespace fs = std::filesystem;

const std::string kShim = std::string(SDCGUARD_BUILD_DIR) + "/lib/libsdcguard.so";

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// `script` in a bash of its own, `preload` in front of every process that it starts.
Ended run_bash(const std::string& script, const std::string& preload, const std::string& rings) {
  return run_program("env LD_PRELOAD=" + preload + " SDCGUARD_RING_DIR=" + rings + " bash -c " + quoted(script));
}

class ChildProcess : public testing::TestWithParam<const char*> {};

TEST_P(ChildProcess, EndsAsItWouldAndPrintsNothingMore) {
  const ScratchFolder folder;
  const std::string rings = folder / "rings";
  const Ended bare = run_bash(GetParam(), "", rings), preloaded = run_bash(GetParam(), kShim, rings);
  EXPECT_EQ(preloaded.output, bare.output);
  EXPECT_EQ(preloaded.code, bare.code);
  EXPECT_FALSE(fs::exists(rings)) << "a ring was made by a process without a product";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr const char* kNarrow = "ulimit -v unlimited; ls / >/dev/null; echo $?";  // a sanitizer maps terabytes
#else
constexpr const char* kNarrow = "ulimit -v 200000; ls / >/dev/null; echo $?";
#endif

INSTANTIATE_TEST_SUITE_P(
    Bash, ChildProcess,
    testing::Values("true", "exit 7", "bash -c 'bash -c \"exit 9\"; exit $?'", "echo out; echo err >&2; (exit 3)",
                    "set -o pipefail; echo a | tr a b | cat; false | true", "kill -TERM $$", "kill -SEGV $$",
                    "/no/such/program; echo $?", "trap 'echo ended' EXIT; exec bash -c 'exit 5'",
                    "(sleep 0.05; exit 4) & wait $!; echo $?; wait", kNarrow, "ulimit -n 3; exec 3>&-; exit 6",
                    "cd / && ls | sort | head -n 3",
                    "python3 -c 'import ctypes, os, sys; sys.exit(os.WEXITSTATUS(os.system(\"exit 8\")))'",
                    "env -i bash -c 'echo $LD_PRELOAD; exit 2'"));

// The comparison is able to fail: the loader's own complaint about a preload that it cannot open is seen.
TEST(ChildProcess_MustFail, AnExtraLineIsSeen) {
  const Ended bare = run_bash("exit 7", "", "/nowhere"), warned = run_bash("exit 7", "/no/such/library.so", "/nowhere");
  EXPECT_NE(warned.output, bare.output);
  EXPECT_EQ(warned.code, 7);
}

}  // namespace
}  // namespace sdcguard::e2e

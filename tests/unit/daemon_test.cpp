// SPDX-License-Identifier: MIT
// Tests of sdcguardd, the program itself, over forged rings: every record once, the final drain, hostile rings, sinks
// that fail, and the ways it ends.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "ring_forge.h"
#include "tests/scratch_folder.h"

extern char** environ;

namespace sdcguard {
namespace {

using nlohmann::json;

class Daemon {
 public:
  // Standard error goes to /dev/null.
  explicit Daemon(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), std::string(SDCGUARD_BUILD_DIR) + "/bin/sdcguardd");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Daemon() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  void stop() { kill(pid_, SIGTERM); }

  // Exit code; -1 where it did not start or was killed.
  int wait() {
    int status = 0;
    if (pid_ <= 0 || waitpid(pid_, &status, 0) != pid_) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
};

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (in.eof()) break;  // no newline yet: the daemon is writing it
    lines.push_back(json::parse(line));
  }
  return lines;
}

std::map<std::string, int> types_of(const std::vector<json>& lines) {
  std::map<std::string, int> count;
  for (const json& line : lines) ++count[line["type"].get<std::string>()];
  return count;
}

const json* find(const std::vector<json>& lines, const char* type) {
  for (const json& line : lines) {
    if (line["type"] == type) return &line;
  }
  return nullptr;
}

// Waits until the file has that many call lines; a loaded machine may take seconds to start a program.
bool has_calls(const std::string& path, int calls) {
  for (int i = 0; i < 1200; ++i) {
    if (types_of(lines_of(path))["call"] >= calls) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  return false;
}

pid_t dead_pid() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

void fill(ForgedRing& ring) {
  for (uint64_t t = 0; t < 10; ++t) ring.put(2, t, forged_call(t, t == 4 ? Outcome::kCorrected : Outcome::kClean));
  ring.put(3, 0, forged_fault(4, 17, 23));
  ring.thread(0).calls_seen = 200;
  ring.thread(0).calls_sampled = 10;
  ring.thread(0).calls_launched = 10;
}

TEST(Daemon_Once, WritesEveryRecordAndPutsADeadRingAway) {
  ScratchFolder folder;
  ForgedRing ring(folder.path(), dead_pid());
  fill(ring);
  ring.publish();
  const std::string out = folder.path() + "/out.jsonl";
  EXPECT_EQ(Daemon({"--once", "--ring-dir", folder.path(), "--jsonl", out}).wait(), 0);
  const std::vector<json> lines = lines_of(out);
  auto types = types_of(lines);
  EXPECT_EQ(types["call"], 10);
  EXPECT_EQ(types["fault"], 1);
  EXPECT_EQ(types["device"], 1);
  EXPECT_EQ(types["process"], 2);
  EXPECT_EQ(types["lost"], 0);
  const json& fault = *find(lines, "fault");
  EXPECT_EQ(fault["row"], 17);
  EXPECT_EQ(fault["column"], 23);
  EXPECT_EQ(fault["m"], 384);
  EXPECT_EQ(fault["k"], 1536);
  EXPECT_EQ(fault["got_bits"], "0x42c10000");
  EXPECT_EQ(fault["uuid"], "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
  EXPECT_EQ(fault["rank"], 3);
  EXPECT_EQ(fault["repaired"], true);
  const json& coverage = *find(lines, "coverage");
  EXPECT_EQ(coverage["final"], true);
  EXPECT_EQ(coverage["seen"]["calls"], 200);
  EXPECT_EQ(coverage["outcomes"]["clean"]["calls"], 9);
  EXPECT_EQ(coverage["outcomes"]["corrected"]["calls"], 1);
  EXPECT_EQ(coverage["outcomes"]["not_sampled"]["calls"], 190);
  EXPECT_EQ(coverage["lower_bound"], false);
  EXPECT_FALSE(std::filesystem::exists(ring.path()));
}

TEST(Daemon_Once, KeepsWhatItIsToldToAndWhatLives) {
  ScratchFolder folder;
  ForgedRing dead(folder.path(), dead_pid(), "00000001");
  ForgedRing alive(folder.path(), getpid(), "00000002");
  fill(dead);
  fill(alive);
  dead.publish();
  alive.publish();
  const std::string out = folder.path() + "/out.jsonl";
  EXPECT_EQ(Daemon({"--once", "--keep", "--ring-dir", folder.path(), "--jsonl", out}).wait(), 0);
  EXPECT_EQ(types_of(lines_of(out))["call"], 20);
  EXPECT_TRUE(std::filesystem::exists(dead.path()));
  EXPECT_EQ(Daemon({"--once", "--ring-dir", folder.path()}).wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(dead.path()));
  EXPECT_TRUE(std::filesystem::exists(alive.path()));
}

TEST(Daemon_Lost, IsSaidAndMakesCoverageALowerBound) {
  ScratchFolder folder;
  ForgedRing ring(folder.path(), dead_pid());
  for (uint64_t t = 0; t < kCallSlots + 50; ++t) ring.put(2, t, forged_call(t));
  ring.thread(0).calls_launched = kCallSlots + 50;
  ring.publish();
  const std::string out = folder.path() + "/out.jsonl";
  EXPECT_EQ(Daemon({"--once", "--ring-dir", folder.path(), "--jsonl", out}).wait(), 0);
  const std::vector<json> lines = lines_of(out);
  const json* lost = find(lines, "lost");
  ASSERT_NE(lost, nullptr);
  EXPECT_EQ((*lost)["lost"], 50);
  const json& coverage = *find(lines, "coverage");
  EXPECT_EQ(coverage["lower_bound"], true);
  EXPECT_EQ(coverage["outstanding"], 50);
}

TEST(Daemon_Running, FollowsAndDrainsBeforeItStops) {
  ScratchFolder folder;
  const std::string out = folder.path() + "/out.jsonl";
  Daemon daemon({"--ring-dir", folder.path() + "/rings", "--jsonl", out, "--interval-ms", "20"});
  std::filesystem::create_directory(folder.path() + "/rings");
  ForgedRing ring(folder.path() + "/rings");
  fill(ring);
  ring.publish();
  ASSERT_TRUE(has_calls(out, 10));
  ring.put(2, 10, forged_call(99));
  ring.publish();
  daemon.stop();
  EXPECT_EQ(daemon.wait(), 0);
  const std::vector<json> lines = lines_of(out);
  EXPECT_EQ(types_of(lines)["call"], 11);
  EXPECT_EQ(lines.back()["type"], "coverage");
  EXPECT_TRUE(std::filesystem::exists(ring.path()));
}

TEST(Daemon_Idle, ExitsWhenTheLastProcessHasEnded) {
  ScratchFolder folder;
  int hold[2];
  ASSERT_EQ(pipe2(hold, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(hold[1]);
    _exit(read(hold[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(hold[0]);
  ForgedRing ring(folder.path(), child);
  fill(ring);
  ring.publish();
  const std::string out = folder.path() + "/out.jsonl";
  Daemon daemon({"--exit-when-idle", "--ring-dir", folder.path(), "--jsonl", out, "--interval-ms", "20"});
  ASSERT_TRUE(has_calls(out, 10));
  // Killed in the middle of a record: what was committed is read, the unfinished one is counted.
  ring.put(2, 10, forged_call(100));
  ring.put(2, 11, forged_call(101));
  ring.slot(2, 11)[31] = 0;
  ring.publish();
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(daemon.wait(), 0);
  close(hold[1]);
  const std::vector<json> lines = lines_of(out);
  EXPECT_EQ(types_of(lines)["call"], 11);
  EXPECT_EQ((*find(lines, "lost"))["torn"], 1);
  EXPECT_FALSE(std::filesystem::exists(ring.path()));
}

TEST(Daemon_Hostile, BadRingsAreLeftAloneAndOthersRead) {
  ScratchFolder folder;
  ForgedRing bad(folder.path(), dead_pid(), "00000001");
  bad.header().file_bytes = 17;
  bad.publish();
  std::ofstream(folder.path() + "/text.ring") << std::string(20000, 'x');
  std::ofstream(folder.path() + "/empty.ring");
  std::filesystem::create_directory(folder.path() + "/folder.ring");
  ASSERT_EQ(mkfifo((folder.path() + "/pipe.ring").c_str(), 0600), 0);
  ForgedRing good(folder.path(), dead_pid(), "00000002");
  strcpy(good.header().command, "evil\x1b[31m\n\xff\xfe");
  fill(good);
  good.publish();
  const std::string out = folder.path() + "/out.jsonl";
  EXPECT_EQ(Daemon({"--once", "--ring-dir", folder.path(), "--jsonl", out}).wait(), 0);
  const std::vector<json> lines = lines_of(out);
  EXPECT_EQ(types_of(lines)["call"], 10);
  EXPECT_EQ((*find(lines, "process"))["command"], "evil?[31m???");
  EXPECT_TRUE(std::filesystem::exists(bad.path()));
}

TEST(Daemon_Sink, ThatFailsIsOffAndTheRingStays) {
  ScratchFolder folder;
  ForgedRing ring(folder.path(), dead_pid());
  fill(ring);
  ring.publish();
  EXPECT_EQ(Daemon({"--once", "--ring-dir", folder.path(), "--jsonl", "/dev/full"}).wait(), 1);
  EXPECT_TRUE(std::filesystem::exists(ring.path()));
  EXPECT_EQ(Daemon({"--once", "--ring-dir", folder.path(), "--jsonl", folder.path() + "/no/such"}).wait(), 2);
}

TEST(Daemon_Options, WrongOnesAreRefused) {
  EXPECT_NE(Daemon({"--interval-ms", "0"}).wait(), 0);
  EXPECT_NE(Daemon({"--tea"}).wait(), 0);
  setenv("SDCGUARD_EVERY", "0", 1);
  EXPECT_EQ(Daemon({"--once"}).wait(), 2);
  unsetenv("SDCGUARD_EVERY");
}

}  // namespace
}  // namespace sdcguard

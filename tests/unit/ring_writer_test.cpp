// SPDX-License-Identifier: MIT
// stage record, host side: the ring file is whole when it gets its name, and dead rings never fill shared memory.
#include "shim/ring_writer.h"
#include "tests/scratch_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace sdcguard {
namespace {

namespace fs = std::filesystem;

class RingFolder {
 public:
  Config config() const {
    Config config;
    config.ring_dir = folder_.path();
    return config;
  }
  std::vector<std::string> rings() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.push_back(entry.path().filename());
    return names;
  }
  void touch(const std::string& name, int age_seconds = 0) const {
    const fs::path path = folder_ / name;
    std::ofstream(path) << "ring";
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(age_seconds));
  }
  bool has(const std::string& name) const { return fs::exists(folder_ / name); }

 private:
  const ScratchFolder folder_{"/dev/shm"};
};

uint64_t own_namespace() {
  struct stat info = {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

// No process has this start time, so the name's process is dead whatever its pid.
std::string dead_name(int i) {
  char name[128];
  std::snprintf(name, sizeof(name), "%llu-%d-1-%08x.ring", static_cast<unsigned long long>(own_namespace()), 1 + i, i);
  return name;
}

TEST(RingWriter, FileIsWholeAndPrivate) {
  const RingFolder folder;
  RingWriter writer;
  writer.open(folder.config());
  ASSERT_TRUE(writer.is_open());
  ASSERT_EQ(folder.rings().size(), 1u);
  struct stat info = {};
  ASSERT_EQ(stat((folder.config().ring_dir + "/" + folder.rings()[0]).c_str(), &info), 0);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size), kRingBytes);
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, kRingBytes) << "space not reserved: a store could fault later";
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(RingWriter, OldestDeadRingsMakeRoom) {
  const RingFolder folder;
  for (int i = 0; i < static_cast<int>(kMostRings) + 5; ++i) folder.touch(dead_name(i), 1000 - i);
  const std::string foreign = "1-7-1-0000abcd.ring";  // of another pid namespace: nobody here can say that it is dead
  folder.touch(foreign);
  folder.touch("notes.txt");
  RingWriter writer;
  writer.open(folder.config());
  ASSERT_TRUE(writer.is_open());
  size_t rings = 0;
  for (const std::string& name : folder.rings()) rings += name.ends_with(".ring") ? 1 : 0;
  EXPECT_EQ(rings, kMostRings);
  EXPECT_FALSE(folder.has(dead_name(0)));
  EXPECT_TRUE(folder.has(dead_name(static_cast<int>(kMostRings) + 4)));
  EXPECT_TRUE(folder.has(foreign));
  EXPECT_TRUE(folder.has("notes.txt"));
}

TEST(RingWriter, LivingRingsAreNeverRemoved) {
  const RingFolder folder;
  std::vector<std::string> foreign;
  for (uint32_t i = 0; i < kMostRings; ++i) {
    char name[64];
    std::snprintf(name, sizeof(name), "1-%u-1-%08x.ring", i + 1, i);
    folder.touch(name);
    foreign.emplace_back(name);
  }
  RingWriter writer;
  writer.open(folder.config());
  // No room and nothing dead: the ring is anonymous, the checks go on.
  EXPECT_TRUE(writer.is_open());
  EXPECT_EQ(folder.rings().size(), foreign.size());
}

}  // namespace
}  // namespace sdcguard

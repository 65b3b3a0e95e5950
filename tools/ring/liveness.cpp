// SPDX-License-Identifier: MIT
// Liveness: takes the identity that a ring carries, says whether its writer still runs; runs in readers.
#include "tools/ring/liveness.h"

#include <dirent.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace sdcguard {
namespace {

struct ProcessStat {
  char state = 0;
  uint64_t start_ticks = 0;
};

// False: no such process, or it cannot be read.
bool read_stat(const std::string& pid, ProcessStat* out) {
  FILE* file = fopen(("/proc/" + pid + "/stat").c_str(), "re");
  if (file == nullptr) return false;
  char text[1024];
  const size_t length = fread(text, 1, sizeof(text) - 1, file);
  fclose(file);
  text[length] = '\0';
  // The command in field 2 may hold blanks and brackets: count from its last bracket, after which field 3 stands.
  const char* cursor = strrchr(text, ')');
  if (cursor == nullptr || cursor[1] != ' ') return false;
  out->state = cursor[2];
  for (int field = 2; cursor != nullptr && field < 22; ++field) cursor = strchr(cursor + 1, ' ');
  if (cursor == nullptr) return false;
  out->start_ticks = strtoull(cursor + 1, nullptr, 10);
  return true;
}

uint64_t namespace_of(const std::string& pid) {
  struct stat info = {};
  return stat(("/proc/" + pid + "/ns/pid").c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_ino) : 0;
}

// The number that a process has in its own, innermost namespace: the last one of the NSpid line.
int32_t innermost_pid(const std::string& pid) {
  FILE* file = fopen(("/proc/" + pid + "/status").c_str(), "re");
  if (file == nullptr) return 0;
  char line[512];
  int32_t found = 0;
  while (fgets(line, sizeof(line), file) != nullptr) {
    if (strncmp(line, "NSpid:", 6) != 0) continue;
    const char* last = strrchr(line, '\t');
    if (last != nullptr) found = atoi(last + 1);
    break;
  }
  fclose(file);
  return found;
}

Liveness judged(const ProcessStat& stat, const ProcessIdentity& identity) {
  const bool same = stat.start_ticks == identity.start_ticks && stat.state != 'Z' && stat.state != 'X';
  return same ? Liveness::kAlive : Liveness::kDead;
}

Liveness search_other_namespaces(const ProcessIdentity& identity) {
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return Liveness::kUnknown;
  bool namespace_seen = false;
  Liveness result = Liveness::kUnknown;
  while (const dirent* entry = readdir(proc)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    const std::string pid = entry->d_name;
    if (namespace_of(pid) != identity.pid_namespace) continue;
    namespace_seen = true;
    if (innermost_pid(pid) != identity.pid) continue;
    ProcessStat stat;
    result = read_stat(pid, &stat) ? judged(stat, identity) : Liveness::kDead;
    break;
  }
  closedir(proc);
  // Its namespace can be looked into and the process is not there. An unseen namespace may be gone or hidden.
  if (result == Liveness::kUnknown && namespace_seen) return Liveness::kDead;
  return result;
}

}  // namespace

uint64_t own_pid_namespace() {
  return namespace_of("self");
}

uint64_t start_ticks_of(int32_t pid) {
  ProcessStat stat;
  return read_stat(std::to_string(pid), &stat) ? stat.start_ticks : 0;
}

ProcessIdentity identity_of(int32_t pid) {
  const std::string name = std::to_string(pid);
  return {innermost_pid(name), namespace_of(name), start_ticks_of(pid)};
}

Liveness liveness_of(const ProcessIdentity& identity) {
  if (identity.pid <= 0) return Liveness::kUnknown;
  const uint64_t own = own_pid_namespace();
  if (own == 0) return Liveness::kUnknown;
  if (own != identity.pid_namespace) return search_other_namespaces(identity);
  ProcessStat stat;
  if (!read_stat(std::to_string(identity.pid), &stat)) return Liveness::kDead;
  return judged(stat, identity);
}

}  // namespace sdcguard

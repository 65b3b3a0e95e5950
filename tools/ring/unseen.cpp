// SPDX-License-Identifier: MIT
// Processes that carry the shim and CUDA but have no ring.
#include "tools/ring/unseen.h"

#include <dirent.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace sdcguard {
namespace {

struct Mapped {
  bool shim = false, cuda = false, cublas = false;
};

Mapped mapped_by(const std::string& pid) {
  Mapped mapped;
  std::ifstream maps("/proc/" + pid + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string file = line.substr(slash + 1);
    mapped.shim = mapped.shim || file.rfind("libsdcguard.so", 0) == 0;
    mapped.cuda = mapped.cuda || file.rfind("libcuda.so", 0) == 0;
    mapped.cublas = mapped.cublas || file.rfind("libcublas", 0) == 0;
  }
  return mapped;
}

std::string command_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/cmdline", std::ios::binary);
  std::string command;
  std::getline(file, command, '\n');
  std::replace(command.begin(), command.end(), '\0', ' ');
  while (!command.empty() && command.back() == ' ') command.pop_back();
  return command;
}

}  // namespace

std::vector<UnseenProcess> unseen_processes(const std::vector<ProcessIdentity>& rings) {
  std::vector<UnseenProcess> unseen;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return unseen;
  while (const dirent* entry = readdir(proc)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    const std::string pid = entry->d_name;
    const Mapped mapped = mapped_by(pid);
    if (!mapped.shim || !mapped.cuda) continue;
    const ProcessIdentity identity = identity_of(atoi(entry->d_name));
    const bool seen = std::any_of(rings.begin(), rings.end(), [&identity](const ProcessIdentity& ring) {
      return ring.pid == identity.pid && ring.pid_namespace == identity.pid_namespace &&
             ring.start_ticks == identity.start_ticks;
    });
    if (!seen) unseen.push_back({atoi(entry->d_name), command_of(pid), mapped.cublas});
  }
  closedir(proc);
  return unseen;
}

const char* reason_unseen(const UnseenProcess& process) {
  return process.has_cublas
             ? "cuBLAS is loaded and nothing of it came through sdcguard: no handle was made yet, mode is "
               "off, its reports are kept elsewhere, or its calls go around (RTLD_DEEPBIND, dlvsym, "
               "the first API of cublas.h)"
             : "CUDA is loaded and no cuBLAS: kernels of its own, or a cuBLAS linked into the program, are "
               "out of reach";
}

}  // namespace sdcguard

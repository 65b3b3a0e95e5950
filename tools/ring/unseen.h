// SPDX-License-Identifier: MIT
// Processes that carry the shim and CUDA but have no ring: nothing of theirs was seen, and a reader must say so instead
// of being silent about them. Found in /proc, so that the shim itself does nothing in a process before its first
// handle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/ring/liveness.h"

namespace sdcguard {

struct UnseenProcess {
  int32_t pid = 0;      // as this reader sees it
  std::string command;  // blanks for zeros
  // libcublas or libcublasLt is mapped. False: what the process multiplies goes through no cuBLAS, or through one that
  // was linked into the program.
  bool has_cublas = false;
};

// Every process that this reader may look into, with libsdcguard.so and libcuda.so.1 mapped, but for those of `rings`.
// Reads the maps of each once.
std::vector<UnseenProcess> unseen_processes(const std::vector<ProcessIdentity>& rings);

// Why nothing was seen of it, in words for people.
const char* reason_unseen(const UnseenProcess& process);

}  // namespace sdcguard

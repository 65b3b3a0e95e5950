// SPDX-License-Identifier: MIT
// Guarded run: runs one cuBLAS program on the host device, plain or under the shim with its daemon, and gives what the
// daemon wrote. The demo and the selftest are made of these.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/installation.h"
#include "tools/cli/subprocess.h"

namespace sdcguard {

struct GuardedRun {
  std::vector<std::string> argv;
  bool guarded = false;
  std::string mode = "repair";  // of a guarded run; every call is checked
  uint64_t seed = 0;            // SDCGUARD_SEED of a guarded run
  std::string faults;           // HOSTCUDA_FAULTS. Empty: none
  std::string order;            // HOSTCUDA_ORDER. Empty: the host device's default
  std::string name;             // of the run's files in the folder: <name>.out .err .jsonl .injected
  int timeout_s = 900;
};

struct GuardedResult {
  int exit_code = -1;  // of the program; -1: it could not be run, `error` says why
  std::string error;
  std::string output, jsonl, injected;  // paths; jsonl and injected exist where there was a daemon, or faults
};

// Blocks until the program and the daemon have ended; the daemon is stopped after the program, drains and is checked.
GuardedResult run_guarded(const Installation& pieces, const RunFolder& folder, const GuardedRun& run);

}  // namespace sdcguard

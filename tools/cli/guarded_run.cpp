// SPDX-License-Identifier: MIT
// Guarded run: runs one cuBLAS program on the host device, plain or under the shim with its daemon, and gives what the
// daemon wrote.
#include "tools/cli/guarded_run.h"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace sdcguard {
namespace {

constexpr int kDaemonStartMs = 60'000;  // a loaded machine may take seconds to start a program

}  // namespace

GuardedResult run_guarded(const Installation& pieces, const RunFolder& folder, const GuardedRun& run) {
  GuardedResult result;
  result.output = folder / (run.name + ".out");
  result.jsonl = folder / (run.name + ".jsonl");
  result.injected = folder / (run.name + ".injected");
  const std::string errors = folder / (run.name + ".err");
  const std::string rings = folder / (run.name + ".rings");
  std::filesystem::create_directory(rings);

  Command program;
  program.argv = run.argv;
  program.environment = plain_environment();
  program.environment["LD_LIBRARY_PATH"] = pieces.hostcuda;
  if (!run.order.empty()) program.environment["HOSTCUDA_ORDER"] = run.order;
  if (!run.faults.empty()) {
    program.environment["HOSTCUDA_FAULTS"] = run.faults;
    program.environment["HOSTCUDA_FAULT_LOG"] = result.injected;
  }
  program.stdout_path = result.output;
  program.stderr_path = errors;

  Subprocess daemon;
  if (run.guarded) {
    program.environment["LD_PRELOAD"] = pieces.shim;
    // An empty file, not what this machine's own says.
    const std::string config = folder / (run.name + ".toml");
    std::ofstream{config};
    program.environment["SDCGUARD_CONFIG"] = config;
    program.environment["SDCGUARD_MODE"] = run.mode;
    program.environment["SDCGUARD_EVERY"] = "1";
    program.environment["SDCGUARD_SEED"] = std::to_string(run.seed);
    program.environment["SDCGUARD_RING_DIR"] = rings;
    Command watch;
    watch.argv = {pieces.daemon,   "--ring-dir", rings,         "--jsonl", result.jsonl,
                  "--interval-ms", "50",         "--log-level", "error"};
    watch.environment = plain_environment();
    watch.stdout_path = watch.stderr_path = folder / (run.name + ".daemon");
    if (!daemon.start(watch)) {
      result.error = daemon.error();
      return result;
    }
    // Its output is there once it is ready to be stopped; without it the program would run unread.
    for (int waited_ms = 0; !std::filesystem::exists(result.jsonl); waited_ms += 10) {
      if (waited_ms >= kDaemonStartMs) {
        result.error = "sdcguard: sdcguardd did not start\n" + tail_of(watch.stderr_path, 5);
        return result;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  result.exit_code = run_to_end(program, run.timeout_s, &result.error);
  if (result.exit_code != 0 && result.error.empty()) {
    result.error =
        "sdcguard: " + run.argv[0] + " ended with " + std::to_string(result.exit_code) + "\n" + tail_of(errors, 5);
  }
  if (run.guarded) {
    // The daemon makes one more pass after this and reads what the dead process left.
    daemon.send(SIGTERM);
    const int ended = daemon.wait(60);
    if (ended != 0) {
      result.exit_code = -1;
      result.error = "sdcguard: sdcguardd ended with " + std::to_string(ended) + "\n" +
                     tail_of(folder / (run.name + ".daemon"), 5);
    }
  }
  return result;
}

}  // namespace sdcguard

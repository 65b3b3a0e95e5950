// SPDX-License-Identifier: MIT
// Commands of the command line: each takes its options and gives the program's exit code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sdcguard {

// Exit codes of every command: 0 done (or passed), 1 not passed, 2 wrong usage, configuration or installation.
struct RunOptions {
  std::string config, mode, every, rate, seed, ring_dir;  // empty: as the environment says
  bool hostcuda = false;
  std::vector<std::string> program;
};
// Validates the configuration, then becomes the program with the shim preloaded; returns only where that failed:
// 2, or 126 / 127 as a shell does where the program cannot be started.
int run_command(const RunOptions& options);

struct TailOptions {
  std::string ring_dir;
  bool jsonl = false, follow = false, all = false;
};
int tail_command(const TailOptions& options);

int status_command(const std::string& ring_dir, bool json);

// mode_word: "off", or "on" for as configured.
int control_command(const std::string& ring_dir, int pid, bool on);

int config_command();

int selftest_command();

struct DemoOptions {
  int seeds = 1;
  int first_seed = 1;
  int faults = 6;  // injected into each product
  std::string model, sentences;
  bool json = false;
};
int demo_command(const DemoOptions& options);

struct ExplainOptions {
  int64_t m = 4096, n = 4096, k = 4096, batch = 1;  // in cuBLAS's letters
  std::string type = "bf16";                        // of the operands
  uint32_t compute_capability = 9;                  // major
  double rate = 1e-15;                              // false alarms a product
  double gpus = 16000, checks_per_second = 100;     // of the fleet; of each GPU
  bool json = false;
};
int explain_command(const ExplainOptions& options);

struct CalibrateOptions {
  int device = 0;
  bool hostcuda = false;            // the host device's libraries instead of the system's
  std::string type = "bf16";        // of the operands
  std::vector<std::string> shapes;  // "MxNxK"; empty: those of the device's size
  std::vector<std::string> kinds;   // of data; empty: all
  uint64_t cells = 6'000'000;       // to measure
  double rate = 1e-15;              // false alarms a product
  uint64_t seed = 1;
  bool ring = false;  // calls of guarded processes instead of products of its own
  std::string ring_dir;
  double seconds = 60;        // of reading rings
  std::string profile, plot;  // files to write; empty: none
  bool json = false;
};
int calibrate_command(const CalibrateOptions& options);

struct CheckOptions {
  std::vector<int> devices;         // empty: all
  bool hostcuda = false;            // the host device's libraries instead of the system's
  std::vector<std::string> shapes;  // "MxNxK"; empty: those of the device's size
  std::string profile;              // of `sdcguard calibrate`; empty: none
  std::string memory;               // to test on each device, a size; empty: nine tenths of what is free
  double minutes = 5;               // on each device
  uint64_t seed = 1;
  std::string evidence = ".";  // folder
  bool json = false;
};
// Exit code: 0 PASS, 1 FAIL, 2 INCONCLUSIVE (and wrong usage, no device), 3 SUSPECT, 4 INCOMPLETE.
int check_command(const CheckOptions& options);

// `given`, or ring_dir of the configuration; empty after printing what is wrong with it.
std::string ring_dir_or_default(const std::string& given);

}  // namespace sdcguard

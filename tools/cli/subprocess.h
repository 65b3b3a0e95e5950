// SPDX-License-Identifier: MIT
// Subprocess: starts programs with an environment of their own, waits for them, and owns the folder of a run.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace sdcguard {

// The caller's environment without what would change a run behind its back: LD_PRELOAD, SDCGUARD_*, HOSTCUDA_*.
std::map<std::string, std::string> plain_environment();

struct Command {
  std::vector<std::string> argv;  // argv[0] is a path
  std::map<std::string, std::string> environment;
  std::string stdout_path, stderr_path;  // made or cut; empty: the caller's own
};

class Subprocess {
 public:
  Subprocess() = default;
  ~Subprocess();  // kills and reaps one that still runs
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  // False: error() is one line.
  bool start(const Command& command);
  const std::string& error() const { return error_; }

  void send(int signal_number) const;

  // Waits for the end, at most that long; past it the process is killed. Exit code, 128 + signal, or -1: never started.
  int wait(int timeout_s);

 private:
  pid_t pid_ = -1;
  std::string error_;
};

// start() and wait(); -1 where it could not be started, with `error` set.
int run_to_end(const Command& command, int timeout_s, std::string* error);

// A folder of its own in shared memory (else /tmp), removed with all it holds.
class RunFolder {
 public:
  RunFolder();
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  bool good() const { return !path_.empty(); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The last lines of a file, for an error message.
std::string tail_of(const std::string& path, size_t lines);

}  // namespace sdcguard

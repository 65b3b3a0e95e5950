// SPDX-License-Identifier: MIT
// Watcher: takes a folder of rings, attaches every one, drains them pass by pass into the sink, and puts a ring away
// when its process has ended. One thread; time is passed in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "tools/daemon/sink.h"
#include "tools/ring/coverage.h"
#include "tools/ring/fault_join.h"
#include "tools/ring/ring_reader.h"

namespace sdcguard {

struct WatcherOptions {
  std::string ring_dir;
  bool keep = false;  // leave the rings of ended processes where they are
};

class Watcher {
 public:
  Watcher(WatcherOptions options, JsonlSink& sink);
  ~Watcher();

  // One round: looks for new rings, drains all, ends those whose process is dead (its liveness is read before the last
  // drain, so that nothing it wrote is missed), flushes the sink. now_ns: CLOCK_MONOTONIC.
  void pass(uint64_t now_ns);

  // Writes a coverage line for each ring still attached; for the end of the daemon.
  void report();

  size_t attached() const { return rings_.size(); }
  size_t ever_attached() const { return ever_attached_; }

 private:
  class Watched;
  void look_for_rings();

  WatcherOptions options_;
  JsonlSink& sink_;
  std::map<std::string, std::unique_ptr<Watched>> rings_;
  std::set<std::string> set_aside_;  // paths that are done with or were refused, while they are in the folder
  size_t ever_attached_ = 0;
  bool sink_failure_logged_ = false;
};

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// sdcguardd: reads the rings of every guarded process in a folder and writes what they say as JSON lines.
#include <poll.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <string>

#include "config/config.h"
#include "tools/daemon/sink.h"
#include "tools/daemon/watcher.h"

namespace {

volatile sig_atomic_t g_stop = 0;

void on_stop(int) {
  g_stop = 1;
}

uint64_t monotonic_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

int run(int argc, char** argv) {
  CLI::App app("Reads the rings of every guarded process on the node and writes JSON lines", "sdcguardd");
  std::string jsonl, ring_dir, log_level = "info";
  int interval_ms = 200;
  bool once = false, exit_when_idle = false, keep = false;
  app.add_option("--jsonl", jsonl, "Write JSON lines to this file (appended), or to standard output for \"-\"");
  app.add_option("--ring-dir", ring_dir, "Folder of the rings; default: ring_dir of the configuration");
  app.add_option("--interval-ms", interval_ms, "Time between two looks, milliseconds")
      ->check(CLI::Range(1, 60000))
      ->capture_default_str();
  app.add_option("--log-level", log_level, "Own log on standard error")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  app.add_flag("--once", once, "Drain what is there and exit");
  app.add_flag("--exit-when-idle", exit_when_idle, "Exit once at least one process was seen and all have ended");
  app.add_flag("--keep", keep, "Leave the rings of ended processes in the folder");
  CLI11_PARSE(app, argc, argv);

  spdlog::set_default_logger(spdlog::stderr_color_mt("sdcguardd"));
  spdlog::set_level(spdlog::level::from_str(log_level));

  if (ring_dir.empty()) {
    const sdcguard::ConfigResult loaded = sdcguard::load_config();
    if (!loaded.ok()) {
      fprintf(stderr, "%s\n", loaded.error.c_str());
      return 2;
    }
    ring_dir = loaded.config.ring_dir;
  }
  // Before the output is made: who sees that file may send a stop signal. A wait ends at once on one: they are blocked
  // but for ppoll, so that none slips in before it.
  struct sigaction action = {};
  action.sa_handler = on_stop;
  sigset_t stops, found;
  sigemptyset(&stops);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    sigaction(number, &action, nullptr);
    sigaddset(&stops, number);
  }
  sigprocmask(SIG_BLOCK, &stops, &found);
  sigdelset(&found, SIGTERM);
  sigdelset(&found, SIGINT);
  sigdelset(&found, SIGHUP);
  signal(SIGPIPE, SIG_IGN);

  sdcguard::JsonlSink sink;
  if (!jsonl.empty() && !sink.open(jsonl)) {
    fprintf(stderr, "sdcguardd: %s: %s\n", jsonl.c_str(), sink.error().c_str());
    return 2;
  }

  sdcguard::Watcher watcher({ring_dir, keep}, sink);
  spdlog::info("watching {}", ring_dir);
  const timespec interval = {interval_ms / 1000, interval_ms % 1000 * 1'000'000l};
  while (true) {
    // A stop asked for before this pass began ends the loop after it: whatever was written by then is read.
    const bool last = once || g_stop != 0;
    watcher.pass(monotonic_ns());
    if (last || (exit_when_idle && watcher.ever_attached() > 0 && watcher.attached() == 0)) break;
    ppoll(nullptr, 0, &interval, &found);
  }
  watcher.report();
  spdlog::info("done: {} processes seen, {} still attached", watcher.ever_attached(), watcher.attached());
  return jsonl.empty() || sink.good() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fprintf(stderr, "sdcguardd: %s\n", error.what());
    return 1;
  }
}

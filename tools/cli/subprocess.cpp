// SPDX-License-Identifier: MIT
// Subprocess: starts programs with an environment of their own, waits for them, and owns the folder of a run.
#include "tools/cli/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>

extern char** environ;

namespace sdcguard {

std::map<std::string, std::string> plain_environment() {
  std::map<std::string, std::string> kept;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == text.npos || text.starts_with("LD_PRELOAD=")) continue;
    if (text.starts_with("SDCGUARD_") || text.starts_with("HOSTCUDA_")) continue;
    kept[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return kept;
}

Subprocess::~Subprocess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Subprocess::start(const Command& command) {
  std::vector<std::string> arguments = command.argv, variables;
  std::vector<char*> argv, envp;
  for (const auto& [name, value] : command.environment) variables.push_back(name + "=" + value);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
  if (!command.stdout_path.empty()) {
    posix_spawn_file_actions_addopen(&actions, 1, command.stdout_path.c_str(), kFlags, 0600);
  }
  if (!command.stderr_path.empty()) {
    posix_spawn_file_actions_addopen(&actions, 2, command.stderr_path.c_str(), kFlags, 0600);
  }
  const int failed = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed == 0) return true;
  pid_ = -1;
  error_ = "sdcguard: " + arguments[0] + ": " + strerror(failed);
  return false;
}

void Subprocess::send(int signal_number) const {
  if (pid_ > 0) kill(pid_, signal_number);
}

int Subprocess::wait(int timeout_s) {
  if (pid_ <= 0) return -1;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (pidfd >= 0) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
    pollfd ended = {pidfd, POLLIN, 0};
    while (true) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      const int ready = poll(&ended, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
      if (ready > 0) break;
      if (ready < 0 && errno == EINTR) continue;
      kill(pid_, SIGKILL);
      break;
    }
    close(pidfd);
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_to_end(const Command& command, int timeout_s, std::string* error) {
  Subprocess process;
  if (!process.start(command)) {
    *error = process.error();
    return -1;
  }
  return process.wait(timeout_s);
}

RunFolder::RunFolder() {
  for (std::string name : {"/dev/shm/sdcguard-run-XXXXXX", "/tmp/sdcguard-run-XXXXXX"}) {
    if (mkdtemp(name.data()) == nullptr) continue;
    path_ = name;
    return;
  }
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  if (good()) std::filesystem::remove_all(path_, ignored);
}

std::string tail_of(const std::string& path, size_t lines) {
  std::ifstream in(path);
  std::deque<std::string> last;
  for (std::string line; std::getline(in, line);) {
    last.push_back(line);
    if (last.size() > lines) last.pop_front();
  }
  std::string text;
  for (const std::string& line : last) text += line + "\n";
  return text;
}

}  // namespace sdcguard

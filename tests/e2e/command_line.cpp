// SPDX-License-Identifier: MIT
#include "tests/e2e/command_line.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include "tests/scratch_folder.h"

extern char** environ;

namespace sdcguard {

Ended sdcguard(std::vector<std::string> arguments, const std::map<std::string, std::string>& set,
               const std::string& prefix) {
  ScratchFolder folder;
  const std::string out = folder.path() + "/out", err = folder.path() + "/err";
  arguments.insert(arguments.begin(), prefix + "/bin/sdcguard");
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name = std::string(*entry).substr(0, std::string(*entry).find('='));
    if (set.count(name) == 0) variables.push_back(*entry);
  }
  for (const auto& [name, value] : set) variables.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  for (std::string& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t pid = -1;
  Ended ended;
  const int failed = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return ended;
  int status = 0;
  if (waitpid(pid, &status, 0) == pid && WIFEXITED(status)) ended.exit_code = WEXITSTATUS(status);
  ended.out = bytes_of(out);
  ended.err = bytes_of(err);
  return ended;
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Runs a program for a test and gives what it printed and how it ended.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace sdcguard::e2e {

// Built with a sanitizer, whose runtime stands between the program and the loader; ThreadSanitizer's makes kernels some
// twenty times slower.
#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#ifdef __SANITIZE_ADDRESS__
constexpr bool kInstrumented = true;
#else
constexpr bool kInstrumented = kThreadSanitizer;
#endif

struct Ended {
  std::string output;  // stdout and stderr together
  int code;            // exit code; 128 + signal where it was killed
};

// `command` is for /bin/sh. The environment of the test is passed on; `env A=B program` adds to it.
inline Ended run_program(const std::string& command) {
  Ended ended = {"", -1};
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ended;
  char buffer[65536];
  size_t got;
  while ((got = fread(buffer, 1, sizeof(buffer), pipe)) > 0) ended.output.append(buffer, got);
  const int status = pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

}  // namespace sdcguard::e2e

// SPDX-License-Identifier: MIT
// The command line as a user runs it: bin/sdcguard of a build, to its end.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace sdcguard {

struct Ended {
  int exit_code = -1;  // -1: it did not start, or a signal ended it
  std::string out, err;
};

// Runs bin/sdcguard of `prefix` to its end, with these variables besides the caller's own.
Ended sdcguard(std::vector<std::string> arguments, const std::map<std::string, std::string>& set = {},
               const std::string& prefix = SDCGUARD_BUILD_DIR);

}  // namespace sdcguard

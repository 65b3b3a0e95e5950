// SPDX-License-Identifier: MIT
// sdcguard run: takes a program and settings, checks the configuration before the program starts, becomes the program.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "config/config.h"
#include "tools/cli/commands.h"
#include "tools/cli/installation.h"

extern char** environ;

namespace sdcguard {

std::string ring_dir_or_default(const std::string& given) {
  if (!given.empty()) return given;
  const ConfigResult loaded = load_config();
  if (!loaded.ok()) fprintf(stderr, "%s\n", loaded.error.c_str());
  return loaded.ok() ? loaded.config.ring_dir : "";
}

int run_command(const RunOptions& options) {
  const auto set = [](const char* name, const std::string& value) {
    if (!value.empty()) setenv(name, value.c_str(), 1);
  };
  // Absolute, since the program may change its folder before its first product.
  if (!options.config.empty()) set("SDCGUARD_CONFIG", std::filesystem::absolute(options.config));
  set("SDCGUARD_MODE", options.mode);
  set("SDCGUARD_SEED", options.seed);
  set("SDCGUARD_RING_DIR", options.ring_dir);
  // A word on the command line holds over the environment's other name of the same thing.
  if (!options.every.empty() && options.rate.empty()) unsetenv("SDCGUARD_RATE");
  if (!options.rate.empty() && options.every.empty()) unsetenv("SDCGUARD_EVERY");
  set("SDCGUARD_EVERY", options.every);
  set("SDCGUARD_RATE", options.rate);

  const ConfigResult loaded = load_config();
  std::string wrong = loaded.ok() ? unknown_environment(environ) : loaded.error;
  const Installation pieces = find_installation();
  if (wrong.empty()) wrong = missing_piece(pieces.shim);
  if (wrong.empty() && options.hostcuda) wrong = missing_piece(pieces.hostcuda);
  if (wrong.empty() && pieces.shim.find_first_of(" :") != std::string::npos) {
    wrong = "sdcguard: " + pieces.shim + ": LD_PRELOAD cannot hold a path with a blank or a colon";
  }
  if (!wrong.empty()) {
    fprintf(stderr, "%s\n", wrong.c_str());
    return 2;
  }

  const auto put_first = [](const char* name, const std::string& first) {
    const char* found = getenv(name);
    setenv(name, found == nullptr || found[0] == '\0' ? first.c_str() : (first + ":" + found).c_str(), 1);
  };
  put_first("LD_PRELOAD", pieces.shim);
  if (options.hostcuda) put_first("LD_LIBRARY_PATH", pieces.hostcuda);
  std::vector<std::string> arguments = options.program;
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const int failed = errno;
  fprintf(stderr, "sdcguard: %s: %s\n", argv[0], strerror(failed));
  return failed == ENOENT ? 127 : 126;
}

}  // namespace sdcguard

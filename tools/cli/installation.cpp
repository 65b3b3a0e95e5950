// SPDX-License-Identifier: MIT
// Installation: where the other pieces lie, found from this program's own place: <prefix>/bin/sdcguard.
#include "tools/cli/installation.h"

#include <unistd.h>

#include <filesystem>

namespace sdcguard {

namespace fs = std::filesystem;

Installation find_installation() {
  std::error_code failed;
  const fs::path self = fs::read_symlink("/proc/self/exe", failed);
  const fs::path prefix = self.parent_path().parent_path();
  Installation found;
  found.bin = self.parent_path();
  found.shim = prefix / "lib/libsdcguard.so";
  found.hostcuda = prefix / "lib/hostcuda";
  found.daemon = self.parent_path() / "sdcguardd";
  found.encoder = self.parent_path() / "encoder";
  found.gemm = self.parent_path() / "gemm";
  found.model = prefix / "share/sdcguard/model";
  found.sentences = prefix / "share/sdcguard/sentences.txt";
  for (fs::path folder = prefix; folder.has_relative_path(); folder = folder.parent_path()) {
    if (!fs::exists(folder / "examples/encoder/sentences.txt", failed)) continue;
    found.model = folder / ".cache/model";
    found.sentences = folder / "examples/encoder/sentences.txt";
    break;
  }
  return found;
}

std::string missing_piece(const std::string& path) {
  return access(path.c_str(), R_OK) == 0 ? "" : "sdcguard: " + path + ": not there; is the installation complete?";
}

}  // namespace sdcguard

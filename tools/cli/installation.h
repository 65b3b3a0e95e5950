// SPDX-License-Identifier: MIT
// Installation: where the other pieces lie, found from this program's own place: <prefix>/bin/sdcguard.
#pragma once

#include <string>

namespace sdcguard {

struct Installation {
  std::string bin;                    // <prefix>/bin
  std::string shim;                   // <prefix>/lib/libsdcguard.so
  std::string hostcuda;               // <prefix>/lib/hostcuda: CUDA on the CPU
  std::string daemon, encoder, gemm;  // programs in bin
  // Of the demo: in the source tree that this build lies in, else in <prefix>/share/sdcguard.
  std::string model, sentences;
};

// Paths as they should be; whether a piece is there is for its user to check.
Installation find_installation();

// Empty where the file is there; else the one line to print.
std::string missing_piece(const std::string& path);

}  // namespace sdcguard

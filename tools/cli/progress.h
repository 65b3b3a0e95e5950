// SPDX-License-Identifier: MIT
// How far a long command is: one line of the terminal on stderr that is written over. Nothing where stderr is none.
#pragma once

#include <unistd.h>

#include <cstdio>

namespace sdcguard {

// "": the line is wiped.
inline void progress(const char* format, auto... values) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\x1b[K");
  std::fprintf(stderr, format, values...);
  std::fflush(stderr);
}

}  // namespace sdcguard

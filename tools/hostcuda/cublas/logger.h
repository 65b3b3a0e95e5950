// SPDX-License-Identifier: MIT
// The log of libcublas's calls.
#pragma once

namespace hostcuda {

// One line that names the entry point, to where cublasLoggerConfigure and cublasSetLoggerCallback say; nothing while
// the log is off. Called on the program's thread for handles that come and go and for calls that put work into a
// stream.
void log_call(const char* name);

}  // namespace hostcuda

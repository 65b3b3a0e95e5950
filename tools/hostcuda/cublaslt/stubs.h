// SPDX-License-Identifier: MIT
// Stub of one exported name: a weak definition, so that a real one in another file of the same library replaces it.
// For files that include no CUDA header: a stub has its function's name and none of its parameters.
#pragma once

extern "C" {
// Says on stderr that `name` is not part of the host device, once for each `said` (0 at first), and only where
// HOSTCUDA_VERBOSE is set to anything but 0. Returns 15, CUBLAS_STATUS_NOT_SUPPORTED. Thread-safe. In libcublasLt.
int hostcuda_refuse_stub(const char* name, int* said);
}

// The result suits functions that return a status. The few that return anything else (and the legacy v1 calls, which
// return nothing) leave their caller with no answer, as the real ones do after an error.
#define HOSTCUDA_STUB(name)                                                \
  extern "C" __attribute__((weak, visibility("default"))) int name(void) { \
    static int said = 0;                                                   \
    return hostcuda_refuse_stub(#name, &said);                             \
  }

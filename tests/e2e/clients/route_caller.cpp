// SPDX-License-Identifier: MIT
// Calls cuBLAS through whatever look-up it is handed: for ctypes, whose own dlsym finds the functions.
#include "entry_call.h"

extern "C" int caller_call(const char* symbol, Lookup lookup) {
  return call_entry(symbol, lookup);
}

// SPDX-License-Identifier: MIT
// A stub for every name of the real libcuda.so.1 that driver_calls.def does not have: a weak definition, so that the
// function itself replaces it. No CUDA header here: a stub has its function's name and none of its parameters.
#include "tools/hostcuda/cuda/stubs.h"

#define HOSTCUDA_SYMBOL(symbol, base, version, twin)                           \
  extern "C" __attribute__((weak, visibility("default"))) int symbol(void) {   \
    static int said = 0;                                                       \
    return hostcuda::refuse_stub(#symbol, &said, __builtin_return_address(0)); \
  }
#include "tools/hostcuda/cuda/symbols.def"
#undef HOSTCUDA_SYMBOL

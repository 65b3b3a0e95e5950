// SPDX-License-Identifier: MIT
// A stub for every name of the real libcudart.so.13 that no other file of this folder defines: a weak definition, so
// that the function itself replaces it. No CUDA header here: a stub has its function's name and none of its parameters.
#include "tools/hostcuda/cudart/stubs.h"

#define HOSTCUDA_SYMBOL(name)                                              \
  extern "C" __attribute__((weak, visibility("default"))) int name(void) { \
    static int said = 0;                                                   \
    return hostcuda::refuse_runtime_stub(#name, &said);                    \
  }
#include "tools/hostcuda/cudart/symbols.def"
#undef HOSTCUDA_SYMBOL

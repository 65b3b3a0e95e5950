// SPDX-License-Identifier: MIT
// A stub for every name of the real libcublasLt that no other file of this folder defines.
#include "tools/hostcuda/cublaslt/stubs.h"

#include <cstdio>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int hostcuda_refuse_stub(const char* name, int* said) {
  const char* verbose = std::getenv("HOSTCUDA_VERBOSE");
  if (verbose && verbose[0] && verbose[0] != '0' && !__atomic_exchange_n(said, 1, __ATOMIC_RELAXED)) {
    std::fprintf(stderr, "hostcuda: %s is not part of the host device (CUBLAS_STATUS_NOT_SUPPORTED)\n", name);
  }
  return 15;
}

#define HOSTCUDA_SYMBOL(name) HOSTCUDA_STUB(name)
#define HOSTCUDA_SYMBOL_12(name) HOSTCUDA_STUB(name)
#define HOSTCUDA_SYMBOL_13(name) HOSTCUDA_STUB(name)
#include "tools/hostcuda/cublaslt/symbols.def"
#undef HOSTCUDA_SYMBOL
#undef HOSTCUDA_SYMBOL_12
#undef HOSTCUDA_SYMBOL_13

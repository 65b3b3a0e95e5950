// SPDX-License-Identifier: MIT
// A stub for every name of the real libcublas.so.13 that no other file of this folder defines.
#include "tools/hostcuda/cublaslt/stubs.h"

#define HOSTCUDA_SYMBOL(name) HOSTCUDA_STUB(name)
#include "tools/hostcuda/cublas/symbols.def"
#undef HOSTCUDA_SYMBOL

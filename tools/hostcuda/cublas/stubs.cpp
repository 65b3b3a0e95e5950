// SPDX-License-Identifier: MIT
// A stub for every name of the real libcublas that no other file of this folder defines.
#include "tools/hostcuda/cublaslt/stubs.h"

#define HOSTCUDA_SYMBOL(name) HOSTCUDA_STUB(name)
#define HOSTCUDA_SYMBOL_12(name) HOSTCUDA_STUB(name)
#define HOSTCUDA_SYMBOL_13(name) HOSTCUDA_STUB(name)
#include "tools/hostcuda/cublas/symbols.def"
#undef HOSTCUDA_SYMBOL
#undef HOSTCUDA_SYMBOL_12
#undef HOSTCUDA_SYMBOL_13

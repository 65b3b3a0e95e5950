// SPDX-License-Identifier: MIT
// Definitions of the cuBLAS names in the including object itself, each finding its function by dlsym at the first call:
// hidden, they are the trampolines of stub libraries (XLA, TensorFlow); visible, they are what CTranslate2 does.
// ROUTE_VISIBILITY: "hidden" or "default".
#pragma once

#include <dlfcn.h>

#include <cstdint>

#include "entry_table.h"

namespace {

void* of_library(const char* name) {
  // Never closed. cuBLASLt is a dependency of cuBLAS: one handle finds all names.
  static void* const library = dlopen("libcublas.so.13", RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : dlsym(library, name);
}

}  // namespace

#define ENTRY_ROW(kind, symbol, parameters, arguments)                                      \
  extern "C" __attribute__((visibility(ROUTE_VISIBILITY))) int symbol parameters;           \
  extern "C" int symbol parameters {                                                        \
    static auto* const function = reinterpret_cast<int(*) parameters>(of_library(#symbol)); \
    constexpr int kNotInitialized = 1;                                                      \
    return function == nullptr ? kNotInitialized : function arguments;                      \
  }
#define SDCGUARD_ENTRY(...) ENTRY_ROW_EXPANDED(__VA_ARGS__)
#include "shim/entry_points.def"
#undef SDCGUARD_ENTRY
#undef ENTRY_ROW
extern "C" __attribute__((visibility(ROUTE_VISIBILITY))) int cublasLtMatmulDescCreate(void** desc, int compute,
                                                                                      int scale) {
  return reinterpret_cast<int (*)(void**, int, int)>(of_library("cublasLtMatmulDescCreate"))(desc, compute, scale);
}
extern "C" __attribute__((visibility(ROUTE_VISIBILITY))) int cublasLtMatmulDescSetAttribute(void* desc, int attribute,
                                                                                            const void* value,
                                                                                            size_t bytes) {
  using Set = int (*)(void*, int, const void*, size_t);
  return reinterpret_cast<Set>(of_library("cublasLtMatmulDescSetAttribute"))(desc, attribute, value, bytes);
}
extern "C" __attribute__((visibility(ROUTE_VISIBILITY))) int cublasLtMatrixLayoutCreate(void** layout, int type,
                                                                                        uint64_t rows, uint64_t columns,
                                                                                        int64_t ld) {
  using Create = int (*)(void**, int, uint64_t, uint64_t, int64_t);
  return reinterpret_cast<Create>(of_library("cublasLtMatrixLayoutCreate"))(layout, type, rows, columns, ld);
}

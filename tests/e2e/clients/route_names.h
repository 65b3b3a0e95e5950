// SPDX-License-Identifier: MIT
// A look-up that needs no dlsym: every entry of the table under a forwarder of this object, each of which calls by
// name, so that how the name is bound (PLT, a definition of the object's own) is the object's affair. The including
// file declares nothing of cuBLAS itself.
#pragma once

#include <cstdint>
#include <cstring>

#include "entry_table.h"

#define ENTRY_ROW(kind, symbol, parameters, arguments)                                    \
  extern "C" int symbol parameters;                                                       \
  namespace {                                                                             \
  [[maybe_unused]] int forward_##symbol parameters {                                      \
    const int status = symbol arguments;                                                  \
    __asm__ volatile("" ::: "memory"); /* no jump: the call must return to this object */ \
    return status;                                                                        \
  }                                                                                       \
  }
#define SDCGUARD_ENTRY(...) ENTRY_ROW_EXPANDED(__VA_ARGS__)
#include "shim/entry_points.def"
#undef SDCGUARD_ENTRY
#undef ENTRY_ROW
extern "C" int cublasLtMatmulDescCreate(void** desc, int compute, int scale);
extern "C" int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
extern "C" int cublasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value, size_t bytes);

namespace {

void* by_name(const char* name) {
#define ENTRY_ROW(kind, symbol, ...) \
  if (strcmp(name, #symbol) == 0) return reinterpret_cast<void*>(&forward_##symbol);
#define SDCGUARD_ENTRY(...) ENTRY_ROW_EXPANDED(__VA_ARGS__)
#include "shim/entry_points.def"
#undef SDCGUARD_ENTRY
#undef ENTRY_ROW
  if (strcmp(name, "cublasLtMatmulDescCreate") == 0) return reinterpret_cast<void*>(&cublasLtMatmulDescCreate);
  if (strcmp(name, "cublasLtMatrixLayoutCreate") == 0) return reinterpret_cast<void*>(&cublasLtMatrixLayoutCreate);
  if (strcmp(name, "cublasLtMatmulDescSetAttribute") == 0) {
    return reinterpret_cast<void*>(&cublasLtMatmulDescSetAttribute);
  }
  return nullptr;
}

}  // namespace

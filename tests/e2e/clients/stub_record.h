// SPDX-License-Identifier: MIT
// What the stub libraries tell a client: how often they were called, and the last call's arguments bit for bit.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int calls;               // products that reached this library
  int major;               // which stub: 12 or 13
  const char* name;        // of the last product
  int count;               // arguments
  uint64_t arguments[24];  // integers sign-extended, pointers as they are
  uint64_t desc[32];       // cublasLtMatmul: the bytes behind desc and the layouts, as they were at the call
  uint64_t layouts[4][8];
} StubRecord;

StubRecord* stub_cublas_record(void);    // libcublas
StubRecord* stub_cublaslt_record(void);  // libcublasLt

#ifdef __cplusplus
}
#endif

/* SPDX-License-Identifier: MIT */
/* A libcublasLt that computes nothing: soname and version node of the real one, products recorded, descriptors kept. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "stub_record.h"

static StubRecord record = {.major = STUB_MAJOR};

StubRecord* stub_cublaslt_record(void) {
  return &record;
}
size_t cublasLtGetVersion(void) {
  return STUB_MAJOR * 10000;
}

int cublasLtCreate(void** handle) {
  *handle = calloc(1, 64);
  return 0;
}
int cublasLtDestroy(void* handle) {
  free(handle);
  return 0;
}

/* One 8-byte word an attribute; ids 0 to 29 of a descriptor (word 30 holds who made it), 0 to 7 of a layout, whose type
   and order share word 0. */
int cublasLtMatmulDescInit_internal(uint64_t* desc, size_t bytes, int compute, int scale) {
  memset(desc, 0, bytes);
  desc[0] = (uint64_t)compute;
  desc[1] = (uint64_t)scale;
  desc[7] = 1;
  desc[26] = 0xffffffffu;
  desc[30] = STUB_MAJOR;
  return 0;
}
int cublasLtMatmulDescGetAttribute(const uint64_t* desc, int id, void* value, size_t bytes, size_t* written) {
  if (id < 0 || id > 26 || id == 9) return 7;
  size_t size = (id == 8 || id == 10 || id == 11 || id == 12 || id == 13 || id == 14 || (id >= 17 && id <= 21) ||
                 id == 23 || id == 24)
                    ? 8
                : id == 25 ? 1
                           : 4;
  if (written) *written = size;
  if (value == NULL) return 0;
  if (bytes != size) return 7;
  memcpy(value, &desc[id], size);
  return 0;
}
int cublasLtMatmulDescSetAttribute(uint64_t* desc, int id, const void* value, size_t bytes) {
  if (id < 0 || id > 26 || id == 9) return 7;
  desc[id] = 0;
  memcpy(&desc[id], value, bytes);
  return 0;
}
int cublasLtMatrixLayoutInit_internal(uint64_t* layout, size_t bytes, int type, uint64_t rows, uint64_t cols,
                                      int64_t ld) {
  memset(layout, 0, bytes);
  layout[0] = (uint32_t)type;
  layout[2] = rows;
  layout[3] = cols;
  layout[4] = (uint64_t)ld;
  layout[5] = 1;
  return 0;
}
int cublasLtMatrixLayoutGetAttribute(const uint64_t* layout, int id, void* value, size_t bytes, size_t* written) {
  if (id < 0 || id > 7) return 7;
  size_t size = (id == 0 || id == 1 || id == 5) ? 4 : 8;
  if (written) *written = size;
  if (value == NULL) return 0;
  if (bytes != size) return 7;
  memcpy(value, &layout[id], size);
  return 0;
}
int cublasLtMatrixLayoutSetAttribute(uint64_t* layout, int id, const void* value, size_t bytes) {
  if (id < 0 || id > 7) return 7;
  layout[id] = 0;
  memcpy(&layout[id], value, bytes);
  return 0;
}
int cublasLtMatmulPreferenceInit_internal(uint64_t* preference, size_t bytes) {
  memset(preference, 0, bytes);
  return 0;
}
int cublasLtMatmulPreferenceSetAttribute(uint64_t* preference, int id, const void* value, size_t bytes) {
  if (id == 1) memcpy(&preference[1], value, bytes);
  return 0;
}

static int heuristic_calls;
int stub_heuristic_calls(void) {
  return heuristic_calls;
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, const uint64_t* desc, const void* a, const void* b, const void* c,
                                   const uint64_t* d, const uint64_t* preference, int requested, uint64_t* results,
                                   int* returned) {
  (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)requested;
  ++heuristic_calls;
  memset(results, 0, 96);
  results[0] = 0xa190 + d[0]; /* an algorithm that says which D type it is for */
  results[8] = preference[1];
  *returned = 1;
  return 0;
}

int cublasLtMatmul(void* handle, void* desc, const void* alpha, const void* a, void* a_desc, const void* b,
                   void* b_desc, const void* beta, const void* c, void* c_desc, void* d, void* d_desc, const void* algo,
                   void* workspace, size_t workspace_bytes, void* stream) {
  record.calls++;
  record.name = "cublasLtMatmul";
  record.count = 16;
  const uint64_t arguments[16] = {(uint64_t)handle, (uint64_t)desc,      (uint64_t)alpha,  (uint64_t)a,
                                  (uint64_t)a_desc, (uint64_t)b,         (uint64_t)b_desc, (uint64_t)beta,
                                  (uint64_t)c,      (uint64_t)c_desc,    (uint64_t)d,      (uint64_t)d_desc,
                                  (uint64_t)algo,   (uint64_t)workspace, workspace_bytes,  (uint64_t)stream};
  memcpy(record.arguments, arguments, sizeof(arguments));
  memset(record.desc, 0, sizeof(record.desc));
  memset(record.layouts, 0, sizeof(record.layouts));
  if (desc != NULL) memcpy(record.desc, desc, sizeof(record.desc));
  void* layouts[4] = {a_desc, b_desc, c_desc, d_desc};
  for (int i = 0; i < 4; ++i) {
    if (layouts[i] != NULL) memcpy(record.layouts[i], layouts[i], sizeof(record.layouts[i]));
  }
  if (algo != NULL) memcpy(&record.arguments[16], algo, 8);
  return 0;
}

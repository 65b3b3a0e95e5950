/* SPDX-License-Identifier: MIT */
/* A libcublas that computes nothing: soname and version node of the real one, products recorded. With STUB_ROUTE_LT=1
   its cublasGemmEx calls the public cublasLtMatmul, as the real one does for INT8. */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "stub_record.h"

int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*,
                   void*, void*, const void*, void*, size_t, void*);

static StubRecord record = {.major = STUB_MAJOR};
static pthread_mutex_t record_lock = PTHREAD_MUTEX_INITIALIZER;
static int refuse_fp32; /* cublasGemmEx with an FP32 C answers NOT_SUPPORTED */

StubRecord* stub_cublas_record(void) {
  return &record;
}
void stub_refuse_fp32(int on) {
  refuse_fp32 = on;
}

typedef struct {
  int major, pointer_mode, math_mode;
  void* stream;
} Handle;

/* Where the next handle is put, once; null: wherever calloc says. */
static void* next_handle;
void stub_put_next_handle(void* place) {
  next_handle = place;
}

int cublasCreate_v2(void** handle) {
  Handle* made = next_handle != NULL ? next_handle : calloc(1, sizeof(Handle));
  next_handle = NULL;
  memset(made, 0, sizeof(*made));
  made->major = STUB_MAJOR;
  *handle = made;
  return 0;
}
int cublasDestroy_v2(void* handle) {
  (void)handle; /* never given back: a client may have placed it */
  return 0;
}
int cublasSetStream_v2(void* handle, void* stream) {
  ((Handle*)handle)->stream = stream;
  return 0;
}
int cublasGetStream_v2(void* handle, void** stream) {
  *stream = ((Handle*)handle)->stream;
  return 0;
}
int cublasSetPointerMode_v2(void* handle, int mode) {
  ((Handle*)handle)->pointer_mode = mode;
  return 0;
}
int cublasGetPointerMode_v2(void* handle, int* mode) {
  *mode = ((Handle*)handle)->pointer_mode;
  return 0;
}
int cublasSetMathMode(void* handle, int mode) {
  ((Handle*)handle)->math_mode = mode;
  return 0;
}
int cublasGetMathMode(void* handle, int* mode) {
  *mode = ((Handle*)handle)->math_mode;
  return 0;
}

#define RECORD(symbol, ...)                                     \
  do {                                                          \
    const uint64_t arguments[] = {__VA_ARGS__};                 \
    pthread_mutex_lock(&record_lock);                           \
    record.calls++;                                             \
    record.name = symbol;                                       \
    record.count = sizeof(arguments) / sizeof(arguments[0]);    \
    memcpy(record.arguments, arguments, sizeof(arguments));     \
    pthread_mutex_unlock(&record_lock);                         \
    errno = 77; /* what the untouched function leaves, stays */ \
  } while (0)
#define N(x) (uint64_t)(int64_t)(x)
#define P(x) (uint64_t)(x)

#define GEMM_EX(name, I)                                                                                             \
  int name(void* handle, int transa, int transb, I m, I n, I k, const void* alpha, const void* a, int type_a, I lda, \
           const void* b, int type_b, I ldb, const void* beta, void* c, int type_c, I ldc, int compute, int algo) {  \
    if (refuse_fp32 && type_c == 0) return 15;                                                                       \
    RECORD(#name, P(handle), N(transa), N(transb), N(m), N(n), N(k), P(alpha), P(a), N(type_a), N(lda), P(b),        \
           N(type_b), N(ldb), P(beta), P(c), N(type_c), N(ldc), N(compute), N(algo));                                \
    if (getenv("STUB_ROUTE_LT") != NULL) {                                                                           \
      return cublasLtMatmul(handle, NULL, alpha, a, NULL, b, NULL, beta, c, NULL, c, NULL, NULL, NULL, 0, NULL);     \
    }                                                                                                                \
    return 0;                                                                                                        \
  }
GEMM_EX(cublasGemmEx, int)
GEMM_EX(cublasGemmEx_64, int64_t)

#define GEMM_STRIDED(name, I)                                                                                         \
  int name(void* handle, int transa, int transb, I m, I n, I k, const void* alpha, const void* a, int type_a, I lda,  \
           long long stride_a, const void* b, int type_b, I ldb, long long stride_b, const void* beta, void* c,       \
           int type_c, I ldc, long long stride_c, I batch, int compute, int algo) {                                   \
    RECORD(#name, P(handle), N(transa), N(transb), N(m), N(n), N(k), P(alpha), P(a), N(type_a), N(lda), N(stride_a),  \
           P(b), N(type_b), N(ldb), N(stride_b), P(beta), P(c), N(type_c), N(ldc), N(stride_c), N(batch), N(compute), \
           N(algo));                                                                                                  \
    return 0;                                                                                                         \
  }
GEMM_STRIDED(cublasGemmStridedBatchedEx, int)
GEMM_STRIDED(cublasGemmStridedBatchedEx_64, int64_t)

#define GEMM_PLAIN(name, I)                                                                                         \
  int name(void* handle, int transa, int transb, I m, I n, I k, const void* alpha, const void* a, I lda,            \
           const void* b, I ldb, const void* beta, void* c, I ldc) {                                                \
    RECORD(#name, P(handle), N(transa), N(transb), N(m), N(n), N(k), P(alpha), P(a), N(lda), P(b), N(ldb), P(beta), \
           P(c), N(ldc));                                                                                           \
    return 0;                                                                                                       \
  }
GEMM_PLAIN(cublasSgemm_v2, int)
GEMM_PLAIN(cublasSgemm_v2_64, int64_t)
GEMM_PLAIN(cublasHgemm, int)
GEMM_PLAIN(cublasHgemm_64, int64_t)

// SPDX-License-Identifier: MIT
// A stand-in libcublas.so.13 whose product does nothing: only bench_overhead may use it. The bare name is the same
// function under a name that the shim does not intercept.
#include <cstddef>
#include <cstdint>

namespace {
int handle_object;
uint64_t products;
}  // namespace

extern "C" {

int bare_gemm_ex(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                 void*, int, int, int, int) {
  ++products;
  return 0;
}
int cublasGemmEx(void* handle, int transa, int transb, int m, int n, int k, const void* alpha, const void* a,
                 int type_a, int lda, const void* b, int type_b, int ldb, const void* beta, void* c, int type_c,
                 int ldc, int compute, int algo) {
  return bare_gemm_ex(handle, transa, transb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc,
                      compute, algo);
}
int cublasCreate_v2(void** handle) {
  *handle = &handle_object;
  return 0;
}
int cublasDestroy_v2(void*) {
  return 0;
}
int cublasGetStream_v2(void*, void** stream) {
  *stream = reinterpret_cast<void*>(0x77);
  return 0;
}
int cublasGetPointerMode_v2(void*, int* mode) {
  *mode = 0;
  return 0;
}
int cublasGetMathMode(void*, int* mode) {
  *mode = 0;
  return 0;
}

}  // extern "C"

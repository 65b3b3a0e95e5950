// SPDX-License-Identifier: MIT
// A library that defines a public cuBLAS name itself and forwards to the one it finds by dlsym (CTranslate2 does).
#include <dlfcn.h>

using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                     const void*, void*, int, int, int, int);

extern "C" int cublasGemmEx(void* handle, int transa, int transb, int m, int n, int k, const void* alpha, const void* a,
                            int type_a, int lda, const void* b, int type_b, int ldb, const void* beta, void* c,
                            int type_c, int ldc, int compute, int algo) {
  static void* library = dlopen("libcublas.so.13", RTLD_NOW | RTLD_LOCAL);
  static auto real = reinterpret_cast<Gemm>(dlsym(library, "cublasGemmEx"));
  return real(handle, transa, transb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, compute,
              algo);
}
extern "C" int redefines_product(void* handle) {
  const float alpha = 1, beta = 0;
  int a = 0;
  int c = 0;
  return cublasGemmEx(handle, 0, 0, 16, 16, 16, &alpha, &a, 14, 16, &a, 14, 16, &beta, &c, 14, 16, 68, -1);
}

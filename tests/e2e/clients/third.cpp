// SPDX-License-Identifier: MIT
// A library in the middle, loaded RTLD_LOCAL: asks dlsym with its own scope, and calls the cuBLAS that it was linked
// to.
#include <dlfcn.h>

#include "expect.h"
#include "stub_record.h"

extern "C" int cublasCreate_v2(void**);
extern "C" int cublasGemmEx(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                            const void*, void*, int, int, int, int);

extern "C" int only_in_local_scope();
extern "C" int twice_defined() {
  return 1;
}

// dlsym(RTLD_NEXT) and dlsym(RTLD_DEFAULT) as this library: the calls must look to glibc as made from here.
extern "C" void* third_next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  __asm__ volatile("" ::: "memory");  // not a tail call: the return address must be ours
  return found;
}
extern "C" void* third_default(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  __asm__ volatile("" ::: "memory");
  return found;
}
extern "C" int third_uses_local_scope() {
  return only_in_local_scope();
}

// One product through the PLT, on a handle made here.
extern "C" int third_product() {
  void* handle = nullptr;
  const float alpha = 1, beta = 0;
  int a = 0;
  int c = 0;
  if (cublasCreate_v2(&handle) != 0) return -1;
  return cublasGemmEx(handle, 0, 0, 16, 16, 16, &alpha, &a, 14, 16, &a, 14, 16, &beta, &c, 14, 16, 68, -1);
}
// One with a handle that the shim never saw.
extern "C" int third_product_on(void* handle) {
  const float alpha = 1, beta = 0;
  int a = 0;
  int c = 0;
  return cublasGemmEx(handle, 0, 0, 16, 16, 16, &alpha, &a, 14, 16, &a, 14, 16, &beta, &c, 14, 16, 68, -1);
}

// SPDX-License-Identifier: MIT
// A program whose reference to cuBLAS is satisfied by the preloaded shim alone: no cuBLAS is in the process.
#include <cstdio>

extern "C" int cublasCreate_v2(void**) __attribute__((weak));

int main() {
  void* handle = nullptr;
  constexpr int kNotInitialized = 1;
  if (cublasCreate_v2 == nullptr || cublasCreate_v2(&handle) != kNotInitialized) return 1;
  puts("ok");
  return 0;
}

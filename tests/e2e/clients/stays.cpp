// SPDX-License-Identifier: MIT
// stays: a program that uses CUDA and no cuBLAS of the loader's (as one with cuBLAS linked in does not), says so, and
// stays until its input ends. With an argument it opens that library and makes no handle.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (cudaFree(nullptr) != cudaSuccess) return 1;
  if (argc > 1 && dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) return 1;
  char byte = '.';
  if (write(STDOUT_FILENO, &byte, 1) != 1) return 1;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

// SPDX-License-Identifier: MIT
// What a cuBLASLt handle and a cuBLAS handle of the host device have in common: the latter serves as the former.
#pragma once

#include <cuda.h>
#include <stdint.h>

// Layout shared by libcublas and libcublasLt of one major: a cublasHandle_t points to a struct that begins with this.
struct HostcudaHandle {
  uint64_t magic;     // kHandleMagic (major/version.h) while the handle lives
  CUcontext context;  // current at creation; every call must come with this context current
  int device;
};

extern "C" {
// Fills a new handle: needs a device, makes its primary context current where the thread has none (as the runtime
// does). 1, or 0: no device, nothing filled.
int hostcuda_handle_open(HostcudaHandle* handle);
// 1 if `handle` is a live cuBLASLt or cuBLAS handle.
int hostcuda_handle_live(const HostcudaHandle* handle);
}

// SPDX-License-Identifier: MIT
// What a cuBLASLt handle and a cuBLAS handle of the host device have in common: the latter serves as the former.
#pragma once

#include <cuda.h>
#include <stdint.h>

// Layout shared by libcublas.so.13 and libcublasLt.so.13: a cublasHandle_t points to a struct that begins with this.
struct HostcudaHandle {
  uint64_t magic;     // kHandleMagic while the handle lives
  CUcontext context;  // current at creation; every call must come with this context current
  int device;
};

namespace hostcuda {
inline constexpr uint64_t kHandleMagic = 0x5344434755415244;  // "SDCGUARD"
inline constexpr int kCublasVersion = 130100;                 // of the headers: 13.1.0
inline constexpr int kCudartVersion = 13000;
}  // namespace hostcuda

extern "C" {
// Fills a new handle: needs a device, makes its primary context current where the thread has none (as the runtime
// does). 1, or 0: no device, nothing filled.
int hostcuda_handle_open(HostcudaHandle* handle);
// 1 if `handle` is a live cuBLASLt or cuBLAS handle.
int hostcuda_handle_live(const HostcudaHandle* handle);
}

// SPDX-License-Identifier: MIT
// What the scene programs share: square BF16 matrices, streams and handles with an owner, and the dump of results.
#pragma once

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace scene {

inline constexpr int kSize = 128;  // m, n and k
inline constexpr size_t kElems = size_t{kSize} * kSize;
inline constexpr size_t kBytes = kElems * sizeof(__nv_bfloat16);

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
inline void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasGetStatusString(status));
}

// Pinned, so that asynchronous copies are asynchronous. Seeded by splitmix64, in [-1, 1).
struct HostMatrix {
  __nv_bfloat16* data = nullptr;
  explicit HostMatrix(uint64_t seed) {
    check(cudaMallocHost(reinterpret_cast<void**>(&data), kBytes), "cudaMallocHost");
    uint64_t state = seed * 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < kElems; ++i) {
      uint64_t z = (state += 0x9e3779b97f4a7c15ull);
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
      data[i] =
          __float2bfloat16(static_cast<float>(static_cast<int64_t>((z ^ (z >> 31)) >> 40) - (1 << 23)) * 0x1p-23f);
    }
  }
  ~HostMatrix() { cudaFreeHost(data); }
  HostMatrix(const HostMatrix&) = delete;
  HostMatrix& operator=(const HostMatrix&) = delete;
};

struct DeviceMatrix {
  void* data = nullptr;
  DeviceMatrix() { check(cudaMalloc(&data, kBytes), "cudaMalloc"); }
  explicit DeviceMatrix(const HostMatrix& from) : DeviceMatrix() { upload(from); }
  ~DeviceMatrix() { cudaFree(data); }
  DeviceMatrix(const DeviceMatrix&) = delete;
  DeviceMatrix& operator=(const DeviceMatrix&) = delete;
  void upload(const HostMatrix& from) {
    check(cudaMemcpy(data, from.data, kBytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
};

struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { check(cudaStreamCreate(&stream), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

struct Handle {
  cublasHandle_t handle = nullptr;
  explicit Handle(cudaStream_t stream) {
    check(cublasCreate(&handle), "cublasCreate");
    check(cublasSetStream(handle, stream), "cublasSetStream");
  }
  ~Handle() { cublasDestroy(handle); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  void multiply(const DeviceMatrix& a, const DeviceMatrix& b, const DeviceMatrix& d) {
    const float one = 1, zero = 0;
    check(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, a.data, CUDA_R_16BF, kSize, b.data,
                       CUDA_R_16BF, kSize, &zero, d.data, CUDA_R_16BF, kSize, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }
};

inline std::ofstream dump;

inline void write(const DeviceMatrix& d) {
  std::vector<char> bytes(kBytes);
  check(cudaMemcpy(bytes.data(), d.data, kBytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  dump.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

struct Scene {
  const char* name;
  void (*run)(int);
};

// The body of a scene program: NAME DUMP [N]. The program's exit code.
template <size_t Count>
int run_scene(const char* program, const Scene (&scenes)[Count], int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    dump.open(argv[2], std::ios::binary);
    for (const Scene& one : scenes) {
      if (std::string(one.name) != argv[1]) continue;
      one.run(argc > 3 ? std::stoi(argv[3]) : 2);
      dump.close();
      return dump ? 0 : 2;
    }
    std::fprintf(stderr, "%s: no scene %s\n", program, argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
  }
  return 2;
}

}  // namespace scene

// SPDX-License-Identifier: MIT
// Device: owners of CUDA and cuBLAS objects, and the checks that turn a failed call into one clear line.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace encoder {

// Throw std::runtime_error "CALL: the library's own words" unless the call succeeded.
inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}
inline void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + cublasGetStatusString(status));
}

// A handle that one call makes and one destroys; what destruction returns has no one to tell.
template <typename Handle, auto Destroy>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle handle) : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owner() {
    if (handle_ != nullptr) static_cast<void>(Destroy(handle_));
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using Stream = Owner<cudaStream_t, cudaStreamDestroy>;
using Cublas = Owner<cublasHandle_t, cublasDestroy_v2>;
using CublasLt = Owner<cublasLtHandle_t, cublasLtDestroy>;
using MatmulDesc = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using MatmulPreference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// Device memory for `size()` elements; contents undefined until written. Freed by cudaFree, which waits for the device.
template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t elements) : size_(elements) {
    void* address = nullptr;
    check(cudaMalloc(&address, elements * sizeof(T)), "cudaMalloc");
    memory_ = Owner<void*, cudaFree>(address);
  }

  T* get() const { return static_cast<T*>(memory_.get()); }
  std::size_t size() const { return size_; }

  // Both are asynchronous in stream order; the host memory must live, and be left alone, until the stream is
  // synchronised.
  void upload(const std::vector<T>& host, cudaStream_t stream) const {
    copy(get(), host.data(), host.size(), cudaMemcpyHostToDevice, stream);
  }
  void download(std::vector<T>& host, cudaStream_t stream) const {
    copy(host.data(), get(), host.size(), cudaMemcpyDeviceToHost, stream);
  }

 private:
  void copy(void* to, const void* from, std::size_t elements, cudaMemcpyKind kind, cudaStream_t stream) const {
    if (elements > size_) throw std::logic_error("a copy passes the end of its device buffer");
    check(cudaMemcpyAsync(to, from, elements * sizeof(T), kind, stream), "cudaMemcpyAsync");
  }

  Owner<void*, cudaFree> memory_;
  std::size_t size_ = 0;
};

}  // namespace encoder

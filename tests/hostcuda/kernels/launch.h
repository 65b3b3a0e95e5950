// SPDX-License-Identifier: MIT
// Test support: device arrays over the driver API, and launches of a kernel that is compiled into the test itself.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>
#include <vector>

#include "tools/hostcuda/core.h"
#include "tools/hostcuda/simt/executor.h"

namespace sdcguard {

// n values of T in device memory of device 0, freed at the end of scope.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t n, const T& value = T{}) : DeviceArray(std::vector<T>(n, value)) {}
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(hostcuda_use_device(0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&address_, count_ * sizeof(T)), CUDA_SUCCESS);
    write(values);
  }
  ~DeviceArray() { free(); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  uint64_t address() const { return address_; }
  void write(const std::vector<T>& values) {
    EXPECT_EQ(cuMemcpyHtoD(address_, values.data(), values.size() * sizeof(T)), CUDA_SUCCESS);
  }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cuMemcpyDtoH(values.data(), address_, count_ * sizeof(T)), CUDA_SUCCESS);
    return values;
  }
  void free() {
    if (address_ == 0) return;
    EXPECT_EQ(cuMemFree(address_), CUDA_SUCCESS);
    address_ = 0;
  }

 private:
  size_t count_;
  CUdeviceptr address_ = 0;
};

struct Launch {
  const char* kernel;
  uint32_t grid;
  uint32_t block;
  uint32_t shared_bytes = 0;
  double* processor_ns = nullptr;  // time of the worker's thread, where asked for
};

inline double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Runs the kernel on the legacy stream of device 0 and waits. Returns what hostcuda_simt_run returned.
template <typename Params>
int run_kernel(const hostcuda::HostKernelTable* table, const Launch& launch, const Params& params) {
  struct Operation {
    const hostcuda::HostKernelEntry* entry;
    Launch launch;
    const void* params;
    int result;
  };
  Operation operation{hostcuda::find_kernel(table, launch.kernel), launch, &params, -1};
  if (operation.entry == nullptr || operation.entry->parameter_bytes != sizeof(Params)) {
    ADD_FAILURE() << "no kernel " << launch.kernel;
    return -1;
  }
  EXPECT_EQ(hostcuda_use_device(0), CUDA_SUCCESS);
  const CUresult queued = hostcuda_enqueue(
      nullptr,
      [](void* argument) {
        auto* const work = static_cast<Operation*>(argument);
        const double begin = thread_ns();
        work->result = hostcuda_simt_run(work->entry, work->launch.grid, work->launch.block, work->launch.shared_bytes,
                                         work->params);
        if (work->launch.processor_ns != nullptr) *work->launch.processor_ns = thread_ns() - begin;
      },
      &operation, launch.kernel);
  EXPECT_EQ(queued, CUDA_SUCCESS);
  EXPECT_EQ(hostcuda_stream_synchronize(nullptr), CUDA_SUCCESS);
  return operation.result;
}

}  // namespace sdcguard

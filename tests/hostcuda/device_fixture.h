// SPDX-License-Identifier: MIT
// What hostcuda's own tests begin with: device 0's primary context current, provocations off, and a gate that holds a
// stream until the test lets go.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "tools/hostcuda/core.h"

namespace hostcuda_test {

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child has no workers
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  }

  void TearDown() override {
    for (const char* name : {"HOSTCUDA_FAIL", "HOSTCUDA_STARVE", "HOSTCUDA_SKIP_WAIT", "HOSTCUDA_SKIP_KERNEL"}) {
      hostcuda_configure(name, nullptr);
    }
    cuCtxSetCurrent(context_);
    cuDevicePrimaryCtxReset(0);
  }

  CUcontext context_ = nullptr;
};

// Holds the stream it was put into until open() is called, or it goes out of scope.
class Gate {
 public:
  Gate() = default;
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  CUresult put(CUstream stream) {
    return hostcuda_enqueue_owned(
        stream,
        [](void* arg) {
          while (!(*static_cast<Flag*>(arg))->load(std::memory_order_relaxed)) std::this_thread::yield();
        },
        [](void* arg) { delete static_cast<Flag*>(arg); }, new Flag(open_), "gate");
  }
  void open() { open_->store(true, std::memory_order_relaxed); }

 private:
  using Flag = std::shared_ptr<std::atomic<bool>>;
  Flag open_ = std::make_shared<std::atomic<bool>>(false);
};

inline CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr p = 0;
  EXPECT_EQ(cuMemAlloc(&p, bytes), CUDA_SUCCESS);
  return p;
}

inline uint32_t read_word(CUdeviceptr p) {
  uint32_t word = 0;
  EXPECT_EQ(cuMemcpyDtoH(&word, p, sizeof word), CUDA_SUCCESS);
  return word;
}

}  // namespace hostcuda_test

// SPDX-License-Identifier: MIT
// Driver calls that fail or hang on purpose (HOSTCUDA_FAIL), of the whole process and of the shim's code alone, and the
// log of the shim's calls (HOSTCUDA_SHIM_LOG).
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/hostcuda/device_fixture.h"
#include "tests/scratch_folder.h"

namespace hostcuda_test {
namespace {

// A library that is called libsdcguard.so and calls the driver when it is told to.
struct Shim {
  CUresult (*alloc)(CUdeviceptr* p, size_t bytes);
  CUresult (*event)(CUevent* event);
};

Shim shim() {
  static void* const library = dlopen(SDCGUARD_BUILD_DIR "/clients/shim_caller/libsdcguard.so", RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  Shim s{};
  s.alloc = reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t)>(dlsym(library, "shim_alloc"));
  s.event = reinterpret_cast<CUresult (*)(CUevent*)>(dlsym(library, "shim_event"));
  return s;
}

class PlannedFailures : public DeviceTest {
 protected:
  static void plan(const char* text) { ASSERT_EQ(hostcuda_configure("HOSTCUDA_FAIL", text), 0) << text; }
  CUdeviceptr p_ = 0;
  CUevent event_ = nullptr;
};

TEST_F(PlannedFailures, HitTheNthCallOnce) {
  plan("cuMemAlloc_v2:2:2,cuEventCreate:1");
  EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_SUCCESS);
  EXPECT_EQ(cuEventCreate(&event_, 0), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(event_, nullptr) << "a failed call does nothing";
  EXPECT_EQ(cuEventCreate(&event_, 0), CUDA_SUCCESS);
}

TEST_F(PlannedFailures, EveryCallOrAllFromOneOn) {
  plan("cuMemAlloc_v2:*:2");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_ERROR_OUT_OF_MEMORY);
  plan("cuMemAlloc_v2:2+:2");
  EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(PlannedFailures, OfAnyFunctionByPosition) {
  plan("*:2:2");
  EXPECT_EQ(cuEventCreate(&event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_SUCCESS);
}

TEST_F(PlannedFailures, OfTheShimLeaveTheProgramAlone) {
  const Shim by_shim = shim();
  plan("shim/*:2:2,shim/cuEventCreate:2:1");
  EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_SUCCESS);
  EXPECT_EQ(by_shim.alloc(&p_, 64), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_SUCCESS) << "the program's calls do not count";
  EXPECT_EQ(by_shim.alloc(&p_, 64), CUDA_ERROR_OUT_OF_MEMORY) << "the shim's second call";
  EXPECT_EQ(by_shim.alloc(&p_, 64), CUDA_SUCCESS);
  EXPECT_EQ(cuEventCreate(&event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(by_shim.event(&event_), CUDA_SUCCESS);
  EXPECT_EQ(cuEventCreate(&event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(by_shim.event(&event_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(PlannedFailures, ALaterItemCanLetACallGoAhead) {
  plan("*:2+:2,cuEventCreate:*:ok");
  EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_SUCCESS);
  EXPECT_EQ(cuEventCreate(&event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(PlannedFailures, HangsAreBoundedAndTheCallGoesAhead) {
  const Shim by_shim = shim();
  constexpr std::chrono::milliseconds kHang{80};
  plan("shim/cuMemAlloc_v2:1:hang80,shim/cuMemAlloc_v2:2:hang80:2");
  const auto timed = [](auto&& call) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    return std::chrono::steady_clock::now() - begin;
  };
  EXPECT_GE(timed([&] { EXPECT_EQ(by_shim.alloc(&p_, 64), CUDA_SUCCESS); }), kHang);
  EXPECT_NE(p_, 0u);
  EXPECT_GE(timed([&] { EXPECT_EQ(by_shim.alloc(&p_, 64), CUDA_ERROR_OUT_OF_MEMORY); }), kHang);
  EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_SUCCESS);
}

TEST_F(PlannedFailures, LateOnesHaveDoneTheirWork) {
  plan("cuEventCreate:1:late:999");
  EXPECT_EQ(cuEventCreate(&event_, 0), CUDA_ERROR_UNKNOWN);
  ASSERT_NE(event_, nullptr);
  EXPECT_EQ(cuEventRecord(event_, nullptr), CUDA_SUCCESS);
}

TEST_F(PlannedFailures, MalformedPlansAreRefusedAndChangeNothing) {
  plan("cuMemAlloc_v2:1:2");
  for (const char* wrong :
       {"cuMemAlloc_v2", "cuMemAlloc_v2:0", "cuMemAlloc_v2:1:0", "cuMemAlloc_v2:1:1000", "cuMemAlloc_v2:x",
        "cuMemAlloc_v2:1:hang", "cuMemAlloc_v2:1:hang60001", "cuMemAlloc_v2:1:2:2", "cuMemAlloc_v2:1:late:hang5",
        "cuMemAlloc_v2:1:late:ok", "cuMemAlloc_v2:1:ok:2"}) {
    EXPECT_EQ(hostcuda_configure("HOSTCUDA_FAIL", wrong), -1) << wrong;
  }
  EXPECT_EQ(cuMemAlloc(&p_, 64), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(hostcuda_configure("HOSTCUDA_NOTHING", "1"), -1);
}

TEST_F(PlannedFailures, TheLogHasTheShimsCallsInOrder) {
  const sdcguard::InheritedFile log("HOSTCUDA_SHIM_LOG");
  EXPECT_EXIT(
      {
        plan("shim/*:3:700");
        const Shim by_shim = shim();
        by_shim.alloc(&p_, 64);
        cuMemAlloc(&p_, 64);
        by_shim.event(&event_);
        by_shim.alloc(&p_, 64);
        by_shim.alloc(&p_, 0);
        std::ifstream file(log.path());
        std::stringstream text;
        text << file.rdbuf();
        const bool right = text.str() ==
                           "1\t1\tcuMemAlloc_v2\t0\n2\t1\tcuEventCreate\t0\n3\t1\tcuMemAlloc_v2\t700\n"
                           "4\t1\tcuMemAlloc_v2\t1\n";
        if (!right) fprintf(stderr, "%s", text.str().c_str());
        _exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hostcuda_test

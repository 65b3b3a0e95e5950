// SPDX-License-Identifier: MIT
// Tier 0: every name that the real libcuda.so.1 and libcudart.so.13 export is there, by the loader and by
// cuGetProcAddress; what the host device lacks says so.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/hostcuda/device_fixture.h"

extern "C" {  // of the runtime, without its headers
int cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long, int*);
int cudaGetLastError(void);
}

namespace hostcuda_test {
namespace {

enum Twin { kLegacy, kPerThread };
struct DriverSymbol {
  const char* symbol;
  const char* base;
  int version;
  Twin twin;
};
constexpr DriverSymbol kDriver[] = {
#define HOSTCUDA_SYMBOL(symbol, base, version, twin) {#symbol, #base, version, twin},
#include "tools/hostcuda/cuda/symbols.def"
#undef HOSTCUDA_SYMBOL
};
constexpr const char* kRuntime[] = {
#define HOSTCUDA_SYMBOL(name) #name,
#include "tools/hostcuda/cudart/symbols.def"
#undef HOSTCUDA_SYMBOL
};

class CudaExports : public DeviceTest {
 protected:
  static void* driver_library() { return dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); }
  static void* runtime_library() { return dlopen("libcudart.so.13", RTLD_NOW); }
};

TEST_F(CudaExports, EveryNameOfTheRealLibrariesIsThere) {
  EXPECT_GE(std::size(kDriver), 637u);
  EXPECT_GE(std::size(kRuntime), 422u);
  for (const DriverSymbol& s : kDriver) EXPECT_NE(dlsym(driver_library(), s.symbol), nullptr) << s.symbol;
  for (const char* name : kRuntime) EXPECT_NE(dlvsym(runtime_library(), name, "libcudart.so.13"), nullptr) << name;
}

// A name's form for a version, and for a default stream where that has its own.
TEST_F(CudaExports, ProcAddressGivesEachNameInItsVersion) {
  for (const DriverSymbol& s : kDriver) {
    if (std::strcmp(s.base, "cuGraphInstantiate") == 0 && s.version >= 12000) continue;
    void* entry = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const cuuint64_t flags =
        s.twin == kPerThread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    ASSERT_EQ(cuGetProcAddress(s.base, &entry, s.version, flags, &status), CUDA_SUCCESS) << s.symbol;
    EXPECT_EQ(entry, dlsym(driver_library(), s.symbol)) << s.symbol;
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS) << s.symbol;
  }
}

TEST_F(CudaExports, ProcAddressKnowsWhenANameCame) {
  const auto ask = [](const char* name, int version, CUdriverProcAddressQueryResult* status) {
    void* entry = nullptr;
    EXPECT_EQ(cuGetProcAddress(name, &entry, version, CU_GET_PROC_ADDRESS_DEFAULT, status), CUDA_SUCCESS) << name;
    return entry;
  };
  const auto address = [](const char* name) { return dlsym(driver_library(), name); };
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  EXPECT_EQ(ask("cuMemAlloc", 13000, &status), address("cuMemAlloc_v2"));
  EXPECT_EQ(ask("cuCtxCreate", 12000, &status), address("cuCtxCreate_v3"));
  EXPECT_EQ(ask("cuCtxCreate", 11030, &status), address("cuCtxCreate_v2"));
  EXPECT_EQ(ask("cuCtxCreate", 13000, &status), address("cuCtxCreate_v4"));
  EXPECT_EQ(ask("cuStreamGetCaptureInfo", 12020, &status), address("cuStreamGetCaptureInfo_v2"));
  EXPECT_EQ(ask("cuStreamGetCaptureInfo", 12030, &status), address("cuStreamGetCaptureInfo_v3"));
  EXPECT_EQ(ask("cuGraphInstantiate", 12000, &status), address("cuGraphInstantiateWithFlags"));
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_EQ(ask("cuLibraryLoadData", 11080, &status), nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(ask("cuNoSuchThing", 13000, &status), nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);

  void* entry = nullptr;
  EXPECT_EQ(cuGetProcAddress("cuInit", &entry, CUDA_VERSION + 10, 0, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress("cuInit", &entry, CUDA_VERSION, 4, &status), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGetProcAddress(nullptr, &entry, CUDA_VERSION, 0, &status), CUDA_ERROR_INVALID_VALUE);
  // What does not depend on the default stream is the same for both.
  ASSERT_EQ(cuGetProcAddress("cuMemAlloc", &entry, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(entry, address("cuMemAlloc_v2"));
  // The form without a status has but its result to tell.
  auto* older = reinterpret_cast<CUresult (*)(const char*, void**, int, cuuint64_t)>(address("cuGetProcAddress"));
  EXPECT_EQ(older("cuNoSuchThing", &entry, 13000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(older("cuInit", &entry, 13000, 0), CUDA_SUCCESS);
}

TEST_F(CudaExports, RuntimeEntryPointsAreTheDrivers) {
  void* entry = nullptr;
  int status = -1;
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuMemFree", &entry, 13000, 0, &status), 0);
  EXPECT_EQ(entry, dlsym(driver_library(), "cuMemFree_v2"));
  EXPECT_EQ(status, 0);
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &entry, 13000, 0, &status), 0);
  EXPECT_EQ(entry, nullptr);
  EXPECT_EQ(status, 1);
}

TEST_F(CudaExports, WhatIsNotThereSaysSo) {
  setenv("HOSTCUDA_VERBOSE", "1", 1);
  testing::internal::CaptureStderr();
  auto* texture = reinterpret_cast<CUresult (*)(...)>(dlsym(driver_library(), "cuTexObjectCreate"));
  auto* image = reinterpret_cast<int (*)(...)>(dlsym(runtime_library(), "cudaGraphicsGLRegisterImage"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(texture(nullptr), CUDA_ERROR_NOT_SUPPORTED);
  cudaGetLastError();
  EXPECT_EQ(image(nullptr), 801);
  EXPECT_EQ(cudaGetLastError(), 801);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "hostcuda: cuTexObjectCreate is not part of the host device (CUDA_ERROR_NOT_SUPPORTED)\n"
            "hostcuda: cudaGraphicsGLRegisterImage is not part of the host device (cudaErrorNotSupported)\n");
  setenv("HOSTCUDA_VERBOSE", "0", 1);
  auto* other = reinterpret_cast<CUresult (*)(...)>(dlsym(driver_library(), "cuTexObjectDestroy"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(other(nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace hostcuda_test

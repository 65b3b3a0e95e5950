// SPDX-License-Identifier: MIT
// Rules and observation of the driver API: launch limits, images, counting, tracing.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "kernels/simt_host.h"
#include "tests/hostcuda/device_fixture.h"
#include "tests/scratch_folder.h"

namespace hostcuda_test {
namespace {

// What cuLibraryLoadData takes for a fat binary: its magic, version and header size, with nothing in it.
struct alignas(8) EmptyFatbin {
  uint32_t magic = 0xBA55ED50;
  uint16_t version = 1;
  uint16_t header_bytes = 16;
  uint64_t payload_bytes = 0;
};

class DriverRules : public DeviceTest {
 protected:
  // Some kernel of the library beside libcuda.so.1; the test needs its limits, not what it computes.
  static const hostcuda::HostKernelEntry* any_kernel() {
    Dl_info here{};
    if (dladdr(reinterpret_cast<const void*>(&hostcuda_view), &here) == 0) return nullptr;
    std::string path = here.dli_fname;
    path = path.substr(0, path.rfind('/') + 1) + "libsdcguard_hostkernels.so";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    const auto* table = static_cast<const hostcuda::HostKernelTable*>(dlsym(library, "hostcuda_kernel_table"));
    return table == nullptr || table->begin == table->end ? nullptr : *table->begin;
  }

  void load() {
    entry_ = any_kernel();
    ASSERT_NE(entry_, nullptr) << "no libsdcguard_hostkernels.so beside libcuda.so.1, or no kernel in it";
    ASSERT_EQ(cuLibraryLoadData(&library_, &image_, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuLibraryGetKernel(&kernel_, library_, entry_->name), CUDA_SUCCESS);
    ASSERT_EQ(cuKernelGetFunction(&function_, kernel_), CUDA_SUCCESS);
    params_.resize(entry_->parameter_bytes + 1);
    ASSERT_EQ(hostcuda_configure("HOSTCUDA_SKIP_KERNEL", entry_->name), 0);  // accepted launches do nothing
  }

  CUresult launch(unsigned grid, unsigned block, unsigned shared_bytes) {
    void* arguments[] = {params_.data()};
    return cuLaunchKernel(function_, grid, 1, 1, block, 1, 1, shared_bytes, nullptr, arguments, nullptr);
  }

  EmptyFatbin image_;
  const hostcuda::HostKernelEntry* entry_ = nullptr;
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  CUfunction function_ = nullptr;
  std::vector<unsigned char> params_;
};

TEST_F(DriverRules, LaunchLimits) {
  load();
  const unsigned most = entry_->max_threads;
  EXPECT_EQ(launch(1, most, 0), CUDA_SUCCESS);
  EXPECT_EQ(launch(0, most, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(0x80000000u, most, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1025, 0), CUDA_ERROR_INVALID_VALUE);
  if (most < 1024) {
    EXPECT_EQ(launch(1, most + 1, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  }
  void* arguments[] = {params_.data()};
  EXPECT_EQ(cuLaunchKernel(function_, 1, 65536, 1, 32, 1, 1, 0, nullptr, arguments, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function_, 1, 1, 1, 1, 1, 65, 0, nullptr, arguments, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverRules, SharedMemoryAboveTheLimitNeedsOptIn) {
  load();
  constexpr unsigned kDefault = 48 * 1024;
  EXPECT_EQ(launch(1, 32, kDefault), CUDA_SUCCESS);
  EXPECT_EQ(launch(1, 32, kDefault + 1), CUDA_ERROR_INVALID_VALUE);
  int most = 0;
  ASSERT_EQ(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most + 1),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most), CUDA_SUCCESS);
  EXPECT_EQ(launch(1, 32, static_cast<unsigned>(most)), CUDA_SUCCESS);
  EXPECT_EQ(launch(1, 32, static_cast<unsigned>(most) + 1), CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  ASSERT_EQ(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel_, 0), CUDA_SUCCESS);
  EXPECT_EQ(value, most);
  ASSERT_EQ(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel_, 1), CUDA_SUCCESS);
  EXPECT_EQ(value, static_cast<int>(kDefault)) << "the opt-in is one device's";
}

TEST_F(DriverRules, ParameterBufferMustHaveTheKernelsSize) {
  load();
  if (entry_->parameter_bytes == 0) return;
  size_t bytes = entry_->parameter_bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params_.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  EXPECT_EQ(cuLaunchKernel(function_, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra), CUDA_SUCCESS);
  ++bytes;
  EXPECT_EQ(cuLaunchKernel(function_, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function_, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverRules, FunctionBelongsToItsContext) {
  load();
  CUcontext other = nullptr;
  ASSERT_EQ(cuCtxCreate(&other, nullptr, 0, 1), CUDA_SUCCESS);
  EXPECT_EQ(launch(1, 32, 0), CUDA_ERROR_INVALID_HANDLE) << "legacy stream of another context";
  function_ = reinterpret_cast<CUfunction>(kernel_);
  EXPECT_EQ(launch(1, 32, 0), CUDA_SUCCESS) << "a context-less kernel takes the stream's context";
  EXPECT_EQ(cuCtxDestroy(other), CUDA_SUCCESS);
}

TEST_F(DriverRules, ImagesAndNamesAreChecked) {
  load();
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  const char junk[64] = "not a device image";
  EXPECT_EQ(cuLibraryLoadData(&library, junk, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(cuLibraryGetKernel(&kernel, library_, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(cuModuleLoadData(&module, &image_), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetFunction(&function, module, entry_->name), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetFunction(&function, module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cuLibraryUnload(library_), CUDA_SUCCESS);
  EXPECT_EQ(launch(1, 32, 0), CUDA_ERROR_INVALID_HANDLE) << "unloaded";
}

// Launches as they were set up before CUDA 4.0: block, parameters and grid one by one. Deprecated, and in use.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST_F(DriverRules, OldStyleLaunchesKeepWhatWasSet) {
  load();
  EXPECT_EQ(cuFuncSetBlockShape(function_, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuFuncSetBlockShape(function_, 32, 1, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuParamSetSize(function_, static_cast<unsigned>(entry_->parameter_bytes) + 1), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchGridAsync(function_, 1, 1, nullptr), CUDA_ERROR_INVALID_VALUE) << "too many parameters";
  ASSERT_EQ(cuParamSetSize(function_, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuParamSetv(function_, 0, params_.data(), static_cast<unsigned>(entry_->parameter_bytes)), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchGridAsync(function_, 4, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchGrid(function_, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuParamSeti(function_, -4, 1), CUDA_ERROR_INVALID_VALUE);
  size_t offset = 1;
  size_t bytes = 0;
  ASSERT_EQ(cuKernelGetParamInfo(kernel_, 0, &offset, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(offset, 0u);
  EXPECT_EQ(bytes, entry_->parameter_bytes);
  EXPECT_EQ(cuKernelGetParamInfo(kernel_, 1, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
  CUlibrary library = nullptr;
  ASSERT_EQ(cuKernelGetLibrary(&library, kernel_), CUDA_SUCCESS);
  EXPECT_EQ(library, library_);
}
#pragma GCC diagnostic pop

TEST_F(DriverRules, ModulesComeFromFilesToo) {
  load();
  const sdcguard::ScratchFolder folder;
  const std::string path = folder / "image";
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&image_), sizeof image_);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(cuModuleLoad(&module, path.c_str()), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetFunction(&function, module, entry_->name), CUDA_SUCCESS);
  CUmodule back = nullptr;
  ASSERT_EQ(cuFuncGetModule(&back, function), CUDA_SUCCESS);
  EXPECT_EQ(back, module);
  unlink(path.c_str());
  EXPECT_EQ(cuModuleLoad(&module, path.c_str()), CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_F(DriverRules, SettingsAreKeptAndGivenBack) {
  size_t limit = 0;
  ASSERT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(limit, 4096u);
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_MAX, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
  CUfunc_cache config = CU_FUNC_CACHE_PREFER_NONE;
  ASSERT_EQ(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxGetCacheConfig(&config), CUDA_SUCCESS);
  EXPECT_EQ(config, CU_FUNC_CACHE_PREFER_L1);
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  CUstreamAttrValue value{};
  value.priority = -100;
  ASSERT_EQ(cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_PRIORITY, &value), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_PRIORITY, &value), CUDA_SUCCESS);
  EXPECT_EQ(value.priority, -5) << "clamped to what there is";
  EXPECT_EQ(cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value), CUDA_ERROR_INVALID_VALUE);
  static int called;
  called = 0;
  ASSERT_EQ(cuStreamAddCallback(
                stream, [](CUstream, CUresult, void*) { ++called; }, nullptr, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(called, 1);
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamAddCallback(
                stream, [](CUstream, CUresult, void*) {}, nullptr, 0),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CUdeviceptr managed = 0;
  ASSERT_EQ(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_SINGLE), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamAttachMemAsync(stream, allocate(64), 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverRules, CallsAreCountedAndTracedByThread) {
  const uint64_t before = hostcuda_call_count("cuMemsetD8Async");
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  const CUdeviceptr p = allocate(64);
  hostcuda_trace_begin();
  EXPECT_EQ(cuMemsetD8Async(p, 0, 64, stream), CUDA_SUCCESS);
  std::thread([&] {
    cuCtxSetCurrent(context_);
    cuMemsetD8Async(p, 0, 64, stream);
  }).join();
  EXPECT_EQ(cuMemsetD8Async(p, 0, 65, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  HostcudaCall calls[2];
  EXPECT_EQ(hostcuda_trace_end(calls, 2), 3u) << "the other thread's calls are its own";
  EXPECT_STREQ(calls[0].name, "cuMemsetD8Async");
  EXPECT_EQ(calls[0].stream, stream);
  EXPECT_EQ(calls[0].result, CUDA_SUCCESS);
  EXPECT_EQ(calls[1].result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(hostcuda_call_count("cuMemsetD8Async"), before + 3);
}

TEST_F(DriverRules, TraceFileTellsDriverFromRuntime) {
  const sdcguard::InheritedFile trace("HOSTCUDA_TRACE");
  EXPECT_EXIT(
      {
        CUdevice device = 0;
        reinterpret_cast<CUresult (*)(CUdevice*, int)>(hostcuda_driver("cuDeviceGet"))(&device, 0);
        std::ifstream file(trace.path());
        std::stringstream text;
        text << file.rdbuf();
        const bool right = text.str().find("driver\t1\tcuInit\t0x0\t0\n") != std::string::npos &&
                           text.str().find("runtime\t1\tcuDeviceGet\t0x0\t0\n") != std::string::npos;
        _exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(DriverRules, ErrorsHaveNames) {
  const char* text = nullptr;
  ASSERT_EQ(cuGetErrorName(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT");
  ASSERT_EQ(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(998), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

TEST_F(DriverRules, ForkedChildHasNoDevice) {
  EXPECT_EXIT(
      {
        cuInit(0);
        const pid_t child = fork();
        if (child == 0) {
          CUdeviceptr p = 0;
          _exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && cuMemAlloc(&p, 64) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
        }
        int code = 1;
        waitpid(child, &code, 0);
        _exit(WIFEXITED(code) ? WEXITSTATUS(code) : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(DriverRules, ExitWithWorkInFlightIsQuiet) {
  EXPECT_EXIT(
      {
        cuInit(0);
        CUcontext context = nullptr;
        cuDevicePrimaryCtxRetain(&context, 0);
        cuCtxSetCurrent(context);
        for (int i = 0; i < 50; ++i) cuMemsetD8Async(allocate(1 << 20), 1, 1 << 20, nullptr);
        std::exit(3);
      },
      testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace hostcuda_test

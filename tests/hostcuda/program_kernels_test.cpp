// SPDX-License-Identifier: MIT
// A program's own kernels by name (HOSTCUDA_KERNELS): lookup, launches in one, two and three dimensions by every way to
// launch, limits, and libraries that cannot be used.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/hostcuda/device_fixture.h"
#include "tests/scratch_folder.h"

extern "C" {
void** __cudaRegisterFatBinary(void* fat_cubin);
void __cudaRegisterFunction(void** handle, const char* host_function, char* device_function, const char* device_name,
                            int thread_limit, uint3* tid, uint3* bid, dim3* block, dim3* grid, int* warp_size);
void __cudaUnregisterFatBinary(void** handle);
}

namespace hostcuda_test {
namespace {

const std::string kFolder = SDCGUARD_BUILD_DIR "/clients/program_kernels/";

// Read at the first CUDA call.
[[maybe_unused]] const int kSet = setenv("HOSTCUDA_KERNELS", (kFolder + "libprogram_kernels.so").c_str(), 1);

const char kPtx[] = "//\n.version 8.0\n.target sm_80\n";

struct Shape {
  unsigned x, y, z;
  unsigned all() const { return x * y * z; }
};

void PrintTo(const Shape& s, std::ostream* out) {
  *out << s.x << "x" << s.y << "x" << s.z;
}

constexpr uint32_t kWords = 12;

class ProgramKernels : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    ASSERT_EQ(cuModuleLoadData(&module_, kPtx), CUDA_SUCCESS);
  }

  CUfunction function(const char* name) {
    CUfunction f = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&f, module_, name), CUDA_SUCCESS) << name;
    return f;
  }

  static CUresult launch(CUfunction f, const Shape& grid, const Shape& block, void** arguments) {
    return cuLaunchKernel(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, 0, nullptr, arguments, nullptr);
  }

  static CUdeviceptr records(const Shape& grid, const Shape& block) {
    const CUdeviceptr out = allocate(size_t{grid.all()} * block.all() * kWords * 4);
    EXPECT_EQ(cuMemsetD32(out, 0xFFFFFFFF, size_t{grid.all()} * block.all() * kWords), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);  // a memset returns before it is done; non-blocking streams don't wait
    return out;
  }

  // What kernel `where` has to leave in `out`.
  static void expect_records(CUdeviceptr out, const Shape& grid, const Shape& block) {
    std::vector<uint32_t> found(size_t{grid.all()} * block.all() * kWords);
    ASSERT_EQ(cuMemcpyDtoH(found.data(), out, found.size() * 4), CUDA_SUCCESS);
    size_t at = 0;
    for (unsigned z = 0; z < grid.z * block.z; ++z) {
      for (unsigned y = 0; y < grid.y * block.y; ++y) {
        for (unsigned x = 0; x < grid.x * block.x; ++x, at += kWords) {
          const std::vector<uint32_t> expected{x % block.x, y % block.y, z % block.z, x / block.x,
                                               y / block.y, z / block.z, block.x,     block.y,
                                               block.z,     grid.x,      grid.y,      grid.z};
          const auto from = found.begin() + static_cast<std::ptrdiff_t>(at);
          ASSERT_EQ(std::vector<uint32_t>(from, from + kWords), expected) << x << " " << y << " " << z;
        }
      }
    }
    ASSERT_EQ(cuMemFree(out), CUDA_SUCCESS);
  }

  CUmodule module_ = nullptr;
};

TEST_F(ProgramKernels, EveryThreadKnowsItsPlace) {
  const CUfunction where = function("where");
  const Shape shapes[][2] = {{{5, 1, 1}, {33, 1, 1}}, {{3, 2, 1}, {16, 16, 1}}, {{1, 4, 1}, {1, 7, 1}},
                             {{2, 3, 4}, {5, 3, 2}},  {{1, 1, 6}, {2, 2, 64}},  {{2, 1, 2}, {32, 32, 1}}};
  for (const auto& [grid, block] : shapes) {
    SCOPED_TRACE(testing::PrintToString(grid) + " of " + testing::PrintToString(block));
    CUdeviceptr out = records(grid, block);
    void* arguments[] = {&out};
    ASSERT_EQ(launch(where, grid, block, arguments), CUDA_SUCCESS);
    expect_records(out, grid, block);
  }
}

TEST_F(ProgramKernels, ThreadsOfATileMeetAtBarriers) {
  constexpr uint32_t n = 48;
  std::vector<float> in(n * n);
  for (uint32_t i = 0; i < n * n; ++i) in[i] = static_cast<float>(i);
  CUdeviceptr from = allocate(n * n * 4);
  CUdeviceptr to = allocate(n * n * 4);
  ASSERT_EQ(cuMemcpyHtoD(from, in.data(), n * n * 4), CUDA_SUCCESS);
  uint32_t size = n;
  void* arguments[] = {&from, &to, &size};
  ASSERT_EQ(launch(function("transpose"), {3, 3, 1}, {16, 16, 1}, arguments), CUDA_SUCCESS);
  std::vector<float> out(n * n);
  ASSERT_EQ(cuMemcpyDtoH(out.data(), to, n * n * 4), CUDA_SUCCESS);
  for (uint32_t i = 0; i < n * n; ++i) ASSERT_EQ(out[i], in[i % n * n + i / n]) << i;
}

TEST_F(ProgramKernels, ParametersOneByOneOrAsABlock) {
  const CUfunction mixed = function("_Z5mixedhdtPdfi");
  CUdeviceptr out = allocate(5 * 8);
  uint8_t a = 200;
  double b = 1.5;
  uint16_t c = 60000;
  float d = -0.25f;
  int32_t e = -7;
  const auto expect = [&] {
    std::vector<double> values(5);
    ASSERT_EQ(cuMemcpyDtoH(values.data(), out, 40), CUDA_SUCCESS);
    EXPECT_EQ(values, (std::vector<double>{static_cast<double>(a), b, static_cast<double>(c), static_cast<double>(d),
                                           static_cast<double>(e)}));
    ASSERT_EQ(cuMemsetD8(out, 0, 40), CUDA_SUCCESS);
  };
  void* arguments[] = {&a, &b, &c, &out, &d, &e};
  ASSERT_EQ(launch(mixed, {1, 1, 1}, {1, 1, 1}, arguments), CUDA_SUCCESS);
  expect();
  struct {
    uint8_t a;
    double b;
    uint16_t c;
    CUdeviceptr out;
    float d;
    int32_t e;
  } params{a, b, c, out, d, e};
  size_t bytes = sizeof params;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  ASSERT_EQ(cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra), CUDA_SUCCESS);
  expect();
  arguments[3] = nullptr;
  EXPECT_EQ(launch(mixed, {1, 1, 1}, {1, 1, 1}, arguments), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(mixed, {1, 1, 1}, {1, 1, 1}, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(function("nothing"), {2, 2, 2}, {2, 2, 2}, nullptr), CUDA_SUCCESS);
  size_t offset = 0;
  for (const auto& [index, at, size] : {std::array<size_t, 3>{1, 8, 8}, {2, 16, 2}, {3, 24, 8}, {4, 32, 4}}) {
    ASSERT_EQ(cuFuncGetParamInfo(mixed, index, &offset, &bytes), CUDA_SUCCESS);
    EXPECT_EQ(offset, at);
    EXPECT_EQ(bytes, size);
  }
  EXPECT_EQ(cuFuncGetParamInfo(mixed, 6, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ProgramKernels, LimitsOfEachDimensionAndOfAll) {
  const CUfunction where = function("where");
  const CUfunction small = function("nothing");  // 256 threads at most
  CUdeviceptr out = 0;
  void* arguments[] = {&out};
  const Shape one{1, 1, 1};
  for (const Shape& grid : {Shape{0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {0x80000000u, 1, 1}, {1, 65536, 1}, {1, 1, 65536}}) {
    EXPECT_EQ(launch(where, grid, one, arguments), CUDA_ERROR_INVALID_VALUE) << testing::PrintToString(grid);
  }
  for (const Shape& block :
       {Shape{0, 1, 1}, {1, 0, 1}, {1, 1, 0}, {1025, 1, 1}, {1, 1025, 1}, {1, 1, 65}, {32, 33, 1}}) {
    EXPECT_EQ(launch(where, one, block, arguments), CUDA_ERROR_INVALID_VALUE) << testing::PrintToString(block);
  }
  EXPECT_EQ(launch(small, one, {16, 17, 1}, nullptr), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(launch(small, one, {16, 16, 1}, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(launch(small, {1, 1, 65535}, one, nullptr), CUDA_SUCCESS);
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch(small, {0x7FFFFFFF, 2, 1}, one, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(launch(small, {0x7FFFFFFF, 65535, 65535}, one, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("nothing: the host device runs at most 2147483647 blocks in a grid"), std::string::npos) << said;
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(ProgramKernels, TheShimsKernelsStayOneDimensional) {
  const CUfunction fold = function("sdcguard_fold");
  size_t offset = 0;
  size_t bytes = 0;
  ASSERT_EQ(cuFuncGetParamInfo(fold, 0, &offset, &bytes), CUDA_SUCCESS);
  std::vector<unsigned char> params(bytes);
  void* arguments[] = {params.data()};
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch(fold, {1, 2, 1}, {32, 1, 1}, arguments), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(launch(fold, {1, 1, 1}, {32, 2, 1}, arguments), CUDA_ERROR_NOT_SUPPORTED);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("sdcguard_fold: this kernel's grids and blocks have one dimension"), std::string::npos) << said;
}

// As programs older than CUDA 4.0 launch: width and height of the grid, three dimensions of the block.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST_F(ProgramKernels, OldStyleLaunches) {
  const CUfunction where = function("where");
  const Shape grid{3, 5, 1};
  const Shape block{4, 2, 3};
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(cuFuncSetBlockShape(where, 4, 2, 3), CUDA_SUCCESS);
  ASSERT_EQ(cuParamSetSize(where, 8), CUDA_SUCCESS);
  CUdeviceptr out = records(grid, block);
  ASSERT_EQ(cuParamSetv(where, 0, &out, 8), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchGridAsync(where, 3, 5, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  expect_records(out, grid, block);
  out = records(grid, block);
  ASSERT_EQ(cuParamSeti(where, 0, static_cast<unsigned>(out)), CUDA_SUCCESS);
  ASSERT_EQ(cuParamSeti(where, 4, static_cast<unsigned>(out >> 32)), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchGrid(where, 3, 5), CUDA_SUCCESS);
  expect_records(out, grid, block);
  EXPECT_EQ(cuLaunchGrid(where, 3, 65536), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuFuncSetBlockShape(where, 1, 1, 65), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchGrid(where, 3, 5), CUDA_ERROR_INVALID_VALUE);
}
#pragma GCC diagnostic pop

TEST_F(ProgramKernels, EveryWayToLoadAnImageFindsThem) {
  const sdcguard::ScratchFolder folder;
  const std::string path = folder / "image.ptx";
  std::ofstream(path) << kPtx;
  struct alignas(8) {
    uint32_t magic = 0xBA55ED50;
    uint16_t version = 1;
    uint16_t header_bytes = 16;
    uint64_t payload_bytes = 0;
  } fatbin;
  CUmodule modules[3] = {};
  ASSERT_EQ(cuModuleLoad(&modules[0], path.c_str()), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleLoadFatBinary(&modules[1], &fatbin), CUDA_SUCCESS);
  ASSERT_EQ(cuModuleLoadDataEx(&modules[2], &fatbin, 0, nullptr, nullptr), CUDA_SUCCESS);
  CUfunction f = nullptr;
  for (const CUmodule module : modules) EXPECT_EQ(cuModuleGetFunction(&f, module, "where"), CUDA_SUCCESS);
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "where"), CUDA_SUCCESS);
  int threads = 0;
  ASSERT_EQ(cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0), CUDA_SUCCESS);
  EXPECT_EQ(threads, 1024);
  const Shape grid{1, 2, 3};
  const Shape block{3, 2, 1};
  CUdeviceptr out = records(grid, block);
  void* arguments[] = {&out};
  ASSERT_EQ(launch(reinterpret_cast<CUfunction>(kernel), grid, block, arguments), CUDA_SUCCESS);
  expect_records(out, grid, block);
}

TEST_F(ProgramKernels, AnUnknownNameIsSaidOnce) {
  CUfunction f = nullptr;
  testing::internal::CaptureStderr();
  EXPECT_EQ(cuModuleGetFunction(&f, module_, "nobodys"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuModuleGetFunction(&f, module_, "nobodys"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "hostcuda: kernel nobodys has no host version\n");
}

// What nvcc's output does for a kernel of the program, the kernel's stub being a function of this file.
TEST_F(ProgramKernels, RuntimeLaunches) {
  static const char image[] = "//\n.version 8.0\n";
  void** const binary = __cudaRegisterFatBinary(const_cast<char*>(image));
  static const char where_stub = 0;
  static const char mixed_stub = 0;
  static const char nobody_stub = 0;
  for (const auto& [stub, name] :
       {std::pair{&where_stub, "where"}, {&mixed_stub, "_Z5mixedhdtPdfi"}, {&nobody_stub, "nobodys_either"}}) {
    __cudaRegisterFunction(binary, stub, nullptr, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  }
  const Shape grid{2, 3, 2};
  const Shape block{4, 2, 8};
  CUdeviceptr out = records(grid, block);
  void* arguments[] = {&out};
  ASSERT_EQ(cudaLaunchKernel(&where_stub, {2, 3, 2}, {4, 2, 8}, arguments, 0, nullptr), cudaSuccess);
  expect_records(out, grid, block);
  EXPECT_EQ(cudaLaunchKernel(&where_stub, {2, 65536, 2}, {4, 2, 8}, arguments, 0, nullptr),
            cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaLaunchKernel(&where_stub, {1, 1, 1}, {1, 1, 65}, arguments, 0, nullptr), cudaErrorInvalidConfiguration);
  uint8_t a = 1;
  double b = 2;
  uint16_t c = 3;
  float d = 4;
  int32_t e = 5;
  out = allocate(40);
  void* all[] = {&a, &b, &c, &out, &d, &e};
  ASSERT_EQ(cudaLaunchKernel(&mixed_stub, {1, 1, 1}, {1, 1, 1}, all, 0, nullptr), cudaSuccess);
  std::vector<double> values(5);
  ASSERT_EQ(cuMemcpyDtoH(values.data(), out, 40), CUDA_SUCCESS);
  EXPECT_EQ(values, (std::vector<double>{1, 2, 3, 4, 5}));
  testing::internal::CaptureStderr();
  EXPECT_EQ(cudaLaunchKernel(&nobody_stub, {1, 1, 1}, {1, 1, 1}, nullptr, 0, nullptr), cudaErrorNoKernelImageForDevice);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "hostcuda: kernel nobodys_either has no host version\n");
  cudaGetLastError();
  __cudaUnregisterFatBinary(binary);
}

TEST_F(ProgramKernels, NodesKeepShapeAndEveryParameter) {
  const Shape grid{2, 3, 1};
  const Shape block{3, 1, 4};
  CUdeviceptr out = records(grid, block);
  void* arguments[] = {&out};
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(cuLaunchKernel(function("where"), 2, 3, 1, 3, 1, 4, 0, stream, arguments, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  CUdeviceptr from = 1;
  CUdeviceptr to = 2;
  uint32_t n = 3;
  void* three[] = {&from, &to, &n};
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function("transpose");
  params.gridDimX = params.gridDimZ = params.blockDimZ = 1;
  params.gridDimY = 2;
  params.blockDimX = params.blockDimY = 16;
  params.kernelParams = three;
  CUgraph by_hand = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(cuGraphCreate(&by_hand, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddKernelNode(&node, by_hand, nullptr, 0, &params), CUDA_SUCCESS);
  CUDA_KERNEL_NODE_PARAMS back{};
  ASSERT_EQ(cuGraphKernelNodeGetParams(node, &back), CUDA_SUCCESS);
  EXPECT_EQ(back.gridDimY, 2u);
  EXPECT_EQ(back.blockDimY, 16u);
  EXPECT_EQ(*static_cast<CUdeviceptr*>(back.kernelParams[0]), 1u);
  EXPECT_EQ(*static_cast<CUdeviceptr*>(back.kernelParams[1]), 2u);
  EXPECT_EQ(*static_cast<uint32_t*>(back.kernelParams[2]), 3u);
  ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  expect_records(out, grid, block);
}

TEST_F(ProgramKernels, ABrokenRuleNamesThePlaceInThreeDimensions) {
  const auto store_beyond = [this] {
    CUdeviceptr out = allocate(64);
    int64_t end = 16;
    void* arguments[] = {&out, &end};
    launch(function("beyond"), {2, 2, 1}, {2, 3, 4}, arguments);
    cuCtxSynchronize();
  };
  EXPECT_EXIT(store_beyond(), testing::ExitedWithCode(86),
              "kernel beyond, block \\(0,1,0\\), thread \\(1,2,3\\) \\(warp 0, lane 23\\), "
              ".*program_kernels.cpp:[0-9]+: bad address: 4-byte store");
}

// The first image loaded with HOSTCUDA_KERNELS=library.
void load_with(const std::string& library) {
  setenv("HOSTCUDA_KERNELS", library.c_str(), 1);
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  cuInit(0);
  cuDevicePrimaryCtxRetain(&context, 0);
  cuCtxSetCurrent(context);
  cuModuleLoadData(&module, kPtx);
  std::exit(0);
}

TEST(ProgramKernelLibrary, OneThatCannotServeEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto refused = testing::ExitedWithCode(2);
  EXPECT_EXIT(
      load_with("/no/such/library.so"), refused,
      "^hostcuda: HOSTCUDA_KERNELS=/no/such/library.so: cannot be loaded \\(.*\\): name a shared library of host "
      "kernels, or unset the variable\n$");
  EXPECT_EXIT(load_with("libm.so.6"), refused,
              "^hostcuda: HOSTCUDA_KERNELS=libm.so.6: has no hostcuda_kernel_table: build it from sources that include "
              "tools/hostcuda/simt/program_kernel.h\n$");
  EXPECT_EXIT(load_with(kFolder + "libold_kernels.so"), refused,
              "^hostcuda: HOSTCUDA_KERNELS=.*/libold_kernels.so: was built for kernel interface 1, this is 2: build it "
              "again with this version's headers\n$");
  EXPECT_EXIT(
      load_with("libsdcguard_hostkernels.so"), refused,
      "^hostcuda: HOSTCUDA_KERNELS=libsdcguard_hostkernels.so: holds sdcguard_[a-z_0-9]+, a kernel of the shim's: "
      "rename it\n$");
  EXPECT_EXIT(load_with(kFolder + "libprogram_kernels.so"), testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(load_with(""), testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace hostcuda_test

// SPDX-License-Identifier: MIT
// hostcuda's libcublas.so.13 as an ordinary program sees it: real headers, public names, cudart for memory.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "tests/hostcuda/cublas_fixture.h"
#include "tests/hostcuda/product_reference.h"
#include "tests/scratch_folder.h"
#include "tools/hostcuda/core.h"

namespace {

using reference::Activation;
using reference::constant_numbers;
using reference::DeviceBytes;
using reference::Format;
using reference::Gate;
using reference::kBf16;
using reference::kFp16;
using reference::kFp32;
using reference::Numbers;
using reference::Problem;
using reference::random_numbers;
using reference::Shape;

int lt_calls = 0;

}  // namespace

// libcublas calls the public cublasLtMatmul through its linkage table: this one, then the library's own.
extern "C" cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                                         const void* A, cublasLtMatrixLayout_t Adesc, const void* B,
                                         cublasLtMatrixLayout_t Bdesc, const void* beta, const void* C,
                                         cublasLtMatrixLayout_t Cdesc, void* D, cublasLtMatrixLayout_t Ddesc,
                                         const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                                         cudaStream_t stream) {
  static const auto real = reinterpret_cast<decltype(&cublasLtMatmul)>(dlsym(RTLD_NEXT, "cublasLtMatmul"));
  ++lt_calls;
  return real(handle, desc, alpha, A, Adesc, B, Bdesc, beta, C, Cdesc, D, Ddesc, algo, workspace, workspace_bytes,
              stream);
}

extern "C" int hostcuda_set_not_supported(const char* rules);
// Exported by the real library and declared nowhere.
extern "C" int cublasGetBackdoor();

namespace {

std::string output_of(const std::string& command, int* exit_code = nullptr) {
  std::string text;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char part[4096];
  while (pipe && std::fgets(part, sizeof part, pipe)) text += part;
  const int status = pipe ? pclose(pipe) : -1;
  if (exit_code) *exit_code = status;
  return text;
}

std::string path_of_library(void* symbol) {
  Dl_info info{};
  EXPECT_NE(dladdr(symbol, &info), 0);
  return info.dli_fname;
}

void* in_library(const char* soname, const char* name) {
  void* library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(library, nullptr) << soname;
  return dlsym(library, name);
}

struct Stub {
  const char* soname;
  const char* folder;
  const char* probe;  // any of its functions
};

constexpr Stub kLibraries[] = {{"libcublas.so.13", "cublas", "cublasCreate_v2"},
                               {"libcublasLt.so.13", "cublaslt", "cublasLtCreate"}};

// The names that the real library of that major exports.
std::set<std::string> listed_names(const std::string& folder, const std::string& major) {
  std::ifstream list(std::string(SDCGUARD_SOURCE_DIR) + "/tools/hostcuda/" + folder + "/symbols.def");
  const std::string heads[] = {"HOSTCUDA_SYMBOL(", "HOSTCUDA_SYMBOL_" + major + "("};
  std::set<std::string> names;
  for (std::string line; std::getline(list, line);) {
    for (const std::string& head : heads) {
      if (line.rfind(head, 0) == 0) names.insert(line.substr(head.size(), line.find(')') - head.size()));
    }
  }
  return names;
}

class CublasTest : public HandleTest {
 protected:
  void SetUp() override {
    hostcuda_set_not_supported(nullptr);
    HandleTest::SetUp();
  }
  void TearDown() override {
    HandleTest::TearDown();
    hostcuda_set_not_supported(nullptr);
  }
};

cublasOperation_t operation(bool transpose) {
  return transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
}

struct Case {
  const char* name;
  Format in, out;
  cublasComputeType_t compute;
};

const Case kCases[] = {
    {"bf16", kBf16, kBf16, CUBLAS_COMPUTE_32F},
    {"bf16 to fp32", kBf16, kFp32, CUBLAS_COMPUTE_32F},
    {"fp16", kFp16, kFp16, CUBLAS_COMPUTE_32F},
    {"fp16 to fp32", kFp16, kFp32, CUBLAS_COMPUTE_32F_PEDANTIC},
    {"fp32", kFp32, kFp32, CUBLAS_COMPUTE_32F},
    {"fp32 pedantic", kFp32, kFp32, CUBLAS_COMPUTE_32F_PEDANTIC},
    {"fp32 fast tf32", kFp32, kFp32, CUBLAS_COMPUTE_32F_FAST_TF32},
    {"fp16 accumulator", kFp16, kFp16, CUBLAS_COMPUTE_16F},
};

// alpha and beta in the type that the compute type demands.
struct Factor {
  Factor(cublasComputeType_t compute, double value)
      : single(static_cast<float>(value)), half(static_cast<uint16_t>(reference::encode(kFp16, value))) {
    use_half = compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC;
  }
  const void* get() const { return use_half ? static_cast<const void*>(&half) : &single; }
  float single;
  uint16_t half;
  bool use_half;
};

Problem make_problem(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b, int64_t padding) {
  Problem problem;
  problem.transpose_a = transpose_a;
  problem.transpose_b = transpose_b;
  problem.a = transpose_a ? reference::packed(k, m, padding) : reference::packed(m, k, padding);
  problem.b = transpose_b ? reference::packed(n, k, padding) : reference::packed(k, n, padding);
  problem.c = problem.d = reference::packed(m, n, padding);
  return problem;
}

// Runs cublasGemmEx on fresh buffers and holds it against the reference.
reference::Comparison run_gemm_ex(cublasHandle_t handle, const Case& x, Problem problem, double alpha, double beta,
                                  uint32_t seed) {
  problem.alpha = alpha;
  problem.beta = beta;
  problem.half_accumulator = x.compute == CUBLAS_COMPUTE_16F;
  problem.tf32 = x.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const Numbers a = random_numbers(x.in, problem.a.elems(), seed);
  const Numbers b = random_numbers(x.in, problem.b.elems(), seed + 1);
  const Numbers c = random_numbers(x.out, problem.c.elems(), seed + 2);
  const DeviceBytes a_dev(a);
  const DeviceBytes b_dev(b);
  const DeviceBytes c_dev(c);
  const Factor alpha_host(x.compute, alpha);
  const Factor beta_host(x.compute, beta);
  const int64_t k = problem.transpose_a ? problem.a.rows : problem.a.cols;
  EXPECT_EQ(cublasGemmEx(handle, operation(problem.transpose_a), operation(problem.transpose_b),
                         static_cast<int>(problem.d.rows), static_cast<int>(problem.d.cols), static_cast<int>(k),
                         alpha_host.get(), a_dev.get(), x.in.type, static_cast<int>(problem.a.ld), b_dev.get(),
                         x.in.type, static_cast<int>(problem.b.ld), beta_host.get(), c_dev.get(), x.out.type,
                         static_cast<int>(problem.c.ld), x.compute, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cublasGetStream(handle, &stream), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  return reference::compare(problem, a, b, c, c, c_dev.patterns(x.out));
}

// ---- exports

TEST(Exports, EveryRealNameInItsVersionNodeAndNoOther) {
  for (const Stub& library : kLibraries) {
    for (const std::string major : {"12", "13"}) {
      std::string path = path_of_library(in_library(library.soname, library.probe));
      const std::string soname = std::string(library.soname).replace(std::strlen(library.soname) - 2, 2, major);
      path.replace(path.rfind('/') + 1, std::string::npos, soname);
      const std::set<std::string> listed = listed_names(library.folder, major);
      EXPECT_GT(listed.size(), 100u) << library.folder;
      std::istringstream table(output_of("nm -D --defined-only " + path));
      std::set<std::string> exported;
      std::string address;
      std::string kind;
      std::string name;
      while (table >> address >> kind >> name) {
        if (kind == "A") continue;  // the version node itself
        const size_t at = name.find("@@");
        ASSERT_NE(at, std::string::npos) << name << " has no version node";
        EXPECT_EQ(name.substr(at + 2), soname);
        if (name.rfind("hostcuda_", 0) != 0) exported.insert(name.substr(0, at));
      }
      EXPECT_EQ(exported, listed) << path;
    }
  }
}

// What the host device does not compute, by name: a stub is a weak symbol.
TEST(Exports, StubsAreTheseAndNoOthers) {
  const std::string path = path_of_library(in_library("libcublas.so.13", "cublasCreate_v2"));
  std::istringstream table(output_of("nm -D --defined-only " + path));
  std::set<std::string> stubs;
  std::string address;
  std::string kind;
  std::string name;
  while (table >> address >> kind >> name) {
    if (kind == "W") stubs.insert(name.substr(0, name.find("@@")));
  }
  std::set<std::string> expected{"cublasGetBackdoor",        "cublasSetBackdoor",        "cublasSetBackdoorEx",
                                 "cublasGetEnvironmentMode", "cublasSetEnvironmentMode", "cublasXerbla",
                                 "cublasUint8gemmBias",      "cublasXtSetCpuRatio",      "cublasXtSetCpuRoutine"};
  for (const std::string letter : {"S", "D", "C", "Z"}) {
    expected.insert("cublas" + letter + "bdmm");
    for (const char* routine : {"spmm", "symm", "syr2k", "syrk", "syrkx", "trmm", "trsm"}) {
      expected.insert("cublasXt" + letter + routine);
    }
    for (const char* routine : {"hemm", "her2k", "herk", "herkx"}) {
      if (letter == "C" || letter == "Z") expected.insert("cublasXt" + letter + routine);
    }
  }
  EXPECT_EQ(stubs, expected);
}

TEST(Exports, SonameAndNeededAreTheRealOnes) {
  const std::string cublas =
      output_of("readelf -dW " + path_of_library(in_library("libcublas.so.13", "cublasCreate_v2")));
  EXPECT_NE(cublas.find("soname: [libcublas.so.13]"), std::string::npos) << cublas;
  EXPECT_NE(cublas.find("[libcublasLt.so.13]"), std::string::npos) << cublas;
  const std::string lt = output_of("readelf -dW " + path_of_library(in_library("libcublasLt.so.13", "cublasLtCreate")));
  EXPECT_NE(lt.find("soname: [libcublasLt.so.13]"), std::string::npos) << lt;
}

TEST(Exports, CommittedListsAreThoseOfTheRealLibraries) {
  int code = -1;
  const std::string text = output_of(std::string(SDCGUARD_SOURCE_DIR) + "/tools/hostcuda/symbols.sh", &code);
  EXPECT_EQ(code, 0) << text;
}

TEST(Exports, AStubRefusesAndSpeaksOnceWhenAsked) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(cublasGetBackdoor(), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_EQ(setenv("HOSTCUDA_VERBOSE", "1", 1), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cublasGetBackdoor(), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cublasGetBackdoor(), CUBLAS_STATUS_NOT_SUPPORTED);
  const std::string said = testing::internal::GetCapturedStderr();
  unsetenv("HOSTCUDA_VERBOSE");
  EXPECT_EQ(said, "hostcuda: cublasGetBackdoor is not part of the host device (CUBLAS_STATUS_NOT_SUPPORTED)\n");
}

// ---- handles

TEST_F(CublasTest, Handle_StateIsKept) {
  int version = 0;
  EXPECT_EQ(cublasGetVersion(handle_, &version), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(version, CUBLAS_VERSION);
  int part = 0;
  EXPECT_EQ(cublasGetProperty(MAJOR_VERSION, &part), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(part, CUBLAS_VER_MAJOR);
  EXPECT_EQ(cublasGetProperty(MINOR_VERSION, &part), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(part, CUBLAS_VER_MINOR);
  EXPECT_EQ(cublasGetCudartVersion(), 13000u);
  EXPECT_STREQ(cublasGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
  EXPECT_STREQ(cublasGetStatusString(CUBLAS_STATUS_SUCCESS), "success");

  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_DEVICE;
  EXPECT_EQ(cublasGetPointerMode(handle_, &pointer_mode), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(pointer_mode, CUBLAS_POINTER_MODE_HOST);
  EXPECT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasGetPointerMode(handle_, &pointer_mode), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(pointer_mode, CUBLAS_POINTER_MODE_DEVICE);

  cublasMath_t math_mode = CUBLAS_PEDANTIC_MATH;
  EXPECT_EQ(cublasGetMathMode(handle_, &math_mode), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(math_mode, CUBLAS_DEFAULT_MATH);
  const auto reduced =
      static_cast<cublasMath_t>(CUBLAS_TF32_TENSOR_OP_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
  EXPECT_EQ(cublasSetMathMode(handle_, reduced), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasGetMathMode(handle_, &math_mode), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(math_mode, reduced);
  EXPECT_EQ(cublasSetMathMode(handle_, static_cast<cublasMath_t>(5)), CUBLAS_STATUS_INVALID_VALUE);

  int sm_count = -1;
  EXPECT_EQ(cublasSetSmCountTarget(handle_, 7), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasGetSmCountTarget(handle_, &sm_count), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(sm_count, 7);
  cublasAtomicsMode_t atomics = CUBLAS_ATOMICS_ALLOWED;
  EXPECT_EQ(cublasGetAtomicsMode(handle_, &atomics), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(atomics, CUBLAS_ATOMICS_NOT_ALLOWED);

  cudaStream_t stream = nullptr;
  EXPECT_EQ(cublasGetStream(handle_, &stream), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(stream, stream_);
  const DeviceBytes workspace(size_t{1024});
  EXPECT_EQ(cublasSetWorkspace(handle_, workspace.get(), 1024), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSetWorkspace(handle_, workspace.as<char>() + 8, 512), CUBLAS_STATUS_INVALID_VALUE);

  cublasEmulationStrategy_t strategy = CUBLAS_EMULATION_STRATEGY_EAGER;
  EXPECT_EQ(cublasGetEmulationStrategy(handle_, &strategy), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(strategy, CUBLAS_EMULATION_STRATEGY_DEFAULT);
  EXPECT_EQ(cublasSetEmulationStrategy(handle_, CUBLAS_EMULATION_STRATEGY_EAGER), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasGetEmulationStrategy(handle_, &strategy), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(strategy, CUBLAS_EMULATION_STRATEGY_EAGER);
  EXPECT_EQ(cublasSetEmulationStrategy(handle_, static_cast<cublasEmulationStrategy_t>(9)),
            CUBLAS_STATUS_INVALID_VALUE);
  cudaEmulationMantissaControl control = CUDA_EMULATION_MANTISSA_CONTROL_FIXED;
  EXPECT_EQ(cublasGetFixedPointEmulationMantissaControl(handle_, &control), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(control, CUDA_EMULATION_MANTISSA_CONTROL_DYNAMIC);
  EXPECT_EQ(cublasSetFixedPointEmulationMantissaControl(handle_, CUDA_EMULATION_MANTISSA_CONTROL_FIXED),
            CUBLAS_STATUS_SUCCESS);
  int bits = 0;
  EXPECT_EQ(cublasSetFixedPointEmulationMaxMantissaBitCount(handle_, 47), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasGetFixedPointEmulationMaxMantissaBitCount(handle_, &bits), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(bits, 47);
  EXPECT_EQ(cublasSetFixedPointEmulationMantissaBitOffset(handle_, -3), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasGetFixedPointEmulationMantissaBitOffset(handle_, &bits), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(bits, -3);
  cudaEmulationSpecialValuesSupport special{};
  EXPECT_EQ(cublasGetEmulationSpecialValuesSupport(handle_, &special), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(special, CUDA_EMULATION_SPECIAL_VALUES_SUPPORT_DEFAULT);
  EXPECT_EQ(cublasSetEmulationSpecialValuesSupport(handle_, CUDA_EMULATION_SPECIAL_VALUES_SUPPORT_NAN),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasGetEmulationSpecialValuesSupport(handle_, &special), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(special, CUDA_EMULATION_SPECIAL_VALUES_SUPPORT_NAN);
  int* count = &bits;
  EXPECT_EQ(cublasGetFixedPointEmulationMantissaBitCountPointer(handle_, &count), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(count, nullptr);
  EXPECT_EQ(cublasSetFixedPointEmulationMantissaBitCountPointer(handle_, &bits), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasGetFixedPointEmulationMantissaBitCountPointer(handle_, &count), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(count, &bits);

  EXPECT_EQ(cublasLoggerConfigure(0, 0, 0, nullptr), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSetLoggerCallback([](const char*) {}), CUBLAS_STATUS_SUCCESS);
  cublasLogCallback callback = nullptr;
  EXPECT_EQ(cublasGetLoggerCallback(&callback), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(callback, nullptr);
}

TEST_F(CublasTest, Logger_NamesTheCallsWhereItIsToldTo) {
  static std::vector<std::string> heard;
  heard.clear();
  const sdcguard::ScratchFolder folder;
  const std::string path = folder / "log";
  ASSERT_EQ(cublasSetLoggerCallback([](const char* line) { heard.emplace_back(line); }), CUBLAS_STATUS_SUCCESS);
  const DeviceBytes x(constant_numbers(kFp32, 1, 3.0));
  const float one = 1.0f;
  const auto product = [&] {
    return cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, x.as<float>(), 1, x.as<float>(), 1, &one,
                       x.as<float>(), 1);
  };
  ASSERT_EQ(product(), CUBLAS_STATUS_SUCCESS);
  EXPECT_TRUE(heard.empty());  // the log is off
  ASSERT_EQ(cublasLoggerConfigure(1, 0, 1, path.c_str()), CUBLAS_STATUS_SUCCESS);
  testing::internal::CaptureStderr();
  ASSERT_EQ(product(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSscal(handle_, 1, &one, x.as<float>(), 1), CUBLAS_STATUS_SUCCESS);
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_EQ(cublasLoggerConfigure(0, 0, 0, nullptr), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(product(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSetLoggerCallback(nullptr), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(heard.size(), 2u);
  EXPECT_EQ(heard[0], "I! cuBLAS (v13.1) function cublasSgemm_v2 called\n");
  EXPECT_EQ(heard[1], "I! cuBLAS (v13.1) function cublasSscal_v2 called\n");
  EXPECT_EQ(said, heard[0] + heard[1]);
  std::ostringstream written;
  written << std::ifstream(path).rdbuf();
  EXPECT_EQ(written.str(), said);
  EXPECT_EQ(cublasLoggerConfigure(1, 0, 0, "/no/such/folder/log"), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(Handle, NullIsNotInitialized) {
  const float one = 1.0f;
  float c = 0.0f;
  cudaStream_t stream = nullptr;
  cublasMath_t math_mode;
  EXPECT_EQ(cublasCreate(nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasDestroy(nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cublasSetStream(nullptr, nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cublasGetStream(nullptr, &stream), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cublasGetMathMode(nullptr, &math_mode), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cublasSgemm(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, &one, 1, &one, 1, &one, &c, 1),
            CUBLAS_STATUS_NOT_INITIALIZED);
}

TEST_F(CublasTest, Handle_BelongsToItsDevice) {
  const float one = 1.0f;
  const DeviceBytes c(size_t{4});
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, c.as<float>(), 1, c.as<float>(), 1, &one,
                        c.as<float>(), 1),
            CUBLAS_STATUS_EXECUTION_FAILED);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, c.as<float>(), 1, c.as<float>(), 1, &one,
                        c.as<float>(), 1),
            CUBLAS_STATUS_SUCCESS);
}

TEST_F(CublasTest, Handle_MayGoWhileItsWorkIsInFlight) {
  cublasHandle_t short_lived = nullptr;
  ASSERT_EQ(cublasCreate(&short_lived), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSetStream(short_lived, stream_), CUBLAS_STATUS_SUCCESS);
  const DeviceBytes x(constant_numbers(kFp32, 1, 3.0));
  const DeviceBytes c(constant_numbers(kFp32, 1, 0.0));
  {
    Gate gate(stream_);
    const float one = 1.0f;
    const float zero = 0.0f;
    ASSERT_EQ(cublasSgemm(short_lived, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, x.as<float>(), 1, x.as<float>(), 1,
                          &zero, c.as<float>(), 1),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasDestroy(short_lived), CUBLAS_STATUS_SUCCESS);
  }
  EXPECT_EQ(c.patterns(kFp32)[0], reference::bits_of(9.0f));
}

// ---- results

TEST_F(CublasTest, Gemm_EveryTypeTransposeAndScalar) {
  const double scalars[][2] = {{1.0, 0.0}, {1.0, 1.0}, {-0.75, 0.5}, {0.0, 2.0}};
  const int64_t sizes[][3] = {{33, 17, 40}, {5, 64, 1}, {64, 3, 129}};
  uint32_t seed = 1;
  for (const Case& x : kCases) {
    for (const auto& size : sizes) {
      for (int transposes = 0; transposes < 4; ++transposes) {
        for (const auto& scalar : scalars) {
          SCOPED_TRACE(testing::Message()
                       << x.name << ", " << size[0] << " x " << size[1] << " x " << size[2] << ", transposes "
                       << transposes << ", alpha " << scalar[0] << ", beta " << scalar[1]);
          const Problem problem =
              make_problem(size[0], size[1], size[2], transposes & 1, transposes & 2, seed % 3 ? 3 : 0);
          EXPECT_PRODUCT(run_gemm_ex(handle_, x, problem, scalar[0], scalar[1], seed));
          ++seed;
        }
      }
    }
  }
}

// The reference would notice: a delivered entry moved by twice its bound, and a single written gap.
TEST_F(CublasTest, Reference_NoticesOneWrongEntryAndOneWrittenGap) {
  for (const Case& x : kCases) {
    SCOPED_TRACE(x.name);
    Problem problem = make_problem(16, 8, 32, false, true, 2);
    problem.half_accumulator = x.compute == CUBLAS_COMPUTE_16F;
    problem.tf32 = x.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const Numbers a = random_numbers(x.in, problem.a.elems(), 1);
    const Numbers b = random_numbers(x.in, problem.b.elems(), 2);
    Numbers c = random_numbers(x.out, problem.c.elems(), 3);
    const Numbers before = c;
    std::vector<uint32_t> delivered;
    for (size_t place = 0; place < c.values.size(); ++place) {
      const auto i = static_cast<int64_t>(place) % problem.d.ld;
      const auto j = static_cast<int64_t>(place) / problem.d.ld;
      const bool inside = i < problem.d.rows && j < problem.d.cols;
      const double value = inside ? reference::expected(problem, a, b, c, x.out, 0, i, j).value : c.values[place];
      delivered.push_back(reference::encode(x.out, reference::rounded(x.out, value)));
    }
    EXPECT_PRODUCT(reference::compare(problem, a, b, c, before, delivered));
    const reference::Expected want = reference::expected(problem, a, b, c, x.out, 0, 4, 5);
    std::vector<uint32_t> tampered = delivered;
    tampered[static_cast<size_t>(problem.d.at(0, 4, 5))] =
        reference::encode(x.out, reference::rounded(x.out, want.value + 2.0 * want.bound));
    EXPECT_EQ(reference::compare(problem, a, b, c, before, tampered).beyond, 1);
    tampered = delivered;
    tampered[static_cast<size_t>(problem.d.ld - 1)] ^= 1;
    EXPECT_EQ(reference::compare(problem, a, b, c, before, tampered).gaps_changed, 1);
  }
}

TEST_F(CublasTest, Gemm_StridedBatchWithGapsAndSharedOperands) {
  struct Strides {
    bool share_a, share_b;
    int64_t gap;
  };
  uint32_t seed = 100;
  for (const Case& x : kCases) {
    for (const Strides& strides : {Strides{false, false, 5}, Strides{true, false, 0}, Strides{false, true, 3}}) {
      SCOPED_TRACE(testing::Message() << x.name << ", shared A " << strides.share_a << ", shared B "
                                      << strides.share_b);
      Problem problem = make_problem(9, 7, 21, false, true, 1);
      for (Shape* shape : {&problem.a, &problem.b, &problem.c, &problem.d}) {
        shape->stride = shape->ld * shape->cols + strides.gap;
        shape->batch = 4;
      }
      if (strides.share_a) problem.a.stride = 0;
      if (strides.share_b) problem.b.stride = 0;
      problem.alpha = 1.25;
      problem.beta = -0.5;
      problem.half_accumulator = x.compute == CUBLAS_COMPUTE_16F;
      problem.tf32 = x.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
      const Numbers a = random_numbers(x.in, problem.a.elems(), seed++);
      const Numbers b = random_numbers(x.in, problem.b.elems(), seed++);
      const Numbers c = random_numbers(x.out, problem.c.elems(), seed++);
      const DeviceBytes a_dev(a);
      const DeviceBytes b_dev(b);
      const DeviceBytes c_dev(c);
      const Factor alpha(x.compute, problem.alpha);
      const Factor beta(x.compute, problem.beta);
      ASSERT_EQ(cublasGemmStridedBatchedEx_64(handle_, CUBLAS_OP_N, CUBLAS_OP_T, 9, 7, 21, alpha.get(), a_dev.get(),
                                              x.in.type, problem.a.ld, problem.a.stride, b_dev.get(), x.in.type,
                                              problem.b.ld, problem.b.stride, beta.get(), c_dev.get(), x.out.type,
                                              problem.c.ld, problem.c.stride, 4, x.compute, CUBLAS_GEMM_DEFAULT),
                CUBLAS_STATUS_SUCCESS);
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      EXPECT_PRODUCT(reference::compare(problem, a, b, c, c, c_dev.patterns(x.out)));
    }
  }
}

// Batch entries may lie in the other direction, and in allocations of their own with foreign memory between them.
TEST_F(CublasTest, Gemm_NegativeStride) {
  Problem problem = make_problem(4, 4, 4, false, false, 0);
  const Numbers a = random_numbers(kFp32, 48, 1);
  const Numbers b = random_numbers(kFp32, 16, 2);
  const Numbers c = constant_numbers(kFp32, 48, 0.0);
  const DeviceBytes a_dev(a);
  const DeviceBytes b_dev(b);
  const DeviceBytes c_dev(c);
  const float one = 1.0f;
  const float zero = 0.0f;
  ASSERT_EQ(cublasSgemmStridedBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a_dev.as<float>() + 32, 4, -16,
                                      b_dev.as<float>(), 4, 0, &zero, c_dev.as<float>(), 4, 16, 3),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  Numbers turned = a;
  for (int e = 0; e < 3; ++e) std::copy_n(a.values.begin() + 16 * (2 - e), 16, turned.values.begin() + 16 * e);
  problem.a.batch = problem.b.batch = problem.c.batch = problem.d.batch = 3;
  problem.a.stride = problem.c.stride = problem.d.stride = 16;
  EXPECT_PRODUCT(reference::compare(problem, turned, b, c, c, c_dev.patterns(kFp32)));
}

TEST_F(CublasTest, Gemm_PlainAndBatchedTypedFormsOfBothWidths) {
  const float alpha = 0.5f;
  const float beta = 2.0f;
  const __half alpha_half = __float2half(0.5f);
  const __half beta_half = __float2half(2.0f);
  Problem single = make_problem(12, 10, 30, true, false, 1);
  single.alpha = 0.5;
  single.beta = 2.0;
  Problem batched = single;
  for (Shape* shape : {&batched.a, &batched.b, &batched.c, &batched.d}) {
    shape->batch = 3;
    shape->stride = shape->ld * shape->cols;
  }
  for (const Format& format : {kFp32, kFp16}) {
    for (int form = 0; form < 4; ++form) {
      SCOPED_TRACE(testing::Message() << format.bytes << " byte elements, form " << form);
      Problem problem = form < 2 ? single : batched;
      problem.half_accumulator = format.type == CUDA_R_16F;
      const Numbers a = random_numbers(format, problem.a.elems(), 7);
      const Numbers b = random_numbers(format, problem.b.elems(), 8);
      const Numbers c = random_numbers(format, problem.c.elems(), 9);
      const DeviceBytes a_dev(a);
      const DeviceBytes b_dev(b);
      const DeviceBytes c_dev(c);
      const auto lda = static_cast<int>(problem.a.ld);
      const auto ldb = static_cast<int>(problem.b.ld);
      const auto ldc = static_cast<int>(problem.c.ld);
      cublasStatus_t status = CUBLAS_STATUS_INTERNAL_ERROR;
      const auto call = [&](auto plain, auto plain_64, auto strided, auto strided_64, auto* element, const auto* factor,
                            const auto* addend) {
        using Element = std::remove_pointer_t<decltype(element)>;
        auto* x = a_dev.as<Element>();
        auto* y = b_dev.as<Element>();
        auto* z = c_dev.as<Element>();
        if (form == 0)
          status = plain(handle_, CUBLAS_OP_T, CUBLAS_OP_N, 12, 10, 30, factor, x, lda, y, ldb, addend, z, ldc);
        if (form == 1)
          status = plain_64(handle_, CUBLAS_OP_C, CUBLAS_OP_N, 12, 10, 30, factor, x, lda, y, ldb, addend, z, ldc);
        if (form == 2) {
          status = strided(handle_, CUBLAS_OP_T, CUBLAS_OP_N, 12, 10, 30, factor, x, lda, problem.a.stride, y, ldb,
                           problem.b.stride, addend, z, ldc, problem.c.stride, 3);
        }
        if (form == 3) {
          status = strided_64(handle_, CUBLAS_OP_T, CUBLAS_OP_N, 12, 10, 30, factor, x, lda, problem.a.stride, y, ldb,
                              problem.b.stride, addend, z, ldc, problem.c.stride, 3);
        }
      };
      if (format.type == CUDA_R_32F) {
        call(cublasSgemm_v2, cublasSgemm_v2_64, cublasSgemmStridedBatched, cublasSgemmStridedBatched_64,
             static_cast<float*>(nullptr), &alpha, &beta);
      } else {
        call(cublasHgemm, cublasHgemm_64, cublasHgemmStridedBatched, cublasHgemmStridedBatched_64,
             static_cast<__half*>(nullptr), &alpha_half, &beta_half);
      }
      ASSERT_EQ(status, CUBLAS_STATUS_SUCCESS);
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      EXPECT_PRODUCT(reference::compare(problem, a, b, c, c, c_dev.patterns(format)));
    }
  }
}

// What leaves an FP32 product for a 16-bit D is rounded to nearest, ties to even, once.
TEST_F(CublasTest, Gemm_NarrowsToNearestEven) {
  for (const Format& format : {kBf16, kFp16}) {
    const auto steps = static_cast<int64_t>(std::ldexp(1.0, format.precision));
    Numbers a = constant_numbers(format, 3 * steps, 0.0);  // steps x 3
    for (int64_t i = 0; i < steps; ++i) {
      a.values[static_cast<size_t>(i)] = 1.0 + std::floor(static_cast<double>(i) / 2.0) * 2.0 * format.unit();
      a.values[static_cast<size_t>(steps + i)] = i % 2 ? format.unit() : 1.5 * format.unit();  // a tie, and above one
      a.values[static_cast<size_t>(2 * steps + i)] = i % 3 ? 0.0 : -0x1p-10 * format.unit();
    }
    const Numbers b = constant_numbers(format, 3, 1.0);
    const DeviceBytes a_dev(a);
    const DeviceBytes b_dev(b);
    const DeviceBytes d_dev(constant_numbers(format, steps, 0.0));
    const float one = 1.0f;
    const float zero = 0.0f;
    ASSERT_EQ(cublasGemmEx_64(handle_, CUBLAS_OP_N, CUBLAS_OP_N, steps, 1, 3, &one, a_dev.get(), format.type, steps,
                              b_dev.get(), format.type, 3, &zero, d_dev.get(), format.type, steps, CUBLAS_COMPUTE_32F,
                              CUBLAS_GEMM_DEFAULT_TENSOR_OP),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    const std::vector<uint32_t> delivered = d_dev.patterns(format);
    for (int64_t i = 0; i < steps; ++i) {
      // Exact in FP32 (24 bits hold 1 + u 2^-10 for both formats), so the order of the sum does not matter.
      const double sum = a.values[static_cast<size_t>(i)] + a.values[static_cast<size_t>(steps + i)] +
                         a.values[static_cast<size_t>(2 * steps + i)];
      ASSERT_EQ(delivered[static_cast<size_t>(i)], reference::encode(format, reference::rounded(format, sum)))
          << "row " << i << ", sum " << sum;
    }
  }
}

// ---- what is not read

TEST_F(CublasTest, Gemm_ZeroBetaNeverReadsC) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Case& x : kCases) {
    SCOPED_TRACE(x.name);
    const Numbers a = constant_numbers(x.in, 4, 1.5);
    const DeviceBytes a_dev(a);
    const DeviceBytes c_dev(constant_numbers(x.out, 4, nan));
    const Factor one(x.compute, 1.0);
    const Factor zero(x.compute, 0.0);
    ASSERT_EQ(
        cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, one.get(), a_dev.get(), x.in.type, 2, a_dev.get(),
                     x.in.type, 2, zero.get(), c_dev.get(), x.out.type, 2, x.compute, CUBLAS_GEMM_DEFAULT),
        CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    for (const uint32_t bits : c_dev.patterns(x.out)) EXPECT_EQ(bits, reference::encode(x.out, 4.5));
  }
}

TEST_F(CublasTest, Gemm_ZeroKScalesCWithoutOperands) {
  const DeviceBytes c_dev(constant_numbers(kFp32, 6, 3.0));
  const float alpha = 5.0f;
  const float beta = -0.5f;
  ASSERT_EQ(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 0, &alpha, nullptr, 2, nullptr, 1, &beta,
                        c_dev.as<float>(), 2),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  for (const uint32_t bits : c_dev.patterns(kFp32)) EXPECT_EQ(bits, reference::bits_of(-1.5f));
}

TEST_F(CublasTest, Gemm_ZeroAlphaReadsNoOperands) {
  const DeviceBytes nan_dev(constant_numbers(kFp32, 4, std::numeric_limits<double>::quiet_NaN()));
  const DeviceBytes c_dev(constant_numbers(kFp32, 4, 3.0));
  const float zero = 0.0f;
  const float beta = 2.0f;
  ASSERT_EQ(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &zero, nan_dev.as<float>(), 2, nullptr, 2, &beta,
                        c_dev.as<float>(), 2),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  for (const uint32_t bits : c_dev.patterns(kFp32)) EXPECT_EQ(bits, reference::bits_of(6.0f));
}

TEST_F(CublasTest, Gemm_NothingToDoSucceedsWithNullPointers) {
  for (const auto& size : {std::array<int, 3>{0, 5, 5}, {5, 0, 5}, {0, 0, 0}}) {
    EXPECT_EQ(cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, size[0], size[1], size[2], nullptr, nullptr, CUDA_R_16BF,
                           5, nullptr, CUDA_R_16BF, 5, nullptr, nullptr, CUDA_R_16BF, 5, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT),
              CUBLAS_STATUS_SUCCESS);
  }
  EXPECT_EQ(cublasSgemmStridedBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, nullptr, nullptr, 2, 4, nullptr, 2, 4,
                                      nullptr, nullptr, 2, 4, 0),
            CUBLAS_STATUS_SUCCESS);
}

// ---- refused arguments

TEST_F(CublasTest, Arguments_EachWrongOneIsInvalidValue) {
  const DeviceBytes memory(constant_numbers(kFp32, 64, 1.0));
  const float one = 1.0f;
  struct Arguments {
    int transa = CUBLAS_OP_N, transb = CUBLAS_OP_N, m = 4, n = 3, k = 2, lda = 4, ldb = 2, ldc = 4, batch = 1,
        algo = -1;
    bool alpha = true, beta = true, c = true;
  };
  const auto call = [&](const Arguments& x) {
    return cublasGemmStridedBatchedEx(handle_, static_cast<cublasOperation_t>(x.transa),
                                      static_cast<cublasOperation_t>(x.transb), x.m, x.n, x.k, x.alpha ? &one : nullptr,
                                      memory.get(), CUDA_R_32F, x.lda, 0, memory.get(), CUDA_R_32F, x.ldb, 0,
                                      x.beta ? &one : nullptr, x.c ? memory.get() : nullptr, CUDA_R_32F, x.ldc, 0,
                                      x.batch, CUBLAS_COMPUTE_32F, static_cast<cublasGemmAlgo_t>(x.algo));
  };
  EXPECT_EQ(call({}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call({.transa = CUBLAS_OP_T, .lda = 2}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call({.transb = CUBLAS_OP_T, .ldb = 3}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call({.k = 0, .ldb = 1}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call({.algo = CUBLAS_GEMM_ALGO3_TENSOR_OP}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call({.m = -1}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.n = -1}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.k = -1}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.batch = -1}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.lda = 3}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.ldb = 1}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.ldc = 3}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.transa = CUBLAS_OP_T, .lda = 1}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.transb = CUBLAS_OP_T, .ldb = 2}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.k = 0, .ldb = 0}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.m = 0, .lda = 0}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.transa = 9}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.transb = CUBLAS_OP_CONJG}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.algo = 50}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.alpha = false}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.beta = false}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call({.c = false}), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasTest, Arguments_TypesOutsideTheTableAreNotSupported) {
  const DeviceBytes memory(constant_numbers(kFp32, 4, 1.0));
  const float one = 1.0f;
  const auto call = [&](cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute) {
    return cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, memory.get(), a, 1, memory.get(), b, 1, &one,
                        memory.get(), c, 1, compute, CUBLAS_GEMM_DEFAULT);
  };
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(CUDA_R_32F, CUDA_R_32F, CUDA_R_16F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_16F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_16F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F_FAST_TF32), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(CublasTest, Arguments_RefusalsOnDemand) {
  const DeviceBytes memory(constant_numbers(kFp32, 4, 1.0));
  const float one = 1.0f;
  const auto call = [&](cudaDataType in, cudaDataType out) {
    return cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, memory.get(), in, 1, memory.get(), in, 1,
                        &one, memory.get(), out, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  };
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(hostcuda_set_not_supported("16->32"), 0);
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_32F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(CUDA_R_16F, CUDA_R_32F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_16BF), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call(CUDA_R_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(hostcuda_set_not_supported("bf16->32,any->fp16"), 0);
  EXPECT_EQ(call(CUDA_R_16F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_32F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(CUDA_R_16F, CUDA_R_16F), CUBLAS_STATUS_NOT_SUPPORTED);
  for (const char* wrong : {"16", "16->", "->32", "16->32,", "17->32", "16->32;any->any"}) {
    EXPECT_EQ(hostcuda_set_not_supported(wrong), -1) << wrong;
  }
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_32F), CUBLAS_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(hostcuda_set_not_supported(""), 0);
  EXPECT_EQ(call(CUDA_R_16BF, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
}

// ---- order in time

TEST_F(CublasTest, Stream_CallsReturnAtOnceAndHostScalarsAreTakenThen) {
  const DeviceBytes x(constant_numbers(kFp32, 1, 3.0));
  const DeviceBytes c(constant_numbers(kFp32, 1, 10.0));
  float alpha = 2.0f;
  float beta = 1.0f;
  {
    Gate gate(stream_);
    ASSERT_EQ(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, x.as<float>(), 1, x.as<float>(), 1, &beta,
                          c.as<float>(), 1),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
    alpha = 100.0f;
    beta = 100.0f;
  }
  EXPECT_EQ(c.patterns(kFp32)[0], reference::bits_of(28.0f));
}

TEST_F(CublasTest, Stream_DeviceScalarsAndOperandsAreReadWhenTheWorkRuns) {
  ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  const DeviceBytes x(constant_numbers(kFp32, 1, 3.0));
  const DeviceBytes c(constant_numbers(kFp32, 1, 10.0));
  const DeviceBytes scalars(constant_numbers(kFp32, 2, 100.0));
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  {
    Gate gate(stream_);
    ASSERT_EQ(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, scalars.as<float>(), x.as<float>(), 1,
                          x.as<float>(), 1, scalars.as<float>() + 1, c.as<float>(), 1),
              CUBLAS_STATUS_SUCCESS);
    const float late[] = {0.5f, -1.0f};
    ASSERT_EQ(cudaMemcpyAsync(scalars.get(), late, sizeof late, cudaMemcpyHostToDevice, other), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  }
  EXPECT_EQ(c.patterns(kFp32)[0], reference::bits_of(-5.5f));
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(CublasTest, Stream_HalfPrecisionDeviceScalars) {
  ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  const DeviceBytes x(constant_numbers(kFp16, 1, 3.0));
  const DeviceBytes c(constant_numbers(kFp16, 1, 10.0));
  const DeviceBytes alpha(constant_numbers(kFp16, 1, 0.5));
  const DeviceBytes beta(constant_numbers(kFp16, 1, -1.0));
  ASSERT_EQ(cublasHgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, alpha.as<__half>(), x.as<__half>(), 1,
                        x.as<__half>(), 1, beta.as<__half>(), c.as<__half>(), 1),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(c.patterns(kFp16)[0], reference::encode(kFp16, -5.5));
}

TEST_F(CublasTest, Stream_ACapturedProductRunsAtEachReplay) {
  const DeviceBytes x(constant_numbers(kFp32, 1, 3.0));
  const DeviceBytes c(constant_numbers(kFp32, 1, 10.0));
  const float one = 1.0f;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, x.as<float>(), 1, x.as<float>(), 1, &one,
                        c.as<float>(), 1),
            CUBLAS_STATUS_SUCCESS);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(c.patterns(kFp32)[0], reference::bits_of(10.0f));
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int replay = 1; replay <= 3; ++replay) {
    ASSERT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(c.patterns(kFp32)[0], reference::bits_of(10.0f + 9.0f * static_cast<float>(replay)));
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

// ---- the route through cuBLASLt

TEST_F(CublasTest, Route_GemmExReachesThePublicLtMatmulOnlyWhenAsked) {
  const Case& x = kCases[0];
  const Problem problem = make_problem(20, 11, 33, true, false, 2);
  lt_calls = 0;
  EXPECT_PRODUCT(run_gemm_ex(handle_, x, problem, 1.5, 0.25, 5));
  EXPECT_EQ(lt_calls, 0);
  ASSERT_EQ(setenv("HOSTCUDA_ROUTE_LT", "1", 1), 0);
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.name);
    EXPECT_PRODUCT(run_gemm_ex(handle_, each, problem, 1.5, 0.25, 5));
  }
  EXPECT_EQ(lt_calls, static_cast<int>(std::size(kCases)));
  EXPECT_EQ(cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, -1, 1, 1, nullptr, nullptr, CUDA_R_32F, 1, nullptr,
                         CUDA_R_32F, 1, nullptr, nullptr, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_INVALID_VALUE);
  unsetenv("HOSTCUDA_ROUTE_LT");
  const int before = lt_calls;
  EXPECT_PRODUCT(run_gemm_ex(handle_, x, problem, 1.5, 0.25, 5));
  EXPECT_EQ(lt_calls, before);
}

// INT8 into INT32 goes there by itself, as in the real library; INT8 into FP32 does not.
TEST_F(CublasTest, Route_IntegersReachThePublicLtMatmulByThemselves) {
  const DeviceBytes x(size_t{16});
  ASSERT_EQ(cudaMemset(x.get(), 2, 16), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const DeviceBytes c(size_t{4});
  const int32_t one = 1;
  const int32_t zero = 0;
  const auto call = [&](cublasOperation_t op, int m, int lda) {
    return cublasGemmEx(handle_, op, CUBLAS_OP_N, m, 1, 4, &one, x.get(), CUDA_R_8I, lda, x.get(), CUDA_R_8I, 4, &zero,
                        c.get(), CUDA_R_32I, 4, CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT);
  };
  for (const auto op : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    lt_calls = 0;
    ASSERT_EQ(call(op, 1, 4), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(lt_calls, 1);
    EXPECT_EQ(c.patterns(kFp32)[0], 16u);
  }
  EXPECT_EQ(call(CUBLAS_OP_N, 0, 4), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call(CUBLAS_OP_N, -1, 4), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call(CUBLAS_OP_N, 1, 5), CUBLAS_STATUS_NOT_SUPPORTED);
  const float alpha = 1.0f;
  const float beta = 0.0f;
  ASSERT_EQ(cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 4, &alpha, x.get(), CUDA_R_8I, 4, x.get(), CUDA_R_8I,
                         4, &beta, c.get(), CUDA_R_32F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(lt_calls, 1);
}

// ---- copies

TEST_F(CublasTest, Copies_VectorsAndMatricesKeepTheirStrides) {
  std::vector<float> host(40);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i);
  const DeviceBytes device(constant_numbers(kFp32, 60, -1.0));
  std::vector<float> back(40, -2.0f);
  ASSERT_EQ(cublasSetVector(5, 4, host.data(), 3, device.get(), 2), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasGetVector(5, 4, device.get(), 2, back.data(), 4), CUBLAS_STATUS_SUCCESS);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(back[4 * i], host[3 * i]);
  EXPECT_EQ(back[1], -2.0f);
  ASSERT_EQ(cublasSetVectorAsync_64(20, 4, host.data(), 1, device.get(), 1, stream_), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasGetVectorAsync(20, 4, device.get(), 1, back.data(), 1, stream_), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(std::equal(back.begin(), back.begin() + 20, host.begin()));

  ASSERT_EQ(cublasSetMatrix(3, 4, 4, host.data(), 5, device.get(), 7), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasGetMatrix_64(3, 4, 4, device.get(), 7, back.data(), 4), CUBLAS_STATUS_SUCCESS);
  for (size_t j = 0; j < 4; ++j) {
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(back[i + 4 * j], host[i + 5 * j]);
  }
  ASSERT_EQ(cublasSetMatrixAsync(3, 4, 4, host.data(), 3, device.get(), 3, stream_), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasGetMatrixAsync_64(3, 4, 4, device.get(), 3, back.data(), 3, stream_), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(std::equal(back.begin(), back.begin() + 12, host.begin()));

  EXPECT_EQ(cublasSetVector(0, 4, nullptr, 1, nullptr, 1), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasSetVector(-1, 4, host.data(), 1, device.get(), 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSetVector(5, 0, host.data(), 1, device.get(), 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSetVector(5, 4, host.data(), 0, device.get(), 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasGetMatrix(3, 4, 4, device.get(), 2, back.data(), 3), CUBLAS_STATUS_INVALID_VALUE);
}

// ---- broken device rules

void run_sgemm_or_exit(size_t a_offset_bytes, size_t a_elems, bool host_a, bool free_a) {
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  const float one = 1.0f;
  const float zero = 0.0f;
  static std::vector<float> host(64);
  float* a = nullptr;
  float* c = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&a), a_elems * 4);
  cudaMalloc(reinterpret_cast<void**>(&c), 64 * 4);
  if (free_a) cudaFree(a);
  const auto* shifted =
      reinterpret_cast<const float*>(reinterpret_cast<const char*>(host_a ? host.data() : a) + a_offset_bytes);
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, shifted, 8, c, 8, &zero, c, 8);
  cudaDeviceSynchronize();
  std::_Exit(0);
}

TEST(RulesDeathTest, BadOperandsEndTheProcessWithAClearLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ended = testing::ExitedWithCode(86);
  EXPECT_EXIT(run_sgemm_or_exit(0, 63, false, false), ended, "cublasSgemm_v2: A \\(256 bytes at 0x.*not accessible");
  EXPECT_EXIT(run_sgemm_or_exit(2, 65, false, false), ended, "cublasSgemm_v2: A at 0x.*not aligned to 4 bytes");
  EXPECT_EXIT(run_sgemm_or_exit(0, 64, true, false), ended, "cublasSgemm_v2: A \\(256 bytes at 0x.*not accessible");
  EXPECT_EXIT(run_sgemm_or_exit(0, 64, false, true), ended, "cublasSgemm_v2: A \\(256 bytes at 0x.*not accessible");
  EXPECT_EXIT(run_sgemm_or_exit(0, 64, false, false), testing::ExitedWithCode(0), "");
}

// The engine reads its fault plan once, so each plan has a process of its own. Exit code: entries of the 6 x 5 D that
// are not what `expected` says of (row, column), C before the call being 7 and each sum 4.
void run_with_faults_and_exit(const char* plan, float (*expected)(int row, int col)) {
  setenv("HOSTCUDA_FAULTS", plan, 1);
  setenv("HOSTCUDA_STRICT", "1", 1);
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  const Numbers ones = constant_numbers(kBf16, 64, 1.0);
  const DeviceBytes x(ones);
  const DeviceBytes c(constant_numbers(kFp32, 30, 7.0));
  const float one = 1.0f;
  const float zero = 0.0f;
  cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 6, 5, 4, &one, x.get(), CUDA_R_16BF, 6, x.get(), CUDA_R_16BF, 4, &zero,
               c.get(), CUDA_R_32F, 6, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  cudaDeviceSynchronize();
  const std::vector<uint32_t> delivered = c.patterns(kFp32);
  int wrong = 0;
  for (int col = 0; col < 5; ++col) {
    for (int row = 0; row < 6; ++row) {
      wrong += delivered[static_cast<size_t>(row + 6 * col)] != reference::bits_of(expected(row, col));
    }
  }
  std::_Exit(wrong);
}

TEST(FaultsDeathTest, InjectedSumsAndSkippedEntriesReachD) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto all_right = testing::ExitedWithCode(0);
  EXPECT_EXIT(run_with_faults_and_exit("[[fault]]\nkind = \"nan\"\nproducts = 9\n", [](int, int) { return 4.0f; }),
              all_right, "");
  EXPECT_EXIT(run_with_faults_and_exit("[[fault]]\nkind = \"word\"\nrow = 2\ncol = 3\nvalue = 9.5\n",
                                       [](int row, int col) { return row == 2 && col == 3 ? 9.5f : 4.0f; }),
              all_right, "");
  EXPECT_EXIT(run_with_faults_and_exit("[[fault]]\nkind = \"skip\"\nrow = 1\ncol = 2\nrows = 3\ncols = 2\n",
                                       [](int row, int col) {
                                         const bool skipped = row >= 1 && row < 4 && (col == 2 || col == 3);
                                         return skipped ? 7.0f : 4.0f;
                                       }),
              all_right, "");
  EXPECT_EXIT(run_with_faults_and_exit("[[fault]]\nkind = \"word\"\nrow = 2\ncol = 3\nvalue = 9.5\n",
                                       [](int, int) { return 4.0f; }),
              testing::ExitedWithCode(1), "");
}

TEST(RulesDeathTest, TheRefusalSettingIsReadFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("HOSTCUDA_NOT_SUPPORTED", "16->32", 1);
        cublasHandle_t handle = nullptr;
        cublasCreate(&handle);
        std::_Exit(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 0, 0, 0, nullptr, nullptr, CUDA_R_16BF, 1, nullptr,
                                CUDA_R_16BF, 1, nullptr, nullptr, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F,
                                CUBLAS_GEMM_DEFAULT));
      },
      testing::ExitedWithCode(CUBLAS_STATUS_NOT_SUPPORTED), "");
}

TEST(RulesDeathTest, AWrongRefusalSettingEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("HOSTCUDA_NOT_SUPPORTED", "16=>32", 1);
        run_sgemm_or_exit(0, 64, false, false);
      },
      testing::ExitedWithCode(86), "HOSTCUDA_NOT_SUPPORTED=16=>32: allowed are");
}

}  // namespace

// SPDX-License-Identifier: MIT
// The shipped shim as an object: what it needs, what it exports, what binds to it among the real libraries, and that a
// child process does not notice it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "program.h"
#include "shim/entry.h"
// The descriptor code itself, against the real cuBLASLt.
#include "shim/gemm_call.cpp"
#include "shim/gemm_types.cpp"

namespace sdcguard {
namespace {

using e2e::Ended;
using e2e::kInstrumented;
using e2e::run_program;

const std::string kShim = std::string(SDCGUARD_BUILD_DIR) + "/lib/libsdcguard.so";

std::set<std::string> expected_exports() {
  std::set<std::string> names(std::begin(kEntryNames), std::end(kEntryNames));
  names.insert("dlsym");
  return names;
}

// Words of the lines of `text` that match, one capture each.
std::set<std::string> captures(const std::string& text, const std::string& pattern) {
  std::set<std::string> found;
  const std::regex expression(pattern);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, expression)) found.insert(match[1]);
  }
  return found;
}

// Where the real libraries are. Empty with WITHOUT_REAL_CUBLAS=1, which says that there are none here.
std::string real_libraries() {
  if (const char* without = getenv("WITHOUT_REAL_CUBLAS"); without != nullptr && without[0] == '1') return "";
  if (const char* folder = getenv("REAL_CUDA_LIBRARIES")) return folder;
  return "/usr/local/cuda/lib64";
}

TEST(Bindings_Object, NeedsTheCLibraryAlone) {
  const Ended readelf = run_program("readelf -dW " + kShim);
  ASSERT_EQ(readelf.code, 0) << readelf.output;
  std::set<std::string> allowed = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"};
  if (kInstrumented) allowed.insert({"libasan.so.8", "libubsan.so.1", "libtsan.so.2", "libgcc_s.so.1"});
  for (const std::string& needed : captures(readelf.output, R"(\(NEEDED\).*\[(.*)\])")) {
    EXPECT_TRUE(allowed.count(needed) == 1) << needed;
  }
}

TEST(Bindings_Object, ExportsExactlyTheTableUnversioned) {
  const Ended nm = run_program("nm -D --defined-only " + kShim);
  ASSERT_EQ(nm.code, 0) << nm.output;
  // The whole word, so that a version (name@@NODE) would show.
  EXPECT_EQ(captures(nm.output, R"( [A-Za-z] (\S+)$)"), expected_exports());
}

TEST(Bindings_Object, VersionScriptStaysAnonymous) {
  std::ifstream file(std::string(SDCGUARD_SOURCE_DIR) + "/shim/exports.map");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(captures(text.str(), R"(^(\{)$)").size(), 1u) << text.str();
  EXPECT_EQ(text.str().find(".so."), std::string::npos);
}

TEST(Bindings_Real, EveryEntryIsANameOfTheRealLibraries) {
  const std::string folder = real_libraries();
  if (folder.empty()) return;
  std::set<std::string> real;
  for (const char* library : {"libcublas.so.13", "libcublasLt.so.13"}) {
    const Ended nm = run_program("nm -D --defined-only " + folder + "/" + library);
    ASSERT_EQ(nm.code, 0) << nm.output << "\nno real " << library << " in " << folder
                          << ": set REAL_CUDA_LIBRARIES, or WITHOUT_REAL_CUBLAS=1";
    real.merge(captures(nm.output, R"( T (\w+)@)"));
  }
  for (const char* name : kEntryNames) EXPECT_EQ(real.count(name), 1u) << name;
}

// What the loader binds: libcublas's own call of the public cublasLtMatmul, and cuSOLVER's calls of cuBLAS, reach the
// shim, at start (LD_BIND_NOW=1).
TEST(Bindings_Real, LoaderBindsTheRealLibrariesToTheShim) {
  const std::string folder = real_libraries();
  if (folder.empty()) return;
  for (const char* library : {"libcublas.so.13", "libcublasLt.so.13", "libcusolver.so.12"}) {
    ASSERT_TRUE(std::filesystem::exists(folder + "/" + library))
        << "no real " << library << " in " << folder << ": set REAL_CUDA_LIBRARIES, or WITHOUT_REAL_CUBLAS=1";
  }
  const Ended ended =
      run_program("(env LD_DEBUG=bindings LD_BIND_NOW=1 LD_LIBRARY_PATH=" + folder + " LD_PRELOAD='" + kShim +
                  " libcublas.so.13 libcusolver.so.12' /bin/true 2>&1) | grep 'symbol .cublas'");
  const std::string to_shim = R"( .* to [^ ]*libsdcguard\.so \[0\]: normal symbol `(cublas\w+)')";
  const auto from_cublas = captures(ended.output, R"(binding file [^ ]*libcublas\.so\.13)" + to_shim);
  const auto from_cusolver = captures(ended.output, R"(binding file [^ ]*libcusolver\.so\.12)" + to_shim);
  EXPECT_EQ(from_cublas.count("cublasLtMatmul"), 1u) << ended.output.substr(0, 2000);
  for (const char* name : {"cublasGemmEx", "cublasSgemm_v2", "cublasSgemm_v2_64", "cublasCreate_v2"}) {
    EXPECT_EQ(from_cusolver.count(name), 1u) << name;
  }
  // Nothing of theirs went past the shim to the real one.
  const auto past = captures(ended.output, R"( to [^ ]*libcublas[^ ]* \[0\]: normal symbol `(cublas\w+)')");
  EXPECT_GT(past.size(), 10u);
  for (const char* name : kEntryNames) EXPECT_EQ(past.count(name), 0u) << name;
}

// The real descriptors, which need no driver: what 13.1 knows beyond the shim's reading is all at its default in a new
// descriptor, a call over them is understood, and a copy of the bytes is a clone.
TEST(Bindings_Real, RealDescriptorsAreReadAndCloned) {
  const std::string folder = real_libraries();
  if (folder.empty()) return;
  void* real = dlopen((folder + "/libcublasLt.so.13").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(real, nullptr) << dlerror();
  static Library library = {};
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(real, name));
    ASSERT_NE(function, nullptr) << name;
  };
  find(library.desc_get, "cublasLtMatmulDescGetAttribute");
  find(library.desc_set, "cublasLtMatmulDescSetAttribute");
  find(library.desc_init, "cublasLtMatmulDescInit_internal");
  find(library.layout_get, "cublasLtMatrixLayoutGetAttribute");
  find(library.layout_set, "cublasLtMatrixLayoutSetAttribute");
  find(library.layout_init, "cublasLtMatrixLayoutInit_internal");
  const AttributeDefaults* defaults = attribute_defaults(library);
  ASSERT_NE(defaults, nullptr);
  EXPECT_GE(defaults->desc_count, 10u);

  abi::LtDesc desc{};
  abi::LtLayout layouts[4]{};
  const int32_t transposed = abi::kOpT;
  const uint32_t epilogue = abi::kLtEpilogueGelu | abi::kLtEpilogueBias;
  const uint64_t bias = 0x4000;
  ASSERT_EQ(library.desc_init(&desc, sizeof(desc), abi::kCompute32F, abi::kR32F), 0);
  ASSERT_EQ(library.desc_set(&desc, abi::kDescTransA, &transposed, 4), 0);
  ASSERT_EQ(library.desc_set(&desc, abi::kDescEpilogue, &epilogue, 4), 0);
  ASSERT_EQ(library.desc_set(&desc, abi::kDescBiasPointer, &bias, 8), 0);
  constexpr int64_t m = 24, n = 40, k = 16;
  const uint64_t rows[4] = {k, k, m, m};
  const uint64_t cols[4] = {m, n, n, n};
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(library.layout_init(&layouts[i], sizeof(layouts[i]), abi::kR16BF, rows[i], cols[i],
                                  static_cast<int64_t>(rows[i])),
              0);
  }
  const float one = 1, none = 0;
  GemmCall call{};
  call.entry = Entry::kLtMatmul;
  call.library = &library;
  call.arguments.desc = &desc;
  call.arguments.alpha = &one;
  call.arguments.beta = &none;
  call.arguments.a = reinterpret_cast<void*>(0x100000);
  call.arguments.b = reinterpret_cast<void*>(0x200000);
  call.arguments.d = reinterpret_cast<void*>(0x300000);
  call.arguments.a_desc = &layouts[0];
  call.arguments.b_desc = &layouts[1];
  call.arguments.c_desc = &layouts[2];
  call.arguments.d_desc = &layouts[3];
  normalize(call);
  EXPECT_EQ(call.blocked, Reason::kNone);
  EXPECT_EQ(call.m, m);
  EXPECT_EQ(call.n, n);
  EXPECT_EQ(call.k, k);
  EXPECT_EQ(call.epilogue, kEpilogueBias | kEpilogueGelu);
  EXPECT_EQ(call.bias_type, DataType::kBF16);
  EXPECT_EQ(lt_flops(library, &layouts[0], &layouts[3]), 2u * m * n * k);

  // The clone that the upgrade makes: FP32 D, no epilogue; the original keeps its own.
  abi::LtDesc clone = desc;
  const uint32_t plain = abi::kLtEpilogueDefault;
  ASSERT_EQ(library.desc_set(&clone, abi::kDescEpilogue, &plain, 4), 0);
  uint32_t read = 0;
  int32_t read_transpose = 0;
  EXPECT_EQ(library.desc_get(&clone, abi::kDescEpilogue, &read, 4, nullptr), 0);
  EXPECT_EQ(read, plain);
  EXPECT_EQ(library.desc_get(&clone, abi::kDescTransA, &read_transpose, 4, nullptr), 0);
  EXPECT_EQ(read_transpose, transposed);
  EXPECT_EQ(library.desc_get(&desc, abi::kDescEpilogue, &read, 4, nullptr), 0);
  EXPECT_EQ(read, epilogue);

  // Something that normalize() does not interpret: passed through.
  const int32_t lower = 0;
  constexpr int kDescFillMode = 6;
  ASSERT_EQ(library.desc_set(&desc, kDescFillMode, &lower, 4), 0);
  normalize(call);
  EXPECT_EQ(call.blocked, Reason::kUnsupportedAttribute);
}

TEST(Bindings_Child, ShellUnderThePreloadIsSilentAndKeepsItsExitCode) {
  const std::string preload = "env LD_PRELOAD=" + kShim + " ";
  Ended ended = run_program(preload + "bash -c 'exit 7'");
  EXPECT_EQ(ended.code, 7);
  EXPECT_EQ(ended.output, "");
  ended = run_program(preload + "bash -c 'echo one | cat; (exit 3); echo $?'");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.output, "one\n3\n");
  // a setting that is wrong concerns nobody until there is a product
  ended = run_program(preload + "SDCGUARD_EVERY=nonsense bash -c true");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.output, "");
  ended = run_program(preload + "bash -c 'kill -TERM $$'");
  EXPECT_EQ(ended.code, 128 + 15);
}

TEST(Bindings_Child, PythonFindsItsOwnSymbolsThroughTheHook) {
  // ctypes calls dlsym for everything: a name of ours without a cuBLAS must be absent, others untouched.
  const Ended ended = run_program("env LD_PRELOAD=" + kShim +
                                  " /usr/bin/python3 -c \"import ctypes; c = ctypes.CDLL(None); print(c.abs(-3), "
                                  "hasattr(c, 'cublasGemmEx'))\"");
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.output, "3 False\n");
}

// Least wall time of many runs of /bin/true, microseconds: what other programs on the machine add only lengthens it.
double least_exec_us(const std::string& preload, int runs) {
  double least = 1e9;
  const std::string variable = "LD_PRELOAD=" + preload;
  for (int i = 0; i < runs; ++i) {
    timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    char* const arguments[] = {const_cast<char*>("true"), nullptr};
    char* const environment[] = {const_cast<char*>(variable.c_str()), nullptr};
    pid_t child = 0;
    EXPECT_EQ(posix_spawn(&child, "/bin/true", nullptr, nullptr, arguments, environment), 0);
    int status = 0;
    waitpid(child, &status, 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    EXPECT_EQ(status, 0);
    least = std::min(least, static_cast<double>(end.tv_sec - start.tv_sec) * 1e6 +
                                static_cast<double>(end.tv_nsec - start.tv_nsec) / 1e3);
  }
  return least;
}

TEST(Bindings_Child, CostsAtMost300MicrosecondsOfStart) {
  if (kInstrumented) return;         // the figure is of the shipped build
  constexpr double kBudgetUs = 300;  // DESIGN section 9
  double added = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    added = least_exec_us(kShim, 40) - least_exec_us("", 40);
    if (added <= kBudgetUs) break;
  }
  RecordProperty("added_us", std::to_string(added));
  EXPECT_LE(added, kBudgetUs);
}

}  // namespace
}  // namespace sdcguard

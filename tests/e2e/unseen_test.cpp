// SPDX-License-Identifier: MIT
// A process that carries the shim and CUDA, and of which nothing was seen, is told by `sdcguard status`: static cuBLAS,
// kernels of its own, or calls that go around.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "program.h"

namespace sdcguard::e2e {
namespace {

using nlohmann::json;

const std::string kBuild = SDCGUARD_BUILD_DIR;

// clients/stays, running until it goes out of scope.
class Staying {
 public:
  Staying(bool guarded, const std::string& library) {
    int input[2], output[2];
    if (pipe(input) != 0 || pipe(output) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      dup2(input[0], STDIN_FILENO);
      dup2(output[1], STDOUT_FILENO);
      for (const int end : {input[0], input[1], output[0], output[1]}) close(end);
      std::string path = kBuild + "/clients/stays", opened = library,
                  libraries = "LD_LIBRARY_PATH=" + kBuild + "/lib/hostcuda",
                  preload = "LD_PRELOAD=" + (guarded ? kBuild + "/lib/libsdcguard.so" : ""),
                  asan = "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0";
      char* arguments[] = {path.data(), library.empty() ? nullptr : opened.data(), nullptr};
      char* environment[] = {libraries.data(), preload.data(), asan.data(), nullptr};
      execve(path.c_str(), arguments, environment);
      _exit(127);
    }
    close(input[0]);
    close(output[1]);
    char byte = 0;
    ready_ = read(output[0], &byte, 1) == 1;
    close(output[0]);
    input_ = input[1];
  }
  ~Staying() {
    close(input_);
    waitpid(pid_, nullptr, 0);
  }
  Staying(const Staying&) = delete;
  Staying& operator=(const Staying&) = delete;
  bool ready() const { return ready_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  bool ready_ = false;
};

// What `status` says of it; null: nothing.
json told_of(const Staying& process) {
  const Ended ended = run_program(kBuild + "/bin/sdcguard status --json --ring-dir /tmp/sdcguard-none");
  const json status = json::parse(ended.output);
  for (const json& one : status.at("unseen")) {
    if (one.at("pid") == process.pid()) return one;
  }
  return nullptr;
}

TEST(Unseen, CudaWithoutCublasIsTold) {
  const Staying process(true, "");
  ASSERT_TRUE(process.ready());
  const json told = told_of(process);
  ASSERT_FALSE(told.is_null());
  EXPECT_EQ(told.at("cublas"), false);
  EXPECT_NE(told.at("reason").get<std::string>().find("no cuBLAS"), std::string::npos);
  EXPECT_NE(told.at("command").get<std::string>().find("clients/stays"), std::string::npos);
  const Ended text = run_program(kBuild + "/bin/sdcguard status --ring-dir /tmp/sdcguard-none");
  EXPECT_NE(text.output.find("pid " + std::to_string(process.pid()) + " unseen: "), std::string::npos);
}

TEST(Unseen, CublasThatNothingCameThroughIsTold) {
  const Staying process(true, "libcublas.so.13");
  ASSERT_TRUE(process.ready());
  const json told = told_of(process);
  ASSERT_FALSE(told.is_null());
  EXPECT_EQ(told.at("cublas"), true);
}

TEST(Unseen, AProcessWithoutTheShimIsNotOurs) {
  const Staying process(false, "");
  ASSERT_TRUE(process.ready());
  EXPECT_TRUE(told_of(process).is_null());
}

}  // namespace
}  // namespace sdcguard::e2e

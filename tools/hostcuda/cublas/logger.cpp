// SPDX-License-Identifier: MIT
// Logger: takes the names of entry points, gives lines on stdout, on stderr, in a file and to the program's callback.
#include "tools/hostcuda/cublas/logger.h"

#pragma GCC visibility push(default)
#include <cublasLt.h>
#include <cublas_api.h>
#pragma GCC visibility pop

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace hostcuda {
namespace {

class Logger {
 public:
  // CUBLAS_LOGINFO_DBG=1 switches the log on, CUBLAS_LOGDEST_DBG is stdout, stderr or a file.
  Logger() {
    const char* on = std::getenv("CUBLAS_LOGINFO_DBG");
    const char* to = std::getenv("CUBLAS_LOGDEST_DBG");
    if (!on || std::strcmp(on, "1") != 0 || !to) return;
    const bool to_stdout = std::strcmp(to, "stdout") == 0;
    const bool to_stderr = std::strcmp(to, "stderr") == 0;
    configure(true, to_stdout, to_stderr, to_stdout || to_stderr ? nullptr : to);
  }

  bool configure(bool on, bool to_stdout, bool to_stderr, const char* path) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::FILE* file = path ? std::fopen(path, "ae") : nullptr;
    if (path && !file) return false;
    if (file_) std::fclose(file_);
    file_ = file;
    to_stdout_ = to_stdout;
    to_stderr_ = to_stderr;
    on_.store(on, std::memory_order_relaxed);
    return true;
  }

  void write(const char* name) {
    if (!on_.load(std::memory_order_relaxed)) return;
    const auto version = static_cast<int>(cublasLtGetVersion());
    const std::string line = "I! cuBLAS (v" + std::to_string(version / 10000) + "." +
                             std::to_string(version / 100 % 100) + ") function " + name + " called\n";
    cublasLogCallback call = callback.load(std::memory_order_relaxed);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (std::FILE* to : {to_stdout_ ? stdout : nullptr, to_stderr_ ? stderr : nullptr, file_}) {
        if (!to) continue;
        std::fputs(line.c_str(), to);
        std::fflush(to);
      }
    }
    if (call) call(line.c_str());
  }

  std::atomic<cublasLogCallback> callback{nullptr};

 private:
  std::mutex mutex_;
  std::atomic<bool> on_{false};
  bool to_stdout_ = false;
  bool to_stderr_ = false;
  std::FILE* file_ = nullptr;
};

Logger& logger() {
  static auto* const instance = new Logger;  // outlives every exit handler
  return *instance;
}

}  // namespace

void log_call(const char* name) {
  logger().write(name);
}

}  // namespace hostcuda

extern "C" {

cublasStatus_t cublasLoggerConfigure(int logIsOn, int logToStdOut, int logToStdErr, const char* logFileName) {
  return hostcuda::logger().configure(logIsOn, logToStdOut, logToStdErr, logFileName) ? CUBLAS_STATUS_SUCCESS
                                                                                      : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasSetLoggerCallback(cublasLogCallback userCallback) {
  hostcuda::logger().callback.store(userCallback, std::memory_order_relaxed);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetLoggerCallback(cublasLogCallback* userCallback) {
  if (!userCallback) return CUBLAS_STATUS_INVALID_VALUE;
  *userCallback = hostcuda::logger().callback.load(std::memory_order_relaxed);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

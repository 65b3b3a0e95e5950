// SPDX-License-Identifier: MIT
// The CUDA driver API, found lazily in the libcuda.so.1 that the process itself loaded.
#include "shim/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

namespace sdcguard {
namespace {

std::atomic<const DriverApi*> found{nullptr};

// cuLibrary* came with CUDA 12; cuModule* serves where they are missing.
bool is_optional(const char* symbol) {
  return std::strncmp(symbol, "cuLibrary", 9) == 0 || std::strcmp(symbol, "cuKernelGetFunction") == 0;
}

}  // namespace

const DriverApi* driver_if_loaded() noexcept {
  // Pairs with the release store in driver().
  return found.load(std::memory_order_acquire);
}

const DriverApi* driver() noexcept {
  if (const DriverApi* api = driver_if_loaded()) return api;
  const int saved_errno = errno;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) {
    (void)dlerror();
    errno = saved_errno;
    return nullptr;
  }
  auto* table = new (std::nothrow) DriverApi;
  bool complete = table != nullptr;
#define X(member, symbol, parameters)                                                 \
  if (complete) {                                                                     \
    table->member = reinterpret_cast<CUresult(*) parameters>(dlsym(library, symbol)); \
    if (table->member == nullptr && !is_optional(symbol)) complete = false;           \
  }
  SDCGUARD_DRIVER_SYMBOLS(X)
#undef X
  (void)dlerror();
  errno = saved_errno;
  const DriverApi* expected = nullptr;
  // Two threads may fill a table at once: the first to publish wins. The winner's is never freed.
  if (!complete || !found.compare_exchange_strong(expected, table, std::memory_order_acq_rel)) delete table;
  return driver_if_loaded();
}

}  // namespace sdcguard

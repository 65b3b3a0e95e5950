// SPDX-License-Identifier: MIT
// The CUDA driver API, found lazily in the libcuda.so.1 that the process itself loaded.
#include "shim/driver.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "shim/resolve.h"

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
  constexpr const char* kSymbols[] = {
#define X(member, symbol, parameters) symbol,
      SDCGUARD_DRIVER_SYMBOLS(X)
#undef X
  };
  constexpr uint32_t kSymbolCount = sizeof(kSymbols) / sizeof(kSymbols[0]);
  void* functions[kSymbolCount] = {};
  // Not dlopen and dlsym: an error text that the program has not read yet must stay.
  if (!find_in_loaded("libcuda.so.1", kSymbols, functions, kSymbolCount)) return nullptr;
  const int saved_errno = errno;
  auto* table = new (std::nothrow) DriverApi;
  bool complete = table != nullptr;
  uint32_t next = 0;
#define X(member, symbol, parameters)                                          \
  if (complete) {                                                              \
    table->member = reinterpret_cast<CUresult(*) parameters>(functions[next]); \
    if (table->member == nullptr && !is_optional(symbol)) complete = false;    \
    ++next;                                                                    \
  }
  SDCGUARD_DRIVER_SYMBOLS(X)
#undef X
  errno = saved_errno;
  const DriverApi* expected = nullptr;
  // Two threads may fill a table at once: the first to publish wins. The winner's is never freed.
  if (!complete || !found.compare_exchange_strong(expected, table, std::memory_order_acq_rel)) delete table;
  return driver_if_loaded();
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// cuGetProcAddress: every name of the real library by its base name, CUDA version and default stream.
#include "tools/hostcuda/cuda/driver_api.h"
//
#include <string>

namespace hostcuda {
namespace {

// Every name of the real library, stubs included, as cuGetProcAddress looks for it.
enum Twin { kLegacy, kPerThread };
struct Symbol {
  const char* symbol;
  const char* base;
  int version;
  Twin twin;
  void* function;
};

}  // namespace
}  // namespace hostcuda

// Declared without their parameters under other names: all that is wanted is where they are.
#define HOSTCUDA_SYMBOL(symbol, base, version, twin) \
  extern "C" __attribute__((visibility("default"))) int hostcuda_address_of_##symbol(void) __asm__(#symbol);
#include "tools/hostcuda/cuda/symbols.def"
#undef HOSTCUDA_SYMBOL

namespace hostcuda {
namespace {

const Symbol kSymbols[] = {
#define HOSTCUDA_SYMBOL(symbol, base, version, twin) \
  {#symbol, #base, version, twin, reinterpret_cast<void*>(&hostcuda_address_of_##symbol)},
#include "tools/hostcuda/cuda/symbols.def"
#undef HOSTCUDA_SYMBOL
};

// The newest form of `base` that CUDA `version` has, null if none; *known: there is one in some version.
const Symbol* find_symbol(const std::string& base, int version, Twin twin, bool* known) {
  const Symbol* best = nullptr;
  for (const Symbol& symbol : kSymbols) {
    if (symbol.twin != twin || base != symbol.base) continue;
    *known = true;
    if (symbol.version <= version && (best == nullptr || symbol.version > best->version)) best = &symbol;
  }
  return best;
}

CUresult find_proc(const char* symbol, void** pfn, int cuda_version, cuuint64_t flags,
                   CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || pfn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pfn = nullptr;
  if (cuda_version > CUDA_VERSION) return CUDA_ERROR_INVALID_VALUE;
  constexpr cuuint64_t kKnown = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if ((flags & ~kKnown) != 0 || flags == kKnown) return CUDA_ERROR_INVALID_VALUE;
  std::string base = symbol;
  if (base == "cuGraphInstantiate" && cuda_version >= 12000) base = "cuGraphInstantiateWithFlags";
  bool known = false;
  const Symbol* found = nullptr;
  // What has no per-thread form serves both.
  if (flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    found = find_symbol(base, cuda_version, kPerThread, &known);
  if (found == nullptr) found = find_symbol(base, cuda_version, kLegacy, &known);
  if (found != nullptr) *pfn = found->function;
  *status = found != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
            : known          ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                             : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

}  // namespace

namespace driver {

// The older form has no place for a status: what is not found is an error.
CUresult cuGetProcAddress(const char* symbol, void** pfn, int cuda_version, cuuint64_t flags) {
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = find_proc(symbol, pfn, cuda_version, flags, &status);
  return result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cuda_version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbol_status) {
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = find_proc(symbol, pfn, cuda_version, flags, &status);
  if (symbol_status != nullptr) *symbol_status = status;
  return result;
}

}  // namespace driver
}  // namespace hostcuda

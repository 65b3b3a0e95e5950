// SPDX-License-Identifier: MIT
// The driver table and the runtime's error state: cudaGetLastError, cudaPeekAtLastError, names and texts.
#include <cstdio>
#include <cstdlib>

#include "tools/hostcuda/cudart/runtime.h"
#include "tools/hostcuda/cudart/stubs.h"

namespace hostcuda {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

// The errors that leave a context unusable (driver API, "sticky" errors).
bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

// The current context's sticky error, without making a context.
cudaError_t sticky_error() {
  unsigned flags = 0;
  const CUresult result = driver().cuStreamGetFlags(CU_STREAM_LEGACY, &flags);
  return is_sticky(result) ? static_cast<cudaError_t>(result) : cudaSuccess;
}

}  // namespace

const Driver& driver() {
  static const Driver table = {
#define HOSTCUDA_CALL(name, parameters, arguments) reinterpret_cast<CUresult(*) parameters>(hostcuda_driver(#name)),
#define HOSTCUDA_CALL_PTSZ(name, parameters, arguments)
#define HOSTCUDA_CALL_PTDS(name, parameters, arguments)
#include "tools/hostcuda/cuda/driver_calls.def"
#undef HOSTCUDA_CALL
#undef HOSTCUDA_CALL_PTSZ
#undef HOSTCUDA_CALL_PTDS
  };
  return table;
}

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

int refuse_runtime_stub(const char* name, int* said) {
  const char* verbose = std::getenv("HOSTCUDA_VERBOSE");
  if (verbose && verbose[0] && verbose[0] != '0' && !__atomic_exchange_n(said, 1, __ATOMIC_RELAXED)) {
    std::fprintf(stderr, "hostcuda: %s is not part of the host device (cudaErrorNotSupported)\n", name);
  }
  return remember(cudaErrorNotSupported);
}

}  // namespace hostcuda

using hostcuda::driver;

extern "C" {

cudaError_t cudaGetLastError(void) {
  const cudaError_t sticky = hostcuda::sticky_error();
  const cudaError_t error = hostcuda::last_error;
  hostcuda::last_error = sticky;
  return error != cudaSuccess ? error : sticky;
}

cudaError_t cudaPeekAtLastError(void) {
  return hostcuda::last_error != cudaSuccess ? hostcuda::last_error : hostcuda::sticky_error();
}

// Names and texts are the driver's; the runtime's own numbers, which the driver lacks, are few here.
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define HOSTCUDA_ERROR(name, text) \
  case name:                       \
    return #name;
#include "tools/hostcuda/cudart/errors.def"
#undef HOSTCUDA_ERROR
    default:
      break;
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define HOSTCUDA_ERROR(name, text) \
  case name:                       \
    return text;
#include "tools/hostcuda/cudart/errors.def"
#undef HOSTCUDA_ERROR
    default:
      break;
  }
  return "unrecognized error code";
}

}  // extern "C"

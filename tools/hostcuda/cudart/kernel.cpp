// SPDX-License-Identifier: MIT
// What nvcc's output calls: registration of fat binaries and kernels, launch configuration, launches.
//
// A program's own kernel runs only if hostcuda has a host version of that name (core.h, HOSTCUDA_KERNELS); else the
// launch fails with cudaErrorNoKernelImageForDevice and the driver's line on stderr names the kernel.
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/hostcuda/cudart/copy_params.h"

using hostcuda::driver;
using hostcuda::find_kernel;
using hostcuda::in_context;
using hostcuda::remember;

namespace {

// One registered fat binary; its library is loaded at the first launch out of it.
struct Binary {
  const void* wrapper;
  CUlibrary library = nullptr;
};

struct RegisteredKernel {
  Binary* binary;
  std::string name;
  CUkernel kernel = nullptr;
  bool reported = false;
};

// Never destroyed: binaries are unregistered by exit handlers that may run late.
struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Binary>> binaries;
  std::unordered_map<const void*, RegisteredKernel> kernels;  // by host function
};

Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  cudaStream_t stream;
};

// The configurations between <<<...>>> and the kernel's stub: a stack, since arguments may launch too.
std::vector<Configuration>& configurations() {
  thread_local std::vector<Configuration> stack;
  return stack;
}

CUresult launch(CUkernel kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes, cudaStream_t stream) {
  if (shared_bytes > UINT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      driver().cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                              static_cast<unsigned>(shared_bytes), stream, args, nullptr);
  // The runtime has its own name for a bad launch shape.
  return result == CUDA_ERROR_INVALID_VALUE ? static_cast<CUresult>(cudaErrorInvalidConfiguration) : result;
}

}  // namespace

CUresult hostcuda::find_kernel(const void* host_function, CUkernel* kernel) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.kernels.find(host_function);
  if (found == r.kernels.end()) return static_cast<CUresult>(cudaErrorInvalidDeviceFunction);
  RegisteredKernel& k = found->second;
  CUresult result = CUDA_SUCCESS;
  if (k.kernel == nullptr && k.binary->library == nullptr) {
    result =
        driver().cuLibraryLoadData(&k.binary->library, k.binary->wrapper, nullptr, nullptr, 0, nullptr, nullptr, 0);
  }
  if (k.kernel == nullptr && result == CUDA_SUCCESS) {
    result = driver().cuLibraryGetKernel(&k.kernel, k.binary->library, k.name.c_str());
  }
  if (result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_NO_BINARY_FOR_GPU) {
    // Without any table nobody was asked for the name yet.
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU && !k.reported) {
      std::fprintf(stderr, "hostcuda: kernel %s has no host version\n", k.name.c_str());
      k.reported = true;
    }
    return static_cast<CUresult>(cudaErrorNoKernelImageForDevice);
  }
  *kernel = k.kernel;
  return result;
}

#pragma GCC visibility push(default)
extern "C" {

void** __cudaRegisterFatBinary(void* fat_cubin) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.binaries.push_back(std::make_unique<Binary>(Binary{fat_cubin}));
  return reinterpret_cast<void**>(r.binaries.back().get());
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** handle) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const auto* binary = reinterpret_cast<const Binary*>(handle);
  std::erase_if(r.kernels, [binary](const auto& entry) { return entry.second.binary == binary; });
  std::erase_if(r.binaries, [binary](const auto& held) { return held.get() == binary; });
}

char __cudaInitModule(void**) {
  return 1;
}

void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* device_name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.kernels[host_function] = {reinterpret_cast<Binary*>(handle), device_name};
}

// Device variables have no host version: registering one is harmless, using one is not possible.
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st* stream) {
  configurations().push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  auto& stack = configurations();
  if (stack.empty()) return remember(cudaErrorMissingConfiguration);
  const Configuration top = stack.back();
  stack.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

// nvcc's stubs ask for this once and keep it: the host function itself is the handle, resolved at each launch.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                               cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, args, shared_bytes, stream);
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                                    cudaStream_t stream) {
  return __cudaLaunchKernel(kernel, grid, block, args, shared_bytes, hostcuda::per_thread(stream));
}

cudaError_t cudaLaunchKernel(const void* func, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                             cudaStream_t stream) {
  return in_context([&] {
    CUkernel kernel = nullptr;
    const CUresult result = find_kernel(func, &kernel);
    return result != CUDA_SUCCESS ? result : launch(kernel, grid, block, args, shared_bytes, stream);
  });
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func, void** args) {
  if (config == nullptr) return remember(cudaErrorInvalidValue);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const auto id = config->attrs[i].id;
    if (id != cudaLaunchAttributeIgnore && id != cudaLaunchAttributePriority &&
        id != cudaLaunchAttributeAccessPolicyWindow) {
      return remember(cudaErrorNotSupported);
    }
  }
  return cudaLaunchKernel(func, config->gridDim, config->blockDim, args, config->dynamicSmemBytes, config->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* func) {
  return in_context([&] {
    if (attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUkernel kernel = nullptr;
    CUresult result = find_kernel(func, &kernel);
    if (result != CUDA_SUCCESS) return result;
    *attributes = {};
    const auto get = [&](CUfunction_attribute which, int* value) {
      if (result == CUDA_SUCCESS) {
        result = driver().cuKernelGetAttribute(value, which, kernel, hostcuda_current_device());
      }
    };
    get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &attributes->maxThreadsPerBlock);
    get(CU_FUNC_ATTRIBUTE_NUM_REGS, &attributes->numRegs);
    get(CU_FUNC_ATTRIBUTE_PTX_VERSION, &attributes->ptxVersion);
    get(CU_FUNC_ATTRIBUTE_BINARY_VERSION, &attributes->binaryVersion);
    get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &attributes->maxDynamicSharedSizeBytes);
    return result;
  });
}

cudaError_t cudaFuncGetName(const char** name, const void* func) {
  return in_context([&] {
    CUkernel kernel = nullptr;
    const CUresult result = find_kernel(func, &kernel);
    return result != CUDA_SUCCESS ? result : driver().cuKernelGetName(name, kernel);
  });
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  return in_context([&] {
    CUkernel kernel = nullptr;
    const CUresult result = find_kernel(symbol, &kernel);
    return result != CUDA_SUCCESS ? result : driver().cuKernelGetFunction(function, kernel);
  });
}

cudaError_t cudaFuncSetAttribute(const void* func, cudaFuncAttribute attr, int value) {
  return in_context([&] {
    CUkernel kernel = nullptr;
    const CUresult result = find_kernel(func, &kernel);
    if (result != CUDA_SUCCESS) return result;
    return driver().cuKernelSetAttribute(static_cast<CUfunction_attribute>(static_cast<int>(attr)), value, kernel,
                                         hostcuda_current_device());
  });
}

cudaError_t cudaFuncSetCacheConfig(const void* func, cudaFuncCache) {
  return in_context([&] {
    CUkernel kernel = nullptr;
    return find_kernel(func, &kernel);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* func, int block_size,
                                                                   size_t shared_bytes, unsigned int flags) {
  return in_context([&] {
    CUkernel kernel = nullptr;
    const CUresult result = find_kernel(func, &kernel);
    if (result != CUDA_SUCCESS) return result;
    return driver().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, reinterpret_cast<CUfunction>(kernel),
                                                                         block_size, shared_bytes, flags);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* func, int block_size,
                                                          size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, func, block_size, shared_bytes, 0);
}

}  // extern "C"
#pragma GCC visibility pop

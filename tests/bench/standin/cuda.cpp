// SPDX-License-Identifier: MIT
// A stand-in libcuda.so.1 whose calls do nothing and succeed: what the shim costs is then its own time. It counts the
// driver calls by name. No kernel runs, no memory is there: only bench_overhead may use it.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "shim/driver.h"

namespace {

enum Index : int {
#define X(member, symbol, parameters) k_##member,
  SDCGUARD_DRIVER_SYMBOLS(X)
#undef X
      kSymbols
};

const char* const names[] = {
#define X(member, symbol, parameters) symbol,
    SDCGUARD_DRIVER_SYMBOLS(X)
#undef X
};

uint64_t counts[kSymbols];
uint64_t next_object = 0x1000;

template <typename Handle>
CUresult make(Handle* handle) {
  next_object += 1u << 20;
  std::memcpy(handle, &next_object, sizeof(*handle));
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

uint64_t standin_count(int index) {
  return counts[index];
}
const char* standin_name(int index) {
  return index < kSymbols ? names[index] : nullptr;
}

#define STANDIN(member, symbol, parameters, body) \
  constexpr bool has_##member = true;             \
  CUresult symbol parameters {                    \
    ++counts[k_##member];                         \
    body;                                         \
  }
#undef cuDeviceGetUuid
#undef cuDeviceTotalMem
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemGetInfo
#undef cuMemsetD8Async
#undef cuMemsetD32Async
#undef cuMemHostRegister
#undef cuMemHostGetDevicePointer
#undef cuStreamDestroy
#undef cuEventDestroy

STANDIN(driver_get_version, cuDriverGetVersion, (int* version), *version = 13000; return CUDA_SUCCESS)
STANDIN(device_get_name, cuDeviceGetName, (char* name, int length, CUdevice),
        std::snprintf(name, static_cast<size_t>(length), "stand-in");
        return CUDA_SUCCESS)
STANDIN(device_get_uuid, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice), std::memset(uuid, 7, sizeof(*uuid));
        return CUDA_SUCCESS)
STANDIN(device_get_attribute, cuDeviceGetAttribute, (int* value, CUdevice_attribute, CUdevice), *value = 16;
        return CUDA_SUCCESS)
STANDIN(device_get_pci_bus_id, cuDeviceGetPCIBusId, (char* id, int length, CUdevice),
        std::snprintf(id, static_cast<size_t>(length), "0000:00:00.0");
        return CUDA_SUCCESS)
STANDIN(device_total_mem, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice), *bytes = size_t{80} << 30;
        return CUDA_SUCCESS)
STANDIN(ctx_get_current, cuCtxGetCurrent, (CUcontext * context), *context = reinterpret_cast<CUcontext>(0x10);
        return CUDA_SUCCESS)
STANDIN(ctx_get_device, cuCtxGetDevice, (CUdevice * device), *device = 0; return CUDA_SUCCESS)
STANDIN(ctx_get_id, cuCtxGetId, (CUcontext, unsigned long long* id), *id = 1; return CUDA_SUCCESS)
STANDIN(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange, (int* lowest, int* highest), *lowest = 0;
        *highest = -5; return CUDA_SUCCESS)
STANDIN(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode*), return CUDA_SUCCESS)
STANDIN(stream_create, cuStreamCreateWithPriority, (CUstream * stream, unsigned int, int), return make(stream))
STANDIN(stream_destroy, cuStreamDestroy_v2, (CUstream), return CUDA_SUCCESS)
STANDIN(stream_get_ctx, cuStreamGetCtx, (CUstream, CUcontext* context), *context = reinterpret_cast<CUcontext>(0x10);
        return CUDA_SUCCESS)
STANDIN(stream_get_id, cuStreamGetId, (CUstream stream, unsigned long long* id),
        *id = reinterpret_cast<unsigned long long>(stream);
        return CUDA_SUCCESS)
STANDIN(stream_is_capturing, cuStreamIsCapturing, (CUstream, CUstreamCaptureStatus* status),
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
        return CUDA_SUCCESS)
STANDIN(stream_wait_event, cuStreamWaitEvent, (CUstream, CUevent, unsigned int), return CUDA_SUCCESS)
STANDIN(stream_synchronize, cuStreamSynchronize, (CUstream), return CUDA_SUCCESS)
STANDIN(event_create, cuEventCreate, (CUevent * event, unsigned int), return make(event))
STANDIN(event_record, cuEventRecord, (CUevent, CUstream), return CUDA_SUCCESS)
STANDIN(event_query, cuEventQuery, (CUevent), return CUDA_SUCCESS)
STANDIN(event_destroy, cuEventDestroy_v2, (CUevent), return CUDA_SUCCESS)
STANDIN(mem_alloc, cuMemAlloc_v2, (CUdeviceptr * address, size_t), return make(address))
STANDIN(mem_free, cuMemFree_v2, (CUdeviceptr), return CUDA_SUCCESS)
STANDIN(mem_get_info, cuMemGetInfo_v2, (size_t * free_bytes, size_t* total), *free_bytes = *total = size_t{80} << 30;
        return CUDA_SUCCESS)
STANDIN(memset_d8_async, cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream), return CUDA_SUCCESS)
STANDIN(memset_d32_async, cuMemsetD32Async, (CUdeviceptr, unsigned int, size_t, CUstream), return CUDA_SUCCESS)
STANDIN(mem_host_register, cuMemHostRegister_v2, (void*, size_t, unsigned int), return CUDA_SUCCESS)
STANDIN(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2, (CUdeviceptr * address, void* host, unsigned int),
        std::memcpy(address, &host, sizeof(host));
        return CUDA_SUCCESS)
STANDIN(library_load_data, cuLibraryLoadData,
        (CUlibrary * library, const void*, CUjit_option*, void**, unsigned int, CUlibraryOption*, void**, unsigned int),
        return make(library))
STANDIN(library_get_kernel, cuLibraryGetKernel, (CUkernel * kernel, CUlibrary, const char*), return make(kernel))
STANDIN(kernel_get_function, cuKernelGetFunction, (CUfunction * function, CUkernel), return make(function))
STANDIN(module_load_data, cuModuleLoadData, (CUmodule * module, const void*), return make(module))
STANDIN(module_get_function, cuModuleGetFunction, (CUfunction * function, CUmodule, const char*), return make(function))
STANDIN(launch_kernel, cuLaunchKernel,
        (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
         CUstream, void**, void**),
        return CUDA_SUCCESS)

// Without one of them the shim finds no driver, and what is measured is a call that checks nothing.
#define X(member, symbol, parameters) static_assert(has_##member);
SDCGUARD_DRIVER_SYMBOLS(X)
#undef X

}  // extern "C"

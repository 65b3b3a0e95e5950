// SPDX-License-Identifier: MIT
// The CUDA driver API as the shim uses it: looked up by explicit versioned names in the process's own libcuda.so.1,
// never linked. The runtime API is not used: its error state belongs to the program.
#pragma once

#include <cuda.h>

namespace sdcguard {

// X(member, "symbol", return type is CUresult, parameters)
#define SDCGUARD_DRIVER_SYMBOLS(X)                                                                                 \
  X(driver_get_version, "cuDriverGetVersion", (int*))                                                              \
  X(device_get_name, "cuDeviceGetName", (char*, int, CUdevice))                                                    \
  X(device_get_uuid, "cuDeviceGetUuid_v2", (CUuuid*, CUdevice))                                                    \
  X(device_get_attribute, "cuDeviceGetAttribute", (int*, CUdevice_attribute, CUdevice))                            \
  X(device_get_pci_bus_id, "cuDeviceGetPCIBusId", (char*, int, CUdevice))                                          \
  X(device_total_mem, "cuDeviceTotalMem_v2", (size_t*, CUdevice))                                                  \
  X(ctx_get_current, "cuCtxGetCurrent", (CUcontext*))                                                              \
  X(ctx_get_device, "cuCtxGetDevice", (CUdevice*))                                                                 \
  X(ctx_get_id, "cuCtxGetId", (CUcontext, unsigned long long*))                                                    \
  X(ctx_get_stream_priority_range, "cuCtxGetStreamPriorityRange", (int*, int*))                                    \
  X(thread_exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (CUstreamCaptureMode*))                     \
  X(stream_create, "cuStreamCreateWithPriority", (CUstream*, unsigned int, int))                                   \
  X(stream_destroy, "cuStreamDestroy_v2", (CUstream))                                                              \
  X(stream_get_ctx, "cuStreamGetCtx", (CUstream, CUcontext*))                                                      \
  X(stream_get_id, "cuStreamGetId", (CUstream, unsigned long long*))                                               \
  X(stream_is_capturing, "cuStreamIsCapturing", (CUstream, CUstreamCaptureStatus*))                                \
  X(stream_wait_event, "cuStreamWaitEvent", (CUstream, CUevent, unsigned int))                                     \
  X(stream_synchronize, "cuStreamSynchronize", (CUstream))                                                         \
  X(event_create, "cuEventCreate", (CUevent*, unsigned int))                                                       \
  X(event_record, "cuEventRecord", (CUevent, CUstream))                                                            \
  X(event_query, "cuEventQuery", (CUevent))                                                                        \
  X(event_destroy, "cuEventDestroy_v2", (CUevent))                                                                 \
  X(mem_alloc, "cuMemAlloc_v2", (CUdeviceptr*, size_t))                                                            \
  X(mem_free, "cuMemFree_v2", (CUdeviceptr))                                                                       \
  X(mem_get_info, "cuMemGetInfo_v2", (size_t*, size_t*))                                                           \
  X(memset_d8_async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                            \
  X(memset_d32_async, "cuMemsetD32Async", (CUdeviceptr, unsigned int, size_t, CUstream))                           \
  X(mem_host_register, "cuMemHostRegister_v2", (void*, size_t, unsigned int))                                      \
  X(mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2", (CUdeviceptr*, void*, unsigned int))              \
  X(library_load_data, "cuLibraryLoadData",                                                                        \
    (CUlibrary*, const void*, CUjit_option*, void**, unsigned int, CUlibraryOption*, void**, unsigned int))        \
  X(library_get_kernel, "cuLibraryGetKernel", (CUkernel*, CUlibrary, const char*))                                 \
  X(kernel_get_function, "cuKernelGetFunction", (CUfunction*, CUkernel))                                           \
  X(module_load_data, "cuModuleLoadData", (CUmodule*, const void*))                                                \
  X(module_get_function, "cuModuleGetFunction", (CUfunction*, CUmodule, const char*))                              \
  X(launch_kernel, "cuLaunchKernel",                                                                               \
    (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, \
     CUstream, void**, void**))

struct DriverApi {
#define X(member, symbol, parameters) CUresult(*member) parameters;
  SDCGUARD_DRIVER_SYMBOLS(X)
#undef X
};

// The table, looked up once a process. Null when the process has no libcuda.so.1 or it lacks a needed symbol
// (cuLibrary* may be absent: then the module calls are used). Not for the hot path: takes a lock on its first call.
const DriverApi* driver() noexcept;

// The table if it was found before, else null. One relaxed load.
const DriverApi* driver_if_loaded() noexcept;

}  // namespace sdcguard

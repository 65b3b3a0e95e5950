// SPDX-License-Identifier: MIT
#include "tools/measure/device.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" const unsigned char sdcguard_fatbin[];

namespace sdcguard {
namespace {

// Each with the signature of its header.
#define SDCGUARD_DRIVER_CALLS(X)  \
  X(cuInit)                       \
  X(cuDriverGetVersion)           \
  X(cuGetErrorName)               \
  X(cuDeviceGetCount)             \
  X(cuDeviceGet)                  \
  X(cuDeviceGetName)              \
  X(cuDeviceGetUuid_v2)           \
  X(cuDeviceGetAttribute)         \
  X(cuDeviceTotalMem_v2)          \
  X(cuDevicePrimaryCtxRetain)     \
  X(cuDevicePrimaryCtxRelease_v2) \
  X(cuCtxSetCurrent)              \
  X(cuCtxSynchronize)             \
  X(cuModuleLoadData)             \
  X(cuModuleGetFunction)          \
  X(cuMemGetInfo_v2)              \
  X(cuMemAlloc_v2)                \
  X(cuMemFree_v2)                 \
  X(cuMemsetD8_v2)                \
  X(cuMemcpyHtoD_v2)              \
  X(cuMemcpyDtoH_v2)              \
  X(cuLaunchKernel)
#define SDCGUARD_CUBLAS_CALLS(X) \
  X(cublasCreate_v2)             \
  X(cublasDestroy_v2)            \
  X(cublasGetVersion_v2)         \
  X(cublasGetStatusString)
#define SDCGUARD_CUBLASLT_CALLS(X)  \
  X(cublasLtCreate)                 \
  X(cublasLtDestroy)                \
  X(cublasLtMatmulDescCreate)       \
  X(cublasLtMatmulDescDestroy)      \
  X(cublasLtMatmulDescSetAttribute) \
  X(cublasLtMatrixLayoutCreate)     \
  X(cublasLtMatrixLayoutDestroy)    \
  X(cublasLtMatmul)

void* symbol_of(void* library, const char* symbol) {
  void* found = dlsym(library, symbol);
  if (found == nullptr) throw DeviceError(std::string(symbol) + ": the library has no such symbol");
  return found;
}

cudaDataType_t cuda_type(DataType type) {
  switch (type) {
    case DataType::kBF16:
      return CUDA_R_16BF;
    case DataType::kF16:
      return CUDA_R_16F;
    case DataType::kF32:
      return CUDA_R_32F;
    case DataType::kF64:
      return CUDA_R_64F;
    case DataType::kE4M3:
      return CUDA_R_8F_E4M3;
    case DataType::kI8:
      return CUDA_R_8I;
    default:
      return CUDA_R_32I;
  }
}

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    char byte[4];
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned>(static_cast<unsigned char>(uuid.bytes[i])));
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += byte;
  }
  return text;
}

}  // namespace

// In C++ the header has two of this name.
using GemmEx = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                                  const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                                  cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);

struct Device::Libraries {
#define X(name) decltype(&::name) name = nullptr;
  SDCGUARD_DRIVER_CALLS(X)
  SDCGUARD_CUBLAS_CALLS(X)
  SDCGUARD_CUBLASLT_CALLS(X)
#undef X
  GemmEx gemm_ex = nullptr;
  void* cublaslt = nullptr;  // library
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUfunction functions[kFunctionCount] = {};
  cublasHandle_t handle = nullptr;
  cublasLtHandle_t lt_handle = nullptr;  // made when a product needs it

  explicit Libraries(const std::string& folder) {
    const auto open = [&folder](const std::string& name) {
      return dlopen((folder.empty() ? name : folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    };
    void* driver = open("libcuda.so.1");
    if (driver == nullptr) throw DeviceError(std::string("no CUDA driver here: ") + dlerror());
#define X(name) name = reinterpret_cast<decltype(name)>(symbol_of(driver, #name));
    SDCGUARD_DRIVER_CALLS(X)
#undef X
    // The newest that is there, both libraries of one major.
    for (const char* major : {"13", "12", "11"}) {
      void* cublas = open(std::string("libcublas.so.") + major);
      if (cublas == nullptr) continue;
      cublaslt = open(std::string("libcublasLt.so.") + major);
      if (cublaslt == nullptr) continue;
#define X(name) name = reinterpret_cast<decltype(name)>(symbol_of(cublas, #name));
      SDCGUARD_CUBLAS_CALLS(X)
#undef X
      gemm_ex = reinterpret_cast<GemmEx>(symbol_of(cublas, "cublasGemmEx"));
#define X(name) name = reinterpret_cast<decltype(name)>(symbol_of(cublaslt, #name));
      SDCGUARD_CUBLASLT_CALLS(X)
#undef X
      return;
    }
    throw DeviceError(
        "no cuBLAS here: libcublas.so.13, .12 or .11 with its libcublasLt must be where the loader looks");
  }

  void must(CUresult result, const std::string& what) const {
    if (result == CUDA_SUCCESS) return;
    const char* name = nullptr;
    if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown error";
    throw DeviceError(what + ": " + name);
  }
  void must(cublasStatus_t status, const std::string& what) const {
    if (status != CUBLAS_STATUS_SUCCESS) throw DeviceError(what + ": " + cublasGetStatusString(status));
  }

  // Products of FP8 operands exist in cublasLt alone.
  cublasStatus_t multiply_lt(const ProductType& type, const ProductShape& shape, uint64_t a, uint64_t b, uint64_t p,
                             int64_t p_stride) {
    if (lt_handle == nullptr) must(cublasLtCreate(&lt_handle), "cublasLtCreate");
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t layouts[3] = {};
    const cudaDataType_t operands = cuda_type(type.operands);
    const auto n1 = static_cast<uint64_t>(shape.n1), n2 = static_cast<uint64_t>(shape.n2),
               n3 = static_cast<uint64_t>(shape.n3);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const float one = 1, zero = 0;
    cublasStatus_t status = cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto next = [&status](cublasStatus_t result) {
      if (status == CUBLAS_STATUS_SUCCESS) status = result;
    };
    if (status == CUBLAS_STATUS_SUCCESS) {
      next(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
      next(cublasLtMatrixLayoutCreate(&layouts[0], operands, n2, n3, shape.n2));
      next(cublasLtMatrixLayoutCreate(&layouts[1], operands, n2, n1, shape.n2));
      next(cublasLtMatrixLayoutCreate(&layouts[2], CUDA_R_32F, n3, n1, p_stride));
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = cublasLtMatmul(lt_handle, desc, &one, reinterpret_cast<const void*>(b), layouts[0],
                              reinterpret_cast<const void*>(a), layouts[1], &zero, reinterpret_cast<const void*>(p),
                              layouts[2], reinterpret_cast<void*>(p), layouts[2], nullptr, nullptr, 0, nullptr);
    }
    for (cublasLtMatrixLayout_t layout : layouts) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (desc != nullptr) cublasLtMatmulDescDestroy(desc);
    return status;
  }
};

Device::Device(int ordinal, const std::string& libraries) : libraries_(std::make_unique<Libraries>(libraries)) {
  Libraries& l = *libraries_;
  l.must(l.cuInit(0), "cuInit");
  int count = 0;
  l.must(l.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= count) {
    throw DeviceError("no device " + std::to_string(ordinal) + ": there are " + std::to_string(count) +
                      ", counted from 0");
  }
  l.must(l.cuDeviceGet(&l.device, ordinal), "cuDeviceGet");
  char name[256] = "";
  CUuuid uuid{};
  size_t memory = 0;
  l.must(l.cuDeviceGetName(name, sizeof name, l.device), "cuDeviceGetName");
  l.must(l.cuDeviceGetUuid_v2(&uuid, l.device), "cuDeviceGetUuid");
  l.must(l.cuDeviceTotalMem_v2(&memory, l.device), "cuDeviceTotalMem");
  l.must(l.cuDriverGetVersion(&identity_.driver), "cuDriverGetVersion");
  const auto attribute = [&](CUdevice_attribute which, int* value) {
    l.must(l.cuDeviceGetAttribute(value, which, l.device), "cuDeviceGetAttribute");
  };
  attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &identity_.compute_major);
  attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &identity_.compute_minor);
  attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &identity_.sm_count);
  identity_.name = name;
  identity_.uuid = uuid_text(uuid);
  identity_.memory_bytes = memory;
  identity_.simulated = identity_.name.find("simulated") != std::string::npos;
  identity_.order = "library";
  if (identity_.simulated) {
    const char* order = std::getenv("HOSTCUDA_ORDER");
    identity_.order = order == nullptr || order[0] == '\0' ? "h100" : order;
  }
  l.must(l.cuDevicePrimaryCtxRetain(&l.context, l.device), "cuDevicePrimaryCtxRetain");
  l.must(l.cuCtxSetCurrent(l.context), "cuCtxSetCurrent");
  load_kernels();
  l.must(l.cublasCreate_v2(&l.handle), "cublasCreate");
  l.must(l.cublasGetVersion_v2(l.handle, &identity_.cublas), "cublasGetVersion");
}

int Device::count(const std::string& libraries) {
  const Libraries l(libraries);
  int count = 0;
  l.must(l.cuInit(0), "cuInit");
  l.must(l.cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

Device::~Device() {
  Libraries& l = *libraries_;
  if (l.lt_handle != nullptr) l.cublasLtDestroy(l.lt_handle);
  if (l.handle != nullptr) l.cublasDestroy_v2(l.handle);
  if (l.context != nullptr) l.cuDevicePrimaryCtxRelease_v2(l.device);
}

void Device::load_kernels() {
  Libraries& l = *libraries_;
  CUmodule module = nullptr;
  l.must(l.cuModuleLoadData(&module, sdcguard_fatbin), "our kernels on " + identity_.name + " (compute capability " +
                                                           std::to_string(identity_.compute_major) + "." +
                                                           std::to_string(identity_.compute_minor) + ")");
  for (uint32_t i = 0; i < kFunctionCount; ++i) {
    l.must(l.cuModuleGetFunction(&l.functions[i], module, kFunctionNames[i]), kFunctionNames[i]);
  }
}

bool Device::multiply(const ProductType& type, const ProductShape& shape, uint64_t a, uint64_t b, uint64_t p,
                      int64_t p_stride) {
  Libraries& l = *libraries_;
  cublasStatus_t status;
  if (element_bytes(type.operands) == 1 && type.accumulator == Accumulator::kF32) {
    status = l.multiply_lt(type, shape, a, b, p, p_stride);
  } else {
    const double one = 1, zero = 0;
    const float one_f = 1, zero_f = 0;
    const int32_t one_i = 1, zero_i = 0;
    const void *alpha = &one_f, *beta = &zero_f;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    cudaDataType_t result = CUDA_R_32F;
    if (type.rounding == OperandRounding::kTf32) compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    if (type.accumulator == Accumulator::kF64) {
      compute = CUBLAS_COMPUTE_64F;
      result = CUDA_R_64F;
      alpha = &one;
      beta = &zero;
    } else if (type.accumulator == Accumulator::kI32) {
      compute = CUBLAS_COMPUTE_32I;
      result = CUDA_R_32I;
      alpha = &one_i;
      beta = &zero_i;
    }
    const auto n1 = static_cast<int>(shape.n1), n2 = static_cast<int>(shape.n2), n3 = static_cast<int>(shape.n3);
    const cudaDataType_t operands = cuda_type(type.operands);
    status = l.gemm_ex(l.handle, CUBLAS_OP_T, CUBLAS_OP_N, n3, n1, n2, alpha, reinterpret_cast<const void*>(b),
                       operands, n2, reinterpret_cast<const void*>(a), operands, n2, beta, reinterpret_cast<void*>(p),
                       result, static_cast<int>(p_stride), compute, CUBLAS_GEMM_DEFAULT);
  }
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH) return false;
  l.must(status, std::string("a ") + type.name + " product of " + std::to_string(shape.n1) + "x" +
                     std::to_string(shape.n2) + "x" + std::to_string(shape.n3));
  return true;
}

void Device::launch(const ProbePlan& plan, Kernel kernel) {
  const LaunchShape& shape = plan.launch[static_cast<uint32_t>(kernel)];
  if (shape.grid == 0) return;
  void* arguments[] = {const_cast<ProbeParams*>(&plan.params)};
  Libraries& l = *libraries_;
  l.must(l.cuLaunchKernel(l.functions[shape.function], shape.grid, 1, 1, shape.block, 1, 1, shape.shared_bytes, nullptr,
                          arguments, nullptr),
         kFunctionNames[shape.function]);
}

uint64_t Device::allocate(uint64_t bytes) {
  CUdeviceptr address = 0;
  libraries_->must(libraries_->cuMemAlloc_v2(&address, std::max<uint64_t>(bytes, 1)),
                   "cuMemAlloc of " + std::to_string(bytes) + " bytes");
  return address;
}

void Device::free(uint64_t address) noexcept {
  libraries_->cuMemFree_v2(address);
}

uint64_t Device::free_bytes() const {
  size_t free = 0, total = 0;
  libraries_->must(libraries_->cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return free;
}

void Device::fill(uint64_t address, unsigned char byte, uint64_t bytes) {
  libraries_->must(libraries_->cuMemsetD8_v2(address, byte, bytes), "cuMemsetD8");
}

void Device::write(uint64_t to, const void* from, uint64_t bytes) {
  libraries_->must(libraries_->cuMemcpyHtoD_v2(to, from, bytes), "cuMemcpyHtoD");
}

void Device::read(void* to, uint64_t from, uint64_t bytes) const {
  synchronize();
  libraries_->must(libraries_->cuMemcpyDtoH_v2(to, from, bytes), "cuMemcpyDtoH");
}

void Device::synchronize() const {
  libraries_->must(libraries_->cuCtxSynchronize(), "cuCtxSynchronize");
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Driver functions that copy and fill memory: cuMemcpy..., cuMemset....
//
// What waits, as on the real device: host <-> device copies without Async; Async copies into pageable host memory (the
// data is there on return); Async copies from pageable memory read it before they return, not later. Device to device
// copies and fills never wait, Async or not.
#include <cstring>
#include <vector>

#include "tools/hostcuda/cuda/context.h"
#include "tools/hostcuda/cuda/memory.h"
#include "tools/hostcuda/cuda/tsan.h"

namespace hostcuda {

CUresult synchronize(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Stream>& stream);

namespace {

enum class Role { kHost, kDevice, kAny };

struct Side {
  CUdeviceptr address;
  size_t pitch;
  Role role;
};

bool known(CUdeviceptr p) {
  Allocation found;
  return find_allocation(p, &found);
}

// Can `rows` rows of `width` bytes at `side` be what its role says? What the driver rejects before it enqueues.
bool plausible(const Side& side, size_t width, size_t rows) {
  const size_t bytes = side.pitch * (rows - 1) + width;
  if (side.address == 0) return false;
  const bool device_space = is_device_address(side.address);
  if (side.role == Role::kHost && device_space) return false;
  if (!device_space && side.role == Role::kAny) return true;
  if (!device_space && side.role == Role::kHost) return true;
  Allocation found;
  return find_allocation(side.address, &found) && bytes <= found.bytes - (side.address - found.base);
}

bool pageable(const Side& side) {
  return !is_device_address(side.address) && !known(side.address);
}

// The bytes behind an address now, in stream order; null after a fault was reported.
char* reach(CUdeviceptr p, size_t bytes, int access) {
  if (!is_device_address(p)) return reinterpret_cast<char*>(p);
  auto* host = static_cast<char*>(hostcuda_view(p, bytes, access | HOSTCUDA_ANY_DEVICE));
  if (host == nullptr) hostcuda_fault_stop_as(CUDA_ERROR_ILLEGAL_ADDRESS, describe(p, bytes).c_str());
  return host;
}

struct CopyBody {
  Side to;
  Side from;
  size_t width;
  size_t rows;
  std::vector<char> staged;  // a pageable source, dense, as it was at the call; empty: read the source itself

  void operator()() const {
    char* target = reach(to.address, to.pitch * (rows - 1) + width, HOSTCUDA_WRITE);
    if (target == nullptr) return;
    if (!staged.empty()) {
      for (size_t row = 0; row < rows; ++row) {
        std::memcpy(target + row * to.pitch, staged.data() + row * width, width);
      }
      return;
    }
    const char* source = reach(from.address, from.pitch * (rows - 1) + width, HOSTCUDA_READ);
    if (source == nullptr) return;
    if (rows > 1 && to.pitch == width && from.pitch == width) {
      std::memmove(target, source, rows * width);
      return;
    }
    for (size_t row = 0; row < rows; ++row) {
      std::memmove(target + row * to.pitch, source + row * from.pitch, width);
    }
  }
};

CUresult copy(const Side& to, const Side& from, size_t width, size_t rows, CUstream handle, bool async) {
  Engine& engine = Engine::get();
  std::unique_lock<std::mutex> lock(engine.mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (width == 0 || rows == 0) return CUDA_SUCCESS;
  if (rows > 1 && (to.pitch < width || from.pitch < width)) return CUDA_ERROR_INVALID_VALUE;
  if (!plausible(to, width, rows) || !plausible(from, width, rows)) return CUDA_ERROR_INVALID_VALUE;
  if (!async) {
    if (const CUresult r = refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
    if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
  }
  const bool capturing = stream->capture != nullptr;
  const bool between_devices = is_device_address(to.address) && is_device_address(from.address);
  const bool wait = !capturing && (async ? pageable(to) : !between_devices);
  CopyBody body{to, from, width, rows, {}};
  if (!capturing && !wait && pageable(from)) {
    body.staged.resize(width * rows);
    for (size_t row = 0; row < rows; ++row) {
      std::memcpy(body.staged.data() + row * width, reinterpret_cast<const char*>(from.address) + row * from.pitch,
                  width);
    }
  }
  if (const CUresult r = enqueue_body(stream, "memcpy", std::move(body)); r != CUDA_SUCCESS) return r;
  return wait ? synchronize(lock, stream) : CUDA_SUCCESS;
}

CUresult copy_flat(CUdeviceptr to, Role to_role, CUdeviceptr from, Role from_role, size_t bytes, CUstream handle,
                   bool async) {
  return copy({to, bytes, to_role}, {from, bytes, from_role}, bytes, 1, handle, async);
}

CUdeviceptr address_of(const void* p) {
  return reinterpret_cast<CUdeviceptr>(p);
}

bool side_of(CUmemorytype type, const void* host, CUdeviceptr device, size_t pitch, size_t x, size_t y, Side* side) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      *side = {address_of(host) + y * pitch + x, pitch, Role::kHost};
      return true;
    case CU_MEMORYTYPE_DEVICE:
      *side = {device + y * pitch + x, pitch, Role::kDevice};
      return true;
    case CU_MEMORYTYPE_UNIFIED:
      *side = {device + y * pitch + x, pitch, Role::kAny};
      return true;
    default:
      return false;
  }
}

CUresult copy_2d(const CUDA_MEMCPY2D* p, CUstream handle, bool async) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (p->srcMemoryType == CU_MEMORYTYPE_ARRAY || p->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return CUDA_ERROR_NOT_SUPPORTED;
  const size_t width = p->WidthInBytes;
  const size_t from_pitch = p->srcPitch == 0 ? width : p->srcPitch;
  const size_t to_pitch = p->dstPitch == 0 ? width : p->dstPitch;
  Side to{};
  Side from{};
  if (!side_of(p->dstMemoryType, p->dstHost, p->dstDevice, to_pitch, p->dstXInBytes, p->dstY, &to) ||
      !side_of(p->srcMemoryType, p->srcHost, p->srcDevice, from_pitch, p->srcXInBytes, p->srcY, &from)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return copy(to, from, width, p->Height, handle, async);
}

template <class Word>
struct FillBody {
  CUdeviceptr address;
  size_t pitch;
  Word value;
  size_t width;  // words
  size_t rows;

  void operator()() const {
    char* target = reach(address, pitch * (rows - 1) + width * sizeof(Word), HOSTCUDA_WRITE);
    if (target == nullptr) return;
    for (size_t row = 0; row < rows; ++row) {
      if constexpr (sizeof(Word) == 1) {
        std::memset(target + row * pitch, value, width);
      } else {
        auto* words = reinterpret_cast<Word*>(target + row * pitch);
        for (size_t i = 0; i < width; ++i) words[i] = value;
      }
    }
  }
};

template <class Word>
CUresult fill(CUdeviceptr address, size_t pitch, Word value, size_t width, size_t rows, CUstream handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (width == 0 || rows == 0) return CUDA_SUCCESS;
  if (address % sizeof(Word) != 0 || pitch % sizeof(Word) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (rows > 1 && pitch < width * sizeof(Word)) return CUDA_ERROR_INVALID_VALUE;
  if (!plausible({address, pitch, Role::kDevice}, width * sizeof(Word), rows)) return CUDA_ERROR_INVALID_VALUE;
  return enqueue_body(stream, "memset", FillBody<Word>{address, pitch, value, width, rows});
}

}  // namespace

namespace driver {

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t byte_count) {
  return copy_flat(dst, Role::kAny, src, Role::kAny, byte_count, nullptr, false);
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t byte_count, CUstream stream) {
  return copy_flat(dst, Role::kAny, src, Role::kAny, byte_count, stream, true);
}
// Every device's memory is in one address space, so the contexts say nothing new.
CUresult cuMemcpyPeer(CUdeviceptr dst_device, CUcontext, CUdeviceptr src_device, CUcontext, size_t byte_count) {
  return copy_flat(dst_device, Role::kDevice, src_device, Role::kDevice, byte_count, nullptr, false);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dst_device, CUcontext, CUdeviceptr src_device, CUcontext, size_t byte_count,
                           CUstream stream) {
  return copy_flat(dst_device, Role::kDevice, src_device, Role::kDevice, byte_count, stream, true);
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr dst_device, const void* src_host, size_t byte_count) {
  return copy_flat(dst_device, Role::kDevice, address_of(src_host), Role::kHost, byte_count, nullptr, false);
}
CUresult cuMemcpyDtoH_v2(void* dst_host, CUdeviceptr src_device, size_t byte_count) {
  return copy_flat(address_of(dst_host), Role::kHost, src_device, Role::kDevice, byte_count, nullptr, false);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr dst_device, CUdeviceptr src_device, size_t byte_count) {
  return copy_flat(dst_device, Role::kDevice, src_device, Role::kDevice, byte_count, nullptr, false);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst_device, const void* src_host, size_t byte_count, CUstream stream) {
  return copy_flat(dst_device, Role::kDevice, address_of(src_host), Role::kHost, byte_count, stream, true);
}
CUresult cuMemcpyDtoHAsync_v2(void* dst_host, CUdeviceptr src_device, size_t byte_count, CUstream stream) {
  return copy_flat(address_of(dst_host), Role::kHost, src_device, Role::kDevice, byte_count, stream, true);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst_device, CUdeviceptr src_device, size_t byte_count, CUstream stream) {
  return copy_flat(dst_device, Role::kDevice, src_device, Role::kDevice, byte_count, stream, true);
}
CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* p_copy) {
  return copy_2d(p_copy, nullptr, false);
}
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* p_copy) {
  return copy_2d(p_copy, nullptr, false);
}
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* p_copy, CUstream stream) {
  return copy_2d(p_copy, stream, true);
}

CUresult cuMemsetD8_v2(CUdeviceptr dst_device, unsigned char uc, size_t n) {
  return fill<unsigned char>(dst_device, n, uc, n, 1, nullptr);
}
CUresult cuMemsetD16_v2(CUdeviceptr dst_device, unsigned short us, size_t n) {
  return fill<unsigned short>(dst_device, n * 2, us, n, 1, nullptr);
}
CUresult cuMemsetD32_v2(CUdeviceptr dst_device, unsigned int ui, size_t n) {
  return fill<unsigned int>(dst_device, n * 4, ui, n, 1, nullptr);
}
CUresult cuMemsetD8Async(CUdeviceptr dst_device, unsigned char uc, size_t n, CUstream stream) {
  return fill<unsigned char>(dst_device, n, uc, n, 1, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr dst_device, unsigned short us, size_t n, CUstream stream) {
  return fill<unsigned short>(dst_device, n * 2, us, n, 1, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr dst_device, unsigned int ui, size_t n, CUstream stream) {
  return fill<unsigned int>(dst_device, n * 4, ui, n, 1, stream);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned char uc, size_t width, size_t height) {
  return fill<unsigned char>(dst_device, dst_pitch, uc, width, height, nullptr);
}
CUresult cuMemsetD2D8Async(CUdeviceptr dst_device, size_t dst_pitch, unsigned char uc, size_t width, size_t height,
                           CUstream stream) {
  return fill<unsigned char>(dst_device, dst_pitch, uc, width, height, stream);
}

}  // namespace driver
}  // namespace hostcuda

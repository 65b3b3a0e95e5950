// SPDX-License-Identifier: MIT
// Driver functions that copy and fill memory: cuMemcpy..., cuMemset....
//
// What waits, as on the real device: host <-> device copies without Async; Async copies into pageable host memory (the
// data is there on return); Async copies from pageable memory read it before they return, not later. Device to device
// copies and fills never wait, Async or not.
#include <cstring>
#include <vector>

#include "tools/hostcuda/cuda/context.h"
#include "tools/hostcuda/cuda/graph.h"
#include "tools/hostcuda/cuda/memory.h"
#include "tools/hostcuda/cuda/tsan.h"

namespace hostcuda {

CUresult synchronize(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Stream>& stream);

namespace {

enum class Role { kHost, kDevice, kAny };

struct Side {
  CUdeviceptr address;
  size_t pitch;  // bytes from row to row
  size_t slice;  // bytes from slice to slice
  Role role;
};

struct Extent {
  size_t width;  // bytes
  size_t rows;
  size_t slices;
};

// Bytes from the first to the last of a side, both included.
size_t span(const Side& side, const Extent& extent) {
  return side.slice * (extent.slices - 1) + side.pitch * (extent.rows - 1) + extent.width;
}

bool known(CUdeviceptr p) {
  Allocation found;
  return find_allocation(p, &found);
}

// Can `extent` at `side` be what its role says? What the driver rejects before it enqueues.
bool plausible(const Side& side, const Extent& extent) {
  if (side.address == 0) return false;
  const bool device_space = is_device_address(side.address);
  if (side.role == Role::kHost && device_space) return false;
  if (!device_space && side.role == Role::kAny) return true;
  if (!device_space && side.role == Role::kHost) return true;
  Allocation found;
  return find_address(side.address, &found) && span(side, extent) <= found.bytes - (side.address - found.base);
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
  Extent extent;
  std::vector<char> staged;  // a pageable source, dense, as it was at the call; empty: read the source itself

  void operator()() const {
    char* target = reach(to.address, span(to, extent), HOSTCUDA_WRITE);
    if (target == nullptr) return;
    if (!staged.empty()) {
      const Side dense{0, extent.width, extent.width * extent.rows, Role::kHost};
      move(target, to, staged.data(), dense, extent);
      return;
    }
    const char* source = reach(from.address, span(from, extent), HOSTCUDA_READ);
    if (source != nullptr) move(target, to, source, from, extent);
  }

  static void move(char* target, const Side& to, const char* source, const Side& from, const Extent& extent) {
    const size_t plane = extent.width * extent.rows;
    const bool dense_rows = extent.rows == 1 || (to.pitch == extent.width && from.pitch == extent.width);
    const bool dense = dense_rows && (extent.slices == 1 || (to.slice == plane && from.slice == plane));
    if (dense) {
      std::memmove(target, source, plane * extent.slices);
      return;
    }
    for (size_t z = 0; z < extent.slices; ++z) {
      for (size_t row = 0; row < extent.rows; ++row) {
        std::memmove(target + z * to.slice + row * to.pitch, source + z * from.slice + row * from.pitch, extent.width);
      }
    }
  }
};

// The copy as a graph's node describes it.
CUDA_MEMCPY3D described(const Side& to, const Side& from, const Extent& extent) {
  const auto type_of = [](Role role) {
    return role == Role::kHost     ? CU_MEMORYTYPE_HOST
           : role == Role::kDevice ? CU_MEMORYTYPE_DEVICE
                                   : CU_MEMORYTYPE_UNIFIED;
  };
  CUDA_MEMCPY3D p{};
  p.srcMemoryType = type_of(from.role);
  p.srcHost = reinterpret_cast<const void*>(from.address);
  p.srcDevice = from.address;
  p.srcPitch = from.pitch;
  p.srcHeight = from.pitch != 0 ? from.slice / from.pitch : 0;
  p.dstMemoryType = type_of(to.role);
  p.dstHost = reinterpret_cast<void*>(to.address);
  p.dstDevice = to.address;
  p.dstPitch = to.pitch;
  p.dstHeight = to.pitch != 0 ? to.slice / to.pitch : 0;
  p.WidthInBytes = extent.width;
  p.Height = extent.rows;
  p.Depth = extent.slices;
  return p;
}

NodeContent content_of_copy(const Side& to, const Side& from, const Extent& extent,
                            const std::shared_ptr<Context>& context) {
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  content.context = context;
  content.copy = described(to, from, extent);
  content.work = share_work(work_of_body("memcpy", CopyBody{to, from, extent, {}}));
  return content;
}

CUresult check_sides(const Side& to, const Side& from, const Extent& extent) {
  for (const Side& side : {to, from}) {
    if (extent.rows > 1 && side.pitch < extent.width) return CUDA_ERROR_INVALID_VALUE;
    if (extent.slices > 1 && side.slice < side.pitch * extent.rows) return CUDA_ERROR_INVALID_VALUE;
    if (!plausible(side, extent)) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult copy(const Side& to, const Side& from, const Extent& extent, CUstream handle, bool async) {
  Engine& engine = Engine::get();
  std::unique_lock<std::mutex> lock(engine.mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (extent.width == 0 || extent.rows == 0 || extent.slices == 0) return CUDA_SUCCESS;
  if (const CUresult r = check_sides(to, from, extent); r != CUDA_SUCCESS) return r;
  if (!async) {
    if (const CUresult r = refuse_in_capture(stream); r != CUDA_SUCCESS) return r;
    if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
  }
  if (stream->capture != nullptr) return capture_node(stream, content_of_copy(to, from, extent, stream->context));
  const bool between_devices = is_device_address(to.address) && is_device_address(from.address);
  const bool wait = async ? pageable(to) : !between_devices;
  CopyBody body{to, from, extent, {}};
  if (!wait && pageable(from)) {
    body.staged.resize(extent.width * extent.rows * extent.slices);
    const Side dense{0, extent.width, extent.width * extent.rows, Role::kHost};
    CopyBody::move(body.staged.data(), dense, reinterpret_cast<const char*>(from.address), from, extent);
  }
  if (const CUresult r = enqueue_body(stream, "memcpy", std::move(body)); r != CUDA_SUCCESS) return r;
  return wait ? synchronize(lock, stream) : CUDA_SUCCESS;
}

CUresult copy_flat(CUdeviceptr to, Role to_role, CUdeviceptr from, Role from_role, size_t bytes, CUstream handle,
                   bool async) {
  return copy({to, bytes, bytes, to_role}, {from, bytes, bytes, from_role}, {bytes, 1, 1}, handle, async);
}

CUdeviceptr address_of(const void* p) {
  return reinterpret_cast<CUdeviceptr>(p);
}

// One side of a 2D or 3D copy, at its own origin (x bytes, y rows, z slices). CUDA_ERROR_NOT_SUPPORTED: an array.
CUresult side_of(CUmemorytype type, const void* host, CUdeviceptr device, size_t pitch, size_t height, size_t x,
                 size_t y, size_t z, Side* side) {
  if (type == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUdeviceptr base = type == CU_MEMORYTYPE_HOST ? address_of(host) : device;
  const Role role = type == CU_MEMORYTYPE_HOST     ? Role::kHost
                    : type == CU_MEMORYTYPE_DEVICE ? Role::kDevice
                                                   : Role::kAny;
  *side = {base + z * pitch * height + y * pitch + x, pitch, pitch * height, role};
  return CUDA_SUCCESS;
}

// CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER alike. A pitch of 0 is the width, a height of 0 the number of rows.
template <class Params>
CUresult sides_of(const Params& p, Side* to, Side* from, Extent* extent) {
  if (p.srcLOD != 0 || p.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  *extent = {p.WidthInBytes, p.Height, p.Depth};
  const size_t to_pitch = p.dstPitch != 0 ? p.dstPitch : p.WidthInBytes;
  const size_t from_pitch = p.srcPitch != 0 ? p.srcPitch : p.WidthInBytes;
  const size_t to_height = p.dstHeight != 0 ? p.dstHeight : p.Height;
  const size_t from_height = p.srcHeight != 0 ? p.srcHeight : p.Height;
  if (const CUresult r =
          side_of(p.dstMemoryType, p.dstHost, p.dstDevice, to_pitch, to_height, p.dstXInBytes, p.dstY, p.dstZ, to);
      r != CUDA_SUCCESS) {
    return r;
  }
  return side_of(p.srcMemoryType, p.srcHost, p.srcDevice, from_pitch, from_height, p.srcXInBytes, p.srcY, p.srcZ, from);
}

CUresult copy_2d(const CUDA_MEMCPY2D* p, CUstream handle, bool async) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const size_t to_pitch = p->dstPitch != 0 ? p->dstPitch : p->WidthInBytes;
  const size_t from_pitch = p->srcPitch != 0 ? p->srcPitch : p->WidthInBytes;
  Side to{};
  Side from{};
  if (const CUresult r =
          side_of(p->dstMemoryType, p->dstHost, p->dstDevice, to_pitch, p->Height, p->dstXInBytes, p->dstY, 0, &to);
      r != CUDA_SUCCESS) {
    return r;
  }
  if (const CUresult r =
          side_of(p->srcMemoryType, p->srcHost, p->srcDevice, from_pitch, p->Height, p->srcXInBytes, p->srcY, 0, &from);
      r != CUDA_SUCCESS) {
    return r;
  }
  return copy(to, from, {p->WidthInBytes, p->Height, 1}, handle, async);
}

// Every device's memory is in one address space, so the contexts of a peer copy say nothing new.
template <class Params>
CUresult copy_3d(const Params* p, CUstream handle, bool async) {
  Side to{};
  Side from{};
  Extent extent{};
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = sides_of(*p, &to, &from, &extent); r != CUDA_SUCCESS) return r;
  return copy(to, from, extent, handle, async);
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

// A fill, checked; *work is its body.
template <class Word>
CUresult make_fill(const CUDA_MEMSET_NODE_PARAMS& p, Work* work) {
  const size_t pitch = p.height > 1 ? p.pitch : p.width * sizeof(Word);
  if (p.dst % sizeof(Word) != 0 || pitch % sizeof(Word) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (p.height > 1 && pitch < p.width * sizeof(Word)) return CUDA_ERROR_INVALID_VALUE;
  if (!plausible({p.dst, pitch, 0, Role::kDevice}, {p.width * sizeof(Word), p.height, 1})) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *work = work_of_body("memset", FillBody<Word>{p.dst, pitch, static_cast<Word>(p.value), p.width, p.height});
  return CUDA_SUCCESS;
}

CUresult make_fill(const CUDA_MEMSET_NODE_PARAMS& p, Work* work) {
  switch (p.elementSize) {
    case 1:
      return make_fill<unsigned char>(p, work);
    case 2:
      return make_fill<unsigned short>(p, work);
    case 4:
      return make_fill<unsigned int>(p, work);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

NodeContent content_of_fill(const CUDA_MEMSET_NODE_PARAMS& p, const std::shared_ptr<Context>& context,
                            const Work& work) {
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_MEMSET;
  content.context = context;
  content.fill = p;
  content.work = share_work(work);
  return content;
}

CUresult fill(const CUDA_MEMSET_NODE_PARAMS& p, CUstream handle) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (p.width == 0 || p.height == 0) return CUDA_SUCCESS;
  Work work{};
  if (const CUresult r = make_fill(p, &work); r != CUDA_SUCCESS) return r;
  if (stream->capture != nullptr) return capture_node(stream, content_of_fill(p, stream->context, work));
  const CUresult result = enqueue_work(stream, work);
  if (result != CUDA_SUCCESS) work.destroy(work.arg);
  return result;
}

// One row of `n` elements.
CUresult fill_row(CUdeviceptr dst, unsigned value, unsigned element_bytes, size_t n, CUstream handle) {
  return fill({dst, 0, value, element_bytes, n, 1}, handle);
}

}  // namespace

CUresult copy_content(const CUDA_MEMCPY3D& params, const std::shared_ptr<Context>& context, NodeContent* content) {
  Side to{};
  Side from{};
  Extent extent{};
  if (const CUresult r = sides_of(params, &to, &from, &extent); r != CUDA_SUCCESS) return r;
  if (extent.width == 0 || extent.rows == 0 || extent.slices == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = check_sides(to, from, extent); r != CUDA_SUCCESS) return r;
  *content = content_of_copy(to, from, extent, context);
  content->copy = params;
  return CUDA_SUCCESS;
}

CUresult fill_content(const CUDA_MEMSET_NODE_PARAMS& params, const std::shared_ptr<Context>& context,
                      NodeContent* content) {
  if (params.width == 0 || params.height == 0) return CUDA_ERROR_INVALID_VALUE;
  Work work{};
  if (const CUresult r = make_fill(params, &work); r != CUDA_SUCCESS) return r;
  *content = content_of_fill(params, context, work);
  return CUDA_SUCCESS;
}

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
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* p_copy) {
  return copy_3d(p_copy, nullptr, false);
}
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* p_copy, CUstream stream) {
  return copy_3d(p_copy, stream, true);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* p_copy) {
  return copy_3d(p_copy, nullptr, false);
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* p_copy, CUstream stream) {
  return copy_3d(p_copy, stream, true);
}

CUresult cuMemsetD8_v2(CUdeviceptr dst_device, unsigned char uc, size_t n) {
  return fill_row(dst_device, uc, 1, n, nullptr);
}
CUresult cuMemsetD8Async(CUdeviceptr dst_device, unsigned char uc, size_t n, CUstream stream) {
  return fill_row(dst_device, uc, 1, n, stream);
}
CUresult cuMemsetD2D8_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned char uc, size_t width, size_t height) {
  return fill({dst_device, dst_pitch, uc, 1, width, height}, nullptr);
}
CUresult cuMemsetD2D8Async(CUdeviceptr dst_device, size_t dst_pitch, unsigned char uc, size_t width, size_t height,
                           CUstream stream) {
  return fill({dst_device, dst_pitch, uc, 1, width, height}, stream);
}
CUresult cuMemsetD16_v2(CUdeviceptr dst_device, unsigned short us, size_t n) {
  return fill_row(dst_device, us, 2, n, nullptr);
}
CUresult cuMemsetD16Async(CUdeviceptr dst_device, unsigned short us, size_t n, CUstream stream) {
  return fill_row(dst_device, us, 2, n, stream);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned short us, size_t width, size_t height) {
  return fill({dst_device, dst_pitch, us, 2, width, height}, nullptr);
}
CUresult cuMemsetD2D16Async(CUdeviceptr dst_device, size_t dst_pitch, unsigned short us, size_t width, size_t height,
                            CUstream stream) {
  return fill({dst_device, dst_pitch, us, 2, width, height}, stream);
}
CUresult cuMemsetD32_v2(CUdeviceptr dst_device, unsigned int ui, size_t n) {
  return fill_row(dst_device, ui, 4, n, nullptr);
}
CUresult cuMemsetD32Async(CUdeviceptr dst_device, unsigned int ui, size_t n, CUstream stream) {
  return fill_row(dst_device, ui, 4, n, stream);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr dst_device, size_t dst_pitch, unsigned int ui, size_t width, size_t height) {
  return fill({dst_device, dst_pitch, ui, 4, width, height}, nullptr);
}
CUresult cuMemsetD2D32Async(CUdeviceptr dst_device, size_t dst_pitch, unsigned int ui, size_t width, size_t height,
                            CUstream stream) {
  return fill({dst_device, dst_pitch, ui, 4, width, height}, stream);
}

}  // namespace driver
}  // namespace hostcuda

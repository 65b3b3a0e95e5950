// SPDX-License-Identifier: MIT
// Device memory: reservation, the table of live allocations behind hostcuda_view, freed ranges, poisoning for ASan.
#include "tools/hostcuda/cuda/driver_api.h"
//
#include "tools/hostcuda/cuda/memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "tools/hostcuda/cuda/pool.h"
#include "tools/hostcuda/cuda/running.h"
#include "tools/hostcuda/cuda/settings.h"
#include "tools/hostcuda/cuda/tsan.h"

#ifdef __SANITIZE_ADDRESS__
extern "C" {
void __asan_poison_memory_region(void const volatile* address, size_t bytes);
void __asan_unpoison_memory_region(void const volatile* address, size_t bytes);
}
#endif

namespace hostcuda {
namespace {

constexpr size_t kAlign = 256;    // cuMemAlloc's promise
constexpr size_t kRedZone = 256;  // unallocated bytes on each side of an allocation
constexpr size_t kPage = 4096;
constexpr size_t kFillBytes = 16 << 20;  // fresh memory reads as NaN up to here
constexpr size_t kFreedKept = 4096;      // freed ranges remembered for messages
constexpr size_t kAddressFactor = 4;     // addresses per byte of HOSTCUDA_MEMORY: a freed one stays bad that long

constexpr size_t round_up(size_t n, size_t to) {
  return (n + to - 1) / to * to;
}

void poison([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(p, bytes);
#endif
}

void unpoison([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(p, bytes);
#endif
}

// Raw system calls: the sanitizers' own mmap would paint shadow for the whole reservation.
char* reserve(size_t bytes) {
  const long p = syscall(SYS_mmap, nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == -1 ? nullptr : reinterpret_cast<char*>(p);
}

bool commit(char* from, char* to) {
  return syscall(SYS_mprotect, from, static_cast<size_t>(to - from), PROT_READ | PROT_WRITE) == 0;
}

void decommit(char* from, char* to) {
  if (from >= to) return;
  const auto bytes = static_cast<size_t>(to - from);
  syscall(SYS_madvise, from, bytes, MADV_DONTNEED);
  syscall(SYS_mprotect, from, bytes, PROT_NONE);
}

struct Freed {
  CUdeviceptr base;
  size_t bytes;
};

struct DeviceSpace {
  CUdeviceptr begin = 0;
  CUdeviceptr end = 0;
  CUdeviceptr cursor = 0;
  size_t used = 0;
  size_t graph = 0;
  size_t graph_high = 0;
};

// Live allocations sorted by base, published to lock-free readers: `sequence` is odd while a writer is at work. An
// array that had to grow is never freed, so a reader that lost the race reads stale entries, never unmapped memory.
struct Table {
  std::mutex mutex;  // writers, and everything but `sequence`, `entries`, `count`
  uint64_t sequence = 0;
  Allocation* entries = nullptr;
  size_t count = 0;
  size_t capacity = 0;
  DeviceSpace devices[kMaxDevices];
  ptrdiff_t alias_offset = 0;
  CUdeviceptr space_begin = 0;
  CUdeviceptr space_end = 0;
  std::deque<Freed> freed;
  uint64_t next_buffer_id = 1;
};

// The table is made before the first allocation and never destroyed: device code may run while the process exits.
Table& table() {
  static Table* const instance = [] {
    auto* t = new Table;
    const StartSettings& settings = start_settings();
    const size_t per_device = round_up(settings.device_bytes * kAddressFactor, size_t{2} << 20);
    const size_t total = per_device * static_cast<size_t>(std::max(settings.devices, 1));
    char* base = reserve(2 * total);
    if (base == nullptr) {
      std::fprintf(stderr, "hostcuda: cannot reserve %zu bytes of addresses for device memory\n", 2 * total);
      std::_Exit(86);
    }
    t->alias_offset = static_cast<ptrdiff_t>(total);
    t->space_begin = reinterpret_cast<CUdeviceptr>(base);
    t->space_end = t->space_begin + total;
    for (int d = 0; d < settings.devices; ++d) {
      DeviceSpace& space = t->devices[d];
      space.begin = t->space_begin + static_cast<size_t>(d) * per_device;
      space.end = space.begin + per_device;
      space.cursor = space.begin;
    }
    t->capacity = 1024;
    t->entries = static_cast<Allocation*>(std::malloc(t->capacity * sizeof(Allocation)));
    return t;
  }();
  return *instance;
}

// Index of the first entry whose base is above `p`.
HOSTCUDA_NO_TSAN size_t first_above(const Allocation* entries, size_t count, CUdeviceptr p) {
  size_t low = 0;
  size_t high = count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (entries[middle].base <= p) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The last allocation that begins at or before `p`, whatever its length. Lock-free; pairs with publish().
HOSTCUDA_NO_TSAN bool read_at_or_below(CUdeviceptr p, Allocation* found) {
  Table& t = table();
  for (;;) {
    const uint64_t before = __atomic_load_n(&t.sequence, __ATOMIC_ACQUIRE);
    if ((before & 1) == 0) {
      const Allocation* entries = __atomic_load_n(&t.entries, __ATOMIC_ACQUIRE);
      const size_t count = __atomic_load_n(&t.count, __ATOMIC_ACQUIRE);
      const size_t above = first_above(entries, count, p);
      if (above > 0) *found = entries[above - 1];
      __atomic_thread_fence(__ATOMIC_ACQUIRE);
      if (__atomic_load_n(&t.sequence, __ATOMIC_RELAXED) == before) return above > 0;
    }
    __builtin_ia32_pause();
  }
}

// Writers' side of the sequence lock; `mutex` is held from begin to end.
HOSTCUDA_NO_TSAN void publish_insert(Table& t, const Allocation& entry) {
  __atomic_store_n(&t.sequence, t.sequence + 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (t.count == t.capacity) {
    auto* larger = static_cast<Allocation*>(std::malloc(2 * t.capacity * sizeof(Allocation)));
    for (size_t i = 0; i < t.count; ++i) larger[i] = t.entries[i];
    __atomic_store_n(&t.entries, larger, __ATOMIC_RELEASE);
    t.capacity *= 2;
  }
  const size_t at = first_above(t.entries, t.count, entry.base);
  for (size_t i = t.count; i > at; --i) t.entries[i] = t.entries[i - 1];
  t.entries[at] = entry;
  __atomic_store_n(&t.count, t.count + 1, __ATOMIC_RELEASE);
  __atomic_store_n(&t.sequence, t.sequence + 1, __ATOMIC_RELEASE);
}

HOSTCUDA_NO_TSAN void publish_erase(Table& t, size_t at) {
  __atomic_store_n(&t.sequence, t.sequence + 1, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  for (size_t i = at + 1; i < t.count; ++i) t.entries[i - 1] = t.entries[i];
  __atomic_store_n(&t.count, t.count - 1, __ATOMIC_RELEASE);
  __atomic_store_n(&t.sequence, t.sequence + 1, __ATOMIC_RELEASE);
}

// Next-fit: the first gap of `need` bytes at or after the cursor, once around. `mutex` is held.
bool find_gap(Table& t, DeviceSpace& space, size_t need, CUdeviceptr* at) {
  if (need > space.end - space.begin) return false;
  CUdeviceptr candidate = space.cursor;
  bool wrapped = false;
  for (;;) {
    if (candidate + need > space.end) {
      if (wrapped) return false;
      wrapped = true;
      candidate = space.begin;
    }
    const size_t above = first_above(t.entries, t.count, candidate + need - 1);
    if (above == 0) break;
    const Allocation& last = t.entries[above - 1];
    const CUdeviceptr last_end = last.base + round_up(last.bytes, kAlign) + kRedZone;
    if (last_end <= candidate) break;
    // Something lives in [candidate, candidate + need): go on behind it, unless that was the whole way round.
    if (wrapped && last_end > space.cursor && space.cursor != space.begin) return false;
    candidate = last_end;
  }
  *at = candidate;
  space.cursor = candidate + need;
  return true;
}

void remember_freed(Table& t, CUdeviceptr base, size_t bytes) {
  t.freed.push_back({base, bytes});
  if (t.freed.size() > kFreedKept) t.freed.pop_front();
}

char* page_of(char* p) {
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(p) / kPage * kPage);
}
char* page_end(char* p) {
  return reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(p), kPage));
}

// ASan's shadow is written for the first and the last page of an allocation alone: pages between hold nothing else and
// are inaccessible when it goes. So only shared pages are ever poisoned, and a page is clean when it is given back.
void poison_around(char* host, size_t bytes, size_t rounded) {
  char* const first = page_of(host);
  char* const last = page_end(host + rounded);
  char* const red_begin = std::max(first, host - kRedZone);
  poison(red_begin, static_cast<size_t>(host - red_begin));
  unpoison(host, std::min(bytes, static_cast<size_t>(first + kPage - host)));
  char* const tail = std::max(host, last - kPage);
  if (tail < host + bytes) unpoison(tail, static_cast<size_t>(host + bytes - tail));
  char* const dense_end = host + round_up(bytes, 8);  // the granule that holds the end is ASan's own affair
  char* const red_end = std::min(last, host + rounded + kRedZone);
  if (dense_end < red_end) poison(dense_end, static_cast<size_t>(red_end - dense_end));
  if (bytes % 8 != 0) {
    poison(host + bytes / 8 * 8, 8);
    unpoison(host + bytes / 8 * 8, bytes % 8);
  }
}

// Gives back the pages that only this device allocation used, poisons what is left of it in pages it shared. `mutex` is
// held, the entry is out of the table.
void retire_pages(Table& t, const Allocation& gone) {
  char* const from = gone.host;
  char* const to = gone.host + round_up(gone.bytes, kAlign);
  const auto lives_in = [&t](const char* page) {
    const auto p = reinterpret_cast<CUdeviceptr>(page) - static_cast<CUdeviceptr>(t.alias_offset);
    const size_t above = first_above(t.entries, t.count, p + kPage - 1);
    return above > 0 && t.entries[above - 1].base + t.entries[above - 1].bytes > p;
  };
  char* first = page_of(from);
  char* last = page_end(to);
  if (lives_in(first)) {
    poison(from, static_cast<size_t>(std::min(to, first + kPage) - from));
    first += kPage;
  }
  if (last > first && lives_in(last - kPage)) {
    last -= kPage;
    char* const tail = std::max(from, last);
    poison(tail, static_cast<size_t>(to - tail));
  }
  if (first >= last) return;
  unpoison(first, kPage);
  unpoison(last - kPage, kPage);
  decommit(first, last);
}

// Takes entry `at` out and frees what is behind it. `mutex` is held. What a pool gets back of it is the caller's to
// say, after the lock.
void remove_entry(Table& t, size_t at) {
  const Allocation gone = t.entries[at];
  publish_erase(t, at);
  if (gone.kind == MemoryKind::kDevice) {
    remember_freed(t, gone.base, gone.bytes);
    DeviceSpace& space = t.devices[gone.device];
    if (gone.pool == nullptr) space.used -= round_up(gone.bytes, kAlign);
    retire_pages(t, gone);
    if (gone.graph) {
      space.graph -= gone.bytes;
      Allocation reserved = gone;
      reserved.kind = MemoryKind::kReserved;
      publish_insert(t, reserved);
    }
  } else if (gone.kind != MemoryKind::kRegistered && gone.kind != MemoryKind::kReserved) {
    remember_freed(t, gone.base, gone.bytes);
    if (gone.kind == MemoryKind::kManaged) t.devices[gone.device].used -= round_up(gone.bytes, kAlign);
    std::free(gone.host);
  }
}

bool has_room(const Table& t, int device, size_t bytes) {
  const size_t capacity = start_settings().device_bytes;
  return bytes <= capacity && round_up(bytes, kAlign) <= capacity - t.devices[device].used;
}

// A free address for `bytes`. `mutex` is held.
bool place(Table& t, int device, size_t bytes, CUdeviceptr* base) {
  CUdeviceptr at = 0;
  if (!find_gap(t, t.devices[device], kRedZone + round_up(bytes, kAlign) + kRedZone, &at)) return false;
  *base = at + kRedZone;
  return true;
}

char* host_of(const Table& t, CUdeviceptr base) {
  return reinterpret_cast<char*>(base) + t.alias_offset;
}

// Puts memory behind `entry` and the entry into the table. `mutex` is held.
bool make(Table& t, const Allocation& entry) {
  const size_t rounded = round_up(entry.bytes, kAlign);
  if (!commit(page_of(entry.host), page_end(entry.host + rounded))) return false;
  poison_around(entry.host, entry.bytes, rounded);
  DeviceSpace& space = t.devices[entry.device];
  if (entry.pool == nullptr) space.used += rounded;
  if (entry.graph) {
    space.graph += entry.bytes;
    space.graph_high = std::max(space.graph_high, space.graph);
  }
  publish_insert(t, entry);
  return true;
}

bool find_entry(const Table& t, CUdeviceptr base, MemoryKind kind, size_t* at) {
  const size_t above = first_above(t.entries, t.count, base);
  if (above == 0 || t.entries[above - 1].base != base || t.entries[above - 1].kind != kind) return false;
  *at = above - 1;
  return true;
}

}  // namespace

CUresult allocate_device(int device, uint64_t context_id, size_t bytes, CUdeviceptr* base, Pool* pool) {
  if (bytes == 0 || base == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Table& t = table();
  Allocation made{};
  {
    const std::lock_guard<std::mutex> lock(t.mutex);
    if (pool == nullptr && !has_room(t, device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!place(t, device, bytes, base)) return CUDA_ERROR_OUT_OF_MEMORY;
    made = {*base, bytes,      host_of(t, *base),  device, MemoryKind::kDevice,
            0,     context_id, t.next_buffer_id++, false,  pool};
    if (!make(t, made)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (bytes <= kFillBytes) std::memset(made.host, 0xFF, bytes);
  return CUDA_SUCCESS;
}

CUresult reserve_device(int device, uint64_t context_id, size_t bytes, CUdeviceptr* base) {
  if (bytes == 0 || base == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  if (bytes > start_settings().device_bytes || !place(t, device, bytes, base)) return CUDA_ERROR_OUT_OF_MEMORY;
  publish_insert(
      t, {*base, bytes, host_of(t, *base), device, MemoryKind::kReserved, 0, context_id, t.next_buffer_id++, true});
  return CUDA_SUCCESS;
}

CUresult activate_reserved(CUdeviceptr base) {
  Table& t = table();
  Allocation made{};
  {
    const std::lock_guard<std::mutex> lock(t.mutex);
    size_t at = 0;
    if (!find_entry(t, base, MemoryKind::kReserved, &at)) return CUDA_ERROR_INVALID_VALUE;
    made = t.entries[at];
    if (!has_room(t, made.device, made.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    publish_erase(t, at);
    made.kind = MemoryKind::kDevice;
    if (!make(t, made)) {
      made.kind = MemoryKind::kReserved;
      publish_insert(t, made);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  if (made.bytes <= kFillBytes) std::memset(made.host, 0xFF, made.bytes);
  return CUDA_SUCCESS;
}

void unreserve(CUdeviceptr base) {
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  size_t at = 0;
  if (find_entry(t, base, MemoryKind::kReserved, &at)) {
    publish_erase(t, at);
  } else if (find_entry(t, base, MemoryKind::kDevice, &at)) {
    t.devices[t.entries[at].device].graph -= t.entries[at].bytes;
    t.entries[at].graph = false;  // freed for good by whoever frees it; readers do not look at this
  }
}

CUresult allocate_host(int device, uint64_t context_id, size_t bytes, MemoryKind kind, unsigned flags, void** base) {
  if (bytes == 0 || base == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  const size_t rounded = round_up(bytes, kAlign);
  if (kind == MemoryKind::kManaged && rounded > start_settings().device_bytes - t.devices[device].used) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  void* host = nullptr;
  if (posix_memalign(&host, kPage, bytes) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (kind == MemoryKind::kManaged) t.devices[device].used += rounded;
  *base = host;
  publish_insert(t, {reinterpret_cast<CUdeviceptr>(host), bytes, static_cast<char*>(host), device, kind, flags,
                     context_id, t.next_buffer_id++});
  return CUDA_SUCCESS;
}

CUresult register_host(int device, uint64_t context_id, void* base, size_t bytes, unsigned flags) {
  if (base == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Table& t = table();
  const auto begin = reinterpret_cast<CUdeviceptr>(base);
  if (begin + bytes < begin) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(t.mutex);
  if (begin < t.space_end && begin + bytes > t.space_begin) return CUDA_ERROR_INVALID_VALUE;
  const size_t above = first_above(t.entries, t.count, begin + bytes - 1);
  if (above > 0 && t.entries[above - 1].base + t.entries[above - 1].bytes > begin) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  publish_insert(t, {begin, bytes, static_cast<char*>(base), device, MemoryKind::kRegistered, flags, context_id,
                     t.next_buffer_id++});
  return CUDA_SUCCESS;
}

CUresult release(CUdeviceptr base, MemoryKind kind) {
  Table& t = table();
  Allocation gone{};
  {
    const std::lock_guard<std::mutex> lock(t.mutex);
    size_t at = 0;
    if (!find_entry(t, base, kind, &at)) {
      return kind == MemoryKind::kRegistered ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE;
    }
    gone = t.entries[at];
    remove_entry(t, at);
  }
  if (gone.pool != nullptr) give_back(*gone.pool, gone.bytes);
  return CUDA_SUCCESS;
}

void release_context(uint64_t context_id) {
  Table& t = table();
  std::vector<Allocation> of_pools;
  {
    const std::lock_guard<std::mutex> lock(t.mutex);
    for (size_t i = t.count; i > 0; --i) {
      if (t.entries[i - 1].context_id != context_id) continue;
      if (t.entries[i - 1].pool != nullptr) of_pools.push_back(t.entries[i - 1]);
      if (t.entries[i - 1].graph && t.entries[i - 1].kind == MemoryKind::kDevice) {
        t.devices[t.entries[i - 1].device].graph -= t.entries[i - 1].bytes;
      }
      t.entries[i - 1].graph = false;
      remove_entry(t, i - 1);
    }
  }
  for (const Allocation& gone : of_pools) give_back(*gone.pool, gone.bytes);
}

HOSTCUDA_NO_TSAN bool find_address(CUdeviceptr p, Allocation* found) {
  return read_at_or_below(p, found) && p - found->base < found->bytes;
}

HOSTCUDA_NO_TSAN bool find_allocation(CUdeviceptr p, Allocation* found) {
  return read_at_or_below(p, found) && p - found->base < found->bytes && found->kind != MemoryKind::kReserved;
}

bool is_device_address(CUdeviceptr p) {
  const Table& t = table();
  return p >= t.space_begin && p < t.space_end;
}

size_t free_bytes(int device) {
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  return start_settings().device_bytes - t.devices[device].used;
}

bool charge(int device, size_t bytes) {
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  if (bytes > start_settings().device_bytes - t.devices[device].used) return false;
  t.devices[device].used += bytes;
  return true;
}

void uncharge(int device, size_t bytes) {
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  t.devices[device].used -= bytes;
}

size_t allocation_bytes(size_t bytes) {
  return round_up(bytes, kAlign);
}

size_t graph_bytes(int device, bool high) {
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  return high ? t.devices[device].graph_high : t.devices[device].graph;
}

void reset_graph_bytes_high(int device) {
  Table& t = table();
  const std::lock_guard<std::mutex> lock(t.mutex);
  t.devices[device].graph_high = t.devices[device].graph;
}

std::string describe(CUdeviceptr p, size_t bytes) {
  Table& t = table();
  char line[256];
  const std::lock_guard<std::mutex> lock(t.mutex);
  const size_t above = first_above(t.entries, t.count, p);
  const Allocation* below = above > 0 ? &t.entries[above - 1] : nullptr;
  if (below != nullptr && p - below->base < below->bytes && below->kind == MemoryKind::kReserved) {
    std::snprintf(line, sizeof line, "%zu bytes at 0x%" PRIx64 " belong to a graph's allocation that is not made now",
                  bytes, static_cast<uint64_t>(p));
    return line;
  }
  if (below != nullptr && p - below->base < below->bytes) {
    if (bytes > below->bytes - (p - below->base)) {
      std::snprintf(line, sizeof line,
                    "%zu bytes at 0x%" PRIx64 " run %" PRIu64 " bytes past the end of the %zu bytes at 0x%" PRIx64,
                    bytes, static_cast<uint64_t>(p), static_cast<uint64_t>(p - below->base + bytes - below->bytes),
                    below->bytes, static_cast<uint64_t>(below->base));
    } else {
      std::snprintf(line, sizeof line, "%zu bytes at 0x%" PRIx64 " belong to device %d, not to the one that runs",
                    bytes, static_cast<uint64_t>(p), below->device);
    }
    return line;
  }
  for (auto it = t.freed.rbegin(); it != t.freed.rend(); ++it) {
    if (p - it->base < it->bytes) {
      std::snprintf(line, sizeof line,
                    "%zu bytes at 0x%" PRIx64 " lie %" PRIu64 " bytes into the %zu bytes at 0x%" PRIx64
                    ", which were freed",
                    bytes, static_cast<uint64_t>(p), static_cast<uint64_t>(p - it->base), it->bytes,
                    static_cast<uint64_t>(it->base));
      return line;
    }
  }
  if (p >= t.space_begin && p < t.space_end) {
    if (below != nullptr && below->kind == MemoryKind::kDevice && p - below->base < below->bytes + kPage) {
      std::snprintf(line, sizeof line,
                    "%zu bytes at 0x%" PRIx64 " begin %" PRIu64 " bytes past the end of the %zu bytes at 0x%" PRIx64,
                    bytes, static_cast<uint64_t>(p), static_cast<uint64_t>(p - below->base - below->bytes),
                    below->bytes, static_cast<uint64_t>(below->base));
    } else {
      std::snprintf(line, sizeof line, "%zu bytes at 0x%" PRIx64 ": device memory that was never allocated", bytes,
                    static_cast<uint64_t>(p));
    }
    return line;
  }
  std::snprintf(line, sizeof line, "%zu bytes at 0x%" PRIx64 ": host memory that was never registered", bytes,
                static_cast<uint64_t>(p));
  return line;
}

}  // namespace hostcuda

using hostcuda::Allocation;

extern "C" {

// May the running operation, a kernel or a product, touch this allocation? Outside an operation: always.
HOSTCUDA_NO_TSAN static bool reachable(const Allocation& a) {
  if (a.kind != hostcuda::MemoryKind::kDevice) return true;
  const hostcuda::Running running = hostcuda::running_now();
  if (running.device < 0 || running.device == a.device) return true;
  if (a.pool != nullptr) return hostcuda::pool_reaches(*a.pool, running.device);
  return running.peers != nullptr && running.peers->contain(a.context_id);
}

HOSTCUDA_NO_TSAN void* hostcuda_view(CUdeviceptr p, size_t bytes, int access) {
  Allocation found;
  if (!hostcuda::read_at_or_below(p, &found)) return nullptr;
  const CUdeviceptr offset = p - found.base;
  if (offset > found.bytes || bytes > found.bytes - offset) return nullptr;
  if (found.kind == hostcuda::MemoryKind::kReserved) return nullptr;
  if ((access & HOSTCUDA_ANY_DEVICE) == 0 && !reachable(found)) return nullptr;
  return found.host + offset;
}

HOSTCUDA_NO_TSAN int hostcuda_range(CUdeviceptr p, HostcudaRange* range) {
  Allocation found;
  if (!hostcuda::find_allocation(p, &found)) return 0;
  range->base = found.base;
  range->bytes = found.bytes;
  range->host = found.host;
  range->device = found.kind != hostcuda::MemoryKind::kDevice ? -1
                  : reachable(found)                          ? hostcuda_running_device()
                                                              : found.device;
  if (range->device < 0 && found.kind == hostcuda::MemoryKind::kDevice) range->device = found.device;
  return 1;
}

HOSTCUDA_NO_TSAN uint64_t hostcuda_memory_epoch(void) {
  return __atomic_load_n(&hostcuda::table().sequence, __ATOMIC_ACQUIRE);
}

ptrdiff_t hostcuda_alias_offset(void) {
  return hostcuda::table().alias_offset;
}

char* hostcuda_describe(CUdeviceptr p, size_t bytes, char* text, size_t capacity) {
  if (capacity > 0) std::snprintf(text, capacity, "%s", hostcuda::describe(p, bytes).c_str());
  return text;
}

}  // extern "C"

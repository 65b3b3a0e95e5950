// SPDX-License-Identifier: MIT
// Finding the untouched functions: see resolve.h. Reads the symbol tables of the loaded objects itself, since dlsym
// would answer for the shim's scope instead of the caller's, and would change dlerror.
#include "shim/resolve.h"

#include <elf.h>
#include <link.h>
#include <sched.h>

#include <cstring>
#include <type_traits>

// The shim's own image, from its ELF header to the end of its data: defined by the linker.
extern "C" {
extern const char __ehdr_start __attribute__((visibility("hidden")));
extern const char _end __attribute__((visibility("hidden")));
}

namespace sdcguard {

thread_local LastHandle t_last_handle __attribute__((tls_model("initial-exec"))) = {nullptr, nullptr, 0};
std::atomic<uint64_t> g_handle_generation{1};

namespace {

// Guards the tables below and the scratch of a walk. Only cold paths take it. A spin lock, since a fork child must be
// able to free one that another thread of the parent held; what such a thread had half written is an entry that nobody
// found.
std::atomic_flag g_lock = ATOMIC_FLAG_INIT;

class Lock {
 public:
  Lock() {
    while (g_lock.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  ~Lock() { g_lock.clear(std::memory_order_release); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

constinit Library g_libraries[kMaxLibraries] = {};  // no constructor runs in every child process
std::atomic<bool> g_library_live[kMaxLibraries];

// handle -> library. A destroyed handle leaves its key with a null library; the slot may then take another handle.
struct HandleSlot {
  std::atomic<void*> handle;
  std::atomic<const Library*> library;
};
constexpr uint32_t kHandleSlots = 1024;
constexpr uint32_t kHandleProbes = 16;
HandleSlot g_handles[kHandleSlots];

// (return address, entry) -> library. Written once; cleared as a whole when a library's slot is taken by another.
struct CallerSlot {
  std::atomic<uint64_t> key;
  std::atomic<const Library*> library;
};
constexpr uint32_t kCallerSlots = 1024;
constexpr uint32_t kCallerProbes = 8;
CallerSlot g_callers[kCallerSlots];

uint64_t mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

// ---- loaded objects ---------------------------------------------------------------------------------------------

struct Object {
  const char* name;  // "" for the main program
  uintptr_t base;
  const ElfW(Phdr) * headers;
  uint16_t header_count;
  const ElfW(Sym) * symbols;
  const char* strings;
  const uint32_t* gnu_hash;
  const uint32_t* sysv_hash;
  const ElfW(Half) * versions;
  const char* soname;    // null: none
  const char* basename;  // of `name`
  const ElfW(Dyn) * dynamic;
  bool visited;
};

// Filled and read with g_lock held and, inside walk(), with the loader's list locked too.
constexpr uint32_t kMaxObjects = 2048;
Object g_objects[kMaxObjects];
uint32_t g_object_count;

// The closure of an object: itself and what it was linked to, breadth first as the loader searches.
uint16_t g_closure[kMaxObjects];
uint32_t g_closure_count;

bool contains(const Object& object, uintptr_t address) {
  for (uint16_t i = 0; i < object.header_count; ++i) {
    const ElfW(Phdr)& header = object.headers[i];
    if (header.p_type != PT_LOAD) continue;
    const uintptr_t start = object.base + header.p_vaddr;
    if (address >= start && address < start + header.p_memsz) return true;
  }
  return false;
}

int collect(dl_phdr_info* info, size_t, void*) {
  if (g_object_count == kMaxObjects) return 1;
  Object object{};
  object.name = info->dlpi_name != nullptr ? info->dlpi_name : "";
  object.base = info->dlpi_addr;
  object.headers = info->dlpi_phdr;
  object.header_count = info->dlpi_phnum;
  for (uint16_t i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
      object.dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
  }
  if (object.dynamic != nullptr) {
    for (const ElfW(Dyn)* entry = object.dynamic; entry->d_tag != DT_NULL; ++entry) {
      // The loader relocates these in place, except in objects whose dynamic section is read-only (the vDSO).
      const uintptr_t value = entry->d_un.d_ptr;
      const uintptr_t address = value < object.base ? value + object.base : value;
      if (entry->d_tag == DT_SYMTAB) object.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
      if (entry->d_tag == DT_STRTAB) object.strings = reinterpret_cast<const char*>(address);
      if (entry->d_tag == DT_GNU_HASH) object.gnu_hash = reinterpret_cast<const uint32_t*>(address);
      if (entry->d_tag == DT_HASH) object.sysv_hash = reinterpret_cast<const uint32_t*>(address);
      if (entry->d_tag == DT_VERSYM) object.versions = reinterpret_cast<const ElfW(Half)*>(address);
    }
  }
  const char* slash = strrchr(object.name, '/');
  object.basename = slash != nullptr ? slash + 1 : object.name;
  if (object.dynamic != nullptr && object.strings != nullptr) {
    for (const ElfW(Dyn)* entry = object.dynamic; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SONAME) object.soname = object.strings + entry->d_un.d_val;
    }
  }
  g_objects[g_object_count++] = object;
  return 0;
}

bool defines(const Object& object, uint32_t index, const char* name) {
  const ElfW(Sym)& symbol = object.symbols[index];
  const unsigned type = ELF64_ST_TYPE(symbol.st_info);
  if (symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_NOTYPE)) return false;
  constexpr ElfW(Half) kHiddenVersion = 0x8000;  // an old, non-default version
  if (object.versions != nullptr && (object.versions[index] & kHiddenVersion) != 0) return false;
  return strcmp(object.strings + symbol.st_name, name) == 0;
}

void* find_symbol(const Object& object, const char* name) {
  if (object.symbols == nullptr || object.strings == nullptr) return nullptr;
  if (object.gnu_hash != nullptr) {
    uint32_t hash = 5381;
    for (const char* c = name; *c != 0; ++c) hash = hash * 33 + static_cast<uint8_t>(*c);
    const uint32_t bucket_count = object.gnu_hash[0];
    const uint32_t first = object.gnu_hash[1];
    const uint32_t bloom_words = object.gnu_hash[2];
    const uint32_t bloom_shift = object.gnu_hash[3];
    const auto* bloom = reinterpret_cast<const uint64_t*>(object.gnu_hash + 4);
    const auto* buckets = reinterpret_cast<const uint32_t*>(bloom + bloom_words);
    const uint32_t* chain = buckets + bucket_count;
    const uint64_t word = bloom[hash / 64 % bloom_words];
    if (((word >> (hash % 64)) & (word >> ((hash >> bloom_shift) % 64)) & 1) == 0) return nullptr;
    uint32_t index = buckets[hash % bucket_count];
    if (index < first) return nullptr;
    for (;; ++index) {
      const uint32_t entry = chain[index - first];
      if ((entry | 1) == (hash | 1) && defines(object, index, name)) {
        return reinterpret_cast<void*>(object.base + object.symbols[index].st_value);
      }
      if ((entry & 1) != 0) return nullptr;
    }
  }
  if (object.sysv_hash != nullptr) {
    uint32_t hash = 0;
    for (const char* c = name; *c != 0; ++c) {
      hash = (hash << 4) + static_cast<uint8_t>(*c);
      const uint32_t high = hash & 0xf0000000u;
      hash = (hash ^ (high >> 24)) & ~high;
    }
    const uint32_t bucket_count = object.sysv_hash[0];
    const uint32_t* buckets = object.sysv_hash + 2;
    const uint32_t* chain = buckets + bucket_count;
    for (uint32_t index = buckets[hash % bucket_count]; index != 0; index = chain[index]) {
      if (defines(object, index, name)) {
        return reinterpret_cast<void*>(object.base + object.symbols[index].st_value);
      }
    }
  }
  return nullptr;
}

bool is_named(const Object& object, const char* needed) {
  if (object.soname != nullptr && strcmp(object.soname, needed) == 0) return true;
  return strcmp(object.basename, needed) == 0 || strcmp(object.name, needed) == 0;
}

// The index of the object that holds `address`, or -1.
int object_of(uintptr_t address) {
  for (uint32_t i = 0; i < g_object_count; ++i) {
    if (contains(g_objects[i], address)) return static_cast<int>(i);
  }
  return -1;
}

int own_object() {
  return object_of(reinterpret_cast<uintptr_t>(&g_objects));
}

void find_closure(uint32_t root) {
  for (uint32_t i = 0; i < g_object_count; ++i) g_objects[i].visited = false;
  g_closure_count = 0;
  g_closure[g_closure_count++] = static_cast<uint16_t>(root);
  g_objects[root].visited = true;
  for (uint32_t head = 0; head < g_closure_count; ++head) {
    const Object& object = g_objects[g_closure[head]];
    if (object.dynamic == nullptr || object.strings == nullptr) continue;
    for (const ElfW(Dyn)* entry = object.dynamic; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag != DT_NEEDED) continue;
      for (uint32_t i = 0; i < g_object_count; ++i) {
        if (!is_named(g_objects[i], object.strings + entry->d_un.d_val)) continue;
        if (!g_objects[i].visited) g_closure[g_closure_count++] = static_cast<uint16_t>(i);
        g_objects[i].visited = true;
        break;
      }
    }
  }
}

// The first definition of `name` in the closure last found, the shim left out.
void* find_in_closure(const char* name, int* where) {
  const int own = own_object();
  for (uint32_t i = 0; i < g_closure_count; ++i) {
    if (static_cast<int>(g_closure[i]) == own) continue;
    if (void* found = find_symbol(g_objects[g_closure[i]], name)) {
      if (where != nullptr) *where = g_closure[i];
      return found;
    }
  }
  return nullptr;
}

// Runs `body` with g_objects filled and the loader's list locked (dl_iterate_phdr's lock is recursive).
template <class Body>
void walk(Body& body) {
  dl_iterate_phdr(
      [](dl_phdr_info*, size_t, void* data) {
        g_object_count = 0;
        dl_iterate_phdr(collect, nullptr);
        (*static_cast<Body*>(data))();
        return 1;
      },
      &body);
}

// ---- libraries --------------------------------------------------------------------------------------------------

bool is_loaded(const Library& library) {
  for (uint32_t i = 0; i < g_object_count; ++i) {
    if (g_objects[i].base == library.base && strncmp(g_objects[i].name, library.name, sizeof(library.name) - 1) == 0) {
      return true;
    }
  }
  return false;
}

// The Library of object `index`, which defines entry's function at `real`. Inside walk() only.
const Library* library_of_object(uint32_t index, Entry entry, const void* real) {
  const Object& object = g_objects[index];
  uint32_t slot = kMaxLibraries;
  for (uint32_t i = 0; i < kMaxLibraries; ++i) {
    const Library& library = g_libraries[i];
    const bool live = g_library_live[i].load(std::memory_order_relaxed);
    if (live && library.base == object.base && strncmp(library.name, object.name, sizeof(library.name) - 1) == 0 &&
        real_function(library, entry) == real) {
      return &library;
    }
    if (slot == kMaxLibraries && (!live || !is_loaded(library))) slot = i;
  }
  if (slot == kMaxLibraries) return nullptr;
  if (g_library_live[slot].load(std::memory_order_relaxed)) {
    // The object of this slot was unloaded: no valid call can come through it any more. Forget what points here.
    g_library_live[slot].store(false, std::memory_order_release);
    for (CallerSlot& caller : g_callers) caller.key.store(0, std::memory_order_release);
    for (HandleSlot& handle : g_handles) {
      if (handle.library.load(std::memory_order_relaxed) == &g_libraries[slot]) {
        handle.library.store(nullptr, std::memory_order_release);
      }
    }
    g_handle_generation.fetch_add(1, std::memory_order_acq_rel);
  }
  Library& library = g_libraries[slot];
  memset(static_cast<void*>(&library), 0, sizeof(library));
  library.base = object.base;
  strncpy(library.name, object.name, sizeof(library.name) - 1);
  library.slot = slot;
  find_closure(index);
  for (uint32_t i = 0; i < kEntryCount; ++i) library.real[i] = find_in_closure(kEntryNames[i], nullptr);
  library.real[static_cast<uint32_t>(entry)] = const_cast<void*>(real);
  auto helper = [](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find_in_closure(name, nullptr));
  };
  helper(library.get_stream, "cublasGetStream_v2");
  helper(library.get_pointer_mode, "cublasGetPointerMode_v2");
  helper(library.get_math_mode, "cublasGetMathMode");
  helper(library.desc_get, "cublasLtMatmulDescGetAttribute");
  helper(library.desc_set, "cublasLtMatmulDescSetAttribute");
  helper(library.desc_init, "cublasLtMatmulDescInit_internal");
  helper(library.layout_get, "cublasLtMatrixLayoutGetAttribute");
  helper(library.layout_set, "cublasLtMatrixLayoutSetAttribute");
  helper(library.layout_init, "cublasLtMatrixLayoutInit_internal");
  helper(library.preference_init, "cublasLtMatmulPreferenceInit_internal");
  helper(library.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  helper(library.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  helper(library.lt_version, "cublasLtGetVersion");
  library.forwards = library.get_stream == nullptr && library.desc_get == nullptr;
  g_library_live[slot].store(true, std::memory_order_release);
  return &library;
}

const Library* find_by_caller(Entry entry, const void* return_address) {
  const Library* library = nullptr;
  auto body = [&] {
    const char* name = name_of(entry);
    const int own = own_object();
    const int caller = object_of(reinterpret_cast<uintptr_t>(return_address));
    int where = -1;
    void* real = nullptr;
    if (caller > 0 && caller != own) {
      find_closure(static_cast<uint32_t>(caller));
      real = find_in_closure(name, &where);
    }
    for (uint32_t step = 1; real == nullptr && own >= 0 && step < g_object_count; ++step) {
      where = static_cast<int>((static_cast<uint32_t>(own) + step) % g_object_count);
      real = find_symbol(g_objects[where], name);
    }
    if (real != nullptr) library = library_of_object(static_cast<uint32_t>(where), entry, real);
  };
  walk(body);
  return library;
}

const Library* library_of_handle(void* handle) {
  const uint32_t start = static_cast<uint32_t>(mix(reinterpret_cast<uintptr_t>(handle)));
  for (uint32_t probe = 0; probe < kHandleProbes; ++probe) {
    const HandleSlot& slot = g_handles[(start + probe) % kHandleSlots];
    void* key = slot.handle.load(std::memory_order_acquire);  // pairs with the store in remember_handle
    if (key == handle) return slot.library.load(std::memory_order_acquire);
    if (key == nullptr) return nullptr;
  }
  return nullptr;
}

uint64_t caller_key(Entry entry, const void* return_address) {
  // User-space addresses end below bit 57; + 1 keeps the key of entry 0 apart from an empty slot.
  return reinterpret_cast<uintptr_t>(return_address) ^ ((static_cast<uint64_t>(entry) + 1) << 57);
}

}  // namespace

const Library* library_at(uint32_t slot) noexcept {
  if (slot >= kMaxLibraries || !g_library_live[slot].load(std::memory_order_acquire)) return nullptr;
  return &g_libraries[slot];
}

const Library* find_library_of_call(Entry entry, void* handle, const void* return_address) noexcept {
  const uint64_t generation = g_handle_generation.load(std::memory_order_acquire);
  if (handle != nullptr) {
    const Library* library = library_of_handle(handle);
    if (library != nullptr && real_function(*library, entry) != nullptr) {
      t_last_handle = {handle, library, generation};
      return library;
    }
  }
  const uint64_t key = caller_key(entry, return_address);
  const uint32_t start = static_cast<uint32_t>(mix(key));
  for (uint32_t probe = 0; probe < kCallerProbes; ++probe) {
    const CallerSlot& slot = g_callers[(start + probe) % kCallerSlots];
    const uint64_t found = slot.key.load(std::memory_order_acquire);  // pairs with the store below
    if (found == key) return slot.library.load(std::memory_order_relaxed);
    if (found == 0) break;
  }
  const Lock lock;
  const Library* library = find_by_caller(entry, return_address);
  if (library == nullptr) return nullptr;
  for (uint32_t probe = 0; probe < kCallerProbes; ++probe) {
    CallerSlot& slot = g_callers[(start + probe) % kCallerSlots];
    if (slot.key.load(std::memory_order_relaxed) != 0) continue;
    slot.library.store(library, std::memory_order_relaxed);
    slot.key.store(key, std::memory_order_release);
    break;
  }
  return library;
}

void* next_definition(const char* name, const void* return_address) noexcept {
  void* found = nullptr;
  auto body = [&] {
    const int caller = object_of(reinterpret_cast<uintptr_t>(return_address));
    if (caller < 0) return;
    for (uint32_t i = static_cast<uint32_t>(caller) + 1; found == nullptr && i < g_object_count; ++i) {
      found = find_symbol(g_objects[i], name);
    }
    if (found == nullptr) {
      int where = -1;
      find_closure(static_cast<uint32_t>(caller));
      void* linked = find_in_closure(name, &where);
      if (where != caller) found = linked;
    }
  };
  const Lock lock;
  walk(body);
  return found;
}

void* linked_definition(const char* name, const void* return_address) noexcept {
  void* found = nullptr;
  auto body = [&] {
    const int caller = object_of(reinterpret_cast<uintptr_t>(return_address));
    if (caller < 0) return;
    find_closure(static_cast<uint32_t>(caller));
    found = find_in_closure(name, nullptr);
  };
  const Lock lock;
  walk(body);
  return found;
}

bool find_in_loaded(const char* soname, const char* const* names, void** functions, uint32_t count) noexcept {
  bool loaded = false;
  auto body = [&] {
    for (uint32_t i = 0; !loaded && i < g_object_count; ++i) {
      if (!is_named(g_objects[i], soname)) continue;
      loaded = true;
      for (uint32_t k = 0; k < count; ++k) functions[k] = find_symbol(g_objects[i], names[k]);
    }
  };
  const Lock lock;
  walk(body);
  return loaded;
}

bool is_own_code(const void* address) noexcept {
  const auto value = reinterpret_cast<uintptr_t>(address);
  return value >= reinterpret_cast<uintptr_t>(&__ehdr_start) && value < reinterpret_cast<uintptr_t>(&_end);
}

const Library* library_of_function(Entry entry, const void* real) noexcept {
  const Library* library = nullptr;
  auto body = [&] {
    const int index = object_of(reinterpret_cast<uintptr_t>(real));
    if (index >= 0 && index != own_object()) library = library_of_object(static_cast<uint32_t>(index), entry, real);
  };
  const Lock lock;
  walk(body);
  return library;
}

void remember_handle(void* handle, const Library* library) noexcept {
  if (handle == nullptr) return;
  const Lock lock;
  const uint32_t start = static_cast<uint32_t>(mix(reinterpret_cast<uintptr_t>(handle)));
  HandleSlot* free_slot = nullptr;
  for (uint32_t probe = 0; probe < kHandleProbes; ++probe) {
    HandleSlot& slot = g_handles[(start + probe) % kHandleSlots];
    void* key = slot.handle.load(std::memory_order_relaxed);
    if (key == handle) {
      free_slot = &slot;
      break;
    }
    if (free_slot == nullptr && slot.library.load(std::memory_order_relaxed) == nullptr) free_slot = &slot;
    if (key == nullptr) break;
  }
  if (free_slot != nullptr) {  // else every call with this handle is resolved by its caller
    free_slot->library.store(nullptr, std::memory_order_release);
    free_slot->handle.store(handle, std::memory_order_release);
    free_slot->library.store(library, std::memory_order_release);
  }
  g_handle_generation.fetch_add(1, std::memory_order_acq_rel);
}

void forget_handle(void* handle) noexcept {
  if (handle == nullptr) return;
  const Lock lock;
  const uint32_t start = static_cast<uint32_t>(mix(reinterpret_cast<uintptr_t>(handle)));
  for (uint32_t probe = 0; probe < kHandleProbes; ++probe) {
    HandleSlot& slot = g_handles[(start + probe) % kHandleSlots];
    if (slot.handle.load(std::memory_order_relaxed) == handle) slot.library.store(nullptr, std::memory_order_release);
  }
  g_handle_generation.fetch_add(1, std::memory_order_acq_rel);
}

void resolve_forget_after_fork() noexcept {
  g_lock.clear(std::memory_order_release);
}

}  // namespace sdcguard

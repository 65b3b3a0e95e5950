// SPDX-License-Identifier: MIT
// Finding the untouched functions: one Library for each cuBLAS or cuBLASLt object in the process (two majors can live
// side by side), reached by handle, by the caller's own object, or by the slot of the wrapper that a dlsym caller was
// given.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/cublas_abi.h"
#include "shim/entry.h"

namespace sdcguard {

// Attribute ids that this library's descriptors know and the shim does not interpret, with the bytes that a new
// descriptor has there. A caller's descriptor that differs in one of them is not understood.
struct AttributeDefault {
  uint8_t id;
  uint8_t bytes;
  uint8_t value[16];
};

struct AttributeDefaults {
  bool known;  // false: this library's descriptors cannot be judged
  uint32_t desc_count;
  uint32_t layout_count;
  AttributeDefault desc[64];
  AttributeDefault layout[32];
};

// One shared object that defines intercepted functions. Filled once under a lock, published with release, never freed
// (handles and returned function pointers may outlive everything). A function that the object lacks is null.
// Functions are looked up in the object and then in what it was linked to: for libcublas the Lt functions are those of
// its own cuBLASLt, so a cublasHandle_t passed to cublasLtMatmul finds its own major.
struct Library {
  void* real[kEntryCount];  // the untouched functions
  uintptr_t base;           // load address of the object
  char name[256];           // its path, cut
  uint32_t slot;            // index in the table of libraries, and of the wrappers made for it
  // No cuBLAS, but definitions of some of its names that pass them on (CTranslate2): it can be asked nothing about a
  // handle or a descriptor. Its calls go to it unseen; what it passes them on to is seen.
  bool forwards;

  abi::GetStreamFn get_stream;  // cublasGetStream_v2
  abi::GetIntFn get_pointer_mode;
  abi::GetIntFn get_math_mode;
  abi::DescGetFn desc_get;  // cublasLtMatmulDescGetAttribute
  abi::DescSetFn desc_set;
  abi::DescInitFn desc_init;
  abi::DescGetFn layout_get;
  abi::DescSetFn layout_set;
  abi::LayoutInitFn layout_init;
  abi::PreferenceInitFn preference_init;
  abi::DescSetFn preference_set;
  abi::HeuristicFn heuristic;
  size_t (*lt_version)();  // cublasLtGetVersion

  mutable std::atomic<const AttributeDefaults*> attributes;  // made by attribute_defaults(), null before, never freed
};

inline constexpr uint32_t kMaxLibraries = 8;

inline void* real_function(const Library& library, Entry entry) {
  return library.real[static_cast<uint32_t>(entry)];
}

// A thread's last handle, valid while `generation` is the process's: creation and destruction of handles move it on.
struct LastHandle {
  void* handle;
  const Library* library;
  uint64_t generation;
};
extern thread_local LastHandle t_last_handle __attribute__((tls_model("initial-exec"), visibility("hidden")));
extern std::atomic<uint64_t> g_handle_generation __attribute__((visibility("hidden")));

// The library at a slot, or null when the slot is empty.
const Library* library_at(uint32_t slot) noexcept;

// The library of a call, or null when no object of the process defines `entry`.
// Order: the library that `handle` was created by; the caller's own object and what it was linked to (found from
// `return_address`, cached by it); the objects after the shim in load order, which is RTLD_NEXT for the main program;
// any other. Never the shim itself. Walks the loaded objects' own symbol tables: dlerror and errno stay as they are.
const Library* find_library_of_call(Entry entry, void* handle, const void* return_address) noexcept;

// The same with the thread's last handle tried first: one load and two compares.
inline const Library* library_of_call(Entry entry, void* handle, const void* return_address) noexcept {
  const LastHandle& last = t_last_handle;
  if (__builtin_expect(handle == last.handle && last.library != nullptr &&
                           last.generation == g_handle_generation.load(std::memory_order_acquire) &&
                           real_function(*last.library, entry) != nullptr,
                       1)) {
    return last.library;
  }
  return find_library_of_call(entry, handle, return_address);
}

// What dlsym(RTLD_NEXT, name) by the code at `return_address` finds: the first object after the caller's that defines
// `name`, else one that the caller was linked to. May be the shim's own function. Null: none.
void* next_definition(const char* name, const void* return_address) noexcept;

// A definition of `name` among what the object of `return_address` was linked to, the shim left out. Null: none.
void* linked_definition(const char* name, const void* return_address) noexcept;

// Addresses of `count` names in the loaded object of that soname, null where it lacks one. False: no such object is
// loaded. For libraries that the shim uses without linking them; unlike dlopen and dlsym it leaves dlerror alone.
bool find_in_loaded(const char* soname, const char* const* names, void** functions, uint32_t count) noexcept;

// Whether `address` lies in the shim itself.
bool is_own_code(const void* address) noexcept;

// The library that defines `real`, made known if it is new. Null when the table is full or `real` is in no object.
const Library* library_of_function(Entry entry, const void* real) noexcept;

// Handles, learnt at creation. A handle value may be used again by another library: forget at destruction.
void remember_handle(void* handle, const Library* library) noexcept;
void forget_handle(void* handle) noexcept;

// Run in a fork child: locks that the parent may have held are made free.
void resolve_forget_after_fork() noexcept;

}  // namespace sdcguard

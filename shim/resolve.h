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

// Attribute ids of a matmul descriptor that this library knows and the shim does not interpret, with the bytes that a
// new descriptor has there. A caller's descriptor that differs in one of them is not understood.
struct AttributeDefault {
  uint8_t id;
  uint8_t bytes;
  uint8_t value[16];
};

// One shared object that defines intercepted functions. Filled once under a lock, published with release, never freed
// (handles and returned function pointers may outlive everything). A function that the object lacks is null.
// For libcublas the Lt functions are those of the cuBLASLt it was linked to, so a cublasHandle_t passed to
// cublasLtMatmul finds its own major.
struct Library {
  void* real[kEntryCount];      // the untouched functions
  void* object;                 // link map of the defining object
  const void* base;             // load address
  char name[256];               // path, cut
  uint32_t slot;                // index in the table of libraries and of the wrappers made for it
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
  size_t (*version)();  // cublasGetCudartVersion-like; null where absent. cublasLtGetVersion.
  AttributeDefault defaults[64];
  uint32_t default_count;
  bool attributes_probed;  // false: this object's descriptors cannot be read, every Lt call is passed through
};

inline constexpr uint32_t kMaxLibraries = 8;

inline void* real_function(const Library& library, Entry entry) {
  return library.real[static_cast<uint32_t>(entry)];
}

// The library of a call, or null when no object in the caller's reach defines `entry`.
// Order: the library that `handle` was created by; the caller's own object (found from `return_address`, cached);
// RTLD_NEXT for the main program; an object that is loaded anywhere. Never the shim itself. errno and dlerror are kept.
const Library* library_of_call(Entry entry, void* handle, const void* return_address) noexcept;

// The library that defines `real`, made known if it is new. Null when the table is full or `real` is in no object.
const Library* library_of_function(const void* real) noexcept;

// Handles, learnt at creation. A handle value may be used again by another library: forget at destruction.
void remember_handle(void* handle, const Library* library) noexcept;
void forget_handle(void* handle) noexcept;

// The caller of an intercepted name through dlsym gets this: the wrapper bound to `library`.
void* wrapper_for(Entry entry, const Library* library) noexcept;  // defined in intercept.cpp

// Real dlsym of the C library. Found without allocation; callable before any constructor has run.
using DlsymFn = void* (*)(void*, const char*);
DlsymFn real_dlsym() noexcept;

// Run in a fork child: locks that the parent may have held are made free.
void resolve_forget_after_fork() noexcept;

}  // namespace sdcguard

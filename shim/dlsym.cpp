// SPDX-License-Identifier: MIT
// What the exported dlsym (dlsym.S) answers for an intercepted name: the untouched function is looked up as the caller
// asked, and the wrapper bound to its library is returned. NULL stays NULL.
#include <dlfcn.h>

#include "shim/intercept.h"
#include "shim/resolve.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SDCGUARD_BEFORE_START __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define SDCGUARD_BEFORE_START
#endif

namespace sdcguard {

namespace {

using DlsymFn = void* (*)(void*, const char*);

// Zero-initialised: usable before any constructor. Read and written by builtins: std::atomic's members would be
// instrumented functions of their own.
DlsymFn g_real_dlsym;

// The C library's dlsym, or that of an interposer behind us. Null: none found.
SDCGUARD_BEFORE_START DlsymFn real_dlsym() {
  DlsymFn real = __atomic_load_n(&g_real_dlsym, __ATOMIC_RELAXED);
  if (real != nullptr) return real;
  const char* const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  for (int i = 0; i < 3 && real == nullptr; ++i) {
    real = reinterpret_cast<DlsymFn>(dlvsym(RTLD_NEXT, "dlsym", versions[i]));
  }
  __atomic_store_n(&g_real_dlsym, real, __ATOMIC_RELAXED);
  return real;
}

// Equality without a libc call: sanitizers intercept strcmp, and ask for their real functions through here.
SDCGUARD_BEFORE_START bool equal(const char* x, const char* y) {
  for (; *x == *y; ++x, ++y) {
    if (*x == 0) return true;
  }
  return false;
}

SDCGUARD_BEFORE_START bool find_entry(const char* name, Entry* entry) {
  if (name == nullptr) return false;
  const char prefix[] = "cublas";
  for (int i = 0; i < 6; ++i) {
    if (name[i] != prefix[i]) return false;
  }
  for (uint32_t i = 0; i < kEntryCount; ++i) {
    if (equal(name, kEntryNames[i])) {
      *entry = static_cast<Entry>(i);
      return true;
    }
  }
  return false;
}

// The caller's look-up with the shim taken out of the way. The last dlsym made decides what dlerror says, as it would
// without us: a success leaves none, a failure names the symbol.
void* look_up(DlsymFn real, void* handle, Entry entry, const void* return_address) {
  const char* name = name_of(entry);
  void* found = nullptr;
  if (handle == RTLD_NEXT) {
    // Only the caller's own call would be answered for the caller's scope; this one would be for ours.
    found = next_definition(name, return_address);
    if (found != nullptr && is_own_code(found)) {
      found = nullptr;
      handle = RTLD_DEFAULT;  // what comes after the shim
    } else if (found != nullptr) {
      dlerror();
      return found;
    }
  } else {
    found = real(handle, name);
  }
  if (found != nullptr && !is_own_code(found)) return found;
  // The shim stands first in the global scope: ask for what is behind it, then in what the caller was linked to.
  if (found != nullptr || handle == RTLD_DEFAULT) {
    found = real(RTLD_NEXT, name);
    if (found == nullptr) {
      found = linked_definition(name, return_address);
      if (found != nullptr) dlerror();
    }
  } else if (handle == RTLD_NEXT) {
    real(RTLD_NEXT, name);  // for its message
  }
  return found;
}

}  // namespace

struct DlsymAnswer {
  void* jump;
  void* value;
};

extern "C" __attribute__((visibility("hidden"))) SDCGUARD_BEFORE_START DlsymAnswer
sdcguard_dlsym(void* handle, const char* name, const void* return_address) {
  const DlsymFn real = real_dlsym();
  Entry entry;
  if (real == nullptr || !find_entry(name, &entry)) return {reinterpret_cast<void*>(real), nullptr};
  void* found = look_up(real, handle, entry, return_address);
  if (found == nullptr) return {nullptr, nullptr};
  const Library* library = library_of_function(entry, found);
  // No slot left: the caller gets the untouched function, unguarded but right.
  return {nullptr, library != nullptr ? wrapper_for(entry, *library) : found};
}

}  // namespace sdcguard

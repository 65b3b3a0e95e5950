// SPDX-License-Identifier: MIT
// A plugin for the routes program: calls cuBLAS by name. Built three times: linked to cuBLAS; with hidden definitions
// of the names (ROUTE_VISIBILITY="hidden"); with visible ones ("default").
#include "entry_call.h"
//
#ifdef ROUTE_VISIBILITY
#include "route_definitions.h"
#endif
#include <dlfcn.h>

#include "route_names.h"

#define ROUTE_EXPORT extern "C" __attribute__((visibility("default")))

ROUTE_EXPORT int plugin_call(const char* symbol) {
  return call_entry(symbol, by_name);
}

// dlsym as this library: glibc tells the caller by the return address.
ROUTE_EXPORT void* plugin_next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  __asm__ volatile("" ::: "memory");
  return found;
}
ROUTE_EXPORT void* plugin_default(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  __asm__ volatile("" ::: "memory");
  return found;
}

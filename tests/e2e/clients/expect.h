// SPDX-License-Identifier: MIT
// What the client programs share: a check that names its line, and how they ask the recorder in the preloaded shim.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define EXPECT(condition)                                                           \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

// A function of the recorder. Null without the recording shim.
template <class Function>
Function* recorder(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

inline int guarded_calls() {
  auto* function = recorder<int()>("routes_guarded_calls");
  return function != nullptr ? function() : -1;
}

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

// Whether the recorder counted `expected` of what `name` counts. Under the shipped shim there is no recorder to ask,
// and the test reads the ring instead; ROUTES_RECORDER=1 says that there must be one.
inline bool counted(const char* name, int expected) {
  auto* function = recorder<int()>(name);
  if (function == nullptr) return getenv("ROUTES_RECORDER") == nullptr;
  return function() == expected;
}

inline bool guarded(int expected) {
  return counted("routes_guarded_calls", expected);
}

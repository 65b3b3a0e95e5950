// SPDX-License-Identifier: MIT
// What differs between the majors of a library that come from the same objects: numbers, one definition a major.
#pragma once

#include <cstdint>

namespace hostcuda {

extern const int kCublasVersion;
extern const int kCudartVersion;
// In every handle: a handle of one major is none to the other.
extern const uint64_t kHandleMagic;

}  // namespace hostcuda

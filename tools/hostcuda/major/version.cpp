// SPDX-License-Identifier: MIT
// The numbers of one major, HOSTCUDA_MAJOR: compiled once for each.
#include "tools/hostcuda/major/version.h"

namespace hostcuda {

#if HOSTCUDA_MAJOR == 13
const int kCublasVersion = 130100;  // of the headers: 13.1.0
const int kCudartVersion = 13000;
#elif HOSTCUDA_MAJOR == 12
const int kCublasVersion = 120903;  // 12.9.3, whose names symbols.def marks
const int kCudartVersion = 12090;
#else
#error "HOSTCUDA_MAJOR: 12 or 13"
#endif
const uint64_t kHandleMagic = 0x5344434755415200 + HOSTCUDA_MAJOR;  // "SDCGUAR" and the major

}  // namespace hostcuda

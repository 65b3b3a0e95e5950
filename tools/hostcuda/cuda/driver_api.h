// SPDX-License-Identifier: MIT
// The driver functions' own bodies: one in namespace hostcuda::driver for each line of driver_calls.def, with the
// signature that cuda.h gives the exported name. The exported wrappers (exports.cpp) count, trace and fail calls around
// them. Include this before anything else that includes cuda.h: it asks for the declarations of every version.
#pragma once

#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>

#include "tools/hostcuda/core.h"

namespace hostcuda::driver {

#define HOSTCUDA_CALL(name, parameters, arguments) CUresult name parameters;
#define HOSTCUDA_CALL_PTSZ(name, parameters, arguments)
#define HOSTCUDA_CALL_PTDS(name, parameters, arguments)
#include "tools/hostcuda/cuda/driver_calls.def"
#undef HOSTCUDA_CALL
#undef HOSTCUDA_CALL_PTSZ
#undef HOSTCUDA_CALL_PTDS

}  // namespace hostcuda::driver

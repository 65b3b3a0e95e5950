// SPDX-License-Identifier: MIT
// What a driver function does that the host device does not have.
#pragma once

namespace hostcuda {

// Says on stderr that `name` is not part of the host device, once for each `said` (0 at first), and only where
// HOSTCUDA_VERBOSE is set to anything but 0. `caller` is the stub's return address, for HOSTCUDA_FAIL and
// HOSTCUDA_SHIM_LOG. Returns CUDA_ERROR_NOT_SUPPORTED, or what HOSTCUDA_FAIL has in store. Thread-safe.
int refuse_stub(const char* name, int* said, const void* caller);

}  // namespace hostcuda

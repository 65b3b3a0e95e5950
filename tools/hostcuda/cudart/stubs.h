// SPDX-License-Identifier: MIT
// What a runtime function does that the host device does not have.
#pragma once

namespace hostcuda {

// Says on stderr that `name` is not part of the host device, once for each `said` (0 at first), and only where
// HOSTCUDA_VERBOSE is set to anything but 0. Returns cudaErrorNotSupported, remembered as the thread's last error.
int refuse_runtime_stub(const char* name, int* said);

}  // namespace hostcuda

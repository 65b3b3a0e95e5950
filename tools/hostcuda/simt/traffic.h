// SPDX-License-Identifier: MIT
// Bytes moved per kernel and allocation: launches add, tests read through executor.h.
#pragma once

#include "tools/hostcuda/simt/executor.h"

namespace hostcuda {

// From any thread; nothing is allocated. `kernel` outlives the process's use of hostcuda_traffic.
void traffic_add(const char* kernel, const HostRange& range);

}  // namespace hostcuda

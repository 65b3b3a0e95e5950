// SPDX-License-Identifier: MIT
// What other files need of contexts beyond engine.h: priorities, and the runtime's way to a context.
#pragma once

#include "tools/hostcuda/cuda/engine.h"

namespace hostcuda {

// Stream priorities as a recent data-centre device reports them: 0 is the lowest.
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;

// The context behind a handle or an id, null: none that is alive. Engine::mutex is held for these.
std::shared_ptr<Context> find_context(CUcontext handle);
std::shared_ptr<Context> find_context_by_id(uint64_t id);
// The primary context of a device, made if it is not there. CUDA_ERROR_INVALID_DEVICE.
CUresult primary_context(int device, std::shared_ptr<Context>* context);

// hostcuda_use_device.
CUresult use_device(int ordinal);

// The device that the runtime reports as current: that of the current context, else the one last chosen.
int device_for_runtime();

void stop_at_exit();

}  // namespace hostcuda

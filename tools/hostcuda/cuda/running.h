// SPDX-License-Identifier: MIT
// What the calling thread is running for the device right now: set by a stream's worker around each operation, read by
// memory checks, fault messages and the rule that an operation may not call the driver.
#pragma once

#include <atomic>

#include <cuda.h>

namespace hostcuda {

struct Running {
  const char* name;               // null: the thread is running nothing for the device
  int device;                     // -1 outside an operation
  std::atomic<CUresult>* sticky;  // the context's sticky error
};

// Both are outside TSan's view: the worker writes, its stream's fiber reads, on one thread.
void set_running(const Running& running);
Running running_now();

}  // namespace hostcuda

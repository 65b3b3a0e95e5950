// SPDX-License-Identifier: MIT
// What the calling thread is running for the device right now: set by a stream's worker around each operation, read by
// memory checks, fault messages and the rule that an operation may not call the driver.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

namespace hostcuda {

// Contexts whose memory the work of one context may touch beside its own device's (cuCtxEnablePeerAccess). Lock-free.
class Peers {
 public:
  bool add(uint64_t context_id);     // false: there already, or no room
  bool remove(uint64_t context_id);  // false: not there
  bool contain(uint64_t context_id) const;

 private:
  std::atomic<uint64_t> ids_[32] = {};  // 0: free
};

struct Running {
  const char* name;               // null: the thread is running nothing for the device
  int device;                     // -1 outside an operation
  std::atomic<CUresult>* sticky;  // the context's sticky error
  const Peers* peers = nullptr;   // of the context
};

// Both are outside TSan's view: the worker writes, its stream's fiber reads, on one thread.
void set_running(const Running& running);
Running running_now();

}  // namespace hostcuda

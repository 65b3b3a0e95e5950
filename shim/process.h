// SPDX-License-Identifier: MIT
// What the guarded process has once: its configuration and its ring. Made at the first guarded call, never destroyed
// (no destructor may run CUDA or touch a mapping that the GPU still writes).
#pragma once

#include <cstdint>

#include "config/config.h"
#include "shim/ring_writer.h"

namespace sdcguard {

struct Process {
  Config config;    // mode = off where the configuration was wrong (one line was printed then)
  RingWriter ring;  // closed where shared memory could not be had: checks and repairs go on, nothing is reported

  // Counters of a host thread, by its number. Never null. *shared: other threads write them too (past the last slot of
  // the ring, or no ring).
  ThreadCounters* counters_of_thread(uint32_t number, bool* shared) const noexcept;

  // Mode in force now: the configured one, or the one forced through the ring's control word.
  Mode mode() const noexcept;
};

// Reads the configuration and opens the ring on the first call (takes a lock, allocates, reads files, may print one
// line on stderr); afterwards one atomic load. The child of a fork makes its own.
const Process& the_process() noexcept;

// The process if it was made before, else null.
const Process* process_if_made() noexcept;

// Child of fork: the parent's ring and configuration are left to the parent.
void process_forget_after_fork() noexcept;

// Lists a cuBLAS library in the ring, once. Called when a handle was made.
void note_library(const char* name, size_t version) noexcept;

}  // namespace sdcguard

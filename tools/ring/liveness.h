// SPDX-License-Identifier: MIT
// Liveness: takes the identity that a ring carries, says whether its writer still runs; runs in readers.
#pragma once

#include <cstdint>

namespace sdcguard {

// A process as a ring names it. Nothing in it is trusted: it can only make us look a process up.
struct ProcessIdentity {
  int32_t pid = 0;             // inside pid_namespace
  uint64_t pid_namespace = 0;  // inode of /proc/PID/ns/pid
  uint64_t start_ticks = 0;    // field 22 of /proc/PID/stat; tells a process from a later one of the same number
};

enum class Liveness {
  kAlive,
  kDead,     // no such process, another one has its number, or it is a zombie: it writes no more
  kUnknown,  // it is in a pid namespace that this reader cannot look into
};

// Reads /proc; for a process of another pid namespace the whole of /proc once. Blocks only on that.
Liveness liveness_of(const ProcessIdentity& identity);

// The identity of a process by the number that this reader knows it by. All zero: no such process, or not for us to
// see.
ProcessIdentity identity_of(int32_t pid);

// The caller's own pid namespace. 0: unknown.
uint64_t own_pid_namespace();

// Field 22 of /proc/PID/stat. 0: no such process.
uint64_t start_ticks_of(int32_t pid);

}  // namespace sdcguard

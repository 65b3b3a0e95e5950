// SPDX-License-Identifier: MIT
// stage record, host side: makes the process's ring file, hands out lanes and counters, writes host records.
#pragma once

#include <cstddef>
#include <cstdint>

#include "config/config.h"
#include "sdcguard/ring.h"

namespace sdcguard {

// Most ring files in a folder, 16 MiB each: 1 GiB of shared memory.
inline constexpr uint32_t kMostRings = 64;

// The pair of lanes of one CUDA context.
struct DeviceLanes {
  uint32_t calls = 0;  // lane index. 0: none was left.
  uint32_t faults = 0;
  void* memory_host = nullptr;  // slot 0 of the calls lane; the faults lane follows it; page-aligned
  uint64_t bytes = 0;           // of both lanes
};

class RingWriter {
 public:
  // Makes <ring_dir>/<name>.ring with all its space reserved (so that a full tmpfs is an error here and never a SIGBUS
  // later), else an anonymous memfd of the same form, else stays closed. Of kMostRings files and more the oldest rings
  // of dead processes are removed first. Blocks on file calls; prints nothing.
  void open(const Config& config) noexcept;

  bool is_open() const noexcept { return base_ != nullptr; }

  // Control word, 0 when closed.
  uint32_t control() const noexcept;

  // Slot of a thread's counters, null when closed. Threads past the last slot share it.
  ThreadCounters* thread_slot(uint32_t number) const noexcept;

  // Slot of the device in the header's table, taking one if it is new (by UUID). -1: the table is full or the ring
  // closed.
  int device_slot(const DeviceInfo& info) const noexcept;

  // Two lanes for a context: reserved, not yet announced. announce() makes readers see them.
  DeviceLanes take_lanes() const noexcept;
  void announce(const DeviceLanes& lanes, uint64_t context_id, uint32_t device) const noexcept;

  // Writes one record of the host lanes; head and tail are filled here. Wait-free; loses nothing but what the reader
  // was too slow for, which the reader counts.
  void write_call(const CallRecord& record) const noexcept;

  void count_driver_error() const noexcept;
  void count_warm() const noexcept;
  void count_lane_refused() const noexcept;
  // Adds a cuBLAS library to the header's list, once each: "libcublas.so.13 130100, ...". version 0: not known.
  void add_library(const char* name, size_t version) const noexcept;

 private:
  RingHeader* header() const noexcept { return reinterpret_cast<RingHeader*>(base_); }
  unsigned char* base_ = nullptr;
};

}  // namespace sdcguard

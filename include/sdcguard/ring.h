// SPDX-License-Identifier: MIT
// The ring: one file in shared memory a guarded process, the only thing that passes between the shim and its readers.
//
//   byte 0            kThreadsOffset        kLanesOffset (page)        ...
//        +------------+---------------------+--------------+-----------+--------------+
//        | RingHeader | ThreadCounters x 256| lane 0 slots | lane 1 ...| lane 15 slots|
//        +------------+---------------------+--------------+-----------+--------------+
//
// Lane 0 is shared by all host threads, lane 1 carries the host's fault records. Each CUDA context takes two more
// lanes, one for calls and one for faults, that the GPU writes directly: the mapping of the whole file is registered
// with the driver, and the lane's ticket counter lives in device memory. Faults have lanes of their own, which calls
// can never crowd out. Nothing in the file is trusted by a reader.
//
// File name: <pid namespace inode>-<pid>-<start time in clock ticks>-<8 hex digits>.ring, mode 0600.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sdcguard/record.h"

namespace sdcguard {

inline constexpr uint64_t kRingMagic = 0x31474e4952434453ull;  // "SDCRING1"
inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kMaxLanes = 16;
inline constexpr uint32_t kMaxThreads = 256;
inline constexpr uint32_t kCallSlots = 4096;   // a power of two
inline constexpr uint32_t kFaultSlots = 4096;  // a power of two

enum class LaneKind : uint32_t { kUnused = 0, kHostCalls = 1, kHostFaults = 2, kDeviceCalls = 3, kDeviceFaults = 4 };

// Where a lane's slots are, and who owns it. Writer: the shim, once, before `kind` is stored with release.
struct LaneInfo {
  uint32_t kind;        // LaneKind. Read with acquire; kUnused until the other fields are valid.
  uint32_t slots;       // a power of two.
  uint64_t offset;      // of slot 0 from the start of the file, bytes; a multiple of 4096.
  uint64_t context_id;  // cuCtxGetId of the owner; 0 for host lanes.
  uint32_t device;      // slot in the device table.
  uint32_t reserved;
  uint64_t host_tickets;  // tickets taken by the host (host lanes only; fetch_add). Device lanes: 0.
  uint64_t reserved1[3];
};
static_assert(sizeof(LaneInfo) == 64);

// One device seen by the process. Writer: the shim at warm-up, before `present` is stored with release.
struct DeviceInfo {
  uint32_t present;  // 1 once the rest is valid.
  int32_t ordinal;   // CUDA ordinal inside the process; informational, the UUID names the device.
  uint8_t uuid[16];
  char name[64];  // zero-terminated.
  char pci[16];   // "0000:00:00.0", zero-terminated.
  int32_t compute_major, compute_minor;
  int32_t driver_version;  // cuDriverGetVersion.
  int32_t sm_count;
  uint64_t memory_bytes;
};
static_assert(sizeof(DeviceInfo) == 128);

// Calls and FLOPs of one host thread, written by that thread alone with relaxed stores (threads past 256 share the
// last slot, with atomic adds). FLOPs are 2 m n k batch.
struct ThreadCounters {
  uint64_t calls_seen;  // intercepted at depth 0.
  uint64_t flops_seen;
  uint64_t calls_sampled;  // chosen by the policy.
  uint64_t flops_sampled;
  uint64_t calls_launched;  // a probe was enqueued; its outcome comes in a device record.
  uint64_t flops_launched;
  // Of calls not sampled, under upgrade = "site": computed into scratch and finished by us; or of a site that is, and
  // run as the caller gave it (cold context, capture, no workspace, driver error).
  uint64_t calls_upgraded;
  uint64_t calls_as_given;
  uint64_t unverified_calls[32];  // by Reason, those decided on the host.
  uint64_t unverified_flops[32];
};
static_assert(sizeof(ThreadCounters) == 576 && kReasonCount <= 32);

struct RingHeader {
  uint64_t magic;         // kRingMagic, stored last with release.
  uint32_t version;       // kWireVersion.
  uint32_t header_bytes;  // sizeof(RingHeader).
  uint64_t file_bytes;
  uint64_t threads_offset;
  uint32_t thread_count;   // threads that took a slot so far (may exceed kMaxThreads).
  uint32_t lane_count;     // kMaxLanes.
  int32_t pid;             // in the writer's pid namespace.
  int32_t rank;            // as the environment says; 0 when it does not.
  uint64_t pid_namespace;  // inode of /proc/self/ns/pid.
  uint64_t start_ticks;    // field 22 of /proc/self/stat.
  uint64_t started_ns;     // CLOCK_REALTIME when the ring was made.
  uint32_t mode;           // Mode in force, as configured.
  uint32_t control;     // written by `sdcguard off|on PID`: 0 = as configured, 1 + Mode = forced. Reader: the shim, at
                        // each sampled call.
  uint64_t seed;        // SDCGUARD_SEED in force.
  double rate;          // sampling rate in force.
  char command[256];    // /proc/self/cmdline, spaces for zeros, cut, zero-terminated.
  char cublas[64];      // versions of the cuBLAS libraries seen, zero-terminated.
  uint64_t warm_calls;  // contexts warmed.
  uint64_t driver_errors;  // our driver calls that failed.
  uint64_t lanes_refused;  // contexts whose lane could not be registered or had no slot left.
  uint64_t reserved[32];
  DeviceInfo devices[kMaxDevices];
  LaneInfo lanes[kMaxLanes];
};
static_assert(sizeof(RingHeader) <= 8192);

inline constexpr uint64_t kThreadsOffset = 8192;
inline constexpr uint64_t kLanesOffset = (kThreadsOffset + kMaxThreads * sizeof(ThreadCounters) + 4095) / 4096 * 4096;
// Even lanes hold calls, odd lanes hold faults.
inline constexpr uint64_t lane_offset(uint32_t lane) {
  return kLanesOffset + (lane / 2) * uint64_t{kCallSlots + kFaultSlots} * kRecordBytes +
         (lane % 2) * uint64_t{kCallSlots} * kRecordBytes;
}
inline constexpr uint64_t kRingBytes = lane_offset(kMaxLanes);

}  // namespace sdcguard

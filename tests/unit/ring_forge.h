// SPDX-License-Identifier: MIT
// Ring forge: writes ring files for the readers' tests, good ones by the slot protocol of record.h and hostile ones
// byte by byte. It shares no code with the shim's writer, so that a test of the reader holds the wire and not the
// writer.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "sdcguard/ring.h"
#include "tools/ring/liveness.h"

namespace sdcguard {

// A ring of the writer's own layout with lanes 0 (host calls), 1 (host faults), 2 (device calls), 3 (device faults).
class ForgedRing {
 public:
  // pid: of a living process (the caller's own by default) or of a dead one.
  explicit ForgedRing(const std::string& folder, int32_t pid = getpid(), const char* tag = "00000000") {
    bytes_.assign(kRingBytes, 0);
    const uint64_t ticks = start_ticks_of(pid);
    path_ = folder + "/" + std::to_string(own_pid_namespace()) + "-" + std::to_string(pid) + "-" +
            std::to_string(ticks) + "-" + tag + ".ring";
    RingHeader& head = header();
    head.magic = kRingMagic;
    head.version = kWireVersion;
    head.header_bytes = sizeof(RingHeader);
    head.file_bytes = kRingBytes;
    head.threads_offset = kThreadsOffset;
    head.thread_count = 1;
    head.lane_count = kMaxLanes;
    head.pid = pid;
    head.rank = 3;
    head.pid_namespace = own_pid_namespace();
    head.start_ticks = ticks;
    head.started_ns = 1'700'000'000'000'000'000ull;
    head.mode = static_cast<uint32_t>(Mode::kRepair);
    head.seed = 42;
    head.rate = 1;
    strcpy(head.command, "python train.py");
    DeviceInfo& device = head.devices[0];
    device.present = 1;
    for (int i = 0; i < 16; ++i) device.uuid[i] = static_cast<uint8_t>(0x10 + i);
    strcpy(device.name, "Host device");
    strcpy(device.pci, "0000:01:00.0");
    const LaneKind kinds[] = {LaneKind::kHostCalls, LaneKind::kHostFaults, LaneKind::kDeviceCalls,
                              LaneKind::kDeviceFaults};
    for (uint32_t i = 0; i < 4; ++i) {
      head.lanes[i].kind = static_cast<uint32_t>(kinds[i]);
      head.lanes[i].slots = i % 2 == 0 ? kCallSlots : kFaultSlots;
      head.lanes[i].offset = lane_offset(i);
    }
  }

  RingHeader& header() { return *reinterpret_cast<RingHeader*>(bytes_.data()); }
  ThreadCounters& thread(uint32_t i) { return reinterpret_cast<ThreadCounters*>(bytes_.data() + kThreadsOffset)[i]; }
  uint64_t* slot(uint32_t lane, uint64_t ticket) {
    return reinterpret_cast<uint64_t*>(bytes_.data() + lane_offset(lane) + ticket % kCallSlots * kRecordBytes);
  }
  std::vector<unsigned char>& bytes() { return bytes_; }
  const std::string& path() const { return path_; }

  // Writes a whole record at that ticket.
  template <typename Record>
  void put(uint32_t lane, uint64_t ticket, Record record) {
    record.head.begin = ticket + 1;
    record.head.version = kWireVersion;
    record.head.lane = static_cast<uint16_t>(lane);
    uint64_t words[kRecordWords];
    memcpy(words, &record, sizeof(words));
    words[30] = record_checksum(words);
    words[31] = ticket + 1;
    memcpy(slot(lane, ticket), words, sizeof(words));
  }

  // To the file, so that readers see it; may be called again and again on an attached one.
  void publish() {
    const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    size_t done = 0;
    // Its size first, as the shim does: a reader that meets it now finds no magic yet.
    if (ftruncate(fd, static_cast<off_t>(bytes_.size())) != 0) done = bytes_.size();
    while (done < bytes_.size()) {
      const ssize_t wrote = pwrite(fd, bytes_.data() + done, bytes_.size() - done, static_cast<off_t>(done));
      if (wrote <= 0) break;
      done += static_cast<size_t>(wrote);
    }
    close(fd);
  }

 private:
  std::vector<unsigned char> bytes_;
  std::string path_;
};

inline CallRecord forged_call(uint64_t call_id, Outcome outcome = Outcome::kClean) {
  CallRecord call = {};
  call.head.kind = RecordKind::kCall;
  call.call_id = call_id;
  call.site = 0xabcdef;
  call.seed = 42;
  call.enqueued_ns = 1'700'000'000'000'000'001ull;
  call.m = 384;
  call.n = 128;
  call.k = 1536;
  call.batch = 1;
  call.mode = static_cast<uint8_t>(Mode::kRepair);
  call.outcome = outcome;
  call.plan = Plan::kLine;
  call.type_a = call.type_b = call.type_c = call.type_d = DataType::kBF16;
  call.upgraded = 1;
  call.epilogue = kEpilogueBias | kEpilogueGelu;
  call.classes = 8;
  call.lines = 128;
  call.sigma = 0.75f;
  call.threshold = 9.7f;
  call.worst = 5.5f;
  if (outcome == Outcome::kCorrected || outcome == Outcome::kCorrupt) {
    call.lines_dirty = 1;
    call.entries_named = 1;
    call.entries_repaired = outcome == Outcome::kCorrected ? 1 : 0;
  }
  if (outcome == Outcome::kBenign) call.lines_dirty = 1;
  if (outcome == Outcome::kUnverified) call.reason = Reason::kRange;
  return call;
}

inline FaultRecord forged_fault(uint64_t call_id, int64_t row, int64_t column) {
  FaultRecord fault = {};
  fault.head.kind = RecordKind::kFault;
  fault.call_id = call_id;
  fault.site = 0xabcdef;
  fault.row = row;
  fault.column = column;
  fault.got = 96.5f;
  fault.expected = 0.25f;
  fault.bound = 0.001f;
  fault.product_rms = 0.5f;
  fault.repaired = 1;
  fault.mode = static_cast<uint8_t>(Mode::kRepair);
  return fault;
}

}  // namespace sdcguard

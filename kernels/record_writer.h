// SPDX-License-Identifier: MIT
// Records from device code, by the slot protocol of include/sdcguard/record.h: begin, system fence, payload and
// checksum, system fence, end. One thread writes one record; words go out one by one, no record is built in memory.
#pragma once

#include <cstddef>

#include "kernels/params.h"
#include "kernels/simt.h"
#include "sdcguard/record.h"

namespace sdcguard {

class RecordWriter {
 public:
  // Takes a ticket of the lane. `slots` is not 0.
  SDCGUARD_DEVICE RecordWriter(uint64_t slots, uint64_t tickets, uint32_t mask)
      : begin_(atomic_add(tickets, 0, uint64_t{1}) + 1),
        slot_(slots + ((begin_ - 1) & mask) * kRecordBytes),
        hash_(0x9e3779b97f4a7c15ull) {
    store64_system(slot_, 0, begin_);
    fence_system();
  }

  // The next payload word, from word 1 on.
  SDCGUARD_DEVICE void put(uint64_t v) {
    store64_system(slot_, ++at_, v);
    hash_ ^= v;  // record_checksum(), one word at a time
    hash_ *= 0xff51afd7ed558ccdull;
    hash_ = (hash_ << 31) | (hash_ >> 33);
  }
  SDCGUARD_DEVICE void put_floats(float low, float high) {
    put(static_cast<uint64_t>(bits_of(high)) << 32 | bits_of(low));
  }

  // Zeros to the end of the payload, then the tail.
  SDCGUARD_DEVICE void finish() {
    while (at_ < 29) put(0);
    store64_system(slot_, 30, hash_);
    fence_system();
    store64_system(slot_, 31, begin_);
  }

 private:
  uint64_t begin_;
  uint64_t slot_;
  uint64_t hash_;
  int64_t at_ = 0;
};

SDCGUARD_DEVICE uint64_t record_head(RecordKind kind, uint16_t lane_index) {
  return static_cast<uint64_t>(kind) | uint64_t{kWireVersion} << 8 | static_cast<uint64_t>(lane_index) << 16;
}

// The words below are the structs of record.h, field by field.
static_assert(offsetof(CallRecord, call_id) == 2 * 8 && offsetof(CallRecord, m) == 6 * 8);
static_assert(offsetof(CallRecord, entry) == 80 && offsetof(CallRecord, mode) == 82 &&
              offsetof(CallRecord, outcome) == 83);
static_assert(offsetof(CallRecord, reason) == 84 && offsetof(CallRecord, plan) == 85 &&
              offsetof(CallRecord, type_a) == 86);
static_assert(offsetof(CallRecord, type_c) == 88 && offsetof(CallRecord, upgraded) == 90 &&
              offsetof(CallRecord, device) == 91);
static_assert(offsetof(CallRecord, epilogue) == 92 && offsetof(CallRecord, classes) == 96 &&
              offsetof(CallRecord, lines) == 104);
static_assert(offsetof(CallRecord, entries_named) == 16 * 8 && offsetof(CallRecord, columns_nonfinite) == 19 * 8);
static_assert(offsetof(CallRecord, sigma) == 20 * 8 && offsetof(CallRecord, stream) == 22 * 8);
static_assert(offsetof(FaultRecord, row) == 4 * 8 && offsetof(FaultRecord, got) == 7 * 8);
static_assert(offsetof(FaultRecord, bound) == 8 * 8 && offsetof(FaultRecord, repaired) == 9 * 8);

SDCGUARD_DEVICE void write_call_record(const ProbeParams& p, const Verdict& verdict, Outcome outcome, Reason reason) {
  if (p.lane.call_slots == 0) return;
  const CallIdentity& id = p.identity;
  RecordWriter w(p.lane.call_slots, p.lane.call_tickets, p.lane.call_mask);
  w.put(record_head(RecordKind::kCall, p.lane.call_lane));
  w.put(id.call_id);
  w.put(id.site);
  w.put(id.seed);
  w.put(id.enqueued_ns);
  w.put(static_cast<uint64_t>(id.m));
  w.put(static_cast<uint64_t>(id.n));
  w.put(static_cast<uint64_t>(id.k));
  w.put(static_cast<uint64_t>(id.batch));
  w.put(static_cast<uint64_t>(id.entry) | static_cast<uint64_t>(id.mode) << 16 | static_cast<uint64_t>(outcome) << 24 |
        static_cast<uint64_t>(reason) << 32 | static_cast<uint64_t>(p.plan) << 40 |
        static_cast<uint64_t>(id.type_a) << 48 | static_cast<uint64_t>(id.type_b) << 56);
  w.put(static_cast<uint64_t>(id.type_c) | static_cast<uint64_t>(id.type_d) << 8 |
        static_cast<uint64_t>(id.upgraded) << 16 | static_cast<uint64_t>(id.device) << 24 |
        static_cast<uint64_t>(id.epilogue) << 32);
  w.put(p.classes);
  w.put(static_cast<uint64_t>(p.lines));
  w.put(verdict.lines_dirty);
  w.put(verdict.lines_audited);
  w.put(verdict.entries_named);
  w.put(verdict.entries_repaired);
  w.put(verdict.lines_nonfinite);
  w.put(verdict.columns_nonfinite);
  w.put_floats(verdict.sigma, verdict.sigma_cap);
  w.put_floats(verdict.threshold, verdict.worst);
  w.put(id.stream);
  w.finish();
}

// Entry (row, col) of P is (col, row) of the caller's column-major D.
SDCGUARD_DEVICE void write_fault_record(const ProbeParams& p, int64_t entry, int64_t row, int64_t col, double got,
                                        double expected, double bound, float product_rms, bool repaired) {
  if (p.lane.fault_slots == 0) return;
  RecordWriter w(p.lane.fault_slots, p.lane.fault_tickets, p.lane.fault_mask);
  w.put(record_head(RecordKind::kFault, p.lane.fault_lane));
  w.put(p.identity.call_id);
  w.put(p.identity.site);
  w.put(static_cast<uint64_t>(col));
  w.put(static_cast<uint64_t>(row));
  w.put(static_cast<uint64_t>(entry));
  w.put_floats(static_cast<float>(got), static_cast<float>(expected));
  w.put_floats(static_cast<float>(bound), product_rms);
  w.put(static_cast<uint64_t>(repaired ? 1 : 0) | static_cast<uint64_t>(p.identity.device) << 8 |
        static_cast<uint64_t>(p.identity.mode) << 16);
  w.finish();
}

}  // namespace sdcguard

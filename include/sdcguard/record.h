// SPDX-License-Identifier: MIT
// The records on the wire: fixed 256 bytes, little-endian, explicit sizes, append-only. A record is written once,
// by a host thread or by a GPU kernel, and read by sdcguardd and the command line, which trust nothing in it.
//
//   byte   0        8                                   240        248      256
//          +--------+-----------------------------------+----------+--------+
//          | begin  | payload (29 words of 64 bit)      | checksum |  end   |
//          +--------+-----------------------------------+----------+--------+
//
// Slot protocol (writer): begin = ticket + 1; fence; payload, checksum; fence; end = ticket + 1.
// Fences are system scope on the device, release on the host. A reader copies the slot and takes the copy only if
// begin == end == expected both before and after, and the checksum agrees.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sdcguard/types.h"

namespace sdcguard {

inline constexpr uint32_t kWireVersion = 1;
inline constexpr size_t kRecordBytes = 256;
inline constexpr size_t kRecordWords = kRecordBytes / 8;

enum class RecordKind : uint8_t { kInvalid = 0, kCall = 1, kFault = 2 };

// First two words of every record.
struct RecordHead {
  uint64_t begin;     // ticket + 1 of the slot's lane. Special values: 0 = never written.
  RecordKind kind;    // writer: all.
  uint8_t version;    // kWireVersion of the writer.
  uint16_t lane;      // index of the lane it was written to.
  uint32_t reserved;  // 0.
};

struct RecordTail {
  uint64_t checksum;  // record_checksum() over words 1..29.
  uint64_t end;       // equals begin when the record is whole.
};

// One guarded call. Written by the last kernel of a checked call, or by the host when no kernel ran.
struct CallRecord {
  RecordHead head;
  uint64_t call_id;        // thread number << 40 | that thread's call count; joins fault records to their call.
  uint64_t site;           // hash of entry point, types, layouts, shape, epilogue. Never 0.
  uint64_t seed;           // seed of the sign draws of this call (Philox key).
  uint64_t enqueued_ns;    // host CLOCK_REALTIME at entry, nanoseconds.
  int64_t m, n, k, batch;  // as the caller passed them (BLAS letters, column-major).
  uint16_t entry;          // index in shim/entry_points.def.
  uint8_t mode;            // Mode in force for this call.
  Outcome outcome;         // kClean, kCorrected, kCorrupt, kBenign or kUnverified.
  Reason reason;           // kNone unless kUnverified; kNonfiniteOperand may ride with the others (lines set aside).
  Plan plan;
  DataType type_a, type_b, type_c, type_d;  // the caller's types.
  uint8_t upgraded;                         // 1: the product ran into FP32 scratch.
  uint8_t device;                           // slot in the ring header's device table.
  uint32_t epilogue;                        // kEpilogue* bits.
  uint32_t classes;                         // c, classes of columns in each sign draw. 0: no probe ran.
  uint64_t lines;                           // rows of P tested (n1 * batch).
  uint64_t lines_dirty;                     // lines over the look threshold, or recomputed outright.
  uint64_t lines_audited;                   // random lines recomputed besides (history not yet seeded).
  uint64_t entries_named;                   // entries beyond the entry bound.
  uint64_t entries_repaired;
  uint64_t lines_nonfinite;    // rows set aside for a non-finite operand.
  uint64_t columns_nonfinite;  // columns set aside for a non-finite operand.
  float sigma;                 // noise of this call in units of s (kLine). 0: not measured.
  float sigma_cap;             // cap in force. 0: none.
  float threshold;             // T (kLine) or the Hoeffding multiplier (kBlockSums).
  float worst;                 // largest |r| / (sigma s) seen; Inf for a non-finite residual.
  uint64_t stream;             // cuStreamGetId of the application's stream.
  uint64_t reserved[7];        // 0.
  RecordTail tail;
};

// One wrong entry. Written before the call record that carries its call_id.
struct FaultRecord {
  RecordHead head;
  uint64_t call_id;
  uint64_t site;
  int64_t row, column;  // of the caller's D (column-major: row in 0..m, column in 0..n).
  int64_t batch;        // index in the batch.
  float got;            // the product's entry as found (FP32 scratch) or the delivered value widened.
  float expected;       // its independent recomputation.
  float bound;          // tau: |got - expected| beyond it names the entry.
  float product_rms;    // rms of the finite entries of the line. 0: not measured.
  uint8_t repaired;     // 1: the right value was delivered.
  uint8_t device;
  uint8_t mode;
  uint8_t reserved0[5];
  uint64_t reserved[20];  // 0.
  RecordTail tail;
};

static_assert(sizeof(CallRecord) == kRecordBytes && sizeof(FaultRecord) == kRecordBytes);
static_assert(offsetof(CallRecord, tail) == 240 && offsetof(FaultRecord, tail) == 240);
static_assert(offsetof(CallRecord, call_id) == 16 && offsetof(FaultRecord, call_id) == 16);

// Checksum of words 1..29 of a record: a multiply-rotate mix, the same on host and device.
// It finds torn writes, not malice.
#ifdef __CUDACC__
__host__ __device__
#endif
    inline uint64_t
    record_checksum(const uint64_t* words) {
  uint64_t h = 0x9e3779b97f4a7c15ull;
  for (int i = 1; i < 30; ++i) {
    h ^= words[i];
    h *= 0xff51afd7ed558ccdull;
    h = (h << 31) | (h >> 33);
  }
  return h;
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Fault join: takes records as a drain finds them, gives each fault together with its call; runs in readers, one for
// each ring (a call_id is unique within its process only).
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "tools/ring/ring_reader.h"

namespace sdcguard {

inline constexpr size_t kMaxKnownCalls = 16384;              // calls with named entries kept for late fault records
inline constexpr size_t kMaxPendingFaults = 65536;           // faults whose call was not seen yet
inline constexpr uint64_t kJoinPatienceNs = 30'000'000'000;  // a call's record follows its faults within its own kernel

// Takes joined records.
class JoinedSink {
 public:
  virtual ~JoinedSink() = default;
  virtual void on_call(const CallRecord& call, bool on_device) = 0;
  // call: null where its record was lost or never came. Valid during the call only.
  virtual void on_fault(const FaultRecord& fault, const CallRecord* call) = 0;
};

class FaultJoin : public RecordSink {
 public:
  explicit FaultJoin(JoinedSink& out) : out_(out) {}

  void on_call(const CallRecord& call, bool on_device) override;
  void on_fault(const FaultRecord& fault) override;

  // After each drain: hands out, without a call, the faults that have waited past kJoinPatienceNs; all of them if
  // final.
  void settle(uint64_t now_ns, bool final);

 private:
  struct Waiting {
    uint64_t since_ns = 0;  // of the settle() that first met it. 0: none yet
    std::vector<FaultRecord> faults;
  };
  JoinedSink& out_;
  std::unordered_map<uint64_t, CallRecord> known_;
  std::deque<uint64_t> known_order_;
  std::unordered_map<uint64_t, Waiting> waiting_;
  size_t waiting_faults_ = 0;
};

}  // namespace sdcguard

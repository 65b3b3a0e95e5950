// SPDX-License-Identifier: MIT
// Fault join: takes records as a drain finds them, gives each fault together with its call; runs in readers.
#include "tools/ring/fault_join.h"

#include <algorithm>

namespace sdcguard {

void FaultJoin::on_call(const CallRecord& call, bool on_device) {
  out_.on_call(call, on_device);
  const uint64_t id = call.call_id;
  const auto waiting = waiting_.find(id);
  if (waiting != waiting_.end()) {
    for (const FaultRecord& fault : waiting->second.faults) out_.on_fault(fault, &call);
    waiting_faults_ -= waiting->second.faults.size();
    waiting_.erase(waiting);
  }
  if (call.entries_named == 0) return;
  if (!known_.insert_or_assign(id, call).second) return;
  known_order_.push_back(id);
  if (known_order_.size() <= kMaxKnownCalls) return;
  known_.erase(known_order_.front());
  known_order_.pop_front();
}

void FaultJoin::on_fault(const FaultRecord& fault) {
  const auto call = known_.find(fault.call_id);
  if (call != known_.end()) return out_.on_fault(fault, &call->second);
  if (waiting_faults_ >= kMaxPendingFaults) return out_.on_fault(fault, nullptr);
  waiting_[fault.call_id].faults.push_back(fault);
  ++waiting_faults_;
}

void FaultJoin::settle(uint64_t now_ns, bool final) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Waiting& waiting = it->second;
    if (waiting.since_ns == 0) waiting.since_ns = std::max<uint64_t>(now_ns, 1);
    const bool late = now_ns > waiting.since_ns && now_ns - waiting.since_ns > kJoinPatienceNs;
    if (!final && !late) {
      ++it;
      continue;
    }
    for (const FaultRecord& fault : waiting.faults) out_.on_fault(fault, nullptr);
    waiting_faults_ -= waiting.faults.size();
    it = waiting_.erase(it);
  }
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// JSON lines: takes validated records and counts, gives one JSON object each, with the record fields' own names; runs
// in sdcguardd and the command line.
//
// Words for vocabularies (outcome, reason, mode, plan, types, entry), "0x..." text for hashes and bit patterns, null
// for a number that is not finite. A reason "none" is left out.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/ring/coverage.h"
#include "tools/ring/ring_reader.h"

namespace sdcguard {

// event: "attached" or "ended".
nlohmann::ordered_json process_json(const RingState& state, const std::string& path, const char* event);
nlohmann::ordered_json device_json(const RingState& state, const DeviceSeen& device);
nlohmann::ordered_json call_json(const RingState& state, const CallRecord& call);
// call: of the same call_id, or null.
nlohmann::ordered_json fault_json(const RingState& state, const FaultRecord& fault, const CallRecord* call);
// final: the process has ended and every record was read.
nlohmann::ordered_json coverage_json(const RingState& state, const CoverageTotals& totals, bool final);
// Since attach. kind: "calls" or "faults".
nlohmann::ordered_json lost_json(const RingState& state, const char* kind, const LossCounts& losses);

// The totals alone, as they stand in coverage_json.
nlohmann::ordered_json totals_json(const CoverageTotals& totals);

// One line without its newline; bytes that are not UTF-8 are replaced.
std::string line_of(const nlohmann::ordered_json& object);

}  // namespace sdcguard

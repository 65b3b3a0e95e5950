// SPDX-License-Identifier: MIT
// JSON lines: takes validated records and counts, gives one JSON object each, with the record fields' own names; runs
// in sdcguardd and the command line.
#include "tools/ring/json_lines.h"

#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace sdcguard {
namespace {

using Json = nlohmann::ordered_json;

std::string hex(uint64_t value, int digits) {
  char text[24];
  snprintf(text, sizeof(text), "0x%0*" PRIx64, digits, value);
  return text;
}

// A float as the shortest decimal that reads back to the same float; JSON has no other way for NaN than null.
Json number(float value) {
  if (!std::isfinite(value)) return nullptr;
  return static_cast<double>(value);
}

Json bits(float value) {
  return hex(std::bit_cast<uint32_t>(value), 8);
}

Json head(const char* type, const RingState& state) {
  Json out;
  out["type"] = type;
  out["pid"] = state.process.pid;
  out["rank"] = state.rank;
  return out;
}

// uuid, name and PCI address of the device in that slot of the header's table; null where it is not in there.
void add_device(Json* out, const RingState& state, uint8_t slot) {
  (*out)["device"] = slot;
  for (const DeviceSeen& device : state.devices) {
    if (device.slot != slot) continue;
    (*out)["uuid"] = device.uuid;
    (*out)["name"] = device.name;
    (*out)["pci"] = device.pci;
    return;
  }
  (*out)["uuid"] = nullptr;
}

Json epilogue_words(uint32_t epilogue) {
  Json words = Json::array();
  if (epilogue & kEpilogueBias) words.push_back("bias");
  if (epilogue & kEpilogueRelu) words.push_back("relu");
  if (epilogue & kEpilogueGelu) words.push_back("gelu");
  if (epilogue & ~(kEpilogueBias | kEpilogueRelu | kEpilogueGelu)) words.push_back("other");
  return words;
}

Json pair_json(const CallsAndFlops& pair) {
  return {{"calls", pair.calls}, {"flops", pair.flops}};
}

}  // namespace

Json process_json(const RingState& state, const std::string& path, const char* event) {
  Json out = head("process", state);
  out["event"] = event;
  out["pid_namespace"] = state.process.pid_namespace;
  out["start_ticks"] = state.process.start_ticks;
  out["started_ns"] = state.started_ns;
  out["mode"] = name_of(state.mode);
  out["mode_in_force"] = name_of(state.mode_in_force);
  out["rate"] = state.rate;
  out["seed"] = state.seed;
  out["command"] = state.command;
  out["cublas"] = state.cublas;
  out["warm_calls"] = state.warm_calls;
  out["driver_errors"] = state.driver_errors;
  out["lanes_refused"] = state.lanes_refused;
  out["ring"] = path;
  return out;
}

Json device_json(const RingState& state, const DeviceSeen& device) {
  Json out = head("device", state);
  out["device"] = device.slot;
  out["ordinal"] = device.ordinal;
  out["uuid"] = device.uuid;
  out["name"] = device.name;
  out["pci"] = device.pci;
  out["compute_major"] = device.compute_major;
  out["compute_minor"] = device.compute_minor;
  out["driver_version"] = device.driver_version;
  out["sm_count"] = device.sm_count;
  out["memory_bytes"] = device.memory_bytes;
  return out;
}

Json call_json(const RingState& state, const CallRecord& call) {
  Json out = head("call", state);
  add_device(&out, state, call.device);
  out["call_id"] = call.call_id;
  out["site"] = hex(call.site, 16);
  out["seed"] = call.seed;
  out["enqueued_ns"] = call.enqueued_ns;
  out["entry"] = entry_name(call.entry);
  out["m"] = call.m;
  out["n"] = call.n;
  out["k"] = call.k;
  out["batch"] = call.batch;
  out["mode"] = name_of(static_cast<Mode>(call.mode));
  out["outcome"] = name_of(call.outcome);
  if (call.reason != Reason::kNone) out["reason"] = name_of(call.reason);
  out["plan"] = name_of(call.plan);
  out["type_a"] = name_of(call.type_a);
  out["type_b"] = name_of(call.type_b);
  out["type_c"] = name_of(call.type_c);
  out["type_d"] = name_of(call.type_d);
  out["upgraded"] = call.upgraded != 0;
  out["epilogue"] = epilogue_words(call.epilogue);
  out["classes"] = call.classes;
  out["lines"] = call.lines;
  out["lines_dirty"] = call.lines_dirty;
  out["lines_audited"] = call.lines_audited;
  out["entries_named"] = call.entries_named;
  out["entries_repaired"] = call.entries_repaired;
  out["lines_nonfinite"] = call.lines_nonfinite;
  out["columns_nonfinite"] = call.columns_nonfinite;
  out["sigma"] = number(call.sigma);
  out["sigma_cap"] = number(call.sigma_cap);
  out["threshold"] = number(call.threshold);
  out["worst"] = number(call.worst);
  out["stream"] = call.stream;
  return out;
}

Json fault_json(const RingState& state, const FaultRecord& fault, const CallRecord* call) {
  Json out = head("fault", state);
  add_device(&out, state, fault.device);
  out["call_id"] = fault.call_id;
  out["site"] = hex(fault.site, 16);
  if (call != nullptr) {
    out["entry"] = entry_name(call->entry);
    out["m"] = call->m;
    out["n"] = call->n;
    out["k"] = call->k;
    out["batch_count"] = call->batch;
    out["enqueued_ns"] = call->enqueued_ns;
    out["seed"] = call->seed;
    out["plan"] = name_of(call->plan);
    out["upgraded"] = call->upgraded != 0;
  }
  out["row"] = fault.row;
  out["column"] = fault.column;
  out["batch"] = fault.batch;
  out["got"] = number(fault.got);
  out["got_bits"] = bits(fault.got);
  out["expected"] = number(fault.expected);
  out["expected_bits"] = bits(fault.expected);
  out["bound"] = number(fault.bound);
  out["product_rms"] = number(fault.product_rms);
  out["repaired"] = fault.repaired != 0;
  out["mode"] = name_of(static_cast<Mode>(fault.mode));
  return out;
}

Json totals_json(const CoverageTotals& totals) {
  Json out;
  out["seen"] = pair_json(totals.seen);
  out["sampled"] = pair_json(totals.sampled);
  out["launched"] = pair_json(totals.launched);
  out["checked"] = pair_json(totals.checked);
  Json outcomes;
  for (size_t o = 0; o < kOutcomeCount; ++o) outcomes[kOutcomeNames[o]] = pair_json(totals.outcomes[o]);
  out["outcomes"] = outcomes;
  Json reasons = Json::object();
  for (size_t r = 1; r < kReasonCount; ++r) {
    if (totals.unverified[r].calls > 0) reasons[kReasonNames[r]] = pair_json(totals.unverified[r]);
  }
  out["unverified"] = reasons;
  out["upgraded_not_sampled"] = totals.upgraded;
  out["as_given_not_sampled"] = totals.as_given;
  out["outstanding"] = totals.outstanding;
  out["looks"] = totals.looks;
  out["lines"] = totals.lines;
  out["lines_dirty"] = totals.lines_dirty;
  out["lines_nonfinite"] = totals.lines_nonfinite;
  out["entries_named"] = totals.entries_named;
  out["entries_repaired"] = totals.entries_repaired;
  out["lower_bound"] = totals.lower_bound;
  return out;
}

Json coverage_json(const RingState& state, const CoverageTotals& totals, bool final) {
  Json out = head("coverage", state);
  out["final"] = final;
  out.update(totals_json(totals));
  return out;
}

Json lost_json(const RingState& state, const char* kind, const LossCounts& losses) {
  Json out = head("lost", state);
  out["kind"] = kind;
  out["lost"] = losses.lost;
  out["torn"] = losses.torn;
  out["invalid"] = losses.invalid;
  return out;
}

std::string line_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Injection join: takes the host device's injection log and sdcguardd's JSON lines of the same run, says which injected
// entries were found and repaired.
#include "tools/ring/injection_join.h"

#include <charconv>
#include <cmath>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

namespace sdcguard {
namespace {

using nlohmann::json;

// Calls `take` for each line. False: the file cannot be read or a line is no JSON object of the form that take expects.
bool each_line(const std::string& path, const std::function<void(const json&)>& take, std::string* error) {
  std::ifstream in(path);
  if (!in) {
    *error = path + ": cannot be read";
    return false;
  }
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    try {
      take(json::parse(line));
    } catch (const json::exception& failure) {
      *error = path + ":" + std::to_string(number) + ": " + failure.what();
      return false;
    }
  }
  return true;
}

double finite_or_infinity(const json& value) {
  return value.is_number() ? value.get<double>() : HUGE_VAL;
}

// Bits of an FP32 value as they are compared: a signalling NaN is quieted on its way through the verifier's arithmetic,
// so all NaNs are one.
std::string comparable(const std::string& bits) {
  uint32_t value = 0;
  const char* digits = bits.c_str() + (bits.starts_with("0x") ? 2 : 0);
  const auto [end, failure] = std::from_chars(digits, bits.c_str() + bits.size(), value, 16);
  if (failure != std::errc() || end != bits.c_str() + bits.size()) return bits;
  return (value & 0x7fffffffu) > 0x7f800000u ? "nan" : bits;
}

std::string key_of(int64_t m, int64_t n, int64_t k, int64_t batch, int64_t row, int64_t column,
                   const std::string& bits) {
  std::string key;
  for (const int64_t part : {m, n, k, batch, row, column}) key += std::to_string(part) + " ";
  return key + comparable(bits);
}

InjectedEntry entry_of(const json& line) {
  InjectedEntry entry;
  entry.m = line.at("m");
  entry.n = line.at("n");
  entry.k = line.at("k");
  entry.batch = line.at("batch");
  entry.row = line.at("row");
  entry.column = line.at("col");
  entry.kind = line.at("kind");
  entry.clean_bits = line.at("clean_bits");
  if (line.at("faulty_bits").is_string()) entry.faulty_bits = line.at("faulty_bits");
  entry.magnitude = std::fabs(finite_or_infinity(line.at("faulty")) - finite_or_infinity(line.at("clean")));
  if (!(entry.magnitude <= HUGE_VAL)) entry.magnitude = HUGE_VAL;
  entry.bound = finite_or_infinity(line.at("bound"));
  // null (a skipped output): nothing says what D held, so it counts as a change that a check must name.
  entry.effect = line.at("effect").is_null() || line.at("effect").get<bool>();
  entry.above_bound = line.at("above_bound").is_null() || line.at("above_bound").get<bool>();
  return entry;
}

}  // namespace

bool read_report(const std::string& jsonl_path, RunReport* report, std::string* error) {
  return each_line(
      jsonl_path,
      [report](const json& line) {
        const std::string type = line.at("type");
        const bool call = type == "call" && (line.at("outcome") == "corrected" || line.at("outcome") == "corrupt");
        report->fault_records += type == "fault";
        report->calls_accused += call;
        if ((call || type == "fault") && report->accused.size() < kMaxAccused) report->accused.push_back(line.dump());
        if (type != "coverage" || !line.at("final").get<bool>()) return;
        ++report->processes;
        report->looks += line.at("looks").get<uint64_t>();
        report->checked += line.at("checked").at("calls").get<uint64_t>();
        report->seen += line.at("seen").at("calls").get<uint64_t>();
        report->launched += line.at("launched").at("calls").get<uint64_t>();
        report->unverified += line.at("outcomes").at("unverified").at("calls").get<uint64_t>();
        for (const auto& [reason, part] : line.at("unverified").items()) {
          report->unverified_by_reason[reason] += part.at("calls").get<uint64_t>();
        }
        report->lower_bound = report->lower_bound || line.at("lower_bound").get<bool>();
        report->coverage = line.dump();
      },
      error);
}

bool join_injections(const std::string& log_path, const std::string& jsonl_path, JoinResult* result,
                     std::string* error) {
  std::map<std::string, std::deque<size_t>> by_key;
  const auto take_injected = [&](const json& line) {
    InjectedEntry entry = entry_of(line);
    if (!entry.effect) {
      ++result->no_effect;
    } else {
      by_key[key_of(entry.m, entry.n, entry.k, entry.batch, entry.row, entry.column, entry.faulty_bits)].push_back(
          result->entries.size());
      ++result->injected;
      ++(entry.above_bound ? result->above_bound : result->below_floor);
    }
    result->entries.push_back(std::move(entry));
  };
  // A fault line has its call's shape only where the call's record was there in time: else its call line has it.
  struct Shape {
    int64_t m, n, k;
  };
  std::map<std::pair<int64_t, uint64_t>, Shape> shapes;  // by pid and call_id
  const auto take_call = [&](const json& line) {
    if (line.at("type") == "call") {
      shapes[{line.at("pid"), line.at("call_id")}] = {line.at("m"), line.at("n"), line.at("k")};
    }
  };
  const auto take_fault = [&](const json& line) {
    if (line.at("type") != "fault") return;
    std::deque<size_t>* waiting = nullptr;
    const auto shape = shapes.find({line.at("pid"), line.at("call_id")});
    if (shape != shapes.end()) {
      const auto [m, n, k] = shape->second;
      const auto at =
          by_key.find(key_of(m, n, k, line.at("batch"), line.at("row"), line.at("column"), line.at("got_bits")));
      if (at != by_key.end() && !at->second.empty()) waiting = &at->second;
    }
    if (waiting == nullptr) {
      ++result->unmatched;
      return;
    }
    InjectedEntry& entry = result->entries[waiting->front()];
    waiting->pop_front();
    entry.found = true;
    entry.repaired = line.at("repaired").get<bool>();
    ++result->found;
    result->repaired += entry.repaired;
  };
  if (!each_line(log_path, take_injected, error) || !each_line(jsonl_path, take_call, error) ||
      !each_line(jsonl_path, take_fault, error)) {
    return false;
  }
  for (const InjectedEntry& entry : result->entries) {
    result->missed_above_bound += entry.effect && entry.above_bound && !entry.found;
  }
  return true;
}

}  // namespace sdcguard

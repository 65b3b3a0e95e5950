// SPDX-License-Identifier: MIT
#include "tools/calibrate/harvest.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace sdcguard {
namespace {

constexpr double kBelowLimit = 0.9;  // of the calls
constexpr size_t kShapesKept = 16;

// The types whose records tell all of the arithmetic. Empty: another.
std::string type_of(const CallRecord& call) {
  if (call.type_a != call.type_b) return "";
  switch (call.type_a) {
    case DataType::kBF16:
      return "bf16";
    case DataType::kF16:
      return "fp16";
    case DataType::kF64:
      return "fp64";
    default:
      return "";
  }
}

// The one version number in "libcublas.so.13 130100, libcublasLt.so.13 130100"; 0: none, or two that differ.
int cublas_of(const std::string& libraries) {
  int version = 0;
  for (size_t at = 0; (at = libraries.find(' ', at)) != libraries.npos; ++at) {
    const int one = std::atoi(libraries.c_str() + at);
    if (one == 0) continue;
    if (version != 0 && version != one) return 0;
    version = one;
  }
  return version;
}

}  // namespace

void Harvest::add(const RingState& state, const CallRecord& call) {
  const auto device = std::find_if(state.devices.begin(), state.devices.end(),
                                   [&call](const DeviceSeen& one) { return one.slot == call.device; });
  const std::string type = type_of(call);
  const int cublas = cublas_of(state.cublas);
  const bool told = call.outcome == Outcome::kClean || call.outcome == Outcome::kBenign;
  if (device == state.devices.end() || type.empty() || cublas == 0 || !told || call.plan != Plan::kLine ||
      (call.upgraded == 0 && type != "fp64") || call.classes == 0 || call.lines == 0 || !std::isfinite(call.worst)) {
    ++left_out_;
    return;
  }
  ProfileKey key{device->name, device->sm_count, device->driver_version, cublas, type, "library", "line"};
  const bool simulated = device->name.find("simulated") != std::string::npos;
  if (simulated) key.order = "unknown";  // the ring has the device's name, not its order
  auto entry = std::find_if(found_.begin(), found_.end(), [&key](const Harvested& one) { return one.key == key; });
  if (entry == found_.end()) {
    entry = found_.emplace(found_.end());
    entry->key = key;
    entry->simulated = simulated;
    entry->uuid = device->uuid;
  }
  const double cells = static_cast<double>(call.lines) * call.classes * 2;
  ++entry->calls;
  entry->cells += call.lines * call.classes * 2;
  entry->looks += call.lines_dirty > 0 ? 1 : 0;
  entry->most_cells = std::max(entry->most_cells, cells);
  entry->worst.push_back(call.worst);
  if (entry->shapes.size() < kShapesKept) {
    entry->shapes.insert(std::to_string(call.m) + "x" + std::to_string(call.n) + "x" + std::to_string(call.k));
  }
}

Exceedances Harvested::exceedances() const {
  Exceedances measured;
  measured.values = cells;
  measured.products = calls;
  if (worst.empty()) return measured;
  std::vector<float> sorted = worst;
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(kBelowLimit * static_cast<double>(sorted.size()));
  std::nth_element(sorted.begin(), at, sorted.end());
  measured.limit = static_cast<double>(*at);
  for (size_t call = 0; call < worst.size(); ++call) {
    const auto value = static_cast<double>(worst[call]);
    if (value > measured.limit) measured.kept.push_back({value, call});
  }
  return measured;
}

}  // namespace sdcguard

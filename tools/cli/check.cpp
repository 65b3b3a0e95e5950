// SPDX-License-Identifier: MIT
// sdcguard check: takes the devices of this machine, gives each a verdict on its arithmetic and memory, keeps the
// evidence of a wrong number.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "config/units.h"
#include "tools/cli/commands.h"
#include "tools/cli/installation.h"
#include "tools/cli/progress.h"
#include "tools/measure/health.h"

namespace sdcguard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBarWidth = 24;

// Of Health, in its order.
constexpr int kExitCodes[] = {0, 2, 4, 3, 1};

struct Checked {
  DeviceIdentity identity;
  std::vector<StageReport> stages;
  std::string evidence;  // file; empty: none
};

std::string hex_of(const std::vector<unsigned char>& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// null where it is not finite: JSON has no such number.
Json number_of(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json json_of(const StageReport& stage) {
  Json json = {{"stage", stage.name},
               {"verdict", kHealthNames[static_cast<size_t>(stage.health)]},
               {"what", stage.what},
               {"tests", stage.tests},
               {"seconds", stage.seconds}};
  if (stage.gmacs > 0) json["tflops"] = 2e-3 * stage.gmacs;
  if (!stage.wrong.empty()) json["wrong"] = stage.wrong.size();
  return json;
}

Json json_of(const Checked& checked) {
  const DeviceIdentity& id = checked.identity;
  Json stages = Json::array();
  for (const StageReport& stage : checked.stages) stages.push_back(json_of(stage));
  Json json = {{"gpu", id.name},
               {"uuid", id.uuid},
               {"driver", id.driver},
               {"cublas", id.cublas},
               {"compute_capability", std::to_string(id.compute_major) + "." + std::to_string(id.compute_minor)},
               {"multiprocessors", id.sm_count},
               {"memory_bytes", id.memory_bytes},
               {"simulated", id.simulated},
               {"verdict", kHealthNames[static_cast<size_t>(health_of(checked.stages))]},
               {"stages", stages}};
  if (!checked.evidence.empty()) json["evidence"] = checked.evidence;
  return json;
}

// One file with all that was wrong: the numbers, and the operands in their own bits. Its path; empty: none was wrong.
std::string keep_evidence(const std::string& folder, const Checked& checked, std::string* error) {
  Json all = Json::array();
  for (const StageReport& stage : checked.stages) {
    for (const WrongNumber& wrong : stage.wrong) {
      all.push_back({{"stage", stage.name},
                     {"where", wrong.where},
                     {"got", number_of(wrong.got)},
                     {"expected", number_of(wrong.expected)},
                     {"bound", number_of(wrong.bound)},
                     {"operands", wrong.operands},
                     {"a_row", hex_of(wrong.a)},
                     {"b_column", hex_of(wrong.b)}});
    }
  }
  if (all.empty()) return "";
  const time_t now = time(nullptr);
  tm utc{};
  gmtime_r(&now, &utc);
  char when[32];
  strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &utc);
  const std::string path = folder + "/sdcguard-check-" + checked.identity.uuid + "-" + when + ".json";
  Json document = json_of(checked);
  document["made"] = when;
  document["wrong"] = all;
  std::ofstream out(path);
  out << document.dump(1) << "\n";
  out.close();
  if (out) return path;
  *error = path + ": cannot be written; the evidence is lost";
  return "";
}

void print(const Checked& checked) {
  const DeviceIdentity& id = checked.identity;
  printf("%s (%s), driver %d, cuBLAS %d\n", id.name.c_str(), id.uuid.c_str(), id.driver, id.cublas);
  if (id.simulated) printf("  a simulated device: this says nothing of a GPU\n");
  for (const StageReport& stage : checked.stages) {
    printf("  %-12s %-12s %6.1f s  %s\n", stage.name.c_str(), kHealthNames[static_cast<size_t>(stage.health)],
           stage.seconds, stage.what.c_str());
  }
  if (!checked.evidence.empty()) printf("  evidence     %s\n", checked.evidence.c_str());
  printf("%s\n", kHealthNames[static_cast<size_t>(health_of(checked.stages))]);
}

// Devices that should be as fast as one another: of one name, and as large (MIG instances differ).
void compare_speeds(std::vector<Checked>* all) {
  std::map<std::pair<std::string, int>, std::vector<std::vector<StageReport>*>> peers;
  for (Checked& checked : *all) {
    const DeviceIdentity& id = checked.identity;
    if (!id.simulated) peers[{id.name, id.sm_count}].push_back(&checked.stages);
  }
  for (const auto& [key, devices] : peers) suspect_slow(devices);
}

}  // namespace

int check_command(const CheckOptions& options) {
  HealthOptions health;
  health.shapes = options.shapes;
  health.seconds = 60 * options.minutes;
  health.seed = options.seed;
  for (const std::string& text : options.shapes) {
    ProductShape shape{};
    if (parse_shape(text, &shape)) continue;
    fprintf(stderr, "sdcguard: check: --shape %s: must be MxNxK, each from 1 to 1048576\n", text.c_str());
    return 2;
  }
  if (!options.memory.empty()) {
    const auto bytes = parse_bytes(options.memory);
    if (!bytes || bytes->bytes < 8) {
      fprintf(stderr, "sdcguard: check: --memory %s: must be a size such as \"8 GiB\"\n", options.memory.c_str());
      return 2;
    }
    health.memory_bytes = bytes->bytes;
  }
  std::string error;
  if (!options.profile.empty() && !read_profiles(options.profile, &health.profiles, &error)) {
    fprintf(stderr, "sdcguard: check: %s\n", error.c_str());
    return 2;
  }
  if (access(options.evidence.c_str(), W_OK) != 0) {
    fprintf(stderr, "sdcguard: check: --evidence %s: must be a folder that can be written to\n",
            options.evidence.c_str());
    return 2;
  }

  const Installation pieces = find_installation();
  const std::string libraries = options.hostcuda ? pieces.hostcuda : "";
  std::vector<Checked> all;
  Health worst = Health::kPass;
  try {
    std::vector<int> devices = options.devices;
    for (int i = 0; options.devices.empty() && i < Device::count(libraries); ++i) devices.push_back(i);
    if (devices.empty()) throw DeviceError("no device here");
    for (const int ordinal : devices) {
      Device device(ordinal, libraries);
      Checked& checked = all.emplace_back();
      checked.identity = device.identity();
      checked.stages = check_health(device, health, [&](const std::string& stage, double done) {
        const int full = static_cast<int>(done * kBarWidth);
        progress("device %d [%.*s%.*s] %3.0f%% %s", ordinal, full, "########################", kBarWidth - full,
                 "........................", 100 * done, stage.c_str());
      });
      progress("%s", "");
    }
  } catch (const DeviceError& refused) {
    progress("%s", "");
    fprintf(stderr, "sdcguard: check: %s\n", refused.what());
    if (all.empty()) return 2;
    worst = Health::kIncomplete;  // of the devices that were asked for not all were checked
  }
  compare_speeds(&all);

  Json devices = Json::array();
  bool kept = true;
  for (Checked& checked : all) {
    error.clear();
    checked.evidence = keep_evidence(options.evidence, checked, &error);
    if (!error.empty()) {
      fprintf(stderr, "sdcguard: check: %s\n", error.c_str());
      kept = false;
    }
    worst = std::max(worst, health_of(checked.stages));
    if (!options.json) print(checked);
    devices.push_back(json_of(checked));
  }
  if (options.json) {
    printf("%s\n", Json{{"verdict", kHealthNames[static_cast<size_t>(worst)]}, {"devices", devices}}.dump().c_str());
  }
  return kept ? kExitCodes[static_cast<size_t>(worst)] : 1;
}

}  // namespace sdcguard

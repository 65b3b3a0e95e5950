// SPDX-License-Identifier: MIT
// sdcguard calibrate: takes clean products, computed for it on a device or met in the rings of guarded processes, gives
// the tail of their noise, the threshold of a stated rate, and a profile of both.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/plan.h"
#include "tools/calibrate/harvest.h"
#include "tools/calibrate/profile.h"
#include "tools/calibrate/tail_plot.h"
#include "tools/cli/commands.h"
#include "tools/cli/installation.h"
#include "tools/cli/progress.h"
#include "tools/measure/product_probe.h"

namespace sdcguard {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kDrawsOfProduct = 4;  // checks of one product, each with sign draws of its own
constexpr double kLooksAllowed = 1e-4;   // of clean products (kernels/MATH.md "look")
constexpr double kNoisyShare = 1e-3;  // looks beyond this share: not the noise that the check is made for (DESIGN.md 4)
constexpr uint64_t kFewLooks = 2;     // say nothing about a share
constexpr float kKeptFrom = 3;        // what lies above is kept until the limit is known
constexpr int kPollMs = 100;          // of the rings
constexpr double kTableCells[] = {64, 512, 4096, 32768, 65536, 1048576};
// Cells of every class count, sums of few and of many steps. The host device computes on CPUs: smaller ones.
constexpr const char* kShapes[] = {"4096x4096x4096", "14336x512x4096", "4096x64x14336", "1024x2048x1024"};
constexpr const char* kSimulatedShapes[] = {"256x256x256", "512x128x384", "1024x64x512", "130x200x1000"};

// What there is to conclude from.
struct Measurement {
  Profile profile;
  Exceedances measured;
};

std::string utc_now() {
  const time_t now = time(nullptr);
  tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Above the limit that one value in 1 / kTailShare passes: the tail and no more.
void raise_limit(Exceedances* measured) {
  const auto allowed = static_cast<size_t>(kTailShare * static_cast<double>(measured->values));
  if (measured->kept.size() <= allowed || allowed == 0) return;
  std::vector<Exceedance>& kept = measured->kept;
  std::nth_element(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(allowed), kept.end(),
                   [](const Exceedance& a, const Exceedance& b) { return a.value > b.value; });
  measured->limit = kept[allowed].value;
  std::erase_if(kept, [measured](const Exceedance& one) { return one.value <= measured->limit; });
}

// Products of every shape and kind in turn, until so many cells were measured. False: an entry was named.
bool measure_products(const CalibrateOptions& options, const ProductType& type, const std::vector<DataKind>& kinds,
                      Measurement* out) {
  const Installation pieces = find_installation();
  Device device(options.device, options.hostcuda ? pieces.hostcuda : "");
  const DeviceIdentity& identity = device.identity();
  Profile& profile = out->profile;
  profile.key = {identity.name, identity.sm_count, identity.driver, identity.cublas, type.name, identity.order, "line"};
  profile.simulated = identity.simulated;
  profile.uuid = identity.uuid;
  profile.source = "products";
  profile.shapes = options.shapes;
  if (profile.shapes.empty() && identity.simulated)
    profile.shapes.assign(std::begin(kSimulatedShapes), std::end(kSimulatedShapes));
  if (profile.shapes.empty()) profile.shapes.assign(std::begin(kShapes), std::end(kShapes));
  for (const DataKind kind : kinds) profile.kinds.emplace_back(kDataKindNames[static_cast<size_t>(kind)]);

  std::vector<std::unique_ptr<ProductProbe>> sources;
  for (const std::string& text : profile.shapes) {
    ProductShape shape{};
    parse_shape(text, &shape);
    sources.push_back(std::make_unique<ProductProbe>(device, type, shape));
    if (sources.back()->cells() == 0) {
      throw DeviceError(sources.back()->name() +
                        ": too small, it would be recomputed outright; its noise is not measured");
    }
    profile.tests = std::max(profile.tests, static_cast<double>(sources.back()->cells()));
  }
  out->measured.limit = static_cast<double>(kKeptFrom);
  ProbedProduct probed;
  for (uint64_t product = 0; out->measured.values < options.cells; ++product) {
    ProductProbe& source = *sources[product % sources.size()];
    const DataKind kind = kinds[product / sources.size() % kinds.size()];
    if (!source.compute(kind, options.seed + product)) {
      throw DeviceError(source.name() + ": not supported by cuBLAS on " + identity.name);
    }
    ++profile.products;
    for (uint64_t draw = 0; draw < kDrawsOfProduct; ++draw) {
      source.probe((options.seed + product) * kDrawsOfProduct + draw, &probed);
      if (probed.entries_named > 0) {
        progress("%s", "");
        fprintf(stderr,
                "sdcguard: calibrate: %" PRIu64 " entries of a %s product of %s data, shape %s, seed %" PRIu64
                " are wrong on %s (%s): it is no healthy device to measure noise on\n",
                probed.entries_named, type.name, kDataKindNames[static_cast<size_t>(kind)],
                profile.shapes[product % sources.size()].c_str(), options.seed + product, identity.name.c_str(),
                identity.uuid.c_str());
        return false;
      }
      profile.looks += !probed.lines_dirty.empty() ? 1 : 0;
      out->measured.values += probed.ratios.size();
      for (const float ratio : probed.ratios) {
        if (ratio > kKeptFrom) out->measured.kept.push_back({static_cast<double>(ratio), product});
      }
    }
    progress("%" PRIu64 " of %" PRIu64 " cells, %" PRIu64 " products", out->measured.values, options.cells,
             profile.products);
  }
  progress("%s", "");
  const uint64_t checks = profile.products * kDrawsOfProduct;
  if (profile.looks > std::max(kFewLooks, static_cast<uint64_t>(kNoisyShare * static_cast<double>(checks)))) {
    fprintf(
        stderr,
        "sdcguard: calibrate: %" PRIu64 " of %" PRIu64
        " checks of clean products on %s (%s) had a line over the look threshold, one in 1,000 may: their noise is not "
        "that of a healthy device\n",
        profile.looks, checks, identity.name.c_str(), identity.uuid.c_str());
    return false;
  }
  out->measured.products = profile.products;
  raise_limit(&out->measured);
  return true;
}

class RingSink : public RecordSink {
 public:
  RingSink(Harvest* harvest, const RingState* state) : harvest_(harvest), state_(state) {}
  void on_call(const CallRecord& call, bool) override { harvest_->add(*state_, call); }
  void on_fault(const FaultRecord&) override {}

 private:
  Harvest* harvest_;
  const RingState* state_;
};

// Calls of the guarded processes for so many seconds, from those whose records are still there on.
std::vector<Measurement> measure_ring(const std::string& ring_dir, double seconds, Harvest* harvest) {
  using Clock = std::chrono::steady_clock;
  const auto started = Clock::now();
  std::map<std::string, std::unique_ptr<RingReader>> rings;
  uint64_t calls = 0;
  for (bool last = false; !last;) {
    const auto since = Clock::now() - started;
    last = since >= std::chrono::duration<double>(seconds);
    for (const std::string& path : list_rings(ring_dir)) {
      if (rings.count(path) != 0) continue;
      AttachStatus status;
      auto reader = RingReader::attach(path, &status);
      if (reader != nullptr) rings.emplace(path, std::move(reader));
    }
    for (const auto& [path, reader] : rings) {
      reader->refresh();
      RingSink sink(harvest, &reader->state());
      reader->drain(sink, static_cast<uint64_t>(Clock::now().time_since_epoch().count()), last);
    }
    calls = 0;
    for (const Harvested& one : harvest->found()) calls += one.calls;
    progress("%" PRIu64 " calls of %zu processes", calls, rings.size());
    if (!last) usleep(kPollMs * 1000);
  }
  progress("%s", "");
  std::vector<Measurement> measurements;
  for (const Harvested& one : harvest->found()) {
    Measurement m;
    m.profile.key = one.key;
    m.profile.simulated = one.simulated;
    m.profile.uuid = one.uuid;
    m.profile.source = "ring";
    m.profile.shapes.assign(one.shapes.begin(), one.shapes.end());
    m.profile.kinds = {"as met"};
    m.profile.products = one.calls;
    m.profile.looks = one.looks;
    m.profile.tests = one.most_cells;
    m.measured = one.exceedances();
    measurements.push_back(std::move(m));
  }
  return measurements;
}

Json json_of(const Profile& profile, const Exceedances& measured) {
  Json fits = Json::array();
  for (const TailFit& fit : profile.tail.fits) {
    fits.push_back({{"limit", fit.limit},
                    {"above", fit.above},
                    {"xi", fit.shape.xi},
                    {"scale", fit.shape.scale},
                    {"threshold", fit.threshold},
                    {"upper", fit.upper}});
  }
  Json looks = Json::array();
  for (const double cells : kTableCells) {
    looks.push_back(
        {{"cells", cells}, {"tail", threshold_at(profile, kLooksAllowed / cells)}, {"in_force", look_scale_of(cells)}});
  }
  return {{"gpu", profile.key.gpu},
          {"multiprocessors", profile.key.multiprocessors},
          {"driver", profile.key.driver},
          {"cublas", profile.key.cublas},
          {"type", profile.key.type},
          {"order", profile.key.order},
          {"plan", profile.key.plan},
          {"simulated", profile.simulated},
          {"uuid", profile.uuid},
          {"source", profile.source},
          {"products", profile.products},
          {"cells", measured.values},
          {"looks", profile.looks},
          {"limit", measured.limit},
          {"kept", measured.kept.size()},
          {"rate", profile.rate},
          {"tests", profile.tests},
          {"threshold", profile.tail.threshold},
          {"confidence", kTailConfidence},
          {"decades", profile.tail.decades},
          {"dispersion", profile.tail.dispersion},
          {"fits", fits},
          {"looks_at", looks},
          {"warnings", profile.tail.warnings}};
}

void print(const Profile& profile, const Exceedances& measured) {
  const ProfileKey& key = profile.key;
  printf("%s, %d multiprocessors (%s), driver %s, cuBLAS %d: %s, order %s, %s plan\n", key.gpu.c_str(),
         key.multiprocessors, profile.uuid.c_str(), version_text(key.driver).c_str(), key.cublas, key.type.c_str(),
         key.order.c_str(), key.plan.c_str());
  if (profile.simulated) printf("  a simulated device: this profile says nothing of a GPU\n");
  printf("  measured   %" PRIu64 " products, %" PRIu64 " cells, %zu beyond %.3f; looked at %" PRIu64
         " times, nothing wrong\n",
         profile.products, measured.values, measured.kept.size(), measured.limit, profile.looks);
  for (const TailFit& fit : profile.tail.fits) {
    printf("  tail       beyond %.3f: %" PRIu64 " values, xi %.3f, scale %.3f: threshold %.2f, at most %.2f\n",
           fit.limit, fit.above, fit.shape.xi, fit.shape.scale, fit.threshold, fit.upper);
  }
  printf(
      "  threshold  %.2f sigma for %.3g false alarms of a product of %.0f cells, with %.0f%% confidence;\n"
      "             %.1f decades beyond what was measured\n",
      profile.tail.threshold, profile.rate, profile.tests, 100 * kTailConfidence, std::max(0.0, profile.tail.decades));
  printf("  scatter    exceedances of a product vary by %.2f times a binomial's variance\n", profile.tail.dispersion);
  printf("  looks      one product in %.0f, by cells:", 1 / kLooksAllowed);
  for (const double cells : kTableCells) {
    printf(" %.0f: %.1f (in force %.1f)", cells, threshold_at(profile, kLooksAllowed / cells), look_scale_of(cells));
  }
  printf("\n");
  for (const std::string& warning : profile.tail.warnings) printf("  doubt      %s\n", warning.c_str());
}

// Fits, shows and keeps. False, after one line on stderr: no threshold, or a file that could not be written.
bool conclude(const CalibrateOptions& options, Measurement& m, Json* all) {
  Profile& profile = m.profile;
  profile.rate = options.rate;
  profile.values = m.measured.values;
  profile.made = utc_now();
  std::string error;
  if (!fit_tail(m.measured, options.rate, profile.tests, options.seed, &profile.tail, &error)) {
    fprintf(stderr, "sdcguard: calibrate: %s on %s: %s\n", profile.key.type.c_str(), profile.key.gpu.c_str(),
            error.c_str());
    return false;
  }
  if (options.json) {
    all->push_back(json_of(profile, m.measured));
  } else {
    print(profile, m.measured);
  }
  if (!options.plot.empty()) {
    const std::string title = profile.key.gpu + ", cuBLAS " + std::to_string(profile.key.cublas) + ", " +
                              profile.key.type + ", order " + profile.key.order;
    const std::string note = std::to_string(profile.products) + " clean products, " +
                             std::to_string(m.measured.values) + " cells" +
                             (profile.simulated ? "; a simulated device" : "");
    std::ofstream out(options.plot);
    out << tail_svg(m.measured, profile.tail, title, note);
    out.close();
    if (!out) {
      fprintf(stderr, "sdcguard: calibrate: %s: cannot be written\n", options.plot.c_str());
      return false;
    }
  }
  if (!options.profile.empty()) {
    if (!write_profile(options.profile, profile, &error)) {
      fprintf(stderr, "sdcguard: calibrate: %s\n", error.c_str());
      return false;
    }
    if (!options.json) printf("  written    %s\n", options.profile.c_str());
  }
  return true;
}

}  // namespace

int calibrate_command(const CalibrateOptions& options) {
  const ProductType* const type = product_type_named(options.type);
  if (type == nullptr || type->accumulator == Accumulator::kI32) {
    fprintf(stderr, "sdcguard: calibrate: --type %s: must be bf16, fp16, tf32, fp32, fp64 or e4m3%s\n",
            options.type.c_str(), type == nullptr ? "" : " (INT8 is checked exactly)");
    return 2;
  }
  std::vector<DataKind> kinds;
  for (const std::string& name : options.kinds) {
    if (!data_kind_named(name, &kinds.emplace_back())) {
      fprintf(stderr, "sdcguard: calibrate: --kind %s: must be gaussian, positive, outlier-channels, relu or bias\n",
              name.c_str());
      return 2;
    }
  }
  if (kinds.empty()) {
    for (int k = 0; k < kDataKindCount; ++k) kinds.push_back(static_cast<DataKind>(k));
  }
  for (const std::string& text : options.shapes) {
    ProductShape shape{};
    if (parse_shape(text, &shape)) continue;
    fprintf(stderr, "sdcguard: calibrate: --shape %s: must be MxNxK, each from 1 to 1048576\n", text.c_str());
    return 2;
  }
  std::string error;
  std::vector<Profile> there;
  if (!options.profile.empty() && access(options.profile.c_str(), F_OK) == 0 &&
      !read_profiles(options.profile, &there, &error)) {  // before the work, not after it
    fprintf(stderr, "sdcguard: calibrate: %s\n", error.c_str());
    return 2;
  }

  std::vector<Measurement> measurements;
  Harvest harvest;
  if (options.ring) {
    const std::string ring_dir = ring_dir_or_default(options.ring_dir);
    if (ring_dir.empty()) return 2;
    measurements = measure_ring(ring_dir, options.seconds, &harvest);
    if (measurements.empty()) {
      fprintf(stderr, "sdcguard: calibrate: no clean call to measure in %s (%" PRIu64 " others)\n", ring_dir.c_str(),
              harvest.left_out());
      return 1;
    }
  } else {
    measurements.emplace_back();
    try {
      if (!measure_products(options, *type, kinds, &measurements.back())) return 1;
    } catch (const DeviceError& refused) {
      fprintf(stderr, "sdcguard: calibrate: %s\n", refused.what());
      return 2;
    }
  }
  bool good = true;
  Json all = Json::array();
  for (Measurement& m : measurements) good = conclude(options, m, &all) && good;
  if (options.json) printf("%s\n", all.dump().c_str());
  return good ? 0 : 1;
}

}  // namespace sdcguard

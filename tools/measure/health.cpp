// SPDX-License-Identifier: MIT
#include "tools/measure/health.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include "tools/measure/host_line.h"
#include "tools/measure/memory_pattern.h"
#include "tools/measure/product_probe.h"

namespace sdcguard {
namespace {

using Clock = std::chrono::steady_clock;

// A transformer's projections with many tokens, with few, and a square one. The host device computes on CPUs.
constexpr const char* kShapes[] = {"14336x4096x4096", "4096x64x14336", "4096x4096x4096"};
constexpr const char* kSimulatedShapes[] = {"384x128x256", "256x64x512", "256x256x256"};
constexpr DataKind kKinds[] = {DataKind::kGaussian, DataKind::kPositive, DataKind::kOutlierChannels};
constexpr int kHostLines = 4;           // of a product, computed on the CPU
constexpr int64_t kHostColumns = 1024;  // of each, spread over it: hundreds are enough for its own scale
constexpr double kSlow = 0.9;           // of the median speed of its peers
constexpr size_t kPeersNeeded = 3;      // for a median
constexpr int kRepeats = 5;             // of the same product
constexpr int kTimed = 7;               // products
constexpr uint64_t kSimulatedMemory = uint64_t{64} << 20;
constexpr double kMemoryShare = 0.9;  // of what is free

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string text(const char* format, auto... values) {
  char line[512];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

class Checkup {
 public:
  Checkup(Device& device, const HealthOptions& options, const HealthProgress& progress)
      : device_(device), options_(options), progress_(progress), began_(Clock::now()), random_(options.seed) {
    std::vector<std::string> shapes = options.shapes;
    const bool simulated = device.identity().simulated;
    if (shapes.empty() && simulated) shapes.assign(std::begin(kSimulatedShapes), std::end(kSimulatedShapes));
    if (shapes.empty()) shapes.assign(std::begin(kShapes), std::end(kShapes));
    for (const std::string& shape : shapes) parse_shape(shape, &shapes_.emplace_back());
    const double products = static_cast<double>(std::size(kKinds) * shapes_.size());
    steps_ = static_cast<double>(std::size(kProductTypes)) * (products + 2) + kMemoryPatternCount;
  }

  std::vector<StageReport> run() {
    for (const ProductType& type : kProductTypes) {
      bool supported = true;
      stage(type.name, [&](StageReport* report) { products(type, report, &supported); });
      if (!supported) {
        done_ += 2;
        continue;
      }
      stage(std::string("repeat ") + type.name, [&](StageReport* report) { repeats(type, report); });
      stage(std::string("speed ") + type.name, [&](StageReport* report) { speed(type, report); });
    }
    stage("memory", [&](StageReport* report) { memory(report); });
    return std::move(stages_);
  }

 private:
  void stage(const std::string& name, const std::function<void(StageReport*)>& work) {
    StageReport report;
    report.name = name;
    const auto begin = Clock::now();
    if (since(began_) > options_.seconds) {
      report.health = Health::kIncomplete;
      report.what = text("not begun: %.0f s were over", options_.seconds);
    } else {
      try {
        work(&report);
      } catch (const DeviceError& error) {
        if (report.health < Health::kIncomplete) report.health = Health::kIncomplete;
        report.what = error.what();
      }
    }
    report.seconds = since(begin);
    stages_.push_back(std::move(report));
  }

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void step(const std::string& name) {
    progress_(name, std::min(1.0, done_ / steps_));
    done_ += 1;
  }

  const Profile* profile_of(const ProductType& type) const {
    const DeviceIdentity& id = device_.identity();
    const ProfileKey key{id.name, id.sm_count, id.driver, id.cublas, type.name, id.order, "line"};
    for (const Profile& profile : options_.profiles) {
      if (profile.key == key) return &profile;
    }
    return nullptr;
  }

  // Every product of the type: by the kernels whole, by the CPU a few lines.
  void products(const ProductType& type, StageReport* report, bool* supported) {
    const Profile* const profile = profile_of(type);
    uint64_t count = 0, looks = 0;
    double worst = 0;
    for (const ProductShape& shape : shapes_) {
      for (const DataKind kind : kKinds) {
        step(type.name);
        ProductProbe probe(device_, type, shape);
        const uint64_t seed = options_.seed + count++;
        if (!probe.compute(kind, seed)) {
          *supported = false;
          report->what = "not supported here";
          return;
        }
        const std::string where =
            probe.name() + ", " + kDataKindNames[static_cast<size_t>(kind)] + ", seed " + std::to_string(seed);
        std::vector<unsigned char> product;
        probe.read(&product);
        // Before our own kernels: what they cannot do does not keep the CPU from seeing it.
        for (int i = 0; i < kHostLines; ++i) {
          const int64_t step_wide = std::max<int64_t>(1, shape.n3 / kHostColumns);
          compare(probe, product, below(shape.n1), below(step_wide), step_wide, where, report);
        }
        ProbedProduct probed;
        probe.probe(seed, &probed);
        report->tests += probe.cells();
        looks += !probed.lines_dirty.empty() ? 1 : 0;
        worst = std::max(worst, static_cast<double>(probed.worst));
        const size_t wrong_before = report->wrong.size();
        if (probed.entries_named > 0) {
          for (const uint32_t line : probed.lines_dirty) compare(probe, product, line, 0, 1, where, report);
          if (report->wrong.size() == wrong_before && report->health < Health::kFail) {
            suspect(report, where + text(": %" PRIu64 " entries differ from their recomputation on the device, and the "
                                         "CPU agrees with the product: it is the recomputation that is wrong",
                                         probed.entries_named));
          }
        } else if (profile != nullptr && probe.cells() > 0) {
          const double tests = static_cast<double>(probe.cells());
          const double threshold = std::max(profile->tail.threshold, threshold_at(*profile, options_.rate / tests));
          if (!(static_cast<double>(probed.worst) <= threshold)) {
            suspect(report, where + text(": a cell at %.2f sigma, clean ones pass %.2f once in %.0e products; no entry "
                                         "is wrong beyond its bound",
                                         static_cast<double>(probed.worst), threshold, 1 / options_.rate));
          }
        }
      }
    }
    if (report->health > Health::kInconclusive) return;
    report->what = text("%" PRIu64 " products, %" PRIu64 " looked at, worst cell %.2f sigma", count, looks, worst);
    if (type.accumulator == Accumulator::kI32) {
      report->what = text("%" PRIu64 " products, exact", count);
    } else if (profile == nullptr) {
      report->health = Health::kInconclusive;
      report->what += "; no noise profile (sdcguard calibrate --type " + std::string(type.name) + ")";
    }
  }

  static void suspect(StageReport* report, const std::string& what) {
    if (report->health >= Health::kSuspect) return;
    report->health = Health::kSuspect;
    report->what = what;
  }

  // Part of a line against the CPU. A wrong entry is a FAIL, with its evidence.
  static void compare(const ProductProbe& probe, const std::vector<unsigned char>& product, int64_t line, int64_t first,
                      int64_t step, const std::string& where, StageReport* report) {
    const std::vector<HostEntry> entries = host_line(probe, product, line, first, step);
    report->tests += entries.size();
    for (const HostEntry& entry : entries) {
      if (is_wrong(entry)) keep(probe, entry, line, where, report);
    }
  }

  static void keep(const ProductProbe& probe, const HostEntry& entry, int64_t line, const std::string& where,
                   StageReport* report) {
    const size_t bytes = static_cast<size_t>(probe.shape().n2) * element_bytes(probe.type().operands);
    WrongNumber wrong;
    wrong.where = where + text(", row %" PRId64 " of C, column %" PRId64, entry.column, line);
    wrong.got = entry.got;
    wrong.expected = entry.expected;
    wrong.bound = entry.bound;
    wrong.operands = name_of(probe.type().operands);
    const auto part = [bytes](const std::vector<unsigned char>& all, size_t index) {
      return std::vector<unsigned char>(&all[index * bytes], &all[index * bytes] + bytes);
    };
    wrong.a = part(probe.operands().a, static_cast<size_t>(line));
    wrong.b = part(probe.operands().b, static_cast<size_t>(entry.column));
    if (report->health < Health::kFail) {
      report->health = Health::kFail;
      report->what = wrong.where + text(": %.9g, the CPU has %.9g, at most %.3g apart would be right", wrong.got,
                                        wrong.expected, wrong.bound);
    }
    const auto same = [&wrong](const WrongNumber& one) { return one.where == wrong.where && one.got == wrong.got; };
    if (std::any_of(report->wrong.begin(), report->wrong.end(), same)) return;  // seen by the CPU and by the kernels
    if (report->wrong.size() < kWrongKept) report->wrong.push_back(std::move(wrong));
  }

  // The same product again and again: the library gives the same bits for the same call on one stream.
  void repeats(const ProductType& type, StageReport* report) {
    step(report->name);
    ProductProbe probe(device_, type, shapes_.back());
    if (!probe.compute(DataKind::kGaussian, options_.seed)) throw DeviceError("the library refused it this time");
    std::vector<unsigned char> first, again;
    probe.read(&first);
    const size_t size = element_bytes(probe.params().p.type);
    const std::string where = probe.name() + ", gaussian, seed " + std::to_string(options_.seed);
    for (int repeat = 1; repeat < kRepeats; ++repeat) {
      if (!probe.compute_again()) throw DeviceError("the library refused it this time");
      probe.read(&again);
      report->tests += first.size() / size;
      if (first == again) continue;
      size_t at = 0;
      while (std::memcmp(&first[at * size], &again[at * size], size) == 0) ++at;
      const auto line = static_cast<int64_t>(at) / probe.shape().n3;
      compare(probe, again, line, 0, 1, where, report);
      compare(probe, first, line, 0, 1, where, report);
      suspect(report, where + text(": repeat %d differs in row %" PRId64 " of C, column %" PRId64
                                   ", both within the bound of a right product",
                                   repeat, static_cast<int64_t>(at) % probe.shape().n3, line));
      return;
    }
    report->what = text("%d times the same bits", kRepeats);
  }

  void speed(const ProductType& type, StageReport* report) {
    step(report->name);
    const ProductShape& shape = shapes_.front();
    ProductProbe probe(device_, type, shape);
    if (!probe.compute(DataKind::kGaussian, options_.seed)) throw DeviceError("the library refused it this time");
    std::vector<double> times;
    for (int i = 0; i < kTimed; ++i) {
      const auto begin = Clock::now();
      if (!probe.compute_again()) throw DeviceError("the library refused it this time");
      times.push_back(since(begin));
    }
    std::sort(times.begin(), times.end());
    report->gmacs = 1e-9 * static_cast<double>(shape.n1) * static_cast<double>(shape.n2) *
                    static_cast<double>(shape.n3) / times[kTimed / 2];
    report->what = probe.name() + text(": %.4g ms, %.4g TFLOP/s", 1e3 * times[kTimed / 2], 2e-3 * report->gmacs);
  }

  void memory(StageReport* report) {
    uint64_t bytes = options_.memory_bytes;
    if (bytes == 0 && device_.identity().simulated) bytes = kSimulatedMemory;
    if (bytes == 0) bytes = static_cast<uint64_t>(kMemoryShare * static_cast<double>(device_.free_bytes()));
    bytes = bytes / 8 * 8;
    const DeviceMemory range(device_, bytes);
    const MemoryRange access{
        bytes,
        [&](uint64_t offset, const void* from, uint64_t count) {
          device_.write(range.address() + offset, from, count);
        },
        [&](void* to, uint64_t offset, uint64_t count) { device_.read(to, range.address() + offset, count); }};
    for (int p = 0; p < kMemoryPatternCount; ++p) {
      step("memory");
      const auto fault = memory_fault(access, static_cast<MemoryPattern>(p), options_.seed);
      report->tests += bytes / 8;
      if (!fault) continue;
      report->health = Health::kFail;
      report->what = text("%s at byte %" PRIu64 " of %" PRIu64 ": 0x%016" PRIx64 ", written 0x%016" PRIx64,
                          kMemoryPatternNames[p], fault->offset, bytes, fault->got, fault->expected);
      return;
    }
    report->what = text("%.1f MiB, %d patterns", static_cast<double>(bytes) / 0x1p20, kMemoryPatternCount);
  }

  Device& device_;
  const HealthOptions& options_;
  const HealthProgress& progress_;
  const Clock::time_point began_;
  std::mt19937_64 random_;
  std::vector<ProductShape> shapes_;
  std::vector<StageReport> stages_;
  double steps_ = 1, done_ = 0;
};

}  // namespace

std::vector<StageReport> check_health(Device& device, const HealthOptions& options, const HealthProgress& progress) {
  return Checkup(device, options, progress).run();
}

void suspect_slow(const std::vector<std::vector<StageReport>*>& devices) {
  for (std::vector<StageReport>* const device : devices) {
    for (StageReport& stage : *device) {
      std::vector<double> speeds;
      for (const std::vector<StageReport>* const peer : devices) {
        for (const StageReport& same : *peer) {
          if (same.name == stage.name && same.gmacs > 0) speeds.push_back(same.gmacs);
        }
      }
      if (!(stage.gmacs > 0) || speeds.size() < kPeersNeeded || stage.health >= Health::kSuspect) continue;
      std::sort(speeds.begin(), speeds.end());
      const double share = stage.gmacs / speeds[speeds.size() / 2];
      if (share >= kSlow) continue;
      stage.health = Health::kSuspect;
      stage.what += text("; %.2f of the median of %zu devices of its name", share, speeds.size());
    }
  }
}

Health health_of(const std::vector<StageReport>& stages) {
  Health health = stages.empty() ? Health::kIncomplete : Health::kPass;
  for (const StageReport& stage : stages) health = std::max(health, stage.health);
  return health;
}

}  // namespace sdcguard

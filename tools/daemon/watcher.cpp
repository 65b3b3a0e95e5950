// SPDX-License-Identifier: MIT
// Watcher: takes a folder of rings, attaches every one, drains them pass by pass into the sink, and puts a ring away
// when its process has ended.
#include "tools/daemon/watcher.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/ring/json_lines.h"

namespace sdcguard {
namespace {

constexpr uint64_t kCoverageNs = 1'000'000'000;         // between two coverage lines of a busy process
constexpr uint64_t kForeignLivenessNs = 5'000'000'000;  // between two looks through all of /proc

}  // namespace

// One ring with what was made of it so far.
class Watcher::Watched : public JoinedSink {
 public:
  Watched(std::unique_ptr<RingReader> reader, JsonlSink& sink) : reader_(std::move(reader)), sink_(sink), join_(*this) {
    emit(process_json(state(), reader_->path(), "attached"));
    spdlog::info("attached pid {} rank {} mode {} rate {}: {}", state().process.pid, state().rank,
                 name_of(state().mode_in_force), state().rate, state().command);
  }

  // False: the ring is done with (its process has ended, or the file is broken).
  bool pass(uint64_t now_ns) {
    const bool dead = !writer_runs(now_ns);
    const bool readable = reader_->drain(join_, now_ns, dead);
    join_.settle(now_ns, dead || !readable);
    new_devices();
    new_losses();
    const bool done = dead || !readable;
    if (!done) {
      coverage(now_ns, false);
      return true;
    }
    coverage(now_ns, true);
    emit(process_json(state(), reader_->path(), "ended"));
    if (!readable && !dead) spdlog::warn("pid {}: {} can no longer be read", state().process.pid, reader_->path());
    spdlog::info("ended pid {}", state().process.pid);
    return false;
  }

  void report() { emit(coverage_json(state(), coverage_.totals(reader_->counters(), reader_->call_losses()), false)); }

  RingReader& reader() { return *reader_; }

  void on_call(const CallRecord& call, bool on_device) override {
    coverage_.add(call, on_device);
    emit(call_json(state(), call));
    if (call.outcome == Outcome::kCorrected || call.outcome == Outcome::kCorrupt) {
      spdlog::warn("pid {} rank {} device {}: {} m {} n {} k {}: {} wrong entries, {} repaired", state().process.pid,
                   state().rank, device_uuid(call.device), name_of(call.outcome), call.m, call.n, call.k,
                   call.entries_named, call.entries_repaired);
    }
  }

  void on_fault(const FaultRecord& fault, const CallRecord* call) override { emit(fault_json(state(), fault, call)); }

 private:
  const RingState& state() const { return reader_->state(); }

  void emit(const nlohmann::ordered_json& object) { sink_.write(line_of(object)); }

  std::string device_uuid(uint8_t slot) const {
    for (const DeviceSeen& device : state().devices) {
      if (device.slot == slot) return device.uuid;
    }
    return "unknown";
  }

  bool writer_runs(uint64_t now_ns) {
    const bool foreign = state().process.pid_namespace != own_pid_namespace();
    if (foreign && liveness_at_ns_ != 0 && now_ns - liveness_at_ns_ < kForeignLivenessNs) return true;
    liveness_at_ns_ = now_ns;
    return liveness_of(state().process) != Liveness::kDead;
  }

  void new_devices() {
    for (const DeviceSeen& device : state().devices) {
      if (std::find(devices_told_.begin(), devices_told_.end(), device.slot) != devices_told_.end()) continue;
      devices_told_.push_back(device.slot);
      emit(device_json(state(), device));
    }
  }

  void new_losses() {
    const auto tell = [this](const char* kind, const LossCounts& now, LossCounts* told) {
      if (now == *told) return;
      *told = now;
      emit(lost_json(state(), kind, now));
      spdlog::warn("pid {}: {} records: {} lost, {} torn, {} invalid", state().process.pid, kind, now.lost, now.torn,
                   now.invalid);
    };
    tell("calls", reader_->call_losses(), &call_losses_told_);
    tell("faults", reader_->fault_losses(), &fault_losses_told_);
  }

  void coverage(uint64_t now_ns, bool final) {
    if (!final && coverage_at_ns_ != 0 && now_ns - coverage_at_ns_ < kCoverageNs) return;
    const auto object = coverage_json(state(), coverage_.totals(reader_->counters(), reader_->call_losses()), final);
    std::string line = line_of(object);
    if (line == coverage_told_) return;
    coverage_at_ns_ = now_ns;
    sink_.write(line);
    coverage_told_ = std::move(line);
  }

  std::unique_ptr<RingReader> reader_;
  JsonlSink& sink_;
  FaultJoin join_;
  Coverage coverage_;
  std::vector<uint32_t> devices_told_;
  LossCounts call_losses_told_, fault_losses_told_;
  std::string coverage_told_;
  uint64_t coverage_at_ns_ = 0;
  uint64_t liveness_at_ns_ = 0;
};

Watcher::Watcher(WatcherOptions options, JsonlSink& sink) : options_(std::move(options)), sink_(sink) {}

Watcher::~Watcher() = default;

void Watcher::look_for_rings() {
  const std::vector<std::string> paths = list_rings(options_.ring_dir);
  std::erase_if(set_aside_,
                [&paths](const std::string& path) { return !std::binary_search(paths.begin(), paths.end(), path); });
  for (const std::string& path : paths) {
    if (rings_.count(path) != 0 || set_aside_.count(path) != 0) continue;
    AttachStatus status;
    auto reader = RingReader::attach(path, &status);
    if (reader != nullptr) {
      rings_.emplace(path, std::make_unique<Watched>(std::move(reader), sink_));
      ++ever_attached_;
    } else if (status != AttachStatus::kNotReady && status != AttachStatus::kMissing) {
      spdlog::warn("{}: {}: left alone", path, name_of(status));
      set_aside_.insert(path);
    }
  }
}

void Watcher::pass(uint64_t now_ns) {
  look_for_rings();
  for (auto it = rings_.begin(); it != rings_.end();) {
    Watched& ring = *it->second;
    if (ring.pass(now_ns)) {
      ++it;
      continue;
    }
    // What the sink could not take stays in the file for the next daemon.
    sink_.flush();
    const bool keep = options_.keep || !sink_.error().empty();
    if (keep || !ring.reader().unlink_file()) set_aside_.insert(it->first);
    it = rings_.erase(it);
  }
  sink_.flush();
  if (!sink_.error().empty() && !sink_failure_logged_) {
    sink_failure_logged_ = true;
    spdlog::error("the JSONL sink failed and is off: {}; rings of ended processes are kept", sink_.error());
  }
}

void Watcher::report() {
  for (auto& [path, ring] : rings_) ring->report();
  sink_.flush();
}

}  // namespace sdcguard

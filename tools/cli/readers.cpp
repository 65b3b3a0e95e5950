// SPDX-License-Identifier: MIT
// sdcguard tail, status, off and on: take the rings of a folder, say what is in them to a person or a machine. They
// read what the daemon reads, on their own, and put no ring away.
#include <inttypes.h>
#include <signal.h>
#include <time.h>

#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/cli/commands.h"
#include "tools/ring/coverage.h"
#include "tools/ring/fault_join.h"
#include "tools/ring/json_lines.h"
#include "tools/ring/ring_reader.h"
#include "tools/ring/unseen.h"

namespace sdcguard {
namespace {

constexpr int kFollowMs = 200;

uint64_t monotonic_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

std::string clock_text(uint64_t realtime_ns) {
  const auto seconds = static_cast<time_t>(realtime_ns / 1'000'000'000ull);
  tm local = {};
  localtime_r(&seconds, &local);
  char text[32];
  snprintf(text, sizeof(text), "%02d:%02d:%02d.%03d", local.tm_hour, local.tm_min, local.tm_sec,
           static_cast<int>(realtime_ns / 1'000'000 % 1000));
  return text;
}

std::string device_text(const RingState& state, uint8_t slot) {
  for (const DeviceSeen& device : state.devices) {
    if (device.slot == slot) return device.uuid;
  }
  return "GPU?";
}

// One ring as tail shows it.
class Tailed : public JoinedSink {
 public:
  Tailed(std::unique_ptr<RingReader> reader, const TailOptions& options)
      : reader_(std::move(reader)), options_(options), join_(*this) {}

  void pass(bool final) {
    reader_->drain(join_, monotonic_ns(), final);
    join_.settle(monotonic_ns(), final);
    const LossCounts& calls = reader_->call_losses();
    const LossCounts& faults = reader_->fault_losses();
    if (calls == calls_told_ && faults == faults_told_) return;
    calls_told_ = calls;
    faults_told_ = faults;
    if (options_.jsonl) {
      line(lost_json(reader_->state(), "calls", calls));
      line(lost_json(reader_->state(), "faults", faults));
    } else {
      printf("pid %d: records lost %" PRIu64 ", torn %" PRIu64 ", invalid %" PRIu64 "\n", reader_->state().process.pid,
             calls.lost + faults.lost, calls.torn + faults.torn, calls.invalid + faults.invalid);
    }
  }

  RingReader& reader() { return *reader_; }

  void on_call(const CallRecord& call, bool) override {
    if (options_.jsonl) return line(call_json(reader_->state(), call));
    if (call.outcome == Outcome::kClean && !options_.all) return;
    std::string outcome = name_of(call.outcome);
    if (call.reason != Reason::kNone) outcome.append("(").append(name_of(call.reason)).append(")");
    printf("%s pid %d rank %d %s %-10s %s m %" PRId64 " n %" PRId64 " k %" PRId64 " batch %" PRId64 " %s %s",
           clock_text(call.enqueued_ns).c_str(), reader_->state().process.pid, reader_->state().rank,
           device_text(reader_->state(), call.device).c_str(), outcome.c_str(), entry_name(call.entry), call.m, call.n,
           call.k, call.batch, name_of(call.type_d), name_of(call.plan));
    if (call.classes > 0)
      printf(" worst %.3g of %.3g", static_cast<double>(call.worst), static_cast<double>(call.threshold));
    if (call.entries_named > 0) {
      printf(" wrong %" PRIu64 " repaired %" PRIu64, call.entries_named, call.entries_repaired);
    }
    printf("\n");
  }

  void on_fault(const FaultRecord& fault, const CallRecord* call) override {
    if (options_.jsonl) return line(fault_json(reader_->state(), fault, call));
    printf("             pid %d rank %d %s WRONG row %" PRId64 " column %" PRId64 " batch %" PRId64
           " got %.9g expected %.9g bound %.3g%s\n",
           reader_->state().process.pid, reader_->state().rank, device_text(reader_->state(), fault.device).c_str(),
           fault.row, fault.column, fault.batch, static_cast<double>(fault.got), static_cast<double>(fault.expected),
           static_cast<double>(fault.bound), fault.repaired != 0 ? " repaired" : "");
  }

 private:
  static void line(const nlohmann::ordered_json& object) { printf("%s\n", line_of(object).c_str()); }

  std::unique_ptr<RingReader> reader_;
  const TailOptions& options_;
  FaultJoin join_;
  LossCounts calls_told_, faults_told_;
};

// One ring read once, for status.
struct Snapshot : JoinedSink {
  void on_call(const CallRecord& call, bool on_device) override { coverage.add(call, on_device); }
  void on_fault(const FaultRecord&, const CallRecord*) override {}
  Coverage coverage;
};

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

const char* word_of(Liveness liveness) {
  return liveness == Liveness::kAlive ? "running" : liveness == Liveness::kDead ? "ended" : "unknown";
}

void print_status(const RingState& state, Liveness liveness, const CoverageTotals& t, const LossCounts& calls,
                  const LossCounts& faults) {
  printf("pid %d rank %d %s: %s\n", state.process.pid, state.rank, word_of(liveness), state.command.c_str());
  printf("  mode      %s%s, rate %.4g, seed %" PRIu64 "\n", name_of(state.mode_in_force),
         state.control_set ? " (forced; `sdcguard on PID` undoes it)" : "", state.rate, state.seed);
  for (const DeviceSeen& device : state.devices) {
    printf("  device    %s %s %s, driver %d, sm_%d%d\n", device.uuid.c_str(), device.name.c_str(), device.pci.c_str(),
           device.driver_version, device.compute_major, device.compute_minor);
  }
  const char* bound = t.lower_bound ? "  (lower bound)" : "";
  const auto row = [&t](const char* name, const CallsAndFlops& part, const char* note) {
    printf("  %-9s %12" PRIu64 " calls %6.2f%%  %12.4g FLOP %6.2f%%%s\n", name, part.calls,
           percent(part.calls, t.seen.calls), static_cast<double>(part.flops), percent(part.flops, t.seen.flops), note);
  };
  row("seen", t.seen, "");
  row("sampled", t.sampled, "");
  row("checked", t.checked, bound);
  for (const Outcome o : {Outcome::kClean, Outcome::kCorrected, Outcome::kCorrupt, Outcome::kBenign}) {
    const CallsAndFlops& part = t.outcomes[static_cast<size_t>(o)];
    if (part.calls > 0) row((std::string(" ") + name_of(o)).c_str(), part, bound);
  }
  for (size_t r = 1; r < kReasonCount; ++r) {
    if (t.unverified[r].calls == 0) continue;
    printf("  unverified(%s) %" PRIu64 " calls %.2f%%\n", kReasonNames[r], t.unverified[r].calls,
           percent(t.unverified[r].calls, t.seen.calls));
  }
  if (t.upgraded + t.as_given > 0) {
    printf("  upgraded, not sampled: %" PRIu64 " calls, %" PRIu64 " of such sites as given\n", t.upgraded, t.as_given);
  }
  if (t.entries_named > 0) {
    printf("  wrong     %" PRIu64 " entries, %" PRIu64 " repaired%s\n", t.entries_named, t.entries_repaired, bound);
  }
  if (t.outstanding > 0) {
    printf("  no outcome seen for %" PRIu64 " checked calls: overwritten before they were read, or still to come\n",
           t.outstanding);
  }
  if (calls.any() || faults.any()) {
    printf("  records   lost %" PRIu64 ", torn %" PRIu64 ", invalid %" PRIu64 "\n", calls.lost + faults.lost,
           calls.torn + faults.torn, calls.invalid + faults.invalid);
  }
  if (state.driver_errors > 0) printf("  our driver calls that failed: %" PRIu64 "\n", state.driver_errors);
  if (state.lanes_refused > 0) printf("  contexts without a lane: %" PRIu64 "\n", state.lanes_refused);
}

volatile sig_atomic_t g_stop = 0;
void on_stop(int) {
  g_stop = 1;
}

}  // namespace

int tail_command(const TailOptions& options) {
  const std::string ring_dir = ring_dir_or_default(options.ring_dir);
  if (ring_dir.empty()) return 2;
  struct sigaction action = {};
  action.sa_handler = on_stop;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::map<std::string, std::unique_ptr<Tailed>> tailed;
  while (true) {
    const bool last = !options.follow || g_stop != 0;
    for (const std::string& path : list_rings(ring_dir)) {
      if (tailed.count(path) != 0) continue;
      AttachStatus status;
      auto reader = RingReader::attach(path, &status);
      if (reader != nullptr) tailed.emplace(path, std::make_unique<Tailed>(std::move(reader), options));
      if (reader == nullptr && tailed.count(path) == 0 && last) {
        fprintf(stderr, "sdcguard: %s: %s\n", path.c_str(), name_of(status));
      }
    }
    for (auto it = tailed.begin(); it != tailed.end();) {
      Tailed& ring = *it->second;
      const bool dead = liveness_of(ring.reader().state().process) == Liveness::kDead;
      ring.pass(dead);
      // Followed to its end and put away by the daemon: the name may be dropped.
      it = dead && !ring.reader().still_named() ? tailed.erase(it) : std::next(it);
    }
    if (fflush(stdout) != 0 || last) break;
    const timespec pause = {0, kFollowMs * 1'000'000l};
    nanosleep(&pause, nullptr);
  }
  return 0;
}

int status_command(const std::string& ring_dir_given, bool json) {
  const std::string ring_dir = ring_dir_or_default(ring_dir_given);
  if (ring_dir.empty()) return 2;
  nlohmann::ordered_json processes = nlohmann::ordered_json::array();
  std::vector<ProcessIdentity> rings;
  size_t shown = 0;
  for (const std::string& path : list_rings(ring_dir)) {
    AttachStatus status;
    auto reader = RingReader::attach(path, &status);
    if (reader == nullptr) {
      fprintf(stderr, "sdcguard: %s: %s\n", path.c_str(), name_of(status));
      continue;
    }
    rings.push_back(reader->state().process);
    const Liveness liveness = liveness_of(reader->state().process);
    Snapshot snapshot;
    FaultJoin join(snapshot);
    // Counters first: what they count as launched may have its record by the time the lanes are read, never less.
    const CallCounters counters = reader->counters();
    reader->drain(join, monotonic_ns(), liveness == Liveness::kDead);
    const CoverageTotals totals = snapshot.coverage.totals(counters, reader->call_losses());
    const RingState& state = reader->state();
    if (json) {
      nlohmann::ordered_json process = process_json(state, path, word_of(liveness));
      nlohmann::ordered_json devices = nlohmann::ordered_json::array();
      for (const DeviceSeen& device : state.devices) devices.push_back(device_json(state, device));
      process["devices"] = devices;
      process["coverage"] = totals_json(totals);
      process["lost_calls"] = lost_json(state, "calls", reader->call_losses());
      process["lost_faults"] = lost_json(state, "faults", reader->fault_losses());
      processes.push_back(process);
    } else {
      if (shown > 0) printf("\n");
      print_status(state, liveness, totals, reader->call_losses(), reader->fault_losses());
    }
    ++shown;
  }
  // Of these nothing was seen: without a word about them a status of all clean would be taken for theirs too.
  const std::vector<UnseenProcess> unseen = unseen_processes(rings);
  if (json) {
    nlohmann::ordered_json out;
    out["ring_dir"] = ring_dir;
    out["processes"] = processes;
    out["unseen"] = nlohmann::ordered_json::array();
    for (const UnseenProcess& process : unseen) {
      out["unseen"].push_back({{"pid", process.pid},
                               {"command", process.command},
                               {"cublas", process.has_cublas},
                               {"reason", reason_unseen(process)}});
    }
    printf("%s\n", line_of(out).c_str());
    return 0;
  }
  if (shown == 0) printf("no guarded process in %s\n", ring_dir.c_str());
  for (const UnseenProcess& process : unseen) {
    printf("pid %d unseen: %s\n  %s\n", process.pid, process.command.c_str(), reason_unseen(process));
  }
  return 0;
}

int control_command(const std::string& ring_dir_given, int pid, bool on) {
  const std::string ring_dir = ring_dir_or_default(ring_dir_given);
  if (ring_dir.empty()) return 2;
  for (const std::string& path : list_rings(ring_dir)) {
    AttachStatus status;
    auto reader = RingReader::attach(path, &status);
    if (reader == nullptr || reader->state().process.pid != pid) continue;
    if (liveness_of(reader->state().process) == Liveness::kDead) continue;
    const uint32_t word = on ? 0 : 1 + static_cast<uint32_t>(Mode::kOff);
    if (!write_control(path, word)) {
      fprintf(stderr, "sdcguard: %s: cannot be written\n", path.c_str());
      return 1;
    }
    printf("pid %d: mode %s from its next sampled call on\n", pid, name_of(on ? reader->state().mode : Mode::kOff));
    return 0;
  }
  fprintf(stderr, "sdcguard: no running guarded process %d in %s\n", pid, ring_dir.c_str());
  return 1;
}

}  // namespace sdcguard

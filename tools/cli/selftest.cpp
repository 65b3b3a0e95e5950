// SPDX-License-Identifier: MIT
// sdcguard selftest: runs a small cuBLAS program on the host device, clean and with one wrong entry, under each mode,
// and holds the verdicts and the delivered results against what each mode promises.
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>

#include "tools/cli/commands.h"
#include "tools/cli/guarded_run.h"
#include "tools/ring/injection_join.h"

namespace sdcguard {
namespace {

// One entry of the raw product replaced: 1000 is far outside of a 128-term sum of values below 1.
constexpr const char* kOneWrongEntry = "seed = 3\n[[fault]]\nkind = \"word\"\nvalue = 1000.0\n";

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

class Selftest {
 public:
  explicit Selftest(const Installation& pieces) : pieces_(pieces) {}

  bool folder_good() const { return folder_.good(); }

  void all() {
    const std::vector<std::string> bf16 = {"--api", "gemmex", "--type", "bf16"};
    const std::vector<std::string> lt = {"--api", "lt", "--type", "bf16", "--epilogue", "gelu_bias"};
    const std::vector<std::string> f32 = {"--api", "sgemm"};
    const std::vector<std::string> strided = {"--api", "strided", "--type", "f16", "--batch", "3"};
    for (const auto& client : {bf16, lt, f32, strided}) clean(client, "repair");
    clean(bf16, "detect");
    clean(bf16, "observe");
    for (const auto& client : {bf16, lt, f32, strided}) repaired(client);
    detected(bf16);
    observed(bf16);
    observed(f32);
    off(bf16);
  }

  int failures() const { return failures_; }

 private:
  struct Outcome {
    GuardedResult run;
    RunReport report;
    JoinResult join;
    std::string dump;  // bytes of D
  };

  Outcome run(const std::vector<std::string>& client, const std::string& mode, bool guarded, bool faulty, bool check) {
    GuardedRun run;
    run.name = "run" + std::to_string(runs_++);
    const std::string dump = folder_ / (run.name + ".d");
    // Large enough for the line plan (512 cells), small enough for a CPU.
    run.argv = {pieces_.gemm, "--m", "192", "--n", "64", "--k", "128", "--dump", dump};
    run.argv.insert(run.argv.end(), client.begin(), client.end());
    if (check) run.argv.push_back("--check");
    run.guarded = guarded;
    run.mode = mode;
    run.timeout_s = 120;
    if (faulty) run.faults = kOneWrongEntry;
    Outcome outcome;
    outcome.run = run_guarded(pieces_, folder_, run);
    outcome.dump = bytes_of(dump);
    if (!guarded || outcome.run.exit_code < 0) return outcome;
    std::string error;
    if (!read_report(outcome.run.jsonl, &outcome.report, &error) ||
        (faulty && !join_injections(outcome.run.injected, outcome.run.jsonl, &outcome.join, &error))) {
      outcome.run.exit_code = -1;
      outcome.run.error = error;
    }
    return outcome;
  }

  void say(const std::vector<std::string>& client, const char* what, const Outcome& outcome, bool good) {
    std::string name;
    for (const std::string& word : client) name += word + " ";
    printf("%s  %s: %s\n", good ? "PASS" : "FAIL", name.c_str(), what);
    if (good) return;
    ++failures_;
    printf(
        "      seen %llu checked %llu accused %llu, injected %llu found %llu repaired %llu unmatched %llu, exit %d "
        "%s\n",
        static_cast<unsigned long long>(outcome.report.seen), static_cast<unsigned long long>(outcome.report.checked),
        static_cast<unsigned long long>(outcome.report.calls_accused),
        static_cast<unsigned long long>(outcome.join.injected), static_cast<unsigned long long>(outcome.join.found),
        static_cast<unsigned long long>(outcome.join.repaired), static_cast<unsigned long long>(outcome.join.unmatched),
        outcome.run.exit_code, outcome.run.error.c_str());
  }

  void clean(const std::vector<std::string>& client, const std::string& mode) {
    const Outcome guarded = run(client, mode, true, false, true);
    const Outcome plain = run(client, mode, false, false, true);
    // Upgraded products may be finished with other last bits; observe may not change one.
    const bool bits = mode != "observe" || guarded.dump == plain.dump;
    say(client, (mode + ", clean: checked, nothing accused, the result is right").c_str(), guarded,
        guarded.run.exit_code == 0 && plain.run.exit_code == 0 && guarded.report.checked > 0 &&
            guarded.report.checked == guarded.report.seen && guarded.report.calls_accused == 0 &&
            guarded.report.fault_records == 0 && !guarded.report.lower_bound && bits && !guarded.dump.empty());
  }

  void repaired(const std::vector<std::string>& client) {
    // The same fault unguarded must be seen in the result, or the guard had nothing to show.
    const Outcome bare = run(client, "repair", false, true, true);
    const Outcome guarded = run(client, "repair", true, true, true);
    say(client, "repair, one wrong entry: found, repaired, the result is right", guarded,
        bare.run.exit_code == 1 && guarded.run.exit_code == 0 && guarded.join.injected == 1 &&
            guarded.join.found == 1 && guarded.join.repaired == 1 && guarded.join.unmatched == 0);
  }

  void detected(const std::vector<std::string>& client) {
    const Outcome guarded = run(client, "detect", true, true, true);
    say(client, "detect, one wrong entry: found, not repaired", guarded,
        guarded.run.exit_code == 1 && guarded.join.found == 1 && guarded.join.repaired == 0 &&
            guarded.report.calls_accused == 1);
  }

  void observed(const std::vector<std::string>& client) {
    const Outcome bare = run(client, "observe", false, true, false);
    const Outcome guarded = run(client, "observe", true, true, false);
    say(client, "observe, one wrong entry: accused, the result is bit for bit what it was", guarded,
        guarded.run.exit_code == 0 && guarded.report.calls_accused == 1 && !bare.dump.empty() &&
            bare.dump == guarded.dump);
  }

  void off(const std::vector<std::string>& client) {
    const Outcome bare = run(client, "off", false, true, false);
    const Outcome guarded = run(client, "off", true, true, false);
    say(client, "off, one wrong entry: nothing checked, the result is bit for bit what it was", guarded,
        guarded.run.exit_code == 0 && guarded.report.checked == 0 && guarded.report.calls_accused == 0 &&
            !bare.dump.empty() && bare.dump == guarded.dump);
  }

  const Installation& pieces_;
  RunFolder folder_;
  int runs_ = 0;
  int failures_ = 0;
};

}  // namespace

int selftest_command() {
  const Installation pieces = find_installation();
  for (const std::string& piece : {pieces.shim, pieces.hostcuda, pieces.daemon, pieces.gemm}) {
    const std::string missing = missing_piece(piece);
    if (missing.empty()) continue;
    fprintf(stderr, "%s\n", missing.c_str());
    return 2;
  }
  printf("On the host device: CUDA on the CPU, which shows that the pieces work together and says nothing of a GPU.\n");
  Selftest selftest(pieces);
  if (!selftest.folder_good()) {
    fprintf(stderr, "sdcguard: no folder can be made in /dev/shm or /tmp\n");
    return 2;
  }
  selftest.all();
  printf("%s\n", selftest.failures() == 0 ? "PASS" : "FAIL");
  return selftest.failures() == 0 ? 0 : 1;
}

}  // namespace sdcguard

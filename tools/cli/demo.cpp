// SPDX-License-Identifier: MIT
// sdcguard demo: runs a real sentence encoder on a simulated device, clean and with accumulator faults, unguarded and
// guarded, and says what the faults did and what became of them.
//
// Nothing here is taken from the shim or the injector but their files: found and repaired come from joining the
// injection log with the daemon's JSON lines, damage from the similarity tables that the encoder printed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/cli/commands.h"
#include "tools/cli/guarded_run.h"
#include "tools/ring/injection_join.h"

namespace sdcguard {
namespace {

using Json = nlohmann::ordered_json;
using Table = std::vector<std::vector<double>>;

constexpr double kLargestDifference = 2;  // of two cosines; stands for a similarity that is not a number
constexpr size_t kShownPairs = 6;
constexpr size_t kShownFaults = 8;
constexpr size_t kListedFaults = 40;  // of those missed or below the floor, in the text; --json has all
constexpr double kGoneFactor = 2;     // guarded error of at most this many order_noise: the damage is gone (issue 2)

struct Encoding {
  std::vector<std::string> sentences;
  Table similarity;
};

bool read_encoding(const std::string& path, Encoding* encoding, std::string* error) {
  try {
    std::ifstream in(path);
    const nlohmann::json document = nlohmann::json::parse(in);
    for (const auto& sentence : document.at("sentences")) encoding->sentences.push_back(sentence.at("text"));
    for (const auto& row : document.at("similarity")) {
      std::vector<double>& values = encoding->similarity.emplace_back();
      for (const auto& value : row) values.push_back(value.is_number() ? value.get<double>() : NAN);
      if (values.size() != encoding->sentences.size()) throw std::runtime_error("similarity is not square");
    }
    if (encoding->similarity.size() != encoding->sentences.size()) throw std::runtime_error("similarity is not square");
  } catch (const std::exception& failure) {
    *error = "sdcguard: " + path + ": " + failure.what();
    return false;
  }
  return true;
}

double difference(double a, double b) {
  const double d = std::fabs(a - b);
  return d <= kLargestDifference ? d : kLargestDifference;  // NaN too
}

double max_difference(const Table& a, const Table& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a.size(); ++j) worst = std::max(worst, difference(a[i][j], b[i][j]));
  }
  return worst;
}

// Everything that one seed gave.
struct Round {
  int seed = 0;
  RunReport clean, guarded;
  JoinResult faults;
  uint64_t injected_unguarded = 0;
  double clean_error = 0, unguarded_error = 0, guarded_error = 0;
  Table unguarded_table, guarded_table;
};

class Demo {
 public:
  Demo(const Installation& pieces, DemoOptions options) : pieces_(pieces), options_(std::move(options)) {}

  int run() {
    if (!prepare() || !references()) return fail();
    for (int i = 0; i < options_.seeds; ++i) {
      if (!round(options_.first_seed + i)) return fail();
    }
    const bool good = failure().empty();
    if (options_.json) {
      printf("%s\n", json(good).dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    } else {
      print(good);
    }
    return good ? 0 : 1;
  }

 private:
  int fail() {
    fprintf(stderr, "%s\n", error_.c_str());
    return 2;
  }

  bool prepare() {
    if (options_.model.empty()) options_.model = pieces_.model;
    if (options_.sentences.empty()) options_.sentences = pieces_.sentences;
    if (!folder_.good()) error_ = "sdcguard: no folder can be made in /dev/shm or /tmp";
    for (const std::string& piece :
         {pieces_.shim, pieces_.hostcuda, pieces_.daemon, pieces_.encoder, options_.sentences}) {
      if (error_.empty()) error_ = missing_piece(piece);
    }
    if (error_.empty() && !missing_piece(options_.model + "/model.safetensors").empty()) {
      error_ = "sdcguard: " + options_.model + ": holds no model; tools/fetch_model.sh fetches it";
    }
    return error_.empty();
  }

  void progress(const char* what) const {
    if (!options_.json) fprintf(stderr, "demo: %s\n", what);
  }

  // One run of the encoder; its table in `encoding`.
  bool encode(GuardedRun run, GuardedResult* result, Encoding* encoding) {
    run.name = "run" + std::to_string(runs_++);
    run.argv = {pieces_.encoder, "--model", options_.model, "--sentences", options_.sentences, "--json"};
    *result = run_guarded(pieces_, folder_, run);
    if (result->exit_code != 0) {
      error_ = result->error;
      return false;
    }
    return read_encoding(result->output, encoding, &error_);
  }

  bool references() {
    GuardedResult result;
    Encoding other;
    progress("clean, unguarded");
    if (!encode({}, &result, &clean_)) return false;
    progress("clean, unguarded, in another order of accumulation");
    GuardedRun ordered;
    ordered.order = "rounded16";
    if (!encode(ordered, &result, &other)) return false;
    order_noise_ = max_difference(clean_.similarity, other.similarity);
    return true;
  }

  bool round(int seed) {
    Round round;
    round.seed = seed;
    const std::string of_seed = ", seed " + std::to_string(seed);
    GuardedResult result;
    Encoding clean_guarded, unguarded, guarded;
    GuardedRun run;
    run.guarded = true;
    run.seed = static_cast<uint64_t>(seed);
    progress(("clean, guarded, every call checked" + of_seed).c_str());
    if (!encode(run, &result, &clean_guarded) || !read_report(result.jsonl, &round.clean, &error_)) return false;
    round.clean_error = max_difference(clean_.similarity, clean_guarded.similarity);

    run.faults = "seed = " + std::to_string(seed) +
                 "\n[[fault]]\nkind = \"accumulator\"\nbits = \"20..30\"\ncount = " + std::to_string(options_.faults) +
                 "\n";
    run.guarded = false;
    progress(("faults, unguarded" + of_seed).c_str());
    if (!encode(run, &result, &unguarded)) return false;
    round.injected_unguarded = lines_of(result.injected);
    run.guarded = true;
    progress(("the same faults, guarded" + of_seed).c_str());
    if (!encode(run, &result, &guarded) || !read_report(result.jsonl, &round.guarded, &error_) ||
        !join_injections(result.injected, result.jsonl, &round.faults, &error_)) {
      return false;
    }
    round.unguarded_error = max_difference(clean_.similarity, unguarded.similarity);
    round.guarded_error = max_difference(clean_.similarity, guarded.similarity);
    round.unguarded_table = std::move(unguarded.similarity);
    round.guarded_table = std::move(guarded.similarity);
    rounds_.push_back(std::move(round));
    return true;
  }

  static uint64_t lines_of(const std::string& path) {
    std::ifstream in(path);
    return static_cast<uint64_t>(
        std::count(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>(), '\n'));
  }

  template <typename Take>
  uint64_t sum(Take take) const {
    uint64_t total = 0;
    for (const Round& one : rounds_) total += take(one);
    return total;
  }
  template <typename Take>
  double largest(Take take) const {
    double worst = 0;
    for (const Round& one : rounds_) worst = std::max(worst, take(one));
    return worst;
  }

  uint64_t accusations() const {
    return sum([](const Round& r) { return std::max(r.clean.fault_records, r.clean.calls_accused); });
  }
  uint64_t checked() const {
    return sum([](const Round& r) { return r.clean.checked; });
  }
  double guarded_error() const {
    return largest([](const Round& r) { return r.guarded_error; });
  }
  double unguarded_error() const {
    return largest([](const Round& r) { return r.unguarded_error; });
  }
  bool damage_gone() const { return guarded_error() <= kGoneFactor * order_noise_; }

  // Empty: passed. No clean entry may be accused, in the clean run or beside the faults; none of the faults above the
  // entry bound may be missed; no damage may be left. Where nothing was checked or injected there is nothing to show.
  std::string failure() const {
    if (checked() == 0) return "no call was checked.";
    if (accusations() > 0) return "a clean call was accused.";
    if (sum([](const Round& r) { return r.faults.injected; }) == 0) return "no fault was injected.";
    if (sum([](const Round& r) { return r.faults.unmatched; }) > 0) return "an entry without a fault was accused.";
    if (sum([](const Round& r) { return r.faults.missed_above_bound; }) > 0)
      return "a fault above its bound was missed.";
    if (!damage_gone()) return "the guarded run's damage is not gone.";
    return "";
  }

  static Json fault_json(const Round& round, const InjectedEntry& entry) {
    Json out;
    out["seed"] = round.seed;
    out["m"] = entry.m;
    out["n"] = entry.n;
    out["k"] = entry.k;
    out["batch"] = entry.batch;
    out["row"] = entry.row;
    out["column"] = entry.column;
    out["magnitude"] = std::isfinite(entry.magnitude) ? Json(entry.magnitude) : Json(nullptr);
    out["bound"] = std::isfinite(entry.bound) ? Json(entry.bound) : Json(nullptr);
    out["clean_bits"] = entry.clean_bits;
    out["faulty_bits"] = entry.faulty_bits;
    out["found"] = entry.found;
    out["repaired"] = entry.repaired;
    return out;
  }

  Json coverage_of(RunReport Round::*part) const {
    Json out;
    out["seen"] = sum([part](const Round& r) { return (r.*part).seen; });
    out["launched"] = sum([part](const Round& r) { return (r.*part).launched; });
    out["checked"] = sum([part](const Round& r) { return (r.*part).checked; });
    out["unverified"] = sum([part](const Round& r) { return (r.*part).unverified; });
    bool lower_bound = false;
    for (const Round& one : rounds_) lower_bound = lower_bound || (one.*part).lower_bound;
    Json reasons = Json::object();
    for (const Round& one : rounds_) {
      for (const auto& [reason, calls] : (one.*part).unverified_by_reason) {
        reasons[reason] = reasons.value(reason, uint64_t{0}) + calls;
      }
    }
    out["unverified_by_reason"] = reasons;
    out["lower_bound"] = lower_bound;
    const std::string& last = (rounds_.back().*part).coverage;
    if (!last.empty()) out["last_seed"] = Json::parse(last);
    return out;
  }

  Json json(bool good) const {
    Json out;
    out["device"] = "simulated: CUDA on the CPU; no speed is claimed";
    out["passed"] = good;
    out["seeds"] = options_.seeds;
    out["first_seed"] = options_.first_seed;
    out["clean"]["accusations"] = accusations();
    out["clean"]["looks"] = sum([](const Round& r) { return r.clean.looks; });
    out["clean"]["checked"] = checked();
    out["clean"]["max_similarity_error"] = largest([](const Round& r) { return r.clean_error; });
    Json accused = Json::array();
    for (const Round& one : rounds_) {
      for (const std::string& line : one.clean.accused) accused.push_back(Json::parse(line));
    }
    out["clean"]["accused"] = accused;
    Json& faults = out["faults"];
    faults["injected"] = sum([](const Round& r) { return r.faults.injected; });
    faults["above_bound"] = sum([](const Round& r) { return r.faults.above_bound; });
    faults["found"] = sum([](const Round& r) { return r.faults.found; });
    faults["repaired"] = sum([](const Round& r) { return r.faults.repaired; });
    faults["missed_above_bound"] = sum([](const Round& r) { return r.faults.missed_above_bound; });
    faults["below_floor"] = sum([](const Round& r) { return r.faults.below_floor; });
    faults["no_effect"] = sum([](const Round& r) { return r.faults.no_effect; });
    faults["unmatched_records"] = sum([](const Round& r) { return r.faults.unmatched; });
    faults["missed"] = Json::array();
    faults["below_floor_entries"] = Json::array();
    for (const Round& one : rounds_) {
      for (const InjectedEntry& entry : one.faults.entries) {
        if (entry.effect && entry.above_bound && !entry.found) faults["missed"].push_back(fault_json(one, entry));
        if (entry.effect && !entry.above_bound) faults["below_floor_entries"].push_back(fault_json(one, entry));
      }
    }
    out["unguarded"]["max_similarity_error"] = unguarded_error();
    out["guarded"]["max_similarity_error"] = guarded_error();
    out["order_noise"] = order_noise_;
    out["coverage"]["clean"] = coverage_of(&Round::clean);
    out["coverage"]["faults"] = coverage_of(&Round::guarded);
    out["rounds"] = Json::array();
    for (const Round& one : rounds_) {
      Json row;
      row["seed"] = one.seed;
      row["injected"] = one.faults.injected;
      row["above_bound"] = one.faults.above_bound;
      row["found"] = one.faults.found;
      row["repaired"] = one.faults.repaired;
      row["missed_above_bound"] = one.faults.missed_above_bound;
      row["below_floor"] = one.faults.below_floor;
      row["unguarded_error"] = one.unguarded_error;
      row["guarded_error"] = one.guarded_error;
      out["rounds"].push_back(row);
    }
    return out;
  }

  static std::string cut(const std::string& text, size_t length) {
    if (text.size() <= length) return text + std::string(length - text.size(), ' ');
    size_t end = length - 2;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not inside of a character
    return text.substr(0, end) + std::string(length - end, '.');
  }

  // The pairs of sentences that the faults hurt most, side by side.
  void print_similarities(const Round& round) const {
    struct Pair {
      double damage;
      size_t a, b;
    };
    std::vector<Pair> pairs;
    for (size_t a = 0; a < clean_.sentences.size(); ++a) {
      for (size_t b = a + 1; b < clean_.sentences.size(); ++b) {
        pairs.push_back({difference(clean_.similarity[a][b], round.unguarded_table[a][b]), a, b});
      }
    }
    std::sort(pairs.begin(), pairs.end(), [](const Pair& x, const Pair& y) { return x.damage > y.damage; });
    printf("\nSimilarity of two sentences (cosine), the %zu pairs most damaged, seed %d\n",
           std::min(kShownPairs, pairs.size()), round.seed);
    printf("  %-34s  %-34s %9s %9s %9s\n", "", "", "clean", "unguarded", "guarded");
    for (size_t i = 0; i < std::min(kShownPairs, pairs.size()); ++i) {
      const auto [damage, a, b] = pairs[i];
      printf("  %s  %s %9.4f %9.4f %9.4f\n", cut(clean_.sentences[a], 34).c_str(), cut(clean_.sentences[b], 34).c_str(),
             clean_.similarity[a][b], round.unguarded_table[a][b], round.guarded_table[a][b]);
    }
  }

  static void print_entry(const Round& round, const InjectedEntry& entry, const char* what) {
    printf("  seed %d, product %lldx%lldx%lld batch %lld, row %lld column %lld: off by %.4g (bound %.3g), %s\n",
           round.seed, static_cast<long long>(entry.m), static_cast<long long>(entry.n),
           static_cast<long long>(entry.k), static_cast<long long>(entry.batch), static_cast<long long>(entry.row),
           static_cast<long long>(entry.column), entry.magnitude, entry.bound, what);
  }

  // At most kListedFaults of those that `choose` takes.
  template <typename Choose>
  void print_listed(const char* title, const char* what, Choose choose) const {
    size_t found = 0;
    for (const Round& one : rounds_) {
      for (const InjectedEntry& entry : one.faults.entries) {
        if (!choose(entry)) continue;
        if (found == 0) printf("\n%s\n", title);
        if (found++ < kListedFaults) print_entry(one, entry, what);
      }
    }
    if (found > kListedFaults) printf("  and %zu more (--json lists all)\n", found - kListedFaults);
  }

  void print(bool good) const {
    printf(
        "\nThis is a simulated device: CUDA on the CPU, with faults put in on purpose. No speed is claimed, and "
        "nothing here\n"
        "is a statement about a GPU. The encoder is all-MiniLM-L6-v2 with its real weights, %zu sentences.\n",
        clean_.sentences.size());
    const Round& worst = *std::max_element(rounds_.begin(), rounds_.end(), [](const Round& a, const Round& b) {
      return a.unguarded_error < b.unguarded_error;
    });
    print_similarities(worst);
    printf("\n  largest similarity error        unguarded %.6f   guarded %.6f   two clean orders differ by %.6f\n",
           unguarded_error(), guarded_error(), order_noise_);
    if (unguarded_error() >= kLargestDifference || guarded_error() >= kLargestDifference) {
      printf("  (a similarity that is not a number counts as off by %.0f, the most that two cosines can differ by)\n",
             kLargestDifference);
    }

    printf("\nFaults in live accumulators, bits 20 to 30, %d in each product\n", options_.faults);
    printf("  %6s %9s %12s %7s %9s %7s %12s %10s %9s\n", "seed", "injected", "above bound", "found", "repaired",
           "missed", "below floor", "unguarded", "guarded");
    const auto row = [](const char* name, const auto& take, double unguarded, double guarded) {
      printf("  %6s %9llu %12llu %7llu %9llu %7llu %12llu %10.6f %9.6f\n", name, take(&JoinResult::injected),
             take(&JoinResult::above_bound), take(&JoinResult::found), take(&JoinResult::repaired),
             take(&JoinResult::missed_above_bound), take(&JoinResult::below_floor), unguarded, guarded);
    };
    for (const Round& one : rounds_) {
      row(
          std::to_string(one.seed).c_str(),
          [&one](uint64_t JoinResult::*part) { return static_cast<unsigned long long>(one.faults.*part); },
          one.unguarded_error, one.guarded_error);
    }
    row(
        "all",
        [this](uint64_t JoinResult::*part) {
          return static_cast<unsigned long long>(sum([part](const Round& r) { return r.faults.*part; }));
        },
        unguarded_error(), guarded_error());
    const uint64_t no_effect = sum([](const Round& r) { return r.faults.no_effect; });
    if (no_effect > 0) {
      printf("  %llu more flips were gone again at the end of their sums: nothing to find.\n",
             static_cast<unsigned long long>(no_effect));
    }
    const uint64_t unmatched = sum([](const Round& r) { return r.faults.unmatched; });
    if (unmatched > 0) {
      printf("  %llu fault records have no injected entry behind them.\n", static_cast<unsigned long long>(unmatched));
    }

    std::vector<const InjectedEntry*> loudest;
    for (const InjectedEntry& entry : worst.faults.entries) {
      if (entry.found) loudest.push_back(&entry);
    }
    const size_t shown = std::min(kShownFaults, loudest.size());
    std::partial_sort(loudest.begin(), loudest.begin() + static_cast<std::ptrdiff_t>(shown), loudest.end(),
                      [](const InjectedEntry* a, const InjectedEntry* b) { return a->magnitude > b->magnitude; });
    if (shown > 0) printf("\nFound, the %zu largest of seed %d\n", shown, worst.seed);
    for (size_t i = 0; i < shown; ++i) {
      print_entry(worst, *loudest[i], loudest[i]->repaired ? "found, repaired" : "found, not repaired");
    }
    print_listed("Missed above the entry bound", "MISSED",
                 [](const InjectedEntry& e) { return e.effect && e.above_bound && !e.found; });
    print_listed("Below the entry bound: within what rounding may do", "below the floor",
                 [](const InjectedEntry& e) { return e.effect && !e.above_bound; });

    printf("\nCoverage                 calls seen   checked   unverified\n");
    for (const auto& [name, part] :
         {std::pair("clean, guarded", &Round::clean), std::pair("faults, guarded", &Round::guarded)}) {
      bool lower_bound = false;
      for (const Round& one : rounds_) lower_bound = lower_bound || (one.*part).lower_bound;
      const auto count = [this, part = part](uint64_t RunReport::*field) {
        return static_cast<unsigned long long>(sum([&](const Round& r) { return r.*part.*field; }));
      };
      printf("  %-20s %12llu %9llu %12llu%s\n", name, count(&RunReport::seen), count(&RunReport::checked),
             count(&RunReport::unverified), lower_bound ? "  (lower bound)" : "");
    }
    printf("\nClean: %llu calls checked, %llu looked at twice, %llu accusations.\n",
           static_cast<unsigned long long>(checked()),
           static_cast<unsigned long long>(sum([](const Round& r) { return r.clean.looks; })),
           static_cast<unsigned long long>(accusations()));
    printf(
        "%s: %s\n", good ? "PASSED" : "NOT PASSED",
        good ? "no clean entry was accused, no fault above its bound was missed, and guarded the faults left no more\n"
               "than a change of summation order does."
             : failure().c_str());
  }

  const Installation& pieces_;
  DemoOptions options_;
  RunFolder folder_;
  Encoding clean_;
  double order_noise_ = 0;
  std::vector<Round> rounds_;
  std::string error_;
  int runs_ = 0;
};

}  // namespace

int demo_command(const DemoOptions& options) {
  const Installation pieces = find_installation();
  return Demo(pieces, options).run();
}

}  // namespace sdcguard

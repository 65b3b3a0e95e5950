// SPDX-License-Identifier: MIT
// Runs a plain cuBLAS program on the host device, guarded or not, and collects all that it left.
#include "guarded_program.h"
#include "tests/scratch_folder.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <tuple>

namespace sdcguard::e2e {
namespace {

namespace fs = std::filesystem;

const std::string kBuild = SDCGUARD_BUILD_DIR;

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

class Collected : public RecordSink {
 public:
  explicit Collected(Left& left) : left_(left) {}
  void on_call(const CallRecord& call, bool on_device) override {
    left_.calls.push_back(call);
    coverage.add(call, on_device);
  }
  void on_fault(const FaultRecord& fault) override { left_.faults.push_back(fault); }
  Coverage coverage;

 private:
  Left& left_;
};

void read_ring(const std::string& path, Left& left) {
  AttachStatus status;
  const auto reader = RingReader::attach(path, &status);
  if (reader == nullptr) throw std::runtime_error(path + ": " + name_of(status));
  Collected collected(left);
  if (!reader->refresh() || !reader->drain(collected, 0, true)) throw std::runtime_error(path + ": cannot be read");
  left.ring = reader->state();
  left.losses = reader->call_losses();
  left.losses.lost += reader->fault_losses().lost;
  left.losses.torn += reader->fault_losses().torn;
  left.losses.invalid += reader->fault_losses().invalid;
  left.coverage = collected.coverage.totals(reader->counters(), reader->call_losses());
  std::sort(left.calls.begin(), left.calls.end(),
            [](const CallRecord& a, const CallRecord& b) { return a.call_id < b.call_id; });
}

uint32_t bits_in(const nlohmann::json& value) {
  return value.is_string() ? static_cast<uint32_t>(std::stoul(value.get<std::string>(), nullptr, 16)) : 0;
}

// NaN is NaN: a signalling one turns quiet on its way through a register.
uint32_t without_payload(uint32_t bits) {
  constexpr uint32_t kInfinity = 0x7f800000;
  return (bits & 0x7fffffff) > kInfinity ? kInfinity + 0x400000 : bits;
}

std::vector<Injected> read_injections(const std::string& path) {
  std::vector<Injected> found;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    Injected one = {};
    one.device = json.at("device").get<int>();
    one.product = json.at("product").get<int64_t>();
    one.m = json.at("m").get<int64_t>();
    one.n = json.at("n").get<int64_t>();
    one.k = json.at("k").get<int64_t>();
    one.batch = json.at("batch").get<int64_t>();
    one.row = json.at("row").get<int64_t>();
    one.column = json.at("col").get<int64_t>();
    one.kind = json.at("kind").get<std::string>();
    one.clean_bits = bits_in(json.at("clean_bits"));
    one.faulty_bits = bits_in(json.at("faulty_bits"));
    one.written = !json.at("faulty_bits").is_null();
    one.bound = json.at("bound").is_null() ? HUGE_VAL : json.at("bound").get<double>();
    one.above_bound = !json.at("above_bound").is_null() && json.at("above_bound").get<bool>();
    if (json.at("effect").is_null() || json.at("effect").get<bool>()) found.push_back(one);
  }
  return found;
}

std::vector<TracedCall> read_trace(const std::string& path) {
  std::vector<TracedCall> calls;
  std::ifstream in(path);
  std::string origin, thread, result;
  TracedCall call;
  while (in >> origin >> thread >> call.name >> call.stream >> result) {
    call.runtime = origin == "runtime";
    calls.push_back(call);
  }
  return calls;
}

std::vector<std::string> read_shim_calls(const std::string& path) {
  std::vector<std::string> names;
  std::ifstream in(path);
  std::string position, thread, name, result;
  while (in >> position >> thread >> name >> result) names.push_back(name);
  return names;
}

// In the child: becomes the program. Does not return.
[[noreturn]] void become(const Program& program, const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& environment, const std::string& printed,
                         const std::string& errors) {
  const int out = open(printed.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int err = open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  close(out);
  close(err);
  if (program.file_size_limit != 0) {
    const rlimit limit = {program.file_size_limit, program.file_size_limit};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  std::vector<std::string> settings;
  for (const auto& [name, value] : environment) settings.push_back(name + "=" + value);
  std::vector<char*> argv = {const_cast<char*>(program.path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (const std::string& setting : settings) envp.push_back(const_cast<char*>(setting.c_str()));
  envp.push_back(nullptr);
  execve(program.path.c_str(), argv.data(), envp.data());
  _exit(127);
}

}  // namespace

Program gemm(const std::string& arguments, std::map<std::string, std::string> settings) {
  Program program;
  program.path = kBuild + "/bin/gemm";
  program.arguments = words_of(arguments);
  program.arguments.insert(program.arguments.end(), {"--dump", "DUMP"});
  program.settings = std::move(settings);
  return program;
}

Program scene(const std::string& name, int count, std::map<std::string, std::string> settings) {
  Program program;
  program.path = kBuild + "/clients/scenarios";
  program.arguments = {name, "DUMP", std::to_string(count)};
  program.settings = std::move(settings);
  return program;
}

Program process(const std::string& name, int count, std::map<std::string, std::string> settings) {
  Program program = scene(name, count, std::move(settings));
  program.path = kBuild + "/clients/processes";
  return program;
}

Program mixed(const std::string& arguments, std::map<std::string, std::string> settings) {
  Program program;
  program.path = kBuild + "/clients/mixed";
  program.arguments = words_of(arguments);
  program.arguments.insert(program.arguments.begin(), "DUMP");
  program.settings = std::move(settings);
  return program;
}

std::vector<std::string> blocks_of(const std::string& result) {
  std::vector<std::string> blocks;
  for (size_t at = 0; at + sizeof(uint64_t) <= result.size();) {
    uint64_t bytes;
    memcpy(&bytes, result.data() + at, sizeof(bytes));
    at += sizeof(bytes);
    blocks.push_back(result.substr(at, bytes));
    at += bytes;
  }
  return blocks;
}

Program unguarded(Program program) {
  program.guarded = false;
  return program;
}

Program with(Program program, const std::string& setting, const std::string& value) {
  program.settings[setting] = value;
  return program;
}

Left run(const Program& program, Observe observe) {
  const ScratchFolder folder;
  std::map<std::string, std::string> environment;
  // HOSTCUDA_SKIP_KERNEL: a stage switched off from outside must turn tests red (tools/evidence.sh).
  for (const char* name :
       {"PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "HOSTCUDA_SKIP_KERNEL", "HOSTCUDA_WATCHED_BLOCKS"}) {
    if (const char* value = std::getenv(name)) environment[name] = value;
  }
  environment["LD_LIBRARY_PATH"] = kBuild + "/lib/hostcuda";
  environment["SDCGUARD_CONFIG"] = "/dev/null";
  const std::string rings = folder / "rings";
  environment["SDCGUARD_RING_DIR"] = rings;
  if (program.guarded) {
    environment["SDCGUARD_EVERY"] = "1";
    environment["LD_PRELOAD"] = program.preload_before + " " + kBuild + "/lib/libsdcguard.so";
  } else if (!program.preload_before.empty()) {
    environment["LD_PRELOAD"] = program.preload_before;
  }
  if (program.settings.count("SDCGUARD_RATE") != 0) environment.erase("SDCGUARD_EVERY");
  if (observe.injections) environment["HOSTCUDA_FAULT_LOG"] = folder / "injected";
  if (observe.driver_calls) environment["HOSTCUDA_TRACE"] = folder / "trace";
  if (observe.shim_calls) environment["HOSTCUDA_SHIM_LOG"] = folder / "shim_calls";
  for (const auto& [name, value] : program.settings) environment[name] = value;
  std::vector<std::string> arguments = program.arguments;
  for (std::string& argument : arguments) {
    if (argument == "DUMP") argument = folder / "dump";
  }

  const std::string printed = folder / "printed", errors = folder / "errors";
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) become(program, arguments, environment, printed, errors);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  Left left;
  left.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  left.printed = bytes_of(printed);
  left.errors = bytes_of(errors);
  left.result = bytes_of(folder / "dump");
  for (const std::string& ring : list_rings(rings)) {
    read_ring(ring, left);
    ++left.rings;
  }
  if (observe.injections) left.injected = read_injections(folder / "injected");
  if (observe.driver_calls) left.trace = read_trace(folder / "trace");
  if (observe.shim_calls) left.shim_calls = read_shim_calls(folder / "shim_calls");
  return left;
}

std::string unharmed(const Left& left) {
  if (left.code == 0 && left.printed.empty() && left.errors.empty()) return "";
  return "exit code " + std::to_string(left.code) + ", printed \"" + left.printed + "\", errors \"" + left.errors +
         "\"";
}

std::string complete(const Left& left, uint64_t calls) {
  const CoverageTotals& c = left.coverage;
  const uint64_t unverified = c.outcomes[static_cast<size_t>(Outcome::kUnverified)].calls;
  if (left.rings == 1 && c.seen.calls == calls && c.sampled.calls == calls && c.checked.calls + unverified == calls &&
      c.outstanding == 0 && !c.lower_bound && !left.losses.any()) {
    return "";
  }
  return std::to_string(left.rings) + " rings, " + std::to_string(calls) + " calls: seen " +
         std::to_string(c.seen.calls) + ", sampled " + std::to_string(c.sampled.calls) + ", checked " +
         std::to_string(c.checked.calls) + ", unverified " + std::to_string(unverified) + ", outstanding " +
         std::to_string(c.outstanding) + (c.lower_bound ? ", lower bound" : "");
}

std::string outcomes(const Left& left) {
  std::string text;
  for (const CallRecord& call : left.calls) {
    if (!text.empty()) text += " ";
    text += name_of(call.outcome);
    if (call.outcome == Outcome::kUnverified) text += "(" + std::string(name_of(call.reason)) + ")";
  }
  return text;
}

std::string times(int n, const std::string& text) {
  std::string all;
  for (int i = 0; i < n; ++i) all += (i == 0 ? "" : " ") + text;
  return all;
}

double value_at(const std::string& result, DataType type, size_t i) {
  if (type == DataType::kBF16) {
    __nv_bfloat16 value;
    memcpy(&value, result.data() + i * sizeof(value), sizeof(value));
    return static_cast<double>(__bfloat162float(value));
  }
  if (type == DataType::kF16) {
    __half value;
    memcpy(&value, result.data() + i * sizeof(value), sizeof(value));
    return static_cast<double>(__half2float(value));
  }
  float value;
  memcpy(&value, result.data() + i * sizeof(value), sizeof(value));
  return static_cast<double>(value);
}

double spacing(DataType type, double value) {
  const int digits = type == DataType::kBF16 ? 8 : type == DataType::kF16 ? 11 : 24;
  const int lowest = type == DataType::kF16 ? -13 : -125;  // frexp exponent of the smallest normal number
  int exponent = lowest;
  if (value != 0 && std::isfinite(value)) std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent, lowest) - digits);
}

std::string found_exactly(const Left& left, Outcome outcome) {
  // Place of an entry in the run: number of its product, place in D, bits of the wrong value.
  using Place = std::tuple<int64_t, int64_t, int64_t, int64_t, uint32_t>;
  std::multiset<Place> expected, optional, reported;
  std::map<int64_t, std::set<std::pair<int64_t, int64_t>>> lines;  // of each product: batch entry, column of D
  for (const Injected& one : left.injected) {
    lines[one.product].insert({one.batch, one.column});
    (one.above_bound ? expected : optional)
        .insert({one.product, one.batch, one.row, one.column, without_payload(one.faulty_bits)});
  }
  std::map<uint64_t, int64_t> product_of_call;
  for (size_t i = 0; i < left.calls.size(); ++i) product_of_call[left.calls[i].call_id] = static_cast<int64_t>(i);
  for (const FaultRecord& fault : left.faults) {
    if (product_of_call.count(fault.call_id) == 0) return "a fault without its call";
    uint32_t bits;
    memcpy(&bits, &fault.got, sizeof(bits));
    const Place place = {product_of_call[fault.call_id], fault.batch, fault.row, fault.column, without_payload(bits)};
    reported.insert(place);
    const Place skipped = {std::get<0>(place), fault.batch, fault.row, fault.column, 0};
    if (expected.count(place) == 0 && optional.count(place) == 0 && optional.count(skipped) == 0) {
      return "accuses a clean entry: call " + std::to_string(std::get<0>(place)) + " row " + std::to_string(fault.row) +
             " column " + std::to_string(fault.column);
    }
    if ((fault.repaired != 0) != (outcome == Outcome::kCorrected))
      return "an entry was repaired, or not, against the mode";
  }
  for (const Place& place : expected) {
    if (reported.count(place) != expected.count(place)) {
      return "missed: call " + std::to_string(std::get<0>(place)) + " row " + std::to_string(std::get<2>(place)) +
             " column " + std::to_string(std::get<3>(place));
    }
  }
  for (size_t i = 0; i < left.calls.size(); ++i) {
    const CallRecord& call = left.calls[i];
    const Outcome quiet = call.lines_dirty == 0 ? Outcome::kClean : Outcome::kBenign;
    const Outcome right = call.entries_named > 0 ? outcome : quiet;
    if (call.outcome != right) return "call " + std::to_string(i) + " is " + name_of(call.outcome);
    if (call.plan != Plan::kRecompute && call.lines_dirty > lines[static_cast<int64_t>(i)].size()) {
      return "call " + std::to_string(i) + " looks at " + std::to_string(call.lines_dirty) + " lines";
    }
  }
  if (left.calls.empty()) return "no call";
  return "";
}

std::string repaired_like(const Left& left, const std::string& clean, const ResultShape& shape) {
  if (left.result.size() != clean.size()) return "a result of another size";
  const size_t bytes = shape.type == DataType::kF32 ? 4 : 2;
  const size_t entries = static_cast<size_t>(shape.m * shape.n * shape.batch);
  if (clean.size() != entries * bytes) return "a result of an unexpected size";
  int64_t last = 0;
  for (const Injected& one : left.injected) last = std::max(last, one.product);
  std::map<size_t, double> bounds;
  const auto index = [&shape](int64_t batch, int64_t row, int64_t column) {
    return static_cast<size_t>(row + shape.m * (column + shape.n * batch));
  };
  for (const Injected& one : left.injected) {
    if (one.product == last) bounds[index(one.batch, one.row, one.column)] = one.written ? one.bound : 0;
  }
  for (const FaultRecord& fault : left.faults) {
    const auto found = bounds.find(index(fault.batch, fault.row, fault.column));
    if (found == bounds.end()) continue;
    // Of a line with non-finite products the log has no bound: the record's holds.
    found->second = std::isfinite(found->second) ? std::max(found->second, static_cast<double>(fault.bound))
                                                 : static_cast<double>(fault.bound);
  }
  for (size_t i = 0; i < entries; ++i) {
    if (memcmp(left.result.data() + i * bytes, clean.data() + i * bytes, bytes) == 0) continue;
    const double got = value_at(left.result, shape.type, i), right = value_at(clean, shape.type, i);
    const std::string where =
        "entry " + std::to_string(i) + " is " + std::to_string(got) + ", not " + std::to_string(right);
    const auto bound = bounds.find(i);
    if (bound == bounds.end()) return "not injected: " + where;
    const double allowed =
        shape.slope * bound->second + spacing(shape.type, std::max(std::fabs(got), std::fabs(right)));
    if (!(std::fabs(got - right) <= allowed)) return where + " within " + std::to_string(allowed);
  }
  return "";
}

}  // namespace sdcguard::e2e

// SPDX-License-Identifier: MIT
// sdcguard: the command line. Options here, each command in a file of its own.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tools/cli/commands.h"

namespace {

using namespace sdcguard;

// `sdcguard run` ends its own options at the first word that is none: the rest is the program's, "--" or not.
size_t own_arguments(int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--" || word.empty() || word[0] != '-') return static_cast<size_t>(i);
    const bool takes_value = word != "--hostcuda" && word != "--help" && word != "-h" && word.find('=') == word.npos;
    if (takes_value) ++i;
  }
  return static_cast<size_t>(argc);
}

int run(int argc, char** argv) {
  CLI::App app("Checks the matrix products of any cuBLAS program while it runs", "sdcguard");
  app.require_subcommand(1);
  std::string ring_dir;
  int code = 0;
  const auto ring_dir_option = [&ring_dir](CLI::App* command) {
    command->add_option("--ring-dir", ring_dir, "Folder of the rings; default: ring_dir of the configuration");
  };

  RunOptions run_options;
  CLI::App* run = app.add_subcommand("run", "Run a program guarded: sdcguard run [options] [--] program arguments...");
  run->add_option("--config", run_options.config, "Configuration file");
  run->add_option("--mode", run_options.mode, "repair, detect, observe or off");
  run->add_option("--every", run_options.every, "Check one call in this many");
  run->add_option("--rate", run_options.rate, "Check this share of calls");
  run->add_option("--seed", run_options.seed, "Seed of the choice of calls and of the sign draws");
  run->add_option("--ring-dir", run_options.ring_dir, "Folder of the rings");
  run->add_flag("--hostcuda", run_options.hostcuda, "On the host device (CUDA on the CPU), for tests");
  run->callback([&] { code = run_command(run_options); });

  TailOptions tail_options;
  CLI::App* tail = app.add_subcommand("tail", "Show the records of guarded processes: all but clean ones");
  tail->add_flag("--jsonl", tail_options.jsonl, "JSON lines, as sdcguardd writes them; all calls");
  tail->add_flag("-f,--follow", tail_options.follow, "Go on until interrupted");
  tail->add_flag("--all", tail_options.all, "Clean calls too");
  ring_dir_option(tail);
  tail->callback([&] {
    tail_options.ring_dir = ring_dir;
    code = tail_command(tail_options);
  });

  bool status_json = false;
  CLI::App* status =
      app.add_subcommand("status", "Coverage of each guarded process: calls and FLOPs seen, checked, not");
  status->add_flag("--json", status_json, "One JSON object");
  ring_dir_option(status);
  status->callback([&] { code = status_command(ring_dir, status_json); });

  int pid = 0;
  for (const bool on : {false, true}) {
    CLI::App* control = app.add_subcommand(on ? "on" : "off", on ? "Check as configured again" : "Stop checking");
    control->add_option("pid", pid, "Guarded process")->required()->check(CLI::PositiveNumber);
    ring_dir_option(control);
    control->callback([&, on] { code = control_command(ring_dir, pid, on); });
  }

  CLI::App* config = app.add_subcommand("config", "Show every knob, what it does and what is in force");
  config->callback([&] { code = config_command(); });

  CLI::App* selftest = app.add_subcommand("selftest", "Test the installed pieces on the host device");
  selftest->callback([&] { code = selftest_command(); });

  DemoOptions demo_options;
  CLI::App* demo = app.add_subcommand(
      "demo", "A sentence encoder on a simulated device: clean, with faults unguarded, with the same faults guarded");
  demo->add_option("--seeds", demo_options.seeds, "Rounds, each with faults and sign draws of its own")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  demo->add_option("--first-seed", demo_options.first_seed, "Seed of the first round")
      ->check(CLI::Range(0, 1000000000))
      ->capture_default_str();
  demo->add_option("--faults", demo_options.faults, "Accumulator faults injected into each product")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  demo->add_option("--model", demo_options.model, "Folder of the model's weights; default: .cache/model of the source");
  demo->add_option("--sentences", demo_options.sentences, "Text file, a sentence a line");
  demo->add_flag("--json", demo_options.json, "One JSON object");
  demo->callback([&] { code = demo_command(demo_options); });

  ExplainOptions explain_options;
  CLI::App* explain = app.add_subcommand(
      "explain", "What a check of a product tests, and what a rate of false alarms means for a fleet");
  const auto dimension = CLI::Range(int64_t{1}, int64_t{1} << 40);
  explain->add_option("--m", explain_options.m, "Rows of C")->check(dimension)->capture_default_str();
  explain->add_option("--n", explain_options.n, "Columns of C")->check(dimension)->capture_default_str();
  explain->add_option("--k", explain_options.k, "Inner dimension")->check(dimension)->capture_default_str();
  explain->add_option("--batch", explain_options.batch, "Products of a call")->check(dimension)->capture_default_str();
  explain->add_option("--type", explain_options.type, "Operands: bf16, fp16, tf32, fp32, fp64, e4m3 or int8")
      ->capture_default_str();
  explain->add_option("--compute-capability", explain_options.compute_capability, "Major number of the device")
      ->check(CLI::Range(1, 99))
      ->capture_default_str();
  explain->add_option("--rate", explain_options.rate, "False alarms of a clean product")
      ->check(CLI::Range(1e-300, 1.0))
      ->capture_default_str();
  explain->add_option("--gpus", explain_options.gpus, "GPUs of the fleet")
      ->check(CLI::Range(1.0, 1e9))
      ->capture_default_str();
  explain->add_option("--checks-per-second", explain_options.checks_per_second, "Checked products of each GPU")
      ->check(CLI::Range(1e-9, 1e9))
      ->capture_default_str();
  explain->add_flag("--json", explain_options.json, "One JSON object");
  explain->callback([&] { code = explain_command(explain_options); });

  CalibrateOptions calibrate_options;
  CLI::App* calibrate = app.add_subcommand(
      "calibrate", "Measure the noise of clean products on a device; the threshold of a stated rate; a profile");
  calibrate->add_option("--device", calibrate_options.device, "Number of the device")
      ->check(CLI::Range(0, 1023))
      ->capture_default_str();
  calibrate->add_flag("--hostcuda", calibrate_options.hostcuda, "On the host device (CUDA on the CPU), for tests");
  calibrate->add_option("--type", calibrate_options.type, "Operands: bf16, fp16, tf32, fp32, fp64 or e4m3")
      ->capture_default_str();
  calibrate->add_option("--shape", calibrate_options.shapes, "MxNxK in cuBLAS's letters; several are taken in turn");
  calibrate->add_option("--kind", calibrate_options.kinds,
                        "Data: gaussian, positive, outlier-channels, relu or bias; default: all in turn");
  calibrate->add_option("--cells", calibrate_options.cells, "Cells to measure")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->capture_default_str();
  calibrate->add_option("--rate", calibrate_options.rate, "False alarms of a clean product")
      ->check(CLI::Range(1e-300, 1.0))
      ->capture_default_str();
  calibrate->add_option("--seed", calibrate_options.seed, "Of the data and the sign draws")->capture_default_str();
  calibrate->add_flag(
      "--ring", calibrate_options.ring,
      "Measure the calls of guarded processes instead (bf16, fp16 and fp64; --type, --shape, --kind and "
      "--cells are not used)");
  calibrate->add_option("--seconds", calibrate_options.seconds, "With --ring: how long")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  calibrate->add_option("--profile", calibrate_options.profile,
                        "TOML file to put the profile into; those of other keys in it stay");
  calibrate->add_option("--plot", calibrate_options.plot, "SVG file of the tail; with --ring: of the last key");
  calibrate->add_flag("--json", calibrate_options.json, "JSON, an object a profile");
  ring_dir_option(calibrate);
  calibrate->callback([&] {
    calibrate_options.ring_dir = ring_dir;
    code = calibrate_command(calibrate_options);
  });

  CheckOptions check_options;
  CLI::App* check = app.add_subcommand("check",
                                       "Is this GPU's arithmetic right? Products of every type against the CPU, "
                                       "repeats, memory, speed. Exit code: 0 PASS, "
                                       "1 FAIL, 2 INCONCLUSIVE, 3 SUSPECT, 4 INCOMPLETE");
  check->add_option("--device", check_options.devices, "Number of a device; default: all of them")
      ->check(CLI::Range(0, 1023));
  check->add_flag("--hostcuda", check_options.hostcuda, "On the host device (CUDA on the CPU), for tests");
  check->add_option("--shape", check_options.shapes,
                    "MxNxK in cuBLAS's letters; the first is timed, the last repeated");
  check->add_option("--profile", check_options.profile,
                    "Noise profiles by `sdcguard calibrate`; without one of the device the verdict is INCONCLUSIVE");
  check->add_option("--memory", check_options.memory,
                    "Device memory to test, such as \"8 GiB\"; default: nine tenths of what is free");
  check->add_option("--minutes", check_options.minutes, "What has not begun on a device by then is INCOMPLETE")
      ->check(CLI::Range(0.0, 1e5))
      ->capture_default_str();
  check->add_option("--seed", check_options.seed, "Of the data and the sign draws")->capture_default_str();
  check->add_option("--evidence", check_options.evidence, "Folder for what a FAIL found")->capture_default_str();
  check->add_flag("--json", check_options.json, "One JSON object");
  check->callback([&] { code = check_command(check_options); });

  std::vector<std::string> own(argv + 1, argv + argc);
  if (argc > 1 && strcmp(argv[1], "run") == 0) {
    size_t split = own_arguments(argc, argv);
    const size_t own_count = split - 1;
    if (split < static_cast<size_t>(argc) && strcmp(argv[split], "--") == 0) ++split;
    run_options.program.assign(argv + split, argv + argc);
    own.resize(own_count);
    bool help = false;
    for (const std::string& word : own) help = help || word == "--help" || word == "-h";
    if (run_options.program.empty() && !help) {
      fprintf(stderr, "sdcguard: run: no program given\n");
      return 2;
    }
  }
  std::reverse(own.begin(), own.end());  // CLI11 takes a vector from its back
  try {
    app.parse(own);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fprintf(stderr, "sdcguard: %s\n", error.what());
    return 2;
  }
}

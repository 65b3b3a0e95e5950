// SPDX-License-Identifier: MIT
// Tests of the command line, the program itself: what `run` refuses and passes on, what the readers show of forged
// rings, and that selftest and demo pass with the shipped shim and fail with a shim that does nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "config/config.h"
#include "tests/e2e/command_line.h"
#include "tests/scratch_folder.h"
#include "tests/unit/ring_forge.h"

namespace sdcguard {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string shim_path() {
  return (fs::path(SDCGUARD_BUILD_DIR) / "lib/libsdcguard.so").string();
}

TEST(Run_WrongSetting, IsRefusedBeforeTheProgramStarts) {
  ScratchFolder folder;
  const std::string mark = folder.path() + "/started";
  const Ended every = sdcguard({"run", "--every", "0", "--", "touch", mark});
  EXPECT_EQ(every.exit_code, 2);
  EXPECT_EQ(every.err, "sdcguard: SDCGUARD_EVERY = 0: must be an integer from 1 to 4294967295\n");

  const std::string file = folder.path() + "/job.toml";
  std::ofstream(file) << "mode = \"detect\"\nevry = 3\n";
  const Ended key = sdcguard({"run", "--config", file, "touch", mark});
  EXPECT_EQ(key.exit_code, 2);
  EXPECT_EQ(key.err, "sdcguard: " + file + ":2: evry: no such key; the nearest is every\n");

  const Ended variable = sdcguard({"run", "touch", mark}, {{"SDCGUARD_EVRY", "3"}});
  EXPECT_EQ(variable.exit_code, 2);
  EXPECT_EQ(variable.err, "sdcguard: SDCGUARD_EVRY: no such variable; the nearest is SDCGUARD_EVERY\n");
  EXPECT_FALSE(fs::exists(mark));

  EXPECT_EQ(sdcguard({"run"}).exit_code, 2);
  EXPECT_EQ(sdcguard({"run", "--mode", "off"}).exit_code, 2);
  EXPECT_EQ(sdcguard({"run", "--tea", "1", "touch", mark}).exit_code, 2);
  EXPECT_EQ(sdcguard({"brew"}).exit_code, 2);
  EXPECT_EQ(sdcguard({"--help"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(mark));
}

TEST(Run_Program, GetsItsArgumentsAndTheSettings) {
  const std::string script = "echo \"$LD_PRELOAD|$SDCGUARD_MODE|$SDCGUARD_EVERY|$SDCGUARD_RATE|$0|$*\"; exit 7";
  const Ended ended =
      sdcguard({"run", "--mode", "observe", "--every=5", "--", "sh", "-c", script, "--help", "-f", "x y"},
               {{"SDCGUARD_RATE", "0.5"}});
  EXPECT_EQ(ended.exit_code, 7);
  EXPECT_EQ(ended.out, shim_path() + "|observe|5||--help|-f x y\n");
  EXPECT_EQ(ended.err, "");
}

TEST(Run_Program, KeepsAnotherPreloadAndCanTakeTheHostDevice) {
  const Ended ended = sdcguard({"run", "--hostcuda", "sh", "-c", "echo \"$LD_PRELOAD|$LD_LIBRARY_PATH\""},
                               {{"LD_PRELOAD", "libm.so.6"}, {"LD_LIBRARY_PATH", "/opt/x"}});
  EXPECT_EQ(ended.out, shim_path() + ":libm.so.6|" + SDCGUARD_BUILD_DIR + "/lib/hostcuda:/opt/x\n");
  EXPECT_EQ(sdcguard({"run", "/no/such/program"}).exit_code, 127);
  EXPECT_EQ(sdcguard({"run", "/dev/null"}).exit_code, 126);
}

TEST(Config_Command, ShowsEveryKnobAndWhereItCameFrom) {
  const Ended ended = sdcguard({"config"}, {{"SDCGUARD_SEED", "99"}});
  EXPECT_EQ(ended.exit_code, 0);
  for (const Knob& knob : kKnobs) {
    EXPECT_NE(ended.out.find(std::string("\n") + knob.key + " = "),
              ended.out.find(std::string("\n# ") + knob.key + " = "))
        << knob.key;
    EXPECT_NE(ended.out.find(knob.environment), std::string::npos);
  }
  EXPECT_NE(ended.out.find("\nseed = 99  # SDCGUARD_SEED\n"), std::string::npos);
  EXPECT_NE(ended.out.find("\nevery = 20  # default\n"), std::string::npos);
  const Ended wrong = sdcguard({"config"}, {{"SDCGUARD_SEED", "x"}});
  EXPECT_EQ(wrong.exit_code, 2);
}

class Readers : public testing::Test {
 protected:
  Readers() : ring_(folder_.path()) {
    for (uint64_t t = 0; t < 10; ++t) ring_.put(2, t, forged_call(t, t == 4 ? Outcome::kCorrected : Outcome::kClean));
    ring_.put(3, 0, forged_fault(4, 17, 23));
    CallRecord unverified = forged_call(50, Outcome::kUnverified);
    unverified.reason = Reason::kCapture;
    ring_.put(0, 0, unverified);
    ThreadCounters& counters = ring_.thread(0);
    counters.calls_seen = 200;
    counters.calls_sampled = 12;
    counters.calls_launched = 11;  // one is still to come
    counters.unverified_calls[static_cast<size_t>(Reason::kCapture)] = 1;
    ring_.publish();
  }
  ScratchFolder folder_;
  ForgedRing ring_;
};

TEST_F(Readers, StatusShowsCoverage) {
  const Ended text = sdcguard({"status", "--ring-dir", folder_.path()});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_NE(text.out.find("python train.py"), std::string::npos);
  EXPECT_NE(text.out.find("(lower bound)"), std::string::npos);
  EXPECT_NE(text.out.find("unverified(capture) 1 calls"), std::string::npos);
  EXPECT_NE(text.out.find("GPU-10111213-1415-1617-1819-1a1b1c1d1e1f"), std::string::npos);
  const Ended machine = sdcguard({"status", "--json", "--ring-dir", folder_.path()});
  const json processes = json::parse(machine.out).at("processes");
  ASSERT_EQ(processes.size(), 1u);
  const json& coverage = processes[0].at("coverage");
  EXPECT_EQ(coverage["seen"]["calls"], 200);
  EXPECT_EQ(coverage["checked"]["calls"], 10);
  EXPECT_EQ(coverage["outcomes"]["corrected"]["calls"], 1);
  EXPECT_EQ(coverage["unverified"]["capture"]["calls"], 1);
  EXPECT_EQ(coverage["outstanding"], 1);
  EXPECT_EQ(coverage["lower_bound"], true);
  EXPECT_EQ(processes[0]["mode"], "repair");
  EXPECT_TRUE(fs::exists(ring_.path()));
  EXPECT_NE(sdcguard({"status", "--ring-dir", folder_.path() + "/none"}).out.find("no guarded process"),
            std::string::npos);
}

TEST_F(Readers, TailShowsWhatIsNotClean) {
  const Ended text = sdcguard({"tail", "--ring-dir", folder_.path()});
  EXPECT_NE(text.out.find("corrected"), std::string::npos);
  EXPECT_NE(text.out.find("WRONG row 17 column 23"), std::string::npos);
  EXPECT_NE(text.out.find("unverified(capture)"), std::string::npos);
  EXPECT_EQ(text.out.find(" clean "), std::string::npos);
  EXPECT_NE(sdcguard({"tail", "--all", "--ring-dir", folder_.path()}).out.find(" clean "), std::string::npos);
  std::stringstream lines(sdcguard({"tail", "--jsonl", "--ring-dir", folder_.path()}).out);
  size_t calls = 0, faults = 0;
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line);
    calls += object["type"] == "call";
    faults += object["type"] == "fault" && object["m"] == 384;
  }
  EXPECT_EQ(calls, 11u);
  EXPECT_EQ(faults, 1u);
}

TEST_F(Readers, OffAndOnWriteTheControlWord) {
  const std::string pid = std::to_string(getpid());
  const auto control = [this] {
    std::ifstream in(ring_.path(), std::ios::binary);
    uint32_t word = 77;
    in.seekg(offsetof(RingHeader, control));
    in.read(reinterpret_cast<char*>(&word), sizeof(word));
    return word;
  };
  EXPECT_EQ(sdcguard({"off", pid, "--ring-dir", folder_.path()}).exit_code, 0);
  EXPECT_EQ(control(), 1u + static_cast<uint32_t>(Mode::kOff));
  EXPECT_EQ(sdcguard({"on", pid, "--ring-dir", folder_.path()}).exit_code, 0);
  EXPECT_EQ(control(), 0u);
  EXPECT_EQ(sdcguard({"off", "1", "--ring-dir", folder_.path()}).exit_code, 1);
}

// A prefix that is the build in all but the shim, which is a library without effect.
class WithoutShim {
 public:
  WithoutShim() {
    const fs::path build = SDCGUARD_BUILD_DIR, prefix = folder_.path();
    fs::create_directories(prefix / "bin");
    fs::create_directories(prefix / "lib");
    fs::copy_file(build / "bin/sdcguard", prefix / "bin/sdcguard");
    for (const char* name : {"bin/sdcguardd", "bin/encoder", "bin/gemm", "lib/hostcuda"}) {
      fs::create_symlink(build / name, prefix / name);
    }
    fs::create_symlink("/lib/x86_64-linux-gnu/libm.so.6", prefix / "lib/libsdcguard.so");
  }
  const std::string& path() const { return folder_.path(); }

 private:
  ScratchFolder folder_;
};

TEST(Selftest_Pieces, PassTogether) {
  const Ended ended = sdcguard({"selftest"});
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(ended.out.find("FAIL"), std::string::npos) << ended.out;
}

TEST(Selftest_Pieces, FailWithoutTheShim) {
  const WithoutShim prefix;
  const Ended ended = sdcguard({"selftest"}, {}, prefix.path());
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_EQ(ended.out.find("PASS  --api gemmex --type bf16 : repair"), std::string::npos) << ended.out;
}

// The figures of reference/statistics.md 3.6 for 16,000 GPUs, and the plan's own for the product.
TEST(Explain, TurnsARateIntoAlarmsADay) {
  const Ended ended = sdcguard({"explain", "--json", "--m", "1024", "--n", "4096", "--k", "4096", "--rate", "1e-6",
                                "--gpus", "16000", "--checks-per-second", "100"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const json told = json::parse(ended.out);
  EXPECT_NEAR(told.at("fleet").at("false_alarms_a_day"), 138240, 1e-6);
  EXPECT_NEAR(told.at("fleet").at("products_to_confirm"), 3e6, 0.01e6);
  EXPECT_EQ(told.at("upgraded").at("plan"), "line");
  EXPECT_EQ(told.at("upgraded").at("tests"), 4096 * 8 * 2);
  EXPECT_EQ(told.at("delivered").at("plan"), "block_sums");
  EXPECT_EQ(told.at("delivered").at("tests"), 4096 * 1024 / 32 * 2);
  // sqrt(2 ln(2 tests / 1e-15)), MATH.md "block sums"
  EXPECT_NEAR(told.at("delivered").at("bound_factor"), std::sqrt(2 * std::log(2 * 262144 / 1e-15)), 1e-5);
}

TEST(Explain, SaysItInWords) {
  const Ended ended = sdcguard({"explain"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (const char* line : {"65536: 8 classes of a line, 2 sign draws", "1.382e+11 products a day",
                           "   1e-06           1.382e+05         0.625 s", "19.8 years"}) {
    EXPECT_NE(ended.out.find(line), ended.out.npos) << line << "\n" << ended.out;
  }
  const Ended integers = sdcguard({"explain", "--type", "int8"});
  EXPECT_NE(integers.out.find("exact modulo 2^32"), integers.out.npos) << integers.out;
}

TEST(Explain, RefusesWhatItDoesNotKnow) {
  const Ended type = sdcguard({"explain", "--type", "bf61"});
  EXPECT_EQ(type.exit_code, 2);
  EXPECT_EQ(type.err, "sdcguard: explain: --type bf61: must be bf16, fp16, tf32, fp32, fp64, e4m3 or int8\n");
  for (const char* wrong : {"--m=0", "--k=-1", "--rate=0", "--rate=2", "--gpus=none"}) {
    EXPECT_EQ(sdcguard({"explain", wrong}).exit_code, 2) << wrong;
  }
}

class Demo : public testing::Test {
 protected:
  Demo() {
    std::ofstream(sentences_) << "A cat sleeps on the warm windowsill.\nThe kitten is napping by the window.\n"
                                 "Stock markets fell sharply.\nSimmer the tomatoes with garlic.\n";
  }
  std::vector<std::string> arguments() const {
    return {"demo", "--json", "--model", std::string(SDCGUARD_SOURCE_DIR) + "/.cache/model", "--sentences", sentences_};
  }
  ScratchFolder folder_;
  const std::string sentences_ = folder_.path() + "/sentences.txt";
};

TEST_F(Demo, FindsAndRepairsAndAccusesNothing) {
  const Ended ended = sdcguard(arguments());
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  const json found = json::parse(ended.out);
  EXPECT_EQ(found.at("clean").at("accusations"), 0);
  EXPECT_GE(found.at("clean").at("looks"), 0);
  EXPECT_EQ(found.at("clean").at("checked"), 48);  // 6 layers of 8 products, one batch of sentences
  const json& faults = found.at("faults");
  EXPECT_GT(faults.at("injected"), 48);
  EXPECT_EQ(faults.at("injected"), faults.at("above_bound").get<int>() + faults.at("below_floor").get<int>());
  EXPECT_EQ(faults.at("missed_above_bound"), 0) << faults.dump(1);
  EXPECT_GE(faults.at("found"), faults.at("above_bound"));
  EXPECT_EQ(faults.at("repaired"), faults.at("found"));
  EXPECT_EQ(faults.at("unmatched_records"), 0);
  const double noise = found.at("order_noise");
  EXPECT_GT(noise, 0);
  EXPECT_LE(found.at("guarded").at("max_similarity_error"), 2 * noise);
  EXPECT_GE(found.at("unguarded").at("max_similarity_error"), 10 * noise);
  EXPECT_EQ(found.at("coverage").at("faults").at("lower_bound"), false);
}

TEST_F(Demo, DoesNotPassWithoutTheShim) {
  const WithoutShim prefix;
  const Ended ended = sdcguard(arguments(), {}, prefix.path());
  ASSERT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  const json found = json::parse(ended.out);
  EXPECT_EQ(found.at("clean").at("checked"), 0);
  EXPECT_EQ(found.at("faults").at("found"), 0);
  EXPECT_GT(found.at("faults").at("missed_above_bound"), 0);
}

TEST_F(Demo, SaysWhatIsMissing) {
  const Ended ended = sdcguard({"demo", "--model", "/no/model", "--sentences", sentences_});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("/no/model: holds no model"), std::string::npos);
}

}  // namespace
}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// sdcguard check on the host device: each verdict from what causes it, and evidence that the wrong number can be
// computed from again.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/e2e/command_line.h"
#include "tests/scratch_folder.h"
#include "tools/calibrate/profile.h"

namespace sdcguard {
namespace {

using nlohmann::json;

class Check : public testing::Test {
 protected:
  // Of one device, with the folder for its evidence.
  Ended check(std::vector<std::string> more = {}, const std::map<std::string, std::string>& set = {}) {
    std::vector<std::string> words = {"check", "--hostcuda", "--device", "0", "--json", "--evidence", folder_.path()};
    if (std::find(more.begin(), more.end(), "--memory") == more.end()) more.insert(more.end(), {"--memory", "1 MiB"});
    words.insert(words.end(), more.begin(), more.end());
    return sdcguard(words, set);
  }
  // The stage of that name in what was printed.
  static json stage(const Ended& ended, const std::string& name) {
    const json all = json::parse(ended.out);
    for (const json& one : all["devices"][0]["stages"]) {
      if (one["stage"] == name) return one;
    }
    ADD_FAILURE() << name;
    return {};
  }
  std::string faults(const std::string& text) {
    const std::string path = folder_.path() + "/faults.toml";
    std::ofstream(path) << "seed = 3\n[[fault]]\n" << text;
    return path;
  }
  // Profiles of every type for the device, with this threshold.
  std::string profiles(double threshold) {
    const std::string path = folder_.path() + "/noise.toml";
    for (const char* type : {"bf16", "fp16", "tf32", "fp32", "fp64", "e4m3"}) {
      Profile profile;
      profile.key = {"hostcuda simulated H100", 16, 13000, 130100, type, "h100", "line"};
      profile.values = 1'000'000;
      profile.rate = 1e-15;
      profile.tests = 1e6;
      profile.tail.threshold = threshold;
      for (TailFit& fit : profile.tail.fits) fit = {0.1, 10, {0, 1e-3}, 0, 0};
      std::string error;
      EXPECT_TRUE(write_profile(path, profile, &error)) << error;
    }
    return path;
  }
  static constexpr const char* kSmall = "192x64x128";
  ScratchFolder folder_;
};

TEST_F(Check, WithoutAProfileItConcludesNothing) {
  const Ended ended = check({"--shape", kSmall});
  EXPECT_EQ(ended.exit_code, 2) << ended.out << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(json::parse(ended.out)["verdict"], "INCONCLUSIVE");
  for (const char* type : {"bf16", "fp16", "tf32", "fp32", "fp64", "e4m3"}) {
    EXPECT_EQ(stage(ended, type)["verdict"], "INCONCLUSIVE");
    EXPECT_EQ(stage(ended, std::string("repeat ") + type)["verdict"], "PASS");
  }
  EXPECT_EQ(stage(ended, "int8")["verdict"], "PASS");  // exact: there is no noise to know
  EXPECT_EQ(stage(ended, "memory")["verdict"], "PASS");
  EXPECT_GT(stage(ended, "speed bf16")["tflops"], 0);
  EXPECT_TRUE(json::parse(ended.out)["devices"][0]["simulated"]);
}

TEST_F(Check, PassesAHealthyDeviceWhoseNoiseIsKnown) {
  const Ended ended = check({"--shape", kSmall, "--shape", "256x32x300", "--profile", profiles(20)});
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(json::parse(ended.out)["verdict"], "PASS");
  EXPECT_FALSE(json::parse(ended.out)["devices"][0].contains("evidence"));
  // A profile of another device, driver, library or order says nothing.
  for (const auto& [from, to] : {std::pair{"H100", "H200"},
                                 {"13000", "12090"},
                                 {"130100", "120900"},
                                 {"order = \"h100\"", "order = \"b200\""},
                                 {"multiprocessors = 16", "multiprocessors = 8"}}) {
    const std::string path = profiles(20);
    std::string text = bytes_of(path);
    for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += 1) text.replace(at, std::strlen(from), to);
    std::ofstream(path) << text;
    EXPECT_EQ(check({"--shape", kSmall, "--profile", path}).exit_code, 2) << from;
    std::filesystem::remove(path);
  }
}

TEST_F(Check, SuspectsNoiseThatItsProfileDoesNotKnow) {
  const Ended ended = check({"--shape", kSmall, "--profile", profiles(1)});
  EXPECT_EQ(ended.exit_code, 3) << ended.out << ended.err;
  EXPECT_EQ(stage(ended, "bf16")["verdict"], "SUSPECT");
  EXPECT_NE(stage(ended, "bf16")["what"].get<std::string>().find("no entry is wrong"), std::string::npos);
}

double bf16_at(const std::string& hex, size_t i) {
  const auto byte = [&](size_t at) { return static_cast<uint32_t>(std::stoul(hex.substr(2 * at, 2), nullptr, 16)); };
  return static_cast<double>(std::bit_cast<float>((byte(2 * i) | byte(2 * i + 1) << 8) << 16));
}

TEST_F(Check, FailsOnOneWrongEntryAndKeepsItsEvidence) {
  // Of the fourth product, wherever it is: the kernels see all of it.
  const Ended ended = check({"--shape", kSmall, "--shape", "256x32x300", "--profile", profiles(20)},
                            {{"HOSTCUDA_FAULTS", faults("kind = \"word\"\nproducts = 3\nvalue = 1000.0\n")}});
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_EQ(json::parse(ended.out)["verdict"], "FAIL");
  EXPECT_EQ(stage(ended, "bf16")["verdict"], "FAIL");
  EXPECT_EQ(stage(ended, "fp16")["verdict"], "PASS");
  const json evidence = json::parse(bytes_of(json::parse(ended.out)["devices"][0]["evidence"]));
  ASSERT_EQ(evidence["wrong"].size(), 1u);
  const json& wrong = evidence["wrong"][0];
  EXPECT_EQ(wrong["got"], 1000);
  EXPECT_EQ(wrong["operands"], "bf16");
  EXPECT_NE(wrong["where"].get<std::string>().find("bf16 256x32x300, gaussian, seed 4, row "), std::string::npos)
      << wrong["where"];
  double sum = 0;
  for (size_t k = 0; k < 300; ++k) sum += bf16_at(wrong["a_row"], k) * bf16_at(wrong["b_column"], k);
  EXPECT_NEAR(sum, wrong["expected"], 1e-12);
  EXPECT_LT(wrong["bound"], 1e-3);
}

// Every type: one flipped bit of an entry of its second product.
TEST_F(Check, FailsOnAWrongEntryOfAnyType) {
  constexpr int kProductsOfType = 3 + 5 + 8;  // of the kinds of data, the repeats, the timed ones
  int product = 1;
  for (const char* type : {"bf16", "fp16", "tf32", "fp32", "fp64", "e4m3", "int8"}) {
    const std::string bit = std::string(type) == "fp64" ? "60" : "28";
    const std::string text = "kind = \"output\"\nproducts = " + std::to_string(product) + "\nbits = " + bit + "\n";
    const Ended ended = check({"--shape", kSmall}, {{"HOSTCUDA_FAULTS", faults(text)}});
    EXPECT_EQ(ended.exit_code, 1) << type << ended.out << ended.err;
    EXPECT_EQ(stage(ended, type)["verdict"], "FAIL") << type;
    EXPECT_EQ(stage(ended, type)["wrong"], 1) << type;
    product += kProductsOfType;
  }
}

TEST_F(Check, FailsOnARepeatThatDiffers) {
  // Three products of three kinds, then the repeats.
  const Ended ended = check({"--shape", kSmall, "--profile", profiles(20)},
                            {{"HOSTCUDA_FAULTS", faults("kind = \"word\"\nproducts = 5\nvalue = 1000.0\n")}});
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_EQ(stage(ended, "bf16")["verdict"], "PASS");
  EXPECT_EQ(stage(ended, "repeat bf16")["verdict"], "FAIL");
  // Of a last bit: neither is wrong, and they differ.
  const Ended bit = check({"--shape", kSmall, "--profile", profiles(20)},
                          {{"HOSTCUDA_FAULTS", faults("kind = \"output\"\nproducts = 5\nbits = 0\n")}});
  EXPECT_EQ(bit.exit_code, 3) << bit.out << bit.err;
  EXPECT_EQ(stage(bit, "repeat bf16")["verdict"], "SUSPECT");
}

TEST_F(Check, SaysWhatDidNotRun) {
  const Ended late = check({"--shape", kSmall, "--minutes", "0"});
  EXPECT_EQ(late.exit_code, 4) << late.out << late.err;
  EXPECT_EQ(stage(late, "memory")["verdict"], "INCOMPLETE");
  const Ended large = check({"--shape", kSmall, "--profile", profiles(20), "--memory", "512 TiB"});
  EXPECT_EQ(large.exit_code, 4) << large.out << large.err;
  EXPECT_NE(stage(large, "memory")["what"].get<std::string>().find("cuMemAlloc of 562949953421312 bytes"),
            std::string::npos);
  const Ended blind =
      check({"--shape", kSmall, "--profile", profiles(20)}, {{"HOSTCUDA_SKIP_KERNEL", "sdcguard_product"}});
  EXPECT_EQ(blind.exit_code, 4) << blind.out << blind.err;
  // A type that the device lacks is none of its defects.
  const Ended old = check({"--shape", kSmall}, {{"HOSTCUDA_ORDER", "v100"}});
  EXPECT_EQ(stage(old, "bf16")["what"], "not supported here");
  EXPECT_EQ(stage(old, "bf16")["verdict"], "PASS");
}

TEST_F(Check, TakesAllDevicesAndSaysSoInWords) {
  const Ended ended =
      sdcguard({"check", "--hostcuda", "--shape", kSmall, "--memory", "1 MiB", "--evidence", folder_.path()});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  size_t count = 0;
  for (size_t at = 0; (at = ended.out.find("a simulated device", at)) != ended.out.npos; ++at) ++count;
  EXPECT_EQ(count, 2u);
  EXPECT_NE(ended.out.find("\nINCONCLUSIVE\n"), std::string::npos);
}

TEST_F(Check, RefusesWrongWords) {
  const auto refusal = [](std::initializer_list<std::string> words) {
    const Ended ended = sdcguard(words);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_EQ(ended.out, "");
    return ended.err;
  };
  EXPECT_EQ(refusal({"check", "--shape", "1x2"}),
            "sdcguard: check: --shape 1x2: must be MxNxK, each from 1 to 1048576\n");
  EXPECT_EQ(refusal({"check", "--memory", "many"}),
            "sdcguard: check: --memory many: must be a size such as \"8 GiB\"\n");
  EXPECT_EQ(refusal({"check", "--profile", "/no/such"}), "sdcguard: check: /no/such: No such file or directory\n");
  EXPECT_EQ(refusal({"check", "--evidence", "/no/such"}),
            "sdcguard: check: --evidence /no/such: must be a folder that can be written to\n");
  EXPECT_EQ(refusal({"check", "--hostcuda", "--device", "9"}),
            "sdcguard: check: no device 9: there are 2, counted from 0\n");
}

}  // namespace
}  // namespace sdcguard

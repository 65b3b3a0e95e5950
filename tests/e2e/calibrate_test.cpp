// SPDX-License-Identifier: MIT
// sdcguard calibrate on the host device: a profile and its picture from clean products, none from too few, from a
// device that computes wrong ones, or where nothing was measured.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/e2e/command_line.h"
#include "tests/scratch_folder.h"

namespace sdcguard {
namespace {

using nlohmann::json;

// Many cells for little arithmetic.
const std::vector<std::string> kSmall = {"calibrate", "--hostcuda", "--kind", "gaussian", "--shape", "64x256x32"};

std::vector<std::string> small(std::initializer_list<std::string> more) {
  std::vector<std::string> words = kSmall;
  words.insert(words.end(), more);
  return words;
}

TEST(Calibrate, GivesAProfileAndAPictureOfCleanProducts) {
  ScratchFolder folder;
  const std::string profile = folder.path() + "/noise.toml", plot = folder.path() + "/tail.svg";
  const Ended ended = sdcguard(small({"--cells", "5200000", "--json", "--profile", profile, "--plot", plot}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  const json said = json::parse(ended.out).at(0);
  EXPECT_EQ(said["gpu"], "hostcuda simulated H100");
  EXPECT_EQ(said["order"], "h100");
  EXPECT_EQ(said["type"], "bf16");
  EXPECT_TRUE(said["simulated"]);
  EXPECT_EQ(said["tests"], 4096);
  EXPECT_GE(said["cells"], 5200000);
  // One cell in a thousand is kept: the tail, all of it.
  EXPECT_NEAR(said["kept"].get<double>() / said["cells"].get<double>(), 1e-3, 1e-5);
  // A Gaussian passes 3.29 once in a thousand; sums of few steps have a heavier tail (kernels/MATH.md "look").
  EXPECT_GT(said["limit"], 3.2);
  EXPECT_LT(said["limit"], 4.5);
  EXPECT_GT(said["threshold"], said["looks_at"][2]["tail"]);
  EXPECT_GT(said["decades"], 11);
  for (const json& fit : said["fits"]) EXPECT_GE(fit["xi"], 0);
  EXPECT_NE(bytes_of(profile).find("gpu = \"hostcuda simulated H100\""), std::string::npos);
  EXPECT_NE(bytes_of(plot).find("</svg>"), std::string::npos);

  // The same again, another type: the file then has both.
  EXPECT_EQ(sdcguard(small({"--cells", "5200000", "--type", "fp16", "--profile", profile})).exit_code, 0);
  EXPECT_NE(bytes_of(profile).find("type = \"bf16\""), std::string::npos);
  EXPECT_NE(bytes_of(profile).find("type = \"fp16\""), std::string::npos);
}

TEST(Calibrate, SaysHowManyProductsItTakes) {
  ScratchFolder folder;
  const std::string profile = folder.path() + "/noise.toml";
  const Ended few = sdcguard(small({"--cells", "20000", "--profile", profile}));
  EXPECT_EQ(few.exit_code, 1);
  EXPECT_NE(few.err.find("5000 are needed, about"), std::string::npos) << few.err;
  EXPECT_FALSE(std::filesystem::exists(profile));
}

// A device that is bad must not teach us its noise.
TEST(Calibrate, LearnsNothingFromWrongProducts) {
  ScratchFolder folder;
  const std::string profile = folder.path() + "/noise.toml", faults = folder.path() + "/faults.toml";
  std::ofstream(faults) << "seed = 3\n[[fault]]\nkind = \"word\"\nvalue = 1000.0\n";
  const Ended ended = sdcguard(small({"--cells", "20000", "--profile", profile}), {{"HOSTCUDA_FAULTS", faults}});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_NE(ended.err.find("1 entries of a bf16 product of gaussian data, shape 64x256x32, seed 1 are wrong on"),
            std::string::npos)
      << ended.err;
  EXPECT_FALSE(std::filesystem::exists(profile));
}

// Lines that are looked at again and again are no noise that a threshold may come from. (With the repair kernel skipped
// a wrong entry is looked at and never named.)
TEST(Calibrate, LearnsNothingWhereMostProductsAreLookedAt) {
  ScratchFolder folder;
  const std::string profile = folder.path() + "/noise.toml", faults = folder.path() + "/faults.toml";
  std::ofstream(faults) << "seed = 3\n[[fault]]\nkind = \"word\"\nvalue = 1000.0\n";
  const Ended ended = sdcguard(small({"--cells", "20000", "--profile", profile}),
                               {{"HOSTCUDA_FAULTS", faults}, {"HOSTCUDA_SKIP_KERNEL", "sdcguard_escalate_repair"}});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_NE(ended.err.find("8 of 8 checks of clean products on hostcuda simulated H100"), std::string::npos)
      << ended.err;
  EXPECT_FALSE(std::filesystem::exists(profile));
}

// Its cells and its verdict must tell the same: each kernel that does not run is noticed.
TEST(Calibrate, NoticesKernelsThatDoNotRun) {
  for (const char* kernel : {"sdcguard_fold", "sdcguard_operand", "sdcguard_product"}) {
    const Ended ended = sdcguard(small({"--cells", "20000"}), {{"HOSTCUDA_SKIP_KERNEL", kernel}});
    EXPECT_NE(ended.exit_code, 0) << kernel;
    EXPECT_EQ(ended.err.find("exceedances"), std::string::npos) << kernel << ": " << ended.err;
  }
}

TEST(Calibrate, EveryTypeAndOrderIsMeasured) {
  for (const char* type : {"bf16", "fp16", "tf32", "fp32", "fp64", "e4m3"}) {
    const Ended ended = sdcguard(small({"--cells", "20000", "--type", type}));
    EXPECT_NE(ended.err.find("exceedances of 2 products"), std::string::npos);
    EXPECT_NE(ended.err.find(std::string(type) + " on hostcuda simulated H100: "), std::string::npos) << ended.err;
  }
  const Ended ended = sdcguard(small({"--cells", "20000"}), {{"HOSTCUDA_ORDER", "rounded16"}});
  EXPECT_NE(ended.err.find("order rounded16: "), std::string::npos) << ended.err;
  const Ended refused = sdcguard(small({"--cells", "20000", "--type", "e4m3"}), {{"HOSTCUDA_ORDER", "a100"}});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("e4m3 64x256x32: not supported by cuBLAS on hostcuda simulated A100"), std::string::npos)
      << refused.err;
}

TEST(Calibrate, RefusesWhatItCannotMeasure) {
  const auto refusal = [](std::initializer_list<std::string> words) {
    const Ended ended = sdcguard(words);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_EQ(ended.out, "");
    return ended.err;
  };
  EXPECT_EQ(refusal({"calibrate", "--type", "bf17"}),
            "sdcguard: calibrate: --type bf17: must be bf16, fp16, tf32, fp32, fp64 or e4m3\n");
  EXPECT_EQ(
      refusal({"calibrate", "--type", "int8"}),
      "sdcguard: calibrate: --type int8: must be bf16, fp16, tf32, fp32, fp64 or e4m3 (INT8 is checked exactly)\n");
  EXPECT_EQ(refusal({"calibrate", "--shape", "64x64"}),
            "sdcguard: calibrate: --shape 64x64: must be MxNxK, each from 1 to 1048576\n");
  EXPECT_EQ(refusal({"calibrate", "--shape", "64x64x0"}),
            "sdcguard: calibrate: --shape 64x64x0: must be MxNxK, each from 1 to 1048576\n");
  EXPECT_EQ(refusal({"calibrate", "--kind", "odd"}),
            "sdcguard: calibrate: --kind odd: must be gaussian, positive, outlier-channels, relu or bias\n");
  EXPECT_EQ(refusal({"calibrate", "--hostcuda", "--device", "7"}),
            "sdcguard: calibrate: no device 7: there are 2, counted from 0\n");
  EXPECT_EQ(refusal({"calibrate", "--hostcuda", "--shape", "4x4x4"}),
            "sdcguard: calibrate: bf16 4x4x4: too small, it would be recomputed outright; its noise is not measured\n");
  ScratchFolder folder;
  const std::string file = folder.path() + "/other.toml";
  std::ofstream(file) << "mode = \"repair\"\n";
  EXPECT_EQ(refusal({"calibrate", "--hostcuda", "--profile", file}),
            "sdcguard: calibrate: " + file + ":1: version is missing: must be a whole number from 0 on\n");
  const Ended no_ring = sdcguard({"calibrate", "--ring", "--seconds", "0", "--ring-dir", folder.path()});
  EXPECT_EQ(no_ring.exit_code, 1);
  EXPECT_EQ(no_ring.err, "sdcguard: calibrate: no clean call to measure in " + folder.path() + " (0 others)\n");
}

// A program that ran guarded: its calls are found in its ring.
TEST(Calibrate, MeasuresTheCallsOfGuardedPrograms) {
  ScratchFolder folder;
  const std::map<std::string, std::string> rings = {{"SDCGUARD_RING_DIR", folder.path()}};
  const std::string gemm = std::string(SDCGUARD_BUILD_DIR) + "/bin/gemm";
  ASSERT_EQ(sdcguard({"run", "--hostcuda", "--every", "1", "--", gemm, "--m", "192", "--n", "64", "--k", "128", "--api",
                      "gemmex", "--type", "bf16", "--calls", "20"},
                     rings)
                .exit_code,
            0);
  const Ended ended = sdcguard({"calibrate", "--ring", "--seconds", "0"}, rings);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_NE(ended.err.find("exceedances of 20 products: 5000 are needed"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace sdcguard

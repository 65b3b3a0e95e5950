// SPDX-License-Identifier: MIT
// Noise profiles: what is written is read back, each key has its own, and a file that is none is left as it is.
#include "tools/calibrate/profile.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>

#include "tests/scratch_folder.h"

namespace sdcguard {
namespace {

Profile sample(const std::string& type = "bf16") {
  Profile profile;
  profile.key = {"NVIDIA \"H200\" \\ 141GB", 132, 13000, 130100, type, "library", "line"};
  profile.uuid = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10";
  profile.made = "2026-12-01T12:00:00Z";
  profile.source = "products";
  profile.shapes = {"4096x4096x4096", "14336x512x4096"};
  profile.kinds = {"gaussian", "positive"};
  profile.products = 1465;
  profile.values = 6'000'123;
  profile.looks = 2;
  profile.rate = 1e-15;
  profile.tests = 65536;
  profile.tail.fits[0] = {3.7000000000000002, 6000, {0.056, 0.417}, 21.9, 24};
  profile.tail.fits[1] = {4.2, 1800, {0, 0.44}, 20, 25.5};
  profile.tail.fits[2] = {4.9, 600, {0.1, 0.3}, 30, 1.0 / 3 + 40};
  profile.tail.threshold = 1.0 / 3 + 40;
  profile.tail.decades = -0.5;
  profile.tail.dispersion = 1.2;
  profile.tail.dispersion_z = -0.25;
  profile.tail.warnings = {"one\treason"};
  return profile;
}

class ProfileFile : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/noise.toml"; }
  std::vector<Profile> read() {
    std::vector<Profile> profiles;
    std::string error;
    EXPECT_TRUE(read_profiles(path(), &profiles, &error)) << error;
    return profiles;
  }
  void put(const Profile& profile) {
    std::string error;
    EXPECT_TRUE(write_profile(path(), profile, &error)) << error;
  }
  // What is said of a file of this text; empty: it was read.
  std::string refusal(const std::string& text) {
    std::ofstream(path(), std::ios::binary) << text;
    std::vector<Profile> profiles(1);
    std::string error;
    const bool read = read_profiles(path(), &profiles, &error);
    EXPECT_EQ(read, error.empty());
    EXPECT_TRUE(profiles.empty() || error.empty());
    if (error.rfind(path(), 0) == 0) error.erase(0, path().size());
    // And writing into it changes nothing.
    std::string again;
    if (!error.empty()) {
      EXPECT_FALSE(write_profile(path(), sample(), &again));
      EXPECT_EQ(bytes_of(path()), text);
    }
    return error;
  }
  ScratchFolder folder_;
};

TEST_F(ProfileFile, GivesBackEveryFieldBitForBit) {
  put(sample());
  const std::vector<Profile> read_back = read();
  ASSERT_EQ(read_back.size(), 1u);
  const Profile &a = sample(), &b = read_back[0];
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.uuid, b.uuid);
  EXPECT_EQ(a.made, b.made);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.shapes, b.shapes);
  EXPECT_EQ(a.kinds, b.kinds);
  EXPECT_EQ(a.simulated, b.simulated);
  EXPECT_EQ(a.products, b.products);
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.looks, b.looks);
  EXPECT_EQ(a.rate, b.rate);
  EXPECT_EQ(a.tests, b.tests);
  EXPECT_EQ(b.tail.per_value, a.rate / a.tests);
  EXPECT_EQ(a.tail.threshold, b.tail.threshold);
  EXPECT_EQ(a.tail.decades, b.tail.decades);
  EXPECT_EQ(a.tail.dispersion, b.tail.dispersion);
  EXPECT_EQ(a.tail.dispersion_z, b.tail.dispersion_z);
  EXPECT_EQ(b.tail.warnings, std::vector<std::string>{"one?reason"});  // control characters are none of a text line
  for (int f = 0; f < 3; ++f) {
    EXPECT_EQ(a.tail.fits[f].limit, b.tail.fits[f].limit);
    EXPECT_EQ(a.tail.fits[f].above, b.tail.fits[f].above);
    EXPECT_EQ(a.tail.fits[f].shape.xi, b.tail.fits[f].shape.xi);
    EXPECT_EQ(a.tail.fits[f].shape.scale, b.tail.fits[f].shape.scale);
    EXPECT_EQ(a.tail.fits[f].threshold, b.tail.fits[f].threshold);
    EXPECT_EQ(a.tail.fits[f].upper, b.tail.fits[f].upper);
  }
}

TEST_F(ProfileFile, HasOneProfileAKey) {
  put(sample("bf16"));
  put(sample("fp16"));
  Profile later = sample("bf16");
  later.products = 7;
  put(later);
  std::vector<Profile> profiles = read();
  ASSERT_EQ(profiles.size(), 2u);
  EXPECT_EQ(profiles[0].products, 7u);
  EXPECT_EQ(profiles[1].key.type, "fp16");
  // Every part of the key tells profiles apart.
  size_t count = 2;
  const auto other = [&](auto change) {
    Profile profile = sample("bf16");
    change(profile.key);
    put(profile);
    EXPECT_EQ(read().size(), ++count);
  };
  other([](ProfileKey& key) { key.gpu = "NVIDIA H100"; });
  other([](ProfileKey& key) { key.multiprocessors = 16; });
  other([](ProfileKey& key) { key.driver = 12090; });
  other([](ProfileKey& key) { key.cublas = 120900; });
  other([](ProfileKey& key) { key.order = "h100"; });
  other([](ProfileKey& key) { key.plan = "square"; });
}

TEST_F(ProfileFile, IsRefusedWithTheLineThatIsWrongAndLeftAsItIs) {
  put(sample());
  const std::string good = bytes_of(path());
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(refusal(with("version = 1", "version = 2")), ": version 2, this program reads version 1");
  EXPECT_EQ(refusal(with("version = 1\n", "")), ":1: version is missing: must be a whole number from 0 on");
  EXPECT_EQ(refusal(with("driver = 13000", "driver = \"13\"")), ":7: driver: must be a whole number from 0 on");
  EXPECT_EQ(refusal(with("driver = 13000", "driver = 99999999999")), ":7: driver: must be a whole number from 0 on");
  EXPECT_EQ(refusal(with("products = 1465", "products = -1")), ":18: products: must be a whole number from 0 on");
  EXPECT_EQ(refusal(with("values = 6000123", "values = 0")), ":19: values: must be a whole number from 1 on");
  EXPECT_EQ(refusal(with("above = 1800", "above = 0")), ":30: above: must be a whole number from 1 on");
  EXPECT_EQ(refusal(with("rate = 1e-15", "rate = nan")), ":21: rate: must be a number from 0.0 on");
  EXPECT_EQ(refusal(with("xi = 0.056", "xi = -0.1")), ":29: xi: must be a number from 0.0 on");
  EXPECT_EQ(refusal(with("rate = 1e-15", "rat = 1e-15")), ":4: rate is missing: must be a number from 0.0 on");
  EXPECT_EQ(refusal(with("rate = 1e-15", "rate = 1e-15\nhue = 3")), ":22: hue: no such key");
  EXPECT_EQ(refusal(with("simulated = false", "simulated = 0")), ":12: simulated: must be true or false");
  EXPECT_NE(refusal(with("version = 1", "version = = 1")).find(":2: not TOML"), std::string::npos);
  EXPECT_EQ(refusal(with(good.substr(good.find("  {limit = 4.9"),
                                     good.find("},", good.find("  {limit = 4.9")) + 2 - good.find("  {limit = 4.9")),
                         "")),
            ":28: tail: must be a list of three tables");
  EXPECT_NE(refusal("mode = \"repair\"\n"), "");
  EXPECT_EQ(refusal(good), "");
}

TEST_F(ProfileFile, SaysWhyItCannotBeReadOrWritten) {
  std::vector<Profile> profiles;
  std::string error;
  EXPECT_FALSE(read_profiles(path(), &profiles, &error));
  EXPECT_EQ(error, path() + ": No such file or directory");
  EXPECT_FALSE(write_profile(folder_.path() + "/none/noise.toml", sample(), &error));
  EXPECT_NE(error.find("cannot be written: No such file or directory"), std::string::npos);
}

TEST(Profile, ThresholdIsTheLargestOfTheFits) {
  const Profile profile = sample();
  for (const double p : {1e-4 / 512, 1e-4 / 65536, 1e-15 / 65536}) {
    double largest = 0;
    for (const TailFit& fit : profile.tail.fits) {
      // P(x > limit + e) = share survival(e)
      const double share = static_cast<double>(fit.above) / 6'000'123;
      const double excess = threshold_at(profile, p) - fit.limit;
      largest = std::max(largest, share * fit.shape.survival(excess));
    }
    EXPECT_NEAR(largest / p, 1, 1e-6);
  }
}

}  // namespace
}  // namespace sdcguard

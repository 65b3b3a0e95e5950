// SPDX-License-Identifier: MIT
// What the stages of a device say together, and devices that are slower than their peers.
#include "tools/measure/health.h"

#include <gtest/gtest.h>

namespace sdcguard {
namespace {

StageReport report(const std::string& name, Health health, double gmacs = 0) {
  StageReport stage;
  stage.name = name;
  stage.health = health;
  stage.gmacs = gmacs;
  return stage;
}

TEST(Health, TheMostSevereStageIsTheVerdict) {
  EXPECT_EQ(health_of({}), Health::kIncomplete);  // nothing that ran is no PASS
  std::vector<StageReport> stages = {report("a", Health::kPass)};
  EXPECT_EQ(health_of(stages), Health::kPass);
  for (const Health next : {Health::kInconclusive, Health::kIncomplete, Health::kSuspect, Health::kFail}) {
    stages.insert(stages.begin(), report("b", next));
    EXPECT_EQ(health_of(stages), next);
  }
}

TEST(Health, ADeviceMuchSlowerThanItsPeersIsSuspect) {
  const auto devices = [](std::initializer_list<double> speeds) {
    std::vector<std::vector<StageReport>> all;
    for (const double speed : speeds) {
      all.push_back({report("bf16", Health::kPass), report("speed bf16", Health::kPass, speed)});
    }
    return all;
  };
  const auto slow = [](std::vector<std::vector<StageReport>> all) {
    std::vector<std::vector<StageReport>*> peers;
    for (auto& one : all) peers.push_back(&one);
    suspect_slow(peers);
    std::string found;
    for (const auto& one : all) found += health_of(one) == Health::kSuspect ? 'S' : '.';
    return found;
  };
  EXPECT_EQ(slow(devices({100, 101, 89, 99})), "..S.");
  EXPECT_EQ(slow(devices({100, 101, 91, 99})), "....");
  EXPECT_EQ(slow(devices({100, 50})), "..");  // which of the two is right?
  auto failed = devices({100, 100, 50});
  failed[2][1].health = Health::kFail;
  EXPECT_EQ(slow(failed), "...");  // stays a FAIL
}

}  // namespace
}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Tests of the injection join: every injected entry is found, missed or below the floor, and a record with nothing
// behind it is an accusation.
#include "tools/ring/injection_join.h"
#include "tests/scratch_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "ring_forge.h"

namespace sdcguard {
namespace {

std::string injected(int64_t row, const char* faulty_bits, bool effect, bool above, const char* faulty = "9.5") {
  return R"({"seq":0,"device":0,"uuid":"GPU-x","product":1,"stream":1,"m":8,"n":9,"k":10,"type_a":"bf16",)"
         R"("type_b":"bf16","order":"h100","batch":0,"fault":0,"kind":"accumulator","row":)" +
         std::to_string(row) + R"(,"col":2,"k_step":3,"bits":[24],"clean":1.5,"faulty":)" + faulty +
         R"(,"clean_bits":"0x3fc00000","faulty_bits":")" + faulty_bits + R"(","bound":0.25,"above_bound":)" +
         (above ? "true" : "false") + R"(,"effect":)" + (effect ? "true" : "false") + "}\n";
}

std::string fault(int64_t row, const char* got_bits, bool repaired) {
  return R"({"type":"fault","pid":5,"call_id":1,"batch":0,"row":)" + std::to_string(row) +
         R"(,"column":2,"got_bits":")" + got_bits + R"(","repaired":)" + (repaired ? "true" : "false") + "}\n";
}

// Its place among the lines does not matter: a slow call's record comes after its faults were written out.
const char* const kCall = R"({"type":"call","pid":5,"call_id":1,"m":8,"n":9,"k":10})"
                          "\n";

class InjectionJoin : public testing::Test {
 protected:
  JoinResult join(const std::string& log, const std::string& jsonl) {
    const std::string log_path = folder_.path() + "/log", jsonl_path = folder_.path() + "/jsonl";
    std::ofstream(log_path) << log;
    std::ofstream(jsonl_path) << jsonl << kCall;
    JoinResult result;
    std::string error;
    EXPECT_TRUE(join_injections(log_path, jsonl_path, &result, &error)) << error;
    return result;
  }
  ScratchFolder folder_;
};

TEST_F(InjectionJoin, CountsEachKind) {
  const JoinResult result = join(injected(1, "0x41180000", true, true) + injected(2, "0x41180001", true, true) +
                                     injected(3, "0x41180002", true, false) + injected(4, "0x3fc00000", false, false) +
                                     injected(5, "0x7f800000", true, true, "null"),
                                 fault(1, "0x41180000", true) + fault(5, "0x7f800000", false));
  EXPECT_EQ(result.injected, 4u);
  EXPECT_EQ(result.no_effect, 1u);
  EXPECT_EQ(result.above_bound, 3u);
  EXPECT_EQ(result.below_floor, 1u);
  EXPECT_EQ(result.found, 2u);
  EXPECT_EQ(result.repaired, 1u);
  EXPECT_EQ(result.missed_above_bound, 1u);
  EXPECT_EQ(result.unmatched, 0u);
  EXPECT_EQ(result.entries[0].magnitude, 8.0);
  EXPECT_TRUE(std::isinf(result.entries[4].magnitude));
}

// The injected NaN is signalling, the recorded one quiet.
TEST_F(InjectionJoin, NansAreOneValueAndNoOther) {
  const std::string log = injected(1, "0x7fa00000", true, true, "null");
  EXPECT_EQ(join(log, fault(1, "0x7fe00000", true)).repaired, 1u);
  EXPECT_EQ(join(log, fault(1, "0x7f800000", true)).repaired, 0u);  // infinity
}

TEST_F(InjectionJoin, RecordWithoutInjectionIsAnAccusation) {
  const std::string log = injected(1, "0x41180000", true, true);
  EXPECT_EQ(join(log, fault(1, "0x41180001", true)).unmatched, 1u);  // another value
  EXPECT_EQ(join(log, fault(2, "0x41180000", true)).unmatched, 1u);  // another place
  EXPECT_EQ(join(log, fault(1, "0x41180000", true) + fault(1, "0x41180000", true)).unmatched, 1u);
  EXPECT_EQ(join(log, R"({"type":"fault","pid":5,"call_id":2,"row":1,"column":2})"
                      "\n")
                .unmatched,
            1u);  // its call was lost
}

TEST_F(InjectionJoin, RepeatedProductsGoTogetherInOrder) {
  const std::string twice = injected(1, "0x41180000", true, true) + injected(1, "0x41180000", true, true);
  const JoinResult result = join(twice, fault(1, "0x41180000", true));
  EXPECT_TRUE(result.entries[0].found);
  EXPECT_FALSE(result.entries[1].found);
  EXPECT_EQ(result.missed_above_bound, 1u);
}

TEST_F(InjectionJoin, WrongFilesAreErrors) {
  JoinResult result;
  std::string error;
  const std::string path = folder_.path() + "/bad";
  EXPECT_FALSE(join_injections(path, path, &result, &error));
  EXPECT_EQ(error, path + ": cannot be read");
  std::ofstream(path) << "{\"m\":1}\n";
  EXPECT_FALSE(join_injections(path, path, &result, &error));
  EXPECT_EQ(error.find(path + ":1: "), 0u);
}

TEST(RunReport, SumsFinalCoverage) {
  ScratchFolder folder;
  const std::string path = folder.path() + "/jsonl";
  const char* coverage =
      R"({"type":"coverage","final":true,"seen":{"calls":10},"checked":{"calls":7},)"
      R"("launched":{"calls":8},"outcomes":{"unverified":{"calls":3}},"unverified":{"capture":{"calls":3}},"looks":2,)"
      R"("lower_bound":false})"
      "\n";
  std::ofstream(path) << R"({"type":"call","outcome":"clean"})"
                         "\n"
                      << R"({"type":"call","outcome":"corrected"})"
                         "\n"
                      << R"({"type":"fault"})"
                         "\n"
                      << R"({"type":"coverage","final":false})"
                         "\n"
                      << coverage << coverage;
  RunReport report;
  std::string error;
  ASSERT_TRUE(read_report(path, &report, &error)) << error;
  EXPECT_EQ(report.calls_accused, 1u);
  EXPECT_EQ(report.fault_records, 1u);
  EXPECT_EQ(report.processes, 2u);
  EXPECT_EQ(report.seen, 20u);
  EXPECT_EQ(report.checked, 14u);
  EXPECT_EQ(report.looks, 4u);
  EXPECT_EQ(report.unverified, 6u);
  EXPECT_EQ(report.unverified_by_reason["capture"], 6u);
  EXPECT_EQ(report.accused.size(), 2u);
}

}  // namespace
}  // namespace sdcguard

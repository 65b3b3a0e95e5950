// SPDX-License-Identifier: MIT
// Tests of the wire: sizes and offsets as committed, vocabularies, the checksum, validation, and a golden JSON line of
// every record kind.
#include "sdcguard/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "ring_forge.h"
#include "tools/ring/json_lines.h"

namespace sdcguard {
namespace {

RingState forged_state() {
  RingState state;
  state.process = {1234, 4026531836, 777};
  state.rank = 3;
  DeviceSeen device;
  device.uuid = "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f";
  device.name = "Host device";
  device.pci = "0000:01:00.0";
  state.devices.push_back(device);
  return state;
}

struct Words {
  uint64_t word[kRecordWords];
};

template <typename Record>
Words words_of(Record record, uint32_t lane) {
  record.head.version = kWireVersion;
  record.head.lane = static_cast<uint16_t>(lane);
  Words words;
  memcpy(words.word, &record, sizeof(words));
  return words;
}

// The table that a change of layout must change too: the wire is append-only.
TEST(Wire_Layout, IsTheCommittedOne) {
  EXPECT_EQ(sizeof(CallRecord), 256u);
  EXPECT_EQ(sizeof(FaultRecord), 256u);
  EXPECT_EQ(offsetof(RecordHead, kind), 8u);
  EXPECT_EQ(offsetof(RecordHead, version), 9u);
  EXPECT_EQ(offsetof(RecordHead, lane), 10u);
  EXPECT_EQ(offsetof(CallRecord, call_id), 16u);
  EXPECT_EQ(offsetof(CallRecord, site), 24u);
  EXPECT_EQ(offsetof(CallRecord, m), 48u);
  EXPECT_EQ(offsetof(CallRecord, entry), 80u);
  EXPECT_EQ(offsetof(CallRecord, outcome), 83u);
  EXPECT_EQ(offsetof(CallRecord, classes), 96u);
  EXPECT_EQ(offsetof(CallRecord, lines), 104u);
  EXPECT_EQ(offsetof(CallRecord, sigma), 160u);
  EXPECT_EQ(offsetof(CallRecord, stream), 176u);
  EXPECT_EQ(offsetof(CallRecord, tail), 240u);
  EXPECT_EQ(offsetof(FaultRecord, row), 32u);
  EXPECT_EQ(offsetof(FaultRecord, got), 56u);
  EXPECT_EQ(offsetof(FaultRecord, repaired), 72u);
  EXPECT_EQ(sizeof(LaneInfo), 64u);
  EXPECT_EQ(sizeof(DeviceInfo), 128u);
  EXPECT_EQ(sizeof(ThreadCounters), 576u);
  EXPECT_EQ(offsetof(RingHeader, control), 76u);
  EXPECT_EQ(kThreadsOffset, 8192u);
  EXPECT_EQ(kLanesOffset % 4096, 0u);
  EXPECT_EQ(lane_offset(3), kLanesOffset + 3u * 4096 * 256);
  EXPECT_EQ(kRingBytes, kLanesOffset + 16u * 4096 * 256);
}

TEST(Wire_Vocabulary, KeepsItsNumbers) {
  EXPECT_STREQ(name_of(Outcome::kNotSampled), "not_sampled");
  EXPECT_EQ(static_cast<int>(Outcome::kUnverified), 5);
  EXPECT_EQ(static_cast<int>(Reason::kNonfiniteOperand), 17);
  EXPECT_STREQ(name_of(Reason::kLinesOverflow), "lines_overflow");
  EXPECT_STREQ(name_of(static_cast<Outcome>(200)), "invalid");
  EXPECT_STREQ(name_of(static_cast<Reason>(200)), "invalid");
  EXPECT_STREQ(name_of(static_cast<Plan>(200)), "invalid");
  EXPECT_STREQ(name_of(static_cast<Mode>(200)), "invalid");
  EXPECT_STREQ(entry_name(0), "cublasGemmEx");
  EXPECT_STREQ(entry_name(8), "cublasLtMatmul");
  EXPECT_STREQ(entry_name(60000), "unknown");
}

TEST(Wire_Checksum, SeesEveryFlippedBit) {
  const Words whole = words_of(forged_call(7), 2);
  const uint64_t good = record_checksum(whole.word);
  for (int word = 1; word < 30; ++word) {
    for (int bit = 0; bit < 64; ++bit) {
      Words flipped = whole;
      flipped.word[word] ^= uint64_t{1} << bit;
      ASSERT_NE(record_checksum(flipped.word), good) << word << " " << bit;
    }
  }
}

TEST(Validate_Call, RefusesWhatCouldNotBe) {
  const CallRecord good = forged_call(7, Outcome::kCorrected);
  ASSERT_NE(validate_call(words_of(good, 2).word, 2), nullptr);
  EXPECT_EQ(validate_call(words_of(good, 2).word, 4), nullptr);
  const auto refused = [&good](auto change) {
    CallRecord call = good;
    change(call);
    return validate_call(words_of(call, 2).word, 2) == nullptr;
  };
  EXPECT_TRUE(refused([](CallRecord& c) { c.head.kind = RecordKind::kFault; }));
  EXPECT_TRUE(refused([](CallRecord& c) { c.outcome = static_cast<Outcome>(6); }));
  EXPECT_TRUE(refused([](CallRecord& c) { c.reason = static_cast<Reason>(kReasonCount); }));
  EXPECT_TRUE(refused([](CallRecord& c) { c.plan = static_cast<Plan>(9); }));
  EXPECT_TRUE(refused([](CallRecord& c) { c.mode = 4; }));
  EXPECT_TRUE(refused([](CallRecord& c) { c.device = kMaxDevices; }));
  EXPECT_TRUE(refused([](CallRecord& c) { c.m = -1; }));
  // What cuBLAS itself refused is told with the sizes that it was refused for.
  EXPECT_FALSE(refused([](CallRecord& c) {
    c.m = c.n = -1;
    c.outcome = Outcome::kUnverified;
    c.reason = Reason::kProductFailed;
  }));
  EXPECT_TRUE(refused([](CallRecord& c) {
    c.m = -1;
    c.outcome = Outcome::kUnverified;
    c.reason = Reason::kCapture;
  }));
  EXPECT_TRUE(refused([](CallRecord& c) { c.k = INT64_MAX; }));
  EXPECT_TRUE(refused([](CallRecord& c) { c.outcome = Outcome::kUnverified; }));  // for no reason
}

TEST(Validate_Fault, RefusesWhatCouldNotBe) {
  FaultRecord fault = forged_fault(7, 1, 2);
  EXPECT_NE(validate_fault(words_of(fault, 3).word, 3), nullptr);
  fault.row = -1;
  EXPECT_EQ(validate_fault(words_of(fault, 3).word, 3), nullptr);
  fault.row = 1;
  fault.repaired = 2;
  EXPECT_EQ(validate_fault(words_of(fault, 3).word, 3), nullptr);
}

TEST(Json_Call, IsTheGoldenLine) {
  EXPECT_EQ(line_of(call_json(forged_state(), forged_call(7))),
            R"({"type":"call","pid":1234,"rank":3,"device":0,"uuid":"GPU-10111213-1415-1617-1819-1a1b1c1d1e1f",)"
            R"("name":"Host device","pci":"0000:01:00.0","call_id":7,"site":"0x0000000000abcdef","seed":42,)"
            R"("enqueued_ns":1700000000000000001,"entry":"cublasGemmEx","m":384,"n":128,"k":1536,"batch":1,)"
            R"("mode":"repair","outcome":"clean","plan":"line","type_a":"bf16","type_b":"bf16","type_c":"bf16",)"
            R"("type_d":"bf16","upgraded":true,"epilogue":["bias","gelu"],"classes":8,"lines":128,"lines_dirty":0,)"
            R"("lines_audited":0,"entries_named":0,"entries_repaired":0,"lines_nonfinite":0,"columns_nonfinite":0,)"
            R"("sigma":0.75,"sigma_cap":0.0,"threshold":9.699999809265137,"worst":5.5,"stream":0})");
}

TEST(Json_Call, SaysAReasonOnlyWhereThereIsOne) {
  CallRecord call = forged_call(7, Outcome::kUnverified);
  call.reason = Reason::kCapture;
  const auto json = call_json(forged_state(), call);
  EXPECT_EQ(json["outcome"], "unverified");
  EXPECT_EQ(json["reason"], "capture");
  EXPECT_FALSE(call_json(forged_state(), forged_call(7)).contains("reason"));
}

TEST(Json_Fault, IsTheGoldenLine) {
  const CallRecord call = forged_call(7, Outcome::kCorrected);
  EXPECT_EQ(line_of(fault_json(forged_state(), forged_fault(7, 5, 6), &call)),
            R"({"type":"fault","pid":1234,"rank":3,"device":0,"uuid":"GPU-10111213-1415-1617-1819-1a1b1c1d1e1f",)"
            R"("name":"Host device","pci":"0000:01:00.0","call_id":7,"site":"0x0000000000abcdef",)"
            R"("entry":"cublasGemmEx","m":384,"n":128,"k":1536,"batch_count":1,"enqueued_ns":1700000000000000001,)"
            R"("seed":42,"plan":"line","upgraded":true,"row":5,"column":6,"batch":0,"got":96.5,)"
            R"("got_bits":"0x42c10000","expected":0.25,"expected_bits":"0x3e800000","bound":0.0010000000474974513,)"
            R"("product_rms":0.5,"repaired":true,"mode":"repair"})");
}

TEST(Json_Fault, KeepsNonFiniteValuesAsBits) {
  FaultRecord fault = forged_fault(7, 5, 6);
  fault.got = std::numeric_limits<float>::quiet_NaN();
  fault.device = 9;  // not in the table
  const auto json = fault_json(forged_state(), fault, nullptr);
  EXPECT_TRUE(json["got"].is_null());
  EXPECT_EQ(json["got_bits"], "0x7fc00000");
  EXPECT_TRUE(json["uuid"].is_null());
  EXPECT_FALSE(json.contains("m"));
}

}  // namespace
}  // namespace sdcguard

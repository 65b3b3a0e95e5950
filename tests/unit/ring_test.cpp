// SPDX-License-Identifier: MIT
// Tests of the ring's readers: the slot protocol (whole, torn, unfinished, lapped, lost), hostile files, joins,
// coverage and liveness. Hostile bytes may lose their own ring's records; they never crash, hang or grow a reader.
#include "tests/scratch_folder.h"
#include "tools/ring/ring_reader.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "ring_forge.h"
#include "tools/ring/coverage.h"
#include "tools/ring/fault_join.h"

namespace sdcguard {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

class Collected : public RecordSink {
 public:
  void on_call(const CallRecord& call, bool on_device) override {
    calls.push_back(call.call_id);
    device_calls += on_device;
  }
  void on_fault(const FaultRecord& fault) override { faults.push_back(fault.call_id); }
  std::vector<uint64_t> calls, faults;
  size_t device_calls = 0;
};

std::unique_ptr<RingReader> attach(ForgedRing& ring) {
  AttachStatus status;
  auto reader = RingReader::attach(ring.path(), &status);
  EXPECT_EQ(status, AttachStatus::kOk) << name_of(status);
  return reader;
}

AttachStatus status_of(ForgedRing& ring) {
  ring.publish();
  AttachStatus status;
  auto reader = RingReader::attach(ring.path(), &status);
  EXPECT_EQ(reader != nullptr, status == AttachStatus::kOk);
  return status;
}

TEST(Ring_Attach, ReadsTheHeader) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  ring.header().control = 1;  // forced off
  ring.publish();
  auto reader = attach(ring);
  const RingState& state = reader->state();
  EXPECT_EQ(state.process.pid, getpid());
  EXPECT_EQ(state.rank, 3);
  EXPECT_EQ(state.mode, Mode::kRepair);
  EXPECT_TRUE(state.control_set);
  EXPECT_EQ(state.mode_in_force, Mode::kOff);
  EXPECT_EQ(state.command, "python train.py");
  ASSERT_EQ(state.devices.size(), 1u);
  EXPECT_EQ(state.devices[0].uuid, "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
  EXPECT_EQ(liveness_of(state.process), Liveness::kAlive);
}

TEST(Ring_Attach, RefusesWhatIsNoRing) {
  ScratchFolder folder;
  AttachStatus status;
  EXPECT_EQ(RingReader::attach(folder.path() + "/none.ring", &status), nullptr);
  EXPECT_EQ(status, AttachStatus::kMissing);
  EXPECT_EQ(RingReader::attach(folder.path(), &status), nullptr);
  EXPECT_EQ(status, AttachStatus::kNotARing);
  ForgedRing ring(folder.path());
  const RingHeader good = ring.header();
  ring.header().magic = 0;
  EXPECT_EQ(status_of(ring), AttachStatus::kNotReady);
  ring.header() = good;
  ring.header().magic = 12345;
  EXPECT_EQ(status_of(ring), AttachStatus::kNotARing);
  ring.header() = good;
  ring.header().version = 2;
  EXPECT_EQ(status_of(ring), AttachStatus::kVersion);
  const std::string link = folder.path() + "/link.ring";
  ASSERT_EQ(symlink("/etc/passwd", link.c_str()), 0);
  EXPECT_EQ(RingReader::attach(link, &status), nullptr);
  EXPECT_EQ(status, AttachStatus::kMissing);
}

TEST(Malicious_Header, IsMalformed) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  const RingHeader good = ring.header();
  const auto status_with = [&](auto change) {
    ring.header() = good;
    change(ring.header());
    return status_of(ring);
  };
  EXPECT_EQ(status_with([](RingHeader& h) { h.header_bytes = 8; }), AttachStatus::kMalformed);
  EXPECT_EQ(status_with([](RingHeader& h) { h.file_bytes = UINT64_MAX; }), AttachStatus::kMalformed);
  EXPECT_EQ(status_with([](RingHeader& h) { h.threads_offset = kRingBytes - 64; }), AttachStatus::kMalformed);
  EXPECT_EQ(status_with([](RingHeader& h) { h.threads_offset = UINT64_MAX - 7; }), AttachStatus::kMalformed);
  EXPECT_EQ(status_with([](RingHeader& h) { h.lane_count = 1u << 31; }), AttachStatus::kMalformed);
  EXPECT_EQ(status_with([](RingHeader& h) { h.pid = -1; }), AttachStatus::kMalformed);
}

TEST(Malicious_Lane, IsNotTakenUp) {
  ScratchFolder folder;
  const auto calls_read_with = [&](auto change) {
    ForgedRing ring(folder.path());
    ring.put(0, 0, forged_call(1));
    ring.put(2, 0, forged_call(2));
    change(ring.header().lanes[0]);
    ring.publish();
    Collected found;
    auto reader = attach(ring);
    EXPECT_TRUE(reader->drain(found, 0, false));
    return found.calls;
  };
  const std::vector<uint64_t> only_device = {2};
  EXPECT_EQ(calls_read_with([](LaneInfo&) {}), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(calls_read_with([](LaneInfo& l) { l.offset = kRingBytes; }), only_device);
  EXPECT_EQ(calls_read_with([](LaneInfo& l) { l.offset = UINT64_MAX - 4095; }), only_device);
  EXPECT_EQ(calls_read_with([](LaneInfo& l) { l.offset = 0; }), only_device);
  EXPECT_EQ(calls_read_with([](LaneInfo& l) { l.slots = 0; }), only_device);
  EXPECT_EQ(calls_read_with([](LaneInfo& l) { l.slots = 4095; }), only_device);
  EXPECT_EQ(calls_read_with([](LaneInfo& l) { l.slots = 1u << 31; }), only_device);
  EXPECT_EQ(calls_read_with([](LaneInfo& l) { l.kind = 77; }), only_device);
  EXPECT_EQ(calls_read_with([](LaneInfo& l) { l.kind = static_cast<uint32_t>(LaneKind::kHostFaults); }), only_device);
}

TEST(Drain_Records, ComeOnceAndInOrder) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  for (uint64_t t = 0; t < 200; ++t) ring.put(2, t, forged_call(100 + t));
  ring.put(0, 0, forged_call(1, Outcome::kUnverified));
  ring.put(3, 0, forged_fault(105, 1, 1));
  ring.publish();
  auto reader = attach(ring);
  Collected found;
  ASSERT_TRUE(reader->drain(found, 0, false));
  ASSERT_EQ(found.calls.size(), 201u);
  EXPECT_EQ(found.device_calls, 200u);
  for (uint64_t t = 0; t < 200; ++t) EXPECT_EQ(found.calls[1 + t], 100 + t);
  EXPECT_EQ(found.faults, std::vector<uint64_t>{105});
  ASSERT_TRUE(reader->drain(found, 1, false));
  EXPECT_EQ(found.calls.size(), 201u);
  ring.put(2, 200, forged_call(300));
  ring.publish();
  ASSERT_TRUE(reader->drain(found, 2, false));
  EXPECT_EQ(found.calls.back(), 300u);
  EXPECT_FALSE(reader->call_losses().any());
}

TEST(Drain_Record, TornWriteIsWaitedForThenCountedTorn) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  for (uint64_t t = 0; t < 3; ++t) ring.put(2, t, forged_call(t));
  ring.slot(2, 1)[31] = 0;  // begun, end not stored
  ring.publish();
  auto reader = attach(ring);
  Collected found;
  ASSERT_TRUE(reader->drain(found, kSecond, false));
  EXPECT_EQ(found.calls, (std::vector<uint64_t>{0}));
  ASSERT_TRUE(reader->drain(found, kSecond + kHolePatienceNs - 1, false));
  EXPECT_EQ(found.calls.size(), 1u);
  EXPECT_FALSE(reader->call_losses().any());
  ASSERT_TRUE(reader->drain(found, kSecond + kHolePatienceNs, false));
  EXPECT_EQ(found.calls, (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(reader->call_losses(), (LossCounts{0, 1, 0}));
}

TEST(Drain_Record, UnfinishedOneIsTakenOnceItIsWhole) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  ring.put(2, 0, forged_call(10));
  ring.put(2, 2, forged_call(12));  // the GPU finished a later ticket first
  ring.publish();
  auto reader = attach(ring);
  Collected found;
  ASSERT_TRUE(reader->drain(found, kSecond, false));
  EXPECT_EQ(found.calls, (std::vector<uint64_t>{10}));
  ring.put(2, 1, forged_call(11));
  ring.publish();
  ASSERT_TRUE(reader->drain(found, kSecond + 1, false));
  EXPECT_EQ(found.calls, (std::vector<uint64_t>{10, 11, 12}));
  EXPECT_FALSE(reader->call_losses().any());
}

TEST(Drain_Final, TakesWhatIsWholeBehindAHole) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  for (const uint64_t t : {0, 2, 3, 6}) ring.put(2, t, forged_call(t));
  ring.put(2, 7, forged_call(7));
  ring.slot(2, 7)[31] = 0;
  ring.publish();
  auto reader = attach(ring);
  Collected found;
  ASSERT_TRUE(reader->drain(found, kSecond, true));
  EXPECT_EQ(found.calls, (std::vector<uint64_t>{0, 2, 3, 6}));
  EXPECT_EQ(reader->call_losses(), (LossCounts{0, 4, 0}));
}

TEST(Drain_Record, EveryFlippedByteIsDroppedAndCounted) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  ring.publish();
  const int fd = open(ring.path().c_str(), O_RDWR | O_CLOEXEC);
  for (size_t byte = 0; byte < kRecordBytes; ++byte) {
    ring.put(2, 0, forged_call(0));
    reinterpret_cast<unsigned char*>(ring.slot(2, 0))[byte] ^= 0x40;
    ASSERT_EQ(pwrite(fd, ring.slot(2, 0), kRecordBytes, static_cast<off_t>(lane_offset(2))), 256);
    auto reader = attach(ring);
    Collected found;
    ASSERT_TRUE(reader->drain(found, kSecond, true));
    EXPECT_TRUE(found.calls.empty()) << byte;
    const LossCounts& losses = reader->call_losses();
    EXPECT_TRUE(losses.any()) << byte;
    // A changed `begin` can look like a later lap, which counts the tickets between.
    EXPECT_TRUE(byte < sizeof(uint64_t) || losses.lost + losses.torn + losses.invalid == 1) << byte;
  }
  close(fd);
}

TEST(Drain_Lapped, CountsWhatWasLost) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  const uint64_t written = kCallSlots + 1000;
  for (uint64_t t = 0; t < written; ++t) ring.put(2, t, forged_call(t));
  ring.publish();
  auto reader = attach(ring);
  Collected found;
  ASSERT_TRUE(reader->drain(found, kSecond, false));
  ASSERT_EQ(found.calls.size(), kCallSlots);
  EXPECT_EQ(found.calls.front(), 1000u);
  EXPECT_EQ(found.calls.back(), written - 1);
  EXPECT_EQ(reader->call_losses(), (LossCounts{1000, 0, 0}));
  // A reader that keeps up loses nothing across the wrap.
  for (uint64_t t = written; t < written + 3000; ++t) ring.put(2, t, forged_call(t));
  ring.publish();
  ASSERT_TRUE(reader->drain(found, kSecond, false));
  EXPECT_EQ(found.calls.size(), kCallSlots + 3000u);
  EXPECT_EQ(reader->call_losses(), (LossCounts{1000, 0, 0}));
}

TEST(Drain_Malicious, TicketsStayBounded) {
  ScratchFolder folder;
  for (const uint64_t begin : {UINT64_MAX, UINT64_MAX - 1, uint64_t{1} << 63, uint64_t{2}}) {
    ForgedRing ring(folder.path());
    for (uint64_t t = 0; t < kCallSlots; ++t) {
      ring.slot(2, t)[0] = begin;
      ring.slot(2, t)[31] = begin;
    }
    ring.publish();
    auto reader = attach(ring);
    Collected found;
    for (uint64_t pass = 0; pass < 8; ++pass) ASSERT_TRUE(reader->drain(found, pass * 2 * kSecond, pass == 7));
    EXPECT_TRUE(found.calls.empty());
  }
}

TEST(Drain_Truncated, FileThatShrinksIsAnErrorAndNoSignal) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  ring.put(2, 0, forged_call(0));
  ring.publish();
  auto reader = attach(ring);
  ASSERT_EQ(truncate(ring.path().c_str(), kLanesOffset), 0);
  Collected found;
  EXPECT_FALSE(reader->drain(found, 0, false));
  ASSERT_EQ(truncate(ring.path().c_str(), 0), 0);
  EXPECT_FALSE(reader->drain(found, 0, true));
  EXPECT_EQ(reader->counters().calls_seen, 0u);
}

// A writer thread that goes round the lane as fast as it can, by the slot protocol on a mapping, against a reader.
TEST(Drain_Concurrent, NeverHandsOutATornRecord) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  ring.publish();
  const int fd = open(ring.path().c_str(), O_RDWR | O_CLOEXEC);
  auto* base = static_cast<unsigned char*>(mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(base, MAP_FAILED);
  close(fd);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> written{0};
  std::thread writer([&] {
    for (uint64_t ticket = 0; !stop.load(std::memory_order_relaxed); ++ticket) {
      CallRecord call = forged_call(ticket);
      call.head = {ticket + 1, RecordKind::kCall, kWireVersion, 2, 0};
      call.site = call.seed = call.stream = ticket + 1;  // a torn payload shows in them
      uint64_t words[kRecordWords];
      memcpy(words, &call, sizeof(words));
      words[30] = record_checksum(words);
      words[31] = ticket + 1;
      auto* slot = reinterpret_cast<uint64_t*>(base + lane_offset(2) + ticket % kCallSlots * kRecordBytes);
      std::atomic_ref(slot[0]).store(words[0], std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_release);
      for (size_t i = 1; i < 31; ++i) std::atomic_ref(slot[i]).store(words[i], std::memory_order_relaxed);
      std::atomic_ref(slot[31]).store(words[31], std::memory_order_release);
      written.store(ticket + 1, std::memory_order_release);
    }
  });
  class Checked : public RecordSink {
   public:
    void on_call(const CallRecord& call, bool) override {
      ++taken;
      wrong += call.site != call.call_id + 1 || call.seed != call.site || call.stream != call.site;
      backwards += any && call.call_id <= last;
      last = call.call_id;
      any = true;
    }
    void on_fault(const FaultRecord&) override { ++wrong; }
    uint64_t taken = 0, wrong = 0, backwards = 0, last = 0;
    bool any = false;
  } checked;
  auto reader = attach(ring);
  // On one core the writer may not have begun yet.
  while (written.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(reader->drain(checked, 1, false));
  stop = true;
  writer.join();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(reader->drain(checked, 1, true));
  munmap(base, kRingBytes);
  EXPECT_EQ(checked.wrong, 0u);
  EXPECT_EQ(checked.backwards, 0u);
  EXPECT_GT(checked.taken, 0u);
  EXPECT_EQ(reader->call_losses().invalid, 0u);
  // Every record was taken or counted.
  EXPECT_EQ(checked.taken + reader->call_losses().lost + reader->call_losses().torn, written.load());
}

// Random bytes over the header, the lanes and the slots: bounded work, no crash (ASan and UBSan see the rest).
TEST(Malicious_Fuzz, RandomBytesNeverHurtAReader) {
  ScratchFolder folder;
  std::mt19937_64 random(20240607);
  ForgedRing clean(folder.path());
  for (uint64_t t = 0; t < 300; ++t) {
    clean.put(0, t, forged_call(t, Outcome::kUnverified));
    clean.put(2, t, forged_call(1000 + t, t % 7 == 0 ? Outcome::kCorrected : Outcome::kClean));
    clean.put(3, t, forged_fault(1000 + t / 7 * 7, 1, 1));
  }
  const std::vector<unsigned char> good(clean.bytes().begin(), clean.bytes().end());
  clean.publish();
  const int fd = open(clean.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  struct Region {
    uint64_t offset, bytes;
  };
  const Region regions[] = {{0, sizeof(RingHeader)},
                            {offsetof(RingHeader, lanes), sizeof(RingHeader::lanes)},
                            {kThreadsOffset, 2048},
                            {lane_offset(0), 300 * kRecordBytes},
                            {lane_offset(2), 300 * kRecordBytes},
                            {lane_offset(3), 300 * kRecordBytes}};
  size_t attached = 0;
  for (int round = 0; round < 400; ++round) {
    // The touched regions are put back, then a few places get random or edge values.
    for (const Region& region : regions) {
      ASSERT_EQ(pwrite(fd, good.data() + region.offset, region.bytes, static_cast<off_t>(region.offset)),
                static_cast<ssize_t>(region.bytes));
    }
    const int pokes = 1 + static_cast<int>(random() % 24);
    for (int poke = 0; poke < pokes; ++poke) {
      const Region& region = regions[random() % std::size(regions)];
      const uint64_t edge[] = {
          0, 1, UINT64_MAX, UINT64_MAX - 1, uint64_t{1} << 63, random(), random() % 4096, kRingBytes - random() % 512};
      const uint64_t value = edge[random() % std::size(edge)];
      const size_t width = size_t{1} << random() % 4;
      const uint64_t at = region.offset + random() % (region.bytes - 8);
      // Half of the pokes are on word boundaries, where whole fields change.
      ASSERT_GT(pwrite(fd, &value, width, static_cast<off_t>(random() % 2 ? at : at / 8 * 8)), 0);
    }
    AttachStatus status;
    auto reader = RingReader::attach(clean.path(), &status);
    if (reader == nullptr) continue;
    ++attached;
    class Joined : public JoinedSink {
     public:
      explicit Joined(Coverage& total) : coverage(total) {}
      void on_call(const CallRecord& call, bool on_device) override { coverage.add(call, on_device); }
      void on_fault(const FaultRecord&, const CallRecord*) override {}
      Coverage& coverage;
    };
    Coverage coverage;
    Joined joined(coverage);
    FaultJoin join(joined);
    for (int pass = 0; pass < 3; ++pass) {
      reader->drain(join, static_cast<uint64_t>(pass) * 2 * kSecond, pass == 2);
      join.settle(static_cast<uint64_t>(pass) * 2 * kSecond, pass == 2);
    }
    (void)coverage.totals(reader->counters(), reader->call_losses());
    (void)liveness_of(reader->state().process);
  }
  close(fd);
  EXPECT_GT(attached, 100u);
}

class Joins : public JoinedSink {
 public:
  void on_call(const CallRecord&, bool) override {}
  void on_fault(const FaultRecord& fault, const CallRecord* call) override {
    rows[fault.row] = call == nullptr ? -1 : call->m;
  }
  std::map<int64_t, int64_t> rows;
};

TEST(Join_Fault, FindsItsCallBeforeOrAfter) {
  Joins joins;
  FaultJoin join(joins);
  join.on_fault(forged_fault(1, 10, 0));
  EXPECT_TRUE(joins.rows.empty());
  join.on_call(forged_call(1, Outcome::kCorrected), true);
  EXPECT_EQ(joins.rows[10], 384);
  join.on_fault(forged_fault(1, 11, 0));
  EXPECT_EQ(joins.rows[11], 384);
  join.on_fault(forged_fault(2, 12, 0));
  join.settle(kSecond, false);
  EXPECT_EQ(joins.rows.count(12), 0u);
  join.settle(kSecond + kJoinPatienceNs + 1, false);
  EXPECT_EQ(joins.rows[12], -1);
  join.on_fault(forged_fault(3, 13, 0));
  join.settle(0, true);
  EXPECT_EQ(joins.rows[13], -1);
}

TEST(Join_Fault, FloodStaysBounded) {
  Joins joins;
  FaultJoin join(joins);
  for (uint64_t i = 0; i < kMaxPendingFaults + 10; ++i) join.on_fault(forged_fault(i, static_cast<int64_t>(i), 0));
  EXPECT_EQ(joins.rows.size(), 10u);
  for (uint64_t i = 0; i < 3 * kMaxKnownCalls; ++i) join.on_call(forged_call(i, Outcome::kCorrupt), true);
  join.settle(0, true);
  EXPECT_EQ(joins.rows.size(), kMaxPendingFaults + 10);
}

TEST(Coverage_Totals, AddUpAndNeverCallTheUncheckedClean) {
  CallCounters counters;
  counters.calls_seen = 100;
  counters.calls_sampled = 12;
  counters.calls_launched = 8;
  counters.unverified_calls[static_cast<size_t>(Reason::kCapture)] = 4;
  Coverage coverage;
  coverage.add(forged_call(0, Outcome::kUnverified), false);  // the host's record of a call in its counters
  for (int i = 0; i < 5; ++i) coverage.add(forged_call(1, Outcome::kClean), true);
  coverage.add(forged_call(1, Outcome::kCorrected), true);
  coverage.add(forged_call(1, Outcome::kUnverified), true);
  CoverageTotals totals = coverage.totals(counters, LossCounts());
  EXPECT_EQ(totals.seen.calls, 100u);
  EXPECT_EQ(totals.not_sampled.calls, 88u);
  EXPECT_EQ(totals.checked.calls, 6u);
  EXPECT_EQ(totals.checked.flops, 6u * 2 * 384 * 128 * 1536);
  EXPECT_EQ(totals.outcomes[static_cast<size_t>(Outcome::kUnverified)].calls, 5u);
  EXPECT_EQ(totals.unverified[static_cast<size_t>(Reason::kCapture)].calls, 4u);
  EXPECT_EQ(totals.unverified[static_cast<size_t>(Reason::kRange)].calls, 1u);
  EXPECT_EQ(totals.outstanding, 1u);
  EXPECT_TRUE(totals.lower_bound);
  EXPECT_EQ(totals.entries_named, 1u);
  EXPECT_EQ(totals.looks, 1u);
  coverage.add(forged_call(1, Outcome::kBenign), true);
  totals = coverage.totals(counters, LossCounts());
  EXPECT_EQ(totals.outstanding, 0u);
  EXPECT_FALSE(totals.lower_bound);
  EXPECT_TRUE(coverage.totals(counters, LossCounts{1, 0, 0}).lower_bound);
}

TEST(Coverage_Counters, AreSummedOverThreadsWithoutWrapping) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  ring.header().thread_count = 3;
  ring.thread(0).calls_seen = 5;
  ring.thread(1).calls_seen = 7;
  ring.thread(2).flops_seen = UINT64_MAX;
  ring.thread(1).flops_seen = 10;
  ring.thread(3).calls_seen = 1000;  // no thread has it
  ring.publish();
  auto reader = attach(ring);
  EXPECT_EQ(reader->counters().calls_seen, 12u);
  EXPECT_EQ(reader->counters().flops_seen, UINT64_MAX);
  ring.header().thread_count = UINT32_MAX;
  ring.publish();
  ASSERT_TRUE(reader->refresh());
  EXPECT_EQ(reader->counters().calls_seen, 1012u);
  CallRecord huge = forged_call(1);
  huge.m = huge.n = huge.k = int64_t{1} << 40;
  EXPECT_EQ(flops_of(huge), UINT64_MAX);
}

TEST(Liveness_OfWriter, TellsDeadZombieAndReusedNumbers) {
  ProcessIdentity self{getpid(), own_pid_namespace(), start_ticks_of(getpid())};
  EXPECT_EQ(liveness_of(self), Liveness::kAlive);
  ProcessIdentity reused = self;
  reused.start_ticks += 1;
  EXPECT_EQ(liveness_of(reused), Liveness::kDead);
  ProcessIdentity elsewhere = self;
  elsewhere.pid_namespace = 1;
  EXPECT_EQ(liveness_of(elsewhere), Liveness::kUnknown);

  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(hold[1]);
    const ssize_t ignored = read(hold[0], &byte, 1);
    _exit(ignored == 0 ? 0 : 1);
  }
  close(hold[0]);
  const ProcessIdentity other{child, own_pid_namespace(), start_ticks_of(child)};
  EXPECT_EQ(liveness_of(other), Liveness::kAlive);
  close(hold[1]);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(liveness_of(other), Liveness::kDead);  // a zombie
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(liveness_of(other), Liveness::kDead);
}

TEST(Ring_Unlink, SparesAnotherFileOfThatName) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  ring.publish();
  auto reader = attach(ring);
  EXPECT_EQ(list_rings(folder.path()), std::vector<std::string>{ring.path()});
  ASSERT_EQ(unlink(ring.path().c_str()), 0);
  ring.publish();
  EXPECT_FALSE(reader->still_named());
  EXPECT_FALSE(reader->unlink_file());
  auto again = attach(ring);
  EXPECT_TRUE(again->unlink_file());
  EXPECT_TRUE(list_rings(folder.path()).empty());
  EXPECT_TRUE(list_rings(folder.path() + "/none").empty());
}

TEST(Ring_Control, IsWrittenInPlace) {
  ScratchFolder folder;
  ForgedRing ring(folder.path());
  ring.publish();
  auto reader = attach(ring);
  ASSERT_TRUE(write_control(ring.path(), 1 + static_cast<uint32_t>(Mode::kObserve)));
  ASSERT_TRUE(reader->refresh());
  EXPECT_EQ(reader->state().mode_in_force, Mode::kObserve);
  EXPECT_EQ(reader->state().mode, Mode::kRepair);
  ASSERT_TRUE(write_control(ring.path(), 0));
  ASSERT_TRUE(reader->refresh());
  EXPECT_FALSE(reader->state().control_set);
  EXPECT_FALSE(write_control(folder.path() + "/none.ring", 0));
}

}  // namespace
}  // namespace sdcguard

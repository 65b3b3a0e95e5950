// SPDX-License-Identifier: MIT
// Ring reader: takes a ring file that nobody vouches for, gives validated records and counts; runs in sdcguardd, the
// command line and tests.
#include "tools/ring/ring_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace sdcguard {
namespace {

constexpr uint32_t kBlockSlots = 64;            // slots copied by one pread
constexpr uint64_t kMaxFileBytes = 1ull << 32;  // 4 GiB; the writer's is kRingBytes, 17 MB
constexpr uint64_t kMaxDimension = 1ull << 48;  // elements; past any memory
constexpr double kMaxRate = 1.0;
constexpr uint32_t kIdleDrainsAScan = 16;

// Printable UTF-8 out of a fixed field that may lack its zero.
std::string text_of(const char* field, size_t capacity) {
  std::string out;
  for (size_t i = 0; i < capacity && field[i] != '\0'; ++i) {
    const auto c = static_cast<unsigned char>(field[i]);
    out += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
  }
  return out;
}

LaneKind lane_kind(uint32_t kind_untrusted) {
  switch (kind_untrusted) {
    case static_cast<uint32_t>(LaneKind::kHostCalls):
      return LaneKind::kHostCalls;
    case static_cast<uint32_t>(LaneKind::kHostFaults):
      return LaneKind::kHostFaults;
    case static_cast<uint32_t>(LaneKind::kDeviceCalls):
      return LaneKind::kDeviceCalls;
    case static_cast<uint32_t>(LaneKind::kDeviceFaults):
      return LaneKind::kDeviceFaults;
    default:
      return LaneKind::kUnused;
  }
}

bool carries_calls(LaneKind kind) {
  return kind == LaneKind::kHostCalls || kind == LaneKind::kDeviceCalls;
}

bool good_head(const RecordHead& head, RecordKind kind, uint32_t lane) {
  return head.kind == kind && head.version == kWireVersion && head.lane == lane;
}

bool good_size(int64_t size) {
  return size >= 0 && static_cast<uint64_t>(size) <= kMaxDimension;
}

// A call that cuBLAS refused may have had any: what the caller passed is what it was refused for.
bool good_sizes(const CallRecord& call) {
  if (call.outcome == Outcome::kUnverified && call.reason == Reason::kProductFailed) return true;
  return good_size(call.m) && good_size(call.n) && good_size(call.k) && good_size(call.batch);
}

}  // namespace

const char* name_of(AttachStatus status) {
  switch (status) {
    case AttachStatus::kOk:
      return "ok";
    case AttachStatus::kMissing:
      return "missing";
    case AttachStatus::kNotReady:
      return "not ready";
    case AttachStatus::kNotARing:
      return "not a ring";
    case AttachStatus::kVersion:
      return "unknown wire version";
    case AttachStatus::kMalformed:
      return "malformed";
  }
  return "invalid";
}

std::string uuid_text(const uint8_t (&uuid)[16]) {
  char text[48];
  snprintf(text, sizeof(text), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", uuid[0],
           uuid[1], uuid[2], uuid[3], uuid[4], uuid[5], uuid[6], uuid[7], uuid[8], uuid[9], uuid[10], uuid[11],
           uuid[12], uuid[13], uuid[14], uuid[15]);
  return text;
}

uint64_t saturating_add(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t flops_of(const CallRecord& call) {
  uint64_t product = 2;
  for (const int64_t size : {call.m, call.n, call.k, call.batch}) {
    if (size <= 0) return 0;
    if (__builtin_mul_overflow(product, static_cast<uint64_t>(size), &product)) return UINT64_MAX;
  }
  return product;
}

const CallRecord* validate_call(const uint64_t* words_untrusted, uint32_t lane) {
  const auto* call = reinterpret_cast<const CallRecord*>(words_untrusted);
  const bool good = good_head(call->head, RecordKind::kCall, lane) && call->mode < kModeCount &&
                    static_cast<uint32_t>(call->outcome) < kOutcomeCount &&
                    static_cast<uint32_t>(call->reason) < kReasonCount &&
                    static_cast<uint32_t>(call->plan) < kPlanCount && call->device < kMaxDevices &&
                    call->upgraded <= 1 && good_sizes(*call) &&
                    // "Could not check" has a reason; clean, corrected and benign have none but set-aside lines.
                    (call->outcome != Outcome::kUnverified || call->reason != Reason::kNone);
  return good ? call : nullptr;
}

const FaultRecord* validate_fault(const uint64_t* words_untrusted, uint32_t lane) {
  const auto* fault = reinterpret_cast<const FaultRecord*>(words_untrusted);
  const bool good = good_head(fault->head, RecordKind::kFault, lane) && fault->mode < kModeCount &&
                    fault->repaired <= 1 && fault->device < kMaxDevices && good_size(fault->row) &&
                    good_size(fault->column) && good_size(fault->batch);
  return good ? fault : nullptr;
}

std::unique_ptr<RingReader> RingReader::attach(const std::string& path, AttachStatus* status) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    *status = AttachStatus::kMissing;
    return nullptr;
  }
  std::unique_ptr<RingReader> reader(new RingReader(path, fd));
  *status = reader->read_header();
  return *status == AttachStatus::kOk ? std::move(reader) : nullptr;
}

RingReader::~RingReader() {
  close(fd_);
}

bool RingReader::read_at(uint64_t offset, void* into, size_t bytes) const {
  auto* target = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t got = pread(fd_, target, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    target += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

AttachStatus RingReader::read_header() {
  struct stat info = {};
  if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return AttachStatus::kNotARing;
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size < sizeof(RingHeader)) return size == 0 ? AttachStatus::kNotReady : AttachStatus::kNotARing;
  uint64_t magic_untrusted = 0;
  if (!read_at(0, &magic_untrusted, sizeof(magic_untrusted))) return AttachStatus::kNotARing;
  if (magic_untrusted == 0) return AttachStatus::kNotReady;
  if (magic_untrusted != kRingMagic) return AttachStatus::kNotARing;
  if (size > kMaxFileBytes) return AttachStatus::kMalformed;
  file_bytes_ = size;

  RingHeader head_untrusted;
  if (!read_at(0, &head_untrusted, sizeof(head_untrusted))) return AttachStatus::kMalformed;
  if (head_untrusted.version != kWireVersion) return AttachStatus::kVersion;
  const bool good = head_untrusted.header_bytes == sizeof(RingHeader) && head_untrusted.file_bytes == size &&
                    head_untrusted.threads_offset >= sizeof(RingHeader) && head_untrusted.threads_offset % 8 == 0 &&
                    head_untrusted.threads_offset <= size &&
                    size - head_untrusted.threads_offset >= kMaxThreads * sizeof(ThreadCounters) &&
                    head_untrusted.lane_count == kMaxLanes && head_untrusted.pid > 0;
  if (!good) return AttachStatus::kMalformed;
  threads_offset_ = head_untrusted.threads_offset;
  state_.process = {head_untrusted.pid, head_untrusted.pid_namespace, head_untrusted.start_ticks};
  block_.resize(kBlockSlots * kRecordWords);
  again_.resize(kBlockSlots * kRecordWords);
  return refresh() ? AttachStatus::kOk : AttachStatus::kMalformed;
}

bool RingReader::refresh() {
  RingHeader head_untrusted;
  if (!read_at(0, &head_untrusted, sizeof(head_untrusted))) return false;
  if (head_untrusted.magic != kRingMagic || head_untrusted.version != kWireVersion) return false;

  RingState next;
  next.process = state_.process;  // fixed at attach: a ring does not change its owner
  next.rank = head_untrusted.rank;
  next.started_ns = head_untrusted.started_ns;
  next.mode = head_untrusted.mode < kModeCount ? static_cast<Mode>(head_untrusted.mode) : Mode::kOff;
  next.control_set = head_untrusted.control >= 1 && head_untrusted.control <= kModeCount;
  next.mode_in_force = next.control_set ? static_cast<Mode>(head_untrusted.control - 1) : next.mode;
  next.seed = head_untrusted.seed;
  const double rate = head_untrusted.rate;
  next.rate = rate >= 0 && rate <= kMaxRate ? rate : 0;
  next.command = text_of(head_untrusted.command, sizeof(head_untrusted.command));
  next.cublas = text_of(head_untrusted.cublas, sizeof(head_untrusted.cublas));
  next.warm_calls = head_untrusted.warm_calls;
  next.driver_errors = head_untrusted.driver_errors;
  next.lanes_refused = head_untrusted.lanes_refused;
  thread_count_ = std::min(head_untrusted.thread_count, kMaxThreads);
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    const DeviceInfo& device_untrusted = head_untrusted.devices[i];
    if (device_untrusted.present != 1) continue;
    DeviceSeen device;
    device.slot = i;
    device.ordinal = device_untrusted.ordinal;
    device.uuid = uuid_text(device_untrusted.uuid);
    device.name = text_of(device_untrusted.name, sizeof(device_untrusted.name));
    device.pci = text_of(device_untrusted.pci, sizeof(device_untrusted.pci));
    device.compute_major = device_untrusted.compute_major;
    device.compute_minor = device_untrusted.compute_minor;
    device.driver_version = device_untrusted.driver_version;
    device.sm_count = device_untrusted.sm_count;
    device.memory_bytes = device_untrusted.memory_bytes;
    next.devices.push_back(std::move(device));
  }
  state_ = std::move(next);

  // A lane is taken up once and never changes: a writer that moves it is not believed.
  for (uint32_t i = 0; i < kMaxLanes; ++i) {
    const LaneInfo& lane_untrusted = head_untrusted.lanes[i];
    const LaneKind kind = lane_kind(lane_untrusted.kind);
    if (kind == LaneKind::kUnused) continue;
    const bool known = std::any_of(lanes_.begin(), lanes_.end(), [i](const Lane& lane) { return lane.index == i; });
    if (known) continue;
    const uint32_t slots = lane_untrusted.slots;
    const uint64_t offset = lane_untrusted.offset;
    const bool good = slots >= 1 && slots <= kMaxReaderSlots && (slots & (slots - 1)) == 0 && offset % 4096 == 0 &&
                      offset >= sizeof(RingHeader) && offset <= file_bytes_ &&
                      file_bytes_ - offset >= uint64_t{slots} * kRecordBytes && (i % 2 == 0) == carries_calls(kind) &&
                      lane_untrusted.device < kMaxDevices;
    if (!good) continue;
    Lane lane;
    lane.kind = kind;
    lane.index = i;
    lane.slots = slots;
    lane.offset = offset;
    lanes_.push_back(lane);
  }
  return true;
}

bool RingReader::newest_ticket(const Lane& lane, uint64_t* newest, bool* any) {
  *any = false;
  for (uint32_t first = 0; first < lane.slots; first += kBlockSlots) {
    const uint32_t count = std::min(kBlockSlots, lane.slots - first);
    if (!read_at(lane.offset + uint64_t{first} * kRecordBytes, block_.data(), count * kRecordBytes)) return false;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t begin_untrusted = block_[i * kRecordWords];
      if (begin_untrusted == 0 || begin_untrusted == UINT64_MAX) continue;
      const uint64_t ticket = begin_untrusted - 1;
      if ((ticket & (lane.slots - 1)) != first + i) continue;
      if (!*any || ticket > *newest) *newest = ticket;
      *any = true;
    }
  }
  return true;
}

void RingReader::deliver(const Lane& lane, const uint64_t* words, RecordSink& sink) {
  LossCounts& losses = carries_calls(lane.kind) ? call_losses_ : fault_losses_;
  if (record_checksum(words) != words[30]) {
    ++losses.invalid;
  } else if (carries_calls(lane.kind)) {
    if (const CallRecord* call = validate_call(words, lane.index)) {
      sink.on_call(*call, lane.kind == LaneKind::kDeviceCalls);
    } else {
      ++losses.invalid;
    }
  } else if (const FaultRecord* fault = validate_fault(words, lane.index)) {
    sink.on_fault(*fault);
  } else {
    ++losses.invalid;
  }
}

// Walks from the cursor while slots are whole. The copy of a run of slots is taken twice, and a slot is taken only if
// begin == end == expected in both and they are equal in every byte: since the writer stores `end` after all else
// (fence; record.h), an `end` seen by the first copy means that the second one has the whole payload.
bool RingReader::drain_lane(Lane& lane, RecordSink& sink, uint64_t now_ns, bool final) {
  LossCounts& losses = carries_calls(lane.kind) ? call_losses_ : fault_losses_;
  const uint64_t mask = lane.slots - 1;
  uint64_t budget = lane.slots;  // one lap: what a busy writer adds meanwhile is for the next drain
  bool lapped_checked = false;
  bool scanned = false;  // newest and any are of this drain
  uint64_t newest = 0;
  bool any = false;
  while (budget > 0) {
    const auto place = static_cast<uint32_t>(lane.cursor & mask);
    const auto count = static_cast<uint32_t>(std::min({uint64_t{kBlockSlots}, uint64_t{lane.slots - place}, budget}));
    const uint64_t offset = lane.offset + uint64_t{place} * kRecordBytes;
    if (!read_at(offset, block_.data(), count * kRecordBytes)) return false;
    if (!read_at(offset, again_.data(), count * kRecordBytes)) return false;

    uint32_t taken = 0;
    Slot stop = Slot::kWhole;
    for (; taken < count && stop == Slot::kWhole; ++taken) {
      const uint64_t* words = block_.data() + size_t{taken} * kRecordWords;
      const uint64_t* check = again_.data() + size_t{taken} * kRecordWords;
      const uint64_t expected = lane.cursor + taken + 1;
      const uint64_t begin_untrusted = check[0];
      if (begin_untrusted == expected) {
        const bool whole = words[0] == expected && words[31] == expected && check[31] == expected &&
                           std::memcmp(words, check, kRecordBytes) == 0;
        if (!whole) {
          stop = Slot::kUnfinished;
          break;
        }
        deliver(lane, words, sink);
        continue;
      }
      const bool in_place =
          begin_untrusted != 0 && begin_untrusted != UINT64_MAX && ((begin_untrusted - 1) & mask) == place + taken;
      stop = begin_untrusted > expected ? Slot::kAhead : Slot::kUnwritten;
      if (begin_untrusted != 0 && !in_place) stop = Slot::kInvalid;
      break;
    }
    lane.cursor += taken;
    budget -= taken;
    if (taken > 0) lane.hole_since_ns = 0;
    if (stop == Slot::kWhole) continue;

    // The slot at the cursor cannot be taken. Is anything later there? Behind an unwritten slot a whole scan of the
    // lane (1 MB) is for holes, which show in the run of slots at hand; past the run it is made now and then.
    const bool begun = stop == Slot::kUnfinished || stop == Slot::kInvalid;
    bool near = false;
    for (uint32_t i = taken + 1; i < count && !near; ++i) near = block_[size_t{i} * kRecordWords] > lane.cursor + 1;
    const bool scan = stop != Slot::kUnwritten || near || final || scanned;
    if (!scan && ++lane.idle_drains % kIdleDrainsAScan != 0) return true;
    if (!scanned && !newest_ticket(lane, &newest, &any)) return false;
    scanned = true;
    const bool later = any && newest > lane.cursor;
    if (stop == Slot::kAhead || (later && newest - lane.cursor >= lane.slots)) {
      // Lapped: all tickets up to newest - slots are gone. Once a drain; a faster writer is met again at the next.
      if (!later || lapped_checked) return true;
      lapped_checked = true;
      const uint64_t oldest = newest >= lane.slots ? newest - lane.slots + 1 : 0;
      if (oldest <= lane.cursor) {
        // The slot says more than the newest valid one: it has changed meanwhile.
        return true;
      }
      losses.lost = saturating_add(losses.lost, oldest - lane.cursor);
      lane.cursor = oldest;
      lane.hole_since_ns = 0;
      continue;
    }
    if (!final) {
      if (!later && !begun) return true;  // the end of what was written
      if (lane.hole_since_ns == 0) lane.hole_since_ns = std::max<uint64_t>(now_ns, 1);
      if (now_ns - lane.hole_since_ns < kHolePatienceNs || now_ns < lane.hole_since_ns) return true;
    } else if (!later && !begun) {
      return true;
    }
    ++(stop == Slot::kInvalid ? losses.invalid : losses.torn);
    ++lane.cursor;
    --budget;
    lane.hole_since_ns = 0;
  }
  return true;
}

bool RingReader::drain(RecordSink& sink, uint64_t now_ns, bool final) {
  if (!refresh()) return false;
  for (const bool calls : {true, false}) {
    for (Lane& lane : lanes_) {
      if (carries_calls(lane.kind) == calls && !drain_lane(lane, sink, now_ns, final)) return false;
    }
  }
  return true;
}

CallCounters RingReader::counters() const {
  CallCounters sum;
  for (uint32_t i = 0; i < thread_count_; ++i) {
    ThreadCounters one_untrusted;
    if (!read_at(threads_offset_ + i * sizeof(ThreadCounters), &one_untrusted, sizeof(one_untrusted))) return sum;
    sum.calls_seen = saturating_add(sum.calls_seen, one_untrusted.calls_seen);
    sum.flops_seen = saturating_add(sum.flops_seen, one_untrusted.flops_seen);
    sum.calls_sampled = saturating_add(sum.calls_sampled, one_untrusted.calls_sampled);
    sum.flops_sampled = saturating_add(sum.flops_sampled, one_untrusted.flops_sampled);
    sum.calls_launched = saturating_add(sum.calls_launched, one_untrusted.calls_launched);
    sum.flops_launched = saturating_add(sum.flops_launched, one_untrusted.flops_launched);
    sum.calls_upgraded = saturating_add(sum.calls_upgraded, one_untrusted.calls_upgraded);
    sum.calls_as_given = saturating_add(sum.calls_as_given, one_untrusted.calls_as_given);
    for (uint32_t r = 0; r < kReasonCount; ++r) {
      sum.unverified_calls[r] = saturating_add(sum.unverified_calls[r], one_untrusted.unverified_calls[r]);
      sum.unverified_flops[r] = saturating_add(sum.unverified_flops[r], one_untrusted.unverified_flops[r]);
    }
  }
  return sum;
}

bool RingReader::still_named() const {
  struct stat mine = {}, named = {};
  return fstat(fd_, &mine) == 0 && lstat(path_.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
         mine.st_dev == named.st_dev;
}

bool RingReader::unlink_file() {
  return still_named() && unlink(path_.c_str()) == 0;
}

std::vector<std::string> list_rings(const std::string& ring_dir) {
  std::vector<std::string> paths;
  DIR* folder = opendir(ring_dir.c_str());
  if (folder == nullptr) return paths;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.size() <= 5 || name[0] == '.' || name.compare(name.size() - 5, 5, ".ring") != 0) continue;
    if (paths.size() == kMaxRingFiles) break;
    paths.push_back(ring_dir + "/" + name);
  }
  closedir(folder);
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool write_control(const std::string& path, uint32_t control) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  const ssize_t written = pwrite(fd, &control, sizeof(control), offsetof(RingHeader, control));
  close(fd);
  return written == static_cast<ssize_t>(sizeof(control));
}

}  // namespace sdcguard

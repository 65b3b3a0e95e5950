// SPDX-License-Identifier: MIT
// Ring reader: takes a ring file that nobody vouches for, gives validated records and counts; runs in sdcguardd, the
// command line and tests.
//
// Trust: every byte of the file is hostile. The file is never mapped but read by pread (a file that its owner cuts
// short is a short read here, no SIGBUS), every number out of it is `_untrusted` until it was checked, and the work of
// one drain is bounded by the slots of the file, whatever they hold. What is not understood is counted and dropped.
//
//   attach --> drain ... drain --> drain(final) once the writer is dead
//
// One reader belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sdcguard/ring.h"
#include "tools/ring/liveness.h"

namespace sdcguard {

inline constexpr uint32_t kMaxReaderSlots = 1u << 20;  // of one lane; a larger lane is refused as malformed
// A slot taken and not yet whole holds back those after it, which are later calls. Past this age its writer is given
// up.
inline constexpr uint64_t kHolePatienceNs = 1'000'000'000;

enum class AttachStatus {
  kOk,
  kMissing,    // no such file, or it may not be read
  kNotReady,   // the writer has not finished the header (magic is stored last): try again
  kNotARing,   // another kind of file
  kVersion,    // a wire version that this reader does not know
  kMalformed,  // the header contradicts itself or the file's size
};
const char* name_of(AttachStatus status);

// A validated copy of a device's entry.
struct DeviceSeen {
  uint32_t slot = 0;
  int32_t ordinal = 0;
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string name;
  std::string pci;
  int32_t compute_major = 0, compute_minor = 0;
  int32_t driver_version = 0;
  int32_t sm_count = 0;
  uint64_t memory_bytes = 0;
};

// A validated copy of what the header says now. Text is printable UTF-8: other bytes are replaced by '?'.
struct RingState {
  ProcessIdentity process;
  int32_t rank = 0;
  uint64_t started_ns = 0;
  Mode mode = Mode::kOff;    // as configured
  bool control_set = false;  // `sdcguard off|on` forced a mode
  Mode mode_in_force = Mode::kOff;
  uint64_t seed = 0;
  double rate = 0;
  std::string command;
  std::string cublas;
  uint64_t warm_calls = 0, driver_errors = 0, lanes_refused = 0;
  std::vector<DeviceSeen> devices;
};

// Takes what a drain finds. Called on the draining thread, each lane's records in the order of their tickets.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  // on_device: it came through a lane that the GPU writes.
  virtual void on_call(const CallRecord& call, bool on_device) = 0;
  virtual void on_fault(const FaultRecord& fault) = 0;
};

// Records that did not arrive whole, since attach. A record is in at most one of the three.
struct LossCounts {
  uint64_t lost = 0;     // overwritten before they were read
  uint64_t torn = 0;     // begun and never finished
  uint64_t invalid = 0;  // whole, and not a record that could be true
  bool any() const { return lost != 0 || torn != 0 || invalid != 0; }
  friend bool operator==(const LossCounts&, const LossCounts&) = default;
};

// Sums over all threads' counters. Saturating: hostile counters cannot wrap them around.
struct CallCounters {
  uint64_t calls_seen = 0, flops_seen = 0;
  uint64_t calls_sampled = 0, flops_sampled = 0;
  uint64_t calls_launched = 0, flops_launched = 0;
  uint64_t calls_upgraded = 0, calls_as_given = 0;
  uint64_t unverified_calls[kReasonCount] = {};
  uint64_t unverified_flops[kReasonCount] = {};
};

class RingReader {
 public:
  // Opens and validates. On anything but kOk, null. Nothing of the file is changed.
  static std::unique_ptr<RingReader> attach(const std::string& path, AttachStatus* status);
  ~RingReader();
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

  const std::string& path() const { return path_; }

  // The header as it is now; false where it can no longer be read or has stopped being true (the last good one stands).
  bool refresh();
  const RingState& state() const { return state_; }

  // Reads every record that is whole: all calls first, then faults. Fault records are written before their call's, so
  // those of a call handed out follow in the same drain, unless one of their lane is unfinished or lost. Takes at most
  // one lap of each lane.
  // now_ns: any monotonic clock; tells the age of a hole. final: the writer is dead, nothing is waited for.
  // False: the file cannot be read any more.
  bool drain(RecordSink& sink, uint64_t now_ns, bool final);

  // Losses of call lanes (which make coverage a lower bound) and of fault lanes.
  const LossCounts& call_losses() const { return call_losses_; }
  const LossCounts& fault_losses() const { return fault_losses_; }

  // The threads' counters as they are now; they may run ahead of the records.
  CallCounters counters() const;

  // True where `path()` still names the file that was attached.
  bool still_named() const;

  // Removes the file from its folder, if still_named(). False: it is still there.
  bool unlink_file();

 private:
  struct Lane {
    LaneKind kind = LaneKind::kUnused;
    uint32_t index = 0;
    uint32_t slots = 0;
    uint64_t offset = 0;
    uint64_t cursor = 0;         // ticket to be read next
    uint32_t idle_drains = 0;    // that ended at an unwritten slot
    uint64_t hole_since_ns = 0;  // when the slot at the cursor was first found unfinished with later ones whole. 0: no
  };
  enum class Slot { kWhole, kUnwritten, kUnfinished, kAhead, kInvalid };

  RingReader(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  AttachStatus read_header();
  bool drain_lane(Lane& lane, RecordSink& sink, uint64_t now_ns, bool final);
  bool newest_ticket(const Lane& lane, uint64_t* newest, bool* any);
  void deliver(const Lane& lane, const uint64_t* words, RecordSink& sink);
  bool read_at(uint64_t offset, void* into, size_t bytes) const;

  std::string path_;
  int fd_ = -1;
  uint64_t file_bytes_ = 0;      // of the file when attached
  uint64_t threads_offset_ = 0;  // checked against it
  uint32_t thread_count_ = 0;    // cut to kMaxThreads
  RingState state_;
  std::vector<Lane> lanes_;
  LossCounts call_losses_, fault_losses_;
  std::vector<uint64_t> block_, again_;  // two copies of a run of slots
};

// A record that could be true, out of 256 bytes that anybody may have written: kinds, vocabularies and signs hold.
// `lane` is the index that its lane has. Null pointer results: it could not be.
const CallRecord* validate_call(const uint64_t* words_untrusted, uint32_t lane);
const FaultRecord* validate_fault(const uint64_t* words_untrusted, uint32_t lane);

// Paths of all "*.ring" files in a folder, sorted. An absent folder gives none. At most kMaxRingFiles.
inline constexpr size_t kMaxRingFiles = 4096;
std::vector<std::string> list_rings(const std::string& ring_dir);

// Writes the control word of the ring at `path`: 0 = as configured, 1 + Mode = forced. False: it could not be.
bool write_control(const std::string& path, uint32_t control);

// 2 m n k batch, saturating.
uint64_t flops_of(const CallRecord& call);

uint64_t saturating_add(uint64_t a, uint64_t b);

// Name of CallRecord::entry; "unknown" past the table.
const char* entry_name(uint16_t entry);

std::string uuid_text(const uint8_t (&uuid)[16]);

}  // namespace sdcguard

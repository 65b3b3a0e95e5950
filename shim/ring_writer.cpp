// SPDX-License-Identifier: MIT
// stage record, host side: makes the process's ring file, hands out lanes and counters, writes host records.
#include "shim/ring_writer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sdcguard {
namespace {

template <typename T>
std::atomic_ref<T> shared(T& word) {
  return std::atomic_ref<T>(word);
}

// Reads a small file of /proc into `text`, zero-terminated. Returns the bytes read, 0 on failure.
size_t read_small_file(const char* path, char* text, size_t capacity) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  size_t used = 0;
  while (used + 1 < capacity) {
    const ssize_t got = read(fd, text + used, capacity - 1 - used);
    if (got <= 0) break;
    used += static_cast<size_t>(got);
  }
  close(fd);
  text[used] = '\0';
  return used;
}

// Field 22 of the stat file of a process, 0 when there is none. The command in field 2 may hold spaces and brackets:
// count from the last bracket.
uint64_t start_ticks_of(const char* stat_path) {
  char text[1024];
  if (read_small_file(stat_path, text, sizeof(text)) == 0) return 0;
  const char* cursor = std::strrchr(text, ')');
  for (int field = 2; cursor != nullptr && field < 22; ++field) {
    cursor = std::strchr(cursor + 1, ' ');
  }
  return cursor == nullptr ? 0 : std::strtoull(cursor + 1, nullptr, 10);
}

uint64_t pid_namespace() {
  struct stat info = {};
  return stat("/proc/self/ns/pid", &info) == 0 ? static_cast<uint64_t>(info.st_ino) : 0;
}

uint64_t realtime_ns() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

uint32_t random_word() {
  uint32_t word = 0;
  if (getrandom(&word, sizeof(word), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(word))) {
    word = static_cast<uint32_t>(realtime_ns());
  }
  return word;
}

// Reserves all of the file's space. tmpfs allocates its pages here, so a later store cannot fault. Past the process's
// limit on file sizes the attempt alone would raise SIGXFSZ, which ends a program.
bool reserve(int fd) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < kRingBytes) return false;
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(kRingBytes));
  } while (error == EINTR);
  return error == 0;
}

// A ring file's name, taken apart.
struct RingName {
  unsigned long long ns_inode = 0;
  int pid = 0;
  unsigned long long start_ticks = 0;
};

bool parse_name(const char* name, RingName* parsed) {
  unsigned int random = 0;
  int end = 0;
  return std::sscanf(name, "%llu-%d-%llu-%8x.ring%n", &parsed->ns_inode, &parsed->pid, &parsed->start_ticks, &random,
                     &end) == 4 &&
         end > 0 && name[end] == '\0';
}

bool is_dead(const RingName& name, uint64_t own_ns_inode) {
  if (name.ns_inode != own_ns_inode) return false;  // not ours to say
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", name.pid);
  return start_ticks_of(path) != name.start_ticks;
}

// Where no daemon reads, rings of ended processes would fill shared memory that the programs need: of more than
// kMostRings files the oldest ones of dead processes make room. False: they are all alive, or not ours.
bool make_room(const char* directory, uint64_t ns_inode) {
  for (;;) {
    DIR* folder = opendir(directory);
    if (folder == nullptr) return true;
    uint32_t rings = 0;
    char oldest[256] = "";
    timespec oldest_time = {};
    while (const dirent* entry = readdir(folder)) {
      RingName name;
      struct stat info = {};
      if (!parse_name(entry->d_name, &name)) continue;
      ++rings;
      if (fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !is_dead(name, ns_inode)) continue;
      const bool older = oldest[0] == '\0' || info.st_mtim.tv_sec < oldest_time.tv_sec ||
                         (info.st_mtim.tv_sec == oldest_time.tv_sec && info.st_mtim.tv_nsec < oldest_time.tv_nsec);
      if (!older) continue;
      oldest_time = info.st_mtim;
      std::snprintf(oldest, sizeof(oldest), "%s", entry->d_name);
    }
    const bool removed = rings >= kMostRings && oldest[0] != '\0' && unlinkat(dirfd(folder), oldest, 0) == 0;
    closedir(folder);
    if (rings < kMostRings) return true;
    if (!removed) return false;
  }
}

int make_file(const Config& config, uint64_t ns_inode, uint64_t start_ticks) {
  const char* directory = config.ring_dir.c_str();
  if (mkdir(directory, 0700) != 0 && errno != EEXIST) return -1;
  if (!make_room(directory, ns_inode)) return -1;
  char path[4096];
  // A reader takes only names that end in .ring: the file gets that name once it is whole.
  const int length = std::snprintf(path, sizeof(path), "%s/.%llu-%d-%llu-%08x.new", directory,
                                   static_cast<unsigned long long>(ns_inode), static_cast<int>(getpid()),
                                   static_cast<unsigned long long>(start_ticks), random_word());
  if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) return -1;
  const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1;
  if (!reserve(fd)) {
    unlink(path);
    close(fd);
    return -1;
  }
  char final_path[4096];
  const char* name = std::strrchr(path, '/') + 2;
  std::snprintf(final_path, sizeof(final_path), "%s/%.*s.ring", directory, static_cast<int>(std::strlen(name) - 4),
                name);
  if (rename(path, final_path) != 0) {
    unlink(path);
    close(fd);
    return -1;
  }
  return fd;
}

int make_anonymous() {
  const int fd = memfd_create("sdcguard-ring", MFD_CLOEXEC);
  if (fd >= 0 && !reserve(fd)) {
    close(fd);
    return -1;
  }
  return fd;
}

void copy_command(char (&command)[256]) {
  const size_t length = read_small_file("/proc/self/cmdline", command, sizeof(command));
  for (size_t i = 0; i + 1 < length; ++i) {
    if (command[i] == '\0') command[i] = ' ';
  }
}

void announce_lane(LaneInfo& lane, LaneKind kind, uint32_t index, uint32_t slots, uint64_t context_id,
                   uint32_t device) {
  lane.slots = slots;
  lane.offset = lane_offset(index);
  lane.context_id = context_id;
  lane.device = device;
  // Pairs with the reader's acquire load of `kind`.
  shared(lane.kind).store(static_cast<uint32_t>(kind), std::memory_order_release);
}

}  // namespace

void RingWriter::open(const Config& config) noexcept {
  const uint64_t ns_inode = pid_namespace();
  const uint64_t start_ticks = start_ticks_of("/proc/self/stat");
  int fd = make_file(config, ns_inode, start_ticks);
  if (fd < 0) fd = make_anonymous();
  if (fd < 0) return;
  void* memory = mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return;
  base_ = static_cast<unsigned char*>(memory);

  RingHeader& head = *header();
  head.version = kWireVersion;
  head.header_bytes = sizeof(RingHeader);
  head.file_bytes = kRingBytes;
  head.threads_offset = kThreadsOffset;
  head.lane_count = kMaxLanes;
  head.pid = getpid();
  head.rank = config.rank;
  head.pid_namespace = ns_inode;
  head.start_ticks = start_ticks;
  head.started_ns = realtime_ns();
  head.mode = static_cast<uint32_t>(config.mode);
  head.seed = config.seed;
  head.rate = config.rate;
  copy_command(head.command);
  announce_lane(head.lanes[0], LaneKind::kHostCalls, 0, kCallSlots, 0, 0);
  announce_lane(head.lanes[1], LaneKind::kHostFaults, 1, kFaultSlots, 0, 0);
  // Pairs with the reader's acquire load of `magic`.
  shared(head.magic).store(kRingMagic, std::memory_order_release);
}

uint32_t RingWriter::control() const noexcept {
  return is_open() ? shared(header()->control).load(std::memory_order_relaxed) : 0;
}

ThreadCounters* RingWriter::thread_slot(uint32_t number) const noexcept {
  if (!is_open()) return nullptr;
  auto count = shared(header()->thread_count);
  uint32_t seen = count.load(std::memory_order_relaxed);
  while (seen < number + 1 && !count.compare_exchange_weak(seen, number + 1, std::memory_order_relaxed)) {
  }
  auto* slots = reinterpret_cast<ThreadCounters*>(base_ + kThreadsOffset);
  return &slots[number < kMaxThreads ? number : kMaxThreads - 1];
}

int RingWriter::device_slot(const DeviceInfo& info) const noexcept {
  if (!is_open()) return -1;
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    DeviceInfo& slot = header()->devices[i];
    if (shared(slot.present).load(std::memory_order_acquire) != 0) {
      if (std::memcmp(slot.uuid, info.uuid, sizeof(info.uuid)) == 0) return static_cast<int>(i);
      continue;
    }
    // Callers hold the lock of the context table: nobody else takes this slot.
    DeviceInfo filled = info;
    filled.present = 0;
    std::memcpy(&slot, &filled, sizeof(slot));
    shared(slot.present).store(1u, std::memory_order_release);
    return static_cast<int>(i);
  }
  return -1;
}

DeviceLanes RingWriter::take_lanes() const noexcept {
  DeviceLanes lanes;
  if (!is_open()) return lanes;
  // Callers hold the lock of the context table.
  for (uint32_t i = 2; i + 1 < kMaxLanes; i += 2) {
    LaneInfo& info = header()->lanes[i];
    if (info.slots != 0) continue;
    info.slots = kCallSlots;  // taken; readers look at `kind` first
    lanes.calls = i;
    lanes.faults = i + 1;
    lanes.memory_host = base_ + lane_offset(i);
    lanes.bytes = uint64_t{kCallSlots + kFaultSlots} * kRecordBytes;
    return lanes;
  }
  return lanes;
}

void RingWriter::announce(const DeviceLanes& lanes, uint64_t context_id, uint32_t device) const noexcept {
  announce_lane(header()->lanes[lanes.calls], LaneKind::kDeviceCalls, lanes.calls, kCallSlots, context_id, device);
  announce_lane(header()->lanes[lanes.faults], LaneKind::kDeviceFaults, lanes.faults, kFaultSlots, context_id, device);
}

void RingWriter::write_call(const CallRecord& record) const noexcept {
  if (!is_open()) return;
  LaneInfo& lane = header()->lanes[0];
  const uint64_t ticket = shared(lane.host_tickets).fetch_add(1, std::memory_order_relaxed);
  CallRecord whole = record;
  whole.head = {ticket + 1, RecordKind::kCall, static_cast<uint8_t>(kWireVersion), 0, 0};
  uint64_t words[kRecordWords];
  std::memcpy(words, &whole, sizeof(words));
  words[30] = record_checksum(words);
  words[31] = ticket + 1;
  auto* slot = reinterpret_cast<uint64_t*>(base_ + lane_offset(0) + (ticket % kCallSlots) * kRecordBytes);
  // The reader's copy is taken only if begin and end agree; see record.h.
  shared(slot[0]).store(words[0], std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 1; i < 31; ++i) shared(slot[i]).store(words[i], std::memory_order_relaxed);
  shared(slot[31]).store(words[31], std::memory_order_release);
}

void RingWriter::count_driver_error() const noexcept {
  if (is_open()) shared(header()->driver_errors).fetch_add(1, std::memory_order_relaxed);
}

void RingWriter::count_warm() const noexcept {
  if (is_open()) shared(header()->warm_calls).fetch_add(1, std::memory_order_relaxed);
}

void RingWriter::count_lane_refused() const noexcept {
  if (is_open()) shared(header()->lanes_refused).fetch_add(1, std::memory_order_relaxed);
}

void RingWriter::add_library(const char* name, size_t version) const noexcept {
  if (!is_open()) return;
  char(&list)[64] = header()->cublas;
  // Handles are made rarely. Two at once: the second goes unlisted, rather than wait.
  static std::atomic_flag adding;
  if (adding.test_and_set(std::memory_order_acquire)) return;
  char entry[64];
  std::snprintf(entry, sizeof(entry), version == 0 ? "%s" : "%s %zu", name, version);
  const size_t used = std::strlen(list);
  if (std::strstr(list, entry) == nullptr) {
    std::snprintf(list + used, sizeof(list) - used, "%s%s", used == 0 ? "" : ", ", entry);
  }
  adding.clear(std::memory_order_release);
}

}  // namespace sdcguard

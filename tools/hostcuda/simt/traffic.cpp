// SPDX-License-Identifier: MIT
// Bytes moved per kernel and allocation: a fixed open-addressed table under one lock.
#include "tools/hostcuda/simt/traffic.h"

#include "tools/hostcuda/simt/unwatched.h"

namespace hostcuda {
namespace {

constexpr uint32_t kRecords = 4096;
constexpr uint32_t kBuckets = 2 * kRecords;

UnwatchedLock lock;
Traffic records[kRecords];
uint32_t record_count = 0;
uint16_t buckets[kBuckets];  // index of a record plus one, 0: empty

// Kernels with the same name in two libraries are one kernel to a reader.
HOSTCUDA_UNWATCHED bool same_name(const char* a, const char* b) {
  while (*a != 0 && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

HOSTCUDA_UNWATCHED uint32_t bucket_of(const char* kernel, uint64_t base, uint64_t bytes) {
  uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a
  for (const char* c = kernel; *c != 0; ++c) hash = (hash ^ static_cast<unsigned char>(*c)) * 0x100000001B3ull;
  hash = (hash ^ base) * 0x9E3779B97F4A7C15ull;
  hash = (hash ^ (hash >> 29) ^ bytes) * 0x9E3779B97F4A7C15ull;
  return static_cast<uint32_t>(hash >> 40) % kBuckets;
}

// The record of the key, made where there is room; null: full.
HOSTCUDA_UNWATCHED Traffic* find_or_make(const char* kernel, uint64_t base, uint64_t bytes, uint32_t limit) {
  uint32_t bucket = bucket_of(kernel, base, bytes);
  while (buckets[bucket] != 0) {
    Traffic* const record = &records[buckets[bucket] - 1];
    if (record->base == base && record->bytes == bytes && same_name(record->kernel, kernel)) return record;
    bucket = (bucket + 1) % kBuckets;
  }
  if (record_count >= limit) return nullptr;
  Traffic* const record = &records[record_count];
  record->kernel = kernel;
  record->base = base;
  record->bytes = bytes;
  record->bytes_read = 0;
  record->bytes_written = 0;
  ++record_count;
  buckets[bucket] = static_cast<uint16_t>(record_count);
  return record;
}

constexpr uint32_t kKeptForSums = 256;  // room for the base-0 records of kernels that come late

}  // namespace

HOSTCUDA_UNWATCHED void traffic_add(const char* kernel, const HostRange& range) {
  lock.lock();
  Traffic* record = find_or_make(kernel, range.base, range.size, kRecords - kKeptForSums);
  if (record == nullptr) record = find_or_make(kernel, 0, 0, kRecords);
  if (record != nullptr) {
    record->bytes_read += range.bytes_read;
    record->bytes_written += range.bytes_written;
  }
  lock.unlock();
}

}  // namespace hostcuda

extern "C" HOSTCUDA_UNWATCHED size_t hostcuda_traffic(const char* kernel, hostcuda::Traffic* out, size_t capacity) {
  size_t found = 0;
  hostcuda::lock.lock();
  for (uint32_t i = 0; i < hostcuda::record_count; ++i) {
    const hostcuda::Traffic& record = hostcuda::records[i];
    if (kernel != nullptr && !hostcuda::same_name(record.kernel, kernel)) continue;
    if (found < capacity) out[found] = record;
    ++found;
  }
  hostcuda::lock.unlock();
  return found;
}

extern "C" HOSTCUDA_UNWATCHED void hostcuda_traffic_reset(void) {
  hostcuda::lock.lock();
  hostcuda::record_count = 0;
  for (uint32_t i = 0; i < hostcuda::kBuckets; ++i) hostcuda::buckets[i] = 0;
  hostcuda::lock.unlock();
}

// SPDX-License-Identifier: MIT
// Memory patterns: fills a range of memory with a pattern, reads it back, tells the first word that is not what was
// written. All zeros, all ones, both checkerboards, and words that depend on their place, so that a broken address line
// shows too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace sdcguard {

enum class MemoryPattern { kZeros, kOnes, kEven, kOdd, kPlace };
inline constexpr const char* kMemoryPatternNames[] = {"zeros", "ones", "even bits", "odd bits", "place"};
inline constexpr int kMemoryPatternCount = 5;

// The word at that place, counted in 8 bytes from the start of the range.
uint64_t pattern_word(MemoryPattern pattern, uint64_t place, uint64_t seed);

// Memory by offsets in bytes from the start of a range.
struct MemoryRange {
  uint64_t bytes;  // a multiple of 8
  std::function<void(uint64_t offset, const void* from, uint64_t bytes)> write;
  std::function<void(void* to, uint64_t offset, uint64_t bytes)> read;
};

struct MemoryFault {
  uint64_t offset;  // bytes
  uint64_t expected, got;
};

// Writes all of the range, then reads all of it. Nothing: every word came back. Allocates two blocks of 32 MiB.
std::optional<MemoryFault> memory_fault(const MemoryRange& range, MemoryPattern pattern, uint64_t seed);

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
#include "tools/measure/memory_pattern.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace sdcguard {
namespace {

constexpr uint64_t kBlockWords = uint64_t{1} << 22;

}  // namespace

uint64_t pattern_word(MemoryPattern pattern, uint64_t place, uint64_t seed) {
  switch (pattern) {
    case MemoryPattern::kZeros:
      return 0;
    case MemoryPattern::kOnes:
      return ~uint64_t{0};
    case MemoryPattern::kEven:
      return 0x5555555555555555ull;
    case MemoryPattern::kOdd:
      return 0xaaaaaaaaaaaaaaaaull;
    default: {
      // Two rounds of a multiply and a shift: every bit of the place reaches every bit of the word.
      uint64_t word = (place + seed + 1) * 0x9e3779b97f4a7c15ull;
      word = (word ^ word >> 32) * 0xd6e8feb86659fd93ull;
      return word ^ word >> 32;
    }
  }
}

std::optional<MemoryFault> memory_fault(const MemoryRange& range, MemoryPattern pattern, uint64_t seed) {
  const uint64_t words = range.bytes / 8;
  std::vector<uint64_t> expected(std::min(words, kBlockWords)), got(expected.size());
  const auto block_at = [&](uint64_t first) {
    const uint64_t count = std::min(words - first, kBlockWords);
    for (uint64_t i = 0; i < count; ++i) expected[i] = pattern_word(pattern, first + i, seed);
    return count;
  };
  for (uint64_t first = 0; first < words; first += kBlockWords) {
    const uint64_t count = block_at(first);
    range.write(first * 8, expected.data(), count * 8);
  }
  for (uint64_t first = 0; first < words; first += kBlockWords) {
    const uint64_t count = block_at(first);
    range.read(got.data(), first * 8, count * 8);
    if (std::memcmp(expected.data(), got.data(), count * 8) == 0) continue;
    for (uint64_t i = 0; i < count; ++i) {
      if (expected[i] != got[i]) return MemoryFault{(first + i) * 8, expected[i], got[i]};
    }
  }
  return std::nullopt;
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Memory patterns against memories with one defect each: every kind is seen, at its place, and a good memory is good.
#include "tools/measure/memory_pattern.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace sdcguard {
namespace {

constexpr uint64_t kSmall = 4096, kTwoBlocks = (uint64_t{1} << 25) + 4096;

// A memory whose reads pass through `defect`, given the offset of a word and what was last written there.
class Memory {
 public:
  explicit Memory(uint64_t bytes, std::function<uint64_t(uint64_t offset, uint64_t word)> defect = {})
      : words_(bytes / 8, 0x123456789abcdef0ull), defect_(std::move(defect)) {}
  // Writes to addresses with this bit of the word's place set go where it is clear: a broken address line.
  void break_address_line(uint64_t bit) { line_ = bit; }
  MemoryRange range() {
    return {words_.size() * 8,
            [this](uint64_t offset, const void* from, uint64_t bytes) {
              for (uint64_t i = 0; i < bytes / 8; ++i) {
                std::memcpy(&words_[(offset / 8 + i) & ~line_], static_cast<const char*>(from) + i * 8, 8);
              }
            },
            [this](void* to, uint64_t offset, uint64_t bytes) {
              for (uint64_t i = 0; i < bytes / 8; ++i) {
                uint64_t word = words_[(offset / 8 + i) & ~line_];
                if (defect_) word = defect_(offset + i * 8, word);
                std::memcpy(static_cast<char*>(to) + i * 8, &word, 8);
              }
            }};
  }

 private:
  std::vector<uint64_t> words_;
  std::function<uint64_t(uint64_t, uint64_t)> defect_;
  uint64_t line_ = 0;
};

int seen_by(Memory& memory, uint64_t at) {
  int seen = 0;
  for (int p = 0; p < kMemoryPatternCount; ++p) {
    const auto fault = memory_fault(memory.range(), static_cast<MemoryPattern>(p), 5);
    if (!fault) continue;
    ++seen;
    EXPECT_EQ(fault->offset, at);
    EXPECT_NE(fault->expected, fault->got);
    EXPECT_EQ(fault->expected, pattern_word(static_cast<MemoryPattern>(p), at / 8, 5));
  }
  return seen;
}

TEST(MemoryPattern, GoodMemoryIsGood) {
  Memory memory(kTwoBlocks);
  EXPECT_EQ(seen_by(memory, 0), 0);
}

TEST(MemoryPattern, EveryStuckBitIsSeen) {
  for (const uint64_t at : {uint64_t{0}, kSmall - 8}) {
    for (int bit = 0; bit < 64; ++bit) {
      for (const bool high : {false, true}) {
        Memory memory(kSmall, [&](uint64_t offset, uint64_t word) {
          const uint64_t mask = uint64_t{1} << bit;
          return offset != at ? word : high ? word | mask : word & ~mask;
        });
        EXPECT_GE(seen_by(memory, at), 2) << bit;
      }
    }
  }
}

TEST(MemoryPattern, TheLastWordOfTheLastBlockIsReadToo) {
  Memory memory(kTwoBlocks, [](uint64_t offset, uint64_t word) { return offset == kTwoBlocks - 8 ? ~word : word; });
  EXPECT_EQ(seen_by(memory, kTwoBlocks - 8), kMemoryPatternCount);
}

TEST(MemoryPattern, ABrokenAddressLineIsSeenByPlaceAlone) {
  for (const uint64_t line : {uint64_t{1}, uint64_t{1} << 21}) {
    Memory memory(kTwoBlocks);
    memory.break_address_line(line);
    for (int p = 0; p < kMemoryPatternCount; ++p) {
      const auto pattern = static_cast<MemoryPattern>(p);
      EXPECT_EQ(memory_fault(memory.range(), pattern, 5).has_value(), pattern == MemoryPattern::kPlace);
    }
  }
}

}  // namespace
}  // namespace sdcguard

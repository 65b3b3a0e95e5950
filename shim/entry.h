// SPDX-License-Identifier: MIT
// The intercepted entry points as an enum, with names and kinds: all read from entry_points.def.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sdcguard {

enum class Entry : uint16_t {
#define SDCGUARD_ENTRY(index, ...) index,
#include "entry_points.def"
#undef SDCGUARD_ENTRY
};

enum class EntryKind : uint8_t { kProduct, kCreate, kDestroy };

inline constexpr const char* kEntryNames[] = {
#define SDCGUARD_ENTRY(index, kind, symbol, ...) #symbol,
#include "entry_points.def"
#undef SDCGUARD_ENTRY
};

inline constexpr EntryKind kEntryKinds[] = {
#define SDCGUARD_ENTRY(index, kind, ...) EntryKind::kind,
#include "entry_points.def"
#undef SDCGUARD_ENTRY
};

inline constexpr uint32_t kEntryCount = sizeof(kEntryKinds) / sizeof(kEntryKinds[0]);

inline constexpr const char* name_of(Entry e) {
  return static_cast<uint32_t>(e) < kEntryCount ? kEntryNames[static_cast<uint32_t>(e)] : "invalid";
}

// The library that defines an entry: the names of cuBLASLt begin with cublasLt.
inline constexpr bool is_lt(Entry e) {
  return name_of(e)[6] == 'L' && name_of(e)[7] == 't';
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Entry names: takes the index of an entry point that a record carries, gives the symbol's name.
#include <cstddef>

#include "tools/ring/ring_reader.h"

namespace sdcguard {

const char* entry_name(uint16_t entry) {
  // The shim's own table is the only list of entry points; its parameter lists are not used here.
  static constexpr const char* kEntryNames[] = {
#define SDCGUARD_ENTRY(index, kind, form, symbol, ...) #symbol,
#include "shim/entry_points.def"
#undef SDCGUARD_ENTRY
  };
  constexpr size_t kCount = sizeof(kEntryNames) / sizeof(kEntryNames[0]);
  return entry < kCount ? kEntryNames[entry] : "unknown";
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// The intercepted entry points as an enum, with names, kinds and forms: all read from entry_points.def.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sdcguard/types.h"

namespace sdcguard {

enum class Entry : uint16_t {
#define SDCGUARD_ENTRY(index, ...) index,
#include "entry_points.def"
#undef SDCGUARD_ENTRY
};

enum class EntryKind : uint8_t { kProduct, kObserved, kCreate, kDestroy };

// Which arguments an entry takes; shim/forms.h reads them.
enum class EntryForm : uint8_t {
  kGemm,
  kGemmBatched,
  kGemmStrided,
  kGemmGrouped,
  kGemmTyped,
  kGemmEx,
  kGemmBatchedEx,
  kGemmStridedEx,
  kGemmGroupedEx,
  kLtMatmul,
  kGemv,
  kGemvBatched,
  kGemvStrided,
  kRankK,
  kRankKEx,
  kRank2k,
  kSymm,
  kTrmm,
  kTrsm,
  kTrsmBatched,
  kByteBias,
  kHandle
};

inline constexpr const char* kEntryNames[] = {
#define SDCGUARD_ENTRY(index, kind, form, symbol, ...) #symbol,
#include "entry_points.def"
#undef SDCGUARD_ENTRY
};

inline constexpr EntryKind kEntryKinds[] = {
#define SDCGUARD_ENTRY(index, kind, ...) EntryKind::kind,
#include "entry_points.def"
#undef SDCGUARD_ENTRY
};

inline constexpr EntryForm kEntryForms[] = {
#define SDCGUARD_ENTRY(index, kind, form, ...) EntryForm::form,
#include "entry_points.def"
#undef SDCGUARD_ENTRY
};

inline constexpr uint32_t kEntryCount = sizeof(kEntryKinds) / sizeof(kEntryKinds[0]);

inline constexpr const char* name_of(Entry e) {
  return static_cast<uint32_t>(e) < kEntryCount ? kEntryNames[static_cast<uint32_t>(e)] : "invalid";
}

inline constexpr EntryKind kind_of(Entry e) {
  return kEntryKinds[static_cast<uint32_t>(e)];
}

inline constexpr EntryForm form_of(Entry e) {
  return kEntryForms[static_cast<uint32_t>(e)];
}

// The library that defines an entry: the names of cuBLASLt begin with cublasLt.
inline constexpr bool is_lt(Entry e) {
  return name_of(e)[6] == 'L' && name_of(e)[7] == 't';
}

// The letters after "cublas" or "cublasXt".
inline constexpr const char* letters_of(Entry e) {
  const char* letters = name_of(e) + 6;
  return letters[0] == 'X' && letters[1] == 't' ? letters + 2 : letters;
}

// Element type that the name tells: S, D and H products, and the 16-bit matrix-vector ones. kOther: complex, or the
// type is an argument.
inline constexpr DataType element_of(Entry e) {
  const char* letters = letters_of(e);
  const bool mixed = letters[1] == 'S';  // HSH HSS TST TSS
  switch (letters[0]) {
    case 'S':
      return DataType::kF32;
    case 'D':
      return DataType::kF64;
    case 'H':
      return DataType::kF16;
    case 'T':
      return mixed ? DataType::kBF16 : DataType::kOther;
    default:
      return DataType::kOther;
  }
}

// A complex multiply-add is four real ones.
inline constexpr bool is_complex(Entry e) {
  return kind_of(e) == EntryKind::kObserved && (letters_of(e)[0] == 'C' || letters_of(e)[0] == 'Z');
}

// Forms whose matrices are device arrays of pointers.
inline constexpr bool has_pointer_arrays(EntryForm form) {
  return form == EntryForm::kGemmBatched || form == EntryForm::kGemmBatchedEx || form == EntryForm::kGemmGrouped ||
         form == EntryForm::kGemmGroupedEx;
}

inline constexpr bool is_grouped(EntryForm form) {
  return form == EntryForm::kGemmGrouped || form == EntryForm::kGemmGroupedEx;
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Units of configuration values: sizes that people write ("256 MiB") and their strict reading. No allocation, no
// locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sdcguard {

// A size in bytes. A bare integer never stands for a size outside this type.
struct Bytes {
  uint64_t bytes = 0;
  friend bool operator==(Bytes, Bytes) = default;
};

// Reads the whole of `text` as a size: digits, an optional fraction, an optional unit out of B, KB, MB, GB, TB (powers
// of 1000) and KiB, MiB, GiB, TiB (powers of 1024), spaces between allowed. Nothing, where it is anything else, not a
// whole number of bytes, or past 2^63 - 1.
std::optional<Bytes> parse_bytes(std::string_view text) noexcept;

// The shortest exact form with a binary unit: "256 MiB", "1000 B".
std::string format_bytes(Bytes size);

// Reads the whole of `text` as an unsigned integer (decimal, or hexadecimal after 0x). Nothing on any other character,
// a sign, or overflow.
std::optional<uint64_t> parse_unsigned(std::string_view text) noexcept;

// Reads the whole of `text` as a finite decimal number, with a point whatever the program's locale is.
std::optional<double> parse_number(std::string_view text) noexcept;

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Units: takes the text of a size or number, gives its value or nothing; runs in the loader and the tools.
#include "config/units.h"

#include <charconv>
#include <cmath>

namespace sdcguard {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};
constexpr Unit kUnits[] = {
    {"", 1},
    {"B", 1},
    {"KB", 1000},
    {"MB", 1000ull * 1000},
    {"GB", 1000ull * 1000 * 1000},
    {"TB", 1000ull * 1000 * 1000 * 1000},
    {"KiB", uint64_t{1} << 10},
    {"MiB", uint64_t{1} << 20},
    {"GiB", uint64_t{1} << 30},
    {"TiB", uint64_t{1} << 40},
};
constexpr uint64_t kMaxBytes = 0x7fffffffffffffffull;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

std::optional<Bytes> parse_bytes(std::string_view text) noexcept {
  text = trimmed(text);
  size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  if (end == 0) return std::nullopt;
  uint64_t whole = 0;
  if (std::from_chars(text.data(), text.data() + end, whole).ec != std::errc()) return std::nullopt;

  // The fraction is kept as digits / scale, so that "1.5 GiB" is exact and "0.3 KiB" is refused.
  uint64_t digits = 0;
  uint64_t scale = 1;
  if (end < text.size() && text[end] == '.') {
    const size_t first = ++end;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end == first || end - first > 6) return std::nullopt;
    for (size_t i = first; i < end; ++i) {
      digits = digits * 10 + static_cast<uint64_t>(text[i] - '0');
      scale *= 10;
    }
  }
  const std::string_view unit = trimmed(text.substr(end));
  for (const Unit& u : kUnits) {
    if (u.name != unit) continue;
    if (whole > kMaxBytes / u.factor) return std::nullopt;
    const uint64_t part = digits * u.factor;  // below 10^6 * 2^40 < 2^63
    if (part % scale != 0) return std::nullopt;
    const uint64_t total = whole * u.factor + part / scale;
    if (total > kMaxBytes) return std::nullopt;
    return Bytes{total};
  }
  return std::nullopt;
}

std::string format_bytes(Bytes size) {
  static constexpr std::string_view kNames[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  uint64_t value = size.bytes;
  size_t unit = 0;
  while (unit + 1 < std::size(kNames) && value != 0 && value % 1024 == 0) {
    value /= 1024;
    ++unit;
  }
  return std::to_string(value).append(kNames[unit]);
}

std::optional<uint64_t> parse_unsigned(std::string_view text) noexcept {
  int base = 10;
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
    base = 16;
    text.remove_prefix(2);
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) noexcept {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace sdcguard

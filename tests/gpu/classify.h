// SPDX-License-Identifier: MIT
// What a measured function of a library is: which GELU, which rounding of FP32 inputs, how far two 16-bit results
// differ.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace sdcguard::gpu {

inline double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
inline double gelu_erf(double x) {
  return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}

// The form that y = GELU(x) has. The two differ by up to `gap` over the points: a form is named only when every point
// is within gap / 4 of it, which leaves at least 3 gap / 4 to the other one somewhere.
struct GeluForm {
  std::string name;  // "tanh", "erf" or "neither"
  double error_tanh = 0, error_erf = 0, gap = 0;
};
inline GeluForm classify_gelu(const std::vector<float>& x, const std::vector<float>& y) {
  GeluForm form;
  bool finite = x.size() == y.size() && !x.empty();
  for (size_t i = 0; finite && i < x.size(); ++i) {
    const double at = static_cast<double>(x[i]);
    const double got = static_cast<double>(y[i]);
    finite = std::isfinite(got);
    form.error_tanh = std::fmax(form.error_tanh, std::fabs(got - gelu_tanh(at)));
    form.error_erf = std::fmax(form.error_erf, std::fabs(got - gelu_erf(at)));
    form.gap = std::fmax(form.gap, std::fabs(gelu_tanh(at) - gelu_erf(at)));
  }
  const double limit = form.gap / 4;
  form.name = !finite || form.gap == 0   ? "neither"
              : form.error_tanh <= limit ? "tanh"
              : form.error_erf <= limit  ? "erf"
                                         : "neither";
  return form;
}

// TF32 keeps 10 of FP32's 23 fraction bits.
enum class InputRounding { kNone, kTruncate, kNearestEven, kNearestAway };
inline constexpr const char* kInputRoundingNames[] = {"none", "truncate", "nearest, ties to even",
                                                      "nearest, ties away"};
inline constexpr InputRounding kInputRoundings[] = {InputRounding::kNone, InputRounding::kTruncate,
                                                    InputRounding::kNearestEven, InputRounding::kNearestAway};
inline float round_input(InputRounding rounding, float x) {
  constexpr uint32_t kLost = 13;
  constexpr uint32_t kHalf = 1u << (kLost - 1);
  constexpr uint32_t kMask = ~((1u << kLost) - 1);
  const auto bits = std::bit_cast<uint32_t>(x);
  switch (rounding) {
    case InputRounding::kNone:
      return x;
    case InputRounding::kTruncate:
      return std::bit_cast<float>(bits & kMask);
    case InputRounding::kNearestEven:
      return std::bit_cast<float>((bits + kHalf - 1 + ((bits >> kLost) & 1)) & kMask);
    case InputRounding::kNearestAway:
      return std::bit_cast<float>((bits + kHalf) & kMask);
  }
  return x;
}
// The one rounding that explains every output; "none of these" or "not told apart" where there is not exactly one.
inline std::string classify_input_rounding(const std::vector<float>& in, const std::vector<float>& out) {
  std::string found;
  if (in.size() != out.size()) return "none of these";
  for (const InputRounding rounding : kInputRoundings) {
    bool all = true;
    for (size_t i = 0; all && i < in.size(); ++i) {
      all = std::bit_cast<uint32_t>(round_input(rounding, in[i])) == std::bit_cast<uint32_t>(out[i]);
    }
    if (!all) continue;
    if (!found.empty()) return "not told apart";
    found = kInputRoundingNames[static_cast<size_t>(rounding)];
  }
  return found.empty() ? "none of these" : found;
}

// Round to nearest even, NaN kept: what sdcguard's finish kernel does.
inline uint16_t bf16_bits(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}

struct BitDifference {
  uint64_t entries = 0, differing = 0;
  uint32_t most_units = 0;  // largest distance in units of the last place
};
// Adds one matrix: the library's own BF16 entries and the FP32 ones of the same product, rounded here.
inline void add_difference(BitDifference& sum, const std::vector<uint16_t>& native, const std::vector<float>& fp32) {
  const auto ordered = [](uint16_t bits) {
    return (bits & 0x8000u) != 0 ? -static_cast<int32_t>(bits & 0x7FFFu) : static_cast<int32_t>(bits);
  };
  for (size_t i = 0; i < native.size(); ++i) {
    const uint16_t rounded = bf16_bits(fp32[i]);
    ++sum.entries;
    if (rounded == native[i]) continue;
    ++sum.differing;
    const auto units = static_cast<uint32_t>(std::abs(ordered(rounded) - ordered(native[i])));
    sum.most_units = units > sum.most_units ? units : sum.most_units;
  }
}

}  // namespace sdcguard::gpu

// SPDX-License-Identifier: MIT
// Order names and the scalar arithmetic of every accumulation order.
#include "order.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

namespace hostcuda::gemm {
namespace {

constexpr char kAllowed[] = "h100 a100 ada v100 b200 rounded16 sequential, or NAME/splitS with S from 1 to 64";
constexpr int kBlockProducts = 16;
constexpr int kMaxSplits = 64;

struct NamedOrder {
  std::string_view name;
  Rule rule;
  StepModel step;
  bool has_bf16;
};
// N and g of each device: tests/hostcuda/golden/README.md.
constexpr NamedOrder kOrders[] = {
    {"h100", Rule::kTensorCore, {16, 2}, true},      {"a100", Rule::kTensorCore, {8, 1}, true},
    {"ada", Rule::kTensorCore, {8, 1}, true},        {"v100", Rule::kTensorCore, {4, 0}, false},
    {"b200", Rule::kTensorCore, {16, 2}, true},      {"rounded16", Rule::kRounded16, {0, 0}, true},
    {"sequential", Rule::kSequential, {0, 0}, true},
};

struct FormatFacts {
  int fraction_bits;
  int min_exponent;
};
constexpr FormatFacts facts_of(Format format) {
  switch (format) {
    case Format::kBf16:
      return {7, -126};
    case Format::kFp16:
      return {10, -14};
    case Format::kTf32:
      return {10, -126};
  }
  return {10, -126};
}

// value = significand 2^(exponent - fraction_bits), significand without sign.
struct Split {
  uint32_t significand;
  int exponent;
};

Split split(uint32_t bits, const FormatFacts& facts) {
  const int field = static_cast<int>((bits >> 23) & 0xFF);
  uint32_t significand = bits & 0x7FFFFF;
  int exponent = -126;
  if (field != 0) {
    significand |= 0x800000;
    exponent = field - 127;
  }
  if (exponent < facts.min_exponent) {
    const int down = facts.min_exponent - exponent;
    significand = down < 24 ? significand >> down : 0;
    exponent = facts.min_exponent;
  }
  return {significand >> (23 - facts.fraction_bits), exponent};
}

bool is_nan(uint32_t bits) {
  return (bits & 0x7FFFFFFF) > 0x7F800000;
}
bool is_infinite(uint32_t bits) {
  return (bits & 0x7FFFFFFF) == 0x7F800000;
}
bool is_zero(uint32_t bits) {
  return (bits & 0x7FFFFFFF) == 0;
}

// The IEEE sum of products and c where at least one of them is not finite.
float nonfinite_sum(const float* a, const float* b, int64_t count, float c) {
  bool plus = false;
  bool minus = false;
  const auto see_infinity = [&](bool negative) { (negative ? minus : plus) = true; };
  const uint32_t c_bits = std::bit_cast<uint32_t>(c);
  if (is_nan(c_bits)) return std::bit_cast<float>(kCanonicalNan);
  if (is_infinite(c_bits)) see_infinity(c_bits >> 31);
  for (int64_t l = 0; l < count; ++l) {
    const uint32_t x = std::bit_cast<uint32_t>(a[l]);
    const uint32_t y = std::bit_cast<uint32_t>(b[l]);
    const bool infinite = is_infinite(x) || is_infinite(y);
    if (is_nan(x) || is_nan(y) || (infinite && (is_zero(x) || is_zero(y)))) return std::bit_cast<float>(kCanonicalNan);
    if (infinite) see_infinity((x ^ y) >> 31);
  }
  if (plus && minus) return std::bit_cast<float>(kCanonicalNan);
  return std::bit_cast<float>(minus ? 0xFF800000u : 0x7F800000u);
}

float round_if(Compute compute, float value) {
  return compute == Compute::kFp16 ? round_to_half(value) : value;
}

float rounded_block(const float* a, const float* b, int64_t count) {
  float sum = a[0] * b[0];
  for (int64_t l = 1; l < count; ++l) sum = std::fma(a[l], b[l], sum);
  return sum;
}

float replay_slice(const Order& order, Type type, Compute compute, const float* a, const float* b, int64_t begin,
                   int64_t end, const AccumulatorFault* fault) {
  const Format format = type == Type::kBf16 ? Format::kBf16 : Format::kFp16;
  const Rule rule = type == Type::kFp32 ? Rule::kSequential : order.rule;
  const int64_t step = type == Type::kFp32 ? 1 : step_products(order);
  float acc = 0.0f;
  for (int64_t l = begin; l < end; l += step) {
    const int64_t count = std::min(step, end - l);
    switch (rule) {
      case Rule::kTensorCore:
        acc = tensor_core_step(order.step, format, a + l, b + l, count, acc);
        break;
      case Rule::kRounded16:
        acc = acc + rounded_block(a + l, b + l, count);
        break;
      case Rule::kSequential:
        acc = std::fma(a[l], b[l], acc);
        break;
    }
    acc = round_if(compute, acc);
    if (fault != nullptr && fault->k_step >= l && fault->k_step < l + count) {
      acc = std::bit_cast<float>(std::bit_cast<uint32_t>(acc) ^ fault->flip);
    }
  }
  return acc;
}

}  // namespace

bool parse_order(std::string_view text, Order* order, std::string* error) {
  const size_t slash = text.find('/');
  const std::string_view base = text.substr(0, slash);
  int splits = 1;
  bool good = true;
  if (slash != std::string_view::npos) {
    const std::string_view rest = text.substr(slash + 1);
    good = rest.starts_with("split") && rest.size() > 5;
    if (good) {
      const char* last = rest.data() + rest.size();
      const auto result = std::from_chars(rest.data() + 5, last, splits);
      good = result.ec == std::errc() && result.ptr == last && splits >= 1 && splits <= kMaxSplits;
    }
  }
  const auto* found = std::find_if(std::begin(kOrders), std::end(kOrders),
                                   [&](const NamedOrder& candidate) { return candidate.name == base; });
  if (!good || found == std::end(kOrders)) {
    *error = "\"" + std::string(text) + "\" is not an accumulation order; allowed: " + kAllowed;
    return false;
  }
  *order = Order{std::string(text), found->rule, found->step, found->has_bf16, splits};
  return true;
}

int step_products(const Order& order) {
  switch (order.rule) {
    case Rule::kTensorCore:
      return order.step.products;
    case Rule::kRounded16:
      return kBlockProducts;
    case Rule::kSequential:
      return 1;
  }
  return 1;
}

int64_t slice_products(const Order& order, int64_t k) {
  if (order.splits <= 1) return k;
  const int64_t even = k / order.splits + (k % order.splits != 0 ? 1 : 0);
  return (even + kBlockProducts - 1) / kBlockProducts * kBlockProducts;
}

float tensor_core_step(const StepModel& model, Format format, const float* a, const float* b, int64_t count, float c) {
  const FormatFacts facts = facts_of(format);
  const FormatFacts single = {23, -126};
  const int fraction_bits = 23 + model.guard_bits;

  struct Term {
    int64_t significand;  // fraction_bits fraction bits, no sign
    int exponent;
    bool negative;
  };
  constexpr int kMaxTerms = 64;
  Term terms[kMaxTerms];
  int used = 0;
  int largest = -131 - model.guard_bits;
  for (int64_t l = 0; l < count; ++l) {
    const uint32_t x = std::bit_cast<uint32_t>(a[l]);
    const uint32_t y = std::bit_cast<uint32_t>(b[l]);
    if ((x & 0x7F800000) == 0x7F800000 || (y & 0x7F800000) == 0x7F800000) return nonfinite_sum(a, b, count, c);
    const Split sx = split(x, facts);
    const Split sy = split(y, facts);
    const int64_t product = static_cast<int64_t>(sx.significand) * sy.significand;
    if (product == 0) continue;
    const int exponent = sx.exponent + sy.exponent;
    largest = std::max(largest, exponent);
    terms[used++] = {product << (fraction_bits - 2 * facts.fraction_bits), exponent, ((x ^ y) >> 31) != 0};
  }
  const uint32_t c_bits = std::bit_cast<uint32_t>(c);
  if ((c_bits & 0x7F800000) == 0x7F800000) return nonfinite_sum(a, b, count, c);
  if (!is_zero(c_bits)) {
    const Split sc = split(c_bits, single);
    largest = std::max(largest, sc.exponent);
    terms[used++] = {static_cast<int64_t>(sc.significand) << model.guard_bits, sc.exponent, (c_bits >> 31) != 0};
  }

  int64_t sum = 0;
  for (int i = 0; i < used; ++i) {
    const int down = largest - terms[i].exponent;
    const int64_t aligned = down < 63 ? terms[i].significand >> down : 0;
    sum += terms[i].negative ? -aligned : aligned;
  }
  if (sum == 0) return 0.0f;

  const uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const uint64_t magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  const int unit = largest - fraction_bits;  // the sum's last bit is worth 2^unit
  const int top = 63 - std::countl_zero(magnitude);
  const int exponent = top + unit;
  if (exponent > 127) return std::bit_cast<float>(sign | 0x7F800000u);
  // Last bit of the result: 2^(exponent - 23), never below 2^-149.
  const int down = std::max(exponent - 23, -149) - unit;
  const uint64_t kept = down >= 0 ? magnitude >> std::min(down, 63) : magnitude << -down;
  const uint32_t field = exponent < -126 ? 0u : static_cast<uint32_t>(exponent + 127);
  return std::bit_cast<float>(sign | (field << 23) | (static_cast<uint32_t>(kept) & 0x7FFFFFu));
}

float tensor_core_chain(const StepModel& model, Format format, const float* a, const float* b, int64_t k, float c) {
  for (int64_t l = 0; l < k; l += model.products) {
    c = tensor_core_step(model, format, a + l, b + l, std::min<int64_t>(model.products, k - l), c);
  }
  return c;
}

float replay_entry(const Order& order, Type type, Compute compute, const float* a, const float* b, int64_t k,
                   const AccumulatorFault* fault) {
  if (k == 0) return 0.0f;
  const int64_t slice = type == Type::kFp32 ? k : slice_products(order, k);
  float total = 0.0f;
  for (int64_t begin = 0; begin < k; begin += slice) {
    const float part = replay_slice(order, type, compute, a, b, begin, std::min(k, begin + slice), fault);
    total = begin == 0 ? part : round_if(compute, total + part);
  }
  return std::isnan(total) ? std::bit_cast<float>(kCanonicalNan) : total;
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7FFF;
  if (magnitude >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x3FF) << 13));
  if (magnitude >= 0x0400) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

float round_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits & 0x80000000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return std::bit_cast<float>(kCanonicalNan);
  // 65520 is halfway between the largest FP16 and 2^16; ties go to even, which is 2^16 = Inf.
  if (magnitude >= 0x477FF000u) return std::bit_cast<float>(sign | 0x7F800000u);
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the unit is 2^-24: adding 0.5 puts that unit at the end of a float's significand.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    const float rounded = static_cast<float>(std::bit_cast<uint32_t>(shifted) - 0x3F000000u) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(rounded));
  }
  const uint32_t rounded = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u)) & ~0x1FFFu;
  return std::bit_cast<float>(sign | rounded);
}

}  // namespace hostcuda::gemm

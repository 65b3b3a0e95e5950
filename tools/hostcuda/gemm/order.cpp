// SPDX-License-Identifier: MIT
// Order names and the scalar arithmetic of every accumulation order.
#include "order.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <vector>

#include "matrix.h"

namespace hostcuda::gemm {
namespace {

constexpr char kAllowed[] =
    "h100 a100 ada v100 b200 rounded16 sequential, or NAME/splitS, NAME/splitSx16 or NAME/splitSx16always with S from "
    "1 to 64";
constexpr int kBlockProducts = 16;
constexpr int kMaxSplits = 64;
constexpr int64_t kPromotion = 128;

struct NamedOrder {
  std::string_view name;
  Rule rule;
  StepModel step;
  StepModel fp8_step;
  bool has_bf16;
  bool has_fp8;
  int compute_capability;
};
// N and g of each device: tests/hostcuda/golden/README.md.
constexpr NamedOrder kOrders[] = {
    {"h100", Rule::kTensorCore, {16, 2}, {32, -10}, true, true, 90},
    {"a100", Rule::kTensorCore, {8, 1}, {0, 0}, true, false, 80},
    {"ada", Rule::kTensorCore, {8, 1}, {16, -10}, true, true, 89},
    {"v100", Rule::kTensorCore, {4, 0}, {0, 0}, false, false, 70},
    {"b200", Rule::kTensorCore, {16, 2}, {32, 2, true}, true, true, 100},
    {"rounded16", Rule::kRounded16, {0, 0}, {0, 0}, true, true, 90},
    {"sequential", Rule::kSequential, {0, 0}, {0, 0}, true, true, 90},
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
    case Format::kE4m3:
      return {3, -6};
    case Format::kE5m2:
      return {2, -14};
  }
  return {10, -126};
}

Format format_of(Type type) {
  switch (type) {
    case Type::kBf16:
      return Format::kBf16;
    case Type::kE4m3:
    case Type::kE2m1:  // all its values are E4M3's, and no sum of a block loses a bit
      return Format::kE4m3;
    case Type::kE5m2:
      return Format::kE5m2;
    case Type::kFp32:
      return Format::kTf32;
    default:
      return Format::kFp16;
  }
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

// The sum of 2^unit integer and c, rounded to nearest: c keeps all its bits, what lies below the sum is sticky.
float add_to_nearest(int64_t integer, int unit, float c) {
  // Double holds both exactly; one that is rounded to odd before it is rounded to FP32 is rounded once.
  const double sum = std::ldexp(static_cast<double>(integer), unit);
  const double x = static_cast<double>(c);
  double total = sum + x;
  const double from_c = total - sum;
  const double lost = (sum - (total - from_c)) + (x - from_c);
  if (lost != 0 && (std::bit_cast<uint64_t>(total) & 1) == 0) {
    total = std::nextafter(total, lost > 0 ? INFINITY : -INFINITY);
  }
  return static_cast<float>(total);
}

float replay_slice(const Chain& chain, Compute compute, const float* a, const float* b, int64_t begin, int64_t end,
                   const AccumulatorFault* fault) {
  float acc = 0.0f;
  float promoted = 0.0f;
  for (int64_t l = begin; l < end; l += chain.step_products) {
    const int64_t count = std::min(chain.step_products, end - l);
    switch (chain.rule) {
      case Rule::kTensorCore:
        acc = tensor_core_step(chain.step, chain.formats, a + l, b + l, count, acc);
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
      acc = std::bit_cast<float>(std::bit_cast<uint32_t>(acc) ^ static_cast<uint32_t>(fault->flip));
    }
    if (chain.promotion != 0 && (l + count - begin) % chain.promotion == 0) {
      promoted = l + count - begin == chain.promotion ? acc : promoted + acc;
      acc = 0.0f;
    }
  }
  if (chain.promotion == 0 || end - begin < chain.promotion) return acc;
  return (end - begin) % chain.promotion == 0 ? promoted : promoted + acc;
}

}  // namespace

bool parse_order(std::string_view text, Order* order, std::string* error) {
  const size_t slash = text.find('/');
  const std::string_view base = text.substr(0, slash);
  int splits = 1;
  NarrowPartials narrow_partials = NarrowPartials::kNever;
  bool good = true;
  if (slash != std::string_view::npos) {
    std::string_view rest = text.substr(slash + 1);
    const size_t narrow = rest.find("x16");
    if (narrow != std::string_view::npos) {
      const std::string_view when = rest.substr(narrow + 3);
      narrow_partials = when.empty() ? NarrowPartials::kWhereAllowed : NarrowPartials::kAlways;
      good = when.empty() || when == "always";
      rest = rest.substr(0, narrow);
    }
    good = good && rest.starts_with("split") && rest.size() > 5;
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
  *order =
      Order{std::string(text),         found->rule, found->step,    found->fp8_step, found->has_bf16, found->has_fp8,
            found->compute_capability, splits,      narrow_partials};
  return true;
}

bool supports(const Order& order, Type a, Type b, Compute compute) {
  const auto both = [&](Type type) { return a == type && b == type; };
  switch (compute) {
    case Compute::kFp32:
      if (is_fp8(a) && is_fp8(b)) return order.has_fp8;
      if (both(Type::kE2m1)) return order.compute_capability >= 100;
      return both(Type::kFp32) || both(Type::kFp16) || (both(Type::kBf16) && order.has_bf16);
    case Compute::kFp8Fast:
      return is_fp8(a) && is_fp8(b) && order.has_fp8;
    case Compute::kTf32:
      return both(Type::kFp32) && order.has_bf16;
    case Compute::kFp16:
      return both(Type::kFp16);
    case Compute::kFp64:
      return both(Type::kFp64);
    case Compute::kInt32:
      return both(Type::kInt8);
  }
  return false;
}

Chain chain_of(const Order& order, Type a, Type b, Compute compute) {
  Chain chain{order.rule, order.step, Formats(format_of(a), format_of(b)), 1, 0, kBlockProducts};
  if (a == Type::kFp32 && compute != Compute::kTf32) {
    chain.rule = Rule::kSequential;
    chain.slice_unit = 0;
  }
  if (chain.rule == Rule::kRounded16) chain.step_products = kBlockProducts;
  if (chain.rule != Rule::kTensorCore) return chain;
  if (a == Type::kFp32) chain.step.products /= 2;
  if (is_narrow(a)) {
    chain.step = order.fp8_step;
    if (compute != Compute::kFp8Fast && !chain.step.adds_rounded) chain.promotion = kPromotion;
    chain.slice_unit = kPromotion;
  }
  chain.step_products = chain.step.products;
  return chain;
}

int64_t slice_products(const Order& order, const Chain& chain, int64_t k) {
  if (order.splits <= 1 || chain.slice_unit == 0) return k;
  const int64_t even = k / order.splits + (k % order.splits != 0 ? 1 : 0);
  return (even + chain.slice_unit - 1) / chain.slice_unit * chain.slice_unit;
}

float tensor_core_step(const StepModel& model, const Formats& formats, const float* a, const float* b, int64_t count,
                       float c) {
  const FormatFacts facts_a = facts_of(formats.a);
  const FormatFacts facts_b = facts_of(formats.b);
  const FormatFacts single = {23, -126};
  const int fraction_bits = 23 + model.guard_bits;

  struct Term {
    int64_t significand;  // fraction_bits fraction bits to come, no sign
    int up;               // left shift that gives it those (negative: right, truncating)
    int exponent;
    bool negative;
  };
  constexpr int kMaxTerms = 64;
  Term terms[kMaxTerms];
  int used = 0;
  int largest = -131 - std::max(model.guard_bits, 0);
  for (int64_t l = 0; l < count; ++l) {
    const uint32_t x = std::bit_cast<uint32_t>(a[l]);
    const uint32_t y = std::bit_cast<uint32_t>(b[l]);
    if ((x & 0x7F800000) == 0x7F800000 || (y & 0x7F800000) == 0x7F800000) return nonfinite_sum(a, b, count, c);
    const Split sx = split(x, facts_a);
    const Split sy = split(y, facts_b);
    const int64_t product = static_cast<int64_t>(sx.significand) * sy.significand;
    if (product == 0) continue;
    const int exponent = sx.exponent + sy.exponent;
    largest = std::max(largest, exponent);
    terms[used++] = {product, fraction_bits - facts_a.fraction_bits - facts_b.fraction_bits, exponent,
                     ((x ^ y) >> 31) != 0};
  }
  const uint32_t c_bits = std::bit_cast<uint32_t>(c);
  if ((c_bits & 0x7F800000) == 0x7F800000) return nonfinite_sum(a, b, count, c);
  if (!is_zero(c_bits) && !model.adds_rounded) {
    const Split sc = split(c_bits, single);
    largest = std::max(largest, sc.exponent);
    terms[used++] = {static_cast<int64_t>(sc.significand), model.guard_bits, sc.exponent, (c_bits >> 31) != 0};
  }

  int64_t sum = 0;
  for (int i = 0; i < used; ++i) {
    const int down = largest - terms[i].exponent - terms[i].up;
    const int64_t aligned = down < 0 ? terms[i].significand << -down : down < 63 ? terms[i].significand >> down : 0;
    sum += terms[i].negative ? -aligned : aligned;
  }
  const int unit = largest - fraction_bits;  // the sum's last bit is worth 2^unit
  if (model.adds_rounded) return add_to_nearest(sum, unit, c);
  if (sum == 0) return 0.0f;

  const uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const uint64_t magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  const int top = 63 - std::countl_zero(magnitude);
  const int exponent = top + unit;
  if (exponent > 127) return std::bit_cast<float>(sign | 0x7F800000u);
  // Last bit of the result: 2^(exponent - 23), never below 2^-149; then those that a short accumulator lacks.
  const int down = std::max(exponent - 23, -149) - unit;
  const uint64_t kept = down >= 0 ? magnitude >> std::min(down, 63) : magnitude << -down;
  const uint32_t field = exponent < -126 ? 0u : static_cast<uint32_t>(exponent + 127);
  const uint32_t missing = model.guard_bits < 0 ? (1u << -model.guard_bits) - 1 : 0u;
  return std::bit_cast<float>(sign | (field << 23) | (static_cast<uint32_t>(kept) & 0x7FFFFFu & ~missing));
}

float tensor_core_chain(const StepModel& model, const Formats& formats, const float* a, const float* b, int64_t k,
                        float c) {
  for (int64_t l = 0; l < k; l += model.products) {
    c = tensor_core_step(model, formats, a + l, b + l, std::min<int64_t>(model.products, k - l), c);
  }
  return c;
}

float replay_entry(const Order& order, Type type_a, Type type_b, Compute compute, const float* a, const float* b,
                   int64_t k, const AccumulatorFault* fault) {
  if (k == 0) return 0.0f;
  std::vector<float> cut;
  if (compute == Compute::kTf32) {
    cut.resize(static_cast<size_t>(2 * k));
    std::transform(a, a + k, cut.begin(), cut_to_tf32);
    std::transform(b, b + k, cut.begin() + k, cut_to_tf32);
    a = cut.data();
    b = cut.data() + k;
  }
  const Chain chain = chain_of(order, type_a, type_b, compute);
  const int64_t slice = slice_products(order, chain, k);
  float total = 0.0f;
  for (int64_t begin = 0; begin < k; begin += slice) {
    float part = replay_slice(chain, compute, a, b, begin, std::min(k, begin + slice), fault);
    if (narrows(order, type_a, slice < k)) part = narrowed(type_a, part);
    total = begin == 0 ? part : round_if(compute, total + part);
  }
  return std::isnan(total) ? std::bit_cast<float>(kCanonicalNan) : total;
}

float replay_entry_of(const Order& order, const Product& product, int64_t i, int64_t j, const float* a, const float* b,
                      const AccumulatorFault* fault) {
  const int64_t length = product.scales.length;
  if (length == 0) return replay_entry(order, product.a.type, product.b.type, product.compute, a, b, product.k, fault);
  Chain chain = chain_of(order, product.a.type, product.b.type, product.compute);
  chain.promotion = 0;
  float total = 0.0f;
  for (int64_t begin = 0; begin < product.k; begin += length) {
    const int64_t end = std::min(product.k, begin + length);
    const double part = static_cast<double>(replay_slice(chain, product.compute, a, b, begin, end, fault));
    total = static_cast<float>(std::fma(part, scale_at(product, i, j, begin), static_cast<double>(total)));
  }
  return std::isnan(total) ? std::bit_cast<float>(kCanonicalNan) : total;
}

double replay_entry64(const double* a, const double* b, int64_t k, const AccumulatorFault* fault) {
  double acc = 0.0;
  for (int64_t l = 0; l < k; ++l) {
    acc = std::fma(a[l], b[l], acc);
    if (fault != nullptr && fault->k_step == l) {
      acc = std::bit_cast<double>(std::bit_cast<uint64_t>(acc) ^ fault->flip);
    }
  }
  return std::isnan(acc) ? std::bit_cast<double>(kCanonicalNan64) : acc;
}

int32_t replay_entry_int(const int32_t* a, const int32_t* b, int64_t k, const AccumulatorFault* fault) {
  uint32_t acc = 0;
  for (int64_t l = 0; l < k; ++l) {
    acc += static_cast<uint32_t>(a[l] * b[l]);
    if (fault != nullptr && fault->k_step == l) acc ^= static_cast<uint32_t>(fault->flip);
  }
  return static_cast<int32_t>(acc);
}

float cut_to_tf32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>(is_nan(bits) ? kCanonicalNan : bits & 0xFFFFE000u);
}

float e4m3_to_float(uint8_t bits) {
  if ((bits & 0x7F) == 0x7F) return std::bit_cast<float>(kCanonicalNan);
  const int field = (bits >> 3) & 0xF;
  const int fraction = bits & 0x7;
  const float magnitude = field == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                     : std::ldexp(static_cast<float>(8 + fraction), field - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

float e5m2_to_float(uint8_t bits) {
  const float value = half_to_float(static_cast<uint16_t>(bits << 8));
  return std::isnan(value) ? std::bit_cast<float>(kCanonicalNan) : value;
}

float e2m1_to_float(uint8_t bits) {
  constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitudes[bits & 7];
  return (bits & 8) != 0 ? -magnitude : magnitude;
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7FFF;
  if (magnitude >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x3FF) << 13));
  if (magnitude >= 0x0400) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

bool narrows(const Order& order, Type type, bool sliced) {
  return order.narrow_partials != NarrowPartials::kNever && sliced && (type == Type::kFp16 || type == Type::kBf16);
}

float narrowed(Type type, float value) {
  if (type == Type::kFp16) return round_to_half(value);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) >= 0x7F800000u) return value;
  return std::bit_cast<float>((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u);
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

// SPDX-License-Identifier: MIT
// Injection: which entries of a finished product a fault plan changes, how, and what the log says about them.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <map>
#include <unordered_map>

#include "bound.h"
#include "faults.h"
#include "matrix.h"

namespace hostcuda::gemm {
namespace {

std::atomic<uint64_t> log_sequence{0};

// splitmix64: a stream of its own for each (seed, device, product).
class Draws {
 public:
  Draws(uint64_t seed, int32_t device, uint64_t index) : state_(seed) {
    state_ = next() + static_cast<uint64_t>(static_cast<uint32_t>(device));
    state_ = next() + index;
    next();
  }
  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
  // Uniform in [0, count), by the high half of a 128-bit product.
  int64_t below(int64_t count) {
    return static_cast<int64_t>((static_cast<__uint128_t>(next()) * static_cast<uint64_t>(count)) >> 64);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool coin() { return (next() >> 63) != 0; }

 private:
  uint64_t state_;
};

std::string uuid_text(const uint8_t (&uuid)[16]) {
  char text[41];
  std::snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", uuid[0],
                uuid[1], uuid[2], uuid[3], uuid[4], uuid[5], uuid[6], uuid[7], uuid[8], uuid[9], uuid[10], uuid[11],
                uuid[12], uuid[13], uuid[14], uuid[15]);
  return text;
}

bool same_uuid(const std::string& wanted, const std::string& have) {
  return std::equal(wanted.begin(), wanted.end(), have.begin(), have.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

std::string number_text(double value, int digits) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string bits_text(uint64_t bits, int width) {
  char text[24];
  std::snprintf(text, sizeof text, "\"0x%0*llx\"", width / 4, static_cast<unsigned long long>(bits));
  return text;
}

// The sums of one product as bit patterns of their type.
struct Sums {
  Type type;

  int width() const { return type == Type::kFp64 ? 64 : 32; }
  bool floating() const { return type != Type::kInt32; }

  uint64_t load(const void* sums, int64_t i) const {
    return type == Type::kFp64 ? static_cast<const uint64_t*>(sums)[i] : static_cast<const uint32_t*>(sums)[i];
  }
  void store(void* sums, int64_t i, uint64_t bits) const {
    if (type == Type::kFp64) {
      static_cast<uint64_t*>(sums)[i] = bits;
    } else {
      static_cast<uint32_t*>(sums)[i] = static_cast<uint32_t>(bits);
    }
  }
  double value(uint64_t bits) const {
    if (type == Type::kFp64) return std::bit_cast<double>(bits);
    const auto low = static_cast<uint32_t>(bits);
    return type == Type::kInt32 ? static_cast<double>(static_cast<int32_t>(low))
                                : static_cast<double>(std::bit_cast<float>(low));
  }
  // Nearest pattern; integers modulo 2^32.
  uint64_t bits(double value) const {
    if (type == Type::kFp64) return std::bit_cast<uint64_t>(value);
    if (type == Type::kFp32) return std::bit_cast<uint32_t>(static_cast<float>(value));
    return static_cast<uint32_t>(static_cast<int64_t>(std::llrint(std::clamp(value, -0x1p62, 0x1p62))));
  }
  uint64_t canonical_nan() const { return type == Type::kFp64 ? kCanonicalNan64 : kCanonicalNan; }
  int digits() const { return type == Type::kFp64 ? 17 : type == Type::kInt32 ? 10 : 9; }
};

struct Place {
  int64_t entry, row, col;
  bool operator==(const Place&) const = default;
};
struct PlaceHash {
  size_t operator()(const Place& place) const {
    uint64_t x = static_cast<uint64_t>(place.entry) * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(place.row);
    x = x * 0xBF58476D1CE4E5B9u + static_cast<uint64_t>(place.col);
    return static_cast<size_t>(x ^ (x >> 29));
  }
};

// One product under injection.
class Injection {
 public:
  Injection(const Order& order, const Product& product, FaultLog* log, std::vector<Skipped>* skipped)
      : order_(order),
        product_(product),
        sums_{sum_type(product.compute)},
        uuid_(uuid_text(product.uuid)),
        log_(log),
        skipped_(skipped) {}

  void apply(const FaultRule& rule, size_t number) {
    Draws draws(rule.seed, product_.device, product_.index);
    if (!matches(rule) || draws.unit() >= rule.probability) return;
    rule_ = &rule;
    number_ = number;
    switch (rule.kind) {
      case FaultKind::kStuck:
        stuck();
        break;
      case FaultKind::kOnePerColumn:
      case FaultKind::kOnePerRow:
      case FaultKind::kAll:
        wide(draws, 0);
        break;
      default:
        for (int64_t i = 0; i < rule.count; ++i) {
          if (!one(draws)) break;
        }
        break;
    }
  }

  uint64_t touched() const { return touched_; }

 private:
  bool matches(const FaultRule& rule) const {
    const int64_t index = static_cast<int64_t>(product_.index);
    if (rule.device.has_value() && *rule.device != product_.device) return false;
    if (!rule.uuid.empty() && !same_uuid(rule.uuid, uuid_)) return false;
    if (!rule.product_list.empty() &&
        std::find(rule.product_list.begin(), rule.product_list.end(), index) == rule.product_list.end()) {
      return false;
    }
    if (!rule.products.contains(index) || index % rule.every != rule.offset) return false;
    if (!rule.type.empty() && rule.type != operand_name(product_, product_.a)) return false;
    return rule.m.contains(product_.m) && rule.n.contains(product_.n) && rule.k.contains(product_.k) &&
           rule.batch.contains(product_.batch);
  }

  int64_t index_of(const Place& place) const {
    return place.entry * product_.out_stride + place.row + place.col * product_.out_ld;
  }
  uint64_t at(const Place& place) const { return sums_.load(product_.out, index_of(place)); }

  // The pattern that the product had before any fault.
  uint64_t clean_at(const Place& place) const {
    const auto found = clean_.find(place);
    return found == clean_.end() ? at(place) : found->second;
  }

  static int64_t chosen(const std::optional<int64_t>& fixed, int64_t count, Draws& draws) {
    return fixed.has_value() ? *fixed : draws.below(count);
  }

  // A place for one fault of the rule. False: an explicit coordinate lies outside, or all that are left are taken.
  bool place(Draws& draws, Place* place) const {
    if ((rule_->row.has_value() && *rule_->row >= product_.m) ||
        (rule_->col.has_value() && *rule_->col >= product_.n) ||
        (rule_->entry.has_value() && *rule_->entry >= product_.batch)) {
      return false;
    }
    constexpr int kTries = 64;  // a random place that is still whole; a product so full that none is found is done
    const bool fixed = rule_->row.has_value() && rule_->col.has_value() && (rule_->entry || product_.batch == 1);
    for (int i = 0; i < kTries; ++i) {
      *place = {chosen(rule_->entry, product_.batch, draws), chosen(rule_->row, product_.m, draws),
                chosen(rule_->col, product_.n, draws)};
      if (fixed || !clean_.contains(*place)) return true;
    }
    return false;
  }

  bool one(Draws& draws) {
    Place where{};
    if (!place(draws, &where)) return false;
    switch (rule_->kind) {
      case FaultKind::kOutput: {
        const uint64_t flip = flips(draws);
        if (flip == 0) return false;
        change(where, at(where) ^ flip, -1, flip);
        break;
      }
      case FaultKind::kAccumulator:
        return accumulator(draws, where);
      case FaultKind::kWord:
        return word(where);
      case FaultKind::kNan:
        if (!sums_.floating()) return false;
        change(where, sums_.canonical_nan(), -1, 0);
        break;
      case FaultKind::kInf: {
        const bool negative = draws.coin();
        if (!sums_.floating()) return false;
        change(where, sums_.bits(negative ? -INFINITY : INFINITY), -1, 0);
        break;
      }
      case FaultKind::kTile:
        tile(draws, where);
        break;
      case FaultKind::kSkip:
        skip(where);
        break;
      case FaultKind::kColumn:
      case FaultKind::kRow:
        wide(draws, rule_->kind == FaultKind::kColumn ? where.col : where.row);
        break;
      case FaultKind::kPair:
        return pair(draws, where);
      default:
        return false;
    }
    return true;
  }

  // Bits to flip; 0 where the sums have too few of the rule's.
  uint64_t flips(Draws& draws) const {
    std::vector<int> left;
    for (const int bit : rule_->bits.empty() ? default_bits(sums_.type) : rule_->bits) {
      if (bit < sums_.width()) left.push_back(bit);
    }
    uint64_t mask = 0;
    if (static_cast<int64_t>(left.size()) < rule_->flips) return mask;
    for (int i = 0; i < rule_->flips; ++i) {
      const int64_t pick = draws.below(static_cast<int64_t>(left.size()));
      mask |= uint64_t{1} << left[static_cast<size_t>(pick)];
      left.erase(left.begin() + pick);
    }
    return mask;
  }

  bool word(const Place& where) {
    if (rule_->word_width == 0) {
      change(where, sums_.bits(rule_->word_value), -1, 0);
    } else if (rule_->word_width == sums_.width()) {
      change(where, rule_->word_bits, -1, 0);
    } else {
      return false;
    }
    return true;
  }

  bool accumulator(Draws& draws, const Place& where) {
    if (product_.k == 0 || rule_->k_step.value_or(0) >= product_.k) return false;
    const int64_t k_step = chosen(rule_->k_step, product_.k, draws);
    const AccumulatorFault fault{k_step, flips(draws)};
    if (fault.flip == 0) return false;
    change(where, replayed(where, fault), fault.k_step, fault.flip);
    return true;
  }

  uint64_t replayed(const Place& where, const AccumulatorFault& fault) const {
    const View a = view_of(product_.a, where.entry);
    const View b = view_of(product_.b, where.entry);
    const auto values = [&]<typename Value>(Value) {
      std::pair<std::vector<Value>, std::vector<Value>> operands;
      for (int64_t l = 0; l < product_.k; ++l) {
        operands.first.push_back(static_cast<Value>(a.at64(where.row, l)));
        operands.second.push_back(static_cast<Value>(b.at64(l, where.col)));
      }
      return operands;
    };
    switch (sums_.type) {
      case Type::kFp64: {
        const auto [x, y] = values(double{});
        return std::bit_cast<uint64_t>(replay_entry64(x.data(), y.data(), product_.k, &fault));
      }
      case Type::kInt32: {
        const auto [x, y] = values(int32_t{});
        return static_cast<uint32_t>(replay_entry_int(x.data(), y.data(), product_.k, &fault));
      }
      default: {
        const auto [x, y] = values(float{});
        return std::bit_cast<uint32_t>(
            replay_entry_of(order_, product_, where.row, where.col, x.data(), y.data(), &fault));
      }
    }
  }

  void stuck() {
    if (rule_->bits.front() >= sums_.width()) return;
    const uint64_t mask = uint64_t{1} << rule_->bits.front();
    for (int64_t entry = 0; entry < product_.batch; ++entry) {
      for (int64_t col = rule_->line_col; col < product_.n; col += 8) {
        for (int64_t row = rule_->line_row; row < product_.m; row += 16) {
          const Place where{entry, row, col};
          const uint64_t bits = at(where);
          change(where, rule_->stuck_value ? bits | mask : bits & ~mask, -1, mask);
        }
      }
    }
  }

  // E: given, or a multiple of the clean root mean square of the batch entry.
  double magnitude(int64_t entry) {
    if (rule_->delta.has_value()) return *rule_->delta;
    const auto found = rms_.find(entry);
    if (found != rms_.end()) return rule_->scale * found->second;
    double sum = 0;
    double count = 0;
    for (int64_t col = 0; col < product_.n; ++col) {
      for (int64_t row = 0; row < product_.m; ++row) {
        const double value = sums_.value(clean_at({entry, row, col}));
        if (!std::isfinite(value)) continue;
        sum += value * value;
        count += 1;
      }
    }
    const double rms = sum > 0 ? std::sqrt(sum / count) : 1.0;
    rms_[entry] = rms;
    return rule_->scale * rms;
  }

  // Integer sums change by at least 1.
  void add(const Place& where, double amount) {
    if (!sums_.floating() && std::fabs(amount) < 1) amount = std::copysign(1.0, amount);
    change(where, sums_.bits(sums_.value(at(where)) + amount), -1, 0);
  }

  double signed_amount(Draws& draws, double amount) const {
    return rule_->sign == FaultRule::Sign::kRandom && draws.coin() ? -amount : amount;
  }

  void tile(Draws& draws, const Place& where) {
    const double amount = magnitude(where.entry);
    for (int64_t col = where.col; col < std::min(product_.n, where.col + rule_->cols); ++col) {
      for (int64_t row = where.row; row < std::min(product_.m, where.row + rule_->rows); ++row) {
        const double share = 0.5 + 0.5 * draws.unit();
        add({where.entry, row, col}, draws.coin() ? -amount * share : amount * share);
      }
    }
  }

  void skip(const Place& where) {
    const int64_t rows = std::min(rule_->rows, product_.m - where.row);
    const int64_t cols = std::min(rule_->cols, product_.n - where.col);
    skipped_->push_back({where.entry, where.row, where.col, rows, cols});
    for (int64_t col = where.col; col < where.col + cols; ++col) {
      for (int64_t row = where.row; row < where.row + rows; ++row) {
        const Place missing{where.entry, row, col};
        clean_.try_emplace(missing, at(missing));
        record(missing, nullptr, -1, 0);
      }
    }
  }

  void worsen(const Place& where, Draws& draws, double amount) {
    if (rule_->factor) {
      change(where, sums_.bits(sums_.value(at(where)) * *rule_->factor), -1, 0);
    } else {
      add(where, signed_amount(draws, amount));
    }
  }

  void wide(Draws& draws, int64_t line) {
    const int64_t entry = chosen(rule_->entry, product_.batch, draws);
    if (entry >= product_.batch) return;
    const double amount = rule_->factor ? 0 : magnitude(entry);
    switch (rule_->kind) {
      case FaultKind::kColumn:
        for (int64_t row = 0; row < product_.m; ++row) worsen({entry, row, line}, draws, amount);
        break;
      case FaultKind::kRow:
        for (int64_t col = 0; col < product_.n; ++col) worsen({entry, line, col}, draws, amount);
        break;
      case FaultKind::kOnePerColumn:
        for (int64_t col = 0; col < product_.n; ++col) {
          const int64_t row = draws.below(product_.m);
          worsen({entry, row, col}, draws, amount);
        }
        break;
      case FaultKind::kOnePerRow:
        for (int64_t row = 0; row < product_.m; ++row) {
          const int64_t col = draws.below(product_.n);
          worsen({entry, row, col}, draws, amount);
        }
        break;
      default:
        for (int64_t col = 0; col < product_.n; ++col) {
          for (int64_t row = 0; row < product_.m; ++row) worsen({entry, row, col}, draws, amount);
        }
        break;
    }
  }

  bool pair(Draws& draws, const Place& where) {
    if (product_.m < 2 || rule_->row2.value_or(0) >= product_.m) return false;
    Place other = where;
    other.row = rule_->row2.has_value() ? *rule_->row2 : draws.below(product_.m - 1);
    if (!rule_->row2.has_value() && other.row >= where.row) ++other.row;
    if (other.row == where.row) return false;
    const double amount = magnitude(where.entry);
    const bool opposite = rule_->sign == FaultRule::Sign::kOpposite;
    add(where, signed_amount(draws, amount));
    add(other, opposite ? -amount : signed_amount(draws, amount));
    return true;
  }

  void change(const Place& where, uint64_t bits, int64_t k_step, uint64_t mask) {
    clean_.try_emplace(where, at(where));
    sums_.store(product_.out, index_of(where), bits);
    record(where, &bits, k_step, mask);
  }

  double bound(const Place& where) {
    const auto key = std::make_pair(where.entry, where.col);
    auto found = bounds_.find(key);
    if (found == bounds_.end()) {
      std::vector<double> line(static_cast<size_t>(product_.m));
      for (int64_t row = 0; row < product_.m; ++row) {
        line[static_cast<size_t>(row)] = sums_.value(clean_at({where.entry, row, where.col}));
      }
      found = bounds_.emplace(key, entry_bounds(order_, product_, where.entry, where.col, line)).first;
    }
    return found->second[static_cast<size_t>(where.row)];
  }

  // faulty: null for an entry that was not written.
  void record(const Place& where, const uint64_t* faulty, int64_t k_step, uint64_t mask) {
    ++touched_;
    if (log_ == nullptr) return;
    const uint64_t clean_bits = clean_at(where);
    const double clean = sums_.value(clean_bits);
    const double tau = bound(where);
    std::string bits = "[";
    for (int bit = 0; bit < sums_.width(); ++bit) {
      if ((mask >> bit & 1u) != 0) bits += (bits.size() > 1 ? "," : "") + std::to_string(bit);
    }
    bits += "]";
    std::string line =
        "{\"seq\":" + std::to_string(log_sequence.fetch_add(1)) + ",\"device\":" + std::to_string(product_.device) +
        ",\"uuid\":\"" + uuid_ + "\",\"product\":" + std::to_string(product_.index) +
        ",\"stream\":" + std::to_string(product_.stream) + ",\"m\":" + std::to_string(product_.m) +
        ",\"n\":" + std::to_string(product_.n) + ",\"k\":" + std::to_string(product_.k) +
        ",\"batch\":" + std::to_string(where.entry) + ",\"type_a\":\"" + operand_name(product_, product_.a) +
        "\",\"type_b\":\"" + operand_name(product_, product_.b) + "\",\"compute\":\"" + compute_name(product_.compute) +
        "\",\"order\":\"" + order_.name + "\",\"fault\":" + std::to_string(number_) + ",\"kind\":\"" +
        fault_kind_name(rule_->kind) + "\",\"row\":" + std::to_string(where.row) +
        ",\"col\":" + std::to_string(where.col) + ",\"k_step\":" + (k_step < 0 ? "null" : std::to_string(k_step)) +
        ",\"bits\":" + bits + ",\"clean\":" + number_text(clean, sums_.digits()) +
        ",\"clean_bits\":" + bits_text(clean_bits, sums_.width());
    if (faulty == nullptr) {
      line += ",\"faulty\":null,\"faulty_bits\":null,\"bound\":" + number_text(tau, 9) +
              ",\"above_bound\":null,\"effect\":null}\n";
    } else {
      const double value = sums_.value(*faulty);
      const double difference = std::fabs(value - clean);
      const bool effect = *faulty != clean_bits;
      const bool above = effect && !(difference <= tau);
      line += ",\"faulty\":" + number_text(value, sums_.digits()) +
              ",\"faulty_bits\":" + bits_text(*faulty, sums_.width()) + ",\"bound\":" + number_text(tau, 9) +
              ",\"above_bound\":" + (above ? "true" : "false") + ",\"effect\":" + (effect ? "true" : "false") + "}\n";
    }
    log_->write(line);
  }

  const Order& order_;
  const Product& product_;
  const Sums sums_;
  const std::string uuid_;
  FaultLog* const log_;
  std::vector<Skipped>* const skipped_;
  const FaultRule* rule_ = nullptr;
  size_t number_ = 0;
  uint64_t touched_ = 0;
  std::unordered_map<Place, uint64_t, PlaceHash> clean_;
  std::map<int64_t, double> rms_;
  std::map<std::pair<int64_t, int64_t>, std::vector<double>> bounds_;
};

}  // namespace

const char* operand_name(const Product& product, const Operand& operand) {
  switch (operand.type) {
    case Type::kFp32:
      return product.compute == Compute::kTf32 ? "tf32" : "fp32";
    case Type::kFp16:
      return "fp16";
    case Type::kBf16:
      return "bf16";
    case Type::kFp64:
      return "fp64";
    case Type::kE4m3:
      return "e4m3";
    case Type::kE5m2:
      return "e5m2";
    case Type::kInt8:
      return "int8";
    case Type::kInt32:
      return "int32";
    case Type::kE2m1:
      return "e2m1";
  }
  return "unknown";
}

const char* compute_name(Compute compute) {
  switch (compute) {
    case Compute::kFp32:
      return "fp32";
    case Compute::kFp16:
      return "fp16";
    case Compute::kFp64:
      return "fp64";
    case Compute::kInt32:
      return "int32";
    case Compute::kTf32:
      return "tf32";
    case Compute::kFp8Fast:
      return "fp8_fast";
  }
  return "unknown";
}

std::vector<int> default_bits(Type sums) {
  const bool wide = sums == Type::kFp64;
  std::vector<int> bits;
  for (int bit = wide ? 49 : 20; bit <= (wide ? 62 : 30); ++bit) bits.push_back(bit);
  return bits;
}

uint64_t inject_faults(const FaultPlan& plan, const Order& order, const Product& product, FaultLog* log,
                       std::vector<Skipped>* skipped) {
  Injection injection(order, product, log, skipped);
  for (size_t i = 0; i < plan.rules.size(); ++i) injection.apply(plan.rules[i], i);
  return injection.touched();
}

}  // namespace hostcuda::gemm

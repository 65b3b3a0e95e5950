// SPDX-License-Identifier: MIT
// Reading of the fault plan: TOML in, rules out, one clear line for whatever is wrong.
#include "faults.h"

#include <toml++/toml.h>
#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace hostcuda::gemm {
namespace {

constexpr uint32_t bit_of(FaultKind kind) {
  return 1u << static_cast<int>(kind);
}
constexpr uint32_t kEvery = (1u << 14) - 1;
constexpr int64_t kHighestBit = 63;

struct KindName {
  const char* name;
  FaultKind kind;
};
constexpr KindName kKinds[] = {
    {"output", FaultKind::kOutput},
    {"accumulator", FaultKind::kAccumulator},
    {"stuck", FaultKind::kStuck},
    {"word", FaultKind::kWord},
    {"tile", FaultKind::kTile},
    {"nan", FaultKind::kNan},
    {"inf", FaultKind::kInf},
    {"skip", FaultKind::kSkip},
    {"column", FaultKind::kColumn},
    {"row", FaultKind::kRow},
    {"one_per_column", FaultKind::kOnePerColumn},
    {"one_per_row", FaultKind::kOnePerRow},
    {"all", FaultKind::kAll},
    {"pair", FaultKind::kPair},
};
constexpr uint32_t kFlipping = bit_of(FaultKind::kOutput) | bit_of(FaultKind::kAccumulator);
constexpr uint32_t kWide = bit_of(FaultKind::kColumn) | bit_of(FaultKind::kRow) | bit_of(FaultKind::kOnePerColumn) |
                           bit_of(FaultKind::kOnePerRow) | bit_of(FaultKind::kAll);
constexpr uint32_t kStuck = bit_of(FaultKind::kStuck);
constexpr uint32_t kRectangle = bit_of(FaultKind::kTile) | bit_of(FaultKind::kSkip);
constexpr uint32_t kPair = bit_of(FaultKind::kPair);
constexpr uint32_t kPlaced = kEvery & ~kStuck & ~(kWide & ~bit_of(FaultKind::kColumn) & ~bit_of(FaultKind::kRow));

// Which kinds a key means something for.
struct KeyFacts {
  const char* name;
  uint32_t kinds;
};
constexpr KeyFacts kKeys[] = {
    {"kind", kEvery},
    {"device", kEvery},
    {"products", kEvery},
    {"every", kEvery},
    {"offset", kEvery},
    {"probability", kEvery},
    {"m", kEvery},
    {"n", kEvery},
    {"k", kEvery},
    {"batch", kEvery},
    {"type", kEvery},
    {"seed", kEvery},
    {"count", kPlaced},
    {"row", kPlaced & ~bit_of(FaultKind::kColumn)},
    {"entry", kEvery & ~kStuck},
    {"col", kPlaced & ~bit_of(FaultKind::kRow)},
    {"bits", kFlipping | kStuck},
    {"flips", kFlipping},
    {"k_step", bit_of(FaultKind::kAccumulator)},
    {"value", kStuck | bit_of(FaultKind::kWord)},
    {"line_row", kStuck},
    {"line_col", kStuck},
    {"rows", kRectangle},
    {"cols", kRectangle},
    {"factor", kWide},
    {"delta", kWide | kPair | bit_of(FaultKind::kTile)},
    {"scale", kWide | kPair | bit_of(FaultKind::kTile)},
    {"sign", kWide | kPair},
    {"row2", kPair},
};

std::string allowed_keys(FaultKind kind) {
  std::string list;
  for (const KeyFacts& key : kKeys) {
    if ((key.kinds & bit_of(kind)) != 0) list += (list.empty() ? "" : " ") + std::string(key.name);
  }
  return list;
}

std::string allowed_kinds() {
  std::string list;
  for (const KindName& kind : kKinds) list += (list.empty() ? "" : " ") + std::string(kind.name);
  return list;
}

bool whole_number(std::string_view text, int64_t* value) {
  const char* last = text.data() + text.size();
  const auto result = std::from_chars(text.data(), last, *value);
  return result.ec == std::errc() && result.ptr == last;
}

// "lo..hi"
bool parse_span(std::string_view text, IntegerRange* range) {
  const size_t dots = text.find("..");
  return dots != std::string_view::npos && whole_number(text.substr(0, dots), &range->low) &&
         whole_number(text.substr(dots + 2), &range->high) && range->low <= range->high;
}

bool parse_inequality(std::string_view text, IntegerRange* range) {
  int64_t value = 0;
  if (text.starts_with("<=") && whole_number(text.substr(2), &value)) {
    range->high = value;
  } else if (text.starts_with(">=") && whole_number(text.substr(2), &value)) {
    range->low = value;
  } else if (text.starts_with("<") && whole_number(text.substr(1), &value)) {
    range->high = value - 1;
  } else if (text.starts_with(">") && whole_number(text.substr(1), &value)) {
    range->low = value + 1;
  } else {
    return false;
  }
  return true;
}

uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// One [[fault]] table. The first thing that is wrong is kept in error_; later reads then do nothing.
class RuleReader {
 public:
  RuleReader(const std::string& name, const toml::table& table) : name_(name), table_(table) {}

  bool read(FaultRule* rule, std::string* error) {
    read_kind(rule);
    if (error_.empty()) check_keys(rule->kind);
    if (error_.empty()) read_conditions(rule);
    if (error_.empty()) read_places(rule);
    if (error_.empty()) read_damage(rule);
    *error = error_;
    return error_.empty();
  }

 private:
  void fail(std::string_view key, const toml::node& node, const std::string& allowed) {
    if (!error_.empty()) return;
    std::ostringstream text;
    text << name_ << ":" << node.source().begin.line << ": " << key;
    if (node.is_string()) {
      text << " = \"" << node.as_string()->get() << "\"";
    } else if (node.is_integer()) {
      text << " = " << node.as_integer()->get();
    } else if (node.is_floating_point()) {
      text << " = " << node.as_floating_point()->get();
    }
    text << ": allowed: " << allowed;
    error_ = text.str();
  }

  const toml::node* find(std::string_view key) const { return table_.get(key); }

  void read_kind(FaultRule* rule) {
    const toml::node* node = find("kind");
    if (node == nullptr) {
      fail("kind is missing", table_, allowed_kinds());
      return;
    }
    const std::string text = node->is_string() ? node->as_string()->get() : std::string();
    const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                     [&](const KindName& candidate) { return text == candidate.name; });
    if (found == std::end(kKinds)) {
      fail("kind", *node, allowed_kinds());
    } else {
      rule->kind = found->kind;
    }
  }

  void check_keys(FaultKind kind) {
    for (const auto& [key, node] : table_) {
      const auto* facts = std::find_if(std::begin(kKeys), std::end(kKeys),
                                       [&](const KeyFacts& candidate) { return key.str() == candidate.name; });
      if (facts == std::end(kKeys) || (facts->kinds & bit_of(kind)) == 0) {
        const std::string what = facts == std::end(kKeys) ? "unknown key " : "no key of this kind: ";
        fail(what + std::string(key.str()), node,
             "for kind \"" + std::string(fault_kind_name(kind)) + "\" " + allowed_keys(kind));
        return;
      }
    }
  }

  template <typename T>
  bool integer(std::string_view key, int64_t low, int64_t high, T* value) {
    const toml::node* node = find(key);
    if (node == nullptr) return false;
    if (!node->is_integer() || node->as_integer()->get() < low || node->as_integer()->get() > high) {
      fail(key, *node,
           high == INT64_MAX ? "a whole number from " + std::to_string(low) + " on"
                             : "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
      return false;
    }
    *value = static_cast<T>(node->as_integer()->get());
    return true;
  }

  void position(std::string_view key, std::optional<int64_t>* value) {
    int64_t read = 0;
    if (integer(key, 0, INT64_MAX, &read)) *value = read;
  }

  bool number(std::string_view key, const std::string& allowed, double* value) {
    const toml::node* node = find(key);
    if (node == nullptr) return false;
    if (node->is_integer()) {
      *value = static_cast<double>(node->as_integer()->get());
    } else if (node->is_floating_point()) {
      *value = node->as_floating_point()->get();
    } else {
      fail(key, *node, allowed);
      return false;
    }
    return true;
  }

  void shape(std::string_view key, IntegerRange* range) {
    const toml::node* node = find(key);
    if (node == nullptr) return;
    if (node->is_integer() && node->as_integer()->get() >= 0) {
      range->low = range->high = node->as_integer()->get();
    } else if (!node->is_string() ||
               !(parse_span(node->as_string()->get(), range) || parse_inequality(node->as_string()->get(), range))) {
      fail(key, *node, "N, \"lo..hi\", \"<N\", \"<=N\", \">N\", \">=N\"");
    }
  }

  void read_conditions(FaultRule* rule) {
    if (const toml::node* node = find("device"); node != nullptr) {
      if (node->is_integer() && node->as_integer()->get() >= 0) {
        rule->device = node->as_integer()->get();
      } else if (node->is_string() && looks_like_uuid(node->as_string()->get())) {
        rule->uuid = node->as_string()->get();
        std::transform(rule->uuid.begin(), rule->uuid.end(), rule->uuid.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      } else {
        fail("device", *node, "an ordinal from 0, or a UUID \"GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx\"");
      }
    }
    if (const toml::node* node = find("products"); node != nullptr) read_products(*node, rule);
    integer("every", 1, INT64_MAX, &rule->every);
    integer("offset", 0, rule->every - 1, &rule->offset);
    if (number("probability", "a number from 0 to 1", &rule->probability) &&
        !(rule->probability >= 0 && rule->probability <= 1)) {
      fail("probability", *find("probability"), "a number from 0 to 1");
    }
    shape("m", &rule->m);
    shape("n", &rule->n);
    shape("k", &rule->k);
    shape("batch", &rule->batch);
    if (const toml::node* node = find("type"); node != nullptr) {
      const std::string text = node->is_string() ? node->as_string()->get() : std::string();
      const auto* known = std::find(std::begin(kOperandNames), std::end(kOperandNames), text);
      if (known == std::end(kOperandNames)) {
        std::string allowed;
        for (const char* name : kOperandNames) allowed += (allowed.empty() ? "" : " ") + std::string(name);
        fail("type", *node, allowed);
      }
      rule->type = text;
    }
    int64_t seed = 0;
    if (integer("seed", 0, INT64_MAX, &seed)) rule->seed = static_cast<uint64_t>(seed);
  }

  static bool looks_like_uuid(const std::string& text) {
    if (text.size() != 40 || !(text.starts_with("GPU-") || text.starts_with("gpu-"))) return false;
    for (size_t i = 4; i < text.size(); ++i) {
      const bool dash = i == 12 || i == 17 || i == 22 || i == 27;
      if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0) return false;
    }
    return true;
  }

  void read_products(const toml::node& node, FaultRule* rule) {
    constexpr char kAllowed[] = "a product number from 0, a list of them, or \"lo..hi\"";
    if (node.is_integer() && node.as_integer()->get() >= 0) {
      rule->product_list = {node.as_integer()->get()};
    } else if (node.is_string() && parse_span(node.as_string()->get(), &rule->products)) {
      return;
    } else if (node.is_array() && !node.as_array()->empty()) {
      for (const toml::node& element : *node.as_array()) {
        if (!element.is_integer() || element.as_integer()->get() < 0) {
          fail("products", element, kAllowed);
          return;
        }
        rule->product_list.push_back(element.as_integer()->get());
      }
    } else {
      fail("products", node, kAllowed);
    }
  }

  void read_places(FaultRule* rule) {
    integer("count", 1, INT64_MAX, &rule->count);
    position("row", &rule->row);
    position("row2", &rule->row2);
    position("col", &rule->col);
    position("entry", &rule->entry);
    position("k_step", &rule->k_step);
    if (rule->kind == FaultKind::kTile) {
      rule->rows = 16;
      rule->cols = 8;
    }
    integer("rows", 1, INT64_MAX, &rule->rows);
    integer("cols", 1, INT64_MAX, &rule->cols);
    integer("line_row", 0, 15, &rule->line_row);
    integer("line_col", 0, 7, &rule->line_col);
    if (rule->row2.has_value() && rule->row2 == rule->row) fail("row2", *find("row2"), "a row other than row");
  }

  void read_bits(FaultRule* rule) {
    constexpr char kAllowed[] = "a bit from 0 to 63, a list of different ones, or \"lo..hi\"";
    const toml::node* node = find("bits");
    IntegerRange range;
    if (node == nullptr && rule->kind == FaultKind::kStuck) {
      fail("bits is missing", table_, "one bit from 0 to 63");
      return;
    }
    if (node != nullptr && node->is_array()) {
      for (const toml::node& element : *node->as_array()) {
        const int64_t bit = element.is_integer() ? element.as_integer()->get() : -1;
        if (bit < 0 || bit > kHighestBit ||
            std::count(rule->bits.begin(), rule->bits.end(), static_cast<int>(bit)) != 0) {
          fail("bits", element, kAllowed);
          return;
        }
        rule->bits.push_back(static_cast<int>(bit));
      }
    } else if (node != nullptr) {
      if (node->is_integer()) {
        range.low = range.high = node->as_integer()->get();
      } else if (!(node->is_string() && parse_span(node->as_string()->get(), &range))) {
        fail("bits", *node, kAllowed);
        return;
      }
      if (range.low < 0 || range.high > kHighestBit) {
        fail("bits", *node, kAllowed);
        return;
      }
      for (int64_t bit = range.low; bit <= range.high; ++bit) rule->bits.push_back(static_cast<int>(bit));
    }
    if (node != nullptr && rule->bits.empty()) fail("bits", *node, kAllowed);
    if (rule->kind == FaultKind::kStuck && rule->bits.size() != 1) fail("bits", *node, "one bit from 0 to 63");
    const size_t candidates = node != nullptr ? rule->bits.size() : default_bits(Type::kFp32).size();
    integer("flips", 1, static_cast<int64_t>(candidates), &rule->flips);
  }

  void read_damage(FaultRule* rule) {
    const uint32_t kind = bit_of(rule->kind);
    if ((kind & (kFlipping | kStuck)) != 0) read_bits(rule);
    if (rule->kind == FaultKind::kStuck) {
      int64_t value = 0;
      if (!integer("value", 0, 1, &value) && error_.empty()) fail("value is missing", table_, "0 or 1");
      rule->stuck_value = value == 1;
    }
    if (rule->kind == FaultKind::kWord) read_word(rule);
    double factor = 1;
    if (number("factor", "a number", &factor)) {
      for (const char* other : {"delta", "scale", "sign"}) {
        if (const toml::node* node = find(other); node != nullptr) fail(other, *node, "no factor beside it");
      }
      rule->factor = factor;
    }
    double delta = 0;
    if (number("delta", "a number other than 0", &delta)) {
      if (!(delta != 0) || find("scale") != nullptr) {
        fail("delta", *find("delta"), "a number other than 0, and no scale beside it");
      }
      rule->delta = delta;
    }
    if (number("scale", "a number above 0", &rule->scale) && !(rule->scale > 0)) {
      fail("scale", *find("scale"), "a number above 0");
    }
    rule->sign = rule->kind == FaultKind::kPair ? FaultRule::Sign::kOpposite : FaultRule::Sign::kSame;
    if (const toml::node* node = find("sign"); node != nullptr) {
      const std::string text = node->is_string() ? node->as_string()->get() : std::string();
      if (text == "same") {
        rule->sign = FaultRule::Sign::kSame;
      } else if (text == "random") {
        rule->sign = FaultRule::Sign::kRandom;
      } else if (text == "opposite" && rule->kind == FaultKind::kPair) {
        rule->sign = FaultRule::Sign::kOpposite;
      } else {
        fail("sign", *node, rule->kind == FaultKind::kPair ? "opposite same random" : "same random");
      }
    }
  }

  void read_word(FaultRule* rule) {
    constexpr char kAllowed[] = "a number, or bits as \"0x00000000\" or \"0x0000000000000000\"";
    const toml::node* node = find("value");
    if (node == nullptr) {
      fail("value is missing", table_, kAllowed);
      return;
    }
    if (node->is_string()) {
      const std::string text = node->as_string()->get();
      const char* last = text.data() + text.size();
      const bool prefixed = text.starts_with("0x") && text.size() > 2 && text.size() <= 18;
      rule->word_width = text.size() <= 10 ? 32 : 64;
      const auto result = std::from_chars(text.data() + (prefixed ? 2 : 0), last, rule->word_bits, 16);
      if (!prefixed || result.ec != std::errc() || result.ptr != last) fail("value", *node, kAllowed);
      return;
    }
    number("value", kAllowed, &rule->word_value);
  }

  const std::string& name_;
  const toml::table& table_;
  std::string error_;
};

}  // namespace

const char* fault_kind_name(FaultKind kind) {
  for (const KindName& candidate : kKinds) {
    if (candidate.kind == kind) return candidate.name;
  }
  return "unknown";
}

bool parse_fault_plan(std::string_view text, const std::string& name, FaultPlan* plan, std::string* error) {
  plan->rules.clear();
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& problem) {
    *error = name + ":" + std::to_string(problem.source().begin.line) + ": " + std::string(problem.description());
    return false;
  }
  int64_t seed = 0;
  const auto at = [&](const toml::node& node) { return name + ":" + std::to_string(node.source().begin.line) + ": "; };
  for (const auto& [key, node] : root) {
    if (key.str() == "seed") {
      if (!node.is_integer() || node.as_integer()->get() < 0) {
        *error = at(node) + "seed: allowed: a whole number from 0 on";
        return false;
      }
      seed = node.as_integer()->get();
    } else if (key.str() != "fault") {
      *error = at(node) + "unknown key " + std::string(key.str()) + ": allowed: seed and [[fault]] tables";
      return false;
    }
  }
  const toml::node* faults = root.get("fault");
  if (faults == nullptr || !faults->is_array() || faults->as_array()->empty()) {
    *error = name + ":1: no fault: allowed: one or more [[fault]] tables";
    return false;
  }
  for (const toml::node& node : *faults->as_array()) {
    if (!node.is_table()) {
      *error = at(node) + "fault: allowed: [[fault]] tables";
      plan->rules.clear();
      return false;
    }
    FaultRule rule;
    rule.seed = mixed(mixed(static_cast<uint64_t>(seed)) + plan->rules.size());
    if (!RuleReader(name, *node.as_table()).read(&rule, error)) {
      plan->rules.clear();
      return false;
    }
    plan->rules.push_back(std::move(rule));
  }
  return true;
}

bool load_fault_plan(const std::string& setting, FaultPlan* plan, std::string* error) {
  std::ifstream file(setting);
  if (file) {
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return parse_fault_plan(text, setting, plan, error);
  }
  if (setting.find('=') != std::string::npos || setting.find('\n') != std::string::npos) {
    return parse_fault_plan(setting, "HOSTCUDA_FAULTS", plan, error);
  }
  *error = setting + ": cannot be opened: allowed: the path of a TOML file, or TOML text";
  return false;
}

}  // namespace hostcuda::gemm

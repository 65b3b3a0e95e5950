// SPDX-License-Identifier: MIT
#include "tools/calibrate/profile.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace sdcguard {
namespace {

constexpr int64_t kVersion = 1;

// As TOML reads it back: every digit that the number has, and a point.
std::string text_of(double value) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string text_of(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return text + '"';
}

std::string text_of(const std::vector<std::string>& values) {
  std::string text = "[";
  for (const std::string& value : values) text.append(text.size() > 1 ? ", " : "").append(text_of(value));
  return text + "]";
}

std::string text_of(bool value) {
  return value ? "true" : "false";
}

template <typename Whole>
requires std::is_integral_v<Whole> std::string text_of(Whole value) {
  return std::to_string(value);
}

// Reads the keys of one table; the first that is wrong stays in `error`.
class Reader {
 public:
  Reader(const toml::table& table, std::string where, std::string* error)
      : table_(table), where_(std::move(where)), error_(error) {}

  void take(const char* key, std::string* value) {
    if (const toml::node* node = find(key, "a text")) {
      if (const auto* text = node->as_string())
        *value = text->get();
      else
        wrong(*node, key, "a text");
    }
  }
  void take(const char* key, bool* value) {
    if (const toml::node* node = find(key, "true or false")) {
      if (const auto* truth = node->as_boolean())
        *value = truth->get();
      else
        wrong(*node, key, "true or false");
    }
  }
  void take(const char* key, double* value, double low) {
    const std::string allowed = "a number from " + text_of(low) + " on";
    if (const toml::node* node = find(key, allowed)) {
      const auto number = node->value<double>();
      if (number && std::isfinite(*number) && *number >= low)
        *value = *number;
      else
        wrong(*node, key, allowed);
    }
  }
  template <typename Whole>
  requires std::is_integral_v<Whole>
  void take(const char* key, Whole* value, int64_t low = 0) {
    const std::string allowed = "a whole number from " + std::to_string(low) + " on";
    if (const toml::node* node = find(key, allowed)) {
      const auto* number = node->as_integer();
      if (number != nullptr && number->get() >= low && std::in_range<Whole>(number->get())) {
        *value = static_cast<Whole>(number->get());
      } else {
        wrong(*node, key, allowed);
      }
    }
  }
  void take(const char* key, std::vector<std::string>* values) {
    const toml::node* node = find(key, "a list of texts");
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    if (list == nullptr) return wrong(*node, key, "a list of texts");
    for (const toml::node& one : *list) {
      const auto* text = one.as_string();
      if (text == nullptr) return wrong(one, key, "a list of texts");
      values->push_back(text->get());
    }
  }
  const toml::array* take_list(const char* key) {
    const toml::node* node = find(key, "a list of tables");
    if (node != nullptr && node->as_array() == nullptr) wrong(*node, key, "a list of tables");
    return node == nullptr ? nullptr : node->as_array();
  }

  // Every key of the table was one that was taken.
  void end() {
    for (const auto& [key, node] : table_) {
      if (std::find(taken_.begin(), taken_.end(), key.str()) != taken_.end()) continue;
      say(node.source().begin.line, std::string(key.str()) + ": no such key");
    }
  }

 private:
  const toml::node* find(const char* key, const std::string& allowed) {
    taken_.emplace_back(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) say(table_.source().begin.line, std::string(key) + " is missing: must be " + allowed);
    return node;
  }
  void wrong(const toml::node& node, const char* key, const std::string& allowed) {
    say(node.source().begin.line, std::string(key) + ": must be " + allowed);
  }
  void say(uint32_t line, const std::string& what) {
    if (error_->empty()) *error_ = where_ + ":" + std::to_string(line) + ": " + what;
  }

  const toml::table& table_;
  const std::string where_;
  std::string* const error_;
  std::vector<std::string_view> taken_;
};

void read_fit(const toml::table& table, const std::string& where, std::string* error, TailFit* fit) {
  Reader reader(table, where, error);
  reader.take("limit", &fit->limit, 0);
  reader.take("above", &fit->above, 1);
  reader.take("xi", &fit->shape.xi, 0);
  reader.take("scale", &fit->shape.scale, 0);
  reader.take("threshold", &fit->threshold, 0);
  reader.take("upper", &fit->upper, 0);
  reader.end();
}

Profile read_profile(const toml::table& table, const std::string& where, std::string* error) {
  Profile profile;
  Reader reader(table, where, error);
  reader.take("gpu", &profile.key.gpu);
  reader.take("multiprocessors", &profile.key.multiprocessors);
  reader.take("driver", &profile.key.driver);
  reader.take("cublas", &profile.key.cublas);
  reader.take("type", &profile.key.type);
  reader.take("order", &profile.key.order);
  reader.take("plan", &profile.key.plan);
  reader.take("simulated", &profile.simulated);
  reader.take("uuid", &profile.uuid);
  reader.take("made", &profile.made);
  reader.take("source", &profile.source);
  reader.take("shapes", &profile.shapes);
  reader.take("kinds", &profile.kinds);
  reader.take("products", &profile.products);
  reader.take("values", &profile.values, 1);
  reader.take("looks", &profile.looks);
  reader.take("rate", &profile.rate, 0);
  reader.take("tests", &profile.tests, 0);
  reader.take("threshold", &profile.tail.threshold, 0);
  reader.take("decades", &profile.tail.decades, -1000);
  reader.take("dispersion", &profile.tail.dispersion, 0);
  reader.take("dispersion_z", &profile.tail.dispersion_z, -1e300);
  reader.take("warnings", &profile.tail.warnings);
  if (const toml::array* fits = reader.take_list("tail")) {
    if (fits->size() != std::size(profile.tail.fits) && error->empty()) {
      *error = where + ":" + std::to_string(fits->source().begin.line) + ": tail: must be a list of three tables";
    }
    for (size_t f = 0; f < fits->size() && error->empty(); ++f) {
      if (const toml::table* fit = fits->get(f)->as_table()) {
        read_fit(*fit, where, error, &profile.tail.fits[f]);
      } else {
        *error = where + ":" + std::to_string(fits->source().begin.line) + ": tail: must be a list of three tables";
      }
    }
  }
  reader.end();
  if (profile.tests > 0) profile.tail.per_value = profile.rate / profile.tests;
  return profile;
}

}  // namespace

double threshold_at(const Profile& profile, double per_value) {
  double threshold = 0;
  for (const TailFit& fit : profile.tail.fits) {
    const double share = static_cast<double>(fit.above) / static_cast<double>(profile.values);
    threshold = std::max(threshold, fit.limit + fit.shape.quantile(std::min(1.0, per_value / share)));
  }
  return threshold;
}

std::string profile_text(const Profile& profile) {
  std::string text = "[[profile]]\n";
  const auto line = [&text](const char* key, const auto& value) {
    text.append(key).append(" = ").append(text_of(value)).append("\n");
  };
  line("gpu", profile.key.gpu);
  line("multiprocessors", profile.key.multiprocessors);
  line("driver", profile.key.driver);
  line("cublas", profile.key.cublas);
  line("type", profile.key.type);
  line("order", profile.key.order);
  line("plan", profile.key.plan);
  line("simulated", profile.simulated);
  line("uuid", profile.uuid);
  line("made", profile.made);
  line("source", profile.source);
  line("shapes", profile.shapes);
  line("kinds", profile.kinds);
  line("products", profile.products);
  line("values", profile.values);
  line("looks", profile.looks);
  line("rate", profile.rate);
  line("tests", profile.tests);
  line("threshold", profile.tail.threshold);
  line("decades", profile.tail.decades);
  line("dispersion", profile.tail.dispersion);
  line("dispersion_z", profile.tail.dispersion_z);
  line("warnings", profile.tail.warnings);
  text += "tail = [\n";
  for (const TailFit& fit : profile.tail.fits) {
    text += "  {limit = " + text_of(fit.limit) + ", above = " + text_of(fit.above) + ", xi = " + text_of(fit.shape.xi) +
            ", scale = " + text_of(fit.shape.scale) + ", threshold = " + text_of(fit.threshold) +
            ", upper = " + text_of(fit.upper) + "},\n";
  }
  return text + "]\n";
}

bool read_profiles(const std::string& path, std::vector<Profile>* profiles, std::string* error) {
  profiles->clear();
  error->clear();
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in.is_open() || in.bad()) {
    *error = path + ": " + std::strerror(errno);
    return false;
  }
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    *error = path + ":" + std::to_string(parsed.error().source().begin.line) +
             ": not TOML: " + std::string(parsed.error().description());
    return false;
  }
  int64_t version = -1;
  Reader reader(parsed.table(), path, error);
  reader.take("version", &version);
  if (error->empty() && version != kVersion) {
    *error = path + ": version " + std::to_string(version) + ", this program reads version " + std::to_string(kVersion);
  }
  const toml::array* const list = reader.take_list("profile");
  reader.end();
  for (size_t i = 0; list != nullptr && i < list->size() && error->empty(); ++i) {
    if (const toml::table* table = list->get(i)->as_table()) {
      profiles->push_back(read_profile(*table, path, error));
    } else {
      *error = path + ": profile: must be a list of tables";
    }
  }
  if (!error->empty()) profiles->clear();
  return error->empty();
}

bool write_profile(const std::string& path, const Profile& profile, std::string* error) {
  std::vector<Profile> profiles;
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !read_profiles(path, &profiles, error)) return false;
  const auto same =
      std::find_if(profiles.begin(), profiles.end(), [&profile](const Profile& one) { return one.key == profile.key; });
  if (same == profiles.end()) {
    profiles.push_back(profile);
  } else {
    *same = profile;
  }
  const std::string beside = path + "." + std::to_string(getpid());
  {
    std::ofstream out(beside, std::ios::binary);
    out << "# Noise of clean products, by `sdcguard calibrate`. Each profile holds for its own key alone.\nversion = "
        << kVersion << "\n";
    for (const Profile& one : profiles) out << "\n" << profile_text(one);
    out.close();
    if (!out) {
      *error = beside + ": cannot be written: " + std::strerror(errno);
      std::filesystem::remove(beside, ignored);
      return false;
    }
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) {
    *error = path + ": " + std::strerror(errno);
    std::filesystem::remove(beside, ignored);
    return false;
  }
  return true;
}

}  // namespace sdcguard

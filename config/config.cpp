// SPDX-License-Identifier: MIT
// Configuration: takes the file and the environment, gives a Config or one line that says what is wrong and what is
// allowed; linked into the shim, so nothing here prints, throws across its interface or runs before main.
#include "config/config.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_FLOAT_CHARCONV 1  // by from_chars: a string stream brings iostreams, whose start every child would pay for
#include <toml++/toml.h>

namespace sdcguard {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;  // a configuration is a page or two; a larger file is a mistake
constexpr size_t kShownChars = 80;         // of a wrong value in a message

// A value as some source gave it, before it is held against its knob.
struct Given {
  enum class Form { kWord, kInteger, kNumber, kText, kOther } form = Form::kOther;
  // kWord: from the environment, which has no types. kText: a TOML string.
  std::string text;
  int64_t integer = 0;
  double number = 0;
};

// `text` on one line and short enough to read, whatever it holds.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kShownChars)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  if (text.size() > kShownChars) out += "...";
  return out;
}

std::string number_text(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

std::string shown(const Given& given) {
  switch (given.form) {
    case Given::Form::kText:
      return "\"" + shown(std::string_view(given.text)) + "\"";
    case Given::Form::kInteger:
      return std::to_string(given.integer);
    case Given::Form::kNumber:
      return number_text(given.number);
    default:
      return shown(std::string_view(given.text));
  }
}

std::optional<uint64_t> as_integer(const Given& given, uint64_t low, uint64_t high) {
  std::optional<uint64_t> value;
  if (given.form == Given::Form::kInteger && given.integer >= 0) value = static_cast<uint64_t>(given.integer);
  if (given.form == Given::Form::kWord) value = parse_unsigned(given.text);
  if (!value || *value < low || *value > high) return std::nullopt;
  return value;
}

std::optional<double> as_number(const Given& given, double low, double high) {
  std::optional<double> value;
  if (given.form == Given::Form::kNumber) value = given.number;
  if (given.form == Given::Form::kInteger) value = static_cast<double>(given.integer);
  if (given.form == Given::Form::kWord) value = parse_number(given.text);
  if (!value || !(*value >= low) || !(*value <= high)) return std::nullopt;
  return value;
}

std::optional<std::string_view> as_text(const Given& given) {
  if (given.form == Given::Form::kWord || given.form == Given::Form::kText) return std::string_view(given.text);
  return std::nullopt;
}

std::optional<Bytes> as_size(const Given& given, uint64_t low, uint64_t high) {
  std::optional<Bytes> size;
  if (const auto text = as_text(given)) size = parse_bytes(*text);
  if (given.form == Given::Form::kInteger && given.integer >= 0) size = Bytes{static_cast<uint64_t>(given.integer)};
  if (!size || size->bytes < low || size->bytes > high) return std::nullopt;
  return size;
}

// Puts a value into its field. False: not allowed, the field is as it was.
bool apply(KnobIndex knob, const Given& given, Config* config) {
  switch (knob) {
    case KnobIndex::mode: {
      const auto text = as_text(given);
      return text && parse_mode(*text, &config->mode);
    }
    case KnobIndex::every: {
      const auto every = as_integer(given, 1, kMaxEvery);
      if (!every) return false;
      config->every = *every;
      config->rate = 1.0 / static_cast<double>(*every);
      return true;
    }
    case KnobIndex::rate: {
      const auto rate = as_number(given, 0, 1);
      if (!rate) return false;
      config->every = 0;
      config->rate = *rate;
      return true;
    }
    case KnobIndex::seed: {
      const auto seed = as_integer(given, 0, kMaxSeed);
      if (!seed) return false;
      config->seed = *seed;
      return true;
    }
    case KnobIndex::upgrade: {
      const auto text = as_text(given);
      for (uint8_t i = 0; text && i < std::size(kUpgradeNames); ++i) {
        if (*text != kUpgradeNames[i]) continue;
        config->upgrade = static_cast<Upgrade>(i);
        return true;
      }
      return false;
    }
    case KnobIndex::fold_cache: {
      const auto text = as_text(given);
      for (uint8_t i = 0; text && i < std::size(kFoldCachingNames); ++i) {
        if (*text != kFoldCachingNames[i]) continue;
        config->fold_cache = static_cast<FoldCaching>(i);
        return true;
      }
      return false;
    }
    case KnobIndex::workspace: {
      const auto size = as_size(given, kMinWorkspaceBytes, kMaxWorkspaceBytes);
      if (!size) return false;
      config->workspace = size;
      return true;
    }
    case KnobIndex::ring_dir: {
      const auto text = as_text(given);
      if (!text || text->empty() || text->front() != '/' || text->find('\0') != text->npos) return false;
      config->ring_dir = *text;
      return true;
    }
    case KnobIndex::rank: {
      const auto rank = as_integer(given, 0, 0x7fffffff);
      if (!rank) return false;
      config->rank = static_cast<int32_t>(*rank);
      return true;
    }
  }
  return false;
}

size_t edit_distance(std::string_view a, std::string_view b) noexcept {
  constexpr size_t kLongest = 32;
  if (a.size() > kLongest || b.size() > kLongest) return kLongest;
  size_t row[kLongest + 1];
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string all_keys() {
  std::string keys;
  for (const Knob& knob : kKnobs) keys.append(keys.empty() ? "" : ", ").append(knob.key);
  return keys;
}

std::string unknown_key(std::string_view key) {
  const char* near = nearest_key(key);
  if (near != nullptr) return std::string("no such key; the nearest is ").append(near);
  return "no such key; known are " + all_keys();
}

// Reads the whole file. False: `why` says the reason.
bool read_file(const std::string& path, std::string* text, std::string* why) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    *why = strerrordesc_np(errno);
    return false;
  }
  struct stat status = {};
  // A character device is read like a file, so that /dev/null stands for "no settings".
  bool good = fstat(fd, &status) == 0 && (S_ISREG(status.st_mode) || S_ISCHR(status.st_mode));
  if (!good) *why = "not a regular file";
  char buffer[4096];
  while (good) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      *why = strerrordesc_np(errno);
      good = false;
    } else if (text->size() + static_cast<size_t>(got) > kMaxFileBytes) {
      *why = "larger than 1 MiB";
      good = false;
    } else {
      text->append(buffer, static_cast<size_t>(got));
    }
  }
  close(fd);
  return good;
}

Given given_of(const toml::node& node) {
  Given given;
  if (const auto* text = node.as_string()) {
    given.form = Given::Form::kText;
    given.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    given.form = Given::Form::kInteger;
    given.integer = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    given.form = Given::Form::kNumber;
    given.number = number->get();
  } else if (const auto* boolean = node.as_boolean()) {
    given.text = boolean->get() ? "true" : "false";
  } else if (node.is_table()) {
    given.text = "a table";
  } else if (node.is_array()) {
    given.text = "an array";
  } else {
    given.text = "a date or time";
  }
  return given;
}

// Steps 2 and 3 of the sources; each sets result->error and returns false at its first fault, which for a file is the
// one that stands first in it.
class Loader {
 public:
  Loader(EnvironmentLookup lookup, void* context, ConfigResult* result)
      : lookup_(lookup), context_(context), result_(result) {}

  bool load() {
    result_->sources.assign(kKnobCount, "default");
    result_->config.ring_dir = "/dev/shm/sdcguard-" + std::to_string(getuid());
    take_launcher_rank();
    return take_file() && take_environment();
  }

 private:
  // Null where the variable is not set or empty: `SDCGUARD_EVERY= program` means what leaving it out does.
  const char* variable(const char* name) const {
    const char* value = lookup_(name, context_);
    return value != nullptr && value[0] != '\0' ? value : nullptr;
  }

  void take_launcher_rank() {
    for (const char* name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}) {
      const char* value = variable(name);
      if (value == nullptr) continue;
      Given given;
      given.form = Given::Form::kWord;
      given.text = value;
      // Another tool's variable: what does not read as a rank is none of our business.
      if (!apply(KnobIndex::rank, given, &result_->config)) continue;
      result_->sources[static_cast<size_t>(KnobIndex::rank)] = name;
      return;
    }
  }

  bool take_file() {
    const char* named = variable("SDCGUARD_CONFIG");
    const std::string path = named != nullptr ? named : kDefaultConfigPath;
    if (named == nullptr && access(path.c_str(), F_OK) != 0) return true;
    std::string text, why;
    if (!read_file(path, &text, &why)) {
      if (named != nullptr)
        return fail("SDCGUARD_CONFIG = " + shown(std::string_view(path)) + ": cannot be read: " + why);
      return fail(path + ": cannot be read: " + why);
    }
    const toml::parse_result parsed = toml::parse(std::string_view(text), std::string_view(path));
    if (!parsed) {
      return fail(place(path, parsed.error().source().begin.line) +
                  ": not TOML: " + shown(parsed.error().description()));
    }
    result_->file = path;

    struct Entry {
      std::string_view key;
      const toml::node* node;
      size_t line;
    };
    std::vector<Entry> entries;
    for (const auto& [key, node] : parsed.table()) entries.push_back({key.str(), &node, key.source().begin.line});
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.line < b.line; });

    size_t rate_line = 0;  // of `every` or `rate`, whichever came first
    for (const Entry& entry : entries) {
      const std::string at = place(path, entry.line) + ": " + shown(entry.key);
      const auto knob = index_of(entry.key);
      if (!knob) return fail(at + ": " + unknown_key(entry.key));
      const Given given = given_of(*entry.node);
      if (!apply(*knob, given, &result_->config)) {
        return fail(at + " = " + shown(given) + ": must be " + kKnobs[static_cast<size_t>(*knob)].allowed);
      }
      if (*knob == KnobIndex::every || *knob == KnobIndex::rate) {
        if (rate_line != 0) {
          return fail(at + " = " + shown(given) + ": line " + std::to_string(rate_line) +
                      " sets the other of every and rate; give one, not both");
        }
        rate_line = entry.line;
      }
      set_source(*knob, place(path, entry.line));
    }
    return true;
  }

  bool take_environment() {
    for (size_t i = 0; i < kKnobCount; ++i) {
      const char* value = variable(kKnobs[i].environment);
      if (value == nullptr) continue;
      Given given;
      given.form = Given::Form::kWord;
      given.text = value;
      if (!apply(static_cast<KnobIndex>(i), given, &result_->config)) {
        return fail(std::string(kKnobs[i].environment) + " = " + shown(given) + ": must be " + kKnobs[i].allowed);
      }
      set_source(static_cast<KnobIndex>(i), kKnobs[i].environment);
    }
    const char* every = variable("SDCGUARD_EVERY");
    const char* rate = variable("SDCGUARD_RATE");
    if (every != nullptr && rate != nullptr) {
      return fail("SDCGUARD_EVERY = " + shown(std::string_view(every)) +
                  " and SDCGUARD_RATE = " + shown(std::string_view(rate)) + ": give one, not both");
    }
    return true;
  }

  static std::optional<KnobIndex> index_of(std::string_view key) {
    for (size_t i = 0; i < kKnobCount; ++i) {
      if (key == kKnobs[i].key) return static_cast<KnobIndex>(i);
    }
    return std::nullopt;
  }

  static std::string place(const std::string& path, size_t line) { return path + ":" + std::to_string(line); }

  // `every` and `rate` are two names of one thing: the later source sets both.
  void set_source(KnobIndex knob, const std::string& source) {
    result_->sources[static_cast<size_t>(knob)] = source;
    if (knob == KnobIndex::every) result_->sources[static_cast<size_t>(KnobIndex::rate)] = source;
    if (knob == KnobIndex::rate) result_->sources[static_cast<size_t>(KnobIndex::every)] = source;
  }

  bool fail(const std::string& what) {
    result_->error = "sdcguard: " + what;
    return false;
  }

  EnvironmentLookup lookup_;
  void* context_;
  ConfigResult* result_;
};

const char* process_variable(const char* name, void*) {
  return getenv(name);
}

}  // namespace

ConfigResult load_config() noexcept {
  return load_config(process_variable, nullptr);
}

ConfigResult load_config(EnvironmentLookup lookup, void* context) noexcept {
  const int errno_found = errno;
  ConfigResult result;
  try {
    if (!Loader(lookup, context, &result).load()) {
      result.config = Config();
      result.config.mode = Mode::kOff;
      result.config.ring_dir = "/dev/shm/sdcguard-" + std::to_string(getuid());
    }
  } catch (...) {
    result = ConfigResult();
    result.config.mode = Mode::kOff;
    result.error = "no memory";  // fits the string's own buffer: nothing is allocated
  }
  errno = errno_found;
  return result;
}

std::string unknown_environment(const char* const* environment) {
  constexpr std::string_view kPrefix = "SDCGUARD_";
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name.substr(0, kPrefix.size()) != kPrefix || name == "SDCGUARD_CONFIG") continue;
    bool known = false;
    for (const Knob& knob : kKnobs) known = known || name == knob.environment;
    if (known) continue;
    std::string key(name.substr(kPrefix.size()));
    for (char& c : key) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    std::string line = "sdcguard: " + shown(name) + ": no such variable";
    const char* near = nearest_key(key);
    if (near == nullptr) return line;
    for (const Knob& knob : kKnobs) {
      if (std::string_view(knob.key) == near) line.append("; the nearest is ").append(knob.environment);
    }
    return line;
  }
  return "";
}

std::string value_text(const Config& config, KnobIndex knob) {
  switch (knob) {
    case KnobIndex::mode:
      return std::string("\"") + name_of(config.mode) + "\"";
    case KnobIndex::every:
      return config.every == 0 ? "unset" : std::to_string(config.every);
    case KnobIndex::rate:
      return number_text(config.rate);
    case KnobIndex::seed:
      return std::to_string(config.seed);
    case KnobIndex::upgrade:
      return std::string("\"") + kUpgradeNames[static_cast<size_t>(config.upgrade)] + "\"";
    case KnobIndex::fold_cache:
      return std::string("\"") + kFoldCachingNames[static_cast<size_t>(config.fold_cache)] + "\"";
    case KnobIndex::workspace:
      return config.workspace ? "\"" + format_bytes(*config.workspace) + "\""
                              : kKnobs[static_cast<size_t>(knob)].default_text;
    case KnobIndex::ring_dir:
      return "\"" + config.ring_dir + "\"";
    case KnobIndex::rank:
      return std::to_string(config.rank);
  }
  return "";
}

const char* nearest_key(std::string_view key) noexcept {
  const char* best = nullptr;
  size_t best_distance = 4;  // past three edits it is another word
  for (const Knob& knob : kKnobs) {
    const size_t distance = edit_distance(key, knob.key);
    // A short key that shares no letter in place is not a typing error of this one.
    if (distance >= std::max(key.size(), std::string_view(knob.key).size())) continue;
    if (distance < best_distance) {
      best = knob.key;
      best_distance = distance;
    }
  }
  return best;
}

bool parse_mode(std::string_view text, Mode* mode) noexcept {
  for (uint32_t i = 0; i < kModeCount; ++i) {
    if (text != kModeNames[i]) continue;
    *mode = static_cast<Mode>(i);
    return true;
  }
  return false;
}

}  // namespace sdcguard

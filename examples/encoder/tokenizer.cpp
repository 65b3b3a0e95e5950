// SPDX-License-Identifier: MIT
// Tokenizer: takes UTF-8 text, gives WordPiece ids of an uncased BERT vocabulary; host code, no CUDA.
#include "examples/encoder/tokenizer.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>

#include "examples/encoder/unicode_tables.h"

namespace encoder {
namespace {

// A longer word is unknown as a whole; the limit is part of the published BERT tokenizer.
constexpr std::size_t kMaxWordCharacters = 100;

bool in(std::span<const CodeRange> ranges, char32_t c) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](char32_t code, const CodeRange& r) { return code < r.first; });
  return after != ranges.begin() && c <= std::prev(after)->last;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x85 || in(kSpace, c);
}

bool is_dropped(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return c == 0xFFFD || in(kOther, c);
}

// BERT counts every ASCII character that is neither letter, digit, space nor control, "$" and "~" too.
bool is_punctuation(char32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  return in(kPunctuation, c);
}

bool is_ideograph(char32_t c) {
  static constexpr CodeRange kIdeographs[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                              {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                              {0x2B820, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  return in(kIdeographs, c);
}

// One code point from the front of text, which shrinks; 0xFFFD for a byte that starts no valid sequence.
char32_t take_code_point(std::string_view& text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char head = byte(0);
  const std::size_t length = head < 0x80   ? 1
                             : head < 0xC2 ? 0
                             : head < 0xE0 ? 2
                             : head < 0xF0 ? 3
                             : head < 0xF5 ? 4
                                           : 0;
  char32_t code = length == 1 ? head : length == 2 ? head & 0x1Fu : length == 3 ? head & 0x0Fu : head & 0x07u;
  bool valid = length != 0 && length <= text.size();
  for (std::size_t i = 1; valid && i < length; ++i) {
    valid = (byte(i) & 0xC0) == 0x80;
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  // Overlong forms, surrogates and what is past the last plane
  if (valid && length == 3) valid = code >= 0x800 && !(code >= 0xD800 && code <= 0xDFFF);
  if (valid && length == 4) valid = code >= 0x10000 && code <= 0x10FFFF;
  text.remove_prefix(valid ? length : 1);
  return valid ? code : char32_t{0xFFFD};
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

// Canonical decomposition, nonspacing marks dropped, lower case.
void append_folded(char32_t c, std::u32string& out) {
  if (in(kMarkNonspacing, c)) return;
  if (c >= 0xAC00 &&
      c <= 0xD7A3) {  // Hangul syllables: Unicode Standard 3.12, 21 vowels x 28 finals a leading consonant
    const char32_t index = c - 0xAC00;
    out.push_back(0x1100 + index / (21 * 28));
    out.push_back(0x1161 + index % (21 * 28) / 28);
    if (index % 28 != 0) out.push_back(0x11A7 + index % 28);
    return;
  }
  const auto fold = std::lower_bound(std::begin(kFolds), std::end(kFolds), c,
                                     [](const Fold& f, char32_t code) { return f.from < code; });
  if (fold == std::end(kFolds) || fold->from != c) {
    out.push_back(c);
    return;
  }
  for (const char32_t to : fold->to) {
    if (to != 0) out.push_back(to);
  }
}

std::size_t characters(std::string_view utf8) {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::vector<std::string> basic_tokens(std::string_view text) {
  std::u32string folded;
  while (!text.empty()) {
    const char32_t c = take_code_point(text);
    if (is_dropped(c)) continue;
    if (is_space(c)) {
      folded.push_back(' ');
    } else if (is_ideograph(c)) {
      folded.push_back(' ');
      append_folded(c, folded);
      folded.push_back(' ');
    } else {
      append_folded(c, folded);
    }
  }
  std::vector<std::string> tokens;
  bool open = false;
  for (const char32_t c : folded) {
    if (c == ' ') {
      open = false;
      continue;
    }
    const bool alone = is_punctuation(c);
    if (alone || !open) tokens.emplace_back();
    append_utf8(c, tokens.back());
    open = !alone;
  }
  return tokens;
}

Tokenizer::Tokenizer(const std::filesystem::path& vocabulary) {
  std::ifstream file(vocabulary);
  if (!file) throw std::runtime_error("cannot read the vocabulary " + vocabulary.string());
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    ids_.emplace(line, static_cast<int32_t>(pieces_.size()));
    pieces_.push_back(std::move(line));
  }
  const auto special = [&](const char* name) {
    const auto found = ids_.find(name);
    if (found == ids_.end())
      throw std::runtime_error("no " + std::string(name) + " in the vocabulary " + vocabulary.string());
    return found->second;
  };
  pad_ = special("[PAD]");
  unknown_ = special("[UNK]");
  first_ = special("[CLS]");
  last_ = special("[SEP]");
}

void Tokenizer::append_word(const std::string& word, std::vector<int32_t>& ids) const {
  if (characters(word) > kMaxWordCharacters) {
    ids.push_back(unknown_);
    return;
  }
  const std::size_t before = ids.size();
  for (std::size_t start = 0; start < word.size();) {
    // The longest piece that the vocabulary has; cutting inside a code point finds none, pieces being whole characters
    std::size_t end = word.size();
    auto found = ids_.end();
    for (; end > start && found == ids_.end(); --end) {
      found = ids_.find((start == 0 ? "" : "##") + word.substr(start, end - start));
      if (found != ids_.end()) break;
    }
    if (found == ids_.end()) {
      ids.resize(before);
      ids.push_back(unknown_);
      return;
    }
    ids.push_back(found->second);
    start = end;
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, std::size_t max_tokens) const {
  std::vector<int32_t> ids{first_};
  for (const std::string& word : basic_tokens(text)) append_word(word, ids);
  if (ids.size() > max_tokens - 1) ids.resize(max_tokens - 1);
  ids.push_back(last_);
  return ids;
}

}  // namespace encoder

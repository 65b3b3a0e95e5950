// SPDX-License-Identifier: MIT
// Tokenizer: takes UTF-8 text, gives WordPiece ids of an uncased BERT vocabulary; host code, no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace encoder {

// BERT's basic tokenization: control characters dropped, accents stripped, lower case, split at white space, every
// punctuation mark and every CJK ideograph a word of its own. Bytes that are not UTF-8 are dropped.
std::vector<std::string> basic_tokens(std::string_view text);

class Tokenizer {
 public:
  // vocabulary: a file with one piece a line; its line number, from 0, is the piece's id.
  // Throws std::runtime_error naming the file when it cannot be read, or lacks [PAD], [UNK], [CLS] or [SEP].
  explicit Tokenizer(const std::filesystem::path& vocabulary);

  // [CLS] pieces [SEP], at most max_tokens (>= 2) in all: what is beyond is cut off before [SEP].
  // Text that spells a special piece ("[SEP]") is text: it gives brackets and a word.
  std::vector<int32_t> encode(std::string_view text, std::size_t max_tokens) const;

  const std::string& piece(int32_t id) const { return pieces_.at(static_cast<std::size_t>(id)); }
  int32_t pad() const { return pad_; }
  std::size_t size() const { return pieces_.size(); }

 private:
  void append_word(const std::string& word, std::vector<int32_t>& ids) const;

  std::vector<std::string> pieces_;
  std::unordered_map<std::string, int32_t> ids_;
  int32_t pad_ = 0, unknown_ = 0, first_ = 0, last_ = 0;
};

}  // namespace encoder

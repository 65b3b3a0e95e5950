// SPDX-License-Identifier: MIT
// Encoder program: takes a model folder and a file of sentences, prints their embeddings and similarities.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/encoder/device.h"
#include "examples/encoder/encoder.h"
#include "examples/encoder/tokenizer.h"
#include "examples/encoder/weights.h"

namespace {

struct Options {
  std::string model, sentences, embeddings;
  bool table = true, json = false;
  int repeat = 1, device = 0, batch = 32;
};

// The published model's own limit (its sentence_bert_config.json): longer text is cut.
constexpr std::size_t kMaxTokens = 256;
// How much of each embedding the text output shows; --json and --embeddings give all of it.
constexpr std::size_t kShownComponents = 6;

std::vector<std::string> read_sentences(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  std::vector<std::string> sentences;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    sentences.push_back(line.substr(first, line.find_last_not_of(" \t\r") - first + 1));
  }
  if (file.bad()) throw std::runtime_error(path + ": read error");
  if (sentences.empty()) throw std::runtime_error(path + ": holds no sentence");
  return sentences;
}

void write_embeddings(const std::string& path, const std::vector<float>& embeddings) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(embeddings.data()),
             static_cast<std::streamsize>(embeddings.size() * sizeof(float)));
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot be written");
}

std::string select_device(int ordinal) {
  int devices = 0;
  encoder::check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (ordinal >= devices) {
    throw std::runtime_error("no device " + std::to_string(ordinal) + ": there are " + std::to_string(devices));
  }
  encoder::check(cudaSetDevice(ordinal), "cudaSetDevice");
  cudaDeviceProp properties{};
  encoder::check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  return properties.name;
}

// Cosines of all pairs, [sentences][sentences]: the rows have length 1.
std::vector<std::vector<double>> similarities(const std::vector<float>& embeddings, std::size_t sentences) {
  const std::size_t hidden = embeddings.size() / sentences;
  std::vector result(sentences, std::vector<double>(sentences));
  for (std::size_t a = 0; a < sentences; ++a) {
    for (std::size_t b = 0; b < sentences; ++b) {
      double sum = 0;
      for (std::size_t i = 0; i < hidden; ++i) {
        sum += static_cast<double>(embeddings[a * hidden + i]) * static_cast<double>(embeddings[b * hidden + i]);
      }
      result[a][b] = sum;
    }
  }
  return result;
}

struct Result {
  std::string device;
  std::vector<std::string> sentences;
  std::vector<std::vector<int32_t>> tokens;
  std::size_t hidden = 0;
  std::vector<float> embeddings;  // [sentences][hidden] of the last pass
  int passes_differing = 0;       // passes whose bits are not those of the first
  double seconds_per_pass = 0;
};

Result encode_file(const Options& options) {
  Result result;
  result.sentences = read_sentences(options.sentences);
  const encoder::ModelWeights weights = encoder::load_weights(options.model);
  const encoder::Tokenizer tokenizer(options.model + "/vocab.txt");
  if (tokenizer.size() != static_cast<std::size_t>(weights.config.vocabulary)) {
    throw std::runtime_error(options.model + "/vocab.txt: has " + std::to_string(tokenizer.size()) +
                             " pieces, config.json says " + std::to_string(weights.config.vocabulary));
  }
  const std::size_t max_tokens = std::min(kMaxTokens, static_cast<std::size_t>(weights.config.positions));
  for (const std::string& sentence : result.sentences) result.tokens.push_back(tokenizer.encode(sentence, max_tokens));

  result.device = select_device(options.device);
  result.hidden = static_cast<std::size_t>(weights.config.hidden);
  encoder::Encoder model(weights);
  std::vector<float> first_pass;
  const auto start = std::chrono::steady_clock::now();
  for (int pass = 0; pass < options.repeat; ++pass) {
    result.embeddings.clear();
    for (std::size_t at = 0; at < result.tokens.size(); at += static_cast<std::size_t>(options.batch)) {
      const std::size_t end = std::min(result.tokens.size(), at + static_cast<std::size_t>(options.batch));
      const std::vector<float> part = model.encode({result.tokens.begin() + static_cast<std::ptrdiff_t>(at),
                                                    result.tokens.begin() + static_cast<std::ptrdiff_t>(end)},
                                                   tokenizer.pad());
      result.embeddings.insert(result.embeddings.end(), part.begin(), part.end());
    }
    if (pass == 0) first_pass = result.embeddings;
    // Bits, not values: a NaN is equal to itself here
    if (std::memcmp(first_pass.data(), result.embeddings.data(), first_pass.size() * sizeof(float)) != 0) {
      ++result.passes_differing;
    }
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  result.seconds_per_pass = elapsed.count() / options.repeat;
  return result;
}

void print_json(const Options& options, const Result& r) {
  nlohmann::json rows = nlohmann::json::array();
  for (std::size_t s = 0; s < r.sentences.size(); ++s) {
    const auto begin = r.embeddings.begin() + static_cast<std::ptrdiff_t>(s * r.hidden);
    rows.push_back({{"text", r.sentences[s]},
                    {"tokens", r.tokens[s]},
                    {"embedding", std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(r.hidden))}});
  }
  const nlohmann::json document{{"device", r.device},
                                {"hidden", r.hidden},
                                {"passes", options.repeat},
                                {"passes_differing", r.passes_differing},
                                {"seconds_per_pass", r.seconds_per_pass},
                                {"sentences", rows},
                                {"similarity", similarities(r.embeddings, r.sentences.size())}};
  // A sentence may hold bytes that are not UTF-8; a value that is not finite becomes null
  std::printf("%s\n", document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

void print_text(const Options& options, const Result& r) {
  std::printf("%zu sentences on %s\n\nembeddings: the first %zu of %zu components\n", r.sentences.size(),
              r.device.c_str(), std::min(kShownComponents, r.hidden), r.hidden);
  for (std::size_t s = 0; s < r.sentences.size(); ++s) {
    std::printf("%3zu ", s + 1);
    for (std::size_t i = 0; i < std::min(kShownComponents, r.hidden); ++i) {
      std::printf(" %8.5f", static_cast<double>(r.embeddings[s * r.hidden + i]));
    }
    std::printf("   %s\n", r.sentences[s].c_str());
  }
  if (options.table) {
    std::printf("\nsimilarity (cosine, in hundredths)\n   ");
    for (std::size_t b = 0; b < r.sentences.size(); ++b) std::printf(" %3zu", b + 1);
    std::printf("\n");
    const std::vector<std::vector<double>> table = similarities(r.embeddings, r.sentences.size());
    for (std::size_t a = 0; a < table.size(); ++a) {
      std::printf("%3zu", a + 1);
      for (const double value : table[a]) std::printf(" %3.0f", 100 * value);
      std::printf("\n");
    }
  }
  if (options.repeat > 1) std::printf("\n%d passes, %d differ from the first\n", options.repeat, r.passes_differing);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Sentence embeddings of a BERT encoder (all-MiniLM-L6-v2), its matrix products in BF16 by cuBLAS and cuBLASLt");
  app.add_option("--model", options.model,
                 "folder with config.json, model.safetensors, vocab.txt (tools/fetch_model.sh)")
      ->required();
  app.add_option("--sentences", options.sentences,
                 "text file, a sentence a line; blank lines and lines with # are left out")
      ->required();
  app.add_option("--embeddings", options.embeddings,
                 "write all embeddings there: float32, little-endian, [sentence][component]");
  app.add_flag("--table,!--no-table", options.table, "print the similarity table (default)");
  app.add_flag("--json", options.json, "print everything as one JSON document instead");
  app.add_option("--repeat", options.repeat, "encode so many times; the last pass is printed")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--batch", options.batch, "sentences encoded together")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--device", options.device, "CUDA device")->check(CLI::Range(0, 1023))->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    const Result result = encode_file(options);
    if (!options.embeddings.empty()) write_embeddings(options.embeddings, result.embeddings);
    options.json ? print_json(options, result) : print_text(options, result);
    if (std::fflush(stdout) != 0) throw std::runtime_error("standard output: write error");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "encoder: %s\n", e.what());
    return 1;
  }
  return 0;
}

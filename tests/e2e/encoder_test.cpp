// SPDX-License-Identifier: MIT
// End to end, unguarded: examples/encoder on the host device against embeddings of the published implementation.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/encoder/bfloat16.h"
// The program is one executable, so its tokenizer is compiled in here a second time rather than linked.
#include "examples/encoder/tokenizer.cpp"
#include "tests/scratch_folder.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kSource = SDCGUARD_SOURCE_DIR;
const fs::path kGolden = kSource / "tests/e2e/golden";
const fs::path kSentences = kSource / "examples/encoder/sentences.txt";

fs::path model_folder() {
  const char* chosen = std::getenv("ENCODER_MODEL_DIR");
  const fs::path folder = chosen != nullptr ? fs::path(chosen) : kSource / ".cache/model";
  if (!fs::exists(folder / "model.safetensors")) {
    throw std::runtime_error("no model in " + folder.string() + ": run tools/fetch_model.sh");
  }
  return folder;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

std::vector<float> read_floats(const fs::path& path) {
  const std::string bytes = read_file(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

struct Finished {
  int exit_code = -1;
  std::string out, err;
};

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// bin/encoder with these arguments; nothing of sdcguard is preloaded.
Finished run_encoder(const std::vector<std::string>& arguments) {
  const sdcguard::ScratchFolder scratch;
  std::string command = "env -u LD_PRELOAD " + quoted(std::string(SDCGUARD_BUILD_DIR) + "/bin/encoder");
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  command += " >" + quoted(scratch / "out") + " 2>" + quoted(scratch / "err");
  const int status = std::system(command.c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_file(scratch / "out"),
          .err = read_file(scratch / "err")};
}

Finished run_encoder_json(const fs::path& model, const fs::path& sentences, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--json", "--model", model, "--sentences", sentences});
  return run_encoder(more);
}

// The p that a normal variable exceeds is the argument; the quantile is the result (bisection on erfc).
double normal_quantile(double p) {
  double low = 0, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) / 2 > p ? low : high) = middle;
  }
  return high;
}

double distance(const float* a, const float* b, std::size_t n) {
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  return std::sqrt(squares);
}

// The reference, and for each sentence the largest distance that BF16 and the GELU form account for
// (tests/e2e/golden/README.md: bound = gelu_form + mean + z s).
struct Reference {
  static constexpr double kFalseFailure = 1e-6;  // of a whole comparison, by the union over its sentences

  Reference() : document(json::parse(read_file(kGolden / "minilm_embeddings.json"))) {
    hidden = document.at("hidden");
    embeddings = read_floats(kGolden / "minilm_embeddings.f32");
    const json& sentences = document.at("sentences");
    if (embeddings.size() != sentences.size() * hidden) throw std::runtime_error("golden files disagree");
    double squares = 0, freedom = 0;
    std::vector<double> means;
    for (const json& sentence : sentences) {
      const auto draws = sentence.at("rounding").get<std::vector<double>>();
      double sum = 0;
      for (const double draw : draws) sum += draw;
      means.push_back(sum / static_cast<double>(draws.size()));
      for (const double draw : draws) squares += (draw - means.back()) * (draw - means.back());
      freedom += static_cast<double>(draws.size()) - 1;
    }
    const double deviation = std::sqrt(squares / freedom);
    const double z = normal_quantile(kFalseFailure / static_cast<double>(sentences.size()));
    for (std::size_t s = 0; s < means.size(); ++s) {
      bounds.push_back(sentences[s].at("gelu_form").get<double>() + means[s] + z * deviation);
    }
  }

  json document;
  std::size_t hidden = 0;
  std::vector<float> embeddings;
  std::vector<double> bounds;
};

const Reference& reference() {
  static const Reference the_reference;
  return the_reference;
}

std::vector<float> embeddings_of(const json& document) {
  std::vector<float> all;
  for (const json& sentence : document.at("sentences")) {
    for (const json& value : sentence.at("embedding")) {
      all.push_back(value.is_null() ? std::numeric_limits<float>::quiet_NaN() : value.get<float>());
    }
  }
  return all;
}

// Distance over bound, the largest of the first sentences; NaN counts as infinite.
double worst_ratio(const json& document) {
  const Reference& r = reference();
  const std::vector<float> embeddings = embeddings_of(document);
  double worst = 0;
  for (std::size_t s = 0; s < embeddings.size() / r.hidden; ++s) {
    EXPECT_EQ(document["sentences"][s]["text"], r.document["sentences"][s]["text"])
        << "the sentences are not those of the reference: run tests/e2e/golden/make_reference.py";
    const double ratio =
        distance(embeddings.data() + s * r.hidden, r.embeddings.data() + s * r.hidden, r.hidden) / r.bounds[s];
    worst = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : std::max(worst, ratio);
  }
  return worst;
}

// The program's answer for the shipped sentences, computed once in this process.
const json& shipped_run() {
  static const json document = [] {
    const Finished run = run_encoder_json(model_folder(), kSentences);
    if (run.exit_code != 0) throw std::runtime_error("encoder failed: " + run.err);
    return json::parse(run.out);
  }();
  return document;
}

// The first three shipped sentences: enough for a test that the whole comparison is not the point of.
fs::path three_sentences(const sdcguard::ScratchFolder& scratch) {
  std::string text;
  for (std::size_t s = 0; s < 3; ++s) text += reference().document["sentences"][s]["text"].get<std::string>() + "\n";
  write_file(scratch / "sentences.txt", text);
  return scratch / "sentences.txt";
}

// A copy of the model, weights by symbolic link, that a test may change.
fs::path model_copy(const sdcguard::ScratchFolder& scratch) {
  const fs::path copy = scratch / "model";
  fs::create_directory(copy);
  fs::copy_file(model_folder() / "config.json", copy / "config.json");
  for (const char* name : {"vocab.txt", "model.safetensors"}) fs::create_symlink(model_folder() / name, copy / name);
  return copy;
}

void expect_one_line_error(const Finished& run, const std::string& part) {
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.starts_with("encoder: ")) << run.err;
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_NE(run.err.find(part), std::string::npos) << run.err << "\nlacks: " << part;
}

TEST(Encoder_Run, AgreesWithThePublishedImplementation) {
  const json& document = shipped_run();
  ASSERT_EQ(document.at("sentences").size(), reference().bounds.size());
  EXPECT_LE(worst_ratio(document), 1.0);
}

TEST(Encoder_Run, EmbeddingsHaveLengthOne) {
  // n FP32 additions and products of positive terms are off by at most n eps, the root and the quotients by less
  const std::size_t hidden = reference().hidden;
  const double bound = static_cast<double>(hidden) * static_cast<double>(std::numeric_limits<float>::epsilon());
  const std::vector<float> embeddings = embeddings_of(shipped_run());
  const std::vector<float> zero(hidden);
  for (std::size_t s = 0; s < embeddings.size() / hidden; ++s) {
    EXPECT_LE(std::abs(distance(embeddings.data() + s * hidden, zero.data(), hidden) - 1), bound);
  }
}

TEST(Encoder_Run, SimilaritiesFollowTheReference) {
  // |a.b - a'.b'| <= |a - a'| + |b - b'| for vectors of length 1
  const Reference& r = reference();
  const json& table = shipped_run().at("similarity");
  for (std::size_t a = 0; a < r.bounds.size(); ++a) {
    for (std::size_t b = 0; b < r.bounds.size(); ++b) {
      double expected = 0;
      for (std::size_t i = 0; i < r.hidden; ++i) {
        expected +=
            static_cast<double>(r.embeddings[a * r.hidden + i]) * static_cast<double>(r.embeddings[b * r.hidden + i]);
      }
      EXPECT_LE(std::abs(table[a][b].get<double>() - expected), r.bounds[a] + r.bounds[b]) << a << ", " << b;
    }
  }
}

TEST(Encoder_Bound, DrawsStayUnderTheRandomWalk) {
  // README.md of the golden files: rho sqrt(roundings a layer x layers), rho = 2^-7 sqrt((3 / (8 ln 2)) / 12)
  const double rho = std::exp2(-7) * std::sqrt(3 / (8 * std::numbers::ln2) / 12);
  const double ceiling = rho * std::sqrt(12.0 * 6.0);
  for (const json& sentence : reference().document["sentences"]) {
    for (const json& draw : sentence["rounding"]) EXPECT_LE(draw.get<double>(), ceiling);
    // A draw of nothing at all would make the bound vain in the other direction
    EXPECT_GE(sentence["rounding"][0].get<double>(), rho);
  }
}

TEST(Encoder_Bound, RefusesAnotherActivation) {
  const sdcguard::ScratchFolder scratch;
  const fs::path model = model_copy(scratch);
  json config = json::parse(read_file(model / "config.json"));
  config["hidden_act"] = "relu";
  write_file(model / "config.json", config.dump());
  const Finished run = run_encoder_json(model, three_sentences(scratch));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_GT(worst_ratio(json::parse(run.out)), 1.0);
}

// Every kind of bias in turn, one layer of six: on the CPU, in the BIAS epilogue, in the GELU_BIAS epilogue.
TEST(Encoder_Bound, RefusesOneDroppedBias) {
  const sdcguard::ScratchFolder scratch;
  const fs::path sentences = three_sentences(scratch);
  const std::string original = read_file(model_folder() / "model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, original.data(), sizeof header_bytes);
  const json header = json::parse(original.substr(sizeof header_bytes, header_bytes));
  const fs::path model = model_copy(scratch);
  for (const std::string name :
       {"attention.self.value", "attention.output.dense", "intermediate.dense", "output.dense"}) {
    const json& range = header.at("encoder.layer.3." + name + ".bias").at("data_offsets");
    std::string changed = original;
    std::fill(
        changed.begin() + static_cast<std::ptrdiff_t>(sizeof header_bytes + header_bytes + range[0].get<uint64_t>()),
        changed.begin() + static_cast<std::ptrdiff_t>(sizeof header_bytes + header_bytes + range[1].get<uint64_t>()),
        '\0');
    fs::remove(model / "model.safetensors");
    write_file(model / "model.safetensors", changed);
    const Finished run = run_encoder_json(model, sentences);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_GT(worst_ratio(json::parse(run.out)), 1.0) << name;
  }
}

TEST(Encoder_Run, SameInputSameBits) {
  const sdcguard::ScratchFolder scratch;
  const fs::path file = scratch / "embeddings.f32";
  const Finished run = run_encoder_json(model_folder(), kSentences, {"--repeat", "2", "--embeddings", file});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(json::parse(run.out)["passes_differing"], 0);
  const std::vector<float> written = read_floats(file), first = embeddings_of(shipped_run());
  ASSERT_EQ(written.size(), first.size());
  EXPECT_EQ(std::memcmp(written.data(), first.data(), first.size() * sizeof(float)), 0);
}

TEST(Encoder_Run, BatchesOfAnySizeAgreeWithTheReference) {
  const sdcguard::ScratchFolder scratch;
  const Finished run = run_encoder_json(model_folder(), three_sentences(scratch), {"--batch", "2"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_LE(worst_ratio(json::parse(run.out)), 1.0);
}

TEST(Encoder_Run, TextOutputHasEmbeddingsAndTable) {
  const sdcguard::ScratchFolder scratch;
  const fs::path sentences = three_sentences(scratch);
  const Finished run = run_encoder({"--model", model_folder(), "--sentences", sentences});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_NE(run.out.find("A cat sleeps on the warm windowsill"), std::string::npos);
  EXPECT_NE(run.out.find("\n  1 100 "), std::string::npos) << run.out;
  const Finished bare = run_encoder({"--model", model_folder(), "--sentences", sentences, "--no-table"});
  EXPECT_EQ(bare.out.find("similarity"), std::string::npos);
}

TEST(Encoder_Error, MissingOrBadFileIsOneLineAndExitOne) {
  const sdcguard::ScratchFolder scratch;
  const std::string model = model_folder(), sentences = kSentences;
  const auto with = [&](const std::string& folder, const std::string& file) {
    return run_encoder({"--model", folder, "--sentences", file});
  };
  expect_one_line_error(with(scratch / "absent", sentences),
                        "absent/config.json: cannot be read (tools/fetch_model.sh");
  expect_one_line_error(with(model, scratch / "absent.txt"), "absent.txt: cannot be read");
  write_file(scratch / "empty.txt", "# only a comment\n\n   \n");
  expect_one_line_error(with(model, scratch / "empty.txt"), "empty.txt: holds no sentence");

  const fs::path copy = model_copy(scratch), weights = copy / "model.safetensors", config = copy / "config.json";
  const std::string whole = read_file(weights), good_config = read_file(config);
  fs::remove(weights);
  expect_one_line_error(with(copy, sentences), "model.safetensors: cannot be read");
  const std::pair<std::string, std::string> bad_weights[] = {
      {"", "shorter than 8 bytes"},
      {std::string(64, '\xff'), "its header passes its end"},
      {std::string("\x08\0\0\0\0\0\0\0notjson!", 16), "header is not JSON"},
      {whole.substr(0, whole.size() / 2), "is cut short"},
      {std::string("\x02\0\0\0\0\0\0\0{}", 10), "has no tensor embeddings.word_embeddings.weight"},
  };
  for (const auto& [content, message] : bad_weights) {
    write_file(weights, content);
    expect_one_line_error(with(copy, sentences), "model.safetensors: ");
    expect_one_line_error(with(copy, sentences), message);
  }
  write_file(weights, whole);

  json changed = json::parse(good_config);
  changed["hidden_size"] = 768;
  write_file(config, changed.dump());
  expect_one_line_error(with(copy, sentences), "[30522,384], the config asks for [30522,768]");
  write_file(config, "{");
  expect_one_line_error(with(copy, sentences), "config.json: ");
  write_file(config, good_config);

  fs::remove(copy / "vocab.txt");
  write_file(copy / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n");
  expect_one_line_error(with(copy, sentences), "no [SEP] in the vocabulary");
  write_file(copy / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n");
  expect_one_line_error(with(copy, sentences), "has 4 pieces, config.json says 30522");
}

TEST(Encoder_Error, AbsentDeviceAndUnwritableOutput) {
  const sdcguard::ScratchFolder scratch;
  const std::string model = model_folder(), sentences = three_sentences(scratch);
  expect_one_line_error(run_encoder({"--model", model, "--sentences", sentences, "--device", "1000"}),
                        "no device 1000");
  expect_one_line_error(
      run_encoder({"--model", model, "--sentences", sentences, "--embeddings", scratch / "absent/embeddings.f32"}),
      "cannot be written");
}

TEST(Encoder_Error, WrongUsageIsExitTwo) {
  EXPECT_EQ(run_encoder({}).exit_code, 2);
  EXPECT_EQ(run_encoder({"--model", "x", "--sentences", "y", "--repeat", "0"}).exit_code, 2);
  EXPECT_EQ(run_encoder({"--help"}).exit_code, 0);
}

// What an independent tokenizer (Hugging Face tokenizers) makes of the same text; the published limit of 256 tokens.
int token_mismatches(const encoder::Tokenizer& tokenizer) {
  int mismatches = 0;
  for (const char* list : {"sentences", "tokenizer_cases"}) {
    for (const json& expected : reference().document.at(list)) {
      mismatches += tokenizer.encode(expected.at("text").get<std::string>(), 256) !=
                    expected.at("tokens").get<std::vector<int32_t>>();
    }
  }
  return mismatches;
}

std::vector<std::string> pieces(const encoder::Tokenizer& tokenizer, const std::string& text, std::size_t limit = 256) {
  std::vector<std::string> result;
  for (const int32_t id : tokenizer.encode(text, limit)) result.push_back(tokenizer.piece(id));
  return result;
}

TEST(Encoder_Tokenizer, AgreesWithThePublishedOne) {
  EXPECT_EQ(token_mismatches(encoder::Tokenizer(model_folder() / "vocab.txt")), 0);
}

TEST(Encoder_Tokenizer, ComparisonSeesOneLostPiece) {
  const sdcguard::ScratchFolder scratch;
  std::string vocabulary = read_file(model_folder() / "vocab.txt");
  const std::size_t at = vocabulary.find("\n##ffa\n");
  ASSERT_NE(at, std::string::npos);
  vocabulary.replace(at, std::strlen("\n##ffa\n"), "\n[lost]\n");
  write_file(scratch / "vocab.txt", vocabulary);
  EXPECT_GT(token_mismatches(encoder::Tokenizer(scratch / "vocab.txt")), 0);
}

TEST(Encoder_Tokenizer, LongestPieceFirst) {
  const encoder::Tokenizer tokenizer(model_folder() / "vocab.txt");
  EXPECT_EQ(pieces(tokenizer, "Unaffable!"),
            (std::vector<std::string>{"[CLS]", "una", "##ffa", "##ble", "!", "[SEP]"}));
  EXPECT_EQ(pieces(tokenizer, "Crème BRÛLÉE"), pieces(tokenizer, "creme brulee"));
}

TEST(Encoder_Tokenizer, CutsBeforeTheLastPiece) {
  const encoder::Tokenizer tokenizer(model_folder() / "vocab.txt");
  EXPECT_EQ(pieces(tokenizer, "one two three four", 4), (std::vector<std::string>{"[CLS]", "one", "two", "[SEP]"}));
  EXPECT_EQ(pieces(tokenizer, "one two three four", 2), (std::vector<std::string>{"[CLS]", "[SEP]"}));
}

TEST(Encoder_Tokenizer, TextNeverBecomesASpecialPiece) {
  const encoder::Tokenizer tokenizer(model_folder() / "vocab.txt");
  const std::vector<std::string> got = pieces(tokenizer, "a [SEP] b [PAD]");
  EXPECT_EQ(std::count(got.begin(), got.end(), "[SEP]"), 1);
  EXPECT_EQ(std::count(got.begin(), got.end(), "[PAD]"), 0);
}

TEST(Encoder_Tokenizer, BytesThatAreNotUtf8AreDropped) {
  const std::vector<std::string> whole{"ab"};
  // A lone continuation, a cut sequence, an overlong slash, a surrogate, a code point past the last, 0xFF
  for (const char* bad : {"\x80", "\xe2\x82", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"}) {
    EXPECT_EQ(encoder::basic_tokens(std::string("a") + bad + "b"), whole) << bad;
  }
  EXPECT_EQ(encoder::basic_tokens("caf\xc3"), (std::vector<std::string>{"caf"}));
}

TEST(Encoder_Bf16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(encoder::to_bf16(1.0f).bits, 0x3F80);
  EXPECT_EQ(encoder::to_bf16(1.0f + 0x1p-8f).bits, 0x3F80);             // half way, to even
  EXPECT_EQ(encoder::to_bf16(1.0f + 0x1p-7f + 0x1p-8f).bits, 0x3F82);   // half way, to even, upwards
  EXPECT_EQ(encoder::to_bf16(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3F81);  // just over
  EXPECT_EQ(encoder::to_bf16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(encoder::to_float(encoder::to_bf16(std::bit_cast<float>(0x7F800001u)))));
}

}  // namespace

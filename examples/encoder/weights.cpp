// SPDX-License-Identifier: MIT
// Weights: takes a model folder (config.json, model.safetensors), gives its sizes and FP32 tensors; host code, no CUDA.
#include "examples/encoder/weights.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace encoder {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

using nlohmann::json;

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw std::runtime_error(file.string() + ": " + what);
}

std::ifstream open(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, "cannot be read (tools/fetch_model.sh fetches the model)");
  return file;
}

ModelConfig read_config(const std::filesystem::path& path) {
  std::ifstream file = open(path);
  try {
    const json config = json::parse(file);
    if (config.at("model_type") != "bert") fail(path, "model_type is not \"bert\"");
    ModelConfig result;
    result.hidden = config.at("hidden_size");
    result.layers = config.at("num_hidden_layers");
    result.heads = config.at("num_attention_heads");
    result.intermediate = config.at("intermediate_size");
    result.vocabulary = config.at("vocab_size");
    result.positions = config.at("max_position_embeddings");
    result.norm_epsilon = config.at("layer_norm_eps");
    const std::string activation = config.at("hidden_act");
    if (activation != "gelu" && activation != "relu")
      fail(path, "hidden_act \"" + activation + "\", known are gelu and relu");
    result.activation = activation == "gelu" ? Activation::kGelu : Activation::kRelu;
    // The products need BF16 leading dimensions of whole 16-byte units
    for (const auto& [name, value] :
         {std::pair{"hidden_size", result.hidden}, {"intermediate_size", result.intermediate}}) {
      if (value <= 0 || value % 8 != 0) fail(path, std::string(name) + " is not a positive multiple of 8");
    }
    if (result.layers <= 0 || result.vocabulary <= 0 || result.positions <= 0) fail(path, "a size is not positive");
    if (result.heads <= 0 || result.hidden % (8 * result.heads) != 0)
      fail(path, "heads of hidden_size / heads must be multiples of 8");
    return result;
  } catch (const json::exception& e) {
    fail(path, e.what());
  }
}

// The file is 8 bytes of header length, the header in JSON (tensor -> dtype, shape, byte range), then the tensors.
class Safetensors {
 public:
  explicit Safetensors(const std::filesystem::path& path) : path_(path) {
    std::ifstream file = open(path);
    file.seekg(0, std::ios::end);
    const auto size = static_cast<uint64_t>(file.tellg());
    file.seekg(0);
    uint64_t header_bytes = 0;
    if (!file.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes))
      fail(path, "is no safetensors file: shorter than 8 bytes");
    if (header_bytes > size - sizeof header_bytes)
      fail(path, "is no safetensors file, or cut short: its header passes its end");
    std::string text(header_bytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(header_bytes));
    try {
      header_ = json::parse(text);
    } catch (const json::exception&) {
      fail(path, "is no safetensors file: its header is not JSON");
    }
    data_.resize(size - sizeof header_bytes - header_bytes);
    if (!file.read(data_.data(), static_cast<std::streamsize>(data_.size()))) fail(path, "read error");
  }

  // The first `rows` rows (all, if 0) of an FP32 tensor whose shape must be `shape`.
  std::vector<float> tensor(const std::string& name, const std::vector<int>& shape, int rows = 0) const {
    const auto found = header_.find(name);
    if (found == header_.end()) fail(path_, "has no tensor " + name);
    uint64_t begin = 0, end = 0;
    std::vector<int> actual;
    try {
      if (found->at("dtype") != "F32") fail(path_, name + " is " + found->at("dtype").dump() + ", not \"F32\"");
      found->at("shape").get_to(actual);
      begin = found->at("data_offsets").at(0);
      end = found->at("data_offsets").at(1);
    } catch (const json::exception& e) {
      fail(path_, name + ": " + e.what());
    }
    if (actual != shape)
      fail(path_, name + " has shape " + json(actual).dump() + ", the config asks for " + json(shape).dump());
    uint64_t count = 1;
    for (const int extent : shape) count *= static_cast<uint64_t>(extent);
    if (begin > end || end - begin != count * sizeof(float)) fail(path_, name + ": byte range and shape disagree");
    if (end > data_.size()) fail(path_, "is cut short: " + name + " passes its end");
    if (rows > 0) count = count / static_cast<uint64_t>(shape[0]) * static_cast<uint64_t>(rows);
    std::vector<float> values(count);
    std::memcpy(values.data(), data_.data() + begin, count * sizeof(float));
    return values;
  }

 private:
  std::filesystem::path path_;
  json header_;
  std::vector<char> data_;
};

std::vector<Bf16> rounded(const std::vector<float>& values) {
  std::vector<Bf16> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), to_bf16);
  return result;
}

Linear read_linear(const Safetensors& file, const std::string& name, int in, int out) {
  Linear layer{.in = in, .out = out, .weight = {}, .bias = {}, .bias32 = file.tensor(name + ".bias", {out})};
  layer.weight = rounded(file.tensor(name + ".weight", {out, in}));
  layer.bias = rounded(layer.bias32);
  return layer;
}

LayerNorm read_norm(const Safetensors& file, const std::string& name, int hidden) {
  return {.gain = file.tensor(name + ".weight", {hidden}), .bias = file.tensor(name + ".bias", {hidden})};
}

}  // namespace

ModelWeights load_weights(const std::filesystem::path& folder) {
  ModelWeights model;
  model.config = read_config(folder / "config.json");
  const ModelConfig& c = model.config;
  const Safetensors file(folder / "model.safetensors");
  model.word = file.tensor("embeddings.word_embeddings.weight", {c.vocabulary, c.hidden});
  model.position = file.tensor("embeddings.position_embeddings.weight", {c.positions, c.hidden});
  // A sentence is one segment: row 0 of the two token types
  model.token_type = file.tensor("embeddings.token_type_embeddings.weight", {2, c.hidden}, 1);
  model.embedding_norm = read_norm(file, "embeddings.LayerNorm", c.hidden);
  for (int i = 0; i < c.layers; ++i) {
    const std::string name = "encoder.layer." + std::to_string(i) + ".";
    LayerWeights& layer = model.layers.emplace_back();
    layer.query = read_linear(file, name + "attention.self.query", c.hidden, c.hidden);
    layer.key = read_linear(file, name + "attention.self.key", c.hidden, c.hidden);
    layer.value = read_linear(file, name + "attention.self.value", c.hidden, c.hidden);
    layer.attention_output = read_linear(file, name + "attention.output.dense", c.hidden, c.hidden);
    layer.attention_norm = read_norm(file, name + "attention.output.LayerNorm", c.hidden);
    layer.intermediate = read_linear(file, name + "intermediate.dense", c.hidden, c.intermediate);
    layer.output = read_linear(file, name + "output.dense", c.intermediate, c.hidden);
    layer.output_norm = read_norm(file, name + "output.LayerNorm", c.hidden);
  }
  return model;
}

}  // namespace encoder

// SPDX-License-Identifier: MIT
// Weights: takes a model folder (config.json, model.safetensors), gives its sizes and FP32 tensors; host code, no CUDA.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/encoder/bfloat16.h"

namespace encoder {

enum class Activation { kGelu, kRelu };

// config.json; every count in elements.
struct ModelConfig {
  int hidden = 0, layers = 0, heads = 0, intermediate = 0, vocabulary = 0, positions = 0;
  float norm_epsilon = 0;
  Activation activation = Activation::kGelu;

  int head_size() const { return hidden / heads; }
};

// A layer y = W x + b. weight [out][in] and bias [out] as the device takes them, bias32 as the file has it.
struct Linear {
  int in = 0, out = 0;
  std::vector<Bf16> weight, bias;
  std::vector<float> bias32;
};

// gain [hidden], bias [hidden]
struct LayerNorm {
  std::vector<float> gain, bias;
};

struct LayerWeights {
  Linear query, key, value, attention_output, intermediate, output;
  LayerNorm attention_norm, output_norm;
};

struct ModelWeights {
  ModelConfig config;
  std::vector<float> word, position, token_type;  // [vocabulary | positions | 1][hidden]
  LayerNorm embedding_norm;
  std::vector<LayerWeights> layers;
};

// Throws std::runtime_error with one line that names the file and what is wrong with it: absent, cut short, a tensor
// missing or of another shape or type, a config of another architecture.
ModelWeights load_weights(const std::filesystem::path& folder);

}  // namespace encoder

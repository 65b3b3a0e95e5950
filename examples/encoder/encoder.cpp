// SPDX-License-Identifier: MIT
// Encoder: takes token ids, gives sentence embeddings; products in BF16 on the device, the rest in FP32 on the CPU.
#include "examples/encoder/encoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace encoder {
namespace {

// What NVIDIA's guide recommends for Hopper; smaller devices use less of it.
constexpr std::size_t kLtWorkspaceBytes = std::size_t{32} << 20;

constexpr std::size_t count(int a, int b, int c = 1, int d = 1) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c) *
         static_cast<std::size_t>(d);
}

template <typename T>
constexpr cudaDataType_t kDataType = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;

// Each row in place: (row - mean) / sqrt(variance + epsilon) x gain + bias, variance by N.
void normalize_rows(std::vector<float>& x, const LayerNorm& norm, float epsilon) {
  const std::size_t hidden = norm.gain.size();
  for (std::size_t begin = 0; begin < x.size(); begin += hidden) {
    const std::span row(x.data() + begin, hidden);
    float sum = 0;
    for (const float v : row) sum += v;
    const float mean = sum / static_cast<float>(hidden);
    float squares = 0;
    for (const float v : row) squares += (v - mean) * (v - mean);
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(hidden) + epsilon);
    for (std::size_t i = 0; i < hidden; ++i) row[i] = (row[i] - mean) * scale * norm.gain[i] + norm.bias[i];
  }
}

// [rows][heads x d] + bias -> [sentences][heads][length][d], as a strided batch wants it.
void split_heads(std::vector<Bf16>& x, const std::vector<float>& bias, int sentences, int heads, int length, int d) {
  std::vector<Bf16> split(x.size());
  for (int s = 0; s < sentences; ++s) {
    for (int t = 0; t < length; ++t) {
      for (int h = 0; h < heads; ++h) {
        const std::size_t from = (count(s, length) + static_cast<std::size_t>(t)) * count(heads, d) + count(h, d);
        const std::size_t to = (count(s, heads) + static_cast<std::size_t>(h)) * count(length, d) + count(t, d);
        for (std::size_t i = 0; i < static_cast<std::size_t>(d); ++i) {
          split[to + i] = to_bf16(to_float(x[from + i]) + bias[count(h, d) + i]);
        }
      }
    }
  }
  x = std::move(split);
}

// The way back, with nothing added.
void join_heads(std::vector<Bf16>& x, int sentences, int heads, int length, int d) {
  std::vector<Bf16> joined(x.size());
  for (int s = 0; s < sentences; ++s) {
    for (int h = 0; h < heads; ++h) {
      for (int t = 0; t < length; ++t) {
        const std::size_t from = (count(s, heads) + static_cast<std::size_t>(h)) * count(length, d) + count(t, d);
        const std::size_t to = (count(s, length) + static_cast<std::size_t>(t)) * count(heads, d) + count(h, d);
        std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(from), d, joined.begin() + static_cast<std::ptrdiff_t>(to));
      }
    }
  }
  x = std::move(joined);
}

// One row of scores: the first `used` are real keys, the rest padding, whose weight is exactly 0.
void softmax(std::span<const float> scores, std::size_t used, std::span<Bf16> probabilities) {
  const float largest = *std::max_element(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(used));
  std::vector<float> weights(used);
  float sum = 0;
  for (std::size_t i = 0; i < used; ++i) sum += weights[i] = std::exp(scores[i] - largest);
  for (std::size_t i = 0; i < scores.size(); ++i) probabilities[i] = to_bf16(i < used ? weights[i] / sum : 0.0f);
}

template <typename T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}

MatrixLayout bf16_layout(int rows, int columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                   rows),
        "cublasLtMatrixLayoutCreate");
  return MatrixLayout(layout);
}

}  // namespace

Encoder::Workspace::Workspace(const ModelConfig& config, const Shape& shape)
    : x(count(shape.rows(), config.hidden)),
      x16(x.size()),
      query(x.size()),
      key(x.size()),
      value(x.size()),
      context(x.size()),
      scores(count(shape.sentences, config.heads, shape.length, shape.length)),
      dense(x.size()),
      probabilities(scores.size()),
      x_dev(x.size()),
      query_dev(x.size()),
      key_dev(x.size()),
      value_dev(x.size()),
      context_dev(x.size()),
      probabilities_dev(scores.size()),
      projected_dev(x.size()),
      intermediate_dev(count(shape.rows(), config.intermediate)),
      scores_dev(scores.size()),
      dense_dev(x.size()) {}

Encoder::Encoder(const ModelWeights& weights) : weights_(weights) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  stream_ = Stream(stream);
  cublasHandle_t cublas = nullptr;
  check(cublasCreate(&cublas), "cublasCreate");
  cublas_ = Cublas(cublas);
  check(cublasSetStream(cublas, stream), "cublasSetStream");
  cublasLtHandle_t lt = nullptr;
  check(cublasLtCreate(&lt), "cublasLtCreate");
  lt_ = CublasLt(lt);
  lt_workspace_ = DeviceBuffer<std::byte>(kLtWorkspaceBytes);
  for (const LayerWeights& layer : weights.layers) {
    layers_.push_back({to_device(layer.query), to_device(layer.key), to_device(layer.value),
                       to_device(layer.attention_output), to_device(layer.intermediate), to_device(layer.output)});
  }
  synchronize();
}

Encoder::DeviceLinear Encoder::to_device(const Linear& layer) const {
  DeviceLinear result{layer.in, layer.out, DeviceBuffer<Bf16>(layer.weight.size()),
                      DeviceBuffer<Bf16>(layer.bias.size())};
  result.weight.upload(layer.weight, stream_.get());
  result.bias.upload(layer.bias, stream_.get());
  return result;
}

void Encoder::synchronize() const {
  check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
}

// A row-major matrix is the transpose of a column-major one, so y^T [out x rows] = W x^T: weights are stored [out][in]
// and go in transposed, activations as they are.
template <typename T>
void Encoder::project(const DeviceLinear& layer, const DeviceBuffer<Bf16>& x, const DeviceBuffer<T>& y,
                      int rows) const {
  const float one = 1, zero = 0;
  check(cublasGemmEx(cublas_.get(), CUBLAS_OP_T, CUBLAS_OP_N, layer.out, rows, layer.in, &one, layer.weight.get(),
                     CUDA_R_16BF, layer.in, x.get(), CUDA_R_16BF, layer.in, &zero, y.get(), kDataType<T>, layer.out,
                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
}

void Encoder::project_lt(const DeviceLinear& layer, cublasLtEpilogue_t epilogue, const DeviceBuffer<Bf16>& x,
                         const DeviceBuffer<Bf16>& y, int rows) const {
  cublasLtMatmulDesc_t desc = nullptr;
  check(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const MatmulDesc desc_owner(desc);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(layer.bias.get()));
  const MatrixLayout a = bf16_layout(layer.in, layer.out);
  const MatrixLayout b = bf16_layout(layer.in, rows);
  const MatrixLayout d = bf16_layout(layer.out, rows);

  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const MatmulPreference preference_owner(preference);
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kLtWorkspaceBytes,
                                             sizeof kLtWorkspaceBytes),
        "cublasLtMatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t choice{};
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(lt_.get(), desc, a.get(), b.get(), d.get(), d.get(), preference, 1, &choice,
                                       &found),
        "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0) throw std::runtime_error("cublasLtMatmulAlgoGetHeuristic: no algorithm for this product");

  const float one = 1, zero = 0;
  check(cublasLtMatmul(lt_.get(), desc, &one, layer.weight.get(), a.get(), x.get(), b.get(), &zero, y.get(), d.get(),
                       y.get(), d.get(), &choice.algo, lt_workspace_.get(), kLtWorkspaceBytes, stream_.get()),
        "cublasLtMatmul");
}

void Encoder::embed(const std::vector<std::vector<int32_t>>& tokens, int32_t pad, const Shape& shape,
                    Workspace& w) const {
  const auto hidden = static_cast<std::size_t>(weights_.config.hidden);
  const auto length = static_cast<std::size_t>(shape.length);
  for (std::size_t s = 0; s < tokens.size(); ++s) {
    for (std::size_t t = 0; t < length; ++t) {
      const auto id = static_cast<std::size_t>(t < tokens[s].size() ? tokens[s][t] : pad);
      for (std::size_t i = 0; i < hidden; ++i) {
        w.x[(s * length + t) * hidden + i] =
            weights_.word.at(id * hidden + i) + weights_.token_type[i] + weights_.position[t * hidden + i];
      }
    }
  }
  normalize_rows(w.x, weights_.embedding_norm, weights_.config.norm_epsilon);
}

void Encoder::upload_activations(Workspace& w) const {
  std::transform(w.x.begin(), w.x.end(), w.x16.begin(), to_bf16);
  w.x_dev.upload(w.x16, stream_.get());
}

void Encoder::attention(const LayerWeights& host, const DeviceLayer& layer, const std::vector<int>& lengths,
                        const Shape& shape, Workspace& w) const {
  const ModelConfig& c = weights_.config;
  const int t = shape.length, d = c.head_size(), batch = shape.sentences * c.heads;
  const float zero = 0, one = 1, scale = 1.0f / std::sqrt(static_cast<float>(d));

  upload_activations(w);
  project(layer.query, w.x_dev, w.query_dev, shape.rows());
  project(layer.key, w.x_dev, w.key_dev, shape.rows());
  project(layer.value, w.x_dev, w.value_dev, shape.rows());
  w.query_dev.download(w.query, stream_.get());
  w.key_dev.download(w.key, stream_.get());
  w.value_dev.download(w.value, stream_.get());
  synchronize();
  split_heads(w.query, host.query.bias32, shape.sentences, c.heads, t, d);
  split_heads(w.key, host.key.bias32, shape.sentences, c.heads, t, d);
  split_heads(w.value, host.value.bias32, shape.sentences, c.heads, t, d);
  w.query_dev.upload(w.query, stream_.get());
  w.key_dev.upload(w.key, stream_.get());
  w.value_dev.upload(w.value, stream_.get());

  // scores [query][key], keys running fastest: column-major [key x query] = K Q^T
  check(cublasGemmStridedBatchedEx(cublas_.get(), CUBLAS_OP_T, CUBLAS_OP_N, t, t, d, &scale, w.key_dev.get(),
                                   CUDA_R_16BF, d, static_cast<long long>(t) * d, w.query_dev.get(), CUDA_R_16BF, d,
                                   static_cast<long long>(t) * d, &zero, w.scores_dev.get(), CUDA_R_32F, t,
                                   static_cast<long long>(t) * t, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmStridedBatchedEx (scores)");
  w.scores_dev.download(w.scores, stream_.get());
  synchronize();
  const auto row = static_cast<std::size_t>(t);
  for (std::size_t begin = 0; begin < w.scores.size(); begin += row) {
    const std::size_t sentence = begin / (count(c.heads, t) * row);
    softmax({w.scores.data() + begin, row}, static_cast<std::size_t>(lengths[sentence]),
            {w.probabilities.data() + begin, row});
  }
  w.probabilities_dev.upload(w.probabilities, stream_.get());

  // context [query][d]: column-major [d x query] = V^T P^T
  check(
      cublasGemmStridedBatchedEx(cublas_.get(), CUBLAS_OP_N, CUBLAS_OP_N, d, t, t, &one, w.value_dev.get(), CUDA_R_16BF,
                                 d, static_cast<long long>(t) * d, w.probabilities_dev.get(), CUDA_R_16BF, t,
                                 static_cast<long long>(t) * t, &zero, w.context_dev.get(), CUDA_R_16BF, d,
                                 static_cast<long long>(t) * d, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
      "cublasGemmStridedBatchedEx (context)");
  w.context_dev.download(w.context, stream_.get());
  synchronize();
  join_heads(w.context, shape.sentences, c.heads, t, d);
  w.context_dev.upload(w.context, stream_.get());

  project_lt(layer.attention_output, CUBLASLT_EPILOGUE_BIAS, w.context_dev, w.projected_dev, shape.rows());
  w.projected_dev.download(w.x16, stream_.get());
  synchronize();
  for (std::size_t i = 0; i < w.x.size(); ++i) w.x[i] += to_float(w.x16[i]);
  normalize_rows(w.x, host.attention_norm, c.norm_epsilon);
}

void Encoder::feed_forward(const LayerWeights& host, const DeviceLayer& layer, const Shape& shape, Workspace& w) const {
  const ModelConfig& c = weights_.config;
  const auto epilogue = c.activation == Activation::kGelu ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_RELU_BIAS;
  upload_activations(w);
  project_lt(layer.intermediate, epilogue, w.x_dev, w.intermediate_dev, shape.rows());
  project(layer.output, w.intermediate_dev, w.dense_dev, shape.rows());
  w.dense_dev.download(w.dense, stream_.get());
  synchronize();
  const auto hidden = static_cast<std::size_t>(c.hidden);
  for (std::size_t i = 0; i < w.x.size(); ++i) w.x[i] += w.dense[i] + host.output.bias32[i % hidden];
  normalize_rows(w.x, host.output_norm, c.norm_epsilon);
}

std::vector<float> Encoder::encode(const std::vector<std::vector<int32_t>>& tokens, int32_t pad) {
  const ModelConfig& c = weights_.config;
  std::vector<int> lengths;
  lengths.reserve(tokens.size());
  for (const std::vector<int32_t>& sentence : tokens) lengths.push_back(static_cast<int>(sentence.size()));
  if (lengths.empty()) return {};
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  // Multiples of 8 elements keep every BF16 leading dimension on a 16-byte boundary
  const Shape shape{.sentences = static_cast<int>(tokens.size()), .length = (*longest + 7) / 8 * 8};
  if (*shortest == 0 || shape.length > c.positions)
    throw std::invalid_argument("a sentence is empty or longer than the model takes");

  Workspace w(c, shape);
  try {
    embed(tokens, pad, shape, w);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      attention(weights_.layers[i], layers_[i], lengths, shape, w);
      feed_forward(weights_.layers[i], layers_[i], shape, w);
    }
  } catch (...) {
    // Copies into the workspace may still be in flight, and its host memory goes next
    static_cast<void>(cudaStreamSynchronize(stream_.get()));
    throw;
  }

  const auto hidden = static_cast<std::size_t>(c.hidden);
  std::vector<float> embeddings(tokens.size() * hidden);
  for (std::size_t s = 0; s < tokens.size(); ++s) {
    const std::span out(embeddings.data() + s * hidden, hidden);
    for (std::size_t t = 0; t < tokens[s].size(); ++t) {
      for (std::size_t i = 0; i < hidden; ++i)
        out[i] += w.x[(s * static_cast<std::size_t>(shape.length) + t) * hidden + i];
    }
    // The mean's divisor drops out of the normalisation
    float squares = 0;
    for (const float v : out) squares += v * v;
    const float norm = std::sqrt(squares);
    for (float& v : out) v /= std::max(norm, std::numeric_limits<float>::min());
  }
  return embeddings;
}

}  // namespace encoder

// SPDX-License-Identifier: MIT
// Encoder: takes token ids, gives sentence embeddings; products in BF16 on the device, the rest in FP32 on the CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/encoder/device.h"
#include "examples/encoder/weights.h"

namespace encoder {

// The products of one layer, in order, for R = sentences x padded length rows, hidden H, intermediate I, heads of d:
//   query, key, value   [R][H] = x W^T         cublasGemmEx                  BF16 out; bias on the CPU
//   scores              [T][T] = Q K^T / sqrt d cublasGemmStridedBatchedEx   FP32 out; a batch of sentences x heads
//   context             [T][d] = P V           cublasGemmStridedBatchedEx    BF16 out; P the softmax, from the CPU
//   attention output    [R][H]                 cublasLtMatmul, BIAS          BF16 out
//   intermediate        [R][I]                 cublasLtMatmul, GELU_BIAS     BF16 out, stays on the device
//   output              [R][H]                 cublasGemmEx                  FP32 out; bias on the CPU
// Residuals, layer norms, softmax, pooling: FP32 on the CPU in a fixed order, so equal input gives equal bits.
class Encoder {
 public:
  // Puts the weights on the current device; weights must outlive the encoder. Throws std::runtime_error on any failure.
  explicit Encoder(const ModelWeights& weights);

  // tokens: one sentence each, 1 to config.positions ids below config.vocabulary; pad: the id that fills up to the
  // longest sentence of the batch. Returns [sentences][hidden], each row of length 1: the mean over the sentence's own
  // tokens, normalised. Uses one stream of its own and has synchronised it when it returns or throws.
  std::vector<float> encode(const std::vector<std::vector<int32_t>>& tokens, int32_t pad);

 private:
  struct DeviceLinear {
    int in = 0, out = 0;
    DeviceBuffer<Bf16> weight, bias;
  };
  struct DeviceLayer {
    DeviceLinear query, key, value, attention_output, intermediate, output;
  };
  struct Shape {
    int sentences, length;  // length: tokens a sentence, padded to a multiple of 8
    int rows() const { return sentences * length; }
  };
  // Host and device copies of the activations of one batch shape.
  struct Workspace {
    Workspace(const ModelConfig& config, const Shape& shape);

    std::vector<float> x;                                                   // [R][H]
    std::vector<Bf16> x16, query, key, value, context;                      // [R][H], the last also [S][heads][T][d]
    std::vector<float> scores, dense;                                       // [S][heads][T][T], [R][H]
    std::vector<Bf16> probabilities;                                        // [S][heads][T][T]
    DeviceBuffer<Bf16> x_dev, query_dev, key_dev, value_dev, context_dev;   // as above
    DeviceBuffer<Bf16> probabilities_dev, projected_dev, intermediate_dev;  // [S][heads][T][T], [R][H], [R][I]
    DeviceBuffer<float> scores_dev, dense_dev;
  };

  DeviceLinear to_device(const Linear& layer) const;
  void embed(const std::vector<std::vector<int32_t>>& tokens, int32_t pad, const Shape& shape, Workspace& w) const;
  void attention(const LayerWeights& host, const DeviceLayer& layer, const std::vector<int>& lengths,
                 const Shape& shape, Workspace& w) const;
  void feed_forward(const LayerWeights& host, const DeviceLayer& layer, const Shape& shape, Workspace& w) const;
  void upload_activations(Workspace& w) const;
  void synchronize() const;

  // y [rows][out] = x [rows][in] W^T; y is BF16 or FP32.
  template <typename T>
  void project(const DeviceLinear& layer, const DeviceBuffer<Bf16>& x, const DeviceBuffer<T>& y, int rows) const;
  // The same with bias and activation in the epilogue; y is BF16.
  void project_lt(const DeviceLinear& layer, cublasLtEpilogue_t epilogue, const DeviceBuffer<Bf16>& x,
                  const DeviceBuffer<Bf16>& y, int rows) const;

  const ModelWeights& weights_;
  Stream stream_;
  Cublas cublas_;
  CublasLt lt_;
  DeviceBuffer<std::byte> lt_workspace_;
  std::vector<DeviceLayer> layers_;
};

}  // namespace encoder

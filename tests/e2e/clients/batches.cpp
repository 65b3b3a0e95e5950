// SPDX-License-Identifier: MIT
// batches: a plain cuBLAS program of batched products whose matrices are reached through device arrays of addresses,
// and of grouped ones, all in place with beta = 0.5. It knows nothing of sdcguard.
//
//   batches NAME DUMP [N]    runs the scene N times, writes the bytes of all results to DUMP
#include "scene.h"

#include <memory>
#include <vector>

namespace {

using namespace scene;

constexpr int kEdge = 96;
constexpr size_t kFloats = size_t{kEdge} * kEdge;

// FP32 matrices, and the device array of their addresses.
struct Pointers {
  std::vector<void*> matrices;
  void** array = nullptr;
  Pointers(int count, uint64_t seed, int edge) {
    const size_t elems = static_cast<size_t>(edge) * static_cast<size_t>(edge);
    std::vector<float> values(elems);
    uint64_t state = seed;
    for (int i = 0; i < count; ++i) {
      for (float& value : values) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        value = static_cast<float>(static_cast<int64_t>(state >> 40) - (1 << 23)) * 0x1p-23f;
      }
      void* matrix;
      check(cudaMalloc(&matrix, elems * 4), "cudaMalloc");
      check(cudaMemcpy(matrix, values.data(), elems * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
      matrices.push_back(matrix);
    }
    check(cudaMalloc(reinterpret_cast<void**>(&array), matrices.size() * sizeof(void*)), "cudaMalloc");
    check(cudaMemcpy(array, matrices.data(), matrices.size() * sizeof(void*), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~Pointers() {
    for (void* matrix : matrices) cudaFree(matrix);
    cudaFree(array);
  }
  Pointers(const Pointers&) = delete;
  Pointers& operator=(const Pointers&) = delete;
  const float* const* in() const { return reinterpret_cast<const float* const*>(array); }
  float* const* out() const { return reinterpret_cast<float* const*>(array); }
  void dump_all(size_t elems) const {
    std::vector<char> bytes(elems * 4);
    for (void* matrix : matrices) {
      check(cudaMemcpy(bytes.data(), matrix, bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
      scene::dump.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }
};

void pointers(int count) {
  constexpr int kBatch = 5;
  Stream stream;
  Handle handle(stream.stream);
  const Pointers a(kBatch, 1, kEdge), b(kBatch, 2, kEdge), c(kBatch, 3, kEdge);
  const float alpha = 1, beta = 0.5f;
  for (int i = 0; i < count; ++i) {
    check(cublasSgemmBatched(handle.handle, CUBLAS_OP_N, CUBLAS_OP_T, kEdge, kEdge, kEdge, &alpha, a.in(), kEdge,
                             b.in(), kEdge, &beta, c.out(), kEdge, kBatch),
          "cublasSgemmBatched");
  }
  check(cudaStreamSynchronize(stream.stream), "cudaStreamSynchronize");
  c.dump_all(kFloats);
}

// Three groups of 2, 1 and 3 products; the second has another shape and no addend.
void grouped(int count) {
  Stream stream;
  Handle handle(stream.stream);
  const Pointers a(6, 1, kEdge), b(6, 2, kEdge), c(6, 3, kEdge);
  const cublasOperation_t none[] = {CUBLAS_OP_N, CUBLAS_OP_N, CUBLAS_OP_N};
  const cublasOperation_t mixed[] = {CUBLAS_OP_T, CUBLAS_OP_N, CUBLAS_OP_N};
  const int m[] = {kEdge, 64, kEdge}, n[] = {kEdge, 80, kEdge}, k[] = {kEdge, 72, kEdge}, ld[] = {kEdge, kEdge, kEdge};
  const float alpha[] = {1, 1, 1}, beta[] = {0.5f, 0, 0.5f};
  const int sizes[] = {2, 1, 3};
  for (int i = 0; i < count; ++i) {
    check(cublasSgemmGroupedBatched(handle.handle, mixed, none, m, n, k, alpha, a.in(), ld, b.in(), ld, beta, c.out(),
                                    ld, 3, sizes),
          "cublasSgemmGroupedBatched");
  }
  check(cudaStreamSynchronize(stream.stream), "cudaStreamSynchronize");
  c.dump_all(kFloats);
}

constexpr Scene kScenes[] = {{"pointers", pointers}, {"grouped", grouped}};

}  // namespace

int main(int argc, char** argv) {
  return run_scene("batches", kScenes, argc, argv);
}

// SPDX-License-Identifier: MIT
// mixed: a plain cuBLAS program: a fixed sequence of products over several entry points, types, layouts, scalars,
// batches and streams, none waited for until all are enqueued. Operands are put in place in stream order before each
// product and wiped after it: who reads one early or late reads something else. It knows nothing of sdcguard.
//
//   mixed DUMP [--rounds N] [--device N] [--shift BYTES]
//
// DUMP: one block a product, in the order of the calls: the number of bytes as 64-bit integer, then D as it lies.
// --shift allocates so much before all else, so that every later address differs.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasGetStatusString(status));
}

size_t bytes_of(cudaDataType_t type) {
  return type == CUDA_R_32F ? 4 : 2;
}

// Uniform in [-1, 1) by splitmix64, rounded to `type`.
std::vector<char> random_matrix(cudaDataType_t type, int64_t elems, uint64_t seed) {
  std::vector<char> values(static_cast<size_t>(elems) * bytes_of(type));
  uint64_t state = seed * 0x9e3779b97f4a7c15ull;
  for (size_t i = 0; i < static_cast<size_t>(elems); ++i) {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    const float value = static_cast<float>(static_cast<int64_t>((z ^ (z >> 31)) >> 40) - (1 << 23)) * 0x1p-23f;
    const __nv_bfloat16 as_bfloat = __float2bfloat16(value);
    const __half as_half = __float2half(value);
    const void* from = type == CUDA_R_16BF  ? static_cast<const void*>(&as_bfloat)
                       : type == CUDA_R_16F ? static_cast<const void*>(&as_half)
                                            : &value;
    memcpy(values.data() + i * bytes_of(type), from, bytes_of(type));
  }
  return values;
}

// A matrix that the program may wipe, and the copy that it is made from again. Never freed: the process ends soon.
struct Matrix {
  void* live = nullptr;
  void* kept = nullptr;
  size_t bytes;
  explicit Matrix(const std::vector<char>& from) : bytes(from.size()) {
    check(cudaMalloc(&live, bytes), "cudaMalloc");
    check(cudaMalloc(&kept, bytes), "cudaMalloc");
    check(cudaMemcpy(kept, from.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  void put(cudaStream_t stream) const {
    check(cudaMemcpyAsync(live, kept, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  }
  void wipe(cudaStream_t stream) const { check(cudaMemsetAsync(live, 0, bytes, stream), "cudaMemsetAsync"); }
};

enum class Api { kGemmEx, kGemmEx64, kStrided, kSgemm, kHgemm, kLt };
enum class On { kFirst, kSecond, kLegacy, kPerThread };  // streams of the program

struct Product {
  Api api;
  On on;
  cudaDataType_t type, type_d;
  int m, n, k, batch;
  cublasOperation_t transa, transb;
  float alpha, beta;
  bool device_scalars;
  cublasLtEpilogue_t epilogue;
};

constexpr auto N = CUBLAS_OP_N, T = CUBLAS_OP_T;
constexpr auto kBF16 = CUDA_R_16BF, kF16 = CUDA_R_16F, kF32 = CUDA_R_32F;
constexpr auto kPlain = CUBLASLT_EPILOGUE_DEFAULT;

constexpr Product kProducts[] = {
    {Api::kGemmEx, On::kFirst, kBF16, kBF16, 32, 24, 40, 1, N, N, 1, 0, false, kPlain},
    {Api::kStrided, On::kSecond, kBF16, kBF16, 24, 16, 32, 3, T, N, 1, 0, false, kPlain},
    {Api::kGemmEx, On::kFirst, kF16, kF16, 32, 40, 24, 1, N, T, 0.5f, 1, false, kPlain},
    {Api::kSgemm, On::kLegacy, kF32, kF32, 33, 17, 23, 1, N, N, 1, -0.25f, false, kPlain},
    {Api::kLt, On::kSecond, kBF16, kBF16, 32, 24, 32, 1, T, N, 1, 0, false, CUBLASLT_EPILOGUE_GELU_BIAS},
    {Api::kHgemm, On::kPerThread, kF16, kF16, 16, 16, 16, 1, N, N, 1, 0, false, kPlain},
    {Api::kGemmEx64, On::kFirst, kBF16, kF32, 24, 32, 48, 1, T, T, 2, 0, false, kPlain},
    {Api::kSgemm, On::kPerThread, kF32, kF32, 24, 24, 24, 1, T, N, 1.5f, 0.5f, true, kPlain},
    {Api::kLt, On::kFirst, kF16, kF16, 32, 16, 32, 2, N, N, -1, 0.5f, false, CUBLASLT_EPILOGUE_RELU},
    {Api::kGemmEx, On::kSecond, kBF16, kBF16, 5, 3, 7, 1, N, N, 1, 0, false, kPlain},
};

class Sequence {
 public:
  Sequence() {
    for (cudaStream_t* stream : {&first_, &second_})
      check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreate");
    uint64_t seed = 1;
    for (const Product& p : kProducts) {
      a_.emplace_back(random_matrix(p.type, int64_t{p.m} * p.k * p.batch, seed++));
      b_.emplace_back(random_matrix(p.type, int64_t{p.k} * p.n * p.batch, seed++));
      d_.emplace_back(random_matrix(p.type_d, int64_t{p.m} * p.n * p.batch, seed++));
      bias_.emplace_back(random_matrix(p.type_d, p.m, seed++));
    }
    check(cudaMalloc(&scalars_, 2 * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&workspace_, kWorkspaceBytes), "cudaMalloc");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cublasCreate(&handle_), "cublasCreate");
    check(cublasLtCreate(&lt_), "cublasLtCreate");
  }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  void run() {
    for (size_t i = 0; i < std::size(kProducts); ++i) {
      const cudaStream_t stream = stream_of(kProducts[i].on);
      for (const Matrix* one : {&a_[i], &b_[i], &d_[i], &bias_[i]}) one->put(stream);
      multiply(i, stream);
      for (const Matrix* one : {&a_[i], &b_[i], &bias_[i]}) one->wipe(stream);
    }
  }

  void write(std::ofstream& dump) const {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (const Matrix& d : d_) {
      std::vector<char> bytes(d.bytes);
      check(cudaMemcpy(bytes.data(), d.live, d.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
      const uint64_t count = d.bytes;
      dump.write(reinterpret_cast<const char*>(&count), sizeof(count));
      dump.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }

 private:
  static constexpr size_t kWorkspaceBytes = size_t{1} << 20;

  cudaStream_t stream_of(On on) const {
    if (on == On::kFirst) return first_;
    if (on == On::kSecond) return second_;
    return on == On::kLegacy ? nullptr : cudaStreamPerThread;
  }

  void multiply(size_t i, cudaStream_t stream) {
    const Product& p = kProducts[i];
    void *a = a_[i].live, *b = b_[i].live, *d = d_[i].live;
    const int lda = p.transa == T ? p.k : p.m, ldb = p.transb == T ? p.n : p.k;
    const float host_scalars[] = {p.alpha, p.beta};
    const void *alpha = &host_scalars[0], *beta = &host_scalars[1];
    if (p.api != Api::kLt) check(cublasSetStream(handle_, stream), "cublasSetStream");
    if (p.device_scalars) {
      check(cudaMemcpyAsync(scalars_, host_scalars, sizeof(host_scalars), cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
      alpha = scalars_, beta = static_cast<float*>(scalars_) + 1;
      check(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE), "cublasSetPointerMode");
    }
    switch (p.api) {
      case Api::kGemmEx:
        check(cublasGemmEx(handle_, p.transa, p.transb, p.m, p.n, p.k, alpha, a, p.type, lda, b, p.type, ldb, beta, d,
                           p.type_d, p.m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "cublasGemmEx");
        break;
      case Api::kGemmEx64:
        check(cublasGemmEx_64(handle_, p.transa, p.transb, p.m, p.n, p.k, alpha, a, p.type, lda, b, p.type, ldb, beta,
                              d, p.type_d, p.m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "cublasGemmEx_64");
        break;
      case Api::kStrided:
        check(cublasGemmStridedBatchedEx(handle_, p.transa, p.transb, p.m, p.n, p.k, alpha, a, p.type, lda,
                                         int64_t{p.m} * p.k, b, p.type, ldb, int64_t{p.k} * p.n, beta, d, p.type_d, p.m,
                                         int64_t{p.m} * p.n, p.batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
              "cublasGemmStridedBatchedEx");
        break;
      case Api::kSgemm:
        check(cublasSgemm(handle_, p.transa, p.transb, p.m, p.n, p.k, static_cast<const float*>(alpha),
                          static_cast<float*>(a), lda, static_cast<float*>(b), ldb, static_cast<const float*>(beta),
                          static_cast<float*>(d), p.m),
              "cublasSgemm");
        break;
      case Api::kHgemm: {
        const __half half_alpha = __float2half(p.alpha), half_beta = __float2half(p.beta);
        check(cublasHgemm(handle_, p.transa, p.transb, p.m, p.n, p.k, &half_alpha, static_cast<__half*>(a), lda,
                          static_cast<__half*>(b), ldb, &half_beta, static_cast<__half*>(d), p.m),
              "cublasHgemm");
        break;
      }
      case Api::kLt:
        multiply_lt(p, a, lda, b, ldb, d, bias_[i].live, alpha, beta, stream);
    }
    if (p.device_scalars) check(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_HOST), "cublasSetPointerMode");
  }

  template <class Value>
  static void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  }

  static cublasLtMatrixLayout_t layout(cudaDataType_t type, int rows, int columns, int batch) {
    cublasLtMatrixLayout_t made;
    check(cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
          "cublasLtMatrixLayoutCreate");
    const int32_t count = batch;
    const int64_t stride = int64_t{rows} * columns;
    check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
          "cublasLtMatrixLayoutSetAttribute");
    check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
          "cublasLtMatrixLayoutSetAttribute");
    return made;
  }

  // In place: C is D.
  void multiply_lt(const Product& p, const void* a, int lda, const void* b, int ldb, void* d, void* bias,
                   const void* alpha, const void* beta, cudaStream_t stream) {
    cublasLtMatmulDesc_t desc;
    check(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, p.transa);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, p.transb);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    if (p.epilogue == CUBLASLT_EPILOGUE_GELU_BIAS) set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    cublasLtMatrixLayout_t layouts[] = {layout(p.type, lda, p.transa == T ? p.m : p.k, p.batch),
                                        layout(p.type, ldb, p.transb == T ? p.k : p.n, p.batch),
                                        layout(p.type_d, p.m, p.n, p.batch)};
    check(cublasLtMatmul(lt_, desc, alpha, a, layouts[0], b, layouts[1], beta, d, layouts[2], d, layouts[2], nullptr,
                         workspace_, kWorkspaceBytes, stream),
          "cublasLtMatmul");
    for (cublasLtMatrixLayout_t one : layouts) cublasLtMatrixLayoutDestroy(one);
    cublasLtMatmulDescDestroy(desc);
  }

  cudaStream_t first_ = nullptr, second_ = nullptr;
  std::vector<Matrix> a_, b_, d_, bias_;
  void* scalars_ = nullptr;
  void* workspace_ = nullptr;
  cublasHandle_t handle_ = nullptr;
  cublasLtHandle_t lt_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  int rounds = 1, device = 0;
  size_t shift = 0;
  if (argc < 2) return 2;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--rounds") rounds = std::stoi(argv[i + 1]);
    if (option == "--device") device = std::stoi(argv[i + 1]);
    if (option == "--shift") shift = std::stoull(argv[i + 1]);
  }
  try {
    check(cudaSetDevice(device), "cudaSetDevice");
    void* unused = nullptr;
    if (shift > 0) check(cudaMalloc(&unused, shift), "cudaMalloc");
    Sequence sequence;
    for (int round = 0; round < rounds; ++round) sequence.run();
    std::ofstream dump(argv[1], std::ios::binary);
    sequence.write(dump);
    dump.close();
    return dump ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mixed: %s\n", error.what());
  }
  return 2;
}

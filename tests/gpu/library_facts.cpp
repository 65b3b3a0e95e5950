// SPDX-License-Identifier: MIT
// library_facts: what this machine's cuBLAS and cuBLASLt do where the documents are silent, one row a question.
//
//   library_facts [--small]      one JSON object on stdout; exit code 1 if a question could not be put
//
// It knows nothing of the shim and must not be preloaded: the answers are the library's own.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/gpu/classify.h"

namespace {

using namespace sdcguard::gpu;
using nlohmann::ordered_json;

void must(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
void must(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasGetStatusString(status));
}

class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    must(cudaMalloc(&pointer_, bytes), "cudaMalloc");
    must(cudaMemset(pointer_, 0xFF, bytes), "cudaMemset");  // what is not written reads as NaN
  }
  template <typename T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    must(cudaMemcpy(pointer_, values.data(), bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(pointer_); }
  void* get() const { return pointer_; }
  template <typename T>
  std::vector<T> read(size_t count) const {
    std::vector<T> values(count);
    must(cudaMemcpy(values.data(), pointer_, count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }

 private:
  void* pointer_ = nullptr;
  size_t bytes_;
};

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t bits() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>(state_ >> 32);
  }
  float uniform() { return static_cast<float>(static_cast<int32_t>(bits())) * 0x1p-31f; }  // [-1, 1]

 private:
  uint64_t state_;
};

std::vector<uint16_t> random_bf16(size_t count, uint64_t seed) {
  Random random(seed);
  std::vector<uint16_t> values(count);
  for (uint16_t& v : values) v = bf16_bits(random.uniform());
  return values;
}

struct Shape {
  const char* name;
  int m, n, k;
};
// m: outputs, n: tokens, k: inner, as a framework's linear layer calls cuBLAS (op(A) = T).
constexpr Shape kShapes[] = {
    {"MiniLM projection", 384, 512, 384},   {"BERT up", 3072, 2048, 768},   {"1B attention", 2048, 2048, 2048},
    {"8B attention", 4096, 2048, 4096},     {"8B down", 4096, 1024, 14336}, {"decoding one token", 4096, 1, 4096},
    {"decoding 16 tokens", 4096, 16, 4096}, {"odd", 1021, 509, 769},        {"long inner, few outputs", 64, 64, 16384}};
constexpr Shape kSmallShapes[] = {
    {"small projection", 96, 64, 128}, {"small odd", 61, 33, 77}, {"one token", 64, 1, 96}};

class Library {
 public:
  Library() {
    must(cublasCreate(&blas_), "cublasCreate");
    must(cublasLtCreate(&lt_), "cublasLtCreate");
  }
  ~Library() {
    cublasLtDestroy(lt_);
    cublasDestroy(blas_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  cublasHandle_t blas() const { return blas_; }
  cublasLtHandle_t lt() const { return lt_; }

 private:
  cublasHandle_t blas_ = nullptr;
  cublasLtHandle_t lt_ = nullptr;
};

cublasStatus_t gemm_ex(const Library& library, cublasOperation_t op_a, cublasOperation_t op_b, const Shape& s,
                       const Memory& a, int lda, const Memory& b, int ldb, cudaDataType_t in, const Memory& d, int ldd,
                       cudaDataType_t out, cublasComputeType_t compute, cublasGemmAlgo_t algo = CUBLAS_GEMM_DEFAULT) {
  const float one = 1.0f;
  const float zero = 0.0f;
  return cublasGemmEx(library.blas(), op_a, op_b, s.m, s.n, s.k, &one, a.get(), in, lda, b.get(), in, ldb, &zero,
                      d.get(), out, ldd, compute, algo);
}

// How often does the library's own BF16 result differ from its FP32 result rounded once by us?
ordered_json native_bits(const Library& library, const std::vector<Shape>& shapes) {
  ordered_json rows = ordered_json::array();
  BitDifference all;
  int unsupported = 0;
  for (const Shape& s : shapes) {
    const auto count = static_cast<size_t>(s.m) * static_cast<size_t>(s.n);
    const Memory a(random_bf16(static_cast<size_t>(s.m) * static_cast<size_t>(s.k), 1));
    const Memory b(random_bf16(static_cast<size_t>(s.n) * static_cast<size_t>(s.k), 2));
    const Memory narrow(count * 2);
    const Memory wide(count * 4);
    must(gemm_ex(library, CUBLAS_OP_T, CUBLAS_OP_N, s, a, s.k, b, s.k, CUDA_R_16BF, narrow, s.m, CUDA_R_16BF,
                 CUBLAS_COMPUTE_32F),
         "GemmEx BF16 to BF16");
    const cublasStatus_t upgraded = gemm_ex(library, CUBLAS_OP_T, CUBLAS_OP_N, s, a, s.k, b, s.k, CUDA_R_16BF, wide,
                                            s.m, CUDA_R_32F, CUBLAS_COMPUTE_32F);
    if (upgraded == CUBLAS_STATUS_NOT_SUPPORTED) {
      ++unsupported;
      continue;
    }
    must(upgraded, "GemmEx BF16 to FP32");
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    BitDifference one;
    add_difference(one, narrow.read<uint16_t>(count), wide.read<float>(count));
    all.entries += one.entries;
    all.differing += one.differing;
    all.most_units = std::max(all.most_units, one.most_units);
    rows.push_back({{"shape", s.name},
                    {"m", s.m},
                    {"n", s.n},
                    {"k", s.k},
                    {"entries", one.entries},
                    {"differing", one.differing},
                    {"rate", static_cast<double>(one.differing) / static_cast<double>(one.entries)},
                    {"most_units", one.most_units}});
  }
  return {{"value", static_cast<double>(all.differing) / static_cast<double>(std::max<uint64_t>(1, all.entries))},
          {"entries", all.entries},
          {"shapes_without_fp32", unsupported},
          {"differing", all.differing},
          {"most_units", all.most_units},
          {"shapes", rows}};
}

// An Lt problem: C = A B, all column-major and not transposed, no C.
class Matmul {
 public:
  // transposed_a: A is stored k x m, as FP8 products want it.
  Matmul(const Shape& s, cudaDataType_t in, cudaDataType_t out, cublasLtEpilogue_t epilogue,
         bool transposed_a = false) {
    must(cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    must(cublasLtMatmulDescSetAttribute(desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue), "epilogue");
    const int rows = transposed_a ? s.k : s.m;
    const int cols = transposed_a ? s.m : s.k;
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    must(cublasLtMatrixLayoutCreate(&a_, in, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), rows), "layout");
    must(cublasLtMatrixLayoutCreate(&b_, in, static_cast<uint64_t>(s.k), static_cast<uint64_t>(s.n), s.k), "layout");
    must(cublasLtMatrixLayoutCreate(&c_, out, static_cast<uint64_t>(s.m), static_cast<uint64_t>(s.n), s.m), "layout");
    must(cublasLtMatrixLayoutCreate(&d_, out, static_cast<uint64_t>(s.m), static_cast<uint64_t>(s.n), s.m), "layout");
  }
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;
  ~Matmul() {
    cublasLtMatrixLayoutDestroy(d_);
    cublasLtMatrixLayoutDestroy(c_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatmulDescDestroy(desc_);
  }
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    must(cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  // C, never read, has D's type unless D is FP8.
  void type_c(cudaDataType_t type) {
    const auto value = static_cast<uint32_t>(type);
    must(cublasLtMatrixLayoutSetAttribute(c_, CUBLASLT_MATRIX_LAYOUT_TYPE, &value, sizeof value), "type of C");
  }
  // The library's first choice without workspace; CUBLAS_STATUS_NOT_SUPPORTED where it has none.
  cublasStatus_t choose(const Library& library, cublasLtMatmulAlgo_t* algo) const {
    cublasLtMatmulPreference_t preference = nullptr;
    must(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(library.lt(), desc_, a_, b_, c_, d_, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (count == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    *algo = found.algo;
    return found.state;
  }
  cublasStatus_t run(const Library& library, const cublasLtMatmulAlgo_t& algo, const Memory& a, const Memory& b,
                     const Memory& d) const {
    const float one = 1.0f;
    const float zero = 0.0f;
    return cublasLtMatmul(library.lt(), desc_, &one, a.get(), a_, b.get(), b_, &zero, d.get(), c_, d.get(), d_, &algo,
                          nullptr, 0, nullptr);
  }

 private:
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr, d_ = nullptr;
};

using Statuses = std::map<std::string, int>;

// Which 16-bit calls have an FP32 form? Shapes, transposes and leading dimensions, by three entry points.
ordered_json fp32_support(const Library& library, const std::vector<Shape>& shapes) {
  int asked = 0;
  int refused = 0;
  ordered_json rows = ordered_json::array();
  size_t most_in = 0;
  size_t most_out = 0;
  constexpr int kMostPad = 8;
  for (const Shape& s : shapes) {
    const auto m = static_cast<size_t>(s.m + kMostPad);
    const auto n = static_cast<size_t>(s.n + kMostPad);
    const auto k = static_cast<size_t>(s.k + kMostPad);
    most_in = std::max({most_in, m * k, n * k});
    most_out = std::max(most_out, m * n);
  }
  const Memory a(most_in * 2);
  const Memory b(most_in * 2);
  const Memory d(most_out * 4);
  const std::pair<const char*, cudaDataType_t> types[] = {{"BF16", CUDA_R_16BF}, {"FP16", CUDA_R_16F}};
  const auto add = [&](Statuses& statuses, cublasStatus_t native, cublasStatus_t upgraded) {
    if (native != CUBLAS_STATUS_SUCCESS) {
      ++statuses[std::string("native ") + cublasGetStatusName(native)];
      return;  // not a call that a program could make
    }
    ++asked;
    refused += upgraded == CUBLAS_STATUS_SUCCESS ? 0 : 1;
    ++statuses[cublasGetStatusName(upgraded)];
  };
  for (const auto& [type_name, type] : types) {
    Statuses gemm;
    Statuses batched;
    Statuses lt;
    for (const Shape& s : shapes) {
      for (const cublasOperation_t op_a : {CUBLAS_OP_N, CUBLAS_OP_T}) {
        for (const cublasOperation_t op_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
          for (const int pad : {0, 1, kMostPad}) {
            const int lda = (op_a == CUBLAS_OP_N ? s.m : s.k) + pad;
            const int ldb = (op_b == CUBLAS_OP_N ? s.k : s.n) + pad;
            const int ldd = s.m + pad;
            const auto ask = [&](cudaDataType_t out) {
              return gemm_ex(library, op_a, op_b, s, a, lda, b, ldb, type, d, ldd, out, CUBLAS_COMPUTE_32F);
            };
            add(gemm, ask(type), ask(CUDA_R_32F));
            const auto ask_batched = [&](cudaDataType_t out) {
              const float one = 1.0f;
              const float zero = 0.0f;
              return cublasGemmStridedBatchedEx(library.blas(), op_a, op_b, s.m, s.n, s.k, &one, a.get(), type, lda, 0,
                                                b.get(), type, ldb, 0, &zero, d.get(), out, ldd, 0, 1,
                                                CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
            };
            add(batched, ask_batched(type), ask_batched(CUDA_R_32F));
          }
        }
      }
      cublasLtMatmulAlgo_t algo{};
      add(lt, Matmul(s, type, type, CUBLASLT_EPILOGUE_DEFAULT).choose(library, &algo),
          Matmul(s, type, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT).choose(library, &algo));
    }
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    rows.push_back({{"type", type_name}, {"GemmEx", gemm}, {"GemmStridedBatchedEx", batched}, {"Lt heuristic", lt}});
  }
  return {{"value", static_cast<double>(refused) / std::max(1, asked)},
          {"asked", asked},
          {"refused", refused},
          {"by_type", rows}};
}

// Does an algorithm that was chosen for a 16-bit D run with an FP32 one?
ordered_json foreign_algo(const Library& library, const std::vector<Shape>& shapes) {
  Statuses statuses;
  for (const Shape& s : shapes) {
    const Memory a(random_bf16(static_cast<size_t>(s.m) * static_cast<size_t>(s.k), 3));
    const Memory b(random_bf16(static_cast<size_t>(s.n) * static_cast<size_t>(s.k), 4));
    const Memory d(static_cast<size_t>(s.m) * static_cast<size_t>(s.n) * 4);
    cublasLtMatmulAlgo_t algo{};
    if (Matmul(s, CUDA_R_16BF, CUDA_R_16BF, CUBLASLT_EPILOGUE_DEFAULT).choose(library, &algo) !=
        CUBLAS_STATUS_SUCCESS) {
      ++statuses["no algorithm for BF16"];
      continue;
    }
    const Matmul upgraded(s, CUDA_R_16BF, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT);
    ++statuses[cublasGetStatusName(upgraded.run(library, algo, a, b, d))];
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  std::string value;
  for (const auto& [name, count] : statuses) value += (value.empty() ? "" : ", ") + name + " " + std::to_string(count);
  return {{"value", value}, {"statuses", statuses}};
}

// x through the GELU epilogue: A = x as a column, B = 1, all exact in BF16; D in FP32 where the library has that form,
// else all operands in FP32.
ordered_json gelu_form(const Library& library) {
  const Shape s{"points", 1536, 16, 16};
  std::vector<uint16_t> a16(static_cast<size_t>(s.m * s.k), 0);
  std::vector<uint16_t> b16(static_cast<size_t>(s.k * s.n), 0);
  std::vector<float> x(static_cast<size_t>(s.m));
  const auto widen = [](const std::vector<uint16_t>& from) {
    std::vector<float> to;
    for (const uint16_t bits : from) to.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
    return to;
  };
  for (int i = 0; i < s.m; ++i) {
    a16[static_cast<size_t>(i)] = bf16_bits(static_cast<float>(i - s.m / 2) / 128);
    x[static_cast<size_t>(i)] = std::bit_cast<float>(static_cast<uint32_t>(a16[static_cast<size_t>(i)]) << 16);
  }
  b16[0] = bf16_bits(1.0f);
  for (const cudaDataType_t in : {CUDA_R_16BF, CUDA_R_32F}) {
    const Matmul matmul(s, in, CUDA_R_32F, CUBLASLT_EPILOGUE_GELU);
    cublasLtMatmulAlgo_t algo{};
    if (matmul.choose(library, &algo) != CUBLAS_STATUS_SUCCESS) continue;
    const Memory a = in == CUDA_R_16BF ? Memory(a16) : Memory(widen(a16));
    const Memory b = in == CUDA_R_16BF ? Memory(b16) : Memory(widen(b16));
    const Memory d(static_cast<size_t>(s.m * s.n) * 4);
    if (matmul.run(library, algo, a, b, d) != CUBLAS_STATUS_SUCCESS) continue;
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const GeluForm form = classify_gelu(x, d.read<float>(x.size()));
    return {{"value", form.name},
            {"operands", in == CUDA_R_16BF ? "BF16" : "FP32"},
            {"largest_error_tanh", form.error_tanh},
            {"largest_error_erf", form.error_erf},
            {"largest_gap_of_the_forms", form.gap}};
  }
  return {{"value", "no GELU epilogue with FP32 D"}};
}

// FP32 values through a TF32 product with the identity: what comes out is the rounded input.
ordered_json tf32_rounding(const Library& library) {
  const Shape s{"identity", 256, 256, 256};
  const auto count = static_cast<size_t>(s.m * s.k);
  std::vector<float> identity(count, 0.0f);
  for (int i = 0; i < s.m; ++i) identity[static_cast<size_t>(i * s.m + i)] = 1.0f;
  Random random(5);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    // A quarter lie half way between two TF32 numbers
    const uint32_t fraction = i % 4 == 0 ? (random.bits() & 0x007FE000u) | 0x1000u : random.bits() & 0x007FFFFFu;
    values[i] = std::bit_cast<float>((random.bits() & 0x80000000u) | (120u + random.bits() % 15) << 23 | fraction);
  }
  const Memory one(identity);
  const Memory some(values);
  const Memory d(count * 4);
  ordered_json rows;
  for (const bool first : {true, false}) {
    must(gemm_ex(library, CUBLAS_OP_N, CUBLAS_OP_N, s, first ? some : one, s.m, first ? one : some, s.m, CUDA_R_32F, d,
                 s.m, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32),
         "GemmEx FAST_TF32");
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    rows[first ? "A" : "B"] = classify_input_rounding(values, d.read<float>(count));
  }
  const std::string in_a = rows["A"];
  const std::string in_b = rows["B"];
  return {{"value", in_a == in_b ? in_a : "A: " + in_a + "; B: " + in_b}, {"by_operand", rows}};
}

// Do the CUBLAS_GEMM_ALGO hints change a bit, in BF16 and in FP32?
ordered_json algo_hints(const Library& library) {
  const Shape s{"hinted", 256, 128, 512};
  const auto count = static_cast<size_t>(s.m * s.n);
  const Memory a(random_bf16(static_cast<size_t>(s.m * s.k), 6));
  const Memory b(random_bf16(static_cast<size_t>(s.n * s.k), 7));
  ordered_json rows;
  int changed = 0;
  for (const bool wide : {false, true}) {
    const size_t bytes = count * (wide ? 4 : 2);
    const auto product = [&](int algo, cublasStatus_t* status) {
      const Memory d(bytes);
      *status = gemm_ex(library, CUBLAS_OP_T, CUBLAS_OP_N, s, a, s.k, b, s.k, CUDA_R_16BF, d, s.m,
                        wide ? CUDA_R_32F : CUDA_R_16BF, CUBLAS_COMPUTE_32F, static_cast<cublasGemmAlgo_t>(algo));
      must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      return d.read<unsigned char>(bytes);
    };
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const std::vector<unsigned char> usual = product(CUBLAS_GEMM_DEFAULT, &status);
    must(status, "GemmEx with the default hint");
    Statuses statuses;
    int other = 0;
    for (int algo = CUBLAS_GEMM_ALGO0_TENSOR_OP; algo <= CUBLAS_GEMM_ALGO15_TENSOR_OP; ++algo) {
      const std::vector<unsigned char> got = product(algo, &status);
      ++statuses[cublasGetStatusName(status)];
      if (status == CUBLAS_STATUS_SUCCESS && got != usual) ++other;
    }
    changed += other;
    rows[wide ? "FP32" : "BF16"] = {{"statuses", statuses}, {"results_with_other_bits", other}};
  }
  return {{"value", changed == 0 ? "hints change no bit" : std::to_string(changed) + " hinted results have other bits"},
          {"by_result_type", rows}};
}

// RELU's mask where the value is not simply above or below 0: 1, -1, 0, NaN and infinity as the first rows of a column.
ordered_json relu_mask(const Library& library) {
  const Shape s{"mask", 128, 16, 16};
  const float values[] = {1.0f, -1.0f, 0.0f, NAN, INFINITY};
  std::vector<uint16_t> a16(static_cast<size_t>(s.m * s.k), 0);
  std::vector<uint16_t> b16(static_cast<size_t>(s.k * s.n), 0);
  for (size_t i = 0; i < std::size(values); ++i) a16[i] = bf16_bits(values[i]);
  b16[0] = bf16_bits(1.0f);
  const Memory a(a16), b(b16), d(static_cast<size_t>(s.m * s.n) * 2);
  const Memory mask(static_cast<size_t>(s.m * s.n) / 8);
  Matmul matmul(s, CUDA_R_16BF, CUDA_R_16BF, CUBLASLT_EPILOGUE_RELU_AUX);
  matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask.get());
  matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<int64_t>(s.m));
  cublasLtMatmulAlgo_t algo{};
  must(matmul.choose(library, &algo), "heuristic for RELU_AUX");
  must(matmul.run(library, algo, a, b, d), "cublasLtMatmul with RELU_AUX");
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const unsigned bits = mask.read<uint8_t>(1)[0];
  const auto bit = [bits](int i) { return std::to_string((bits >> i) & 1u); };
  return {{"value", "1: " + bit(0) + ", -1: " + bit(1) + ", 0: " + bit(2) + ", NaN: " + bit(3) + ", Inf: " + bit(4)}};
}

constexpr uint8_t kE4M3One = 0x38, kE4M3Sixteen = 0x58, kE4M3Smallest = 0x08 /* 2^-6 */, kE4M3Nan = 0x7f;

// FP8 operands: op(A) = A^T is m x k with `first` in column 0 and `rest` in columns 32, 64, ...; B holds first_b in row
// 0, 1 in the rows below. Every entry of D is first first_b + (k / 32 - 1) rest.
struct Fp8Product {
  std::vector<uint8_t> a, b;
  Fp8Product(const Shape& s, uint8_t first, uint8_t first_b, uint8_t rest)
      : a(static_cast<size_t>(s.m * s.k), 0), b(static_cast<size_t>(s.k * s.n), 0) {
    for (int k = 0; k < s.k; k += 32) {
      for (int i = 0; i < s.m; ++i) a[static_cast<size_t>(i * s.k + k)] = k == 0 ? first : rest;
      for (int j = 0; j < s.n; ++j) b[static_cast<size_t>(j * s.k + k)] = k == 0 ? first_b : kE4M3One;
    }
  }
};

// 256 and 127 times 2^-6, exactly 257.984375, by FP8 products with fast accumulation and without: how many bits the
// accumulator keeps, and whether it is promoted on the way.
ordered_json fp8_accumulation(const Library& library) {
  const Shape s{"long", 16, 16, 4096};
  const Fp8Product product(s, kE4M3Sixteen, kE4M3Sixteen, kE4M3Smallest);
  const Memory a(product.a), b(product.b), d(static_cast<size_t>(s.m * s.n) * 4);
  ordered_json rows;
  std::string value;
  for (const int8_t fast : {int8_t{1}, int8_t{0}}) {
    Matmul matmul(s, CUDA_R_8F_E4M3, CUDA_R_32F, CUBLASLT_EPILOGUE_DEFAULT, true);
    matmul.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
    cublasLtMatmulAlgo_t algo{};
    std::string got = "not supported";
    if (matmul.choose(library, &algo) == CUBLAS_STATUS_SUCCESS) {
      must(matmul.run(library, algo, a, b, d), "cublasLtMatmul of FP8");
      must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      got = std::to_string(d.read<float>(1)[0]);
    }
    rows[fast != 0 ? "fast" : "promoted"] = got;
    value += (value.empty() ? "fast " : ", promoted ") + got;
  }
  return {{"value", value}, {"exact", 257.984375}, {"by_mode", rows}};
}

// The largest magnitude of an FP8 D in which some entries are NaN.
ordered_json amax_of_nan(const Library& library) {
  const Shape s{"amax", 16, 16, 64};
  Fp8Product product(s, kE4M3One, kE4M3One, 0);
  product.a[0] = kE4M3Nan;  // row 0 of D
  const Memory a(product.a), b(product.b), d(static_cast<size_t>(s.m * s.n)), amax(std::vector<float>{-1.0f});
  Matmul matmul(s, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUBLASLT_EPILOGUE_DEFAULT, true);
  matmul.type_c(CUDA_R_16BF);
  matmul.set(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, amax.get());
  cublasLtMatmulAlgo_t algo{};
  if (matmul.choose(library, &algo) != CUBLAS_STATUS_SUCCESS) return {{"value", "no FP8 result here"}};
  must(matmul.run(library, algo, a, b, d), "cublasLtMatmul into FP8");
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return {{"value", std::to_string(amax.read<float>(1)[0])}};
}

// Which of the ways to scale FP8 operands the library takes on this device.
ordered_json scale_modes(const Library& library) {
  const Shape s{"scaled", 128, 128, 256};
  const std::pair<const char*, int32_t> modes[] = {{"outer vectors", CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F},
                                                   {"vectors of 128", CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F},
                                                   {"vectors of 32", CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0}};
  std::string value;
  for (const auto& [name, mode] : modes) {
    Matmul matmul(s, CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLASLT_EPILOGUE_DEFAULT, true);
    const Memory scales(static_cast<size_t>(s.k) * 4 * 128);
    for (const auto pointer : {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER})
      matmul.set(pointer, scales.get());
    for (const auto attribute : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE})
      matmul.set(attribute, mode);
    cublasLtMatmulAlgo_t algo{};
    value += (value.empty() ? "" : ", ") + std::string(name) + ": " +
             (matmul.choose(library, &algo) == CUBLAS_STATUS_SUCCESS ? "yes" : "no");
  }
  return {{"value", value}};
}

int ask(bool small) {
  const std::vector<Shape> shapes = small ? std::vector<Shape>(std::begin(kSmallShapes), std::end(kSmallShapes))
                                          : std::vector<Shape>(std::begin(kShapes), std::end(kShapes));
  const Library library;
  cudaDeviceProp properties{};
  must(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  int driver = 0;
  int version = 0;
  must(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  must(cublasGetVersion(library.blas(), &version), "cublasGetVersion");
  ordered_json facts;
  bool all_put = true;
  // One question that cannot be put takes no other with it.
  const auto put = [&](const char* name, auto&& question) {
    try {
      facts[name] = question();
    } catch (const std::exception& e) {
      facts[name] = {{"value", nullptr}, {"error", e.what()}};
      all_put = false;
    }
  };
  put("native_bits", [&] { return native_bits(library, shapes); });
  put("fp32_support", [&] { return fp32_support(library, shapes); });
  put("foreign_algo", [&] { return foreign_algo(library, shapes); });
  put("gelu_form", [&] { return gelu_form(library); });
  put("tf32_rounding", [&] { return tf32_rounding(library); });
  put("algo_hints", [&] { return algo_hints(library); });
  put("relu_mask", [&] { return relu_mask(library); });
  put("fp8_accumulation", [&] { return fp8_accumulation(library); });
  put("amax_of_nan", [&] { return amax_of_nan(library); });
  put("scale_modes", [&] { return scale_modes(library); });
  const ordered_json document{{"device", properties.name},
                              {"driver", driver},
                              {"cublas", version},
                              {"cublaslt", cublasLtGetVersion()},
                              {"facts", facts}};
  std::printf("%s\n", document.dump(1).c_str());
  return all_put ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc == 2 && std::strcmp(argv[1], "--small") == 0;
  if (argc > 1 && !small) {
    std::fprintf(stderr, "usage: library_facts [--small]\n");
    return 2;
  }
  try {
    return ask(small);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "library_facts: %s\n", e.what());
    return 1;
  }
}

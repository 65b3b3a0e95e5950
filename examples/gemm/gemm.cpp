// SPDX-License-Identifier: MIT
// gemm: a plain cuBLAS program for tests and selftests. It multiplies seeded random matrices by the chosen entry point,
// checks the result against FP64 on the CPU and can write it to a file. It knows nothing of sdcguard.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Options {
  int64_t m = 256, n = 192, k = 320, batch = 1;
  std::string type = "bf16", api = "gemmex", epilogue = "none", transa = "n", transb = "n", dump;
  double alpha = 1, beta = 0;
  int calls = 1, device = 0;
  uint64_t seed = 1;
  bool check = false;
};

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasGetStatusString(status));
}

// An element type: its CUDA name, width, and rounding of host floats to it.
struct Element {
  cudaDataType_t cuda;
  size_t bytes;
  double unit_roundoff;

  explicit Element(const std::string& name) {
    if (name == "bf16") {
      cuda = CUDA_R_16BF, bytes = 2, unit_roundoff = 0x1p-8;
    } else if (name == "f16") {
      cuda = CUDA_R_16F, bytes = 2, unit_roundoff = 0x1p-11;
    } else {
      cuda = CUDA_R_32F, bytes = 4, unit_roundoff = 0x1p-24;
    }
  }
  void store(std::vector<char>& to, size_t i, float value) const {
    const __nv_bfloat16 b = __float2bfloat16(value);
    const __half h = __float2half(value);
    const void* from = cuda == CUDA_R_16BF ? static_cast<const void*>(&b) : cuda == CUDA_R_16F ? &h : nullptr;
    memcpy(to.data() + i * bytes, from != nullptr ? from : &value, bytes);
  }
  double load(const std::vector<char>& from, size_t i) const {
    if (cuda == CUDA_R_16BF) {
      __nv_bfloat16 b;
      memcpy(&b, from.data() + i * bytes, bytes);
      return __bfloat162float(b);
    }
    if (cuda == CUDA_R_16F) {
      __half h;
      memcpy(&h, from.data() + i * bytes, bytes);
      return __half2float(h);
    }
    float f;
    memcpy(&f, from.data() + i * bytes, bytes);
    return f;
  }
};

// Uniform in [-1, 1) by splitmix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull) {}
  float next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return static_cast<float>(static_cast<int64_t>((z ^ (z >> 31)) >> 40) - (1 << 23)) * 0x1p-23f;
  }

 private:
  uint64_t state_;
};

// A matrix batch on both sides; owner of the device memory.
class Matrix {
 public:
  Matrix(const Element& element, int64_t elems, Random* random) : element_(element) {
    host_.resize(static_cast<size_t>(elems) * element.bytes);
    for (size_t i = 0; random != nullptr && i < static_cast<size_t>(elems); ++i)
      element.store(host_, i, random->next());
    check(cudaMalloc(&device_, std::max<size_t>(host_.size(), 1)), "cudaMalloc");
    upload();
  }
  ~Matrix() { cudaFree(device_); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  void* device() { return device_; }
  double at(int64_t i) const { return element_.load(host_, static_cast<size_t>(i)); }
  const std::vector<char>& host() const { return host_; }
  void upload() { check(cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice), "cudaMemcpy"); }
  void download() { check(cudaMemcpy(host_.data(), device_, host_.size(), cudaMemcpyDeviceToHost), "cudaMemcpy"); }

 private:
  Element element_;
  std::vector<char> host_;
  void* device_ = nullptr;
};

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

class Program {
 public:
  explicit Program(const Options& options)
      : o_(options),
        element_(o_.api == "sgemm"   ? "f32"
                 : o_.api == "hgemm" ? "f16"
                                     : o_.type),
        random_(o_.seed),
        a_(element_, o_.m * o_.k * o_.batch, &random_),
        b_(element_, o_.k * o_.n * o_.batch, &random_),
        c_(element_, o_.m * o_.n * o_.batch, &random_),
        d_(element_, o_.m * o_.n * o_.batch, nullptr),
        bias_(element_, o_.m, &random_) {
    check(cublasCreate(&handle_), "cublasCreate");
    check(cublasLtCreate(&lt_), "cublasLtCreate");
    check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    check(cublasSetStream(handle_, stream_), "cublasSetStream");
    check(cudaMalloc(&workspace_, kWorkspaceBytes), "cudaMalloc");
  }
  ~Program() {
    cudaFree(workspace_);
    cudaStreamDestroy(stream_);
    cublasLtDestroy(lt_);
    cublasDestroy(handle_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void run() {
    for (int call = 0; call < o_.calls; ++call) {
      // cublasLtMatmul reads C and writes D; the others update C in place, so each call starts from C again.
      if (o_.api != "lt") {
        check(cudaMemcpyAsync(d_.device(), c_.device(), c_.host().size(), cudaMemcpyDeviceToDevice, stream_),
              "cudaMemcpyAsync");
      }
      multiply();
    }
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    d_.download();
  }

  // Largest |D - reference| over its bound; NaN in D gives infinity.
  double worst_over_bound() const {
    double worst = 0;
    for (int64_t batch = 0; batch < o_.batch; ++batch) {
      for (int64_t j = 0; j < o_.n; ++j) {
        for (int64_t i = 0; i < o_.m; ++i) {
          const double over = entry_over_bound(batch, i, j);
          worst = over <= worst ? worst : std::isnan(over) ? HUGE_VAL : over;
        }
      }
    }
    return worst;
  }

  const std::vector<char>& result() const { return d_.host(); }

 private:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // the size that cuBLAS recommends for Hopper

  cublasOperation_t op_a() const { return o_.transa == "t" ? CUBLAS_OP_T : CUBLAS_OP_N; }
  cublasOperation_t op_b() const { return o_.transb == "t" ? CUBLAS_OP_T : CUBLAS_OP_N; }
  int64_t lda() const { return o_.transa == "t" ? o_.k : o_.m; }
  int64_t ldb() const { return o_.transb == "t" ? o_.n : o_.k; }

  void multiply() {
    const auto m = static_cast<int>(o_.m), n = static_cast<int>(o_.n), k = static_cast<int>(o_.k);
    const auto ld_a = static_cast<int>(lda()), ld_b = static_cast<int>(ldb());
    const auto alpha = static_cast<float>(o_.alpha), beta = static_cast<float>(o_.beta);
    if (o_.api == "gemmex") {
      check(cublasGemmEx(handle_, op_a(), op_b(), m, n, k, &alpha, a_.device(), element_.cuda, ld_a, b_.device(),
                         element_.cuda, ld_b, &beta, d_.device(), element_.cuda, m, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
    } else if (o_.api == "strided") {
      check(cublasGemmStridedBatchedEx(handle_, op_a(), op_b(), m, n, k, &alpha, a_.device(), element_.cuda, ld_a,
                                       o_.m * o_.k, b_.device(), element_.cuda, ld_b, o_.k * o_.n, &beta, d_.device(),
                                       element_.cuda, m, o_.m * o_.n, static_cast<int>(o_.batch), CUBLAS_COMPUTE_32F,
                                       CUBLAS_GEMM_DEFAULT),
            "cublasGemmStridedBatchedEx");
    } else if (o_.api == "sgemm") {
      check(cublasSgemm(handle_, op_a(), op_b(), m, n, k, &alpha, static_cast<float*>(a_.device()), ld_a,
                        static_cast<float*>(b_.device()), ld_b, &beta, static_cast<float*>(d_.device()), m),
            "cublasSgemm");
    } else if (o_.api == "hgemm") {
      const __half alpha_half = __float2half(alpha), beta_half = __float2half(beta);
      check(cublasHgemm(handle_, op_a(), op_b(), m, n, k, &alpha_half, static_cast<__half*>(a_.device()), ld_a,
                        static_cast<__half*>(b_.device()), ld_b, &beta_half, static_cast<__half*>(d_.device()), m),
            "cublasHgemm");
    } else {
      multiply_lt(&alpha, &beta);
    }
  }

  void multiply_lt(const float* alpha, const float* beta) {
    cublasLtMatmulDesc_t operation;
    check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t transa = op_a(), transb = op_b();
    set(operation, CUBLASLT_MATMUL_DESC_TRANSA, transa);
    set(operation, CUBLASLT_MATMUL_DESC_TRANSB, transb);
    const bool bias = has(o_.epilogue, "bias");
    cublasLtEpilogue_t epilogue = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (has(o_.epilogue, "relu")) epilogue = bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    if (has(o_.epilogue, "gelu")) epilogue = bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (bias) {
      void* pointer = bias_.device();
      set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer);
      set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, element_.cuda);
    }
    const auto rows = [](bool transposed, int64_t plain, int64_t other) {
      return static_cast<uint64_t>(transposed ? other : plain);
    };
    cublasLtMatrixLayout_t a = layout(rows(o_.transa == "t", o_.m, o_.k), rows(o_.transa == "t", o_.k, o_.m), lda());
    cublasLtMatrixLayout_t b = layout(rows(o_.transb == "t", o_.k, o_.n), rows(o_.transb == "t", o_.n, o_.k), ldb());
    cublasLtMatrixLayout_t c = layout(static_cast<uint64_t>(o_.m), static_cast<uint64_t>(o_.n), o_.m);
    cublasLtMatmulPreference_t preference;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                                               sizeof(kWorkspaceBytes)),
          "cublasLtMatmulPreferenceSetAttribute");
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(lt_, operation, a, b, c, c, preference, 1, &found, &count),
          "cublasLtMatmulAlgoGetHeuristic");
    if (count == 0) throw std::runtime_error("cublasLtMatmulAlgoGetHeuristic: no algorithm");
    check(cublasLtMatmul(lt_, operation, alpha, a_.device(), a, b_.device(), b, beta, c_.device(), c, d_.device(), c,
                         &found.algo, workspace_, kWorkspaceBytes, stream_),
          "cublasLtMatmul");
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t one : {a, b, c}) cublasLtMatrixLayoutDestroy(one);
    cublasLtMatmulDescDestroy(operation);
  }

  template <typename T>
  void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }

  cublasLtMatrixLayout_t layout(uint64_t rows, uint64_t columns, int64_t leading) {
    cublasLtMatrixLayout_t made;
    check(cublasLtMatrixLayoutCreate(&made, element_.cuda, rows, columns, leading), "cublasLtMatrixLayoutCreate");
    if (o_.batch > 1) {
      const auto count = static_cast<int32_t>(o_.batch);
      const auto stride = static_cast<int64_t>(rows * columns);
      check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
            "cublasLtMatrixLayoutSetAttribute");
      check(
          cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
          "cublasLtMatrixLayoutSetAttribute");
    }
    return made;
  }

  // |D - reference| / bound for one entry. The bound is the a-priori one. Each of the k additions of a truncating
  // accumulator of p bits loses less than 2^(1-p) of a partial sum, which is at most S = sum |A||B|; a chain of 16-deep
  // blocks loses no more: k 2^(1-p) S. Alpha, beta and the bias add three roundings of the sum of all magnitudes, the
  // slope of GELU is at most 1.13, and the cast rounds once by the type's unit roundoff.
  double entry_over_bound(int64_t batch, int64_t i, int64_t j) const {
    double sum = 0, magnitude = 0;
    for (int64_t l = 0; l < o_.k; ++l) {
      const int64_t at_a = batch * o_.m * o_.k + (o_.transa == "t" ? l + i * o_.k : i + l * o_.m);
      const int64_t at_b = batch * o_.k * o_.n + (o_.transb == "t" ? j + l * o_.n : l + j * o_.k);
      const double product = a_.at(at_a) * b_.at(at_b);
      sum += product;
      magnitude += std::fabs(product);
    }
    const int64_t at = batch * o_.m * o_.n + i + j * o_.m;
    const double bias = o_.api == "lt" && has(o_.epilogue, "bias") ? bias_.at(i) : 0;
    double expected = o_.alpha * sum + o_.beta * c_.at(at) + bias;
    const double all = std::fabs(o_.alpha) * magnitude + std::fabs(o_.beta * c_.at(at)) + std::fabs(bias);
    if (o_.api == "lt" && has(o_.epilogue, "relu")) expected = std::fmax(expected, 0);
    double slope = 1;
    if (o_.api == "lt" && has(o_.epilogue, "gelu")) {
      const double inner = std::sqrt(2 / M_PI) * (expected + 0.044715 * expected * expected * expected);
      expected = 0.5 * expected * (1 + std::tanh(inner));
      slope = 1.13;
    }
    const double ulp = o_.api == "hgemm" ? 0x1p-10 : 0x1p-23;
    const double bound =
        slope * (static_cast<double>(o_.k) + 3) * ulp * all + element_.unit_roundoff * std::fabs(expected);
    const double error = std::fabs(d_.at(at) - expected);
    return error == 0 ? 0 : error / bound;
  }

  Options o_;
  Element element_;
  Random random_;
  Matrix a_, b_, c_, d_, bias_;
  cublasHandle_t handle_ = nullptr;
  cublasLtHandle_t lt_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void* workspace_ = nullptr;
};

int run(int argc, char** argv) {
  Options o;
  CLI::App app("Multiplies seeded random matrices by cuBLAS and checks the result on the CPU", "gemm");
  const auto size = CLI::Range(int64_t{1}, int64_t{1} << 20);
  app.add_option("--m", o.m)->check(size)->capture_default_str();
  app.add_option("--n", o.n)->check(size)->capture_default_str();
  app.add_option("--k", o.k)->check(size)->capture_default_str();
  app.add_option("--batch", o.batch, "strided and lt only")->check(size)->capture_default_str();
  app.add_option("--type", o.type)->check(CLI::IsMember({"bf16", "f16", "f32"}))->capture_default_str();
  app.add_option("--api", o.api, "sgemm is f32 and hgemm f16, whatever --type says")
      ->check(CLI::IsMember({"gemmex", "sgemm", "hgemm", "strided", "lt"}))
      ->capture_default_str();
  app.add_option("--epilogue", o.epilogue, "lt only")
      ->check(CLI::IsMember({"none", "bias", "relu", "gelu", "relu_bias", "gelu_bias"}))
      ->capture_default_str();
  app.add_option("--transa", o.transa)->check(CLI::IsMember({"n", "t"}))->capture_default_str();
  app.add_option("--transb", o.transb)->check(CLI::IsMember({"n", "t"}))->capture_default_str();
  app.add_option("--alpha", o.alpha)->capture_default_str();
  app.add_option("--beta", o.beta)->capture_default_str();
  app.add_option("--calls", o.calls, "The same product this many times")->check(CLI::Range(1, 1000000));
  app.add_option("--seed", o.seed, "Of the matrices")->capture_default_str();
  app.add_option("--device", o.device)->capture_default_str();
  app.add_option("--dump", o.dump, "Write D's bytes, column-major, to this file");
  app.add_flag("--check", o.check, "Compare with FP64 on the CPU; exit code 1 past the bound");
  CLI11_PARSE(app, argc, argv);
  if (o.batch > 1 && o.api != "strided" && o.api != "lt") throw std::runtime_error("--batch needs --api strided or lt");
  if (o.epilogue != "none" && o.api != "lt") throw std::runtime_error("--epilogue needs --api lt");

  check(cudaSetDevice(o.device), "cudaSetDevice");
  Program program(o);
  program.run();
  if (!o.dump.empty()) {
    std::ofstream file(o.dump, std::ios::binary);
    file.write(program.result().data(), static_cast<std::streamsize>(program.result().size()));
    file.close();
    if (!file) throw std::runtime_error(o.dump + ": cannot be written");
  }
  if (!o.check) return 0;
  const double worst = program.worst_over_bound();
  std::printf("gemm %s: largest error is %.3g of its bound\n", o.api.c_str(), worst);
  return worst <= 1 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gemm: %s\n", error.what());
    return 2;
  }
}

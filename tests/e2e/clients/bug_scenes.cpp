// SPDX-License-Identifier: MIT
// bug_scenes: a plain cuBLAS program of the scenes that publicly reported bugs are made of and that one drawn call
// (random_calls) cannot show. It checks its own results and knows nothing of sdcguard.
//
//   bug_scenes NAME DUMP [N]    runs the scene, writes the bytes of all results to DUMP; exit code 1: a wrong result,
//                               with a line that says which
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

std::ofstream dump;

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasGetStatusString(status));
}
void expect(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

float float_of(float x) {
  return x;
}
float float_of(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// Elements in device memory. Never read by the host but by download().
template <typename T>
class Array {
 public:
  explicit Array(size_t count, uint64_t seed = 0) : count_(count) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), "cudaMalloc");
    if (seed != 0) fill(seed);
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* get() const { return data_; }
  // Uniform in [-1, 1) by splitmix64.
  void fill(uint64_t seed) {
    std::vector<T> host(count_);
    uint64_t state = seed * 0x9e3779b97f4a7c15ull;
    for (T& value : host) {
      uint64_t z = (state += 0x9e3779b97f4a7c15ull);
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
      value = static_cast<T>(static_cast<float>(static_cast<int64_t>((z ^ (z >> 31)) >> 40) - (1 << 23)) * 0x1p-23f);
    }
    upload(host);
  }
  void upload(const std::vector<T>& host) {
    check(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  std::vector<T> download() const {
    std::vector<T> host(count_);
    check(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

template <typename T>
void write(const std::vector<T>& values) {
  dump.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

struct Handles {
  cublasHandle_t cublas = nullptr;
  cublasLtHandle_t lt = nullptr;
  cudaStream_t stream = nullptr;
  Handles() {
    check(cublasCreate(&cublas), "cublasCreate");
    check(cublasLtCreate(&lt), "cublasLtCreate");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cublasSetStream(cublas, stream), "cublasSetStream");
  }
  ~Handles() {
    cublasLtDestroy(lt);
    cublasDestroy(cublas);
    cudaStreamDestroy(stream);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
};

// A product of k = 0 is beta C, whatever A and B are; without a row or a column nothing is touched.
void empty(int) {
  const Handles handles;
  constexpr int kSize = 3;
  for (const float beta : {1.0f, 0.5f, 0.0f}) {
    const Array<float> c(kSize * kSize, 7);
    const float alpha = 1;
    const std::vector<float> before = c.download();
    check(cublasSgemm(handles.cublas, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, 0, &alpha, nullptr, kSize, nullptr, 1,
                      &beta, c.get(), kSize),
          "cublasSgemm");
    check(
        cublasGemmEx(handles.cublas, CUBLAS_OP_T, CUBLAS_OP_T, kSize, kSize, 0, &alpha, nullptr, CUDA_R_32F, 1, nullptr,
                     CUDA_R_32F, kSize, &alpha, c.get(), CUDA_R_32F, kSize, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
    check(cudaStreamSynchronize(handles.stream), "cudaStreamSynchronize");
    const std::vector<float> after = c.download();
    for (size_t i = 0; i < after.size(); ++i) expect(after[i] == beta * before[i], "k = 0 is not beta C");
    write(after);
    check(cublasSgemm(handles.cublas, CUBLAS_OP_N, CUBLAS_OP_N, 0, kSize, kSize, &alpha, nullptr, 1, nullptr, kSize,
                      &beta, nullptr, 1),
          "cublasSgemm without rows");
    check(cublasSgemm(handles.cublas, CUBLAS_OP_N, CUBLAS_OP_N, kSize, 0, kSize, &alpha, nullptr, kSize, nullptr, kSize,
                      &beta, nullptr, kSize),
          "cublasSgemm without columns");
    check(cudaStreamSynchronize(handles.stream), "cudaStreamSynchronize");
    expect(cudaGetLastError() == cudaSuccess, "an error is left behind");
  }
}

// Four streams on one handle, long sums in FP32 and BF16, the same product again and again.
// Partial sums of hundreds that cancel: D is near 0, and what a split of k is rounded to shows. `count` not 0: the
// handle forbids reductions in 16 bits.
void cancelling(int count) {
  constexpr int kRows = 256, kColumns = 64, kInner = 4096;
  std::vector<__nv_bfloat16> a(size_t{kRows} * kInner), b(size_t{kInner} * kColumns);
  uint64_t state = 7;
  const auto positive = [&state] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return 0.5f + static_cast<float>(state >> 40) * 0x1p-25f;
  };
  for (int i = 0; i < kRows; ++i) {
    for (int l = 0; l < kInner / 2; ++l) {
      const auto value = static_cast<__nv_bfloat16>(positive());
      a[static_cast<size_t>(l) * kRows + i] = a[static_cast<size_t>(l + kInner / 2) * kRows + i] = value;
    }
  }
  for (int j = 0; j < kColumns; ++j) {
    for (int l = 0; l < kInner / 2; ++l) {
      const float value = float_of(static_cast<__nv_bfloat16>(positive()));
      b[static_cast<size_t>(j) * kInner + l] = static_cast<__nv_bfloat16>(value);
      b[static_cast<size_t>(j) * kInner + l + kInner / 2] = static_cast<__nv_bfloat16>(-value);
    }
  }
  Handles handles;
  Array<__nv_bfloat16> a_dev(a.size()), b_dev(b.size()), d(size_t{kRows} * kColumns);
  a_dev.upload(a);
  b_dev.upload(b);
  if (count != 0) {
    check(cublasSetMathMode(handles.cublas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION), "cublasSetMathMode");
  }
  const float one = 1, none = 0;
  check(cublasGemmEx(handles.cublas, CUBLAS_OP_N, CUBLAS_OP_N, kRows, kColumns, kInner, &one, a_dev.get(), CUDA_R_16BF,
                     kRows, b_dev.get(), CUDA_R_16BF, kInner, &none, d.get(), CUDA_R_16BF, kRows, CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  write(d.download());
}

void streams(int rounds) {
  constexpr int kSize = 64, kInner = 4096, kStreams = 4;
  const Handles handles;
  const Array<float> a(kSize * kInner, 1), b(kSize * kInner, 2);
  const Array<__nv_bfloat16> a16(kSize * kInner, 3), b16(kSize * kInner, 4);
  std::vector<cudaStream_t> made(kStreams);
  std::vector<Array<float>*> d;
  std::vector<Array<__nv_bfloat16>*> d16;
  for (cudaStream_t& stream : made) {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    d.push_back(new Array<float>(kSize * kSize));
    d16.push_back(new Array<__nv_bfloat16>(kSize * kSize));
  }
  const float one = 1, zero = 0;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < made.size(); ++i) {
      check(cublasSetStream(handles.cublas, made[i]), "cublasSetStream");
      check(cublasGemmEx(handles.cublas, CUBLAS_OP_T, CUBLAS_OP_N, kSize, kSize, kInner, &one, a.get(), CUDA_R_32F,
                         kInner, b.get(), CUDA_R_32F, kInner, &zero, d[i]->get(), CUDA_R_32F, kSize, CUBLAS_COMPUTE_32F,
                         CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
      check(cublasGemmEx(handles.cublas, CUBLAS_OP_T, CUBLAS_OP_N, kSize, kSize, kInner, &one, a16.get(), CUDA_R_16BF,
                         kInner, b16.get(), CUDA_R_16BF, kInner, &zero, d16[i]->get(), CUDA_R_16BF, kSize,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
    }
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (size_t i = 0; i < made.size(); ++i) {
    write(d[i]->download());
    write(d16[i]->download());
    delete d[i];
    delete d16[i];
    check(cudaStreamDestroy(made[i]), "cudaStreamDestroy");
  }
}

// A product by cublasGemmEx and one by cublasLtMatmul in a graph, captured on a side stream by a thread that ends;
// replayed with other operands each time; a second graph of the same stream is destroyed between the replays.
class Captured {
 public:
  static constexpr int kSize = 96;

  void record(cudaStream_t stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    const float one = 1, zero = 0;
    check(cublasGemmEx(handles_.cublas, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, a_.get(), CUDA_R_16BF,
                       kSize, b_.get(), CUDA_R_16BF, kSize, &zero, first_.get(), CUDA_R_16BF, kSize, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx in a capture");
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout;
    check(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    check(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, kSize, kSize, kSize), "cublasLtMatrixLayoutCreate");
    check(cublasLtMatmul(handles_.lt, desc, &one, first_.get(), layout, b_.get(), layout, &zero, second_.get(), layout,
                         second_.get(), layout, nullptr, nullptr, 0, stream),
          "cublasLtMatmul in a capture");
    cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    cudaGraph_t graph;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&runnable_, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }

  void replay(uint64_t seed) {
    a_.fill(seed);
    check(cudaGraphLaunch(runnable_, handles_.stream), "cudaGraphLaunch");
    check(cudaStreamSynchronize(handles_.stream), "cudaStreamSynchronize");
    write(first_.download());
    write(second_.download());
  }

  void drop() { check(cudaGraphExecDestroy(runnable_), "cudaGraphExecDestroy"); }
  cudaStream_t stream() const { return handles_.stream; }

 private:
  const Handles handles_;
  Array<__nv_bfloat16> a_{kSize * kSize, 1}, b_{kSize * kSize, 2}, first_{kSize * kSize}, second_{kSize * kSize};
  cudaGraphExec_t runnable_ = nullptr;
};

void capture(int replays) {
  Captured kept, dropped;
  std::thread recorder([&kept] { kept.record(kept.stream()); });
  recorder.join();
  dropped.record(dropped.stream());
  dropped.replay(99);
  for (int i = 0; i < replays; ++i) {
    if (i == replays / 2) dropped.drop();
    kept.replay(static_cast<uint64_t>(100 + i));
  }
  kept.drop();
}

// D reaches past 2^31 elements by its leading dimension and by its batch stride; C as it lies stays what it was.
template <typename T>
void far(cudaDataType type, int64_t ld, int64_t stride, int batch) {
  constexpr int kRows = 48, kCols = 40, kInner = 32;
  const Handles handles;
  const Array<T> a(kRows * kInner * static_cast<size_t>(batch), 1), b(kInner * kCols * static_cast<size_t>(batch), 2);
  const auto elems = static_cast<size_t>(stride * (batch - 1) + ld * (kCols - 1) + kRows);
  const Array<T> d(elems);
  const float one = 1, zero = 0;
  check(cublasGemmStridedBatchedEx_64(handles.cublas, CUBLAS_OP_N, CUBLAS_OP_N, kRows, kCols, kInner, &one, a.get(),
                                      type, kRows, kRows * kInner, b.get(), type, kInner, kInner * kCols, &zero,
                                      d.get(), type, ld, stride, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmStridedBatchedEx_64");
  check(cudaStreamSynchronize(handles.stream), "cudaStreamSynchronize");
  const std::vector<T> host_a = a.download(), host_b = b.download();
  for (int e = 0; e < batch; ++e) {
    std::vector<T> lines(kRows * kCols);
    check(cudaMemcpy2D(lines.data(), kRows * sizeof(T), d.get() + stride * e, static_cast<size_t>(ld) * sizeof(T),
                       kRows * sizeof(T), kCols, cudaMemcpyDeviceToHost),
          "cudaMemcpy2D");
    for (int j = 0; j < kCols; ++j) {
      for (int i = 0; i < kRows; ++i) {
        double sum = 0, magnitude = 0;
        for (int l = 0; l < kInner; ++l) {
          const double product =
              static_cast<double>(float_of(host_a[static_cast<size_t>(e * kRows * kInner + i + l * kRows)])) *
              static_cast<double>(float_of(host_b[static_cast<size_t>(e * kInner * kCols + l + j * kInner)]));
          sum += product;
          magnitude += std::fabs(product);
        }
        const double bound = (kInner + 3) * 0x1p-23 * magnitude + (sizeof(T) == 2 ? 0x1p-8 : 0x1p-24) * std::fabs(sum);
        const double got = static_cast<double>(float_of(lines[static_cast<size_t>(i + j * kRows)]));
        expect(std::fabs(got - sum) <= bound, "entry " + std::to_string(i) + ", " + std::to_string(j));
      }
    }
    write(lines);
  }
}

void far_columns(int) {
  far<__nv_bfloat16>(CUDA_R_16BF, int64_t{1} << 26, 0, 1);
}
void far_columns_f32(int) {
  far<float>(CUDA_R_32F, (int64_t{1} << 26) + 1, 0, 1);
}
void far_batches(int) {
  far<__nv_bfloat16>(CUDA_R_16BF, 48, (int64_t{1} << 30) + 4, 4);
}

// Block scales: MXFP8 and NVFP4, which some devices have and others refuse. A status is the program's business: a byte
// a product, each followed by D, which is right, or as it was where the product was refused.
void block_scales(int) {
  constexpr int kSize = 128;
  const Handles handles;
  Array<uint8_t> a(kSize * kSize), b(kSize * kSize), scales(kSize * kSize / 16);
  Array<float> d(kSize * kSize);
  const std::vector<float> before(kSize * kSize, -1.0f);
  const float one = 1, zero = 0;
  struct Kind {
    cudaDataType type;
    int32_t mode;
    uint8_t ones;   // a byte of elements 1
    uint8_t scale;  // a factor 2
  };
  for (const Kind kind : {Kind{CUDA_R_8F_E4M3, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, 0x38, 128},
                          Kind{CUDA_R_4F_E2M1, CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, 0x22, 0x40}}) {
    a.upload(std::vector<uint8_t>(kSize * kSize, kind.ones));
    b.upload(std::vector<uint8_t>(kSize * kSize, kind.ones));
    scales.upload(std::vector<uint8_t>(kSize * kSize / 16, kind.scale));
    d.upload(before);
    cublasLtMatmulDesc_t desc;
    check(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    void* const pointer = scales.get();
    const auto put = [desc](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
    };
    put(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    put(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kind.mode);
    put(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kind.mode);
    put(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, pointer);
    put(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, pointer);
    cublasLtMatrixLayout_t operand, result;
    check(cublasLtMatrixLayoutCreate(&operand, kind.type, kSize, kSize, kSize), "cublasLtMatrixLayoutCreate");
    check(cublasLtMatrixLayoutCreate(&result, CUDA_R_32F, kSize, kSize, kSize), "cublasLtMatrixLayoutCreate");
    const auto status =
        static_cast<char>(cublasLtMatmul(handles.lt, desc, &one, a.get(), operand, b.get(), operand, &zero, d.get(),
                                         result, d.get(), result, nullptr, nullptr, 0, handles.stream));
    check(cudaStreamSynchronize(handles.stream), "cudaStreamSynchronize");
    const std::vector<float> after = d.download();
    write(std::vector<char>{status});
    write(after);
    const std::vector<float> product(kSize * kSize, 4.0f * kSize);
    expect(after == (status == CUBLAS_STATUS_SUCCESS ? product : before), "D");
    cublasLtMatrixLayoutDestroy(operand);
    cublasLtMatrixLayoutDestroy(result);
    cublasLtMatmulDescDestroy(desc);
  }
}

struct Scene {
  const char* name;
  void (*run)(int count);
};
constexpr Scene kScenes[] = {{"empty", empty},
                             {"cancelling", cancelling},
                             {"streams", streams},
                             {"capture", capture},
                             {"far_columns", far_columns},
                             {"far_columns_f32", far_columns_f32},
                             {"far_batches", far_batches},
                             {"block_scales", block_scales}};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    dump.open(argv[2], std::ios::binary);
    for (const Scene& scene : kScenes) {
      if (std::string(argv[1]) != scene.name) continue;
      scene.run(argc > 3 ? std::stoi(argv[3]) : 1);
      dump.close();
      return dump ? 0 : 2;
    }
    std::fprintf(stderr, "bug_scenes: no scene %s\n", argv[1]);
  } catch (const std::logic_error& error) {
    std::fprintf(stderr, "bug_scenes: %s\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bug_scenes: %s\n", error.what());
  }
  return 2;
}

// SPDX-License-Identifier: MIT
// scenarios: a plain cuBLAS program of small scenes that one repeated product cannot show: operands overwritten right
// after the call, non-finite operands, graphs, several streams, threads, fork. It knows nothing of sdcguard.
//
//   scenarios NAME DUMP [N]    runs the scene, writes the bytes of all results to DUMP
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kSize = 128;  // m, n and k
constexpr size_t kElems = size_t{kSize} * kSize;
constexpr size_t kBytes = kElems * sizeof(__nv_bfloat16);
constexpr int kNanRow = 5;     // of the weight: a row of D
constexpr int kInfColumn = 9;  // of the activations: a column of D

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasGetStatusString(status));
}

// Pinned, so that asynchronous copies are asynchronous. Seeded by splitmix64, in [-1, 1).
struct HostMatrix {
  __nv_bfloat16* data = nullptr;
  explicit HostMatrix(uint64_t seed) {
    check(cudaMallocHost(reinterpret_cast<void**>(&data), kBytes), "cudaMallocHost");
    uint64_t state = seed * 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < kElems; ++i) {
      uint64_t z = (state += 0x9e3779b97f4a7c15ull);
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
      data[i] =
          __float2bfloat16(static_cast<float>(static_cast<int64_t>((z ^ (z >> 31)) >> 40) - (1 << 23)) * 0x1p-23f);
    }
  }
  ~HostMatrix() { cudaFreeHost(data); }
  HostMatrix(const HostMatrix&) = delete;
  HostMatrix& operator=(const HostMatrix&) = delete;
};

struct DeviceMatrix {
  void* data = nullptr;
  DeviceMatrix() { check(cudaMalloc(&data, kBytes), "cudaMalloc"); }
  explicit DeviceMatrix(const HostMatrix& from) : DeviceMatrix() { upload(from); }
  ~DeviceMatrix() { cudaFree(data); }
  DeviceMatrix(const DeviceMatrix&) = delete;
  DeviceMatrix& operator=(const DeviceMatrix&) = delete;
  void upload(const HostMatrix& from) {
    check(cudaMemcpy(data, from.data, kBytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
};

struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { check(cudaStreamCreate(&stream), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

struct Handle {
  cublasHandle_t handle = nullptr;
  explicit Handle(cudaStream_t stream) {
    check(cublasCreate(&handle), "cublasCreate");
    check(cublasSetStream(handle, stream), "cublasSetStream");
  }
  ~Handle() { cublasDestroy(handle); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  void multiply(const DeviceMatrix& a, const DeviceMatrix& b, const DeviceMatrix& d) {
    const float one = 1, zero = 0;
    check(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, a.data, CUDA_R_16BF, kSize, b.data,
                       CUDA_R_16BF, kSize, &zero, d.data, CUDA_R_16BF, kSize, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }
};

std::ofstream dump;

void write(const DeviceMatrix& d) {
  std::vector<char> bytes(kBytes);
  check(cudaMemcpy(bytes.data(), d.data, kBytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  dump.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Each step uploads its operand in stream order, multiplies, and wipes the operand, all without waiting: whoever reads
// the operand before its upload, or after its wipe, reads something else.
void steps(int count) {
  Stream stream;
  Handle handle(stream.stream);
  const HostMatrix host_a(1);
  const DeviceMatrix a(host_a);
  DeviceMatrix b;
  check(cudaMemset(b.data, 0, kBytes), "cudaMemset");
  std::vector<std::unique_ptr<HostMatrix>> host_b;
  std::vector<std::unique_ptr<DeviceMatrix>> d;
  for (int i = 0; i < count; ++i) {
    host_b.push_back(std::make_unique<HostMatrix>(static_cast<uint64_t>(2 + i)));
    d.push_back(std::make_unique<DeviceMatrix>());
  }
  for (int i = 0; i < count; ++i) {
    const auto step = static_cast<size_t>(i);
    check(cudaMemcpyAsync(b.data, host_b[step]->data, kBytes, cudaMemcpyHostToDevice, stream.stream),
          "cudaMemcpyAsync");
    handle.multiply(a, b, *d[step]);
    check(cudaMemsetAsync(b.data, 0, kBytes, stream.stream), "cudaMemsetAsync");
  }
  check(cudaStreamSynchronize(stream.stream), "cudaStreamSynchronize");
  for (const auto& one : d) write(*one);
}

void nonfinite(int count) {
  Stream stream;
  Handle handle(stream.stream);
  HostMatrix host_a(1), host_b(2);
  host_a.data[kNanRow + 17 * kSize] = __float2bfloat16(NAN);
  host_b.data[3 + kInfColumn * kSize] = __float2bfloat16(INFINITY);
  const DeviceMatrix a(host_a), b(host_b);
  DeviceMatrix d;
  for (int i = 0; i < count; ++i) handle.multiply(a, b, d);
  check(cudaStreamSynchronize(stream.stream), "cudaStreamSynchronize");
  write(d);
}

// One product as it is, one captured, the graph launched `count` times with other operands; then one as it is again.
void graph(int count) {
  Stream stream;
  Handle handle(stream.stream);
  const HostMatrix host_a(1);
  const DeviceMatrix a(host_a);
  DeviceMatrix b(host_a), d;
  handle.multiply(a, b, d);
  cudaGraph_t captured;
  cudaGraphExec_t runnable;
  check(cudaStreamBeginCapture(stream.stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  handle.multiply(a, b, d);
  check(cudaStreamEndCapture(stream.stream, &captured), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&runnable, captured, 0), "cudaGraphInstantiate");
  for (int i = 0; i < count; ++i) {
    b.upload(HostMatrix(static_cast<uint64_t>(2 + i)));
    check(cudaGraphLaunch(runnable, stream.stream), "cudaGraphLaunch");
    check(cudaStreamSynchronize(stream.stream), "cudaStreamSynchronize");
    write(d);
  }
  handle.multiply(a, b, d);
  check(cudaStreamSynchronize(stream.stream), "cudaStreamSynchronize");
  write(d);
  cudaGraphExecDestroy(runnable);
  cudaGraphDestroy(captured);
}

// One handle, products over several streams, the legacy one and the thread's own among them, none waited for between.
void streams(int count) {
  std::vector<std::unique_ptr<Stream>> own;
  std::vector<cudaStream_t> all = {nullptr, cudaStreamLegacy, cudaStreamPerThread};
  for (int i = 0; i < count; ++i) {
    own.push_back(std::make_unique<Stream>());
    all.push_back(own.back()->stream);
  }
  Handle handle(nullptr);
  const HostMatrix host_a(1), host_b(2);
  const DeviceMatrix a(host_a), b(host_b);
  std::vector<std::unique_ptr<DeviceMatrix>> d;
  for (int round = 0; round < 2; ++round) {
    for (cudaStream_t stream : all) {
      d.push_back(std::make_unique<DeviceMatrix>());
      check(cublasSetStream(handle.handle, stream), "cublasSetStream");
      handle.multiply(a, b, *d.back());
    }
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (const auto& one : d) write(*one);
}

// Threads with a handle and a stream each; they make their first calls one after the other, the rest at once.
void threads(int count) {
  constexpr int kThreads = 3;
  const HostMatrix host_a(1), host_b(2);
  const DeviceMatrix a(host_a), b(host_b);
  std::vector<std::unique_ptr<DeviceMatrix>> d;
  std::vector<std::unique_ptr<Stream>> stream;
  std::vector<std::unique_ptr<Handle>> handle;
  for (int i = 0; i < kThreads; ++i) {
    d.push_back(std::make_unique<DeviceMatrix>());
    stream.push_back(std::make_unique<Stream>());
    handle.push_back(std::make_unique<Handle>(stream.back()->stream));
  }
  std::vector<std::thread> running;
  for (size_t i = 0; i < kThreads; ++i) {
    int started[2];
    if (pipe(started) != 0) throw std::runtime_error("pipe");
    running.emplace_back([&, i, count, done = started[1]] {
      cudaSetDevice(0);
      handle[i]->multiply(a, b, *d[i]);
      close(done);
      for (int call = 1; call < count; ++call) handle[i]->multiply(a, b, *d[i]);
    });
    char none;
    if (read(started[0], &none, 1) != 0) throw std::runtime_error("read");
    close(started[0]);
  }
  for (std::thread& one : running) one.join();
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (const auto& one : d) write(*one);
}

// A child of fork that uses nothing of CUDA and leaves; the parent goes on multiplying.
void forks(int count) {
  Stream stream;
  Handle handle(stream.stream);
  const HostMatrix host_a(1), host_b(2);
  const DeviceMatrix a(host_a), b(host_b);
  DeviceMatrix d;
  for (int i = 0; i < count; ++i) {
    handle.multiply(a, b, d);
    const pid_t child = fork();
    if (child == 0) {
      const std::vector<std::string> work(100, "allocates and frees");
      _exit(work.size() == 100 ? 0 : 1);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) throw std::runtime_error("child of fork");
  }
  check(cudaStreamSynchronize(stream.stream), "cudaStreamSynchronize");
  write(d);
}

}  // namespace

int main(int argc, char** argv) {
  struct Scene {
    const char* name;
    void (*run)(int);
  };
  constexpr Scene kScenes[] = {{"steps", steps},     {"nonfinite", nonfinite}, {"graph", graph},
                               {"streams", streams}, {"threads", threads},     {"forks", forks}};
  if (argc < 3) return 2;
  try {
    dump.open(argv[2], std::ios::binary);
    for (const Scene& scene : kScenes) {
      if (std::string(scene.name) != argv[1]) continue;
      scene.run(argc > 3 ? std::stoi(argv[3]) : 2);
      dump.close();
      return dump ? 0 : 2;
    }
    std::fprintf(stderr, "scenarios: no scene %s\n", argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "scenarios: %s\n", error.what());
  }
  return 2;
}

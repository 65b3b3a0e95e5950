// SPDX-License-Identifier: MIT
// scenarios: a plain cuBLAS program of small scenes that one repeated product cannot show: operands overwritten right
// after the call, non-finite operands, graphs, several streams, threads, fork. It knows nothing of sdcguard.
//
//   scenarios NAME DUMP [N]    runs the scene, writes the bytes of all results to DUMP
#include "scene.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace scene;

constexpr int kNanRow = 5;     // of the weight: a row of D
constexpr int kInfColumn = 9;  // of the activations: a column of D

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
  static constexpr scene::Scene kScenes[] = {{"steps", steps},     {"nonfinite", nonfinite}, {"graph", graph},
                                             {"streams", streams}, {"threads", threads},     {"forks", forks}};
  return scene::run_scene("scenarios", kScenes, argc, argv);
}

// SPDX-License-Identifier: MIT
// weights: a plain cuBLAS program whose products share a weight, in small scenes: the weight stays, is updated in
// place, is used on several streams at once; and calls that are no plain product. It knows nothing of sdcguard.
//
//   weights NAME DUMP [N]    runs the scene, writes the bytes of all results to DUMP
#include "scene.h"

#include <cuComplex.h>

#include <memory>
#include <vector>

namespace {

using namespace scene;

// Products of one weight and other activations each time; before call `update` the weight is updated in stream order.
void multiply(int count, int update) {
  Stream stream;
  Handle handle(stream.stream);
  const HostMatrix before(1), after(2);
  DeviceMatrix weight(before);
  std::vector<std::unique_ptr<HostMatrix>> host;
  std::vector<std::unique_ptr<DeviceMatrix>> b, d;
  for (int i = 0; i < count; ++i) {
    host.push_back(std::make_unique<HostMatrix>(static_cast<uint64_t>(3 + i)));
    b.push_back(std::make_unique<DeviceMatrix>(*host.back()));
    d.push_back(std::make_unique<DeviceMatrix>());
  }
  for (size_t i = 0; i < b.size(); ++i) {
    if (i == static_cast<size_t>(update)) {
      check(cudaMemcpyAsync(weight.data, after.data, kBytes, cudaMemcpyHostToDevice, stream.stream), "cudaMemcpyAsync");
    }
    handle.multiply(weight, *b[i], *d[i]);
  }
  check(cudaStreamSynchronize(stream.stream), "cudaStreamSynchronize");
  for (const auto& one : d) write(*one);
}

void kept(int count) {
  multiply(count, -1);
}
void updated(int count) {
  multiply(2 * count, count);
}

// N products of one weight on each of three streams, none waited for.
void shared(int count) {
  constexpr size_t kStreams = 3;
  const HostMatrix host_a(1), host_b(2);
  const DeviceMatrix weight(host_a), b(host_b);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Handle>> handles;
  std::vector<std::unique_ptr<DeviceMatrix>> d;
  for (size_t i = 0; i < kStreams; ++i) {
    streams.push_back(std::make_unique<Stream>());
    handles.push_back(std::make_unique<Handle>(streams[i]->stream));
  }
  for (int i = 0; i < count; ++i) {
    for (const auto& handle : handles) {
      d.push_back(std::make_unique<DeviceMatrix>());
      handle->multiply(weight, b, *d.back());
    }
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (const auto& one : d) write(*one);
}

// One call of each kind that is seen and not checked.
void observed(int) {
  Stream stream;
  Handle owner(stream.stream);
  cublasHandle_t handle = owner.handle;
  DeviceMatrix zero_a, zero_b, d;
  check(cudaMemset(zero_a.data, 0, kBytes), "cudaMemset");
  check(cudaMemset(zero_b.data, 0, kBytes), "cudaMemset");
  check(cudaMemset(d.data, 0, kBytes), "cudaMemset");
  constexpr int kN = 16;
  const float one = 1, none = 0;
  const double wide_one = 1, wide_none = 0;
  const cuComplex complex_one = make_cuComplex(1, 0), complex_none = make_cuComplex(0, 0);
  const auto* fa = static_cast<const float*>(zero_a.data);
  const auto* fb = static_cast<const float*>(zero_b.data);
  auto* fd = static_cast<float*>(d.data);
  const auto* ca = static_cast<const cuComplex*>(zero_a.data);
  const auto* cb = static_cast<const cuComplex*>(zero_b.data);
  auto* cd = static_cast<cuComplex*>(d.data);
  const auto* da = static_cast<const double*>(zero_a.data);
  auto* dd = static_cast<double*>(d.data);
  check(cublasCgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kN, 2 * kN, 3 * kN, &complex_one, ca, kN, cb, 3 * kN,
                    &complex_none, cd, kN),
        "cublasCgemm");
  check(cublasSgemv(handle, CUBLAS_OP_T, 2 * kN, kN, &one, fa, 2 * kN, fb, 1, &none, fd, 1), "cublasSgemv");
  check(cublasDsyrk(handle, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, kN, 2 * kN, &wide_one, da, kN, &wide_none, dd, kN),
        "cublasDsyrk");
  check(cublasSsymm(handle, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, kN, 2 * kN, &one, fa, 2 * kN, fb, kN, &none, fd,
                    kN),
        "cublasSsymm");
  check(cudaStreamSynchronize(stream.stream), "cudaStreamSynchronize");
  write(d);
}

constexpr Scene kScenes[] = {{"kept", kept}, {"updated", updated}, {"shared", shared}, {"observed", observed}};

}  // namespace

int main(int argc, char** argv) {
  return run_scene("weights", kScenes, argc, argv);
}

// SPDX-License-Identifier: MIT
// bench_probe: time of each probe kernel beside the product that it checks, by device events.
//
//   bench_probe [--small] [--rounds N]     one JSON object on stdout; exit code 1 if a verdict was wrong or a call
//   failed
//
// Three sequences a shape, all on one stream, the median over the rounds: the probe alone (nothing to deliver), with
// delivery (the product pass also writes D in BF16), and dirty (16 wrong entries planted in P after the product, found
// and repaired). The floor of the probe is A once + B once + P once over the copy bandwidth measured in the same run.
// The shim overlaps fold and operand pass with the product on a side stream; here they stand in line, so the sums are
// an upper limit of the time added. An event between two kernels costs about a microsecond, which counts as theirs.
// On the host device the run shows that the verdicts are right; its times are those of a simulation.
#include <cublas_v2.h>
#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/plan.h"
#include "tests/stage/device.h"

namespace {

using namespace sdcguard;
using nlohmann::ordered_json;
using stage::Buffer;

constexpr uint32_t kPlantedFaults = 16;  // DESIGN section 9: a dirty call has up to 16 faults

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  throw std::runtime_error(std::string(what) + ": " + name);
}
void must(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasGetStatusString(status));
}

struct Shape {
  const char* name;
  int64_t n1, n2, n3;  // tokens, inner, outputs
};
// Projections of an 8-billion and a 1-billion parameter transformer in training (tokens of a micro-batch) and in
// decoding.
constexpr Shape kShapes[] = {
    {"8B attention, 8192 tokens", 8192, 4096, 4096}, {"8B up, 8192 tokens", 8192, 4096, 14336},
    {"8B down, 8192 tokens", 8192, 14336, 4096},     {"1B attention, 4096 tokens", 4096, 2048, 2048},
    {"1B up, 4096 tokens", 4096, 2048, 8192},        {"8B attention, decoding 64", 64, 4096, 4096}};
constexpr Shape kSmallShapes[] = {{"small square", 128, 128, 128}, {"small wide", 64, 128, 256}};

// Random BF16 bits of values in +-[2^-4, 2): a period of a prime number of values, so that no two rows are alike.
void fill_bf16(const Buffer& buffer, uint64_t values, uint64_t seed) {
  constexpr uint64_t kPeriod = 1048573;
  std::vector<uint16_t> block(std::min(values, kPeriod));
  uint64_t state = seed;
  for (uint16_t& bits : block) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto r = static_cast<uint32_t>(state >> 40);
    bits = static_cast<uint16_t>((r & 0x8000u) | ((123 + (r >> 16) % 5) << 7) | (r & 0x7Fu));
  }
  for (uint64_t at = 0; at < values; at += block.size()) {
    const uint64_t count = std::min<uint64_t>(block.size(), values - at);
    must(cuMemcpyHtoD_v2(buffer.address() + at * 2, block.data(), count * 2), "cuMemcpyHtoD");
  }
}

class Event {
 public:
  Event() { must(cuEventCreate(&event_, CU_EVENT_DEFAULT), "cuEventCreate"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cuEventDestroy_v2(event_); }
  void record() { must(cuEventRecord(event_, nullptr), "cuEventRecord"); }
  double us_since(const Event& begin) const {
    float ms = 0;
    must(cuEventElapsedTime(&ms, begin.event_, event_), "cuEventElapsedTime");
    return 1000.0 * static_cast<double>(ms);
  }

 private:
  CUevent event_ = nullptr;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Bytes read plus bytes written in a second by the device's own copy, the best of ten.
double copy_bandwidth(uint64_t bytes) {
  const Buffer from(bytes);
  const Buffer to(bytes);
  Event begin;
  Event end;
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    begin.record();
    must(cuMemcpyDtoDAsync_v2(to.address(), from.address(), bytes, nullptr), "cuMemcpyDtoDAsync");
    end.record();
    must(cuCtxSynchronize(), "cuCtxSynchronize");
    best = std::max(best, 2.0 * static_cast<double>(bytes) / (end.us_since(begin) * 1e-6));
  }
  return best;
}

enum class Sequence { kProbe, kDelivering, kDirty };

struct Timed {
  std::array<double, kKernelCount> kernel_us{};
  double gemm_us = 0;
  uint32_t launches = 0;
  Verdict verdict{};
};

class Bench {
 public:
  Bench(const Shape& shape, cublasHandle_t handle, int rounds)
      : shape_(shape),
        handle_(handle),
        rounds_(rounds),
        a_(static_cast<uint64_t>(shape.n1 * shape.n2) * 2),
        b_(static_cast<uint64_t>(shape.n2 * shape.n3) * 2),
        d_(static_cast<uint64_t>(shape.n1 * shape.n3) * 2) {
    fill_bf16(a_, a_.bytes() / 2, 1);
    fill_bf16(b_, b_.bytes() / 2, 2);
  }

  // The caller's call as it is: BF16 in, BF16 out.
  double native_us() {
    std::vector<double> times;
    Event begin;
    Event end;
    for (int i = 0; i < rounds_ + kWarmUps; ++i) {
      begin.record();
      multiply(d_.address(), CUDA_R_16BF, shape_.n3);
      end.record();
      must(cuCtxSynchronize(), "cuCtxSynchronize");
      if (i >= kWarmUps) times.push_back(end.us_since(begin));
    }
    return median(times);
  }

  Timed run(Sequence sequence) {
    ProbeRequest request{};
    request.n1 = shape_.n1;
    request.n2 = shape_.n2;
    request.n3 = shape_.n3;
    request.batch = 1;
    request.a = {a_.address(), shape_.n2, 1, 0, DataType::kBF16};
    request.b = {b_.address(), 1, shape_.n2, 0, DataType::kBF16};  // a weight of n3 x n2, as frameworks keep it
    request.c_apart = true;
    request.mode = Mode::kRepair;
    request.finish.alpha = 1.0f;
    if (sequence != Sequence::kProbe) request.finish.d = {d_.address(), shape_.n3, 1, 0, DataType::kBF16};
    CUdevice device = 0;
    int multiprocessors = 0;
    int major = 0;
    must(cuCtxGetDevice(&device), "cuCtxGetDevice");
    must(cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), "SM count");
    must(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "compute capability");
    request.sm_count = static_cast<uint32_t>(multiprocessors);
    request.tensor_core = tensor_core_of(static_cast<uint32_t>(major), DataType::kBF16);
    ProbePlan plan = make_plan(request);
    if (!plan.usable()) throw std::runtime_error(std::string(shape_.name) + ": no plan: " + name_of(plan.reason));

    Buffer product(plan.product_bytes);
    Buffer scratch(plan.layout.bytes);
    Buffer history(sizeof(SiteHistory));
    history.fill(0);
    must(cuMemsetD8_v2(scratch.address(), 0, kZeroedScratchBytes), "cuMemsetD8");
    bind_scratch(plan.params, plan.layout, scratch.address());
    plan.params.p.address = product.address();
    plan.params.site_history = history.address();
    plan.params.seed = 5;

    Timed timed;
    for (const LaunchShape& launch : plan.launch) timed.launches += launch.grid != 0 ? 1 : 0;
    std::array<std::vector<double>, kKernelCount> kernels;
    std::vector<double> gemm;
    std::array<Event, kKernelCount + 3> events;
    // Clean calls first: they seed the site's history, after which no line is audited any more.
    for (int round = 0; round < rounds_ + kWarmUps; ++round) {
      const bool warm = round >= kWarmUps;
      events[0].record();
      launch(plan, Kernel::kFold);
      events[1].record();
      launch(plan, Kernel::kOperand);
      events[2].record();
      multiply(product.address(), CUDA_R_32F, plan.params.p.row_stride);
      events[3].record();
      if (warm && sequence == Sequence::kDirty) plant(product, plan.params.p.row_stride);
      for (uint32_t k = static_cast<uint32_t>(Kernel::kProduct); k < kKernelCount; ++k) {
        events[k + 2].record();
        launch(plan, static_cast<Kernel>(k));
      }
      events[kKernelCount + 2].record();
      must(cuCtxSynchronize(), "cuCtxSynchronize");
      timed.verdict = stage::read_array<Verdict>(plan.params.verdict, 1).at(0);
      if (!warm) continue;
      judge(sequence, timed.verdict);
      gemm.push_back(events[3].us_since(events[2]));
      kernels[0].push_back(events[1].us_since(events[0]));
      kernels[1].push_back(events[2].us_since(events[1]));
      for (uint32_t k = 2; k < kKernelCount; ++k) kernels[k].push_back(events[k + 3].us_since(events[k + 2]));
    }
    timed.gemm_us = median(gemm);
    for (uint32_t k = 0; k < kKernelCount; ++k) timed.kernel_us[k] = median(kernels[k]);
    return timed;
  }

 private:
  static constexpr int kWarmUps = 3;

  void multiply(uint64_t to, cudaDataType_t type, int64_t leading) {
    const float one = 1.0f;
    const float zero = 0.0f;
    must(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(shape_.n3), static_cast<int>(shape_.n1),
                      static_cast<int>(shape_.n2), &one, reinterpret_cast<const void*>(b_.address()), CUDA_R_16BF,
                      static_cast<int>(shape_.n2), reinterpret_cast<const void*>(a_.address()), CUDA_R_16BF,
                      static_cast<int>(shape_.n2), &zero, reinterpret_cast<void*>(to), type, static_cast<int>(leading),
                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
         "cublasGemmEx");
  }

  static void launch(ProbePlan& plan, Kernel kernel) {
    const LaunchShape& shape = plan.launch[static_cast<uint32_t>(kernel)];
    if (shape.grid == 0) return;
    void* arguments[] = {&plan.params};
    must(cuLaunchKernel(stage::function_of(shape), shape.grid, 1, 1, shape.block, 1, 1, shape.shared_bytes, nullptr,
                        arguments, nullptr),
         kFunctionNames[shape.function]);
  }

  // Spread over lines and columns; 2^40 is beyond any bound of these products.
  void plant(const Buffer& product, int64_t row_stride) const {
    for (int64_t i = 0; i < kPlantedFaults; ++i) {
      const int64_t row = (i * 2654435761 + 7) % shape_.n1;
      const int64_t column = (i * 40503 + 11) % shape_.n3;
      must(cuMemsetD32Async(product.address() + static_cast<uint64_t>(row * row_stride + column) * 4, 0x53800000u, 1,
                            nullptr),
           "cuMemsetD32Async");
    }
  }

  void judge(Sequence sequence, const Verdict& verdict) const {
    const bool right = sequence == Sequence::kDirty
                           ? verdict.entries_named == kPlantedFaults && verdict.entries_repaired == kPlantedFaults
                           : verdict.entries_named == 0 && verdict.outcome == static_cast<uint32_t>(Outcome::kClean);
    if (right) return;
    throw std::runtime_error(std::string(shape_.name) + ": " + std::to_string(verdict.entries_named) +
                             " entries named, " + std::to_string(verdict.entries_repaired) + " repaired, outcome " +
                             name_of(static_cast<Outcome>(verdict.outcome)) +
                             (sequence == Sequence::kDirty ? ", with 16 planted" : ", with none planted"));
  }

  Shape shape_;
  cublasHandle_t handle_;
  int rounds_;
  Buffer a_, b_, d_;
};

double sum_from(const Timed& timed, Kernel first) {
  double sum = 0;
  for (uint32_t k = static_cast<uint32_t>(first); k < kKernelCount; ++k) sum += timed.kernel_us[k];
  return sum;
}

ordered_json row_of(const Shape& shape, cublasHandle_t handle, int rounds, double bandwidth) {
  Bench bench(shape, handle, rounds);
  const double native = bench.native_us();
  const Timed probe = bench.run(Sequence::kProbe);
  const Timed delivering = bench.run(Sequence::kDelivering);
  const Timed dirty = bench.run(Sequence::kDirty);

  const double bytes = 2.0 * static_cast<double>(shape.n1 * shape.n2 + shape.n2 * shape.n3) +
                       4.0 * static_cast<double>(shape.n1 * shape.n3);
  const double floor_us = bytes / bandwidth * 1e6;
  const double probe_us = probe.kernel_us[0] + probe.kernel_us[1] + probe.kernel_us[2];
  ordered_json kernels;
  for (uint32_t k = 0; k < kKernelCount; ++k) {
    kernels[kFunctionNames[k]] = {
        {"probe_us", probe.kernel_us[k]}, {"delivering_us", delivering.kernel_us[k]}, {"dirty_us", dirty.kernel_us[k]}};
  }
  return {{"shape", shape.name},
          {"n1", shape.n1},
          {"n2", shape.n2},
          {"n3", shape.n3},
          {"native_gemm_us", native},
          {"fp32_gemm_us", delivering.gemm_us},
          {"probe_us", probe_us},
          {"floor_us", floor_us},
          {"probe_over_floor", probe_us / floor_us},
          {"probe_over_native_gemm", probe_us / native},
          {"escalation_when_clean_us", sum_from(probe, Kernel::kRecompute)},
          {"added_us", delivering.gemm_us - native + delivering.kernel_us[0] + sum_from(delivering, Kernel::kOperand)},
          {"dirty_escalation_us", sum_from(dirty, Kernel::kRecompute)},
          {"dirty_over_native_gemm", sum_from(dirty, Kernel::kRecompute) / native},
          {"launches", delivering.launches},
          {"entries_repaired_when_dirty", dirty.verdict.entries_repaired},
          {"kernels", kernels}};
}

int bench(bool small, int rounds) {
  stage::function_of(LaunchShape{});  // the device is up and the kernels are loaded
  cublasHandle_t handle = nullptr;
  must(cublasCreate(&handle), "cublasCreate");
  CUdevice device = 0;
  char name[256] = "";
  int driver = 0;
  must(cuCtxGetDevice(&device), "cuCtxGetDevice");
  must(cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName");
  must(cuDriverGetVersion(&driver), "cuDriverGetVersion");
  const double bandwidth = copy_bandwidth(small ? uint64_t{1} << 20 : uint64_t{1} << 31);
  ordered_json rows = ordered_json::array();
  if (small) {
    for (const Shape& shape : kSmallShapes) rows.push_back(row_of(shape, handle, rounds, bandwidth));
  } else {
    for (const Shape& shape : kShapes) rows.push_back(row_of(shape, handle, rounds, bandwidth));
  }
  cublasDestroy(handle);
  const ordered_json document{{"device", name},
                              {"driver", driver},
                              {"rounds", rounds},
                              {"copy_bytes_per_second", bandwidth},
                              {"planted_faults_when_dirty", kPlantedFaults},
                              {"shapes", rows}};
  std::printf("%s\n", document.dump(1).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  bool small = false;
  int rounds = 21;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--small") == 0) {
      small = true;
    } else if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      rounds = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: bench_probe [--small] [--rounds N]\n");
      return 2;
    }
  }
  try {
    return bench(small, rounds);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_probe: %s\n", e.what());
    return 1;
  }
}

// SPDX-License-Identifier: MIT
// The product engine: chooses the path for an order and type, runs batches and split-K slices, then injects faults.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "engine.h"
#include "fast.h"
#include "faults.h"
#include "gemm.h"
#include "matrix.h"
#include "order.h"
#include "pool.h"

namespace hostcuda::gemm {
namespace {

constexpr int kSettingsExit = 86;
constexpr int kMaxThreads = 256;
constexpr int kMaxDevices = 64;
// Products below this many MACs run on the caller's thread: waking a thread costs about what half of one takes.
constexpr int64_t kThreadedWork = int64_t{1} << 18;

class FileLog : public FaultLog {
 public:
  explicit FileLog(int descriptor) : descriptor_(descriptor) {}
  void write(const std::string& line) override {
    const std::lock_guard lock(mutex_);
    const char* data = line.data();
    size_t left = line.size();
    while (left > 0) {
      const ssize_t written = ::write(descriptor_, data, left);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        if (!failed_) std::fprintf(stderr, "hostcuda: HOSTCUDA_FAULT_LOG: %s\n", std::strerror(errno));
        failed_ = true;
        return;
      }
      data += written;
      left -= static_cast<size_t>(written);
    }
  }

 private:
  const int descriptor_;
  std::mutex mutex_;
  bool failed_ = false;
};

struct Settings {
  Order order;
  int threads = 1;
  FaultPlan plan;
  FaultLog* log = nullptr;  // never destroyed: products may still run while the process ends
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

[[noreturn]] void stop(const std::string& message) {
  std::fprintf(stderr, "hostcuda: %s\n", message.c_str());
  std::fflush(stderr);
  _exit(kSettingsExit);
}

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::clamp(CPU_COUNT(&set), 1, kMaxThreads);
}

Settings read_settings() {
  Settings settings;
  std::string error;
  const std::string order = environment("HOSTCUDA_ORDER");
  if (!parse_order(order.empty() ? "h100" : order, &settings.order, &error)) stop("HOSTCUDA_ORDER: " + error);

  settings.threads = available_cores();
  const std::string threads = environment("HOSTCUDA_GEMM_THREADS");
  if (!threads.empty()) {
    const char* last = threads.data() + threads.size();
    const auto result = std::from_chars(threads.data(), last, settings.threads);
    if (result.ec != std::errc() || result.ptr != last || settings.threads < 1 || settings.threads > kMaxThreads) {
      stop("HOSTCUDA_GEMM_THREADS: \"" + threads + "\" is not a whole number from 1 to " + std::to_string(kMaxThreads));
    }
  }

  const bool strict = environment("HOSTCUDA_STRICT") == "1";
  const std::string faults = environment("HOSTCUDA_FAULTS");
  if (!faults.empty() && !load_fault_plan(faults, &settings.plan, &error)) {
    if (strict) stop("HOSTCUDA_FAULTS: " + error);
    std::fprintf(stderr, "hostcuda: HOSTCUDA_FAULTS: %s; the fault plan is off\n", error.c_str());
    settings.plan.rules.clear();
  }
  const std::string log = environment("HOSTCUDA_FAULT_LOG");
  if (!log.empty() && !settings.plan.rules.empty()) {
    const int descriptor = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor >= 0) {
      settings.log = new FileLog(descriptor);
    } else {
      const std::string reason = "HOSTCUDA_FAULT_LOG: " + log + ": " + std::strerror(errno);
      if (strict) stop(reason);
      std::fprintf(stderr, "hostcuda: %s; the fault plan is off\n", reason.c_str());
      settings.plan.rules.clear();
    }
  }
  return settings;
}

const Settings& settings() {
  static const Settings* const read = new Settings(read_settings());
  return *read;
}

// Entry by entry with the defining arithmetic: CPUs without AVX2, and FP16 accumulators.
void scalar_product(const Order& order, Compute compute, const View& a, const View& b, const OutView& out,
                    const Extent& extent, int threads) {
  const size_t k = static_cast<size_t>(extent.k);
  std::vector<float> rows(static_cast<size_t>(extent.m) * k);
  for (int64_t i = 0; i < extent.m; ++i) {
    for (int64_t l = 0; l < extent.k; ++l) rows[static_cast<size_t>(i) * k + static_cast<size_t>(l)] = a.at(i, l);
  }
  for_each_task(extent.n, threads, [&](int64_t j) {
    std::vector<float> column(k);
    for (int64_t l = 0; l < extent.k; ++l) column[static_cast<size_t>(l)] = b.at(l, j);
    for (int64_t i = 0; i < extent.m; ++i) {
      out.at(i, j) = replay_entry(order, a.type, compute, rows.data() + static_cast<size_t>(i) * k, column.data(),
                                  extent.k, nullptr);
    }
  });
}

void one_slice(const Order& order, const View& a, const View& b, const OutView& out, const Extent& extent,
               int threads) {
  if (a.type == Type::kFp32 || order.rule == Rule::kSequential) {
    sequential_product(a, b, out, extent, threads);
  } else if (order.rule == Rule::kRounded16) {
    rounded16_product(a, b, out, extent, threads);
  } else {
    tensor_core_product(order.step, a, b, out, extent, threads);
  }
}

void one_entry(const Order& order, Compute compute, const View& a, const View& b, const OutView& out,
               const Extent& extent, int threads) {
  if (extent.k == 0) {
    for (int64_t j = 0; j < extent.n; ++j) {
      for (int64_t i = 0; i < extent.m; ++i) out.at(i, j) = 0.0f;
    }
    return;
  }
  if (compute == Compute::kFp16 || !has_vector_paths()) {
    scalar_product(order, compute, a, b, out, extent, threads);
    return;
  }
  const int64_t slice = a.type == Type::kFp32 ? extent.k : slice_products(order, extent.k);
  one_slice(order, a, b, out, {extent.m, extent.n, std::min(slice, extent.k)}, threads);
  if (slice >= extent.k) return;
  std::vector<float> part(static_cast<size_t>(extent.m * extent.n));
  const OutView part_view{part.data(), 1, extent.m};
  for (int64_t begin = slice; begin < extent.k; begin += slice) {
    one_slice(order, a.from(0, begin), b.from(begin, 0), part_view,
              {extent.m, extent.n, std::min(slice, extent.k - begin)}, threads);
    for (int64_t j = 0; j < extent.n; ++j) {
      for (int64_t i = 0; i < extent.m; ++i) {
        const float total = out.at(i, j) + part_view.at(i, j);
        out.at(i, j) = std::isnan(total) ? std::bit_cast<float>(kCanonicalNan) : total;
      }
    }
  }
}

bool valid_operand(const Operand& operand, int64_t rows, int64_t cols, int64_t batch) {
  if (operand.ld < std::max<int64_t>(1, operand.transposed ? cols : rows)) return false;
  if (rows == 0 || cols == 0) return true;
  if (operand.pointers == nullptr) return operand.data != nullptr;
  return std::all_of(operand.pointers, operand.pointers + batch, [](const void* data) { return data != nullptr; });
}

bool valid(const Product& product) {
  if (product.m < 0 || product.n < 0 || product.k < 0 || product.batch < 0) return false;
  if (product.m == 0 || product.n == 0 || product.batch == 0) return true;
  if (product.out == nullptr || product.out_ld < product.m) return false;
  if (product.batch > 1 && product.out_stride < product.out_ld * (product.n - 1) + product.m) return false;
  return valid_operand(product.a, product.m, product.k, product.batch) &&
         valid_operand(product.b, product.k, product.n, product.batch);
}

std::atomic<uint64_t> product_counters[kMaxDevices];

}  // namespace

void compute_product(const Order& order, int most_threads, const Product& product) {
  const Extent extent{product.m, product.n, product.k};
  const double work = static_cast<double>(product.m) * static_cast<double>(product.n) *
                      static_cast<double>(std::max<int64_t>(product.k, 1));
  const bool threaded = work * static_cast<double>(product.batch) >= static_cast<double>(kThreadedWork);
  const int threads = threaded ? most_threads : 1;
  const bool by_entry = product.batch >= threads && threads > 1;
  const auto run_entry = [&](int64_t entry, int entry_threads) {
    one_entry(order, product.compute, view_of(product.a, entry), view_of(product.b, entry),
              OutView{product.out + entry * product.out_stride, 1, product.out_ld}, extent, entry_threads);
  };
  if (by_entry) {
    for_each_task(product.batch, threads, [&](int64_t entry) { run_entry(entry, 1); });
  } else {
    for (int64_t entry = 0; entry < product.batch; ++entry) run_entry(entry, threads);
  }
}

}  // namespace hostcuda::gemm

using hostcuda::gemm::Compute;
using hostcuda::gemm::Outcome;
using hostcuda::gemm::Product;
using hostcuda::gemm::Skipped;
using hostcuda::gemm::Status;
using hostcuda::gemm::Type;

Status hostcuda_gemm_supports(Type a, Type b, Compute compute) {
  const auto& order = hostcuda::gemm::settings().order;
  if (a != b) return Status::kNotSupported;
  if (compute == Compute::kFp16 && a != Type::kFp16) return Status::kNotSupported;
  if (a == Type::kBf16 && !order.has_bf16) return Status::kNotSupported;
  return Status::kOk;
}

uint64_t hostcuda_gemm_next_index(int32_t device) {
  hostcuda::gemm::settings();
  const int slot = std::clamp(device, 0, hostcuda::gemm::kMaxDevices - 1);
  return hostcuda::gemm::product_counters[slot].fetch_add(1, std::memory_order_relaxed);
}

Status hostcuda_gemm_run(const Product* product, Outcome* outcome) {
  *outcome = Outcome{nullptr, 0, 0};
  const auto& set = hostcuda::gemm::settings();
  if (!hostcuda::gemm::valid(*product)) return Status::kInvalid;
  const Status supported = hostcuda_gemm_supports(product->a.type, product->b.type, product->compute);
  if (supported != Status::kOk) return supported;
  if (product->m == 0 || product->n == 0 || product->batch == 0) return Status::kOk;
  hostcuda::gemm::compute_product(set.order, set.threads, *product);
  if (set.plan.rules.empty()) return Status::kOk;
  std::vector<Skipped> skipped;
  outcome->injected = hostcuda::gemm::inject_faults(set.plan, set.order, *product, set.log, &skipped);
  if (!skipped.empty()) {
    auto* copy = new Skipped[skipped.size()];
    std::copy(skipped.begin(), skipped.end(), copy);
    outcome->skipped = copy;
    outcome->skipped_count = skipped.size();
  }
  return Status::kOk;
}

void hostcuda_gemm_release(Outcome* outcome) {
  delete[] outcome->skipped;
  *outcome = Outcome{nullptr, 0, 0};
}

const char* hostcuda_gemm_order_name(void) {
  return hostcuda::gemm::settings().order.name.c_str();
}

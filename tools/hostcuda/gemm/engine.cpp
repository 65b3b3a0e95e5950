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

// One product of the orders that sum in FP32.
struct FloatProduct {
  const Order& order;
  const Product& product;
  Chain chain;
  int threads;
};

// Entry by entry with the defining arithmetic: CPUs without AVX2, steps without a vector path, FP16 accumulators, block
// scales.
void scalar_product(const FloatProduct& job, const View& a, const View& b, const OutView& out, const Extent& extent) {
  const size_t k = static_cast<size_t>(extent.k);
  std::vector<float> rows(static_cast<size_t>(extent.m) * k);
  for (int64_t i = 0; i < extent.m; ++i) {
    for (int64_t l = 0; l < extent.k; ++l) rows[static_cast<size_t>(i) * k + static_cast<size_t>(l)] = a.at(i, l);
  }
  for_each_task(extent.n, job.threads, [&](int64_t j) {
    std::vector<float> column(k);
    for (int64_t l = 0; l < extent.k; ++l) column[static_cast<size_t>(l)] = b.at(l, j);
    for (int64_t i = 0; i < extent.m; ++i) {
      out.at(i, j) = replay_entry_of(job.order, job.product, i, j, rows.data() + static_cast<size_t>(i) * k,
                                     column.data(), nullptr);
    }
  });
}

void unbroken_sums(const FloatProduct& job, const View& a, const View& b, const OutView& out, const Extent& extent) {
  switch (job.chain.rule) {
    case Rule::kSequential:
      return sequential_product(a, b, out, extent, job.threads);
    case Rule::kRounded16:
      return rounded16_product(a, b, out, extent, job.threads);
    case Rule::kTensorCore:
      return tensor_core_product(job.chain.step, job.chain.formats, a, b, out, extent, job.threads);
  }
}

void narrow(const OutView& out, const Extent& extent, Type type) {
  for (int64_t j = 0; j < extent.n; ++j) {
    for (int64_t i = 0; i < extent.m; ++i) out.at(i, j) = narrowed(type, out.at(i, j));
  }
}

// k in parts of `length` products, each by sum_part, added to nearest in their order. `narrow_to`: what each part is
// rounded to first; null: it is not.
template <typename SumPart>
void sum_of_parts(const View& a, const View& b, const OutView& out, const Extent& extent, int64_t length,
                  const Type* narrow_to, const SumPart& sum_part) {
  sum_part(a, b, out, Extent{extent.m, extent.n, std::min(length, extent.k)});
  if (length >= extent.k) return;
  if (narrow_to != nullptr) narrow(out, extent, *narrow_to);
  std::vector<float> part(static_cast<size_t>(extent.m * extent.n));
  const OutView part_view{part.data(), 1, extent.m};
  for (int64_t begin = length; begin < extent.k; begin += length) {
    sum_part(a.from(0, begin), b.from(begin, 0), part_view,
             Extent{extent.m, extent.n, std::min(length, extent.k - begin)});
    if (narrow_to != nullptr) narrow(part_view, extent, *narrow_to);
    for (int64_t j = 0; j < extent.n; ++j) {
      for (int64_t i = 0; i < extent.m; ++i) {
        const float total = out.at(i, j) + part_view.at(i, j);
        out.at(i, j) = std::isnan(total) ? std::bit_cast<float>(kCanonicalNan) : total;
      }
    }
  }
}

// rows x cols values of an FP8, FP4 or TF32 operand as FP32, down the columns, in *memory.
View widened(const View& x, int64_t rows, int64_t cols, std::vector<float>* memory) {
  memory->resize(static_cast<size_t>(rows * cols));
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      const float value = x.at(r, c);
      (*memory)[static_cast<size_t>(c * rows + r)] = x.type == Type::kFp32 ? cut_to_tf32(value) : value;
    }
  }
  return {memory->data(), Type::kFp32, 1, rows};
}

void float_entry(const FloatProduct& job, int64_t batch_entry) {
  const Product& product = job.product;
  const Extent extent{product.m, product.n, product.k};
  const OutView out = out_of<float>(product, batch_entry);
  View a = view_of(product.a, batch_entry);
  View b = view_of(product.b, batch_entry);
  const bool vector = has_vector_paths() && product.compute != Compute::kFp16 && product.scales.length == 0 &&
                      (job.chain.rule != Rule::kTensorCore || has_vector_step(job.chain.step));
  if (!vector) {
    scalar_product(job, a, b, out, extent);
    return;
  }
  std::vector<float> wide_a;
  std::vector<float> wide_b;
  if (product.compute == Compute::kTf32 || is_narrow(a.type)) {
    a = widened(a, extent.m, extent.k, &wide_a);
    b = widened(b, extent.k, extent.n, &wide_b);
  }
  const Type* narrow_to = narrows(job.order, product.a.type, true) ? &product.a.type : nullptr;
  sum_of_parts(a, b, out, extent, slice_products(job.order, job.chain, extent.k), narrow_to,
               [&](const View& slice_a, const View& slice_b, const OutView& slice_out, const Extent& slice) {
                 const int64_t length = job.chain.promotion == 0 ? slice.k : job.chain.promotion;
                 sum_of_parts(slice_a, slice_b, slice_out, slice, length, nullptr,
                              [&](const View& part_a, const View& part_b, const OutView& part_out, const Extent& part) {
                                unbroken_sums(job, part_a, part_b, part_out, part);
                              });
               });
}

template <typename Sum>
void zero_entry(const Product& product, int64_t batch_entry) {
  const SumView<Sum> out = out_of<Sum>(product, batch_entry);
  for (int64_t j = 0; j < product.n; ++j) {
    for (int64_t i = 0; i < product.m; ++i) out.at(i, j) = Sum{0};
  }
}

void one_entry(const Order& order, const Product& product, int64_t batch_entry, int threads) {
  const Extent extent{product.m, product.n, product.k};
  switch (sum_type(product.compute)) {
    case Type::kFp64:
      if (extent.k == 0) return zero_entry<double>(product, batch_entry);
      return fp64_product(view_of(product.a, batch_entry), view_of(product.b, batch_entry),
                          out_of<double>(product, batch_entry), extent, threads);
    case Type::kInt32:
      if (extent.k == 0) return zero_entry<int32_t>(product, batch_entry);
      return int8_product(view_of(product.a, batch_entry), view_of(product.b, batch_entry),
                          out_of<int32_t>(product, batch_entry), extent, threads);
    default:
      if (extent.k == 0) return zero_entry<float>(product, batch_entry);
      return float_entry({order, product, chain_of(order, product.a.type, product.b.type, product.compute), threads},
                         batch_entry);
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
  const double work = static_cast<double>(product.m) * static_cast<double>(product.n) *
                      static_cast<double>(std::max<int64_t>(product.k, 1));
  const bool threaded = work * static_cast<double>(product.batch) >= static_cast<double>(kThreadedWork);
  const int threads = threaded ? most_threads : 1;
  if (product.batch >= threads && threads > 1) {
    for_each_task(product.batch, threads, [&](int64_t entry) { one_entry(order, product, entry, 1); });
  } else {
    for (int64_t entry = 0; entry < product.batch; ++entry) one_entry(order, product, entry, threads);
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
  const bool can = hostcuda::gemm::supports(hostcuda::gemm::settings().order, a, b, compute);
  return can ? Status::kOk : Status::kNotSupported;
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
  hostcuda::gemm::Order order = set.order;
  if (order.narrow_partials == hostcuda::gemm::NarrowPartials::kWhereAllowed && !product->narrow_result) {
    order.narrow_partials = hostcuda::gemm::NarrowPartials::kNever;
  }
  hostcuda::gemm::compute_product(order, set.threads, *product);
  if (set.plan.rules.empty()) return Status::kOk;
  std::vector<Skipped> skipped;
  outcome->injected = hostcuda::gemm::inject_faults(set.plan, order, *product, set.log, &skipped);
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

int hostcuda_gemm_compute_capability(void) {
  return hostcuda::gemm::settings().order.compute_capability;
}

const char* hostcuda_gemm_order_name(void) {
  return hostcuda::gemm::settings().order.name.c_str();
}

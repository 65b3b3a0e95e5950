// SPDX-License-Identifier: MIT
// Product: takes a checked product call, runs it on the stream's worker: device addresses to aliases, raw product by
// the engine, closing arithmetic, D.
#include "tools/hostcuda/cublaslt/product.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "tools/hostcuda/access.h"
#include "tools/hostcuda/core.h"

namespace hostcuda {
namespace {

// Refusals on demand

constexpr uint8_t kMaskFp32 = 1 << static_cast<int>(gemm::Type::kFp32);
constexpr uint8_t kMaskFp16 = 1 << static_cast<int>(gemm::Type::kFp16);
constexpr uint8_t kMaskBf16 = 1 << static_cast<int>(gemm::Type::kBf16);

struct Refusal {
  uint8_t in;
  uint8_t out;
};

uint8_t mask_of(std::string_view word) {
  if (word == "16") return kMaskFp16 | kMaskBf16;
  if (word == "32" || word == "fp32") return kMaskFp32;
  if (word == "bf16") return kMaskBf16;
  if (word == "fp16") return kMaskFp16;
  if (word == "any") return kMaskFp32 | kMaskFp16 | kMaskBf16;
  return 0;
}

bool parse_refusals(std::string_view text, std::vector<Refusal>* out) {
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view rule = text.substr(0, comma);
    const size_t arrow = rule.find("->");
    if (arrow == std::string_view::npos) return false;
    const Refusal refusal{mask_of(rule.substr(0, arrow)), mask_of(rule.substr(arrow + 2))};
    if (!refusal.in || !refusal.out) return false;
    out->push_back(refusal);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    if (comma != std::string_view::npos && text.empty()) return false;
  }
  return true;
}

struct Refusals {
  std::mutex mutex;
  std::vector<Refusal> rules;

  Refusals() {
    const char* text = std::getenv("HOSTCUDA_NOT_SUPPORTED");
    if (text && !parse_refusals(text, &rules)) {
      std::fprintf(stderr,
                   "hostcuda: HOSTCUDA_NOT_SUPPORTED=%s: allowed are comma-separated IN->OUT, each of 16 32 bf16 fp16 "
                   "any\n",
                   text);
      std::_Exit(86);
    }
  }
};

Refusals& refusals() {
  static Refusals* instance = new Refusals;  // outlives every exit handler
  return *instance;
}

bool refused(gemm::Type in, gemm::Type out) {
  Refusals& set = refusals();
  const std::lock_guard<std::mutex> lock(set.mutex);
  for (const Refusal& rule : set.rules) {
    if ((rule.in >> static_cast<int>(in) & 1) && (rule.out >> static_cast<int>(out) & 1)) return true;
  }
  return false;
}

// Device memory

// Bytes from the first to the last entry of one rows x cols matrix; -1 where that does not fit 63 bits.
int64_t matrix_bytes(const Matrix& matrix, int64_t rows, int64_t cols) {
  const int64_t line = matrix.row_major ? cols : rows;
  const int64_t lines = matrix.row_major ? rows : cols;
  int64_t elems = 0;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(lines - 1, matrix.ld, &elems) || __builtin_add_overflow(elems, line, &elems) ||
      __builtin_mul_overflow(elems, bytes_of(matrix.type), &bytes)) {
    return -1;
  }
  return bytes;
}

// Aliases of the batch entries of a rows x cols matrix. Each is looked up by itself: what lies between them need not be
// memory. Empty after a broken rule.
std::vector<void*> view_matrix(Access* access, const char* letter, const Matrix& matrix, int64_t rows, int64_t cols,
                               int64_t batch, int mode) {
  const CUdeviceptr* addresses = nullptr;
  if (matrix.pointers) {
    int64_t bytes = -1;
    if (__builtin_mul_overflow(batch, int64_t{sizeof *addresses}, &bytes)) bytes = -1;
    addresses = static_cast<const CUdeviceptr*>(view(access, std::string("the pointer array of ") + letter,
                                                     matrix.pointers, bytes, alignof(CUdeviceptr), HOSTCUDA_READ));
    if (!addresses) return {};
  }
  std::vector<void*> aliases;
  const int64_t bytes = matrix_bytes(matrix, rows, cols);
  const int64_t distinct = !addresses && matrix.stride == 0 ? 1 : batch;
  for (int64_t e = 0; e < distinct; ++e) {
    std::string what = letter;
    if (batch > 1) what += " of batch entry " + std::to_string(e);
    const auto offset = static_cast<CUdeviceptr>(e) * static_cast<CUdeviceptr>(matrix.stride) *
                        static_cast<CUdeviceptr>(bytes_of(matrix.type));
    const CUdeviceptr address = addresses ? addresses[e] : matrix.address + offset;
    void* alias = view(access, what, address, bytes, bytes_of(matrix.type), mode);
    if (!alias) return {};
    aliases.push_back(alias);
  }
  aliases.resize(static_cast<size_t>(batch), aliases.front());
  return aliases;
}

float read_scalar(Access* access, const char* what, const Scalar& scalar) {
  if (!scalar.address) return scalar.value;
  const void* alias = view(access, what, scalar.address, bytes_of(scalar.type), bytes_of(scalar.type), HOSTCUDA_READ);
  if (!alias) return 0.0f;
  float value;
  load_values(scalar.type, alias, 1, 1, &value);
  return value;
}

// The call on its way through the stream. Owned by the stream's operation, or by the graph that holds it.
struct Job {
  Matmul matmul;
  int device;
  CUstream stream;
  uint64_t index;                 // of the product on its device, drawn when the call was made
  std::atomic<uint64_t> runs{0};  // a graph runs the job again and again: later runs draw a new index
};

gemm::Operand operand(const Matrix& matrix, bool transposed, const std::vector<void*>& aliases) {
  gemm::Operand result{};
  result.data = aliases.front();
  result.pointers = (!matrix.pointers && matrix.stride == 0) || aliases.size() == 1 ? nullptr : aliases.data();
  result.ld = matrix.ld;
  result.stride = 0;
  result.type = matrix.type;
  result.transposed = transposed != matrix.row_major;
  return result;
}

// Rows of column j of batch entry e that the device skips keep the bytes that D had.
class KeptRows {
 public:
  KeptRows(const gemm::Outcome& outcome, const Matrix& d) : outcome_(outcome), d_(d) {}

  void save(const char* column, int64_t step, int64_t e, int64_t j) {
    kept_.clear();
    for (uint64_t s = 0; s < outcome_.skipped_count; ++s) {
      const gemm::Skipped& hole = outcome_.skipped[s];
      if (hole.batch != e || j < hole.col || j >= hole.col + hole.cols) continue;
      for (int64_t i = hole.row; i < hole.row + hole.rows; ++i) {
        Kept kept{i, {}};
        std::memcpy(kept.bytes, column + i * step * bytes_of(d_.type), static_cast<size_t>(bytes_of(d_.type)));
        kept_.push_back(kept);
      }
    }
  }

  void restore(char* column, int64_t step) const {
    for (const Kept& kept : kept_) {
      std::memcpy(column + kept.row * step * bytes_of(d_.type), kept.bytes, static_cast<size_t>(bytes_of(d_.type)));
    }
  }

 private:
  struct Kept {
    int64_t row;
    char bytes[4];
  };
  const gemm::Outcome& outcome_;
  const Matrix& d_;
  std::vector<Kept> kept_;
};

struct Aliases {
  std::vector<void*> a, b, c, d;
  std::vector<void*> bias;
};

void finish_all(const Matmul& call, const FinishTerms& terms, const Aliases& aliases, float* raw,
                const gemm::Outcome& outcome) {
  std::vector<float> c_column(static_cast<size_t>(call.m));
  std::vector<float> bias_values(static_cast<size_t>(call.m));
  KeptRows kept(outcome, call.d);
  const int64_t d_step = call.d.row_major ? call.d.ld : 1;
  const int64_t c_step = call.c.row_major ? call.c.ld : 1;
  for (int64_t e = 0; e < call.batch; ++e) {
    const float* bias = nullptr;
    if (call.bias) {
      load_values(call.bias_type, aliases.bias[static_cast<size_t>(e)], 1, call.m, bias_values.data());
      bias = bias_values.data();
    }
    for (int64_t j = 0; j < call.n; ++j) {
      float* x = raw + (e * call.n + j) * call.m;
      const float* c = nullptr;
      if (terms.beta != 0.0f) {
        const auto* c_base = static_cast<const char*>(aliases.c[static_cast<size_t>(e)]);
        load_values(call.c.type, c_base + j * (call.c.row_major ? 1 : call.c.ld) * bytes_of(call.c.type), c_step,
                    call.m, c_column.data());
        c = c_column.data();
      }
      finish_column(terms, call.m, x, c, bias);
      char* column = static_cast<char*>(aliases.d[static_cast<size_t>(e)]) +
                     j * (call.d.row_major ? 1 : call.d.ld) * bytes_of(call.d.type);
      kept.save(column, d_step, e, j);
      store_values(call.d.type, column, d_step, call.m, x);
      kept.restore(column, d_step);
    }
  }
}

void run_job(void* arg) {
  auto* job = static_cast<Job*>(arg);
  const Matmul& call = job->matmul;
  Access access{call.name};

  FinishTerms terms{};
  terms.activation = call.activation;
  terms.alpha = read_scalar(&access, "alpha", call.alpha);
  if (access.broken) return;
  terms.beta = read_scalar(&access, "beta", call.beta);
  if (access.broken) return;

  const bool multiplies = call.k > 0 && terms.alpha != 0.0f;  // as BLAS: else A and B are not read
  Aliases aliases;
  if (multiplies) {
    aliases.a = view_matrix(&access, "A", call.a, call.transpose_a ? call.k : call.m,
                            call.transpose_a ? call.m : call.k, call.batch, HOSTCUDA_READ);
    if (access.broken) return;
    aliases.b = view_matrix(&access, "B", call.b, call.transpose_b ? call.n : call.k,
                            call.transpose_b ? call.k : call.n, call.batch, HOSTCUDA_READ);
    if (access.broken) return;
  }
  if (terms.beta != 0.0f) {
    aliases.c = view_matrix(&access, "C", call.c, call.m, call.n, call.batch, HOSTCUDA_READ);
    if (access.broken) return;
  }
  if (call.bias) {
    const Matrix bias{call.bias, call.m, call.bias_stride, call.bias_type, false};
    aliases.bias = view_matrix(&access, "the bias", bias, call.m, 1, call.batch, HOSTCUDA_READ);
    if (access.broken) return;
  }
  aliases.d = view_matrix(&access, "D", call.d, call.m, call.n, call.batch, HOSTCUDA_READ | HOSTCUDA_WRITE);
  if (access.broken) return;

  const size_t elems = static_cast<size_t>(call.m) * static_cast<size_t>(call.n) * static_cast<size_t>(call.batch);
  const std::unique_ptr<float[]> raw(new (std::nothrow) float[elems]);
  if (!raw) {
    break_rule(&access, CUDA_ERROR_LAUNCH_FAILED,
               "this machine has no memory for " + std::to_string(elems) + " product entries");
    return;
  }
  gemm::Outcome outcome{};
  if (multiplies) {
    gemm::Product product{};
    product.m = call.m;
    product.n = call.n;
    product.k = call.k;
    product.batch = call.batch;
    product.a = operand(call.a, call.transpose_a, aliases.a);
    product.b = operand(call.b, call.transpose_b, aliases.b);
    product.compute = call.compute;
    product.out = raw.get();
    product.out_ld = call.m;
    product.out_stride = call.m * call.n;
    product.device = job->device;
    hostcuda_device_uuid(job->device, product.uuid);
    product.stream = reinterpret_cast<uint64_t>(job->stream);
    product.index =
        job->runs.fetch_add(1, std::memory_order_relaxed) == 0 ? job->index : hostcuda_gemm_next_index(job->device);
    const gemm::Status status = hostcuda_gemm_run(&product, &outcome);
    if (status != gemm::Status::kOk) {
      break_rule(
          &access, CUDA_ERROR_LAUNCH_FAILED,
          "the product engine refused a checked product (status " + std::to_string(static_cast<int>(status)) + ")");
      return;
    }
  } else {
    std::memset(raw.get(), 0, elems * sizeof(float));
    terms.alpha = 1.0f;  // a zero product stays zero even where the device's alpha is not finite
  }
  finish_all(call, terms, aliases, raw.get(), outcome);
  if (multiplies) hostcuda_gemm_release(&outcome);
}

void drop_job(void* arg) {
  delete static_cast<Job*>(arg);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) Scalar hostcuda_scalar(const void* pointer, gemm::Type type,
                                                                         bool on_device) {
  if (on_device) return {reinterpret_cast<CUdeviceptr>(pointer), 0.0f, type};
  Scalar scalar{0, 0.0f, type};
  load_values(type, pointer, 1, 1, &scalar.value);
  return scalar;
}

extern "C" __attribute__((visibility("default"))) cublasStatus_t hostcuda_check_types(cublasComputeType_t compute_type,
                                                                                      cudaDataType scale,
                                                                                      cudaDataType a, cudaDataType b,
                                                                                      cudaDataType c, cudaDataType d,
                                                                                      gemm::Compute* compute) {
  gemm::Type in;
  gemm::Type out;
  if (a != b || c != d || !type_of(a, &in) || !type_of(d, &out)) return CUBLAS_STATUS_NOT_SUPPORTED;
  switch (compute_type) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      if (scale != CUDA_R_32F || (out != in && out != gemm::Type::kFp32)) return CUBLAS_STATUS_NOT_SUPPORTED;
      *compute = gemm::Compute::kFp32;
      break;
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      if (scale != CUDA_R_32F || in != gemm::Type::kFp32 || out != gemm::Type::kFp32)
        return CUBLAS_STATUS_NOT_SUPPORTED;
      *compute = gemm::Compute::kFp32;
      break;
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      if (scale != CUDA_R_16F || in != gemm::Type::kFp16 || out != gemm::Type::kFp16)
        return CUBLAS_STATUS_NOT_SUPPORTED;
      *compute = gemm::Compute::kFp16;
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (hostcuda_gemm_supports(in, in, *compute) != gemm::Status::kOk) return CUBLAS_STATUS_NOT_SUPPORTED;
  return refused(in, out) ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) cublasStatus_t hostcuda_matmul(const HostcudaHandle* handle,
                                                                                 const Matmul* matmul,
                                                                                 CUstream stream) {
  if (!hostcuda_current_context() && hostcuda_use_device(-1) != CUDA_SUCCESS) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (hostcuda_current_context() != handle->context || hostcuda_stream_context(stream) != handle->context) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  auto* job = new (std::nothrow) Job{*matmul, handle->device, stream, 0};
  if (!job) return CUBLAS_STATUS_ALLOC_FAILED;
  job->index = hostcuda_gemm_next_index(handle->device);
  if (hostcuda_enqueue_owned(stream, run_job, drop_job, job, matmul->name) != CUDA_SUCCESS) {
    delete job;
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace hostcuda

extern "C" __attribute__((visibility("default"))) int hostcuda_set_not_supported(const char* rules) {
  std::vector<hostcuda::Refusal> parsed;
  if (rules && !hostcuda::parse_refusals(rules, &parsed)) return -1;
  hostcuda::Refusals& set = hostcuda::refusals();
  const std::lock_guard<std::mutex> lock(set.mutex);
  set.rules = std::move(parsed);
  return 0;
}

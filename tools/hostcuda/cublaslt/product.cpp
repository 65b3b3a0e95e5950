// SPDX-License-Identifier: MIT
// Product: takes a checked product call, runs it on the stream's worker: device addresses to aliases, raw product by
// the engine, closing arithmetic, D.
#include "tools/hostcuda/cublaslt/product.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tools/hostcuda/access.h"
#include "tools/hostcuda/core.h"
#include "tools/hostcuda/cublaslt/block_scales.h"
#include "tools/hostcuda/cublaslt/staging.h"

namespace hostcuda {
namespace {

// Refusals on demand

constexpr uint16_t mask(gemm::Type type) {
  return static_cast<uint16_t>(1 << static_cast<int>(type));
}

struct Refusal {
  uint16_t in;
  uint16_t out;
};

struct RefusalWord {
  std::string_view word;
  uint16_t types;
};
constexpr RefusalWord kRefusalWords[] = {
    {"16", mask(gemm::Type::kFp16) | mask(gemm::Type::kBf16)},
    {"32", mask(gemm::Type::kFp32)},
    {"bf16", mask(gemm::Type::kBf16)},
    {"fp16", mask(gemm::Type::kFp16)},
    {"fp32", mask(gemm::Type::kFp32)},
    {"fp64", mask(gemm::Type::kFp64)},
    {"fp8", mask(gemm::Type::kE4m3) | mask(gemm::Type::kE5m2)},
    {"fp4", mask(gemm::Type::kE2m1)},
    {"int8", mask(gemm::Type::kInt8)},
    {"int32", mask(gemm::Type::kInt32)},
    {"any", 0xffff},
};

uint16_t mask_of(std::string_view word) {
  for (const RefusalWord& known : kRefusalWords) {
    if (word == known.word) return known.types;
  }
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
                   "fp32 fp64 fp8 fp4 int8 int32 any\n",
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
  const int64_t bytes = stored_bytes(matrix, rows, cols);
  const int64_t distinct = !addresses && matrix.stride == 0 ? 1 : batch;
  for (int64_t e = 0; e < distinct; ++e) {
    std::string what = letter;
    if (batch > 1) what += " of batch entry " + std::to_string(e);
    const auto offset = static_cast<CUdeviceptr>(e) * static_cast<CUdeviceptr>(matrix.stride) *
                        static_cast<CUdeviceptr>(gemm::bytes_of(matrix.type));
    const CUdeviceptr address = addresses ? addresses[e] : matrix.address + offset;
    void* alias = view(access, what, address, bytes, gemm::bytes_of(matrix.type), mode);
    if (!alias) return {};
    aliases.push_back(alias);
  }
  aliases.resize(static_cast<size_t>(batch), aliases.front());
  return aliases;
}

// Values of a scalar for one batch entry; empty after a broken rule.
template <typename Real>
RowFactor<Real> read_factor(Access* access, const char* what, const Scalar& scalar, int64_t rows, int64_t batch_entry) {
  if (!scalar.address) return {{static_cast<Real>(scalar.value)}};
  const int64_t count = scalar.per_row ? rows : 1;
  const int64_t bytes = gemm::bytes_of(scalar.type);
  const auto offset = static_cast<CUdeviceptr>(batch_entry * scalar.batch_stride * bytes);
  const void* alias = view(access, what, scalar.address + offset, count * bytes, bytes, HOSTCUDA_READ);
  if (!alias) return {};
  RowFactor<Real> factor{std::vector<Real>(static_cast<size_t>(count))};
  load_values(scalar.type, alias, 1, count, factor.values.data());
  return factor;
}

// FP32 values at a device address, or `count` ones where there is none; empty after a broken rule.
std::vector<float> read_scales(Access* access, const char* what, CUdeviceptr address, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count), 1.0f);
  if (!address) return values;
  const void* alias = view(access, what, address, count * int64_t{sizeof(float)}, alignof(float), HOSTCUDA_READ);
  if (!alias) return {};
  std::memcpy(values.data(), alias, values.size() * sizeof(float));
  return values;
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
    char bytes[8];
  };
  const gemm::Outcome& outcome_;
  const Matrix& d_;
  std::vector<Kept> kept_;
};

void* column(const std::vector<void*>& aliases, const Matrix& matrix, int64_t e, int64_t j) {
  return static_cast<char*>(aliases[static_cast<size_t>(e)]) +
         j * (matrix.row_major ? 1 : matrix.ld) * gemm::bytes_of(matrix.type);
}

// Runs the product as that of the job. False after a broken rule.
bool run_product(Job* job, gemm::Product* product, Access* access, gemm::Outcome* outcome) {
  product->device = hostcuda_device_board(job->device);  // fault plans name boards
  hostcuda_device_uuid(job->device, product->uuid);
  product->stream = reinterpret_cast<uint64_t>(job->stream);
  product->index =
      job->runs.fetch_add(1, std::memory_order_relaxed) == 0 ? job->index : hostcuda_gemm_next_index(job->device);
  const gemm::Status status = hostcuda_gemm_run(product, outcome);
  if (status == gemm::Status::kOk) return true;
  break_rule(access, CUDA_ERROR_LAUNCH_FAILED,
             "the product engine refused a checked product (status " + std::to_string(static_cast<int>(status)) + ")");
  return false;
}

struct Aliases {
  std::vector<void*> a, b, c, d;
  std::vector<void*> bias, aux;
  float* amax = nullptr;
  float* aux_amax = nullptr;
  void* d_out = nullptr;  // scales of D's blocks
};

// One run of a job: everything that the stream's worker does with it.
class Run {
 public:
  explicit Run(Job* job) : job_(*job), call_(job->matmul), access_{job->matmul.name} {}

  void operator()() {
    switch (gemm::sum_type(call_.compute)) {
      case gemm::Type::kFp64:
        return in_reals<double>();
      case gemm::Type::kInt32:
        return call_.alpha.type == gemm::Type::kInt32 ? in_integers() : in_reals<float>();
      default:
        return in_reals<float>();
    }
  }

 private:
  template <typename Real>
  void in_reals() {
    std::vector<FinishTerms<Real>> terms;
    bool multiplies = false;
    bool reads_c = false;
    for (int64_t e = 0; e < call_.batch; ++e) {
      if (e > 0 && !own_terms()) {
        terms.push_back(terms.front());
        continue;
      }
      FinishTerms<Real> entry{};
      entry.activation = call_.activation;
      entry.alpha = read_factor<Real>(&access_, "alpha", call_.alpha, call_.m, e);
      if (access_.broken) return;
      entry.beta = read_factor<Real>(&access_, "beta", call_.beta, call_.m, e);
      if (access_.broken) return;
      const auto not_zero = [](Real value) { return value != Real{0}; };
      entry.reads_c = std::any_of(entry.beta.values.begin(), entry.beta.values.end(), not_zero);
      reads_c |= entry.reads_c;
      multiplies |= std::any_of(entry.alpha.values.begin(), entry.alpha.values.end(), not_zero);
      const std::vector<float> d_scale = read_scales(&access_, "the scale of D", call_.scales.d, 1);
      if (access_.broken) return;
      entry.d_scale = static_cast<Real>(d_scale.front());
      terms.push_back(std::move(entry));
    }
    multiplies = multiplies && call_.k > 0;  // as BLAS: else A and B are not read
    if (!look_up(multiplies, reads_c) || !multiply(multiplies)) return;
    if (!multiplies) {
      // A zero product stays zero even where the device's alpha is not finite.
      for (FinishTerms<Real>& entry : terms) entry.alpha.values.assign(1, Real{1});
    }
    if (multiplies && !read_operand_scales()) return;
    finish(terms);
    staged_d_.scatter();
    gradients_of_operands<Real>();
    if (multiplies) hostcuda_gemm_release(&outcome_);
  }

  void in_integers() {
    const auto value_of = [&](const char* what, const Scalar& scalar) {
      const RowFactor<double> factor = read_factor<double>(&access_, what, scalar, 1, 0);
      return access_.broken ? 0 : static_cast<int32_t>(factor.values.front());
    };
    const int32_t alpha = value_of("alpha", call_.alpha);
    if (access_.broken) return;
    const int32_t beta = value_of("beta", call_.beta);
    if (access_.broken) return;
    const bool multiplies = call_.k > 0 && alpha != 0;
    if (!look_up(multiplies, beta != 0) || !multiply(multiplies)) return;
    const int64_t step = call_.d.row_major ? call_.d.ld : 1;
    const int64_t c_step = call_.c.row_major ? call_.c.ld : 1;
    std::vector<int32_t> c(static_cast<size_t>(call_.m));
    KeptRows kept(outcome_, call_.d);
    for (int64_t e = 0; e < call_.batch; ++e) {
      for (int64_t j = 0; j < call_.n; ++j) {
        int32_t* x = static_cast<int32_t*>(raw_.get()) + (e * call_.n + j) * call_.m;
        if (beta != 0) {
          const auto* from = static_cast<const int32_t*>(column(aliases_.c, call_.c, e, j));
          for (int64_t i = 0; i < call_.m; ++i) c[static_cast<size_t>(i)] = from[i * c_step];
        }
        finish_column_int(alpha, beta, call_.m, x, c.data());
        auto* to = static_cast<char*>(column(aliases_.d, call_.d, e, j));
        kept.save(to, step, e, j);
        for (int64_t i = 0; i < call_.m; ++i) reinterpret_cast<int32_t*>(to)[i * step] = x[i];
        kept.restore(to, step);
      }
    }
    staged_d_.scatter();
    if (multiplies) hostcuda_gemm_release(&outcome_);
  }

  // Whether batch entries have factors of their own.
  bool own_terms() const {
    return (call_.alpha.per_row && call_.alpha.batch_stride != 0) ||
           (call_.beta.per_row && call_.beta.batch_stride != 0);
  }

  bool look_up(bool multiplies, bool reads_c) {
    if (multiplies || (call_.bias_use == BiasUse::kGradientOfA && call_.k > 0)) {
      const int64_t rows = call_.transpose_a ? call_.k : call_.m;
      const int64_t cols = call_.transpose_a ? call_.m : call_.k;
      aliases_.a = look_up_matrix("A", &call_.a, &staged_a_, rows, cols, HOSTCUDA_READ);
      if (access_.broken) return false;
    }
    if (multiplies || (call_.bias_use == BiasUse::kGradientOfB && call_.k > 0)) {
      const int64_t rows = call_.transpose_b ? call_.n : call_.k;
      const int64_t cols = call_.transpose_b ? call_.k : call_.n;
      aliases_.b = look_up_matrix("B", &call_.b, &staged_b_, rows, cols, HOSTCUDA_READ);
      if (access_.broken) return false;
    }
    if (reads_c) {
      aliases_.c = look_up_matrix("C", &call_.c, &staged_c_, call_.m, call_.n, HOSTCUDA_READ);
      if (access_.broken) return false;
    }
    if (call_.bias_use != BiasUse::kNone) {
      const int64_t count = call_.bias_use == BiasUse::kGradientOfB ? call_.n : call_.m;
      const Matrix bias{call_.bias, count, call_.bias_stride, call_.bias_type, false};
      aliases_.bias = view_matrix(&access_, "the bias", bias, count, 1, call_.batch,
                                  call_.bias_use == BiasUse::kAdd ? HOSTCUDA_READ : HOSTCUDA_WRITE);
      if (access_.broken) return false;
    }
    if (call_.aux.address && !look_up_aux()) return false;
    if (call_.scales.amax && !(aliases_.amax = amax_at("amax of D", call_.scales.amax))) return false;
    if (call_.aux.amax && !(aliases_.aux_amax = amax_at("amax of the auxiliary matrix", call_.aux.amax))) return false;
    if (call_.scales.d_out) {
      aliases_.d_out =
          view(&access_, "the scales of D's blocks", call_.scales.d_out,
               scale_bytes(call_.scales.a_mode, call_.n, call_.m), kScaleAlignment, HOSTCUDA_READ | HOSTCUDA_WRITE);
      if (access_.broken) return false;
    }
    aliases_.d = look_up_matrix("D", &call_.d, &staged_d_, call_.m, call_.n, HOSTCUDA_READ | HOSTCUDA_WRITE);
    return !access_.broken;
  }

  // Aliases of the matrix, or of its staged columns; empty after a broken rule.
  std::vector<void*> look_up_matrix(const char* letter, Matrix* matrix, Staged* staged, int64_t rows, int64_t cols,
                                    int mode) {
    std::vector<void*> aliases = view_matrix(&access_, letter, *matrix, rows, cols, call_.batch, mode);
    if (is_staged(*matrix) && !access_.broken) staged->gather(matrix, &aliases, rows, cols);
    return aliases;
  }

  bool aux_is_mask() const {
    return call_.activation == Activation::kRelu || call_.activation == Activation::kReluGradient;
  }
  bool aux_is_read() const {
    return call_.activation == Activation::kReluGradient || call_.activation == Activation::kGeluGradient;
  }

  bool look_up_aux() {
    const int mode = aux_is_read() ? HOSTCUDA_READ : HOSTCUDA_READ | HOSTCUDA_WRITE;
    // The mask as bytes: its last column ends with the byte of its last row.
    const int64_t unit = aux_is_mask() ? 8 : 1;
    const gemm::Type type = aux_is_mask() ? gemm::Type::kInt8 : call_.aux.type;
    const Matrix aux{call_.aux.address, call_.aux.ld / unit, call_.aux.stride / unit, type, false};
    aliases_.aux =
        view_matrix(&access_, "the auxiliary matrix", aux, (call_.m + unit - 1) / unit, call_.n, call_.batch, mode);
    return !access_.broken;
  }

  float* amax_at(const char* what, CUdeviceptr address) {
    return static_cast<float*>(
        view(&access_, what, address, sizeof(float), alignof(float), HOSTCUDA_READ | HOSTCUDA_WRITE));
  }

  // The raw product into raw_, zeros where nothing is multiplied.
  bool multiply(bool multiplies) {
    const gemm::Type sums = gemm::sum_type(call_.compute);
    const size_t elems = static_cast<size_t>(call_.m) * static_cast<size_t>(call_.n) * static_cast<size_t>(call_.batch);
    const size_t bytes = elems * static_cast<size_t>(gemm::bytes_of(sums));
    raw_.reset(std::malloc(bytes));
    if (!raw_) {
      break_rule(&access_, CUDA_ERROR_LAUNCH_FAILED,
                 "this machine has no memory for " + std::to_string(elems) + " product entries");
      return false;
    }
    if (!multiplies) {
      std::memset(raw_.get(), 0, bytes);
      return true;
    }
    if (!read_block_scales()) return false;
    gemm::Product product{};
    product.m = call_.m;
    product.n = call_.n;
    product.k = call_.k;
    product.batch = call_.batch;
    product.a = operand(call_.a, call_.transpose_a, aliases_.a);
    product.b = operand(call_.b, call_.transpose_b, aliases_.b);
    product.compute = call_.compute;
    product.out = raw_.get();
    product.out_ld = call_.m;
    product.out_stride = call_.m * call_.n;
    product.scales = {block_of(call_.scales.a_mode), block_scales_a_.data(), block_scales_b_.data()};
    product.narrow_result = !call_.whole_partials && gemm::bytes_of(call_.d.type) == 2;
    return run_product(&job_, &product, &access_, &outcome_);
  }

  bool scales_are_vectors() const { return call_.scales.a_mode == ScaleMode::kOuterVector; }
  bool scales_are_blocks() const { return block_of(call_.scales.a_mode) != 0; }

  // The factors of the operands' blocks along k; empty where they have none.
  bool read_block_scales() {
    if (!scales_are_blocks()) return true;
    const auto read = [&](const char* what, CUdeviceptr address, ScaleMode mode, int64_t outer) {
      const void* tensor =
          view(&access_, what, address, scale_bytes(mode, outer, call_.k), kScaleAlignment, HOSTCUDA_READ);
      return tensor ? scales_of(mode, tensor, outer, call_.k) : std::vector<float>{};
    };
    block_scales_a_ = read("the scales of A", call_.scales.a, call_.scales.a_mode, call_.m);
    if (access_.broken) return false;
    block_scales_b_ = read("the scales of B", call_.scales.b, call_.scales.b_mode, call_.n);
    return !access_.broken;
  }

  // FP8's factors of one column, one a row; empty: none, or those of blocks.
  bool read_operand_scales() {
    const ScaleFactors& scales = call_.scales;
    if ((!scales.a && !scales.b) || scales_are_blocks()) return true;
    scale_a_ = read_scales(&access_, "the scale of A", scales.a, scales_are_vectors() ? call_.m : 1);
    if (access_.broken) return false;
    scale_b_ = read_scales(&access_, "the scale of B", scales.b, scales_are_vectors() ? call_.n : 1);
    return !access_.broken;
  }

  template <typename Real>
  void finish(const std::vector<FinishTerms<Real>>& terms) {
    const auto m = static_cast<size_t>(call_.m);
    const gemm::Type sums = gemm::sum_type(call_.compute);
    std::vector<Real> x(m);
    std::vector<Real> c(m);
    std::vector<Real> bias(m);
    std::vector<Real> factors(m);
    std::vector<Real> aux(m);
    std::vector<Real> gradient(m);
    std::vector<uint8_t> mask((m + 7) / 8);
    Real amax{0};
    Real aux_amax{0};
    KeptRows kept(outcome_, call_.d);
    const int64_t d_step = call_.d.row_major ? call_.d.ld : 1;
    const std::vector<float> aux_scale = read_scales(&access_, "the scale of the auxiliary matrix", call_.aux.scale, 1);
    if (access_.broken) return;
    for (int64_t e = 0; e < call_.batch; ++e) {
      const FinishTerms<Real>& term = terms[static_cast<size_t>(e)];
      FinishColumn<Real> with{};
      if (call_.bias_use == BiasUse::kAdd) {
        load_values(call_.bias_type, aliases_.bias[static_cast<size_t>(e)], 1, call_.m, bias.data());
        with.bias = bias.data();
      } else if (call_.bias_use == BiasUse::kGradientOfD) {
        std::fill(gradient.begin(), gradient.end(), Real{0});
        with.gradient = gradient.data();
      }
      if (term.reads_c) with.c = c.data();
      if (!scale_a_.empty()) with.factors = factors.data();
      if (aliases_.amax) with.amax = &amax;
      for (int64_t j = 0; j < call_.n; ++j) {
        const char* sum = static_cast<const char*>(raw_.get()) + (e * call_.n + j) * call_.m * gemm::bytes_of(sums);
        load_values(sums, sum, 1, call_.m, x.data());
        if (term.reads_c) {
          load_values(call_.c.type, column(aliases_.c, call_.c, e, j), call_.c.row_major ? call_.c.ld : 1, call_.m,
                      c.data());
        }
        for (size_t i = 0; i < m && with.factors; ++i) {
          factors[i] = static_cast<Real>(scale_a_[scales_are_vectors() ? i : 0]) *
                       static_cast<Real>(scale_b_[scales_are_vectors() ? static_cast<size_t>(j) : 0]);
        }
        char* aux_column = call_.aux.address ? aux_at(e, j) : nullptr;
        if (aux_column) {
          if (call_.activation == Activation::kReluGradient) {
            with.mask_in = reinterpret_cast<const uint8_t*>(aux_column);
          } else if (call_.activation == Activation::kGeluGradient) {
            load_values(call_.aux.type, aux_column, 1, call_.m, aux.data());
            with.aux_in = aux.data();
          } else if (aux_is_mask()) {
            with.mask_out = mask.data();
          } else {
            with.aux_out = aux.data();
          }
        }
        finish_column(term, call_.m, x.data(), with);
        if (with.mask_out) {
          // The bits of the last byte that lie past the last row stay as they were.
          const unsigned mine = m % 8 == 0 ? 0xFFu : (1u << (m % 8)) - 1;
          const auto old = static_cast<unsigned char>(aux_column[mask.size() - 1]);
          mask.back() = static_cast<uint8_t>((mask.back() & mine) | (old & ~mine));
          std::memcpy(aux_column, mask.data(), mask.size());
        }
        if (with.aux_out) {
          for (Real& value : aux) {
            aux_amax = std::fmax(aux_amax, std::fabs(value));
            if (call_.aux.scale) value = value * static_cast<Real>(aux_scale.front());
          }
          store_values(call_.aux.type, aux_column, 1, call_.m, aux.data());
        }
        if constexpr (std::is_same_v<Real, float>) {
          if (aliases_.d_out) quantize_column(call_.scales.a_mode, call_.d.type, call_.m, j, x.data(), aliases_.d_out);
        }
        char* to = static_cast<char*>(column(aliases_.d, call_.d, e, j));
        kept.save(to, d_step, e, j);
        store_values(call_.d.type, to, d_step, call_.m, x.data());
        kept.restore(to, d_step);
      }
      if (with.gradient) {
        store_values(call_.bias_type, aliases_.bias[static_cast<size_t>(e)], 1, call_.m, gradient.data());
      }
    }
    if (aliases_.amax) *aliases_.amax = static_cast<float>(amax);
    if (aliases_.aux_amax) *aliases_.aux_amax = static_cast<float>(aux_amax);
  }

  char* aux_at(int64_t e, int64_t j) const {
    const int64_t offset = aux_is_mask() ? j * call_.aux.ld / 8 : j * call_.aux.ld * gemm::bytes_of(call_.aux.type);
    return static_cast<char*>(aliases_.aux[static_cast<size_t>(e)]) + offset;
  }

  // Sums over k of an operand, in Real, in the order of k.
  template <typename Real>
  void gradients_of_operands() {
    const bool of_a = call_.bias_use == BiasUse::kGradientOfA;
    if (!of_a && call_.bias_use != BiasUse::kGradientOfB) return;
    const Matrix& matrix = of_a ? call_.a : call_.b;
    const int64_t lines = of_a ? call_.m : call_.n;
    // Along k, op(A) runs over stored columns unless transposed, op(B) over stored rows unless transposed.
    const bool k_is_columns = of_a ? !call_.transpose_a : call_.transpose_b;
    const bool k_is_strided = k_is_columns != matrix.row_major;
    const int64_t k_step = k_is_strided ? matrix.ld : 1;
    const int64_t line_step = k_is_strided ? 1 : matrix.ld;
    std::vector<Real> values(static_cast<size_t>(call_.k));
    std::vector<Real> sums(static_cast<size_t>(lines));
    for (int64_t e = 0; e < call_.batch; ++e) {
      std::fill(sums.begin(), sums.end(), Real{0});
      for (int64_t line = 0; line < lines && call_.k > 0; ++line) {
        const auto* base = static_cast<const char*>((of_a ? aliases_.a : aliases_.b)[static_cast<size_t>(e)]);
        load_values(matrix.type, base + line * line_step * gemm::bytes_of(matrix.type), k_step, call_.k, values.data());
        for (const Real value : values) sums[static_cast<size_t>(line)] += value;
      }
      store_values(call_.bias_type, aliases_.bias[static_cast<size_t>(e)], 1, lines, sums.data());
    }
  }

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  Job& job_;
  Matmul call_;  // staged matrices become plain columns
  Access access_;
  Aliases aliases_;
  Staged staged_a_, staged_b_, staged_c_, staged_d_;
  std::vector<float> scale_a_, scale_b_;
  std::vector<float> block_scales_a_, block_scales_b_;
  std::unique_ptr<void, Free> raw_;
  gemm::Outcome outcome_{};
};

// One run of a planar complex job. The real and the imaginary part of a batch entry are two products of 2 k:
//   (op(A)re, -op(A)im) (op(B)re; op(B)im)   and   (op(A)re, op(A)im) (op(B)im; op(B)re)
// entries 2 e and 2 e + 1 of one batch for fault plans. For a GPU to settle: the order in which a kernel adds them up.
class PlanarRun {
 public:
  explicit PlanarRun(Job* job) : job_(*job), call_(job->matmul), access_{job->matmul.name} {}

  void operator()() {
    const std::complex<float> alpha = factor("alpha", call_.alpha);
    if (access_.broken) return;
    const std::complex<float> beta = factor("beta", call_.beta);
    if (access_.broken) return;
    const bool multiplies = call_.k > 0 && alpha != 0.0f;
    const bool reads_c = beta != 0.0f;
    Planes a, b, c;
    if (multiplies) {
      a = look_up("A", call_.a, call_.transpose_a ? call_.k : call_.m, call_.transpose_a ? call_.m : call_.k);
      if (access_.broken) return;
      b = look_up("B", call_.b, call_.transpose_b ? call_.n : call_.k, call_.transpose_b ? call_.k : call_.n);
      if (access_.broken) return;
    }
    if (reads_c) c = look_up("C", call_.c, call_.m, call_.n);
    if (access_.broken) return;
    const Planes d = look_up("D", call_.d, call_.m, call_.n, HOSTCUDA_READ | HOSTCUDA_WRITE);
    if (access_.broken) return;
    sums_.assign(static_cast<size_t>(2 * call_.batch * call_.m * call_.n), 0.0f);
    if (multiplies && !multiply(a, b)) return;
    for (int64_t e = 0; e < call_.batch; ++e) {
      for (int64_t j = 0; j < call_.n; ++j) finish_column(alpha, beta, e, j, reads_c ? &c : nullptr, d);
    }
    if (multiplies) hostcuda_gemm_release(&outcome_);
  }

 private:
  // Aliases of the batch entries of both planes: real, imaginary.
  using Planes = std::array<std::vector<void*>, 2>;

  std::complex<float> factor(const char* what, const Scalar& scalar) {
    if (!scalar.address) return {static_cast<float>(scalar.value), static_cast<float>(scalar.imaginary)};
    const auto* parts = static_cast<const float*>(
        view(&access_, what, scalar.address, 2 * sizeof(float), alignof(float), HOSTCUDA_READ));
    return parts ? std::complex<float>{parts[0], parts[1]} : std::complex<float>{};
  }

  Planes look_up(const std::string& letter, const Matrix& matrix, int64_t rows, int64_t cols,
                 int mode = HOSTCUDA_READ) {
    Planes planes;
    planes[0] = view_matrix(&access_, ("the real part of " + letter).c_str(), matrix, rows, cols, call_.batch, mode);
    if (access_.broken) return planes;
    Matrix imaginary = matrix;
    imaginary.address += static_cast<CUdeviceptr>(matrix.plane);
    planes[1] =
        view_matrix(&access_, ("the imaginary part of " + letter).c_str(), imaginary, rows, cols, call_.batch, mode);
    return planes;
  }

  // Element (i, j) of op(X) as its 16 bits.
  static uint16_t element(const Matrix& matrix, bool transposed, const void* alias, int64_t i, int64_t j) {
    const bool rows_are_strided = transposed != matrix.row_major;
    return static_cast<const uint16_t*>(alias)[rows_are_strided ? i * matrix.ld + j : i + j * matrix.ld];
  }

  // The operands of the two products, k fastest: rows of op(A), columns of op(B).
  void stage(const Planes& a, const Planes& b) {
    constexpr uint16_t kSign = 0x8000;
    for (size_t e = 0; e < static_cast<size_t>(call_.batch); ++e) {
      for (size_t part = 0; part < 2; ++part) {
        for (int64_t i = 0; i < call_.m; ++i) {
          for (size_t half = 0; half < 2; ++half) {
            const bool negative = half == 1 && (part == 0) != call_.conjugate_a;
            for (int64_t l = 0; l < call_.k; ++l) {
              const uint16_t value = element(call_.a, call_.transpose_a, a[half][e], i, l);
              a_.push_back(negative ? value ^ kSign : value);
            }
          }
        }
        for (int64_t j = 0; j < call_.n; ++j) {
          for (size_t half = 0; half < 2; ++half) {
            const size_t plane = half ^ part;
            const bool negative = plane == 1 && call_.conjugate_b;
            for (int64_t l = 0; l < call_.k; ++l) {
              const uint16_t value = element(call_.b, call_.transpose_b, b[plane][e], l, j);
              b_.push_back(negative ? value ^ kSign : value);
            }
          }
        }
      }
    }
  }

  bool multiply(const Planes& a, const Planes& b) {
    stage(a, b);
    gemm::Product product{};
    product.m = call_.m;
    product.n = call_.n;
    product.k = 2 * call_.k;
    product.batch = 2 * call_.batch;
    product.a = {a_.data(), nullptr, product.k, product.k * call_.m, call_.a.type, true};
    product.b = {b_.data(), nullptr, product.k, product.k * call_.n, call_.b.type, false};
    product.compute = call_.compute;
    product.out = sums_.data();
    product.out_ld = call_.m;
    product.out_stride = call_.m * call_.n;
    product.narrow_result = gemm::bytes_of(call_.d.type) == 2;
    return run_product(&job_, &product, &access_, &outcome_);
  }

  void finish_column(std::complex<float> alpha, std::complex<float> beta, int64_t e, int64_t j, const Planes* c,
                     const Planes& d) {
    const auto m = static_cast<size_t>(call_.m);
    std::array<std::vector<float>, 2> old{std::vector<float>(m), std::vector<float>(m)};
    for (size_t part = 0; part < 2 && c; ++part) {
      load_values(call_.c.type, column((*c)[part], call_.c, e, j), call_.c.row_major ? call_.c.ld : 1, call_.m,
                  old[part].data());
    }
    const float* re = sums_.data() + (2 * e * call_.n + j) * call_.m;
    const float* im = re + call_.n * call_.m;
    std::array<std::vector<float>, 2> x{std::vector<float>(m), std::vector<float>(m)};
    for (size_t i = 0; i < m; ++i) {
      x[0][i] = std::fma(-alpha.imag(), im[i], alpha.real() * re[i]);
      x[1][i] = std::fma(alpha.imag(), re[i], alpha.real() * im[i]);
      if (!c) continue;
      x[0][i] = std::fma(-beta.imag(), old[1][i], std::fma(beta.real(), old[0][i], x[0][i]));
      x[1][i] = std::fma(beta.imag(), old[0][i], std::fma(beta.real(), old[1][i], x[1][i]));
    }
    const int64_t step = call_.d.row_major ? call_.d.ld : 1;
    KeptRows kept(outcome_, call_.d);
    for (size_t part = 0; part < 2; ++part) {
      auto* to = static_cast<char*>(column(d[part], call_.d, e, j));
      kept.save(to, step, 2 * e + static_cast<int64_t>(part), j);
      store_values(call_.d.type, to, step, call_.m, x[part].data());
      kept.restore(to, step);
    }
  }

  Job& job_;
  const Matmul& call_;
  Access access_;
  std::vector<uint16_t> a_, b_;
  std::vector<float> sums_;
  gemm::Outcome outcome_{};
};

void run_job(void* arg) {
  auto* job = static_cast<Job*>(arg);
  job->matmul.planar ? PlanarRun(job)() : Run(job)();
}

void drop_job(void* arg) {
  delete static_cast<Job*>(arg);
}

// The table of product.h.
bool tuple_of(cublasComputeType_t compute_type, cudaDataType scale, gemm::Type a, gemm::Type b, cudaDataType c,
              gemm::Type out, cudaDataType d, gemm::Compute* compute) {
  using gemm::Type;
  const auto alike = [&](Type in) { return a == in && b == in && c == d; };
  switch (compute_type) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      if (scale != CUDA_R_32F) return false;
      *compute = gemm::Compute::kFp32;
      if (gemm::is_fp8(a) && gemm::is_fp8(b)) {
        if (a == Type::kE5m2 && b == Type::kE5m2) return false;
        if (!gemm::is_fp8(out)) return c == d && (out == Type::kBf16 || out == Type::kFp16 || out == Type::kFp32);
        return (c == CUDA_R_16BF || c == CUDA_R_16F) && (out == Type::kE4m3 || a == Type::kE5m2 || b == Type::kE5m2);
      }
      if (a == Type::kE2m1 && b == Type::kE2m1) {
        if (out == Type::kE2m1) return c == CUDA_R_16BF || c == CUDA_R_16F;
        return c == d && (out == Type::kBf16 || out == Type::kFp16 || out == Type::kFp32);
      }
      if (alike(Type::kInt8)) {
        *compute = gemm::Compute::kInt32;
        return out == Type::kFp32;
      }
      if (alike(Type::kBf16) || alike(Type::kFp16)) return out == a || out == Type::kFp32;
      return alike(Type::kFp32) && out == Type::kFp32;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      *compute = gemm::Compute::kTf32;
      return scale == CUDA_R_32F && alike(Type::kFp32) && out == Type::kFp32;
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9:
      *compute = gemm::Compute::kFp32;
      return scale == CUDA_R_32F && alike(Type::kFp32) && out == Type::kFp32;
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      *compute = gemm::Compute::kFp16;
      return scale == CUDA_R_16F && alike(Type::kFp16) && out == Type::kFp16;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
      *compute = gemm::Compute::kFp64;
      return scale == CUDA_R_64F && alike(Type::kFp64) && out == Type::kFp64;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
      *compute = gemm::Compute::kInt32;
      if (!alike(Type::kInt8)) return false;
      return scale == CUDA_R_32I ? out == Type::kInt32 : scale == CUDA_R_32F && out == Type::kInt8;
    default:
      return false;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) Scalar hostcuda_scalar(const void* pointer, gemm::Type type,
                                                                         bool on_device) {
  if (on_device) return {reinterpret_cast<CUdeviceptr>(pointer), 0.0, type};
  Scalar scalar{0, 0.0, type};
  load_values(type, pointer, 1, 1, &scalar.value);
  return scalar;
}

extern "C" __attribute__((visibility("default"))) cublasStatus_t hostcuda_check_types(cublasComputeType_t compute_type,
                                                                                      cudaDataType scale,
                                                                                      cudaDataType a, cudaDataType b,
                                                                                      cudaDataType c, cudaDataType d,
                                                                                      gemm::Compute* compute) {
  gemm::Type in;
  gemm::Type in_b;
  gemm::Type out;
  if (!type_of(a, &in) || !type_of(b, &in_b) || !type_of(d, &out)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!tuple_of(compute_type, scale, in, in_b, c, out, d, compute)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (*compute == gemm::Compute::kTf32 && hostcuda_gemm_supports(in, in_b, *compute) != gemm::Status::kOk) {
    *compute = gemm::Compute::kFp32;
  }
  if (hostcuda_gemm_supports(in, in_b, *compute) != gemm::Status::kOk) return CUBLAS_STATUS_NOT_SUPPORTED;
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

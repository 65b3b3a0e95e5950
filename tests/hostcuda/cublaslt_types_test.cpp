// SPDX-License-Identifier: MIT
// cublasLtMatmul over every documented type tuple: layouts, batches, scalars, FP8 scales, epilogues; what is refused;
// what each order's device runs; a fault in each type.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include "tests/hostcuda/lt_reference.h"
#include "tests/scratch_folder.h"

namespace {

using namespace lt_reference;

constexpr Types kTypes[] = {
    {"bf16", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF},
    {"bf16 fp32", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {"fp16", CUBLAS_COMPUTE_32F_PEDANTIC, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F},
    {"fp16 fp32", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {"fp16 accumulator", CUBLAS_COMPUTE_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F},
    {"fp32", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {"fp32 bf16x9", CUBLAS_COMPUTE_32F_EMULATED_16BFX9, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F,
     CUDA_R_32F},
    {"tf32", CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {"fp64", CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F},
    {"fp64 emulated", CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F,
     CUDA_R_64F, CUDA_R_64F},
    {"int8 int32", CUBLAS_COMPUTE_32I, CUDA_R_32I, CUDA_R_8I, CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUDA_R_32I},
    {"int8 int8", CUBLAS_COMPUTE_32I, CUDA_R_32F, CUDA_R_8I, CUDA_R_8I, CUDA_R_8I, CUDA_R_8I, CUDA_R_32F},
    {"int8 fp32", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8I, CUDA_R_8I, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {"e4m3 bf16", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_16BF,
     CUDA_R_16BF},
    {"e4m3 fp16 fast", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16F, CUDA_R_16F,
     CUDA_R_16F, true},
    {"e4m3 fp32", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_32F, CUDA_R_32F, CUDA_R_16BF},
    {"e4m3 e4m3", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_8F_E4M3,
     CUDA_R_16BF},
    {"e4m3 e5m2 e5m2", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_16F, CUDA_R_8F_E5M2,
     CUDA_R_16F},
    {"e5m2 e4m3 e4m3", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_16F, CUDA_R_8F_E4M3,
     CUDA_R_16F, true},
    {"e5m2 e4m3 fp32", CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_32F, CUDA_R_32F,
     CUDA_R_16BF},
};

const Types& types_named(const std::string& name) {
  for (const Types& types : kTypes) {
    if (name == types.name) return types;
  }
  ADD_FAILURE() << name;
  return kTypes[0];
}

bool needs_tn(const Types& types) {
  return is_fp8(types.a) || types.d == CUDA_R_8I;
}
bool integer_scale(const Types& types) {
  return types.scale == CUDA_R_32I;
}
Real unit_of(const Types& types) {
  return types.scale == CUDA_R_64F ? 0x1p-53L : 0x1p-24L;
}

enum class Batch { kOne, kStrided, kShared, kPointers };

// One call, all of it.
struct Spec {
  Types types;
  int64_t m = 48, n = 16, k = 64;
  bool transpose_a = true, transpose_b = false;
  int rows_major = 0;  // bit 0: A, 1: B, 2: C and D
  int64_t padding = 16;
  Batch batch = Batch::kOne;
  Real alpha = 1, beta = 0;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  bool in_place = false;
  bool c_null = false;
  int64_t c_ld = -1;  // -1: as D
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::optional<cudaDataType> bias_type = std::nullopt;
  std::optional<cudaDataType> aux_type = std::nullopt;
  bool a_scale = false, b_scale = false, d_scale = false, amax = false, vectors = false;
  bool aux_scale = false;
  Real magnitude = 1;  // of the operands
  uint32_t seed = 1;
};

// Everything that one call reads and writes.
class LtCall {
 public:
  LtCall(const Spec& spec) : s(spec) {
    const int64_t batch = s.batch == Batch::kOne ? 1 : 3;
    const auto shape = [&](int64_t rows, int64_t cols, bool row_major, bool shared) {
      Shape made{rows, cols, (row_major ? cols : rows) + s.padding, row_major, batch, 0};
      if (batch > 1 && !shared) made.stride = made.ld * (row_major ? rows : cols) + 16;
      return made;
    };
    const bool shared = s.batch == Batch::kShared;
    shape_a = shape(s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k, (s.rows_major & 1) != 0, shared);
    shape_b = shape(s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, (s.rows_major & 2) != 0, shared);
    shape_d = shape(s.m, s.n, (s.rows_major & 4) != 0, false);
    shape_c = shape(s.m, s.n, (s.rows_major & 4) != 0, shared);
    if (s.in_place) shape_c = shape_d;
    if (s.c_ld >= 0) shape_c.ld = s.c_ld;
    std::mt19937 engine(s.seed);
    a = filled(s.types.a, shape_a, &engine, s.magnitude);
    b = filled(s.types.b, shape_b, &engine, s.magnitude);
    d = filled(s.types.d, shape_d, &engine, 1);
    c = filled(s.types.c, shape_c, &engine, 1);
    if (s.beta == 0 && s.pointer_mode != CUBLASLT_POINTER_MODE_DEVICE_VECTOR) {
      c = std::make_unique<Buffer>(s.types.c, shape_c.elements());  // NaN: must not be read
      c->upload();
    }
    make_vectors(&engine);
  }

  // Fills the descriptors; bend may change them. The status of cublasLtMatmul, after the stream has been waited for.
  cublasStatus_t operator()(
      cublasLtHandle_t handle, cudaStream_t stream, const std::function<void(LtCall&)>& bend = [](LtCall&) {}) {
    describe();
    bend(*this);
    before = d->bytes();
    if (aux != nullptr) aux_before = aux->bytes();
    const auto address = [&](const std::unique_ptr<Buffer>& buffer, const Shape& shape, std::unique_ptr<Buffer>* list) {
      if (s.batch != Batch::kPointers) return buffer->device();
      // The entries in reverse order, so that an address that is made up is wrong.
      *list = std::make_unique<Buffer>(CUDA_R_64F, shape.batch);
      std::vector<uint64_t> addresses;
      for (int64_t e = 0; e < shape.batch; ++e) {
        addresses.push_back(
            reinterpret_cast<uint64_t>(buffer->device()) +
            static_cast<uint64_t>((shape.batch - 1 - e) * shape.stride * fields_of(buffer->type()).bytes));
      }
      EXPECT_EQ(cudaMemcpy((*list)->device(), addresses.data(), addresses.size() * 8, cudaMemcpyHostToDevice),
                cudaSuccess);
      return (*list)->device();
    };
    void* a_at = address(a, shape_a, &a_list);
    void* b_at = address(b, shape_b, &b_list);
    void* d_at = address(d, shape_d, &d_list);
    const void* c_at = s.in_place ? d_at : s.c_null ? nullptr : address(c, shape_c, &c_list);
    if (s.in_place) {
      // C's values are D's.
      c = std::make_unique<Buffer>(s.types.c, shape_c.elements());
      EXPECT_EQ(cudaMemcpy(c->device(), d->device(), d->bytes().size(), cudaMemcpyDeviceToDevice), cudaSuccess);
      c->download();
    }
    if (status_only) c_at = d_at;
    const cublasStatus_t status = cublasLtMatmul(handle, &desc, alpha_at, a_at, &a_layout, b_at, &b_layout, beta_at,
                                                 c_at, &c_layout, d_at, &d_layout, algo, nullptr, 0, stream);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    for (Buffer* buffer : {d.get(), aux.get(), bias.get(), amax.get(), aux_amax.get()}) {
      if (buffer != nullptr) buffer->download();
    }
    return status;
  }

  // Pointer arrays run through the batch backwards.
  int64_t place(int64_t e) const { return s.batch == Batch::kPointers ? shape_d.batch - 1 - e : e; }

  Real value_a(int64_t e, int64_t i, int64_t l) const {
    return a->get(s.transpose_a ? shape_a.at(place(e), l, i) : shape_a.at(place(e), i, l));
  }
  Real value_b(int64_t e, int64_t l, int64_t j) const {
    return b->get(s.transpose_b ? shape_b.at(place(e), j, l) : shape_b.at(place(e), l, j));
  }

  Real alpha_of(int64_t e, int64_t i) const {
    if (s.pointer_mode < CUBLASLT_POINTER_MODE_DEVICE_VECTOR) return alpha->get(0);
    return alpha->get(i +
                      (s.pointer_mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST ? e * alpha_stride : 0));
  }
  Real beta_of(int64_t i) const {
    if (s.pointer_mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO) return 0;
    return beta->get(s.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE_VECTOR ? i : 0);
  }

  bool has(uint32_t bit) const { return (s.epilogue & bit) != 0; }
  bool is_mask() const { return has(2) || has(8); }
  bool aux_written() const { return has(128) && (has(2) || has(32)); }
  int64_t aux_at(int64_t e, int64_t i, int64_t j) const { return e * aux_stride + i + j * aux_ld; }
  bool mask_bit(int64_t e, int64_t i, int64_t j) const {
    const int64_t at = aux_at(e, i, j);
    return (aux->bits(at / 8) >> (at % 8) & 1) != 0;
  }

  // Everything written, against the reference. Counts compared values; first says what was wrong.
  struct Verdict {
    int64_t compared = 0, beyond = 0, open_bits = 0;
    std::string first;
  };

  Verdict verdict() const {
    Verdict result;
    const Real u = unit_of(s.types);
    const auto judge = [&](const char* what, int64_t e, int64_t i, int64_t j, Real got, const Interval& want) {
      ++result.compared;
      if (want.contains(got) || (std::isnan(got) && std::isnan(want.low))) return;
      if (result.beyond++ == 0) {
        result.first = std::string(what) + " (" + std::to_string(e) + "; " + std::to_string(i) + ", " +
                       std::to_string(j) + "): got " + std::to_string(got) + ", want " + std::to_string(want.low) +
                       " to " + std::to_string(want.high);
      }
    };
    Real amax_low = 0;
    Real amax_high = 0;
    Real aux_low = 0;
    Real aux_high = 0;
    for (int64_t e = 0; e < shape_d.batch; ++e) {
      std::vector<Real> op_a;  // [m][k]
      std::vector<Real> op_b;  // [n][k]
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t l = 0; l < s.k; ++l) op_a.push_back(value_a(e, i, l));
      }
      for (int64_t j = 0; j < s.n; ++j) {
        for (int64_t l = 0; l < s.k; ++l) op_b.push_back(value_b(e, l, j));
      }
      std::vector<Sum> gradient(static_cast<size_t>(s.m));
      std::vector<Real> gradient_error(static_cast<size_t>(s.m));
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) {
          const Real alpha_value = alpha_of(e, i);
          Sum sum;
          for (int64_t l = 0; alpha_value != 0 && l < s.k; ++l) {
            const Real term = op_a[static_cast<size_t>(i * s.k + l)] * op_b[static_cast<size_t>(j * s.k + l)];
            sum.value += term;
            sum.magnitude += std::fabs(term);
          }
          const Real factor = alpha_value * scale_of(scale_a, i) * scale_of(scale_b, j);
          const Real beta_value = beta_of(i);
          const Real added = beta_value != 0 ? beta_value * c->get(shape_c.at(place(e), i, j)) : 0;
          const Real bias_value = has(4) ? bias->get(e * bias_stride + i) : 0;
          Real x = factor * sum.value + added + bias_value;
          if (integer_scale(s.types)) {
            judge("D", e, i, j, d->get(shape_d.at(place(e), i, j)), {x, x});
            continue;
          }
          Real error = std::fabs(factor) * sum_error(s.types, s.k, sum.magnitude) +
                       6 * u * (std::fabs(factor) * sum.magnitude + std::fabs(added) + std::fabs(bias_value));
          if (aux_written() && is_mask()) {
            ++result.compared;
            if (std::fabs(x) <= error) {
              ++result.open_bits;
            } else if (mask_bit(e, i, j) != (x > 0)) {
              if (result.beyond++ == 0) result.first = "mask bit of row " + std::to_string(i);
            }
          }
          if (aux_written() && !is_mask()) {
            const Real scale = scale_of(aux_scale, 0);
            judge("aux", e, i, j, aux->get(aux_at(e, i, j)),
                  stored(aux->type(), x * scale, error * scale + u * std::fabs(x * scale)));
            aux_low = std::max(aux_low, std::fabs(x) - error);
            aux_high = std::max(aux_high, std::fabs(x) + error);
          }
          if (has(2)) x = std::max<Real>(x, 0);
          if (has(32)) {
            error = 1.13L * error + 8 * u * std::fabs(x);
            x = gelu(x);
          }
          if (has(8)) {
            x = mask_bit(e, i, j) ? x : 0;
            error = mask_bit(e, i, j) ? error : 0;
          }
          if (has(64)) {
            // The slope's error: t by 5 u, 1 - t t by 12 u, times half of y w; then a few roundings.
            const Real y = aux->get(aux_at(e, i, j));
            const Real w = 0.7978845608028654L * (1 + 3 * 0.044715L * y * y);
            error = 1.14L * error + std::fabs(x) * (8 + 8 * std::fabs(y) * w) * u;
            x = x * gelu_slope(y);
          }
          amax_low = std::max(amax_low, std::fabs(x) - error);
          amax_high = std::max(amax_high, std::fabs(x) + error);
          gradient[static_cast<size_t>(i)].value += x;
          gradient[static_cast<size_t>(i)].magnitude += std::fabs(x) + error;
          gradient_error[static_cast<size_t>(i)] += error;
          const Real scale = scale_of(scale_d, 0);
          judge("D", e, i, j, d->get(shape_d.at(place(e), i, j)),
                stored(s.types.d, x * scale, std::fabs(scale) * error + u * std::fabs(x * scale)));
        }
      }
      if (has(16)) {
        for (int64_t i = 0; i < s.m; ++i) {
          const auto row = static_cast<size_t>(i);
          judge("bias gradient", e, i, 0, bias->get(e * bias_stride + i),
                stored(bias->type(), gradient[row].value,
                       gradient_error[row] + 1.01L * static_cast<Real>(s.n) * u * gradient[row].magnitude));
        }
      }
      if (has(256) || has(512)) {
        for (int64_t line = 0; line < (has(256) ? s.m : s.n); ++line) {
          Sum sum;
          for (int64_t l = 0; l < s.k; ++l) {
            const Real value = has(256) ? value_a(e, line, l) : value_b(e, l, line);
            sum.value += value;
            sum.magnitude += std::fabs(value);
          }
          judge("operand gradient", e, line, 0, bias->get(e * bias_stride + line),
                stored(bias->type(), sum.value, 1.01L * static_cast<Real>(s.k) * u * sum.magnitude));
        }
      }
    }
    if (s.amax) judge("amax", 0, 0, 0, amax->get(0), {amax_low * (1 - u), amax_high * (1 + u)});
    if (s.aux_scale) judge("aux amax", 0, 0, 0, aux_amax->get(0), {aux_low * (1 - u), aux_high * (1 + u)});
    // Nothing of the auxiliary matrix but its entries was written, and nothing at all where it is read.
    if (aux != nullptr) {
      const std::vector<unsigned char> aux_after = aux->bytes();
      const int64_t unit = is_mask() ? 1 : fields_of(aux->type()).bytes * 8;  // bits
      std::vector<bool> mine(aux_after.size() * 8 / static_cast<size_t>(unit), !aux_written());
      for (int64_t e = 0; aux_written() && e < shape_d.batch; ++e) {
        for (int64_t j = 0; j < s.n; ++j) {
          for (int64_t i = 0; i < s.m; ++i) mine[static_cast<size_t>(aux_at(e, i, j))] = true;
        }
      }
      for (size_t bit = 0; bit < aux_after.size() * 8; ++bit) {
        if (aux_written() && mine[bit / static_cast<size_t>(unit)]) continue;
        if (((aux_after[bit / 8] ^ aux_before[bit / 8]) >> (bit % 8) & 1) == 0) continue;
        if (result.beyond++ == 0)
          result.first = "a gap of the auxiliary matrix was written, bit " + std::to_string(bit);
      }
    }
    // Nothing between the columns and the batch entries was written.
    std::vector<bool> covered(static_cast<size_t>(d->count()));
    for (int64_t e = 0; e < shape_d.batch; ++e) {
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) covered[static_cast<size_t>(shape_d.at(e, i, j))] = true;
      }
    }
    const std::vector<unsigned char> after = d->bytes();
    const auto bytes = static_cast<size_t>(fields_of(s.types.d).bytes);
    for (size_t i = 0; i < covered.size(); ++i) {
      if (covered[i] || std::memcmp(&before[i * bytes], &after[i * bytes], bytes) == 0) continue;
      if (result.beyond++ == 0) result.first = "a gap of D was written";
    }
    return result;
  }

  Spec s;
  Shape shape_a, shape_b, shape_c, shape_d;
  std::unique_ptr<Buffer> a, b, c, d, alpha, beta, bias, aux, scale_a, scale_b, scale_d, amax, aux_scale, aux_amax;
  std::unique_ptr<Buffer> a_list, b_list, c_list, d_list;
  int64_t alpha_stride = 0, bias_stride = 0, aux_ld = 0, aux_stride = 0;
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a_layout, b_layout, c_layout, d_layout;
  const void* alpha_at = nullptr;
  const void* beta_at = nullptr;
  std::vector<unsigned char> before, aux_before;
  bool status_only = false;
  const cublasLtMatmulAlgo_t* algo = nullptr;  // null: the heuristic's choice

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(&desc, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }
  template <typename Value>
  static void set(cublasLtMatrixLayoutOpaque_t* layout, cublasLtMatrixLayoutAttribute_t attribute, Value value) {
    ASSERT_EQ(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }

 private:
  static Real scale_of(const std::unique_ptr<Buffer>& buffer, int64_t i) {
    if (buffer == nullptr) return 1;
    return buffer->get(buffer->count() > 1 ? i : 0);
  }

  static Real drawn(cudaDataType type, std::mt19937* engine, Real magnitude) {
    std::normal_distribution<double> normal;
    if (type == CUDA_R_8I) return static_cast<Real>(static_cast<int>((*engine)() % 256) - 128);
    if (type == CUDA_R_32I) return static_cast<Real>(static_cast<int>((*engine)() % 2000001) - 1000000);
    return rounded(type, static_cast<Real>(normal(*engine)) * magnitude);
  }

  // Values inside the matrices, NaN between them.
  static std::unique_ptr<Buffer> filled(cudaDataType type, const Shape& shape, std::mt19937* engine, Real magnitude) {
    auto buffer = std::make_unique<Buffer>(type, shape.elements());
    for (int64_t e = 0; e < shape.batch; ++e) {
      for (int64_t j = 0; j < shape.cols; ++j) {
        for (int64_t i = 0; i < shape.rows; ++i) buffer->set(shape.at(e, i, j), drawn(type, engine, magnitude));
      }
    }
    buffer->upload();
    return buffer;
  }

  static std::unique_ptr<Buffer> vector_of(cudaDataType type, int64_t count, std::mt19937* engine, Real magnitude) {
    auto buffer = std::make_unique<Buffer>(type, count);
    for (int64_t i = 0; i < count; ++i) buffer->set(i, drawn(type, engine, magnitude));
    buffer->upload();
    return buffer;
  }

  void make_vectors(std::mt19937* engine) {
    const int64_t batch = shape_d.batch;
    const bool vector = s.pointer_mode >= CUBLASLT_POINTER_MODE_DEVICE_VECTOR;
    alpha_stride = s.pointer_mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST && batch > 1 ? s.m + 3 : 0;
    alpha = vector ? vector_of(s.types.scale, s.m + alpha_stride * (batch - 1), engine, 1)
                   : std::make_unique<Buffer>(s.types.scale, 1);
    if (!vector) alpha->set(0, s.alpha);
    alpha->upload();
    const bool beta_vector = s.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE_VECTOR;
    beta = beta_vector ? vector_of(s.types.scale, s.m, engine, 1) : std::make_unique<Buffer>(s.types.scale, 1);
    if (!beta_vector) beta->set(0, s.beta);
    beta->upload();
    if (has(4 | 16 | 256 | 512)) {
      const auto type = s.bias_type.value_or(s.types.bias);
      const int64_t count = has(512) ? s.n : s.m;
      bias_stride = batch > 1 ? count + 5 : 0;
      bias = vector_of(type, count + bias_stride * (batch - 1), engine, 1);
    }
    if (has(128)) {
      aux_ld = is_mask() ? (s.m + 127) / 128 * 128 + 128 : (s.m + 7) / 8 * 8 + 8;
      aux_stride = batch > 1 ? aux_ld * (s.n + 1) : 0;
      const int64_t elements = aux_stride * (batch - 1) + aux_ld * s.n;
      const auto type = s.aux_type.value_or(s.types.d);
      aux = is_mask() ? std::make_unique<Buffer>(CUDA_R_8I, elements / 8) : vector_of(type, elements, engine, 1);
      for (int64_t i = 0; is_mask() && i < aux->count(); ++i) aux->set(i, drawn(CUDA_R_8I, engine, 1));
      aux->upload();
    }
    const auto factor = [&](int64_t count) {
      auto made = std::make_unique<Buffer>(CUDA_R_32F, count);
      std::uniform_real_distribution<double> uniform(0.25, 3.0);
      for (int64_t i = 0; i < count; ++i) made->set(i, rounded(CUDA_R_32F, static_cast<Real>(uniform(*engine))));
      made->upload();
      return made;
    };
    if (s.a_scale) scale_a = factor(s.vectors ? s.m : 1);
    if (s.b_scale) scale_b = factor(s.vectors ? s.n : 1);
    if (s.d_scale) scale_d = factor(1);
    if (s.amax) amax = factor(1);
    if (s.aux_scale) {
      aux_scale = factor(1);
      aux_amax = factor(1);
    }
  }

  void describe() {
    ASSERT_EQ(cublasLtMatmulDescInit(&desc, s.types.compute, s.types.scale), CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N});
    set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{s.transpose_b ? CUBLAS_OP_C : CUBLAS_OP_N});
    set(CUBLASLT_MATMUL_DESC_POINTER_MODE, s.pointer_mode);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, s.epilogue);
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(s.types.fast));
    set(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, alpha_stride);
    if (bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias->device());
      set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, bias_stride);
    }
    if (s.bias_type) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t{*s.bias_type});
    if (aux != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux->device());
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, aux_stride);
    }
    if (s.aux_type) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, int32_t{*s.aux_type});
    const auto pointer = [&](const std::unique_ptr<Buffer>& buffer, cublasLtMatmulDescAttributes_t attribute) {
      if (buffer != nullptr) set(attribute, buffer->device());
    };
    pointer(scale_a, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
    pointer(scale_b, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
    pointer(scale_d, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER);
    pointer(amax, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER);
    pointer(aux_scale, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER);
    pointer(aux_amax, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER);
    if (s.vectors) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F});
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F});
    }
    const auto layout = [&](cublasLtMatrixLayoutOpaque_t* made, cudaDataType type, const Shape& shape) {
      ASSERT_EQ(cublasLtMatrixLayoutInit(made, type, static_cast<uint64_t>(shape.rows),
                                         static_cast<uint64_t>(shape.cols), shape.ld),
                CUBLAS_STATUS_SUCCESS);
      set(made, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{shape.row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL});
      set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(shape.batch));
      if (s.batch == Batch::kPointers) {
        set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, uint32_t{CUBLASLT_BATCH_MODE_POINTER_ARRAY});
      } else {
        set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, shape.stride);
      }
    };
    layout(&a_layout, s.types.a, shape_a);
    layout(&b_layout, s.types.b, shape_b);
    layout(&c_layout, s.types.c, shape_c);
    layout(&d_layout, s.types.d, shape_d);
    const bool alpha_on_host = s.pointer_mode == CUBLASLT_POINTER_MODE_HOST;
    const bool beta_on_host = alpha_on_host || s.pointer_mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST;
    alpha_host_ = alpha->bytes();
    beta_host_ = beta->bytes();
    alpha_at = alpha_on_host ? static_cast<const void*>(alpha_host_.data()) : alpha->device();
    beta_at = s.pointer_mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO ? nullptr
              : beta_on_host ? static_cast<const void*>(beta_host_.data())
                             : beta->device();
  }

  std::vector<unsigned char> alpha_host_, beta_host_;
};

class LtTypesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  // Runs the call and holds all that it wrote against the reference.
  void expect_right(const Spec& spec, const std::string& what) {
    LtCall run(spec);
    ASSERT_EQ(run(handle_, stream_), CUBLAS_STATUS_SUCCESS) << what;
    const LtCall::Verdict verdict = run.verdict();
    EXPECT_GE(verdict.compared, spec.m * spec.n) << what;
    EXPECT_EQ(verdict.beyond, 0) << what << ": " << verdict.first;
    // Bits that the bound leaves open: few, but for the wide bound of an FP16 accumulator.
    EXPECT_LE(verdict.open_bits * (spec.types.scale == CUDA_R_16F ? 4 : 20), verdict.compared) << what;
  }

  cublasStatus_t status_of(
      const Spec& spec, const std::function<void(LtCall&)>& bend = [](LtCall&) {}) {
    LtCall run(spec);
    return run(handle_, stream_, bend);
  }

  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

// ---- types

TEST_F(LtTypesTest, EveryTuple_LayoutsAndScalars) {
  struct Scalars {
    Real alpha, beta;
  };
  for (const Types& types : kTypes) {
    uint32_t seed = 1;
    for (const Scalars& scalars : {Scalars{1, 0}, Scalars{-0.5, 2}, Scalars{0, 1}, Scalars{3, -1}}) {
      for (int variant = 0; variant < 4; ++variant) {
        Spec spec{types};
        spec.alpha = integer_scale(types) ? std::trunc(2 * scalars.alpha) : scalars.alpha;
        spec.beta = scalars.beta;
        spec.seed = ++seed;
        if (!needs_tn(types)) {
          spec.transpose_a = (variant & 1) != 0;
          spec.transpose_b = (variant & 2) != 0;
          spec.rows_major = variant * 3 % 8;
          spec.padding = types.a == CUDA_R_8I ? 4 : 3;
          spec.m = types.a == CUDA_R_8I ? 24 : 21;
          spec.n = types.a == CUDA_R_8I ? 12 : 13;
          spec.k = types.a == CUDA_R_8I ? 28 : 37;
        } else if (variant == 3) {
          // The same layout by row-major matrices.
          spec.transpose_a = false;
          spec.transpose_b = true;
          spec.rows_major = 3;
        } else if (variant == 2) {
          spec.k = 320;
        }
        expect_right(spec, std::string(types.name) + ", variant " + std::to_string(variant) + ", alpha " +
                               std::to_string(scalars.alpha));
      }
    }
  }
}

TEST_F(LtTypesTest, EveryTuple_BatchesInPlaceAndEmpty) {
  for (const Types& types : kTypes) {
    for (const Batch batch : {Batch::kStrided, Batch::kShared, Batch::kPointers}) {
      Spec spec{types};
      spec.m = 16;
      spec.n = 16;
      spec.k = 48;
      spec.batch = batch;
      spec.beta = 1;
      expect_right(spec, std::string(types.name) + ", batch " + std::to_string(static_cast<int>(batch)));
      spec.beta = 0;
      spec.c_null = true;
      expect_right(spec, std::string(types.name) + " without C, batch " + std::to_string(static_cast<int>(batch)));
    }
    Spec spec{types};
    if (types.c == types.d) {
      spec.in_place = true;
      spec.beta = 2;
      expect_right(spec, std::string(types.name) + " in place");
      spec.batch = Batch::kPointers;
      expect_right(spec, std::string(types.name) + " in place, by pointers");
    }
    spec = Spec{types};
    spec.k = 0;
    spec.beta = 1;
    EXPECT_EQ(status_of(spec,
                        [](LtCall& run) {
                          for (auto* layout : {&run.a_layout, &run.b_layout})
                            LtCall::set(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{0});
                        }),
              CUBLAS_STATUS_SUCCESS)
        << types.name;
  }
}

TEST_F(LtTypesTest, K0_IsBetaC) {
  for (const char* name : {"bf16", "fp64", "int8 int32", "e4m3 bf16"}) {
    const Types& types = types_named(name);
    Spec spec{types};
    spec.k = 16;
    spec.beta = 2;
    LtCall run(spec);
    ASSERT_EQ(run(handle_, stream_,
                  [](LtCall& bent) {
                    LtCall::set(&bent.a_layout, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{0});
                    LtCall::set(&bent.b_layout, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{0});
                  }),
              CUBLAS_STATUS_SUCCESS);
    for (int64_t i = 0; i < spec.m; ++i) {
      const int64_t at = run.shape_d.at(0, i, 3);
      EXPECT_EQ(run.d->get(at), rounded(types.d, 2 * run.c->get(run.shape_c.at(0, i, 3)))) << name;
    }
  }
}

TEST_F(LtTypesTest, K0_GradientsOfOperandsAreZero) {
  for (const uint32_t epilogue : {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB}) {
    Spec spec{types_named("bf16 fp32")};
    spec.epilogue = epilogue;
    LtCall call(spec);
    ASSERT_EQ(call(handle_, stream_,
                   [](LtCall& bent) {
                     LtCall::set(&bent.a_layout, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{0});
                     LtCall::set(&bent.b_layout, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{0});
                   }),
              CUBLAS_STATUS_SUCCESS);
    for (int64_t i = 0; i < call.bias->count(); ++i) EXPECT_EQ(call.bias->bits(i), 0u);
  }
}

TEST_F(LtTypesTest, C_IsBroadcastOverItsLinesAndMayHaveNoDescriptor) {
  for (const int rows_major : {0, 4}) {
    Spec spec{types_named("bf16 fp32")};
    spec.rows_major = rows_major;
    spec.beta = 1.5;
    spec.c_ld = 0;
    expect_right(spec, "C with leading dimension 0");
  }
  Spec spec{types_named("bf16")};
  LtCall run(spec);
  ASSERT_EQ(run(handle_, stream_), CUBLAS_STATUS_SUCCESS);
  const std::vector<unsigned char> with = run.d->bytes();
  EXPECT_EQ(
      cublasLtMatmul(handle_, &run.desc, run.alpha_at, run.a->device(), &run.a_layout, run.b->device(), &run.b_layout,
                     run.beta_at, nullptr, nullptr, run.d->device(), &run.d_layout, nullptr, nullptr, 0, stream_),
      CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  run.d->download();
  EXPECT_EQ(run.d->bytes(), with);
  EXPECT_EQ(status_of(spec, [](LtCall& bent) { LtCall::set(&bent.d_layout, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{0}); }),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(LtTypesTest, PointerModes) {
  for (const char* name : {"bf16", "fp32", "tf32", "int8 int8", "e4m3 fp32"}) {
    for (const int32_t mode :
         {CUBLASLT_POINTER_MODE_DEVICE, CUBLASLT_POINTER_MODE_DEVICE_VECTOR,
          CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO, CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST}) {
      for (const Batch batch : {Batch::kOne, Batch::kStrided}) {
        Spec spec{types_named(name)};
        spec.pointer_mode = mode;
        spec.batch = batch;
        spec.m = 32;
        spec.alpha = 0.75;
        spec.beta = mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO ? 0 : -0.5;
        expect_right(spec, std::string(name) + ", pointer mode " + std::to_string(mode));
      }
    }
  }
  for (const char* name : {"fp64", "int8 int32", "fp16 accumulator"}) {
    Spec spec{types_named(name)};
    spec.pointer_mode = CUBLASLT_POINTER_MODE_DEVICE;
    spec.alpha = 2;
    spec.beta = 3;
    expect_right(spec, name);
    spec.pointer_mode = CUBLASLT_POINTER_MODE_DEVICE_VECTOR;
    EXPECT_EQ(status_of(spec), CUBLAS_STATUS_NOT_SUPPORTED) << name;
  }
  Spec spec{types_named("bf16")};
  spec.pointer_mode = CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO;
  EXPECT_EQ(status_of(spec, [](LtCall& run) { run.set(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, int64_t{48}); }),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(status_of(spec, [](LtCall& run) { run.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{5}); }),
            CUBLAS_STATUS_INVALID_VALUE);
}

// ---- FP8

TEST_F(LtTypesTest, Fp8_ScalesAmaxAndSaturation) {
  for (const Types& types : kTypes) {
    if (!is_fp8(types.a)) continue;
    Spec spec{types};
    spec.alpha = 0.5;
    spec.beta = 1;
    spec.a_scale = spec.b_scale = true;
    expect_right(spec, std::string(types.name) + ", scales of A and B");
    spec.a_scale = false;
    expect_right(spec, std::string(types.name) + ", scale of B");
    if (is_fp8(types.d)) {
      spec.a_scale = spec.d_scale = spec.amax = true;
      expect_right(spec, std::string(types.name) + ", scale and amax of D");
      spec.magnitude = 40;
      LtCall run(spec);
      ASSERT_EQ(run(handle_, stream_), CUBLAS_STATUS_SUCCESS);
      const LtCall::Verdict verdict = run.verdict();
      EXPECT_EQ(verdict.beyond, 0) << verdict.first;
      int64_t saturated = 0;
      for (int64_t i = 0; i < spec.m; ++i) {
        saturated += std::fabs(run.d->get(run.shape_d.at(0, i, 0))) == largest_of(types.d) ? 1 : 0;
      }
      if (types.d == CUDA_R_8F_E4M3) {
        EXPECT_GT(saturated, 0) << types.name;
      }
    } else {
      spec.a_scale = spec.b_scale = spec.vectors = true;
      expect_right(spec, std::string(types.name) + ", a scale for each row and column");
      spec.batch = Batch::kStrided;
      expect_right(spec, std::string(types.name) + ", the same in a batch");
    }
  }
}

TEST_F(LtTypesTest, Fp8_FastAccumulationIsLessExact) {
  Spec spec{types_named("e4m3 fp32")};
  spec.k = 1024;
  const auto error_of = [&](bool fast) {
    spec.types.fast = fast;
    LtCall call(spec);
    EXPECT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(call.verdict().beyond, 0);
    Real error = 0;
    for (int64_t i = 0; i < spec.m; ++i) {
      Real exact = 0;
      for (int64_t l = 0; l < spec.k; ++l) exact += call.value_a(0, i, l) * call.value_b(0, l, 3);
      error += std::fabs(call.d->get(call.shape_d.at(0, i, 3)) - exact);
    }
    return error;
  };
  EXPECT_LT(2 * error_of(false), error_of(true));
}

TEST_F(LtTypesTest, Fp8_NanInD) {
  Spec spec{types_named("e4m3 e4m3")};
  spec.amax = true;
  LtCall run(spec);
  run.a->set(run.shape_a.at(0, 0, 5), NAN);
  run.a->upload();
  ASSERT_EQ(run(handle_, stream_), CUBLAS_STATUS_SUCCESS);
  for (int64_t j = 0; j < spec.n; ++j) {
    EXPECT_EQ(run.d->bits(run.shape_d.at(0, 5, j)) & 0x7F, 0x7Fu);
    EXPECT_FALSE(std::isnan(run.d->get(run.shape_d.at(0, 6, j))));
  }
  EXPECT_TRUE(std::isfinite(run.amax->get(0)));
}

TEST_F(LtTypesTest, Fp8_RefusesWhatTheTensorCoreCannot) {
  const Types& types = types_named("e4m3 bf16");
  const Spec good{types};
  EXPECT_EQ(status_of(good), CUBLAS_STATUS_SUCCESS);
  const auto with = [&](const std::function<void(Spec&)>& change) {
    Spec spec = good;
    change(spec);
    return status_of(spec);
  };
  EXPECT_EQ(with([](Spec& s) { s.transpose_a = false; }), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(with([](Spec& s) { s.transpose_b = true; }), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(with([](Spec& s) { s.rows_major = 1; }), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(with([](Spec& s) { s.padding = 8; }), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(with([](Spec& s) {
              s.k = 72;
              s.padding = 8;
            }),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(with([](Spec& s) {
              s.m = 44;
              s.padding = 20;
            }),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(with([](Spec& s) { s.n = 5; }), CUBLAS_STATUS_SUCCESS);
  LtCall run(good);
  ASSERT_EQ(run(handle_, stream_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmul(handle_, &run.desc, run.alpha_at, static_cast<char*>(run.a->device()) + 8, &run.a_layout,
                           run.b->device(), &run.b_layout, run.beta_at, nullptr, &run.c_layout, run.d->device(),
                           &run.d_layout, nullptr, nullptr, 0, stream_),
            CUBLAS_STATUS_NOT_SUPPORTED);

  const auto bent = [&](const char* name, const std::function<void(LtCall&)>& bend) {
    return status_of({types_named(name)}, bend);
  };
  const auto mode = [](cublasLtMatmulDescAttributes_t attribute, int32_t value) {
    return [attribute, value](LtCall& r) { r.set(attribute, value); };
  };
  for (const auto attribute : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
                               CUBLASLT_MATMUL_DESC_D_SCALE_MODE, CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE}) {
    for (const int32_t value : {1, 2, 3, 4, 5}) {
      EXPECT_EQ(bent("e4m3 bf16", mode(attribute, value)), CUBLAS_STATUS_NOT_SUPPORTED) << attribute << " " << value;
    }
  }
  const auto pointer = [](cublasLtMatmulDescAttributes_t attribute) {
    return [attribute](LtCall& r) { r.set(attribute, r.alpha->device()); };
  };
  for (const char* name : {"bf16", "fp32", "fp64", "int8 int32"}) {
    for (const auto attribute : {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                 CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER,
                                 CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER}) {
      EXPECT_EQ(bent(name, pointer(attribute)), CUBLAS_STATUS_INVALID_VALUE) << name << " " << attribute;
    }
  }
  // A scale or amax of D needs an FP8 D; C is never FP8.
  EXPECT_EQ(bent("e4m3 bf16", pointer(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(bent("e4m3 bf16", pointer(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER)), CUBLAS_STATUS_INVALID_VALUE);
  // Let pass beside FP8 operands, and without effect (NVIDIA's LtFp8Matmul sets one with a BF16 C).
  EXPECT_EQ(bent("bf16", pointer(CUBLASLT_MATMUL_DESC_C_SCALE_POINTER)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(bent("e4m3 e4m3", pointer(CUBLASLT_MATMUL_DESC_C_SCALE_POINTER)), CUBLAS_STATUS_SUCCESS);
  // Of block-scaled results, which there are none of.
  EXPECT_EQ(bent("e4m3 bf16", pointer(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(bent("e4m3 e4m3", pointer(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER)), CUBLAS_STATUS_NOT_SUPPORTED);
  Spec vectors{types_named("e4m3 e4m3")};
  vectors.a_scale = vectors.b_scale = vectors.vectors = true;
  EXPECT_EQ(status_of(vectors), CUBLAS_STATUS_NOT_SUPPORTED) << "vectors of scales need a wider D";
}

TEST_F(LtTypesTest, Int8_Alignment) {
  Spec spec{types_named("int8 int8")};
  EXPECT_EQ(status_of(spec), CUBLAS_STATUS_SUCCESS);
  spec.transpose_a = false;
  EXPECT_EQ(status_of(spec), CUBLAS_STATUS_NOT_SUPPORTED);
  spec = Spec{types_named("int8 int32")};
  spec.padding = 3;
  EXPECT_EQ(status_of(spec), CUBLAS_STATUS_NOT_SUPPORTED);
  spec.padding = 4;
  EXPECT_EQ(status_of(spec), CUBLAS_STATUS_SUCCESS);
}

// ---- epilogues

TEST_F(LtTypesTest, Epilogues_OfEveryTypeAndBatch) {
  constexpr uint32_t kAll[] = {
      CUBLASLT_EPILOGUE_BIAS,        CUBLASLT_EPILOGUE_RELU,          CUBLASLT_EPILOGUE_RELU_BIAS,
      CUBLASLT_EPILOGUE_RELU_AUX,    CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUBLASLT_EPILOGUE_DRELU,
      CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_BIAS,
      CUBLASLT_EPILOGUE_GELU_AUX,    CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
      CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,        CUBLASLT_EPILOGUE_BGRADB};
  for (const Types& types : kTypes) {
    for (const uint32_t epilogue : kAll) {
      const bool simple = epilogue <= CUBLASLT_EPILOGUE_RELU_BIAS;
      const bool of_operand = epilogue >= CUBLASLT_EPILOGUE_BGRADA;
      const bool offered =
          types.a != CUDA_R_8I && (types.a != CUDA_R_64F || simple) && !(is_fp8(types.a) && of_operand);
      Spec spec{types};
      spec.m = is_fp8(types.a) ? 32 : 29;
      spec.n = 8;
      spec.epilogue = epilogue;
      spec.magnitude = 0.5;
      if (!offered) {
        EXPECT_EQ(status_of(spec), CUBLAS_STATUS_NOT_SUPPORTED) << types.name << ", epilogue " << epilogue;
        continue;
      }
      for (const Batch batch : {Batch::kOne, Batch::kStrided, Batch::kPointers}) {
        spec.batch = batch;
        spec.beta = batch == Batch::kOne ? 0 : 1;
        spec.seed = epilogue + 3;
        spec.d_scale = is_fp8(types.d) && batch != Batch::kOne;
        expect_right(spec, std::string(types.name) + ", epilogue " + std::to_string(epilogue));
      }
    }
  }
}

// What finish.h states for want of a GPU that says otherwise.
TEST_F(LtTypesTest, Epilogues_MaskOfZeroAndNan) {
  for (const Real value : {Real{0}, std::numeric_limits<Real>::quiet_NaN()}) {
    Spec spec{types_named("fp32")};
    spec.epilogue = CUBLASLT_EPILOGUE_RELU_AUX;
    LtCall call(spec);
    for (int64_t l = 0; l < spec.k; ++l) call.a->set(call.shape_a.at(0, l, 5), value);
    call.a->upload();
    ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
    for (int64_t j = 0; j < spec.n; ++j) {
      EXPECT_FALSE(call.mask_bit(0, 5, j));
      EXPECT_EQ(std::isnan(call.d->get(call.shape_d.at(0, 5, j))), std::isnan(value)) << "RELU keeps a NaN";
    }
  }
}

TEST_F(LtTypesTest, Epilogues_TypesOfBiasAndAux) {
  // The table's own bias type may be named; another is refused.
  for (const Types& types : kTypes) {
    if (types.a == CUDA_R_8I) continue;
    Spec spec{types};
    spec.epilogue = CUBLASLT_EPILOGUE_BIAS;
    spec.bias_type = types.bias;
    expect_right(spec, types.name);
    spec.bias_type = types.bias == CUDA_R_32F ? CUDA_R_16BF : CUDA_R_32F;
    EXPECT_EQ(status_of(spec), CUBLAS_STATUS_NOT_SUPPORTED) << types.name;
  }
  // The gradient of an operand in the operand's own type.
  Spec spec{types_named("bf16 fp32")};
  spec.epilogue = CUBLASLT_EPILOGUE_BGRADB;
  spec.bias_type = CUDA_R_16BF;
  expect_right(spec, "BGRADB in BF16 beside an FP32 D");
  // An FP8 D: GELU's input in FP8 with scale and amax, or in C's type.
  spec = Spec{types_named("e4m3 e4m3")};
  spec.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  spec.aux_scale = spec.d_scale = spec.amax = true;
  expect_right(spec, "FP8 auxiliary matrix");
  spec.aux_scale = false;
  spec.aux_type = CUDA_R_16BF;
  expect_right(spec, "BF16 auxiliary matrix beside an FP8 D");
  spec.aux_scale = true;
  EXPECT_EQ(status_of(spec), CUBLAS_STATUS_INVALID_VALUE);
  spec.aux_scale = false;
  spec.aux_type = CUDA_R_16F;
  EXPECT_EQ(status_of(spec), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(LtTypesTest, Epilogues_RefusedArguments) {
  const auto with = [&](uint32_t epilogue, const std::function<void(LtCall&)>& bend, Batch batch = Batch::kOne) {
    Spec spec{types_named("bf16")};
    spec.epilogue = epilogue;
    spec.batch = batch;
    return status_of(spec, bend);
  };
  const auto aux_ld = [](int64_t ld) {
    return [ld](LtCall& run) { run.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld); };
  };
  const auto aux_stride = [](int64_t stride) {
    return [stride](LtCall& run) { run.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, stride); };
  };
  EXPECT_EQ(with(CUBLASLT_EPILOGUE_RELU_AUX, aux_ld(128)), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(with(CUBLASLT_EPILOGUE_RELU_AUX, aux_ld(192)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(with(CUBLASLT_EPILOGUE_RELU_AUX, aux_ld(0)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(with(CUBLASLT_EPILOGUE_DRELU, aux_ld(96)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(with(CUBLASLT_EPILOGUE_GELU_AUX, aux_ld(48)), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(with(CUBLASLT_EPILOGUE_GELU_AUX, aux_ld(40)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(with(CUBLASLT_EPILOGUE_GELU_AUX, aux_ld(52)), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(with(CUBLASLT_EPILOGUE_GELU_AUX, aux_stride(12), Batch::kStrided), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(with(CUBLASLT_EPILOGUE_GELU_AUX, aux_stride(0), Batch::kStrided), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(with(CUBLASLT_EPILOGUE_DGELU, aux_stride(0), Batch::kStrided), CUBLAS_STATUS_SUCCESS);
  for (const uint32_t epilogue : {CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_DGELU}) {
    EXPECT_EQ(with(epilogue, [](LtCall& run) { run.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, nullptr); }),
              CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(with(epilogue,
                   [](LtCall& run) {
                     LtCall::set(&run.c_layout, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_ROW});
                     LtCall::set(&run.d_layout, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_ROW});
                   }),
              CUBLAS_STATUS_NOT_SUPPORTED);
  }
  for (const uint32_t epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA}) {
    EXPECT_EQ(with(epilogue, [](LtCall& run) { run.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr); }),
              CUBLAS_STATUS_INVALID_VALUE);
  }
  for (const uint32_t unknown : {0u, 3u, 16u, 128u, 1024u, 512u | 256u, 34u, 64u}) {
    EXPECT_EQ(with(CUBLASLT_EPILOGUE_DEFAULT, [&](LtCall& run) { run.set(CUBLASLT_MATMUL_DESC_EPILOGUE, unknown); }),
              CUBLAS_STATUS_NOT_SUPPORTED)
        << unknown;
  }
}

TEST_F(LtTypesTest, Batches_RefusedArguments) {
  Spec spec{types_named("bf16")};
  spec.batch = Batch::kStrided;
  EXPECT_EQ(status_of(spec,
                      [](LtCall& run) {
                        LtCall::set(&run.d_layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t{0});
                      }),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(
      status_of(spec, [](LtCall& run) { LtCall::set(&run.a_layout, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, uint32_t{1}); }),
      CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(
      status_of(spec, [](LtCall& run) { LtCall::set(&run.a_layout, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, uint32_t{2}); }),
      CUBLAS_STATUS_INVALID_VALUE);
}

// Must-fail: the comparison bites. One bit of D, of the auxiliary matrix, of a gradient and of amax.
TEST_F(LtTypesTest, Reference_SeesOneWrongValue) {
  for (const Types& types : kTypes) {
    LtCall run(Spec{types});
    ASSERT_EQ(run(handle_, stream_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(run.verdict().beyond, 0);
    const int64_t at = run.shape_d.at(0, 7, 3);
    const Real right = run.d->get(at);
    const bool integer = fields_of(types.d).exponent_bits == 0;
    run.d->set(at, integer ? right + (right > 0 ? -1 : 1) : rounded(types.d, right + 16));
    EXPECT_EQ(run.verdict().beyond, 1) << types.name;
  }
  Spec spec{types_named("e4m3 e4m3")};
  spec.epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
  spec.amax = true;
  LtCall run(spec);
  ASSERT_EQ(run(handle_, stream_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run.verdict().beyond, 0);
  run.amax->set(0, run.amax->get(0) * 2);
  EXPECT_EQ(run.verdict().beyond, 1);
  run.aux->set(run.aux_at(0, 3, 3), run.aux->get(run.aux_at(0, 3, 3)) + 64);
  EXPECT_EQ(run.verdict().beyond, 2);
  spec = Spec{types_named("fp16 fp32")};
  spec.epilogue = CUBLASLT_EPILOGUE_DRELU_BGRAD;
  LtCall gradient(spec);
  ASSERT_EQ(gradient(handle_, stream_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(gradient.verdict().beyond, 0);
  gradient.bias->set(2, gradient.bias->get(2) * 1.5L + 1);
  EXPECT_EQ(gradient.verdict().beyond, 1);
  spec.epilogue = CUBLASLT_EPILOGUE_RELU_AUX;
  LtCall mask(spec);
  ASSERT_EQ(mask(handle_, stream_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(mask.verdict().beyond, 0);
  for (int64_t i = 0; i < mask.aux_ld / 8; ++i) mask.aux->set(i, decode(CUDA_R_8I, mask.aux->bits(i) ^ 0xFF));
  EXPECT_GE(mask.verdict().beyond, spec.m - 2);
}

// ---- the table of tuples

// Every combination of compute, scale and four types is taken or refused as documented, by the call and by the
// heuristics alike.
TEST_F(LtTypesTest, Tuples_AllOthersAreRefused) {
  constexpr cudaDataType kAll[] = {CUDA_R_64F,     CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF,    CUDA_R_8F_E4M3,
                                   CUDA_R_8F_E5M2, CUDA_R_8I,  CUDA_R_32I, CUDA_R_4F_E2M1, CUDA_C_32F};
  constexpr cublasComputeType_t kComputes[] = {CUBLAS_COMPUTE_16F,
                                               CUBLAS_COMPUTE_16F_PEDANTIC,
                                               CUBLAS_COMPUTE_32F,
                                               CUBLAS_COMPUTE_32F_PEDANTIC,
                                               CUBLAS_COMPUTE_32F_FAST_16F,
                                               CUBLAS_COMPUTE_32F_FAST_16BF,
                                               CUBLAS_COMPUTE_32F_FAST_TF32,
                                               CUBLAS_COMPUTE_32F_EMULATED_16BFX9,
                                               CUBLAS_COMPUTE_64F,
                                               CUBLAS_COMPUTE_64F_PEDANTIC,
                                               CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT,
                                               CUBLAS_COMPUTE_32I,
                                               CUBLAS_COMPUTE_32I_PEDANTIC};
  using Tuple = std::tuple<int, int, int, int, int, int>;
  std::set<Tuple> offered;
  const auto add = [&](std::initializer_list<cublasComputeType_t> computes, cudaDataType scale, cudaDataType a,
                       cudaDataType b, cudaDataType c, cudaDataType d) {
    for (const auto compute : computes) offered.insert({compute, scale, a, b, c, d});
  };
  const auto F = CUDA_R_32F;
  const auto H = CUDA_R_16F;
  const auto B = CUDA_R_16BF;
  const auto E4 = CUDA_R_8F_E4M3;
  const auto E5 = CUDA_R_8F_E5M2;
  const auto I8 = CUDA_R_8I;
  const auto plain = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC};
  for (const auto in : {B, H}) {
    add(plain, F, in, in, in, in);
    add(plain, F, in, in, F, F);
  }
  add({CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_COMPUTE_32F_FAST_16BF,
       CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F_EMULATED_16BFX9},
      F, F, F, F, F);
  add(plain, F, I8, I8, F, F);
  add({CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_16F_PEDANTIC}, H, H, H, H, H);
  add({CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_64F_PEDANTIC, CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT}, CUDA_R_64F, CUDA_R_64F,
      CUDA_R_64F, CUDA_R_64F, CUDA_R_64F);
  add({CUBLAS_COMPUTE_32I, CUBLAS_COMPUTE_32I_PEDANTIC}, CUDA_R_32I, I8, I8, CUDA_R_32I, CUDA_R_32I);
  add({CUBLAS_COMPUTE_32I, CUBLAS_COMPUTE_32I_PEDANTIC}, F, I8, I8, I8, I8);
  for (const auto& [a, b] : {std::pair{E4, E4}, std::pair{E4, E5}, std::pair{E5, E4}}) {
    for (const auto wide : {B, H, F}) add(plain, F, a, b, wide, wide);
    for (const auto c : {B, H}) {
      add(plain, F, a, b, c, E4);
      if (a != b) add(plain, F, a, b, c, E5);
    }
  }
  int64_t taken = 0;
  int64_t refused = 0;
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 16 * 16 * 8), cudaSuccess);
  cublasLtMatmulPreferenceOpaque_t preference;
  ASSERT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
  const double zero = 0;
  for (const auto compute : kComputes) {
    for (const auto scale : {CUDA_R_64F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF, CUDA_R_32I}) {
      for (const auto a : kAll) {
        for (const auto b : kAll) {
          for (const auto c : kAll) {
            for (const auto d : kAll) {
              cublasLtMatmulDescOpaque_t desc;
              cublasLtMatrixLayoutOpaque_t layouts[4];
              cublasLtMatmulDescInit(&desc, compute, scale);
              const int32_t transpose = CUBLAS_OP_T;
              cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose);
              const cudaDataType types[] = {a, b, c, d};
              for (int i = 0; i < 4; ++i) cublasLtMatrixLayoutInit(&layouts[i], types[i], 16, 16, 16);
              const bool expected = offered.count({compute, scale, a, b, c, d}) != 0;
              const cublasStatus_t want = expected ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
              const cublasStatus_t got =
                  cublasLtMatmul(handle_, &desc, &zero, memory, &layouts[0], memory, &layouts[1], &zero, memory,
                                 &layouts[2], memory, &layouts[3], nullptr, nullptr, 0, stream_);
              cublasLtMatmulHeuristicResult_t result;
              int count = -1;
              const cublasStatus_t answered = cublasLtMatmulAlgoGetHeuristic(
                  handle_, &desc, &layouts[0], &layouts[1], &layouts[2], &layouts[3], &preference, 1, &result, &count);
              ASSERT_EQ(got, want) << compute << " " << scale << " " << a << " " << b << " " << c << " " << d;
              ASSERT_EQ(answered, want) << compute << " " << scale << " " << a << " " << b << " " << c << " " << d;
              ASSERT_EQ(count, expected ? 1 : 0);
              ++(expected ? taken : refused);
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(taken, static_cast<int64_t>(offered.size()));
  EXPECT_GT(refused, 600000);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(LtTypesTest, Heuristics_BelieveThePreferenceAboutAlignment) {
  for (const char* name : {"bf16", "int8 int32", "e4m3 bf16"}) {
    const Spec spec{types_named(name)};
    LtCall call(spec);
    ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
    for (const uint32_t alignment : {2u, 4u, 8u, 16u, 256u}) {
      for (const auto attribute :
           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
        cublasLtMatmulPreferenceOpaque_t preference;
        ASSERT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
        ASSERT_EQ(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &alignment, sizeof alignment),
                  CUBLAS_STATUS_SUCCESS);
        cublasLtMatmulHeuristicResult_t result;
        int count = -1;
        const uint32_t needed = is_fp8(spec.types.a) ? 16 : spec.types.a == CUDA_R_8I ? 4 : 0;
        EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_, &call.desc, &call.a_layout, &call.b_layout, &call.c_layout,
                                                 &call.d_layout, &preference, 1, &result, &count),
                  alignment >= needed ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED)
            << name << " " << alignment;
      }
    }
  }
}

// Not among those enumerated: programs ask for it by its number (NVIDIA's LtDgemmPresetAlgo).
TEST_F(LtTypesTest, Algorithms_Fp64SplitKInPlaceByNumber) {
  constexpr int kId = 10;
  cublasLtMatmulAlgo_t algo;
  ASSERT_EQ(cublasLtMatmulAlgoInit(handle_, CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F,
                                   CUDA_R_64F, kId, &algo),
            CUBLAS_STATUS_SUCCESS);
  const auto set = [&algo](cublasLtMatmulAlgoConfigAttributes_t attribute, uint32_t value) {
    ASSERT_EQ(cublasLtMatmulAlgoConfigSetAttribute(&algo, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  };
  set(CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_MATMUL_TILE_16x16);
  set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 256);
  set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_REDUCTION_SCHEME_INPLACE);
  LtCall call(Spec{types_named("fp64")});
  call.algo = &algo;
  ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
  const LtCall::Verdict verdict = call.verdict();
  EXPECT_GT(verdict.compared, 0);
  EXPECT_EQ(verdict.beyond, 0) << verdict.first;

  // Parts that are kept in the compute type or in D's are another scheme's.
  set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  EXPECT_EQ(call(handle_, stream_), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(LtTypesTest, Algorithms_CapabilitiesOfEachTuple) {
  for (const Types& types : kTypes) {
    int ids[4];
    int count = 0;
    ASSERT_EQ(cublasLtMatmulAlgoGetIds(handle_, types.compute, types.scale, types.a, types.b, types.c, types.d, 4, ids,
                                       &count),
              CUBLAS_STATUS_SUCCESS)
        << types.name;
    cublasLtMatmulAlgo_t algo;
    ASSERT_EQ(
        cublasLtMatmulAlgoInit(handle_, types.compute, types.scale, types.a, types.b, types.c, types.d, ids[0], &algo),
        CUBLAS_STATUS_SUCCESS);
    const auto word = [&](cublasLtMatmulAlgoCapAttributes_t attribute) {
      uint32_t value = 0;
      size_t written = 0;
      EXPECT_EQ(cublasLtMatmulAlgoCapGetAttribute(&algo, attribute, &value, sizeof value, &written),
                CUBLAS_STATUS_SUCCESS);
      return value;
    };
    const uint32_t epilogues = word(CUBLASLT_ALGO_CAP_EPILOGUE_MASK);
    EXPECT_EQ((epilogues & CUBLASLT_EPILOGUE_BIAS) != 0, types.a != CUDA_R_8I) << types.name;
    EXPECT_EQ((epilogues & CUBLASLT_EPILOGUE_BGRADB) != 0,
              types.a != CUDA_R_8I && types.a != CUDA_R_64F && !is_fp8(types.a));
    EXPECT_EQ((word(CUBLASLT_ALGO_CAP_POINTER_MODE_MASK) & CUBLASLT_POINTER_MODE_MASK_DEVICE_VECTOR) != 0,
              types.scale == CUDA_R_32F);
    EXPECT_EQ(word(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES),
              is_fp8(types.a) ? 16u : static_cast<uint32_t>(types.a == CUDA_R_8I ? 4 : fields_of(types.a).bytes));
    EXPECT_EQ(word(CUBLASLT_ALGO_CAP_POINTER_ARRAY_BATCH_SUPPORT), 1u);
    uint64_t flags = 0;
    size_t written = 0;
    EXPECT_EQ(cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags, sizeof flags,
                                                &written),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ((flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_IMMA) != 0, types.a == CUDA_R_8I) << types.name;
    EXPECT_EQ((flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32) != 0, types.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
  }
}

// ---- devices and faults: settings that are read once, so each in a process of its own

class LtTypesDeathTest : public LtTypesTest {
 protected:
  LtTypesDeathTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  // The bytes of D after the call; empty: refused.
  static std::vector<unsigned char> result_of(const Spec& spec) {
    cublasLtHandle_t handle = nullptr;
    cudaStream_t stream = nullptr;
    if (cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS || cudaStreamCreate(&stream) != cudaSuccess) _exit(9);
    LtCall run(spec);
    if (run(handle, stream) != CUBLAS_STATUS_SUCCESS) return {};
    return run.d->bytes();
  }
  void SetUp() override {}  // the child must set its environment first
  void TearDown() override {}
};

TEST_F(LtTypesDeathTest, Orders_OfferWhatTheirDeviceHas) {
  struct Device {
    const char* order;
    bool bf16, fp8, fp8_only_tn, vectors;
  };
  for (const Device& device : {Device{"v100", false, false, true, false}, Device{"a100", true, false, true, false},
                               Device{"ada", true, true, true, false}, Device{"h100", true, true, true, true},
                               Device{"b200", true, true, false, true}}) {
    EXPECT_EXIT(
        {
          setenv("HOSTCUDA_ORDER", device.order, 1);
          const auto offered = [](const Spec& spec) { return !result_of(spec).empty(); };
          bool right =
              offered({types_named("fp16")}) && offered({types_named("fp64")}) && offered({types_named("int8 int32")});
          right &= offered({types_named("bf16")}) == device.bf16;
          right &= offered({types_named("e4m3 bf16")}) == device.fp8;
          Spec other{types_named("e4m3 bf16")};
          other.transpose_a = false;
          right &= offered(other) == (device.fp8 && !device.fp8_only_tn);
          Spec vectors{types_named("e4m3 bf16")};
          vectors.a_scale = vectors.b_scale = vectors.vectors = true;
          right &= offered(vectors) == (device.fp8 && device.vectors);
          // Without TF32 the fast compute type is plain FP32.
          const bool same = result_of({types_named("tf32")}) == result_of({types_named("fp32")});
          right &= offered({types_named("tf32")}) && same == !device.bf16;
          _exit(right ? 0 : 1);
        },
        testing::ExitedWithCode(0), "")
        << device.order;
  }
}

TEST_F(LtTypesDeathTest, Faults_ShowInDAndInTheLogOfEachType) {
  for (const Types& types : kTypes) {
    const sdcguard::InheritedFile log("HOSTCUDA_FAULT_LOG");
    EXPECT_EXIT(
        {
          setenv("HOSTCUDA_FAULTS", "[[fault]]\nkind = \"output\"\nproducts = 1\nrow = 2\ncol = 3", 1);
          Spec spec{types};
          if (types.d == CUDA_R_8I) spec.alpha = 0x1p-10L;  // else D saturates with and without the fault
          const std::vector<unsigned char> clean = result_of(spec);
          const std::vector<unsigned char> faulty = result_of(spec);
          int64_t wrong = 0;
          for (size_t i = 0; i < clean.size(); i += static_cast<size_t>(fields_of(types.d).bytes)) {
            wrong += std::memcmp(&clean[i], &faulty[i], static_cast<size_t>(fields_of(types.d).bytes)) != 0 ? 1 : 0;
          }
          std::ifstream stream(log.path());
          std::string line;
          int64_t lines = 0;
          bool named = true;
          while (std::getline(stream, line)) {
            ++lines;
            named &= line.find("\"row\":2,\"col\":3") != std::string::npos &&
                     line.find("\"effect\":true") != std::string::npos;
          }
          _exit(!clean.empty() && wrong == 1 && lines == 1 && named ? 0 : 1);
        },
        testing::ExitedWithCode(0), "")
        << types.name;
  }
}

}  // namespace

// SPDX-License-Identifier: MIT
// cublasLtMatmul over planar complex matrices: against long double, by the error analysis of lt_reference.h; what is
// refused.
#include <array>
#include <complex>
#include <functional>
#include <memory>

#include "tests/hostcuda/lt_reference.h"

namespace {

using namespace lt_reference;
using Complex = std::complex<Real>;

struct Spec {
  cudaDataType part_in = CUDA_R_16F, part_out = CUDA_R_16F;  // of A and B; of C and D
  int64_t m = 21, n = 13, k = 37;
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  bool row_major = false;
  int64_t batch = 1;
  Complex alpha{1, 0}, beta{0, 0};
  bool scalars_on_device = false;
  bool imaginary_first = false;
};

cudaDataType complex_of(cudaDataType part) {
  return part == CUDA_R_16F ? CUDA_C_16F : part == CUDA_R_16BF ? CUDA_C_16BF : CUDA_C_32F;
}

// One matrix: two planes in one buffer, with a gap between all lines, entries and planes.
struct Planes {
  Planes(const Spec& spec, cudaDataType type, int64_t rows, int64_t cols, std::mt19937* engine)
      : shape{rows, cols, (spec.row_major ? cols : rows) + 3, spec.row_major, spec.batch, 0} {
    shape.stride = shape.ld * (spec.row_major ? rows : cols) + 5;
    const int64_t plane = shape.stride * spec.batch + 7;
    buffer = std::make_unique<Buffer>(type, 2 * plane);
    first = {spec.imaginary_first ? plane : 0, spec.imaginary_first ? 0 : plane};
    std::normal_distribution<double> normal;
    for (const int64_t begin : first) {
      for (int64_t e = 0; e < spec.batch; ++e) {
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) {
            buffer->set(begin + shape.at(e, i, j), rounded(type, static_cast<Real>(normal(*engine))));
          }
        }
      }
    }
    buffer->upload();
    const int64_t bytes = fields_of(type).bytes;
    EXPECT_EQ(cublasLtMatrixLayoutInit(&layout, complex_of(type), static_cast<uint64_t>(rows),
                                       static_cast<uint64_t>(cols), shape.ld),
              CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{spec.row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL});
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(spec.batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, shape.stride);
    set(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, (first[1] - first[0]) * bytes);
  }
  template <typename Value>
  void set(cublasLtMatrixLayoutAttribute_t attribute, Value value) {
    EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }
  void* address() const { return static_cast<char*>(buffer->device()) + first[0] * fields_of(buffer->type()).bytes; }
  Complex at(int64_t e, int64_t i, int64_t j) const {
    return {buffer->get(first[0] + shape.at(e, i, j)), buffer->get(first[1] + shape.at(e, i, j))};
  }

  Shape shape;
  std::unique_ptr<Buffer> buffer;
  std::array<int64_t, 2> first;  // of the real and of the imaginary part
  cublasLtMatrixLayoutOpaque_t layout;
};

struct Call {
  explicit Call(const Spec& spec) : s(spec) {
    std::mt19937 engine(5);
    const auto make = [&](cudaDataType type, bool turned, int64_t rows, int64_t cols) {
      return std::make_unique<Planes>(s, type, turned ? cols : rows, turned ? rows : cols, &engine);
    };
    a = make(s.part_in, s.op_a != CUBLAS_OP_N, s.m, s.k);
    b = make(s.part_in, s.op_b != CUBLAS_OP_N, s.k, s.n);
    c = make(s.part_out, false, s.m, s.n);
    d = make(s.part_out, false, s.m, s.n);
    EXPECT_EQ(cublasLtMatmulDescInit(&desc, CUBLAS_COMPUTE_32F, CUDA_C_32F), CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{s.op_a});
    set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{s.op_b});
    if (s.scalars_on_device) set(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{CUBLASLT_POINTER_MODE_DEVICE});
  }
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(&desc, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }
  cublasStatus_t operator()(cublasLtHandle_t handle) {
    Buffer scalars(CUDA_R_32F, 4);
    const Real values[] = {s.alpha.real(), s.alpha.imag(), s.beta.real(), s.beta.imag()};
    for (int64_t i = 0; i < 4; ++i) scalars.set(i, values[i]);
    scalars.upload();
    const std::vector<unsigned char> host = scalars.bytes();
    const char* alpha =
        s.scalars_on_device ? static_cast<const char*>(scalars.device()) : reinterpret_cast<const char*>(host.data());
    before = d->buffer->bytes();
    const cublasStatus_t status =
        cublasLtMatmul(handle, &desc, alpha, a->address(), &a->layout, b->address(), &b->layout, alpha + 8,
                       c->address(), &c->layout, d->address(), &d->layout, nullptr, nullptr, 0, nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    d->buffer->download();
    return status;
  }
  Complex op(const Planes& x, cublasOperation_t operation, int64_t e, int64_t i, int64_t j) const {
    if (operation == CUBLAS_OP_N) return x.at(e, i, j);
    const Complex value = x.at(e, j, i);
    return operation == CUBLAS_OP_C ? std::conj(value) : value;
  }

  // Each part is a sum of 2 k products, S the sum of their magnitudes; alpha and beta: at most 6 roundings of the
  // terms.
  std::string wrong() const {
    constexpr Real u = 0x1p-24L;
    const Types types{"", CUBLAS_COMPUTE_32F, CUDA_R_32F, s.part_in, s.part_in, s.part_out, s.part_out, s.part_out};
    std::vector<bool> mine(static_cast<size_t>(d->buffer->count()));
    for (int64_t e = 0; e < s.batch; ++e) {
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) {
          Complex sum{};
          Real re = 0;  // magnitudes
          Real im = 0;
          for (int64_t l = 0; l < s.k; ++l) {
            const Complex x = op(*a, s.op_a, e, i, l);
            const Complex y = op(*b, s.op_b, e, l, j);
            sum += x * y;
            re += std::fabs(x.real() * y.real()) + std::fabs(x.imag() * y.imag());
            im += std::fabs(x.real() * y.imag()) + std::fabs(x.imag() * y.real());
          }
          const Complex old = c->at(e, i, j);
          const Complex want = s.alpha * sum + (s.beta == Complex{} ? Complex{} : s.beta * old);
          const Real factor = std::fabs(s.alpha.real()) + std::fabs(s.alpha.imag());
          const Real added =
              (std::fabs(s.beta.real()) + std::fabs(s.beta.imag())) * (std::fabs(old.real()) + std::fabs(old.imag()));
          const Real magnitude = std::max(re, im);
          const Real error = factor * sum_error(types, 2 * s.k, magnitude) + 6 * u * (factor * magnitude + added);
          for (size_t part = 0; part < 2; ++part) {
            const int64_t at = d->first[part] + d->shape.at(e, i, j);
            mine[static_cast<size_t>(at)] = true;
            const Interval bounds = stored(s.part_out, part == 0 ? want.real() : want.imag(), error);
            if (bounds.contains(d->buffer->get(at))) continue;
            return "(" + std::to_string(e) + "; " + std::to_string(i) + ", " + std::to_string(j) + ") part " +
                   std::to_string(part) + ": got " + std::to_string(d->buffer->get(at)) + ", want " +
                   std::to_string(bounds.low) + " to " + std::to_string(bounds.high);
          }
        }
      }
    }
    const std::vector<unsigned char> after = d->buffer->bytes();
    const size_t bytes = after.size() / mine.size();
    for (size_t i = 0; i < mine.size(); ++i) {
      if (!mine[i] && std::memcmp(&before[i * bytes], &after[i * bytes], bytes) != 0) return "a gap was written";
    }
    return "";
  }

  Spec s;
  std::unique_ptr<Planes> a, b, c, d;
  cublasLtMatmulDescOpaque_t desc;
  std::vector<unsigned char> before;
};

class LtPlanar : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS); }
  void TearDown() override { EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS); }

  void expect_right(const Spec& spec) {
    Call call(spec);
    ASSERT_EQ(call(handle_), CUBLAS_STATUS_SUCCESS) << spec.op_a << " " << spec.op_b << " " << spec.part_out;
    EXPECT_EQ(call.wrong(), "") << spec.op_a << " " << spec.op_b << " " << spec.part_out;
  }

  cublasLtHandle_t handle_ = nullptr;
};

TEST_F(LtPlanar, TypesOperationsAndScalars) {
  for (const auto& [in, out] : {std::pair{CUDA_R_16F, CUDA_R_16F}, std::pair{CUDA_R_16F, CUDA_R_32F},
                                std::pair{CUDA_R_16BF, CUDA_R_16BF}, std::pair{CUDA_R_16BF, CUDA_R_32F}}) {
    for (const auto op_a : {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C}) {
      for (const auto op_b : {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C}) {
        Spec spec{.part_in = in, .part_out = out, .op_a = op_a, .op_b = op_b};
        expect_right(spec);
        spec.alpha = {0.5L, -2};
        spec.beta = {-1, 0.75L};
        spec.scalars_on_device = op_a == CUBLAS_OP_T;
        spec.imaginary_first = op_b == CUBLAS_OP_T;
        expect_right(spec);
      }
    }
  }
}

TEST_F(LtPlanar, RowsBatchesAndEmptySums) {
  expect_right({.op_a = CUBLAS_OP_C, .row_major = true, .beta = {0, 1}});
  expect_right({.batch = 3, .alpha = {0, 1}, .beta = {1, 0}});
  expect_right({.alpha = {0, 0}, .beta = {2, 1}});
}

TEST_F(LtPlanar, RefusedArguments) {
  const auto status = [&](const std::function<void(Call&)>& bend, const Spec& spec = {}) {
    Call call(spec);
    bend(call);
    return call(handle_);
  };
  EXPECT_EQ(status([](Call&) {}), CUBLAS_STATUS_SUCCESS);
  for (std::unique_ptr<Planes> Call::*matrix : {&Call::a, &Call::b, &Call::c, &Call::d}) {
    EXPECT_EQ(status([&](Call& call) { (call.*matrix)->set(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, int64_t{0}); }),
              CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(status([&](Call& call) { (call.*matrix)->set(CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_C_16BF}); }),
              CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(status([&](Call& call) { (call.*matrix)->set(CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_R_16F}); }),
              CUBLAS_STATUS_NOT_SUPPORTED);
  }
  EXPECT_EQ(status([](Call&) {}, {.part_in = CUDA_R_32F, .part_out = CUDA_R_32F}), CUBLAS_STATUS_NOT_SUPPORTED);
  const auto desc = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    return status([&](Call& call) { call.set(attribute, value); });
  };
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, int32_t{CUBLAS_COMPUTE_32F_PEDANTIC}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_SCALE_TYPE, int32_t{CUDA_R_32F}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_RELU}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{CUBLASLT_POINTER_MODE_DEVICE_VECTOR}),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{5}), CUBLAS_STATUS_INVALID_VALUE);
  // OP_C with rows in some matrices only.
  EXPECT_EQ(status(
                [](Call& call) {
                  for (Planes* planes : {call.c.get(), call.d.get()}) {
                    planes->set(CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_ROW});
                  }
                },
                {.m = 16, .n = 16, .k = 16, .op_a = CUBLAS_OP_C}),
            CUBLAS_STATUS_NOT_SUPPORTED);
  cublasLtMatmulAlgo_t algo;
  const auto init = [&](cudaDataType a, cudaDataType d) {
    return cublasLtMatmulAlgoInit(handle_, CUBLAS_COMPUTE_32F, CUDA_C_32F, a, a, d, d, 66, &algo);
  };
  EXPECT_EQ(init(CUDA_C_16F, CUDA_C_32F), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(init(CUDA_R_16F, CUDA_C_32F), CUBLAS_STATUS_NOT_SUPPORTED);
}

}  // namespace

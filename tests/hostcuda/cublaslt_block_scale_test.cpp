// SPDX-License-Identifier: MIT
// cublasLtMatmul with scales of blocks: Hopper's 128-element modes, Blackwell's MXFP8 and NVFP4 with scales of D; held
// against the documented formulas in long double; what is refused, and on which device.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "tests/hostcuda/lt_reference.h"

namespace {

using namespace lt_reference;

// Read once, at the first call of the library; the H100's cases run in processes of their own.
const bool on_b200 = setenv("HOSTCUDA_ORDER", "b200", 0) == 0;

constexpr int32_t kScalar = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
constexpr int32_t kVec16 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
constexpr int32_t kVec32 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
constexpr int32_t kVec128 = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
constexpr int32_t kBlock128 = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;

constexpr Real kFp4Values[] = {0, 0.5L, 1, 1.5L, 2, 3, 4, 6};

bool is_fp4(cudaDataType type) {
  return type == CUDA_R_4F_E2M1;
}

// Nearest FP4 value, ties to the even code.
Real rounded_fp4(Real x) {
  size_t best = 0;
  for (size_t code = 1; code < 8; ++code) {
    const Real here = std::fabs(std::fabs(x) - kFp4Values[code]);
    const Real there = std::fabs(std::fabs(x) - kFp4Values[best]);
    if (here < there || (here == there && code % 2 == 0)) best = code;
  }
  return std::copysign(kFp4Values[best], x);
}

Real nearest(cudaDataType type, Real x) {
  return is_fp4(type) ? rounded_fp4(x) : rounded(type, x);
}

// Device memory of bytes, with a copy here.
struct Bytes {
  explicit Bytes(size_t count) : host(count) {
    EXPECT_EQ(cudaMalloc(&device, std::max<size_t>(count, 16)), cudaSuccess);
  }
  ~Bytes() { cudaFree(device); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  void upload() { EXPECT_EQ(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice), cudaSuccess); }
  void download() { EXPECT_EQ(cudaMemcpy(host.data(), device, host.size(), cudaMemcpyDeviceToHost), cudaSuccess); }

  std::vector<unsigned char> host;
  void* device = nullptr;
};

// A column-major matrix without gaps; FP4 packs element 2 i in the low half of byte i.
struct Values : Bytes {
  Values(cudaDataType element, int64_t row_count, int64_t col_count)
      : Bytes(static_cast<size_t>(is_fp4(element) ? row_count * col_count / 2
                                                  : row_count * col_count * fields_of(element).bytes)),
        type(element),
        rows(row_count) {}
  void set(int64_t i, int64_t j, Real x) {
    const auto at = static_cast<size_t>(i + j * rows);
    if (!is_fp4(type)) {
      const uint64_t bits = encode(type, x);
      const auto bytes = static_cast<size_t>(fields_of(type).bytes);
      std::memcpy(&host[at * bytes], &bits, bytes);
      return;
    }
    const auto* found = std::find(std::begin(kFp4Values), std::end(kFp4Values), std::fabs(x));
    const auto code = static_cast<unsigned>(found - std::begin(kFp4Values)) | (std::signbit(x) ? 8u : 0u);
    const unsigned shift = at % 2 == 0 ? 0 : 4;
    host[at / 2] = static_cast<unsigned char>((host[at / 2] & ~(15u << shift)) | code << shift);
  }
  Real get(int64_t i, int64_t j) const {
    const auto at = static_cast<size_t>(i + j * rows);
    if (!is_fp4(type)) {
      uint64_t bits = 0;
      const auto bytes = static_cast<size_t>(fields_of(type).bytes);
      std::memcpy(&bits, &host[at * bytes], bytes);
      return decode(type, bits);
    }
    const unsigned code = host[at / 2] >> (at % 2 == 0 ? 0 : 4) & 15u;
    return (code & 8) != 0 ? -kFp4Values[code & 7] : kFp4Values[code & 7];
  }

  cudaDataType type;
  int64_t rows;
};

int64_t up(int64_t x, int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

// A scale tensor: `outer` lines of `inner` elements.
struct Scales : Bytes {
  Scales(int32_t scale_mode, int64_t outer_count, int64_t inner)
      : Bytes(static_cast<size_t>(bytes_of(scale_mode, outer_count, inner))),
        mode(scale_mode),
        length(scale_mode == kVec16   ? 16
               : scale_mode == kVec32 ? 32
                                      : 128),
        outer(outer_count),
        blocks(up(inner, length) / length) {}

  static int64_t bytes_of(int32_t mode, int64_t outer, int64_t inner) {
    if (mode == kVec128) return 4 * outer * (up(inner, 128) / 128);
    if (mode == kBlock128) return 4 * up(up(inner, 128) / 128, 4) * (up(outer, 128) / 128);
    return up(outer, 128) * up(up(inner, mode == kVec16 ? 16 : 32) / (mode == kVec16 ? 16 : 32), 4);
  }
  // Tiles by the documented way back from an offset to its indices.
  int64_t tiled(int64_t line, int64_t block) const {
    const int64_t tile = line / 128 * (up(blocks, 4) / 4) + block / 4;
    for (int64_t offset = 0; offset < 512; ++offset) {
      if (offset % 16 / 4 * 32 + offset / 16 == line % 128 && offset % 4 == block % 4) return tile * 512 + offset;
    }
    ADD_FAILURE();
    return 0;
  }
  unsigned char& byte(int64_t line, int64_t block) { return host[static_cast<size_t>(tiled(line, block))]; }
  unsigned char byte(int64_t line, int64_t block) const { return host[static_cast<size_t>(tiled(line, block))]; }
  size_t word(int64_t line, int64_t block) const {
    return static_cast<size_t>(4 * (mode == kVec128 ? line + block * outer : block + line / 128 * up(blocks, 4)));
  }
  Real at(int64_t line, int64_t element) const {
    const int64_t block = element / length;
    if (mode == kVec32) return std::ldexp(Real{1}, byte(line, block) - 127);
    if (mode == kVec16) return decode(CUDA_R_8F_E4M3, byte(line, block) & 0x7F);  // the sign bit is ignored
    float value = 0;
    std::memcpy(&value, &host[word(line, block)], 4);
    return value;
  }
  void fill(std::mt19937* engine) {
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (int64_t line = 0; line < outer; ++line) {
      for (int64_t block = 0; block < blocks; ++block) {
        if (mode == kVec32) {
          byte(line, block) = static_cast<unsigned char>(122 + (*engine)() % 11);
        } else if (mode == kVec16) {
          byte(line, block) = static_cast<unsigned char>((0x28 + (*engine)() % 0x20) | ((*engine)() & 0x80));
        } else {
          const float value = uniform(*engine);
          std::memcpy(&host[word(line, block)], &value, 4);
        }
      }
    }
    upload();
  }

  int32_t mode;
  int64_t length, outer, blocks;
};

struct Spec {
  cudaDataType a, b, c, d;
  int32_t a_mode, b_mode;
  int64_t m = 160, n = 48, k = 288;
  Real alpha = 1, beta = 0;
  bool transpose_a = true, transpose_b = false;
  Real d_scale = 0;  // 0: none
};

struct Call {
  explicit Call(const Spec& spec)
      : s(spec),
        a(s.a, s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k),
        b(s.b, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n),
        c(s.c, s.m, s.n),
        d(s.d, s.m, s.n),
        a_scales(s.a_mode, s.m, s.k),
        b_scales(s.b_mode, s.n, s.k),
        d_scales(s.a_mode, s.n, s.m),
        d_scale(4) {
    std::mt19937 engine(7);
    std::normal_distribution<double> normal;
    const auto fill = [&](Values* values, int64_t rows, int64_t cols) {
      for (int64_t j = 0; j < cols; ++j) {
        for (int64_t i = 0; i < rows; ++i) values->set(i, j, nearest(values->type, static_cast<Real>(normal(engine))));
      }
      values->upload();
    };
    fill(&a, a.rows, s.m * s.k / a.rows);
    fill(&b, b.rows, s.n * s.k / b.rows);
    fill(&c, s.m, s.n);
    a_scales.fill(&engine);
    b_scales.fill(&engine);
    const auto value = static_cast<float>(s.d_scale);
    std::memcpy(d_scale.host.data(), &value, 4);
    d_scale.upload();
    d.upload();
    EXPECT_EQ(cublasLtMatmulDescInit(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N});
    set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N});
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, s.a_mode);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, s.b_mode);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a_scales.device);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, b_scales.device);
    if (narrow_d()) {
      set(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE, s.a_mode);
      set(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER, d_scales.device);
    }
    if (s.d_scale != 0) set(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, d_scale.device);
    const auto layout = [](cublasLtMatrixLayoutOpaque_t* made, cudaDataType type, int64_t rows, int64_t cols) {
      EXPECT_EQ(cublasLtMatrixLayoutInit(made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), rows),
                CUBLAS_STATUS_SUCCESS);
    };
    layout(&a_layout, s.a, a.rows, s.m * s.k / a.rows);
    layout(&b_layout, s.b, b.rows, s.n * s.k / b.rows);
    layout(&c_layout, s.c, s.m, s.n);
    layout(&d_layout, s.d, s.m, s.n);
  }
  bool narrow_d() const { return is_fp8(s.d) || is_fp4(s.d); }
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(&desc, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }
  cublasStatus_t operator()(cublasLtHandle_t handle) {
    const auto alpha = static_cast<float>(s.alpha);
    const auto beta = static_cast<float>(s.beta);
    const cublasStatus_t status =
        cublasLtMatmul(handle, &desc, &alpha, a.device, &a_layout, b.device, &b_layout, &beta, c.device, &c_layout,
                       d.device, &d_layout, nullptr, nullptr, 0, nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    d.download();
    d_scales.download();
    return status;
  }

  // How far a sum of magnitude S may lie from the exact one. H100: lt_reference.h. B200: in a block of 32 each of 33
  // terms is cut below 2^-25 of the largest; blocks of FP4 are exact; every block adds a rounding of FP32, its sum
  // another.
  Real error_of(Real S, bool h100) const {
    const auto parts = static_cast<Real>(a_scales.blocks);
    if (h100) return sum_error({"", CUBLAS_COMPUTE_32F, CUDA_R_32F, s.a, s.b, s.c, s.d, s.d}, s.k, S);
    return 1.01L * ((is_fp4(s.a) ? 0 : 33 * 0x1p-25L) + (parts + 1) * 0x1p-24L) * S;
  }

  // Empty, or the first value that is wrong.
  std::string wrong(bool h100) const {
    constexpr Real u = 0x1p-24L;
    const auto told = [](const char* what, int64_t i, int64_t j, Real got, Real low, Real high) {
      return std::string(what) + " (" + std::to_string(i) + ", " + std::to_string(j) + "): got " + std::to_string(got) +
             ", want " + std::to_string(low) + " to " + std::to_string(high);
    };
    // Rows of op(A) and columns of op(B), times their scales: exact.
    std::vector<Real> rows;
    std::vector<Real> cols;
    for (int64_t i = 0; i < s.m; ++i) {
      Real scale = 0;
      for (int64_t l = 0; l < s.k; ++l) {
        if (l % a_scales.length == 0) scale = a_scales.at(i, l);
        rows.push_back(scale * (s.transpose_a ? a.get(l, i) : a.get(i, l)));
      }
    }
    for (int64_t j = 0; j < s.n; ++j) {
      Real scale = 0;
      for (int64_t l = 0; l < s.k; ++l) {
        if (l % b_scales.length == 0) scale = b_scales.at(j, l);
        cols.push_back(scale * (s.transpose_b ? b.get(j, l) : b.get(l, j)));
      }
    }
    for (int64_t j = 0; j < s.n; ++j) {
      std::vector<Real> x(static_cast<size_t>(s.m));
      std::vector<Real> error(static_cast<size_t>(s.m));
      for (int64_t i = 0; i < s.m; ++i) {
        Real sum = 0;
        Real magnitude = 0;
        for (int64_t l = 0; l < s.k; ++l) {
          const Real term = rows[static_cast<size_t>(i * s.k + l)] * cols[static_cast<size_t>(j * s.k + l)];
          sum += term;
          magnitude += std::fabs(term);
        }
        const Real added = s.beta != 0 ? s.beta * c.get(i, j) : 0;
        const Real factor = s.d_scale != 0 ? s.d_scale : 1;
        const auto row = static_cast<size_t>(i);
        x[row] = factor * (s.alpha * sum + added);
        error[row] = factor * (std::fabs(s.alpha) * error_of(magnitude, h100) +
                               5 * u * (std::fabs(s.alpha) * magnitude + std::fabs(added)));
      }
      for (int64_t i = 0; i < s.m; ++i) {
        const auto row = static_cast<size_t>(i);
        const Real got = d.get(i, j);
        Real low = x[row] - error[row];
        Real high = x[row] + error[row];
        if (narrow_d()) {
          const Real scale = d_scales.at(j, i);
          // Reciprocal and product: a rounding each, none where the scale is a power of two.
          const Real rounding = s.a_mode == kVec16 ? 2.01L * u : 0;
          low = (low - rounding * std::fabs(low)) / scale;
          high = (high + rounding * std::fabs(high)) / scale;
        }
        low = nearest(s.d, low);
        high = nearest(s.d, high);
        if (!(got >= low && got <= high)) return told("D", i, j, got, low, high);
      }
      for (int64_t block = 0; narrow_d() && block < d_scales.blocks; ++block) {
        Real least = 0;
        Real most = 0;
        for (int64_t i = block * d_scales.length; i < std::min(s.m, (block + 1) * d_scales.length); ++i) {
          const auto row = static_cast<size_t>(i);
          least = std::max(least, std::fabs(x[row]) - error[row]);
          most = std::max(most, std::fabs(x[row]) + error[row]);
        }
        const Real largest = is_fp4(s.d) ? 6 : largest_of(s.d);
        const auto code = [&](Real wanted) {
          return s.a_mode == kVec32 ? std::ceil(std::log2(wanted)) + 127
                                    : static_cast<Real>(encode(CUDA_R_8F_E4M3, rounded(CUDA_R_8F_E4M3, wanted)));
        };
        const Real low = code(least / largest * (1 - u));
        const Real high = code(most / largest * (1 + u));
        const Real got = d_scales.byte(j, block);
        if (!(got >= low && got <= high)) return told("scale of D", block, j, got, low, high);
      }
    }
    return "";
  }

  Spec s;
  Values a, b, c, d;
  Scales a_scales, b_scales, d_scales;
  Bytes d_scale;
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a_layout, b_layout, c_layout, d_layout;
};

constexpr auto F = CUDA_R_32F;
constexpr auto H = CUDA_R_16F;
constexpr auto B = CUDA_R_16BF;
constexpr auto E4 = CUDA_R_8F_E4M3;
constexpr auto E5 = CUDA_R_8F_E5M2;
constexpr auto E2 = CUDA_R_4F_E2M1;

class LtBlocks : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(on_b200);
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
  }
  void TearDown() override { EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS); }

  void expect_right(const Spec& spec) {
    Call call(spec);
    ASSERT_EQ(call(handle_), CUBLAS_STATUS_SUCCESS) << spec.a << " " << spec.b << " " << spec.d;
    EXPECT_EQ(call.wrong(false), "") << spec.a << " " << spec.b << " " << spec.d;
  }

  cublasLtHandle_t handle_ = nullptr;
};

TEST_F(LtBlocks, Mxfp8_EveryTypeOfD) {
  expect_right({E4, E4, F, F, kVec32, kVec32});
  expect_right({.a = E4, .b = E5, .c = B, .d = B, .a_mode = kVec32, .b_mode = kVec32, .alpha = -0.5L, .beta = 2});
  expect_right({.a = E5, .b = E4, .c = H, .d = H, .a_mode = kVec32, .b_mode = kVec32, .m = 16, .n = 144, .k = 48});
  expect_right({.a = E4, .b = E4, .c = B, .d = E4, .a_mode = kVec32, .b_mode = kVec32, .alpha = 2, .beta = 1});
  // A partial block of D's rows.
  expect_right({.a = E5, .b = E4, .c = H, .d = E5, .a_mode = kVec32, .b_mode = kVec32, .m = 144, .n = 16, .beta = -1});
}

// The layout of the scales does not follow the transposition.
TEST_F(LtBlocks, Mxfp8_EveryTransposition) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      Spec spec{E4, E4, B, E4, kVec32, kVec32};
      spec.transpose_a = transpose_a;
      spec.transpose_b = transpose_b;
      expect_right(spec);
    }
  }
}

TEST_F(LtBlocks, Nvfp4_EveryTypeOfD) {
  expect_right({E2, E2, F, F, kVec16, kVec16});
  expect_right({.a = E2, .b = E2, .c = B, .d = B, .a_mode = kVec16, .b_mode = kVec16, .alpha = -0.5L, .beta = 2});
  expect_right({.a = E2, .b = E2, .c = H, .d = H, .a_mode = kVec16, .b_mode = kVec16, .m = 32, .n = 160, .k = 96});
  expect_right({.a = E2, .b = E2, .c = B, .d = E2, .a_mode = kVec16, .b_mode = kVec16, .alpha = 2, .beta = 1});
  expect_right({.a = E2, .b = E2, .c = H, .d = E2, .a_mode = kVec16, .b_mode = kVec16, .beta = 1, .d_scale = 0.25L});
}

// Without products and C, D's blocks are zeros: the least UE8M0, and 0 in UE4M3.
TEST_F(LtBlocks, ScalesOfZeros) {
  Call mx({.a = E4, .b = E4, .c = B, .d = E4, .a_mode = kVec32, .b_mode = kVec32, .alpha = 0});
  ASSERT_EQ(mx(handle_), CUBLAS_STATUS_SUCCESS);
  Call nv({.a = E2, .b = E2, .c = B, .d = E2, .a_mode = kVec16, .b_mode = kVec16, .alpha = 0});
  ASSERT_EQ(nv(handle_), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(mx.d_scales.byte(3, 1), 0);
  EXPECT_EQ(nv.d_scales.byte(3, 1), 0);
  EXPECT_EQ(mx.d.get(40, 3), 0);
  EXPECT_EQ(nv.d.get(20, 3), 0);
}

TEST_F(LtBlocks, RefusedArguments) {
  const auto status = [&](const Spec& spec, const std::function<void(Call&)>& bend) {
    Call call(spec);
    bend(call);
    return call(handle_);
  };
  const Spec mx{E4, E4, B, E4, kVec32, kVec32};
  const Spec nv{E2, E2, B, E2, kVec16, kVec16};
  const auto desc = [&](const Spec& spec, cublasLtMatmulDescAttributes_t attribute, auto value) {
    return status(spec, [&](Call& call) { call.set(attribute, value); });
  };
  void* const none = nullptr;
  for (const Spec& spec : {mx, nv}) {
    EXPECT_EQ(desc(spec, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, none), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(desc(spec, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, none), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(desc(spec, CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER, none), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(desc(spec, CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE, kScalar), CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(desc(spec, CUBLASLT_MATMUL_DESC_D_SCALE_MODE, spec.a_mode), CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(desc(spec, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kScalar), CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(desc(spec, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t{9}), CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(status(spec,
                     [](Call& call) {
                       call.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<char*>(call.a_scales.device) + 4);
                     }),
              CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_EQ(status(spec, [](Call& call) { call.set(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, call.d_scale.device); }),
              CUBLAS_STATUS_INVALID_VALUE);
    const uint32_t gelu = CUBLASLT_EPILOGUE_GELU_AUX;
    EXPECT_EQ(status(spec,
                     [&](Call& call) {
                       call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, gelu);
                       call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.d.device);
                       call.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.s.m);
                     }),
              CUBLAS_STATUS_NOT_SUPPORTED);
  }
  Spec scaled = mx;
  scaled.d_scale = 2;
  EXPECT_EQ(status(scaled, [](Call&) {}), CUBLAS_STATUS_INVALID_VALUE) << "scale of D, UE8M0";
  Spec wide = mx;
  wide.d = B;
  EXPECT_EQ(desc(wide, CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE, kVec32), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(wide, [](Call& call) { call.set(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER, call.d_scales.device); }),
            CUBLAS_STATUS_INVALID_VALUE);
  // Modes of the other type, and those of Hopper.
  EXPECT_EQ(status({E4, E4, F, F, kVec16, kVec16}, [](Call&) {}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status({E2, E2, F, F, kVec32, kVec32}, [](Call&) {}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status({E4, E4, F, F, kVec128, kVec128}, [](Call&) {}), CUBLAS_STATUS_NOT_SUPPORTED);
  // FP4: A transposed, B not, 32 elements a line.
  Spec other = nv;
  other.transpose_a = false;
  EXPECT_EQ(status(other, [](Call&) {}), CUBLAS_STATUS_NOT_SUPPORTED);
  other = nv;
  other.k = 272;
  EXPECT_EQ(status(other, [](Call&) {}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status({E2, E2, F, F, kVec16, kVec16},
                   [](Call& call) {
                     const int32_t batch = 2;
                     for (auto* layout : {&call.a_layout, &call.b_layout, &call.c_layout, &call.d_layout}) {
                       cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, 4);
                       const int64_t stride = 1 << 20;
                       cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                        8);
                     }
                   }),
            CUBLAS_STATUS_NOT_SUPPORTED);
}

// ---- other devices: settings that are read once, so each in a process of its own

// What is wrong with the call on a device; "refused" where it is NOT_SUPPORTED.
std::string result_on(const char* order, const Spec& spec) {
  setenv("HOSTCUDA_ORDER", order, 1);
  cublasLtHandle_t handle = nullptr;
  if (cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS) return "no handle";
  Call call(spec);
  const cublasStatus_t status = call(handle);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return "refused";
  return status == CUBLAS_STATUS_SUCCESS ? call.wrong(true) : "status " + std::to_string(status);
}

#define EXPECT_RESULT_ON(order, spec, wanted)                                 \
  EXPECT_EXIT(                                                                \
      {                                                                       \
        const std::string result = result_on(order, spec);                    \
        if (result != (wanted)) std::fprintf(stderr, "%s\n", result.c_str()); \
        _exit(result == (wanted) ? 0 : 1);                                    \
      },                                                                      \
      testing::ExitedWithCode(0), "")                                         \
      << (order)

TEST(LtBlocksDeathTest, Hopper_VectorsAndSquaresOf128) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const auto& [a_mode, b_mode] :
       {std::pair{kVec128, kVec128}, std::pair{kVec128, kBlock128}, std::pair{kBlock128, kVec128}}) {
    const Spec spec{.a = E4, .b = E4, .c = B, .d = B, .a_mode = a_mode, .b_mode = b_mode, .k = 656, .beta = 1};
    EXPECT_RESULT_ON("h100", spec, "");
    Spec mixed = spec;
    mixed.a = E5;
    mixed.c = mixed.d = F;
    mixed.alpha = -0.5L;
    EXPECT_RESULT_ON("h100", mixed, "");
  }
  const Spec squares{E4, E4, B, B, kBlock128, kBlock128};
  EXPECT_RESULT_ON("h100", squares, "refused");
  const Spec odd{.a = E4, .b = E4, .c = F, .d = F, .a_mode = kVec128, .b_mode = kVec128, .n = 50};
  EXPECT_RESULT_ON("h100", odd, "refused");
}

TEST(LtBlocksDeathTest, Devices_OfferTheirOwnModes) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Spec hopper{E4, E4, B, B, kVec128, kVec128};
  const Spec mx{E4, E4, B, B, kVec32, kVec32};
  const Spec nv{E2, E2, B, B, kVec16, kVec16};
  for (const char* order : {"ada", "b200"}) EXPECT_RESULT_ON(order, hopper, "refused");
  for (const char* order : {"ada", "h100"}) {
    EXPECT_RESULT_ON(order, mx, "refused");
    EXPECT_RESULT_ON(order, nv, "refused");
  }
}

}  // namespace

// SPDX-License-Identifier: MIT
// The normal form of a call against brute force over the caller's own formula, what must be refused, the site's hash,
// and the binary interface against the real headers.
#include "shim/gemm_call.h"

#include <cublasLt.h>
#include <cublasXt.h>
#include <cublas_v2.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <tuple>
#include <vector>

// The stage itself: a shim is a shared library without exports, so its sources are built into the test.
#include "shim/gemm_call.cpp"
#include "shim/gemm_types.cpp"
#include "shim/upgrade.cpp"

namespace sdcguard {
namespace {

// ---- the interface, held against the real headers ------------------------------------------------------------

static_assert(abi::kSuccess == CUBLAS_STATUS_SUCCESS && abi::kNotInitialized == CUBLAS_STATUS_NOT_INITIALIZED &&
              abi::kInvalidValue == CUBLAS_STATUS_INVALID_VALUE && abi::kArchMismatch == CUBLAS_STATUS_ARCH_MISMATCH &&
              abi::kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(abi::kOpN == CUBLAS_OP_N && abi::kOpT == CUBLAS_OP_T && abi::kOpC == CUBLAS_OP_C);
static_assert(abi::kPointerHost == CUBLASLT_POINTER_MODE_HOST && abi::kPointerDevice == CUBLASLT_POINTER_MODE_DEVICE);
static_assert(abi::kPointerDeviceVector == CUBLASLT_POINTER_MODE_DEVICE_VECTOR &&
              abi::kPointerAlphaVectorBetaZero == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO &&
              abi::kPointerAlphaVectorBetaHost == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST);
static_assert(abi::kPointerHost == static_cast<int>(CUBLAS_POINTER_MODE_HOST) &&
              abi::kPointerDevice == static_cast<int>(CUBLAS_POINTER_MODE_DEVICE));
static_assert(abi::kDefaultMath == CUBLAS_DEFAULT_MATH && abi::kPedanticMath == CUBLAS_PEDANTIC_MATH &&
              abi::kTf32Math == CUBLAS_TF32_TENSOR_OP_MATH && abi::kTensorOpMath == 1 &&
              abi::kFp32EmulatedMath == CUBLAS_FP32_EMULATED_BF16X9_MATH &&
              abi::kFp64EmulatedMath == CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH &&
              abi::kMathDisallowReducedReduction == CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
static_assert(abi::kR32F == CUDA_R_32F && abi::kR64F == CUDA_R_64F && abi::kR16F == CUDA_R_16F &&
              abi::kR16BF == CUDA_R_16BF && abi::kR8I == CUDA_R_8I && abi::kR32I == CUDA_R_32I &&
              abi::kR8FE4M3 == CUDA_R_8F_E4M3 && abi::kR8FE5M2 == CUDA_R_8F_E5M2);
static_assert(abi::kCompute16F == CUBLAS_COMPUTE_16F && abi::kCompute16FPedantic == CUBLAS_COMPUTE_16F_PEDANTIC &&
              abi::kCompute32F == CUBLAS_COMPUTE_32F && abi::kCompute32FPedantic == CUBLAS_COMPUTE_32F_PEDANTIC &&
              abi::kCompute32FFast16F == CUBLAS_COMPUTE_32F_FAST_16F &&
              abi::kCompute32FFast16BF == CUBLAS_COMPUTE_32F_FAST_16BF &&
              abi::kCompute32FFastTf32 == CUBLAS_COMPUTE_32F_FAST_TF32 && abi::kCompute64F == CUBLAS_COMPUTE_64F &&
              abi::kCompute64FPedantic == CUBLAS_COMPUTE_64F_PEDANTIC && abi::kCompute32I == CUBLAS_COMPUTE_32I &&
              abi::kCompute32IPedantic == CUBLAS_COMPUTE_32I_PEDANTIC &&
              abi::kCompute64FEmulated == CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT);
static_assert(abi::kGemmDefault == CUBLAS_GEMM_DEFAULT && kGemmAutotune == CUBLAS_GEMM_AUTOTUNE);
static_assert(abi::kDescComputeType == CUBLASLT_MATMUL_DESC_COMPUTE_TYPE &&
              abi::kDescScaleType == CUBLASLT_MATMUL_DESC_SCALE_TYPE &&
              abi::kDescPointerMode == CUBLASLT_MATMUL_DESC_POINTER_MODE &&
              abi::kDescTransA == CUBLASLT_MATMUL_DESC_TRANSA && abi::kDescTransB == CUBLASLT_MATMUL_DESC_TRANSB &&
              abi::kDescEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              abi::kDescBiasPointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER &&
              abi::kDescBiasBatchStride == CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE &&
              abi::kDescAuxPointer == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER &&
              abi::kDescAuxLd == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD &&
              abi::kDescAuxBatchStride == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE &&
              abi::kDescAlphaVectorBatchStride == CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE &&
              abi::kDescSmCountTarget == CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET &&
              abi::kDescAuxDataType == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE &&
              abi::kDescFastAccum == CUBLASLT_MATMUL_DESC_FAST_ACCUM &&
              abi::kDescBiasDataType == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE &&
              abi::kDescAScalePointer == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER &&
              abi::kDescBScalePointer == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER &&
              abi::kDescCScalePointer == CUBLASLT_MATMUL_DESC_C_SCALE_POINTER &&
              abi::kDescDScalePointer == CUBLASLT_MATMUL_DESC_D_SCALE_POINTER &&
              abi::kDescAmaxDPointer == CUBLASLT_MATMUL_DESC_AMAX_D_POINTER &&
              abi::kDescAScaleMode == CUBLASLT_MATMUL_DESC_A_SCALE_MODE &&
              abi::kDescBScaleMode == CUBLASLT_MATMUL_DESC_B_SCALE_MODE &&
              abi::kDescCScaleMode == CUBLASLT_MATMUL_DESC_C_SCALE_MODE &&
              abi::kDescDScaleMode == CUBLASLT_MATMUL_DESC_D_SCALE_MODE &&
              abi::kDescAuxScaleMode == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_MODE &&
              abi::kDescDOutScaleMode == CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE &&
              abi::kScaleScalar == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
              abi::kScaleOuterVector == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
static_assert(abi::kBatchStrided == CUBLASLT_BATCH_MODE_STRIDED &&
              abi::kBatchPointerArray == CUBLASLT_BATCH_MODE_POINTER_ARRAY && abi::kLtEpilogueAux == 128 &&
              CUBLASLT_EPILOGUE_RELU_AUX == (CUBLASLT_EPILOGUE_RELU | 128));
static_assert(abi::kLayoutType == CUBLASLT_MATRIX_LAYOUT_TYPE && abi::kLayoutOrder == CUBLASLT_MATRIX_LAYOUT_ORDER &&
              abi::kLayoutRows == CUBLASLT_MATRIX_LAYOUT_ROWS && abi::kLayoutCols == CUBLASLT_MATRIX_LAYOUT_COLS &&
              abi::kLayoutLd == CUBLASLT_MATRIX_LAYOUT_LD &&
              abi::kLayoutBatchCount == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT &&
              abi::kLayoutBatchStride == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET &&
              abi::kLayoutPlaneOffset == CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET &&
              abi::kLayoutBatchMode == CUBLASLT_MATRIX_LAYOUT_BATCH_MODE);
static_assert(abi::kOrderCol == CUBLASLT_ORDER_COL && abi::kOrderRow == CUBLASLT_ORDER_ROW);
static_assert(abi::kLtEpilogueDefault == CUBLASLT_EPILOGUE_DEFAULT && abi::kLtEpilogueRelu == CUBLASLT_EPILOGUE_RELU &&
              abi::kLtEpilogueBias == CUBLASLT_EPILOGUE_BIAS && abi::kLtEpilogueGelu == CUBLASLT_EPILOGUE_GELU);
static_assert(abi::kPreferenceMaxWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              abi::kPreferenceMinAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
              abi::kPreferenceMinAlignmentB == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES &&
              abi::kPreferenceMinAlignmentC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES &&
              abi::kPreferenceMinAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
static_assert(sizeof(abi::LtDesc) == sizeof(cublasLtMatmulDescOpaque_t) &&
              sizeof(abi::LtLayout) == sizeof(cublasLtMatrixLayoutOpaque_t) &&
              sizeof(abi::LtAlgo) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(abi::LtPreference) == sizeof(cublasLtMatmulPreferenceOpaque_t) &&
              sizeof(abi::LtHeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(abi::LtHeuristicResult, workspace_bytes) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(abi::LtHeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

// Each entry's parameters against the header's, with enums taken as int and handles, descriptors and scalars as
// pointers: the same registers in the same order.
template <class T>
struct Plain {
  using Type = std::conditional_t<std::is_enum_v<T>, int, std::conditional_t<std::is_pointer_v<T>, void*, T>>;
};
template <class Function>
struct PlainFunction;
template <class R, class... A>
struct PlainFunction<R(A...)> {
  using Type = typename Plain<R>::Type(typename Plain<A>::Type...);
};
template <class X, class Y>
constexpr bool kSameCall = std::is_same_v<typename PlainFunction<X>::Type, typename PlainFunction<Y>::Type>;

template <Entry E>
using Declared = std::remove_pointer_t<typename Signature<E>::Function>;
// The C++ overload of cublasGemmEx that takes cudaDataType cannot be told apart by name alone.
using GemmExC = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                               const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                               cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
static_assert(std::is_same_v<decltype(static_cast<GemmExC*>(&cublasGemmEx)), GemmExC*>);
using GemmStridedC = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                                    const void*, cudaDataType, int, long long, const void*, cudaDataType, int,
                                    long long, const void*, void*, cudaDataType, int, long long, int,
                                    cublasComputeType_t, cublasGemmAlgo_t);
static_assert(std::is_same_v<decltype(static_cast<GemmStridedC*>(&cublasGemmStridedBatchedEx)), GemmStridedC*>);
using GemmBatchedC = cublasStatus_t(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                                    const void* const*, cudaDataType, int, const void* const*, cudaDataType, int,
                                    const void*, void* const*, cudaDataType, int, int, cublasComputeType_t,
                                    cublasGemmAlgo_t);
static_assert(std::is_same_v<decltype(static_cast<GemmBatchedC*>(&cublasGemmBatchedEx)), GemmBatchedC*>);
extern GemmExC one_gemm_ex;
extern GemmStridedC one_gemm_strided_batched_ex;
extern GemmBatchedC one_gemm_batched_ex;
#define cublasGemmEx one_gemm_ex
#define cublasGemmStridedBatchedEx one_gemm_strided_batched_ex
#define cublasGemmBatchedEx one_gemm_batched_ex
#define SDCGUARD_AS_IN_HEADER(index, kind, form, symbol, ...) \
  static_assert(kSameCall<Declared<Entry::index>, decltype(symbol)>, #index);
#define SDCGUARD_ENTRY(...) SDCGUARD_AS_IN_HEADER(__VA_ARGS__)
#include "shim/entry_points.def"
#undef SDCGUARD_ENTRY
#undef SDCGUARD_AS_IN_HEADER
#undef cublasGemmEx
#undef cublasGemmStridedBatchedEx
#undef cublasGemmBatchedEx

TEST(Entry, NameTellsTheElement) {
  EXPECT_EQ(element_of(Entry::kSgemm64), DataType::kF32);
  EXPECT_EQ(element_of(Entry::kDgemmGroupedBatched), DataType::kF64);
  EXPECT_EQ(element_of(Entry::kHgemmStridedBatched), DataType::kF16);
  EXPECT_EQ(element_of(Entry::kTSTgemvBatched), DataType::kBF16);
  EXPECT_EQ(element_of(Entry::kXtDgemm), DataType::kF64);
  EXPECT_EQ(element_of(Entry::kZgemm3m), DataType::kOther);
  EXPECT_TRUE(is_complex(Entry::kXtZtrsm));
  EXPECT_FALSE(is_complex(Entry::kCreate));
  EXPECT_EQ(static_cast<int>(Entry::kLtDestroy), 12);  // on the wire since the first release
}

// ---- a library made for the test -----------------------------------------------------------------------------

struct FakeHandle {
  int pointer_mode = abi::kPointerHost;
  int math_mode = abi::kDefaultMath;
};

int fake_get_stream(void*, void** stream) {
  *stream = reinterpret_cast<void*>(0x51);
  return 0;
}
int fake_get_pointer_mode(void* handle, int* mode) {
  *mode = static_cast<FakeHandle*>(handle)->pointer_mode;
  return 0;
}
int fake_get_math_mode(void* handle, int* mode) {
  *mode = static_cast<FakeHandle*>(handle)->math_mode;
  return 0;
}

// Attribute sizes of cublasLt 13.1, and one attribute of a release to come (45).
constexpr int kFutureAttribute = 45;
size_t desc_attribute_bytes(int id) {
  if (id == kFutureAttribute) return 4;
  if (id < 0 || id == 9 || (id >= 27 && id <= 30) || id > 38) return 0;
  if (id == 25) return 1;
  const bool is_eight =
      id == 8 || (id >= 10 && id <= 14) || (id >= 17 && id <= 21) || id == 23 || id == 24 || id == 36 || id == 38;
  return is_eight ? 8 : 4;
}
size_t layout_attribute_bytes(int id) {
  if (id < 0 || id > 8) return 0;
  return id <= 1 || id == 5 || id == 8 ? 4 : 8;
}
// Each attribute of the fake descriptors has a place of its own.
uint8_t* place_in_desc(void* desc, int id) {
  int offset = 8 * id;
  if (id == 24) offset = 192;
  if (id == 25) offset = 200;
  if (id == 26) offset = 204;
  if (id >= 31 && id <= 35) offset = 208 + 4 * (id - 31);
  if (id == 36) offset = 232;
  if (id == 37) offset = 228;
  if (id == 38) offset = 240;
  if (id == kFutureAttribute) offset = 248;
  return static_cast<uint8_t*>(desc) + offset;
}
uint8_t* place_in_layout(void* layout, int id) {
  constexpr int kOffsets[] = {0, 4, 8, 16, 24, 32, 40, 48, 36};
  return static_cast<uint8_t*>(layout) + (id >= 0 && id <= 8 ? kOffsets[id] : 0);
}

int get_attribute(uint8_t* place, size_t size, void* value, size_t bytes, size_t* written) {
  if (size == 0) return abi::kInvalidValue;
  if (written != nullptr) *written = size;
  if (value == nullptr) return 0;
  if (bytes != size) return abi::kInvalidValue;
  memcpy(value, place, size);
  return 0;
}
int fake_desc_get(const void* desc, int id, void* value, size_t bytes, size_t* written) {
  return get_attribute(place_in_desc(const_cast<void*>(desc), id), desc_attribute_bytes(id), value, bytes, written);
}
int fake_desc_set(void* desc, int id, const void* value, size_t bytes) {
  if (desc_attribute_bytes(id) != bytes) return abi::kInvalidValue;
  memcpy(place_in_desc(desc, id), value, bytes);
  return 0;
}
int fake_layout_get(const void* layout, int id, void* value, size_t bytes, size_t* written) {
  return get_attribute(place_in_layout(const_cast<void*>(layout), id), layout_attribute_bytes(id), value, bytes,
                       written);
}
int fake_layout_set(void* layout, int id, const void* value, size_t bytes) {
  if (layout_attribute_bytes(id) != bytes) return abi::kInvalidValue;
  memcpy(place_in_layout(layout, id), value, bytes);
  return 0;
}
int fake_desc_init(void* desc, size_t bytes, int compute, int scale) {
  memset(desc, 0, bytes);
  const int32_t none = -1;
  const uint32_t epilogue = 1;
  fake_desc_set(desc, abi::kDescComputeType, &compute, 4);
  fake_desc_set(desc, abi::kDescScaleType, &scale, 4);
  fake_desc_set(desc, abi::kDescEpilogue, &epilogue, 4);
  fake_desc_set(desc, abi::kDescBiasDataType, &none, 4);
  return 0;
}
int fake_layout_init(void* layout, size_t bytes, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  memset(layout, 0, bytes);
  const int32_t one = 1;
  fake_layout_set(layout, abi::kLayoutType, &type, 4);
  fake_layout_set(layout, abi::kLayoutRows, &rows, 8);
  fake_layout_set(layout, abi::kLayoutCols, &cols, 8);
  fake_layout_set(layout, abi::kLayoutLd, &ld, 8);
  fake_layout_set(layout, abi::kLayoutBatchCount, &one, 4);
  return 0;
}

const Library& fake_library() {
  static Library library = {};
  library.get_stream = fake_get_stream;
  library.get_pointer_mode = fake_get_pointer_mode;
  library.get_math_mode = fake_get_math_mode;
  library.desc_get = fake_desc_get;
  library.desc_set = fake_desc_set;
  library.desc_init = fake_desc_init;
  library.layout_get = fake_layout_get;
  library.layout_set = fake_layout_set;
  library.layout_init = fake_layout_init;
  return library;
}

// As long as any scalar: some tests read them as FP64.
constexpr float kTwo[2] = {2.0f};
constexpr float kNone[2] = {0.0f};
constexpr float kOneHalf[2] = {0.5f};

struct Matrix {
  std::vector<float> data;
  int64_t ld = 0;
  int64_t stride = 0;
};

// A call that can be checked, to be spoiled by one change at a time. FP32 throughout, so that a plain loop can run it.
struct Gemm {
  FakeHandle handle;
  int64_t m = 5, n = 7, k = 3, batch = 2;
  bool trans_a = false, trans_b = false;
  Matrix a, b, c;
  GemmCall call{};

  Gemm(bool ta, bool tb, int64_t batch_count) : batch(batch_count), trans_a(ta), trans_b(tb) {
    a.ld = (ta ? k : m) + 2;
    b.ld = (tb ? n : k) + 1;
    c.ld = m + 3;
    a.stride = a.ld * (ta ? m : k) + 1;
    b.stride = b.ld * (tb ? k : n) + 5;
    c.stride = c.ld * n + 2;
    float value = 1;
    for (Matrix* matrix : {&a, &b, &c}) {
      matrix->data.resize(static_cast<size_t>(matrix->stride * batch));
      for (float& entry : matrix->data) entry = value = value < 97 ? value + 1 : 1;
    }
    call.entry = Entry::kGemmStridedBatchedEx;
    call.library = &fake_library();
    CallArguments& x = call.arguments;
    x.handle = &handle;
    x.transa = ta ? abi::kOpT : abi::kOpN;
    x.transb = tb ? abi::kOpC : abi::kOpN;
    x.m = m, x.n = n, x.k = k, x.batch = batch;
    x.alpha = &kTwo, x.beta = &kNone;
    x.a = a.data.data(), x.type_a = abi::kR32F, x.lda = a.ld, x.stride_a = a.stride;
    x.b = b.data.data(), x.type_b = abi::kR32F, x.ldb = b.ld, x.stride_b = b.stride;
    x.c = c.data.data(), x.type_c = abi::kR32F, x.ldc = c.ld, x.stride_c = c.stride;
    x.compute = abi::kCompute32F, x.algo = abi::kGemmDefault;
  }
};

float& at(const MatrixView& view, int64_t r, int64_t c, int64_t b) {
  return reinterpret_cast<float*>(view.address)[r * view.row_stride + c * view.col_stride + b * view.batch_stride];
}

// D = A B by the normal form's views.
void multiply_by_views(const GemmCall& call) {
  for (int64_t b = 0; b < call.batch; ++b) {
    for (int64_t i = 0; i < rows_of_p(call); ++i) {
      for (int64_t j = 0; j < columns_of_p(call); ++j) {
        float sum = 0;
        for (int64_t l = 0; l < inner_of_p(call); ++l) sum += at(call.a, i, l, b) * at(call.b, l, j, b);
        at(call.d, i, j, b) = sum;
      }
    }
  }
}

TEST(GemmCall_NormalForm, EveryTransposeAndBatchOfTheCublasFamily) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const int64_t batch : {1, 2, 3}) {
        Gemm gemm(ta, tb, batch);
        std::vector<float> expected = gemm.c.data;
        for (int64_t e = 0; e < batch; ++e) {
          for (int64_t i = 0; i < gemm.m; ++i) {
            for (int64_t j = 0; j < gemm.n; ++j) {
              float sum = 0;
              for (int64_t l = 0; l < gemm.k; ++l) {
                const float x = gemm.a.data[e * gemm.a.stride + (ta ? l + i * gemm.a.ld : i + l * gemm.a.ld)];
                const float y = gemm.b.data[e * gemm.b.stride + (tb ? j + l * gemm.b.ld : l + j * gemm.b.ld)];
                sum += x * y;
              }
              expected[e * gemm.c.stride + i + j * gemm.c.ld] = sum;
            }
          }
        }
        normalize(gemm.call);
        ASSERT_EQ(gemm.call.blocked, Reason::kNone);
        EXPECT_EQ(gemm.call.d.col_stride, 1);
        multiply_by_views(gemm.call);
        EXPECT_EQ(gemm.c.data, expected) << ta << tb << batch;
        EXPECT_EQ(gemm.call.alpha, 2.0f);
        EXPECT_FALSE(gemm.call.reads_c);
        EXPECT_TRUE(gemm.call.c_is_d);
        EXPECT_EQ(flops(gemm.call), 2u * 5 * 7 * 3 * static_cast<uint64_t>(batch));
      }
    }
  }
}

TEST(GemmCall_NormalForm, BroadcastOperandsKeepStrideZero) {
  Gemm gemm(false, false, 3);
  gemm.call.arguments.stride_a = 0;
  gemm.call.arguments.stride_b = 0;
  normalize(gemm.call);
  EXPECT_EQ(gemm.call.blocked, Reason::kNone);
  EXPECT_EQ(gemm.call.a.batch_stride, 0);
  EXPECT_EQ(gemm.call.b.batch_stride, 0);
}

// ---- cublasLt ----------------------------------------------------------------------------------------------------

// One cublasLtMatmul; every order and transpose, buffers sized to fit.
struct LtGemm {
  int64_t m = 5, n = 7, k = 3;
  int32_t batch;
  abi::LtDesc desc{};
  abi::LtLayout layouts[4]{};  // A B C D
  Matrix matrices[4];
  int64_t rows[4], cols[4];
  bool row_order[4];
  int32_t trans[2];
  GemmCall call{};

  LtGemm(bool ta, bool tb, bool order_a, bool order_b, bool order_d, int32_t batch_count) : batch(batch_count) {
    trans[0] = ta ? abi::kOpT : abi::kOpN;
    trans[1] = tb ? abi::kOpT : abi::kOpN;
    const int64_t all_rows[4] = {ta ? k : m, tb ? n : k, m, m};
    const int64_t all_cols[4] = {ta ? m : k, tb ? k : n, n, n};
    const bool orders[4] = {order_a, order_b, order_d, order_d};
    fake_desc_init(&desc, sizeof(desc), abi::kCompute32F, abi::kR32F);
    fake_desc_set(&desc, abi::kDescTransA, &trans[0], 4);
    fake_desc_set(&desc, abi::kDescTransB, &trans[1], 4);
    float value = 1;
    for (int i = 0; i < 4; ++i) {
      rows[i] = all_rows[i], cols[i] = all_cols[i], row_order[i] = orders[i];
      Matrix& matrix = matrices[i];
      matrix.ld = (orders[i] ? cols[i] : rows[i]) + i + 1;
      matrix.stride = matrix.ld * (orders[i] ? rows[i] : cols[i]) + 3;
      matrix.data.resize(static_cast<size_t>(matrix.stride * batch));
      for (float& entry : matrix.data) entry = value = value < 89 ? value + 1 : 1;
      fake_layout_init(&layouts[i], sizeof(layouts[i]), abi::kR32F, static_cast<uint64_t>(rows[i]),
                       static_cast<uint64_t>(cols[i]), matrix.ld);
      const int32_t order = orders[i] ? abi::kOrderRow : abi::kOrderCol;
      fake_layout_set(&layouts[i], abi::kLayoutOrder, &order, 4);
      fake_layout_set(&layouts[i], abi::kLayoutBatchCount, &batch, 4);
      fake_layout_set(&layouts[i], abi::kLayoutBatchStride, &matrix.stride, 8);
    }
    call.entry = Entry::kLtMatmul;
    call.library = &fake_library();
    CallArguments& x = call.arguments;
    x.desc = &desc, x.alpha = &kTwo, x.beta = &kNone;
    x.a = matrices[0].data.data(), x.a_desc = &layouts[0];
    x.b = matrices[1].data.data(), x.b_desc = &layouts[1];
    x.c = matrices[2].data.data(), x.c_desc = &layouts[2];
    x.d = matrices[3].data.data(), x.d_desc = &layouts[3];
    x.stream = reinterpret_cast<void*>(0x77);
  }

  size_t index(int matrix, int64_t r, int64_t c, int64_t b) const {
    const Matrix& x = matrices[matrix];
    return static_cast<size_t>(b * x.stride + (row_order[matrix] ? r * x.ld + c : r + c * x.ld));
  }
  template <class T>
  void set_desc(int id, T value) {
    ASSERT_EQ(fake_desc_set(&desc, id, &value, sizeof(value)), 0);
  }
  template <class T>
  void set_layout(int matrix, int id, T value) {
    ASSERT_EQ(fake_layout_set(&layouts[matrix], id, &value, sizeof(value)), 0);
  }
  Reason reason() {
    normalize(call);
    return call.blocked;
  }
};

TEST(GemmCall_NormalForm, EveryOrderTransposeAndBatchOfLt) {
  for (int bits = 0; bits < 32; ++bits) {
    for (const int32_t batch : {1, 3}) {
      LtGemm gemm((bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0, batch);
      std::vector<float> expected = gemm.matrices[3].data;
      for (int64_t e = 0; e < batch; ++e) {
        for (int64_t i = 0; i < gemm.m; ++i) {
          for (int64_t j = 0; j < gemm.n; ++j) {
            float sum = 0;
            for (int64_t l = 0; l < gemm.k; ++l) {
              const bool ta = gemm.trans[0] == abi::kOpT;
              const bool tb = gemm.trans[1] == abi::kOpT;
              sum += gemm.matrices[0].data[gemm.index(0, ta ? l : i, ta ? i : l, e)] *
                     gemm.matrices[1].data[gemm.index(1, tb ? j : l, tb ? l : j, e)];
            }
            expected[gemm.index(3, i, j, e)] = sum;
          }
        }
      }
      ASSERT_EQ(gemm.reason(), Reason::kNone) << bits;
      EXPECT_EQ(gemm.call.d.col_stride, 1) << bits;
      EXPECT_EQ(gemm.call.row_order, (bits & 16) != 0);
      EXPECT_EQ(gemm.call.stream, reinterpret_cast<void*>(0x77));
      multiply_by_views(gemm.call);
      EXPECT_EQ(gemm.matrices[3].data, expected) << bits << " batch " << batch;
    }
  }
}

TEST(GemmCall_NormalForm, LtBiasRunsAlongTheRowsOfD) {
  LtGemm gemm(true, false, false, false, false, 2);
  gemm.set_desc(abi::kDescEpilogue, uint32_t{CUBLASLT_EPILOGUE_GELU_BIAS});
  gemm.set_desc(abi::kDescBiasPointer, uint64_t{0x1000});
  gemm.set_desc(abi::kDescBiasBatchStride, int64_t{8});
  ASSERT_EQ(gemm.reason(), Reason::kNone);
  EXPECT_EQ(gemm.call.epilogue, kEpilogueBias | kEpilogueGelu);
  EXPECT_EQ(gemm.call.bias_address, 0x1000u);
  EXPECT_EQ(gemm.call.bias_type, DataType::kF32);  // -1: D's
  EXPECT_EQ(gemm.call.bias_batch_stride, 8);
  gemm.set_desc(abi::kDescBiasDataType, int32_t{abi::kR16BF});
  ASSERT_EQ(gemm.reason(), Reason::kNone);
  EXPECT_EQ(gemm.call.bias_type, DataType::kBF16);
}

TEST(GemmCall_NormalForm, DeviceScalarsAreNeverReadByTheHost) {
  Gemm gemm(false, false, 1);
  gemm.handle.pointer_mode = abi::kPointerDevice;
  gemm.call.arguments.alpha = reinterpret_cast<void*>(0x10);  // would fault
  gemm.call.arguments.beta = reinterpret_cast<void*>(0x20);
  normalize(gemm.call);
  EXPECT_EQ(gemm.call.blocked, Reason::kNone);
  EXPECT_TRUE(gemm.call.scalars_on_device);
  EXPECT_EQ(gemm.call.alpha_address, 0x10u);
  EXPECT_EQ(gemm.call.beta_address, 0x20u);
  EXPECT_TRUE(gemm.call.reads_c);
  LtGemm lt(false, false, false, false, false, 1);
  lt.set_desc(abi::kDescPointerMode, int32_t{abi::kPointerDevice});
  lt.call.arguments.alpha = reinterpret_cast<void*>(0x10);
  lt.call.arguments.beta = reinterpret_cast<void*>(0x20);
  EXPECT_EQ(lt.reason(), Reason::kNone);
  EXPECT_TRUE(lt.call.scalars_on_device);
}

TEST(GemmCall_NormalForm, UnreadCIsNotLookedAt) {
  LtGemm gemm(false, false, false, false, false, 1);
  gemm.call.arguments.c = nullptr;
  EXPECT_EQ(gemm.reason(), Reason::kNone);
  EXPECT_EQ(gemm.call.c.address, 0u);
  gemm.call.arguments.c = gemm.matrices[0].data.data();  // a dummy of another shape (torch scaled_mm)
  gemm.call.arguments.c_desc = &gemm.layouts[0];
  EXPECT_EQ(gemm.reason(), Reason::kNone);
  EXPECT_FALSE(gemm.call.reads_c);
}

TEST(GemmCall_NormalForm, ScaleOfAnUnreadCIsIgnored) {
  LtGemm gemm(true, false, false, false, false, 1);
  for (const int i : {0, 1}) gemm.set_layout(i, abi::kLayoutType, uint32_t{CUDA_R_8F_E4M3});
  for (const int i : {2, 3}) gemm.set_layout(i, abi::kLayoutType, uint32_t{CUDA_R_16BF});
  gemm.set_desc(abi::kDescCScalePointer, uint64_t{0x40});
  EXPECT_EQ(gemm.reason(), Reason::kNone);
  EXPECT_EQ(gemm.call.scale_c, 0u);
  gemm.call.arguments.beta = &kOneHalf;
  EXPECT_EQ(gemm.reason(), Reason::kUnsupportedAttribute);
}

// ---- what is refused, and why -----------------------------------------------------------------------------------

TEST(GemmCall_Blocked, ReasonsOfTheCublasFamily) {
  auto reason_of = [](auto change) {
    Gemm gemm(false, true, 2);
    change(gemm);
    normalize(gemm.call);
    return gemm.call.blocked;
  };
  EXPECT_EQ(reason_of([](Gemm&) {}), Reason::kNone);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.k = 0; }), Reason::kEmpty);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.m = 0; }), Reason::kEmpty);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.batch = 0; }), Reason::kEmpty);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.alpha = &kNone; }), Reason::kEmpty);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.compute = abi::kCompute16F; }), Reason::kUnsupportedType);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.compute = CUBLAS_COMPUTE_64F; }), Reason::kUnsupportedType);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.compute = CUBLAS_COMPUTE_32F_EMULATED_16BFX9; }),
            Reason::kUnsupportedCompute);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.type_a = CUDA_R_8I; }), Reason::kUnsupportedType);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.type_c = CUDA_R_16BF; }), Reason::kUnsupportedType);
  EXPECT_EQ(reason_of([](Gemm& g) { g.handle.math_mode = 4; }), Reason::kUnsupportedCompute);
  EXPECT_EQ(reason_of([](Gemm& g) { g.handle.math_mode = abi::kMathDisallowReducedReduction; }), Reason::kNone);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.stride_c = g.c.ld * g.n - g.c.ld; }), Reason::kOverlappingOutput);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.stride_c = 0; }), Reason::kOverlappingOutput);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.a = g.call.arguments.c; }), Reason::kInplace);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.lda = 1; }), Reason::kProductFailed);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.n = -1; }), Reason::kProductFailed);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.b = nullptr; }), Reason::kProductFailed);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.alpha = nullptr; }), Reason::kProductFailed);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.transa = 3; }), Reason::kProductFailed);
  EXPECT_EQ(reason_of([](Gemm& g) { g.call.arguments.ldc = INT64_MAX / 2; }), Reason::kProductFailed);
}

TEST(GemmCall_Blocked, InterleavedBatchesDoNotOverlap) {
  // Heads of one tensor: batch entry b begins m elements further, the pitch spans all heads.
  Gemm gemm(false, false, 2);
  gemm.call.arguments.ldc = gemm.m * 2;
  gemm.call.arguments.stride_c = gemm.m;
  normalize(gemm.call);
  EXPECT_EQ(gemm.call.blocked, Reason::kNone);
  gemm.call.arguments.stride_c = gemm.m - 1;
  normalize(gemm.call);
  EXPECT_EQ(gemm.call.blocked, Reason::kOverlappingOutput);
}

TEST(GemmCall_Blocked, ReasonsOfLt) {
  auto reason_of = [](auto change) {
    LtGemm gemm(false, true, false, false, false, 2);
    change(gemm);
    return gemm.reason();
  };
  EXPECT_EQ(reason_of([](LtGemm&) {}), Reason::kNone);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(abi::kDescEpilogue, uint32_t{CUBLASLT_EPILOGUE_GELU_AUX}); }),
            Reason::kUnsupportedEpilogue);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(abi::kDescEpilogue, uint32_t{CUBLASLT_EPILOGUE_BGRADB}); }),
            Reason::kUnsupportedEpilogue);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(abi::kDescEpilogue, uint32_t{CUBLASLT_EPILOGUE_BIAS}); }),
            Reason::kUnsupportedEpilogue);  // without a bias
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(kFutureAttribute, int32_t{1}); }), Reason::kUnsupportedAttribute);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(CUBLASLT_MATMUL_DESC_TRANSC, int32_t{1}); }),
            Reason::kUnsupportedAttribute);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(CUBLASLT_MATMUL_DESC_FILL_MODE, int32_t{1}); }),
            Reason::kUnsupportedAttribute);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, uint64_t{64}); }),
            Reason::kUnsupportedAttribute);
  for (const int mode : {abi::kDescAScaleMode, abi::kDescBScaleMode, abi::kDescCScaleMode, abi::kDescDScaleMode,
                         abi::kDescAuxScaleMode, abi::kDescDOutScaleMode}) {
    EXPECT_EQ(reason_of([=](LtGemm& g) { g.set_desc(mode, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0}); }),
              Reason::kBlockScale);
  }
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR, uint64_t{64}); }),
            Reason::kUnsupportedAttribute);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, int32_t{32}); }), Reason::kNone);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(abi::kDescPointerMode, int32_t{5}); }), Reason::kUnsupportedAttribute);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_layout(1, abi::kLayoutBatchMode, uint32_t{1}); }),
            Reason::kUnsupportedAttribute);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_layout(0, abi::kLayoutPlaneOffset, int64_t{64}); }),
            Reason::kUnsupportedAttribute);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_layout(0, abi::kLayoutBatchCount, int32_t{1}); }),
            Reason::kUnsupportedAttribute);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_layout(0, abi::kLayoutOrder, int32_t{CUBLASLT_ORDER_COL32}); }),
            Reason::kUnsupportedOrder);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_layout(0, abi::kLayoutType, uint32_t{CUDA_R_8F_E4M3}); }),
            Reason::kUnsupportedType);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(abi::kDescComputeType, uint32_t{CUBLAS_COMPUTE_16F}); }),
            Reason::kUnsupportedType);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_desc(abi::kDescScaleType, uint32_t{CUDA_R_16F}); }),
            Reason::kUnsupportedType);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_layout(3, abi::kLayoutBatchStride, int64_t{1}); }),
            Reason::kOverlappingOutput);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.set_layout(1, abi::kLayoutRows, uint64_t{2}); }), Reason::kProductFailed);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.call.arguments.desc = nullptr; }), Reason::kProductFailed);
  EXPECT_EQ(reason_of([](LtGemm& g) { g.call.arguments.d_desc = nullptr; }), Reason::kProductFailed);
}

TEST(GemmCall_Blocked, RowOrderedBiasHasNoKernel) {
  LtGemm gemm(false, false, true, true, true, 1);
  gemm.set_desc(abi::kDescEpilogue, uint32_t{CUBLASLT_EPILOGUE_BIAS});
  gemm.set_desc(abi::kDescBiasPointer, uint64_t{0x1000});
  EXPECT_EQ(gemm.reason(), Reason::kUnsupportedEpilogue);
}

TEST(GemmCall_Blocked, COnTopOfD) {
  LtGemm gemm(false, false, false, false, false, 1);
  gemm.call.arguments.beta = &kOneHalf;
  EXPECT_EQ(gemm.reason(), Reason::kNone);
  EXPECT_TRUE(gemm.call.reads_c);
  EXPECT_FALSE(gemm.call.c_is_d);
  gemm.call.arguments.c = gemm.call.arguments.d;  // the same address, another pitch
  EXPECT_EQ(gemm.reason(), Reason::kInplace);
  gemm.call.arguments.c_desc = gemm.call.arguments.d_desc;
  EXPECT_EQ(gemm.reason(), Reason::kNone);
  EXPECT_TRUE(gemm.call.c_is_d);
  // shifted by one column: row i of D lies on row i + 1 of C
  gemm.call.arguments.c = gemm.matrices[3].data.data() + gemm.matrices[3].ld;
  EXPECT_EQ(gemm.reason(), Reason::kInplace);
  // column blocks of one buffer: the same pitch, side by side
  std::vector<float> both(2 * 5 * 8);
  gemm.set_layout(2, abi::kLayoutLd, int64_t{10});
  gemm.set_layout(3, abi::kLayoutLd, int64_t{10});
  gemm.call.arguments.c_desc = &gemm.layouts[2];
  gemm.call.arguments.d = both.data();
  gemm.call.arguments.c = both.data() + 5;
  EXPECT_EQ(gemm.reason(), Reason::kNone);
  gemm.call.arguments.c = both.data() + 4;
  EXPECT_EQ(gemm.reason(), Reason::kInplace);
}

TEST(GemmCall_Rounding, Tf32OnlyWhereTheLibraryMayUseIt) {
  Gemm gemm(false, false, 1);
  normalize(gemm.call);
  EXPECT_EQ(gemm.call.rounding, InputRounding::kNone);
  gemm.handle.math_mode = abi::kTf32Math | abi::kMathDisallowReducedReduction;
  normalize(gemm.call);
  EXPECT_EQ(gemm.call.rounding, InputRounding::kTf32);
  gemm.call.arguments.compute = abi::kCompute32FPedantic;
  normalize(gemm.call);
  EXPECT_EQ(gemm.call.rounding, InputRounding::kNone);
  gemm.handle.math_mode = 0;
  gemm.call.arguments.compute = abi::kCompute32FFastTf32;
  normalize(gemm.call);
  EXPECT_EQ(gemm.call.rounding, InputRounding::kTf32);
}

TEST(GemmCall_Normalize, MutatesNothingOfTheCallers) {
  LtGemm gemm(true, false, false, false, false, 2);
  const abi::LtDesc desc = gemm.desc;
  abi::LtLayout layouts[4];
  memcpy(layouts, gemm.layouts, sizeof(layouts));
  const CallArguments arguments = gemm.call.arguments;
  gemm.reason();
  gemm.reason();
  EXPECT_EQ(memcmp(&desc, &gemm.desc, sizeof(desc)), 0);
  EXPECT_EQ(memcmp(layouts, gemm.layouts, sizeof(layouts)), 0);
  EXPECT_EQ(memcmp(&arguments, &gemm.call.arguments, sizeof(arguments)), 0);
}

TEST(GemmCall_HalfScalars, AreWidenedExactly) {
  EXPECT_EQ(float_of_half(0x3c00), 1.0f);
  EXPECT_EQ(float_of_half(0xc000), -2.0f);
  EXPECT_EQ(float_of_half(0x0001), 0x1p-24f);
  EXPECT_EQ(float_of_half(0x03ff), 0x3ffp-24f);
  EXPECT_EQ(float_of_half(0x7bff), 65504.0f);
  EXPECT_TRUE(std::isinf(float_of_half(0x7c00)));
  EXPECT_TRUE(std::isnan(float_of_half(0x7e00)));
}

// ---- FLOPs of calls that are not sampled --------------------------------------------------------------------------

TEST(GemmCall_LtFlops, FollowTheLayoutsWithoutTheDescriptor) {
  for (int round = 0; round < 2; ++round) {  // the second from the thread's memory
    for (const bool ta : {false, true}) {
      LtGemm gemm(ta, false, false, false, false, 3);
      EXPECT_EQ(lt_flops(fake_library(), &gemm.layouts[0], &gemm.layouts[3]), 2u * 5 * 7 * 3 * 3);
    }
  }
  LtGemm gemm(false, false, false, false, false, 3);
  gemm.set_layout(3, abi::kLayoutCols, uint64_t{70});  // one field changes: not the remembered answer
  EXPECT_EQ(lt_flops(fake_library(), &gemm.layouts[0], &gemm.layouts[3]), 2u * 5 * 70 * 3 * 3);
  EXPECT_EQ(lt_flops(fake_library(), nullptr, &gemm.layouts[3]), 0u);
}

// ---- the site -----------------------------------------------------------------------------------------------------

// Pinned: the hash is in records and decides which sites are sampled, on every rank and in every release.
TEST(GemmCall_Site, IsPinned) {
  Gemm gemm(true, false, 2);
  normalize(gemm.call);
  LtGemm lt(true, false, false, false, false, 1);
  lt.reason();
  EXPECT_EQ(site_of(gemm.call), UINT64_C(3516744047252534373));
  EXPECT_EQ(site_of(lt.call), UINT64_C(2278556314507738219));
}

TEST(GemmCall_Site, KnowsShapesAndNotAddressesOrScalars) {
  Gemm gemm(false, false, 2);
  normalize(gemm.call);
  const uint64_t site = site_of(gemm.call);
  std::set<uint64_t> sites = {site};
  Gemm other(false, false, 2);
  other.call.arguments.alpha = &kOneHalf;
  other.call.arguments.beta = &kTwo;
  normalize(other.call);
  EXPECT_EQ(site_of(other.call), site);
  auto differs = [&](auto change) {
    Gemm changed(false, false, 2);
    change(changed);
    normalize(changed.call);
    EXPECT_TRUE(sites.insert(site_of(changed.call)).second);
  };
  differs([](Gemm& g) { g.call.arguments.m -= 1; });
  differs([](Gemm& g) { g.call.arguments.n -= 1; });
  differs([](Gemm& g) { g.call.arguments.k -= 1; });
  differs([](Gemm& g) { g.call.arguments.batch = 1; });
  differs([](Gemm& g) { g.call.arguments.lda += 1; });
  differs([](Gemm& g) { g.call.arguments.ldb += 1; });
  differs([](Gemm& g) { g.call.arguments.ldc += 1; });
  differs([](Gemm& g) { g.call.arguments.stride_a = 0; });
  differs([](Gemm& g) { g.call.entry = Entry::kGemmStridedBatchedEx64; });
  differs([](Gemm& g) { g.call.arguments.compute = abi::kCompute32FPedantic; });
  differs([](Gemm& g) { g.handle.math_mode = abi::kTf32Math; });
  differs([](Gemm& g) { g.call.arguments.type_a = g.call.arguments.type_b = abi::kR16BF; });
}

// ---- upgrade rules ------------------------------------------------------------------------------------------------

TEST(Upgrade_Permitted, OnlyAsTheTypeTableAllows) {
  auto permitted = [](int input, int output, int compute) {
    Gemm gemm(false, false, 1);
    gemm.call.arguments.type_a = gemm.call.arguments.type_b = input;
    gemm.call.arguments.type_c = output;
    gemm.call.arguments.compute = compute;
    normalize(gemm.call);
    return upgrade_permitted(gemm.call);
  };
  EXPECT_TRUE(permitted(abi::kR16BF, abi::kR16BF, abi::kCompute32F));
  EXPECT_TRUE(permitted(abi::kR16F, abi::kR16F, abi::kCompute32FPedantic));
  EXPECT_TRUE(permitted(abi::kR16F, abi::kR32F, abi::kCompute32F));
  EXPECT_TRUE(permitted(abi::kR32F, abi::kR32F, abi::kCompute32FFastTf32));
  EXPECT_FALSE(permitted(abi::kR16F, abi::kR16F, abi::kCompute16F));
  EXPECT_FALSE(permitted(abi::kR16F, abi::kR16BF, abi::kCompute32F));
  EXPECT_FALSE(permitted(abi::kR16BF, abi::kR16BF, abi::kCompute32FFastTf32));
  EXPECT_TRUE(permitted(abi::kR8I, abi::kR32I, abi::kCompute32I));
  EXPECT_FALSE(permitted(abi::kR8I, abi::kR32F, abi::kCompute32F));
  EXPECT_TRUE(permitted(abi::kR64F, abi::kR64F, abi::kCompute64F));
  EXPECT_FALSE(permitted(abi::kR64F, abi::kR64F, abi::kCompute32F));
  EXPECT_TRUE(permitted(abi::kR32F, abi::kR32F, abi::kCompute32FFast16BF));
}

TEST(Upgrade_Refused, IsRememberedForTheSiteAlone) {
  Gemm gemm(false, false, 1);
  normalize(gemm.call);
  const uint64_t site = site_of(gemm.call);
  EXPECT_TRUE(upgrade_permitted(gemm.call, site));
  remember_upgrade_refused(site);
  remember_upgrade_refused(site);
  EXPECT_FALSE(upgrade_permitted(gemm.call, site));
  EXPECT_FALSE(upgrade_refused(site + 1));
}

}  // namespace
}  // namespace sdcguard

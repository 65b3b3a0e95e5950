// SPDX-License-Identifier: MIT
// hostcuda's libcublasLt.so.13 as an ordinary program sees it: real headers, public names, cudart for memory.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <dlfcn.h>

#include <cstdio>
#include <filesystem>
#include <limits>

#include "tests/hostcuda/product_reference.h"

extern "C" int hostcuda_set_not_supported(const char* rules);

namespace {

using reference::Activation;
using reference::constant_numbers;
using reference::DeviceBytes;
using reference::Format;
using reference::Gate;
using reference::kBf16;
using reference::kFp16;
using reference::kFp32;
using reference::Numbers;
using reference::Problem;
using reference::random_numbers;
using reference::Shape;

template <typename Value>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attr, Value value) {
  ASSERT_EQ(cublasLtMatmulDescSetAttribute(desc, attr, &value, sizeof value), CUBLAS_STATUS_SUCCESS) << attr;
}

template <typename Value>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attr, Value value) {
  ASSERT_EQ(cublasLtMatrixLayoutSetAttribute(layout, attr, &value, sizeof value), CUBLAS_STATUS_SUCCESS) << attr;
}

class Layout {
 public:
  Layout(const Format& format, const Shape& shape) {
    EXPECT_EQ(cublasLtMatrixLayoutInit(&opaque_, format.type, static_cast<uint64_t>(shape.rows),
                                       static_cast<uint64_t>(shape.cols), shape.ld),
              CUBLAS_STATUS_SUCCESS);
    set(&opaque_, CUBLASLT_MATRIX_LAYOUT_ORDER, shape.row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL);
    set(&opaque_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(shape.batch));
    set(&opaque_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, shape.stride);
  }
  operator cublasLtMatrixLayout_t() { return &opaque_; }

 private:
  cublasLtMatrixLayoutOpaque_t opaque_;
};

struct Case {
  const char* name;
  Format in, out;
  cublasComputeType_t compute;
  cudaDataType scale;
};

const Case kCases[] = {
    {"bf16", kBf16, kBf16, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {"bf16 to fp32", kBf16, kFp32, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {"fp16", kFp16, kFp16, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {"fp16 to fp32", kFp16, kFp32, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {"fp32", kFp32, kFp32, CUBLAS_COMPUTE_32F, CUDA_R_32F},
    {"fp32 fast tf32", kFp32, kFp32, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F},
    {"fp16 accumulator", kFp16, kFp16, CUBLAS_COMPUTE_16F, CUDA_R_16F},
};

// One call with everything that a test may want to bend before it is made.
struct Call {
  Call(const Case& x, const Problem& problem)
      : a(x.in, problem.a), b(x.in, problem.b), c(x.out, problem.c), d(x.out, problem.d) {
    EXPECT_EQ(cublasLtMatmulDescInit(&desc, x.compute, x.scale), CUBLAS_STATUS_SUCCESS);
    set(&desc, CUBLASLT_MATMUL_DESC_TRANSA, int32_t{problem.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N});
    set(&desc, CUBLASLT_MATMUL_DESC_TRANSB, int32_t{problem.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N});
    if (x.scale == CUDA_R_16F) {
      alpha_bits = reference::encode(kFp16, problem.alpha);
      beta_bits = reference::encode(kFp16, problem.beta);
    } else {
      alpha_bits = reference::bits_of(static_cast<float>(problem.alpha));
      beta_bits = reference::bits_of(static_cast<float>(problem.beta));
    }
  }

  cublasStatus_t operator()(cublasLtHandle_t handle, cudaStream_t stream) {
    return cublasLtMatmul(handle, &desc, alpha ? alpha : &alpha_bits, a_data, a, b_data, b, beta ? beta : &beta_bits,
                          c_data, c, d_data, d, algo, nullptr, 0, stream);
  }

  cublasLtMatmulDescOpaque_t desc;
  Layout a, b, c, d;
  uint32_t alpha_bits, beta_bits;  // little-endian: the low half is the FP16 value
  const void* alpha = nullptr;     // instead of the above
  const void* beta = nullptr;
  const void* a_data = nullptr;
  const void* b_data = nullptr;
  const void* c_data = nullptr;
  void* d_data = nullptr;
  const cublasLtMatmulAlgo_t* algo = nullptr;
};

class LtTest : public testing::Test {
 protected:
  void SetUp() override {
    hostcuda_set_not_supported(nullptr);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    hostcuda_set_not_supported(nullptr);
  }

  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

Problem make_problem(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b, int rows_major,
                     int64_t padding) {
  const auto shape = [&](int64_t rows, int64_t cols, bool row_major) {
    return Shape{rows, cols, (row_major ? cols : rows) + padding, row_major};
  };
  Problem problem;
  problem.transpose_a = transpose_a;
  problem.transpose_b = transpose_b;
  problem.a = shape(transpose_a ? k : m, transpose_a ? m : k, rows_major & 1);
  problem.b = shape(transpose_b ? n : k, transpose_b ? k : n, rows_major & 2);
  problem.c = problem.d = shape(m, n, rows_major & 4);
  return problem;
}

void batch(Problem* problem, int64_t count, int64_t gap) {
  for (Shape* shape : {&problem->a, &problem->b, &problem->c, &problem->d}) {
    shape->batch = count;
    shape->stride = shape->ld * (shape->row_major ? shape->rows : shape->cols) + gap;
  }
}

// ---- descriptors: facts measured on the real 13.1.0 library

struct Attribute {
  int id;
  size_t size;
  uint64_t initial;
};

constexpr uint64_t kMinusOne = 0xffffffffu;
const Attribute kDescAttributes[] = {{0, 4, CUBLAS_COMPUTE_32F},
                                     {1, 4, CUDA_R_32F},
                                     {2, 4, 0},
                                     {3, 4, 0},
                                     {4, 4, 0},
                                     {5, 4, 0},
                                     {6, 4, CUBLAS_FILL_MODE_FULL},
                                     {7, 4, CUBLASLT_EPILOGUE_DEFAULT},
                                     {8, 8, 0},
                                     {10, 8, 0},
                                     {11, 8, 0},
                                     {12, 8, 0},
                                     {13, 8, 0},
                                     {14, 8, 0},
                                     {15, 4, 0},
                                     {16, 4, 0},
                                     {17, 8, 0},
                                     {18, 8, 0},
                                     {19, 8, 0},
                                     {20, 8, 0},
                                     {21, 8, 0},
                                     {22, 4, kMinusOne},
                                     {23, 8, 0},
                                     {24, 8, 0},
                                     {25, 1, 0},
                                     {26, 4, kMinusOne},
                                     {31, 4, 0},
                                     {32, 4, 0},
                                     {33, 4, 0},
                                     {34, 4, 0},
                                     {35, 4, 0},
                                     {36, 8, 0},
                                     {37, 4, 0},
                                     {38, 8, 0}};
const Attribute kLayoutAttributes[] = {{0, 4, CUDA_R_16BF}, {1, 4, 0}, {2, 8, 5}, {3, 8, 6}, {4, 8, 7},
                                       {5, 4, 1},           {6, 8, 0}, {7, 8, 0}, {8, 4, 0}};
const Attribute kPreferenceAttributes[] = {{0, 4, 0},   {1, 8, 0},   {3, 4, 7}, {5, 4, 256},          {6, 4, 256},
                                           {7, 4, 256}, {8, 4, 256}, {9, 4, 0}, {12, 8, ~uint64_t{0}}};

// Every id from -1 to 63, every size from 0 to 16: what set and get say, and what they leave.
template <typename Object, typename Set, typename Get, size_t count>
void expect_attributes(const Attribute (&attributes)[count], Object object, Set set_one, Get get_one) {
  for (int id = -1; id < 64; ++id) {
    SCOPED_TRACE(testing::Message() << "attribute " << id);
    const Attribute* known = nullptr;
    for (const Attribute& attribute : attributes) known = attribute.id == id ? &attribute : known;
    unsigned char value[16] = {};
    size_t written = 99;
    if (!known) {
      EXPECT_EQ(get_one(object, id, nullptr, 0, &written), CUBLAS_STATUS_INVALID_VALUE);
      for (size_t size = 0; size <= 16; ++size) {
        EXPECT_EQ(get_one(object, id, value, size, &written), CUBLAS_STATUS_INVALID_VALUE);
        EXPECT_EQ(set_one(object, id, value, size), CUBLAS_STATUS_INVALID_VALUE);
      }
      continue;
    }
    EXPECT_EQ(get_one(object, id, nullptr, 0, &written), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(written, known->size);
    EXPECT_EQ(get_one(object, id, nullptr, 0, nullptr), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(get_one(object, id, nullptr, known->size, &written), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(set_one(object, id, nullptr, known->size), CUBLAS_STATUS_INVALID_VALUE);
    uint64_t initial = 0;
    EXPECT_EQ(get_one(object, id, &initial, known->size, nullptr), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(initial, known->initial);
    unsigned char fresh[16];
    for (unsigned char& byte : fresh) byte = static_cast<unsigned char>(0x40 + id);
    for (size_t size = 0; size <= 16; ++size) {
      if (size == known->size) continue;
      EXPECT_EQ(set_one(object, id, fresh, size), CUBLAS_STATUS_INVALID_VALUE);
      if (size > 0) {
        EXPECT_EQ(get_one(object, id, value, size, &written), CUBLAS_STATUS_INVALID_VALUE);
      }
    }
    EXPECT_EQ(set_one(object, id, fresh, known->size), CUBLAS_STATUS_SUCCESS);
  }
  for (const Attribute& attribute : attributes) {  // each in its own place: no one overwrote another
    unsigned char value[16] = {};
    size_t written = 0;
    EXPECT_EQ(get_one(object, attribute.id, value, attribute.size, &written), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(written, attribute.size);
    for (size_t i = 0; i < attribute.size; ++i) EXPECT_EQ(value[i], 0x40 + attribute.id) << attribute.id;
    EXPECT_EQ(value[attribute.size], 0) << attribute.id;
  }
}

const auto kSetDesc = [](cublasLtMatmulDesc_t desc, int id, const void* buf, size_t size) {
  return cublasLtMatmulDescSetAttribute(desc, static_cast<cublasLtMatmulDescAttributes_t>(id), buf, size);
};
const auto kGetDesc = [](cublasLtMatmulDesc_t desc, int id, void* buf, size_t size, size_t* written) {
  return cublasLtMatmulDescGetAttribute(desc, static_cast<cublasLtMatmulDescAttributes_t>(id), buf, size, written);
};

TEST(Descriptors, MatmulAttributesHaveTheRealSizesAndDefaults) {
  cublasLtMatmulDesc_t desc = nullptr;
  ASSERT_EQ(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  expect_attributes(kDescAttributes, desc, kSetDesc, kGetDesc);
  EXPECT_EQ(cublasLtMatmulDescDestroy(desc), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulDescCreate(nullptr, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(nullptr, CUBLASLT_MATMUL_DESC_TRANSA, &desc, 4),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST(Descriptors, LayoutAttributesHaveTheRealSizesAndDefaults) {
  cublasLtMatrixLayout_t layout = nullptr;
  ASSERT_EQ(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, 5, 6, 7), CUBLAS_STATUS_SUCCESS);
  expect_attributes(
      kLayoutAttributes, layout,
      [](cublasLtMatrixLayout_t object, int id, const void* buf, size_t size) {
        return cublasLtMatrixLayoutSetAttribute(object, static_cast<cublasLtMatrixLayoutAttribute_t>(id), buf, size);
      },
      [](cublasLtMatrixLayout_t object, int id, void* buf, size_t size, size_t* written) {
        return cublasLtMatrixLayoutGetAttribute(object, static_cast<cublasLtMatrixLayoutAttribute_t>(id), buf, size,
                                                written);
      });
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatrixLayoutCreate(nullptr, CUDA_R_16BF, 5, 6, 7), CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatrixLayoutOpaque_t opaque;
  EXPECT_EQ(cublasLtMatrixLayoutInit_internal(&opaque, 63, CUDA_R_32F, 1, 1, 1), CUBLAS_STATUS_ALLOC_FAILED);
}

TEST(Descriptors, PreferenceAttributesHaveTheRealSizesAndDefaults) {
  cublasLtMatmulPreference_t preference = nullptr;
  ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
  expect_attributes(
      kPreferenceAttributes, preference,
      [](cublasLtMatmulPreference_t object, int id, const void* buf, size_t size) {
        return cublasLtMatmulPreferenceSetAttribute(object, static_cast<cublasLtMatmulPreferenceAttributes_t>(id), buf,
                                                    size);
      },
      [](cublasLtMatmulPreference_t object, int id, void* buf, size_t size, size_t* written) {
        return cublasLtMatmulPreferenceGetAttribute(object, static_cast<cublasLtMatmulPreferenceAttributes_t>(id), buf,
                                                    size, written);
      });
  EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
}

TEST(Descriptors, AByteCopyIsAClone) {
  cublasLtMatmulDesc_t desc = nullptr;
  ASSERT_EQ(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, uint64_t{0x1234567890});
  cublasLtMatmulDescOpaque_t copy;
  std::memcpy(&copy, desc, sizeof copy);
  set(&copy, CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{1});
  EXPECT_EQ(cublasLtMatmulDescDestroy(desc), CUBLAS_STATUS_SUCCESS);
  uint64_t pointer = 0;
  int32_t mode = 0;
  size_t written = 0;
  EXPECT_EQ(cublasLtMatmulDescGetAttribute(&copy, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointer, 8, &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(pointer, 0x1234567890u);
  EXPECT_EQ(cublasLtMatmulDescGetAttribute(&copy, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, 4, &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(mode, 1);
}

// The same calls on the real library, where it is installed; where not, the tables above are what was measured on it.
TEST(Descriptors, TheRealLibraryAgrees) {
  const char* path = "/usr/local/cuda/lib64/libcublasLt.so.13";
  if (!std::filesystem::exists(path)) {
    std::printf("%s is not installed: the committed tables hold\n", path);
    return;
  }
  void* real = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(real, nullptr) << dlerror();
  const auto create = reinterpret_cast<decltype(&cublasLtMatmulDescCreate)>(dlsym(real, "cublasLtMatmulDescCreate"));
  const auto set_one =
      reinterpret_cast<decltype(&cublasLtMatmulDescSetAttribute)>(dlsym(real, "cublasLtMatmulDescSetAttribute"));
  const auto get_one =
      reinterpret_cast<decltype(&cublasLtMatmulDescGetAttribute)>(dlsym(real, "cublasLtMatmulDescGetAttribute"));
  ASSERT_NE(create, &cublasLtMatmulDescCreate);
  cublasLtMatmulDesc_t desc = nullptr;
  ASSERT_EQ(create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  expect_attributes(
      kDescAttributes, desc,
      [&](cublasLtMatmulDesc_t object, int id, const void* buf, size_t size) {
        return set_one(object, static_cast<cublasLtMatmulDescAttributes_t>(id), buf, size);
      },
      [&](cublasLtMatmulDesc_t object, int id, void* buf, size_t size, size_t* written) {
        return get_one(object, static_cast<cublasLtMatmulDescAttributes_t>(id), buf, size, written);
      });
}

TEST(Descriptors, VersionsAndTexts) {
  EXPECT_EQ(cublasLtGetVersion(), size_t{CUBLAS_VERSION});
  EXPECT_EQ(cublasLtGetCudartVersion(), 13000u);
  int value = -1;
  EXPECT_EQ(cublasLtGetProperty(PATCH_LEVEL, &value), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(value, CUBLAS_VER_PATCH);
  EXPECT_EQ(cublasLtGetProperty(static_cast<libraryPropertyType>(3), &value), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_STREQ(cublasLtGetStatusString(CUBLAS_STATUS_INVALID_VALUE),
               "an unsupported value or parameter was passed to the function");
  EXPECT_STREQ(cublasLtGetStatusName(static_cast<cublasStatus_t>(2)), "unrecognized status");
  size_t capacity = 0;
  EXPECT_EQ(cublasLtHeuristicsCacheGetCapacity(&capacity), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(capacity, 8192u);
  EXPECT_EQ(cublasLtLoggerSetLevel(5), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtLoggerSetLevel(6), CUBLAS_STATUS_INVALID_VALUE);
}

// ---- results

struct Buffers {
  Buffers(const Case& x, const Problem& problem, uint32_t seed)
      : a(random_numbers(x.in, problem.a.elems(), seed)),
        b(random_numbers(x.in, problem.b.elems(), seed + 1)),
        c(random_numbers(x.out, problem.c.elems(), seed + 2)),
        d(random_numbers(x.out, problem.d.elems(), seed + 3)),
        a_dev(a),
        b_dev(b),
        c_dev(c),
        d_dev(d) {}
  void give(Call* call) const {
    call->a_data = a_dev.get();
    call->b_data = b_dev.get();
    call->c_data = c_dev.get();
    call->d_data = d_dev.get();
  }
  Numbers a, b, c, d;
  DeviceBytes a_dev, b_dev, c_dev, d_dev;
};

TEST_F(LtTest, Matmul_EveryOrderTransposeAndType) {
  uint32_t seed = 1;
  for (const Case& x : kCases) {
    for (int orders = 0; orders < 8; ++orders) {
      for (int transposes = 0; transposes < 4; ++transposes) {
        SCOPED_TRACE(testing::Message() << x.name << ", row-major " << orders << ", transposes " << transposes);
        Problem problem = make_problem(13, 9, 34, transposes & 1, transposes & 2, orders, 3);
        problem.alpha = 1.5;
        problem.beta = seed % 2 ? -0.5 : 0.0;
        problem.half_accumulator = x.scale == CUDA_R_16F;
        problem.tf32 = x.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
        const Buffers buffers(x, problem, seed);
        Call call(x, problem);
        buffers.give(&call);
        ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
        ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
        EXPECT_PRODUCT(
            reference::compare(problem, buffers.a, buffers.b, buffers.c, buffers.d, buffers.d_dev.patterns(x.out)));
        ++seed;
      }
    }
  }
}

TEST_F(LtTest, Matmul_StridedBatchesWithSharedOperands) {
  uint32_t seed = 500;
  for (const Case& x : kCases) {
    for (int shared = 0; shared < 8; ++shared) {
      SCOPED_TRACE(testing::Message() << x.name << ", shared " << shared);
      Problem problem = make_problem(8, 11, 16, false, true, 2, 1);
      batch(&problem, 3, 4);
      if (shared & 1) problem.a.stride = 0;
      if (shared & 2) problem.b.stride = 0;
      if (shared & 4) problem.c.stride = 0;
      problem.alpha = -1.0;
      problem.beta = 2.0;
      problem.half_accumulator = x.scale == CUDA_R_16F;
      problem.tf32 = x.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
      const Buffers buffers(x, problem, seed++);
      Call call(x, problem);
      buffers.give(&call);
      ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      EXPECT_PRODUCT(
          reference::compare(problem, buffers.a, buffers.b, buffers.c, buffers.d, buffers.d_dev.patterns(x.out)));
    }
  }
}

TEST_F(LtTest, Matmul_InPlace) {
  const Case& x = kCases[0];
  Problem problem = make_problem(24, 6, 20, true, false, 0, 2);
  problem.beta = 1.0;
  const Buffers buffers(x, problem, 9);
  Call call(x, problem);
  buffers.give(&call);
  call.c_data = call.d_data;
  ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_PRODUCT(
      reference::compare(problem, buffers.a, buffers.b, buffers.d, buffers.d, buffers.d_dev.patterns(x.out)));
}

TEST_F(LtTest, Epilogue_BiasAndActivationOfEveryType) {
  struct Kind {
    cublasLtEpilogue_t epilogue;
    Activation activation;
    bool bias;
  };
  const Kind kinds[] = {{CUBLASLT_EPILOGUE_BIAS, Activation::kNone, true},
                        {CUBLASLT_EPILOGUE_RELU, Activation::kRelu, false},
                        {CUBLASLT_EPILOGUE_RELU_BIAS, Activation::kRelu, true},
                        {CUBLASLT_EPILOGUE_GELU, Activation::kGelu, false},
                        {CUBLASLT_EPILOGUE_GELU_BIAS, Activation::kGelu, true}};
  uint32_t seed = 900;
  for (const Case& x : kCases) {
    for (const Kind& kind : kinds) {
      for (const bool explicit_type : {false, true}) {
        for (const int64_t bias_stride : {0, 15}) {
          SCOPED_TRACE(testing::Message() << x.name << ", epilogue " << kind.epilogue << ", bias type said "
                                          << explicit_type << ", bias stride " << bias_stride);
          Problem problem = make_problem(14, 10, 8, false, false, 0, 1);
          batch(&problem, 2, 0);
          problem.alpha = 0.25;
          problem.beta = 0.5;
          problem.half_accumulator = x.scale == CUDA_R_16F;
          problem.tf32 = x.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
          problem.activation = kind.activation;
          const Numbers bias = random_numbers(x.out, 14 + bias_stride, seed + 50);  // D's type
          const DeviceBytes bias_dev(bias);
          if (kind.bias) problem.bias = &bias;
          problem.bias_stride = bias_stride;
          const Buffers buffers(x, problem, seed++);
          Call call(x, problem);
          buffers.give(&call);
          set(&call.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{kind.epilogue});
          if (kind.bias) {
            set(&call.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_dev.get());
            set(&call.desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, bias_stride);
            if (explicit_type) set(&call.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t{x.out.type});
          }
          ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
          ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
          EXPECT_PRODUCT(
              reference::compare(problem, buffers.a, buffers.b, buffers.c, buffers.d, buffers.d_dev.patterns(x.out)));
        }
      }
    }
  }
}

// D = activation(x) for chosen x: FP32, k = 1, B = 1.
std::vector<uint32_t> activated(cublasLtHandle_t handle, cudaStream_t stream, cublasLtEpilogue_t epilogue,
                                const std::vector<float>& inputs) {
  Problem problem = make_problem(static_cast<int64_t>(inputs.size()), 1, 1, false, false, 0, 0);
  Call call(kCases[4], problem);
  const Numbers a{kFp32, std::vector<double>(inputs.begin(), inputs.end())};
  const DeviceBytes a_dev(a);
  const DeviceBytes b_dev(constant_numbers(kFp32, 1, 1.0));
  const DeviceBytes d_dev(constant_numbers(kFp32, static_cast<int64_t>(inputs.size()), 7.0));
  call.a_data = a_dev.get();
  call.b_data = b_dev.get();
  call.c_data = call.d_data = d_dev.get();
  set(&call.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{epilogue});
  EXPECT_EQ(call(handle, stream), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  return d_dev.patterns(kFp32);
}

TEST_F(LtTest, Epilogue_GeluIsTheTanhFormToTheLastBit) {
  std::vector<float> inputs;
  for (int i = -400; i <= 400; ++i) inputs.push_back(static_cast<float>(i) * 0.03125f);
  inputs.push_back(1e30f);
  const std::vector<uint32_t> delivered = activated(handle_, stream_, CUBLASLT_EPILOGUE_GELU, inputs);
  double furthest_from_erf = 0.0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const float x = inputs[i];
    const float inner = 0.7978845608028654f * (x + 0.044715f * (x * x * x));
    EXPECT_EQ(delivered[i], reference::bits_of(0.5f * x * (1.0f + std::tanh(inner)))) << x;
    const double erf_form = 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
    furthest_from_erf = std::max(furthest_from_erf, std::fabs(reference::float_of(delivered[i]) - erf_form));
  }
  EXPECT_GT(furthest_from_erf, 3e-4) << "this is the other GELU";  // the two forms differ by up to 4e-4
}

TEST_F(LtTest, Epilogue_ReluKeepsNanAndClearsNegatives) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<uint32_t> delivered =
      activated(handle_, stream_, CUBLASLT_EPILOGUE_RELU, {-1.0f, 2.0f, nan, infinity, -infinity, -1e-38f});
  EXPECT_EQ(delivered[0], 0u);
  EXPECT_EQ(delivered[1], reference::bits_of(2.0f));
  EXPECT_TRUE(std::isnan(reference::float_of(delivered[2])));
  EXPECT_EQ(delivered[3], reference::bits_of(infinity));
  EXPECT_EQ(delivered[4], 0u);
  EXPECT_EQ(delivered[5], 0u);
}

// Every FP16 and BF16 number passes unchanged through 16 -> FP32 and 16 -> 16, and every FP32 half way between two
// neighbours goes to the even one.
TEST_F(LtTest, Cast_EveryPatternAndEveryTie) {
  for (const Format& format : {kFp16, kBf16}) {
    Numbers all{format, {}};
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double value = reference::decode(format, bits);
      const bool subnormal = std::fabs(value) < std::ldexp(1.0, format.least_normal);
      const bool tensor_core_takes_it = format.type == CUDA_R_16F || !subnormal;  // orders may flush BF16's
      if (std::isfinite(value) && tensor_core_takes_it) all.values.push_back(value);
    }
    const auto count = static_cast<int64_t>(all.values.size());
    Problem problem = make_problem(count, 1, 1, false, false, 0, 0);
    const DeviceBytes a_dev(all);
    const DeviceBytes one_dev(constant_numbers(format, 1, 1.0));
    for (const Format& out : {format, kFp32}) {
      const Case x{"", format, out, CUBLAS_COMPUTE_32F, CUDA_R_32F};
      const DeviceBytes d_dev(constant_numbers(out, count, 7.0));
      Call call(x, problem);
      call.a_data = a_dev.get();
      call.b_data = one_dev.get();
      call.c_data = call.d_data = d_dev.get();
      ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      const std::vector<uint32_t> delivered = d_dev.patterns(out);
      for (size_t i = 0; i < all.values.size(); ++i) {
        // A product of minus zero and one may lose its sign when it is added to the accumulator's plus zero.
        const double value = all.values[i] == 0.0 ? 0.0 : all.values[i];
        const double got = reference::decode(out, delivered[i]);
        ASSERT_EQ(got, value) << i;
      }
    }

    // Ties, through C: alpha = 0 leaves beta C, with C = an odd multiple of the format's last place and beta = 1/2.
    Numbers odd{format, {}};
    for (uint32_t bits = 1; bits < 0x7c00; bits += 2) {
      const double value = reference::decode(format, bits);
      if (std::fabs(value) <= std::ldexp(1.0, format.least_normal + 1)) odd.values.push_back(value);  // halves to ties
    }
    const auto ties = static_cast<int64_t>(odd.values.size());
    ASSERT_GT(ties, 100);
    problem = make_problem(ties, 1, 1, false, false, 0, 0);
    problem.alpha = 0.0;
    problem.beta = 0.5;
    const DeviceBytes c_dev(odd);
    const DeviceBytes d_dev(constant_numbers(format, ties, 7.0));
    Call call({"", format, format, CUBLAS_COMPUTE_32F, CUDA_R_32F}, problem);
    call.c_data = c_dev.get();
    call.d_data = d_dev.get();
    ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    const std::vector<uint32_t> delivered = d_dev.patterns(format);
    for (size_t i = 0; i < odd.values.size(); ++i) {
      ASSERT_EQ(reference::decode(format, delivered[i]), reference::rounded(format, 0.5 * odd.values[i])) << i;
    }
  }
}

TEST_F(LtTest, Matmul_DeviceScalarsAreReadWhenTheWorkRuns) {
  const Case& x = kCases[4];
  const Problem problem = make_problem(1, 1, 1, false, false, 0, 0);
  const DeviceBytes three(constant_numbers(kFp32, 1, 3.0));
  const DeviceBytes ten(constant_numbers(kFp32, 1, 10.0));
  const DeviceBytes d_dev(constant_numbers(kFp32, 1, 0.0));
  const DeviceBytes scalars(constant_numbers(kFp32, 2, 100.0));
  Call call(x, problem);
  call.a_data = call.b_data = three.get();
  call.c_data = ten.get();
  call.d_data = d_dev.get();
  call.alpha = scalars.get();
  call.beta = scalars.as<float>() + 1;
  set(&call.desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, int32_t{CUBLASLT_POINTER_MODE_DEVICE});
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  {
    Gate gate(stream_);
    ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
    const float late[] = {0.5f, -1.0f};
    ASSERT_EQ(cudaMemcpyAsync(scalars.get(), late, sizeof late, cudaMemcpyHostToDevice, other), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
    set(&call.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_RELU});  // too late to matter
  }
  EXPECT_EQ(d_dev.patterns(kFp32)[0], reference::bits_of(-5.5f));
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(LtTest, Matmul_ZeroBetaTakesAnyC) {
  const Case& x = kCases[0];
  const Problem problem = make_problem(6, 4, 5, false, false, 0, 0);
  const Buffers buffers(x, problem, 3);
  const auto dummy = reinterpret_cast<const void*>(uintptr_t{0x10});
  for (const void* c : {static_cast<const void*>(nullptr), dummy}) {
    Call call(x, problem);
    buffers.give(&call);
    call.c_data = c;
    ASSERT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_PRODUCT(
        reference::compare(problem, buffers.a, buffers.b, buffers.c, buffers.d, buffers.d_dev.patterns(x.out)));
  }
}

TEST_F(LtTest, Matmul_ACublasHandleServesAsLtHandle) {
  cublasHandle_t cublas = nullptr;
  ASSERT_EQ(cublasCreate(&cublas), CUBLAS_STATUS_SUCCESS);
  const Case& x = kCases[1];
  const Problem problem = make_problem(6, 4, 5, false, false, 0, 0);
  const Buffers buffers(x, problem, 3);
  Call call(x, problem);
  buffers.give(&call);
  EXPECT_EQ(call(reinterpret_cast<cublasLtHandle_t>(cublas), stream_), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_PRODUCT(
      reference::compare(problem, buffers.a, buffers.b, buffers.c, buffers.d, buffers.d_dev.patterns(x.out)));
  EXPECT_EQ(cublasDestroy(cublas), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call(nullptr, stream_), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cublasLtCreate(nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtDestroy(nullptr), CUBLAS_STATUS_INVALID_VALUE);
}

// ---- algorithms

TEST_F(LtTest, Algo_HeuristicsStampTypesAndOtherTypesAreRefused) {
  const Case& native = kCases[0];
  const Case& upgraded = kCases[1];
  const Problem problem = make_problem(16, 8, 32, true, false, 0, 0);
  Call call(native, problem);
  cublasLtMatmulPreferenceOpaque_t preference;
  ASSERT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulHeuristicResult_t results[4];
  int count = 0;
  ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_, &call.desc, call.a, call.b, call.c, call.d, &preference, 4, results,
                                           &count),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(count, 4);
  for (const auto& result : results) {
    EXPECT_EQ(result.state, CUBLAS_STATUS_SUCCESS);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&result.algo);
    const auto word = [&](size_t at, size_t size) {
      uint32_t value = 0;
      std::memcpy(&value, bytes + at, size);
      return value;
    };
    EXPECT_EQ(word(0x28, 4), uint32_t{CUDA_R_16BF});
    EXPECT_EQ(word(0x2c, 4), uint32_t{CUDA_R_16BF});
    EXPECT_EQ(word(0x30, 2), uint32_t{CUDA_R_16BF});
    EXPECT_EQ(word(0x32, 2), uint32_t{CUDA_R_16BF});
    EXPECT_EQ(word(0x34, 4), uint32_t{CUBLAS_COMPUTE_32F});
    EXPECT_EQ(word(0x38, 4), uint32_t{CUDA_R_32F});
    cublasLtMatmulHeuristicResult_t checked;
    EXPECT_EQ(cublasLtMatmulAlgoCheck(handle_, &call.desc, call.a, call.b, call.c, call.d, &result.algo, &checked),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(checked.workspaceSize, 0u);
  }

  const Buffers buffers(native, problem, 77);
  buffers.give(&call);
  for (const auto& result : results) {
    call.algo = &result.algo;
    EXPECT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
  }
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_PRODUCT(
      reference::compare(problem, buffers.a, buffers.b, buffers.c, buffers.d, buffers.d_dev.patterns(native.out)));

  const Buffers wide(upgraded, problem, 78);
  Call flipped(upgraded, problem);
  wide.give(&flipped);
  flipped.algo = &results[0].algo;  // stamped for BF16 D
  EXPECT_EQ(flipped(handle_, stream_), CUBLAS_STATUS_INVALID_VALUE);
  flipped.algo = nullptr;
  EXPECT_EQ(flipped(handle_, stream_), CUBLAS_STATUS_SUCCESS);
  for (const size_t stamped_at : {0x00, 0x28, 0x2c, 0x30, 0x32, 0x34, 0x38}) {
    cublasLtMatmulAlgo_t other = results[0].algo;
    reinterpret_cast<unsigned char*>(&other)[stamped_at] ^= 0x80;
    call.algo = &other;
    EXPECT_EQ(call(handle_, stream_), CUBLAS_STATUS_INVALID_VALUE) << "byte " << stamped_at;
  }
  cublasLtMatmulAlgo_t blank{};
  call.algo = &blank;
  EXPECT_EQ(call(handle_, stream_), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(LtTest, Algo_EnumerationInitialisationAndConfiguration) {
  int ids[8];
  int count = 0;
  const auto types = std::make_tuple(CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F);
  const auto with_types = [&](auto call) { return std::apply(call, types); };
  ASSERT_EQ(with_types([&](auto... each) { return cublasLtMatmulAlgoGetIds(handle_, each..., 8, ids, &count); }),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_GT(count, 1);
  EXPECT_EQ(cublasLtMatmulAlgoGetIds(handle_, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8I, CUDA_R_8I, CUDA_R_8I,
                                     CUDA_R_8I, 8, ids, &count),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(count, 0);
  ASSERT_EQ(with_types([&](auto... each) { return cublasLtMatmulAlgoGetIds(handle_, each..., 8, ids, &count); }),
            CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulAlgo_t algo;
  EXPECT_EQ(with_types([&](auto... each) { return cublasLtMatmulAlgoInit(handle_, each..., 12345, &algo); }),
            CUBLAS_STATUS_INVALID_VALUE);
  ASSERT_EQ(with_types([&](auto... each) { return cublasLtMatmulAlgoInit(handle_, each..., ids[1], &algo); }),
            CUBLAS_STATUS_SUCCESS);
  int32_t id = 0;
  size_t written = 0;
  EXPECT_EQ(cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(id, ids[1]);
  EXPECT_EQ(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id),
            CUBLAS_STATUS_INVALID_VALUE);
  size_t needed = 0;
  ASSERT_EQ(cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_TILE_IDS, nullptr, 0, &needed),
            CUBLAS_STATUS_SUCCESS);
  std::vector<uint32_t> tiles(needed / 4);
  ASSERT_EQ(cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_TILE_IDS, tiles.data(), needed, &written),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_FALSE(tiles.empty());
  const Problem problem = make_problem(4, 4, 4, false, false, 0, 0);
  Call call(kCases[3], problem);
  cublasLtMatmulHeuristicResult_t checked;
  const auto check = [&] {
    return cublasLtMatmulAlgoCheck(handle_, &call.desc, call.a, call.b, call.c, call.d, &algo, &checked);
  };
  EXPECT_EQ(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tiles[0], 4),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(check(), CUBLAS_STATUS_SUCCESS);
  const int32_t splits = 4;
  EXPECT_EQ(cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, 4),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(check(), CUBLAS_STATUS_NOT_SUPPORTED);
  uint32_t epilogues = 0;
  EXPECT_EQ(cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_EPILOGUE_MASK, &epilogues, 4, &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(epilogues & CUBLASLT_EPILOGUE_GELU, 0u);
}

TEST_F(LtTest, Algo_HeuristicsAnswerForRefusedTypes) {
  const Problem problem = make_problem(4, 4, 4, false, false, 0, 0);
  Call call(kCases[1], problem);
  cublasLtMatmulPreferenceOpaque_t preference;
  ASSERT_EQ(cublasLtMatmulPreferenceInit(&preference), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulHeuristicResult_t result;
  int count = -1;
  ASSERT_EQ(hostcuda_set_not_supported("16->32"), 0);
  EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_, &call.desc, call.a, call.b, call.c, call.d, &preference, 1, &result,
                                           &count),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(count, 0);
  const Buffers buffers(kCases[1], problem, 1);
  buffers.give(&call);
  EXPECT_EQ(call(handle_, stream_), CUBLAS_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(hostcuda_set_not_supported(nullptr), 0);
  EXPECT_EQ(call(handle_, stream_), CUBLAS_STATUS_SUCCESS);
}

// ---- refused arguments

TEST_F(LtTest, Arguments_EachBentOneHasItsStatus) {
  const Case& x = kCases[0];
  const Problem problem = make_problem(8, 4, 6, false, false, 0, 0);
  const Buffers buffers(x, problem, 1);
  const auto bent = [&](auto bend) {
    Call call(x, problem);
    buffers.give(&call);
    bend(call);
    return call(handle_, stream_);
  };
  const auto desc = [&](cublasLtMatmulDescAttributes_t attr, auto value) {
    return bent([&](Call& call) { set(&call.desc, attr, value); });
  };
  const auto layout = [&](Layout Call::*which, cublasLtMatrixLayoutAttribute_t attr, auto value) {
    return bent([&](Call& call) { set(call.*which, attr, value); });
  };
  EXPECT_EQ(bent([](Call&) {}), CUBLAS_STATUS_SUCCESS);

  EXPECT_EQ(layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{7}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(layout(&Call::b, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{5}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(layout(&Call::c, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{7}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(layout(&Call::d, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{-8}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t{5}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(layout(&Call::d, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t{5}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(layout(&Call::d, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{7}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(layout(&Call::b, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{2}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{77}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_COL32}),
            CUBLAS_STATUS_INVALID_VALUE);  // leading dimension
  EXPECT_EQ(layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, int64_t{8}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(layout(&Call::d, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, uint32_t{CUBLASLT_BATCH_MODE_POINTER_ARRAY}),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(layout(&Call::c, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_R_32F}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_R_8F_E4M3}), CUBLAS_STATUS_NOT_SUPPORTED);

  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{9}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{CUBLAS_OP_T}), CUBLAS_STATUS_INVALID_VALUE);  // shapes
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_TRANSC, int32_t{CUBLAS_OP_T}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_FILL_MODE, int32_t{CUBLAS_FILL_MODE_LOWER}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{0}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS}),
            CUBLAS_STATUS_INVALID_VALUE);  // no bias pointer
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, buffers.a_dev.get()), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, buffers.a_dev.get()), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_D_SCALE_MODE, int32_t{1}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR, buffers.a_dev.get()), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_SCALE_TYPE, int32_t{CUDA_R_16F}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, int32_t{CUBLAS_COMPUTE_64F}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, int32_t{4}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(desc(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(bent([&](Call& call) {
              set(&call.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
              set(&call.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, buffers.a_dev.get());
              set(&call.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t{CUDA_R_32F});
            }),
            CUBLAS_STATUS_NOT_SUPPORTED);

  EXPECT_EQ(bent([](Call& call) { call.d_data = nullptr; }), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(bent([](Call& call) { call.a_data = nullptr; }), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(bent([](Call& call) {
              call.c_data = nullptr;
              call.beta_bits = reference::bits_of(1.0f);
            }),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(bent([](Call& call) {
              call.c_data = call.d_data;
              call.beta_bits = reference::bits_of(1.0f);
              set(call.c, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{9});
            }),
            CUBLAS_STATUS_INVALID_VALUE);
  Call call(x, problem);
  buffers.give(&call);
  EXPECT_EQ(cublasLtMatmul(handle_, nullptr, &call.alpha_bits, call.a_data, call.a, call.b_data, call.b,
                           &call.beta_bits, call.c_data, call.c, call.d_data, call.d, nullptr, nullptr, 0, stream_),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmul(handle_, &call.desc, nullptr, call.a_data, call.a, call.b_data, call.b, &call.beta_bits,
                           call.c_data, call.c, call.d_data, call.d, nullptr, nullptr, 0, stream_),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmul(handle_, &call.desc, &call.alpha_bits, call.a_data, nullptr, call.b_data, call.b,
                           &call.beta_bits, call.c_data, call.c, call.d_data, call.d, nullptr, nullptr, 0, stream_),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmul(handle_, &call.desc, &call.alpha_bits, call.a_data, call.a, call.b_data, call.b,
                           &call.beta_bits, call.c_data, call.c, call.d_data, call.d, nullptr, nullptr, 64, stream_),
            CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(LtTest, Arguments_ActivationWithBiasNeedsAColumnMajorD) {
  const Case& x = kCases[0];
  const Problem problem = make_problem(8, 8, 8, false, false, 4, 0);
  const Buffers buffers(x, problem, 1);
  for (const auto& [epilogue, status] : {std::pair{CUBLASLT_EPILOGUE_RELU_BIAS, CUBLAS_STATUS_NOT_SUPPORTED},
                                         std::pair{CUBLASLT_EPILOGUE_GELU_BIAS, CUBLAS_STATUS_NOT_SUPPORTED},
                                         std::pair{CUBLASLT_EPILOGUE_BIAS, CUBLAS_STATUS_SUCCESS},
                                         std::pair{CUBLASLT_EPILOGUE_GELU, CUBLAS_STATUS_SUCCESS}}) {
    Call call(x, problem);
    buffers.give(&call);
    set(&call.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{epilogue});
    set(&call.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, buffers.a_dev.get());
    EXPECT_EQ(call(handle_, stream_), status) << epilogue;
  }
}

}  // namespace

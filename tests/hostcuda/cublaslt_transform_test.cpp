// SPDX-License-Identifier: MIT
// cublasLtMatrixTransform and the descriptors of transforms and emulation.
#include <memory>
#include <set>

#include "tests/hostcuda/lt_orders.h"
#include "tests/hostcuda/lt_reference.h"

namespace {

using namespace lt_orders;
using namespace lt_reference;

struct Attribute {
  int id;
  size_t size;
  uint64_t initial;
};

// Facts measured on the real 13.1.0 library: sizes, initial values, every other id refused.
template <typename Object, typename Set, typename Get>
void expect_attributes(const std::vector<Attribute>& known, Object object, Set set, Get get) {
  for (int id = -1; id < 12; ++id) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const Attribute& one) { return one.id == id; });
    size_t written = 0;
    uint64_t value = 0;
    if (found == known.end()) {
      EXPECT_EQ(get(object, id, nullptr, size_t{0}, &written), CUBLAS_STATUS_INVALID_VALUE) << id;
      EXPECT_EQ(set(object, id, &value, size_t{4}), CUBLAS_STATUS_INVALID_VALUE) << id;
      continue;
    }
    EXPECT_EQ(get(object, id, nullptr, size_t{0}, &written), CUBLAS_STATUS_SUCCESS) << id;
    EXPECT_EQ(written, found->size) << id;
    EXPECT_EQ(get(object, id, &value, written, &written), CUBLAS_STATUS_SUCCESS) << id;
    EXPECT_EQ(value, found->initial) << id;
    const uint64_t fresh = 0x1122334455667788u >> (64 - 8 * found->size) << (id % 3);
    EXPECT_EQ(set(object, id, &fresh, found->size), CUBLAS_STATUS_SUCCESS) << id;
    EXPECT_EQ(set(object, id, &fresh, found->size + 1), CUBLAS_STATUS_INVALID_VALUE) << id;
  }
  for (const Attribute& one : known) {
    uint64_t value = 0;
    uint64_t fresh = 0x1122334455667788u >> (64 - 8 * one.size) << (one.id % 3);
    if (one.size < 8) fresh &= (uint64_t{1} << (8 * one.size)) - 1;
    EXPECT_EQ(get(object, one.id, &value, one.size, nullptr), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(value, fresh) << one.id;
  }
}

TEST(LtDescriptors, TransformHasTheRealAttributes) {
  cublasLtMatrixTransformDesc_t desc = nullptr;
  ASSERT_EQ(cublasLtMatrixTransformDescCreate(&desc, CUDA_R_16F), CUBLAS_STATUS_SUCCESS);
  expect_attributes(
      {{0, 4, CUDA_R_16F}, {1, 4, 0}, {2, 4, 0}, {3, 4, 0}}, desc,
      [](cublasLtMatrixTransformDesc_t object, int id, const void* buf, size_t size) {
        return cublasLtMatrixTransformDescSetAttribute(object, static_cast<cublasLtMatrixTransformDescAttributes_t>(id),
                                                       buf, size);
      },
      [](cublasLtMatrixTransformDesc_t object, int id, void* buf, size_t size, size_t* written) {
        return cublasLtMatrixTransformDescGetAttribute(object, static_cast<cublasLtMatrixTransformDescAttributes_t>(id),
                                                       buf, size, written);
      });
  EXPECT_EQ(cublasLtMatrixTransformDescDestroy(desc), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatrixTransformDescDestroy(nullptr), CUBLAS_STATUS_SUCCESS);
  cublasLtMatrixTransformDescOpaque_t opaque;
  EXPECT_EQ(cublasLtMatrixTransformDescInit_internal(&opaque, 8, CUDA_R_32F), CUBLAS_STATUS_ALLOC_FAILED);
}

TEST(LtDescriptors, EmulationHasTheRealAttributes) {
  cublasLtEmulationDesc_t desc = nullptr;
  ASSERT_EQ(cublasLtEmulationDescCreate(&desc), CUBLAS_STATUS_SUCCESS);
  expect_attributes(
      {{0, 4, 0}, {1, 4, 0xFFFF}, {2, 4, 0}, {3, 4, 0}, {4, 4, 0}, {5, 8, 0}}, desc,
      [](cublasLtEmulationDesc_t object, int id, const void* buf, size_t size) {
        return cublasLtEmulationDescSetAttribute(object, static_cast<cublasLtEmulationDescAttributes_t>(id), buf, size);
      },
      [](cublasLtEmulationDesc_t object, int id, void* buf, size_t size, size_t* written) {
        return cublasLtEmulationDescGetAttribute(object, static_cast<cublasLtEmulationDescAttributes_t>(id), buf, size,
                                                 written);
      });
  EXPECT_EQ(cublasLtEmulationDescDestroy(desc), CUBLAS_STATUS_SUCCESS);
  cublasLtEmulationDescOpaque_t opaque;
  EXPECT_EQ(cublasLtEmulationDescInit_internal(&opaque, 8), CUBLAS_STATUS_ALLOC_FAILED);
}

// With a gap behind every column, row or group of columns.
int64_t ld_of(int32_t order, int64_t rows, int64_t cols) {
  const bool tiled = order != CUBLASLT_ORDER_COL && order != CUBLASLT_ORDER_ROW;
  return least_ld(order, rows, cols) + (tiled ? 64 : 2);
}

class LtTransform : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  struct Stored {
    std::unique_ptr<Buffer> buffer;
    cublasLtMatrixLayoutOpaque_t layout;
    int32_t order;
    int64_t ld;
    Real at(int64_t i, int64_t j) const { return buffer->get(place(order, ld, i, j)); }
  };

  static Stored stored(cudaDataType type, int32_t order, int64_t rows, int64_t cols, uint32_t seed) {
    Stored made{nullptr, {}, order, ld_of(order, rows, cols)};
    made.buffer = std::make_unique<Buffer>(type, elements(order, rows, cols, made.ld));
    std::mt19937 engine(seed);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        const Real value = static_cast<Real>(static_cast<int>(engine() % 255) - 127) / 8;
        made.buffer->set(place(order, made.ld, i, j), rounded(type, value));
      }
    }
    made.buffer->upload();
    EXPECT_EQ(
        cublasLtMatrixLayoutInit(&made.layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), made.ld),
        CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(&made.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order),
              CUBLAS_STATUS_SUCCESS);
    return made;
  }

  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

TEST_F(LtTransform, OrdersAndTypes) {
  constexpr int32_t kOrders[] = {CUBLASLT_ORDER_COL, CUBLASLT_ORDER_ROW, CUBLASLT_ORDER_COL32,
                                 CUBLASLT_ORDER_COL4_4R2_8C, CUBLASLT_ORDER_COL32_2R_4R4};
  struct Case {
    cudaDataType scale, a, b, c;
  };
  uint32_t seed = 1;
  for (const Case& x :
       {Case{CUDA_R_32F, CUDA_R_8I, CUDA_R_32I, CUDA_R_32F}, Case{CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF, CUDA_R_8I},
        Case{CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F}, Case{CUDA_R_32I, CUDA_R_8I, CUDA_R_8I, CUDA_R_32I},
        Case{CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F}}) {
    for (const int32_t a_order : kOrders) {
      for (const int32_t c_order : kOrders) {
        for (const int32_t operation : {CUBLAS_OP_N, CUBLAS_OP_T}) {
          const int64_t rows = 37;
          const int64_t cols = 70;
          const bool transposed = operation == CUBLAS_OP_T;
          const Stored a = stored(x.a, a_order, transposed ? cols : rows, transposed ? rows : cols, ++seed);
          const Stored b = stored(x.b, CUBLASLT_ORDER_COL, rows, cols, ++seed);
          Stored c = stored(x.c, c_order, rows, cols, ++seed);
          cublasLtMatrixTransformDescOpaque_t desc;
          ASSERT_EQ(cublasLtMatrixTransformDescInit(&desc, x.scale), CUBLAS_STATUS_SUCCESS);
          ASSERT_EQ(
              cublasLtMatrixTransformDescSetAttribute(&desc, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA, &operation, 4),
              CUBLAS_STATUS_SUCCESS);
          Buffer scalars(x.scale, 2);
          scalars.set(0, 2);
          scalars.set(1, -3);
          const std::vector<unsigned char> host = scalars.bytes();
          const auto bytes = static_cast<size_t>(fields_of(x.scale).bytes);
          auto* b_layout = const_cast<cublasLtMatrixLayoutOpaque_t*>(&b.layout);
          auto* a_layout = const_cast<cublasLtMatrixLayoutOpaque_t*>(&a.layout);
          ASSERT_EQ(
              cublasLtMatrixTransform(handle_, &desc, host.data(), a.buffer->device(), a_layout, host.data() + bytes,
                                      b.buffer->device(), b_layout, c.buffer->device(), &c.layout, stream_),
              CUBLAS_STATUS_SUCCESS);
          ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
          const std::vector<unsigned char> before = c.buffer->bytes();
          c.buffer->download();
          std::set<int64_t> written;
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) {
              const Real want = 2 * (transposed ? a.at(j, i) : a.at(i, j)) - 3 * b.at(i, j);
              ASSERT_EQ(c.at(i, j), rounded(x.c, want))
                  << "order " << a_order << " to " << c_order << " at " << i << ", " << j;
              written.insert(place(c_order, c.ld, i, j));
            }
          }
          EXPECT_EQ(written.size(), static_cast<size_t>(rows * cols)) << "two elements in one place";
          const std::vector<unsigned char> after = c.buffer->bytes();
          const auto size = static_cast<size_t>(fields_of(x.c).bytes);
          for (int64_t i = 0; i < c.buffer->count(); ++i) {
            if (written.count(i) != 0) continue;
            const auto at = static_cast<size_t>(i) * size;
            ASSERT_EQ(std::memcmp(&before[at], &after[at], size), 0) << "wrote between the elements";
          }
        }
      }
    }
  }
}

TEST_F(LtTransform, DeviceScalarsMissingOperandsAndRefusals) {
  const Stored a = stored(CUDA_R_32F, CUBLASLT_ORDER_COL, 5, 6, 1);
  Stored c = stored(CUDA_R_16F, CUBLASLT_ORDER_ROW, 5, 6, 2);
  auto* a_layout = const_cast<cublasLtMatrixLayoutOpaque_t*>(&a.layout);
  cublasLtMatrixTransformDescOpaque_t desc;
  ASSERT_EQ(cublasLtMatrixTransformDescInit(&desc, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  const int32_t device = CUBLASLT_POINTER_MODE_DEVICE;
  ASSERT_EQ(cublasLtMatrixTransformDescSetAttribute(&desc, CUBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE, &device, 4),
            CUBLAS_STATUS_SUCCESS);
  Buffer alpha(CUDA_R_32F, 1);
  alpha.set(0, 0.5);
  alpha.upload();
  const auto call = [&](const void* from, cublasLtMatrixLayout_t from_layout, cublasLtMatrixLayout_t to_layout) {
    return cublasLtMatrixTransform(handle_, &desc, alpha.device(), from, from_layout, nullptr, nullptr, nullptr,
                                   c.buffer->device(), to_layout, stream_);
  };
  ASSERT_EQ(call(a.buffer->device(), a_layout, &c.layout), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  c.buffer->download();
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 6; ++j) EXPECT_EQ(c.at(i, j), rounded(CUDA_R_16F, a.at(i, j) / 2));
  }
  EXPECT_EQ(call(a.buffer->device(), nullptr, &c.layout), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call(nullptr, nullptr, &c.layout), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call(a.buffer->device(), a_layout, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatrixLayoutOpaque_t bent = a.layout;
  const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
    bent = a.layout;
    EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(&bent, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
    return call(a.buffer->device(), &bent, &c.layout);
  };
  EXPECT_EQ(set(CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{4}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(set(CUBLASLT_MATRIX_LAYOUT_LD, int64_t{4}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(set(CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{9}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(set(CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_COL32}), CUBLAS_STATUS_INVALID_VALUE) << "ld";
  EXPECT_EQ(set(CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_COL4_4R2_8C}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(set(CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_R_64F}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(set(CUBLASLT_MATRIX_LAYOUT_TYPE, uint32_t{CUDA_C_32F}), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{2}), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatrixTransform(nullptr, &desc, alpha.device(), a.buffer->device(), a_layout, nullptr, nullptr,
                                    nullptr, c.buffer->device(), &c.layout, stream_),
            CUBLAS_STATUS_NOT_INITIALIZED);
}

}  // namespace

// SPDX-License-Identifier: MIT
// Every GEMM entry point of hostcuda's libcublas, one row a name: results against the reference on layouts with
// padding, scattered batches and shared operands; then what batches by pointers and groups alone can get wrong.
#include <cublas_v2.h>
#include <cuda_fp16.h>

#include <functional>
#include <numeric>

#include "tests/hostcuda/cublas_fixture.h"
#include "tests/hostcuda/product_reference.h"

namespace {

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

// One operand of a call in every form that an entry point may want.
struct Operand {
  void* data;         // device memory of batch entry 0
  void* const* list;  // device array of addresses, one a batch entry
  int64_t ld, stride;
};

struct Call {
  cublasHandle_t handle;
  int transa, transb;  // numbers: the tests of refusals have some that are no cublasOperation_t
  int64_t m, n, k;
  const void *alpha, *beta;
  Operand a, b, c;
  int64_t batch;
  cudaDataType in, out;
  cublasComputeType_t compute;
};

cublasOperation_t op(int number) {
  return static_cast<cublasOperation_t>(number);
}

using Run = std::function<cublasStatus_t(const Call&)>;
enum class Form { kSingle, kPointers, kStrided };

template <typename T, typename Size>
Run single(cublasStatus_t (*f)(cublasHandle_t, cublasOperation_t, cublasOperation_t, Size, Size, Size, const T*,
                               const T*, Size, const T*, Size, const T*, T*, Size)) {
  return [f](const Call& x) {
    return f(x.handle, op(x.transa), op(x.transb), static_cast<Size>(x.m), static_cast<Size>(x.n),
             static_cast<Size>(x.k), static_cast<const T*>(x.alpha), static_cast<const T*>(x.a.data),
             static_cast<Size>(x.a.ld), static_cast<const T*>(x.b.data), static_cast<Size>(x.b.ld),
             static_cast<const T*>(x.beta), static_cast<T*>(x.c.data), static_cast<Size>(x.c.ld));
  };
}

template <typename T, typename Size>
Run pointers(cublasStatus_t (*f)(cublasHandle_t, cublasOperation_t, cublasOperation_t, Size, Size, Size, const T*,
                                 const T* const*, Size, const T* const*, Size, const T*, T* const*, Size, Size)) {
  return [f](const Call& x) {
    return f(x.handle, op(x.transa), op(x.transb), static_cast<Size>(x.m), static_cast<Size>(x.n),
             static_cast<Size>(x.k), static_cast<const T*>(x.alpha), reinterpret_cast<const T* const*>(x.a.list),
             static_cast<Size>(x.a.ld), reinterpret_cast<const T* const*>(x.b.list), static_cast<Size>(x.b.ld),
             static_cast<const T*>(x.beta), reinterpret_cast<T* const*>(x.c.list), static_cast<Size>(x.c.ld),
             static_cast<Size>(x.batch));
  };
}

template <typename T, typename Size>
Run strided(cublasStatus_t (*f)(cublasHandle_t, cublasOperation_t, cublasOperation_t, Size, Size, Size, const T*,
                                const T*, Size, long long int, const T*, Size, long long int, const T*, T*, Size,
                                long long int, Size)) {
  return [f](const Call& x) {
    return f(x.handle, op(x.transa), op(x.transb), static_cast<Size>(x.m), static_cast<Size>(x.n),
             static_cast<Size>(x.k), static_cast<const T*>(x.alpha), static_cast<const T*>(x.a.data),
             static_cast<Size>(x.a.ld), x.a.stride, static_cast<const T*>(x.b.data), static_cast<Size>(x.b.ld),
             x.b.stride, static_cast<const T*>(x.beta), static_cast<T*>(x.c.data), static_cast<Size>(x.c.ld),
             x.c.stride, static_cast<Size>(x.batch));
  };
}

// A batch as two groups of one shape: its first entry, and the others.
template <typename Size>
struct TwoGroups {
  explicit TwoGroups(const Call& x)
      : m{narrow(x.m), narrow(x.m)},
        n{narrow(x.n), narrow(x.n)},
        k{narrow(x.k), narrow(x.k)},
        lda{narrow(x.a.ld), narrow(x.a.ld)},
        ldb{narrow(x.b.ld), narrow(x.b.ld)},
        ldc{narrow(x.c.ld), narrow(x.c.ld)},
        count{1, narrow(x.batch - 1)},
        transa{x.transa, x.transa},
        transb{x.transb, x.transb} {}
  static Size narrow(int64_t x) { return static_cast<Size>(x); }
  Size m[2], n[2], k[2], lda[2], ldb[2], ldc[2], count[2];
  int transa[2], transb[2];
  const cublasOperation_t* ops(const int* numbers) const { return reinterpret_cast<const cublasOperation_t*>(numbers); }
};

template <typename T, typename Size>
Run grouped(cublasStatus_t (*f)(cublasHandle_t, const cublasOperation_t*, const cublasOperation_t*, const Size*,
                                const Size*, const Size*, const T*, const T* const*, const Size*, const T* const*,
                                const Size*, const T*, T* const*, const Size*, Size, const Size*)) {
  return [f](const Call& x) {
    const TwoGroups<Size> g(x);
    const T alpha[] = {*static_cast<const T*>(x.alpha), *static_cast<const T*>(x.alpha)};
    const T beta[] = {*static_cast<const T*>(x.beta), *static_cast<const T*>(x.beta)};
    return f(x.handle, g.ops(g.transa), g.ops(g.transb), g.m, g.n, g.k, alpha,
             reinterpret_cast<const T* const*>(x.a.list), g.lda, reinterpret_cast<const T* const*>(x.b.list), g.ldb,
             beta, reinterpret_cast<T* const*>(x.c.list), g.ldc, 2, g.count);
  };
}

template <typename Size>
Run gemm_ex(cublasStatus_t (*f)(cublasHandle_t, cublasOperation_t, cublasOperation_t, Size, Size, Size, const void*,
                                const void*, cudaDataType, Size, const void*, cudaDataType, Size, const void*, void*,
                                cudaDataType, Size, cublasComputeType_t, cublasGemmAlgo_t)) {
  return [f](const Call& x) {
    return f(x.handle, op(x.transa), op(x.transb), static_cast<Size>(x.m), static_cast<Size>(x.n),
             static_cast<Size>(x.k), x.alpha, x.a.data, x.in, static_cast<Size>(x.a.ld), x.b.data, x.in,
             static_cast<Size>(x.b.ld), x.beta, x.c.data, x.out, static_cast<Size>(x.c.ld), x.compute,
             CUBLAS_GEMM_DEFAULT);
  };
}

template <typename Size>
Run sgemm_ex(cublasStatus_t (*f)(cublasHandle_t, cublasOperation_t, cublasOperation_t, Size, Size, Size, const float*,
                                 const void*, cudaDataType, Size, const void*, cudaDataType, Size, const float*, void*,
                                 cudaDataType, Size)) {
  return [f](const Call& x) {
    return f(x.handle, op(x.transa), op(x.transb), static_cast<Size>(x.m), static_cast<Size>(x.n),
             static_cast<Size>(x.k), static_cast<const float*>(x.alpha), x.a.data, x.in, static_cast<Size>(x.a.ld),
             x.b.data, x.in, static_cast<Size>(x.b.ld), static_cast<const float*>(x.beta), x.c.data, x.out,
             static_cast<Size>(x.c.ld));
  };
}

template <typename Size>
Run batched_ex(cublasStatus_t (*f)(cublasHandle_t, cublasOperation_t, cublasOperation_t, Size, Size, Size, const void*,
                                   const void* const*, cudaDataType, Size, const void* const*, cudaDataType, Size,
                                   const void*, void* const*, cudaDataType, Size, Size, cublasComputeType_t,
                                   cublasGemmAlgo_t)) {
  return [f](const Call& x) {
    return f(x.handle, op(x.transa), op(x.transb), static_cast<Size>(x.m), static_cast<Size>(x.n),
             static_cast<Size>(x.k), x.alpha, x.a.list, x.in, static_cast<Size>(x.a.ld), x.b.list, x.in,
             static_cast<Size>(x.b.ld), x.beta, x.c.list, x.out, static_cast<Size>(x.c.ld), static_cast<Size>(x.batch),
             x.compute, CUBLAS_GEMM_DEFAULT);
  };
}

template <typename Size>
Run strided_ex(cublasStatus_t (*f)(cublasHandle_t, cublasOperation_t, cublasOperation_t, Size, Size, Size, const void*,
                                   const void*, cudaDataType, Size, long long int, const void*, cudaDataType, Size,
                                   long long int, const void*, void*, cudaDataType, Size, long long int, Size,
                                   cublasComputeType_t, cublasGemmAlgo_t)) {
  return [f](const Call& x) {
    return f(x.handle, op(x.transa), op(x.transb), static_cast<Size>(x.m), static_cast<Size>(x.n),
             static_cast<Size>(x.k), x.alpha, x.a.data, x.in, static_cast<Size>(x.a.ld), x.a.stride, x.b.data, x.in,
             static_cast<Size>(x.b.ld), x.b.stride, x.beta, x.c.data, x.out, static_cast<Size>(x.c.ld), x.c.stride,
             static_cast<Size>(x.batch), x.compute, CUBLAS_GEMM_DEFAULT);
  };
}

template <typename Size>
Run grouped_ex(cublasStatus_t (*f)(cublasHandle_t, const cublasOperation_t*, const cublasOperation_t*, const Size*,
                                   const Size*, const Size*, const void*, const void* const*, cudaDataType, const Size*,
                                   const void* const*, cudaDataType, const Size*, const void*, void* const*,
                                   cudaDataType, const Size*, Size, const Size*, cublasComputeType_t)) {
  return [f](const Call& x) {
    const TwoGroups<Size> g(x);
    const float alpha[] = {*static_cast<const float*>(x.alpha), *static_cast<const float*>(x.alpha)};
    const float beta[] = {*static_cast<const float*>(x.beta), *static_cast<const float*>(x.beta)};
    return f(x.handle, g.ops(g.transa), g.ops(g.transb), g.m, g.n, g.k, alpha, x.a.list, x.in, g.lda, x.b.list, x.in,
             g.ldb, beta, x.c.list, x.out, g.ldc, 2, g.count, x.compute);
  };
}

struct Types {
  const char* name;
  Format in, out;
  cublasComputeType_t compute;
};

constexpr cublasComputeType_t kSingle = CUBLAS_COMPUTE_32F;
const Types kBf16Bf16{"bf16", kBf16, kBf16, kSingle};
const Types kBf16Fp32{"bf16 to fp32", kBf16, kFp32, kSingle};
const Types kFp16Fp16{"fp16", kFp16, kFp16, kSingle};
const Types kFp16Fp32{"fp16 to fp32", kFp16, kFp32, kSingle};
const Types kFp32Fp32{"fp32", kFp32, kFp32, kSingle};
const Types kHalf{"fp16 accumulator", kFp16, kFp16, CUBLAS_COMPUTE_16F};

const std::vector<Types> kOfEx{kBf16Bf16, kBf16Fp32, kFp16Fp16, kFp16Fp32, kFp32Fp32, kHalf};
const std::vector<Types> kOfSgemmEx{kBf16Bf16, kBf16Fp32, kFp16Fp16, kFp16Fp32, kFp32Fp32};
const std::vector<Types> kOfGrouped{kBf16Bf16, kFp16Fp16, kFp32Fp32};

struct Entry {
  const char* name;
  Form form;
  Run run;
  std::vector<Types> types;
};

#define ENTRY(adapter, form, types, name)                 \
  Entry{#name, Form::form, adapter(name), types}, Entry { \
#name "_64", Form::form, adapter(name##_64), types    \
  }
#define ENTRY_EX(adapter, form, types, name)                      \
  Entry{#name, Form::form, adapter<int>(name), types}, Entry {    \
#name "_64", Form::form, adapter < int64_t>(name##_64), types \
  }

const std::vector<Entry> kEntries{
    ENTRY_EX(gemm_ex, kSingle, kOfEx, cublasGemmEx),
    ENTRY_EX(batched_ex, kPointers, kOfEx, cublasGemmBatchedEx),
    ENTRY_EX(strided_ex, kStrided, kOfEx, cublasGemmStridedBatchedEx),
    ENTRY_EX(grouped_ex, kPointers, kOfGrouped, cublasGemmGroupedBatchedEx),
    ENTRY_EX(sgemm_ex, kSingle, kOfSgemmEx, cublasSgemmEx),
    ENTRY(single, kSingle, {kFp32Fp32}, cublasSgemm_v2),
    ENTRY(pointers, kPointers, {kFp32Fp32}, cublasSgemmBatched),
    ENTRY(strided, kStrided, {kFp32Fp32}, cublasSgemmStridedBatched),
    ENTRY(grouped, kPointers, {kFp32Fp32}, cublasSgemmGroupedBatched),
    ENTRY(single, kSingle, {kHalf}, cublasHgemm),
    ENTRY(pointers, kPointers, {kHalf}, cublasHgemmBatched),
    ENTRY(strided, kStrided, {kHalf}, cublasHgemmStridedBatched),
};

// alpha or beta in the type that the compute type demands.
struct Factor {
  Factor(cublasComputeType_t compute, double value) {
    if (compute == CUBLAS_COMPUTE_16F) {
      const auto half = static_cast<uint16_t>(reference::encode(kFp16, value));
      std::memcpy(bytes, &half, sizeof half);
    } else {
      const auto narrow = static_cast<float>(value);
      std::memcpy(bytes, &narrow, sizeof narrow);
    }
  }
  alignas(16) char bytes[16] = {};
};

class GemmEntryTest : public HandleTest {
 protected:
};

// A batch of matrices with gaps between columns and between entries. By pointers the entries lie in reverse order.
class Batch {
 public:
  Batch(const Format& format, Shape shape, Form form, uint32_t seed)
      : shape_(shape),
        numbers_(random_numbers(format, shape.elems(), seed)),
        reversed_(form == Form::kPointers),
        memory_(stored(numbers_)),
        list_(static_cast<size_t>(shape.batch) * sizeof(void*)) {
    std::vector<char*> addresses;
    for (int64_t e = 0; e < shape.batch; ++e) addresses.push_back(memory_.as<char>() + place(e) * format.bytes);
    EXPECT_EQ(cudaMemcpy(list_.get(), addresses.data(), addresses.size() * sizeof(void*), cudaMemcpyHostToDevice),
              cudaSuccess);
  }

  Operand operand() const { return {memory_.get(), list_.as<void*>(), shape_.ld, shape_.stride}; }
  const Numbers& numbers() const { return numbers_; }

  // As the buffer would be with its entries in order.
  std::vector<uint32_t> patterns() const {
    const std::vector<uint32_t> raw = memory_.patterns(numbers_.format);
    std::vector<uint32_t> ordered = raw;
    for (int64_t e = 0; e < shape_.batch; ++e) {
      for (int64_t i = 0; i < extent(); ++i) {
        ordered[static_cast<size_t>(e * shape_.stride + i)] = raw[static_cast<size_t>(place(e) + i)];
      }
    }
    return ordered;
  }

 private:
  int64_t extent() const { return shape_.ld * (shape_.cols - 1) + shape_.rows; }
  int64_t place(int64_t e) const { return (reversed_ ? shape_.batch - 1 - e : e) * shape_.stride; }
  Numbers stored(const Numbers& ordered) const {
    Numbers result = ordered;
    for (int64_t e = 0; e < shape_.batch; ++e) {
      std::copy_n(ordered.values.begin() + e * shape_.stride, extent(), result.values.begin() + place(e));
    }
    return result;
  }

  Shape shape_;
  Numbers numbers_;
  bool reversed_;
  DeviceBytes memory_, list_;
};

Shape batch_shape(int64_t rows, int64_t cols, int64_t padding, int64_t batch, int64_t gap) {
  Shape shape = reference::packed(rows, cols, padding);
  shape.batch = batch;
  shape.stride = shape.ld * cols + gap;
  return shape;
}

TEST_F(GemmEntryTest, Entry_EveryNameEveryTypeEveryTranspose) {
  uint32_t seed = 1;
  size_t calls = 0;
  for (const Entry& entry : kEntries) {
    for (const Types& types : entry.types) {
      for (int transposes = 0; transposes < 4; ++transposes) {
        SCOPED_TRACE(testing::Message() << entry.name << ", " << types.name << ", transposes " << transposes);
        const bool ta = transposes & 1;
        const bool tb = transposes & 2;
        const int64_t batch = entry.form == Form::kSingle ? 1 : 3;
        const int64_t m = 13;
        const int64_t n = 7;
        const int64_t k = 18;
        Problem problem;
        problem.transpose_a = ta;
        problem.transpose_b = tb;
        problem.a = batch_shape(ta ? k : m, ta ? m : k, 3, batch, 5);
        problem.b = batch_shape(tb ? n : k, tb ? k : n, 1, batch, 2);
        problem.c = problem.d = batch_shape(m, n, 2, batch, 4);
        problem.alpha = -0.75;
        problem.beta = 0.5;
        problem.half_accumulator = types.compute == CUBLAS_COMPUTE_16F;
        problem.tf32 = types.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
        const Batch a(types.in, problem.a, entry.form, seed++);
        const Batch b(types.in, problem.b, entry.form, seed++);
        const Batch c(types.out, problem.c, entry.form, seed++);
        const Factor alpha(types.compute, problem.alpha);
        const Factor beta(types.compute, problem.beta);
        ASSERT_EQ(entry.run({handle_, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_C : CUBLAS_OP_N, m, n, k,
                             alpha.bytes, beta.bytes, a.operand(), b.operand(), c.operand(), batch, types.in.type,
                             types.out.type, types.compute}),
                  CUBLAS_STATUS_SUCCESS);
        ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
        EXPECT_PRODUCT(reference::compare(problem, a.numbers(), b.numbers(), c.numbers(), c.numbers(), c.patterns()));
        ++calls;
      }
    }
  }
  EXPECT_GE(calls, kEntries.size() * 4);
}

// What every entry point refuses, and what it lets pass without memory behind it.
TEST_F(GemmEntryTest, Entry_EachRefusesWrongArgumentsAndAcceptsEmptyOnes) {
  const DeviceBytes memory(constant_numbers(kFp32, 64, 1.0));
  std::vector<void*> addresses(2, memory.get());
  const DeviceBytes list(addresses.size() * sizeof(void*));
  ASSERT_EQ(cudaMemcpy(list.get(), addresses.data(), 2 * sizeof(void*), cudaMemcpyHostToDevice), cudaSuccess);
  for (const Entry& entry : kEntries) {
    const Types& types = entry.types.front();
    const Factor one(types.compute, 1.0);
    const Operand operand{memory.get(), list.as<void*>(), 4, 16};
    const Call good{handle_,       CUBLAS_OP_N,    CUBLAS_OP_N,  4,       3,       4,
                    one.bytes,     one.bytes,      operand,      operand, operand, 2,
                    types.in.type, types.out.type, types.compute};
    const auto status = [&](const std::function<void(Call&)>& change) {
      Call call = good;
      change(call);
      return entry.run(call);
    };
    SCOPED_TRACE(entry.name);
    EXPECT_EQ(status([](Call&) {}), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(status([](Call& x) { x.handle = nullptr; }), CUBLAS_STATUS_NOT_INITIALIZED);
    EXPECT_EQ(status([](Call& x) { x.m = -1; }), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(status([](Call& x) { x.n = -1; }), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(status([](Call& x) { x.k = -1; }), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(status([](Call& x) { x.a.ld = 3; }), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(status([](Call& x) { x.b.ld = 3; }), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(status([](Call& x) { x.c.ld = 3; }), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(status([](Call& x) { x.transa = 7; }), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(status([](Call& x) { x.transb = -1; }), CUBLAS_STATUS_INVALID_VALUE);
    EXPECT_EQ(status([](Call& x) { x.c.data = nullptr, x.c.list = nullptr; }), CUBLAS_STATUS_INVALID_VALUE);
    const Operand nothing{nullptr, nullptr, 4, 16};
    EXPECT_EQ(status([&](Call& x) { x.m = 0, x.a = x.b = x.c = nothing; }), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(status([&](Call& x) { x.n = 0, x.a = x.b = x.c = nothing; }), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(status([&](Call& x) { x.k = 0, x.a = x.b = nothing; }), CUBLAS_STATUS_SUCCESS);
    if (entry.form != Form::kSingle) {
      EXPECT_EQ(status([](Call& x) { x.batch = -1; }), CUBLAS_STATUS_INVALID_VALUE);
    }
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
}

// ---- batches by pointers

// The list of addresses, and a device scalar, are read when the work runs, and never by the calling thread.
TEST_F(GemmEntryTest, Pointers_AreReadWhenTheWorkRuns) {
  ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  const DeviceBytes x(constant_numbers(kFp32, 2, 3.0));
  const DeviceBytes c(constant_numbers(kFp32, 2, 10.0));
  const DeviceBytes scalars(constant_numbers(kFp32, 2, 100.0));
  const DeviceBytes lists(6 * sizeof(float*));
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  {
    Gate gate(stream_);
    auto* list = lists.as<float*>();
    ASSERT_EQ(cublasSgemmBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, scalars.as<float>(), list, 1, list + 2, 1,
                                 scalars.as<float>() + 1, list + 4, 1, 2),
              CUBLAS_STATUS_SUCCESS);
    float* const addresses[] = {x.as<float>(), x.as<float>() + 1, x.as<float>(),
                                x.as<float>(), c.as<float>() + 1, c.as<float>()};
    const float late[] = {2.0f, 1.0f};
    ASSERT_EQ(cudaMemcpyAsync(lists.get(), addresses, sizeof addresses, cudaMemcpyHostToDevice, other), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(scalars.get(), late, sizeof late, cudaMemcpyHostToDevice, other), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  }
  for (const uint32_t bits : c.patterns(kFp32)) EXPECT_EQ(bits, reference::bits_of(28.0f));
  ASSERT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

// Zero alpha: the lists of A and B may be null. Zero beta: a NaN in C is not read.
TEST_F(GemmEntryTest, Pointers_UnusedOperandsNeedNoList) {
  const DeviceBytes c(constant_numbers(kFp32, 1, std::numeric_limits<double>::quiet_NaN()));
  const DeviceBytes list(sizeof(void*));
  void* address = c.get();
  ASSERT_EQ(cudaMemcpy(list.get(), &address, sizeof address, cudaMemcpyHostToDevice), cudaSuccess);
  const float zero = 0.0f;
  ASSERT_EQ(cublasSgemmBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &zero, nullptr, 1, nullptr, 1, &zero,
                               list.as<float*>(), 1, 1),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(c.patterns(kFp32)[0], reference::bits_of(0.0f));
}

TEST_F(GemmEntryTest, Batch_MoreThan65535Entries) {
  constexpr int kBatch = 65536 + 64;
  const Numbers a = random_numbers(kFp16, 4 * kBatch, 1);
  const Numbers b = random_numbers(kFp16, 4, 2);
  const Numbers c = constant_numbers(kFp16, 4 * kBatch, 0.0);
  const DeviceBytes a_dev(a);
  const DeviceBytes b_dev(b);
  const __half one = __float2half(1.0f);
  const __half zero = __float2half(0.0f);
  Problem problem;
  problem.a = problem.c = problem.d = batch_shape(2, 2, 0, kBatch, 0);
  problem.b = batch_shape(2, 2, 0, kBatch, 0);
  problem.b.stride = 0;
  problem.half_accumulator = true;
  std::vector<void*> addresses;
  for (int e = 0; e < kBatch; ++e) addresses.push_back(a_dev.as<__half>() + 4 * e);
  const DeviceBytes a_list(addresses.size() * sizeof(void*));
  const DeviceBytes b_list(addresses.size() * sizeof(void*));
  const DeviceBytes c_list(addresses.size() * sizeof(void*));
  const size_t bytes = addresses.size() * sizeof(void*);
  ASSERT_EQ(cudaMemcpy(a_list.get(), addresses.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  std::fill(addresses.begin(), addresses.end(), b_dev.get());
  ASSERT_EQ(cudaMemcpy(b_list.get(), addresses.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  for (const bool by_pointers : {false, true}) {
    const DeviceBytes c_dev(c);
    for (int e = 0; e < kBatch; ++e) addresses[static_cast<size_t>(e)] = c_dev.as<__half>() + 4 * e;
    ASSERT_EQ(cudaMemcpy(c_list.get(), addresses.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_EQ(by_pointers
                  ? cublasHgemmBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a_list.as<__half*>(), 2,
                                       b_list.as<__half*>(), 2, &zero, c_list.as<__half*>(), 2, kBatch)
                  : cublasHgemmStridedBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a_dev.as<__half>(), 2,
                                              4, b_dev.as<__half>(), 2, 0, &zero, c_dev.as<__half>(), 2, 4, kBatch),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_PRODUCT(reference::compare(problem, a, b, c, c, c_dev.patterns(kFp16)));
  }
}

// ---- groups

TEST_F(GemmEntryTest, Groups_EachHasItsOwnShapeScalarsAndTransposes) {
  const cublasOperation_t transa[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_N};
  const cublasOperation_t transb[] = {CUBLAS_OP_T, CUBLAS_OP_N, CUBLAS_OP_N};
  const int m[] = {5, 12, 3};
  const int n[] = {9, 4, 3};
  const int k[] = {7, 20, 0};
  const int count[] = {2, 1, 3};
  const float alpha[] = {1.5f, -1.0f, 9.0f};
  const float beta[] = {0.0f, 2.0f, -0.5f};
  int lda[3];
  int ldb[3];
  int ldc[3];
  std::vector<Problem> problems;
  std::vector<std::unique_ptr<Batch>> a;
  std::vector<std::unique_ptr<Batch>> b;
  std::vector<std::unique_ptr<Batch>> c;
  std::vector<void*> a_list;
  std::vector<void*> b_list;
  std::vector<void*> c_list;
  for (int g = 0; g < 3; ++g) {
    Problem problem;
    problem.transpose_a = transa[g] != CUBLAS_OP_N;
    problem.transpose_b = transb[g] != CUBLAS_OP_N;
    problem.alpha = alpha[g];
    problem.beta = beta[g];
    const int depth = std::max(k[g], 1);
    problem.a = batch_shape(problem.transpose_a ? depth : m[g], problem.transpose_a ? m[g] : depth, 1, count[g], 3);
    problem.b = batch_shape(problem.transpose_b ? n[g] : depth, problem.transpose_b ? depth : n[g], 2, count[g], 0);
    problem.c = problem.d = batch_shape(m[g], n[g], 3, count[g], 1);
    lda[g] = static_cast<int>(problem.a.ld);
    ldb[g] = static_cast<int>(problem.b.ld);
    ldc[g] = static_cast<int>(problem.c.ld);
    a.push_back(std::make_unique<Batch>(kFp32, problem.a, Form::kStrided, 3u * static_cast<uint32_t>(g) + 1));
    b.push_back(std::make_unique<Batch>(kFp32, problem.b, Form::kStrided, 3u * static_cast<uint32_t>(g) + 2));
    c.push_back(std::make_unique<Batch>(kFp32, problem.c, Form::kStrided, 3u * static_cast<uint32_t>(g) + 3));
    for (int e = 0; e < count[g]; ++e) {
      a_list.push_back(static_cast<float*>(a.back()->operand().data) + e * problem.a.stride);
      b_list.push_back(static_cast<float*>(b.back()->operand().data) + e * problem.b.stride);
      c_list.push_back(static_cast<float*>(c.back()->operand().data) + e * problem.c.stride);
    }
    if (k[g] == 0) problem.alpha = 0.0;  // nothing is summed
    problems.push_back(problem);
  }
  const size_t bytes = a_list.size() * sizeof(void*);
  const DeviceBytes a_dev(bytes);
  const DeviceBytes b_dev(bytes);
  const DeviceBytes c_dev(bytes);
  ASSERT_EQ(cudaMemcpy(a_dev.get(), a_list.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(b_dev.get(), b_list.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(c_dev.get(), c_list.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cublasSgemmGroupedBatched(handle_, transa, transb, m, n, k, alpha, a_dev.as<float*>(), lda,
                                      b_dev.as<float*>(), ldb, beta, c_dev.as<float*>(), ldc, 3, count),
            CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  for (size_t g = 0; g < 3; ++g) {
    SCOPED_TRACE(testing::Message() << "group " << g);
    EXPECT_PRODUCT(reference::compare(problems[g], a[g]->numbers(), b[g]->numbers(), c[g]->numbers(), c[g]->numbers(),
                                      c[g]->patterns()));
  }
}

// A wrong last group leaves the first one's C alone; DEVICE pointer mode and unlisted types are refused.
TEST_F(GemmEntryTest, Groups_AreCheckedBeforeAnyIsRun) {
  const DeviceBytes x(constant_numbers(kFp32, 1, 3.0));
  const DeviceBytes c(constant_numbers(kFp32, 1, 10.0));
  void* const addresses[] = {x.get(), x.get(), c.get(), c.get()};
  const DeviceBytes lists(sizeof addresses);
  ASSERT_EQ(cudaMemcpy(lists.get(), addresses, sizeof addresses, cudaMemcpyHostToDevice), cudaSuccess);
  const cublasOperation_t none[] = {CUBLAS_OP_N, CUBLAS_OP_N};
  const int ones[] = {1, 1};
  const int wrong[] = {1, -1};
  const float alpha[] = {1.0f, 1.0f};
  auto* list = lists.as<float*>();
  const auto call = [&](const int* m, const int* lda, const int* count, cudaDataType out, cublasComputeType_t compute) {
    return cublasGemmGroupedBatchedEx(handle_, none, none, m, ones, ones, alpha,
                                      reinterpret_cast<const void* const*>(list), CUDA_R_32F, lda,
                                      reinterpret_cast<const void* const*>(list), CUDA_R_32F, ones, alpha,
                                      reinterpret_cast<void* const*>(list + 2), out, ones, 2, count, compute);
  };
  EXPECT_EQ(call(wrong, ones, ones, CUDA_R_32F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call(ones, wrong, ones, CUDA_R_32F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call(ones, ones, wrong, CUDA_R_32F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(call(ones, ones, ones, CUDA_R_16F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(call(ones, ones, ones, CUDA_R_32F, CUBLAS_COMPUTE_16F), CUBLAS_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call(ones, ones, ones, CUDA_R_32F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_HOST), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(c.patterns(kFp32)[0], reference::bits_of(10.0f));
  EXPECT_EQ(call(ones, ones, ones, CUDA_R_32F, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(c.patterns(kFp32)[0], reference::bits_of(28.0f));
}

// ---- sizes

// Leading dimensions and batch strides beyond 2^31 elements: the pages between are never touched.
TEST_F(GemmEntryTest, Sizes_OffsetsPassTwoToThe31Elements) {
  constexpr int64_t kFar = (int64_t{1} << 31) + 16;
  uint16_t* c = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&c), 2 * (kFar + 2)), cudaSuccess);
  const DeviceBytes x(constant_numbers(kBf16, 4, 3.0));
  const float one = 1.0f;
  const float zero = 0.0f;
  uint16_t got[2] = {};
  for (const bool batched : {false, true}) {
    ASSERT_EQ(cudaMemset(c, 0, 4), cudaSuccess);
    ASSERT_EQ(cudaMemset(c + kFar, 0, 4), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // a memset returns before it is done
    if (batched) {
      ASSERT_EQ(cublasGemmStridedBatchedEx_64(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 1, 1, &one, x.get(), CUDA_R_16BF, 2,
                                              0, x.get(), CUDA_R_16BF, 1, 0, &zero, c, CUDA_R_16BF, 2, kFar, 2,
                                              CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                CUBLAS_STATUS_SUCCESS);
    } else {
      ASSERT_EQ(cublasGemmEx_64(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 1, &one, x.get(), CUDA_R_16BF, 2, x.get(),
                                CUDA_R_16BF, 1, &zero, c, CUDA_R_16BF, kFar, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                CUBLAS_STATUS_SUCCESS);
    }
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    for (const int64_t offset : {int64_t{0}, kFar}) {
      ASSERT_EQ(cudaMemcpy(got, c + offset, sizeof got, cudaMemcpyDeviceToHost), cudaSuccess);
      for (const uint16_t bits : got) EXPECT_EQ(bits, reference::encode(kBf16, 9.0));
    }
  }
  ASSERT_EQ(cudaFree(c), cudaSuccess);
}

// ---- broken device rules

void run_bad_list_and_exit(int wrong) {
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  float* x = nullptr;
  void** list = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&x), 4);
  cudaMalloc(reinterpret_cast<void**>(&list), 3 * sizeof(void*));
  float host = 0.0f;
  void* addresses[] = {x, x, x};
  if (wrong == 1) addresses[1] = &host;
  if (wrong == 2) addresses[1] = nullptr;
  cudaMemcpy(list, addresses, sizeof addresses, cudaMemcpyHostToDevice);
  const float one = 1.0f;
  auto* const device = reinterpret_cast<float**>(list);
  float* on_host[] = {x, x, x};
  cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, device, 1, wrong == 3 ? on_host : device, 1, &one,
                     device, 1, wrong == 4 ? 4 : 3);
  cudaDeviceSynchronize();
  std::_Exit(0);
}

TEST(GemmEntryDeathTest, BadAddressesInAListEndTheProcessWithAClearLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ended = testing::ExitedWithCode(86);
  EXPECT_EXIT(run_bad_list_and_exit(0), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run_bad_list_and_exit(1), ended, "cublasSgemmBatched: A of batch entry 1 .*not accessible");
  EXPECT_EXIT(run_bad_list_and_exit(2), ended, "cublasSgemmBatched: A of batch entry 1 .*not accessible");
  EXPECT_EXIT(run_bad_list_and_exit(3), ended, "cublasSgemmBatched: the pointer array of B .*not accessible");
  EXPECT_EXIT(run_bad_list_and_exit(4), ended, "cublasSgemmBatched: the pointer array of A .*not accessible");
}

}  // namespace

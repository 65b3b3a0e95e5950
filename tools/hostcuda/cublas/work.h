// SPDX-License-Identifier: MIT
// The work of a BLAS call that is no product of the engine: takes a closure, gives an operation of the handle's stream;
// and what the closure sees of the call's arguments (scalars, vectors and matrices in device memory).
#pragma once

#pragma GCC visibility push(default)
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#pragma GCC visibility pop

#include <complex>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "tools/hostcuda/access.h"
#include "tools/hostcuda/cublas/context.h"
#include "tools/hostcuda/cublas/logger.h"
#include "tools/hostcuda/cublas/shapes.h"

namespace hostcuda {

// ---- numbers

// The type that arithmetic on elements of type T is done in. Values of complex types have the layout of cuBLAS's.
template <typename T>
struct NumberOf {
  using type = T;
};
template <>
struct NumberOf<cuComplex> {
  using type = std::complex<float>;
};
template <>
struct NumberOf<cuDoubleComplex> {
  using type = std::complex<double>;
};
template <>
struct NumberOf<__half> {
  using type = float;
};
template <>
struct NumberOf<__nv_bfloat16> {
  using type = float;
};
template <typename T>
using Number = typename NumberOf<std::remove_const_t<T>>::type;

template <typename T>
struct RealOf {
  using type = T;
};
template <typename T>
struct RealOf<std::complex<T>> {
  using type = T;
};
// The type of |x|.
template <typename T>
using Real = typename RealOf<Number<T>>::type;

// An element in memory as a number, and back (to nearest). Elements that are numbers stay references.
template <typename T>
struct Cell {
  T* place;
  operator float() const {
    if constexpr (std::is_same_v<std::remove_const_t<T>, __half>)
      return __half2float(*place);
    else
      return __bfloat162float(*place);
  }
  const Cell& operator=(float x) const {
    if constexpr (std::is_same_v<T, __half>)
      *place = __float2half_rn(x);
    else
      *place = __float2bfloat16_rn(x);
    return *this;
  }
  const Cell& operator=(const Cell& other) const { return *this = static_cast<float>(other); }
};

template <typename T>
inline constexpr bool kNarrow =
    std::is_same_v<std::remove_const_t<T>, __half> || std::is_same_v<std::remove_const_t<T>, __nv_bfloat16>;

// n elements, `inc` apart (negative: the first is the last in memory, as in BLAS).
template <typename T>
struct Strided {
  using Element = std::conditional_t<std::is_const_v<T>, const Number<T>, Number<T>>;
  T* first;
  int64_t inc;
  decltype(auto) operator[](int64_t i) const {
    if constexpr (kNarrow<T>)
      return Cell<T>{first + i * inc};
    else
      return *reinterpret_cast<Element*>(first + i * inc);
  }
};

// ---- putting work into the stream

// Runs work(Access&) in stream order. SUCCESS; EXECUTION_FAILED (wrong context, or the driver refused); ALLOC_FAILED.
template <typename Work>
cublasStatus_t enqueue(cublasHandle_t handle, const char* name, Work work) {
  if (!hostcuda_current_context() && hostcuda_use_device(-1) != CUDA_SUCCESS) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (hostcuda_current_context() != handle->head.context ||
      hostcuda_stream_context(handle->stream) != handle->head.context) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  struct Job {
    const char* name;
    Work work;
  };
  auto* job = new (std::nothrow) Job{name, std::move(work)};
  if (!job) return CUBLAS_STATUS_ALLOC_FAILED;
  const auto run = [](void* arg) {
    auto* self = static_cast<Job*>(arg);
    Access access{self->name};
    self->work(access);
  };
  const auto drop = [](void* arg) { delete static_cast<Job*>(arg); };
  if (hostcuda_enqueue_owned(handle->stream, run, drop, job, name) != CUDA_SUCCESS) {
    delete job;
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  log_call(name);
  return CUBLAS_STATUS_SUCCESS;
}

// ---- arguments as the work sees them. After a broken rule each gives nothing more: look at access.broken once, before
// the arithmetic.

// `count` elements at `address` (as the program knows it); `mode`: HOSTCUDA_READ, HOSTCUDA_WRITE or both.
template <typename T>
T* elements(Access& access, const std::string& what, T* address, int64_t count, int mode) {
  if (access.broken) return nullptr;
  int64_t bytes = -1;
  if (count < 0 || __builtin_mul_overflow(count, int64_t{sizeof(T)}, &bytes)) bytes = -1;
  return static_cast<T*>(view(&access, what, reinterpret_cast<CUdeviceptr>(address), bytes, int64_t{sizeof(T)}, mode));
}

template <typename T>
constexpr int kModeOf = std::is_const_v<T> ? HOSTCUDA_READ : HOSTCUDA_READ | HOSTCUDA_WRITE;

// Elements from the first to the last of a rows x cols matrix; -1 where that does not fit 63 bits.
inline int64_t span(int64_t rows, int64_t cols, int64_t ld) {
  int64_t elems = -1;
  if (__builtin_mul_overflow(cols - 1, ld, &elems) || __builtin_add_overflow(elems, rows, &elems)) return -1;
  return elems;
}

template <typename T>
Strided<T> vector(Access& access, const std::string& what, T* address, int64_t n, int64_t inc) {
  T* first = elements(access, what, address, span(1, n, inc < 0 ? -inc : inc), kModeOf<T>);
  return {first && inc < 0 ? first + (1 - n) * inc : first, inc};
}

template <typename T>
Dense<Number<T>> matrix(Access& access, const std::string& what, T* address, int64_t rows, int64_t cols, int64_t ld) {
  using Plain = std::remove_const_t<T>;
  return {reinterpret_cast<Number<T>*>(
              const_cast<Plain*>(elements(access, what, address, span(rows, cols, ld), kModeOf<T>))),
          ld};
}

// A scalar argument: its value now, or (DEVICE pointer mode) its address, read when the work runs.
template <typename T>
class Scalar {
 public:
  Scalar(cublasHandle_t handle, const T* pointer)
      : address_(handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE ? pointer : nullptr) {
    if (!address_ && pointer) value_ = (Strided<const T>{pointer, 1})[0];
  }
  Number<T> get(Access& access, const char* what) const {
    if (!address_) return value_;
    const Strided<const T> x{elements(access, what, address_, 1, HOSTCUDA_READ), 1};
    return x.first ? Number<T>(x[0]) : Number<T>{};
  }

 private:
  const T* address_;
  Number<T> value_{};
};

// A call with a scalar result: compute(Access&) gives it. HOST pointer mode waits for it, as documented, and is
// NOT_SUPPORTED in a capture; DEVICE pointer mode stores it in stream order.
template <typename R, typename Compute>
cublasStatus_t enqueue_result(cublasHandle_t handle, const char* name, R* result, Compute compute) {
  if (!result) return CUBLAS_STATUS_INVALID_VALUE;
  using Value = std::decay_t<decltype(compute(std::declval<Access&>()))>;
  if (handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    return enqueue(handle, name, [compute, result](Access& access) {
      const Value value = compute(access);
      const Strided<R> place{elements(access, "the result", result, 1, HOSTCUDA_WRITE), 1};
      if (!access.broken) place[0] = value;
    });
  }
  if (hostcuda_stream_capturing(handle->stream)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto value = std::make_shared<Value>();
  const cublasStatus_t status = enqueue(handle, name, [compute, value](Access& access) { *value = compute(access); });
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (hostcuda_stream_synchronize(handle->stream) != CUDA_SUCCESS) return CUBLAS_STATUS_EXECUTION_FAILED;
  (Strided<R>{result, 1})[0] = *value;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace hostcuda

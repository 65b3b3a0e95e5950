// SPDX-License-Identifier: MIT
// BLAS level 1 of libcublas: takes vectors in device memory, gives vectors or one number, in the handle's stream. Plain
// loops in order of the index, in the type of the elements (FP16 and BF16: in FP32); sums by halves, since a device
// adds many partial sums: one chain of FP32 additions loses all of a vector of 2^24 entries.
#include <cmath>

#include "tools/hostcuda/cublas/work.h"

namespace hostcuda {
namespace {

// ---- arithmetic

// |re| + |im|, by which BLAS compares and sums complex numbers.
template <typename T>
T size_of(T x) {
  return std::fabs(x);
}
template <typename T>
T size_of(std::complex<T> x) {
  return std::fabs(x.real()) + std::fabs(x.imag());
}

// Sum of term(i) over [first, last): runs of 128 in order of the index, then by halves.
template <typename T, typename Term>
T sum_of(int64_t first, int64_t last, const Term& term) {
  constexpr int64_t kRun = 128;
  if (last - first <= kRun) {
    T sum{};
    for (int64_t i = first; i < last; ++i) sum += term(i);
    return sum;
  }
  const int64_t runs = (last - first + kRun - 1) / kRun;
  const int64_t middle = first + runs / 2 * kRun;
  return sum_of<T>(first, middle, term) + sum_of<T>(middle, last, term);
}

// sqrt(sum |x|^2) without overflow on the way: scaled by the largest entry.
template <typename X>
auto norm_of(int64_t n, const X& x) {
  using N = std::decay_t<Number<std::decay_t<decltype(x.first[0])>>>;
  using R = Real<N>;
  R largest{};
  for (int64_t i = 0; i < n; ++i) {
    const R size = size_of(N(x[i]));
    if (!(size <= largest)) largest = size;
  }
  if (!(largest > R{}) || !std::isfinite(largest)) return largest;
  const R sum = sum_of<R>(0, n, [&](int64_t i) {
    const N scaled = N(x[i]) / largest;
    return R(std::real(scaled * conjugate(scaled)));
  });
  return largest * std::sqrt(sum);
}

// First place, from 1, of the entry of largest or smallest size.
template <typename X>
int64_t extreme_of(int64_t n, const X& x, bool largest) {
  using N = std::decay_t<Number<std::decay_t<decltype(x.first[0])>>>;
  int64_t place = 0;
  for (int64_t i = 1; i < n; ++i) {
    const auto size = size_of(N(x[i]));
    const auto best = size_of(N(x[place]));
    if (largest ? size > best : size < best) place = i;
  }
  return place + 1;
}

// Modified Givens rotation H (BLAS): param[0] says which entries of H are as param[1..4] and which are fixed.
template <typename T>
struct Modified {
  T h11, h21, h12, h22;
  bool identity;
  explicit Modified(const T* param)
      : h11(param[1]), h21(param[2]), h12(param[3]), h22(param[4]), identity(param[0] == T(-2)) {
    if (param[0] == T(0)) h11 = h22 = T(1);
    if (param[0] == T(1)) h12 = T(1), h21 = T(-1);
  }
};

// a, b become r, z of the plane rotation c, s that takes (a, b) to (r, 0).
template <typename T>
void make_rotation(T& a, T& b, T& c, T& s) {
  const T roe = std::fabs(a) > std::fabs(b) ? a : b;
  const T scale = std::fabs(a) + std::fabs(b);
  if (scale == T{}) {
    a = b = s = T{};
    c = T(1);
    return;
  }
  const T r = std::copysign(scale * std::hypot(a / scale, b / scale), roe);
  c = a / r;
  s = b / r;
  const T z = std::fabs(a) > std::fabs(b) ? s : c != T{} ? T(1) / c : T(1);
  a = r;
  b = z;
}
template <typename T>
void make_rotation(std::complex<T>& a, std::complex<T>& b, T& c, std::complex<T>& s) {
  if (std::abs(a) == T{}) {
    c = T{};
    s = T(1);
    a = b;
    return;
  }
  const T norm = std::hypot(std::abs(a), std::abs(b));
  const std::complex<T> phase = a / std::abs(a);
  c = std::abs(a) / norm;
  s = phase * std::conj(b) / norm;
  a = phase * norm;
}

// The modified Givens transformation that takes sqrt(d1) x1, sqrt(d2) y1 to its first component alone, with the factors
// kept between 1 / kLarge^2 and kLarge^2 by rescaling (Lawson, Hanson, Kincaid, Krogh 1979).
template <typename T>
void make_modified(T& d1, T& d2, T& x1, T y1, T* param) {
  constexpr T kLarge = 4096;
  T h11{}, h12{}, h21{}, h22{};
  T flag = -1;
  if (d1 < T{}) {
    d1 = d2 = x1 = T{};
  } else {
    const T p2 = d2 * y1;
    if (p2 == T{}) {
      param[0] = -2;
      return;
    }
    const T p1 = d1 * x1;
    const T q2 = p2 * y1;
    const T q1 = p1 * x1;
    if (std::fabs(q1) > std::fabs(q2)) {
      h21 = -y1 / x1;
      h12 = p2 / p1;
      const T u = T(1) - h12 * h21;
      if (u > T{}) {
        flag = 0;
        d1 /= u;
        d2 /= u;
        x1 *= u;
      } else {
        h12 = h21 = d1 = d2 = x1 = T{};
      }
    } else if (q2 < T{}) {
      d1 = d2 = x1 = T{};
    } else {
      flag = 1;
      h11 = p1 / p2;
      h22 = x1 / y1;
      const T u = T(1) + h11 * h22;
      const T kept = d2 / u;
      d2 = d1 / u;
      d1 = kept;
      x1 = y1 * u;
    }
    // A rescaled H has no fixed entries any more.
    const auto all_entries = [&] {
      if (flag == T(0)) h11 = h22 = T(1);
      if (flag == T(1)) h21 = T(-1), h12 = T(1);
      flag = -1;
    };
    while (d1 != T{} && (d1 <= 1 / (kLarge * kLarge) || d1 >= kLarge * kLarge)) {
      all_entries();
      const T by = d1 <= 1 / (kLarge * kLarge) ? kLarge : 1 / kLarge;
      d1 *= by * by;
      x1 /= by;
      h11 /= by;
      h12 /= by;
    }
    while (d2 != T{} && (std::fabs(d2) <= 1 / (kLarge * kLarge) || std::fabs(d2) >= kLarge * kLarge)) {
      all_entries();
      const T by = std::fabs(d2) <= 1 / (kLarge * kLarge) ? kLarge : 1 / kLarge;
      d2 *= by * by;
      h21 /= by;
      h22 /= by;
    }
  }
  param[0] = flag;
  if (flag != T(1)) param[2] = h21, param[3] = h12;
  if (flag != T(0)) param[1] = h11, param[4] = h22;
}

// ---- calls

constexpr cublasStatus_t kDone = CUBLAS_STATUS_SUCCESS;
constexpr cublasStatus_t kNoHandle = CUBLAS_STATUS_NOT_INITIALIZED;
constexpr cublasStatus_t kWrong = CUBLAS_STATUS_INVALID_VALUE;

template <typename A, typename X>
cublasStatus_t axpy(const char* name, cublasHandle_t handle, int64_t n, const A* alpha, const X* x, int64_t incx, X* y,
                    int64_t incy) {
  if (!live(handle)) return kNoHandle;
  if (n <= 0) return kDone;
  if (!alpha) return kWrong;
  const Scalar<A> factor(handle, alpha);
  return enqueue(handle, name, [=](Access& access) {
    const Number<A> a = factor.get(access, "alpha");
    if (access.broken || a == Number<A>{}) return;
    const auto from = vector(access, "x", x, n, incx);
    const auto to = vector(access, "y", y, n, incy);
    if (access.broken) return;
    for (int64_t i = 0; i < n; ++i) to[i] = a * Number<X>(from[i]) + Number<X>(to[i]);
  });
}

template <typename A, typename X>
cublasStatus_t scal(const char* name, cublasHandle_t handle, int64_t n, const A* alpha, X* x, int64_t incx) {
  if (!live(handle)) return kNoHandle;
  if (n <= 0 || incx <= 0) return kDone;
  if (!alpha) return kWrong;
  const Scalar<A> factor(handle, alpha);
  return enqueue(handle, name, [=](Access& access) {
    const Number<A> a = factor.get(access, "alpha");
    const auto to = vector(access, "x", x, n, incx);
    if (access.broken) return;
    for (int64_t i = 0; i < n; ++i) to[i] = a * Number<X>(to[i]);
  });
}

template <typename X>
cublasStatus_t copy(const char* name, cublasHandle_t handle, int64_t n, const X* x, int64_t incx, X* y, int64_t incy) {
  if (!live(handle)) return kNoHandle;
  if (n <= 0) return kDone;
  return enqueue(handle, name, [=](Access& access) {
    const auto from = vector(access, "x", x, n, incx);
    const auto to = vector(access, "y", y, n, incy);
    if (access.broken) return;
    for (int64_t i = 0; i < n; ++i) to.first[i * to.inc] = from.first[i * from.inc];
  });
}

template <typename X>
cublasStatus_t swap(const char* name, cublasHandle_t handle, int64_t n, X* x, int64_t incx, X* y, int64_t incy) {
  if (!live(handle)) return kNoHandle;
  if (n <= 0) return kDone;
  return enqueue(handle, name, [=](Access& access) {
    const auto one = vector(access, "x", x, n, incx);
    const auto other = vector(access, "y", y, n, incy);
    if (access.broken) return;
    for (int64_t i = 0; i < n; ++i) std::swap(one.first[i * one.inc], other.first[i * other.inc]);
  });
}

template <typename X>
cublasStatus_t dot(const char* name, cublasHandle_t handle, int64_t n, const X* x, int64_t incx, const X* y,
                   int64_t incy, X* result, bool conjugated) {
  if (!live(handle)) return kNoHandle;
  return enqueue_result(handle, name, result, [=](Access& access) {
    if (n <= 0) return Number<X>{};
    const auto left = vector(access, "x", x, n, incx);
    const auto right = vector(access, "y", y, n, incy);
    return sum_of<Number<X>>(0, access.broken ? 0 : n, [&](int64_t i) {
      const Number<X> factor = left[i];
      return Number<X>((conjugated ? conjugate(factor) : factor) * Number<X>(right[i]));
    });
  });
}

enum class Reduction { kNorm, kSizes };

template <typename X, typename R>
cublasStatus_t reduce(const char* name, cublasHandle_t handle, int64_t n, const X* x, int64_t incx, R* result,
                      Reduction what) {
  if (!live(handle)) return kNoHandle;
  return enqueue_result(handle, name, result, [=](Access& access) {
    Real<X> sum{};
    if (n <= 0 || incx <= 0) return sum;
    const auto from = vector(access, "x", x, n, incx);
    if (access.broken) return sum;
    if (what == Reduction::kNorm) return Real<X>(norm_of(n, from));
    return sum_of<Real<X>>(0, n, [&](int64_t i) { return Real<X>(size_of(Number<X>(from[i]))); });
  });
}

template <typename X, typename Size>
cublasStatus_t extreme(const char* name, cublasHandle_t handle, int64_t n, const X* x, int64_t incx, Size* result,
                       bool largest) {
  if (!live(handle)) return kNoHandle;
  return enqueue_result(handle, name, result, [=](Access& access) {
    if (n <= 0 || incx <= 0) return Size{0};
    const auto from = vector(access, "x", x, n, incx);
    return access.broken ? Size{0} : static_cast<Size>(extreme_of(n, from, largest));
  });
}

template <typename X, typename C, typename S>
cublasStatus_t rot(const char* name, cublasHandle_t handle, int64_t n, X* x, int64_t incx, X* y, int64_t incy,
                   const C* c, const S* s) {
  if (!live(handle)) return kNoHandle;
  if (n <= 0) return kDone;
  if (!c || !s) return kWrong;
  const Scalar<C> cosine(handle, c);
  const Scalar<S> sine(handle, s);
  return enqueue(handle, name, [=](Access& access) {
    const Number<C> cos = cosine.get(access, "c");
    const Number<S> sin = sine.get(access, "s");
    const auto one = vector(access, "x", x, n, incx);
    const auto other = vector(access, "y", y, n, incy);
    if (access.broken) return;
    for (int64_t i = 0; i < n; ++i) {
      const Number<X> a = one[i];
      const Number<X> b = other[i];
      one[i] = cos * a + sin * b;
      other[i] = cos * b - conjugate(sin) * a;
    }
  });
}

template <typename X>
cublasStatus_t rotm(const char* name, cublasHandle_t handle, int64_t n, X* x, int64_t incx, X* y, int64_t incy,
                    const X* param) {
  if (!live(handle)) return kNoHandle;
  if (n <= 0) return kDone;
  if (!param) return kWrong;
  struct Five {
    Number<X> values[5];
  } now{};
  const bool on_device = handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
  for (int i = 0; !on_device && i < 5; ++i) now.values[i] = (Strided<const X>{param, 1})[i];
  return enqueue(handle, name, [=](Access& access) {
    Five five = now;
    if (on_device) {
      const Strided<const X> given{elements(access, "param", param, 5, HOSTCUDA_READ), 1};
      for (int i = 0; !access.broken && i < 5; ++i) five.values[i] = given[i];
    }
    const auto one = vector(access, "x", x, n, incx);
    const auto other = vector(access, "y", y, n, incy);
    if (access.broken) return;
    const Modified<Number<X>> h(five.values);
    for (int64_t i = 0; i < (h.identity ? 0 : n); ++i) {
      const Number<X> a = one[i];
      const Number<X> b = other[i];
      one[i] = h.h11 * a + h.h12 * b;
      other[i] = h.h21 * a + h.h22 * b;
    }
  });
}

// What rotg and rotmg read and write lies in host memory (HOST pointer mode: done on return, whatever is in the stream)
// or in device memory. compute(place...) gets one reference of T for each pointer of `count` values.
template <typename T>
struct Place {
  const char* what;
  T* pointer;
  int64_t count;
};
template <typename Compute, typename... T>
cublasStatus_t in_place(const char* name, cublasHandle_t handle, Compute compute, Place<T>... places) {
  if (!live(handle)) return kNoHandle;
  if ((... || !places.pointer)) return kWrong;
  if (handle->pointer_mode == CUBLAS_POINTER_MODE_HOST) {
    compute(reinterpret_cast<Number<T>*>(places.pointer)...);
    return kDone;
  }
  return enqueue(handle, name, [=](Access& access) {
    const std::tuple<Number<T>*...> found{reinterpret_cast<Number<T>*>(
        elements(access, places.what, places.pointer, places.count, HOSTCUDA_READ | HOSTCUDA_WRITE))...};
    if (!access.broken) std::apply(compute, found);
  });
}

template <typename X, typename C>
cublasStatus_t rotg(const char* name, cublasHandle_t handle, X* a, X* b, C* c, X* s) {
  using N = Number<X>;
  return in_place(
      name, handle, [](N* pa, N* pb, C* pc, N* ps) { make_rotation(*pa, *pb, *pc, *ps); }, Place<X>{"a", a, 1},
      Place<X>{"b", b, 1}, Place<C>{"c", c, 1}, Place<X>{"s", s, 1});
}

template <typename X>
cublasStatus_t rotmg(const char* name, cublasHandle_t handle, X* d1, X* d2, X* x1, const X* y1, X* param) {
  return in_place(
      name, handle, [](X* p1, X* p2, X* px, X* py, X* pp) { make_modified(*p1, *p2, *px, *py, pp); },
      Place<X>{"d1", d1, 1}, Place<X>{"d2", d2, 1}, Place<X>{"x1", x1, 1}, Place<X>{"y1", const_cast<X*>(y1), 1},
      Place<X>{"param", param, 5});
}

// ---- types named at run time

// use(element) with a null pointer of the element type that `type` names; NOT_SUPPORTED for another.
template <typename Use>
cublasStatus_t with_type(int type, Use use) {
  switch (type) {
    case CUDA_R_16F:
      return use(static_cast<__half*>(nullptr));
    case CUDA_R_16BF:
      return use(static_cast<__nv_bfloat16*>(nullptr));
    case CUDA_R_32F:
      return use(static_cast<float*>(nullptr));
    case CUDA_R_64F:
      return use(static_cast<double*>(nullptr));
    case CUDA_C_32F:
      return use(static_cast<cuComplex*>(nullptr));
    case CUDA_C_64F:
      return use(static_cast<cuDoubleComplex*>(nullptr));
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

// The type that the arithmetic on elements of `type` runs in, and the type of their absolute values.
int execution_of(int type) {
  return type == CUDA_R_16F || type == CUDA_R_16BF ? CUDA_R_32F : type;
}
int real_of(int type) {
  return type == CUDA_C_32F ? CUDA_R_32F : type == CUDA_C_64F ? CUDA_R_64F : type;
}

template <typename X>
using ResultOf = std::conditional_t<std::is_same_v<X, cuComplex>, float,
                                    std::conditional_t<std::is_same_v<X, cuDoubleComplex>, double, X>>;

// For the type of x, use(element, scalar): the scalar is of the execution type or (narrow elements) of their own.
template <typename Use>
cublasStatus_t with_scalar(int type, int scalar, int execution, Use use) {
  return with_type(type, [&](auto* element) -> cublasStatus_t {
    using X = std::remove_pointer_t<decltype(element)>;
    if (execution != execution_of(type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (scalar == type) return use(element, element);
    if constexpr (kNarrow<X>) {
      if (scalar == CUDA_R_32F) return use(element, static_cast<float*>(nullptr));
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
  });
}

cublasStatus_t reduce_ex(const char* name, cublasHandle_t handle, int64_t n, const void* x, int type, int64_t incx,
                         void* result, int result_type, int execution, Reduction what) {
  if (!live(handle)) return kNoHandle;
  if (result_type != real_of(type) || execution != execution_of(real_of(type))) return CUBLAS_STATUS_NOT_SUPPORTED;
  return with_type(type, [&](auto* element) {
    using X = std::remove_pointer_t<decltype(element)>;
    return reduce(name, handle, n, static_cast<const X*>(x), incx, static_cast<ResultOf<X>*>(result), what);
  });
}

cublasStatus_t dot_ex(const char* name, cublasHandle_t handle, int64_t n, const void* x, int x_type, int64_t incx,
                      const void* y, int y_type, int64_t incy, void* result, int result_type, int execution,
                      bool conjugated) {
  if (!live(handle)) return kNoHandle;
  if (x_type != y_type || x_type != result_type || execution != execution_of(x_type)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return with_type(x_type, [&](auto* element) {
    using X = std::remove_pointer_t<decltype(element)>;
    return dot(name, handle, n, static_cast<const X*>(x), incx, static_cast<const X*>(y), incy, static_cast<X*>(result),
               conjugated);
  });
}

cublasStatus_t scal_ex(const char* name, cublasHandle_t handle, int64_t n, const void* alpha, int alpha_type, void* x,
                       int type, int64_t incx, int execution) {
  if (!live(handle)) return kNoHandle;
  return with_scalar(type, alpha_type, execution, [&](auto* element, auto* scalar) {
    using X = std::remove_pointer_t<decltype(element)>;
    using A = std::remove_pointer_t<decltype(scalar)>;
    return scal(name, handle, n, static_cast<const A*>(alpha), static_cast<X*>(x), incx);
  });
}

cublasStatus_t axpy_ex(const char* name, cublasHandle_t handle, int64_t n, const void* alpha, int alpha_type,
                       const void* x, int x_type, int64_t incx, void* y, int y_type, int64_t incy, int execution) {
  if (!live(handle)) return kNoHandle;
  if (x_type != y_type) return CUBLAS_STATUS_NOT_SUPPORTED;
  return with_scalar(x_type, alpha_type, execution, [&](auto* element, auto* scalar) {
    using X = std::remove_pointer_t<decltype(element)>;
    using A = std::remove_pointer_t<decltype(scalar)>;
    return axpy(name, handle, n, static_cast<const A*>(alpha), static_cast<const X*>(x), incx, static_cast<X*>(y),
                incy);
  });
}

cublasStatus_t copy_ex(const char* name, cublasHandle_t handle, int64_t n, const void* x, int x_type, int64_t incx,
                       void* y, int y_type, int64_t incy) {
  if (!live(handle)) return kNoHandle;
  if (x_type != y_type) return CUBLAS_STATUS_NOT_SUPPORTED;
  return with_type(x_type, [&](auto* element) {
    using X = std::remove_pointer_t<decltype(element)>;
    return copy(name, handle, n, static_cast<const X*>(x), incx, static_cast<X*>(y), incy);
  });
}

cublasStatus_t swap_ex(const char* name, cublasHandle_t handle, int64_t n, void* x, int x_type, int64_t incx, void* y,
                       int y_type, int64_t incy) {
  if (!live(handle)) return kNoHandle;
  if (x_type != y_type) return CUBLAS_STATUS_NOT_SUPPORTED;
  return with_type(x_type, [&](auto* element) {
    using X = std::remove_pointer_t<decltype(element)>;
    return swap(name, handle, n, static_cast<X*>(x), incx, static_cast<X*>(y), incy);
  });
}

template <typename Size>
cublasStatus_t extreme_ex(const char* name, cublasHandle_t handle, int64_t n, const void* x, int type, int64_t incx,
                          Size* result, bool largest) {
  if (!live(handle)) return kNoHandle;
  return with_type(type, [&](auto* element) {
    using X = std::remove_pointer_t<decltype(element)>;
    return extreme(name, handle, n, static_cast<const X*>(x), incx, result, largest);
  });
}

cublasStatus_t rot_ex(const char* name, cublasHandle_t handle, int64_t n, void* x, int x_type, int64_t incx, void* y,
                      int y_type, int64_t incy, const void* c, const void* s, int cs_type, int execution) {
  if (!live(handle)) return kNoHandle;
  if (x_type != y_type || execution != execution_of(x_type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  return with_type(x_type, [&](auto* element) -> cublasStatus_t {
    using X = std::remove_pointer_t<decltype(element)>;
    using R = ResultOf<X>;
    auto* one = static_cast<X*>(x);
    auto* other = static_cast<X*>(y);
    if (cs_type == x_type) {  // the cosine is real, whatever the sine is
      return rot(name, handle, n, one, incx, other, incy, static_cast<const R*>(c), static_cast<const X*>(s));
    }
    if (cs_type == real_of(x_type)) {
      return rot(name, handle, n, one, incx, other, incy, static_cast<const R*>(c), static_cast<const R*>(s));
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
  });
}

cublasStatus_t rotm_ex(const char* name, cublasHandle_t handle, int64_t n, void* x, int x_type, int64_t incx, void* y,
                       int y_type, int64_t incy, const void* param, int param_type, int execution) {
  if (!live(handle)) return kNoHandle;
  if (x_type != y_type || x_type != param_type || execution != execution_of(x_type) || real_of(x_type) != x_type) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return with_type(x_type, [&](auto* element) -> cublasStatus_t {
    using X = std::remove_pointer_t<decltype(element)>;
    if constexpr (std::is_same_v<X, ResultOf<X>>) {
      return rotm(name, handle, n, static_cast<X*>(x), incx, static_cast<X*>(y), incy, static_cast<const X*>(param));
    } else {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  });
}

cublasStatus_t rotg_ex(const char* name, cublasHandle_t handle, void* a, void* b, int type, void* c, void* s,
                       int cs_type, int execution) {
  if (!live(handle)) return kNoHandle;
  if (cs_type != type || execution != type) return CUBLAS_STATUS_NOT_SUPPORTED;
  return with_type(type, [&](auto* element) -> cublasStatus_t {
    using X = std::remove_pointer_t<decltype(element)>;
    if constexpr (kNarrow<X>) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    } else {
      return rotg(name, handle, static_cast<X*>(a), static_cast<X*>(b), static_cast<ResultOf<X>*>(c),
                  static_cast<X*>(s));
    }
  });
}

cublasStatus_t rotmg_ex(const char* name, cublasHandle_t handle, void* d1, void* d2, void* x1, const void* y1,
                        void* param, int type) {
  if (!live(handle)) return kNoHandle;
  if (type == CUDA_R_32F) {
    return rotmg(name, handle, static_cast<float*>(d1), static_cast<float*>(d2), static_cast<float*>(x1),
                 static_cast<const float*>(y1), static_cast<float*>(param));
  }
  if (type == CUDA_R_64F) {
    return rotmg(name, handle, static_cast<double*>(d1), static_cast<double*>(d2), static_cast<double*>(x1),
                 static_cast<const double*>(y1), static_cast<double*>(param));
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace
}  // namespace hostcuda

// ---- entry points: each shape once, for the element types and both widths of sizes

// clang-format off
#define HOSTCUDA_WIDTHS(shape, name, ...) shape(name, int, __VA_ARGS__) shape(name##_64, int64_t, __VA_ARGS__)
#define HOSTCUDA_AXPY(name, Size, X)                                                                                   \
  cublasStatus_t name(cublasHandle_t handle, Size n, const X* alpha, const X* x, Size incx, X* y, Size incy) {         \
    return hostcuda::axpy(#name, handle, n, alpha, x, incx, y, incy);                                                  \
  }
#define HOSTCUDA_SCAL(name, Size, A, X)                                                                                \
  cublasStatus_t name(cublasHandle_t handle, Size n, const A* alpha, X* x, Size incx) {                                \
    return hostcuda::scal(#name, handle, n, alpha, x, incx);                                                           \
  }
#define HOSTCUDA_COPY(name, Size, X)                                                                                   \
  cublasStatus_t name(cublasHandle_t handle, Size n, const X* x, Size incx, X* y, Size incy) {                         \
    return hostcuda::copy(#name, handle, n, x, incx, y, incy);                                                         \
  }
#define HOSTCUDA_SWAP(name, Size, X)                                                                                   \
  cublasStatus_t name(cublasHandle_t handle, Size n, X* x, Size incx, X* y, Size incy) {                               \
    return hostcuda::swap(#name, handle, n, x, incx, y, incy);                                                         \
  }
#define HOSTCUDA_DOT(name, Size, X, conjugated)                                                                        \
  cublasStatus_t name(cublasHandle_t handle, Size n, const X* x, Size incx, const X* y, Size incy, X* result) {        \
    return hostcuda::dot(#name, handle, n, x, incx, y, incy, result, conjugated);                                      \
  }
#define HOSTCUDA_REDUCE(name, Size, X, R, what)                                                                        \
  cublasStatus_t name(cublasHandle_t handle, Size n, const X* x, Size incx, R* result) {                               \
    return hostcuda::reduce(#name, handle, n, x, incx, result, hostcuda::Reduction::what);                             \
  }
#define HOSTCUDA_EXTREME(name, Size, X, largest)                                                                       \
  cublasStatus_t name(cublasHandle_t handle, Size n, const X* x, Size incx, Size* result) {                            \
    return hostcuda::extreme(#name, handle, n, x, incx, result, largest);                                              \
  }
#define HOSTCUDA_ROT(name, Size, X, C, S)                                                                              \
  cublasStatus_t name(cublasHandle_t handle, Size n, X* x, Size incx, X* y, Size incy, const C* c, const S* s) {       \
    return hostcuda::rot(#name, handle, n, x, incx, y, incy, c, s);                                                    \
  }
#define HOSTCUDA_ROTM(name, Size, X)                                                                                   \
  cublasStatus_t name(cublasHandle_t handle, Size n, X* x, Size incx, X* y, Size incy, const X* param) {               \
    return hostcuda::rotm(#name, handle, n, x, incx, y, incy, param);                                                  \
  }
#define HOSTCUDA_ROTG(name, X, C)                                                                                      \
  cublasStatus_t name(cublasHandle_t handle, X* a, X* b, C* c, X* s) {                                                 \
    return hostcuda::rotg(#name, handle, a, b, c, s);                                                                  \
  }
#define HOSTCUDA_ROTMG(name, X)                                                                                        \
  cublasStatus_t name(cublasHandle_t handle, X* d1, X* d2, X* x1, const X* y1, X* param) {                             \
    return hostcuda::rotmg(#name, handle, d1, d2, x1, y1, param);                                                      \
  }
#define HOSTCUDA_TYPED_AT_RUN_TIME(suffix, Size)                                                                       \
  cublasStatus_t cublasNrm2Ex##suffix(cublasHandle_t handle, Size n, const void* x, cudaDataType xType, Size incx,     \
                                      void* result, cudaDataType resultType, cudaDataType executionType) {             \
    return hostcuda::reduce_ex("cublasNrm2Ex" #suffix, handle, n, x, xType, incx, result, resultType, executionType,   \
                               hostcuda::Reduction::kNorm);                                                            \
  }                                                                                                                    \
  cublasStatus_t cublasAsumEx##suffix(cublasHandle_t handle, Size n, const void* x, cudaDataType xType, Size incx,     \
                                      void* result, cudaDataType resultType, cudaDataType executiontype) {             \
    return hostcuda::reduce_ex("cublasAsumEx" #suffix, handle, n, x, xType, incx, result, resultType, executiontype,   \
                               hostcuda::Reduction::kSizes);                                                           \
  }                                                                                                                    \
  cublasStatus_t cublasDotEx##suffix(cublasHandle_t handle, Size n, const void* x, cudaDataType xType, Size incx,      \
                                     const void* y, cudaDataType yType, Size incy, void* result,                       \
                                     cudaDataType resultType, cudaDataType executionType) {                            \
    return hostcuda::dot_ex("cublasDotEx" #suffix, handle, n, x, xType, incx, y, yType, incy, result, resultType,      \
                            executionType, false);                                                                     \
  }                                                                                                                    \
  cublasStatus_t cublasDotcEx##suffix(cublasHandle_t handle, Size n, const void* x, cudaDataType xType, Size incx,     \
                                      const void* y, cudaDataType yType, Size incy, void* result,                      \
                                      cudaDataType resultType, cudaDataType executionType) {                           \
    return hostcuda::dot_ex("cublasDotcEx" #suffix, handle, n, x, xType, incx, y, yType, incy, result, resultType,     \
                            executionType, true);                                                                      \
  }                                                                                                                    \
  cublasStatus_t cublasScalEx##suffix(cublasHandle_t handle, Size n, const void* alpha, cudaDataType alphaType,        \
                                      void* x, cudaDataType xType, Size incx, cudaDataType executionType) {            \
    return hostcuda::scal_ex("cublasScalEx" #suffix, handle, n, alpha, alphaType, x, xType, incx, executionType);      \
  }                                                                                                                    \
  cublasStatus_t cublasAxpyEx##suffix(cublasHandle_t handle, Size n, const void* alpha, cudaDataType alphaType,        \
                                      const void* x, cudaDataType xType, Size incx, void* y, cudaDataType yType,       \
                                      Size incy, cudaDataType executiontype) {                                         \
    return hostcuda::axpy_ex("cublasAxpyEx" #suffix, handle, n, alpha, alphaType, x, xType, incx, y, yType, incy,      \
                             executiontype);                                                                           \
  }                                                                                                                    \
  cublasStatus_t cublasCopyEx##suffix(cublasHandle_t handle, Size n, const void* x, cudaDataType xType, Size incx,     \
                                      void* y, cudaDataType yType, Size incy) {                                        \
    return hostcuda::copy_ex("cublasCopyEx" #suffix, handle, n, x, xType, incx, y, yType, incy);                       \
  }                                                                                                                    \
  cublasStatus_t cublasSwapEx##suffix(cublasHandle_t handle, Size n, void* x, cudaDataType xType, Size incx, void* y,  \
                                      cudaDataType yType, Size incy) {                                                 \
    return hostcuda::swap_ex("cublasSwapEx" #suffix, handle, n, x, xType, incx, y, yType, incy);                       \
  }                                                                                                                    \
  cublasStatus_t cublasIamaxEx##suffix(cublasHandle_t handle, Size n, const void* x, cudaDataType xType, Size incx,    \
                                       Size* result) {                                                                 \
    return hostcuda::extreme_ex("cublasIamaxEx" #suffix, handle, n, x, xType, incx, result, true);                     \
  }                                                                                                                    \
  cublasStatus_t cublasIaminEx##suffix(cublasHandle_t handle, Size n, const void* x, cudaDataType xType, Size incx,    \
                                       Size* result) {                                                                 \
    return hostcuda::extreme_ex("cublasIaminEx" #suffix, handle, n, x, xType, incx, result, false);                    \
  }                                                                                                                    \
  cublasStatus_t cublasRotEx##suffix(cublasHandle_t handle, Size n, void* x, cudaDataType xType, Size incx, void* y,   \
                                     cudaDataType yType, Size incy, const void* c, const void* s,                      \
                                     cudaDataType csType, cudaDataType executiontype) {                                \
    return hostcuda::rot_ex("cublasRotEx" #suffix, handle, n, x, xType, incx, y, yType, incy, c, s, csType,            \
                            executiontype);                                                                            \
  }                                                                                                                    \
  cublasStatus_t cublasRotmEx##suffix(cublasHandle_t handle, Size n, void* x, cudaDataType xType, Size incx, void* y,  \
                                      cudaDataType yType, Size incy, const void* param, cudaDataType paramType,        \
                                      cudaDataType executiontype) {                                                    \
    return hostcuda::rotm_ex("cublasRotmEx" #suffix, handle, n, x, xType, incx, y, yType, incy, param, paramType,      \
                             executiontype);                                                                           \
  }
// clang-format on

extern "C" {

HOSTCUDA_WIDTHS(HOSTCUDA_AXPY, cublasSaxpy_v2, float)
HOSTCUDA_WIDTHS(HOSTCUDA_AXPY, cublasDaxpy_v2, double)
HOSTCUDA_WIDTHS(HOSTCUDA_AXPY, cublasCaxpy_v2, cuComplex)
HOSTCUDA_WIDTHS(HOSTCUDA_AXPY, cublasZaxpy_v2, cuDoubleComplex)

HOSTCUDA_WIDTHS(HOSTCUDA_SCAL, cublasSscal_v2, float, float)
HOSTCUDA_WIDTHS(HOSTCUDA_SCAL, cublasDscal_v2, double, double)
HOSTCUDA_WIDTHS(HOSTCUDA_SCAL, cublasCscal_v2, cuComplex, cuComplex)
HOSTCUDA_WIDTHS(HOSTCUDA_SCAL, cublasZscal_v2, cuDoubleComplex, cuDoubleComplex)
HOSTCUDA_WIDTHS(HOSTCUDA_SCAL, cublasCsscal_v2, float, cuComplex)
HOSTCUDA_WIDTHS(HOSTCUDA_SCAL, cublasZdscal_v2, double, cuDoubleComplex)

HOSTCUDA_WIDTHS(HOSTCUDA_COPY, cublasScopy_v2, float)
HOSTCUDA_WIDTHS(HOSTCUDA_COPY, cublasDcopy_v2, double)
HOSTCUDA_WIDTHS(HOSTCUDA_COPY, cublasCcopy_v2, cuComplex)
HOSTCUDA_WIDTHS(HOSTCUDA_COPY, cublasZcopy_v2, cuDoubleComplex)

HOSTCUDA_WIDTHS(HOSTCUDA_SWAP, cublasSswap_v2, float)
HOSTCUDA_WIDTHS(HOSTCUDA_SWAP, cublasDswap_v2, double)
HOSTCUDA_WIDTHS(HOSTCUDA_SWAP, cublasCswap_v2, cuComplex)
HOSTCUDA_WIDTHS(HOSTCUDA_SWAP, cublasZswap_v2, cuDoubleComplex)

HOSTCUDA_WIDTHS(HOSTCUDA_DOT, cublasSdot_v2, float, false)
HOSTCUDA_WIDTHS(HOSTCUDA_DOT, cublasDdot_v2, double, false)
HOSTCUDA_WIDTHS(HOSTCUDA_DOT, cublasCdotu_v2, cuComplex, false)
HOSTCUDA_WIDTHS(HOSTCUDA_DOT, cublasCdotc_v2, cuComplex, true)
HOSTCUDA_WIDTHS(HOSTCUDA_DOT, cublasZdotu_v2, cuDoubleComplex, false)
HOSTCUDA_WIDTHS(HOSTCUDA_DOT, cublasZdotc_v2, cuDoubleComplex, true)

HOSTCUDA_WIDTHS(HOSTCUDA_REDUCE, cublasSnrm2_v2, float, float, kNorm)
HOSTCUDA_WIDTHS(HOSTCUDA_REDUCE, cublasDnrm2_v2, double, double, kNorm)
HOSTCUDA_WIDTHS(HOSTCUDA_REDUCE, cublasScnrm2_v2, cuComplex, float, kNorm)
HOSTCUDA_WIDTHS(HOSTCUDA_REDUCE, cublasDznrm2_v2, cuDoubleComplex, double, kNorm)
HOSTCUDA_WIDTHS(HOSTCUDA_REDUCE, cublasSasum_v2, float, float, kSizes)
HOSTCUDA_WIDTHS(HOSTCUDA_REDUCE, cublasDasum_v2, double, double, kSizes)
HOSTCUDA_WIDTHS(HOSTCUDA_REDUCE, cublasScasum_v2, cuComplex, float, kSizes)
HOSTCUDA_WIDTHS(HOSTCUDA_REDUCE, cublasDzasum_v2, cuDoubleComplex, double, kSizes)

HOSTCUDA_WIDTHS(HOSTCUDA_EXTREME, cublasIsamax_v2, float, true)
HOSTCUDA_WIDTHS(HOSTCUDA_EXTREME, cublasIdamax_v2, double, true)
HOSTCUDA_WIDTHS(HOSTCUDA_EXTREME, cublasIcamax_v2, cuComplex, true)
HOSTCUDA_WIDTHS(HOSTCUDA_EXTREME, cublasIzamax_v2, cuDoubleComplex, true)
HOSTCUDA_WIDTHS(HOSTCUDA_EXTREME, cublasIsamin_v2, float, false)
HOSTCUDA_WIDTHS(HOSTCUDA_EXTREME, cublasIdamin_v2, double, false)
HOSTCUDA_WIDTHS(HOSTCUDA_EXTREME, cublasIcamin_v2, cuComplex, false)
HOSTCUDA_WIDTHS(HOSTCUDA_EXTREME, cublasIzamin_v2, cuDoubleComplex, false)

HOSTCUDA_WIDTHS(HOSTCUDA_ROT, cublasSrot_v2, float, float, float)
HOSTCUDA_WIDTHS(HOSTCUDA_ROT, cublasDrot_v2, double, double, double)
HOSTCUDA_WIDTHS(HOSTCUDA_ROT, cublasCrot_v2, cuComplex, float, cuComplex)
HOSTCUDA_WIDTHS(HOSTCUDA_ROT, cublasCsrot_v2, cuComplex, float, float)
HOSTCUDA_WIDTHS(HOSTCUDA_ROT, cublasZrot_v2, cuDoubleComplex, double, cuDoubleComplex)
HOSTCUDA_WIDTHS(HOSTCUDA_ROT, cublasZdrot_v2, cuDoubleComplex, double, double)

HOSTCUDA_WIDTHS(HOSTCUDA_ROTM, cublasSrotm_v2, float)
HOSTCUDA_WIDTHS(HOSTCUDA_ROTM, cublasDrotm_v2, double)

HOSTCUDA_ROTG(cublasSrotg_v2, float, float)
HOSTCUDA_ROTG(cublasDrotg_v2, double, double)
HOSTCUDA_ROTG(cublasCrotg_v2, cuComplex, float)
HOSTCUDA_ROTG(cublasZrotg_v2, cuDoubleComplex, double)

HOSTCUDA_ROTMG(cublasSrotmg_v2, float)
HOSTCUDA_ROTMG(cublasDrotmg_v2, double)

HOSTCUDA_TYPED_AT_RUN_TIME(, int)
HOSTCUDA_TYPED_AT_RUN_TIME(_64, int64_t)

cublasStatus_t cublasRotgEx(cublasHandle_t handle, void* a, void* b, cudaDataType abType, void* c, void* s,
                            cudaDataType csType, cudaDataType executiontype) {
  return hostcuda::rotg_ex("cublasRotgEx", handle, a, b, abType, c, s, csType, executiontype);
}

cublasStatus_t cublasRotmgEx(cublasHandle_t handle, void* d1, cudaDataType d1Type, void* d2, cudaDataType d2Type,
                             void* x1, cudaDataType x1Type, const void* y1, cudaDataType y1Type, void* param,
                             cudaDataType paramType, cudaDataType executiontype) {
  const bool one_type =
      d1Type == d2Type && d1Type == x1Type && d1Type == y1Type && d1Type == paramType && d1Type == executiontype;
  return hostcuda::rotmg_ex("cublasRotmgEx", handle, d1, d2, x1, y1, param, one_type ? int{d1Type} : -1);
}

}  // extern "C"

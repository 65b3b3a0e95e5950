// SPDX-License-Identifier: MIT
#include "exact_product.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace calls {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool has(const Call& call, uint32_t bits) {
  return (call.epilogue & bits) == bits;
}

bool is_half_accumulator(const Call& call) {
  return call.compute == CUBLAS_COMPUTE_16F || call.compute == CUBLAS_COMPUTE_16F_PEDANTIC;
}

bool rounds_to_tf32(const Call& call) {
  return call.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
         (!is_lt(call) && call.a == Num::kF32 && call.compute == CUBLAS_COMPUTE_32F &&
          call.math == CUBLAS_TF32_TENSOR_OP_MATH);
}

struct Accumulator {
  double relative;   // of S
  double absolute;   // of the entry
  double underflow;  // of sum |a| + sum |b|
  double largest;    // of its range
  double unit;       // roundoff of what follows
};

Accumulator accumulator_of(const Call& call, int64_t inner, int compute_major) {
  const auto k = static_cast<double>(inner);
  if (call.a == Num::kF64) return {(2 * k + 17) * 0x1p-52, k * 0x1p-1073, 0, DBL_MAX, 0x1p-53};
  const TensorCore core = tensor_core_of(compute_major, call);
  const double step = (core.products + 1) * std::ldexp(1.0, -core.guard_bits) +
                      std::ldexp(1.0, core.guard_bits < 0 ? -core.guard_bits : 0);
  const double c_max = std::ceil(k / core.products) * step + k / 64 + 16;
  Accumulator acc = {c_max * 0x1p-23 + k * 0x1p-53, (k + 8) * 0x1p-148, 0, FLT_MAX, 0x1p-24};
  if (rounds_to_tf32(call)) {
    acc.relative += 0x1p-9;
    acc.underflow = 0x1p-136;
  }
  if (call.compute == CUBLAS_COMPUTE_32F_FAST_16F) {
    acc.relative += 0x1p-10;
    acc.underflow = 0x1p-25;
  }
  if (call.compute == CUBLAS_COMPUTE_32F_FAST_16BF) {
    acc.relative += 0x1p-7;
    acc.underflow = 0x1p-134;
  }
  if (is_half_accumulator(call)) {
    const double steps = k * 0x1p-11;
    acc.relative += steps < 1 ? steps / (1 - steps) : kInfinity;
    acc.absolute += (k + 8) * 0x1p-25;
    acc.largest = 65504;
    acc.unit = 0x1p-11;
  }
  return acc;
}

double gelu_inner(double x) {
  return 0.7978845608028654 * (x + 0.044715 * x * x * x);
}

long double gelu(long double x) {
  return 0.5L * x * (1 + std::tanh(static_cast<long double>(gelu_inner(static_cast<double>(x)))));
}

double gelu_slope(double x) {
  const double t = std::tanh(gelu_inner(x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

// What a nonzero operand of a tensor core counts as at least in S. FMA units align nothing: 0.
double operand_floor(const Call& call, Num operand) {
  if (call.compute == CUBLAS_COMPUTE_32F_FAST_16F) operand = Num::kF16;
  if (call.compute == CUBLAS_COMPUTE_32F_FAST_16BF) operand = Num::kBF16;
  const bool multiplied_in_fma = operand == Num::kF64 || (operand == Num::kF32 && !rounds_to_tf32(call));
  if (multiplied_in_fma || is_integer(operand)) return 0;
  return std::ldexp(1.0, format_of(operand).least_normal);  // TF32 has FP32's exponents
}

// Sums of column j of op(A) op(B) and of its magnitudes, operands counted as at least the floors.
template <typename Sum>
void column_sums(const Problem& p, int64_t j, double floor_a, double floor_b, Sum* sum, Sum* magnitude) {
  std::fill(sum, sum + p.m, Sum(0));
  std::fill(magnitude, magnitude + p.m, Sum(0));
  for (int64_t l = 0; l < p.k; ++l) {
    const auto b = static_cast<Sum>(p.b[static_cast<size_t>(l + j * p.k)]);
    const Sum size_b = b == 0 ? Sum(0) : std::max<Sum>(std::fabs(b), floor_b);
    const double* a = p.a.data() + l * p.m;
    for (int64_t i = 0; i < p.m; ++i) {
      sum[i] += static_cast<Sum>(a[i]) * b;
      magnitude[i] += a[i] == 0 ? Sum(0) : size_b * static_cast<Sum>(std::max(std::fabs(a[i]), floor_a));
    }
  }
}

// Integers: D = alpha sum + beta c modulo 2^32.
double wrapped(double alpha, double sum, double beta, double c) {
  const auto word = [](double x) { return static_cast<uint32_t>(static_cast<int64_t>(x)); };
  return static_cast<int32_t>(word(alpha) * word(sum) + word(beta) * word(c));
}

void column_magnitudes(const Problem& p, std::vector<double>* rows, std::vector<double>* columns) {
  rows->assign(static_cast<size_t>(p.m), 0);
  columns->assign(static_cast<size_t>(p.n), 0);
  for (int64_t l = 0; l < p.k; ++l) {
    for (int64_t i = 0; i < p.m; ++i)
      (*rows)[static_cast<size_t>(i)] += std::fabs(p.a[static_cast<size_t>(i + l * p.m)]);
  }
  for (int64_t j = 0; j < p.n; ++j) {
    for (int64_t l = 0; l < p.k; ++l)
      (*columns)[static_cast<size_t>(j)] += std::fabs(p.b[static_cast<size_t>(l + j * p.k)]);
  }
}

class Exact {
 public:
  Exact(const Call& call, const Problem& problem, int compute_major)
      : call_(call), p_(problem), acc_(accumulator_of(call, problem.k, compute_major)) {}

  Result run() {
    const auto entries = static_cast<size_t>(p_.m * p_.n);
    result_.d.resize(entries);
    keeps_aux_ = has(call_, CUBLASLT_EPILOGUE_RELU_AUX) || has(call_, CUBLASLT_EPILOGUE_GELU_AUX);
    if (keeps_aux_) result_.aux.resize(entries);
    result_.amax = {0, 0};
    column_magnitudes(p_, &rows_, &columns_);
    if (call_.a == Num::kF64) {
      columns<long double>();
    } else {
      columns<double>();
    }
    gradients();
    return std::move(result_);
  }

 private:
  template <typename Sum>
  void columns() {
    std::vector<Sum> sum(static_cast<size_t>(p_.m)), magnitude(sum.size());
    const double floor_a = operand_floor(call_, call_.a), floor_b = operand_floor(call_, call_.b);
    for (int64_t j = 0; j < p_.n; ++j) {
      column_sums(p_, j, floor_a, floor_b, sum.data(), magnitude.data());
      for (int64_t i = 0; i < p_.m; ++i) {
        const auto row = static_cast<size_t>(i);
        entry(i, j, static_cast<long double>(sum[row]), static_cast<double>(magnitude[row]));
      }
    }
  }

  void entry(int64_t i, int64_t j, long double sum, double magnitude) {
    const auto row = static_cast<size_t>(i), at = static_cast<size_t>(i + j * p_.m);
    const double c = p_.c.empty() ? 0 : p_.c[at];
    if (call_.d == Num::kI32) {
      result_.d[at] = {wrapped(p_.alpha[row], static_cast<double>(sum), p_.beta[row], c), 0};
      return;
    }
    const double scale = p_.alpha[row] * p_.scale_a[row] * p_.scale_b[static_cast<size_t>(j)];
    const double added = p_.c.empty() ? 0 : p_.beta[row] * c;
    const double bias = p_.bias.empty() ? 0 : p_.bias[row];
    const bool multiplies = p_.alpha[row] != 0;
    if (!multiplies) magnitude = 0;
    long double x = (multiplies ? scale * sum : 0) + added + bias;
    const double all = std::fabs(scale) * magnitude + std::fabs(added) + std::fabs(bias);
    const double accumulated =
        acc_.relative * magnitude + acc_.absolute + acc_.underflow * (rows_[row] + columns_[static_cast<size_t>(j)]);
    double bound = std::fabs(scale) * accumulated + 8 * acc_.unit * all + 8 * half_spacing(call_.scale, 0);
    if (!(magnitude * (1 + acc_.relative) <= acc_.largest) || !(all * (1 + acc_.relative) <= acc_.largest))
      bound = kInfinity;
    // An operand is not finite: NaN and infinities come out as in any sum of theirs.
    if (multiplies && !(std::isfinite(rows_[row]) && std::isfinite(columns_[static_cast<size_t>(j)]))) bound = 0;
    if (keeps_aux_) result_.aux[at] = {x, bound};
    activate(at, &x, &bound);
    result_.amax.value = std::max(result_.amax.value, std::fabs(x));
    result_.amax.bound = std::max(result_.amax.bound, bound);
    result_.d[at] = {x * p_.scale_d, p_.scale_d * (bound + acc_.unit * std::fabs(static_cast<double>(x)))};
    if (p_.scale_d == 1) result_.d[at] = {x, bound};
  }

  void activate(size_t at, long double* x, double* bound) const {
    const double size = std::fabs(static_cast<double>(*x)) + *bound;
    if (has(call_, CUBLASLT_EPILOGUE_DRELU)) {
      if (p_.aux[at] == 0) *x = *bound = 0;
    } else if (has(call_, CUBLASLT_EPILOGUE_DGELU)) {
      const double slope = gelu_slope(p_.aux[at]);
      *x *= slope;
      *bound = std::fabs(slope) * *bound + 0x1p-18 * size;
    } else if (has(call_, CUBLASLT_EPILOGUE_RELU)) {
      *x = std::max(*x, 0.0L);
    } else if (has(call_, CUBLASLT_EPILOGUE_GELU)) {
      *x = gelu(*x);
      *bound = 1.13 * *bound + 0x1p-20 * size;
    }
  }

  // Of D over its columns (whether before or after its rounding is the library's affair), of A and B over k.
  void gradients() {
    const bool of_d = has(call_, CUBLASLT_EPILOGUE_DRELU_BGRAD) || has(call_, CUBLASLT_EPILOGUE_DGELU_BGRAD);
    const bool of_a = call_.epilogue == CUBLASLT_EPILOGUE_BGRADA, of_b = call_.epilogue == CUBLASLT_EPILOGUE_BGRADB;
    const int64_t length = of_b ? p_.n : of_d || of_a ? p_.m : 0;
    const int64_t terms = of_d ? p_.n : p_.k;
    for (int64_t i = 0; i < length; ++i) {
      Value total = {0, 0};
      double magnitude = 0;
      for (int64_t l = 0; l < terms; ++l) {
        Value one = {0, 0};
        if (of_d) one = result_.d[static_cast<size_t>(i + l * p_.m)];
        if (of_a) one.value = p_.a[static_cast<size_t>(i + l * p_.m)];
        if (of_b) one.value = p_.b[static_cast<size_t>(l + i * p_.k)];
        total.value += one.value;
        total.bound +=
            one.bound + (of_d ? half_spacing(call_.d, std::fabs(static_cast<double>(one.value)) + one.bound) : 0);
        magnitude += std::fabs(static_cast<double>(one.value)) + one.bound;
      }
      total.bound += static_cast<double>(terms) * 2 * 0x1p-24 * magnitude;
      if (!(magnitude <= FLT_MAX)) total.bound = kInfinity;
      result_.bias.push_back(total);
    }
  }

  const Call& call_;
  const Problem& p_;
  const Accumulator acc_;
  bool keeps_aux_ = false;
  std::vector<double> rows_, columns_;  // sums of magnitudes of op(A)'s rows and of op(B)'s columns
  Result result_;
};

}  // namespace

TensorCore tensor_core_of(int compute_major, const Call& call) {
  const bool tf32 = call.a == Num::kF32 && rounds_to_tf32(call);
  if ((call.a == Num::kF32 && !tf32) || call.a == Num::kI8) return {1, 64};
  if (is_fp8(call.a)) return {compute_major == 9 ? 32 : 16, -10};
  switch (compute_major) {
    case 8:
      return {tf32 ? 4 : 8, 1};
    case 9:
    case 10:
      return {tf32 ? 8 : 16, 2};
    default:
      return {4, 0};
  }
}

Result exact_product(const Call& call, const Problem& problem, int compute_major) {
  return Exact(call, problem, compute_major).run();
}

}  // namespace calls

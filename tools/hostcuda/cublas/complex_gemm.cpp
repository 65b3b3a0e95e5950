// SPDX-License-Identifier: MIT
// Complex GEMM: takes a checked call, gives an operation of the stream that runs it by plain loops.
#include "tools/hostcuda/cublas/checks.h"
#include "tools/hostcuda/cublas/gemm.h"
#include "tools/hostcuda/cublas/work.h"

namespace hostcuda {
namespace {

// One operand of C_8I.
struct ByteComplex {
  signed char re, im;
};

template <typename N>
N number(const N& x) {
  return x;
}
std::complex<float> number(const ByteComplex& x) {
  return {static_cast<float>(x.re), static_cast<float>(x.im)};
}

// Element type E of A and B, N of C and of the sums.
template <typename E, typename N, typename Api>
cublasStatus_t run(const GemmArguments& x) {
  const Scalar<Api> alpha_arg(x.handle, static_cast<const Api*>(x.alpha));
  const Scalar<Api> beta_arg(x.handle, static_cast<const Api*>(x.beta));
  return enqueue(x.handle, x.name, [x, alpha_arg, beta_arg](Access& access) {
    const N alpha = alpha_arg.get(access, "alpha");
    const N beta = beta_arg.get(access, "beta");
    const bool multiplies = alpha != N{} && x.k > 0;
    const auto list = [&](const std::string& letter, const GemmMatrix& matrix) {
      return x.by_pointers ? elements(access, "the pointer array of " + letter,
                                      static_cast<const CUdeviceptr*>(matrix.data), x.batch, HOSTCUDA_READ)
                           : nullptr;
    };
    const CUdeviceptr* a_list = multiplies ? list("A", x.a) : nullptr;
    const CUdeviceptr* b_list = multiplies ? list("B", x.b) : nullptr;
    const CUdeviceptr* c_list = list("C", x.c);
    const Op op_a = op_of(static_cast<cublasOperation_t>(x.transa));
    const Op op_b = op_of(static_cast<cublasOperation_t>(x.transb));
    for (int64_t e = 0; !access.broken && e < x.batch; ++e) {
      const std::string of = x.batch > 1 ? " of batch entry " + std::to_string(e) : "";
      // The matrix of this entry, rows x cols as stored.
      const auto entry = [&](const char* letter, auto* type, const GemmMatrix& matrix, const CUdeviceptr* addresses,
                             int64_t rows, int64_t cols) {
        using Element = std::remove_pointer_t<decltype(type)>;
        auto* address = addresses ? reinterpret_cast<Element*>(addresses[e])
                                  : static_cast<Element*>(const_cast<void*>(matrix.data)) + e * matrix.stride;
        return elements(access, letter + of, address, span(rows, cols, matrix.ld), kModeOf<Element>);
      };
      const auto* a = multiplies ? entry("A", static_cast<const E*>(nullptr), x.a, a_list,
                                         op_a == Op::kNone ? x.m : x.k, op_a == Op::kNone ? x.k : x.m)
                                 : nullptr;
      const auto* b = multiplies ? entry("B", static_cast<const E*>(nullptr), x.b, b_list,
                                         op_b == Op::kNone ? x.k : x.n, op_b == Op::kNone ? x.n : x.k)
                                 : nullptr;
      auto* c = entry("C", static_cast<N*>(nullptr), x.c, c_list, x.m, x.n);
      if (access.broken) return;
      const auto op = [](Op how, const E* from, int64_t ld, int64_t i, int64_t j) -> N {
        if (how == Op::kNone) return number(from[i + j * ld]);
        return how == Op::kTranspose ? number(from[j + i * ld]) : conjugate(number(from[j + i * ld]));
      };
      multiply(
          x.m, x.n, multiplies ? x.k : 0, [&](int64_t i, int64_t l) { return op(op_a, a, x.a.ld, i, l); },
          [&](int64_t l, int64_t j) { return op(op_b, b, x.b.ld, l, j); }, alpha, beta, Dense<N>{c, x.c.ld},
          Part::kAll);
    }
  });
}

}  // namespace

cublasStatus_t complex_types(int compute, int a_type, int b_type, int c_type) {
  if (a_type != b_type) return CUBLAS_STATUS_NOT_SUPPORTED;
  const cudaDataType scale = scale_of(compute, true);
  const bool plain = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC;
  if (scale != c_type) return CUBLAS_STATUS_NOT_SUPPORTED;
  return a_type == c_type || (a_type == CUDA_C_8I && plain) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t complex_gemm(const GemmArguments& x) {
  if (x.c.type == CUDA_C_64F) return run<std::complex<double>, std::complex<double>, cuDoubleComplex>(x);
  if (x.a.type == CUDA_C_8I) return run<ByteComplex, std::complex<float>, cuComplex>(x);
  return run<std::complex<float>, std::complex<float>, cuComplex>(x);
}

}  // namespace hostcuda

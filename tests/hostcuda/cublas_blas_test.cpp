// SPDX-License-Identifier: MIT
// BLAS levels 2 and 3 of hostcuda's libcublas, every routine in S, D, C and Z and both widths, in HOST and DEVICE
// pointer mode, on padded layouts and negative increments, against OpenBLAS.
#include "tests/hostcuda/blas_reference.h"
#include "tests/hostcuda/cublas_fixture.h"

namespace {

using blas_reference::Data;
using blas_reference::diag;
using blas_reference::difference_from_reference;
using blas_reference::expect_as_reference;
using blas_reference::Of;
using blas_reference::op;
using blas_reference::Pick;
using blas_reference::side;
using blas_reference::uplo;
using blas_reference::Wide;
using blas_reference::Z;

constexpr CBLAS_ORDER kCol = CblasColMajor;
constexpr cublasOperation_t kOps[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C};
constexpr cublasFillMode_t kFills[] = {CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER};
constexpr cublasDiagType_t kDiags[] = {CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT};
constexpr cublasSideMode_t kSides[] = {CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT};

// The C interface of BLAS takes real scalars by value and complex ones by address: one overloaded name for both.
double scalar(double x) {
  return x;
}
const void* scalar(const Z& x) {
  return &x;
}
// clang-format off
#define PAIR(name, real, complex, PARAMETERS, ...)     \
  void name PARAMETERS(double) { real(__VA_ARGS__); }  \
  void name PARAMETERS(Z) { complex(__VA_ARGS__); }

#define P(W) (CBLAS_TRANSPOSE t, int m, int n, W alpha, const W* a, int lda, const W* x, int incx, W beta, W* y, int incy)
PAIR(gemv, cblas_dgemv, cblas_zgemv, P, kCol, t, m, n, scalar(alpha), a, lda, x, incx, scalar(beta), y, incy)
#undef P
#define P(W) (CBLAS_TRANSPOSE t, int m, int n, int kl, int ku, W alpha, const W* a, int lda, const W* x, int incx, W beta, W* y, int incy)
PAIR(gbmv, cblas_dgbmv, cblas_zgbmv, P, kCol, t, m, n, kl, ku, scalar(alpha), a, lda, x, incx, scalar(beta), y, incy)
#undef P
#define P(W) (CBLAS_UPLO u, int n, W alpha, const W* a, int lda, const W* x, int incx, W beta, W* y, int incy)
PAIR(symv_or_hemv, cblas_dsymv, cblas_zhemv, P, kCol, u, n, scalar(alpha), a, lda, x, incx, scalar(beta), y, incy)
#undef P
#define P(W) (CBLAS_UPLO u, int n, int k, W alpha, const W* a, int lda, const W* x, int incx, W beta, W* y, int incy)
PAIR(sbmv_or_hbmv, cblas_dsbmv, cblas_zhbmv, P, kCol, u, n, k, scalar(alpha), a, lda, x, incx, scalar(beta), y, incy)
#undef P
#define P(W) (CBLAS_UPLO u, int n, W alpha, const W* a, const W* x, int incx, W beta, W* y, int incy)
PAIR(spmv_or_hpmv, cblas_dspmv, cblas_zhpmv, P, kCol, u, n, scalar(alpha), a, x, incx, scalar(beta), y, incy)
#undef P
#define P(W) (CBLAS_UPLO u, CBLAS_TRANSPOSE t, CBLAS_DIAG d, int n, const W* a, int lda, W* x, int incx)
PAIR(trmv, cblas_dtrmv, cblas_ztrmv, P, kCol, u, t, d, n, a, lda, x, incx)
#undef P
#define P(W) (CBLAS_UPLO u, CBLAS_TRANSPOSE t, CBLAS_DIAG d, int n, int k, const W* a, int lda, W* x, int incx)
PAIR(tbmv, cblas_dtbmv, cblas_ztbmv, P, kCol, u, t, d, n, k, a, lda, x, incx)
#undef P
#define P(W) (CBLAS_UPLO u, CBLAS_TRANSPOSE t, CBLAS_DIAG d, int n, const W* a, W* x, int incx)
PAIR(tpmv, cblas_dtpmv, cblas_ztpmv, P, kCol, u, t, d, n, a, x, incx)
#undef P
#define P(W) (int m, int n, W alpha, const W* x, int incx, const W* y, int incy, W* a, int lda)
PAIR(ger, cblas_dger, cblas_zgeru, P, kCol, m, n, scalar(alpha), x, incx, y, incy, a, lda)
#undef P
#define P(W) (CBLAS_UPLO u, int n, double alpha, const W* x, int incx, W* a, int lda)
PAIR(syr_or_her, cblas_dsyr, cblas_zher, P, kCol, u, n, alpha, x, incx, a, lda)
#undef P
#define P(W) (CBLAS_UPLO u, int n, double alpha, const W* x, int incx, W* a)
PAIR(spr_or_hpr, cblas_dspr, cblas_zhpr, P, kCol, u, n, alpha, x, incx, a)
#undef P
#define P(W) (CBLAS_UPLO u, int n, W alpha, const W* x, int incx, const W* y, int incy, W* a, int lda)
PAIR(syr2_or_her2, cblas_dsyr2, cblas_zher2, P, kCol, u, n, scalar(alpha), x, incx, y, incy, a, lda)
#undef P
#define P(W) (CBLAS_UPLO u, int n, W alpha, const W* x, int incx, const W* y, int incy, W* a)
PAIR(spr2_or_hpr2, cblas_dspr2, cblas_zhpr2, P, kCol, u, n, scalar(alpha), x, incx, y, incy, a)
#undef P
#define P(W) (CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, W alpha, const W* a, int lda, const W* b, int ldb, W beta, W* c, int ldc)
PAIR(gemm, cblas_dgemm, cblas_zgemm, P, kCol, ta, tb, m, n, k, scalar(alpha), a, lda, b, ldb, scalar(beta), c, ldc)
#undef P
#define P(W) (CBLAS_UPLO u, CBLAS_TRANSPOSE t, int n, int k, W alpha, const W* a, int lda, W beta, W* c, int ldc)
PAIR(syrk, cblas_dsyrk, cblas_zsyrk, P, kCol, u, t, n, k, scalar(alpha), a, lda, scalar(beta), c, ldc)
#undef P
#define P(W) (CBLAS_UPLO u, CBLAS_TRANSPOSE t, int n, int k, W alpha, const W* a, int lda, const W* b, int ldb, W beta, W* c, int ldc)
PAIR(syr2k, cblas_dsyr2k, cblas_zsyr2k, P, kCol, u, t, n, k, scalar(alpha), a, lda, b, ldb, scalar(beta), c, ldc)
#undef P
#define P(W) (CBLAS_SIDE s, CBLAS_UPLO u, int m, int n, W alpha, const W* a, int lda, const W* b, int ldb, W beta, W* c, int ldc)
PAIR(symm, cblas_dsymm, cblas_zsymm, P, kCol, s, u, m, n, scalar(alpha), a, lda, b, ldb, scalar(beta), c, ldc)
#undef P
#define P(W) (CBLAS_SIDE s, CBLAS_UPLO u, CBLAS_TRANSPOSE t, CBLAS_DIAG d, int m, int n, W alpha, const W* a, int lda, W* b, int ldb)
PAIR(trmm, cblas_dtrmm, cblas_ztrmm, P, kCol, s, u, t, d, m, n, scalar(alpha), a, lda, b, ldb)
#undef P
// clang-format on

class BlasTest : public HandleTest {
 protected:
  void SetUp() override {
    HandleTest::SetUp();
    openblas_set_num_threads(1);
  }

  // alpha and beta of a call, in the memory that the pointer mode of this call asks for; the modes take turns.
  template <typename Api>
  struct Scalars {
    Data<Api> data;
    bool on_device;
    const Api* alpha() const { return on_device ? data.dev() : data.host.data(); }
    const Api* beta() const { return alpha() + 1; }
    Wide<Api> a() const { return data.wide[0]; }
    Wide<Api> b() const { return data.wide[1]; }
  };
  template <typename Api>
  Scalars<Api> scalars() {
    ++calls_;
    const bool on_device = calls_ % 2;
    EXPECT_EQ(cublasSetPointerMode(handle_, on_device ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST),
              CUBLAS_STATUS_SUCCESS);
    return {Data<Api>(2, calls_ + 1000), on_device};
  }
  // Whether this call goes through the 64-bit form.
  bool wide() const { return calls_ / 2 % 2; }
  uint32_t seed() { return ++seed_; }

  uint32_t calls_ = 0;
  uint32_t seed_ = 0;
};

// One call, by the 32-bit or the 64-bit form in turn.
#define CALL(...) done(wide() ? f64(__VA_ARGS__) : f(__VA_ARGS__))

// check(element, name, function, its 64-bit form) for each element type.
#define ONE(check, Api, name) check(Api{}, #name, name, name##_64)
#define REAL_TWO(check, routine)       \
  ONE(check, float, cublasS##routine); \
  ONE(check, double, cublasD##routine)
#define COMPLEX_TWO(check, routine)        \
  ONE(check, cuComplex, cublasC##routine); \
  ONE(check, cuDoubleComplex, cublasZ##routine)
#define FOUR(check, routine) \
  REAL_TWO(check, routine);  \
  COMPLEX_TWO(check, routine)

// The square matrix that one triangle of `a` (n x n, ld) stands for, column by column, n apart.
template <typename W>
std::vector<W> mirrored(const W* a, int n, int ld, cublasFillMode_t fill) {
  std::vector<W> full;
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < n; ++i) {
      const bool stored = fill == CUBLAS_FILL_MODE_UPPER ? i <= j : i >= j;
      full.push_back(stored ? a[i + j * ld] : a[j + i * ld]);
    }
  }
  return full;
}

// ---- level 2

TEST_F(BlasTest, Gemv) {
  const auto check = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    for (const auto trans : kOps) {
      for (const int incx : {1, -2}) {
        const int m = 13;
        const int n = 9;
        const int lda = 15;
        const Data<Api> a(lda * n, seed());
        const Data<Api> x(40, seed());
        const Data<Api> y(40, seed());
        const auto s = scalars<Api>();
        CALL(handle_, trans, m, n, s.alpha(), a.dev(), lda, x.dev(), incx, s.beta(), y.dev(), 3);
        expect_as_reference(name, y, m, [&](Pick p, auto* out) {
          gemv(op(trans), m, n, p(s.a()), p(a), lda, p(x), incx, p(s.b()), out, 3);
        });
      }
    }
  };
  FOUR(check, gemv_v2);
}

TEST_F(BlasTest, Gbmv) {
  const auto check = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    for (const auto trans : kOps) {
      for (const auto& band : {std::pair{2, 3}, {0, 1}, {4, 0}}) {
        const auto [kl, ku] = band;
        const int lda = kl + ku + 2;
        const Data<Api> a(lda * 9, seed());
        const Data<Api> x(40, seed());
        const Data<Api> y(40, seed());
        const auto s = scalars<Api>();
        CALL(handle_, trans, 11, 9, kl, ku, s.alpha(), a.dev(), lda, x.dev(), 2, s.beta(), y.dev(), -3);
        expect_as_reference(name, y, 11, [&](Pick p, auto* out) {
          gbmv(op(trans), 11, 9, kl, ku, p(s.a()), p(a), lda, p(x), 2, p(s.b()), out, -3);
        });
      }
    }
  };
  FOUR(check, gbmv_v2);
}

TEST_F(BlasTest, SymvAndHemv) {
  constexpr int n = 12;
  constexpr int lda = 14;
  const auto check = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    for (const auto fill : kFills) {
      const Data<Api> a(lda * n, seed());
      const Data<Api> x(2 * n, seed());
      const Data<Api> y(n, seed());
      const auto s = scalars<Api>();
      CALL(handle_, fill, n, s.alpha(), a.dev(), lda, x.dev(), -2, s.beta(), y.dev(), 1);
      expect_as_reference(name, y, n, [&](Pick p, auto* out) {
        symv_or_hemv(uplo(fill), n, p(s.a()), p(a), lda, p(x), -2, p(s.b()), out, 1);
      });
    }
  };
  REAL_TWO(check, symv_v2);
  COMPLEX_TWO(check, hemv_v2);
  const auto check_symmetric = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    for (const auto fill : kFills) {
      const Data<Api> a(lda * n, seed());
      const Data<Api> x(n, seed());
      const Data<Api> y(n, seed());
      const auto s = scalars<Api>();
      CALL(handle_, fill, n, s.alpha(), a.dev(), lda, x.dev(), 1, s.beta(), y.dev(), 1);
      expect_as_reference(name, y, n, [&](Pick p, auto* out) {
        gemv(CblasNoTrans, n, n, p(s.a()), mirrored(p(a), n, lda, fill).data(), n, p(x), 1, p(s.b()), out, 1);
      });
    }
  };
  COMPLEX_TWO(check_symmetric, symv_v2);
}

TEST_F(BlasTest, BandedAndPackedSymmetric) {
  constexpr int n = 12;
  const auto banded = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    for (const auto fill : kFills) {
      for (const int k : {0, 3}) {
        const int lda = k + 2;
        const Data<Api> a(lda * n, seed());
        const Data<Api> x(n, seed());
        const Data<Api> y(2 * n, seed());
        const auto s = scalars<Api>();
        CALL(handle_, fill, n, k, s.alpha(), a.dev(), lda, x.dev(), 1, s.beta(), y.dev(), 2);
        expect_as_reference(name, y, n, [&](Pick p, auto* out) {
          sbmv_or_hbmv(uplo(fill), n, k, p(s.a()), p(a), lda, p(x), 1, p(s.b()), out, 2);
        });
      }
    }
  };
  REAL_TWO(banded, sbmv_v2);
  COMPLEX_TWO(banded, hbmv_v2);
  const auto packed = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    for (const auto fill : kFills) {
      const Data<Api> a(n * (n + 1) / 2, seed());
      const Data<Api> x(n, seed());
      const Data<Api> y(2 * n, seed());
      const auto s = scalars<Api>();
      CALL(handle_, fill, n, s.alpha(), a.dev(), x.dev(), 1, s.beta(), y.dev(), -2);
      expect_as_reference(name, y, n, [&](Pick p, auto* out) {
        spmv_or_hpmv(uplo(fill), n, p(s.a()), p(a), p(x), 1, p(s.b()), out, -2);
      });
    }
  };
  REAL_TWO(packed, spmv_v2);
  COMPLEX_TWO(packed, hpmv_v2);
}

// Every uplo, transpose and diagonal of a triangle. call(fill, trans, diag).
template <typename Use>
void each_triangle(Use use) {
  for (const auto fill : kFills) {
    for (const auto trans : kOps) {
      for (const auto d : kDiags) use(fill, trans, d);
    }
  }
}

TEST_F(BlasTest, TriangularProducts) {
  constexpr int n = 11;
  const auto dense = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    each_triangle([&](auto fill, auto trans, auto d) {
      const Data<Api> a(13 * n, seed());
      const Data<Api> x(2 * n, seed());
      scalars<Api>();
      CALL(handle_, fill, trans, d, n, a.dev(), 13, x.dev(), -2);
      expect_as_reference(name, x, n,
                          [&](Pick p, auto* out) { trmv(uplo(fill), op(trans), diag(d), n, p(a), 13, out, -2); });
    });
  };
  FOUR(dense, trmv_v2);
  const auto banded = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    each_triangle([&](auto fill, auto trans, auto d) {
      const Data<Api> a(5 * n, seed());
      const Data<Api> x(n, seed());
      scalars<Api>();
      CALL(handle_, fill, trans, d, n, 3, a.dev(), 5, x.dev(), 1);
      expect_as_reference(name, x, n,
                          [&](Pick p, auto* out) { tbmv(uplo(fill), op(trans), diag(d), n, 3, p(a), 5, out, 1); });
    });
  };
  FOUR(banded, tbmv_v2);
  const auto packed = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    each_triangle([&](auto fill, auto trans, auto d) {
      const Data<Api> a(n * (n + 1) / 2, seed());
      const Data<Api> x(n, seed());
      scalars<Api>();
      CALL(handle_, fill, trans, d, n, a.dev(), x.dev(), 1);
      expect_as_reference(name, x, n,
                          [&](Pick p, auto* out) { tpmv(uplo(fill), op(trans), diag(d), n, p(a), out, 1); });
    });
  };
  FOUR(packed, tpmv_v2);
}

// x of op(A) x = b is held by its residual: |op(A) x - b| may not exceed (n + 8) u |op(A)| |x| for each entry, as
// substitution's backward error says (twice that in complex arithmetic). back(pick, x) multiplies x by op(A).
template <typename Api, typename Back>
void expect_solves(const char* name, const Data<Api>& b, int64_t n, Back back) {
  Data<Api> x = Data<Api>(static_cast<int64_t>(b.host.size()), 0);
  const std::vector<Wide<Api>> got = b.now();
  for (size_t i = 0; i < got.size(); ++i) x.host[i] = Of<Api>::narrow(got[i]);
  x.upload();
  EXPECT_NE(x.wide, b.wide) << name;
  std::vector<Wide<Api>> product = x.wide;
  std::vector<Wide<Api>> scale = x.magnitude;
  back(Pick{false}, product.data());
  back(Pick{true}, scale.data());
  const double factor = static_cast<double>(n + 8) * (Of<Api>::kComplex ? 2.0 : 1.0) * (Of<Api>::kUnit + 0x1p-53);
  for (size_t i = 0; i < product.size(); ++i) {
    ASSERT_LE(std::abs(product[i] - b.wide[i]), factor * (std::abs(scale[i]) + std::abs(b.wide[i])))
        << name << ": residual of element " << i;
  }
}

TEST_F(BlasTest, TriangularSolves) {
  constexpr int n = 11;
  const auto dense = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    each_triangle([&](auto fill, auto trans, auto d) {
      const Data<Api> a(13 * n, seed());
      const Data<Api> x(2 * n - 1, seed());
      scalars<Api>();
      CALL(handle_, fill, trans, d, n, a.dev(), 13, x.dev(), 2);
      expect_solves(name, x, n, [&](Pick p, auto* out) { trmv(uplo(fill), op(trans), diag(d), n, p(a), 13, out, 2); });
    });
  };
  FOUR(dense, trsv_v2);
  const auto banded = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    each_triangle([&](auto fill, auto trans, auto d) {
      const Data<Api> a(5 * n, seed());
      const Data<Api> x(n, seed());
      scalars<Api>();
      CALL(handle_, fill, trans, d, n, 3, a.dev(), 5, x.dev(), -1);
      expect_solves(name, x, n,
                    [&](Pick p, auto* out) { tbmv(uplo(fill), op(trans), diag(d), n, 3, p(a), 5, out, -1); });
    });
  };
  FOUR(banded, tbsv_v2);
  const auto packed = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    each_triangle([&](auto fill, auto trans, auto d) {
      const Data<Api> a(n * (n + 1) / 2, seed());
      const Data<Api> x(n, seed());
      scalars<Api>();
      CALL(handle_, fill, trans, d, n, a.dev(), x.dev(), 1);
      expect_solves(name, x, n, [&](Pick p, auto* out) { tpmv(uplo(fill), op(trans), diag(d), n, p(a), out, 1); });
    });
  };
  FOUR(packed, tpsv_v2);
}

TEST_F(BlasTest, RankOneAndTwoUpdates) {
  constexpr int n = 10;
  constexpr int lda = 12;
  const auto general = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    const Data<Api> x(2 * n, seed());
    const Data<Api> y(2 * n, seed());
    const Data<Api> a(lda * 7, seed());
    const auto s = scalars<Api>();
    CALL(handle_, n, 7, s.alpha(), x.dev(), -2, y.dev(), 1, a.dev(), lda);
    expect_as_reference(name, a, 2, [&](Pick p, auto* out) { ger(n, 7, p(s.a()), p(x), -2, p(y), 1, out, lda); });
  };
  REAL_TWO(general, ger_v2);
  COMPLEX_TWO(general, geru_v2);
  const auto conjugated = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    const Data<Api> x(n, seed());
    const Data<Api> y(n, seed());
    const Data<Api> a(lda * 7, seed());
    const auto s = scalars<Api>();
    CALL(handle_, n, 7, s.alpha(), x.dev(), 1, y.dev(), -1, a.dev(), lda);
    expect_as_reference(name, a, 2, [&](Pick p, Z* out) {
      const Z alpha = p(s.a());
      cblas_zgerc(kCol, n, 7, &alpha, p(x), 1, p(y), -1, out, lda);
    });
  };
  COMPLEX_TWO(conjugated, gerc_v2);

  for (const auto fill : kFills) {
    const auto one = [&](auto tag, const char* name, auto f, auto f64) {
      using Api = decltype(tag);
      const Data<Api> x(2 * n, seed());
      const Data<Api> a(lda * n, seed());
      const auto s = scalars<typename Of<Api>::RealApi>();
      CALL(handle_, fill, n, s.alpha(), x.dev(), 2, a.dev(), lda);
      expect_as_reference(name, a, 2,
                          [&](Pick p, auto* out) { syr_or_her(uplo(fill), n, p(s.a()), p(x), 2, out, lda); });
    };
    REAL_TWO(one, syr_v2);
    COMPLEX_TWO(one, her_v2);
    const auto one_packed = [&](auto tag, const char* name, auto f, auto f64) {
      using Api = decltype(tag);
      const Data<Api> x(2 * n, seed());
      const Data<Api> a(n * (n + 1) / 2, seed());
      const auto s = scalars<typename Of<Api>::RealApi>();
      CALL(handle_, fill, n, s.alpha(), x.dev(), -2, a.dev());
      expect_as_reference(name, a, 2, [&](Pick p, auto* out) { spr_or_hpr(uplo(fill), n, p(s.a()), p(x), -2, out); });
    };
    REAL_TWO(one_packed, spr_v2);
    COMPLEX_TWO(one_packed, hpr_v2);
    const auto two = [&](auto tag, const char* name, auto f, auto f64) {
      using Api = decltype(tag);
      const Data<Api> x(2 * n, seed());
      const Data<Api> y(n, seed());
      const Data<Api> a(lda * n, seed());
      const auto s = scalars<Api>();
      CALL(handle_, fill, n, s.alpha(), x.dev(), 2, y.dev(), -1, a.dev(), lda);
      expect_as_reference(
          name, a, 4, [&](Pick p, auto* out) { syr2_or_her2(uplo(fill), n, p(s.a()), p(x), 2, p(y), -1, out, lda); });
    };
    REAL_TWO(two, syr2_v2);
    COMPLEX_TWO(two, her2_v2);
    const auto two_packed = [&](auto tag, const char* name, auto f, auto f64) {
      using Api = decltype(tag);
      const Data<Api> x(n, seed());
      const Data<Api> y(n, seed());
      const Data<Api> a(n * (n + 1) / 2, seed());
      const auto s = scalars<Api>();
      CALL(handle_, fill, n, s.alpha(), x.dev(), 1, y.dev(), 1, a.dev());
      expect_as_reference(name, a, 4,
                          [&](Pick p, auto* out) { spr2_or_hpr2(uplo(fill), n, p(s.a()), p(x), 1, p(y), 1, out); });
    };
    REAL_TWO(two_packed, spr2_v2);
    COMPLEX_TWO(two_packed, hpr2_v2);
    // The C interface has no complex symmetric updates: the triangle of x x^T and of x y^T + y x^T by products.
    const auto triangle_of = [fill](const std::vector<Z>& full, Z* out) {
      for (int j = 0; j < n; ++j) {
        for (int i = 0; i < n; ++i) {
          if (fill == CUBLAS_FILL_MODE_UPPER ? i <= j : i >= j) {
            out[i + j * lda] = full[static_cast<size_t>(i + j * lda)];
          }
        }
      }
    };
    const auto symmetric = [&](auto tag, const char* name, auto f, auto f64) {
      using Api = decltype(tag);
      const Data<Api> x(n, seed());
      const Data<Api> a(lda * n, seed());
      const auto s = scalars<Api>();
      CALL(handle_, fill, n, s.alpha(), x.dev(), 1, a.dev(), lda);
      expect_as_reference(name, a, 2, [&](Pick p, Z* out) {
        std::vector<Z> full(out, out + lda * n);
        ger(n, n, p(s.a()), p(x), 1, p(x), 1, full.data(), lda);
        triangle_of(full, out);
      });
    };
    COMPLEX_TWO(symmetric, syr_v2);
    const auto symmetric_two = [&](auto tag, const char* name, auto f, auto f64) {
      using Api = decltype(tag);
      const Data<Api> x(n, seed());
      const Data<Api> y(n, seed());
      const Data<Api> a(lda * n, seed());
      const auto s = scalars<Api>();
      CALL(handle_, fill, n, s.alpha(), x.dev(), 1, y.dev(), 1, a.dev(), lda);
      expect_as_reference(name, a, 4, [&](Pick p, Z* out) {
        std::vector<Z> full(out, out + lda * n);
        ger(n, n, p(s.a()), p(x), 1, p(y), 1, full.data(), lda);
        ger(n, n, p(s.a()), p(y), 1, p(x), 1, full.data(), lda);
        triangle_of(full, out);
      });
    };
    COMPLEX_TWO(symmetric_two, syr2_v2);
  }
}

// ---- level 3

TEST_F(BlasTest, SyrkFamily) {
  constexpr int n = 9;
  constexpr int k = 14;
  for (const auto fill : kFills) {
    for (const auto trans : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      const int ld = (trans == CUBLAS_OP_N ? n : k) + 2;
      const int elems = ld * (trans == CUBLAS_OP_N ? k : n);
      const auto own = [&](auto tag, const char* name, auto f, auto f64) {
        using Api = decltype(tag);
        const Data<Api> a(elems, seed());
        const Data<Api> c(11 * n, seed());
        const auto s = scalars<Api>();
        CALL(handle_, fill, trans, n, k, s.alpha(), a.dev(), ld, s.beta(), c.dev(), 11);
        expect_as_reference(name, c, k, [&](Pick p, auto* out) {
          syrk(uplo(fill), op(trans), n, k, p(s.a()), p(a), ld, p(s.b()), out, 11);
        });
      };
      FOUR(own, syrk_v2);
      const auto both = [&](auto tag, const char* name, auto f, auto f64) {
        using Api = decltype(tag);
        const Data<Api> a(elems, seed());
        const Data<Api> b(elems, seed());
        const Data<Api> c(11 * n, seed());
        const auto s = scalars<Api>();
        CALL(handle_, fill, trans, n, k, s.alpha(), a.dev(), ld, b.dev(), ld, s.beta(), c.dev(), 11);
        expect_as_reference(name, c, 2 * k, [&](Pick p, auto* out) {
          syr2k(uplo(fill), op(trans), n, k, p(s.a()), p(a), ld, p(b), ld, p(s.b()), out, 11);
        });
      };
      FOUR(both, syr2k_v2);
      const auto other = [&](auto tag, const char* name, auto f, auto f64) {
        using Api = decltype(tag);
        const Data<Api> a(elems, seed());
        const Data<Api> b(elems, seed());
        const Data<Api> c(11 * n, seed());
        const auto s = scalars<Api>();
        CALL(handle_, fill, trans, n, k, s.alpha(), a.dev(), ld, b.dev(), ld, s.beta(), c.dev(), 11);
        expect_as_reference(name, c, k, [&](Pick p, auto* out) {
          std::vector<Wide<Api>> full(out, out + 11 * n);
          gemm(op(trans), trans == CUBLAS_OP_N ? CblasTrans : CblasNoTrans, n, n, k, p(s.a()), p(a), ld, p(b), ld,
               p(s.b()), full.data(), 11);
          for (int j = 0; j < n; ++j) {
            for (int i = 0; i < n; ++i) {
              if (fill == CUBLAS_FILL_MODE_UPPER ? i <= j : i >= j)
                out[i + 11 * j] = full[static_cast<size_t>(i + 11 * j)];
            }
          }
        });
      };
      FOUR(other, syrkx);
    }
  }
}

TEST_F(BlasTest, HerkFamily) {
  constexpr int n = 9;
  constexpr int k = 14;
  for (const auto fill : kFills) {
    for (const auto trans : {CUBLAS_OP_N, CUBLAS_OP_C}) {
      const int ld = (trans == CUBLAS_OP_N ? n : k) + 2;
      const int elems = ld * (trans == CUBLAS_OP_N ? k : n);
      const auto own = [&](auto tag, const char* name, auto f, auto f64) {
        using Api = decltype(tag);
        const Data<Api> a(elems, seed());
        const Data<Api> c(11 * n, seed());
        const auto s = scalars<typename Of<Api>::RealApi>();
        CALL(handle_, fill, trans, n, k, s.alpha(), a.dev(), ld, s.beta(), c.dev(), 11);
        expect_as_reference(name, c, k, [&](Pick p, Z* out) {
          cblas_zherk(kCol, uplo(fill), op(trans), n, k, p(s.a()), p(a), ld, p(s.b()), out, 11);
        });
      };
      COMPLEX_TWO(own, herk_v2);
      // The real beta of her2k and herkx is the real part of the second scalar: the layout of both is the same.
      const auto both = [&](auto tag, const char* name, auto f, auto f64) {
        using Api = decltype(tag);
        const Data<Api> a(elems, seed());
        const Data<Api> b(elems, seed());
        const Data<Api> c(11 * n, seed());
        const auto s = scalars<Api>();
        const auto* beta = reinterpret_cast<const typename Of<Api>::RealApi*>(s.beta());
        CALL(handle_, fill, trans, n, k, s.alpha(), a.dev(), ld, b.dev(), ld, beta, c.dev(), 11);
        expect_as_reference(name, c, 2 * k, [&](Pick p, Z* out) {
          const Z alpha = p(s.a());
          cblas_zher2k(kCol, uplo(fill), op(trans), n, k, &alpha, p(a), ld, p(b), ld, p(s.b().real()), out, 11);
        });
      };
      COMPLEX_TWO(both, her2k_v2);
      const auto other = [&](auto tag, const char* name, auto f, auto f64) {
        using Api = decltype(tag);
        const Data<Api> a(elems, seed());
        const Data<Api> b(elems, seed());
        const Data<Api> c(11 * n, seed());
        const auto s = scalars<Api>();
        const auto* beta = reinterpret_cast<const typename Of<Api>::RealApi*>(s.beta());
        CALL(handle_, fill, trans, n, k, s.alpha(), a.dev(), ld, b.dev(), ld, beta, c.dev(), 11);
        expect_as_reference(name, c, k, [&](Pick p, Z* out) {
          std::vector<Z> full(out, out + 11 * n);
          gemm(op(trans), trans == CUBLAS_OP_N ? CblasConjTrans : CblasNoTrans, n, n, k, p(s.a()), p(a), ld, p(b), ld,
               p(Z(s.b().real())), full.data(), 11);
          for (int j = 0; j < n; ++j) {
            for (int i = 0; i < n; ++i) {
              const Z value = full[static_cast<size_t>(i + 11 * j)];
              if (fill == CUBLAS_FILL_MODE_UPPER ? i <= j : i >= j) out[i + 11 * j] = i == j ? value.real() : value;
            }
          }
        });
      };
      COMPLEX_TWO(other, herkx);
    }
  }
}

// Csyrk and Cherk with types named at run time, from C_32F and from C_8I.
TEST_F(BlasTest, SyrkExFamily) {
  constexpr int n = 7;
  constexpr int k = 12;
  const auto run = [&](const char* name, auto f, bool hermitian) {
    for (const bool bytes : {false, true}) {
      for (const auto fill : kFills) {
        Data<cuComplex> a(n * k, seed());
        std::vector<signed char> narrow;
        if (bytes) {
          for (cuComplex& x : a.host) {
            x = {std::nearbyint(x.x * 40.0f), std::nearbyint(x.y * 40.0f)};
            narrow.push_back(static_cast<signed char>(x.x = std::clamp(x.x, -128.0f, 127.0f)));
            narrow.push_back(static_cast<signed char>(x.y = std::clamp(x.y, -128.0f, 127.0f)));
          }
          a.upload();
        }
        const reference::DeviceBytes a_bytes(narrow.size());
        ASSERT_EQ(cudaMemcpy(a_bytes.get(), narrow.data(), narrow.size(), cudaMemcpyHostToDevice), cudaSuccess);
        const Data<cuComplex> c(n * n, seed());
        const auto s = scalars<cuComplex>();
        done(f(fill, s.alpha(), bytes ? a_bytes.get() : a.dev(), bytes ? CUDA_C_8I : CUDA_C_32F, s.beta(), c.dev()));
        expect_as_reference(name, c, k, [&](Pick p, Z* out) {
          const Z alpha = p(s.a());
          const Z beta = p(s.b());
          if (hermitian) {
            cblas_zherk(kCol, uplo(fill), CblasNoTrans, n, k, p(s.a().real()), p(a), n, p(s.b().real()), out, n);
          } else {
            cblas_zsyrk(kCol, uplo(fill), CblasNoTrans, n, k, &alpha, p(a), n, &beta, out, n);
          }
        });
      }
    }
  };
#define SYRK_EX(name)                                                                             \
  run(                                                                                            \
      #name,                                                                                      \
      [&](auto fill, auto* alpha, void* a, cudaDataType type, auto* beta, void* c) {              \
        return name(handle_, fill, CUBLAS_OP_N, n, k, alpha, a, type, n, beta, c, CUDA_C_32F, n); \
      },                                                                                          \
      false)
#define HERK_EX(name)                                                                                    \
  run(                                                                                                   \
      #name,                                                                                             \
      [&](auto fill, auto* alpha, void* a, cudaDataType type, auto* beta, void* c) {                     \
        return name(handle_, fill, CUBLAS_OP_N, n, k, reinterpret_cast<const float*>(alpha), a, type, n, \
                    reinterpret_cast<const float*>(beta), c, CUDA_C_32F, n);                             \
      },                                                                                                 \
      true)
  SYRK_EX(cublasCsyrkEx);
  SYRK_EX(cublasCsyrkEx_64);
  SYRK_EX(cublasCsyrk3mEx);
  SYRK_EX(cublasCsyrk3mEx_64);
  HERK_EX(cublasCherkEx);
  HERK_EX(cublasCherkEx_64);
  HERK_EX(cublasCherk3mEx);
  HERK_EX(cublasCherk3mEx_64);
}

TEST_F(BlasTest, SymmAndHemm) {
  constexpr int m = 8;
  constexpr int n = 11;
  for (const auto which : kSides) {
    const int order = which == CUBLAS_SIDE_LEFT ? m : n;
    for (const auto fill : kFills) {
      const auto symmetric = [&](auto tag, const char* name, auto f, auto f64) {
        using Api = decltype(tag);
        const Data<Api> a((order + 1) * order, seed());
        const Data<Api> b(10 * n, seed());
        const Data<Api> c(9 * n, seed());
        const auto s = scalars<Api>();
        CALL(handle_, which, fill, m, n, s.alpha(), a.dev(), order + 1, b.dev(), 10, s.beta(), c.dev(), 9);
        expect_as_reference(name, c, order, [&](Pick p, auto* out) {
          symm(side(which), uplo(fill), m, n, p(s.a()), p(a), order + 1, p(b), 10, p(s.b()), out, 9);
        });
      };
      FOUR(symmetric, symm_v2);
      const auto hermitian = [&](auto tag, const char* name, auto f, auto f64) {
        using Api = decltype(tag);
        const Data<Api> a((order + 1) * order, seed());
        const Data<Api> b(10 * n, seed());
        const Data<Api> c(9 * n, seed());
        const auto s = scalars<Api>();
        CALL(handle_, which, fill, m, n, s.alpha(), a.dev(), order + 1, b.dev(), 10, s.beta(), c.dev(), 9);
        expect_as_reference(name, c, order, [&](Pick p, Z* out) {
          const Z alpha = p(s.a());
          const Z beta = p(s.b());
          cblas_zhemm(kCol, side(which), uplo(fill), m, n, &alpha, p(a), order + 1, p(b), 10, &beta, out, 9);
        });
      };
      COMPLEX_TWO(hermitian, hemm_v2);
    }
  }
}

TEST_F(BlasTest, TrmmIntoAnotherMatrixAndInPlace) {
  constexpr int m = 8;
  constexpr int n = 6;
  for (const auto which : kSides) {
    const int order = which == CUBLAS_SIDE_LEFT ? m : n;
    each_triangle([&](auto fill, auto trans, auto d) {
      const auto check = [&](auto tag, const char* name, auto f, auto f64) {
        using Api = decltype(tag);
        const Data<Api> a((order + 2) * order, seed());
        const Data<Api> b(9 * n, seed());
        const Data<Api> c(9 * n, seed());
        const auto s = scalars<Api>();
        const auto reference = [&](Pick p, auto* out) {
          const auto* from = p(b);
          for (int j = 0; j < n; ++j) std::copy_n(from + 9 * j, m, out + 9 * j);
          trmm(side(which), uplo(fill), op(trans), diag(d), m, n, p(s.a()), p(a), order + 2, out, 9);
        };
        CALL(handle_, which, fill, trans, d, m, n, s.alpha(), a.dev(), order + 2, b.dev(), 9, c.dev(), 9);
        expect_as_reference(name, c, order, reference);
        CALL(handle_, which, fill, trans, d, m, n, s.alpha(), a.dev(), order + 2, b.dev(), 9, b.dev(), 9);
        expect_as_reference(name, b, order, reference);
      };
      FOUR(check, trmm_v2);
    });
  }
}

TEST_F(BlasTest, TrsmAndItsBatches) {
  constexpr int m = 8;
  constexpr int n = 6;
  for (const auto which : kSides) {
    const int order = which == CUBLAS_SIDE_LEFT ? m : n;
    each_triangle([&](auto fill, auto trans, auto d) {
      // op(A) X = alpha B: with alpha 2 the halved X of the device is held against B, exactly.
      const auto held = [&](const char* name, const auto& a, const auto& b) {
        using Api = std::remove_pointer_t<decltype(a.dev())>;
        expect_solves(name, b, order, [&](Pick p, auto* x) {
          for (int j = 0; j < n; ++j) {
            for (int i = 0; i < m; ++i) x[i + 9 * j] *= 0.5;
          }
          trmm(side(which), uplo(fill), op(trans), diag(d), m, n, Wide<Api>(1.0), p(a), order + 2, x, 9);
        });
      };
      const auto one = [&](auto tag, const char* name, auto f, auto f64) {
        using Api = decltype(tag);
        const Data<Api> a((order + 2) * order, seed());
        const Data<Api> b(9 * (n - 1) + m, seed());
        scalars<Api>();
        ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_HOST), CUBLAS_STATUS_SUCCESS);
        const Api two = Of<Api>::narrow(2.0);
        CALL(handle_, which, fill, trans, d, m, n, &two, a.dev(), order + 2, b.dev(), 9);
        held(name, a, b);
      };
      FOUR(one, trsm_v2);
      const auto batch = [&](auto tag, const char* name, auto f, auto f64) {
        using Api = decltype(tag);
        const Data<Api> a0((order + 2) * order, seed());
        const Data<Api> a1((order + 2) * order, seed());
        const Data<Api> b0(9 * (n - 1) + m, seed());
        const Data<Api> b1(9 * (n - 1) + m, seed());
        Api* const addresses[] = {a0.dev(), a1.dev(), b0.dev(), b1.dev()};
        const reference::DeviceBytes lists(sizeof addresses);
        ASSERT_EQ(cudaMemcpy(lists.get(), addresses, sizeof addresses, cudaMemcpyHostToDevice), cudaSuccess);
        Api** const list = lists.as<Api*>();
        scalars<Api>();
        ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_HOST), CUBLAS_STATUS_SUCCESS);
        const Api two = Of<Api>::narrow(2.0);
        CALL(handle_, which, fill, trans, d, m, n, &two, list, order + 2, list + 2, 9, 2);
        held(name, a0, b0);
        held(name, a1, b1);
      };
      FOUR(batch, trsmBatched);
    });
  }
}

// ---- cuBLAS's own

TEST_F(BlasTest, Geam) {
  constexpr int m = 7;
  constexpr int n = 5;
  const auto check = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    for (const auto ta : kOps) {
      for (const auto tb : kOps) {
        const int lda = (ta == CUBLAS_OP_N ? m : n) + 1;
        const int ldb = (tb == CUBLAS_OP_N ? m : n) + 3;
        const Data<Api> a(lda * (ta == CUBLAS_OP_N ? n : m), seed());
        const Data<Api> b(ldb * (tb == CUBLAS_OP_N ? n : m), seed());
        const Data<Api> c(9 * n, seed());
        const auto s = scalars<Api>();
        CALL(handle_, ta, tb, m, n, s.alpha(), a.dev(), lda, s.beta(), b.dev(), ldb, c.dev(), 9);
        expect_as_reference(name, c, 2, [&](Pick p, auto* out) {
          const auto entry = [](cublasOperation_t t, auto* x, int ld, int i, int j) -> Wide<Api> {
            if (t == CUBLAS_OP_N) return x[i + j * ld];
            if constexpr (Of<Api>::kComplex)
              return t == CUBLAS_OP_C ? std::conj(x[j + i * ld]) : x[j + i * ld];
            else
              return x[j + i * ld];
          };
          for (int j = 0; j < n; ++j) {
            for (int i = 0; i < m; ++i) {
              out[i + 9 * j] = p(s.a()) * entry(ta, p(a), lda, i, j) + p(s.b()) * entry(tb, p(b), ldb, i, j);
            }
          }
        });
      }
    }
  };
  FOUR(check, geam);
}

TEST_F(BlasTest, DgmmTpttrTrttp) {
  constexpr int m = 7;
  constexpr int n = 5;
  const auto scaled = [&](auto tag, const char* name, auto f, auto f64) {
    using Api = decltype(tag);
    for (const auto which : kSides) {
      const Data<Api> a(8 * n, seed());
      const Data<Api> x(20, seed());
      const Data<Api> c(9 * n, seed());
      scalars<Api>();
      CALL(handle_, which, m, n, a.dev(), 8, x.dev(), -2, c.dev(), 9);
      const int length = which == CUBLAS_SIDE_LEFT ? m : n;
      expect_as_reference(name, c, 1, [&](Pick p, auto* out) {
        for (int j = 0; j < n; ++j) {
          for (int i = 0; i < m; ++i) {
            out[i + 9 * j] = p(a)[i + 8 * j] * p(x)[2 * (length - 1 - (which == CUBLAS_SIDE_LEFT ? i : j))];
          }
        }
      });
    }
  };
  FOUR(scaled, dgmm);
  const auto repacked = [&](auto tag, const char* name, auto to_full, auto to_packed) {
    using Api = decltype(tag);
    for (const auto fill : kFills) {
      const Data<Api> packed(n * (n + 1) / 2, seed());
      const Data<Api> full(7 * n, seed());
      const Data<Api> back(n * (n + 1) / 2, seed());
      done(to_full(handle_, fill, n, packed.dev(), full.dev(), 7));
      expect_as_reference(name, full, 0, [&](Pick p, auto* out) {
        size_t next = 0;
        for (int j = 0; j < n; ++j) {
          for (int i = fill == CUBLAS_FILL_MODE_UPPER ? 0 : j; i < (fill == CUBLAS_FILL_MODE_UPPER ? j + 1 : n); ++i) {
            out[i + 7 * j] = p(packed)[next++];
          }
        }
      });
      done(to_packed(handle_, fill, n, full.dev(), 7, back.dev()));
      EXPECT_EQ(back.now(), packed.wide) << name;
    }
  };
  repacked(float{}, "S", cublasStpttr, cublasStrttp);
  repacked(double{}, "D", cublasDtpttr, cublasDtrttp);
  repacked(cuComplex{}, "C", cublasCtpttr, cublasCtrttp);
  repacked(cuDoubleComplex{}, "Z", cublasZtpttr, cublasZtrttp);
}

// The harness itself: one wrong element and one written gap are each seen.
TEST_F(BlasTest, Reference_NoticesWhatIsWrong) {
  const auto tampered = [&](size_t place, float by) {
    const Data<float> x(4, 1);
    const Data<float> y(12, 2);
    std::vector<float> now = y.host;
    for (size_t i = 0; i < 4; ++i) now[3 * i] += 2.0f * x.host[i];
    now[place] += by;
    EXPECT_EQ(cudaMemcpy(y.dev(), now.data(), 48, cudaMemcpyHostToDevice), cudaSuccess);
    return difference_from_reference(y, 1, [&](Pick p, double* out) { cblas_daxpy(4, p(2.0), p(x), 1, out, 3); });
  };
  EXPECT_EQ(tampered(0, 0.0f), "");
  EXPECT_NE(tampered(3, 1e-4f), "");
  EXPECT_NE(tampered(4, 1e-6f), "");
}

}  // namespace

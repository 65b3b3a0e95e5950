// SPDX-License-Identifier: MIT
// The first API of cuBLAS, without handles: takes scalars by value and options by letter, gives a call of the second
// API on the library's one handle in HOST pointer mode. Errors are kept for cublasGetError. As in libcublas.so.13,
// whatever comes first makes the handle, cublasInit or another; cublasAlloc and cublasFree need none, and
// cublasShutdown always succeeds.
#pragma GCC visibility push(default)
#include <cublas.h>
#pragma GCC visibility pop

#include <atomic>
#include <mutex>

#include "tools/hostcuda/core.h"
#include "tools/hostcuda/cublas/context.h"

namespace hostcuda {
namespace {

std::atomic<cublasHandle_t> the_handle{nullptr};
std::atomic<cublasStatus_t> last_error{CUBLAS_STATUS_SUCCESS};
std::mutex initialising;

void keep(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) last_error = status;
}

// Letters as BLAS has them, of either case; any other becomes no enumerator, which the call refuses.
char upper(char letter) {
  return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
}
cublasOperation_t op(char letter) {
  const char x = upper(letter);
  return x == 'N' ? CUBLAS_OP_N : x == 'T' ? CUBLAS_OP_T : x == 'C' ? CUBLAS_OP_C : static_cast<cublasOperation_t>(-1);
}
cublasFillMode_t fill(char letter) {
  const char x = upper(letter);
  return x == 'L' ? CUBLAS_FILL_MODE_LOWER : x == 'U' ? CUBLAS_FILL_MODE_UPPER : static_cast<cublasFillMode_t>(-1);
}
cublasDiagType_t diag(char letter) {
  const char x = upper(letter);
  return x == 'N' ? CUBLAS_DIAG_NON_UNIT : x == 'U' ? CUBLAS_DIAG_UNIT : static_cast<cublasDiagType_t>(-1);
}
cublasSideMode_t side(char letter) {
  const char x = upper(letter);
  return x == 'L' ? CUBLAS_SIDE_LEFT : x == 'R' ? CUBLAS_SIDE_RIGHT : static_cast<cublasSideMode_t>(-1);
}

// The library's handle, made where there is none yet; null: it cannot be made.
cublasHandle_t own_handle() {
  if (!the_handle) cublasInit();
  return the_handle;
}

// call(handle, arguments...) on the library's handle.
template <typename Call, typename... Arguments>
void run(Call call, Arguments... arguments) {
  const cublasHandle_t handle = own_handle();
  keep(handle ? call(handle, arguments...) : CUBLAS_STATUS_NOT_INITIALIZED);
}
// As run, for a call whose last argument is where its result goes: 0 after an error.
template <typename R, typename Call, typename... Arguments>
R result(Call call, Arguments... arguments) {
  R value{};
  run(call, arguments..., &value);
  return value;
}

}  // namespace
}  // namespace hostcuda

using hostcuda::diag;
using hostcuda::fill;
using hostcuda::op;
using hostcuda::result;
using hostcuda::run;
using hostcuda::side;

extern "C" {

cublasStatus cublasInit(void) {
  const std::lock_guard<std::mutex> lock(hostcuda::initialising);
  if (hostcuda::the_handle) return CUBLAS_STATUS_SUCCESS;
  cublasHandle_t handle = nullptr;
  const cublasStatus_t status = cublasCreate_v2(&handle);
  if (status == CUBLAS_STATUS_SUCCESS) hostcuda::the_handle = handle;
  return status;
}

cublasStatus cublasShutdown(void) {
  const std::lock_guard<std::mutex> lock(hostcuda::initialising);
  const cublasHandle_t handle = hostcuda::the_handle.exchange(nullptr);
  if (handle) cublasDestroy_v2(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus cublasGetError(void) {
  return hostcuda::last_error.exchange(CUBLAS_STATUS_SUCCESS);
}

cublasStatus cublasGetVersion(int* version) {
  return cublasGetVersion_v2(hostcuda::own_handle(), version);
}

cublasStatus cublasAlloc(int n, int elemSize, void** devicePtr) {
  if (n <= 0 || elemSize <= 0 || !devicePtr) return CUBLAS_STATUS_INVALID_VALUE;
  if (!hostcuda_current_context() && hostcuda_use_device(-1) != CUDA_SUCCESS) return CUBLAS_STATUS_ALLOC_FAILED;
  using Allocate = CUresult (*)(CUdeviceptr*, size_t);
  const auto allocate = reinterpret_cast<Allocate>(hostcuda_driver("cuMemAlloc_v2"));
  CUdeviceptr address = 0;
  const size_t bytes = static_cast<size_t>(n) * static_cast<size_t>(elemSize);
  if (!allocate || allocate(&address, bytes) != CUDA_SUCCESS) return CUBLAS_STATUS_ALLOC_FAILED;
  *devicePtr = reinterpret_cast<void*>(address);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus cublasFree(void* devicePtr) {
  if (!devicePtr) return CUBLAS_STATUS_SUCCESS;
  using Free = CUresult (*)(CUdeviceptr);
  const auto release = reinterpret_cast<Free>(hostcuda_driver("cuMemFree_v2"));
  const bool done = release && release(reinterpret_cast<CUdeviceptr>(devicePtr)) == CUDA_SUCCESS;
  return done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INTERNAL_ERROR;
}

cublasStatus cublasSetKernelStream(cudaStream_t stream) {
  return cublasSetStream_v2(hostcuda::own_handle(), stream);
}

// clang-format off

// Level 1: letter L, element type T.
#define HOSTCUDA_LEVEL_1(L, T)                                                                                         \
  void cublas##L##axpy(int n, T alpha, const T* x, int incx, T* y, int incy) {                                         \
    run(cublas##L##axpy_v2, n, &alpha, x, incx, y, incy);                                                              \
  }                                                                                                                    \
  void cublas##L##scal(int n, T alpha, T* x, int incx) { run(cublas##L##scal_v2, n, &alpha, x, incx); }                \
  void cublas##L##copy(int n, const T* x, int incx, T* y, int incy) { run(cublas##L##copy_v2, n, x, incx, y, incy); }  \
  void cublas##L##swap(int n, T* x, int incx, T* y, int incy) { run(cublas##L##swap_v2, n, x, incx, y, incy); }
#define HOSTCUDA_ROT(L, T, C, S)                                                                                       \
  void cublas##L##rot(int n, T* x, int incx, T* y, int incy, C c, S s) {                                               \
    run(cublas##L##rot_v2, n, x, incx, y, incy, &c, &s);                                                               \
  }
#define HOSTCUDA_EXTREME(name, T)                                                                                      \
  int name(int n, const T* x, int incx) { return result<int>(name##_v2, n, x, incx); }
#define HOSTCUDA_REDUCE(name, T, R)                                                                                    \
  R name(int n, const T* x, int incx) { return result<R>(name##_v2, n, x, incx); }
#define HOSTCUDA_DOT(name, T)                                                                                          \
  T name(int n, const T* x, int incx, const T* y, int incy) { return result<T>(name##_v2, n, x, incx, y, incy); }
#define HOSTCUDA_REAL_LEVEL_1(L, T)                                                                                    \
  void cublas##L##rotg(T* a, T* b, T* c, T* s) { run(cublas##L##rotg_v2, a, b, c, s); }                                \
  void cublas##L##rotm(int n, T* x, int incx, T* y, int incy, const T* param) {                                        \
    run(cublas##L##rotm_v2, n, x, incx, y, incy, param);                                                               \
  }                                                                                                                    \
  void cublas##L##rotmg(T* d1, T* d2, T* x1, const T* y1, T* param) { run(cublas##L##rotmg_v2, d1, d2, x1, y1, param); }

HOSTCUDA_LEVEL_1(S, float)
HOSTCUDA_LEVEL_1(D, double)
HOSTCUDA_LEVEL_1(C, cuComplex)
HOSTCUDA_LEVEL_1(Z, cuDoubleComplex)
HOSTCUDA_REAL_LEVEL_1(S, float)
HOSTCUDA_REAL_LEVEL_1(D, double)
void cublasCsscal(int n, float alpha, cuComplex* x, int incx) { run(cublasCsscal_v2, n, &alpha, x, incx); }
void cublasZdscal(int n, double alpha, cuDoubleComplex* x, int incx) { run(cublasZdscal_v2, n, &alpha, x, incx); }
void cublasCrotg(cuComplex* a, cuComplex b, float* c, cuComplex* s) { run(cublasCrotg_v2, a, &b, c, s); }
void cublasZrotg(cuDoubleComplex* a, cuDoubleComplex b, double* c, cuDoubleComplex* s) {
  run(cublasZrotg_v2, a, &b, c, s);
}
HOSTCUDA_ROT(S, float, float, float)
HOSTCUDA_ROT(D, double, double, double)
HOSTCUDA_ROT(C, cuComplex, float, cuComplex)
HOSTCUDA_ROT(Z, cuDoubleComplex, double, cuDoubleComplex)
HOSTCUDA_ROT(Cs, cuComplex, float, float)
HOSTCUDA_ROT(Zd, cuDoubleComplex, double, double)
HOSTCUDA_EXTREME(cublasIsamax, float)
HOSTCUDA_EXTREME(cublasIdamax, double)
HOSTCUDA_EXTREME(cublasIcamax, cuComplex)
HOSTCUDA_EXTREME(cublasIzamax, cuDoubleComplex)
HOSTCUDA_EXTREME(cublasIsamin, float)
HOSTCUDA_EXTREME(cublasIdamin, double)
HOSTCUDA_EXTREME(cublasIcamin, cuComplex)
HOSTCUDA_EXTREME(cublasIzamin, cuDoubleComplex)
HOSTCUDA_REDUCE(cublasSnrm2, float, float)
HOSTCUDA_REDUCE(cublasDnrm2, double, double)
HOSTCUDA_REDUCE(cublasScnrm2, cuComplex, float)
HOSTCUDA_REDUCE(cublasDznrm2, cuDoubleComplex, double)
HOSTCUDA_REDUCE(cublasSasum, float, float)
HOSTCUDA_REDUCE(cublasDasum, double, double)
HOSTCUDA_REDUCE(cublasScasum, cuComplex, float)
HOSTCUDA_REDUCE(cublasDzasum, cuDoubleComplex, double)
HOSTCUDA_DOT(cublasSdot, float)
HOSTCUDA_DOT(cublasDdot, double)
HOSTCUDA_DOT(cublasCdotu, cuComplex)
HOSTCUDA_DOT(cublasCdotc, cuComplex)
HOSTCUDA_DOT(cublasZdotu, cuDoubleComplex)
HOSTCUDA_DOT(cublasZdotc, cuDoubleComplex)

// Levels 2 and 3 of every type. trmm works in place here, and into another matrix in the second API.
#define HOSTCUDA_EVERY_TYPE(L, T)                                                                                      \
  void cublas##L##gemv(char trans, int m, int n, T alpha, const T* A, int lda, const T* x, int incx, T beta, T* y,     \
                       int incy) {                                                                                     \
    run(cublas##L##gemv_v2, op(trans), m, n, &alpha, A, lda, x, incx, &beta, y, incy);                                 \
  }                                                                                                                    \
  void cublas##L##gbmv(char trans, int m, int n, int kl, int ku, T alpha, const T* A, int lda, const T* x, int incx,   \
                       T beta, T* y, int incy) {                                                                       \
    run(cublas##L##gbmv_v2, op(trans), m, n, kl, ku, &alpha, A, lda, x, incx, &beta, y, incy);                         \
  }                                                                                                                    \
  void cublas##L##trmv(char uplo, char trans, char d, int n, const T* A, int lda, T* x, int incx) {                    \
    run(cublas##L##trmv_v2, fill(uplo), op(trans), diag(d), n, A, lda, x, incx);                                       \
  }                                                                                                                    \
  void cublas##L##trsv(char uplo, char trans, char d, int n, const T* A, int lda, T* x, int incx) {                    \
    run(cublas##L##trsv_v2, fill(uplo), op(trans), diag(d), n, A, lda, x, incx);                                       \
  }                                                                                                                    \
  void cublas##L##tbmv(char uplo, char trans, char d, int n, int k, const T* A, int lda, T* x, int incx) {             \
    run(cublas##L##tbmv_v2, fill(uplo), op(trans), diag(d), n, k, A, lda, x, incx);                                    \
  }                                                                                                                    \
  void cublas##L##tbsv(char uplo, char trans, char d, int n, int k, const T* A, int lda, T* x, int incx) {             \
    run(cublas##L##tbsv_v2, fill(uplo), op(trans), diag(d), n, k, A, lda, x, incx);                                    \
  }                                                                                                                    \
  void cublas##L##tpmv(char uplo, char trans, char d, int n, const T* AP, T* x, int incx) {                            \
    run(cublas##L##tpmv_v2, fill(uplo), op(trans), diag(d), n, AP, x, incx);                                           \
  }                                                                                                                    \
  void cublas##L##tpsv(char uplo, char trans, char d, int n, const T* AP, T* x, int incx) {                            \
    run(cublas##L##tpsv_v2, fill(uplo), op(trans), diag(d), n, AP, x, incx);                                           \
  }                                                                                                                    \
  void cublas##L##gemm(char transa, char transb, int m, int n, int k, T alpha, const T* A, int lda, const T* B,        \
                       int ldb, T beta, T* C, int ldc) {                                                               \
    run(cublas##L##gemm_v2, op(transa), op(transb), m, n, k, &alpha, A, lda, B, ldb, &beta, C, ldc);                   \
  }                                                                                                                    \
  void cublas##L##syrk(char uplo, char trans, int n, int k, T alpha, const T* A, int lda, T beta, T* C, int ldc) {     \
    run(cublas##L##syrk_v2, fill(uplo), op(trans), n, k, &alpha, A, lda, &beta, C, ldc);                               \
  }                                                                                                                    \
  void cublas##L##syr2k(char uplo, char trans, int n, int k, T alpha, const T* A, int lda, const T* B, int ldb,        \
                        T beta, T* C, int ldc) {                                                                       \
    run(cublas##L##syr2k_v2, fill(uplo), op(trans), n, k, &alpha, A, lda, B, ldb, &beta, C, ldc);                      \
  }                                                                                                                    \
  void cublas##L##symm(char s, char uplo, int m, int n, T alpha, const T* A, int lda, const T* B, int ldb, T beta,     \
                       T* C, int ldc) {                                                                                \
    run(cublas##L##symm_v2, side(s), fill(uplo), m, n, &alpha, A, lda, B, ldb, &beta, C, ldc);                         \
  }                                                                                                                    \
  void cublas##L##trsm(char s, char uplo, char transa, char d, int m, int n, T alpha, const T* A, int lda, T* B,       \
                       int ldb) {                                                                                      \
    run(cublas##L##trsm_v2, side(s), fill(uplo), op(transa), diag(d), m, n, &alpha, A, lda, B, ldb);                   \
  }                                                                                                                    \
  void cublas##L##trmm(char s, char uplo, char transa, char d, int m, int n, T alpha, const T* A, int lda, T* B,       \
                       int ldb) {                                                                                      \
    run(cublas##L##trmm_v2, side(s), fill(uplo), op(transa), diag(d), m, n, &alpha, A, lda, B, ldb, B, ldb);           \
  }

// Symmetric and Hermitian matrices, dense, banded and packed; R: type of alpha in updates of rank one.
#define HOSTCUDA_MIRRORED(L, T, R, se, sb, sp, r1, p1, r2, p2)                                                         \
  void cublas##L##se(char uplo, int n, T alpha, const T* A, int lda, const T* x, int incx, T beta, T* y, int incy) {   \
    run(cublas##L##se##_v2, fill(uplo), n, &alpha, A, lda, x, incx, &beta, y, incy);                                   \
  }                                                                                                                    \
  void cublas##L##sb(char uplo, int n, int k, T alpha, const T* A, int lda, const T* x, int incx, T beta, T* y,        \
                     int incy) {                                                                                       \
    run(cublas##L##sb##_v2, fill(uplo), n, k, &alpha, A, lda, x, incx, &beta, y, incy);                                \
  }                                                                                                                    \
  void cublas##L##sp(char uplo, int n, T alpha, const T* AP, const T* x, int incx, T beta, T* y, int incy) {           \
    run(cublas##L##sp##_v2, fill(uplo), n, &alpha, AP, x, incx, &beta, y, incy);                                       \
  }                                                                                                                    \
  void cublas##L##r1(char uplo, int n, R alpha, const T* x, int incx, T* A, int lda) {                                 \
    run(cublas##L##r1##_v2, fill(uplo), n, &alpha, x, incx, A, lda);                                                   \
  }                                                                                                                    \
  void cublas##L##p1(char uplo, int n, R alpha, const T* x, int incx, T* AP) {                                         \
    run(cublas##L##p1##_v2, fill(uplo), n, &alpha, x, incx, AP);                                                       \
  }                                                                                                                    \
  void cublas##L##r2(char uplo, int n, T alpha, const T* x, int incx, const T* y, int incy, T* A, int lda) {           \
    run(cublas##L##r2##_v2, fill(uplo), n, &alpha, x, incx, y, incy, A, lda);                                          \
  }                                                                                                                    \
  void cublas##L##p2(char uplo, int n, T alpha, const T* x, int incx, const T* y, int incy, T* AP) {                   \
    run(cublas##L##p2##_v2, fill(uplo), n, &alpha, x, incx, y, incy, AP);                                              \
  }
#define HOSTCUDA_GER(name, T)                                                                                          \
  void name(int m, int n, T alpha, const T* x, int incx, const T* y, int incy, T* A, int lda) {                        \
    run(name##_v2, m, n, &alpha, x, incx, y, incy, A, lda);                                                            \
  }
#define HOSTCUDA_HERMITIAN(L, T, R)                                                                                    \
  void cublas##L##herk(char uplo, char trans, int n, int k, R alpha, const T* A, int lda, R beta, T* C, int ldc) {     \
    run(cublas##L##herk_v2, fill(uplo), op(trans), n, k, &alpha, A, lda, &beta, C, ldc);                               \
  }                                                                                                                    \
  void cublas##L##her2k(char uplo, char trans, int n, int k, T alpha, const T* A, int lda, const T* B, int ldb,        \
                        R beta, T* C, int ldc) {                                                                       \
    run(cublas##L##her2k_v2, fill(uplo), op(trans), n, k, &alpha, A, lda, B, ldb, &beta, C, ldc);                      \
  }                                                                                                                    \
  void cublas##L##hemm(char s, char uplo, int m, int n, T alpha, const T* A, int lda, const T* B, int ldb, T beta,     \
                       T* C, int ldc) {                                                                                \
    run(cublas##L##hemm_v2, side(s), fill(uplo), m, n, &alpha, A, lda, B, ldb, &beta, C, ldc);                         \
  }
// clang-format on

HOSTCUDA_EVERY_TYPE(S, float)
HOSTCUDA_EVERY_TYPE(D, double)
HOSTCUDA_EVERY_TYPE(C, cuComplex)
HOSTCUDA_EVERY_TYPE(Z, cuDoubleComplex)
HOSTCUDA_MIRRORED(S, float, float, symv, sbmv, spmv, syr, spr, syr2, spr2)
HOSTCUDA_MIRRORED(D, double, double, symv, sbmv, spmv, syr, spr, syr2, spr2)
HOSTCUDA_MIRRORED(C, cuComplex, float, hemv, hbmv, hpmv, her, hpr, her2, hpr2)
HOSTCUDA_MIRRORED(Z, cuDoubleComplex, double, hemv, hbmv, hpmv, her, hpr, her2, hpr2)
HOSTCUDA_GER(cublasSger, float)
HOSTCUDA_GER(cublasDger, double)
HOSTCUDA_GER(cublasCgeru, cuComplex)
HOSTCUDA_GER(cublasCgerc, cuComplex)
HOSTCUDA_GER(cublasZgeru, cuDoubleComplex)
HOSTCUDA_GER(cublasZgerc, cuDoubleComplex)
HOSTCUDA_HERMITIAN(C, cuComplex, float)
HOSTCUDA_HERMITIAN(Z, cuDoubleComplex, double)

}  // extern "C"

// SPDX-License-Identifier: MIT
// What BLAS calls check of their arguments before anything is enqueued.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tools/hostcuda/cublas/context.h"
#include "tools/hostcuda/cublas/shapes.h"

namespace hostcuda {

inline bool known(cublasOperation_t op) {
  return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}
inline bool known(cublasFillMode_t uplo) {
  return uplo == CUBLAS_FILL_MODE_LOWER || uplo == CUBLAS_FILL_MODE_UPPER;
}
inline bool known(cublasDiagType_t diag) {
  return diag == CUBLAS_DIAG_NON_UNIT || diag == CUBLAS_DIAG_UNIT;
}
inline bool known(cublasSideMode_t side) {
  return side == CUBLAS_SIDE_LEFT || side == CUBLAS_SIDE_RIGHT;
}

inline Op op_of(cublasOperation_t op) {
  return op == CUBLAS_OP_N ? Op::kNone : op == CUBLAS_OP_T ? Op::kTranspose : Op::kConjugate;
}
inline bool is_upper(cublasFillMode_t uplo) {
  return uplo == CUBLAS_FILL_MODE_UPPER;
}

// Whether `ld` is enough for columns of `rows` elements.
inline bool fits(int64_t ld, int64_t rows) {
  return ld >= std::max<int64_t>(1, rows);
}

// The status of a call whose arguments are `valid`, and which has something to do unless `empty`: SUCCESS and *go on,
// or what to return now.
inline cublasStatus_t checked(cublasHandle_t handle, bool valid, bool empty, bool* go_on) {
  *go_on = false;
  if (!live(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!valid) return CUBLAS_STATUS_INVALID_VALUE;
  *go_on = !empty;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace hostcuda

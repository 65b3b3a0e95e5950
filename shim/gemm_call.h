// SPDX-License-Identifier: MIT
// stage intercept: takes a caller's cuBLAS arguments, gives the call in normal form; runs on the calling thread.
//
// Normal form: P = A B, row-major (kernels/params.h). The caller's column-major C = op(A) op(B) (m x n, inner k) is
// read as its transpose: n1 = n, n2 = k, n3 = m, our A is op(B)^T and our B is op(A)^T. A row of P is a contiguous
// column of the caller's D. A row-ordered D (cublasLt) of m x n is the same memory as a column-ordered one of n x m;
// such a call is first turned into that equivalent one, so m, n, A, B, their types and transposes below are those of
// the column-major reading (`row_order` says that it happened), and p.col_stride is 1 always.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/params.h"
#include "sdcguard/types.h"
#include "shim/entry.h"

namespace sdcguard {

struct AttributeDefaults;
struct Library;

// Arguments of a grouped product: host arrays of `count` values, one a group. `wide`: int64_t, else int.
struct Groups {
  const int* transa;
  const int* transb;
  const void* m;
  const void* n;
  const void* k;
  const void* lda;
  const void* ldb;
  const void* ldc;
  const void* sizes;  // products of the group
  int64_t count;
  bool wide;

  int64_t at(const void* list, int64_t group) const {
    return wide ? static_cast<const int64_t*>(list)[group] : static_cast<const int*>(list)[group];
  }
};

// The caller's arguments, bit for bit; what issue_original() passes on. Fields that an entry point lacks are zero.
// Pointer-array forms: a, b and c are the device arrays of addresses. Grouped forms: the same, with host arrays of
// scalars in alpha and beta; m, n, k, ld, transposes and batch are in `groups`.
struct CallArguments {
  void* handle;
  int transa, transb;
  int64_t m, n, k;
  const void* alpha;
  const void* a;
  int type_a;
  int64_t lda;
  int64_t stride_a;
  const void* b;
  int type_b;
  int64_t ldb;
  int64_t stride_b;
  const void* beta;
  const void* c;  // the GemmEx family writes here
  int type_c;
  int64_t ldc;
  int64_t stride_c;
  int64_t batch;
  int compute;
  int algo;
  Groups groups;
  // cublasLtMatmul
  void* desc;
  void* a_desc;
  void* b_desc;
  void* c_desc;
  void* d;
  void* d_desc;
  const void* lt_algo;
  void* workspace;
  size_t workspace_bytes;
  void* stream;
};

// How FP32 operands are rounded by the library before it multiplies them.
enum class InputRounding : uint8_t { kNone = 0, kTf32 = 1, kBF16 = 2, kF16 = 3 };

struct GemmCall {
  Entry entry;
  const Library* library;  // the caller's own; owns the functions that issue_* call
  CallArguments arguments;
  uint64_t call_id;  // of take_sample(): thread number << 40 | the thread's call count

  // kNone: everything below is understood and the call can be checked (capture, context, workspace and mode are the
  // pipeline's business). Else the call must be issued as it is; m, n, k, batch and flops() still hold where readable.
  Reason blocked;

  int64_t m, n, k,
      batch;       // column-major reading; k counts products. Special values: 0 each when blocked and unreadable.
  bool row_order;  // cublasLt: D was row-ordered, see above
  MatrixView a;    // n1 x n2; address = the caller's B (of the column-major reading)
  MatrixView b;    // n2 x n3
  MatrixView c;    // n1 x n3; address 0: none given. Read only where beta is not zero.
  MatrixView d;    // n1 x n3; the caller's output
  DataType type_a, type_b, type_c, type_d;  // BLAS letters, column-major reading
  InputRounding rounding;
  bool trans_a, trans_b;  // op() of the column-major reading, relative to column order
  int compute_type;       // cublasComputeType_t as given
  int scale_type;         // cudaDataType of alpha and beta

  // alpha and beta, copied when the call was made, exact in a double; or, where an address is not 0, one value of
  // scalar_type in device memory, or with column stride 1 a vector of m values (one a column of P).
  bool scalars_on_device;  // alpha is
  DataType scalar_type;    // kF32, kF64, kF16 or kI32
  double alpha, beta;
  uint64_t alpha_address, beta_address;
  int64_t alpha_column_stride, beta_column_stride;
  int64_t alpha_batch_stride;  // elements; 0: the same vector for each batch entry

  uint32_t epilogue;      // kEpilogueBias | kEpilogueRelu | kEpilogueGelu | kEpilogueAux
  uint64_t bias_address;  // n3 values; 0 without kEpilogueBias
  DataType bias_type;
  int64_t bias_batch_stride;  // elements; 0: the same bias for each batch entry
  // With kEpilogueAux: RELU's bit mask (one bit an entry of D, ld and stride in bits) or GELU's input (aux_type).
  uint64_t aux_address;
  int64_t aux_ld, aux_batch_stride;
  DataType aux_type;

  // FP8 products: device addresses of FP32 factors, 0 for 1. A and B in BLAS letters of the column-major reading; a
  // vector has one factor a row of op(A) or a column of op(B).
  uint64_t scale_a, scale_b, scale_c, scale_d;
  uint64_t amax_d;  // device address of one FP32, the largest |value| of D before scale_d; 0: not asked for
  bool scale_a_vector, scale_b_vector;
  bool fast_accumulation;
  // The library may add up partial products that it rounded to D's 16 bits (split-K). False: the handle forbids it, or
  // D is wider.
  bool reduces_in_16_bits;

  void* stream;  // CUstream of the call
  bool reads_c;  // beta is not zero, or is on the device and may not be
  bool c_is_d;   // C and D are the same matrix: same address and same layout
};

inline int64_t rows_of_p(const GemmCall& call) {
  return call.n;
}  // n1
inline int64_t inner_of_p(const GemmCall& call) {
  return call.k;
}  // n2
inline int64_t columns_of_p(const GemmCall& call) {
  return call.m;
}  // n3

// 2 m n k batch, saturating. 0 when a dimension is not readable.
uint64_t flops(const GemmCall& call) noexcept;

// Fills everything but entry, library, arguments and call_id, which must be set. Reads the handle and the descriptors
// with the Get functions of call.library and the host scalars; mutates nothing, calls no driver function, allocates
// nothing.
void normalize(GemmCall& call) noexcept;

// Groups of a grouped product that the policy chose, in order.
struct SampledGroups {
  static constexpr uint32_t kMost = 16;  // of one call; further ones count as not sampled
  uint32_t count;
  int64_t group[kMost];
  uint64_t call_id[kMost];
};

// One group of a grouped call as a call of its own: a batch by pointer arrays. Like normalize(). It cannot be issued:
// only the whole call can.
GemmCall group_of(const GemmCall& call, int64_t group, uint64_t call_id) noexcept;

// The sum of 2 m n k over all products of all groups, 0 where the arrays are absent.
uint64_t grouped_flops(const Groups& groups) noexcept;

// What `library`'s descriptors know beyond the attributes that normalize() interprets, asked of the library at the
// first call. Null when it has no descriptors to ask, or memory is out: its cublasLtMatmul calls are then not
// understood.
const AttributeDefaults* attribute_defaults(const Library& library) noexcept;

// Hash of entry point, types, transposes, orders, leading dimensions, strides, m, n, k, batch, compute type and
// epilogue. No addresses, no scalars: the same on every rank and in every run. Never 0. The function is pinned by a
// test.
uint64_t site_of(const GemmCall& call) noexcept;

// 2 m n k batch of a cublasLtMatmul, for the FLOP counter of calls not sampled; 0 if not readable. The last layouts of
// the thread are remembered by their bytes, so that a loop over the same shapes reads no descriptor.
uint64_t lt_flops(const Library& library, const void* a_desc, const void* d_desc) noexcept;

}  // namespace sdcguard

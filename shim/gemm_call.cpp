// SPDX-License-Identifier: MIT
// stage intercept: takes a caller's cuBLAS arguments, gives the call in normal form; runs on the calling thread.
#include "shim/gemm_call.h"

#include <cstring>
#include <new>

#include "shim/cublas_abi.h"
#include "shim/resolve.h"

namespace sdcguard {

namespace {

using namespace abi;

DataType data_type(int cuda_type) {
  switch (cuda_type) {
    case kR32F:
      return DataType::kF32;
    case kR16BF:
      return DataType::kBF16;
    case kR16F:
      return DataType::kF16;
    default:
      return DataType::kOther;
  }
}

float float_of_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t fraction = half & 0x3ffu;
  uint32_t bits;
  if (exponent == 0x1f) {
    bits = sign | 0x7f800000u | (fraction << 13);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (fraction << 13);
  } else if (fraction == 0) {
    bits = sign;
  } else {
    exponent = 113;
    for (; (fraction & 0x400u) == 0; --exponent) fraction <<= 1;
    bits = sign | (exponent << 23) | ((fraction & 0x3ffu) << 13);
  }
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// A matrix as the caller stores it, before op().
struct Stored {
  const void* address;
  int type;
  int64_t rows, cols, ld;
  int64_t batch_stride;
  bool row_order;
};

// The same memory as a view whose (r, c) is op(matrix)(r, c).
MatrixView view_of(const Stored& stored, bool transposed) {
  MatrixView view{};
  view.address = reinterpret_cast<uintptr_t>(stored.address);
  const bool by_row = stored.row_order != transposed;
  view.row_stride = by_row ? stored.ld : 1;
  view.col_stride = by_row ? 1 : stored.ld;
  view.batch_stride = stored.batch_stride;
  view.type = data_type(stored.type);
  return view;
}

MatrixView transpose(MatrixView view) {
  const int64_t row_stride = view.row_stride;
  view.row_stride = view.col_stride;
  view.col_stride = row_stride;
  return view;
}

int64_t size_of(DataType type) {
  return type == DataType::kF32 ? 4 : 2;
}

// |x| y + z for y >= 0, or INT64_MAX where it overflows.
int64_t reach(int64_t stride, int64_t steps, int64_t sum) {
  const int64_t magnitude = stride < 0 ? (stride == INT64_MIN ? INT64_MAX : -stride) : stride;
  int64_t product;
  int64_t total;
  if (__builtin_mul_overflow(magnitude, steps, &product) || __builtin_add_overflow(product, sum, &total)) {
    return INT64_MAX;
  }
  return total;
}

// Elements from the lowest to the highest one that a view of n1 x n3 x batch touches, plus 1; INT64_MAX: out of range.
int64_t extent(const MatrixView& view, int64_t n1, int64_t n3, int64_t batch) {
  return reach(view.batch_stride, batch - 1, reach(view.row_stride, n1 - 1, reach(view.col_stride, n3 - 1, 1)));
}

// True when no two (row, column, batch) of the view share an element: taken by falling steps, each stride must clear
// everything that the smaller ones reach. Interleaved batches (heads of one attention tensor) pass.
bool elements_are_distinct(const MatrixView& view, int64_t n1, int64_t n3, int64_t batch) {
  struct Axis {
    int64_t stride, count;
  };
  Axis axes[3] = {{view.col_stride, n3}, {view.row_stride, n1}, {view.batch_stride, batch}};
  for (Axis& axis : axes) axis.stride = axis.stride < 0 ? -axis.stride : axis.stride;
  for (int i = 1; i < 3; ++i) {
    for (int j = i; j > 0 && axes[j].stride < axes[j - 1].stride; --j) {
      const Axis axis = axes[j];
      axes[j] = axes[j - 1];
      axes[j - 1] = axis;
    }
  }
  int64_t covered = 1;
  for (const Axis& axis : axes) {
    if (axis.count > 1 && axis.stride < covered) return false;
    covered = reach(axis.stride, axis.count - 1, covered);
  }
  return true;
}

// True when two views of the same shape may share memory without being the same matrix.
bool partly_overlap(const MatrixView& x, const MatrixView& y, int64_t n1, int64_t n3, int64_t batch) {
  const int64_t x_bytes = extent(x, n1, n3, batch) * size_of(x.type);
  const int64_t y_bytes = extent(y, n1, n3, batch) * size_of(y.type);
  // A negative batch stride reaches below the address.
  auto low = [batch](const MatrixView& view) {
    return static_cast<int64_t>(view.address) +
           (view.batch_stride < 0 ? view.batch_stride * (batch - 1) * size_of(view.type) : 0);
  };
  if (low(x) + x_bytes <= low(y) || low(y) + y_bytes <= low(x)) return false;
  // Column blocks of one buffer: the same pitch, and every row of one falls between the rows of the other.
  const int64_t size = size_of(x.type);
  const int64_t pitch = x.row_stride;
  const int64_t distance = static_cast<int64_t>(y.address) - static_cast<int64_t>(x.address);
  if (x.type == y.type && x.col_stride == 1 && y.col_stride == 1 && pitch == y.row_stride && pitch > 0 &&
      distance % size == 0 && x.batch_stride % pitch == 0 && y.batch_stride % pitch == 0) {
    const int64_t offset = ((distance / size) % pitch + pitch) % pitch;
    if (offset >= n3 && pitch - offset >= n3) return false;
  }
  return true;
}

// ---- cublasLt descriptors ---------------------------------------------------------------------------------------

template <class T>
bool read_desc(const Library& library, const void* desc, int attribute, T* value) {
  return library.desc_get(desc, attribute, value, sizeof(T), nullptr) == kSuccess;
}

template <class T>
bool read_layout(const Library& library, const void* layout, int attribute, T* value) {
  return library.layout_get(layout, attribute, value, sizeof(T), nullptr) == kSuccess;
}

// Attributes that normalize() reads, and those that say nothing about a product without auxiliary output, vector
// scalars or FP8: any value of theirs is fine.
bool is_interpreted_desc(int id) {
  return id == kDescComputeType || id == kDescScaleType || id == kDescPointerMode || id == kDescTransA ||
         id == kDescTransB || id == kDescEpilogue || id == kDescBiasPointer || id == kDescBiasBatchStride ||
         id == kDescBiasDataType || id == kDescAuxPointer || id == kDescAuxLd || id == kDescAuxBatchStride ||
         id == kDescAuxDataType || id == kDescAlphaVectorBatchStride || id == kDescSmCountTarget ||
         id == kDescFastAccum;
}

// The default of attribute `id`, read from a new descriptor. False: it exists but cannot be kept.
bool read_default(DescGetFn get, const void* fresh, int id, AttributeDefault* entries, uint32_t* count) {
  size_t bytes = 0;
  if (get(fresh, id, nullptr, 0, &bytes) != kSuccess || bytes == 0) return true;  // unknown to this library
  AttributeDefault entry{};
  if (bytes > sizeof(entry.value)) return false;
  if (get(fresh, id, entry.value, bytes, nullptr) != kSuccess) return true;
  entry.id = static_cast<uint8_t>(id);
  entry.bytes = static_cast<uint8_t>(bytes);
  entries[(*count)++] = entry;
  return true;
}

bool all_default(DescGetFn get, const void* object, const AttributeDefault* entries, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    uint8_t value[sizeof(entries[i].value)] = {};
    if (get(object, entries[i].id, value, entries[i].bytes, nullptr) != kSuccess) return false;
    if (memcmp(value, entries[i].value, entries[i].bytes) != 0) return false;
  }
  return true;
}

Reason read_stored(const Library& library, const AttributeDefaults& defaults, const void* layout, const void* address,
                   Stored* stored, int64_t* batch) {
  uint32_t type = 0;
  int32_t order = 0;
  uint64_t rows = 0;
  uint64_t cols = 0;
  int64_t ld = 0;
  int32_t batch_count = 0;
  int64_t batch_stride = 0;
  if (layout == nullptr) return Reason::kProductFailed;
  if (!read_layout(library, layout, kLayoutType, &type) || !read_layout(library, layout, kLayoutOrder, &order) ||
      !read_layout(library, layout, kLayoutRows, &rows) || !read_layout(library, layout, kLayoutCols, &cols) ||
      !read_layout(library, layout, kLayoutLd, &ld) || !read_layout(library, layout, kLayoutBatchCount, &batch_count) ||
      !read_layout(library, layout, kLayoutBatchStride, &batch_stride)) {
    return Reason::kUnsupportedAttribute;
  }
  stored->address = address;
  stored->type = static_cast<int>(type);
  stored->rows = static_cast<int64_t>(rows);
  stored->cols = static_cast<int64_t>(cols);
  stored->ld = ld;
  stored->batch_stride = batch_count > 1 ? batch_stride : 0;
  stored->row_order = order == kOrderRow;
  *batch = batch_count;
  if (order != kOrderCol && order != kOrderRow) return Reason::kUnsupportedOrder;
  // plane offset, batch mode, and whatever a newer library added
  if (!all_default(library.layout_get, layout, defaults.layout, defaults.layout_count)) {
    return Reason::kUnsupportedAttribute;
  }
  return Reason::kNone;
}

// ---- what both families share -----------------------------------------------------------------------------------

void read_scalars(GemmCall& call, bool on_device) {
  const CallArguments& arguments = call.arguments;
  call.scalars_on_device = on_device;
  if (on_device) {
    call.alpha_address = reinterpret_cast<uintptr_t>(arguments.alpha);
    call.beta_address = reinterpret_cast<uintptr_t>(arguments.beta);
    call.reads_c = true;
    return;
  }
  if (call.scale_type == kR16F) {
    uint16_t alpha;
    uint16_t beta;
    memcpy(&alpha, arguments.alpha, sizeof(alpha));
    memcpy(&beta, arguments.beta, sizeof(beta));
    call.alpha = float_of_half(alpha);
    call.beta = float_of_half(beta);
  } else {
    memcpy(&call.alpha, arguments.alpha, sizeof(call.alpha));
    memcpy(&call.beta, arguments.beta, sizeof(call.beta));
  }
  call.reads_c = !(call.beta == 0.0f);
}

// Compute type and scalars that we know: 32F (plain, pedantic, TF32 for FP32 operands) and 16F, which has no check yet.
Reason judge_compute(GemmCall& call) {
  switch (call.compute_type) {
    case kCompute32F:
    case kCompute32FPedantic:
    case kCompute32FFastTf32:
      return call.scale_type == kR32F ? Reason::kNone : Reason::kUnsupportedType;
    case kCompute16F:
    case kCompute16FPedantic:
      return Reason::kCompute16f;
    default:
      return Reason::kUnsupportedType;
  }
}

// Type tuples of interposition.md 5.2 that are in scope.
Reason judge_types(const GemmCall& call) {
  if (call.type_a != call.type_b) return Reason::kUnsupportedType;
  if (call.reads_c && call.type_c != call.type_d) return Reason::kUnsupportedType;
  switch (call.type_a) {
    case DataType::kF32:
      return call.type_d == DataType::kF32 ? Reason::kNone : Reason::kUnsupportedType;
    case DataType::kBF16:
    case DataType::kF16:
      if (call.compute_type == kCompute32FFastTf32) return Reason::kUnsupportedType;
      return call.type_d == call.type_a || call.type_d == DataType::kF32 ? Reason::kNone : Reason::kUnsupportedType;
    default:
      return Reason::kUnsupportedType;
  }
}

bool stored_is_valid(const Stored& stored, bool may_broadcast) {
  const int64_t minor = stored.row_order ? stored.cols : stored.rows;
  return stored.address != nullptr && (stored.ld >= minor || (may_broadcast && stored.ld == 0));
}

// Dimensions, views and overlaps from the stored matrices; dimensions of call are those of the caller's letters.
// c.address null: none. May exchange A and B and m and n (row-ordered D).
Reason place(GemmCall& call, Stored a, Stored b, const Stored& c, const Stored& d) {
  // Checked before the exchange: cuBLAS itself refuses these.
  if (!stored_is_valid(a, false) || !stored_is_valid(b, false) || !stored_is_valid(d, false)) {
    return Reason::kProductFailed;
  }
  MatrixView op_a = view_of(a, call.trans_a);  // m x k
  MatrixView op_b = view_of(b, call.trans_b);  // k x n
  MatrixView out_d = view_of(d, false);        // m x n
  MatrixView out_c{};
  if (c.address != nullptr) out_c = view_of(c, false);
  if (d.row_order) {
    // D = op(A) op(B) by rows is D^T = op(B)^T op(A)^T by columns: the caller's letters change places.
    call.row_order = true;
    const MatrixView was_a = op_a;
    op_a = transpose(op_b);
    op_b = transpose(was_a);
    out_d = transpose(out_d);
    out_c = transpose(out_c);
    const int64_t m = call.m;
    call.m = call.n;
    call.n = m;
    const DataType type = call.type_a;
    call.type_a = call.type_b;
    call.type_b = type;
    call.trans_a = op_a.row_stride != 1;
    call.trans_b = op_b.row_stride != 1;
  } else {
    if (a.row_order) call.trans_a = !call.trans_a;
    if (b.row_order) call.trans_b = !call.trans_b;
  }
  call.a = transpose(op_b);  // n1 x n2
  call.b = transpose(op_a);  // n2 x n3
  call.d = transpose(out_d);
  call.c = transpose(out_c);
  if (out_c.address == 0) call.c = MatrixView{};

  const int64_t n1 = rows_of_p(call);
  const int64_t n2 = inner_of_p(call);
  const int64_t n3 = columns_of_p(call);
  // Beyond 2^47 elements nothing is addressable: arguments that cuBLAS will refuse.
  constexpr int64_t kAddressable = int64_t{1} << 47;
  if (extent(call.a, n1, n2, call.batch) > kAddressable || extent(call.b, n2, n3, call.batch) > kAddressable ||
      extent(call.d, n1, n3, call.batch) > kAddressable) {
    return Reason::kProductFailed;
  }
  if (!elements_are_distinct(call.d, n1, n3, call.batch)) return Reason::kOverlappingOutput;
  // BLAS forbids an output on top of an input; what it gives then is the library's affair.
  if (call.d.address == call.a.address || call.d.address == call.b.address) return Reason::kInplace;
  call.c_is_d = call.c.address == call.d.address && call.c.row_stride == call.d.row_stride &&
                call.c.col_stride == call.d.col_stride && call.c.batch_stride == call.d.batch_stride &&
                call.type_c == call.type_d;
  if (!call.reads_c || call.c.address == 0) return Reason::kNone;
  if (c.row_order != d.row_order) return Reason::kUnsupportedOrder;
  if (extent(call.c, n1, n3, call.batch) > kAddressable) return Reason::kProductFailed;
  if (!call.c_is_d && partly_overlap(call.c, call.d, n1, n3, call.batch)) return Reason::kInplace;
  return Reason::kNone;
}

// ---- the cublas family ------------------------------------------------------------------------------------------

Reason read_gemm(GemmCall& call) {
  const CallArguments& arguments = call.arguments;
  const Library& library = *call.library;
  const bool batched = call.entry == Entry::kGemmStridedBatchedEx || call.entry == Entry::kGemmStridedBatchedEx64;
  call.m = arguments.m;
  call.n = arguments.n;
  call.k = arguments.k;
  call.batch = batched ? arguments.batch : 1;
  switch (call.entry) {
    case Entry::kSgemm:
    case Entry::kSgemm64:
      call.type_a = call.type_b = call.type_c = call.type_d = DataType::kF32;
      call.compute_type = kCompute32F;
      break;
    case Entry::kHgemm:
    case Entry::kHgemm64:
      call.type_a = call.type_b = call.type_c = call.type_d = DataType::kF16;
      call.compute_type = kCompute16F;
      break;
    default:
      call.type_a = data_type(arguments.type_a);
      call.type_b = data_type(arguments.type_b);
      call.type_c = call.type_d = data_type(arguments.type_c);
      call.compute_type = arguments.compute;
  }
  const bool half_scalars = call.compute_type == kCompute16F || call.compute_type == kCompute16FPedantic;
  call.scale_type = half_scalars ? kR16F : kR32F;
  call.trans_a = arguments.transa != kOpN;
  call.trans_b = arguments.transb != kOpN;

  if (call.m < 0 || call.n < 0 || call.k < 0 || call.batch < 0) return Reason::kProductFailed;
  if (call.m == 0 || call.n == 0 || call.k == 0 || call.batch == 0) return Reason::kEmpty;
  if (library.get_stream == nullptr || library.get_pointer_mode == nullptr || library.get_math_mode == nullptr) {
    return Reason::kUnsupportedEntry;
  }
  int pointer_mode = kPointerHost;
  int math_mode = kDefaultMath;
  if (library.get_stream(arguments.handle, &call.stream) != kSuccess ||
      library.get_pointer_mode(arguments.handle, &pointer_mode) != kSuccess ||
      library.get_math_mode(arguments.handle, &math_mode) != kSuccess) {
    return Reason::kProductFailed;
  }
  if (arguments.transa < kOpN || arguments.transa > kOpC || arguments.transb < kOpN || arguments.transb > kOpC ||
      arguments.alpha == nullptr || arguments.beta == nullptr) {
    return Reason::kProductFailed;
  }
  if (pointer_mode != kPointerHost && pointer_mode != kPointerDevice) return Reason::kUnsupportedAttribute;
  if (const Reason reason = judge_compute(call); reason != Reason::kNone) return reason;
  read_scalars(call, pointer_mode == kPointerDevice);
  if (const Reason reason = judge_types(call); reason != Reason::kNone) return reason;
  if (call.type_a == DataType::kF32) {
    // FP32 operands: the math mode, or the compute type, may let the library round them first.
    switch (math_mode & ~kMathDisallowReducedReduction) {
      case kDefaultMath:
      case kPedanticMath:
        break;
      case kTf32Math:
        if (call.compute_type == kCompute32F) call.rounding = InputRounding::kTf32;
        break;
      default:  // FP16 inputs of the old tensor-op mode, emulation
        return Reason::kUnsupportedType;
    }
    if (call.compute_type == kCompute32FFastTf32) call.rounding = InputRounding::kTf32;
  }
  // Without a product there is nothing to check, and A and B are not read.
  if (!call.scalars_on_device && call.alpha == 0.0f) return Reason::kEmpty;

  const bool many = call.batch > 1;
  const Stored a{arguments.a,
                 arguments.type_a,
                 call.trans_a ? call.k : call.m,
                 call.trans_a ? call.m : call.k,
                 arguments.lda,
                 many ? arguments.stride_a : 0,
                 false};
  const Stored b{arguments.b,
                 arguments.type_b,
                 call.trans_b ? call.n : call.k,
                 call.trans_b ? call.k : call.n,
                 arguments.ldb,
                 many ? arguments.stride_b : 0,
                 false};
  const Stored c{arguments.c, arguments.type_c, call.m, call.n, arguments.ldc, many ? arguments.stride_c : 0, false};
  const DataType types[3] = {call.type_a, call.type_b, call.type_d};
  const Reason reason = place(call, a, b, c, c);
  call.a.type = types[1];
  call.b.type = types[0];
  call.c.type = call.d.type = types[2];
  return reason;
}

// ---- cublasLtMatmul ---------------------------------------------------------------------------------------------

Reason read_lt(GemmCall& call) {
  const CallArguments& arguments = call.arguments;
  const Library& library = *call.library;
  call.stream = arguments.stream;
  if (library.desc_get == nullptr || library.layout_get == nullptr) return Reason::kUnsupportedEntry;
  const AttributeDefaults* defaults = attribute_defaults(library);
  if (defaults == nullptr) return Reason::kUnsupportedAttribute;
  if (arguments.desc == nullptr) return Reason::kProductFailed;

  Stored a{};
  Stored b{};
  Stored c{};
  Stored d{};
  int64_t batch_a = 0;
  int64_t batch_b = 0;
  int64_t batch_c = 0;
  Reason reason = read_stored(library, *defaults, arguments.d_desc, arguments.d, &d, &call.batch);
  if (reason == Reason::kProductFailed) return reason;
  call.m = d.rows;
  call.n = d.cols;
  call.type_d = data_type(d.type);
  const Reason reason_a = read_stored(library, *defaults, arguments.a_desc, arguments.a, &a, &batch_a);
  const Reason reason_b = read_stored(library, *defaults, arguments.b_desc, arguments.b, &b, &batch_b);
  int32_t transa = 0;
  int32_t transb = 0;
  uint32_t compute = 0;
  uint32_t scale = 0;
  uint32_t pointer_mode = 0;
  uint32_t epilogue = 0;
  if (!read_desc(library, arguments.desc, kDescTransA, &transa) ||
      !read_desc(library, arguments.desc, kDescTransB, &transb) ||
      !read_desc(library, arguments.desc, kDescComputeType, &compute) ||
      !read_desc(library, arguments.desc, kDescScaleType, &scale) ||
      !read_desc(library, arguments.desc, kDescPointerMode, &pointer_mode) ||
      !read_desc(library, arguments.desc, kDescEpilogue, &epilogue)) {
    return Reason::kUnsupportedAttribute;
  }
  call.trans_a = transa != kOpN;
  call.trans_b = transb != kOpN;
  call.type_a = data_type(a.type);
  call.type_b = data_type(b.type);
  call.compute_type = static_cast<int>(compute);
  call.scale_type = static_cast<int>(scale);
  call.k = call.trans_a ? a.rows : a.cols;

  if (reason != Reason::kNone) return reason;
  if (reason_a != Reason::kNone) return reason_a;
  if (reason_b != Reason::kNone) return reason_b;
  if (call.m < 0 || call.n < 0 || call.k < 0 || call.batch < 0) return Reason::kProductFailed;
  if (call.m == 0 || call.n == 0 || call.k == 0 || call.batch == 0) return Reason::kEmpty;
  if (transa < kOpN || transa > kOpC || transb < kOpN || transb > kOpC || arguments.alpha == nullptr ||
      (call.trans_a ? a.cols : a.rows) != call.m || (call.trans_b ? b.cols : b.rows) != call.k ||
      (call.trans_b ? b.rows : b.cols) != call.n) {
    return Reason::kProductFailed;
  }
  if (batch_a != call.batch || batch_b != call.batch) return Reason::kUnsupportedAttribute;
  if (!all_default(library.desc_get, arguments.desc, defaults->desc, defaults->desc_count)) {
    return Reason::kUnsupportedAttribute;
  }
  if (pointer_mode != kPointerHost && pointer_mode != kPointerDevice) return Reason::kUnsupportedAttribute;
  if (arguments.beta == nullptr) return Reason::kProductFailed;
  if (reason = judge_compute(call); reason != Reason::kNone) return reason;
  read_scalars(call, pointer_mode == kPointerDevice);

  if (arguments.c == nullptr || arguments.c_desc == nullptr) call.reads_c = false;
  if (call.reads_c) {
    reason = read_stored(library, *defaults, arguments.c_desc, arguments.c, &c, &batch_c);
    if (reason != Reason::kNone) return reason;
    if (c.rows != d.rows || c.cols != d.cols || !stored_is_valid(c, true)) return Reason::kProductFailed;
    if (batch_c != call.batch) return Reason::kUnsupportedAttribute;
    call.type_c = data_type(c.type);
  } else {
    call.type_c = call.type_d;
  }
  if (reason = judge_types(call); reason != Reason::kNone) return reason;
  if (call.type_a == DataType::kF32 && call.compute_type == kCompute32FFastTf32) call.rounding = InputRounding::kTf32;

  constexpr uint32_t kKnownEpilogue = kLtEpilogueDefault | kLtEpilogueRelu | kLtEpilogueBias | kLtEpilogueGelu;
  const bool relu = (epilogue & kLtEpilogueRelu) != 0;
  const bool gelu = (epilogue & kLtEpilogueGelu) != 0;
  const bool plain = (epilogue & kLtEpilogueDefault) != 0;
  if ((epilogue & ~kKnownEpilogue) != 0 || epilogue == 0 || (relu && gelu) ||
      (plain && epilogue != kLtEpilogueDefault)) {
    return Reason::kUnsupportedEpilogue;
  }
  if (relu) call.epilogue |= kEpilogueRelu;
  if (gelu) call.epilogue |= kEpilogueGelu;
  if ((epilogue & kLtEpilogueBias) != 0) {
    uint64_t bias = 0;
    int64_t bias_stride = 0;
    int32_t bias_type = -1;
    if (!read_desc(library, arguments.desc, kDescBiasPointer, &bias) ||
        !read_desc(library, arguments.desc, kDescBiasBatchStride, &bias_stride) ||
        !read_desc(library, arguments.desc, kDescBiasDataType, &bias_type)) {
      return Reason::kUnsupportedAttribute;
    }
    // The bias has one value a row of D: in a row-ordered D, one a row of our P, which no kernel of ours adds.
    if (d.row_order || bias == 0) return Reason::kUnsupportedEpilogue;
    call.epilogue |= kEpilogueBias;
    call.bias_address = bias;
    call.bias_batch_stride = call.batch > 1 ? bias_stride : 0;
    call.bias_type = bias_type == -1 ? call.type_d : data_type(bias_type);
    if (call.bias_type == DataType::kOther) return Reason::kUnsupportedType;
  }
  // Without a product there is nothing to check, and A and B are not read.
  if (!call.scalars_on_device && call.alpha == 0.0f) return Reason::kEmpty;

  return place(call, a, b, c, d);
}

}  // namespace

const AttributeDefaults* attribute_defaults(const Library& library) noexcept {
  const AttributeDefaults* published = library.attributes.load(std::memory_order_acquire);
  if (published == nullptr) {
    auto* made = new (std::nothrow) AttributeDefaults{};
    if (made == nullptr) return nullptr;
    LtDesc desc{};
    LtLayout layout{};
    made->known = library.desc_get != nullptr && library.layout_get != nullptr && library.desc_init != nullptr &&
                  library.layout_init != nullptr &&
                  library.desc_init(&desc, sizeof(desc), kCompute32F, kR32F) == kSuccess &&
                  library.layout_init(&layout, sizeof(layout), kR16BF, 64, 64, 64) == kSuccess;
    for (int id = 0; made->known && id < kDescAttributeLimit; ++id) {
      if (!is_interpreted_desc(id))
        made->known = read_default(library.desc_get, &desc, id, made->desc, &made->desc_count);
    }
    for (int id = kLayoutPlaneOffset; made->known && id < kLayoutAttributeLimit; ++id) {
      made->known = read_default(library.layout_get, &layout, id, made->layout, &made->layout_count);
    }
    if (library.attributes.compare_exchange_strong(published, made, std::memory_order_acq_rel)) {
      published = made;
    } else {
      delete made;  // another thread asked at the same time
    }
  }
  return published->known ? published : nullptr;
}

uint64_t flops(const GemmCall& call) noexcept {
  if (call.m <= 0 || call.n <= 0 || call.k <= 0 || call.batch <= 0) return 0;
  uint64_t product = 2;
  for (const int64_t factor : {call.m, call.n, call.k, call.batch}) {
    if (__builtin_mul_overflow(product, static_cast<uint64_t>(factor), &product)) return UINT64_MAX;
  }
  return product;
}

void normalize(GemmCall& call) noexcept {
  const GemmCall given = call;
  call = GemmCall{};
  call.entry = given.entry;
  call.library = given.library;
  call.arguments = given.arguments;
  call.call_id = given.call_id;
  call.blocked = call.entry == Entry::kLtMatmul ? read_lt(call) : read_gemm(call);
}

uint64_t site_of(const GemmCall& call) noexcept {
  uint64_t hash = 0x5344436755415244ull;
  auto add = [&hash](uint64_t value) {
    hash ^= value;
    hash *= 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  };
  auto add_layout = [&add](const MatrixView& view) {
    add(static_cast<uint64_t>(view.row_stride));
    add(static_cast<uint64_t>(view.col_stride));
    add(static_cast<uint64_t>(view.batch_stride));
  };
  add(static_cast<uint64_t>(call.entry));
  add(static_cast<uint64_t>(call.type_a) | static_cast<uint64_t>(call.type_b) << 8 |
      static_cast<uint64_t>(call.type_d) << 16 | static_cast<uint64_t>(call.bias_type) << 24 |
      static_cast<uint64_t>(call.rounding) << 32 | static_cast<uint64_t>(call.row_order) << 40 |
      static_cast<uint64_t>(call.trans_a) << 41 | static_cast<uint64_t>(call.trans_b) << 42 |
      static_cast<uint64_t>(call.scalars_on_device) << 43);
  add(static_cast<uint64_t>(static_cast<uint32_t>(call.compute_type)) << 32 | static_cast<uint32_t>(call.scale_type));
  add(static_cast<uint64_t>(call.m));
  add(static_cast<uint64_t>(call.n));
  add(static_cast<uint64_t>(call.k));
  add(static_cast<uint64_t>(call.batch));
  add(call.epilogue);
  add(static_cast<uint64_t>(call.bias_batch_stride));
  add_layout(call.a);
  add_layout(call.b);
  add_layout(call.d);
  return hash != 0 ? hash : 1;
}

namespace {

struct LayoutPair {
  LtLayout a;
  LtLayout d;
  uint64_t flops;
};
constexpr uint32_t kLayoutPairs = 8;
thread_local LayoutPair t_layouts[kLayoutPairs] __attribute__((tls_model("initial-exec")));

}  // namespace

// hot: begin
uint64_t lt_flops(const Library& library, const void* a_desc, const void* d_desc) noexcept {
  if (a_desc == nullptr || d_desc == nullptr || library.layout_get == nullptr) return 0;
  LtLayout a;
  LtLayout d;
  memcpy(&a, a_desc, sizeof(a));
  memcpy(&d, d_desc, sizeof(d));
  uint64_t sum = 0;
  for (int i = 0; i < 8; ++i) sum += a.data[i] + 3 * d.data[i];
  LayoutPair& pair = t_layouts[(sum * 0x9e3779b97f4a7c15ull) >> 61];
  if (pair.flops != 0 && memcmp(&pair.a, &a, sizeof(a)) == 0 && memcmp(&pair.d, &d, sizeof(d)) == 0) {
    return pair.flops;
  }
  uint64_t rows_a = 0;
  uint64_t cols_a = 0;
  uint64_t rows = 0;
  uint64_t cols = 0;
  int32_t batch = 0;
  if (!read_layout(library, a_desc, kLayoutRows, &rows_a) || !read_layout(library, a_desc, kLayoutCols, &cols_a) ||
      !read_layout(library, d_desc, kLayoutRows, &rows) || !read_layout(library, d_desc, kLayoutCols, &cols) ||
      !read_layout(library, d_desc, kLayoutBatchCount, &batch) || rows == 0 || batch <= 0) {
    return 0;
  }
  // op(A) is rows x k either way, so k is A's size over the rows of D.
  GemmCall call{};
  call.m = static_cast<int64_t>(rows);
  call.n = static_cast<int64_t>(cols);
  call.k = static_cast<int64_t>(rows_a * cols_a / rows);
  call.batch = batch;
  pair = {a, d, flops(call)};
  return pair.flops;
}
// hot: end

}  // namespace sdcguard

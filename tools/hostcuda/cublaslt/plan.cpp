// SPDX-License-Identifier: MIT
// Plan: takes cuBLASLt descriptors, gives a checked product or the status that refuses it; runs on the caller's thread.
#include "tools/hostcuda/cublaslt/plan.h"

#include <algorithm>

#include "tools/hostcuda/cublaslt/block_scales.h"
#include "tools/hostcuda/cublaslt/memory_order.h"

namespace hostcuda {
namespace {

bool known_operation(int32_t op) {
  return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}

// may_broadcast: a leading dimension of 0 (C apart from D: one line for all).
cublasStatus_t check_layout(const MatrixLayout& layout, bool may_broadcast) {
  if (layout.order < CUBLASLT_ORDER_COL || layout.order > CUBLASLT_ORDER_COL32_2R_4R4) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (layout.batch_mode > CUBLASLT_BATCH_MODE_POINTER_ARRAY) return CUBLAS_STATUS_INVALID_VALUE;
  constexpr uint64_t kMostLines = uint64_t{1} << 62;
  if (layout.rows > kMostLines || layout.cols > kMostLines || layout.batch_count < 1) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool tiled = is_tiled(layout.order);
  if (tiled && layout.rows > INT32_MAX) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (may_broadcast && layout.ld == 0 && !tiled) return CUBLAS_STATUS_SUCCESS;
  const Placement place{layout.order, static_cast<int64_t>(layout.rows), static_cast<int64_t>(layout.cols), layout.ld};
  return layout.ld < std::max<int64_t>(1, place.least_ld()) ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

// The type of the planes of a complex type. False: one that planar products do not have.
bool real_part(cudaDataType type, cudaDataType* out) {
  switch (type) {
    case CUDA_C_16F:
      *out = CUDA_R_16F;
      return true;
    case CUDA_C_16BF:
      *out = CUDA_R_16BF;
      return true;
    case CUDA_C_32F:
      *out = CUDA_R_32F;
      return true;
    default:
      return false;
  }
}

// False: no documented mode.
bool mode_of(int32_t mode, ScaleMode* out) {
  switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F:
      *out = ScaleMode::kScalar;
      return true;
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
      *out = ScaleMode::kOuterVector;
      return true;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
      *out = ScaleMode::kVector128;
      return true;
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      *out = ScaleMode::kBlock128x128;
      return true;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0:
      *out = ScaleMode::kVector32;
      return true;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3:
      *out = ScaleMode::kVector16;
      return true;
    default:
      return false;
  }
}

Matrix matrix_of(const MatrixLayout& layout, gemm::Type type) {
  return {0,
          layout.ld,
          layout.batch_stride,
          type,
          layout.order == CUBLASLT_ORDER_ROW,
          0,
          is_tiled(layout.order) ? layout.order : 0};
}

// What one epilogue asks for.
struct Epilogue {
  uint32_t value;
  Activation activation;
  BiasUse bias;
  bool aux;
};
constexpr Epilogue kEpilogues[] = {
    {CUBLASLT_EPILOGUE_DEFAULT, Activation::kNone, BiasUse::kNone, false},
    {CUBLASLT_EPILOGUE_RELU, Activation::kRelu, BiasUse::kNone, false},
    {CUBLASLT_EPILOGUE_RELU_AUX, Activation::kRelu, BiasUse::kNone, true},
    {CUBLASLT_EPILOGUE_BIAS, Activation::kNone, BiasUse::kAdd, false},
    {CUBLASLT_EPILOGUE_RELU_BIAS, Activation::kRelu, BiasUse::kAdd, false},
    {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, Activation::kRelu, BiasUse::kAdd, true},
    {CUBLASLT_EPILOGUE_DRELU, Activation::kReluGradient, BiasUse::kNone, true},
    {CUBLASLT_EPILOGUE_DRELU_BGRAD, Activation::kReluGradient, BiasUse::kGradientOfD, true},
    {CUBLASLT_EPILOGUE_GELU, Activation::kGelu, BiasUse::kNone, false},
    {CUBLASLT_EPILOGUE_GELU_AUX, Activation::kGelu, BiasUse::kNone, true},
    {CUBLASLT_EPILOGUE_GELU_BIAS, Activation::kGelu, BiasUse::kAdd, false},
    {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, Activation::kGelu, BiasUse::kAdd, true},
    {CUBLASLT_EPILOGUE_DGELU, Activation::kGeluGradient, BiasUse::kNone, true},
    {CUBLASLT_EPILOGUE_DGELU_BGRAD, Activation::kGeluGradient, BiasUse::kGradientOfD, true},
    {CUBLASLT_EPILOGUE_BGRADA, Activation::kNone, BiasUse::kGradientOfA, false},
    {CUBLASLT_EPILOGUE_BGRADB, Activation::kNone, BiasUse::kGradientOfB, false},
};

// The five descriptors of one call on their way into a product.
class Planner {
 public:
  Planner(const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b, const MatrixLayout& c,
          const MatrixLayout& d, Matmul* out)
      : desc_(desc), a_(a), b_(b), c_(c), d_(d), out_(*out) {}

  cublasStatus_t operator()() {
    out_ = Matmul{};
    using Step = cublasStatus_t (Planner::*)();
    constexpr Step kShape[] = {&Planner::layouts, &Planner::shape};
    constexpr Step kReal[] = {&Planner::types,     &Planner::orders, &Planner::switches, &Planner::scalars,
                              &Planner::alignment, &Planner::scales, &Planner::epilogue};
    constexpr Step kPlanar[] = {&Planner::planes, &Planner::switches, &Planner::planar_extras};
    const auto run = [&](const auto& steps) {
      for (const Step step : steps) {
        const cublasStatus_t status = (this->*step)();
        if (status != CUBLAS_STATUS_SUCCESS) return status;
      }
      return CUBLAS_STATUS_SUCCESS;
    };
    const cublasStatus_t status = run(kShape);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    out_.planar = a_.plane_offset != 0 || b_.plane_offset != 0 || c_.plane_offset != 0 || d_.plane_offset != 0;
    return out_.planar ? run(kPlanar) : run(kReal);
  }

 private:
  cublasStatus_t layouts() {
    for (const MatrixLayout* layout : {&a_, &b_, &c_, &d_}) {
      const cublasStatus_t status = check_layout(*layout, layout == &c_);
      if (status != CUBLAS_STATUS_SUCCESS) return status;
      if (layout->batch_count != d_.batch_count) return CUBLAS_STATUS_INVALID_VALUE;
      if (layout->batch_mode != d_.batch_mode) return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const bool overlaps = d_.batch_mode == CUBLASLT_BATCH_MODE_STRIDED && d_.batch_count > 1 && d_.batch_stride == 0;
    return overlaps ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
  }

  cublasStatus_t shape() {
    if (!known_operation(desc_.transa) || !known_operation(desc_.transb)) return CUBLAS_STATUS_INVALID_VALUE;
    out_.transpose_a = desc_.transa != CUBLAS_OP_N;
    out_.transpose_b = desc_.transb != CUBLAS_OP_N;
    const uint64_t m = out_.transpose_a ? a_.cols : a_.rows;
    const uint64_t k = out_.transpose_a ? a_.rows : a_.cols;
    const uint64_t n = out_.transpose_b ? b_.rows : b_.cols;
    const uint64_t k_of_b = out_.transpose_b ? b_.cols : b_.rows;
    if (k != k_of_b || d_.rows != m || d_.cols != n || c_.rows != m || c_.cols != n) return CUBLAS_STATUS_INVALID_VALUE;
    out_.m = static_cast<int64_t>(m);
    out_.n = static_cast<int64_t>(n);
    out_.k = static_cast<int64_t>(k);
    out_.batch = d_.batch_count;
    return CUBLAS_STATUS_SUCCESS;
  }

  // Planar complex matrices. For a GPU to settle: pointer arrays (here refused).
  cublasStatus_t planes() {
    const cublasStatus_t status = check_planar_types(
        static_cast<cublasComputeType_t>(desc_.compute_type), static_cast<cudaDataType>(desc_.scale_type),
        static_cast<cudaDataType>(a_.type), static_cast<cudaDataType>(b_.type), static_cast<cudaDataType>(c_.type),
        static_cast<cudaDataType>(d_.type), &out_.compute);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    bool all_rows = true;
    for (const MatrixLayout* layout : {&a_, &b_, &c_, &d_}) {
      if (layout->plane_offset == 0 || is_tiled(layout->order)) return CUBLAS_STATUS_NOT_SUPPORTED;
      all_rows = all_rows && layout->order == CUBLASLT_ORDER_ROW;
    }
    out_.conjugate_a = desc_.transa == CUBLAS_OP_C;
    out_.conjugate_b = desc_.transb == CUBLAS_OP_C;
    const bool some_rows =
        a_.order == CUBLASLT_ORDER_ROW || b_.order == CUBLASLT_ORDER_ROW || d_.order == CUBLASLT_ORDER_ROW;
    if (c_.order != d_.order || d_.batch_mode != CUBLASLT_BATCH_MODE_STRIDED ||
        ((out_.conjugate_a || out_.conjugate_b) && some_rows && !all_rows)) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const auto plane = [](const MatrixLayout& layout) {
      gemm::Type part{};
      cudaDataType type{};
      if (real_part(static_cast<cudaDataType>(layout.type), &type)) type_of(type, &part);
      Matrix matrix = matrix_of(layout, part);
      matrix.plane = layout.plane_offset;
      return matrix;
    };
    out_.a = plane(a_);
    out_.b = plane(b_);
    out_.c = plane(c_);
    out_.d = plane(d_);
    return CUBLAS_STATUS_SUCCESS;
  }

  // One alpha and one beta, no epilogue, no scales.
  cublasStatus_t planar_extras() {
    if (desc_.pointer_mode < CUBLASLT_POINTER_MODE_HOST ||
        desc_.pointer_mode > CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST || desc_.a_scale_pointer ||
        desc_.b_scale_pointer || desc_.c_scale_pointer || desc_.d_scale_pointer || desc_.amax_d_pointer ||
        desc_.d_out_scale_pointer) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    const bool single = desc_.pointer_mode <= CUBLASLT_POINTER_MODE_DEVICE;
    const bool modes = desc_.a_scale_mode || desc_.b_scale_mode || desc_.c_scale_mode || desc_.d_scale_mode ||
                       desc_.d_out_scale_mode || desc_.aux_scale_mode;
    return single && !modes && desc_.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? CUBLAS_STATUS_SUCCESS
                                                                           : CUBLAS_STATUS_NOT_SUPPORTED;
  }

  cublasStatus_t types() {
    const auto type = [](uint32_t number) { return static_cast<cudaDataType>(number); };
    const cublasStatus_t status = hostcuda_check_types(static_cast<cublasComputeType_t>(desc_.compute_type),
                                                       type(static_cast<uint32_t>(desc_.scale_type)), type(a_.type),
                                                       type(b_.type), type(c_.type), type(d_.type), &out_.compute);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (c_.order != d_.order) return CUBLAS_STATUS_NOT_SUPPORTED;
    gemm::Type a{};
    gemm::Type b{};
    gemm::Type c{};
    gemm::Type d{};
    if (!type_of(type(a_.type), &a) || !type_of(type(b_.type), &b) || !type_of(type(c_.type), &c) ||
        !type_of(type(d_.type), &d)) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    out_.a = matrix_of(a_, a);
    out_.b = matrix_of(b_, b);
    out_.c = matrix_of(c_, c);
    out_.d = matrix_of(d_, d);
    narrow_ = gemm::is_narrow(a);
    if (gemm::is_fp8(a) && desc_.fast_accum) out_.compute = gemm::Compute::kFp8Fast;
    return CUBLAS_STATUS_SUCCESS;
  }

  // Tiled orders: A in COL32, B in one of the two others and transposed, C and D in COL32; the documented table.
  cublasStatus_t orders() {
    if (!is_tiled(a_.order) && !is_tiled(b_.order) && !is_tiled(d_.order)) return CUBLAS_STATUS_SUCCESS;
    const bool b_fits = b_.order == CUBLASLT_ORDER_COL4_4R2_8C || b_.order == CUBLASLT_ORDER_COL32_2R_4R4;
    const bool fits = a_.order == CUBLASLT_ORDER_COL32 && b_fits && d_.order == CUBLASLT_ORDER_COL32;
    const bool integer = out_.a.type == gemm::Type::kInt8 && out_.d.type != gemm::Type::kFp32;
    if (!fits || !integer || out_.transpose_a || !out_.transpose_b || !has_tiled_orders()) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (desc_.pointer_mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST || desc_.alpha_vector_batch_stride) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
  }

  cublasStatus_t switches() {
    // How an emulation is to be done changes nothing here: an emulated product is computed in its own type.
    const bool emulated = desc_.compute_type == CUBLAS_COMPUTE_32F_EMULATED_16BFX9 ||
                          desc_.compute_type == CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT;
    if (desc_.transc != CUBLAS_OP_N || desc_.fill_mode != CUBLAS_FILL_MODE_FULL ||
        (desc_.emulation_descriptor && !emulated)) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
  }

  // Pointer modes with vectors are those of FP32 scalars.
  cublasStatus_t scalars() {
    const bool alpha_vector = desc_.pointer_mode >= CUBLASLT_POINTER_MODE_DEVICE_VECTOR;
    if (desc_.pointer_mode < CUBLASLT_POINTER_MODE_HOST ||
        desc_.pointer_mode > CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (alpha_vector && desc_.scale_type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (desc_.pointer_mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO && desc_.alpha_vector_batch_stride) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    out_.alpha.per_row = alpha_vector;
    out_.alpha.batch_stride = alpha_vector ? desc_.alpha_vector_batch_stride : 0;
    out_.beta.per_row = desc_.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE_VECTOR;
    return CUBLAS_STATUS_SUCCESS;
  }

  // Whether k is the fast index of op(X) as stored: A transposed, B not (the "TN" format).
  bool k_is_contiguous(const Matrix& matrix, bool is_a) const {
    const bool transposed = is_a ? out_.transpose_a : out_.transpose_b;
    return (transposed == is_a) != matrix.row_major;
  }
  bool is_tn() const { return k_is_contiguous(out_.a, true) && k_is_contiguous(out_.b, false); }

  // What FP8, FP4 and INT8 kernels ask of shapes; addresses are looked at in the call.
  cublasStatus_t alignment() {
    const auto whole = [](int64_t elements, gemm::Type type, int64_t bytes) {
      return type == gemm::Type::kE2m1 ? elements % (2 * bytes) == 0 : elements * gemm::bytes_of(type) % bytes == 0;
    };
    const int64_t needed = least_alignment(out_);
    if (needed == 0) return CUBLAS_STATUS_SUCCESS;
    for (const Matrix* matrix : {&out_.a, &out_.b, &out_.c, &out_.d}) {
      if (!whole(matrix->ld, matrix->type, needed)) return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (narrow_) {
      const int64_t d_line = out_.d.row_major ? out_.n : out_.m;
      const int64_t a_line = k_is_contiguous(out_.a, true) ? out_.k : out_.m;
      const int64_t b_line = k_is_contiguous(out_.b, false) ? out_.k : out_.n;
      if (!whole(a_line, out_.a.type, needed) || !whole(b_line, out_.b.type, needed) ||
          !whole(d_line, out_.d.type, needed)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
      }
      const bool any_layout = gemm::is_fp8(out_.a.type) && hostcuda_gemm_compute_capability() >= 100;
      return any_layout || is_tn() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    }
    // INT8: documented for the tensor-core kernels. With an INT32 D other layouts run too, as through cublasGemmEx.
    if (out_.d.type != gemm::Type::kInt8 || is_tiled_product(out_)) return CUBLAS_STATUS_SUCCESS;
    return is_tn() && out_.m % 4 == 0 && out_.k % 4 == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }

  // Modes of the scales of A and B that the device has for the operands: the documented table.
  bool offers(ScaleMode a, ScaleMode b) const {
    const int capability = hostcuda_gemm_compute_capability();
    const bool fp4 = out_.a.type == gemm::Type::kE2m1;
    const bool narrow_d = gemm::is_narrow(out_.d.type);
    const bool alike = a == b;
    if (a == ScaleMode::kVector16 || b == ScaleMode::kVector16) return alike && fp4;
    if (fp4) return false;
    switch (a) {
      case ScaleMode::kScalar:
        return alike;
      case ScaleMode::kOuterVector:
        return alike && narrow_ && !narrow_d && capability >= 90;
      case ScaleMode::kVector32:
        return alike && narrow_ && capability >= 100;
      default: {
        // 128 x 128 blocks on both sides are not offered.
        const bool pair = b == ScaleMode::kVector128 || (b == ScaleMode::kBlock128x128 && a == ScaleMode::kVector128);
        const bool fits = out_.m % 4 == 0 && out_.n % 4 == 0;
        return pair && fits && narrow_ && !narrow_d && capability == 90;
      }
    }
  }

  cublasStatus_t scales() {
    const bool narrow_d = gemm::is_narrow(out_.d.type);
    if (!narrow_ && (desc_.a_scale_pointer || desc_.b_scale_pointer)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!narrow_d && (desc_.d_scale_pointer || desc_.amax_d_pointer || desc_.d_out_scale_pointer)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    // C is never narrow, and a scale of it is let pass beside narrow operands, unused: NVIDIA's LtFp8Matmul sets one
    // with a BF16 C.
    if (!narrow_ && desc_.c_scale_pointer) return CUBLAS_STATUS_INVALID_VALUE;
    if (desc_.c_scale_mode || desc_.d_scale_mode || desc_.aux_scale_mode) return CUBLAS_STATUS_NOT_SUPPORTED;
    ScaleMode b_mode{};
    ScaleMode d_out_mode{};
    if (!mode_of(desc_.a_scale_mode, &out_.scales.a_mode) || !mode_of(desc_.b_scale_mode, &b_mode) ||
        !mode_of(desc_.d_out_scale_mode, &d_out_mode) || !offers(out_.scales.a_mode, b_mode)) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const ScaleMode mode = out_.scales.a_mode;
    out_.scales.b_mode = b_mode;
    out_.scales.a = desc_.a_scale_pointer;
    out_.scales.b = desc_.b_scale_pointer;
    out_.scales.d = desc_.d_scale_pointer;
    out_.scales.amax = desc_.amax_d_pointer;
    if (mode != ScaleMode::kScalar && (!desc_.a_scale_pointer || !desc_.b_scale_pointer)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (block_of(mode) != 0) return block_scales(d_out_mode);
    return desc_.d_out_scale_pointer || d_out_mode != ScaleMode::kScalar ? CUBLAS_STATUS_NOT_SUPPORTED
                                                                         : CUBLAS_STATUS_SUCCESS;
  }

  // A narrow D gets scales of A's mode. Its blocks run along columns; where the scales of a batch's further entries lie
  // is not documented.
  cublasStatus_t block_scales(ScaleMode d_out_mode) {
    const auto aligned = [](uint64_t address) { return address % kScaleAlignment == 0; };
    if (out_.batch != 1 || d_.batch_mode != CUBLASLT_BATCH_MODE_STRIDED || !aligned(desc_.a_scale_pointer) ||
        !aligned(desc_.b_scale_pointer) || !aligned(desc_.d_out_scale_pointer)) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (!gemm::is_narrow(out_.d.type)) {
      return d_out_mode == ScaleMode::kScalar ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (d_out_mode != out_.scales.a_mode || out_.d.row_major) return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool takes_d_scale = d_out_mode == ScaleMode::kVector16;
    if (!desc_.d_out_scale_pointer || desc_.amax_d_pointer || (desc_.d_scale_pointer && !takes_d_scale)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    out_.scales.d_out = desc_.d_out_scale_pointer;
    return CUBLAS_STATUS_SUCCESS;
  }

  cublasStatus_t epilogue() {
    const auto* found = std::find_if(std::begin(kEpilogues), std::end(kEpilogues),
                                     [&](const Epilogue& known) { return known.value == desc_.epilogue; });
    if (found == std::end(kEpilogues)) return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool plain = found->value == CUBLASLT_EPILOGUE_DEFAULT;
    const bool of_operand = found->bias == BiasUse::kGradientOfA || found->bias == BiasUse::kGradientOfB;
    // INT8: documented for tiled orders and an INT8 D.
    const bool takes_bias = is_tiled_product(out_) && out_.d.type == gemm::Type::kInt8;
    const bool simple = found->value <= CUBLASLT_EPILOGUE_RELU_BIAS;
    if (!plain && out_.a.type == gemm::Type::kInt8 && !(takes_bias && simple)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (of_operand && narrow_) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (out_.d.type == gemm::Type::kFp64 && !simple) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (out_.d.row_major) {
      // Documented: no activation with bias over a row-major D. Auxiliary matrices and gradients are column-major.
      const bool both = found->activation != Activation::kNone && found->bias != BiasUse::kNone;
      if (both || found->aux || of_operand) return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    out_.activation = found->activation;
    out_.bias_use = found->bias;
    out_.bias_stride = desc_.bias_batch_stride;
    const cublasStatus_t status = bias_type(of_operand);
    return status == CUBLAS_STATUS_SUCCESS ? auxiliary(found->aux) : status;
  }

  // The type that the documented table gives the bias: D's; FP32 beside an INT8 D; for FP8 operands BF16 beside an FP32
  // D and C's type beside an FP8 one. A gradient of an operand may also have the operand's type.
  cublasStatus_t bias_type(bool of_operand) {
    out_.bias_type = out_.d.type;
    if (narrow_ && out_.d.type == gemm::Type::kFp32) out_.bias_type = gemm::Type::kBf16;
    if (gemm::is_narrow(out_.d.type)) out_.bias_type = out_.c.type;
    if (out_.d.type == gemm::Type::kInt8) out_.bias_type = gemm::Type::kFp32;
    if (out_.bias_use == BiasUse::kNone || desc_.bias_data_type == -1) return CUBLAS_STATUS_SUCCESS;
    gemm::Type asked{};
    if (!type_of(static_cast<cudaDataType>(desc_.bias_data_type), &asked)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (asked != out_.bias_type && !(of_operand && asked == out_.a.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    out_.bias_type = asked;
    return CUBLAS_STATUS_SUCCESS;
  }

  cublasStatus_t auxiliary(bool used) {
    const bool fp8_scales = desc_.aux_scale_pointer || desc_.aux_amax_pointer;
    if (!used) return fp8_scales ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
    const bool mask = out_.activation == Activation::kRelu || out_.activation == Activation::kReluGradient;
    const bool written = out_.activation == Activation::kRelu || out_.activation == Activation::kGelu;
    const int64_t unit = mask ? 128 : 8;
    if (desc_.aux_ld % unit != 0 || desc_.aux_ld < out_.m) return CUBLAS_STATUS_INVALID_VALUE;
    if (out_.batch > 1) {
      if (desc_.aux_batch_stride % unit != 0) return CUBLAS_STATUS_INVALID_VALUE;
      if (written && desc_.aux_batch_stride == 0) return CUBLAS_STATUS_INVALID_VALUE;
    }
    out_.aux.ld = desc_.aux_ld;
    out_.aux.stride = desc_.aux_batch_stride;
    out_.aux.type = out_.d.type;
    if (!mask && desc_.aux_data_type != -1) {
      // D's type; beside a narrow D also C's.
      gemm::Type asked{};
      if (!type_of(static_cast<cudaDataType>(desc_.aux_data_type), &asked)) return CUBLAS_STATUS_INVALID_VALUE;
      if (asked != out_.d.type && !(gemm::is_narrow(out_.d.type) && asked == out_.c.type)) {
        return CUBLAS_STATUS_INVALID_VALUE;
      }
      out_.aux.type = asked;
    }
    // A matrix of GELU's input in blocks would need scales of its own.
    if (!mask && gemm::is_narrow(out_.aux.type) && out_.scales.d_out) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (fp8_scales && (mask || !gemm::is_fp8(out_.aux.type))) return CUBLAS_STATUS_INVALID_VALUE;
    out_.aux.scale = desc_.aux_scale_pointer;
    out_.aux.amax = desc_.aux_amax_pointer;
    return CUBLAS_STATUS_SUCCESS;
  }

  const MatmulDesc& desc_;
  const MatrixLayout& a_;
  const MatrixLayout& b_;
  const MatrixLayout& c_;
  const MatrixLayout& d_;
  Matmul& out_;
  bool narrow_ = false;
};

}  // namespace

int64_t least_alignment(const Matmul& matmul) {
  if (gemm::is_narrow(matmul.a.type)) return 16;
  return matmul.a.type == gemm::Type::kInt8 ? 4 : 0;
}

cublasStatus_t check_planar_types(cublasComputeType_t compute_type, cudaDataType scale, cudaDataType a, cudaDataType b,
                                  cudaDataType c, cudaDataType d, gemm::Compute* compute) {
  cudaDataType parts[4]{};
  if (compute_type != CUBLAS_COMPUTE_32F || scale != CUDA_C_32F || a == CUDA_C_32F || !real_part(a, &parts[0]) ||
      !real_part(b, &parts[1]) || !real_part(c, &parts[2]) || !real_part(d, &parts[3])) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return hostcuda_check_types(compute_type, CUDA_R_32F, parts[0], parts[1], parts[2], parts[3], compute);
}

bool has_tiled_orders() {
  const int capability = hostcuda_gemm_compute_capability();
  return capability >= 80 && capability < 90;
}

bool is_tiled_product(const Matmul& matmul) {
  return matmul.a.tiled != 0;
}

cublasStatus_t plan_matmul(const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b, const MatrixLayout& c,
                           const MatrixLayout& d, Matmul* out) {
  return Planner(desc, a, b, c, d, out)();
}

}  // namespace hostcuda

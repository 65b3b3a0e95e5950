// SPDX-License-Identifier: MIT
// cuBLASLt descriptors: create, initialise in place, destroy, set and get every attribute. No value is judged here, as
// in the real library; cublasLtMatmul and the heuristics do that.
#include "tools/hostcuda/cublaslt/descriptors.h"

#include <cstring>
#include <new>

namespace hostcuda {

cublasStatus_t set_field(void* object, Field field, const void* buf, size_t size_in_bytes) {
  if (!object || !buf || field.size == 0 || size_in_bytes != field.size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(static_cast<char*>(object) + field.offset, buf, field.size);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t get_field(const void* object, Field field, void* buf, size_t size_in_bytes, size_t* size_written) {
  if (!object || field.size == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (size_in_bytes == 0) {
    if (!size_written) return CUBLAS_STATUS_INVALID_VALUE;
    *size_written = field.size;
    return CUBLAS_STATUS_SUCCESS;
  }
  if (!buf || size_in_bytes != field.size) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(buf, static_cast<const char*>(object) + field.offset, field.size);
  if (size_written) *size_written = field.size;
  return CUBLAS_STATUS_SUCCESS;
}

namespace {

#define HOSTCUDA_FIELD(type, member)             \
  Field {                                        \
    offsetof(type, member), sizeof(type::member) \
  }

Field matmul_desc_field(int attr) {
  switch (attr) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return HOSTCUDA_FIELD(MatmulDesc, compute_type);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return HOSTCUDA_FIELD(MatmulDesc, scale_type);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return HOSTCUDA_FIELD(MatmulDesc, pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return HOSTCUDA_FIELD(MatmulDesc, transa);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return HOSTCUDA_FIELD(MatmulDesc, transb);
    case CUBLASLT_MATMUL_DESC_TRANSC:
      return HOSTCUDA_FIELD(MatmulDesc, transc);
    case CUBLASLT_MATMUL_DESC_FILL_MODE:
      return HOSTCUDA_FIELD(MatmulDesc, fill_mode);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return HOSTCUDA_FIELD(MatmulDesc, epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return HOSTCUDA_FIELD(MatmulDesc, bias_pointer);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return HOSTCUDA_FIELD(MatmulDesc, bias_batch_stride);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return HOSTCUDA_FIELD(MatmulDesc, aux_pointer);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return HOSTCUDA_FIELD(MatmulDesc, aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return HOSTCUDA_FIELD(MatmulDesc, aux_batch_stride);
    case CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE:
      return HOSTCUDA_FIELD(MatmulDesc, alpha_vector_batch_stride);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return HOSTCUDA_FIELD(MatmulDesc, sm_count_target);
    case 16:
      return HOSTCUDA_FIELD(MatmulDesc, attribute_16);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return HOSTCUDA_FIELD(MatmulDesc, a_scale_pointer);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return HOSTCUDA_FIELD(MatmulDesc, b_scale_pointer);
    case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER:
      return HOSTCUDA_FIELD(MatmulDesc, c_scale_pointer);
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
      return HOSTCUDA_FIELD(MatmulDesc, d_scale_pointer);
    case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER:
      return HOSTCUDA_FIELD(MatmulDesc, amax_d_pointer);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return HOSTCUDA_FIELD(MatmulDesc, aux_data_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER:
      return HOSTCUDA_FIELD(MatmulDesc, aux_scale_pointer);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER:
      return HOSTCUDA_FIELD(MatmulDesc, aux_amax_pointer);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return HOSTCUDA_FIELD(MatmulDesc, fast_accum);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return HOSTCUDA_FIELD(MatmulDesc, bias_data_type);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return HOSTCUDA_FIELD(MatmulDesc, a_scale_mode);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return HOSTCUDA_FIELD(MatmulDesc, b_scale_mode);
    case CUBLASLT_MATMUL_DESC_C_SCALE_MODE:
      return HOSTCUDA_FIELD(MatmulDesc, c_scale_mode);
    case CUBLASLT_MATMUL_DESC_D_SCALE_MODE:
      return HOSTCUDA_FIELD(MatmulDesc, d_scale_mode);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_MODE:
      return HOSTCUDA_FIELD(MatmulDesc, aux_scale_mode);
    case CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER:
      return HOSTCUDA_FIELD(MatmulDesc, d_out_scale_pointer);
    case CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE:
      return HOSTCUDA_FIELD(MatmulDesc, d_out_scale_mode);
    case CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR:
      return HOSTCUDA_FIELD(MatmulDesc, emulation_descriptor);
    default:
      return {0, 0};
  }
}

Field layout_field(int attr) {
  switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return HOSTCUDA_FIELD(MatrixLayout, type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return HOSTCUDA_FIELD(MatrixLayout, order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return HOSTCUDA_FIELD(MatrixLayout, rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return HOSTCUDA_FIELD(MatrixLayout, cols);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return HOSTCUDA_FIELD(MatrixLayout, ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return HOSTCUDA_FIELD(MatrixLayout, batch_count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return HOSTCUDA_FIELD(MatrixLayout, batch_stride);
    case CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET:
      return HOSTCUDA_FIELD(MatrixLayout, plane_offset);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_MODE:
      return HOSTCUDA_FIELD(MatrixLayout, batch_mode);
    default:
      return {0, 0};
  }
}

Field preference_field(int attr) {
  switch (attr) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return HOSTCUDA_FIELD(Preference, search_mode);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return HOSTCUDA_FIELD(Preference, max_workspace_bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return HOSTCUDA_FIELD(Preference, reduction_scheme_mask);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return HOSTCUDA_FIELD(Preference, min_alignment_a);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return HOSTCUDA_FIELD(Preference, min_alignment_b);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return HOSTCUDA_FIELD(Preference, min_alignment_c);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return HOSTCUDA_FIELD(Preference, min_alignment_d);
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
      return HOSTCUDA_FIELD(Preference, max_waves_count);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return HOSTCUDA_FIELD(Preference, impl_mask);
    default:
      return {0, 0};
  }
}

Field transform_field(int attr) {
  switch (attr) {
    case CUBLASLT_MATRIX_TRANSFORM_DESC_SCALE_TYPE:
      return HOSTCUDA_FIELD(TransformDesc, scale_type);
    case CUBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE:
      return HOSTCUDA_FIELD(TransformDesc, pointer_mode);
    case CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA:
      return HOSTCUDA_FIELD(TransformDesc, transa);
    case CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSB:
      return HOSTCUDA_FIELD(TransformDesc, transb);
    default:
      return {0, 0};
  }
}

Field emulation_field(int attr) {
  switch (attr) {
    case CUBLASLT_EMULATION_DESC_STRATEGY:
      return HOSTCUDA_FIELD(EmulationDesc, strategy);
    case CUBLASLT_EMULATION_DESC_SPECIAL_VALUES_SUPPORT:
      return HOSTCUDA_FIELD(EmulationDesc, special_values);
    case CUBLASLT_EMULATION_DESC_FIXEDPOINT_MANTISSA_CONTROL:
      return HOSTCUDA_FIELD(EmulationDesc, mantissa_control);
    case CUBLASLT_EMULATION_DESC_FIXEDPOINT_MAX_MANTISSA_BIT_COUNT:
      return HOSTCUDA_FIELD(EmulationDesc, max_mantissa_bits);
    case CUBLASLT_EMULATION_DESC_FIXEDPOINT_MANTISSA_BIT_OFFSET:
      return HOSTCUDA_FIELD(EmulationDesc, mantissa_bit_offset);
    case CUBLASLT_EMULATION_DESC_FIXEDPOINT_MANTISSA_BIT_COUNT_POINTER:
      return HOSTCUDA_FIELD(EmulationDesc, mantissa_bits_pointer);
    default:
      return {0, 0};
  }
}

#undef HOSTCUDA_FIELD

// A zeroed opaque object on the heap, initialised by init(object); ALLOC_FAILED without memory.
template <typename Opaque, typename Init>
cublasStatus_t create(Opaque** out, Init init) {
  if (!out) return CUBLAS_STATUS_INVALID_VALUE;
  auto* object = new (std::nothrow) Opaque{};
  if (!object) return CUBLAS_STATUS_ALLOC_FAILED;
  init(object);
  *out = object;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Opaque>
cublasStatus_t destroy(Opaque* object) {
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

void fill_desc(cublasLtMatmulDesc_t desc, cublasComputeType_t compute_type, cudaDataType_t scale_type) {
  MatmulDesc& fresh = *inside(desc);
  fresh = MatmulDesc{};
  fresh.compute_type = compute_type;
  fresh.scale_type = scale_type;
  fresh.fill_mode = CUBLAS_FILL_MODE_FULL;
  fresh.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  fresh.aux_data_type = -1;
  fresh.bias_data_type = -1;
}

void fill_layout(cublasLtMatrixLayout_t layout, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld) {
  MatrixLayout& fresh = *inside(layout);
  fresh = MatrixLayout{};
  fresh.type = type;
  fresh.order = CUBLASLT_ORDER_COL;
  fresh.rows = rows;
  fresh.cols = cols;
  fresh.ld = ld;
  fresh.batch_count = 1;
}

constexpr uint32_t kAnyAlignment = 256;  // what the documentation promises of cudaMalloc

void fill_preference(cublasLtMatmulPreference_t preference) {
  Preference& fresh = *inside(preference);
  fresh = Preference{};
  fresh.reduction_scheme_mask = CUBLASLT_REDUCTION_SCHEME_MASK;
  fresh.impl_mask = ~uint64_t{0};
  fresh.min_alignment_a = fresh.min_alignment_b = fresh.min_alignment_c = fresh.min_alignment_d = kAnyAlignment;
}

void fill_transform(cublasLtMatrixTransformDesc_t desc, cudaDataType scale_type) {
  *inside(desc) = TransformDesc{};
  inside(desc)->scale_type = scale_type;
}

void fill_emulation(cublasLtEmulationDesc_t desc) {
  *inside(desc) = EmulationDesc{};
  inside(desc)->special_values = 0xFFFF;
}

}  // namespace
}  // namespace hostcuda

using hostcuda::inside;

extern "C" {

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t matmulDesc, size_t size,
                                               cublasComputeType_t computeType, cudaDataType_t scaleType) {
  if (!matmulDesc) return CUBLAS_STATUS_INVALID_VALUE;
  // A program built against an older header brings a smaller struct; what has to fit is our own.
  if (size < sizeof(hostcuda::MatmulDesc)) return CUBLAS_STATUS_ALLOC_FAILED;
  hostcuda::fill_desc(matmulDesc, computeType, scaleType);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc, cublasComputeType_t computeType,
                                        cudaDataType_t scaleType) {
  return hostcuda::create(matmulDesc,
                          [&](cublasLtMatmulDesc_t fresh) { hostcuda::fill_desc(fresh, computeType, scaleType); });
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  return hostcuda::destroy(matmulDesc);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc, cublasLtMatmulDescAttributes_t attr,
                                              const void* buf, size_t sizeInBytes) {
  return hostcuda::set_field(matmulDesc, hostcuda::matmul_desc_field(attr), buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t matmulDesc, cublasLtMatmulDescAttributes_t attr,
                                              void* buf, size_t sizeInBytes, size_t* sizeWritten) {
  return hostcuda::get_field(matmulDesc, hostcuda::matmul_desc_field(attr), buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matLayout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t ld) {
  if (!matLayout) return CUBLAS_STATUS_INVALID_VALUE;
  if (size < sizeof(cublasLtMatrixLayoutOpaque_t)) return CUBLAS_STATUS_ALLOC_FAILED;
  hostcuda::fill_layout(matLayout, type, rows, cols, ld);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  return hostcuda::create(matLayout,
                          [&](cublasLtMatrixLayout_t fresh) { hostcuda::fill_layout(fresh, type, rows, cols, ld); });
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  return hostcuda::destroy(matLayout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout, cublasLtMatrixLayoutAttribute_t attr,
                                                const void* buf, size_t sizeInBytes) {
  return hostcuda::set_field(matLayout, hostcuda::layout_field(attr), buf, sizeInBytes);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matLayout, cublasLtMatrixLayoutAttribute_t attr,
                                                void* buf, size_t sizeInBytes, size_t* sizeWritten) {
  return hostcuda::get_field(matLayout, hostcuda::layout_field(attr), buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref, size_t size) {
  if (!pref) return CUBLAS_STATUS_INVALID_VALUE;
  if (size < sizeof(cublasLtMatmulPreferenceOpaque_t)) return CUBLAS_STATUS_ALLOC_FAILED;
  hostcuda::fill_preference(pref);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  return hostcuda::create(pref, hostcuda::fill_preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  return hostcuda::destroy(pref);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr, const void* buf,
                                                    size_t sizeInBytes) {
  return hostcuda::set_field(pref, hostcuda::preference_field(attr), buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr, void* buf,
                                                    size_t sizeInBytes, size_t* sizeWritten) {
  return hostcuda::get_field(pref, hostcuda::preference_field(attr), buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatrixTransformDescInit_internal(cublasLtMatrixTransformDesc_t transformDesc, size_t size,
                                                        cudaDataType scaleType) {
  if (!transformDesc) return CUBLAS_STATUS_INVALID_VALUE;
  if (size < sizeof(cublasLtMatrixTransformDescOpaque_t)) return CUBLAS_STATUS_ALLOC_FAILED;
  hostcuda::fill_transform(transformDesc, scaleType);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixTransformDescCreate(cublasLtMatrixTransformDesc_t* transformDesc, cudaDataType scaleType) {
  return hostcuda::create(transformDesc,
                          [&](cublasLtMatrixTransformDesc_t fresh) { hostcuda::fill_transform(fresh, scaleType); });
}

cublasStatus_t cublasLtMatrixTransformDescDestroy(cublasLtMatrixTransformDesc_t transformDesc) {
  return hostcuda::destroy(transformDesc);
}

cublasStatus_t cublasLtMatrixTransformDescSetAttribute(cublasLtMatrixTransformDesc_t transformDesc,
                                                       cublasLtMatrixTransformDescAttributes_t attr, const void* buf,
                                                       size_t sizeInBytes) {
  return hostcuda::set_field(transformDesc, hostcuda::transform_field(attr), buf, sizeInBytes);
}

cublasStatus_t cublasLtMatrixTransformDescGetAttribute(cublasLtMatrixTransformDesc_t transformDesc,
                                                       cublasLtMatrixTransformDescAttributes_t attr, void* buf,
                                                       size_t sizeInBytes, size_t* sizeWritten) {
  return hostcuda::get_field(transformDesc, hostcuda::transform_field(attr), buf, sizeInBytes, sizeWritten);
}

// Kept and read back; a product that names one is NOT_SUPPORTED.
cublasStatus_t cublasLtEmulationDescInit_internal(cublasLtEmulationDesc_t emulationDesc, size_t size) {
  if (!emulationDesc) return CUBLAS_STATUS_INVALID_VALUE;
  if (size < sizeof(cublasLtEmulationDescOpaque_t)) return CUBLAS_STATUS_ALLOC_FAILED;
  hostcuda::fill_emulation(emulationDesc);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtEmulationDescCreate(cublasLtEmulationDesc_t* emulationDesc) {
  return hostcuda::create(emulationDesc, hostcuda::fill_emulation);
}

cublasStatus_t cublasLtEmulationDescDestroy(cublasLtEmulationDesc_t emulationDesc) {
  return hostcuda::destroy(emulationDesc);
}

cublasStatus_t cublasLtEmulationDescSetAttribute(cublasLtEmulationDesc_t emulationDesc,
                                                 cublasLtEmulationDescAttributes_t attr, const void* buf,
                                                 size_t sizeInBytes) {
  return hostcuda::set_field(emulationDesc, hostcuda::emulation_field(attr), buf, sizeInBytes);
}

cublasStatus_t cublasLtEmulationDescGetAttribute(cublasLtEmulationDesc_t emulationDesc,
                                                 cublasLtEmulationDescAttributes_t attr, void* buf, size_t sizeInBytes,
                                                 size_t* sizeWritten) {
  return hostcuda::get_field(emulationDesc, hostcuda::emulation_field(attr), buf, sizeInBytes, sizeWritten);
}

}  // extern "C"

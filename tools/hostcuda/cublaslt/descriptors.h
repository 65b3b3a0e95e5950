// SPDX-License-Identifier: MIT
// The opaque cuBLASLt structs of the host device: plain data without pointers into themselves, so that a byte copy of
// one is an equal one. Attribute ids, sizes and defaults are those measured on the real 13.1.0 library.
#pragma once

#pragma GCC visibility push(default)
#include <cublasLt.h>
#pragma GCC visibility pop

#include <stddef.h>
#include <stdint.h>

namespace hostcuda {

struct MatmulDesc {
  int32_t compute_type;
  int32_t scale_type;
  int32_t pointer_mode;
  int32_t transa;
  int32_t transb;
  int32_t transc;
  int32_t fill_mode;
  uint32_t epilogue;
  uint64_t bias_pointer;
  int64_t bias_batch_stride;
  uint64_t aux_pointer;
  int64_t aux_ld;
  int64_t aux_batch_stride;
  int64_t alpha_vector_batch_stride;
  int32_t sm_count_target;
  int32_t attribute_16;  // undocumented, 4 bytes, kept
  uint64_t a_scale_pointer;
  uint64_t b_scale_pointer;
  uint64_t c_scale_pointer;
  uint64_t d_scale_pointer;
  uint64_t amax_d_pointer;
  uint64_t aux_scale_pointer;
  uint64_t aux_amax_pointer;
  int32_t aux_data_type;   // -1: D's type
  int32_t bias_data_type;  // -1: D's type
  int32_t a_scale_mode;
  int32_t b_scale_mode;
  int32_t c_scale_mode;
  int32_t d_scale_mode;
  int32_t aux_scale_mode;
  int32_t d_out_scale_mode;
  uint64_t d_out_scale_pointer;
  uint64_t emulation_descriptor;
  int8_t fast_accum;
};
static_assert(sizeof(MatmulDesc) <= sizeof(cublasLtMatmulDescOpaque_t));

struct MatrixLayout {
  uint32_t type;
  int32_t order;
  uint64_t rows;
  uint64_t cols;
  int64_t ld;
  int32_t batch_count;
  uint32_t batch_mode;
  int64_t batch_stride;
  int64_t plane_offset;
};
static_assert(sizeof(MatrixLayout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct Preference {
  uint32_t search_mode;
  uint32_t reduction_scheme_mask;
  uint64_t max_workspace_bytes;
  uint64_t impl_mask;
  uint32_t min_alignment_a;
  uint32_t min_alignment_b;
  uint32_t min_alignment_c;
  uint32_t min_alignment_d;
  float max_waves_count;
};
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

struct TransformDesc {
  int32_t scale_type;
  int32_t pointer_mode;
  int32_t transa;
  int32_t transb;
};
static_assert(sizeof(TransformDesc) <= sizeof(cublasLtMatrixTransformDescOpaque_t));

struct EmulationDesc {
  int32_t strategy;
  int32_t special_values;
  int32_t mantissa_control;
  int32_t max_mantissa_bits;
  int32_t mantissa_bit_offset;
  uint64_t mantissa_bits_pointer;
};
static_assert(sizeof(EmulationDesc) <= sizeof(cublasLtEmulationDescOpaque_t));

// The 64 bytes of an algorithm, laid out as the real library does.
struct Algo {
  int32_t id;
  uint32_t tile;
  int32_t splitk;
  uint32_t reduction;
  uint32_t swizzle;
  uint32_t custom;
  uint32_t stages;
  uint16_t inner_shape;
  uint16_t cluster_shape;
  uint16_t attribute_10;  // undocumented, 2 bytes, kept
  uint16_t padding;
  uint32_t reserved;
  int32_t a_type;   // 0x28
  int32_t b_type;   // 0x2c
  uint16_t c_type;  // 0x30
  uint16_t d_type;  // 0x32
  int32_t compute_type;
  int32_t scale_type;
  uint32_t reserved_end;
};
static_assert(sizeof(Algo) == sizeof(cublasLtMatmulAlgo_t));
static_assert(offsetof(Algo, a_type) == 0x28 && offsetof(Algo, d_type) == 0x32 && offsetof(Algo, scale_type) == 0x38);

static_assert(sizeof(cublasLtMatmulDescOpaque_t) == 256 && sizeof(cublasLtMatrixLayoutOpaque_t) == 64 &&
              sizeof(cublasLtMatmulAlgo_t) == 64 && sizeof(cublasLtMatmulPreferenceOpaque_t) == 64 &&
              sizeof(cublasLtMatmulHeuristicResult_t) == 96);

inline MatmulDesc* inside(cublasLtMatmulDesc_t desc) {
  return reinterpret_cast<MatmulDesc*>(desc);
}
inline MatrixLayout* inside(cublasLtMatrixLayout_t layout) {
  return reinterpret_cast<MatrixLayout*>(layout);
}
inline Preference* inside(cublasLtMatmulPreference_t preference) {
  return reinterpret_cast<Preference*>(preference);
}
inline TransformDesc* inside(cublasLtMatrixTransformDesc_t desc) {
  return reinterpret_cast<TransformDesc*>(desc);
}
inline EmulationDesc* inside(cublasLtEmulationDesc_t desc) {
  return reinterpret_cast<EmulationDesc*>(desc);
}
inline Algo* inside(cublasLtMatmulAlgo_t* algo) {
  return reinterpret_cast<Algo*>(algo);
}
inline const Algo* inside(const cublasLtMatmulAlgo_t* algo) {
  return reinterpret_cast<const Algo*>(algo);
}

// Where an attribute lies in its struct; size 0: no such attribute.
struct Field {
  size_t offset;
  size_t size;
};

// Attribute access as documented for all cublasLt...SetAttribute and ...GetAttribute:
// set: INVALID_VALUE unless buf is there and size_in_bytes is exactly the field's size.
// get: with size_in_bytes 0 *size_written becomes the size needed (INVALID_VALUE without size_written); else exact
// size, and size_written may be null.
cublasStatus_t set_field(void* object, Field field, const void* buf, size_t size_in_bytes);
cublasStatus_t get_field(const void* object, Field field, void* buf, size_t size_in_bytes, size_t* size_written);

}  // namespace hostcuda

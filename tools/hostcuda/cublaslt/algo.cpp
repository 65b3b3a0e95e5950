// SPDX-License-Identifier: MIT
// cuBLASLt algorithms: enumeration, stamping, configuration, heuristics. Every algorithm of the host device computes
// the same bits; what is modelled is the protocol (types stamped in, sizes, refusals).
#include <algorithm>
#include <cstring>
#include <iterator>

#include "tools/hostcuda/cublaslt/plan.h"

namespace hostcuda {
namespace {

constexpr int32_t kAlgoIds[] = {66, 67, 21};
// FP64 with split-K in place, that programs ask for by number (NVIDIA's LtDgemmPresetAlgo); not among those enumerated.
constexpr int32_t kPresetId = 10;
constexpr uint32_t kTiles[] = {CUBLASLT_MATMUL_TILE_64x64, CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_MATMUL_TILE_128x256};

bool is_narrow(cudaDataType type) {
  hostcuda::gemm::Type known{};
  return hostcuda::type_of(type, &known) && hostcuda::gemm::is_narrow(known);
}

// The epilogues of a type, as the bits that make them up: none for INT8, those without an auxiliary matrix for FP64.
uint32_t epilogues_of(cudaDataType a) {
  if (a == CUDA_R_8I) return CUBLASLT_EPILOGUE_DEFAULT;
  const uint32_t simple = CUBLASLT_EPILOGUE_DEFAULT | CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS;
  if (a == CUDA_R_64F) return simple;
  const uint32_t all = simple | CUBLASLT_EPILOGUE_RELU_AUX_BIAS | CUBLASLT_EPILOGUE_DRELU_BGRAD |
                       CUBLASLT_EPILOGUE_GELU_AUX_BIAS | CUBLASLT_EPILOGUE_DGELU_BGRAD;
  return is_narrow(a) ? all : all | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB;
}

uint32_t pointer_modes_of(cudaDataType scale) {
  const uint32_t single = CUBLASLT_POINTER_MODE_MASK_HOST | CUBLASLT_POINTER_MODE_MASK_DEVICE;
  return scale != CUDA_R_32F ? single
                             : single | CUBLASLT_POINTER_MODE_MASK_DEVICE_VECTOR |
                                   CUBLASLT_POINTER_MODE_MASK_ALPHA_DEVICE_VECTOR_BETA_ZERO |
                                   CUBLASLT_POINTER_MODE_MASK_ALPHA_DEVICE_VECTOR_BETA_HOST;
}

// Bytes that addresses and leading dimensions of a matrix must be multiples of.
uint32_t alignment_of(cudaDataType a, uint32_t matrix) {
  if (is_narrow(a)) return 16;
  if (a == CUDA_R_8I) return 4;
  gemm::Type type{};
  return type_of(static_cast<cudaDataType>(matrix), &type) ? static_cast<uint32_t>(gemm::bytes_of(type)) : 1;
}

uint64_t implementation_of(const Algo& algo) {
  uint64_t flags = 0;
  switch (algo.a_type) {
    case CUDA_R_32F:
      flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F;
      break;
    case CUDA_R_16F:
      flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F;
      break;
    case CUDA_R_16BF:
      flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF;
      break;
    case CUDA_R_64F:
      flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_64F;
      break;
    case CUDA_R_8I:
      flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8I;
      break;
    case CUDA_R_8F_E4M3:
      flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E4M3;
      break;
    case CUDA_R_8F_E5M2:
      flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E5M2;
      break;
    default:
      break;
  }
  if (algo.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32) flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32;
  flags |= algo.a_type == CUDA_R_64F       ? CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_64F
           : algo.a_type == CUDA_R_8I      ? CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32I
           : algo.scale_type == CUDA_R_16F ? CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F
                                           : CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F;
  const bool fma =
      algo.a_type == CUDA_R_64F || (algo.a_type == CUDA_R_32F && algo.compute_type != CUBLAS_COMPUTE_32F_FAST_TF32);
  flags |= fma                        ? CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA
           : algo.a_type == CUDA_R_8I ? CUBLASLT_NUMERICAL_IMPL_FLAGS_IMMA
                                      : CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA;
  return flags;
}

bool known_id(int32_t id) {
  return id == kPresetId || std::find(std::begin(kAlgoIds), std::end(kAlgoIds), id) != std::end(kAlgoIds);
}

struct Types {
  cublasComputeType_t compute;
  cudaDataType_t scale, a, b, c, d;
};

Types types_of(const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b, const MatrixLayout& c,
               const MatrixLayout& d) {
  return {static_cast<cublasComputeType_t>(desc.compute_type),
          static_cast<cudaDataType>(desc.scale_type),
          static_cast<cudaDataType>(a.type),
          static_cast<cudaDataType>(b.type),
          static_cast<cudaDataType>(c.type),
          static_cast<cudaDataType>(d.type)};
}

cublasStatus_t check(const Types& types) {
  gemm::Compute compute;
  const bool planar = types.scale == CUDA_C_32F;
  return (planar ? check_planar_types : hostcuda_check_types)(types.compute, types.scale, types.a, types.b, types.c,
                                                              types.d, &compute);
}

void stamp(const Types& types, int32_t id, uint32_t tile, Algo* algo) {
  *algo = Algo{};
  algo->id = id;
  algo->tile = tile;
  algo->splitk = 1;
  algo->a_type = types.a;
  algo->b_type = types.b;
  algo->c_type = static_cast<uint16_t>(types.c);
  algo->d_type = static_cast<uint16_t>(types.d);
  algo->compute_type = types.compute;
  algo->scale_type = types.scale;
}

void fill_result(cublasLtMatmulHeuristicResult_t* result) {
  result->workspaceSize = 0;
  result->state = CUBLAS_STATUS_SUCCESS;
  result->wavesCount = 1.0f;
  std::memset(result->reserved, 0, sizeof result->reserved);
}

#define HOSTCUDA_FIELD(member)                   \
  Field {                                        \
    offsetof(Algo, member), sizeof(Algo::member) \
  }

Field config_field(int attr) {
  switch (attr) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return HOSTCUDA_FIELD(id);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      return HOSTCUDA_FIELD(tile);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return HOSTCUDA_FIELD(splitk);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      return HOSTCUDA_FIELD(reduction);
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
      return HOSTCUDA_FIELD(swizzle);
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
      return HOSTCUDA_FIELD(custom);
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      return HOSTCUDA_FIELD(stages);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
      return HOSTCUDA_FIELD(inner_shape);
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return HOSTCUDA_FIELD(cluster_shape);
    case 10:
      return HOSTCUDA_FIELD(attribute_10);
    default:
      return {0, 0};
  }
}

#undef HOSTCUDA_FIELD

template <typename Value>
cublasStatus_t give(const Value& value, void* buf, size_t size_in_bytes, size_t* size_written) {
  return get_field(&value, {0, sizeof value}, buf, size_in_bytes, size_written);
}

}  // namespace

cublasStatus_t check_algo(const Algo& algo, const MatmulDesc& desc, const MatrixLayout& a, const MatrixLayout& b,
                          const MatrixLayout& c, const MatrixLayout& d) {
  Algo expected;
  stamp(types_of(desc, a, b, c, d), algo.id, 0, &expected);
  if (!known_id(algo.id) || algo.a_type != expected.a_type || algo.b_type != expected.b_type ||
      algo.c_type != expected.c_type || algo.d_type != expected.d_type || algo.compute_type != expected.compute_type ||
      algo.scale_type != expected.scale_type) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (algo.id == kPresetId) {
    const bool split = algo.splitk > 1 ? algo.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE
                                       : algo.reduction <= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    const bool fits = algo.a_type == CUDA_R_64F && algo.tile < CUBLASLT_MATMUL_TILE_END && algo.swizzle <= 1;
    return split && fits && algo.custom == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool known_tile = algo.tile == CUBLASLT_MATMUL_TILE_UNDEFINED ||
                          std::find(std::begin(kTiles), std::end(kTiles), algo.tile) != std::end(kTiles);
  if (!known_tile || algo.splitk > 1 || algo.reduction != CUBLASLT_REDUCTION_SCHEME_NONE || algo.swizzle > 1 ||
      algo.custom != 0) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace hostcuda

using hostcuda::inside;

extern "C" {

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t lightHandle, cublasComputeType_t computeType,
                                        cudaDataType_t scaleType, cudaDataType_t Atype, cudaDataType_t Btype,
                                        cudaDataType_t Ctype, cudaDataType_t Dtype, int requestedAlgoCount,
                                        int algoIdsArray[], int* returnAlgoCount) {
  if (!hostcuda_handle_live(reinterpret_cast<HostcudaHandle*>(lightHandle))) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requestedAlgoCount < 1 || !algoIdsArray || !returnAlgoCount) return CUBLAS_STATUS_INVALID_VALUE;
  *returnAlgoCount = 0;
  const cublasStatus_t status = hostcuda::check({computeType, scaleType, Atype, Btype, Ctype, Dtype});
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  *returnAlgoCount = std::min(requestedAlgoCount, static_cast<int>(std::size(hostcuda::kAlgoIds)));
  std::copy_n(hostcuda::kAlgoIds, *returnAlgoCount, algoIdsArray);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t lightHandle, cublasComputeType_t computeType,
                                      cudaDataType_t scaleType, cudaDataType_t Atype, cudaDataType_t Btype,
                                      cudaDataType_t Ctype, cudaDataType_t Dtype, int algoId,
                                      cublasLtMatmulAlgo_t* algo) {
  if (!hostcuda_handle_live(reinterpret_cast<HostcudaHandle*>(lightHandle))) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!algo || !hostcuda::known_id(algoId)) return CUBLAS_STATUS_INVALID_VALUE;
  const hostcuda::Types types{computeType, scaleType, Atype, Btype, Ctype, Dtype};
  const cublasStatus_t status = hostcuda::check(types);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  hostcuda::stamp(types, algoId, CUBLASLT_MATMUL_TILE_UNDEFINED, inside(algo));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc,
                                       cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                       cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                       const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result) {
  if (!hostcuda_handle_live(reinterpret_cast<HostcudaHandle*>(lightHandle))) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!operationDesc || !Adesc || !Bdesc || !Ddesc || !algo || !result) return CUBLAS_STATUS_INVALID_VALUE;
  if (!Cdesc) Cdesc = Ddesc;
  hostcuda::Matmul matmul;
  cublasStatus_t status = hostcuda::plan_matmul(*inside(operationDesc), *inside(Adesc), *inside(Bdesc), *inside(Cdesc),
                                                *inside(Ddesc), &matmul);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  status = hostcuda::check_algo(*inside(algo), *inside(operationDesc), *inside(Adesc), *inside(Bdesc), *inside(Cdesc),
                                *inside(Ddesc));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  hostcuda::fill_result(result);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc,
                                              cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                              cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                              cublasLtMatmulPreference_t preference, int requestedAlgoCount,
                                              cublasLtMatmulHeuristicResult_t heuristicResultsArray[],
                                              int* returnAlgoCount) {
  if (!hostcuda_handle_live(reinterpret_cast<HostcudaHandle*>(lightHandle))) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!operationDesc || !Adesc || !Bdesc || !Ddesc || !preference || !heuristicResultsArray || !returnAlgoCount ||
      requestedAlgoCount < 1) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!Cdesc) Cdesc = Ddesc;
  *returnAlgoCount = 0;
  hostcuda::Matmul matmul;
  const cublasStatus_t status = hostcuda::plan_matmul(*inside(operationDesc), *inside(Adesc), *inside(Bdesc),
                                                      *inside(Cdesc), *inside(Ddesc), &matmul);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  // Addresses are not known here: the preference says how they are aligned.
  const hostcuda::Preference& promised = *inside(preference);
  for (const uint32_t alignment :
       {promised.min_alignment_a, promised.min_alignment_b, promised.min_alignment_c, promised.min_alignment_d}) {
    if (static_cast<int64_t>(alignment) < hostcuda::least_alignment(matmul)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const hostcuda::Types types =
      hostcuda::types_of(*inside(operationDesc), *inside(Adesc), *inside(Bdesc), *inside(Cdesc), *inside(Ddesc));
  for (const int32_t id : hostcuda::kAlgoIds) {
    for (const uint32_t tile : hostcuda::kTiles) {
      if (*returnAlgoCount == requestedAlgoCount) return CUBLAS_STATUS_SUCCESS;
      cublasLtMatmulHeuristicResult_t& result = heuristicResultsArray[(*returnAlgoCount)++];
      hostcuda::stamp(types, id, tile, inside(&result.algo));
      hostcuda::fill_result(&result);
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr, const void* buf,
                                                    size_t sizeInBytes) {
  if (attr == CUBLASLT_ALGO_CONFIG_ID) return CUBLAS_STATUS_INVALID_VALUE;  // read-only
  return hostcuda::set_field(algo, hostcuda::config_field(attr), buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr, void* buf,
                                                    size_t sizeInBytes, size_t* sizeWritten) {
  return hostcuda::get_field(algo, hostcuda::config_field(attr), buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                 cublasLtMatmulAlgoCapAttributes_t attr, void* buf, size_t sizeInBytes,
                                                 size_t* sizeWritten) {
  if (!algo || !hostcuda::known_id(inside(algo)->id)) return CUBLAS_STATUS_INVALID_VALUE;
  const auto give_int = [&](int32_t value) { return hostcuda::give(value, buf, sizeInBytes, sizeWritten); };
  const auto give_uint = [&](uint32_t value) { return hostcuda::give(value, buf, sizeInBytes, sizeWritten); };
  const hostcuda::Algo& stamped = *inside(algo);
  const auto a_type = static_cast<cudaDataType>(stamped.a_type);
  switch (attr) {
    case CUBLASLT_ALGO_CAP_SPLITK_SUPPORT:
    case CUBLASLT_ALGO_CAP_UPLO_SUPPORT:
    case CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX:
    case CUBLASLT_ALGO_CAP_LD_NEGATIVE:
    case CUBLASLT_ALGO_CAP_FLOATING_POINT_EMULATION_SUPPORT:
      return give_int(0);
    case CUBLASLT_ALGO_CAP_CUSTOM_MEMORY_ORDER:
      return give_int(a_type == CUDA_R_8I && hostcuda::has_tiled_orders() ? 1 : 0);
    case CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT:
    case CUBLASLT_ALGO_CAP_POINTER_ARRAY_BATCH_SUPPORT:
    case CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT:
      return give_int(1);
    case CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK:
      return give_uint(CUBLASLT_REDUCTION_SCHEME_MASK);  // every scheme masked out
    case CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT:
      return give_uint(1);
    case CUBLASLT_ALGO_CAP_TILE_IDS: {
      // As documented for lists: any size in whole entries, as many as fit.
      if (sizeInBytes == 0) {
        if (!sizeWritten) return CUBLAS_STATUS_INVALID_VALUE;
        *sizeWritten = sizeof hostcuda::kTiles;
        return CUBLAS_STATUS_SUCCESS;
      }
      if (!buf) return CUBLAS_STATUS_INVALID_VALUE;
      const size_t count = std::min(sizeInBytes / sizeof(uint32_t), std::size(hostcuda::kTiles));
      std::memcpy(buf, hostcuda::kTiles, count * sizeof(uint32_t));
      if (sizeWritten) *sizeWritten = count * sizeof(uint32_t);
      return CUBLAS_STATUS_SUCCESS;
    }
    case CUBLASLT_ALGO_CAP_STAGES_IDS:  // none: CUBLASLT_MATMUL_STAGES_UNDEFINED is the one to use
      if (sizeInBytes == 0 && !sizeWritten) return CUBLAS_STATUS_INVALID_VALUE;
      if (sizeWritten) *sizeWritten = 0;
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_ALGO_CAP_POINTER_MODE_MASK:
      return give_uint(hostcuda::pointer_modes_of(static_cast<cudaDataType>(stamped.scale_type)));
    case CUBLASLT_ALGO_CAP_EPILOGUE_MASK:
      return give_uint(hostcuda::epilogues_of(a_type));
    case CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS:
      return hostcuda::give(hostcuda::implementation_of(stamped), buf, sizeInBytes, sizeWritten);
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES:
      return give_uint(hostcuda::alignment_of(a_type, static_cast<uint32_t>(stamped.a_type)));
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES:
      return give_uint(hostcuda::alignment_of(a_type, static_cast<uint32_t>(stamped.b_type)));
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES:
      return give_uint(hostcuda::alignment_of(a_type, stamped.c_type));
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES:
      return give_uint(hostcuda::alignment_of(a_type, stamped.d_type));
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

}  // extern "C"

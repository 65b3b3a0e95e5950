// SPDX-License-Identifier: MIT
// The part of the cuBLAS and cuBLASLt binary interface that the shim speaks, declared anew: no CUDA header is needed,
// and none of cublas_api.h's C++ overloads can be picked by mistake. tests/unit/gemm_call_test.cpp holds every value
// and size against the real headers. Enums travel as int, handles and descriptors as void*.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sdcguard::abi {

// cublasStatus_t
inline constexpr int kSuccess = 0;
inline constexpr int kNotInitialized = 1;
inline constexpr int kInvalidValue = 7;
inline constexpr int kArchMismatch = 8;
inline constexpr int kNotSupported = 15;

// cublasOperation_t
inline constexpr int kOpN = 0;
inline constexpr int kOpT = 1;
inline constexpr int kOpC = 2;  // the transpose of a real matrix

// cublasPointerMode_t; cublasLt knows three more, which are vectors of scalars.
inline constexpr int kPointerHost = 0;
inline constexpr int kPointerDevice = 1;
inline constexpr int kPointerDeviceVector = 2;
inline constexpr int kPointerAlphaVectorBetaZero = 3;
inline constexpr int kPointerAlphaVectorBetaHost = 4;

// cublasMath_t
inline constexpr int kDefaultMath = 0;
inline constexpr int kTensorOpMath = 1;
inline constexpr int kPedanticMath = 2;
inline constexpr int kTf32Math = 3;
inline constexpr int kFp32EmulatedMath = 4;
inline constexpr int kFp64EmulatedMath = 8;
inline constexpr int kMathDisallowReducedReduction = 16;  // a flag beside the mode

// cudaDataType
inline constexpr int kR32F = 0;
inline constexpr int kR64F = 1;
inline constexpr int kR16F = 2;
inline constexpr int kR8I = 3;
inline constexpr int kR32I = 10;
inline constexpr int kR16BF = 14;
inline constexpr int kR8FE4M3 = 28;
inline constexpr int kR8FE5M2 = 29;

// cublasComputeType_t
inline constexpr int kCompute16F = 64;
inline constexpr int kCompute16FPedantic = 65;
inline constexpr int kCompute32F = 68;
inline constexpr int kCompute32FPedantic = 69;
inline constexpr int kCompute64F = 70;
inline constexpr int kCompute64FPedantic = 71;
inline constexpr int kCompute32I = 72;
inline constexpr int kCompute32IPedantic = 73;
inline constexpr int kCompute32FFast16F = 74;
inline constexpr int kCompute32FFast16BF = 75;
inline constexpr int kCompute32FFastTf32 = 77;
inline constexpr int kCompute64FEmulated = 79;

// cublasGemmAlgo_t
inline constexpr int kGemmDefault = -1;

// cublasLtMatmulDescAttributes_t: those the shim interprets. Every other one must read as in a new descriptor.
inline constexpr int kDescComputeType = 0;
inline constexpr int kDescScaleType = 1;
inline constexpr int kDescPointerMode = 2;
inline constexpr int kDescTransA = 3;
inline constexpr int kDescTransB = 4;
inline constexpr int kDescEpilogue = 7;
inline constexpr int kDescBiasPointer = 8;
inline constexpr int kDescBiasBatchStride = 10;
inline constexpr int kDescAuxPointer = 11;
inline constexpr int kDescAuxLd = 12;
inline constexpr int kDescAuxBatchStride = 13;
inline constexpr int kDescAlphaVectorBatchStride = 14;
inline constexpr int kDescSmCountTarget = 15;
inline constexpr int kDescAScalePointer = 17;
inline constexpr int kDescBScalePointer = 18;
inline constexpr int kDescCScalePointer = 19;
inline constexpr int kDescDScalePointer = 20;
inline constexpr int kDescAmaxDPointer = 21;
inline constexpr int kDescAuxDataType = 22;
inline constexpr int kDescFastAccum = 25;  // FP8 only
inline constexpr int kDescBiasDataType = 26;
inline constexpr int kDescAScaleMode = 31;
inline constexpr int kDescBScaleMode = 32;
inline constexpr int kDescCScaleMode = 33;
inline constexpr int kDescDScaleMode = 34;
inline constexpr int kDescAuxScaleMode = 35;
inline constexpr int kDescDOutScaleMode = 37;
inline constexpr int kDescAttributeLimit = 64;  // ids asked for; 13.1 knows 0 to 38

// cublasLtMatrixLayoutAttribute_t
inline constexpr int kLayoutType = 0;
inline constexpr int kLayoutOrder = 1;
inline constexpr int kLayoutRows = 2;
inline constexpr int kLayoutCols = 3;
inline constexpr int kLayoutLd = 4;
inline constexpr int kLayoutBatchCount = 5;
inline constexpr int kLayoutBatchStride = 6;
inline constexpr int kLayoutPlaneOffset = 7;
inline constexpr int kLayoutBatchMode = 8;
inline constexpr int kLayoutAttributeLimit = 32;

// cublasLtBatchMode_t
inline constexpr uint32_t kBatchStrided = 0;
inline constexpr uint32_t kBatchPointerArray = 1;

// cublasLtMatmulMatrixScale_t
inline constexpr int32_t kScaleScalar = 0;
inline constexpr int32_t kScaleOuterVector = 3;

// cublasLtOrder_t
inline constexpr int kOrderCol = 0;
inline constexpr int kOrderRow = 1;

// cublasLtEpilogue_t: default is a bit of its own.
inline constexpr uint32_t kLtEpilogueDefault = 1;
inline constexpr uint32_t kLtEpilogueRelu = 2;
inline constexpr uint32_t kLtEpilogueBias = 4;
inline constexpr uint32_t kLtEpilogueGelu = 32;
inline constexpr uint32_t kLtEpilogueAux = 128;

// cublasLtMatmulPreferenceAttributes_t
inline constexpr int kPreferenceMaxWorkspaceBytes = 1;
inline constexpr int kPreferenceMinAlignmentA = 5;
inline constexpr int kPreferenceMinAlignmentB = 6;
inline constexpr int kPreferenceMinAlignmentC = 7;
inline constexpr int kPreferenceMinAlignmentD = 8;

// Opaque by contract, fixed in size: a copy of the bytes is a working clone inside the same library version.
struct LtDesc {
  uint64_t data[32];
};
struct LtLayout {
  uint64_t data[8];
};
struct LtAlgo {
  uint64_t data[8];
};
struct LtPreference {
  uint64_t data[8];
};
struct LtHeuristicResult {
  LtAlgo algo;
  size_t workspace_bytes;
  int state;
  float waves_count;
  int reserved[4];
};

// Functions of the same library as the product, by name (see resolve.h).
using GetStreamFn = int (*)(void* handle, void** stream);
using GetIntFn = int (*)(void* handle, int* value);  // cublasGetPointerMode_v2, cublasGetMathMode
using DescGetFn = int (*)(const void* desc, int attribute, void* value, size_t bytes, size_t* written);
using DescSetFn = int (*)(void* desc, int attribute, const void* value, size_t bytes);
using DescInitFn = int (*)(void* desc, size_t bytes, int compute_type, int scale_type);
using LayoutInitFn = int (*)(void* layout, size_t bytes, int type, uint64_t rows, uint64_t cols, int64_t ld);
using PreferenceInitFn = int (*)(void* preference, size_t bytes);
using HeuristicFn = int (*)(void* handle, const void* desc, const void* a, const void* b, const void* c, const void* d,
                            const void* preference, int requested, LtHeuristicResult* results, int* returned);

}  // namespace sdcguard::abi

// SPDX-License-Identifier: MIT
// Types that each product entry takes, by the tables of the public cuBLAS documentation: one row a type that the shim
// tells apart. The first that an entry takes is its plain one.
#pragma once

#include <library_types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

struct EntryType {
  const char* name;
  int a, b, c;         // cudaDataType
  int compute, scale;  // cublasComputeType_t, cudaDataType of alpha and beta
  int32_t transa;      // FP8 products want op(A) = A^T
  const char* takers;  // forms that take it, see form_letter()
};

// e: GemmEx, GemmBatchedEx, GemmStridedBatchedEx; g: GemmGroupedBatchedEx; x: SgemmEx; s, d, h: by name; l:
// cublasLtMatmul
constexpr EntryType kEntryTypes[] = {
    {"bf16", CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, 68, CUDA_R_32F, 0, "egxl"},
    {"bf16_f32", CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, 68, CUDA_R_32F, 0, "exl"},
    {"f16", CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, 68, CUDA_R_32F, 0, "egxl"},
    {"f16_f32", CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, 68, CUDA_R_32F, 0, "exl"},
    {"f16_16f", CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, 64, CUDA_R_16F, 0, "ehl"},
    {"f32", CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, 68, CUDA_R_32F, 0, "egxsl"},
    {"f32_tf32", CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, 77, CUDA_R_32F, 0, "egl"},
    {"f32_fast_bf16", CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, 75, CUDA_R_32F, 0, "el"},
    {"f32_fast_f16", CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, 74, CUDA_R_32F, 0, "el"},
    {"f64", CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, 70, CUDA_R_64F, 0, "egdl"},
    {"i8_i32", CUDA_R_8I, CUDA_R_8I, CUDA_R_32I, 72, CUDA_R_32I, 0, "el"},
    {"e4m3_bf16", CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_16BF, 68, CUDA_R_32F, 1, "l"},
    {"e4m3_f32", CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUDA_R_32F, 68, CUDA_R_32F, 1, "l"},
    {"e5m2_e4m3_f16", CUDA_R_8F_E5M2, CUDA_R_8F_E4M3, CUDA_R_16F, 68, CUDA_R_32F, 1, "l"},
};

// Which of the lists above an entry's types are in.
[[maybe_unused]] char form_letter(const std::string& symbol) {
  const auto begins = [&symbol](const char* with) { return symbol.rfind(with, 0) == 0; };
  if (begins("cublasLt")) return 'l';
  if (begins("cublasGemmGrouped")) return 'g';
  if (begins("cublasGemm")) return 'e';
  if (begins("cublasSgemmEx")) return 'x';
  return begins("cublasS") ? 's' : begins("cublasD") ? 'd' : 'h';
}

[[maybe_unused]] std::vector<const EntryType*> entry_types(const std::string& symbol) {
  std::vector<const EntryType*> taken;
  for (const EntryType& type : kEntryTypes) {
    if (std::string(type.takers).find(form_letter(symbol)) != std::string::npos) taken.push_back(&type);
  }
  return taken;
}

// The entry's type of that name, or its first where the name is empty; null: it takes none of that name.
[[maybe_unused]] const EntryType* entry_type(const std::string& symbol, const std::string& name) {
  for (const EntryType* type : entry_types(symbol)) {
    if (name.empty() || name == type->name) return type;
  }
  return nullptr;
}

}  // namespace

// SPDX-License-Identifier: MIT
// Products as commands name them: a type ("bf16" is BF16 operands added up in FP32) and a shape.
#pragma once

#include <string>

#include "kernels/plan.h"

namespace sdcguard {

struct ProductType {
  const char* name;
  DataType operands;
  Accumulator accumulator;
  OperandRounding rounding;
  DataType delivered;  // what a caller gets, as a rule
};

inline constexpr ProductType kProductTypes[] = {
    {"bf16", DataType::kBF16, Accumulator::kF32, OperandRounding::kNone, DataType::kBF16},
    {"fp16", DataType::kF16, Accumulator::kF32, OperandRounding::kNone, DataType::kF16},
    {"tf32", DataType::kF32, Accumulator::kF32, OperandRounding::kTf32, DataType::kF32},
    {"fp32", DataType::kF32, Accumulator::kF32, OperandRounding::kNone, DataType::kF32},
    {"fp64", DataType::kF64, Accumulator::kF64, OperandRounding::kNone, DataType::kF64},
    {"e4m3", DataType::kE4M3, Accumulator::kF32, OperandRounding::kNone, DataType::kBF16},
    {"int8", DataType::kI8, Accumulator::kI32, OperandRounding::kNone, DataType::kI32},
};
inline constexpr const char* kProductTypeNames = "bf16, fp16, tf32, fp32, fp64, e4m3 or int8";

// A product of dense matrices: P = A B, A n1 x n2 by rows (tokens), B n2 x n3 by columns (a weight of n3 outputs), P
// n1 x n3 by rows, in the accumulator's type.
struct ProductShape {
  int64_t n1, n2, n3;
};

// Null where there is none of that name.
inline const ProductType* product_type_named(const std::string& name) {
  for (const ProductType& type : kProductTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

// "MxNxK" in the letters of cuBLAS, each from 1 to 2^20. False: it is not.
bool parse_shape(const std::string& text, ProductShape* shape);

}  // namespace sdcguard

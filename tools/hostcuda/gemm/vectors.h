// SPDX-License-Identifier: MIT
// Files of inner products that real tensor cores returned: GPU_FORMAT.u32, read and held against a step model.
//
// Record, little-endian 32-bit words, all FP32 bit patterns:  K of a | K of b | c | d    with d = c + sum a_k b_k as
// the GPU gave it. K follows from the file's name: V100 4; A100, L40S 8; H100, H200, B200 16; TF32 4 and FP8 (E4M3,
// E5M2) 32 everywhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "order.h"

namespace hostcuda::gemm {

struct VectorFile {
  std::string gpu;
  Format format;
  int64_t products;  // K
  std::vector<uint32_t> words;
  int64_t records() const { return static_cast<int64_t>(words.size()) / (2 * products + 2); }
};

// False: *error says what is wrong with the name, the format or the contents.
bool read_vectors(const std::string& path, VectorFile* file, std::string* error);

// The step model that an order uses for a format. False: the order has no step model (rounded16, sequential, split) or
// lacks the format; *error says so.
bool step_model_for(const Order& order, Format format, StepModel* model, std::string* error);

// Records whose d equals the chain of steps, bit for bit; the first that does not goes to *first_mismatch (-1: none).
int64_t count_matches(const StepModel& model, const VectorFile& file, int64_t* first_mismatch);

}  // namespace hostcuda::gemm

// SPDX-License-Identifier: MIT
// Clean residuals: takes products that the device computes, gives what every cell of their check came out at.
//
//   operands -> product by the library -> fold, operand, product kernels (the shim's own) -> |r| / (sigma s) a cell
//
// The check is that of a call into FP32 or FP64 scratch under the line plan, without a history of noise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/measure/device.h"
#include "tools/measure/operands.h"

namespace sdcguard {

struct ProbedProduct {
  std::vector<float> ratios;  // |r| / (sigma s) of each cell that is not exact; of a noisier line over its own scale
  uint64_t lines = 0;
  uint64_t lines_dirty = 0;    // over the look threshold
  uint64_t entries_named = 0;  // after their recomputation: wrong on the device
  float worst = 0;             // the verdict's
  float look_threshold = 0;    // T
  float sigma = 0;             // as used, in units of the verifier's roundoff
};

class ResidualSource {
 public:
  // Throws DeviceError where the plan or the library takes no such product, saying which and why.
  ResidualSource(Device& device, const ProductType& type, const ProductShape& shape);

  // Cells of one check: its tests.
  uint64_t cells() const { return static_cast<uint64_t>(plan_.params.lines) * plan_.params.classes * kDraws; }
  const ProbePlan& plan() const { return plan_; }

  // A product of such data; probe() then checks it as often as it is called, each time with other sign draws.
  void compute(DataKind kind, uint64_t seed);
  void probe(uint64_t seed, ProbedProduct* out);

 private:
  template <typename T>
  void ratios_of(const Verdict& verdict, std::vector<float>* ratios) const;

  Device& device_;
  const ProductType& type_;
  const ProductShape shape_;
  ProbePlan plan_;
  std::unique_ptr<DeviceMemory> a_, b_, p_, scratch_, cells_;
};

}  // namespace sdcguard

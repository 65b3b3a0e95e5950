// SPDX-License-Identifier: MIT
// Products under the check: takes operands of a kind, lets the library compute them on the device and the shim's own
// kernels check the result, gives the verdict and what every cell of the check came out at.
//
//   operands -> product by the library -> fold, operand, product, recompute, repair kernels -> verdict, |r| / (sigma s)
//
// The check is that of a call into scratch of the accumulator's type in mode detect, without a history of noise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/measure/device.h"
#include "tools/measure/operands.h"

namespace sdcguard {

struct ProbedProduct {
  std::vector<float> ratios;  // line plan: |r| / (sigma s) of each cell that is not exact; of a noisier line over its
                              // own scale
  std::vector<uint32_t> lines_dirty;  // over the look threshold, or recomputed outright
  uint64_t entries_named = 0;         // wrong after their recomputation on the device
  float worst = 0;                    // the verdict's
};

class ProductProbe {
 public:
  // Throws DeviceError where the plan takes no such product, or memory for it is refused.
  ProductProbe(Device& device, const ProductType& type, const ProductShape& shape);

  const ProductType& type() const { return type_; }
  const ProductShape& shape() const { return shape_; }
  std::string name() const;  // "bf16 4096x4096x4096": m, n and k in cuBLAS's letters
  const ProbeParams& params() const { return plan_.params; }
  const Operands& operands() const { return operands_; }
  // Cells of one check: its tests. 0 where it is not the line plan.
  uint64_t cells() const;

  // A product of such data, waited for. False: the library does not support it on this device.
  bool compute(DataKind kind, uint64_t seed);
  // The same product again.
  bool compute_again();
  // P as the device has it: row by row, dense, in the accumulator's type.
  void read(std::vector<unsigned char>* product) const;

  // Checks P; each seed gives sign draws of its own. Throws DeviceError where the verdict and the cells that it rests
  // on do not agree.
  void probe(uint64_t seed, ProbedProduct* out);

 private:
  template <typename T>
  void ratios_of(const Verdict& verdict, std::vector<float>* ratios) const;

  Device& device_;
  const ProductType& type_;
  const ProductShape shape_;
  ProbePlan plan_;
  Operands operands_;
  std::unique_ptr<DeviceMemory> a_, b_, p_, scratch_, cells_;
};

}  // namespace sdcguard

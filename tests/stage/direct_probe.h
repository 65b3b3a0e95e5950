// SPDX-License-Identifier: MIT
// The probe of an upgraded FP32 product, straight: what fold, operand and product kernels leave of finite operands, bit
// for bit, computed by loops over whole vectors of lanes instead of CUDA threads. Tens of times faster than the kernels
// on the host device, for runs over hundreds of millions of lines (bench/clean_campaign.cpp). direct_probe_test.cpp
// holds it against the kernels.
//
// It follows the kernels' own order of additions, so it says nothing about their being right: reference.h does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/params.h"

namespace sdcguard::stage {

// Host memory of the caller, row-major and dense: a n1 x n2, b n2 x n3, p n1 x n3. Finite, and inside the range in
// which no class sum overflows.
struct DirectCall {
  const ProbeParams* params;  // of make_plan(), with the seed: Plan::kLine, upgraded, FP32 arithmetic, one batch entry
  const float* a;
  const float* b;
  const float* p;
};

struct DirectResult {
  std::vector<float> residuals;    // [line][class][draw], as ProbeParams::cells has them
  std::vector<float> scales;       // [line][class]: s
  std::vector<float> cell_scales;  // [line][class][draw]: what |r| is divided by, s and the verifier's own rounding
  std::vector<float> line_peak;    // largest |r| / s of each line; Inf: its sum is wrong
  std::vector<float> line_median;  // of the line's |r| / s; 0: too few
  std::vector<float> line_limit;   // what line_peak may be
  std::vector<float> ratios;       // |r| / s of each cell that entered the statistic, line by line
  std::vector<size_t> ratios_to;   // end of each line's
  float sigma = 0;                 // as used, without a history
  float sigma_measured = 0;        // before the cap
  float worst = 0;                 // largest line_peak over line_limit, times the look threshold
  std::vector<uint32_t> dirty;     // lines over the look threshold, ascending
};

// Memory that a run of calls uses again.
class DirectProbe {
 public:
  void run(const DirectCall& call, DirectResult* result);

 private:
  void fold(const DirectCall& call);
  void operand(const DirectCall& call);
  void product(const DirectCall& call, DirectResult* result);

  std::vector<uint32_t> signs_;  // [draw][word]
  std::vector<float> sums_;      // [k][vector]
  std::vector<float> mean_, rms_;
  std::vector<double> tile_energy_;  // [tile][class]
  std::vector<float> staged_;        // [column][lane]: a tile of B
  std::vector<float> rows_;          // [k][row]: 32 rows of A
  std::vector<int64_t> last_k_;      // [step]: the largest addend of the row at hand
  std::vector<float> dots_;          // [line][vector]
  std::vector<double> noise_;        // [line][2]
  std::vector<double> line_sums_;    // [line][2]
};

}  // namespace sdcguard::stage

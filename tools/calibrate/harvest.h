// SPDX-License-Identifier: MIT
// Harvest: takes the call records of guarded processes as they come, gives the noise of their clean calls by key; runs
// in `sdcguard calibrate --ring`.
//
// A record has the largest |r| / (sigma s) of its call and no other, so a limit is set that one call in ten passes: the
// few calls with two cells beyond it count as one, and the share of cells beyond the limit comes out low by a twentieth
// at most.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/calibrate/profile.h"
#include "tools/ring/ring_reader.h"

namespace sdcguard {

struct Harvested {
  ProfileKey key;
  bool simulated = false;
  std::string uuid;  // of the first device
  uint64_t calls = 0, cells = 0, looks = 0;
  double most_cells = 0;  // of one call
  std::set<std::string> shapes;
  std::vector<float> worst;  // of each call
  Exceedances exceedances() const;
};

class Harvest {
 public:
  // Records of one ring. Not taken: calls that are neither clean nor benign, plans other than the line plan, calls as
  // delivered, and those whose record does not tell the arithmetic (FP32: TF32 or not; FP8: promoted or not).
  void add(const RingState& state, const CallRecord& call);

  const std::vector<Harvested>& found() const { return found_; }
  uint64_t left_out() const { return left_out_; }

 private:
  std::vector<Harvested> found_;
  uint64_t left_out_ = 0;
};

}  // namespace sdcguard

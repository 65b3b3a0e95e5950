// SPDX-License-Identifier: MIT
// Noise profile: what clean products of one kind came out at on one model of GPU with one set of libraries, and the
// threshold that this gives. A file holds profiles, each under its key; a profile says nothing of any other key.
//
// The file is TOML, written by `sdcguard calibrate` alone:
//
//   version = 1
//   [[profile]]
//   gpu = "NVIDIA H200"     # key: the driver's name of the device, its multiprocessors (a MIG instance has fewer),
//   multiprocessors = 132   # the driver's and cuBLAS's version numbers, type of the product, order of accumulation
//   driver = 13000          # ("library" where cuBLAS chooses it), line plan
//   ...
//   tail = [{limit = 3.71, above = 6012, xi = 0.056, scale = 0.417, threshold = 21.9, upper = 24.0}, ...]
//
// Values are |r| / (sigma s) of cells, without a unit (kernels/MATH.md "residual"). Host code alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/calibrate/tail.h"

namespace sdcguard {

struct ProfileKey {
  std::string gpu;
  int multiprocessors = 0;
  int driver = 0, cublas = 0;  // cuDriverGetVersion, cublasGetVersion
  std::string type;            // "bf16", ...: of the operands
  std::string order;           // of accumulation: "library" on a GPU
  std::string plan;            // "line"
  friend bool operator==(const ProfileKey&, const ProfileKey&) = default;
};

struct Profile {
  ProfileKey key;
  bool simulated = false;  // measured on the host device
  std::string uuid;        // of the device that it was measured on
  std::string made;        // UTC, ISO 8601
  std::string source;      // "products" computed for it, or "ring": calls of programs that ran
  std::vector<std::string> shapes, kinds;
  uint64_t products = 0, values = 0;  // measured
  uint64_t looks = 0;                 // checks with a line over the look threshold, all of them benign
  double rate = 0, tests = 0;         // stated: false alarms of a product of so many tests
  TailReport tail;
};

// The threshold that the measured tail gives one value in 1 / per_value: the largest of the three fits' estimates.
double threshold_at(const Profile& profile, double per_value);

// One [[profile]] of a file.
std::string profile_text(const Profile& profile);

// All profiles of a file. False, with one line in `error` (path, what, where): not there, not TOML, a key that is
// missing, unknown or out of its range, another version.
bool read_profiles(const std::string& path, std::vector<Profile>* profiles, std::string* error);

// Puts the profile into the file in the place of the one with its key; the others stay. The file is replaced as a whole
// or not at all. False, with one line in `error`: what is there is no file of profiles (it is left as it is), or it
// cannot be written.
bool write_profile(const std::string& path, const Profile& profile, std::string* error);

}  // namespace sdcguard

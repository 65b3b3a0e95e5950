// SPDX-License-Identifier: MIT
// Limits of the devices that hostcuda stands for (CUDA C++ programming guide, technical specifications per compute
// capability); what launches are checked against and what device attributes report.
#pragma once

namespace hostcuda {

inline constexpr unsigned kMaxGridY = 65535;  // and z
inline constexpr unsigned kMaxBlockZ = 64;
inline constexpr unsigned kRegistersPerBlock = 65536;
inline constexpr int kMultiprocessors = 16;  // few: persistent grids pay for every thread on a CPU
inline constexpr int kThreadsPerMultiprocessor = 2048;

// Largest shared memory of a block with opt-in, by compute capability times ten.
constexpr int shared_opt_in_bytes(int capability) {
  switch (capability) {
    case 70:
      return 96 * 1024;
    case 80:
      return 163 * 1024;
    case 89:
      return 99 * 1024;
    default:
      return 227 * 1024;
  }
}

}  // namespace hostcuda

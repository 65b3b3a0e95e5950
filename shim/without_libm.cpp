// SPDX-License-Identifier: MIT
// The three functions of libm that the configuration's number parsing (std::from_chars, toml++) asks for, for the shim
// alone: libm would be the one library that a preload draws into every child process, a third of what it costs there
// (tests/bench/RESULTS.md, "Start of a child process"). The version script keeps them inside: the
// program's own libm is not touched.
#if defined(__x86_64__)
#include <xmmintrin.h>

#include <cstdint>

namespace {

constexpr unsigned kRounding = 0xc00;  // of the x87 control word and of FE_*; MXCSR has the same bits three higher
constexpr unsigned kToMxcsr = 3;

}  // namespace

extern "C" int fegetround() noexcept {
  return static_cast<int>(_mm_getcsr() >> kToMxcsr & kRounding);
}

// 0: done; 1: no such rounding. As C has it.
extern "C" int fesetround(int rounding) noexcept {
  const auto wanted = static_cast<unsigned>(rounding);
  if ((wanted & ~kRounding) != 0) return 1;
  uint16_t control;
  __asm__ volatile("fnstcw %0" : "=m"(control));
  control = static_cast<uint16_t>((control & ~kRounding) | wanted);
  __asm__ volatile("fldcw %0" : : "m"(control));
  _mm_setcsr((_mm_getcsr() & ~(kRounding << kToMxcsr)) | wanted << kToMxcsr);
  return 0;
}

extern "C" double trunc(double x) noexcept {
  constexpr double kWhole = 0x1p52;  // from here on every double is a whole number
  if (!(x > -kWhole && x < kWhole)) return x;
  const auto whole = static_cast<double>(static_cast<int64_t>(x));
  return whole == 0.0 && x < 0.0 ? -0.0 : whole;
}
#endif

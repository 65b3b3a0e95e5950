// SPDX-License-Identifier: MIT
// The tensor-core step on AVX2, bit-exact: 32 rows of one column at a time.
//
// Method. Products of every tensor-core format are exact in FP32. The largest exponent of a step comes from saturating
// int8 sums of operand exponents (a zero is -128), 32 rows at once. Each product times 2^(23 + g - largest), converted
// to int32 with truncation, is the aligned significand; the int32 sum, converted to FP32 toward zero (MXCSR), is the
// result.
//
// When that holds. Operands are first scaled by powers of two so that most nonzero exponents lie within +-42 (kWindow);
// then products lie within +-84, every accumulator is a multiple of 2^(-84 - 23 - g) and every scale factor is a normal
// number. A zero operand gives -128 + 42 = -86 at most, below every product; taking -84 for the largest exponent of a
// step whose terms are all smaller loses nothing, since its accumulator has no bit below 2^(-84 - 23 - g).
// The scaling is invisible as long as true product exponents lie in [-124, 123 - log2 k]: no FP32 subnormal, no
// overflow, no exponent floor. All else goes to the scalar model: steps with an operand out of the window, sums that
// leave int32 (16 products below 2^27 and c below 2^26 can), and the rest of every chain whose accumulator left the
// window.
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

#include "aligned.h"
#include "fast.h"
#include "pool.h"

#define HOSTCUDA_AVX2 __attribute__((target("avx2,fma")))
#define HOSTCUDA_AVX2_INLINE __attribute__((target("avx2,fma"), always_inline)) inline

namespace hostcuda::gemm {
namespace {

constexpr int kPanel = 32;    // rows of a packed panel
constexpr int kColumns = 64;  // columns whose accumulators are live at once: 8 KiB
constexpr int kWindow = 42;
constexpr int kMostProducts = 32;
constexpr int kLowestTrue = -124;
constexpr int kHighestTrue = 123;
constexpr int kNoExponent = -128;
constexpr uint32_t kFieldMask = 0x7F800000u;

std::atomic<int64_t> window_steps{0};
std::atomic<int64_t> overflow_steps{0};
std::atomic<int64_t> scalar_chains{0};

// Which exponents of one operand the vector path takes, and the power of two they are shifted by.
struct Window {
  int shift;
  int low, high;  // true exponents
};

struct Packing {
  Window a, b;
  Formats formats;
  int shift() const { return a.shift + b.shift; }
};

// MXCSR for the vector part: round toward zero, denormals are zero. Restored on leaving the scope.
class TowardZero {
 public:
  TowardZero() : saved_(_mm_getcsr()) { _mm_setcsr((saved_ & ~0x6000u) | 0xE040u); }
  ~TowardZero() { _mm_setcsr(saved_); }
  TowardZero(const TowardZero&) = delete;
  TowardZero& operator=(const TowardZero&) = delete;

 private:
  unsigned saved_;
};

// value 2^shift by integer arithmetic on a normal number or zero; false where the result is not normal.
bool shifted(float value, int shift, float* result) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int field = static_cast<int>((bits & kFieldMask) >> 23);
  if ((bits & 0x7FFFFFFF) == 0) {
    *result = value;
    return true;
  }
  if (field == 0 || field == 255 || field + shift <= 0 || field + shift >= 255) return false;
  *result = std::bit_cast<float>((bits & ~kFieldMask) | (static_cast<uint32_t>(field + shift) << 23));
  return true;
}

Window full_window() {
  return {0, -kWindow, kWindow};
}

// The window of 2 kWindow + 1 exponents that holds most nonzero elements; around 0 where that loses none.
Window best_window(const std::vector<int64_t>& histogram) {
  const auto inside = [&](int low, int high) {
    int64_t count = 0;
    for (int e = std::max(low, -126); e <= std::min(high, 127); ++e) count += histogram[static_cast<size_t>(e + 127)];
    return count;
  };
  const int64_t all = inside(-126, 127);
  if (inside(-kWindow, kWindow) == all) return full_window();
  int best_center = 0;
  int64_t best = -1;
  for (int center = -126 + kWindow; center <= 127 - kWindow; ++center) {
    const int64_t count = inside(center - kWindow, center + kWindow);
    // Prefer room on both sides: of equal counts the later center wins until the middle of the plateau is unknown,
    // so the smallest |center| is taken.
    if (count > best || (count == best && std::abs(center) < std::abs(best_center))) {
      best = count;
      best_center = center;
    }
  }
  Window window{-best_center, best_center - kWindow, best_center + kWindow};
  const auto occupied = [&](int e) { return histogram[static_cast<size_t>(e + 127)] != 0; };
  while (window.low < window.high && !occupied(window.low)) ++window.low;
  while (window.high > window.low && !occupied(window.high)) --window.high;
  return window;
}

// Exponents of the normal finite elements (BF16 or FP32); field 0 holds zeros and subnormals and is not counted.
template <typename Element>
std::vector<int64_t> histogram_of(const View& x, int64_t rows, int64_t cols) {
  constexpr int kFieldShift = 8 * sizeof(Element) - 9;
  std::vector<int64_t> histogram(256, 0);
  const auto* data = static_cast<const Element*>(x.data);
  const bool along_rows = x.row_stride == 1;
  const int64_t inner = along_rows ? rows : cols;
  const int64_t outer = along_rows ? cols : rows;
  const int64_t outer_stride = along_rows ? x.col_stride : x.row_stride;
  const int64_t inner_stride = along_rows ? x.row_stride : x.col_stride;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      ++histogram[(data[o * outer_stride + i * inner_stride] >> kFieldShift) & 0xFF];
    }
  }
  histogram[0] = 0;
  histogram[255] = 0;
  return histogram;
}

Packing choose_packing(const Formats& formats, const View& a, const View& b, const Extent& extent) {
  Packing packing{full_window(), full_window(), formats};
  // Exponents of FP16 and FP8 lie within -14 (subnormals included) .. 15: always inside, with no shift.
  if (formats.a != Format::kBf16 && formats.a != Format::kTf32) return packing;
  const bool wide = a.type == Type::kFp32;
  packing.a =
      best_window(wide ? histogram_of<uint32_t>(a, extent.m, extent.k) : histogram_of<uint16_t>(a, extent.m, extent.k));
  packing.b =
      best_window(wide ? histogram_of<uint32_t>(b, extent.k, extent.n) : histogram_of<uint16_t>(b, extent.k, extent.n));
  const int high = kHighestTrue - static_cast<int>(std::bit_width(static_cast<uint64_t>(extent.k)));
  if (packing.shift() == 0) return packing;  // +-84 is inside the true range for every k below 2^39
  const int missing = kLowestTrue - (packing.a.low + packing.b.low);
  if (missing > 0) packing.a.low += missing;
  const int excess = packing.a.high + packing.b.high - high;
  if (excess > 0) packing.a.high -= excess;
  return packing;
}

// What a packed element is read from: 16 bits of its format, or FP32 bits of a value exact in it.
template <Format kFormat>
using Stored = std::conditional_t<kFormat == Format::kBf16 || kFormat == Format::kFp16, uint16_t, uint32_t>;

// One element for the vector path: its scaled value and exponent. False: not for the vector path (value 0 then).
template <Format kFormat>
inline bool pack_element(Stored<kFormat> bits, const Window& window, float* value, int8_t* exponent) {
  *value = 0.0f;
  *exponent = kNoExponent;
  if (static_cast<Stored<kFormat>>(bits << 1) == 0) return true;
  if constexpr (kFormat == Format::kE4m3 || kFormat == Format::kE5m2) {
    const int field = (bits >> 23) & 0xFF;
    if (field == 255) return false;
    *value = std::bit_cast<float>(bits);
    *exponent = static_cast<int8_t>(std::max(field - 127, kFormat == Format::kE4m3 ? -6 : -14));
  } else if constexpr (kFormat == Format::kFp16) {
    const int field = (bits >> 10) & 0x1F;
    if (field == 31) return false;
    *value = half_to_float(bits);
    *exponent = static_cast<int8_t>(std::max(field, 1) - 15);
  } else {
    const uint32_t wide = kFormat == Format::kBf16 ? static_cast<uint32_t>(bits) << 16 : bits;
    const int field = (wide >> 23) & 0xFF;
    const int true_exponent = field - 127;
    if (field == 0 || field == 255 || true_exponent < window.low || true_exponent > window.high) return false;
    *exponent = static_cast<int8_t>(true_exponent + window.shift);
    *value = std::bit_cast<float>(wide + (static_cast<uint32_t>(window.shift) << 23));
  }
  return true;
}

// Packed operand: step by step, each step a block of values, of exponents, and of flags (1 = scalar).
//   rows of A     one panel: values [step][N][kPanel], one flag a step
//   columns of B  chunk by chunk: values [chunk][step][kColumns][N], a flag a column and step
// Padding is zeros. Steps are contiguous: strides of a power of two would fall into one set of the cache.
struct Packed {
  AlignedVector<float> values;
  AlignedVector<int8_t> exponents;
  std::vector<uint8_t> scalar;

  void resize(int64_t elements, int64_t flags) {
    values.resize(static_cast<size_t>(elements));
    exponents.resize(static_cast<size_t>(elements));
    scalar.resize(static_cast<size_t>(flags));
  }
};

// Visits lines x k elements of x in the order in which they lie in memory.
template <typename Element, typename Visit>
void visit(const View& x, int64_t first, int64_t lines, int64_t k, const Visit& element) {
  const auto* data = static_cast<const Element*>(x.data) + first * x.row_stride;
  if (x.row_stride == 1) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t r = 0; r < lines; ++r) element(r, l, data[r + l * x.col_stride]);
    }
  } else {
    for (int64_t r = 0; r < lines; ++r) {
      for (int64_t l = 0; l < k; ++l) element(r, l, data[r * x.row_stride + l * x.col_stride]);
    }
  }
}

template <Format kFormat, int N>
void pack_panel(const View& a, const Window& window, int64_t row, int64_t rows, int64_t k, int64_t k_padded,
                Packed* panel) {
  panel->resize(k_padded * kPanel, k_padded / N);
  std::fill(panel->scalar.begin(), panel->scalar.end(), 0);
  if (rows < kPanel) {
    std::fill(panel->values.begin(), panel->values.end(), 0.0f);
    std::fill(panel->exponents.begin(), panel->exponents.end(), kNoExponent);
  } else {
    std::fill(panel->values.begin() + k * kPanel, panel->values.end(), 0.0f);
    std::fill(panel->exponents.begin() + k * kPanel, panel->exponents.end(), kNoExponent);
  }
  float* values = panel->values.data();
  int8_t* exponents = panel->exponents.data();
  uint8_t* scalar = panel->scalar.data();
  visit<Stored<kFormat>>(a, row, rows, k, [&](int64_t r, int64_t l, Stored<kFormat> bits) {
    if (!pack_element<kFormat>(bits, window, values + l * kPanel + r, exponents + l * kPanel + r)) scalar[l / N] = 1;
  });
}

template <Format kFormat, int N>
void pack_chunk(const View& b, const Window& window, int64_t chunk, const Extent& extent, int64_t k_padded,
                Packed* columns) {
  const int64_t steps = k_padded / N;
  const int64_t first = chunk * kColumns;
  const int64_t count = std::min<int64_t>(kColumns, extent.n - first);
  float* values = columns->values.data() + first * k_padded;
  int8_t* exponents = columns->exponents.data() + first * k_padded;
  uint8_t* scalar = columns->scalar.data() + first * steps;
  std::fill(scalar, scalar + kColumns * steps, 0);
  if (count < kColumns || extent.k < k_padded) {
    std::fill(values, values + kColumns * k_padded, 0.0f);
    std::fill(exponents, exponents + kColumns * k_padded, kNoExponent);
  }
  visit<Stored<kFormat>>(b.transposed(), first, count, extent.k, [&](int64_t j, int64_t l, Stored<kFormat> bits) {
    const int64_t flag = l / N * kColumns + j;
    const int64_t to = flag * N + l % N;
    if (!pack_element<kFormat>(bits, window, values + to, exponents + to)) scalar[flag] = 1;
  });
}

// Calls pack.operator()<kFormat>() for the format.
template <typename Pack>
void with_format(Format format, const Pack& pack) {
  switch (format) {
    case Format::kBf16:
      return pack.template operator()<Format::kBf16>();
    case Format::kFp16:
      return pack.template operator()<Format::kFp16>();
    case Format::kTf32:
      return pack.template operator()<Format::kTf32>();
    case Format::kE4m3:
      return pack.template operator()<Format::kE4m3>();
    case Format::kE5m2:
      return pack.template operator()<Format::kE5m2>();
  }
}

constexpr int kVectors = kPanel / 8;

// Aligned significands of products [kFirst, kLast) of the step, added to the int32 sums.
template <int kFirst, int kLast>
HOSTCUDA_AVX2_INLINE void add_products(const float* a, const float* b, const __m256 (&scale)[kVectors],
                                       __m256i (&sum)[kVectors]) {
#pragma GCC unroll 16
  for (int l = kFirst; l < kLast; ++l) {
    const __m256 column = _mm256_broadcast_ss(b + l);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m256 product = _mm256_mul_ps(_mm256_load_ps(a + l * kPanel + 8 * v), column);
      sum[v] = _mm256_add_epi32(sum[v], _mm256_cvttps_epi32(_mm256_mul_ps(product, scale[v])));
    }
  }
}

// Largest product exponents of a step, kPanel rows of one column.
template <int N>
HOSTCUDA_AVX2_INLINE void largest_exponents(const int8_t* ea, const int8_t* eb, int8_t* largest) {
  __m256i even = _mm256_set1_epi8(kNoExponent);
  __m256i odd = even;
#pragma GCC unroll 16
  for (int l = 0; l < N; l += 2) {
    const auto* rows = reinterpret_cast<const __m256i*>(ea + l * kPanel);
    even = _mm256_max_epi8(even, _mm256_adds_epi8(_mm256_load_si256(rows), _mm256_set1_epi8(eb[l])));
    odd = _mm256_max_epi8(odd, _mm256_adds_epi8(_mm256_load_si256(rows + 1), _mm256_set1_epi8(eb[l + 1])));
  }
  _mm256_store_si256(reinterpret_cast<__m256i*>(largest), _mm256_max_epi8(even, odd));
}

// One step of N products for kPanel rows of one column. False: an int32 sum overflowed and c was left alone.
template <int N, int G>
HOSTCUDA_AVX2_INLINE bool vector_step(const float* a, const float* b, const int8_t* exponents, float* c) {
  const __m256i field_mask = _mm256_set1_epi32(static_cast<int>(kFieldMask));
  const __m256i lowest = _mm256_set1_epi32((127 - 2 * kWindow) << 23);
  __m256 scale[kVectors];
  __m256i sum[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const __m256 accumulator = _mm256_load_ps(c + 8 * v);
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(exponents + 8 * v)));
    __m256i field = _mm256_slli_epi32(_mm256_add_epi32(wide, _mm256_set1_epi32(127)), 23);
    field = _mm256_max_epi32(field, _mm256_and_si256(_mm256_castps_si256(accumulator), field_mask));
    field = _mm256_max_epi32(field, lowest);
    // 2^(23 + G - largest) as a float: field 127 + 23 + G - (field - 127).
    scale[v] = _mm256_castsi256_ps(
        _mm256_sub_epi32(_mm256_set1_epi32(static_cast<int>(static_cast<uint32_t>(277 + G) << 23)), field));
    sum[v] = _mm256_cvttps_epi32(_mm256_mul_ps(accumulator, scale[v]));
  }
  constexpr int64_t kLargestSum = (int64_t{N} << (25 + G)) + (int64_t{1} << (24 + G));
  if constexpr (kLargestSum < int64_t{1} << 31) {
    add_products<0, N>(a, b, scale, sum);
  } else {
    add_products<0, N / 2>(a, b, scale, sum);
    __m256i first[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      first[v] = sum[v];
      sum[v] = _mm256_setzero_si256();
    }
    add_products<N / 2, N>(a, b, scale, sum);
    __m256i overflow = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m256i total = _mm256_add_epi32(first[v], sum[v]);
      overflow = _mm256_or_si256(overflow,
                                 _mm256_and_si256(_mm256_xor_si256(total, first[v]), _mm256_xor_si256(total, sum[v])));
      sum[v] = total;
    }
    if (__builtin_expect(_mm256_movemask_ps(_mm256_castsi256_ps(overflow)), 0)) return false;
  }
  // 2^(largest - 23 - G) is 1 / scale: its field is 254 - field of scale.
  const __m256i reciprocal = _mm256_set1_epi32(254 << 23);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const __m256 back = _mm256_castsi256_ps(_mm256_sub_epi32(reciprocal, _mm256_castps_si256(scale[v])));
    __m256 total = _mm256_cvtepi32_ps(sum[v]);
    if constexpr (G < 0) {  // the accumulator ends where the alignment does
      total = _mm256_and_ps(total, _mm256_castsi256_ps(_mm256_set1_epi32(-(1 << -G))));
    }
    _mm256_store_ps(c + 8 * v, _mm256_mul_ps(total, back));
  }
  return true;
}

// A chain that the scalar model finished: its final value in place of the vector path's.
struct Finished {
  int64_t row, column;
  float value;
};

class PanelProduct {
 public:
  PanelProduct(const StepModel& model, const View& a, const View& b, const Extent& extent, const Packing& packing,
               const Packed& columns, int64_t k_padded)
      : model_(model), a_(a), b_(b), extent_(extent), packing_(packing), columns_(columns), k_padded_(k_padded) {}

  template <int N, int G>
  HOSTCUDA_AVX2 void run(int64_t row, const OutView& out) {
    row_ = row;
    rows_ = std::min<int64_t>(kPanel, extent_.m - row);
    with_format(packing_.formats.a, [&]<Format kFormat>() {
      pack_panel<kFormat, N>(a_, packing_.a, row, rows_, extent_.k, k_padded_, &panel_);
    });
    for (int64_t j0 = 0; j0 < extent_.n; j0 += kColumns) {
      const int64_t columns = std::min<int64_t>(kColumns, extent_.n - j0);
      std::fill(std::begin(accumulators_), std::end(accumulators_), 0.0f);
      std::fill(std::begin(is_finished_), std::end(is_finished_), false);
      finished_.clear();
      compute<N, G>(j0, columns);
      write(j0, columns, out);
    }
  }

 private:
  template <int N, int G>
  HOSTCUDA_AVX2 void compute(int64_t j0, int64_t columns) {
    const TowardZero rounding;
    const int64_t steps = k_padded_ / N;
    for (int64_t s = 0; s < steps; ++s) {
      const float* a = panel_.values.data() + s * N * kPanel;
      const int8_t* ea = panel_.exponents.data() + s * N * kPanel;
      const bool panel_scalar = panel_.scalar[static_cast<size_t>(s)] != 0;
      const int64_t flags = (j0 / kColumns * steps + s) * kColumns;
      const float* b = columns_.values.data() + flags * N;
      const int8_t* eb = columns_.exponents.data() + flags * N;
      const uint8_t* scalar = columns_.scalar.data() + flags;
      // All maxima first: they are off the path from one accumulator to the next.
      for (int64_t j = 0; j < columns; ++j) largest_exponents<N>(ea, eb + j * N, exponents_ + j * kPanel);
      for (int64_t j = 0; j < columns; ++j) {
        if (__builtin_expect(panel_scalar || scalar[j] != 0, 0)) {
          scalar_step(j0, j, s * N, N);
          window_steps.fetch_add(rows_, std::memory_order_relaxed);
        } else if (__builtin_expect(
                       !vector_step<N, G>(a, b + j * N, exponents_ + j * kPanel, accumulators_ + j * kPanel), 0)) {
          scalar_step(j0, j, s * N, N);
          overflow_steps.fetch_add(rows_, std::memory_order_relaxed);
        }
      }
    }
  }

  // The step at product l for all rows of one column, from the operands themselves. Integer arithmetic only, so that
  // the rounding mode in force does not matter.
  __attribute__((noinline)) void scalar_step(int64_t j0, int64_t j, int64_t l, int64_t n) {
    const int64_t column = j0 + j;
    const int64_t count = std::min(n, extent_.k - l);
    float x[kMostProducts];
    float y[kMostProducts];
    for (int64_t i = 0; i < count; ++i) y[i] = b_.at(l + i, column);
    for (int64_t r = 0; r < rows_; ++r) {
      float* accumulator = &accumulators_[j * kPanel + r];
      if (is_finished_[j * kPanel + r]) continue;
      for (int64_t i = 0; i < count; ++i) x[i] = a_.at(row_ + r, l + i);
      float c = 0.0f;
      const bool representable = shifted(*accumulator, -packing_.shift(), &c);
      float next = 0.0f;
      const float value = tensor_core_step(model_, packing_.formats, x, y, count, c);
      if (representable && shifted(value, packing_.shift(), &next) && inside(next)) {
        *accumulator = next;
      } else {
        finished_.push_back({row_ + r, column, finish(row_ + r, column, l + count, value)});
        *accumulator = 0.0f;
        is_finished_[j * kPanel + r] = true;
        scalar_chains.fetch_add(1, std::memory_order_relaxed);
      }
    }
  }

  // What the vector path may start a step from: zero, or an exponent of a product's range or a little above it.
  static bool inside(float accumulator) {
    const int field = static_cast<int>((std::bit_cast<uint32_t>(accumulator) & kFieldMask) >> 23);
    return field == 0 || (field >= 127 - 2 * kWindow && field <= 127 + 2 * kWindow + 2);
  }

  float finish(int64_t row, int64_t column, int64_t begin, float c) const {
    float x[kMostProducts];
    float y[kMostProducts];
    for (int64_t l = begin; l < extent_.k; l += model_.products) {
      if (std::isnan(c)) break;
      const int64_t count = std::min<int64_t>(model_.products, extent_.k - l);
      for (int64_t i = 0; i < count; ++i) {
        x[i] = a_.at(row, l + i);
        y[i] = b_.at(l + i, column);
      }
      c = tensor_core_step(model_, packing_.formats, x, y, count, c);
    }
    return c;
  }

  void write(int64_t j0, int64_t columns, const OutView& out) {
    const double unscale = std::ldexp(1.0, -packing_.shift());
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t r = 0; r < rows_; ++r) {
        const float value = accumulators_[j * kPanel + r];
        // Exact: the true value is a multiple of 2^-149 below 2^128.
        out.at(row_ + r, j0 + j) = packing_.shift() == 0 ? value : static_cast<float>(value * unscale);
      }
    }
    for (const Finished& entry : finished_) out.at(entry.row, entry.column) = entry.value;
  }

  const StepModel model_;
  const View a_;
  const View b_;
  const Extent extent_;
  const Packing packing_;
  const Packed& columns_;
  const int64_t k_padded_;
  Packed panel_;
  int64_t row_ = 0;
  int64_t rows_ = 0;
  std::vector<Finished> finished_;
  alignas(64) float accumulators_[kColumns * kPanel];
  alignas(64) int8_t exponents_[kColumns * kPanel];
  bool is_finished_[kColumns * kPanel];
};

template <int N, int G>
void packed_product(const StepModel& model, const View& a, const View& b, const OutView& out, const Extent& extent,
                    const Packing& packing, int threads) {
  constexpr int64_t kPadding = std::max(N, 16);
  const int64_t k_padded = (extent.k + kPadding - 1) / kPadding * kPadding;
  const int64_t chunks = (extent.n + kColumns - 1) / kColumns;
  Packed columns;
  columns.resize(chunks * kColumns * k_padded, chunks * kColumns * k_padded / N);
  for_each_task(chunks, threads, [&](int64_t chunk) {
    with_format(packing.formats.b,
                [&]<Format kFormat>() { pack_chunk<kFormat, N>(b, packing.b, chunk, extent, k_padded, &columns); });
  });
  const int64_t panels = (extent.m + kPanel - 1) / kPanel;
  for_each_task(panels, threads, [&](int64_t panel) {
    PanelProduct product(model, a, b, extent, packing, columns, k_padded);
    product.run<N, G>(panel * kPanel, out);
  });
}

}  // namespace

bool has_vector_paths() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

ScalarSteps scalar_steps() {
  return {window_steps.load(), overflow_steps.load(), scalar_chains.load()};
}

bool has_vector_step(const StepModel& model) {
  return !model.adds_rounded;
}

void tensor_core_product(const StepModel& model, const Formats& formats, const View& a, const View& b,
                         const OutView& out, const Extent& extent, int threads) {
  if (extent.m < kPanel && extent.n > extent.m) {
    // The panel side is padded to 32: give it the longer side. A product's factors commute, so the bits are the same.
    tensor_core_product(model, {formats.b, formats.a}, b.transposed(), a.transposed(), out.transposed(),
                        {extent.n, extent.m, extent.k}, threads);
    return;
  }
  const Packing packing = choose_packing(formats, a, b, extent);
  const auto run = [&]<int N, int G>() { packed_product<N, G>(model, a, b, out, extent, packing, threads); };
  switch (model.products * 100 + model.guard_bits) {
    case 16 * 100 + 2:
      return run.operator()<16, 2>();
    case 8 * 100 + 2:
      return run.operator()<8, 2>();
    case 8 * 100 + 1:
      return run.operator()<8, 1>();
    case 4 * 100 + 1:
      return run.operator()<4, 1>();
    case 4 * 100:
      return run.operator()<4, 0>();
    case 32 * 100 - 10:
      return run.operator()<32, -10>();
    case 16 * 100 - 10:
      return run.operator()<16, -10>();
  }
}

}  // namespace hostcuda::gemm

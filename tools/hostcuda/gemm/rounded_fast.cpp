// SPDX-License-Identifier: MIT
// Rounded blocks of 16 and sequential FMA on AVX2: a 16 x 6 register tile over packed panels, as any CPU GEMM; only the
// order inside a tile is ours. FP32 arithmetic in the default rounding mode, so bits are those of the scalar order.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "aligned.h"
#include "fast.h"
#include "pool.h"

#define HOSTCUDA_AVX2 __attribute__((target("avx2,fma")))
#define HOSTCUDA_AVX2_INLINE __attribute__((target("avx2,fma"), always_inline)) inline

namespace hostcuda::gemm {
namespace {

constexpr int kRows = 16;  // of a register tile: two vectors
constexpr int kColumns = 6;
constexpr int64_t kDepth = 256;  // products a tile takes per visit; a multiple of 16. A panel of that depth: 16 KiB
constexpr int64_t kTaskRows = 12 * kRows;  // with kDepth: 192 KiB of A, in L2
constexpr int64_t kTaskColumns = 32 * kColumns;

// One panel of kWidth lines, [k][kWidth]; lines past the end are zero. Written in order, whatever the layout read.
template <int kWidth, typename Element, typename Value>
HOSTCUDA_AVX2 void pack_panel(const Element* data, const View& x, int64_t first, int64_t lines, int64_t k,
                              Value value_at, float* packed) {
  const int64_t line_stride = x.row_stride;
  const int64_t k_stride = x.col_stride;
  data += first * line_stride;
  if (lines < kWidth) {
    for (int64_t l = 0; l < k; ++l) {
      for (int64_t r = 0; r < kWidth; ++r) {
        packed[l * kWidth + r] = r < lines ? value_at(data[r * line_stride + l * k_stride]) : 0.0f;
      }
    }
  } else if (line_stride == 1) {
    for (int64_t l = 0; l < k; ++l) {
      const Element* from = data + l * k_stride;
      float* to = packed + l * kWidth;
#pragma GCC unroll 16
      for (int r = 0; r < kWidth; ++r) to[r] = value_at(from[r]);
    }
  } else {
    for (int64_t l = 0; l < k; ++l) {
      const Element* from = data + l * k_stride;
      float* to = packed + l * kWidth;
#pragma GCC unroll 16
      for (int r = 0; r < kWidth; ++r) to[r] = value_at(from[r * line_stride]);
    }
  }
}

// 16 consecutive BF16 lines: two vectors a step of k.
HOSTCUDA_AVX2 void pack_bf16_lines(const uint16_t* data, int64_t k_stride, int64_t k, float* packed) {
  for (int64_t l = 0; l < k; ++l) {
    const auto* from = reinterpret_cast<const __m128i*>(data + l * k_stride);
    for (int half = 0; half < 2; ++half) {
      const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(from + half)), 16);
      _mm256_store_si256(reinterpret_cast<__m256i*>(packed + l * 16 + 8 * half), wide);
    }
  }
}

template <int kWidth>
void pack(const View& x, int64_t rows, int64_t k, int64_t panel, float* to) {
  const int64_t first = panel * kWidth;
  const int64_t lines = std::min<int64_t>(kWidth, rows - first);
  float* packed = to + panel * kWidth * k;
  switch (x.type) {
    case Type::kFp32:
      pack_panel<kWidth>(
          static_cast<const float*>(x.data), x, first, lines, k, [](float element) { return element; }, packed);
      break;
    case Type::kFp16:
      pack_panel<kWidth>(
          static_cast<const uint16_t*>(x.data), x, first, lines, k,
          [](uint16_t element) { return half_to_float(element); }, packed);
      break;
    case Type::kBf16:
      if (kWidth == 16 && lines == 16 && x.row_stride == 1) {
        pack_bf16_lines(static_cast<const uint16_t*>(x.data) + first, x.col_stride, k, packed);
      } else {
        pack_panel<kWidth>(
            static_cast<const uint16_t*>(x.data), x, first, lines, k,
            [](uint16_t element) { return std::bit_cast<float>(static_cast<uint32_t>(element) << 16); }, packed);
      }
      break;
    case Type::kE4m3:
      pack_panel<kWidth>(static_cast<const uint8_t*>(x.data), x, first, lines, k, e4m3_to_float, packed);
      break;
    case Type::kE5m2:
      pack_panel<kWidth>(static_cast<const uint8_t*>(x.data), x, first, lines, k, e5m2_to_float, packed);
      break;
    case Type::kFp64:
    case Type::kInt8:
    case Type::kInt32:
      break;  // never here: their sums are no FP32
    case Type::kE2m1:
      break;  // never here: no order of these paths has FP4
  }
}

struct Tile {
  __m256 low[kColumns];
  __m256 high[kColumns];
};

// c: [kColumns][kRows], the live accumulators. a: [count][kRows], b: [count][kColumns]; next_b is fetched for the tile
// after this one.
HOSTCUDA_AVX2_INLINE void rounded_block(const float* a, const float* b, int count, float* c, const float* next_b) {
  Tile sum;
#pragma GCC unroll 6
  for (int line = 0; line < kColumns; ++line) {
    _mm_prefetch(reinterpret_cast<const char*>(next_b + 16 * line), _MM_HINT_T0);
  }
  {
    const __m256 a0 = _mm256_load_ps(a);
    const __m256 a1 = _mm256_load_ps(a + 8);
#pragma GCC unroll 6
    for (int j = 0; j < kColumns; ++j) {
      const __m256 column = _mm256_broadcast_ss(b + j);
      sum.low[j] = _mm256_mul_ps(a0, column);
      sum.high[j] = _mm256_mul_ps(a1, column);
    }
  }
#pragma GCC unroll 16
  for (int l = 1; l < count; ++l) {
    const __m256 a0 = _mm256_load_ps(a + l * kRows);
    const __m256 a1 = _mm256_load_ps(a + l * kRows + 8);
#pragma GCC unroll 6
    for (int j = 0; j < kColumns; ++j) {
      const __m256 column = _mm256_broadcast_ss(b + l * kColumns + j);
      sum.low[j] = _mm256_fmadd_ps(a0, column, sum.low[j]);
      sum.high[j] = _mm256_fmadd_ps(a1, column, sum.high[j]);
    }
  }
#pragma GCC unroll 6
  for (int j = 0; j < kColumns; ++j) {
    _mm256_store_ps(c + j * kRows, _mm256_add_ps(_mm256_load_ps(c + j * kRows), sum.low[j]));
    _mm256_store_ps(c + j * kRows + 8, _mm256_add_ps(_mm256_load_ps(c + j * kRows + 8), sum.high[j]));
  }
}

struct Rounded16 {
  HOSTCUDA_AVX2 static void run(const float* a, const float* b, int64_t count, float* c, const float* next_b) {
    int64_t l = 0;
    for (; l + 16 <= count; l += 16) rounded_block(a + l * kRows, b + l * kColumns, 16, c, next_b + l * kColumns);
    if (l < count) rounded_block(a + l * kRows, b + l * kColumns, static_cast<int>(count - l), c, b);
  }
};

struct Sequential {
  HOSTCUDA_AVX2 static void run(const float* a, const float* b, int64_t count, float* c, const float*) {
    Tile sum;
#pragma GCC unroll 6
    for (int j = 0; j < kColumns; ++j) {
      sum.low[j] = _mm256_load_ps(c + j * kRows);
      sum.high[j] = _mm256_load_ps(c + j * kRows + 8);
    }
#pragma GCC unroll 4
    for (int64_t l = 0; l < count; ++l) {
      const __m256 a0 = _mm256_load_ps(a + l * kRows);
      const __m256 a1 = _mm256_load_ps(a + l * kRows + 8);
#pragma GCC unroll 6
      for (int j = 0; j < kColumns; ++j) {
        const __m256 column = _mm256_broadcast_ss(b + l * kColumns + j);
        sum.low[j] = _mm256_fmadd_ps(a0, column, sum.low[j]);
        sum.high[j] = _mm256_fmadd_ps(a1, column, sum.high[j]);
      }
    }
#pragma GCC unroll 6
    for (int j = 0; j < kColumns; ++j) {
      _mm256_store_ps(c + j * kRows, sum.low[j]);
      _mm256_store_ps(c + j * kRows + 8, sum.high[j]);
    }
  }
};

// One column of a finished tile; NaNs canonical.
HOSTCUDA_AVX2 void write_column(const float* tile, float* to) {
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kCanonicalNan)));
  for (int half = 0; half < 2; ++half) {
    const __m256 value = _mm256_load_ps(tile + 8 * half);
    _mm256_storeu_ps(to + 8 * half, _mm256_blendv_ps(value, nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q)));
  }
}

template <typename Kernel>
void product(const View& a, const View& b, const OutView& out, const Extent& extent, int threads) {
  const int64_t a_panels = (extent.m + kRows - 1) / kRows;
  const int64_t b_panels = (extent.n + kColumns - 1) / kColumns;
  AlignedVector<float> packed_a(static_cast<size_t>(a_panels * kRows * extent.k));
  AlignedVector<float> packed_b(static_cast<size_t>(b_panels * kColumns * extent.k));
  const View b_columns = b.transposed();
  for_each_task(a_panels + b_panels, threads, [&](int64_t panel) {
    if (panel < a_panels) {
      pack<kRows>(a, extent.m, extent.k, panel, packed_a.data());
    } else {
      pack<kColumns>(b_columns, extent.n, extent.k, panel - a_panels, packed_b.data());
    }
  });
  const int64_t row_tasks = (extent.m + kTaskRows - 1) / kTaskRows;
  const int64_t column_tasks = (extent.n + kTaskColumns - 1) / kTaskColumns;
  for_each_task(row_tasks * column_tasks, threads, [&](int64_t task) {
    const int64_t row = task % row_tasks * kTaskRows;
    const int64_t column = task / row_tasks * kTaskColumns;
    const int64_t tiles_down = (std::min(kTaskRows, extent.m - row) + kRows - 1) / kRows;
    const int64_t tiles_across = (std::min(kTaskColumns, extent.n - column) + kColumns - 1) / kColumns;
    // Tile by tile, [kColumns][kRows] each.
    AlignedVector<float> live(static_cast<size_t>(tiles_down * tiles_across * kRows * kColumns), 0.0f);
    float* accumulators = live.data();
    for (int64_t l = 0; l < extent.k; l += kDepth) {
      const int64_t count = std::min(kDepth, extent.k - l);
      for (int64_t down = 0; down < tiles_down; ++down) {
        const float* panel_a = packed_a.data() + ((row / kRows + down) * extent.k + l) * kRows;
        for (int64_t across = 0; across < tiles_across; ++across) {
          const float* panel_b = packed_b.data() + ((column / kColumns + across) * extent.k + l) * kColumns;
          const float* next_b = across + 1 < tiles_across ? panel_b + extent.k * kColumns : panel_b;
          Kernel::run(panel_a, panel_b, count, accumulators + (down * tiles_across + across) * kRows * kColumns,
                      next_b);
        }
      }
    }
    for (int64_t down = 0; down < tiles_down; ++down) {
      for (int64_t across = 0; across < tiles_across; ++across) {
        const float* tile = accumulators + (down * tiles_across + across) * kRows * kColumns;
        const int64_t i0 = row + down * kRows;
        const int64_t j0 = column + across * kColumns;
        const int64_t rows = std::min<int64_t>(kRows, extent.m - i0);
        const int64_t columns = std::min<int64_t>(kColumns, extent.n - j0);
        if (rows == kRows && out.row_stride == 1) {
          for (int64_t j = 0; j < columns; ++j) write_column(tile + j * kRows, &out.at(i0, j0 + j));
          continue;
        }
        for (int64_t j = 0; j < columns; ++j) {
          for (int64_t i = 0; i < rows; ++i) {
            const float value = tile[j * kRows + i];
            out.at(i0 + i, j0 + j) = std::isnan(value) ? std::bit_cast<float>(kCanonicalNan) : value;
          }
        }
      }
    }
  });
}

// The 16-row side is padded: give it the longer side. Factors commute, so the bits are the same.
template <typename Kernel>
void oriented_product(const View& a, const View& b, const OutView& out, const Extent& extent, int threads) {
  if (extent.m < kRows && extent.n > extent.m) {
    product<Kernel>(b.transposed(), a.transposed(), out.transposed(), {extent.n, extent.m, extent.k}, threads);
  } else {
    product<Kernel>(a, b, out, extent, threads);
  }
}

}  // namespace

void rounded16_product(const View& a, const View& b, const OutView& out, const Extent& extent, int threads) {
  oriented_product<Rounded16>(a, b, out, extent, threads);
}

void sequential_product(const View& a, const View& b, const OutView& out, const Extent& extent, int threads) {
  oriented_product<Sequential>(a, b, out, extent, threads);
}

}  // namespace hostcuda::gemm

// SPDX-License-Identifier: MIT
// FP64 and INT8 products: plain sums down the columns, FP64 as sequential FMA, INT8 modulo 2^32. On AVX2 the same
// arithmetic runs several rows at a time; both are bit-equal to replay_entry64 and replay_entry_int of order.h.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "aligned.h"
#include "fast.h"
#include "pool.h"

namespace hostcuda::gemm {
namespace {

constexpr int64_t kLanes = 16;       // rows are padded to these
constexpr int64_t kTaskColumns = 8;  // columns of one task

// sums[i] of one column: a is [k][rows], b holds its k factors.
void add_column(const double* a, const double* b, int64_t rows, int64_t k, double* sums) {
  for (int64_t l = 0; l < k; ++l) {
    for (int64_t i = 0; i < rows; ++i) sums[i] = std::fma(a[l * rows + i], b[l], sums[i]);
  }
}

void add_column(const int32_t* a, const int32_t* b, int64_t rows, int64_t k, int32_t* sums) {
  for (int64_t l = 0; l < k; ++l) {
    for (int64_t i = 0; i < rows; ++i) {
      sums[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) + static_cast<uint32_t>(a[l * rows + i] * b[l]));
    }
  }
}

__attribute__((target("avx2,fma"))) void add_column_avx2(const double* a, const double* b, int64_t rows, int64_t k,
                                                         double* sums) {
  for (int64_t i = 0; i < rows; i += kLanes) {
    __m256d sum[4] = {};
    for (int64_t l = 0; l < k; ++l) {
      const __m256d factor = _mm256_broadcast_sd(b + l);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sum[v] = _mm256_fmadd_pd(_mm256_load_pd(a + l * rows + i + 4 * v), factor, sum[v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) _mm256_store_pd(sums + i + 4 * v, sum[v]);
  }
}

__attribute__((target("avx2,fma"))) void add_column_avx2(const int32_t* a, const int32_t* b, int64_t rows, int64_t k,
                                                         int32_t* sums) {
  for (int64_t i = 0; i < rows; i += kLanes) {
    __m256i low = _mm256_setzero_si256();
    __m256i high = low;
    for (int64_t l = 0; l < k; ++l) {
      const __m256i factor = _mm256_set1_epi32(b[l]);
      const auto* from = reinterpret_cast<const __m256i*>(a + l * rows + i);
      low = _mm256_add_epi32(low, _mm256_mullo_epi32(_mm256_load_si256(from), factor));
      high = _mm256_add_epi32(high, _mm256_mullo_epi32(_mm256_load_si256(from + 1), factor));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(sums + i), low);
    _mm256_store_si256(reinterpret_cast<__m256i*>(sums + i + 8), high);
  }
}

double value_at(const View& x, int64_t r, int64_t c, double) {
  return static_cast<const double*>(x.data)[r * x.row_stride + c * x.col_stride];
}
int32_t value_at(const View& x, int64_t r, int64_t c, int32_t) {
  return static_cast<const int8_t*>(x.data)[r * x.row_stride + c * x.col_stride];
}

double finished(double sum) {
  return std::isnan(sum) ? std::bit_cast<double>(kCanonicalNan64) : sum;
}
int32_t finished(int32_t sum) {
  return sum;
}

template <typename Sum>
void column_sums(const View& a, const View& b, const SumView<Sum>& out, const Extent& extent, int threads) {
  const int64_t rows = (extent.m + kLanes - 1) / kLanes * kLanes;
  AlignedVector<Sum> packed(static_cast<size_t>(rows * extent.k), Sum{0});
  for (int64_t l = 0; l < extent.k; ++l) {
    for (int64_t i = 0; i < extent.m; ++i) packed[static_cast<size_t>(l * rows + i)] = value_at(a, i, l, Sum{});
  }
  const bool vector = has_vector_paths();
  for_each_task((extent.n + kTaskColumns - 1) / kTaskColumns, threads, [&](int64_t task) {
    AlignedVector<Sum> sums(static_cast<size_t>(rows));
    std::vector<Sum> factors(static_cast<size_t>(extent.k));
    const int64_t last = std::min(extent.n, (task + 1) * kTaskColumns);
    for (int64_t j = task * kTaskColumns; j < last; ++j) {
      for (int64_t l = 0; l < extent.k; ++l) factors[static_cast<size_t>(l)] = value_at(b, l, j, Sum{});
      if (vector) {
        add_column_avx2(packed.data(), factors.data(), rows, extent.k, sums.data());
      } else {
        std::fill(sums.begin(), sums.end(), Sum{0});
        add_column(packed.data(), factors.data(), rows, extent.k, sums.data());
      }
      for (int64_t i = 0; i < extent.m; ++i) out.at(i, j) = finished(sums[static_cast<size_t>(i)]);
    }
  });
}

}  // namespace

void fp64_product(const View& a, const View& b, const SumView<double>& out, const Extent& extent, int threads) {
  column_sums(a, b, out, extent, threads);
}

void int8_product(const View& a, const View& b, const SumView<int32_t>& out, const Extent& extent, int threads) {
  column_sums(a, b, out, extent, threads);
}

}  // namespace hostcuda::gemm

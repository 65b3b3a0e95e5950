// SPDX-License-Identifier: MIT
// CUDA's execution model in one source for two compilers: nvcc (device code) and g++ (one fiber per CUDA thread on
// hostcuda). Kernels use nothing of CUDA but what is declared here; results are the same bits on both sides.
//
// Contract (both sides; on the host every rule is enforced and a broken one ends the process with a message):
// - Grids and blocks have one dimension, a block at most 1024 threads.
// - Global memory is named by device address (uint64_t) and element index; every access is aligned to its size.
// - Collectives take all 32 lanes of the warp, in converged code, at one source line; a block that uses them has a
//   multiple of 32 threads. Sums run in butterfly order: lane distance 16, 8, 4, 2, 1.
// - sync_threads() is reached by every thread of the block, at one source line. A thread that returned early counts
//   as missing: return only where the whole block returns, or after the last barrier.
// - Collectives other than sync_warp() order no memory. Atomics are relaxed. The hand-over between blocks is
//     writes; sync_threads(); one thread: fence_device(), atomic, fence_device(); sync_threads(); reads
//   with both fences by the thread that does the atomic.
// - Shared memory holds garbage (0xFF on the host) until written.
// - No float atomics, no library functions whose bits differ (exp2f, log2f, __expf); sqrtf, fabsf and division are
//   rounded correctly on both sides. Builds: nvcc -fmad=false; g++ -ffp-contract=off.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define SDCGUARD_DEVICE __device__ __forceinline__
#define SDCGUARD_CALLED __device__ __noinline__ inline
#define SDCGUARD_BOTH __host__ __device__ __forceinline__
#define SDCGUARD_UNROLL _Pragma("unroll")
#define SDCGUARD_NO_UNROLL _Pragma("unroll 1")
#else
#include "simt_host.h"
#define SDCGUARD_DEVICE inline
#define SDCGUARD_CALLED inline
#define SDCGUARD_BOTH inline
#define SDCGUARD_UNROLL _Pragma("GCC unroll 16")
#define SDCGUARD_NO_UNROLL _Pragma("GCC unroll 1")
#endif

namespace sdcguard {

// Sixteen bytes as four floats or as raw words; both are one vector access.
struct alignas(16) Float4 {
  float x, y, z, w;
};
struct alignas(16) Raw16 {
  uint32_t word[4];
};

// --- Numbers: portable code, the same bits everywhere, usable on the host outside kernels too ---

SDCGUARD_BOTH uint32_t bits_of(float v) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(v);
#else
  uint32_t u;
  __builtin_memcpy(&u, &v, sizeof u);
  return u;
#endif
}

SDCGUARD_BOTH float float_of(uint32_t u) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(u);
#else
  float v;
  __builtin_memcpy(&v, &u, sizeof v);
  return v;
#endif
}

SDCGUARD_BOTH uint64_t bits_of(double v) {
#ifdef __CUDA_ARCH__
  return static_cast<uint64_t>(__double_as_longlong(v));
#else
  uint64_t u;
  __builtin_memcpy(&u, &v, sizeof u);
  return u;
#endif
}

SDCGUARD_BOTH double double_of(uint64_t u) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double(static_cast<long long>(u));
#else
  double v;
  __builtin_memcpy(&v, &u, sizeof v);
  return v;
#endif
}

SDCGUARD_BOTH bool is_finite(float v) {
  return (bits_of(v) & 0x7F800000u) != 0x7F800000u;
}
SDCGUARD_BOTH bool is_finite(double v) {
  return (bits_of(v) & 0x7FF0000000000000ull) != 0x7FF0000000000000ull;
}
SDCGUARD_BOTH bool is_nan(float v) {
  return (bits_of(v) & 0x7FFFFFFFu) > 0x7F800000u;
}

SDCGUARD_BOTH float abs_of(float v) {
  return float_of(bits_of(v) & 0x7FFFFFFFu);
}
SDCGUARD_BOTH double abs_of(double v) {
  return double_of(bits_of(v) & 0x7FFFFFFFFFFFFFFFull);
}

SDCGUARD_BOTH float fma(float a, float b, float c) {
  return ::fmaf(a, b, c);
}
SDCGUARD_BOTH double fma(double a, double b, double c) {
  return ::fma(a, b, c);
}

// The larger number; a NaN loses to a number, +0 wins over -0. Symmetric in its arguments but for two NaNs.
SDCGUARD_BOTH float max_of(float a, float b) {
  if (a == b) return float_of(bits_of(a) & bits_of(b));  // only zeros can be equal with different bits
  if (is_nan(a)) return b;
  return a < b ? b : a;
}
SDCGUARD_BOTH double max_of(double a, double b) {
  if (a == b) return double_of(bits_of(a) & bits_of(b));
  if (a != a) return b;
  return a < b ? b : a;
}
SDCGUARD_BOTH uint32_t max_of(uint32_t a, uint32_t b) {
  return a < b ? b : a;
}

SDCGUARD_BOTH uint32_t multiply_high(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>((static_cast<uint64_t>(a) * b) >> 32);
}

SDCGUARD_BOTH uint32_t popcount(uint32_t v) {
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(__popc(v));
#else
  return static_cast<uint32_t>(__builtin_popcount(v));
#endif
}

// Index of the lowest set bit; v is not 0.
SDCGUARD_BOTH uint32_t lowest_bit(uint32_t v) {
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(__ffs(static_cast<int>(v))) - 1u;
#else
  return static_cast<uint32_t>(__builtin_ctz(v));
#endif
}

// BF16 and FP16 travel as their 16 bits. To float is exact; from float rounds to nearest, ties to even, overflow to
// infinity. A NaN keeps its sign and its leading payload bits and becomes quiet.
SDCGUARD_BOTH float bf16_to_float(uint16_t h) {
  return float_of(static_cast<uint32_t>(h) << 16);
}

SDCGUARD_BOTH uint16_t float_to_bf16(float v) {
  const uint32_t u = bits_of(v);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x0040u);
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

SDCGUARD_BOTH float f16_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7FFFu;
  if (magnitude >= 0x7C00u) {
    const uint32_t quiet = magnitude > 0x7C00u ? 0x00400000u : 0u;
    return float_of(sign | 0x7F800000u | quiet | ((magnitude & 0x3FFu) << 13));
  }
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(h));
#else
  // As an FP32 pattern the shifted bits are the value times 2^-112, subnormals included.
  const float scaled = float_of(magnitude << 13) * float_of((127u + 112u) << 23);
  return float_of(bits_of(scaled) | sign);
#endif
}

SDCGUARD_BOTH uint16_t float_to_f16(float v) {
  const uint32_t u = bits_of(v);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
#ifdef __CUDA_ARCH__
  return __half_as_ushort(__float2half_rn(v));
#else
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65536 and up
  if (magnitude < 0x38800000u) {                                               // below 2^-14: subnormal or zero
    if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);           // below 2^-25
    const uint32_t shift = 126u - (magnitude >> 23);                           // 14 to 24
    const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1u);
    const uint32_t half = 1u << (shift - 1u);
    const uint32_t up = (rest > half || (rest == half && (kept & 1u) != 0u)) ? 1u : 0u;
    return static_cast<uint16_t>(sign | (kept + up));
  }
  const uint32_t rebased = magnitude - ((127u - 15u) << 23);
  return static_cast<uint16_t>(sign | ((rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13));  // may carry to infinity
#endif
}

// FP8 travels as its 8 bits: E4M3 (bias 7, no infinity, one NaN a sign) and E5M2 (the upper byte of an FP16). To float
// is exact; from float rounds to nearest, ties to even, and saturates at the largest finite value, infinities too. A
// NaN becomes 0x7F with its sign.
SDCGUARD_BOTH float e5m2_to_float(uint8_t v) {
  return f16_to_float(static_cast<uint16_t>(v << 8));
}

SDCGUARD_BOTH float e4m3_to_float(uint8_t v) {
  const uint32_t sign = static_cast<uint32_t>(v & 0x80u) << 24;
  const uint32_t magnitude = v & 0x7Fu;
  if (magnitude == 0x7Fu) return float_of(sign | 0x7FC00000u);
  // As an FP32 pattern the shifted bits are the value times 2^-120, subnormals included.
  const float scaled = float_of(magnitude << 20) * 0x1p120f;
  return float_of(bits_of(scaled) | sign);
}

// fraction: bits of it; bias of the exponent; largest: pattern of the largest finite value.
SDCGUARD_BOTH uint8_t float_to_fp8(float v, uint32_t fraction, uint32_t bias, uint32_t largest) {
  const uint32_t u = bits_of(v);
  const uint32_t sign = (u >> 24) & 0x80u;
  const uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7Fu);
  const uint32_t lowest = 128u - bias;  // FP32 exponent of the smallest normal value
  const uint32_t exponent = magnitude >> 23;
  const uint32_t below = exponent < lowest ? lowest - exponent : 0u;
  const uint32_t shift = 23u - fraction + below;
  if (shift > 24u) return static_cast<uint8_t>(sign);  // below half the smallest subnormal
  const uint32_t mantissa = (magnitude & 0x7FFFFFu) | (exponent != 0 ? 0x800000u : 0u);
  const uint32_t kept = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1u);
  const uint32_t rounded = kept + (rest > half || (rest == half && (kept & 1u) != 0u) ? 1u : 0u);
  const uint32_t code = (below != 0 ? 0u : (exponent - lowest) << fraction) + rounded;  // a carry moves the exponent up
  return static_cast<uint8_t>(sign | (code > largest ? largest : code));
}
SDCGUARD_BOTH uint8_t float_to_e4m3(float v) {
  return float_to_fp8(v, 3, 7, 0x7E);
}
SDCGUARD_BOTH uint8_t float_to_e5m2(float v) {
  return float_to_fp8(v, 2, 15, 0x7B);
}

// Nearest integer, ties to even, saturated; a NaN becomes 0.
SDCGUARD_BOTH uint8_t float_to_i8(float v) {
  if (is_nan(v)) return 0;
  const float bounded = v < -128.0f ? -128.0f : v > 127.0f ? 127.0f : v;
  const float rounded = (bounded + 0x1.8p23f) - 0x1.8p23f;  // ulp 1: rounds to an integer
  return static_cast<uint8_t>(static_cast<int8_t>(rounded));
}

inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kFullMask = 0xFFFFFFFFu;

#ifdef __CUDACC__
// ============================================ nvcc ============================================

#define SDCGUARD_KERNEL(name, Params, max_threads)                                                   \
  static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= 4096, "kernel parameter"); \
  extern "C" __global__ void __launch_bounds__(max_threads) name(const __grid_constant__ Params p)

#define SDCGUARD_SHARED(T, N, name) __shared__ T name[N]

// A shared array of T as a function argument.
template <typename T>
using Shared = T*;

SDCGUARD_DEVICE uint32_t thread_index() {
  return threadIdx.x;
}
SDCGUARD_DEVICE uint32_t block_index() {
  return blockIdx.x;
}
SDCGUARD_DEVICE uint32_t block_threads() {
  return blockDim.x;
}
SDCGUARD_DEVICE uint32_t grid_blocks() {
  return gridDim.x;
}
SDCGUARD_DEVICE uint32_t lane() {
  return threadIdx.x & 31u;
}
SDCGUARD_DEVICE uint32_t warp() {
  return threadIdx.x >> 5;
}

template <typename T>
SDCGUARD_DEVICE T load(uint64_t address, int64_t index) {
  return reinterpret_cast<const T*>(address)[index];
}
SDCGUARD_DEVICE Float4 load_float4(uint64_t address, int64_t index) {
  const float4 v = reinterpret_cast<const float4*>(address)[index];
  return Float4{v.x, v.y, v.z, v.w};
}
SDCGUARD_DEVICE Raw16 load_16(uint64_t address, int64_t index) {
  const uint4 v = reinterpret_cast<const uint4*>(address)[index];
  return Raw16{{v.x, v.y, v.z, v.w}};
}
template <typename T>
SDCGUARD_DEVICE void store(uint64_t address, int64_t index, const T& v) {
  reinterpret_cast<T*>(address)[index] = v;
}
SDCGUARD_DEVICE void store_float4(uint64_t address, int64_t index, const Float4& v) {
  reinterpret_cast<float4*>(address)[index] = make_float4(v.x, v.y, v.z, v.w);
}
SDCGUARD_DEVICE void store_16(uint64_t address, int64_t index, const Raw16& v) {
  reinterpret_cast<uint4*>(address)[index] = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
}
// Of a 32-bit word that other streams may be writing: any value it held, no order.
template <typename T>
SDCGUARD_DEVICE T load_relaxed(uint64_t address, int64_t index) {
  static_assert(sizeof(T) == 4);
  return reinterpret_cast<volatile const T*>(address)[index];
}
template <typename T>
SDCGUARD_DEVICE void store_relaxed(uint64_t address, int64_t index, T v) {
  static_assert(sizeof(T) == 4);
  reinterpret_cast<volatile T*>(address)[index] = v;
}
SDCGUARD_DEVICE void store64_system(uint64_t address, int64_t index, uint64_t v) {
  reinterpret_cast<volatile unsigned long long*>(address)[index] = v;
}
SDCGUARD_DEVICE uint64_t load64_system(uint64_t address, int64_t index) {
  return reinterpret_cast<volatile const unsigned long long*>(address)[index];
}

template <typename T>
SDCGUARD_DEVICE Shared<T> dynamic_shared(uint32_t byte_offset = 0) {
  extern __shared__ __align__(16) unsigned char sdcguard_dynamic_shared[];
  return reinterpret_cast<T*>(sdcguard_dynamic_shared + byte_offset);
}

SDCGUARD_DEVICE void sync_threads() {
  __syncthreads();
}
SDCGUARD_DEVICE void sync_warp() {
  __syncwarp();
}
SDCGUARD_DEVICE void fence_block() {
  __threadfence_block();
}
SDCGUARD_DEVICE void fence_device() {
  __threadfence();
}
SDCGUARD_DEVICE void fence_system() {
  __threadfence_system();
}

template <typename T>
SDCGUARD_DEVICE T shfl(T v, uint32_t source) {
  return __shfl_sync(kFullMask, v, static_cast<int>(source));
}
template <typename T>
SDCGUARD_DEVICE T shfl_up(T v, uint32_t distance) {
  return __shfl_up_sync(kFullMask, v, distance);
}
template <typename T>
SDCGUARD_DEVICE T shfl_down(T v, uint32_t distance) {
  return __shfl_down_sync(kFullMask, v, distance);
}
template <typename T>
SDCGUARD_DEVICE T shfl_xor(T v, uint32_t mask) {
  return __shfl_xor_sync(kFullMask, v, static_cast<int>(mask));
}
SDCGUARD_DEVICE uint32_t ballot(bool predicate) {
  return __ballot_sync(kFullMask, predicate);
}

template <uint32_t N, typename T>
SDCGUARD_DEVICE void warp_sum_n(T (&v)[N]) {
  SDCGUARD_UNROLL
  for (uint32_t distance = 16; distance != 0; distance >>= 1) {
    SDCGUARD_UNROLL
    for (uint32_t i = 0; i < N; ++i) v[i] += shfl_xor(v[i], distance);
  }
}
template <typename T>
SDCGUARD_DEVICE T warp_sum(T v) {
  SDCGUARD_UNROLL
  for (uint32_t distance = 16; distance != 0; distance >>= 1) v += shfl_xor(v, distance);
  return v;
}
template <typename T>
SDCGUARD_DEVICE T warp_max(T v) {
  SDCGUARD_UNROLL
  for (uint32_t distance = 16; distance != 0; distance >>= 1) v = max_of(v, shfl_xor(v, distance));
  return v;
}
SDCGUARD_DEVICE uint32_t warp_or(uint32_t v) {
  SDCGUARD_UNROLL
  for (uint32_t distance = 16; distance != 0; distance >>= 1) v |= shfl_xor(v, distance);
  return v;
}

// On a shared word.
SDCGUARD_DEVICE uint32_t atomic_add(uint32_t& word, uint32_t v) {
  return atomicAdd(&word, v);
}
SDCGUARD_DEVICE uint64_t atomic_add(uint64_t& word, uint64_t v) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(&word), static_cast<unsigned long long>(v));
}
SDCGUARD_DEVICE uint32_t atomic_or(uint32_t& word, uint32_t v) {
  return atomicOr(&word, v);
}
SDCGUARD_DEVICE uint32_t atomic_max(uint32_t& word, uint32_t v) {
  return atomicMax(&word, v);
}
SDCGUARD_DEVICE uint32_t atomic_exchange(uint32_t& word, uint32_t v) {
  return atomicExch(&word, v);
}
SDCGUARD_DEVICE uint32_t atomic_cas(uint32_t& word, uint32_t expected, uint32_t v) {
  return atomicCAS(&word, expected, v);
}
SDCGUARD_DEVICE uint64_t atomic_cas(uint64_t& word, uint64_t expected, uint64_t v) {
  return atomicCAS(reinterpret_cast<unsigned long long*>(&word), static_cast<unsigned long long>(expected),
                   static_cast<unsigned long long>(v));
}

// On element `index` of a global array. T: uint32_t or uint64_t (or, max, exchange: uint32_t), written uint64_t{1}, not
// 1ull. All give the old value.
template <typename T>
SDCGUARD_DEVICE T atomic_add(uint64_t address, int64_t index, T v) {
  return atomic_add(reinterpret_cast<T*>(address)[index], v);
}
template <typename T>
SDCGUARD_DEVICE T atomic_or(uint64_t address, int64_t index, T v) {
  return atomic_or(reinterpret_cast<T*>(address)[index], v);
}
template <typename T>
SDCGUARD_DEVICE T atomic_max(uint64_t address, int64_t index, T v) {
  return atomic_max(reinterpret_cast<T*>(address)[index], v);
}
template <typename T>
SDCGUARD_DEVICE T atomic_exchange(uint64_t address, int64_t index, T v) {
  return atomic_exchange(reinterpret_cast<T*>(address)[index], v);
}
template <typename T>
SDCGUARD_DEVICE T atomic_cas(uint64_t address, int64_t index, T expected, T v) {
  return atomic_cas(reinterpret_cast<T*>(address)[index], expected, v);
}

#else
// ============================================ host ============================================

// Kernel code is watched by the race detector, the bookkeeping below it is not: TSan builds keep the two in separate
// functions, all others inline it.
#ifdef __SANITIZE_THREAD__
#define SDCGUARD_UNWATCHED __attribute__((no_sanitize_thread, noinline))
#else
#define SDCGUARD_UNWATCHED inline __attribute__((always_inline))
#endif
// The caller's place, for messages.
#define SDCGUARD_PLACE const char *file = __builtin_FILE(), uint32_t line = __builtin_LINE()

namespace simt {

// Context of the launch that this OS thread runs. Constant while a kernel runs: a fiber never changes its OS thread.
// initial-exec: one pointer fits the static TLS reserve of a dlopened library.
// (The attributes count only in front; __thread, since thread_local would go through an initialiser wrapper.)
__attribute__((tls_model("initial-exec"), visibility("hidden"))) inline __thread ::hostcuda::SimtContext* current =
    nullptr;

#ifdef __SANITIZE_THREAD__
__attribute__((no_sanitize_thread, noinline, unused)) static void
#else
inline void
#endif
bind(::hostcuda::SimtContext* context) {
  current = context;
}

// Host address of `bytes` bytes at element `index`, after every check.
template < ::hostcuda::Access kAccess, uint32_t kBytes, uint32_t kAlignment>
SDCGUARD_UNWATCHED unsigned char* at(uint64_t address, int64_t index, const char* file, uint32_t line) {
  ::hostcuda::SimtContext* const context = current;
  const uint64_t where = address + static_cast<uint64_t>(index) * kBytes;
  ::hostcuda::HostRange* const range = context->slots[(where >> ::hostcuda::kRangePageShift) % ::hostcuda::kRangeSlots];
  const uint64_t offset = where - range->base;
#ifdef __SANITIZE_THREAD__
  if constexpr (kAccess == ::hostcuda::Access::kStore) context->fenced = 0;
#endif
  if (__builtin_expect(offset < range->size && range->size - offset >= kBytes && where % kAlignment == 0, 1)) {
    if constexpr (kAccess != ::hostcuda::Access::kStore) range->bytes_read += kBytes;
    if constexpr (kAccess != ::hostcuda::Access::kLoad) range->bytes_written += kBytes;
    return range->alias + offset;
  }
  return context->api->resolve(context, where, kBytes, kAlignment, kAccess, file, line);
}

template <typename = void>  // a template, so that several object files of a TSan build may hold it
SDCGUARD_UNWATCHED void atomic_done([[maybe_unused]] const void* word) {
#ifdef __SANITIZE_THREAD__
  current->api->atomic_done(current, word);
#endif
}

__attribute__((noinline, cold)) inline void shared_fault(const ::hostcuda::SharedSite* site, uint64_t index,
                                                         uint64_t count) {
  char rule[256];
  if (site != nullptr) {
    __builtin_snprintf(rule, sizeof rule, "shared memory overrun: index %lld of %s[%llu]",
                       static_cast<long long>(index), site->name, static_cast<unsigned long long>(count));
    current->api->fault(current, site->file, site->line, rule);
  } else {
    __builtin_snprintf(rule, sizeof rule, "dynamic shared memory overrun: index %lld of %llu elements",
                       static_cast<long long>(index), static_cast<unsigned long long>(count));
    current->api->fault(current, nullptr, 0, rule);
  }
}

// A shared array with checked indexing. Copyable like a pointer; `array + k` is the rest of the array.
template <typename T>
class SharedSpan {
 public:
  SharedSpan(T* data, uint64_t count, const ::hostcuda::SharedSite* site) : data_(data), count_(count), site_(site) {}
  template <typename Index>
  T& operator[](Index index) const {
    const uint64_t i = static_cast<uint64_t>(static_cast<int64_t>(index));
    if (__builtin_expect(i >= count_, 0)) shared_fault(site_, i, count_);
    return data_[i];
  }
  T& operator*() const { return (*this)[0]; }
  template <typename Index>
  SharedSpan operator+(Index index) const {
    const uint64_t i = static_cast<uint64_t>(static_cast<int64_t>(index));
    if (__builtin_expect(i > count_, 0)) shared_fault(site_, i, count_);
    return SharedSpan(data_ + i, count_ - i, site_);
  }

 private:
  T* data_;
  uint64_t count_;
  const ::hostcuda::SharedSite* site_;
};

template <typename T>
SharedSpan<T> static_shared(const ::hostcuda::SharedSite* site) {
  return SharedSpan<T>(reinterpret_cast<T*>(current->api->static_shared(current, site)), site->bytes / sizeof(T), site);
}

template <typename T>
struct Shuffle {
  T value;
  T result;
  uint32_t source;
};

#define SDCGUARD_COMBINE __attribute__((no_sanitize_thread, optimize("no-tree-loop-distribute-patterns")))

template <typename T>
SDCGUARD_COMBINE void combine_shuffle(void* const* lanes) {
  for (uint32_t i = 0; i < kWarp; ++i) {
    auto* const mine = static_cast<Shuffle<T>*>(lanes[i]);
    mine->result = static_cast<const Shuffle<T>*>(lanes[mine->source])->value;
  }
}

template <typename T, uint32_t N>
SDCGUARD_COMBINE void combine_sum(void* const* lanes) {
  T sums[16][N];
  for (uint32_t i = 0; i < 16; ++i) {
    const T* const low = static_cast<const T*>(lanes[i]);
    const T* const high = static_cast<const T*>(lanes[i + 16]);
    for (uint32_t k = 0; k < N; ++k) sums[i][k] = low[k] + high[k];
  }
  for (uint32_t distance = 8; distance != 0; distance >>= 1) {
    for (uint32_t i = 0; i < distance; ++i) {
      for (uint32_t k = 0; k < N; ++k) sums[i][k] = sums[i][k] + sums[i + distance][k];
    }
  }
  for (uint32_t i = 0; i < kWarp; ++i) {
    T* const out = static_cast<T*>(lanes[i]);
    for (uint32_t k = 0; k < N; ++k) out[k] = sums[0][k];
  }
}

template <typename T>
SDCGUARD_COMBINE void combine_max(void* const* lanes) {
  T values[16];
  for (uint32_t i = 0; i < 16; ++i) {
    values[i] = max_of(*static_cast<const T*>(lanes[i]), *static_cast<const T*>(lanes[i + 16]));
  }
  for (uint32_t distance = 8; distance != 0; distance >>= 1) {
    for (uint32_t i = 0; i < distance; ++i) values[i] = max_of(values[i], values[i + distance]);
  }
  for (uint32_t i = 0; i < kWarp; ++i) *static_cast<T*>(lanes[i]) = values[0];
}

SDCGUARD_COMBINE inline void combine_or(void* const* lanes) {
  uint32_t all = 0;
  for (uint32_t i = 0; i < kWarp; ++i) all |= *static_cast<const uint32_t*>(lanes[i]);
  for (uint32_t i = 0; i < kWarp; ++i) *static_cast<uint32_t*>(lanes[i]) = all;
}

SDCGUARD_COMBINE inline void combine_ballot(void* const* lanes) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < kWarp; ++i) mask |= *static_cast<const uint32_t*>(lanes[i]) << i;
  for (uint32_t i = 0; i < kWarp; ++i) *static_cast<uint32_t*>(lanes[i]) = mask;
}

inline void meet(const char* operation, const char* file, uint32_t line, void* mine,
                 ::hostcuda::CombineFunction combine) {
  current->api->meet(current, operation, file, line, mine, combine);
}

}  // namespace simt

#define SDCGUARD_KERNEL(name, Params, max_threads_)                                                                  \
  static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) <= ::hostcuda::kMaxParameterBytes,            \
                "kernel parameter");                                                                                 \
  static void name##_body(const Params& p);                                                                          \
  static void name##_thread(::hostcuda::SimtContext* context, const void* params) {                                  \
    ::sdcguard::simt::bind(context);                                                                                 \
    name##_body(*static_cast<const Params*>(params));                                                                \
  }                                                                                                                  \
  static const ::hostcuda::HostKernelEntry name##_entry{                                                             \
      #name, &name##_thread, sizeof(Params), alignof(Params), max_threads_, 0, __FILE__};                            \
  __attribute__((section("hostcuda_kernels"), used)) static const ::hostcuda::HostKernelEntry* const name##_listed = \
      &name##_entry;                                                                                                 \
  static void name##_body([[maybe_unused]] const Params& p)

#define SDCGUARD_SHARED(T, N, name)                                                                        \
  static constexpr ::hostcuda::SharedSite name##_site{#name, __FILE__, __LINE__,                           \
                                                      static_cast<uint32_t>(sizeof(T) * (N)), alignof(T)}; \
  const ::sdcguard::simt::SharedSpan<T> name = ::sdcguard::simt::static_shared<T>(&name##_site)

template <typename T>
using Shared = simt::SharedSpan<T>;

inline uint32_t thread_index() {
  return simt::current->thread;
}
inline uint32_t block_index() {
  return simt::current->block;
}
inline uint32_t block_threads() {
  return simt::current->block_threads;
}
inline uint32_t grid_blocks() {
  return simt::current->grid_blocks;
}
inline uint32_t lane() {
  return simt::current->thread & 31u;
}
inline uint32_t warp() {
  return simt::current->thread >> 5;
}

template <typename T>
inline T load(uint64_t address, int64_t index, SDCGUARD_PLACE) {
  static_assert(std::is_trivially_copyable_v<T>);
  T v;
  __builtin_memcpy(
      &v,
      __builtin_assume_aligned(simt::at< ::hostcuda::Access::kLoad, sizeof(T), alignof(T)>(address, index, file, line),
                               alignof(T)),
      sizeof(T));
  return v;
}
inline Float4 load_float4(uint64_t address, int64_t index, SDCGUARD_PLACE) {
  return load<Float4>(address, index, file, line);
}
inline Raw16 load_16(uint64_t address, int64_t index, SDCGUARD_PLACE) {
  return load<Raw16>(address, index, file, line);
}
template <typename T>
inline void store(uint64_t address, int64_t index, const T& v, SDCGUARD_PLACE) {
  static_assert(std::is_trivially_copyable_v<T>);
  __builtin_memcpy(
      __builtin_assume_aligned(simt::at< ::hostcuda::Access::kStore, sizeof(T), alignof(T)>(address, index, file, line),
                               alignof(T)),
      &v, sizeof(T));
}
inline void store_float4(uint64_t address, int64_t index, const Float4& v, SDCGUARD_PLACE) {
  store<Float4>(address, index, v, file, line);
}
inline void store_16(uint64_t address, int64_t index, const Raw16& v, SDCGUARD_PLACE) {
  store<Raw16>(address, index, v, file, line);
}
template <typename T>
inline T load_relaxed(uint64_t address, int64_t index, SDCGUARD_PLACE) {
  static_assert(sizeof(T) == 4);
  T v;
  __atomic_load(reinterpret_cast<const T*>(simt::at< ::hostcuda::Access::kLoad, 4, 4>(address, index, file, line)), &v,
                __ATOMIC_RELAXED);
  return v;
}
template <typename T>
inline void store_relaxed(uint64_t address, int64_t index, T v, SDCGUARD_PLACE) {
  static_assert(sizeof(T) == 4);
  __atomic_store(reinterpret_cast<T*>(simt::at< ::hostcuda::Access::kStore, 4, 4>(address, index, file, line)), &v,
                 __ATOMIC_RELAXED);
}
inline void store64_system(uint64_t address, int64_t index, uint64_t v, SDCGUARD_PLACE) {
  auto* const word =
      reinterpret_cast<uint64_t*>(simt::at< ::hostcuda::Access::kStore, 8, 8>(address, index, file, line));
  __atomic_store_n(word, v, __ATOMIC_RELAXED);
}
inline uint64_t load64_system(uint64_t address, int64_t index, SDCGUARD_PLACE) {
  return __atomic_load_n(
      reinterpret_cast<const uint64_t*>(simt::at< ::hostcuda::Access::kLoad, 8, 8>(address, index, file, line)),
      __ATOMIC_RELAXED);
}

template <typename T>
inline Shared<T> dynamic_shared(uint32_t byte_offset = 0, SDCGUARD_PLACE) {
  ::hostcuda::SimtContext* const context = simt::current;
  if (byte_offset % alignof(T) != 0) {
    context->api->fault(context, file, line, "misaligned view of dynamic shared memory");
  }
  if (byte_offset > context->dynamic_shared_bytes) {
    context->api->fault(context, file, line, "view beyond the end of dynamic shared memory");
  }
  return Shared<T>(reinterpret_cast<T*>(context->dynamic_shared + byte_offset),
                   (context->dynamic_shared_bytes - byte_offset) / sizeof(T), nullptr);
}

inline void sync_threads(SDCGUARD_PLACE) {
  simt::current->api->sync_threads(simt::current, file, line);
}
inline void sync_warp(SDCGUARD_PLACE) {
  simt::current->api->sync_warp(simt::current, file, line);
}
inline void fence_block() {
  simt::current->api->fence(simt::current, ::hostcuda::FenceScope::kBlock);
}
inline void fence_device() {
  simt::current->api->fence(simt::current, ::hostcuda::FenceScope::kDevice);
}
inline void fence_system() {
  simt::current->api->fence(simt::current, ::hostcuda::FenceScope::kSystem);
}

// As the hardware does: the source lane is taken modulo 32; up and down give a lane its own value at the edge.
template <typename T>
inline T shfl(T v, uint32_t source, SDCGUARD_PLACE) {
  simt::Shuffle<T> mine{v, v, source & 31u};
  simt::meet("shfl", file, line, &mine, &simt::combine_shuffle<T>);
  return mine.result;
}
template <typename T>
inline T shfl_up(T v, uint32_t distance, SDCGUARD_PLACE) {
  simt::Shuffle<T> mine{v, v, distance <= lane() ? lane() - distance : lane()};
  simt::meet("shfl_up", file, line, &mine, &simt::combine_shuffle<T>);
  return mine.result;
}
template <typename T>
inline T shfl_down(T v, uint32_t distance, SDCGUARD_PLACE) {
  simt::Shuffle<T> mine{v, v, distance < kWarp - lane() ? lane() + distance : lane()};
  simt::meet("shfl_down", file, line, &mine, &simt::combine_shuffle<T>);
  return mine.result;
}
template <typename T>
inline T shfl_xor(T v, uint32_t mask, SDCGUARD_PLACE) {
  simt::Shuffle<T> mine{v, v, (lane() ^ mask) & 31u};
  simt::meet("shfl_xor", file, line, &mine, &simt::combine_shuffle<T>);
  return mine.result;
}
inline uint32_t ballot(bool predicate, SDCGUARD_PLACE) {
  uint32_t word = predicate ? 1u : 0u;
  simt::meet("ballot", file, line, &word, &simt::combine_ballot);
  return word;
}
template <uint32_t N, typename T>
inline void warp_sum_n(T (&v)[N], SDCGUARD_PLACE) {
  static_assert(std::is_arithmetic_v<T>);
  simt::meet("warp_sum_n", file, line, v, &simt::combine_sum<T, N>);
}
template <typename T>
inline T warp_sum(T v, SDCGUARD_PLACE) {
  static_assert(std::is_arithmetic_v<T>);
  simt::meet("warp_sum", file, line, &v, &simt::combine_sum<T, 1>);
  return v;
}
template <typename T>
inline T warp_max(T v, SDCGUARD_PLACE) {
  simt::meet("warp_max", file, line, &v, &simt::combine_max<T>);
  return v;
}
inline uint32_t warp_or(uint32_t v, SDCGUARD_PLACE) {
  simt::meet("warp_or", file, line, &v, &simt::combine_or);
  return v;
}

// On a shared word.
template <typename T>
inline T atomic_add(T& word, std::type_identity_t<T> v) {
  const T old = __atomic_fetch_add(&word, v, __ATOMIC_RELAXED);
  simt::atomic_done(&word);
  return old;
}
template <typename T>
inline T atomic_or(T& word, std::type_identity_t<T> v) {
  const T old = __atomic_fetch_or(&word, v, __ATOMIC_RELAXED);
  simt::atomic_done(&word);
  return old;
}
template <typename T>
inline T atomic_cas(T& word, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  T old = expected;
  __atomic_compare_exchange_n(&word, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  simt::atomic_done(&word);
  return old;
}
template <typename T>
inline T atomic_max(T& word, std::type_identity_t<T> v) {
  T old = __atomic_load_n(&word, __ATOMIC_RELAXED);
  while (old < v && !__atomic_compare_exchange_n(&word, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  simt::atomic_done(&word);
  return old;
}
template <typename T>
inline T atomic_exchange(T& word, std::type_identity_t<T> v) {
  const T old = __atomic_exchange_n(&word, v, __ATOMIC_RELAXED);
  simt::atomic_done(&word);
  return old;
}

namespace simt {
template <typename T>
T& atomic_word(uint64_t address, int64_t index, const char* file, uint32_t line) {
  static_assert(std::is_same_v<T, uint32_t> || std::is_same_v<T, uint64_t>, "atomics on integers only");
  return *reinterpret_cast<T*>(at< ::hostcuda::Access::kAtomic, sizeof(T), sizeof(T)>(address, index, file, line));
}
}  // namespace simt

// On element `index` of a global array. T: uint32_t or uint64_t (or, max, exchange: uint32_t), written uint64_t{1}, not
// 1ull. All give the old value.
template <typename T>
inline T atomic_add(uint64_t address, int64_t index, T v, SDCGUARD_PLACE) {
  return atomic_add(simt::atomic_word<T>(address, index, file, line), v);
}
template <typename T>
inline T atomic_or(uint64_t address, int64_t index, T v, SDCGUARD_PLACE) {
  static_assert(sizeof(T) == 4);
  return atomic_or(simt::atomic_word<T>(address, index, file, line), v);
}
template <typename T>
inline T atomic_max(uint64_t address, int64_t index, T v, SDCGUARD_PLACE) {
  static_assert(sizeof(T) == 4);
  return atomic_max(simt::atomic_word<T>(address, index, file, line), v);
}
template <typename T>
inline T atomic_exchange(uint64_t address, int64_t index, T v, SDCGUARD_PLACE) {
  static_assert(sizeof(T) == 4);
  return atomic_exchange(simt::atomic_word<T>(address, index, file, line), v);
}
template <typename T>
inline T atomic_cas(uint64_t address, int64_t index, T expected, T v, SDCGUARD_PLACE) {
  return atomic_cas(simt::atomic_word<T>(address, index, file, line), expected, v);
}

#endif

}  // namespace sdcguard

#ifndef __CUDACC__
extern "C" {
// The linker's bounds of the section; hidden, so that each library sees its own, weak, so that none is needed.
extern const ::hostcuda::HostKernelEntry* const __start_hostcuda_kernels[] __attribute__((weak, visibility("hidden")));
extern const ::hostcuda::HostKernelEntry* const __stop_hostcuda_kernels[] __attribute__((weak, visibility("hidden")));
// Weak, not inline: an inline variable would be one for the whole process, this is one a library.
extern const ::hostcuda::HostKernelTable hostcuda_kernel_table __attribute__((weak, visibility("default")));
const ::hostcuda::HostKernelTable hostcuda_kernel_table = {::hostcuda::kSimtAbi, __start_hostcuda_kernels,
                                                           __stop_hostcuda_kernels};
}
#endif

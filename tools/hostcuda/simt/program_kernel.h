// SPDX-License-Identifier: MIT
// Host versions of a program's own kernels, for a library that HOSTCUDA_KERNELS names (core.h):
//
//   #include "tools/hostcuda/simt/program_kernel.h"
//   // extern "C" __global__ void scale(float* x, int width, float factor)
//   HOSTCUDA_KERNEL(scale, 1024, uint64_t x, int width, float factor) {
//     const hostcuda::Index3 at = hostcuda::global_index();
//     const int64_t i = static_cast<int64_t>(at.y) * width + at.x;
//     sdcguard::store<float>(x, i, sdcguard::load<float>(x, i) * factor);
//   }
//
//   g++ -std=c++20 -O2 -ffp-contract=off -fPIC -shared -I<this repository> kernels.cpp -o libkernels.so
//
// The body is one CUDA thread. Pointers arrive as device addresses (uint64_t); memory, barriers, shared memory, atomics
// and collectives are kernels/simt.h's, with its rules, but for the grid's dimensions (its thread_index() and
// block_index() count through all of them). The name is the one the device image has: mangled (_Z5scalePfif) unless
// extern "C". Parameters have the sizes and alignments of the kernel's.
#pragma once

#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/simt.h"

namespace hostcuda {

inline Index3 thread_index() {
  return index_in(sdcguard::simt::current->block_shape, sdcguard::simt::current->thread);
}
inline Index3 block_index() {
  return index_in(sdcguard::simt::current->grid_shape, sdcguard::simt::current->block);
}
inline Index3 block_shape() {
  return sdcguard::simt::current->block_shape;
}
inline Index3 grid_shape() {
  return sdcguard::simt::current->grid_shape;
}
// blockIdx * blockDim + threadIdx
inline Index3 global_index() {
  const Index3 thread = thread_index();
  const Index3 block = block_index();
  const Index3 shape = block_shape();
  return {block.x * shape.x + thread.x, block.y * shape.y + thread.y, block.z * shape.z + thread.z};
}

template <auto kBody>
struct ProgramKernel;

// The parameter block lays its parameters out as a struct does.
template <class... Params, void (*kBody)(Params...)>
struct ProgramKernel<kBody> {
  static_assert((std::is_trivially_copyable_v<Params> && ...), "kernel parameter");
  static constexpr size_t kCount = sizeof...(Params);

  static constexpr uint32_t kAlignment = [] {
    uint32_t most = 1;
    ((most = alignof(Params) > most ? alignof(Params) : most), ...);
    return most;
  }();

  static constexpr std::array<HostParameter, kCount + 1> kParameters = [] {  // the last one is the end
    std::array<HostParameter, kCount + 1> all{};
    uint32_t end = 0;
    size_t i = 0;
    ((end = (end + alignof(Params) - 1) / alignof(Params) * alignof(Params),
      all[i++] = HostParameter{end, sizeof(Params)}, end += sizeof(Params)),
     ...);
    all[kCount] = HostParameter{end, 0};
    return all;
  }();
  static_assert(kParameters[kCount].offset <= kMaxParameterBytes, "kernel parameters");

  template <class T>
  static T read(const void* params, size_t index) {
    T value;
    std::memcpy(&value, static_cast<const char*>(params) + kParameters[index].offset, sizeof value);
    return value;
  }

  template <size_t... kIndex>
  static void call([[maybe_unused]] const void* params, std::index_sequence<kIndex...>) {
    kBody(read<Params>(params, kIndex)...);
  }

  static void thread(SimtContext* context, const void* params) {
    sdcguard::simt::bind(context);
    call(params, std::index_sequence_for<Params...>{});
  }

  static constexpr HostKernelEntry entry(const char* name, uint32_t max_threads, const char* file) {
    return {name, &thread, kParameters[kCount].offset, kAlignment, max_threads, 3, file, kParameters.data(), kCount};
  }
};

}  // namespace hostcuda

#define HOSTCUDA_KERNEL(name, max_threads, ...)                                                                      \
  static void name##_body(__VA_ARGS__);                                                                              \
  static constexpr ::hostcuda::HostKernelEntry name##_entry =                                                        \
      ::hostcuda::ProgramKernel<&name##_body>::entry(#name, max_threads, __FILE__);                                  \
  __attribute__((section("hostcuda_kernels"), used)) static const ::hostcuda::HostKernelEntry* const name##_listed = \
      &name##_entry;                                                                                                 \
  static void name##_body(__VA_ARGS__)

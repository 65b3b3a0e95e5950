// SPDX-License-Identifier: MIT
// Host versions of kernels as a program would have them, for program_kernels_test: where each thread is, how parameters
// arrive, barriers over more than one dimension, a broken rule.
#include "tools/hostcuda/simt/program_kernel.h"

namespace {

using hostcuda::Index3;

constexpr uint32_t kWords = 12;  // a thread's record: thread, block, shape of the block, shape of the grid

void store_index(uint64_t out, int64_t at, const Index3& index) {
  sdcguard::store<uint32_t>(out, at, index.x);
  sdcguard::store<uint32_t>(out, at + 1, index.y);
  sdcguard::store<uint32_t>(out, at + 2, index.z);
}

// Record number: as CUDA counts global places, x first.
HOSTCUDA_KERNEL(where, 1024, uint64_t out) {
  const Index3 at = hostcuda::global_index();
  const Index3 block = hostcuda::block_shape();
  const Index3 grid = hostcuda::grid_shape();
  const int64_t width = int64_t{block.x} * grid.x;
  const int64_t height = int64_t{block.y} * grid.y;
  const int64_t record = ((at.z * height + at.y) * width + at.x) * kWords;
  store_index(out, record, hostcuda::thread_index());
  store_index(out, record + 3, hostcuda::block_index());
  store_index(out, record + 6, block);
  store_index(out, record + 9, grid);
}

// void mixed(unsigned char, double, unsigned short, double*, float, int)
HOSTCUDA_KERNEL(_Z5mixedhdtPdfi, 256, uint8_t a, double b, uint16_t c, uint64_t out, float d, int32_t e) {
  const double values[] = {static_cast<double>(a), b, static_cast<double>(c), static_cast<double>(d),
                           static_cast<double>(e)};
  for (int64_t i = 0; i < 5; ++i) sdcguard::store<double>(out, i, values[i]);
}

HOSTCUDA_KERNEL(nothing, 256) {}

// Tile by tile: out[x][y] = in[y][x]. Threads of a 2-D block meet at a barrier.
HOSTCUDA_KERNEL(transpose, 256, uint64_t in, uint64_t out, uint32_t n) {
  SDCGUARD_SHARED(float, 256, tile);
  const Index3 thread = hostcuda::thread_index();
  const Index3 block = hostcuda::block_index();
  const int64_t x = block.x * 16 + thread.x;
  const int64_t y = block.y * 16 + thread.y;
  tile[thread.y * 16 + thread.x] = sdcguard::load<float>(in, y * n + x);
  sdcguard::sync_threads();
  const int64_t to_x = block.y * 16 + thread.x;
  const int64_t to_y = block.x * 16 + thread.y;
  sdcguard::store<float>(out, to_y * n + to_x, tile[thread.x * 16 + thread.y]);
}

// One thread stores past the end.
HOSTCUDA_KERNEL(beyond, 256, uint64_t out, int64_t end) {
  const Index3 thread = hostcuda::thread_index();
  const Index3 block = hostcuda::block_index();
  const bool guilty = thread.x == 1 && thread.y == 2 && thread.z == 3 && block.x == 0 && block.y == 1;
  if (guilty) sdcguard::store<uint32_t>(out, end, 0);
}

}  // namespace

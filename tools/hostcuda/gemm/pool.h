// SPDX-License-Identifier: MIT
// Threads for large products: a fixed set of tasks is spread over the cores and all are done when the call returns.
#pragma once

#include <cstdint>
#include <functional>

namespace hostcuda::gemm {

// Runs task(0) .. task(count - 1), each once, on the calling thread and up to threads - 1 others. Blocks until all are
// done. Tasks must write disjoint memory: their order is not fixed. Several callers at once are fine: one has the pool,
// the others run their tasks on their own thread. After fork() the child starts threads of its own.
void for_each_task(int64_t count, int threads, const std::function<void(int64_t)>& task);

}  // namespace hostcuda::gemm

// SPDX-License-Identifier: MIT
// The depth guard: how deep this thread is inside cuBLAS calls that we already see. libcublas itself calls the public
// cublasLtMatmul, and our own product calls must never be guarded.
#pragma once

namespace sdcguard {

// Initial-exec: one load, no allocation, safe before constructors and in a fork child.
extern thread_local int t_depth __attribute__((tls_model("initial-exec"), visibility("hidden")));

class DepthGuard {
 public:
  DepthGuard() { ++t_depth; }
  ~DepthGuard() { --t_depth; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
};

}  // namespace sdcguard

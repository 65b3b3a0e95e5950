// SPDX-License-Identifier: MIT
// A call made for true: its matrices on the device, the call, and what it left held against the exact result.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "buffer.h"
#include "call.h"
#include "exact_product.h"

namespace calls {

// The library handles, the stream and the workspace of the calls. Throws std::runtime_error.
struct Libraries {
  Libraries();
  ~Libraries();
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;

  cublasHandle_t cublas = nullptr;
  cublasLtHandle_t lt = nullptr;
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  static constexpr size_t kWorkspaceBytes = size_t{4} << 20;
  int compute_major = 0;
};

struct Found {
  double worst = 0;     // largest |delivered - exact| / bound
  std::string where;    // of the worst, where it is over 1
  int64_t entries = 0;  // values held against a bound
  int64_t exempt = 0;   // of them without one
  int64_t changed = 0;  // bytes of gaps and inputs that are not as before
  uint64_t hash = 0;    // of every byte that the call may write, gaps included
};

class Trial {
 public:
  Trial(const Call& call, Libraries& libraries);

  // Enqueues the call; its own status.
  cublasStatus_t issue();
  // Blocks, brings the outputs back. exact: false leaves worst, entries and exempt at 0.
  Found judge(bool exact);
  // Outputs and inputs as they were before the call.
  void restore();

  const Buffer& d() const { return *d_; }

 private:
  void make_matrices();
  void make_vectors(Random& random);
  void make_pointers();
  Problem problem(size_t e, const Group& group) const;
  void compare(size_t e, const Group& group, Found* found) const;
  void compare_value(const Value& want, Num num, const Buffer& buffer, int64_t element, const std::string& what,
                     Found* found) const;
  bool uses_bias() const;
  bool makes_gradient() const;
  bool uses_aux() const;
  bool aux_is_mask() const;
  int64_t bias_length(const Group& group) const;
  cublasStatus_t issue_gemm();
  template <typename Size>
  cublasStatus_t issue_grouped();
  cublasStatus_t issue_lt();
  cublasLtMatrixLayout_t layout(const Buffer& buffer, const Group& group) const;
  const void* alpha() const;
  const void* beta() const;

  const Call call_;
  Libraries& libraries_;
  Buffer a_, b_, c_, written_;  // written_: D apart from C
  Buffer* d_ = nullptr;         // where D lies: c_ (in place) or written_
  Buffer bias_, aux_, scale_a_, scale_b_, scale_d_, amax_, alpha_, beta_, pointers_[3];
  std::vector<char> host_scalars_;
  std::vector<std::vector<char>> before_;  // images of inputs and outputs, as uploaded
  std::vector<Buffer*> inputs_, outputs_;
};

}  // namespace calls

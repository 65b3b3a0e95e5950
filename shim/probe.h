// SPDX-License-Identifier: MIT
// stage probe: takes a bound plan, enqueues its kernels around the product; runs on the calling thread.
//
//   side stream   wait(forked) fold operand record(joined)
//   app stream    [keep] [pointers] record(forked) .... the product .... wait(joined) product [recompute repair]
//   [finish]
//
// Without a side stream (ContextState::in_order) fold and operand run on the application's stream before the product.
#pragma once

#include "kernels/plan.h"
#include "shim/context.h"

namespace sdcguard {

class Probe {
 public:
  // `plan`: usable, scratch bound. Lock of `stream` held by the caller for the life of the object.
  Probe(const DriverApi& api, const ContextState& context, const StreamState& stream, CUstream app_stream,
        ProbePlan& plan)
      : api_(api), context_(context), stream_(stream), app_stream_(app_stream), plan_(plan) {}
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  // Enqueues the passes over the operands. False: the driver refused; whatever was enqueued is joined.
  bool before_product() noexcept;

  // The same in two parts, all on the application's stream, for a product with several probes: what must come before
  // the product, and the passes over the operands, after it as well as before. False: the driver refused.
  bool prepare() noexcept;
  bool operands_in_order() noexcept;

  // Makes the application's stream wait for the side stream. Called on every path once before_product() was: the
  // operands may be overwritten by the program after its call. If the driver refuses, waits on the host; false: even
  // that failed, and the scratch must not be used again.
  bool join() noexcept;

  // Enqueues the pass over the product, the escalation and the finish. False: the driver refused one of them.
  bool after_product() noexcept;

 private:
  bool launch(Kernel kernel, CUstream on) noexcept;

  const DriverApi& api_;
  const ContextState& context_;
  const StreamState& stream_;
  CUstream app_stream_;
  ProbePlan& plan_;
  bool forked_ = false;    // work was enqueued on the side stream and not joined yet
  bool recorded_ = false;  // `joined` covers all of it
};

}  // namespace sdcguard

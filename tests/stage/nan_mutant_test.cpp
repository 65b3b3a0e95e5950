// SPDX-License-Identifier: MIT
// Must-fail: the product pass built with the comparison that lets NaN pass misses a NaN that the shipped one finds.
#define SDCGUARD_EXCEEDS(value, limit) ((value) > (limit))
#include "kernels/product.cu"

#include <gtest/gtest.h>

#include <limits>

#include "tests/stage/device.h"
#include "tools/hostcuda/core.h"
#include "tools/hostcuda/simt/executor.h"

namespace sdcguard::stage {
namespace {

struct Launch {
  LaunchShape shape;
  ProbeParams params;
};

// Runs this file's product pass in stream order.
bool run_mutant(Kernel kernel, const LaunchShape& shape, const ProbeParams& params) {
  if (kernel != Kernel::kProduct) return false;
  const auto work = [](void* argument) {
    const Launch& launch = *static_cast<Launch*>(argument);
    hostcuda_simt_run(::hostcuda::find_kernel(&hostcuda_kernel_table, "sdcguard_product"), launch.shape.grid,
                      launch.shape.block, launch.shape.shared_bytes, &launch.params);
  };
  const auto destroy = [](void* argument) { delete static_cast<Launch*>(argument); };
  return hostcuda_enqueue_owned(nullptr, work, destroy, new Launch{shape, params}, "mutant product pass") ==
         CUDA_SUCCESS;
}

TEST(MustFail, ComparisonThatLetsNanPass) {
  Call call;
  call.a = reference::Matrix(64, 96);
  call.b = reference::Matrix(96, 128);
  fill(reference::Kind::kGauss, call.type, 4, call.a, call.b);
  call.p = multiply(reference::Order::kRounded16, call.a, call.b);
  call.change = [](ProbeParams& p) { p.audit_lines = 0; };
  EXPECT_EQ(run(call, run_mutant).outcome, Outcome::kClean);  // it works otherwise
  call.p.at(12, 34) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(run(call).outcome, Outcome::kCorrected);
  const Result missed = run(call, run_mutant);
  EXPECT_EQ(missed.outcome, Outcome::kClean);
  EXPECT_EQ(missed.verdict.entries_named, 0u);
}

}  // namespace
}  // namespace sdcguard::stage

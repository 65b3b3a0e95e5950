// SPDX-License-Identifier: MIT
// stage probe: takes a bound plan, enqueues its kernels around the product; runs on the calling thread.
#include "shim/probe.h"

namespace sdcguard {

bool Probe::launch(Kernel kernel, CUstream on) noexcept {
  const LaunchShape& shape = plan_.launch[static_cast<uint32_t>(kernel)];
  if (shape.grid == 0) return true;
  void* arguments[] = {&plan_.params};
  return api_.launch_kernel(context_.functions[shape.function], shape.grid, 1, 1, shape.block, 1, 1, shape.shared_bytes,
                            on, arguments, nullptr) == CUDA_SUCCESS;
}

bool Probe::prepare() noexcept {
  return launch(Kernel::kKeep, app_stream_) && launch(Kernel::kPointers, app_stream_);
}

bool Probe::operands_in_order() noexcept {
  return launch(Kernel::kFold, app_stream_) && launch(Kernel::kOperand, app_stream_);
}

bool Probe::before_product() noexcept {
  if (!prepare()) return false;
  if (stream_.side_stream == nullptr) return operands_in_order();
  if (api_.event_record(stream_.forked, app_stream_) != CUDA_SUCCESS ||
      api_.stream_wait_event(stream_.side_stream, stream_.forked, 0) != CUDA_SUCCESS) {
    return false;
  }
  forked_ = true;
  const bool launched = launch(Kernel::kFold, stream_.side_stream) && launch(Kernel::kOperand, stream_.side_stream);
  recorded_ = api_.event_record(stream_.joined, stream_.side_stream) == CUDA_SUCCESS;
  return launched && recorded_;
}

bool Probe::join() noexcept {
  if (!forked_) return true;
  forked_ = false;
  const bool waits = (recorded_ || api_.event_record(stream_.joined, stream_.side_stream) == CUDA_SUCCESS) &&
                     api_.stream_wait_event(app_stream_, stream_.joined, 0) == CUDA_SUCCESS;
  return waits || api_.stream_synchronize(stream_.side_stream) == CUDA_SUCCESS;
}

bool Probe::after_product() noexcept {
  return launch(Kernel::kProduct, app_stream_) && launch(Kernel::kRecompute, app_stream_) &&
         launch(Kernel::kRepair, app_stream_) && launch(Kernel::kFinish, app_stream_);
}

}  // namespace sdcguard

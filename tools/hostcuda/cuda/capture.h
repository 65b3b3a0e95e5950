// SPDX-License-Identifier: MIT
// What other files need of stream capture beyond engine.h.
#pragma once

#include "tools/hostcuda/cuda/engine.h"

namespace hostcuda {

// A body shared by a graph's holders; destroyed with the last.
std::shared_ptr<Work> share_work(const Work& work);

// capture_work for a body that other graphs may hold too.
CUresult capture_shared(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Work>& work);

}  // namespace hostcuda

// SPDX-License-Identifier: MIT
// A kernel library of an interface that is no more, for program_kernels_test.
#include "kernels/simt_host.h"

extern "C" __attribute__((visibility("default")))
const hostcuda::HostKernelTable hostcuda_kernel_table = {hostcuda::kSimtAbi - 1, nullptr, nullptr};

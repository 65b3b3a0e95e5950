// SPDX-License-Identifier: MIT
// Stands for the shim where a test wants driver calls made by code of a libsdcguard.so: built under that name. Each
// function does something after its call, since a tail call would return to the test.
#include <cuda.h>

int shim_made_calls = 0;

CUresult shim_alloc(CUdeviceptr* p, size_t bytes) {
  const CUresult result = cuMemAlloc(p, bytes);
  ++shim_made_calls;
  return result;
}

CUresult shim_event(CUevent* event) {
  const CUresult result = cuEventCreate(event, CU_EVENT_DEFAULT);
  ++shim_made_calls;
  return result;
}

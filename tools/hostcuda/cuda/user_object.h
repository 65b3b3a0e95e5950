// SPDX-License-Identifier: MIT
// User objects: a destructor of the program's that runs when the last reference is gone, the graphs' references
// included. References are counted under a lock of their own, so they may be dropped with the engine's lock held or
// not.
#pragma once

#include <cuda.h>

#include <map>

namespace hostcuda {

struct UserObject;

// What one graph (or one executable graph, until its last launch is done) holds of user objects.
class ObjectReferences {
 public:
  ObjectReferences() = default;
  ObjectReferences(const ObjectReferences& other);  // one more reference for each of the other's
  ~ObjectReferences();
  ObjectReferences& operator=(const ObjectReferences&) = delete;

  // `taken`: the references are the caller's own, handed over. CUDA_ERROR_INVALID_VALUE: no such object.
  CUresult add(CUuserObject object, unsigned count, bool taken);
  // CUDA_ERROR_INVALID_VALUE: fewer than `count` are held.
  CUresult drop(CUuserObject object, unsigned count);

 private:
  std::map<UserObject*, unsigned> held_;
};

}  // namespace hostcuda

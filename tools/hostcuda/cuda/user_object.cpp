// SPDX-License-Identifier: MIT
// User objects; driver functions cuUserObject....
//
// Destructors run on one internal thread, one after the other, as CUDA has it: not on the thread that drops the last
// reference, and nothing waits for them.
#include "tools/hostcuda/cuda/user_object.h"

#include "tools/hostcuda/cuda/driver_api.h"
//
#include <climits>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace hostcuda {

struct UserObject {
  void* ptr;
  CUhostFn destroy;
  uint64_t references;
};

namespace {

// Never destroyed: graphs may go while the process exits.
struct Objects {
  std::mutex mutex;
  std::condition_variable wake;
  std::unordered_map<UserObject*, std::unique_ptr<UserObject>> live;
  std::deque<std::unique_ptr<UserObject>> dead;
  bool has_thread = false;
};

Objects& objects() {
  static Objects* const instance = new Objects;
  return *instance;
}

void destroy_dead() {
  Objects& all = objects();
  std::unique_lock<std::mutex> lock(all.mutex);
  for (;;) {
    while (all.dead.empty()) all.wake.wait(lock);
    const std::unique_ptr<UserObject> object = std::move(all.dead.front());
    all.dead.pop_front();
    lock.unlock();
    object->destroy(object->ptr);
    lock.lock();
  }
}

// Objects::mutex is held.
void drop_references(UserObject* object, uint64_t count) {
  Objects& all = objects();
  object->references -= count;
  if (object->references != 0) return;
  const auto found = all.live.find(object);
  all.dead.push_back(std::move(found->second));
  all.live.erase(found);
  if (!all.has_thread) {
    all.has_thread = true;
    std::thread(destroy_dead).detach();
  }
  all.wake.notify_one();
}

UserObject* of(CUuserObject handle) {
  auto* object = reinterpret_cast<UserObject*>(handle);
  return objects().live.contains(object) ? object : nullptr;
}

bool valid_count(unsigned count) {
  return count != 0 && count <= INT_MAX;
}

}  // namespace

ObjectReferences::ObjectReferences(const ObjectReferences& other) {
  const std::lock_guard<std::mutex> lock(objects().mutex);
  held_ = other.held_;
  for (const auto& [object, count] : held_) object->references += count;
}

ObjectReferences::~ObjectReferences() {
  const std::lock_guard<std::mutex> lock(objects().mutex);
  for (const auto& [object, count] : held_) drop_references(object, count);
}

CUresult ObjectReferences::add(CUuserObject handle, unsigned count, bool taken) {
  const std::lock_guard<std::mutex> lock(objects().mutex);
  UserObject* object = of(handle);
  if (object == nullptr || !valid_count(count)) return CUDA_ERROR_INVALID_VALUE;
  if (taken && object->references < count) return CUDA_ERROR_INVALID_VALUE;
  if (!taken) object->references += count;
  held_[object] += count;
  return CUDA_SUCCESS;
}

CUresult ObjectReferences::drop(CUuserObject handle, unsigned count) {
  const std::lock_guard<std::mutex> lock(objects().mutex);
  const auto found = held_.find(of(handle));
  if (found == held_.end() || !valid_count(count) || found->second < count) return CUDA_ERROR_INVALID_VALUE;
  found->second -= count;
  UserObject* object = found->first;
  if (found->second == 0) held_.erase(found);
  drop_references(object, count);
  return CUDA_SUCCESS;
}

namespace driver {

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy, unsigned int initial_refcount,
                            unsigned int flags) {
  if (object_out == nullptr || destroy == nullptr || !valid_count(initial_refcount)) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  auto object = std::make_unique<UserObject>(UserObject{ptr, destroy, initial_refcount});
  const std::lock_guard<std::mutex> lock(objects().mutex);
  *object_out = reinterpret_cast<CUuserObject>(object.get());
  objects().live[object.get()] = std::move(object);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned int count) {
  const std::lock_guard<std::mutex> lock(objects().mutex);
  UserObject* object = of(handle);
  if (object == nullptr || !valid_count(count)) return CUDA_ERROR_INVALID_VALUE;
  object->references += count;
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned int count) {
  const std::lock_guard<std::mutex> lock(objects().mutex);
  UserObject* object = of(handle);
  if (object == nullptr || !valid_count(count) || object->references < count) return CUDA_ERROR_INVALID_VALUE;
  drop_references(object, count);
  return CUDA_SUCCESS;
}

}  // namespace driver
}  // namespace hostcuda

// SPDX-License-Identifier: MIT
// stage intercept: the exported wrappers, made from entry_points.def; run on the calling thread.
#include "shim/intercept.h"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "shim/context.h"
#include "shim/cublas_abi.h"
#include "shim/forms.h"
#include "shim/gemm_call.h"
#include "shim/pipeline.h"
#include "shim/policy.h"
#include "shim/process.h"
#include "shim/resolve.h"

namespace sdcguard {

thread_local int t_depth __attribute__((tls_model("initial-exec"))) = 0;

namespace {

// ---- FLOPs of a call that is not sampled --------------------------------------------------------------------

// hot: begin
inline uint64_t count(int64_t m, int64_t n, int64_t k, int64_t batch) {
  if (m <= 0 || n <= 0 || k <= 0 || batch <= 0) return 0;
  return 2 * static_cast<uint64_t>(m) * static_cast<uint64_t>(n) * static_cast<uint64_t>(k) *
         static_cast<uint64_t>(batch);
}

// Only the dimensions of `x` are read: once inlined, nothing else of it is written.
template <Entry E, class... A>
inline __attribute__((always_inline)) uint64_t quick_flops(const Library& library, A... arguments) {
  constexpr EntryForm kForm = form_of(E);
  CallArguments x;
  Form<kForm>::pack(x, arguments...);
  if constexpr (kForm == EntryForm::kLtMatmul) {
    return lt_flops(library, x.a_desc, x.d_desc);
  } else if constexpr (is_grouped(kForm)) {
    return grouped_flops(x.groups);
  } else {
    const uint64_t flops = count(x.m, x.n, x.k, x.batch) * (is_complex(E) ? 4 : 1);
    return is_half(kForm) ? flops / 2 : flops;
  }
}
// hot: end

// ---- the wrappers' bodies --------------------------------------------------------------------------------------

std::atomic<bool> g_fork_handler;

void after_fork_in_child() {
  resolve_forget_after_fork();
  process_forget_after_fork();
  policy_forget_after_fork();
  context_forget_after_fork();
}

// The sampled half of a product, at depth 1.
template <Entry E, class... A>
__attribute__((noinline)) int guarded(const Library* library, A... arguments) {
  const int saved_errno = errno;
  register_fork_handler();
  GemmCall call{};
  call.entry = E;
  call.library = library;
  call.call_id = thread_policy().call_id;
  Form<form_of(E)>::pack(call.arguments, arguments...);
  normalize(call);
  const int status = run_guarded(call);
  errno = saved_errno;
  return status;
}

// A product that is not sampled, under upgrade = "site". At depth 1.
template <Entry E, class... A>
__attribute__((noinline)) int unsampled(const Library* library, A... arguments) {
  const int saved_errno = errno;
  register_fork_handler();
  GemmCall call{};
  call.entry = E;
  call.library = library;
  Form<form_of(E)>::pack(call.arguments, arguments...);
  normalize(call);
  const int status = run_unsampled(call);
  errno = saved_errno;
  return status;
}

// The sampled half of a grouped product, at depth 1: the groups that the policy chose are checked.
template <Entry E, class... A>
__attribute__((noinline)) int guarded_groups(const Library* library, const SampledGroups& sampled, A... arguments) {
  const int saved_errno = errno;
  register_fork_handler();
  GemmCall call{};
  call.entry = E;
  call.library = library;
  call.call_id = sampled.call_id[0];
  Form<form_of(E)>::pack(call.arguments, arguments...);
  normalize(call);
  const int status = run_guarded_groups(call, sampled);
  errno = saved_errno;
  return status;
}

// The record of an observed call that the policy chose, after it was issued. At depth 1.
template <Entry E, class... A>
__attribute__((noinline)) void observed(const Library* library, A... arguments) {
  const int saved_errno = errno;
  register_fork_handler();
  GemmCall call{};
  call.entry = E;
  call.library = library;
  call.call_id = thread_policy().call_id;
  Form<form_of(E)>::pack(call.arguments, arguments...);
  normalize(call);
  record_observed(call, quick_flops<E>(*library, arguments...));
  errno = saved_errno;
}

// hot: begin
// A grouped product is one call a group. True when the policy chose one of them.
template <Entry E, class... A>
inline __attribute__((always_inline)) bool take_groups(ThreadPolicy& policy, SampledGroups& sampled, A... arguments) {
  CallArguments x;
  Form<form_of(E)>::pack(x, arguments...);
  sampled.count = 0;
  const int64_t groups = x.groups.count > 1 ? x.groups.count : 1;
  for (int64_t group = 0; group < groups; ++group) {
    if (!take_sample(policy) || sampled.count == SampledGroups::kMost) continue;
    sampled.group[sampled.count] = group;
    sampled.call_id[sampled.count] = policy.call_id;
    ++sampled.count;
  }
  if (sampled.count == 0) count_unsampled(policy, grouped_flops(x.groups), static_cast<uint64_t>(groups));
  return sampled.count != 0;
}

// `library` null: found by the handle or by the caller. The first argument of every product is the handle.
template <Entry E, class... A>
inline __attribute__((always_inline)) int product(const Library* library, const void* return_address, void* handle,
                                                  A... arguments) {
  if (library == nullptr) library = library_of_call(E, handle, return_address);
  if (__builtin_expect(library == nullptr, 0)) return abi::kNotInitialized;
  const auto real = reinterpret_cast<int (*)(void*, A...)>(real_function(*library, E));
  if (t_depth > 0 || library->forwards) return real(handle, arguments...);
  const DepthGuard depth;
  ThreadPolicy& policy = thread_policy();
  if constexpr (is_grouped(form_of(E))) {
    SampledGroups sampled;
    if (!take_groups<E>(policy, sampled, handle, arguments...)) return real(handle, arguments...);
    return guarded_groups<E>(library, sampled, handle, arguments...);
  }
  if (!take_sample(policy)) {
    count_unsampled(policy, quick_flops<E>(*library, handle, arguments...));
    if constexpr (kind_of(E) == EntryKind::kProduct) {
      if (__builtin_expect(policy.upgrades_all, 0)) return unsampled<E>(library, handle, arguments...);
    }
    return real(handle, arguments...);
  }
  if constexpr (kind_of(E) == EntryKind::kObserved) {
    const int status = real(handle, arguments...);
    observed<E>(library, handle, arguments...);
    return status;
  } else {
    return guarded<E>(library, handle, arguments...);
  }
}
// hot: end

template <Entry E>
int create(const Library* library, const void* return_address, void** handle) {
  // A handle yet to be made names no library.
  if (library == nullptr) library = find_library_of_call(E, nullptr, return_address);
  if (library == nullptr) return abi::kNotInitialized;
  const auto real = reinterpret_cast<int (*)(void**)>(real_function(*library, E));
  if (library->forwards) return real(handle);
  int status;
  {
    const DepthGuard depth;
    status = real(handle);
  }
  if (status != abi::kSuccess || handle == nullptr) return status;
  const int saved_errno = errno;
  remember_handle(*handle, library);
  if (t_depth == 0) {
    const DepthGuard depth;
    register_fork_handler();
    if (library->desc_get != nullptr) attribute_defaults(*library);
    warm_current_context();
    const char* file = std::strrchr(library->name, '/');
    note_library(file == nullptr ? library->name : file + 1,
                 library->lt_version == nullptr ? 0 : library->lt_version());
  }
  errno = saved_errno;
  return status;
}

template <Entry E>
int destroy(const Library* library, const void* return_address, void* handle) {
  if (library == nullptr) library = library_of_call(E, handle, return_address);
  if (library == nullptr) return abi::kNotInitialized;
  const auto real = reinterpret_cast<int (*)(void*)>(real_function(*library, E));
  if (library->forwards) return real(handle);
  // Before the handle's value can be given out again.
  forget_handle(handle);
  const DepthGuard depth;
  return real(handle);
}

template <Entry E, class... A>
inline __attribute__((always_inline)) int enter(const Library* library, const void* return_address, A... arguments) {
  if constexpr (kind_of(E) == EntryKind::kProduct || kind_of(E) == EntryKind::kObserved) {
    return product<E>(library, return_address, arguments...);
  } else if constexpr (kind_of(E) == EntryKind::kCreate) {
    return create<E>(library, return_address, arguments...);
  } else {
    return destroy<E>(library, return_address, arguments...);
  }
}

// Observed entries are many: all wrappers of one share a body. Those of a product each have their own.
template <Entry E, class... A>
__attribute__((noinline)) int enter_observed(const Library* library, const void* return_address, A... arguments) {
  return enter<E>(library, return_address, arguments...);
}

template <Entry E, class... A>
inline __attribute__((always_inline)) int enter_shared(const Library* library, const void* return_address,
                                                       A... arguments) {
  if constexpr (kind_of(E) == EntryKind::kObserved) return enter_observed<E>(library, return_address, arguments...);
  return enter<E>(library, return_address, arguments...);
}

// Wrappers bound to the library of a slot: what a dlsym caller gets. Which cuBLAS it asked is then known whoever calls.
template <Entry E, class Function>
struct Bound;
template <Entry E, class... A>
struct Bound<E, int(A...)> {
  template <uint32_t Slot>
  static int wrapper(A... arguments) {
    return enter_shared<E>(library_at(Slot), __builtin_return_address(0), arguments...);
  }
  template <uint32_t... Slots>
  static void* at(uint32_t slot, std::integer_sequence<uint32_t, Slots...>) {
    // No table of addresses: the loader would have to relocate it in every child process.
    int (*found)(A...) = nullptr;
    ((Slots == slot ? static_cast<void>(found = &wrapper<Slots>) : static_cast<void>(0)), ...);
    return reinterpret_cast<void*>(found);
  }
};

}  // namespace

void register_fork_handler() noexcept {
  if (g_fork_handler.load(std::memory_order_relaxed) || g_fork_handler.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, &after_fork_in_child);
}

void* wrapper_for(Entry entry, const Library& library) noexcept {
  switch (entry) {
#define SDCGUARD_BOUND(index, kind, form, symbol, parameters, ...) \
  case Entry::index:                                               \
    return Bound<Entry::index, int parameters>::at(library.slot, std::make_integer_sequence<uint32_t, kMaxLibraries>());
#define SDCGUARD_ENTRY(...) SDCGUARD_BOUND(__VA_ARGS__)
#include "entry_points.def"
#undef SDCGUARD_ENTRY
#undef SDCGUARD_BOUND
  }
  return nullptr;
}

}  // namespace sdcguard

#define SDCGUARD_UNPACK(...) __VA_ARGS__
#define SDCGUARD_EXPORTED(index, kind, form, symbol, parameters, arguments)                     \
  extern "C" __attribute__((visibility("default"))) int symbol parameters;                      \
  extern "C" int symbol parameters {                                                            \
    return sdcguard::enter_shared<sdcguard::Entry::index>(nullptr, __builtin_return_address(0), \
                                                          SDCGUARD_UNPACK arguments);           \
  }
#define SDCGUARD_ENTRY(...) SDCGUARD_EXPORTED(__VA_ARGS__)
#include "entry_points.def"

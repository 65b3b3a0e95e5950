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
#include "shim/gemm_call.h"
#include "shim/pipeline.h"
#include "shim/policy.h"
#include "shim/process.h"
#include "shim/resolve.h"

namespace sdcguard {

thread_local int t_depth __attribute__((tls_model("initial-exec"))) = 0;

namespace {

// ---- arguments to CallArguments, one form each ----------------------------------------------------------------

template <class I>
void pack(CallArguments& x, void* handle, int transa, int transb, I m, I n, I k, const void* alpha, const void* a,
          int type_a, I lda, const void* b, int type_b, I ldb, const void* beta, void* c, int type_c, I ldc,
          int compute, int algo) {
  x.handle = handle, x.transa = transa, x.transb = transb, x.m = m, x.n = n, x.k = k, x.alpha = alpha;
  x.a = a, x.type_a = type_a, x.lda = lda, x.b = b, x.type_b = type_b, x.ldb = ldb, x.beta = beta;
  x.c = c, x.type_c = type_c, x.ldc = ldc, x.compute = compute, x.algo = algo;
}

template <class I>
void pack(CallArguments& x, void* handle, int transa, int transb, I m, I n, I k, const void* alpha, const void* a,
          int type_a, I lda, long long stride_a, const void* b, int type_b, I ldb, long long stride_b, const void* beta,
          void* c, int type_c, I ldc, long long stride_c, I batch, int compute, int algo) {
  x.handle = handle, x.transa = transa, x.transb = transb, x.m = m, x.n = n, x.k = k, x.alpha = alpha;
  x.a = a, x.type_a = type_a, x.lda = lda, x.stride_a = stride_a;
  x.b = b, x.type_b = type_b, x.ldb = ldb, x.stride_b = stride_b, x.beta = beta;
  x.c = c, x.type_c = type_c, x.ldc = ldc, x.stride_c = stride_c, x.batch = batch, x.compute = compute, x.algo = algo;
}

template <class I>
void pack(CallArguments& x, void* handle, int transa, int transb, I m, I n, I k, const void* alpha, const void* a,
          I lda, const void* b, I ldb, const void* beta, void* c, I ldc) {
  x.handle = handle, x.transa = transa, x.transb = transb, x.m = m, x.n = n, x.k = k, x.alpha = alpha;
  x.a = a, x.lda = lda, x.b = b, x.ldb = ldb, x.beta = beta, x.c = c, x.ldc = ldc;
}

void pack(CallArguments& x, void* handle, void* desc, const void* alpha, const void* a, void* a_desc, const void* b,
          void* b_desc, const void* beta, const void* c, void* c_desc, void* d, void* d_desc, const void* algo,
          void* workspace, size_t workspace_bytes, void* stream) {
  x.handle = handle, x.desc = desc, x.alpha = alpha, x.a = a, x.a_desc = a_desc, x.b = b, x.b_desc = b_desc;
  x.beta = beta, x.c = c, x.c_desc = c_desc, x.d = d, x.d_desc = d_desc, x.lt_algo = algo;
  x.workspace = workspace, x.workspace_bytes = workspace_bytes, x.stream = stream;
}

// ---- FLOPs of a call that is not sampled --------------------------------------------------------------------

// hot: begin
inline uint64_t count(int64_t m, int64_t n, int64_t k, int64_t batch) {
  if (m <= 0 || n <= 0 || k <= 0 || batch <= 0) return 0;
  return 2 * static_cast<uint64_t>(m) * static_cast<uint64_t>(n) * static_cast<uint64_t>(k) *
         static_cast<uint64_t>(batch);
}

template <class I>
inline uint64_t quick_flops(const Library&, void*, int, int, I m, I n, I k, const void*, const void*, int, I,
                            const void*, int, I, const void*, void*, int, I, int, int) {
  return count(m, n, k, 1);
}

template <class I>
inline uint64_t quick_flops(const Library&, void*, int, int, I m, I n, I k, const void*, const void*, int, I, long long,
                            const void*, int, I, long long, const void*, void*, int, I, long long, I batch, int, int) {
  return count(m, n, k, batch);
}

template <class I>
inline uint64_t quick_flops(const Library&, void*, int, int, I m, I n, I k, const void*, const void*, I, const void*, I,
                            const void*, void*, I) {
  return count(m, n, k, 1);
}

inline uint64_t quick_flops(const Library& library, void*, void*, const void*, const void*, void* a_desc, const void*,
                            void*, const void*, const void*, void*, void*, void* d_desc, const void*, void*, size_t,
                            void*) {
  return lt_flops(library, a_desc, d_desc);
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
template <class... A>
__attribute__((noinline)) int guarded(Entry entry, const Library* library, A... arguments) {
  const int saved_errno = errno;
  register_fork_handler();
  GemmCall call{};
  call.entry = entry;
  call.library = library;
  call.call_id = thread_policy().call_id;
  pack(call.arguments, arguments...);
  normalize(call);
  const int status = run_guarded(call);
  errno = saved_errno;
  return status;
}

// hot: begin
// `library` null: found by the handle or by the caller. The first argument of every product is the handle.
template <Entry E, class... A>
inline __attribute__((always_inline)) int product(const Library* library, const void* return_address, void* handle,
                                                  A... arguments) {
  if (library == nullptr) library = library_of_call(E, handle, return_address);
  if (__builtin_expect(library == nullptr, 0)) return abi::kNotInitialized;
  const auto real = reinterpret_cast<int (*)(void*, A...)>(real_function(*library, E));
  if (t_depth > 0) return real(handle, arguments...);
  const DepthGuard depth;
  ThreadPolicy& policy = thread_policy();
  if (!take_sample(policy)) {
    count_unsampled(policy, quick_flops(*library, handle, arguments...));
    return real(handle, arguments...);
  }
  return guarded(E, library, handle, arguments...);
}
// hot: end

template <Entry E>
int create(const Library* library, const void* return_address, void** handle) {
  // A handle yet to be made names no library.
  if (library == nullptr) library = find_library_of_call(E, nullptr, return_address);
  if (library == nullptr) return abi::kNotInitialized;
  const auto real = reinterpret_cast<int (*)(void**)>(real_function(*library, E));
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
  // Before the handle's value can be given out again.
  forget_handle(handle);
  const DepthGuard depth;
  return real(handle);
}

template <Entry E, class... A>
inline __attribute__((always_inline)) int enter(const Library* library, const void* return_address, A... arguments) {
  if constexpr (kEntryKinds[static_cast<uint32_t>(E)] == EntryKind::kProduct) {
    return product<E>(library, return_address, arguments...);
  } else if constexpr (kEntryKinds[static_cast<uint32_t>(E)] == EntryKind::kCreate) {
    return create<E>(library, return_address, arguments...);
  } else {
    return destroy<E>(library, return_address, arguments...);
  }
}

// Wrappers bound to the library of a slot: what a dlsym caller gets. Which cuBLAS it asked is then known whoever calls.
template <Entry E, class Function>
struct Bound;
template <Entry E, class... A>
struct Bound<E, int(A...)> {
  template <uint32_t Slot>
  static int wrapper(A... arguments) {
    return enter<E>(library_at(Slot), __builtin_return_address(0), arguments...);
  }
  template <uint32_t... Slots>
  static void* at(uint32_t slot, std::integer_sequence<uint32_t, Slots...>) {
    static constexpr int (*kWrappers[])(A...) = {&wrapper<Slots>...};
    return reinterpret_cast<void*>(kWrappers[slot]);
  }
};

}  // namespace

void register_fork_handler() noexcept {
  if (g_fork_handler.load(std::memory_order_relaxed) || g_fork_handler.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, &after_fork_in_child);
}

void* wrapper_for(Entry entry, const Library& library) noexcept {
  switch (entry) {
#define SDCGUARD_BOUND(index, kind, symbol, parameters, ...) \
  case Entry::index:                                         \
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
#define SDCGUARD_EXPORTED(index, kind, symbol, parameters, arguments)                                                \
  extern "C" __attribute__((visibility("default"))) int symbol parameters;                                           \
  extern "C" int symbol parameters {                                                                                 \
    return sdcguard::enter<sdcguard::Entry::index>(nullptr, __builtin_return_address(0), SDCGUARD_UNPACK arguments); \
  }
#define SDCGUARD_ENTRY(...) SDCGUARD_EXPORTED(__VA_ARGS__)
#include "entry_points.def"

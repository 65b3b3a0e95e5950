// SPDX-License-Identifier: MIT
// stage upgrade: takes a GemmCall, issues the caller's own product or the bare product into FP32 scratch; runs on the
// calling thread.
#include "shim/upgrade.h"

#include <atomic>
#include <climits>
#include <cstring>
#include <new>

#include "shim/cublas_abi.h"
#include "shim/resolve.h"

namespace sdcguard {

namespace {

using namespace abi;

// The signature of an entry's untouched function.
template <Entry>
struct Signature;
#define SDCGUARD_SIGNATURE(index, kind, symbol, parameters, ...) \
  template <>                                                    \
  struct Signature<Entry::index> {                               \
    using Function = int(*) parameters;                          \
  };
#define SDCGUARD_ENTRY(...) SDCGUARD_SIGNATURE(__VA_ARGS__)
#include "entry_points.def"
#undef SDCGUARD_ENTRY
#undef SDCGUARD_SIGNATURE

template <Entry E>
typename Signature<E>::Function function_of(const GemmCall& call) {
  return reinterpret_cast<typename Signature<E>::Function>(real_function(*call.library, E));
}

constexpr int kGemmAutotune = 999;  // CUBLAS_GEMM_AUTOTUNE: measures, and so synchronises

// What the three cublas shapes are issued with: the caller's arguments, or those of the bare product.
struct Issue {
  const void* alpha;
  const void* beta;
  void* c;
  int type_c;
  int64_t ldc;
  int64_t stride_c;
  int algo;
};

Issue as_given(const CallArguments& arguments) {
  return {arguments.alpha,    arguments.beta, const_cast<void*>(arguments.c), arguments.type_c, arguments.ldc,
          arguments.stride_c, arguments.algo};
}

template <Entry E, class I>
int gemm_ex(const GemmCall& call, const Issue& issue) {
  const CallArguments& x = call.arguments;
  return function_of<E>(call)(x.handle, x.transa, x.transb, static_cast<I>(x.m), static_cast<I>(x.n),
                              static_cast<I>(x.k), issue.alpha, x.a, x.type_a, static_cast<I>(x.lda), x.b, x.type_b,
                              static_cast<I>(x.ldb), issue.beta, issue.c, issue.type_c, static_cast<I>(issue.ldc),
                              x.compute, issue.algo);
}

template <Entry E, class I>
int gemm_strided_ex(const GemmCall& call, const Issue& issue) {
  const CallArguments& x = call.arguments;
  return function_of<E>(call)(
      x.handle, x.transa, x.transb, static_cast<I>(x.m), static_cast<I>(x.n), static_cast<I>(x.k), issue.alpha, x.a,
      x.type_a, static_cast<I>(x.lda), x.stride_a, x.b, x.type_b, static_cast<I>(x.ldb), x.stride_b, issue.beta,
      issue.c, issue.type_c, static_cast<I>(issue.ldc), issue.stride_c, static_cast<I>(x.batch), x.compute, issue.algo);
}

template <Entry E, class I>
int gemm_plain(const GemmCall& call, const Issue& issue) {
  const CallArguments& x = call.arguments;
  return function_of<E>(call)(x.handle, x.transa, x.transb, static_cast<I>(x.m), static_cast<I>(x.n),
                              static_cast<I>(x.k), issue.alpha, x.a, static_cast<I>(x.lda), x.b, static_cast<I>(x.ldb),
                              issue.beta, issue.c, static_cast<I>(issue.ldc));
}

int issue_gemm(const GemmCall& call, const Issue& issue) {
  switch (call.entry) {
    case Entry::kGemmEx:
      return gemm_ex<Entry::kGemmEx, int>(call, issue);
    case Entry::kGemmEx64:
      return gemm_ex<Entry::kGemmEx64, int64_t>(call, issue);
    case Entry::kGemmStridedBatchedEx:
      return gemm_strided_ex<Entry::kGemmStridedBatchedEx, int>(call, issue);
    case Entry::kGemmStridedBatchedEx64:
      return gemm_strided_ex<Entry::kGemmStridedBatchedEx64, int64_t>(call, issue);
    case Entry::kSgemm:
      return gemm_plain<Entry::kSgemm, int>(call, issue);
    case Entry::kSgemm64:
      return gemm_plain<Entry::kSgemm64, int64_t>(call, issue);
    case Entry::kHgemm:
      return gemm_plain<Entry::kHgemm, int>(call, issue);
    case Entry::kHgemm64:
      return gemm_plain<Entry::kHgemm64, int64_t>(call, issue);
    default:
      return kNotSupported;
  }
}

bool has_32_bit_dimensions(Entry entry) {
  return entry == Entry::kGemmEx || entry == Entry::kGemmStridedBatchedEx || entry == Entry::kSgemm ||
         entry == Entry::kHgemm;
}

const float kOne = 1.0f;
const float kZero = 0.0f;

// ---- algorithms of redirected cublasLt products ---------------------------------------------------------------

// Everything that the library's heuristic may look at: the cloned descriptors byte for byte (their pointers cleared),
// what the operands' addresses are aligned to, the workspace, and where it runs.
struct AlgorithmKey {
  LtDesc desc;
  LtLayout a, b, d;
  uint64_t alignment_a, alignment_b, alignment_d;
  uint64_t workspace_bytes;
  uint64_t context_id;
  uint64_t library_base;  // algorithms are of one library version
};
static_assert(sizeof(AlgorithmKey) == 256 + 3 * 64 + 6 * 8, "compared byte for byte: no padding");

struct Algorithm {
  AlgorithmKey key;
  LtAlgo algo;
};

// Immutable once published, never freed. Full neighbourhoods ask the library again.
constexpr uint32_t kAlgorithmSlots = 4096;
constexpr uint32_t kAlgorithmProbes = 8;
std::atomic<const Algorithm*> g_algorithms[kAlgorithmSlots];

uint32_t slot_of(const AlgorithmKey& key) {
  uint64_t words[sizeof(AlgorithmKey) / 8];
  memcpy(words, &key, sizeof(key));
  uint64_t hash = 0;
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  return static_cast<uint32_t>(hash);
}

const LtAlgo* remembered_algorithm(const AlgorithmKey& key, uint32_t start) {
  for (uint32_t probe = 0; probe < kAlgorithmProbes; ++probe) {
    const Algorithm* entry = g_algorithms[(start + probe) % kAlgorithmSlots].load(std::memory_order_acquire);
    if (entry == nullptr) return nullptr;
    if (memcmp(&entry->key, &key, sizeof(key)) == 0) return &entry->algo;
  }
  return nullptr;
}

void remember_algorithm(const AlgorithmKey& key, uint32_t start, const LtAlgo& algo) {
  auto* entry = new (std::nothrow) Algorithm{key, algo};
  if (entry == nullptr) return;
  for (uint32_t probe = 0; probe < kAlgorithmProbes; ++probe) {
    const Algorithm* empty = nullptr;
    if (g_algorithms[(start + probe) % kAlgorithmSlots].compare_exchange_strong(empty, entry,
                                                                                std::memory_order_acq_rel)) {
      return;
    }
  }
  delete entry;
}

uint64_t alignment_of(uint64_t address) {
  constexpr uint64_t kLargest = 256;  // cublasLt's own default for MIN_ALIGNMENT
  const uint64_t lowest_bit = address & (~address + 1);
  return address == 0 || lowest_bit > kLargest ? kLargest : lowest_bit;
}

// Asks the library for an algorithm under the caller's workspace limit. Not kSuccess: there is none.
int ask_algorithm(const GemmCall& call, AlgorithmKey& key, LtAlgo* algo) {
  const Library& library = *call.library;
  if (library.heuristic == nullptr || library.preference_init == nullptr || library.preference_set == nullptr) {
    return kNotSupported;
  }
  LtPreference preference{};
  if (int status = library.preference_init(&preference, sizeof(preference)); status != kSuccess) return status;
  auto set = [&](int attribute, auto value) {
    return library.preference_set(&preference, attribute, &value, sizeof(value)) == kSuccess;
  };
  if (!set(kPreferenceMaxWorkspaceBytes, key.workspace_bytes) ||
      !set(kPreferenceMinAlignmentA, static_cast<uint32_t>(key.alignment_a)) ||
      !set(kPreferenceMinAlignmentB, static_cast<uint32_t>(key.alignment_b)) ||
      !set(kPreferenceMinAlignmentC, static_cast<uint32_t>(key.alignment_d)) ||
      !set(kPreferenceMinAlignmentD, static_cast<uint32_t>(key.alignment_d))) {
    return kNotSupported;
  }
  LtHeuristicResult result{};
  int returned = 0;
  const int status = library.heuristic(call.arguments.handle, &key.desc, &key.a, &key.b, &key.d, &key.d, &preference, 1,
                                       &result, &returned);
  if (status != kSuccess) return status;
  if (returned < 1 || result.state != kSuccess || result.workspace_bytes > key.workspace_bytes) return kNotSupported;
  *algo = result.algo;
  return kSuccess;
}

int issue_lt(const GemmCall& call, const Fp32Target& target) {
  const CallArguments& x = call.arguments;
  const Library& library = *call.library;
  if (library.desc_set == nullptr || library.layout_set == nullptr) return kNotSupported;
  AlgorithmKey key;
  memcpy(&key.desc, x.desc, sizeof(key.desc));
  memcpy(&key.a, x.a_desc, sizeof(key.a));
  memcpy(&key.b, x.b_desc, sizeof(key.b));
  memcpy(&key.d, x.d_desc, sizeof(key.d));
  auto set_desc = [&](int attribute, auto value) {
    return library.desc_set(&key.desc, attribute, &value, sizeof(value)) == kSuccess;
  };
  auto set_layout = [&](int attribute, auto value) {
    return library.layout_set(&key.d, attribute, &value, sizeof(value)) == kSuccess;
  };
  const void* none = nullptr;
  if (!set_desc(kDescEpilogue, kLtEpilogueDefault) || !set_desc(kDescPointerMode, int32_t{kPointerHost}) ||
      !set_desc(kDescBiasPointer, none) || !set_desc(kDescAuxPointer, none) ||
      !set_layout(kLayoutType, uint32_t{kR32F}) || !set_layout(kLayoutLd, target.ld) ||
      (call.batch > 1 && !set_layout(kLayoutBatchStride, target.batch_stride))) {
    return kNotSupported;
  }
  key.alignment_a = alignment_of(reinterpret_cast<uintptr_t>(x.a));
  key.alignment_b = alignment_of(reinterpret_cast<uintptr_t>(x.b));
  key.alignment_d = alignment_of(target.address);
  key.workspace_bytes = x.workspace != nullptr ? x.workspace_bytes : 0;
  key.context_id = target.context_id;
  key.library_base = library.base;
  const uint32_t start = slot_of(key);
  LtAlgo algo;
  if (const LtAlgo* found = remembered_algorithm(key, start)) {
    algo = *found;
  } else {
    if (const int status = ask_algorithm(call, key, &algo); status != kSuccess) return status;
    remember_algorithm(key, start, algo);
  }
  void* d = reinterpret_cast<void*>(target.address);
  return function_of<Entry::kLtMatmul>(call)(x.handle, &key.desc, &kOne, x.a, x.a_desc, x.b, x.b_desc, &kZero, d,
                                             &key.d, d, &key.d, &algo, x.workspace, x.workspace_bytes, x.stream);
}

// Sites without an FP32 product.
constexpr uint32_t kRefusedSlots = 1024;
constexpr uint32_t kRefusedProbes = 16;
std::atomic<uint64_t> g_refused[kRefusedSlots];

}  // namespace

int issue_original(const GemmCall& call) noexcept {
  const CallArguments& x = call.arguments;
  if (call.entry == Entry::kLtMatmul) {
    return function_of<Entry::kLtMatmul>(call)(x.handle, x.desc, x.alpha, x.a, x.a_desc, x.b, x.b_desc, x.beta, x.c,
                                               x.c_desc, x.d, x.d_desc, x.lt_algo, x.workspace, x.workspace_bytes,
                                               x.stream);
  }
  return issue_gemm(call, as_given(x));
}

bool upgrade_permitted(const GemmCall& call) noexcept {
  if (call.blocked != Reason::kNone) return false;
  // interposition.md 5.2: 16-bit inputs at COMPUTE_32F or its pedantic form may write FP32; FP32 inputs do already.
  if (call.type_a == DataType::kF32) return true;
  return (call.type_a == DataType::kBF16 || call.type_a == DataType::kF16) && call.type_b == call.type_a &&
         (call.compute_type == kCompute32F || call.compute_type == kCompute32FPedantic) && call.scale_type == kR32F;
}

bool upgrade_permitted(const GemmCall& call, uint64_t site) noexcept {
  return upgrade_permitted(call) && !upgrade_refused(site);
}

int issue_into_fp32(const GemmCall& call, uint64_t site, const Fp32Target& target) noexcept {
  if (!upgrade_permitted(call)) return kNotSupported;
  int status;
  if (call.entry == Entry::kLtMatmul) {
    status = issue_lt(call, target);
  } else {
    if (has_32_bit_dimensions(call.entry) && target.ld > INT_MAX) return kNotSupported;
    const CallArguments& x = call.arguments;
    Issue issue = as_given(x);
    issue.alpha = call.scalars_on_device ? reinterpret_cast<const void*>(target.one_address) : &kOne;
    issue.beta = call.scalars_on_device ? reinterpret_cast<const void*>(target.zero_address) : &kZero;
    issue.c = reinterpret_cast<void*>(target.address);
    issue.type_c = kR32F;
    issue.ldc = target.ld;
    issue.stride_c = target.batch_stride;
    if (issue.algo == kGemmAutotune) issue.algo = kGemmDefault;
    status = issue_gemm(call, issue);
  }
  if (status == kNotSupported || status == kInvalidValue || status == kArchMismatch) remember_upgrade_refused(site);
  return status;
}

bool upgrade_refused(uint64_t site) noexcept {
  const uint32_t start = static_cast<uint32_t>(site ^ site >> 32);
  for (uint32_t probe = 0; probe < kRefusedProbes; ++probe) {
    const uint64_t entry = g_refused[(start + probe) % kRefusedSlots].load(std::memory_order_relaxed);
    if (entry == site) return true;
    if (entry == 0) return false;
  }
  return false;
}

void remember_upgrade_refused(uint64_t site) noexcept {
  const uint32_t start = static_cast<uint32_t>(site ^ site >> 32);
  for (uint32_t probe = 0; probe < kRefusedProbes; ++probe) {
    uint64_t entry = 0;
    std::atomic<uint64_t>& slot = g_refused[(start + probe) % kRefusedSlots];
    if (slot.compare_exchange_strong(entry, site, std::memory_order_relaxed) || entry == site) return;
  }
}

}  // namespace sdcguard

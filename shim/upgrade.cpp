// SPDX-License-Identifier: MIT
// stage upgrade: takes a GemmCall, issues the caller's own product or the bare product into scratch of its
// accumulator's type; runs on the calling thread.
#include "shim/upgrade.h"

#include <atomic>
#include <climits>
#include <cstring>
#include <new>
#include <type_traits>

#include "shim/cublas_abi.h"
#include "shim/gemm_types.h"
#include "shim/resolve.h"

namespace sdcguard {

namespace {

using namespace abi;

// The signature of an entry's untouched function.
template <Entry>
struct Signature;
#define SDCGUARD_SIGNATURE(index, kind, form, symbol, parameters, ...) \
  template <>                                                          \
  struct Signature<Entry::index> {                                     \
    using Function = int(*) parameters;                                \
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

// What the shapes of the cublas family are issued with: the caller's arguments, or those of the bare product.
struct Issue {
  const void* alpha;
  const void* beta;
  void* c;  // pointer-array forms: the device array
  int type_c;
  int64_t ldc;
  int64_t stride_c;
  int algo;
};

Issue as_given(const CallArguments& arguments) {
  return {arguments.alpha,    arguments.beta, const_cast<void*>(arguments.c), arguments.type_c, arguments.ldc,
          arguments.stride_c, arguments.algo};
}

// The type of dimensions of an entry, from its parameters.
template <class Function>
struct DimensionOf;
template <class... A>
struct DimensionOf<int (*)(A...)> {
  static constexpr bool kWide = (std::is_same_v<A, int64_t> || ...) || (std::is_same_v<A, const int64_t*> || ...);
};

template <Entry E>
int issue_gemm(const GemmCall& call, const Issue& issue) {
  constexpr EntryForm kForm = form_of(E);
  using I = std::conditional_t<DimensionOf<typename Signature<E>::Function>::kWide, int64_t, int>;
  const CallArguments& x = call.arguments;
  const auto function = function_of<E>(call);
  const I m = static_cast<I>(x.m), n = static_cast<I>(x.n), k = static_cast<I>(x.k);
  const I lda = static_cast<I>(x.lda), ldb = static_cast<I>(x.ldb), ldc = static_cast<I>(issue.ldc);
  [[maybe_unused]] const I batch = static_cast<I>(x.batch);
  [[maybe_unused]] const auto a = static_cast<const void* const*>(x.a);
  [[maybe_unused]] const auto b = static_cast<const void* const*>(x.b);
  [[maybe_unused]] const auto c = static_cast<void* const*>(issue.c);
  if constexpr (kForm == EntryForm::kGemm) {
    return function(x.handle, x.transa, x.transb, m, n, k, issue.alpha, x.a, lda, x.b, ldb, issue.beta, issue.c, ldc);
  } else if constexpr (kForm == EntryForm::kGemmBatched) {
    return function(x.handle, x.transa, x.transb, m, n, k, issue.alpha, a, lda, b, ldb, issue.beta, c, ldc, batch);
  } else if constexpr (kForm == EntryForm::kGemmStrided) {
    return function(x.handle, x.transa, x.transb, m, n, k, issue.alpha, x.a, lda, x.stride_a, x.b, ldb, x.stride_b,
                    issue.beta, issue.c, ldc, issue.stride_c, batch);
  } else if constexpr (kForm == EntryForm::kGemmTyped) {
    return function(x.handle, x.transa, x.transb, m, n, k, issue.alpha, x.a, x.type_a, lda, x.b, x.type_b, ldb,
                    issue.beta, issue.c, issue.type_c, ldc);
  } else if constexpr (kForm == EntryForm::kGemmEx) {
    return function(x.handle, x.transa, x.transb, m, n, k, issue.alpha, x.a, x.type_a, lda, x.b, x.type_b, ldb,
                    issue.beta, issue.c, issue.type_c, ldc, x.compute, issue.algo);
  } else if constexpr (kForm == EntryForm::kGemmBatchedEx) {
    return function(x.handle, x.transa, x.transb, m, n, k, issue.alpha, a, x.type_a, lda, b, x.type_b, ldb, issue.beta,
                    c, issue.type_c, ldc, batch, x.compute, issue.algo);
  } else if constexpr (kForm == EntryForm::kGemmStridedEx) {
    return function(x.handle, x.transa, x.transb, m, n, k, issue.alpha, x.a, x.type_a, lda, x.stride_a, x.b, x.type_b,
                    ldb, x.stride_b, issue.beta, issue.c, issue.type_c, ldc, issue.stride_c, batch, x.compute,
                    issue.algo);
  } else {
    static_assert(is_grouped(kForm));
    const Groups& g = x.groups;
    const auto list = [](const void* values) { return static_cast<const I*>(values); };
    if constexpr (kForm == EntryForm::kGemmGrouped) {
      return function(x.handle, g.transa, g.transb, list(g.m), list(g.n), list(g.k), issue.alpha, a, list(g.lda), b,
                      list(g.ldb), issue.beta, c, list(g.ldc), static_cast<I>(g.count), list(g.sizes));
    } else {
      return function(x.handle, g.transa, g.transb, list(g.m), list(g.n), list(g.k), issue.alpha, a, x.type_a,
                      list(g.lda), b, x.type_b, list(g.ldb), issue.beta, c, issue.type_c, list(g.ldc),
                      static_cast<I>(g.count), list(g.sizes), x.compute);
    }
  }
}

// Of the cublas family: every product but cublasLtMatmul.
template <Entry E>
constexpr bool kInCublasFamily = kind_of(E) == EntryKind::kProduct&& E != Entry::kLtMatmul;

int issue_gemm(const GemmCall& call, const Issue& issue) {
  switch (call.entry) {
#define SDCGUARD_ISSUE(index, ...)                                                             \
  case Entry::index:                                                                           \
    if constexpr (kInCublasFamily<Entry::index>) return issue_gemm<Entry::index>(call, issue); \
    break;
#define SDCGUARD_ENTRY(...) SDCGUARD_ISSUE(__VA_ARGS__)
#include "entry_points.def"
#undef SDCGUARD_ENTRY
#undef SDCGUARD_ISSUE
  }
  return kNotSupported;
}

bool has_32_bit_dimensions(Entry entry) {
  switch (entry) {
#define SDCGUARD_WIDE(index, ...) \
  case Entry::index:              \
    return !DimensionOf<typename Signature<Entry::index>::Function>::kWide;
#define SDCGUARD_ENTRY(...) SDCGUARD_WIDE(__VA_ARGS__)
#include "entry_points.def"
#undef SDCGUARD_ENTRY
#undef SDCGUARD_WIDE
  }
  return true;
}

// 1 and 0 in each type of scalars.
struct Constants {
  const void* one;
  const void* zero;
};

Constants host_constants(DataType scalar) {
  static constexpr float kOneF32 = 1.0f;
  static constexpr double kOneF64 = 1.0;
  static constexpr int32_t kOneI32 = 1;
  static constexpr uint16_t kOneF16 = 0x3c00;
  static constexpr uint64_t kZeroBits = 0;
  switch (scalar) {
    case DataType::kF64:
      return {&kOneF64, &kZeroBits};
    case DataType::kI32:
      return {&kOneI32, &kZeroBits};
    case DataType::kF16:
      return {&kOneF16, &kZeroBits};
    default:
      return {&kOneF32, &kZeroBits};
  }
}

int cuda_type_of(DataType type) {
  return type == DataType::kF64 ? kR64F : type == DataType::kI32 ? kR32I : kR32F;
}

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

// The bare product of FP8 operands has no factors; an attribute that the library does not know is not set.
bool clear_scales(const Library& library, LtDesc& desc) {
  constexpr int kPointers[] = {kDescAScalePointer, kDescBScalePointer, kDescCScalePointer, kDescDScalePointer,
                               kDescAmaxDPointer};
  constexpr int kModes[] = {kDescAScaleMode, kDescBScaleMode};
  const void* none = nullptr;
  const int32_t scalar = kScaleScalar;
  for (const int id : kPointers) {
    uint64_t value = 0;
    if (library.desc_get(&desc, id, &value, sizeof(value), nullptr) == kSuccess && value != 0 &&
        library.desc_set(&desc, id, &none, sizeof(none)) != kSuccess) {
      return false;
    }
  }
  for (const int id : kModes) {
    int32_t value = kScaleScalar;
    if (library.desc_get(&desc, id, &value, sizeof(value), nullptr) == kSuccess && value != kScaleScalar &&
        library.desc_set(&desc, id, &scalar, sizeof(scalar)) != kSuccess) {
      return false;
    }
  }
  return true;
}

int issue_lt(const GemmCall& call, const ProductTarget& target) {
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
  // An INT8 result scaled in FP32 comes from an INT32 product with scalars of its own.
  const DataType scalar = target.type == DataType::kI32 ? DataType::kI32 : call.scalar_type;
  const void* none = nullptr;
  if (!set_desc(kDescEpilogue, kLtEpilogueDefault) || !set_desc(kDescPointerMode, int32_t{kPointerHost}) ||
      !set_desc(kDescBiasPointer, none) || !set_desc(kDescAuxPointer, none) ||
      (call.type_a == DataType::kI8 && !set_desc(kDescScaleType, uint32_t{kR32I})) ||
      (is_fp8(call.type_a) && !clear_scales(library, key.desc)) ||
      !set_layout(kLayoutType, static_cast<uint32_t>(cuda_type_of(target.type))) || !set_layout(kLayoutLd, target.ld) ||
      (call.batch > 1 && target.pointers == 0 && !set_layout(kLayoutBatchStride, target.batch_stride))) {
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
  void* d = reinterpret_cast<void*>(target.pointers != 0 ? target.pointers : target.address);
  const Constants constants = host_constants(scalar);
  return function_of<Entry::kLtMatmul>(call)(x.handle, &key.desc, constants.one, x.a, x.a_desc, x.b, x.b_desc,
                                             constants.zero, d, &key.d, d, &key.d, &algo, x.workspace,
                                             x.workspace_bytes, x.stream);
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

DataType product_type_of(const GemmCall& call) noexcept {
  switch (call.type_a) {
    case DataType::kF64:
      return DataType::kF64;
    case DataType::kI8:
      return DataType::kI32;
    default:
      return DataType::kF32;
  }
}

bool upgrade_permitted(const GemmCall& call) noexcept {
  // interposition.md 5.2: every understood tuple but FP16 accumulation may write its accumulator's type; grouped
  // products are in no such table.
  return call.blocked == Reason::kNone && call.compute_type != kCompute16F &&
         call.compute_type != kCompute16FPedantic && !is_grouped(form_of(call.entry)) &&
         !(form_of(call.entry) != EntryForm::kLtMatmul && element_of(call.entry) == DataType::kF16);
}

bool upgrade_permitted(const GemmCall& call, uint64_t site) noexcept {
  return upgrade_permitted(call) && !upgrade_refused(site);
}

int issue_product(const GemmCall& call, uint64_t site, const ProductTarget& target) noexcept {
  if (!upgrade_permitted(call)) return kNotSupported;
  int status;
  if (call.entry == Entry::kLtMatmul) {
    status = issue_lt(call, target);
  } else {
    if (has_32_bit_dimensions(call.entry) && target.ld > INT_MAX) return kNotSupported;
    const CallArguments& x = call.arguments;
    const Constants constants = host_constants(call.scalar_type);
    Issue issue = as_given(x);
    issue.alpha = call.scalars_on_device ? reinterpret_cast<const void*>(target.one_address) : constants.one;
    issue.beta = call.scalars_on_device ? reinterpret_cast<const void*>(target.zero_address) : constants.zero;
    issue.c = reinterpret_cast<void*>(target.pointers != 0 ? target.pointers : target.address);
    issue.type_c = cuda_type_of(target.type);
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

// SPDX-License-Identifier: MIT
// A program linked to the (stub) cuBLAS 13 in the ordinary way. Each entry point is called with arguments that are all
// different, and the stub must see them bit for bit. Every call must have passed the shim once.
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "expect.h"
#include "stub_record.h"

#define SDCGUARD_DECLARED(index, kind, form, symbol, parameters, ...) extern "C" int symbol parameters;
#define SDCGUARD_ENTRY(...) SDCGUARD_DECLARED(__VA_ARGS__)
#include "shim/entry_points.def"
#undef SDCGUARD_ENTRY
extern "C" int cublasSetStream_v2(void*, void*);
extern "C" int cublasSetPointerMode_v2(void*, int);
extern "C" int cublasLtMatmulDescInit_internal(void*, size_t, int, int);
extern "C" int cublasLtMatrixLayoutInit_internal(void*, size_t, int, uint64_t, uint64_t, int64_t);
extern "C" int cublasLtMatmulDescSetAttribute(void*, int, const void*, size_t);
extern "C" int stub_heuristic_calls();
extern "C" void stub_refuse_fp32(int);

namespace {

template <class T>
uint64_t word(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uint64_t>(value);
  } else {
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
}

void* address(uint64_t n) {
  return reinterpret_cast<void*>(0x7000000000 + 0x100000 * n);
}

template <class Function, class... A>
void call_and_compare(const StubRecord* record, const char* name, Function function, A... arguments) {
  const int before = record->calls;
  EXPECT(function(arguments...) == 0);
  EXPECT(record->calls == before + 1);
  EXPECT(strcmp(record->name, name) == 0);
  const uint64_t sent[] = {word(arguments)...};
  EXPECT(record->count == static_cast<int>(sizeof...(arguments)));
  for (int i = 0; i < record->count; ++i) EXPECT(record->arguments[i] == sent[i]);
}

// An argument of any type that no other of its call equals. Pointers are to zeros: a scalar reads as 0, a list of a
// grouped product as groups of nothing.
alignas(64) char zeros[1 << 16];
template <class T>
T argument(int position, bool wide) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(&zeros[1024 * position]);
  } else {
    return static_cast<T>((wide && sizeof(T) == 8 ? int64_t{1} << 33 : 3) + 2 * position);
  }
}

template <class... A, int... Position>
void call_with_all_different(const char* name, void* handle, int (*function)(void*, A...),
                             std::integer_sequence<int, Position...>) {
  // Beyond 2^31 where there are 64 bits, but for the number of groups: so many lists there are not.
  const bool wide = strstr(name, "Grouped") == nullptr;
  call_and_compare(stub_cublas_record(), name, function, handle, argument<A>(Position + 1, wide)...);
}

enum class Kind { kProduct, kObserved, kCreate, kDestroy };
struct Counts {
  int products, observed;
};

void call_entry(Counts&, Kind, const char*, void*, int (*)(void**)) {}  // of handles
void call_entry(Counts&, Kind, const char*, void*, int (*)(void*)) {}
template <class... A>
void call_entry(Counts& counts, Kind kind, const char* name, void* handle, int (*function)(void*, A...)) {
  if (strcmp(name, "cublasLtMatmul") == 0) return;  // original() has it
  (kind == Kind::kProduct ? counts.products : counts.observed) += 1;
  call_with_all_different(name, handle, function, std::make_integer_sequence<int, sizeof...(A)>());
}

// Every product of the table but cuBLASLt's, with arguments that are all different.
void every(void* handle) {
  Counts counts = {};
#define SDCGUARD_CALLED(index, kind, form, symbol, ...) call_entry(counts, Kind::kind, #symbol, handle, symbol);
#define SDCGUARD_ENTRY(...) SDCGUARD_CALLED(__VA_ARGS__)
#include "shim/entry_points.def"
#undef SDCGUARD_ENTRY
#undef SDCGUARD_CALLED
  EXPECT(counts.products == 32);
  EXPECT(guarded(counts.products));
  EXPECT(counted("routes_observed_calls", counts.observed));
}

constexpr int kBF16 = 14, kFp32 = 0, kCompute32F = 68;

void original(void* handle) {
  const float alpha = 1.5f, beta = -0.25f;
  const uint16_t half_alpha = 0x3c00, half_beta = 0;
  const StubRecord* record = stub_cublas_record();
  int calls = 0;
  for (int round = 0; round < 2; ++round) {
    call_and_compare(record, "cublasGemmEx", cublasGemmEx, handle, 1, 0, 17, 19, 23, &alpha, address(1), kBF16, 29,
                     address(2), kBF16, 31, &beta, address(3), kBF16, 37, kCompute32F, 99);
    call_and_compare(record, "cublasGemmStridedBatchedEx", cublasGemmStridedBatchedEx, handle, 0, 1, 17, 19, 23, &alpha,
                     address(1), kBF16, 29, 1013LL, address(2), kBF16, 31, 1019LL, &beta, address(3), kBF16, 37, 1021LL,
                     5, kCompute32F, -1);
    call_and_compare(record, "cublasSgemm_v2", cublasSgemm_v2, handle, 0, 0, 17, 19, 23, &alpha, address(1), 29,
                     address(2), 31, &beta, address(3), 37);
    call_and_compare(record, "cublasHgemm", cublasHgemm, handle, 1, 1, 17, 19, 23, &half_alpha, address(1), 29,
                     address(2), 31, &half_beta, address(3), 37);
    calls += 4;
  }
  // beyond 2^31 in every dimension that has 64 bits
  const int64_t big = (int64_t{1} << 33) + 1;
  call_and_compare(record, "cublasGemmEx_64", cublasGemmEx_64, handle, 0, 0, big, int64_t{3}, int64_t{5}, &alpha,
                   address(1), kBF16, big + 2, address(2), kBF16, big + 4, &beta, address(3), kBF16, big + 6,
                   kCompute32F, -1);
  call_and_compare(record, "cublasGemmStridedBatchedEx_64", cublasGemmStridedBatchedEx_64, handle, 0, 0, big,
                   int64_t{3}, int64_t{5}, &alpha, address(1), kBF16, big + 2, 11LL, address(2), kBF16, big + 4, 12LL,
                   &beta, address(3), kBF16, big + 6, 13LL, int64_t{9}, kCompute32F, -1);
  call_and_compare(record, "cublasSgemm_v2_64", cublasSgemm_v2_64, handle, 0, 0, big, int64_t{3}, int64_t{5}, &alpha,
                   address(1), big + 2, address(2), big + 4, &beta, address(3), big + 6);
  call_and_compare(record, "cublasHgemm_64", cublasHgemm_64, handle, 0, 0, big, int64_t{3}, int64_t{5}, &half_alpha,
                   address(1), big + 2, address(2), big + 4, &half_beta, address(3), big + 6);
  calls += 4;

  uint64_t desc[32], layout[4][8];
  cublasLtMatmulDescInit_internal(desc, sizeof(desc), kCompute32F, kFp32);
  for (auto& one : layout) cublasLtMatrixLayoutInit_internal(one, sizeof(one), kBF16, 16, 16, 16);
  const uint64_t algo[8] = {42};
  uint64_t desc_before[32];
  memcpy(desc_before, desc, sizeof(desc));
  call_and_compare(stub_cublaslt_record(), "cublasLtMatmul", cublasLtMatmul, handle, static_cast<void*>(desc), &alpha,
                   address(1), static_cast<void*>(layout[0]), address(2), static_cast<void*>(layout[1]), &beta,
                   address(3), static_cast<void*>(layout[2]), address(4), static_cast<void*>(layout[3]), algo,
                   address(5), size_t{4096}, address(6));
  EXPECT(memcmp(desc_before, desc, sizeof(desc)) == 0);
  calls += 1;
  if (getenv("ROUTES_UNSAMPLED") != nullptr) {
    EXPECT(guarded(0));
    EXPECT(recorder<uint64_t()>("routes_unsampled_calls")() == static_cast<uint64_t>(calls));
    // 2 m n k batch over all of the above, by hand
    const uint64_t small = 2 * 17 * 19 * 23;
    const uint64_t wide = 2 * static_cast<uint64_t>(big) * 3 * 5;
    EXPECT(recorder<uint64_t()>("routes_unsampled_flops")() ==
           2 * (small * 3 + small * 5) + wide * 3 + wide * 9 + 2 * 16 * 16 * 16);
  } else {
    EXPECT(guarded(calls));
  }
}

void upgrade(void* handle) {
  const float* scratch = recorder<const float*()>("routes_scratch")();
  const float* constants = recorder<const float*()>("routes_constants")();
  const float alpha = 1.5f, beta = -0.25f;
  const StubRecord* record = stub_cublas_record();
  EXPECT(cublasGemmEx(handle, 1, 0, 17, 19, 23, &alpha, address(1), kBF16, 29, address(2), kBF16, 31, &beta, address(3),
                      kBF16, 37, kCompute32F, 999) == 0);
  EXPECT(record->calls == 1);
  const uint64_t* sent = record->arguments;
  EXPECT(*reinterpret_cast<const float*>(sent[6]) == 1.0f && *reinterpret_cast<const float*>(sent[13]) == 0.0f);
  EXPECT(sent[14] == word(scratch) && sent[15] == kFp32 && sent[16] == 20 && sent[18] == word(-1));
  EXPECT(sent[0] == word(handle) && sent[1] == 1 && sent[7] == word(address(1)) && sent[9] == 29);
  // DEVICE pointer mode: the constants of the context, and the caller's scalars are never read on the host
  cublasSetPointerMode_v2(handle, 1);
  EXPECT(cublasSgemm_v2(handle, 0, 0, 17, 19, 23, address(7), address(1), 29, address(2), 31, address(8), address(3),
                        37) == 0);
  EXPECT(strcmp(record->name, "cublasSgemm_v2") == 0);
  EXPECT(sent[6] == word(&constants[0]) && sent[11] == word(&constants[1]) && sent[12] == word(scratch));
  cublasSetPointerMode_v2(handle, 0);
  // a library that lacks the product: the caller's own call, and the site is not asked again
  stub_refuse_fp32(1);
  EXPECT(cublasGemmEx(handle, 0, 0, 16, 16, 16, &alpha, address(1), kBF16, 16, address(2), kBF16, 16, &beta, address(3),
                      kBF16, 16, kCompute32F, -1) == 0);
  EXPECT(record->calls == 3 && sent[14] == word(address(3)) && sent[6] == word(&alpha));
  stub_refuse_fp32(0);
  EXPECT(cublasGemmEx(handle, 0, 0, 16, 16, 16, &alpha, address(1), kBF16, 16, address(2), kBF16, 16, &beta, address(3),
                      kBF16, 16, kCompute32F, -1) == 0);
  EXPECT(record->calls == 4 && sent[14] == word(address(3)));

  uint64_t desc[32], layout[4][8];
  cublasLtMatmulDescInit_internal(desc, sizeof(desc), kCompute32F, kFp32);
  const uint32_t gelu_bias = 36;
  void* bias = address(9);
  cublasLtMatmulDescSetAttribute(desc, 7, &gelu_bias, 4);
  cublasLtMatmulDescSetAttribute(desc, 8, &bias, 8);
  for (auto& one : layout) cublasLtMatrixLayoutInit_internal(one, sizeof(one), kBF16, 16, 16, 16);
  const uint64_t algo[8] = {42};
  uint64_t desc_before[32], layout_before[4][8];
  memcpy(desc_before, desc, sizeof(desc));
  memcpy(layout_before, layout, sizeof(layout));
  StubRecord* lt = stub_cublaslt_record();
  for (int round = 0; round < 3; ++round) {
    EXPECT(cublasLtMatmul(handle, desc, &alpha, address(1), layout[0], address(2), layout[1], &beta, address(3),
                          layout[2], address(4), layout[3], algo, address(5), 4096, address(6)) == 0);
    EXPECT(lt->calls == round + 1);
    EXPECT(lt->desc[7] == 1 && lt->desc[8] == 0 && lt->desc[0] == kCompute32F);
    EXPECT(lt->layouts[0][0] == kBF16 && lt->layouts[1][0] == kBF16);
    EXPECT(lt->layouts[3][0] == kFp32 && lt->layouts[2][0] == kFp32 && lt->layouts[3][4] == 16);
    EXPECT(lt->arguments[0] == word(handle) && lt->arguments[15] == word(address(6)));
    EXPECT(lt->arguments[10] == word(scratch) && lt->arguments[13] == word(address(5)) && lt->arguments[14] == 4096);
    EXPECT(lt->arguments[16] == 0xa190);  // the algorithm that the library gave for an FP32 D, not the caller's
  }
  EXPECT(stub_heuristic_calls() == 1);
  EXPECT(memcmp(desc_before, desc, sizeof(desc)) == 0 && memcmp(layout_before, layout, sizeof(layout)) == 0);
}

}  // namespace

int main(int, char** argv) {
  void* handle = nullptr;
  EXPECT(cublasCreate_v2(&handle) == 0);
  EXPECT(counted("routes_warm_calls", 1));
  if (strcmp(argv[1], "original") == 0) original(handle);
  if (strcmp(argv[1], "upgrade") == 0) upgrade(handle);
  if (strcmp(argv[1], "every") == 0) every(handle);
  EXPECT(cublasDestroy_v2(handle) == 0);
  puts("ok");
  return 0;
}

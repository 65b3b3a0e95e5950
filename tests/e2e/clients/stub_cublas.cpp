// SPDX-License-Identifier: MIT
// A libcublas that computes nothing: soname and version node of the real one, every product of entry_points.def
// recorded. With STUB_ROUTE_LT=1 its cublasGemmEx calls the public cublasLtMatmul, as the real one does for INT8.
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "stub_record.h"

extern "C" {

int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*,
                   void*, void*, const void*, void*, size_t, void*);

static StubRecord record = {0, STUB_MAJOR, nullptr, 0, {}, {}, {}};
static bool refuse_fp32;  // cublasGemmEx with an FP32 C answers NOT_SUPPORTED

StubRecord* stub_cublas_record() {
  return &record;
}
void stub_refuse_fp32(int on) {
  refuse_fp32 = on != 0;
}

struct Handle {
  int major, pointer_mode, math_mode;
  void* stream;
};

// Where the next handle is put, once; null: wherever calloc says.
static void* next_handle;
void stub_put_next_handle(void* place) {
  next_handle = place;
}

int cublasCreate_v2(void** handle) {
  auto* made = static_cast<Handle*>(next_handle != nullptr ? next_handle : calloc(1, sizeof(Handle)));
  next_handle = nullptr;
  *made = Handle{STUB_MAJOR, 0, 0, nullptr};
  *handle = made;
  return 0;
}
int cublasDestroy_v2(void*) {  // never given back: a client may have placed it
  return 0;
}
int cublasSetStream_v2(void* handle, void* stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}
int cublasGetStream_v2(void* handle, void** stream) {
  *stream = static_cast<Handle*>(handle)->stream;
  return 0;
}
int cublasSetPointerMode_v2(void* handle, int mode) {
  static_cast<Handle*>(handle)->pointer_mode = mode;
  return 0;
}
int cublasGetPointerMode_v2(void* handle, int* mode) {
  *mode = static_cast<Handle*>(handle)->pointer_mode;
  return 0;
}
int cublasSetMathMode(void* handle, int mode) {
  static_cast<Handle*>(handle)->math_mode = mode;
  return 0;
}
int cublasGetMathMode(void* handle, int* mode) {
  *mode = static_cast<Handle*>(handle)->math_mode;
  return 0;
}

}  // extern "C"

namespace {

template <class T>
uint64_t word(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uint64_t>(value);
  } else {
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  }
}

constexpr int kGemmExTypeC = 15;  // position in cublasGemmEx

template <class... A>
int record_product(const char* symbol, A... arguments) {
  static std::mutex lock;
  uint64_t words[24] = {word(arguments)...};
  const bool gemm_ex = strcmp(symbol, "cublasGemmEx") == 0;
  if (gemm_ex && refuse_fp32 && words[kGemmExTypeC] == 0) return 15;
  {
    const std::lock_guard<std::mutex> guard(lock);
    static_assert(sizeof(words) == sizeof(record.arguments) && sizeof...(arguments) <= 24);
    record.calls++;
    record.name = symbol;
    record.count = sizeof...(arguments);
    memcpy(record.arguments, words, sizeof(words));
  }
  errno = 77;  // what the untouched function leaves, stays
  if (gemm_ex && getenv("STUB_ROUTE_LT") != nullptr) {
    const auto* const* pointers = reinterpret_cast<const void* const*>(words);
    return cublasLtMatmul(const_cast<void*>(pointers[0]), nullptr, pointers[6], pointers[7], nullptr, pointers[10],
                          nullptr, pointers[13], pointers[14], nullptr, const_cast<void*>(pointers[14]), nullptr,
                          nullptr, nullptr, 0, nullptr);
  }
  return 0;
}

}  // namespace

// Every product but cuBLASLt's; the handles are above.
#define STUB_DEFINE(symbol, parameters, ...)     \
  extern "C" int symbol parameters {             \
    return record_product(#symbol, __VA_ARGS__); \
  }
#define STUB_NONE(...)
#define STUB_SKIP_kLtMatmul , STUB_NONE
#define STUB_SKIP_kHandle , STUB_NONE
#define STUB_SECOND(first, second, ...) second
#define STUB_CHOOSE(...) STUB_SECOND(__VA_ARGS__)
#define STUB_UNPACK(...) __VA_ARGS__
#define STUB_ENTRY(index, kind, form, symbol, parameters, arguments) \
  STUB_CHOOSE(STUB_SKIP_##form, STUB_DEFINE, ~)(symbol, parameters, STUB_UNPACK arguments)
#define SDCGUARD_ENTRY(...) STUB_ENTRY(__VA_ARGS__)
#include "shim/entry_points.def"

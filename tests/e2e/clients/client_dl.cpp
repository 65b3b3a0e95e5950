// SPDX-License-Identifier: MIT
// A program that is linked to no cuBLAS and reaches it in every other way, one a run: client_dl ROUTE.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "expect.h"
#include "stub_record.h"

namespace {

using Create = int(void**);
using Destroy = int(void*);
using Gemm = int(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                 void*, int, int, int, int);
using Matmul = int(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*,
                   void*, void*, const void*, void*, size_t, void*);

void* open_library(const char* name, int flags = RTLD_NOW | RTLD_LOCAL) {
  void* library = dlopen(name, flags);
  if (library == nullptr) fprintf(stderr, "%s\n", dlerror());
  EXPECT(library != nullptr);
  return library;
}

template <class Function>
Function* function_of(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

StubRecord* cublas_record(void* library) {
  return function_of<StubRecord*()>(library, "stub_cublas_record")();
}
StubRecord* cublaslt_record(void* library) {
  return function_of<StubRecord*()>(library, "stub_cublaslt_record")();
}

const float one = 1, none = 0;
int operand;

int product(Gemm* gemm, void* handle) {
  return gemm(handle, 0, 0, 16, 16, 16, &one, &operand, 14, 16, &operand, 14, 16, &none, &handle, 14, 16, 68, -1);
}

void* make_handle(void* library) {
  void* handle = nullptr;
  EXPECT(function_of<Create>(library, "cublasCreate_v2")(&handle) == 0);
  return handle;
}

// dlopen RTLD_LOCAL, dlsym on its handle: PyTorch extensions, XLA, TensorFlow, ctypes.
void route_local() {
  void* library = open_library("libcublas.so.13");
  EXPECT(product(function_of<Gemm>(library, "cublasGemmEx"), make_handle(library)) == 0);
  EXPECT(cublas_record(library)->calls == 1 && guarded(1));
  EXPECT(counted("routes_warm_calls", 1));
}

// cublasLtMatmul asked of libcublas's handle: Triton.
void route_other_handle() {
  void* library = open_library("libcublas.so.13");
  auto* matmul = function_of<Matmul>(library, "cublasLtMatmul");
  EXPECT(matmul != nullptr);
  EXPECT(matmul(make_handle(library), nullptr, &one, &operand, nullptr, &operand, nullptr, &none, &operand, nullptr,
                &operand, nullptr, nullptr, nullptr, 0, nullptr) == 0);
  EXPECT(cublaslt_record(library)->calls == 1 && guarded(1));
}

// RTLD_DEFAULT must not find the shim where there is no cuBLAS, nor one that another object loaded for itself.
void route_default_absent() {
  dlerror();
  EXPECT(dlsym(RTLD_DEFAULT, "cublasGemmEx") == nullptr);
  const char* message = dlerror();
  EXPECT(message != nullptr && strstr(message, "cublasGemmEx") != nullptr);
  void* library = open_library("libcublas.so.13");
  EXPECT(dlsym(RTLD_DEFAULT, "cublasGemmEx") == nullptr);
  EXPECT(dlsym(dlopen(nullptr, RTLD_NOW), "cublasGemmEx") == nullptr);
  dlerror();
  EXPECT(dlsym(library, "cublasGemmEx") != nullptr);
  EXPECT(dlerror() == nullptr);
}

void route_default_global() {
  void* library = open_library("libcublas.so.13", RTLD_NOW | RTLD_GLOBAL);
  auto* gemm = function_of<Gemm>(RTLD_DEFAULT, "cublasGemmEx");
  EXPECT(gemm != nullptr && dlerror() == nullptr);
  EXPECT(product(gemm, make_handle(library)) == 0);
  EXPECT(cublas_record(library)->calls == 1 && guarded(1));
}

// A third library's RTLD_NEXT and RTLD_DEFAULT, for a name of ours.
void route_next() {
  void* third = open_library("libthird_13.so");
  auto* next = function_of<void*(const char*)>(third, "third_next");
  auto* gemm = reinterpret_cast<Gemm*>(next("cublasGemmEx"));
  EXPECT(gemm != nullptr && dlerror() == nullptr);
  void* library = open_library("libcublas.so.13");
  EXPECT(product(gemm, make_handle(library)) == 0);
  EXPECT(cublas_record(library)->calls == 1 && guarded(1));
  // its own libcublas is in its scope, though not in the program's
  auto* by_default = function_of<void*(const char*)>(third, "third_default");
  EXPECT(by_default("cublasGemmEx") != nullptr && dlerror() == nullptr);
  EXPECT(dlsym(RTLD_DEFAULT, "cublasGemmEx") == nullptr);
}

// Names that are not ours: the caller's identity reaches glibc.
void route_tail_jump() {
  void* third = open_library("libthird_13.so");
  auto* next = function_of<void*(const char*)>(third, "third_next");
  auto* by_default = function_of<void*(const char*)>(third, "third_default");
  auto* scoped = reinterpret_cast<int (*)()>(by_default("only_in_local_scope"));
  EXPECT(scoped != nullptr && scoped() == 11);
  EXPECT(dlsym(RTLD_DEFAULT, "only_in_local_scope") == nullptr);
  auto* twice = reinterpret_cast<int (*)()>(next("twice_defined"));
  EXPECT(twice != nullptr && twice() == 2);
  EXPECT(function_of<int()>(third, "twice_defined")() == 1);
}

// Two majors in one process, by PLT of two plugins and by dlsym: each product reaches its own.
void route_two_majors() {
  void* third12 = open_library("libthird_12.so");
  void* third13 = open_library("libthird_13.so");
  void* library12 = open_library("libcublas.so.12");
  void* library13 = open_library("libcublas.so.13");
  EXPECT(function_of<int()>(third12, "third_product")() == 0);
  EXPECT(cublas_record(library12)->calls == 1 && cublas_record(library13)->calls == 0);
  EXPECT(function_of<int()>(third13, "third_product")() == 0);
  EXPECT(cublas_record(library12)->calls == 1 && cublas_record(library13)->calls == 1);
  void* handle12 = make_handle(library12);
  void* handle13 = make_handle(library13);
  auto* gemm12 = function_of<Gemm>(library12, "cublasGemmEx");
  auto* gemm13 = function_of<Gemm>(library13, "cublasGemmEx");
  EXPECT(product(gemm12, handle12) == 0 && cublas_record(library12)->calls == 2);
  EXPECT(product(gemm13, handle13) == 0 && cublas_record(library13)->calls == 2);
  EXPECT(guarded(4));
  // A handle that no wrapper saw made: the caller's own object decides.
  const uint64_t unseen[8] = {};
  EXPECT(function_of<int(const void*)>(third12, "third_product_on")(unseen) == 0);
  EXPECT(cublas_record(library12)->calls == 3 && cublas_record(library13)->calls == 2);
  EXPECT(function_of<int(const void*)>(third13, "third_product_on")(unseen) == 0);
  EXPECT(cublas_record(library12)->calls == 3 && cublas_record(library13)->calls == 3);
}

// A caller that was linked to no cuBLAS: only the handle tells which major it means.
void route_handle_decides() {
  void* library12 = open_library("libcublas.so.12");
  void* library13 = open_library("libcublas.so.13");
  auto* product_on = function_of<int(const void*)>(open_library("libunderlinked.so"), "third_product_on");
  void* handle12 = make_handle(library12);
  void* handle13 = make_handle(library13);
  for (int round = 1; round <= 3; ++round) {
    EXPECT(product_on(handle13) == 0 && cublas_record(library13)->calls == round);
    EXPECT(product_on(handle12) == 0 && cublas_record(library12)->calls == round);
  }
  EXPECT(guarded(6));
  // The value of a destroyed handle says nothing any more: the caller's own object decides again.
  static uint64_t place[8];
  function_of<void(void*)>(library12, "stub_put_next_handle")(place);
  EXPECT(make_handle(library12) == place);
  EXPECT(product_on(place) == 0 && cublas_record(library12)->calls == 4);
  EXPECT(function_of<Destroy>(library12, "cublasDestroy_v2")(place) == 0);
  void* third13 = open_library("libthird_13.so");
  EXPECT(function_of<int(const void*)>(third13, "third_product_on")(place) == 0);
  EXPECT(cublas_record(library12)->calls == 4 && cublas_record(library13)->calls == 4);
  // The same value, made again by the other major.
  function_of<void(void*)>(library13, "stub_put_next_handle")(place);
  EXPECT(make_handle(library13) == place);
  EXPECT(product_on(place) == 0 && cublas_record(library13)->calls == 5);
}

// libcublas calls the public cublasLtMatmul inside cublasGemmEx (STUB_ROUTE_LT=1): one guarded call, not two.
void route_depth() {
  setenv("STUB_ROUTE_LT", "1", 1);
  void* library = open_library("libcublas.so.13");
  EXPECT(product(function_of<Gemm>(library, "cublasGemmEx"), make_handle(library)) == 0);
  EXPECT(cublas_record(library)->calls == 1 && cublaslt_record(library)->calls == 1 && guarded(1));
}

void route_redefined() {
  void* middle = open_library("libredefines.so");
  void* library = open_library("libcublas.so.13");
  EXPECT(function_of<int(void*)>(middle, "redefines_product")(make_handle(library)) == 0);
  EXPECT(cublas_record(library)->calls == 1 && guarded(1));
  auto* gemm = function_of<Gemm>(middle, "cublasGemmEx");
  EXPECT(product(gemm, make_handle(library)) == 0);
  EXPECT(cublas_record(library)->calls == 2 && guarded(2));
}

// errno and a pending dlerror are as the untouched library leaves them.
void route_errors() {
  void* third = open_library("libthird_13.so");
  auto* make = function_of<int()>(third, "third_product");
  EXPECT(dlopen("libthis_is_not_there.so", RTLD_NOW) == nullptr);
  errno = 5;
  EXPECT(make() == 0);
  // Sampled: as found at entry. (The stub's own 77 is what an unsampled call would leave.)
  EXPECT(errno == 5);
  const char* message = dlerror();
  EXPECT(message != nullptr && strstr(message, "libthis_is_not_there.so") != nullptr);
}

void route_threads() {
  void* library = open_library("libcublas.so.13");
  void* handle = make_handle(library);
  void* third = open_library("libthird_13.so");
  auto* product_on = function_of<int(void*)>(third, "third_product_on");
  auto* gemm = function_of<Gemm>(library, "cublasGemmEx");
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  constexpr int kThreads = 8, kCalls = 200;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        if ((t % 2 == 0 ? product_on(handle) : product(gemm, handle)) != 0) ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(failed == 0 && guarded(kThreads * kCalls));
}

void route_fork() {
  void* library = open_library("libcublas.so.13");
  void* handle = make_handle(library);
  auto* gemm = function_of<Gemm>(library, "cublasGemmEx");
  EXPECT(product(gemm, handle) == 0);
  const pid_t child = fork();
  if (child == 0) {
    EXPECT(counted("routes_forgotten", 1));
    EXPECT(product(gemm, handle) == 0 && guarded(2));
    _exit(0);
  }
  int status = 0;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(counted("routes_forgotten", 0));
}

// Load, use and unload, more often than there are slots for libraries.
void route_reload() {
  for (int round = 0; round < 40; ++round) {
    void* library = open_library(round % 2 == 0 ? "libcublas.so.13" : "libcublas.so.12");
    auto* gemm = function_of<Gemm>(library, "cublasGemmEx");
    void* handle = make_handle(library);
    EXPECT(product(gemm, handle) == 0);
    EXPECT(cublas_record(library)->calls == 1 && guarded(round + 1));
    EXPECT(function_of<Destroy>(library, "cublasDestroy_v2")(handle) == 0);
    Dl_info info;
    EXPECT(dladdr(reinterpret_cast<void*>(cublas_record(library)), &info) != 0);
    EXPECT(dlclose(library) == 0);
    // The next one must come to lie elsewhere.
    EXPECT(mmap(info.dli_fbase, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
           info.dli_fbase);
  }
}

struct Route {
  const char* name;
  void (*run)();
};
const Route kRoutes[] = {
    {"local", route_local},
    {"other_handle", route_other_handle},
    {"default_absent", route_default_absent},
    {"default_global", route_default_global},
    {"next", route_next},
    {"tail_jump", route_tail_jump},
    {"two_majors", route_two_majors},
    {"handle_decides", route_handle_decides},
    {"depth", route_depth},
    {"redefined", route_redefined},
    {"errors", route_errors},
    {"threads", route_threads},
    {"fork", route_fork},
    {"reload", route_reload},
};

}  // namespace

int main(int, char** argv) {
  for (const Route& route : kRoutes) {
    if (strcmp(argv[1], route.name) != 0) continue;
    route.run();
    puts("ok");
    return 0;
  }
  return 2;
}

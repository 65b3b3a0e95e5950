// SPDX-License-Identifier: MIT
// routes: a program that reaches cuBLAS by one route and multiplies by the entries that it is told. It knows nothing of
// sdcguard. Built three times: linked to no cuBLAS; linked to it (ROUTE_LINKED); with definitions of the public names
// in the program itself (ROUTE_VISIBILITY).
//
//   routes --route R --entry SYMBOL [--entry SYMBOL ...]     prints "SYMBOL STATUS" lines, 0: success and the very
//   product
#include "entry_call.h"
//
#ifdef ROUTE_VISIBILITY
#include "route_definitions.h"
#endif
#include <dlfcn.h>

#if defined(ROUTE_LINKED) || defined(ROUTE_VISIBILITY)
#include "route_names.h"
#endif

namespace {

void* opened(const char* name, int flags) {
  void* library = dlopen(name, flags);
  if (library == nullptr) {
    std::fprintf(stderr, "routes: %s\n", dlerror());
    std::exit(2);
  }
  return library;
}

template <class Function>
Function* function_of(void* library, const char* name) {
  auto* function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) {
    std::fprintf(stderr, "routes: no %s\n", name);
    std::exit(2);
  }
  return function;
}

void* library_of(const char* name) {
  static void* const cublas = opened("libcublas.so.13", RTLD_NOW | RTLD_LOCAL);
  static void* const cublaslt = opened("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  return begins(name, "cublasLt") ? cublaslt : cublas;
}

void* plugin(int flags = RTLD_NOW | RTLD_LOCAL) {
  static void* const library = opened("libroute_plugin.so", flags);
  return library;
}

// ---- look-ups ------------------------------------------------------------------------------------------------------

void* by_handle(const char* name) {
  return dlsym(library_of(name), name);
}

// Through a handle of something that was linked to the library: Triton asks libcublas for cublasLtMatmul.
void* by_other_handle(const char* name) {
  return dlsym(begins(name, "cublasLt") ? library_of("cublas") : plugin(), name);
}

void* by_default(const char* name) {
  opened("libcublas.so.13", RTLD_NOW | RTLD_GLOBAL);
  return dlsym(RTLD_DEFAULT, name);
}

// A third library's RTLD_NEXT and RTLD_DEFAULT: cuBLAS is in its scope alone.
void* by_plugins_next(const char* name) {
  return function_of<void*(const char*)>(plugin(), "plugin_next")(name);
}
void* by_plugins_default(const char* name) {
  return function_of<void*(const char*)>(plugin(), "plugin_default")(name);
}

void* by_version(const char* name) {
  return dlvsym(library_of(name), name, begins(name, "cublasLt") ? "libcublasLt.so.13" : "libcublas.so.13");
}

void* by_handle_of_12(const char* name) {
  static void* const cublas = opened("libcublas.so.12", RTLD_NOW | RTLD_LOCAL);
  static void* const cublaslt = opened("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
  return dlsym(begins(name, "cublasLt") ? cublaslt : cublas, name);
}

// ---- routes --------------------------------------------------------------------------------------------------------

template <Lookup lookup>
int called_here(const char* symbol) {
  return call_entry(symbol, lookup);
}

// FlashInfer: the cublasHandle_t is given to cublasLtMatmul.
int cast_handle(const char* symbol) {
  return call_entry(symbol, by_handle, true);
}

// Two majors in one process, in turn.
int both_majors(const char* symbol) {
  const int status = call_entry(symbol, by_handle_of_12);
  return status == 0 ? call_entry(symbol, by_handle) : status;
}

// The libraries are opened for one product and closed behind it.
int reopened(const char* symbol) {
  static void* cublas = nullptr;
  static void* cublaslt = nullptr;
  cublas = opened("libcublas.so.13", RTLD_NOW | RTLD_LOCAL);
  cublaslt = opened("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  const int status =
      call_entry(symbol, [](const char* name) { return dlsym(begins(name, "cublasLt") ? cublaslt : cublas, name); });
  dlclose(cublaslt);
  dlclose(cublas);
  return status;
}

int by_plugin(const char* library, int flags, const char* symbol) {
  return function_of<int(const char*)>(opened(library, flags), "plugin_call")(symbol);
}
int in_local_plugin(const char* symbol) {
  return by_plugin("libroute_plugin.so", RTLD_NOW | RTLD_LOCAL, symbol);
}
int in_lazy_plugin(const char* symbol) {
  return by_plugin("libroute_plugin.so", RTLD_LAZY | RTLD_LOCAL, symbol);
}
int in_deepbind_plugin(const char* symbol) {
  return by_plugin("libroute_plugin.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND, symbol);
}
int by_hidden_trampolines(const char* symbol) {
  return by_plugin("libroute_hidden.so", RTLD_NOW | RTLD_LOCAL, symbol);
}
int by_redefined_names(const char* symbol) {
  return by_plugin("libroute_redefined.so", RTLD_NOW | RTLD_LOCAL, symbol);
}

struct Route {
  const char* name;
  int (*call)(const char* symbol);
};
constexpr Route kRoutes[] = {
#if defined(ROUTE_LINKED)
    {"linked", called_here<by_name>},
#elif defined(ROUTE_VISIBILITY)
    {"defines", called_here<by_name>},
#endif
    {"handle", called_here<by_handle>},
    {"other_handle", called_here<by_other_handle>},
    {"default", called_here<by_default>},
    {"plugins_next", called_here<by_plugins_next>},
    {"plugins_default", called_here<by_plugins_default>},
    {"version", called_here<by_version>},
    {"cast_handle", cast_handle},
    {"both_majors", both_majors},
    {"reopened", reopened},
    {"local_plugin", in_local_plugin},
    {"lazy_plugin", in_lazy_plugin},
    {"deepbind_plugin", in_deepbind_plugin},
    {"hidden", by_hidden_trampolines},
    {"redefined", by_redefined_names},
};

}  // namespace

int main(int argc, char** argv) {
  const Route* route = nullptr;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--route") == 0) {
      for (const Route& one : kRoutes) {
        if (strcmp(one.name, argv[i + 1]) == 0) route = &one;
      }
    }
    if (route == nullptr) {
      std::fprintf(stderr, "routes: no route %s\n", argv[i + 1]);
      return 2;
    }
    if (strcmp(argv[i], "--entry") == 0) {
      // The end of the line comes after the call: what the route prints itself would show.
      std::printf("%s ", argv[i + 1]);
      std::printf("%d\n", route->call(argv[i + 1]));
    }
  }
  return 0;
}

// SPDX-License-Identifier: MIT
// One product by any entry of entry_points.def on the device, small whole numbers in, so that the exact result is known
// whatever the accumulator. Compiled into every object that calls: the call instruction must lie in that object, since
// who calls is part of a route.
//
// "SYMBOL" takes the entry's first type of entry_types.h, "SYMBOL@TYPE" the one named.
//
// Arguments are chosen by the names that the table gives them, and by their types:
//   a pointer to a pointer     device array of the batch's addresses        (GemmBatched, GemmGroupedBatched)
//   a pointer to an integer    host array of one group's value              (GemmGroupedBatched)
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "entry_table.h"
#include "entry_types.h"

namespace {  // one copy an object, whatever the loader thinks of equal names

// How an object finds a function of cuBLAS or cuBLASLt. Null: it cannot.
using Lookup = void* (*)(const char* name);

constexpr int kAbsent = -1;       // the route gives no such function
constexpr int kWrongResult = -2;  // success, and not the product
constexpr int kOtherError = -3;   // the program's own CUDA calls failed
constexpr int kNoSuchType = -4;   // entry_types.h has no such type for the entry

constexpr int64_t kRows = 32, kColumns = 32, kInner = 48, kBatch = 2;

size_t bytes_of(int type) {
  switch (type) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_16BF:
    case CUDA_R_16F:
      return 2;
    default:
      return 1;
  }
}

template <class T>
void store_as(T value, void* to) {
  memcpy(to, &value, sizeof(value));
}
void store(int type, void* to, double value) {
  const auto narrow = static_cast<float>(value);
  switch (type) {
    case CUDA_R_16BF:
      return store_as(__float2bfloat16(narrow), to);
    case CUDA_R_16F:
      return store_as(__float2half(narrow), to);
    case CUDA_R_32F:
      return store_as(narrow, to);
    case CUDA_R_64F:
      return store_as(value, to);
    case CUDA_R_32I:
      return store_as(static_cast<int32_t>(value), to);
    case CUDA_R_8I:
      return store_as(static_cast<int8_t>(value), to);
    case CUDA_R_8F_E4M3:
      return store_as(__nv_fp8_e4m3(narrow), to);
    default:
      return store_as(__nv_fp8_e5m2(narrow), to);
  }
}

// Entry i of an operand: whole numbers from -2 to 2, so that every sum of 48 products is exact in every type.
int operand_entry(int64_t i, int64_t seed) {
  return static_cast<int>((i * 7 + i / 5 + seed * 3) % 5) - 2;
}

// A batch of rows x columns matrices, column-major, or each stored as its transpose.
std::vector<char> operand(int type, int64_t rows, int64_t columns, int64_t batch, int64_t seed, bool transposed) {
  std::vector<char> values(static_cast<size_t>(rows * columns * batch) * bytes_of(type));
  for (int64_t i = 0; i < rows * columns * batch; ++i) {
    const int64_t within = i % (rows * columns);
    const int64_t row = within % rows, column = within / rows;
    const int64_t at = transposed ? i - within + column + row * columns : i;
    store(type, values.data() + static_cast<size_t>(at) * bytes_of(type), operand_entry(i, seed));
  }
  return values;
}

void* on_device(const void* from, size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess ||
      cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice) != cudaSuccess)
    return nullptr;
  return memory;
}

bool begins(const std::string& text, const char* with) {
  return text.rfind(with, 0) == 0;
}

struct Product {
  std::map<std::string, uint64_t> words;  // argument values by the table's names
  EntryType type = {};
  int64_t batch = 1;
  void* result = nullptr;
};

uint64_t word_of(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

// Values of all arguments that a product of cublas, by whatever entry, may have. Kept for the life of the process.
Product make_product(const std::string& symbol, const EntryType& type, void* handle) {
  Product p;
  p.type = type;
  if (symbol.find("Batched") != std::string::npos) p.batch = kBatch;
  const size_t in_a = bytes_of(type.a), in_b = bytes_of(type.b), out = bytes_of(type.c);
  const bool transposed = type.transa != 0;
  const std::vector<char> a = operand(type.a, kRows, kInner, p.batch, 1, transposed),
                          b = operand(type.b, kInner, kColumns, p.batch, 2, false);
  const std::vector<char> none(static_cast<size_t>(kRows * kColumns * p.batch) * out, static_cast<char>(0xff));
  char* a_dev = static_cast<char*>(on_device(a.data(), a.size()));
  char* b_dev = static_cast<char*>(on_device(b.data(), b.size()));
  char* c_dev = static_cast<char*>(on_device(none.data(), none.size()));
  p.result = c_dev;
  std::vector<void*> a_of, b_of, c_of;
  for (int64_t i = 0; i < p.batch; ++i) {
    a_of.push_back(a_dev + static_cast<size_t>(i * kRows * kInner) * in_a);
    b_of.push_back(b_dev + static_cast<size_t>(i * kInner * kColumns) * in_b);
    c_of.push_back(c_dev + static_cast<size_t>(i * kRows * kColumns) * out);
  }
  const size_t pointers = a_of.size() * sizeof(void*);
  char* scalars = new char[2 * sizeof(double)];
  store(type.scale, scalars, 1);
  store(type.scale, scalars + sizeof(double), 0);
  constexpr int kDefaultAlgo = -1;
  p.words = {{"handle", word_of(handle)},
             {"transa", static_cast<uint64_t>(type.transa)},
             {"transb", 0},
             {"m", kRows},
             {"n", kColumns},
             {"k", kInner},
             {"alpha", word_of(scalars)},
             {"beta", word_of(scalars + sizeof(double))},
             {"a", word_of(a_dev)},
             {"b", word_of(b_dev)},
             {"c", word_of(c_dev)},
             {"a**", word_of(on_device(a_of.data(), pointers))},
             {"b**", word_of(on_device(b_of.data(), pointers))},
             {"c**", word_of(on_device(c_of.data(), pointers))},
             {"type_a", static_cast<uint64_t>(type.a)},
             {"type_b", static_cast<uint64_t>(type.b)},
             {"type_c", static_cast<uint64_t>(type.c)},
             {"lda", static_cast<uint64_t>(transposed ? kInner : kRows)},
             {"ldb", kInner},
             {"ldc", kRows},
             {"stride_a", kRows * kInner},
             {"stride_b", kInner * kColumns},
             {"stride_c", kRows * kColumns},
             {"batch", p.batch},
             {"groups", 1},
             {"group_sizes", p.batch},
             {"compute", static_cast<uint64_t>(type.compute)},
             {"algo", static_cast<uint64_t>(int64_t{kDefaultAlgo})}};
  return p;
}

template <class Argument>
Argument argument_of(const Product& p, const std::string& name) {
  if constexpr (std::is_pointer_v<Argument>) {
    using Pointee = std::remove_const_t<std::remove_pointer_t<Argument>>;
    if constexpr (std::is_integral_v<Pointee>) {
      return new Pointee(static_cast<Pointee>(p.words.at(name)));
    } else {
      return reinterpret_cast<Argument>(p.words.at(std::is_pointer_v<Pointee> ? name + "**" : name));
    }
  } else {
    return static_cast<Argument>(p.words.at(name));
  }
}

// "(handle, transa, m)" as a list.
std::vector<std::string> names_in(const char* list) {
  std::vector<std::string> names(1);
  for (const char* c = list; *c != 0; ++c) {
    if (*c == ',') {
      names.emplace_back();
    } else if (*c != '(' && *c != ')' && *c != ' ') {
      names.back() += *c;
    }
  }
  return names;
}

template <class... A, size_t... I>
int invoke_indexed(int (*function)(A...), const std::vector<std::string>& names, const Product& p,
                   std::index_sequence<I...>) {
  return function(argument_of<A>(p, names[I])...);
}
template <class... A>
int invoke(int (*function)(A...), const char* names, const Product& p) {
  return invoke_indexed(function, names_in(names), p, std::index_sequence_for<A...>());
}

template <class Function, class... A>
int ask(Lookup lookup, const char* name, A... arguments) {
  auto* function = reinterpret_cast<Function*>(lookup(name));
  return function == nullptr ? kAbsent : function(arguments...);
}

// Whether D on the device is the product.
bool is_right(const Product& p) {
  std::vector<char> got(static_cast<size_t>(kRows * kColumns * p.batch) * bytes_of(p.type.c));
  if (cudaDeviceSynchronize() != cudaSuccess ||
      cudaMemcpy(got.data(), p.result, got.size(), cudaMemcpyDeviceToHost) != cudaSuccess)
    return false;
  size_t at = 0;
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    for (int64_t j = 0; j < kColumns; ++j) {
      for (int64_t i = 0; i < kRows; ++i, at += bytes_of(p.type.c)) {
        int sum = 0;
        for (int64_t l = 0; l < kInner; ++l) {
          sum += operand_entry(batch * kRows * kInner + i + l * kRows, 1) *
                 operand_entry(batch * kInner * kColumns + l + j * kInner, 2);
        }
        char expected[sizeof(double)];
        store(p.type.c, expected, sum);
        if (memcmp(expected, got.data() + at, bytes_of(p.type.c)) != 0) return false;
      }
    }
  }
  return true;
}

// The descriptors of cublasLtMatmul, made by the same route.
int add_descriptors(Product& p, Lookup lookup) {
  using DescCreate = int(void**, int, int);
  using LayoutCreate = int(void**, int, uint64_t, uint64_t, int64_t);
  using DescSet = int(void*, int, const void*, size_t);
  constexpr int kTransA = 3;
  void *desc = nullptr, *a = nullptr, *b = nullptr, *c = nullptr;
  const EntryType& type = p.type;
  int status = ask<DescCreate>(lookup, "cublasLtMatmulDescCreate", &desc, type.compute, type.scale);
  if (status == 0 && type.transa != 0) {
    status = ask<DescSet>(lookup, "cublasLtMatmulDescSetAttribute", desc, kTransA, &type.transa, sizeof(type.transa));
  }
  const auto layout = [&](void** made, int of, int64_t rows, int64_t columns) {
    if (status == 0) {
      status = ask<LayoutCreate>(lookup, "cublasLtMatrixLayoutCreate", made, of, static_cast<uint64_t>(rows),
                                 static_cast<uint64_t>(columns), rows);
    }
  };
  layout(&a, type.a, type.transa != 0 ? kInner : kRows, type.transa != 0 ? kRows : kInner);
  layout(&b, type.b, kInner, kColumns);
  layout(&c, type.c, kRows, kColumns);
  p.words.insert({{"desc", word_of(desc)},
                  {"a_desc", word_of(a)},
                  {"b_desc", word_of(b)},
                  {"c_desc", word_of(c)},
                  {"d_desc", word_of(c)},
                  {"d", p.words["c"]},
                  {"workspace", 0},
                  {"workspace_bytes", 0},
                  {"stream", 0}});
  p.words["algo"] = 0;
  return status;
}

// One product by `symbol`, found by `lookup` as all else that it needs of cuBLAS. `lt_handle_is_cublas`: cublasLtMatmul
// is given the cublasHandle_t. The library's status, or one of the values above.
int call_entry(const char* entry, Lookup lookup, bool lt_handle_is_cublas = false) {
  const std::string named = entry;
  const std::string name = named.substr(0, named.find('@'));
  const char* symbol = name.c_str();
  const EntryType* type = entry_type(name, named.size() == name.size() ? "" : named.substr(name.size() + 1));
  if (type == nullptr) return kNoSuchType;
  const bool lt = begins(symbol, "cublasLt");
  void* handle = nullptr;
  int status = ask<int(void**)>(lookup, lt && !lt_handle_is_cublas ? "cublasLtCreate" : "cublasCreate_v2", &handle);
  if (status != 0) return status;
  Product p = make_product(symbol, *type, handle);
  if (lt) status = add_descriptors(p, lookup);
  if (status != 0) return status;
  if (p.result == nullptr || cudaDeviceSynchronize() != cudaSuccess) return kOtherError;
  void* function = lookup(symbol);
  if (function == nullptr) return kAbsent;
#define ENTRY_CALL_kCreate(...)
#define ENTRY_CALL_kDestroy(...)
#define ENTRY_CALL_kProduct(name, parameters, arguments) \
  if (strcmp(symbol, #name) == 0) status = invoke(reinterpret_cast<int(*) parameters>(function), #arguments, p);
#define ENTRY_ROW(kind, ...) ENTRY_CALL_##kind(__VA_ARGS__)
#define SDCGUARD_ENTRY(...) ENTRY_ROW_EXPANDED(__VA_ARGS__)
#include "shim/entry_points.def"
#undef SDCGUARD_ENTRY
#undef ENTRY_ROW
#undef ENTRY_CALL_kProduct
#undef ENTRY_CALL_kDestroy
#undef ENTRY_CALL_kCreate
  return status == 0 && !is_right(p) ? kWrongResult : status;
}

}  // namespace

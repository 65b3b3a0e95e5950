// SPDX-License-Identifier: MIT
// tensor_core_vectors ORDER FILE.u32: holds a step model against inner products that a real GPU returned.
// Prints "matched N of M"; exit code 0 only if all match, 1 if some do not, 2 for a wrong argument or file.
#include <cstdio>
#include <string>

#include "tools/hostcuda/gemm/order.h"
#include "tools/hostcuda/gemm/vectors.h"

int main(int argc, char** argv) {
  using namespace hostcuda::gemm;
  if (argc != 3) {
    std::fprintf(stderr, "usage: tensor_core_vectors ORDER GPU_FORMAT.u32    (ORDER: h100 a100 ada v100 b200)\n");
    return 2;
  }
  Order order;
  VectorFile file;
  StepModel model{};
  std::string error;
  if (!parse_order(argv[1], &order, &error) || !read_vectors(argv[2], &file, &error) ||
      !step_model_for(order, file.format, &model, &error)) {
    std::fprintf(stderr, "tensor_core_vectors: %s\n", error.c_str());
    return 2;
  }
  int64_t first_mismatch = -1;
  const int64_t matched = count_matches(model, file, &first_mismatch);
  std::printf("matched %lld of %lld\n", static_cast<long long>(matched), static_cast<long long>(file.records()));
  if (first_mismatch >= 0) {
    std::fprintf(stderr, "first record that differs: %lld\n", static_cast<long long>(first_mismatch));
  }
  return matched == file.records() ? 0 : 1;
}

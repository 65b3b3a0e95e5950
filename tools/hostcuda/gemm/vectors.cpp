// SPDX-License-Identifier: MIT
// Reading and checking of tensor-core vector files.
#include "vectors.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>

namespace hostcuda::gemm {
namespace {

// K of the 16-bit formats, as the vectors were measured; TF32 files hold 4, FP8 files 32.
struct Gpu {
  const char* name;
  int64_t products;
};
constexpr Gpu kGpus[] = {{"V100", 4}, {"A100", 8}, {"L40S", 8}, {"H100", 16}, {"H200", 16}, {"B200", 16}};

}  // namespace

bool read_vectors(const std::string& path, VectorFile* file, std::string* error) {
  const size_t slash = path.find_last_of('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const size_t underscore = name.find('_');
  const size_t dot = name.rfind(".u32");
  if (underscore == std::string::npos || dot == std::string::npos || dot + 4 != name.size() || dot < underscore) {
    *error = path + ": the name must be GPU_FORMAT.u32, for example H100_bf16.u32";
    return false;
  }
  const std::string gpu = name.substr(0, underscore);
  const std::string format = name.substr(underscore + 1, dot - underscore - 1);
  const auto* found =
      std::find_if(std::begin(kGpus), std::end(kGpus), [&](const Gpu& candidate) { return gpu == candidate.name; });
  if (found == std::end(kGpus)) {
    *error = path + ": unknown GPU \"" + gpu + "\"; allowed: V100 A100 L40S H100 H200 B200";
    return false;
  }
  file->gpu = gpu;
  file->products = found->products;
  if (format == "bf16") {
    file->format = Format::kBf16;
  } else if (format == "fp16") {
    file->format = Format::kFp16;
  } else if (format == "tf32") {
    file->format = Format::kTf32;
    file->products = 4;
  } else if (format == "E4M3" || format == "E5M2") {
    file->format = format == "E4M3" ? Format::kE4m3 : Format::kE5m2;
    file->products = 32;
  } else {
    *error = path + ": unknown format \"" + format + "\"; allowed: bf16 fp16 tf32 E4M3 E5M2";
    return false;
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    *error = path + ": cannot be opened";
    return false;
  }
  const std::vector<char> bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  const size_t record_bytes = static_cast<size_t>(2 * file->products + 2) * 4;
  if (bytes.empty() || bytes.size() % record_bytes != 0) {
    *error = path + ": " + std::to_string(bytes.size()) + " bytes are not a whole number of records of " +
             std::to_string(record_bytes);
    return false;
  }
  file->words.resize(bytes.size() / 4);
  for (size_t i = 0; i < file->words.size(); ++i) {
    uint32_t word = 0;
    for (size_t byte = 0; byte < 4; ++byte) {
      word |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[4 * i + byte])) << (8 * byte);
    }
    file->words[i] = word;
  }
  return true;
}

bool step_model_for(const Order& order, Format format, StepModel* model, std::string* error) {
  if (order.rule != Rule::kTensorCore || order.splits != 1) {
    *error = "order \"" + order.name + "\" is not one tensor-core step; allowed: h100 a100 ada v100 b200";
    return false;
  }
  const Type type = format == Format::kBf16   ? Type::kBf16
                    : format == Format::kTf32 ? Type::kFp32
                    : format == Format::kE4m3 ? Type::kE4m3
                    : format == Format::kE5m2 ? Type::kE5m2
                                              : Type::kFp16;
  const Compute compute = format == Format::kTf32 ? Compute::kTf32 : Compute::kFp32;
  if (!supports(order, type, type, compute)) {
    *error = "order \"" + order.name + "\" lacks the format";
    return false;
  }
  *model = chain_of(order, type, type, compute).step;
  return true;
}

int64_t count_matches(const StepModel& model, const VectorFile& file, int64_t* first_mismatch) {
  const size_t k = static_cast<size_t>(file.products);
  const size_t record_words = 2 * k + 2;
  std::vector<float> operands(2 * k);
  int64_t matched = 0;
  *first_mismatch = -1;
  for (int64_t record = 0; record < file.records(); ++record) {
    const uint32_t* words = file.words.data() + static_cast<size_t>(record) * record_words;
    std::transform(words, words + 2 * k, operands.begin(), [](uint32_t word) { return std::bit_cast<float>(word); });
    const float d = tensor_core_chain(model, file.format, operands.data(), operands.data() + k, file.products,
                                      std::bit_cast<float>(words[2 * k]));
    if (std::bit_cast<uint32_t>(d) == words[2 * k + 1]) {
      ++matched;
    } else if (*first_mismatch < 0) {
      *first_mismatch = record;
    }
  }
  return matched;
}

}  // namespace hostcuda::gemm

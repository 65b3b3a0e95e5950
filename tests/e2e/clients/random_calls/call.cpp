// SPDX-License-Identifier: MIT
// The text form of a call's description.
#include "call.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace calls {

#define BOTH(symbol, family)            \
  {#symbol, Family::family, false}, {   \
#symbol "_64", Family::family, true \
  }
const EntryPoint kEntries[kEntryPoints] = {
    BOTH(cublasGemmEx, kGemmEx),
    BOTH(cublasGemmBatchedEx, kGemmBatchedEx),
    BOTH(cublasGemmStridedBatchedEx, kGemmStridedBatchedEx),
    BOTH(cublasGemmGroupedBatchedEx, kGemmGroupedBatchedEx),
    BOTH(cublasSgemmEx, kSgemmEx),
    BOTH(cublasSgemm_v2, kSgemm),
    BOTH(cublasDgemm_v2, kDgemm),
    BOTH(cublasHgemm, kHgemm),
    BOTH(cublasSgemmBatched, kSgemmBatched),
    BOTH(cublasDgemmBatched, kDgemmBatched),
    BOTH(cublasHgemmBatched, kHgemmBatched),
    BOTH(cublasSgemmStridedBatched, kSgemmStridedBatched),
    BOTH(cublasDgemmStridedBatched, kDgemmStridedBatched),
    BOTH(cublasHgemmStridedBatched, kHgemmStridedBatched),
    BOTH(cublasSgemmGroupedBatched, kSgemmGroupedBatched),
    BOTH(cublasDgemmGroupedBatched, kDgemmGroupedBatched),
    {"cublasLtMatmul", Family::kLtMatmul, false},
};
#undef BOTH

namespace {

template <typename T>
struct Named {
  const char* name;
  T value;
};

constexpr Named<cublasComputeType_t> kComputes[] = {
    {"16F", CUBLAS_COMPUTE_16F},
    {"16F_PEDANTIC", CUBLAS_COMPUTE_16F_PEDANTIC},
    {"32F", CUBLAS_COMPUTE_32F},
    {"32F_PEDANTIC", CUBLAS_COMPUTE_32F_PEDANTIC},
    {"32F_FAST_16F", CUBLAS_COMPUTE_32F_FAST_16F},
    {"32F_FAST_16BF", CUBLAS_COMPUTE_32F_FAST_16BF},
    {"32F_FAST_TF32", CUBLAS_COMPUTE_32F_FAST_TF32},
    {"64F", CUBLAS_COMPUTE_64F},
    {"64F_PEDANTIC", CUBLAS_COMPUTE_64F_PEDANTIC},
    {"32I", CUBLAS_COMPUTE_32I},
    {"32I_PEDANTIC", CUBLAS_COMPUTE_32I_PEDANTIC},
};
constexpr Named<cublasMath_t> kMaths[] = {
    {"default", CUBLAS_DEFAULT_MATH},
    {"pedantic", CUBLAS_PEDANTIC_MATH},
    {"tf32", CUBLAS_TF32_TENSOR_OP_MATH},
    {"whole", CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION},
};
constexpr Named<uint32_t> kEpilogues[] = {
    {"default", CUBLASLT_EPILOGUE_DEFAULT},     {"relu", CUBLASLT_EPILOGUE_RELU},
    {"relu_aux", CUBLASLT_EPILOGUE_RELU_AUX},   {"bias", CUBLASLT_EPILOGUE_BIAS},
    {"relu_bias", CUBLASLT_EPILOGUE_RELU_BIAS}, {"relu_aux_bias", CUBLASLT_EPILOGUE_RELU_AUX_BIAS},
    {"drelu", CUBLASLT_EPILOGUE_DRELU},         {"drelu_bgrad", CUBLASLT_EPILOGUE_DRELU_BGRAD},
    {"gelu", CUBLASLT_EPILOGUE_GELU},           {"gelu_aux", CUBLASLT_EPILOGUE_GELU_AUX},
    {"gelu_bias", CUBLASLT_EPILOGUE_GELU_BIAS}, {"gelu_aux_bias", CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
    {"dgelu", CUBLASLT_EPILOGUE_DGELU},         {"dgelu_bgrad", CUBLASLT_EPILOGUE_DGELU_BGRAD},
    {"bgrada", CUBLASLT_EPILOGUE_BGRADA},       {"bgradb", CUBLASLT_EPILOGUE_BGRADB},
};
constexpr Named<Data> kData[] = {
    {"gauss", Data::kGauss},       {"positive", Data::kPositive},
    {"integers", Data::kIntegers}, {"powers", Data::kPowers},
    {"tiny", Data::kTiny},         {"sparse", Data::kSparse},
    {"constant", Data::kConstant}, {"huge", Data::kHuge},
    {"zero", Data::kZero},         {"ones", Data::kOnes},
    {"nan", Data::kNan},           {"inf", Data::kInf},
    {"ladder", Data::kLadder},     {"ladder_ones", Data::kLadderOnes},
};
constexpr Named<Spread> kSpreads[] = {
    {"apart", Spread::kApart}, {"zero", Spread::kZero}, {"interleaved", Spread::kInterleaved}};
constexpr Named<Scalars> kScalars[] = {
    {"host", Scalars::kHost},
    {"device", Scalars::kDevice},
    {"vector", Scalars::kVector},
    {"alpha_vector_beta_zero", Scalars::kAlphaVectorBetaZero},
    {"alpha_vector_beta_host", Scalars::kAlphaVectorBetaHost},
};
constexpr Named<Addend> kAddends[] = {
    {"in_place", Addend::kInPlace}, {"apart", Addend::kApart}, {"null", Addend::kNull}};

template <typename T, size_t N>
const char* name_in(const Named<T> (&names)[N], T value) {
  for (const Named<T>& one : names) {
    if (one.value == value) return one.name;
  }
  return "?";
}

template <typename T, size_t N>
T value_in(const Named<T> (&names)[N], const std::string& key, const std::string& name) {
  for (const Named<T>& one : names) {
    if (name == one.name) return one.value;
  }
  throw std::runtime_error(key + "=" + name + ": no such value");
}

Num number_in(const std::string& key, const std::string& name) {
  Num num;
  if (!num_of(name, &num)) throw std::runtime_error(key + "=" + name + ": no such type");
  return num;
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) parts.push_back(part);
  return parts;
}

std::vector<std::string> split(const std::string& key, const std::string& text, char by, size_t count) {
  std::vector<std::string> parts = split(text, by);
  if (parts.size() != count) throw std::runtime_error(key + "=" + text + ": " + std::to_string(count) + " values");
  return parts;
}

std::string number_text(double x) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", x);
  return text;
}

void read_shapes(const std::string& text, Call* call) {
  call->groups.clear();
  for (const std::string& one : split(text, '+')) {
    const std::vector<std::string> parts = split("shape", one, 'x', 5);
    Group group;
    group.m = std::stoll(parts[0]);
    group.n = std::stoll(parts[1]);
    group.k = std::stoll(parts[2]);
    if (parts[3].size() != 2) throw std::runtime_error("shape=" + one + ": two letters");
    group.trans_a = parts[3][0];
    group.trans_b = parts[3][1];
    group.count = std::stoll(parts[4]);
    call->groups.push_back(group);
  }
}

void read_scalars(const std::string& text, Call* call) {
  const std::vector<std::string> groups = split("scalars", text, '+', call->groups.size());
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::vector<std::string> parts = split("scalars", groups[i], ',', 2);
    call->groups[i].alpha = std::stod(parts[0]);
    call->groups[i].beta = std::stod(parts[1]);
  }
}

void read_key(const std::string& key, const std::string& value, Call* call) {
  if (key == "shape") {
    read_shapes(value, call);
  } else if (key == "scalars") {
    read_scalars(value, call);
  } else if (key == "types") {
    const std::vector<std::string> parts = split(key, value, ',', 4);
    call->a = number_in(key, parts[0]);
    call->b = number_in(key, parts[1]);
    call->c = number_in(key, parts[2]);
    call->d = number_in(key, parts[3]);
  } else if (key == "compute") {
    call->compute = value_in(kComputes, key, value);
  } else if (key == "scale") {
    call->scale = number_in(key, value);
  } else if (key == "math") {
    call->math = value_in(kMaths, key, value);
  } else if (key == "pad" || key == "offset") {
    const std::vector<std::string> parts = split(key, value, ',', 4);
    for (size_t i = 0; i < 4; ++i) (key == "pad" ? call->pad : call->offset)[i] = std::stoll(parts[i]);
  } else if (key == "spread") {
    const std::vector<std::string> parts = split(key, value, ',', 3);
    for (size_t i = 0; i < 3; ++i) call->spread[i] = value_in(kSpreads, key, parts[i]);
  } else if (key == "order") {
    if (value.size() != 3) throw std::runtime_error(key + "=" + value + ": three letters");
    for (size_t i = 0; i < 3; ++i) call->row_major[i] = value[i] == 'r';
  } else if (key == "pointers") {
    call->scalars = value_in(kScalars, key, value);
  } else if (key == "addend") {
    call->addend = value_in(kAddends, key, value);
  } else if (key == "epilogue") {
    call->epilogue = value_in(kEpilogues, key, value);
  } else if (key == "bias") {
    call->bias = number_in(key, value);
  } else if (key == "bias_by_batch") {
    call->bias_by_batch = value == "1";
  } else if (key == "aux") {
    call->aux = number_in(key, value);
  } else if (key == "scales") {
    for (size_t i = 0; i < 3; ++i) call->has_scale[i] = value.find("abd"[i]) != std::string::npos;
    call->outer_scales = value.find('o') != std::string::npos;
  } else if (key == "amax") {
    call->amax = value == "1";
  } else if (key == "fast") {
    call->fast_accumulation = value == "1";
  } else if (key == "data") {
    const std::vector<std::string> parts = split(key, value, ',', 3);
    call->data_a = value_in(kData, key, parts[0]);
    call->data_b = value_in(kData, key, parts[1]);
    call->data_c = value_in(kData, key, parts[2]);
  } else if (key == "seed") {
    call->seed = std::stoull(value);
  } else {
    throw std::runtime_error(key + ": no such key");
  }
}

}  // namespace

const EntryPoint& entry_of(const Call& call) {
  return kEntries[call.entry];
}

bool is_lt(const Call& call) {
  return entry_of(call).family == Family::kLtMatmul;
}

bool is_grouped(const Call& call) {
  const Family family = entry_of(call).family;
  return family == Family::kGemmGroupedBatchedEx || family == Family::kSgemmGroupedBatched ||
         family == Family::kDgemmGroupedBatched;
}

bool by_pointers(const Call& call) {
  const Family family = entry_of(call).family;
  return is_grouped(call) || family == Family::kGemmBatchedEx || family == Family::kSgemmBatched ||
         family == Family::kDgemmBatched || family == Family::kHgemmBatched;
}

std::string text_of(const Call& call) {
  std::string text = entry_of(call).symbol;
  std::string shapes, scalars;
  for (const Group& g : call.groups) {
    const char* plus = shapes.empty() ? "" : "+";
    shapes += plus + std::to_string(g.m) + "x" + std::to_string(g.n) + "x" + std::to_string(g.k) + "x" + g.trans_a +
              g.trans_b + "x" + std::to_string(g.count);
    scalars += plus + number_text(g.alpha) + "," + number_text(g.beta);
  }
  const auto name = [](Num num) { return std::string(format_of(num).name); };
  const auto four = [](const int64_t* x) {
    return std::to_string(x[0]) + "," + std::to_string(x[1]) + "," + std::to_string(x[2]) + "," + std::to_string(x[3]);
  };
  text += " shape=" + shapes + " scalars=" + scalars + " types=" + name(call.a) + "," + name(call.b) + "," +
          name(call.c) + "," + name(call.d) + " compute=" + name_in(kComputes, call.compute) +
          " scale=" + name(call.scale) + " math=" + name_in(kMaths, call.math) + " pad=" + four(call.pad) +
          " offset=" + four(call.offset) + " spread=" + name_in(kSpreads, call.spread[0]) + "," +
          name_in(kSpreads, call.spread[1]) + "," + name_in(kSpreads, call.spread[2]) + " order=";
  for (const bool row_major : call.row_major) text += row_major ? 'r' : 'c';
  text += std::string(" pointers=") + name_in(kScalars, call.scalars) + " addend=" + name_in(kAddends, call.addend) +
          " epilogue=" + name_in(kEpilogues, call.epilogue) + " bias=" + name(call.bias) +
          " bias_by_batch=" + (call.bias_by_batch ? "1" : "0") + " aux=" + name(call.aux) + " scales=";
  for (size_t i = 0; i < 3; ++i) text += call.has_scale[i] ? "abd"[i] : '-';
  text += std::string(call.outer_scales ? "o" : "") + " amax=" + (call.amax ? "1" : "0") +
          " fast=" + (call.fast_accumulation ? "1" : "0") + " data=" + name_in(kData, call.data_a) + "," +
          name_in(kData, call.data_b) + "," + name_in(kData, call.data_c) + " seed=" + std::to_string(call.seed);
  return text;
}

Call parse(const std::string& text) {
  Call call;
  std::istringstream in(text);
  std::string word;
  in >> word;
  call.entry = -1;
  for (int i = 0; i < kEntryPoints; ++i) {
    if (word == kEntries[i].symbol) call.entry = i;
  }
  if (call.entry < 0) throw std::runtime_error(word + ": no such entry point");
  std::vector<std::pair<std::string, std::string>> keys;
  while (in >> word) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) throw std::runtime_error(word + ": not key=value");
    keys.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  // The shapes say how many groups there are, of which each has its scalars.
  std::stable_partition(keys.begin(), keys.end(), [](const auto& key) { return key.first == "shape"; });
  for (const auto& [key, value] : keys) read_key(key, value, &call);
  return call;
}

namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

// Mixed first: the sequences of neighbouring seeds would be one sequence, shifted.
Random::Random(uint64_t seed) : state_(mixed(seed + kGolden)) {}

uint64_t Random::bits() {
  return mixed(state_ += kGolden);
}

double Random::gauss() {
  const double radius = std::sqrt(-2 * std::log(1 - unit()));
  return radius * std::cos(2 * 3.141592653589793 * unit());
}

}  // namespace calls

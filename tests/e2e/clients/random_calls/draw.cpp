// SPDX-License-Identifier: MIT
// Random calls, drawn from the tables of supported types, layouts and epilogues in the documentation of cuBLAS 13
// (cublasGemmEx, cublasSgemmEx, cublasGemmGroupedBatchedEx, cublasLtMatmul).
#include <algorithm>
#include <iterator>

#include "call.h"

namespace calls {
namespace {

constexpr int64_t kMostWork = int64_t{1} << 22;  // multiply-adds of one call, so that thousands of calls take minutes

struct Tuple {
  Num in, out;
  cublasComputeType_t compute;
  Num scale;
};

constexpr Tuple kExTuples[] = {
    {Num::kBF16, Num::kBF16, CUBLAS_COMPUTE_32F, Num::kF32},
    {Num::kBF16, Num::kF32, CUBLAS_COMPUTE_32F, Num::kF32},
    {Num::kF16, Num::kF16, CUBLAS_COMPUTE_32F, Num::kF32},
    {Num::kF16, Num::kF32, CUBLAS_COMPUTE_32F, Num::kF32},
    {Num::kF32, Num::kF32, CUBLAS_COMPUTE_32F, Num::kF32},
    {Num::kI8, Num::kF32, CUBLAS_COMPUTE_32F, Num::kF32},
    {Num::kBF16, Num::kBF16, CUBLAS_COMPUTE_32F_PEDANTIC, Num::kF32},
    {Num::kF16, Num::kF16, CUBLAS_COMPUTE_32F_PEDANTIC, Num::kF32},
    {Num::kF32, Num::kF32, CUBLAS_COMPUTE_32F_PEDANTIC, Num::kF32},
    {Num::kF32, Num::kF32, CUBLAS_COMPUTE_32F_FAST_TF32, Num::kF32},
    {Num::kF32, Num::kF32, CUBLAS_COMPUTE_32F_FAST_16F, Num::kF32},
    {Num::kF32, Num::kF32, CUBLAS_COMPUTE_32F_FAST_16BF, Num::kF32},
    {Num::kF64, Num::kF64, CUBLAS_COMPUTE_64F, Num::kF64},
    {Num::kF64, Num::kF64, CUBLAS_COMPUTE_64F_PEDANTIC, Num::kF64},
    {Num::kF16, Num::kF16, CUBLAS_COMPUTE_16F, Num::kF16},
    {Num::kF16, Num::kF16, CUBLAS_COMPUTE_16F_PEDANTIC, Num::kF16},
    {Num::kI8, Num::kI32, CUBLAS_COMPUTE_32I, Num::kI32},
    {Num::kI8, Num::kI32, CUBLAS_COMPUTE_32I_PEDANTIC, Num::kI32},
};
constexpr Tuple kGroupedTuples[] = {
    {Num::kBF16, Num::kBF16, CUBLAS_COMPUTE_32F, Num::kF32},
    {Num::kF16, Num::kF16, CUBLAS_COMPUTE_32F, Num::kF32},
    {Num::kF32, Num::kF32, CUBLAS_COMPUTE_32F, Num::kF32},
    {Num::kF32, Num::kF32, CUBLAS_COMPUTE_32F_PEDANTIC, Num::kF32},
    {Num::kF32, Num::kF32, CUBLAS_COMPUTE_32F_FAST_TF32, Num::kF32},
    {Num::kF64, Num::kF64, CUBLAS_COMPUTE_64F, Num::kF64},
};
constexpr Tuple kSgemmExTuples[] = {
    {Num::kBF16, Num::kBF16, CUBLAS_COMPUTE_32F, Num::kF32}, {Num::kF16, Num::kF16, CUBLAS_COMPUTE_32F, Num::kF32},
    {Num::kI8, Num::kF32, CUBLAS_COMPUTE_32F, Num::kF32},    {Num::kBF16, Num::kF32, CUBLAS_COMPUTE_32F, Num::kF32},
    {Num::kF16, Num::kF32, CUBLAS_COMPUTE_32F, Num::kF32},   {Num::kF32, Num::kF32, CUBLAS_COMPUTE_32F, Num::kF32},
};
// Besides those of cublasGemmEx.
constexpr Tuple kLtInteger = {Num::kI8, Num::kI8, CUBLAS_COMPUTE_32I, Num::kF32};

// FP8 on cublasLt: C, D, bias for A and B both E4M3; with one E5M2 among them D may be E5M2 too.
struct Fp8Tuple {
  Num c, d, bias;
  bool needs_e5m2;
};
constexpr Fp8Tuple kFp8Tuples[] = {
    {Num::kBF16, Num::kBF16, Num::kBF16, false}, {Num::kBF16, Num::kE4M3, Num::kBF16, false},
    {Num::kF16, Num::kE4M3, Num::kF16, false},   {Num::kF16, Num::kF16, Num::kF16, false},
    {Num::kF32, Num::kF32, Num::kBF16, false},   {Num::kBF16, Num::kE5M2, Num::kBF16, true},
    {Num::kF16, Num::kE5M2, Num::kF16, true},
};

constexpr uint32_t kPlainEpilogues[] = {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS};
constexpr uint32_t kGeluEpilogues[] = {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS};
constexpr uint32_t kTrainingEpilogues[] = {CUBLASLT_EPILOGUE_RELU_AUX, CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
                                           CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                           CUBLASLT_EPILOGUE_DRELU,    CUBLASLT_EPILOGUE_DRELU_BGRAD,
                                           CUBLASLT_EPILOGUE_DGELU,    CUBLASLT_EPILOGUE_DGELU_BGRAD,
                                           CUBLASLT_EPILOGUE_BGRADA,   CUBLASLT_EPILOGUE_BGRADB};

template <typename T, size_t N>
const T& one_of(Random& random, const T (&list)[N]) {
  return list[random.below(static_cast<int64_t>(N))];
}

int64_t multiple(int64_t x, int64_t of) {
  return (x + of - 1) / of * of;
}

int64_t draw_size(Random& random) {
  constexpr int64_t kEdges[] = {16, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 192, 255, 256, 257};
  const double kind = random.unit();
  if (kind < 0.015) return 0;
  if (kind < 0.15) return 1 + random.below(8);
  if (kind < 0.4) return one_of(random, kEdges);
  return 1 + random.below(300);
}

char draw_operation(Random& random) {
  return "nntc"[random.below(4)];
}

double draw_alpha(Random& random, Num scale) {
  if (scale == Num::kI32) {
    constexpr double kWhole[] = {1, 1, 1, 2, -3, 0};
    return one_of(random, kWhole);
  }
  constexpr double kUsual[] = {1, 1, 1, -0.5, 2, 0};
  const double kind = random.unit();
  return kind < 0.7 ? one_of(random, kUsual) : rounded(scale, 2 * random.unit() - 1);
}

double draw_beta(Random& random, Num scale) {
  if (scale == Num::kI32) {
    constexpr double kWhole[] = {0, 0, 1, -3};
    return one_of(random, kWhole);
  }
  constexpr double kUsual[] = {0, 0, 0, 1, -0.5, -0.0};
  const double kind = random.unit();
  return kind < 0.8 ? one_of(random, kUsual) : rounded(scale, 2 * random.unit() - 1);
}

Data draw_data(Random& random, const Call& call, Num type) {
  constexpr Data kInteger[] = {Data::kGauss, Data::kIntegers, Data::kSparse, Data::kConstant};
  if (is_integer(type)) return one_of(random, kInteger);
  // Operands that the library may round to FP16 first stay inside its range: what is beyond it is its own affair.
  constexpr Data kTame[] = {Data::kGauss, Data::kPositive, Data::kIntegers, Data::kSparse, Data::kConstant};
  constexpr Data kAny[] = {Data::kGauss, Data::kGauss,  Data::kPositive, Data::kIntegers, Data::kPowers,
                           Data::kTiny,  Data::kSparse, Data::kConstant, Data::kHuge};
  return call.compute == CUBLAS_COMPUTE_32F_FAST_16F ? one_of(random, kTame) : one_of(random, kAny);
}

// Elements that ld, strides and offsets are multiples of: FP8 and INT8 have documented alignments.
int64_t alignment_of(const Call& call, Num num) {
  if (is_fp8(call.a)) return 16 / format_of(num).bytes;
  if (call.a == Num::kI8) return 4 / format_of(num).bytes;
  return 1;
}

void draw_layout(Random& random, Call* call) {
  const Num types[4] = {call->a, call->b, call->c, call->d};
  for (int i = 0; i < 4; ++i) {
    const int64_t unit = alignment_of(*call, types[i]);
    if (random.chance(0.4)) call->pad[i] = unit * random.below(9);
    if (random.chance(0.3)) call->offset[i] = unit * random.below(9);
  }
  for (int i = 0; i < 3; ++i) {
    const double kind = random.unit();
    call->spread[i] = kind < 0.5 ? Spread::kApart : kind < 0.75 ? Spread::kInterleaved : Spread::kZero;
  }
  if (call->spread[2] == Spread::kZero) call->spread[2] = Spread::kApart;
}

void draw_shape(Random& random, int64_t count, Group* group) {
  group->m = draw_size(random);
  group->n = draw_size(random);
  group->k = draw_size(random);
  group->trans_a = draw_operation(random);
  group->trans_b = draw_operation(random);
  group->count = count;
  while (group->m * group->n * group->k * group->count > kMostWork) {
    int64_t& largest = group->count > 1                                       ? group->count
                       : std::max({group->m, group->n, group->k}) == group->m ? group->m
                       : group->n >= group->k                                 ? group->n
                                                                              : group->k;
    largest = std::max<int64_t>(1, largest * 3 / 4);
  }
}

void apply(const Tuple& tuple, Call* call) {
  call->a = call->b = tuple.in;
  call->c = call->d = call->bias = call->aux = tuple.out;
  call->compute = tuple.compute;
  call->scale = tuple.scale;
}

void draw_fp8(Random& random, Call* call) {
  constexpr Num kKinds[] = {Num::kE4M3, Num::kE4M3, Num::kE5M2};
  call->a = one_of(random, kKinds);
  call->b = call->a == Num::kE5M2 ? Num::kE4M3 : one_of(random, kKinds);
  const bool has_e5m2 = call->a == Num::kE5M2 || call->b == Num::kE5M2;
  const Fp8Tuple* tuple;
  do {
    tuple = &one_of(random, kFp8Tuples);
  } while (tuple->needs_e5m2 && !has_e5m2);
  call->c = tuple->c;
  call->d = call->aux = tuple->d;
  call->bias = tuple->bias;
  call->compute = CUBLAS_COMPUTE_32F;
  call->scale = Num::kF32;
  for (bool& has : call->has_scale) has = random.chance(0.5);
  if (!is_fp8(call->d)) {
    call->has_scale[2] = false;
    call->outer_scales = random.chance(0.25);
    if (call->outer_scales) call->has_scale[0] = call->has_scale[1] = true;
  } else {
    call->amax = random.chance(0.5);
  }
  call->fast_accumulation = random.chance(0.5);
  Group& group = call->groups[0];
  group.trans_a = 't';
  group.trans_b = 'n';
  group.m = multiple(group.m, 16);
  group.k = multiple(group.k, 16);
}

void draw_epilogue(Random& random, Call* call) {
  if (call->a == Num::kI8 || random.chance(0.3)) return;
  const bool usual = call->compute != CUBLAS_COMPUTE_16F && call->compute != CUBLAS_COMPUTE_16F_PEDANTIC &&
                     call->a != Num::kF64 && !is_fp8(call->a);
  const double kind = random.unit();
  if (usual && kind < 0.5) {
    call->epilogue = one_of(random, kTrainingEpilogues);
  } else if (call->a != Num::kF64 && kind < 0.7) {
    call->epilogue = one_of(random, kGeluEpilogues);
  } else {
    call->epilogue = one_of(random, kPlainEpilogues);
  }
  // Batch entries that share one gradient would write over each other.
  const bool gradient = (call->epilogue & (16 | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) != 0;
  call->bias_by_batch = gradient || random.chance(0.5);
}

void draw_lt(Random& random, Call* call) {
  Group& group = call->groups[0];
  draw_shape(random, random.chance(0.3) ? 1 + random.below(8) : 1, &group);
  const double kind = random.unit();
  if (kind < 0.3) {
    draw_fp8(random, call);
  } else if (kind < 0.35) {
    apply(kLtInteger, call);
  } else {
    apply(one_of(random, kExTuples), call);
    if (call->compute == CUBLAS_COMPUTE_32I_PEDANTIC) call->compute = CUBLAS_COMPUTE_32I;
  }
  if (call->a == Num::kI8) {
    group.trans_a = 't';
    group.trans_b = 'n';
    group.m = multiple(group.m, 4);
    group.k = multiple(group.k, 4);
  }
  draw_epilogue(random, call);
  draw_layout(random, call);
  const bool plain = call->epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  if (!is_fp8(call->a) && call->a != Num::kI8) {
    if (random.chance(0.3)) call->row_major[0] = true;
    if (random.chance(0.3)) call->row_major[1] = true;
    if (plain && random.chance(0.3)) call->row_major[2] = true;
  }
  const double pointers = random.unit();
  const bool vectors =
      plain && !call->row_major[2] && call->a != Num::kI8 && !is_fp8(call->a) && call->compute == CUBLAS_COMPUTE_32F;
  if (pointers < 0.2) {
    call->scalars = Scalars::kDevice;
  } else if (vectors && pointers < 0.5) {
    constexpr Scalars kVectors[] = {Scalars::kVector, Scalars::kAlphaVectorBetaZero, Scalars::kAlphaVectorBetaHost};
    call->scalars = one_of(random, kVectors);
  }
  group.alpha = draw_alpha(random, call->scale);
  group.beta = draw_beta(random, call->scale);
  if (call->scalars == Scalars::kAlphaVectorBetaZero) group.beta = 0;
  const double addend = random.unit();
  call->addend = addend < 0.4 && call->c == call->d                                   ? Addend::kInPlace
                 : addend < 0.6 && group.beta == 0 && call->scalars == Scalars::kHost ? Addend::kNull
                                                                                      : Addend::kApart;
}

void draw_gemm(Random& random, Call* call) {
  const Family family = entry_of(*call).family;
  switch (family) {
    case Family::kGemmEx:
    case Family::kGemmBatchedEx:
    case Family::kGemmStridedBatchedEx:
      apply(one_of(random, kExTuples), call);
      break;
    case Family::kGemmGroupedBatchedEx:
      apply(one_of(random, kGroupedTuples), call);
      break;
    case Family::kSgemmEx:
      apply(one_of(random, kSgemmExTuples), call);
      break;
    case Family::kDgemm:
    case Family::kDgemmBatched:
    case Family::kDgemmStridedBatched:
    case Family::kDgemmGroupedBatched:
      apply({Num::kF64, Num::kF64, CUBLAS_COMPUTE_64F, Num::kF64}, call);
      break;
    case Family::kHgemm:
    case Family::kHgemmBatched:
    case Family::kHgemmStridedBatched:
      apply({Num::kF16, Num::kF16, CUBLAS_COMPUTE_16F, Num::kF16}, call);
      break;
    default:
      apply({Num::kF32, Num::kF32, CUBLAS_COMPUTE_32F, Num::kF32}, call);
  }
  const bool single = family == Family::kGemmEx || family == Family::kSgemmEx || family == Family::kSgemm ||
                      family == Family::kDgemm || family == Family::kHgemm;
  call->groups.resize(is_grouped(*call) ? static_cast<size_t>(1 + random.below(4)) : 1);
  for (Group& group : call->groups) {
    draw_shape(random, single ? 1 : random.chance(0.02) ? 0 : 1 + random.below(8), &group);
    group.alpha = draw_alpha(random, call->scale);
    group.beta = draw_beta(random, call->scale);
  }
  draw_layout(random, call);
  if (call->a == Num::kF32 && call->compute == CUBLAS_COMPUTE_32F && random.chance(0.2)) {
    call->math = CUBLAS_TF32_TENSOR_OP_MATH;
  } else if (random.chance(0.1)) {
    call->math = CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  } else if (random.chance(0.05)) {
    call->math = CUBLAS_PEDANTIC_MATH;
  }
  if (!is_grouped(*call) && random.chance(0.25)) call->scalars = Scalars::kDevice;
}

}  // namespace

Call draw(uint64_t seed, uint64_t index) {
  Random random(seed * 0xd1342543de82ef95ull + index);
  Call call;
  // The 32 names of cublas in turn, cublasLtMatmul after every third of them: it has the most forms.
  constexpr uint64_t kPlain = kEntryPoints - 1;
  call.entry = static_cast<int>(index % 4 == 3 ? kPlain : (index / 4 * 3 + index % 4) % kPlain);
  if (is_lt(call)) {
    draw_lt(random, &call);
  } else {
    draw_gemm(random, &call);
  }
  call.data_a = draw_data(random, call, call.a);
  call.data_b = random.chance(0.5) && call.a == call.b ? call.data_a : draw_data(random, call, call.b);
  call.data_c = is_integer(call.c) ? Data::kGauss : draw_data(random, call, call.c);
  // Operands that are not finite are daily business of loss scaling. What an activation or the largest magnitude makes
  // of them is not documented, nor which infinity FP8 gives.
  const bool plain = call.epilogue == CUBLASLT_EPILOGUE_DEFAULT || call.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (plain && !is_integer(call.a) && !is_fp8(call.a) && random.chance(0.06)) {
    (random.chance(0.5) ? call.data_a : call.data_b) = random.chance(0.5) ? Data::kNan : Data::kInf;
    for (Data* data : {&call.data_a, &call.data_b}) {
      if (*data != Data::kNan && *data != Data::kInf) *data = Data::kGauss;
    }
  }
  call.seed = random.bits() >> 16;
  return call;
}

}  // namespace calls

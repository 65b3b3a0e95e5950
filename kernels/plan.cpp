// SPDX-License-Identifier: MIT
// stage plan: the derived numbers of a probe. Formulas and their origins: MATH.md, by the labels in plan.h.
#include "kernels/plan.h"

#include <algorithm>
#include <bit>

#include "kernels/elementary.h"
#include "kernels/entry_bound.h"

namespace sdcguard {

namespace {

constexpr uint64_t kAlignment = 256;            // of every scratch array
constexpr int64_t kRecomputeCells = 64;         // fewer cells of one draw: no noise can be measured (MATH.md "sigma")
constexpr int64_t kShortRecomputeCells = 256;   // the same for lines shorter than kEntryMedianMin
constexpr uint64_t kSlotBudgetBytes = 4 << 20;  // of recomputation slots beyond the least
constexpr uint32_t kLeastSlots = 64;
constexpr uint64_t kSpareBudgetBytes = 64 << 20;
constexpr uint32_t kLeastSpareBlocks = 8;
constexpr double kLargestScratch = 0x1p46;  // beyond any device: refused before sizes can wrap
constexpr double kLineSumRoundings = 52;    // of the verifier's own sums, in u (MATH.md "line sum")
constexpr double kUnit32 = 0x1p-24;
constexpr double kUnit64 = 0x1p-53;
constexpr double kLargest32 = 0x1.fffffep127;
constexpr double kLargest64 = 0x1.fffffffffffffp1023;
constexpr double kMeasuredRate = (17.0 / 4.0 + 1.0) / 16.0;  // roundings a product of the worst order that was measured
constexpr uint32_t kExactClasses = 8;                        // 16 vectors are stored anyway
constexpr double kUselessLook = 0.5;                         // a look at half the root mean square of a line
constexpr double kUnitBf16 = 0x1p-8;                         // unit roundoff of 16-bit results
constexpr double kUnitFp16 = 0x1p-11;
constexpr double kFalseVerdict = 1e-15;  // per product, where an alarm is a verdict (MATH.md "block sums")
constexpr double kFalseLook = 1e-4;      // per product, where it costs a recomputation (MATH.md "look")

uint64_t take(uint64_t& at, uint64_t bytes) {
  const uint64_t mine = at;
  at += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return mine;
}

uint32_t blocks(int64_t work, int64_t most) {
  return static_cast<uint32_t>(std::clamp<int64_t>(work, 1, most));
}

int64_t parts(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

}  // namespace

TensorCore tensor_core_of(uint32_t compute_major, DataType type) {
  // ../data/tensor-core/README.md: measured steps. FP32 here means TF32 products.
  if (type == DataType::kE4M3 || type == DataType::kE5M2) {
    if (compute_major == 10) return TensorCore{32, 2};
    return TensorCore{compute_major == 9 ? 32u : 16u, -10};
  }
  const bool tf32 = type == DataType::kF32;
  switch (compute_major) {
    case 7:
      return TensorCore{4, 0};
    case 8:
      return TensorCore{tf32 ? 4u : 8u, 1};
    case 9:
    case 10:
      return TensorCore{tf32 ? 8u : 16u, 2};
    default:
      return TensorCore{4, 0};
  }
}

AccumulationNoise noise_of(const ProbeRequest& request) {
  const AccumulationNoise fma = {kUnit32, kEpsFp32, 0.0, 0x1p-149, kLargest32, 1, 64};
  AccumulationNoise noise = fma;
  switch (request.accumulator) {
    case Accumulator::kF64:
      return {kUnit64, kEpsFp64, 0.0, 0x1p-1074, kLargest64, 1, 64};
    case Accumulator::kI32:
      return {kUnit32, 0.0, 0.0, 0.0, kLargest64, 1, 64};
    case Accumulator::kF16:
      // One rounding a product, the most there can be.
      return {kUnit32, kEpsFp16, 0.0, 0x1p-24, 65504.0, 1, 64};
    default:
      break;
  }
  // Each of the partial products is rounded once: together at most u16 sum |A||B| (MATH.md "block sums").
  if (request.delivered && request.reduces_in_16_bits) {
    noise.eps_in = request.p.type == DataType::kBF16 ? kUnitBf16 : kUnitFp16;
  }
  const bool rounded = request.rounding != OperandRounding::kNone;
  const bool tensor_cores = rounded || (request.a.type != DataType::kF32 && request.a.type != DataType::kI8 &&
                                        element_bytes(request.a.type) < 4);
  if (!tensor_cores) return noise;
  if (rounded) noise.eps_in += request.rounding == OperandRounding::kBf16 ? kEpsBf16Inputs : kEpsTf32Inputs;
  noise.products = std::max(1u, request.tensor_core.products);
  if (request.tensor_core.guard_bits < 0) {
    noise.eps_acc = kEpsFp32 * power_of_two(-request.tensor_core.guard_bits);
    noise.guard_bits = 0;
  } else {
    noise.guard_bits = static_cast<uint32_t>(request.tensor_core.guard_bits);
  }
  return noise;
}

uint32_t classes_of(int64_t n1, int64_t n3) {
  const int64_t wanted = std::max<int64_t>({8, 256 / n1, std::min<int64_t>(kMaxClasses, n3 / 512)});
  const uint64_t up = std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(wanted, kMaxClasses)));
  const uint64_t most = std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, n3 / 8)));
  return static_cast<uint32_t>(std::min(up, most));
}

double look_scale_of(double cells) {
  constexpr double kTailStart = 3.68;  // measured tail of |z| / sigma (reference/prototype.md section 2)
  constexpr double kXi = 0.056;
  constexpr double kBeta = 0.417;
  constexpr double kZeta = 1e-3;
  const double t = kTailStart + kBeta / kXi * (power(kZeta * cells / kFalseLook, kXi) - 1.0);
  return std::max(8.0, t);
}

double short_sum_factor(int64_t n2) {
  const double steps = static_cast<double>(n2) / 64.0;
  return 1.0 + 0.5 / std::max(1.0, steps * steps);
}

double hoeffding_scale_of(double tests) {
  return square_root(2.0 * natural_log(2.0 * tests / kFalseVerdict));
}

double sigma_envelope_of(int64_t n2, const AccumulationNoise& noise) {
  const double n = static_cast<double>(n2);
  const double products = static_cast<double>(noise.products);
  const double rate = ((products + 1.0) * power_of_two(-static_cast<int>(noise.guard_bits)) + 1.0) / products;
  // FMA units and FP16 results round to nearest: no bias that grows with n2 but what was measured.
  const double bias = 0.04 * n * (noise.products > 1 ? std::max(1.0, rate / kMeasuredRate) : 1.0);
  const double accumulation = std::max({0.4 * square_root(n), noise.eps_acc == kEpsFp16 ? 0.0 : bias, 2.0});
  return accumulation * noise.eps_acc / (2.0 * noise.unit) + noise.eps_in / noise.unit;
}

uint32_t family_of(const ProbeRequest& request) {
  const auto type = [](DataType t) { return static_cast<uint32_t>(t); };
  const auto fp8 = [](DataType t) { return t == DataType::kE4M3 || t == DataType::kE5M2; };
  uint32_t kind = 0;  // of what is told apart nowhere below
  if (fp8(request.a.type) && fp8(request.b.type)) {
    kind = 1 + (type(request.a.type) - type(DataType::kE4M3)) * 2 + (type(request.b.type) - type(DataType::kE4M3)) +
           (request.accumulator == Accumulator::kF32Fast ? 4 : 0);
  } else if (request.a.type == request.b.type) {
    switch (request.a.type) {
      case DataType::kF32:
        kind = 9 + static_cast<uint32_t>(request.rounding);
        break;
      case DataType::kBF16:
        kind = 13;
        break;
      case DataType::kF16:
        kind = request.accumulator == Accumulator::kF16 ? 15 : 14;
        break;
      case DataType::kF64:
        kind = 16;
        break;
      case DataType::kI8:
        kind = request.accumulator == Accumulator::kI32 ? 18 : 17;
        break;
      default:
        break;
    }
  }
  static_assert(kFamilyKinds > 18);
  const uint32_t log2 =
      static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(request.n2, 1)))) - 1;
  return kind * 32 + std::min(log2, 31u);
}

namespace {

bool is_fp8(DataType type) {
  return type == DataType::kE4M3 || type == DataType::kE5M2;
}

// Types that meet in FP32 arithmetic, as operands or as what is delivered.
bool is_float_side(DataType type) {
  return element_bytes(type) != 0 && type != DataType::kF64 && type != DataType::kI32;
}

// kNone: the kernels handle the types.
Reason type_reason(const ProbeRequest& request) {
  const DataType a = request.a.type;
  const DataType b = request.b.type;
  const DataType delivered = request.delivered               ? request.p.type
                             : request.finish.d.address != 0 ? request.finish.d.type
                                                             : DataType::kNone;
  const bool none = delivered == DataType::kNone;
  if (request.rounding != OperandRounding::kNone && (a != DataType::kF32 || b != DataType::kF32)) {
    return Reason::kUnsupportedType;
  }
  bool handled = false;
  switch (request.accumulator) {
    case Accumulator::kF64:
      handled = a == DataType::kF64 && b == DataType::kF64 && (none || delivered == DataType::kF64);
      break;
    case Accumulator::kI32:
      // A delivered product must still hold every bit.
      handled = a == DataType::kI8 && b == DataType::kI8 &&
                (none || delivered == DataType::kI32 ||
                 (!request.delivered && (delivered == DataType::kF32 || delivered == DataType::kI8)));
      break;
    case Accumulator::kF16:
      if (!request.delivered) return Reason::kCompute16f;
      handled = a == DataType::kF16 && b == DataType::kF16 && delivered == DataType::kF16;
      break;
    case Accumulator::kF32Fast:
      handled = is_fp8(a) && is_fp8(b) && (none || (is_float_side(delivered) && delivered != DataType::kI8));
      break;
    case Accumulator::kF32:
      handled = is_float_side(a) && is_float_side(b) &&
                (none || (is_float_side(delivered) && !(request.delivered && delivered == DataType::kI8)));
      break;
  }
  return handled ? Reason::kNone : Reason::kUnsupportedType;
}

// kNone: the kernels handle what comes after the product.
Reason finish_reason(const ProbeRequest& request) {
  const FinishView& f = request.finish;
  const bool activates = (f.epilogue & (kEpilogueRelu | kEpilogueGelu)) != 0;
  // The product cannot be read back through an activation.
  if (request.delivered && (activates || f.aux_kind != AuxKind::kNone)) return Reason::kUnsupportedEpilogue;
  if (request.accumulator == Accumulator::kF64 && (f.epilogue & kEpilogueGelu) != 0)
    return Reason::kUnsupportedEpilogue;
  if (f.aux_kind != AuxKind::kNone) {
    const bool mask = f.aux_kind == AuxKind::kReluMask;
    if (request.accumulator == Accumulator::kI32 || f.aux.address == 0 || f.aux.pointers != 0) {
      return Reason::kUnsupportedEpilogue;
    }
    // A row of the mask begins at a byte.
    if (mask ? (f.aux.row_stride % 8 != 0 || f.aux.batch_stride % 8 != 0)
             : (!is_float_side(f.aux.type) || request.accumulator == Accumulator::kF64)) {
      return Reason::kUnsupportedEpilogue;
    }
  }
  const bool vectors =
      f.alpha_column_stride != 0 || f.beta_column_stride != 0 || f.scale_a_vector != 0 || f.scale_b_vector != 0;
  if (f.alpha_column_stride < 0 || f.alpha_column_stride > 1 || f.beta_column_stride < 0 || f.beta_column_stride > 1) {
    return Reason::kUnsupportedAttribute;
  }
  // A class sum of what was delivered has no one factor then.
  if (request.delivered && vectors) return Reason::kUnsupportedAttribute;
  if (request.batch > 1 && (f.scale_a_vector != 0 || f.scale_b_vector != 0)) return Reason::kUnsupportedAttribute;
  const bool scaled = (f.scale_a | f.scale_b | f.scale_c | f.scale_d | f.amax_d) != 0;
  const bool float_side = request.accumulator == Accumulator::kF32 || request.accumulator == Accumulator::kF32Fast;
  if (scaled && !float_side) return Reason::kUnsupportedAttribute;
  if (f.amax_d != 0 && request.delivered) return Reason::kUnsupportedAttribute;
  const bool integers =
      request.accumulator == Accumulator::kI32 && (request.delivered ? request.p.type : f.d.type) == DataType::kI32;
  if (integers) {
    const bool held_exactly = f.alpha == std::trunc(f.alpha) && f.beta == std::trunc(f.beta) &&
                              std::fabs(f.alpha) < 0x1p32 && std::fabs(f.beta) < 0x1p32;
    const bool on_device = f.alpha_address != 0 || f.beta_address != 0;
    if (!held_exactly || (on_device && f.scalar_type != DataType::kI32) || f.bias_address != 0 || f.epilogue != 0) {
      return Reason::kUnsupportedType;
    }
  }
  if (f.scalar_type != DataType::kF32 && f.scalar_type != DataType::kF64 && f.scalar_type != DataType::kF16 &&
      f.scalar_type != DataType::kI32) {
    return Reason::kUnsupportedType;
  }
  if (f.bias_address != 0 &&
      (request.accumulator == Accumulator::kF64 ? f.bias_type != DataType::kF64 : !is_float_side(f.bias_type))) {
    return Reason::kUnsupportedType;
  }
  return Reason::kNone;
}

// Of the format in which the library multiplies: below it values keep their exponent's place in the alignment of
// addends. 0: as FP32 itself.
float smallest_normal_of(DataType type, OperandRounding rounding) {
  switch (rounding) {
    case OperandRounding::kF16:
      return 0x1p-14f;
    case OperandRounding::kTf32:
    case OperandRounding::kBf16:
      return 0x1p-126f;
    case OperandRounding::kNone:
      break;
  }
  switch (type) {
    case DataType::kE4M3:
      return 0x1p-6f;
    case DataType::kE5M2:
    case DataType::kF16:
      return 0x1p-14f;
    case DataType::kBF16:
      return 0x1p-126f;
    default:
      return 0.0f;
  }
}

}  // namespace

ProbePlan make_plan(const ProbeRequest& request) {
  ProbePlan plan{};
  ProbeParams& p = plan.params;
  const auto refuse = [&plan](Reason reason) {
    plan.reason = reason;
    return plan;
  };
  if (request.n1 < 1 || request.n2 < 1 || request.n3 < 1 || request.batch < 1) return refuse(Reason::kEmpty);
  if (Reason reason = type_reason(request); reason != Reason::kNone) return refuse(reason);
  if ((request.a.row_stride != 1 && request.a.col_stride != 1) ||
      (request.b.row_stride != 1 && request.b.col_stride != 1) || (request.delivered && request.p.col_stride != 1) ||
      (request.finish.d.address != 0 && request.finish.d.col_stride != 1)) {
    return refuse(Reason::kUnsupportedOrder);
  }
  if (Reason reason = finish_reason(request); reason != Reason::kNone) return refuse(reason);
  // Lines and columns are counted in 32 bits.
  if (request.n1 > (int64_t{1} << 32) / request.batch - 1 || request.n3 >= int64_t{1} << 31) {
    return refuse(Reason::kLinesOverflow);
  }
  const bool exact = request.accumulator == Accumulator::kI32;
  const bool narrow =
      request.delivered && request.accumulator != Accumulator::kF16 && element_bytes(request.p.type) < 4;

  p.n1 = request.n1;
  p.n2 = request.n2;
  p.n3 = request.n3;
  p.batch = request.batch;
  p.lines = request.batch * request.n1;
  p.a = request.a;
  p.b = request.b;
  p.p = request.p;
  p.finish = request.finish;
  p.mode = request.mode;
  p.delivered = request.delivered ? 1 : 0;
  p.fold_batch = request.b.batch_stride == 0 && request.b.pointers == 0 ? 1 : request.batch;
  p.draws = kDraws;
  p.audit_lines = kAuditLines;
  const bool delivers = !request.delivered && request.finish.d.address != 0;
  // Fused: one factor for all of an entry, nothing but D to write, and in the arithmetic of the probe.
  const FinishView& f = request.finish;
  const bool fuses = !request.unchecked && request.c_apart && f.alpha_column_stride == 0 && f.beta_column_stride == 0 &&
                     f.scale_a_vector == 0 && f.scale_b_vector == 0 && f.aux_kind == AuxKind::kNone && f.amax_d == 0 &&
                     !(exact && f.d.type != DataType::kI32);
  p.fused_finish = delivers && fuses ? 1 : 0;
  p.finish_launched = delivers && !fuses ? 1 : 0;

  if (narrow) {
    p.plan = Plan::kBlockSums;
    p.classes = static_cast<uint32_t>(parts(p.n3, kBlockWidth));
  } else if (exact) {
    p.plan = Plan::kExact;
    p.classes = std::min(kExactClasses, classes_of(p.n1, p.n3));
  } else {
    p.classes = classes_of(p.n1, p.n3);
    const int64_t least_cells = p.n3 < kEntryMedianMin ? kShortRecomputeCells : kRecomputeCells;
    p.plan = p.n1 * int64_t{p.classes} < least_cells ? Plan::kRecompute : Plan::kLine;
  }
  p.vectors = static_cast<uint32_t>(parts(int64_t{kDraws} * p.classes, 16) * 16);
  p.repairs = request.mode == Mode::kRepair ? 1 : 0;

  const double tests = static_cast<double>(p.lines) * p.classes * kDraws;
  const AccumulationNoise noise = noise_of(request);
  const double n2 = static_cast<double>(p.n2);
  const double c_max = entry_c_max(p.n2, noise.products, noise.guard_bits);
  const double envelope = sigma_envelope_of(p.n2, noise);
  if (exact) {
    p.look_scale = 0.0f;
  } else {
    p.look_scale =
        static_cast<float>(narrow ? hoeffding_scale_of(tests) : look_scale_of(tests) * short_sum_factor(p.n2));
  }
  // Where even a fault as large as the line itself could pass for noise there is nothing to check with.
  if (request.accumulator == Accumulator::kF16 &&
      static_cast<double>(p.look_scale) * envelope * noise.unit > kUselessLook) {
    return refuse(Reason::kCompute16f);
  }
  p.sigma_envelope = static_cast<float>(envelope);
  p.sigma_floor = static_cast<float>(std::max(0.5, (noise.eps_acc + noise.eps_in) / (8.0 * noise.unit)));
  p.verifier_scale = exact ? 0.0f : 0.25f / p.sigma_floor;
  p.entry_c_max = static_cast<float>(c_max);
  p.entry_eps_acc = static_cast<float>(noise.eps_acc);
  p.entry_eps_in = static_cast<float>(noise.eps_in);
  p.entry_tiny = noise.smallest * (c_max + n2);
  p.cell_tiny = noise.smallest * noise.smallest * n2;
  p.entry_envelope_unit = exact ? 0.0f : static_cast<float>(2.0 * noise.unit / (noise.eps_acc + noise.eps_in));
  p.finish_eps = static_cast<float>(request.accumulator == Accumulator::kF64   ? kEpsFp64
                                    : request.accumulator == Accumulator::kF16 ? kEpsFp16
                                                                               : kEpsFp32);
  p.accumulator_largest = noise.largest;
  const bool to_f16 = request.rounding == OperandRounding::kF16;
  p.operand_largest = request.accumulator == Accumulator::kF64     ? kLargest64
                      : to_f16                                     ? 65504.0
                      : request.rounding == OperandRounding::kBf16 ? 0x1.fep127
                      : request.rounding == OperandRounding::kTf32 ? 0x1.ffcp127
                                                                   : kLargest32;
  p.operand_floor_a = smallest_normal_of(request.a.type, request.rounding);
  p.operand_floor_b = smallest_normal_of(request.b.type, request.rounding);
  // One step of truncated addends, as many units in the last place of the largest.
  const double per_step =
      (static_cast<double>(noise.products) + 1.0) * power_of_two(-static_cast<int>(noise.guard_bits)) + 1.0;
  p.entry_floor = static_cast<float>(std::max(kEntryFloor, per_step / kEntryK));
  p.line_sum_scale = static_cast<float>(c_max * noise.eps_acc + noise.eps_in + kLineSumRoundings * noise.unit);

  if (!request.delivered) {
    // Rows of whole 128-byte lines where that costs little; always of whole vectors.
    const int64_t unit = p.n3 >= 32 ? 32 : 4;
    p.p.type = request.accumulator == Accumulator::kF64 ? DataType::kF64 : exact ? DataType::kI32 : DataType::kF32;
    p.p.row_stride = parts(p.n3, unit) * unit;
    p.p.col_stride = 1;
    p.p.pointers = 0;
    const uint64_t size = element_bytes(p.p.type);
    const double bytes = static_cast<double>(p.lines) * static_cast<double>(p.p.row_stride) * static_cast<double>(size);
    if (bytes > kLargestScratch) return refuse(Reason::kNoWorkspace);
    p.p.batch_stride = p.n1 * p.p.row_stride;
    plan.product_bytes =
        (static_cast<uint64_t>(p.lines) * static_cast<uint64_t>(p.p.row_stride) * size + kAlignment - 1) / kAlignment *
        kAlignment;
  }

  const int64_t tiles = parts(p.n2, kFoldTile);
  const int64_t words = parts(p.n3, 32);
  const int64_t slices = words;  // of kColumns = 32 columns in kernels/recompute.h
  const uint64_t value_bytes = request.accumulator == Accumulator::kF64 ? 8 : 4;  // of T
  const uint64_t slot_bytes = static_cast<uint64_t>(p.n3) * 3 * value_bytes;
  // The product writes over the C that it is made from: C is kept.
  plan.needs_keep = request.delivered && !request.c_apart;
  const int64_t kept_stride = parts(p.n3, 32) * 32;
  const double kept_bytes = plan.needs_keep ? static_cast<double>(p.lines) * static_cast<double>(kept_stride) *
                                                  element_bytes(request.finish.c.type)
                                            : 0.0;
  if (plan.needs_keep && element_bytes(request.finish.c.type) == 0) return refuse(Reason::kUnsupportedType);
  p.line_slots = static_cast<uint32_t>(
      std::min<int64_t>(p.lines, std::max<int64_t>(kLeastSlots, static_cast<int64_t>(kSlotBudgetBytes / slot_bytes))));
  const int64_t sms = std::max<int64_t>(1, request.sm_count);
  const int64_t spare_blocks =
      std::max<int64_t>(kLeastSpareBlocks, static_cast<int64_t>(kSpareBudgetBytes / (slot_bytes * kSpareLines)));
  p.repair_grid = blocks(p.lines, std::min<int64_t>({2 * sms, spare_blocks, int64_t{1} << 16}));

  const double largest = static_cast<double>(p.fold_batch) * n2 * p.vectors * static_cast<double>(value_bytes) +
                         static_cast<double>(p.lines) * p.vectors * static_cast<double>(value_bytes) + kept_bytes +
                         static_cast<double>(p.fold_batch * tiles) * p.classes * 8.0 +
                         static_cast<double>(p.lines) * 52.0 + static_cast<double>(p.batch) * kPeakBins * 12.0 +
                         (static_cast<double>(p.line_slots) + static_cast<double>(p.repair_grid) * kSpareLines) *
                             static_cast<double>(slot_bytes);
  if (largest > kLargestScratch) return refuse(Reason::kNoWorkspace);

  ScratchLayout& layout = plan.layout;
  uint64_t at = 0;
  const uint64_t fold_batch = static_cast<uint64_t>(p.fold_batch);
  const uint64_t lines = static_cast<uint64_t>(p.lines);
  const uint64_t all_tiles = fold_batch * static_cast<uint64_t>(tiles);
  const uint64_t rows_of_b = fold_batch * static_cast<uint64_t>(p.n2);
  layout.fold_ticket = take(at, kFoldTicketBytes);
  layout.verdict = take(at, sizeof(Verdict));
  layout.tile_marks = take(at, all_tiles * (1 + kMaxMarkedColumns) * 4);
  layout.tile_energy = take(at, all_tiles * p.classes * 8);
  layout.fold_sums = take(at, rows_of_b * p.vectors * value_bytes);
  layout.fold_mean = take(at, rows_of_b * value_bytes);
  layout.fold_rms = take(at, rows_of_b * value_bytes);
  layout.signs = take(at, kDraws * static_cast<uint64_t>(words) * 4);
  layout.column_marks = take(at, fold_batch * static_cast<uint64_t>(words) * 4);
  layout.marked_columns = take(at, fold_batch * (1 + kMaxMarkedColumns) * 4);
  layout.line_dots = take(at, lines * p.vectors * value_bytes);
  layout.line_noise = take(at, lines * 16);
  layout.line_sums = take(at, lines * 16);
  layout.line_peak = take(at, lines * 4);
  layout.line_median = take(at, lines * 4);
  layout.peak_counts = take(at, static_cast<uint64_t>(p.batch) * kPeakBins * 4);
  layout.peak_sums = take(at, static_cast<uint64_t>(p.batch) * kPeakBins * 8);
  layout.sigmas = take(at, static_cast<uint64_t>(p.batch) * 4);
  layout.listed = take(at, lines * 4);
  layout.recomputed = take(at, (p.line_slots + static_cast<uint64_t>(p.repair_grid) * kSpareLines) * slot_bytes);
  layout.kept_c = take(at, static_cast<uint64_t>(kept_bytes));
  const bool through_pointers = request.through_pointers && !request.delivered;
  layout.product_pointers = take(at, through_pointers ? static_cast<uint64_t>(p.batch) * 8 : 0);
  layout.bytes = at;
  p.fold_bytes = layout.line_dots - layout.tile_energy;
  if (plan.needs_keep) {
    p.written_c = request.finish.c;
    p.finish.c.row_stride = kept_stride;
    p.finish.c.col_stride = 1;
    p.finish.c.batch_stride = p.n1 * kept_stride;
    p.finish.c.pointers = 0;
  }

  const uint32_t arithmetic = request.accumulator == Accumulator::kF64 ? kKernelCount
                              : exact                                  ? kKernelCount + 5
                                                                       : 0;  // in kFunctionNames
  const auto launch = [&plan, arithmetic](Kernel kernel, uint32_t grid) {
    const auto index = static_cast<uint32_t>(kernel);
    plan.launch[index] = LaunchShape{grid, 256, 0, kernel < Kernel::kFinish ? arithmetic + index : index};
  };
  if (!request.unchecked) {
    launch(Kernel::kFold, blocks(tiles * p.fold_batch, 4 * sms));
    launch(Kernel::kOperand, blocks(parts(p.n1, 32) * p.batch, 4 * sms));
    launch(Kernel::kProduct, blocks(parts(p.n1, 8) * p.batch, 4 * sms));
    launch(Kernel::kRecompute, blocks(slices * std::min<int64_t>(parts(p.line_slots, 4), 16), 4 * sms));
    launch(Kernel::kRepair, p.repair_grid);
  }
  if (through_pointers) launch(Kernel::kPointers, blocks(parts(p.batch, 256), 4 * sms));
  if (plan.needs_keep) launch(Kernel::kKeep, blocks(parts(p.lines, 8), 8 * sms));
  if (p.finish_launched != 0) launch(Kernel::kFinish, blocks(parts(p.lines, 8), 8 * sms));
  plan.family = family_of(request);
  plan.reason = Reason::kNone;
  return plan;
}

void bind_scratch(ProbeParams& p, const ScratchLayout& layout, uint64_t base) {
  p.verdict = base + layout.verdict;
  p.fold_ticket = base + layout.fold_ticket;
  p.tile_marks = base + layout.tile_marks;
  p.tile_energy = base + layout.tile_energy;
  p.fold_sums = base + layout.fold_sums;
  p.fold_mean = base + layout.fold_mean;
  p.fold_rms = base + layout.fold_rms;
  p.signs = base + layout.signs;
  p.column_marks = base + layout.column_marks;
  p.marked_columns = base + layout.marked_columns;
  p.line_dots = base + layout.line_dots;
  p.line_noise = base + layout.line_noise;
  p.line_sums = base + layout.line_sums;
  p.line_peak = base + layout.line_peak;
  p.line_median = base + layout.line_median;
  p.peak_counts = base + layout.peak_counts;
  p.peak_sums = base + layout.peak_sums;
  p.sigmas = base + layout.sigmas;
  p.listed = base + layout.listed;
  p.recomputed = base + layout.recomputed;
  p.product_pointers = base + layout.product_pointers;
  if (p.written_c.address != 0) p.finish.c.address = base + layout.kept_c;
}

}  // namespace sdcguard

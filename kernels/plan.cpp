// SPDX-License-Identifier: MIT
// stage plan: the derived numbers of a probe. Formulas and their origins: MATH.md, by the labels in plan.h.
#include "kernels/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

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
constexpr double kLargestScratch = 0x1p46;         // beyond any device: refused before sizes can wrap
constexpr double kLineSumRounding = 52 * 0x1p-24;  // of the verifier's own sums (MATH.md "line sum")
constexpr double kFalseVerdict = 1e-15;            // per product, where an alarm is a verdict (MATH.md "block sums")
constexpr double kFalseLook = 1e-4;                // per product, where it costs a recomputation (MATH.md "look")

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

uint32_t element_bytes(DataType type) {
  return type == DataType::kF32 ? 4 : type == DataType::kBF16 || type == DataType::kF16 ? 2 : 0;
}

TensorCore tensor_core_of(uint32_t compute_major, DataType type) {
  // ../data/tensor-core/README.md: measured steps. FP32 here means TF32 products.
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
  const double t = kTailStart + kBeta / kXi * (std::pow(kZeta * cells / kFalseLook, kXi) - 1.0);
  return std::max(8.0, t);
}

double hoeffding_scale_of(double tests) {
  return std::sqrt(2.0 * std::log(2.0 * tests / kFalseVerdict));
}

double sigma_envelope_of(int64_t n2, OperandRounding rounding) {
  const double n = static_cast<double>(n2);
  const double accumulation = std::max({0.4 * std::sqrt(n), 0.04 * n, 2.0});
  return accumulation + (rounding == OperandRounding::kTf32 ? kEpsTf32Inputs / 0x1p-24 : 0.0);
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

ProbePlan make_plan(const ProbeRequest& request) {
  ProbePlan plan{};
  ProbeParams& p = plan.params;
  const auto refuse = [&plan](Reason reason) {
    plan.reason = reason;
    return plan;
  };
  if (request.n1 < 1 || request.n2 < 1 || request.n3 < 1 || request.batch < 1) return refuse(Reason::kEmpty);
  const bool narrow = request.delivered && request.p.type != DataType::kF32;
  if (element_bytes(request.a.type) == 0 || element_bytes(request.b.type) == 0 ||
      (request.delivered && element_bytes(request.p.type) == 0) ||
      (request.finish.d.address != 0 && element_bytes(request.finish.d.type) == 0)) {
    return refuse(Reason::kUnsupportedType);
  }
  if ((request.a.row_stride != 1 && request.a.col_stride != 1) ||
      (request.b.row_stride != 1 && request.b.col_stride != 1) || (request.delivered && request.p.col_stride != 1) ||
      (request.finish.d.address != 0 && request.finish.d.col_stride != 1)) {
    return refuse(Reason::kUnsupportedOrder);
  }
  if (request.delivered && (request.finish.epilogue & (kEpilogueRelu | kEpilogueGelu)) != 0) {
    return refuse(Reason::kUnsupportedEpilogue);  // the product cannot be read back through an activation
  }
  if (request.accumulator == Accumulator::kF16) return refuse(Reason::kCompute16f);
  if (request.accumulator != Accumulator::kF32 || request.rounding > OperandRounding::kTf32) {
    return refuse(Reason::kUnsupportedType);
  }
  const FinishView& finish = request.finish;
  if (finish.aux_kind != AuxKind::kNone) return refuse(Reason::kUnsupportedEpilogue);
  if (finish.scalar_type != DataType::kF32 || finish.alpha_column_stride != 0 || finish.beta_column_stride != 0 ||
      finish.alpha_batch_stride != 0 ||
      (finish.scale_a | finish.scale_b | finish.scale_c | finish.scale_d | finish.amax_d) != 0 ||
      (request.a.pointers | request.b.pointers | request.p.pointers | finish.c.pointers | finish.d.pointers) != 0) {
    return refuse(Reason::kUnsupportedAttribute);
  }
  // The product has written over the C that it was made from.
  if (request.delivered && !request.c_apart) return refuse(Reason::kInplace);
  // Lines and columns are counted in 32 bits.
  if (request.n1 > (int64_t{1} << 32) / request.batch - 1 || request.n3 >= int64_t{1} << 31) {
    return refuse(Reason::kLinesOverflow);
  }

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
  p.fold_batch = request.b.batch_stride == 0 ? 1 : request.batch;
  p.draws = kDraws;
  p.audit_lines = kAuditLines;
  const bool delivers = !request.delivered && request.finish.d.address != 0;
  p.fused_finish = delivers && request.c_apart ? 1 : 0;
  p.finish_launched = delivers && !request.c_apart ? 1 : 0;

  if (narrow) {
    p.plan = Plan::kBlockSums;
    p.classes = static_cast<uint32_t>(parts(p.n3, kBlockWidth));
  } else {
    p.classes = classes_of(p.n1, p.n3);
    const int64_t least_cells = p.n3 < kEntryMedianMin ? kShortRecomputeCells : kRecomputeCells;
    p.plan = p.n1 * int64_t{p.classes} < least_cells ? Plan::kRecompute : Plan::kLine;
  }
  p.vectors = static_cast<uint32_t>(parts(int64_t{kDraws} * p.classes, 16) * 16);
  p.repairs = request.mode == Mode::kRepair && p.plan != Plan::kBlockSums ? 1 : 0;

  const double tests = static_cast<double>(p.lines) * p.classes * kDraws;
  p.look_scale = static_cast<float>(narrow ? hoeffding_scale_of(tests) : look_scale_of(tests));
  const bool on_tensor_cores = request.a.type != DataType::kF32 || request.rounding == OperandRounding::kTf32;
  p.sigma_envelope = static_cast<float>(sigma_envelope_of(p.n2, request.rounding));
  p.entry_c_max = static_cast<float>(
      on_tensor_cores ? entry_c_max(p.n2, std::max(1u, request.tensor_core.products), request.tensor_core.guard_bits)
                      : entry_c_max(p.n2, 1, 64));
  p.entry_eps_acc = static_cast<float>(kEpsFp32);
  p.entry_eps_in = request.rounding == OperandRounding::kTf32 ? static_cast<float>(kEpsTf32Inputs) : 0.0f;
  p.line_sum_scale = static_cast<float>(static_cast<double>(p.entry_c_max) * static_cast<double>(p.entry_eps_acc) +
                                        static_cast<double>(p.entry_eps_in) + kLineSumRounding);

  if (!request.delivered) {
    // Rows of whole 128-byte lines where that costs little; always of whole vectors.
    const int64_t unit = p.n3 >= 32 ? 32 : 4;
    p.p.type = DataType::kF32;
    p.p.row_stride = parts(p.n3, unit) * unit;
    p.p.col_stride = 1;
    p.p.batch_stride = p.n1 * p.p.row_stride;
    const double bytes = static_cast<double>(p.lines) * static_cast<double>(p.p.row_stride) * 4.0;
    if (bytes > kLargestScratch) return refuse(Reason::kNoWorkspace);
    plan.product_bytes = (static_cast<uint64_t>(p.lines) * static_cast<uint64_t>(p.p.row_stride) * 4 + kAlignment - 1) /
                         kAlignment * kAlignment;
  }

  const int64_t tiles = parts(p.n2, kFoldTile);
  const int64_t words = parts(p.n3, 32);
  const int64_t slices = words;  // of kColumns = 32 columns in kernels/recompute.h
  const uint64_t slot_bytes = static_cast<uint64_t>(p.n3) * 3 * sizeof(float);
  p.line_slots = static_cast<uint32_t>(
      std::min<int64_t>(p.lines, std::max<int64_t>(kLeastSlots, static_cast<int64_t>(kSlotBudgetBytes / slot_bytes))));
  const int64_t sms = std::max<int64_t>(1, request.sm_count);
  const int64_t spare_blocks =
      std::max<int64_t>(kLeastSpareBlocks, static_cast<int64_t>(kSpareBudgetBytes / (slot_bytes * kSpareLines)));
  p.repair_grid = blocks(p.lines, std::min<int64_t>({2 * sms, spare_blocks, int64_t{1} << 16}));

  const double largest = static_cast<double>(p.fold_batch) * static_cast<double>(p.n2) * p.vectors * 4.0 +
                         static_cast<double>(p.lines) * p.vectors * 4.0 +
                         static_cast<double>(p.fold_batch * tiles) * p.classes * 8.0 +
                         static_cast<double>(p.lines) * 48.0 + static_cast<double>(p.batch) * kPeakBins * 12.0 +
                         (static_cast<double>(p.line_slots) + static_cast<double>(p.repair_grid) * kSpareLines) *
                             static_cast<double>(slot_bytes);
  if (largest > kLargestScratch) return refuse(Reason::kNoWorkspace);

  ScratchLayout& layout = plan.layout;
  uint64_t at = 0;
  const uint64_t fold_batch = static_cast<uint64_t>(p.fold_batch);
  const uint64_t lines = static_cast<uint64_t>(p.lines);
  const uint64_t all_tiles = fold_batch * static_cast<uint64_t>(tiles);
  const uint64_t rows_of_b = fold_batch * static_cast<uint64_t>(p.n2);
  layout.fold_ticket = take(at, kZeroedScratchBytes);
  layout.verdict = take(at, sizeof(Verdict));
  layout.tile_marks = take(at, all_tiles * (1 + kMaxMarkedColumns) * 4);
  layout.tile_energy = take(at, all_tiles * p.classes * 8);
  layout.fold_sums = take(at, rows_of_b * p.vectors * 4);
  layout.fold_mean = take(at, rows_of_b * 4);
  layout.fold_deviation = take(at, rows_of_b * 4);
  layout.fold_rms = take(at, rows_of_b * 4);
  layout.signs = take(at, kDraws * static_cast<uint64_t>(words) * 4);
  layout.column_marks = take(at, fold_batch * static_cast<uint64_t>(words) * 4);
  layout.marked_columns = take(at, fold_batch * (1 + kMaxMarkedColumns) * 4);
  layout.line_dots = take(at, lines * p.vectors * 4);
  layout.line_noise = take(at, lines * 16);
  layout.line_sums = take(at, lines * 16);
  layout.line_peak = take(at, lines * 4);
  layout.peak_counts = take(at, static_cast<uint64_t>(p.batch) * kPeakBins * 4);
  layout.peak_sums = take(at, static_cast<uint64_t>(p.batch) * kPeakBins * 8);
  layout.sigmas = take(at, static_cast<uint64_t>(p.batch) * 4);
  layout.listed = take(at, lines * 4);
  layout.recomputed = take(at, (p.line_slots + static_cast<uint64_t>(p.repair_grid) * kSpareLines) * slot_bytes);
  layout.kept_c = at;
  layout.bytes = at;

  const auto launch = [&plan](Kernel kernel, uint32_t grid) {
    plan.launch[static_cast<uint32_t>(kernel)] = LaunchShape{grid, 256, 0, static_cast<uint32_t>(kernel)};
  };
  launch(Kernel::kFold, blocks(tiles * p.fold_batch, 4 * sms));
  launch(Kernel::kOperand, blocks(parts(p.n1, 32) * p.batch, 4 * sms));
  launch(Kernel::kProduct, blocks(parts(p.n1, 8) * p.batch, 4 * sms));
  launch(Kernel::kRecompute, blocks(slices * std::min<int64_t>(parts(p.line_slots, 4), 16), 4 * sms));
  launch(Kernel::kRepair, p.repair_grid);
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
  p.fold_deviation = base + layout.fold_deviation;
  p.fold_rms = base + layout.fold_rms;
  p.signs = base + layout.signs;
  p.column_marks = base + layout.column_marks;
  p.marked_columns = base + layout.marked_columns;
  p.line_dots = base + layout.line_dots;
  p.line_noise = base + layout.line_noise;
  p.line_sums = base + layout.line_sums;
  p.line_peak = base + layout.line_peak;
  p.peak_counts = base + layout.peak_counts;
  p.peak_sums = base + layout.peak_sums;
  p.sigmas = base + layout.sigmas;
  p.listed = base + layout.listed;
  p.recomputed = base + layout.recomputed;
}

}  // namespace sdcguard

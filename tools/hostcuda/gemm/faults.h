// SPDX-License-Identifier: MIT
// clang-format off: the tables below
// Fault plan of the host device: what HOSTCUDA_FAULTS says, read once, and how it changes the sums of a product.
//
// HOSTCUDA_FAULTS is the path of a TOML file, or TOML text itself (no file of that name and a '=' or line end in it):
//
//   seed = 7                        # of every random choice; default 0
//   [[fault]]                       # any number; a product takes all that match it, in this order
//   kind = "accumulator"            # required, see below
//   # which products: all conditions given must hold
//   device = 1                      # ordinal or "GPU-8-4-4-4-12" UUID; default every device
//   products = [0, 5]               # product numbers of that device: N, [list] or "lo..hi"; default all
//   every = 10                      # only numbers with number % every == offset
//   offset = 0
//   probability = 0.25              # only this share of them, by a seeded draw
//   m = ">=512"                     # N, "lo..hi", "<N", "<=N", ">N", ">=N"; likewise n, k, batch
//   type = "bf16"                   # bf16 fp16 fp32 tf32 fp64 e4m3 e5m2 e2m1 int8: operand A (tf32: computed as TF32)
//   # which entries of D (column-major, as cuBLAS sees it)
//   count = 3                       # entries (tiles, columns, rows, pairs) a product; default 1
//   row = 5                         # default: random, each entry hit at most once a product where possible
//   col = 9
//   entry = 0                       # batch entry; default random
//   seed = 99                       # of this fault's choices; default: from the plan's seed and the fault's position
//
//   kind               what happens to the raw sum; then the keys of that kind beside those above
//   "output"           bits of the finished sum are flipped. bits, flips
//   "accumulator"      bits of the live accumulator are flipped after the step that consumes product k_step, and the
//                      sum goes on from there in the same order. bits, flips, k_step
//   "stuck"            a bit reads 0 or 1 in every entry with row % 16 == line_row and col % 8 == line_col, in every
//                      batch entry. bits (one), value, line_row, line_col; not row, col, entry, count
//   "word"             the sum is replaced. value: a number, or the bits as "0x7f7fffff": 8 digits at most for FP32 and
//                      INT32 sums, 9 to 16 for FP64 sums; sums of the other width are not touched
//   "tile"             wrong values in a rectangle, each off by +-E u, u in [1/2, 1].
//                      rows (16), cols (8), delta, scale
//   "nan"              the canonical NaN; INT32 sums are not touched
//   "inf"              an infinity of random sign; INT32 sums are not touched
//   "skip"             a rectangle of D is not written, it stays as it was. rows (1), cols (1)
//   "column"           E is added to a whole column of D. delta, scale, sign, factor; not row
//   "row"              E is added to a whole row of D. delta, scale, sign, factor; not col
//   "one_per_column"   E is added to one random entry of each column. delta, scale, sign, factor; not row, col, count
//   "one_per_row"      E is added to one random entry of each row. delta, scale, sign, factor; not row, col, count
//   "all"              E is added to every entry. delta, scale, sign, factor; not row, col, count
//   "pair"             two entries of one column of D get +E and -E (sign = "opposite", the default), +E twice
//                      ("same") or random signs. delta, scale, sign, row2
//
//   bits   = 26, [3, 26] or "20..30": candidates, 0 = last bit; FP32: 23 .. 30 exponent, 31 sign; FP64: 52 .. 62, 63.
//            Default 20..30, for FP64 49..62. Bits that the sums lack are left out; with fewer than `flips` left they
//            are not touched
//   flips  = 1: how many different ones of them are flipped, chosen at random
//   k_step = product index in [0, k), default random
//   factor = entries are multiplied by it, nothing is added ("column", "row", "one_per_column", "one_per_row", "all")
//   delta  = E as a number; scale = E as a multiple of the batch entry's root mean square (default 1). INT32 sums:
//            rounded, at least 1 either way, modulo 2^32
//   sign   = "same" (every entry +E; default) or "random"
//
// A key, value or type that is not in this list is an error: one line names the key, its line and what is allowed.
// Deterministic: a product's faults depend on (seed, device ordinal, product number, the product itself) alone.
//
// Injection log, HOSTCUDA_FAULT_LOG = path: a JSON object and a line for each touched entry, appended in one write when
// injected. Fields:
//   seq          number of the line in this process, from 0
//   device, uuid, product, stream, m, n, k, type_a, type_b, order      the product; types by their names above
//   compute      fp32 fp16 fp64 int32 tf32 fp8_fast
//   batch        batch entry
//   fault, kind  position in the plan, from 0, and its kind
//   row, col     of D, column-major as cuBLAS sees it
//   k_step       product index after whose step the accumulator was changed, or null
//   bits         list of the bits that were flipped or stuck; [] where a whole value was set
//   clean, faulty            raw product sums, 9 significant digits (FP64: 17); null where not finite (the bits hold)
//   clean_bits, faulty_bits  "0x%08x" (FP64: "0x%016x"); clean is the value before any fault; faulty: null for "skip"
//   (D's old value) bound        entry bound tau of this entry on the clean line (bound.h); null where it is not finite
//   above_bound  |faulty - clean| > bound, or one of them not finite; null for "skip"
//   effect       false where faulty and clean have the same bits; null for "skip"
// clang-format on
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gemm.h"
#include "order.h"

namespace hostcuda::gemm {

enum class FaultKind : uint8_t {
  kOutput,
  kAccumulator,
  kStuck,
  kWord,
  kTile,
  kNan,
  kInf,
  kSkip,
  kColumn,
  kRow,
  kOnePerColumn,
  kOnePerRow,
  kAll,
  kPair,
};
const char* fault_kind_name(FaultKind kind);

// Inclusive.
struct IntegerRange {
  int64_t low = 0;
  int64_t high = INT64_MAX;
  bool contains(int64_t value) const { return value >= low && value <= high; }
};

struct FaultRule {
  FaultKind kind = FaultKind::kOutput;
  std::optional<int64_t> device;
  std::string uuid;  // lower case, "gpu-..."; empty: any
  std::vector<int64_t> product_list;
  IntegerRange products;
  int64_t every = 1;
  int64_t offset = 0;
  double probability = 1.0;
  IntegerRange m, n, k, batch;
  std::string type;  // name of operand A's type; empty: any
  uint64_t seed = 0;
  int64_t count = 1;
  std::optional<int64_t> row, row2, col, entry;
  std::vector<int> bits;  // empty: default_bits of the sums
  int flips = 1;
  std::optional<int64_t> k_step;
  int word_width = 0;  // 32 or 64: word_bits holds; 0: word_value does
  uint64_t word_bits = 0;
  double word_value = 0;
  bool stuck_value = false;
  int64_t line_row = 0, line_col = 0;
  int64_t rows = 1, cols = 1;
  std::optional<double> factor;
  std::optional<double> delta;
  double scale = 1.0;
  enum class Sign : uint8_t { kSame, kOpposite, kRandom } sign = Sign::kSame;
};

struct FaultPlan {
  std::vector<FaultRule> rules;
};

// Parses TOML text; `name` is what messages call it. False: *error is one line with the key, the line, what is allowed.
bool parse_fault_plan(std::string_view text, const std::string& name, FaultPlan* plan, std::string* error);

// The value of HOSTCUDA_FAULTS: a path or the text itself. False as above.
bool load_fault_plan(const std::string& setting, FaultPlan* plan, std::string* error);

// Names of the log and of a rule's `type`.
const char* operand_name(const Product& product, const Operand& operand);
const char* compute_name(Compute compute);
inline constexpr const char* kOperandNames[] = {"bf16", "fp16", "fp32", "tf32", "fp64", "e4m3", "e5m2", "e2m1", "int8"};

// The bits that are candidates where a rule names none: the exponent and the top of the significand.
std::vector<int> default_bits(Type sums);

// Takes finished lines of the injection log (with line end).
class FaultLog {
 public:
  virtual ~FaultLog() = default;
  virtual void write(const std::string& line) = 0;
};

// Changes product.out (finished, raw sums) as the plan says; every touched entry goes to the log (null: none).
// Rectangles not to be written are appended to *skipped. Returns the entries touched.
uint64_t inject_faults(const FaultPlan& plan, const Order& order, const Product& product, FaultLog* log,
                       std::vector<Skipped>* skipped);

}  // namespace hostcuda::gemm

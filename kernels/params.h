// SPDX-License-Identifier: MIT
// Arguments of every kernel: what the shim passes and the kernels read. Plain data, no CUDA header.
//
// Notation (MATH.md): P = A B with A n1 x n2, B n2 x n3, all row-major. A column-major cuBLAS call C = op(A') op(B')
// (m x n, inner k) is read as its transpose: n1 = n, n2 = k, n3 = m, our A = op(B')^T, our B = op(A')^T, and row i of
// P is the contiguous column i of the caller's C. Addresses are device addresses (uint64_t, 0 = absent).
//
//   side stream:  fold ---> operand --+
//   app stream:   (the product) ------+--> product ---> recompute ---> repair [---> finish]
//
// fold clears what the later kernels count in, product's last block gives the verdict, the last kernel writes the call
// record. Who fills ProbeParams: make_plan() (kernels/plan.h) all derived numbers, bind_scratch() the scratch
// addresses, the shim the rest (marked "shim").
#pragma once

#include <cstdint>

#include "sdcguard/types.h"

namespace sdcguard {

// A matrix in device memory. Element (r, c) of batch entry b is at address + (r row_stride + c col_stride + b
// batch_stride) elements. One of the strides is 1; of P, C and D it is col_stride. Owner: the caller of cuBLAS, or the
// shim's scratch. A zero batch_stride is one matrix for the whole batch.
struct MatrixView {
  uint64_t address;
  int64_t row_stride;
  int64_t col_stride;
  int64_t batch_stride;
  DataType type;
  // Device address of `batch` device addresses (uint64_t), read on the device when a kernel runs. Special values: 0 =
  // strided. Else entry b starts at pointers[b], and batch_stride is not used; address is then only tested for 0.
  uint64_t pointers = 0;
};

inline constexpr uint32_t kDraws = 2;              // independent sign draws in one probe
inline constexpr uint32_t kMaxClasses = 64;        // c of one draw under the line plan: a power of two
inline constexpr uint32_t kBlockWidth = 32;        // columns in a class under the block-sum plan
inline constexpr uint32_t kMaxMarkedColumns = 64;  // non-finite columns of B taken out; more: the call is unverified
inline constexpr uint32_t kAuditLines = 4;         // random lines recomputed while a history is not seeded
inline constexpr uint32_t kHistoryDepth = 64;
inline constexpr uint32_t kSpareLines = 4;          // overflow lines that a repair block recomputes at once
inline constexpr uint32_t kMaxFaultRecords = 1024;  // fault records of one call; entries beyond are counted only
inline constexpr uint32_t kFoldTile = 32;           // rows of B that a fold block takes at once
inline constexpr double kLineAside = -1.0;          // in line_noise and line_peak: the row of A is not finite
inline constexpr double kLineOutOfRange = -2.0;     // in both: its sums or scales leave the range; nothing is judged
inline constexpr uint32_t kPrefixStep = 16;         // steps of the running energies along k
inline constexpr uint32_t kPeakBins = 128;  // of the histogram of |z|, four an octave from 2^-4 (MATH.md "sigma")

// What an AUX epilogue leaves behind for the backward pass.
enum class AuxKind : uint8_t {
  kNone = 0,
  kReluMask = 1,   // one bit an entry: 1 where the value before ReLU is above 0. Strides of `aux` are in bits.
  kGeluInput = 2,  // the value before GELU, in aux.type
};

// What the caller asked for: D = scale_d activation(alpha scale_a scale_b P + beta scale_c C + bias), cast to D's type.
// Upgraded product: the kernels deliver D from P. Product checked as delivered (ProbeParams::delivered): P is the
// caller's D, `d.address` is 0, and the kernels compare P with the same expression. alpha 0: P is not referenced;
// beta 0: C is not read.
struct FinishView {
  MatrixView d;            // n1 x n3 view of the caller's D; address 0: nothing to deliver.
  MatrixView c;            // n1 x n3 view of the caller's C; read only where beta is not 0.
  uint64_t alpha_address;  // 0: `alpha` holds. Else scalar_type in device memory.
  uint64_t beta_address;
  double alpha;  // exact for every scalar type
  double beta;
  DataType scalar_type = DataType::kF32;  // what the addresses point to: kF32, kF64, kF16 or kI32
  // 0: one scalar. 1: a vector of n3 scalars, one a column of P, that is a row of the caller's column-major D.
  int64_t alpha_column_stride;
  int64_t beta_column_stride;
  int64_t alpha_batch_stride;  // elements between the alphas (and betas) of two batch entries
  uint64_t bias_address;       // n3 values (one a column of P), 0: none.
  int64_t bias_batch_stride;
  DataType bias_type;
  uint32_t epilogue;  // kEpilogueRelu, kEpilogueGelu (bias by bias_address).
  // FP32 factors in device memory, 0: 1.0. a and b in the letters of this file: scale_a belongs to our A (the caller's
  // B), scale_b to our B (the caller's A).
  uint64_t scale_a, scale_b, scale_c, scale_d;
  uint8_t scale_a_vector;  // 1: n1 factors, one a row of P
  uint8_t scale_b_vector;  // 1: n3 factors, one a column of P
  AuxKind aux_kind;
  MatrixView aux;   // n1 x n3; kReluMask: its row_stride is the ld in bits, `type` is not used
  uint64_t amax_d;  // one FP32 in device memory: largest |value| before scale_d and the cast, written last. 0: none.
};

// Running noise of a site: in device memory, zeroed at warm-up. Writer: the last block of a clean call. Two calls on
// two streams may write at once: each takes its own slot by atomic_add on `count`; a slot taken and not yet written
// reads 0 or an old value, and zeros are skipped.
struct SiteHistory {
  float sigma[kHistoryDepth];  // ring of the last clean calls. Special values: 0 = not written yet.
  uint32_t count;              // clean calls so far, modulo 2^32
  uint32_t agreed;             // audited lines that agreed; kAuditLines or more: the history is seeded
  uint32_t reserved[6];
};
static_assert(sizeof(SiteHistory) == kHistoryDepth * 4 + 32);

// One key of the fold cache: in device memory, zeroed at warm-up. Writers: last blocks of the calls of the key.
// Readers: their folds. Its images (ProbeParams::fold_images) are kFoldGenerations times fold_bytes. See fold_cache.h.
inline constexpr uint32_t kFoldGenerations = 2;
struct FoldCache {
  uint64_t state;      // generation << 8 | phase
  uint64_t candidate;  // fingerprint of the last fold in its upper 56 bits, how many in a row had it in the lower 8
  uint64_t used;       // calls that used a published fold
  uint64_t stale;      // generations that went stale
  uint32_t columns_nonfinite[kFoldGenerations];
  uint64_t reserved[11];
};
static_assert(sizeof(FoldCache) == 128);

// Verdict of one call; one in each scratch, cleared by the fold kernel. Readers on the device: escalate, finish and
// record code. The host never reads it (tests do).
struct Verdict {
  uint32_t word;          // 0: clean, escalate returns at once. Bits below.
  uint32_t reason;        // Reason, with kVerdictUnverified
  uint32_t lines_dirty;   // lines over the threshold, or recomputed outright
  uint32_t lines_listed;  // entries of the list in all: dirty ones in line order, then audited ones
  uint32_t lines_audited;
  uint32_t lines_nonfinite;    // rows of A marked
  uint32_t columns_nonfinite;  // columns of B marked
  uint32_t range;              // 1: a class sum of B or an energy of it left the range: no line can be judged
  uint64_t entries_named;      // beyond the entry bound
  uint64_t entries_repaired;
  uint64_t entries_unjudged;  // where sum |A||B| leaves the FP32 range: any order may overflow
  uint32_t lines_agreed;      // audited lines without a named entry
  uint32_t fault_records;     // written, at most kMaxFaultRecords
  uint32_t product_blocks;    // blocks that finished, to find the last one
  uint32_t repair_blocks;
  uint32_t finish_blocks;
  uint32_t outcome;  // Outcome, by repair's last block
  float sigma;       // largest sigma of the batch, as used
  float sigma_cap;   // cap in force
  float threshold;   // look_scale
  float worst;  // largest |r| / (sigma s), of a noisier line over its own (look.h); kBlockSums: |r| / bound. Inf: not
                // finite, or a line's sum is wrong
  float sigma_measured;         // largest sigma of the batch before the cap
  uint32_t lines_out_of_range;  // not judged; the call is unverified(range) if nothing was named
  uint32_t amax;                // bits of the largest |value| that finish delivered
  uint32_t reserved;
};
static_assert(sizeof(Verdict) == 112 && alignof(Verdict) == 8);
inline constexpr uint32_t kVerdictLook = 1;        // at least one listed line
inline constexpr uint32_t kVerdictUnverified = 2;  // Verdict::reason holds: nothing is touched

// Where the device writes its records. The counters are in device memory, the slots in the registered ring.
struct LaneView {
  uint64_t call_slots;  // device address of the calls lane's slot 0; 0: no lane, nothing is written
  uint64_t fault_slots;
  uint64_t call_tickets;  // uint64_t in device memory, atomic
  uint64_t fault_tickets;
  uint32_t call_mask;  // slots - 1
  uint32_t fault_mask;
  uint16_t call_lane;
  uint16_t fault_lane;
};

// What the call record carries and the device cannot know. Mirrors CallRecord.
struct CallIdentity {
  uint64_t call_id, site, seed, enqueued_ns, stream;
  int64_t m, n, k, batch;
  uint16_t entry;
  uint8_t mode;
  uint8_t device;
  uint8_t upgraded;
  DataType type_a, type_b, type_c, type_d;
  uint32_t epilogue;
};

// One probe: the same struct goes to every kernel of a call.
struct ProbeParams {
  int64_t n1, n2, n3, batch;
  MatrixView a;  // n1 x n2
  MatrixView b;  // n2 x n3
  MatrixView p;  // n1 x n3: scratch in the accumulator's type (upgraded) or the caller's D as delivered
  // The caller's C that the product will write over (an in-place product checked as delivered): the keep kernel copies
  // it before the product to where finish.c then points. address 0: nothing to keep.
  MatrixView written_c;
  FinishView finish;
  Plan plan;  // kLine, kBlockSums or kRecompute
  Mode mode;
  uint8_t fused_finish;     // 1: product delivers D, repair rewrites repaired entries
  uint8_t finish_launched;  // 1: the finish kernel delivers D and writes the call record
  uint8_t delivered;        // 1: p is the caller's D as the library wrote it
  uint8_t repairs;          // 1: repair writes right values (mode repair)
  uint8_t draws;            // sign draws that are judged: kDraws (tests: 1)
  uint8_t audit_lines;      // kAuditLines while the history is not seeded (0: none)
  uint32_t classes;         // c of one draw
  uint32_t vectors;         // kDraws * c rounded up to 16: class-sum vectors as stored
  uint32_t line_slots;      // L: listed lines with recomputation slots
  uint32_t repair_grid;     // blocks of the repair kernel, each with kSpareLines spare slots
  int64_t fold_batch;       // distinct B of the batch: 1 when b.batch_stride is 0
  int64_t lines;            // batch * n1
  uint64_t seed;            // Philox key of the sign draws and of the audited lines (shim)
  float look_scale;         // T (MATH.md "look"); kBlockSums: the Hoeffding multiplier
  float verifier_scale;     // of the verifier's own rounding, where the library's is no larger (MATH.md "residual")
  float sigma_envelope;     // a-priori envelope of sigma
  float entry_c_max;        // c_max of the entry bound
  float entry_eps_acc;      // 0: a type without a bound, no entry is ever named
  float entry_eps_in;
  double entry_tiny;  // added to the entry bound: what partial products and sums below the normal range may lose
  double cell_tiny;   // square of the same for a cell of one column, in its s^2
  double accumulator_largest;  // sum |A||B| beyond it: some order of summation overflows
  double operand_largest;      // finite entries of A or B beyond it do not survive the library's rounding of operands
  // Nonzero entries below these lose more than their size tells (the library's format of operands has its smallest
  // normal value there): they count as this much.
  float operand_floor_a, operand_floor_b;
  float entry_floor;          // least of the entry bound's scale: products that happen to be exact bound no others
  float entry_envelope_unit;  // turns the envelope of sigma (units of u) into one of d / w
  float finish_eps;           // rounding of alpha P + beta C + bias as delivered, relative to each term
  float sigma_floor;          // least sigma: products that happen to be exact say nothing about the noise of others
  float line_sum_scale;       // bound of a line's sum in units of n3 Sum|A| rms(B) (MATH.md "line sum")
  uint64_t fold_bytes;        // of one fold: the arrays from tile_energy to marked_columns, a multiple of 256
  uint64_t fold_cache;        // FoldCache of this B, 0: none (shim)
  uint64_t fold_images;       // its memory for published folds, 256-byte aligned (shim)
  uint64_t site_history;      // SiteHistory, 0: none (shim)
  uint64_t family_history;    // SiteHistory read while the site's is not seeded, 0: none (shim)
  // Scratch, by bind_scratch(). Readers and writers in plan.h. T: the arithmetic of the probe, that is float, double (P
  // is kF64) or uint32_t (P is kI32, modulo 2^32).
  uint64_t verdict;         // Verdict
  uint64_t fold_ticket;     // uint32_t: blocks of fold that finished; zero between calls. Then fold_cache.h's words
  uint64_t tile_marks;      // uint32_t [fold tiles][1 + kMaxMarkedColumns]: count and columns of a tile
  uint64_t tile_energy;     // double [fold tiles][classes]: sum of B^2 of the tile a class
  uint64_t fold_sums;       // T [fold_batch][n2][vectors]: class sums, vector draw * c + class
  uint64_t fold_mean;       // T [fold_batch][n2]: mean of row k of B, columns set aside left out
  uint64_t fold_rms;        // T [fold_batch][n2]: root mean square of row k of B
  uint64_t signs;           // uint32_t [kDraws][ceil(n3 / 32)]: bit j set: column j counts minus
  uint64_t column_marks;    // uint32_t [fold_batch][ceil(n3 / 32)]: bit j set: column j of B is set aside
  uint64_t marked_columns;  // uint32_t [fold_batch][1 + kMaxMarkedColumns]: count and columns
  uint64_t line_dots;       // T [lines][vectors]: A_i . fold sums
  uint64_t line_noise;      // double [lines][2]: mean_t P_t^2 and the addends' energy; first may be kLineAside or
                            // kLineOutOfRange
  uint64_t line_sums;       // double [lines][2]: A_i . mean and sum (|A_ik| rms_k + 2^-126)
  uint64_t line_peak;    // float [lines]: largest |r| / s (kBlockSums: / bound); Inf: not finite, or the line's sum is
                         // wrong; kLineAside, kLineOutOfRange
  uint64_t line_median;  // float [lines]: median of the line's |r| / s that are not 0; 0: none is used (look.h)
  uint64_t cells;        // float [lines][classes][kDraws + 1]: residuals, then s. 0: not written (tests bind it)
  uint64_t peak_counts;  // uint32_t [batch][kPeakBins]
  uint64_t peak_sums;    // uint64_t [batch][kPeakBins]: |z| in units of 2^-8
  uint64_t sigmas;       // float [batch]
  uint64_t listed;       // uint32_t [lines]: listed lines (batch * n1 + row)
  uint64_t recomputed;   // T [line_slots + repair_grid * kSpareLines][3][n3]: gamma, sqrt(sum A^2 B^2), sum |A||B|
  uint64_t product_pointers;  // uint64_t [batch]: addresses of the products in scratch, where the library asks for them
  LaneView lane;              // (shim)
  CallIdentity identity;      // (shim)
};
static_assert(sizeof(ProbeParams) <= 4096);

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// Arguments of every kernel: what the shim passes and the kernels read. Plain data, no CUDA header.
//
// Notation (MATH.md): P = A B with A n1 x n2, B n2 x n3, all row-major. A column-major cuBLAS call C = op(A') op(B')
// (m x n, inner k) is read as its transpose: n1 = n, n2 = k, n3 = m, our A = op(B')^T, our B = op(A')^T, and row i of
// P is the contiguous column i of the caller's C. Addresses are device addresses (uint64_t, 0 = absent).
#pragma once

#include <cstdint>

#include "sdcguard/types.h"

namespace sdcguard {

// A matrix in device memory. Element (r, c) of batch entry b is at address + (r row_stride + c col_stride + b batch_stride)
// elements. One of the strides is 1. Owner: the caller of cuBLAS, or the shim's scratch.
struct MatrixView {
  uint64_t address;
  int64_t row_stride;
  int64_t col_stride;
  int64_t batch_stride;
  DataType type;
};

inline constexpr uint32_t kDraws = 2;        // independent sign draws in one probe
inline constexpr uint32_t kMaxClasses = 64;  // c of one draw under the line plan
inline constexpr uint32_t kMaxMarkedColumns = 64;  // non-finite columns of B taken out one by one; more: the call is unverified
inline constexpr uint32_t kAuditLines = 4;   // random lines recomputed while a history is not seeded
inline constexpr uint32_t kHistoryDepth = 64;

// How the product is turned into what the caller asked for:
//   D = activation(alpha P + beta C + bias), cast to D's type.
// alpha and beta are FP32 scalars, by value or behind a device pointer (then read by the kernel, never by the host).
struct FinishView {
  MatrixView d;           // n1 x n3 view of the caller's D; address 0: nothing to deliver (native product).
  MatrixView c;           // n1 x n3 view of the caller's C; read only where beta is not 0.
  uint64_t alpha_address; // 0: `alpha` holds. Else one float in device memory.
  uint64_t beta_address;
  float alpha;
  float beta;
  uint64_t bias_address;  // n3 values (one a column of P), 0: none.
  int64_t bias_batch_stride;
  DataType bias_type;
  uint32_t epilogue;      // kEpilogueRelu, kEpilogueGelu (bias by bias_address).
};

// Running noise of a site: in device memory, zeroed at warm-up, written by the verdict of clean calls only.
struct SiteHistory {
  float sigma[kHistoryDepth];  // ring of the last clean calls
  uint32_t count;              // clean calls written so far
  uint32_t seeded;             // random lines recomputed and agreed, counted up to kAuditLines, then seeded
  uint32_t reserved[6];
};
static_assert(sizeof(SiteHistory) == kHistoryDepth * 4 + 32);

// Verdict of one call; one in each scratch, zeroed by the fold kernel at the start of the call.
// Readers on the device: the escalate, finish and record code. The host never reads it.
struct Verdict {
  uint32_t word;               // 0: clean, escalate returns at once. Bits below.
  uint32_t lines_dirty;        // entries of the list that are over the threshold or recomputed outright
  uint32_t lines_listed;       // entries of the list in all (dirty, then audited)
  uint32_t lines_audited;
  uint32_t lines_nonfinite;    // rows of A marked
  uint32_t columns_nonfinite;  // columns of B marked
  uint32_t entries_named;
  uint32_t entries_repaired;
  uint32_t blocks_done;        // product pass: blocks that finished
  uint32_t lines_done;         // escalate: lines that were compared
  uint32_t range;              // 1: an energy left the range
  uint32_t lines_agreed;       // audited lines without a named entry
  float sigma;
  float sigma_cap;
  float threshold;
  float worst;
  uint64_t reserved[8];
};
inline constexpr uint32_t kVerdictLook = 1;       // at least one listed line
inline constexpr uint32_t kVerdictUnverified = 2; // range, or too many non-finite columns: nothing is touched

// Where the device writes its records. The counters are in device memory, the slots in the registered ring.
struct LaneView {
  uint64_t call_slots;     // device address of the calls lane's slot 0; 0: no lane, nothing is written
  uint64_t fault_slots;
  uint64_t call_tickets;   // uint64_t in device memory, atomic
  uint64_t fault_tickets;
  uint32_t call_mask;      // slots - 1
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
  MatrixView a;            // n1 x n2
  MatrixView b;            // n2 x n3
  MatrixView p;            // n1 x n3: FP32 scratch (upgraded) or the caller's D as delivered
  FinishView finish;
  Plan plan;               // kLine, kBlockSums or kRecompute
  Mode mode;
  uint8_t fused_finish;    // 1: the product pass delivers D, escalate rewrites repaired entries; 0: finish kernel delivers
  uint8_t delivered;       // 1: p is the caller's D as the library wrote it (kBlockSums, or FP32 not redirected)
  uint32_t classes;        // c of one draw
  uint32_t prefix_tiles;   // ceil(n2 / 16): steps of the running energies
  uint32_t line_slots;     // L: listed lines with recomputation slots in scratch
  uint32_t recompute_blocks;  // blocks of the second escalate launch, each with one spare slot
  uint64_t seed;           // Philox key of the sign draws and of the audited lines
  float look_scale;        // T, from the number of cells (MATH.md "look"); kBlockSums: the Hoeffding multiplier
  float sigma_envelope;    // a-priori envelope of sigma: max(0.4 sqrt n2, 0.04 n2)
  float entry_c_max;       // c_max of the entry bound
  float entry_eps_acc;     // eps_acc
  float entry_eps_in;      // eps_in
  uint32_t history_count;  // histories that may cap sigma: 0 none, 1 the site's, 2 the site's and its family's
  uint64_t site_history;   // SiteHistory
  uint64_t family_history; // SiteHistory of (type, floor(log2 n2), device): read while the site's is not seeded
  // Scratch, all device addresses, owner the shim; sizes from scratch_layout().
  uint64_t verdict;        // Verdict
  uint64_t fold_sums;      // float [batch_b][kDraws * classes][n2]
  uint64_t fold_mean;      // float [batch_b][n2]
  uint64_t fold_var;       // double-safe float pairs are in MATH.md; [batch_b][n2]
  uint64_t class_energy;   // double [batch_b][classes + 1]: ||B_b||_F^2 a class, then the total
  uint64_t column_marks;   // uint32_t bit set [batch_b][ceil(n3 / 32)], then uint32_t count and list of kMaxMarkedColumns
  uint64_t line_dots;      // float [batch][n1][kDraws * classes]: A_i . fold
  uint64_t line_noise;     // double [batch][n1][2]: mean_t(P_t^2) and mean_t(sum A^2 var); negative first: row marked
  uint64_t cells;          // float [batch][n1][classes * (kDraws + 1)]: residuals of each draw, then s
  uint64_t lines;          // uint32_t [2 * lines_max]: batch and row of each listed line
  uint64_t recomputed;     // float [line_slots + recompute_blocks][3][n3]: gamma, w, sum |A||B|
  uint64_t block_partials; // product pass partials, see product.cu
  LaneView lane;
  CallIdentity identity;
};

}  // namespace sdcguard

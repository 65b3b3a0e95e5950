// SPDX-License-Identifier: MIT
// The life of a guarded call: GemmCall -> Decision -> Plan -> Ticket -> (on the device: Verdict, Faults, Repair) ->
// Record.
#include "shim/pipeline.h"

#include <time.h>

#include <cerrno>
#include <new>

#include "kernels/plan.h"
#include "shim/context.h"
#include "shim/driver.h"
#include "shim/gemm_types.h"
#include "shim/policy.h"
#include "shim/probe.h"
#include "shim/process.h"
#include "shim/upgrade.h"

namespace sdcguard {
namespace {

// Where a call runs, and why it cannot be checked there.
struct Place {
  const DriverApi* api = nullptr;
  ContextState* context = nullptr;
  uint64_t stream_id = 0;
  Reason blocked = Reason::kNone;
};

// What is known of one sampled call besides its normal form.
struct Ticket {
  uint64_t call_id;
  uint64_t site;
  uint64_t seed;
  uint64_t enqueued_ns;
  uint64_t stream_id;
  Mode mode;
};

uint64_t realtime_ns() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ull + static_cast<uint64_t>(now.tv_nsec);
}

// Seed of a call's sign draws: of the configured seed and the thread's own count, never of rank, time or address.
uint64_t seed_of_call(uint64_t seed, uint64_t call_id) {
  return (seed ^ (call_id * kGolden)) * 0xff51afd7ed558ccdull;
}

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccdull;
  return hash ^ hash >> 32;
}

bool is_default_stream(const void* stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

// Finds context and stream of the call. A capture in progress is left alone: the caller's product goes into its graph
// as it is.
Place place_of(const GemmCall& call) {
  Place place;
  place.api = driver();
  if (place.api == nullptr) {
    place.blocked = Reason::kNoDriver;
    return place;
  }
  const DriverApi& api = *place.api;
  const auto stream = static_cast<CUstream>(call.stream);
  CUcontext current = nullptr;
  CUcontext owner = nullptr;
  unsigned long long context_id = 0, stream_id = 0;
  if (api.ctx_get_current(&current) != CUDA_SUCCESS || current == nullptr) {
    place.blocked = Reason::kNoContext;
    return place;
  }
  if (!is_default_stream(stream) && (api.stream_get_ctx(stream, &owner) != CUDA_SUCCESS || owner != current)) {
    place.blocked = Reason::kNoContext;
    return place;
  }
  CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  // An error here is the legacy stream's, while another stream is being captured.
  if (api.stream_is_capturing(stream, &capturing) != CUDA_SUCCESS || capturing != CU_STREAM_CAPTURE_STATUS_NONE) {
    place.blocked = Reason::kCapture;
    return place;
  }
  if (api.ctx_get_id(current, &context_id) != CUDA_SUCCESS || api.stream_get_id(stream, &stream_id) != CUDA_SUCCESS) {
    place.blocked = Reason::kDriverError;
    return place;
  }
  place.stream_id = stream_id;
  place.context = find_context(context_id);
  if (place.context == nullptr) {
    place.blocked = Reason::kCold;
    return place;
  }
  if (place.context->blocked != Reason::kNone) {
    place.blocked = place.context->blocked;
  }
  return place;
}

// D, C, scalars and factors as the caller gave them, in the letters of P = A B (so the caller's A is our B).
FinishView finish_of(const GemmCall& call) {
  FinishView finish = {};
  finish.c = call.c;
  finish.scalar_type = call.scalar_type;
  finish.alpha = call.alpha;
  finish.beta = call.beta;
  finish.alpha_address = call.alpha_address;
  finish.beta_address = call.beta_address;
  finish.alpha_column_stride = call.alpha_column_stride;
  finish.beta_column_stride = call.beta_column_stride;
  finish.alpha_batch_stride = call.alpha_batch_stride;
  finish.scale_a = call.scale_b;
  finish.scale_b = call.scale_a;
  finish.scale_a_vector = call.scale_b_vector ? 1 : 0;
  finish.scale_b_vector = call.scale_a_vector ? 1 : 0;
  finish.scale_c = call.scale_c;
  finish.scale_d = call.scale_d;
  finish.amax_d = call.amax_d;
  finish.bias_address = call.bias_address;
  finish.bias_batch_stride = call.bias_batch_stride;
  finish.bias_type = call.bias_type;
  finish.epilogue = call.epilogue & (kEpilogueRelu | kEpilogueGelu);
  if ((call.epilogue & kEpilogueAux) != 0) {
    finish.aux_kind = (call.epilogue & kEpilogueRelu) != 0 ? AuxKind::kReluMask : AuxKind::kGeluInput;
    finish.aux = {.address = call.aux_address,
                  .row_stride = call.aux_ld,
                  .col_stride = 1,
                  .batch_stride = call.aux_batch_stride,
                  .type = call.aux_type};
  }
  return finish;
}

Accumulator accumulator_of(const GemmCall& call) {
  if (call.scalar_type == DataType::kF16) return Accumulator::kF16;
  switch (product_type_of(call)) {
    case DataType::kF64:
      return Accumulator::kF64;
    case DataType::kI32:
      return Accumulator::kI32;
    default:
      return call.fast_accumulation ? Accumulator::kF32Fast : Accumulator::kF32;
  }
}

// The plan of the call: its product redirected into scratch of its own type, or checked as the library delivers it.
ProbePlan plan_of(const GemmCall& call, const ContextState& context, Mode mode, bool delivered,
                  bool unchecked = false) {
  ProbeRequest request = {};
  request.unchecked = unchecked;
  request.n1 = rows_of_p(call);
  request.n2 = inner_of_p(call);
  request.n3 = columns_of_p(call);
  request.batch = call.batch;
  request.a = call.a;
  request.b = call.b;
  request.delivered = delivered;
  request.finish = finish_of(call);
  if (delivered) {
    request.p = call.d;
  } else {
    request.p.type = product_type_of(call);
    request.finish.d = call.d;
  }
  request.through_pointers = call.d.pointers != 0;
  request.c_apart = !call.reads_c || !call.c_is_d;
  request.mode = mode;
  request.rounding = static_cast<OperandRounding>(call.rounding);
  request.accumulator = accumulator_of(call);
  request.reduces_in_16_bits = call.reduces_in_16_bits;
  request.tensor_core = tensor_core_of(context.compute_major, call.type_a);
  request.sm_count = context.sm_count;
  return make_plan(request);
}

CallIdentity identity_of(const GemmCall& call, const Ticket& ticket, const ContextState& context, bool delivered) {
  CallIdentity identity = {};
  identity.call_id = ticket.call_id;
  identity.site = ticket.site;
  identity.seed = ticket.seed;
  identity.enqueued_ns = ticket.enqueued_ns;
  identity.stream = ticket.stream_id;
  identity.m = call.m;
  identity.n = call.n;
  identity.k = call.k;
  identity.batch = call.batch;
  identity.entry = static_cast<uint16_t>(call.entry);
  identity.mode = static_cast<uint8_t>(ticket.mode);
  identity.device = static_cast<uint8_t>(context.device_slot < 0 ? 0 : context.device_slot);
  identity.upgraded = delivered ? 0 : 1;
  identity.type_a = call.type_a;
  identity.type_b = call.type_b;
  identity.type_c = call.type_c;
  identity.type_d = call.type_d;
  identity.epilogue = call.epilogue;
  return identity;
}

// The record of a call that no kernel of ours will write.
void record_unverified(const RingWriter& ring, const GemmCall& call, const Ticket& ticket, Reason reason) {
  CallRecord record = {};
  record.call_id = ticket.call_id;
  record.site = ticket.site;
  record.seed = ticket.seed;
  record.enqueued_ns = ticket.enqueued_ns;
  record.stream = ticket.stream_id;
  record.m = call.m;
  record.n = call.n;
  record.k = call.k;
  record.batch = call.batch;
  record.entry = static_cast<uint16_t>(call.entry);
  record.mode = static_cast<uint8_t>(ticket.mode);
  record.outcome = Outcome::kUnverified;
  record.reason = reason;
  record.type_a = call.type_a;
  record.type_b = call.type_b;
  record.type_c = call.type_c;
  record.type_d = call.type_d;
  record.epilogue = call.epilogue;
  record.lines = static_cast<uint64_t>(call.n) * static_cast<uint64_t>(call.batch);
  ring.write_call(record);
}

// Adds to a thread's own counters; atomic, since threads past the last slot share it.
void add(uint64_t& counter, uint64_t amount) {
  __atomic_fetch_add(&counter, amount, __ATOMIC_RELAXED);
}

constexpr uint64_t kMostFoldBytes = uint64_t{4} << 20;  // larger folds are made afresh: one block publishes a fold

// A B that may come again keeps its sign draws, and so its fold: both are functions of what is known of it, the draws
// without its address and whether or not there is memory to keep it, so that all ranks draw alike.
void use_fold_cache(ProbePlan& plan, const GemmCall& call, Ticket& ticket, ContextState& context,
                    const Config& config) {
  ProbeParams& p = plan.params;
  if (config.fold_cache == FoldCaching::kOff || p.plan == Plan::kRecompute || call.b.pointers != 0 ||
      p.fold_bytes > kMostFoldBytes) {
    return;
  }
  uint64_t known = config.seed;
  for (const uint64_t value :
       {static_cast<uint64_t>(p.b.row_stride), static_cast<uint64_t>(p.b.col_stride),
        static_cast<uint64_t>(p.b.batch_stride), static_cast<uint64_t>(p.fold_batch), static_cast<uint64_t>(p.b.type),
        static_cast<uint64_t>(p.n2), static_cast<uint64_t>(p.n3), static_cast<uint64_t>(p.classes),
        static_cast<uint64_t>(p.plan)}) {
    known = mix(known, value);
  }
  ticket.seed = known;
  const FoldMemory memory = fold_of_key(context, mix(known, p.b.address) | 1, p.fold_bytes);
  p.fold_cache = memory.cache;
  p.fold_images = memory.images;
}

// Fills in what a plan does not know: where its scratch is, and what the call's record carries.
void bind(ProbePlan& plan, const GemmCall& call, const Ticket& ticket, ContextState& context, uint64_t scratch,
          bool delivered) {
  bind_scratch(plan.params, plan.layout, scratch);
  if (!delivered) plan.params.p.address = scratch + plan.layout.bytes;
  plan.params.seed = ticket.seed;
  plan.params.site_history = history_of_site(context, ticket.site);
  plan.params.family_history = history_of_family(context, plan.family);
  plan.params.lane = context.lane;
  plan.params.identity = identity_of(call, ticket, context, delivered);
}

// Where the bare product of a bound plan goes.
ProductTarget target_of(const ProbePlan& plan, const GemmCall& call, const ContextState& context) {
  return {.type = plan.params.p.type,
          .address = plan.params.p.address,
          .ld = plan.params.p.row_stride,
          .batch_stride = plan.params.p.batch_stride,
          .pointers = call.d.pointers != 0 ? plan.params.product_pointers : 0,
          .one_address = one_of(context, call.scalar_type),
          .zero_address = zero_of(context),
          .context_id = context.id};
}

struct Issued {
  int status;
  Reason reason;  // kNone: the device writes the record
};

// Issues the product with its probe around it. Lock of the stream held.
Issued issue_checked(const GemmCall& call, Ticket& ticket, const Place& place, StreamState& stream,
                     const Process& process) {
  ContextState& context = *place.context;
  bool delivered =
      ticket.mode == Mode::kObserve || process.config.upgrade == Upgrade::kOff || !upgrade_permitted(call, ticket.site);
  ProbePlan plan = plan_of(call, context, ticket.mode, delivered);
  if (!plan.usable()) return {issue_original(call), plan.reason};
  const auto app_stream = static_cast<CUstream>(call.stream);
  if (!prepare_stream(context, stream, app_stream, plan.layout.bytes + plan.product_bytes)) {
    // Over the cap the product stays where the library puts it, and is checked as delivered where that is possible.
    if (delivered) return {issue_original(call), Reason::kNoWorkspace};
    delivered = true;
    plan = plan_of(call, context, ticket.mode, delivered);
    if (!plan.usable() || !prepare_stream(context, stream, app_stream, plan.layout.bytes)) {
      return {issue_original(call), Reason::kNoWorkspace};
    }
  }
  use_fold_cache(plan, call, ticket, context, process.config);
  bind(plan, call, ticket, context, stream.scratch, delivered);

  Probe probe(*place.api, context, stream, app_stream, plan);
  Issued issued = {0, Reason::kNone};
  const bool probing = probe.before_product();
  if (probing && !delivered) {
    issued.status = issue_product(call, ticket.site, target_of(plan, call, context));
    if (issued.status != 0) issued.reason = Reason::kUpgradeRefused;
  } else {
    issued.status = issue_original(call);
    if (!probing) issued.reason = Reason::kDriverError;
    if (issued.status != 0) issued.reason = Reason::kProductFailed;
  }
  if (!probe.join()) {
    stream.usable = false;
    issued.reason = Reason::kDriverError;
  }
  if (issued.reason == Reason::kNone && !probe.after_product()) issued.reason = Reason::kDriverError;
  // A redirected product that went wrong on our side, anywhere: the caller's exact call, which writes all of D. Until
  // the finish kernel runs D is as it was, or C lies apart from it, so running the call again changes nothing else.
  const bool ran_original = delivered || !probing;
  if (issued.reason != Reason::kNone && !ran_original) {
    issued.status = issue_original(call);
    if (issued.status != 0) issued.reason = Reason::kProductFailed;
  }
  if (issued.reason == Reason::kDriverError) process.ring.count_driver_error();
  return issued;
}

// Issues the product into scratch and its finish, and no check: the bits that issue_checked() delivers when nothing is
// wrong. Lock of the stream held. False: D is as it was.
bool issue_upgraded(const GemmCall& call, uint64_t site, const Place& place, StreamState& stream,
                    const Process& process) {
  ContextState& context = *place.context;
  ProbePlan plan = plan_of(call, context, Mode::kDetect, false, true);
  const auto app_stream = static_cast<CUstream>(call.stream);
  if (!plan.usable() || !prepare_stream(context, stream, app_stream, plan.layout.bytes + plan.product_bytes)) {
    return false;
  }
  bind_scratch(plan.params, plan.layout, stream.scratch);
  plan.params.p.address = stream.scratch + plan.layout.bytes;
  Probe probe(*place.api, context, stream, app_stream, plan);
  const bool prepared = probe.prepare();
  if (prepared && issue_product(call, site, target_of(plan, call, context)) != 0) return false;
  if (prepared && probe.after_product()) return true;
  process.ring.count_driver_error();
  return false;
}

// Adds one sampled call to the thread's counters and, unless the device does, writes its record.
void count_sampled(const GemmCall& call, const Ticket& ticket, uint64_t call_flops, Reason reason,
                   const Process& process) {
  ThreadCounters& counters = *thread_policy().counters;
  add(counters.calls_seen, 1);
  add(counters.flops_seen, call_flops);
  add(counters.calls_sampled, 1);
  add(counters.flops_sampled, call_flops);
  if (reason == Reason::kNone) {
    add(counters.calls_launched, 1);
    add(counters.flops_launched, call_flops);
  } else {
    add(counters.unverified_calls[static_cast<uint32_t>(reason)], 1);
    add(counters.unverified_flops[static_cast<uint32_t>(reason)], call_flops);
    record_unverified(process.ring, call, ticket, reason);
  }
}

Ticket ticket_of(const GemmCall& call, const Process& process) {
  Ticket ticket = {};
  ticket.call_id = call.call_id;
  ticket.site = site_of(call);
  ticket.seed = seed_of_call(process.config.seed, call.call_id);
  ticket.enqueued_ns = realtime_ns();
  ticket.mode = process.mode();
  return ticket;
}

// One group of a grouped product under check.
struct CheckedGroup {
  GemmCall call;
  Ticket ticket;
  ProbePlan plan;
  uint64_t scratch_at;  // from the stream's scratch
  Reason reason;
};

// Plans the groups that can be checked, and enqueues what must come before the product. Lock of the stream held.
void prepare_groups(CheckedGroup* groups, uint32_t count, const Place& place, StreamState& stream) {
  ContextState& context = *place.context;
  uint64_t bytes = 0;
  CUstream app_stream = nullptr;  // of a group that was read to the end: an empty one names none
  for (uint32_t i = 0; i < count; ++i) {
    CheckedGroup& one = groups[i];
    if (one.reason != Reason::kNone) continue;
    app_stream = static_cast<CUstream>(one.call.stream);
    one.plan = plan_of(one.call, context, one.ticket.mode, true);
    one.reason = one.plan.reason;
    if (one.reason != Reason::kNone) continue;
    one.scratch_at = bytes;
    bytes += one.plan.layout.bytes;
  }
  if (bytes == 0) return;
  const bool room = prepare_stream(context, stream, app_stream, bytes);
  for (uint32_t i = 0; i < count; ++i) {
    CheckedGroup& one = groups[i];
    if (one.reason != Reason::kNone) continue;
    if (!room) {
      one.reason = Reason::kNoWorkspace;
      continue;
    }
    const uint64_t scratch = stream.scratch + one.scratch_at;
    bind(one.plan, one.call, one.ticket, context, scratch, true);
    Probe probe(*place.api, context, stream, app_stream, one.plan);
    // The start of the stream's scratch is zero between calls (plan.h), what lies further is not.
    const bool cleared =
        one.scratch_at == 0 || place.api->memset_d8_async(scratch, 0, kZeroedScratchBytes, app_stream) == CUDA_SUCCESS;
    if (!cleared || !probe.prepare()) one.reason = Reason::kDriverError;
  }
}

// Enqueues the passes over operands and product of each group that is still under check.
void check_groups(CheckedGroup* groups, uint32_t count, const Place& place, StreamState& stream,
                  const Process& process) {
  for (uint32_t i = 0; i < count; ++i) {
    CheckedGroup& one = groups[i];
    if (one.reason != Reason::kNone) continue;
    Probe probe(*place.api, *place.context, stream, static_cast<CUstream>(one.call.stream), one.plan);
    if (probe.operands_in_order() && probe.after_product()) continue;
    one.reason = Reason::kDriverError;
    process.ring.count_driver_error();
  }
}

}  // namespace

int run_guarded_groups(GemmCall& call, const SampledGroups& sampled) noexcept {
  const int saved_errno = errno;
  const Process& process = the_process();
  auto* groups = call.blocked == Reason::kNone ? new (std::nothrow) CheckedGroup[sampled.count] : nullptr;
  if (groups == nullptr) {
    const int status = issue_original(call);
    const Reason reason = call.blocked != Reason::kNone ? call.blocked : Reason::kNoWorkspace;
    count_sampled(call, ticket_of(call, process), grouped_flops(call.arguments.groups), reason, process);
    errno = saved_errno;
    return status;
  }
  Place place;
  bool placed = false;
  CUstream app_stream = nullptr;
  uint64_t flops_of_sampled = 0;
  for (uint32_t i = 0; i < sampled.count; ++i) {
    CheckedGroup& one = groups[i];
    one.call = group_of(call, sampled.group[i], sampled.call_id[i]);
    one.ticket = ticket_of(one.call, process);
    one.reason = one.ticket.mode == Mode::kOff ? Reason::kOff : one.call.blocked;
    flops_of_sampled += flops(one.call);
    if (one.reason != Reason::kNone) continue;
    if (!placed) {
      place = place_of(one.call);
      app_stream = static_cast<CUstream>(one.call.stream);
    }
    placed = true;
    one.reason = place.blocked;
    one.ticket.stream_id = place.stream_id;
  }
  int status;
  if (placed && place.blocked == Reason::kNone) {
    const HeldStream held(*place.context, place.stream_id, app_stream);
    if (held.refusal() == Reason::kNone) prepare_groups(groups, sampled.count, place, held.state());
    status = issue_original(call);
    for (uint32_t i = 0; i < sampled.count; ++i) {
      if (groups[i].reason != Reason::kNone) continue;
      if (status != 0) groups[i].reason = Reason::kProductFailed;
      if (held.refusal() != Reason::kNone) groups[i].reason = held.refusal();
    }
    if (held.refusal() == Reason::kNone) check_groups(groups, sampled.count, place, held.state(), process);
  } else {
    status = issue_original(call);
    if (placed && place.blocked == Reason::kCold) warm_current_context();
  }
  for (uint32_t i = 0; i < sampled.count; ++i) {
    count_sampled(groups[i].call, groups[i].ticket, flops(groups[i].call), groups[i].reason, process);
  }
  delete[] groups;
  const auto unsampled = static_cast<uint64_t>(call.arguments.groups.count) - sampled.count;
  count_unsampled(thread_policy(), grouped_flops(call.arguments.groups) - flops_of_sampled, unsampled);
  errno = saved_errno;
  return status;
}

int run_unsampled(GemmCall& call) noexcept {
  const int saved_errno = errno;
  const Process& process = the_process();
  const Mode mode = process.mode();
  const uint64_t site = site_of(call);
  if ((mode != Mode::kRepair && mode != Mode::kDetect) || !upgrade_permitted(call, site)) {
    const int status = issue_original(call);
    errno = saved_errno;
    return status;
  }
  const Place place = place_of(call);
  bool upgraded = false;
  if (place.blocked == Reason::kNone) {
    const HeldStream held(*place.context, place.stream_id, static_cast<CUstream>(call.stream));
    upgraded = held.refusal() == Reason::kNone && issue_upgraded(call, site, place, held.state(), process);
  }
  const int status = upgraded ? 0 : issue_original(call);
  if (place.blocked == Reason::kCold) warm_current_context();
  ThreadCounters& counters = *thread_policy().counters;
  add(upgraded ? counters.calls_upgraded : counters.calls_as_given, 1);
  errno = saved_errno;
  return status;
}

void record_observed(const GemmCall& call, uint64_t call_flops) noexcept {
  const int saved_errno = errno;
  const Process& process = the_process();
  const Ticket ticket = ticket_of(call, process);
  count_sampled(call, ticket, call_flops, ticket.mode == Mode::kOff ? Reason::kOff : call.blocked, process);
  errno = saved_errno;
}

int run_guarded(GemmCall& call) noexcept {
  const int saved_errno = errno;
  const Process& process = the_process();
  const uint64_t call_flops = flops(call);
  Ticket ticket = ticket_of(call, process);

  Place place;
  Reason reason = call.blocked;
  if (ticket.mode == Mode::kOff) reason = Reason::kOff;
  if (reason == Reason::kNone) {
    place = place_of(call);
    reason = place.blocked;
    ticket.stream_id = place.stream_id;
  }
  Issued issued = {0, reason};
  if (reason == Reason::kNone) {
    const HeldStream held(*place.context, place.stream_id, static_cast<CUstream>(call.stream));
    if (held.refusal() == Reason::kNone) {
      issued = issue_checked(call, ticket, place, held.state(), process);
    } else {
      issued = {issue_original(call), held.refusal()};
    }
  } else {
    issued.status = issue_original(call);
    // The product is on its way: now make the state that the next product of this context will find.
    if (reason == Reason::kCold) warm_current_context();
  }

  count_sampled(call, ticket, call_flops, issued.reason, process);
  errno = saved_errno;
  return issued.status;
}

}  // namespace sdcguard

// SPDX-License-Identifier: MIT
// hostcuda's private interface: what libcuda.so.1 of the host device gives to its sister libraries (cudart, cuBLAS,
// cuBLASLt), to the kernel executor and to tests, beside the public driver API.
//
//   program ──> libcudart / libcublas / libcublasLt ──(this header)──┐
//   program, shim ──(cu... names, counted and traced)────────────────┴──> libcuda.so.1: memory, streams, contexts
//
// Everything is extern "C", exported without a version node, callable from any thread, and throws nothing.
// Calls through this header are never counted as driver calls: the count is about the program and the shim.
//
// Address spaces. A device address is PROT_NONE for the host; the emulation works through an alias, the same bytes at
// `address + hostcuda_alias_offset()`. Only hostcuda_view and hostcuda_range turn one into the other, since they check
// bounds and lifetime. Pinned, registered and managed host memory is its own alias (one address for both sides).
#pragma once

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

// Streams

// Puts one operation into `stream` (0 or CU_STREAM_LEGACY: legacy stream of the calling thread's current context;
// CU_STREAM_PER_THREAD: that thread's own stream of it). Never waits for the device.
//
// `run(arg)` is called exactly once on the stream's worker, after every earlier operation of the stream, after what
// legacy-stream rules and event waits order before it. It may use hostcuda_view and hostcuda_range, threads of its own,
// and must not call the driver API or hostcuda_enqueue (as a CUDA host function must not).
// If the stream is being captured nothing runs now: the operation becomes part of the graph and `run(arg)` is called
// at each replay, so `arg` must live as long as the graph; use hostcuda_enqueue_owned unless it is static.
// `name` is for traces and messages; static storage, or at least as long-lived as `arg`.
//
// CUDA_SUCCESS; CUDA_ERROR_INVALID_CONTEXT (stream 0 without a current context); CUDA_ERROR_INVALID_HANDLE (no such
// stream); the context's sticky error; a capture error (CUDA_ERROR_STREAM_CAPTURE_...). After an error `arg` is
// untouched and still the caller's.
CUresult hostcuda_enqueue(CUstream stream, void (*run)(void*), void* arg, const char* name);

// As hostcuda_enqueue, and `destroy(arg)` (may be null) is called once when the operation can never run again: on the
// worker right after `run`, or, when captured, when the last graph that holds it is gone. Not called after an error.
CUresult hostcuda_enqueue_owned(CUstream stream, void (*run)(void*), void (*destroy)(void*), void* arg,
                                const char* name);

// Blocks the calling host thread until everything now in `stream` has run. Same errors as cuStreamSynchronize.
CUresult hostcuda_stream_synchronize(CUstream stream);

// Device ordinal of the stream (for stream 0 and the per-thread stream: of the current context); -1: no such stream
// or no current context.
int hostcuda_device_ordinal(CUstream stream);

// Ordinal of the device whose operation the calling thread is running now; -1 outside an operation. For run().
int hostcuda_running_device(void);

// The name given for the operation that the calling thread is running now, null outside one.
const char* hostcuda_running_operation(void);

// 1 if `stream` is being captured (enqueued work is recorded, not run), else 0.
int hostcuda_stream_capturing(CUstream stream);

// The context that the stream belongs to; null: no such stream or no current context.
CUcontext hostcuda_stream_context(CUstream stream);

// The calling thread's current context, null if none (never creates one).
CUcontext hostcuda_current_context(void);

// Makes the primary context of device `ordinal` current on the calling thread, creating it where needed (what the
// runtime does at a thread's first call). Negative ordinal: the device that the thread last chose, 0 at first; then a
// context that is current already is left alone.
CUresult hostcuda_use_device(int ordinal);

// The device that the calling thread's runtime calls go to: that of its current context, else the one it last chose, 0
// at first. Creates nothing.
int hostcuda_current_device(void);

// Devices

// The machine has HOSTCUDA_DEVICES boards, 2 by default, at most 16; the devices of the process are those that
// CUDA_VISIBLE_DEVICES names, in its order, all where it is not set. A board keeps its UUID, bus address and fault plan
// whatever ordinal it has.
int hostcuda_device_count(void);

// UUID of device `ordinal`'s board, stable over processes. 16 bytes. Returns 0, or -1: no device.
int hostcuda_device_uuid(int ordinal, unsigned char uuid[16]);

// Number of device `ordinal`'s board, from 0; -1: no such device.
int hostcuda_device_board(int ordinal);

// Compute capability times ten (90 for 9.0) of device `ordinal`, as HOSTCUDA_ORDER says (v100 70, a100 80, ada 89,
// h100 90, b200 100, every other order 90); -1: no such device.
int hostcuda_compute_capability(int ordinal);

// Memory

enum {
  HOSTCUDA_READ = 1,
  HOSTCUDA_WRITE = 2,
  // Copy engines reach every device's memory; a kernel or a product reaches only its own device's and host memory.
  HOSTCUDA_ANY_DEVICE = 4,
};

// Host alias of [p, p + bytes), or null when any byte of it lies outside one live allocation, or (in an operation, and
// without HOSTCUDA_ANY_DEVICE) belongs to another device and was not made accessible (cuCtxEnablePeerAccess,
// cuMemPoolSetAccess). `access` is HOSTCUDA_READ | HOSTCUDA_WRITE | ...;
// bytes may be 0 (p must then point into, or just past, an allocation). Alignment is the caller's to check.
// Lock-free for readers in the usual case, takes part in no TSan ordering, allocates nothing. The alias stays mapped
// until the allocation is freed. On null, hostcuda_describe says why in words.
void* hostcuda_view(CUdeviceptr p, size_t bytes, int access);

// One live allocation, for accessors that keep it instead of asking at each access.
typedef struct HostcudaRange {
  CUdeviceptr base;  // first byte, as the program sees it
  size_t bytes;      // as asked for
  char* host;        // alias of `base`
  int device;        // ordinal; -1: host memory (pinned, registered, managed). Another device's memory that the running
                     // operation may touch as a peer has the running device's
} HostcudaRange;

// The live allocation that holds byte `p`. 1 and *range filled, or 0. Same ordering promises as hostcuda_view, no
// device check (compare range->device with hostcuda_running_device()).
int hostcuda_range(CUdeviceptr p, HostcudaRange* range);

// Changes whenever an allocation appears or goes: a kept HostcudaRange is valid while this has the same value.
// (Inside one kernel it only changes through a program's error or another stream's allocation.)
uint64_t hostcuda_memory_epoch(void);

// Distance from a device address to its alias; the same for all devices.
ptrdiff_t hostcuda_alias_offset(void);

// Writes one line (NUL-terminated, cut at `capacity`) about why [p, p + bytes) is not accessible: nearest allocation
// and distance, or who freed it ("8 bytes past the end of 4096 bytes at 0x...", "freed", "host memory never
// registered", "memory of device 1"). Returns `text`.
char* hostcuda_describe(CUdeviceptr p, size_t bytes, char* text, size_t capacity);

// Broken device rules

// A program broke a rule of the device that real hardware would punish (bad address, misalignment, divergent barrier,
// bad mask). Prints "hostcuda: <operation>: <message>" to stderr and ends the process with exit code 86.
// With HOSTCUDA_STICKY=1 it prints, puts the running operation's context into the sticky error state `code`
// (CUDA_ERROR_ILLEGAL_ADDRESS, _MISALIGNED_ADDRESS, _LAUNCH_FAILED, ...) and RETURNS: the caller must then abandon
// the operation without touching memory again. hostcuda_fault_stop is the same with CUDA_ERROR_LAUNCH_FAILED.
void hostcuda_fault_stop(const char* message);
void hostcuda_fault_stop_as(CUresult code, const char* message);

// Observation: driver calls of the program and the shim (exported cu... names called from outside)

// Calls of the driver function `name` ("cuMemAlloc_v2") in this process so far, all threads; null: of all functions.
uint64_t hostcuda_call_count(const char* name);

typedef struct HostcudaCall {
  const char* name;  // static storage
  CUstream stream;   // first stream argument, 0 where there is none
  CUresult result;
} HostcudaCall;

// Starts a trace of the calling thread's driver calls, dropping an earlier one. The thread's calls through cudart,
// cuBLAS and this header are not in it.
void hostcuda_trace_begin(void);

// Ends it: copies the first `capacity` calls in order to `calls` (may be null if capacity is 0), returns how many there
// were. At most 65,536 calls are kept; more are counted.
size_t hostcuda_trace_end(HostcudaCall* calls, size_t capacity);

// HOSTCUDA_TRACE=file (at start-up only) writes one line a call, tab-separated: origin ("driver", or "runtime" for what
// came through cudart or cuBLAS), thread number by first call, name, stream in hex, result number.

// HOSTCUDA_SHIM_LOG=file (at start-up only) appends one line for each driver call made by the code of libsdcguard.so,
// tab-separated: position among those calls (1 first, as HOSTCUDA_FAIL=shim/*:nth counts them), thread number, name,
// result number.

// HOSTCUDA_KERNELS=file (at start-up only) names a shared library with host versions of the program's own kernels, each
// under the name that its image has it by (C++ names mangled); simt/program_kernel.h says how one is written. A
// function of any loaded module or library is looked up among the shim's kernels first, then there; in neither:
// CUDA_ERROR_NOT_FOUND, and one line on stderr names it. Read when the first image is loaded: a file that cannot be
// loaded or has no table of kernels ends the program with a message and exit code 2. Its kernels launch in one, two or
// three dimensions; a grid has at most 2^31 - 1 blocks in all (CUDA_ERROR_NOT_SUPPORTED above). The shim's own kernels
// have one dimension.

// Provocation. Each setting is an environment variable read once at first use, or set later (tests) by
// hostcuda_configure(name, value), which also restarts the setting's counter; null or empty value: off.
//   HOSTCUDA_FAIL=[shim/]cuName:nth[:hangMS][:late][:error|:ok][,...]
//                                           the nth driver call of that name from now (1 first; * every; 3+ the third
//                                           and all later ones) fails with that CUresult number (default 999,
//                                           CUDA_ERROR_UNKNOWN) and does nothing. shim/: only calls made by the code of
//                                           libsdcguard.so count and fail. cuName may be * (any function). hangMS: the
//                                           call first waits so many milliseconds, and goes ahead if nothing follows.
//                                           late: the call does its work and then fails
//                                           (ok alone: the call goes ahead, whatever an item before this one says)
//   HOSTCUDA_STARVE=i                       stream i (order of creation in the process; 0: the first context's legacy
//                                           stream) runs only when no other stream can and a host thread waits
//                                           or asks (or nothing was enqueued for a second)
//   HOSTCUDA_SKIP_WAIT=n                    the nth cuStreamWaitEvent from now (1 first; cudaStreamWaitEvent counts
//                                           too) succeeds and waits for nothing
//   HOSTCUDA_SKIP_KERNEL=name[,name]        launches of these kernels succeed and do nothing
// Start-up only: HOSTCUDA_DEVICES, HOSTCUDA_ORDER, HOSTCUDA_MEMORY (bytes a device, K M G allowed), HOSTCUDA_STICKY,
// HOSTCUDA_TRACE, HOSTCUDA_SHIM_LOG, HOSTCUDA_KERNELS.
// Returns 0, or -1: no such setting or malformed value (nothing changes).
int hostcuda_configure(const char* name, const char* value);

// Index of a stream for HOSTCUDA_STARVE; -1: no such stream. hostcuda_streams_created: how many there were so far.
int hostcuda_stream_index(CUstream stream);
int hostcuda_streams_created(void);

// The uncounted driver: the implementation behind the exported driver function `name`, same signature, not counted,
// never failed by HOSTCUDA_FAIL, traced as "runtime". Null: no such function. This is how cudart and cuBLAS call the
// driver: ((CUresult(*)(CUdeviceptr*, size_t))hostcuda_driver("cuMemAlloc_v2"))(&p, n).
void* hostcuda_driver(const char* name);

// Under TSan each stream runs its operations on a TSan fiber of its own; only enqueue -> run, event record -> wait,
// legacy-stream order and host synchronisation order memory. An operation that hands work to a thread pool orders
// itself against every other user of that pool's locks: run products on the worker alone in such builds.

#ifdef __cplusplus
}  // extern "C"
#endif
#pragma GCC visibility pop

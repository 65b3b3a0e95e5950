// SPDX-License-Identifier: MIT
// processes: a plain cuBLAS program of scenes about the life of a process: forks, threads, ways to end, signals,
// errors, captures, streams and contexts that come and go. It knows nothing of sdcguard.
//
//   processes NAME DUMP [N]    runs the scene, writes the bytes of all results to DUMP; each scene ends in its own way
#include <cuda.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "scene.h"

extern char** environ;

namespace {

using namespace scene;

void check(CUresult status, const char* what) {
  if (status != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": " + std::to_string(status));
}
using scene::check;

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

// What most scenes multiply, and where to.
struct Operands {
  HostMatrix host_a, host_b;
  DeviceMatrix a, b, d;
  explicit Operands(uint64_t seed = 1) : host_a(seed), host_b(seed + 1), a(host_a), b(host_b) {}
};

void wait_for(cudaStream_t stream) {
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void flush_dump() {
  dump.close();
  expect(static_cast<bool>(dump), "the dump cannot be written");
}

// Starts `body` in `count` threads at once, each on device 0, and waits for them.
template <class Body>
void in_threads(int count, const Body& body) {
  std::atomic<int> waiting{0}, failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        check(cudaSetDevice(0), "cudaSetDevice");
        for (++waiting; waiting < count;) std::this_thread::yield();
        body(static_cast<size_t>(i));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "processes: %s\n", error.what());
        ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(failed == 0, "a thread failed");
}

int ended(pid_t child) {
  int status = 0;
  expect(child > 0 && waitpid(child, &status, 0) == child, "no child");
  return status;
}

// ---- children ------------------------------------------------------------------------------------------------------

// Before CUDA is touched the process forks: both sides then multiply. The child shows its result.
void fork_first(int count) {
  const pid_t child = fork();
  if (child != 0) expect(ended(child) == 0, "the child failed");
  Stream stream;
  Handle handle(stream.stream);
  const Operands x(child == 0 ? 1 : 7);
  for (int i = 0; i < (child == 0 ? count : 1); ++i) handle.multiply(x.a, x.b, x.d);
  wait_for(stream.stream);
  if (child == 0) {
    write(x.d);
    flush_dump();
    _exit(0);
  }
}

// A child of a process that has multiplied may not use CUDA: its product is refused, and it ends by exit. The parent
// goes on as before.
void fork_after(int count) {
  Stream stream;
  Handle handle(stream.stream);
  const Operands x(1);
  for (int i = 0; i < count; ++i) handle.multiply(x.a, x.b, x.d);
  wait_for(stream.stream);
  const pid_t child = fork();
  if (child == 0) {
    try {
      for (int i = 0; i < 2; ++i) handle.multiply(x.a, x.b, x.d);
    } catch (const std::exception&) {
      std::exit(3);
    }
    std::exit(0);
  }
  expect(WEXITSTATUS(ended(child)) == 3, "the child's product was not refused");
  for (int i = 0; i < count; ++i) handle.multiply(x.a, x.b, x.d);
  wait_for(stream.stream);
  write(x.d);
}

// In a function of its own: nothing of the caller's may change under it. The exit code of the child.
int vforked(bool exec) {
  char program[] = "/bin/sh", flag[] = "-c", script[] = "exit 3";
  char* arguments[] = {program, flag, script, nullptr};
  const pid_t child = vfork();
  if (child == 0) {
    if (exec) execve(program, arguments, environ);
    _exit(4);
  }
  return WEXITSTATUS(ended(child));
}

// Between products other programs are started by fork and exec, by vfork and exec, and by system(); and a vfork child
// only leaves.
void execs(int count) {
  Stream stream;
  Handle handle(stream.stream);
  const Operands x;
  char program[] = "/bin/sh", flag[] = "-c", script[] = "exit 3";
  char* arguments[] = {program, flag, script, nullptr};
  for (int i = 0; i < count; ++i) {
    handle.multiply(x.a, x.b, x.d);
    const pid_t child = fork();
    if (child == 0) {
      execve(program, arguments, environ);
      _exit(127);
    }
    expect(WEXITSTATUS(ended(child)) == 3, "fork and exec");
    handle.multiply(x.a, x.b, x.d);
    expect(vforked(true) == 3, "vfork and exec");
    expect(vforked(false) == 4, "vfork");
    expect(WEXITSTATUS(std::system("exit 5")) == 5, "system");
  }
  wait_for(stream.stream);
  write(x.d);
}

// ---- threads -------------------------------------------------------------------------------------------------------

// No handle was made before: threads make their handles and first products at once.
void first_calls(int count) {
  const Operands x;
  std::vector<std::unique_ptr<DeviceMatrix>> d;
  for (int i = 0; i < count; ++i) d.push_back(std::make_unique<DeviceMatrix>());
  in_threads(count, [&](size_t i) {
    Stream stream;
    Handle handle(stream.stream);
    for (int call = 0; call < 3; ++call) handle.multiply(x.a, x.b, *d[i]);
    wait_for(stream.stream);
  });
  for (const auto& one : d) write(*one);
}

// One handle of the process, one stream of it, many threads: cuBLAS allows it as long as nobody changes the handle.
void one_handle(int count) {
  Stream stream;
  Handle handle(stream.stream);
  const Operands x;
  std::vector<std::unique_ptr<DeviceMatrix>> d;
  for (int i = 0; i < count; ++i) d.push_back(std::make_unique<DeviceMatrix>());
  in_threads(count, [&](size_t i) {
    for (int call = 0; call < 4; ++call) handle.multiply(x.a, x.b, *d[i]);
  });
  wait_for(stream.stream);
  for (const auto& one : d) write(*one);
}

// Each thread's own default stream, by one handle value of it: the same stream handle names another stream a thread.
void per_thread(int count) {
  const Operands x;
  std::vector<std::unique_ptr<DeviceMatrix>> b, d;
  std::vector<std::unique_ptr<HostMatrix>> host_b;
  for (int i = 0; i < count; ++i) {
    host_b.push_back(std::make_unique<HostMatrix>(static_cast<uint64_t>(10 + i)));
    b.push_back(std::make_unique<DeviceMatrix>());
    d.push_back(std::make_unique<DeviceMatrix>());
  }
  in_threads(count, [&](size_t i) {
    Handle handle(cudaStreamPerThread);
    for (int call = 0; call < 3; ++call) {
      check(cudaMemcpyAsync(b[i]->data, host_b[i]->data, kBytes, cudaMemcpyHostToDevice, cudaStreamPerThread),
            "cudaMemcpyAsync");
      handle.multiply(x.a, *b[i], *d[i]);
      check(cudaMemsetAsync(b[i]->data, 0, kBytes, cudaStreamPerThread), "cudaMemsetAsync");
    }
    wait_for(cudaStreamPerThread);
  });
  for (const auto& one : d) write(*one);
}

// ---- ends ----------------------------------------------------------------------------------------------------------

// The work of the process is done and written; it then ends by `end`, a thread of it still multiplying.
template <class End>
void end_by(int count, const End& end) {
  // Never freed: the thread uses them until the process is gone.
  Stream& stream = *new Stream;
  Handle& handle = *new Handle(stream.stream);
  const Operands& x = *new Operands;
  for (int i = 0; i < count; ++i) handle.multiply(x.a, x.b, x.d);
  wait_for(stream.stream);
  write(x.d);
  flush_dump();
  static std::atomic<bool> running{false};
  std::thread([&x] {
    cudaSetDevice(0);
    Stream& own = *new Stream;
    Handle& of_thread = *new Handle(own.stream);
    const DeviceMatrix& d = *new DeviceMatrix;
    // While the process leaves, CUDA may refuse.
    try {
      for (;; running = true) {
        of_thread.multiply(x.a, x.b, d);
        wait_for(own.stream);
      }
    } catch (const std::exception&) {
    }
  }).detach();
  while (!running) std::this_thread::yield();
  end();
}
void ends_exit(int count) {
  end_by(count, [] { exit(5); });
}
void ends_exit_now(int count) {
  end_by(count, [] { _exit(6); });
}
void ends_quick_exit(int count) {
  end_by(count, [] { quick_exit(7); });
}
void ends_abort(int count) {
  end_by(count, [] { abort(); });
}
void ends_kill(int count) {
  end_by(count, [] { kill(getpid(), SIGKILL); });
}

// ---- signals -------------------------------------------------------------------------------------------------------

std::atomic<int> g_ticks{0};  // free of locks, so a handler may
void on_tick(int) {
  ++g_ticks;
}

// A profiler's timer interrupts the process a thousand times a second.
void signals(int count) {
  struct sigaction action = {};
  action.sa_handler = on_tick;  // no SA_RESTART: a call that can be interrupted is
  expect(sigaction(SIGPROF, &action, nullptr) == 0, "sigaction");
  const itimerval every = {{0, 1000}, {0, 1000}};
  expect(setitimer(ITIMER_PROF, &every, nullptr) == 0, "setitimer");
  // The timer counts CPU time, of which the products below may take less than the kernel's own tick.
  while (g_ticks == 0 && std::clock() < 5 * CLOCKS_PER_SEC) {
  }
  expect(g_ticks > 0, "no tick came");
  {
    Stream stream;
    Handle handle(stream.stream);
    const Operands x;
    for (int i = 0; i < count; ++i) handle.multiply(x.a, x.b, x.d);
    wait_for(stream.stream);
    write(x.d);
  }
  const itimerval never = {};
  setitimer(ITIMER_PROF, &never, nullptr);
}

// ---- errors of the program -----------------------------------------------------------------------------------------

// The program's last error waits to be read while it multiplies.
void pending_error(int count) {
  Stream stream;
  Handle handle(stream.stream);
  const Operands x;
  void* none = nullptr;
  expect(cudaMalloc(&none, size_t{1} << 60) == cudaErrorMemoryAllocation, "a huge allocation is refused");
  for (int i = 0; i < count; ++i) handle.multiply(x.a, x.b, x.d);
  expect(cudaPeekAtLastError() == cudaErrorMemoryAllocation, "the error was taken away");
  expect(cudaGetLastError() == cudaErrorMemoryAllocation, "the error was changed");
  expect(cudaGetLastError() == cudaSuccess, "an error was added");
  wait_for(stream.stream);
  write(x.d);
}

// The context is lost: cuBLAS says what it says, the runtime keeps its error, and the process goes on to its end.
void sticky_error(int count) {
  Stream stream;
  Handle handle(stream.stream);
  const Operands x;
  for (int i = 0; i < count; ++i) handle.multiply(x.a, x.b, x.d);
  wait_for(stream.stream);
  write(x.d);
  const float one = 1, zero = 0;
  const auto multiply = [&](void* d) {
    return cublasGemmEx(handle.handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, x.a.data, CUDA_R_16BF,
                        kSize, x.b.data, CUDA_R_16BF, kSize, &zero, d, CUDA_R_16BF, kSize, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT);
  };
  // An address that was never given out.
  const cublasStatus_t faulting = multiply(reinterpret_cast<void*>(uintptr_t{0x7000}));
  const cudaError_t lost = cudaStreamSynchronize(stream.stream);
  const cublasStatus_t after = multiply(x.d.data);
  const std::array<int, 4> seen = {faulting, lost, after, cudaGetLastError()};
  dump.write(reinterpret_cast<const char*>(seen.data()), sizeof(seen));
}

// The program takes all memory of the device before its first product.
void no_memory(int count) {
  Stream stream;
  const Operands x;
  std::vector<void*> taken;
  for (size_t bytes = size_t{64} << 20; bytes >= 65536;) {
    void* block = nullptr;
    if (cudaMalloc(&block, bytes) == cudaSuccess) {
      taken.push_back(block);
    } else {
      bytes /= 2;
    }
  }
  cudaGetLastError();
  Handle handle(stream.stream);
  for (int i = 0; i < count; ++i) handle.multiply(x.a, x.b, x.d);
  wait_for(stream.stream);
  write(x.d);
}

// ---- captures ------------------------------------------------------------------------------------------------------

// While a thread captures in global mode, another one makes its first products on a stream that is new to everybody.
void capture_beside(int count) {
  Stream captured_stream, other_stream;
  Handle handle(captured_stream.stream), other_handle(other_stream.stream);
  const Operands x, y(5);
  handle.multiply(x.a, x.b, x.d);
  cudaGraph_t graph;
  cudaGraphExec_t runnable;
  check(cudaStreamBeginCapture(captured_stream.stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  handle.multiply(x.a, x.b, x.d);
  std::thread([&] {
    cudaSetDevice(0);
    for (int i = 0; i < count; ++i) other_handle.multiply(y.a, y.b, y.d);
  }).join();
  handle.multiply(x.b, x.a, x.d);
  check(cudaStreamEndCapture(captured_stream.stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&runnable, graph, 0), "cudaGraphInstantiate");
  check(cudaGraphLaunch(runnable, captured_stream.stream), "cudaGraphLaunch");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  write(x.d);
  write(y.d);
}

// Graphs captured on one stream, launched on two at once, one of them on both: all read what was there before. Launches
// of one executable graph follow each other, those of two do not, so each has results of its own.
void graph_on_two(int count) {
  Stream captured_stream, first, second;
  Handle handle(captured_stream.stream);
  const Operands x;
  const DeviceMatrix products[2], chained[2];
  handle.multiply(x.a, x.b, products[0]);
  wait_for(captured_stream.stream);
  cudaGraph_t graph;
  cudaGraphExec_t runnable[2];
  for (int g = 0; g < 2; ++g) {
    check(cudaStreamBeginCapture(captured_stream.stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    handle.multiply(x.a, x.b, products[g]);
    handle.multiply(products[g], x.b, chained[g]);
    check(cudaStreamEndCapture(captured_stream.stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&runnable[g], graph, 0), "cudaGraphInstantiate");
  }
  for (int i = 0; i < count; ++i) {
    check(cudaGraphLaunch(runnable[0], first.stream), "cudaGraphLaunch");
    check(cudaGraphLaunch(runnable[i % 2], second.stream), "cudaGraphLaunch");
    handle.multiply(x.b, x.a, DeviceMatrix());
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (const DeviceMatrix& one : products) write(one);
  for (const DeviceMatrix& one : chained) write(one);
}

// ---- streams and contexts that come and go -------------------------------------------------------------------------

// Well below what the shim has state for, which is less under TSan.
#ifdef __SANITIZE_THREAD__
constexpr int kStreamsAtWork = 3;
#else
constexpr int kStreamsAtWork = 64;
#endif

// A new stream for each product: handle values are used again, streams are not. Now and then all of them are waited
// for.
void new_streams(int count) {
  Handle handle(nullptr);
  const Operands x;
  std::vector<std::unique_ptr<DeviceMatrix>> d;
  for (int i = 0; i < count; ++i) {
    Stream stream;
    check(cublasSetStream(handle.handle, stream.stream), "cublasSetStream");
    d.push_back(std::make_unique<DeviceMatrix>());
    handle.multiply(x.a, x.b, *d.back());
    check(cublasSetStream(handle.handle, nullptr), "cublasSetStream");
    if (i % kStreamsAtWork == kStreamsAtWork - 1) check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (const auto& one : d) write(*one);
}

// As many streams at once, the product of each behind a host function that lets none go before all are enqueued.
void held_streams(int count) {
  std::atomic<bool> open{false};
  struct Opens {
    std::atomic<bool>& open;
    ~Opens() { open = true; }
  };
  Handle handle(nullptr);
  const Operands x;
  std::vector<std::unique_ptr<DeviceMatrix>> d;
  std::vector<std::unique_ptr<Stream>> streams;
  {
    const Opens at_the_end{open};
    for (int i = 0; i < count; ++i) {
      streams.push_back(std::make_unique<Stream>());
      d.push_back(std::make_unique<DeviceMatrix>());
      const auto wait = [](void* data) {
        while (!*static_cast<std::atomic<bool>*>(data)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      check(cudaLaunchHostFunc(streams.back()->stream, wait, &open), "cudaLaunchHostFunc");
      check(cublasSetStream(handle.handle, streams.back()->stream), "cublasSetStream");
      handle.multiply(x.a, x.b, *d.back());
    }
  }
  for (const auto& one : streams) wait_for(one->stream);
  check(cublasSetStream(handle.handle, nullptr), "cublasSetStream");
  for (const auto& one : d) write(*one);
}

// The device is reset between rounds: everything of the process on it is gone, and made again.
void resets(int count) {
  for (int i = 0; i < count; ++i) {
    {
      Stream stream;
      Handle handle(stream.stream);
      const Operands x(static_cast<uint64_t>(1 + i));
      handle.multiply(x.a, x.b, x.d);
      handle.multiply(x.a, x.b, x.d);
      wait_for(stream.stream);
      write(x.d);
    }
    check(cudaDeviceReset(), "cudaDeviceReset");
  }
}

// Contexts of the driver's own, each with a handle and products, destroyed with all that is in them.
void contexts(int count) {
  check(cuInit(0), "cuInit");
  for (int i = 0; i < count; ++i) {
    CUcontext context;
    check(cuCtxCreate(&context, nullptr, 0, 0), "cuCtxCreate");
    {
      Stream stream;
      Handle handle(stream.stream);
      const Operands x(static_cast<uint64_t>(1 + i));
      for (int call = 0; call < 2; ++call) handle.multiply(x.a, x.b, x.d);
      wait_for(stream.stream);
      write(x.d);
    }
    check(cuCtxDestroy(context), "cuCtxDestroy");
  }
}

// Two devices in turn, each with a handle of its own.
void devices(int count) {
  std::vector<std::unique_ptr<Stream>> stream;
  std::vector<std::unique_ptr<Handle>> handle;
  std::vector<std::unique_ptr<Operands>> x;
  for (int device = 0; device < 2; ++device) {
    check(cudaSetDevice(device), "cudaSetDevice");
    stream.push_back(std::make_unique<Stream>());
    handle.push_back(std::make_unique<Handle>(stream.back()->stream));
    x.push_back(std::make_unique<Operands>(static_cast<uint64_t>(1 + device)));
  }
  for (int i = 0; i < count; ++i) {
    for (size_t device = 0; device < 2; ++device) {
      check(cudaSetDevice(static_cast<int>(device)), "cudaSetDevice");
      handle[device]->multiply(x[device]->a, x[device]->b, x[device]->d);
    }
  }
  for (size_t device = 0; device < 2; ++device) {
    check(cudaSetDevice(static_cast<int>(device)), "cudaSetDevice");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    write(x[device]->d);
  }
}

}  // namespace

int main(int argc, char** argv) {
  static constexpr Scene kScenes[] = {{"fork_first", fork_first},
                                      {"fork_after", fork_after},
                                      {"execs", execs},
                                      {"first_calls", first_calls},
                                      {"one_handle", one_handle},
                                      {"per_thread", per_thread},
                                      {"exit", ends_exit},
                                      {"exit_now", ends_exit_now},
                                      {"quick_exit", ends_quick_exit},
                                      {"abort", ends_abort},
                                      {"kill", ends_kill},
                                      {"signals", signals},
                                      {"pending_error", pending_error},
                                      {"sticky_error", sticky_error},
                                      {"no_memory", no_memory},
                                      {"capture_beside", capture_beside},
                                      {"graph_on_two", graph_on_two},
                                      {"new_streams", new_streams},
                                      {"held_streams", held_streams},
                                      {"resets", resets},
                                      {"contexts", contexts},
                                      {"devices", devices}};
  return run_scene("processes", kScenes, argc, argv);
}

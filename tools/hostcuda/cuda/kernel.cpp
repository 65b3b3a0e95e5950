// SPDX-License-Identifier: MIT
// Kernels: libraries, modules, functions and launches; driver functions cuLibrary..., cuKernel..., cuModule...,
// cuFunc..., cuLaunchKernel, cuOccupancy....
//
// A device image is checked to be one and then ignored: the host versions of the shim's kernels lie in one library
// beside libcuda.so.1, those of a program's own in the one that HOSTCUDA_KERNELS names, and are found there by name.
// What the image does not hold cannot be told from what it does.
#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <unordered_set>

#include "kernels/simt_host.h"
#include "tools/hostcuda/cuda/context.h"
#include "tools/hostcuda/cuda/graph.h"
#include "tools/hostcuda/cuda/limits.h"
#include "tools/hostcuda/cuda/settings.h"
#include "tools/hostcuda/simt/executor.h"

namespace hostcuda {
namespace {

constexpr const char* kKernelLibrary = "libsdcguard_hostkernels.so";

// One kernel of one loaded library, on all devices: CUkernel.
struct Kernel {
  const HostKernelEntry* entry;
  int max_dynamic_shared[kMaxDevices];  // opt-in by cu...SetAttribute, kSharedBytes at first
};

// One kernel in one context: CUfunction.
struct Function {
  Kernel* kernel;
  uint64_t context_id;
  int device;
  // What the launches of CUDA before 4.0 set one by one: cuFuncSetBlockShape, cuParamSet..., then cuLaunch....
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<unsigned char> params{};
};

// CUlibrary, and CUmodule (then with a context). Kernels and functions live as long as it does.
struct Library {
  uint64_t context_id = 0;  // 0: a library, good in every context
  int device = 0;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<std::unique_ptr<Function>> functions;
};

// What is loaded. Its own lock, taken after Engine::mutex where both are needed.
struct Registry {
  std::mutex mutex;
  std::unordered_map<void*, std::unique_ptr<Library>> libraries;
  std::unordered_set<const void*> kernels;
  std::unordered_set<const void*> functions;
  std::unordered_set<std::string> missing;  // names already reported
};

Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

constexpr const char* kTableName = "hostcuda_kernel_table";

// The table of the shim's kernels, null where there is no such library. Looked for once.
const HostKernelTable* kernel_table() {
  static const HostKernelTable* const table = []() -> const HostKernelTable* {
    Dl_info here{};
    if (dladdr(reinterpret_cast<const void*>(&hostcuda_view), &here) == 0 || here.dli_fname == nullptr) return nullptr;
    std::string path = here.dli_fname;
    const size_t slash = path.rfind('/');
    path = (slash == std::string::npos ? std::string(".") : path.substr(0, slash)) + "/" + kKernelLibrary;
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    return static_cast<const HostKernelTable*>(dlsym(library, kTableName));
  }();
  return table;
}

[[noreturn]] void refuse_kernels(const std::string& path, const std::string& why) {
  std::fprintf(stderr, "hostcuda: HOSTCUDA_KERNELS=%s: %s\n", path.c_str(), why.c_str());
  std::_Exit(2);
}

// The table of the program's own kernels, null without HOSTCUDA_KERNELS. Loaded once; ends the process where it cannot
// be used.
const HostKernelTable* program_kernel_table() {
  static const HostKernelTable* const table = []() -> const HostKernelTable* {
    const std::string& path = start_settings().kernels;
    if (path.empty()) return nullptr;
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      refuse_kernels(path, std::string("cannot be loaded (") + dlerror() +
                               "): name a shared library of host kernels, or unset the variable");
    }
    const auto* found = static_cast<const HostKernelTable*>(dlsym(library, kTableName));
    if (found == nullptr) {
      refuse_kernels(path, std::string("has no ") + kTableName +
                               ": build it from sources that include tools/hostcuda/simt/program_kernel.h");
    }
    if (found->abi != kSimtAbi) {
      refuse_kernels(path, "was built for kernel interface " + std::to_string(found->abi) + ", this is " +
                               std::to_string(kSimtAbi) + ": build it again with this version's headers");
    }
    for (const HostKernelEntry* const* entry = found->begin; entry != found->end; ++entry) {
      if (find_kernel(kernel_table(), (*entry)->name) == nullptr) continue;
      refuse_kernels(path, std::string("holds ") + (*entry)->name + ", a kernel of the shim's: rename it");
    }
    return found;
  }();
  return table;
}

// A fatbin, its wrapper struct, an ELF image, or PTX text.
bool is_device_image(const void* image) {
  constexpr uint32_t kFatbinMagic = 0xBA55ED50;
  constexpr uint32_t kWrapperMagic = 0x466243B1;
  uint32_t word = 0;
  std::memcpy(&word, image, sizeof word);
  if (word == kWrapperMagic) {
    const void* inner = nullptr;
    std::memcpy(&inner, static_cast<const char*>(image) + 8, sizeof inner);
    if (inner == nullptr) return false;
    std::memcpy(&word, inner, sizeof word);
  }
  if (word == kFatbinMagic || std::memcmp(image,
                                          "\x7f"
                                          "ELF",
                                          4) == 0)
    return true;
  // PTX is text, NUL-terminated, and opens with comments and then .version.
  const auto* text = static_cast<const char*>(image);
  const char first = text[0];
  if (first != '/' && first != '.' && first != '\n' && first != ' ' && first != '\t' && first != '\r') return false;
  return std::strstr(text, ".version") != nullptr;
}

CUresult load(const void* image, uint64_t context_id, int device, Library** out) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!is_device_image(image)) return CUDA_ERROR_INVALID_IMAGE;
  const bool program_has_kernels = program_kernel_table() != nullptr;
  if (kernel_table() == nullptr && !program_has_kernels) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  auto library = std::make_unique<Library>();
  library->context_id = context_id;
  library->device = device;
  *out = library.get();
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.libraries[*out] = std::move(library);
  return CUDA_SUCCESS;
}

CUresult unload(void* handle) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.libraries.find(handle);
  if (found == r.libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& kernel : found->second->kernels) r.kernels.erase(kernel.get());
  for (const auto& function : found->second->functions) r.functions.erase(function.get());
  r.libraries.erase(found);
  return CUDA_SUCCESS;
}

// The kernel `name` of a library, made at the first question. Registry::mutex is held.
CUresult kernel_of(Library& library, const char* name, Kernel** out) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& kernel : library.kernels) {
    if (std::strcmp(kernel->entry->name, name) == 0) {
      *out = kernel.get();
      return CUDA_SUCCESS;
    }
  }
  const HostKernelEntry* entry = find_kernel(kernel_table(), name);
  if (entry == nullptr) entry = find_kernel(program_kernel_table(), name);
  if (entry == nullptr) {
    if (registry().missing.insert(name).second) std::fprintf(stderr, "hostcuda: kernel %s has no host version\n", name);
    return CUDA_ERROR_NOT_FOUND;
  }
  auto kernel = std::make_unique<Kernel>();
  kernel->entry = entry;
  for (int& bytes : kernel->max_dynamic_shared) bytes = static_cast<int>(kSharedBytes);
  *out = kernel.get();
  registry().kernels.insert(kernel.get());
  library.kernels.push_back(std::move(kernel));
  return CUDA_SUCCESS;
}

Function* function_of(Library& library, Kernel* kernel, uint64_t context_id, int device) {
  for (const auto& function : library.functions) {
    if (function->kernel == kernel && function->context_id == context_id) return function.get();
  }
  library.functions.push_back(std::make_unique<Function>());
  *library.functions.back() = Function{kernel, context_id, device};
  registry().functions.insert(library.functions.back().get());
  return library.functions.back().get();
}

CUresult get_attribute(const Kernel& kernel, int device, CUfunction_attribute attribute, int* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(kernel.entry->max_threads);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:  // static shared memory is only known to a running block here
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(kRegistersPerBlock / kernel.entry->max_threads);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = start_settings().capability;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = kernel.max_dynamic_shared[device];
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = -1;  // CU_SHAREDMEM_CARVEOUT_DEFAULT
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult set_attribute(Kernel& kernel, int device, CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > shared_opt_in_bytes(start_settings().capability)) return CUDA_ERROR_INVALID_VALUE;
      kernel.max_dynamic_shared[device] = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

struct LaunchShape {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
};

// A launch in flight: everything it needs, copied at the call.
struct Launch {
  const HostKernelEntry* entry;
  Index3 grid;
  Index3 block;
  uint32_t shared_bytes;
  alignas(64) unsigned char params[kMaxParameterBytes];

  static void run(void* arg) {
    const auto* launch = static_cast<const Launch*>(arg);
    hostcuda_simt_run_shaped(launch->entry, &launch->grid, &launch->block, launch->shared_bytes, launch->params);
  }
  static void destroy(void* arg) { delete static_cast<Launch*>(arg); }
};

// Launch limits of the device, before anything is enqueued.
CUresult check_shape(const Kernel& kernel, int device, const LaunchShape& s) {
  for (int i = 0; i < 3; ++i) {
    if (s.grid[i] == 0 || s.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  if (s.grid[0] > INT_MAX || s.grid[1] > kMaxGridY || s.grid[2] > kMaxGridY) return CUDA_ERROR_INVALID_VALUE;
  if (s.block[0] > kMaxBlockThreads || s.block[1] > kMaxBlockThreads || s.block[2] > kMaxBlockZ) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t threads = uint64_t{s.block[0]} * s.block[1] * s.block[2];
  if (threads > kMaxBlockThreads) return CUDA_ERROR_INVALID_VALUE;
  if (threads > kernel.entry->max_threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (s.shared_bytes > static_cast<unsigned>(kernel.max_dynamic_shared[device])) return CUDA_ERROR_INVALID_VALUE;
  if (kernel.entry->dimensions < 2 && (s.grid[1] != 1 || s.grid[2] != 1 || s.block[1] != 1 || s.block[2] != 1)) {
    std::fprintf(stderr, "hostcuda: %s: this kernel's grids and blocks have one dimension\n", kernel.entry->name);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // No overflow: 31, 16 and 16 bits.
  if (uint64_t{s.grid[0]} * s.grid[1] * s.grid[2] > INT_MAX) {
    std::fprintf(stderr, "hostcuda: %s: the host device runs at most %d blocks in a grid\n", kernel.entry->name,
                 INT_MAX);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

size_t parameters_of(const HostKernelEntry& entry) {
  if (entry.parameters != nullptr) return entry.parameter_count;
  return entry.parameter_bytes == 0 ? 0 : 1;
}

HostParameter parameter_of(const HostKernelEntry& entry, size_t index) {
  return entry.parameters != nullptr ? entry.parameters[index] : HostParameter{0, entry.parameter_bytes};
}

// The parameter block from cuLaunchKernel's two ways to give it.
CUresult gather_params(const HostKernelEntry& entry, void** kernel_params, void** extra, unsigned char* params) {
  if (kernel_params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (entry.parameter_bytes > kMaxParameterBytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const size_t count = parameters_of(entry);
  if (extra != nullptr) {
    const void* source = nullptr;
    size_t bytes = 0;
    for (void** item = extra; *item != CU_LAUNCH_PARAM_END; item += 2) {
      if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        source = item[1];
      } else if (*item == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        std::memcpy(&bytes, item[1], sizeof bytes);
      } else {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    if (bytes != entry.parameter_bytes || (source == nullptr && bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
    if (bytes != 0) std::memcpy(params, source, bytes);
    return CUDA_SUCCESS;
  }
  if (kernel_params == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const HostParameter parameter = parameter_of(entry, i);
    if (kernel_params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(params + parameter.offset, kernel_params[i], parameter.bytes);
  }
  return CUDA_SUCCESS;
}

// A checked launch of `f` (a function, or a kernel cast to one) in `context`.
CUresult make_launch(const void* f, const std::shared_ptr<Context>& context, const LaunchShape& shape,
                     void** kernel_params, void** extra, std::unique_ptr<Launch>* out) {
  Kernel* kernel = nullptr;
  {
    Registry& r = registry();
    const std::lock_guard<std::mutex> registry_lock(r.mutex);
    if (r.functions.contains(f)) {
      const auto* function = static_cast<const Function*>(f);
      if (function->context_id != context->id) return CUDA_ERROR_INVALID_HANDLE;
      kernel = function->kernel;
    } else if (r.kernels.contains(f)) {  // a context-less kernel takes the stream's context
      kernel = const_cast<Kernel*>(static_cast<const Kernel*>(f));
    } else {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (const CUresult bad = check_shape(*kernel, context->device, shape); bad != CUDA_SUCCESS) return bad;
  }
  auto body = std::make_unique<Launch>();
  body->entry = kernel->entry;
  body->grid = {shape.grid[0], shape.grid[1], shape.grid[2]};
  body->block = {shape.block[0], shape.block[1], shape.block[2]};
  body->shared_bytes = shape.shared_bytes;
  if (const CUresult r = gather_params(*body->entry, kernel_params, extra, body->params); r != CUDA_SUCCESS) return r;
  *out = std::move(body);
  return CUDA_SUCCESS;
}

// The launch as a node: its body, and its parameters for those who ask.
NodeContent content_of_launch(const void* f, const std::shared_ptr<Context>& context, const LaunchShape& shape,
                              std::unique_ptr<Launch> body) {
  auto params = std::make_shared<KernelParams>();
  {
    Registry& r = registry();
    const std::lock_guard<std::mutex> lock(r.mutex);
    if (r.functions.contains(f)) {
      params->function = reinterpret_cast<CUfunction>(const_cast<void*>(f));
    } else {
      params->kernel = reinterpret_cast<CUkernel>(const_cast<void*>(f));
    }
  }
  std::copy(std::begin(shape.grid), std::end(shape.grid), params->grid);
  std::copy(std::begin(shape.block), std::end(shape.block), params->block);
  params->shared_bytes = shape.shared_bytes;
  params->block_of_params.assign(body->params, body->params + body->entry->parameter_bytes);
  for (size_t i = 0; i < parameters_of(*body->entry); ++i) {
    params->pointers.push_back(params->block_of_params.data() + parameter_of(*body->entry, i).offset);
  }
  NodeContent content;
  content.type = CU_GRAPH_NODE_TYPE_KERNEL;
  content.context = context;
  content.kernel = params;
  const char* name = body->entry->name;
  if (!skip_kernel(name)) content.work = share_work({Launch::run, Launch::destroy, body.release(), name});
  return content;
}

CUresult launch(CUfunction f, const LaunchShape& shape, CUstream handle, void** kernel_params, void** extra) {
  const std::lock_guard<std::mutex> lock(Engine::get().mutex);
  std::shared_ptr<Stream> stream;
  std::unique_ptr<Launch> body;
  if (const CUresult r = find_stream(handle, &stream); r != CUDA_SUCCESS) return r;
  if (const CUresult r = make_launch(f, stream->context, shape, kernel_params, extra, &body); r != CUDA_SUCCESS) {
    return r;
  }
  if (stream->capture != nullptr) {
    return capture_node(stream, content_of_launch(f, stream->context, shape, std::move(body)));
  }
  if (skip_kernel(body->entry->name)) return CUDA_SUCCESS;
  const CUresult result = enqueue_work(stream, {Launch::run, Launch::destroy, body.get(), body->entry->name});
  if (result == CUDA_SUCCESS) (void)body.release();  // the work owns it now
  return result;
}

CUresult load_module(CUmodule* module, const void* image) {
  int device = 0;
  uint64_t context_id = 0;
  {
    const std::lock_guard<std::mutex> lock(Engine::get().mutex);
    std::shared_ptr<Context> context;
    if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
    if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
    device = context->device;
    context_id = context->id;
  }
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Library* library = nullptr;
  const CUresult result = load(image, context_id, device, &library);
  if (result == CUDA_SUCCESS) *module = reinterpret_cast<CUmodule>(library);
  return result;
}

// The bytes of a file that a module or a library is loaded from.
CUresult read_image(const char* name, std::vector<char>* image) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::FILE* file = std::fopen(name, "rb");
  if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  char part[4096];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof part, file)) != 0;) image->insert(image->end(), part, part + n);
  std::fclose(file);
  image->resize(image->size() + 16, '\0');  // PTX is text: it ends with a NUL
  return CUDA_SUCCESS;
}

// Calls `body(function)` for a function of some context. CUDA_ERROR_INVALID_HANDLE: no such function.
template <class Body>
CUresult with_function(CUfunction handle, Body body) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (!r.functions.contains(handle)) return CUDA_ERROR_INVALID_HANDLE;
  return body(*reinterpret_cast<Function*>(handle));
}

CUresult set_param(CUfunction handle, int offset, const void* value, size_t bytes) {
  return with_function(handle, [&](Function& function) {
    if (offset < 0 || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const size_t end = static_cast<size_t>(offset) + bytes;
    if (end > kMaxParameterBytes) return CUDA_ERROR_INVALID_VALUE;
    if (function.params.size() < end) function.params.resize(end);
    std::memcpy(function.params.data() + offset, value, bytes);
    return CUDA_SUCCESS;
  });
}

CUresult launch_as_set(CUfunction handle, int width, int height, CUstream stream) {
  LaunchShape shape{{static_cast<unsigned>(width), static_cast<unsigned>(height), 1}, {1, 1, 1}, 0};
  std::vector<unsigned char> params;
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult known = with_function(handle, [&](const Function& function) {
    std::copy(std::begin(function.block), std::end(function.block), shape.block);
    shape.shared_bytes = function.shared_bytes;
    params = function.params;
    return CUDA_SUCCESS;
  });
  if (known != CUDA_SUCCESS) return known;
  size_t bytes = params.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  return launch(handle, shape, stream, nullptr, extra);
}

CUresult param_info(const Kernel* kernel, size_t index, size_t* offset, size_t* bytes) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (offset == nullptr || index >= parameters_of(*kernel->entry)) return CUDA_ERROR_INVALID_VALUE;
  const HostParameter parameter = parameter_of(*kernel->entry, index);
  *offset = parameter.offset;
  if (bytes != nullptr) *bytes = parameter.bytes;
  return CUDA_SUCCESS;
}

// The kernel behind a CUfunction or a CUkernel cast to one, and the device it stands for. Registry::mutex is held.
Kernel* kernel_behind(const void* handle, int* device) {
  Registry& r = registry();
  if (r.functions.contains(handle)) {
    const auto* function = static_cast<const Function*>(handle);
    *device = function->device;
    return function->kernel;
  }
  if (r.kernels.contains(handle)) {
    *device = 0;
    return const_cast<Kernel*>(static_cast<const Kernel*>(handle));
  }
  return nullptr;
}

bool valid_device(CUdevice device) {
  return device >= 0 && device < start_settings().devices;
}

// The live context that a function belongs to; null: no function.
std::shared_ptr<Context> context_of_function(const void* f) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  return r.functions.contains(f) ? find_context_by_id(static_cast<const Function*>(f)->context_id) : nullptr;
}

}  // namespace

CUresult kernel_content(const CUDA_KERNEL_NODE_PARAMS& p, const std::shared_ptr<Context>& context,
                        NodeContent* content) {
  const void* f = p.func != nullptr ? static_cast<const void*>(p.func) : static_cast<const void*>(p.kern);
  std::shared_ptr<Context> own = context_of_function(f);
  if (own == nullptr) own = context;
  if (f == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (own == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const LaunchShape shape{
      {p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes};
  std::unique_ptr<Launch> body;
  if (const CUresult r = make_launch(f, own, shape, p.kernelParams, p.extra, &body); r != CUDA_SUCCESS) return r;
  *content = content_of_launch(f, own, shape, std::move(body));
  return CUDA_SUCCESS;
}

namespace driver {

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned int, CUlibraryOption*,
                           void**, unsigned int) {
  {
    const std::lock_guard<std::mutex> lock(Engine::get().mutex);
    if (!Engine::get().initialised) return CUDA_ERROR_NOT_INITIALIZED;
    if (const CUresult r = check_capture_safe(); r != CUDA_SUCCESS) return r;
  }
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Library* loaded = nullptr;
  const CUresult result = load(code, 0, 0, &loaded);
  if (result == CUDA_SUCCESS) *library = reinterpret_cast<CUlibrary>(loaded);
  return result;
}

CUresult cuLibraryUnload(CUlibrary library) {
  return unload(library);
}

CUresult cuLibraryGetKernel(CUkernel* p_kernel, CUlibrary library, const char* name) {
  if (p_kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.libraries.find(library);
  if (found == r.libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  Kernel* kernel = nullptr;
  const CUresult result = kernel_of(*found->second, name, &kernel);
  if (result == CUDA_SUCCESS) *p_kernel = reinterpret_cast<CUkernel>(kernel);
  return result;
}

CUresult cuLibraryGetModule(CUmodule* p_mod, CUlibrary library) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (p_mod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!r.libraries.contains(library)) return CUDA_ERROR_INVALID_HANDLE;
  *p_mod = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* p_func, CUkernel kernel) {
  const std::lock_guard<std::mutex> engine_lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  if (p_func == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (!r.kernels.contains(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  auto* held = reinterpret_cast<Kernel*>(kernel);
  for (const auto& [handle, library] : r.libraries) {
    for (const auto& owned : library->kernels) {
      if (owned.get() == held) {
        *p_func = reinterpret_cast<CUfunction>(function_of(*library, held, context->id, context->device));
        return CUDA_SUCCESS;
      }
    }
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetName(const char** name, CUkernel h_func) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!r.kernels.contains(h_func)) return CUDA_ERROR_INVALID_HANDLE;
  *name = reinterpret_cast<const Kernel*>(h_func)->entry->name;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (!r.kernels.contains(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  return get_attribute(*reinterpret_cast<const Kernel*>(kernel), dev, attrib, value);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (!r.kernels.contains(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  return set_attribute(*reinterpret_cast<Kernel*>(kernel), dev, attrib, val);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return load_module(module, image);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*, void**) {
  return load_module(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fat_cubin) {
  return load_module(module, fat_cubin);
}

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  std::vector<char> image;
  if (const CUresult r = read_image(fname, &image); r != CUDA_SUCCESS) return r;
  return load_module(module, image.data());
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* file_name, CUjit_option* jit_options,
                               void** jit_options_values, unsigned int num_jit_options,
                               CUlibraryOption* library_options, void** library_option_values,
                               unsigned int num_library_options) {
  std::vector<char> image;
  if (const CUresult r = read_image(file_name, &image); r != CUDA_SUCCESS) return r;
  return driver::cuLibraryLoadData(library, image.data(), jit_options, jit_options_values, num_jit_options,
                                   library_options, library_option_values, num_library_options);
}

CUresult cuKernelGetLibrary(CUlibrary* p_lib, CUkernel kernel) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (p_lib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [handle, library] : r.libraries) {
    for (const auto& owned : library->kernels) {
      if (reinterpret_cast<CUkernel>(owned.get()) != kernel) continue;
      *p_lib = reinterpret_cast<CUlibrary>(handle);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& [handle, library] : r.libraries) {
    for (const auto& owned : library->functions) {
      if (reinterpret_cast<CUfunction>(owned.get()) != hfunc) continue;
      *hmod = reinterpret_cast<CUmodule>(handle);
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t param_index, size_t* param_offset, size_t* param_size) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  int device = 0;
  return param_info(kernel_behind(kernel, &device), param_index, param_offset, param_size);
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t param_index, size_t* param_offset, size_t* param_size) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  int device = 0;
  return param_info(kernel_behind(func, &device), param_index, param_offset, param_size);
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  return with_function(hfunc, [&](Function& function) {
    if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
    function.block[0] = static_cast<unsigned>(x);
    function.block[1] = static_cast<unsigned>(y);
    function.block[2] = static_cast<unsigned>(z);
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return with_function(hfunc, [bytes](Function& function) {
    function.shared_bytes = bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return with_function(hfunc, [numbytes](Function& function) {
    if (numbytes > kMaxParameterBytes) return CUDA_ERROR_INVALID_VALUE;
    function.params.resize(numbytes);
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return set_param(hfunc, offset, ptr, numbytes);
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return set_param(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return set_param(hfunc, offset, &value, sizeof value);
}

CUresult cuLaunch(CUfunction f) {
  return launch_as_set(f, 1, 1, nullptr);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return launch_as_set(f, grid_width, grid_height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream stream) {
  return launch_as_set(f, grid_width, grid_height, stream);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* min_grid_size, int* block_size, CUfunction func, CUoccupancyB2DSize,
                                          size_t, int block_size_limit) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  int device = 0;
  const Kernel* kernel = kernel_behind(func, &device);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (min_grid_size == nullptr || block_size == nullptr || block_size_limit < 0) return CUDA_ERROR_INVALID_VALUE;
  const int most = static_cast<int>(kernel->entry->max_threads);
  *block_size = block_size_limit == 0 ? most : std::min(most, block_size_limit);
  *min_grid_size = kMultiprocessors;
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule hmod) {
  return unload(hmod);
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  const std::lock_guard<std::mutex> engine_lock(Engine::get().mutex);
  std::shared_ptr<Context> context;
  if (const CUresult r = current_context(&context); r != CUDA_SUCCESS) return r;
  if (hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.libraries.find(hmod);
  if (found == r.libraries.end()) return CUDA_ERROR_INVALID_HANDLE;
  Library& library = *found->second;
  if (library.context_id != 0 && library.context_id != context->id) return CUDA_ERROR_INVALID_HANDLE;
  Kernel* kernel = nullptr;
  if (const CUresult bad = kernel_of(library, name, &kernel); bad != CUDA_SUCCESS) return bad;
  *hfunc = reinterpret_cast<CUfunction>(function_of(library, kernel, context->id, context->device));
  return CUDA_SUCCESS;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attrib, CUfunction hfunc) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  int device = 0;
  const Kernel* kernel = kernel_behind(hfunc, &device);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : get_attribute(*kernel, device, attrib, value);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  int device = 0;
  Kernel* kernel = kernel_behind(hfunc, &device);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : set_attribute(*kernel, device, attrib, value);
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  int device = 0;
  return kernel_behind(hfunc, &device) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int device = 0;
  const Kernel* kernel = kernel_behind(hfunc, &device);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->entry->name;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  return r.functions.contains(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return driver::cuFuncLoad(function);
}

// One block a multiprocessor, whatever its size: the executor runs blocks one after another.
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* num_blocks, CUfunction func, int block_size, size_t) {
  Registry& r = registry();
  const std::lock_guard<std::mutex> lock(r.mutex);
  int device = 0;
  const Kernel* kernel = kernel_behind(func, &device);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (num_blocks == nullptr || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  *num_blocks = static_cast<uint32_t>(block_size) <= kernel->entry->max_threads ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* num_blocks, CUfunction func, int block_size,
                                                              size_t dynamic_smem_size, unsigned int) {
  return driver::cuOccupancyMaxActiveBlocksPerMultiprocessor(num_blocks, func, block_size, dynamic_smem_size);
}

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z,
                        unsigned int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z,
                        unsigned int shared_mem_bytes, CUstream stream, void** kernel_params, void** extra) {
  return launch(f, {{grid_dim_x, grid_dim_y, grid_dim_z}, {block_dim_x, block_dim_y, block_dim_z}, shared_mem_bytes},
                stream, kernel_params, extra);
}

// Launch attributes ask for what this device does not have (clusters, cooperative launch, programmatic dependence);
// those that only advise are accepted.
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernel_params, void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttributeID id = config->attrs[i].id;
    if (id != CU_LAUNCH_ATTRIBUTE_IGNORE && id != CU_LAUNCH_ATTRIBUTE_PRIORITY &&
        id != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return launch(f,
                {{config->gridDimX, config->gridDimY, config->gridDimZ},
                 {config->blockDimX, config->blockDimY, config->blockDimZ},
                 config->sharedMemBytes},
                config->hStream, kernel_params, extra);
}

}  // namespace driver
}  // namespace hostcuda

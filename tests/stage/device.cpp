// SPDX-License-Identifier: MIT
// Device under test; see device.h.
#include "tests/stage/device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sdcguard::stage {

namespace {

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "stage test: %s: %s\n", what, name);
  std::exit(86);
}

// The host device finds kernels by name and only wants an image that is one; on a GPU the build's fatbin is read.
std::vector<char> image() {
  const std::string path = std::string(SDCGUARD_BUILD_DIR) + "/kernels/sdcguard.fatbin";
  std::vector<char> bytes;
  if (std::FILE* file = std::fopen(path.c_str(), "rb")) {
    char chunk[65536];
    for (size_t n; (n = std::fread(chunk, 1, sizeof chunk, file)) > 0;) bytes.insert(bytes.end(), chunk, chunk + n);
    std::fclose(file);
  }
  if (bytes.empty()) {
    const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n";
    bytes.assign(ptx, ptx + sizeof ptx);
  }
  return bytes;
}

struct Device {
  CUfunction functions[kFunctionCount];
  Device() {
    must(cuInit(0), "cuInit");
    CUdevice device;
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    CUcontext context;
    must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    static const std::vector<char> bytes = image();
    CUmodule module;
    must(cuModuleLoadData(&module, bytes.data()), "cuModuleLoadData");
    for (uint32_t i = 0; i < kFunctionCount; ++i) {
      must(cuModuleGetFunction(&functions[i], module, kFunctionNames[i]), kFunctionNames[i]);
    }
  }
};

Device& device() {
  static Device the_device;
  return the_device;
}

template <typename V>
void store_value(std::vector<unsigned char>& bytes, uint64_t index, DataType type, V v) {
  const auto put = [&](const auto& raw) { std::memcpy(&bytes[index * sizeof raw], &raw, sizeof raw); };
  switch (type) {
    case DataType::kF64:
      return put(static_cast<double>(v));
    case DataType::kF32:
      return put(static_cast<float>(v));
    case DataType::kI32:
      return put(static_cast<int32_t>(v));
    case DataType::kI8:
      return put(static_cast<int8_t>(v));
    case DataType::kE4M3:
    case DataType::kE5M2:
      return put(reference::bits8(type, static_cast<float>(v)));
    default:
      return put(reference::bits16(type, static_cast<float>(v)));
  }
}

template <typename V>
V load_value(const std::vector<unsigned char>& bytes, uint64_t index, DataType type) {
  const auto get = [&](auto raw) {
    std::memcpy(&raw, &bytes[index * sizeof raw], sizeof raw);
    return raw;
  };
  switch (type) {
    case DataType::kF64:
      return static_cast<V>(get(double{}));
    case DataType::kF32:
      return static_cast<V>(get(float{}));
    case DataType::kI32:
      return static_cast<V>(get(int32_t{}));
    case DataType::kI8:
      return static_cast<V>(get(int8_t{}));
    case DataType::kE4M3:
    case DataType::kE5M2:
      return static_cast<V>(reference::from_bits8(type, get(uint8_t{})));
    default:
      return static_cast<V>(reference::from_bits16(type, get(uint16_t{})));
  }
}

uint64_t size_of(DataType type) {
  return element_bytes(type);
}

}  // namespace

Buffer::Buffer(uint64_t bytes) : bytes_(bytes) {
  device();
  must(cuMemAlloc_v2(&address_, std::max<uint64_t>(bytes, 1)), "cuMemAlloc");
}
Buffer::~Buffer() {
  cuMemFree_v2(address_);
}
void Buffer::write(const void* from, uint64_t bytes, uint64_t offset) {
  must(cuMemcpyHtoD_v2(address_ + offset, from, bytes), "cuMemcpyHtoD");
}
void Buffer::read(void* to, uint64_t bytes, uint64_t offset) const {
  must(cuMemcpyDtoH_v2(to, address_ + offset, bytes), "cuMemcpyDtoH");
}
void Buffer::fill(unsigned char byte) {
  must(cuMemsetD8_v2(address_, byte, bytes_), "cuMemsetD8");
}

template <typename V>
DeviceMatrixOf<V>::DeviceMatrixOf(const reference::MatrixOf<V>& values, DataType type, Layout layout)
    : rows_(values.rows), cols_(values.cols), batch_(values.batch), layout_(layout), view_{} {
  const int64_t leading = (layout.rows_contiguous ? cols_ : rows_) + layout.pad;
  view_.type = type;
  view_.row_stride = layout.rows_contiguous ? leading : 1;
  view_.col_stride = layout.rows_contiguous ? 1 : leading;
  entry_stride_ = leading * (layout.rows_contiguous ? rows_ : cols_);
  view_.batch_stride = batch_ == 1 || layout.by_pointers ? 0 : entry_stride_;
  const int64_t last = (rows_ - 1) * view_.row_stride + (cols_ - 1) * view_.col_stride + (batch_ - 1) * entry_stride_;
  buffer_ = std::make_unique<Buffer>(static_cast<uint64_t>(layout.shift + last + 1) * size_of(type));
  buffer_->fill(0xFF);  // what lies between the rows is NaN
  view_.address = buffer_->address() + static_cast<uint64_t>(layout.shift) * size_of(type);
  if (layout.by_pointers) {
    std::vector<uint64_t> addresses;
    for (int64_t n = 0; n < batch_; ++n) addresses.push_back(buffer_->address() + place_of(0, 0, n) * size_of(type));
    pointers_ = std::make_unique<Buffer>(addresses.size() * 8);
    pointers_->write(addresses.data(), addresses.size() * 8);
    view_.pointers = pointers_->address();
  }
  write(values);
}

template <typename V>
uint64_t DeviceMatrixOf<V>::place_of(int64_t row, int64_t col, int64_t entry) const {
  const int64_t at = layout_.by_pointers ? batch_ - 1 - entry : entry;
  return static_cast<uint64_t>(layout_.shift + at * entry_stride_ + row * view_.row_stride + col * view_.col_stride);
}

template <typename V>
void DeviceMatrixOf<V>::write(const reference::MatrixOf<V>& values) {
  std::vector<unsigned char> bytes(buffer_->bytes());
  buffer_->read(bytes.data(), bytes.size());
  for (int64_t n = 0; n < batch_; ++n) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) store_value<V>(bytes, place_of(r, c, n), view_.type, values.at(r, c, n));
    }
  }
  buffer_->write(bytes.data(), bytes.size());
}

template <typename V>
reference::MatrixOf<V> DeviceMatrixOf<V>::read() const {
  std::vector<unsigned char> bytes(buffer_->bytes());
  buffer_->read(bytes.data(), bytes.size());
  reference::MatrixOf<V> values(rows_, cols_, batch_);
  for (int64_t n = 0; n < batch_; ++n) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) values.at(r, c, n) = load_value<V>(bytes, place_of(r, c, n), view_.type);
    }
  }
  return values;
}

template class DeviceMatrixOf<float>;
template class DeviceMatrixOf<double>;

CUfunction function_of(const LaunchShape& shape) {
  return device().functions[shape.function];
}

uint64_t make_history() {
  auto* history = new Buffer(sizeof(SiteHistory));  // lives as long as the process
  history->fill(0);
  return history->address();
}

template <typename V>
ResultOf<V> run(CallOf<V>& call, const std::function<bool(Kernel, const LaunchShape&, const ProbeParams&)>& replace) {
  using Held = DeviceMatrixOf<V>;
  ResultOf<V> result{};
  const int64_t n1 = call.a.rows;
  const int64_t n3 = call.b.cols;
  Held a(call.a, call.type, call.layout_a);
  Held b(call.b, call.type_b == DataType::kNone ? call.type : call.type_b, call.layout_b);
  std::unique_ptr<Held> d;
  std::unique_ptr<Held> c;
  std::unique_ptr<Held> bias;
  std::unique_ptr<Held> p;
  // Alphas, then betas, in their type.
  const auto count = static_cast<uint64_t>(call.alphas.empty() ? 1 : n3);
  std::vector<unsigned char> both(2 * count * size_of(call.scalar_type));
  for (uint64_t i = 0; i < count; ++i) {
    const double alpha = i < call.alphas.size() ? call.alphas[i] : call.alpha;
    const double beta = i < call.betas.size() ? call.betas[i] : call.beta;
    store_value<double>(both, i, call.scalar_type, alpha);
    store_value<double>(both, count + i, call.scalar_type, beta);
  }
  Buffer scalars(both.size());
  scalars.write(both.data(), both.size());
  std::vector<std::unique_ptr<Buffer>> factors;
  const auto factor = [&factors](const std::vector<float>& values) -> uint64_t {
    if (values.empty()) return 0;
    factors.push_back(std::make_unique<Buffer>(values.size() * 4));
    factors.back()->write(values.data(), values.size() * 4);
    return factors.back()->address();
  };

  ProbeRequest request{};
  request.n1 = n1;
  request.n2 = call.a.cols;
  request.n3 = n3;
  request.batch = call.a.batch;
  request.a = a.view();
  request.b = b.view();
  request.mode = call.mode;
  request.tensor_core = call.tensor_core;
  request.sm_count = call.sm_count;
  request.delivered = call.delivered;
  request.c_apart = call.c_apart;
  request.accumulator = call.accumulator;
  request.rounding = call.rounding;
  request.finish.scalar_type = call.scalar_type;
  request.finish.scale_a = factor(call.scale_a);
  request.finish.scale_b = factor(call.scale_b);
  request.finish.scale_c = factor(call.scale_c);
  request.finish.scale_d = factor(call.scale_d);
  request.finish.scale_a_vector = call.scale_a.size() > 1;
  request.finish.scale_b_vector = call.scale_b.size() > 1;
  Buffer amax(4);
  if (call.wants_amax) request.finish.amax_d = amax.address();
  Buffer mask(static_cast<uint64_t>(n1 * call.a.batch * kMaskLd / 8));
  std::unique_ptr<DeviceMatrixOf<float>> aux;
  request.finish.aux_kind = call.aux_kind;
  if (call.aux_kind == AuxKind::kReluMask) {
    mask.fill(0xA5);
    request.finish.aux = MatrixView{mask.address(), kMaskLd, 1, n1 * kMaskLd, DataType::kNone};
  } else if (call.aux_kind == AuxKind::kGeluInput) {
    aux = std::make_unique<DeviceMatrixOf<float>>(reference::Matrix(n1, n3, call.a.batch), call.type_aux,
                                                  Layout{true, 5, 0});
    request.finish.aux = aux->view();
  }
  request.finish.alpha = call.alpha;
  request.finish.beta = call.beta;
  request.finish.epilogue = call.epilogue;
  if (call.scalars_on_device) {
    request.finish.alpha_address = scalars.address();
    request.finish.beta_address = scalars.address() + count * size_of(call.scalar_type);
    request.finish.alpha_column_stride = call.alphas.empty() ? 0 : 1;
    request.finish.beta_column_stride = call.alphas.empty() ? 0 : 1;
  }
  if (call.delivers) {
    reference::MatrixOf<V> start(n1, n3, call.a.batch);
    if (!call.c_apart) start = call.c;
    d = std::make_unique<Held>(start, call.type_d, call.layout_d);
    request.finish.d = d->view();
  }
  if (call.c.rows > 0) {
    if (!call.c_apart) {
      if (!d) p = std::make_unique<Held>(call.c, call.type_d, call.layout_d);
      request.finish.c = d ? d->view() : p->view();
    } else {
      c = std::make_unique<Held>(call.c, call.type_d, call.layout_d);
      request.finish.c = c->view();
    }
  }
  if (call.bias.rows > 0) {
    bias = std::make_unique<Held>(call.bias, call.type_d);
    request.finish.bias_address = bias->view().address;
    request.finish.bias_type = call.type_d;
  }
  if (call.delivered) {
    if (!p) p = std::make_unique<Held>(call.p, call.type_d, call.layout_d);
    request.p = p->view();
  }

  result.plan = make_plan(request);
  if (!result.plan.usable()) {
    result.reason = result.plan.reason;
    result.outcome = Outcome::kUnverified;
    return result;
  }
  ProbeParams& params = result.plan.params;
  if (!call.delivered) {
    p = std::make_unique<Held>(call.p, params.p.type, Layout{true, params.p.row_stride - n3, 0});
    params.p.address = p->view().address;
  }
  result.scratch = std::make_shared<Buffer>(result.plan.layout.bytes);
  result.scratch->fill(0xFF);
  must(cuMemsetD8_v2(result.scratch->address(), 0, kZeroedScratchBytes), "cuMemsetD8");
  bind_scratch(params, result.plan.layout, result.scratch->address());
  const uint64_t cell_count = static_cast<uint64_t>(params.lines) * params.classes * (kDraws + 1);
  Buffer cells(cell_count * 4);
  cells.fill(0);
  params.cells = cells.address();
  params.seed = call.seed;
  params.site_history = call.site_history;
  params.family_history = call.family_history;

  constexpr uint32_t kSlots = 2048;
  Buffer lanes(call.records ? 2ull * kSlots * kRecordBytes + 16 : 1);
  if (call.records) {
    lanes.fill(0);
    params.lane = LaneView{lanes.address() + 16,
                           lanes.address() + 16 + kSlots * kRecordBytes,
                           lanes.address(),
                           lanes.address() + 8,
                           kSlots - 1,
                           kSlots - 1,
                           2,
                           3};
    params.identity.call_id = 77;
    params.identity.site = 0x5117e;
    params.identity.seed = call.seed;
    params.identity.m = n3;
    params.identity.n = n1;
    params.identity.k = call.a.cols;
    params.identity.batch = call.a.batch;
    params.identity.entry = 5;
    params.identity.mode = static_cast<uint8_t>(call.mode);
    params.identity.type_a = call.type;
    params.identity.type_b = call.type;
    params.identity.type_d = call.type_d;
    params.identity.epilogue = call.epilogue;
    params.identity.stream = 9;
  }
  if (call.change) call.change(params);

  const auto launch = [&](Kernel kernel) {
    const LaunchShape& shape = result.plan.launch[static_cast<uint32_t>(kernel)];
    if (shape.grid == 0) return;
    if (std::find(call.skipped.begin(), call.skipped.end(), kernel) != call.skipped.end()) return;
    if (replace && replace(kernel, shape, params)) return;
    void* arguments[] = {&params};
    must(cuLaunchKernel(function_of(shape), shape.grid, 1, 1, shape.block, 1, 1, shape.shared_bytes, nullptr, arguments,
                        nullptr),
         kFunctionNames[shape.function]);
  };
  launch(Kernel::kKeep);
  if (call.delivered && !call.c_apart) {
    must(cuCtxSynchronize(), "cuCtxSynchronize");
    p->write(call.p);  // the product, over its C
  }
  for (uint32_t i = 0; i < static_cast<uint32_t>(Kernel::kKeep); ++i) launch(static_cast<Kernel>(i));
  must(cuCtxSynchronize(), "cuCtxSynchronize");

  result.params = params;
  result.verdict = read_array<Verdict>(params.verdict, 1)[0];
  result.outcome = static_cast<Outcome>(result.verdict.outcome);
  result.reason = static_cast<Reason>(result.verdict.reason);
  result.p = p->read();
  if (d) result.d = d->read();
  if (aux) result.aux = aux->read();
  if (call.aux_kind == AuxKind::kReluMask) {
    result.mask = read_array<unsigned char>(mask.address(), mask.bytes());
  }
  if (call.wants_amax) result.amax = read_array<float>(amax.address(), 1)[0];
  result.listed = read_array<uint32_t>(
      params.listed, std::min<uint64_t>(result.verdict.lines_listed, static_cast<uint64_t>(params.lines)));
  result.cells = read_array<float>(cells.address(), cell_count);
  if (call.records) {
    const auto tickets = read_array<uint64_t>(lanes.address(), 2);
    result.calls = read_array<CallRecord>(params.lane.call_slots, tickets[0]);
    result.faults = read_array<FaultRecord>(params.lane.fault_slots, std::min<uint64_t>(tickets[1], kSlots));
  }
  return result;
}

template Result run(Call&, const std::function<bool(Kernel, const LaunchShape&, const ProbeParams&)>&);
template WideResult run(WideCall&, const std::function<bool(Kernel, const LaunchShape&, const ProbeParams&)>&);

}  // namespace sdcguard::stage

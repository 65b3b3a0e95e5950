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

uint64_t size_of(DataType type) {
  return type == DataType::kF32 ? 4 : 2;
}

void store_value(std::vector<unsigned char>& bytes, uint64_t index, DataType type, float v) {
  if (type == DataType::kF32) {
    std::memcpy(&bytes[index * 4], &v, 4);
  } else {
    const uint16_t h = reference::bits16(type, v);
    std::memcpy(&bytes[index * 2], &h, 2);
  }
}

float load_value(const std::vector<unsigned char>& bytes, uint64_t index, DataType type) {
  if (type == DataType::kF32) {
    float v;
    std::memcpy(&v, &bytes[index * 4], 4);
    return v;
  }
  uint16_t h;
  std::memcpy(&h, &bytes[index * 2], 2);
  return reference::from_bits16(type, h);
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

DeviceMatrix::DeviceMatrix(const reference::Matrix& values, DataType type, Layout layout)
    : rows_(values.rows), cols_(values.cols), batch_(values.batch), view_{} {
  const int64_t leading = (layout.rows_contiguous ? cols_ : rows_) + layout.pad;
  view_.type = type;
  view_.row_stride = layout.rows_contiguous ? leading : 1;
  view_.col_stride = layout.rows_contiguous ? 1 : leading;
  view_.batch_stride = batch_ == 1 ? 0 : leading * (layout.rows_contiguous ? rows_ : cols_);
  const int64_t last =
      (rows_ - 1) * view_.row_stride + (cols_ - 1) * view_.col_stride + (batch_ - 1) * view_.batch_stride;
  buffer_ = std::make_unique<Buffer>(static_cast<uint64_t>(layout.shift + last + 1) * size_of(type));
  buffer_->fill(0xFF);  // what lies between the rows is NaN
  view_.address = buffer_->address() + static_cast<uint64_t>(layout.shift) * size_of(type);
  write(values);
}

void DeviceMatrix::write(const reference::Matrix& values) {
  std::vector<unsigned char> bytes(buffer_->bytes());
  buffer_->read(bytes.data(), bytes.size());
  const uint64_t shift = (view_.address - buffer_->address()) / size_of(view_.type);
  for (int64_t n = 0; n < batch_; ++n) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) {
        const int64_t at = n * view_.batch_stride + r * view_.row_stride + c * view_.col_stride;
        store_value(bytes, shift + static_cast<uint64_t>(at), view_.type, values.at(r, c, n));
      }
    }
  }
  buffer_->write(bytes.data(), bytes.size());
}

reference::Matrix DeviceMatrix::read() const {
  std::vector<unsigned char> bytes(buffer_->bytes());
  buffer_->read(bytes.data(), bytes.size());
  const uint64_t shift = (view_.address - buffer_->address()) / size_of(view_.type);
  reference::Matrix values(rows_, cols_, batch_);
  for (int64_t n = 0; n < batch_; ++n) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) {
        const int64_t at = n * view_.batch_stride + r * view_.row_stride + c * view_.col_stride;
        values.at(r, c, n) = load_value(bytes, shift + static_cast<uint64_t>(at), view_.type);
      }
    }
  }
  return values;
}

CUfunction function_of(const LaunchShape& shape) {
  return device().functions[shape.function];
}

uint64_t make_history() {
  auto* history = new Buffer(sizeof(SiteHistory));  // lives as long as the process
  history->fill(0);
  return history->address();
}

Result run(Call& call, const std::function<bool(Kernel, const LaunchShape&, const ProbeParams&)>& replace) {
  Result result{};
  const int64_t n1 = call.a.rows;
  const int64_t n3 = call.b.cols;
  DeviceMatrix a(call.a, call.type, call.layout_a);
  DeviceMatrix b(call.b, call.type, call.layout_b);
  std::unique_ptr<DeviceMatrix> d;
  std::unique_ptr<DeviceMatrix> c;
  std::unique_ptr<DeviceMatrix> bias;
  std::unique_ptr<DeviceMatrix> p;
  Buffer scalars(8);
  const float both[2] = {call.alpha, call.beta};
  scalars.write(both, 8);

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
  request.finish.alpha = call.alpha;
  request.finish.beta = call.beta;
  request.finish.epilogue = call.epilogue;
  if (call.scalars_on_device) {
    request.finish.alpha_address = scalars.address();
    request.finish.beta_address = scalars.address() + 4;
  }
  if (call.delivers) {
    reference::Matrix start(n1, n3, call.a.batch);
    if (!call.c_apart) start = call.c;
    d = std::make_unique<DeviceMatrix>(start, call.type_d, call.layout_d);
    request.finish.d = d->view();
  }
  if (call.c.rows > 0) {
    if (call.delivers && !call.c_apart) {
      request.finish.c = d->view();
    } else {
      c = std::make_unique<DeviceMatrix>(call.c, call.type_d, call.layout_d);
      request.finish.c = c->view();
    }
  }
  if (call.bias.rows > 0) {
    bias = std::make_unique<DeviceMatrix>(call.bias, call.type_d);
    request.finish.bias_address = bias->view().address;
    request.finish.bias_type = call.type_d;
  }
  if (call.delivered) {
    p = std::make_unique<DeviceMatrix>(call.p, call.type_d, call.layout_d);
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
    p = std::make_unique<DeviceMatrix>(call.p, DataType::kF32, Layout{true, params.p.row_stride - n3, 0});
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
  for (uint32_t i = 0; i < static_cast<uint32_t>(Kernel::kKeep); ++i) launch(static_cast<Kernel>(i));
  must(cuCtxSynchronize(), "cuCtxSynchronize");

  result.params = params;
  result.verdict = read_array<Verdict>(params.verdict, 1)[0];
  result.outcome = static_cast<Outcome>(result.verdict.outcome);
  result.reason = static_cast<Reason>(result.verdict.reason);
  result.p = p->read();
  if (d) result.d = d->read();
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

}  // namespace sdcguard::stage

// SPDX-License-Identifier: MIT
// A device under test for the stage tests: the shipped kernels through the driver API, matrices in any layout, one call
// from fold to finish. Everything runs on one stream, so that a test looks at what each stage left in scratch.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/plan.h"
#include "sdcguard/record.h"
#include "tests/stage/reference.h"

namespace sdcguard::stage {

// Device memory, freed with the object. `bytes` is exact, so that an access past it ends the test.
class Buffer {
 public:
  explicit Buffer(uint64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  uint64_t address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  void write(const void* from, uint64_t bytes, uint64_t offset = 0);
  void read(void* to, uint64_t bytes, uint64_t offset = 0) const;
  void fill(unsigned char byte);

 private:
  CUdeviceptr address_ = 0;
  uint64_t bytes_;
};

template <typename T>
std::vector<T> read_array(uint64_t address, uint64_t count) {
  std::vector<T> values(count);
  if (cuMemcpyDtoH_v2(values.data(), address, count * sizeof(T)) != CUDA_SUCCESS) values.clear();
  return values;
}

// A matrix in device memory in the layout asked for. `pad`: elements added to the leading dimension; `shift`: elements
// before the first, to break alignment; `by_pointers`: the batch entries, in reverse order, by an array of addresses.
struct Layout {
  bool rows_contiguous = true;
  int64_t pad = 0;
  int64_t shift = 0;
  bool by_pointers = false;
};
template <typename V>
class DeviceMatrixOf {
 public:
  DeviceMatrixOf(const reference::MatrixOf<V>& values, DataType type, Layout layout = {});
  const MatrixView& view() const { return view_; }
  reference::MatrixOf<V> read() const;
  void write(const reference::MatrixOf<V>& values);

 private:
  uint64_t place_of(int64_t row, int64_t col, int64_t entry) const;  // element in the buffer

  int64_t rows_, cols_, batch_, entry_stride_;
  Layout layout_;
  MatrixView view_;
  std::unique_ptr<Buffer> buffer_;
  std::unique_ptr<Buffer> pointers_;
};
using DeviceMatrix = DeviceMatrixOf<float>;

template <typename V>
struct CallOf {
  reference::MatrixOf<V> a, b, p;  // p: what the library computed (upgraded: the accumulator's values)
  DataType type = DataType::kBF16;
  DataType type_b = DataType::kNone;  // kNone: as `type`
  Accumulator accumulator = Accumulator::kF32;
  OperandRounding rounding = OperandRounding::kNone;
  Layout layout_a, layout_b;
  Mode mode = Mode::kRepair;
  uint64_t seed = 1;
  TensorCore tensor_core = {16, 2};
  uint32_t sm_count = 2;
  // Finish
  bool delivers = false;  // an upgraded product with a D
  DataType type_d = DataType::kBF16;
  Layout layout_d;
  double alpha = 1.0, beta = 0.0;
  std::vector<double> alphas, betas;  // given: vectors on the device, one a column of P
  reference::MatrixOf<V> c;           // given when rows > 0
  reference::MatrixOf<V> bias;        // 1 x n3, given when rows > 0
  uint32_t epilogue = 0;
  bool c_apart = true;
  bool scalars_on_device = false;
  DataType scalar_type = DataType::kF32;
  std::vector<float> scale_a, scale_b, scale_c, scale_d;  // one value, or of a and b a vector
  AuxKind aux_kind = AuxKind::kNone;
  DataType type_aux = DataType::kBF16;
  bool wants_amax = false;
  // Checked as delivered: p is D of type_d.
  bool delivered = false;
  // What the shim keeps
  uint64_t site_history = 0, family_history = 0;
  bool records = false;
  // Test switches
  std::vector<Kernel> skipped;
  std::function<void(ProbeParams&)> change;
};

using Call = CallOf<float>;
using WideCall = CallOf<double>;

template <typename V>
struct ResultOf {
  ProbePlan plan;
  ProbeParams params;
  Verdict verdict;
  Outcome outcome;
  Reason reason;
  reference::MatrixOf<V> p;  // after repair
  reference::MatrixOf<V> d;
  reference::Matrix aux;            // kGeluInput
  std::vector<unsigned char> mask;  // kReluMask: rows of kMaskLd bits, 0xA5 before
  float amax = -1.0f;
  std::vector<uint32_t> listed;
  std::vector<float> cells;
  std::vector<CallRecord> calls;
  std::vector<FaultRecord> faults;
  std::shared_ptr<Buffer> scratch;  // still holds what the stages left
};

inline constexpr int64_t kMaskLd = 512;  // bits of a row of an AUX mask
using Result = ResultOf<float>;
using WideResult = ResultOf<double>;

// Starts the device on first use and loads the kernels; ends the test process with a message where that fails.
CUfunction function_of(const LaunchShape& shape);
uint64_t make_history();  // a zeroed SiteHistory that lives as long as the process

// Runs the call. `replace` runs in place of a kernel (must-fail builds).
template <typename V>
ResultOf<V> run(CallOf<V>& call,
                const std::function<bool(Kernel, const LaunchShape&, const ProbeParams&)>& replace = {});

}  // namespace sdcguard::stage

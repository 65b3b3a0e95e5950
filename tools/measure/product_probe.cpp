// SPDX-License-Identifier: MIT
#include "tools/measure/product_probe.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "kernels/look.h"

namespace sdcguard {
namespace {

constexpr double kAgreement = 1e-5;  // of our largest ratio with the verdict's: cells are kept in FP32

MatrixView view_of(uint64_t address, DataType type, int64_t row_stride, int64_t col_stride) {
  MatrixView view{};
  view.address = address;
  view.row_stride = row_stride;
  view.col_stride = col_stride;
  view.type = type;
  return view;
}

template <typename T>
std::vector<T> array_of(const Device& device, uint64_t address, uint64_t count) {
  std::vector<T> values(count);
  device.read(values.data(), address, count * sizeof(T));
  return values;
}

}  // namespace

ProductProbe::ProductProbe(Device& device, const ProductType& type, const ProductShape& shape)
    : device_(device), type_(type), shape_(shape) {
  const auto bytes = [&](int64_t rows, int64_t cols) {
    return static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols) * element_bytes(type.operands);
  };
  a_ = std::make_unique<DeviceMemory>(device, bytes(shape.n1, shape.n2));
  b_ = std::make_unique<DeviceMemory>(device, bytes(shape.n2, shape.n3));
  ProbeRequest request{};
  request.n1 = shape.n1;
  request.n2 = shape.n2;
  request.n3 = shape.n3;
  request.batch = 1;
  request.a = view_of(a_->address(), type.operands, shape.n2, 1);
  request.b = view_of(b_->address(), type.operands, 1, shape.n2);
  request.finish.alpha = 1;
  request.c_apart = true;
  request.mode = Mode::kDetect;
  request.rounding = type.rounding;
  request.accumulator = type.accumulator;
  request.tensor_core = tensor_core_of(static_cast<uint32_t>(device.identity().compute_major), type.operands);
  request.sm_count = static_cast<uint32_t>(std::max(1, device.identity().sm_count));
  plan_ = make_plan(request);
  if (!plan_.usable()) throw DeviceError(name() + ": unverified(" + name_of(plan_.reason) + ")");
  p_ = std::make_unique<DeviceMemory>(device, plan_.product_bytes);
  scratch_ = std::make_unique<DeviceMemory>(device, plan_.layout.bytes);
  cells_ = std::make_unique<DeviceMemory>(
      device, static_cast<uint64_t>(plan_.params.lines) * plan_.params.classes * (kDraws + 1) * sizeof(float));
  device.fill(scratch_->address(), 0, kZeroedScratchBytes);
  bind_scratch(plan_.params, plan_.layout, scratch_->address());
  plan_.params.cells = cells_->address();
  plan_.params.p.address = p_->address();
}

std::string ProductProbe::name() const {
  return std::string(type_.name) + " " + std::to_string(shape_.n3) + "x" + std::to_string(shape_.n1) + "x" +
         std::to_string(shape_.n2);
}

uint64_t ProductProbe::cells() const {
  const ProbeParams& p = plan_.params;
  return p.plan == Plan::kLine ? static_cast<uint64_t>(p.lines) * p.classes * kDraws : 0;
}

bool ProductProbe::compute(DataKind kind, uint64_t seed) {
  operands_ = draw_operands(kind, type_, shape_, seed);
  device_.write(a_->address(), operands_.a.data(), operands_.a.size());
  device_.write(b_->address(), operands_.b.data(), operands_.b.size());
  return compute_again();
}

bool ProductProbe::compute_again() {
  const bool supported =
      device_.multiply(type_, shape_, a_->address(), b_->address(), p_->address(), plan_.params.p.row_stride);
  device_.synchronize();
  return supported;
}

void ProductProbe::read(std::vector<unsigned char>* product) const {
  const uint64_t size = element_bytes(plan_.params.p.type);
  const auto lines = static_cast<uint64_t>(shape_.n1);
  const uint64_t row = static_cast<uint64_t>(shape_.n3) * size;
  const uint64_t stride = static_cast<uint64_t>(plan_.params.p.row_stride) * size;
  product->resize(lines * stride);
  device_.read(product->data(), p_->address(), product->size());
  for (uint64_t line = 1; line < lines && row != stride; ++line) {
    std::memmove(&(*product)[line * row], &(*product)[line * stride], row);
  }
  product->resize(lines * row);
}

void ProductProbe::probe(uint64_t seed, ProbedProduct* out) {
  plan_.params.seed = seed;
  device_.fill(cells_->address(), 0, cells_->bytes());  // lines that are set aside write none
  for (const Kernel kernel : {Kernel::kFold, Kernel::kOperand, Kernel::kProduct, Kernel::kRecompute, Kernel::kRepair}) {
    device_.launch(plan_, kernel);
  }
  const auto verdict = array_of<Verdict>(device_, plan_.params.verdict, 1)[0];
  out->ratios.clear();
  out->lines_dirty = array_of<uint32_t>(device_, plan_.params.listed, verdict.lines_dirty);
  out->entries_named = verdict.entries_named;
  out->worst = verdict.worst;
  if (verdict.outcome == static_cast<uint32_t>(Outcome::kUnverified)) {
    throw DeviceError(name() + ": unverified(" + name_of(static_cast<Reason>(verdict.reason)) + ")");
  }
  if (plan_.params.plan != Plan::kLine) return;
  if (type_.accumulator == Accumulator::kF64) {
    ratios_of<double>(verdict, &out->ratios);
  } else {
    ratios_of<float>(verdict, &out->ratios);
  }
  if (out->ratios.empty()) {
    throw DeviceError(name() + ": no cell shows any noise: exact products, or kernels that did not run");
  }
  const float largest = *std::max_element(out->ratios.begin(), out->ratios.end());
  if (!(std::fabs(largest - verdict.worst) <= kAgreement * verdict.worst) && verdict.entries_named == 0) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "its check came out at %.9g and its cells at %.9g, with no wrong entry: the kernels are not to be "
                  "trusted here",
                  static_cast<double>(verdict.worst), static_cast<double>(largest));
    throw DeviceError(name() + ": " + text);
  }
}

// As the product kernel judges them (MATH.md "residual", "look").
template <typename T>
void ProductProbe::ratios_of(const Verdict& verdict, std::vector<float>* ratios) const {
  const ProbeParams& p = plan_.params;
  const auto lines = static_cast<uint64_t>(p.lines);
  const double unit = sizeof(T) == sizeof(double) ? 0x1p-53 : 0x1p-24;
  const auto cells = array_of<float>(device_, p.cells, lines * p.classes * (kDraws + 1));
  const auto dots = array_of<T>(device_, p.line_dots, lines * p.vectors);
  const auto medians = array_of<float>(device_, p.line_median, lines);
  for (uint64_t line = 0; line < lines; ++line) {
    const float limit = look_limit(p.look_scale, verdict.sigma, medians[line]);
    const double scale = static_cast<double>(limit) / static_cast<double>(p.look_scale);
    for (uint32_t b = 0; b < p.classes; ++b) {
      const float* const cell = &cells[(line * p.classes + b) * (kDraws + 1)];
      const auto s = static_cast<double>(cell[kDraws]);
      const double width = static_cast<double>((p.n3 - b + p.classes - 1) / p.classes);
      for (uint32_t d = 0; d < kDraws; ++d) {
        const auto r = static_cast<double>(cell[d]);
        if (r == 0) continue;  // exact: it says nothing of the others' noise
        const double own = static_cast<double>(p.verifier_scale) * unit *
                           static_cast<double>(dots[line * p.vectors + d * p.classes + b]);
        ratios->push_back(
            static_cast<float>(std::fabs(r) / (scale * std::sqrt(s * s + own * own + width * p.cell_tiny))));
      }
    }
  }
}

}  // namespace sdcguard

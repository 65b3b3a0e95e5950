// SPDX-License-Identifier: MIT
#include "tests/stage/engine_product.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/hostcuda/gemm/faults.h"

namespace sdcguard::stage {
namespace {

namespace gemm = hostcuda::gemm;

const std::vector<const char*> kEverywhere = {"h100", "a100", "ada", "b200", "rounded16", "sequential", "h100/split4"};
const std::vector<const char*> kWithVolta = {"h100", "a100",      "ada",        "v100",
                                             "b200", "rounded16", "sequential", "v100/split3"};
const std::vector<const char*> kOneOrder = {"h100"};
const std::vector<const char*> kWithFp8 = {"h100", "ada", "b200", "h100/split2"};

// Raw elements as the engine reads them.
template <typename V>
std::vector<unsigned char> raw_of(const reference::MatrixOf<V>& m, DataType type) {
  std::vector<unsigned char> bytes(m.values.size() * element_bytes(type));
  for (size_t i = 0; i < m.values.size(); ++i) {
    const auto put = [&](auto raw) { std::memcpy(&bytes[i * sizeof raw], &raw, sizeof raw); };
    const V v = m.values[i];
    switch (type) {
      case DataType::kF64:
        put(static_cast<double>(v));
        break;
      case DataType::kF32:
        put(static_cast<float>(v));
        break;
      case DataType::kI8:
        put(static_cast<int8_t>(v));
        break;
      case DataType::kE4M3:
      case DataType::kE5M2:
        put(reference::bits8(type, static_cast<float>(v)));
        break;
      default:
        put(reference::bits16(type, static_cast<float>(v)));
    }
  }
  return bytes;
}

struct Faults {
  std::string plan;
  uint64_t number;
  std::vector<std::string>* injected;
};

class Lines : public gemm::FaultLog {
 public:
  explicit Lines(std::vector<std::string>* lines) : lines_(lines) {}
  void write(const std::string& line) override { lines_->push_back(line); }

 private:
  std::vector<std::string>* lines_;
};

// P = A B of row-major matrices: the engine's column-major product of the transposes, B first.
template <typename V, typename Sum>
reference::MatrixOf<V> product_of(const Family& family, const std::string& name, const reference::MatrixOf<V>& a,
                                  const reference::MatrixOf<V>& b, const Faults* faults = nullptr) {
  gemm::Order order;
  std::string error;
  if (!gemm::parse_order(name, &order, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::exit(2);
  }
  const auto raw_a = raw_of(a, family.a);
  const auto raw_b = raw_of(b, family.b);
  std::vector<Sum> sums(static_cast<size_t>(a.rows * b.cols));
  gemm::Product product{};
  product.m = b.cols;
  product.n = a.rows;
  product.k = a.cols;
  product.batch = 1;
  product.a = gemm::Operand{raw_b.data(), nullptr, b.cols, 0, family.engine_a, false};
  product.b = gemm::Operand{raw_a.data(), nullptr, a.cols, 0, family.engine_b, false};
  product.compute = family.compute;
  product.out = sums.data();
  product.out_ld = b.cols;
  product.out_stride = b.cols * a.rows;
  gemm::compute_product(order, 1, product);
  if (faults != nullptr) {
    gemm::FaultPlan plan;
    if (!gemm::parse_fault_plan(faults->plan, "faults", &plan, &error)) {
      std::fprintf(stderr, "%s\n", error.c_str());
      std::exit(2);
    }
    product.index = faults->number;
    Lines lines(faults->injected);
    std::vector<gemm::Skipped> skipped;
    gemm::inject_faults(plan, order, product, &lines, &skipped);
  }
  reference::MatrixOf<V> p(a.rows, b.cols);
  for (size_t i = 0; i < sums.size(); ++i) p.values[i] = static_cast<V>(sums[i]);
  return p;
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"bf16", DataType::kBF16, DataType::kBF16, Accumulator::kF32, OperandRounding::kNone, gemm::Type::kBf16,
       gemm::Type::kBf16, gemm::Compute::kFp32, kEverywhere},
      {"f16", DataType::kF16, DataType::kF16, Accumulator::kF32, OperandRounding::kNone, gemm::Type::kFp16,
       gemm::Type::kFp16, gemm::Compute::kFp32, kWithVolta},
      {"f32", DataType::kF32, DataType::kF32, Accumulator::kF32, OperandRounding::kNone, gemm::Type::kFp32,
       gemm::Type::kFp32, gemm::Compute::kFp32, kOneOrder},
      {"tf32", DataType::kF32, DataType::kF32, Accumulator::kF32, OperandRounding::kTf32, gemm::Type::kFp32,
       gemm::Type::kFp32, gemm::Compute::kTf32, kEverywhere},
      {"e4m3", DataType::kE4M3, DataType::kE4M3, Accumulator::kF32, OperandRounding::kNone, gemm::Type::kE4m3,
       gemm::Type::kE4m3, gemm::Compute::kFp32, kWithFp8},
      {"e4m3 fast", DataType::kE4M3, DataType::kE4M3, Accumulator::kF32Fast, OperandRounding::kNone, gemm::Type::kE4m3,
       gemm::Type::kE4m3, gemm::Compute::kFp8Fast, kWithFp8},
      {"e4m3 e5m2 fast", DataType::kE4M3, DataType::kE5M2, Accumulator::kF32Fast, OperandRounding::kNone,
       gemm::Type::kE5m2, gemm::Type::kE4m3, gemm::Compute::kFp8Fast, kWithFp8},
      {"e5m2 e4m3", DataType::kE5M2, DataType::kE4M3, Accumulator::kF32, OperandRounding::kNone, gemm::Type::kE4m3,
       gemm::Type::kE5m2, gemm::Compute::kFp32, kWithFp8},
      {"f64", DataType::kF64, DataType::kF64, Accumulator::kF64, OperandRounding::kNone, gemm::Type::kFp64,
       gemm::Type::kFp64, gemm::Compute::kFp64, kOneOrder},
      {"i8", DataType::kI8, DataType::kI8, Accumulator::kI32, OperandRounding::kNone, gemm::Type::kInt8,
       gemm::Type::kInt8, gemm::Compute::kInt32, kOneOrder},
      {"f16 in f16", DataType::kF16, DataType::kF16, Accumulator::kF16, OperandRounding::kNone, gemm::Type::kFp16,
       gemm::Type::kFp16, gemm::Compute::kFp16, kWithVolta},
  };
  return all;
}

std::vector<const Family*> float_families() {
  std::vector<const Family*> all;
  for (const Family& family : families()) {
    const bool floats = family.accumulator == Accumulator::kF32 || family.accumulator == Accumulator::kF32Fast;
    if (floats) all.push_back(&family);
  }
  return all;
}

const Family& family_named(const std::string& name) {
  for (const Family& family : families()) {
    if (name == family.name) return family;
  }
  std::fprintf(stderr, "no type of product is named %s\n", name.c_str());
  std::exit(2);
}

std::vector<reference::Kind> all_kinds() {
  std::vector<reference::Kind> kinds(std::begin(reference::kKinds), std::end(reference::kKinds));
  kinds.insert(kinds.end(), std::begin(reference::kStructuredKinds), std::end(reference::kStructuredKinds));
  return kinds;
}

void fill_operands(reference::Kind kind, const Family& family, uint64_t seed, reference::Matrix& a,
                   reference::Matrix& b) {
  if (family.a == family.b) return fill(kind, family.a, seed, a, b);
  reference::Matrix other_a = a, other_b = b;
  fill(kind, family.a, seed, a, other_b);
  fill(kind, family.b, seed, other_a, b);
}

ProbeRequest request_of(const Family& family, const std::string& order, int64_t n1, int64_t n2, int64_t n3) {
  ProbeRequest request{};
  request.n1 = n1;
  request.n2 = n2;
  request.n3 = n3;
  request.batch = 1;
  request.a = {.address = 256, .row_stride = n2, .col_stride = 1, .batch_stride = 0, .type = family.a};
  request.b = {.address = 256, .row_stride = n3, .col_stride = 1, .batch_stride = 0, .type = family.b};
  request.c_apart = true;
  request.mode = Mode::kRepair;
  request.rounding = family.rounding;
  request.accumulator = family.accumulator;
  request.tensor_core = tensor_core_of(compute_major_of(order), family.a);
  request.sm_count = 2;
  return request;
}

uint32_t compute_major_of(const std::string& order) {
  return order.starts_with("v100")                               ? 7
         : order.starts_with("a100") || order.starts_with("ada") ? 8
         : order.starts_with("b200")                             ? 10
                                                                 : 9;
}

reference::Matrix engine_product(const Family& family, const std::string& order, const reference::Matrix& a,
                                 const reference::Matrix& b) {
  return product_of<float, float>(family, order, a, b);
}

reference::WideMatrix engine_product(const Family& family, const std::string& order, const reference::WideMatrix& a,
                                     const reference::WideMatrix& b) {
  return family.a == DataType::kF64 ? product_of<double, double>(family, order, a, b)
                                    : product_of<double, int32_t>(family, order, a, b);
}

reference::Matrix faulty_product(const Family& family, const std::string& order, const reference::Matrix& a,
                                 const reference::Matrix& b, const std::string& faults, uint64_t number,
                                 std::vector<std::string>* injected) {
  const Faults planned = {faults, number, injected};
  return product_of<float, float>(family, order, a, b, &planned);
}

}  // namespace sdcguard::stage

// SPDX-License-Identifier: MIT
// Products as the devices compute them: the host device's product engine called straight, every type and order of
// accumulation that it knows.
#pragma once

#include <string>
#include <vector>

#include "kernels/plan.h"
#include "tests/stage/reference.h"
#include "tools/hostcuda/gemm/engine.h"

namespace sdcguard::stage {

// A type of product and where it runs.
struct Family {
  const char* name;
  DataType a, b;
  Accumulator accumulator;
  OperandRounding rounding;
  hostcuda::gemm::Type engine_a, engine_b;
  hostcuda::gemm::Compute compute;
  std::vector<const char*> orders;
};
const std::vector<Family>& families();
// Those whose products are FP32 sums of floats.
std::vector<const Family*> float_families();
// Ends the program where there is none of that name.
const Family& family_named(const std::string& name);
// The plain kinds of data, then the structured ones.
std::vector<reference::Kind> all_kinds();

// Operands of a kind, each in its own type.
void fill_operands(reference::Kind kind, const Family& family, uint64_t seed, reference::Matrix& a,
                   reference::Matrix& b);

// The request for a dense product of n1 x n2 by n2 x n3 in scratch, with nothing to deliver, on the order's device.
ProbeRequest request_of(const Family& family, const std::string& order, int64_t n1, int64_t n2, int64_t n3);

// Of the device that an order stands for.
uint32_t compute_major_of(const std::string& order);

// P = A B in the order of that name, on one thread. Ends the program where there is no such order.
reference::Matrix engine_product(const Family& family, const std::string& order, const reference::Matrix& a,
                                 const reference::Matrix& b);
// The same with the faults of a plan (tools/hostcuda/gemm/faults.h), which draws them by `number`. injected: lines of
// the injection log, whose row is the column of P and whose col is its row.
reference::Matrix faulty_product(const Family& family, const std::string& order, const reference::Matrix& a,
                                 const reference::Matrix& b, const std::string& faults, uint64_t number,
                                 std::vector<std::string>* injected);
// FP64, and INT8 to INT32.
reference::WideMatrix engine_product(const Family& family, const std::string& order, const reference::WideMatrix& a,
                                     const reference::WideMatrix& b);

}  // namespace sdcguard::stage

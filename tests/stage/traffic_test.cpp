// SPDX-License-Identifier: MIT
// Bytes that the kernels of a clean call read, as the host device counts them: the one stage test that a GPU cannot
// run.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/stage/device.h"
#include "tools/hostcuda/simt/executor.h"

namespace sdcguard::stage {
namespace {

using reference::Kind;
using reference::Matrix;
using reference::Order;

struct Shape {
  int64_t n1, n2, n3;
};
const Layout kLayouts[] = {{true, 0, 0}, {false, 0, 0}, {true, 3, 1}, {false, 5, 1}};

// Bytes of one allocation that the kernels of a clean call read.
uint64_t bytes_read(uint64_t address) {
  std::vector<hostcuda::Traffic> traffic(4096);
  traffic.resize(std::min<size_t>(4096, hostcuda_traffic(nullptr, traffic.data(), traffic.size())));
  uint64_t bytes = 0;
  for (const hostcuda::Traffic& t : traffic) {
    if (address >= t.base && address < t.base + t.bytes) bytes += t.bytes_read;
  }
  return bytes;
}

TEST(Traffic, EachOperandIsReadOnce) {
  // 16 vectors, and 64 (c = 32 for eight rows): more vectors must not read A again.
  for (const Shape& shape : {Shape{128, 256, 256}, Shape{8, 256, 4096}}) {
    for (const Layout& layout : kLayouts) {
      Call call;
      call.a = Matrix(shape.n1, shape.n2);
      call.b = Matrix(shape.n2, shape.n3);
      fill(Kind::kGauss, call.type, 267, call.a, call.b);
      call.p = multiply(Order::kSequential, call.a, call.b);
      call.layout_a = call.layout_b = layout;
      call.delivers = true;
      uint64_t a = 0;
      uint64_t b = 0;
      uint64_t p = 0;
      call.change = [&](ProbeParams& params) {
        params.audit_lines = 0;
        params.cells = 0;
        a = params.a.address;
        b = params.b.address;
        p = params.p.address;
        hostcuda_traffic_reset();
      };
      // Counted before the buffers go.
      uint64_t read_a = 0;
      uint64_t read_b = 0;
      uint64_t read_p = 0;
      const auto count = [&](Kernel kernel, const LaunchShape&, const ProbeParams&) {
        if (kernel != Kernel::kRepair) return false;
        cuCtxSynchronize();
        read_a = bytes_read(a);
        read_b = bytes_read(b);
        read_p = bytes_read(p);
        return false;
      };
      EXPECT_EQ(run(call, count).outcome, Outcome::kClean);
      EXPECT_EQ(read_a, static_cast<uint64_t>(shape.n1 * shape.n2) * 2);
      EXPECT_EQ(read_b, static_cast<uint64_t>(shape.n2 * shape.n3) * 2);
      EXPECT_EQ(read_p, static_cast<uint64_t>(shape.n1 * shape.n3) * 4);
    }
  }
}

}  // namespace
}  // namespace sdcguard::stage

// SPDX-License-Identifier: MIT
// The device that commands measure on: one GPU with its own libraries, or the host device that LD_LIBRARY_PATH selects.
// libcuda and cuBLAS are found when it is opened, so that the command line starts without them. Everything runs in
// order on the default stream of the device's primary context.
//
// What the driver or cuBLAS refuses is thrown as a DeviceError, one line that says which call, of what, and why. A
// Device and its buffers belong to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/measure/product.h"

namespace sdcguard {

struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct DeviceIdentity {
  std::string name;  // of the driver: "NVIDIA H200"; the host device says there that it is simulated
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  int driver = 0;    // cuDriverGetVersion: 13000 is 13.0
  int cublas = 0;    // cublasGetVersion: 130100 is 13.1.0
  int compute_major = 0, compute_minor = 0;
  int sm_count = 0;  // of a MIG instance: its own
  uint64_t memory_bytes = 0;
  bool simulated = false;
  std::string order;  // simulated: HOSTCUDA_ORDER; else "library": cuBLAS chooses
};

class Device {
 public:
  // libraries: the folder to take libcuda and cuBLAS from; empty: where the loader looks. Throws where they are not
  // there, where there is no such device, or where our kernels do not load on it.
  explicit Device(int ordinal, const std::string& libraries = "");
  ~Device();
  // How many devices these libraries see.
  static int count(const std::string& libraries = "");
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceIdentity& identity() const { return identity_; }

  // Enqueued: P from A and B, device addresses of dense matrices; p_stride elements from row to row of P. False: the
  // library does not support such a product.
  bool multiply(const ProductType& type, const ProductShape& shape, uint64_t a, uint64_t b, uint64_t p,
                int64_t p_stride);

  // Enqueued: one kernel of a plan, if the plan launches it.
  void launch(const ProbePlan& plan, Kernel kernel);

  // Device memory of the context: 256-byte aligned. Copies block.
  uint64_t allocate(uint64_t bytes);
  void free(uint64_t address) noexcept;
  uint64_t free_bytes() const;  // of the device's memory
  void fill(uint64_t address, unsigned char byte, uint64_t bytes);
  void write(uint64_t to, const void* from, uint64_t bytes);
  void read(void* to, uint64_t from, uint64_t bytes) const;  // waits for what was enqueued
  void synchronize() const;

 private:
  struct Libraries;
  void load_kernels();

  std::unique_ptr<Libraries> libraries_;
  DeviceIdentity identity_;
};

// Device memory, freed with the object, which the device must outlive.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, uint64_t bytes) : device_(device), address_(device.allocate(bytes)), bytes_(bytes) {}
  ~DeviceMemory() { device_.free(address_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  uint64_t address() const { return address_; }
  uint64_t bytes() const { return bytes_; }

 private:
  Device& device_;
  const uint64_t address_, bytes_;
};

}  // namespace sdcguard

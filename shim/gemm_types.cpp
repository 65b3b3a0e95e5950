// SPDX-License-Identifier: MIT
// stage intercept: the numeric types of a call; runs on the calling thread.
#include "shim/gemm_types.h"

#include <cstring>

#include "shim/cublas_abi.h"

namespace sdcguard {

namespace {

using namespace abi;

float float_of_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t fraction = half & 0x3ffu;
  uint32_t bits;
  if (exponent == 0x1f) {
    bits = sign | 0x7f800000u | (fraction << 13);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (fraction << 13);
  } else if (fraction == 0) {
    bits = sign;
  } else {
    exponent = 113;
    for (; (fraction & 0x400u) == 0; --exponent) fraction <<= 1;
    bits = sign | (exponent << 23) | ((fraction & 0x3ffu) << 13);
  }
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// One scalar of host memory. Every value of these types is a double.
double scalar_at(const void* address, DataType type) {
  switch (type) {
    case DataType::kF64: {
      double value;
      memcpy(&value, address, sizeof(value));
      return value;
    }
    case DataType::kF16: {
      uint16_t value;
      memcpy(&value, address, sizeof(value));
      return float_of_half(value);
    }
    case DataType::kI32: {
      int32_t value;
      memcpy(&value, address, sizeof(value));
      return value;
    }
    default: {
      float value;
      memcpy(&value, address, sizeof(value));
      return value;
    }
  }
}

}  // namespace

DataType data_type(int cuda_type) noexcept {
  switch (cuda_type) {
    case kR32F:
      return DataType::kF32;
    case kR64F:
      return DataType::kF64;
    case kR16BF:
      return DataType::kBF16;
    case kR16F:
      return DataType::kF16;
    case kR8I:
      return DataType::kI8;
    case kR32I:
      return DataType::kI32;
    case kR8FE4M3:
      return DataType::kE4M3;
    case kR8FE5M2:
      return DataType::kE5M2;
    default:
      return DataType::kOther;
  }
}

int scale_type_of(int compute_type) noexcept {
  switch (compute_type) {
    case kCompute16F:
    case kCompute16FPedantic:
      return kR16F;
    case kCompute64F:
    case kCompute64FPedantic:
    case kCompute64FEmulated:
      return kR64F;
    case kCompute32I:
    case kCompute32IPedantic:
      return kR32I;
    default:
      return kR32F;
  }
}

bool is_fp8(DataType type) noexcept {
  return type == DataType::kE4M3 || type == DataType::kE5M2;
}

Reason judge_compute(GemmCall& call) noexcept {
  const auto with = [&call](int scale_type) {
    return call.scale_type == scale_type ? Reason::kNone : Reason::kUnsupportedType;
  };
  switch (call.compute_type) {
    case kCompute32FFast16F:
      call.rounding = InputRounding::kF16;
      return with(kR32F);
    case kCompute32FFast16BF:
      call.rounding = InputRounding::kBF16;
      return with(kR32F);
    case kCompute32FFastTf32:
      call.rounding = InputRounding::kTf32;
      return with(kR32F);
    case kCompute32F:
    case kCompute32FPedantic:
      return with(kR32F);
    case kCompute16F:
    case kCompute16FPedantic:
      return with(kR16F);
    case kCompute64F:
    case kCompute64FPedantic:
      return with(kR64F);
    case kCompute32I:
    case kCompute32IPedantic:
      return call.scale_type == kR32F ? Reason::kNone : with(kR32I);
    default:
      return Reason::kUnsupportedCompute;
  }
}

Reason judge_types(const GemmCall& call) noexcept {
  const DataType a = call.type_a;
  const DataType b = call.type_b;
  const DataType d = call.type_d;
  const bool known_c = !call.reads_c || call.type_c == d;
  const bool in_fp32 = call.compute_type == kCompute32F || call.compute_type == kCompute32FPedantic;
  bool known = false;
  switch (a) {
    case DataType::kF32:
      known =
          b == a && d == a && known_c && call.scale_type == kR32F && (in_fp32 || call.rounding != InputRounding::kNone);
      break;
    case DataType::kBF16:
      known = b == a && (d == a || d == DataType::kF32) && known_c && in_fp32;
      break;
    case DataType::kF16:
      known = b == a && known_c &&
              (in_fp32 ? d == a || d == DataType::kF32
                       : d == a && (call.compute_type == kCompute16F || call.compute_type == kCompute16FPedantic));
      break;
    case DataType::kE4M3:
    case DataType::kE5M2: {
      const bool known_fp8_c = !call.reads_c || call.type_c == DataType::kBF16 || call.type_c == DataType::kF16;
      known =
          is_fp8(b) && !(a == DataType::kE5M2 && b == DataType::kE5M2) && in_fp32 &&
          (is_fp8(d) ? known_fp8_c : (d == DataType::kBF16 || d == DataType::kF16 || d == DataType::kF32) && known_c);
      break;
    }
    case DataType::kF64:
      known = b == a && d == a && known_c && call.scale_type == kR64F;
      break;
    case DataType::kI8:
      known = b == a && known_c && (call.compute_type == kCompute32I || call.compute_type == kCompute32IPedantic) &&
              (call.scale_type == kR32I ? d == DataType::kI32 : d == DataType::kI8);
      break;
    default:
      break;
  }
  return known ? Reason::kNone : Reason::kUnsupportedType;
}

void read_scalars(GemmCall& call, const void* alpha_host, const void* beta_host) noexcept {
  call.scalar_type = data_type(call.scale_type);
  if (alpha_host != nullptr) {
    call.alpha = scalar_at(alpha_host, call.scalar_type);
  } else {
    call.scalars_on_device = true;
    call.alpha_address = reinterpret_cast<uintptr_t>(call.arguments.alpha);
  }
  if (beta_host != nullptr) {
    call.beta = scalar_at(beta_host, call.scalar_type);
    call.reads_c = !(call.beta == 0.0);
  } else {
    call.beta_address = reinterpret_cast<uintptr_t>(call.arguments.beta);
    call.reads_c = true;
  }
}

}  // namespace sdcguard

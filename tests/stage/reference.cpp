// SPDX-License-Identifier: MIT
// Plain references; see reference.h.
#include "tests/stage/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/signs.h"

namespace sdcguard::reference {

uint64_t Random::next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
double Random::uniform() {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}
double Random::gauss() {
  return std::sqrt(-2.0 * std::log(1.0 - uniform())) * std::cos(2.0 * M_PI * uniform());
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kGauss:
      return "gauss";
    case Kind::kConstant:
      return "constant";
    case Kind::kPositive:
      return "positive";
    case Kind::kOutlierChannels:
      return "outlier_channels";
    case Kind::kCancellingRows:
      return "cancelling_rows";
    case Kind::kZeroRows:
      return "zero_rows";
    case Kind::kPadded:
      return "padded";
    case Kind::kTiny:
      return "tiny";
    case Kind::kHuge:
      return "huge";
    case Kind::kIntegers:
      return "integers";
    case Kind::kIdenticalColumns:
      return "identical_columns";
    case Kind::kOneBin:
      return "one_bin";
    case Kind::kOneHot:
      return "one_hot";
    case Kind::kCausalMask:
      return "causal_mask";
    case Kind::kSoftmax:
      return "softmax";
    case Kind::kSparse:
      return "sparse";
    case Kind::kBias:
      return "bias";
    case Kind::kOutlierRows:
      return "outlier_rows";
    case Kind::kMixedScales:
      return "mixed_scales";
    case Kind::kSubnormal:
      return "subnormal";
  }
  return "?";
}

namespace {

// A row of weights: at least 0, sum 1, the first `keys` of them; `sharpness` of the exponents.
void softmax_row(Random& random, DataType type, Matrix& a, int64_t row, int64_t entry, int64_t keys, double sharpness) {
  std::vector<double> weights;
  double sum = 0;
  for (int64_t k = 0; k < keys; ++k) {
    weights.push_back(std::exp(sharpness * random.gauss()));
    sum += weights.back();
  }
  for (int64_t k = 0; k < a.cols; ++k) {
    a.at(row, k, entry) = k < keys ? round_to(type, weights[static_cast<size_t>(k)] / sum) : 0.0f;
  }
}

void scale_row(DataType type, Matrix& m, int64_t row, int64_t entry, double factor) {
  for (int64_t k = 0; k < m.cols; ++k) {
    m.at(row, k, entry) = round_to(type, factor * static_cast<double>(m.at(row, k, entry)));
  }
}

void scale_column(DataType type, Matrix& m, int64_t column, int64_t entry, double factor) {
  for (int64_t k = 0; k < m.rows; ++k) {
    m.at(k, column, entry) = round_to(type, factor * static_cast<double>(m.at(k, column, entry)));
  }
}

// FP16 results end at 65,504: outliers of rows and columns meet in one entry.
double outlier_factor(DataType type) {
  return type == DataType::kF16 ? 12 : 60;
}
int largest_exponent(DataType type, bool rows) {
  const int most = rows ? 8 : 4;
  return type == DataType::kF16 ? most / 2 : most;
}

// A power of two from 2^-most to 2^most.
double power_up_to(Random& random, int most) {
  return std::ldexp(1.0, static_cast<int>(random.below(2 * most + 1)) - most);
}

// What kinds beyond the plain ones make of Gaussian operands, one batch entry of A.
void shape_rows(Kind kind, DataType type, Random& random, Matrix& a, int64_t entry) {
  std::vector<double> means;
  for (int64_t k = 0; k < a.cols && kind == Kind::kBias; ++k) means.push_back(2 * random.gauss());
  for (int64_t i = 0; i < a.rows; ++i) {
    switch (kind) {
      case Kind::kOneHot: {
        const int64_t hot = random.below(a.cols);
        for (int64_t k = 0; k < a.cols; ++k) a.at(i, k, entry) = k == hot ? 1.0f : 0.0f;
        break;
      }
      case Kind::kCausalMask:
        softmax_row(random, type, a, i, entry, 1 + i * (a.cols - 1) / std::max<int64_t>(1, a.rows - 1), 1.0);
        break;
      case Kind::kSoftmax:
        softmax_row(random, type, a, i, entry, a.cols, 2.0);
        break;
      case Kind::kSparse:
        for (int64_t k = 0; k < a.cols; ++k) {
          a.at(i, k, entry) = round_to(type, std::max(0.0, static_cast<double>(a.at(i, k, entry)) - 1.04));
        }
        break;
      case Kind::kBias:
        for (int64_t k = 0; k < a.cols; ++k) {
          a.at(i, k, entry) = round_to(type, static_cast<double>(a.at(i, k, entry)) + means[static_cast<size_t>(k)]);
        }
        break;
      case Kind::kOutlierRows:
        if (i % 41 == 3) scale_row(type, a, i, entry, outlier_factor(type));
        break;
      case Kind::kMixedScales:
        scale_row(type, a, i, entry, power_up_to(random, largest_exponent(type, true)));
        break;
      default:
        break;
    }
  }
}

void shape_columns(Kind kind, DataType type, Random& random, Matrix& b, int64_t entry) {
  for (int64_t j = 0; j < b.cols; ++j) {
    if (kind == Kind::kIdenticalColumns && j != 0) {
      for (int64_t k = 0; k < b.rows; ++k) b.at(k, j, entry) = b.at(k, 0, entry);
    }
    if (kind == Kind::kOutlierRows && j % 53 == 7) scale_column(type, b, j, entry, outlier_factor(type));
    if (kind == Kind::kMixedScales) {
      scale_column(type, b, j, entry, power_up_to(random, largest_exponent(type, false)));
    }
  }
}

}  // namespace

float round_to(DataType type, double v) {
  if (type == DataType::kI8)
    return std::isnan(v) ? 0.0f : static_cast<float>(std::nearbyint(std::clamp(v, -128.0, 127.0)));
  if (type == DataType::kE4M3 || type == DataType::kE5M2) {
    if (std::isnan(v)) return static_cast<float>(v);
    const bool e4m3 = type == DataType::kE4M3;
    const double most = e4m3 ? 448.0 : 57344.0;
    if (std::fabs(v) >= most) return static_cast<float>(std::copysign(most, v));
    if (v == 0.0) return static_cast<float>(v);
    const double step = std::ldexp(1.0, std::max(std::ilogb(v), e4m3 ? -6 : -14) - (e4m3 ? 3 : 2));
    return static_cast<float>(std::copysign(std::min(std::nearbyint(std::fabs(v) / step) * step, most), v));
  }
  if (type == DataType::kF32 || v == 0.0 || !std::isfinite(v)) return static_cast<float>(v);
  int exponent;
  std::frexp(v, &exponent);  // |v| in [2^(e-1), 2^e)
  const int bits = type == DataType::kBF16 ? 8 : 11;
  const int lowest = type == DataType::kBF16 ? -125 : -13;  // exponent of the smallest normal, in frexp's counting
  const double ulp = std::ldexp(1.0, std::max(exponent, lowest) - bits);
  const double rounded = std::nearbyint(v / ulp) * ulp;
  const double largest = type == DataType::kBF16 ? 0x1.fep127 : 65504.0;
  if (std::fabs(rounded) > largest) return static_cast<float>(std::copysign(INFINITY, v));
  return static_cast<float>(rounded);
}

uint16_t bits16(DataType type, float v) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  if (type == DataType::kBF16) return static_cast<uint16_t>(u >> 16);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  if (std::isnan(v)) return static_cast<uint16_t>(sign | 0x7E00u);
  if (std::isinf(v)) return static_cast<uint16_t>(sign | 0x7C00u);
  const double m = std::fabs(static_cast<double>(v));
  if (m < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<uint16_t>(m * 0x1p24));
  const int exponent = std::ilogb(m);
  return static_cast<uint16_t>(sign | (exponent + 15) << 10 | (static_cast<int>(std::ldexp(m, 10 - exponent)) - 1024));
}

float from_bits16(DataType type, uint16_t bits) {
  if (type == DataType::kBF16) {
    const uint32_t u = static_cast<uint32_t>(bits) << 16;
    float v;
    std::memcpy(&v, &u, 4);
    return v;
  }
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double m;
  if (exponent == 31) {
    m = mantissa != 0 ? NAN : INFINITY;
  } else if (exponent == 0) {
    m = mantissa * 0x1p-24;
  } else {
    m = std::ldexp(1024.0 + mantissa, exponent - 25);
  }
  return static_cast<float>((bits & 0x8000u) != 0 ? -m : m);
}

float from_bits8(DataType type, uint8_t bits) {
  const int fraction = type == DataType::kE4M3 ? 3 : 2;
  const int bias = type == DataType::kE4M3 ? 7 : 15;
  const int exponent = (bits & 0x7F) >> fraction;
  const int mantissa = bits & ((1 << fraction) - 1);
  double m = exponent == 0 ? std::ldexp(mantissa, 1 - bias - fraction)
                           : std::ldexp((1 << fraction) + mantissa, exponent - bias - fraction);
  if (type == DataType::kE4M3 && (bits & 0x7F) == 0x7F) m = NAN;
  if (type == DataType::kE5M2 && exponent == 31) m = mantissa != 0 ? NAN : INFINITY;
  return static_cast<float>((bits & 0x80) != 0 ? -m : m);
}

uint8_t bits8(DataType type, float v) {
  const uint8_t sign = std::signbit(v) ? 0x80 : 0;
  if (std::isnan(v)) return sign | 0x7F;
  int low = 0;
  int high = type == DataType::kE4M3 ? 0x7E : 0x7C;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (from_bits8(type, static_cast<uint8_t>(middle)) < std::fabs(v)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return static_cast<uint8_t>(sign | low);
}

void fill(Kind kind, DataType type, uint64_t seed, Matrix& a, Matrix& b) {
  Random random(seed);
  const bool f16 = type == DataType::kF16 || type == DataType::kE4M3 || type == DataType::kE5M2;
  double scale_a = 1.0;
  double scale_b = 1.0;
  if (kind == Kind::kTiny) scale_a = scale_b = f16 ? 0x1p-4 : 0x1p-55;
  if (kind == Kind::kHuge) scale_a = scale_b = f16 ? 0x1p4 : 0x1p52;
  if (kind == Kind::kSubnormal) {
    scale_a = type == DataType::kI8                               ? 1.0
              : type == DataType::kE4M3                           ? 0x1p-8
              : type == DataType::kF16 || type == DataType::kE5M2 ? 0x1p-16
                                                                  : 0x1p-128;
  }
  const auto value = [&] {
    switch (kind) {
      case Kind::kConstant:
        return 0.7;
      case Kind::kPositive:
        return random.uniform();
      case Kind::kOneBin:
        return 1.0 + 0x1p-6 * random.uniform();
      case Kind::kIntegers:
        return static_cast<double>(random.below(7) - 3);
      default:
        return random.gauss();
    }
  };
  for (float& v : a.values) v = round_to(type, value() * scale_a);
  for (float& v : b.values) v = round_to(type, value() * scale_b);
  for (int64_t n = 0; n < a.batch; ++n) shape_rows(kind, type, random, a, n);
  for (int64_t n = 0; n < b.batch; ++n) shape_columns(kind, type, random, b, n);
  if (kind == Kind::kOutlierChannels) {
    for (int64_t k = 0; k < a.cols; k += 97) {
      for (int64_t n = 0; n < a.batch; ++n) {
        for (int64_t i = 0; i < a.rows; ++i) a.at(i, k, n) = round_to(type, 60.0 * static_cast<double>(a.at(i, k, n)));
      }
    }
  }
  if (kind == Kind::kCancellingRows) {
    // Every second row: the second half repeats the first with B's rows repeated and the sign changed.
    const int64_t half = a.cols / 2;
    for (int64_t n = 0; n < b.batch; ++n) {
      for (int64_t k = 0; k < half; ++k) {
        for (int64_t j = 0; j < b.cols; ++j) b.at(half + k, j, n) = b.at(k, j, n);
      }
    }
    for (int64_t n = 0; n < a.batch; ++n) {
      for (int64_t i = 0; i < a.rows; i += 2) {
        for (int64_t k = 0; k < half; ++k) a.at(i, half + k, n) = -a.at(i, k, n);
      }
    }
  }
  if (kind == Kind::kZeroRows) {
    for (int64_t n = 0; n < a.batch; ++n) {
      for (int64_t i = 0; i < a.rows; i += 3) {
        for (int64_t k = 0; k < a.cols; ++k) a.at(i, k, n) = 0.0f;
      }
    }
  }
  if (kind == Kind::kPadded) {
    for (int64_t n = 0; n < a.batch; ++n) {
      for (int64_t i = 0; i < a.rows; ++i) {
        for (int64_t k = 0; k < a.cols; ++k) {
          if (i >= a.rows / 2 || k >= a.cols / 2) a.at(i, k, n) = 0.0f;
        }
      }
    }
    for (int64_t n = 0; n < b.batch; ++n) {
      for (int64_t k = 0; k < b.rows; ++k) {
        for (int64_t j = b.cols / 2; j < b.cols; ++j) b.at(k, j, n) = 0.0f;
      }
    }
  }
}

namespace {

float flip_bit(float v, int bit) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  u ^= 1u << bit;
  std::memcpy(&v, &u, 4);
  return v;
}

// Truncates toward zero to a multiple of 2^e.
double truncate_at(double v, int e) {
  return std::ldexp(std::trunc(std::ldexp(v, -e)), e);
}

// Truncates toward zero to 24 significant bits.
float truncate_to_float(double v) {
  if (v == 0.0 || !std::isfinite(v)) return static_cast<float>(v);
  return static_cast<float>(truncate_at(v, std::max(std::ilogb(v) - 23, -149)));
}

}  // namespace

float dot_in_order(Order order, const float* a, const float* b, int64_t n, int64_t stride_b, int64_t flip_after,
                   int bit) {
  float c = 0.0f;
  if (order == Order::kHalf) {
    for (int64_t k = 0; k < n; ++k) {
      c = round_to(DataType::kF16,
                   static_cast<double>(c) + static_cast<double>(a[k]) * static_cast<double>(b[k * stride_b]));
      if (k == flip_after) c = flip_bit(c, bit);
    }
    return c;
  }
  if (order == Order::kSequential) {
    for (int64_t k = 0; k < n; ++k) {
      c = std::fma(a[k], b[k * stride_b], c);
      if (k == flip_after) c = flip_bit(c, bit);
    }
    return c;
  }
  const int64_t step = order == Order::kShort ? 32 : 16;
  for (int64_t first = 0; first < n; first += step) {
    const int64_t end = std::min(n, first + step);
    if (order == Order::kRounded16) {
      double sum = 0.0;
      for (int64_t k = first; k < end; ++k) sum += static_cast<double>(a[k]) * static_cast<double>(b[k * stride_b]);
      c += static_cast<float>(sum);
    } else {
      const auto counts = [](float x) { return x != 0.0f && std::isfinite(x); };
      int largest = -133;
      if (counts(c)) largest = std::max(largest, std::ilogb(c));
      for (int64_t k = first; k < end; ++k) {
        const float y = b[k * stride_b];
        if (counts(a[k]) && counts(y)) largest = std::max(largest, std::ilogb(a[k]) + std::ilogb(y));
      }
      const int unit = largest - (order == Order::kShort ? 13 : 25);
      double sum = truncate_at(static_cast<double>(c), unit);
      for (int64_t k = first; k < end; ++k) {
        sum += truncate_at(static_cast<double>(a[k]) * static_cast<double>(b[k * stride_b]), unit);
      }
      c = order == Order::kShort && sum != 0.0 && std::isfinite(sum)
              ? static_cast<float>(truncate_at(sum, std::ilogb(sum) - 13))
              : truncate_to_float(sum);
    }
    if (flip_after >= first && flip_after < end) c = flip_bit(c, bit);
  }
  return c;
}

Matrix multiply(Order order, const Matrix& a, const Matrix& b, const std::vector<AccumulatorFault>& faults) {
  Matrix p(a.rows, b.cols, a.batch);
  std::vector<float> column(static_cast<size_t>(b.rows));
  for (int64_t n = 0; n < a.batch; ++n) {
    for (int64_t j = 0; j < b.cols; ++j) {
      for (int64_t k = 0; k < b.rows; ++k) column[static_cast<size_t>(k)] = b.at(k, j, b.batch == 1 ? 0 : n);
      for (int64_t i = 0; i < a.rows; ++i) {
        p.at(i, j, n) = dot_in_order(order, &a.values[static_cast<size_t>((n * a.rows + i) * a.cols)], column.data(),
                                     a.cols, 1, -1, 0);
      }
      for (const AccumulatorFault& f : faults) {
        if (f.batch != n || f.col != j) continue;
        p.at(f.row, j, n) = dot_in_order(order, &a.values[static_cast<size_t>((n * a.rows + f.row) * a.cols)],
                                         column.data(), a.cols, 1, f.k, f.bit);
      }
    }
  }
  return p;
}

WideMatrix multiply_f64(const WideMatrix& a, const WideMatrix& b) {
  WideMatrix p(a.rows, b.cols, a.batch);
  for (int64_t n = 0; n < a.batch; ++n) {
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t k = 0; k < a.cols; ++k) {
        for (int64_t j = 0; j < b.cols; ++j) {
          p.at(i, j, n) = std::fma(a.at(i, k, n), b.at(k, j, b.batch == 1 ? 0 : n), p.at(i, j, n));
        }
      }
    }
  }
  return p;
}

WideMatrix multiply_i32(const WideMatrix& a, const WideMatrix& b) {
  WideMatrix p(a.rows, b.cols, a.batch);
  for (int64_t n = 0; n < a.batch; ++n) {
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t j = 0; j < b.cols; ++j) {
        int64_t sum = 0;
        for (int64_t k = 0; k < a.cols; ++k) {
          sum += static_cast<int64_t>(a.at(i, k, n)) * static_cast<int64_t>(b.at(k, j, b.batch == 1 ? 0 : n));
        }
        p.at(i, j, n) = static_cast<double>(static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(sum))));
      }
    }
  }
  return p;
}

Matrix truncated(const Matrix& m, int fraction_bits) {
  Matrix cut = m;
  for (float& v : cut.values) {
    uint32_t u;
    std::memcpy(&u, &v, 4);
    u &= ~((1u << (23 - fraction_bits)) - 1u);
    std::memcpy(&v, &u, 4);
  }
  return cut;
}

double exact_entry(const Matrix& a, const Matrix& b, int64_t row, int64_t col, int64_t batch, double* abs_sum,
                   double* square_sum) {
  double sum = 0.0;
  *abs_sum = 0.0;
  *square_sum = 0.0;
  for (int64_t k = 0; k < a.cols; ++k) {
    const double v =
        static_cast<double>(a.at(row, k, batch)) * static_cast<double>(b.at(k, col, b.batch == 1 ? 0 : batch));
    sum += v;
    *abs_sum += std::fabs(v);
    *square_sum += v * v;
  }
  return sum;
}

bool is_minus(uint64_t seed, uint32_t draw, int64_t n3, uint32_t classes, int64_t col) {
  const uint32_t b = static_cast<uint32_t>(col % classes);
  return sign_is_minus(sign_draw(seed, draw), b, static_cast<uint32_t>(col / classes), class_width(n3, classes, b));
}

std::vector<Noise> noise_of(const Matrix& a, const Matrix& b) {
  std::vector<Noise> all;
  for (int64_t n = 0; n < a.batch; ++n) {
    const int64_t nb = b.batch == 1 ? 0 : n;
    std::vector<double> mean(static_cast<size_t>(b.rows));
    std::vector<double> squares(static_cast<size_t>(b.rows));
    for (int64_t k = 0; k < b.rows; ++k) {
      double sum = 0.0;
      for (int64_t j = 0; j < b.cols; ++j) {
        const double v = static_cast<double>(b.at(k, j, nb));
        sum += v;
        squares[static_cast<size_t>(k)] += v * v;
      }
      mean[static_cast<size_t>(k)] = sum / static_cast<double>(b.cols);
    }
    for (int64_t i = 0; i < a.rows; ++i) {
      Noise noise{0.0, 0.0};
      int64_t steps = 0;
      double running = 0.0;
      double addends = 0.0;
      for (int64_t first = 0; first < a.cols; first += 16, ++steps) {
        for (int64_t k = first; k < std::min(a.cols, first + 16); ++k) {
          const double x = static_cast<double>(a.at(i, k, n));
          running += x * mean[static_cast<size_t>(k)];
          addends += x * x * squares[static_cast<size_t>(k)];
        }
        noise.mean_energy += running * running;
        noise.addend_energy += addends;
      }
      noise.mean_energy /= static_cast<double>(steps);
      noise.addend_energy /= static_cast<double>(steps);
      all.push_back(noise);
    }
  }
  return all;
}

std::vector<double> cells_of(const Matrix& a, const Matrix& b, const Matrix& p, uint64_t seed, uint32_t classes) {
  const std::vector<Noise> noise = noise_of(a, b);
  std::vector<double> cells;
  for (int64_t n = 0; n < a.batch; ++n) {
    const int64_t nb = b.batch == 1 ? 0 : n;
    double all_energy = 0.0;
    std::vector<double> energy(classes, 0.0);
    for (int64_t k = 0; k < b.rows; ++k) {
      for (int64_t j = 0; j < b.cols; ++j) {
        const double square = static_cast<double>(b.at(k, j, nb)) * static_cast<double>(b.at(k, j, nb));
        energy[static_cast<size_t>(j % classes)] += square;
        all_energy += square;
      }
    }
    for (int64_t i = 0; i < a.rows; ++i) {
      for (uint32_t c = 0; c < classes; ++c) {
        double residual[kDraws] = {};
        double squares = 0.0;
        double width = 0.0;
        for (int64_t j = c; j < b.cols; j += classes) {
          double abs_sum;
          double square_sum;
          const double e = exact_entry(a, b, i, j, n, &abs_sum, &square_sum) - static_cast<double>(p.at(i, j, n));
          for (uint32_t d = 0; d < kDraws; ++d) residual[d] += is_minus(seed, d, b.cols, classes, j) ? -e : e;
          squares += static_cast<double>(p.at(i, j, n)) * static_cast<double>(p.at(i, j, n));
          width += 1.0;
        }
        const Noise& row = noise[static_cast<size_t>(n * a.rows + i)];
        const double share = all_energy > 0.0 ? energy[c] / all_energy : 0.0;
        for (double r : residual) cells.push_back(r);
        cells.push_back(0x1p-24 * std::sqrt(width * row.mean_energy + share * row.addend_energy + squares / 3.0));
      }
    }
  }
  return cells;
}

double sigma_of(const std::vector<double>& z, double clip) {
  double sigma = 0.0;
  double limit = INFINITY;
  for (int round = 0; round < 3; ++round) {
    double sum = 0.0;
    double count = 0.0;
    for (double v : z) {
      if (v > limit) continue;
      sum += v;
      count += 1.0;
    }
    sigma = count > 0.0 ? std::sqrt(M_PI / 2.0) * sum / count : 0.0;
    limit = clip * sigma;
  }
  return sigma;
}

}  // namespace sdcguard::reference

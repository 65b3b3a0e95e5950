// SPDX-License-Identifier: MIT
#include "trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace calls {
namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": " + cublasGetStatusString(status));
}

bool has(const Call& call, uint32_t bits) {
  return (call.epilogue & bits) == bits;
}

// Elements that ld and strides are multiples of: FP8 and INT8 have documented alignments.
int64_t unit_of(const Call& call, Num num) {
  const int64_t bytes = is_fp8(call.a) ? 16 : call.a == Num::kI8 ? 4 : 1;
  return std::max<int64_t>(1, bytes / format_of(num).bytes);
}

// Bits of a mask lie in 32-bit words: bit i of a column in word i / 32.
bool mask_bit(const Buffer& buffer, int64_t start, int64_t bit) {
  const auto word = static_cast<uint32_t>(static_cast<int32_t>(buffer.get(start + bit / 32)));
  return (word >> (bit % 32) & 1) != 0;
}

void hash_bytes(const char* data, size_t count, uint64_t* hash) {
  for (size_t i = 0; i < count; ++i) *hash = (*hash ^ static_cast<unsigned char>(data[i])) * 0x100000001b3ull;
}

double vector_factor(int64_t row) {
  return static_cast<double>(1 + row % 4);
}

}  // namespace

Libraries::Libraries() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&compute_major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check(cublasCreate(&cublas), "cublasCreate");
  check(cublasLtCreate(&lt), "cublasLtCreate");
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cublasSetStream(cublas, stream), "cublasSetStream");
  check(cudaMalloc(&workspace, kWorkspaceBytes), "cudaMalloc");
}

Libraries::~Libraries() {
  cudaFree(workspace);
  cudaStreamDestroy(stream);
  cublasLtDestroy(lt);
  cublasDestroy(cublas);
}

Trial::Trial(const Call& call, Libraries& libraries) : call_(call), libraries_(libraries) {
  Random random(call.seed);
  make_matrices();
  a_.fill(call.data_a, random);
  b_.fill(call.data_b, random);
  const bool any_beta =
      std::any_of(call.groups.begin(), call.groups.end(), [](const Group& group) { return group.beta != 0; });
  // Where beta is 0 all of C is NaN, and so is a D apart from C.
  if (any_beta) {
    c_.fill(call.data_c, random);
    for (size_t e = 0, g = 0, left = 0; e < c_.entries.size(); ++e, --left) {
      for (; left == 0 && g < call.groups.size(); ++g) left = static_cast<size_t>(call.groups[g].count);
      if (left == 0) break;  // the place of a batch of nothing
      const Matrix& matrix = c_.entries[e];
      for (int64_t j = 0; call.groups[g - 1].beta == 0 && !is_integer(call.c) && j < matrix.cols; ++j) {
        for (int64_t i = 0; i < matrix.rows; ++i) c_.set(matrix.at(i, j), std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
  make_vectors(random);
  if (by_pointers(call)) make_pointers();
  inputs_ = {&a_, &b_};
  outputs_ = {d_};
  if (d_ != &c_ && call_.addend != Addend::kNull) inputs_.push_back(&c_);
  if (uses_bias()) (makes_gradient() ? outputs_ : inputs_).push_back(&bias_);
  if (uses_aux()) {
    const bool read = has(call_, CUBLASLT_EPILOGUE_DRELU) || has(call_, CUBLASLT_EPILOGUE_DGELU);
    (read ? inputs_ : outputs_).push_back(&aux_);
  }
  for (Buffer* one : {&scale_a_, &scale_b_, &scale_d_, &alpha_, &beta_}) {
    if (!one->entries.empty()) inputs_.push_back(one);
  }
  if (call_.amax) outputs_.push_back(&amax_);
  for (Buffer* one : inputs_) before_.push_back(one->image());
  for (Buffer* one : outputs_) before_.push_back(one->image());
  restore();
}

void Trial::restore() {
  for (size_t i = 0; i < before_.size(); ++i) {
    Buffer& one = i < inputs_.size() ? *inputs_[i] : *outputs_[i - inputs_.size()];
    one.set_image(before_[i]);
    one.upload();
  }
}

bool Trial::uses_bias() const {
  return is_lt(call_) && (has(call_, CUBLASLT_EPILOGUE_BIAS) || makes_gradient());
}

bool Trial::makes_gradient() const {
  return has(call_, CUBLASLT_EPILOGUE_DRELU_BGRAD) || has(call_, CUBLASLT_EPILOGUE_DGELU_BGRAD) ||
         call_.epilogue == CUBLASLT_EPILOGUE_BGRADA || call_.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

bool Trial::uses_aux() const {
  return (call_.epilogue & 128) != 0;
}

bool Trial::aux_is_mask() const {
  return has(call_, CUBLASLT_EPILOGUE_RELU_AUX) || has(call_, CUBLASLT_EPILOGUE_DRELU);
}

int64_t Trial::bias_length(const Group& group) const {
  return call_.epilogue == CUBLASLT_EPILOGUE_BGRADB ? group.n : group.m;
}

void Trial::make_matrices() {
  std::vector<Buffer::Size> a, b, c;
  for (const Group& group : call_.groups) {
    for (int64_t e = 0; e < group.count; ++e) {
      a.push_back(group.trans_a == 'n' ? Buffer::Size{group.m, group.k} : Buffer::Size{group.k, group.m});
      b.push_back(group.trans_b == 'n' ? Buffer::Size{group.k, group.n} : Buffer::Size{group.n, group.k});
      c.push_back({group.m, group.n});
    }
  }
  // A group without a problem has leading dimensions all the same.
  if (a.empty()) {
    const Group& group = call_.groups[0];
    a.push_back(group.trans_a == 'n' ? Buffer::Size{group.m, group.k} : Buffer::Size{group.k, group.m});
    b.push_back(group.trans_b == 'n' ? Buffer::Size{group.k, group.n} : Buffer::Size{group.n, group.k});
    c.push_back({group.m, group.n});
  }
  a_.num = call_.a;
  b_.num = call_.b;
  c_.num = call_.c;
  written_.num = call_.d;
  const bool scattered = by_pointers(call_);
  a_.lay_out(a, call_.row_major[0], call_.pad[0], call_.offset[0], call_.spread[0], scattered, unit_of(call_, a_.num));
  b_.lay_out(b, call_.row_major[1], call_.pad[1], call_.offset[1], call_.spread[1], scattered, unit_of(call_, b_.num));
  c_.lay_out(c, call_.row_major[2], call_.pad[2], call_.offset[2], call_.spread[2], scattered, unit_of(call_, c_.num));
  d_ = &c_;
  if (!is_lt(call_) || call_.addend == Addend::kInPlace) return;
  d_ = &written_;
  written_.lay_out(c, call_.row_major[2], call_.pad[3], call_.offset[3], call_.spread[2], false,
                   unit_of(call_, written_.num));
}

void Trial::make_vectors(Random& random) {
  const Group& group = call_.groups[0];
  const auto values = [](Buffer* buffer, Num num, int64_t length) {
    buffer->num = num;
    buffer->lay_out({{length, 1}}, false, 0, 0, Spread::kApart, false, 1);
  };
  if (uses_bias()) {
    const int64_t vectors = call_.bias_by_batch ? group.count : 1;
    bias_.num = call_.bias;
    bias_.lay_out(std::vector<Buffer::Size>(static_cast<size_t>(vectors), {bias_length(group), 1}), false, 0, 0,
                  Spread::kApart, false, 16);
    if (!makes_gradient()) bias_.fill(Data::kGauss, random);
  }
  if (uses_aux()) {
    // A mask as 32-bit words, columns of a multiple of 128 bits; the input of GELU in columns of a multiple of 8.
    aux_.num = aux_is_mask() ? Num::kI32 : call_.aux;
    const int64_t rows = aux_is_mask() ? (group.m + 31) / 32 : group.m;
    aux_.lay_out(std::vector<Buffer::Size>(static_cast<size_t>(group.count), {rows, group.n}), false, 0, 0,
                 Spread::kApart, false, aux_is_mask() ? 4 : 8);
    if (has(call_, CUBLASLT_EPILOGUE_DRELU) || has(call_, CUBLASLT_EPILOGUE_DGELU)) aux_.fill(Data::kGauss, random);
  }
  const auto scales = [&values, &random](Buffer* buffer, int64_t length) {
    values(buffer, Num::kF32, length);
    for (int64_t i = 0; i < length; ++i)
      buffer->set(buffer->origin() + i, rounded(Num::kF32, 0.25 + 2 * random.unit()));
  };
  if (call_.has_scale[0]) scales(&scale_a_, call_.outer_scales ? group.m : 1);
  if (call_.has_scale[1]) scales(&scale_b_, call_.outer_scales ? group.n : 1);
  if (call_.has_scale[2]) scales(&scale_d_, 1);
  if (call_.amax) values(&amax_, Num::kF32, 1);

  const auto scalar_bytes = static_cast<size_t>(format_of(call_.scale).bytes);
  host_scalars_.resize(2 * call_.groups.size() * scalar_bytes);
  for (size_t g = 0; g < call_.groups.size(); ++g) {
    encode(call_.scale, call_.groups[g].alpha, host_scalars_.data() + g * scalar_bytes);
    encode(call_.scale, call_.groups[g].beta, host_scalars_.data() + (call_.groups.size() + g) * scalar_bytes);
  }
  const bool alpha_vector = call_.scalars != Scalars::kHost && call_.scalars != Scalars::kDevice;
  const bool beta_vector = call_.scalars == Scalars::kVector;
  if (call_.scalars == Scalars::kHost) return;
  values(&alpha_, call_.scale, alpha_vector ? group.m : 1);
  values(&beta_, call_.scale, beta_vector ? group.m : 1);
  for (int64_t i = 0; i < std::max<int64_t>(1, group.m); ++i) {
    const double factor = alpha_vector ? vector_factor(i) : 1;
    if (i == 0 || alpha_vector) alpha_.set(alpha_.origin() + i, rounded(call_.scale, group.alpha * factor));
    if (i == 0 || beta_vector) beta_.set(beta_.origin() + i, rounded(call_.scale, group.beta * factor));
  }
}

void Trial::make_pointers() {
  const Buffer* buffers[3] = {&a_, &b_, &c_};
  for (Buffer* one : {&a_, &b_, &c_}) one->upload();
  for (int i = 0; i < 3; ++i) {
    // An array of pointers has the size of an array of doubles.
    pointers_[i].num = Num::kF64;
    const auto count = static_cast<int64_t>(buffers[i]->entries.size());
    pointers_[i].lay_out({{count, 1}}, false, 0, 0, Spread::kApart, false, 1);
    for (int64_t e = 0; e < count; ++e) {
      const void* address = buffers[i]->device(buffers[i]->entries[static_cast<size_t>(e)].start);
      double bits;
      std::memcpy(&bits, &address, sizeof(bits));
      pointers_[i].set(pointers_[i].origin() + e, bits);
    }
    pointers_[i].upload();
  }
}

const void* Trial::alpha() const {
  return call_.scalars == Scalars::kHost ? host_scalars_.data() : alpha_.device();
}

const void* Trial::beta() const {
  const bool host = call_.scalars == Scalars::kHost || call_.scalars == Scalars::kAlphaVectorBetaHost;
  return host ? host_scalars_.data() + host_scalars_.size() / 2 : beta_.device();
}

// ---- judging ----------------------------------------------------------------------------------------------------

Problem Trial::problem(size_t e, const Group& group) const {
  Problem p;
  p.m = group.m;
  p.n = group.n;
  p.k = group.k;
  const auto read = [](const Buffer& buffer, const Matrix& matrix, bool transposed, int64_t rows, int64_t cols) {
    std::vector<double> values(static_cast<size_t>(rows * cols));
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t i = 0; i < rows; ++i) {
        values[static_cast<size_t>(i + j * rows)] = buffer.get(transposed ? matrix.at(j, i) : matrix.at(i, j));
      }
    }
    return values;
  };
  p.a = read(a_, a_.entries[e], group.trans_a != 'n', p.m, p.k);
  p.b = read(b_, b_.entries[e], group.trans_b != 'n', p.k, p.n);
  const auto rows = static_cast<size_t>(p.m);
  const bool alpha_vector = call_.scalars != Scalars::kHost && call_.scalars != Scalars::kDevice;
  for (size_t i = 0; i < rows; ++i) {
    const double factor = vector_factor(static_cast<int64_t>(i));
    p.alpha.push_back(rounded(call_.scale, group.alpha * (alpha_vector ? factor : 1)));
    p.beta.push_back(rounded(call_.scale, group.beta * (call_.scalars == Scalars::kVector ? factor : 1)));
    p.scale_a.push_back(
        call_.has_scale[0] ? scale_a_.get(scale_a_.origin() + (call_.outer_scales ? static_cast<int64_t>(i) : 0)) : 1);
  }
  for (int64_t j = 0; j < p.n; ++j) {
    p.scale_b.push_back(call_.has_scale[1] ? scale_b_.get(scale_b_.origin() + (call_.outer_scales ? j : 0)) : 1);
  }
  if (call_.has_scale[2]) p.scale_d = scale_d_.get(scale_d_.origin());
  if (has(call_, CUBLASLT_EPILOGUE_BIAS)) {
    const Matrix& bias = bias_.entries[call_.bias_by_batch ? e : 0];
    for (int64_t i = 0; i < p.m; ++i) p.bias.push_back(bias_.get(bias.at(i, 0)));
  }
  if (has(call_, CUBLASLT_EPILOGUE_DGELU)) p.aux = read(aux_, aux_.entries[e], false, p.m, p.n);
  if (has(call_, CUBLASLT_EPILOGUE_DRELU)) {
    for (int64_t j = 0; j < p.n; ++j) {
      for (int64_t i = 0; i < p.m; ++i) p.aux.push_back(mask_bit(aux_, aux_.entries[e].at(0, j), i) ? 1 : 0);
    }
  }
  return p;
}

void Trial::compare_value(const Value& want, Num num, const Buffer& buffer, int64_t element, const std::string& what,
                          Found* found) const {
  ++found->entries;
  if (!std::isfinite(want.bound)) {
    ++found->exempt;
    return;
  }
  const double got = buffer.get(element);
  const auto value = static_cast<double>(want.value);
  if (!std::isfinite(value) && (got == value || (std::isnan(got) && std::isnan(value)))) return;
  // One double wider on each side: value and bound are doubles here.
  const double slack = want.bound + std::fabs(value) * 0x1p-52 * (want.bound > 0 ? 1 : 0);
  if (got >= rounded(num, value - slack) && got <= rounded(num, value + slack)) {
    const double room = want.bound + half_spacing(num, std::fabs(value) + want.bound);
    const double ratio = got == value || !std::isfinite(got) ? 0 : std::fabs(got - value) / room;
    found->worst = std::max(found->worst, std::min(1.0, ratio));
    return;
  }
  const double over = std::fabs(got - value) / (want.bound + half_spacing(num, value));
  const double ratio = over > 1 ? over : std::isnan(over) ? std::numeric_limits<double>::infinity() : 1.001;
  if (found->where.empty() || ratio > found->worst) {
    char text[160];
    std::snprintf(text, sizeof(text), "%s: %.9g, not %.9g within %.3g", what.c_str(), got, value, want.bound);
    found->where = text;
  }
  found->worst = std::max(found->worst, ratio);
}

void Trial::compare(size_t e, const Group& group, Found* found) const {
  const Problem p = problem(e, group);
  // C is what it was before the call; in place the image of D has taken its room.
  Problem with_c = p;
  if (group.beta != 0) {
    const std::vector<char>& image = d_ == &c_ ? before_[inputs_.size()] : c_.image();
    const Matrix& matrix = c_.entries[e];
    for (int64_t j = 0; j < p.n; ++j) {
      for (int64_t i = 0; i < p.m; ++i) {
        with_c.c.push_back(decode(call_.c, image.data() + matrix.at(i, j) * c_.bytes()));
      }
    }
  }
  const Result want = exact_product(call_, with_c, libraries_.compute_major);
  for (int64_t j = 0; j < p.n; ++j) {
    for (int64_t i = 0; i < p.m; ++i) {
      const auto at = static_cast<size_t>(i + j * p.m);
      const std::string where = "(" + std::to_string(i) + ", " + std::to_string(j) + "; " + std::to_string(e) + ")";
      compare_value(want.d[at], call_.d, *d_, d_->entries[e].at(i, j), "D" + where, found);
      if (want.aux.empty()) continue;
      if (!aux_is_mask()) {
        compare_value(want.aux[at], call_.aux, aux_, aux_.entries[e].at(i, j), "aux" + where, found);
      } else if (std::fabs(static_cast<double>(want.aux[at].value)) > want.aux[at].bound) {
        ++found->entries;
        if (mask_bit(aux_, aux_.entries[e].at(0, j), i) != (want.aux[at].value > 0)) {
          found->worst = std::numeric_limits<double>::infinity();
          found->where = "mask" + where;
        }
      }
    }
  }
  for (size_t i = 0; i < want.bias.size(); ++i) {
    const Matrix& gradient = bias_.entries[call_.bias_by_batch ? e : 0];
    compare_value(want.bias[i], call_.bias, bias_, gradient.at(static_cast<int64_t>(i), 0),
                  "gradient(" + std::to_string(i) + "; " + std::to_string(e) + ")", found);
  }
  if (call_.amax && call_.groups[0].count == 1) {
    compare_value(want.amax, Num::kF32, amax_, amax_.origin(), "amax", found);
  }
}

Found Trial::judge(bool exact) {
  check(cudaStreamSynchronize(libraries_.stream), "cudaStreamSynchronize");
  Found found;
  found.hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    inputs_[i]->download();
    if (inputs_[i]->image() != before_[i]) ++found.changed;
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Buffer& output = *outputs_[i];
    output.download();
    hash_bytes(output.image().data(), output.image().size(), &found.hash);
    const std::vector<bool> covered = output.covered();
    const std::vector<char>& before = before_[inputs_.size() + i];
    const auto bytes = static_cast<size_t>(output.bytes());
    for (size_t element = 0; element < covered.size(); ++element) {
      if (covered[element]) continue;
      if (std::memcmp(output.image().data() + element * bytes, before.data() + element * bytes, bytes) != 0) {
        ++found.changed;
      }
    }
  }
  if (!exact) return found;
  size_t e = 0;
  for (const Group& group : call_.groups) {
    for (int64_t i = 0; i < group.count; ++i, ++e) {
      if (group.m > 0 && group.n > 0) compare(e, group, &found);
    }
  }
  return found;
}

}  // namespace calls

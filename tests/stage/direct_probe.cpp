// SPDX-License-Identifier: MIT
// Compiled for AVX2 and FMA, as the kernels for the host are. Loops over kWarp lanes and over kSlots columns are those
// that the compiler makes vectors of. Formulas: kernels/MATH.md, by the labels of the kernels' own files.
#include "tests/stage/direct_probe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/exceeds.h"
#include "kernels/look.h"
#include "kernels/signs.h"

namespace sdcguard::stage {
namespace {

constexpr int kLanes = 32;
constexpr int kWarps = 8;
constexpr uint32_t kChunk = 32;   // fold: classes at once
constexpr uint32_t kPanel = 128;  // fold: columns at once
constexpr int kGroup = 16;        // operand: vectors of a group
constexpr int kMaxVectors = 128;
constexpr int kSlots = 128;     // product: columns at once
constexpr int kBatchSteps = 4;  // product: reads of a partial sum
constexpr float kSquareLow = 0x1p-40f, kSquareHigh = 0x1p60f;
constexpr double kUnit = 0x1p-24;
constexpr double kLargest = 0x1.fffffep+127;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kMeanToSigma = 1.2533141373155003;

using Lanes = std::array<float, kLanes>;
using WideLanes = std::array<double, kLanes>;

int64_t parts(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

// A warp's sum, in the order of its exchanges.
double warp_sum(WideLanes v) {
  for (int distance = kLanes / 2; distance != 0; distance /= 2) {
    WideLanes next;
    for (int l = 0; l < kLanes; ++l) next[l] = v[l] + v[l ^ distance];
    v = next;
  }
  return v[0];
}

float flip(float x, uint32_t minus) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) ^ minus << 31);
}

float at_least(float v, float floor) {
  const float magnitude = std::fabs(v);
  return magnitude < floor && magnitude != 0 ? floor : magnitude;
}

uint32_t bit_of(const uint32_t* words, int64_t column) {
  return words[column / 32] >> (column % 32) & 1u;
}

bool squares_are_safe(float peak) {
  return peak >= kSquareLow && peak <= kSquareHigh;
}

uint32_t peak_bin(float z) {
  const uint32_t index = std::bit_cast<uint32_t>(z) >> 21;
  constexpr uint32_t kFirst = (127u - 4u) << 2;
  if (index < kFirst) return 0;
  return std::min(index - kFirst, kPeakBins - 1);
}

float bin_start(uint32_t bin) {
  return bin == 0 ? 0.0f : std::bit_cast<float>((bin + ((127u - 4u) << 2)) << 21);
}

// The product pass keeps its line's histogram in the result until the call is judged.
struct Histogram {
  std::array<uint64_t, kPeakBins> counts{}, sums{};
  void add(float z) {
    const uint32_t bin = peak_bin(z);
    ++counts[bin];
    sums[bin] += static_cast<uint64_t>(std::min(z, 0x1p28f) * 0x1p8f + 0.5f);
  }
  double clipped_sigma() const {
    double limit = static_cast<double>(kInfinity), sigma = 0;
    for (int round = 0; round < 3; ++round) {
      double count = 0, sum = 0;  // of integers below 2^53: exact in any order
      for (uint32_t bin = 0; bin < kPeakBins; ++bin) {
        if (static_cast<double>(bin_start(bin)) > limit) continue;
        count += static_cast<double>(counts[bin]);
        sum += static_cast<double>(sums[bin]);
      }
      if (round == 0 && count < kNoisyCells) return 0;
      sigma = count > 0 ? kMeanToSigma * 0x1p-8 * sum / count : 0;
      limit = 4.0 * sigma;
    }
    return sigma;
  }
};

// In place: their order says nothing.
float lower_median(std::vector<float>::iterator from, std::vector<float>::iterator to) {
  if (to - from < static_cast<std::ptrdiff_t>(kLineCells)) return 0;
  const auto middle = from + (to - from - 1) / 2;
  std::nth_element(from, middle, to);
  return *middle;
}

}  // namespace

void DirectProbe::run(const DirectCall& call, DirectResult* result) {
  *result = {};
  fold(call);
  operand(call);
  product(call, result);
}

void DirectProbe::fold(const DirectCall& call) {
  const ProbeParams& p = *call.params;
  const uint32_t c = p.classes;
  const int64_t words = parts(p.n3, 32), tiles = parts(p.n2, kFoldTile);
  signs_.assign(static_cast<size_t>(kDraws * words), 0);
  for (uint32_t d = 0; d < kDraws; ++d) {
    const SignDraw draw = sign_draw(p.seed, d);
    for (int64_t j = 0; j < p.n3; ++j) {
      const auto b = static_cast<uint32_t>(j % c);
      const bool minus = sign_is_minus(draw, b, static_cast<uint32_t>(j / c), class_width(p.n3, c, b));
      signs_[static_cast<size_t>(d * words + j / 32)] |= static_cast<uint32_t>(minus) << (j % 32);
    }
  }
  const uint32_t* const minus[kDraws] = {signs_.data(), signs_.data() + words};
  sums_.assign(static_cast<size_t>(p.n2 * p.vectors), 0);
  mean_.assign(static_cast<size_t>(p.n2), 0);
  rms_ = mean_;
  tile_energy_.assign(static_cast<size_t>(tiles * c), 0);
  staged_.resize(static_cast<size_t>(p.n3 * kLanes));
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first_k = tile * kFoldTile;
    const auto inside = static_cast<int>(std::min<int64_t>(kFoldTile, p.n2 - first_k));
    std::fill(staged_.begin(), staged_.end(), 0.0f);
    for (int l = 0; l < inside; ++l) {
      const float* const row = call.b + (first_k + l) * p.n3;
      for (int64_t j = 0; j < p.n3; ++j) staged_[static_cast<size_t>(j * kLanes + l)] = row[j];
    }
    std::array<WideLanes, kWarps> sum{}, squares_of{};
    for (uint32_t first_class = 0; first_class < c; first_class += kChunk) {
      const uint32_t width = std::min(c - first_class, kChunk);
      const uint32_t count_q = kPanel / width;
      const uint32_t widest = class_width(p.n3, c, first_class);
      std::array<Lanes, kChunk> total[kDraws] = {};
      std::array<WideLanes, kChunk> energy{};
      for (uint32_t first_q = 0; first_q < widest; first_q += count_q) {
        for (uint32_t b = 0; b < width; ++b) {
          Lanes part[kDraws] = {}, plain{};
          WideLanes squares{};
          for (uint32_t q = first_q; q < first_q + count_q; ++q) {
            const int64_t column = int64_t{q} * c + first_class + b;
            if (column >= p.n3) break;
            const float* const x = &staged_[static_cast<size_t>(column * kLanes)];
            const uint32_t minus0 = bit_of(minus[0], column), minus1 = bit_of(minus[1], column);
            for (int l = 0; l < kLanes; ++l) {
              part[0][l] += flip(x[l], minus0);
              part[1][l] += flip(x[l], minus1);
              plain[l] += x[l];
              const double wide = static_cast<double>(at_least(x[l], p.operand_floor_b));
              squares[l] = std::fma(wide, wide, squares[l]);
            }
          }
          for (int l = 0; l < kLanes; ++l) {
            total[0][b][l] += part[0][l];
            total[1][b][l] += part[1][l];
            sum[b % kWarps][l] += static_cast<double>(plain[l]);
            energy[b][l] += squares[l];
          }
        }
      }
      for (uint32_t b = 0; b < width; ++b) {
        for (int l = 0; l < inside; ++l) {
          float* const row = &sums_[static_cast<size_t>((first_k + l) * p.vectors)];
          row[first_class + b] = total[0][b][l];
          row[c + first_class + b] = total[1][b][l];
        }
        for (int l = 0; l < kLanes; ++l) squares_of[b % kWarps][l] += energy[b][l];
        tile_energy_[static_cast<size_t>(tile * c + first_class + b)] = warp_sum(energy[b]);
      }
    }
    for (int l = 0; l < inside; ++l) {
      double row_sum = 0, row_squares = 0;
      for (int w = 0; w < kWarps; ++w) {
        row_sum += sum[w][l];
        row_squares += squares_of[w][l];
      }
      const double columns = static_cast<double>(p.n3);
      const double mean = row_sum / columns;
      const int64_t k = first_k + l;
      mean_[static_cast<size_t>(k)] = static_cast<float>(mean);
      rms_[static_cast<size_t>(k)] = static_cast<float>(std::sqrt(row_squares / columns));
    }
  }
}

void DirectProbe::operand(const DirectCall& call) {
  const ProbeParams& p = *call.params;
  const int vectors = static_cast<int>(p.vectors);
  const int all_groups = vectors / kGroup;
  const int groups = all_groups >= 5 ? 8 : all_groups >= 3 ? 4 : all_groups;
  const int splits = kWarps / groups;
  const int chunk = groups == 8 ? 32 : groups == 4 ? 64 : 128;
  const int part = chunk / splits;
  const int64_t steps = parts(p.n2, kPrefixStep);
  const int slots = chunk / static_cast<int>(kPrefixStep);  // steps of a chunk: an energy is added up along its own
  dots_.resize(static_cast<size_t>(p.n1 * vectors));
  noise_.resize(static_cast<size_t>(p.n1 * 2));
  line_sums_.resize(static_cast<size_t>(p.n1 * 2));
  rows_.resize(static_cast<size_t>(p.n2 * kLanes));
  last_k_.resize(static_cast<size_t>(steps));
  for (int64_t first_row = 0; first_row < p.n1; first_row += kLanes) {
    const auto inside = static_cast<int>(std::min<int64_t>(kLanes, p.n1 - first_row));
    std::fill(rows_.begin(), rows_.end(), 0.0f);
    for (int r = 0; r < inside; ++r) {
      const float* const row = call.a + (first_row + r) * p.n2;
      for (int64_t k = 0; k < p.n2; ++k) rows_[static_cast<size_t>(k * kLanes + r)] = row[k];
    }
    // Dots: sums of `part` terms, the largest of each step last, added to an error-free pair a split.
    for (int r = 0; r < inside; ++r) {
      const float* const row = call.a + (first_row + r) * p.n2;
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t from = step * kPrefixStep, end = std::min<int64_t>(from + kPrefixStep, p.n2);
        float peak = 0;
        last_k_[static_cast<size_t>(step)] = from;
        for (int64_t k = from; k < end; ++k) {
          const float e = at_least(row[k], p.operand_floor_a) * rms_[static_cast<size_t>(k)];
          if (e > peak) {
            peak = e;
            last_k_[static_cast<size_t>(step)] = k;
          }
        }
      }
      float hi[kWarps][kMaxVectors] = {}, lo[kWarps][kMaxVectors] = {};
      for (int64_t first_k = 0; first_k < p.n2; first_k += chunk) {
        for (int split = 0; split < splits; ++split) {
          float sums[kMaxVectors] = {};
          const int64_t from = first_k + split * part, end = std::min<int64_t>(from + part, p.n2);
          const auto add = [&](int64_t k) {
            const float a = row[k];
            const float* const f = &sums_[static_cast<size_t>(k * vectors)];
            for (int v = 0; v < vectors; ++v) sums[v] = std::fma(a, f[v], sums[v]);
          };
          for (int64_t k = from; k < end; ++k) {
            if (last_k_[static_cast<size_t>(k / kPrefixStep)] != k) add(k);
          }
          for (int64_t k = from; k < end; k += kPrefixStep) add(last_k_[static_cast<size_t>(k / kPrefixStep)]);
          for (int v = 0; v < vectors; ++v) {
            const float next = hi[split][v] + sums[v];
            const float taken = next - hi[split][v];
            lo[split][v] += (hi[split][v] - (next - taken)) + (sums[v] - taken);
            hi[split][v] = next;
          }
        }
      }
      for (int v = 0; v < vectors; ++v) {
        double sum = 0;
        for (int split = 0; split < splits; ++split) sum += static_cast<double>(hi[split][v] + lo[split][v]);
        dots_[static_cast<size_t>((first_row + r) * vectors + v)] = static_cast<float>(sum);
      }
    }
    // Energies of the noise scale, and what the row's sum must be.
    std::array<WideLanes, kWarps> energy{}, reach{};
    WideLanes running{}, mean_energy{};
    for (int64_t step = 0; step < steps; ++step) {
      const auto slot = static_cast<size_t>(step % slots);
      Lanes along{}, squares{}, peak{}, far{};
      const int64_t from = step * kPrefixStep, end = std::min<int64_t>(from + kPrefixStep, p.n2);
      for (int64_t k = from; k < end; ++k) {
        const float* const a = &rows_[static_cast<size_t>(k * kLanes)];
        const float mean = mean_[static_cast<size_t>(k)], rms = rms_[static_cast<size_t>(k)];
        for (int r = 0; r < kLanes; ++r) {
          const float e = at_least(a[r], p.operand_floor_a) * rms;
          along[r] = std::fma(a[r], mean, along[r]);
          far[r] += e;
          squares[r] = std::fma(e, e, squares[r]);
          peak[r] = std::max(peak[r], e);
        }
      }
      const double share = (static_cast<double>(steps) - static_cast<double>(step)) / static_cast<double>(steps);
      const double weight = static_cast<double>(p.n3) * share;
      for (int r = 0; r < inside; ++r) {
        if (squares_are_safe(peak[r])) {
          energy[slot][r] = std::fma(weight, static_cast<double>(squares[r]), energy[slot][r]);
        } else if (peak[r] != 0) {
          double wide = 0;
          for (int64_t k = from; k < end; ++k) {
            const float x = at_least(rows_[static_cast<size_t>(k * kLanes + r)], p.operand_floor_a);
            const double one = static_cast<double>(x) * static_cast<double>(rms_[static_cast<size_t>(k)]);
            wide = std::fma(one, one, wide);
          }
          energy[slot][r] = std::fma(weight, wide, energy[slot][r]);
        }
        if (std::isfinite(far[r])) {
          reach[slot][r] += static_cast<double>(far[r]);
        } else {
          for (int64_t k = from; k < end; ++k) {
            const float x = at_least(rows_[static_cast<size_t>(k * kLanes + r)], p.operand_floor_a);
            reach[slot][r] =
                std::fma(static_cast<double>(x), static_cast<double>(rms_[static_cast<size_t>(k)]), reach[slot][r]);
          }
        }
        running[r] += static_cast<double>(along[r]);
        mean_energy[r] = std::fma(running[r], running[r], mean_energy[r]);
      }
    }
    for (int r = 0; r < inside; ++r) {
      double addend_energy = 0, sum_reach = 0;
      for (int slot = 0; slot < kWarps; ++slot) {
        addend_energy += energy[slot][r];
        sum_reach += reach[slot][r];
      }
      const auto line = static_cast<size_t>(first_row + r);
      noise_[line * 2] = mean_energy[r] / static_cast<double>(steps);
      noise_[line * 2 + 1] = addend_energy;
      line_sums_[line * 2] = running[r];
      line_sums_[line * 2 + 1] = sum_reach + static_cast<double>(p.n2) * 0x1p-126;
    }
  }
}

void DirectProbe::product(const DirectCall& call, DirectResult* result) {
  const ProbeParams& p = *call.params;
  const uint32_t c = p.classes;
  const int64_t words = parts(p.n3, 32), tiles = parts(p.n2, kFoldTile);
  const uint32_t* const minus[kDraws] = {signs_.data(), signs_.data() + words};
  std::vector<double> shares(c);
  double all = 0;
  for (uint32_t b = 0; b < c; ++b) {
    WideLanes energy{};
    for (int64_t tile = 0; tile < tiles; ++tile) {
      energy[static_cast<size_t>(tile % kLanes)] += tile_energy_[static_cast<size_t>(tile * c + b)];
    }
    shares[b] = warp_sum(energy);
    all += shares[b];
  }
  for (double& share : shares) share = all > 0 ? share / all : 0;
  // Signs as factors, once a call: +1 and -1 are exact.
  std::vector<float> factor[kDraws];
  for (uint32_t d = 0; d < kDraws; ++d) {
    factor[d].resize(static_cast<size_t>(p.n3));
    for (int64_t j = 0; j < p.n3; ++j) factor[d][static_cast<size_t>(j)] = bit_of(minus[d], j) != 0 ? -1.0f : 1.0f;
  }

  Histogram histogram;
  const auto lines = static_cast<size_t>(p.n1);
  result->line_peak.resize(lines);
  result->line_median.resize(lines);
  result->residuals.resize(lines * c * kDraws);
  result->scales.resize(lines * c);
  result->cell_scales.resize(lines * c * kDraws);
  for (int64_t line = 0; line < p.n1; ++line) {
    const float* const row = call.p + line * p.n3;
    std::array<double, kSlots> total[kDraws] = {};
    std::array<double, kSlots> energies{};
    WideLanes sums{};
    for (int64_t block = 0; block < p.n3; block += kBatchSteps * kSlots) {
      std::array<float, kSlots> part[kDraws] = {}, squares{}, peak{};
      Lanes plain{};
      for (int i = 0; i < kBatchSteps; ++i) {
        const int64_t first = block + i * kSlots;
        const auto count = static_cast<int>(std::clamp<int64_t>(p.n3 - first, 0, kSlots));
        const float* const x = row + first;
        const float* const sign0 = factor[0].data() + first;
        const float* const sign1 = factor[1].data() + first;
        for (int slot = 0; slot < count; ++slot) {
          part[0][slot] += sign0[slot] * x[slot];
          part[1][slot] += sign1[slot] * x[slot];
          squares[slot] = std::fma(x[slot], x[slot], squares[slot]);
          peak[slot] = std::max(peak[slot], std::fabs(x[slot]));
        }
        for (int slot = 0; slot < count; ++slot) plain[slot / 4] = std::fma(x[slot], 0.0625f, plain[slot / 4]);
      }
      for (int l = 0; l < kLanes; ++l) sums[l] += 16.0 * static_cast<double>(plain[l]);
      for (int slot = 0; slot < kSlots; ++slot) {
        total[0][slot] += static_cast<double>(part[0][slot]);
        total[1][slot] += static_cast<double>(part[1][slot]);
        if (squares_are_safe(peak[slot])) {
          energies[slot] += static_cast<double>(squares[slot]);
        } else if (peak[slot] != 0) {
          for (int i = 0; i < kBatchSteps; ++i) {
            const int64_t column = block + i * kSlots + slot;
            if (column >= p.n3) continue;
            energies[slot] =
                std::fma(static_cast<double>(row[column]), static_cast<double>(row[column]), energies[slot]);
          }
        }
      }
    }
    float line_peak = 0;
    std::vector<float>& ratios = result->ratios;
    const auto before = static_cast<std::ptrdiff_t>(ratios.size());
    for (uint32_t b = 0; b < c; ++b) {
      double sum[kDraws] = {}, energy = 0;
      for (uint32_t slot = b; slot < kSlots; slot += c) {
        sum[0] += total[0][slot];
        sum[1] += total[1][slot];
        energy += energies[slot];
      }
      const double width = static_cast<double>((p.n3 - b + c - 1) / c);
      const double ahead =
          width * noise_[static_cast<size_t>(line * 2)] + shares[b] * noise_[static_cast<size_t>(line * 2 + 1)];
      const double s = kUnit * std::sqrt(ahead + energy * (1.0 / 3.0));
      const double tiny = width * p.cell_tiny;
      const auto cell = static_cast<size_t>(line) * c + b;
      for (uint32_t d = 0; d < kDraws; ++d) {
        const double dot = static_cast<double>(dots_[static_cast<size_t>(line * p.vectors + d * c + b)]);
        const double residual = dot - sum[d];
        const double magnitude = std::fabs(residual);
        const double verifier = static_cast<double>(p.verifier_scale) * kUnit * dot;
        const double widening = tiny + verifier * verifier;
        const double wide = widening != 0 ? std::sqrt(s * s + widening) : s;
        float z = wide > 0 ? static_cast<float>(magnitude / wide) : kInfinity;
        if (s == 0 && magnitude == 0) z = -1;
        if (SDCGUARD_EXCEEDS(magnitude, kLargest) || SDCGUARD_EXCEEDS(s, kLargest)) z = kInfinity;
        if (z > 0 && z < kInfinity) {
          histogram.add(z);
          ratios.push_back(z);
        }
        line_peak = SDCGUARD_EXCEEDS(z, line_peak) ? z : line_peak;
        result->residuals[cell * kDraws + d] = static_cast<float>(residual);
        result->cell_scales[cell * kDraws + d] = static_cast<float>(wide);
      }
      result->scales[cell] = static_cast<float>(s);
    }
    const double columns = static_cast<double>(p.n3);
    const double bound =
        static_cast<double>(p.line_sum_scale) * (columns * line_sums_[static_cast<size_t>(line * 2 + 1)]) +
        columns * p.entry_tiny;
    const double ahead = columns * line_sums_[static_cast<size_t>(line * 2)];
    if (SDCGUARD_EXCEEDS(std::fabs(ahead - warp_sum(sums)), bound)) line_peak = kInfinity;
    result->line_peak[static_cast<size_t>(line)] = line_peak;
    result->line_median[static_cast<size_t>(line)] = lower_median(ratios.begin() + before, ratios.end());
    result->ratios_to.push_back(ratios.size());
  }

  double sigma = std::max(histogram.clipped_sigma(), static_cast<double>(p.sigma_floor));
  result->sigma_measured = static_cast<float>(sigma);
  result->sigma = static_cast<float>(std::min(sigma, static_cast<double>(p.sigma_envelope)));
  for (size_t line = 0; line < lines; ++line) {
    const float peak = result->line_peak[line];
    const float limit = look_limit(p.look_scale, result->sigma, result->line_median[line]);
    result->line_limit.push_back(limit);
    const float ratio = p.look_scale * (peak / limit);
    result->worst = SDCGUARD_EXCEEDS(ratio, result->worst) ? ratio : result->worst;
    if (SDCGUARD_EXCEEDS(peak, limit)) result->dirty.push_back(static_cast<uint32_t>(line));
  }
}

}  // namespace sdcguard::stage

// SPDX-License-Identifier: MIT
#include "tools/calibrate/tail.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <unordered_map>

namespace sdcguard {
namespace {

constexpr double kKept[3] = {1, 0.3, 0.1};  // share of the exceedances beyond each limit
constexpr int kSamples = 200;               // of the bootstrap: two beyond the confidence limit
constexpr size_t kAlone = 32;               // largest excesses that stay single: they decide xi
constexpr size_t kGroups = 128;             // groups of the rest, by rank
constexpr double kApart = 2.576;            // standard errors: a normal variable's 99%, two sides
constexpr double kFar = 3;                  // decades beyond the data that are worth a word

// Excesses, ascending, each for `weight` of its size.
struct Weighted {
  std::vector<double> value, weight;
};

// Zhang and Stephens 2009, section 3, with k = -xi and theta = k / scale.
GeneralizedPareto fit(const Weighted& x) {
  double count = 0, sum = 0;
  for (size_t i = 0; i < x.value.size(); ++i) {
    count += x.weight[i];
    sum += x.weight[i] * x.value[i];
  }
  const double mean = sum / count;
  double seen = 0, quartile = 0;
  for (size_t i = 0; i < x.value.size() && seen < count / 4; ++i) {
    seen += x.weight[i];
    quartile = x.value[i];
  }
  if (!(quartile > 0)) quartile = mean;  // a quarter of them lie on the limit
  const double largest = x.value.back();
  const auto mean_log = [&](double theta) {
    double logs = 0;
    for (size_t i = 0; i < x.value.size(); ++i) logs += x.weight[i] * std::log1p(-theta * x.value[i]);
    return logs / count;
  };
  const int grid = 30 + static_cast<int>(std::sqrt(count));
  std::vector<double> theta, likelihood;
  for (int j = 1; j <= grid; ++j) {
    const double t = 1 / largest + (1 - std::sqrt(grid / (j - 0.5))) / (3 * quartile);
    const double k = -mean_log(t);
    const double inverse_scale = std::fabs(t) * mean > 1e-9 ? t / k : 1 / mean;  // its limit at theta = 0
    theta.push_back(t);
    likelihood.push_back(count * (std::log(inverse_scale) + k - 1));
  }
  const double best = *std::max_element(likelihood.begin(), likelihood.end());
  double weights = 0, weighted = 0;
  for (size_t j = 0; j < theta.size(); ++j) {
    const double weight = std::exp(likelihood[j] - best);
    weights += weight;
    weighted += weight * theta[j];
  }
  const double t = weighted / weights;
  const double xi = mean_log(t);
  if (!(xi > 0)) return {0, mean};
  return {xi, -xi / t};
}

// Of ascending excesses: which group each belongs to. The largest are alone, the others come by equal numbers.
std::vector<size_t> groups_of(size_t excesses) {
  const size_t rest = excesses - std::min(excesses, kAlone);
  const size_t each = std::max<size_t>(1, (rest + kGroups - 1) / kGroups);
  std::vector<size_t> group(excesses);
  for (size_t i = 0; i < excesses; ++i) group[i] = i < rest ? i / each : (rest + each - 1) / each + (i - rest);
  return group;
}

class Limit {
 public:
  // `ascending`: all exceedances; the largest `above` are beyond this limit. `product` numbers the products from 0.
  Limit(const std::vector<Exceedance>& ascending, size_t above, double lowest, double values)
      : values_(values), kept_(ascending.end() - static_cast<ptrdiff_t>(above), ascending.end()) {
    fit_.limit = above == ascending.size() ? lowest : ascending[ascending.size() - above - 1].value;
    fit_.above = above;
    group_ = groups_of(above);
    sum_.assign(group_.back() + 1, 0);
    size_.assign(group_.back() + 1, 0);
    for (size_t i = 0; i < above; ++i) {
      sum_[group_[i]] += kept_[i].value - fit_.limit;
      size_[group_[i]] += 1;
    }
  }

  TailFit estimate(double per_value) {
    fit_.shape = fit(weighted(size_));
    fit_.threshold = threshold(fit_.shape, static_cast<double>(kept_.size()), per_value);
    return fit_;
  }

  // The threshold of a sample in which product p comes `times[p]` times.
  double sampled(const std::vector<uint32_t>& times, double per_value) const {
    std::vector<double> weight(sum_.size(), 0);
    double count = 0;
    for (size_t i = 0; i < kept_.size(); ++i) {
      weight[group_[i]] += times[kept_[i].product];
      count += times[kept_[i].product];
    }
    const Weighted sample = weighted(weight);
    return sample.value.size() < 2 ? fit_.limit : threshold(fit(sample), count, per_value);
  }

 private:
  Weighted weighted(const std::vector<double>& weight) const {
    Weighted groups;
    for (size_t g = 0; g < weight.size(); ++g) {
      if (weight[g] == 0) continue;
      groups.value.push_back(sum_[g] / size_[g]);
      groups.weight.push_back(weight[g]);
    }
    return groups;
  }

  double threshold(const GeneralizedPareto& shape, double above, double per_value) const {
    return fit_.limit + shape.quantile(std::min(1.0, per_value * values_ / above));
  }

  double values_;  // measured in all
  std::vector<Exceedance> kept_;
  std::vector<size_t> group_;
  std::vector<double> sum_, size_;  // of each group: excesses added up, how many
  TailFit fit_;
};

std::string text(const char* format, auto... values) {
  char line[256];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

void doubt(const Exceedances& measured, TailReport* report) {
  std::vector<std::string>& warnings = report->warnings;
  const double share = static_cast<double>(measured.kept.size()) / static_cast<double>(measured.values);
  if (share > kTailShare) {
    warnings.push_back(
        text("the limit is low: %.2g of the values lie above it, at most %.2g should", share, kTailShare));
  }
  const auto error = [](const TailFit& fit) { return (1 + fit.shape.xi) / std::sqrt(static_cast<double>(fit.above)); };
  const TailFit &low = report->fits[0], &high = report->fits[2];
  // The values of the high limit are among those of the low one, so the difference has the difference of the variances.
  const double apart = std::sqrt(std::pow(error(high), 2) - std::pow(error(low), 2));
  if (std::fabs(high.shape.xi - low.shape.xi) > kApart * apart) {
    warnings.push_back(text("the tail changes its shape: xi %.3f above %.3g, %.3f above %.3g", low.shape.xi, low.limit,
                            high.shape.xi, high.limit));
  }
  if (report->dispersion_z > kApart) {
    warnings.push_back(
        text("the exceedances come in clusters: their variance over products is %.2f times the mean, %.1f "
             "standard errors above 1",
             report->dispersion, report->dispersion_z));
  }
  if (report->decades > kFar) {
    warnings.push_back(text("the threshold lies %.1f decades beyond the data", report->decades));
  }
}

}  // namespace

double GeneralizedPareto::survival(double excess) const {
  if (xi == 0) return std::exp(-excess / scale);
  return std::exp(-std::log1p(xi * excess / scale) / xi);
}

double GeneralizedPareto::quantile(double p) const {
  const double depth = -std::log(p);
  if (xi == 0) return scale * depth;
  return scale * std::expm1(xi * depth) / xi;
}

GeneralizedPareto fit_generalized_pareto(std::span<const double> excesses) {
  return fit({{excesses.begin(), excesses.end()}, std::vector<double>(excesses.size(), 1)});
}

bool fit_tail(const Exceedances& measured, double rate, double tests, uint64_t seed, TailReport* report,
              std::string* error) {
  *report = {};
  const size_t kept = measured.kept.size();
  if (!(rate > 0) || !(tests > 0)) {
    *error = text("a rate of %g over %g tests: both must be above 0", rate, tests);
    return false;
  }
  for (const Exceedance& one : measured.kept) {
    if (std::isfinite(one.value) && one.value > measured.limit) continue;
    *error = text("an exceedance of %g: a number above the limit %g was expected", one.value, measured.limit);
    return false;
  }
  if (kept < kTailMin) {
    const double factor = static_cast<double>(kTailMin) / static_cast<double>(std::max<size_t>(kept, 1));
    *error = text("%zu exceedances of %llu products: %llu are needed, about %.3g products", kept,
                  static_cast<unsigned long long>(measured.products), static_cast<unsigned long long>(kTailMin),
                  std::ceil(factor * static_cast<double>(measured.products)));
    return false;
  }

  std::vector<Exceedance> ascending = measured.kept;
  std::sort(ascending.begin(), ascending.end(),
            [](const Exceedance& a, const Exceedance& b) { return a.value < b.value; });
  std::unordered_map<uint64_t, uint64_t> number;
  std::vector<double> counts;  // of the products that have any
  for (Exceedance& one : ascending) {
    const auto [at, fresh] = number.try_emplace(one.product, counts.size());
    if (fresh) counts.push_back(0);
    one.product = at->second;
    ++counts[at->second];
  }

  const auto values = static_cast<double>(measured.values);
  const double products = std::max(static_cast<double>(measured.products), static_cast<double>(counts.size()));
  report->per_value = rate / tests;
  report->decades = -std::log10(values * report->per_value);
  const double mean = static_cast<double>(kept) / products;
  double squares = (products - static_cast<double>(counts.size())) * mean * mean;
  for (const double count : counts) squares += (count - mean) * (count - mean);
  if (products > 1) {
    report->dispersion = squares / (products - 1) / mean;
    report->dispersion_z = (report->dispersion - 1) / std::sqrt(2 / (products - 1));
  }

  std::vector<Limit> limits;
  for (size_t f = 0; f < 3; ++f) {
    limits.emplace_back(ascending, static_cast<size_t>(kKept[f] * static_cast<double>(kept)), measured.limit, values);
    report->fits[f] = limits[f].estimate(report->per_value);
  }
  std::vector<double> drawn[3];
  std::mt19937_64 random(seed);
  std::poisson_distribution<uint32_t> once(1);
  std::vector<uint32_t> times(counts.size());
  for (int sample = 0; sample < kSamples; ++sample) {
    for (uint32_t& count : times) count = once(random);
    for (size_t f = 0; f < 3; ++f) drawn[f].push_back(limits[f].sampled(times, report->per_value));
  }
  for (size_t f = 0; f < 3; ++f) {
    std::sort(drawn[f].begin(), drawn[f].end());
    report->fits[f].upper =
        std::max(report->fits[f].threshold, drawn[f][static_cast<size_t>(kTailConfidence * kSamples)]);
    report->threshold = std::max(report->threshold, report->fits[f].upper);
  }
  doubt(measured, report);
  return true;
}

}  // namespace sdcguard

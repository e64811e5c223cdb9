// Student's t, bootstrap-t, Dunnett and equivalence intervals, verdicts, and the choice of
// repeats.

#include "study/analysis/statistics.h"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/non_central_chi_squared.hpp>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/tools/toms748_solve.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "predict/interval.h"

namespace millrace::study {

// Critical values of Dunnett's comparison by numerical integration.

namespace {

namespace bm = boost::math;

/// Fewest blocks for the integral. With fewer blocks the integrand peaks too sharply for the
/// midpoint rule, and Sidak's bound is hardly wider.
constexpr std::size_t kFewest = 5;

/// Given the reference's values, the rows are independent. Scaled by the standard deviation, the
/// reference is its mean w ~ N(0, 1) and the length r of its residuals, r^2 ~ chi^2 with n - 1
/// degrees of freedom. A row's mean difference is then normal around -w, and the sum of squares of
/// its differences is noncentral chi^2 with r^2. All integrands are smooth and vanish at both ends,
/// where the midpoint rule converges fastest.
class OwnVariance {
 public:
  OwnVariance(std::size_t rows, std::size_t blocks)
      : rows_(static_cast<double>(rows)), freedom_(static_cast<double>(blocks) - 1) {
    const double begin = std::max(0.0, std::sqrt(freedom_) - kTail);
    const double width = std::sqrt(freedom_) + kTail - begin;
    const bm::chi_squared residuals(freedom_);
    for (int i = 0; i < kLengths; ++i) {
      const double r = begin + (i + 0.5) * width / kLengths;
      const double weight = 2 * r * bm::pdf(residuals, r * r) * width / kLengths;
      if (weight < 1e-13) continue;
      Length length{weight, {}};
      const bm::non_central_chi_squared squares(freedom_, r * r);
      const double centre = std::sqrt(freedom_ + r * r);
      const double low = std::max(0.0, centre - kTail), high = centre + kTail;
      for (int j = 0; j < kSquares; ++j) {
        const double s = low + (j + 0.5) * (high - low) / kSquares;
        const double mass = 2 * s * bm::pdf(squares, s * s) * (high - low) / kSquares;
        if (mass > 1e-14) length.squares.push_back({s / std::sqrt(freedom_), mass});
      }
      lengths_.push_back(std::move(length));
    }
  }

  /// Returns P(max |T| <= c).
  double operator()(double c) const {
    const bm::normal normal;
    double sum = 0;
    for (int i = 0; i < kMeans; ++i) {
      const double w = (i + 0.5) * kTail / kMeans;  // the integrand is symmetric in w
      const double weight = 2 * bm::pdf(normal, w) * kTail / kMeans;
      for (const Length& length : lengths_) {
        double inside = 0;
        for (const Square& square : length.squares) {
          const double reach = c * square.deviation;
          inside += square.mass * 0.5 *
                    (std::erfc((w - reach) * M_SQRT1_2) - std::erfc((w + reach) * M_SQRT1_2));
        }
        sum += weight * length.weight * std::pow(inside, rows_);
      }
    }
    return sum;
  }

 private:
  static constexpr double kTail = 7;  ///< in standard deviations; the mass beyond is negligible
  static constexpr int kMeans = 24;
  static constexpr int kLengths = 48;
  static constexpr int kSquares = 48;
  struct Square {
    double deviation;
    double mass;
  };
  struct Length {
    double weight;
    std::vector<Square> squares;
  };
  double rows_;
  double freedom_;
  std::vector<Length> lengths_;
};

double solve(std::size_t rows, std::size_t blocks, double confidence) {
  const bm::students_t t(static_cast<double>(blocks) - 1);
  double low = bm::quantile(t, (1 + confidence) / 2);
  if (rows == 1) return low;
  // Sidak's bound: the value of c if the rows were independent.
  double high = bm::quantile(t, (1 + std::pow(confidence, 1 / static_cast<double>(rows))) / 2);
  if (blocks < kFewest) return high;
  const OwnVariance probability(rows, blocks);
  const auto excess = [&](double c) { return probability(c) - confidence; };
  const double below = excess(low), above = excess(high);
  if (above <= 0) return high;  // the bound is closer than the integral's error
  std::uintmax_t steps = 50;
  constexpr int kBits = 30;
  const auto [left, right] = bm::tools::toms748_solve(
      excess, low, high, below, above, bm::tools::eps_tolerance<double>(kBits), steps);
  return (left + right) / 2;
}

}  // namespace

double dunnett_critical(std::size_t rows, std::size_t blocks, double confidence) {
  // A value takes a tenth of a second, and simulated studies ask for the same one thousands of
  // times.
  static std::mutex mutex;
  static std::map<std::tuple<std::size_t, std::size_t, double>, double> known;
  const std::lock_guard lock(mutex);
  const auto [place, fresh] = known.try_emplace({rows, blocks, confidence}, 0);
  if (fresh) place->second = solve(rows, blocks, confidence);
  return place->second;
}

namespace {

constexpr double kEquivalence = 0.90;  ///< two one-sided tests of 5% each
constexpr double kPower = 0.80;

double t_critical(std::size_t count, double confidence) {
  return predict::t_quantile(static_cast<double>(count) - 1, confidence);
}

double critical_of(const std::vector<double>& values, double confidence, int resamples) {
  return values.size() < kRepeatsForBootstrap
             ? t_critical(values.size(), confidence)
             : bootstrap_critical(std::span(&values, 1), confidence, resamples);
}

/// Returns the effect, in standard errors of the mean, that is found with probability kPower.
double detectable_errors(double critical, std::size_t count) {
  const double freedom = static_cast<double>(count) - 1;
  const auto excess = [&](double errors) {
    const bm::non_central_t t(freedom, errors);
    return bm::cdf(bm::complement(t, critical)) + bm::cdf(t, -critical) - kPower;
  };
  double high = critical + 1;
  while (excess(high) < 0) high *= 2;
  std::uintmax_t steps = 50;
  constexpr int kBits = 40;
  const auto [left, right] =
      bm::tools::toms748_solve(excess, 0.0, high, bm::tools::eps_tolerance<double>(kBits), steps);
  return (left + right) / 2;
}

/// Returns detectable_errors() for a study that has not been run yet.
double planned_errors(std::size_t rows, std::uint64_t repeats) {
  // Simulated studies ask for the same values thousands of times.
  static std::mutex mutex;
  static std::map<std::pair<std::size_t, std::uint64_t>, double> known;
  const std::lock_guard lock(mutex);
  const auto [place, fresh] = known.try_emplace({rows, repeats}, 0);
  if (fresh)
    place->second =
        detectable_errors(dunnett_critical(rows, repeats, kConfidenceAfterPilot), repeats);
  return place->second;
}

predict::Interval exponential(const predict::Interval& of) {
  return {std::exp(of.mean), std::exp(of.low), std::exp(of.high)};
}

}  // namespace

double bootstrap_critical(std::span<const std::vector<double>> rows, double confidence,
                          int resamples) {
  const std::size_t count = rows[0].size();
  const auto n = static_cast<double>(count);
  std::vector<predict::Moments> moments;
  for (const auto& row : rows) moments.push_back(predict::moments_of(row));
  std::vector<double> largest(static_cast<std::size_t>(resamples));
  std::vector<std::uint32_t> drawn(count);
  std::uint64_t counter = 0;
  for (double& most : largest) {
    for (auto& block : drawn)
      block = static_cast<std::uint32_t>(((base::mix64(counter++) >> 32) * count) >> 32);
    most = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      double sum = 0, squares = 0;
      for (const auto block : drawn) {
        const double value = rows[r][block] - moments[r].mean;
        sum += value;
        squares += value * value;
      }
      if (sum == 0) continue;
      const double variance = (squares - sum * sum / n) / (n - 1);
      // Resampling one block over and over gives no variance: such a resample lies outside any
      // interval.
      const bool none = variance <= 1e-20 * squares;
      most = std::max(most, none ? std::numeric_limits<double>::infinity()
                                 : std::abs(sum) / std::sqrt(n * variance));
    }
  }
  const auto rank = std::min<std::size_t>(
      static_cast<std::size_t>(std::ceil(confidence * (resamples + 1))) - 1, largest.size() - 1);
  std::nth_element(largest.begin(), largest.begin() + static_cast<std::ptrdiff_t>(rank),
                   largest.end());
  return largest[rank];
}

predict::Interval figure_interval(std::span<const double> values, bool logarithmic) {
  std::vector<double> scaled(values.begin(), values.end());
  logarithmic =
      logarithmic && std::all_of(scaled.begin(), scaled.end(), [](double v) { return v > 0; });
  if (logarithmic)
    for (double& value : scaled) value = std::log(value);
  const double critical =
      scaled.size() < 2 ? predict::kNaN : critical_of(scaled, kConfidence, kResamples);
  const predict::Interval interval = predict::interval_at(scaled, critical);
  return logarithmic ? exponential(interval) : interval;
}

double smallest_detectable(double critical, double deviation, std::size_t count) {
  if (deviation == 0) return 0;
  if (!std::isfinite(critical)) return predict::kNaN;
  return detectable_errors(critical, count) * deviation / std::sqrt(static_cast<double>(count));
}

double detectable_ratio(const Comparison& comparison) {
  return std::exp(
      smallest_detectable(comparison.critical, comparison.deviation, comparison.blocks));
}

double detectable_effect(const Comparison& comparison) {
  return comparison.difference
             ? smallest_detectable(comparison.critical, comparison.deviation, comparison.blocks)
             : detectable_ratio(comparison) - 1;
}

std::string name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::none:
      return "-";
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::equivalent:
      return "equivalent";
    case Verdict::inconclusive:
      return "inconclusive";
    case Verdict::higher:
      return "higher";
    case Verdict::lower:
      return "lower";
    case Verdict::identical:
      return "identical";
  }
  return "-";
}

std::vector<double> log_ratios(std::span<const double> cell, std::span<const double> reference) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(cell.size(), reference.size()); ++i)
    ratios.push_back(cell[i] > 0 && reference[i] > 0 ? std::log(cell[i] / reference[i])
                                                     : predict::kNaN);
  return ratios;
}

std::vector<Comparison> compare(std::span<const std::vector<double>> rows,
                                const CompareOptions& options) {
  std::vector<Comparison> results;
  if (rows.empty()) return results;
  const std::size_t count = rows[0].size();
  const double wider = std::sqrt(1 + static_cast<double>(count) * options.overlap);
  const double critical =
      wider * (count < 2 ? predict::kNaN
               : count < kRepeatsForBootstrap
                   ? dunnett_critical(rows.size(), count, options.confidence)
                   : bootstrap_critical(rows, options.confidence, options.resamples));
  const double margin = options.differences ? options.margin : std::log1p(options.margin);
  const auto scaled = [&](const predict::Interval& of) {
    return options.differences ? of : exponential(of);
  };
  const auto direction = [&](bool above) {
    if (!options.is_speed) return above ? Verdict::higher : Verdict::lower;
    return above == options.more_is_faster ? Verdict::faster : Verdict::slower;
  };
  for (const auto& row : rows) {
    Comparison result;
    const predict::Interval simultaneous = predict::interval_at(row, critical);
    const double own =
        count < 2 ? predict::kNaN : wider * critical_of(row, kEquivalence, options.resamples);
    const predict::Interval equivalence = predict::interval_at(row, own);
    result.ratio = scaled(simultaneous);
    result.equivalence = scaled(equivalence);
    result.difference = options.differences;
    result.critical = critical;
    result.deviation = predict::moments_of(row).deviation;
    result.blocks = count;
    if (count >= kRepeatsForVerdict && std::isfinite(simultaneous.mean)) {
      if (std::all_of(row.begin(), row.end(), [](double effect) { return effect == 0; }))
        result.verdict = Verdict::identical;
      else if (equivalence.low > -margin && equivalence.high < margin)
        result.verdict = Verdict::equivalent;
      else if (simultaneous.low > 0 || simultaneous.high < 0)
        result.verdict = direction(simultaneous.low > 0);
      else
        result.verdict = Verdict::inconclusive;
    }
    results.push_back(result);
  }
  return results;
}

RepeatChoice choose_repeats(std::span<const std::vector<double>> rows, double margin,
                            std::uint64_t most, bool differences) {
  const auto scaled = [&](double effect) { return differences ? effect : std::exp(effect); };
  if (rows.empty()) return {kRepeatsForVerdict, true, scaled(0)};
  double deviation = 0;
  for (const auto& row : rows) deviation = std::max(deviation, predict::moments_of(row).deviation);
  const double freedom = static_cast<double>(rows[0].size()) - 1;
  deviation *= std::sqrt(freedom / bm::quantile(bm::chi_squared(freedom), 1 - kPower));
  const auto detectable = [&](std::uint64_t repeats) {
    return deviation / std::sqrt(static_cast<double>(repeats)) *
           planned_errors(rows.size(), repeats);
  };
  const double wanted = differences ? margin : std::log1p(margin);
  std::uint64_t low = kRepeatsForVerdict - 1,
                high = std::max<std::uint64_t>(most, kRepeatsForVerdict);
  const double best = detectable(high);
  if (!(best <= wanted)) return {high, false, scaled(best)};
  while (high - low > 1) {  // the detectable effect falls with the repeats
    const std::uint64_t middle = (low + high) / 2;
    (detectable(middle) <= wanted ? high : low) = middle;
  }
  return {high, true, scaled(detectable(high))};
}

}  // namespace millrace::study

// Critical values of Dunnett's comparison by numerical integration.
#include "study/analysis/dunnett.h"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/non_central_chi_squared.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/tools/toms748_solve.hpp>
#include <cmath>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

namespace millrace::study {
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

}  // namespace millrace::study

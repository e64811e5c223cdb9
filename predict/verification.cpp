// Interleaves baselines and changes, repeats void runs, and takes medians of valid ratios.
#include "predict/verification.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "predict/interval.h"

namespace millrace::predict {

VerificationOrder verification_order(std::span<const std::size_t> changes, int blocks,
                                     std::uint64_t seed) {
  std::mt19937_64 shuffle(seed);
  std::vector<std::size_t> order(changes.begin(), changes.end());
  VerificationOrder all;
  for (int block = 0; block < blocks; ++block) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[shuffle() % i]);
    all.push_back(order);
  }
  return all;
}

std::size_t planned_runs(const VerificationOrder& order) {
  std::size_t runs = 0;
  for (const auto& block : order) runs += 2 * block.size() + 1;
  return runs;
}

namespace {

std::vector<double> logarithms(const std::vector<double>& values) {
  std::vector<double> logs;
  for (const double one : values) logs.push_back(std::log(one));
  return logs;
}

/// Returns the 90% interval's width of a mean of one value per row, by the scatter of the row in
/// the middle: the median difference between a row's successive values is sqrt(2) * 0.6745 standard
/// deviations. A few rows that scatter more do not matter.
double usual_width(const std::vector<std::vector<double>>& rows) {
  std::vector<double> differences;
  for (const auto& row : rows)
    for (std::size_t i = 1; i < row.size(); ++i)
      differences.push_back(std::abs(row[i] - row[i - 1]));
  return 2 * 1.6449 * median(std::move(differences)) / (std::numbers::sqrt2 * 0.6745);
}

}  // namespace

Verification::Verification(const VerificationOrder& order, const Run& run, bool accept_noise,
                           std::set<std::size_t> once)
    : accept_noise_(accept_noise), once_(std::move(once)), repeats_left_(planned_runs(order) / 2) {
  if (!order.empty()) changes_ = order.front();
  if (!changes_.empty()) ratios_.resize(*std::max_element(changes_.begin(), changes_.end()) + 1);
  all_.resize(ratios_.size());
  planned_.resize(ratios_.size());
  for (const auto& planned : order) {
    const std::vector<std::size_t> block = unsettled(planned);
    if (block.empty()) continue;
    for (const std::size_t change : block) ++planned_[change];
    TimedRun before = run_valid({}, run);
    for (const std::size_t change : block) {
      if (before.failed) break;
      const TimedRun changed = run_valid(change, run);
      if (changed.failed) {
        failed_.insert(change);
        continue;  // the baseline before it serves the next change
      }
      const TimedRun after = run_valid({}, run);
      const double baseline = (before.images_per_s + after.images_per_s) / 2;
      if (baseline > 0 && !after.failed) {
        all_[change].push_back(changed.images_per_s / baseline);
        if (is_valid(before) && is_valid(changed) && is_valid(after))
          ratios_[change].push_back(all_[change].back());
      }
      before = after;
    }
    stopped_ = before.failed || !any_valid_;
    if (stopped_) break;
  }
}

std::vector<std::size_t> Verification::unsettled(std::vector<std::size_t> block) const {
  std::vector<std::vector<double>> logs;
  for (const auto& ratios : ratios_) logs.push_back(logarithms(ratios));
  const double most = std::log(kSettled);
  const double usual = usual_width(logs);
  std::erase_if(block, [&](std::size_t change) {
    const std::vector<double>& own = logs[change];
    if (failed_.contains(change)) return true;
    if (once_.contains(change)) return !own.empty();
    if (own.size() < 2 || own.size() < all_[change].size()) return false;
    const Interval interval = t_interval(own, kIntervalLevel);
    const auto [least, largest] = std::minmax_element(own.begin(), own.end());
    return interval.high - interval.low <= most ||
           (*largest - *least <= most && usual <= most * std::sqrt(own.size()));
  });
  return block;
}

TimedRun Verification::run_valid(std::optional<std::size_t> change, const Run& run) {
  for (int left = kTries - 1;; --left) {
    runs_.push_back(run(change));
    runs_.back().change = change;
    const bool valid = is_valid(runs_.back());
    any_valid_ |= valid;
    if (valid || runs_.back().failed || left == 0 || repeats_left_ == 0 || !any_valid_)
      return runs_.back();
    --repeats_left_;
  }
}

int Verification::void_runs() const {
  return static_cast<int>(
      std::count_if(runs_.begin(), runs_.end(), [](const TimedRun& one) { return one.is_void(); }));
}

std::optional<double> Verification::ratio(std::size_t change) const {
  const std::vector<double>& valid = ratios_.at(change);
  if (2 * valid.size() <= (once_.contains(change) ? 0 : planned_[change])) return std::nullopt;
  return median(valid);
}

std::optional<double> Verification::disturbed_ratio(std::size_t change) const {
  if (all_.at(change).empty()) return std::nullopt;
  return median(all_[change]);
}

std::optional<std::pair<double, double>> Verification::interval(std::size_t change) const {
  if (ratios_.at(change).size() < 2) return std::nullopt;
  const Interval interval = t_interval(logarithms(ratios_[change]), kIntervalLevel);
  return std::pair{std::exp(interval.low), std::exp(interval.high)};
}

std::vector<double> Verification::baselines() const {
  std::vector<double> rates;
  for (const TimedRun& one : runs_)
    if (!one.change && is_valid(one)) rates.push_back(one.images_per_s);
  return rates;
}

std::optional<double> Verification::baseline() const {
  std::vector<double> rates = baselines();
  if (rates.empty()) return std::nullopt;
  return median(std::move(rates));
}

double Verification::baseline_scatter() const {
  const Interval one = interval_at(logarithms(baselines()), 1);  // a standard error to each side
  const auto count = static_cast<double>(baselines().size());
  return count < 2 ? 0 : std::exp((one.high - one.mean) * std::sqrt(count)) - 1;
}

bool Verification::is_void() const {
  if (!changes_.empty() && failed_.size() == changes_.size()) return true;
  return std::any_of(changes_.begin(), changes_.end(), [this](std::size_t change) {
    return !failed_.contains(change) && !ratio(change);
  });
}

}  // namespace millrace::predict

// Interleaves baselines and changes, repeats void runs, and takes medians of valid ratios.
#include "study/analysis/verification.h"

#include <algorithm>
#include <random>
#include <utility>

#include "study/analysis/whatif.h"

namespace millrace::study {

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

Verification::Verification(const VerificationOrder& order, const Run& run)
    : blocks_(order.size()), repeats_left_(planned_runs(order) / 2) {
  if (!order.empty()) changes_ = order.front();
  if (!changes_.empty()) ratios_.resize(*std::max_element(changes_.begin(), changes_.end()) + 1);
  for (const auto& block : order) {
    TimedRun before = run_valid({}, run);
    for (const std::size_t change : block) {
      const TimedRun changed = run_valid(change, run);
      const TimedRun after = run_valid({}, run);
      const double baseline = (before.images_per_s + after.images_per_s) / 2;
      if (!before.is_void() && !changed.is_void() && !after.is_void() && baseline > 0)
        ratios_[change].push_back(changed.images_per_s / baseline);
      before = after;
    }
  }
}

TimedRun Verification::run_valid(std::optional<std::size_t> change, const Run& run) {
  for (int left = kTries - 1;; --left) {
    runs_.push_back(run(change));
    runs_.back().change = change;
    if (!runs_.back().is_void() || left == 0 || repeats_left_ == 0) return runs_.back();
    --repeats_left_;
  }
}

int Verification::void_runs() const {
  return static_cast<int>(
      std::count_if(runs_.begin(), runs_.end(), [](const TimedRun& one) { return one.is_void(); }));
}

std::optional<double> Verification::ratio(std::size_t change) const {
  const std::vector<double>& valid = ratios_.at(change);
  if (2 * valid.size() <= blocks_) return std::nullopt;
  return middle_of(valid);
}

std::optional<double> Verification::baseline() const {
  std::vector<double> rates;
  for (const TimedRun& one : runs_)
    if (!one.change && !one.is_void()) rates.push_back(one.images_per_s);
  if (rates.empty()) return std::nullopt;
  return middle_of(std::move(rates));
}

bool Verification::is_void() const {
  return std::any_of(changes_.begin(), changes_.end(),
                     [this](std::size_t change) { return !ratio(change); });
}

}  // namespace millrace::study

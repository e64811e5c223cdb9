// Lists candidate changes, scores predictions, and searches for the smallest sufficient loader.
#include "study/analysis/whatif.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::study {
namespace {

/// A simulated device faster than a thread's wake-up would measure the scheduler.
constexpr double kShortestUpdateMs = 0.05;

constexpr double kTie = 1.01;

std::string setting(const char* key, double value) { return fmt::format("{}={:.6g}", key, value); }

std::string_view key_of(std::string_view override) {
  return override.substr(0, override.find('='));
}

/// Returns whether a key changes the speed of a run and nothing that it computes.
bool only_speed(std::string_view key) {
  return key == "loader.workers" || key == "loader.prefetch" || key == "loader.io_threads" ||
         key == "loader.grain" || key == "simulated.update_ms" || key.starts_with("data.storage.");
}

bool can_be_given(const Change& change) {
  if (change.packed) return true;
  return change.runnable() && std::all_of(change.overrides.begin(), change.overrides.end(),
                                          [](const auto& one) { return only_speed(key_of(one)); });
}

const Outcome* best_of(std::span<const Outcome> outcomes, const auto& considered) {
  const Outcome* best = nullptr;
  for (const Outcome& one : outcomes)
    if (considered(one.change) && (best == nullptr || one.predicted > kTie * best->predicted))
      best = &one;
  return best;
}

/// Adds storage that is faster or slower: every limit at once, and each alone.
void add_storage(const ChangeFacts& facts, std::vector<Change>& list) {
  for (const double speed : {0.25, 0.5, 2.0, 4.0}) {
    std::vector<std::string> all;
    if (facts.bandwidth > 0)
      all.push_back(setting("data.storage.bandwidth", facts.bandwidth * speed));
    if (facts.latency > 0) all.push_back(setting("data.storage.latency", facts.latency / speed));
    if (facts.iops > 0) all.push_back(setting("data.storage.iops", facts.iops * speed));
    if (all.size() > 1 && speed > 1)
      for (const std::string& one : all) list.push_back({.overrides = {one}});
    list.push_back({.overrides = std::move(all)});
  }
}

}  // namespace

std::string Change::text() const {
  std::vector<std::string> all = overrides;
  all.insert(all.end(), assumed.begin(), assumed.end());
  return fmt::format("{}", fmt::join(all, " "));
}

std::vector<Change> list_changes(const ChangeFacts& facts) {
  std::vector<Change> list;
  const auto add = [&list](std::vector<std::string> overrides) {
    list.push_back({.overrides = std::move(overrides)});
  };
  for (const int workers : {0, 1, 2, 3, 4, 8}) {
    if (workers == facts.workers || workers > 2 * facts.cores) continue;
    add({fmt::format("loader.workers={}", workers)});
  }
  if (facts.workers > 0)
    for (const int prefetch : {1, 2, 8})
      if (prefetch != facts.prefetch) add({fmt::format("loader.prefetch={}", prefetch)});
  for (const std::string& op : facts.without_op) add({op});

  if (facts.bandwidth > 0 || facts.latency > 0 || facts.iops > 0) {
    if (facts.workers > 0)
      for (const int threads : {1, 2, 16})
        if (threads != facts.io_threads) add({fmt::format("loader.io_threads={}", threads)});
    if (facts.packable)
      list.push_back({.overrides = {}, .packed = true, .assumed = {"data=packed"}});
    add_storage(facts, list);
  }

  for (const double speed : {0.25, 0.5, 2.0, 4.0, 8.0}) {
    if (facts.simulated && facts.update_ms / speed < kShortestUpdateMs) continue;
    if (facts.simulated) {
      add({setting("simulated.update_ms", facts.update_ms / speed)});
    } else if (speed > 1) {
      list.push_back({.overrides = {},
                      .device_speed = speed,
                      .assumed = {fmt::format("device={:g}x as fast", speed)}});
    }
  }
  for (const double factor : {0.25, 0.5, 2.0, 4.0}) {
    const auto batch = static_cast<std::int64_t>(static_cast<double>(facts.batch) * factor);
    if (batch >= 1 && batch <= facts.samples) add({fmt::format("loader.batch={}", batch)});
  }
  if (facts.encoded)
    list.push_back({.overrides = {}, .decode_free = true, .assumed = {"decode=free"}});
  for (const int factor : {2, 4}) {
    const int cores = facts.cores * factor;
    list.push_back({.overrides = {fmt::format("loader.workers={}", cores)},
                    .cores = cores,
                    .assumed = {fmt::format("cores={}", cores)}});
  }
  return list;
}

std::optional<double> Outcome::error() const {
  if (!measured || *measured <= 0) return std::nullopt;
  return predicted / *measured - 1;
}

double middle_of(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

Score score_of(std::span<const Outcome> outcomes) {
  Score score;
  std::vector<double> errors;
  double ours = 0;
  double none = 0;
  for (const Outcome& one : outcomes) {
    const auto error = one.error();
    if (!error) continue;
    const double effect = std::max(std::abs(one.predicted - 1), std::abs(*one.measured - 1));
    if (effect < kCountedEffect) continue;
    errors.push_back(std::abs(*error));
    ours += std::abs(*error);
    none += std::abs(1 / *one.measured - 1);
  }
  if (errors.empty()) return score;
  score.counted = static_cast<int>(errors.size());
  score.worst_error = *std::max_element(errors.begin(), errors.end());
  score.median_error = middle_of(std::move(errors));
  // Where nothing changed, "no change" has no error: it is given that of the least counted effect.
  const double least = score.counted * (1 - 1 / (1 + kCountedEffect));
  score.skill = 1 - ours / std::max(none, least);
  return score;
}

const Outcome* most_helpful(std::span<const Outcome> outcomes) {
  const Outcome* best = best_of(outcomes, can_be_given);
  return best != nullptr && best->predicted >= kWorthwhile ? best : nullptr;
}

std::vector<const Outcome*> storage_changes(std::span<const Outcome> outcomes) {
  std::vector<const Outcome*> all;
  const auto add = [&](const auto& considered) {
    if (const Outcome* best = best_of(outcomes, considered)) all.push_back(best);
  };
  for (const std::string_view key :
       {"data.storage.bandwidth", "data.storage.latency", "data.storage.iops", "loader.io_threads"})
    add([&](const Change& change) {
      return change.runnable() && change.overrides.size() == 1 &&
             key_of(change.overrides[0]) == key;
    });
  add([](const Change& change) { return change.packed; });
  return all;
}

Advice advise(const ReplayInput& input, int max_workers, double inline_sample_s, double part) {
  const auto rate = [&](int workers, int prefetch) {
    ReplayInput with = input;
    with.workers = workers;
    with.prefetch = prefetch;
    if (workers == 0) {
      with.sample_s = inline_sample_s;
      with.io_threads = 0;
    }
    return replay(with).images_per_s;
  };
  constexpr int kRoom[] = {1, 2, 4, 8, 16};
  Advice advice;
  std::vector<double> by_workers;
  for (int workers = 0; workers <= max_workers; ++workers)
    by_workers.push_back(rate(workers, std::max({kRoom[2], workers, input.prefetch})));
  advice.best_images_per_s = *std::max_element(by_workers.begin(), by_workers.end());
  while (by_workers[static_cast<std::size_t>(advice.workers)] < part * advice.best_images_per_s)
    ++advice.workers;
  advice.prefetch = std::max({kRoom[2], advice.workers, input.prefetch});
  advice.images_per_s = by_workers[static_cast<std::size_t>(advice.workers)];
  for (const int prefetch : kRoom) {
    if (advice.workers == 0 || prefetch >= advice.prefetch) break;
    const double with = rate(advice.workers, prefetch);
    if (with < part * advice.best_images_per_s) continue;
    advice.prefetch = prefetch;
    advice.images_per_s = with;
    break;
  }
  return advice;
}

}  // namespace millrace::study

// Lists candidate changes, predicts their effect, and compares predictions with measurements.

#include "study/analysis/whatif.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <utility>

#include "millrace/error.h"
#include "study/analysis/statistics.h"
#include "study/records/run_files.h"

namespace millrace::study {

// Lists candidate changes, scores predictions, and searches for the smallest sufficient loader.

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
         key == "loader.grain" || key == "data.remote.fetch" || key == "simulated.update_ms" ||
         key.starts_with("data.storage.");
}

/// Returns the outcome with the largest `value`; of those within kTie of it, the first. NaN is
/// never the largest.
const Outcome* best_of(std::span<const Outcome> outcomes, const auto& considered,
                       const auto& value) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const Outcome& one : outcomes)
    if (considered(one) && value(one) > largest) largest = value(one);
  for (const Outcome& one : outcomes)
    if (considered(one) && kTie * value(one) >= largest) return &one;
  return nullptr;
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

/// Adds other ways to a server.
void add_remote(const ChangeFacts& facts, std::vector<Change>& list) {
  if (facts.workers > 0)
    for (const int threads : {facts.io_threads / 2, 2 * facts.io_threads, 4 * facts.io_threads})
      if (threads > 0 && threads != facts.io_threads)
        list.push_back({.overrides = {fmt::format("loader.io_threads={}", threads)}});
  list.push_back({.overrides = {}, .first_byte = 0.5, .assumed = {"remote.first_byte=0.5x"}});
  list.push_back(cached_set());
}

}  // namespace

std::string Packing::text() const {
  return fmt::format("pack={}{}{}", raw ? "raw" : "", raw && short_side > 0 ? "," : "",
                     short_side > 0 ? fmt::format("short-side={}", short_side) : "");
}

std::optional<Packing> parse_packing(std::string_view text) {
  constexpr std::string_view kStart = "pack=", kSide = "short-side=";
  if (!text.starts_with(kStart)) return std::nullopt;
  Packing packing;
  std::string_view left = text.substr(kStart.size());
  while (!left.empty()) {
    const std::size_t end = std::min(left.find(','), left.size());
    const std::string_view word = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    if (word == "raw") {
      packing.raw = true;
    } else if (word.starts_with(kSide)) {
      const std::string_view digits = word.substr(kSide.size());
      std::from_chars(digits.data(), digits.data() + digits.size(), packing.short_side);
    }
  }
  if (packing.text() != text || packing.short_side < 0 || packing.short_side > 65'535 ||
      !(packing.raw || packing.lossy()))
    throw UsageError(fmt::format("{}: not a way to pack", text),
                     "write pack=raw, pack=short-side=256, or pack=raw,short-side=256");
  return packing;
}

std::vector<Packing> list_packings(int output_side) {
  const int side = (output_side * 8 + 7 * 32 - 1) / (7 * 32) * 32;
  return {{.short_side = side}, {.raw = true}, {.short_side = side, .raw = true}};
}

Change cached_set(bool fetched) {
  return {.overrides = {"data.remote.fetch=shards"},
          .cached = true,
          .fetched = fetched,
          .assumed = {"cache=warm"}};
}

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
  for (const int workers : {0, 1, 2, 3, 4, 8, 16, 32, 64}) {
    if (workers == facts.workers || workers > (workers > 8 ? 1 : 2) * facts.cores) continue;
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

  if (facts.requested) add_remote(facts, list);

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

bool Outcome::has_effect() const {
  return error() && std::max(std::abs(predicted - 1), std::abs(*measured - 1)) >= kCountedEffect;
}

double Outcome::lower() const {
  if (measured) return measured_interval ? measured_interval->first : *measured;
  return std::isfinite(low) ? low : predicted;
}

double middle_of(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

bool is_arithmetic(const Change& change, bool simulated) {
  return simulated &&
         std::any_of(change.overrides.begin(), change.overrides.end(), [](const auto& one) {
           return key_of(one).starts_with("simulated.") || key_of(one).starts_with("loader.batch");
         });
}

Score score_of(std::span<const Outcome> outcomes, bool simulated) {
  Score score;
  std::vector<double> errors;
  double ours = 0;
  double none = 0;
  for (const Outcome& one : outcomes) {
    const auto error = one.error();
    if (!error) continue;
    if (std::isfinite(one.low)) {
      ++score.with_interval;
      score.held += *one.measured >= one.low && *one.measured <= one.high;
    }
    if (!one.has_effect()) continue;
    if (is_arithmetic(one.change, simulated)) {
      ++score.arithmetic;
      continue;
    }
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

bool can_be_given(const Change& change) {
  if (change.packed) return true;
  if (change.packing) return false;
  const bool possible = change.runnable() || change.cached;
  return possible && std::all_of(change.overrides.begin(), change.overrides.end(),
                                 [](const auto& one) { return only_speed(key_of(one)); });
}

const Outcome* most_helpful(std::span<const Outcome> outcomes) {
  return best_of(
      outcomes,
      [](const Outcome& one) { return can_be_given(one.change) && one.lower() >= kWorthwhile; },
      [](const Outcome& one) { return one.lower(); });
}

std::vector<const Outcome*> storage_changes(std::span<const Outcome> outcomes) {
  std::vector<const Outcome*> all;
  const auto add = [&](const auto& considered) {
    if (const Outcome* best =
            best_of(outcomes, considered, [](const Outcome& one) { return one.predicted; }))
      all.push_back(best);
  };
  for (const std::string_view key :
       {"data.storage.bandwidth", "data.storage.latency", "data.storage.iops", "loader.io_threads"})
    add([&](const Outcome& one) {
      return one.change.runnable() && one.change.overrides.size() == 1 &&
             key_of(one.change.overrides[0]) == key;
    });
  add([](const Outcome& one) { return one.change.packed; });
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

// Turns a summary into the replay's input.

std::optional<ReplayInput> recorded_input(const Summary& s, bool storage) {
  const LoaderCpuRecord& cpu = s.loader_cpu_s;
  const double* const log = find(s.spans, "log");
  const double numbers[] = {to_number(s.cores),           to_number(s.workers),
                            to_number(s.prefetch),        to_number(s.update_s_per_step),
                            to_number(s.dataset.samples), to_number(cpu.read),
                            to_number(cpu.decode),        to_number(cpu.augment),
                            log == nullptr ? NAN : *log};
  const bool known = std::all_of(std::begin(numbers), std::end(numbers),
                                 [](double number) { return number >= 0; });
  if (!known || !(s.images > 0) || !(s.steps > 0) || !(s.batch >= 1) || s.world_size != 1 ||
      s.cores < 1 || s.dataset.samples < 1 || storage || s.resumed_from_step > 0 ||
      s.auto_workers.first || s.batch > kMaxReplayedBatch ||
      std::max({s.cores, s.workers, s.io_threads, s.prefetch, s.threads}) > kMaxReplayed)
    return {};
  const bool on_cpu = s.device.value_or("").starts_with("cpu");
  const double images = to_number(s.images);
  ReplayInput in;
  in.cores = static_cast<int>(*s.cores);
  in.workers = static_cast<int>(*s.workers);
  in.io_threads = static_cast<int>(std::max<std::int64_t>(0, s.io_threads.value_or(0)));
  in.prefetch = static_cast<int>(*s.prefetch);
  in.batch = *s.batch;
  in.samples = static_cast<std::uint64_t>(*s.dataset.samples);
  in.sample_s = (*cpu.decode + *cpu.augment) / images;
  in.read_s = *cpu.read / images;
  in.update_s = *s.update_s_per_step;
  in.update_threads = on_cpu ? std::max(1, static_cast<int>(s.threads.value_or(0))) : 0;
  in.frees_early = !on_cpu;  // on the CPU the model reads the slot itself
  in.host_s = *log / to_number(s.steps);
  return in;
}

// Interleaves baselines and changes, repeats void runs, and takes medians of valid ratios.

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

constexpr double kIntervalConfidence = 0.9;

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
  return 2 * 1.6449 * middle_of(std::move(differences)) / (std::numbers::sqrt2 * 0.6745);
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
      const TimedRun changed = run_valid(change, run);
      const TimedRun after = run_valid({}, run);
      const double baseline = (before.images_per_s + after.images_per_s) / 2;
      if (baseline > 0) {
        all_[change].push_back(changed.images_per_s / baseline);
        if (!disturbs(before) && !disturbs(changed) && !disturbs(after))
          ratios_[change].push_back(all_[change].back());
      }
      before = after;
    }
    stopped_ = !any_valid_;
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
    if (once_.contains(change)) return !own.empty();
    if (own.size() < 2 || own.size() < all_[change].size()) return false;
    const Interval interval = t_interval(own, kIntervalConfidence);
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
    const bool valid = !disturbs(runs_.back());
    any_valid_ |= valid;
    if (valid || left == 0 || repeats_left_ == 0 || !any_valid_) return runs_.back();
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
  return middle_of(valid);
}

std::optional<double> Verification::disturbed_ratio(std::size_t change) const {
  if (all_.at(change).empty()) return std::nullopt;
  return middle_of(all_[change]);
}

std::optional<std::pair<double, double>> Verification::interval(std::size_t change) const {
  if (ratios_.at(change).size() < 2) return std::nullopt;
  const Interval interval = t_interval(logarithms(ratios_[change]), kIntervalConfidence);
  return std::pair{std::exp(interval.low), std::exp(interval.high)};
}

std::vector<double> Verification::baselines() const {
  std::vector<double> rates;
  for (const TimedRun& one : runs_)
    if (!one.change && !disturbs(one)) rates.push_back(one.images_per_s);
  return rates;
}

std::optional<double> Verification::baseline() const {
  std::vector<double> rates = baselines();
  if (rates.empty()) return std::nullopt;
  return middle_of(std::move(rates));
}

double Verification::baseline_scatter() const {
  const Interval one = interval_at(logarithms(baselines()), 1);  // a standard error to each side
  const auto count = static_cast<double>(baselines().size());
  return count < 2 ? 0 : std::exp((one.high - one.mean) * std::sqrt(count)) - 1;
}

bool Verification::is_void() const {
  return std::any_of(changes_.begin(), changes_.end(),
                     [this](std::size_t change) { return !ratio(change); });
}

}  // namespace millrace::study

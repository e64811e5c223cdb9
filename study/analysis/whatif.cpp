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
#include "predict/rules.h"
#include "predict/score.h"
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
  return error() && predict::Prediction{.predicted = predicted, .measured = *measured}.has_effect();
}

double Outcome::lower() const {
  if (measured) return measured_interval ? measured_interval->first : *measured;
  return std::isfinite(low) ? low : predicted;
}

bool is_arithmetic(const Change& change, bool simulated) {
  return simulated &&
         std::any_of(change.overrides.begin(), change.overrides.end(), [](const auto& one) {
           return key_of(one).starts_with("simulated.") || key_of(one).starts_with("loader.batch");
         });
}

predict::Score score_of(std::span<const Outcome> outcomes, bool simulated) {
  std::vector<predict::Prediction> measured;
  for (const Outcome& one : outcomes)
    if (one.error())
      measured.push_back(
          {one.predicted, *one.measured, one.low, one.high, is_arithmetic(one.change, simulated)});
  return predict::score_of(measured);
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
      [](const Outcome& one) {
        return can_be_given(one.change) && one.lower() >= predict::kWorthwhile;
      },
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

Advice advise(const predict::ReplayInput& input, int max_workers, double inline_sample_s,
              double part) {
  const auto rate = [&](int workers, int prefetch) {
    predict::ReplayInput with = input;
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

std::optional<predict::ReplayInput> recorded_input(const Summary& s, bool storage) {
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
      s.cores < 1 || s.prefetch < 1 || s.dataset.samples < 1 || storage ||
      s.resumed_from_step > 0 || s.auto_workers.first || s.batch > kMaxReplayedBatch ||
      std::max({s.cores, s.workers, s.io_threads, s.prefetch, s.threads}) > kMaxReplayed)
    return {};
  const bool on_cpu = s.device.value_or("").starts_with("cpu");
  const double images = to_number(s.images);
  predict::ReplayInput in;
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

}  // namespace millrace::study

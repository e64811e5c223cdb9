// Measures a loader that is run alone, and writes its batches to a file.

#include "tools/commands/bench_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "millrace/error.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

StageTotals minus(StageTotals total, const StageTotals& before) {
  total.calls -= before.calls;
  total.wall_s -= before.wall_s;
  total.cpu_s -= before.cpu_s;
  total.bytes -= before.bytes;
  return total;
}

Json percentiles(const measure::Quantiles& all) {
  return {{"p50", all.at(0.5)}, {"p90", all.at(0.9)}, {"p99", all.at(0.99)}};
}

/// Returns the batches of the warm-up: as asked, or for a run that ends early those that the loader
/// makes at once when it starts. A run too short for that has none: if only a part of them were
/// left out, the rest would count as measured although they were made before.
std::uint64_t warmup_of(const Recipe& recipe, const BenchLimits& limits) {
  const std::int64_t asked = recipe.integer("bench.warmup");
  if (asked >= 0) return static_cast<std::uint64_t>(asked);
  const bool ends_early = recipe.integer("bench.batches") > 0 || recipe.number("bench.seconds") > 0;
  if (!ends_early) return 0;
  const auto at_once = static_cast<std::uint64_t>(recipe.integer("loader.prefetch")) + 1;
  return limits.batches && *limits.batches < 2 * at_once ? 0 : at_once;
}

}  // namespace

BenchLimits BenchLimits::of(const Recipe& recipe, std::uint64_t samples, LoaderOptions& options) {
  BenchLimits limits;
  const std::uint64_t in_epoch = batches_per_epoch(options, samples);
  const auto asked = static_cast<std::uint64_t>(recipe.integer("bench.batches"));
  limits.seconds = recipe.number("bench.seconds");
  options.first_batch = static_cast<std::uint64_t>(recipe.integer("bench.first_batch"));
  if (asked > 0) {
    limits.batches = asked;
    options.epochs = (options.first_batch + asked + in_epoch - 1) / in_epoch;
  } else if (limits.seconds > 0) {
    options.epochs = std::numeric_limits<std::uint32_t>::max();
  } else {
    options.epochs = static_cast<std::uint64_t>(recipe.integer("bench.epochs"));
    const std::uint64_t last = in_epoch * options.epochs;
    if (options.first_batch > 0 && options.first_batch >= last)
      throw UsageError(fmt::format("batch {} is past the last one: there are {} in {} epochs",
                                   options.first_batch, last, options.epochs),
                       fmt::format("bench.first_batch counts them from 0 to {}", last - 1));
    limits.batches = last - options.first_batch;
  }
  limits.warmup = warmup_of(recipe, limits);
  if (limits.batches && limits.warmup >= *limits.batches && limits.warmup > 0)
    throw UsageError(
        fmt::format("bench.warmup={} leaves nothing to measure: the run has {} batches",
                    limits.warmup, *limits.batches),
        "lower bench.warmup, or raise bench.batches or bench.epochs");
  return limits;
}

BenchMeter::BenchMeter(std::uint64_t warmup)
    : warmup_(warmup), start_(mark()), warm_(start_), last_ns_(start_.wall_ns) {}

void BenchMeter::add(const Batch& batch, const Loader& loader) {
  const std::int64_t now = base::Clock::steady_ns();
  if (batches_ == 0) first_batch_s_ = static_cast<double>(now - start_.wall_ns) * 1e-9;
  ++batches_;
  images_ += static_cast<std::uint64_t>(batch.count());
  if (batches_ > warmup_) {
    const measure::BatchHistory history = batch.history();
    blame_.add(history, history.got - history.asked);
    const double interval = static_cast<double>(now - last_ns_) * 1e-9;
    if (batches_ > 1) {  // the first batch has none before it
      interval_.add(interval);
      longest_s_ = std::max(longest_s_, interval);
    }
    const double tick = base::Clock::seconds_per_tick();
    for (const measure::RangeHistory& unit : history.units)
      for (std::size_t i = 0; i < measure::kStageCount; ++i)
        if (unit.stages[i] > 0 && unit.count > 0)
          stages_[i].add(static_cast<double>(unit.stages[i]) * tick / unit.count);
  }
  last_ns_ = now;
  if (batches_ == warmup_) {
    before_ = loader.stats();
    warm_ = mark();
    last_ns_ = warm_.wall_ns;
  }
}

void BenchMeter::stop() { end_ = mark(); }

double BenchMeter::measured_s() const {
  return static_cast<double>(base::Clock::steady_ns() - warm_.wall_ns) * 1e-9;
}

LoaderStats BenchMeter::stats(const Loader& loader) const {
  LoaderStats stats = loader.stats();
  stats.read = minus(stats.read, before_.read);
  stats.decode = minus(stats.decode, before_.decode);
  stats.augment = minus(stats.augment, before_.augment);
  stats.machinery_cpu_s -= before_.machinery_cpu_s;
  stats.busy_s -= before_.busy_s;
  stats.core_wait_s -= before_.core_wait_s;
  return stats;
}

Json BenchMeter::intervals() const {
  Json json = percentiles(interval_);
  json["max"] = longest_s_;
  return json;
}

Json BenchMeter::per_image(measure::Stage stage) const {
  return percentiles(stages_[static_cast<std::size_t>(stage)]);
}

BenchMeter::Mark BenchMeter::mark() const {
  return {base::Clock::steady_ns(), base::Clock::process_cpu_ns(), batches_, images_};
}

BenchCounts BenchMeter::since(const Mark& from) const {
  const Mark to = end_ ? *end_ : mark();
  return {to.batches - from.batches, to.images - from.images,
          static_cast<double>(to.wall_ns - from.wall_ns) * 1e-9,
          static_cast<double>(to.cpu_ns - from.cpu_ns) * 1e-9};
}

BenchDump::BenchDump(std::string path, std::size_t classes)
    : path_(std::move(path)), narrow_(classes <= 256) {
  // Writes directly to a pipe or a device; writes a file atomically.
  std::error_code none;
  const auto status = std::filesystem::status(path_, none);
  target_ = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)
                ? path_
                : path_ + ".tmp";
  file_ = std::fopen(target_.c_str(), "wb");
  if (file_ == nullptr) fail();
}

BenchDump::~BenchDump() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  if (target_ != path_) std::remove(target_.c_str());
}

void BenchDump::add(const Batch& batch) {
  put(batch.data(), batch.bytes());
  labels_.insert(labels_.end(), batch.labels(), batch.labels() + batch.count());
}

void BenchDump::finish() {
  for (const std::int64_t label : labels_) {
    const auto byte = static_cast<unsigned char>(label);
    narrow_ ? put(&byte, 1) : put(&label, sizeof label);
  }
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  if (closed && (target_ == path_ || std::rename(target_.c_str(), path_.c_str()) == 0)) return;
  const int error = errno;
  if (target_ != path_) std::remove(target_.c_str());
  errno = error;
  fail();
}

void BenchDump::put(const void* data, std::size_t size) {
  if (std::fwrite(data, 1, size, file_) != size) fail();
}

void BenchDump::fail() const {
  throw RunError(fmt::format("--dump {} cannot be written: {}", path_, std::strerror(errno)),
                 "make room or choose another file");
}

}  // namespace millrace::tools

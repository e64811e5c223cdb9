// Results of bench: rates, percentiles, and the file of --dump.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "measure/batch_history.h"
#include "measure/quantiles.h"
#include "measure/wait_breakdown.h"
#include "millrace/loader.h"
#include "millrace/recipe.h"

namespace millrace::tools {

// Measures a loader that is run alone: rates, and percentiles of its times.

/// Where a bench begins to measure and where it ends. The counts are of batches that are handed
/// out.
struct BenchLimits {
  std::uint64_t warmup = 0;              ///< batches that the figures leave out
  std::optional<std::uint64_t> batches;  ///< ends after these, warm-up included; empty: see seconds
  double seconds = 0;                    ///< ends this long after the warm-up; 0: no such limit

  /// Reads [bench], and sets the epochs and first batch of `options`. Without bench.batches and
  /// bench.seconds, bench.epochs ends the run. Throws UsageError if nothing would be measured.
  static BenchLimits of(const Recipe& recipe, std::uint64_t samples, LoaderOptions& options);
};

/// Counts since some moment.
struct BenchCounts {
  std::uint64_t batches = 0;
  std::uint64_t images = 0;
  double wall_s = 0;
  double cpu_s = 0;
};

/// Collects the figures of a run, batch by batch, on the thread that calls Loader::next().
class BenchMeter {
 public:
  /// Starts the clocks. Call it before the loader is made. `warmup` batches are left out.
  explicit BenchMeter(std::uint64_t warmup);

  /// Counts a batch that next() has just returned.
  void add(const Batch& batch, const Loader& loader);
  /// Stops the clocks.
  void stop();

  /// Returns the counts up to now: of the whole run, and of what follows the warm-up.
  BenchCounts all() const { return since(start_); }
  BenchCounts measured() const { return since(warm_); }
  /// Returns the time since the end of the warm-up; cheaper than measured().
  double measured_s() const;
  /// Returns the loader's counters of what follows the warm-up.
  LoaderStats stats(const Loader& loader) const;
  const measure::WaitBreakdown& blame() const { return blame_; }
  double first_batch_s() const { return first_batch_s_; }

  /// Returns percentiles of the time from one batch to the next, in seconds.
  nlohmann::ordered_json intervals() const;
  /// Returns percentiles of a stage's time per image, in seconds, over tasks of some images each.
  nlohmann::ordered_json per_image(measure::Stage stage) const;

 private:
  /// The clocks and counts at one moment.
  struct Mark {
    std::int64_t wall_ns = 0;
    std::int64_t cpu_ns = 0;
    std::uint64_t batches = 0;
    std::uint64_t images = 0;
  };
  Mark mark() const;
  BenchCounts since(const Mark& from) const;

  std::uint64_t warmup_;
  std::uint64_t batches_ = 0;
  std::uint64_t images_ = 0;
  Mark start_, warm_;
  std::optional<Mark> end_;
  LoaderStats before_;  ///< the loader's counters at the end of the warm-up
  double first_batch_s_ = 0;
  std::int64_t last_ns_ = 0;  ///< when the batch before this one was handed out
  double longest_s_ = 0;
  measure::WaitBreakdown blame_;
  measure::Quantiles interval_;
  std::array<measure::Quantiles, measure::kStageCount> stages_;
};

// File of bench --dump.

/// Writes the first epoch's bytes as they are in the batches, then its labels: one byte each if all
/// of them fit, else 8 bytes, little-endian. The file gets its name when it is complete.
class BenchDump {
 public:
  /// Opens the file for labels of `classes` classes. Throws RunError.
  BenchDump(std::string path, std::size_t classes);
  ~BenchDump();
  BenchDump(const BenchDump&) = delete;
  BenchDump& operator=(const BenchDump&) = delete;

  void add(const Batch& batch);
  /// Writes the labels and names the file. Throws RunError.
  void finish();

 private:
  void put(const void* data, std::size_t size);
  [[noreturn]] void fail() const;

  std::string path_;
  bool narrow_;
  std::string target_;
  std::FILE* file_ = nullptr;
  std::vector<std::int64_t> labels_;
};

}  // namespace millrace::tools

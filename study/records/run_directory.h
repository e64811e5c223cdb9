// A run directory: what a run leaves behind, readable while it goes on and after it was killed.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "pipeline/loader/spans.h"
#include "study/records/run_lock.h"

namespace millrace::study {

class RunDirectory {
 public:
  /// Makes `path`, locks it and writes config.toml. An earlier run that stands there is moved aside
  /// to path.1, path.2 ...; one that goes on, and a folder that holds something else, are refused
  /// (UsageError). Throws RunError when it cannot be written.
  RunDirectory(std::filesystem::path path, const std::string& config_toml);
  /// Throws what the constructor would where `path` is another process's or no run's, and touches
  /// nothing: a run finds out before it waits for its ranks.
  static void check(const std::filesystem::path& path);
  /// Takes up a run that ended after `step` steps, by a signal or worse: rows and lines of later
  /// steps, and the summary, go. `epoch_open`: its last epoch is to be recorded (again). `lock` is
  /// `path`'s. Throws DataError where a row up to that step is missing.
  static RunDirectory resume(std::filesystem::path path, const std::string& config_toml,
                             std::uint64_t step, bool epoch_open, RunLock lock);

  /// Opens the files of rank `rank` > 0, steps.rankR.csv and quarantine.rankR.jsonl, cut back to
  /// `step`. Rank 0's run is at `path`; rank 0 holds the lock.
  static RunDirectory of_rank(std::filesystem::path path, int rank, std::uint64_t step);

  const std::filesystem::path& path() const { return path_; }
  /// Where an earlier run was moved to; empty if there was none.
  const std::filesystem::path& moved_aside() const { return moved_aside_; }
  /// Held until the directory is let go; not in of_rank()'s.
  std::optional<RunLock>& lock() { return lock_; }

  /// Samples that had failed up to where the run was taken up.
  std::uint64_t quarantined() const { return quarantined_; }

  /// A row of steps.csv.
  void step(const pipeline::StepRecord& record);
  /// The row of a step that is not over, kept in steps.csv.open until step() is given the final
  /// one; the rows before it are synced. resume() finds a whole table whatever happens in between.
  void open_step(const pipeline::StepRecord& record);
  /// A line of metrics.jsonl, flushed.
  void epoch(const nlohmann::ordered_json& line);
  /// A line of quarantine.jsonl, flushed; from any thread.
  void quarantine(const nlohmann::ordered_json& line);
  /// Ends steps.csv.
  void close();
  /// summary.json, whole or not at all.
  void summary(const nlohmann::ordered_json& summary);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  RunDirectory() = default;
  File open(const std::string& name) const;
  void open_steps();
  void write(File& file, const std::string& name, const std::string& text, bool flush);

  std::filesystem::path path_;
  std::filesystem::path moved_aside_;
  std::uint64_t quarantined_ = 0;
  std::optional<RunLock> lock_;
  std::string steps_name_ = "steps.csv";
  std::string quarantine_name_ = "quarantine.jsonl";
  File steps_;
  File metrics_;
  File quarantine_;
  std::unique_ptr<std::mutex> quarantining_ = std::make_unique<std::mutex>();
  std::chrono::steady_clock::time_point flushed_;
};

/// JSON as text; bytes that are not UTF-8 (names of files) become U+FFFD instead of an exception.
std::string to_text(const nlohmann::ordered_json& json, int indent = -1);

/// Makes runs/NAME-YYYYmmdd-HHMMSS, with -2, -3 ... where that is taken; no other process gets the
/// same one. Throws RunError where it cannot be made.
std::filesystem::path make_run_folder(const std::string& name);

/// Writes a file whole or not at all: to a temporary name, synced, renamed. Throws RunError.
void write_file(const std::filesystem::path& file, const std::string& text);

}  // namespace millrace::study

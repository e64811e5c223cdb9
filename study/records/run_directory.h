// Run directory: the files that one run leaves behind, and the lock of their writer.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "measure/step_record.h"

namespace millrace::study {

// Lock that admits one writer at a time to the directory of a run, a profile or a sweep.

/// Holds `run.lock` in a directory by flock(2) for the object's lifetime. The kernel frees the lock
/// when the process ends, in whatever way. The file also names the holder, for people only. Readers
/// take no lock.
class RunLock {
 public:
  static constexpr const char* kFile = "run.lock";

  /// Locks `directory`, which must exist. Waits up to `patience` for a killed holder to exit.
  /// Throws UsageError if another process is writing there, the file system has no locks or a link
  /// leads out of the directory (run_links.h), RunError if the file cannot be created.
  explicit RunLock(const std::filesystem::path& directory,
                   std::chrono::milliseconds patience = std::chrono::seconds(2));

  /// Throws what the constructor would if another process holds the lock of `directory`. Does
  /// nothing if the directory or its lock file does not exist.
  static void require_free(const std::filesystem::path& directory);

  /// Returns whether a process holds the lock of `directory`. A process that wants the lock at this
  /// very moment tries again.
  static bool is_held(const std::filesystem::path& directory);

  /// Passes the lock on to processes started from now on. It is free again when the last of them
  /// has ended.
  void share_with_children();

 private:
  base::Descriptor file_;
};

/// Run directory: the files that one run leaves behind. They can be read while the run goes on and
/// after it was killed.
class RunDirectory {
 public:
  /// Creates and locks `path`, and writes and signs config.toml. Moves an earlier run to path.1,
  /// path.2, ... Throws UsageError if a run is still going on there or if the folder holds
  /// something else, and RunError if it cannot be written.
  RunDirectory(std::filesystem::path path, const std::string& config_toml);
  /// Throws what the constructor would if `path` belongs to another process or is not a run.
  /// Changes nothing, so that a run can fail before it waits for its ranks.
  static void check(const std::filesystem::path& path);
  /// Continues a run that ended after `step` steps, by a signal or a crash: removes rows and lines
  /// of later steps, and the summary. `epoch_open`: the last epoch will be recorded again. `lock`
  /// is the lock of `path`. Throws DataError if a row up to that step is missing (contract Exact
  /// resumption).
  static RunDirectory resume(std::filesystem::path path, const std::string& config_toml,
                             std::uint64_t step, bool epoch_open, RunLock lock);

  /// Opens the files of rank `rank` > 0, steps.rankR.csv and quarantine.rankR.jsonl, cut back to
  /// `step`. `path` is the directory of rank 0, which holds the lock.
  static RunDirectory of_rank(std::filesystem::path path, int rank, std::uint64_t step);

  const std::filesystem::path& path() const { return path_; }
  /// Returns where an earlier run was moved to; empty if there was none.
  const std::filesystem::path& moved_aside() const { return moved_aside_; }
  /// Returns the lock, held for the object's lifetime. Empty for of_rank().
  std::optional<RunLock>& lock() { return lock_; }

  /// Returns the number of samples that had failed before the point of resumption.
  std::uint64_t quarantined() const { return quarantined_; }

  /// Appends a row to steps.csv.
  void step(const measure::StepRecord& record);
  /// Keeps the row of an unfinished step in steps.csv.open until step() receives the final one, and
  /// syncs the rows before it. resume() therefore finds a complete table at any moment.
  void open_step(const measure::StepRecord& record);
  /// Does the same in two parts: flushes the rows, and returns the rest, which waits for the disk.
  /// Any thread may run it, before close(), while step() adds further rows.
  std::function<void()> begin_open_step(const measure::StepRecord& record);
  /// Appends a line to metrics.jsonl and flushes.
  void epoch(const nlohmann::ordered_json& line);
  /// Appends a line to quarantine.jsonl and flushes. Thread-safe.
  void quarantine(const nlohmann::ordered_json& line);
  /// Closes steps.csv.
  void close();
  /// Writes summary.json atomically.
  void summary(const nlohmann::ordered_json& summary);

 private:
  using File = base::FilePointer;

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

/// Returns JSON as text. Bytes that are not UTF-8, as in file names, become U+FFFD instead of an
/// exception.
std::string to_text(const nlohmann::ordered_json& json, int indent = -1);

/// Creates runs/NAME-YYYYmmdd-HHMMSS, or with -2, -3, ... if that exists. Concurrent processes get
/// different folders. Throws RunError if it cannot be created.
std::filesystem::path make_run_folder(const std::string& name);

/// Writes a file atomically: to a temporary name, synced, then renamed. Throws RunError.
void write_file(const std::filesystem::path& file, const std::string& text);

/// Does the same without waiting for the disk: for reports and tables, which the records give
/// again.
void write_derived_file(const std::filesystem::path& file, const std::string& text);

}  // namespace millrace::study

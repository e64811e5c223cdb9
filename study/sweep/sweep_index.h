// Index over the runs of a sweep, in SQLite (index.sqlite). It is derived from the runs' own files:
// a lost, damaged or outdated index is rebuilt from them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "study/sweep/sweep_record.h"

struct sqlite3;

namespace millrace::study {

class SweepIndex {
 public:
  /// Opens `sweep`/index.sqlite over `sweep`/runs and updates it. Throws RunError if it cannot be
  /// written.
  explicit SweepIndex(std::filesystem::path sweep);

  /// Reads directories that changed, and forgets those that are gone.
  void refresh();
  /// Returns the finished run with that identity.
  std::optional<SweepRecord> find(const std::string& key) const;
  /// Returns the largest number of all runs, finished or not. Names begin with it, zero-padded.
  std::uint64_t largest_number() const;
  /// Returns the number of finished runs of any identity.
  std::uint64_t finished() const;
  /// Returns the names of runs that were begun and did not finish.
  std::vector<std::string> unfinished() const;
  /// Returns whether the constructor had to rebuild the index.
  bool rebuilt() const { return rebuilt_; }

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };

  bool open();
  void store(const SweepRecord& record, const std::string& stamp);

  std::filesystem::path sweep_;
  std::unique_ptr<sqlite3, Close> database_;
  bool rebuilt_ = false;
};

}  // namespace millrace::study

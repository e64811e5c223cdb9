// An index over the runs of a sweep, in SQLite: index.sqlite. It holds nothing that the runs' own
// files don't say: lost, damaged or of another version, it is made again from them.
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
  /// Opens `sweep`/index.sqlite over `sweep`/runs and brings it up to date. Throws RunError where
  /// it cannot be written.
  explicit SweepIndex(std::filesystem::path sweep);

  /// Reads what has changed in the directories since, and forgets what is gone.
  void refresh();
  /// The finished run of that identity.
  std::optional<SweepRecord> find(const std::string& key) const;
  /// Of all runs, finished or not: names begin with it, filled up with zeros.
  std::uint64_t largest_number() const;
  /// Finished runs, whichever their identity.
  std::uint64_t finished() const;
  /// Names of runs that were begun and did not finish.
  std::vector<std::string> unfinished() const;
  /// Whether the constructor had to make it again from the directories.
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

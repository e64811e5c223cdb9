// Row groups of Parquet files, which Python decompresses ahead of the workers.
#pragma once

#include <nanobind/nanobind.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "millrace/loader.h"
#include "python/ext/arrow_column.h"

namespace millrace::python {

/// Holds a bounded number of row groups, each as columns of Arrow arrays. A group is loaded when it
/// is expected or read, in place of one from which no row is expected. Thread-safe.
class RowGroups {
 public:
  /// One group's columns. Released with the GIL.
  struct Columns {
    std::unique_ptr<ArrowColumn> images;
    std::unique_ptr<ArrowColumn> labels;  ///< null: every label is 0
  };
  /// Loads a group. `make_room`, called with the GIL, releases groups; returns a failure,
  /// "what\nhint", or an empty text. Throws RunError if the interpreter is ending.
  using Load = std::function<std::string(std::size_t group, const std::function<void()>& make_room,
                                         Columns& columns)>;

  /// `rows` is the number of each group's rows.
  explicit RowGroups(const std::vector<std::uint64_t>& rows);

  /// Decides how many groups are held, and how far ahead they are loaded. Throws UsageError if the
  /// order of samples needs all groups at once.
  void plan(const LoaderOptions& options);
  /// As Reader::lookahead().
  std::uint64_t lookahead() const { return lookahead_; }
  /// Forgets what was expected, because a loader begins elsewhere.
  void restart();
  /// Returns whether the group of a row is to be loaded ahead, from now on by the caller, who calls
  /// load_ahead() on a thread of its own.
  bool expect(std::uint64_t row);
  /// Loads expected groups until `goes_on` returns false, or none is left.
  void load_ahead(const Load& load, const std::function<bool()>& goes_on);

  /// Calls `use` with a row's columns and its number in them. Loads its group if it is not held.
  /// Throws DataError if that fails.
  void read(std::uint64_t row, const Load& load,
            const std::function<void(const Columns&, std::uint64_t)>& use);
  /// Releases all groups that are not being read or loaded. Call it with the GIL.
  void release();
  /// Leaves all groups to the end of the process, in which Python's memory cannot be released.
  void leak();

 private:
  enum class State : std::uint8_t { away, loading, held, failed };
  struct Group {
    State state = State::away;
    bool expected = false;
    int pins = 0;
    std::uint64_t due = 0;   ///< rows that are expected and were not read yet
    std::uint64_t used = 0;  ///< larger for a group that was used later
    Columns columns;
    std::string failure;
  };

  std::size_t group_of(std::uint64_t row) const;
  std::uint64_t first_row(std::size_t group) const { return group > 0 ? ends_[group - 1] : 0; }
  /// Loads a group that this thread has set to `loading`.
  void load_now(std::size_t group, const Load& load);
  std::vector<Columns> take_unused(std::size_t left);

  std::vector<std::uint64_t> ends_;  ///< row behind each group
  std::uint64_t lookahead_ = 0;
  std::size_t most_ = 1;  ///< groups that are held
  std::mutex mutex_;      ///< guards what follows; never held while the GIL is asked for
  std::condition_variable changed_;
  std::vector<Group> groups_;
  std::deque<std::size_t> expected_;
  bool loads_ahead_ = false;
  std::size_t held_ = 0;  ///< groups that are held or loading
  std::uint64_t clock_ = 0;
};

}  // namespace millrace::python

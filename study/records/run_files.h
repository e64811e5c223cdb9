// Reads the files of a run: its JSON and its steps.csv.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "measure/quantiles.h"
#include "measure/spans.h"
#include "study/records/update_times.h"

namespace millrace::study {

// Reads a run's JSON files for display: missing values are reported as missing, malformed files are
// errors.

/// Parses JSON and drops what is nested deeper than any of our records. Returns a discarded value
/// for malformed JSON.
nlohmann::ordered_json parse_json(std::string_view text);

/// Reads a JSON object. Returns null if there is no such file; throws DataError if it holds
/// anything else.
nlohmann::ordered_json read_json(const std::filesystem::path& file);

/// Reads one object per line. Returns nothing if there is no such file. Throws DataError with the
/// line number. Sets `cut` if the last line is incomplete, and leaves it out.
std::vector<nlohmann::ordered_json> read_json_lines(const std::filesystem::path& file, bool& cut);

/// Returns the number at a path of keys; NaN if there is none.
double number_at(const nlohmann::ordered_json& json, std::initializer_list<const char*> keys);
/// Returns the string at a path of keys, or a number or boolean as text; empty if there is none.
std::string text_at(const nlohmann::ordered_json& json, std::initializer_list<const char*> keys);

/// Reads a table of numbers, such as memory.csv, and calls `visit` with the values of `columns` in
/// each row, in order. Visits nothing if there is no such file, and leaves an incomplete last row
/// out. Throws DataError if the header lacks a column, or with the line of a malformed row.
void read_numbers(const std::filesystem::path& file, const std::vector<std::string_view>& columns,
                  const std::function<void(const std::vector<double>&)>& visit);

// Reads steps.csv and reduces it to some hundreds of points: neighbouring steps are added up, none
// is left out.

/// Spans of a loop in Python, which `pymillrace watch` records beside setup, first_batch, load,
/// evaluate and log. Times of the trainer's spans come first in a step.
inline constexpr std::array<std::string_view, 3> kWatchedSpanNames{
    "update",   // from a module's first forward to the optimizer's last step
    "loop",     // the rest of the loop's body
    "between",  // between two iterations over the loader
};
inline constexpr std::size_t kStepSpanCount = measure::kSpanCount + kWatchedSpanNames.size();

/// Return the name of span `i` of a step, and whether it counts as load or update. The remaining
/// spans are other.
constexpr std::string_view step_span_name(std::size_t i) {
  return i < measure::kSpanCount ? measure::kSpanNames[i]
                                 : kWatchedSpanNames[i - measure::kSpanCount];
}
constexpr bool is_load_span(std::size_t i) {
  return i < measure::kSpanCount && measure::is_load(static_cast<measure::Span>(i));
}
constexpr bool is_update_span(std::size_t i) {
  return i < measure::kSpanCount ? measure::is_update(static_cast<measure::Span>(i))
                                 : i < measure::kSpanCount + 2;
}

using SpanNs = std::array<std::int64_t, kStepSpanCount>;

/// Returns whole nanoseconds in seconds.
inline double in_seconds(std::int64_t ns) { return 1e-9 * static_cast<double>(ns); }

/// Neighbouring steps, added up. Times are whole nanoseconds, as in the table, so that sums are
/// exact.
struct StepSum {
  std::uint64_t first = 0;  ///< number of the first step
  std::uint64_t last = 0;
  std::uint64_t steps = 0;
  std::int64_t images = 0;
  double loss_sum = 0;       ///< sum of the losses that were read back
  std::uint64_t losses = 0;  ///< number of those losses
  SpanNs ns{};

  void add(const StepSum& next);
  /// Return the sums of all load spans (first_batch included), of update, and of the other spans.
  std::int64_t load_ns() const;
  std::int64_t update_ns() const;
  std::int64_t other_ns() const;
  /// Returns the middle between its first and last step.
  double middle() const { return 0.5 * static_cast<double>(first + last); }
};

/// Adds steps up as they arrive, in at most 2 * `points` sums of equal width (the last may be
/// shorter). When there would be more, each pair of neighbours becomes one sum.
class StepReduction {
 public:
  explicit StepReduction(std::size_t points = 200) : points_(points) {}
  void add(const StepSum& step);
  const std::vector<StepSum>& sums() const { return sums_; }
  /// Returns the steps per sum; the last sum may have fewer.
  std::uint64_t width() const { return width_; }

 private:
  std::size_t points_;
  std::uint64_t width_ = 1;
  std::vector<StepSum> sums_;
};

struct StepTable {
  StepReduction reduced;
  StepSum all;
  measure::Quantiles load, update, other;  ///< seconds per step
  measure::Quantiles step;                 ///< load + update
  bool there = false;                      ///< the file exists
  bool cut = false;                        ///< the last row was incomplete and is left out

  void add(const StepSum& step);
};

/// State of a file of steps.
struct StepFile {
  bool there = false;  ///< the file exists
  bool cut = false;    ///< the last row is incomplete
};

/// Reads a file of steps to which a run still appends.
class StepReader {
 public:
  explicit StepReader(std::filesystem::path file) : file_(std::move(file)) {}

  /// Calls `visit` with each step that has been appended since the last call, in order, but with
  /// `most` steps at most. Leaves an incomplete last row to the next call. Ends early if the file
  /// has been cut meanwhile. Throws DataError with the line of a malformed row.
  StepFile read(const std::function<void(const StepSum&)>& visit, std::uint64_t most);
  /// Returns to the start if the rows that were read are no longer there, as when a resumed rank
  /// has cut its table. Returns whether it did: the caller then forgets what it has added up.
  bool start_over_if_cut();
  /// Returns whether the last call ended at the end of the file, not after `most` steps.
  bool at_end() const { return at_end_; }

 private:
  bool next_line(std::string& line, StepFile& state);
  bool is_cut();
  void read_header(const std::string& line);
  [[noreturn]] void damaged(const char* what) const;

  std::filesystem::path file_;
  std::ifstream in_;
  std::streamoff offset_ = 0;    ///< end of the last complete line
  std::string last_line_;        ///< the last line that was a header or a row, and
  std::streamoff last_end_ = 0;  ///< its end
  std::uint64_t line_ = 0;       ///< number of that line
  std::vector<int> columns_;
  bool at_end_ = false;
};

/// Reads steps.csv or steps.rankR.csv and calls `visit` with each step, in order. Leaves an
/// incomplete last row out. Throws DataError with the line of a malformed row.
StepFile for_each_step(const std::filesystem::path& file,
                       const std::function<void(const StepSum&)>& visit);

/// Reads a file of steps as for_each_step() and adds the steps up.
StepTable read_steps(const std::filesystem::path& file);

}  // namespace millrace::study

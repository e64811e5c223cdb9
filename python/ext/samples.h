// Samples that an object in Python has: pymillrace.Samples.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "millrace/reader.h"
#include "python/ext/arrow_column.h"
#include "python/ext/row_groups.h"

namespace millrace::python {

/// Value of DatasetInfo::reader.
inline constexpr const char* kSamplesReader = "samples";

/// A pymillrace.samples.Feed: its facts, and where its samples are: functions, which are called
/// with the GIL, one at a time, from any thread; columns of Arrow tables, which are read without
/// Python; or row groups of such columns, for each of which a function is called.
struct Samples {
  /// Takes references to the feed's functions, columns or row groups. Throws UsageError for columns
  /// of other types than images and whole numbers. Call it with the GIL.
  explicit Samples(nanobind::handle feed);
  /// Takes the GIL. Leaks what it has if the interpreter is ending.
  ~Samples();
  Samples(const Samples&) = delete;
  Samples& operator=(const Samples&) = delete;

  std::string title;
  std::uint64_t count = 0;
  std::vector<std::string> classes;     ///< empty: unknown
  std::unique_ptr<ArrowColumn> images;  ///< null: functions
  std::unique_ptr<ArrowColumn> labels;  ///< null: every label is 0
  std::unique_ptr<ArrowColumn> rows;    ///< the row of each sample; null: in order
  std::unique_ptr<RowGroups> groups;    ///< null: functions or columns
  PyObject* fetch;                      ///< (index) -> a sample's parts, or why there is none
  PyObject* copy;                       ///< (memory, array): copies an array's pixels
  PyObject* label;                      ///< (index) -> the label, or why there is none
  PyObject* group;  ///< (index) -> arrays of a row group's images and labels, or why there are none
  mutable std::mutex turn;  ///< held during a call; locked before the GIL is taken
};

/// Returns a reader of `samples`, which may go away before the reader: later reads throw RunError.
/// Reads take the GIL while Python fetches and copies one sample. Arrays become raw images. Throws
/// DataError if there are more classes than `options.classes`.
std::unique_ptr<Reader> make_samples_reader(const std::shared_ptr<Samples>& samples,
                                            const DataOptions& options);

}  // namespace millrace::python

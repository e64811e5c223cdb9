// All output of the program to stdout and stderr. A stream that is full, closed or abandoned by its
// reader never ends a run: progress and remarks are dropped, and lost results are reported at the
// end.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace millrace::tools {

/// Opens /dev/null in place of each closed one of stdin, stdout and stderr, so that no file of ours
/// gets its number. Call it first in main().
void open_standard_streams();

/// From now on only results go to stdout. Output of other code in this process, such as plugins,
/// goes to stderr.
void keep_stdout_for_results();

/// Writes results to stdout, made printable. Records a failure for finish_output().
void write_output(std::string_view text);
/// Formats and writes results to stdout.
template <class... Values>
void print(fmt::format_string<Values...> format, Values&&... values) {
  write_output(fmt::format(format, std::forward<Values>(values)...));
}
/// Writes remarks to stderr unchanged; drops what cannot be written.
void write_error(std::string_view text);

/// Writes buffered output. Records a failure for finish_output().
void flush_output();

/// Throws RunError if some of the results could not be written.
void finish_output();

}  // namespace millrace::tools

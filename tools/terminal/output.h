// All output of the program to stdout and stderr. A stream that is full, closed or abandoned by its
// reader never ends a run: progress and remarks are dropped, and lost results are reported at the
// end.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace millrace::tools {

/// Opens /dev/null in the place of each of stdin, stdout and stderr that is closed, so that no file
/// of ours gets its number. First thing in main().
void open_standard_streams();

/// From now on results alone go to stdout. What other code in this process writes there, a plugin
/// for example, goes to stderr.
void keep_stdout_for_results();

/// Writes results to stdout, made printable. A failure is remembered for finish_output().
void write_output(std::string_view text);
/// Formats and writes results to stdout.
template <class... Values>
void print(fmt::format_string<Values...> format, Values&&... values) {
  write_output(fmt::format(format, std::forward<Values>(values)...));
}
/// Writes remarks to stderr as they are; what cannot be written is dropped.
void write_error(std::string_view text);

/// Sends out what waits to be written; a failure is remembered.
void flush_output();

/// Throws RunError where some of the results could not be written.
void finish_output();

}  // namespace millrace::tools

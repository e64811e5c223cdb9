// The program's output and messages, and its ends: on Ctrl-C, SIGTERM and uncaught failures.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/error.h"

namespace millrace::tools {

// All output of the program to stdout and stderr. A stream that is full, closed or abandoned by its
// reader never ends a run: progress and remarks are dropped, and results that a full or closed
// stdout lost are reported at the end.

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

/// Throws RunError if some of the results could not be written, unless their reader has left the
/// pipe: `| head` has seen what it wanted.
void finish_output();

// Messages of the program: errors, progress and small tables.

/// The options -q, -v and --json, set once by main().
struct Verbosity {
  bool quiet = false;
  bool verbose = false;
  bool json = false;
};
Verbosity& verbosity();

/// Prints to stdout, unless -q, what a person reads beside the results: files that were written,
/// the next command.
template <class... Values>
void print_unless_quiet(fmt::format_string<Values...> format, Values&&... values) {
  if (!verbosity().quiet) write_output(fmt::format(format, std::forward<Values>(values)...));
}

/// Prints one line, then the hint: "millrace: WHAT" and "  hint: WHAT TO DO". Makes both printable
/// and shortens long values in them; since this happens only here, errors may hold any text. A rank
/// of `millrace launch` sends the error to its launcher, which prints errors common to all ranks
/// once.
void print_error(const Error& error);
/// Prints finished error lines, each preceded by `before`.
void print_error_text(const std::string& text, const std::string& before = {});
/// Returns the descriptor for errors: the one that kErrorVariable names in the environment of a
/// launcher's rank, else stderr.
int error_descriptor();
inline constexpr const char* kErrorVariable = "MILLRACE_ERROR_FD";
/// Tells the launcher of this rank, if it has one, that its peers watch it from now on: they end by
/// themselves if it fails.
void tell_watched();
/// Byte that tell_watched() sends. Errors follow it.
inline constexpr char kWatched = '\0';
/// Returns `text` as one word of a shell's command line, for commands that messages propose.
std::string shell_word(const std::string& text);
/// Prints a remark to stderr, unless -q.
void say(const std::string& text);

/// A line on stderr that is overwritten; only on a terminal.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  /// Returns whether a bar is shown at all and the last update is old enough.
  bool due();
  /// Shows `done` of `total`, then `text`.
  void show(double done, double total, const std::string& text);
  /// Erases the line, for other output.
  void clear();

 private:
  bool on_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

/// Aligns columns: the first to the left, the others to the right. Makes cells printable.
std::string to_table(std::vector<std::vector<std::string>> rows);

/// Formats a share of 1 with four decimals: "0.0123%". Never "-0.0000%".
std::string percent(double share);

/// Returns the width of the terminal: the environment's COLUMNS, or the terminal's own, or 80.
std::size_t terminal_columns();

/// Breaks text at spaces into lines that fit into `columns`; a longer word has a line of its own.
/// The first line begins with `first`, the others with `rest`. The last line ends without a
/// newline.
std::string wrapped(std::string_view text, std::size_t columns, std::string_view first = "",
                    std::string_view rest = "  ");

/// Formats 12345.6 as "12,346".
std::string with_commas(double value);

// Orderly end on Ctrl-C and SIGTERM: sets a flag that loops and loaders check.

/// Catches SIGINT and SIGTERM from now on. Call it before any other thread starts. A second signal
/// ends the process at once (exit 130).
void catch_interrupts();
/// Returns the flag, set after a signal and by ranks that hear of another's.
std::atomic<bool>& interrupted();

/// During its lifetime, the first signal ends the process at once (exit 130, with a line that says
/// so): nothing is worth saving yet, and the current work may take long (opening a data set,
/// waiting for ranks). One per process at a time.
class LeaveOnInterrupt {
 public:
  /// Throws Error if a signal has already come.
  LeaveOnInterrupt();
  ~LeaveOnInterrupt() { end(); }
  LeaveOnInterrupt(const LeaveOnInterrupt&) = delete;
  LeaveOnInterrupt& operator=(const LeaveOnInterrupt&) = delete;
  void end();
};

/// Calls fork() for a child that executes another program. A signal between the two ends the child,
/// where a handler would only set a flag that is lost.
pid_t fork_for_program();

// Reports failures that reach main(), and those that no code catches.

/// Prints one line about what went wrong. Returns the exit code for it.
Exit explain(const std::exception_ptr& failure);

/// From now on, also reports exceptions that cannot be caught, and ends the program with their
/// exit code. These come from libraries' threads and initialisers, which may run out of memory.
void explain_uncaught();

}  // namespace millrace::tools

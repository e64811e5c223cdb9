// Messages of the program: errors, progress and small tables.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/error.h"

namespace millrace::tools {

/// The options -q, -v and --json, set once by main().
struct Verbosity {
  bool quiet = false;
  bool verbose = false;
  bool json = false;
};
Verbosity& verbosity();

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

}  // namespace millrace::tools

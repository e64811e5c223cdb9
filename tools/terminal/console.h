// What the program says: errors, progress and small tables.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "millrace/error.h"

namespace millrace::tools {

/// -q, -v, --json: set once by main().
struct Verbosity {
  bool quiet = false;
  bool verbose = false;
  bool json = false;
};
Verbosity& verbosity();

/// One line, then the hint: "millrace: WHAT" and "  hint: WHAT TO DO". Both are made printable, and
/// long values in them are shortened: here alone, so that errors may hold what they like. A rank of
/// `millrace launch` tells its launcher, which says for all ranks what they have in common.
void print_error(const Error& error);
/// Prints finished error lines, each preceded by `before`.
void print_error_text(const std::string& text, const std::string& before = {});
/// Returns the descriptor that errors go to: the one that kErrorVariable names in the environment
/// of a launcher's rank, else stderr's.
int error_descriptor();
inline constexpr const char* kErrorVariable = "MILLRACE_ERROR_FD";
/// `text` as one word of a shell's command line, for commands that messages propose.
std::string shell_word(const std::string& text);
/// A remark on stderr, unless -q.
void say(const std::string& text);

/// A line on stderr that is written over, on a terminal only.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  /// True where a bar is shown at all and the last one is old enough.
  bool due();
  /// `done` of `total`, then `text`.
  void show(double done, double total, const std::string& text);
  /// Takes the line away, for other output.
  void clear();

 private:
  bool on_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

/// Columns aligned: the first to the left, the others to the right. Cells are made printable.
std::string to_table(std::vector<std::vector<std::string>> rows);

/// 12345.6 -> "12,346".
std::string with_commas(double value);

}  // namespace millrace::tools

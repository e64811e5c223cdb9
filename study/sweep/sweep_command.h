// A command that a sweep runs in place of `millrace train`, and the figures of its run.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "study/sweep/design.h"
#include "study/sweep/sweep_table.h"

namespace millrace::study {

/// A figure of a command's run: how long it took, a number that it printed, or one in a JSON file.
struct CommandMetric {
  enum class Kind {
    wall,     ///< seconds from start to end
    summary,  ///< a number of {run}/summary.json
    file,     ///< FILE.json:KEY
    output    ///< last match of a regular expression
  };
  Kind kind = Kind::wall;
  SweepMetric metric;  ///< its name is wall_s, or the text as given
  std::string file;    ///< with placeholders
  std::string key;     ///< path in the file, parts separated by dots
};

/// Parses wall, FILE.json:KEY, the name of a number of summary.json, or else a regular expression
/// of RE2. Throws UsageError.
CommandMetric command_metric(const std::string& text);

/// Returns the last match in a program's stdout or, if that has none, in its stderr: the first
/// group if there is one. Of lines that are longer than 4096 bytes only the last 4096 are searched.
/// Throws UsageError if nothing matches, or if the match is not a number.
double number_in_output(const CommandMetric& metric, const std::filesystem::path& out,
                        const std::filesystem::path& err);

/// Returns the number KEY of a JSON file. Throws UsageError if there is none.
double number_in_file(const CommandMetric& metric, const std::filesystem::path& file);

// A command that a sweep runs in place of `millrace train`: its text with placeholders, and how it
// becomes the words of a process.

/// Text by the name of a placeholder.
using PlaceholderValues = std::map<std::string, std::string>;

struct SweepCommand {
  std::string text;      ///< with placeholders {key}, and {run} and {repeat}, which each run has
  std::string shell;     ///< program that is given -c TEXT; none: the words are executed directly
  std::string folder;    ///< where it runs
  double timeout_s = 0;  ///< 0: none
  std::vector<CommandMetric> metrics;
};

/// Returns the names in braces, each once. Braces that hold no name are text, and so are ${name}
/// and {{name}}.
std::vector<std::string> placeholders(const std::string& text);
/// Replaces {name} by its value, and {{name}} by {name}.
std::string filled(const std::string& text, const PlaceholderValues& values);
/// Returns the values of a cell's keys.
PlaceholderValues values_of(const SweepCell& cell);

/// Throws UsageError for a placeholder that a cell has no value for, and for a key that no
/// placeholder uses.
void check_placeholders(const SweepCommand& command, const SweepDesign& design);

/// Splits at white space outside quotes. '...' is literal; within "..." and outside quotes, a
/// backslash takes the next character literally. Throws UsageError for an open quote.
std::vector<std::string> shell_split(const std::string& text);

/// Returns the program and its arguments. With a shell, values become part of its text; without
/// one, a value stays within its word.
std::vector<std::string> words_of(const SweepCommand& command, const PlaceholderValues& values);

/// Returns the design of a command's sweep. `words` are key=a,b,c. Throws UsageError.
SweepDesign command_design(const std::vector<std::string>& words,
                           const std::vector<std::string>& cells, const std::string& kind);

}  // namespace millrace::study

// Figures of a command's run: how long it took, a number that it printed, or one in a JSON file.
#pragma once

#include <filesystem>
#include <string>

#include "study/sweep/sweep_metric.h"

namespace millrace::study {

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

/// Parses wall, FILE.json:KEY, the name of a number of summary.json, or else an ECMAScript regular
/// expression. Throws UsageError.
CommandMetric command_metric(const std::string& text);

/// Returns the last match in a program's stdout or, if that has none, in its stderr: the first
/// group if there is one. Of lines that are longer than 4096 bytes only the last 4096 are searched.
/// Throws UsageError if nothing matches, or if the match is no number.
double number_in_output(const CommandMetric& metric, const std::filesystem::path& out,
                        const std::filesystem::path& err);

/// Returns the number KEY of a JSON file. Throws UsageError if there is none.
double number_in_file(const CommandMetric& metric, const std::filesystem::path& file);

}  // namespace millrace::study

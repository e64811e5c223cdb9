// Reads figures from a program's output and files.
#include "study/sweep/command_metric.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "millrace/error.h"
#include "study/records/run_files.h"
#include "study/sweep/sweep_record.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestLine = 4096;  ///< std::regex recurses once per character

/// Classifies a number by the last part of its key, as in summary.json.
SweepMetric metric_of(const std::string& name, const std::string& key) {
  const std::string last = key.substr(key.rfind('.') + 1);
  const bool is_rate = last == "images_per_s" || last == "samples_per_s" || last == "speedup";
  return {name, is_rate || last.ends_with("_s") || last.ends_with("_s_per_step"), is_rate,
          is_share(last)};
}

/// Returns the metric if `text` names a number of summary.json.
std::optional<CommandMetric> summary_metric(const std::string& text) {
  try {
    return CommandMetric{CommandMetric::Kind::summary, sweep_metric(text), "", text};
  } catch (const UsageError&) {
    return {};
  }
}

/// Returns the last match within the lines of a file; a progress bar's carriage return ends a line.
std::optional<std::string> last_match(const std::regex& pattern, const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::optional<std::string> found;
  for (std::string whole; std::getline(in, whole);) {
    for (std::size_t begin = 0; begin <= whole.size();) {
      const std::size_t end = std::min(whole.find('\r', begin), whole.size());
      const std::size_t from = std::max(begin, end > kLongestLine ? end - kLongestLine : 0);
      const auto first = whole.cbegin() + static_cast<std::ptrdiff_t>(from);
      const auto last = whole.cbegin() + static_cast<std::ptrdiff_t>(end);
      for (std::sregex_iterator at(first, last, pattern), none; at != none; ++at)
        found = at->size() > 1 ? at->str(1) : at->str(0);
      begin = end + 1;
    }
  }
  return found;
}

std::optional<double> number_of(std::string text) {
  text.erase(0, text.find_first_not_of(" \t+"));
  text.erase(text.find_last_not_of(" \t") + 1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

CommandMetric command_metric(const std::string& text) {
  if (text == "wall" || text == "wall_s")
    return {CommandMetric::Kind::wall, sweep_metric("wall_s"), "", ""};
  constexpr std::string_view kJson = ".json:";
  if (const auto at = text.find(kJson); at != std::string::npos && at > 0) {
    const std::string key = text.substr(at + kJson.size());
    if (key.empty())
      throw UsageError(fmt::format("--metric '{}': no key after the colon", text),
                       "name the number, as in out/result.json:test.accuracy");
    return {CommandMetric::Kind::file, metric_of(text, key), text.substr(0, at + kJson.size() - 1),
            key};
  }
  if (auto metric = summary_metric(text)) return *metric;
  try {
    const std::regex checked(text);
  } catch (const std::regex_error& error) {
    throw UsageError(fmt::format("--metric '{}': no regular expression: {}", text, error.what()),
                     "for example 'loss=([0-9.]+)', out.json:accuracy, or wall");
  }
  return {CommandMetric::Kind::output, {text, false, false, false}, "", ""};
}

double number_in_output(const CommandMetric& metric, const fs::path& out, const fs::path& err) {
  const std::regex pattern(metric.metric.name);
  auto found = last_match(pattern, out);
  if (!found) found = last_match(pattern, err);
  if (!found)
    throw UsageError(
        fmt::format("--metric '{}': no line of the output matches", metric.metric.name),
        fmt::format("the output is in {}", out.parent_path().string()));
  const auto value = number_of(*found);
  if (!value)
    throw UsageError(fmt::format("--metric '{}': '{}' is no number", metric.metric.name, *found),
                     "put parentheses around the number alone, as in 'loss=([0-9.]+)'");
  return *value;
}

double number_in_file(const CommandMetric& metric, const fs::path& file) {
  std::ifstream in(file);
  if (!in)
    throw UsageError(
        fmt::format("--metric '{}': {} is missing after the run", metric.metric.name,
                    file.string()),
        "the command must write it; a relative path starts where the sweep was started");
  const double value = number_at_path(parse_json(in), metric.key);
  if (std::isnan(value))
    throw UsageError(fmt::format("--metric '{}': {} has no number {}", metric.metric.name,
                                 file.string(), metric.key),
                     "parts of a key are separated by dots, as in test.accuracy");
  return value;
}

}  // namespace millrace::study

// Fills placeholders, splits commands, and reads figures from a program's output and files.

#include "study/sweep/sweep_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <re2/re2.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/record_file.h"
#include "base/text.h"
#include "millrace/error.h"
#include "study/records/run_files.h"
#include "study/sweep/sweep_record.h"

namespace millrace::study {
namespace {

namespace fs = std::filesystem;

/// Most bytes of a line that are searched: all matches together may take quadratic time.
constexpr std::size_t kLongestLine = 4096;

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

/// Returns the options of a metric's expression. RE2 takes time in proportion to the text, whatever
/// the expression. Output is bytes, which need not be UTF-8.
RE2::Options expression_options() {
  RE2::Options options(RE2::Latin1);
  options.set_log_errors(false);
  return options;
}

/// Replaces `found` by the last match in a line: its first group, if it has one.
void find_last(const RE2& pattern, re2::StringPiece line, std::optional<std::string>& found) {
  re2::StringPiece match[2];
  const int groups = std::min(pattern.NumberOfCapturingGroups(), 1);
  for (std::size_t at = 0;
       at <= line.size() &&
       pattern.Match(line, at, line.size(), RE2::UNANCHORED, match, 1 + groups);) {
    found.emplace(match[groups].data(), match[groups].size());
    const auto end = static_cast<std::size_t>(match[0].end() - line.begin());
    at = match[0].empty() ? end + 1 : end;
  }
}

/// Returns the last match within the lines of a file; a progress bar's carriage return ends a line.
std::optional<std::string> last_match(const RE2& pattern, const fs::path& file) {
  std::ifstream in = base::open_record(file);
  std::optional<std::string> found;
  for (std::string whole; base::read_line(in, whole, file);) {
    for (std::size_t begin = 0; begin <= whole.size();) {
      const std::size_t end = std::min(whole.find('\r', begin), whole.size());
      const std::size_t from = std::max(begin, end > kLongestLine ? end - kLongestLine : 0);
      find_last(pattern, re2::StringPiece(whole.data() + from, end - from), found);
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
  const RE2 checked(text, expression_options());
  if (!checked.ok()) {
    // (?= and \1: an expression with them can take any time.
    const bool beyond =
        checked.error_code() == RE2::ErrorBadPerlOp || checked.error_code() == RE2::ErrorBadEscape;
    throw UsageError(
        fmt::format("--metric '{}': no regular expression of RE2: {}", base::abridged(text),
                    base::abridged(checked.error())),
        beyond ? "RE2 has neither look-ahead nor back-references: put parentheses around the "
                 "number alone, as in 'loss=([0-9.]+)'"
               : "for example 'loss=([0-9.]+)', out.json:accuracy, or wall");
  }
  return {CommandMetric::Kind::output, {text, false, false, false}, "", ""};
}

double number_in_output(const CommandMetric& metric, const fs::path& out, const fs::path& err) {
  const RE2 pattern(metric.metric.name, expression_options());
  auto found = last_match(pattern, out);
  if (!found) found = last_match(pattern, err);
  if (!found)
    throw UsageError(
        fmt::format("--metric '{}': no line of the output matches", metric.metric.name),
        fmt::format("the output is in {}", out.parent_path().string()));
  const auto value = number_of(*found);
  if (!value)
    throw UsageError(fmt::format("--metric '{}': '{}' is not a number", metric.metric.name, *found),
                     "put parentheses around the number alone, as in 'loss=([0-9.]+)'");
  return *value;
}

double number_in_file(const CommandMetric& metric, const fs::path& file) {
  std::ifstream in = base::open_record(file);
  if (!in)
    throw UsageError(
        fmt::format("--metric '{}': {} is missing after the run", metric.metric.name,
                    file.string()),
        "the command must write it; a relative path starts where the sweep was started");
  const double value = number_at_path(parse_json(base::read_record(in, file)), metric.key);
  if (std::isnan(value))
    throw UsageError(fmt::format("--metric '{}': {} has no number {}", metric.metric.name,
                                 file.string(), metric.key),
                     "parts of a key are separated by dots, as in test.accuracy");
  return value;
}

namespace {

const std::set<std::string> kEachRunHas{"run", "repeat"};

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool is_in_name(char c) {
  return is_name_start(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

/// Returns the length of a name at `at`; 0 if none begins there.
std::size_t name_at(const std::string& text, std::size_t at) {
  if (at >= text.size() || !is_name_start(text[at])) return 0;
  std::size_t end = at;
  while (end < text.size() && is_in_name(text[end])) ++end;
  return end - at;
}

/// Copies the text; each placeholder becomes what `value` returns for its name.
std::string replaced(const std::string& text,
                     const std::function<std::string(const std::string&)>& value) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const bool is_open = text[i] == '{' && (i == 0 || text[i - 1] != '$');
    const bool is_twice = is_open && i + 1 < text.size() && text[i + 1] == '{';
    const std::size_t name = i + (is_twice ? 2 : 1);
    const std::size_t length = is_open ? name_at(text, name) : 0;
    const char* const close = is_twice ? "}}" : "}";
    const bool is_closed = length > 0 && text.compare(name + length, is_twice ? 2 : 1, close) == 0;
    if (!is_closed) {
      result += text[i++];
      continue;
    }
    const std::string inside = text.substr(name, length);
    result += is_twice ? "{" + inside + "}" : value(inside);
    i = name + length + (is_twice ? 2 : 1);
  }
  return result;
}

/// Returns command and metrics' files, in which placeholders may stand.
std::vector<std::string> texts_of(const SweepCommand& command) {
  std::vector<std::string> texts{command.text};
  for (const CommandMetric& metric : command.metrics) texts.push_back(metric.file);
  return texts;
}

}  // namespace

std::vector<std::string> placeholders(const std::string& text) {
  std::vector<std::string> names;
  replaced(text, [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    return std::string();
  });
  return names;
}

std::string filled(const std::string& text, const PlaceholderValues& values) {
  return replaced(text, [&](const std::string& name) { return values.at(name); });
}

PlaceholderValues values_of(const SweepCell& cell) {
  PlaceholderValues values;
  for (const std::string& word : cell.overrides) {
    const auto equals = word.find('=');
    values[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return values;
}

void check_placeholders(const SweepCommand& command, const SweepDesign& design) {
  std::set<std::string> used;
  for (const std::string& text : texts_of(command))
    for (const std::string& name : placeholders(text)) used.insert(name);
  for (const SweepCell& cell : design.cells) {
    const PlaceholderValues values = values_of(cell);
    std::vector<std::string> known(kEachRunHas.begin(), kEachRunHas.end());
    for (const auto& [name, value] : values) {
      known.push_back(name);
      if (kEachRunHas.contains(name))
        throw UsageError(fmt::format("{}={}: every run has its own {{{}}}", name, value, name),
                         "choose another name for the key");
      if (name_at(name, 0) != name.size())
        throw UsageError(fmt::format("{}={}: {} cannot name a placeholder", name, value, name),
                         "names have letters, digits, '_', '-' and '.', and begin with a letter");
      if (!used.contains(name))
        throw UsageError(
            fmt::format("{}={}: the command has no {{{}}}", name, value, name),
            fmt::format("write {{{}}} where its value belongs, or leave the key out", name));
    }
    for (const std::string& name : used)
      if (!values.contains(name) && !kEachRunHas.contains(name))
        throw UsageError(
            fmt::format("--command: {{{}}} has no values", name),
            fmt::format("add {}=a,b,c, or write {{{{{}}}}} for braces that stay; did you mean "
                        "{{{}}}?",
                        name, name, base::nearest(name, known)));
  }
}

std::vector<std::string> shell_split(const std::string& text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  const auto word = [&]() -> std::string& {
    if (!in_word) words.emplace_back();
    in_word = true;
    return words.back();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word() += text[++i];
    } else if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word() += c;
    } else if (c == '\'' || c == '"') {
      word();
      quote = c;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      in_word = false;
    } else {
      word() += c;
    }
  }
  if (quote != 0)
    throw UsageError(fmt::format("--command {}: a quote {} is not closed", text, quote),
                     "close it, or write \\ before it");
  return words;
}

std::vector<std::string> words_of(const SweepCommand& command, const PlaceholderValues& values) {
  if (command.shell != "none") return {command.shell, "-c", filled(command.text, values)};
  auto words = shell_split(command.text);
  for (std::string& word : words) word = filled(word, values);
  return words;
}

SweepDesign command_design(const std::vector<std::string>& words,
                           const std::vector<std::string>& cells, const std::string& kind) {
  SweepWords read = read_words(words, cells, kind);
  if (!read.recipe.empty())
    throw UsageError(fmt::format("{} is not key=a,b,c", read.recipe),
                     "quote the whole command: --command 'python train.py --workers {workers}' "
                     "workers=0,2,4");
  if (read.design.cells.size() == 1 && cells.empty())
    throw UsageError("nothing is swept: every key has one value",
                     "give a key several values, as in workers=0,2,4");
  return std::move(read.design);
}

}  // namespace millrace::study

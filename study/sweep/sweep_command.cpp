// Fills placeholders and splits commands.
#include "study/sweep/sweep_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/suggest.h"
#include "millrace/error.h"

namespace millrace::study {
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
        throw UsageError(fmt::format("{}={}: {} is no name for a placeholder", name, value, name),
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

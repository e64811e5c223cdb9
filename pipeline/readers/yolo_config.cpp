// Parses three keys of a data.yaml.
#include "pipeline/readers/yolo_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"

namespace millrace::pipeline {
namespace {

constexpr std::size_t kMaxPoints = 1024;
constexpr std::string_view kBlanks = " \t\r";
constexpr bool is_one_of(char one, std::string_view of) { return of.find(one) != of.npos; }

constexpr std::array<std::string_view, 3> kKeys{"names", "kpt_shape", "flip_idx"};

/// An item of a list, or an entry of a mapping.
struct Item {
  std::string text;
  std::optional<std::string> key;  ///< in a mapping
  std::uint64_t line = 0;
};

/// A file's text, of which values are taken from the front.
class Yaml {
 public:
  Yaml(const std::string& file, std::string_view text) : file_(file), left_(text) {}

  [[noreturn]] void reject(std::uint64_t line, const std::string& reason,
                           const std::string& hint) const {
    throw DataError(fmt::format("{}:{}: {}", file_, line, reason), hint);
  }
  std::uint64_t line() const { return line_; }
  bool at_end() const { return left_.empty(); }
  void skip_line() {
    left_.remove_prefix(std::min(left_.find('\n'), left_.size()));
    if (at_end()) return;
    left_.remove_prefix(1);
    ++line_;
  }
  /// Takes one of kKeys and its colon from the front of a line, if it is there.
  std::string_view take_key() {
    if (at_end() || !is_one_of(left_.front(), "nkf'\"")) return {};
    for (const std::string_view key : kKeys)
      for (const std::string& written :
           {std::string(key), fmt::format("'{}'", key), fmt::format("\"{}\"", key)}) {
        if (!left_.starts_with(written)) continue;
        std::string_view rest = left_.substr(written.size());
        rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
        if (!rest.starts_with(':')) continue;
        left_ = rest.substr(1);
        return key;
      }
    return {};
  }
  /// Takes the list or mapping that follows a key.
  std::vector<Item> take_items(std::string_view key) {
    skip_blanks();
    if (at_line_end()) return take_block(key);
    if (is_one_of(left_.front(), "[{")) return take_flow(key);
    reject(line_, fmt::format("{} is neither a list nor a mapping", key), kForms);
  }

  static constexpr const char* kForms =
      "write names: [cat, dog], one name to a line behind a dash, or numbers and names: 0: cat";

 private:
  bool at_line_end() const {
    return left_.empty() || left_.front() == '\n' || left_.front() == '#';
  }
  void skip_blanks() {
    left_.remove_prefix(std::min(left_.find_first_not_of(kBlanks), left_.size()));
  }
  /// Skips blanks, comments and ends of lines.
  void skip_space() {
    for (skip_blanks(); !at_end() && at_line_end(); skip_blanks()) skip_line();
  }
  void require_line_end(std::string_view key) {
    skip_blanks();
    if (!at_line_end())
      reject(line_, fmt::format("{}: '{}' behind a value", key, shown(left_)), kForms);
  }
  static std::string shown(std::string_view text) {
    return base::printable(text.substr(0, std::min<std::size_t>(text.find('\n'), 60)));
  }

  /// Takes a quoted word. Its quote is at the front.
  std::string take_quoted() {
    const char quote = left_.front();
    std::string text;
    for (std::size_t i = 1; i < left_.size() && left_[i] != '\n'; ++i) {
      const std::string_view two = left_.substr(i, 2);
      if (quote == '"' && left_[i] == '\\') {
        if (two != "\\\"" && two != "\\\\")
          reject(line_, fmt::format("'{}' is an escape that is not read", shown(two)),
                 "write the character itself, in UTF-8");
        text += two[1];
        ++i;
      } else if (quote == '\'' && two == "''") {
        text += '\'';
        ++i;
      } else if (left_[i] == quote) {
        left_.remove_prefix(i + 1);
        return text;
      } else {
        text += left_[i];
      }
    }
    reject(line_, "a quote is not closed on its line", "close it");
  }
  /// Takes a word, plain or quoted. A plain one ends in front of `ends`, of a colon or comment that
  /// YAML sees there, and at the end of its line.
  std::string take_word(std::string_view key, std::string_view ends) {
    if (!at_end() && (left_.front() == '\'' || left_.front() == '"')) return take_quoted();
    std::size_t size = 0;
    for (; size < left_.size() && left_[size] != '\n'; ++size) {
      const char one = left_[size];
      const bool ends_value = size + 1 == left_.size() || is_one_of(left_[size + 1], " \t\r\n");
      if (is_one_of(one, ends) || (one == ':' && ends_value)) break;
      if (one == '#' && (size == 0 || is_one_of(left_[size - 1], kBlanks))) break;
    }
    std::string_view word = left_.substr(0, size);
    word.remove_suffix(word.size() - (word.find_last_not_of(kBlanks) + 1));
    constexpr std::string_view kOther = "[]{},&*!|>%@`?";  // other forms of YAML begin with these
    if (word.empty() || is_one_of(word.front(), kOther))
      reject(line_, fmt::format("{}: '{}' is no plain word", key, shown(left_)),
             "put it in quotes, or write a list of words");
    left_.remove_prefix(size);
    return std::string(word);
  }
  /// Takes an item, in a mapping with its key and colon.
  Item take_item(std::string_view key, bool mapped, std::string_view ends) {
    Item item{.text = {}, .key = {}, .line = line_};
    if (mapped) {
      item.key = take_word(key, ends);
      skip_blanks();
      if (at_end() || left_.front() != ':')
        reject(line_, fmt::format("{}: no colon behind '{}'", key, shown(*item.key)), kForms);
      left_.remove_prefix(1);
      skip_blanks();
    }
    item.text = take_word(key, ends);
    return item;
  }
  /// Takes a list or a mapping, whose bracket is at the front.
  std::vector<Item> take_flow(std::string_view key) {
    const char close = left_.front() == '[' ? ']' : '}';
    const std::uint64_t begun = line_;
    std::vector<Item> items;
    left_.remove_prefix(1);
    for (bool more = true;;) {
      skip_space();
      if (at_end()) reject(begun, fmt::format("{}: '{}' is missing", key, close), "add it");
      if (left_.front() == close) break;
      if (!more)
        reject(line_, fmt::format("{}: no comma before '{}'", key, shown(left_)), "add it");
      items.push_back(take_item(key, close == '}', ",[]{}"));
      skip_space();
      more = left_.starts_with(',');
      if (more) left_.remove_prefix(1);
    }
    left_.remove_prefix(1);
    require_line_end(key);
    return items;
  }
  /// Takes the lines behind the one of a key.
  std::vector<Item> take_block(std::string_view key) {
    std::vector<Item> items;
    std::optional<std::size_t> indent;
    for (skip_line(); !at_end(); skip_line()) {
      const std::size_t blanks = std::min(left_.find_first_not_of(kBlanks), left_.size());
      const std::string_view line = left_.substr(blanks);
      if (line.empty() || line.front() == '\n' || line.front() == '#') continue;
      const bool dash = line.front() == '-' && (line.size() == 1 || is_one_of(line[1], " \t\r\n"));
      if (blanks == 0 && !dash) break;
      if (items.empty() && is_one_of(line.front(), "[{")) {
        left_ = line;
        return take_flow(key);
      }
      if (blanks != indent.value_or(blanks) || (!items.empty() && items[0].key.has_value() == dash))
        reject(line_, fmt::format("{}: '{}' does not continue the lines above", key, shown(line)),
               kForms);
      indent = blanks;
      left_.remove_prefix(blanks + (dash ? 1 : 0));
      skip_blanks();
      items.push_back(take_item(key, !dash, {}));
      require_line_end(key);
    }
    return items;
  }

  const std::string& file_;
  std::string_view left_;
  std::uint64_t line_ = 1;
};

std::int64_t number_of(const Yaml& yaml, std::string_view key, const std::string& text,
                       std::uint64_t line) {
  const std::optional<std::int64_t> number = parse_label(text);
  if (!number)
    yaml.reject(line,
                fmt::format("{}: '{}' is no whole number from 0 on", key,
                            base::printable(text.substr(0, 60))),
                "write a whole number");
  return *number;
}

std::vector<std::string> names_of(const Yaml& yaml, const std::vector<Item>& items) {
  std::vector<std::string> names(items.size());
  std::vector<bool> named(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    const std::int64_t at =
        item.key ? number_of(yaml, "names", *item.key, item.line) : static_cast<std::int64_t>(i);
    if (at >= std::ssize(items) || named[static_cast<std::size_t>(at)])
      yaml.reject(item.line,
                  at >= std::ssize(items)
                      ? fmt::format("names: class {} of {} classes", at, items.size())
                      : fmt::format("names: class {} comes twice", at),
                  "classes count from 0, and each has one name");
    if (!is_class_name(item.text))
      yaml.reject(item.line, "names: a name is empty, or has characters that no name has",
                  "write a name on one line");
    named[static_cast<std::size_t>(at)] = true;
    names[static_cast<std::size_t>(at)] = item.text;
  }
  return names;
}

/// Returns a list of numbers, of a key that may not be a mapping.
std::vector<std::size_t> numbers_of(const Yaml& yaml, std::string_view key,
                                    const std::vector<Item>& items) {
  std::vector<std::size_t> numbers;
  for (const Item& item : items) {
    if (item.key)
      yaml.reject(item.line, fmt::format("{} is a mapping", key), "write a list: [17, 3]");
    numbers.push_back(static_cast<std::size_t>(number_of(yaml, key, item.text, item.line)));
  }
  return numbers;
}

}  // namespace

YoloConfig parse_yolo_config(const std::string& file, std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a mark of UTF-8
  Yaml yaml(file, text);
  YoloConfig config;
  std::array<std::uint64_t, kKeys.size()> lines{};  // of the keys
  std::vector<std::size_t> partners;
  while (!yaml.at_end()) {
    const std::uint64_t line = yaml.line();
    const std::string_view key = yaml.take_key();
    if (key.empty()) {
      yaml.skip_line();
      continue;
    }
    std::uint64_t& seen =
        lines[static_cast<std::size_t>(std::ranges::find(kKeys, key) - kKeys.begin())];
    if (seen != 0) yaml.reject(line, fmt::format("{} comes twice", key), "remove one");
    seen = line;
    const std::vector<Item> items = yaml.take_items(key);
    if (key == "names") {
      config.names = names_of(yaml, items);
    } else if (key == "flip_idx") {
      partners = numbers_of(yaml, key, items);
    } else {
      const std::vector<std::size_t> shape = numbers_of(yaml, key, items);
      if (shape.size() != 2 || shape[0] > kMaxPoints || (shape[1] != 2 && shape[1] != 3))
        yaml.reject(line, "kpt_shape is not a number of points and 2 or 3",
                    fmt::format("write [17, 3]; there are up to {} points", kMaxPoints));
      config.points = shape[0];
      config.numbers_per_point = shape[1];
    }
  }
  if (config.points == 0 || partners.empty()) return config;
  for (std::size_t i = 0; i < partners.size(); ++i) {
    if (partners.size() != config.points || partners[i] >= config.points ||
        partners[partners[i]] != i)
      yaml.reject(lines[2],
                  fmt::format("flip_idx does not exchange {} key points in pairs", config.points),
                  "write for each key point the number of its partner, or its own");
    if (i < partners[i]) config.flip_pairs.emplace_back(i, partners[i]);
  }
  return config;
}

}  // namespace millrace::pipeline

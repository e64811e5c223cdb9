// Takes three keys from a data.yaml.
#include "pipeline/readers/yolo_config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/text.h"
#include "millrace/error.h"
#include "pipeline/readers/data_set.h"

namespace millrace::pipeline {
namespace {

constexpr std::size_t kMaxBytes = 1 << 20;
constexpr std::size_t kMaxPoints = 1024;
constexpr const char* kForms =
    "write names: [cat, dog], one name to a line behind a dash, or numbers and names: 0: cat";

/// Reads the values of a file's keys, and names file and line of what is wrong.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& file) : file_(file) {}

  [[noreturn]] void reject(const YAML::Mark& mark, const std::string& reason,
                           const std::string& hint) const {
    throw DataError(fmt::format("{}:{}: {}", file_, std::max(mark.line, 0) + 1, reason), hint);
  }

  /// Returns the names of classes: a list, or a mapping of all numbers from 0 on.
  std::vector<std::string> names(const YAML::Node& node) const {
    if (!node.IsSequence() && !node.IsMap())
      reject(node.Mark(), "names is neither a list nor a mapping", kForms);
    std::vector<std::string> names(node.size());
    std::vector<bool> named(node.size());
    std::size_t next = 0;
    for (const auto& item : node) {
      const std::size_t at = node.IsMap() ? number("names", item.first) : next++;
      const YAML::Node& name = node.IsMap() ? item.second : item;
      if (at >= names.size())
        reject(name.Mark(), fmt::format("names: class {} of {} classes", at, names.size()),
               "classes count from 0, and each has one name");
      if (named[at])
        reject(name.Mark(), fmt::format("names: class {} comes twice", at),
               "classes count from 0, and each has one name");
      names[at] = word("names", name);
      named[at] = true;
      if (!is_class_name(names[at]))
        reject(name.Mark(), "names: a name is empty, or has characters that no name has",
               "write a name on one line");
    }
    return names;
  }

  /// Returns a list of numbers.
  std::vector<std::size_t> numbers(const std::string& key, const YAML::Node& node) const {
    if (!node.IsSequence())
      reject(node.Mark(), fmt::format("{} is not a list", key), "write a list: [17, 3]");
    std::vector<std::size_t> numbers;
    for (const YAML::Node& item : node) numbers.push_back(number(key, item));
    return numbers;
  }

 private:
  std::string word(const std::string& key, const YAML::Node& node) const {
    if (!node.IsScalar())
      reject(node.Mark(), fmt::format("{}: a list, a mapping or nothing instead of a word", key),
             kForms);
    return node.Scalar();
  }
  std::size_t number(const std::string& key, const YAML::Node& node) const {
    const std::string text = word(key, node);
    const std::optional<std::int64_t> number = parse_label(text);
    if (!number)
      reject(node.Mark(),
             fmt::format("{}: '{}' is no whole number from 0 on", key,
                         base::printable(text.substr(0, 60))),
             "write a whole number");
    return static_cast<std::size_t>(*number);
  }

  const std::string& file_;
};

/// Returns the pairs of key points that `partners` exchanges; nothing if it is not such a list.
std::optional<std::vector<std::pair<std::size_t, std::size_t>>> pairs_of(
    const std::vector<std::size_t>& partners, std::size_t points) {
  if (partners.size() != points) return std::nullopt;
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i < points; ++i) {
    if (partners[i] >= points || partners[partners[i]] != i) return std::nullopt;
    if (i < partners[i]) pairs.emplace_back(i, partners[i]);
  }
  return pairs;
}

/// Takes the three keys from the file's mapping.
YoloConfig read_config(const ConfigFile& file, const YAML::Node& root) {
  YoloConfig config;
  std::vector<std::size_t> partners;
  std::vector<std::string> seen;
  YAML::Mark partners_at;
  if (!root.IsMap()) return config;
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) continue;
    const std::string& key = entry.first.Scalar();
    if (key != "names" && key != "kpt_shape" && key != "flip_idx") continue;
    if (std::ranges::find(seen, key) != seen.end())
      file.reject(entry.first.Mark(), fmt::format("{} comes twice", key), "remove one");
    seen.push_back(key);
    if (key == "names") {
      config.names = file.names(entry.second);
    } else if (key == "flip_idx") {
      partners = file.numbers(key, entry.second);
      partners_at = entry.first.Mark();
    } else {
      const std::vector<std::size_t> shape = file.numbers(key, entry.second);
      if (shape.size() != 2 || shape[0] > kMaxPoints || (shape[1] != 2 && shape[1] != 3))
        file.reject(entry.first.Mark(), "kpt_shape is not a number of points and 2 or 3",
                    fmt::format("write [17, 3]; there are up to {} points", kMaxPoints));
      config.points = shape[0];
      config.numbers_per_point = shape[1];
    }
  }
  if (config.points == 0 || partners.empty()) return config;
  auto pairs = pairs_of(partners, config.points);
  if (!pairs)
    file.reject(partners_at,
                fmt::format("flip_idx does not exchange {} key points in pairs", config.points),
                "write for each key point the number of its partner, or its own");
  config.flip_pairs = std::move(*pairs);
  return config;
}

}  // namespace

YoloConfig parse_yolo_config(const std::string& path, std::string_view text) {
  const ConfigFile file(path);
  if (text.size() > kMaxBytes)
    throw DataError(fmt::format("{}: {} bytes, too long for a data.yaml", path, text.size()),
                    fmt::format("it may have {} bytes", kMaxBytes));
  try {
    return read_config(file, YAML::Load(std::string(text)));
  } catch (const YAML::Exception& e) {
    file.reject(e.mark, base::printable(e.msg), "correct the YAML in that place");
  }
}

}  // namespace millrace::pipeline
